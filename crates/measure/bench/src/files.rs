//! Lanes of I/O: blocks between files and memory, through host memory if the end is a GPU.

use std::collections::BTreeMap;
use std::rc::Rc;

use pathline_hal::{
    CallError, CallResult, FilePart, GpuEnd, IoDone, IoJob, LocalMemory, Machine, MachineBuffer,
    OpenIo, StartGate, WorkerRange, pattern,
};
use pathline_schema::{
    Bytes, CallTally, Case, Flow, IoOp, IoSpec, Ns, TimerKind, Unit, VerifyResult, WorldKind,
};

use crate::lane::{BoundLane, LaneSample, SOURCE_SEED, SPOILT_SEED};
use crate::needs;

/// Shortest sample: a thousand I/Os of a fast device, so that a sample has a distribution. With 100
/// ms the median case of two recorded runs ended with 5 and 6 samples, too few for an interval.
pub(crate) const SAMPLE: Ns = Ns(50_000_000.0);
/// The same in virtual time, which has no pauses.
const SAMPLE_OF_MODEL: Ns = Ns(5_000_000.0);

/// Case budgets of a case of I/O: a second, of which opening, calibration and warm-up take up to
/// 0.4 s, which leaves about twelve samples.
pub(crate) const BUDGETS: f64 = 4.0;
/// The same in virtual time, where every I/O is a simulated event.
pub(crate) const BUDGETS_OF_MODEL: f64 = 0.4;
/// Blocks in flight for which this is enough; with more, samples take longer.
const IN_FLIGHT_OF_MODEL: Bytes = Bytes::mib(8);
/// I/Os of a sample per slot in virtual time. Workers that start together at file parts on the same
/// server visit the others one after the other: 8 workers with 8 slots each, and 28 I/Os in all,
/// reached 4 of 8 servers and 7.3 of 11 GB/s.
const ROUNDS_OF_MODEL: u64 = 16;

/// Host memory while it is page-locked for GPUs.
struct PinnedRange<'m> {
    machine: &'m Machine,
    address: u64,
    calls: BTreeMap<String, CallTally>,
}

impl<'m> PinnedRange<'m> {
    fn new(machine: &'m Machine, buffer: &MachineBuffer<'m>) -> CallResult<Self> {
        let address = buffer.address();
        let driver = machine.driver()?;
        let begun = machine.clock.now();
        driver.register(address, buffer.bytes())?;
        let ns = (machine.clock.now() - begun).0;
        let calls =
            BTreeMap::from([(driver.register_calls().0.to_owned(), CallTally { count: 1, ns })]);
        Ok(Self { machine, address, calls })
    }

    /// Unlocks it; returns the times of both calls.
    fn release(mut self) -> CallResult<BTreeMap<String, CallTally>> {
        let driver = self.machine.driver()?;
        let begun = self.machine.clock.now();
        driver.unregister(std::mem::take(&mut self.address))?;
        let ns = (self.machine.clock.now() - begun).0;
        let mut calls = std::mem::take(&mut self.calls);
        calls.insert(driver.register_calls().1.to_owned(), CallTally { count: 1, ns });
        Ok(calls)
    }
}

impl Drop for PinnedRange<'_> {
    fn drop(&mut self) {
        if let (true, Some(driver)) = (self.address != 0, self.machine.driver.as_deref()) {
            let _ = driver.unregister(self.address);
        }
    }
}

/// Memory of the host, and of a GPU, at the end of a flow.
pub(crate) type EndBuffers<'m> = (Option<Rc<MachineBuffer<'m>>>, Option<Rc<MachineBuffer<'m>>>);

/// Blocks between files and memory. Open files are closed before their memory is freed.
pub(crate) struct FileLane<'m> {
    open: Option<OpenIo<'m>>,
    registered: Option<PinnedRange<'m>>,
    flow: Flow,
    io: IoSpec,
    engine: String,
    real: bool,
    /// Number of its first file.
    first_file: u64,
    /// Number of its first slot among those of all processes that share the file.
    first_slot: u64,
    host: Option<Rc<MachineBuffer<'m>>>,
    gpu: Option<Rc<MachineBuffer<'m>>>,
}

