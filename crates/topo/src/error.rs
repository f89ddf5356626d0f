//! Errors of inputs, with their place.

use std::fmt;

/// An unusable input: its name, the place in it, the error and the expected form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopoError {
    /// File or directory.
    pub file: String,
    /// Line, 1 is the first; none where lines mean nothing.
    pub line: Option<usize>,
    /// The error.
    pub what: String,
    /// The expected form, or the remedy.
    pub expected: String,
}

impl fmt::Display for TopoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}; expected {}", self.what, self.expected)
    }
}

impl std::error::Error for TopoError {}

impl TopoError {
    /// About a whole file.
    pub(crate) fn new(
        file: impl Into<String>,
        what: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        // Messages of other libraries echo what they met, of any length.
        let what = cut(&what.into(), LONGEST);
        Self { file: file.into(), line: None, what, expected: expected.into() }
    }
    /// About one line of it.
    pub(crate) fn at(
        file: impl Into<String>,
        line: usize,
        what: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self { line: Some(line), ..Self::new(file, what, expected) }
    }
}

/// The longest error text, in characters.
const LONGEST: usize = 300;

/// A text from outside, cut to a length that fits a message.
pub(crate) fn excerpt(text: &str) -> String {
    let cut: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() { format!("'{cut}…'") } else { format!("'{cut}'") }
}

/// A name from outside, cut and without control characters.
pub(crate) fn name(text: &str) -> String {
    cut(text, 60)
}

fn cut(text: &str, most: usize) -> String {
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let mut cut: String = text.chars().take(most).map(plain).collect();
    cut.extend(text.chars().nth(most).map(|_| '…'));
    cut
}
