//! Reads a live host, or a tree saved from one, into a [`HostSnapshot`]. The only file here that
//! reads.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::TopoError;
use crate::snapshot::{HostSnapshot, MAX_FILE, MAX_TOTAL, TARGET};
use crate::vendors::{DriverFile, VENDORS};

/// Maximum number of names in a directory.
const MAX_NAMES: usize = 20_000;
/// Maximum number of look-ups; a node of 512 CPUs, 16 GPUs and 1000 PCI functions needs 40000.
const MAX_LOOKS: usize = 200_000;

/// Maximum length of a path, bytes: `PATH_MAX` of Linux.
const MAX_PATH: usize = 4096;

/// Files to read unchanged, if they exist.
const FILES: &[&str] = &[
    // Not a system file: why the management library was not read.
    "nvml/unread",
    "proc/meminfo",
    "proc/self/cgroup",
    "proc/sys/kernel/arch",
    "proc/sys/kernel/hostname",
    "proc/sys/kernel/osrelease",
    "sys/class/dmi/id/bios_date",
    "sys/class/dmi/id/bios_version",
    "sys/class/dmi/id/board_name",
    "sys/class/dmi/id/board_serial",
    "sys/class/dmi/id/board_vendor",
    "sys/class/dmi/id/product_name",
    "sys/class/dmi/id/product_serial",
    "sys/class/dmi/id/sys_vendor",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "sys/devices/system/cpu/cpufreq/boost",
    "sys/devices/system/cpu/intel_pstate/no_turbo",
    "sys/devices/system/cpu/online",
    "sys/devices/system/node/online",
    "sys/hypervisor/type",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
];

/// Directories, a prefix of the names in it, and files to read below each. A `*` stands for every
/// name at that level.
const TREES: &[(&str, &str, &[&str])] = &[
    (
        "sys/devices/system/cpu",
        "cpu",
        &[
            "topology/physical_package_id",
            "cache/*/level",
            "cache/*/type",
            "cache/*/size",
            "cache/*/coherency_line_size",
            "cache/*/shared_cpu_list",
        ],
    ),
    ("sys/devices/system/node", "node", &["cpulist", "meminfo", "distance"]),
    ("sys/kernel/mm/hugepages", "hugepages-", &["nr_hugepages", "nr_overcommit_hugepages"]),
    (
        "sys/bus/pci/devices",
        "",
        &[
            "class",
            "vendor",
            "device",
            "numa_node",
            "current_link_speed",
            "current_link_width",
            "max_link_speed",
            "max_link_width",
        ],
    ),
    (
        "sys/class/kfd/kfd/topology/nodes",
        "",
        &["gpu_id", "name", "properties", "io_links/*/properties", "mem_banks/*/properties"],
    ),
    ("sys/class/drm", "card", &["device/mem_info_vram_total", "device/product_name"]),
    ("sys/class/net", "", &["speed", "type", "operstate"]),
    (
        "sys/class/infiniband",
        "",
        &["board_id", "fw_ver", "hca_type", "node_guid", "ports/1/rate", "ports/1/state"],
    ),
    ("sys/class/nvme", "nvme", &["model"]),
    // Not a system file: `pathline topo --save` adds it.
    ("nvml", "", &["nvlink", "facts"]),
    ("sys/block", "", &["size", "device/model", "queue/rotational"]),
];

impl HostSnapshot {
    /// Reads what pathline uses of a host. `root` is `/`, or a directory with copies of its `proc`
    /// and `sys`, such as [`HostSnapshot::save_dir`] writes. Missing and unreadable files are
    /// omitted: a container shows less than a host. Time and size are bounded by 200000 look-ups
    /// and 64 MiB, and nothing outside `root` is read, whatever symbolic links it contains.
    pub fn collect(root: &Path) -> Self {
        let mut reader = TreeReader::continue_with(root, Self::default());
        for path in FILES {
            reader.file(path);
        }
        reader.trimmed("proc/cpuinfo", cut_cpuinfo);
        reader.trimmed("proc/self/status", |text| lines_with(text, "s_allowed_list:"));
        reader.trimmed("proc/self/smaps", cut_smaps);
        for DriverFile { folder, name, lines } in VENDORS.iter().flat_map(|v| v.driver_files) {
            for gpu in reader.names(folder) {
                reader.trimmed(&format!("{folder}/{gpu}/{name}"), |text| {
                    lines.iter().map(|part| lines_with(text, part)).collect()
                });
            }
        }
        for (dir, prefix, below) in TREES {
            for name in reader.names(dir).iter().filter(|name| name.starts_with(prefix)) {
                let path = format!("{dir}/{name}");
                reader.link(&path);
                reader.link(&format!("{path}/device"));
                for file in *below {
                    reader.pattern(&path, file);
                }
            }
        }
        reader.cgroups();
        for path in [".dockerenv", "run/.containerenv"] {
            if reader.inside(path).is_some_and(|file| file.is_file()) {
                reader.keep(path, String::new());
            }
        }
        if reader.root == Path::new("/") && reader.snapshot.get("proc/sys/kernel/arch").is_none() {
            reader.keep("proc/sys/kernel/arch", format!("{}\n", std::env::consts::ARCH));
        }
        reader.snapshot
    }
}

