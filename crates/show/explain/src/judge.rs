//! Verdict on a run, from its journal alone. It determines the exit code of `pathline run` and
//! `pathline report`.

use pathline_schema::{CaseOutcome, Journal, RunNote};

use crate::beyond_ceiling::beyond_ceiling;
use crate::case_end::CaseEnds;

/// Verdict on the outcomes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunVerdict {
    /// There are results and no errors, even if a time limit cut the run.
    Fine,
    /// A case failed by the node, required GPUs cannot be used, a GPU counted errors that ECC could not
    /// correct, or a result is impossible: above the hardware's limits, or not a duration of a clock.
    Wrong,
    /// Cases were ended by something that says nothing about the node: people, limits, a library. Or the run
    /// did not end: it was killed, or goes on. Or lines of its journal cannot be read.
    Incomplete,
    /// No case has a figure.
    CouldNotJudge,
}

/// Judges a run.
pub fn judge(journal: &Journal) -> RunVerdict {
    let any = |is: fn(&CaseOutcome) -> bool| journal.outcomes.iter().any(is);
    let ends = CaseEnds::new(journal);
    let lacks_gpus = journal.notes.iter().any(RunNote::lacks_gpus);
    let has_errors =
        lacks_gpus || !journal.rejected.is_empty() || uncorrected_errors(journal).is_some();
    if !ends.of_node.is_empty() || has_errors || !beyond_ceiling(journal).is_empty() {
        RunVerdict::Wrong
    } else if !ends.from_outside.is_empty() || journal.end.is_none() || !journal.broken.is_empty() {
        RunVerdict::Incomplete
    } else if any(|o| matches!(o, CaseOutcome::Measured(_))) || !journal.partial.is_empty() {
        RunVerdict::Fine
    } else {
        RunVerdict::CouldNotJudge
    }
}

/// The first GPU whose memory had errors, while cases were measured, that ECC could not correct, in a sentence.
pub fn uncorrected_errors(journal: &Journal) -> Option<String> {
    journal.outcomes.iter().find_map(|outcome| {
        let CaseOutcome::Measured(measured) = outcome else { return None };
        measured.gpus.iter().find_map(|(gpu, readings)| {
            let (before, after) =
                (readings.before.ecc_uncorrected?, readings.after.ecc_uncorrected?);
            let new = after.checked_sub(before).filter(|new| *new > 0)?;
            let case = &measured.case;
            Some(format!(
                "{gpu} counted {new} memory errors that ECC could not correct, during {case}"
            ))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use pathline_schema::{GpuReadings, GpuState, JournalRecord, RunNote, Unit};

    use super::*;
    use crate::headlines;
    use crate::run::RunView;

    /// A run with one measured case and a note.
    fn journal(code: &str, text: &str) -> Journal {
        let note = RunNote { code: code.into(), subject: "gpus".into(), text: text.into() };
        let note = serde_json::to_string(&JournalRecord::Note(note)).unwrap();
        let document =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/understand/records.md");
        // The document's example has a message of each kind, and breaks it into lines after commas.
        let document = std::fs::read_to_string(document).unwrap().replace(",\n  ", ",");
        let is = |line: &&str, kind: &str| line.starts_with(&format!("{{\"type\":\"{kind}\""));
        let kinds = ["begin", "topology", "measured", "end"];
        let lines = document.lines().filter(|line| kinds.iter().any(|kind| is(line, kind)));
        let text: String = lines.chain([note.as_str()]).map(|line| format!("{line}\n")).collect();
        Journal::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_run_that_lacks_gpus_which_it_must_have_is_wrong() {
        for (code, verdict) in [
            ("drift", RunVerdict::Fine),
            (RunNote::GPUS_UNUSABLE, RunVerdict::Wrong),
            (RunNote::WITHOUT_GPUS, RunVerdict::Wrong),
        ] {
            let journal = journal(code, "none of the 8 GPUs can be used.");
            assert_eq!(judge(&journal), verdict, "{code}");
            let all = headlines::all(&RunView::new(&journal, None), &[], Vec::new());
            let first = all.first().map_or("", |headline| headline.text.as_str());
            let lacks = verdict == RunVerdict::Wrong;
            assert_eq!(first == "None of the 8 GPUs can be used.", lacks, "{first}");
        }
    }

    #[test]
    fn a_run_without_an_end_is_incomplete_and_uncorrected_errors_are_wrong() {
        let mut journal = journal("drift", "x");
        let end = journal.end.take();
        assert_eq!(judge(&journal), RunVerdict::Incomplete);
        journal.end = end;
        let counted = |n| GpuState { ecc_uncorrected: n, ..GpuState::default() };
        for (before, after, verdict) in [
            (Some(3), Some(3), RunVerdict::Fine),
            (None, Some(3), RunVerdict::Fine),
            (Some(3), Some(8), RunVerdict::Wrong),
        ] {
            let (before, after) = (counted(before), counted(after));
            let CaseOutcome::Measured(measured) = &mut journal.outcomes[0] else { panic!() };
            let readings = GpuReadings { before, during: None, after };
            measured.gpus = BTreeMap::from([(Unit::Gpu(2), readings)]);
            assert_eq!(judge(&journal), verdict);
        }
        // 8 - 3 = 5 new errors.
        let text = uncorrected_errors(&journal).unwrap();
        assert!(text.starts_with("gpu2 counted 5 memory errors"), "{text}");
    }
}
