//! Intervals of series that no machine gives, and that a journal may hold all the same.

use fastrand::Rng;
use pathline_stats::{median_interval, visit_medians, wandering};

#[test]
fn fewer_than_six_samples_have_no_interval() {
    assert_eq!(median_interval(&[], &[]), None);
    assert_eq!(median_interval(&[5.0], &[1]), None);
    assert_eq!(median_interval(&[5.0; 5], &[5]), None);
    assert!(median_interval(&[5.0; 6], &[6]).is_some());
}

#[test]
fn what_is_no_number_has_no_interval() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut samples = vec![5.0; 20];
        samples[7] = bad;
        assert_eq!(median_interval(&samples, &[2; 10]), None);
        assert_eq!(wandering(&samples, &[2; 10], 0.01), None);
    }
}

#[test]
fn visits_that_do_not_add_up_are_completed_or_cut() {
    let samples: Vec<f64> = (0..10).map(f64::from).collect();
    // Of 10 samples: 2 and 2 named, then one of 4 and the 2 that are left.
    assert_eq!(visit_medians(&samples, &[2, 2]), [0.5, 2.5, 5.5, 8.5]);
    // More than there are: the third visit has 2 of its 6, and the fourth none.
    assert_eq!(visit_medians(&samples, &[4, 0, 4, 6, 9]), [1.5, 5.5, 8.5]);
    assert_eq!(visit_medians(&samples, &[u32::MAX; 3]), [4.5]);
    assert_eq!(visit_medians(&samples, &[]), [1.5, 5.5, 8.5]);
    assert_eq!(visit_medians(&[], &[3]), [0.0; 0]);
}

#[test]
fn one_visit_has_the_interval_of_independent_samples() {
    // Nothing is known of the next visit. Rank 1 of 8 (2 / 256 < 5 %): the extremes.
    let samples: Vec<f64> = (1..=8).map(f64::from).collect();
    let i = median_interval(&samples, &[8]).unwrap();
    assert_eq!((i.low, i.median, i.high), (1.0, 4.5, 8.0));
}

#[test]
fn six_visits_by_hand() {
    // Visits 100 to 105: mean 102.5, squares 2 (2.5^2 + 1.5^2 + 0.5^2) = 17.5, so the mean has the
    // deviation sqrt(17.5 / 5 / 6) = 0.7638; t of 5 is 2.571, times 1 + 1/6: 2.291 to both sides.
    // Ranks of 12 samples: 3 and 10, which are 101 and 104.
    let samples: Vec<f64> = (0..12).map(|i| 100.0 + f64::from(i / 2)).collect();
    let i = median_interval(&samples, &[2; 6]).unwrap();
    assert_eq!(i.median, 102.5);
    assert!((i.low - (102.5 - 2.291)).abs() < 1e-3 && (i.high - (102.5 + 2.291)).abs() < 1e-3);
    assert!((i.half_width_rel() - 2.291 / 102.5).abs() < 1e-5);
    // 1025 B in 102.5 ns are 10 GB/s; the ends change places.
    let rate = i.inverse(1025.0).unwrap();
    assert_eq!((rate.low, rate.median, rate.high), (1025.0 / i.high, 10.0, 1025.0 / i.low));
}

#[test]
fn two_unlike_visits_reach_no_farther_than_their_range_and_never_below_zero() {
    // t of 1 is 12.7: 300 +- 3812. The samples range over 400, so at most 900; no less than half of
    // the smallest.
    let samples = [100.0, 100.0, 100.0, 100.0, 500.0, 500.0, 500.0, 500.0];
    let i = median_interval(&samples, &[4, 4]).unwrap();
    assert_eq!((i.low, i.median, i.high), (50.0, 300.0, 900.0));
    let zero = median_interval(&[0.0; 12], &[2; 6]).unwrap();
    assert_eq!((zero.low, zero.high, zero.half_width_rel()), (0.0, 0.0, 0.0));
    assert_eq!(zero.inverse(1.0), None);
}

#[test]
fn a_million_samples_are_judged() {
    let mut rng = Rng::with_seed(1);
    let samples: Vec<f64> = (0..1_000_000).map(|_| 100.0 + rng.f64()).collect();
    for visits in [vec![], vec![2; 500_000], vec![1_000_000], vec![1; 1_000_000]] {
        let i = median_interval(&samples, &visits).unwrap();
        assert!(i.low <= 100.5 && 100.5 <= i.high && i.half_width_rel() < 1e-4, "{i:?}");
        assert_eq!(wandering(&samples, &visits, 1e-6), None);
    }
}

#[test]
fn a_slow_wave_is_found_and_a_steady_series_is_not_one() {
    // One wave of 3 % over 20 visits of 2.
    let wave = |i: usize| 100.0 + 1.5 * (i as f64 * std::f64::consts::TAU / 40.0).sin();
    let samples: Vec<f64> = (0..40).map(wave).collect();
    assert!(wandering(&samples, &[2; 20], 0.01).is_some_and(|w| w.correlation > 0.8));
    // The same wave is of no interest to one who asks for 5 %.
    assert_eq!(wandering(&samples, &[2; 20], 0.05), None);
    // In another order it is noise: 7 is coprime to 40.
    let mixed: Vec<f64> = (0..40).map(|i| wave(i * 7 % 40)).collect();
    assert_eq!(wandering(&mixed, &[2; 20], 0.01), None);
    assert_eq!(wandering(&[1.0; 40], &[2; 20], 0.0), None);
}

#[test]
fn any_series_has_an_ordered_interval_that_holds_its_median() {
    let mut rng = Rng::with_seed(2);
    for _ in 0..3000 {
        let n = rng.usize(0..60);
        // From 1e-300 to 1e308, zeros, ties, and negative differences in a third of the series.
        let signed = rng.u8(0..3) == 0;
        let scale = 10_f64.powi(rng.i32(-300..308));
        let draw = |rng: &mut Rng| {
            let x = match rng.u8(0..4) {
                0 => 0.0,
                1 => scale,
                2 => scale * rng.f64() * 1e-6,
                _ => scale * rng.f64(),
            };
            if signed && rng.bool() { -x } else { x }
        };
        let samples: Vec<f64> = (0..n).map(|_| draw(&mut rng)).collect();
        let visits: Vec<u32> = (0..rng.usize(0..20)).map(|_| rng.u32(0..9)).collect();
        let Some(i) = median_interval(&samples, &visits) else {
            assert!(n < 6);
            continue;
        };
        assert!(i.low <= i.median && i.median <= i.high, "{i:?} {samples:?} {visits:?}");
        assert!(i.low.is_finite() && i.high.is_finite() && (signed || i.low >= 0.0), "{i:?}");
        assert!(i.half_width_rel().is_finite() && i.half_width_rel() >= 0.0, "{i:?}");
        if let Some(rate) = i.inverse(1.0) {
            assert!(rate.low <= rate.median && rate.median <= rate.high, "{rate:?}");
        }
        let _ = wandering(&samples, &visits, 0.0);
    }
}
