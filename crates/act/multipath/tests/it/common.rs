//! Machines, buffers and copies that tests share.

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{CallResult, GpuEvent, GpuStream, Machine, MachineBuffer};
use pathline_multipath::{
    CopyEnd, CopyReport, CopyRequest, EnqueueFailure, MultipathEngine, StreamOrder,
};
use pathline_schema::{Bytes, Flow, MemKind, Mover, Ns, Place, Unit};
use pathline_sim::{FaultOrder, SimOptions, machine_with};

pub(crate) const SOURCE: u64 = 7;
pub(crate) const SPOILT: u64 = 8;
/// Sizes that probes measure, MiB: those of `libpathline`.
pub(crate) const PROBE_SIZES: [u64; 5] = [4, 8, 12, 32, 128];

/// A preset in virtual time with faults on order.
pub(crate) fn machine(preset: &str, faults: Vec<FaultOrder>) -> Machine {
    let desc = MachineDesc::preset(preset).unwrap();
    let options = SimOptions { faults, jitter: 0.0, ..SimOptions::default() };
    machine_with(&desc, RuntimeEnv::default(), &options).unwrap()
}

/// The buffers of a copy, filled.
pub(crate) struct CopyBuffers<'m> {
    /// Held: the copy reads it.
    _src: MachineBuffer<'m>,
    pub(crate) dst: Vec<MachineBuffer<'m>>,
    pub(crate) request: CopyRequest,
}

impl<'m> CopyBuffers<'m> {
    /// Buffers for a flow by relay or copy-to-all.
    pub(crate) fn new(machine: &'m Machine, flow: &str) -> CallResult<Self> {
        let flow: Flow = flow.parse().unwrap();
        assert_eq!(flow.misfit(), None, "{flow}");
        let src = machine.buffer(flow.src, flow.bytes)?;
        src.fill(SOURCE, false)?;
        let paths = *flow.by.paths().unwrap();
        let mut dst = vec![machine.buffer(flow.dst, flow.bytes)?];
        if let Mover::CopyToAll { .. } = flow.by {
            for gpu in paths.gpus.iter() {
                dst.push(machine.buffer(Place::new(Unit::Gpu(gpu), MemKind::Vram), flow.bytes)?);
            }
        }
        dst.iter().try_for_each(|dst| dst.fill(SPOILT, false))?;
        let end = |b: &MachineBuffer<'_>| CopyEnd { address: b.address(), unit: b.place().unit };
        let request = CopyRequest {
            src: end(&src),
            dst: end(&dst[0]),
            others: dst[1..].iter().map(end).collect(),
            bytes: flow.bytes,
            paths,
            limit: CopyRequest::time_limit(Ns(flow.bytes.as_f64())),
        };
        Ok(Self { _src: src, dst, request })
    }

    /// Whether each destination has every byte.
    pub(crate) fn check(&self) -> CallResult<()> {
        self.dst.iter().try_for_each(|dst| dst.check(SOURCE, dst.bytes()))
    }
}

/// Runs one copy, checks its bytes, and returns its rate into one destination, GB/s.
pub(crate) fn rate(machine: &Machine, flow: &str) -> (f64, CopyReport) {
    let buffers = CopyBuffers::new(machine, flow).unwrap();
    let mut engine = MultipathEngine::new(machine);
    // The first one opens streams and allocates.
    engine.copy(buffers.request.clone()).unwrap();
    buffers.dst.iter().for_each(|dst| dst.fill(SPOILT, false).unwrap());
    let start = machine.clock.now();
    let report = engine.copy(buffers.request.clone()).unwrap();
    let elapsed = machine.clock.now() - start;
    buffers.check().unwrap();
    (buffers.request.bytes.as_f64() / elapsed.0, report)
}

/// The rate of the plain copy between the same ends, GB/s.
pub(crate) fn plain(machine: &Machine, flow: &str) -> f64 {
    let buffers = CopyBuffers::new(machine, flow).unwrap();
    let CopyRequest { src, dst, bytes, .. } = buffers.request;
    let gpu = dst.unit.gpu().or(src.unit.gpu()).unwrap();
    if let (Some(from), true) = (src.unit.gpu(), dst.unit.gpu().is_some()) {
        machine.driver().unwrap().enable_peer(gpu, from).unwrap();
    }
    let stream = machine.gpu(gpu).unwrap().stream().unwrap();
    let start = machine.clock.now();
    stream.copy(dst.address, src.address, bytes, pathline_hal::CopyChoice::Auto).unwrap();
    stream.wait().unwrap();
    let elapsed = machine.clock.now() - start;
    bytes.as_f64() / elapsed.0
}

