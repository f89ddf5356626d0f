//! Waiting for another process: it looks, offers its core to others when that takes long, looks
//! after the other's health when it takes very long, and ends.

use std::hint;
use std::time::Duration;

use pathline_hal::CallResult;

use pathline_host::clock::ClockOrigin;
use pathline_host::cpus;

/// Looks with a pause between them before the core is offered to others: 20 to 70 us on x86-64.
const SPINS: u32 = 1000;
/// The same where processes outnumber cores: who is waited for probably needs this one.
const CROWDED_SPINS: u32 = 20;
/// When it is first looked whether the other lives, in ns, and how often from then on: reading
/// `/proc` costs some 20 us, which is 0.1 % of this.
const WORRY: u64 = 20_000_000;

/// How a process waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpinWait {
    spins: u32,
    most: Duration,
}

impl SpinWait {
    /// Waits at most `most`, among so many processes that wait for each other.
    pub(super) fn new(most: Duration, processes: u32) -> Self {
        let spins = if crowded(processes) { CROWDED_SPINS } else { SPINS };
        Self { spins, most }
    }

    /// The longest wait.
    pub(super) fn most(&self) -> Duration {
        self.most
    }

    /// Waits until `done`. After a while `worry` is asked again and again; what it returns ends the
    /// wait. Its argument tells that the time is over: it then has to return an error.
    pub(super) fn until(
        &self,
        mut done: impl FnMut() -> bool,
        mut worry: impl FnMut(bool) -> CallResult<()>,
    ) -> CallResult<()> {
        for _ in 0..self.spins {
            if done() {
                return Ok(());
            }
            hint::spin_loop();
        }
        let begun = ClockOrigin::now();
        let most = u64::try_from(self.most.as_nanos()).unwrap_or(u64::MAX);
        let mut next = WORRY.min(most);
        while !done() {
            std::thread::yield_now();
            let waited = begun.ns();
            if waited >= next {
                // The other may have done its part and ended since the look above.
                if done() {
                    return Ok(());
                }
                worry(waited >= most)?;
                next = waited + WORRY.min(most - waited.min(most));
            }
        }
        Ok(())
    }
}

/// Whether so many processes share fewer cores, as far as one can see from here. A process that may
/// use one core alone has probably been bound to it as the others to theirs.
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
    fn a_wait_for_nothing_ends_when_its_time_is_over() {
        let patience = SpinWait { spins: 3, most: Duration::from_millis(50) };
        let begun = ClockOrigin::now();
        let (mut looks, mut worries) = (0, 0);
        let ended = patience.until(
            || {
                looks += 1;
                false
            },
            |over| {
                worries += 1;
                if over { Err(late()) } else { Ok(()) }
            },
        );
        assert_eq!(ended, Err(late()));
        // Worries at 20, 40 and 50 ms, fewer if the machine is busy, and one that ends it.
        assert!(begun.ns() >= 50_000_000 && (1..=3).contains(&worries), "{worries}");
        assert!(looks > 3);
    }

    #[test]
    fn a_worry_ends_a_wait_early_and_what_is_done_ends_it_well() {
        let patience = SpinWait { spins: 1, most: Duration::from_secs(60) };
        let begun = ClockOrigin::now();
        assert_eq!(patience.until(|| false, |_| Err(late())), Err(late()));
        let took = begun.ns();
        assert!((20_000_000..30_000_000_000).contains(&took), "{took}");
        let mut left = 5;
        let done = || {
            left -= 1;
            left == 0
        };
        assert_eq!(patience.until(done, |_| Err(late())), Ok(()));
    }
}
