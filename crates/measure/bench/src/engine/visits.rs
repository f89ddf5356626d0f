//! Visits: when a case is sampled, how often, and until when.

use std::io;

use pathline_hal::{CallResult, pattern};
use pathline_schema::{CaseTimes, CleanSamples, Ns, StopReason, WorldKind};
use pathline_stats::{MIN_VISITS, VISIT_SAMPLES, visit_samples};

use super::{CaseEngine, RunningCase, once};
use crate::task::{EventSink, InterruptCheck};

/// Minimum samples of a case whose budget is spent.
const MIN_FOR_BUDGET: usize = 3;
/// A visit of a quiet case ends once it lasts this share of the case's budget.
const LONG_VISIT: f64 = 0.05;
/// Maximum visits, where other programs disturb samples.
const MAX_VISITS: usize = 2 * MIN_VISITS;
/// The visits of a case are spread over what its start left of its budget, at least this share.
const MIN_SPREAD: f64 = 0.5;
/// Longest time over which the visits of a case are spread, however long its budget is.
const MAX_WATCHED: Ns = Ns::ms(2000.0);
/// Maximum untimed passes between two visits.
const MAX_PASSES: usize = 1000;
/// Duration of a visit over that of its samples.
const VISIT_OVERHEAD: f64 = 1.1;

