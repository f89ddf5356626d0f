//! Bytes that ranks send each other in one phase: from a pattern or from a matrix.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use pathline_schema::Bytes;

/// The most ranks of a phase.
pub const MAX_RANKS: usize = 4096;
/// The most messages of a phase: all pairs of 1024 ranks.
const MAX_MESSAGES: usize = 1 << 20;

/// A phase of communication: messages that start together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankTraffic {
    ranks: usize,
    /// Ascending by sender and receiver; no message to itself, none without bytes.
    messages: Vec<RankMessage>,
}

/// The bytes that one rank sends another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankMessage {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// Bytes in all.
    pub bytes: u64,
}

/// A pattern or matrix that is no phase.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TrafficError(pub(crate) String);

impl RankTraffic {
    /// Messages between `ranks` ranks; those of the same pair are added up, messages to oneself and of no
    /// bytes are left out.
    ///
    /// # Errors
    /// No rank or too many, a number of a rank that does not exist, or no message at all.
    pub fn new(
        ranks: usize,
        messages: impl IntoIterator<Item = RankMessage>,
    ) -> Result<Self, TrafficError> {
        if ranks == 0 || ranks > MAX_RANKS {
            return Err(TrafficError(format!("{ranks} ranks; expected 1 to {MAX_RANKS}")));
        }
        let mut all: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for RankMessage { from, to, bytes } in messages {
            if from >= ranks || to >= ranks {
                let rank = from.max(to);
                return Err(TrafficError(format!("rank {rank} of {ranks} does not exist")));
            }
            if from != to && bytes > 0 {
                let sum = all.entry((from, to)).or_default();
                *sum = sum.saturating_add(bytes);
            }
            if all.len() > MAX_MESSAGES {
                return Err(TrafficError(format!("more than {MAX_MESSAGES} pairs exchange bytes")));
            }
        }
        if all.is_empty() {
            return Err(TrafficError("no rank sends another one anything".to_owned()));
        }
        let messages =
            all.into_iter().map(|((from, to), bytes)| RankMessage { from, to, bytes }).collect();
        Ok(Self { ranks, messages })
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The messages, ascending by sender and receiver.
    pub fn messages(&self) -> &[RankMessage] {
        &self.messages
    }
}

/// A regular phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PhasePattern {
    /// Each rank sends to the next, the last to the first.
    Ring,
    /// Each rank sends to the previous and the next one.
    RingBothWays,
    /// Neighbours of a grid exchange in both directions along each axis; the last axis is numbered
    /// fastest, as `MPI_Cart_create` does.
    Grid {
        /// Ranks along each axis.
        shape: Vec<usize>,
        /// Whether the ends of an axis are neighbours.
        periodic: bool,
    },
    /// Each rank sends to every other one.
    AllToAll,
    /// Each rank exchanges with the one half of all ranks away.
    Exchange,
    /// Training: rings of tensor parallel ranks (numbered fastest), then of data parallel ones, and
    /// messages between pipeline stages (numbered slowest).
    Training {
        /// Ranks of a tensor parallel group.
        tensor: usize,
        /// Pipeline stages.
        pipeline: usize,
        /// Replicas.
        data: usize,
    },
}

impl PhasePattern {
    /// Ranks that the pattern itself states.
    pub fn ranks(&self) -> Option<usize> {
        match self {
            Self::Grid { shape, .. } => Some(shape.iter().product()),
            Self::Training { tensor, pipeline, data } => Some(tensor * pipeline * data),
            _ => None,
        }
    }

