//! What a work queue of chunks gives each path, and the most that any split could reach.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, MultipathSpec, PathShares};

use super::paths::{CandidatePath, LegCost};
use crate::operation::ResourceUse;
use crate::simplex::{LinearLimit, maximize_sum};
use crate::solve::{MaxMinSolver, RateDemand};

/// The direct path takes half of its share of what remains, at most this much, so that it neither starts often nor
/// ends last.
const LARGEST_PIECE: f64 = (16 << 20) as f64;

/// The direct path takes pieces of at most this size where it keeps to a share.
const SHARED_PIECE: f64 = (4 << 20) as f64;

/// Least piece, which paths take at the end of a copy.
const LEAST_PIECE: f64 = (256 << 10) as f64;

/// Pieces for each path into which the rest of a copy is cut.
const PIECES_OF_REST: f64 = 2.0;

/// Streams that the copies of a leg take in turn.
const STREAMS: f64 = 2.0;

/// The thread that issues all copies.
const ISSUER: &str = "calls of the thread that issues the copies";

/// Slots of a relay, and pulls that a destination of a copy to all has enqueued.
const IN_FLIGHT: f64 = MultipathSpec::SLOTS as f64;

/// Time that the thread which issues copies sleeps where nothing has ended, ns; half of it passes on average.
const PAUSE: f64 = 2_000.0;

/// Most paths of which all subsets that may start at once are looked at: the direct one and seven relays. More of them
/// leave a resource idle too seldom to count.
const MAX_USERS: usize = 8;

/// A resource counts as full from this share of its capacity on.
const FULL: f64 = 0.999;

/// The rates of the paths of one copy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PathRates {
    /// GB/s of each path once pieces flow.
    pub rates: Vec<f64>,
    /// Their sum of rates.
    pub total: f64,
    /// Time of the whole copy, ns.
    pub time: f64,
    /// Rate of each path alone.
    caps: Vec<f64>,
    /// What a byte over each path takes.
    uses: Vec<Vec<ResourceUse>>,
}

impl LegCost {
    /// Rate alone, GB/s: its cap, or what its narrowest resource carries.
    fn alone(&self, capacities: &[f64]) -> f64 {
        RateDemand::new(&self.uses, self.cap).alone(capacities)
    }

    /// Rate of the pulls from one of several sources by a destination that has [`IN_FLIGHT`] pulls enqueued, in the
    /// order in which pieces arrive: a closed network of one queue for each source and a delay for starts and looks,
    /// by mean value analysis.
    fn pulled(&self, capacities: &[f64], piece: f64, (sources, seen): (f64, f64)) -> f64 {
        let (delay, bytes) = (self.start + seen, piece / self.alone(capacities));
        let (mut queued, mut pulls_per_ns) = (0.0, 0.0);
        for pulls in 1..=IN_FLIGHT as u32 {
            let wait = bytes * (1.0 + queued);
            pulls_per_ns = f64::from(pulls) / (delay + wait);
            queued = pulls_per_ns * wait / sources;
        }
        pulls_per_ns * piece / sources
    }

    /// Time of one piece alone, ns.
    pub(crate) fn time(&self, capacities: &[f64], piece: f64) -> f64 {
        self.start + piece / self.alone(capacities)
    }
}

impl CandidatePath {
    /// Rate alone with pieces of this size: legs overlap, and on each of them two pieces are in flight. The host sees
    /// the end of a piece after `seen` and only then enqueues what follows.
    fn alone(&self, capacities: &[f64], piece: f64, seen: f64) -> f64 {
        let turn = |leg: &LegCost| leg.time(capacities, piece) + seen;
        let of_leg = |leg: &LegCost| match leg.is_chained {
            true => piece / leg.time(capacities, piece),
            false => leg.alone(capacities).min(STREAMS * piece / turn(leg)),
        };
        let legs = self.legs.iter().map(of_leg).fold(f64::INFINITY, f64::min);
        let pulls = self.legs.get(self.hops.saturating_sub(1)..).unwrap_or_default();
        let behind = match self.hops {
            0 | 1 => f64::INFINITY,
            // A slot is free again when its piece has passed both legs.
            _ if pulls.len() == 1 => IN_FLIGHT * piece / self.legs.iter().map(turn).sum::<f64>(),
            _ => pulls
                .iter()
                .map(|leg| leg.pulled(capacities, piece, (pulls.len() as f64, seen)))
                .fold(f64::INFINITY, f64::min),
        };
        legs.min(behind)
    }

