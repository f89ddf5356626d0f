//! Meeting points of threads. All of them spin for a moment, where a core is to spare, and then
//! let others run: on a machine with fewer cores than threads whoever is waited for needs the core.

use std::hint;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

/// Pauses before the core is offered to others: 20 to 70 us on x86-64.
const SPINS: u32 = 1000;

/// Waits for a condition that another running thread makes true.
pub fn wait_until(condition: impl Fn() -> bool) {
    let mut spins = 0;
    while !condition() {
        if spins < SPINS {
            spins += 1;
            hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// Sleeps until the word is no longer `value`, after `spins` looks at it.
pub fn sleep_while(word: &AtomicU32, value: u32, spins: u32) {
    for _ in 0..spins {
        if word.load(Ordering::Acquire) != value {
            return;
        }
        hint::spin_loop();
    }
    while word.load(Ordering::Acquire) == value {
        // An interrupted or outdated wait ends early; the loop looks again.
        let _ = futex::wait(word, futex::Flags::PRIVATE, value, None);
    }
}

/// Wakes everyone who sleeps on the word.
pub fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// Set in the number of arrivals when not all will come.
const CANCELLED: u32 = 1 << 31;

/// A line that threads start from together: the last to arrive lets all go.
#[derive(Debug)]
pub struct StartLine {
    expected: u32,
    arrived: AtomicU32,
}

impl StartLine {
    /// For `expected` threads.
    pub fn new(expected: u32) -> Self {
        Self { expected, arrived: AtomicU32::new(0) }
    }
    /// Waits for all. Whether they came.
    pub fn meet(&self) -> bool {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        wait_until(|| self.arrived.load(Ordering::Acquire) >= self.expected);
        self.arrived.load(Ordering::Acquire) & CANCELLED == 0
    }
    /// Lets all go who wait, since a thread that was expected could not be started.
    pub fn cancel(&self) {
        self.arrived.fetch_or(CANCELLED, Ordering::AcqRel);
    }
}

/// A barrier that can be used again and again.
#[derive(Debug)]
pub struct ThreadBarrier {
    threads: u32,
    arrived: AtomicU32,
    round: AtomicU32,
}

impl ThreadBarrier {
    /// For `threads` threads, each of which must come to every round.
    pub fn new(threads: u32) -> Self {
        Self { threads, arrived: AtomicU32::new(0), round: AtomicU32::new(0) }
    }
    /// Returns when all threads of this round have come.
    pub fn meet(&self) {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.fetch_add(1, Ordering::AcqRel);
        } else {
            wait_until(|| self.round.load(Ordering::Acquire) != round);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_start_holds_nobody() {
        // Two of three came; the third could not be started.
        let line = StartLine::new(3);
        std::thread::scope(|scope| {
            let threads = [scope.spawn(|| line.meet()), scope.spawn(|| line.meet())];
            line.cancel();
            assert!(threads.into_iter().all(|t| !t.join().unwrap()));
        });
        assert!(StartLine::new(1).meet());
    }

    #[test]
    fn nobody_leaves_a_round_before_all_have_come() {
        // More threads than this machine has cores, pinned together or not: it must end.
        let (threads, rounds) = (5, 200);
        let barrier = ThreadBarrier::new(threads);
        let line = StartLine::new(threads);
        let count = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    line.meet();
                    for round in 1..=rounds {
                        count.fetch_add(1, Ordering::Relaxed);
                        barrier.meet();
                        assert!(count.load(Ordering::Relaxed) >= round * threads);
                        barrier.meet();
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), threads * rounds);
    }
}
