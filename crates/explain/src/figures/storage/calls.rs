//! Where the time in calls goes: a glance says which one to get rid of.

use std::collections::BTreeMap;

use pathline_schema::Tally;

use super::{Job, Part, SUITE, command, labels};
use crate::figure::{self, Body, Cell, Figure, Stack, Stacks};
use crate::run::Run;
use crate::words;

/// The most cases; the others are in the journal.
const MOST: usize = 16;

/// Calls of one case: name, whether of opening and closing, how often and how long.
pub(super) fn tallies(job: &Job<'_, '_>) -> Vec<(String, bool, Tally)> {
    let Some(series) = job.series() else { return Vec::new() };
    let mut during: BTreeMap<&str, Tally> = BTreeMap::new();
    for (name, tally) in series.io.iter().flat_map(|r| &r.calls) {
        during.entry(name).or_default().add(*tally);
    }
    let during = during.into_iter().map(|(name, tally)| (name.to_owned(), false, tally));
    let around = series.setup.iter().map(|(name, tally)| (name.clone(), true, *tally));
    let mut all: Vec<(String, bool, Tally)> =
        during.chain(around).filter(|(.., t)| t.ns > 0.0).collect();
    all.sort_by(|a, b| b.2.ns.total_cmp(&a.2.ns));
    all
}

/// Shares of each call in the time of all, the greatest first.
pub(super) fn shares(job: &Job<'_, '_>) -> Vec<(String, f64)> {
    let all = tallies(job);
    let total: f64 = all.iter().map(|(.., t)| t.ns).sum();
    all.into_iter().map(|(name, _, t)| (name, t.ns / total)).collect()
}

pub(super) fn figure(run: &Run, jobs: &[Job<'_, '_>]) -> Option<Figure> {
    let with: Vec<Job> = chosen(jobs);
    let stacks: Vec<Stack> = with
        .iter()
        .zip(labels(&with, &[Part::Threads, Part::Depth]))
        .map(|(job, label)| Stack { label, parts: parts(job) })
        .collect();
    if stacks.is_empty() {
        return None;
    }
    Some(Figure {
        id: "storage-calls".into(),
        suite: SUITE.into(),
        title: "Time of workers in calls, by call".into(),
        finding: finding(&with, &stacks),
        command: command(run, ""),
        body: Body::Stacks(Stacks { whole: "time in calls".into(), stacks }),
    })
}

/// Of each way to do I/O the case with the least in flight, where calls weigh most; with GPUs, only the
/// first one's and those of the same I/O without.
fn chosen<'b, 'a>(jobs: &[Job<'b, 'a>]) -> Vec<Job<'b, 'a>> {
    let with = || jobs.iter().filter(|j| !tallies(j).is_empty());
    let gpus = with().any(|j| j.gpu().is_some());
    let first = with().filter_map(Job::gpu).min();
    let wanted =
        |j: &&Job| !gpus || j.gpu() == first || jobs.iter().any(|g| super::gaps::same_io(g, j));
    let way = |j: &Job| (j.work(), j.memory(), j.staging(), j.io.engine, j.io.cache, j.store());
    let mut ways = Vec::new();
    for job in with().filter(wanted) {
        if !ways.contains(&way(job)) {
            ways.push(way(job));
        }
    }
    let of =
        |wanted: &_| with().filter(|j| way(j) == *wanted).min_by_key(|j| j.io.slots()).copied();
    ways.iter().filter_map(of).take(MOST).collect()
}

fn parts(job: &Job<'_, '_>) -> Vec<figure::Part> {
    let all = tallies(job);
    let total: f64 = all.iter().map(|(.., t)| t.ns).sum();
    all.into_iter()
        .map(|(name, around, tally)| {
            let each = tally.ns / tally.count.max(1) as f64 / 1e3;
            let when = if around { ", before and after the samples" } else { "" };
            let calls = words::count(usize::try_from(tally.count).unwrap_or(usize::MAX), "call");
            figure::Part {
                name,
                words: format!("{calls} of {} us{when}", words::number(each)),
                cell: Cell {
                    value: Some(100.0 * tally.ns / total),
                    case: Some(job.entry.case.clone()),
                    ..Cell::default()
                },
            }
        })
        .collect()
}

fn finding(jobs: &[Job<'_, '_>], stacks: &[Stack]) -> String {
    let all = jobs.iter().zip(stacks);
    let told: Vec<String> = all
        .filter(|(job, _)| jobs.iter().all(|j| j.gpu().is_none()) || job.gpu().is_some())
        .take(3)
        .map(|(_, stack)| {
            let parts = stack.parts.iter().take(2).filter_map(|p| {
                Some(format!("{} {}", p.name, words::percent(p.cell.value? / 100.0)))
            });
            format!("{}: {}", stack.label, parts.collect::<Vec<_>>().join(", "))
        })
        .collect();
    format!(
        "{}. All samples and what opens and closes around them; the longer one measures, the less \
         the latter weighs.",
        told.join("; ")
    )
}
