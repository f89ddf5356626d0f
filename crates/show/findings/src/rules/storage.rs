//! Files: the effort that saturates them, the page size and staging that help, the page cache.

use std::collections::BTreeMap;

use pathline_explain::fmt;
use pathline_schema::{
    Bytes, Flow, IoCache, IoEngine, IoOp, IoOrder, IoSpec, IoStage, MemKind, Unit,
};

use crate::evidence::{Evidence, SoundValue, lost};
use crate::{Finding, FindingSeverity};

pub(super) const SATURATION: &str = "io-saturation";
pub(super) const STAGING: &str = "io-staging";
pub(super) const PAGES: &str = "io-huge-pages";
pub(super) const CACHE: &str = "io-direct-or-cached";
pub(super) const WORKERS: &str = "io-gpu-workers";

/// Share of the best rate that counts as reached.
const ENOUGH: f64 = 0.95;

/// A measured case of I/O.
#[derive(Debug, Clone, Copy)]
struct IoRate<'a> {
    flow: &'a Flow,
    io: IoSpec,
    rate: SoundValue<'a>,
}

/// What two cases have in common that are compared by their effort.
type WorkKey = (Unit, IoOrder, IoOp, Bytes);

impl IoRate<'_> {
    fn work(&self) -> WorkKey {
        (self.flow.io_ends().0.unit, self.io.order, self.io.op, self.flow.bytes)
    }
    fn memory(&self) -> MemKind {
        self.flow.io_ends().1.mem
    }
    fn gpu(&self) -> Option<u32> {
        self.flow.io_ends().1.unit.gpu()
    }
    /// I/Os in flight over all workers.
    fn slots(&self) -> u64 {
        self.io.slots()
    }
    /// `3.48 GB/s`, or `84.0k IOPS` of random I/O.
    fn amount(&self) -> String {
        match self.io.order {
            IoOrder::Seq => fmt::gbs(self.rate.value),
            IoOrder::Rand => {
                let iops = self.rate.value * 1e9 / self.flow.bytes.as_f64();
                format!("{} IOPS", fmt::in_thousands(iops))
            }
        }
    }
    /// The same with its interval.
    fn text(&self) -> String {
        format!("{}{}", self.amount(), self.rate.within_text())
    }
}

fn work_text((store, order, op, bytes): WorkKey) -> String {
    let op = match op {
        IoOp::Read => "reads",
        IoOp::Write => "writes",
        IoOp::Mix { .. } => "reads and writes",
    };
    let order = match order {
        IoOrder::Seq => "sequential",
        IoOrder::Rand => "random",
    };
    format!("{order} {op} of {} ({store})", bytes.rounded())
}

/// `2 workers, depth 16, uring`
fn effort_text(io: &IoSpec) -> String {
    format!("{}, depth {}, {}", fmt::count(io.threads as usize, "worker"), io.depth, io.engine)
}

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    let all: Vec<IoRate> = evidence
        .lone()
        .filter_map(|(entry, flow)| {
            let io = *flow.by.io()?;
            Some(IoRate { flow, io, rate: evidence.rate(entry)? })
        })
        .collect();
    [
        saturation(evidence, &all),
        staging(evidence, &all),
        pages(evidence, &all),
        cache(evidence, &all),
        gpu_workers(evidence, &all),
    ]
    .concat()
}

fn by_work<'b, 'a>(
    all: &'b [IoRate<'a>],
    wanted: impl Fn(&IoRate) -> bool,
) -> BTreeMap<WorkKey, Vec<&'b IoRate<'a>>> {
    let mut groups: BTreeMap<WorkKey, Vec<&IoRate>> = BTreeMap::new();
    for one in all.iter().filter(|one| wanted(one)) {
        groups.entry(one.work()).or_default().push(one);
    }
    groups
}

fn best<'b, 'a>(of: &[&'b IoRate<'a>]) -> Option<&'b IoRate<'a>> {
    of.iter().copied().max_by(|a, b| a.rate.value.total_cmp(&b.rate.value))
}

