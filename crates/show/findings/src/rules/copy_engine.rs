//! Pairs of GPUs between which a copy engine is slower than a kernel.

use std::collections::{BTreeMap, BTreeSet};

use pathline_diagnose::predict_kernel_cost;
use pathline_explain::figure::{FigureCell, LossClassRow, extremes};
use pathline_explain::figures::overlap::{COMPUTE, kept, work_label};
use pathline_explain::figures::pairs::{MeasuredPair, PairMover, level_text, pairs};
use pathline_explain::fmt;
use pathline_explain::loss_breakdown::loss_classes;
use pathline_explain::run::CaseQuantity;
use pathline_schema::{
    Case, CopyAgent, GpuCaps, KernelOp, Mover, SizeEffects, SizedTransfer, SuiteId, Unit,
};

use crate::evidence::{
    Evidence, LEAST_GAIN, SoundValue, factor_text, lost, median, range_of, range_text, widest_text,
};
use crate::setting_sizes::{ONE_RATE, predict_kernel, setting_sizes};
use crate::{Finding, FindingArm, FindingSeverity, GainBasis};

pub(super) const ID: &str = "engine-limits-pairs";
pub(super) const READ: &str = "kernel-reads-faster";

/// Links whose peaks differ by this factor are of different widths.
const WIDER: f64 = 1.4;

/// The rate of a kernel between two GPUs.
enum KernelArm<'a> {
    Measured(SoundValue<'a>),
    /// By the model: GB/s, and the case.
    Predicted(f64, Case),
}

impl KernelArm<'_> {
    fn rate(&self) -> f64 {
        match self {
            Self::Measured(value) => value.value,
            Self::Predicted(rate, _) => *rate,
        }
    }
    fn gain_over(&self, slow: &SoundValue) -> Option<f64> {
        match self {
            Self::Measured(value) => value.gain_over(slow),
            Self::Predicted(rate, _) => {
                (*rate >= (1.0 + LEAST_GAIN) * slow.high).then_some(rate / slow.value)
            }
        }
    }
    fn arm(&self, label: String) -> FindingArm {
        match self {
            Self::Measured(value) => value.arm(label),
            Self::Predicted(rate, case) => FindingArm {
                label: format!("{label}, predicted"),
                value: *rate,
                half_width: None,
                unit: "GB/s".to_owned(),
                case: case.clone(),
            },
        }
    }
}

/// A pair that a kernel serves faster.
struct SlowPair<'a> {
    src: u32,
    dst: u32,
    engine: SoundValue<'a>,
    kernel: KernelArm<'a>,
    kernel_verb: PairMover,
    factor: f64,
    /// Peak of the links between them, GB/s.
    peak: Option<f64>,
}

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    let caps = evidence.caps();
    let measured = pairs(&evidence.run);
    let mut by_pair: BTreeMap<(u32, u32), Vec<&MeasuredPair>> = BTreeMap::new();
    for pair in measured.iter().filter(|pair| !pair.both) {
        by_pair.entry((pair.src, pair.dst)).or_default().push(pair);
    }
    let compared: Vec<Option<SlowPair>> =
        by_pair.values().filter_map(|pair| compare(evidence, caps, pair)).collect();
    let all = compared.len();
    let mut slow: Vec<SlowPair> = compared.into_iter().flatten().collect();
    // What is slower than the fastest engine is limited by its links.
    let by_links = links_limit(evidence, &measured, &slow);
    let fastest = slow.iter().map(|pair| pair.engine.value).fold(0.0, f64::max);
    slow.retain(|pair| pair.engine.value * ONE_RATE >= fastest);
    slow.sort_by(|a, b| b.factor.total_cmp(&a.factor));
    let mut engines = finding(evidence, caps, &slow, all);
    if let (Some(found), Some(by_links)) = (engines.as_mut(), by_links) {
        let of_all = format!("caps {} of {all} GPU pairs at", slow.len());
        let rest =
            found.observation.replacen(&of_all, &format!("caps {} others at", slow.len()), 1);
        found.observation = format!("{by_links} {rest}");
        let place = evidence.health().replacen(" health", " place", 1);
        found.action +=
            &format!(" Keep traffic off the slowest pairs: `{place} --pattern PATTERN`.");
    }
    engines.into_iter().chain(reads(evidence, &by_pair)).collect()
}

