//! Times of the nodes of one kind, and what of a node is slow among them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem::{Discriminant, discriminant};

use pathline_schema::{Case, Flow, NodeVerdict};
use pathline_stats::{ascending, interpolated, t_quantile};

use super::places::{FleetPlace, places_of};
use super::{FleetNode, FleetSettings, MIN_NODES, NodeKind, SlowPlace};
use crate::RunDigest;

/// Share of a place's paths that must be slow for the place to be named.
pub(crate) const MIN_SLOW: f64 = 0.8;
/// Places of a node that are named at most.
const MAX_PLACES: usize = 3;
/// What is assumed of the standard deviation between sound nodes, of the logarithm of a time, before any was seen: 0.5 %,
/// five times that between runs of one node (0.1 %, four H200s), with the weight of six degrees of freedom. Of 7 nodes
/// one that lost 5 % is seen so, of 1,000 it is their own spread that counts.
const USUAL_SPREAD: f64 = 5e-3;
const USUAL_FREEDOM: f64 = 6.0;
/// Factor on the largest deviation to the fast side among places of a kind, beyond which a deviation to the slow side
/// counts: tails that no normal distribution has are about as long on both sides.
const TAIL_FACTOR: f64 = 1.5;
/// Share of the loss that is asked for from which a deviation counts: noise to the fast side must not hide a node
/// that lost as much.
const LOSS_SHARE: f64 = 0.6;
/// A node that is faster than its kind by more than this is not believed, as a share of time.
const UNBELIEVABLE: f64 = 0.4;
/// The size whose time stands for a path that was measured at several.
const USUAL_BYTES: f64 = (64 << 20) as f64;
/// Least size at which a rate is compared over sizes.
const LEAST_BYTES: u64 = 16 << 20;

/// A node's results, in the order of time.
pub(super) struct NodeResults<'d> {
    pub(super) host: &'d str,
    pub(super) results: Vec<&'d RunDigest>,
}

impl<'d> NodeResults<'d> {
    fn latest(&self) -> Option<&'d RunDigest> {
        self.results.last().copied()
    }
}

/// Times of all nodes of a kind.
pub(super) struct KindTimes<'d, 'n> {
    nodes: &'n [NodeResults<'d>],
    /// Number of paths.
    paths: usize,
    /// Path and size in bytes of each case.
    texts: HashMap<&'d str, (usize, f64)>,
    /// Places with their paths.
    places: Vec<(FleetPlace, Vec<usize>)>,
    /// Of each node its software, by position in the order of fingerprints; of few nodes none.
    groups: Vec<Option<&'d str>>,
    /// Middle of each path, ns/B as a logarithm, by software; `None` for all nodes.
    middles: HashMap<Option<&'d str>, Vec<f64>>,
    /// Of each place its spread over nodes and the largest deviation to the fast side.
    spreads: Vec<PlaceSpread>,
    /// Deviations of the latest result of each node by path; NaN where it has none.
    deviations: Vec<Vec<f64>>,
}

/// Degrees of freedom of a spread by quantiles: they tell what half as many values do by their squares.
fn freedom_of(nodes: usize) -> f64 {
    0.5 * (nodes as f64 - 1.0).max(0.0)
}

impl FleetSettings {
    /// The least deviation that counts, as a logarithm of time, however little nodes differ.
    pub(crate) fn least_loss(&self) -> f64 {
        -LOSS_SHARE * (1.0 - self.loss).ln()
    }
}

/// How a place differs between sound nodes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PlaceSpread {
    deviation: f64,
    /// The largest deviation to the fast side among places of the kind, in standard deviations.
    fastest: f64,
    nodes: usize,
}

