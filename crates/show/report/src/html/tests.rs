//! Tests of whole pages.

pub(super) mod example;

use pathline_findings::RunConclusions;
use pathline_schema::Conditions;

use super::render;
use example::assert_balanced;
use pathline_explain::figure::{
    CurvesBody, Figure, FigureBody, FigureCell, MatrixBody, RunIdentity, RunReport, RunWarning,
};

const MAP: &str = "<svg viewBox=\"0 0 60 10\"><rect width=\"10\" height=\"10\"/></svg>";

fn node_page() -> String {
    let report = example::node();
    render(&report, &RunConclusions::default(), MAP)
}

/// The data of a page, as its script reads it.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("type=\"application/json\">").expect("data");
    let (text, _) = rest.split_once("</script>").expect("an end");
    serde_json::from_str(text).expect("JSON")
}

/// What reads without scripts: everything before the data.
fn body(page: &str) -> &str {
    let (head, _) = page.split_once("<div id=\"tip\"").expect("a tip");
    &head[head.find("<body>").expect("a body")..]
}

#[test]
fn every_part_of_a_report_is_on_its_page() {
    let page = node_page();
    let parts = [
        "<title>SIMULATED, MI250X node, eight GCDs - pathline</title>",
        "Every figure on this page comes from the model of mi250x.",
        "The run ended before its plan did",
        "Filter: gpu3, SDMA",
        "<rect width=\"10\" height=\"10\"/>",
        "<code>pathline run pairs</code>",
        "Two modes, 10.1 and 14.6 GB/s",
        "Every link claims a count of 1",
        "HSA_XNACK",
        "1 GB/s = 10<sup>9</sup> B/s",
        "Look closer: ",
        "Copyright (c) 2022 Leon Sorokin",
    ];
    for part in parts {
        assert!(page.contains(part), "{part}");
    }
    assert_balanced(&page);
    let report = example::node();
    let figures = &data(&page)["runs"][0]["figures"];
    assert_eq!(figures.as_array().unwrap().len(), report.figures.len());
    assert_eq!(figures[1]["cells"][0]["case"], "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB");
    assert_eq!(data(&page)["runs"][0]["simulated"], true);
}

/// Values and labels of all figures, in tables without cases.
#[test]
fn without_scripts_every_value_stands_in_a_table() {
    let report = example::node();
    let page = render(&report, &RunConclusions::default(), MAP);
    let (_, rest) = page.split_once("<noscript>").unwrap();
    let (tables, _) = rest.split_once("</noscript>").unwrap();
    let mut cells = 0;
    for figure in &report.figures {
        let (_, rest) = tables.split_once(&format!("<h3>{}</h3>", figure.title)).unwrap();
        let (table, _) = rest.split_once("</table>").unwrap();
        for cell in pathline_findings::DerivedFigure::new(figure, &[]).cells {
            let value = cell.value.map_or("–".to_owned(), super::number::num);
            assert!(table.contains(&format!("<td class=\"n\">{value}")), "{}: {cell:?}", figure.id);
            assert!(table.contains(&pathline_schema::markup_text(&cell.row)), "{cell:?}");
            assert!(table.contains(&pathline_schema::markup_text(&cell.column)), "{cell:?}");
            cells += 1;
        }
        assert!(tables.contains(&format!("<code>{}</code>", figure.command)));
    }
    assert!(cells > 100, "{cells}");
}

#[test]
fn a_run_on_hardware_has_no_banner() {
    let report = example::host();
    let page = render(&report, &RunConclusions::default(), "");
    assert!(!body(&page).to_lowercase().contains("simulated"));
    assert!(!body(&page).contains("class=\"banner"));
    assert_balanced(&page);
}

