//! Which stage of the way to a GPU is the ceiling: each measured alone, and what follows from them.

use pathline_schema::{Cadence, IoCache, IoEngine, IoOp, IoOrder, IoStage, Mem, Mover};

use super::{Asked, Job, SUITE, command, gaps, labels};
use crate::figure::{Better, Body, Cell, Column, Figure, Sheet};
use crate::run::{Entry, Quantity, Run, State};
use crate::words;

/// A measured value that reaches this share of its prediction is explained by it.
const EXPLAINS: f64 = 0.9;

/// Stages of one way between files and a GPU, in GB/s.
pub(super) struct Stages<'b, 'a> {
    pub(super) job: Job<'b, 'a>,
    pub(super) measured: Cell,
    /// The same I/O with host memory at its end: the device and its file system.
    host: Option<(Job<'b, 'a>, Cell)>,
    /// The copy of a block between host and GPU alone.
    copy: Option<(f64, Cell)>,
    /// The same I/O out of or into the page cache: the file system and the CPU.
    cached: Option<Cell>,
}

impl Stages<'_, '_> {
    /// What follows for stages that overlap, or that come one after another; GB/s.
    pub(super) fn predicted(&self) -> Option<f64> {
        let host = self.host.as_ref()?.1.value?;
        if self.job.io.engine == IoEngine::Gds {
            return None;
        }
        let copy = self.copy.as_ref()?.0;
        if self.job.io.stage?.pipelined {
            return Some(host.min(copy));
        }
        // Each worker waits for its copies; those of several workers run beside each other as far
        // as one link lets them.
        let workers = f64::from(self.job.io.threads);
        Some((1.0 / (1.0 / host + 1.0 / (workers * copy))).min(copy))
    }

    pub(super) fn host_rate(&self) -> Option<f64> {
        self.host.as_ref()?.1.value
    }

    /// The slowest stage, in words.
    fn slowest(&self) -> Option<String> {
        let (host_job, host) = self.host.as_ref()?;
        let host = host.value?;
        if let Some((copy, _)) = self.copy.as_ref().filter(|(copy, _)| *copy < host) {
            return Some(format!("the copy of a block to or from the GPU, {}", words::gbs(*copy)));
        }
        if let Some(busy) = host_job.busy().filter(|busy| *busy >= EXPLAINS) {
            return Some(format!(
                "the CPU: workers are on a core for {} of the time, {} us an I/O",
                words::percent(busy.min(1.0)),
                words::number(host_job.value(Asked::Cpu)?)
            ));
        }
        let cached = self.cached.as_ref().and_then(|c| c.value);
        if let Some(cached) = cached.filter(|cached| host >= EXPLAINS * cached) {
            return Some(format!(
                "the file system: the page cache gives no more, {}",
                words::gbs(cached)
            ));
        }
        Some(format!("the device and its file system, {}", words::gbs(host)))
    }

    /// What holds it up, in a sentence.
    pub(super) fn verdict(&self) -> Option<String> {
        let (measured, host) = (self.measured.value?, self.host_rate()?);
        let of_host = format!("{} of the host's rate", words::percent(measured / host));
        let Some(predicted) = self.predicted() else {
            return Some(format!("{of_host}; how fast a copy is alone is not in this run"));
        };
        let reached = words::percent(measured / predicted);
        let busy = self.job.busy().filter(|busy| *busy >= EXPLAINS);
        let pipelined = self.job.io.stage.is_some_and(|s| s.pipelined);
        Some(match (pipelined, measured >= EXPLAINS * predicted, busy) {
            (true, true, _) => {
                format!("{of_host}, {reached} of its slowest stage: {}", self.slowest()?)
            }
            (true, false, Some(busy)) => format!(
                "{of_host}, {reached} of its slowest stage; the CPU is the ceiling, its workers are \
                 on a core for {} of the time",
                words::percent(busy.min(1.0))
            ),
            (true, false, None) => {
                format!("{of_host}, {reached} of its slowest stage: no stage alone explains that")
            }
            (false, ..) => {
                let copy = self.copy.as_ref().map(|c| c.0)?;
                let workers = f64::from(self.job.io.threads);
                let share = predicted / (workers * copy);
                format!(
                    "{of_host}, {reached} of what I/O and copy give one after the other; the copy is {} \
                     of that time",
                    words::percent(share)
                )
            }
        })
    }
}

