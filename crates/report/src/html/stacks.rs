//! Parts of a whole as one bar per row.

use super::build::{HtmlBuilder, PixelPos};
use super::cell::{CellJudge, PageContext, value};
use super::number::percent;
use pathline_explain::figure::{BetterWhen, StacksBody};

/// Number of colours before they repeat.
const INKS: usize = 8;

/// Minimum share of a part whose name is written in the bar.
const MIN_NAMED: f64 = 9.0;

/// Writes the bars; a part's colour depends on its name only.
pub(super) fn write(h: &mut HtmlBuilder, stacks: &StacksBody, page: PageContext<'_>, title: &str) {
    let mut names: Vec<&str> = Vec::new();
    for part in stacks.stacks.iter().flat_map(|s| &s.parts) {
        if !names.contains(&part.name.as_str()) {
            names.push(&part.name);
        }
    }
    if names.is_empty() {
        h.leaf("p", &[("class", &"nothing")], "There is no value to draw.");
        return;
    }
    let ink = |name: &str| names.iter().position(|n| *n == name).unwrap_or(0) % INKS;
    let judge = CellJudge::new("%", BetterWhen::Neither).on(page);
    h.el("table", &[("class", &"bars stacks"), ("data-tips", &1)], |h| {
        h.leaf("caption", &[], format!("{title}, {}", stacks.whole));
        h.el("tbody", &[], |h| {
            for stack in &stacks.stacks {
                h.el("tr", &[], |h| {
                    h.leaf("th", &[("scope", &"row")], &stack.label);
                    h.el("td", &[("class", &"whole")], |h| {
                        for part in &stack.parts {
                            let Some(v) = value(&part.cell).filter(|v| *v > 0.0) else { continue };
                            let heading = format!("{}, {}", part.name, stack.label);
                            let detail = judge.detail(&heading, &part.cell);
                            let detail =
                                detail.replacen('\n', &format!("\ncalls: {}\n", part.detail), 1);
                            let class = format!("tip part s{}", ink(&part.name));
                            let style = format!("flex-basis:{}%", PixelPos(v));
                            let attrs: super::build::HtmlAttrs<'_> =
                                &[("class", &class), ("style", &style), ("title", &detail)];
                            h.el("span", attrs, |h| {
                                if v >= MIN_NAMED {
                                    h.leaf("b", &[], &part.name).text(" ").text(percent(v / 100.0));
                                }
                            });
                        }
                    });
                });
            }
        });
    });
    h.el("p", &[("class", &"legend")], |h| {
        for name in &names {
            h.el("span", &[("class", &"pair")], |h| {
                h.el("span", &[("class", &format!("key part s{}", ink(name)))], |_| {});
                h.text(" ").text(name);
            });
            h.text(" ");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_explain::figure::{FigureCell, FigureStack, StackPart};

    #[test]
    fn a_part_is_as_wide_as_its_share_and_has_one_ink() {
        let part = |name: &str, v| StackPart {
            name: name.into(),
            detail: "3 calls of 2.00 us".into(),
            cell: FigureCell { value: Some(v), ..FigureCell::default() },
        };
        let stack = |label: &str, parts| FigureStack { label: label.into(), parts };
        let stacks = StacksBody {
            whole: "time in calls".into(),
            stacks: vec![
                stack(
                    "a",
                    vec![part("hipMemcpy", 54.0), part("hipHostUnregister", 45.0), part("x", 1.0)],
                ),
                stack("b", vec![part("hipHostUnregister", 100.0)]),
            ],
        };
        let mut h = HtmlBuilder::default();
        write(&mut h, &stacks, PageContext::default(), "t");
        let page = h.finish();
        assert!(
            page.contains("flex-basis:54%") && page.contains("<b>hipMemcpy</b> 54 %"),
            "{page}"
        );
        // A name has the same colour in both rows and in the legend.
        assert_eq!(page.matches("part s1\"").count(), 3);
        // A narrow part has no room for its name, which is only in the legend and the tooltip.
        assert!(!page.contains("<b>x</b>") && page.contains("calls: 3 calls of 2.00 us"));
    }
}
