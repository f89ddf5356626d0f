//! How long answers of others are waited for.

use std::fmt;
use std::time::Duration;

use pathline_host::clock::ClockOrigin;

/// A time in all for a series of requests, and what ends them earlier: Ctrl-C, the time limit of a run.
#[derive(Clone, Copy)]
pub struct WaitLimit<'a> {
    begun: ClockOrigin,
    most: Duration,
    stop: &'a dyn Fn() -> Option<String>,
}

impl fmt::Debug for WaitLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitLimit({:?})", self.most)
    }
}

impl WaitLimit<'static> {
    /// A time that begins now.
    pub fn total(most: Duration) -> Self {
        Self { begun: ClockOrigin::now(), most, stop: &|| None }
    }
}

impl<'a> WaitLimit<'a> {
    /// The same with a check that gives the reason to stop.
    #[must_use]
    pub fn stopped_by(self, stop: &'a dyn Fn() -> Option<String>) -> Self {
        Self { stop, ..self }
    }

    /// The time that is left.
    ///
    /// # Errors
    /// The reason to wait no longer.
    pub fn left(&self) -> Result<Duration, String> {
        if let Some(why) = (self.stop)() {
            return Err(why);
        }
        let left = self.most.saturating_sub(Duration::from_nanos(self.begun.ns()));
        if left.is_zero() {
            return Err(format!("it is not done after {:.0} s", self.most.as_secs_f64()));
        }
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_ends_by_time_and_by_a_reason() {
        let limit = WaitLimit::total(Duration::from_secs(1000));
        assert!(limit.left().unwrap() > Duration::from_secs(900));
        let stop = || Some("interrupted".to_owned());
        assert_eq!(limit.stopped_by(&stop).left(), Err("interrupted".to_owned()));
        let over = WaitLimit::total(Duration::ZERO).left();
        assert_eq!(over, Err("it is not done after 0 s".to_owned()));
    }
}