/// Reads an input file of at most `limit` bytes as text.
pub(crate) fn read_input(path: &Path, limit: usize) -> Result<String, TopoError> {
    let name = path.display().to_string();
    let failed = |error: std::io::Error| {
        TopoError::new(name.as_str(), format!("cannot read: {error}"), "a file that can be read")
    };
    let is_file = fs::metadata(path).map_err(failed)?.is_file();
    if !is_file {
        return Err(TopoError::new(name.as_str(), "neither file nor directory", "a plain file"));
    }
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(failed)?.take(limit as u64 + 1);
    file.read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > limit {
        let what = format!("more than {limit} bytes");
        return Err(TopoError::new(name.as_str(), what, "a topology file, which is smaller"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        let line = line.filter(|&&b| b == b'\n').count() + 1;
        TopoError::at(name.as_str(), line, "bytes that are no UTF-8 text", "a text file")
    })
}

pub(crate) struct TreeReader {
    pub(crate) root: PathBuf,
    pub(crate) snapshot: HostSnapshot,
    /// Bytes read so far, including discarded ones.
    bytes: usize,
    /// Look-ups so far.
    looks: usize,
    /// Real paths of folders; `None` for one that is missing or outside.
    folders: HashMap<String, Option<PathBuf>>,
}

impl TreeReader {
    /// Adds to what was read before.
    pub(crate) fn continue_with(root: &Path, snapshot: HostSnapshot) -> Self {
        let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        let bytes = snapshot.iter().map(|(path, text)| path.len() + text.len()).sum();
        Self { root, snapshot, bytes, looks: 0, folders: HashMap::new() }
    }

    pub(crate) fn keep(&mut self, path: &str, text: String) {
        self.bytes += path.len() + text.len();
        if self.bytes <= MAX_TOTAL {
            self.snapshot.insert(path, text);
        }
    }

    /// The target of a path. `None` if it is missing, outside the root, or beyond the limit of
    /// look-ups. Links of a live host lead all over `/sys`; those of a saved tree must not lead to
    /// files of the machine that reads it.
    pub(crate) fn inside(&mut self, path: &str) -> Option<PathBuf> {
        self.looks += 1;
        if self.looks > MAX_LOOKS || self.bytes > MAX_TOTAL {
            return None;
        }
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let above = self.real_folder(dir)?;
        self.real_below(&above, name, path)
    }

    /// The real path of a folder, which is kept: to ask for each of its parts again costs a node of 384 CPUs
    /// 180,000 calls.
    fn real_folder(&mut self, path: &str) -> Option<PathBuf> {
        if path.is_empty() {
            return Some(self.root.clone());
        }
        if let Some(known) = self.folders.get(path) {
            return known.clone();
        }
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let real = (path.len() <= MAX_PATH)
            .then(|| self.real_folder(dir))
            .flatten()
            .and_then(|above| self.real_below(&above, name, path));
        if self.folders.len() >= MAX_NAMES {
            self.folders.clear();
        }
        self.folders.insert(path.to_owned(), real.clone());
        real
    }

    /// A name in a real folder, or where it leads, if that is inside.
    fn real_below(&self, above: &Path, name: &str, path: &str) -> Option<PathBuf> {
        let near = above.join(name);
        let is_link = fs::symlink_metadata(&near).ok()?.is_symlink();
        let real = match is_link || matches!(name, "" | "." | "..") {
            true => fs::canonicalize(self.root.join(path)).ok()?,
            false => near,
        };
        real.starts_with(&self.root).then_some(real)
    }

    /// The text of a plain file, up to `limit` bytes. Never blocks: pipes in a saved tree are
    /// ignored.
    fn read(&mut self, path: &str, limit: usize) -> Option<String> {
        let real = self.inside(path)?;
        if !fs::metadata(&real).ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        let read = File::open(real).ok()?.take(limit as u64).read_to_end(&mut bytes);
        self.bytes += bytes.len();
        read.ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Adds a whole file, unless it exceeds the maximum size.
    pub(crate) fn file(&mut self, path: &str) {
        if let Some(text) = self.read(path, MAX_FILE + 1) {
            self.bytes = self.bytes.saturating_sub(text.len());
            self.keep(path, text);
        }
    }

    /// Adds the part of a file that is useful and may be disclosed.
    pub(crate) fn trimmed(&mut self, path: &str, cut: impl Fn(&str) -> String) {
        if let Some(text) = self.read(path, 16 * MAX_FILE) {
            self.keep(path, cut(&text));
        }
    }

    /// Adds the target of a symbolic link, real or saved.
    pub(crate) fn link(&mut self, path: &str) {
        let saved = format!("{path}{TARGET}");
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let real = self.inside(dir).and_then(|dir| fs::read_link(dir.join(name)).ok());
        match real {
            Some(target) => self.keep(&saved, format!("{}\n", target.display())),
            None => self.file(&saved),
        }
    }

    /// Names in a directory, sorted, saved links without their suffix. Empty if it is unreadable.
    pub(crate) fn names(&mut self, dir: &str) -> Vec<String> {
        let entries = self.inside(dir).and_then(|dir| fs::read_dir(dir).ok());
        let mut names: Vec<String> = entries
            .into_iter()
            .flatten()
            .take(MAX_NAMES)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .map(|name| name.strip_suffix(TARGET).map(str::to_owned).unwrap_or(name))
            .filter(|name| !name.is_empty() && !name.contains(['\n', '\\']))
            .collect();
        self.looks += names.len() / 8;
        names.sort();
        names.dedup();
        names
    }

    /// Adds the files below `dir` that match `pattern`, in which `*` is any name.
    pub(crate) fn pattern(&mut self, dir: &str, pattern: &str) {
        match pattern.split_once("/*/") {
            None => self.file(&format!("{dir}/{pattern}")),
            Some((above, below)) => {
                for name in self.names(&format!("{dir}/{above}")) {
                    self.file(&format!("{dir}/{above}/{name}/{below}"));
                }
            }
        }
    }

    /// Adds limits of the cgroups of this process, up to the root of each mount.
    fn cgroups(&mut self) {
        let groups = self.snapshot.get("proc/self/cgroup").unwrap_or_default().to_owned();
        for line in groups.lines().take(64) {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            for (mount, files) in cgroup_files(controllers) {
                for group in ancestors(path) {
                    for file in *files {
                        self.file(&format!("{mount}{group}/{file}"));
                    }
                }
            }
        }
    }
}

/// Files with limits of a mounted controller.
pub(crate) fn cgroup_files(
    controllers: &str,
) -> &'static [(&'static str, &'static [&'static str])] {
    const UNIFIED: &[&str] =
        &["memory.max", "memory.current", "memory.stat", "memory.events", "cpu.max"];
    const MEMORY: &[&str] = &["memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"];
    const CPU: &[&str] = &["cpu.cfs_quota_us", "cpu.cfs_period_us"];
    let has = |name: &str| controllers.split(',').any(|c| c == name);
    if controllers.is_empty() {
        &[("sys/fs/cgroup", UNIFIED), ("sys/fs/cgroup/unified", UNIFIED)]
    } else if has("memory") {
        &[("sys/fs/cgroup/memory", MEMORY)]
    } else if has("cpu") {
        &[("sys/fs/cgroup/cpu", CPU), ("sys/fs/cgroup/cpu,cpuacct", CPU)]
    } else {
        &[]
    }
}

