//! The path of bytes between file and GPU, from the library's counters around one I/O.
//!
//! Both libraries fall back to host memory silently. A loaded kernel module proves nothing: with it
//! a file system may still be unsupported, and cuFile since 1.14 reaches NVMe by peer-to-peer
//! without it.

use std::path::Path;

use super::library::{BoundGds, CounterCalls, GdsLibrary, bound, without};
use pathline_host::files;

/// Words of `CUfileStatsLevel3_t`, and where those of the first GPU begin. `hipFileStatsLevel3_t` has
/// the same members in the same order. Their lengths are assumed to be equal: if they are not, the
/// counts do not add up and the path is unknown.
const WORDS: usize = 8192;
const FIRST_GPU: usize = 129;
const GPU_WORDS: usize = 31;
const GPUS: usize = 16;
/// Of a GPU: all reads, then those by peer-to-peer, by the driver (of hipFile: the fast path) and
/// through host memory; writes likewise.
const READS: usize = 6;
const WRITES: usize = 19;

/// The level of cuFile's counters that has those of each GPU.
const EACH_GPU: i32 = 3;

/// The path of bytes between file and GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataPath {
    /// nvidia-fs, or hipFile's fast path.
    Driver,
    /// Peer-to-peer of PCI devices, without nvidia-fs.
    PeerToPeer,
    /// Read into host memory and copied, by the library.
    Host,
    /// The library does not count, or what it counted does not add up.
    Unknown,
}

/// Reads and writes of all GPUs so far: the total, then by path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PathCounts {
    reads: [u64; 4],
    writes: [u64; 4],
}

impl PathCounts {
    fn from_words(words: &[u64]) -> Self {
        let gpu = |nth: usize| words.get(FIRST_GPU + nth * GPU_WORDS..).unwrap_or_default();
        let sum = |first: usize| {
            std::array::from_fn(|path| {
                let each = (0..GPUS).filter_map(|nth| gpu(nth).get(first + path));
                each.fold(0u64, |sum, n| sum.wrapping_add(*n))
            })
        };
        Self { reads: sum(READS), writes: sum(WRITES) }
    }

    /// The path of all I/Os since, if they took a single one.
    fn path_until(self, after: Self, write: bool) -> DataPath {
        let (from, to) =
            if write { (self.writes, after.writes) } else { (self.reads, after.reads) };
        let mut since = [0u64; 4];
        for (since, (from, to)) in since.iter_mut().zip(from.into_iter().zip(to)) {
            *since = to.wrapping_sub(from);
        }
        match since {
            [all, 0, 0, host] if all > 0 && host == all => DataPath::Host,
            [all, 0, driver, 0] if all > 0 && driver == all => DataPath::Driver,
            [all, peer, 0, 0] if all > 0 && peer == all => DataPath::PeerToPeer,
            // Some of it is enough to be no direct I/O.
            [all, peer, driver, host]
                if host > 0
                    && peer.checked_add(driver).and_then(|n| n.checked_add(host)) == Some(all) =>
            {
                DataPath::Host
            }
            _ => DataPath::Unknown,
        }
    }
}

fn counts(bound: &BoundGds) -> Option<PathCounts> {
    let mut words = vec![0u64; WORDS];
    let fill = bound.statistics?;
    // SAFETY: the structure has 5000 bytes; there is room for 13 times that.
    let status = unsafe { fill(words.as_mut_ptr()) };
    (status.own == 0).then(|| PathCounts::from_words(&words))
}

/// Counters that are on for as long as this lives, as they were before behind it.
struct PathCounter {
    switches: Option<CounterCalls>,
    before: i32,
}

impl PathCounter {
    fn start(bound: &BoundGds) -> Self {
        let mut before = 0;
        let Some(switches) = bound.switches else { return Self { switches: None, before } };
        // SAFETY: one stores a number, the others take numbers or nothing; the driver is open.
        unsafe {
            (switches.level)(&raw mut before);
            if before < EACH_GPU {
                (switches.set_level)(EACH_GPU);
                (switches.start)();
            }
        }
        Self { switches: Some(switches).filter(|_| before < EACH_GPU), before }
    }
}

impl Drop for PathCounter {
    fn drop(&mut self) {
        let Some(switches) = self.switches else { return };
        // SAFETY: as above.
        unsafe {
            (switches.stop)();
            (switches.set_level)(self.before);
            if self.before > 0 {
                (switches.start)();
            }
        }
    }
}

/// Does one I/O and finds its path. The counters are per process, so no other thread may be in the
/// library; counting costs time, so it is off afterwards.
pub(super) fn watch<T>(bound: &BoundGds, write: bool, io: impl FnOnce() -> T) -> (T, DataPath) {
    let _counting = PathCounter::start(bound);
    let before = counts(bound);
    let done = io();
    let path = match (before, counts(bound)) {
        (Some(before), Some(after)) => before.path_until(after, write),
        _ => DataPath::Unknown,
    };
    (done, path)
}

/// Version of nvidia-fs in the kernel: `2.25`; empty if it is not loaded.
fn nvidia_fs() -> Option<String> {
    let folder = Path::new("/proc/driver/nvidia-fs");
    let text = files::text(folder.join("version"));
    folder.exists().then(|| {
        text.as_deref().and_then(|t| t.split_whitespace().last()).unwrap_or_default().to_owned()
    })
}

