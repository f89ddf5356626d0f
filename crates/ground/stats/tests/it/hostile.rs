//! Intervals of series that no machine gives, and that a journal may hold all the same.

use fastrand::Rng;
use pathline_stats::{MedianInterval, median_interval, unsteady, visit_medians};

#[test]
fn fewer_than_six_visits_have_no_interval() {
    assert_eq!(median_interval(&[], &[]), None);
    assert_eq!(median_interval(&[5.0], &[1]), None);
    assert_eq!(median_interval(&[5.0; 5], &[]), None);
    assert_eq!(median_interval(&[5.0; 40], &[8; 5]), None);
    // A record without visits says nothing of them: each sample counts as one.
    assert!(median_interval(&[5.0; 6], &[]).is_some());
}

#[test]
fn what_is_no_number_has_no_interval() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut samples = vec![5.0; 20];
        samples[7] = bad;
        assert_eq!(median_interval(&samples, &[2; 10]), None);
        assert_eq!(unsteady(&samples, &[2; 10]), None);
    }
}

#[test]
fn visits_that_do_not_add_up_are_completed_or_cut() {
    let samples: Vec<f64> = (0..10).map(f64::from).collect();
    // Of 10 samples: 2 and 2 named, the other 6 alone.
    assert_eq!(visit_medians(&samples, &[2, 2])[..3], [0.5, 2.5, 4.0]);
    assert_eq!(visit_medians(&samples, &[2, 2]).len(), 8);
    // More than there are: the third visit has 2 of its 6, and the fourth none.
    assert_eq!(visit_medians(&samples, &[4, 0, 4, 6, 9]), [1.5, 5.5, 8.5]);
    assert_eq!(visit_medians(&samples, &[u32::MAX; 3]), [4.5]);
    assert_eq!(visit_medians(&samples, &[]), samples);
    assert_eq!(visit_medians(&[], &[3]), [0.0; 0]);
}

#[test]
fn six_visits_by_hand() {
    // Visits of 100 to 105: the median lies between the third and the fourth, the interval is their range.
    let samples: Vec<f64> =
        (0..12).map(|i| 100.0 + f64::from(i / 2) + f64::from(i % 2) * 0.1).collect();
    let i = median_interval(&samples, &[2; 6]).unwrap();
    assert!((i.median - 102.55).abs() < 1e-9 && (i.low - 100.05).abs() < 1e-9);
    assert!((i.high - 105.05).abs() < 1e-9 && (i.half_width_rel() - 2.5 / 102.55).abs() < 1e-9);
    // 1025.5 B in 102.55 ns are 10 GB/s; the ends change places.
    let rate = i.inverse(1025.5).unwrap();
    assert!((rate.median - 10.0).abs() < 1e-9 && (rate.low - 1025.5 / i.high).abs() < 1e-9);
    // Nine visits leave out the smallest and the largest: 2 (1 + 9) / 512 = 3.9 %.
    let nine: Vec<f64> = (1..=9).map(f64::from).collect();
    let i = median_interval(&nine, &[1; 9]).unwrap();
    assert_eq!((i.low, i.median, i.high), (2.0, 5.0, 8.0));
    let zero = median_interval(&[0.0; 12], &[2; 6]).unwrap();
    assert_eq!((zero.low, zero.high, zero.half_width_rel()), (0.0, 0.0, 0.0));
    assert_eq!(zero.inverse(1.0), None);
}

#[test]
fn the_longer_arm_is_the_half_width_and_a_sign_exchanges_the_ends() {
    for (low, high) in [(9.0, 13.0), (7.0, 11.0)] {
        let i = MedianInterval { median: 10.0, low, high };
        assert_eq!((i.half_width(), i.half_width_rel()), (3.0, 0.3));
        let negative = MedianInterval { median: -20.0, low: -2.0 * high, high: -2.0 * low };
        assert_eq!(i.scaled(-2.0), negative);
    }
}

#[test]
fn an_interval_reaches_half_a_step_of_the_clock_further() {
    // 12 samples of two values, 0.5 apart: ten repeat another. All visits are 100 or 100.25.
    let mut samples = vec![100.0; 12];
    samples[3] = 100.5;
    let i = median_interval(&samples, &[2; 6]).unwrap();
    assert_eq!((i.low, i.median, i.high), (99.75, 100.0, 100.5));
    // States 10 % apart are no steps of a clock.
    samples[3] = 110.0;
    let i = median_interval(&samples, &[2; 6]).unwrap();
    assert_eq!((i.low, i.high), (100.0, 105.0));
}

#[test]
fn a_million_samples_are_judged() {
    let mut rng = Rng::with_seed(1);
    let samples: Vec<f64> = (0..1_000_000).map(|_| 100.0 + rng.f64()).collect();
    for visits in [vec![], vec![2; 500_000], vec![1; 1_000_000]] {
        let i = median_interval(&samples, &visits).unwrap();
        assert!(i.low <= 100.5 && 100.5 <= i.high && i.half_width_rel() < 1e-4, "{i:?}");
        assert_eq!(unsteady(&samples, &visits), None);
    }
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
            assert!(visit_medians(&samples, &visits).len() < 6);
            continue;
        };
        assert!(i.low <= i.median && i.median <= i.high, "{i:?} {samples:?} {visits:?}");
        assert!(i.low.is_finite() && i.high.is_finite() && (signed || i.low >= 0.0), "{i:?}");
        assert!(i.half_width_rel().is_finite() && i.half_width_rel() >= 0.0, "{i:?}");
        if let Some(rate) = i.inverse(1.0) {
            assert!(rate.low <= rate.median && rate.median <= rate.high, "{rate:?}");
        }
        let _ = unsteady(&samples, &visits);
    }
}
