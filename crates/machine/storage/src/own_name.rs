//! Names of what this program stores in folders and buckets. One grammar makes and recognises them: what it
//! does not produce is never removed.

use std::fmt;

/// What the names of folders of this program begin with, in folders and in buckets.
pub(super) const PREFIX: &str = "pathline-storage-";

/// The folder of one process: `pathline-storage-HOST-PROCESS-NUMBER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunFolder {
    /// Letters, digits and `_`.
    pub(super) host: String,
    pub(super) process: u32,
    /// A count in folders; in buckets the start of the process.
    pub(super) number: u64,
}

impl fmt::Display for RunFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}-{}-{}", self.host, self.process, self.number)
    }
}

impl RunFolder {
    /// Parses exactly what `Display` writes.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let host = parts.next()?.to_owned();
        let (process, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let is_plain = host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let found = Self { host, process, number };
        (is_plain && found.to_string() == name).then_some(found)
    }
}

/// The name of a file, an object, or a folder of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OwnName {
    /// `read-5eed`: the pattern of a seed.
    Read(u64),
    /// `write-0`: what a file is written to.
    Write(u64),
    /// `tree-1`: a folder of many small files.
    Tree(u64),
    /// `each-5eed-4096`, `each-write-4096`: a folder of objects of one block; without a seed to be written.
    Each(Option<u64>, u64),
    /// `4`: one of these blocks.
    Block(u64),
    /// `d0-7`: a folder of a tree, by worker and number.
    Folder(u64, u64),
    /// `f0-7`: a file of a tree.
    File(u64, u64),
}

impl fmt::Display for OwnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(seed) => write!(f, "read-{seed:x}"),
            Self::Write(number) => write!(f, "write-{number}"),
            Self::Tree(number) => write!(f, "tree-{number}"),
            Self::Each(Some(seed), block) => write!(f, "each-{seed:x}-{block}"),
            Self::Each(None, block) => write!(f, "each-write-{block}"),
            Self::Block(number) => write!(f, "{number}"),
            Self::Folder(worker, number) => write!(f, "d{worker}-{number}"),
            Self::File(worker, number) => write!(f, "f{worker}-{number}"),
        }
    }
}

impl OwnName {
    /// Parses exactly what `Display` writes.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let begins = |with| name.strip_prefix(with);
        let pair = |text: &str| {
            let (worker, number) = text.split_once('-')?;
            Some((worker.parse().ok()?, number.parse().ok()?))
        };
        let found = if let Some(seed) = begins("read-") {
            Self::Read(hex(seed)?)
        } else if let Some(number) = begins("write-") {
            Self::Write(number.parse().ok()?)
        } else if let Some(number) = begins("tree-") {
            Self::Tree(number.parse().ok()?)
        } else if let Some((seed, block)) = begins("each-").and_then(|rest| rest.split_once('-')) {
            let seed = if seed == "write" { None } else { Some(hex(seed)?) };
            Self::Each(seed, block.parse().ok()?)
        } else if let Some((worker, number)) = begins("d").and_then(pair) {
            Self::Folder(worker, number)
        } else if let Some((worker, number)) = begins("f").and_then(pair) {
            Self::File(worker, number)
        } else {
            Self::Block(name.parse().ok()?)
        };
        (found.to_string() == name).then_some(found)
    }

    /// Whether it is a file in the folder of a process.
    pub(super) fn is_file(name: &str) -> bool {
        matches!(Self::parse(name), Some(Self::Read(_) | Self::Write(_)))
    }

    /// Whether it is a tree.
    pub(super) fn is_tree(name: &str) -> bool {
        matches!(Self::parse(name), Some(Self::Tree(_)))
    }

    /// Whether a key is that of an object, behind the folder of its process.
    pub(super) fn is_object(key: &str) -> bool {
        let parts: Option<Vec<Self>> = key.split('/').map(Self::parse).collect();
        matches!(
            parts.as_deref(),
            Some(
                [Self::Read(_) | Self::Write(_)]
                    | [Self::Each(..), Self::Block(_)]
                    | [Self::Tree(_), Self::Folder(..), Self::File(..)]
            )
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_recognised_and_nothing_else() {
        let of = |number| {
            [
                OwnName::Read(number),
                OwnName::Write(number),
                OwnName::Tree(number),
                OwnName::Each(Some(number), 4096),
                OwnName::Each(None, number),
                OwnName::Block(number),
                OwnName::Folder(number, 3),
                OwnName::File(0, number),
            ]
        };
        for name in [0, 7, 0xabc, u64::MAX].into_iter().flat_map(of) {
            assert_eq!(OwnName::parse(&name.to_string()), Some(name));
        }
        for wrong in [
            "",
            ".",
            "..",
            "+7",
            "07",
            "-1",
            "read-",
            "read-5EED",
            "read-05",
            "read-0x5",
            "write-1a",
            "write-+1",
            "tree-1/",
            "each-5-",
            "each-write-",
            "d0",
            "d0-",
            "f0-7-1",
            "f+0-7",
            "Read-5",
            "18446744073709551616",
        ] {
            assert_eq!(OwnName::parse(wrong), None, "{wrong}");
        }
        for key in ["read-5eed", "write-0", "each-5-4096/7", "each-write-1/0", "tree-1/d0-0/f0-3"] {
            assert!(OwnName::is_object(key), "{key}");
        }
        for key in [
            "",
            "/",
            "precious",
            "read-5eed/",
            "/read-5eed",
            "read-5eed/../write-0",
            "write-0/x",
            "..",
            "../other/precious",
            "../../../other/precious",
            "%2e%2e/read-5eed",
            "each-5-4096",
            "d0-0",
            "each-5-4096//7",
            "each-5-4096/./7",
            "tree-1/d0-0",
            "tree-1/d0-0/..",
            "tree-1//f0-3",
            "7",
        ] {
            assert!(!OwnName::is_object(key), "{key}");
        }
    }

    #[test]
    fn folders_of_processes_are_recognised() {
        let folder = RunFolder { host: "node_7".to_owned(), process: 12, number: 3 };
        assert_eq!(folder.to_string(), "pathline-storage-node_7-12-3");
        assert_eq!(RunFolder::parse("pathline-storage-node_7-12-3"), Some(folder));
        for wrong in ["", "pathline-storage-a-1", "x-a-1-2", "pathline-storage-a-1-2-old"] {
            assert_eq!(RunFolder::parse(wrong), None, "{wrong}");
        }
        for wrong in ["../1-0", "a-01-0", "a-1-+2", "a.b-1-2", "a/b-1-2"] {
            assert_eq!(RunFolder::parse(&format!("{PREFIX}{wrong}")), None, "{wrong}");
        }
    }
}
