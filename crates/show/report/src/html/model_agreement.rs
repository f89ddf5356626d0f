//! The page that compares predicted durations of sets with measured ones.

use super::build::HtmlBuilder;
use super::number::num;
use super::page::{comparison, write_figures};
use super::scatter::pictures;
use super::scores::{ERRORS, error_texts};
use crate::scores::{share, signed};
use pathline_explain::fmt;
use pathline_explain::model_agreement::{AgreementClass, ModelAgreement};

/// The page: pictures, errors by class, every set. `against` names the run; `world` is hardware or
/// the simulator.
pub fn page(agreement: &ModelAgreement, against: &str, world: &str) -> String {
    let note = format!(
        "Predicted durations are those of the model of {}; they are compared with durations measured {world}.",
        agreement.machine
    );
    let data = pictures(&agreement.compared(), "measured");
    comparison((&agreement.machine, against), ("Predicted", &note), &data, |h| {
        h.leaf("p", &[("class", &"lead")], agreement.lead());
        h.leaf("h2", &[], "Predicted against measured durations");
        write_figures(h, &data);
        write_tables(h, agreement);
    })
}

fn write_tables(h: &mut HtmlBuilder, agreement: &ModelAgreement) {
    h.leaf("h2", &[], "Errors by what a set is made of");
    write_classes(h, agreement.known.iter().chain(&agreement.kinds));
    h.leaf("h2", &[], "Errors by number of flows, where no engine has several");
    write_classes(h, agreement.sizes.iter());
    h.leaf("h2", &[], "Every set, the farthest first");
    write_sets(h, agreement);
    if !agreement.left_out.is_empty() {
        h.leaf("h2", &[], "Left out");
        h.el("ul", &[], |h| {
            for (case, why) in &agreement.left_out {
                h.leaf("li", &[], format!("{case}: {why}"));
            }
        });
    }
}

fn write_classes<'a>(h: &mut HtmlBuilder, classes: impl Iterator<Item = &'a AgreementClass>) {
    let more = [("in the interval", "n"), ("flows: median", "n"), ("p95", "n")];
    let columns = [&[("class", "")], &ERRORS[..], &more[..]].concat();
    let row = |c: &AgreementClass| {
        let inside = c.inside.map_or_else(|| "-".to_owned(), fmt::percent);
        let flows = c.flows.iter().flat_map(|f| [f.median, f.p95]).map(share).collect();
        [error_texts(&c.sets), vec![inside], flows].concat()
    };
    h.table("rows", &columns, classes.map(row));
}

fn write_sets(h: &mut HtmlBuilder, agreement: &ModelAgreement) {
    h.leaf("p", &[], fmt::count(agreement.sets.len(), "set"));
    let columns = [
        ("class", ""),
        ("predicted us", "n"),
        ("interval us", "n"),
        ("measured us", "n"),
        ("error", "n"),
        ("bound by", "words"),
        ("set", "words case"),
    ];
    let rows = agreement.sets.iter().map(|s| {
        let set = s.predicted.set;
        vec![
            s.kind.name().to_owned(),
            num(set.typical.0 / 1e3),
            fmt::range(set.low.0 / 1e3, set.high.0 / 1e3),
            num(s.measured.0 / 1e3),
            signed(s.error()),
            s.bounds().to_string(),
            s.case.to_string(),
        ]
    });
    h.table("rows", &columns, rows);
}
