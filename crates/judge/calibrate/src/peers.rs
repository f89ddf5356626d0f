//! Each capacity and each path of a twin compared with its peers.

use std::collections::{BTreeMap, BTreeSet};

use pathline_diagnose::{CaseComparison, NodePeers, TimedCase, compare_with_peers, unit_shape};
use pathline_schema::{Bytes, Case, Flow, LinkEnd, Unit};
use pathline_stats::MedianInterval;

use crate::candidates::{self, GroupCandidate};
use crate::data::{CalibrationData, MeasuredPath, median};
use crate::fit::uncertainty::most_passed;
use crate::fit::{FittedGroup, FittedNode};

/// Capacities of peers of one node differ by less than this share, measured in one run.
const NORMAL_SPREAD: f64 = 0.05;
/// A path is explained by a slow resource whose capacity is within this share of the path's rate.
const EXPLAINED: f64 = 1.05;

/// A part that carries less than its peers.
#[derive(Debug, Clone, PartialEq)]
pub struct UnlikePart {
    /// The part: `link gpu4-gpu6`, `memory of numa1`.
    pub part: String,
    /// Capacities and paths that show it, the lowest share first.
    pub shown_by: Vec<String>,
    /// What it carries, GB/s.
    pub gbs: f64,
    /// Median of what its peers carry, GB/s.
    pub peers_gbs: f64,
    /// Number of its peers.
    pub peers: usize,
    /// Whether the peers were never full, so that they carry more than was measured.
    pub at_least: bool,
}

impl UnlikePart {
    /// What it carries as a share of what its peers carry, 0 to 1.
    pub fn share(&self) -> f64 {
        self.gbs / self.peers_gbs
    }

    /// Whether enough peers agree to say that this part is slow; two parts alone show only that they differ.
    pub fn is_decided(&self) -> bool {
        self.peers > 1 || self.at_least
    }
}

/// All capacities and paths of a twin compared with their peers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PeerComparison {
    /// Parts that carry less than their peers, the lowest share first.
    pub unlike: Vec<UnlikePart>,
    /// Number of capacities that have peers.
    pub capacities: usize,
    /// Number of paths that have peers.
    pub paths: usize,
    /// Number of capacities and paths that have none.
    pub without: usize,
    /// Largest relative distance from the median of the peers, unlike parts and what they slow left out.
    pub widest: f64,
    /// Share of each capacity of the twin in the median of its peers, in the order of the groups; `None`
    /// without peers.
    pub shares: Vec<Option<f64>>,
}

/// A capacity or a path among its peers.
#[derive(Debug, Clone, PartialEq)]
struct ComparedPart {
    name: String,
    part: String,
    gbs: f64,
    /// Median of its peers in GB/s, their number, and whether it is a lower bound.
    peers: Option<(f64, usize, bool)>,
    slow: bool,
    /// Whether a slow part of another name is why it is slow.
    explained: bool,
}

/// Compares a fitted node with itself. `error` is the share by which one of 20 sets is off: capacities are inferred
/// from sets, and known no better.
pub(crate) fn compare_peers(
    data: &CalibrationData,
    fitted: &FittedNode,
    error: f64,
) -> PeerComparison {
    let (mut paths, of_part) = compare_paths(data);
    let mut capacities = compare_capacities(data, fitted, NORMAL_SPREAD.max(error));
    for (capacity, shared) in capacities.iter_mut().zip(&fitted.model.shared) {
        // What paths alone show of one part is known better than what they share.
        capacity.explained = capacity.slow && shared.members().any(|at| of_part.contains(&at));
        let slow = capacity.slow && !capacity.explained;
        for (at, path) in paths.iter_mut().filter(|(at, _)| slow && !of_part.contains(at)) {
            let takes = shared.takes.get(*at).copied().unwrap_or(0.0);
            path.explained |= takes > 0.0 && shared.capacity / takes <= path.gbs * EXPLAINED;
        }
    }
    let share = |part: &ComparedPart| part.peers.map(|(peers, ..)| part.gbs / peers);
    let shares = capacities.iter().map(share).collect();
    let counts = (capacities.iter().filter(|c| c.peers.is_some()).count(), paths.len());
    let alone = data.paths.iter().filter(|path| path.alone()).count();
    let without = capacities.len() + alone - counts.0 - counts.1;
    capacities.extend(paths.into_values());
    let mut widest = 0.0f64;
    for part in capacities.iter().filter(|part| !part.slow && !part.explained) {
        if let Some((peers, _, false)) = part.peers {
            widest = widest.max((part.gbs / peers - 1.0).abs());
        }
    }
    capacities.retain(|part| part.slow && !part.explained);
    let unlike = gather(capacities);
    PeerComparison { unlike, capacities: counts.0, paths: counts.1, without, widest, shares }
}

