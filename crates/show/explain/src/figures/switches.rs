//! Effects of UCX settings: on the protocols that UCX reports, and on the measured rates.

use std::collections::BTreeSet;

use pathline_schema::{Bytes, SuiteId, Transport, UcxSetting, WireOp};

use super::sent_flows::{self, SendKind, SentFlow, memory};
use super::{BetterWhen, Figure, SuiteFindings, frame, grid, is_apart};
use crate::fmt;
use crate::run::{CaseQuantity, EntryState, RunView};

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
    let quantity = if sends { CaseQuantity::Payload } else { CaseQuantity::StepUs };
    let better = if sends { BetterWhen::Higher } else { BetterWhen::Lower };
    let find = |switch: Option<UcxSetting>, size: Bytes| {
        chosen.iter().find(|s| s.wire.switch == switch && s.size() == size).copied()
    };
    let measured = |s: &&&SentFlow| matches!(s.entry.state, EntryState::Sampled(_));
    let sizes: BTreeSet<Bytes> = chosen.iter().filter(measured).map(|s| s.size()).collect();
    let rows: BTreeSet<Option<UcxSetting>> =
        chosen.iter().filter(measured).map(|s| s.wire.switch).collect();
    let absent: BTreeSet<UcxSetting> =
        chosen.iter().filter_map(|s| s.wire.switch).filter(|s| !rows.contains(&Some(*s))).collect();
    let (sizes, rows): (Vec<Bytes>, Vec<Option<UcxSetting>>) =
        (sizes.into_iter().collect(), rows.into_iter().collect());
    let cell =
        |switch, size| find(switch, size).map(|s| run.cell(s.entry, quantity)).unwrap_or_default();
    let changes = |switch: UcxSetting| -> Vec<SettingChange> {
        let change = |&size: &Bytes| {
            let (with, without) = (find(Some(switch), size)?, find(None, size)?);
            let protocol = protocols_of(with) != protocols_of(without);
            let (new, old) = (cell(Some(switch), size), cell(None, size));
            let ratio = new.value? / old.value?;
            let real = is_apart(&new, &old) && (ratio - 1.0).abs() >= CHANGE;
            let ratio = if better == BetterWhen::Higher { ratio } else { 1.0 / ratio };
            Some(SettingChange { size, protocol, gain: real.then_some(ratio) })
        };
        sizes.iter().filter_map(change).collect()
    };
    let found: Vec<(UcxSetting, Vec<SettingChange>)> =
        rows.iter().flatten().map(|&switch| (switch, changes(switch))).collect();
    let finding = finding(&found, &absent, &inert(run));
    let label = |switch: Option<UcxSetting>| {
        switch.map_or_else(
            || "as started".to_owned(),
            |s| format!("{s} ({}={})", s.setting().0, s.setting().1),
        )
    };
    let matrix = grid(
        ("switch", &rows),
        ("size", &sizes),
        (quantity.unit(), better),
        (label, |size: Bytes| size.to_string()),
        cell,
    );
    let library = run.library(Transport::Ucx);
    let what = if sends { "bandwidth of message windows" } else { "time of a message one way" };
    (!rows.is_empty()).then(|| {
        frame(
            run,
            (SUITE, ""),
            format!("ucx-switches-{}-{}", if sends { "rate" } else { "latency" }, kind.id()),
            format!("{library}: what its switches change, {what}, {}", memory(kind)),
        )
        .finding(finding)
        .draw(matrix)
    })
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
    absent: &BTreeSet<UcxSetting>,
    inert: &[String],
) -> String {
    let mut texts = Vec::new();
    let of = |wanted: &dyn Fn(&[SettingChange]) -> bool| -> Vec<String> {
        let all = found.iter().filter(|(_, changes)| !changes.is_empty() && wanted(changes));
        all.map(|(switch, _)| switch.to_string()).collect()
    };
    texts.extend(extreme(found, true).map(|most| format!("Most gained: {most}.")));
    texts.extend(extreme(found, false).map(|most| format!("Most lost: {most}.")));
    let still = |changes: &[SettingChange]| changes.iter().all(|c| c.gain.is_none());
    let same_protocol = |changes: &[SettingChange]| changes.iter().all(|c| !c.protocol);
    let mut add = |names: Vec<String>, text: &str| {
        if !names.is_empty() {
            texts.push(format!("{text}: {}.", fmt::list(&names)));
        }
    };
    add(of(&|c| still(c) && same_protocol(c)), "Accepted, changes nothing");
    add(of(&|c| still(c) && !same_protocol(c)), "Another protocol, as fast");
    add(
        of(&|c| !still(c) && same_protocol(c)),
        "The same protocol according to UCX at another rate, so that UCX does not report everything or \
         the machine was not steady",
    );
    let absent: Vec<String> = absent.iter().map(UcxSetting::to_string).collect();
    add(absent, "Unknown to this UCX, or already set");
    add(inert.to_vec(), "Without effect, since this build does not have it");
    texts.join(" ")
}

/// The greatest gain or loss with disjoint intervals: `rndv-put, 1.31 times at 1MiB`.
fn extreme(found: &[(UcxSetting, Vec<SettingChange>)], gains: bool) -> Option<String> {
    let all = found.iter().flat_map(|(s, changes)| changes.iter().map(move |c| (s, c)));
    let all = all.filter_map(|(s, c)| Some((s, c, c.gain.filter(|&g| (g > 1.0) == gains)?)));
    let order = |a: f64, b: f64| if gains { a.total_cmp(&b) } else { b.total_cmp(&a) };
    let (switch, change, gain) = all.max_by(|a, b| order(a.2, b.2))?;
    let by =
        if change.protocol { "another protocol" } else { "the same protocol according to UCX" };
    Some(format!("{switch}, {} times at {} ({by})", fmt::number(gain), change.size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_a_build_does_not_have_are_named() {
        let inert = ["UCX_NT_BUFFER_TRANSFER_MIN".to_owned()];
        let text = finding(&[], &BTreeSet::new(), &inert);
        let expected = "Without effect, since this build does not have it";
        assert_eq!(text, format!("{expected}: UCX_NT_BUFFER_TRANSFER_MIN."));
        assert_eq!(finding(&[], &BTreeSet::new(), &[]), "");
    }
}
