//! Traces in GOAL, the text format of LogGOPSim: what each rank sends, receives and computes, and what
//! waits for what.
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//! l1: calc 1000
//! l2: send 4096b to 1 tag 7
//! l2 requires l1
//! }
//! rank 1 {
//! l1: recv 4096b from 0 tag 7
//! }
//! ```
//!
//! The reader keeps one line and the operations; a trace that is too long is refused where it is.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, Read};

/// The longest line, the most operations, dependencies and ranks of a trace.
const MAX_LINE: usize = 1 << 16;
const MAX_OPERATIONS: usize = 2_000_000;
const MAX_DEPENDENCIES: usize = 8_000_000;
const MAX_RANKS: u32 = 1 << 17;
/// The most bytes that are read, comments and blank lines included: ten times what the most operations take.
const MAX_TRACE: u64 = 1 << 30;
/// 2^50 bytes, and 1e15 ns.
const MAX_BYTES: u64 = 1 << 50;
const MAX_CALC: u64 = 1_000_000_000_000_000;

/// An error of a trace, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalError {
    /// From 1.
    pub line: u64,
    /// The error and the expected form.
    pub reason: String,
}

impl std::fmt::Display for GoalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for GoalError {}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoalWork {
    /// Computes for this many ns.
    Calc(u64),
    /// Sends the message of this number.
    Send(u32),
    /// Receives it.
    Recv(u32),
}

/// One operation of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GoalOperation {
    pub rank: u32,
    pub line: u64,
    pub work: GoalWork,
    /// Operations that end before it starts.
    pub after: Vec<u32>,
}

/// A message with its two operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GoalMessage {
    pub bytes: u64,
    pub send: u32,
    pub recv: u32,
}

/// A trace whose messages all have both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalTrace {
    ranks: u32,
    pub(crate) operations: Vec<GoalOperation>,
    pub(crate) messages: Vec<GoalMessage>,
}

/// Sender, receiver, tag.
type MessageKey = (u32, u32, u32);

/// Ends of messages that wait for their other end, in the order of the trace.
#[derive(Default)]
struct OpenEnds {
    /// Operation, line and bytes.
    waiting: VecDeque<(u32, u64, u64)>,
    are_sends: bool,
}

#[derive(Default)]
struct GoalParser {
    max_operations: usize,
    ranks: Option<u32>,
    seen: Vec<bool>,
    /// The rank whose block is open, and its line.
    open: Option<(u32, u64)>,
    labels: HashMap<String, u32>,
    /// Operations that start no earlier than another of the open block.
    starts: Vec<(u32, u32)>,
    operations: Vec<GoalOperation>,
    messages: Vec<GoalMessage>,
    ends: HashMap<MessageKey, OpenEnds>,
    dependencies: usize,
}

impl GoalTrace {
    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Number of messages.
    pub fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Number of operations.
    pub fn operations(&self) -> usize {
        self.operations.len()
    }

    /// Reads a trace line by line.
    ///
    /// # Errors
    /// No GOAL, a trace that ends within a rank, a message with one end, or more than the limits; with
    /// the line.
    pub fn read(input: impl BufRead) -> Result<Self, GoalError> {
        Self::read_up_to(MAX_OPERATIONS, MAX_TRACE, input)
    }

    fn read_up_to(
        max_operations: usize,
        max_bytes: u64,
        mut input: impl BufRead,
    ) -> Result<Self, GoalError> {
        let mut parser = GoalParser { max_operations, ..GoalParser::default() };
        let mut text = Vec::new();
        let mut bytes = 0;
        for line in 1u64.. {
            let fail = |reason: String| GoalError { line, reason };
            text.clear();
            let limit = MAX_LINE as u64 + 1;
            let read = input.by_ref().take(limit).read_until(b'\n', &mut text);
            if read.map_err(|e| fail(format!("it cannot be read: {e}")))? == 0 {
                return parser.finish(line - 1);
            }
            if text.len() > MAX_LINE {
                return Err(fail(format!("a line of more than {MAX_LINE} bytes")));
            }
            bytes += text.len() as u64;
            if bytes > max_bytes {
                let reason = format!("more than {max_bytes} bytes; take a part of the trace");
                return Err(fail(reason));
            }
            let text = str::from_utf8(&text).map_err(|_| fail("it is not UTF-8".to_owned()))?;
            parser.line(text, line).map_err(fail)?;
        }
        parser.finish(u64::MAX)
    }
}