/// Slow capacities and paths by part, the lowest share first.
fn gather(slow: Vec<ComparedPart>) -> Vec<UnlikePart> {
    let mut parts: BTreeMap<String, Vec<ComparedPart>> = BTreeMap::new();
    for part in slow {
        parts.entry(part.part.clone()).or_default().push(part);
    }
    let mut unlike = Vec::new();
    for (part, mut shown) in parts {
        let share = |c: &ComparedPart| c.peers.map_or(1.0, |(peers, ..)| c.gbs / peers);
        shown.sort_by(|a, b| share(a).total_cmp(&share(b)));
        let first = shown.first().and_then(|c| Some((c.gbs, c.peers?)));
        let Some((gbs, (peers_gbs, peers, at_least))) = first else { continue };
        let shown_by = shown.into_iter().map(|c| c.name).collect();
        unlike.push(UnlikePart { part, shown_by, gbs, peers_gbs, peers, at_least });
    }
    unlike.sort_by(|a, b| a.share().total_cmp(&b.share()));
    unlike
}

/// Times of a byte at a rate and its interval, GB/s.
fn time_of_rate(gbs: f64, low: f64, high: f64) -> MedianInterval {
    MedianInterval { median: 1.0 / gbs, low: 1.0 / high, high: 1.0 / low }
}

/// The paths that were measured alone and have peers, and those of them that one slow part explains.
fn compare_paths(data: &CalibrationData) -> (BTreeMap<usize, ComparedPart>, BTreeSet<usize>) {
    let (alone, timed): (Vec<usize>, Vec<TimedCase>) = data
        .paths
        .iter()
        .enumerate()
        .filter_map(|(at, path)| Some((at, timed_path(path)?)))
        .unzip();
    let found = CaseComparison::new(&data.topology, None, &timed);
    let culprit = found.part();
    let (mut paths, mut of_part) = (BTreeMap::new(), BTreeSet::new());
    for (nth, case) in found.cases.iter().enumerate() {
        let Some((&at, path)) = alone.get(case.nth).and_then(|at| Some((at, data.paths.get(*at)?)))
        else {
            continue;
        };
        let name = path.key.to_string();
        let part = culprit.filter(|culprit| case.slow && culprit.paths.contains(&nth));
        of_part.extend(part.map(|_| at));
        let part = part.map_or(name.clone(), |part| part.element.clone());
        let peers = Some((path.gbs / case.ratio, case.peers, false));
        let slow = case.slow;
        paths.insert(at, ComparedPart { name, part, gbs: path.gbs, peers, slow, explained: false });
    }
    (paths, of_part)
}

fn timed_path(path: &MeasuredPath) -> Option<TimedCase> {
    let bytes = Bytes(*path.sizes.iter().max()?);
    let flow = Flow { src: path.key.src, dst: path.key.dst, by: path.key.by, bytes };
    let time = time_of_rate(path.gbs, path.low, path.high);
    Some(TimedCase { case: Case::together(vec![flow]), time, visits: Vec::new() })
}

