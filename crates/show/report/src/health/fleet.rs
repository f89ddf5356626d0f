//! What is said of a fleet, for a terminal, Prometheus and spreadsheets.

use std::fmt::Write as _;

use pathline_diagnose::{FleetNode, FleetReport, MIN_NODES, NodeKind, SlowPlace};
use pathline_explain::fmt;
use pathline_schema::{NodeVerdict, label_text};

use super::text::{TextPage, plural};

/// Nodes that are listed of each verdict.
const SHOWN: usize = 20;

/// `gpu2→gpu3: 22 % slower, 31 deviations, since 2026-11-03T00:00:00Z (kernel: 5.14 to 6.4)`.
pub(crate) fn place_text(slow: &SlowPlace) -> String {
    let mut text = format!(
        "{}: {} slower than other nodes, {:.0} deviations",
        slow.place,
        fmt::percent(slow.loss),
        slow.deviations
    );
    if let Some(since) = &slow.since {
        let _ = write!(text, ", since {since}");
    }
    if !slow.changed.is_empty() {
        let _ = write!(text, " ({})", slow.changed.join("; "));
    }
    text
}

/// What is said of a node in one line.
pub(crate) fn node_text(node: &FleetNode) -> String {
    let places = node.slow.iter().map(place_text);
    places.chain(node.why.clone()).collect::<Vec<_>>().join("; ")
}

/// The answer in one line.
pub(crate) fn fleet_verdict(report: &FleetReport) -> String {
    let all = report.nodes.len();
    let count = |verdict: NodeVerdict| report.count(verdict);
    let (fail, suspect) = (count(NodeVerdict::Fail), count(NodeVerdict::Suspect));
    let undecided = match count(NodeVerdict::Undecided) {
        0 => String::new(),
        n => format!("; {n} could not be compared"),
    };
    let undecided = match report.unanswered.len() {
        0 => undecided,
        n => format!("{undecided}; {} did not answer in time", plural(n, "rank")),
    };
    let word = report.verdict().word();
    let is_compared = |node: &&FleetNode| {
        let kind = node.kind.and_then(|at| report.kinds.get(at));
        kind.is_some_and(|kind| kind.nodes >= MIN_NODES) && node.verdict != NodeVerdict::Undecided
    };
    let compared = report.nodes.iter().filter(is_compared).count();
    match (fail + suspect, all - count(NodeVerdict::Undecided)) {
        (0, 1..) if compared == 0 => format!(
            "{word}: {} by the check of each; fewer than {MIN_NODES} with the same parts are not compared{undecided}",
            plural(all, "node")
        ),
        (_, 0) => format!("{word}: none of {} could be compared", plural(all, "node")),
        (0, _) => {
            format!("{word}: none of {compared} compared nodes is slower than its kind{undecided}")
        }
        (ill, _) => format!("{word}: {ill} of {} ill{undecided}", plural(all, "node")),
    }
}

fn kind_text(kind: &NodeKind) -> String {
    let mut text = format!("{}, {}", plural(kind.nodes, "node"), plural(kind.paths, "path"));
    if !kind.facts.is_empty() {
        let _ = write!(text, ": {}", kind.facts.join("; "));
    }
    let seen = kind.visible.iter().filter(|(place, _)| place != "all paths");
    let seen: Vec<String> =
        seen.map(|(place, loss)| format!("{} of {place}", fmt::percent(*loss))).collect();
    if !seen.is_empty() {
        let _ = write!(text, ". Losses from here on are seen: {}", seen.join(", "));
    }
    text
}

