//! Whether the intervals hold what they promise: seeded simulation with known truths.
//!
//! Each assertion states the coverage or error rate that was obtained; run with `--nocapture` to
//! see them all. A rate over 2000 trials has a standard deviation of sqrt(0.05 * 0.95 / 2000) =
//! 0.5 %, so the bounds leave about three of them.

use fastrand::Rng;
use pathline_stats::{
    FalseDiscovery, RunComparison, RunEstimate, RunNoise, median_interval, modes, settled,
};

const TRIALS: usize = 2000;

/// Standard normal, by Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    let (u, v) = (1.0 - rng.f64(), rng.f64());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// What timings look like: 1 % noise, skewed to the right, and one in twenty late by 10 to 60 %.
/// All late ones lie above the rest's bulk, so the median of the whole is the quantile 0.5 / 0.95
/// of the undisturbed part: exp(0.01 * 0.06602) = 1.00066 of its median.
const TIMING_MEDIAN: f64 = 100.066;
fn timing(rng: &mut Rng) -> f64 {
    let base = 100.0 * (0.01 * normal(rng)).exp();
    if rng.f64() < 0.05 { base * (1.1 + 0.5 * rng.f64()) } else { base }
}

fn series(rng: &mut Rng, n: usize, draw: impl Fn(&mut Rng) -> f64) -> Vec<f64> {
    (0..n).map(|_| draw(rng)).collect()
}

/// Share of trials in which `holds`.
fn share(seed: u64, mut holds: impl FnMut(&mut Rng) -> bool) -> f64 {
    let mut rng = Rng::with_seed(seed);
    (0..TRIALS).filter(|_| holds(&mut rng)).count() as f64 / TRIALS as f64
}

#[test]
fn the_interval_of_the_median_holds_it() {
    // What ranks allow: n = 6: 1 - 2/64 = 96.9 %; n = 20: rank 6, 95.9 %; n = 100: rank 40, 96.5 %.
    for (n, ranks) in [(6, 0.969), (20, 0.959), (100, 0.965)] {
        let holds = |samples: &[f64], truth: f64| {
            let i = median_interval(samples, &[]).unwrap();
            i.low <= truth && truth <= i.high
        };
        let normal = share(1, |rng| holds(&series(rng, n, |r| 50.0 + normal(r)), 50.0));
        let skewed = share(2, |rng| holds(&series(rng, n, timing), TIMING_MEDIAN));
        println!("n = {n}: normal {normal:.3}, timings {skewed:.3}, by the ranks alone {ranks}");
        assert!(normal > ranks - 0.015 && skewed > ranks - 0.015, "{normal} {skewed}");
    }
}

#[test]
fn two_modes_are_found_and_not_invented() {
    for n in [12, 20, 50, 200] {
        let false_normal = share(7, |rng| modes(&series(rng, n, |r| 10.0 + normal(r))).is_some());
        let false_uniform = share(8, |rng| modes(&series(rng, n, |r| 1.0 + r.f64())).is_some());
        let false_skewed =
            share(9, |rng| modes(&series(rng, n, |r| 1.0 - (1.0 - r.f64()).ln())).is_some());
        let false_timing = share(10, |rng| modes(&series(rng, n, timing)).is_some());
        // Two states 1.7 apart, a third of the samples in the slow one, 3 % noise.
        let found = share(11, |rng| {
            let draw = |r: &mut Rng| {
                let state = if r.f64() < 0.33 { 1.7 } else { 1.0 };
                state * (1.0 + 0.03 * normal(r))
            };
            modes(&series(rng, n, draw)).is_some()
        });
        println!(
            "n = {n}: invented in normal {false_normal:.4}, uniform {false_uniform:.4}, \
             exponential {false_skewed:.4}, timings {false_timing:.4}; found {found:.3}"
        );
        assert!(false_normal <= 0.004 && false_uniform <= 0.01, "{false_normal} {false_uniform}");
        assert!(false_skewed <= 0.01 && false_timing <= 0.004, "{false_skewed} {false_timing}");
        // Of 12 samples, a third in the slow state leaves fewer than 4 there in 4 trials of 10.
        assert!(found > if n == 12 { 0.55 } else { 0.9 }, "{found}");
    }
}

#[test]
fn warm_up_ends_soon_on_a_steady_machine_and_not_before_a_slow_one_is_warm() {
    let mut rng = Rng::with_seed(14);
    let (mut samples_used, mut early) = (0, 0);
    for _ in 0..TRIALS {
        let mut steady = Vec::new();
        while !settled(&steady) && steady.len() < 100 {
            steady.push(timing(&mut rng));
        }
        samples_used += steady.len();
        // Clocks that rise over 30 samples: time falls from 200 to 100 with a constant of 8.
        let mut falling = Vec::new();
        while !settled(&falling) && falling.len() < 100 {
            let excess = (-(falling.len() as f64) / 8.0).exp();
            falling.push(timing(&mut rng) * (1.0 + excess));
        }
        early += usize::from((-(falling.len() as f64) / 8.0).exp() > 0.10);
    }
    let mean = samples_used as f64 / TRIALS as f64;
    let early = early as f64 / TRIALS as f64;
    println!("steady: settled after {mean:.1}; falling: still 10 % above the end {early:.3}");
    assert!(mean < 7.0 && early < 0.05, "{mean} {early}");
}

