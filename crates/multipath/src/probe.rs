//! Measures what relays gain between two ends, and chooses them by size.

use pathline_hal::{CallError, CallResult, CopyChoice, GpuStream, Machine, MachineBuffer};
use pathline_schema::{Bytes, CopyAgent, GpuSet, MemKind, MultipathSpec, Ns, Place, Rate, Unit};

use crate::engine::MultipathEngine;
use crate::request::{CopyEnd, CopyRequest};

/// A further relay must shorten the copy by this much.
const MIN_STEP: f64 = 1.05;
/// Time limit of one measured copy.
const COPY_LIMIT: Ns = Ns(2e9);

/// Time of a copy by its size: a fixed part and a part for each byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CopyTimeModel {
    /// Time of a copy without bytes.
    pub fixed: Ns,
    /// Nanoseconds for each byte.
    pub per_byte: f64,
}

impl CopyTimeModel {
    /// The line through the times of two sizes, the smaller first. No part is below zero.
    pub fn through((small, at_small): (Bytes, Ns), (large, at_large): (Bytes, Ns)) -> Self {
        let proportional = at_large.0 / large.as_f64().max(1.0);
        let slope = (at_large.0 - at_small.0) / (large.as_f64() - small.as_f64()).max(1.0);
        let fixed = at_small.0 - slope * small.as_f64();
        if slope <= 0.0 || fixed < 0.0 {
            return Self { fixed: Ns(0.0), per_byte: proportional };
        }
        Self { fixed: Ns(fixed), per_byte: slope }
    }

    /// Predicted time.
    pub fn time(&self, bytes: Bytes) -> Ns {
        Ns(self.fixed.0 + self.per_byte * bytes.as_f64())
    }

    /// Predicted rate into one destination.
    pub fn rate(&self, bytes: Bytes) -> Rate {
        Rate(bytes.as_f64() / self.time(bytes).0.max(1.0))
    }
}

/// GPUs that may take part, with the time of the copy if they do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathOption {
    /// Relays, or further destinations, with their chunk.
    pub paths: MultipathSpec,
    /// Time of the copy.
    pub time: CopyTimeModel,
}

/// What a probe found between some ends.
#[derive(Debug, Clone, PartialEq)]
pub struct PathProbe {
    /// The plain copy; to several GPUs: one to each, all at once.
    pub plain: CopyTimeModel,
    /// Copies over several paths, fewer GPUs first.
    pub options: Vec<PathOption>,
}

impl PathProbe {
    /// The option for a size: the fastest that is at least `min_gain` times as fast as the plain copy, with
    /// as few GPUs as come within 5 % of it.
    pub fn choose(&self, bytes: Bytes, min_gain: f64) -> Option<&PathOption> {
        let best = self.options.iter().map(|o| o.time.time(bytes).0).fold(f64::INFINITY, f64::min);
        let chosen = self.options.iter().find(|o| o.time.time(bytes).0 <= best * MIN_STEP)?;
        let gain = self.plain.time(bytes).0 / chosen.time.time(bytes).0.max(1.0);
        (gain >= min_gain).then_some(chosen)
    }
}

/// What to probe.
#[derive(Debug, Clone)]
pub struct ProbeRequest {
    /// Where the bytes come from: a GPU, or pinned memory of a domain.
    pub src: Unit,
    /// Where they go to; several GPUs get the same bytes.
    pub dst: Vec<Unit>,
    /// GPUs that may relay, in the order in which they are added. Copies to several GPUs use none.
    pub helpers: Vec<u32>,
    /// Chunk of the relays.
    pub chunk: Bytes,
    /// The two sizes that are measured.
    pub sizes: [Bytes; 2],
    /// Time after which no option but the first is measured.
    pub budget: Ns,
}

/// Copies of each option and size. The first one opens streams and allocates.
const REPETITIONS: usize = 4;

struct ProbeRun<'m, 'e> {
    machine: &'m Machine,
    engine: &'e mut MultipathEngine<'m>,
    src: MachineBuffer<'m>,
    dst: Vec<MachineBuffer<'m>>,
    streams: Vec<GpuStream<'m>>,
}

/// Measures the plain copy and copies over 1, 2, ... relays, each the least of three times after one that
/// is not counted. Allocates two or more buffers of the larger size meanwhile.
///
/// # Errors
/// Neither end is a GPU, memory is short, or the plain copy fails. An option that fails is left out.
pub fn probe_paths<'m>(
    machine: &'m Machine,
    engine: &mut MultipathEngine<'m>,
    request: &ProbeRequest,
) -> CallResult<PathProbe> {
    let place = |unit: Unit| match unit {
        Unit::Gpu(_) => Place::new(unit, MemKind::Vram),
        _ => Place::new(unit, MemKind::Pinned),
    };
    let [small, large] = request.sizes;
    let src = machine.buffer(place(request.src), large)?;
    let dst: Vec<_> = request
        .dst
        .iter()
        .map(|&unit| machine.buffer(place(unit), large))
        .collect::<CallResult<_>>()?;
    let no_gpu = || CallError::unsupported("probe", request.src.to_string(), "no end is a GPU");
    let streams = request
        .dst
        .iter()
        .map(|unit| {
            let gpu = unit.gpu().or(request.src.gpu()).ok_or_else(no_gpu)?;
            if let (Some(from), Some(to)) = (request.src.gpu(), unit.gpu()) {
                // Without direct access the runtime stages the copy, which is what is to be compared.
                let _ = machine.driver()?.enable_peer(to, from);
            }
            machine.gpu(gpu)?.stream()
        })
        .collect::<CallResult<_>>()?;
    let mut run = ProbeRun { machine, engine, src, dst, streams };
    let start = machine.clock.now();
    let plain = CopyTimeModel::through(
        (small, run.least(|run| run.copy_plainly(small))?),
        (large, run.least(|run| run.copy_plainly(large))?),
    );
    let mut options = Vec::new();
    for paths in candidates(request) {
        if !options.is_empty() && machine.clock.now() - start > request.budget {
            break;
        }
        let at_small = run.least(|run| run.copy_over(paths, small));
        let at_large = run.least(|run| run.copy_over(paths, large));
        if let (Ok(at_small), Ok(at_large)) = (at_small, at_large) {
            let time = CopyTimeModel::through((small, at_small), (large, at_large));
            options.push(PathOption { paths, time });
        }
    }
    Ok(PathProbe { plain, options })
}

