//! The page that compares predicted durations of sets with measured ones.

use super::build::HtmlBuilder;
use super::number::{count, num};
use super::page::comparison;
use super::scores::{head, picture};
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
    comparison((&agreement.machine, against), ("Predicted", &note), |h| write_main(h, agreement))
}

fn write_main(h: &mut HtmlBuilder, agreement: &ModelAgreement) {
    h.leaf("p", &[("class", &"lead")], agreement.lead());
    h.leaf("h2", &[], "Predicted against measured durations");
    h.trusted(&picture(&agreement.compared(), "measured"));
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
    h.el("div", &[("class", &"scroll")], |h| {
        h.el("table", &[("class", &"rows")], |h| {
            let inside = "in the interval";
            head(h, &["class", "sets", "median", "p95", "worst", inside, "flows: median", "p95"]);
            h.el("tbody", &[], |h| {
                for c in classes {
                    h.el("tr", &[], |h| {
                        h.leaf("th", &[("scope", &"row")], &c.sets.name);
                        h.leaf("td", &[("class", &"n")], c.sets.n);
                        for error in [c.sets.median, c.sets.p95, c.sets.worst] {
                            h.leaf("td", &[("class", &"n")], share(error));
                        }
                        let inside = c.inside.map_or_else(|| "-".to_owned(), fmt::percent);
                        h.leaf("td", &[("class", &"n")], inside);
                        for error in c.flows.iter().flat_map(|f| [f.median, f.p95]) {
                            h.leaf("td", &[("class", &"n")], share(error));
                        }
                    });
                }
            });
        });
    });
}

fn write_sets(h: &mut HtmlBuilder, agreement: &ModelAgreement) {
    h.leaf("p", &[("class", &"finding")], count(agreement.sets.len(), "set"));
    h.el("div", &[("class", &"scroll tall")], |h| {
        h.el("table", &[("class", &"rows")], |h| {
            head(
                h,
                &[
                    "class",
                    "predicted us",
                    "interval us",
                    "measured us",
                    "error",
                    "bound by",
                    "set",
                ],
            );
            h.el("tbody", &[], |h| {
                for s in &agreement.sets {
                    let set = s.predicted.set;
                    h.el("tr", &[], |h| {
                        h.leaf("td", &[], s.kind.name());
                        h.leaf("td", &[("class", &"n")], num(set.typical.0 / 1e3));
                        let interval = fmt::range(set.low.0 / 1e3, set.high.0 / 1e3);
                        h.leaf("td", &[("class", &"n")], interval);
                        h.leaf("td", &[("class", &"n")], num(s.measured.0 / 1e3));
                        h.leaf("td", &[("class", &"n")], signed(s.error()));
                        h.leaf("td", &[("class", &"words")], s.bounds());
                        h.leaf("td", &[("class", &"words case")], &s.case);
                    });
                }
            });
        });
    });
}
