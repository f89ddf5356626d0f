//! The effect of collectives on bytes: pure.

use std::borrow::Cow;

use super::elements::reduced;
use super::frame::Fields;

/// Bytes of an element. Unknown types have 0, so that nothing is written.
pub(super) fn size_of(kind: i32) -> usize {
    match kind {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        _ => 0,
    }
}

/// The operations of the library over all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    AllReduce,
    Reduce,
    Broadcast,
    ReduceScatter,
    AllGather,
    AllToAll,
    Gather,
    Scatter,
}

impl Operation {
    const ALL: [Self; 8] = [
        Self::AllReduce,
        Self::Reduce,
        Self::Broadcast,
        Self::ReduceScatter,
        Self::AllGather,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
    ];

    /// Its spelling in the library's log.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "AllReduce",
            Self::Reduce => "Reduce",
            Self::Broadcast => "Broadcast",
            Self::ReduceScatter => "ReduceScatter",
            Self::AllGather => "AllGather",
            Self::AllToAll => "AlltoAll",
            Self::Gather => "Gather",
            Self::Scatter => "Scatter",
        }
    }

    fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::Reduce | Self::ReduceScatter)
    }
}

/// One rank's call of a collective, without its buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StubCollective {
    pub(super) operation: Operation,
    /// Elements, as counted by the library's call: of one part, if there are parts.
    pub(super) count: usize,
    pub(super) kind: i32,
    /// Reduction of elements; 0 is the sum.
    pub(super) reduction: i32,
    pub(super) root: i32,
}

impl StubCollective {
    /// Bytes of one part.
    fn part(&self) -> usize {
        self.count * size_of(self.kind)
    }

    /// Bytes that a rank sends in a communicator of `size`.
    pub(super) fn sends(&self, rank: i32, size: usize) -> usize {
        match self.operation {
            Operation::Broadcast | Operation::Scatter if rank != self.root => 0,
            Operation::ReduceScatter | Operation::AllToAll | Operation::Scatter => {
                self.part() * size
            }
            _ => self.part(),
        }
    }

    /// Bytes that a rank receives in a communicator of `size`.
    pub(super) fn receives(&self, rank: i32, size: usize) -> usize {
        match self.operation {
            Operation::Reduce | Operation::Gather if rank != self.root => 0,
            Operation::AllGather | Operation::AllToAll | Operation::Gather => self.part() * size,
            _ => self.part(),
        }
    }

    pub(super) fn fields(&self) -> Fields {
        let operation = Operation::ALL.iter().position(|o| *o == self.operation).unwrap_or(0);
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        [operation as i64, count, self.kind.into(), self.reduction.into(), self.root.into(), 0]
    }

    pub(super) fn from_fields(
        [operation, count, kind, reduction, root, _]: Fields,
    ) -> Option<Self> {
        Some(Self {
            operation: *Operation::ALL.get(usize::try_from(operation).ok()?)?,
            count: usize::try_from(count).ok()?,
            kind: i32::try_from(kind).ok()?,
            reduction: i32::try_from(reduction).ok()?,
            root: i32::try_from(root).ok()?,
        })
    }
}

/// A collective that all ranks have called.
pub(super) struct Completed<'a> {
    call: StubCollective,
    inputs: Vec<&'a [u8]>,
    /// The common data of the ranks' results; empty if each has separate data.
    common: Vec<u8>,
}

impl<'a> Completed<'a> {
    /// From the ranks' calls and their data, by rank. `None` if the calls differ, or are not
    /// supported by this library.
    pub(super) fn of(calls: &'a [(StubCollective, Vec<u8>)]) -> Option<Self> {
        let call = calls.first()?.0;
        let size = calls.len();
        let ranks = || (0_i32..).zip(calls);
        let alike =
            ranks().all(|(rank, (c, input))| *c == call && input.len() == call.sends(rank, size));
        let root = usize::try_from(call.root).ok().filter(|root| *root < size)?;
        if !alike || call.part() == 0 {
            return None;
        }
        let inputs: Vec<&[u8]> = calls.iter().map(|(_, input)| &input[..]).collect();
        let common = match call.operation {
            operation if operation.reduces() => reduced(call.kind, call.reduction, &inputs)?,
            Operation::Broadcast => inputs.get(root)?.to_vec(),
            Operation::Scatter => inputs.get(root)?.to_vec(),
            Operation::AllGather | Operation::Gather => inputs.concat(),
            _ => Vec::new(),
        };
        Some(Self { call, inputs, common })
    }

