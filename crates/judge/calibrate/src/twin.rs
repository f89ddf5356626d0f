//! The twin: the fitted model, its errors, and open questions.

use crate::candidates::GroupOrigin;
use crate::data::{CalibrateError, CalibrationData, NamedRun, PathEnds};
use crate::fit::{self, AtLeast, FitStep, FittedNode};
use crate::judge::{ErrorStats, JudgedSet, by_kind, crossed, judge};
use crate::peers::{PeerComparison, compare_peers};
use crate::repeats::repeat_floor;

/// A node, fitted to its runs.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeTwin {
    /// The data of the runs.
    pub data: CalibrationData,
    /// The fitted node.
    pub fitted: FittedNode,
    /// Each set of the fit, with its error.
    pub judged: Vec<JudgedSet>,
    /// Errors of the sets with a single possible timeline.
    pub errors: ErrorStats,
    /// Errors on held-out sets; `None` with too few sets.
    pub crossed: Option<ErrorStats>,
    /// Differences of sets that were measured twice; `None` if none was.
    pub floor: Option<ErrorStats>,
    /// Capacities and paths compared with those of like parts.
    pub peers: PeerComparison,
    /// Capacities that were never reached.
    pub at_least: Vec<AtLeast>,
    /// Questions that the data leave open, one sentence each.
    pub undecided: Vec<String>,
}

/// Fits a twin to runs of one node.
///
/// # Errors
/// No run, runs of different nodes or worlds, or no path that was measured alone.
pub fn calibrate(
    runs: &[NamedRun],
    report: &mut dyn FnMut(&FitStep),
) -> Result<NodeTwin, CalibrateError> {
    let mut data = CalibrationData::of(runs)?;
    let queues = fit::prepare(&mut data);
    let used = vec![true; data.sets.len()];
    let fitted = fit::fit(&data, &queues, used, report);
    let judged = judge(&data, &fitted.model, &data);
    let (errors, _) = by_kind(&judged);
    let crossed = crossed(&data, &fitted);
    let at_least = fit::uncertainty::at_least(&data, &fitted);
    let undecided = undecided(&data, &fitted, &at_least);
    let floor = repeat_floor(&data, &fitted.model.queues);
    let peers = compare_peers(&data, &fitted, errors.p95);
    Ok(NodeTwin { data, fitted, judged, errors, crossed, floor, peers, at_least, undecided })
}

/// Maximum number of paths to list.
const MAX_LISTED: usize = 6;

/// The questions that the data leave open.
fn undecided(data: &CalibrationData, fitted: &FittedNode, at_least: &[AtLeast]) -> Vec<String> {
    let mut found = data.warnings.clone();
    let names = |paths: &[usize]| {
        let texts: Vec<String> =
            paths.iter().take(MAX_LISTED).map(|&p| data.paths[p].key.to_string()).collect();
        let more = paths.len().saturating_sub(MAX_LISTED);
        texts.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
    };
    let paths = |what: &dyn Fn(&crate::data::MeasuredPath) -> bool| -> Vec<usize> {
        (0..data.paths.len()).filter(|&p| what(&data.paths[p])).collect()
    };
    let concurrent = paths(&|p| !p.alone());
    if !concurrent.is_empty() {
        found.push(format!(
            "{} paths were not measured alone; their highest concurrent rate stands for \
             their rate: {}",
            concurrent.len(),
            names(&concurrent)
        ));
    }
    let startless = paths(&|p| p.alone() && p.start_ns.is_none());
    if !startless.is_empty() {
        found.push(format!(
            "the start of {} paths is not known, since they were measured alone at sizes that are \
             too near: their rates contain it, and small copies are predicted too fast",
            startless.len()
        ));
    }
    let noisy = paths(&|p| p.alone() && p.high / p.low > 1.1);
    if !noisy.is_empty() {
        found.push(format!(
            "the rate of {} paths has an uncertainty above 10 %: {}",
            noisy.len(),
            names(&noisy)
        ));
    }
    missing_gpus(data, &mut found);
    pairs(data, &mut found);
    for group in &fitted.groups {
        if group.high / group.low > 1.1 {
            found.push(format!(
                "{}: its capacity is known only from {:.4} to {:.4} GB/s",
                group.name, group.low, group.high
            ));
        }
        if !group.rivals.is_empty() {
            found.push(format!("{}: could equally be {}", group.name, group.rivals.join(", or ")));
        }
        if let Some(also) = &group.also {
            found.push(format!(
                "{}: has the same paths as {also}, so the data cannot \
                 distinguish this memory from a switch or a link before it",
                group.name
            ));
        }
        if group.slows < 2 && group.found == GroupOrigin::Interference {
            found.push(format!("{}: rests on a single set of flows", group.name));
        }
    }
    for queue in fitted.queues.iter().filter(|q| q.assumed > 0 || q.against > 0) {
        found.push(format!(
            "{}: {} pairs of its copies ran one after the other, {} at once, {} were not distinguished",
            queue.name, queue.pairs, queue.against, queue.assumed
        ));
    }
    let reach: Vec<String> =
        at_least.iter().map(|a| format!("{} at least {:.1}", a.name, a.gbs)).collect();
    if !reach.is_empty() {
        found.push(format!("capacities that no set reached, in GB/s: {}", reach.join("; ")));
    }
    found
}

fn missing_gpus(data: &CalibrationData, found: &mut Vec<String>) {
    let touched = |gpu: u32| {
        data.paths.iter().any(|p| match p.ends {
            PathEnds::In { gpu: g, .. } | PathEnds::Out { gpu: g, .. } => g == gpu,
            PathEnds::Peer { src, dst } => src == gpu || dst == gpu,
            PathEnds::Within => p.key.by.at().gpu() == Some(gpu),
        })
    };
    let missing: Vec<String> = data
        .topology
        .gpus
        .iter()
        .filter(|g| !touched(g.index))
        .map(|g| format!("gpu{}", g.index))
        .collect();
    if !missing.is_empty() {
        found.push(format!("nothing was measured of {}", missing.join(", ")));
    }
}

fn pairs(data: &CalibrationData, found: &mut Vec<String>) {
    if data.sets.is_empty() {
        found.push(
            "no two flows were measured at once: what paths share is not known, and sets are \
             predicted as if they shared nothing; `pathline run contention` measures it"
                .to_owned(),
        );
        return;
    }
    let across: Vec<usize> =
        (0..data.paths.len()).filter(|&p| data.paths[p].ends != PathEnds::Within).collect();
    let mut met = std::collections::BTreeSet::new();
    for set in &data.sets {
        for (i, a) in set.flows.iter().enumerate() {
            for b in set.flows.iter().skip(i + 1) {
                met.insert((a.path.min(b.path), a.path.max(b.path)));
            }
        }
    }
    let n = across.len();
    let all = n * n.saturating_sub(1) / 2;
    let among = |(a, b): &(usize, usize)| a != b && across.contains(a) && across.contains(b);
    let met = met.iter().filter(|pair| among(pair)).count();
    if met < all {
        found.push(format!(
            "{} of {all} pairs of paths were never measured at once, alone or with others: what \
             only such a pair shares is not known",
            all - met
        ));
    }
}
