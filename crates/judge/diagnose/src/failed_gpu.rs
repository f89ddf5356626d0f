//! The GPU that failed operations have in common.

use std::collections::BTreeSet;

use pathline_schema::{Case, Topology};

use crate::labels::gpus_in;

/// The GPU that fails, given the cases that failed with their errors: the one that all of them use, or that of several
/// such which the errors name.
pub fn failed_gpu(failed: &[(&Case, &str)]) -> Option<u32> {
    let of_case = |(case, _): &(&Case, &str)| -> BTreeSet<u32> {
        let units = case.flows().flat_map(|flow| [flow.src.unit, flow.dst.unit, flow.by.at()]);
        units.filter_map(|unit| unit.gpu()).collect()
    };
    // What follows a semicolon is advice or output.
    let named = |(_, error): &(&Case, &str)| gpus_in(error.split(';').next().unwrap_or_default());
    let common = failed.iter().map(of_case).reduce(|a, b| &a & &b)?;
    let all_name = failed.iter().map(named).reduce(|a, b| &a & &b)?;
    let one = |gpus: &BTreeSet<u32>| gpus.first().copied().filter(|_| gpus.len() == 1);
    one(&common).or_else(|| one(&(&common & &all_name)))
}

/// What to do about a GPU on which operations fail: `` `dmesg` for amdgpu messages of gpu3, reset it, then the vendor``.
pub fn failed_gpu_remedy(topology: &Topology, gpu: u32) -> String {
    let found = topology.gpus.iter().find(|found| found.index == gpu);
    let log = found.map_or("driver", |found| found.caps().kernel_log);
    let pci = found.map(|found| found.pci.to_string()).filter(|pci| !pci.is_empty());
    let pci = pci.map_or(String::new(), |pci| format!(" ({pci})"));
    format!("`dmesg` for {log} messages of gpu{gpu}{pci}, reset it, then the vendor")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// gpu3 is in every case. Of one case between two GPUs the error decides, and without it nothing does.
    #[test]
    fn the_gpu_is_that_of_all_cases_or_of_the_error() {
        let found = |rows: &[(&str, &str)]| {
            let cases: Vec<Case> = rows
                .iter()
                .map(|(case, _)| format!("{case} x 1MiB").parse().expect("a case"))
                .collect();
            let rows: Vec<(&Case, &str)> = cases.iter().zip(rows.iter().map(|row| row.1)).collect();
            failed_gpu(&rows)
        };
        let out = ("gpu3.vram > gpu2.vram by dma@gpu3", "wait on gpu3: no answer in 1 s (timeout)");
        let into = ("gpu1.vram > gpu3.vram by dma@gpu1", "wait: timeout");
        assert_eq!((found(&[out, into]), found(&[out])), (Some(3), Some(3)));
        assert_eq!((found(&[into]), found(&[])), (None, None));
        assert_eq!(found(&[("gpu3.vram > gpu2.vram by dma@gpu3", "timeout; see gpu3")]), None);
    }
}
