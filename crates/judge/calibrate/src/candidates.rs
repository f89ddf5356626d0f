//! Candidates: groups of paths that might share a resource, before the fit accepts any.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::routes::RouteTable;
use pathline_schema::{LinkEnd, Topology};

use crate::data::{CalibrationData, PathEnds};

/// Source of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupOrigin {
    /// A component in the topology.
    Topology,
    /// Only the mutual slowdown of its flows.
    Interference,
}

impl GroupOrigin {
    /// Its keyword in the machine file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Topology => "topology",
            Self::Interference => "interference",
        }
    }
}

/// A group of paths that might share a resource.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GroupCandidate {
    /// Display name.
    pub name: String,
    /// Its source.
    pub found: GroupOrigin,
    /// Its paths, ascending.
    pub members: Vec<usize>,
    /// Paths that may belong to it: one of their equal routes passes it.
    pub maybe: Vec<usize>,
    /// Its link, if it is one, and whether it includes both directions.
    pub link: Option<(LinkEnd, LinkEnd, bool)>,
    /// Number of groups in its family: one of many needs more evidence.
    pub of: usize,
    /// Another component with exactly the same paths: no record can distinguish the two.
    pub also: Option<String>,
}

/// The flows of a group of GPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TrafficKind {
    Host,
    Peers,
    All,
}

/// Their direction, as seen from the GPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TrafficDirection {
    In,
    Out,
    Both,
}

const TRAFFIC: [TrafficKind; 3] = [TrafficKind::Host, TrafficKind::Peers, TrafficKind::All];
const DIRECTIONS: [TrafficDirection; 3] =
    [TrafficDirection::In, TrafficDirection::Out, TrafficDirection::Both];
/// Maximum number of GPUs for which all groups are tried; beyond it, only adjacent GPUs.
const ALL_GROUPS: usize = 8;
/// Maximum number of paths with several routes over one link for which all combinations are tried.
const MAX_OPEN_PATHS: usize = 6;

/// All groups worth a trial; each set of paths once, under its most informative name.
pub(crate) fn all(data: &CalibrationData) -> Vec<GroupCandidate> {
    let mut found = Vec::new();
    parts(data, &mut found);
    links(data, &mut found);
    domains(data, &mut found);
    hidden(data, &mut found);
    let mut seen = BTreeSet::new();
    found.retain(|c: &GroupCandidate| {
        c.members.len() + c.maybe.len() >= 2 && seen.insert((c.members.clone(), c.maybe.clone()))
    });
    found
}

fn members(data: &CalibrationData, belongs: impl Fn(&PathEnds) -> bool) -> Vec<usize> {
    let path = data.paths.iter().enumerate();
    path.filter(|(_, p)| belongs(&p.ends)).map(|(i, _)| i).collect()
}

/// Flows between a group of GPUs and the rest of the node.
fn crossing(
    data: &CalibrationData,
    group: &[u32],
    traffic: TrafficKind,
    direction: TrafficDirection,
) -> Vec<usize> {
    let inside = |gpu: &u32| group.contains(gpu);
    let (host, peers) = (traffic != TrafficKind::Peers, traffic != TrafficKind::Host);
    let (into, out) = (direction != TrafficDirection::Out, direction != TrafficDirection::In);
    members(data, |ends| match ends {
        PathEnds::In { gpu, .. } => host && into && inside(gpu),
        PathEnds::Out { gpu, .. } => host && out && inside(gpu),
        PathEnds::Peer { src, dst } => {
            peers && ((into && inside(dst) && !inside(src)) || (out && inside(src) && !inside(dst)))
        }
        PathEnds::Within => false,
    })
}

fn group_name(
    group: &[u32],
    all: bool,
    traffic: TrafficKind,
    direction: TrafficDirection,
) -> String {
    let who = match group {
        _ if all => format!("all {} GPUs", group.len()),
        [gpu] => format!("gpu{gpu}"),
        _ => group.iter().map(|g| format!("gpu{g}")).collect::<Vec<_>>().join(" "),
    };
    let one = group.len() == 1;
    let what = match (traffic, one) {
        (TrafficKind::Host, _) => "host traffic",
        (TrafficKind::Peers, true) => "traffic with GPUs",
        (TrafficKind::Peers, false) => "traffic with other GPUs",
        (TrafficKind::All, true) => "all traffic",
        (TrafficKind::All, false) => "all traffic from outside",
    };
    let direction = match (direction, one) {
        (TrafficDirection::In, true) => " into the GPU",
        (TrafficDirection::In, false) => " into the GPUs",
        (TrafficDirection::Out, true) => " out of the GPU",
        (TrafficDirection::Out, false) => " out of the GPUs",
        (TrafficDirection::Both, _) => ", both directions",
    };
    format!("{who}: {what}{direction}")
}

