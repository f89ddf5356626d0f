//! Each capacity and each path of a twin compared with its peers: those of parts that the topology describes
//! in the same terms, and of paths also by the same operation.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::routes::RouteTable;
use pathline_schema::{LinkEnd, Topology, Unit};

use crate::candidates::{self, GroupCandidate};
use crate::data::{CalibrationData, MeasuredPath, PathEnds, median, quantile};
use crate::fit::uncertainty::most_passed;
use crate::fit::{FittedGroup, FittedNode};

/// Peers of one node differ by less than this share, measured in one run.
const NORMAL_SPREAD: f64 = 0.05;
/// An unlike part is farther from the median of its peers than this many times the distance that holds
/// three quarters of them.
const TIMES_SPREAD: f64 = 4.0;
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
    /// Its rate and interval, GB/s.
    rate: (f64, f64, f64),
    /// Index of the capacity or the path.
    at: usize,
    /// Median of its peers, their number, and whether it is a lower bound.
    peers: Option<(f64, usize, bool)>,
    slow: bool,
}

/// Compares a fitted node with itself.
pub(crate) fn compare_peers(data: &CalibrationData, fitted: &FittedNode) -> PeerComparison {
    let classes = PartClasses::new(&data.topology);
    let mut capacities = compare_capacities(data, fitted, &classes);
    let mut paths = compare_paths(data, &classes);
    let slow: Vec<(usize, f64)> =
        capacities.iter().filter(|c| c.slow).map(|c| (c.at, c.rate.0)).collect();
    // A slow resource explains the paths that it limits.
    let explained = |path: &ComparedPart| {
        slow.iter().any(|&(group, gbs)| {
            fitted.model.shared.get(group).is_some_and(|shared| {
                shared
                    .takes
                    .get(path.at)
                    .is_some_and(|&t| t > 0.0 && gbs / t <= path.rate.0 * EXPLAINED)
            })
        })
    };
    let slowed: BTreeSet<usize> = paths.iter().filter(|p| explained(p)).map(|p| p.at).collect();
    paths.iter_mut().for_each(|path| path.slow &= !slowed.contains(&path.at));
    name_common_gpus(data, &mut paths);
    let shares = capacities.iter().map(|c| c.peers.map(|(peers, ..)| c.rate.0 / peers)).collect();
    let count = |of: &[ComparedPart]| of.iter().filter(|c| c.peers.is_some()).count();
    let counts = (count(&capacities), count(&paths));
    let without = capacities.len() + paths.len() - counts.0 - counts.1;
    let mut widest = 0.0f64;
    let normal = capacities.iter().chain(paths.iter().filter(|p| !slowed.contains(&p.at)));
    for part in normal.filter(|part| !part.slow) {
        if let Some((peers, _, false)) = part.peers {
            widest = widest.max((part.rate.0 / peers - 1.0).abs());
        }
    }
    capacities.append(&mut paths);
    let unlike = gather(capacities);
    PeerComparison { unlike, capacities: counts.0, paths: counts.1, without, widest, shares }
}

/// Slow paths between GPUs that have a GPU in common are of that GPU's part: an engine that serves one copy
/// at a time hides the port behind it from sets.
fn name_common_gpus(data: &CalibrationData, paths: &mut [ComparedPart]) {
    let ends = |path: &ComparedPart| match data.paths.get(path.at).map(|p| p.ends) {
        Some(PathEnds::Peer { src, dst }) => Some([src, dst]),
        _ => None,
    };
    let mut count: BTreeMap<u32, usize> = BTreeMap::new();
    for gpu in paths.iter().filter(|p| p.slow).filter_map(ends).flatten() {
        *count.entry(gpu).or_default() += 1;
    }
    for path in paths.iter_mut().filter(|p| p.slow) {
        let of = |gpu: &u32| count.get(gpu).copied().unwrap_or_default();
        let common = ends(path).and_then(|ends| ends.into_iter().max_by_key(|gpu| of(gpu)));
        if let Some(gpu) = common.filter(|gpu| of(gpu) > 1) {
            path.part = format!("gpu{gpu}: traffic with GPUs");
        }
    }
}

