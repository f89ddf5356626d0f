//! Machines, buffers and copies that tests share.

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{CallResult, Machine, MachineBuffer};
use pathline_multipath::{CopyEnd, CopyReport, CopyRequest, MultipathEngine};
use pathline_schema::{Bytes, Flow, MemKind, Mover, Ns, Place, Unit};
use pathline_sim::{FaultOrder, SimOptions, machine_with};

pub(crate) const SOURCE: u64 = 7;
pub(crate) const SPOILT: u64 = 8;

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
