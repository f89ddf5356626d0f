//! Which part of a node fails: the one that all failed operations use and no completed operation does.

use std::collections::BTreeSet;

use pathline_flow::Network;
use pathline_schema::{Case, Flow, LinkEnd, LinkKind, Topology, Unit};

use crate::labels::gpus_in;
use crate::posterior::SURE;
use crate::slow_group::{part_remedy, reset_text};

/// What this program writes of an operation that does not end: the wait for a GPU, a worker process, a rank and a
/// probe of a health check.
const HANGS: [&str; 5] = [
    "no answer in ",
    " hung: the step ",
    "did not answer for ",
    "did not end in ",
    "hangs in the kernel",
];
/// Most parts that are named together.
const MOST_PARTS: usize = 3;

/// How a case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseFate<'a> {
    /// It moved its bytes.
    Completed,
    /// It failed by the node, with this error.
    Failed(&'a str),
    /// Something outside ended it: a signal, a launcher.
    Ended,
}

/// A part that cases may have in common. A pair without switches between has its direct link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SharedPart {
    Gpu(u32),
    /// The links of a GPU to switches that other GPUs are behind.
    Ports(u32),
    Pair(LinkEnd, LinkEnd),
}

/// Cases that tell apart the parts of one that hangs, by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeparatingCases {
    /// Other paths of one of its GPUs, with as few of the other parts as the GPU has.
    pub alone: Vec<usize>,
    /// Other paths of one of its GPUs with more of the parts, in the order to try them, then those of each hop alone
    /// and those over all of the parts.
    pub others: Vec<usize>,
}
/// Other paths of a GPU that tell it from the other parts.
const MOST_OF_ONE_GPU: usize = 4;
/// Paths over all parts of the one that hangs.
const MOST_OVER_ALL: usize = 3;

/// The parts that explain the failed cases of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedParts {
    /// Names of the parts, each with those of its GPUs: all of them fail, or any one of them. None where every case
    /// failed and no part is in all.
    pub parts: Vec<String>,
    /// Whether all of the parts fail, and not one of them.
    is_known: bool,
    shared: Vec<SharedPart>,
    /// GPUs of the parts.
    pub gpus: BTreeSet<u32>,
    /// GPUs that all failed cases use and that moved bytes afterwards.
    working: BTreeSet<u32>,
    /// Number of failed cases, and of all that use the parts.
    pub failed: usize,
    used: usize,
    /// Whether they did not end, and gave no error.
    pub hangs: bool,
    /// The error of the first, without advice.
    pub error: String,
}

