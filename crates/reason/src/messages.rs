//! Causes for OSU's benchmarks and for perftest.

use pathline_paste::{MessageTable, MessageTest, NetworkTable, PasteContext};

use crate::draft::DraftAnswer;
use crate::draft::ProbeSubject;
use crate::node_facts::is_set;
use crate::node_facts::{NodeLimits, figure};
use crate::score::{AnswerClass, ObservedFeature, WorldEdit};

/// The deepest fall from a size to the next one, from 1 KiB on: the rate after over the rate before, with
/// the two sizes.
fn deepest_fall(rows: &[(u64, f64)]) -> Option<(f64, u64, u64, f64, f64)> {
    let mut deepest: Option<(f64, u64, u64, f64, f64)> = None;
    for pair in rows.windows(2) {
        let [(a, before), (b, after)] = *pair else { continue };
        if a < 1024 || before <= 0.0 {
            continue;
        }
        let ratio = after / before;
        if deepest.is_none_or(|(least, ..)| ratio < least) {
            deepest = Some((ratio, a, b, before, after));
        }
    }
    deepest
}

/// Rates and times of MPI.
pub(crate) fn explain(
    table: &MessageTable,
    node: Option<&NodeLimits>,
    context: &PasteContext,
) -> DraftAnswer {
    let ways = if table.test == MessageTest::BothWays { 2.0 } else { 1.0 };
    let best = table.rows.iter().map(|r| r.1).fold(0.0, f64::max);
    let where_ = match table.on_gpu {
        Some((true, true)) => "GPU to GPU memory",
        Some((false, true)) => "host to GPU memory",
        Some((true, false)) => "GPU to host memory",
        _ => "host memory",
    };
    let on_gpu = table.on_gpu.is_some_and(|(a, b)| a || b);
    let subject = if on_gpu { ProbeSubject::GpuPairs } else { ProbeSubject::Nothing };
    let mut draft = DraftAnswer { subject, ..DraftAnswer::default() };
    if matches!(table.test, MessageTest::Latency | MessageTest::Group(_)) {
        // A message of 0 B touches no buffer.
        let smallest = table.rows.iter().find(|row| row.0 > 0).or(table.rows.first());
        let small = smallest.map_or(0.0, |r| r.1);
        let largest = table.rows.last().copied().unwrap_or((0, 0.0));
        let rate = if largest.1 > 0.0 { largest.0 as f64 / largest.1 / 1e3 } else { 0.0 };
        draft.meaning = format!(
            "MPI {}, {where_}: {} us at {} B, {} us at {} B ({} GB/s)",
            if let MessageTest::Group(op) = table.test {
                format!("{op}, mean over ranks")
            } else {
                "latency, half a round trip".to_owned()
            },
            figure(small),
            smallest.map_or(0, |r| r.0),
            figure(largest.1),
            largest.0,
            figure(rate)
        );
        draft.limit = "a message of host memory takes 0.2 to 0.5 us on a node and 1 to 2 us over RDMA; one of GPU memory a few us".to_owned();
        draft.features.push(ObservedFeature::new("start", small.max(1e-3)));
        latency_edits(&mut draft, on_gpu);
        return draft;
    }
    let at = table.rows.iter().find(|r| r.1 >= best * 0.999).map_or(0, |r| r.0);
    draft.meaning = format!(
        "MPI bandwidth, {where_}: at most {} GB/s (OSU's MB is 1e6 B), at {at} B; {}",
        figure(best),
        match table.test {
            MessageTest::BothWays => "both directions, summed",
            MessageTest::MultiPair => "all pairs, summed",
            _ => "one direction",
        }
    );
    draft.value = Some(best / ways);
    draft.features.push(ObservedFeature::new("best", best.max(1e-4) / ways));
    let fall = deepest_fall(&table.rows);
    if let Some((ratio, ..)) = fall {
        draft.features.push(ObservedFeature::new("fall", ratio.clamp(1e-3, 1.0)));
    }
    if let Some(node) = node {
        let limit = if on_gpu && node.pair_gbs > 0.0 { node.pair_gbs } else { node.pcie_gbs };
        let source =
            if node.pair_gbs > 0.0 && on_gpu { node.links_source } else { node.pcie_source };
        draft.limit = format!(
            "{} GB/s each way between GPUs of a node, {} GB/s an adapter ({})",
            figure(limit),
            figure(node.nic_gbs),
            source.label()
        );
        draft.limit_gbs = Some(limit);
    } else {
        draft.limit = "unknown: the paste names no GPU and no links".to_owned();
    }
    bandwidth_edits(&mut draft, node, on_gpu, fall, context);
    draft
}

