//! Summaries on a terminal.

use crate::common::shown::{figure, near};
use crate::common::*;
use pathline_explain::figure::{FigureBody, FigureCell};
use pathline_explain::run_report;
use pathline_findings::RunConclusions;
use pathline_flow::Network;
use pathline_report::{html, terminal};
use pathline_schema::{Journal, WorldKind};

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

#[test]
fn colour_changes_no_word() {
    let report = run_report::build(&mi250x_run(), None);
    let plain = terminal::summary(&report, &RunConclusions::default(), 100, false);
    let coloured = terminal::summary(&report, &RunConclusions::default(), 100, true);
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
    fits(&bare, 100);
    let words = |text: &str| {
        let blank = |c: char| if "▁▂▃▄▅▆▇█".contains(c) { ' ' } else { c };
        let text: String =
            text.lines().filter(|l| !l.contains("latency: best")).collect::<Vec<_>>().join("\n");
        text.chars()
            .map(blank)
            .collect::<String>()
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(words(&plain), words(&bare));
    for width in [60, 80, 120] {
        fits(&terminal::summary(&report, &RunConclusions::default(), width, false), width);
    }
}

/// A fabric that NVML showed: pairs have their ceiling, GPUs their state.
#[test]
fn gpus_that_were_read_are_told_with_their_links_and_clocks() {
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
    let page = html::render(&report, &RunConclusions::default(), &journal.topology, "");
    assert!(page.contains("while it ran: gpu0 1980 MHz"));
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
