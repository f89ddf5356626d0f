//! The bottleneck between files and a GPU: each stage measured alone, and the resulting rate.

use pathline_flow::ClosedQueue;
use pathline_schema::{Cadence, IoEngine, IoOp, IoOrder, IoStage, MemKind, Mover};

use super::limits::{self, REACHES};
use super::{IoEntry, IoQuantity, SUITE, calls, gaps, labels};
use crate::figure::{Figure, FigureCell, SheetColumn};
use crate::figures::frame;
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

/// A rate within this share of a stage's rate is limited by that stage, which hides the others.
const HIDES: f64 = 0.95;

/// Stages of one path between files and a GPU, in GB/s.
pub(super) struct StageRates<'b, 'a> {
    pub(super) job: IoEntry<'b, 'a>,
    pub(super) measured: FigureCell,
    /// The same I/O with host memory at its end: the device and its file system.
    host: Option<FigureCell>,
    /// The copy of a block between host and GPU alone.
    copy: Option<(f64, FigureCell)>,
    /// The rate of the workers if only their own time counted.
    cpu: Option<f64>,
    follows: Option<StageBound>,
}

/// Prediction from the stages.
#[derive(Debug, Clone, PartialEq)]
struct StageBound {
    /// GB/s.
    rate: f64,
    /// The limiting stage.
    why: String,
}

impl StageRates<'_, '_> {
    /// Prediction from all stages, GB/s.
    fn predicted(&self) -> Option<f64> {
        Some(self.follows.as_ref()?.rate)
    }

    pub(super) fn host_rate(&self) -> Option<f64> {
        self.host.as_ref()?.value
    }

    /// The bottleneck, in a sentence.
    fn verdict(&self) -> Option<String> {
        let (measured, host) = (self.measured.value?, self.host_rate()?);
        let of_host = format!("{} of the host's rate", fmt::percent(measured / host));
        let Some(follows) = &self.follows else {
            return Some(format!("{of_host}; how fast a copy is alone is not in this run"));
        };
        let share = measured / follows.rate;
        let (reached, why) =
            (format!("{of_host}, {} of what follows", fmt::percent(share)), &follows.why);
        Some(match share {
            s if s < REACHES => format!("{reached} from {why}; nothing here explains the rest"),
            s if s * REACHES > 1.0 => {
                format!("{reached} from {why}: the stages gave less when they ran alone")
            }
            _ => format!("{reached}: {why}"),
        })
    }
}

/// The fastest case of each path to each GPU.
pub(super) fn stage_rates<'b, 'a>(
    run: &'b RunView<'a>,
    jobs: &[IoEntry<'b, 'a>],
) -> Vec<StageRates<'b, 'a>> {
    let path = |j: &IoEntry| {
        (j.store(), j.gpu(), j.io.op, j.io.order, j.io.cache, j.block(), j.io.stage, j.io.engine)
    };
    let mut best: Vec<(IoEntry, f64)> = Vec::new();
    for job in jobs.iter().filter(|j| j.gpu().is_some()) {
        let Some(rate) = job.value(IoQuantity::Rate) else { continue };
        match best.iter_mut().find(|(known, _)| path(known) == path(job)) {
            Some(known) if rate > known.1 => *known = (*job, rate),
            Some(_) => {}
            None => best.push((*job, rate)),
        }
    }
    best.into_iter().map(|(job, _)| stages(run, job, jobs)).collect()
}

fn stages<'b, 'a>(
    run: &'b RunView<'a>,
    job: IoEntry<'b, 'a>,
    jobs: &[IoEntry<'b, 'a>],
) -> StageRates<'b, 'a> {
    let host = gaps::host_of(&job, jobs)
        .map(|host| (host, host.rate(run)))
        .filter(|(_, cell)| cell.value.is_some());
    let copy = copy(run, &job);
    let block = job.block().as_f64();
    let both = host.as_ref().zip(copy.as_ref()).map(|((host, _), (rate, _))| (host, block / rate));
    let cpu = both.and_then(|(host, copy_ns)| {
        Some(limits::worker_rate(host, in_copies(&job, copy_ns))? * block)
    });
    let follows = both.and_then(|(host, copy_ns)| follows(run, &job, host, copy_ns, cpu, jobs));
    StageRates { job, measured: job.rate(run), host: host.map(|h| h.1), copy, cpu, follows }
}

