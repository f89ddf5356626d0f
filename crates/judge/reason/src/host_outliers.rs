//! GPUs whose copies with the host, or within their memory, are slower than the others'.

use std::collections::BTreeMap;

use pathline_paste::{MatrixEnd, RateCount, RateMatrix};

use crate::cause_table::CauseFacts;
use crate::draft::DraftAnswer;
use crate::figures::figure;
use crate::node_facts::NodeLimits;
use crate::outlier::{Outlier, slow_values};
use crate::pair_levels::host_cells;
use crate::score::{ObservedFeature, WorldEdit};

/// Deviation from exactly half or a quarter of a rate that packets and clocks explain.
pub(crate) const EXACT: f64 = 0.06;

/// The few GPUs of a test that are slower than the others.
pub(crate) fn slow_columns(
    rates: &BTreeMap<u32, f64>,
    what: &str,
    are_peers: bool,
) -> Vec<(u32, Outlier)> {
    if !are_peers {
        return Vec::new();
    }
    let rates: Vec<(u32, f64)> = rates.iter().map(|(gpu, rate)| (*gpu, *rate)).collect();
    let values: Vec<f64> = rates.iter().map(|rate| rate.1).collect();
    let Some((slow, usual)) = slow_values(&values, 0.25).or_else(|| slower_of_two(&values)) else {
        return Vec::new();
    };
    let check = "lspci -vv | grep LnkSta of that GPU and of each bridge above it, under load: width and speed against LnkCap";
    let each = slow.iter().filter_map(|at| {
        let (gpu, value) = *rates.get(*at)?;
        let one = Outlier::new(format!("gpu{gpu}"), value, usual, "GB/s", "the other GPUs");
        let text = format!("{what}: {}", one.text);
        Some((gpu, Outlier { text, ..one }.checked_by(check)))
    });
    each.collect()
}

/// Of two parts neither is usual, but a link of half the rate is no spread of equal ones.
pub(crate) fn slower_of_two(values: &[f64]) -> Option<(Vec<usize>, f64)> {
    let [a, b] = *values else { return None };
    let (at, slow, fast) = if a < b { (0, a, b) } else { (1, b, a) };
    (slow > 0.0 && slow < fast * 0.6).then(|| (vec![at], fast))
}

/// GPUs whose copies with the host are slower than the others', each once. A link that lost lanes or generations
/// is slow in both directions.
pub(crate) fn slow_host_links(matrices: &[&RateMatrix], node: Option<&NodeLimits>) -> Vec<Outlier> {
    let mut found: Vec<Outlier> = Vec::new();
    let alone = |m: &&&RateMatrix| !m.concurrent && m.count != RateCount::Sum;
    let ways = [true, false].map(|inward| -> Vec<BTreeMap<u32, f64>> {
        let rates = matrices.iter().filter(alone).map(|m| host_rates(m, inward));
        rates.flat_map(|rates| by_class(rates, node)).collect()
    });
    let are_peers = node.is_none_or(|node| node.has_one_product);
    let slow = |way: usize| -> Vec<(u32, Outlier)> {
        let what = if way == 0 { "H2D" } else { "D2H" };
        let all = ways.get(way).into_iter().flatten();
        all.flat_map(|rates| slow_columns(rates, what, are_peers)).collect()
    };
    let slow = [slow(0), slow(1)];
    for (way, (gpu, one)) in
        slow.iter().enumerate().flat_map(|(way, all)| all.iter().map(move |one| (way, one)))
    {
        if found.iter().any(|known| known.part == one.part) {
            continue;
        }
        let is_known = ways.get(1 - way).into_iter().flatten().any(|rates| rates.contains_key(gpu));
        let is_slow = slow.get(1 - way).into_iter().flatten().any(|(other, _)| other == gpu);
        // NVLink-C2C, which carries more than PCIe, loses no lanes.
        let is_chip = |rates: &BTreeMap<u32, f64>| {
            node.is_some_and(|node| {
                node.c2c_gbs > 0.0 && rates.values().any(|r| *r > node.pcie_gbs)
            })
        };
        let lanes = match one.share {
            _ if ways.iter().flatten().any(is_chip) => "",
            _ if is_known && !is_slow => "; its other direction is normal, so no lanes are lost",
            share if (share / 0.5 - 1.0).abs() < EXACT => {
                ": half of its lanes, or a generation less"
            }
            share if (share / 0.25 - 1.0).abs() < EXACT => {
                ": a quarter of its lanes, or two generations less"
            }
            _ => "",
        };
        let both = if is_slow { "both directions, " } else { "" };
        found.push(Outlier { text: format!("{both}{}{lanes}", one.text), ..one.clone() });
    }
    found
}

/// Rates of peers: of a node that is known each class by itself.
fn by_class(rates: BTreeMap<u32, f64>, node: Option<&NodeLimits>) -> Vec<BTreeMap<u32, f64>> {
    let mut classes: BTreeMap<Option<usize>, BTreeMap<u32, f64>> = BTreeMap::new();
    for (gpu, rate) in rates {
        let class = node.and_then(|node| node.peer_classes.get(&(gpu, gpu))).copied();
        classes.entry(class).or_default().insert(gpu, rate);
    }
    classes.into_values().collect()
}

