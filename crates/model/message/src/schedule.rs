//! MPI collectives: the textbook algorithms by size, as schedules of messages.

use std::collections::BTreeSet;

use pathline_flow::NoPath;
use pathline_schema::Collective;

use crate::bounds::{message_parts, part_bytes};
use crate::exchange::{BufferPair, BufferPlace, ExchangeMember};
use crate::exchange_time::{AlgorithmTime, us};
use crate::mpi::MpiLibrary;
use crate::scene::ByteCarrier;
use crate::symmetric::ends;
use crate::transfer::ScheduledTransfer;

/// Sizes at which MPICH changes its algorithm (its control variables' defaults), in bytes.
const BROADCAST_SHORT: f64 = 12_288.0;
/// Bytes of a message without payload: a schedule drops messages without bytes.
const EMPTY: f64 = 1e-3;
/// The most messages of one collective: 1,450 ranks all to all, some 800 MB.
const MAX_TRANSFERS: usize = 2_100_000;
const BROADCAST_MIN_RANKS: usize = 8;
const REDUCE_SHORT: f64 = 2_048.0;
const REDUCE_SCATTER_LONG: f64 = 524_288.0;
const ALL_GATHER_SHORT: f64 = 81_920.0;
const ALL_GATHER_LONG: f64 = 524_288.0;
const ALL_TO_ALL_SHORT: f64 = 256.0;
const ALL_TO_ALL_MEDIUM: f64 = 32_768.0;

/// A schedule under construction. Ranks are places in `over`.
struct ScheduleBuilder<'a> {
    library: &'a MpiLibrary<'a>,
    over: &'a [ExchangeMember],
    buffers: BufferPlace,
    transfers: Vec<ScheduledTransfer>,
    /// Transfers that each rank's next message waits for.
    ready: Vec<Vec<usize>>,
    /// What `ready` becomes after a round; empty between rounds.
    next: Vec<Vec<usize>>,
    /// Titles of the planned steps, with the first transfer of each.
    steps: Vec<(String, usize)>,
    /// Bytes of every message, for the steps.
    carried_by: &'static str,
    /// Senders with the receivers whose GPUs' memory they map.
    mapped: BTreeSet<(usize, usize)>,
}

/// One message of a round: from, to, bytes.
type RoundMessage = (usize, usize, f64);

impl<'a> ScheduleBuilder<'a> {
    fn new(library: &'a MpiLibrary<'a>, over: &'a [ExchangeMember], buffers: BufferPlace) -> Self {
        let ready = vec![Vec::new(); over.len()];
        let (transfers, steps) = (Vec::new(), Vec::new());
        Self {
            library,
            over,
            buffers,
            transfers,
            next: ready.clone(),
            ready,
            steps,
            carried_by: "",
            mapped: BTreeSet::new(),
        }
    }

    fn n(&self) -> usize {
        self.over.len()
    }

    fn step(&mut self, what: impl Into<String>) {
        self.steps.push((what.into(), self.transfers.len()));
    }

    /// Messages that are posted at once: each waits for what both its ends did before.
    fn round(&mut self, sends: &[RoundMessage], sums: bool) -> Result<(), NoPath> {
        let all = self.transfers.len() + sends.len();
        if all > MAX_TRANSFERS {
            let n = self.n();
            return Err(NoPath(format!(
                "{n} ranks send more than {MAX_TRANSFERS} messages by this algorithm; take fewer ranks, or \
                 rccl or nccl"
            )));
        }
        for &(from, to, bytes) in sends {
            let (Some(&a), Some(&b)) = (self.over.get(from), self.over.get(to)) else { continue };
            if bytes <= 0.0 || a == b {
                continue;
            }
            let m = self.library.message(a, b, bytes, BufferPair::both(self.buffers))?;
            let tail = if sums { self.library.sum(b, bytes)? } else { 0.0 };
            let mut after: Vec<usize> =
                [from, to].iter().filter_map(|&r| self.ready.get(r)).flatten().copied().collect();
            after.sort_unstable();
            after.dedup();
            let id = self.transfers.len();
            self.carried_by = m.by;
            if m.mapped {
                self.mapped.insert((from, to));
            }
            let bytes = bytes * m.weight;
            self.transfers.push(ScheduledTransfer {
                path: m.path,
                bytes,
                start: m.start,
                tail,
                after,
            });
            for rank in [from, to] {
                if let Some(list) = self.next.get_mut(rank) {
                    list.push(id);
                }
            }
        }
        // The lists keep their memory: a million messages otherwise take as many new ones.
        for (ready, next) in self.ready.iter_mut().zip(&mut self.next) {
            if !next.is_empty() {
                std::mem::swap(ready, next);
                next.clear();
            }
        }
        Ok(())
    }

