//! Summaries on a terminal.

use crate::common::shown::{figure, near};
use crate::common::*;
use pathline_explain::figure::{FigureBody, FigureCell};
use pathline_explain::run_report;
use pathline_findings::{
    ExpectedGain, Finding, FindingSeverity, GainBasis, RunAnswer, RunConclusions, SummaryTile,
};
use pathline_flow::Network;
use pathline_report::{html, terminal};
use pathline_schema::{Journal, NodeVerdict, WorldKind};

/// Widths that a screen must fit.
const WIDTHS: [usize; 5] = [72, 80, 100, 160, 200];

fn fits(text: &str, width: usize) {
    for line in text.lines() {
        assert!(line.chars().count() <= width, "{} columns: {line}", line.chars().count());
    }
}

fn summary(journal: &Journal) -> String {
    let text = terminal::summary(
        &run_report::build(journal, None),
        &RunConclusions::default(),
        100,
        false,
    );
    fits(&text, 100);
    text
}

#[test]
fn summary_of_a_host() {
    insta::assert_snapshot!(summary(&host_run()));
}

#[test]
fn summary_of_a_node() {
    insta::assert_snapshot!(summary(&mi250x_run()));
}

/// A text without colour codes.
fn bare(coloured: &str) -> String {
    let mut bare = String::new();
    let mut escaped = false;
    for c in coloured.chars() {
        match c {
            '\x1b' => escaped = true,
            'm' if escaped => escaped = false,
            c if !escaped => bare.push(c),
            _ => {}
        }
    }
    bare
}

