//! Lanes of metadata operations: many small files and folders.

use std::collections::BTreeMap;

use pathline_hal::{CallError, CallResult, IoDone, Machine, MetaJob, OpenIo, StartGate};
use pathline_schema::{CallTally, Flow, MetaSpec, Ns, TimerKind, VerifyResult, WorldKind};

use crate::files;
use crate::lane::{BoundLane, LaneSample, MAX_REPS, SOURCE_SEED};

/// Shortest sample: some thousand operations of a local file system. Where each is possible once, it is
/// shorter if all files are used up.
const SAMPLE: Ns = Ns(20_000_000.0);
/// Shortest sample in virtual time, which has no pauses.
const SAMPLE_OF_MODEL: Ns = Ns(5_000_000.0);

/// Many small files or folders of a store.
pub(crate) struct MetaLane<'m> {
    open: Option<OpenIo<'m>>,
    flow: Flow,
    meta: MetaSpec,
    engine: String,
    real: bool,
}

impl<'m> MetaLane<'m> {
    pub(crate) fn new(machine: &'m Machine, flow: &Flow, meta: MetaSpec) -> CallResult<Self> {
        let (file, _) = flow.io_ends();
        let ends = file.unit.store().zip(flow.by.at().numa());
        let (store, numa) = ends.ok_or_else(|| {
            let why = flow.misfit().unwrap_or("it does not go between a store and a NUMA domain");
            CallError::unsupported("bind", flow.to_string(), why)
        })?;
        let job = MetaJob { meta, store, bytes: flow.bytes, numa };
        let open = machine.open_meta(job, SOURCE_SEED)?;
        let (engine, real) = (open.engine(), machine.world == WorldKind::Real);
        Ok(Self { open: Some(open), flow: *flow, meta, engine, real })
    }

    fn opened(&self) -> CallResult<&OpenIo<'m>> {
        self.open.as_ref().ok_or_else(|| {
            CallError::unsupported("bind", self.flow.to_string(), "its files are removed")
        })
    }
}

impl BoundLane for MetaLane<'_> {
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

    fn most(&self) -> u64 {
        if self.meta.op.is_once() { self.meta.items() } else { MAX_REPS }
    }

    /// Each worker has something to do.
    fn least(&self) -> u64 {
        u64::from(self.meta.threads)
    }

    fn min_sample(&self) -> Ns {
        if self.real { SAMPLE } else { SAMPLE_OF_MODEL }
    }

    fn budgets(&self) -> f64 {
        if self.real { files::BUDGETS } else { files::BUDGETS_OF_MODEL }
    }

    /// The operations of the check have their names to themselves.
    fn spoil(&mut self) -> CallResult<()> {
        Ok(())
    }

    fn lands(&self) -> bool {
        true
    }

    fn land(&mut self) -> CallResult<()> {
        self.opened()?.land()
    }

    fn check(&self) -> CallResult<VerifyResult> {
        self.opened()?.check(SOURCE_SEED)
    }

    fn close(&mut self) -> CallResult<BTreeMap<String, CallTally>> {
        self.open.take().map(OpenIo::close).transpose().map(Option::unwrap_or_default)
    }
}
