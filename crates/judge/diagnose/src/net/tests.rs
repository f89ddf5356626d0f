//! Networks with and without slow parts, whose times are drawn.

use pathline_schema::NodeVerdict;

use super::*;
use crate::FleetSettings;

const SETTINGS: FleetSettings = FleetSettings { loss: 0.03, alpha: 1e-4 };

/// A part and the share of its speed that is left.
#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Sound,
    Node(usize),
    Adapter(usize, usize),
    /// Node, rail, whether towards the node.
    Cable(usize, usize, bool),
    Leaf(usize),
    Route(usize, usize),
}

/// 64 nodes of 4 rails on leaves of 16. Noise: 2 % on each time and 0.5 % on each node; one exchange in fifty meets
/// another one on a link and takes up to twice as long, in both directions and on any rail.
struct DrawnNet {
    nodes: usize,
    rails: usize,
    leaf: usize,
    planted: Planted,
    left: f64,
    rng: fastrand::Rng,
    states: Vec<f64>,
    lost: Vec<usize>,
    /// Rounds measured, and from which on a node is lost.
    round: usize,
    loses: Option<(usize, usize)>,
}

fn normal(rng: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
}

impl DrawnNet {
    fn new(nodes: usize, rails: usize, planted: Planted, left: f64, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let states = (0..nodes).map(|_| 0.005 * normal(&mut rng)).collect();
        let (lost, round, loses) = (Vec::new(), 0, None);
        Self { nodes, rails, leaf: 16, planted, left, rng, states, lost, round, loses }
    }

    fn shape(&self, with_leaves: bool) -> NetShape {
        let leaves = (0..self.nodes).filter(|_| with_leaves);
        NetShape {
            hosts: (0..self.nodes).map(|node| format!("n{node}")).collect(),
            rails: self.rails,
            leaves: leaves.map(|node| format!("s{}", node / self.leaf)).collect(),
        }
    }

    fn time(&mut self, from: usize, to: usize, rail: usize) -> f64 {
        let leaf = |node: usize| node / self.leaf;
        let is_slow = match self.planted {
            Planted::Sound => false,
            Planted::Node(node) => [from, to].contains(&node),
            Planted::Adapter(node, of) => [from, to].contains(&node) && rail == of,
            Planted::Cable(node, of, into) => (if into { to } else { from }) == node && rail == of,
            Planted::Leaf(of) => (leaf(from) == of) != (leaf(to) == of),
            Planted::Route(a, b) => [[a, b], [b, a]].contains(&[from, to]),
        };
        let meets = if self.rng.f64() < 0.02 { self.rng.f64() } else { 0.0 };
        let noise = 0.02 * normal(&mut self.rng) + self.states[from] + self.states[to];
        let left = if is_slow { self.left } else { 1.0 };
        1e6 * (1.0 + meets) * noise.exp() / left
    }
}

impl PairMeter for DrawnNet {
    fn measure(&mut self, pairs: &[[usize; 2]]) -> Vec<PairTimes> {
        let nodes: std::collections::BTreeSet<usize> = pairs.iter().flatten().copied().collect();
        assert_eq!(nodes.len(), 2 * pairs.len(), "no node is in two pairs");
        self.round += 1;
        if let Some((node, _)) = self.loses.filter(|(_, round)| self.round >= *round) {
            self.lost = vec![node];
        }
        let rails = self.rails;
        let mut rail = |a, b, rail| match [a, b].iter().any(|node| self.lost.contains(node)) {
            true => [f64::NAN; 2],
            false => [self.time(a, b, rail), self.time(b, a, rail)],
        };
        let times = |[a, b]: &[usize; 2]| PairTimes {
            rails: (0..rails).map(|nth| rail(*a, *b, nth)).collect(),
        };
        pairs.iter().map(times).collect()
    }

    fn lost(&self) -> Vec<(usize, String)> {
        self.lost.iter().map(|node| (*node, "it was killed".to_owned())).collect()
    }
}

/// What is planted with the kind, and where it must be named.
fn expected(planted: Planted) -> Option<(NetPartKind, Vec<String>, Option<usize>)> {
    let of = |node: usize| vec![format!("n{node}")];
    Some(match planted {
        Planted::Sound => return None,
        Planted::Node(node) => (NetPartKind::Node, of(node), None),
        Planted::Adapter(node, rail) => (NetPartKind::Adapter, of(node), Some(rail)),
        Planted::Cable(node, rail, _) => (NetPartKind::Cable, of(node), Some(rail)),
        Planted::Leaf(leaf) => {
            (NetPartKind::Leaf, (16 * leaf..16 * leaf + 16).flat_map(of).collect(), None)
        }
        Planted::Route(a, b) => (NetPartKind::Route, vec![format!("n{a}"), format!("n{b}")], None),
    })
}

