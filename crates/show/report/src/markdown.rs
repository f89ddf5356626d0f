//! Conclusions of a run as Markdown, for a ticket or a merge request.

use pathline_explain::figure::{RunIdentity, RunReport};
use pathline_explain::fmt;
use pathline_findings::{RunConclusions, SummaryTile};
use pathline_schema::SizeEffects;

use crate::terminal::first_screen::{describe_gain, tile_cells, warnings_by_effect};

/// Identity, verdict, findings and headline values, in GitHub's Markdown. Text of the journal stays text.
pub fn markdown(report: &RunReport, conclusions: &RunConclusions) -> String {
    let mut page = String::new();
    let mut paragraph = |text: String| page += &format!("{text}\n\n");
    let RunIdentity { node, gpus, driver, started, duration, version, .. } = &report.identity;
    let parts = [node, gpus, driver].map(|part| plain(part));
    paragraph(format!("### pathline: {}", join_filled(&parts, " · ")));
    let duration = if duration.is_empty() { String::new() } else { format!("took {duration}") };
    let facts = [plain(started), duration, format!("pathline {}", plain(version))];
    paragraph(join_filled(&facts, " · "));
    if let Some(machine) = &report.simulated {
        paragraph(format!("_SIMULATED: a model of {}, not measured on hardware_", plain(machine)));
    }
    if !report.complete {
        paragraph("_The run did not end as planned: these are the figures so far._".to_owned());
    }
    let verdict = &conclusions.verdict;
    let word = verdict.word().map(|word| format!("**{word}**: ")).unwrap_or_default();
    paragraph(word + &plain(&fmt::sentence(&verdict.reason)));
    if let Some(busy) = &report.busy {
        paragraph(format!("**BUSY**: {}", plain(&busy.text())));
    }
    let items = conclusions.findings.iter().enumerate().map(|(at, finding)| {
        let gain = finding.gain.as_ref().map(describe_gain).unwrap_or_default();
        let cost = match finding.cost.as_str() {
            "" => String::new(),
            cost => format!("cost: {}", plain(cost)),
        };
        let lines = [
            plain(&finding.observation),
            plain(&finding.cause),
            bold(&plain(&finding.action)),
            join_filled(&[gain, cost], "; "),
        ];
        let by_size = finding.by_size.as_ref().and_then(SizeEffects::answer);
        let by_size = by_size.map(|(verdict, table)| {
            format!("\n   {}\n   ```text\n   {}\n   ```", plain(&verdict), table.join("\n   "))
        });
        let text = join_filled(&lines, "\n   ");
        format!("{}. {text}{}", at + 1, by_size.unwrap_or_default())
    });
    let items: Vec<String> = items.collect();
    if !items.is_empty() {
        paragraph(items.join("\n"));
    }
    if !conclusions.tiles.is_empty() {
        paragraph(values_table(&conclusions.tiles));
    }
    paragraph(join_filled(
        &[
            warnings_by_effect(report).unwrap_or_default(),
            format!("`{}`", one_line(&report.identity.command).replace('`', "").trim()),
        ],
        " · ",
    ));
    page.truncate(page.trim_end().len());
    page + "\n"
}

fn values_table(tiles: &[SummaryTile]) -> String {
    let heads = ["", "value", "±95 %", "slowest", "of peak", "of model", "measured"];
    let row = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let mut rows = vec![row(&heads.map(str::to_owned)), "|---|--:|--:|--:|--:|--:|---|".to_owned()];
    rows.extend(tiles.iter().map(|tile| row(&tile_cells(tile).map(|cell| plain(&cell)))));
    rows.join("\n")
}

fn bold(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("**{text}**") }
}

fn join_filled(parts: &[String], with: &str) -> String {
    let parts: Vec<&str> =
        parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    parts.join(with)
}

/// Text without meaning to Markdown or HTML, on one line.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in one_line(text).chars() {
        if matches!(
            letter,
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '~' | '@' | '&'
        ) {
            plain.push('\\');
        }
        plain.push(letter);
    }
    plain
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
