//! Measures what relays gain between two ends, and chooses them by size.

use pathline_hal::{
    CallError, CallResult, CopyChoice, EventId, GpuEvent, GpuStream, Machine, MachineBuffer,
};
use pathline_schema::{Bytes, CopyAgent, GpuSet, MemKind, MultipathSpec, Ns, Place, Rate, Unit};

use crate::engine::MultipathEngine;
use crate::enqueued::StreamOrder;
use crate::request::{CopyEnd, CopyRequest, LostRelay, PathBytes};

/// A further relay must shorten the copy by this much.
const MIN_STEP: f64 = 1.05;
/// Sizes that a probe measures.
const SIZES: usize = 5;
/// Time limit of one measured copy.
const COPY_LIMIT: Ns = Ns(2e9);

/// Time of a copy by its size, through the times of some sizes: a copy of few chunks uses fewer paths than one of many,
/// so that one line through the least and the largest size promises too much between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CopyTimeModel([(Bytes, Ns); SIZES]);

impl CopyTimeModel {
    /// Lines through the times of some sizes, in ascending order. A copy that took longer than a larger one was
    /// disturbed: it counts as long as that.
    pub fn through(mut measured: [(Bytes, Ns); SIZES]) -> Self {
        let mut most = f64::INFINITY;
        for (_, time) in measured.iter_mut().rev() {
            most = most.min(time.0);
            *time = Ns(most);
        }
        Self(measured)
    }

    /// Predicted time. Beyond the sizes the lines go on, not below zero.
    pub fn time(&self, bytes: Bytes) -> Ns {
        let Self(measured) = self;
        let above = measured.iter().position(|&(size, _)| bytes < size).unwrap_or(SIZES - 1).max(1);
        let ((from, start), (to, end)) = (measured[above - 1], measured[above]);
        let slope = (end.0 - start.0) / (to.as_f64() - from.as_f64()).max(1.0);
        if slope <= 0.0 {
            return Ns(end.0 * bytes.as_f64() / to.as_f64().max(1.0));
        }
        Ns((start.0 + slope * (bytes.as_f64() - from.as_f64())).max(0.0))
    }

    /// Predicted rate into one destination, `extra` time added.
    pub fn rate(&self, bytes: Bytes, extra: Ns) -> Rate {
        Rate(bytes.as_f64() / (self.time(bytes) + extra).0.max(1.0))
    }
}

/// How a copy over several paths is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMode {
    /// The host hands out chunks while the copy runs.
    Driven,
    /// All is enqueued before the call returns.
    Enqueued,
}

/// GPUs that may take part, with the time of the copy if they do.
#[derive(Debug, Clone, PartialEq)]
pub struct PathOption {
    /// Relays, or further destinations, with their chunk.
    pub paths: MultipathSpec,
    /// Time of a copy that the host drives.
    pub driven: CopyTimeModel,
    /// Time of a copy that is enqueued as a whole, from the call on.
    pub enqueued: CopyTimeModel,
    /// Rates of the paths while all carry bytes, as [`MultipathEngine::enqueue`] takes them.
    pub rates: Vec<f64>,
}

impl PathOption {
    /// Time of a copy.
    pub fn time(&self, mode: CopyMode, bytes: Bytes) -> Ns {
        match mode {
            CopyMode::Driven => self.driven.time(bytes),
            CopyMode::Enqueued => self.enqueued.time(bytes),
        }
    }
}

/// What a probe found between some ends.
#[derive(Debug, Clone, PartialEq)]
pub struct PathProbe {
    /// The plain copy; to several GPUs: one to each, all at once. From the first call to the end of the stream.
    pub plain: CopyTimeModel,
    /// Copies over several paths, fewer GPUs first.
    pub options: Vec<PathOption>,
    /// GPUs that could not take part, with the first error of each.
    pub refused: Vec<LostRelay>,
}

