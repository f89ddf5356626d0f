//! A barrier in shared memory for the processes of one node.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use pathline_hal::{CallError, CallResult, RankBarrier};
use pathline_schema::{Rank, Severity};

use super::peer_process::PeerProcess;
use super::segment::{LINE, ShmSegment};
use super::spin_wait::SpinWait;

/// The first field of the segment: its type and layout version.
const MAGIC: u64 = 0x7061_7468_6d65_6501;
const RANKS: usize = 8;
/// 0 while all is well, else the rank that gave up, plus 1.
const BROKEN: usize = 12;
/// Number of ranks that have arrived in this round.
const ARRIVED: usize = LINE;
/// The round. It grows when all have arrived; the ranks wait for that.
const ROUND: usize = 2 * LINE;
/// For each rank: process number, start time, the last round it arrived in, whether it left.
const SEATS: usize = 3 * LINE;
const PID: usize = 0;
const CAME: usize = 4;
const BEGAN: usize = 8;
const LEFT: usize = 16;

/// Maximum number of ranks.
const MAX_RANKS: u32 = 1 << 16;

/// The segment of a barrier, created by one process for all. It must live until all have opened it.
#[derive(Debug)]
pub struct BarrierSegment {
    segment: ShmSegment,
}

impl BarrierSegment {
    /// For `ranks` processes of this host.
    pub fn create(ranks: u32) -> CallResult<Self> {
        if ranks == 0 || ranks > MAX_RANKS {
            let thing = format!("a barrier of {ranks} ranks");
            let reason = format!("it can have 1 to {MAX_RANKS} ranks");
            return Err(CallError::unsupported("create", thing, reason));
        }
        let segment = ShmSegment::create(SEATS + ranks as usize * LINE)?;
        segment.word(RANKS).store(ranks, Relaxed);
        segment.long(0).store(MAGIC, Release);
        Ok(Self { segment })
    }

    /// The address for the other processes: [`SharedBarrier::open`].
    pub fn address(&self) -> String {
        self.segment.address()
    }
}

/// Offset of a field of a rank.
fn seat(rank: u32, field: usize) -> usize {
    SEATS + rank as usize * LINE + field
}

/// A rank's membership in the barrier of one host's processes.
///
/// It spins for some ten microseconds, then yields its core, since with more ranks than cores the
/// missing rank needs it. The error names a rank that has died, has left or does not arrive in
/// time; after that the barrier fails for all.
#[derive(Debug)]
pub struct SharedBarrier {
    segment: ShmSegment,
    me: Rank,
    ranks: u32,
    wait: SpinWait,
}

impl SharedBarrier {
    /// Joins as rank `me`, with a timeout of `most` for each wait.
    pub fn open(address: &str, me: Rank, most: Duration) -> CallResult<Self> {
        let segment = ShmSegment::open(address)?;
        let refuse = |reason: String| CallError::unsupported("open", address, reason);
        if segment.len() < SEATS || segment.long(0).load(Acquire) != MAGIC {
            return Err(refuse("no barrier of this version of pathline".into())
                .or_try("start all ranks from the same program"));
        }
        let ranks = segment.word(RANKS).load(Relaxed);
        let fits = SEATS as u64 + u64::from(ranks) * LINE as u64 <= segment.len() as u64;
        if me.0 >= ranks || !fits {
            return Err(refuse(format!("its {ranks} ranks do not include rank {}", me.0)));
        }
        let seat = |field| seat(me.0, field);
        let process = PeerProcess::me();
        let pid = segment.word(seat(PID));
        if let Err(other) = pid.compare_exchange(0, process.pid, AcqRel, Acquire) {
            return Err(refuse(format!("process {other} already is rank {}", me.0)));
        }
        segment.long(seat(BEGAN)).store(process.began, Release);
        Ok(Self { segment, me, ranks, wait: SpinWait::new(most, ranks) })
    }

    /// The error of a rank that gave up, if any.
    fn broken(&self) -> CallResult<()> {
        match self.segment.word(BROKEN).load(Acquire) {
            0 => Ok(()),
            by => {
                let reason = format!("rank {} gave up", by - 1);
                Err(self.over(reason))
            }
        }
    }

    fn over(&self, reason: String) -> CallError {
        let thing = format!("rank {} of {}", self.me.0, self.ranks);
        CallError::new(Severity::Sticky, "meet", thing, reason)
    }

    /// Fails the barrier for all ranks.
    fn give_up(&self, reason: String, way_out: &str) -> CallError {
        self.cancel();
        self.over(reason).or_try(way_out)
    }

    /// Checks the ranks that have not arrived in this round.
    fn check_missing(&self, round: u32, time_is_over: bool) -> CallResult<()> {
        self.broken()?;
        let field_of = |rank, field| self.segment.word(seat(rank, field)).load(Acquire);
        let mut missing = Vec::new();
        for rank in (0..self.ranks).filter(|&rank| field_of(rank, CAME) != round) {
            let pid = field_of(rank, PID);
            let began = self.segment.long(seat(rank, BEGAN)).load(Acquire);
            let (ended, way_out) = if field_of(rank, LEFT) != 0 {
                ("has left", "see what ended it there")
            } else if pid != 0 && (PeerProcess { pid, began }).is_gone() {
                ("has ended", "see what ended it: a signal, or the memory ran out")
            } else {
                missing.push(match pid {
                    0 => format!("rank {rank} (never joined the barrier)"),
                    _ => format!("rank {rank} (process {pid})"),
                });
                continue;
            };
            // The rank may have arrived, completed the round and left since the check.
            if self.segment.word(ROUND).load(Acquire) == round {
                return Ok(());
            }
            return Err(self.give_up(format!("rank {rank} (process {pid}) {ended}"), way_out));
        }
        if !time_is_over {
            return Ok(());
        }
        if self.segment.word(ROUND).load(Acquire) == round {
            return Ok(());
        }
        let waited = self.wait.most().as_secs_f64();
        let reason = format!("{} did not arrive within {waited} s", missing.join(", "));
        Err(self.give_up(reason, "inspect it (gdb -p), or allow more time"))
    }
}