/// The parts of every GPU: its input, its output, its engines.
fn parts(data: &CalibrationData, found: &mut Vec<GroupCandidate>) {
    let gpus: Vec<u32> = data.topology.gpus.iter().map(|g| g.index).collect();
    for &gpu in &gpus {
        for traffic in TRAFFIC {
            for direction in DIRECTIONS {
                found.push(GroupCandidate {
                    name: group_name(&[gpu], false, traffic, direction),
                    found: GroupOrigin::Topology,
                    members: crossing(data, &[gpu], traffic, direction),
                    maybe: Vec::new(),
                    link: None,
                    of: 1,
                    also: None,
                });
            }
        }
        let issued = data.paths.iter().enumerate().filter(|(_, p)| {
            matches!(p.ends, PathEnds::Peer { .. }) && p.key.by.at().gpu() == Some(gpu)
        });
        found.push(GroupCandidate {
            name: format!("gpu{gpu}: copies with GPUs that it issues"),
            found: GroupOrigin::Topology,
            members: issued.map(|(i, _)| i).collect(),
            maybe: Vec::new(),
            link: None,
            of: 1,
            also: None,
        });
    }
}

/// Paths over one direction of a link between units: certain ones, and ones with several equal
/// routes.
type LinkPaths = BTreeMap<(LinkEnd, LinkEnd), (BTreeSet<usize>, BTreeSet<usize>)>;

fn over(data: &CalibrationData) -> LinkPaths {
    let routes = RouteTable::of(&data.topology);
    let mut over = LinkPaths::new();
    for (i, path) in data.paths.iter().enumerate() {
        let PathEnds::Peer { src, dst } = path.ends else { continue };
        let used = routes.in_use(LinkEnd::Gpu(src), LinkEnd::Gpu(dst));
        let Some(used) = used.filter(|u| !u.through_host) else { continue };
        let steps = |nodes: &[LinkEnd]| -> BTreeSet<(LinkEnd, LinkEnd)> {
            nodes.iter().copied().zip(nodes.iter().copied().skip(1)).collect()
        };
        let route_steps: Vec<BTreeSet<(LinkEnd, LinkEnd)>> =
            used.paths.iter().map(|p| steps(&p.nodes)).collect();
        let union: BTreeSet<(LinkEnd, LinkEnd)> = route_steps.iter().flatten().copied().collect();
        for step in union {
            let sure = used.striped || route_steps.iter().all(|w| w.contains(&step));
            let (surely, maybe) = over.entry(step).or_default();
            if sure {
                surely.insert(i)
            } else {
                maybe.insert(i)
            };
        }
    }
    over
}

/// Links between GPUs and switches in the topology: each direction, and both.
fn links(data: &CalibrationData, found: &mut Vec<GroupCandidate>) {
    let over = over(data);
    let list = |set: &BTreeSet<usize>| set.iter().copied().collect::<Vec<_>>();
    for (&(a, b), (surely, maybe)) in &over {
        // Which paths with several equal routes pass it: all combinations, if they are few.
        let open = list(maybe);
        let answers = if open.len() <= MAX_OPEN_PATHS { 1usize << open.len() } else { 1 };
        for answer in 0..answers {
            let chosen = open.iter().enumerate().filter(|(i, _)| answer >> i & 1 == 1);
            let mut members = list(surely);
            members.extend(chosen.map(|(_, p)| *p));
            members.sort_unstable();
            found.push(GroupCandidate {
                name: format!("link {a}>{b}"),
                found: GroupOrigin::Topology,
                members,
                maybe: open.clone(),
                link: Some((a, b, false)),
                of: answers,
                also: None,
            });
        }
        let Some((back, maybe_back)) = over.get(&(b, a)).filter(|_| a < b) else { continue };
        found.push(GroupCandidate {
            name: format!("link {a}<>{b}, both directions"),
            found: GroupOrigin::Topology,
            members: list(&surely.union(back).copied().collect()),
            maybe: list(&maybe.union(maybe_back).copied().collect()),
            link: Some((a, b, true)),
            of: 1,
            also: None,
        });
    }
}

