//! What a work queue of chunks gives each path, and the most that any split could reach.

use std::collections::BTreeMap;

use pathline_schema::Bytes;

use super::paths::{CandidatePath, LegCost};
use crate::operation::ResourceUse;
use crate::simplex::{LinearLimit, maximize_sum};
use crate::solve::{MaxMinSolver, RateDemand};

/// The direct path takes half of its share of what remains, at most this much, so that it neither starts often nor
/// ends last.
const LARGEST_PIECE: f64 = (16 << 20) as f64;

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
}

impl LegCost {
    /// Rate alone, GB/s: its cap, or what its narrowest resource carries.
    fn alone(&self, capacities: &[f64]) -> f64 {
        RateDemand::new(&self.uses, self.cap).alone(capacities)
    }

    /// Time of one piece, ns.
    pub(crate) fn time(&self, capacities: &[f64], piece: f64) -> f64 {
        self.start + piece / self.alone(capacities)
    }
}

impl CandidatePath {
    /// Rate alone with pieces of this size: legs overlap, the start of a piece does not overlap with the piece
    /// before it on the same leg.
    fn alone(&self, capacities: &[f64], piece: f64) -> f64 {
        let rates = self.legs.iter().map(|leg| piece / leg.time(capacities, piece));
        rates.fold(f64::INFINITY, f64::min)
    }

    /// Time until it delivers at its rate, ns: the start, and of several hops all but the last.
    fn latency(&self, capacities: &[f64], piece: f64) -> f64 {
        let passed = self.legs.iter().take(self.hops.saturating_sub(1));
        let last = self.legs.last().map_or(0.0, |leg| leg.start);
        passed.map(|leg| leg.time(capacities, piece)).sum::<f64>() + last
    }

    /// What one byte over it takes of each resource. Queues are taken for the time of a byte, with its part of
    /// the start of a piece.
    fn uses(&self, piece: f64) -> Vec<ResourceUse> {
        let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
        for leg in &self.legs {
            leg.uses.iter().for_each(|u| *sums.entry(u.resource).or_default() += u.weight);
            if let Some(queue) = leg.queue {
                *sums.entry(queue).or_default() += leg.start / piece + 1.0 / leg.cap;
            }
        }
        sums.into_iter().map(|(resource, weight)| ResourceUse { resource, weight }).collect()
    }
}

/// Piece that a path takes at a time: a chunk; on the direct path half of its share of what remains, which is half
/// of its share of all on average.
fn piece(path: &CandidatePath, paths: usize, chunk: f64, bytes: f64) -> f64 {
    let most = if path.via.is_some() {
        chunk
    } else {
        (bytes / (4.0 * paths as f64)).clamp(chunk.min(LARGEST_PIECE), LARGEST_PIECE)
    };
    most.min(bytes).max(1.0)
}

/// The rates of paths that take pieces from one queue as they are free: max-min fair, as flows that run at once.
pub(crate) fn share(
    capacities: &[f64],
    paths: &[&CandidatePath],
    chunk: Bytes,
    bytes: Bytes,
) -> PathRates {
    let (chunk, bytes) = (chunk.as_f64(), bytes.as_f64());
    let pieces: Vec<f64> = paths.iter().map(|p| piece(p, paths.len(), chunk, bytes)).collect();
    let with_pieces = || paths.iter().zip(&pieces);
    let uses: Vec<Vec<ResourceUse>> = with_pieces().map(|(p, &piece)| p.uses(piece)).collect();
    let caps: Vec<f64> = with_pieces().map(|(p, &piece)| p.alone(capacities, piece)).collect();
    let demand = |(uses, &cap)| RateDemand::new(uses, cap);
    let demands: Vec<RateDemand<'_>> =
        uses.iter().map(Vec::as_slice).zip(&caps).map(demand).collect();
    let mut rates = Vec::new();
    MaxMinSolver::default().rates(capacities, &demands, &mut rates);
    let late: Vec<f64> = with_pieces().map(|(p, &piece)| p.latency(capacities, piece)).collect();
    let time = fill_time(&rates, &late, bytes);
    PathRates { total: rates.iter().sum(), rates, time, caps }
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
        for (path, rate) in paths.iter().zip(&self.rates) {
            for leg in &path.legs {
                leg.uses
                    .iter()
                    .for_each(|u| *loads.entry(u.resource).or_default() += u.weight * rate);
                if let Some(queue) = leg.queue {
                    *loads.entry(queue).or_default() += rate / leg.cap;
                }
            }
        }
        let filled = loads.into_iter().filter_map(|(resource, load)| {
            Some((resource, load / capacities.get(resource as usize)?))
        });
        let fullest = filled.max_by(|a, b| a.1.total_cmp(&b.1));
        let full = fullest.filter(|&(_, filled)| filled >= FULL);
        if let Some(name) = full.and_then(|(resource, _)| name(resource)) {
            return name;
        }
        let least = paths.iter().zip(&self.caps).min_by(|a, b| a.1.total_cmp(b.1));
        let legs = least.into_iter().flat_map(|(path, _)| &path.legs);
        let leg = legs.min_by(|a, b| a.cap.total_cmp(&b.cap));
        leg.map_or_else(|| "nothing that is known".into(), |leg| leg.limit.clone())
    }
}

/// The highest sum of rates that any split reaches, without starts; none if nothing limits it.
pub(crate) fn bound(capacities: &[f64], paths: &[&CandidatePath]) -> Option<f64> {
    let caps =
        |path: &CandidatePath| path.legs.iter().map(|leg| leg.cap).fold(f64::INFINITY, f64::min);
    solve(capacities, paths, caps, |weight| weight)
}

/// The same if all that resources carry were payload: theoretical peaks.
pub(crate) fn peak(capacities: &[f64], paths: &[&CandidatePath]) -> Option<f64> {
    let payload = |weight: f64| if weight > 1.0 { weight.floor() } else { weight };
    solve(capacities, paths, |_| f64::INFINITY, payload)
}

fn solve(
    capacities: &[f64],
    paths: &[&CandidatePath],
    cap: impl Fn(&CandidatePath) -> f64,
    weigh: impl Fn(f64) -> f64,
) -> Option<f64> {
    let mut rows: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (nth, path) in paths.iter().enumerate() {
        // An infinite piece: no starts.
        for used in path.uses(f64::INFINITY) {
            let row = rows.entry(used.resource).or_insert_with(|| vec![0.0; paths.len()]);
            if let Some(cell) = row.get_mut(nth) {
                *cell += weigh(used.weight);
            }
        }
    }
    let shared = rows.into_iter().filter_map(|(resource, coefficients)| {
        let limit = *capacities.get(resource as usize)?;
        Some(LinearLimit { coefficients, limit })
    });
    let own = paths.iter().enumerate().filter_map(|(nth, path)| {
        let limit = Some(cap(path)).filter(|cap| cap.is_finite())?;
        let mut coefficients = vec![0.0; nth + 1];
        if let Some(cell) = coefficients.last_mut() {
            *cell = 1.0;
        }
        Some(LinearLimit { coefficients, limit })
    });
    let limits: Vec<LinearLimit> = shared.chain(own).collect();
    maximize_sum(paths.len(), &limits).map(|rates| rates.iter().sum())
}
