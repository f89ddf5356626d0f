//! Limits on the memory of a journal: a file of some megabytes that unpacks to a gigabyte must not
//! take more memory than a journal does.

use crate::{JournalError, JournalRecord};

/// The most of one kind, by number and by bytes of text, whether or not a later line supersedes it.
struct KindLimit {
    what: &'static str,
    most: u64,
}

/// Runs write a note for a case at most; the largest have some thousands of cases.
const NOTES: KindLimit = KindLimit { what: "notes", most: 100_000 };
/// One for each part of a resumed run.
const BEGINS: KindLimit = KindLimit { what: "begins", most: 10_000 };
/// Text of both.
const REMARKS: KindLimit = KindLimit { what: "bytes of notes and begins", most: 16 << 20 };
/// Outcomes, and visits to cases that had none yet.
const RECORDS: KindLimit = KindLimit { what: "outcomes and visits", most: 400_000 };
/// Text of both. The largest journal of a node of four GPUs has 4 MB.
const TEXT: KindLimit = KindLimit { what: "bytes of outcomes and visits", most: 128 << 20 };
/// Values of one line or of all lines with samples. A run of 100 samples a case has half a million.
const VALUES: KindLimit = KindLimit { what: "samples and other values", most: 16 << 20 };

/// A limit that is exceeded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LimitExceeded {
    what: &'static str,
    most: u64,
}

impl LimitExceeded {
    pub(crate) fn at(self, line: usize) -> JournalError {
        JournalError::TooMany { line, what: self.what, most: self.most }
    }
}

impl KindLimit {
    fn add(&self, so_far: &mut u64, more: u64) -> Result<(), LimitExceeded> {
        *so_far += more;
        let Self { what, most } = *self;
        if *so_far > most { Err(LimitExceeded { what, most }) } else { Ok(()) }
    }
}

/// Counts of the records read so far.
#[derive(Debug, Default)]
pub(crate) struct JournalLoad {
    notes: u64,
    begins: u64,
    remarks: u64,
    records: u64,
    text: u64,
    values: u64,
    /// Of the line that was looked at last.
    line_values: u64,
}

impl JournalLoad {
    /// Looks at a line before it is parsed: a list of numbers takes several times as many bytes as its
    /// text.
    pub(crate) fn count_values(&mut self, line: &[u8]) -> Result<(), LimitExceeded> {
        self.line_values = line.iter().filter(|byte| **byte == b',').count() as u64;
        VALUES.add(&mut 0, self.line_values)
    }

    /// Adds a message of that many bytes.
    pub(crate) fn count(
        &mut self,
        message: &JournalRecord,
        bytes: u64,
    ) -> Result<(), LimitExceeded> {
        match message {
            JournalRecord::Note(_) => NOTES.add(&mut self.notes, 1)?,
            JournalRecord::Begin(_) => BEGINS.add(&mut self.begins, 1)?,
            // The last one alone is kept.
            JournalRecord::Topology(_) | JournalRecord::End(_) => return Ok(()),
            JournalRecord::Sampled(_)
            | JournalRecord::Measured(_)
            | JournalRecord::Skipped(_)
            | JournalRecord::Faulted(_) => {
                RECORDS.add(&mut self.records, 1)?;
                TEXT.add(&mut self.text, bytes)?;
                return VALUES.add(&mut self.values, self.line_values);
            }
        }
        REMARKS.add(&mut self.remarks, bytes)
    }
}