/// Slow capacities and paths by part, the lowest share first.
fn gather(compared: Vec<ComparedPart>) -> Vec<UnlikePart> {
    let mut parts: BTreeMap<String, Vec<ComparedPart>> = BTreeMap::new();
    for part in compared.into_iter().filter(|c| c.slow) {
        parts.entry(part.part.clone()).or_default().push(part);
    }
    let mut unlike = Vec::new();
    for (part, mut shown) in parts {
        let share = |c: &ComparedPart| c.peers.map_or(1.0, |(peers, ..)| c.rate.0 / peers);
        shown.sort_by(|a, b| share(a).total_cmp(&share(b)));
        let Some((lowest, (peers_gbs, peers, at_least))) =
            shown.first().and_then(|c| Some((c.rate.0, c.peers?)))
        else {
            continue;
        };
        let shown_by = shown.into_iter().map(|c| c.name).collect();
        unlike.push(UnlikePart { part, shown_by, gbs: lowest, peers_gbs, peers, at_least });
    }
    unlike.sort_by(|a, b| a.share().total_cmp(&b.share()));
    unlike
}

fn compare_capacities(
    data: &CalibrationData,
    fitted: &FittedNode,
    classes: &PartClasses<'_>,
) -> Vec<ComparedPart> {
    let mut of_class: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut compared = Vec::new();
    for (at, (group, shared)) in fitted.groups.iter().zip(&fitted.model.shared).enumerate() {
        let class = classes.of_group(data, &group.name, group.link, shared.members());
        of_class.entry(class).or_default().push(at);
        compared.push(ComparedPart {
            name: group.name.clone(),
            part: part_of(group),
            rate: (shared.capacity, group.low, group.high),
            at,
            peers: None,
            slow: false,
        });
    }
    let never_full = never_full(data, fitted, classes, &of_class);
    for (class, members) in &of_class {
        let bounds = never_full.get(class).map_or(&[][..], Vec::as_slice);
        judge_class(&mut compared, members, bounds);
    }
    compared
}

/// The least rate of parts without a capacity in the twin, by class of parts with one.
fn never_full(
    data: &CalibrationData,
    fitted: &FittedNode,
    classes: &PartClasses<'_>,
    of_class: &BTreeMap<String, Vec<usize>>,
) -> BTreeMap<String, Vec<f64>> {
    let has_capacity = |c: &GroupCandidate| {
        fitted.groups.iter().any(|g| g.name == c.name || (c.link.is_some() && g.link == c.link))
    };
    let mut bounds: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for candidate in candidates::all(data) {
        let members = candidate.members.iter().copied();
        let class = classes.of_group(data, &candidate.name, candidate.link, members);
        // Of equal routes only one choice is true.
        let is_sure = candidate.maybe.is_empty() && candidate.members.len() > 1;
        if is_sure
            && of_class.contains_key(&class)
            && !has_capacity(&candidate)
            && seen.insert(candidate.name.clone())
        {
            bounds.entry(class).or_default().push(most_passed(data, &candidate));
        }
    }
    bounds
}

fn compare_paths(data: &CalibrationData, classes: &PartClasses<'_>) -> Vec<ComparedPart> {
    let mut of_class: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut compared = Vec::new();
    for (at, path) in data.paths.iter().enumerate().filter(|(_, path)| path.alone()) {
        of_class.entry(classes.of_path(path)).or_default().push(compared.len());
        let name = path.key.to_string();
        let part = name.clone();
        let rate = (path.gbs, path.low, path.high);
        compared.push(ComparedPart { name, part, rate, at, peers: None, slow: false });
    }
    for members in of_class.values() {
        judge_class(&mut compared, members, &[]);
    }
    compared
}

