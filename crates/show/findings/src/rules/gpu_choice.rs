//! Which GPUs to take when not all are used, and what all of them get together.

use std::collections::{BTreeMap, BTreeSet};

use pathline_explain::figures::fan::{FanDirection, GpuFan, fan};
use pathline_explain::fmt;
use pathline_explain::run::CaseQuantity;
use pathline_flow::routes::RouteTable;
use pathline_schema::{LinkEnd, SuiteId};

use crate::evidence::{Evidence, SoundValue, factor_text, lost};
use crate::{Finding, FindingSeverity};

pub(super) const SPREAD: &str = "spread-gpus";
pub(super) const SHARED: &str = "host-shared-by-gpus";

/// From this share of what as many GPUs have alone, the host serves all of them.
const SERVED: f64 = 0.95;

/// GPUs that stream at once, and their sum.
struct FanRate<'a> {
    fan: GpuFan<'a>,
    /// Payload of copies; bytes read and written of kernels.
    rate: SoundValue<'a>,
}

fn rates<'a>(evidence: &Evidence<'a>) -> Vec<FanRate<'a>> {
    let entries = evidence.run.suite(SuiteId::Fan);
    let rate = |entry: &pathline_explain::run::RunEntry<'a>| {
        let fan = fan(&evidence.run, *entry)?;
        let kernels = fan.direction.is_none();
        let quantity = if kernels { CaseQuantity::Traffic } else { CaseQuantity::Payload };
        Some(FanRate { rate: evidence.value(entry, quantity)?, fan })
    };
    entries.filter_map(rate).collect()
}

fn label(direction: Option<FanDirection>) -> &'static str {
    match direction {
        Some(FanDirection::In) => "H2D",
        Some(FanDirection::Out) => "D2H",
        Some(FanDirection::Both) => "both ways",
        None => "read and written by kernels",
    }
}

/// Directions in the order of a text.
const DIRECTIONS: [Option<FanDirection>; 4] =
    [Some(FanDirection::In), Some(FanDirection::Out), Some(FanDirection::Both), None];

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    let all = rates(evidence);
    [spread(evidence, &all), shared(&all)].into_iter().flatten().collect()
}

/// `gpu0+gpu2`
fn name(gpus: &[u32]) -> String {
    gpus.iter().map(|g| format!("gpu{g}")).collect::<Vec<_>>().join("+")
}

/// Sets of as many GPUs that get different sums.
fn spread(evidence: &Evidence, all: &[FanRate]) -> Option<Finding> {
    let counts: BTreeSet<usize> = all.iter().map(|f| f.fan.gpus.len()).filter(|n| *n > 1).collect();
    for count in counts {
        let of = |direction| {
            all.iter().filter(move |f: &&FanRate| {
                f.fan.gpus.len() == count && f.fan.direction == direction
            })
        };
        let mut parts = Vec::new();
        let (mut factors, mut arms) = (Vec::new(), Vec::new());
        let mut sets: Option<(&FanRate, &FanRate)> = None;
        let mut weight = 0.0;
        for direction in DIRECTIONS {
            let by_rate = |a: &&FanRate, b: &&FanRate| a.rate.value.total_cmp(&b.rate.value);
            let (Some(best), Some(worst)) =
                (of(direction).max_by(by_rate), of(direction).min_by(by_rate))
            else {
                continue;
            };
            let Some(factor) = best.rate.gain_over(&worst.rate) else { continue };
            if sets.is_some_and(|(b, w)| {
                (&b.fan.gpus, &w.fan.gpus) != (&best.fan.gpus, &worst.fan.gpus)
            }) {
                continue;
            }
            sets = Some((best, worst));
            parts.push(format!(
                "{} against {} {}",
                best.rate.text(),
                fmt::number(worst.rate.value),
                label(direction)
            ));
            factors.push(factor);
            weight += lost(&best.rate, &worst.rate);
            arms.push(best.rate.arm(format!("{}, {}", name(&best.fan.gpus), label(direction))));
            arms.push(worst.rate.arm(format!("{}, {}", name(&worst.fan.gpus), label(direction))));
        }
        let Some((best, worst)) = sets else { continue };
        let observation = format!(
            "{} together reach {} times the host bandwidth of {} ({}).",
            name(&best.fan.gpus),
            factor_text(&factors).trim_end_matches('x'),
            name(&worst.fan.gpus),
            fmt::list(&parts)
        );
        let (chosen, why) = choice(evidence, best, worst);
        let list = chosen.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let action = match evidence.caps().visible_env {
            Some(variable) => format!("Jobs of up to {} GPUs: {variable}={list}.", chosen.len()),
            None => format!("Jobs of up to {} GPUs: take {list}.", chosen.len()),
        };
        return Some(Finding {
            short: format!(
                "{} get {} x the host bandwidth of {} ({} against {} {})",
                name(&best.fan.gpus),
                factor_text(&factors).trim_end_matches('x'),
                name(&worst.fan.gpus),
                fmt::number(best.rate.value),
                fmt::number(worst.rate.value),
                label(best.fan.direction)
            ),
            cause: why,
            cost: cost(evidence, best, worst),
            action,
            gain: evidence.gain(&factors),
            places: vec![name(&best.fan.gpus), name(&worst.fan.gpus)],
            arms,
            weight,
            ..Finding::new(SPREAD, FindingSeverity::Gain, observation)
        });
    }
    None
}

