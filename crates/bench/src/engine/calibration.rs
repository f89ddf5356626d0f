//! How many repetitions a sample has, and what runs before the first one that counts.

use pathline_hal::CallResult;
use pathline_schema::Ns;

use super::{CaseEngine, RunningCase, once};
use crate::lane::{BoundLane, LaneSample, MAX_REPS};
use crate::warm_up;

/// Share of a case's budget that warming up may take.
const WARM_SHARE: f64 = 0.2;
/// A repetition that lasts longer outweighs what caches and sleeping threads cost its first sample: up
/// to 17 % at 1 MiB and 1.6 % for kernels of 1 to 2 ms, in nine of ten visits.
const COLD_COSTS_LITTLE: Ns = Ns::ms(5.0);
/// How many times as long as later ones a first operation may take: a chase through 1 MiB took 12
/// times as long, and became a sample of 42 us.
const FIRST_PAYS: f64 = 20.0;
/// Operations of a background while threads are timed: of one, they could meet its beginning
/// alone, with what the last sample left in the caches.
const PASSES_OF_BACKGROUND: f64 = 2.0;
/// How much longer a background flow is made to run than the timed ones.
const BACKGROUND_MARGIN: f64 = 2.0;

impl CaseEngine<'_> {
    /// The shortest sample that the lanes of a case can do with, in ns.
    pub(super) fn shortest(&self, case: &RunningCase<'_>) -> f64 {
        case.lanes.iter().map(|l| l.min_sample().0).fold(self.settings.min_sample.0, f64::max)
    }

    /// Sets the repetitions of a sample: from an earlier case of the class, else by a search. The duration of such a sample, and whether repetitions were taken.
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

    /// Finds the repetitions that make a sample long enough for its timer. Duration of one of them.
    pub(super) fn find_reps(&self, case: &mut RunningCase<'_>) -> CallResult<Ns> {
        let mut found = Ns::ZERO;
        // What is timed next to messages lasts as long as they have to: that they begin a little
        // earlier or later then changes nothing.
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
            // Threads that are timed during something see all of it a few times over.
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
            let tells = round > 0 || longest > shortest * FIRST_PAYS;
            if wanted <= 1.0 && tells {
                break;
            }
            case.reps = (case.reps.saturating_mul(wanted as u64)).clamp(1, most_timed);
        }
        Ok(found)
    }

    /// Keeps engines and teams busy that this process has not used yet, until their clocks have risen.
    /// The case, bound at `bound`, does not pay for that.
    pub(super) fn load_units(&mut self, case: &mut RunningCase<'_>, bound: Ns) -> CallResult<()> {
        if !self.warm_units.lacks(&case.entry.case) {
            return Ok(());
        }
        let begun = self.machine.clock.now();
        let mut seen = Vec::new();
        while !warm_up::is_loaded(self.machine.clock.now() - bound, &seen) {
            let laps = self.sample(case)?;
            seen.push(longest(&laps[..case.timed]).0);
        }
        case.load = self.machine.clock.now() - begun;
        self.warm_units.add(&case.entry.case);
        Ok(())
    }

    /// Samples until they stop changing, or a share of the budget is spent. The duration of the last
    /// one. `first` is that of a sample before; where its repetitions were `taken` from another case of
    /// the class, that one has warmed the units up.
    pub(super) fn warm(
        &self,
        case: &mut RunningCase<'_>,
        first: Ns,
        taken: bool,
    ) -> CallResult<Ns> {
        let share = self.budget(case) * WARM_SHARE;
        let begun = self.machine.clock.now();
        let mut seen: Vec<f64> = taken.then_some(first.0).into_iter().collect();
        let mut last = first;
        // An operation as long as the share has warmed itself up.
        while last < share && self.machine.clock.now() - begun < share {
            let laps = self.sample(case)?;
            case.warmup += 1;
            last = longest(&laps[..case.timed]);
            seen.push(last.0);
            if warm_up::is_settled(&seen, taken && case.load == Ns::ZERO) {
                break;
            }
        }
        Ok(last)
    }

    /// An operation that is not recorded, if another case was sampled since the last visit: it has
    /// emptied the caches, and threads slept.
    pub(super) fn rewarm(&mut self, case: &mut RunningCase<'_>) -> CallResult<()> {
        let others = std::mem::replace(&mut self.sampled_last, case.number) != case.number;
        let last = case.series.iter().filter_map(|s| s.samples_ns.last()).copied();
        let each = last.fold(0.0, f64::max) / case.reps.max(1) as f64;
        if others && each < COLD_COSTS_LITTLE.0 && !case.lanes.iter().any(|lane| lane.lands()) {
            let begun = self.machine.clock.now();
            once(self.machine, case, 1, &mut || ())?;
            case.spent = case.spent + (self.machine.clock.now() - begun);
        }
        Ok(())
    }
}

/// The longest of some lanes.
fn longest(laps: &[LaneSample]) -> Ns {
    Ns(laps.iter().map(|lap| lap.elapsed.0).fold(0.0, f64::max))
}

/// Most operations that a sample of all these lanes can have.
fn most(lanes: &[Box<dyn BoundLane + '_>]) -> u64 {
    lanes.iter().map(|lane| lane.most()).fold(MAX_REPS, u64::min).max(1)
}

impl RunningCase<'_> {
    /// Most repetitions of its timed lanes in a sample.
    pub(super) fn most_timed(&self) -> u64 {
        let repeats = self.lanes.iter().take(self.timed).all(|lane| lane.repeats());
        if repeats { most(&self.lanes[..self.timed]) } else { 1 }
    }
}
