//! From when on other processes make a host busy.

/// Of a host of up to three CPUs: 7.5 ticks of 10 ms in the shortest window of half a second, whose
/// accounts are right to about two.
const LEAST_CPUS: f64 = 0.15;
/// Share of all CPUs: what it takes from a loop over all of them, or from the memory behind them.
const SHARE: f64 = 0.05;

/// The number of CPUs from which on what other processes use of `cpus` CPUs disturbs measurements.
pub fn busy_cpus(cpus: usize) -> f64 {
    LEAST_CPUS.max(SHARE * cpus as f64)
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
