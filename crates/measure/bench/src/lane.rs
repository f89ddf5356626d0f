//! Lanes: bound flows that can be issued, waited for and checked.

use std::collections::BTreeMap;

use pathline_hal::{CallResult, GpuEvent, Machine, StartGate, ThreadTeam};
use pathline_schema::{Bytes, CallTally, IoReading, Ns, Rank, TimerKind, VerifyResult};

use crate::block_sample::SampledBlock;

/// The result of a lane in one sample.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LaneSample {
    /// Duration.
    pub(crate) elapsed: Ns,
    /// Dependent steps.
    pub(crate) steps: u64,
    /// Duration in each of several processes.
    pub(crate) by_rank: BTreeMap<Rank, Ns>,
    /// Additional data of I/O.
    pub(crate) io: Option<IoReading>,
    /// Time that the timed host threads were ready without a CPU.
    pub(crate) off_cpu: Option<Ns>,
}

impl LaneSample {
    /// The sample of one process.
    pub(crate) fn of(elapsed: Ns, steps: u64) -> Self {
        Self { elapsed, steps, by_rank: BTreeMap::new(), io: None, off_cpu: None }
    }
}

/// The sample of an operation that the calling thread issues and times.
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
    /// Prepares the memory for the operation. Not timed.
    fn prepare(&mut self) -> CallResult<()> {
        Ok(())
    }
    /// Enqueues `reps` operations behind the gate.
    fn issue(&mut self, gate: &StartGate<'_>, reps: u64) -> CallResult<()>;
    /// Waits for the end after the gate's release.
    fn wait(&mut self) -> CallResult<LaneSample>;
    /// Whether it advances only while it is waited for: such lanes are waited for first.
    fn is_polled(&self) -> bool {
        false
    }
    /// The GPU whose events time it, with start and end event.
    fn events(&self) -> Option<(u32, &GpuEvent<'_>, &GpuEvent<'_>)> {
        None
    }
    /// The clock that times it.
    fn timer(&self) -> TimerKind;
    /// The engine of the bytes, as text for the record.
    fn engine(&self) -> String;
    /// Whether a sample can have several operations.
    fn repeats(&self) -> bool {
        true
    }
    /// Maximum operations in a sample: a held stream accepts a limited number.
    fn most(&self) -> u64 {
        MAX_REPS
    }
    /// Whether each operation starts after the previous one has ended, so that the time of
    /// additional operations is their number times that of one. Such a lane does not
    /// [repeat](Self::repeats), and is so short that the cost of starting and timing would matter.
    fn adds_up(&self) -> bool {
        false
    }
    /// Minimum operations in a sample, if fewer are not representative.
    fn least(&self) -> u64 {
        1
    }
    /// Shortest sample, if it needs longer ones than other lanes.
    fn min_sample(&self) -> Ns {
        Ns::ZERO
    }
    /// Number of case budgets for a case of it.
    fn budgets(&self) -> f64 {
        1.0
    }
    /// Its CPU threads, if any.
    fn team(&self) -> Option<&ThreadTeam<'_>> {
        None
    }
    /// Payloads that one operation moves.
    fn messages(&self) -> u64 {
        1
    }
    /// Bytes that one operation processes, if not those of its flow.
    fn payload(&self) -> Option<Bytes> {
        None
    }
    /// Overwrites the destination with wrong bytes, so that only the operation can correct it. A
    /// lane that lands does so in `land`.
    fn spoil(&mut self) -> CallResult<()>;
    /// Whether [`land`](Self::land) writes the checked bytes, not an operation of a sample.
    fn lands(&self) -> bool {
        false
    }
    /// Spoils memory that concurrent operations have changed, and then runs the checked operation
    /// once.
    fn land(&mut self) -> CallResult<()> {
        Ok(())
    }
    /// Whether a sample of blocks can represent its destination.
    fn has_blocks(&self) -> bool {
        false
    }
    /// Overwrites blocks of the destination with wrong bytes.
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
    /// Closes it; returns the times of its setup and teardown calls, by name.
    fn close(&mut self) -> CallResult<BTreeMap<String, CallTally>> {
        Ok(BTreeMap::new())
    }
}

/// Maximum repetitions in one sample.
pub(crate) const MAX_REPS: u64 = 1 << 20;

/// Seed of the sources' pattern.
pub(crate) const SOURCE_SEED: u64 = 0x5061_7468;
/// Seed of the destinations' pattern before an operation.
pub(crate) const SPOILT_SEED: u64 = 0x6c69_6e65;

#[cfg(test)]
mod tests;

pub(crate) fn nothing_to_compare() -> VerifyResult {
    VerifyResult::Unverified("it copies nothing that could be compared".to_owned())
}
