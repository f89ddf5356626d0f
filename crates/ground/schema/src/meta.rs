//! Metadata operations of a file system: many small files and folders.

use std::fmt;

use crate::place::number;
use crate::{Bytes, IoFiles, ParseError, words};

/// The operation on each file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetaOp {
    /// Creates a file, writes its content if it has one, and closes it.
    Create,
    /// The same with `fsync` before it is closed: it survives a power failure.
    CreateSync,
    /// Asks for the attributes of a file (`fstatat`).
    Stat,
    /// Opens a file, reads its content if it has one, and closes it.
    Read,
    /// Lists the names in a folder.
    List,
    /// Removes a file.
    Delete,
    /// Creates a folder.
    Mkdir,
    /// Removes an empty folder.
    Rmdir,
}
words!(MetaOp, "metadata operation", {
    Create => "create", CreateSync => "create-sync", Stat => "stat", Read => "read", List => "list",
    Delete => "delete", Mkdir => "mkdir", Rmdir => "rmdir",
});

impl MetaOp {
    /// Whether it is about folders and not about files.
    pub const fn is_of_folders(self) -> bool {
        matches!(self, Self::Mkdir | Self::Rmdir)
    }
    /// Whether a second one of the same file or folder fails, so that a sample has at most one of
    /// each.
    pub const fn is_once(self) -> bool {
        !matches!(self, Self::Stat | Self::Read | Self::List)
    }
    /// Whether it creates files.
    pub const fn creates_files(self) -> bool {
        matches!(self, Self::Create | Self::CreateSync)
    }
}

/// Most files or folders of a case.
pub const MAX_META_ITEMS: u64 = 1 << 20;
/// Largest content of a file of metadata cases.
pub const MAX_META_BYTES: Bytes = Bytes::mib(1);

/// Metadata operations of one flow. The flow's size is the content of each file:
/// `numa0.paged > store0.file by meta@numa0[create,own,d4,f256,t2] x 4KiB`. Files between registers
/// and a store are empty, and so is a folder; their size is written `1B`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetaSpec {
    /// The operation.
    pub op: MetaOp,
    /// Whether all workers use the same folders. Files are never shared.
    pub folders: IoFiles,
    /// Folders: of each worker, or of all where they share them. Of `mkdir` and `rmdir`: the folders
    /// of each worker that are created and removed, within one folder.
    pub dirs: u32,
    /// Files of each worker in each folder; 0 for operations on folders.
    pub files: u32,
    /// Workers: threads pinned to cores of the mover's unit, at least 1.
    pub threads: u32,
}

impl MetaSpec {
    /// Files or folders of one worker that the operation is about.
    pub fn items_each(&self) -> u64 {
        u64::from(self.dirs) * u64::from(self.files.max(1))
    }
    /// Files or folders of all workers that the operation is about.
    pub fn items(&self) -> u64 {
        self.items_each().saturating_mul(u64::from(self.threads))
    }
    /// Folders that hold these.
    pub fn parents(&self) -> u64 {
        let each = if self.op.is_of_folders() { 1 } else { u64::from(self.dirs) };
        match self.folders {
            IoFiles::Shared | IoFiles::Each => each,
            IoFiles::Own => each * u64::from(self.threads),
        }
    }
    /// Files and folders that exist at once at most.
    pub fn inodes(&self) -> u64 {
        self.items().saturating_add(self.parents())
    }

    /// Parses the text in brackets.
    pub(crate) fn parse(args: &str) -> Result<Self, ParseError> {
        let bad = || {
            ParseError::new(
                "metadata operation",
                args,
                "create, create-sync, stat, read, list or delete, as OP,shared|own,dFOLDERS,fFILES,tTHREADS, or mkdir \
                 or rmdir without fFILES, such as create,own,d4,f256,t2",
            )
        };
        let words: Vec<&str> = args.split(',').take(6).collect();
        let count = |word: &str, letter: char| {
            word.strip_prefix(letter).and_then(number::<u32>).filter(|&n| n >= 1).ok_or_else(bad)
        };
        let (op, folders, dirs, files, threads) = match *words.as_slice() {
            [op, folders, dirs, files, threads] => (op, folders, dirs, count(files, 'f')?, threads),
            [op, folders, dirs, threads] => (op, folders, dirs, 0, threads),
            _ => return Err(bad()),
        };
        let op: MetaOp = op.parse()?;
        if op.is_of_folders() != (files == 0) {
            return Err(bad());
        }
        let (dirs, threads) = (count(dirs, 'd')?, count(threads, 't')?);
        let folders: IoFiles = folders.parse()?;
        if folders == IoFiles::Each {
            return Err(bad());
        }
        Ok(Self { op, folders, dirs, files, threads })
    }
}

impl fmt::Display for MetaSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, folders, dirs, files, threads } = self;
        write!(f, "{op},{folders},d{dirs}")?;
        if !op.is_of_folders() {
            write!(f, ",f{files}")?;
        }
        write!(f, ",t{threads}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_canonical() {
        for text in [
            "create,own,d4,f256,t2",
            "create-sync,own,d1,f2,t1",
            "list,shared,d1,f2,t1",
            "stat,shared,d1,f1000,t8",
            "mkdir,own,d1000,t1",
        ] {
            assert_eq!(MetaSpec::parse(text).unwrap().to_string(), text);
        }
        for wrong in [
            "create,own,d4,t2",
            "mkdir,own,d4,f1,t2",
            "create,own,d0,f1,t1",
            "create,own,d1,f01,t1",
            "create,own,f1,d1,t1",
            "rename,own,d1,f1,t1",
            "create,own,d1,f1,t1,x",
            "create,each,d1,f1,t1",
            "list,own,d1,t1",
        ] {
            assert!(MetaSpec::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn items_of_all_workers() {
        // 4 folders x 256 files x 2 workers; own folders are 8, shared ones 4.
        let own = MetaSpec::parse("create,own,d4,f256,t2").unwrap();
        assert_eq!((own.items(), own.parents(), own.inodes()), (2048, 8, 2056));
        let shared = MetaSpec::parse("create,shared,d4,f256,t2").unwrap();
        assert_eq!((shared.items(), shared.parents()), (2048, 4));
        // 1000 folders of each of 3 workers, in 3 folders or in one.
        let folders = MetaSpec::parse("mkdir,own,d1000,t3").unwrap();
        assert_eq!((folders.items(), folders.parents()), (3000, 3));
        let folders = MetaSpec::parse("mkdir,shared,d1000,t3").unwrap();
        assert_eq!((folders.items(), folders.parents()), (3000, 1));
    }
}
