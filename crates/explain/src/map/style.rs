//! Terminal colours, or none.

/// How a piece of text is set off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// A heading.
    Head,
    /// A unit's name.
    Unit,
    /// Something of lesser weight.
    Dim,
    /// A doubt.
    Warn,
    /// The best of a matrix, and steps below it.
    Step(u8),
}

/// Paints, if colours were asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint(pub(super) bool);

impl Paint {
    /// The text with its codes. Widths are to be padded before.
    pub(super) fn of(self, tone: Tone, text: &str) -> String {
        if !self.0 || text.trim().is_empty() {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Head => "1",
            Tone::Unit => "1;36",
            Tone::Dim => "2",
            Tone::Warn => "33",
            Tone::Step(0) => "1;32",
            Tone::Step(1) => "32",
            Tone::Step(2) => "36",
            Tone::Step(_) => "34",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}
