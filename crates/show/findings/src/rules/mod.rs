//! One file for each subject of findings, and the table of all of them.

mod below_model;
mod collective_ranks;
mod collectives;
mod copy_engine;
mod failed_part;
mod gpu_choice;
mod host_memory;
mod load;
mod messages;
mod multipath;
mod numa;
mod routes;
mod shared_memory;
mod storage;
mod streaming_stores;
mod unlike;
mod unregister;

pub(crate) use below_model::find as find_below_model;
pub(crate) use collectives::largest_all_reduce;

use crate::evidence::Evidence;
use crate::{Finding, FindingSeverity};

/// A source of findings.
struct FindingRule {
    /// Every id that its findings have.
    ids: &'static [&'static str],
    find: fn(&Evidence) -> Vec<Finding>,
}

/// All rules. A new one is a file, a row and a section of docs/understand/findings.md.
const RULES: &[FindingRule] = &[
    FindingRule { ids: &[failed_part::ID], find: failed_part::find },
    FindingRule { ids: &[unlike::ID], find: unlike::find },
    FindingRule { ids: &[copy_engine::ID, copy_engine::READ], find: copy_engine::find },
    FindingRule {
        ids: &[
            host_memory::PAGEABLE,
            host_memory::BY_SIZE,
            host_memory::ZERO_COPY,
            host_memory::CROSSOVER,
            host_memory::NOT_CACHED,
            host_memory::FAULTS,
            host_memory::ALIKE,
        ],
        find: host_memory::find,
    },
    FindingRule { ids: &[gpu_choice::SPREAD, gpu_choice::SHARED], find: gpu_choice::find },
    FindingRule { ids: &[numa::MATTERS, numa::ALIKE], find: numa::find },
    FindingRule { ids: &[routes::FORWARDED, routes::SHARED], find: routes::find },
    FindingRule { ids: &[multipath::FASTER, multipath::NO_GAIN], find: multipath::find },
    FindingRule { ids: &[load::THREADS, load::KERNEL], find: load::find },
    FindingRule { ids: &[messages::ID], find: messages::find },
    FindingRule {
        ids: &[collectives::LIBRARY, collectives::DIRECT, collectives::GRAPH],
        find: collectives::find,
    },
    FindingRule { ids: &[collective_ranks::ID], find: collective_ranks::find },
    FindingRule { ids: &[streaming_stores::ID], find: streaming_stores::find },
    FindingRule { ids: &[shared_memory::ID], find: shared_memory::find },
    FindingRule {
        ids: &[
            storage::SATURATION,
            storage::STAGING,
            storage::PAGES,
            storage::CACHE,
            storage::WORKERS,
        ],
        find: storage::find,
    },
    FindingRule { ids: &[unregister::ID], find: unregister::find },
];

/// All findings of a run: faults first, then by weight.
pub(crate) fn findings(evidence: &Evidence) -> Vec<Finding> {
    let mut all = Vec::new();
    for rule in RULES {
        let found = (rule.find)(evidence);
        debug_assert!(found.iter().all(|finding| rule.ids.contains(&finding.id)));
        all.extend(found);
    }
    // Half of a node has no best path.
    all.retain(|finding| finding.severity == FindingSeverity::Fault || !evidence.hangs());
    for finding in &mut all {
        finding.simulated = evidence.is_simulated();
        debug_assert!(!finding.short.is_empty(), "{} has no short form", finding.id);
    }
    sort(&mut all);
    // The table of the setting stands once.
    let stated = all.iter_mut().filter(|finding| finding.by_size.is_some());
    stated.skip(1).for_each(|finding| finding.by_size = None);
    all
}

/// Findings that results on assumed constants of a model add, of kinds that sound ones do not give. They stand
/// last, and none of them accuses a part.
pub(crate) fn assumed_findings(all: &Evidence, sound: &[Finding]) -> Vec<Finding> {
    let mut found = findings(all);
    found.retain(|new| {
        new.severity != FindingSeverity::Fault && sound.iter().all(|known| known.id != new.id)
    });
    for finding in &mut found {
        finding.observation = format!("On assumed constants: {}", finding.observation);
        finding.short = format!("assumed: {}", finding.short);
        finding.arms.iter_mut().for_each(|arm| arm.half_width = None);
    }
    found
}

/// Faults first, then by weight.
pub(crate) fn sort(all: &mut [Finding]) {
    all.sort_by(|a, b| {
        let weight = b.weight.total_cmp(&a.weight);
        a.severity.cmp(&b.severity).then(weight).then(a.id.cmp(b.id))
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_id_is_of_one_rule() {
        let all: Vec<&str> = RULES.iter().flat_map(|rule| rule.ids).copied().collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn the_document_has_a_section_for_every_id() {
        let document = include_str!("../../../../../docs/understand/findings.md");
        for id in RULES.iter().flat_map(|rule| rule.ids).chain(&[below_model::ID]) {
            assert!(
                document.contains(&format!("`{id}`")),
                "docs/understand/findings.md lacks {id}"
            );
        }
    }
}
