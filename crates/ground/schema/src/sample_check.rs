//! Samples that cannot be.

use crate::FlowSeries;

/// The highest rate that is believed, GB/s: more than a hundred times that of any memory, and the most
/// that a machine description may state.
const MAX_RATE: f64 = 1e6;

/// The shortest step that is believed, ns: a cycle of 100 GHz.
const MIN_STEP: f64 = 0.01;

/// The longest sample that is believed, ns: 11 days, more than any limit of a job.
const MAX_SAMPLE: f64 = 1e15;

/// Why samples cannot be those of a case.
pub(crate) fn misfit(series: &[FlowSeries]) -> Option<String> {
    if series.is_empty() {
        return Some("it has no series of samples".to_owned());
    }
    series.iter().find_map(FlowSeries::misfit)
}

impl FlowSeries {
    fn misfit(&self) -> Option<String> {
        let Self { flow, reps, steps, moved_bytes, samples_ns, .. } = self;
        let messages = flow.by.wire().map_or(1, |wire| u64::from(wire.op.window()));
        let expected = flow.bytes.0.saturating_mul(messages).saturating_mul(*reps);
        let fault = if samples_ns.is_empty() {
            "has no sample".to_owned()
        } else if *reps == 0 {
            "repeats its operation 0 times in a sample".to_owned()
        } else if moved_bytes.0 == 0 {
            "moves 0 bytes in a sample".to_owned()
        } else if *steps == 0 {
            "has 0 steps in a sample".to_owned()
        } else if flow.by.has_rate() && moved_bytes.0 != expected {
            format!("moves {} bytes in a sample, not {expected}", moved_bytes.0)
        } else {
            let mut all = samples_ns.iter().enumerate();
            let (at, why) = all.find_map(|(at, &ns)| Some((at, self.sample_misfit(ns)?)))?;
            format!("has a sample, number {}, {why}", at + 1)
        };
        Some(format!("{flow} {fault}"))
    }

    fn sample_misfit(&self, ns: f64) -> Option<String> {
        if !(ns.is_finite() && ns > 0.0) {
            return Some(format!("of {ns} ns"));
        }
        let step = ns / self.steps.max(1) as f64;
        let rate = self.moved_bytes.as_f64() / ns;
        // The bytes of a call are its argument; it moves none.
        let carries = self.flow.by.facts().moves_bytes;
        if ns > MAX_SAMPLE {
            Some(format!("of {ns:e} ns: no run takes so long"))
        } else if step < MIN_STEP {
            Some(format!("of {ns} ns, {step:.0e} ns a step: no processor is so fast"))
        } else if carries && rate > MAX_RATE {
            Some(format!("of {ns} ns, which is {rate:.0e} GB/s: no memory is so fast"))
        } else {
            None
        }
    }
}
