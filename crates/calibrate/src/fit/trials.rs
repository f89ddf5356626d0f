//! Trials of models: sums of losses of sets, along a capacity and on several threads.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{GroupFitter, deviation, loss};
use crate::model::{PartRunner, SLACK, SetRunner, last_end};

/// The loss of a set that does not fill a resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct FreeLoss {
    /// The highest load that it makes, GB/s.
    load: f64,
    loss: f64,
}

impl Default for FreeLoss {
    /// Of an unknown load.
    fn default() -> Self {
        Self { load: f64::INFINITY, loss: 0.0 }
    }
}

impl FreeLoss {
    fn holds(&self, capacity: f64) -> bool {
        self.load.is_finite() && self.load * SLACK < capacity
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
    pub(super) fn try_capacity(
        &mut self,
        at: usize,
        sets: &[usize],
        free: &mut [FreeLoss],
        enough: f64,
    ) -> f64 {
        let capacity = self.model.shared[at].capacity;
        let known = free.iter().filter(|free| free.holds(capacity));
        let mut sum: f64 = known.map(|free| free.loss).sum();
        self.trial.load(&self.model);
        for (&s, free) in sets.iter().zip(free).filter(|(_, free)| !free.holds(capacity)) {
            if sum > enough {
                break;
            }
            self.try_set(s);
            let loss = loss(deviation(self.data, s, &self.trial_ends), self.spread);
            sum += loss;
            let now = FreeLoss { load: self.trial.load_on(at), loss };
            if now.holds(capacity) {
                *free = now;
            }
        }
        sum
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
