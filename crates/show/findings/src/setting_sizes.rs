//! What the setting that takes copy engines away does by kind and size of transfer.

use pathline_diagnose::{predict_rate, predict_setting};
use pathline_flow::MachineDesc;
use pathline_message::MessageLayer;
use pathline_schema::{
    Case, CopyAgent, EffectBasis, Flow, SizeEffect, SizeEffects, SizedTransfer, WireOp,
};

use crate::Finding;
use crate::evidence::{Evidence, SoundValue};

/// Rates that differ by no more than this factor are one rate.
pub(crate) const ONE_RATE: f64 = 1.1;

/// Its gains as this run measured them. Of a size without a copy by the runtime's kernel the model has it, if it has
/// the rate of the engine; a simulated run has all sizes by its model.
pub(crate) fn setting_sizes(evidence: &Evidence) -> SizeEffects {
    let Some(name) = evidence.caps().copy_engine_env else { return SizeEffects::default() };
    let (setting, topology) = (format!("{name}=0"), evidence.topology());
    let mut found = match evidence.network.filter(|_| evidence.is_simulated()) {
        Some(network) => predict_setting((network, None), topology, &setting),
        None => SizeEffects::new(setting, EffectBasis::Measured),
    };
    let mut basis = EffectBasis::Measured;
    for (entry, flow) in evidence.lone() {
        let is_window = flow.by.wire().is_none_or(|wire| matches!(wire.op, WireOp::Send { .. }));
        let has_gpu = flow.src.unit.gpu().or(flow.dst.unit.gpu()).is_some();
        if !(is_window && has_gpu) {
            continue;
        }
        let agent = flow.by.wire().and_then(|wire| wire.agent).or_else(|| entry.copy_agent());
        let by_engine = agent == Some(CopyAgent::Engine) && SizeEffects::ALL.contains(&flow.bytes);
        let Some(transfer) = SizedTransfer::of_flow(flow).filter(|_| by_engine) else { continue };
        let (kernel, engine) = (flow.by_copy_kernel(), evidence.rate(entry));
        let Some(engine) = engine.filter(|_| kernel != *flow) else { continue };
        let measured = evidence.lone().find(|(_, other)| **other == kernel);
        let effect = match measured.map(|(entry, _)| evidence.rate(entry)) {
            Some(kernel) => kernel.and_then(|kernel| kernel.effect_on(&engine)),
            None => {
                let predicted = predict_kernel(evidence, &engine, &kernel);
                basis = predicted.map_or(basis, |_| EffectBasis::Predicted);
                predicted.map(|rate| SizeEffect::exact(flow.bytes, rate / engine.value - 1.0))
            }
        };
        let ends = format!("{}→{}", flow.src.unit, flow.dst.unit);
        effect.into_iter().for_each(|effect| found.add(transfer, ends.as_str(), effect));
    }
    found.with_basis(if evidence.is_simulated() { EffectBasis::Simulated } else { basis })
}

/// Adds to the table of a simulated run the messages that it did not measure.
pub(crate) fn add_messages(evidence: &Evidence, desc: &MachineDesc, findings: &mut [Finding]) {
    let simulated = evidence.network.filter(|_| evidence.is_simulated());
    let of = findings.iter_mut().find_map(|finding| finding.by_size.as_mut());
    let (Some(network), Some(by_size), Ok(layer)) = (simulated, of, MessageLayer::new(desc)) else {
        return;
    };
    let setting = by_size.setting().to_owned();
    by_size.fill(predict_setting((network, Some(&layer)), evidence.topology(), &setting));
}

/// The rate of a copy by the runtime's kernel by the model, where the model knows the rate of the engine on the same
/// path, GB/s.
pub(crate) fn predict_kernel(
    evidence: &Evidence,
    engine: &SoundValue<'_>,
    kernel: &Flow,
) -> Option<f64> {
    let rate = |case: &Case| predict_rate(evidence.network?, case);
    let known = (1.0 / ONE_RATE..ONE_RATE).contains(&(rate(engine.case)? / engine.value));
    rate(&Case::together(vec![*kernel])).filter(|_| known)
}