/// A number without sign.
fn number(text: &str, what: &str, most: u64) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let value = digits.then(|| text.parse::<u64>().ok()).flatten().filter(|n| *n <= most);
    value.ok_or_else(|| format!("{what} '{}'; expected a number up to {most}", shortened(text)))
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

impl GoalParser {
    fn line(&mut self, text: &str, line: u64) -> Result<(), String> {
        let text = text.split("//").next().unwrap_or_default();
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            return Ok(());
        }
        let words: Vec<&str> = text.split_whitespace().take(16).collect();
        match (self.open, words.as_slice()) {
            (None, ["num_ranks", count]) => {
                if self.ranks.is_some() {
                    return Err("num_ranks a second time".to_owned());
                }
                let count = number(count, "num_ranks", u64::from(MAX_RANKS))? as u32;
                self.seen = vec![false; count as usize];
                self.ranks = Some(count);
                Ok(())
            }
            (None, ["rank", rank, "{"]) => {
                let rank = self.rank(rank)?;
                let seen = self.seen.get_mut(rank as usize);
                if seen.is_none_or(|seen| std::mem::replace(seen, true)) {
                    return Err(format!("rank {rank} a second time"));
                }
                self.open = Some((rank, line));
                Ok(())
            }
            (None, _) => Err(format!("'{}'; expected num_ranks N, or rank N {{", shortened(text))),
            (Some(_), ["}"]) => {
                self.close();
                Ok(())
            }
            (Some(_), [a, kind @ ("requires" | "irequires"), b]) => {
                let (a, b) = (self.label(a)?, self.label(b)?);
                self.dependencies += 1;
                if self.dependencies > MAX_DEPENDENCIES {
                    return Err(format!("more than {MAX_DEPENDENCIES} dependencies"));
                }
                if *kind == "irequires" {
                    self.starts.push((a, b));
                } else if let Some(operation) = self.operations.get_mut(a as usize) {
                    operation.after.push(b);
                }
                Ok(())
            }
            (Some((rank, _)), words) => self.operation(rank, words, line),
        }
    }

    fn rank(&self, text: &str) -> Result<u32, String> {
        let ranks = self.ranks.ok_or("num_ranks N comes first")?;
        let rank = number(text, "rank", u64::from(MAX_RANKS))? as u32;
        if rank < ranks {
            Ok(rank)
        } else {
            Err(format!("rank {rank}; the trace has ranks 0 to {}", ranks.saturating_sub(1)))
        }
    }

    fn label(&self, text: &str) -> Result<u32, String> {
        let known = self.labels.get(text).copied();
        known.ok_or_else(|| format!("no operation above has the label '{}'", shortened(text)))
    }

    fn operation(&mut self, rank: u32, words: &[&str], line: u64) -> Result<(), String> {
        const FORM: &str = "expected [LABEL:] calc NS, send BYTESb to RANK [tag N], recv BYTESb from RANK \
                            [tag N], A requires B, or }";
        if self.operations.len() >= self.max_operations {
            let most = self.max_operations;
            return Err(format!("more than {most} operations; take a part of the trace"));
        }
        let (label, words) = match words {
            [label, rest @ ..] if label.ends_with(':') => (label.strip_suffix(':'), rest),
            words => (None, words),
        };
        let id = self.operations.len() as u32;
        let work = match words {
            ["calc", ns, rest @ ..] => {
                let ns = number(ns, "calc", MAX_CALC)?;
                options(rest)?;
                GoalWork::Calc(ns)
            }
            [verb @ ("send" | "recv"), bytes, side @ ("to" | "from"), peer, rest @ ..]
                if (*verb == "send") == (*side == "to") =>
            {
                let bytes = number(bytes.strip_suffix('b').unwrap_or(bytes), "size", MAX_BYTES)?;
                let (peer, tag) = (self.rank(peer)?, options(rest)?);
                self.message(id, (rank, peer, tag), *verb == "send", bytes, line)?
            }
            _ => return Err(format!("'{}'; {FORM}", shortened(&words.join(" ")))),
        };
        if let Some(label) = label
            && self.labels.insert(label.to_owned(), id).is_some()
        {
            return Err(format!("label '{}' a second time in this rank", shortened(label)));
        }
        self.operations.push(GoalOperation { rank, line, work, after: Vec::new() });
        Ok(())
    }

    /// Joins the ends of a message: those with the same ranks and tag in the order of the trace.
    fn message(
        &mut self,
        id: u32,
        (rank, peer, tag): (u32, u32, u32),
        sends: bool,
        bytes: u64,
        line: u64,
    ) -> Result<GoalWork, String> {
        let key = if sends { (rank, peer, tag) } else { (peer, rank, tag) };
        let open = self.ends.entry(key).or_default();
        let work = |message| if sends { GoalWork::Send(message) } else { GoalWork::Recv(message) };
        if open.waiting.is_empty() || open.are_sends == sends {
            open.are_sends = sends;
            open.waiting.push_back((id, line, bytes));
            return Ok(work(u32::MAX));
        }
        let Some((other, at, other_bytes)) = open.waiting.pop_front() else {
            return Ok(work(u32::MAX));
        };
        if open.waiting.is_empty() {
            self.ends.remove(&key);
        }
        if bytes != other_bytes {
            return Err(format!(
                "{bytes} bytes, and {other_bytes} at the message's other end in line {at}"
            ));
        }
        let message = self.messages.len() as u32;
        let (send, recv) = if sends { (id, other) } else { (other, id) };
        self.messages.push(GoalMessage { bytes, send, recv });
        if let Some(operation) = self.operations.get_mut(other as usize) {
            operation.work = if sends { GoalWork::Recv(message) } else { GoalWork::Send(message) };
        }
        Ok(work(message))
    }

    /// Ends a rank: what starts with another operation waits for what that one waits for.
    fn close(&mut self) {
        for (a, b) in std::mem::take(&mut self.starts) {
            let before = self.operations.get(b as usize).map(|b| b.after.clone());
            if let (Some(operation), Some(before)) = (self.operations.get_mut(a as usize), before) {
                operation.after.extend(before);
                operation.after.sort_unstable();
                operation.after.dedup();
            }
        }
        self.labels.clear();
        self.open = None;
    }

    fn finish(self, last: u64) -> Result<GoalTrace, GoalError> {
        let fail = |line, reason: String| Err(GoalError { line, reason });
        if let Some((rank, line)) = self.open {
            let reason = format!("the trace ends within rank {rank}, which begins in line {line}");
            return fail(last, reason);
        }
        let Some(ranks) = self.ranks else {
            return fail(last, "the trace has no num_ranks N".to_owned());
        };
        if ranks == 0 || self.operations.is_empty() {
            return fail(last, "the trace has no operation".to_owned());
        }
        let first = self.ends.iter().flat_map(|(key, open)| {
            open.waiting.iter().map(move |end| (end.1, open.are_sends, *key))
        });
        if let Some((line, sends, (from, to, tag))) = first.min() {
            let (what, other) = if sends { ("send", "recv") } else { ("recv", "send") };
            let reason =
                format!("a {what} from rank {from} to {to} with tag {tag} without its {other}");
            return fail(line, reason);
        }
        Ok(GoalTrace { ranks, operations: self.operations, messages: self.messages })
    }
}