fn bandwidth_edits(
    draft: &mut DraftAnswer,
    node: Option<&NodeLimits>,
    on_gpu: bool,
    fall: Option<(f64, u64, u64, f64, f64)>,
    context: &PasteContext,
) {
    let flat = |edit: WorldEdit| edit.expects("fall", 0.97, 0.12);
    let smsc = is_set(context, "OMPI_MCA_btl", "tcp,self");
    if let Some((_, from, to, before, after)) = fall.filter(|f| f.0 < 0.8) {
        let rendezvous = (2048..=1 << 20).contains(&to);
        draft.edits.push(WorldEdit::new("protocol-switch", AnswerClass::Software, if rendezvous { 0.5 } else { 0.15 })
            .expects("fall", 0.45, 0.55)
            .expects("best", draft.value.unwrap_or(1.0), 0.6)
            .says(format!("{} GB/s at {from} B, {} at {to} B: another protocol begins there (eager to rendezvous, or another transport), and is the slower one", figure(before), figure(after)))
            .decided_by("UCX_RNDV_THRESH=inf and =8k, UCX_PROTO_INFO=y; FI_CXI_RDZV_THRESHOLD; MPICH_GPU_IPC_THRESHOLD; the library before and after an upgrade"));
    }
    let Some(node) = node else {
        if let Some(nic) = context.network_gbits.map(|gbits| gbits / 8.0) {
            draft.edits.push(flat(network_full(nic)));
        }
        if !on_gpu {
            draft.edits.push(flat(shared_memory()));
        }
        draft.edits.push(flat(
            WorldEdit::new("tcp", AnswerClass::SetUpSo, 0.1)
                .expects("best", 1.5, 0.6)
                .says("TCP instead of RDMA or shared memory")
                .decided_by("UCX_LOG_LEVEL=info; mpirun --mca pml_base_verbose 10"),
        ));
        return;
    };
    let pcie = node.pcie_gbs;
    if on_gpu {
        if node.pair_gbs > 0.0 {
            draft.edits.push(flat(
                WorldEdit::new("link-full", AnswerClass::AsExpected, 0.35)
                    .expects("best", node.pair_gbs * 0.87, 0.12)
                    .says(format!(
                        "a window of messages fills the link: 87 % of {} GB/s",
                        figure(node.pair_gbs)
                    ))
                    .decided_by("a larger -m; pathline run --suite mpi-bandwidth"),
            ));
        }
        if node.product.is_some_and(|p| p.name.starts_with("MI2")) {
            draft.edits.push(flat(WorldEdit::new("sdma-cap", AnswerClass::SetUpSo, 0.25).expects("best", 45.0, 0.15)
                .says("MPI copies between GPUs by SDMA: at most 50 GB/s whatever the links").decided_by("HSA_ENABLE_SDMA=0, with which the library's copies go by blit kernel: large messages between GPUs of several links get faster")));
        }
        draft.edits.push(flat(
            WorldEdit::new(
                "pcie-peer",
                AnswerClass::AsExpected,
                if node.pair_gbs > 0.0 { 0.06 } else { 0.3 },
            )
            .expects("best", pcie * 0.75, 0.2)
            .says(format!("P2P over PCIe: 75 % of {} GB/s", figure(pcie)))
            .decided_by("nvidia-smi topo -m; UCX_TLS=cuda_ipc"),
        ));
        draft.edits.push(flat(WorldEdit::new("through-host-memory", AnswerClass::SetUpSo, 0.25).expects("best", pcie * 0.2, 0.7)
            .says("messages of GPU memory are staged in host memory: no IPC, no GPUDirect RDMA, or an MPI without GPU support on this path").decided_by("UCX_TLS with cuda_ipc or rocm_ipc, gdr_copy; ucx_info -d; ompi_info | grep -i cuda")));
    }
    let nic = node.nic_gbs;
    draft.edits.push(flat(network_full(nic)));
    draft.edits.push(flat(
        WorldEdit::new("tcp", AnswerClass::SetUpSo, 0.08)
            .expects("best", 1.5, 0.6)
            .seen(if smsc { 3.0 } else { 0.0 })
            .says("TCP instead of RDMA or shared memory")
            .decided_by("UCX_LOG_LEVEL=info; UCX_TLS; mpirun --mca pml ucx"),
    ));
    if !on_gpu {
        draft.edits.push(flat(shared_memory()));
    }
}

