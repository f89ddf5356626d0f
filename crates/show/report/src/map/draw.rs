//! Writes SVG elements.

use std::fmt::Write;

use pathline_schema::markup_text;

/// A document under construction. Numbers have one decimal, so that equal pictures are identical
/// texts on every machine.
#[derive(Debug, Default)]
pub(super) struct SvgDocument {
    body: String,
}

/// The anchor of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextAnchor {
    Start,
    Middle,
    End,
}

/// Colours and fonts. Rules have no variables, which some SVG viewers do not support, and one
/// common class, since the picture may be part of a page.
const CSS: &str = "\
.plmap{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','Liberation Sans',Arial,sans-serif}\
.plmap text{fill:#15191e;font-size:13px}\
.plmap .paper{fill:#fff}\
.plmap .title{font-size:22px;font-weight:700}\
.plmap .soft{fill:#56606b;font-size:12px}\
.plmap .small{font-size:11px}\
.plmap .name{font-weight:700;font-size:15px}\
.plmap .warn{fill:#a84600;font-size:12px}\
.plmap .panel{fill:#f5f6f8;stroke:#c9d0d8;stroke-width:1}\
.plmap .package{fill:none;stroke:#8d98a4;stroke-width:1.2;stroke-dasharray:5 4}\
.plmap .gpu{fill:#fff;stroke:#0b5fa5;stroke-width:1.8}\
.plmap .suspect{fill:#fdecea;stroke:#c62828;stroke-width:4}\
.plmap .switch{fill:#eef4ea;stroke:#4d7a1e;stroke-width:1.6}\
.plmap .cpu{fill:#5f8fc0}\
.plmap .idle{fill:#cfd6de}\
.plmap .chip{fill:#fff;stroke:#c9d0d8;stroke-width:1}\
.plmap .dot-net{fill:#007a5e}.plmap .dot-disk{fill:#7f6a00}\
.plmap .link{fill:none;stroke-linecap:butt}\
.plmap .w0{stroke:#0b4a86}.plmap .w1{stroke:#2f7fc1}.plmap .w2{stroke:#7fb2de}.plmap .w3{stroke:#a9c9e6}\
.plmap .nv{stroke:#5c8f26}.plmap .ill{stroke:#c62828}\
.plmap .host{stroke:#8d98a4}\
.plmap .pill{fill:#fff}.plmap .pill-panel{fill:#f5f6f8}\
@media screen and (prefers-color-scheme:dark){\
.plmap text{fill:#e7ebef}.plmap .paper{fill:#101418}.plmap .soft{fill:#a2adb8}.plmap .warn{fill:#ffab66}\
.plmap .panel{fill:#1a2027;stroke:#3a444f}.plmap .package{stroke:#7b8794}\
.plmap .gpu{fill:#12202e;stroke:#6db3f2}.plmap .suspect{fill:#3a1512;stroke:#ff6b5e}.plmap .switch{fill:#1a2414;stroke:#9ccc65}\
.plmap .cpu{fill:#5a8fc4}.plmap .idle{fill:#39434e}.plmap .chip{fill:#101418;stroke:#3a444f}\
.plmap .dot-net{fill:#3ecfa6}.plmap .dot-disk{fill:#dbc04a}\
.plmap .w0{stroke:#8cc6fa}.plmap .w1{stroke:#4a93d6}.plmap .w2{stroke:#2f6699}.plmap .w3{stroke:#2a527a}\
.plmap .nv{stroke:#9ccc65}.plmap .ill{stroke:#ff6b5e}.plmap .host{stroke:#7b8794}\
.plmap .pill{fill:#101418}.plmap .pill-panel{fill:#1a2027}}";

impl SvgDocument {
    pub(super) fn rect(&mut self, class: &str, (x, y, w, h): (f64, f64, f64, f64), radius: f64) {
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"{radius:.1}\"/>"
        );
    }

    pub(super) fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        let _ = writeln!(
            self.body,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>"
        );
    }

    /// A text on its baseline.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: TextAnchor, text: &str) {
        let anchor = match anchor {
            TextAnchor::Start => "start",
            TextAnchor::Middle => "middle",
            TextAnchor::End => "end",
        };
        let text = markup_text(text);
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    pub(super) fn line(
        &mut self,
        class: &str,
        (x1, y1): (f64, f64),
        (x2, y2): (f64, f64),
        width: f64,
    ) {
        let _ = writeln!(
            self.body,
            "<path class=\"link {class}\" stroke-width=\"{width:.1}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>"
        );
    }

    /// A text of 11 pixels centred on a point, with a background that covers lines.
    pub(super) fn pill(&mut self, ground: &str, (x, y): (f64, f64), text: &str) {
        let width = text_width(text, 11.0) + 8.0;
        self.rect(ground, (x - width / 2.0, y - 8.0, width, 16.0), 4.0);
        self.text("small", (x, y + 4.0), TextAnchor::Middle, text);
    }

    /// The document, `width` by `height`, with `label` for screen readers.
    pub(super) fn finish(self, width: f64, height: f64, label: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plmap\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">\n<style>{CSS}</style>\n\
             <rect class=\"paper\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n{}</svg>\n",
            markup_text(label),
            self.body
        )
    }
}

/// Mean width of a sans-serif character, relative to the font size.
const EM: f64 = 0.53;

/// Approximate width of a text of `size` pixels.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * EM
}

/// Number of characters of `size` pixels that fit into `width`.
pub(super) fn columns(size: f64, width: f64) -> usize {
    (width / (size * EM)).max(1.0) as usize
}

/// A text cut to about `width` pixels.
pub(super) fn fit(text: &str, size: f64, width: f64) -> String {
    let most = columns(size, width);
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let cut: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", cut.trim_end())
}
