//! A bounded XML tree, sufficient for topology files and safe for hostile ones.
//!
//! Entities of a DTD are never expanded, which excludes entity bombs. Depth, number of elements and
//! number of attributes are limited, so that the input's size bounds the memory.

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use crate::error::{TopoError, display_name, excerpt};

/// Maximum size of an XML file in bytes. A 1000-GPU NCCL file has about 2 MB.
pub(crate) const MAX_XML: usize = 16 << 20;
/// Maximum nesting depth; hwloc trees are about 20 deep.
const MAX_DEPTH: usize = 64;
const MAX_ELEMENTS: usize = 200_000;
const MAX_ATTRIBUTES: usize = 64;

/// An element with its attributes and children.
#[derive(Debug, Clone, Default)]
pub(crate) struct XmlElement {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) children: Vec<XmlElement>,
    /// Text directly inside, concatenated.
    pub(crate) text: String,
    /// Line of its start tag, from 1.
    pub(crate) line: usize,
}

impl XmlElement {
    /// Value of an attribute.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
    /// Children with that name.
    pub(crate) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a XmlElement> {
        self.children.iter().filter(move |child| child.name == name)
    }
}

struct XmlLines<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
}

impl XmlLines<'_> {
    /// Line of a byte position. Positions must not decrease between calls.
    fn line_at(&mut self, position: usize) -> usize {
        let end = position.min(self.text.len());
        if let Some(passed) = self.text.get(self.at..end) {
            self.line += passed.iter().filter(|&&b| b == b'\n').count();
            self.at = end;
        }
        self.line
    }
}

/// Parses a document and returns its root element.
pub(crate) fn parse(file: &str, text: &str) -> Result<XmlElement, TopoError> {
    if text.len() > MAX_XML {
        return Err(TopoError::new(
            file,
            format!("{} bytes of XML", text.len()),
            format!("at most {MAX_XML}"),
        ));
    }
    let mut reader = Reader::from_str(text);
    let mut lines = XmlLines { text: text.as_bytes(), at: 0, line: 1 };
    let mut open: Vec<XmlElement> = Vec::new();
    let mut root: Option<XmlElement> = None;
    let mut count = 0;
    loop {
        let before = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
        let event = reader.read_event();
        let start = lines.line_at(before);
        let after = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
        let bad = |line: usize, what: String, expected: &str| {
            Err(TopoError::at(file, line, what, expected))
        };
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                let at = usize::try_from(reader.error_position()).unwrap_or(after);
                return bad(lines.line_at(at), format!("broken XML: {error}"), "well-formed XML");
            }
        };
        let closed = match event {
            Event::Start(tag) => {
                count += 1;
                if open.len() >= MAX_DEPTH {
                    return bad(start, "elements nested too deep".into(), "at most 64 levels");
                }
                open.push(element(file, start, &tag)?);
                None
            }
            Event::Empty(tag) => {
                count += 1;
                Some(element(file, start, &tag)?)
            }
            Event::End(_) => open.pop(),
            Event::Text(text) => {
                if let Some(inner) = open.last_mut() {
                    inner.text.push_str(&text);
                } else if !text.chars().all(|c| c.is_ascii_whitespace()) && *text != *"\u{feff}" {
                    return bad(start, "text outside of any element".into(), "an XML document");
                }
                None
            }
            Event::GeneralRef(name) => {
                return bad(start, format!("entity &{};", excerpt(&name)), "plain text");
            }
            Event::DocType(text) if text.contains('[') => {
                let expected = "no internal declarations; remove the part in [ ]";
                return bad(start, "a DTD inside the document".into(), expected);
            }
            Event::Eof => break,
            _ => None,
        };
        if count > MAX_ELEMENTS {
            return bad(start, "too many elements".into(), "at most 200000");
        }
        if let Some(element) = closed {
            match open.last_mut() {
                Some(outer) => outer.children.push(element),
                None if root.is_none() => root = Some(element),
                None => return bad(start, "a second root element".into(), "one"),
            }
        }
    }
    let end = lines.line_at(usize::MAX);
    if let Some(unclosed) = open.last() {
        let what = format!(
            "the file ends inside <{}> of line {}",
            display_name(&unclosed.name),
            unclosed.line
        );
        return Err(TopoError::at(file, end, what, "its end tag; is the file cut off?"));
    }
    root.ok_or_else(|| TopoError::at(file, end, "no element", "an XML document"))
}

