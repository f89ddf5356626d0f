//! What a setting that takes copy engines away does by size, by the model of a node.

use pathline_flow::Network;
use pathline_message::{ExchangeSpec, MessageLayer, MessageLibrary};
use pathline_schema::{
    Bytes, Case, EffectBasis, Flow, Gpu, MemKind, Mover, Place, SizeEffect, SizeEffects,
    SizedTransfer, Topology, Unit,
};

/// The rate of the first flow of a case by the model, its start included, GB/s.
pub fn predict_rate(network: &Network, case: &Case) -> Option<f64> {
    Some(network.durations(case).ok()?.flows.first()?.rate.gbs())
}

/// What a kernel that streams through the memory of the first GPU keeps of its rate while a blit kernel there copies to
/// the second, and while a copy engine does: `triad keeps 89 % of its rate, 96 % with SDMA`, by the model.
pub fn predict_kernel_cost(network: &Network, topology: &Topology) -> Option<String> {
    let [first, second, ..] = topology.gpus.as_slice() else { return None };
    let [a, b] = [first.index, second.index];
    let triad =
        format!("gpu{a}.vram > gpu{a}.vram by kernel@gpu{a}[triad-w16-u4-b256-g2sm] x 256MiB");
    let copy = format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 256MiB");
    let [triad, engine] = [triad, copy].map(|text| text.parse::<Case>().ok());
    let (triad, engine) = triad.zip(engine)?;
    let kernel: Vec<Flow> = engine.timed.iter().map(Flow::by_copy_kernel).collect();
    let alone = predict_rate(network, &triad)?;
    let kept = |background: Vec<Flow>| {
        let rate = predict_rate(network, &Case { background, ..triad.clone() })?;
        Some((100.0 * rate / alone).min(100.0))
    };
    let (by_kernel, by_engine) = (kept(kernel)?, kept(engine.timed.clone())?);
    let engine = first.caps().engine_name;
    Some(format!("triad keeps {by_kernel:.0} % of its rate, {by_engine:.0} % with {engine}"))
}

/// Effects of `setting`, such as `HSA_ENABLE_SDMA=0`, on copies of the first GPU: to the others, and if the setting is
/// of all copies, from and to pinned memory near it, and on messages by MPI. Empty for a setting of another kind.
pub fn predict_setting(
    (network, layer): (&Network, Option<&MessageLayer>),
    topology: &Topology,
    setting: &str,
) -> SizeEffects {
    let mut found = SizeEffects::new(setting, EffectBasis::Simulated);
    let Some((first, others)) = topology.gpus.split_first() else { return found };
    let caps = first.caps();
    let name = setting.strip_suffix("=0");
    let of_all = name.is_some() && name == caps.copy_engine_env;
    if !of_all && (name.is_none() || name != caps.peer_engine_env) {
        return found;
    }
    let rate = |flow: Flow| predict_rate(network, &Case::together(vec![flow]));
    let vram = |gpu: &Gpu| Place::new(Unit::Gpu(gpu.index), MemKind::Vram);
    let by = Mover::Dma { at: Unit::Gpu(first.index) };
    let mut ends: Vec<(Place, Place)> =
        others.iter().map(|peer| (vram(first), vram(peer))).collect();
    if let Some(numa) = first.numa.filter(|_| of_all) {
        let pinned = Place::new(Unit::Numa(numa), MemKind::Pinned);
        ends.extend([(pinned, vram(first)), (vram(first), pinned)]);
    }
    let mut add = |transfer, ends: [Unit; 2], bytes: Bytes, rates: Option<[f64; 2]>| {
        if let Some([engine, kernel]) = rates {
            let ends = format!("{}→{}", ends[0], ends[1]);
            found.add(transfer, ends, SizeEffect::exact(bytes, kernel / engine - 1.0));
        }
    };
    for bytes in SizeEffects::ALL {
        for &(src, dst) in &ends {
            let flow = Flow { src, dst, by, bytes };
            let Some(transfer) = SizedTransfer::of_flow(&flow) else { continue };
            let rates = || Some([rate(flow)?, rate(flow.by_copy_kernel())?]);
            add(transfer, [src.unit, dst.unit], bytes, rates());
        }
        for peer in others.iter().filter(|_| of_all) {
            let send = |sdma| {
                let by = MessageLibrary::CrayMpich { sdma };
                let time = layer?.time(&ExchangeSpec::send(first.index, peer.index, by, bytes));
                Some(1.0 / time.ok()?.time.0)
            };
            let rates = || Some([send(true)?, send(false)?]);
            add(SizedTransfer::Mpi, [first.index, peer.index].map(Unit::Gpu), bytes, rates());
        }
    }
    found
}
