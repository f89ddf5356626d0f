//! The file system and block device under a path, as the kernel reports them.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use pathline_schema::{Bytes, StoreFacts, StripeLayout};

use pathline_host::files;

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountEntry {
    pub(super) device: String,
    pub(super) at: PathBuf,
    pub(super) kind: String,
    pub(super) source: String,
    options: String,
}

/// All mounts. Spaces in paths are written as octal numbers.
pub(super) fn mounts(text: &str) -> Vec<MountEntry> {
    let mount = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(2);
        let (device, _, at, options) = (left.next()?, left.next()?, left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, source, more) = (right.next()?, right.next()?, right.next().unwrap_or(""));
        Some(MountEntry {
            device: device.to_owned(),
            at: plain(at).into(),
            kind: kind.to_owned(),
            source: plain(source),
            options: joined(options, more),
        })
    };
    text.lines().filter_map(mount).collect()
}

/// Options of the mount and of the file system, each once.
fn joined(mount: &str, system: &str) -> String {
    let mut all: Vec<&str> = mount.split(',').collect();
    all.extend(system.split(',').filter(|o| !o.is_empty() && !mount.split(',').any(|m| m == *o)));
    all.join(",")
}

/// `\040` as a space.
fn plain(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut out: Vec<u8> = parts.next().unwrap_or("").into();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                out.extend(part.bytes().skip(3));
            }
            None => {
                out.push(b'\\');
                out.extend(part.bytes());
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The mount that a path lies in: the one with the longest path, of those the last.
pub(super) fn mount_of(mounts: &[MountEntry], path: &Path) -> Option<MountEntry> {
    let holding = mounts.iter().filter(|m| path.starts_with(&m.at));
    holding.max_by_key(|m| m.at.as_os_str().len()).cloned()
}

/// A whole block device of the kernel: the folder under `/sys/block`.
pub(super) fn disk(number: &str) -> Option<PathBuf> {
    let folder = std::fs::canonicalize(Path::new("/sys/dev/block").join(number)).ok()?;
    let folder =
        if folder.join("partition").exists() { folder.parent()?.to_owned() } else { folder };
    under(folder, 0)
}

/// Through device mapper and RAID, as long as there is one device under each.
fn under(folder: PathBuf, depth: u32) -> Option<PathBuf> {
    let slaves: Vec<PathBuf> = std::fs::read_dir(folder.join("slaves"))
        .map(|all| all.flatten().map(|e| e.path()).collect())
        .unwrap_or_default();
    match slaves.as_slice() {
        [] => Some(folder),
        [one] if depth < 8 => {
            let next = std::fs::canonicalize(one).ok()?;
            let whole = next.join("partition").exists().then(|| next.parent().map(Path::to_owned));
            under(whole.flatten().unwrap_or(next), depth + 1)
        }
        _ => None,
    }
}

/// The domain that a device hangs on, as the first of its parents that knows.
fn numa(disk: &Path) -> Option<u32> {
    let device = std::fs::canonicalize(disk.join("device")).ok()?;
    let node = device.ancestors().find_map(|folder| files::text(folder.join("numa_node")))?;
    node.trim().parse().ok()
}

/// The word in brackets: `none [mq-deadline] kyber`.
fn chosen(text: &str) -> &str {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(word, _)| word).trim()
}

/// `8:1` of a device number.
pub(super) fn number(device: u64) -> String {
    format!("{}:{}", libc::major(device), libc::minor(device))
}

/// The known facts of a path. The caller adds a reason against it.
pub(super) fn facts(path: &Path) -> StoreFacts {
    let mut facts = StoreFacts { path: path.display().to_string(), ..StoreFacts::default() };
    let Ok(meta) = std::fs::metadata(path) else { return facts };
    let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let device = if meta.file_type().is_block_device() {
        number(meta.rdev())
    } else {
        let text = files::text("/proc/self/mountinfo").unwrap_or_default();
        let mount = mount_of(&mounts(&text), &whole);
        if let Some(mount) = &mount {
            facts.file_system.clone_from(&mount.kind);
            facts.options.clone_from(&mount.options);
        }
        if let Ok(of) = rustix::fs::statvfs(path) {
            facts.fs_block = Bytes(of.f_frsize);
            facts.size = Bytes(of.f_blocks.saturating_mul(of.f_frsize));
        }
        facts.free = free(path).map_or(Bytes(0), |(free, _)| Bytes(free));
        facts.stripes = stripes(&whole);
        // Some file systems (btrfs, overlay) invent device numbers.
        let of_source = |m: &MountEntry| {
            let source = std::fs::metadata(&m.source).ok()?;
            source.file_type().is_block_device().then(|| number(source.rdev()))
        };
        mount.as_ref().and_then(of_source).unwrap_or_else(|| number(meta.dev()))
    };
    if let Some(disk) = disk(&device) {
        describe(&mut facts, &disk);
    }
    facts
}