/// The tag behind an operation; `cpu` and `nic` are read and have no effect.
fn options(mut words: &[&str]) -> Result<u32, String> {
    let mut tag = 0;
    while let [key @ ("tag" | "cpu" | "nic"), value, rest @ ..] = words {
        let value = number(value, key, u64::from(u32::MAX))? as u32;
        if *key == "tag" {
            tag = value;
        }
        words = rest;
    }
    match words {
        [] => Ok(tag),
        [word, ..] => Err(format!("'{}'; expected tag N, cpu N or nic N", shortened(word))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<GoalTrace, String> {
        GoalTrace::read(text.as_bytes()).map_err(|e| e.to_string())
    }

    #[test]
    fn messages_find_their_ends_in_order() {
        let trace = read(
            "num_ranks 2\n// two of one tag\nrank 0 {\na: send 8b to 1 tag 3\nb: send 16b to 1 tag 3 cpu 0 nic 1\nc: calc 5\nc requires a\nb irequires c\n}\nrank 1 {\nrecv 8b from 0 tag 3\nrecv 16b from 0 tag 3\n}\n",
        )
        .unwrap();
        assert_eq!((trace.ranks(), trace.messages(), trace.operations()), (2, 2, 5));
        assert_eq!(trace.messages[1], GoalMessage { bytes: 16, send: 1, recv: 4 });
        // b starts with c, which waits for a.
        assert_eq!(trace.operations[1].after, [0]);
        assert_eq!(trace.operations[4].work, GoalWork::Recv(1));
    }

    #[test]
    fn errors_have_their_line() {
        for (text, expected) in [
            ("", "line 0: the trace has no num_ranks"),
            ("rank 0 {\n}\n", "line 1: num_ranks N comes first"),
            ("num_ranks 1\nrank 1 {\n", "line 2: rank 1; the trace has ranks 0 to 0"),
            (
                "num_ranks 999999999\n",
                "line 1: num_ranks '999999999'; expected a number up to 131072",
            ),
            (
                "num_ranks 1\nrank 0 {\ncalc 5\n",
                "line 3: the trace ends within rank 0, which begins in line 2",
            ),
            ("num_ranks 1\nrank 0 {\n}\nrank 0 {\n", "line 4: rank 0 a second time"),
            ("num_ranks 1\nrank 0 {\na: calc -5\n", "line 3: calc '-5'"),
            (
                "num_ranks 1\nrank 0 {\na requires b\n",
                "line 3: no operation above has the label 'a'",
            ),
            ("num_ranks 1\nrank 0 {\nsend 5b from 0\n", "line 3: 'send 5b from 0'; expected"),
            ("num_ranks 1\nrank 0 {\nsend 5b to 0 cup 3\n", "line 3: 'cup'; expected tag N"),
            (
                "num_ranks 2\nrank 0 {\nsend 5b to 1\n}\n",
                "line 3: a send from rank 0 to 1 with tag 0 without its recv",
            ),
            (
                "num_ranks 2\nrank 0 {\nsend 5b to 1\n}\nrank 1 {\nrecv 6b from 0\n}\n",
                "line 6: 6 bytes, and 5 at the message's other end in line 3",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let long = format!("num_ranks 1\nrank 0 {{\n{}", "a".repeat(MAX_LINE + 5));
        assert!(read(&long).unwrap_err().starts_with("line 3: a line of more than"));
    }

    /// A trace without end is refused at the operation that is one too many: the sixth, in line 8.
    #[test]
    fn a_trace_without_end_is_refused() {
        let text = format!("num_ranks 1\nrank 0 {{\n{}", "calc 1\n".repeat(6));
        let endless = std::io::BufReader::new(text.as_bytes().chain(std::io::repeat(b'\n')));
        let error = GoalTrace::read_up_to(5, MAX_TRACE, endless).unwrap_err();
        assert_eq!(error.to_string(), "line 8: more than 5 operations; take a part of the trace");
    }

    /// Gigabytes of blank lines, and a line of gigabytes: 12 bytes of the first line leave 88 lines of 1.
    #[test]
    fn gigabytes_are_not_read_to_their_end() {
        let endless =
            |byte: u8| std::io::BufReader::new(b"num_ranks 1\n".chain(std::io::repeat(byte)));
        let error = GoalTrace::read_up_to(5, 100, endless(b'\n')).unwrap_err().to_string();
        assert_eq!(error, "line 90: more than 100 bytes; take a part of the trace");
        let error = GoalTrace::read(endless(b'a')).unwrap_err().to_string();
        assert_eq!(error, "line 2: a line of more than 65536 bytes");
    }

    /// A trace of two ranks cut after each of its bytes: only the whole one, with or without its last line
    /// end, and one cut before both ranks are read.
    #[test]
    fn a_cut_trace_is_refused() {
        let whole = "num_ranks 2\nrank 0 {\na: calc 5\nb: send 64b to 1 tag 7\nb requires a\n}\n\
                     rank 1 {\nrecv 64b from 0 tag 7\n}\n";
        let read_whole = GoalTrace::read(whole.as_bytes()).unwrap();
        for length in 0..whole.len() {
            match GoalTrace::read(&whole.as_bytes()[..length]) {
                Ok(read) => {
                    assert!(length == whole.len() - 1 && read == read_whole, "{length}: {read:?}")
                }
                Err(error) => assert!(error.to_string().starts_with("line "), "{length}: {error}"),
            }
        }
    }
}