/// Pairs between which kernels that read at the destination beat kernels that write at the source.
fn reads(
    evidence: &Evidence,
    by_pair: &BTreeMap<(u32, u32), Vec<&MeasuredPair>>,
) -> Option<Finding> {
    let mut all = 0;
    let mut found: Vec<((u32, u32), SoundValue, SoundValue, f64)> = Vec::new();
    for (ends, pair) in by_pair {
        let of = |verb: PairMover| {
            let found = pair.iter().find(|p| p.verb == verb)?;
            evidence.rate(&found.entry)
        };
        let (Some(read), Some(write)) = (of(PairMover::Read), of(PairMover::Write)) else {
            continue;
        };
        all += 1;
        found.extend(read.gain_over(&write).map(|factor| (*ends, read, write, factor)));
    }
    found.sort_by(|a, b| b.3.total_cmp(&a.3));
    let best = found.first()?;
    let reads: Vec<SoundValue> = found.iter().map(|f| f.1).collect();
    let writes: Vec<SoundValue> = found.iter().map(|f| f.2).collect();
    let factors: Vec<f64> = found.iter().map(|f| f.3).collect();
    let rates = |of: &[SoundValue]| of.iter().map(|v| v.value).collect::<Vec<_>>();
    let size = best.1.case.timed.first()?.bytes.rounded();
    let observation = format!(
        "Between {}, copy kernels that read at the destination reach {} GB/s{}, kernels \
         that write at the source {} ({size}).",
        fmt::of_all(found.len(), all, "GPU pair"),
        level_text(&rates(&reads)),
        widest_text(&reads),
        range_text(&writes),
    );
    let cause = [&best.1, &best.2]
        .map(|value| value.case.timed.first().and_then(|flow| evidence.run.bound(flow)));
    let cause = match cause {
        [Some((_, read)), Some((_, write))] => format!("Reads: {read}. Writes: {write}."),
        _ => String::new(),
    };
    Some(Finding {
        short: format!(
            "Kernel reads between GPUs reach {} GB/s; writes {} of that",
            level_text(&rates(&reads)),
            fmt::percent(1.0 / median(factors.iter().copied()))
        ),
        cause,
        action: "In kernels that exchange data between GPUs, read the peer's memory.".to_owned(),
        gain: evidence.gain(&factors),
        places: found.iter().map(|f| format!("gpu{}→gpu{}", f.0.0, f.0.1)).collect(),
        arms: vec![best.1.arm("read at the destination"), best.2.arm("write at the source")],
        weight: found.iter().map(|f| lost(&f.1, &f.2)).sum(),
        ..Finding::new(READ, FindingSeverity::Gain, observation)
    })
}

/// The slowest pairs and why, where links limit them and not the engine: `32 of 56 GPU pairs are slowest, at
/// 37.1-37.6 GB/s: their narrowest hop is xGMI, 1 link (50.0 GB/s), and packet overhead leaves 74-75 % of it.`
fn links_limit(
    evidence: &Evidence,
    measured: &[MeasuredPair],
    slow: &[SlowPair],
) -> Option<String> {
    let fastest = slow.iter().map(|pair| pair.engine.value).fold(0.0, f64::max);
    let is_engine = |p: &&MeasuredPair| {
        !p.both && p.verb == PairMover::Dma && p.entry.copy_agent() == Some(CopyAgent::Engine)
    };
    let cells = measured.iter().filter(is_engine);
    let cells = cells.map(|p| ((p.src, p.dst), evidence.run.cell(&p.entry, CaseQuantity::Payload)));
    let cells: Vec<((u32, u32), FigureCell)> =
        cells.filter(|(_, cell)| cell.value.is_some()).collect();
    let by_links: Vec<&((u32, u32), FigureCell)> = cells
        .iter()
        .filter(|(_, cell)| cell.value.is_some_and(|rate| rate * ONE_RATE < fastest))
        .collect();
    let classes = loss_classes(by_links.iter().map(|(_, cell)| cell), &evidence.covered);
    let (first, paths) = (classes.first()?, classes.iter().map(|class| class.paths).sum::<usize>());
    // Classes may lack a pair.
    let sides = two_sides(&by_links.iter().map(|(pair, _)| *pair).collect());
    let sides = sides.filter(|_| paths == by_links.len()).unwrap_or_default();
    // Several reasons are no answer in a sentence; the table has them.
    if classes.iter().any(|class| (&class.hop, &class.held_by) != (&first.hop, &first.held_by)) {
        return None;
    }
    let range = |of: fn(&LossClassRow) -> (f64, f64)| {
        let all: Vec<f64> = classes.iter().flat_map(|class| [of(class).0, of(class).1]).collect();
        extremes(&all)
    };
    let (low, high) = range(|class| class.measured);
    let (low_peak, high_peak) = range(|class| class.peak);
    let share = fmt::percent_range(range(|class| class.share));
    let why = match first.held_by.as_str() {
        "" => format!("of which they reach {share}"),
        by => format!("and {by} leaves {share} of it"),
    };
    Some(format!(
        "{paths} of {}{sides} are slowest, at {} GB/s: their narrowest hop is {} ({} GB/s), {why}.",
        fmt::count(cells.len(), "GPU pair"),
        fmt::range(low, high),
        first.hop,
        fmt::range(low_peak, high_peak),
    ))
}