impl<'a> CaseEngine<'a> {
    /// Visits cases that had their first visit until all end. The other visits of all are spread over one
    /// span, so that each fills the time in which another waits.
    pub(super) fn take_turns(
        &mut self,
        mut open: Vec<RunningCase<'a>>,
        interrupt: InterruptCheck<'_>,
        sink: EventSink<'_>,
    ) -> io::Result<()> {
        let begun = self.machine.clock.now();
        for case in &mut open {
            case.due = begun + case.stretch * self.random(case, 1);
        }
        let first = |open: &[RunningCase<'_>]| {
            let dues = open.iter().map(|case| case.due.0).enumerate();
            dues.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(nth, _)| nth)
        };
        while let Some(first) = first(&open) {
            let case = open.swap_remove(first);
            open.extend(self.take_turn(case, interrupt, sink)?);
        }
        Ok(())
    }

    /// Sets the stretches of time of a case that was bound; its first visit follows at once.
    pub(super) fn spread_visits(&self, case: &mut RunningCase<'_>) {
        // Without six visits there is no interval that could be wrong.
        if self.settings.max_samples as usize >= MIN_VISITS {
            let budget = self.budget(case);
            // A run that may not last needs its figures soon.
            let is_short = case.entry.budget.is_some() || self.settings.time_limit > Ns::ZERO;
            let watched = if is_short { Ns::ZERO } else { self.settings.case_budget };
            let watched = Ns((watched * case.entry.span).0.min(MAX_WATCHED.0));
            let left = (budget - case.spent).max(watched).max(budget * MIN_SPREAD).0;
            case.stretch = Ns(left / MIN_VISITS as f64);
        }
    }

    /// A random number from 0 to 1 for a visit of a case, by the seed of the run.
    fn random(&self, case: &RunningCase<'_>, visit: u64) -> f64 {
        let word = pattern::word(pattern::word(self.settings.seed, case.number), visit);
        word as f64 / u64::MAX as f64
    }

    /// A few samples. Sets the moment of the next visit.
    pub(super) fn visit(&self, case: &mut RunningCase<'_>) -> CallResult<()> {
        let (budget, spent) = (self.budget(case), case.spent);
        let wanted = self.wanted_samples(case);
        let most = if wanted > VISIT_SAMPLES { 1.0 / MIN_VISITS as f64 } else { LONG_VISIT };
        let visited = self.machine.clock.now();
        let nth = case.visits() as u64;
        let (rest, next) = (1.0 - self.random(case, nth), self.random(case, nth + 1));
        case.due = visited + case.stretch * (rest + next);
        case.series.iter_mut().for_each(|series| series.visits.push(0));
        let mut sampled = 0.0;
        for _ in 0..wanted {
            let (laps, starts) = match case.differs {
                true => self.difference(case)?,
                false => (self.sample(case)?, Vec::new()),
            };
            let longest = laps.iter().map(|lap| lap.elapsed.0).fold(0.0, f64::max);
            for (nth, (series, lap)) in case.series.iter_mut().zip(laps).enumerate() {
                series.extend_off_cpu(lap.off_cpu.map(|off| off.0.max(0.0) as u64));
                series.samples_ns.push(lap.elapsed.0);
                series.start_ns.extend(starts.get(nth).map(|start| start.0));
                series.visits.last_mut().into_iter().for_each(|samples| *samples += 1);
                series.steps = lap.steps;
                for (rank, took) in lap.by_rank {
                    series.by_rank.entry(rank).or_default().push(took.0);
                }
                series.io.extend(lap.io);
            }
            sampled += longest;
            let took = self.since(visited, sampled);
            case.spent = spent + took;
            let over = case.spent > budget && case.samples() >= MIN_FOR_BUDGET;
            if over || took >= budget * most {
                break;
            }
        }
        Ok(())
    }

    /// Samples of the next visit.
    pub(super) fn wanted_samples(&self, case: &RunningCase<'_>) -> u32 {
        let times = CaseTimes::slowest_flow(&case.series);
        let most = (self.settings.max_samples / MIN_VISITS as u32).max(1);
        visit_samples(&times.ns, self.settings.precision, most)
    }

    /// Runs the operation untimed until the next visit may begin, so that clocks stay high. Other cases of
    /// the group fill most of this time.
    pub(super) fn pass_time(&self, case: &mut RunningCase<'_>) -> CallResult<()> {
        let timed = case.lanes.iter().take(case.timed);
        let repeats = timed.clone().all(|lane| lane.repeats());
        let most = timed.map(|lane| if repeats { lane.most() } else { 1 }).min().unwrap_or(1);
        let begun = self.machine.clock.now();
        // A clock may stand still or be set back.
        let wait = (case.due - begun).0.min(case.stretch.0 * 2.0);
        // A model's clocks do not fall, and its operations take real time of this machine.
        if self.machine.world != WorldKind::Real && wait > 0.0 {
            self.machine.clock.sleep(Ns(wait));
            return Ok(());
        }
        let (mut each, mut passed) = (case.last_sample().0 / case.reps.max(1) as f64, 0.0);
        for _ in 0..MAX_PASSES {
            let left = wait - self.since(begun, passed).0;
            // A further whole repetition would delay the other cases of the group.
            if left < each.max(1.0) {
                break;
            }
            // One that was never timed may last long.
            let reps = if each > 0.0 { (left / each) as u64 } else { 1 };
            let reps = reps.clamp(1, most.max(1));
            let laps = once(self.machine, case, reps, &mut || ())?;
            let took = laps.iter().take(case.timed).map(|lap| lap.elapsed.0).fold(0.0, f64::max);
            passed += took;
            each = took / reps as f64;
        }
        Ok(())
    }

    /// Why sampling should end now, if so: it was visited often enough, by the samples that figures rest on.
    pub(super) fn stop(&self, case: &RunningCase<'_>) -> Option<StopReason> {
        let (samples, settings) = (case.samples(), &self.settings);
        let clean = CleanSamples::of(&case.series);
        let visits = CaseTimes::slowest_flow(&case.series).visits.len();
        // With too few clean samples all count, and more visits may give enough clean ones.
        let seen = clean.enough && visits >= MIN_VISITS && samples >= settings.min_samples as usize;
        let spent = case.spent >= self.budget(case) && samples >= MIN_FOR_BUDGET;
        let full = samples >= settings.max_samples as usize || case.visits() >= MAX_VISITS;
        let is_precise = || clean.enough && case.half_width() <= settings.precision;
        let reason = || if is_precise() { StopReason::Precise } else { StopReason::Budget };
        (seen || spent || full).then(reason)
    }

    /// Whether the next visit may be the last. A wrong answer only costs time: a visit more if it ends
    /// unexpectedly, and another fill of the destination if it does not end.
    pub(super) fn may_stop(&self, case: &RunningCase<'_>) -> bool {
        let more = self.wanted_samples(case);
        case.visits() + 1 >= MIN_VISITS
            || case.samples() + more as usize >= self.settings.max_samples as usize
            || case.spent + case.last_sample() * (f64::from(more) * VISIT_OVERHEAD)
                >= self.budget(case)
    }
}

#[cfg(test)]
mod tests;
