//! Reading a journal, whole or torn.

use std::io::{self, BufRead, Read};

use serde::Deserialize;

use crate::journal_limits::JournalLoad;
use crate::repeats::{RepeatReaders, merged};
use crate::sample_check::misfit;
use crate::{
    Case, CaseOutcome, FaultedCase, JournalRecord, MeasuredCase, RunBegin, RunEnd, RunNote,
    RunRepeat, RunSettings, SCHEMA_VERSION, SampledCase, Severity, Topology, WorldKind, plain_line,
};

/// The longest line that is read: a topology of thousands of devices fits, a runaway file does not.
const MAX_LINE: u64 = 64 << 20;
/// The longest line that may hold its type behind its data, which must then be kept apart until it is
/// known what it is. Every line of pathline begins with its type.
const MAX_TYPE_LAST: u64 = 4 << 20;
/// The most that is read of one journal. A case takes some kilobytes.
const MAX_JOURNAL: u64 = 1 << 30;
/// The most broken lines before the last one. A crash or a second writer breaks a few; a file with
/// more is no journal.
const MAX_BROKEN: usize = 100;

/// The most characters of a parser's complaint that an error repeats.
const MAX_REASON: usize = 300;

/// The records of a journal by kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Journal {
    /// The first begin.
    pub begin: RunBegin,
    /// Begins of resumed runs, in order.
    pub resumed: Vec<RunBegin>,
    /// The topology found before the first measurement.
    pub topology: Topology,
    /// Outcomes of the finished cases, in order; the last outcome of a case counts. Of a run with
    /// repeats: that of the repeat with the median time, or a fault if the case failed in any.
    pub outcomes: Vec<CaseOutcome>,
    /// Samples of cases that were not finished, merged by case.
    pub partial: Vec<SampledCase>,
    /// Warnings, in order.
    pub notes: Vec<RunNote>,
    /// How the run ended; none for a cut run.
    pub end: Option<RunEnd>,
    /// Whether the last line was cut off and dropped.
    pub torn: bool,
    /// Lines before the last that are no messages; what they recorded is missing here.
    pub broken: Vec<BrokenLine>,
    /// Length of the file up to and including its last whole line.
    pub whole_bytes: u64,
    /// Records that cannot be. Of a measured case the outcome is then a fault.
    pub rejected: Vec<RejectedRecord>,
    /// What each repeat measured; empty for a run that measured everything once.
    pub repeats: Vec<RunRepeat>,
}

/// A record of samples that no clock and no machine gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedRecord {
    /// Its line; 1 is the first.
    pub line: usize,
    /// Text of the case that it is about.
    pub case: String,
    /// The impossible value.
    pub why: String,
}

/// A line of a journal that is no message, though lines that are messages follow it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is broken and left out: {reason}")]
pub struct BrokenLine {
    /// 1 is the first.
    pub line: usize,
    /// The parser's message.
    pub reason: String,
}

/// Why a file is no journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read.
    #[error("cannot read the journal: {0}")]
    Io(#[from] io::Error),
    /// The first line is no message, or more than 100 lines are none.
    #[error("line {line}: {reason}; expected one JSON message a line")]
    Line {
        /// 1 is the first.
        line: usize,
        /// The parser's message.
        reason: String,
    },
    /// A line beyond any sensible length.
    #[error("line {line} is longer than {MAX_LINE} bytes: this is no journal of pathline")]
    TooLong {
        /// 1 is the first.
        line: usize,
    },
    /// A long line whose type does not come first.
    #[error(
        "line {line} is longer than {MAX_TYPE_LAST} bytes and does not begin with its type: this is no journal of pathline"
    )]
    TypeLast {
        /// 1 is the first.
        line: usize,
    },
    /// More than any run writes.
    #[error("longer than {MAX_JOURNAL} bytes: this is no journal of pathline")]
    TooBig,
    /// More of one kind than any run writes.
    #[error("line {line}: too many {what}, more than {most}: no run of pathline writes that many")]
    TooMany {
        /// 1 is the first.
        line: usize,
        /// Of what: notes, samples.
        what: &'static str,
        /// The most that are read.
        most: u64,
    },
    /// Written by a newer pathline.
    #[error(
        "journal format {found} is newer than this pathline reads ({SCHEMA_VERSION}); use the version that wrote it: {version}"
    )]
    Newer {
        /// Format of the file.
        found: u32,
        /// Version of pathline that wrote it.
        version: String,
    },
    /// It has no line.
    #[error("it is empty")]
    Empty,
    /// The first line is not a begin.
    #[error("the first line is no 'begin' message: this is no journal of pathline")]
    NoBegin,
    /// It ends within the first line, which begins as a begin does.
    #[error("it ends within its first line: a journal that was cut there has no case")]
    CutHead,
    /// A later part was measured in another world than the first.
    #[error(
        "line {line}: resumed as {second:?} after {first:?}; real and simulated figures cannot share a journal"
    )]
    Mixed {
        /// 1 is the first.
        line: usize,
        /// World of the first begin.
        first: WorldKind,
        /// World of this begin.
        second: WorldKind,
    },
}