    /// Time until it delivers at its rate, ns, after the call for its first piece. `pace` has the rate and the
    /// resources that are full.
    fn latency(&self, capacities: &[f64], (piece, least): (f64, f64), pace: &PathPace<'_>) -> f64 {
        let starts: f64 = self.legs.iter().take(self.hops).map(|leg| leg.start).sum();
        let [fill, drain, ..] = &self.legs[..] else { return starts };
        if pace.is_to_all {
            // The first piece is half as large; without a queue it shares the leg with the second.
            let first = if fill.queue.is_some() { piece / 2.0 } else { piece };
            return starts + first / fill.alone(capacities);
        }
        let chunk = |leg: &LegCost| {
            let start = if leg.queue.is_some() { leg.start } else { 0.0 };
            let alone = start + piece / leg.alone(capacities);
            if pace.slows(leg) { alone.max(piece / pace.rate) } else { alone }
        };
        let (filled, drained) = (chunk(fill), chunk(drain));
        // Two machines in a row: the time of all pieces on one of them, and on the other of those before or after
        // one of the pieces. The first piece is half a chunk, and about two chunks are left to the small ones at the
        // end.
        let wait = if drained >= filled {
            (0.5 * filled).max(1.5 * filled - 0.5 * drained)
        } else {
            (least / drain.alone(capacities)).max(3.0 * drained - 2.0 * filled)
        };
        // The end of a fill is seen before its drain is enqueued, and that of the last drain before the copy ends.
        starts + wait + 2.0 * pace.seen
    }

    /// What one byte over it takes of each resource. Queues are taken for the time of a byte, with its part of
    /// the start of a piece; the thread that issues all copies, the last resource, for its part of the calls.
    fn uses(&self, capacities: &[f64], piece: f64) -> Vec<ResourceUse> {
        let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
        if let Ok(issuer) = u32::try_from(capacities.len().saturating_sub(1)) {
            let calls: f64 = self.legs.iter().map(|leg| leg.calls).sum();
            sums.insert(issuer, calls / piece);
        }
        for leg in &self.legs {
            leg.uses.iter().for_each(|u| *sums.entry(u.resource).or_default() += u.weight);
            if let Some(queue) = leg.queue {
                *sums.entry(queue).or_default() += leg.start / piece + 1.0 / leg.cap;
            }
        }
        sums.into_iter().map(|(resource, weight)| ResourceUse { resource, weight }).collect()
    }
}

/// How fast a path is among others.
struct PathPace<'f> {
    rate: f64,
    /// Time until the end of a piece is seen, ns.
    seen: f64,
    /// Resources of which nothing is left.
    full: &'f [u32],
    /// Without a direct path: what one member loads the others pull.
    is_to_all: bool,
}

impl PathPace<'_> {
    /// Whether a leg is as slow as the path because others use what it needs.
    fn slows(&self, leg: &LegCost) -> bool {
        let is_full = |resource: u32| self.full.contains(&resource);
        leg.uses.iter().any(|u| is_full(u.resource)) || leg.queue.is_some_and(is_full)
    }
}

/// Time until the thread that issues copies sees that one has ended, ns: on average half a pause, and half a round
/// in which two of three legs have a call to make (fitted to simulated copies).
fn time_to_see(paths: &[&CandidatePath]) -> f64 {
    let calls = paths.iter().flat_map(|path| &path.legs).map(|leg| leg.calls);
    PAUSE / 2.0 + calls.sum::<f64>() / 3.0
}

/// Paths with the pieces that they take at a time, what a byte over each takes, and the rate of each alone.
struct PiecedPaths {
    uses: Vec<Vec<ResourceUse>>,
    caps: Vec<f64>,
    /// Bytes of a piece.
    pieces: Vec<f64>,
}

impl PiecedPaths {
    fn new(
        capacities: &[f64],
        paths: &[&CandidatePath],
        (chunk, bytes): (f64, f64),
        has_shares: bool,
    ) -> Self {
        // On the direct path half of its share of what remains, which is half of its share of all on average.
        let largest = if has_shares { SHARED_PIECE } else { LARGEST_PIECE };
        let direct = (bytes / (4.0 * paths.len() as f64)).clamp(chunk.min(largest), largest);
        let piece = |path: &CandidatePath| {
            let most = if path.via.is_some() { chunk } else { direct };
            most.min(bytes).max(1.0)
        };
        let seen = time_to_see(paths);
        Self {
            uses: paths.iter().map(|path| path.uses(capacities, piece(path))).collect(),
            caps: paths.iter().map(|path| path.alone(capacities, piece(path), seen)).collect(),
            pieces: paths.iter().copied().map(piece).collect(),
        }
    }

