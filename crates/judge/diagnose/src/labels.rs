//! Texts for paths, movers and the spread that is normal for them.

use std::collections::BTreeSet;

use pathline_schema::{Case, Flow, KernelOp, MemKind, Mover, Topology, Unit};

use serde::Serialize;

/// How far the times of healthy paths spread, which differs by what they are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TailKind {
    /// Between GPUs: set by the clocks of links.
    GpuLink,
    /// A GPU's own memory and kernels: depends on power and temperature.
    Local,
    /// Between a GPU and the host: depends on where pages and CPUs lie, by process.
    HostLink,
    /// Short operations, whose time is latency, and memory that migrates.
    Latency,
}

/// Largest payload whose time is latency rather than rate.
const LATENCY_BYTES: u64 = 64 << 10;

/// `SDMA copy`, `kernel read`, `page migration`.
pub(crate) fn mover_label(topology: &Topology, flow: &Flow) -> String {
    match flow.by {
        Mover::Dma { at } => {
            let gpu = at.gpu().and_then(|n| topology.gpus.iter().find(|gpu| gpu.index == n));
            let sdma = gpu.is_some_and(|gpu| gpu.caps().copy_engine_env.is_some());
            let copy = if sdma { "SDMA copy" } else { "engine copy" };
            match is_read_by_engine(flow) {
                true => format!("{copy} by {at}"),
                false => copy.to_owned(),
            }
        }
        Mover::Blit { .. } => "blit kernel".into(),
        Mover::Kernel { variant, .. } if variant.op == KernelOp::Chase => "load latency".into(),
        Mover::Kernel { variant, .. } => format!("kernel {}", variant.op),
        Mover::Cpu { work, .. } => format!("CPU {}", work.op),
        Mover::Migrate { .. } => "page migration".into(),
        Mover::Staged { .. } => "staged copy".into(),
        Mover::Threads { .. } => "copy by threads".into(),
        Mover::Batch { .. } => "batched copies".into(),
        Mover::Blocks { .. } => "scattered blocks".into(),
        Mover::Relay { .. } => "relayed copy".into(),
        Mover::CopyToAll { .. } => "copy to all".into(),
        Mover::Call { call, .. } => format!("call {call}"),
        Mover::Wire { .. } => "message".into(),
        Mover::Io { .. } => "file I/O".into(),
        Mover::Meta { meta, .. } => format!("metadata {}", meta.op),
    }
}

/// `gpu2→gpu3`, `gpu2` for what stays within a unit.
pub(crate) fn ends_label(flow: &Flow) -> String {
    if flow.src.unit == flow.dst.unit {
        flow.src.unit.to_string()
    } else {
        format!("{}→{}", flow.src.unit, flow.dst.unit)
    }
}

/// `gpu2→gpu3, SDMA copy`; of several flows their paths joined by `+`.
pub(crate) fn case_label(topology: &Topology, case: &Case) -> String {
    let ends: Vec<String> = case.timed.iter().map(ends_label).collect();
    let mover = case.timed.first().map_or_else(String::new, |flow| mover_label(topology, flow));
    format!("{}, {mover}", ends.join(" + "))
}

/// The spread that is normal for a case: that of the least steady of its flows.
pub(crate) fn tail_kind(case: &Case) -> TailKind {
    let of_flow = |flow: &Flow| {
        let chase =
            matches!(flow.by, Mover::Kernel { variant, .. } if variant.op == KernelOp::Chase);
        if chase || flow.bytes.0 <= LATENCY_BYTES || matches!(flow.by, Mover::Call { .. }) {
            return TailKind::Latency;
        }
        let ends = [flow.src.unit, flow.dst.unit, flow.by.at()];
        let unsteady = [flow.src.mem, flow.dst.mem]
            .iter()
            .any(|mem| matches!(mem, MemKind::Paged | MemKind::Huge | MemKind::Managed));
        let paged = unsteady || matches!(flow.by, Mover::Migrate { .. }) || flow.by.is_on_files();
        let host = ends.iter().any(|unit| !matches!(unit, Unit::Gpu(_))) || flow.by.via().is_some();
        match (paged, host, flow.src.unit == flow.dst.unit) {
            (true, ..) => TailKind::Latency,
            (false, true, _) => TailKind::HostLink,
            (false, false, true) => TailKind::Local,
            (false, false, false) => TailKind::GpuLink,
        }
    };
    case.flows().map(of_flow).max().unwrap_or(TailKind::Latency)
}

/// Whether the engine of the destination moves a copy between two GPUs.
pub(crate) fn is_read_by_engine(flow: &Flow) -> bool {
    matches!(flow.by, Mover::Dma { at } if at == flow.dst.unit && flow.src.unit.gpu().is_some() && flow.src.unit != at)
}

