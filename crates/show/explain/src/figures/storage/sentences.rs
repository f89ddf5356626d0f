//! Sentences about storage for the summary.

use pathline_schema::{IoCache, IoOp, IoOrder, MemKind};

use super::super::is_apart;
use super::{IoEntry, IoQuantity, calls, engine_label, gaps, labels, stages};
use crate::figures::pivot::{least, most};
use crate::fmt;
use crate::run::RunView;

/// Rates to host memory and to GPUs, and the distribution of the calls' time.
pub(super) fn sentences(run: &RunView, jobs: &[IoEntry<'_, '_>]) -> [Option<String>; 3] {
    [host(jobs), gpus(run, jobs), in_calls(jobs)]
}

/// Direct I/O to host memory.
fn is_direct(job: &IoEntry) -> bool {
    job.gpu().is_none() && job.io.cache == IoCache::Direct
}

fn best<'j, 'b, 'a>(
    jobs: &'j [IoEntry<'b, 'a>],
    asked: IoQuantity,
    wanted: impl Fn(&IoEntry) -> bool,
) -> Option<(f64, &'j IoEntry<'b, 'a>)> {
    let chosen = jobs.iter().filter(|j| is_direct(j) && wanted(j));
    most(chosen.filter_map(|j| Some((j.value(asked)?, j))))
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
    let meets = |j: &&IoEntry| is_direct(j) && sure(j) && !is_apart(&j.cell(asked), &best);
    let equal: Vec<&IoEntry> = jobs.iter().filter(meets).collect();
    let chosen = equal.iter().min_by_key(|j| (j.io.slots(), j.io.threads))?;
    Some((chosen.value(asked)?, chosen, equal.len() - 1))
}

fn host(jobs: &[IoEntry<'_, '_>]) -> Option<String> {
    let random = |j: &IoEntry| j.io.order == IoOrder::Rand && j.io.op == IoOp::Read;
    let iops = least_effort(jobs, IoQuantity::Iops, random).map(|(iops, job, equal)| {
        let others = match equal {
            0 => String::new(),
            1 => " (another setting lies within its interval)".to_owned(),
            n => format!(" ({n} other settings lie within its interval)"),
        };
        let cpu = job.value(IoQuantity::Cpu);
        let cpu = cpu.map_or(String::new(), |us| format!(", {} us of CPU each", fmt::number(us)));
        let (iops, within) =
            (fmt::in_thousands(iops), fmt::uncertainty(&job.cell(IoQuantity::Iops)));
        let (work, engine) = (job.work(), engine_label(job.io.engine));
        let (depth, threads) = (job.io.depth, fmt::threads(job.io.threads));
        format!("{iops}{within} {work} a second by {engine} at depth {depth} with {threads}{cpu}{others}")
    });
    let alone = jobs.iter().filter(|j| is_direct(j) && random(j) && j.io.slots() == 1);
    let times = alone.filter_map(|j| Some((j.value(IoQuantity::Quantile(0.5))?, j)));
    let alone = least(times).map(|(us, job)| {
        let tail = job.value(IoQuantity::Quantile(0.99));
        let tail = tail.map_or(String::new(), |p99| format!(" (p99 {})", fmt::number(p99)));
        let engine = engine_label(job.io.engine);
        format!("one alone takes {} us{tail} by {engine}", fmt::number(us))
    });
    let in_sequence = |op: IoOp, participle: &str| {
        let sequential = |j: &IoEntry| j.io.order == IoOrder::Seq && j.io.op == op;
        let (rate, job) = best(jobs, IoQuantity::Rate, sequential)?;
        Some(format!("{} are {participle} in sequence ({})", fmt::gbs(rate), job.memory()))
    };
    let sequences = [in_sequence(IoOp::Read, "read"), in_sequence(IoOp::Write, "written")];
    let parts = [iops, alone].into_iter().chain(sequences).flatten();
    fmt::join_any(parts, "; ").map(|parts| format!("Files: {parts}."))
}

/// Pipelined and blocking staging compared with the host's rate.
fn gpus(run: &RunView, jobs: &[IoEntry<'_, '_>]) -> Option<String> {
    let mut all: Vec<stages::StageRates> = stages::stage_rates(run, jobs);
    all.retain(|s| s.job.io.order == IoOrder::Seq && s.host_rate().is_some());
    let first = all.iter().filter_map(|s| s.job.gpu()).min()?;
    all.retain(|s| s.job.gpu() == Some(first) && s.job.io.op == IoOp::Read);
    let names = labels(&all.iter().map(|s| s.job).collect::<Vec<_>>(), &[]);
    let one = |(stages, name): (&stages::StageRates, String)| {
        let name = if all.len() == 1 { stages.job.staging() } else { name };
        let rate = stages.measured.value?;
        // With any memory: the memory through which blocks are staged is a choice too.
        let same = |host: &IoEntry| gaps::same_io(&stages.job, host);
        let (host, _) = best(jobs, IoQuantity::Rate, same)?;
        let (rate, of_host) = (fmt::gbs(rate), fmt::percent(rate / host));
        Some(format!("{name} {rate} ({of_host} of the host's best)"))
    };
    let texts = fmt::join_any(all.iter().zip(names).filter_map(one), "; ")?;
    Some(format!("From files into gpu{first}: {texts}."))
}

/// For blocking staging, the two calls with the largest share of the time in calls.
fn in_calls(jobs: &[IoEntry<'_, '_>]) -> Option<String> {
    let blocking = jobs.iter().filter(|j| j.io.stage.is_some_and(|s| !s.pipelined));
    let with = blocking.map(|j| (j, calls::shares(j))).filter(|(_, shares)| !shares.is_empty());
    // Registered memory includes the cost of registration.
    let registered = |j: &IoEntry| j.io.stage.map(|s| s.through) == Some(MemKind::Registered);
    let (job, shares) = with.min_by_key(|(j, _)| !registered(j))?;
    let part = |(name, share): &(String, f64)| format!("{name} takes {}", fmt::percent(*share));
    let parts = fmt::list_any(shares.iter().take(2).map(part))?;
    let (work, memory, staging) = (job.work(), job.memory(), job.staging());
    Some(format!("Of the time in calls of {work} into {memory} ({staging}), {parts}."))
}
