//! GPUs whose copies with the host, or within their memory, are slower than the others'.

use std::collections::BTreeMap;

use pathline_paste::{MatrixEnd, RateCount, RateMatrix};

use crate::node_facts::NodeLimits;
use crate::outlier::{Outlier, slow_values};

/// Deviation from exactly half or a quarter of a rate that packets and clocks explain.
const EXACT: f64 = 0.06;

/// The few GPUs of a test that are slower than the others.
pub(crate) fn slow_columns(rates: &BTreeMap<u32, f64>, what: &str) -> Vec<(u32, Outlier)> {
    let rates: Vec<(u32, f64)> = rates.iter().map(|(gpu, rate)| (*gpu, *rate)).collect();
    let values: Vec<f64> = rates.iter().map(|rate| rate.1).collect();
    let Some((slow, usual)) = slow_values(&values, 0.25) else { return Vec::new() };
    let each = slow.iter().filter_map(|at| {
        let (gpu, value) = *rates.get(*at)?;
        let one = Outlier::new(format!("gpu{gpu}"), value, usual, "GB/s", "the other GPUs");
        let text = format!("{what}: {}", one.text);
        let one = Outlier { text, ..one };
        Some((gpu, one.checked_by(
            "lspci -vv | grep LnkSta of that GPU and of each bridge above it, under load: width and speed against LnkCap",
        )))
    });
    each.collect()
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
    let slow = |way: usize| -> Vec<(u32, Outlier)> {
        let what = if way == 0 { "H2D" } else { "D2H" };
        ways.get(way).into_iter().flatten().flat_map(|rates| slow_columns(rates, what)).collect()
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
        let lanes = match one.share {
            _ if is_known && !is_slow => "; its other direction is normal, so no lanes are lost",
            share if (share / 0.5 - 1.0).abs() < EXACT => {
                ": half of its lanes, or a generation less"
            }
            share if (share / 0.25 - 1.0).abs() < EXACT => {
                ": a quarter of its lanes, or two generations less"
            }
            _ => "",
        };
        found.push(Outlier { text: format!("{}{lanes}", one.text), ..one.clone() });
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
    for &(from, to, value) in matrix.cells.iter().filter(|cell| cell.2 > 0.0) {
        let gpu = match (from, to) {
            (MatrixEnd::Host(_), MatrixEnd::Gpu(gpu)) if inward => gpu,
            (MatrixEnd::Gpu(gpu), MatrixEnd::Host(_)) if !inward => gpu,
            _ => continue,
        };
        let best = rates.entry(gpu).or_insert(value);
        *best = best.max(value);
    }
    rates
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