/// Position of the `nth` flow's workers among those of a case. Flows with equal files share them; flows on
/// one NUMA domain take its cores in turn.
pub(crate) fn worker_range(case: &Case, nth: usize) -> Option<WorkerRange> {
    let flow = case.flows().nth(nth)?;
    let own = flow.by.io()?;
    let before = |same: &dyn Fn(&Flow, &IoSpec) -> bool| -> u32 {
        let earlier = case.flows().take(nth).filter_map(|f| Some((f, f.by.io()?)));
        earlier.filter(|(f, io)| same(f, io)).map(|(_, io)| io.threads).sum()
    };
    let files = |f: &Flow, io: &IoSpec| {
        f.io_ends().0 == flow.io_ends().0
            && f.bytes == flow.bytes
            && (io.op, io.order, io.files, io.span) == (own.op, own.order, own.files, own.span)
    };
    let all = case.flows().filter_map(|f| Some((f, f.by.io()?)));
    let of = all.filter(|(f, io)| files(f, io)).map(|(_, io)| io.threads).sum();
    let first_cpu = before(&|f, _| f.by.at() == flow.by.at());
    Some(WorkerRange { first: before(&files), of, first_cpu })
}

impl<'m> FileLane<'m> {
    pub(crate) fn new(
        machine: &'m Machine,
        flow: &Flow,
        (io, workers): (IoSpec, WorkerRange),
        host: Option<Rc<MachineBuffer<'m>>>,
        gpu: Option<Rc<MachineBuffer<'m>>>,
    ) -> CallResult<Self> {
        Self::with_part(machine, flow, (io, workers), (host, gpu), None)
    }

    /// The same for a part of a file that several processes share.
    pub(crate) fn with_part(
        machine: &'m Machine,
        flow: &Flow,
        (io, workers): (IoSpec, WorkerRange),
        (host, gpu): EndBuffers<'m>,
        part: Option<FilePart>,
    ) -> CallResult<Self> {
        let unfit = || {
            let why = flow.misfit().unwrap_or("it does not go between files and memory");
            CallError::unsupported("bind", flow.to_string(), why)
        };
        let (file, memory) = flow.io_ends();
        let store = file.unit.store().ok_or_else(unfit)?;
        let numa = flow.by.at().numa().ok_or_else(unfit)?;
        let locks = io.stage.map_or(memory.mem, |stage| stage.through).is_registered();
        let registered = match (&host, locks) {
            (Some(buffer), true) => Some(PinnedRange::new(machine, buffer)?),
            _ => None,
        };
        let span = |buffer: &Rc<MachineBuffer<'m>>| LocalMemory {
            address: buffer.address(),
            bytes: buffer.bytes().0,
        };
        let gpu_end = match (memory.unit, &gpu) {
            (Unit::Gpu(index), Some(buffer)) => {
                let slots = io.depth as usize;
                let staged = io.stage.map_or(0, |_| io.threads);
                let driver = machine.driver()?;
                let copiers =
                    (0..staged).map(|_| driver.copier(index, slots)).collect::<CallResult<_>>()?;
                Some(GpuEnd { gpu: index, memory: span(buffer), copiers })
            }
            _ => None,
        };
        let job = IoJob {
            io,
            workers,
            store,
            block: flow.bytes,
            numa,
            host: host.as_ref().map(span).unwrap_or_default(),
            gpu: gpu_end,
        };
        let mut files = Self {
            open: None,
            registered,
            flow: *flow,
            io,
            engine: String::new(),
            real: machine.world == WorldKind::Real,
            first_file: workers.first_file(&io),
            first_slot: part.as_ref().map_or(0, |p| u64::from(p.first) * u64::from(io.depth)),
            host,
            gpu,
        };
        if io.writes() {
            files.fill(SOURCE_SEED)?;
        }
        let seed = SOURCE_SEED + files.first_file;
        let open = match part {
            Some(part) => machine.open_io_part(job, seed, part)?,
            None => machine.open_io(job, seed)?,
        };
        files.engine = open.engine();
        files.open = Some(open);
        Ok(files)
    }

    /// The memory at the flow's end.
    fn end(&self) -> CallResult<&Rc<MachineBuffer<'m>>> {
        self.gpu.as_ref().or(self.host.as_ref()).ok_or_else(|| {
            CallError::unsupported("bind", self.flow.to_string(), "it has no memory")
        })
    }

    fn opened(&self) -> CallResult<&OpenIo<'m>> {
        self.open.as_ref().ok_or_else(|| {
            CallError::unsupported("bind", self.flow.to_string(), "its files are closed")
        })
    }

    /// The contents of each file's slots: offset, bytes, and the pattern's seed for the pattern `seed` of
    /// the first file.
    fn parts(&self, seed: u64) -> impl Iterator<Item = (u64, Bytes, u64)> + use<> {
        let (files, seed) = (self.io.file_count(), seed + self.first_file);
        let each = needs::slots(&self.flow, &self.io).0 / files;
        let words = (self.first_slot * self.flow.bytes.0 / 8).cast_signed();
        (0..files).map(move |file| (file * each, Bytes(each), pattern::seed_at(seed + file, words)))
    }

    fn fill(&self, seed: u64) -> CallResult<()> {
        let end = self.end()?;
        self.parts(seed).try_for_each(|(offset, bytes, seed)| end.fill_part(offset, bytes, seed))
    }

    /// The name of its file for other processes.
    pub(crate) fn file_name(&self) -> String {
        self.open.as_ref().map_or_else(String::new, OpenIo::file_name)
    }
}

