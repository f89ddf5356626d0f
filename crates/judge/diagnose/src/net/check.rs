//! The check: rounds of pairs, what they show, and fresh rounds that prove it.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Case, NodeVerdict};
use pathline_stats::{ascending, interpolated};

use super::cells::NetCells;
use super::groups::find_group;
use super::parts::{
    NetCell, NetPart, NetPartKind, NetShape, SlowWay, leaf_parts, parts_of, route_parts,
};
use super::report::{NetFault, NetReport, PairMeter};
use super::tournament::pairs_of_round;
use crate::culprit::{Culprit, PathLoss, PathLosses};
use crate::edits::{PATH_PRIOR, plain_edit};
use crate::fleet::{FleetSettings, MIN_NODES, MIN_SLOW, PlaceSpread};
use crate::posterior::SURE;

/// Rounds between two looks at what was measured, and to prove what a look has found.
const ROUNDS: usize = 3;
const LOOKS: usize = 2;
/// A network of which a node may lose more than this share of its speed unnoticed is not called sound: lanes are lost
/// by quarters and halves.
const MOST_HIDDEN: f64 = 0.25;
/// Slow parts that are named at most.
const MAX_FAULTS: usize = 4;
/// Slow times whose pairs are measured again, in case it is their route.
const MAX_ROUTES: usize = 4;
/// Fewest times of a part that are judged.
const MIN_TIMES: usize = 3;
/// Minimum number of leaves to separate a slow leaf from uplinks that are oversubscribed by design.
const MIN_LEAVES: usize = 3;

/// Finds the slow parts of a network by measuring pairs of its nodes.
pub fn check_network(
    shape: &NetShape,
    meter: &mut dyn PairMeter,
    settings: FleetSettings,
) -> NetReport {
    let mut check = NetCheck {
        shape,
        settings,
        parts: parts_of(shape),
        routes: BTreeSet::new(),
        cells: NetCells::default(),
    };
    let mut proven = None;
    for look in 1..=LOOKS {
        check.measure(meter, &[]);
        let (found, left) = check.judge();
        let routes = if look == LOOKS { check.slow_pairs(&left) } else { Vec::new() };
        if found.is_empty() && routes.is_empty() {
            continue;
        }
        let fresh = check.cells.rounds;
        check.routes.extend(routes.iter().copied());
        check.measure(meter, &routes);
        let faults = check.faults(fresh);
        let done = faults.iter().any(|fault| fault.verdict == NodeVerdict::Fail);
        proven = Some(faults);
        if done {
            break;
        }
    }
    check.report(proven.unwrap_or_default(), meter.lost())
}

/// A part that is slow.
struct SlowPart<'p> {
    part: &'p NetPart,
    away: f64,
    times: Vec<usize>,
}

/// A part that explains slow times.
struct FoundPart {
    part: NetPart,
    culprit: Culprit,
    loss: f64,
    times: usize,
}

struct NetCheck<'s> {
    shape: &'s NetShape,
    settings: FleetSettings,
    parts: Vec<NetPart>,
    /// Pairs whose route may be slow.
    routes: BTreeSet<[usize; 2]>,
    cells: NetCells,
}