    /// All ranks' buffers to host memory, or back from there.
    fn stage(&mut self, ranks: &[usize], out: bool, bytes: f64) -> Result<(), NoPath> {
        let words = if out { "to host memory" } else { "back to device memory" };
        self.step(format!("{bytes:.0} B {words}"));
        for &rank in ranks {
            let (Some(&m), Some(ready)) = (self.over.get(rank), self.ready.get_mut(rank)) else {
                continue;
            };
            let path = self.library.scene.staging(ByteCarrier::Engine, m, out, bytes as u64)?;
            let (start, after) = (path.alpha, std::mem::take(ready));
            *ready = vec![self.transfers.len()];
            self.transfers.push(ScheduledTransfer { path, bytes, start, tail: 0.0, after });
        }
        Ok(())
    }

    /// Each rank copies `bytes` from its send buffer to its receive buffer: its own part of a collective
    /// that is not in place, or a pass over the parts that an algorithm packs or puts in order.
    fn copy_own(&mut self, bytes: f64) -> Result<(), NoPath> {
        if bytes <= 0.0 {
            return Ok(());
        }
        let copies =
            self.over.iter().map(|&member| self.library.own_copy(member, bytes, self.buffers));
        let copies = copies.collect::<Result<Vec<_>, _>>()?;
        for (ready, (path, start)) in self.ready.iter_mut().zip(copies) {
            let after = std::mem::replace(ready, vec![self.transfers.len()]);
            self.transfers.push(ScheduledTransfer { path, bytes, start, tail: 0.0, after });
        }
        Ok(())
    }

    /// Ends of all transfers and of all ranks.
    fn outcome(self, algorithm: &str) -> AlgorithmTime {
        let ends = ends(&self.library.scene.capacities, &self.transfers);
        let end = |&id: &usize| ends.get(id).copied().unwrap_or(0.0);
        let done: Vec<f64> =
            self.ready.iter().map(|ids| ids.iter().map(end).fold(0.0, f64::max)).collect();
        let time = done.iter().copied().fold(0.0, f64::max);
        let mut steps = Vec::new();
        for (i, (words, first)) in self.steps.iter().enumerate() {
            let until = self.steps.get(i + 1).map_or(self.transfers.len(), |(_, next)| *next);
            let end =
                ends.get(*first..until).unwrap_or_default().iter().copied().fold(0.0, f64::max);
            steps.push(format!("{words}: done at {}", us(end)));
        }
        steps.push(format!("messages by {}", self.carried_by));
        let transfers = self.transfers.iter();
        let loads = self.library.scene.loads(transfers.map(|t| (t.path.uses.as_slice(), t.bytes)));
        AlgorithmTime {
            time,
            mean: done.iter().sum::<f64>() / done.len().max(1) as f64,
            each: done,
            pairs: 1,
            algorithm: algorithm.into(),
            steps,
            loads,
            maps: most_receivers(&self.mapped),
            ..AlgorithmTime::default()
        }
    }

    /// From the first of `group` to all of it: every rank sends to up to `radix - 1` others at each
    /// distance, the farthest first, all posted at once.
    fn tree(&mut self, group: &[usize], radix: usize, bytes: f64) -> Result<(), NoPath> {
        for sends in tree_rounds(group, radix) {
            let sends: Vec<RoundMessage> = sends.into_iter().map(|(a, b)| (a, b, bytes)).collect();
            self.round(&sends, false)?;
        }
        Ok(())
    }

