//! Unregistering of host memory that takes far longer than registering it.

use pathline_explain::fmt;
use pathline_explain::run::{CaseQuantity, RunEntry};
use pathline_schema::{Bytes, CallTally, Flow, FlowSeries, Mover, Place, RuntimeCall};

use crate::evidence::Evidence;
use crate::{Finding, FindingSeverity};

pub(super) const ID: &str = "io-unregister";

/// Least share of the time in calls that makes unregistering memory a finding. On H200s it took 5 % of
/// cases with registered blocks, on the MI100 node of source 003 45 %.
const UNREGISTER_SHARE: f64 = 0.25;

/// Unregistering a block that takes this many times as long as registering it is a finding: 63 in source 003, up to
/// 1.3 on H200s.
const UNREGISTER_TIMES: f64 = 4.0;
const KEEP_REGISTERED: &str =
    "Register staging buffers once, and keep them registered until the process ends.";

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    unregister(evidence).or_else(|| unregister_calls(evidence)).into_iter().collect()
}

/// Unregistering of staging memory in a case.
struct UnregisterTime<'a> {
    /// Share of the time in calls, 0 to 1.
    share: f64,
    call: &'a str,
    tally: CallTally,
    /// Time of the calls that registered, ns.
    register_ns: f64,
}

impl<'a> UnregisterTime<'a> {
    /// `None` of a case that registers nothing.
    fn new(series: &'a FlowSeries) -> Option<Self> {
        let during = series.io.iter().flat_map(|reading| &reading.calls);
        let all: f64 = during.chain(&series.setup).map(|(_, tally)| tally.ns).sum();
        let (call, tally) = series.setup.iter().find(|(name, _)| name.contains("Unregister"))?;
        let register_ns = series.setup.get(&call.replace("Unregister", "Register"))?.ns;
        let share = tally.ns / all;
        let sound = share.is_finite() && register_ns > 0.0;
        sound.then_some(Self { share, call, tally: *tally, register_ns })
    }
}

/// The case in which unregistering staging memory takes the largest share of the time in calls.
fn unregister(evidence: &Evidence) -> Option<Finding> {
    let cases = evidence.lone().filter(|(_, flow)| flow.by.io().is_some());
    let times = cases
        .filter_map(|(entry, flow)| Some((UnregisterTime::new(entry.series().first()?)?, flow)));
    let worst = times.max_by(|a, b| a.0.share.total_cmp(&b.0.share));
    let (time, flow) = worst.filter(|(time, _)| time.share >= UNREGISTER_SHARE)?;
    let UnregisterTime { share, call, tally, register_ns } = time;
    let (file, memory) = flow.io_ends();
    let observation = format!(
        "{call} takes {} of the time in calls of I/O between {} and {}: {} us a call, {} times as \
         long as to register.",
        fmt::percent(share),
        file.unit,
        memory.unit,
        fmt::number(tally.ns / tally.count.max(1) as f64 / 1e3),
        fmt::number(tally.ns / register_ns),
    );
    Some(Finding {
        short: format!(
            "{} of the time in I/O calls is {call}, {} times as long as to register",
            fmt::percent(share),
            fmt::number(tally.ns / register_ns)
        ),
        action: KEEP_REGISTERED.to_owned(),
        places: vec![file.unit.to_string(), memory.unit.to_string()],
        ..Finding::new(ID, FindingSeverity::Note, observation)
    })
}

/// Unregistering by itself, where it takes the most times as long as registering.
fn unregister_calls(evidence: &Evidence) -> Option<Finding> {
    let called = |wanted: RuntimeCall| {
        let of_call =
            move |flow: &Flow| matches!(flow.by, Mover::Call { call, .. } if call == wanted);
        let calls = evidence.lone().filter(move |(_, flow)| of_call(flow));
        // A factor of several needs no interval, and calls of a quarter of a second have too few samples.
        let time = |entry: &RunEntry| Some(entry.shown(CaseQuantity::StepUs)?.value);
        calls.filter_map(move |(entry, flow)| Some((flow.subject()?, flow.bytes, time(entry)?)))
    };
    let times = |freed: (Place, Bytes, f64)| {
        let same = |call: &(Place, Bytes, f64)| (call.0, call.1) == (freed.0, freed.1);
        Some((freed, freed.2 / called(RuntimeCall::Register).find(same)?.2))
    };
    let all = called(RuntimeCall::Unregister).filter_map(times);
    let ((_, bytes, freed), times) = all.max_by(|a, b| a.1.total_cmp(&b.1))?;
    if times < UNREGISTER_TIMES {
        return None;
    }
    let what = format!(
        "Unregistering {} takes {} ms, {} times as long as registering",
        bytes.rounded(),
        fmt::number(freed / 1e3),
        fmt::number(times)
    );
    Some(Finding {
        short: what.clone(),
        action: KEEP_REGISTERED.to_owned(),
        ..Finding::new(ID, FindingSeverity::Note, format!("{what}."))
    })
}