impl RankBarrier for SharedBarrier {
    fn wait(&self) -> CallResult<()> {
        self.broken()?;
        let round = self.segment.word(ROUND);
        let next = round.load(Acquire).wrapping_add(1);
        self.segment.word(seat(self.me.0, CAME)).store(next, Release);
        let arrived = self.segment.word(ARRIVED);
        if arrived.fetch_add(1, AcqRel) + 1 == self.ranks {
            arrived.store(0, Relaxed);
            round.store(next, Release);
            return Ok(());
        }
        self.wait.until(|| round.load(Acquire) == next, |over| self.check_missing(next, over))
    }

    fn cancel(&self) {
        let _ = self.segment.word(BROKEN).compare_exchange(0, self.me.0 + 1, AcqRel, Acquire);
    }
}

impl Drop for SharedBarrier {
    fn drop(&mut self) {
        self.segment.word(seat(self.me.0, LEFT)).store(1, Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;
    use pathline_host::clock::ClockOrigin;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn no_rank_leaves_a_round_before_all_have_arrived() {
        // Five ranks on any number of cores: it must end, and count right in each round.
        let (ranks, rounds) = (5, 200);
        let room = BarrierSegment::create(ranks).unwrap();
        let (address, count) = (room.address(), AtomicU32::new(0));
        thread::scope(|scope| {
            for rank in 0..ranks {
                let (address, count) = (&address, &count);
                scope.spawn(move || {
                    let barrier = SharedBarrier::open(address, Rank(rank), LONG).unwrap();
                    for round in 1..=rounds {
                        count.fetch_add(1, Relaxed);
                        barrier.wait().unwrap();
                        assert!(count.load(Relaxed) >= round * ranks);
                        barrier.wait().unwrap();
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), ranks * rounds);
    }

    #[test]
    fn a_missing_rank_is_named_and_the_barrier_fails_for_all() {
        let room = BarrierSegment::create(3).unwrap();
        let short = Duration::from_millis(60);
        let open = |rank| SharedBarrier::open(&room.address(), Rank(rank), short).unwrap();
        let (first, second) = (open(0), open(1));
        let begun = ClockOrigin::now();
        let error = first.wait().unwrap_err();
        assert!(begun.ns() >= 60_000_000);
        let text = error.to_string();
        assert!(text.contains("rank 1 (process "), "{text}");
        assert!(text.contains("rank 2 (never joined the barrier)"), "{text}");
        assert!(text.contains("0.06 s") && error.severity == Severity::Sticky, "{text}");
        let begun = ClockOrigin::now();
        let text = second.wait().unwrap_err().to_string();
        assert!(text.contains("rank 0 gave up"), "{text}");
        assert!(begun.ns() < 60_000_000, "at once, not after its own time");
    }

    #[test]
    fn a_rank_that_cancels_is_not_waited_for() {
        let room = BarrierSegment::create(2).unwrap();
        let address = room.address();
        let open = |rank| SharedBarrier::open(&address, Rank(rank), LONG).unwrap();
        let second = open(1);
        let begun = ClockOrigin::now();
        thread::scope(|scope| {
            let waits = scope.spawn(|| open(0).wait().unwrap_err().to_string());
            second.cancel();
            let text = waits.join().unwrap();
            assert!(text.contains("rank 1 gave up"), "{text}");
        });
        assert!(begun.ns() < 30_000_000_000, "not after the 60 s of a wait");
    }

    #[test]
    fn a_rank_that_left_is_not_waited_for() {
        let room = BarrierSegment::create(2).unwrap();
        let first = SharedBarrier::open(&room.address(), Rank(0), LONG).unwrap();
        drop(SharedBarrier::open(&room.address(), Rank(1), LONG).unwrap());
        let begun = ClockOrigin::now();
        let text = first.wait().unwrap_err().to_string();
        assert!(text.contains("rank 1") && text.contains("has left"), "{text}");
        assert!(begun.ns() < 30_000_000_000);
    }

    #[test]
    fn a_rank_joins_once() {
        let room = BarrierSegment::create(2).unwrap();
        let open = |rank| SharedBarrier::open(&room.address(), Rank(rank), LONG);
        let _seat = open(1).unwrap();
        let taken = open(1).unwrap_err().to_string();
        assert!(taken.contains("already is rank 1"), "{taken}");
        let none = open(2).unwrap_err().to_string();
        assert!(none.contains("its 2 ranks"), "{none}");
        assert!(BarrierSegment::create(0).is_err());
        let strange = ShmSegment::create(LINE).unwrap();
        assert!(SharedBarrier::open(&strange.address(), Rank(0), LONG).is_err());
    }
}