    /// Links, memories and engines of which nothing is left.
    fn full(&self, capacities: &[f64], rates: &[f64]) -> Vec<u32> {
        let mut loads = vec![0.0; capacities.len()];
        for (uses, rate) in self.uses.iter().zip(rates) {
            for used in uses {
                if let Some(load) = loads.get_mut(used.resource as usize) {
                    *load += used.weight * rate;
                }
            }
        }
        let links = capacities.len().saturating_sub(1);
        let is_full = |(load, capacity): (&f64, &f64)| *load >= FULL * capacity;
        (0u32..)
            .zip(loads.iter().zip(capacities).take(links))
            .filter_map(|(nth, pair)| is_full(pair).then_some(nth))
            .collect()
    }

    /// When each path delivers at its rate, ns. The thread enqueues two pieces for each path, one path after the other.
    fn late(
        &self,
        capacities: &[f64],
        paths: &[&CandidatePath],
        (rates, least): (&[f64], f64),
        full: &[u32],
    ) -> Vec<f64> {
        let is_to_all = paths.iter().all(|path| path.via.is_some());
        let (mut called, seen) = (0.0, time_to_see(paths));
        let late = |((path, &piece), &rate): ((&&CandidatePath, &f64), &f64)| {
            let call = path.legs.first().map_or(0.0, |leg| leg.calls);
            let first = called + call;
            called += STREAMS * call;
            let pace = PathPace { rate, seen, full, is_to_all };
            first + path.latency(capacities, (piece, least.min(piece)), &pace)
        };
        paths.iter().zip(&self.pieces).zip(rates).map(late).collect()
    }

    /// Max-min fair, as flows that run at once: paths that take pieces from one queue as they are free.
    fn queued(&self, capacities: &[f64]) -> Vec<f64> {
        let demand = |(uses, &cap)| RateDemand::new(uses, cap);
        let demands: Vec<RateDemand<'_>> =
            self.uses.iter().map(Vec::as_slice).zip(&self.caps).map(demand).collect();
        let mut rates = Vec::new();
        MaxMinSolver::default().rates(capacities, &demands, &mut rates);
        rates
    }

    /// What is left of the rates of paths that fill a resource together: while one of them starts a piece, the others
    /// may be too slow to fill it. Paths start independently of each other.
    fn idle_while_starting(&self, capacities: &[f64], paths: &[&CandidatePath], rates: &mut [f64]) {
        let mut factors = vec![1.0_f64; rates.len()];
        for full in self.full(capacities, rates) {
            let Some(&capacity) = capacities.get(full as usize) else { continue };
            // Of each path that uses it: its part of the time in which it moves bytes, and what it then takes.
            let mut users: Vec<(usize, f64, f64)> = Vec::new();
            for (nth, path) in paths.iter().enumerate() {
                let (mut weight, mut starts) = (0.0, 0.0_f64);
                for leg in &path.legs {
                    let used = leg.uses.iter().filter(|u| u.resource == full).map(|u| u.weight);
                    let used: f64 = used.sum();
                    weight += used;
                    if used > 0.0 && (leg.queue.is_some() || leg.is_chained) {
                        starts = starts.max(leg.start);
                    }
                }
                let (Some(rate), Some(piece)) = (rates.get(nth), self.pieces.get(nth)) else {
                    continue;
                };
                if weight > 0.0 {
                    let alone = path.legs.iter().map(|leg| leg.alone(capacities));
                    let alone = alone.fold(f64::INFINITY, f64::min).max(*rate);
                    users.push((
                        nth,
                        (1.0 - starts * rate / piece).clamp(0.0, 1.0),
                        weight * alone,
                    ));
                }
            }
            if users.len() > MAX_USERS {
                continue;
            }
            let mut expected = 0.0;
            for set in 0..1_u32 << users.len() {
                let (mut chance, mut taken) = (1.0, 0.0);
                for (bit, &(_, moving, takes)) in users.iter().enumerate() {
                    let moves = set >> bit & 1 == 1;
                    chance *= if moves { moving } else { 1.0 - moving };
                    taken += if moves { takes } else { 0.0 };
                }
                expected += chance * taken.min(capacity);
            }
            for (nth, ..) in users {
                if let Some(factor) = factors.get_mut(nth) {
                    *factor = factor.min(expected / capacity);
                }
            }
        }
        rates.iter_mut().zip(factors).for_each(|(rate, factor)| *rate *= factor);
    }