fn compare_capacities(
    data: &CalibrationData,
    fitted: &FittedNode,
    normal: f64,
) -> Vec<ComparedPart> {
    let mut compared: Vec<ComparedPart> = fitted
        .groups
        .iter()
        .zip(&fitted.model.shared)
        .map(|(group, shared)| ComparedPart {
            name: group.name.clone(),
            part: part_of(group),
            gbs: shared.capacity,
            peers: None,
            slow: false,
            explained: false,
        })
        .collect();
    let has_capacity = |c: &GroupCandidate| {
        fitted.groups.iter().any(|g| g.name == c.name || (c.link.is_some() && g.link == c.link))
    };
    // Parts without a capacity in the twin were never full. Of equal routes only one choice is true.
    let mut seen = BTreeSet::new();
    let mut bounds = candidates::all(data);
    bounds.retain(|c| {
        let is_sure = c.maybe.is_empty() && c.members.len() > 1;
        is_sure && !has_capacity(c) && seen.insert(c.name.clone())
    });
    let node = NodePeers::new(&data.topology);
    let paths = node.classes(data.paths.iter().map(|path| unit_shape(&path.key.to_string())));
    let key = |name: &str, link, members: &mut dyn Iterator<Item = usize>| {
        let mut members: Vec<_> = members.filter_map(|at| paths.get(at)).collect();
        members.sort_unstable();
        peer_key(&node, name, link, &members)
    };
    let groups = fitted.groups.iter().zip(&fitted.model.shared);
    let groups = groups.map(|(group, shared)| key(&group.name, group.link, &mut shared.members()));
    let others =
        bounds.iter().map(|bound| key(&bound.name, bound.link, &mut bound.members.iter().copied()));
    let classes = node.classes(groups.chain(others));
    let (own, others) = classes.split_at(fitted.groups.len());
    for class in own.iter().copied().collect::<BTreeSet<usize>>() {
        let of = |list: &[usize]| -> Vec<usize> {
            list.iter().enumerate().filter(|(_, c)| **c == class).map(|(at, _)| at).collect()
        };
        let bounds = of(others).into_iter().filter_map(|at| bounds.get(at));
        let mut bounds: Vec<f64> = bounds.map(|bound| most_passed(data, &bound.members)).collect();
        let members: Vec<(usize, MedianInterval)> = of(own)
            .into_iter()
            .filter_map(|at| Some((at, fitted.groups.get(at)?, compared.get(at)?)))
            .map(|(at, group, part)| (at, time_of_rate(part.gbs, group.low, group.high)))
            .collect();
        // A capacity that sets exceed is that of some movers alone: what peers carried says nothing about it.
        let is_exceeded = |(at, time): &(usize, MedianInterval)| {
            let shared = fitted.model.shared.get(*at);
            let paths = shared.map_or_else(Vec::new, |shared| shared.members().collect());
            most_passed(data, &paths) * time.low > 1.0
        };
        if members.iter().any(is_exceeded) {
            bounds.clear();
        }
        judge_class(&mut compared, &members, &bounds, normal);
    }
    compared
}

/// The text and units by which capacities are peers: they name symmetric units and have peers as paths, by class.
/// Three units and more that slow each other are no part of the
/// topology: where their routes cross differs from one set of them to the next.
fn peer_key(
    node: &NodePeers,
    name: &str,
    link: Option<(LinkEnd, LinkEnd, bool)>,
    paths: &[&usize],
) -> (String, Vec<Unit>) {
    if let Some((a, b, both)) = link {
        return (format!("link {both} {}", node.link_text(a, b)), Vec::new());
    }
    let (shape, units) = unit_shape(name);
    if units.len() > 2 {
        (name.to_owned(), Vec::new())
    } else {
        (format!("{shape} {paths:?}"), units)
    }
}

