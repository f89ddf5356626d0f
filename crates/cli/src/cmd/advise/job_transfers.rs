//! What the setting that takes copy engines away does to a job, of which the counts of its transfers are known.

use anyhow::{Result, bail};
use pathline_advise::{Advice, AdviceChoice, JobTransfer, TrialArm};
use pathline_runner::MachineModel;
use pathline_schema::{Case, Ns, SizedTransfer, Topology};

use super::model_gains::ArmTimes;
use crate::args::AskedCase;

/// The answer by the sum of their times; none without counts, or where no setting takes engines away. A case without a
/// count stands for one transfer.
pub(super) fn answer_job(
    asked: &[AskedCase],
    model: &MachineModel,
    topology: &Topology,
    min_gain: f64,
) -> Result<Option<Advice>> {
    let caps = topology.gpus.first().map(|gpu| gpu.caps());
    let setting = caps.and_then(|caps| Some((caps, caps.copy_engine_env?)));
    let Some((caps, name)) = setting.filter(|_| asked.iter().any(|of| of.count.is_some())) else {
        return Ok(None);
    };
    let mut arms = Vec::new();
    for AskedCase { case, count } in asked {
        let flow = match (case.timed.as_slice(), case.background.as_slice()) {
            ([flow], []) if SizedTransfer::of_flow(flow).is_some() => flow,
            _ => bail!(
                "{case}: no count is known to matter here: {name} acts on copies between GPUs, copies of pinned \
                 memory, and messages"
            ),
        };
        let kernel = Case { timed: vec![flow.by_copy_kernel()], ..case.clone() };
        let [default, kernel] = [case.clone(), kernel].map(|case| TrialArm::of_case("", case));
        arms.push((default, kernel, count.unwrap_or(1)));
    }
    let times =
        ArmTimes::new(model, arms.iter().flat_map(|(default, kernel, _)| [default, kernel]))?;
    let mut transfers = Vec::new();
    for (default, kernel, count) in &arms {
        let Some((ns, gain)) = times.ns(default).zip(times.gain(default, kernel)) else {
            bail!("{default}: the model has no time of it, so that there is no sum");
        };
        let (subject, count) = (default.to_string(), *count);
        transfers.push(JobTransfer { subject, count, time: Ns(ns), gain });
    }
    let mut choice = AdviceChoice::of_setting(format!("Start this job with {name}=0"), name, "0");
    choice.cost = caps.copy_kernel_cost("the GPUs that copy", None);
    Ok(Some(Advice::of_job(choice, &transfers, min_gain)))
}