impl BoundLane for FileLane<'_> {
    fn issue(&mut self, gate: &StartGate<'_>, reps: u64) -> CallResult<()> {
        self.opened()?.submit(gate, reps)
    }

    fn wait(&mut self) -> CallResult<LaneSample> {
        let IoDone { elapsed, ops, reading } = self.opened()?.reap()?;
        Ok(LaneSample { io: Some(reading), ..LaneSample::of(elapsed, ops) })
    }

    fn timer(&self) -> TimerKind {
        TimerKind::Threads
    }

    fn engine(&self) -> String {
        self.engine.clone()
    }

    fn min_sample(&self) -> Ns {
        if self.real { SAMPLE } else { SAMPLE_OF_MODEL }
    }

    fn budgets(&self) -> f64 {
        let in_flight = needs::slots(&self.flow, &self.io).as_f64();
        let longer = (in_flight / IN_FLIGHT_OF_MODEL.as_f64()).max(1.0);
        if self.real { BUDGETS } else { BUDGETS_OF_MODEL * longer }
    }

    fn least(&self) -> u64 {
        if self.real { 1 } else { ROUNDS_OF_MODEL * self.io.slots() }
    }

    /// Spoiling now would have no effect: operations of the case's other lanes would overwrite it.
    fn spoil(&mut self) -> CallResult<()> {
        Ok(())
    }

    fn lands(&self) -> bool {
        true
    }

    /// Writes take their data from memory that mixed I/O has read into.
    fn land(&mut self) -> CallResult<()> {
        let open = self.opened()?;
        if self.io.writes() {
            self.fill(SOURCE_SEED)?;
            open.spoil()?;
        } else {
            self.fill(SPOILT_SEED)?;
        }
        open.land()
    }

    fn check(&self) -> CallResult<VerifyResult> {
        // After reads, checks that the files hold the pattern; after writes, every byte.
        let verdict = self.opened()?.check(SOURCE_SEED + self.first_file)?;
        if self.io.op != IoOp::Read || verdict != VerifyResult::Verified {
            return Ok(verdict);
        }
        let end = self.end()?;
        for (offset, bytes, seed) in self.parts(SOURCE_SEED) {
            end.check_part(offset, bytes, seed)?;
        }
        Ok(VerifyResult::Verified)
    }

    fn close(&mut self) -> CallResult<BTreeMap<String, CallTally>> {
        let mut calls = self.open.take().map(OpenIo::close).transpose()?.unwrap_or_default();
        if let Some(registered) = self.registered.take() {
            calls.extend(registered.release()?);
        }
        Ok(calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 + 2 + 1 workers: the first two flows share the data set of 4 workers on the cores of numa0, the
    /// third has another order on the same cores, and the fourth other cores.
    #[test]
    fn flows_share_files_and_cores_in_turn() {
        let read = |gpu: u32, numa: u32, order: &str, threads: u32| {
            format!(
                "store0.file > gpu{gpu}.vram by \
                 uring@numa{numa}[{order}-read,direct,own,1GiB,q4,n1,t{threads},pipelined-pinned] x 4KiB"
            )
        };
        let flows = [
            read(0, 0, "seq", 2),
            read(1, 0, "seq", 2),
            read(2, 0, "rand", 1),
            read(3, 1, "seq", 3),
        ];
        let case: Case = flows.join(" & ").parse().unwrap();
        let range = |nth| worker_range(&case, nth).unwrap();
        assert_eq!(range(0), WorkerRange { first: 0, of: 7, first_cpu: 0 });
        assert_eq!(range(1), WorkerRange { first: 2, of: 7, first_cpu: 2 });
        assert_eq!(range(2), WorkerRange { first: 0, of: 1, first_cpu: 4 });
        assert_eq!(range(3), WorkerRange { first: 4, of: 7, first_cpu: 0 });
        assert_eq!(worker_range(&case, 4), None);
    }
}
