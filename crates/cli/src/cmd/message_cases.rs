//! Cases of messages as the exchanges that a model predicts.

use anyhow::{Result, anyhow, bail};
use pathline_flow::MachineDesc;
use pathline_message::{ExchangeSpec, MessageLayer, MessageLibrary, exchange_of};
use pathline_schema::{Case, CopyAgent, Rank, RankMember, Transport};

/// The exchange that a case of messages stands for; None for a case of other flows.
pub(super) fn exchange_of_messages(
    case: &Case,
    desc: &MachineDesc,
) -> Option<Result<ExchangeSpec>> {
    let wire = case.flows().find_map(|flow| flow.by.wire())?;
    let exchange = || {
        let by = match wire.via {
            Transport::Mpi => {
                MessageLibrary::CrayMpich { sdma: wire.agent != Some(CopyAgent::Kernel) }
            }
            Transport::Ccl => MessageLibrary::Rccl,
            other => bail!("models have no messages by {other}"),
        };
        if !case.background.is_empty() {
            bail!("the model of messages has no background load");
        }
        let (exchange, _) = exchange_of(case, &members(case), by).map_err(|why| anyhow!(why))?;
        MessageLayer::new(desc)?.time(&exchange)?;
        Ok(exchange)
    };
    Some(exchange())
}

/// The processes that a case names, each with the GPU that it names, else GPU n for rank n.
fn members(case: &Case) -> Vec<RankMember> {
    let places = || case.flows().flat_map(|flow| [flow.src, flow.dst]);
    let last = places().map(|place| place.rank.0).max().unwrap_or(0);
    let gpu = |rank: Rank| places().find_map(|p| p.unit.gpu().filter(|_| p.rank == rank));
    // No node has more GPUs than this, and the text names any rank.
    let ranks = (0..=last.min(1023)).map(Rank);
    let member = |rank: Rank| {
        let gpus = vec![gpu(rank).unwrap_or(rank.0)];
        RankMember { rank, gpus, ..RankMember::default() }
    };
    ranks.map(member).collect()
}