/// The fastest case of each way to each GPU.
pub(super) fn all<'b, 'a>(run: &'b Run<'a>, jobs: &[Job<'b, 'a>]) -> Vec<Stages<'b, 'a>> {
    let way = |j: &Job| {
        (j.store(), j.gpu(), j.io.op, j.io.order, j.io.cache, j.block(), j.io.stage, j.io.engine)
    };
    let mut best: Vec<(Job, f64)> = Vec::new();
    for job in jobs.iter().filter(|j| j.gpu().is_some()) {
        let Some(rate) = job.value(Asked::Rate) else { continue };
        match best.iter_mut().find(|(known, _)| way(known) == way(job)) {
            Some(known) if rate > known.1 => *known = (*job, rate),
            Some(_) => {}
            None => best.push((*job, rate)),
        }
    }
    best.into_iter().map(|(job, _)| stages(run, job, jobs)).collect()
}

fn stages<'b, 'a>(run: &'b Run<'a>, job: Job<'b, 'a>, jobs: &[Job<'b, 'a>]) -> Stages<'b, 'a> {
    let host = gaps::host_of(&job, jobs)
        .map(|host| (host, host.rate(run)))
        .filter(|(_, cell)| cell.value.is_some());
    let cached = jobs
        .iter()
        .filter(|j| j.gpu().is_none() && j.io.cache == IoCache::Cached)
        .filter(|j| (j.io.op, j.io.order, j.block()) == (job.io.op, job.io.order, job.block()))
        .filter(|j| j.store() == job.store() && j.io.threads == job.io.threads)
        .map(|j| j.rate(run))
        .filter(|c| c.value.is_some() && job.io.cache == IoCache::Direct)
        .max_by(|a, b| a.value.unwrap_or(0.0).total_cmp(&b.value.unwrap_or(0.0)));
    Stages { job, measured: job.rate(run), host, copy: copy(run, &job), cached }
}

/// How fast blocks are copied alone: from the run, of the memory that they pass, one at a time where
/// workers wait for each; else from what the case itself says of its copies, if they do not overlap.
fn copy(run: &Run, job: &Job<'_, '_>) -> Option<(f64, Cell)> {
    let stage = job.io.stage?;
    let writes = job.io.op == IoOp::Write;
    let gpu = job.flow.io_ends().1.unit;
    let fits = |entry: &&Entry| {
        let Some(flow) = entry.lone() else { return false };
        let (near, far) = if writes { (flow.dst, flow.src) } else { (flow.src, flow.dst) };
        matches!(flow.by, Mover::Dma { .. })
            && flow.bytes == job.block()
            && near.unit.numa().is_some()
            && far.unit == gpu
            && matches!(entry.state, State::Sampled(_))
    };
    let unlike = |entry: &&Entry| {
        let flow = entry.lone().copied();
        let mem = flow.map(|f| if writes { f.dst.mem } else { f.src.mem });
        let numa = flow.map(|f| if writes { f.dst.unit } else { f.src.unit });
        let isolated = entry.case.cadence == Cadence::Isolated;
        (
            mem.is_none_or(|m| !alike(m, stage)),
            isolated == stage.pipelined,
            numa != Some(job.flow.by.at()),
        )
    };
    let alone = run.entries.iter().filter(fits).min_by_key(unlike).filter(|e| !unlike(e).0);
    if let Some(entry) = alone {
        let cell = run.cell(entry, Quantity::Payload);
        return Some((cell.value?, cell));
    }
    if stage.pipelined {
        return None;
    }
    let mut all = pathline_schema::Histogram::default();
    job.series()?.io.iter().for_each(|r| all.add(&r.copy));
    let rate = job.block().as_f64() / all.mean()?.0;
    let cell = Cell { value: Some(rate), case: Some(job.entry.case.clone()), ..Cell::default() };
    Some((rate, cell))
}

