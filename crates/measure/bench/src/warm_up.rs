//! Warm-up: load for units that a process uses for the first time, then samples until a case
//! settles.

use std::collections::BTreeSet;

use pathline_schema::{Case, Flow, Ns, Unit};
use pathline_stats::settled;

/// Load of an engine or a team before its first counted sample in a process: clocks of GPUs and
/// frequency governors take some tens of milliseconds to rise.
const MIN_LOAD: Ns = Ns(50e6);
/// Load after which samples that still change are accepted.
const MAX_LOAD: Ns = Ns(400e6);
/// Minimum samples for a trend.
const TREND_SAMPLES: usize = 6;
/// Two consecutive samples that agree within this end the warm-up of a case whose units are warm.
const AGREEMENT: f64 = 0.01;

/// An engine of a GPU, or the threads of a NUMA domain.
type WarmUnit = (Unit, &'static str, u32);

/// The units that this process has warmed up.
#[derive(Debug, Default)]
pub(crate) struct WarmUnits(BTreeSet<WarmUnit>);

impl WarmUnits {
    /// Whether a case uses a unit that is not warmed up yet. Calls, files and messages load no unit
    /// long enough to change its clock.
    pub(crate) fn lacks(&self, case: &Case) -> bool {
        case.flows().any(|flow| warm_unit(flow).is_some_and(|unit| !self.0.contains(&unit)))
    }

    /// Records the units of a case as warmed up.
    pub(crate) fn add(&mut self, case: &Case) {
        self.0.extend(case.flows().filter_map(warm_unit));
    }
}

fn warm_unit(flow: &Flow) -> Option<WarmUnit> {
    let loads = flow.by.wire().is_none() && !flow.by.is_on_files() && flow.by.facts().moves_bytes;
    loads.then(|| (flow.by.at(), flow.by.kind(), flow.by.threads()))
}

/// Whether units that ran these samples back to back for `elapsed` are warm: after 50 ms as soon as
/// adjacent thirds of the samples agree, and after 400 ms in any case.
pub(crate) fn is_loaded(elapsed: Ns, samples: &[f64]) -> bool {
    elapsed >= MAX_LOAD
        || (elapsed >= MIN_LOAD && (samples.len() < TREND_SAMPLES || settled(samples)))
}

/// Whether the samples of a case have settled. If its units are `warm` and other cases of its class
/// have settled before it, two samples that agree are enough.
pub(crate) fn is_settled(samples: &[f64], warm: bool) -> bool {
    let agree = match samples {
        [.., a, b] => (a - b).abs() <= AGREEMENT * b.abs(),
        _ => false,
    };
    settled(samples) || (warm && agree)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of 0.5 ms whose excess of 10 % decays over 100 of them, which is 50 ms.
    fn falling(nth: usize) -> f64 {
        5e5 * (1.0 + 0.1 * (-(nth as f64) / 100.0).exp())
    }

    /// By `settled` alone the warm-up ended after 4 samples: of 5 %-steps of the decay, e^-0.04 of 10 %
    /// are left, which is 9.6 % too slow. With the least load the excess must have fallen until adjacent
    /// thirds differ by less than 1 %: at 400 samples (200 ms) they are e^-2.0 - e^-3.3 = 10 % of 10 %
    /// apart, and what is left then is e^-4.0 of 10 %, 0.18 %.
    #[test]
    fn a_clock_that_rises_slowly_is_waited_for() {
        let mut samples = Vec::new();
        let mut elapsed = Ns::ZERO;
        assert!(settled(&[falling(0), falling(1), falling(2), falling(3)]));
        while !is_loaded(elapsed, &samples) {
            let sample = falling(samples.len());
            elapsed = elapsed + Ns(sample);
            samples.push(sample);
        }
        let left = falling(samples.len()) / 5e5 - 1.0;
        assert!((150e6..300e6).contains(&elapsed.0), "{elapsed:?}");
        assert!(left < 0.004, "{left}");
    }

    /// 100 samples of 0.5 ms are the least; of 30 ms the second passes it, and shows no trend.
    #[test]
    fn a_flat_series_gets_the_least_load() {
        let flat = vec![5e5; 100];
        assert!(!is_loaded(Ns::ms(49.5), &flat[..99]));
        assert!(is_loaded(Ns::ms(50.0), &flat));
        assert!(is_loaded(Ns::ms(60.0), &[30e6, 29e6]));
        // Five samples that fall show no trend, six do.
        let falls = [16e6, 15e6, 14e6, 13e6, 12e6, 11e6];
        assert!(is_loaded(Ns::ms(81.0), &falls[..5]) && !is_loaded(Ns::ms(81.0), &falls));
        // 1 % a sample never settles: 400 ms end it.
        let rising: Vec<f64> = (0..40).map(|n| 1e7 * 1.01_f64.powi(n)).collect();
        assert!(!is_loaded(Ns::ms(399.0), &rising) && is_loaded(MAX_LOAD, &rising));
    }

    #[test]
    fn two_samples_suffice_where_units_are_warm() {
        assert!(is_settled(&[120.0, 100.9, 100.0], true));
        assert!(!is_settled(&[120.0, 101.1, 100.0], true), "1.1 % apart");
        assert!(!is_settled(&[100.0, 100.0], false));
        assert!(!is_settled(&[100.0], true));
    }

    #[test]
    fn each_engine_and_team_is_loaded_once() {
        let case = |text: &str| text.parse::<Case>().expect("a case");
        let mut units = WarmUnits::default();
        let copy = case("gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB");
        assert!(units.lacks(&copy));
        units.add(&copy);
        assert!(!units.lacks(&case("numa0.pinned > gpu0.vram by dma@gpu0 x 16B isolated")));
        assert!(units.lacks(&case("gpu0.vram > gpu1.vram by dma@gpu1 x 1MiB")));
        let threads = |n: u32| {
            case(&format!("numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t{n}] x 1MiB"))
        };
        units.add(&threads(1));
        assert!(!units.lacks(&threads(1)) && units.lacks(&threads(2)));
        assert!(!units.lacks(&case("gpu3.reg > gpu3.reg by call@gpu3[launch-sync] x 1B isolated")));
    }
}
