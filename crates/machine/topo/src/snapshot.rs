//! The files that describe a host, by path. All analysis after this is pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::TopoError;

/// Version of the single-file format.
const VERSION: u32 = 1;
/// Maximum size of a file in bytes; `/proc/cpuinfo` of 1000 CPUs, shortened, has about 50 kB.
pub(crate) const MAX_FILE: usize = 1 << 20;
/// Maximum size of a snapshot in bytes; a node of 16 GPUs and 512 CPUs has about 2 MB.
pub(crate) const MAX_TOTAL: usize = 64 << 20;
/// Maximum number of files in a snapshot.
pub(crate) const MAX_FILES: usize = 200_000;
/// Suffix of the entry with the target of a symbolic link.
pub(crate) const TARGET: &str = ".target";

/// Plain files of `/proc` and `/sys`, by path without the leading slash. The target of a symbolic
/// link is stored under its path with the suffix `.target`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostSnapshot {
    files: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SnapshotFile {
    pathline_snapshot: u32,
    files: BTreeMap<String, String>,
}

impl HostSnapshot {
    /// Versions of libraries, which no system file shows: name, version and file of each, with tabs between them. An
    /// empty version could not be read.
    pub const VERSIONS: &'static str = "pathline/versions.tsv";

    /// Adds a file. Returns false, and ignores the file, beyond the limits of a snapshot: 1 MiB per
    /// file, 64 MiB, 200000 files.
    pub fn insert(&mut self, path: impl Into<String>, text: impl Into<String>) -> bool {
        let (path, text) = (path.into(), text.into());
        let fits = text.len() <= MAX_FILE && self.files.len() < MAX_FILES;
        if fits {
            self.files.insert(path, text);
        }
        fits
    }
    /// The text of a file.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }
    /// The text of a file without surrounding white space; `None` if that is empty.
    pub fn line(&self, path: &str) -> Option<&str> {
        self.get(path).map(str::trim).filter(|text| !text.is_empty())
    }
    /// The target of a symbolic link.
    pub fn target(&self, path: &str) -> Option<&str> {
        self.line(&format!("{path}{TARGET}"))
    }
    /// Names directly below a directory, sorted with numbers by value: `cpu2` before `cpu10`.
    pub fn children(&self, dir: &str) -> Vec<&str> {
        let prefix = format!("{dir}/");
        let mut names: Vec<&str> = self
            .files
            .range(prefix.clone()..)
            .map_while(|(path, _)| path.strip_prefix(prefix.as_str()))
            .map(|rest| rest.split('/').next().unwrap_or(rest))
            .map(|name| name.strip_suffix(TARGET).unwrap_or(name))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        names.sort_by_key(|name| split_number(name));
        names
    }
    /// Numbers `N` of the children named `{prefix}N`, ascending.
    pub fn numbered(&self, dir: &str, prefix: &str) -> Vec<u32> {
        let mut numbers: Vec<u32> = self
            .children(dir)
            .iter()
            .filter_map(|name| name.strip_prefix(prefix)?.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers
    }
    /// All files, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }
    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }
    /// Whether it has no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
    /// The single-file format: JSON, one line per file.
    pub fn to_text(&self) -> String {
        let container = SnapshotFile { pathline_snapshot: VERSION, files: self.files.clone() };
        serde_json::to_string_pretty(&container).unwrap_or_default() + "\n"
    }
    /// Parses the output of [`HostSnapshot::to_text`]. Errors name `file`.
    pub fn from_text(file: &str, text: &str) -> Result<Self, TopoError> {
        if text.len() > MAX_TOTAL {
            let what = format!("{} bytes of snapshot", text.len());
            return Err(TopoError::new(file, what, format!("at most {MAX_TOTAL}")));
        }
        let container: SnapshotFile = serde_json::from_str(text).map_err(|error| {
            TopoError::at(file, error.line(), error.to_string(), "a snapshot saved by pathline")
        })?;
        if container.pathline_snapshot != VERSION {
            let what = format!("snapshot format {}", container.pathline_snapshot);
            return Err(TopoError::new(file, what, format!("format {VERSION}")));
        }
        let mut snapshot = Self::default();
        for (path, text) in container.files {
            if !snapshot.insert(path.as_str(), text) {
                let what = format!("{path} is too large or one file too many");
                return Err(TopoError::new(file, what, "at most 200000 files of 1 MiB"));
            }
        }
        Ok(snapshot)
    }
}

/// Splits `cpu10` into prefix and number, for sorting.
fn split_number(name: &str) -> (&str, u64, &str) {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name.get(prefix.len()..).and_then(|n| n.parse().ok()).unwrap_or(0);
    (prefix, number, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_those_of_the_directory_only() {
        let mut snapshot = HostSnapshot::default();
        for path in ["a/cpu10/x", "a/cpu2/x", "a/cpu2/y", "ab/z", "a/l.target", "a/cpufreq/x"] {
            snapshot.insert(path, "1\n");
        }
        assert_eq!(snapshot.children("a"), ["cpu2", "cpu10", "cpufreq", "l"]);
        assert_eq!(snapshot.numbered("a", "cpu"), [2, 10]);
        assert_eq!(snapshot.target("a/l"), Some("1"));
    }

    #[test]
    fn text_and_back() {
        let mut snapshot = HostSnapshot::default();
        snapshot.insert("proc/x", "a \"quoted\"\nline\u{1}");
        assert_eq!(HostSnapshot::from_text("f", &snapshot.to_text()), Ok(snapshot));
        assert!(HostSnapshot::from_text("f", "{\"pathline_snapshot\":2,\"files\":{}}").is_err());
        assert!(HostSnapshot::from_text("f", "{").is_err());
    }

    #[test]
    fn large_files_are_left_out() {
        assert!(!HostSnapshot::default().insert("x", "y".repeat(MAX_FILE + 1)));
    }
}
