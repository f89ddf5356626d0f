//! Whether others may replace a library: it runs code as the user who opens it.
//!
//! As ssh does with keys, every folder on the path to the file is checked, those that hold symbolic links
//! included. What counts is who may write: everybody (refused), or a group with other members (refused
//! where this program searched by itself). A place that an option, a variable or the linker's own list
//! names may be shared with a group: the linker has taken libc from LD_LIBRARY_PATH before the first line
//! of this program ran. Owners are not compared: software of a site belongs to whoever installed it.
//! Folders of `PATHLINE_TRUST` are exempt: volumes of containers are often open to all.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::environment::path_list;

/// Names folders that are exempt, as a list like PATH.
const TRUSTED: &str = "PATHLINE_TRUST";
/// Bits of a mode.
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// More links than the kernel follows.
const LINKS: u32 = 40;
/// More than any list of users or groups that is kept in a file.
const LIST_BYTES: u64 = 4 << 20;

/// Who has chosen a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// The user or the administrator: an option, a variable, the linker's own list.
    ByUser,
    /// This program, where such libraries usually are.
    BySearch,
}

/// Refuses a file that others may replace. The error says who and where, and the way out.
pub(crate) fn check_writers(path: &Path, chosen: Chosen) -> Result<(), String> {
    let path = std::path::absolute(path).map_err(|e| e.to_string())?;
    let user = rustix::process::geteuid().as_raw();
    let mut todo: Vec<OsString> = Vec::new();
    let mut here = PathBuf::from("/");
    push(&mut todo, &mut here, &path);
    let mut links = 0;
    while let Some(name) = todo.pop() {
        if name == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&name);
        let entry = next.symlink_metadata().map_err(|e| e.to_string())?;
        let folder = here.metadata().map_err(|e| e.to_string())?;
        // In a sticky folder nobody replaces what is the user's or the superuser's. Where libraries
        // themselves are, one more file would be enough.
        let kept = folder.mode() & STICKY != 0 && [0, user].contains(&entry.uid());
        if !kept || todo.is_empty() {
            check(&here, &folder, chosen)?;
        }
        if entry.is_symlink() {
            links += 1;
            if links > LINKS {
                return Err("too many levels of symbolic links".to_owned());
            }
            let target = std::fs::read_link(&next).map_err(|e| e.to_string())?;
            push(&mut todo, &mut here, &target);
            continue;
        }
        here = next;
    }
    check(&here, &here.metadata().map_err(|e| e.to_string())?, chosen)
}

/// Puts the parts of a path on the stack, the first on top.
fn push(todo: &mut Vec<OsString>, here: &mut PathBuf, path: &Path) {
    if path.is_absolute() {
        *here = PathBuf::from("/");
    }
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    todo.extend(path.components().rev().filter_map(name));
}

/// Refuses a file or folder that others may write to.
fn check(path: &Path, meta: &Metadata, chosen: Chosen) -> Result<(), String> {
    let what = if meta.is_dir() { "the folder " } else { "" };
    let (place, mode, gid) = (path.display(), meta.mode() & 0o7777, meta.gid());
    let (who, right) = if mode & ALL_WRITE != 0 {
        ("everybody".to_owned(), "o-w")
    } else if chosen == Chosen::BySearch && mode & GROUP_WRITES != 0 && !is_alone_in(gid) {
        (format!("group {gid}"), "g-w")
    } else {
        return Ok(());
    };
    if path_list(TRUSTED).iter().any(|trusted| trusted == path) {
        return Ok(());
    }
    Err(format!(
        "{who} may write to {what}{place} (mode {mode:o}), and so run code as you: chmod {right} \
         {place}, or name it in {TRUSTED} if you trust them"
    ))
}

/// Whether a group has nobody in it but this user and the superuser, as far as the files of this host
/// tell. Of one that they do not list nothing is known, unless it has the number of the user, as groups
/// have that are made with their users.
fn is_alone_in(gid: u32) -> bool {
    let user = rustix::process::geteuid().as_raw();
    gid == 0 || alone(gid, user, &list("/etc/passwd"), &list("/etc/group"))
}

fn alone(gid: u32, user: u32, users: &str, groups: &str) -> bool {
    let (users, groups) = (rows(users), rows(groups));
    let number =
        |row: &[&str], nth: usize| row.get(nth).and_then(|field| field.parse::<u32>().ok());
    let is_other = |row: &&Vec<&str>| ![Some(0), Some(user)].contains(&number(row, 2));
    let Some(group) = groups.iter().find(|row| number(row, 2) == Some(gid)) else {
        return gid == user;
    };
    let mut members = group.get(3).into_iter().flat_map(|names| names.split(','));
    let is_foreign = |name: &str| {
        let known = users.iter().find(|row| row.first() == Some(&name));
        !name.is_empty() && known.is_none_or(|row| is_other(&row))
    };
    let first_group_of_another =
        users.iter().filter(is_other).any(|row| number(row, 3) == Some(gid));
    !members.any(is_foreign) && !first_group_of_another
}

