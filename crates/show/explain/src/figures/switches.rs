//! Effects of UCX settings: on the protocols that UCX reports, and on the measured rates.

use std::collections::BTreeSet;

use pathline_schema::{Bytes, SuiteId, Transport, UcxSetting, WireOp};

use super::pivot::CellPivot;
use super::sent_flows::{self, SendKind, SentFlow, memory};
use super::{BetterWhen, Figure, SuiteFindings, frame, is_apart, sorted};
use crate::fmt;
use crate::run::{CaseQuantity, RunView};

const SUITE: SuiteId = SuiteId::UcxSwitches;
/// Minimum relative change between medians, however narrow their intervals: other cases of a group
/// differ by as much from one visit to the next.
const CHANGE: f64 = 0.05;

/// Effect of a setting at one size.
struct SettingChange {
    size: Bytes,
    /// Whether UCX reports a different protocol.
    protocol: bool,
    /// Gain over the default, if the intervals are disjoint.
    gain: Option<f64>,
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    SuiteFindings::new(figures(run), [])
}

fn figures(run: &RunView) -> Vec<Figure> {
    let all = sent_flows::in_suite(run, SUITE);
    let kinds: BTreeSet<(bool, SendKind)> =
        all.iter().map(|s| (s.wire.op != WireOp::Ping, s.kind())).collect();
    kinds.into_iter().filter_map(|(sends, kind)| figure(run, &all, sends, kind)).collect()
}

fn figure(run: &RunView, all: &[SentFlow<'_, '_>], sends: bool, kind: SendKind) -> Option<Figure> {
    let chosen: Vec<&SentFlow> =
        all.iter().filter(|s| (s.wire.op != WireOp::Ping) == sends && s.kind() == kind).collect();
    let (quantity, form, what) = match sends {
        true => (CaseQuantity::Payload, "rate", "bandwidth of message windows"),
        false => (CaseQuantity::StepUs, "latency", "time of a message one way"),
    };
    let unit = quantity.rating();
    let measured = || chosen.iter().filter(|s| s.entry.is_sampled());
    let (sizes, rows) =
        (sorted(measured().map(|s| s.size())), sorted(measured().map(|s| s.wire.switch)));
    let absent = chosen.iter().filter(|s| !rows.contains(&s.wire.switch));
    let absent = sorted(absent.filter_map(|s| s.wire.switch));
    let points = chosen.iter().map(|s| (s.wire.switch, s.size(), run.cell(s.entry, quantity)));
    let pivot = CellPivot::new(points).with(&rows, &sizes);
    let find = |switch: Option<UcxSetting>, size: Bytes| {
        chosen.iter().find(|s| s.wire.switch == switch && s.size() == size)
    };
    let changes = |switch: UcxSetting| -> Vec<SettingChange> {
        let change = |&size: &Bytes| {
            let (with, without) = (find(Some(switch), size)?, find(None, size)?);
            let protocol = protocols_of(with) != protocols_of(without);
            let (new, old) = (pivot.cell(&Some(switch), &size), pivot.cell(&None, &size));
            let ratio = new.value? / old.value?;
            let real = is_apart(&new, &old) && (ratio - 1.0).abs() >= CHANGE;
            let ratio = if unit.1 == BetterWhen::Higher { ratio } else { 1.0 / ratio };
            Some(SettingChange { size, protocol, gain: real.then_some(ratio) })
        };
        sizes.iter().filter_map(change).collect()
    };
    let found: Vec<(UcxSetting, Vec<SettingChange>)> =
        rows.iter().flatten().map(|&switch| (switch, changes(switch))).collect();
    let label = |switch: &Option<UcxSetting>| match switch {
        None => "as started".to_owned(),
        Some(s) => format!("{s} ({}={})", s.setting().0, s.setting().1),
    };
    let matrix = pivot.matrix(("switch", label), ("size", Bytes::to_string), unit);
    let title = format!(
        "{}: what its switches change, {what}, {}",
        run.library(Transport::Ucx),
        memory(kind)
    );
    let framed = frame(run, (SUITE, ""), format!("ucx-switches-{form}-{}", kind.id()), title);
    let finding = finding(&found, &absent, &inert(run));
    (!rows.is_empty()).then(|| framed.finding(finding).draw(matrix))
}

