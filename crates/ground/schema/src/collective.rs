//! Collectives: their parts, sizes and bus factors, and the elements and operations of reductions.

use crate::{Bytes, Transport, words};

/// An operation of a group of ranks. The first rank is the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Collective {
    /// The root's bytes to all.
    Broadcast,
    /// All ranks' elements, reduced, to the root.
    Reduce,
    /// The reduction to all.
    AllReduce,
    /// To each a part of the reduction: MPI_Reduce_scatter_block, parts of one size.
    ReduceScatter,
    /// To all every rank's part.
    AllGather,
    /// From each to each a part.
    AllToAll,
    /// Every rank's part to the root.
    Gather,
    /// From the root to each rank a part.
    Scatter,
    /// As `AllGather`, with uneven parts: see [`Collective::part`].
    AllGatherV,
    /// As `AllToAll`, with uneven parts.
    AllToAllV,
    /// As `Gather`, with uneven parts.
    GatherV,
    /// As `Scatter`, with uneven parts.
    ScatterV,
    /// No rank leaves before all have arrived.
    Barrier,
}
words!(Collective, "collective", {
    Broadcast => "broadcast", Reduce => "reduce", AllReduce => "all_reduce",
    ReduceScatter => "reduce_scatter", AllGather => "all_gather", AllToAll => "all_to_all",
    Gather => "gather", Scatter => "scatter", AllGatherV => "all_gatherv",
    AllToAllV => "all_to_allv", GatherV => "gatherv", ScatterV => "scatterv",
    Barrier => "barrier",
});

impl Collective {
    /// nccl-tests' factor from the rate of an algorithm to that of a bus, for `n` ranks: the share of
    /// the larger buffer that the busiest rank sends or receives.
    /// Source: nccl-tests, doc/PERFORMANCE.md. It has no uneven parts; there the smallest part, 1/n²
    /// of the buffer, stays in the busiest rank.
    pub fn bus_factor(self, n: usize) -> f64 {
        let n = n.max(1) as f64;
        match self {
            Self::Broadcast | Self::Reduce | Self::Barrier => 1.0,
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::ReduceScatter
            | Self::AllGather
            | Self::AllToAll
            | Self::Gather
            | Self::Scatter => (n - 1.0) / n,
            Self::AllGatherV | Self::AllToAllV | Self::GatherV | Self::ScatterV => {
                (n * n - 1.0) / (n * n)
            }
        }
    }

    /// Bytes of a case for the size that OSU's benchmark of this operation prints: it counts what
    /// one rank gives to one other (gather, scatter, all_gather, all_to_all), pathline and
    /// nccl-tests the larger of a rank's two buffers.
    pub fn of_osu_size(self, size: Bytes, n: usize) -> Bytes {
        if self.counts_one_part() { Bytes(size.0.saturating_mul(n as u64)) } else { size }
    }

    /// The size that OSU's benchmark prints for a case of this size.
    pub fn osu_size(self, bytes: Bytes, n: usize) -> Bytes {
        if self.counts_one_part() { Bytes(bytes.0 / (n as u64).max(1)) } else { bytes }
    }

    /// Whether OSU counts the bytes of one part.
    fn counts_one_part(self) -> bool {
        self.is_split() && self != Self::ReduceScatter
    }

    /// Whether it computes.
    pub const fn reduces(self) -> bool {
        matches!(self, Self::Reduce | Self::AllReduce | Self::ReduceScatter)
    }

    /// Whether one rank is the source or the destination of all bytes.
    pub const fn has_root(self) -> bool {
        matches!(
            self,
            Self::Broadcast
                | Self::Reduce
                | Self::Gather
                | Self::Scatter
                | Self::GatherV
                | Self::ScatterV
        )
    }

    /// Whether the larger buffer has a part for each rank.
    pub const fn is_split(self) -> bool {
        !matches!(self, Self::Broadcast | Self::Reduce | Self::AllReduce | Self::Barrier)
    }

    /// Whether parts differ in size.
    pub const fn is_uneven(self) -> bool {
        matches!(self, Self::AllGatherV | Self::AllToAllV | Self::GatherV | Self::ScatterV)
    }

    /// Whether a library has it with a result that overwrites what the rank brought. Broadcast has
    /// one buffer in any case, NCCL and RCCL exchange parts between two buffers only, and MPI only
    /// parts that are as large in both directions.
    pub const fn has_in_place(self, via: Transport) -> bool {
        match self {
            Self::Broadcast | Self::Barrier | Self::AllToAllV => false,
            Self::AllToAll => !matches!(via, Transport::Ccl),
            _ => true,
        }
    }

