//! Paths that are slower than the paths that should equal them.

use pathline_diagnose::{SlowGroup, drain_node};
use pathline_explain::fmt;

use crate::evidence::Evidence;
use crate::{Finding, FindingSeverity};

/// Least loss of the opposite direction that a finding states, beyond its interval.
const LEAST_TOLD: f64 = 0.02;

pub(super) const ID: &str = "path-slower-than-equals";

/// One finding for each path alone, and one for all paths that one part slows.
pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    evidence.slow_groups.iter().filter_map(|group| finding(evidence, group)).collect()
}

/// With the figure of the worst path that is neither disturbed nor under-sampled; none without one.
fn finding(evidence: &Evidence, group: &SlowGroup) -> Option<Finding> {
    let worst = group.worst()?;
    let mut paths = std::iter::once(worst).chain(&group.paths);
    let (path, value) = paths.find_map(|path| Some((path, evidence.value_of_slow(&path.case)?)))?;
    let stated = group.part.as_deref().and_then(|part| evidence.stated_loss(part));
    let mut seen: Vec<String> =
        stated.iter().map(|loss| format!("the node states: {loss}")).collect();
    if group.has_engine_reads() {
        seen.push("so are copies that its engines read from peers".to_owned());
    }
    if !path.movers_fine.is_empty() {
        let are = if path.movers_fine.len() == 1 { "is" } else { "are" };
        seen.push(format!("{} {are} normal there", fmt::list(&path.movers_fine)));
    }
    // A path back over another route says nothing of a part that is slow both ways.
    let is_both = group.part.as_deref().is_some_and(|part| part.contains("both directions"));
    seen.extend(path.reverse.filter(|_| !is_both).map(|reverse| match reverse {
        (_, true) => "the opposite direction is slow, too".to_owned(),
        (ratio, _) if ratio < 1.0 - LEAST_TOLD => format!(
            "the opposite direction is {} slower, which may be a state of the process",
            fmt::percent(1.0 - ratio)
        ),
        _ => "the opposite direction is fine".to_owned(),
    }));
    let peers = match value.unit {
        "us" => value.value * path.ratio,
        _ => value.value / path.ratio.max(1e-3),
    };
    let cause = seen.join("; ");
    let summary = group.summary();
    Some(Finding {
        short: match &group.part {
            Some(_) => {
                let short = summary.split(", the worst").next().unwrap_or_default();
                match short.chars().count() > Finding::MAX_SHORT {
                    true => short.split(" than ").next().unwrap_or_default().to_owned(),
                    false => short.to_owned(),
                }
            }
            None => format!("{}: {}, peers {}", path.path, value.plain_text(), fmt::number(peers)),
        },
        cause: if cause.is_empty() { cause } else { format!("{}.", fmt::sentence(&cause)) },
        action: match &stated {
            Some(_) => format!(
                "{}; {}.",
                fmt::sentence(&drain_node(&evidence.run.journal.begin)),
                group.remedy(evidence.topology())
            ),
            None if group.part.is_none() && group.paths.len() > 1 => format!(
                "`{}` measures them in new processes, and tells links from copy engines.",
                evidence.health()
            ),
            None => format!(
                "`{}` measures it in new processes; if it stays: {}.",
                evidence.health(),
                group.remedy(evidence.topology())
            ),
        },
        places: group.paths.iter().map(|path| path.path.clone()).collect(),
        arms: vec![value.arm(path.path.clone())],
        weight: (value.value - peers).abs(),
        ..Finding::new(
            ID,
            FindingSeverity::Fault,
            match group.comes_and_goes() || path.case != worst.case {
                true => format!("{}.", fmt::sentence(&summary)),
                false => format!(
                    "{} ({}; peers {}).",
                    fmt::sentence(&summary),
                    value.text(),
                    fmt::number(peers)
                ),
            },
        )
    })
}
