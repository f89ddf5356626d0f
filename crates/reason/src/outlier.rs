//! The GPU or pair of a matrix that differs from its peers: needs no limit.

use std::collections::{BTreeMap, BTreeSet};

use pathline_paste::{MatrixEnd, RateCount, RateMatrix};

use crate::node_facts::figure;

/// Below this share of the median of its peers a value is an outlier; tables of one node differ by less.
const OUTLIER_SHARE: f64 = 0.9;
/// Fewest peers, the outlier included, that make one.
const MIN_PEERS: usize = 3;

/// A part whose figures all lie below those of its peers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MatrixOutlier {
    /// `gpu2`, `gpu1-gpu2`.
    pub(crate) part: String,
    /// Its value over the median of its peers.
    pub(crate) share: f64,
    /// In words, with both figures.
    pub(crate) text: String,
}

/// The median of some values; none of none.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    pathline_stats::interpolated(&pathline_stats::ascending(values), 0.5)
}

/// The farthest outlier of some matrices. `is_uniform`: all pairs have the same links, so that a slow pair is
/// one, too.
pub(crate) fn find_outlier(matrices: &[&RateMatrix], is_uniform: bool) -> Option<MatrixOutlier> {
    let found = matrices.iter().filter(|matrix| matrix.peer_access != Some(false));
    let found = found.flat_map(|matrix| {
        [host_outlier(matrix), gpu_outlier(matrix), pair_outlier(matrix, is_uniform)]
    });
    found.flatten().min_by(|a, b| a.share.total_cmp(&b.share))
}

fn unit(matrix: &RateMatrix) -> &'static str {
    if matrix.is_latency { "us" } else { "GB/s" }
}

/// Speed: a rate, or the inverse of a time.
fn speed(matrix: &RateMatrix, value: f64) -> f64 {
    if matrix.is_latency { 1.0 / value } else { value }
}

/// Parts, at least three, of which fewer than half are slow: the slowest with the median of the others.
fn slowest(
    parts: &BTreeMap<String, f64>,
    matrix: &RateMatrix,
    what: &str,
) -> Option<MatrixOutlier> {
    if parts.len() < MIN_PEERS {
        return None;
    }
    let middle = median(parts.values().map(|value| speed(matrix, *value)))?;
    let share = |value: f64| speed(matrix, value) / middle;
    let slow = || parts.iter().filter(|(_, value)| share(**value) < OUTLIER_SHARE);
    let (name, value) = slow().min_by(|a, b| share(*a.1).total_cmp(&share(*b.1)))?;
    if slow().count() * 2 >= parts.len() {
        return None;
    }
    let names: Vec<&str> = slow().map(|(name, _)| name.as_str()).collect();
    let peers = speed(matrix, middle);
    Some(MatrixOutlier {
        part: names.join(", "),
        share: share(*value),
        text: format!(
            "{name}{what}: {} {unit}, {:.0} % of the {} {unit} of its peers",
            figure(*value),
            share(*value) * 100.0,
            figure(peers),
            unit = unit(matrix),
        ),
    })
}

/// A GPU whose copies with the host are slow, into or out of it.
fn host_outlier(matrix: &RateMatrix) -> Option<MatrixOutlier> {
    let cells = |inward: bool| {
        let mut best: BTreeMap<u32, f64> = BTreeMap::new();
        for &(from, to, value) in matrix.cells.iter().filter(|cell| cell.2 > 0.0) {
            let gpu = match (from, to) {
                (MatrixEnd::Host(_), MatrixEnd::Gpu(gpu)) if inward => gpu,
                (MatrixEnd::Gpu(gpu), MatrixEnd::Host(_)) if !inward => gpu,
                _ => continue,
            };
            // Of several memory domains the nearest.
            let known = best.entry(gpu).or_insert(value);
            if speed(matrix, value) > speed(matrix, *known) {
                *known = value;
            }
        }
        best.into_iter().map(|(gpu, value)| (format!("gpu{gpu}"), value)).collect()
    };
    let of = |inward: bool, what: &str| slowest(&cells(inward), matrix, what);
    of(true, ", from the host").or_else(|| of(false, ", to the host"))
}

/// Pairs of GPUs with their values.
fn pairs(matrix: &RateMatrix) -> Vec<(u32, u32, f64)> {
    let pair = |&(from, to, value): &(MatrixEnd, MatrixEnd, f64)| match (from, to) {
        (MatrixEnd::Gpu(a), MatrixEnd::Gpu(b)) if a != b && value > 0.0 => Some((a, b, value)),
        _ => None,
    };
    matrix.cells.iter().filter_map(pair).collect()
}

