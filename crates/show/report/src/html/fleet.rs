//! The page of a fleet: the nodes that are ill, the kinds, and a row a node.

use pathline_diagnose::{FleetReport, NodeKind};
use pathline_schema::NodeVerdict;

use super::build::HtmlBuilder;
use super::data::PageData;
use super::page::{document, write_line};
use crate::health::fleet::{fleet_verdict, node_text};

/// Rows of sound nodes; further ones are in the other formats.
const MAX_SOUND: usize = 20_000;

/// Renders a fleet. Ill nodes come first.
pub fn page(report: &FleetReport) -> String {
    let title = format!("{} nodes compared with each other", report.nodes.len());
    document(&title, &PageData::default(), |h| {
        h.el("main", &[("id", &"content"), ("class", &"top")], |h| {
            h.leaf("h1", &[], &title);
            h.leaf("p", &[("class", &"lead")], fleet_verdict(report));
            h.el("ul", &[("class", &"headlines")], |h| {
                for kind in &report.kinds {
                    write_line(
                        h,
                        "plain",
                        &format!("{} nodes: {}", kind.nodes, kind.facts.join("; ")),
                    );
                    kind.gaps.iter().for_each(|gap| write_line(h, "warn", gap));
                }
            });
            let untimed: Vec<_> = report.nodes.iter().filter(|node| node.kind.is_none()).collect();
            if !untimed.is_empty() {
                h.leaf("h2", &[], "Nodes without times");
                let rows = untimed.into_iter().map(|node| {
                    vec![node.host.clone(), node.verdict.word().to_owned(), node_text(node)]
                });
                h.table("rows compared", &[("node", ""), ("verdict", ""), ("what", "words")], rows);
            }
            for (nth, kind) in report.kinds.iter().enumerate() {
                h.leaf("h2", &[], format!("{} nodes with the same parts", kind.nodes));
                write_nodes(h, report, nth, kind);
            }
        });
    })
}

fn write_nodes(h: &mut HtmlBuilder, report: &FleetReport, nth: usize, kind: &NodeKind) {
    let mut columns = vec![("node", ""), ("verdict", ""), ("what", "words"), ("results", "n")];
    columns.extend(kind.visible.iter().map(|(place, _)| (place.as_str(), "n")));
    let of_kind = report.nodes.iter().filter(|node| node.kind == Some(nth));
    let mut sound = 0;
    let rows = of_kind.filter(|node| {
        sound += usize::from(node.verdict == NodeVerdict::Ok);
        node.verdict != NodeVerdict::Ok || sound <= MAX_SOUND
    });
    let rows = rows.map(|node| {
        let mut row = vec![
            node.host.clone(),
            node.verdict.word().to_owned(),
            node_text(node),
            node.results.to_string(),
        ];
        // A loss of speed is below 0.
        row.extend(
            node.losses
                .iter()
                .map(|loss| loss.map_or(String::new(), |loss| format!("{:+.1} %", -100.0 * loss))),
        );
        row
    });
    h.table("rows compared", &columns, rows);
}