/// The least I/Os in flight whose interval reaches into that of the best.
fn saturation(evidence: &Evidence, all: &[IoRate]) -> Vec<Finding> {
    let direct = |one: &IoRate| one.gpu().is_none() && one.io.cache == IoCache::Direct;
    let mut findings = Vec::new();
    for (work, of) in by_work(all, direct) {
        let Some(top) = best(&of) else { continue };
        let enough = of.iter().filter(|one| one.rate.high >= top.rate.low);
        let Some(enough) = enough.min_by_key(|one| (one.slots(), one.io.threads)) else { continue };
        let Some(single) = of
            .iter()
            .filter(|one| one.slots() == 1)
            .min_by(|a, b| b.rate.value.total_cmp(&a.rate.value))
        else {
            continue;
        };
        let Some(factor) = enough.rate.gain_over(&single.rate) else { continue };
        let more = of.iter().filter(|one| one.slots() > enough.slots()).count();
        let more = match more {
            0 => String::new(),
            1 => "; 1 setting with more in flight is not faster".to_owned(),
            n => format!("; {n} settings with more in flight are not faster"),
        };
        let observation = format!(
            "{} reach {} with {}, {} with 1 in flight{more}.",
            fmt::sentence(&work_text(work)),
            enough.text(),
            effort_text(&enough.io),
            single.text(),
        );
        findings.push(Finding {
            short: format!(
                "{}: {} with {} in flight, {} with 1",
                fmt::sentence(&work_text(work)),
                enough.amount(),
                enough.slots(),
                single.amount()
            ),
            action: format!(
                "Keep {} I/Os in flight ({}).",
                enough.slots(),
                effort_text(&enough.io)
            ),
            gain: evidence.gain(&[factor]),
            places: vec![work.0.to_string()],
            arms: vec![
                enough.rate.arm(effort_text(&enough.io)),
                single.rate.arm(effort_text(&single.io)),
            ],
            weight: lost(&enough.rate, &single.rate),
            ..Finding::new(SATURATION, FindingSeverity::Gain, observation)
        });
    }
    findings
}

fn stage_text(io: &IoSpec) -> String {
    match (io.stage, io.engine) {
        (Some(IoStage { pipelined, through }), _) => {
            let how = if pipelined { "pipelined" } else { "blocking" };
            format!("{how} through {} memory", pathline_explain::figures::mem_words(through))
        }
        (None, IoEngine::Gds) => "GPU direct".to_owned(),
        (None, engine) => engine.to_string(),
    }
}

/// In what a staging differs from another: `pipelined`, `by registered memory`.
fn method(io: &IoSpec, other: &IoSpec) -> String {
    match (io.stage, other.stage) {
        (Some(one), Some(two)) if one.pipelined != two.pipelined => {
            if one.pipelined { "pipelined" } else { "blocking" }.to_owned()
        }
        (Some(one), Some(_)) => format!("by {}", pathline_explain::figures::mem_words(one.through)),
        _ => stage_text(io),
    }
}

/// How blocks get to or from a GPU.
fn staging(evidence: &Evidence, all: &[IoRate]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut groups: BTreeMap<(WorkKey, Option<u32>, u32, u32), Vec<&IoRate>> = BTreeMap::new();
    for one in all.iter().filter(|one| one.gpu().is_some() && one.io.cache == IoCache::Direct) {
        // GPU direct has its own depth: it is compared by workers.
        let depth = if one.io.engine == IoEngine::Gds { 0 } else { one.io.depth };
        groups.entry((one.work(), one.gpu(), one.io.threads, depth)).or_default().push(one);
    }
    let mut best_of_work: BTreeMap<(WorkKey, Option<u32>), (&IoRate, &IoRate, f64)> =
        BTreeMap::new();
    for ((work, gpu, ..), of) in &groups {
        let Some(top) = best(of) else { continue };
        let worst = of.iter().copied().min_by(|a, b| a.rate.value.total_cmp(&b.rate.value));
        let Some(worst) = worst else { continue };
        let Some(factor) = top.rate.gain_over(&worst.rate) else { continue };
        let slot = best_of_work.entry((*work, *gpu)).or_insert((top, worst, factor));
        if top.rate.value > slot.0.rate.value {
            *slot = (top, worst, factor);
        }
    }
    for ((work, gpu), (top, worst, factor)) in best_of_work {
        let gpu = gpu.map_or(String::new(), |g| format!("gpu{g}"));
        let observation = format!(
            "{} for {gpu}: {} reaches {}, {} {} ({}).",
            fmt::sentence(&work_text(work)),
            stage_text(&top.io),
            top.text(),
            stage_text(&worst.io),
            worst.text(),
            effort_text(&top.io),
        );
        findings.push(Finding {
            short: format!(
                "{} {}, {} {} ({gpu}, {})",
                top.amount(),
                method(&top.io, &worst.io),
                worst.amount(),
                method(&worst.io, &top.io),
                work_text(work)
            ),
            action: format!("Stage such I/O {}.", stage_text(&top.io)),
            gain: evidence.gain(&[factor]),
            places: vec![work.0.to_string(), gpu],
            arms: vec![top.rate.arm(stage_text(&top.io)), worst.rate.arm(stage_text(&worst.io))],
            weight: lost(&top.rate, &worst.rate),
            ..Finding::new(STAGING, FindingSeverity::Gain, observation)
        });
    }
    findings
}

