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

    /// Appends a table that scrolls; the first cell of each row is its heading, cells without a column are
    /// left out.
    pub(super) fn table(
        &mut self,
        class: &str,
        columns: &[TableColumn<'_>],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> &mut Self {
        self.trusted("<div class=\"scroll tall\">").el("table", &[("class", &class)], |h| {
            h.el("thead", &[], |h| {
                h.el("tr", &[], |h| {
                    for (heading, class) in columns {
                        h.cell("th", "col", class, heading);
                    }
                });
            });
            h.el("tbody", &[], |h| {
                for row in rows {
                    h.el("tr", &[], |h| {
                        for (i, (text, (_, class))) in row.iter().zip(columns).enumerate() {
                            let (tag, scope) = if i == 0 { ("th", "row") } else { ("td", "") };
                            h.cell(tag, scope, class, text);
                        }
                    });
                }
            });
        });
        self.trusted("</div>")
    }

    fn cell(&mut self, tag: &'static str, scope: &str, class: &str, text: &str) {
        let all: [(&'static str, &dyn Display); 2] = [("scope", &scope), ("class", &class)];
        let given = [scope, class].map(|value| !value.is_empty());
        let attrs: Vec<_> =
            all.into_iter().zip(given).filter_map(|(attr, given)| given.then_some(attr)).collect();
        self.leaf(tag, &attrs, text);
    }

    /// Appends a section with an anchor and a title.
    pub(super) fn section(&mut self, (id, title): (&str, &str), body: impl FnOnce(&mut Self)) {
        self.el("section", &[("id", &id)], |h| {
            h.leaf("h2", &[], title);
            body(h);
        });
    }

    /// Appends what few readers need: folded on a screen, open on paper.
    pub(super) fn folded(&mut self, summary: &str, body: impl FnOnce(&mut Self)) {
        self.el("details", &[("class", &"more")], |h| {
            h.leaf("summary", &[], summary);
            body(h);
        });
    }

    /// Appends a command line with a button that copies it.
    pub(super) fn command(&mut self, command: &str) {
        if !command.is_empty() {
            self.el("p", &[("class", &"command")], |h| {
                h.leaf("code", &[], command);
                h.trusted(
                    "<button type=\"button\" class=\"js\" data-copy=\"command\">Copy</button>",
                );
            });
        }
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
            "<div class=\"scroll tall\"><table class=\"rows\"><thead><tr><th scope=\"col\">a</th><th scope=\"col\" class=\"n\">b</th>\
             </tr></thead><tbody><tr><th scope=\"row\">&lt;x&gt;</th><td class=\"n\">1</td></tr></tbody></table></div>"
        );
    }
}
