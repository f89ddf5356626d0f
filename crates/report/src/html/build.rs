//! A small HTML and SVG builder. It escapes everything except literals of this crate.

use std::fmt::{self, Display, Write};

use pathline_schema::markup_text;

/// Attributes of an element: literal names, any values.
pub(super) type HtmlAttrs<'a> = &'a [(&'static str, &'a dyn Display)];

/// Heading and class of a table's column: `n` for numbers, `words` for prose, `case` for case texts.
pub(super) type TableColumn<'a> = (&'a str, &'a str);

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

    /// Appends a table; the first cell of each row is its heading.
    pub(super) fn table(
        &mut self,
        class: &str,
        columns: &[TableColumn<'_>],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> &mut Self {
        self.el("table", &[("class", &class)], |h| {
            h.el("thead", &[], |h| {
                h.el("tr", &[], |h| {
                    for (heading, class) in columns {
                        h.void_with_class("th", &[("scope", &"col")], class);
                        h.text(heading).trusted("</th>");
                    }
                });
            });
            h.el("tbody", &[], |h| {
                for row in rows {
                    h.el("tr", &[], |h| {
                        for ((i, text), (_, class)) in row.iter().enumerate().zip(columns) {
                            let tag = if i == 0 { "th" } else { "td" };
                            let scope: HtmlAttrs<'_> =
                                if i == 0 { &[("scope", &"row")] } else { &[] };
                            h.void_with_class(tag, scope, class);
                            h.text(text).trusted(if i == 0 { "</th>" } else { "</td>" });
                        }
                    });
                }
            });
        })
    }

    fn void_with_class(&mut self, tag: &'static str, attrs: HtmlAttrs<'_>, class: &str) {
        match class {
            "" => self.void(tag, attrs),
            class => self.void(tag, &[attrs, &[("class", &class)]].concat()),
        };
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

/// An anchor: letters, digits and dashes of `text`. The page's script has the same rule for figures.
pub(super) fn anchor(text: &str) -> String {
    let mut slug = String::new();
    for c in text.chars() {
        match c {
            c if c.is_ascii_alphanumeric() => slug.push(c.to_ascii_lowercase()),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    match slug.trim_end_matches('-') {
        "" => "figure".to_owned(),
        slug => slug.to_owned(),
    }
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
    fn anchors_are_clean() {
        assert_eq!(anchor("pairs-dma"), "pairs-dma");
        assert_eq!(anchor("\" Onload=x <"), "onload-x");
        assert_eq!(anchor(""), "figure");
    }

    #[test]
    fn a_table_has_a_heading_for_each_row() {
        let mut h = HtmlBuilder::default();
        h.table("rows", &[("a", ""), ("b", "n")], [vec!["<x>".to_owned(), "1".to_owned()]]);
        assert_eq!(
            h.finish(),
            "<table class=\"rows\"><thead><tr><th scope=\"col\">a</th><th scope=\"col\" class=\"n\">b</th>\
             </tr></thead><tbody><tr><th scope=\"row\">&lt;x&gt;</th><td class=\"n\">1</td></tr></tbody></table>"
        );
    }
}
