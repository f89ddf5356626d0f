//! Trees of folders with many small files, inside the folder of this process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use super::own_name::OwnName;

/// Levels of folders within a tree, itself included: folders hold files, or empty folders.
const LEVELS: u32 = 3;

/// Opens a folder to look up names in it.
pub(super) fn open(parent: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Removes a tree. What is not of this program stays, with the folders around it; returns whether
/// everything is gone.
pub(super) fn remove(parent: impl AsFd, name: &str) -> io::Result<bool> {
    remove_level(parent.as_fd(), name, LEVELS)
}

fn remove_level(parent: BorrowedFd<'_>, name: &str, levels: u32) -> io::Result<bool> {
    let folder = match open(parent, name) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push((name, entry.file_type()));
        }
    }
    let mut alone = true;
    for (name, kind) in names {
        // Some file systems do not tell the kind.
        let fits = |wanted| kind == wanted || kind == FileType::Unknown;
        let own = OwnName::parse(&name);
        alone &= if matches!(own, Some(OwnName::File(..))) && fits(FileType::RegularFile) {
            match unlinkat(&folder, name.as_str(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => true,
                Err(error) => return Err(error.into()),
            }
        } else if matches!(own, Some(OwnName::Folder(..)))
            && fits(FileType::Directory)
            && levels > 1
        {
            remove_level(folder.as_fd(), &name, levels - 1)?
        } else {
            false
        };
    }
    if !alone {
        return Ok(false);
    }
    drop(folder);
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_tree_goes_and_a_users_file_in_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let parent = fs::File::open(dir.path()).unwrap();
        let make = |tree: &str| {
            let tree = dir.path().join(tree);
            fs::create_dir_all(tree.join("d0-0/d1-7")).unwrap();
            fs::create_dir_all(tree.join("d1-0")).unwrap();
            for file in ["d0-0/f0-0", "d0-0/f0-1", "d1-0/f1-0"] {
                fs::write(tree.join(file), "x").unwrap();
            }
            tree
        };
        let tree = make("tree-0");
        assert!(remove(&parent, "tree-0").unwrap());
        assert!(!tree.exists());
        // One that is gone is removed.
        assert!(remove(&parent, "tree-0").unwrap());
        let tree = make("tree-1");
        fs::write(tree.join("d0-0/notes"), "mine").unwrap();
        // A link is not followed, whatever its name is.
        std::os::unix::fs::symlink(dir.path(), tree.join("d0-9")).unwrap();
        assert!(!remove(&parent, "tree-1").unwrap());
        assert_eq!(fs::read_to_string(tree.join("d0-0/notes")).unwrap(), "mine");
        assert!(!tree.join("d1-0").exists() && tree.join("d0-9").is_symlink());
        // Folders below the third level are not of this program.
        let deep = make("tree-2");
        fs::create_dir_all(deep.join("d0-0/d1-7/d0-0")).unwrap();
        assert!(!remove(&parent, "tree-2").unwrap());
        assert!(deep.join("d0-0/d1-7/d0-0").exists());
    }
}