    /// The same tree upwards, with sums.
    fn tree_up(&mut self, group: &[usize], radix: usize, bytes: f64) -> Result<(), NoPath> {
        for sends in tree_rounds(group, radix).into_iter().rev() {
            let sends: Vec<RoundMessage> = sends.into_iter().map(|(a, b)| (b, a, bytes)).collect();
            self.round(&sends, true)?;
        }
        Ok(())
    }

    /// Ranks beyond a power of two pass their bytes to a neighbour. Returns the remaining ranks.
    fn fold(&mut self, bytes: f64) -> Result<Vec<usize>, NoPath> {
        let n = self.n();
        let power = 1usize << n.max(1).ilog2();
        let extra = n - power;
        let sends: Vec<RoundMessage> = (0..extra).map(|i| (2 * i, 2 * i + 1, bytes)).collect();
        if extra > 0 {
            self.step(format!("{extra} ranks beyond a power of two hand theirs on"));
            self.round(&sends, true)?;
        }
        Ok((0..extra).map(|i| 2 * i + 1).chain(2 * extra..n).collect())
    }

    fn unfold(&mut self, bytes: f64) -> Result<(), NoPath> {
        let n = self.n();
        let extra = n - (1usize << n.max(1).ilog2());
        let sends: Vec<RoundMessage> = (0..extra).map(|i| (2 * i + 1, 2 * i, bytes)).collect();
        self.round(&sends, false)
    }

    /// Pairs at each distance of `group`, a power of two of ranks, exchange bytes, full duplex.
    fn pairs(
        &mut self,
        group: &[usize],
        distances: &[usize],
        bytes: impl Fn(usize) -> f64,
        sums: bool,
    ) -> Result<(), NoPath> {
        for (k, &distance) in distances.iter().enumerate() {
            let sends: Vec<RoundMessage> = (0..group.len())
                .filter_map(|i| Some((*group.get(i)?, *group.get(i ^ distance)?, bytes(k))))
                .collect();
            self.round(&sends, sums)?;
        }
        Ok(())
    }

    /// Each rank to the one `by` places further, one round for each of `by`.
    fn shifts(
        &mut self,
        by: impl Iterator<Item = usize>,
        bytes: f64,
        sums: bool,
    ) -> Result<(), NoPath> {
        let n = self.n();
        for shift in by {
            let sends: Vec<RoundMessage> = (0..n).map(|i| (i, (i + shift) % n, bytes)).collect();
            self.round(&sends, sums)?;
        }
        Ok(())
    }
}

/// The most receivers of one sender.
fn most_receivers(pairs: &BTreeSet<(usize, usize)>) -> u32 {
    let of = |sender: usize| pairs.range((sender, 0)..=(sender, usize::MAX)).count();
    pairs.iter().map(|&(sender, _)| of(sender) as u32).max().unwrap_or(0)
}

/// Senders and receivers of each round of a tree of `radix` from the first of `group`.
fn tree_rounds(group: &[usize], radix: usize) -> Vec<Vec<(usize, usize)>> {
    let n = group.len();
    let mut distances = Vec::new();
    let mut distance = 1usize;
    while distance < n {
        distances.push(distance);
        distance = distance.saturating_mul(radix.max(2));
    }
    let mut rounds = Vec::new();
    for &distance in distances.iter().rev() {
        let parents = (0..n).step_by(distance.saturating_mul(radix.max(2)));
        let sends = parents.flat_map(|p| (1..radix.max(2)).map(move |i| (p, p + i * distance)));
        let known = sends.filter_map(|(p, c)| Some((*group.get(p)?, *group.get(c)?)));
        rounds.push(known.collect());
    }
    rounds
}