    /// As fast as the fullest resource or path allows if each path carries its share.
    fn divided(&self, capacities: &[f64], shares: PathShares) -> Vec<f64> {
        let parts: Vec<f64> = shares.iter().map(|percent| f64::from(percent) / 100.0).collect();
        let own = self.caps.iter().zip(&parts).map(|(cap, part)| cap / part);
        let mut loads: BTreeMap<u32, f64> = BTreeMap::new();
        for (uses, part) in self.uses.iter().zip(&parts) {
            uses.iter().for_each(|u| *loads.entry(u.resource).or_default() += u.weight * part);
        }
        let filled = loads
            .into_iter()
            .filter_map(|(resource, load)| Some(capacities.get(resource as usize)? / load));
        let total = own.chain(filled).fold(f64::INFINITY, f64::min);
        parts.into_iter().map(|part| part * total).collect()
    }
}

/// The rates of paths that share a copy: by their speed, or as `shares` divide it.
pub(crate) fn share(
    capacities: &[f64],
    paths: &[&CandidatePath],
    (chunk, bytes): (Bytes, Bytes),
    shares: Option<PathShares>,
) -> PathRates {
    let sizes = (chunk.as_f64(), bytes.as_f64());
    let pieced = PiecedPaths::new(capacities, paths, sizes, shares.is_some());
    let mut rates = match shares {
        Some(shares) => pieced.divided(capacities, shares),
        None => pieced.queued(capacities),
    };
    let full = pieced.full(capacities, &rates);
    pieced.idle_while_starting(capacities, paths, &mut rates);
    let least = least_piece(paths, &rates, sizes);
    let late = pieced.late(capacities, paths, (&rates, least), &full);
    let flowing = fill_time(&rates, &late, bytes.as_f64())
        + end_time(capacities, paths, &rates, (sizes, least));
    let first = first_pieces(capacities, paths, (&rates, &full), sizes);
    let time = first.into_iter().fold(flowing, f64::max);
    PathRates { total: rates.iter().sum(), rates, time, caps: pieced.caps, uses: pieced.uses }
}

/// The rates whose sum is highest, with pieces of this size.
pub(crate) fn best_rates(
    capacities: &[f64],
    paths: &[&CandidatePath],
    (chunk, bytes): (Bytes, Bytes),
) -> Option<Vec<f64>> {
    let sizes = (chunk.as_f64(), bytes.as_f64());
    let pieced = PiecedPaths::new(capacities, paths, sizes, true);
    maximize(capacities, &pieced.uses, &pieced.caps, |weight| weight)
}

/// Bytes of the least piece: the calls for a smaller one take longer than its bytes.
fn least_piece(paths: &[&CandidatePath], rates: &[f64], (chunk, bytes): (f64, f64)) -> f64 {
    let calls = |path: &CandidatePath| path.legs.iter().map(|leg| leg.calls).sum::<f64>();
    let called: f64 = paths.iter().zip(rates).map(|(path, rate)| calls(path) * rate).sum();
    // Members of a copy to all do not ask for the time of calls.
    let called = if paths.iter().all(|path| path.via.is_some()) { 0.0 } else { called };
    called.max(LEAST_PIECE).min(chunk).min(bytes).max(1.0)
}

/// When the first two pieces of each path with a relay have arrived, ns. All paths take pieces of the same size before
/// anything is known of their speed, and a copy does not end before the slowest has delivered them.
fn first_pieces(
    capacities: &[f64],
    paths: &[&CandidatePath],
    (rates, full): (&[f64], &[u32]),
    (chunk, bytes): (f64, f64),
) -> Vec<f64> {
    let fair = bytes / (PIECES_OF_REST * paths.len() as f64);
    let (first, second) = (fair.min(chunk / 2.0), fair.min(chunk));
    let is_to_all = paths.iter().all(|path| path.via.is_some());
    let time = |(path, &rate): (&&CandidatePath, &f64)| match &path.legs[..] {
        [fill, drain] if !is_to_all => {
            let starts = fill.start + drain.start;
            let pace = PathPace { rate, seen: 0.0, full, is_to_all };
            let speed = |leg| if pace.slows(leg) { rate } else { leg.alone(capacities) };
            starts + (first + second) / speed(fill) + second / speed(drain)
        }
        _ => 0.0,
    };
    paths.iter().zip(rates).map(time).collect()
}

