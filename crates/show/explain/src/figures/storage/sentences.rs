//! Sentences about storage for the summary.

use pathline_schema::{IoCache, IoOp, IoOrder, MemKind};

use super::super::is_apart;
use super::{IoEntry, IoQuantity, calls, engine_label, gaps, labels, stages};
use crate::fmt;
use crate::run::RunView;

/// Rates to host memory and to GPUs, and the distribution of the calls' time.
pub(super) fn sentences(run: &RunView, jobs: &[IoEntry<'_, '_>]) -> [Option<String>; 3] {
    [host(jobs), gpus(run, jobs), in_calls(jobs)]
}

fn best<'j, 'b, 'a>(
    jobs: &'j [IoEntry<'b, 'a>],
    asked: IoQuantity,
    wanted: impl Fn(&IoEntry) -> bool,
) -> Option<(f64, &'j IoEntry<'b, 'a>)> {
    jobs.iter()
        .filter(|j| j.gpu().is_none() && j.io.cache == IoCache::Direct && wanted(j))
        .filter_map(|j| Some((j.value(asked)?, j)))
        .max_by(|a, b| a.0.total_cmp(&b.0))
}

/// Of the cases whose 95 % interval overlaps that of the best one, the one with the fewest I/Os in
/// flight, then threads, and the number of others. The best of many medians is often due to chance.
/// A case without an interval overlaps none: it counts only where no case has one.
fn least_effort<'j, 'b, 'a>(
    jobs: &'j [IoEntry<'b, 'a>],
    asked: IoQuantity,
    wanted: impl Fn(&IoEntry) -> bool,
) -> Option<(f64, &'j IoEntry<'b, 'a>, usize)> {
    let sure = |j: &IoEntry| wanted(j) && j.cell(asked).has_interval();
    let Some((_, best)) = best(jobs, asked, sure) else {
        let (value, job) = best(jobs, asked, wanted)?;
        return Some((value, job, 0));
    };
    let best = best.cell(asked);
    let equal: Vec<&IoEntry> = jobs
        .iter()
        .filter(|j| j.gpu().is_none() && j.io.cache == IoCache::Direct && sure(j))
        .filter(|j| !is_apart(&j.cell(asked), &best))
        .collect();
    let chosen = equal.iter().min_by_key(|j| (j.io.slots(), j.io.threads))?;
    Some((chosen.value(asked)?, chosen, equal.len() - 1))
}

fn host(jobs: &[IoEntry<'_, '_>]) -> Option<String> {
    let random = |j: &IoEntry| j.io.order == IoOrder::Rand && j.io.op == IoOp::Read;
    let mut parts = Vec::new();
    if let Some((iops, job, equal)) = least_effort(jobs, IoQuantity::Iops, random) {
        let cell = job.cell(IoQuantity::Iops);
        let within = fmt::uncertainty(&cell);
        let others = match equal {
            0 => String::new(),
            1 => " (another setting lies within its interval)".to_owned(),
            n => format!(" ({n} other settings lie within its interval)"),
        };
        let cpu = job
            .value(IoQuantity::Cpu)
            .map_or(String::new(), |us| format!(", {} us of CPU each", fmt::number(us)));
        parts.push(format!(
            "{}{within} {} a second by {} at depth {} with {}{cpu}{others}",
            fmt::in_thousands(iops),
            job.work(),
            engine_label(job.io.engine),
            job.io.depth,
            fmt::threads(job.io.threads)
        ));
    }
    let alone = |j: &IoEntry| random(j) && j.io.slots() == 1;
    let least = jobs
        .iter()
        .filter(|j| j.gpu().is_none() && j.io.cache == IoCache::Direct && alone(j))
        .filter_map(|j| Some((j.value(IoQuantity::Quantile(0.5))?, j)))
        .min_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((us, job)) = least {
        let tail = job
            .value(IoQuantity::Quantile(0.99))
            .map_or(String::new(), |p99| format!(" (p99 {})", fmt::number(p99)));
        parts.push(format!(
            "one alone takes {} us{tail} by {}",
            fmt::number(us),
            engine_label(job.io.engine)
        ));
    }
    for (op, participle) in [(IoOp::Read, "read"), (IoOp::Write, "written")] {
        let sequential = |j: &IoEntry| j.io.order == IoOrder::Seq && j.io.op == op;
        if let Some((rate, job)) = best(jobs, IoQuantity::Rate, sequential) {
            let memory = job.memory();
            parts.push(format!("{} are {participle} in sequence ({memory})", fmt::gbs(rate)));
        }
    }
    (!parts.is_empty()).then(|| format!("Files: {}.", parts.join("; ")))
}

/// Pipelined and blocking staging compared with the host's rate.
fn gpus(run: &RunView, jobs: &[IoEntry<'_, '_>]) -> Option<String> {
    let all: Vec<stages::StageRates> = stages::stage_rates(run, jobs)
        .into_iter()
        .filter(|s| s.job.io.order == IoOrder::Seq && s.host_rate().is_some())
        .collect();
    let first = all.iter().filter_map(|s| s.job.gpu()).min()?;
    let chosen: Vec<&stages::StageRates> =
        all.iter().filter(|s| s.job.gpu() == Some(first) && s.job.io.op == IoOp::Read).collect();
    let names = labels(&chosen.iter().map(|s| s.job).collect::<Vec<_>>(), &[]);
    let one = |(stages, name): (&&stages::StageRates, String)| {
        let name = if chosen.len() == 1 { stages.job.staging() } else { name };
        let rate = stages.measured.value?;
        // With any memory: the memory through which blocks are staged is a choice too.
        let same = |host: &IoEntry| gaps::same_io(&stages.job, host);
        let (host, _) = best(jobs, IoQuantity::Rate, same)?;
        let of_host = fmt::percent(rate / host);
        Some(format!("{name} {} ({of_host} of the host's best)", fmt::gbs(rate)))
    };
    let texts: Vec<String> = chosen.iter().zip(names).filter_map(one).collect();
    (!texts.is_empty()).then(|| format!("From files into gpu{first}: {}.", texts.join("; ")))
}

/// For blocking staging, the two calls with the largest share of the time in calls.
fn in_calls(jobs: &[IoEntry<'_, '_>]) -> Option<String> {
    let blocking = |j: &&IoEntry| j.io.stage.is_some_and(|s| !s.pipelined);
    let (job, shares) = jobs
        .iter()
        .filter(blocking)
        .map(|j| (j, calls::shares(j)))
        .filter(|(_, shares)| !shares.is_empty())
        // Registered memory includes the cost of registration.
        .min_by_key(|(j, _)| j.io.stage.map(|s| s.through) != Some(MemKind::Registered))?;
    let parts: Vec<String> = shares
        .iter()
        .take(2)
        .map(|(name, share)| format!("{name} takes {}", fmt::percent(*share)))
        .collect();
    Some(format!(
        "Of the time in calls of {} into {} ({}), {}.",
        job.work(),
        job.memory(),
        job.staging(),
        fmt::list(&parts)
    ))
}
