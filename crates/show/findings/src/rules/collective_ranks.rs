//! The faster library of a collective by number of ranks, where it changes.

use std::collections::{BTreeMap, BTreeSet};

use pathline_explain::fmt;
use pathline_explain::message_records::{CountedTimes, is_by_threads, participants};
use pathline_explain::run::{EntryState, RunEntry};
use pathline_schema::{Cadence, Collective, MemKind, SuiteId, Transport, WireOp};

use crate::evidence::{Evidence, SoundValue};
use crate::{Finding, FindingSeverity};

pub(super) const ID: &str = "collective-library-by-ranks";

/// The size that is measured over every number of ranks.
const SIZE: u64 = 1 << 20;

/// A collective of device memory of that size, back to back and out of place.
struct RankedTime<'a> {
    op: Collective,
    ranks: usize,
    via: Transport,
    /// us, the mean over ranks.
    time: SoundValue<'a>,
}

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    let suites = [SuiteId::MpiCollectives, SuiteId::CclCollectives];
    let entries = suites.into_iter().flat_map(|suite| evidence.run.suite(suite));
    let mut groups: BTreeMap<(Collective, usize), Vec<RankedTime>> = BTreeMap::new();
    for one in entries.filter_map(|entry| ranked(evidence, entry)) {
        groups.entry((one.op, one.ranks)).or_default().push(one);
    }
    let mut wins: BTreeMap<Collective, Vec<(usize, &RankedTime, &RankedTime, f64)>> =
        BTreeMap::new();
    for ((op, ranks), of) in &mut groups {
        of.sort_by(|a, b| a.time.value.total_cmp(&b.time.value));
        let [best, .., worst] = of.as_slice() else { continue };
        let factor = best.time.time_gain_over(&worst.time).filter(|_| best.via != worst.via);
        if let Some(factor) = factor {
            wins.entry(*op).or_default().push((*ranks, best, worst, factor));
        }
    }
    // Where one library is the faster over any number of ranks, sizes decide.
    wins.retain(|_, of| of.windows(2).any(|pair| pair[0].1.via != pair[1].1.via));
    let (mut texts, mut factors, mut arms) = (Vec::new(), Vec::new(), Vec::new());
    let mut places = BTreeSet::new();
    for (op, of) in &wins {
        let mut by_library: Vec<(Transport, Vec<String>)> = Vec::new();
        for (ranks, best, worst, factor) in of {
            factors.push(*factor);
            places.insert(format!("{ranks} ranks"));
            for one in [best, worst] {
                let library = evidence.run.library(one.via);
                arms.push(one.time.arm(format!("{op}, {ranks} ranks, {library}")));
            }
            match by_library.iter_mut().find(|known| known.0 == best.via) {
                Some(known) => known.1.push(ranks.to_string()),
                None => by_library.push((best.via, vec![ranks.to_string()])),
            }
        }
        let each = |(via, ranks): &(Transport, Vec<String>)| {
            format!("{} over {}", evidence.run.library(*via), fmt::list(ranks))
        };
        let each: Vec<String> = by_library.iter().map(each).collect();
        texts.push(format!("{op} {}", each.join(", ")));
    }
    if texts.is_empty() {
        return Vec::new();
    }
    let observation = format!(
        "The fastest library at 1MiB depends on the number of ranks (mean over the ranks): {}.",
        texts.join("; ")
    );
    let first = texts.first().cloned().unwrap_or_default();
    vec![Finding {
        short: format!("At 1MiB the fastest depends on the ranks: {first}"),
        action: "Choose the library by the number of ranks of each group.".to_owned(),
        gain: evidence.gain(&factors),
        places: places.into_iter().collect(),
        arms,
        ..Finding::new(ID, FindingSeverity::Gain, observation)
    }]
}

fn ranked<'a>(evidence: &Evidence<'a>, entry: &RunEntry<'a>) -> Option<RankedTime<'a>> {
    let flow = entry.lone()?;
    let wire = flow.by.wire()?;
    let WireOp::Group { op, reduced, in_place: false, unregistered: false } = wire.op else {
        return None;
    };
    if !reduced.is_usual() {
        return None;
    }
    let ranks = participants(flow);
    let parts = 8 * ranks as u64;
    let usual = entry.case.cadence == Cadence::Streaming
        && flow.src.mem == MemKind::Vram
        && wire.via != Transport::MpiStaged
        && !is_by_threads(evidence.run.journal, flow)
        && (flow.bytes.0 <= SIZE && SIZE < flow.bytes.0 + parts);
    let time = evidence.time(entry).filter(|_| usual)?;
    // The sample is that of the latest rank.
    let EntryState::Sampled(series) = entry.state else { return None };
    let counted = series.first().and_then(CountedTimes::from_series)?;
    let share = if counted.max > 0.0 { counted.mean / counted.max } else { 1.0 };
    let time = SoundValue {
        value: time.value * share,
        low: time.low * share,
        high: time.high * share,
        ..time
    };
    Some(RankedTime { op, ranks, via: wire.via, time })
}
