//! Buffers of the ranks of a flow, and the patterns that prove that every byte arrived.

use pathline_schema::{AtomicOp, Collective, ElementReduction, MessageOp, Transport, WireOp};

use crate::element_pattern::{ElementPattern, ElementRole};
use crate::pattern;

/// Offset, bytes and seed of a pattern in a buffer. The pattern counts from the offset.
pub type PatternRange = (u64, u64, u64);

/// The send and receive buffers of one position of a group, and the bytes that prove arrival.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct GroupLayout {
    /// Bytes of the send buffer; 0 if it sends nothing.
    pub send: u64,
    /// Bytes of the receive buffer; 0 if it receives nothing.
    pub recv: u64,
    /// Patterns to write into the send buffer, in this order: later ones overwrite.
    pub fills: Vec<PatternRange>,
    /// Patterns to expect in the receive buffer.
    pub checks: Vec<PatternRange>,
    /// Offsets of the two in one buffer, from which `fills` and `checks` then count, if they share
    /// one.
    pub in_place: Option<(u64, u64)>,
}

/// Bytes of the send and receive buffers of position `at` of `n`.
pub(crate) fn buffer_bytes(op: WireOp, at: usize, n: usize, bytes: u64) -> (u64, u64) {
    let only = |yes: bool, bytes: u64| if yes { bytes } else { 0 };
    let root = at == 0;
    match op {
        WireOp::Ping | WireOp::PersistentPing => (bytes, bytes),
        WireOp::Send { .. }
        | WireOp::Consume
        | WireOp::Put { .. }
        | WireOp::Get { .. }
        | WireOp::PersistentSend { .. } => (only(root, bytes), only(at == 1, bytes)),
        // The source of an atomic operation receives what it fetches.
        WireOp::Atomic(op) => (only(root, bytes), only(at == 1 || (root && op.fetches()), bytes)),
        WireOp::Group { op, .. }
        | WireOp::Overlapped { op, .. }
        | WireOp::PersistentGroup { op } => {
            let own = op.part(n, at, bytes).1;
            match op {
                Collective::Barrier => (0, 0),
                Collective::Broadcast => (only(root, bytes), only(!root, bytes)),
                Collective::Reduce => (bytes, only(root, bytes)),
                Collective::AllReduce | Collective::AllToAll | Collective::AllToAllV => {
                    (bytes, bytes)
                }
                Collective::ReduceScatter => (bytes, own),
                Collective::AllGather | Collective::AllGatherV => (own, bytes),
                Collective::Gather | Collective::GatherV => (own, only(root, bytes)),
                Collective::Scatter | Collective::ScatterV => (only(root, bytes), own),
            }
        }
    }
}

