//! Nodes that are slow with all others and fast with each other, where nobody says which leaf a node is on.

use std::collections::BTreeMap;

use super::cells::NetCells;

/// Shares of slow and of fast times that a group must agree with: an exchange in fifty meets another one.
const AGREES: f64 = 0.9;
/// Maximum passes over all nodes. A pass moves each node to the side that most of its times support.
const PASSES: usize = 16;
/// Smallest group; a smaller one is nodes.
const LEAST: usize = 3;

/// The smaller of two groups such that a time is slow if its ends are of different groups, and only then.
pub(super) fn find_group(cells: &NetCells, nodes: usize) -> Option<Vec<usize>> {
    let from = cells.slow_from();
    let times = || cells.all.iter().zip(&cells.ln).filter(|(_, ln)| ln.is_finite());
    let mut of: Vec<Vec<(usize, bool)>> = vec![Vec::new(); nodes];
    let mut pairs: BTreeMap<[usize; 2], i64> = BTreeMap::new();
    for (cell, ln) in times() {
        for (own, other) in [(cell.from, cell.to), (cell.to, cell.from)] {
            of.get_mut(own)?.push((other, *ln >= from));
        }
        // Votes: one exchange that met another says no more by taking longer.
        let pair = [cell.from.min(cell.to), cell.from.max(cell.to)];
        *pairs.entry(pair).or_default() += if *ln >= from { 1 } else { -1 };
    }
    let mut inside = sides_of_pairs(pairs, nodes);
    for _ in 0..PASSES {
        let before = inside.clone();
        for (node, of) in of.iter().enumerate() {
            // One after the other: two sides that change at once would change back.
            let is_in = |node: usize| inside.get(node).copied().unwrap_or_default();
            let across = of.iter().filter(|(other, slow)| *slow != is_in(*other)).count();
            inside.get_mut(node).into_iter().for_each(|inside| *inside = 2 * across > of.len());
        }
        if inside == before {
            break;
        }
    }
    let count = inside.iter().filter(|inside| **inside).count();
    let smaller = 2 * count < nodes;
    let group: Vec<usize> = (0..nodes).filter(|node| inside.get(*node) == Some(&smaller)).collect();
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

/// Sides of nodes by the surest pairs that join all of them: a pair that is slow, by votes, has an end on either side.
fn sides_of_pairs(pairs: BTreeMap<[usize; 2], i64>, nodes: usize) -> Vec<bool> {
    let mut pairs: Vec<_> = pairs.into_iter().filter(|(_, votes)| *votes != 0).collect();
    pairs.sort_by_key(|(_, votes)| std::cmp::Reverse(votes.abs()));
    // Nodes that are joined, and the side of each relative to the others of its group.
    let mut joined: Vec<(usize, bool)> = (0..nodes).map(|node| (node, false)).collect();
    for ([a, b], votes) in pairs {
        let (Some(&(group, side)), Some(&(other, far))) = (joined.get(a), joined.get(b)) else {
            continue;
        };
        if group != other {
            let turn = (side != far) != (votes > 0);
            for node in joined.iter_mut().filter(|(of, _)| *of == other) {
                *node = (group, node.1 != turn);
            }
        }
    }
    joined.into_iter().map(|(_, side)| side).collect()
}