impl NetCheck<'_> {
    /// Measures the next rounds, with these pairs among each.
    fn measure(&mut self, meter: &mut dyn PairMeter, wanted: &[[usize; 2]]) {
        for _ in 0..ROUNDS {
            let lost: BTreeSet<usize> = meter.lost().into_iter().map(|(node, _)| node).collect();
            let nodes: Vec<usize> =
                (0..self.shape.hosts.len()).filter(|node| !lost.contains(node)).collect();
            if nodes.len() < MIN_NODES {
                return;
            }
            let pairs = pairs_of_round(&nodes, self.cells.rounds, wanted);
            let times = meter.measure(&pairs);
            self.cells.add_round(&pairs, &times);
        }
    }

    /// Parts that explain what is slow, and the times that none of them explains.
    fn judge(&self) -> (Vec<FoundPart>, NetCells) {
        let mut left = self.cells.clone();
        let mut parts = self.parts.clone();
        if self.shape.leaves.is_empty()
            && let Some(group) = find_group(&left, self.shape.hosts.len())
        {
            parts.extend(leaf_parts(&group));
        }
        parts.extend(route_parts(&self.routes));
        let mut found = Vec::new();
        while found.len() < MAX_FAULTS {
            let slow = self.slow_parts(&left, &parts);
            let widest = slow
                .into_iter()
                .max_by(|a, b| a.times.len().cmp(&b.times.len()).then(a.away.total_cmp(&b.away)));
            let Some(culprit) = widest.and_then(|slow| self.culprit(&left, &parts, &slow)) else {
                break;
            };
            for at in left.of_part(&culprit.part) {
                if let Some(ln) = left.ln.get_mut(at) {
                    *ln = f64::NAN;
                }
            }
            found.push(culprit);
        }
        (found, left)
    }

    /// Parts that are slower than the same parts of other nodes.
    fn slow_parts<'p>(&self, cells: &NetCells, parts: &'p [NetPart]) -> Vec<SlowPart<'p>> {
        let middle = |times: &[usize]| {
            let all = ascending(times.iter().map(|at| cells.value(*at)));
            interpolated(&all, 0.5).filter(|_| all.len() >= MIN_TIMES)
        };
        let measured: Vec<(SlowPart<'p>, _)> = parts
            .iter()
            .filter_map(|part| {
                let times = cells.of_part(part);
                Some((SlowPart { part, away: middle(&times)?, times }, part.peers()))
            })
            .collect();
        let mut of_peers: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        for (slow, peers) in &measured {
            of_peers.entry(*peers).or_default().push(slow.away);
        }
        // A part is judged by the others, or it would hide itself among few.
        let spread_of = |slow: &SlowPart<'_>| match slow.part.kind {
            // There are few leaves, and nodes show the noise of fewer times than a leaf has.
            NetPartKind::Leaf => self.spread_without(cells, slow.part),
            NetPartKind::Route => {
                let mut others = cells.ln.clone();
                for at in &slow.times {
                    others.get_mut(*at).into_iter().for_each(|ln| *ln = f64::NAN);
                }
                PlaceSpread::of(finite(&others))
            }
            _ => {
                let mut others = of_peers.get(&slow.part.peers()).cloned().unwrap_or_default();
                let own = others.iter().position(|away| *away == slow.away);
                own.map(|own| others.swap_remove(own));
                PlaceSpread::of(others)
            }
        };
        let mut slow = measured;
        slow.retain(|(found, _)| {
            if found.away < self.settings.least_loss() {
                return false;
            }
            let least = spread_of(found).threshold(parts.len(), self.settings);
            let is_slow = |at: &&usize| cells.value(**at) >= (0.5 * found.away).max(0.5 * least);
            let share =
                found.times.iter().filter(is_slow).count() as f64 / found.times.len() as f64;
            found.away >= least && share >= MIN_SLOW
        });
        slow.into_iter().map(|(slow, _)| slow).collect()
    }

    /// How nodes differ by the times that a part does not slow.
    fn spread_without(&self, cells: &NetCells, part: &NetPart) -> PlaceSpread {
        let mut of_node: Vec<Vec<f64>> = vec![Vec::new(); self.shape.hosts.len()];
        for (cell, ln) in cells.all.iter().zip(&cells.ln) {
            if ln.is_finite() && !part.slows(cell) {
                for node in [cell.from, cell.to] {
                    of_node.get_mut(node).into_iter().for_each(|of| of.push(*ln));
                }
            }
        }
        let middles = of_node.into_iter().filter(|of| of.len() >= MIN_TIMES);
        PlaceSpread::of(middles.filter_map(|of| interpolated(&ascending(of), 0.5)).collect())
    }

    /// The part that explains the times of a slow one best.
    fn culprit(
        &self,
        cells: &NetCells,
        parts: &[NetPart],
        slow: &SlowPart<'_>,
    ) -> Option<FoundPart> {
        // A route that is slow besides, or one message that was, is another matter.
        let near = |at: &&usize| (cells.value(**at) - slow.away).abs() <= slow.away / 3.0;
        let suspects: Vec<usize> = slow.times.iter().filter(near).copied().collect();
        // Others cannot explain them.
        let slows_all = |part: &&NetPart| {
            suspects.iter().filter_map(|at| cells.all.get(*at)).all(|cell| part.slows(cell))
        };
        let names: BTreeMap<String, &NetPart> =
            parts.iter().filter(slows_all).map(|part| (part.name(self.shape), part)).collect();
        let edits: Vec<_> = names
            .iter()
            .map(|(name, part)| {
                let prior = if part.kind == NetPartKind::Route { PATH_PRIOR } else { 0.0 };
                plain_edit(name.clone(), prior, cells.of_part(part))
            })
            .collect();
        let (case, scale) = (Case::together(Vec::new()), cells.scale());
        let row = |(cell, ln): (&NetCell, &f64)| PathLoss {
            label: "",
            case: &case,
            class: cell.rail,
            ln: Some(*ln).filter(|ln| ln.is_finite()),
            scale,
            margin: self.settings.loss,
        };
        let rows = cells.all.iter().zip(&cells.ln).map(row).collect();
        let culprit = PathLosses::new(&edits, rows, suspects).culprits().into_iter().next()?;
        let (name, left) = culprit.left.first()?.clone();
        let part = (*names.get(&name)?).clone();
        let times = cells.of_part(&part).len();
        Some(FoundPart { part, culprit, loss: 1.0 - left, times })
    }

    /// Pairs that are slow though none of their parts is, the slowest first.
    fn slow_pairs(&self, left: &NetCells) -> Vec<[usize; 2]> {
        let least = PlaceSpread::of(finite(&left.ln)).threshold(left.ln.len(), self.settings);
        let mut slow: Vec<(f64, [usize; 2])> = left
            .all
            .iter()
            .zip(&left.ln)
            .filter(|(_, ln)| **ln >= least)
            .map(|(cell, ln)| (*ln, [cell.from.min(cell.to), cell.from.max(cell.to)]))
            .collect();
        slow.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut pairs: Vec<[usize; 2]> = Vec::new();
        for (_, pair) in slow {
            let is_new = !pairs.iter().flatten().any(|node| pair.contains(node));
            if is_new && pairs.len() < MAX_ROUTES {
                pairs.push(pair);
            }
        }
        pairs
    }

    /// What all rounds show, proven by those from `fresh` on.
    fn faults(&self, fresh: usize) -> Vec<NetFault> {
        let (found, _) = self.judge();
        found.into_iter().map(|found| self.fault(found, fresh)).collect()
    }

    fn fault(&self, found: FoundPart, fresh: usize) -> NetFault {
        let FoundPart { part, culprit, loss, times } = found;
        let is_fresh = |at: &usize| self.cells.all.get(*at).is_some_and(|cell| cell.round >= fresh);
        let again = ascending(
            self.cells.of_part(&part).into_iter().filter(is_fresh).map(|at| self.cells.value(at)),
        );
        let half = -0.5 * (1.0 - loss).ln();
        let slow = again.iter().filter(|ln| **ln >= half).count() as f64;
        let is_proven = !again.is_empty() && slow >= MIN_SLOW * again.len() as f64;
        let leaves: BTreeSet<&String> = self.shape.leaves.iter().collect();
        // Uplinks that are fewer than nodes look the same, but on all leaves.
        let is_sure = part.kind != NetPartKind::Leaf || leaves.len() >= MIN_LEAVES;
        let is_sure = is_sure && culprit.odds >= SURE;
        let host = |node: &usize| self.shape.hosts.get(*node).cloned().unwrap_or_default();
        NetFault {
            verdict: if is_proven && is_sure { NodeVerdict::Fail } else { NodeVerdict::Suspect },
            kind: part.kind,
            part: part.name(self.shape),
            hosts: part.nodes.iter().map(host).collect(),
            rail: part.rail,
            loss,
            again: interpolated(&again, 0.5).map(|ln| 1.0 - (-ln).exp()),
            times,
            odds: culprit.odds,
            next: culprit.next,
        }
    }

    fn report(self, faults: Vec<NetFault>, lost: Vec<(usize, String)>) -> NetReport {
        let hosts = &self.shape.hosts;
        let left = hosts.len() - lost.len().min(hosts.len());
        let of_node = |part: &&NetPart| part.kind == NetPartKind::Node && part.way == SlowWay::Both;
        let middles = self.parts.iter().filter(of_node).filter_map(|part| {
            let all = self.cells.of_part(part).into_iter().map(|at| self.cells.value(at));
            interpolated(&ascending(all), 0.5)
        });
        let middles: Vec<f64> = middles.collect();
        let visible = (!middles.is_empty()).then(|| {
            let least = PlaceSpread::of(middles).threshold(self.parts.len(), self.settings);
            1.0 - (-least).exp()
        });
        let why = if left < MIN_NODES {
            Some(format!(
                "{left} nodes answer, and {MIN_NODES} are needed to tell a node from its partners"
            ))
        } else {
            let hidden = faults.is_empty() && visible.is_none_or(|loss| loss > MOST_HIDDEN);
            let lost = match lost.len() {
                0 => None,
                1 => Some("1 node stopped answering".to_owned()),
                lost => Some(format!("{lost} nodes stopped answering")),
            };
            lost.or_else(|| {
                hidden.then(|| {
                    "the times differ too much: measure again on an idle network".to_owned()
                })
            })
        };
        let verdict = match (faults.is_empty(), &why) {
            (false, _) if faults.iter().any(|fault| fault.verdict == NodeVerdict::Fail) => {
                NodeVerdict::Fail
            }
            (false, _) => NodeVerdict::Suspect,
            (true, Some(_)) => NodeVerdict::Undecided,
            (true, None) => NodeVerdict::Ok,
        };
        let name =
            |(node, why): (usize, String)| (hosts.get(node).cloned().unwrap_or_default(), why);
        NetReport {
            verdict,
            why,
            hosts: hosts.clone(),
            rails: self.shape.rails,
            rounds: self.cells.rounds,
            times: self.cells.all.len(),
            faults,
            visible,
            lost: lost.into_iter().map(name).collect(),
        }
    }
}

fn finite(values: &[f64]) -> Vec<f64> {
    values.iter().copied().filter(|value| value.is_finite()).collect()
}