impl Journal {
    /// Reads a journal. A last line without a line end, or that is no message, is dropped. So is a
    /// line before it that is no message, which is then listed: the others still say what they say.
    ///
    /// # Errors
    /// The file cannot be read, begins with something else than a journal does, or has more than 100
    /// broken lines; it is of a newer format; its parts are of two worlds.
    pub fn read(mut from: impl BufRead) -> Result<Self, JournalError> {
        let mut journal: Option<Self> = None;
        let mut parts = RepeatReaders::default();
        let mut bad: Option<BrokenLine> = None;
        let mut broken = Vec::new();
        let mut load = JournalLoad::default();
        let (mut whole_bytes, mut all_bytes) = (0, 0);
        let mut torn = false;
        for line in 1.. {
            let mut text = Vec::new();
            let read = from.by_ref().take(MAX_LINE).read_until(b'\n', &mut text)? as u64;
            if read == 0 {
                break;
            }
            all_bytes += read;
            if all_bytes > MAX_JOURNAL {
                return Err(JournalError::TooBig);
            }
            // The last line may be cut off. One that is followed by another was not.
            if let Some(earlier) = bad.take() {
                broken.push(earlier);
                torn = false;
                if journal.is_none() || broken.len() > MAX_BROKEN {
                    return Err(JournalError::of_first(&broken));
                }
            }
            if text.last() != Some(&b'\n') {
                if read >= MAX_LINE {
                    return Err(JournalError::TooLong { line });
                }
                if journal.is_none() && text.starts_with(br#"{"type":"begin""#) {
                    return Err(JournalError::CutHead);
                }
                torn = true;
                break;
            }
            if read > MAX_TYPE_LAST && !text.starts_with(br#"{"type""#) {
                return Err(JournalError::TypeLast { line });
            }
            load.count_values(&text).map_err(|limit| limit.at(line))?;
            let message: JournalRecord = match serde_json::from_slice(&text) {
                Ok(message) => message,
                Err(error) => {
                    if let Some(newer) = newer(&text) {
                        return Err(newer);
                    }
                    // The parser quotes what it met, of any length, and counts lines of what it was
                    // given, which is one.
                    let reason = error.to_string().replace(" at line 1 column ", " at column ");
                    let reason = plain_line(&reason).chars().take(MAX_REASON).collect();
                    bad = Some(BrokenLine { line, reason });
                    torn = true;
                    continue;
                }
            };
            whole_bytes = all_bytes;
            load.count(&message, read).map_err(|limit| limit.at(line))?;
            match &mut journal {
                None => journal = Some(Self::begun(message, &mut parts)?),
                Some(journal) => journal.add(message, line, &mut parts)?,
            }
        }
        let Some(mut journal) = journal else {
            if all_bytes == 0 {
                return Err(JournalError::Empty);
            }
            return Err(bad.map_or(JournalError::NoBegin, |bad| JournalError::of_first(&[bad])));
        };
        journal.take(parts.into_repeats());
        journal.torn = torn;
        journal.broken = broken;
        journal.whole_bytes = whole_bytes;
        Ok(journal)
    }