/// The rate of each GPU with the host in one direction; of several memory domains the nearest.
fn host_rates(matrix: &RateMatrix, inward: bool) -> BTreeMap<u32, f64> {
    let mut rates: BTreeMap<u32, f64> = BTreeMap::new();
    for (gpu, value) in host_cells(matrix, inward) {
        let best = rates.entry(gpu).or_insert(value);
        *best = best.max(value);
    }
    rates
}

/// Rate by GPU of copies with the host, or within the GPU.
pub(crate) fn by_gpu(matrix: &RateMatrix) -> BTreeMap<u32, f64> {
    let host = [true, false].map(|inward| host_cells(matrix, inward).collect::<Vec<_>>()).concat();
    let local = |&(from, to, value): &(MatrixEnd, MatrixEnd, f64)| match (from, to) {
        (MatrixEnd::Gpu(a), MatrixEnd::Gpu(b)) if a == b => Some((a, value)),
        _ => None,
    };
    match host.is_empty() {
        true => matrix.cells.iter().filter_map(local).filter(|(_, value)| *value > 0.0).collect(),
        false => host.into_iter().collect(),
    }
}

/// GPUs that lose more than others when both directions run, and when all GPUs copy at once.
pub(crate) fn shared_paths(draft: &mut DraftAnswer, matrices: &[&RateMatrix]) -> Vec<WorldEdit> {
    let find = |is: &dyn Fn(&&&RateMatrix) -> bool| {
        matrices.iter().filter(is).map(|m| by_gpu(m)).find(|rates| rates.len() > 2)
    };
    let mut edits = Vec::new();
    let Some(alone) = find(&|m| !m.concurrent && m.count == RateCount::OneWay) else {
        return edits;
    };
    let text = |rates: &BTreeMap<u32, f64>, gpus: &[u32]| {
        let each =
            gpus.iter().filter_map(|gpu| Some(format!("gpu{gpu} {}", figure(*rates.get(gpu)?))));
        each.collect::<Vec<_>>().join(", ")
    };
    let ratios = |rates: &BTreeMap<u32, f64>| -> Vec<(u32, f64)> {
        rates.iter().filter_map(|(gpu, r)| Some((*gpu, r / alone.get(gpu)?))).collect()
    };
    let slow = |ratios: &[(u32, f64)], below: f64| -> Vec<u32> {
        ratios.iter().filter(|r| r.1 < below).map(|r| r.0).collect()
    };
    let least =
        |ratios: &[(u32, f64)]| ratios.iter().map(|r| r.1).fold(f64::INFINITY, f64::min).max(1e-3);
    if let Some(both) = find(&|m| !m.concurrent && m.count == RateCount::Sum) {
        let ratios = ratios(&both);
        // Both directions together carry 1.5 to 1.9 times one of them.
        let slow = slow(&ratios, 0.9);
        draft.features.push(ObservedFeature::of_sound("duplex-least", least(&ratios), (1.6, 0.25)));
        if !slow.is_empty() && slow.len() < ratios.len() {
            let facts = CauseFacts::new(&[("least", least(&ratios))]);
            edits.push(facts.word("rates", text(&both, &slow)).cause("host.slow-both-ways"));
        }
    }
    if let Some(at_once) = find(&|m| m.concurrent && m.count == RateCount::OneWay) {
        let ratios = ratios(&at_once);
        let slow = slow(&ratios, 0.6);
        draft.features.push(ObservedFeature::of_sound("at-once-least", least(&ratios), (0.9, 0.2)));
        if slow.len() > 1 {
            let sum = slow.iter().filter_map(|gpu| at_once.get(gpu)).sum();
            let facts = CauseFacts::new(&[("sum", sum)]).word("rates", text(&at_once, &slow));
            edits.push(facts.cause("host.shared-uplink"));
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use pathline_paste::MatrixTool;

    use super::*;

    /// A matrix of rocm-bandwidth-test: two domains, four GPUs, copies within their memory on the diagonal.
    fn matrix(inward: impl Fn(u32) -> f64, outward: impl Fn(u32) -> f64) -> RateMatrix {
        let mut cells = Vec::new();
        for gpu in 0..4 {
            for domain in 0..2 {
                let host = MatrixEnd::Host(Some(domain));
                cells.push((host, MatrixEnd::Gpu(gpu), inward(gpu)));
                cells.push((MatrixEnd::Gpu(gpu), host, outward(gpu)));
            }
            cells.push((MatrixEnd::Gpu(gpu), MatrixEnd::Gpu(gpu), 2100.0));
        }
        RateMatrix { cells, ..RateMatrix::new(MatrixTool::RocmBandwidth, "") }
    }

    #[test]
    fn a_narrow_link_is_narrow_both_ways() {
        let half = |gpu: u32| if gpu == 2 { 27.4 } else { 55.0 };
        let found = slow_host_links(&[&matrix(half, half)], None);
        assert_eq!(found.len(), 1);
        assert!(found[0].text.contains("gpu2") && found[0].text.contains("half of its lanes"));
        let found = slow_host_links(&[&matrix(|_| 55.0, half)], None);
        assert!(
            found[0].text.starts_with("D2H: gpu2") && found[0].text.ends_with("no lanes are lost")
        );
        assert!(slow_host_links(&[&matrix(|_| 55.0, |_| 54.0)], None).is_empty());
    }
}