/// Size of the attribute at first; Lustre's largest layout takes a little more than 48 KiB.
const LAYOUT_BYTES: usize = 64 << 10;

/// How Lustre stripes a file, or new files of a folder; empty on other file systems.
fn stripes(path: &Path) -> Vec<StripeLayout> {
    let mut attribute = vec![0u8; LAYOUT_BYTES];
    let Ok(length) = rustix::fs::getxattr(path, "lustre.lov", attribute.as_mut_slice()) else {
        return Vec::new();
    };
    let layout = attribute.get(..length).unwrap_or_default();
    StripeLayout::parse(layout).unwrap_or_default()
}

fn describe(facts: &mut StoreFacts, disk: &Path) {
    let text =
        |name: &str| files::text(disk.join(name)).map(|t| t.trim().to_owned()).unwrap_or_default();
    let count = |name: &str| files::number(disk.join(name)).unwrap_or(0);
    facts.device = disk.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    facts.model = text("device/model");
    facts.numa = numa(disk);
    facts.scheduler = chosen(&text("queue/scheduler")).to_owned();
    facts.queues = std::fs::read_dir(disk.join("mq")).map_or(0, |all| all.count() as u32);
    facts.polls = count("queue/io_poll") == 1;
    facts.logical_block = Bytes(count("queue/logical_block_size"));
    facts.max_request = Bytes(count("queue/max_sectors_kb").saturating_mul(1024));
    facts.max_hardware_request = Bytes(count("queue/max_hw_sectors_kb").saturating_mul(1024));
    facts.queue_depth = u32::try_from(count("queue/nr_requests")).unwrap_or(u32::MAX);
    facts.write_cache = text("queue/write_cache");
    facts.max_segments = u32::try_from(count("queue/max_segments")).unwrap_or(u32::MAX);
}

/// Bytes that this user may still write to the file system of a path, and its size.
pub(super) fn free(path: &Path) -> Option<(u64, u64)> {
    let of = rustix::fs::statvfs(path).ok()?;
    let (free, all) =
        (of.f_bavail.checked_mul(of.f_frsize)?, of.f_blocks.checked_mul(of.f_frsize)?);
    Some((free, all))
}

/// What a file system has left for this user, and in all.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoomLeft {
    pub(super) free_inodes: u64,
    /// 0 where their number is not fixed.
    pub(super) all_inodes: u64,
    pub(super) free_bytes: u64,
    pub(super) all_bytes: u64,
}

/// The inodes and bytes of the file system of a path.
pub(super) fn inodes(path: &Path) -> Option<RoomLeft> {
    let of = rustix::fs::statvfs(path).ok()?;
    let (free_bytes, all_bytes) = free(path)?;
    let (free_inodes, all_inodes) = (of.f_favail, of.f_files);
    Some(RoomLeft { free_inodes, all_inodes, free_bytes, all_bytes })
}

/// Requests that a device has completed since it was there: reads and writes.
pub(super) fn requests(device: &str) -> Option<u64> {
    if device.is_empty() {
        return None;
    }
    let text = files::text(Path::new("/sys/block").join(device).join("stat"))?;
    let fields: Vec<&str> = text.split_whitespace().take(5).collect();
    let field = |n: usize| fields.get(n)?.parse::<u64>().ok();
    field(0)?.checked_add(field(4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_spaces() {
        let text = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
                    40 27 0:50 / /mnt/a\\040b rw - lustre mgs@tcp:/x rw,flock\n\
                    garbage\n";
        let all = mounts(text);
        assert_eq!(all.len(), 2);
        let of = |path: &str| mount_of(&all, Path::new(path)).unwrap();
        assert_eq!(of("/mnt/a b/c").kind, "lustre");
        // A folder whose name begins alike is another one.
        assert_eq!(of("/mnt/a bc").kind, "ext4");
        assert_eq!(of("/x").options, "rw,relatime,discard");
        assert_eq!(plain("a\\04"), "a\\04");
    }

    #[test]
    fn the_scheduler_is_the_word_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber\n"), "mq-deadline");
        assert_eq!(chosen("none\n"), "none");
    }

    #[test]
    fn something_is_known_of_this_folder() {
        let facts = facts(Path::new("."));
        assert!(!facts.file_system.is_empty());
        assert!(facts.free.0 > 0);
        assert!(facts.fs_block.0 > 0 && facts.size >= facts.free, "{facts:?}");
    }
}
