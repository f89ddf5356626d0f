//! Upper bounds for any transfer, from the known facts of a machine.
//!
//! A ceiling is what a figure is compared with; a hard peak is what refutes it. It follows from widths
//! and clocks of hardware alone: a link's lanes and their line rate, a memory's bus and its clock. These
//! have none:
//!
//! - A measured part, or one described by its rate alone: that is an observation, not a limit.
//! - Memory of a NUMA domain, and what joins domains: the caches of processors stand before them, and a
//!   store that misses passes them twice or once.
//! - A route through the host from GPU to GPU: it is taken where no other link is known, and there may be
//!   one that nothing could read.
//! - Links between GPUs whose sources contradict each other.
//!
//! A PCIe link counts with its highest speed and width, since it may idle at a lower one. What the cache
//! of a GPU may keep is taken off the bytes that pass a stretch.

use pathline_schema::{CopyAgent, FMA_PER_BYTE, Flow, Gpu, GpuCaps, MemKind, Rate, Topology};

const MIB: f64 = 1024.0 * 1024.0;

/// The most that a GPU's cache keeps from a link, rounded up: 126 MB of L2 on B200 (NVIDIA, Blackwell
/// tuning guide).
const LINK_CACHE: f64 = 128.0 * MIB;

/// The most that a cache keeps from a GPU's memory: 256 MB of Infinity Cache (AMD CDNA 3 white paper).
pub(crate) const MEMORY_CACHE: f64 = 256.0 * MIB;

/// Warnings of a topology about links between GPUs.
const LINK_WARNINGS: [&str; 3] = ["link-asymmetric", "xgmi-count-flat", "xgmi-width-unknown"];

/// Whether the sources of a topology agree on its links between GPUs.
pub(crate) fn has_sure_links(topology: &Topology) -> bool {
    !LINK_WARNINGS.iter().any(|code| topology.has_warning(code))
}

/// Bytes of a flow that may be counted without having passed its links: none where a copy engine
/// carries them between memories that stay where they are, else what a cache keeps or the runtime
/// stages.
pub(crate) fn kept_from_links(flow: &Flow) -> f64 {
    let by_engine = flow.by.facts().copy_agent == Some(CopyAgent::Engine);
    let stays = |mem| !matches!(mem, MemKind::Paged | MemKind::Huge | MemKind::Managed);
    if by_engine && stays(flow.src.mem) && stays(flow.dst.mem) { 0.0 } else { LINK_CACHE }
}

/// The most that a stretch of this peak can seem to carry, if `kept` of `bytes` do not pass it.
pub(crate) fn apparent_peak(peak: Rate, kept: f64, bytes: f64) -> Option<Rate> {
    let passed = 1.0 - kept / bytes;
    (passed > 0.0).then(|| peak * (1.0 / passed))
}

/// The peak of a GPU's PCIe link at its highest speed and width.
pub(crate) fn pcie_peak(gpu: &Gpu) -> Option<Rate> {
    let link = gpu.host_link?;
    Some(Rate(link.peak().0.max(link.max_peak().0)))
}