/// Whether copies of a kind of memory stand for those that pass a stage.
fn alike(mem: Mem, stage: IoStage) -> bool {
    let locked = |mem: Mem| mem == Mem::Pinned || mem.is_registered();
    mem == stage.through
        || locked(mem) && locked(stage.through)
        || !locked(mem) && !locked(stage.through)
}

pub(super) fn figure(run: &Run, jobs: &[Job<'_, '_>]) -> Option<Figure> {
    let mut all: Vec<Stages> = all(run, jobs).into_iter().filter(|s| s.host.is_some()).collect();
    // Stages bound rates; of small blocks it is their number that counts.
    let sequential = |s: &Stages| s.job.io.order == IoOrder::Seq;
    if all.iter().any(sequential) {
        all.retain(sequential);
    }
    let names = labels(&all.iter().map(|s| s.job).collect::<Vec<_>>(), &[]);
    let mut rows = Vec::new();
    let mut told: Vec<String> = Vec::new();
    for (stages, name) in all.iter().zip(&names) {
        rows.push((name.clone(), cells(stages)));
        told.extend(stages.verdict().map(|verdict| format!("{name}: {verdict}")));
    }
    if rows.is_empty() {
        return None;
    }
    const MOST: usize = 4;
    let more = match told.len().saturating_sub(MOST) {
        0 => String::new(),
        n => format!(" And {n} more below."),
    };
    told.truncate(MOST);
    Some(Figure {
        id: "storage-stages".into(),
        suite: SUITE.into(),
        title: "Files to GPUs: each stage alone, what follows, and what was measured".into(),
        finding: format!(
            "{}.{more} What follows is the slowest stage where copies overlap with I/O, else both one \
             after the other.",
            told.join(". ")
        ),
        command: command(run, ""),
        body: Body::Sheet(Sheet { row_axis: "way".into(), columns: columns(), rows }),
    })
}

fn columns() -> Vec<Column> {
    let column = |name: &str, unit: &str| Column {
        name: name.into(),
        unit: unit.into(),
        better: Better::Neither,
    };
    vec![
        column("file and host memory alone", "GB/s"),
        column("page cache alone", "GB/s"),
        column("copy alone", "GB/s"),
        column("follows", "GB/s"),
        column("measured", "GB/s"),
        column("measured / follows", "%"),
        column("measured / host", "%"),
        column("copy", "us a block"),
        column("CPU", "us a block"),
    ]
}

fn cells(stages: &Stages<'_, '_>) -> Vec<Cell> {
    let case = Some(stages.job.entry.case.clone());
    let derived = |value: Option<f64>| Cell { value, case: case.clone(), ..Cell::default() };
    let (measured, predicted) = (stages.measured.value, stages.predicted());
    let percent = |of: Option<f64>| measured.zip(of).map(|(m, of)| 100.0 * m / of);
    let copy = stages.copy.as_ref();
    let us = |rate: f64| stages.job.block().as_f64() / rate / 1e3;
    vec![
        stages.host.as_ref().map(|h| h.1.clone()).unwrap_or_default(),
        stages.cached.clone().unwrap_or_default(),
        copy.map(|c| c.1.clone()).unwrap_or_default(),
        if predicted.is_some() { derived(predicted) } else { Cell::default() },
        stages.measured.clone(),
        if predicted.is_some() { derived(percent(predicted)) } else { Cell::default() },
        derived(percent(stages.host_rate())),
        copy.map_or_else(Cell::default, |c| derived(Some(us(c.0)))),
        stages.job.cell(Asked::Cpu),
    ]
}
