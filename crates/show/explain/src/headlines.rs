//! The first sentences of a report: the most relevant results of the run.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{
    Cadence, Case, CaseOutcome, Flow, Journal, MeasuredCase, StopReason, VerifyResult,
};
use pathline_stats::MIN_VISITS;

use crate::figure::{Figure, FigureCell, Headline, HeadlineTone, Suspicion};
use crate::figures::StorageSummary;
use crate::fmt;
use crate::measured_cases::measured;
use crate::run::{CaseQuantity, RunEntry, RunView, moves_bytes};

/// Maximum deviation from a published value that counts as good agreement.
const AGREES: f64 = 0.1;

/// All headlines, in order of relevance: errors of the run, `sentences` of figures, then facts
/// about the whole run. A run of a few cases has a sentence for each instead.
pub(crate) fn all(run: &RunView, figures: &[Figure], sentences: Vec<Headline>) -> Vec<Headline> {
    let journal = run.journal;
    let with = |tone| move |text: String| Headline { text, tone, is_listed: false };
    let (plain, warn) = (with(HeadlineTone::Plain), with(HeadlineTone::Warn));
    let wrong = [broken(journal), rejected(journal), lacking_gpus(journal), beyond(run)];
    let mut all: Vec<Headline> = wrong.into_iter().flatten().map(warn).collect();
    let few = single(run);
    let skips = skips(journal).map(plain);
    if few.is_empty() {
        all.extend(sentences);
        all.extend(published(run, figures));
        all.extend(faults(journal).map(warn));
        all.extend(skips);
        all.extend(unverified(run).map(warn));
        all.extend(unsettled(run).map(plain));
    } else {
        all.extend(few.into_iter().map(plain));
        all.extend(skips);
        all.extend(faults(journal).map(warn));
        all.extend(unverified(run).map(warn));
    }
    all.extend(run.repeats.sentence(journal.begin.settings.repeats).map(plain));
    all.extend(cut(journal).map(warn));
    all
}

/// Maximum bytes of copies that are shown by their time.
const TINY: u64 = 1024;

/// Maximum number of cases with a sentence each.
const FEW: usize = 4;

/// One sentence per case, for a run with few cases.
fn single(run: &RunView) -> Vec<String> {
    let sampled = || run.entries.iter().filter(|e| e.is_sampled());
    if sampled().count() > FEW {
        return Vec::new();
    }
    let describe = |entry: &RunEntry| {
        let isolated = entry.case.cadence == Cadence::Isolated;
        let ping = |f: &Flow| f.by.wire().is_some_and(|w| w.op.is_timed_alone());
        // The rate of a tiny copy would be 0.00 GB/s: its time is relevant.
        let tiny = |f: &Flow| f.bytes.0 <= TINY && f.by.has_rate();
        let step = isolated
            || entry.case.timed.iter().any(|f| f.by.is_chase() || ping(f))
            || entry.case.timed.iter().all(tiny);
        let quantity = if step { CaseQuantity::StepNs } else { CaseQuantity::Payload };
        let cell = run.cell(entry, quantity);
        let value = cell.value?;
        let of = cell
            .share_of_ceiling()
            .zip(cell.ceiling)
            .map(|(share, peak)| format!(", {} of {}", fmt::percent(share), fmt::gbs(peak)));
        let (of, within) = (of.unwrap_or_default(), fmt::uncertainty(&cell));
        let published = cell.published.map_or(String::new(), |p| {
            format!(", {} {} ({})", p.kind.label(), fmt::number(p.value), p.source)
        });
        let io = match entry.series() {
            [series] => StorageSummary::from_series(series),
            _ => None,
        };
        let io = io.map_or(String::new(), |io| io.text());
        let suspect = cell.suspect.map_or(String::new(), |s| format!(" ({})", s.text()));
        let (value, unit, case) = (fmt::number(value), quantity.unit(), entry.case);
        Some(format!("{value} {unit}{within}{io}{of}{published}: {case}{suspect}."))
    };
    sampled().filter_map(describe).collect()
}

