//! Trials of models: sums of losses of sets, along a capacity and on several threads.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{GroupFitter, deviation, loss};
use crate::model::{PartRunner, PreparedSet, SLACK, SetRunner, last_end};

/// A set on a resource of which the capacity is tried.
#[derive(Debug)]
struct SweptSet {
    set: usize,
    /// The highest load that it makes on the resource where it does not fill it, GB/s; infinite if unknown.
    free_load: f64,
    /// Its loss then.
    free_loss: f64,
    /// Its loss in the last trial.
    last_loss: f64,
    /// Made when the set first fills the resource.
    prepared: Option<PreparedSet>,
}

impl SweptSet {
    /// Whether the capacity leaves it free, as in a trial before.
    fn is_free(&self, capacity: f64) -> bool {
        self.free_load.is_finite() && self.free_load * SLACK < capacity
    }
}

/// Sets on a resource of which only the capacity changes.
#[derive(Debug)]
pub(super) struct CapacitySweep {
    /// Number of the resource.
    at: usize,
    sets: Vec<SweptSet>,
    /// Places in `sets`, highest loss of the last trial first: a sum exceeds a bound sooner.
    order: Vec<usize>,
}

impl CapacitySweep {
    pub(super) fn new(at: usize, sets: &[usize]) -> Self {
        let swept = |&set: &usize| SweptSet {
            set,
            free_load: f64::INFINITY,
            free_loss: 0.0,
            last_loss: 0.0,
            prepared: None,
        };
        Self { at, sets: sets.iter().map(swept).collect(), order: (0..sets.len()).collect() }
    }
}

impl<'a> GroupFitter<'a> {
    /// Runs a set on the model that `trial` has loaded, without using its stored timeline; gives the end of
    /// its last flow.
    pub(super) fn try_set(&mut self, set: usize) -> f64 {
        self.trial.ends(&self.model, set, &self.data.sets[set].flows, &mut self.trial_ends);
        last_end(&self.trial_ends)
    }

    /// The sum of deviations of some sets on the current model, without using their stored
    /// timelines.
    pub(super) fn try_sum(&mut self, sets: &[usize]) -> f64 {
        self.try_sum_below(sets, f64::INFINITY)
    }

    /// The same, but stops once it exceeds `enough`: no deviation is negative.
    pub(super) fn try_sum_below(&mut self, sets: &[usize], enough: f64) -> f64 {
        let mut sum = 0.0;
        self.trial.load(&self.model);
        for &s in sets {
            self.try_set(s);
            sum += loss(deviation(self.data, s, &self.trial_ends), self.spread);
            if sum > enough {
                break;
            }
        }
        sum
    }

    /// The same for a resource of which only the capacity changes between calls: sets that did not fill it
    /// are known for every capacity above the load that they made. They come first, so that the sum exceeds
    /// `enough` after fewer of the others.
    pub(super) fn try_capacity(&mut self, sweep: &mut CapacitySweep, enough: f64) -> f64 {
        let CapacitySweep { at, sets, order } = sweep;
        let capacity = self.model.shared[*at].capacity;
        let free = |swept: &&SweptSet| swept.is_free(capacity);
        let known: f64 = sets.iter().filter(free).map(|swept| swept.free_loss).sum();
        order.sort_by(|&a, &b| sets[b].last_loss.total_cmp(&sets[a].last_loss));
        self.trial.load(&self.model);
        let mut so_far = known;
        for &place in order.iter() {
            let swept = &mut sets[place];
            if swept.is_free(capacity) {
                swept.last_loss = 0.0;
                continue;
            }
            if so_far > enough {
                return so_far;
            }
            let load = self.try_swept(*at, swept);
            swept.last_loss = loss(deviation(self.data, swept.set, &self.trial_ends), self.spread);
            so_far += swept.last_loss;
            if load * SLACK < capacity {
                (swept.free_load, swept.free_loss) = (load, swept.last_loss);
            }
        }
        // Added in the order of the sets: equal trials stay equal, whatever was tried before.
        sets.iter().fold(known, |sum, swept| sum + swept.last_loss)
    }