/// Notes about this machine for an installed library.
pub(crate) fn notes(kind: GdsLibrary) -> Vec<String> {
    if kind == GdsLibrary::HipFile || bound(kind).is_err() {
        return Vec::new();
    }
    let driver = match nvidia_fs() {
        Some(version) => format!("nvidia-fs {version}"),
        None => {
            "no nvidia-fs in the kernel: compatibility mode, or peer-to-peer from NVMe".to_owned()
        }
    };
    let no_udev = (!Path::new("/run/udev/data").exists()).then(|| {
        "no /run/udev: it refuses files (5027) whose device libudev does not know".to_owned()
    });
    [Some(driver.trim_end().to_owned()), no_udev, without(Some(kind))]
        .into_iter()
        .flatten()
        .collect()
}

/// Bit of `CUfileDrvProps_t::nvfs.dstatusflags`: NVMe by peer-to-peer.
const NVME_P2P: u32 = 1 << 11;

/// Whether cuFile can reach files without host memory at all, where it does not count.
fn may_be_direct(bound: &BoundGds) -> bool {
    let Some(fill) = bound.properties else { return true };
    let mut words = [0u64; 32];
    // SAFETY: the structure has 56 bytes.
    let status = unsafe { fill(words.as_mut_ptr()) };
    // Versions of nvidia-fs, two limits, then both fields of flags.
    let (versions, flags) = (words[0], words[3] as u32);
    status.own != 0 || versions != 0 || flags & NVME_P2P != 0
}

/// Description of the data path, for the record.
pub(super) fn describe_path(bound: &BoundGds, path: DataPath) -> String {
    let title = bound.title();
    match (bound.kind, path) {
        (GdsLibrary::CuFile, DataPath::Driver) => {
            let version = nvidia_fs().unwrap_or_default();
            let driver = format!("nvidia-fs {version}");
            format!("{title}, {}, registered buffers", driver.trim_end())
        }
        (GdsLibrary::HipFile, DataPath::Driver) => {
            format!("{title}, fast path, registered buffers")
        }
        (_, DataPath::PeerToPeer) => format!("{title}, peer-to-peer of PCI, registered buffers"),
        (GdsLibrary::CuFile, DataPath::Host) => format!("{title}, {COMPATIBLE}"),
        (GdsLibrary::HipFile, DataPath::Host) => {
            format!("{title}, {COMPATIBLE}, through the page cache")
        }
        (GdsLibrary::CuFile, DataPath::Unknown) if !may_be_direct(bound) => {
            format!("{title}, {COMPATIBLE}")
        }
        (GdsLibrary::CuFile, DataPath::Unknown) => {
            format!("{title}, registered buffers; {UNKNOWN} (since 1.15 it counts)")
        }
        (GdsLibrary::HipFile, DataPath::Unknown) => {
            format!("{title}, registered buffers; {UNKNOWN} (since 0.5 it counts)")
        }
    }
}

const COMPATIBLE: &str = "compatibility mode (not direct)";
const UNKNOWN: &str = "whether direct is not told";

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(reads: [u64; 4], writes: [u64; 4]) -> PathCounts {
        PathCounts { reads, writes }
    }

    #[test]
    fn counters_of_all_gpus_are_summed_by_path() {
        // As cuFile 1.15.1 filled it behind 64 reads and one write in compatibility mode, on two GPUs.
        let mut words = vec![0u64; WORDS];
        for (gpu, reads) in [(0, 60), (1, 4)] {
            let at = FIRST_GPU + gpu * GPU_WORDS;
            (words[at + READS], words[at + READS + 3]) = (reads, reads);
        }
        let at = FIRST_GPU;
        (words[at + WRITES], words[at + WRITES + 3]) = (1, 1);
        // Behind the last of 16 GPUs.
        words[FIRST_GPU + GPUS * GPU_WORDS + READS] = 1_000;
        assert_eq!(PathCounts::from_words(&words), counts([64, 0, 0, 64], [1, 0, 0, 1]));
        assert_eq!(PathCounts::from_words(&words[..200]), counts([64, 0, 0, 64], [1, 0, 0, 1]));
    }

    #[test]
    fn the_path_is_known_if_the_counts_add_up() {
        let none = counts([5, 1, 2, 2], [0; 4]);
        let of = |reads| none.path_until(counts(reads, [0; 4]), false);
        assert_eq!(of([6, 1, 2, 3]), DataPath::Host);
        assert_eq!(of([6, 1, 3, 2]), DataPath::Driver);
        assert_eq!(of([6, 2, 2, 2]), DataPath::PeerToPeer);
        // Two I/Os of which one went through host memory.
        assert_eq!(of([7, 1, 3, 3]), DataPath::Host);
        // Nothing was counted; more paths than I/Os; another layout.
        for reads in [[5, 1, 2, 2], [6, 1, 3, 3], [6, 1, 2, 2], [4, 1, 2, 3]] {
            assert_eq!(of(reads), DataPath::Unknown, "{reads:?}");
        }
        // Writes are not counted as reads.
        assert_eq!(none.path_until(counts([6, 1, 2, 3], [0; 4]), true), DataPath::Unknown);
        assert_eq!(none.path_until(counts([5, 1, 2, 2], [1, 0, 1, 0]), true), DataPath::Driver);
    }
}
