//! Exact texts of libraries, drivers and kernels, which name a cause where no figure could.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use pathline_paste::{NcclLog, PasteContext, is_of_no_message, table_rows};

use crate::draft::DraftAnswer;
use crate::score::{AnswerClass, WorldEdit};
use crate::stated_settings::StatedSetting;

/// The table, one text a row with its source.
const TABLE: &str = include_str!("../data/messages.tsv");
/// Bytes of a paste in which texts are sought.
const MAX_TEXT: usize = 64 << 10;
/// Devices that are named.
const MAX_DEVICES: usize = 8;

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
    let row = |[id, class, texts, meaning, check, source]: [&'static str; 6]| KnownMessage {
        id,
        class: AnswerClass::of_label(class),
        texts: texts.split('|').collect(),
        meaning,
        check,
        source,
    };
    KNOWN.get_or_init(|| table_rows(TABLE).map(row).collect())
}

/// A message of a paste: its row and the text that was found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundMessage {
    pub(crate) row: &'static KnownMessage,
    pub(crate) text: &'static str,
    /// PCI addresses in the lines that have it.
    pub(crate) devices: Vec<String>,
}

impl FoundMessage {
    /// Whether a line has its text.
    pub(crate) fn is_in(&self, line: &str) -> bool {
        let mut normal = String::new();
        add_normal_form(&mut normal, line);
        normal.contains(self.text)
    }

    /// Its answer; a setting that explains it says why.
    pub(crate) fn draft(&self, setting: Option<&StatedSetting>) -> DraftAnswer {
        let row = self.row;
        let (class, text, check) = match setting {
            Some(set) => {
                let text = format!("{}: {} ({})", set.setting, set.meaning, set.source);
                (AnswerClass::SetUpSo, text, set.action)
            }
            None => (row.class, row.meaning.to_owned(), row.check),
        };
        let edit = WorldEdit::new(row.id, class, 1.0).says(text).decided_by(check);
        let meaning = format!("\"{}\", a text of {}", self.text, row.source);
        let mut draft = DraftAnswer::of_text(meaning, edit);
        if !self.devices.is_empty() {
            draft.also.push(format!("devices {}", self.devices.join(", ")));
        }
        draft
    }
}

/// The messages in the text of a paste and in its log, one for each cause.
/// A line that `is_known` explains has no further one.
pub(crate) fn find_messages(
    context: &PasteContext,
    log: Option<&NcclLog>,
    is_known: &dyn Fn(&str) -> bool,
) -> Vec<FoundMessage> {
    let mut text = String::new();
    let logged = log.into_iter().flat_map(|log| log.warnings.iter().chain(&log.reasons));
    let logged = logged.chain(context.failures.iter().map(|(_, text)| text)).map(String::as_str);
    let prose = context.prose.lines().filter(|line| !is_of_no_message(line));
    let lines: Vec<&str> = prose.chain(logged).filter(|line| !is_known(line)).collect();
    for line in &lines {
        if text.len() > MAX_TEXT {
            break;
        }
        add_normal_form(&mut text, line);
    }
    let mut found: Vec<FoundMessage> = Vec::new();
    // What the system says of a call says less than the library that made it: it counts where it stands alone.
    let is_general = |row: &KnownMessage| row.source.starts_with("errno(3)");
    let specific = |line: &str| {
        known_messages()
            .iter()
            .any(|row| !is_general(row) && row.texts.iter().any(|t| line.contains(t)))
    };
    let general: String =
        text.lines().filter(|line| !specific(line)).map(|line| format!("\n{line}")).collect();
    for row in known_messages() {
        let text = if is_general(row) { &general } else { &text };
        let text = row.texts.iter().find(|known| text.contains(**known));
        if let Some(text) = text.filter(|_| found.iter().all(|f| f.row.id != row.id)) {
            found.push(FoundMessage { row, text, devices: Vec::new() });
        }
    }
    for one in &mut found {
        let devices =
            lines.iter().filter(|line| one.is_in(line)).flat_map(|line| pci_addresses(line));
        let devices: BTreeSet<String> = devices.collect();
        one.devices = devices.into_iter().take(MAX_DEVICES).collect();
    }
    found
}

/// `0000:04:00.0` and `0000:b3:00` of a line of the kernel's log.
fn pci_addresses(line: &str) -> impl Iterator<Item = String> {
    let is_hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let address = move |word: &str| {
        let word = word.to_lowercase();
        let word = word.trim_start_matches("pci:").trim_matches([':', ',', '.', ']', '[']);
        let (path, function) = word.split_once('.').unwrap_or((word, "0"));
        let [domain, bus, device] = path.split(':').collect::<Vec<_>>()[..] else { return None };
        let is_one =
            is_hex(domain, 4) && is_hex(bus, 2) && is_hex(device, 2) && is_hex(function, 1);
        is_one.then(|| word.to_owned())
    };
    line.split([' ', '(', ')']).filter_map(address)
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
    fn a_text_of_the_system_counts_where_no_library_says_more() {
        let ids = |prose: &str| -> Vec<&str> {
            let context = PasteContext { prose: prose.to_owned(), ..PasteContext::default() };
            find_messages(&context, None, &|_| false).iter().map(|message| message.row.id).collect()
        };
        let (system, library) = (": no space left on device\n", "failed to extend /dev/shm/nccl-1");
        assert_eq!(ids(&format!("fio{system}")), ["disk-full"]);
        assert_eq!(ids(&format!("{library}{system}")), ["shm-too-small"]);
        assert_eq!(ids(&format!("{library}{system}fio{system}")), ["disk-full", "shm-too-small"]);
    }

    #[test]
    fn devices_of_a_text_are_named() {
        let prose = "pcieport 0000:00:01.0: pcie bus error: severity=corrected, type=data link\n\
                     pcieport 0000:00:02.0: aer: other\n\
                     hpsa 0000:04:00.0: pcie bus error: severity=corrected, type=physical layer\n";
        let context = PasteContext { prose: prose.to_owned(), ..PasteContext::default() };
        let found = find_messages(&context, None, &|_| false);
        assert_eq!(found.len(), 1);
        assert!(found[0].row.meaning.starts_with("Corrected"));
        assert_eq!(found[0].devices, ["0000:00:01.0", "0000:04:00.0"]);
    }

    #[test]
    fn texts_are_found_as_libraries_print_them_and_words_are_not() {
        let found = |prose: &str| -> Vec<&str> {
            let context = PasteContext { prose: prose.to_owned(), ..PasteContext::default() };
            find_messages(&context, None, &|_| false).iter().map(|message| message.row.id).collect()
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
