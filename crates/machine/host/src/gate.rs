//! Synchronisation of threads. All waits spin briefly and then yield: with fewer cores than
//! threads, the thread waited for needs the core.

use std::hint;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

use crate::clock::ClockOrigin;

/// Spins before the thread yields its core: 20 to 70 us on x86-64.
const SPINS: u32 = 1000;

/// Waits for a condition that another running thread will make true.
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

/// Sleeps until the word differs from `value`, after polling it `spins` times.
pub fn sleep_while(word: &AtomicU32, value: u32, spins: u32) {
    for _ in 0..spins {
        if word.load(Ordering::Acquire) != value {
            return;
        }
        hint::spin_loop();
    }
    while word.load(Ordering::Acquire) == value {
        // An interrupted or outdated wait returns early; the loop polls again.
        let _ = futex::wait(word, futex::Flags::PRIVATE, value, None);
    }
}

/// Wakes all threads that sleep on the word.
pub fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// Set in the number of arrivals if some threads will not arrive.
const CANCELLED: u32 = 1 << 31;

/// Time for which a waiting thread yields its core before it sleeps, in ns. On an idle machine the other
/// threads arrive within about 100 us. With more threads than cores one yield lasts a time slice, and further
/// yields would delay the threads that have not arrived.
const YIELD_NS: u64 = 200_000;

/// A line that threads start from together: the last to arrive releases all.
#[derive(Debug)]
pub struct StartLine {
    expected: u32,
    arrived: AtomicU32,
    /// Threads that sleep here or are about to.
    sleepers: AtomicU32,
    /// Threads that have observed all arrivals.
    awake: AtomicU32,
}

impl StartLine {
    /// A line for `expected` threads.
    pub fn new(expected: u32) -> Self {
        let [arrived, sleepers, awake] = [(); 3].map(|()| AtomicU32::new(0));
        Self { expected, arrived, sleepers, awake }
    }

    /// Waits for all threads. Returns false if the line was cancelled.
    pub fn wait(&self) -> bool {
        if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 >= self.expected {
            self.wake_sleepers();
        } else if !self.wait_awake() {
            // Announced before the last read of `arrived`, and read after the last arrival: either
            // the last thread sees this sleeper, or this thread sees that all have arrived.
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            loop {
                let arrived = self.arrived.load(Ordering::SeqCst);
                if arrived >= self.expected {
                    break;
                }
                let _ = futex::wait(&self.arrived, futex::Flags::PRIVATE, arrived, None);
            }
        }
        // A sleeper wakes tens of us late, so no thread starts before all are awake.
        self.awake.fetch_add(1, Ordering::AcqRel);
        wait_until(|| self.is_cancelled() || self.awake.load(Ordering::Acquire) >= self.expected);
        !self.is_cancelled()
    }

    /// Spins and yields for a limited time. Returns whether all have arrived.
    fn wait_awake(&self) -> bool {
        let all = || self.arrived.load(Ordering::Acquire) >= self.expected;
        for _ in 0..SPINS {
            if all() {
                return true;
            }
            hint::spin_loop();
        }
        let begun = ClockOrigin::now();
        while !all() && begun.ns() < YIELD_NS {
            std::thread::yield_now();
        }
        all()
    }

    fn wake_sleepers(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            wake(&self.arrived);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.arrived.load(Ordering::Acquire) & CANCELLED != 0
    }

    /// Releases all waiting threads, since an expected thread could not be started.
    pub fn cancel(&self) {
        self.arrived.fetch_or(CANCELLED, Ordering::SeqCst);
        self.wake_sleepers();
    }
}

/// A reusable barrier.
#[derive(Debug)]
pub struct ThreadBarrier {
    threads: u32,
    arrived: AtomicU32,
    round: AtomicU32,
}

impl ThreadBarrier {
    /// A barrier for `threads` threads, all of which must arrive in every round.
    pub fn new(threads: u32) -> Self {
        Self { threads, arrived: AtomicU32::new(0), round: AtomicU32::new(0) }
    }
    /// Returns when all threads of this round have arrived.
    pub fn wait(&self) {
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
        // Two of three arrived; the third could not be started.
        let line = StartLine::new(3);
        std::thread::scope(|scope| {
            let threads = [scope.spawn(|| line.wait()), scope.spawn(|| line.wait())];
            line.cancel();
            assert!(threads.into_iter().all(|t| !t.join().unwrap()));
        });
        assert!(StartLine::new(1).wait());
    }

    #[test]
    fn a_thread_that_waits_long_sleeps_and_is_woken() {
        let line = StartLine::new(2);
        std::thread::scope(|scope| {
            let early = scope.spawn(|| {
                let come = line.wait();
                (come, crate::cpus::cpu_times())
            });
            // 100 ms after 200 us of yields: a thread that only yielded would use most of them, if
            // it got a CPU at all.
            while line.sleepers.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            crate::clock::pause(std::time::Duration::from_millis(100));
            assert!(line.wait());
            let (come, (user, system)) = early.join().unwrap();
            assert!(come);
            assert!(user + system < 50e6, "{user} ns + {system} ns of CPU time");
        });
        // A cancel also wakes a sleeping thread.
        let line = StartLine::new(2);
        std::thread::scope(|scope| {
            let early = scope.spawn(|| line.wait());
            while line.sleepers.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            line.cancel();
            assert!(!early.join().unwrap());
        });
    }

    #[test]
    fn nobody_leaves_a_round_before_all_have_come() {
        // More threads than this machine has cores, pinned together or not: the test must end.
        let (threads, rounds) = (5, 200);
        let barrier = ThreadBarrier::new(threads);
        let line = StartLine::new(threads);
        let count = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    line.wait();
                    for round in 1..=rounds {
                        count.fetch_add(1, Ordering::Relaxed);
                        barrier.wait();
                        assert!(count.load(Ordering::Relaxed) >= round * threads);
                        barrier.wait();
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), threads * rounds);
    }
}
