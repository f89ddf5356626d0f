//! Which bytes are compared, and when: what is compared was stored by timed operations.

use pathline_hal::{CallResult, pattern};
use pathline_schema::{Flow, Ns, StopReason, VerifyResult};
use pathline_stats::VISIT_SAMPLES;

use super::{CaseEngine, RunningCase, copy_path, once};
use crate::block_sample::{SampledBlock, sampled_blocks};

/// An interval at most this many times as wide as wanted may be narrow enough after the next visit.
const NEARLY_PRECISE: f64 = 4.0;

impl CaseEngine<'_> {
    /// A visit; why sampling should end after it, if it should. Before a visit that may be the last
    /// destinations are spoiled, so that the bytes that are compared were stored by timed operations.
    /// Where the end comes unforeseen, another visit follows.
    pub(super) fn visit_to_compare(
        &mut self,
        case: &mut RunningCase<'_>,
    ) -> CallResult<Option<StopReason>> {
        let compares = case.compares_samples();
        let spoiled = compares && self.may_stop(case);
        self.rewarm(case)?;
        if spoiled {
            case.spoil()?;
        }
        self.visit(case)?;
        let reason = self.stop(case);
        if reason.is_none() || spoiled || !compares {
            return Ok(reason);
        }
        case.spoil()?;
        self.visit(case)?;
        Ok(self.stop(case))
    }

    /// Whether the next visit may be the last. A wrong answer costs time only.
    fn may_stop(&self, case: &RunningCase<'_>) -> bool {
        let samples = case.samples() + VISIT_SAMPLES as usize;
        let last = case.series.iter().filter_map(|s| s.samples_ns.last()).copied();
        let visit = Ns(last.fold(0.0, f64::max) * f64::from(VISIT_SAMPLES));
        let precise = case.half_width() <= self.settings.precision * NEARLY_PRECISE
            && samples >= self.settings.min_samples as usize;
        precise
            || samples >= self.settings.max_samples as usize
            || case.spent + visit >= self.budget(case)
    }

    /// Compares destinations with what the last visit should have stored. Messages and files, whose bytes
    /// depend on how often they went, run once more for that. Then the GPUs are read during operations
    /// that are not recorded.
    pub(super) fn verify(&mut self, case: &mut RunningCase<'_>) -> CallResult<VerifyResult> {
        if !case.compares_samples() {
            case.spoil()?;
            // What all lands needs no operation at the same time.
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
    /// Whether the bytes that a sample leaves are the same however often it ran.
    fn compares_samples(&self) -> bool {
        self.entry.case.flows().all(|flow| flow.by.wire().is_none() && flow.by.io().is_none())
    }

    /// Whether blocks of each destination can stand for all of it.
    pub(super) fn has_blocks(&self) -> bool {
        self.lanes.iter().take(self.timed).all(|lane| lane.has_blocks())
    }

    /// The blocks of each timed flow that are compared.
    pub(super) fn blocks(&self, seed: u64) -> Vec<Vec<SampledBlock>> {
        let of =
            move |(nth, flow): (u64, &Flow)| sampled_blocks(flow.bytes.0, pattern::word(seed, nth));
        (0..).zip(&self.entry.case.timed).map(of).collect()
    }

    /// Makes every destination wrong, or the blocks of it that will be compared.
    fn spoil(&mut self) -> CallResult<()> {
        match self.sampled {
            None => self.lanes.iter_mut().try_for_each(|lane| lane.spoil()),
            Some(seed) => {
                let blocks = self.blocks(seed);
                let timed = self.lanes.iter_mut().take(self.timed);
                timed.zip(blocks).try_for_each(|(lane, blocks)| lane.spoil_blocks(&blocks))
            }
        }
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
