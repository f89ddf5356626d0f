//! Searches the best kernel of each path: every candidate is measured as an ordinary case, and the
//! better ones again with more payload, until one is left.
//!
//! Rounds grow the payload instead of repeating it: start and drain of a kernel are a share of a
//! short pass, so a short round excludes bad candidates and only a long one finds the best.

use std::collections::BTreeMap;
use std::io;

use pathline_hal::kernel;
use pathline_schema::{
    Bytes, Case, Flow, Gpu, JournalRecord, KernelOp, KernelVariant, MemKind, Mover, Place, Unit,
    VerifyResult,
};
use pathline_stats::SeriesSummary;

use crate::executor::{Executor, TaskEnd};
use crate::plan::PlannedCase;
use crate::scope::PlanScope;
use crate::task::{CaseTask, InterruptCheck, TaskEvent};
use crate::tuned::{BestKernel, PathClass, TunedKernels};

/// Number of candidates that each round keeps.
const SURVIVORS: [usize; 3] = [8, 3, 1];
/// Divisor of the last round's payload for each round.
const SHARES: [u64; 3] = [8, 2, 1];
/// Minimum gain of a winner over the plain kernel; below it the plain one is kept, because medians
/// of two runs differ by as much.
const MIN_GAIN: f64 = 1.003;
/// Lost workers after which a round is given up.
const MAX_LOSSES: usize = 3;

/// Date and version to record with winners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchStamp {
    /// Now, in RFC 3339 format.
    pub date: String,
    /// Version of pathline.
    pub version: String,
}

/// A path whose kernels are searched.
#[derive(Debug, Clone, Copy)]
struct TunePath<'a> {
    gpu: &'a Gpu,
    class: PathClass,
    op: KernelOp,
    src: Place,
    dst: Place,
    /// Payload of the last round.
    payload: Bytes,
}

impl TunePath<'_> {
    fn case(&self, variant: KernelVariant, share: u64) -> Case {
        let by = Mover::Kernel { at: Unit::Gpu(self.gpu.index), variant };
        let bytes = Bytes((self.payload.0 / share).max(1 << 20));
        Case::together(vec![Flow { src: self.src, dst: self.dst, by, bytes }])
    }

    /// The candidates, the plain kernel first.
    fn candidates(&self) -> Vec<KernelVariant> {
        let all =
            kernel::SHAPES.lines().filter_map(|shape| format!("{}-{shape}", self.op).parse().ok());
        all.filter(|v| kernel::unsupported(v, &self.gpu.arch).is_none()).collect()
    }
}

/// The paths of every kind of GPU: on the first of its kind, to the next GPU and to its own host
/// memory. Empty if no case on GPUs can be measured.
fn paths<'a>(scope: &PlanScope<'a>) -> Vec<TunePath<'a>> {
    if scope.without_runtime.is_some() {
        return Vec::new();
    }
    let topology = scope.topology;
    let kind = |g: &Gpu| (g.name.clone(), g.arch.clone());
    let mut firsts: Vec<&Gpu> = Vec::new();
    for gpu in &topology.gpus {
        if !firsts.iter().any(|first| kind(first) == kind(gpu)) {
            firsts.push(gpu);
        }
    }
    let mut paths = Vec::new();
    for gpu in firsts {
        let peer = topology.gpus.iter().find(|g| g.index != gpu.index);
        let numa = gpu.numa.or(topology.numa.first().map(|d| d.id));
        let here = |mem| Place::new(Unit::Gpu(gpu.index), mem);
        let host = numa.map(|id| Place::new(Unit::Numa(id), MemKind::Pinned));
        let there = peer.map(|g| Place::new(Unit::Gpu(g.index), MemKind::Vram));
        for class in PathClass::ALL {
            let far = match class {
                PathClass::Local => Some(here(MemKind::Vram)),
                PathClass::PeerRead | PathClass::PeerWrite => there,
                PathClass::HostRead | PathClass::HostWrite => host,
            };
            let Some(far) = far else { continue };
            let writes = matches!(class, PathClass::PeerWrite | PathClass::HostWrite);
            for &op in class.ops() {
                let (mut src, mut dst) =
                    if writes { (here(MemKind::Vram), far) } else { (far, here(MemKind::Vram)) };
                match op {
                    KernelOp::Read => dst = here(MemKind::Reg),
                    KernelOp::Write => src = here(MemKind::Reg),
                    _ => {}
                }
                let payload = payload(scope, gpu, class, op);
                paths.push(TunePath { gpu, class, op, src, dst, payload });
            }
        }
    }
    paths
}

/// Payload of the last round: long compared with start and drain, and at most an eighth of a GPU's
/// memory or a quarter of the allowed host memory.
fn payload(scope: &PlanScope<'_>, gpu: &Gpu, class: PathClass, op: KernelOp) -> Bytes {
    let wanted = match (class, op) {
        (PathClass::Local, KernelOp::Triad) => Bytes::gib(1),
        (PathClass::Local, _) => Bytes::gib(2),
        (PathClass::PeerRead | PathClass::PeerWrite, _) => Bytes::gib(1),
        (PathClass::HostRead | PathClass::HostWrite, _) => Bytes::mib(256),
    };
    let on_host = matches!(class, PathClass::HostRead | PathClass::HostWrite);
    let host = if on_host { scope.memory.0 / 4 } else { u64::MAX };
    let device = if gpu.memory.0 == 0 { 1 << 30 } else { gpu.memory.0 / 8 };
    let mib = wanted.0.min(host).min(device) >> 20;
    Bytes(mib.max(1) << 20)
}

