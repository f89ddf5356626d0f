//! What paths might share: groups that a node could have, before any is believed.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::routes::RouteTable;
use pathline_schema::{LinkEnd, Topology};

use crate::data::{CalibrationData, PathEnds};

/// Where a group is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupOrigin {
    /// A part that the topology shows.
    Topology,
    /// Nothing shows it but that its flows slow each other.
    Interference,
}

impl GroupOrigin {
    /// Its word in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Topology => "topology",
            Self::Interference => "interference",
        }
    }
}

/// A group of paths that might share something.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GroupCandidate {
    /// Name for people.
    pub name: String,
    /// Where it is known from.
    pub found: GroupOrigin,
    /// Its paths, ascending.
    pub members: Vec<usize>,
    /// Paths that may or may not belong to it: of several equal routes one passes it.
    pub maybe: Vec<usize>,
    /// The link that it is, and whether it is both directions of it.
    pub link: Option<(LinkEnd, LinkEnd, bool)>,
    /// How many groups of its family there are: one of many needs more to be believed.
    pub of: usize,
    /// What else has the very same paths, at another place of the node: no record can tell the two
    /// apart.
    pub also: Option<String>,
}

/// Which flows of a group of GPUs are meant.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TrafficKind {
    Host,
    Peers,
    All,
}

/// Which way they go, seen from the GPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TrafficDirection {
    In,
    Out,
    Both,
}

const TRAFFIC: [TrafficKind; 3] = [TrafficKind::Host, TrafficKind::Peers, TrafficKind::All];
const WAYS: [TrafficDirection; 3] =
    [TrafficDirection::In, TrafficDirection::Out, TrafficDirection::Both];
/// All groups of GPUs are tried up to so many; beyond, those that lie side by side.
const ALL_GROUPS: usize = 8;
/// The most paths of one link whose routes are open that are tried in all combinations.
const MOST_OPEN: usize = 6;

/// All groups worth a try; each set of paths once, under the name that says most.
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

/// Flows between a group of GPUs and what lies outside of it.
fn crossing(
    data: &CalibrationData,
    group: &[u32],
    traffic: TrafficKind,
    way: TrafficDirection,
) -> Vec<usize> {
    let inside = |gpu: &u32| group.contains(gpu);
    let (host, peers) = (traffic != TrafficKind::Peers, traffic != TrafficKind::Host);
    let (into, out) = (way != TrafficDirection::Out, way != TrafficDirection::In);
    members(data, |ends| match ends {
        PathEnds::In { gpu, .. } => host && into && inside(gpu),
        PathEnds::Out { gpu, .. } => host && out && inside(gpu),
        PathEnds::Peer { src, dst } => {
            peers && ((into && inside(dst) && !inside(src)) || (out && inside(src) && !inside(dst)))
        }
        PathEnds::Within => false,
    })
}

fn say(group: &[u32], all: bool, traffic: TrafficKind, way: TrafficDirection) -> String {
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
    let way = match (way, one) {
        (TrafficDirection::In, true) => " into the GPU",
        (TrafficDirection::In, false) => " into the GPUs",
        (TrafficDirection::Out, true) => " out of the GPU",
        (TrafficDirection::Out, false) => " out of the GPUs",
        (TrafficDirection::Both, _) => ", both ways",
    };
    format!("{who}: {what}{way}")
}

