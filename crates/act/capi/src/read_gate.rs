//! How many threads read a device at once: what it carries most with, found while it is read.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pathline_host::clock::ClockOrigin;
use pathline_schema::Ns;

/// Bytes by which one number of readers is judged.
const WINDOW: u64 = 64 << 20;
/// More readers stay if they read by this factor faster.
const MIN_GAIN: f64 = 1.05;

#[derive(Debug)]
struct GateState {
    /// Most readers.
    limit: usize,
    reading: usize,
    /// Offsets that wait: the first is read next, so that the device is read in order.
    waiting: BTreeSet<u64>,
    /// Bytes since `begun`.
    bytes: u64,
    /// Time of the gate when they began.
    begun: Ns,
    /// GB/s with half as many readers.
    before: f64,
    is_settled: bool,
}

/// Lets readers of one file go on.
#[derive(Debug)]
pub(crate) struct ReadGate {
    state: Mutex<GateState>,
    freed: Condvar,
    origin: ClockOrigin,
}

impl Default for ReadGate {
    fn default() -> Self {
        let state = GateState {
            limit: 1,
            reading: 0,
            waiting: BTreeSet::new(),
            bytes: 0,
            begun: Ns::ZERO,
            before: 0.0,
            is_settled: false,
        };
        Self { state: Mutex::new(state), freed: Condvar::new(), origin: ClockOrigin::now() }
    }
}

impl ReadGate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads at an offset when it is its turn. `read` returns the bytes that it has read.
    pub(crate) fn pass(&self, offset: u64, read: impl FnOnce() -> Option<u64>) -> bool {
        let mut state = self.lock();
        state.waiting.insert(offset);
        while state.reading >= state.limit || state.waiting.first() != Some(&offset) {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting.pop_first();
        state.reading += 1;
        // With several readers the next one may go too.
        self.freed.notify_all();
        drop(state);
        let bytes = read();
        let mut state = self.lock();
        state.reading -= 1;
        state.note(bytes.unwrap_or(0), Ns(self.origin.ns() as f64));
        self.freed.notify_all();
        bytes.is_some()
    }
}

impl GateState {
    /// Counts bytes, and doubles the readers while that helps.
    fn note(&mut self, bytes: u64, now: Ns) {
        self.bytes += bytes;
        if self.is_settled || self.bytes < WINDOW {
            return;
        }
        let rate = self.bytes as f64 / (now - self.begun).0.max(1.0);
        let gains = rate > self.before * MIN_GAIN;
        self.limit = if gains { self.limit * 2 } else { (self.limit / 2).max(1) };
        self.is_settled = !gains;
        (self.before, self.bytes, self.begun) = (rate, 0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readers of a device whose rate is known by their number, GB/s.
    fn settled(rate: impl Fn(usize) -> f64) -> usize {
        let gate = ReadGate::default();
        let mut state = gate.lock();
        let mut now = state.begun;
        for _ in 0..20 {
            now = now + Ns(WINDOW as f64 / rate(state.limit));
            state.note(WINDOW, now);
        }
        state.limit
    }

    #[test]
    fn readers_double_while_that_helps() {
        // A device that one reader fills; one that carries 2 GB/s a reader, 7 at most; one that more readers slow.
        assert_eq!(settled(|_| 1.9), 1);
        assert_eq!(settled(|readers| (2.0 * readers as f64).min(7.0)), 4);
        assert_eq!(settled(|readers| 1.9 / readers as f64), 1);
    }

    #[test]
    fn offsets_are_read_in_order() {
        let (gate, order) = (ReadGate::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            gate.pass(0, || {
                for offset in [3, 1, 2] {
                    let (gate, order) = (&gate, &order);
                    scope.spawn(move || {
                        gate.pass(offset, || {
                            order.lock().unwrap().push(offset);
                            Some(1)
                        })
                    });
                }
                while gate.lock().waiting.len() < 3 {
                    std::thread::yield_now();
                }
                Some(1)
            });
        });
        assert_eq!(order.into_inner().unwrap(), [1, 2, 3]);
    }
}