/// `, between gpu0, gpu1 and gpu2, gpu3,` where these pairs are all between two groups of GPUs.
fn two_sides(pairs: &BTreeSet<(u32, u32)>) -> Option<String> {
    let first = pairs.first()?.0;
    let right: BTreeSet<u32> = pairs.iter().filter(|(a, _)| *a == first).map(|(_, b)| *b).collect();
    let left: BTreeSet<u32> =
        pairs.iter().filter(|(_, b)| right.first() == Some(b)).map(|(a, _)| *a).collect();
    let is_all = left.iter().all(|a| {
        right.iter().all(|b| pairs.contains(&(*a, *b)) && pairs.contains(&(*b, *a)) && a != b)
    });
    let names = |side: &BTreeSet<u32>| {
        side.iter().map(|gpu| format!("gpu{gpu}")).collect::<Vec<_>>().join(", ")
    };
    (is_all && pairs.len() == 2 * left.len() * right.len())
        .then(|| format!(", between {} and {},", names(&left), names(&right)))
}

/// The inner value is none for a pair that the engine serves as well; the outer one if an arm is missing.
fn compare<'a>(
    evidence: &Evidence<'a>,
    caps: &GpuCaps,
    pair: &[&MeasuredPair<'a>],
) -> Option<Option<SlowPair<'a>>> {
    let of = |verb: PairMover| {
        let found = pair.iter().find(|p| p.verb == verb)?;
        Some((verb, evidence.rate(&found.entry)?))
    };
    // A setting of the user makes these copies blit kernels, too: then no engine is in the run.
    let engine = |p: &&&MeasuredPair| p.entry.copy_agent() == Some(CopyAgent::Engine);
    let first = pair.iter().filter(engine).find(|p| p.verb == PairMover::Dma)?;
    let (_, engine) = of(PairMover::Dma)?;
    // The setting of the runtime makes the same call use its own kernel; other kernels are the
    // application's.
    let own = of(PairMover::BlitPull).or_else(|| of(PairMover::Blit)).filter(|_| caps.copy_kernel);
    let others = [of(PairMover::Read), of(PairMover::Write)].into_iter().flatten();
    let best = others.max_by(|a, b| a.1.value.total_cmp(&b.1.value));
    let measured = own.or(best).map(|(verb, value)| (verb, KernelArm::Measured(value)));
    let predicted = || Some((PairMover::BlitPull, predict_blit(evidence, &engine)?));
    let (kernel_verb, kernel) =
        measured.or_else(|| if caps.copy_kernel { predicted() } else { None })?;
    let peak = evidence.run.cell(&first.entry, CaseQuantity::Payload).ceiling;
    let (src, dst) = (first.src, first.dst);
    let factor = kernel.gain_over(&engine);
    Some(factor.map(|factor| SlowPair { src, dst, engine, kernel, kernel_verb, factor, peak }))
}

/// The blit kernel by the model.
fn predict_blit<'a>(evidence: &Evidence<'a>, engine: &SoundValue<'a>) -> Option<KernelArm<'a>> {
    let [flow] = engine.case.timed.as_slice() else { return None };
    let blit = flow.by_copy_kernel();
    let rate = predict_kernel(evidence, engine, &blit)?;
    Some(KernelArm::Predicted(rate, Case::together(vec![blit])))
}

