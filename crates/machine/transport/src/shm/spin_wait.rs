//! Waits for another process: it spins, then yields its core, later checks that the other process
//! is alive, and ends on timeout.

use std::hint;
use std::time::Duration;

use pathline_hal::CallResult;

use pathline_host::clock::ClockOrigin;
use pathline_host::cpus;

/// Polls with a pause between them before the core is yielded: 20 to 70 us on x86-64.
const SPINS: u32 = 1000;
/// The same where processes outnumber cores: the peer probably needs this core.
const CROWDED_SPINS: u32 = 20;
/// Interval in ns of health checks of the peer, and delay of the first: reading `/proc` costs some
/// 20 us, which is 0.1 % of this.
const CHECK_INTERVAL: u64 = 20_000_000;

/// The parameters of a wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpinWait {
    spins: u32,
    most: Duration,
}

impl SpinWait {
    /// Waits at most `most`, among `processes` that wait for each other.
    pub(super) fn new(most: Duration, processes: u32) -> Self {
        let spins = if crowded(processes) { CROWDED_SPINS } else { SPINS };
        Self { spins, most }
    }

    /// The timeout.
    pub(super) fn most(&self) -> Duration {
        self.most
    }

    /// Waits until `done`. From time to time it calls `check`, whose error ends the wait. The
    /// argument of `check` is true on timeout: it must then return an error.
    pub(super) fn until(
        &self,
        mut done: impl FnMut() -> bool,
        mut check: impl FnMut(bool) -> CallResult<()>,
    ) -> CallResult<()> {
        for _ in 0..self.spins {
            if done() {
                return Ok(());
            }
            hint::spin_loop();
        }
        let begun = ClockOrigin::now();
        let most = u64::try_from(self.most.as_nanos()).unwrap_or(u64::MAX);
        let mut next = CHECK_INTERVAL.min(most);
        while !done() {
            std::thread::yield_now();
            let waited = begun.ns();
            if waited >= next {
                // The peer may have done its part and ended since the check above.
                if done() {
                    return Ok(());
                }
                check(waited >= most)?;
                next = waited + CHECK_INTERVAL.min(most - waited.min(most));
            }
        }
        Ok(())
    }
}

/// Whether `processes` outnumber the cores, as far as this process can see. A process that may use
/// one core only is probably bound to it, as the others are to theirs.
fn crowded(processes: u32) -> bool {
    let allowed = cpus::allowed().map_or(0, |cpus| cpus.len());
    let online = std::thread::available_parallelism().map_or(1, usize::from).max(allowed);
    allowed != 1 && online < processes as usize
}

#[cfg(test)]
mod tests {
    use pathline_hal::CallError;

    use super::*;

    fn late() -> CallError {
        CallError::unsupported("wait", "a test", "late")
    }

    #[test]
    fn a_wait_for_nothing_ends_on_timeout() {
        let wait = SpinWait { spins: 3, most: Duration::from_millis(50) };
        let begun = ClockOrigin::now();
        let (mut looks, mut checks) = (0, 0);
        let ended = wait.until(
            || {
                looks += 1;
                false
            },
            |over| {
                checks += 1;
                if over { Err(late()) } else { Ok(()) }
            },
        );
        assert_eq!(ended, Err(late()));
        // Checks at 20, 40 and 50 ms, fewer on a busy machine, and one that ends the wait.
        assert!(begun.ns() >= 50_000_000 && (1..=3).contains(&checks), "{checks}");
        assert!(looks > 3);
    }

    #[test]
    fn a_failed_check_ends_a_wait_early() {
        let wait = SpinWait { spins: 1, most: Duration::from_secs(60) };
        let begun = ClockOrigin::now();
        assert_eq!(wait.until(|| false, |_| Err(late())), Err(late()));
        let took = begun.ns();
        assert!((20_000_000..30_000_000_000).contains(&took), "{took}");
        let mut left = 5;
        let done = || {
            left -= 1;
            left == 0
        };
        assert_eq!(wait.until(done, |_| Err(late())), Ok(()));
    }
}