    /// Ends of a set, in `trial_ends`, on the loaded model, and the highest load that it makes on a resource.
    fn try_swept(&mut self, at: usize, swept: &mut SweptSet) -> f64 {
        let (data, model) = (self.data, &self.model);
        let (capacity, flows) = (model.shared[at].capacity, &data.sets[swept.set].flows);
        let Self { trial, trial_ends, .. } = self;
        if swept.prepared.is_none() {
            swept.prepared = trial.prepare(model, swept.set, flows, at);
        }
        match &mut swept.prepared {
            Some(prepared) if prepared.can_fill(capacity) => {
                trial.ends_at(model, flows, prepared, capacity, trial_ends)
            }
            _ => {
                trial.ends(model, swept.set, flows, trial_ends);
                trial.load_on(at)
            }
        }
    }

    /// Runs one trial for each item, with a thread per CPU, each with a copy of this state; results
    /// in item order. Trials do not change the model.
    pub(super) fn trials<T: Send>(
        &self,
        items: &[usize],
        trial: impl Fn(&mut GroupFitter<'a>, usize) -> T + Sync,
    ) -> Vec<T> {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(items.len());
        let next = AtomicUsize::new(0);
        let work = || {
            let mut fitter = self.copy();
            let mut done = Vec::new();
            loop {
                let nth = next.fetch_add(1, Ordering::Relaxed);
                let Some(&item) = items.get(nth) else { return done };
                done.push((nth, trial(&mut fitter, item)));
            }
        };
        let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut all = work();
            for other in others {
                match other.join() {
                    Ok(done) => all.extend(done),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            all
        });
        all.sort_by_key(|(nth, _)| *nth);
        all.into_iter().map(|(_, result)| result).collect()
    }

    pub(super) fn copy(&self) -> Self {
        Self {
            data: self.data,
            used: self.used.clone(),
            model: self.model.clone(),
            groups: self.groups.clone(),
            timelines: self.timelines.clone(),
            off: self.off.clone(),
            stamps: self.stamps.clone(),
            clock: self.clock,
            spread: self.spread,
            finest: self.finest,
            runner: SetRunner::default(),
            trial: PartRunner::default(),
            trial_ends: Vec::new(),
            taken: self.taken.clone(),
            hops: self.hops.clone(),
        }
    }
}

/// The minimum of `of` near `around`, on a logarithmic scale: seven coarse points, then golden
/// section about the best. `of` may return any value above its second argument if its true value is
/// above that: such a point loses every comparison and is not evaluated again.
pub(super) fn minimum(
    around: f64,
    within: f64,
    steps: usize,
    of: &mut dyn FnMut(f64, f64) -> f64,
) -> (f64, f64) {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let middle = around.ln();
    let mut best = (middle, of(around, f64::INFINITY));
    let mut look = |x: f64, best: &mut (f64, f64), enough: f64| {
        let value = of(x.exp(), enough);
        if value < best.1 {
            *best = (x, value);
        }
        value
    };
    let step = within / 3.0;
    for k in [-3.0, -2.0, -1.0, 1.0, 2.0, 3.0] {
        let enough = best.1;
        look(middle + k * step, &mut best, enough);
    }
    let (mut low, mut high) = (best.0 - step, best.0 + step);
    let (mut a, mut b) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let mut at_a = look(a, &mut best, f64::INFINITY);
    let mut at_b = look(b, &mut best, at_a);
    for _ in 0..steps {
        if at_a <= at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - GOLDEN * (high - low);
            at_a = look(a, &mut best, at_b);
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + GOLDEN * (high - low);
            at_b = look(b, &mut best, at_a);
        }
    }
    (best.0.exp(), best.1)
}
