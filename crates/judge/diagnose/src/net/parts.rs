//! Parts of a network, and which times each of them slows.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// The nodes of a job, as their network sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetShape {
    /// Names of the nodes.
    pub hosts: Vec<String>,
    /// Ranks of each node that are measured with those of the same number on another node.
    pub rails: usize,
    /// The leaf switch of each node; empty if that is unknown.
    pub leaves: Vec<String>,
}

/// A time from one node to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NetCell {
    pub(super) round: usize,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) rail: usize,
    pub(super) ns: f64,
}

/// A kind of part, by what it slows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetPartKind {
    /// All rails of a node: its memory, cores, PCIe root; with one rail also its adapter.
    Node,
    /// One rail of a node both ways: the adapter, its PCIe link, or a port that runs at a lower speed.
    Adapter,
    /// One rail of a node in one direction: a cable has separate lanes for each.
    Cable,
    /// Nodes of a leaf switch, to and from all others: its uplinks.
    Leaf,
    /// Two nodes with each other, though each is as fast as others with the rest: a link between switches.
    Route,
}

/// Directions that a part slows, as the nodes that it belongs to see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SlowWay {
    Out,
    In,
    Both,
}

/// A part that may be slow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NetPart {
    pub(super) kind: NetPartKind,
    pub(super) way: SlowWay,
    /// One of several rails.
    pub(super) rail: Option<usize>,
    /// A node, the two of a route, or all of a leaf.
    pub(super) nodes: Vec<usize>,
}

impl NetPart {
    /// Whether it slows such a time.
    pub(super) fn slows(&self, cell: &NetCell) -> bool {
        let of_rail = self.rail.is_none_or(|rail| rail == cell.rail);
        let has = |node: usize| self.nodes.contains(&node);
        let (out, into) = match (self.kind, self.nodes.as_slice()) {
            (NetPartKind::Route, [a, b]) => {
                ((cell.from, cell.to) == (*a, *b), (cell.from, cell.to) == (*b, *a))
            }
            (NetPartKind::Leaf, _) => {
                (has(cell.from) && !has(cell.to), has(cell.to) && !has(cell.from))
            }
            _ => (has(cell.from), has(cell.to)),
        };
        of_rail && ((out && self.way != SlowWay::In) || (into && self.way != SlowWay::Out))
    }

    /// Its name.
    pub(super) fn name(&self, shape: &NetShape) -> String {
        let host = |node: &usize| shape.hosts.get(*node).map_or("?", String::as_str);
        let first = self.nodes.first().map_or("?", host);
        let rail = self.rail.map_or(String::new(), |rail| format!("rail {rail} of "));
        let way = match self.way {
            SlowWay::Out => ", only sending",
            SlowWay::In => ", only receiving",
            SlowWay::Both => "",
        };
        match self.kind {
            NetPartKind::Node if shape.rails < 2 => format!("node {first}, its adapter or cable"),
            NetPartKind::Node => format!("node {first}, all rails{way}"),
            NetPartKind::Adapter => format!("adapter of {rail}{first}, or its cable"),
            NetPartKind::Cable => format!("cable or port of {rail}{first}{way}"),
            NetPartKind::Leaf => {
                let leaf = self.nodes.first().and_then(|node| shape.leaves.get(*node));
                let nodes = self.nodes.len();
                let what = match leaf {
                    Some(leaf) => format!("uplinks of leaf {leaf}"),
                    None => format!("what joins {first} and {} other nodes to the rest", nodes - 1),
                };
                format!("{what}{way}")
            }
            NetPartKind::Route => {
                let second = self.nodes.get(1).map_or("?", host);
                let arrow = if self.way == SlowWay::Both { "↔" } else { "→" };
                format!("route {first}{arrow}{second}")
            }
        }
    }

    /// What peers of it have in common: the same part of all other nodes.
    pub(super) fn peers(&self) -> (NetPartKind, SlowWay, Option<usize>) {
        (self.kind, self.way, self.rail)
    }
}

/// All parts of these nodes except routes.
pub(super) fn parts_of(shape: &NetShape) -> Vec<NetPart> {
    let mut parts = Vec::new();
    let mut add = |kind, way, rail, nodes| parts.push(NetPart { kind, way, rail, nodes });
    let ways = [SlowWay::Out, SlowWay::In];
    for node in 0..shape.hosts.len() {
        add(NetPartKind::Node, SlowWay::Both, None, vec![node]);
        if shape.rails < 2 {
            ways.into_iter().for_each(|way| add(NetPartKind::Cable, way, None, vec![node]));
            continue;
        }
        ways.into_iter().for_each(|way| add(NetPartKind::Node, way, None, vec![node]));
        for rail in 0..shape.rails {
            add(NetPartKind::Adapter, SlowWay::Both, Some(rail), vec![node]);
            ways.into_iter().for_each(|way| add(NetPartKind::Cable, way, Some(rail), vec![node]));
        }
    }
    let mut leaves: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (node, leaf) in shape.leaves.iter().enumerate() {
        leaves.entry(leaf).or_default().push(node);
    }
    for nodes in leaves.into_values().filter(|nodes| nodes.len() < shape.hosts.len()) {
        parts.extend(leaf_parts(&nodes));
    }
    parts
}

/// A leaf of these nodes. One of a single node is that node.
pub(super) fn leaf_parts(nodes: &[usize]) -> Vec<NetPart> {
    let part = |way| NetPart { kind: NetPartKind::Leaf, way, rail: None, nodes: nodes.to_vec() };
    let ways = [SlowWay::Both, SlowWay::Out, SlowWay::In].into_iter().filter(|_| nodes.len() > 1);
    ways.map(part).collect()
}

/// Routes between these pairs of nodes.
pub(super) fn route_parts(pairs: &BTreeSet<[usize; 2]>) -> Vec<NetPart> {
    let part = |way, nodes: [usize; 2]| NetPart {
        kind: NetPartKind::Route,
        way,
        rail: None,
        nodes: nodes.to_vec(),
    };
    let of_pair = |[a, b]: &[usize; 2]| {
        let both = part(SlowWay::Both, [*a, *b]);
        [both, part(SlowWay::Out, [*a, *b]), part(SlowWay::Out, [*b, *a])]
    };
    pairs.iter().flat_map(of_pair).collect()
}
