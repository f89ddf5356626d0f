//! Evidence on whether a path is slow now and then, over rounds and processes.

/// Share of rounds at most in which a healthy path is late.
pub(crate) const LATE_SHARE: f64 = 0.03;
/// A path that comes and goes is slow in at least this share of the rounds of a bad process,
const SLOW_ROUNDS: f64 = 0.2;
/// and at least this share of processes is bad.
const BAD_PROCESSES: f64 = 0.8;
/// Evidence for a steady path is 20:1, from at least this many processes.
const STEADY_LEVEL: f64 = 0.05;
const LEAST_PROCESSES: usize = 3;
/// Evidence against a steady path is 500:1.
const UNSTEADY_LEVEL: f64 = 0.002;

/// Evidence that a path is steady: an e-process over processes, each with its rounds.
///
/// Each process multiplies it by the probability of its rounds if the path is healthy, over the greatest
/// one if it comes and goes. Healthy: a round is slow with a probability of 3 %, but for a share of
/// processes in which most rounds or half of them are. Coming and going: at least 80 % of processes are bad,
/// and at least 20 % of their rounds slow. So the evidence reaches 20 with a probability of 5 % at most on a
/// path that comes and goes, whenever one stops (Ville).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct SteadyEvidence {
    ln: f64,
    /// Rounds in which the path was slow, and all rounds.
    pub(crate) rounds: (usize, usize),
    processes: usize,
}

impl SteadyEvidence {
    /// Adds a process: its slow rounds of all, and the share of processes in which a healthy path is slow.
    pub(crate) fn add_process(&mut self, slow: usize, rounds: usize, state_share: f64) {
        let (slow_rounds, others) = (slow as f64, rounds.saturating_sub(slow) as f64);
        let all = (slow_rounds + others).max(1.0);
        let sequence = |share: f64| slow_rounds * share.ln() + others * (1.0 - share).ln();
        // Relative to the likeliest share, so that many rounds stay within the range of a number.
        let likeliest = sequence((slow_rounds / all).clamp(1e-9, 1.0 - 1e-9));
        let of = |share: f64| (sequence(share) - likeliest).exp();
        let late = of(LATE_SHARE);
        let state = 0.9 * of(0.99) + 0.1 * of(0.5);
        let healthy = (1.0 - state_share) * late + state_share * state;
        let bad = of((slow_rounds / all).clamp(SLOW_ROUNDS, 1.0 - 1e-9));
        self.ln += (healthy / (BAD_PROCESSES * bad + (1.0 - BAD_PROCESSES) * late)).max(1e-9).ln();
        self.rounds = (self.rounds.0 + slow, self.rounds.1 + rounds);
        self.processes += 1;
    }

    /// Whether a path that comes and goes is ruled out.
    pub(crate) fn is_steady(&self) -> bool {
        self.processes >= LEAST_PROCESSES && self.ln >= -STEADY_LEVEL.ln()
    }

    /// Whether the path comes and goes by far more probably than a healthy one does.
    pub(crate) fn is_unsteady(&self) -> bool {
        self.ln <= UNSTEADY_LEVEL.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(processes: &[(usize, usize)], state_share: f64) -> SteadyEvidence {
        let mut evidence = SteadyEvidence::default();
        for &(slow, rounds) in processes {
            evidence.add_process(slow, rounds, state_share);
        }
        evidence
    }

    #[test]
    fn three_processes_of_ten_rounds_are_steady_and_two_of_any_number_are_not() {
        // 0.95 x 0.97^10 = 0.7006 over 0.8 x 0.8^10 + 0.2 x 0.97^10 = 0.2334: 3.00, and 3.00^3 = 27.
        assert!((evidence(&[(0, 10)], 0.05).ln - 3.0_f64.ln()).abs() < 0.01);
        assert!(evidence(&[(0, 10); 3], 0.05).is_steady());
        assert!(!evidence(&[(0, 8); 3], 0.05).is_steady(), "2.6^3 = 18");
        // 0.996 / 0.2 = 4.98 at most, and its square is 24.8: enough evidence, but of two processes.
        assert!(!evidence(&[(0, 5000); 2], 0.004).is_steady());
    }

    #[test]
    fn slow_rounds_and_slow_processes_are_no_steady_path() {
        // A fifth of the rounds, at once or spread; one process in a slow state is forgiven after four.
        for processes in [[(0, 10), (6, 10), (0, 10)], [(2, 10), (2, 10), (2, 10)]] {
            assert!(!evidence(&processes, 0.05).is_steady(), "{processes:?}");
        }
        assert!(evidence(&[(6, 10), (0, 10), (0, 10)], 0.004).ln < 0.0);
        let after = |fine: usize| {
            let processes: Vec<_> = [(10, 10)].into_iter().chain(vec![(0, 24); fine]).collect();
            evidence(&processes, 0.05)
        };
        // 0.05 x 0.9 x 0.99^10 / 0.8 = 0.051; a fine process is 0.95 x 0.4814 / (0.0963 + 0.0038) = 4.57.
        assert!(!after(3).is_steady() && after(4).is_steady(), "4.9 and 22");
        assert!(evidence(&[(10, 10); 3], 0.05).is_unsteady(), "0.051^3 = 1e-4");
        assert!(!evidence(&[(10, 10), (10, 10)], 0.05).is_unsteady(), "0.051^2 = 0.0026");
    }

    /// A path that comes and goes is taken for steady in 5 % of series at most.
    #[test]
    fn unsteady_paths_pass_as_rarely_as_is_said() {
        let mut random = fastrand::Rng::with_seed(5);
        for (bad, slow) in [(0.8, 0.2), (1.0, 0.2), (0.8, 1.0), (0.9, 0.5)] {
            let (series, mut passed) = (20_000, 0);
            for _ in 0..series {
                let mut evidence = SteadyEvidence::default();
                for _ in 0..10 {
                    let share = if random.f64() < bad { slow } else { LATE_SHARE };
                    let late = (0..12).filter(|_| random.f64() < share).count();
                    evidence.add_process(late, 12, 0.05);
                    if evidence.is_steady() {
                        passed += 1;
                        break;
                    }
                }
            }
            assert!(passed * 20 <= series, "{bad} {slow}: {passed} of {series}");
        }
    }

    /// Slow rounds of all, share of bad processes of a healthy path, logarithm of the evidence, which is bounded
    /// by ln 1e-9 = -20.72.
    #[test]
    fn each_process_multiplies_by_its_likelihoods() {
        for (slow, rounds, share, ln) in [
            (0, 10, 0.05, 1.099191),
            (1, 12, 0.01, 0.163754),
            (3, 9, 0.2, -3.821457),
            (5, 10, 0.05, -5.071127),
            (10, 10, 0.05, -2.978333),
            (9, 10, 0.0, -20.723266),
            (40, 40, 0.0, -20.723266),
            (0, 0, 0.05, 0.000000),
        ] {
            let found = evidence(&[(slow, rounds)], share);
            assert!((found.ln - ln).abs() < 2e-6, "{slow} of {rounds}: {}", found.ln);
            assert_eq!((found.rounds, found.processes), ((slow, rounds), 1));
            let twice = evidence(&[(slow, rounds), (slow, rounds)], share);
            assert!((twice.ln - 2.0 * ln).abs() < 4e-6);
            // 1 / 500 is ln -6.21.
            assert_eq!(
                (found.is_unsteady(), twice.is_steady()),
                (ln < -6.21, false),
                "{slow} of {rounds}"
            );
        }
    }
}
