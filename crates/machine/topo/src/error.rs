//! Errors of inputs, with their positions.

use std::fmt;

/// An unusable input: its name, position, error and expected form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopoError {
    /// File or directory.
    pub file: String,
    /// Line, from 1; `None` if the error concerns the whole file or a binary format.
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
    /// An error that concerns a whole file.
    pub(crate) fn new(
        file: impl Into<String>,
        what: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        // Messages of libraries quote their input, at any length.
        let what = cut(&what.into(), MAX_EXCERPT);
        Self { file: file.into(), line: None, what, expected: expected.into() }
    }
    /// An error in one line.
    pub(crate) fn at(
        file: impl Into<String>,
        line: usize,
        what: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self { line: Some(line), ..Self::new(file, what, expected) }
    }
}

/// Maximum length of an error text, in characters.
const MAX_EXCERPT: usize = 300;

/// Shortens an external text to the length of a message.
pub(crate) fn excerpt(text: &str) -> String {
    let cut: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() { format!("'{cut}…'") } else { format!("'{cut}'") }
}

/// Shortens an external name and removes control characters.
pub(crate) fn display_name(text: &str) -> String {
    cut(text, 60)
}

fn cut(text: &str, most: usize) -> String {
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let mut cut: String = text.chars().take(most).map(plain).collect();
    cut.extend(text.chars().nth(most).map(|_| '…'));
    cut
}
