//! Rules of published tools, written again from their sources, over the median times of one process.

use pathline_schema::Mover;

use crate::world::TestNode;

/// What a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RuleValue {
    /// The least ratio of any path to what a healthy node has, copies between GPUs divided by the first
    /// number and paths to the host by the second.
    Floors(f64, f64),
    /// The least ratio of any path by any mover.
    EveryPath,
    /// The least ratio of any copy between GPUs by engine.
    EngineCopies,
    /// The ratio of the mean speed of all copies between GPUs by engine.
    MeanOfMatrix,
    /// No bandwidth has a limit.
    Nothing,
}

/// A rule: an alarm is raised if its value is below the threshold.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) value: RuleValue,
    /// As the tool ships it.
    pub(crate) shipped: f64,
}

/// Azure NHC: floors of 335 GB/s between H100s, where healthy ones have 394.7, and 48 GB/s to the host,
/// where they have 55.4; the same shares are taken of every node. SuperBench: `variance < -5 %` of the
/// baseline's mean, each metric. TransferBench: a copy below 0.97 of what was expected. CVS: the mean of
/// the matrix, 33.9 GB/s; the healthy mean of its node is not stated, and 0.9 of it is assumed here. DCGM
/// and RVS: their default configurations have no limit on bandwidth between GPUs.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        name: "Azure NHC, floors",
        value: RuleValue::Floors(335.0 / 394.7, 48.0 / 55.4),
        shipped: 1.0,
    },
    Rule { name: "SuperBench, -5 % of mean", value: RuleValue::EveryPath, shipped: 0.95 },
    Rule { name: "TransferBench, x0.97", value: RuleValue::EngineCopies, shipped: 0.97 },
    Rule { name: "CVS, mean of matrix", value: RuleValue::MeanOfMatrix, shipped: 0.9 },
    Rule { name: "DCGM, RVS, defaults", value: RuleValue::Nothing, shipped: 0.0 },
];

/// The value of a rule on a node with these median times, ns.
pub(crate) fn statistic(rule: &Rule, node: &TestNode, medians: &[f64]) -> f64 {
    // Ratio, whether between two GPUs, whether with the host, whether by engine.
    let ratios = || {
        let each = node.plan.probes.iter().zip(medians).zip(&node.base_ns);
        each.map(|((probe, measured), base)| {
            let flow = &probe.case.timed[0];
            let of_gpus = flow.src.unit.gpu().is_some() && flow.dst.unit.gpu().is_some();
            let engine = matches!(flow.by, Mover::Dma { .. });
            (base / measured, of_gpus && flow.src.unit != flow.dst.unit, !of_gpus, engine)
        })
    };
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    match rule.value {
        RuleValue::Floors(gpu, host) => least(&mut ratios().filter(|r| r.3).map(|r| match r {
            (ratio, true, ..) => ratio / gpu,
            (ratio, _, true, _) => ratio / host,
            _ => f64::INFINITY,
        })),
        RuleValue::EveryPath => least(&mut ratios().map(|r| r.0)),
        RuleValue::EngineCopies => least(&mut ratios().filter(|r| r.1 && r.3).map(|r| r.0)),
        RuleValue::MeanOfMatrix => {
            let all: Vec<f64> = ratios().filter(|r| r.1 && r.3).map(|r| r.0).collect();
            all.iter().sum::<f64>() / all.len().max(1) as f64
        }
        RuleValue::Nothing => 1.0,
    }
}
