//! The frame of all pages.

use super::build::HtmlBuilder;
use super::{POLICY, SCRIPT, STYLE};

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

/// A complete document. `rules` are styles of this page, added to those of every page.
pub(super) fn document(title: &str, rules: &str, body: impl FnOnce(&mut HtmlBuilder)) -> String {
    let mut h = HtmlBuilder::default();
    h.trusted("<!doctype html>\n");
    h.el("html", &[("lang", &"en")], |h| {
        h.el("head", &[], |h| {
            h.trusted("<meta charset=\"utf-8\">").trusted(GENERATOR);
            h.void("meta", &[("http-equiv", &"Content-Security-Policy"), ("content", &POLICY)]);
            h.trusted("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
            h.trusted("<meta name=\"color-scheme\" content=\"light dark\">");
            h.leaf("title", &[], title);
            h.el("style", &[], |h| {
                h.trusted(STYLE).trusted(rules);
            });
        });
        h.el("body", &[], |h| {
            body(h);
            h.trusted("<div id=\"tip\" role=\"status\" hidden></div>");
            h.el("script", &[], |h| {
                h.trusted(SCRIPT);
            });
        });
    });
    h.finish()
}

/// A page of predictions of a model of `machine`, with a banner that names the model and without
/// contents.
pub(super) fn comparison(
    (machine, against): (&str, &str),
    (kind, note): (&str, &str),
    main: impl FnOnce(&mut HtmlBuilder),
) -> String {
    document(&format!("{machine} against {against} - pathline"), "", |h| {
        h.el("div", &[("class", &"banner simulated"), ("role", &"note")], |h| {
            h.leaf("strong", &[], kind).text(" ");
            h.leaf("span", &[], note);
        });
        h.el("main", &[("class", &"top")], |h| {
            h.leaf("h1", &[], format!("{machine} against {against}"));
            main(h);
        });
    })
}