#[test]
fn colour_changes_no_word() {
    let report = run_report::build(&mi250x_run(), None);
    let plain = terminal::summary(&report, &RunConclusions::default(), 200, false);
    let coloured = terminal::summary(&report, &RunConclusions::default(), 200, true);
    let bare = bare(&coloured);
    fits(&bare, 200);
    let tokens = |text: &str| {
        let blank = |c: char| if "▁▂▃▄▅▆▇█".contains(c) { ' ' } else { c };
        let text: String =
            text.lines().filter(|l| !l.contains("best value")).collect::<Vec<_>>().join("\n");
        text.chars()
            .map(blank)
            .collect::<String>()
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(tokens(&plain), tokens(&bare));
    for width in WIDTHS {
        fits(&terminal::summary(&report, &RunConclusions::default(), width, false), width);
    }
}

/// A fabric reported by NVML: pairs have their ceiling, GPUs their state.
#[test]
fn gpus_are_listed_with_their_links_and_clocks() {
    let journal = h200_run();
    let network = Network::from_topology(&journal.topology);
    let report = run_report::build(&journal, Some(&network));
    let labels: Vec<&str> = report.gpus.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!(labels, ["gpu0,2", "gpu1"]);
    let FigureBody::Matrix(matrix) = &figure(&report, "pairs-dma").body else { panic!() };
    let cells: Vec<&FigureCell> =
        matrix.cells.iter().flatten().filter(|c| c.value.is_some()).collect();
    // gpu0 to gpu1, over 17 links: 17 x 26.562 = 451.6 GB/s; gpu0 to gpu2, over 18: 478.1 GB/s.
    near(cells[0].ceiling, 451.6);
    near(cells[1].ceiling, 478.1);
    // 478.1 x 25 / 26.562 x 16/17 = 423.5 GB/s.
    near(cells[1].bound, 423.5);
    assert_eq!(cells[1].gpus[0], "gpu0 1980 MHz, memory 3201 MHz, 214 W, 41 °C");
    let page = html::render(&report, &RunConclusions::default(), "");
    assert!(page.contains("\"gpus\":[\"gpu0 1980 MHz"));
    assert!(page.contains("<dt>gpu1</dt><dd>NVIDIA H200: up to 1980 MHz"));
    let text = terminal::summary(&report, &RunConclusions::default(), 100, false);
    fits(&text, 100);
    insta::assert_snapshot!(text);
}

#[test]
fn an_empty_run_has_a_summary() {
    let empty = journal(WorldKind::Real, Default::default(), Vec::new());
    assert!(summary(&empty).contains("No figures."));
}

/// The maximum contents of a first screen: five findings of usual length and seven values.
fn full_conclusions() -> RunConclusions {
    let finding = |id, severity, gain| Finding {
        id,
        severity,
        observation: "24 of 56 pairs are held at 49.0-50.4 GB/s (SDMA copy, 256 MiB)".into(),
        short: "24 of 56 pairs reach 49.0-50.4 GB/s".into(),
        cause: "one SDMA engine carries a copy, however many xGMI links join the GPUs".into(),
        action: "set HSA_ENABLE_PEER_SDMA=0 for copies between these GPUs".into(),
        gain,
        cost: "compute units of the source".into(),
        by_size: None,
        places: Vec::new(),
        arms: Vec::new(),
        weight: 1.0,
        simulated: true,
    };
    let gain = ExpectedGain { factor: (1.5, 3.12), basis: GainBasis::Predicted };
    let tile = |name: &str, value, unit: &str| SummaryTile {
        name: name.into(),
        detail: "pinned to gpu0, SDMA copy, 256 MiB".into(),
        value,
        half_width: Some(0.002 * value),
        unit: unit.into(),
        share_of_peak: Some(0.79),
        share_of_model: Some(1.0),
        slowest: None,
        spark: Vec::new(),
        figure: "host-link".into(),
    };
    let names = ["H2D", "D2H", "D2D", "local", "latency", "all_reduce", "file read"];
    RunConclusions {
        verdict: RunAnswer {
            state: Some(NodeVerdict::Suspect),
            reason: "gpu2→gpu3 is 37 % below its 11 peers".into(),
            gpus: Vec::new(),
            slow: Vec::new(),
            covered: Vec::new(),
        },
        findings: vec![
            finding("a", FindingSeverity::Fault, None),
            finding("b", FindingSeverity::Gain, Some(gain.clone())),
            finding("c", FindingSeverity::Gain, Some(gain.clone())),
            finding("d", FindingSeverity::Gain, Some(gain)),
            finding("e", FindingSeverity::Note, None),
        ],
        tiles: names.map(|name| tile(name, 28.3, "GB/s")).into(),
    }
}

#[test]
fn the_first_screen_fits_a_terminal() {
    let empty = RunConclusions::default();
    for journal in [mi250x_run(), host_run(), h200_run()] {
        let report = run_report::build(&journal, None);
        for conclusions in [&full_conclusions(), &empty] {
            for width in WIDTHS {
                let text = terminal::first_screen(&report, conclusions, width, false);
                fits(&text, width);
                let lines = text.lines().count();
                // A gap, and a line for each further finding.
                assert!(lines <= 38 + 1 + 5, "{lines} lines at {width}:\n{text}");
                fits(&bare(&terminal::first_screen(&report, conclusions, width, true)), width);
            }
        }
    }
}

#[test]
fn the_first_screen_answers_first() {
    let report = run_report::build(&mi250x_run(), None);
    insta::assert_snapshot!(terminal::first_screen(&report, &full_conclusions(), 100, false));
}

/// Pairs over one, two and four links have a table of classes; one class has none, as the value says
/// the same. A slow path is marked, and red.
#[test]
fn classes_that_differ_have_a_table_and_slow_paths_a_mark() {
    let desc = pathline_flow::MachineDesc::preset("mi250x").unwrap();
    let network = Network::new(&desc, Default::default()).unwrap();
    let journal = mi250x_run();
    let report = run_report::build(&journal, Some(&network));
    let mut conclusions = full_conclusions();
    let of = |conclusions: &RunConclusions, colour| {
        terminal::first_screen(&report, conclusions, 100, colour)
    };
    let text = of(&conclusions, false);
    for class in ["xGMI, 1 link", "xGMI, 2 links", "xGMI, 4 links"] {
        assert!(text.contains(class), "{text}");
    }
    assert!(!text.contains("slower than its peers ("), "{text}");
    let slow = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB".parse().unwrap();
    conclusions.verdict.slow = vec![slow];
    conclusions.verdict.covered = conclusions.verdict.slow.clone();
    conclusions.tiles[2].slowest = Some(20.0);
    let text = of(&conclusions, false);
    assert!(text.contains("!: slower than its peers (1 pair)"), "{text}");
    assert_eq!(text.matches("!50").count() + text.matches("!49").count(), 1, "{text}");
    assert!(of(&conclusions, true).contains("\u{1b}[1;31m!"), "red");
    // Of the 8 pairs over 4 links its class has the values of 7.
    assert!(text.contains("worst") && text.contains("7+1!"), "{text}");
    // The same engine for all: one class, which the value of D2D says already.
    let mut alike = mi250x_run();
    alike.outcomes.retain(|outcome| {
        let is_dma = |f: &pathline_schema::Flow| matches!(f.by, pathline_schema::Mover::Dma { .. });
        let [flow] = outcome.case().timed.as_slice() else { return false };
        is_dma(flow) && (flow.src.unit.gpu(), flow.dst.unit.gpu()) == (Some(0), Some(1))
    });
    let report = run_report::build(&alike, Some(&network));
    let text = terminal::first_screen(&report, &full_conclusions(), 100, false);
    assert!(!text.contains("narrowest hop"), "{text}");
}

#[test]
fn columns_are_dropped_before_a_line_is_cut() {
    let report = run_report::build(&mi250x_run(), None);
    let conclusions = RunConclusions { findings: Vec::new(), ..full_conclusions() };
    let of = |width| terminal::first_screen(&report, &conclusions, width, false);
    assert!(of(100).contains("of model") && of(100).contains("of peak"));
    // 10 + 9 + 6 + 7 + 8 + 34 columns and gaps of 2 are 84: at 72 the share of the model goes first.
    assert!(!of(72).contains("of model") && of(72).contains("of peak"), "{}", of(72));
    // Its sentences are advice, too. A run with figures alone says that nothing was found.
    assert!(!of(72).contains("Nothing to act on"), "{}", of(72));
    let mut silent = report.clone();
    silent.headlines.clear();
    let text = terminal::first_screen(&silent, &conclusions, 72, false);
    assert!(text.contains("Nothing to act on was found"), "{text}");
}

#[test]
fn a_ticket_is_markdown_and_text_of_the_run_stays_text() {
    let mut report = run_report::build(&mi250x_run(), None);
    insta::assert_snapshot!(pathline_report::markdown::markdown(&report, &full_conclusions()));
    report.identity.node = "a<script>|b`c\n# d [e](f) @g".to_owned();
    report.identity.command = "x` <img>\n`".to_owned();
    let text = pathline_report::markdown::markdown(&report, &full_conclusions());
    let first = r"### pathline: a\<script\>\|b\`c \# d \[e\](f) \@g";
    assert!(text.starts_with(first), "{text}");
    // A code span takes everything as text but its own mark.
    assert!(text.ends_with("`x <img>`\n"), "{text}");
}
