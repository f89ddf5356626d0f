//! The machine's state, measured in a few milliseconds. It explains differences between samples of
//! one case.

use std::arch::asm;
use std::cell::{Cell, OnceCell};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{hint, thread};

use pathline_schema::{Bytes, Conditions, CpuHow, CpuOp, CpuSet, CpuWork, MemKind, RunNote};

use crate::clock::{ClockOrigin, ClockSlew};
use crate::gate::StartLine;
use crate::loops::{self, LoopSpan};
use crate::machine_load::LoadProbe;
use crate::memory::HostMemory;
use crate::{cpus, files};

/// Round trips of a cache line between two cores: 2 ms at 50 ns per direction.
const TRIPS: u32 = 20_000;
/// Round trips per batch.
const BATCH: u32 = 200;
/// Polls of the line before the thread yields its core and reads the clock.
const SPINS: u32 = 1000;
/// Maximum time for the round trips, in ns, in case another process uses one of the cores.
const MAX_TRIPS_NS: u64 = 10_000_000;
/// Bytes that each thread of the memory probe streams: larger than any second-level cache.
const STREAM: Bytes = Bytes::mib(8);
/// Dependent additions of the clock rate probe: 30 us at 3 GHz.
const ADDS: u64 = 6250 * 16;

/// Takes the readings, and keeps earlier ones for comparison.
pub(crate) struct ConditionProbe {
    origin: ClockOrigin,
    /// Up to two CPUs, of different cores if that is known.
    cpus: Vec<u32>,
    numa: u32,
    slew: ClockSlew,
    /// Stolen and total jiffies at the last reading.
    steal: Cell<Option<(u64, u64)>>,
    buffer: OnceCell<Option<u64>>,
    load: LoadProbe,
}

impl ConditionProbe {
    /// A probe that runs on up to two of `cpus`, with memory of `numa`. This process may use the
    /// CPUs `allowed`.
    pub(crate) fn new(origin: ClockOrigin, cpus: &[u32], numa: u32, allowed: CpuSet) -> Self {
        let cpus = cpus.iter().copied().take(2).collect();
        let (steal, buffer) = (Cell::new(stolen()), OnceCell::new());
        let load = LoadProbe::new(origin, allowed);
        Self { origin, cpus, numa, slew: ClockSlew::begin(), steal, buffer, load }
    }

    /// Observations since the last call that can disturb a measurement.
    pub(crate) fn new_notes(&self) -> Vec<RunNote> {
        self.load.new_note().into_iter().collect()
    }