/// Worker time per block for the copy, ns: the whole copy, or the call that starts it.
fn in_copies(job: &IoEntry<'_, '_>, copy_ns: f64) -> f64 {
    if job.io.stage.is_some_and(|stage| !stage.pipelined) {
        return copy_ns;
    }
    let all = calls::tallies(job);
    let calls = all.iter().filter(|(name, around, _)| !around && calls::is_copy(name));
    calls.map(|(.., tally)| tally.ns / tally.count.max(1) as f64).sum()
}

fn follows(
    run: &RunView,
    job: &IoEntry<'_, '_>,
    host: &IoEntry<'_, '_>,
    copy_ns: f64,
    cpu: Option<f64>,
    jobs: &[IoEntry<'_, '_>],
) -> Option<StageBound> {
    let pipelined = job.io.stage.filter(|_| job.io.engine != IoEngine::Gds)?.pipelined;
    let block = job.block().as_f64();
    let files = host.rate(run).value? / block;
    let queue = ClosedQueue {
        workers: job.io.threads,
        depth: job.io.depth,
        batch: job.io.batch,
        files_rate: files,
        file_ns: limits::alone(host, jobs).min(host.io.slots() as f64 / files),
        copy_ns,
        overlaps: pipelined,
    };
    let (rate, copies) = (queue.rate(), queue.copy_rate());
    if !rate.is_finite() {
        return None;
    }
    if let Some(cpu) = cpu.filter(|cpu| *cpu < rate.min(HIDES * copies) * block) {
        let most = fmt::gbs(cpu);
        let why = format!("the CPU: I/O and calls of its workers leave no more than {most}");
        return Some(StageBound { rate: cpu, why });
    }
    let why = if rate >= HIDES * files {
        limits::find_limit(run, host, jobs)?
    } else if rate >= HIDES * copies {
        let how = if pipelined { "" } else { ", which its workers wait for" };
        format!("the copies{how}, {}", fmt::gbs(copies * block))
    } else {
        "files and copies in turns, with too little in flight to hide either".to_owned()
    };
    Some(StageBound { rate: cpu.map_or(rate * block, |cpu| cpu.min(rate * block)), why })
}

/// Rate of copies of a block alone, with the memory of the path: back to back if no worker waits
/// for each, one at a time otherwise, or else from the times that the case recorded for its copies.
fn copy(run: &RunView, job: &IoEntry<'_, '_>) -> Option<(f64, FigureCell)> {
    let stage = job.io.stage?;
    let writes = job.io.op == IoOp::Write;
    let gpu = job.flow.io_ends().1.unit;
    let fits = |entry: &&RunEntry| {
        let Some(flow) = entry.lone() else { return false };
        let (near, far) = if writes { (flow.dst, flow.src) } else { (flow.src, flow.dst) };
        matches!(flow.by, Mover::Dma { .. })
            && flow.bytes == job.block()
            && near.unit.numa().is_some()
            && far.unit == gpu
            && entry.is_sampled()
    };
    let unlike = |entry: &&RunEntry| {
        let flow = entry.lone().copied();
        let mem = flow.map(|f| if writes { f.dst.mem } else { f.src.mem });
        let numa = flow.map(|f| if writes { f.dst.unit } else { f.src.unit });
        let isolated = entry.case.cadence == Cadence::Isolated;
        (
            mem.is_none_or(|m| !alike(m, stage)),
            // Copies with a wait for each are not a stream, and vice versa.
            isolated == stage.pipelined,
            numa != Some(job.flow.by.at()),
        )
    };
    let stands = |entry: &&RunEntry| matches!(unlike(entry), (false, false, _));
    let alone = run.entries.iter().filter(fits).min_by_key(unlike).filter(stands);
    if let Some(entry) = alone {
        let cell = run.cell(entry, CaseQuantity::Payload);
        return Some((cell.value?, cell));
    }
    if stage.pipelined {
        return None;
    }
    let mut all = pathline_schema::IoHistogram::default();
    job.series()?.io.iter().for_each(|r| all.add(&r.copy));
    let rate = job.block().as_f64() / all.mean()?.0;
    Some((rate, FigureCell::stated(job.entry, Some(rate))))
}