    /// The phase over `ranks` ranks, with messages of `bytes`.
    ///
    /// # Errors
    /// A pattern that states another number of ranks, or that needs more.
    pub fn traffic(&self, ranks: usize, bytes: Bytes) -> Result<RankTraffic, TrafficError> {
        if let Some(own) = self.ranks().filter(|own| *own != ranks) {
            return Err(TrafficError(format!(
                "pattern {self} has {own} ranks, and {ranks} are to be placed: pass --ranks {own}"
            )));
        }
        if ranks > MAX_RANKS {
            return Err(TrafficError(format!("{ranks} ranks; expected 1 to {MAX_RANKS}")));
        }
        let mut messages = Vec::new();
        let mut send = |from: usize, to: usize| {
            messages.push(RankMessage { from, to, bytes: bytes.0 });
        };
        match self {
            Self::Ring => (0..ranks).for_each(|rank| send(rank, (rank + 1) % ranks)),
            Self::RingBothWays => (0..ranks).for_each(|rank| {
                send(rank, (rank + 1) % ranks);
                send((rank + 1) % ranks, rank);
            }),
            Self::AllToAll => {
                if ranks * ranks > MAX_MESSAGES {
                    return Err(TrafficError(format!(
                        "all-to-all of {ranks} ranks has more than {MAX_MESSAGES} messages"
                    )));
                }
                (0..ranks).for_each(|from| (0..ranks).for_each(|to| send(from, to)));
            }
            Self::Exchange => {
                if ranks % 2 == 1 {
                    return Err(TrafficError(format!(
                        "an exchange pairs ranks, and {ranks} is odd"
                    )));
                }
                (0..ranks).for_each(|rank| send(rank, (rank + ranks / 2) % ranks));
            }
            Self::Grid { shape, periodic } => grid(shape, *periodic, &mut send),
            Self::Training { tensor, pipeline, data } => {
                training(*tensor, *pipeline, *data, &mut send);
            }
        }
        RankTraffic::new(ranks, messages)
    }
}

fn grid(shape: &[usize], periodic: bool, send: &mut dyn FnMut(usize, usize)) {
    let ranks: usize = shape.iter().product();
    let mut stride = ranks;
    for &along in shape {
        stride /= along;
        for rank in 0..ranks {
            let at = rank / stride % along;
            let next = if at + 1 < along {
                rank + stride
            } else if periodic && along > 2 {
                rank - at * stride
            } else {
                // The ends of an axis of two are neighbours already.
                continue;
            };
            send(rank, next);
            send(next, rank);
        }
    }
}

fn training(tensor: usize, pipeline: usize, data: usize, send: &mut dyn FnMut(usize, usize)) {
    let rank = |stage: usize, replica: usize, part: usize| (stage * data + replica) * tensor + part;
    for stage in 0..pipeline {
        for replica in 0..data {
            for part in 0..tensor {
                let own = rank(stage, replica, part);
                send(own, rank(stage, replica, (part + 1) % tensor));
                send(own, rank(stage, (replica + 1) % data, part));
                if stage + 1 < pipeline {
                    send(own, rank(stage + 1, replica, part));
                    send(rank(stage + 1, replica, part), own);
                }
            }
        }
    }
}

impl fmt::Display for PhasePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring => f.write_str("ring"),
            Self::RingBothWays => f.write_str("ring both ways"),
            Self::AllToAll => f.write_str("all-to-all"),
            Self::Exchange => f.write_str("exchange"),
            Self::Grid { shape, periodic } => {
                let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
                let periodic = if *periodic { " periodic" } else { "" };
                write!(f, "grid {}{periodic}", shape.join("x"))
            }
            Self::Training { tensor, pipeline, data } => {
                write!(f, "tp={tensor},pp={pipeline},dp={data}")
            }
        }
    }
}

