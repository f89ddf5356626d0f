//! Answers that need no run: exchanges, and cases that only the physics can time.

use std::collections::BTreeMap;

use pathline_flow::{DescError, MachineDesc, Network, RuntimeEnv};
use pathline_message::MessageLayer;
use pathline_schema::{Case, Flow, MigrateHow, Mover, Ns, Rate, Unit, WireOp};

use crate::number::{MachineAnswer, MachineQuery};
use crate::report::ValidationPlan;

/// Answers by query; an error is the reason for which there is none.
pub type AnswerMap = BTreeMap<MachineQuery, Result<MachineAnswer, String>>;

impl ValidationPlan {
    /// The answers of the physics for the rows of `stack`, and the cases that remain to be run on a
    /// machine. `desc` is the machine with that stack.
    ///
    /// # Errors
    /// A description that makes no network.
    pub fn answer_by_physics(
        &self,
        desc: &MachineDesc,
        stack: &str,
    ) -> Result<(AnswerMap, Vec<Case>), DescError> {
        let layer = MessageLayer::new(desc)?;
        let network = Network::new(desc, RuntimeEnv::default())?;
        let (mut answers, mut to_run) = (AnswerMap::new(), Vec::new());
        for query in self.queries_of(stack) {
            let answer = match query {
                MachineQuery::Case(case) if is_cpu_fault(case) => predict(&network, case),
                MachineQuery::Case(case) if shares_memory(case) => shared_memory(&layer, case),
                MachineQuery::Case(case) => {
                    to_run.push(case.clone());
                    continue;
                }
                MachineQuery::Exchange(exchange) => layer
                    .time(exchange)
                    .map(|time| MachineAnswer {
                        rate: time.algbw.gbs(),
                        time_us: time.time.0 / 1e3,
                        mean_us: time.mean.0 / 1e3,
                        bus: time.busbw.gbs(),
                    })
                    .map_err(|why| why.to_string()),
            };
            answers.insert(query.clone(), answer);
        }
        Ok((answers, to_run))
    }
}

/// Whether CPU threads fetch pages from a GPU by touching them. The engine has no such case: there
/// pages fault on GPUs.
fn is_cpu_fault(case: &Case) -> bool {
    let faults =
        |f: &Flow| matches!(f.by, Mover::Migrate { at: Unit::Numa(_), how: MigrateHow::Fault });
    case.timed.iter().any(faults)
}

/// Whether two processes of the node copy all its messages through memory that both reach.
fn shares_memory(case: &Case) -> bool {
    case.timed.iter().all(|flow| flow.by.wire().is_some_and(|wire| wire.via.shares_memory()))
}

/// A ping counts half its round trip, as osu_latency does, and a window each of its messages.
fn shared_memory(layer: &MessageLayer, case: &Case) -> Result<MachineAnswer, String> {
    let outcome = layer.shared_memory(case).map_err(|why| why.to_string())?;
    let (mut rate, mut time_us) = (0.0, 0.0f64);
    for (flow, each) in case.timed.iter().zip(outcome.each) {
        let messages = match flow.by.wire().map(|wire| wire.op) {
            Some(WireOp::Ping) => 2.0,
            Some(op) => f64::from(op.window()),
            None => 1.0,
        };
        let time = Ns(each.0 / messages);
        rate += Rate::of(flow.bytes, time).gbs();
        time_us = time_us.max(time.0 / 1e3);
    }
    Ok(MachineAnswer::of_case(rate, time_us))
}

pub(crate) fn predict(network: &Network, case: &Case) -> Result<MachineAnswer, String> {
    let flows = network.predict(case).map_err(|why| why.to_string())?;
    let (mut rate, mut time_us) = (0.0, 0.0f64);
    for (flow, predicted) in case.timed.iter().zip(flows) {
        rate += Rate::of(flow.bytes, predicted.time).gbs();
        time_us = time_us.max(predicted.time.0 / 1e3);
    }
    Ok(MachineAnswer::of_case(rate, time_us))
}