impl GroupLayout {
    /// Position `at` of `n` in the `flow`-th flow of a case.
    ///
    /// # Errors
    /// The bytes cannot be split into such parts, the operation has no form in place, or the result
    /// of the reduction is not exact.
    pub fn new(
        wire: &MessageOp,
        at: usize,
        n: usize,
        bytes: u64,
        flow: usize,
    ) -> Result<Self, &'static str> {
        let (send, recv) = buffer_bytes(wire.op, at, n, bytes);
        let mut layout = Self { send, recv, ..Self::default() };
        if let WireOp::Atomic(op) = wire.op {
            return Ok(layout.of_atomic(op, at, flow));
        }
        let at_u = at as u64;
        let one = |from: u64| seed(flow, from, 0);
        let (reduced, in_place) = match wire.op {
            WireOp::Group { reduced, in_place, .. } => (reduced, in_place),
            _ => (ElementReduction::USUAL, false),
        };
        let Some(op) = wire.op.collective() else {
            layout.fills = vec![(0, send, one(at_u))];
            layout.checks = vec![(0, recv, one(1 - at_u.min(1)))];
            return Ok(layout.without_empty());
        };
        if !bytes.is_multiple_of(op.unit_bytes(n, reduced)) {
            return Err("its bytes have no equal parts for all, in whole elements");
        }
        let part = |nth: usize| op.part(n, nth, bytes);
        let whole = |nth: usize, seed: u64| {
            let (offset, bytes) = part(nth);
            (offset, bytes, seed)
        };
        let elements = |role, part: u64| -> Result<u64, &'static str> {
            if reduced.is_usual() {
                return Ok(one(part));
            }
            Ok(ElementPattern::new(reduced, role, n, salt(flow, part))?.seed())
        };
        match op {
            Collective::Barrier => {}
            Collective::Broadcast => {
                layout.fills = vec![(0, send, one(0))];
                layout.checks = vec![(0, recv, one(0))];
            }
            Collective::Reduce | Collective::AllReduce => {
                layout.fills =
                    contribution(reduced, (0, bytes), (at, n), &|role| elements(role, 0))?;
                layout.checks = vec![(0, recv, elements(ElementRole::Result, 0)?)];
            }
            Collective::ReduceScatter => {
                for nth in 0..n {
                    let seeds = |role| elements(role, nth as u64);
                    layout.fills.extend(contribution(reduced, part(nth), (at, n), &seeds)?);
                }
                layout.checks = vec![(0, recv, elements(ElementRole::Result, at_u)?)];
            }
            Collective::AllGather
            | Collective::AllGatherV
            | Collective::Gather
            | Collective::GatherV => {
                layout.fills = vec![(0, send, one(at_u))];
                if recv > 0 {
                    layout.checks = (0..n).map(|nth| whole(nth, one(nth as u64))).collect();
                }
            }
            Collective::Scatter | Collective::ScatterV => {
                if send > 0 {
                    layout.fills = (0..n).map(|nth| whole(nth, one(nth as u64))).collect();
                }
                layout.checks = vec![(0, recv, one(at_u))];
            }
            Collective::AllToAll | Collective::AllToAllV => {
                for peer in 0..n {
                    let (to, peer_u) = (op.exchanged(n, at, peer).0, peer as u64);
                    layout.fills.push(whole(to, seed(flow, at_u, peer_u)));
                    let from = op.exchanged(n, peer, at).1;
                    layout.checks.push(whole(from, seed(flow, peer_u, at_u)));
                }
            }
        }
        if in_place {
            layout.share_buffer(op, wire.via, part(at).0, at == 0)?;
        }
        Ok(layout.without_empty())
    }

    /// Of the source (position 0) or the target of an atomic operation. Targets of sums and of
    /// compare-swap are 0 before, so that one operation leaves the source's bytes there.
    fn of_atomic(mut self, op: AtomicOp, at: usize, flow: usize) -> Self {
        let bytes = self.send.max(self.recv);
        let new = (0, bytes, seed(flow, 0, 0));
        let old = match op {
            AtomicOp::Swap => (0, bytes, seed(flow, 1, 0)),
            _ => (0, bytes, pattern::ZERO_SEED),
        };
        if at > 0 {
            (self.fills, self.checks, self.in_place) = (vec![old], vec![new], Some((0, 0)));
        } else {
            self.fills = vec![new];
            self.checks = if op.fetches() { vec![old] } else { Vec::new() };
        }
        self
    }

    /// Lets the two buffers overlap, with this position's part at `own`.
    fn share_buffer(
        &mut self,
        op: Collective,
        via: Transport,
        own: u64,
        root: bool,
    ) -> Result<(), &'static str> {
        if !op.has_in_place(via) {
            return Err("this library has no such operation in place");
        }
        let shift = |list: &mut Vec<PatternRange>| {
            list.iter_mut().for_each(|range| range.0 += own);
        };
        match op {
            Collective::AllReduce | Collective::AllToAll => self.in_place = Some((0, 0)),
            Collective::Reduce if root => self.in_place = Some((0, 0)),
            Collective::AllGather | Collective::AllGatherV => {
                shift(&mut self.fills);
                self.in_place = Some((own, 0));
            }
            // MPI leaves each rank's part at the start of its buffer, NCCL in its place.
            Collective::ReduceScatter if via != Transport::Ccl => self.in_place = Some((0, 0)),
            Collective::ReduceScatter => {
                shift(&mut self.checks);
                self.in_place = Some((0, own));
            }
            Collective::Gather | Collective::GatherV if root => self.in_place = Some((own, 0)),
            Collective::Scatter | Collective::ScatterV if root => self.in_place = Some((0, own)),
            _ => {}
        }
        Ok(())
    }

    fn without_empty(mut self) -> Self {
        self.fills.retain(|range| range.1 > 0);
        self.checks.retain(|range| range.1 > 0);
        self
    }
}

/// The seed of part `part` from rank `from` in the `flow`-th flow. Never the seed of zeros.
fn seed(flow: usize, from: u64, part: u64) -> u64 {
    pattern::word(0x7261_6e6b, (flow as u64) << 42 | from << 21 | part) | 1
}

fn salt(flow: usize, part: u64) -> u64 {
    (flow as u64) << 42 | part
}