impl FromStr for PhasePattern {
    type Err = TrafficError;
    fn from_str(text: &str) -> Result<Self, TrafficError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let bad = |why: &str| TrafficError(format!("pattern '{text}': {why}"));
        let count = |number: &str| {
            let number: Option<usize> = number.parse().ok();
            let fits = number.filter(|n| (1..=MAX_RANKS).contains(n));
            fits.ok_or_else(|| bad(&format!("expected numbers from 1 to {MAX_RANKS}")))
        };
        let within = |pattern: Self| match pattern.ranks() {
            Some(ranks) if ranks > MAX_RANKS => Err(bad(&format!("more than {MAX_RANKS} ranks"))),
            _ => Ok(pattern),
        };
        match words.as_slice() {
            ["ring"] => Ok(Self::Ring),
            ["ring", "both", "ways"] => Ok(Self::RingBothWays),
            ["all-to-all"] => Ok(Self::AllToAll),
            ["exchange"] => Ok(Self::Exchange),
            ["grid", shape] | ["grid", shape, "periodic"] => {
                let shape = shape.split('x').map(count).collect::<Result<Vec<_>, _>>()?;
                if shape.len() > 4 {
                    return Err(bad("a grid has at most four axes"));
                }
                within(Self::Grid { shape, periodic: words.len() == 3 })
            }
            [sizes] if sizes.contains('=') => {
                let (mut tensor, mut pipeline, mut data) = (1, 1, 1);
                for part in sizes.split(',') {
                    match part.split_once('=') {
                        Some(("tp", n)) => tensor = count(n)?,
                        Some(("pp", n)) => pipeline = count(n)?,
                        Some(("dp", n)) => data = count(n)?,
                        _ => return Err(bad("expected tp=N, pp=N and dp=N")),
                    }
                }
                within(Self::Training { tensor, pipeline, data })
            }
            _ => Err(bad(
                "expected ring, ring both ways, grid AxB or AxBxC (periodic), all-to-all, exchange, \
                 tp=A,pp=B,dp=C, or the file of a matrix",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str, ranks: usize) -> Vec<(usize, usize)> {
        let pattern: PhasePattern = text.parse().unwrap();
        assert_eq!(pattern.to_string(), text);
        let traffic = pattern.traffic(ranks, Bytes(8)).unwrap();
        traffic.messages().iter().map(|m| (m.from, m.to)).collect()
    }

    #[test]
    fn patterns_have_their_messages() {
        assert_eq!(pairs("ring", 3), [(0, 1), (1, 2), (2, 0)]);
        assert_eq!(pairs("ring both ways", 3).len(), 6);
        assert_eq!(pairs("exchange", 4), [(0, 2), (1, 3), (2, 0), (3, 1)]);
        assert_eq!(pairs("all-to-all", 4).len(), 12);
        // 0 1 2 / 3 4 5: 4 edges along rows and 3 along columns, both ways.
        let grid = pairs("grid 2x3", 6);
        assert_eq!(grid.len(), 14);
        assert!(grid.contains(&(0, 3)) && grid.contains(&(1, 2)) && !grid.contains(&(0, 2)));
        // Periodic: 0 and 2 are neighbours too, the two rows as before.
        assert_eq!(pairs("grid 2x3 periodic", 6).len(), 18);
        // Two ranks of a group, two replicas, two stages: 0 1 | 2 3 || 4 5 | 6 7.
        let training = pairs("tp=2,pp=2,dp=2", 8);
        let from_0: Vec<_> = training.iter().filter(|(from, _)| *from == 0).collect();
        assert_eq!(from_0, [&(0, 1), &(0, 2), &(0, 4)]);
    }

    /// The two directions of a ring of two ranks, and two axes of the same neighbours, add up.
    #[test]
    fn messages_of_a_pair_add_up() {
        let message = |from, to, bytes| RankMessage { from, to, bytes };
        let all = [message(0, 1, 3), message(0, 1, 4), message(1, 1, 9), message(1, 0, 0)];
        assert_eq!(RankTraffic::new(2, all).unwrap().messages(), [message(0, 1, 7)]);
        assert!(RankTraffic::new(2, [message(0, 2, 1)]).is_err());
        assert!(RankTraffic::new(1, []).is_err());
    }

    #[test]
    fn unusable_patterns_are_refused() {
        for text in
            ["", "grid", "grid 0x4", "grid 2x", "grid 4096x4096", "tp=0", "tp=2,xp=3", "rings"]
        {
            let error = text.parse::<PhasePattern>().unwrap_err().to_string();
            assert!(error.contains("expected") || error.contains("more than"), "{text}: {error}");
        }
        let grid: PhasePattern = "grid 2x4".parse().unwrap();
        let error = grid.traffic(6, Bytes(1)).unwrap_err().to_string();
        assert!(error.contains("--ranks 8"), "{error}");
        assert!(PhasePattern::Exchange.traffic(5, Bytes(1)).is_err());
    }
}
