//! `gpu_metrics` of amdgpu.

use pathline_gpu::xgmi_counts;

/// A header of each version of `gpu_metrics`, with bytes as many as it states.
pub(crate) fn gpu_metrics() -> Vec<Vec<u8>> {
    let sizes = [(3, 120), (4, 288), (5, 328), (6, 1664), (7, 2208), (8, 3360u16)];
    let seed = |(version, size): (u8, u16)| {
        let mut bytes = size.to_le_bytes().to_vec();
        bytes.extend([1, version]);
        bytes.resize(usize::from(size), version);
        bytes
    };
    sizes.into_iter().map(seed).collect()
}

/// Reads the counters of links.
pub(crate) fn xgmi(input: &[u8]) -> String {
    xgmi_counts(input).map_or_else(|why| why, |counts| format!("read 1.{}", counts.version))
}