fn shared_memory() -> WorldEdit {
    WorldEdit::new("shared-memory", AnswerClass::AsExpected, 0.3)
        .expects("best", 11.0, 0.4)
        .says("two processes of a node copy by cores, through memory that both reach: 5 to 20 GB/s")
        .decided_by("pathline run --suite mpi-bandwidth")
}

fn network_full(nic: f64) -> WorldEdit {
    WorldEdit::new("network-full", AnswerClass::AsExpected, 0.25)
        .expects("best", nic * 0.95, 0.06)
        .says(format!("one adapter at its line rate: 95 % of {} GB/s", figure(nic)))
        .decided_by("ib_write_bw")
}

fn latency_edits(draft: &mut DraftAnswer, on_gpu: bool) {
    if on_gpu {
        draft.edits.push(
            WorldEdit::new("gpu-message", AnswerClass::AsExpected, 0.4)
                .expects("start", 3.5, 0.6)
                .says("a message of GPU memory: a copy or a doorbell for each")
                .decided_by("the same with H H"),
        );
        draft.edits.push(
            WorldEdit::new("staged-message", AnswerClass::SetUpSo, 0.25)
                .expects("start", 20.0, 0.5)
                .says("each message waits for copies through host memory")
                .decided_by("gdr_copy for UCX (ucx_info -d), MPICH_GPU_SUPPORT_ENABLED"),
        );
    } else {
        draft.edits.push(
            WorldEdit::new("host-message", AnswerClass::AsExpected, 0.5)
                .expects("start", 0.6, 0.7)
                .says("a message by shared memory or RDMA")
                .decided_by("pathline run --suite mpi-latency"),
        );
        draft.edits.push(
            WorldEdit::new("tcp", AnswerClass::SetUpSo, 0.2)
                .expects("start", 18.0, 0.5)
                .says("TCP instead of RDMA or shared memory")
                .decided_by("UCX_TLS; mpirun --mca pml ucx"),
        );
    }
}

/// Line rates of adapters, GB/s.
const LINE_RATES: [f64; 11] = [1.25, 3.125, 5.0, 6.25, 7.0, 12.5, 25.0, 50.0, 100.0, 20.0, 10.0];

/// A table of perftest.
pub(crate) fn explain_network(
    table: &NetworkTable,
    node: Option<&NodeLimits>,
    context: &PasteContext,
) -> DraftAnswer {
    let mut draft = DraftAnswer::default();
    let best = table.rows.iter().map(|r| r.1).fold(0.0, f64::max);
    if table.is_latency {
        return explain_network_latency(table);
    }
    let ways = if table.both_ways { 2.0 } else { 1.0 };
    let rate = best / ways;
    // Nothing is faster than its line: the least line rate that carries the figure, if none is named.
    let named = context.network_gbits.map(|g| g / 8.0).filter(|line| rate <= line * 1.01);
    let fits = LINE_RATES.iter().copied().filter(|line| rate <= *line);
    let fits = fits.fold(f64::INFINITY, f64::min);
    let fits = if fits.is_finite() { fits } else { rate };
    let line = named.unwrap_or(fits);
    let source =
        if named.is_some() { "in the paste" } else { "assumed: the least that carries it" };
    let small = table.rows.iter().map(|r| r.0).max().unwrap_or(0);
    draft.meaning = format!(
        "{}{}: {} GB/s = {} Gbit/s (perftest's MB is 2^20 B, its Gb 1e9 bit)",
        if table.test.is_empty() { "RDMA bandwidth" } else { &table.test },
        if table.on_gpu { ", GPU memory" } else { "" },
        figure(best),
        figure(best * 8.0)
    );
    draft.limit =
        format!("{} Gbit/s = {} GB/s each way ({source})", figure(line * 8.0), figure(line));
    draft.limit_gbs = Some(line);
    draft.value = Some(rate);
    draft.features.push(ObservedFeature::new("rate", rate.max(1e-4)));
    let far = node.is_some_and(|n| n.crosses_sockets);
    draft.edits.push(
        WorldEdit::new(
            "line-full",
            AnswerClass::AsExpected,
            if named.is_some() { 0.4 } else { 0.5 },
        )
        .expects("rate", line * 0.965, 0.03)
        .says("the adapter is at its line rate; headers take 2 to 5 %")
        .decided_by("none needed"),
    );
    if table.on_gpu {
        draft.edits.push(WorldEdit::new("gpu-far-from-adapter", AnswerClass::SetUpSo, 0.35).expects("rate", line * 0.42, 0.4).seen(if far { 1.5 } else { 0.0 })
            .says("RDMA of GPU memory passes a root port or the link between sockets: P2P reads there are slow").decided_by("nvidia-smi topo -m: take the adapter with PIX or PXB; host memory on the same adapter"));
    }
    draft.edits.extend(slower_parts(line, named.is_some()));
    if small < 65_536 {
        draft.edits.push(
            // An adapter starts 5 to 20 million messages a second on one queue pair or few: 1e7 x B / 1e9.
            WorldEdit::new(
                "small-size",
                AnswerClass::AsExpected,
                if small <= 8192 { 0.8 } else { 0.2 },
            )
            .expects("rate", (line * 0.5).min(small as f64 * 1e-2), 0.6)
            .says(format!("messages of {small} B: the message rate binds"))
            .decided_by("-s 1048576, or -a"),
        );
    }
    if table.mtu.is_some_and(|mtu| mtu <= 1024) {
        draft.edits.push(
            WorldEdit::new("small-mtu", AnswerClass::SetUpSo, 0.25)
                .expects("rate", line * 0.88, 0.06)
                .says("path MTU 1024 B: 60 to 90 B of headers each")
                .decided_by("MTU 9000 on interface and switch: path MTU 4096"),
        );
    }
    if table.queue_pairs == Some(1) {
        draft.edits.push(
            WorldEdit::new("one-queue-pair", AnswerClass::SetUpSo, 0.04)
                .expects("rate", line * 0.6, 0.3)
                .says("one queue pair: one path of a bond, one engine of the adapter")
                .decided_by("-q 4"),
        );
    }
    draft.edits.push(WorldEdit::new("far-core", AnswerClass::SetUpSo, 0.08).expects("rate", line * 0.7, 0.2).says("process or memory on the other socket than the adapter").decided_by("numactl --cpunodebind=N --membind=N, N of /sys/class/infiniband/*/device/numa_node"));
    if small <= 8192 {
        // Small messages reach neither a slot's rate nor a port's.
        let of_size = |edit: &&mut WorldEdit| !["small-size", "line-full"].contains(&edit.id);
        draft.edits.iter_mut().filter(of_size).for_each(|edit| edit.evidence -= 2.0);
    }
    draft
}