#[test]
fn comparisons_hold_the_true_effect_and_seldom_err() {
    let still = RunNoise { deviation: 0.0, freedom: 12.0 };
    let run = |samples: &[f64]| vec![RunEstimate::of(samples, &[]).unwrap()];
    for n in [8, 12, 32, 100] {
        let noisy = |r: &mut Rng| 100.0 * (0.02 * normal(r)).exp();
        let mut wrong = 0;
        let held = share(15, |rng| {
            let (a, b) = (series(rng, n, noisy), series(rng, n, |r| 1.03 * noisy(r)));
            let found = RunComparison::of(&run(&a), &run(&b), still, 0.01).unwrap();
            wrong += usize::from(found.effect < 1.0 && found.p_value < 0.05);
            found.low <= 1.03 && 1.03 <= found.high
        });
        let invented = share(16, |rng| {
            let (a, b) = (series(rng, n, noisy), series(rng, n, noisy));
            RunComparison::of(&run(&a), &run(&b), still, 0.0).unwrap().p_value < 0.05
        });
        println!("n = {n}: holds 1.03 {held:.3}; difference invented {invented:.3}");
        assert!(held > 0.93 && invented < 0.07 && wrong <= 2, "{held} {invented} {wrong}");
    }
}

/// The logarithms of `n` runs of one case of a machine whose processes differ by 1 %, each with the
/// interval of a precise run.
fn runs(rng: &mut Rng, n: usize, shift: f64) -> Vec<RunEstimate> {
    let run = |rng: &mut Rng| RunEstimate {
        log_median: shift + 0.01 * normal(rng),
        error: 2e-4,
        freedom: 5.0,
        samples: 24,
        visits: 6,
    };
    (0..n).map(|_| run(rng)).collect()
}

#[test]
fn processes_that_differ_are_not_taken_for_changes() {
    // 300 cases a session, none changed; then a tenth of them 6 % slower. Tolerance 0.
    let learnt = RunNoise { deviation: 0.01, freedom: 4.0 };
    for n in [1, 3, 5] {
        let (mut invented, mut found, mut false_ones) = (0, 0, 0);
        let mut rng = Rng::with_seed(17);
        for session in 0..40 {
            let shift = |case: usize| if session % 2 == 1 && case < 30 { 0.06 } else { 0.0 };
            let p: Vec<f64> = (0..300)
                .map(|case| {
                    let (a, b) = (runs(&mut rng, n, 0.0), runs(&mut rng, n, shift(case)));
                    RunComparison::of(&a, &b, learnt, 0.0).unwrap().p_value
                })
                .collect();
            let judged = FalseDiscovery::control(&p, 0.05);
            let hits = p.iter().take(30).filter(|p| judged.holds(**p)).count();
            if session % 2 == 0 {
                invented += usize::from(judged.found > 0);
            } else {
                found += hits;
                false_ones += judged.found - hits;
            }
        }
        let (power, false_share) =
            (found as f64 / 600.0, false_ones as f64 / (found + false_ones).max(1) as f64);
        println!(
            "{n} runs a side: {invented} of 20 sessions invent a change; 6 % found {power:.3}, false \
             among the found {false_share:.3}"
        );
        assert!(invented <= 3 && false_share < 0.08, "{invented} {false_share}");
        assert!(n < 3 || power > 0.95 - 0.15 * f64::from(u8::from(n == 3)), "{power}");
    }
}

#[test]
fn samples_that_wander_widen_the_comparison() {
    // First-order process, r = 0.5, 2 % noise, 40 samples: visits of 4 resemble each other less.
    let still = RunNoise { deviation: 0.0, freedom: 12.0 };
    let wander = |rng: &mut Rng| {
        let mut x = 0.02 * normal(rng);
        let draw = |_| {
            x = 0.5 * x + 0.02 * (1.0_f64 - 0.25).sqrt() * normal(rng);
            100.0 * x.exp()
        };
        vec![RunEstimate::of(&(0..40).map(draw).collect::<Vec<f64>>(), &[]).unwrap()]
    };
    let invented = share(18, |rng| {
        let (a, b) = (wander(rng), wander(rng));
        RunComparison::of(&a, &b, still, 0.0).unwrap().p_value < 0.05
    });
    println!("r = 0.5: difference invented {invented:.3}");
    assert!(invented < 0.12, "{invented}");
}
