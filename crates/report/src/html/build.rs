//! A small HTML and SVG builder. It escapes everything except literals of this crate.

use std::fmt::{self, Display, Write};

use pathline_schema::markup_text;

/// Attributes of an element: literal names, any values.
pub(super) type HtmlAttrs<'a> = &'a [(&'static str, &'a dyn Display)];

/// Markup under construction. Closures write the children, so that every element is closed.
#[derive(Debug, Default)]
pub(super) struct HtmlBuilder {
    out: String,
}

impl HtmlBuilder {
    /// Appends literal markup, or a part that this crate has already escaped.
    pub(super) fn trusted(&mut self, markup: &str) -> &mut Self {
        self.out.push_str(markup);
        self
    }

    /// Appends escaped text.
    pub(super) fn text(&mut self, text: impl Display) -> &mut Self {
        // Writing to a string does not fail.
        let _ = write!(EscapedText(&mut self.out), "{text}");
        self
    }

    /// Appends an element with children.
    pub(super) fn el(
        &mut self,
        tag: &'static str,
        attrs: HtmlAttrs<'_>,
        body: impl FnOnce(&mut Self),
    ) -> &mut Self {
        self.void(tag, attrs);
        body(self);
        self.out.push_str("</");
        self.out.push_str(tag);
        self.out.push('>');
        self
    }

    /// Appends an element with text only.
    pub(super) fn leaf(
        &mut self,
        tag: &'static str,
        attrs: HtmlAttrs<'_>,
        text: impl Display,
    ) -> &mut Self {
        self.el(tag, attrs, |h| {
            h.text(text);
        })
    }

    /// Appends an element without end tag, such as `input`.
    pub(super) fn void(&mut self, tag: &'static str, attrs: HtmlAttrs<'_>) -> &mut Self {
        self.out.push('<');
        self.out.push_str(tag);
        for (name, value) in attrs {
            let _ = write!(self.out, " {name}=\"");
            let _ = write!(EscapedText(&mut self.out), "{value}");
            self.out.push('"');
        }
        self.out.push('>');
        self
    }

    /// The finished markup.
    pub(super) fn finish(self) -> String {
        self.out
    }
}

/// Escapes text on writing, for element text and quoted attributes.
struct EscapedText<'a>(&'a mut String);

impl fmt::Write for EscapedText<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0.push_str(&markup_text(s));
        Ok(())
    }
}

/// A coordinate with at most one decimal, which keeps pages small and identical on every machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct PixelPos(pub(super) f64);

impl Display for PixelPos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 10.0).round();
        // Negative zero would print as -0.
        let value = if tenths == 0.0 { 0.0 } else { tenths / 10.0 };
        write!(f, "{value}")
    }
}

/// An anchor: letters, digits and dashes of `text`, unique among `taken`.
pub(super) fn anchor(text: &str, taken: &mut Vec<String>) -> String {
    let mut slug = String::new();
    for c in text.chars().take(80) {
        match c {
            c if c.is_ascii_alphanumeric() => slug.push(c.to_ascii_lowercase()),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    let slug = match slug.trim_end_matches('-') {
        "" => "figure",
        slug => slug,
    };
    let free = |candidate: &String| !taken.contains(candidate);
    let name = std::iter::once(slug.to_owned())
        .chain((2..).map(|n| format!("{slug}-{n}")))
        .find(free)
        .unwrap_or_default();
    taken.push(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_are_escaped() {
        let mut h = HtmlBuilder::default();
        h.leaf("p", &[("title", &"\"><script>'&")], "</p><script>\u{0}\u{202e}");
        assert_eq!(
            h.finish(),
            "<p title=\"&quot;&gt;&lt;script&gt;&#39;&amp;\">\
             &lt;/p&gt;&lt;script&gt;\u{fffd}\u{fffd}</p>"
        );
    }

    #[test]
    fn coordinates_have_one_decimal_and_no_negative_zero() {
        assert_eq!(PixelPos(12.34).to_string(), "12.3");
        assert_eq!(PixelPos(12.0).to_string(), "12");
        assert_eq!(PixelPos(-0.01).to_string(), "0");
    }

    #[test]
    fn anchors_are_clean_and_differ() {
        let mut taken = Vec::new();
        assert_eq!(anchor("pairs-dma", &mut taken), "pairs-dma");
        assert_eq!(anchor("pairs-dma", &mut taken), "pairs-dma-2");
        assert_eq!(anchor("\" onload=x <", &mut taken), "onload-x");
        assert_eq!(anchor("", &mut taken), "figure");
    }
}