/// Bytes that all paths of a report carried.
pub(crate) fn carried(report: &CopyReport) -> Bytes {
    Bytes(report.paths.iter().map(|path| path.bytes.0).sum())
}

/// A caller's stream, and the copies that it gets.
pub(crate) struct CallerStream<'m> {
    pub(crate) stream: GpuStream<'m>,
    before: GpuEvent<'m>,
    done: GpuEvent<'m>,
    name: u64,
}

impl<'m> CallerStream<'m> {
    /// A stream of a GPU.
    pub(crate) fn new(machine: &'m Machine, gpu: u32, name: u64) -> Self {
        Self::try_new(machine, gpu, name).unwrap()
    }

    /// A stream of a GPU; none if a call fails.
    pub(crate) fn try_new(machine: &'m Machine, gpu: u32, name: u64) -> Option<Self> {
        let gpu = machine.gpu(gpu).ok()?;
        let event = || gpu.event().ok();
        Some(Self { stream: gpu.stream().ok()?, before: event()?, done: event()?, name })
    }

    /// Enqueues a copy in the order of the stream. The copy, or the plain one if it fails.
    pub(crate) fn copy(
        &self,
        engine: &mut MultipathEngine<'m>,
        request: &CopyRequest,
        rates: &[f64],
    ) -> Result<CopyReport, EnqueueFailure> {
        self.stream.record(&self.before).map_err(EnqueueFailure::from)?;
        let order =
            StreamOrder { after: &[self.before.id()], done: self.done.id(), streams: &[self.name] };
        let outcome = engine.enqueue(request, rates, &order);
        if outcome.as_ref().map_or_else(|failure| failure.is_ordered, |_| true) {
            self.stream.wait_event(&self.done).map_err(EnqueueFailure::from)?;
        }
        outcome
    }
}

/// The rates of the paths of a flow, bytes per ns, as a copy of 128 MiB that the host drives finds them.
pub(crate) fn path_rates<'m>(
    machine: &'m Machine,
    engine: &mut MultipathEngine<'m>,
    flow: &str,
) -> Vec<f64> {
    let flow = Flow { bytes: Bytes::mib(128), ..flow.parse().unwrap() };
    let buffers = CopyBuffers::new(machine, &flow.to_string()).unwrap();
    engine.copy(buffers.request.clone()).unwrap();
    let start = machine.clock.now();
    let report = engine.copy(buffers.request.clone()).unwrap();
    let elapsed = machine.clock.now() - start;
    report.paths.iter().map(|path| path.bytes.as_f64() / elapsed.0).collect()
}

/// An enqueued copy: its rate into one destination, GB/s, the time of the call, and its report.
pub(crate) fn enqueued_rate(machine: &Machine, flow: &str) -> (f64, Ns, CopyReport) {
    let buffers = CopyBuffers::new(machine, flow).unwrap();
    let mut engine = MultipathEngine::new(machine);
    let rates = path_rates(machine, &mut engine, flow);
    let gpu = buffers.request.dst.unit.gpu().or(buffers.request.src.unit.gpu()).unwrap();
    let caller = CallerStream::new(machine, gpu, 1);
    caller.copy(&mut engine, &buffers.request, &rates).unwrap();
    caller.stream.wait().unwrap();
    buffers.dst.iter().for_each(|dst| dst.fill(SPOILT, false).unwrap());
    let start = machine.clock.now();
    let report = caller.copy(&mut engine, &buffers.request, &rates).unwrap();
    let called = machine.clock.now() - start;
    caller.stream.wait().unwrap();
    let elapsed = machine.clock.now() - start;
    buffers.check().unwrap();
    (buffers.request.bytes.as_f64() / elapsed.0, called, report)
}

/// A number of the environment, or this one.
pub(crate) fn count(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
