//! What carried the runtime's copies, as a kernel that fills all compute units shows it: next to such a
//! kernel an engine's copy costs neither of them time, and a kernel's copy does. Version and environment of
//! the runtime only say what should have carried them.

use pathline_schema::{CopyAgent, Flow, KernelOp, Mover};

use super::overlap::{OverlapCell, is_compute};
use crate::fmt;

/// Smallest loss of the control, in percent: below it the kernel does not fill the units, or both share
/// them at no cost, and the two are not distinguishable.
const MIN_CONTROL_LOSS: f64 = 5.0;
/// Shares of the control's loss up to which a copy counts as an engine's, and from which as a kernel's.
const ENGINE_SHARE: f64 = 0.25;
const KERNEL_SHARE: f64 = 0.5;

/// A copy of the runtime next to a compute kernel.
#[derive(Debug, Clone, PartialEq)]
struct CopyObservation {
    copy: Flow,
    /// What the record names.
    recorded: Option<CopyAgent>,
    /// What was observed; `None` where the loss is between both.
    observed: Option<CopyAgent>,
    /// Percent of its rate that the slower of copy and compute kernel loses.
    loss: f64,
    /// The same of a copy that is certainly a kernel's.
    control: f64,
}

/// The greater loss of a copy and of the compute kernel next to it, in percent; `None` unless both were
/// measured.
fn loss(kept: &[OverlapCell<'_, '_>], copy: &Flow) -> Option<f64> {
    let of = |of_copy: bool| {
        let fits = |b: &&OverlapCell| b.copy == copy && b.of_copy == of_copy && is_compute(b.work);
        kept.iter().find(fits)?.cell.value.map(|value| 100.0 - value)
    };
    Some(of(true)?.max(of(false)?))
}

/// The loss of a copy by a kernel between the same ends, else of any copy by a kernel.
fn control(kept: &[OverlapCell<'_, '_>], copy: &Flow) -> Option<f64> {
    let by_kernel = |flow: &Flow| matches!(flow.by, Mover::Kernel { variant, .. } if variant.op == KernelOp::Copy);
    let same = |flow: &Flow| (flow.src, flow.dst) == (copy.src, copy.dst);
    let all = || kept.iter().map(|b| b.copy).filter(|flow| by_kernel(flow));
    let chosen = all().find(|flow| same(flow)).or_else(|| all().next())?;
    loss(kept, chosen).filter(|loss| *loss >= MIN_CONTROL_LOSS)
}

fn observe(kept: &[OverlapCell<'_, '_>]) -> Vec<CopyObservation> {
    let mut found: Vec<CopyObservation> = Vec::new();
    for timed in kept.iter().filter(|b| b.of_copy && is_compute(b.work)) {
        let copy = *timed.copy;
        let recorded = timed.entry.copy_agent();
        if copy.by.facts().copy_agent.is_none() || found.iter().any(|o| o.copy == copy) {
            continue;
        }
        let (Some(loss), Some(control)) = (loss(kept, &copy), control(kept, &copy)) else {
            continue;
        };
        let observed = match loss / control {
            share if share <= ENGINE_SHARE => Some(CopyAgent::Engine),
            share if share >= KERNEL_SHARE => Some(CopyAgent::Kernel),
            _ => None,
        };
        found.push(CopyObservation { copy, recorded, observed, loss, control });
    }
    found
}

/// What was observed, in a sentence or two; `None` if no copy can be classified. `label` names a copy.
pub(super) fn sentence(
    kept: &[OverlapCell<'_, '_>],
    label: &dyn Fn(&Flow) -> String,
) -> Option<String> {
    let all = observe(kept);
    let percent = |value: f64| fmt::percent(value.max(0.0) / 100.0);
    let text = |o: &CopyObservation| {
        let (loss, control) = (percent(o.loss), percent(o.control));
        format!("{} (costs {loss}, a copy kernel {control})", label(&o.copy))
    };
    let part = |agent: CopyAgent, what: &str| {
        let of = all.iter().filter(|o| o.observed == Some(agent));
        let copies = fmt::list_any(of.map(text))?;
        Some(format!("Next to compute on all units, {what} carried {copies}."))
    };
    let differs = |o: &&CopyObservation| o.observed.is_some() && o.recorded != o.observed;
    let wrong = fmt::list_any(all.iter().filter(differs).map(|o| label(&o.copy))).map(|wrong| {
        format!(
            "Version and environment of the runtime say otherwise of {wrong}: its settings did not act as \
             documented."
        )
    });
    let parts = [part(CopyAgent::Engine, "an engine"), part(CopyAgent::Kernel, "a kernel"), wrong];
    fmt::join_any(parts.into_iter().flatten(), " ")
}
