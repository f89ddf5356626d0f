//! From when on other processes make a host busy.

use crate::{Case, Conditions, Unit};

/// Of a host of up to three CPUs: 7.5 ticks of 10 ms in the shortest window of half a second, whose
/// accounts are right to about two.
const LEAST_CPUS: f64 = 0.15;
/// Share of all CPUs: what it takes from a loop over all of them, or from the memory behind them.
const SHARE: f64 = 0.05;

/// The number of CPUs from which on what other processes use of `cpus` CPUs disturbs measurements.
pub fn busy_cpus(cpus: usize) -> f64 {
    LEAST_CPUS.max(SHARE * cpus as f64)
}

/// Minimum steal that disturbs, as a share of the CPU time that ran or should have run. A quiet
/// virtual machine with 32 busy CPUs lost 4.5 %.
const STOLEN: f64 = 0.05;
/// Minimum number of CPUs that count as stolen: on an idle host a tick is a large share.
const LEAST_STOLEN: f64 = 0.03;
/// Minimum steal in percent of all CPU time, idle included. A tick in a 200 ms reading of two CPUs
/// is 2.5.
const OLD_STEAL_PERCENT: f64 = 5.0;

/// What others took of the CPUs of a run; 0 if too little to disturb it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ForeignLoad {
    /// CPUs that other processes used.
    pub foreign: f64,
    /// Share of CPU time that the hypervisor stole, 0 to 1.
    pub stolen: f64,
}

impl ForeignLoad {
    /// Whether it is enough to disturb.
    pub fn is_busy(self) -> bool {
        self != Self::default()
    }
}

impl Conditions {
    /// A reading that is finite and not negative.
    pub fn reading(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied().filter(|value| value.is_finite() && *value >= 0.0)
    }

    /// What others took of the `cpus` that a run may use.
    pub fn foreign_load(&self, cpus: usize) -> ForeignLoad {
        let read = |name| self.reading(name);
        let over = |value: Option<f64>, from: f64| value.filter(|v| *v >= from).unwrap_or(0.0);
        let foreign = read("foreign_cpus");
        let stolen = match (read("stolen_cpus"), read("own_cpus"), foreign) {
            (Some(stolen), Some(own), Some(foreign)) => {
                let share = stolen / (stolen + own + foreign).max(f64::MIN_POSITIVE);
                over(Some(share).filter(|_| stolen >= LEAST_STOLEN), STOLEN)
            }
            _ => over(read("steal_percent"), OLD_STEAL_PERCENT) / 100.0,
        };
        ForeignLoad { foreign: over(foreign, busy_cpus(cpus)), stolen }
    }
}

impl Case {
    /// Whether bytes come from or go to host memory.
    pub fn is_through_host(&self) -> bool {
        let numa = |unit: Unit| unit.numa().is_some();
        self.flows().any(|flow| numa(flow.src.unit) || numa(flow.dst.unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twentieth_of_the_cpus_is_busy() {
        // 5 % of 2 is 0.1, less than 0.15; of 64 it is 3.2.
        assert_eq!(busy_cpus(2), 0.15);
        assert!((busy_cpus(64) - 3.2).abs() < 1e-9);
    }
}