/// Two cases that differ in nothing but one thing, and the gain of the first.
fn paired<'b, 'a>(
    all: &'b [IoRate<'a>],
    is_better: impl Fn(&IoRate) -> bool,
    same: impl Fn(&IoRate, &IoRate) -> bool,
) -> Option<(&'b IoRate<'a>, &'b IoRate<'a>, f64)> {
    let mut found: Option<(&IoRate, &IoRate, f64)> = None;
    for fast in all.iter().filter(|one| is_better(one)) {
        for slow in all.iter().filter(|one| same(fast, one)) {
            let Some(factor) = fast.rate.gain_over(&slow.rate) else { continue };
            if found.is_none_or(|(old, ..)| fast.rate.value > old.rate.value) {
                found = Some((fast, slow, factor));
            }
        }
    }
    found
}

/// Host buffers in huge pages.
fn pages(evidence: &Evidence, all: &[IoRate]) -> Vec<Finding> {
    let same = |fast: &IoRate, slow: &IoRate| {
        slow.memory() == MemKind::Paged
            && slow.io == fast.io
            && slow.work() == fast.work()
            && slow.gpu().is_none()
    };
    let found = paired(all, |one| one.memory() == MemKind::Huge, same);
    let finding = |(fast, slow, factor): (&IoRate, &IoRate, f64)| {
        let observation = format!(
            "{} reach {} into huge pages, {} into base pages ({}).",
            fmt::sentence(&work_text(fast.work())),
            fast.text(),
            slow.text(),
            effort_text(&fast.io)
        );
        Finding {
            short: format!(
                "{}: {} into huge pages, {} into base pages",
                fmt::sentence(&work_text(fast.work())),
                fast.amount(),
                slow.amount()
            ),
            cause: "The kernel pins and maps every page of a block for direct I/O.".to_owned(),
            action: "Allocate I/O buffers in huge pages (madvise MADV_HUGEPAGE).".to_owned(),
            gain: evidence.gain(&[factor]),
            places: vec![fast.work().0.to_string()],
            arms: vec![fast.rate.arm("huge pages"), slow.rate.arm("base pages")],
            weight: lost(&fast.rate, &slow.rate),
            ..Finding::new(PAGES, FindingSeverity::Gain, observation)
        }
    };
    found.map(finding).into_iter().collect()
}