fn finding(evidence: &Evidence, caps: &GpuCaps, slow: &[SlowPair], all: usize) -> Option<Finding> {
    let (most, least) = (slow.first()?, slow.last()?);
    let engines: Vec<SoundValue> = slow.iter().map(|p| p.engine).collect();
    let kernels: Vec<f64> = slow.iter().map(|p| p.kernel.rate()).collect();
    let (low, high) = range_of(&kernels)?;
    let factors: Vec<f64> = slow.iter().map(|p| p.factor).collect();
    let by_runtime = matches!(most.kernel_verb, PairMover::Blit | PairMover::BlitPull);
    let kernel_name = if by_runtime { "the blit kernel" } else { "a copy kernel" };
    let side = match most.kernel_verb {
        PairMover::Blit | PairMover::Write => "the source",
        _ => "the destination",
    };
    let size = most.engine.case.timed.first()?.bytes.rounded();
    let is_predicted = |pair: &SlowPair| matches!(pair.kernel, KernelArm::Predicted(..));
    let predicted = slow.iter().any(is_predicted);
    let verb = if predicted { "is predicted to move" } else { "moves" };
    let mut gain = evidence.gain(&factors);
    if let Some(gain) = gain.as_mut().filter(|_| predicted) {
        gain.basis = GainBasis::Predicted;
    }
    let observation = format!(
        "{} caps {} of {all} GPU pairs at {} GB/s{} ({size}, one direction); {kernel_name} at {side} {verb} \
         {} GB/s on them.",
        caps.engine_name,
        slow.len(),
        range_text(&engines),
        widest_text(&engines),
        fmt::range(low, high),
    );
    let engine_label = format!("{} copy ({})", caps.engine_name, caps.copy_calls[0]);
    let setting = caps.copy_engine_env.filter(|_| by_runtime);
    let kernel_label = |verb: PairMover| match (verb, setting) {
        (PairMover::Blit | PairMover::BlitPull, Some(name)) => {
            format!("blit kernel at {side} ({name}=0)")
        }
        (PairMover::Blit | PairMover::BlitPull, None) => format!("blit kernel at {side}"),
        (PairMover::Read, _) => "copy kernel that reads at the destination".to_owned(),
        _ => "copy kernel that writes at the source".to_owned(),
    };
    let by_size = by_runtime.then(|| setting_sizes(evidence));
    let by_size = by_size.filter(|effects| effects.verdict().is_some());
    let mut arms = Vec::new();
    for pair in [most, least] {
        arms.push(pair.engine.arm(engine_label.clone()));
        arms.push(pair.kernel.arm(kernel_label(pair.kernel_verb)));
        if slow.len() == 1 {
            break;
        }
    }
    Some(Finding {
        short: format!(
            "{} caps {} of {all} GPU pairs at {} GB/s; {kernel_name} {verb} {}",
            caps.engine_name,
            slow.len(),
            range_text(&engines),
            fmt::range(low, high)
        ),
        cause: cause(caps, slow),
        action: action(evidence, by_size.as_ref(), (by_runtime, predicted), &factors),
        by_size,
        gain,
        cost: copy_kernel_cost(evidence, by_runtime, side),
        places: slow.iter().map(|p| format!("gpu{}→gpu{}", p.src, p.dst)).collect(),
        arms,
        weight: slow.iter().map(|p| p.kernel.rate() - p.engine.value).sum(),
        ..Finding::new(ID, FindingSeverity::Gain, observation)
    })
}

/// That the engine's rate does not follow the width of the links, if so.
fn cause(caps: &GpuCaps, slow: &[SlowPair]) -> String {
    let rates: Vec<f64> = slow.iter().map(|p| p.engine.value).collect();
    let peaks: Vec<f64> = slow.iter().filter_map(|p| p.peak).collect();
    let (Some((low, high)), Some((narrow, wide))) = (range_of(&rates), range_of(&peaks)) else {
        return String::new();
    };
    if high <= ONE_RATE * low && wide >= WIDER * narrow {
        return format!(
            "One {} engine has one rate, on links of {} as on links of {}.",
            caps.engine_name.trim_end_matches(" engine"),
            fmt::gbs(narrow),
            fmt::gbs(wide)
        );
    }
    format!(
        "The engine reaches {} of the links' {} GB/s.",
        fmt::percent_range((low / wide, high / narrow)),
        fmt::range(narrow, wide)
    )
}

