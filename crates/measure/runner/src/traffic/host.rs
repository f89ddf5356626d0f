//! The counters of this host.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use pathline_gpu::management;
use pathline_hal::{JoinedMeters, TrafficMeter};
use pathline_host::SysfsTraffic;
use pathline_host::clock::ClockOrigin;
use pathline_schema::{Topology, TrafficCounter, TrafficReading, UncountedPath};

/// How long counters may take to open, or to be read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Readings of this host's counters. A separate thread reads them, so that a driver that hangs blocks only that.
#[derive(Debug)]
pub struct HostTraffic {
    /// The counters.
    pub counters: Vec<TrafficCounter>,
    /// Paths that nothing counts.
    pub uncounted: Vec<UncountedPath>,
    readings: Receiver<Vec<TrafficReading>>,
    wake: Sender<()>,
    interval: Duration,
}

impl HostTraffic {
    /// Opens the counters of what a topology lists, and reads them at once and after each interval. NVML is opened
    /// in this process, unless `without_gpus`.
    ///
    /// # Errors
    /// No thread can be started, or the counters do not open in time.
    pub fn start(topology: Topology, without_gpus: bool, interval: Duration) -> Result<Self> {
        let (send_shape, shape) = mpsc::channel();
        let (send, readings) = mpsc::channel();
        let (wake, woken) = mpsc::channel();
        std::thread::Builder::new().name("counters".to_owned()).spawn(move || {
            let origin = ClockOrigin::now();
            let mut meters = match without_gpus {
                true => Vec::new(),
                false => management().traffic(&topology.gpus, origin),
            };
            meters.push(Box::new(SysfsTraffic::new(&topology, Path::new("/sys"), origin)));
            let meter = JoinedMeters::new(meters);
            let shape = (meter.counters().to_vec(), meter.uncounted().to_vec());
            let mut is_wanted = send_shape.send(shape).is_ok();
            let mut next = Instant::now();
            while is_wanted && send.send(meter.read()).is_ok() {
                // A reading that took longer than the interval makes the next one late, not one more.
                next = (next + interval).max(Instant::now());
                let wait = next.saturating_duration_since(Instant::now());
                is_wanted = woken.recv_timeout(wait) != Err(RecvTimeoutError::Disconnected);
            }
        })?;
        let opened = shape.recv_timeout(READ_TIMEOUT);
        let (counters, uncounted) = opened.map_err(|_| silent("do not open"))?;
        Ok(Self { counters, uncounted, readings, wake, interval })
    }

    /// The next reading of all counters; none if there is none `within` that time.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn next_within(&self, within: Duration) -> Result<Option<Vec<TrafficReading>>> {
        match self.readings.recv_timeout(within) {
            Ok(reading) => Ok(Some(reading)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(silent("ended")),
        }
    }

    /// The next reading.
    ///
    /// # Errors
    /// It takes much longer than the interval.
    pub fn next_reading(&self) -> Result<Vec<TrafficReading>> {
        let reading = self.next_within(self.interval + READ_TIMEOUT)?;
        reading.ok_or_else(|| silent("do not answer"))
    }

    /// A reading of now: what was read before and not taken is left out.
    ///
    /// # Errors
    /// It takes too long.
    pub fn last_reading(&self) -> Result<Vec<TrafficReading>> {
        while self.next_within(Duration::ZERO)?.is_some() {}
        let _ = self.wake.send(());
        let reading = self.next_within(READ_TIMEOUT)?;
        reading.ok_or_else(|| silent("do not answer"))
    }
}

fn silent(what: &str) -> anyhow::Error {
    let seconds = READ_TIMEOUT.as_secs();
    anyhow!(
        "the counters {what} within {seconds} s; `pathline doctor` finds the library that hangs"
    )
}