/// Whether copies of a kind of memory represent those of a stage.
fn alike(mem: MemKind, stage: IoStage) -> bool {
    let locked = |mem: MemKind| mem == MemKind::Pinned || mem.is_registered();
    mem == stage.through
        || locked(mem) && locked(stage.through)
        || !locked(mem) && !locked(stage.through)
}

pub(super) fn figure(run: &RunView, jobs: &[IoEntry<'_, '_>]) -> Option<Figure> {
    let mut all: Vec<StageRates> =
        stage_rates(run, jobs).into_iter().filter(|s| s.host.is_some()).collect();
    // Stages limit the rate; for small blocks their number matters.
    let sequential = |s: &StageRates| s.job.io.order == IoOrder::Seq;
    if all.iter().any(sequential) {
        all.retain(sequential);
    }
    let names = labels(&all.iter().map(|s| s.job).collect::<Vec<_>>(), &[]);
    let verdict = |(stages, name): (&StageRates, &String)| {
        // `gpu0` keeps its spelling.
        let unit = name.split(',').any(|part| part.ends_with(|c: char| c.is_ascii_digit()));
        let name = if unit { name.clone() } else { fmt::sentence(name) };
        Some(format!("{name}: {}", stages.verdict()?))
    };
    let mut texts: Vec<String> = all.iter().zip(&names).filter_map(verdict).collect();
    const MAX_NAMED: usize = 4;
    let more = match texts.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        n => format!(" And {n} more below."),
    };
    texts.truncate(MAX_NAMED);
    let title = "Files to GPUs: each stage alone, what follows, and what was measured";
    let finding = format!(
        "{}.{more} What follows is played: as many blocks as are in flight go round between files and \
         copies.",
        texts.join(". ")
    );
    let columns = [
        ("files alone", "GB/s"),
        ("copies alone", "GB/s"),
        ("CPU alone", "GB/s"),
        ("follows", "GB/s"),
        ("measured", "GB/s"),
        ("measured / follows", "%"),
        ("measured / host", "%"),
        ("copy", "us a block"),
        ("CPU", "us a block"),
    ];
    let columns = columns.map(|(name, unit)| SheetColumn::neutral(name, unit));
    let rows = names.into_iter().zip(all.iter().map(cells));
    frame(run, (SUITE, ""), "storage-stages", title)
        .finding(finding)
        .draw_rows("path", columns, rows)
}

fn cells(stages: &StageRates<'_, '_>) -> Vec<FigureCell> {
    let entry = stages.job.entry;
    // Without a case where nothing was derived.
    let derived = |value: Option<f64>| {
        value.map(|value| FigureCell::stated(entry, Some(value))).unwrap_or_default()
    };
    let (measured, predicted) = (stages.measured.value, stages.predicted());
    let percent = |of: Option<f64>| measured.zip(of).map(|(m, of)| 100.0 * m / of);
    let follows = predicted.map(|_| FigureCell::stated(entry, percent(predicted)));
    let us = |rate: f64| stages.job.block().as_f64() / rate / 1e3;
    let (copy_rate, copy) = stages.copy.clone().unzip();
    vec![
        stages.host.clone().unwrap_or_default(),
        copy.unwrap_or_default(),
        derived(stages.cpu),
        derived(predicted),
        stages.measured.clone(),
        follows.unwrap_or_default(),
        FigureCell::stated(entry, percent(stages.host_rate())),
        derived(copy_rate.map(us)),
        stages.job.cell(IoQuantity::Cpu),
    ]
}
