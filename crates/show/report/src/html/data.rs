//! The data of a page, as its script reads it.

use pathline_explain::figure::RunReport;
use pathline_findings::{DerivedFigure, DerivedWarning, RunAnswer, RunConclusions};
use pathline_schema::{Case, plain_text};
use serde::Serialize;
use serde_json::{Number, Value};

/// Significant digits of numbers on a page: medians are known to three at best.
const DIGITS: usize = 6;

/// What the script of a page draws.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct PageData<'a> {
    /// The runs, in the order of their tabs.
    pub(super) runs: Vec<RunData<'a>>,
}

/// The figures of one run. Figures and warnings are those of `pathline report --json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct RunData<'a> {
    /// Letter of the run; empty if it is the only one.
    pub(super) name: String,
    /// Whether values come from a model.
    pub(super) simulated: bool,
    /// Figures, in suite order.
    pub(super) figures: Vec<DerivedFigure<'a>>,
    /// Figures of pages that are not of one run: predicted over measured values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) pictures: Vec<Value>,
    /// Warnings; those about a case mark its values.
    pub(super) warnings: Vec<DerivedWarning<'a>>,
    /// Cases of paths that are slower than their peers.
    pub(super) sick: Vec<String>,
}

impl<'a> RunData<'a> {
    pub(super) fn new(
        name: String,
        report: &'a RunReport,
        conclusions: &'a RunConclusions,
    ) -> Self {
        let RunAnswer { slow, covered, .. } = &conclusions.verdict;
        Self {
            name,
            simulated: report.simulated.is_some(),
            figures: report
                .figures
                .iter()
                .map(|figure| DerivedFigure::new(figure, covered))
                .collect(),
            pictures: Vec::new(),
            warnings: report.warnings.iter().map(DerivedWarning::new).collect(),
            sick: slow.iter().map(Case::to_string).collect(),
        }
    }
}

/// The data as text between the tags of a `script` element: nothing in it ends the element or begins
/// another, and no line separator of JavaScript is left.
pub(super) fn script_text(data: &PageData<'_>) -> String {
    // All parts have text as keys, and numbers that JSON lacks become null.
    let mut value = serde_json::to_value(data).unwrap_or_default();
    round(&mut value);
    let text = value.to_string();
    let mut escaped = String::with_capacity(text.len());
    for c in plain_text(&text).chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped += &format!("\\u{:04x}", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// Rounds all numbers to [`DIGITS`].
fn round(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let text = number.as_f64().map(|v| format!("{v:.*e}", DIGITS - 1));
            let rounded = text.and_then(|text| Number::from_f64(text.parse().ok()?));
            if let Some(rounded) = rounded {
                *number = rounded;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_stay_data() {
        let bad = "</script><!--<script>\u{2028}&\u{202e}\"\\";
        let data = PageData { runs: vec![RunData { name: bad.to_owned(), ..RunData::default() }] };
        let text = script_text(&data);
        assert!(!text.contains(['<', '>', '&', '\u{2028}', '\u{202e}']), "{text}");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["runs"][0]["name"], bad.replace('\u{202e}', "\u{fffd}"));
    }

    #[test]
    fn numbers_keep_six_digits() {
        let mut value = serde_json::json!([50.341_287_9, 1.234_567_89e-9, 0.1, 7, [1.0]]);
        round(&mut value);
        assert_eq!(value.to_string(), "[50.3413,1.23457e-9,0.1,7,[1.0]]");
    }
}
