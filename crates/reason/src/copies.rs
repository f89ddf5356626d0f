//! Causes for matrices of copies: between GPUs, and between host and GPUs.

use std::collections::BTreeMap;

use pathline_paste::{
    CopyMeans, LineSpan, MatrixEnd, MatrixTool, PasteContext, RateCount, RateMatrix, TimedTransfer,
};

use crate::draft::DraftAnswer;
use crate::draft::ProbeSubject;
use crate::node_facts::{NodeLimits, figure};
use crate::product_facts::FabricKind;
use crate::score::{AnswerClass, ObservedFeature, WorldEdit};

/// Share of PCIe that pinned copies reach: 256 B packets with 24 B of headers, acknowledgements and flow
/// control leave 25.5 to 26.5 of 31.5 and 52 to 57 of 63 GB/s.
const PCIE_SHARE: f64 = 0.84;
/// Share of NVLink that a copy engine reaches: 16 of 17 flits are payload, 16 of 17 bits are not error
/// correction.
const NVLINK_SHARE: f64 = 0.885;
/// Share of xGMI that SDMA copies reach: 64 bytes in packets of 85 (`pathline machines mi250x`).
const XGMI_SHARE: f64 = 0.75;
/// One SDMA copy of an MI250X, whatever the links (KTH, Fig. 6c).
const SDMA_GBS: f64 = 50.4;

