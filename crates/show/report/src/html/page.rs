//! The frame of all pages: one file with style, script, data, and nothing to load.

use super::build::HtmlBuilder;
use super::data::{PageData, script_text};
use super::noscript;

const STYLE: &str = include_str!("assets/page.css");
/// Parts of one script, in one scope.
pub(super) const SCRIPT: [&str; 5] = [
    include_str!("assets/base.js"),
    include_str!("assets/cells.js"),
    include_str!("assets/tables.js"),
    include_str!("assets/charts.js"),
    include_str!("assets/page.js"),
];
/// The library that draws charts: https://github.com/leeoniya/uPlot, MIT (assets/uPlot.LICENSE).
const CHARTS: &str = include_str!("assets/uPlot.iife.min.js");
const CHARTS_STYLE: &str = include_str!("assets/uPlot.min.css");
const CHARTS_LICENCE: &str = include_str!("assets/uPlot.LICENSE");

/// Forbids all requests.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:; base-uri 'none'; form-action 'none'";

/// Marks pages of pathline, which it may overwrite.
const GENERATOR: &str = "<meta name=\"generator\" content=\"pathline\">";
/// The start of pages written before the mark existed, up to their policy.
const UNMARKED: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
                        <meta http-equiv=\"Content-Security-Policy\"";

/// Whether a file with this start is a page of pathline.
pub fn is_page(head: &[u8]) -> bool {
    let has = |text: &str| head.windows(text.len()).any(|w| w == text.as_bytes());
    has(GENERATOR) || (head.starts_with(UNMARKED.as_bytes()) && has(" - pathline</title>"))
}

/// A complete document. `body` writes what reads without scripts; [`write_figures`] within it is where
/// the script draws `data`.
pub(super) fn document(
    title: &str,
    data: &PageData<'_>,
    body: impl FnOnce(&mut HtmlBuilder),
) -> String {
    let mut h = HtmlBuilder::default();
    h.trusted("<!doctype html>\n");
    h.el("html", &[("lang", &"en")], |h| {
        h.el("head", &[], |h| {
            h.trusted("<meta charset=\"utf-8\">").trusted(GENERATOR);
            h.void("meta", &[("http-equiv", &"Content-Security-Policy"), ("content", &POLICY)]);
            h.trusted("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
            h.trusted("<meta name=\"color-scheme\" content=\"light dark\">");
            h.leaf("title", &[], format!("{title} - pathline"));
            h.trusted("<style>").trusted(CHARTS_STYLE).trusted(STYLE).trusted("</style>");
        });
        h.el("body", &[], |h| {
            h.trusted("<a class=\"skip-link\" href=\"#content\">Skip to content</a>");
            body(h);
            h.trusted("<div id=\"tip\" role=\"status\" hidden></div>");
            h.trusted("<script id=\"data\" type=\"application/json\">");
            h.trusted(&script_text(data)).trusted("</script>");
            h.trusted("<script>/*\n").trusted(CHARTS_LICENCE).trusted("*/\n");
            h.trusted(CHARTS).trusted("</script><script>(() => {\n'use strict';\n");
            h.trusted(&SCRIPT.concat()).trusted("})();</script>");
        });
    });
    h.finish()
}

/// The place of all figures: the script draws here, and plain tables stand here without it.
pub(super) fn write_figures(h: &mut HtmlBuilder, data: &PageData<'_>) {
    h.trusted("<div id=\"figures\"></div>");
    h.el("noscript", &[], |h| {
        for run in &data.runs {
            noscript::write(h, &run.name, &run.figures);
        }
    });
}

/// Navigation: title, filter, links to sections; the script adds figures after the first ones.
pub(super) fn write_nav(h: &mut HtmlBuilder, first: &[(&str, &str)], last: &[(&str, &str, usize)]) {
    h.el("nav", &[("id", &"contents"), ("aria-label", &"Contents")], |h| {
        h.leaf("p", &[("class", &"brand")], "pathline");
        h.trusted(
            "<p class=\"js find\"><input type=\"search\" data-find \
             placeholder=\"Filter: gpu3, SDMA  ( / )\" aria-label=\"Filter figures\"> \
             <span data-found role=\"status\"></span></p>",
        );
        h.el("ul", &[], |h| {
            first.iter().for_each(|(id, title)| nav_item(h, id, title, 0));
        });
        h.trusted("<ul data-figures></ul>");
        h.el("ul", &[], |h| {
            last.iter().for_each(|(id, title, number)| nav_item(h, id, title, *number));
        });
        h.leaf(
            "p",
            &[("class", &"js keys")],
            "Keys: / filter, j k next and previous figure, t top",
        );
    });
}

fn nav_item(h: &mut HtmlBuilder, id: &str, title: &str, number: usize) {
    h.el("li", &[], |h| {
        h.el("a", &[("href", &format!("#{id}"))], |h| {
            h.text(title);
            if number > 0 {
                h.text(" ").leaf("span", &[("class", &"n")], number);
            }
        });
    });
}

/// A banner across the page: `class` is its kind.
pub(super) fn write_banner(h: &mut HtmlBuilder, class: &str, kind: &str, text: &str) {
    h.el("div", &[("class", &format!("banner {class}")), ("role", &"note")], |h| {
        h.leaf("strong", &[], kind).text(" ").leaf("span", &[], text);
    });
}

/// A page of predictions of a model of `machine`, with a banner that names the model and without contents.
pub(super) fn comparison(
    (machine, against): (&str, &str),
    (kind, note): (&str, &str),
    data: &PageData<'_>,
    main: impl FnOnce(&mut HtmlBuilder),
) -> String {
    let title = format!("{machine} against {against}");
    document(&title, data, |h| {
        write_banner(h, "simulated", kind, note);
        h.el("main", &[("id", &"content"), ("class", &"top")], |h| {
            h.leaf("h1", &[], &title);
            main(h);
        });
    })
}

/// A line of a list of sentences: `good`, `warn` or `plain`.
pub(super) fn write_line(h: &mut HtmlBuilder, tone: &str, text: &str) {
    let (sign, label) = match tone {
        "good" => ("✓", "As it should be: "),
        "warn" => ("!", "Look closer: "),
        _ => ("·", ""),
    };
    h.el("li", &[("class", &tone)], |h| {
        h.leaf("span", &[("class", &"sign"), ("aria-hidden", &"true")], sign);
        h.el("span", &[], |h| {
            h.leaf("span", &[("class", &"sr")], label).text(text);
        });
    });
}