impl PathProbe {
    /// The option for a size: the fastest that is at least `min_gain` times as fast as the plain copy, with
    /// as few GPUs as come within 5 % of it, without GPUs of `avoided`. `hand_over` is what callers lose before the copy begins.
    pub fn choose(
        &self,
        bytes: Bytes,
        (min_gain, avoided): (f64, GpuSet),
        (mode, hand_over): (CopyMode, Ns),
    ) -> Option<&PathOption> {
        let may_take =
            |option: &&PathOption| !option.paths.gpus.iter().any(|gpu| avoided.contains(gpu));
        let time = |option: &PathOption| (option.time(mode, bytes) + hand_over).0;
        let best = self.options.iter().filter(may_take).map(time).fold(f64::INFINITY, f64::min);
        let chosen =
            self.options.iter().filter(may_take).find(|option| time(option) <= best * MIN_STEP)?;
        let gain = self.plain.time(bytes).0 / time(chosen).max(1.0);
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
    /// The sizes that are measured, in ascending order.
    pub sizes: [Bytes; SIZES],
    /// Time after which no option but the first is measured.
    pub budget: Ns,
}

/// Copies of each option and size that count. One before them opens streams and allocates.
const REPETITIONS: usize = 5;
/// Time after which one of them is not repeated: 128 MiB pass a PCIe 4.0 link five times in 27 ms.
const ENOUGH: Ns = Ns(50e6);

struct ProbeRun<'m, 'e> {
    machine: &'m Machine,
    engine: &'e mut MultipathEngine<'m>,
    src: MachineBuffer<'m>,
    dst: Vec<MachineBuffer<'m>>,
    streams: Vec<GpuStream<'m>>,
    /// An event for each stream.
    forks: Vec<GpuEvent<'m>>,
    /// The end of an enqueued copy.
    done: GpuEvent<'m>,
    /// The fastest of the largest copies that the host drove over these paths, and the rates of its paths: one during
    /// which the thread was not scheduled leaves its relays behind.
    fastest: (Bytes, Ns, Vec<f64>),
}

/// Measures the plain copy and copies over 1, 2, ... relays, each the median of five times after one that
/// is not counted. Allocates two or more buffers of the larger size meanwhile.
///
/// # Errors
/// Neither end is a GPU, memory is short, or the plain copy fails. A relay that fails is left out.
pub fn probe_paths<'m>(
    machine: &'m Machine,
    engine: &mut MultipathEngine<'m>,
    request: &ProbeRequest,
) -> CallResult<PathProbe> {
    let place = |unit: Unit| match unit {
        Unit::Gpu(_) => Place::new(unit, MemKind::Vram),
        _ => Place::new(unit, MemKind::Pinned),
    };
    let [.., large] = request.sizes;
    let src = machine.buffer(place(request.src), large)?;
    let dst: Vec<_> = request
        .dst
        .iter()
        .map(|&unit| machine.buffer(place(unit), large))
        .collect::<CallResult<_>>()?;
    let (mut streams, mut forks) = (Vec::new(), Vec::new());
    for unit in &request.dst {
        let gpu = unit.gpu().or(request.src.gpu()).ok_or_else(|| {
            CallError::unsupported("probe", request.src.to_string(), "no end is a GPU")
        })?;
        if let (Some(from), Some(to)) = (request.src.gpu(), unit.gpu()) {
            // Without direct access the runtime stages the copy, which is what is to be compared.
            let _ = machine.driver()?.enable_peer(to, from);
        }
        streams.push(machine.gpu(gpu)?.stream()?);
        forks.push(machine.gpu(gpu)?.event()?);
    }
    let at = request.dst.first().and_then(|unit| unit.gpu()).or(request.src.gpu());
    let done = machine.gpu(at.unwrap_or_default())?.event()?;
    let fastest = (Bytes(0), Ns::ZERO, Vec::new());
    let mut run = ProbeRun { machine, engine, src, dst, streams, forks, done, fastest };
    let start = machine.clock.now();
    let plain = run.time_sizes(request.sizes, ProbeRun::copy_plainly)?;
    let (mut options, mut refused) = (Vec::new(), Vec::<LostRelay>::new());
    let mut helping = GpuSet::EMPTY;
    for paths in candidates(request) {
        if !options.is_empty() && machine.clock.now() - start > request.budget {
            break;
        }
        // A relay that failed takes no part in larger sets.
        let gpus = refused.iter().fold(paths.gpus, |gpus, lost| gpus.without(lost.gpu));
        let paths = MultipathSpec { gpus, ..paths };
        match run.time_option(paths, request.sizes) {
            Ok(option) => {
                helping = gpus;
                options.push(option);
            }
            Err(error) => {
                let added = gpus.iter().filter(|&gpu| !helping.contains(gpu));
                refused.extend(added.map(|gpu| LostRelay { gpu, error: error.clone() }));
            }
        }
    }
    Ok(PathProbe { plain, options, refused })
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
    /// The times of some sizes over some paths, driven by the host and enqueued with the rates that this found.
    fn time_option(
        &mut self,
        paths: MultipathSpec,
        sizes: [Bytes; SIZES],
    ) -> CallResult<PathOption> {
        self.fastest = (Bytes(0), Ns::ZERO, Vec::new());
        let driven = self.time_sizes(sizes, |run, bytes| run.copy_over(paths, bytes))?;
        let enqueued = self.time_sizes(sizes, |run, bytes| run.enqueue_over(paths, bytes))?;
        Ok(PathOption { paths, driven, enqueued, rates: self.fastest.2.clone() })
    }

    /// The times of some sizes.
    fn time_sizes(
        &mut self,
        sizes: [Bytes; SIZES],
        mut copy: impl FnMut(&mut Self, Bytes) -> CallResult<()>,
    ) -> CallResult<CopyTimeModel> {
        let mut measured = sizes.map(|bytes| (bytes, Ns::ZERO));
        for (bytes, time) in &mut measured {
            *time = self.median(|run| {
                let start = run.machine.clock.now();
                copy(run, *bytes)?;
                Ok(run.machine.clock.now() - start)
            })?;
        }
        Ok(CopyTimeModel::through(measured))
    }

    /// The median of some times after a first one that is not counted. One may fail.
    fn median(&mut self, mut time: impl FnMut(&mut Self) -> CallResult<Ns>) -> CallResult<Ns> {
        let (mut times, mut has_failed) = (Vec::new(), false);
        for nth in 0..=REPETITIONS {
            match time(self) {
                Ok(time) if nth > 0 => times.push(time),
                Ok(_) => {}
                // A thread that was not scheduled takes its relay for stalled.
                Err(_) if !std::mem::replace(&mut has_failed, true) => {}
                Err(error) => return Err(error),
            }
            if times.iter().map(|time| time.0).sum::<f64>() > ENOUGH.0 {
                break;
            }
        }
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let none = || CallError::unsupported("probe", self.src.place().to_string(), "no time");
        times.get(times.len() / 2).copied().ok_or_else(none)
    }

    fn copy_plainly(&mut self, bytes: Bytes) -> CallResult<()> {
        for (stream, dst) in self.streams.iter().zip(&self.dst) {
            stream.copy(dst.address(), self.src.address(), bytes, CopyChoice::Auto)?;
        }
        self.streams.iter().try_for_each(GpuStream::wait)
    }

    /// A copy over several paths between the buffers.
    fn request(&self, paths: MultipathSpec, bytes: Bytes) -> CallResult<CopyRequest> {
        let end = |b: &MachineBuffer<'_>| CopyEnd { address: b.address(), unit: b.place().unit };
        let mut dst = self.dst.iter().map(end);
        let first = dst.next().ok_or_else(|| {
            CallError::unsupported("probe", self.src.place().to_string(), "no destination")
        })?;
        let (src, others) = (end(&self.src), dst.collect());
        Ok(CopyRequest { src, dst: first, others, bytes, paths, limit: COPY_LIMIT })
    }

    fn copy_over(&mut self, paths: MultipathSpec, bytes: Bytes) -> CallResult<()> {
        let request = self.request(paths, bytes)?;
        let start = self.machine.clock.now();
        let report = self.engine.copy(request)?;
        let elapsed = self.machine.clock.now() - start;
        let (largest, least, _) = self.fastest;
        let is_best = bytes > largest || (bytes == largest && elapsed < least);
        if is_best && report.lost.is_empty() {
            let rate = |path: &PathBytes| path.bytes.as_f64() / elapsed.0.max(1.0);
            self.fastest = (bytes, elapsed, report.paths.iter().map(rate).collect());
        }
        report.lost.into_iter().next().map_or(Ok(()), |lost| Err(lost.error))
    }

    /// As [`Self::copy_over`], in the order of the streams.
    fn enqueue_over(&mut self, paths: MultipathSpec, bytes: Bytes) -> CallResult<()> {
        let request = self.request(paths, bytes)?;
        for (stream, fork) in self.streams.iter().zip(&self.forks) {
            stream.record(fork)?;
        }
        let after: Vec<EventId> = self.forks.iter().map(GpuEvent::id).collect();
        // Each copy ends before the next one begins: no stream needs a name.
        let order = StreamOrder { after: &after, done: self.done.id(), streams: &[] };
        let enqueued = self.engine.enqueue(&request, &self.fastest.2, &order);
        let is_ordered = enqueued.as_ref().map_or_else(|failure| failure.is_ordered, |_| true);
        if is_ordered {
            self.streams.iter().try_for_each(|stream| stream.wait_event(&self.done))?;
            self.streams.iter().try_for_each(GpuStream::wait)?;
        }
        let report = enqueued.map_err(|failure| *failure.error)?;
        report.lost.into_iter().next().map_or(Ok(()), |lost| Err(lost.error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// Times of 1, 6, 11, 51 and 101 MB, in us.
    fn model(us: [f64; SIZES]) -> CopyTimeModel {
        let mut measured = [1, 6, 11, 51, 101].map(|mb| (Bytes(mb * MB), Ns::ZERO));
        measured.iter_mut().zip(us).for_each(|(of_size, us)| of_size.1 = Ns(us * 1e3));
        CopyTimeModel::through(measured)
    }

    #[test]
    fn lines_pass_the_measured_times() {
        // 10 us and 30 us/MB up to 6 MB, 10 us/MB up to 11 MB, then 9 us/MB: 40, 190, 240, 1050 us.
        let lines = model([40.0, 190.0, 240.0, 600.0, 1050.0]);
        for (mb, us) in [(0, 10.0), (2, 70.0), (8, 210.0), (51, 600.0), (201, 1950.0)] {
            assert!((lines.time(Bytes(mb * MB)).0 - us * 1e3).abs() < 1e-6, "{mb} MB");
        }
        // 201 MB in 1.95 ms and 60 us: 100 GB/s.
        assert!((lines.rate(Bytes(201 * MB), Ns(60e3)).gbs() - 100.0).abs() < 1e-9);
        // One of 1 MB that took longer than 6 MB: those of less than 6 MB take in proportion.
        let odd = model([500.0, 180.0, 230.0, 590.0, 1040.0]);
        assert_eq!(odd.time(Bytes(2 * MB)), Ns(60e3));
        assert_eq!(odd.time(Bytes(6 * MB)), Ns(180e3));
        // One of 6 MB that took longer than 11 MB counts as 240 us: 40 us a MB from 1 MB on.
        let odd = model([40.0, 300.0, 240.0, 600.0, 1050.0]);
        assert_eq!(odd.time(Bytes(2 * MB)), Ns(80e3));
        assert_eq!(odd.time(Bytes(8 * MB)).0.round(), (240e3_f64 * 8.0 / 11.0).round());
        // No time is below zero.
        assert_eq!(model([1.0, 101.0, 201.0, 500.0, 1000.0]).time(Bytes(0)), Ns(0.0));
    }

    fn option(gpus: &str, us: [f64; SIZES]) -> PathOption {
        let paths = MultipathSpec {
            gpus: gpus.parse().unwrap(),
            chunk: Bytes::mib(4),
            agent: CopyAgent::Engine,
            shares: None,
        };
        PathOption { paths, driven: model(us), enqueued: model(us), rates: Vec::new() }
    }

    #[test]
    fn relays_are_chosen_by_size_and_gain() {
        let options = vec![
            option("gpu1", [50.0, 100.0, 150.0, 550.0, 1050.0]),
            option("gpu1+gpu2", [53.0, 93.0, 133.0, 453.0, 853.0]),
            option("gpu1+gpu2+gpu3", [54.0, 93.5, 133.0, 449.0, 844.0]),
        ];
        let plain = model([25.0, 125.0, 225.0, 1025.0, 2025.0]);
        let probe = PathProbe { plain, options, refused: Vec::new() };
        // 1 MB: plain 25 us, best 50 us.
        assert_eq!(
            probe.choose(Bytes(MB), (1.15, GpuSet::EMPTY), (CopyMode::Enqueued, Ns::ZERO)),
            None
        );
        // 11 MB: plain 225 us, relays 150, 133 and 133 us: two relays, for a third brings nothing.
        let two = probe
            .choose(Bytes(11 * MB), (1.15, GpuSet::EMPTY), (CopyMode::Enqueued, Ns::ZERO))
            .unwrap();
        assert_eq!(two.paths.gpus.to_string(), "gpu1+gpu2");
        // 101 MB: 853 us are within 5 % of 844.
        let two = (CopyMode::Enqueued, Ns::ZERO);
        let two = probe.choose(Bytes(101 * MB), (1.15, GpuSet::EMPTY), two).unwrap();
        assert_eq!(two.paths.gpus.to_string(), "gpu1+gpu2");
        // 225 / 133 = 1.69; with a hand-over of 60 us 225 / 193 = 1.17, with one of 70 us 1.11.
        assert!(
            probe
                .choose(Bytes(11 * MB), (1.70, GpuSet::EMPTY), (CopyMode::Enqueued, Ns::ZERO))
                .is_none()
        );
        assert!(
            probe
                .choose(Bytes(11 * MB), (1.15, GpuSet::EMPTY), (CopyMode::Driven, Ns(60e3)))
                .is_some()
        );
        assert!(
            probe
                .choose(Bytes(11 * MB), (1.15, GpuSet::EMPTY), (CopyMode::Driven, Ns(70e3)))
                .is_none()
        );
    }
}
