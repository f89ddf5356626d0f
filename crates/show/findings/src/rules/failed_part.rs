//! Parts that fail, or that the node itself states to be less than they should.

use pathline_diagnose::{drain_node, gpus_in, part_remedy};
use pathline_explain::fmt;

use crate::evidence::{Evidence, failure_action};
use crate::{Finding, FindingSeverity};

pub(super) const ID: &str = "part-fails";

/// One finding for the parts on which cases fail, and one for each reduced link that no slow path shows.
pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    let topology = evidence.topology();
    let finding = |text: String, action: String, gpus: Vec<u32>| Finding {
        short: text.chars().take(Finding::MAX_SHORT).collect(),
        action: format!("{}.", fmt::sentence(&action)),
        places: gpus.iter().map(|gpu| format!("gpu{gpu}")).collect(),
        weight: f64::INFINITY,
        ..Finding::new(ID, FindingSeverity::Fault, format!("{text}."))
    };
    let failed = evidence.failed.iter().zip(evidence.failure()).map(|(failed, text)| {
        let gpus = failed.gpus.iter().copied().collect();
        let cause = if failed.hangs { format!("First: {}.", failed.error) } else { String::new() };
        let short = failed.sentence("case").split(';').next().unwrap_or_default().to_owned();
        Finding { short, cause, ..finding(text, failure_action(failed, &evidence.run), gpus) }
    });
    let parts: Vec<&str> =
        evidence.slow_groups.iter().filter_map(|group| group.part.as_deref()).collect();
    let reduced =
        evidence.reduced.iter().filter(|link| !parts.iter().any(|part| link.is_part(part)));
    let reduced = reduced.filter_map(|link| {
        let gpus: Vec<u32> = gpus_in(&link.name).into_iter().collect();
        let drain = drain_node(&evidence.run.journal.begin);
        let action = format!("{drain}; {}", part_remedy(topology, &link.name, &gpus));
        Some(finding(link.loss()?, action, gpus))
    });
    failed.chain(reduced).collect()
}