    /// Offset and bytes of part `nth` of `n` in a buffer of `bytes`, which has no parts of equal
    /// size unless it is a multiple of `n`.
    ///
    /// Uneven parts begin at `nth`²/`n`² of the buffer, rounded down to bytes: part `nth` has
    /// (2 `nth` + 1)/n² of it, from 1/n² to almost 2/n, and the mean of 1/n. In `AllToAllV` part
    /// `nth` is for the rank `nth` places further, or from the rank `nth` places before, so all
    /// ranks send and receive equally much.
    pub fn part(self, n: usize, nth: usize, bytes: u64) -> (u64, u64) {
        let (n, nth) = (n.max(1) as u64, nth as u64);
        if !self.is_uneven() {
            let each = bytes / n;
            return (nth * each, each);
        }
        let square = |at: u64| u128::from(at) * u128::from(at);
        let begin = |at: u64| {
            let offset = u128::from(bytes) * square(at) / square(n);
            u64::try_from(offset).unwrap_or(u64::MAX)
        };
        (begin(nth), begin(nth + 1) - begin(nth))
    }

    /// The part of rank `to` in the send buffer of rank `from`, and of rank `from` in the receive
    /// buffer of rank `to`, in an exchange of `n` ranks.
    pub const fn exchanged(self, n: usize, from: usize, to: usize) -> (usize, usize) {
        match self {
            Self::AllToAllV => {
                let distance = (to + n - from) % if n == 0 { 1 } else { n };
                (distance, distance)
            }
            _ => (to, from),
        }
    }

    /// Bytes that the larger buffer must be a multiple of, for `n` ranks.
    pub const fn unit_bytes(self, n: usize, reduced: ElementReduction) -> u64 {
        let parts = if self.is_split() && !self.is_uneven() { n as u64 } else { 1 };
        if self.reduces() { parts * reduced.element.bytes() } else { parts }
    }
}

/// Type of an element of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElementType {
    /// 64-bit unsigned integer, the type where a case names none.
    Uint64,
    /// 8-bit signed integer; OSU's MPI_CHAR.
    Int8,
    /// 8-bit unsigned integer.
    Uint8,
    /// 32-bit signed integer.
    Int32,
    /// 32-bit unsigned integer.
    Uint32,
    /// 64-bit signed integer.
    Int64,
    /// IEEE 754 binary16.
    Half,
    /// bfloat16: the upper half of a `Float`.
    Bf16,
    /// IEEE 754 binary32.
    Float,
    /// IEEE 754 binary64.
    Double,
    /// 8 bits: 4 of exponent, 3 of mantissa (OCP E4M3).
    Fp8E4m3,
    /// 8 bits: 5 of exponent, 2 of mantissa (OCP E5M2).
    Fp8E5m2,
}
words!(ElementType, "element type", {
    Uint64 => "uint64", Int8 => "int8", Uint8 => "uint8", Int32 => "int32", Uint32 => "uint32",
    Int64 => "int64", Half => "half", Bf16 => "bf16", Float => "float", Double => "double",
    Fp8E4m3 => "fp8e4m3", Fp8E5m2 => "fp8e5m2",
});

impl ElementType {
    /// Bytes of an element.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Int8 | Self::Uint8 | Self::Fp8E4m3 | Self::Fp8E5m2 => 1,
            Self::Half | Self::Bf16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float => 4,
            Self::Uint64 | Self::Int64 | Self::Double => 8,
        }
    }
    /// Bits of mantissa and bias of the exponent; `None` of integers.
    pub const fn float_format(self) -> Option<(u32, u32)> {
        match self {
            Self::Half => Some((10, 15)),
            Self::Bf16 => Some((7, 127)),
            Self::Float => Some((23, 127)),
            Self::Double => Some((52, 1023)),
            Self::Fp8E4m3 => Some((3, 7)),
            Self::Fp8E5m2 => Some((2, 15)),
            _ => None,
        }
    }
    /// Whether it has negative values.
    pub const fn is_signed(self) -> bool {
        !matches!(self, Self::Uint8 | Self::Uint32 | Self::Uint64)
    }
    /// Whether MPI's standard has the type.
    pub const fn is_in_mpi(self) -> bool {
        !matches!(self, Self::Half | Self::Bf16 | Self::Fp8E4m3 | Self::Fp8E5m2)
    }
    /// nccl-tests' name of the type.
    pub const fn nccl_tests_name(self) -> &'static str {
        match self {
            Self::Bf16 => "bfloat16",
            Self::Fp8E4m3 => "f8e4m3",
            Self::Fp8E5m2 => "f8e5m2",
            other => other.word(),
        }
    }
    /// MPI's name of the type; `None` if its standard has none.
    pub const fn mpi_name(self) -> Option<&'static str> {
        match self {
            Self::Uint64 => Some("MPI_UINT64_T"),
            Self::Int8 => Some("MPI_INT8_T"),
            Self::Uint8 => Some("MPI_UINT8_T"),
            Self::Int32 => Some("MPI_INT32_T"),
            Self::Uint32 => Some("MPI_UINT32_T"),
            Self::Int64 => Some("MPI_INT64_T"),
            Self::Float => Some("MPI_FLOAT"),
            Self::Double => Some("MPI_DOUBLE"),
            Self::Half | Self::Bf16 | Self::Fp8E4m3 | Self::Fp8E5m2 => None,
        }
    }
}