/// `/a/b`, `/a` and the empty path of the mount itself. A path with `..` (a cgroup outside the
/// namespace) counts as the mount.
pub(crate) fn ancestors(path: &str) -> Vec<&str> {
    let mut path = path.trim_end_matches('/');
    let mut all = Vec::new();
    if !path.split('/').any(|part| part == "..") {
        while !path.is_empty() && all.len() < 32 {
            all.push(path);
            path = path.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    all.push("");
    all
}

/// Keeps the first processor in full, and the CPU and socket numbers of the others.
fn cut_cpuinfo(text: &str) -> String {
    let mut cut = String::new();
    let mut first = true;
    for line in text.lines() {
        first &= !(cut.contains("processor") && line.starts_with("processor"));
        let wanted = ["processor", "physical id"].iter().any(|key| line.starts_with(key));
        if first && !line.trim().is_empty() || wanted {
            cut.push_str(line);
            cut.push('\n');
        }
    }
    cut
}

/// Keeps the base page size; the rest of the file is this process's memory map.
fn cut_smaps(text: &str) -> String {
    text.lines()
        .find(|line| line.starts_with("KernelPageSize:"))
        .map(|line| format!("{line}\n"))
        .unwrap_or_default()
}

pub(crate) fn lines_with(text: &str, part: &str) -> String {
    text.lines().filter(|line| line.contains(part)).flat_map(|line| [line, "\n"]).collect()
}