impl PlaceSpread {
    pub(crate) fn of(values: Vec<f64>) -> Self {
        let sorted = ascending(values);
        let at = |share: f64| interpolated(&sorted, share).unwrap_or_default();
        // The middle two thirds are sound even if a tenth of the nodes is not.
        let seen = (at(0.5) - at(0.1587)).max(at(0.8413) - at(0.5));
        let freedom = freedom_of(sorted.len());
        let squares = USUAL_FREEDOM * USUAL_SPREAD.powi(2) + freedom * seen.powi(2);
        let deviation = (squares / (USUAL_FREEDOM + freedom)).sqrt();
        let fastest = (at(0.5) - at(0.0)) / deviation;
        Self { deviation, fastest, nodes: sorted.len() }
    }

    /// The least deviation that counts, where `tests` places are judged.
    pub(crate) fn threshold(&self, tests: usize, settings: FleetSettings) -> f64 {
        let freedom = USUAL_FREEDOM + freedom_of(self.nodes);
        let factor = t_quantile(settings.alpha / tests.max(1) as f64, freedom);
        (factor.max(TAIL_FACTOR * self.fastest) * self.deviation).max(settings.least_loss())
    }
}

/// Whether a node is faster than any of its parts could be.
fn is_unbelievable(deviations: &[f64]) -> bool {
    middle(deviations.iter().copied()) < -UNBELIEVABLE
}

/// The middle of numbers; NaN of none.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    interpolated(&ascending(values.filter(|v| v.is_finite())), 0.5).unwrap_or(f64::NAN)
}

/// A path without its size, the size, and its flow; a small copy keeps its size.
fn sized_path(text: &str) -> Option<(String, f64, Flow)> {
    let case: Case = text.parse().ok()?;
    let [flow] = case.timed.as_slice() else { return None };
    let name = text.rsplit_once(" x ").filter(|_| flow.bytes.0 >= LEAST_BYTES);
    let name = name.map_or(text, |(path, _)| path).to_owned();
    (flow.bytes.0 > 0).then_some((name, flow.bytes.as_f64(), *flow))
}

