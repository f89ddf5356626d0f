//! The host's clock. `Instant` is read nowhere else.

use std::time::{Duration, Instant};

use pathline_hal::Clock;
use pathline_schema::Ns;

use crate::files;

/// A point in time that clocks of all threads share.
#[derive(Debug, Clone, Copy)]
pub struct ClockOrigin(Instant);

impl ClockOrigin {
    /// Time zero is now.
    pub fn now() -> Self {
        Self(Instant::now())
    }
    /// Nanoseconds since then. Wraps after 584 years.
    pub fn ns(self) -> u64 {
        let elapsed = self.0.elapsed();
        elapsed
            .as_secs()
            .wrapping_mul(1_000_000_000)
            .wrapping_add(u64::from(elapsed.subsec_nanos()))
    }
}

/// `CLOCK_MONOTONIC` of the kernel: never stepped, slewed by at most 500 ppm.
#[derive(Debug)]
pub struct LiveClock {
    origin: ClockOrigin,
    name: String,
}

impl LiveClock {
    /// Starts at zero. Its name tells the kernel's clock source, since one that is not the
    /// processor's own counter (`hpet`, `acpi_pm`) costs microseconds a reading.
    pub fn new(origin: ClockOrigin) -> Self {
        let source =
            files::text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let name = match source {
            Some(source) => format!("monotonic ({})", source.trim()),
            None => "monotonic".to_owned(),
        };
        Self { origin, name }
    }
}

/// A thread that sleeps wakes 50 us late or more: the kernel's timer slack. Shorter waits spin.
const OVERSLEPT: Ns = Ns(100_000.0);

impl Clock for LiveClock {
    fn now(&self) -> Ns {
        Ns(self.origin.ns() as f64)
    }
    fn sleep(&self, time: Ns) {
        if time < OVERSLEPT {
            let begun = self.now();
            while self.now() - begun < time {
                std::hint::spin_loop();
            }
        } else if let Ok(time) = Duration::try_from_secs_f64(time.as_secs()) {
            std::thread::sleep(time);
        }
    }
    fn name(&self) -> &str {
        &self.name
    }
}

/// How fast the monotonic clock runs against the undisciplined one: what time synchronisation is
/// doing to the measurements.
#[derive(Debug)]
pub struct ClockSlew {
    monotonic: f64,
    raw: f64,
}

impl ClockSlew {
    /// Reads both clocks.
    pub fn begin() -> Self {
        Self { monotonic: read(libc::CLOCK_MONOTONIC), raw: read(libc::CLOCK_MONOTONIC_RAW) }
    }
    /// Parts per million since the beginning; none before 100 ms, where one late reading would
    /// count for more than the slew.
    pub fn ppm(&self) -> Option<f64> {
        let now = Self::begin();
        let raw = now.raw - self.raw;
        (raw > 1e8).then(|| ((now.monotonic - self.monotonic) / raw - 1.0) * 1e6)
    }
}

fn read(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which lives through the call.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Waits for something outside of this process that nobody tells the end of.
pub fn pause(time: std::time::Duration) {
    std::thread::sleep(time);
}