#[test]
fn the_page_asks_for_nothing() {
    for report in [example::host(), example::node()] {
        let page = render(&report, &RunConclusions::default(), MAP);
        // A comment of the library names where it comes from.
        let own = page.replace("/*! https://github.com/leeoniya/uPlot", "");
        for word in ["http://", "https://", " src=", "@import", "url(", "<link", "<iframe"] {
            assert!(!own.contains(word), "{word}");
        }
        let inside = page.matches("href=\"").count();
        assert_eq!(page.matches("href=\"#").count(), inside, "links stay on the page");
        assert!(page.contains("default-src &#39;none&#39;"));
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!super::page::SCRIPT.concat().contains(word), "{word}");
        }
    }
}

#[test]
fn anchors_exist_and_are_unique() {
    let page = node_page();
    let values = |name: &str| -> Vec<String> {
        let parts = body(&page).split(name).skip(1);
        parts.filter_map(|p| Some(p.split_once('"')?.0.to_owned())).collect()
    };
    let ids = values(" id=\"");
    let mut unique = ids.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "{ids:?}");
    for target in values("href=\"#") {
        assert!(ids.contains(&target), "{target}");
    }
}

#[test]
fn the_same_report_gives_the_same_bytes() {
    assert_eq!(node_page(), node_page());
}

const HOSTILE: &str =
    "</style></script><script>alert(1)</script>\"'><img onerror=alert(1)>&\u{202e}";

/// Replaces every text of a report except cases.
fn poison(report: &mut RunReport) {
    let bad = || HOSTILE.to_owned();
    report.title = bad();
    report.simulated = Some(bad());
    report.warnings = vec![RunWarning { code: bad(), subject: bad(), text: bad() }];
    report.conditions = vec![(bad(), bad())];
    let readings = || Conditions([(bad(), 1.0)].into());
    report.state = Some((readings(), readings()));
    report.headlines.iter_mut().for_each(|h| h.text = bad());
    report.absences.iter_mut().for_each(|a| a.why = bad());
    report.figures.iter_mut().for_each(poison_figure);
}

fn poison_figure(figure: &mut Figure) {
    let bad = || HOSTILE.to_owned();
    for text in [
        &mut figure.id,
        &mut figure.suite,
        &mut figure.title,
        &mut figure.finding,
        &mut figure.command,
    ] {
        *text = bad();
    }
    match &mut figure.body {
        FigureBody::Matrix(m) => {
            (m.unit, m.row_axis, m.col_axis) = (bad(), bad(), bad());
            m.rows.iter_mut().chain(&mut m.cols).for_each(|label| *label = bad());
            m.cells.iter_mut().flatten().for_each(poison_cell);
        }
        FigureBody::Curves(c) => {
            (c.x_unit, c.y_unit) = (bad(), bad());
            c.ceilings = vec![(bad(), 31.0)];
            c.marks = vec![(65536.0, bad())];
            for line in &mut c.lines {
                line.name = bad();
                line.points.iter_mut().for_each(|(_, cell)| poison_cell(cell));
            }
        }
        FigureBody::Bars(b) => {
            b.unit = bad();
            for bar in &mut b.bars {
                bar.label = bad();
                poison_cell(&mut bar.cell);
            }
        }
        FigureBody::Sheet(s) => {
            s.row_axis = bad();
            for column in &mut s.columns {
                (column.name, column.unit) = (bad(), bad());
            }
            for (label, cells) in &mut s.rows {
                *label = bad();
                cells.iter_mut().for_each(poison_cell);
            }
        }
        FigureBody::Stacks(s) => {
            s.whole = bad();
            for stack in &mut s.stacks {
                stack.label = bad();
                for part in &mut stack.parts {
                    (part.name, part.detail) = (bad(), bad());
                    poison_cell(&mut part.cell);
                }
            }
        }
        FigureBody::Panels(p) => {
            (p.x_unit, p.y_unit) = (bad(), bad());
            for panel in &mut p.panels {
                panel.name = bad();
                panel.levels = vec![(bad(), 31.0)];
                for line in &mut panel.lines {
                    line.name = bad();
                    line.points.iter_mut().for_each(|(_, cell)| poison_cell(cell));
                }
            }
        }
        FigureBody::Gaps(g) => {
            (g.unit, g.base, g.other) = (bad(), bad(), bad());
            (g.row_axis, g.col_axis) = (bad(), bad());
            g.rows.iter_mut().chain(&mut g.cols).for_each(|label| *label = bad());
            for (name, rows) in &mut g.panels {
                *name = bad();
                for gap in rows.iter_mut().flatten() {
                    gap.saturated = Some(bad());
                    poison_cell(&mut gap.cell);
                }
            }
        }
    }
}

