//! Predicted durations of sets compared with measured ones, on a terminal.

use pathline_schema::plain_line;

use super::draw::{TermPage, TermPaint};
use crate::predicted::constants_list;
use crate::scores::{share, signed};
use pathline_explain::fmt;
use pathline_explain::model_agreement::{AgreementClass, AgreementSet, ModelAgreement};

/// Default number of sets to show.
pub const FARTHEST: usize = 12;
/// Number of reasons to show for skipped cases.
const REASONS: usize = 8;

/// A summary at most `width` columns wide (72 to 200), in ANSI colours if `colour`. `against` names
/// the run. With `all` every set is shown, else those with the largest errors.
pub fn summary(
    agreement: &ModelAgreement,
    against: &str,
    all: bool,
    width: usize,
    colour: bool,
) -> String {
    let mut page = TermPage::new(width, TermPaint { colour });
    let title = format!("pathline: {} against {against}", agreement.machine);
    page.line(&page.paint.bold(&page.cut(&title)));
    page.wrapped(&page.paint.dim("-"), 1, &agreement.lead());
    page.gap();
    write_classes(&mut page, "of", agreement.known.iter().chain(&agreement.kinds));
    page.gap();
    write_classes(&mut page, "of those, by number", agreement.sizes.iter());
    page.gap();
    write_sets(&mut page, agreement, all);
    write_left_out(&mut page, agreement);
    page.finish()
}

fn write_classes<'a>(
    page: &mut TermPage,
    title: &str,
    classes: impl Iterator<Item = &'a AgreementClass>,
) {
    let head = format!(
        "{title:<28} {:>5} {:>8} {:>8} {:>8} {:>9}  {:>8} {:>8}",
        "sets", "median", "p95", "worst", "inside", "flows", "p95"
    );
    page.line(&page.paint.dim(&page.cut(&head)));
    for c in classes {
        let inside = c.inside.map_or_else(|| "-".to_owned(), fmt::percent);
        let flows = c.flows.as_ref();
        let flow = |error: Option<f64>| error.map_or_else(String::new, share);
        let text = format!(
            "{:<28} {:>5} {:>8} {:>8} {:>8} {:>9}  {:>8} {:>8}",
            c.sets.name,
            c.sets.n,
            share(c.sets.median),
            share(c.sets.p95),
            share(c.sets.worst),
            inside,
            flow(flows.map(|f| f.median)),
            flow(flows.map(|f| f.p95)),
        );
        page.line(&page.cut(&text));
    }
}

fn write_sets(page: &mut TermPage, agreement: &ModelAgreement, all: bool) {
    let most = if all { agreement.sets.len() } else { FARTHEST };
    page.heading(if all { "All sets, the farthest first" } else { "Farthest" }, "");
    let head = "predicted        interval  measured    error  flows  class, and what binds";
    page.line(&page.paint.dim(&page.cut(head)));
    for (nth, s) in agreement.sets.iter().take(most).enumerate() {
        let set = s.predicted.set;
        let interval = fmt::range(set.low.0 / 1e3, set.high.0 / 1e3);
        let text = format!(
            "{:>9} {:>15} {:>9} {:>8} {:>6}  {}, {}",
            fmt::number(set.typical.0 / 1e3),
            interval,
            fmt::number(s.measured.0 / 1e3),
            signed(s.error()),
            s.case.flows().count(),
            s.kind.name(),
            s.bounds(),
        );
        page.line(&page.cut(&text));
        write_case(page, s, all);
        if let Some(constants) = agreement.trust.get(nth).and_then(constants_list) {
            let text = format!("          decided by {constants}");
            page.line(&page.paint.dim(&if all { text.clone() } else { page.cut(&text) }));
        }
    }
    page.gap();
}

/// The set's flows: all if few, else as many as fit on a line.
fn write_case(page: &mut TermPage, set: &AgreementSet, all: bool) {
    let text = format!("          {}", set.case);
    page.line(&page.paint.dim(&if all { plain_line(&text).into_owned() } else { page.cut(&text) }));
}

fn write_left_out(page: &mut TermPage, agreement: &ModelAgreement) {
    if agreement.left_out.is_empty() {
        return;
    }
    page.heading(&format!("Left out, {}", fmt::count(agreement.left_out.len(), "case")), "");
    for (why, n) in agreement.reasons().into_iter().take(REASONS) {
        page.wrapped(&page.paint.dim("-"), 1, &format!("{n} x {why}"));
    }
    page.gap();
}