/// The sets of GPUs that are measured: relays one by one, or all further destinations.
fn candidates(request: &ProbeRequest) -> Vec<MultipathSpec> {
    let spec = |gpus: GpuSet| MultipathSpec {
        gpus,
        chunk: request.chunk,
        agent: CopyAgent::Engine,
        shares: None,
    };
    if request.dst.len() > 1 {
        return vec![spec(request.dst.iter().skip(1).filter_map(|unit| unit.gpu()).collect())];
    }
    let is_end = |gpu: u32| request.dst.iter().chain([&request.src]).any(|u| u.gpu() == Some(gpu));
    let mut gpus = GpuSet::EMPTY;
    let helpers = request.helpers.iter().filter(|&&gpu| !is_end(gpu));
    let relayed = helpers.map(|&gpu| {
        gpus = gpus.with(gpu);
        spec(gpus)
    });
    let relayed: Vec<MultipathSpec> = relayed.collect();
    if relayed.is_empty() && !request.helpers.is_empty() {
        // A node of one GPU: the direct path in pieces, which gains nothing. Tests of order ask for that.
        return vec![spec(GpuSet::EMPTY)];
    }
    relayed
}

impl<'m> ProbeRun<'m, '_> {
    /// The least time of some copies after one that is not counted. One copy may fail.
    fn least(&mut self, mut copy: impl FnMut(&mut Self) -> CallResult<()>) -> CallResult<Ns> {
        let (mut least, mut has_failed) = (Ns(f64::INFINITY), false);
        for nth in 0..REPETITIONS {
            let start = self.machine.clock.now();
            match copy(self) {
                Ok(()) => {}
                // A thread that was not scheduled takes its relay for stalled.
                Err(_) if !std::mem::replace(&mut has_failed, true) => continue,
                Err(error) => return Err(error),
            }
            let elapsed = self.machine.clock.now() - start;
            if nth > 0 && elapsed < least {
                least = elapsed;
            }
        }
        Ok(least)
    }

    fn copy_plainly(&mut self, bytes: Bytes) -> CallResult<()> {
        for (stream, dst) in self.streams.iter().zip(&self.dst) {
            stream.copy(dst.address(), self.src.address(), bytes, CopyChoice::Auto)?;
        }
        self.streams.iter().try_for_each(GpuStream::wait)
    }

    fn copy_over(&mut self, paths: MultipathSpec, bytes: Bytes) -> CallResult<()> {
        let end = |b: &MachineBuffer<'_>| CopyEnd { address: b.address(), unit: b.place().unit };
        let mut dst = self.dst.iter().map(end);
        let first = dst.next().ok_or_else(|| {
            CallError::unsupported("probe", self.src.place().to_string(), "no destination")
        })?;
        let request = CopyRequest {
            src: end(&self.src),
            dst: first,
            others: dst.collect(),
            bytes,
            paths,
            limit: COPY_LIMIT,
        };
        let report = self.engine.copy(request)?;
        match report.lost.into_iter().next() {
            Some(lost) => Err(lost.error),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(gpus: &str, fixed: f64, per_byte: f64) -> PathOption {
        let paths = MultipathSpec {
            gpus: gpus.parse().unwrap(),
            chunk: Bytes::mib(4),
            agent: CopyAgent::Engine,
            shares: None,
        };
        PathOption { paths, time: CopyTimeModel { fixed: Ns(fixed), per_byte } }
    }

    #[test]
    fn a_line_passes_two_times() {
        // 10 us and 2 ns a byte: 1000 B take 12 us, 5000 B 20 us.
        let line = CopyTimeModel::through((Bytes(1000), Ns(12e3)), (Bytes(5000), Ns(20e3)));
        assert_eq!(line, CopyTimeModel { fixed: Ns(10e3), per_byte: 2.0 });
        assert_eq!(line.time(Bytes(2000)), Ns(14e3));
        // A larger copy that took less: only the larger one counts.
        let odd = CopyTimeModel::through((Bytes(1000), Ns(30e3)), (Bytes(5000), Ns(20e3)));
        assert_eq!(odd, CopyTimeModel { fixed: Ns(0.0), per_byte: 4.0 });
    }

    #[test]
    fn relays_are_chosen_by_size_and_gain() {
        let plain = CopyTimeModel { fixed: Ns(5e3), per_byte: 0.02 };
        let options = vec![
            option("gpu1", 40e3, 0.01),
            option("gpu1+gpu2", 45e3, 0.008),
            option("gpu1+gpu2+gpu3", 46e3, 0.0079),
        ];
        let probe = PathProbe { plain, options };
        // 1 MB: plain 25 us, best 50 us.
        assert_eq!(probe.choose(Bytes(1_000_000), 1.15), None);
        // 10 MB: plain 205 us, relays 140, 125 and 125 us: two relays, for a third brings nothing.
        let two = probe.choose(Bytes(10_000_000), 1.15).unwrap();
        assert_eq!(two.paths.gpus.to_string(), "gpu1+gpu2");
        // 205 / 125 = 1.64.
        assert!(probe.choose(Bytes(10_000_000), 1.65).is_none());
    }
}