/// What every GPU has: a way in, a way out, engines.
fn parts(data: &CalibrationData, found: &mut Vec<GroupCandidate>) {
    let gpus: Vec<u32> = data.topology.gpus.iter().map(|g| g.index).collect();
    for &gpu in &gpus {
        for traffic in TRAFFIC {
            for way in WAYS {
                found.push(GroupCandidate {
                    name: say(&[gpu], false, traffic, way),
                    found: GroupOrigin::Topology,
                    members: crossing(data, &[gpu], traffic, way),
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

/// Paths over one direction of a link between units: surely, and by one of several equal routes.
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
        let ways: Vec<BTreeSet<(LinkEnd, LinkEnd)>> =
            used.paths.iter().map(|p| steps(&p.nodes)).collect();
        let union: BTreeSet<(LinkEnd, LinkEnd)> = ways.iter().flatten().copied().collect();
        for step in union {
            let sure = used.striped || ways.iter().all(|w| w.contains(&step));
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

/// Links between GPUs and switches that the topology shows: each direction, and both.
fn links(data: &CalibrationData, found: &mut Vec<GroupCandidate>) {
    let over = over(data);
    let list = |set: &BTreeSet<usize>| set.iter().copied().collect::<Vec<_>>();
    for (&(a, b), (surely, maybe)) in &over {
        // Which of the paths with several equal routes pass it: all answers, where they are few.
        let open = list(maybe);
        let answers = if open.len() <= MOST_OPEN { 1usize << open.len() } else { 1 };
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
            name: format!("link {a}<>{b}, both ways"),
            found: GroupOrigin::Topology,
            members: list(&surely.union(back).copied().collect()),
            maybe: list(&maybe.union(maybe_back).copied().collect()),
            link: Some((a, b, true)),
            of: 1,
            also: None,
        });
    }
}

/// Memories of NUMA domains, and the ways between them that the host's own traffic with a GPU of
/// another domain takes.
fn domains(data: &CalibrationData, found: &mut Vec<GroupCandidate>) {
    for domain in &data.topology.numa {
        let id = domain.id;
        for (way, text) in WAYS.into_iter().zip(["read by GPUs", "written by GPUs", "both ways"]) {
            let of = members(data, |ends| match ends {
                PathEnds::In { numa, .. } => way != TrafficDirection::Out && *numa == id,
                PathEnds::Out { numa, .. } => way != TrafficDirection::In && *numa == id,
                _ => false,
            });
            found.push(GroupCandidate {
                name: format!("memory of numa{id}, {text}"),
                found: GroupOrigin::Topology,
                also: before_memory(data, &of, way),
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
        let ways =
            [(format!("numa{a}>numa{b}"), false), (format!("numa{a}<>numa{b}, both ways"), true)];
        for (name, both) in ways {
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

/// The GPUs whose host traffic, all of it, is the traffic of a memory: then what they share may as
/// well be a switch or a link on the way there.
fn before_memory(
    data: &CalibrationData,
    members: &[usize],
    way: TrafficDirection,
) -> Option<String> {
    let of = |&m: &usize| match data.paths[m].ends {
        PathEnds::In { gpu, .. } | PathEnds::Out { gpu, .. } => Some(gpu),
        _ => None,
    };
    let gpus: Vec<u32> =
        members.iter().filter_map(of).collect::<BTreeSet<_>>().into_iter().collect();
    let same = crossing(data, &gpus, TrafficKind::Host, way) == members;
    let all = gpus.len() == data.topology.gpus.len();
    (same && !gpus.is_empty()).then(|| say(&gpus, all && gpus.len() > 1, TrafficKind::Host, way))
}

fn homes(topology: &Topology) -> BTreeMap<u32, u32> {
    topology.gpus.iter().filter_map(|g| Some((g.index, g.numa?))).collect()
}

/// Groups of GPUs behind something that nothing shows: a PCIe switch, a socket, a fabric.
fn hidden(data: &CalibrationData, found: &mut Vec<GroupCandidate>) {
    let gpus: Vec<u32> = data.topology.gpus.iter().map(|g| g.index).collect();
    let groups = groups(&gpus);
    // Nine kinds of traffic from outside, and two with what stays inside.
    let all = 11 * groups.len();
    for group in groups.iter().filter(|g| g.len() > 1) {
        for traffic in TRAFFIC {
            for way in WAYS {
                found.push(GroupCandidate {
                    name: say(group, group.len() == gpus.len(), traffic, way),
                    found: GroupOrigin::Interference,
                    members: crossing(data, group, traffic, way),
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