/// Number of searches that [`tune`] makes on a machine.
pub fn searches(scope: &PlanScope<'_>) -> usize {
    paths(scope).len()
}

/// Searches every path of the machine that `scope` describes, stores the winners in `tuned`, and
/// reports each when it is found. An interrupted search stores no winner.
///
/// # Errors
/// Errors of the connection to an executor.
pub fn tune(
    executor: &mut dyn Executor,
    scope: &PlanScope<'_>,
    tuned: &mut TunedKernels,
    stamp: &SearchStamp,
    interrupt: InterruptCheck<'_>,
    found: &mut dyn FnMut(&BestKernel),
) -> io::Result<()> {
    for path in paths(scope) {
        let best = search(executor, &path, interrupt, stamp)?;
        if interrupt().is_some() {
            return Ok(());
        }
        if let Some(best) = best {
            found(&best);
            tuned.set(best);
        }
    }
    Ok(())
}

/// The best kernel of a path; `None` if no kernel could be measured there.
fn search(
    executor: &mut dyn Executor,
    path: &TunePath<'_>,
    interrupt: InterruptCheck<'_>,
    stamp: &SearchStamp,
) -> io::Result<Option<BestKernel>> {
    let plain = KernelVariant::standard(path.op);
    let mut left = path.candidates();
    let mut figures = BTreeMap::new();
    for (leaves, share) in SURVIVORS.into_iter().zip(SHARES) {
        figures = round(executor, path, &left, share, interrupt)?;
        left.retain(|v| figures.contains_key(v));
        left.sort_by(|a, b| figures[b].total_cmp(&figures[a]));
        let beaten: Vec<KernelVariant> = left.split_off(leaves.min(left.len()));
        if beaten.contains(&plain) && share > 1 {
            left.push(plain);
        }
    }
    let Some((&first, plain_gbs)) = left.first().zip(figures.get(&plain)) else { return Ok(None) };
    let variant = if figures[&first] > plain_gbs * MIN_GAIN { first } else { plain };
    Ok(Some(BestKernel {
        gpu: path.gpu.name.clone(),
        arch: path.gpu.arch.clone(),
        class: path.class,
        variant,
        gbs: figures[&variant],
        plain_gbs: *plain_gbs,
        payload: path.payload,
        date: stamp.date.clone(),
        version: stamp.version.clone(),
    }))
}

/// Rates of the kernels that ran on a path, in GB/s of payload. Failed kernels are left out.
fn round(
    executor: &mut dyn Executor,
    path: &TunePath<'_>,
    variants: &[KernelVariant],
    share: u64,
    interrupt: InterruptCheck<'_>,
) -> io::Result<BTreeMap<KernelVariant, f64>> {
    let entry = |&variant: &KernelVariant| PlannedCase::new(path.case(variant, share));
    let mut entries: Vec<PlannedCase> = variants.iter().map(entry).collect();
    let mut figures = BTreeMap::new();
    for _ in 0..=MAX_LOSSES {
        let mut over: Vec<Case> = Vec::new();
        let mut sink = |event: TaskEvent| {
            let TaskEvent::Record(message) = event else { return Ok(()) };
            match message {
                JournalRecord::Measured(measured) => {
                    let sound = measured.verdict == VerifyResult::Verified;
                    let series = measured.series.first().filter(|_| sound);
                    let rates: Vec<f64> =
                        series.iter().flat_map(|s| s.rates()).map(|r| r.0).collect();
                    if let (Some(Mover::Kernel { variant, .. }), Some(rate)) =
                        (measured.case.timed.first().map(|f| f.by), SeriesSummary::of(&rates))
                    {
                        figures.insert(variant, rate.median);
                    }
                    over.push(measured.case);
                }
                JournalRecord::Skipped(skip) => over.push(skip.case),
                JournalRecord::Faulted(fault) => over.push(fault.case),
                _ => {}
            }
            Ok(())
        };
        let task = CaseTask { entries: entries.clone(), carried: Vec::new() };
        let ended = executor.measure(&task, interrupt, &mut sink)?;
        match ended {
            TaskEnd::Done | TaskEnd::Gone(_) => break,
            TaskEnd::Lost(loss) => over.extend(loss.case),
        }
        entries.retain(|e| !over.contains(&e.case));
        if entries.is_empty() {
            break;
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_a_kernel_of_some_operation() {
        let gpu = |arch: &str| Gpu { arch: arch.to_owned(), ..Gpu::default() };
        let place = Place::new(Unit::Gpu(0), MemKind::Vram);
        let count = |arch: &str, op: KernelOp| {
            let gpu = gpu(arch);
            let class = PathClass::Local;
            let path = TunePath { gpu: &gpu, class, op, src: place, dst: place, payload: Bytes(1) };
            let all = path.candidates();
            assert_eq!(
                all.first(),
                Some(&KernelVariant::standard(op)),
                "the plain kernel is tried"
            );
            all.len()
        };
        // 14 shapes are bulk copies, which triads and older or other GPUs lack; 2 hints are
        // NVIDIA's own.
        assert_eq!(count("sm_90", KernelOp::Copy), 40);
        assert_eq!(count("sm_90", KernelOp::Triad), 26);
        assert_eq!(count("sm_80", KernelOp::Copy), 26);
        assert_eq!(count("gfx90a", KernelOp::Write), 24);
    }
}