    /// The data that a rank receives.
    pub(super) fn output(&self, rank: i32) -> Cow<'_, [u8]> {
        let (part, nth) = (self.call.part(), usize::try_from(rank).unwrap_or(usize::MAX));
        let of = |all: &'_ [u8]| all.chunks_exact(part).nth(nth).unwrap_or_default().to_vec();
        match self.call.operation {
            Operation::Reduce | Operation::Gather if rank != self.call.root => Cow::Borrowed(&[]),
            Operation::ReduceScatter | Operation::Scatter => Cow::Owned(of(&self.common)),
            Operation::AllToAll => Cow::Owned(self.inputs.iter().flat_map(|i| of(i)).collect()),
            _ => Cow::Borrowed(&self.common),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Results by rank of 64-bit integers; `None` if not supported.
    fn results(operation: Operation, count: usize, inputs: &[&[u64]]) -> Option<Vec<Vec<u8>>> {
        let call = StubCollective { operation, count, kind: 5, reduction: 0, root: 1 };
        let calls: Vec<_> = inputs.iter().map(|words| (call, bytes(words))).collect();
        let completed = Completed::of(&calls)?;
        let size = inputs.len();
        let all = (0..size as i32).map(|rank| completed.output(rank).into_owned()).collect();
        for (rank, result) in (0..).zip(&all) {
            let result: &Vec<u8> = result;
            assert_eq!(result.len(), call.receives(rank, size), "{operation:?} of rank {rank}");
        }
        Some(all)
    }

    #[test]
    fn every_operation_gives_each_rank_its_result() {
        let of = |operation, count, inputs: &[&[u64]], expected: &[&[u64]]| {
            let expected: Vec<Vec<u8>> = expected.iter().map(|words| bytes(words)).collect();
            assert_eq!(results(operation, count, inputs), Some(expected), "{operation:?}");
        };
        // Sums wrap: 2^64 - 1 + 3 = 2.
        of(Operation::AllReduce, 2, &[&[1, u64::MAX], &[5, 3]], &[&[6, 2], &[6, 2]]);
        // The root is rank 1.
        of(Operation::Reduce, 1, &[&[1], &[2], &[4]], &[&[], &[7], &[]]);
        of(Operation::Broadcast, 2, &[&[], &[8, 9]], &[&[8, 9], &[8, 9]]);
        of(Operation::ReduceScatter, 1, &[&[1, 2], &[10, 20]], &[&[11], &[22]]);
        of(Operation::AllGather, 1, &[&[1], &[2]], &[&[1, 2], &[1, 2]]);
        of(Operation::AllToAll, 1, &[&[1, 2], &[3, 4]], &[&[1, 3], &[2, 4]]);
        of(Operation::Gather, 1, &[&[1], &[2]], &[&[], &[1, 2]]);
        of(Operation::Scatter, 1, &[&[], &[1, 2]], &[&[1], &[2]]);
    }

    #[test]
    fn ranks_that_disagree_have_no_result() {
        let call = StubCollective {
            operation: Operation::AllReduce,
            count: 1,
            kind: 5,
            reduction: 0,
            root: 0,
        };
        let with = |other: StubCollective| {
            Completed::of(&[(call, bytes(&[1])), (other, bytes(&[1]))]).is_some()
        };
        assert!(with(call));
        assert!(!with(StubCollective { operation: Operation::AllGather, ..call }));
        assert!(!with(StubCollective { count: 2, ..call }));
        // The library has no such type, and no such operation.
        let unknown = StubCollective { kind: 12, ..call };
        assert!(Completed::of(&[(unknown, vec![0; 8]), (unknown, vec![0; 8])]).is_none());
        let unknown = StubCollective { reduction: 5, ..call };
        assert!(Completed::of(&[(unknown, bytes(&[1])), (unknown, bytes(&[1]))]).is_none());
    }

    #[test]
    fn a_call_survives_its_fields() {
        for operation in Operation::ALL {
            let call = StubCollective { operation, count: 77, kind: 4, reduction: 0, root: 3 };
            assert_eq!(StubCollective::from_fields(call.fields()), Some(call));
        }
        assert_eq!(StubCollective::from_fields([9, 0, 0, 0, 0, 0]), None);
        assert_eq!(StubCollective::from_fields([0, -1, 0, 0, 0, 0]), None);
    }
}