/// Time by which small pieces at the end make a copy longer, ns. A piece is half of a path's part of what is left,
/// so that all paths end together; the calls for small ones may take longer than the bytes of the pieces that are
/// still in flight.
fn end_time(
    capacities: &[f64],
    paths: &[&CandidatePath],
    rates: &[f64],
    ((chunk, bytes), least): ((f64, f64), f64),
) -> f64 {
    let total: f64 = rates.iter().sum();
    let pieces = PIECES_OF_REST * paths.len() as f64;
    let calls = |path: &CandidatePath| path.legs.iter().map(|leg| leg.calls).sum::<f64>();
    let calls: f64 = paths.iter().zip(rates).map(|(path, rate)| calls(path) * rate / total).sum();
    let rest = (pieces * chunk).min(bytes);
    let (mut left, mut called) = (rest, 0.0);
    while left > 0.0 {
        left -= (left / pieces).clamp(least, chunk.max(least));
        called += calls;
    }
    // Paths end within one least piece of each other, half of it on average.
    let through = |path: &&CandidatePath| {
        path.legs.iter().take(path.hops).map(|leg| leg.time(capacities, least)).sum::<f64>()
    };
    (called - rest / total).max(0.0) + paths.iter().map(through).fold(0.0, f64::max) / 2.0
}

/// The time by which paths that deliver `rates` after `late` have delivered `bytes`, ns.
fn fill_time(rates: &[f64], late: &[f64], bytes: f64) -> f64 {
    let mut order: Vec<(f64, f64)> = late.iter().copied().zip(rates.iter().copied()).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut rate, mut offset, mut time) = (0.0, 0.0, f64::INFINITY);
    for (late, of_path) in order {
        // Paths that begin later have no part in a copy that is over by then.
        if late >= time {
            break;
        }
        rate += of_path;
        offset += of_path * late;
        time = (bytes + offset) / rate;
    }
    time
}

impl PathRates {
    /// What one byte of the whole copy takes of each resource while all paths carry.
    pub(crate) fn uses(&self, paths: &[&CandidatePath]) -> Vec<ResourceUse> {
        let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
        for (path, rate) in paths.iter().zip(&self.rates) {
            let share = rate / self.total;
            let uses = path.legs.iter().flat_map(|leg| &leg.uses);
            uses.for_each(|u| *sums.entry(u.resource).or_default() += u.weight * share);
        }
        sums.into_iter().map(|(resource, weight)| ResourceUse { resource, weight }).collect()
    }

    /// Name of what holds most of the paths: the fullest resource, or the limit of the path that has least.
    pub(crate) fn narrowest(
        &self,
        capacities: &[f64],
        paths: &[&CandidatePath],
        name: impl Fn(u32) -> Option<String>,
    ) -> String {
        let mut loads: BTreeMap<u32, f64> = BTreeMap::new();
        for (uses, rate) in self.uses.iter().zip(&self.rates) {
            uses.iter().for_each(|u| *loads.entry(u.resource).or_default() += u.weight * rate);
        }
        let filled = loads.into_iter().filter_map(|(resource, load)| {
            Some((resource, load / capacities.get(resource as usize)?))
        });
        let fullest = filled.max_by(|a, b| a.1.total_cmp(&b.1));
        let full = fullest.filter(|&(_, filled)| filled >= FULL);
        if let Some((resource, _)) = full {
            return name(resource).unwrap_or_else(|| ISSUER.into());
        }
        let least = paths.iter().zip(&self.caps).min_by(|a, b| a.1.total_cmp(b.1));
        let legs = least.into_iter().flat_map(|(path, _)| &path.legs);
        let leg = legs.min_by(|a, b| a.cap.total_cmp(&b.cap));
        leg.map_or_else(|| "nothing that is known".into(), |leg| leg.limit.clone())
    }
}

/// The highest sum of rates that any split reaches, without starts; none if nothing limits it.
pub(crate) fn bound(capacities: &[f64], paths: &[&CandidatePath]) -> Option<f64> {
    let least =
        |path: &&CandidatePath| path.legs.iter().map(|leg| leg.cap).fold(f64::INFINITY, f64::min);
    let caps: Vec<f64> = paths.iter().map(least).collect();
    let rates =
        maximize(capacities, &uses_without_starts(capacities, paths), &caps, |weight| weight)?;
    Some(rates.iter().sum())
}

