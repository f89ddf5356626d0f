//! What a setting that takes copy engines away does by size, by the model of a node.

use pathline_flow::Network;
use pathline_schema::{
    Case, Flow, Gpu, MemKind, Mover, Place, SizeEffect, SizeEffects, Topology, Unit,
};

/// The rate of the first flow of a case by the model, its start included, GB/s.
pub fn predict_rate(network: &Network, case: &Case) -> Option<f64> {
    Some(network.durations(case).ok()?.flows.first()?.rate.gbs())
}

/// Effects of `setting`, such as `HSA_ENABLE_SDMA=0`, on copies of the first GPU: to the others, and if the setting is
/// of all copies, from and to pinned memory near it. Empty for a setting of another kind.
pub fn predict_setting(network: &Network, topology: &Topology, setting: &str) -> SizeEffects {
    let Some((first, others)) = topology.gpus.split_first() else { return SizeEffects::default() };
    let caps = first.caps();
    let name = setting.strip_suffix("=0");
    let of_all = name.is_some() && name == caps.copy_engine_env;
    if !of_all && (name.is_none() || name != caps.peer_engine_env) {
        return SizeEffects::default();
    }
    let rate = |flow: Flow| predict_rate(network, &Case::together(vec![flow]));
    let by = Mover::Dma { at: Unit::Gpu(first.index) };
    let effects = |src: Place, dst: Place| {
        SizeEffects::ALL.into_iter().filter_map(move |bytes| {
            let engine = Flow { src, dst, by, bytes };
            let gain = rate(engine.by_copy_kernel())? / rate(engine)? - 1.0;
            Some(SizeEffect::exact(bytes, gain))
        })
    };
    let vram = |gpu: &Gpu| Place::new(Unit::Gpu(gpu.index), MemKind::Vram);
    let peers = others
        .iter()
        .flat_map(|peer| effects(vram(first), vram(peer)).map(|effect| (peer.index, effect)));
    let pinned = first.numa.map(|numa| Place::new(Unit::Numa(numa), MemKind::Pinned));
    let host = pinned.filter(|_| of_all).into_iter().flat_map(|pinned| {
        let inward = effects(pinned, vram(first)).map(|effect| (true, effect));
        inward.chain(effects(vram(first), pinned).map(|effect| (false, effect)))
    });
    SizeEffects::new(peers).with_host(host)
}