/// One GPU of each package or NUMA domain where that is what tells the sets apart, else the better set.
fn choice(evidence: &Evidence, best: &FanRate, worst: &FanRate) -> (Vec<u32>, String) {
    let gpus = &evidence.topology().gpus;
    let first_of_each = |key: &dyn Fn(&pathline_schema::Gpu) -> Option<u32>| {
        let mut first: BTreeMap<u32, u32> = BTreeMap::new();
        for gpu in gpus {
            if let Some(key) = key(gpu) {
                first.entry(key).or_insert(gpu.index);
            }
        }
        let mut chosen: Vec<u32> = first.into_values().collect();
        chosen.sort_unstable();
        chosen
    };
    let spread = |key: &dyn Fn(&pathline_schema::Gpu) -> Option<u32>, set: &[u32]| {
        let keys: BTreeSet<Option<u32>> =
            set.iter().map(|g| gpus.iter().find(|gpu| gpu.index == *g).and_then(key)).collect();
        keys.len()
    };
    let package = |gpu: &pathline_schema::Gpu| gpu.package;
    let numa = |gpu: &pathline_schema::Gpu| gpu.numa;
    let apart = |key: &dyn Fn(&pathline_schema::Gpu) -> Option<u32>| {
        spread(key, &best.fan.gpus) > spread(key, &worst.fan.gpus)
    };
    let pair = name(&worst.fan.gpus);
    match (apart(&package), apart(&numa)) {
        (true, true) => (
            first_of_each(&package),
            format!("{pair} share a package and the memory of one NUMA domain."),
        ),
        (true, false) => (first_of_each(&package), format!("{pair} share a package.")),
        (false, true) => {
            (first_of_each(&numa), format!("{pair} share the memory of one NUMA domain."))
        }
        (false, false) => (best.fan.gpus.clone(), String::new()),
    }
}

/// The links that the chosen GPUs do without.
fn cost(evidence: &Evidence, best: &FanRate, worst: &FanRate) -> String {
    let routes = RouteTable::of(evidence.topology());
    let peak = |set: &FanRate| match set.fan.gpus.as_slice() {
        [a, b] => routes.in_use(LinkEnd::Gpu(*a), LinkEnd::Gpu(*b))?.peak.map(|p| p.gbs()),
        _ => None,
    };
    match (peak(best), peak(worst)) {
        (Some(spread), Some(close)) if close > spread => format!(
            "Links between {}: {}, between {}: {}.",
            name(&worst.fan.gpus),
            fmt::gbs(close),
            name(&best.fan.gpus),
            fmt::gbs(spread)
        ),
        _ => String::new(),
    }
}

/// What the largest set gets of as many times one GPU.
fn shared(all: &[FanRate]) -> Option<Finding> {
    let mut parts = Vec::new();
    let mut arms = Vec::new();
    let (mut places, mut short, mut least) = (Vec::new(), String::new(), 1.0);
    // Of all of them: a sum of fewer GPUs, where no other is sound, is no answer.
    let n = all.iter().map(|f| f.fan.gpus.len()).max().filter(|n| *n > 1)?;
    for direction in DIRECTIONS {
        let of = || all.iter().filter(move |f| f.fan.direction == direction);
        let one = of().find(|f| f.fan.gpus.len() == 1);
        let (Some(one), Some(many)) = (one, of().find(|f| f.fan.gpus.len() == n)) else {
            continue;
        };
        if many.rate.high >= SERVED * one.rate.low * n as f64 {
            continue;
        }
        let share = many.rate.value / (one.rate.value * n as f64);
        parts.push(format!(
            "{} {}, {} of {n} times one GPU's {}",
            many.rate.text(),
            label(direction),
            fmt::percent(share),
            fmt::number(one.rate.value)
        ));
        arms.push(many.rate.arm(format!("{n} GPUs, {}", label(direction))));
        arms.push(one.rate.arm(format!("1 GPU, {}", label(direction))));
        if share < least {
            least = share;
            let times = many.rate.value / one.rate.value;
            let fewest = of().filter(|f| f.rate.high >= SERVED * many.rate.low);
            let fewest = fewest.map(|f| f.fan.gpus.len()).filter(|few| *few < n).min();
            let as_few = fewest.map_or(String::new(), |few| format!(", as {few} do"));
            let (sum, times) = (fmt::gbs(many.rate.value), fmt::number(times));
            short = format!(
                "{} get {sum} {}, {times} x one GPU{as_few}",
                all_gpus(n),
                label(direction)
            );
        }
        places = many.fan.gpus.iter().map(|g| format!("gpu{g}")).collect();
    }
    if parts.is_empty() {
        return None;
    }
    let observation = format!(
        "{} together get from host memory less than one by one: {}.",
        all_gpus(n),
        parts.join("; ")
    );
    Some(Finding {
        short,
        action: "Plan transfers of all GPUs at once with these sums.".to_owned(),
        places,
        arms,
        ..Finding::new(SHARED, FindingSeverity::Note, observation)
    })
}

/// `Both GPUs`, `All 8 GPUs`.
fn all_gpus(n: usize) -> String {
    if n == 2 { "Both GPUs".to_owned() } else { format!("All {n} GPUs") }
}