/// Compares each member of a class with the others; where there are none, with what parts of the class carried at
/// least. If a third of a class is slow and no single part explains it, then the class is wrong, and nothing in it
/// is slow.
fn judge_class(
    all: &mut [ComparedPart],
    members: &[(usize, MedianInterval)],
    bounds: &[f64],
    normal: f64,
) {
    let at_least = members.len() == 1 && !bounds.is_empty();
    let mut times: Vec<MedianInterval> = members.iter().map(|(_, time)| *time).collect();
    if at_least {
        let rate = median(bounds);
        times.push(time_of_rate(rate, rate, f64::INFINITY));
    }
    let n = if at_least { bounds.len() } else { members.len() - 1 };
    for ((at, _), found) in members.iter().zip(compare_with_peers(&times, normal)) {
        let Some(part) = all.get_mut(*at) else { continue };
        part.peers = Some((part.gbs / found.ratio, n, at_least));
        part.slow = found.slow;
    }
    let slow = |all: &[ComparedPart]| -> Vec<String> {
        let parts = members.iter().filter_map(|(at, _)| all.get(*at));
        parts.filter(|part| part.slow).map(|part| part.part.clone()).collect()
    };
    let found = slow(all);
    let parts: BTreeSet<&String> = found.iter().collect();
    if parts.len() > 1 && found.len() * 3 >= members.len() {
        members
            .iter()
            .for_each(|(at, _)| all.get_mut(*at).into_iter().for_each(|p| p.slow = false));
    }
}

/// The part that a group of paths shares, without a direction: `link gpu4-gpu6`.
fn part_of(group: &FittedGroup) -> String {
    if let Some((a, b, _)) = group.link {
        return format!("link {}-{}", a.min(b), a.max(b));
    }
    let ends = [
        ", both directions",
        ", read by GPUs",
        ", written by GPUs",
        " into the GPUs",
        " out of the GPUs",
        " into the GPU",
        " out of the GPU",
    ];
    let name = group.name.as_str();
    let cut = ends.iter().find_map(|end| name.strip_suffix(end));
    cut.unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, gbs: f64) -> ComparedPart {
        let (name, part) = (name.to_owned(), name.to_owned());
        ComparedPart { name, part, gbs, peers: None, slow: false, explained: false }
    }

    fn judged(rates: &[f64], bounds: &[f64]) -> Vec<bool> {
        let mut all: Vec<ComparedPart> =
            rates.iter().enumerate().map(|(i, r)| part(&format!("link {i}"), *r)).collect();
        let members = rates.iter().map(|gbs| time_of_rate(*gbs, gbs * 0.99, gbs * 1.01));
        let members: Vec<_> = members.enumerate().collect();
        judge_class(&mut all, &members, bounds, NORMAL_SPREAD);
        all.into_iter().map(|c| c.slow).collect()
    }

    /// 26.4 is 70 % of 37.6. 36.5 is 97 %, within the 5 % by which peers differ. Of peers of
    /// which the fastest are 2.9 % apart 90 is 11 % slower, which is within 4 x 2.9 %.
    #[test]
    fn a_part_is_slow_if_it_is_farther_from_its_peers_than_they_are_from_each_other() {
        assert_eq!(judged(&[37.6, 37.5, 26.4, 37.7], &[]), [false, false, true, false]);
        assert_eq!(judged(&[37.6, 37.5, 36.5, 37.7], &[]), [false; 4]);
        assert_eq!(judged(&[96.0, 100.0, 104.0, 90.0], &[]), [false; 4]);
    }

    /// Two of four are two kinds of link rather than two faults; one of two is slower than its only peer.
    #[test]
    fn half_of_a_class_is_another_class() {
        assert_eq!(judged(&[100.0, 100.0, 70.0, 70.0], &[]), [false; 4]);
        assert_eq!(judged(&[100.0, 70.0], &[]), [false, true]);
    }

    /// A memory that is full at 33 GB/s, where its peers carried 47 and were never full, is slow; at 50
    /// nothing is known.
    #[test]
    fn parts_that_were_never_full_are_lower_bounds() {
        assert_eq!(judged(&[33.0], &[47.0, 47.5]), [true]);
        assert_eq!(judged(&[50.0], &[47.0, 47.5]), [false]);
        assert_eq!(judged(&[33.0], &[]), [false]);
    }
}