    /// Whether its run ended with an outcome of every case, in all repeats.
    pub fn is_complete(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.complete)
    }

    /// Puts together what the repeats measured.
    fn take(&mut self, mut repeats: Vec<RunRepeat>) {
        let wanted = self.begin.settings.repeats.max(1) as usize;
        if let Some(end) = &mut self.end {
            end.complete &= repeats.len() >= wanted && repeats.iter().all(|r| r.complete);
        }
        match repeats.pop() {
            Some(only) if wanted == 1 && repeats.is_empty() => {
                (self.outcomes, self.partial) = (only.outcomes, only.partial);
            }
            last => {
                repeats.extend(last);
                (self.outcomes, self.partial) = merged(&repeats);
                self.repeats = repeats;
            }
        }
    }

    fn begun(message: JournalRecord, parts: &mut RepeatReaders) -> Result<Self, JournalError> {
        let JournalRecord::Begin(begin) = message else { return Err(JournalError::NoBegin) };
        check_version(&begin)?;
        parts.begin(begin.repeat, &begin.started);
        Ok(Self::of_outcomes(*begin, Topology::default(), Vec::new()))
    }

    /// The records of a run that has not ended and has no file: whole, without warnings.
    pub fn of_outcomes(begin: RunBegin, topology: Topology, outcomes: Vec<CaseOutcome>) -> Self {
        Self {
            begin,
            resumed: Vec::new(),
            topology,
            outcomes,
            partial: Vec::new(),
            notes: Vec::new(),
            end: None,
            torn: false,
            broken: Vec::new(),
            whole_bytes: 0,
            rejected: Vec::new(),
            repeats: Vec::new(),
        }
    }

    fn add(
        &mut self,
        message: JournalRecord,
        line: usize,
        parts: &mut RepeatReaders,
    ) -> Result<(), JournalError> {
        let outcome = match message {
            JournalRecord::Begin(begin) => {
                check_version(&begin)?;
                if begin.world != self.begin.world {
                    let (first, second) = (self.begin.world.clone(), begin.world);
                    return Err(JournalError::Mixed { line, first, second });
                }
                let known = parts.begin(begin.repeat, &begin.started);
                if known {
                    self.resumed.push(*begin);
                }
                self.end = None;
                return Ok(());
            }
            JournalRecord::Topology(topology) => {
                self.topology = *topology;
                return Ok(());
            }
            JournalRecord::Sampled(visit) => {
                if let Some(why) = misfit(&visit.series) {
                    self.reject(line, &visit.case, why);
                    return Ok(());
                }
                parts.add_visit(visit);
                return Ok(());
            }
            JournalRecord::Note(note) => {
                // Each repeat of a run notes what is wrong with the machine again.
                let again = |n: &RunNote| n.code == note.code && n.subject == note.subject;
                if parts.is_first() || !self.notes.iter().any(again) {
                    self.notes.push(note);
                }
                return Ok(());
            }
            JournalRecord::End(end) => {
                parts.end(&end);
                self.end = Some(end);
                return Ok(());
            }
            JournalRecord::Measured(measured) => match misfit(&measured.series) {
                None => CaseOutcome::Measured(measured),
                Some(why) => {
                    let error = format!("line {line} of the journal cannot be: {why}");
                    self.reject(line, &measured.case, why);
                    let MeasuredCase { case, suites, .. } = *measured;
                    let (severity, ranks) = (Severity::Corrupt, Vec::new());
                    CaseOutcome::Faulted(FaultedCase { case, suites, error, severity, ranks })
                }
            },
            JournalRecord::Skipped(skip) => CaseOutcome::Skipped(skip),
            JournalRecord::Faulted(fault) => CaseOutcome::Faulted(fault),
        };
        parts.finish(outcome);
        Ok(())
    }

    fn reject(&mut self, line: usize, case: &Case, why: String) {
        self.rejected.push(RejectedRecord { line, case: case.to_string(), why });
    }

    /// Settings of the last part of the run.
    pub fn settings(&self) -> &RunSettings {
        &self.resumed.last().unwrap_or(&self.begin).settings
    }
}

impl JournalError {
    /// The error for a file of too many broken lines, by the first of them.
    fn of_first(broken: &[BrokenLine]) -> Self {
        let first = broken.first().cloned();
        first.map_or(Self::NoBegin, |BrokenLine { line, reason }| Self::Line { line, reason })
    }
}

fn check_version(begin: &RunBegin) -> Result<(), JournalError> {
    if begin.schema > SCHEMA_VERSION {
        let version = begin.version.clone();
        return Err(JournalError::Newer { found: begin.schema, version });
    }
    Ok(())
}

/// The fields of every version of the format.
#[derive(Deserialize)]
struct JournalHead {
    data: HeadData,
}

#[derive(Deserialize)]
struct HeadData {
    schema: u32,
    #[serde(default)]
    version: String,
}

/// The error for a line of a newer format, which this reader need not understand otherwise.
fn newer(text: &[u8]) -> Option<JournalError> {
    let HeadData { schema, version } = serde_json::from_slice::<JournalHead>(text).ok()?.data;
    (schema > SCHEMA_VERSION).then_some(JournalError::Newer { found: schema, version })
}
