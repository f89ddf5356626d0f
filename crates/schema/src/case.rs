//! A case: flows that are timed together, beside flows that only load the machine.

use std::fmt;
use std::str::FromStr;

use crate::{Bytes, Mover, ParseError, Place, serde_as_text, words};

/// The most flows that a case may hold; a text with more is refused, not swallowed.
const MAX_FLOWS: usize = 4096;

/// Bytes that go from one place to another by one mover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Where they come from.
    pub src: Place,
    /// Where they go.
    pub dst: Place,
    /// What carries them.
    pub by: Mover,
    /// How many, for one repetition. For a pointer chase: the span that the chain covers.
    pub bytes: Bytes,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} by {} x {}", self.src, self.dst, self.by, self.bytes)
    }
}

impl FromStr for Flow {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || {
            ParseError::new(
                "flow",
                s,
                "SRC > DST by MOVER x SIZE, such as gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB",
            )
        };
        let words: Vec<&str> = s.split_whitespace().take(8).collect();
        let &[src, ">", dst, "by", by, "x", bytes] = words.as_slice() else { return Err(bad()) };
        let bytes: Bytes = bytes.parse()?;
        if bytes.0 == 0 {
            return Err(ParseError::new("flow", s, "a size of at least 1 byte"));
        }
        Ok(Self { src: src.parse()?, dst: dst.parse()?, by: by.parse()?, bytes })
    }
}

/// How operations follow each other within a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Cadence {
    /// Queued back to back.
    #[default]
    Streaming,
    /// One at a time: the next is issued after the last one has completed.
    Isolated,
}
words!(Cadence, "cadence", { Streaming => "streaming", Isolated => "isolated" });

/// What is measured at once. Its text is its identity:
/// `r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB`, flows joined by ` & `, background flows
/// after ` while `, and ` isolated` at the end if operations are not queued.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Case {
    /// The flows that are timed, released by one gate. Never empty.
    pub timed: Vec<Flow>,
    /// Flows that run meanwhile and are not reported.
    pub background: Vec<Flow>,
    /// Back to back, or one at a time.
    pub cadence: Cadence,
}

impl Case {
    /// One timed flow, streaming.
    pub fn single(src: Place, dst: Place, by: Mover, bytes: Bytes) -> Self {
        Self::together(vec![Flow { src, dst, by, bytes }])
    }
    /// Several timed flows at once, streaming.
    pub fn together(timed: Vec<Flow>) -> Self {
        Self { timed, background: Vec::new(), cadence: Cadence::Streaming }
    }
    /// The same, one operation at a time.
    pub fn isolated(mut self) -> Self {
        self.cadence = Cadence::Isolated;
        self
    }
    /// All flows, timed ones first.
    pub fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.timed.iter().chain(&self.background)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join =
            |flows: &[Flow]| flows.iter().map(Flow::to_string).collect::<Vec<_>>().join(" & ");
        f.write_str(&join(&self.timed))?;
        if !self.background.is_empty() {
            write!(f, " while {}", join(&self.background))?;
        }
        match self.cadence {
            Cadence::Streaming => Ok(()),
            Cadence::Isolated => f.write_str(" isolated"),
        }
    }
}

impl FromStr for Case {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let text = s.trim();
        let (text, cadence) = match text.strip_suffix(" isolated") {
            Some(rest) => (rest, Cadence::Isolated),
            None => (text, Cadence::Streaming),
        };
        let (timed, background) = match text.split_once(" while ") {
            Some((timed, background)) => (timed, Some(background)),
            None => (text, None),
        };
        let flows = |part: &str| -> Result<Vec<Flow>, ParseError> {
            if part.matches('&').count() >= MAX_FLOWS {
                return Err(ParseError::new("case", s, format!("at most {MAX_FLOWS} flows")));
            }
            part.split('&').map(str::parse).collect()
        };
        Ok(Self {
            timed: flows(timed)?,
            background: background.map(flows).transpose()?.unwrap_or_default(),
            cadence,
        })
    }
}

serde_as_text!(Flow, Case, Cadence);
