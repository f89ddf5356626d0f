//! What to run where neither arithmetic nor a message decides: three checks for each kind of path, the cheapest
//! first, each with what it shows. Where tools of the vendors differ, the known vendor's are named.

use pathline_paste::table_rows;
use serde::Serialize;

const TABLE: &str = include_str!("../data/checks.tsv");

/// The kinds of paths that an answer is about, as the table names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum CheckPath {
    #[default]
    NodeCollective,
    NetCollective,
    HostCopies,
    GpuPairs,
    GpuMessage,
    HostMessage,
    Adapter,
    Files,
    DirectFiles,
    Memory,
    Wiring,
    Log,
    Profile,
    /// Of a table that does not say what it measured: nothing is advised.
    Unknown,
}

impl CheckPath {
    /// Its checks, the cheapest first; `vendor` is that of the GPUs, empty if none is known.
    pub(crate) fn checks(self, vendor: &str) -> Vec<PathCheck> {
        find_checks(&format!("{self:?}"), if vendor.is_empty() { "any" } else { vendor })
    }
}

fn find_checks(path: &str, vendor: &str) -> Vec<PathCheck> {
    let mine = table_rows(TABLE).filter(|row| row[0] == path && ["all", vendor].contains(&row[4]));
    mine.map(|[_, command, yes, no, _]| PathCheck { command, yes, no }).collect()
}

/// A command and what it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PathCheck {
    /// What to run.
    pub command: &'static str,
    /// What a positive result is and shows.
    pub yes: &'static str,
    /// The same of a negative one.
    pub no: &'static str,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Of each vendor, and of none; no tool is the other vendor's.
    #[test]
    fn every_path_has_three_checks_of_its_vendor() {
        let paths: BTreeSet<&str> = table_rows::<5>(TABLE).map(|row| row[0]).collect();
        assert_eq!((paths.len(), table_rows::<5>(TABLE).count()), (13, 55));
        for (path, vendor) in
            paths.iter().flat_map(|path| ["any", "amd", "nvidia"].map(|vendor| (*path, vendor)))
        {
            let checks = find_checks(path, vendor);
            assert_eq!(checks.len(), 3, "{path:?} {vendor}");
            let text: String =
                checks.iter().flat_map(|check| [check.command, check.yes, check.no]).collect();
            let other: &[&str] = match vendor {
                "amd" => &["nvidia", "NVL", "cuda", "nsys"],
                "nvidia" => &["rocm", "xGMI", "rocprof"],
                _ => &[],
            };
            // Reads of files into GPU memory by a tool of one vendor alone.
            let is_alone = path == "DirectFiles";
            assert!(is_alone || !other.iter().any(|word| text.contains(word)), "{vendor}: {text}");
        }
    }

    /// Of the tables, and of the texts in the code.
    #[test]
    fn commands_name_suites_that_are_there() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut texts = vec![TABLE.to_owned(), include_str!("../data/causes.tsv").to_owned()];
        for file in std::fs::read_dir(folder).unwrap() {
            texts.push(std::fs::read_to_string(file.unwrap().path()).unwrap());
        }
        let mut named = 0;
        for after in texts.iter().flat_map(|text| text.split("pathline run ").skip(1)) {
            let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
            let word = after.split(|c| !is_name(c)).next().unwrap();
            let is_suite = pathline_schema::SuiteId::ALL.iter().any(|suite| suite.word() == word);
            assert!(is_suite || word.is_empty() || word.starts_with("--"), "pathline run {word}");
            named += usize::from(is_suite);
        }
        assert!(named > 15, "{named}");
    }
}
