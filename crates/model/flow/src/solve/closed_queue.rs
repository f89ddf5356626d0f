//! Blocks that go round between files and copies to a GPU, with a fixed number in flight.

use std::collections::VecDeque;

/// A closed queue of two stations. Files serve blocks in the order in which workers ask for them:
/// none in less than a latency, and all of them no faster than their rate. Then each block is
/// copied, and its slot asks for the next one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClosedQueue {
    /// Workers, each with as many slots.
    pub workers: u32,
    /// Slots of a worker.
    pub depth: u32,
    /// Slots that ask together, and that are waited for together; at least 1, at most the depth.
    pub batch: u32,
    /// Rate of the files with all slots in flight, blocks a ns.
    pub files_rate: f64,
    /// Time that the files take for a block with no other in flight, ns.
    pub file_ns: f64,
    /// Time of a copy, ns.
    pub copy_ns: f64,
    /// Whether workers go on while one engine does all copies. Else each worker copies what has
    /// come, one block after the other, before it asks for more.
    pub overlaps: bool,
}

/// Rounds of all slots that are played before any is counted, and that are counted.
const UNCOUNTED: u64 = 8;
const COUNTED: u64 = 192;

/// With more slots than this the slower station always has a block.
const MANY: u64 = 1024;

/// The least index of the smallest.
fn earliest(times: &[f64]) -> usize {
    let least = |best: usize, at: usize| if times[at] < times[best] { at } else { best };
    (0..times.len()).fold(0, least)
}

impl ClosedQueue {
    fn slots(&self) -> u64 {
        u64::from(self.workers) * u64::from(self.depth)
    }

    /// Rate of the copies alone, blocks a ns.
    pub fn copy_rate(&self) -> f64 {
        let at_once = if self.overlaps { 1.0 } else { f64::from(self.workers) };
        at_once / self.copy_ns
    }

    /// Blocks a ns in the steady state; not a number where nothing goes round.
    pub fn rate(&self) -> f64 {
        // Workers would wait for more blocks than they have slots.
        if self.batch == 0 || self.batch > self.depth {
            return f64::NAN;
        }
        if self.slots() > MANY {
            return self.files_rate.min(self.copy_rate());
        }
        let mut ends = if self.overlaps { self.overlapped() } else { self.in_turn() };
        ends.sort_by(f64::total_cmp);
        let at = |rounds: u64| ends.get((rounds * self.slots()) as usize).copied();
        match (at(UNCOUNTED), at(UNCOUNTED + COUNTED)) {
            (Some(from), Some(to)) => (COUNTED * self.slots()) as f64 / (to - from),
            _ => f64::NAN,
        }
    }

    /// When a block requested now is read.
    fn read(&self, now: f64, last: &mut f64) -> f64 {
        *last = (now + self.file_ns).max(*last + 1.0 / self.files_rate);
        *last
    }

    fn enough(&self, ends: &[f64]) -> bool {
        ends.len() as u64 > (UNCOUNTED + COUNTED + 1) * self.slots()
    }

    /// When each copy ends where workers wait for them.
    fn in_turn(&self) -> Vec<f64> {
        let (batch, depth) = (self.batch as usize, self.depth as usize);
        let mut last = f64::NEG_INFINITY;
        let mut ends = Vec::new();
        // Of each worker: when it can request more, and when its requests are read.
        let mut free = vec![0.0; self.workers as usize];
        let mut flying: Vec<VecDeque<f64>> = vec![VecDeque::new(); free.len()];
        while !self.enough(&ends) {
            let worker = earliest(&free);
            let (Some(now), Some(flying)) = (free.get_mut(worker), flying.get_mut(worker)) else {
                break;
            };
            while flying.len() + batch <= depth {
                flying.extend((0..batch).map(|_| self.read(*now, &mut last)));
            }
            // Sleeps until a batch is there.
            if let Some(there) = flying.get(batch - 1) {
                *now = there.max(*now);
            }
            while let Some(read) = flying.front().filter(|read| **read <= *now) {
                *now = read.max(*now) + self.copy_ns;
                flying.pop_front();
                ends.push(*now);
            }
        }
        ends
    }