/// The matrices of a paste that have rates, by tool.
pub(crate) fn by_tool<'a>(
    matrices: &[(LineSpan, &'a RateMatrix)],
) -> Vec<(LineSpan, &'static str, Vec<&'a RateMatrix>)> {
    let mut found = Vec::new();
    for tool in [
        MatrixTool::Nvbandwidth,
        MatrixTool::P2pTest,
        MatrixTool::BandwidthSample,
        MatrixTool::TransferBench,
        MatrixTool::RocmBandwidth,
        MatrixTool::BusGrind,
    ] {
        let of = || matrices.iter().filter(|(_, m)| m.tool == tool && !m.is_latency);
        let Some((first, _)) = of().next() else { continue };
        let last = of().map(|(span, _)| span.last).max().unwrap_or(first.last);
        let span = LineSpan { first: first.first, last };
        found.push((span, tool.name(), of().map(|(_, matrix)| *matrix).collect()));
    }
    found
}

/// Drafts for the matrices of one tool: those between GPUs and those with the host.
pub(crate) fn explain_matrices(
    all: &[&RateMatrix],
    node: Option<&NodeLimits>,
    context: &PasteContext,
) -> Vec<DraftAnswer> {
    let between = between_gpus(all, node);
    let host = with_host(all, node, context);
    let between = between.map(|draft| DraftAnswer { subject: ProbeSubject::GpuPairs, ..draft });
    let host = host.map(|draft| DraftAnswer { subject: ProbeSubject::HostLinks, ..draft });
    between.into_iter().chain(host).collect()
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn pairs(matrix: &RateMatrix) -> Vec<(u32, u32, f64)> {
    let pair = |&(from, to, value): &(MatrixEnd, MatrixEnd, f64)| match (from, to) {
        (MatrixEnd::Gpu(a), MatrixEnd::Gpu(b)) if a != b && value > 0.0 => Some((a, b, value)),
        _ => None,
    };
    matrix.cells.iter().filter_map(pair).collect()
}

/// Pairs of GPUs. The headline is the median pair in one direction.
fn between_gpus(matrices: &[&RateMatrix], node: Option<&NodeLimits>) -> Option<DraftAnswer> {
    let find = |on: Option<bool>, count: RateCount| {
        matrices.iter().find(|m| {
            m.count == count && (on.is_none() || m.peer_access == on) && !pairs(m).is_empty()
        })
    };
    let on = find(Some(true), RateCount::OneWay)
        .or_else(|| find(None, RateCount::OneWay))
        .or_else(|| find(None, RateCount::OneOfBoth))
        .or_else(|| find(Some(true), RateCount::Sum))
        .or_else(|| find(None, RateCount::Sum))?;
    let off = find(Some(false), RateCount::OneWay)
        .filter(|_| on.peer_access == Some(true) && on.count == RateCount::OneWay);
    let list = pairs(on);
    let mut values: Vec<f64> = list.iter().map(|&(.., v)| v).collect();
    let middle = median(&mut values)?;
    let least = values.first().copied().unwrap_or(middle);
    let most = values.last().copied().unwrap_or(middle);
    let ways = if on.count == RateCount::Sum { 2.0 } else { 1.0 };
    let mut draft = DraftAnswer {
        meaning: format!(
            "{} of {} GPU pairs: median {} GB/s (1e9 B/s), {} to {}; {}",
            if on.means == CopyMeans::Kernel {
                "copies by a kernel"
            } else {
                "copies by copy engine"
            },
            list.len(),
            figure(middle),
            figure(least),
            figure(most),
            match on.count {
                RateCount::Sum => "both directions, summed",
                RateCount::OneOfBoth => "one direction while both run",
                RateCount::OneWay => "one direction",
            },
        ),
        value: Some(middle / ways),
        ..DraftAnswer::default()
    };
    let ratio = off.and_then(|off| {
        let mut off: Vec<f64> = pairs(off).iter().map(|&(.., v)| v).collect();
        Some(middle / median(&mut off)?)
    });
    if let Some(ratio) = ratio {
        draft.features.push(ObservedFeature::new("on-off", ratio));
    }
    let Some(node) = node else {
        draft.limit = "unknown: the paste names no GPU and no links".to_owned();
        // Whatever the links are: P2P that is slower than its detour is not direct.
        if let Some(ratio) = ratio.filter(|ratio| *ratio < SLOWER_THAN_STAGED) {
            draft.edits.push(through_root(Some(ratio)));
        }
        return Some(draft);
    };
    let has_links = node.pair_gbs > 0.0;
    let limit = if has_links { node.pair_gbs } else { node.pcie_gbs };
    draft.limit_gbs = Some(limit);
    draft.limit = if has_links {
        format!(
            "{} GB/s each way between neighbours ({})",
            figure(limit),
            node.links_source.label()
        )
    } else {
        format!("{} GB/s each way, PCIe ({})", figure(limit), node.pcie_source.label())
    };
    draft.features.push(ObservedFeature::new("pair", middle / ways));
    draft.features.push(ObservedFeature::new("least", (least / middle).max(1e-3)));
    pair_edits(&mut draft, node, ways, &list, ratio);
    Some(draft)
}

fn pair_edits(
    draft: &mut DraftAnswer,
    node: &NodeLimits,
    ways: f64,
    list: &[(u32, u32, f64)],
    ratio: Option<f64>,
) {
    let pcie = node.pcie_gbs;
    let links = node.pair_gbs;
    let check = "pathline run --suite pairs, on the node";
    let duplex = if ways > 1.0 { 0.93 } else { 1.0 };
    if links > 0.0 {
        let (share, sigma, why) = match node.fabric {
            FabricKind::Xgmi => (XGMI_SHARE, 0.1, "xGMI packets carry 64 B in 85 B"),
            _ => (NVLINK_SHARE, 0.08, "line coding and headers take the rest"),
        };
        draft.edits.push(
            WorldEdit::new("link-full", AnswerClass::AsExpected, 0.4)
                .expects("pair", links * share * duplex, sigma)
                .expects("least", 0.97, 0.05)
                .expects("on-off", (links * share / (pcie * 0.6)).max(1.0), 0.5)
                .says(format!(
                    "{why}: {:.0} % of {} GB/s = {}",
                    share * 100.0,
                    figure(links),
                    figure(links * share)
                ))
                .decided_by(check),
        );
        // Meshes: pairs with fewer links, or forwarded ones.
        if node.fabric != FabricKind::Switched {
            draft.edits.push(WorldEdit::new("link-widths-differ", AnswerClass::AsExpected, 0.3)
                .expects("pair", links * share * duplex * 0.8, 0.5).expects("least", 0.5, 0.5)
                .says("pairs have different numbers of links, or none: each figure belongs to its pair's links".to_owned()).decided_by("pathline topo; nvidia-smi topo -m or rocm-smi --showtopo"));
        }
        if node.product.is_some_and(|p| p.name.starts_with("MI250")) {
            // Pairs of one package have four links: a kernel moves 150 GB/s there.
            let most = list.iter().map(|p| p.2).fold(0.0, f64::max) / ways;
            let capped = if most > 60.0 {
                -4.0
            } else if most > 45.0 {
                3.0
            } else {
                0.0
            };
            draft.edits.push(WorldEdit::new("sdma-cap", AnswerClass::SetUpSo, 0.4)
                .expects("pair", SDMA_GBS.min(44.0), 0.14).expects("least", 0.85, 0.2)
                .seen(capped)
                    .says(format!("one SDMA engine copies at most {SDMA_GBS} GB/s whatever the links; a single link carries 37 to 38")).decided_by("HSA_ENABLE_SDMA=0: pairs of several links get faster"));
        }
        for lost in [1.0, 2.0] {
            let total = (links / 25.0).round();
            if node.fabric == FabricKind::Switched && total >= 6.0 {
                let part = (total - lost) / total;
                draft.edits.push(
                    WorldEdit::new("links-lost", AnswerClass::HardwareSuspect, 0.02)
                        .expects("pair", links * share * duplex, 0.08)
                        .expects("least", part, 0.015)
                        .slows_copies(part)
                        .says(format!(
                            "{lost} of {total} links of one GPU down: its pairs at {:.1} %",
                            part * 100.0
                        ))
                        .decided_by("nvidia-smi nvlink -s; pathline health"),
                );
            }
        }
    }
    pcie_edits(draft, node, list, ratio, duplex);
    one_gpu(draft, node, ways, list);
}

/// Below this share of what copies staged in host memory get, P2P is not direct.
const SLOWER_THAN_STAGED: f64 = 0.8;

/// P2P whose packets pass the root port; `ratio` is that of copies with P2P to staged ones.
fn through_root(ratio: Option<f64>) -> WorldEdit {
    let up = "packets between GPUs are sent up to the root port (ACS redirect, IOMMU)";
    WorldEdit::new("peer-through-root", AnswerClass::SetUpSo, 0.15)
        .expects("on-off", 0.4, 0.6)
        .says(match ratio {
            Some(ratio) => format!(
                "with P2P on, copies get {:.0} % of those staged in host memory: {up}",
                ratio * 100.0
            ),
            None => up.to_owned(),
        })
        .decided_by(
            "lspci -vvv | grep ACSCtl (SrcValid+ ReqRedir+ is on); dmesg | grep -i iommu; \
             NCCL_P2P_DISABLE=1 meanwhile",
        )
}

/// Pairs over PCIe: with P2P, sent up to the root port, or staged.
fn pcie_edits(
    draft: &mut DraftAnswer,
    node: &NodeLimits,
    list: &[(u32, u32, f64)],
    ratio: Option<f64>,
    duplex: f64,
) {
    let (pcie, links) = (node.pcie_gbs, node.pair_gbs);
    let check = "pathline run --suite pairs, on the node";
    let no_peer = node.product.is_some_and(|p| !p.pcie_p2p);
    let low = if links > 0.0 { 0.08 } else { 0.3 };
    if links <= 0.0 && !no_peer {
        draft.edits.push(
            WorldEdit::new("pcie-peer", AnswerClass::AsExpected, 0.4)
                .expects("pair", pcie * PCIE_SHARE * duplex, 0.12)
                .expects("least", 0.9, 0.12)
                .expects("on-off", 1.3, 0.25)
                .says(format!(
                    "P2P over PCIe reaches {:.0} % after packet headers: {} GB/s",
                    PCIE_SHARE * 100.0,
                    figure(pcie * PCIE_SHARE)
                ))
                .decided_by(check),
        );
        draft.edits.push(WorldEdit::new("across-sockets", AnswerClass::SetUpSo, 0.2)
            .expects("pair", pcie * 0.65 * duplex, 0.35).expects("least", 0.6, 0.35).expects("on-off", 1.05, 0.25)
            .seen(two_groups(list))
            .says("pairs on two sockets pass the link between the processors; those of one root port do not").decided_by("nvidia-smi topo -m: SYS against PIX, PXB; pathline topo"));
    }
    if ratio.is_none_or(|ratio| ratio < SLOWER_THAN_STAGED) {
        let edit = through_root(ratio);
        // Where staged copies show that it is slower, it may be slower by any factor.
        let (at, sigma) = if ratio.is_some() { (0.15, 1.0) } else { (0.3, 0.5) };
        draft.edits.push(edit.expects("pair", pcie * at, sigma).expects("least", 0.93, 0.15));
    }
    let (class, text) = if no_peer && links <= 0.0 {
        (AnswerClass::AsExpected, "the driver of this product offers no P2P over PCIe")
    } else {
        (AnswerClass::SetUpSo, "no P2P between these GPUs")
    };
    draft.edits.push(WorldEdit::new("staged", class, if no_peer { 0.6 } else { low })
        .expects("pair", pcie * 0.55, 0.4).expects("least", 0.9, 0.2).expects("on-off", 1.0, 0.05)
        .says(format!("{text}: copies are staged in host memory, out and in")).decided_by("P2P Connectivity Matrix of the test; cudaDeviceCanAccessPeer; nvidia-smi topo -p2p r"));
}

/// One GPU whose pairs, both ways, are slower than all others.
fn one_gpu(draft: &mut DraftAnswer, node: &NodeLimits, ways: f64, list: &[(u32, u32, f64)]) {
    let most = list.iter().map(|&(a, b, _)| a.max(b)).max().unwrap_or(0).min(63);
    if most < 2 {
        return;
    }
    let mean = |of: &dyn Fn(u32, u32) -> bool| {
        let values: Vec<f64> = list.iter().filter(|&&(a, b, _)| of(a, b)).map(|p| p.2).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    for gpu in 0..=most {
        let (Some(own), Some(rest)) =
            (mean(&|a, b| a == gpu || b == gpu), mean(&|a, b| a != gpu && b != gpu))
        else {
            continue;
        };
        // The least of the others must be above the best of this one.
        let best =
            list.iter().filter(|&&(a, b, _)| a == gpu || b == gpu).map(|p| p.2).fold(0.0, f64::max);
        let worst = list
            .iter()
            .filter(|&&(a, b, _)| a != gpu && b != gpu)
            .map(|p| p.2)
            .fold(f64::INFINITY, f64::min);
        if own > rest * 0.85 || best > worst {
            continue;
        }
        let limit = if node.pair_gbs > 0.0 {
            node.pair_gbs * NVLINK_SHARE
        } else {
            node.pcie_gbs * PCIE_SHARE
        };
        draft.edits.push(WorldEdit::new("one-gpu-slow", AnswerClass::HardwareSuspect, 0.1)
            .expects("pair", rest / ways, 0.15).expects("least", (own / rest).max(0.02), 0.2).expects("on-off", 1.2, 0.5)
            .seen(2.0)
            .slows_copies((own / rest).max(0.02))
            .says(format!("all pairs of gpu{gpu} are slow ({} of {} GB/s), no others: its link is narrow or degraded, of {} GB/s", figure(own), figure(rest), figure(limit)))
            .decided_by(format!("lspci -vv | grep LnkSta and nvidia-smi -i {gpu} -q under load; pathline health")));
        return;
    }
}

/// Log likelihood ratio for pairs in two groups: fast within each, slow between.
fn two_groups(list: &[(u32, u32, f64)]) -> f64 {
    let most = list.iter().map(|&(a, b, _)| a.max(b)).max().unwrap_or(0);
    let half = most.div_ceil(2);
    if most < 3 {
        return 0.0;
    }
    let mean = |same: bool| {
        let of = |&&(a, b, _): &&(u32, u32, f64)| ((a < half) == (b < half)) == same;
        let values: Vec<f64> = list.iter().filter(of).map(|p| p.2).collect();
        values.iter().sum::<f64>() / (values.len().max(1)) as f64
    };
    let ratio = mean(false) / mean(true).max(1e-9);
    if (0.9..=1.15).contains(&ratio) { -1.0 } else { 1.5 }
}

/// Host memory and GPUs.
fn with_host(
    matrices: &[&RateMatrix],
    node: Option<&NodeLimits>,
    context: &PasteContext,
) -> Option<DraftAnswer> {
    let rates = |inward: bool, count: RateCount, kernel: bool| {
        let mut values: Vec<f64> = matrices
            .iter()
            .filter(|m| {
                m.count == count && (m.means == CopyMeans::Kernel) == kernel && !m.concurrent
            })
            .flat_map(|m| &m.cells)
            .filter_map(|&(from, to, value)| match (from, to) {
                (MatrixEnd::Host(_), MatrixEnd::Gpu(_)) if inward => Some(value),
                (MatrixEnd::Gpu(_), MatrixEnd::Host(_)) if !inward => Some(value),
                _ => None,
            })
            .collect();
        median(&mut values)
            .map(|middle| (middle, values.first().copied().unwrap_or(middle), values.len()))
    };
    let one_way = |inward| rates(inward, RateCount::OneWay, false);
    let both = |inward| rates(inward, RateCount::OneOfBoth, false);
    let kernel = (rates(true, RateCount::OneWay, true), rates(false, RateCount::OneWay, true));
    let (inward, outward) = (one_way(true), one_way(false));
    let (both_in, both_out) = (both(true), both(false));
    let by_kernel =
        inward.is_none() && outward.is_none() && (kernel.0.is_some() || kernel.1.is_some());
    let (inward, outward) = if by_kernel { kernel } else { (inward, outward) };
    let headline =
        [inward, outward, both_in, both_out].into_iter().flatten().map(|v| v.0).fold(0.0, f64::max);
    if headline <= 0.0 {
        return None;
    }
    let say =
        |name: &str, v: Option<(f64, f64, usize)>| v.map(|(m, ..)| format!("{name} {}", figure(m)));
    let parts: Vec<String> = [
        say("H2D", inward),
        say("D2H", outward),
        say("H2D while D2H runs", both_in),
        say("D2H while H2D runs", both_out),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut draft = DraftAnswer {
        meaning: format!(
            "host copies{}: {} GB/s (1e9 B/s){}",
            if by_kernel { " by a kernel" } else { "" },
            parts.join(", "),
            if both_in.or(both_out).is_some() { "; of two streams one is reported" } else { "" }
        ),
        value: Some(headline),
        ..DraftAnswer::default()
    };
    let Some(node) = node else {
        draft.limit = "unknown: the paste names no GPU and no link".to_owned();
        return Some(draft);
    };
    let pcie = node.pcie_gbs;
    draft.limit = format!("{} GB/s each way, PCIe ({})", figure(pcie), node.pcie_source.label());
    draft.limit_gbs = Some(pcie);
    chip_to_chip(&mut draft, node, headline);
    for (id, value) in
        [("in", inward), ("out", outward), ("both-in", both_in), ("both-out", both_out)]
    {
        draft
            .features
            .extend(value.filter(|v| v.0 > 0.0).map(|(m, ..)| ObservedFeature::new(id, m)));
    }
    if let Some((middle, least, _)) = inward.or(outward).filter(|v| v.2 > 2) {
        draft.features.push(ObservedFeature::new("least", (least / middle).max(1e-3)));
    }
    host_edits(
        &mut draft,
        pcie,
        by_kernel,
        both_in.or(both_out).is_some() || (both_in.is_some() && inward.is_some()),
        matrices,
        context,
    );
    shared_paths(&mut draft, matrices);
    Some(draft)
}

/// Copies over NVLink-C2C, where a module of Grace is faster than PCIe.
fn chip_to_chip(draft: &mut DraftAnswer, node: &NodeLimits, headline: f64) {
    let c2c = node.product.map_or(0.0, |product| product.c2c_gbs);
    // A module of Grace: its GPU reaches the processor's memory over NVLink-C2C, unless a slot holds it.
    if c2c > 0.0 && headline > node.pcie_gbs {
        draft.limit = format!("{} GB/s each way, NVLink-C2C (assumed of the product)", figure(c2c));
        draft.limit_gbs = Some(c2c);
        draft.edits.push(
            WorldEdit::new("link-full", AnswerClass::AsExpected, 0.5)
                .expects("in", c2c * 0.85, 0.1)
                .expects("out", c2c * 0.68, 0.15)
                .expects("both-in", c2c * 0.5, 0.4)
                .expects("both-out", c2c * 0.5, 0.4)
                .expects("least", 0.97, 0.1)
                .says(format!(
                    "NVLink-C2C: copies to the GPU reach 85 % of {} GB/s, copies from it 68 %",
                    figure(c2c)
                ))
                .decided_by("pathline run --suite host-link, on the node"),
        );
    }
}

/// Rate by GPU of copies with the host.
fn by_gpu(matrix: &RateMatrix) -> BTreeMap<u32, f64> {
    let cell = |&(from, to, value): &(MatrixEnd, MatrixEnd, f64)| match (from, to) {
        (MatrixEnd::Host(_), MatrixEnd::Gpu(gpu)) | (MatrixEnd::Gpu(gpu), MatrixEnd::Host(_)) => {
            Some((gpu, value))
        }
        _ => None,
    };
    matrix.cells.iter().filter_map(cell).filter(|(_, value)| *value > 0.0).collect()
}

/// GPUs that lose more than others when both directions run, and when all GPUs copy at once.
fn shared_paths(draft: &mut DraftAnswer, matrices: &[&RateMatrix]) {
    let find = |is: &dyn Fn(&&&RateMatrix) -> bool| {
        matrices.iter().filter(is).map(|m| by_gpu(m)).find(|rates| rates.len() > 2)
    };
    let Some(alone) = find(&|m| !m.concurrent && m.count == RateCount::OneWay) else { return };
    // One direction of one GPU is what a full link gives.
    let sound = draft.edits.iter().find(|edit| edit.id == "pcie-full");
    let sound = sound.map(|edit| edit.expects.clone()).unwrap_or_default();
    let of_sound = |mut edit: WorldEdit| {
        edit.expects.extend(sound.iter().copied());
        edit
    };
    let text = |rates: &BTreeMap<u32, f64>, gpus: &[u32]| {
        let each =
            gpus.iter().filter_map(|gpu| Some(format!("gpu{gpu} {}", figure(*rates.get(gpu)?))));
        each.collect::<Vec<_>>().join(", ")
    };
    let ratios = |rates: &BTreeMap<u32, f64>| -> Vec<(u32, f64)> {
        rates.iter().filter_map(|(gpu, r)| Some((*gpu, r / alone.get(gpu)?))).collect()
    };
    let least = |ratios: &[(u32, f64)]| ratios.iter().map(|r| r.1).fold(f64::INFINITY, f64::min);
    if let Some(both) = find(&|m| !m.concurrent && m.count == RateCount::Sum) {
        let ratios = ratios(&both);
        // Both directions together carry 1.5 to 1.9 times one of them.
        let slow: Vec<u32> = ratios.iter().filter(|r| r.1 < 0.9).map(|r| r.0).collect();
        draft.features.push(ObservedFeature {
            id: "duplex-least",
            value: least(&ratios).max(1e-3),
            if_sound: Some((1.6, 0.25)),
        });
        if !slow.is_empty() && slow.len() < ratios.len() {
            draft.edits.push(
                of_sound(WorldEdit::new("slow-both-ways", AnswerClass::HardwareSuspect, 0.1)
                    .expects("duplex-least", least(&ratios).max(1e-3), 0.3)
                    .seen(3.0)
                    .slows_copies(0.5)
                    .says(format!(
                        "with both directions {} GB/s in all, less than one direction alone: errors and \
                         replays on their links, or credits of their root port",
                        text(&both, &slow)
                    ))
                    .decided_by("dmesg | grep AER; lspci -vv: CESta, LnkSta of GPU and bridges under load; swap the slots"),
                ),
            );
        }
    }
    if let Some(at_once) = find(&|m| m.concurrent && m.count == RateCount::OneWay) {
        let ratios = ratios(&at_once);
        let slow: Vec<u32> = ratios.iter().filter(|r| r.1 < 0.6).map(|r| r.0).collect();
        draft.features.push(ObservedFeature {
            id: "at-once-least",
            value: least(&ratios).max(1e-3),
            if_sound: Some((0.9, 0.2)),
        });
        if slow.len() > 1 {
            draft.edits.push(
                of_sound(WorldEdit::new("shared-uplink", AnswerClass::SetUpSo, 0.15)
                    .expects("at-once-least", 0.45, 0.3)
                    .seen(2.0)
                    .says(format!(
                        "with all GPUs at once {} GB/s: they share an uplink, a root complex or their \
                         socket's memory, {} GB/s together",
                        text(&at_once, &slow),
                        figure(slow.iter().filter_map(|gpu| at_once.get(gpu)).sum())
                    ))
                    .decided_by("pathline run --suite fan; nvidia-smi topo -m: PXB, NODE or PHB among them"),
                ),
            );
        }
    }
}

/// One GPU whose copies with the host are slower than the others'.
fn one_slow_host_link(draft: &mut DraftAnswer, full: f64) {
    // One of several at exactly half or a quarter.
    for part in [0.5, 0.25] {
        draft.edits.push(
            WorldEdit::new("narrow-pcie", AnswerClass::HardwareSuspect, 0.02)
                .expects("in", full, 0.12)
                .expects("out", full, 0.12)
                .expects("least", part, 0.06)
                .expects("both-in", full * 0.8, 0.3)
                .expects("both-out", full * 0.85, 0.3)
                .slows_copies(part)
                .says(format!(
                    "PCIe of one GPU runs at {part} of the others' rate: half or a quarter of its lanes, or a generation below"
                ))
                .decided_by("lspci -vv | grep LnkSta of that GPU and of each bridge above it, under load"),
        );
    }
    draft.edits.push(
        WorldEdit::new("one-gpu-slow", AnswerClass::HardwareSuspect, 0.05)
            .expects("in", full, 0.12)
            .expects("out", full, 0.12)
            .expects("least", 0.45, 0.5)
            .expects("both-in", full * 0.8, 0.3)
            .expects("both-out", full * 0.85, 0.3)
            .slows_copies(0.5)
            .says("one GPU is slower than the others: its link is narrow, or its host memory far")
            .decided_by("pathline health; lspci -vv | grep LnkSta"),
    );
}

fn host_edits(
    draft: &mut DraftAnswer,
    pcie: f64,
    by_kernel: bool,
    has_both: bool,
    matrices: &[&RateMatrix],
    context: &PasteContext,
) {
    let full = pcie * PCIE_SHARE;
    let edit = |id, class, prior, inward: f64, outward: f64, sigma: f64| {
        WorldEdit::new(id, class, prior)
            .expects("in", inward, sigma)
            .expects("out", outward, sigma)
            .expects("both-in", inward * 0.82, sigma.max(0.1) * 1.3)
            .expects("both-out", outward * 0.88, sigma.max(0.1) * 1.3)
            .expects("least", 0.96, 0.07)
    };
    let check = "pathline run --suite host-link, on the node";
    draft.edits.push(
        edit("pcie-full", AnswerClass::AsExpected, 0.45, full, full, 0.09)
            .says(format!(
                "PCIe packets of 256 B with headers leave {:.0} %: {} of {} GB/s",
                PCIE_SHARE * 100.0,
                figure(full),
                figure(pcie)
            ))
            .decided_by(check),
    );
    if has_both {
        draft.edits.push(WorldEdit::new("one-of-two-streams", AnswerClass::MeansSomethingElse, 0.5)
            .expects("in", full, 0.12).expects("out", full, 0.12).expects("both-in", full * 0.5, 0.3).expects("both-out", full * 0.85, 0.3).expects("least", 0.95, 0.15)
            .says("both directions run and one is printed: the other moves as much or more at the same time; reads of the host's memory wait behind writes on this host").decided_by("add both directions: their sum is the duplex rate; pathline run --suite host-link"));
    }
    if by_kernel {
        draft.edits.push(edit("kernel-reads", AnswerClass::AsExpected, 0.5, full * 0.66, full, 0.12)
            .says("a kernel that reads host memory keeps fewer requests in flight than PCIe needs; its writes need none").decided_by("the same by copy engine (_ce): both directions near the limit"));
    }
    for (part, what) in [
        (0.095, "4 lanes of generation 3, as Thunderbolt and OCuLink give"),
        (0.5, "half the lanes or the generation below"),
        (0.25, "a quarter of the lanes or two generations below"),
    ] {
        let prior = match part {
            p if p > 0.3 => 0.12,
            p if p > 0.2 => 0.05,
            _ => 0.02,
        };
        draft.edits.push(
            edit(
                "narrow-pcie",
                AnswerClass::HardwareSuspect,
                prior,
                full * part,
                full * part,
                0.08,
            )
            .slows_copies(part)
            .seen(if context.pcie.zip(context.pcie_most).is_some_and(|(now, most)| now != most) {
                3.0
            } else {
                0.0
            })
            .says(format!("PCIe runs at {what}: {} GB/s", figure(full * part)))
            .decided_by(
                "lspci -vv -s GPU | grep LnkSta under load, on the GPU and each bridge above it",
            ),
        );
    }
    let pageable = matrices.iter().any(|m| m.test.contains("pageable"));
    draft.edits.push(edit("pageable", AnswerClass::SetUpSo, if pageable { 0.6 } else { 0.04 }, 9.0f64.min(full * 0.5), 8.0f64.min(full * 0.5), 0.5)
        .says("pageable memory: the runtime copies through its own pinned buffer, at the rate of one core").decided_by("the same with pinned memory"));
    draft.edits.push(
        edit("far-memory", AnswerClass::SetUpSo, 0.08, full * 0.65, full * 0.65, 0.2)
            .says("the buffers lie in another NUMA domain than the GPU's")
            .decided_by("numactl --cpunodebind=N --membind=N with the GPU's domain N"),
    );
    draft.edits.push(WorldEdit::new("reads-slow", AnswerClass::SetUpSo, 0.08)
        .expects("in", full * 0.5, 0.3).expects("out", full, 0.1).expects("both-in", full * 0.45, 0.3).expects("both-out", full * 0.85, 0.15).expects("least", 0.95, 0.1)
        .says("reads of host memory are slower than writes: few outstanding reads (MRRS, 10-bit tags), IOMMU, or NPS and power states of the processor").decided_by("lspci -vv | grep MaxReadReq; iommu=pt; performance governor"));
    draft.edits.push(WorldEdit::new("writes-slow", AnswerClass::SetUpSo, 0.06)
        .expects("in", full, 0.1).expects("out", full * 0.45, 0.35).expects("both-in", full * 0.7, 0.3).expects("both-out", full * 0.4, 0.35).expects("least", 0.95, 0.1)
        .says("writes to host memory are slower than reads: relaxed ordering off, IOMMU, or a virtual machine").decided_by("lspci -vv | grep RlxdOrd; iommu=pt"));
    one_slow_host_link(draft, full);
}

/// Single transfers of TransferBench as a matrix; those of one test run at once.
pub(crate) fn transfer_matrix(list: &[TimedTransfer]) -> Option<RateMatrix> {
    let first = list.iter().max_by(|a, b| a.gbs.total_cmp(&b.gbs))?;
    let end = |text: &str| {
        let number = text.get(1..).and_then(|n| n.parse().ok());
        match text.get(..1) {
            Some("G" | "F") => number.map(MatrixEnd::Gpu),
            _ => Some(MatrixEnd::Host(number)),
        }
    };
    let cells =
        list.iter().filter_map(|t| Some((end(&t.source)?, end(&t.destination)?, t.gbs))).collect();
    let means =
        if first.executor.starts_with("GPU") { CopyMeans::Kernel } else { CopyMeans::Engine };
    let at_once = list.iter().filter(|t| t.test == first.test).count() > 1;
    Some(RateMatrix {
        tool: MatrixTool::TransferBench,
        test: String::new(),
        is_latency: false,
        count: RateCount::OneWay,
        peer_access: None,
        means,
        concurrent: at_once,
        cells,
    })
}

/// Single transfers of TransferBench.
pub(crate) fn explain_transfers(list: &[TimedTransfer], node: Option<&NodeLimits>) -> DraftAnswer {
    let best = list.iter().map(|t| t.gbs).fold(0.0, f64::max);
    let mut draft = DraftAnswer { value: Some(best), ..DraftAnswer::default() };
    let Some(first) = list.iter().max_by(|a, b| a.gbs.total_cmp(&b.gbs)) else { return draft };
    let Some(matrix) = transfer_matrix(list) else { return draft };
    let means = matrix.means;
    let found = explain_matrices(&[&matrix], node, &PasteContext::default());
    draft = found.into_iter().next().unwrap_or(draft);
    // A kernel of few compute units moves 15 to 20 GB/s with each (TransferBench's scaling preset: 20, 39,
    // 56, 72, 88 GB/s for 1 to 5).
    let units = first.executor.rsplit(':').next().and_then(|n| n.parse::<u32>().ok());
    if let Some(units @ 1..=8) = units.filter(|_| means == CopyMeans::Kernel) {
        let rate = f64::from(units) * 18.0;
        draft.edits.push(
            WorldEdit::new("few-compute-units", AnswerClass::SetUpSo, 0.2)
                .expects("pair", rate, 0.2)
                .expects("in", rate, 0.4)
                .expects("out", rate, 0.4)
                .says(format!(
                    "the kernel has {units} compute units of about 18 GB/s: {} GB/s",
                    figure(rate)
                ))
                .decided_by("NUM_GPU_SE=32, or more sub-executors in the test's line"),
        );
    }
    draft
}
