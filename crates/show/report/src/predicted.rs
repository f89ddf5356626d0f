//! Predictions for concurrent flows and for exchanges by libraries, as tables and as JSON.

use pathline_flow::{DecidingConstant, Network, PredictionTrust, SetDurations, TimeUncertainty};
use pathline_message::{ExchangeSpec, ExchangeTime, LEAST_COPIED};
use pathline_schema::{Case, ConstantOrigin, Ns};
use serde_json::{Value, json};

use pathline_explain::fmt;

use crate::link_loads;

/// Columns of a page that goes to no terminal.
const MAX_COLUMNS: usize = 100;

/// The basis of an interval, or a note that there is none.
fn describe_uncertainty(uncertainty: &TimeUncertainty) -> String {
    let orders = uncertainty.orders;
    let mut from = Vec::new();
    if orders.tried > 1 {
        let of = if orders.tried < orders.possible {
            format!("{} of {} orders", orders.tried, capped_count(orders.possible))
        } else {
            format!("all {} orders", orders.possible)
        };
        from.push(format!("{of} in which engines may serve"));
    }
    if uncertainty.capacities {
        from.push("the intervals of what was measured".to_owned());
    }
    if let Some((faster, slower)) = uncertainty.constants {
        from.push(format!(
            "how well constants of each origin are known (a time of {faster:.2} to {slower:.2} of it)"
        ));
    }
    if let Some(error) = uncertainty.error {
        let error = fmt::percent(error);
        from.push(format!("the {error} that the description errs by on its own sets (p95)"));
    }
    let served = if orders.possible > 1 && orders.tried == 1 {
        "; engines serve in the order of the case (--any-order for any)"
    } else {
        ""
    };
    if from.is_empty() {
        return format!("no uncertainty known: a preset states no intervals{served}");
    }
    let only =
        uncertainty.error.is_none() && !uncertainty.capacities && uncertainty.constants.is_none();
    let note = if only { "; the machine states no other intervals" } else { "" };
    format!("interval from {}{note}{served}", fmt::list(&from))
}

/// A count that may exceed the counting limit.
fn capped_count(n: u64) -> String {
    if n >= 1_000_000 { format!("{:.0e}", n as f64) } else { n.to_string() }
}

fn span(typical: Ns, low: Ns, high: Ns) -> String {
    if low == high {
        return typical.to_string();
    }
    format!("{typical} ({low} to {high})")
}

/// A table for one case: rate alone, duration, rate, limit of each flow; then the set.
pub fn table(case: &Case, durations: &SetDurations, trust: Option<&PredictionTrust>) -> String {
    let rows: Vec<[String; 5]> = durations
        .flows
        .iter()
        .zip(&case.timed)
        .map(|(flow, of)| {
            let time = flow.time;
            [
                of.to_string(),
                fmt::number(flow.alone.0),
                span(time.typical, time.low, time.high),
                fmt::number(flow.rate.0),
                flow.bound_by.clone(),
            ]
        })
        .collect();
    let head = ["flow", "alone GB/s", "duration", "GB/s", "bound by"].map(str::to_owned);
    let all = || std::iter::once(&head).chain(&rows);
    let wide = |column: usize| {
        all().filter_map(|row| row.get(column)).map(|t| t.chars().count()).max().unwrap_or(0)
    };
    let (flow, time) = (wide(0), wide(2));
    // A flow that does not fit into its row is printed on a separate line.
    let is_narrow = flow + time + wide(4) + 24 > MAX_COLUMNS;
    let mut text = String::new();
    for [of, alone, duration, rate, bound] in all() {
        let of = if is_narrow { format!("{of}\n ") } else { format!("{of:<flow$}") };
        text += &format!("{of}  {alone:>10}  {duration:<time$}  {rate:>6}  {bound}\n");
    }
    for of in &case.background {
        text += &format!("{of:<flow$}  runs throughout\n");
    }
    let set = durations.set;
    let together = if durations.flows.len() > 1 { "all done after" } else { "done after" };
    text += &format!(
        "{together} {}; {}.{}\n",
        span(set.typical, set.low, set.high),
        describe_uncertainty(&durations.uncertainty),
        origin_note(trust)
    );
    text += &constants_line(trust);
    text
}

