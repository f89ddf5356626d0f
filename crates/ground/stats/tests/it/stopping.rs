//! Whether the printed interval holds the truth when a case is visited as the engine visits it: six times,
//! at a random moment of each sixth of its budget.
//!
//! A process evolves in time; a sample takes 0.5 ms of it. Run with `--nocapture` to see the table;
//! `PATHLINE_TEST_TRIALS` sets the number of trials.

use fastrand::Rng;
use pathline_stats::{MIN_VISITS, VISIT_SAMPLES, median_interval, unsteady, visit_samples};

/// Trials of a row unless `PATHLINE_TEST_TRIALS` says another number: a rate of 95 % over them has a
/// standard deviation of 0.8 %.
const TRIALS: usize = 800;
/// Time of a sample.
const SAMPLE_MS: f64 = 0.5;
/// Time budget of a case: that of `pathline run`.
const BUDGET_MS: f64 = 250.0;
/// Precision and most samples of a visit, by the settings of `pathline run`.
const PRECISION: f64 = 0.01;
const MOST: u32 = 16;

/// Standard normal, by Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    let (u, v) = (1.0 - rng.f64(), rng.f64());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// What a machine would give at each step of [`SAMPLE_MS`], relative.
#[derive(Clone, Copy)]
enum Process {
    Normal(f64),
    LogNormal(f64),
    /// First order, with this correlation of neighbours and standard deviation.
    Wandering(f64, f64),
    /// 1 for 24 steps on average and 1.3 for 16: a state lasts 20, and 40 % are slow. The noise of
    /// either is 1 %.
    TwoStates,
    /// Rises by this share in the budget, with noise of 0.3 %.
    Drift(f64),
    /// 1.2 times as long for 30 % of the time, this often a second, from a random phase. The noise is 0.3 %.
    Periodic(f64),
}

impl Process {
    /// Its values, and the median of its long-run distribution. A drift has none: that of the time
    /// observed at most is taken.
    fn steps(self, rng: &mut Rng, n: usize) -> (Vec<f64>, f64) {
        match self {
            Self::Normal(cv) => ((0..n).map(|_| 1.0 + cv * normal(rng)).collect(), 1.0),
            Self::LogNormal(cv) => ((0..n).map(|_| (cv * normal(rng)).exp()).collect(), 1.0),
            Self::Wandering(r, cv) => {
                let mut z = normal(rng);
                let mut next = || {
                    z = r * z + (1.0 - r * r).sqrt() * normal(rng);
                    1.0 + cv * z
                };
                ((0..n).map(|_| next()).collect(), 1.0)
            }
            Self::TwoStates => {
                let mut slow = rng.f64() < 0.4;
                let mut next = || {
                    slow ^= rng.f64() < if slow { 1.0 / 16.0 } else { 1.0 / 24.0 };
                    (if slow { 1.3 } else { 1.0 }) * (1.0 + 0.01 * normal(rng))
                };
                // The quantile 0.5 / 0.6 = 0.833 of the fast state: 0.967 deviations above 1.
                ((0..n).map(|_| next()).collect(), 1.00967)
            }
            Self::Drift(all) => {
                let rise = |i: f64| 1.0 + all * i / n as f64;
                let step = |i| rise(i as f64) * (1.0 + 0.003 * normal(rng));
                ((0..n).map(step).collect(), rise(n as f64 / 2.0))
            }
            Self::Periodic(hz) => {
                let phase = rng.f64();
                let slow = |i: usize| (i as f64 * SAMPLE_MS * hz / 1e3 + phase).fract() < 0.3;
                let step = |i| (if slow(i) { 1.2 } else { 1.0 }) * (1.0 + 0.003 * normal(rng));
                // The quantile 0.5 / 0.7 = 0.714 of the fast state: 0.566 deviations above 1.
                ((0..n).map(step).collect(), 1.0017)
            }
        }
    }
}

/// What came of many trials.
struct Outcome {
    samples: f64,
    width: f64,
    covered: f64,
    marked: f64,
    /// Share of the trials whose interval misses the truth without a mark.
    missed: f64,
}

impl Outcome {
    fn of(process: Process, trials: usize) -> Self {
        let mut rng = Rng::with_seed(1);
        let stretch = (BUDGET_MS / SAMPLE_MS) as usize / MIN_VISITS;
        let (mut samples, mut width, mut covered, mut marked, mut missed) = (0, 0.0, 0, 0, 0);
        for _ in 0..trials {
            let (steps, truth) = process.steps(&mut rng, stretch * MIN_VISITS);
            let (mut taken, mut visits) = (Vec::new(), Vec::new());
            for steps in steps.chunks(stretch) {
                let visit = visit_samples(&taken, PRECISION, MOST);
                let from = rng.usize(..=stretch - visit as usize);
                taken.extend(&steps[from..from + visit as usize]);
                visits.push(visit);
            }
            let i = median_interval(&taken, &visits).unwrap();
            let holds = i.low <= truth && truth <= i.high;
            let mark = unsteady(&taken, &visits).is_some();
            samples += taken.len();
            width += i.half_width_rel();
            covered += usize::from(holds);
            marked += usize::from(mark);
            missed += usize::from(!holds && !mark);
        }
        let share = |count: usize| count as f64 / trials as f64;
        Self {
            samples: share(samples),
            width: width / trials as f64,
            covered: share(covered),
            marked: share(marked),
            missed: share(missed),
        }
    }
}

#[test]
fn the_printed_interval_holds_where_visits_are_spread_over_the_budget() {
    use Process::{Drift, LogNormal, Normal, Periodic, TwoStates, Wandering};
    let trials = std::env::var("PATHLINE_TEST_TRIALS").ok().and_then(|n| n.parse().ok());
    let trials: usize = trials.unwrap_or(TRIALS);
    // Missed without a mark in 8 % or less.
    let rows = [
        ("normal 0.2 %", Normal(0.002)),
        ("normal 1 %", Normal(0.01)),
        ("normal 3 %", Normal(0.03)),
        ("lognormal 10 %", LogNormal(0.1)),
        ("AR(1) 0.5, 2 %", Wandering(0.5, 0.02)),
        ("AR(1) 0.9, 2 %", Wandering(0.9, 0.02)),
        ("AR(1) 0.98, 2 %", Wandering(0.98, 0.02)),
        ("two states x 1.3", TwoStates),
        ("drift 2 %", Drift(0.02)),
        ("drift 10 %", Drift(0.1)),
        ("4 Hz", Periodic(4.0)),
        ("10 Hz", Periodic(10.0)),
        ("100 Hz", Periodic(100.0)),
    ];
    // Correlated over 100 ms: reported, and not promised.
    let beyond = [("AR(1) 0.995, 2 %", Wandering(0.995, 0.02))];
    println!("process              n   +- %  covered  marked  missed");
    for (nth, (name, process)) in rows.iter().chain(&beyond).enumerate() {
        let o = Outcome::of(*process, trials);
        println!(
            "{name:17} {:5.1} {:6.2} {:7.1}% {:6.1}% {:6.1}%",
            o.samples,
            100.0 * o.width,
            100.0 * o.covered,
            100.0 * o.marked,
            100.0 * o.missed
        );
        assert!(o.missed <= 0.08 || nth >= rows.len(), "{name}: {:.3} missed", o.missed);
        // Independent noise is not called anything else.
        assert!(nth >= 4 || o.marked < 0.03, "{name}: marked {:.4}", o.marked);
        assert!(nth != 0 || (o.samples - f64::from(VISIT_SAMPLES) * 6.0).abs() < 0.1, "{name}");
    }
}
