//! How much of a paste was read.

use crate::document::PasteReading;

impl PasteReading {
    /// Figures of all documents, and lines of the paste that belong to them.
    pub(crate) fn figures_and_lines(&self) -> (usize, u32) {
        let figures = self.documents.iter().map(|document| document.content.figures()).sum();
        let (mut lines, mut end) = (0, 0);
        let spans = self.documents.iter().map(|document| (document.span.first, document.span.last));
        let mut spans: Vec<(u32, u32)> = spans.collect();
        spans.sort_unstable();
        for (first, last) in spans {
            lines += (last + 1).saturating_sub(first.max(end));
            end = end.max(last + 1);
        }
        (figures, lines)
    }
}