/// Checks `count` networks of 64 nodes with a part of each kind: how many were found, and named right.
fn found_of(count: u64, rails: usize, with_leaves: bool) -> [(usize, usize, usize); 4] {
    let draw = |kind: usize, seed: u64| {
        let rng = &mut fastrand::Rng::with_seed(1000 * seed + kind as u64);
        let (node, rail) = (rng.usize(0..64), rng.usize(0..rails));
        let planted = match kind {
            0 => Planted::Cable(node, rail, rng.bool()),
            1 => Planted::Adapter(node, rail),
            2 => Planted::Node(node),
            _ => Planted::Leaf(node / 16),
        };
        // From a lane of eight to half of them.
        (planted, 0.5 + 0.375 * rng.f64())
    };
    [0, 1, 2, 3].map(|kind| {
        let (mut found, mut right, mut rounds) = (0, 0, 0);
        for seed in 0..count {
            let (planted, left) = draw(kind, seed);
            let mut net = DrawnNet::new(64, rails, planted, left, seed);
            let report = check_network(&net.shape(with_leaves), &mut net, SETTINGS);
            rounds = rounds.max(report.rounds);
            found += usize::from(report.verdict != NodeVerdict::Ok);
            let first = report.faults.first().map(|f| (f.kind, f.hosts.clone(), f.rail));
            let wanted = expected(planted).map(|(kind, hosts, rail)| match kind {
                _ if rails > 1 => (kind, hosts, rail),
                NetPartKind::Adapter => (NetPartKind::Node, hosts, None),
                _ => (kind, hosts, None),
            });
            right += usize::from(report.faults.len() == 1 && first == wanted);
        }
        (found, right, rounds)
    })
}

/// `PATHLINE_TEST_WORLDS` sets the number of networks of each kind.
#[test]
fn the_slow_part_of_64_nodes_is_found_in_12_rounds_and_named() {
    let count = std::env::var("PATHLINE_TEST_WORLDS").ok().and_then(|n| n.parse().ok());
    let count: u64 = count.unwrap_or(12);
    for (rails, with_leaves) in [(4, true), (1, false)] {
        let all = found_of(count, rails, with_leaves);
        let is_good = |(found, right, rounds): &(usize, usize, usize)| {
            *found as u64 == count && 20 * right >= 19 * count as usize && *rounds <= 12
        };
        assert!(
            all.iter().all(is_good),
            "{rails} rails, of {count} (found, right, rounds): {all:?}"
        );
    }
}

#[test]
fn sound_networks_are_not_blamed() {
    for seed in 0..100 {
        let (nodes, rails) = ([64, 8, 5, 33][seed as usize % 4], 1 + 3 * (seed as usize % 2));
        let mut net = DrawnNet::new(nodes, rails, Planted::Sound, 1.0, seed);
        let report = check_network(&net.shape(seed % 3 == 0), &mut net, SETTINGS);
        assert_eq!((report.verdict, report.faults.len()), (NodeVerdict::Ok, 0), "{report:?}");
        assert!(report.visible.is_some_and(|loss| loss < 0.25), "{seed} {:?}", report.visible);
    }
}

/// Nodes that differ by a fifth: one that loses less than several of these would go unnoticed.
#[test]
fn a_network_whose_nodes_differ_is_not_called_sound() {
    let mut net = DrawnNet::new(16, 1, Planted::Sound, 1.0, 3);
    net.states = (0..16).map(|node| 0.2 * f64::from(node % 4)).collect();
    let report = check_network(&net.shape(false), &mut net, SETTINGS);
    assert_eq!((report.verdict, report.faults.len()), (NodeVerdict::Undecided, 0), "{report:?}");
    assert!(report.visible.is_some_and(|loss| loss > 0.25) && report.why.is_some());
}

#[test]
fn a_node_and_a_route_are_told_apart_with_one_rail() {
    for (planted, part) in [
        (Planted::Node(3), "node n3, its adapter or cable"),
        (Planted::Cable(3, 0, true), "cable or port of n3, only receiving"),
        (Planted::Cable(3, 0, false), "cable or port of n3, only sending"),
    ] {
        let mut net = DrawnNet::new(12, 1, planted, 0.6, 5);
        let report = check_network(&net.shape(false), &mut net, SETTINGS);
        let [fault] = report.faults.as_slice() else { panic!("{report:?}") };
        assert_eq!((fault.part.as_str(), fault.verdict), (part, NodeVerdict::Fail));
        assert!((fault.loss - 0.4).abs() < 0.05, "{fault:?}");
    }
    // All pairs of 6 nodes meet in the first rounds.
    let mut net = DrawnNet::new(6, 1, Planted::Route(1, 4), 0.5, 6);
    let report = check_network(&net.shape(false), &mut net, SETTINGS);
    let [fault] = report.faults.as_slice() else { panic!("{report:?}") };
    assert_eq!((fault.part.as_str(), fault.verdict), ("route n1↔n4", NodeVerdict::Fail));
}

#[test]
fn two_leaves_lost_and_few_nodes_are_not_decided() {
    // With two leaves a slow one looks like few uplinks.
    let mut net = DrawnNet::new(20, 1, Planted::Leaf(1), 0.5, 7);
    let report = check_network(&net.shape(true), &mut net, SETTINGS);
    assert_eq!(report.verdict, NodeVerdict::Suspect, "{report:?}");
    assert_eq!(report.faults[0].kind, NetPartKind::Leaf);
    let mut net = DrawnNet::new(16, 1, Planted::Node(2), 0.5, 8);
    net.loses = Some((9, 2));
    let report = check_network(&net.shape(false), &mut net, SETTINGS);
    assert_eq!(report.lost, [("n9".to_owned(), "it was killed".to_owned())]);
    assert_eq!((report.verdict, report.faults.len()), (NodeVerdict::Fail, 1), "{report:?}");
    net = DrawnNet::new(16, 1, Planted::Sound, 1.0, 8);
    net.loses = Some((9, 2));
    let report = check_network(&net.shape(false), &mut net, SETTINGS);
    assert_eq!(report.why.as_deref(), Some("1 node stopped answering"));
    assert_eq!(report.verdict, NodeVerdict::Undecided);
    let mut net = DrawnNet::new(4, 1, Planted::Sound, 1.0, 9);
    let report = check_network(&net.shape(false), &mut net, SETTINGS);
    assert_eq!((report.verdict, report.rounds), (NodeVerdict::Undecided, 0));
}