/// Protocols that UCX reports for an operation, without the setting and its own time estimate.
fn protocols_of(sent: &SentFlow<'_, '_>) -> BTreeSet<String> {
    let one = |text: &str| {
        let text = text.split_once(": ").map_or(text, |(_, rest)| rest);
        match (text.find(" (expects "), text.find(" us)")) {
            (Some(from), Some(to)) if from < to => format!("{}{}", &text[..from], &text[to + 4..]),
            _ => text.to_owned(),
        }
    };
    sent.entry.engine().split(" | ").map(one).collect()
}

/// Variables that the UCX of this run does not have, as its first rank describes it.
fn inert(run: &RunView) -> Vec<String> {
    let ranks = &run.journal.begin.ranks;
    let text = ranks.iter().find_map(|m| m.ways.get(&Transport::Ucx));
    let names = text.and_then(|text| text.split_once(UcxSetting::INERT)).map_or("", |cut| cut.1);
    names.split_whitespace().map(str::to_owned).collect()
}

fn finding(
    found: &[(UcxSetting, Vec<SettingChange>)],
    absent: &[UcxSetting],
    inert: &[String],
) -> String {
    let of = |wanted: &dyn Fn(&[SettingChange]) -> bool| -> Vec<String> {
        let all = found.iter().filter(|(_, changes)| !changes.is_empty() && wanted(changes));
        all.map(|(switch, _)| switch.to_string()).collect()
    };
    let still = |changes: &[SettingChange]| changes.iter().all(|c| c.gain.is_none());
    let same_protocol = |changes: &[SettingChange]| changes.iter().all(|c| !c.protocol);
    let extreme = |what, gains| Some(format!("{what}: {}.", extreme(found, gains)?));
    let named = |text, names: Vec<String>| Some(format!("{text}: {}.", fmt::list_any(names)?));
    let texts = [
        extreme("Most gained", true),
        extreme("Most lost", false),
        named("Accepted, changes nothing", of(&|c| still(c) && same_protocol(c))),
        named("Another protocol, as fast", of(&|c| still(c) && !same_protocol(c))),
        named(
            "The same protocol according to UCX at another rate, so that UCX does not report everything or \
             the machine was not steady",
            of(&|c| !still(c) && same_protocol(c)),
        ),
        named(
            "Unknown to this UCX, or already set",
            absent.iter().map(UcxSetting::to_string).collect(),
        ),
        named("Without effect, since this build does not have it", inert.to_vec()),
    ];
    fmt::join_any(texts.into_iter().flatten(), " ").unwrap_or_default()
}

/// The greatest gain or loss with disjoint intervals: `rndv-put, 1.31 times at 1MiB`.
fn extreme(found: &[(UcxSetting, Vec<SettingChange>)], gains: bool) -> Option<String> {
    let all = found.iter().flat_map(|(s, changes)| changes.iter().map(move |c| (s, c)));
    let all = all.filter_map(|(s, c)| Some((s, c, c.gain.filter(|&g| (g > 1.0) == gains)?)));
    let order = |a: f64, b: f64| if gains { a.total_cmp(&b) } else { b.total_cmp(&a) };
    let (switch, change, gain) = all.max_by(|a, b| order(a.2, b.2))?;
    let protocol = if change.protocol { "another" } else { "the same" };
    let by = if change.protocol { "" } else { " according to UCX" };
    let (times, size) = (fmt::number(gain), change.size);
    Some(format!("{switch}, {times} times at {size} ({protocol} protocol{by})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_a_build_does_not_have_are_named() {
        let inert = ["UCX_NT_BUFFER_TRANSFER_MIN".to_owned()];
        let text = finding(&[], &[], &inert);
        let expected = "Without effect, since this build does not have it";
        assert_eq!(text, format!("{expected}: UCX_NT_BUFFER_TRANSFER_MIN."));
        assert_eq!(finding(&[], &[], &[]), "");
    }
}
