//! Exact texts of libraries, drivers and kernels, which name a cause where no figure could.

use std::sync::OnceLock;

use pathline_paste::{NcclLog, PasteContext};

use crate::score::AnswerClass;

/// The table, one text a row with its source.
const TABLE: &str = include_str!("../data/messages.tsv");
/// Bytes of a paste in which texts are sought.
const MAX_TEXT: usize = 64 << 10;

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KnownMessage {
    pub(crate) id: &'static str,
    pub(crate) class: AnswerClass,
    texts: Vec<&'static str>,
    pub(crate) meaning: &'static str,
    pub(crate) check: &'static str,
    pub(crate) source: &'static str,
}

/// Each row of the table; a row of another shape is left out.
fn known_messages() -> &'static [KnownMessage] {
    static KNOWN: OnceLock<Vec<KnownMessage>> = OnceLock::new();
    KNOWN.get_or_init(|| TABLE.lines().filter_map(parse_row).collect())
}

fn parse_row(line: &'static str) -> Option<KnownMessage> {
    let mut fields = line.split('\t');
    let mut next = || fields.next().filter(|field| !field.is_empty());
    let (id, class) = (next()?, next()?);
    let class =
        Some(AnswerClass::of_label(class)).filter(|class| *class != AnswerClass::Unknown)?;
    let texts = next()?.split('|').collect();
    Some(KnownMessage { id, class, texts, meaning: next()?, check: next()?, source: next()? })
}

/// A message of a paste: its row and the text that was found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundMessage {
    pub(crate) row: &'static KnownMessage,
    pub(crate) text: &'static str,
}

impl FoundMessage {
    /// Whether a line has its text.
    pub(crate) fn is_in(&self, line: &str) -> bool {
        let mut normal = String::new();
        add_normal_form(&mut normal, line);
        normal.contains(self.text)
    }
}

/// The messages in the text of a paste and in its log, one for each cause.
pub(crate) fn find_messages(context: &PasteContext, log: Option<&NcclLog>) -> Vec<FoundMessage> {
    let mut text = String::new();
    let logged = log.into_iter().flat_map(|log| log.warnings.iter().chain(&log.reasons));
    let logged = logged.chain(context.failures.iter().map(|(_, text)| text));
    for line in context.prose.lines().chain(logged.map(String::as_str)) {
        if text.len() > MAX_TEXT {
            break;
        }
        add_normal_form(&mut text, line);
    }
    let mut found: Vec<FoundMessage> = Vec::new();
    for row in known_messages() {
        let text = row.texts.iter().find(|known| text.contains(**known));
        if let Some(text) = text.filter(|_| found.iter().all(|f| f.row.id != row.id)) {
            found.push(FoundMessage { row, text });
        }
    }
    found
}

/// Adds a line in lower case, with single blanks in place of punctuation, as the table has it.
fn add_normal_form(text: &mut String, line: &str) {
    text.push('\n');
    for c in line.chars() {
        match c {
            ',' | ';' | ':' | '(' | ')' | '[' | ']' | '"' | '\'' | '`' | '?' | '!' | '*' => {}
            c if c.is_whitespace() => {}
            c => {
                text.extend(c.to_lowercase());
                continue;
            }
        }
        if !text.ends_with([' ', '\n']) {
            text.push(' ');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_and_has_a_source() {
        let rows = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(known_messages().len(), rows);
        for row in known_messages() {
            for text in &row.texts {
                let mut normal = String::new();
                add_normal_form(&mut normal, text);
                assert_eq!(normal.trim(), *text, "{}: not in its normal form", row.id);
                assert!(text.len() >= 12 || text.contains(' '), "{text}: too short to be exact");
            }
        }
    }

    #[test]
    fn texts_are_found_as_libraries_print_them_and_words_are_not() {
        let found = |prose: &str| -> Vec<&str> {
            let context = PasteContext { prose: prose.to_owned(), ..PasteContext::default() };
            find_messages(&context, None).iter().map(|message| message.row.id).collect()
        };
        assert_eq!(
            found("a: ncclInvalidUsage\nDuplicate GPU detected : rank 1"),
            ["duplicate-gpu"]
        );
        assert_eq!(
            found("ibv_modify_qp failed with error No such device\nFailed to modify QP 12 to RTR"),
            ["rdma-path-fails"]
        );
        for words in [
            "hello world, the weather is fine today",
            "why is my GPU slow? is the driver too old, or the memory full?",
            "ACS, IOMMU and NUMA balancing are on; /dev/shm is small",
        ] {
            assert!(found(words).is_empty(), "{words}");
        }
    }
}
