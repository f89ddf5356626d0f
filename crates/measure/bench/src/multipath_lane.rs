//! Lanes of copies over several paths at once.

use std::cell::RefCell;
use std::rc::Rc;

use pathline_hal::{CallError, CallResult, MachineBuffer, StartGate};
use pathline_multipath::{CopyEnd, CopyRequest, MultipathEngine, TransferId};
use pathline_schema::{Bytes, Flow, MultipathSpec, Ns, Severity, TimerKind, VerifyResult};

use crate::lane::{BoundLane, LaneSample, SOURCE_SEED, SPOILT_SEED};

/// Rate that no path of a healthy node falls below, bytes per ns: the copy fails after twice that time and a
/// second.
const LEAST_RATE: f64 = 1.0;

/// A copy over relays, or to several GPUs. All such lanes share one engine, so that waiting for one of them
/// advances all.
pub(crate) struct MultipathLane<'m> {
    engine: Rc<RefCell<MultipathEngine<'m>>>,
    request: CopyRequest,
    /// The flow's destination, then the further ones.
    destinations: Vec<Rc<MachineBuffer<'m>>>,
    flow: Flow,
    pending: Option<(TransferId, u64)>,
}

impl<'m> MultipathLane<'m> {
    /// The lane of a flow between these buffers; `others` are the further destinations of a copy to all.
    pub(crate) fn new(
        engine: Rc<RefCell<MultipathEngine<'m>>>,
        flow: &Flow,
        paths: MultipathSpec,
        (src, dst): (Rc<MachineBuffer<'m>>, Rc<MachineBuffer<'m>>),
        others: Vec<Rc<MachineBuffer<'m>>>,
    ) -> Self {
        let end = |buffer: &MachineBuffer<'_>| CopyEnd {
            address: buffer.address(),
            unit: buffer.place().unit,
        };
        let request = CopyRequest {
            src: end(&src),
            dst: end(&dst),
            others: others.iter().map(|buffer| end(buffer)).collect(),
            bytes: flow.bytes,
            paths,
            limit: CopyRequest::time_limit(Ns(flow.bytes.as_f64() / LEAST_RATE)),
        };
        let destinations = std::iter::once(dst).chain(others).collect();
        Self { engine, request, destinations, flow: *flow, pending: None }
    }
}

impl BoundLane for MultipathLane<'_> {
    fn issue(&mut self, gate: &StartGate<'_>, reps: u64) -> CallResult<()> {
        let mut engine = self.engine.borrow_mut();
        self.pending = Some((engine.start_timed(self.request.clone(), gate, reps)?, reps));
        Ok(())
    }

    fn wait(&mut self) -> CallResult<LaneSample> {
        let thing = || self.flow.to_string();
        let refuse = |why: &str| CallError::new(Severity::Transient, "wait", thing(), why);
        let (id, reps) = self.pending.take().ok_or_else(|| refuse("it was not issued"))?;
        let report = self.engine.borrow_mut().wait(id)?;
        if let Some(lost) = report.lost.into_iter().next() {
            // The bytes arrived, over fewer paths than the case names.
            return Err(lost.error);
        }
        let elapsed = report.elapsed.ok_or_else(|| refuse("it was not timed"))?;
        Ok(LaneSample::of(elapsed, reps))
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn timer(&self) -> TimerKind {
        TimerKind::DeviceEvents
    }

    fn engine(&self) -> String {
        self.flow.by.facts().engine.to_owned()
    }

    fn spoil(&mut self) -> CallResult<()> {
        self.destinations.iter().try_for_each(|buffer| buffer.fill(SPOILT_SEED, false))
    }

    fn check(&self) -> CallResult<VerifyResult> {
        let bytes: Bytes = self.flow.bytes;
        self.destinations.iter().try_for_each(|buffer| buffer.check(SOURCE_SEED, bytes))?;
        Ok(VerifyResult::Verified)
    }
}