    /// Recent use of the CPUs. Empty in the first half second.
    pub(crate) fn cpu_use(&self) -> Conditions {
        let Some(load) = self.load.read() else { return Conditions::default() };
        let readings = [
            ("own_cpus", load.own),
            ("foreign_cpus", load.foreign),
            ("elsewhere_cpus", load.elsewhere),
            ("stolen_cpus", load.stolen),
            ("load_cost_ms", self.load.cost_ms()),
        ];
        Conditions(readings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Times the probe loops and reads the kernel's counters; failed readings are omitted.
    pub(crate) fn read(&self, memory: &HostMemory) -> Conditions {
        let readings = [
            ("core_to_core_ns", self.core_to_core()),
            ("cpu_mhz", self.clock_rate()),
            ("dram_stream_gbs", self.stream(memory)),
            ("load_1min", load()),
            ("steal_percent", self.steal_since()),
            ("clock_slew_ppm", self.slew.ppm()),
        ];
        let known =
            readings.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Conditions(known.collect())
    }

    /// Time to transfer a cache line from one core to another: half a round trip of the fastest
    /// batch, since interrupts only add to it. If another process uses one of the cores, the round
    /// trips completed within [`MAX_TRIPS_NS`] count as one batch.
    fn core_to_core(&self) -> Option<f64> {
        let &[a, b] = self.cpus.as_slice() else { return None };
        #[repr(align(128))]
        struct CacheLine(AtomicU32);
        let line = CacheLine(AtomicU32::new(0));
        let over = AtomicBool::new(false);
        let start = StartLine::new(2);
        let origin = self.origin;
        // The next value of the line; `None` after the time limit. Reads the clock only when the
        // other core makes it wait, so that a trip still takes 50 ns.
        let wait = |from: u32, deadline: u64| {
            let mut spins = 0;
            loop {
                let turn = line.0.load(Ordering::Acquire);
                if turn != from {
                    return Some(turn);
                }
                if spins < SPINS {
                    spins += 1;
                    hint::spin_loop();
                } else if over.load(Ordering::Acquire) || origin.ns() > deadline {
                    return None;
                } else {
                    thread::yield_now();
                }
            }
        };
        let answer = || {
            let pinned = cpus::pin(b).is_ok();
            if !start.wait() {
                return;
            }
            let deadline = origin.ns() + MAX_TRIPS_NS;
            let mut turn = 0;
            while pinned && let Some(next) = wait(turn, deadline) {
                turn = next + 1;
                line.0.store(turn, Ordering::Release);
            }
        };
        let ask = || {
            let pinned = cpus::pin(a).is_ok();
            let mut batches = Vec::new();
            if !start.wait() || !pinned {
                over.store(true, Ordering::Release);
                return batches;
            }
            let begin = origin.ns();
            let deadline = begin + MAX_TRIPS_NS;
            let (mut turn, mut last) = (0, begin);
            while turn < 2 * TRIPS && last < deadline {
                let mut trips = 0;
                while trips < BATCH {
                    line.0.store(turn + 1, Ordering::Release);
                    let Some(next) = wait(turn + 1, deadline) else { break };
                    (turn, trips) = (next, trips + 1);
                }
                let now = origin.ns();
                if trips > 0 {
                    batches.push((now - last) as f64 / f64::from(2 * trips));
                }
                if trips < BATCH {
                    break;
                }
                last = now;
            }
            over.store(true, Ordering::Release);
            batches
        };
        let batches: Vec<f64> = thread::scope(|scope| {
            let answerer = thread::Builder::new().spawn_scoped(scope, answer);
            let asker = thread::Builder::new().spawn_scoped(scope, ask);
            let (Ok(_), Ok(asker)) = (answerer, asker) else {
                over.store(true, Ordering::Release);
                start.cancel();
                return Vec::new();
            };
            asker.join().unwrap_or_default()
        });
        batches.into_iter().min_by(f64::total_cmp)
    }

    /// Clock rate of a core from a chain of additions, which take one cycle each on every core
    /// since 2000. Best of three, which excludes interrupts.
    fn clock_rate(&self) -> Option<f64> {
        let once = || {
            let start = self.origin.ns();
            dependent_adds()?;
            Some((self.origin.ns() - start).max(1))
        };
        let best = [once()?, once()?, once()?].into_iter().min()?;
        Some(ADDS as f64 * 1e3 / best as f64)
    }

    /// Rate of streaming stores by up to two cores at once: reveals a cap on memory traffic.
    fn stream(&self, memory: &HostMemory) -> Option<f64> {
        let choices = [CpuHow::Avx512Nt, CpuHow::Avx2Nt, CpuHow::NeonNt];
        let body =
            choices.into_iter().find_map(|how| loops::find(CpuWork { op: CpuOp::Write, how }))?;
        let bytes = Bytes(STREAM.0 * self.cpus.len() as u64);
        let new = || memory.alloc(self.numa, MemKind::Huge, bytes).ok();
        let first = self.buffer.get().is_none();
        let address = (*self.buffer.get_or_init(new))?;
        let _held = memory.range("stream", address, bytes.0).ok()?;
        let pass = |part: usize| {
            let dst = (address + part as u64 * STREAM.0) as *mut u8;
            let span = LoopSpan { dst, src: dst, other: dst, len: STREAM.0 as usize };
            // SAFETY: part < number of CPUs, so the span lies in the buffer, which this probe alone
            // holds; each thread has its own part.
            unsafe { body.passes(span, 1) };
        };
        let start = StartLine::new(self.cpus.len() as u32);
        let origin = self.origin;
        let times: Vec<(u64, u64)> = thread::scope(|scope| {
            let probe = |(part, &cpu): (usize, &u32)| {
                let (start, pass) = (&start, &pass);
                thread::Builder::new().spawn_scoped(scope, move || {
                    let pinned = cpus::pin(cpu);
                    if first {
                        pass(part);
                    }
                    if !start.wait() {
                        return None;
                    }
                    let begin = origin.ns();
                    pass(part);
                    pinned.ok().map(|()| (begin, origin.ns()))
                })
            };
            let threads: Vec<_> = self.cpus.iter().enumerate().map(probe).collect();
            if threads.iter().any(io::Result::is_err) {
                start.cancel();
            }
            threads.into_iter().flatten().filter_map(|t| t.join().ok().flatten()).collect()
        });
        if times.len() != self.cpus.len() {
            return None;
        }
        let begin = times.iter().map(|t| t.0).min()?;
        let end = times.iter().map(|t| t.1).max()?;
        Some(bytes.as_f64() / (end - begin).max(1) as f64)
    }

    /// Share of CPU time that the hypervisor stole since the last reading.
    fn steal_since(&self) -> Option<f64> {
        let now = stolen()?;
        let before = self.steal.replace(Some(now))?;
        let all = now.1.checked_sub(before.1).filter(|&all| all > 0)?;
        Some(now.0.saturating_sub(before.0) as f64 * 100.0 / all as f64)
    }
}

fn load() -> Option<f64> {
    files::text("/proc/loadavg")?.split_whitespace().next()?.parse().ok()
}

fn stolen() -> Option<(u64, u64)> {
    parse_stolen(&files::text("/proc/stat")?)
}

/// Stolen and total jiffies of all CPUs. Guest time is part of user time and not added again.
fn parse_stolen(stat: &str) -> Option<(u64, u64)> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let fields: Vec<u64> = fields.map(|f| f.parse().ok()).collect::<Option<_>>()?;
    let sum = fields.iter().try_fold(0_u64, |a, &b| a.checked_add(b))?;
    Some((*fields.get(7)?, sum))
}

/// `ADDS` additions, each dependent on the one before.
#[cfg(target_arch = "x86_64")]
fn dependent_adds() -> Option<()> {
    // SAFETY: registers only. Register operands: recent cores skip additions of small constants.
    unsafe {
        asm!(
            "2:",
            ".rept 16", "add {x}, {x}", ".endr",
            "dec {n}",
            "jnz 2b",
            x = inout(reg) 1_u64 => _, n = inout(reg) ADDS / 16 => _,
            options(nomem, nostack)
        );
    }
    Some(())
}
#[cfg(target_arch = "aarch64")]
fn dependent_adds() -> Option<()> {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "2:",
            ".rept 16", "add {x}, {x}, {x}", ".endr",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            x = inout(reg) 1_u64 => _, n = inout(reg) ADDS / 16 => _,
            options(nomem, nostack)
        );
    }
    Some(())
}
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn dependent_adds() -> Option<()> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_field() {
        // 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 = 36, of which 8 stolen; 100 of guest time are part of user
        // time.
        assert_eq!(parse_stolen("cpu  1 2 3 4 5 6 7 8 100 0\ncpu0 1"), Some((8, 36)));
        assert_eq!(parse_stolen("cpu  1 2 3"), None);
        assert_eq!(parse_stolen(""), None);
        assert_eq!(parse_stolen("cpu  1 2 3 4 5 6 7 x"), None);
    }
}
