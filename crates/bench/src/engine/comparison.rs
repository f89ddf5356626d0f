//! Which bytes are compared, and when: always bytes that timed operations stored.

use pathline_hal::{CallResult, pattern};
use pathline_schema::{Flow, Ns, StopReason, VerifyResult};
use pathline_stats::{MIN_VISITS, VISIT_PACE, VISIT_SAMPLES};

use super::{CaseEngine, LONG_VISIT, MIN_FOR_INTERVAL, RunningCase, copy_path, once};
use crate::block_sample::{SampledBlock, sampled_blocks};

/// An interval at most this many times too wide may be narrow enough after the next visit: one more of 6
/// narrows an interval of the same spread by 0.86, and chance by up to 0.7. Wrong bytes on all of a
/// destination cost more than a visit, and a wider limit would write them before most visits of a case
/// that stays wide.
const NEARLY_PRECISE: f64 = 1.5;
/// The same at the first visit that may end a case, which ends most cases.
const NEARLY_PRECISE_AT_FIRST: f64 = 4.0;
/// Duration of a visit over that of its samples.
const VISIT_OVERHEAD: f64 = 1.1;

impl CaseEngine<'_> {
    /// Makes a visit; returns why sampling should end after it, if so. Destinations are spoiled
    /// before a visit that may be the last, so that timed operations stored the compared bytes.
    /// After an unexpected end, another visit follows.
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

    /// Whether the next visit may be the last. A wrong answer only costs time: a visit more if it ends
    /// unexpectedly, and another fill of the destination if it does not end.
    fn may_stop(&self, case: &RunningCase<'_>) -> bool {
        let visits = 1 + case.series.first().map_or(0, |s| s.visits.len());
        let last = case.series.iter().filter_map(|s| s.samples_ns.last()).copied();
        let (last, budget) = (Ns(last.fold(0.0, f64::max)), self.budget(case));
        let more = visit_samples(last, budget * VISIT_PACE);
        let samples = case.samples() + more as usize;
        let enough = visits >= MIN_VISITS && samples >= self.settings.min_samples as usize;
        (enough && is_nearly_precise(case.half_width(), self.settings.precision, visits))
            || samples >= self.settings.max_samples as usize
            || (samples >= MIN_FOR_INTERVAL
                && case.spent + last * (f64::from(more) * VISIT_OVERHEAD) >= budget)
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

/// Expected samples of a visit whose samples last as long as the last one.
fn visit_samples(last: Ns, pace: Ns) -> u32 {
    if last >= pace * LONG_VISIT { 1 } else { VISIT_SAMPLES }
}

/// Whether an interval may be narrow enough after the next visit, the `nth` from 1 on.
fn is_nearly_precise(half_width: f64, precision: f64, nth: usize) -> bool {
    let limit = if nth <= MIN_VISITS { NEARLY_PRECISE_AT_FIRST } else { NEARLY_PRECISE };
    half_width <= precision * limit
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

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_stats::median_interval;

    /// The pace of 250 ms is 10 ms: from 2.5 ms on a sample is a visit.
    #[test]
    fn a_visit_of_long_samples_has_one() {
        assert_eq!(visit_samples(Ns::ms(2.4), Ns::ms(10.0)), VISIT_SAMPLES);
        assert_eq!(visit_samples(Ns::ms(2.5), Ns::ms(10.0)), 1);
    }

    /// Two samples a visit, which step by the golden ratio through 98 to 102: each interval that
    /// another visit narrows to the precision was expected to be narrow enough, and one three times as wide
    /// was not, unless it is the first that may end the case.
    #[test]
    fn a_visit_that_ends_a_case_is_expected() {
        let half_width = |visits: usize| {
            let sample = |nth: usize| 98.0 + 4.0 * (nth as f64 * 0.618_034).fract();
            let samples: Vec<f64> = (0..2 * visits).map(sample).collect();
            median_interval(&samples, &vec![2; visits]).expect("an interval").half_width_rel()
        };
        for visits in 5..40 {
            let (before, after) = (half_width(visits), half_width(visits + 1));
            assert!(is_nearly_precise(before, after, visits + 1), "{visits}: {before} to {after}");
            assert_eq!(is_nearly_precise(before, before / 3.0, visits + 1), visits == 5);
        }
    }
}
