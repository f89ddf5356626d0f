//! Shows where bandwidth is lost: for each class of paths the steps from the peak down to the
//! measured rate.

use pathline_explain::figure::LossClassRow;
use pathline_explain::fmt;

use super::build::{HtmlBuilder, PixelPos};
use super::cell::CellJudge;
use super::number::{count, percent};

/// Maximum number of classes; more are better in a table.
const MAX_CLASSES: usize = 8;

/// Drawing units of one picture.
const WIDTH: f64 = 236.0;
const PLOT: f64 = 74.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 16.0;
const BAR: f64 = 40.0;

/// A bar: name, value, class of its colour.
type StepBar = (&'static str, (f64, f64), &'static str);

/// Writes a picture for each class.
pub(super) fn write(h: &mut HtmlBuilder, classes: &[LossClassRow], judge: CellJudge<'_>) {
    let drawn: Vec<&LossClassRow> =
        classes.iter().filter(|c| c.peak.1.is_finite() && c.peak.1 > 0.0).collect();
    if drawn.is_empty() || drawn.len() > MAX_CLASSES {
        return;
    }
    h.el("div", &[("class", &"losses")], |h| {
        for class in drawn.iter().rev() {
            h.el("figure", &[("class", &"loss")], |h| {
                write_caption(h, class);
                write_picture(h, class, judge);
            });
        }
    });
}

fn write_caption(h: &mut HtmlBuilder, class: &LossClassRow) {
    h.el("figcaption", &[], |h| {
        let forwarded = if class.forwarded { ", forwarded" } else { "" };
        h.leaf("b", &[], format!("{}{forwarded}", class.hop)).text(" ");
        h.leaf("span", &[], count(class.paths, "path")).text(" ");
        let held = match class.held_by.as_str() {
            "" => String::new(),
            by => format!(", held by {by}"),
        };
        h.leaf("span", &[], format!("{} of peak{held}", percent(class.share)));
    });
}

fn write_picture(h: &mut HtmlBuilder, class: &LossClassRow, judge: CellJudge<'_>) {
    let mut bars: Vec<StepBar> =
        vec![("peak", class.peak, "peak"), ("protocol", class.after_protocol, "step")];
    bars.extend(class.limit.map(|limit| ("cap", limit, "step")));
    bars.push((judge.page.origin(), class.measured, "fill"));
    let top = bars.iter().map(|b| b.1.1).fold(0.0, f64::max);
    let y = |v: f64| TOP + PLOT * (1.0 - (v / top).clamp(0.0, 1.0));
    let step = WIDTH / bars.len() as f64;
    let view = format!("0 0 {} {}", PixelPos(WIDTH), PixelPos(TOP + PLOT + BOTTOM));
    let name = format!("{}: {}", class.hop, describe(&bars));
    let attrs: super::build::HtmlAttrs<'_> =
        &[("class", &"chart"), ("viewBox", &view), ("role", &"img"), ("aria-label", &name)];
    h.el("svg", attrs, |h| {
        let mut before: Option<f64> = None;
        for (i, (label, range, ink)) in bars.iter().enumerate() {
            let middle = step * (i as f64 + 0.5);
            let left = middle - BAR / 2.0;
            if let Some(before) = before.filter(|before| *before > range.1) {
                rect(h, "lost", left, y(before), y(range.1) - y(before));
            }
            rect(h, ink, left, y(range.1), TOP + PLOT - y(range.1));
            text(
                h,
                "mid value",
                middle,
                y(before.unwrap_or(0.0).max(range.1)) - 4.0,
                &fmt::range(range.0, range.1),
            );
            text(h, "mid", middle, TOP + PLOT + 12.0, label);
            before = Some(range.1);
        }
    });
}

fn describe(bars: &[StepBar]) -> String {
    let bar = |(name, range, _): &StepBar| format!("{name} {}", fmt::range(range.0, range.1));
    bars.iter().map(bar).collect::<Vec<_>>().join(", ")
}

fn rect(h: &mut HtmlBuilder, class: &str, x: f64, y: f64, height: f64) {
    let attrs: super::build::HtmlAttrs<'_> = &[
        ("class", &class),
        ("x", &PixelPos(x)),
        ("y", &PixelPos(y)),
        ("width", &PixelPos(BAR)),
        ("height", &PixelPos(height.max(0.0))),
    ];
    h.el("rect", attrs, |_| {});
}

fn text(h: &mut HtmlBuilder, class: &str, x: f64, y: f64, text: &str) {
    h.leaf("text", &[("class", &class), ("x", &PixelPos(x)), ("y", &PixelPos(y))], text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_explain::figure::BetterWhen;

    fn class(hop: &str, peak: f64, limit: Option<(f64, f64)>) -> LossClassRow {
        LossClassRow {
            hop: hop.into(),
            forwarded: false,
            paths: 8,
            peak: (peak, peak),
            after_protocol: (0.75 * peak, 0.75 * peak),
            limit,
            measured: (50.0, 50.3),
            share: 50.3 / peak,
            held_by: "SDMA engine".into(),
        }
    }

    fn html(classes: &[LossClassRow]) -> String {
        let mut h = HtmlBuilder::default();
        write(&mut h, classes, CellJudge::new("GB/s", BetterWhen::Higher));
        h.finish()
    }

    #[test]
    fn each_class_goes_from_its_peak_to_what_was_measured() {
        let page = html(&[class("xGMI, 4 links", 200.0, Some((50.4, 50.4)))]);
        // 50.3 of 200 is 25 %. The second bar ends at 75 %: 16 + 74 x 0.25 = 34.5.
        assert!(page.contains("25 % of peak, held by SDMA engine"), "{page}");
        assert!(page.contains("class=\"step\" x=\"68.5\" y=\"34.5\""), "{page}");
        assert_eq!(page.matches("<rect class=\"step\"").count(), 2);
        assert_eq!(page.matches("<rect class=\"lost\"").count(), 3);
        let without = html(&[class("xGMI, 1 link", 60.0, None)]);
        assert_eq!(without.matches("<rect class=\"step\"").count(), 1);
    }

    #[test]
    fn nothing_is_drawn_without_a_peak_or_with_too_many_classes() {
        assert_eq!(html(&[]), "");
        assert_eq!(html(&[class("a", f64::NAN, None)]), "");
        assert_eq!(html(&vec![class("a", 60.0, None); MAX_CLASSES + 1]), "");
    }
}