/// Memories of NUMA domains, and the links between them that host traffic with a GPU of another
/// domain uses.
fn domains(data: &CalibrationData, found: &mut Vec<GroupCandidate>) {
    for domain in &data.topology.numa {
        let id = domain.id;
        for (direction, text) in
            DIRECTIONS.into_iter().zip(["read by GPUs", "written by GPUs", "both directions"])
        {
            let of = members(data, |ends| match ends {
                PathEnds::In { numa, .. } => direction != TrafficDirection::Out && *numa == id,
                PathEnds::Out { numa, .. } => direction != TrafficDirection::In && *numa == id,
                _ => false,
            });
            found.push(GroupCandidate {
                name: format!("memory of numa{id}, {text}"),
                found: GroupOrigin::Topology,
                also: before_memory(data, &of, direction),
                members: of,
                maybe: Vec::new(),
                link: None,
                of: 1,
            });
        }
    }
    let homes = homes(&data.topology);
    let step = |ends: &PathEnds| match *ends {
        PathEnds::In { numa, gpu } => Some((numa, *homes.get(&gpu)?)),
        PathEnds::Out { gpu, numa } => Some((*homes.get(&gpu)?, numa)),
        _ => None,
    };
    let steps: BTreeSet<(u32, u32)> =
        data.paths.iter().filter_map(|p| step(&p.ends)).filter(|(a, b)| a != b).collect();
    for &(a, b) in &steps {
        let names = [
            (format!("numa{a}>numa{b}"), false),
            (format!("numa{a}<>numa{b}, both directions"), true),
        ];
        for (name, both) in names {
            found.push(GroupCandidate {
                name: format!("between domains {name}"),
                found: GroupOrigin::Topology,
                members: members(data, |e| {
                    step(e) == Some((a, b)) || (both && step(e) == Some((b, a)))
                }),
                maybe: Vec::new(),
                link: None,
                of: 1,
                also: None,
            });
        }
    }
}

/// The GPUs whose whole host traffic is the traffic of a memory: the shared resource may then also
/// be a switch or a link before it.
fn before_memory(
    data: &CalibrationData,
    members: &[usize],
    direction: TrafficDirection,
) -> Option<String> {
    let of = |&m: &usize| match data.paths[m].ends {
        PathEnds::In { gpu, .. } | PathEnds::Out { gpu, .. } => Some(gpu),
        _ => None,
    };
    let gpus: Vec<u32> =
        members.iter().filter_map(of).collect::<BTreeSet<_>>().into_iter().collect();
    let same = crossing(data, &gpus, TrafficKind::Host, direction) == members;
    let all = gpus.len() == data.topology.gpus.len();
    (same && !gpus.is_empty())
        .then(|| group_name(&gpus, all && gpus.len() > 1, TrafficKind::Host, direction))
}

fn homes(topology: &Topology) -> BTreeMap<u32, u32> {
    topology.gpus.iter().filter_map(|g| Some((g.index, g.numa?))).collect()
}

/// Groups of GPUs behind a component that the topology does not show: a PCIe switch, a socket, a
/// fabric.
fn hidden(data: &CalibrationData, found: &mut Vec<GroupCandidate>) {
    let gpus: Vec<u32> = data.topology.gpus.iter().map(|g| g.index).collect();
    let groups = groups(&gpus);
    // Nine kinds of traffic from outside, and two that include traffic inside.
    let all = 11 * groups.len();
    for group in groups.iter().filter(|g| g.len() > 1) {
        for traffic in TRAFFIC {
            for direction in DIRECTIONS {
                found.push(GroupCandidate {
                    name: group_name(group, group.len() == gpus.len(), traffic, direction),
                    found: GroupOrigin::Interference,
                    members: crossing(data, group, traffic, direction),
                    maybe: Vec::new(),
                    link: None,
                    of: all,
                    also: None,
                });
            }
        }
        let inside = |gpu: &u32| group.contains(gpu);
        let who = match group.len() == gpus.len() {
            true => format!("all {} GPUs", gpus.len()),
            false => group.iter().map(|g| format!("gpu{g}")).collect::<Vec<_>>().join(" "),
        };
        found.push(GroupCandidate {
            name: format!("{who}: traffic among them"),
            found: GroupOrigin::Interference,
            members: members(data, |ends| match ends {
                PathEnds::Peer { src, dst } => inside(src) && inside(dst),
                _ => false,
            }),
            maybe: Vec::new(),
            link: None,
            of: all,
            also: None,
        });
        found.push(GroupCandidate {
            name: format!("{who}: all traffic"),
            found: GroupOrigin::Interference,
            members: members(data, |ends| match ends {
                PathEnds::Peer { src, dst } => inside(src) && inside(dst),
                PathEnds::In { gpu, .. } | PathEnds::Out { gpu, .. } => inside(gpu),
                PathEnds::Within => false,
            }),
            maybe: Vec::new(),
            link: None,
            of: all,
            also: None,
        });
    }
}

/// Groups of GPUs: all of them up to a number of GPUs, beyond it halves, quarters and so on.
fn groups(gpus: &[u32]) -> Vec<Vec<u32>> {
    let n = gpus.len();
    if n <= ALL_GROUPS {
        let chosen = |mask: usize| {
            gpus.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, g)| *g).collect()
        };
        return (1..1usize << n).map(chosen).collect();
    }
    let mut groups = Vec::new();
    let mut size = n;
    while size > 1 {
        groups.extend(gpus.chunks(size).map(<[u32]>::to_vec));
        size = size.div_ceil(2);
    }
    groups
}