fn element(file: &str, line: usize, tag: &BytesStart<'_>) -> Result<XmlElement, TopoError> {
    let tag_name = tag.name().as_ref().to_owned();
    let mut attributes = Vec::new();
    // The library's own check for duplicates takes quadratic time; the first one counts.
    for attribute in tag.attributes().with_checks(false) {
        let bad = |what: String| {
            let what = format!("<{}>: {what}", display_name(&tag_name));
            Err(TopoError::at(file, line, what, "name=\"value\" pairs"))
        };
        let attribute = match attribute {
            Ok(attribute) => attribute,
            Err(error) => return bad(format!("broken attribute: {error}")),
        };
        if attributes.len() >= MAX_ATTRIBUTES {
            return bad("more than 64 attributes".into());
        }
        let key = attribute.key.as_ref().to_owned();
        match attribute.normalized_value(XmlVersion::Implicit1_0) {
            Ok(value) => attributes.push((key, value.into_owned())),
            Err(error) => return bad(format!("broken value of {}: {error}", display_name(&key))),
        }
    }
    Ok(XmlElement { name: tag_name, attributes, line, ..XmlElement::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_children() {
        let root = parse("f", "<a>\n <b x='1'/>\n <b x='2&amp;'/>t\n</a>").unwrap();
        let found: Vec<_> = root.named("b").map(|b| (b.line, b.get("x").unwrap())).collect();
        assert_eq!(found, [(2, "1"), (3, "2&")]);
        assert_eq!(root.text.trim(), "t");
    }

    #[test]
    fn bombs_are_refused() {
        let bomb = "<!DOCTYPE a [<!ENTITY x \"xxxx\"><!ENTITY y \"&x;&x;\">]>\n<a b='&y;'>&y;</a>";
        assert!(parse("f", bomb).unwrap_err().to_string().contains("a DTD inside the document"));
        assert!(parse("f", "<a b='&y;'/>").is_err());
        assert!(parse("f", "<a>&y;</a>").is_err());
        let deep = "<a>".repeat(100_000);
        assert!(parse("f", &deep).unwrap_err().to_string().contains("nested too deep"));
        let wide = format!("<a>{}</a>", "<b/>".repeat(200_001));
        assert!(parse("f", &wide).unwrap_err().to_string().contains("too many elements"));
        let attributes = format!("<a {}/>", "b='1' ".repeat(100_000));
        assert!(parse("f", &attributes).unwrap_err().to_string().contains("64 attributes"));
    }

    #[test]
    fn truncated_files_say_where() {
        let error = parse("f.xml", "<a>\n<b>\n<c/>\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "f.xml:4: the file ends inside <b> of line 2; expected its end tag; is the file cut off?"
        );
        let long = "x".repeat(100_000);
        for text in [
            format!("<{long}>"),
            format!("<{long} =>"),
            format!("<{long}></a>"),
            format!("<a {long}='&b;'/>"),
            format!("<a {long}=''{long}/>"),
            format!("<a>&{long};</a>"),
        ] {
            let error = parse("f", &text).unwrap_err().to_string();
            assert!(error.len() < 500, "{} bytes of message", error.len());
        }
        assert!(parse("f", "").is_err());
        assert!(parse("f", "no markup").is_err());
        assert!(parse("f", "<a></b>").is_err());
        assert!(parse("f", "<a/><a/>").is_err());
    }
}
