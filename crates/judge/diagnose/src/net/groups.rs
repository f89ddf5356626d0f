//! Nodes that are slow with all others and fast with each other, where nobody says which leaf a node is on.

use super::cells::NetCells;

/// Shares of slow and of fast times that a group must agree with.
const AGREES: f64 = 0.95;
/// Maximum passes over all nodes. A pass moves each node to the side that most of its times support.
const PASSES: usize = 16;
/// Smallest group; a smaller one is nodes.
const LEAST: usize = 3;

/// The smaller of two groups such that a time is slow if its ends are of different groups, and only then.
pub(super) fn find_group(cells: &NetCells, nodes: usize) -> Option<Vec<usize>> {
    let from = cells.slow_from();
    let times = || cells.all.iter().zip(&cells.ln).filter(|(_, ln)| ln.is_finite());
    let mut of: Vec<Vec<(usize, bool)>> = vec![Vec::new(); nodes];
    for (cell, ln) in times() {
        for (own, other) in [(cell.from, cell.to), (cell.to, cell.from)] {
            of.get_mut(own)?.push((other, *ln >= from));
        }
    }
    let most = |of: &[(usize, bool)], is_in: &dyn Fn(&(usize, bool)) -> bool| {
        2 * of.iter().filter(|time| is_in(time)).count() > of.len()
    };
    let mut inside: Vec<bool> = of.iter().map(|of| most(of, &|(_, slow)| *slow)).collect();
    for _ in 0..PASSES {
        let before = inside.clone();
        for (node, of) in of.iter().enumerate() {
            // One after the other: two sides that change at once would change back.
            let is_in = |node: usize| inside.get(node).copied().unwrap_or_default();
            let now = most(of, &|(other, slow)| *slow != is_in(*other));
            inside.get_mut(node).into_iter().for_each(|inside| *inside = now);
        }
        if inside == before {
            break;
        }
    }
    let group: Vec<usize> = (0..nodes).filter(|node| inside.get(*node) == Some(&true)).collect();
    let agree = |wanted: bool| {
        let all: Vec<bool> = times()
            .filter(|(_, ln)| (**ln >= from) == wanted)
            .map(|(cell, _)| (group.contains(&cell.from) != group.contains(&cell.to)) == wanted)
            .collect();
        let right = all.iter().filter(|right| **right).count();
        right as f64 >= AGREES * all.len() as f64
    };
    (group.len() >= LEAST && 2 * group.len() < nodes && agree(true) && agree(false))
        .then_some(group)
}
