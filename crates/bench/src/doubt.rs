//! What the tool doubts about its own figures.

use std::collections::BTreeMap;

use pathline_schema::{Measured, Note, Series};

/// A sample should be this many times as long as what its harness costs.
const OVERHEAD_FACTOR: f64 = 50.0;
/// A trend below this is not worth a reader's time.
const DRIFT: f64 = 0.05;

/// Doubts about a measured case.
pub(crate) fn about(measured: &Measured, overhead_ns: &BTreeMap<String, f64>) -> Vec<Note> {
    let subject = measured.case.to_string();
    let note =
        |code: &str, text: String| Note { code: code.to_owned(), subject: subject.clone(), text };
    let mut notes = Vec::new();
    for series in &measured.series {
        if let Some(text) = two_modes(series) {
            notes.push(note("bimodal", text));
        } else if let Some(text) = drift(series) {
            notes.push(note("drift", text));
        }
        if let Some(text) = short(series, overhead_ns) {
            notes.push(note("overhead", text));
        }
    }
    notes
}

fn two_modes(series: &Series) -> Option<String> {
    let modes = pathline_stats::modes(&series.samples_ns)?;
    let rate = |ns: f64| series.moved_bytes.as_f64() / ns;
    Some(format!(
        "two states: {:.3} GB/s in {:.0} % of samples and {:.3} GB/s in the rest; the median hides one of them",
        rate(modes.low.median),
        modes.low.share * 100.0,
        rate(modes.high.median),
    ))
}

fn drift(series: &Series) -> Option<String> {
    let change = pathline_stats::drift(&series.samples_ns)?.change;
    (change.abs() >= DRIFT).then(|| {
        format!(
            "samples changed by {:+.0} % from the first to the last; the machine was not steady",
            change * 100.0
        )
    })
}

fn short(series: &Series, overhead_ns: &BTreeMap<String, f64>) -> Option<String> {
    let overhead = *overhead_ns.get(series.timer.word())?;
    let shortest = series.samples_ns.iter().copied().fold(f64::INFINITY, f64::min);
    // A device's events bracket one short copy on purpose; its cost is the figure.
    let single = series.reps == 1;
    (!single && shortest < overhead * OVERHEAD_FACTOR)
        .then(|| format!("a sample lasts {shortest:.0} ns and its harness costs {overhead:.0} ns"))
}