fn poison_cell(cell: &mut FigureCell) {
    if let Some(p) = &mut cell.published {
        p.source = HOSTILE.to_owned();
    }
    if let Some(why) = &mut cell.absent {
        *why = HOSTILE.to_owned();
    }
}

#[test]
fn hostile_texts_stay_texts() {
    for mut report in [example::host(), example::node()] {
        poison(&mut report);
        let page = render(&report, &RunConclusions::default(), MAP);
        assert_eq!(page.matches("<script>").count(), 2, "the library and our own script");
        assert_eq!(page.matches("<script").count(), 3, "and the data");
        assert_eq!(page.matches("</style>").count(), 1);
        assert!(!page.contains("<img") && !page.contains('\u{202e}'));
        assert!(body(&page).matches("&lt;script&gt;alert(1)&lt;/script&gt;").count() > 50);
        let title = &data(&page)["runs"][0]["figures"][0]["title"];
        assert_eq!(title.as_str(), Some(HOSTILE.replace('\u{202e}', "\u{fffd}").as_str()));
        assert_balanced(&page);
    }
}

#[test]
fn an_empty_report_is_a_page() {
    let report = RunReport {
        title: String::new(),
        identity: RunIdentity::default(),
        simulated: None,
        busy: None,
        headlines: vec![],
        figures: vec![],
        absences: vec![],
        warnings: vec![],
        conditions: vec![],
        gpus: vec![],
        state: None,
        complete: true,
    };
    let page = render(&report, &RunConclusions::default(), "");
    assert!(page.contains("Every case that was planned has a figure"));
    assert_balanced(&page);
}

#[test]
fn figures_without_cells_or_with_ragged_rows_are_drawn() {
    let mut report = example::host();
    let matrix = |cells| {
        FigureBody::Matrix(MatrixBody {
            unit: "GB/s".into(),
            row_axis: "from".into(),
            col_axis: "to".into(),
            rows: vec!["one".into()],
            cols: vec![],
            cells,
            better: pathline_explain::figure::BetterWhen::Higher,
        })
    };
    let odd = |v| FigureCell {
        value: Some(v),
        ceiling: Some(0.0),
        half_width: f64::NAN,
        ..FigureCell::default()
    };
    let empty = FigureBody::Curves(CurvesBody {
        x_unit: "B".into(),
        y_unit: "GB/s".into(),
        lines: vec![],
        ceilings: vec![("peak".into(), f64::INFINITY)],
        marks: vec![(f64::NAN, "nowhere".into())],
        better: pathline_explain::figure::BetterWhen::Higher,
    });
    let values = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e308, 5e-324];
    let ragged = vec![values.map(odd).to_vec(), vec![], values.map(odd).to_vec()];
    for body in [matrix(vec![]), matrix(ragged), empty] {
        report.figures[0].body = body;
        assert_balanced(&render(&report, &RunConclusions::default(), ""));
    }
}

#[test]
fn six_hundred_cases_stay_under_half_a_megabyte_of_data() {
    let mut report = example::node();
    report.figures.clear();
    let empty = render(&report, &RunConclusions::default(), MAP).len();
    // Each matrix has 56 cells: eleven matrices have 616 cases.
    let node = example::node();
    report.figures = (0..11).map(|_| node.figures[1].clone()).collect();
    let size = render(&report, &RunConclusions::default(), MAP).len();
    assert!(empty < 200_000 && size - empty < 500_000, "{empty} B, {size} B");
}