/// The time of a collective of an MPI.
pub(crate) fn collective(
    library: &MpiLibrary<'_>,
    op: Collective,
    over: &[ExchangeMember],
    bytes: f64,
    buffers: BufferPlace,
) -> Result<AlgorithmTime, NoPath> {
    let mut plan = ScheduleBuilder::new(library, over, buffers);
    let all: Vec<usize> = (0..over.len()).collect();
    let algorithm = match op {
        Collective::Broadcast => broadcast(&mut plan, bytes)?,
        Collective::AllGather => all_gather(&mut plan, bytes)?,
        Collective::AllToAll => all_to_all(&mut plan, bytes)?,
        Collective::Gather => gather(&mut plan, bytes, true)?,
        Collective::Scatter => gather(&mut plan, bytes, false)?,
        Collective::AllGatherV => all_gatherv(&mut plan, bytes)?,
        Collective::AllToAllV | Collective::GatherV | Collective::ScatterV => {
            plan.step("all messages at once");
            let parts = message_parts(op, over, bytes);
            let at = |member| over.iter().position(|m| *m == member).unwrap_or(0);
            let sends: Vec<RoundMessage> =
                parts.into_iter().map(|(a, b, bytes)| (at(a), at(b), bytes)).collect();
            plan.round(&sends, false)?;
            "all at once"
        }
        Collective::Barrier => barrier(&mut plan)?,
        // Sums are made by the CPU: device buffers go to host memory first, and back after.
        Collective::Reduce | Collective::AllReduce | Collective::ReduceScatter => {
            let staged = buffers == BufferPlace::Vram && bytes > library.mpi.ipc_above_bytes as f64;
            if staged {
                plan.stage(&all, true, bytes)?;
                plan.buffers = BufferPlace::Host;
            }
            let algorithm = match op {
                Collective::Reduce => reduce(&mut plan, bytes)?,
                Collective::AllReduce => all_reduce(&mut plan, bytes)?,
                _ => reduce_scatter(&mut plan, bytes)?,
            };
            match op {
                _ if !staged => {}
                Collective::Reduce => plan.stage(&[0], false, bytes)?,
                Collective::AllReduce => plan.stage(&all, false, bytes)?,
                _ => plan.stage(&all, false, bytes / over.len() as f64)?,
            }
            let how = if staged { "in host memory, " } else { "" };
            return Ok(plan.outcome(&format!("{how}{algorithm}")));
        }
    };
    Ok(plan.outcome(algorithm))
}