/// The answer, the ill nodes, what could not be compared, the kinds; within `width` columns.
pub fn text(report: &FleetReport, width: usize) -> String {
    let mut page = TextPage::new(width);
    page.lines("", &fleet_verdict(report));
    for verdict in [NodeVerdict::Fail, NodeVerdict::Suspect, NodeVerdict::Undecided] {
        let nodes = || report.nodes.iter().filter(move |node| node.verdict == verdict);
        for node in nodes().take(SHOWN) {
            let line = format!("{}: {}", node.host, node_text(node));
            page.paragraph(&verdict.word().to_lowercase(), &line);
        }
        let more = nodes().count().saturating_sub(SHOWN);
        if more > 0 {
            page.paragraph("", &format!("and {more} more (--format json lists them)"));
        }
    }
    let earlier = report.nodes.iter().filter(|node| node.verdict == NodeVerdict::Ok);
    for (node, why) in earlier.filter_map(|node| Some((node, node.why.as_ref()?))).take(SHOWN) {
        page.paragraph("earlier", &format!("{}: {why}", node.host));
    }
    if report.nodes.iter().any(|node| node.results > 1) {
        let results: usize = report.nodes.iter().map(|node| node.results).sum();
        let count = report.nodes.len();
        page.paragraph(
            "results",
            &format!("{results} of {count} nodes by name: the latest of each counts"),
        );
    }
    if !report.unanswered.is_empty() {
        let ranks = report.unanswered.iter().take(SHOWN).map(u32::to_string).collect::<Vec<_>>();
        let more = if report.unanswered.len() > SHOWN { ", ..." } else { "" };
        page.paragraph("missing", &format!("ranks {}{more}", ranks.join(", ")));
    }
    for (nth, kind) in report.kinds.iter().enumerate() {
        page.paragraph(if nth == 0 { "kinds" } else { "" }, &kind_text(kind));
        kind.gaps.iter().for_each(|gap| page.paragraph("", gap));
    }
    if report.count(NodeVerdict::Suspect) > 0 {
        page.paragraph(
            "do",
            "run `pathline health` again on nodes that are suspect: two results that agree decide",
        );
    }
    page.text
}

/// For Prometheus: the verdict and losses of each node.
pub fn prometheus(report: &FleetReport) -> String {
    let mut text = String::from(
        "# HELP pathline_fleet_state The verdict on a node: 1 for the state that holds.\n\
         # TYPE pathline_fleet_state gauge\n",
    );
    let label = |node: &FleetNode| format!("node=\"{}\"", label_text(&node.host));
    for node in &report.nodes {
        for verdict in NodeVerdict::ALL {
            let (state, holds) = (verdict.word().to_lowercase(), node.verdict == verdict);
            let _ = writeln!(
                text,
                "pathline_fleet_state{{{},state=\"{state}\"}} {}",
                label(node),
                u8::from(holds)
            );
        }
    }
    text += "# HELP pathline_fleet_loss_ratio Share of speed lost against the kind.\n\
             # TYPE pathline_fleet_loss_ratio gauge\n";
    for (node, place, loss) in losses(report) {
        let (node, place) = (label(node), label_text(place));
        let _ = writeln!(text, "pathline_fleet_loss_ratio{{{node},place=\"{place}\"}} {loss:.5}");
    }
    text
}

/// A row a node: `host,started,results,kind,verdict,why`, then the share of speed lost by place.
pub fn csv(report: &FleetReport) -> String {
    let places: Vec<&str> = report
        .kinds
        .first()
        .map_or(Vec::new(), |kind| kind.visible.iter().map(|(place, _)| place.as_str()).collect());
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut text = String::from("host,started,results,kind,verdict,why");
    places.iter().for_each(|place| text.extend([",", &quoted(place)]));
    text.push('\n');
    for node in &report.nodes {
        let row = [
            quoted(&node.host),
            node.started.clone(),
            node.results.to_string(),
            node.kind.map_or(String::new(), |kind| kind.to_string()),
            node.verdict.word().to_owned(),
            quoted(&node_text(node)),
        ];
        text += &row.join(",");
        let of_kind =
            node.kind.and_then(|at| report.kinds.get(at)).map_or(&[][..], |kind| &kind.visible);
        for place in &places {
            let at = of_kind.iter().position(|(name, _)| name == place);
            let loss = at.and_then(|at| node.losses.get(at).copied().flatten());
            let _ = write!(text, ",{}", loss.map_or(String::new(), |loss| format!("{loss:.5}")));
        }
        text.push('\n');
    }
    text
}

/// The loss of each node in each place that its kind has.
fn losses(report: &FleetReport) -> impl Iterator<Item = (&FleetNode, &str, f64)> {
    report.nodes.iter().flat_map(|node| {
        let places =
            node.kind.and_then(|at| report.kinds.get(at)).map_or(&[][..], |kind| &kind.visible);
        let known = places.iter().zip(&node.losses);
        known.filter_map(move |((place, _), loss)| Some((node, place.as_str(), (*loss)?)))
    })
}
