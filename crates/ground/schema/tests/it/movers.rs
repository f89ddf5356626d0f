//! The table of movers holds together, and readers can look each of them up.

use pathline_schema::{FaultHandling, IssueCall};
use proptest::prelude::*;

use crate::common::mover;

const RECORDS: &str = include_str!("../../../../../docs/understand/records.md");

proptest! {
    #[test]
    fn every_mover_stands_in_the_grammar(mover in mover()) {
        let kind = mover.kind();
        let listed = [format!("| `{kind}@"), format!("`{kind}`")];
        prop_assert!(listed.iter().any(|text| RECORDS.contains(text)), "{kind}");
    }

    /// A path of a machine file is predicted as one operation that some call issues.
    #[test]
    fn only_what_a_model_prices_is_fitted(mover in mover()) {
        let facts = mover.facts();
        prop_assert!(facts.issue.is_some() || facts.not_fitted.is_some(), "{mover}");
        prop_assert!(mover.has_rate() || facts.not_fitted.is_some() || mover.is_chase(), "{mover}");
    }

    #[test]
    fn rows_do_not_contradict_themselves(mover in mover()) {
        let facts = mover.facts();
        let copies = facts.copy_agent.is_some();
        prop_assert!(!copies || (facts.moves_bytes && !facts.uses_registers), "{mover}");
        prop_assert!(!copies || facts.faults.is_none(), "{mover}");
        let launched = facts.issue == Some(IssueCall::Launch);
        prop_assert!(facts.faults != Some(FaultHandling::InPlace) || launched, "{mover}");
        let effect = mover.effect(pathline_schema::Bytes(64));
        prop_assert!(facts.moves_bytes || effect.reads.0 + effect.writes.0 == 0, "{mover}");
        prop_assert_eq!(mover.workers().is_some(), mover.threads() > 0 || mover.is_on_files());
    }
}