/// Comparison of the figures with published values.
fn published(run: &RunView, figures: &[Figure]) -> Option<Headline> {
    // A path counts once, in however many figures and sizes it appears.
    let mut seen = BTreeSet::new();
    let mut pairs: Vec<(f64, &FigureCell)> = figures
        .iter()
        .flat_map(Figure::cells)
        .filter(|c| !matches!(c.suspect, Some(Suspicion::BeyondCeiling(_) | Suspicion::Busy(_))))
        .filter_map(|c| Some((c.value?, c.published.as_ref()?, c.case.as_ref()?, c)))
        .filter(|(_, published, case, _)| {
            let path = |f: &pathline_schema::Flow| (f.src, f.dst, f.by);
            let paths: Vec<_> = case.timed.iter().map(path).collect();
            seen.insert((paths, case.cadence, published.source.as_str()))
        })
        .map(|(value, published, _, c)| (value / published.value - 1.0, c))
        .filter(|(apart, _)| apart.is_finite())
        .collect();
    pairs.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    let (apart, cell) = pairs.first()?;
    let close = pairs.iter().filter(|(apart, _)| apart.abs() <= AGREES).count();
    // These agree by construction and do not validate the model.
    let carried = pairs.iter().filter(|(_, c)| c.case.as_ref().is_some_and(|c| run.carries(c)));
    let carried = match carried.count() {
        0 => String::new(),
        n => format!(", {n} of which the model carries as data"),
    };
    let farthest = cell.case.as_ref().zip(cell.published.as_ref());
    let farthest = farthest.map_or(String::new(), |(case, published)| {
        let side = if *apart > 0.0 { "above" } else { "below" };
        format!(" Farthest, {} {side} {}: {case}.", fmt::percent(apart.abs()), published.source)
    });
    let (values, within) = (fmt::count(pairs.len(), "reference value"), fmt::percent(AGREES));
    let text = format!("{close} of {values} agree within {within}{carried}.{farthest}");
    let tone = if close == pairs.len() { HeadlineTone::Good } else { HeadlineTone::Plain };
    Some(Headline { text, tone, is_listed: false })
}

fn faults(journal: &Journal) -> Option<String> {
    let failed = |outcome: &CaseOutcome| match outcome {
        // A case without this information is not a failure.
        CaseOutcome::Faulted(f) => {
            let is_known = journal.rejected.iter().any(|r| r.case == f.case.to_string());
            (!is_known && f.was_started()).then(|| f.error.clone())
        }
        _ => None,
    };
    let faults: Vec<String> = journal.outcomes.iter().filter_map(failed).collect();
    let (cases, first) = (fmt::count(faults.len(), "case"), faults.first()?);
    Some(format!("{cases} failed, the first with: {first}"))
}

/// Results above the limits of the hardware.
fn beyond(run: &RunView) -> Option<String> {
    let (results, worst) = (fmt::count(run.beyond.len(), "result"), run.beyond.first()?);
    let (claim, case) = (worst.claim(), &worst.case);
    Some(format!(
        "{results} cannot be right: {claim} ({case}). Marked !, they count as wrong, and no sentence rests \
         on them."
    ))
}

/// Impossible records.
fn rejected(journal: &Journal) -> Option<String> {
    let first = journal.rejected.first()?;
    let (line, case, why) = (first.line, &first.case, &first.why);
    let records = fmt::count(journal.rejected.len(), "record");
    Some(format!(
        "{records} of the journal cannot be right and give no figures, the first on line {line} ({case}): \
         {why}."
    ))
}

/// Skips, with their most frequent reason.
fn skips(journal: &Journal) -> Option<String> {
    // Reasons that differ only in numbers count as one, shown by its first text.
    let mut causes: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    for outcome in &journal.outcomes {
        if let CaseOutcome::Skipped(skip) = outcome {
            let why = fmt::reason(&skip.case, &skip.why);
            causes.entry(fmt::cause(why)).or_insert((0, why)).0 += 1;
        }
    }
    let total: usize = causes.values().map(|cause| cause.0).sum();
    let (most, why) = causes.values().max_by_key(|(n, why)| (*n, std::cmp::Reverse(*why)))?;
    let share = match causes.len() {
        1 => String::new(),
        all => format!("{} causes, the most frequent ({most}): ", all),
    };
    Some(format!("{} skipped; {share}{why}", fmt::count(total, "case")))
}