fn action(
    evidence: &Evidence,
    by_size: Option<&SizeEffects>,
    (by_runtime, predicted): (bool, bool),
    factors: &[f64],
) -> String {
    let caps = evidence.caps();
    let has_small = evidence.lone().any(|(entry, flow)| {
        entry.copy_agent() == Some(CopyAgent::Engine) && flow.bytes == SizeEffects::USUAL[0]
    });
    let effects = by_size.and_then(|effects| effects.sizes_of_gain(SizedTransfer::Peers));
    let unseen = match effects.is_none() && !has_small {
        true => format!(
            ". Smaller ones were not measured and may be slower: `{}` decides",
            evidence.run.command(SuiteId::Sweep, "")
        ),
        false => String::new(),
    };
    let where_ = match effects {
        Some(sizes) => format!(" in processes that copy {sizes} between GPUs"),
        None if has_small => String::new(),
        None => " for copies of this size".to_owned(),
    };
    // The other setting keeps these copies out of the engine as well.
    let unknown = match (predicted, evidence.is_simulated()) {
        (true, _) => "",
        (false, true) => " (not simulated)",
        (false, false) => " (not measured)",
    };
    let unknown = if caps.peer_engine_env.is_some() { unknown } else { "" };
    match caps.set_copy_kernel(&where_).filter(|_| by_runtime) {
        Some(set) => format!("{set}{unknown}{unseen}."),
        None => format!(
            "Copy between these GPUs by a kernel, not by {} ({}).",
            caps.copy_calls[0],
            factor_text(factors)
        ),
    }
}

/// What a copy by a kernel on `gpu` costs kernels there: of the kinds that this run measured, the one that loses most. A
/// kernel that only computes does not stand for those that use memory.
pub(super) fn copy_kernel_cost(evidence: &Evidence, by_runtime: bool, gpu: &str) -> String {
    let caps = evidence.caps();
    let mut shares = Vec::new();
    let all = kept(&evidence.run);
    let between = |by: &Mover, engine: bool| match by {
        Mover::Dma { .. } => engine,
        Mover::Blit { .. } => !engine && by_runtime,
        Mover::Kernel { variant, .. } => !engine && !by_runtime && variant.op == KernelOp::Copy,
        _ => false,
    };
    for at_once in all.iter().filter(|b| !b.of_copy && between(&b.copy.by, false)) {
        let on_gpus = |unit: Unit| unit.gpu().is_some();
        if !on_gpus(at_once.copy.src.unit) || !on_gpus(at_once.copy.dst.unit) {
            continue;
        }
        let ends = (at_once.copy.src, at_once.copy.dst, at_once.work);
        let with_engine = all.iter().find(|b| {
            !b.of_copy && between(&b.copy.by, true) && (b.copy.src, b.copy.dst, b.work) == ends
        });
        let share = |b: &pathline_explain::figures::overlap::OverlapCell| {
            let usable = b.cell.few.is_none() && evidence.time(b.entry).is_some();
            b.cell.value.filter(|_| usable)
        };
        let (Some(kernel), Some(engine)) = (share(at_once), with_engine.and_then(share)) else {
            continue;
        };
        let work = work_label(at_once.work);
        shares.push(((kernel / 100.0).min(1.0), (engine / 100.0).min(1.0), work));
    }
    let uses_memory = shares.iter().any(|(_, _, work)| work != COMPUTE);
    let worst = shares.iter().min_by(|a, b| a.0.total_cmp(&b.0)).filter(|_| uses_memory);
    let measured = worst.map(|(kernel, engine, work)| {
        let [kernel, engine] = [kernel, engine].map(|share| fmt::percent(*share));
        format!("{work} keeps {kernel} of its rate, {engine} with {}", caps.engine_name)
    });
    // Where no run has measured it, a model of the machine knows it, as `advise` says.
    let network = evidence.network.filter(|network| network.is_described());
    let by_model = || Some(predict_kernel_cost(network?, evidence.topology())? + " by the model");
    format!("{}.", caps.copy_kernel_cost(gpu, measured.or_else(by_model).as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_between_two_groups_are_named_by_them() {
        let all = BTreeSet::from([(0, 2), (2, 0), (1, 2), (2, 1)]);
        assert_eq!(two_sides(&all).as_deref(), Some(", between gpu0, gpu1 and gpu2,"));
        let one_way = BTreeSet::from([(0, 2), (1, 2)]);
        let three = BTreeSet::from([(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)]);
        assert_eq!((two_sides(&one_way), two_sides(&three)), (None, None));
    }
}