/// A bound of a smaller share of the time says nothing about it.
const LEAST_SHARE: f64 = 0.01;

/// Maximum number of listed resources of an exchange; `--json` has all.
const MAX_FULL: usize = 4;

/// Maximum number of listed constants of a prediction; `--json` has all.
const MAX_CONSTANTS: usize = 6;

/// The weakest origin of the constants that decide a prediction: data sheets where nothing else does. None
/// where the origin of one is unknown.
fn weakest(trust: &PredictionTrust) -> Option<ConstantOrigin> {
    let origins: Option<Vec<ConstantOrigin>> = trust.constants.iter().map(|c| c.origin).collect();
    Some(origins?.into_iter().max().unwrap_or(ConstantOrigin::Datasheet))
}

/// What a prediction rests on.
fn origin_note(trust: Option<&PredictionTrust>) -> &'static str {
    match trust.and_then(weakest) {
        None => "",
        Some(ConstantOrigin::Datasheet) => " It rests on data sheets alone.",
        Some(ConstantOrigin::Fitted) => " It rests on constants that were fitted to measurements.",
        Some(ConstantOrigin::Data) => {
            " It rests on measurements that the model carries as they are."
        }
        Some(ConstantOrigin::Assumed) => {
            " It rests on assumed constants, which nobody measured or stated."
        }
    }
}

/// The constants that decide a prediction, with the change of its time.
fn constants_line(trust: Option<&PredictionTrust>) -> String {
    let list = trust.and_then(constants_list);
    list.map_or_else(String::new, |list| {
        format!("Decided by (the time for 1 % more of it): {list}.\n")
    })
}

/// The constants that decide a prediction, each with d ln time / d ln constant, in percent, and its origin. None
/// without any.
pub(crate) fn constants_list(trust: &PredictionTrust) -> Option<String> {
    let mut parts: Vec<String> = trust
        .constants
        .iter()
        .take(MAX_CONSTANTS)
        .map(|c| {
            let origin = c.origin.map_or("no origin", |origin| origin.name());
            format!("{} {:+.2} % ({origin})", c.key, c.elasticity)
        })
        .collect();
    if trust.constants.len() > MAX_CONSTANTS {
        parts.push(format!("{} more", trust.constants.len() - MAX_CONSTANTS));
    }
    (!parts.is_empty()).then(|| fmt::list(&parts))
}

fn constants_json(trust: Option<&PredictionTrust>) -> Value {
    let constant = |c: &DecidingConstant| json!({ "constant": c.key, "origin": c.origin, "elasticity": c.elasticity });
    trust.map_or(Value::Null, |trust| trust.constants.iter().map(constant).collect())
}

