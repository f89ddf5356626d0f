//! Lanes: a flow that holds its resources and can be issued, waited for and checked.

use std::collections::BTreeMap;

use pathline_hal::{CallResult, GpuEvent, Machine, StartGate, ThreadTeam};
use pathline_schema::{Bytes, CallTally, IoReading, Ns, Rank, TimerKind, VerifyResult};

use crate::block_sample::SampledBlock;

/// What a lane did in one sample.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LaneSample {
    /// How long.
    pub(crate) elapsed: Ns,
    /// Dependent steps.
    pub(crate) steps: u64,
    /// How long by each of several processes.
    pub(crate) by_rank: BTreeMap<Rank, Ns>,
    /// What I/O records in addition.
    pub(crate) io: Option<IoReading>,
    /// How long the threads of the host that it was timed on were ready without a CPU.
    pub(crate) off_cpu: Option<Ns>,
}

impl LaneSample {
    /// One process's.
    pub(crate) fn of(elapsed: Ns, steps: u64) -> Self {
        Self { elapsed, steps, by_rank: BTreeMap::new(), io: None, off_cpu: None }
    }
}

/// The sample of an operation that the calling thread itself issues and times.
pub(crate) fn on_this_thread(
    machine: &Machine,
    steps: u64,
    operation: impl FnOnce() -> CallResult<Ns>,
) -> CallResult<LaneSample> {
    let before = machine.host.run_delay();
    let elapsed = operation()?;
    let after = machine.host.run_delay();
    let off_cpu = before.zip(after).map(|(before, after)| after - before);
    Ok(LaneSample { off_cpu, ..LaneSample::of(elapsed, steps) })
}

/// A flow, bound to a machine.
pub(crate) trait BoundLane {
    /// Brings the memory into the state that the operation starts from. Not timed.
    fn prepare(&mut self) -> CallResult<()> {
        Ok(())
    }
    /// Enqueues `reps` operations behind the gate.
    fn issue(&mut self, gate: &StartGate<'_>, reps: u64) -> CallResult<()>;
    /// After the gate's release: waits for the end.
    fn wait(&mut self) -> CallResult<LaneSample>;
    /// The GPU whose events time it, and the events at its start and its end.
    fn events(&self) -> Option<(u32, &GpuEvent<'_>, &GpuEvent<'_>)> {
        None
    }
    /// Which clock times it.
    fn timer(&self) -> TimerKind;
    /// What moves the bytes, in words for the record.
    fn engine(&self) -> String;
    /// Whether more than one operation can be in a sample.
    fn repeats(&self) -> bool {
        true
    }
    /// Most operations in a sample: a stream that is held takes only so many.
    fn most(&self) -> u64 {
        MAX_REPS
    }
    /// Whether operations follow each other in order, one after the other is over, so that one takes
    /// what each of several more adds. It does not [repeat](Self::repeats) and is so short that what
    /// starting and timing it adds would count.
    fn adds_up(&self) -> bool {
        false
    }
    /// Fewest operations in a sample, where fewer are no picture of many.
    fn least(&self) -> u64 {
        1
    }
    /// Shortest sample, if it needs longer ones than others do.
    fn min_sample(&self) -> Ns {
        Ns::ZERO
    }
    /// Case budgets that a case of it takes.
    fn budgets(&self) -> f64 {
        1.0
    }
    /// The threads that it has, if it is one of CPU threads.
    fn team(&self) -> Option<&ThreadTeam<'_>> {
        None
    }
    /// Payloads that one operation moves.
    fn messages(&self) -> u64 {
        1
    }
    /// Bytes that one operation goes through, if not those of its flow.
    fn payload(&self) -> Option<Bytes> {
        None
    }
    /// Makes the destination wrong, so that only the operation can make it right. A lane that lands
    /// does so then.
    fn spoil(&mut self) -> CallResult<()>;
    /// Whether what is checked is done by [`land`](Self::land), not by an operation of a sample.
    fn lands(&self) -> bool {
        false
    }
    /// Spoils what an operation of a sample beside it has touched meanwhile, and does once what is
    /// then checked.
    fn land(&mut self) -> CallResult<()> {
        Ok(())
    }
    /// Whether blocks of its destination can stand for all of it.
    fn has_blocks(&self) -> bool {
        false
    }
    /// Makes blocks of the destination wrong.
    fn spoil_blocks(&mut self, blocks: &[SampledBlock]) -> CallResult<()> {
        let _ = blocks;
        self.spoil()
    }
    /// Compares blocks of the destination.
    fn check_blocks(&self, blocks: &[SampledBlock]) -> CallResult<VerifyResult> {
        let _ = blocks;
        self.check()
    }
    /// Compares every byte of the destination.
    fn check(&self) -> CallResult<VerifyResult>;
    /// Ends it, and says which calls it took to begin and to end it, by name.
    fn close(&mut self) -> CallResult<BTreeMap<String, CallTally>> {
        Ok(BTreeMap::new())
    }
}

/// Most repetitions in one sample.
pub(crate) const MAX_REPS: u64 = 1 << 20;

/// Pattern that sources hold.
pub(crate) const SOURCE_SEED: u64 = 0x5061_7468;
/// Pattern that destinations hold before an operation.
pub(crate) const SPOILT_SEED: u64 = 0x6c69_6e65;

pub(crate) fn nothing_to_compare() -> VerifyResult {
    VerifyResult::Unverified("it copies nothing that could be compared".to_owned())
}
