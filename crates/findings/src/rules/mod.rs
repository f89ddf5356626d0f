//! One file for each subject of findings, and the table of all of them.

mod copy_engine;

use crate::Finding;
use crate::evidence::Evidence;

/// A source of findings.
struct FindingRule {
    /// Every id that its findings have.
    ids: &'static [&'static str],
    find: fn(&Evidence) -> Vec<Finding>,
}

/// All rules. A new one is a file, a row and a section of docs/findings.md.
const RULES: &[FindingRule] =
    &[FindingRule { ids: &[copy_engine::ID], find: copy_engine::find }];

/// All findings of a run: faults first, then by weight.
pub(crate) fn findings(evidence: &Evidence) -> Vec<Finding> {
    let mut all = Vec::new();
    for rule in RULES {
        let found = (rule.find)(evidence);
        debug_assert!(found.iter().all(|finding| rule.ids.contains(&finding.id)));
        all.extend(found);
    }
    for finding in &mut all {
        finding.simulated = evidence.is_simulated();
    }
    all.sort_by(|a, b| {
        let weight = b.weight.total_cmp(&a.weight);
        a.severity.cmp(&b.severity).then(weight).then(a.id.cmp(b.id))
    });
    all
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
        let document = include_str!("../../../../docs/findings.md");
        for id in RULES.iter().flat_map(|rule| rule.ids) {
            assert!(document.contains(&format!("`{id}`")), "docs/findings.md lacks {id}");
        }
    }
}