impl FailedParts {
    /// From the cases of a run in the order in which they ended. A part of which a case ended after another one of it
    /// hung does not hang. `network` knows what copies pass; without it, peaks of the topology's links stand in.
    ///
    /// None if nothing failed, or no few parts explain it.
    pub fn new(
        cases: &[(&Case, CaseFate<'_>)],
        topology: &Topology,
        network: Option<&Network>,
    ) -> Option<Self> {
        let is_failed = |fate: &CaseFate| matches!(fate, CaseFate::Failed(_));
        if !cases.iter().any(|(_, fate)| *fate != CaseFate::Completed) {
            return None;
        }
        let derived = network.is_none().then(|| Network::from_topology(topology));
        let network = network.or(derived.as_ref())?;
        let is_port = |part: &SharedPart| matches!(part, SharedPart::Ports(_));
        let failed = cases.iter().filter(|(_, fate)| *fate != CaseFate::Completed);
        let routes = failed.flat_map(|(case, _)| routes_of(case, Some(network)));
        let hung: BTreeSet<(LinkEnd, LinkEnd)> = routes.flat_map(|route| hops(&route)).collect();
        let parts = cases.iter().map(|(case, fate)| match fate {
            CaseFate::Completed => parts_that_work(case, network, &hung),
            _ => parts_of(case, Some(network)),
        });
        let mut parts: Vec<_> = parts.collect();
        let which = |is_meant: &dyn Fn(&CaseFate) -> bool| -> Vec<usize> {
            let all = cases.iter().enumerate();
            all.filter(|(_, (_, fate))| is_meant(fate)).map(|(nth, _)| nth).collect()
        };
        let failed = which(&is_failed);
        let errors: Vec<&str> = failed.iter().filter_map(|&nth| error_of(cases, nth)).collect();
        let hangs = errors.iter().all(|error| HANGS.iter().any(|words| error.contains(words)));
        let completed = which(&|fate| *fate == CaseFate::Completed);
        let found = if failed.is_empty() {
            // Every case between a GPU and its peers has its ports, too.
            parts.iter_mut().for_each(|of_case| of_case.retain(|part| !is_port(part)));
            let ended = which(&|fate| *fate == CaseFate::Ended);
            let found = common_parts(&parts, &ended, &completed, &[])?;
            // Cases that others end at random have a part in common by chance.
            let known: BTreeSet<_> = parts.iter().flatten().collect();
            let is_chance = ln_choices(cases.len(), ended.len()) < (known.len() as f64 * SURE).ln();
            (found.1 && found.0.len() == 1 && !is_chance).then_some((found, ended))?
        } else {
            // A GPU whose stream is waited for may wait for another one itself.
            let found = match hangs {
                true => common_parts(&parts, &failed, &completed, &[]),
                // The first error says more than several parts.
                false => common_parts(&parts, &failed, &[], &errors)
                    .filter(|(parts, is_known)| *is_known && parts.len() == 1),
            };
            (found?, failed)
        };
        let ((shared, is_known), failed) = found;
        let first_failed = failed.first().copied().unwrap_or_default();
        let later = completed.iter().filter(|&&nth| nth > first_failed).copied();
        let uses = |nth: &usize| {
            cases.get(*nth).is_some_and(|(case, _)| {
                let parts = parts_of(case, Some(network));
                shared.iter().any(|part| parts.contains(part))
            })
        };
        let different = |which: &[usize]| -> usize {
            let texts = which.iter().filter_map(|&nth| cases.get(nth)).map(|row| row.0.to_string());
            texts.collect::<BTreeSet<String>>().len()
        };
        let in_all = failed.iter().filter_map(|&nth| parts.get(nth)).cloned();
        let in_all = in_all.reduce(|a, b| &a & &b).unwrap_or_default();
        let is_gpu = |part: &&SharedPart| matches!(part, SharedPart::Gpu(_));
        let working = in_all.iter().filter(is_gpu).filter(|part| !shared.contains(part));
        let working = working.flat_map(|part| part.gpus()).collect();
        let used: Vec<usize> = failed.iter().copied().chain(later.filter(uses)).collect();
        let names = shared.iter().map(|part| part.name(topology));
        let first = errors.first().map(|error| error.split([';', '\n']).next().unwrap_or_default());
        Some(Self {
            parts: names.collect(),
            is_known,
            gpus: shared.iter().flat_map(|part| part.gpus()).collect(),
            working,
            failed: different(&failed),
            used: different(&used),
            shared,
            hangs,
            error: first.unwrap_or("ended from outside").to_owned(),
        })
    }

    /// `gpu3 hangs: 12 of 12 cases that use it did not end; no other part is in all of them`. `noun` is of one: `case`.
    pub fn sentence(&self, noun: &str) -> String {
        let all = self.failed;
        let plural = if all == 1 { "" } else { "s" };
        match (self.parts.as_slice(), self.is_known) {
            ([one], _) if !self.hangs => {
                format!("{one} fails in {all} {noun}{plural}: {}", self.error)
            }
            ([], _) => {
                format!(
                    "the node hangs: none of {all} {noun}{plural} ended; which part is UNDECIDED"
                )
            }
            ([one], _) => {
                let used = self.used;
                let working: Vec<String> = self.working.iter().map(|n| format!("gpu{n}")).collect();
                let others = match working.as_slice() {
                    [] => "no other part is in all of them".to_owned(),
                    gpus => format!("other {noun}s of {} ended", joined(gpus, "and")),
                };
                format!("{one} hangs: {all} of {used} {noun}s that use it did not end; {others}")
            }
            (parts, true) => format!(
                "{} hang: {all} of {all} {noun}s that use one of them did not end; no part is in all of them",
                joined(parts, "and")
            ),
            (parts, false) => format!(
                "{} hangs: {all} {noun}{plural} did not end; which part is UNDECIDED",
                joined(parts, "or")
            ),
        }
    }

    /// Whether more cases would tell which part hangs.
    pub fn is_open(&self) -> bool {
        self.hangs && !self.is_known
    }

    /// Which of these cases would tell the part that hangs; none if it is known.
    pub fn separating(&self, cases: &[&Case], network: &Network) -> Option<SeparatingCases> {
        if !self.is_open() {
            return None;
        }
        let shared: BTreeSet<SharedPart> = self.shared.iter().copied().collect();
        let all: Vec<BTreeSet<SharedPart>> =
            cases.iter().map(|case| parts_of(case, Some(network))).collect();
        let used: Vec<BTreeSet<SharedPart>> = all.iter().map(|parts| parts & &shared).collect();
        let mut tried = SeparatingCases::default();
        for part in &shared {
            let SharedPart::Gpu(gpu) = *part else { continue };
            let is_of =
                |part: &SharedPart| [SharedPart::Gpu(gpu), SharedPart::Ports(gpu)].contains(part);
            let with = |parts: usize| -> Vec<usize> {
                let is_meant = |used: &BTreeSet<SharedPart>| {
                    used.len() == parts && used.contains(part) && used.iter().all(is_of)
                };
                let found: Vec<usize> =
                    (0..used.len()).filter(|&nth| is_meant(&used[nth])).collect();
                let step = (found.len() / MOST_OF_ONE_GPU).max(1);
                found.into_iter().step_by(step).take(MOST_OF_ONE_GPU).collect()
            };
            match (with(1), with(2)) {
                (alone, ported) if alone.is_empty() => tried.alone.extend(ported),
                (alone, ported) => {
                    tried.alone.extend(alone);
                    tried.others.extend(ported);
                }
            }
        }
        // Of several hops each alone.
        let is_pair = |part: &&SharedPart| matches!(part, SharedPart::Pair(..));
        let several = shared.iter().filter(is_pair).count() > 1;
        for pair in shared.iter().filter(is_pair).filter(|_| several) {
            let hop = pair.gpus().map(SharedPart::Gpu).chain([*pair]).collect::<BTreeSet<_>>();
            tried.others.extend((0..all.len()).filter(|&nth| all[nth] == hop));
        }
        // The shortest first: those that forward have further parts.
        let mut over_all: Vec<usize> = (0..used.len()).filter(|&nth| used[nth] == shared).collect();
        over_all.sort_by_key(|&nth| all[nth].len());
        tried.others.extend(over_all.into_iter().take(MOST_OVER_ALL));
        Some(tried)
    }

    /// What to do: `` `dmesg` for amdgpu messages of gpu3, reset it, then the vendor``.
    pub fn remedy(&self, topology: &Topology) -> String {
        let gpus: Vec<u32> = self.gpus.iter().copied().collect();
        let log = topology.gpus.first().map_or("driver", |gpu| gpu.caps().kernel_log);
        match self.parts.as_slice() {
            [] => format!("`dmesg` for {log} messages, reboot it, then the vendor"),
            [link, ..] if self.parts.iter().all(|part| part.contains('-')) => {
                format!("`dmesg` for {log} messages; {}", part_remedy(topology, link, &gpus))
            }
            _ => {
                let is_gpu = |part: &&SharedPart| matches!(part, SharedPart::Gpu(_));
                let named: BTreeSet<u32> =
                    self.shared.iter().filter(is_gpu).flat_map(|part| part.gpus()).collect();
                let each = named.iter().map(|gpu| gpu_address(topology, *gpu));
                let reset = reset_text(topology, &named.iter().copied().collect::<Vec<_>>());
                let names = each.collect::<Vec<_>>().join(", ");
                let link = self.shared.iter().find(|part| !is_gpu(part));
                let after = match link {
                    None => ", then the vendor".to_owned(),
                    Some(link) => {
                        let gpus: Vec<u32> = link.gpus().collect();
                        let remedy = part_remedy(topology, &link.name(topology), &gpus);
                        format!("; if it hangs again: {remedy}")
                    }
                };
                format!("`dmesg` for {log} messages of {names}, {reset}{after}")
            }
        }
    }
}

/// `gpu3 (0000:c1:00.0)`
fn gpu_address(topology: &Topology, gpu: u32) -> String {
    let found = topology.gpus.iter().find(|found| found.index == gpu);
    let pci = found.map(|found| found.pci.to_string()).filter(|pci| !pci.is_empty());
    format!("gpu{gpu}{}", pci.map_or(String::new(), |pci| format!(" ({pci})")))
}

/// `gpu2, gpu3 or xGMI gpu2-gpu3`
fn joined(parts: &[String], last: &str) -> String {
    match parts {
        [most @ .., end] if !most.is_empty() => format!("{} {last} {end}", most.join(", ")),
        _ => parts.join(""),
    }
}

impl SharedPart {
    fn gpus(self) -> impl Iterator<Item = u32> {
        let gpu = |end| if let LinkEnd::Gpu(gpu) = end { Some(gpu) } else { None };
        let ends = match self {
            Self::Gpu(gpu) | Self::Ports(gpu) => [Some(gpu), None],
            Self::Pair(a, b) => [gpu(a), gpu(b)],
        };
        ends.into_iter().flatten()
    }

    fn name(self, topology: &Topology) -> String {
        match self {
            Self::Gpu(gpu) => format!("gpu{gpu}"),
            Self::Ports(gpu) => {
                // Copies between GPUs pass a bridge of PCIe only where they have no links of their own.
                let ports = topology.links.iter().filter(|link| is_port(link, gpu));
                let port = ports.max_by_key(|link| link.kind != LinkKind::Pcie);
                let kind = port.map_or("ports", |link| link.kind.name());
                format!("{kind} gpu{gpu}-switches")
            }
            Self::Pair(a, b) => {
                let joins = |l: &&pathline_schema::Link| (l.a.min(l.b), l.a.max(l.b)) == (a, b);
                let link = topology.links.iter().find(joins).map_or("path", |l| l.kind.name());
                format!("{link} {a}-{b}")
            }
        }
    }
}

/// Whether a link joins a GPU to a switch.
fn is_port(link: &pathline_schema::Link, gpu: u32) -> bool {
    let ends = [link.a, link.b];
    ends.contains(&LinkEnd::Gpu(gpu)) && ends.iter().any(is_switch)
}

fn error_of<'a>(cases: &[(&Case, CaseFate<'a>)], nth: usize) -> Option<&'a str> {
    match cases.get(nth)?.1 {
        CaseFate::Failed(error) => Some(error),
        _ => None,
    }
}

