//! A comparison of runs as JSON.

use pathline_explain::diff::{DiffRow, RunDiff, SideIdentity, TopologyChange};
use serde_json::{Value, json};

/// Version of the format; incremented when an older reader would misread a newer file.
const FORMAT: u32 = 1;

/// A comparison as JSON: both sides, groups of changes, noise by class, and every case. Ratios are
/// speed after divided by speed before; 1.1 is 10 % faster.
pub fn json(diff: &RunDiff) -> Value {
    let [before, after] = &diff.sides;
    let groups: Vec<Value> = diff
        .groups
        .iter()
        .map(|group| {
            json!({
                "change": group.change.word(),
                "place": group.place,
                "changed": group.changed,
                "compared": group.compared,
                "ratio": group.effect,
                "range": [group.range.0, group.range.1],
            })
        })
        .collect();
    let noise: Vec<Value> = diff
        .noise
        .iter()
        .map(|class| {
            json!({
                "class": class.class,
                "cases": class.cases,
                "deviation": class.deviation,
                "origin": class.origin,
                "visible": class.visible,
                "runs_for_10_percent": class.runs_for_ten,
            })
        })
        .collect();
    json!({
        "format": FORMAT,
        "worse": diff.is_worse(),
        "tolerance": diff.tolerance,
        "before": side(before),
        "after": side(after),
        "false_discovery_rate": diff.judged.rate,
        "compared": diff.compared(),
        "part": diff.part,
        "topology": diff.topology.iter().map(TopologyChange::text).collect::<Vec<_>>(),
        "action": diff.action,
        "groups": groups,
        "noise": noise,
        "rejected": diff.rejected,
        "cases": diff.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn side(side: &SideIdentity) -> Value {
    json!({
        "runs": side.runs,
        "host": side.host,
        "gpus": side.gpus,
        "driver": side.driver,
        "version": side.version,
        "started": [side.started.0, side.started.1],
        "cut": side.cut,
    })
}

fn row(row: &DiffRow) -> Value {
    // A ratio with divisor zero is not a number, which JSON cannot represent.
    let ratio = row.effect.filter(|(ratio, ..)| ratio.is_finite());
    json!({
        "case": row.case.to_string(),
        "change": row.change.word(),
        "unit": row.unit,
        "before": row.a,
        "after": row.b,
        "ratio": ratio.map(|(ratio, ..)| ratio),
        "ratio_low95": ratio.map(|(_, low, _)| low).filter(|low| low.is_finite()),
        "ratio_high95": ratio.map(|(.., high)| high).filter(|high| high.is_finite()),
        "visible": Some(row.visible).filter(|visible| visible.is_finite()),
        "samples": [row.samples.0, row.samples.1],
        "runs": [row.runs.0, row.runs.1],
        "why": row.why,
    })
}