/// Payload of a compute kernel in bytes per ns, in single precision or double, on all compute units.
pub(crate) fn arithmetic_rate(compute_units: u32, caps: &GpuCaps, double: bool) -> f64 {
    let each = caps.fma_per_cycle[usize::from(double)] * caps.clock_ghz;
    f64::from(compute_units.max(1)) * each / FMA_PER_BYTE as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MachineDesc, Network};
    use pathline_schema::{Link, LinkEnd, LinkKind, NumaDomain, PcieLink, TopologyWarning};

    fn hard(topology: &Topology, flow: &str) -> Option<f64> {
        let peak = Network::from_topology(topology).hard_peak(&flow.parse().unwrap());
        peak.map(|(rate, _)| (rate.gbs() * 10.0).round() / 10.0)
    }

    const COPY: &str = "kernel@gpu0[copy-w16-u4-b256-g2sm]";

    /// 50 GB/s a link; of 256 MiB a cache may keep 128, of 1 GiB an eighth; 16 B pass as all do.
    #[test]
    fn links_have_a_peak_less_what_caches_keep() {
        let node = MachineDesc::preset("mi250x").unwrap().topology();
        let flow = |by: &str, size: &str| format!("gpu0.vram > gpu2.vram by {by} x {size}");
        assert_eq!(hard(&node, &flow("dma@gpu0", "16B")), Some(50.0));
        assert_eq!(hard(&node, &flow("dma@gpu0", "1GiB")), Some(50.0));
        assert_eq!(hard(&node, &flow(COPY, "128MiB")), None);
        assert_eq!(hard(&node, &flow(COPY, "256MiB")), Some(100.0));
        assert_eq!(hard(&node, &flow(COPY, "1GiB")), Some(57.1));
        // Two links, then the narrowest stretch of three hops: 1-0-6-7 is two links wide.
        assert_eq!(hard(&node, "gpu0.vram > gpu6.vram by dma@gpu0 x 1MiB"), Some(100.0));
        assert_eq!(hard(&node, "gpu1.vram > gpu7.vram by dma@gpu1 x 1MiB"), Some(100.0));
        // A link whose ends name different widths is described wrongly at one end. What is left is
        // the memory: 1600 GB/s x 4 / 3.
        let mut suspect = node.clone();
        let (code, subject) = ("link-asymmetric".to_owned(), "gpu0-gpu2".to_owned());
        suspect.warnings.push(TopologyWarning { code, subject, text: String::new() });
        assert_eq!(hard(&suspect, &flow("dma@gpu0", "1GiB")), Some(2133.3));
    }

    /// 1638.4 GB/s of the MI250X's memory, half of it for a copy, of whose 2 bytes for 1 a cache may
    /// keep 256 MiB: of 2 GiB an eighth.
    #[test]
    fn memories_of_gpus_have_a_peak_and_those_of_the_host_none() {
        let mut node = MachineDesc::preset("mi250x").unwrap().topology();
        node.gpus[0].memory_peak = Some(Rate(1638.4));
        let copy = |size: &str| hard(&node, &format!("gpu0.vram > gpu0.vram by dma@gpu0 x {size}"));
        assert_eq!(copy("64MiB"), None);
        // 819.2 x 8 / 7.
        assert_eq!(copy("1GiB"), Some(936.2));
        let by_cpu = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1GiB";
        assert_eq!(hard(&node, by_cpu), None);
    }

    /// 16 lanes that idle at 2.5 GT/s and can do 32: 63 GB/s.
    #[test]
    fn a_pcie_link_counts_at_its_highest_speed() {
        let host_link =
            Some(PcieLink { speed_gts: 2.5, width: 16, max_speed_gts: 32.0, max_width: 16 });
        let gpu = |index| Gpu { index, numa: Some(0), host_link, ..Gpu::default() };
        let link = |index| Link {
            a: LinkEnd::Gpu(index),
            b: LinkEnd::Numa(0),
            kind: LinkKind::Pcie,
            width: 1,
            peak: Some(Rate(4.0)),
        };
        let node = Topology {
            gpus: vec![gpu(0), gpu(1)],
            numa: vec![NumaDomain::default()],
            links: vec![link(0), link(1)],
            ..Topology::default()
        };
        assert_eq!(hard(&node, "numa0.pinned > gpu0.vram by dma@gpu0 x 1MiB"), Some(63.0));
        // Pageable memory is staged: the last blocks may still be in flight when the call ends.
        assert_eq!(hard(&node, "numa0.paged > gpu0.vram by dma@gpu0 x 64MiB"), None);
        // There may be a link other than through the host that discovery cannot see.
        assert_eq!(hard(&node, "gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB"), None);
    }
}