/// The places that the bytes of a case pass, flow by flow; without a network, its ends.
fn routes_of(case: &Case, network: Option<&Network>) -> Vec<Vec<LinkEnd>> {
    let route = |flow: &Flow| {
        let network = network.filter(|_| flow.by.wire().is_none());
        let known = network.and_then(|network| network.operation(flow).ok());
        known.map_or_else(|| vec![flow.src.unit.into(), flow.dst.unit.into()], |found| found.route)
    };
    case.flows().map(route).collect()
}

/// From where to where bytes go on a route, past switches.
fn hops(route: &[LinkEnd]) -> Vec<(LinkEnd, LinkEnd)> {
    let ends: Vec<LinkEnd> = route.iter().copied().filter(|end| !is_switch(end)).collect();
    let hops =
        ends.windows(2).filter_map(|hop| if let [a, b] = hop { Some((*a, *b)) } else { None });
    hops.filter(|(a, b)| a != b).collect()
}

fn is_switch(end: &LinkEnd) -> bool {
    matches!(end, LinkEnd::Switch(_))
}

/// GPUs, ports and pairs that the flows of a case use or pass; without a network, its ends.
fn parts_of(case: &Case, network: Option<&Network>) -> BTreeSet<SharedPart> {
    let units = case.flows().flat_map(|flow| [flow.src.unit, flow.dst.unit, flow.by.at()]);
    let mut parts: BTreeSet<SharedPart> =
        units.filter_map(Unit::gpu).map(SharedPart::Gpu).collect();
    for route in routes_of(case, network) {
        let gpu = |end: &LinkEnd| if let LinkEnd::Gpu(gpu) = end { Some(*gpu) } else { None };
        parts.extend(route.iter().filter_map(gpu).map(SharedPart::Gpu));
        parts.extend(hops(&route).into_iter().map(|(a, b)| SharedPart::Pair(a.min(b), a.max(b))));
        // Switches on the way to the host are bridges of PCIe.
        if route.iter().all(|end| is_switch(end) || gpu(end).is_some()) {
            let ports = route.windows(2).filter(|hop| hop.iter().any(is_switch));
            parts.extend(ports.flatten().filter_map(gpu).map(SharedPart::Ports));
        }
    }
    parts
}

