//! Terminal colours, if enabled.

/// Emphasis of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextTone {
    /// A heading.
    Head,
    /// A unit's name.
    Unit,
    /// A less important text.
    Dim,
    /// A warning.
    Warn,
    /// The best value of a matrix, and steps below it.
    Step(u8),
}

/// Applies colours if enabled.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextPaint(pub(super) bool);

impl TextPaint {
    /// The text with its colour codes. It must be padded before.
    pub(super) fn paint(self, tone: TextTone, text: &str) -> String {
        if !self.0 || text.trim().is_empty() {
            return text.to_owned();
        }
        let code = match tone {
            TextTone::Head => "1",
            TextTone::Unit => "1;36",
            TextTone::Dim => "2",
            TextTone::Warn => "33",
            TextTone::Step(0) => "1;32",
            TextTone::Step(1) => "32",
            TextTone::Step(2) => "36",
            TextTone::Step(_) => "34",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}
