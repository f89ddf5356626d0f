//! The host's clock, the only user of `Instant`.

use std::time::{Duration, Instant};

use pathline_hal::Clock;
use pathline_schema::Ns;

use crate::files;

/// A time origin shared by the clocks of all threads.
#[derive(Debug, Clone, Copy)]
pub struct ClockOrigin(Instant);

impl ClockOrigin {
    /// Sets the origin to the present.
    pub fn now() -> Self {
        Self(Instant::now())
    }
    /// Nanoseconds since the origin. Wraps after 584 years.
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
    /// Starts at zero. Its name contains the kernel's clock source, since one other than the
    /// processor's own counter (`hpet`, `acpi_pm`) takes microseconds per reading.
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

/// A sleeping thread wakes at least 50 us late, the kernel's timer slack. Shorter waits spin.
const MIN_SLEEP: Ns = Ns(100_000.0);

impl Clock for LiveClock {
    fn now(&self) -> Ns {
        Ns(self.origin.ns() as f64)
    }
    fn sleep(&self, time: Ns) {
        if time < MIN_SLEEP {
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

/// Rate of the monotonic clock relative to the undisciplined one: the effect of time
/// synchronisation on measurements.
#[derive(Debug)]
pub struct ClockSlew {
    monotonic: f64,
    raw: f64,
}

impl ClockSlew {
    /// Reads both clocks for the first time.
    pub fn begin() -> Self {
        Self { monotonic: read(libc::CLOCK_MONOTONIC), raw: read(libc::CLOCK_MONOTONIC_RAW) }
    }
    /// Slew in parts per million since the first reading. `None` before 100 ms, when one late
    /// reading would outweigh the slew.
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

/// Sleeps between polls of something outside this process that sends no notification.
pub fn pause(time: std::time::Duration) {
    std::thread::sleep(time);
}