impl<'d, 'n> KindTimes<'d, 'n> {
    pub(super) fn new(nodes: &'n [NodeResults<'d>]) -> Self {
        let latest = || nodes.iter().filter_map(NodeResults::latest);
        let all = nodes.iter().flat_map(|node| node.results.iter().flat_map(|d| d.cases.keys()));
        let texts: HashSet<&str> = all.map(String::as_str).collect();
        let sized: HashMap<&'d str, (String, f64, Flow)> =
            texts.into_iter().filter_map(|text| Some((text, sized_path(text)?))).collect();
        let mut known: BTreeMap<&str, (usize, Flow)> = BTreeMap::new();
        for digest in latest() {
            let paths = digest.cases.keys().filter_map(|text| sized.get(text.as_str()));
            let paths: BTreeMap<&str, Flow> =
                paths.map(|(name, _, f)| (name.as_str(), *f)).collect();
            paths
                .into_iter()
                .for_each(|(name, flow)| known.entry(name).or_insert((0, flow)).0 += 1);
        }
        known.retain(|_, (count, _)| 2 * *count >= nodes.len());
        let flows: Vec<Flow> = known.values().map(|(_, flow)| *flow).collect();
        let numbers: BTreeMap<&str, usize> = known.into_keys().zip(0..).collect();
        let number = |(text, (name, bytes, _)): (&'d str, &(String, f64, Flow))| {
            Some((text, (*numbers.get(name.as_str())?, *bytes)))
        };
        let texts = sized.iter().filter_map(|(text, sized)| number((text, sized))).collect();
        let mut software: BTreeMap<&str, usize> = BTreeMap::new();
        latest().for_each(|digest| *software.entry(&digest.software).or_default() += 1);
        let group = |digest: &'d RunDigest| {
            let enough = software.get(digest.software.as_str()).is_some_and(|n| *n >= MIN_NODES);
            enough.then_some(digest.software.as_str())
        };
        let mut kind = Self {
            nodes,
            paths: flows.len(),
            texts,
            places: Vec::new(),
            groups: latest().map(group).collect(),
            middles: HashMap::new(),
            spreads: Vec::new(),
            deviations: Vec::new(),
        };
        let times: Vec<Vec<f64>> = latest().map(|digest| kind.times(digest)).collect();
        for group in kind.groups.iter().copied().chain([None]).collect::<BTreeSet<_>>() {
            let of_group = |node: usize| group.is_none() || kind.groups.get(node) == Some(&group);
            let middle_of = |path: usize| {
                let nodes = times.iter().enumerate().filter(|(node, _)| of_group(*node));
                middle(nodes.filter_map(|(_, times)| times.get(path).copied()))
            };
            let middles = (0..kind.paths).map(middle_of).collect();
            kind.middles.insert(group, middles);
        }
        let middles = kind.middles.get(&None).cloned().unwrap_or_default();
        kind.places = places_of(&flows, &middles);
        let nodes = times.iter().zip(&kind.groups);
        kind.deviations = nodes.map(|(times, group)| kind.deviation(times, *group)).collect();
        // One node that lies on the fast side must not hide the others.
        let believed = kind.deviations.iter().filter(|node| !is_unbelievable(node));
        let believed: Vec<&Vec<f64>> = believed.collect();
        let spread = |(_, paths): &(FleetPlace, Vec<usize>)| {
            let of_place = believed.iter().map(|node| place_deviation(node, paths));
            PlaceSpread::of(of_place.filter(|d| d.is_finite()).collect())
        };
        kind.spreads = kind.places.iter().map(spread).collect();
        kind.share_tails();
        kind
    }

    /// Places of a kind have one tail: of 1,000 nodes with 56 pairs, that of 56,000 values.
    fn share_tails(&mut self) {
        let mut longest: HashMap<Discriminant<FleetPlace>, f64> = HashMap::new();
        for ((place, _), spread) in self.places.iter().zip(&self.spreads) {
            let fastest = longest.entry(discriminant(place)).or_default();
            *fastest = fastest.max(spread.fastest);
        }
        for ((place, _), spread) in self.places.iter().zip(&mut self.spreads) {
            spread.fastest = longest.get(&discriminant(place)).copied().unwrap_or_default();
        }
    }

    /// Logarithm of ns/B of each path of a result; NaN where it has none.
    fn times(&self, digest: &RunDigest) -> Vec<f64> {
        let mut times = vec![(f64::INFINITY, f64::NAN); self.paths];
        for (text, case) in &digest.cases {
            let Some((path, bytes)) = self.texts.get(text.as_str()) else { continue };
            let distance = (bytes / USUAL_BYTES).ln().abs();
            match times.get_mut(*path) {
                Some(time) if distance < time.0 => *time = (distance, (case.1 / bytes).ln()),
                _ => (),
            }
        }
        times.into_iter().map(|(_, time)| time).collect()
    }

    fn deviation(&self, times: &[f64], group: Option<&str>) -> Vec<f64> {
        let middles = self.middles.get(&group).map_or(&[][..], Vec::as_slice);
        times.iter().zip(middles).map(|(time, middle)| time - middle).collect()
    }

    pub(super) fn judge(&self, kind: usize, settings: FleetSettings) -> Vec<FleetNode> {
        let nodes = self.nodes.iter().zip(&self.deviations).zip(&self.groups);
        let judged = nodes.filter_map(|((node, deviations), group)| {
            let latest = node.latest()?;
            let why = self.why_not(deviations);
            let slow = match why {
                Some(_) => Vec::new(),
                None => self.slow_places(node, deviations, *group, settings),
            };
            let persists = slow.iter().any(|slow| self.persists(node, slow, settings));
            let corrupt = latest.ends.map_or(0, |ends| ends.corrupt);
            let why = match corrupt {
                0 => why,
                n => Some(format!("wrong bytes arrived in {n} cases")),
            };
            let verdict = match (&why, slow.is_empty(), persists) {
                _ if corrupt > 0 => NodeVerdict::Fail,
                (Some(_), ..) => NodeVerdict::Undecided,
                (None, true, _) => NodeVerdict::Ok,
                (None, false, true) => NodeVerdict::Fail,
                (None, false, false) => NodeVerdict::Suspect,
            };
            let (host, started) = (node.host.to_owned(), latest.started.clone());
            let slow = slow.into_iter().map(|found| found.slow).collect();
            let losses = self.whole_places().map(|((_, paths), _)| {
                let away = place_deviation(deviations, paths);
                away.is_finite().then(|| 1.0 - (-away).exp())
            });
            let losses = losses.collect();
            let (kind, results) = (Some(kind), node.results.len());
            Some(FleetNode { host, started, results, kind, verdict, slow, losses, why })
        });
        judged.collect()
    }

    /// Why a result is not compared.
    fn why_not(&self, deviations: &[f64]) -> Option<String> {
        let count = self.nodes.len();
        if count < MIN_NODES {
            let nodes = if count == 1 { "one node has" } else { "few nodes have" };
            return Some(format!("only {nodes} these parts ({count}); {MIN_NODES} are compared"));
        }
        let missing = deviations.iter().filter(|d| !d.is_finite()).count();
        if missing > 0 {
            let all = deviations.len();
            return Some(format!("{missing} of {all} paths of other nodes are missing"));
        }
        is_unbelievable(deviations).then(|| {
            let faster = (-middle(deviations.iter().copied())).exp();
            format!("its paths are {faster:.1} times as fast as on other nodes: not believed")
        })
    }

    /// The places of a node that are slow: the one with most paths first, until none is left.
    fn slow_places(
        &self,
        node: &NodeResults<'_>,
        deviations: &[f64],
        group: Option<&str>,
        settings: FleetSettings,
    ) -> Vec<FoundPlace> {
        let mut left: BTreeSet<usize> = (0..deviations.len()).collect();
        let mut found = Vec::new();
        while found.len() < MAX_PLACES {
            let slow = self.places.iter().zip(&self.spreads).enumerate();
            let slow = slow.filter_map(|(at, ((_, paths), spread))| {
                let open = paths.iter().filter(|path| left.contains(path)).count();
                let away = place_deviation(deviations, paths);
                let least = spread.threshold(self.places.len(), settings);
                let of_path = |path: &&usize| {
                    deviations.get(**path).is_some_and(|d| *d >= (0.5 * away).max(0.5 * least))
                };
                let share = paths.iter().filter(of_path).count() as f64 / paths.len() as f64;
                let is_slow = away >= least && share >= MIN_SLOW && 2 * open > paths.len();
                is_slow.then_some((at, open, away))
            });
            // The first of equal ones is the most specific.
            let most = slow.max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)));
            let Some((at, _, away)) = most else { break };
            let Some(((place, paths), spread)) = self.places.get(at).zip(self.spreads.get(at))
            else {
                break;
            };
            left.retain(|path| !paths.contains(path));
            let history = self.history(node, group, paths);
            let (since, changed) = began(node, &history, 0.5 * away);
            let slow = SlowPlace {
                place: place.name(),
                loss: 1.0 - (-away).exp(),
                paths: paths.len(),
                deviations: away / spread.deviation,
                since,
                changed,
            };
            found.push(FoundPlace { at, history, slow });
        }
        found
    }

    /// Deviation of a place in each result of a node.
    fn history(&self, node: &NodeResults<'_>, group: Option<&str>, paths: &[usize]) -> Vec<f64> {
        let of_result = |digest: &&RunDigest| {
            place_deviation(&self.deviation(&self.times(digest), group), paths)
        };
        node.results.iter().map(of_result).collect()
    }

    /// Whether the result before the latest shows it, too.
    fn persists(
        &self,
        node: &NodeResults<'_>,
        found: &FoundPlace,
        settings: FleetSettings,
    ) -> bool {
        let before = node.results.len().checked_sub(2).and_then(|at| found.history.get(at));
        let spread = self.spreads.get(found.at).copied().unwrap_or_default();
        before.is_some_and(|away| *away >= spread.threshold(1, settings))
    }

    /// Places of the whole node, each with its spread.
    fn whole_places(&self) -> impl Iterator<Item = (&(FleetPlace, Vec<usize>), &PlaceSpread)> {
        self.places.iter().zip(&self.spreads).filter(|((place, _), _)| place.is_whole())
    }

    pub(super) fn describe(&self, settings: FleetSettings) -> NodeKind {
        let latest: Vec<&RunDigest> = self.nodes.iter().filter_map(NodeResults::latest).collect();
        let common = latest.iter().map(|digest| digest.facts.iter().collect::<BTreeSet<_>>());
        let common = common.reduce(|a, b| &a & &b).unwrap_or_default();
        let visible = |((place, _), spread): (&(FleetPlace, Vec<usize>), &PlaceSpread)| {
            (place.name(), 1.0 - (-spread.threshold(self.places.len(), settings)).exp())
        };
        NodeKind {
            hardware: latest.first().map_or(String::new(), |digest| digest.hardware.clone()),
            facts: common
                .into_iter()
                // Variables that all have do not tell one kind from another.
                .filter(|(name, _)| !name.contains('_'))
                .map(|(name, value)| format!("{name}: {value}"))
                .collect(),
            nodes: self.nodes.len(),
            paths: self.paths,
            visible: if self.nodes.len() < MIN_NODES {
                Vec::new()
            } else {
                self.whole_places().map(visible).collect()
            },
            gaps: self.gaps(&latest, settings),
        }
    }

    /// Places of the whole node in which nodes with one software differ from all.
    fn gaps(&self, latest: &[&RunDigest], settings: FleetSettings) -> Vec<String> {
        let groups: BTreeSet<&str> = self.groups.iter().copied().flatten().collect();
        let Some(all) = self.middles.get(&None).filter(|_| groups.len() > 1) else {
            return Vec::new();
        };
        let mut gaps = Vec::new();
        for group in groups {
            let Some(own) = self.middles.get(&Some(group)) else { continue };
            let nodes: Vec<&&RunDigest> = latest.iter().filter(|d| d.software == group).collect();
            let away: Vec<f64> = own.iter().zip(all).map(|(own, all)| own - all).collect();
            for (place, paths) in self.places.iter().filter(|(place, _)| place.is_whole()) {
                let lost = 1.0 - (-place_deviation(&away, paths)).exp();
                if lost >= settings.loss {
                    let (count, place) = (nodes.len(), place.name());
                    let facts = nodes.first().map_or(String::new(), |d| d.facts_text());
                    gaps.push(format!(
                        "{place}: {:.1} % slower on {count} nodes with {facts}",
                        lost * 100.0
                    ));
                }
            }
        }
        gaps
    }
}

/// A place that was found, with the node's history of it.
struct FoundPlace {
    at: usize,
    history: Vec<f64>,
    slow: SlowPlace,
}

/// Middle deviation of the paths of a place; NaN if half of them are missing.
fn place_deviation(deviations: &[f64], paths: &[usize]) -> f64 {
    let known: Vec<f64> = paths.iter().filter_map(|path| deviations.get(*path).copied()).collect();
    let finite = known.iter().filter(|d| d.is_finite()).count();
    if 2 * finite < paths.len() { f64::NAN } else { middle(known.into_iter()) }
}

/// The first of the results from which on all deviate by this much, and what changed with it. None if all do.
fn began(node: &NodeResults<'_>, history: &[f64], least: f64) -> (Option<String>, Vec<String>) {
    let trailing = history.iter().rev().take_while(|away| **away >= least).count();
    let first = history.len() - trailing;
    let pair = first
        .checked_sub(1)
        .and_then(|before| node.results.get(before))
        .zip(node.results.get(first));
    pair.map_or((None, Vec::new()), |(before, at)| {
        (Some(at.started.clone()), at.changes_since(before))
    })
}