/// A GPU all of whose pairs are slow; the best of its pairs stands for it.
fn gpu_outlier(matrix: &RateMatrix) -> Option<MatrixOutlier> {
    let pairs = pairs(matrix);
    let gpus: BTreeSet<u32> = pairs.iter().flat_map(|&(a, b, _)| [a, b]).collect();
    let best = |gpu: u32| {
        let own = pairs.iter().filter(|&&(a, b, _)| a == gpu || b == gpu).map(|pair| pair.2);
        own.max_by(|a, b| speed(matrix, *a).total_cmp(&speed(matrix, *b)))
    };
    let parts = gpus.iter().filter_map(|&gpu| Some((format!("gpu{gpu}"), best(gpu)?)));
    slowest(&parts.collect(), matrix, ", all pairs")
}

/// A pair that is slow where all have the same links.
fn pair_outlier(matrix: &RateMatrix, is_uniform: bool) -> Option<MatrixOutlier> {
    if !is_uniform || matrix.count == RateCount::OneOfBoth {
        return None;
    }
    let parts = pairs(matrix);
    let parts = parts.iter().map(|(a, b, value)| (format!("gpu{a}-gpu{b}"), *value));
    slowest(&parts.collect(), matrix, "")
}

#[cfg(test)]
mod tests {
    use pathline_paste::{CopyMeans, MatrixTool};

    use super::*;

    fn matrix(cells: Vec<(MatrixEnd, MatrixEnd, f64)>) -> RateMatrix {
        RateMatrix {
            tool: MatrixTool::Nvbandwidth,
            test: String::new(),
            is_latency: false,
            count: RateCount::OneWay,
            peer_access: None,
            means: CopyMeans::Engine,
            concurrent: false,
            cells,
        }
    }

    fn all_pairs(gpus: u32, rate: impl Fn(u32, u32) -> f64) -> RateMatrix {
        let gpu = MatrixEnd::Gpu;
        let pairs = (0..gpus).flat_map(|a| (0..gpus).map(move |b| (a, b)));
        matrix(pairs.filter(|(a, b)| a != b).map(|(a, b)| (gpu(a), gpu(b), rate(a, b))).collect())
    }

    #[test]
    fn a_gpu_at_half_of_its_peers_is_named_with_both_figures() {
        let host = |gpu, rate| (MatrixEnd::Host(None), MatrixEnd::Gpu(gpu), rate);
        let table = matrix(vec![host(0, 55.0), host(1, 55.2), host(2, 55.1), host(3, 27.4)]);
        let found = find_outlier(&[&table], false).unwrap();
        // The median of 27.4, 55, 55.1, 55.2 is 55.05.
        assert_eq!(found.part, "gpu3");
        assert!(found.text.contains("27.4 GB/s, 50 % of the 55.0"), "{}", found.text);
        // Two GPUs have no peers, and two of four are no minority.
        assert_eq!(find_outlier(&[&matrix(vec![host(0, 55.0), host(1, 27.0)])], false), None);
        let half = matrix(vec![host(0, 55.0), host(1, 55.0), host(2, 27.0), host(3, 27.0)]);
        assert_eq!(find_outlier(&[&half], false), None);
    }

    #[test]
    fn all_pairs_of_a_gpu_or_one_pair_of_a_uniform_mesh() {
        let slow_gpu = all_pairs(4, |a, b| if a == 1 || b == 1 { 350.0 } else { 394.0 });
        assert_eq!(
            find_outlier(&[&slow_gpu], false).map(|found| found.part).as_deref(),
            Some("gpu1")
        );
        let slow_pair = all_pairs(4, |a, b| if a + b == 3 && a * b == 2 { 20.0 } else { 40.0 });
        let found = find_outlier(&[&slow_pair], true).unwrap();
        assert_eq!((found.part.as_str(), found.share), ("gpu1-gpu2, gpu2-gpu1", 0.5));
        // Where pairs have one or two links, one of them is none: each GPU has a fast pair.
        assert_eq!(find_outlier(&[&slow_pair], false), None);
        // A slow time is a large one.
        let mut times = slow_gpu.clone();
        times.is_latency = true;
        assert_eq!(find_outlier(&[&times], false).map(|found| found.share < 0.9), None);
    }
}