/// Copies whose bytes were not verified. Loops that leave no bytes do not count.
fn unverified(run: &RunView) -> Option<String> {
    // Messages of a model carry no bytes, which is not a fault.
    let is_expected = |case: &Case| {
        run.simulated().is_some() && case.flows().any(|flow| flow.by.wire().is_some())
    };
    let copies = measured(run.journal).filter(|m| moves_bytes(&m.case) && !is_expected(&m.case));
    let mut unverified = copies.filter_map(|m| match &m.verdict {
        VerifyResult::Unverified(why) => Some(why),
        VerifyResult::Verified => None,
    });
    let first = unverified.next()?;
    let total = unverified.count() + 1;
    Some(format!("{} moved bytes that were not verified: {first}", fmt::count(total, "case")))
}

/// Results whose time budget ended before the precision goal or the minimum number of samples.
fn unsettled(run: &RunView) -> Option<String> {
    let journal = run.journal;
    if run.simulated().is_some() {
        // The spread of a model's times is random and shows nothing about a machine.
        return None;
    }
    let precision = journal.settings().precision;
    // Of what other programs disturbed another line tells.
    let (wide, few): (Vec<_>, Vec<_>) = measured(journal)
        .filter(|m| m.stop.reason != StopReason::Precise && run.busy.reason(&m.case).is_none())
        .partition(|m| m.stop.half_width > precision && !is_short(m));
    // Cases that a limit cut are counted by another sentence.
    let kind = if journal.partial.is_empty() { "result" } else { "finished result" };
    let total = fmt::count(measured(journal).count(), kind);
    let worst = wide.iter().max_by(|a, b| a.stop.half_width.total_cmp(&b.stop.half_width));
    let Some(worst) = worst else {
        let text = format!("{} of {total} have fewer samples than wanted.", few.len());
        return (!few.is_empty()).then_some(text);
    };
    let case = match worst.case.timed.as_slice() {
        [first, _, ..] => format!("{first} and {} more", worst.case.flows().count() - 1),
        _ => worst.case.to_string(),
    };
    let more = match few.len() {
        0 => String::new(),
        n => format!("; {n} more with fewer samples than wanted"),
    };
    let (wide, precision) = (wide.len(), fmt::percent(precision));
    let worst = match worst.stop.half_width {
        half if half < 1.0 => format!("±{}", fmt::percent(half)),
        _ => "beyond ±100 %".to_owned(),
    };
    Some(format!(
        "{wide} of {total} are known less well than ±{precision} (worst {worst}, {case}){more}; \
         --case-budget 1s gives them more time."
    ))
}

/// Whether a case has too few samples for an interval.
fn is_short(measured: &MeasuredCase) -> bool {
    measured.series.iter().any(|s| s.samples_ns.len() < MIN_VISITS)
}

/// Required GPUs that could not be used, from the start or from some case on.
fn lacking_gpus(journal: &Journal) -> Option<String> {
    let note = journal.notes.iter().find(|note| note.lacks_gpus())?;
    Some(fmt::sentence(&note.text))
}

/// Unreadable journal lines. Comes first, since results are missing.
fn broken(journal: &Journal) -> Option<String> {
    let first = journal.broken.first()?;
    let lines = fmt::count(journal.broken.len(), "line");
    Some(format!(
        "{lines} of the journal cannot be read and their contents are missing here; the first is line {}: {}.",
        first.line, first.reason
    ))
}

fn cut(journal: &Journal) -> Option<String> {
    if crate::run::complete(journal) {
        return None;
    }
    let why = match &journal.end {
        None => "The run was cut off".to_owned(),
        Some(end) => {
            let why = end.why.as_deref().unwrap_or("not every case has an outcome");
            format!("The run ended early ({why})")
        }
    };
    let partial = match journal.partial.len() {
        0 => String::new(),
        n => format!("; {} rest on fewer samples than planned", fmt::count(n, "case")),
    };
    Some(format!("{why}{partial}; --resume goes on."))
}
