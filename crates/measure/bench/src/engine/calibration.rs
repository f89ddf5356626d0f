//! Calibration: the repetitions of a sample, and the warm-up before the first sample that counts.

use pathline_hal::CallResult;
use pathline_schema::Ns;

use super::{CaseEngine, NOTICES_CACHES, RunningCase, once};
use crate::lane::{BoundLane, LaneSample, MAX_REPS};
use crate::warm_up;

/// Maximum share of a case's budget for warm-up.
const WARM_SHARE: f64 = 0.2;
/// For longer repetitions, cold caches and sleeping threads hardly change the first sample: up to
/// 17 % at 1 MiB and 1.6 % for kernels of 1 to 2 ms, in nine of ten visits.
const LONG_REPETITION: Ns = Ns::ms(5.0);
/// Maximum factor of a first operation over later ones: a chase through 1 MiB took 12 times as
/// long, and became a sample of 42 us.
const MAX_FIRST_FACTOR: f64 = 20.0;
/// Minimum background operations during a sample of threads: with one, the threads could see only
/// its start, with data of the last sample in the caches.
const PASSES_OF_BACKGROUND: f64 = 2.0;
/// Factor by which a background flow outlasts the timed ones.
const BACKGROUND_MARGIN: f64 = 2.0;

impl CaseEngine<'_> {
    /// The shortest sample that suits all lanes of a case, in ns.
    pub(super) fn shortest(&self, case: &RunningCase<'_>) -> f64 {
        case.lanes.iter().map(|l| l.min_sample().0).fold(self.settings.min_sample.0, f64::max)
    }

    /// Sets the repetitions of a sample: from an earlier case of the class, else by a search.
    /// Returns the duration of such a sample, and whether repetitions came from another case.
    pub(super) fn calibrate(&mut self, case: &mut RunningCase<'_>) -> CallResult<(Ns, bool)> {
        let shortest = Ns(self.shortest(case));
        if let Some(reps) = self.known_reps.reps(&case.entry.case, shortest) {
            case.reps = reps.clamp(1, case.most_timed());
            let laps = self.sample(case)?;
            return Ok((longest(&laps[..case.timed]), true));
        }
        let each = self.find_reps(case)?;
        self.known_reps.learn(&case.entry.case, case.reps, each);
        Ok((each * case.reps as f64, false))
    }

    /// Finds the repetitions that make a sample long enough for its timer. Returns the duration of
    /// one.
    pub(super) fn find_reps(&self, case: &mut RunningCase<'_>) -> CallResult<Ns> {
        let mut found = Ns::ZERO;
        // Flows timed next to messages last as long as needed: small differences in the start of
        // the messages then do not matter.
        let shortest = self.shortest(case);
        let (timed, background) = case.lanes.split_at(case.timed);
        let (most_timed, most_background) = (most(timed), most(background));
        let least = timed.iter().map(|l| l.least()).fold(case.reps, u64::max);
        case.reps = least.min(most_timed);
        // Two more rounds, since a first operation pays for pages, code and clocks.
        for round in 0..3 {
            let laps = self.sample(case)?;
            let longest = longest(&laps[..case.timed]).0.max(1.0);
            let repeats = case.lanes[..case.timed].iter().all(|l| l.repeats());
            let one = |l: &LaneSample| l.elapsed.0 / case.background_reps as f64;
            let background = laps[case.timed..].iter().map(one).fold(0.0, f64::max);
            // Threads timed during a background must see all of it a few times.
            let threads = case.lanes[..case.timed].iter().all(|l| l.team().is_some());
            let shortest =
                if threads { shortest.max(background * PASSES_OF_BACKGROUND) } else { shortest };
            let wanted = if repeats { (shortest / longest).ceil() } else { 1.0 };
            let each = longest / case.reps as f64;
            found = Ns(each);
            if let Some(slowest) = laps[case.timed..].iter().map(one).reduce(f64::min) {
                let span = each * (wanted * case.reps as f64) * BACKGROUND_MARGIN;
                case.background_reps =
                    ((span / slowest.max(1.0)).ceil() as u64).clamp(1, most_background);
            }
            let is_warm = round > 0 || longest > shortest * MAX_FIRST_FACTOR;
            if wanted <= 1.0 && is_warm {
                break;
            }
            case.reps = (case.reps.saturating_mul(wanted as u64)).clamp(1, most_timed);
        }
        Ok(found)
    }

    /// Loads engines and teams that this process has not used yet until their clocks have risen.
    /// This time is not charged to the case, which was bound at `bound`.
    pub(super) fn load_units(&mut self, case: &mut RunningCase<'_>, bound: Ns) -> CallResult<()> {
        if !self.warm_units.lacks(&case.entry.case) {
            return Ok(());
        }
        let begun = self.machine.clock.now();
        let (mut seen, mut sampled) = (Vec::new(), 0.0);
        while !warm_up::is_loaded(self.since(bound, sampled), &seen) {
            let laps = self.sample(case)?;
            seen.push(longest(&laps[..case.timed]).0);
            sampled += longest(&laps[..case.timed]).0.max(0.0);
        }
        case.load = self.since(begun, sampled);
        self.warm_units.add(&case.entry.case);
        Ok(())
    }

    /// Time since `begun`; at least that of the samples since then, in ns, whose timers may go on where the
    /// clock stands still or was set back.
    pub(super) fn since(&self, begun: Ns, sampled_ns: f64) -> Ns {
        Ns((self.machine.clock.now() - begun).0.max(sampled_ns))
    }

    /// Takes samples until they stop changing, or a share of the budget is spent. Returns the
    /// duration of the last one. `first` is the duration of an earlier sample; if its repetitions
    /// were `taken` from another case of the class, that case has warmed up the units.
    pub(super) fn warm(
        &self,
        case: &mut RunningCase<'_>,
        first: Ns,
        taken: bool,
    ) -> CallResult<Ns> {
        let share = self.budget(case) * WARM_SHARE;
        let begun = self.machine.clock.now();
        let mut seen: Vec<f64> = taken.then_some(first.0).into_iter().collect();
        let (mut last, mut sampled) = (first, 0.0);
        // One operation as long as the share is enough warm-up.
        while last < share && self.since(begun, sampled) < share {
            let laps = self.sample(case)?;
            case.warmup += 1;
            last = longest(&laps[..case.timed]);
            seen.push(last.0);
            sampled += last.0.max(0.0);
            if warm_up::is_settled(&seen, taken && case.load == Ns::ZERO) {
                break;
            }
        }
        Ok(last)
    }

    /// Runs an unrecorded operation if another case was sampled since the last visit: the caches
    /// hold its data, and threads slept. A reading of the machine's state leaves the caches so, too.
    pub(super) fn rewarm(&mut self, case: &mut RunningCase<'_>) -> CallResult<()> {
        let others = std::mem::replace(&mut self.sampled_last, case.number) != case.number;
        let last = case.last_sample();
        let begun = self.machine.clock.now();
        let each = last.0 / case.reps.max(1) as f64;
        if others && each < LONG_REPETITION.0 && !case.lanes.iter().any(|lane| lane.lands()) {
            once(self.machine, case, 1, &mut || ())?;
        }
        if self.caches_spoilt.get() && last > Ns::ZERO && last < NOTICES_CACHES {
            self.sample(case)?;
            case.warmup += 1;
        }
        case.spent = case.spent + self.since(begun, 0.0);
        Ok(())
    }
}

/// The longest duration of some lanes.
fn longest(laps: &[LaneSample]) -> Ns {
    Ns(laps.iter().map(|lap| lap.elapsed.0).fold(0.0, f64::max))
}

/// Maximum operations in a sample of all these lanes.
fn most(lanes: &[Box<dyn BoundLane + '_>]) -> u64 {
    lanes.iter().map(|lane| lane.most()).fold(MAX_REPS, u64::min).max(1)
}

impl RunningCase<'_> {
    /// Maximum repetitions of its timed lanes in a sample.
    pub(super) fn most_timed(&self) -> u64 {
        let repeats = self.lanes.iter().take(self.timed).all(|lane| lane.repeats());
        if repeats { most(&self.lanes[..self.timed]) } else { 1 }
    }
}