/// Dissemination barrier: in each round every rank sends to one rank at a doubling distance and
/// receives from another, so the last round completes all. Messages have no payload, so each takes
/// the time of the smallest host message.
fn barrier(plan: &mut ScheduleBuilder<'_>) -> Result<&'static str, NoPath> {
    let n = plan.n();
    plan.buffers = BufferPlace::Host;
    plan.step("empty messages at doubling distances");
    let shifts = std::iter::successors(Some(1usize), |d| Some(d * 2)).take_while(|d| *d < n);
    plan.shifts(shifts, EMPTY, false)?;
    Ok("dissemination")
}

fn broadcast(plan: &mut ScheduleBuilder<'_>, bytes: f64) -> Result<&'static str, NoPath> {
    let n = plan.n();
    if let Some(radix) = plan.library.mpi.broadcast_radix {
        // First from node to node, then within each.
        let mut nodes: Vec<(u32, Vec<usize>)> = Vec::new();
        for (rank, m) in plan.over.iter().enumerate() {
            match nodes.iter_mut().find(|(node, _)| *node == m.node) {
                Some((_, ranks)) => ranks.push(rank),
                None => nodes.push((m.node, vec![rank])),
            }
        }
        let leaders: Vec<usize> = nodes.iter().filter_map(|(_, r)| r.first().copied()).collect();
        plan.step(format!("tree of fan-out {radix}, all {bytes:.0} B on every edge"));
        plan.tree(&leaders, radix as usize, bytes)?;
        for (_, ranks) in &nodes {
            plan.tree(ranks, radix as usize, bytes)?;
        }
        return Ok("tree");
    }
    let all: Vec<usize> = (0..n).collect();
    if plan.library.open_mpi {
        return open_mpi_broadcast(plan, bytes);
    }
    if bytes < BROADCAST_SHORT || n < BROADCAST_MIN_RANKS {
        plan.step(format!("binomial tree, all {bytes:.0} B on every edge"));
        plan.tree(&all, 2, bytes)?;
        return Ok("binomial tree");
    }
    scatter_and_gather(plan, bytes)
}

/// Each rank gets its part from the root over a binomial tree, and all exchange their parts.
fn scatter_and_gather(plan: &mut ScheduleBuilder<'_>, bytes: f64) -> Result<&'static str, NoPath> {
    let n = plan.n();
    let all: Vec<usize> = (0..n).collect();
    plan.step("scatter over a binomial tree");
    let part = bytes / n as f64;
    let mut distance = n.next_power_of_two() / 2;
    while distance > 0 {
        let sends: Vec<RoundMessage> = (0..n)
            .step_by(2 * distance)
            .filter(|i| i + distance < n)
            .map(|i| (i, i + distance, part * distance.min(n - i - distance) as f64))
            .collect();
        plan.round(&sends, false)?;
        distance /= 2;
    }
    if bytes < ALL_GATHER_LONG && n.is_power_of_two() {
        plan.step("all_gather by doubling");
        plan.pairs(&all, &powers(n), |k| part * (1u64 << k) as f64, false)?;
        return Ok("scatter and all_gather by doubling");
    }
    plan.step("all_gather around a ring");
    plan.shifts(std::iter::repeat_n(1, n - 1), part, false)?;
    Ok("scatter and all_gather around a ring")
}

/// Open MPI's shapes of a broadcast. It cuts no message of these into segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BroadcastShape {
    /// From the root to all at once.
    Linear,
    /// From each rank to the next.
    Chain,
    /// From each rank to two.
    Binary,
    /// A binomial tree, of fan-out 2 or 4.
    Binomial,
    Knomial,
    ScatterGather,
}

/// Open MPI's choice without a rule file (coll_tuned_decision_fixed.c of 4.1 and 5.0), up to 64 ranks:
/// for each bound the shape below it, and the shape of all larger sizes.
fn open_mpi_shape(ranks: usize, bytes: f64) -> BroadcastShape {
    use BroadcastShape::{Binary, Binomial, Chain, Knomial, Linear, ScatterGather};
    let (below, else_shape): (&[(f64, BroadcastShape)], BroadcastShape) = match ranks {
        0..4 => (
            &[
                (32.0, Chain),
                (256.0, Binary),
                (512.0, Chain),
                (1024.0, Knomial),
                (32_768.0, Linear),
                (131_072.0, Binary),
                (262_144.0, Chain),
                (524_288.0, Linear),
                (1_048_576.0, Binomial),
            ],
            Binary,
        ),
        4..8 => (
            &[
                (64.0, Binary),
                (128.0, Binomial),
                (2048.0, Binary),
                (8192.0, Binomial),
                (1_048_576.0, Linear),
            ],
            Chain,
        ),
        8..16 => (
            &[
                (8.0, Knomial),
                (64.0, Binary),
                (4096.0, Knomial),
                (16_384.0, Binary),
                (32_768.0, Binomial),
            ],
            Linear,
        ),
        16..32 => (&[(4096.0, Knomial), (1_048_576.0, Binomial)], ScatterGather),
        32..64 => (&[(2048.0, Binomial)], Knomial),
        _ => (&[], Knomial),
    };
    below.iter().find(|(size, _)| bytes < *size).map_or(else_shape, |(_, shape)| *shape)
}

fn open_mpi_broadcast(plan: &mut ScheduleBuilder<'_>, bytes: f64) -> Result<&'static str, NoPath> {
    let n = plan.n();
    let all: Vec<usize> = (0..n).collect();
    let shape = open_mpi_shape(n, bytes);
    let (name, fan_out) = match shape {
        BroadcastShape::Linear => ("all from the root at once", n),
        BroadcastShape::Chain => ("chain", 1),
        BroadcastShape::Binary => ("binary tree", 2),
        BroadcastShape::Binomial => {
            plan.step(format!("binomial tree, all {bytes:.0} B on every edge"));
            plan.tree(&all, 2, bytes)?;
            return Ok("binomial tree");
        }
        BroadcastShape::Knomial => {
            plan.step(format!("tree of fan-out 4, all {bytes:.0} B on every edge"));
            plan.tree(&all, 4, bytes)?;
            return Ok("tree");
        }
        BroadcastShape::ScatterGather => return scatter_and_gather(plan, bytes),
    };
    plan.step(format!("{name}, all {bytes:.0} B on every edge"));
    for parent in 0..n {
        let children = (1..=fan_out).map(|i| parent * fan_out + i).filter(|child| *child < n);
        let sends: Vec<RoundMessage> = children.map(|child| (parent, child, bytes)).collect();
        plan.round(&sends, false)?;
    }
    Ok(name)
}

fn powers(n: usize) -> Vec<usize> {
    (0..n.max(1).ilog2()).map(|k| 1 << k).collect()
}

fn all_gather(plan: &mut ScheduleBuilder<'_>, bytes: f64) -> Result<&'static str, NoPath> {
    let n = plan.n();
    let part = bytes / n as f64;
    plan.copy_own(part)?;
    if bytes < ALL_GATHER_LONG && n.is_power_of_two() {
        plan.step("distances double, and what is exchanged does");
        let all: Vec<usize> = (0..n).collect();
        plan.pairs(&all, &powers(n), |k| part * (1u64 << k) as f64, false)?;
        return Ok("recursive doubling");
    }
    if bytes < ALL_GATHER_SHORT {
        plan.step("distances double, to one side");
        let mut have = 1;
        while have < n {
            let parts = have.min(n - have) as f64;
            plan.shifts(std::iter::once(n - have), part * parts, false)?;
            have *= 2;
        }
        return Ok("Bruck");
    }
    plan.step(format!("{} steps around a ring with {part:.0} B", n - 1));
    plan.shifts(std::iter::repeat_n(1, n - 1), part, false)?;
    Ok("ring")
}

/// Parts up a binomial tree to the root, or down from it: a rank at distance d passes the parts of up
/// to d ranks. MPICH does so at every size.
fn gather(
    plan: &mut ScheduleBuilder<'_>,
    bytes: f64,
    gathers: bool,
) -> Result<&'static str, NoPath> {
    let n = plan.n();
    let part = bytes / n as f64;
    plan.step(if gathers { "parts up a binomial tree" } else { "parts down a binomial tree" });
    let mut distances: Vec<usize> =
        std::iter::successors(Some(1usize), |d| Some(d * 2)).take_while(|d| *d < n).collect();
    if !gathers {
        distances.reverse();
    }
    for distance in distances {
        let sends: Vec<RoundMessage> = (0..n)
            .step_by(2 * distance)
            .filter(|near| near + distance < n)
            .map(|near| {
                let far = near + distance;
                let bytes = part * distance.min(n - far) as f64;
                if gathers { (far, near, bytes) } else { (near, far, bytes) }
            })
            .collect();
        plan.round(&sends, false)?;
    }
    Ok("binomial tree")
}

/// Around a ring, in which each rank passes on the part that it received last.
fn all_gatherv(plan: &mut ScheduleBuilder<'_>, bytes: f64) -> Result<&'static str, NoPath> {
    let n = plan.n();
    let own = (0..n).map(|rank| part_bytes(Collective::AllGatherV, n, rank, bytes));
    plan.copy_own(own.fold(0.0, f64::max))?;
    plan.step(format!("{} steps around a ring with uneven parts", n - 1));
    for step in 0..n - 1 {
        let sends: Vec<RoundMessage> = (0..n)
            .map(|rank| {
                let part = (rank + n - step) % n;
                (rank, (rank + 1) % n, part_bytes(Collective::AllGatherV, n, part, bytes))
            })
            .collect();
        plan.round(&sends, false)?;
    }
    Ok("ring")
}

fn all_to_all(plan: &mut ScheduleBuilder<'_>, bytes: f64) -> Result<&'static str, NoPath> {
    let n = plan.n();
    let part = bytes / n as f64;
    if part <= ALL_TO_ALL_SHORT && n >= 8 {
        plan.step("distances double, with half of all parts");
        // All parts are put in order before and after; what a round sends is packed and unpacked.
        plan.copy_own(bytes)?;
        for shift in std::iter::successors(Some(1usize), |d| Some(d * 2)).take_while(|d| *d < n) {
            plan.copy_own(bytes / 2.0)?;
            plan.shifts(std::iter::once(shift), bytes / 2.0, false)?;
            plan.copy_own(bytes / 2.0)?;
        }
        plan.copy_own(bytes)?;
        return Ok("Bruck");
    }
    plan.copy_own(part)?;
    let probe = plan.over.first().zip(plan.over.get(1));
    let by_cpu = match probe {
        Some((&a, &b)) => plan.library.message(a, b, part, BufferPair::both(plan.buffers))?.by_cpu,
        None => false,
    };
    if part <= ALL_TO_ALL_MEDIUM && !by_cpu {
        plan.step(format!("all messages of {part:.0} B at once"));
        let pairs = (1..n).flat_map(|d| (0..n).map(move |i| (i, (i + d) % n)));
        let sends: Vec<RoundMessage> =
            pairs.take(MAX_TRANSFERS + 1).map(|(a, b)| (a, b, part)).collect();
        plan.round(&sends, false)?;
        return Ok("all at once");
    }
    plan.step(format!("{} rounds of pairs with {part:.0} B", n - 1));
    if n.is_power_of_two() {
        let all: Vec<usize> = (0..n).collect();
        let distances: Vec<usize> = (1..n).collect();
        plan.pairs(&all, &distances, |_| part, false)?;
    } else {
        plan.shifts(1..n, part, false)?;
    }
    Ok("pairwise")
}

/// Reduce and scatter by halving over a power of two of ranks: half, then a quarter, and so on.
fn halving(plan: &mut ScheduleBuilder<'_>, group: &[usize], bytes: f64) -> Result<(), NoPath> {
    plan.step("sums of halves, quarters and so on");
    plan.pairs(group, &powers(group.len()), |k| bytes / (2u64 << k) as f64, true)
}

fn all_reduce(plan: &mut ScheduleBuilder<'_>, bytes: f64) -> Result<&'static str, NoPath> {
    let group = plan.fold(bytes)?;
    if bytes <= REDUCE_SHORT {
        plan.step("all bytes to ranks at doubling distances");
        plan.pairs(&group, &powers(group.len()), |_| bytes, true)?;
        plan.unfold(bytes)?;
        return Ok("recursive doubling");
    }
    halving(plan, &group, bytes)?;
    plan.step("the sums to all, by doubling");
    let distances: Vec<usize> = powers(group.len()).into_iter().rev().collect();
    let parts = group.len() as f64;
    plan.pairs(&group, &distances, |k| bytes / parts * (1u64 << k) as f64, false)?;
    plan.unfold(bytes)?;
    Ok("halving and doubling")
}

fn reduce(plan: &mut ScheduleBuilder<'_>, bytes: f64) -> Result<&'static str, NoPath> {
    if bytes <= REDUCE_SHORT {
        let all: Vec<usize> = (0..plan.n()).collect();
        plan.step("sums up a binomial tree");
        plan.tree_up(&all, 2, bytes)?;
        return Ok("binomial tree");
    }
    let group = plan.fold(bytes)?;
    halving(plan, &group, bytes)?;
    plan.step("the sums to the root, over a tree");
    // Halving began with the nearest ranks and half of the bytes, so the return begins with the
    // farthest and one part.
    let m = group.len();
    let part = bytes / m as f64;
    for distance in powers(m).into_iter().rev() {
        let parts = (m / (2 * distance)) as f64;
        let sends: Vec<RoundMessage> = (0..distance)
            .filter_map(|i| Some((*group.get(i + distance)?, *group.get(i)?, part * parts)))
            .collect();
        plan.round(&sends, false)?;
    }
    if let Some(&first) = group.first().filter(|&&first| first != 0) {
        plan.round(&[(first, 0, bytes)], false)?;
    }
    Ok("halving and a tree")
}

fn reduce_scatter(plan: &mut ScheduleBuilder<'_>, bytes: f64) -> Result<&'static str, NoPath> {
    let n = plan.n();
    let part = bytes / n as f64;
    if bytes < REDUCE_SCATTER_LONG {
        let group = plan.fold(bytes)?;
        halving(plan, &group, bytes)?;
        plan.unfold(part)?;
        return Ok("halving");
    }
    plan.step(format!("{} rounds of pairs with {part:.0} B", n - 1));
    plan.shifts(1..n, part, true)?;
    Ok("pairwise")
}