/// Compares each member of a class with the others; where there are none, with what parts of the class
/// carried at least. If a third of a class is slow and no single part explains it, then the class is wrong,
/// and nothing in it is slow.
fn judge_class(all: &mut [ComparedPart], members: &[usize], bounds: &[f64]) {
    for &at in members {
        let others: Vec<&ComparedPart> =
            members.iter().filter(|&&m| m != at).filter_map(|&m| all.get(m)).collect();
        let rates: Vec<f64> = others.iter().map(|o| o.rate.0).collect();
        let (peers, n, at_least) = match rates.len() {
            0 if bounds.is_empty() => continue,
            0 => (median(bounds), bounds.len(), true),
            n => (median(&rates), n, false),
        };
        let away: Vec<f64> = rates.iter().map(|r| (r / peers - 1.0).abs()).collect();
        let normal = NORMAL_SPREAD.max(TIMES_SPREAD * quantile(&away, 0.75));
        let low = match at_least {
            true => peers,
            false => median(&others.iter().map(|o| o.rate.1).collect::<Vec<_>>()),
        };
        if let Some(part) = all.get_mut(at) {
            part.peers = Some((peers, n, at_least));
            part.slow = part.rate.0 < peers * (1.0 - normal) && part.rate.2 < low;
        }
    }
    let slow: Vec<usize> =
        members.iter().copied().filter(|&m| all.get(m).is_some_and(|c| c.slow)).collect();
    let parts: BTreeSet<&str> =
        slow.iter().filter_map(|&m| all.get(m)).map(|c| c.part.as_str()).collect();
    if parts.len() > 1 && slow.len() * 3 >= members.len() {
        for m in slow {
            if let Some(part) = all.get_mut(m) {
                part.slow = false;
            }
        }
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

/// Descriptions of parts of a node without their numbers: like parts have equal ones.
struct PartClasses<'t> {
    topology: &'t Topology,
    routes: RouteTable,
}

impl<'t> PartClasses<'t> {
    fn new(topology: &'t Topology) -> Self {
        Self { topology, routes: RouteTable::of(topology) }
    }

    /// The class of a group of paths: its name without numbers, what the topology states of the one or two
    /// units that it names, and the classes of its paths.
    fn of_group(
        &self,
        data: &CalibrationData,
        name: &str,
        link: Option<(LinkEnd, LinkEnd, bool)>,
        members: impl Iterator<Item = usize>,
    ) -> String {
        let (template, units) = template(name);
        if let Some((a, b, _)) = link {
            return format!("{template} {}", self.link(a, b));
        }
        // Three units and more that slow each other are no part of the topology: where their routes cross
        // differs from one set of them to the next, as do the links that they share.
        if units.len() > 2 {
            return name.to_owned();
        }
        let mut units: Vec<String> = units.iter().map(|unit| self.unit(unit)).collect();
        units.sort_unstable();
        let mut paths: Vec<String> =
            members.filter_map(|at| data.paths.get(at)).map(|path| self.of_path(path)).collect();
        paths.sort_unstable();
        format!("{template} {} {}", units.join(" "), paths.join(" "))
    }

    fn of_path(&self, path: &MeasuredPath) -> String {
        let (src, dst) = (LinkEnd::from(path.key.src.unit), LinkEnd::from(path.key.dst.unit));
        let used = self.routes.in_use(src, dst);
        let route = used.map_or_else(String::new, |used| {
            let hops = used.paths.first().map_or(0, |p| p.nodes.len());
            let bundles = used.paths.first().map_or_else(Vec::new, |p| {
                let steps = p.nodes.iter().zip(p.nodes.iter().skip(1));
                let mut bundles: Vec<String> = steps.map(|(&a, &b)| self.link(a, b)).collect();
                bundles.sort_unstable();
                bundles
            });
            format!("{hops} {} {} {}", used.paths.len(), used.through_host, bundles.join(" "))
        });
        let kind = match path.ends {
            PathEnds::In { numa, gpu } => format!("in {}", self.is_home(gpu, numa)),
            PathEnds::Out { gpu, numa } => format!("out {}", self.is_home(gpu, numa)),
            PathEnds::Peer { src, .. } => format!("peer {}", path.key.by.at().gpu() == Some(src)),
            PathEnds::Within => "within".to_owned(),
        };
        // The text names memories, operation, passes and shape: kernels that do other things are no peers.
        format!("{kind} {} {route}", template(&path.key.to_string()).0)
    }

    fn is_home(&self, gpu: u32, numa: u32) -> bool {
        self.topology.gpus.iter().any(|g| g.index == gpu && g.numa == Some(numa))
    }

    /// Kind, width, peak and ends of the links between two units.
    fn link(&self, a: LinkEnd, b: LinkEnd) -> String {
        let joins = |l: &&pathline_schema::Link| (l.a, l.b) == (a, b) || (l.b, l.a) == (a, b);
        let links = self.topology.links.iter().filter(joins);
        let mut texts: Vec<String> = links
            .map(|l| format!("{} x{} {:?}", l.kind, l.width, l.peak.map(|p| p.0.round())))
            .collect();
        texts.sort_unstable();
        let package = |end: LinkEnd| match end {
            LinkEnd::Gpu(gpu) => self.topology.gpus.iter().find(|g| g.index == gpu)?.package,
            _ => None,
        };
        let together = package(a).is_some() && package(a) == package(b);
        let mut ends = [template(&a.to_string()).0, template(&b.to_string()).0];
        ends.sort_unstable();
        format!("[{} {together} {}]", texts.join(" "), ends.join(" "))
    }

    /// What the topology states of a GPU or a NUMA domain.
    fn unit(&self, name: &str) -> String {
        match name.parse::<Unit>() {
            Ok(Unit::Gpu(gpu)) => {
                let model =
                    self.topology.gpus.iter().find(|g| g.index == gpu).map(|g| g.name.clone());
                let at = LinkEnd::Gpu(gpu);
                let links = self.topology.links.iter().filter(|l| l.a == at || l.b == at);
                let mut links: Vec<String> =
                    links.map(|l| format!("{} x{}", l.kind, l.width)).collect();
                links.sort_unstable();
                format!("({} {})", model.unwrap_or_default(), links.join(" "))
            }
            Ok(Unit::Numa(numa)) => {
                let gpus = self.topology.gpus.iter().filter(|g| g.numa == Some(numa)).count();
                let peak = self.topology.numa.iter().find(|n| n.id == numa).and_then(|n| n.peak);
                format!("({gpus} {:?})", peak.map(|p| p.0.round()))
            }
            _ => String::new(),
        }
    }
}

/// A name with `#` for the number of each unit, and the units: `gpu#: host traffic`, `gpu4`.
fn template(name: &str) -> (String, Vec<String>) {
    let (mut text, mut units) = (String::new(), Vec::new());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let unit = ["gpu", "numa", "switch"].iter().find_map(|kind| {
            let number = rest.strip_prefix(kind)?;
            let digits =
                number.len() - number.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            (digits > 0).then_some((*kind, kind.len() + digits))
        });
        if let Some((kind, length)) = unit {
            let (unit, after) = rest.split_at(length);
            units.push(unit.to_owned());
            text += kind;
            text.push('#');
            rest = after;
        } else {
            text.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    (text, units)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, gbs: f64) -> ComparedPart {
        let (name, part) = (name.to_owned(), name.to_owned());
        ComparedPart {
            name,
            part,
            rate: (gbs, gbs * 0.99, gbs * 1.01),
            at: 0,
            peers: None,
            slow: false,
        }
    }

    fn judged(rates: &[f64], bounds: &[f64]) -> Vec<bool> {
        let mut all: Vec<ComparedPart> =
            rates.iter().enumerate().map(|(i, r)| part(&format!("link {i}"), *r)).collect();
        let members: Vec<usize> = (0..all.len()).collect();
        judge_class(&mut all, &members, bounds);
        all.into_iter().map(|c| c.slow).collect()
    }

    /// 26.4 is 70 % of 37.6. 36.5 is 97 %, within the 5 % by which peers differ. Of peers that are 4 % apart
    /// 88 % is within 4 x 4 %.
    #[test]
    fn a_part_is_slow_if_it_is_farther_from_its_likes_than_they_are_from_each_other() {
        assert_eq!(judged(&[37.6, 37.5, 26.4, 37.7], &[]), [false, false, true, false]);
        assert_eq!(judged(&[37.6, 37.5, 36.5, 37.7], &[]), [false; 4]);
        assert_eq!(judged(&[96.0, 100.0, 104.0, 88.0], &[]), [false; 4]);
    }

    /// Two of four are two kinds of link rather than two faults; one of two is slower than its only peer.
    #[test]
    fn half_of_a_class_is_another_class() {
        assert_eq!(judged(&[100.0, 100.0, 70.0, 70.0], &[]), [false; 4]);
        assert_eq!(judged(&[100.0, 70.0], &[]), [false, true]);
    }

    /// A memory that is full at 33 GB/s, where those like it carried 47 and were never full, is slow; at 50
    /// nothing is known.
    #[test]
    fn parts_that_were_never_full_are_lower_bounds() {
        assert_eq!(judged(&[33.0], &[47.0, 47.5]), [true]);
        assert_eq!(judged(&[50.0], &[47.0, 47.5]), [false]);
        assert_eq!(judged(&[33.0], &[]), [false]);
    }

    #[test]
    fn names_lose_their_numbers() {
        let (text, units) = template("gpu0 gpu12: host traffic into the GPUs");
        assert_eq!(text, "gpu# gpu#: host traffic into the GPUs");
        assert_eq!(units, ["gpu0", "gpu12"]);
        assert_eq!(template("between domains numa0>numa1").0, "between domains numa#>numa#");
        assert_eq!(template("all 8 GPUs: all traffic").0, "all 8 GPUs: all traffic");
    }
}