/// `7 pairs out of gpu3`, `2 paths`: the ends of flows, each counted once.
pub(crate) fn paths_text(flows: &[Flow]) -> String {
    let ends: BTreeSet<[Unit; 2]> =
        flows.iter().map(|flow| [flow.src.unit, flow.dst.unit]).collect();
    let is_pair =
        |ends: &[Unit; 2]| ends[0] != ends[1] && ends.iter().all(|unit| unit.gpu().is_some());
    let noun = if ends.iter().all(is_pair) { "pair" } else { "path" };
    let plural = if ends.len() == 1 { "" } else { "s" };
    let common = |side: usize| {
        let units: BTreeSet<Unit> = ends.iter().map(|ends| ends[side]).collect();
        units.first().copied().filter(|_| units.len() == 1)
    };
    let side = match (common(0), common(1)) {
        (Some(src), None) => format!(" out of {src}"),
        (None, Some(dst)) => format!(" into {dst}"),
        _ => {
            let sets = ends.iter().map(|ends| BTreeSet::from(*ends));
            let all = sets.reduce(|a, b| &a & &b).unwrap_or_default();
            all.first()
                .filter(|_| all.len() == 1)
                .map_or(String::new(), |unit| format!(" of {unit}"))
        }
    };
    format!("{} {noun}{plural}{side}", ends.len())
}

/// `31 to 32 %`: the range of shares of a speed.
pub(crate) fn loss_text(losses: impl Iterator<Item = f64> + Clone) -> String {
    let percent = |share: f64| match share * 100.0 {
        small if small < 9.95 => format!("{small:.1}"),
        large => format!("{large:.0}"),
    };
    let low = percent(losses.clone().fold(f64::INFINITY, f64::min));
    let high = percent(losses.fold(0.0, f64::max));
    if low == high { format!("{high} %") } else { format!("{low} to {high} %") }
}

/// GPUs that the name of a part has: 2 and 4 of `xGMI gpu2-gpu4`.
pub fn gpus_in(part: &str) -> BTreeSet<u32> {
    let words = part.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter_map(|word| word.strip_prefix("gpu")?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths of GPUs alone are steady. What the host has a part in varies with the process, and so does what pages,
    /// calls and starts decide: of two flows, the less steady.
    #[test]
    fn the_least_steady_flow_says_what_is_normal() {
        let kind = |case: &str| tail_kind(&case.parse().expect("a case"));
        let pair = "gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB";
        let host = "numa0.pinned > gpu0.vram by dma@gpu0 x 64MiB";
        let own = "gpu0.vram > gpu0.vram by kernel@gpu0[copy-w16-u4-b256-g2sm] x 64MiB";
        assert_eq!(
            [pair, host, own].map(kind),
            [TailKind::GpuLink, TailKind::HostLink, TailKind::Local]
        );
        assert_eq!(kind(&format!("{pair} & {host}")), TailKind::HostLink);
        for unsteady in [
            "numa0.paged > gpu0.vram by dma@gpu0 x 64MiB",
            "gpu0.vram > numa0.huge by dma@gpu0 x 64MiB",
            "gpu0.vram > gpu1.vram by dma@gpu0 x 16B isolated",
            "gpu0.vram > gpu0.reg by kernel@gpu0[chase-w8-u1-b1-g1] x 64MiB",
            "numa3.paged > numa3.registered by call@gpu0[register] x 16MiB isolated",
        ] {
            assert_eq!(kind(unsteady), TailKind::Latency, "{unsteady}");
        }
        assert_eq!(kind("gpu0.vram > gpu2.vram by staged@gpu0[numa3] x 64MiB"), TailKind::HostLink);
    }

    #[test]
    fn ends_in_common_are_named() {
        let text = |ends: &[(u32, u32)]| {
            let flow = |(a, b): &(u32, u32)| -> Flow {
                format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 1MiB").parse().expect("a flow")
            };
            paths_text(&ends.iter().map(flow).collect::<Vec<_>>())
        };
        assert_eq!(text(&[(3, 0), (3, 1), (3, 1)]), "2 pairs out of gpu3");
        assert_eq!(text(&[(0, 3), (1, 3)]), "2 pairs into gpu3");
        assert_eq!(text(&[(0, 3), (3, 1)]), "2 pairs of gpu3");
        assert_eq!(
            (text(&[(0, 1), (2, 3)]), text(&[(0, 1)])),
            ("2 pairs".to_owned(), "1 pair".to_owned())
        );
        assert_eq!(text(&[(0, 0), (1, 1)]), "2 paths");
        // From 9.95 % on without a decimal.
        assert_eq!(loss_text([0.0994, 0.0996].into_iter()), "9.9 to 10 %");
        assert_eq!(loss_text([0.314, 0.306].into_iter()), "31 %");
    }
}