/// The adapter's slot and its port at less than the line's rate; `is_known` whether that is stated.
fn slower_parts(line: f64, is_known: bool) -> Vec<WorldEdit> {
    let mut edits = Vec::new();
    for (lanes, gbs) in
        [("PCIe 3 x8", 6.9), ("PCIe 3 x16 or 4 x8", 13.6), ("PCIe 4 x16 or 5 x8", 27.0)]
    {
        if gbs < line * 0.9 {
            edits.push(
                WorldEdit::new("adapter-slot", AnswerClass::SetUpSo, 0.1)
                    .expects("rate", gbs, 0.06)
                    .says(format!("{lanes} of the adapter's slot carries {gbs} GB/s"))
                    .decided_by("lspci -vv -s ADAPTER | grep LnkSta; mlnx_tune"),
            );
        }
    }
    if is_known {
        // A port that trained at another generation's rate, or with half of its lanes.
        for lower in LINE_RATES.iter().copied().filter(|lower| *lower < line * 0.9) {
            edits.push(
                WorldEdit::new("link-rate-low", AnswerClass::HardwareSuspect, 0.05)
                    .expects("rate", lower * 0.965, 0.03)
                    .says(format!(
                        "the port runs at {} Gbit/s instead of {}",
                        figure(lower * 8.0),
                        figure(line * 8.0)
                    ))
                    .decided_by("ibstat or ethtool: Rate of the port at both ends; the cable"),
            );
        }
    }
    edits
}

fn explain_network_latency(table: &NetworkTable) -> DraftAnswer {
    let mut draft = DraftAnswer::default();
    let first = table.rows.first().copied().unwrap_or_default();
    draft.meaning = format!(
        "{}: typical {} us at {} B",
        if table.test.is_empty() { "RDMA latency" } else { &table.test },
        figure(first.1),
        first.0
    );
    draft.limit = "1 to 2 us through one switch".to_owned();
    draft.features.push(ObservedFeature::new("start", first.1.max(1e-3)));
    draft.edits.push(
        WorldEdit::new("rdma-message", AnswerClass::AsExpected, 0.6)
            .expects("start", 1.6, 0.4)
            .says("one RDMA operation through one switch")
            .decided_by("the same on two ports of one adapter"),
    );
    draft.edits.push(WorldEdit::new("slow-host", AnswerClass::SetUpSo, 0.2).expects("start", 4.0, 0.4).says("power states of the processor, a far socket, a virtual machine, or Ethernet with several switches").decided_by("numactl on the adapter's domain; performance governor"));
    draft
}
