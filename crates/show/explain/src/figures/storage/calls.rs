//! Time of I/O workers by system and runtime call.

use std::collections::BTreeMap;

use pathline_schema::CallTally;

use super::{IoEntry, LabelPart, SUITE, labels};
use crate::figure::{Figure, FigureCell, FigureStack, StackPart, StacksBody};
use crate::figures::{distinct, frame};
use crate::fmt;
use crate::run::RunView;

/// Maximum number of cases; the journal has all.
const MAX_CASES: usize = 16;

/// Calls of a case: name, whether part of opening and closing, count and time.
pub(super) fn tallies(job: &IoEntry<'_, '_>) -> Vec<(String, bool, CallTally)> {
    let Some(series) = job.series() else { return Vec::new() };
    let mut during: BTreeMap<&str, CallTally> = BTreeMap::new();
    for (name, tally) in series.io.iter().flat_map(|r| &r.calls) {
        during.entry(name).or_default().add(*tally);
    }
    let during = during.into_iter().map(|(name, tally)| (name.to_owned(), false, tally));
    let around = series.setup.iter().map(|(name, tally)| (name.clone(), true, *tally));
    let mut all: Vec<(String, bool, CallTally)> =
        during.chain(around).filter(|(.., t)| t.ns > 0.0).collect();
    all.sort_by(|a, b| b.2.ns.total_cmp(&a.2.ns));
    all
}

/// Whether a call copies between host and GPU.
pub(super) fn is_copy(name: &str) -> bool {
    name.contains("Memcpy")
}

/// Share of each call in the total time, in descending order.
pub(super) fn shares(job: &IoEntry<'_, '_>) -> Vec<(String, f64)> {
    let all = tallies(job);
    let total: f64 = all.iter().map(|(.., t)| t.ns).sum();
    all.into_iter().map(|(name, _, t)| (name, t.ns / total)).collect()
}

pub(super) fn figure(run: &RunView, jobs: &[IoEntry<'_, '_>]) -> Option<Figure> {
    let with: Vec<IoEntry> = chosen(jobs);
    let labels = labels(&with, &[LabelPart::Threads, LabelPart::Depth]);
    let stack = |(job, label)| FigureStack { label, parts: parts(job) };
    let stacks: Vec<FigureStack> = with.iter().zip(labels).map(stack).collect();
    let framed = frame(run, (SUITE, ""), "storage-calls", "Time of workers in calls, by call")
        .finding(finding(&with, &stacks));
    let body = StacksBody { whole: "time in calls".into(), stacks };
    (!body.stacks.is_empty()).then(|| framed.draw(body))
}

/// For each kind of I/O the case with the fewest in flight, where calls weigh most. With GPUs only
/// those of the first GPU, and of the same I/O without GPU.
fn chosen<'b, 'a>(jobs: &[IoEntry<'b, 'a>]) -> Vec<IoEntry<'b, 'a>> {
    let with = || jobs.iter().filter(|j| !tallies(j).is_empty());
    let gpus = with().any(|j| j.gpu().is_some());
    let first = with().filter_map(IoEntry::gpu).min();
    let wanted =
        |j: &&IoEntry| !gpus || j.gpu() == first || jobs.iter().any(|g| super::gaps::same_io(g, j));
    let path =
        |j: &IoEntry| (j.work(), j.memory(), j.staging(), j.io.engine, j.io.cache, j.store());
    let paths = distinct(with().filter(wanted).map(path));
    let of =
        |wanted: &_| with().filter(|j| path(j) == *wanted).min_by_key(|j| j.io.slots()).copied();
    paths.iter().filter_map(of).take(MAX_CASES).collect()
}

fn parts(job: &IoEntry<'_, '_>) -> Vec<StackPart> {
    let all = tallies(job);
    let total: f64 = all.iter().map(|(.., t)| t.ns).sum();
    let part = |(name, around, tally): (String, bool, CallTally)| {
        let each = fmt::number(tally.ns / tally.count.max(1) as f64 / 1e3);
        let when = if around { ", before and after the samples" } else { "" };
        let calls = fmt::count(usize::try_from(tally.count).unwrap_or(usize::MAX), "call");
        let cell = FigureCell::stated(job.entry, Some(100.0 * tally.ns / total));
        StackPart { name, detail: format!("{calls} of {each} us{when}"), cell }
    };
    all.into_iter().map(part).collect()
}

fn finding(jobs: &[IoEntry<'_, '_>], stacks: &[FigureStack]) -> String {
    let no_gpu = jobs.iter().all(|j| j.gpu().is_none());
    let shown = jobs.iter().zip(stacks).filter(|(job, _)| no_gpu || job.gpu().is_some());
    let texts = shown.take(3).map(|(_, stack)| {
        let parts =
            stack.parts.iter().take(2).filter_map(|p| {
                Some(format!("{} {}", p.name, fmt::percent(p.cell.value? / 100.0)))
            });
        format!("{}: {}", stack.label, fmt::join_any(parts, ", ").unwrap_or_default())
    });
    format!(
        "{}. All samples and what opens and closes around them; the longer one measures, the less \
         the latter weighs.",
        fmt::join_any(texts, "; ").unwrap_or_default()
    )
}
