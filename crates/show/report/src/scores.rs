//! Scores of predictions as text, for terminal and page.

use std::fmt::Write;

use pathline_published::ValidationReport;
use pathline_published::score::{ClassErrors, ComparedRow, JudgedTarget};

use pathline_explain::fmt;

/// A relative error with its sign.
pub(crate) fn signed(error: f64) -> String {
    let percent = error * 100.0;
    if !percent.is_finite() || percent.abs() >= 999.5 {
        let sign = if error < 0.0 { '-' } else { '+' };
        return format!("{sign}>999 %");
    }
    if percent.abs() < 0.05 { "0.0 %".to_owned() } else { format!("{percent:+.1} %") }
}

/// A relative error without sign.
pub(crate) fn share(error: f64) -> String {
    signed(error).trim_start_matches(['+', '-']).to_owned()
}

/// A published or measured value: a number, a range, or a bound.
pub(crate) fn value(value: &pathline_published::RowValue) -> String {
    match (value.low.is_finite(), value.high.is_finite()) {
        (true, true) => fmt::range(value.low, value.high),
        (true, false) => format!(">={}", fmt::number(value.low)),
        _ => format!("<={}", fmt::number(value.high)),
    }
}

/// Errors by class, as lines of a table.
pub(crate) fn classes_table(classes: &[ClassErrors]) -> String {
    let wide = classes.iter().map(|c| c.name.chars().count()).max().unwrap_or(0).max(5);
    let mut text = format!("{:<wide$}     n   median      p95    worst\n", "class");
    for c in classes {
        let (median, p95, worst) = (share(c.median), share(c.p95), share(c.worst));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<wide$} {:>5} {median:>8} {p95:>8} {worst:>8}", c.name, c.n);
    }
    text
}

/// Each target with its limit and result, and whether it is met.
pub(crate) fn targets_lines(judged: &[JudgedTarget]) -> Vec<(Option<bool>, String)> {
    let line = |j: &JudgedTarget| {
        let most = |bound: f64| format!(" (at most {})", share(bound));
        let Some(got) = &j.got else {
            return (None, format!("{}: no row, not judged", j.target.name));
        };
        let p95 =
            j.target.p95.map_or(String::new(), |p| format!(", p95 {}{}", share(got.p95), most(p)));
        let rows = fmt::count(got.n, "row");
        let median = format!("{}{}", share(got.median), most(j.target.median));
        let parts = j.parts.as_ref().map_or(String::new(), |[seen, held_out]| {
            let errors = |of: &ClassErrors| {
                format!("{} (median {}, p95 {})", of.n, share(of.median), share(of.p95))
            };
            let (seen, held_out) = (errors(seen), errors(held_out));
            format!(": {seen} at hand when constants were set, {held_out} of other sources")
        });
        (Some(j.met()), format!("{}: median {median}{p95}, {rows}{parts}", j.target.name))
    };
    judged.iter().map(line).collect()
}

/// Classes of rows without a target, with their errors. `None` if every row has a target.
pub(crate) fn untargeted(report: &ValidationReport) -> Option<String> {
    let free = |class: &&ClassErrors| {
        report.compared.iter().any(|c| !c.data && c.targets.is_empty() && c.class == class.name)
    };
    let classes: Vec<String> = report
        .classes
        .iter()
        .filter(free)
        .map(|c| format!("{} ({}, p95 {})", c.name, fmt::count(c.n, "row"), share(c.p95)))
        .collect();
    (!classes.is_empty()).then(|| format!("without a target: {}", fmt::list(&classes)))
}

/// Compared values in descending order of error; equal ones keep their order.
pub(crate) fn farthest(compared: &[ComparedRow]) -> Vec<&ComparedRow> {
    let mut all: Vec<&ComparedRow> = compared.iter().collect();
    all.sort_by(|a, b| b.error().abs().total_cmp(&a.error().abs()));
    all
}

/// Skipped rows by reason, the most frequent first.
pub(crate) fn reasons(
    report: &ValidationReport,
) -> Vec<(&str, Vec<&pathline_published::LeftOutRow>)> {
    let mut by_reason: Vec<(&str, Vec<&pathline_published::LeftOutRow>)> = Vec::new();
    for row in &report.left_out {
        match by_reason.iter_mut().find(|(reason, _)| *reason == row.reason) {
            Some((_, rows)) => rows.push(row),
            None => by_reason.push((&row.reason, vec![row])),
        }
    }
    by_reason.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    by_reason
}

/// One sentence about a contradiction.
pub(crate) fn contradiction(c: &pathline_published::RowContradiction) -> String {
    let values: Vec<String> = c
        .values
        .iter()
        .map(|(value, bytes, who)| {
            let size = pathline_schema::Bytes(*bytes).rounded();
            format!("{} at {size} by {who}", fmt::number(*value))
        })
        .collect();
    format!(
        "{}: {}. Of {} and {} no one model can be nearer to both than {}.",
        c.what,
        values.join("; "),
        fmt::number(c.low),
        fmt::number(c.high),
        share(c.least_error)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_written_with_one_decimal() {
        assert_eq!(
            [0.0123, -0.5, 0.0001, 12.0].map(signed),
            ["+1.2 %", "-50.0 %", "0.0 %", "+>999 %"]
        );
        assert_eq!([-0.0123, f64::INFINITY].map(share), ["1.2 %", ">999 %"]);
    }
}
