//! Causes as data: what each predicts for the figures, and what is said of it.

use std::sync::LazyLock;

use pathline_paste::table_rows;

use crate::figures::figure;
use crate::score::{AnswerClass, WorldEdit};

const TABLE: &str = include_str!("../data/causes.tsv");
/// Rows by key; a row of another shape is left out.
static ROWS: LazyLock<Vec<[&str; 7]>> = LazyLock::new(|| table_rows(TABLE).collect());

/// The numbers and words that rows of the table name.
#[derive(Debug, Clone, Default)]
pub(crate) struct CauseFacts {
    numbers: Vec<(&'static str, f64)>,
    words: Vec<(&'static str, String)>,
}

impl CauseFacts {
    pub(crate) fn new(numbers: &[(&'static str, f64)]) -> Self {
        Self { numbers: numbers.to_vec(), words: Vec::new() }
    }

    /// The same with another number.
    pub(crate) fn with(&self, name: &'static str, number: f64) -> Self {
        let mut facts = self.clone();
        facts.numbers.push((name, number));
        facts
    }

    /// The same with a word.
    pub(crate) fn word(&self, name: &'static str, word: impl Into<String>) -> Self {
        let mut facts = self.clone();
        facts.words.push((name, word.into()));
        facts
    }

    /// A row `KIND.ID` or `KIND.ID#VARIANT` as a cause.
    pub(crate) fn cause(&self, key: &'static str) -> WorldEdit {
        let id = key.split_once('.').map_or(key, |(_, id)| id);
        let id = id.split('#').next().unwrap_or(id);
        let Some([_, class, prior, expects, options, text, check]) =
            ROWS.iter().find(|row| row[0] == key)
        else {
            return WorldEdit::new(id, AnswerClass::Unknown, f64::MIN_POSITIVE);
        };
        let mut edit = WorldEdit::new(id, AnswerClass::of_label(class), self.value(prior));
        for (feature, rest) in expects.split(' ').filter_map(|part| part.split_once('=')) {
            let (median, sigma) = rest.split_once('~').unwrap_or((rest, "0.1"));
            edit = edit.expects(feature, self.value(median), self.value(sigma));
        }
        for option in options.split(' ') {
            let (name, value) = option.split_once('=').unwrap_or((option, "0"));
            let value = self.value(value);
            match name {
                "certain" => edit.is_certain = true,
                "stated" => edit.is_stated = true,
                "modelled" => edit.is_modelled = true,
                "exact" => edit.exact = Some(value),
                "within" => edit.tolerance = value,
                "seen" => edit.evidence += value,
                "copies" => edit.copies_at = value,
                _ => {}
            }
        }
        edit.says(self.fill(text)).decided_by(*check)
    }

    /// `pcie*0.27`: numbers and names, multiplied.
    fn value(&self, product: &str) -> f64 {
        let factor = |name: &str| {
            let known = || self.numbers.iter().rev().find(|(known, _)| *known == name);
            name.parse().ok().or_else(|| known().map(|(_, number)| *number)).unwrap_or(f64::NAN)
        };
        product.split('*').map(factor).product()
    }

    fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, next) = after.split_once('}').unwrap_or((after, ""));
            filled.push_str(before);
            filled.push_str(&match (name.strip_prefix('$'), name.strip_suffix(['%', '!'])) {
                (Some(word), _) => {
                    let known = self.words.iter().rev().find(|(known, _)| *known == word);
                    known.map(|(_, word)| word.clone()).unwrap_or_default()
                }
                (_, Some(product)) if name.ends_with('%') => {
                    format!("{:.0} %", self.value(product) * 100.0)
                }
                (_, Some(product)) => format!("{:.0}", self.value(product)),
                _ => figure(self.value(name)),
            });
            rest = next;
        }
        filled + rest
    }
}

/// A row that needs no numbers.
pub(crate) fn cause(key: &'static str) -> WorldEdit {
    CauseFacts::default().cause(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_filled() {
        let facts = CauseFacts::new(&[("pcie", 31.5), ("prior", 0.25)]).word("why", "no P2P");
        let edit = facts.cause("collective.through-host-memory");
        // 31.5 x 0.27 = 8.505.
        assert!(edit.text.starts_with("no P2P: each byte") && edit.text.contains("8.51 of 31.5"));
        assert_eq!((edit.id, edit.prior, edit.tolerance), ("through-host-memory", 0.25, 0.45));
        assert!((edit.expects[0].1 - 8.505).abs() < 1e-9);
        assert_eq!(cause("collective.fewer-adapters#named").id, "fewer-adapters");
    }

    /// Of the keys in the code each is a row, and each row is one of them.
    #[test]
    fn every_key_is_a_row() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count(), ROWS.len());
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut code = String::new();
        for file in std::fs::read_dir(folder).unwrap() {
            code.push_str(&std::fs::read_to_string(file.unwrap().path()).unwrap());
        }
        for [key, ..] in ROWS.iter() {
            assert!(code.contains(&format!("\"{key}\"")), "{key} is in no code");
        }
        let kinds: std::collections::BTreeSet<&str> =
            ROWS.iter().filter_map(|[key, ..]| key.split('.').next()).collect();
        for kind in kinds {
            for key in code.split(&format!("cause(\"{kind}.")).skip(1) {
                let key = format!("{kind}.{}", key.split('"').next().unwrap());
                assert!(ROWS.iter().any(|[known, ..]| *known == key), "{key} has no row");
            }
        }
    }
}