/// The same if all that resources carry were payload: theoretical peaks.
pub(crate) fn peak(capacities: &[f64], paths: &[&CandidatePath]) -> Option<f64> {
    let payload = |weight: f64| if weight > 1.0 { weight.floor() } else { weight };
    let caps = vec![f64::INFINITY; paths.len()];
    let rates = maximize(capacities, &uses_without_starts(capacities, paths), &caps, payload)?;
    Some(rates.iter().sum())
}

fn uses_without_starts(capacities: &[f64], paths: &[&CandidatePath]) -> Vec<Vec<ResourceUse>> {
    paths.iter().map(|path| path.uses(capacities, f64::INFINITY)).collect()
}

fn maximize(
    capacities: &[f64],
    uses: &[Vec<ResourceUse>],
    caps: &[f64],
    weigh: impl Fn(f64) -> f64,
) -> Option<Vec<f64>> {
    let mut rows: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (nth, uses) in uses.iter().enumerate() {
        for used in uses {
            let row = rows.entry(used.resource).or_insert_with(|| vec![0.0; caps.len()]);
            if let Some(cell) = row.get_mut(nth) {
                *cell += weigh(used.weight);
            }
        }
    }
    let shared = rows.into_iter().filter_map(|(resource, coefficients)| {
        let limit = *capacities.get(resource as usize)?;
        Some(LinearLimit { coefficients, limit })
    });
    let own = caps.iter().enumerate().filter(|(_, cap)| cap.is_finite()).map(|(nth, &limit)| {
        let mut coefficients = vec![0.0; nth + 1];
        if let Some(cell) = coefficients.last_mut() {
            *cell = 1.0;
        }
        LinearLimit { coefficients, limit }
    });
    let limits: Vec<LinearLimit> = shared.chain(own).collect();
    maximize_sum(caps.len(), &limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(cap: f64, start: f64, is_chained: bool) -> LegCost {
        let uses = vec![ResourceUse { resource: 0, weight: 1.0 }];
        LegCost { uses, queue: None, cap, limit: String::new(), start, is_chained, calls: 0.0 }
    }

    #[test]
    fn pulls_are_a_closed_network() {
        // From one source without starts the link is always busy.
        let rate = |start, sources| leg(10.0, start, false).pulled(&[100.0], 100.0, (sources, 0.0));
        assert!((rate(0.0, 1.0) - 10.0).abs() < 1e-9);
        // n pulls over m alike sources without delay: each source is busy n / (n + m - 1) of the time.
        assert!((rate(0.0, 2.0) - 10.0 * 4.0 / 5.0).abs() < 1e-9);
        assert!((rate(0.0, 4.0) - 10.0 * 4.0 / 7.0).abs() < 1e-9);
        // Starts cost a single source little: the pulls of 1, 2, 3, 4 take 20, 25, 32 and 40.6 ns a turn. Queues: 0.5,
        // 2 x 15 / 25 = 1.2, 3 x 22 / 32 = 2.0625; 4 / 40.625 x 100.
        assert!((rate(10.0, 1.0) - 400.0 / 40.625).abs() < 1e-9);
    }

    #[test]
    fn starts_leave_a_shared_resource_idle() {
        // Two paths of 10 GB/s with starts of 2.5 us for pieces of 100 kB: 100 / 12.5 = 8 GB/s each alone, 7.5 of the 15 that
        // both share. Each moves 1 - 2.5 x 7.5 / 100 = 0.8125 of the time: 0.8125^2 x 15 + 2 x 0.8125 x 0.1875 x 10 = 12.949.
        let path = |is_chained| CandidatePath {
            via: Some(1),
            legs: vec![leg(10.0, 2500.0, is_chained)],
            hops: 1,
        };
        let rates = |is_chained: bool| {
            let (one, capacities) = (path(is_chained), [15.0, 1.0]);
            let paths = [&one, &one];
            let pieced = PiecedPaths::new(&capacities, &paths, (1e5, 1e9), false);
            let mut rates = pieced.queued(&capacities);
            assert!(rates.iter().all(|rate| (rate - 7.5).abs() < 1e-9), "{rates:?}");
            pieced.idle_while_starting(&capacities, &paths, &mut rates);
            rates
        };
        assert!(rates(true).iter().all(|rate| (rate - 12.949_218_75 / 2.0).abs() < 1e-9));
        // Without an order of pieces the start of one overlaps the bytes of another.
        assert!(rates(false).iter().all(|rate| (rate - 7.5).abs() < 1e-9));
    }
}
