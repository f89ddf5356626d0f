//! Routes between GPUs: forwarded pairs, and pairs that share links.

use std::collections::{BTreeMap, BTreeSet};

use pathline_explain::figures::pairs::{MeasuredPair, PairMover, pairs};
use pathline_explain::figures::routes::slowdowns;
use pathline_explain::fmt;
use pathline_flow::routes::RouteTable;
use pathline_schema::{LinkEnd, SuiteId};

use crate::evidence::{Evidence, LEAST_GAIN, SoundValue, lost, median, range_text, widest_text};
use crate::{Finding, FindingSeverity};

pub(super) const FORWARDED: &str = "forwarded-pairs";
pub(super) const SHARED: &str = "shared-routes";

/// A copy under a load on its route keeps at most this share of its rate.
const SLOWED: f64 = 0.9;

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    [forwarded(evidence), shared(evidence)].into_iter().flatten().collect()
}

/// Pairs without a link of their own against neighbours whose links have the same peak.
fn forwarded(evidence: &Evidence) -> Option<Finding> {
    let routes = RouteTable::of(evidence.topology());
    let measured = pairs(&evidence.run);
    // The runtime's copy where it is in the run, since every library uses it.
    let verb = [PairMover::Dma, PairMover::Read, PairMover::Write]
        .into_iter()
        .find(|verb| measured.iter().any(|p| p.verb == *verb && !p.both))?;
    // By the peak of the route in use, MB/s.
    let mut classes: BTreeMap<u64, [Vec<(&MeasuredPair, SoundValue)>; 2]> = BTreeMap::new();
    for pair in measured.iter().filter(|p| p.verb == verb && !p.both) {
        let (src, dst) = (LinkEnd::Gpu(pair.src), LinkEnd::Gpu(pair.dst));
        let Some(route) = routes.in_use(src, dst) else { continue };
        let (Some(peak), Some(rate)) = (route.peak, evidence.rate(&pair.entry)) else { continue };
        // Through switches every pair has as many hops; only GPUs that forward are meant here.
        let by_gpus = route.paths.iter().flat_map(|p| &p.nodes);
        if route.through_host || !by_gpus.clone().all(|node| matches!(node, LinkEnd::Gpu(_))) {
            continue;
        }
        let class = classes.entry((peak.gbs() * 1e3).round() as u64).or_default();
        class[usize::from(route.hops > 1)].push((pair, rate));
    }
    let all: usize = classes.values().map(|[_, far]| far.len()).sum();
    let (direct, far) = classes
        .values()
        .map(|[direct, far]| (direct, far))
        .filter(|(direct, far)| !direct.is_empty() && !far.is_empty())
        .max_by_key(|(_, far)| far.len())?;
    let rates = |of: &[(&MeasuredPair, SoundValue<'_>)]| -> Vec<f64> {
        of.iter().map(|p| p.1.value).collect()
    };
    let factor = median(rates(direct)) / median(rates(far));
    let near: Vec<SoundValue> = direct.iter().map(|p| p.1).collect();
    let forwarded: Vec<SoundValue> = far.iter().map(|p| p.1).collect();
    let (a, b) = (direct.first()?, far.first()?);
    let size = b.1.case.timed.first()?.bytes.rounded();
    let label = evidence.copies_by(&b.0.entry).unwrap_or("kernel");
    let matters = factor >= 1.0 + LEAST_GAIN;
    let observation = format!(
        "{} without a direct link reach {} GB/s{} through another GPU; neighbours with links of the same \
         width reach {} ({label} copies of {size}, one at a time).",
        fmt::of_all(far.len(), all, "GPU pair"),
        range_text(&forwarded),
        widest_text(&forwarded),
        range_text(&near),
    );
    let places = far.iter().map(|p| format!("gpu{}→gpu{}", p.0.src, p.0.dst)).collect();
    let arms = vec![
        b.1.arm(format!("gpu{}→gpu{}, forwarded", b.0.src, b.0.dst)),
        a.1.arm(format!("gpu{}→gpu{}, neighbours", a.0.src, a.0.dst)),
    ];
    Some(Finding {
        short: format!(
            "Forwarded copies reach {} GB/s, neighbours as wide {} ({})",
            range_text(&forwarded),
            range_text(&near),
            fmt::of_all(far.len(), all, "pair")
        ),
        action: if matters {
            "Place ranks that exchange most on GPUs with a direct link.".to_owned()
        } else {
            "Place ranks by the width of links, not by hops; forwarded copies share links with others."
                .to_owned()
        },
        gain: if matters { evidence.gain(&[factor]) } else { None },
        places,
        arms,
        weight: if matters { far.iter().map(|f| lost(&a.1, &f.1)).sum() } else { 0.0 },
        ..Finding::new(
            FORWARDED,
            if matters { FindingSeverity::Gain } else { FindingSeverity::Note },
            fmt::sentence(&observation),
        )
    })
}

/// Copies that slow each other because their routes share a link.
fn shared(evidence: &Evidence) -> Option<Finding> {
    let all = slowdowns(&evidence.run);
    let mut slowed = Vec::new();
    for one in &all {
        // A copy with both ends at the load's ends shares more than a link on its route.
        let ends = |f: &pathline_schema::Flow| [f.src.unit, f.dst.unit];
        if ends(one.timed) == ends(one.load) {
            continue;
        }
        let alone = evidence
            .run
            .entries
            .iter()
            .find(|e| e.lone() == Some(one.timed) && e.case.cadence == one.entry.case.cadence);
        let Some(alone) = alone.and_then(|e| evidence.rate(e)) else { continue };
        let Some(loaded) = evidence.rate(&one.entry) else { continue };
        if loaded.high < SLOWED * alone.low {
            slowed.push((one, alone, loaded));
        }
    }
    let (worst, alone, loaded) = slowed.iter().max_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    let path = |f: &pathline_schema::Flow| format!("{}→{}", f.src.unit, f.dst.unit);
    let pairs: BTreeSet<String> = slowed.iter().map(|s| path(s.0.timed)).collect();
    let tried: BTreeSet<String> = all.iter().map(|s| path(s.timed)).collect();
    let kept = loaded.value / alone.value;
    let observation = format!(
        "{} of {} forwarded GPU pairs that were tried lose bandwidth to a copy between other GPUs: {} falls \
         from {} to {} ({}) while {} runs.",
        pairs.len(),
        tried.len(),
        path(worst.timed),
        alone.text(),
        fmt::gbs(loaded.value),
        fmt::percent(kept),
        path(worst.load),
    );
    debug_assert!(evidence.run.suite(SuiteId::Routes).next().is_some());
    Some(Finding {
        short: format!(
            "{}: {} alone, {} while {} runs ({} of {} forwarded pairs)",
            path(worst.timed),
            fmt::gbs(alone.value),
            fmt::number(loaded.value),
            path(worst.load),
            pairs.len(),
            tried.len()
        ),
        cause: format!("The route of {} includes {}.", path(worst.timed), path(worst.load)),
        action: "Exchange with neighbours and over such routes in turn, not at once.".to_owned(),
        places: pairs.into_iter().collect(),
        arms: vec![
            alone.arm(format!("{} alone", path(worst.timed))),
            loaded.arm(format!("{} while {} runs", path(worst.timed), path(worst.load))),
        ],
        ..Finding::new(SHARED, FindingSeverity::Note, observation)
    })
}