/// Lines of `/etc/passwd` (name, password, number, first group, ...) and `/etc/group` (name, password,
/// number, members).
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split(':').collect()).collect()
}

fn list(path: &str) -> String {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let _ = file.and_then(|file| file.take(LIST_BYTES).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn why(path: &Path, chosen: Chosen) -> String {
        check_writers(path, chosen).err().unwrap_or_default()
    }

    #[test]
    fn what_everybody_may_write_to_is_refused_at_every_step() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("shared/lib");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("libx.so");
        std::fs::write(&file, "").unwrap();
        let place = |path: &Path| path.canonicalize().unwrap().display().to_string();
        for chosen in [Chosen::ByUser, Chosen::BySearch] {
            assert_eq!(why(&file, chosen), "");
            for (path, open, closed) in [
                (&file, 0o666, 0o644),
                (&folder, 0o777, 0o755),
                (&root.path().join("shared"), 0o777, 0o755),
            ] {
                set_mode(path, open);
                let refused = why(&file, chosen);
                let folder = if path == &file { "" } else { "the folder " };
                let expected =
                    format!("everybody may write to {folder}{} (mode {open:o})", place(path));
                assert!(
                    refused.starts_with(&expected) && refused.contains("chmod o-w"),
                    "{refused}"
                );
                set_mode(path, closed);
            }
            // A sticky folder keeps what is the user's, but anybody may put one more library there.
            set_mode(&root.path().join("shared"), 0o1777);
            assert_eq!(why(&file, chosen), "");
            set_mode(&folder, 0o1777);
            assert!(why(&file, chosen).contains("(mode 1777)"));
            set_mode(&folder, 0o755);
        }
    }

    #[test]
    fn folders_that_hold_links_are_looked_at() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["real", "open", "safe"] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
        }
        let file = root.path().join("real/libx.so");
        std::fs::write(&file, "").unwrap();
        // By the open folder to the real file: whoever may write there may turn the link.
        symlink("../real/libx.so", root.path().join("open/libx.so")).unwrap();
        symlink("../open", root.path().join("safe/hop")).unwrap();
        let by_links = root.path().join("safe/hop/libx.so");
        assert_eq!(why(&by_links, Chosen::ByUser), "");
        set_mode(&root.path().join("open"), 0o777);
        assert!(why(&by_links, Chosen::ByUser).contains("open (mode 777)"));
        assert_eq!(why(&file, Chosen::ByUser), "");
        symlink("turn", root.path().join("safe/turn")).unwrap();
        assert!(why(&root.path().join("safe/turn"), Chosen::ByUser).contains("too many levels"));
    }

    #[test]
    fn a_shared_group_is_trusted_only_where_the_user_says_so() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("libx.so");
        std::fs::write(&file, "").unwrap();
        set_mode(root.path(), 0o775);
        // Only the superuser may give a folder to any group.
        if std::os::unix::fs::chown(root.path(), None, Some(54_321)).is_ok() {
            assert_eq!(why(&file, Chosen::ByUser), "");
            let refused = why(&file, Chosen::BySearch);
            assert!(refused.starts_with("group 54321 may write to the folder "), "{refused}");
            assert!(refused.contains("PATHLINE_TRUST"), "{refused}");
        }
    }

    #[test]
    fn a_group_of_nobody_else_is_no_group() {
        let users = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/u/ann:/bin/sh\n\
                     bob:x:1001:100::/u/bob:/bin/sh\n";
        let groups = "root:x:0:\nann:x:1000:\nstaff:x:50:\nusers:x:100:\nteam:x:2000:ann,bob\n\
                      mine:x:2001:ann,root\nodd:x:2002:ann,carol\n";
        let ann = |gid| alone(gid, 1000, users, groups);
        assert!(ann(1000) && ann(50) && ann(2001));
        // Bob's first group; a group with bob; somebody whom the files do not know.
        assert!(!ann(100) && !ann(2000) && !ann(2002));
        // Not listed at all: of a directory service.
        assert!(!ann(3000) && alone(3000, 3000, users, groups));
        // Bob's own folder of his first group, in which there is nobody else.
        assert!(alone(100, 1001, users, groups));
    }
}
