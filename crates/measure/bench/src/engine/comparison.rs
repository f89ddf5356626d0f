//! Which bytes are compared, and when: bytes that operations of the case stored, timed ones at marks at least.

use pathline_hal::{CallResult, pattern};
use pathline_schema::{Flow, StopReason, Unit, VerifyResult};

use super::{CaseEngine, RunningCase, copy_path, once};
use crate::block_sample::{SampledBlock, sampled_blocks};

/// Bytes of a mark, which a timed operation has to correct.
const MARK: u64 = 4 << 10;

impl CaseEngine<'_> {
    /// Makes a visit when it is due; returns why sampling should end after it, if so. Destinations are
    /// spoiled right before a visit that may be the last, so that its operations stored the compared
    /// bytes. After an unexpected end, another visit follows.
    pub(super) fn visit_to_compare(
        &mut self,
        case: &mut RunningCase<'_>,
    ) -> CallResult<Option<StopReason>> {
        self.pass_time(case)?;
        let compares = case.compares_samples();
        let spoiled = compares && self.may_stop(case);
        self.rewarm(case)?;
        if spoiled {
            self.spoil(case)?;
        }
        self.visit(case)?;
        let reason = self.stop(case);
        if reason.is_none() || spoiled || !compares {
            return Ok(reason);
        }
        self.spoil(case)?;
        self.visit(case)?;
        Ok(self.stop(case))
    }

    /// Overwrites destinations with wrong bytes. A GPU's first store to lines that CPUs have just written is
    /// slow (32 MiB from an H200 to pinned memory: 1.20 ms, later ones 0.61 ms), and no state in which
    /// somebody copies: an untimed operation takes these lines, and the timed ones have to correct marks.
    fn spoil(&self, case: &mut RunningCase<'_>) -> CallResult<()> {
        case.spoil()?;
        let stores_to_host = |flow: &Flow| matches!(flow.dst.unit, Unit::Numa(_));
        let is_host = case.entry.case.timed.iter().any(stores_to_host);
        if case.sampled.is_none() && is_host && case.has_blocks() {
            once(self.machine, case, 1, &mut || ())?;
            let mut marks = case.blocks(self.settings.seed);
            marks.iter_mut().flatten().for_each(|(_, bytes)| *bytes = (*bytes).min(MARK));
            case.spoil_blocks(&marks)?;
        }
        Ok(())
    }

    /// Compares destinations with the data of the last visit. Messages and files, whose bytes
    /// depend on the number of repetitions, run once more for that. Then the GPUs are read during
    /// unrecorded operations.
    pub(super) fn verify(&mut self, case: &mut RunningCase<'_>) -> CallResult<VerifyResult> {
        if !case.compares_samples() {
            case.spoil()?;
            // Lanes that all land need no concurrent operation.
            if !case.lanes.iter().all(|lane| lane.lands()) {
                once(self.machine, case, 1, &mut || ())?;
            }
            for lane in &mut case.lanes {
                lane.land()?;
            }
        }
        let verdict = case.check()?;
        if verdict == VerifyResult::Verified && case.sampled.is_none() {
            self.verified.extend(case.entry.case.timed.iter().map(copy_path));
        }
        if let Some(reps) = self.reps_to_look(case) {
            self.look(case, reps)?;
        }
        Ok(verdict)
    }
}

impl RunningCase<'_> {
    /// Whether a sample leaves the same bytes for any number of repetitions.
    fn compares_samples(&self) -> bool {
        self.entry.case.flows().all(|flow| flow.by.wire().is_none() && !flow.by.is_on_files())
    }

    /// Whether a sample of blocks can represent each destination.
    pub(super) fn has_blocks(&self) -> bool {
        self.lanes.iter().take(self.timed).all(|lane| lane.has_blocks())
    }

    /// The compared blocks of each timed flow.
    pub(super) fn blocks(&self, seed: u64) -> Vec<Vec<SampledBlock>> {
        let of =
            move |(nth, flow): (u64, &Flow)| sampled_blocks(flow.bytes.0, pattern::word(seed, nth));
        (0..).zip(&self.entry.case.timed).map(of).collect()
    }

    /// Overwrites every destination with wrong bytes, or only its compared blocks.
    fn spoil(&mut self) -> CallResult<()> {
        match self.sampled {
            None => self.lanes.iter_mut().try_for_each(|lane| lane.spoil()),
            Some(seed) => self.spoil_blocks(&self.blocks(seed)),
        }
    }

    /// Overwrites blocks of the destination of each timed flow.
    fn spoil_blocks(&mut self, blocks: &[Vec<SampledBlock>]) -> CallResult<()> {
        let timed = self.lanes.iter_mut().take(self.timed);
        timed.zip(blocks).try_for_each(|(lane, blocks)| lane.spoil_blocks(blocks))
    }

    /// Compares the destinations of the timed flows.
    fn check(&self) -> CallResult<VerifyResult> {
        let timed = || self.lanes.iter().take(self.timed);
        let mut verdict = VerifyResult::Verified;
        let mut verdicts: Vec<CallResult<VerifyResult>> = Vec::new();
        match self.sampled {
            None => verdicts.extend(timed().map(|lane| lane.check())),
            Some(seed) => verdicts.extend(
                timed().zip(self.blocks(seed)).map(|(lane, blocks)| lane.check_blocks(&blocks)),
            ),
        }
        for found in verdicts {
            if let unverified @ VerifyResult::Unverified(_) = found? {
                verdict = unverified;
            }
        }
        Ok(verdict)
    }
}
