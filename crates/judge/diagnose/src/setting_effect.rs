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