/// How elements are reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The sum over the number of ranks. NCCL and RCCL only.
    Avg,
}
words!(ReduceOp, "reduction", {
    Sum => "sum", Prod => "prod", Min => "min", Max => "max", Avg => "avg",
});

/// Elements of a reduction, and what is done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElementReduction {
    /// Type of the elements.
    pub element: ElementType,
    /// The operation on them.
    pub by: ReduceOp,
}

impl ElementReduction {
    /// The sum of 64-bit integers: a case names no other, and a collective that computes nothing
    /// has this one.
    pub const USUAL: Self = Self { element: ElementType::Uint64, by: ReduceOp::Sum };

    /// Whether a case names neither the type nor the operation.
    pub fn is_usual(self) -> bool {
        self == Self::USUAL
    }

    /// Whether the result over `n` ranks is the same on every library: averages of floating point
    /// are only over a power of two of ranks. Up to 64 ranks are averaged without overflow of the
    /// least type.
    pub const fn is_exact(self, n: usize) -> bool {
        let average = matches!(self.by, ReduceOp::Avg);
        !average || n <= 64 && (self.element.float_format().is_none() || n.is_power_of_two())
    }

    /// Why a library lacks it; `None` if it may have it.
    pub const fn misfit(self, via: Transport) -> Option<&'static str> {
        match via {
            Transport::Ccl => None,
            _ if !self.element.is_in_mpi() => Some("MPI has no type of these elements"),
            _ if matches!(self.by, ReduceOp::Avg) => Some("MPI has no operation for averages"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uneven_parts_are_odd_shares_of_the_square() {
        // 4 ranks, 1600 B: 1, 3, 5 and 7 sixteenths.
        let all: Vec<_> = (0..4).map(|nth| Collective::AllGatherV.part(4, nth, 1600)).collect();
        assert_eq!(all, [(0, 100), (100, 300), (400, 500), (900, 700)]);
        // Rounding loses no byte: 10 x 1/9, 4/9 and 9/9 are 1, 4 and 10.
        let odd: Vec<_> = (0..3).map(|nth| Collective::GatherV.part(3, nth, 10)).collect();
        assert_eq!(odd, [(0, 1), (1, 3), (4, 6)]);
        assert_eq!(Collective::AllGather.part(4, 3, 1600), (1200, 400));
        // No overflow at the largest buffers: 2^63 x 1023² / 1024² + the last part is 2^63.
        let (offset, bytes) = Collective::ScatterV.part(1024, 1023, 1 << 63);
        assert_eq!(offset + bytes, 1 << 63);
    }

    #[test]
    fn each_rank_of_an_uneven_exchange_sends_and_receives_all_parts_once() {
        let n = 5;
        for rank in 0..n {
            let mut sent: Vec<_> =
                (0..n).map(|to| Collective::AllToAllV.exchanged(n, rank, to).0).collect();
            let mut got: Vec<_> =
                (0..n).map(|from| Collective::AllToAllV.exchanged(n, from, rank).1).collect();
            sent.sort_unstable();
            got.sort_unstable();
            assert_eq!((sent, got), ((0..n).collect(), (0..n).collect()));
        }
        assert_eq!(Collective::AllToAll.exchanged(n, 1, 3), (3, 1));
    }

    #[test]
    fn bus_factors_follow_nccl_tests() {
        // Four ranks: 3/4 of a gathered buffer arrive at the root; of an uneven one 1 - 1/16.
        assert_eq!(Collective::Gather.bus_factor(4), 0.75);
        assert_eq!(Collective::AllToAllV.bus_factor(4), 0.9375);
        assert_eq!(Collective::Scatter.osu_size(Bytes(1024), 4), Bytes(256));
        let bf16 = ElementReduction { element: ElementType::Bf16, by: ReduceOp::Max };
        assert_eq!(Collective::ReduceScatter.unit_bytes(4, bf16), 8);
        assert_eq!(Collective::AllToAllV.unit_bytes(4, bf16), 1);
    }
}
