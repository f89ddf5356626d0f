//! What a setting that takes copy engines away does by size, by the model of a node.

use pathline_flow::Network;
use pathline_schema::{
    Case, Flow, MemKind, Mover, Place, SizeEffect, SizeEffects, Topology, Unit,
};

/// The rate of the first flow of a case by the model, its start included, GB/s.
pub fn predict_rate(network: &Network, case: &Case) -> Option<f64> {
    Some(network.durations(case).ok()?.flows.first()?.rate.gbs())
}

/// Effects of `setting`, such as `HSA_ENABLE_SDMA=0`, on copies from the first GPU to the others. Empty for a
/// setting of another kind.
pub fn predict_setting(network: &Network, topology: &Topology, setting: &str) -> SizeEffects {
    let Some((first, others)) = topology.gpus.split_first() else { return SizeEffects::default() };
    let engines = [first.caps().copy_engine_env, first.caps().peer_engine_env];
    let is_one = |name: &&str| engines.contains(&Some(*name));
    if setting.strip_suffix("=0").filter(is_one).is_none() {
        return SizeEffects::default();
    }
    let rate = |flow: Flow| predict_rate(network, &Case::together(vec![flow]));
    let effects = others.iter().flat_map(|peer| {
        SizeEffects::USUAL.into_iter().filter_map(move |bytes| {
            let place = |gpu| Place::new(Unit::Gpu(gpu), MemKind::Vram);
            let by = Mover::Dma { at: Unit::Gpu(first.index) };
            let engine = Flow { src: place(first.index), dst: place(peer.index), by, bytes };
            let gain = rate(engine.by_copy_kernel())? / rate(engine)? - 1.0;
            Some((peer.index, SizeEffect::exact(bytes, gain)))
        })
    });
    SizeEffects::new(effects)
}
