//! What to run where neither arithmetic nor a message decides: three checks for each kind of path, the cheapest
//! first, each with what it shows. Where tools of the vendors differ, the known vendor's are named.

use serde::Serialize;

const TABLE: &str = include_str!("../data/checks.tsv");

/// The kinds of paths that an answer is about.
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
    /// Each with its name in the table.
    const NAMES: [(Self, &'static str); 13] = [
        (Self::NodeCollective, "node-collective"),
        (Self::NetCollective, "net-collective"),
        (Self::HostCopies, "host-copies"),
        (Self::GpuPairs, "gpu-pairs"),
        (Self::GpuMessage, "gpu-message"),
        (Self::HostMessage, "host-message"),
        (Self::Adapter, "adapter"),
        (Self::Files, "files"),
        (Self::DirectFiles, "direct-files"),
        (Self::Memory, "memory"),
        (Self::Wiring, "wiring"),
        (Self::Log, "log"),
        (Self::Profile, "profile"),
    ];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(path, _)| *path == self).map_or("", |(_, name)| name)
    }

    /// Its checks, the cheapest first; `vendor` is that of the GPUs, empty if none is known.
    pub(crate) fn checks(self, vendor: &str) -> Vec<PathCheck> {
        let vendor = if vendor.is_empty() { "any" } else { vendor };
        let row = |line: &'static str| {
            let mut cells = line.split('\t');
            let (path, command, yes, no) =
                (cells.next()?, cells.next()?, cells.next()?, cells.next()?);
            let is_of = cells.next().is_none_or(|of| of == vendor);
            (path == self.name() && is_of).then_some(PathCheck { command, yes, no })
        };
        TABLE.lines().filter_map(row).collect()
    }
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
    use super::*;

    /// Of each vendor, and of none; no tool is the other vendor's.
    #[test]
    fn every_path_has_three_checks_of_its_vendor() {
        for ((path, _), vendor) in CheckPath::NAMES
            .iter()
            .flat_map(|path| ["", "amd", "nvidia"].map(|vendor| (path, vendor)))
        {
            let checks = path.checks(vendor);
            assert_eq!(checks.len(), 3, "{path:?} {vendor}");
            let text: String =
                checks.iter().flat_map(|check| [check.command, check.yes, check.no]).collect();
            let other: &[&str] = match vendor {
                "amd" => &["nvidia", "NVL", "cuda", "nsys"],
                "nvidia" => &["rocm", "xGMI", "rocprof"],
                _ => &[],
            };
            // Reads of files into GPU memory by a tool of one vendor alone.
            let is_alone = matches!(path, CheckPath::DirectFiles);
            assert!(is_alone || !other.iter().any(|word| text.contains(word)), "{vendor}: {text}");
        }
        let known = |line: &&str| CheckPath::NAMES.iter().any(|(_, name)| line.starts_with(name));
        let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
        assert!(rows.clone().all(|line| known(&line)), "a row of no path");
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