/// Parts that a case which ended clears of a hang: its ends, and the link between them if bytes that went the same way
/// hung. A route that is not known for sure clears no further part; between switches there is one.
fn parts_that_work(
    case: &Case,
    network: &Network,
    hung: &BTreeSet<(LinkEnd, LinkEnd)>,
) -> BTreeSet<SharedPart> {
    let here: Vec<_> = routes_of(case, None).iter().flat_map(|route| hops(route)).collect();
    let is_here = |a: LinkEnd, b: LinkEnd| here.contains(&(a, b)) && hung.contains(&(a, b));
    let ports = parts_of(case, Some(network)).into_iter();
    let ports = ports.filter(|part| matches!(part, SharedPart::Ports(_)));
    let ends = parts_of(case, None).into_iter().filter(|part| match *part {
        SharedPart::Pair(a, b) => is_here(a, b) || is_here(b, a),
        _ => true,
    });
    ports.chain(ends).collect()
}

/// The parts that explain the failed cases, and whether all of them fail: the GPU that every failed case uses, else the
/// pair, else up to three GPUs or pairs of which every failed case uses one. If several parts are in all failed cases,
/// `errors` decide; without errors, parts of a later case of `working` are excluded, and a GPU cannot be distinguished
/// from a link that all failed cases use.
fn common_parts(
    parts: &[BTreeSet<SharedPart>],
    failed: &[usize],
    working: &[usize],
    errors: &[&str],
) -> Option<(Vec<SharedPart>, bool)> {
    let of = |nth: &usize| parts.get(*nth);
    let works = |part: &SharedPart| {
        let first = failed.iter().find(|nth| of(nth).is_some_and(|all| all.contains(part)));
        let later = working.iter().filter(|nth| first.is_some_and(|first| *nth > first));
        later.clone().any(|nth| of(nth).is_some_and(|all| all.contains(part)))
    };
    let working_parts: BTreeSet<SharedPart> =
        failed.iter().filter_map(of).flatten().copied().filter(works).collect();
    let blamed: Vec<BTreeSet<SharedPart>> =
        failed.iter().filter_map(of).map(|all| all - &working_parts).collect();
    let common = blamed.iter().cloned().reduce(|a, b| &a & &b)?;
    let (gpus, pairs): (Vec<SharedPart>, Vec<SharedPart>) =
        common.into_iter().partition(|part| matches!(part, SharedPart::Gpu(_)));
    // What follows a semicolon is advice or output.
    let named = errors.iter().map(|error| gpus_in(error.split(';').next().unwrap_or_default()));
    let named = named.reduce(|a, b| &a & &b).unwrap_or_default();
    let is_named = |part: &&SharedPart| part.gpus().all(|gpu| named.contains(&gpu));
    match (gpus.as_slice(), pairs.as_slice()) {
        ([one], []) | ([], [one]) => return Some((vec![*one], true)),
        ([one], _) if !errors.is_empty() => return Some((vec![*one], true)),
        ([], []) => {}
        _ => {
            let named: Vec<_> = gpus.iter().filter(is_named).copied().collect();
            let is_known = named.len() == 1;
            return Some((if is_known { named } else { [gpus, pairs].concat() }, is_known));
        }
    }
    let mut found = Vec::new();
    let mut left: Vec<&BTreeSet<SharedPart>> = blamed.iter().collect();
    while !left.is_empty() && found.len() < MOST_PARTS && !working.is_empty() {
        let all: BTreeSet<SharedPart> = left.iter().copied().flatten().copied().collect();
        let count = |part: &SharedPart| left.iter().filter(|parts| parts.contains(part)).count();
        // The first of equal ones: GPUs come before pairs.
        let best = all.iter().rev().max_by_key(|part| count(part)).copied();
        let Some(best) = best.filter(|part| count(part) > 1) else { break };
        found.push(best);
        left.retain(|parts| !parts.contains(&best));
    }
    let has_ended = |first: &usize| working.iter().any(|nth| nth > first);
    match left.is_empty() && !found.is_empty() {
        true => Some((found, true)),
        // Not a single case ended after the first that hung.
        false => (failed.len() > 1 && errors.is_empty() && !failed.first().is_some_and(has_ended))
            .then_some((Vec::new(), true)),
    }
}

/// Logarithm of the number of ways to choose some of all.
fn ln_choices(all: usize, some: usize) -> f64 {
    (0..some).map(|nth| ((all - nth) as f64 / (nth + 1) as f64).ln()).sum()
}

#[cfg(test)]
mod tests;