/// O_DIRECT against a page cache that holds nothing of the file.
fn cache(evidence: &Evidence, all: &[IoRate]) -> Vec<Finding> {
    let wanted = |one: &IoRate| one.gpu().is_none();
    let alike = |a: &IoRate, b: &IoRate| {
        let plain = |io: &IoSpec| IoSpec { cache: IoCache::Direct, ..*io };
        plain(&a.io) == plain(&b.io) && (a.flow.src, a.flow.dst) == (b.flow.src, b.flow.dst)
    };
    let mut findings = Vec::new();
    for (fast, slow) in [(IoCache::Direct, IoCache::Cold), (IoCache::Cold, IoCache::Direct)] {
        let found = paired(
            all,
            |one| wanted(one) && one.io.cache == fast,
            |one, other| other.io.cache == slow && wanted(other) && alike(one, other),
        );
        let Some((fast, slow, factor)) = found else { continue };
        let name = |one: &IoRate| match one.io.cache {
            IoCache::Direct => "O_DIRECT",
            _ => "an empty page cache",
        };
        let observation = format!(
            "{} reach {} with {}, {} with {} ({}).",
            fmt::sentence(&work_text(fast.work())),
            fast.text(),
            name(fast),
            slow.text(),
            name(slow),
            effort_text(&fast.io)
        );
        findings.push(Finding {
            short: format!(
                "{}: {} with {}, {} with {}",
                fmt::sentence(&work_text(fast.work())),
                fast.amount(),
                name(fast),
                slow.amount(),
                name(slow)
            ),
            action: match fast.io.cache {
                IoCache::Direct => "Open files that are read once with O_DIRECT.".to_owned(),
                _ => "Read such files through the page cache: its readahead is faster.".to_owned(),
            },
            gain: evidence.gain(&[factor]),
            places: vec![fast.work().0.to_string()],
            arms: vec![fast.rate.arm(name(fast)), slow.rate.arm(name(slow))],
            weight: lost(&fast.rate, &slow.rate),
            ..Finding::new(CACHE, FindingSeverity::Gain, observation)
        });
    }
    findings
}

/// The fewest workers, then the least depth, that reach 95 % of the best rate of the fastest staging, where one
/// worker does not.
fn gpu_workers(evidence: &Evidence, all: &[IoRate]) -> Vec<Finding> {
    let direct = |one: &IoRate| one.io.cache == IoCache::Direct && one.io.engine != IoEngine::Gds;
    let mut groups: BTreeMap<(WorkKey, u32, Unit), Vec<&IoRate>> = BTreeMap::new();
    for one in all.iter().filter(|one| direct(one)) {
        let Some(gpu) = one.gpu() else { continue };
        groups.entry((one.work(), gpu, one.flow.by.at())).or_default().push(one);
    }
    let mut findings = Vec::new();
    for ((work, gpu, _), of) in groups {
        let Some(top) = best(&of) else { continue };
        let alike = |one: &&&IoRate| (one.io.stage, one.io.files) == (top.io.stage, top.io.files);
        let reached =
            of.iter().filter(alike).filter(|one| one.rate.value >= ENOUGH * top.rate.value);
        let Some(enough) = reached.min_by_key(|one| (one.io.threads, one.io.depth)) else {
            continue;
        };
        // One worker has one file, whether others share it or not.
        let lone = of.iter().filter(|one| one.io.threads == 1 && one.io.stage == top.io.stage);
        let lone: Vec<&IoRate> = lone.copied().collect();
        let Some(lone) = best(&lone) else { continue };
        let Some(factor) = enough.rate.gain_over(&lone.rate) else { continue };
        let of_best = match fmt::percent(enough.rate.value / top.rate.value) {
            all if all == "100 %" => String::new(),
            share => format!(", {share} of the best"),
        };
        let observation = format!(
            "{} for gpu{gpu} reach {} with {}{of_best}; one worker reaches {} at most (depth {}).",
            fmt::sentence(&work_text(work)),
            enough.text(),
            effort_text(&enough.io),
            lone.text(),
            lone.io.depth,
        );
        findings.push(Finding {
            short: format!(
                "{} for gpu{gpu}: {} with {}, {} with one",
                fmt::sentence(&work_text(work)),
                enough.amount(),
                fmt::count(enough.io.threads as usize, "worker"),
                lone.amount()
            ),
            action: format!(
                "Give gpu{gpu} {} with {} I/Os in flight each ({}).",
                fmt::count(enough.io.threads as usize, "I/O worker"),
                enough.io.depth,
                stage_text(&enough.io)
            ),
            gain: evidence.gain(&[factor]),
            places: vec![work.0.to_string(), format!("gpu{gpu}")],
            arms: vec![
                enough.rate.arm(effort_text(&enough.io)),
                lone.rate.arm(effort_text(&lone.io)),
            ],
            weight: lost(&enough.rate, &lone.rate),
            ..Finding::new(WORKERS, FindingSeverity::Gain, observation)
        });
    }
    findings
}