/// Prediction for an exchange by a library: rates, time, limits, and its share of the lower bound
/// for any library.
pub fn exchange(
    exchange: &ExchangeSpec,
    predicted: &ExchangeTime,
    trust: Option<&PredictionTrust>,
) -> String {
    let (alg, bus) = (fmt::number(predicted.algbw.0), fmt::number(predicted.busbw.0));
    let rate =
        if alg == bus { format!("{alg} GB/s") } else { format!("busbw {bus} GB/s (algbw {alg})") };
    let mut text = format!("{exchange}\n{rate}, done after {}", predicted.time);
    if predicted.mean != predicted.time {
        text += &format!(", {} in the mean over the ranks", predicted.mean);
    }
    text += &format!("; {}\n", predicted.algorithm);
    for step in &predicted.steps {
        text += &format!("  {step}\n");
    }
    if !predicted.bound_by.is_empty() {
        let mut full: Vec<String> = predicted.bound_by.iter().take(MAX_FULL).cloned().collect();
        if predicted.bound_by.len() > MAX_FULL {
            full.push(format!("{} more", predicted.bound_by.len() - MAX_FULL));
        }
        text += &format!("limited by {}\n", fmt::list(&full));
    }
    let bounds = &predicted.bounds;
    // Members of several nodes have no bound by copies. Of two that hold the greater one is tighter.
    let any_library = exchange.bytes >= LEAST_COPIED && bounds.latency.0 <= predicted.time.0;
    let (bound, by) = if any_library && bounds.latency.0 > bounds.flow.0 {
        (bounds.latency, "starts of the runtime's copies")
    } else {
        (bounds.flow, bounds.flow_by.as_str())
    };
    let share = bound.0 / predicted.time.0;
    text += &match share < LEAST_SHARE {
        true => format!("starts decide: the bytes alone would take {bound} ({by})\n"),
        false => {
            let share = fmt::percent(share);
            format!("{share} of the limit of any library, which takes {bound} ({by})\n")
        }
    };
    if !any_library && bounds.latency.0 > 0.0 {
        text += &format!("By the runtime's copies it would take at least {}.\n", bounds.latency);
    }
    text += &link_loads::table(&predicted.links);
    text += &match trust {
        Some(trust) => {
            let (low, high) = (predicted.time.0 * trust.faster, predicted.time.0 * trust.slower);
            format!(
                "Expected: {} to {}, as exactly as its constants are known.{}\n",
                Ns(low),
                Ns(high),
                origin_note(Some(trust))
            )
        }
        None => "No uncertainty is known for this prediction.\n".to_owned(),
    };
    text + &constants_line(trust)
}

/// The prediction of a case as JSON.
pub fn exchange_json(
    exchange: &ExchangeSpec,
    predicted: &ExchangeTime,
    trust: Option<&PredictionTrust>,
) -> Value {
    json!({
        "exchange": exchange.to_string(),
        "us": predicted.time.0 / 1e3,
        "mean_us": predicted.mean.0 / 1e3,
        "algbw_gbs": predicted.algbw.0,
        "busbw_gbs": predicted.busbw.0,
        "algorithm": predicted.algorithm,
        "steps": predicted.steps,
        "bound_by": predicted.bound_by,
        "bound_us": predicted.bounds.flow.0 / 1e3,
        "bound_from": predicted.bounds.flow_by,
        "latency_bound_us": predicted.bounds.latency.0 / 1e3,
        "levels": link_loads::levels_json(&predicted.links),
        "origin": trust.and_then(weakest),
        "known_within": trust.map(|trust| [trust.faster, trust.slower]),
        "constants": constants_json(trust),
    })
}

/// The expected result of a case as JSON. Times in us, rates in GB/s.
pub fn json(
    network: &Network,
    case: &Case,
    durations: &SetDurations,
    trust: Option<&PredictionTrust>,
) -> Value {
    let span = |span: &pathline_flow::TimeRange| {
        json!({
            "typical_us": span.typical.0 / 1e3,
            "low_us": span.low.0 / 1e3,
            "high_us": span.high.0 / 1e3,
        })
    };
    let flows: Vec<Value> = durations
        .flows
        .iter()
        .zip(&case.timed)
        .map(|(flow, of)| {
            json!({
                "flow": of.to_string(),
                "alone_gbs": flow.alone.0,
                "duration": span(&flow.time),
                "gbs": flow.rate.0,
                "bound_by": flow.bound_by,
            })
        })
        .collect();
    let uncertainty = durations.uncertainty;
    json!({
        "case": case.to_string(),
        "duration": span(&durations.set),
        "flows": flows,
        "interval_from": {
            "orders_possible": uncertainty.orders.possible,
            "orders_tried": uncertainty.orders.tried,
            "capacities": uncertainty.capacities,
            "error_p95": uncertainty.error,
        },
        "measured_from": network.measured().from,
        "origin": trust.and_then(weakest),
        "known_within": trust.map(|trust| [trust.faster, trust.slower]),
        "constants": constants_json(trust),
    })
}