    /// When each copy ends where one engine copies while workers go on. It has blocks in the order
    /// in which they were asked for.
    fn overlapped(&self) -> Vec<f64> {
        let batch = u64::from(self.batch);
        let (mut last, mut engine) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        let mut ends = Vec::new();
        // When each batch of slots can ask again, which is in the order in which they asked.
        let mut free = VecDeque::from(vec![0.0; (self.slots() / batch) as usize]);
        while !self.enough(&ends)
            && let Some(now) = free.pop_front()
        {
            for _ in 0..batch {
                engine = self.read(now, &mut last).max(engine) + self.copy_ns;
                ends.push(engine);
            }
            free.push_back(engine);
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive that gives a block each 400 ns, and one alone in as much; copies of 100 ns.
    const DRIVE: ClosedQueue = ClosedQueue {
        workers: 1,
        depth: 1,
        batch: 1,
        files_rate: 1.0 / 400.0,
        file_ns: 400.0,
        copy_ns: 100.0,
        overlaps: false,
    };

    /// But for where in a group of blocks the count begins and ends.
    #[track_caller]
    fn takes(queue: ClosedQueue, ns: f64) {
        let got = 1.0 / queue.rate();
        assert!((got / ns - 1.0).abs() < 0.005, "{got}, not {ns}");
    }

    /// One block at a time, and all of a worker's in one batch: first they are read, then copied.
    #[test]
    fn without_others_times_add_up() {
        takes(DRIVE, 500.0);
        takes(ClosedQueue { overlaps: true, ..DRIVE }, 500.0);
        // 8 blocks take 400 and 7 x 400 to be read, 8 x 100 to be copied.
        takes(ClosedQueue { depth: 8, batch: 8, ..DRIVE }, (8.0 * 400.0 + 8.0 * 100.0) / 8.0);
        // More than 1024 slots: the slower station has all of the time a block.
        let many = ClosedQueue { depth: 2048, overlaps: true, ..DRIVE };
        takes(many, 400.0);
        takes(ClosedQueue { copy_ns: 500.0, ..many }, 500.0);
        let two = ClosedQueue { workers: 2, overlaps: false, files_rate: 1.0 / 100.0, ..many };
        takes(ClosedQueue { copy_ns: 500.0, ..two }, 500.0 / 2.0);
        // Four workers on files that take 1600 ns each time, of which four at once: 1700 for four.
        let four = ClosedQueue { workers: 4, file_ns: 1600.0, ..DRIVE };
        takes(four, 1700.0 / 4.0);
    }

    /// A batch of none, and one of more blocks than a worker has slots: it never fills.
    #[test]
    fn a_batch_that_never_comes_has_no_rate() {
        for batch in [0, 3] {
            for overlaps in [false, true] {
                let rate = ClosedQueue { depth: 2, batch, overlaps, ..DRIVE }.rate();
                assert!(rate.is_nan(), "{rate}");
            }
        }
    }

    /// With two in flight the drive reads one while the other is copied.
    #[test]
    fn the_drive_works_while_one_is_copied() {
        takes(ClosedQueue { depth: 2, ..DRIVE }, 400.0);
        takes(ClosedQueue { depth: 8, overlaps: true, ..DRIVE }, 400.0);
        // In batches it is the same, if others are read meanwhile.
        takes(ClosedQueue { depth: 16, batch: 4, ..DRIVE }, 400.0);
    }

    /// Copies of 500 ns outlast reads of 400. A loop that waits for its copies has all 8 blocks
    /// read before it has copied the first few, and requests none until it has copied all: 400 for
    /// the first one, then 8 x 500. A loop that does not wait is limited by the copies alone.
    #[test]
    fn slow_copies_leave_the_drive_idle() {
        let slow = ClosedQueue { depth: 8, copy_ns: 500.0, ..DRIVE };
        takes(slow, (400.0 + 8.0 * 500.0) / 8.0);
        takes(ClosedQueue { overlaps: true, ..slow }, 500.0);
        // Two workers hide that: 500 / 2 is less than the drive's 400.
        takes(ClosedQueue { workers: 2, ..slow }, 400.0);
    }
}