/// What rank `at` of `n` brings to a reduction of `bytes` at `offset`.
///
/// Sums of 64-bit integers must equal a random pattern: a rank brings the elements of its stripe and
/// zeros elsewhere, so that each stripe counts once. Of other reductions it is the first of two ranks
/// in its stripe, the second in the stripe before, and neutral elsewhere.
fn contribution(
    reduced: ElementReduction,
    (offset, bytes): (u64, u64),
    (at, n): (usize, usize),
    seed: &dyn Fn(ElementRole) -> Result<u64, &'static str>,
) -> Result<Vec<PatternRange>, &'static str> {
    let (size, n) = (reduced.element.bytes(), n as u64);
    let count = u128::from(bytes / size);
    let begin = |nth: u64| {
        let element = count * u128::from(nth) / u128::from(n);
        u64::try_from(element).unwrap_or(0) * size
    };
    let (at, first) = (at as u64, seed(ElementRole::First)?);
    let (from, to) = (begin(at), begin(at + 1));
    let rest = |end: u64, seed: u64| (offset + end, bytes - end, seed);
    if reduced.is_usual() {
        let zeros = pattern::ZERO_SEED;
        return Ok(vec![(offset, bytes, first), (offset, from, zeros), rest(to, zeros)]);
    }
    let (second, neutral) = (seed(ElementRole::Second)?, seed(ElementRole::Neutral)?);
    if at == 0 {
        // The stripe before that of the first rank is the last one.
        let last = begin(n - 1);
        return Ok(vec![(offset, bytes, second), (offset, last, neutral), (offset, to, first)]);
    }
    Ok(vec![
        (offset, bytes, first),
        (offset, from, second),
        (offset, begin(at - 1), neutral),
        rest(to, neutral),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{ElementType, ReduceOp};

    fn layout(op: &str, at: usize, n: usize, bytes: u64) -> Result<GroupLayout, &'static str> {
        let wire = MessageOp::new(Transport::Mpi, op.parse().unwrap());
        GroupLayout::new(&wire, at, n, bytes, 0)
    }

    /// The bytes that a list of ranges writes.
    fn written(fills: &[PatternRange], bytes: u64) -> Vec<u8> {
        let mut all = vec![0xbb; usize::try_from(bytes).unwrap()];
        for &(offset, len, seed) in fills {
            for i in 0..len {
                all[usize::try_from(offset + i).unwrap()] = pattern::byte(seed, i);
            }
        }
        all
    }

    fn words(bytes: &[u8]) -> Vec<u64> {
        bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }

    #[test]
    fn contributions_add_up_to_the_pattern() {
        for (n, count) in [(2, 1), (3, 7), (8, 64), (8, 5)] {
            let bytes = count * 8;
            let mut sum = vec![0u64; usize::try_from(count).unwrap()];
            for at in 0..n {
                let brought = written(&layout("all_reduce", at, n, bytes).unwrap().fills, bytes);
                sum.iter_mut().zip(words(&brought)).for_each(|(s, b)| *s = s.wrapping_add(b));
            }
            let expected = layout("all_reduce", 0, n, bytes).unwrap().checks;
            assert_eq!(sum, words(&written(&expected, bytes)), "{n} ranks, {count} words");
        }
    }

    /// Of each element two ranks bring numbers, and the others nothing that counts; a missing or a
    /// doubled rank changes the sum of some.
    #[test]
    fn typed_contributions_reduce_to_the_expected_elements() {
        let reduce = |op: &str, all: &[Vec<u8>]| -> Vec<u8> {
            let column = |at: usize| all.iter().map(move |rank| i32::from(rank[at].cast_signed()));
            let of = |at: usize| match op {
                "sum" => column(at).sum(),
                "prod" => column(at).product(),
                "min" => column(at).min().unwrap(),
                "max" => column(at).max().unwrap(),
                _ => column(at).sum::<i32>() / all.len() as i32,
            };
            (0..all[0].len()).map(|at| of(at) as u8).collect()
        };
        for op in ["sum", "prod", "min", "max", "avg"] {
            for (n, bytes) in [(2, 1), (3, 100), (8, 5), (8, 1000)] {
                let name = format!("all_reduce-int8-{op}");
                let wire = MessageOp::new(Transport::Ccl, name.parse().unwrap());
                let of = |at| GroupLayout::new(&wire, at, n, bytes, 0).unwrap();
                let mut all: Vec<Vec<u8>> =
                    (0..n).map(|at| written(&of(at).fills, bytes)).collect();
                let expected = written(&of(0).checks, bytes);
                assert_eq!(reduce(op, &all), expected, "{name} over {n}");
                if bytes < 100 || !matches!(op, "sum" | "prod") {
                    continue;
                }
                for at in 0..n {
                    let kept = all[at].clone();
                    all[at] = written(&of((at + 1) % n).fills, bytes);
                    assert_ne!(reduce(op, &all), expected, "{name}: rank {at} twice");
                    all[at] = kept;
                }
            }
        }
        let average = layout("all_reduce-float-avg", 0, 3, 24);
        assert!(average.is_err_and(|why| why.contains("no power of two")));
        let reduced = ElementReduction { element: ElementType::Half, by: ReduceOp::Max };
        assert_eq!(WireOp::reduction(Collective::Reduce, reduced).to_string(), "reduce-half-max");
    }

    #[test]
    fn parts_of_a_reduce_scatter_have_their_own_pattern() {
        // Four ranks, 4 elements each: all contributions to part 2 add up to what rank 2 expects.
        let bytes = 4 * 4 * 8;
        let mut sum = [0u64; 16];
        for at in 0..4 {
            let brought = written(&layout("reduce_scatter", at, 4, bytes).unwrap().fills, bytes);
            sum.iter_mut().zip(words(&brought)).for_each(|(s, b)| *s = s.wrapping_add(b));
        }
        let third = layout("reduce_scatter", 2, 4, bytes).unwrap();
        assert_eq!(third.recv, 32);
        assert_eq!(sum[8..12], words(&written(&third.checks, 32))[..]);
        let wire = MessageOp::new(Transport::Ccl, "reduce_scatter-inplace".parse().unwrap());
        let in_place = GroupLayout::new(&wire, 2, 4, bytes, 0).unwrap();
        assert_eq!(in_place.in_place, Some((0, 64)));
        assert_eq!(in_place.checks, [(64, 32, third.checks[0].2)]);
        // MPI leaves the part at the start.
        let of_mpi = layout("reduce_scatter-inplace", 2, 4, bytes).unwrap();
        assert_eq!((of_mpi.in_place, &of_mpi.checks), (Some((0, 0)), &third.checks));
    }

    #[test]
    fn an_atomic_operation_leaves_the_sources_bytes_at_the_target() {
        // Sums and compare-swap start from 0, so the source's word is the result; what is fetched
        // is the previous word.
        for (op, fetches) in [("accumulate", false), ("fetch-add", true), ("compare-swap", true)] {
            let (a, b) = (layout(op, 0, 2, 8).unwrap(), layout(op, 1, 2, 8).unwrap());
            assert_eq!((a.send, a.recv, b.recv), (8, if fetches { 8 } else { 0 }, 8));
            assert_eq!(b.fills, [(0, 8, pattern::ZERO_SEED)]);
            assert_eq!(b.checks, a.fills);
            let fetched: Vec<_> = fetches.then(|| b.fills[0]).into_iter().collect();
            assert_eq!(a.checks, fetched);
        }
        let (a, b) = (layout("swap", 0, 2, 8).unwrap(), layout("swap", 1, 2, 8).unwrap());
        assert_eq!((a.checks.clone(), b.checks.clone()), (b.fills.clone(), a.fills.clone()));
        assert_ne!(a.fills, b.fills);
    }

    #[test]
    fn a_receiver_expects_the_senders_data() {
        let (a, b) = (layout("ping", 0, 2, 24).unwrap(), layout("ping", 1, 2, 24).unwrap());
        assert_eq!((a.fills.clone(), b.fills.clone()), (b.checks, a.checks));
        let (a, b) =
            (layout("all_to_all", 1, 3, 48).unwrap(), layout("all_to_all", 2, 3, 48).unwrap());
        // Part 2 of rank 1 is part 1 of what rank 2 receives.
        assert_eq!(a.fills[2].2, b.checks[1].2);
        assert_ne!(a.fills[1].2, a.fills[2].2);
        assert!(layout("all_gather", 0, 3, 16).is_err());
        assert!(layout("send-w64", 0, 2, 5).unwrap().checks.is_empty());
    }

    #[test]
    fn gathered_and_scattered_parts_are_those_of_the_root() {
        // Four ranks, 1600 B: 1, 3, 5 and 7 sixteenths; rank 2 has 500 B from 400 B on.
        let (root, third) =
            (layout("gatherv", 0, 4, 1600).unwrap(), layout("gatherv", 2, 4, 1600).unwrap());
        assert_eq!((third.send, third.recv), (500, 0));
        assert_eq!(root.checks[2], (400, 500, third.fills[0].2));
        assert_eq!((root.send, root.recv), (100, 1600));
        let (root, third) =
            (layout("scatter", 0, 4, 1600).unwrap(), layout("scatter", 2, 4, 1600).unwrap());
        assert_eq!((root.send, root.recv, third.send, third.recv), (1600, 400, 0, 400));
        assert_eq!(root.fills[2], (800, 400, third.checks[0].2));
        let in_place = layout("gather-inplace", 0, 4, 1600).unwrap();
        assert_eq!(in_place.in_place, Some((0, 0)));
        assert_eq!(layout("gather-inplace", 1, 4, 1600).unwrap().in_place, None);
        // Rank 1 sends rank 3 the part of two places: 5 sixteenths.
        let (first, last) = (
            layout("all_to_allv", 1, 4, 1600).unwrap(),
            layout("all_to_allv", 3, 4, 1600).unwrap(),
        );
        assert_eq!(first.fills[3].1, 500);
        assert_eq!(first.fills[3], last.checks[1]);
    }
}
