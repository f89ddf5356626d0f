//! The parts of a node, as found on the live host, in a file, or in a machine description.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::place::number;
use crate::{
    Bytes, HiddenGpus, HostName, ParseError, PciAddress, Rate, Unit, serde_as_text, words,
};

/// One node: its parts, the links between them, and warnings about both.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Source of the topology: `live`, a file's name, or `machine mi250x`.
    pub source: String,
    /// The host itself.
    #[serde(default)]
    pub host: HostInfo,
    /// NUMA domains, by number.
    #[serde(default)]
    pub numa: Vec<NumaDomain>,
    /// Groups of logical CPUs that share a cache.
    #[serde(default)]
    pub caches: Vec<CacheGroup>,
    /// GPUs, by number.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// Network adapters.
    #[serde(default)]
    pub nics: Vec<Nic>,
    /// Block devices.
    #[serde(default)]
    pub blocks: Vec<BlockDevice>,
    /// All PCI functions, by address.
    #[serde(default)]
    pub pci: Vec<PciDevice>,
    /// Direct links between units and switches. Each is full duplex and listed once.
    #[serde(default)]
    pub links: Vec<Link>,
    /// Routes that the fabric uses between GPUs, where a source states them. Ordered pairs.
    #[serde(default)]
    pub routes: Vec<GpuRoute>,
    /// GPUs on the bus that this process may not use.
    #[serde(default, skip_serializing_if = "HiddenGpus::is_empty")]
    pub hidden: HiddenGpus,
    /// Impossible or contradictory facts of the sources.
    #[serde(default)]
    pub warnings: Vec<TopologyWarning>,
}

/// The host: processor, system, limits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostInfo {
    /// Its name on the network.
    #[serde(default)]
    pub hostname: HostName,
    /// Instruction set architecture: `x86_64`, `aarch64`.
    #[serde(default)]
    pub arch: String,
    /// Processor model as it names itself.
    #[serde(default)]
    pub cpu_model: String,
    /// Number of sockets; 0 if unknown.
    #[serde(default)]
    pub sockets: u32,
    /// Logical CPUs, in Linux list form: `0-63,128-191`.
    #[serde(default)]
    pub cpus: CpuSet,
    /// Logical CPUs that this process may use (affinity and cpuset); empty if unknown.
    #[serde(default)]
    pub allowed_cpus: CpuSet,
    /// Processor features that pathline can use, as `/proc/cpuinfo` names them.
    #[serde(default)]
    pub features: Vec<String>,
    /// Kernel release.
    #[serde(default)]
    pub kernel: String,
    /// Hypervisor or container kind, if one is seen.
    #[serde(default)]
    pub virtualization: Option<String>,
    /// Installed memory.
    #[serde(default)]
    pub memory: Bytes,
    /// Memory available now, after any cgroup limit.
    #[serde(default)]
    pub available: Bytes,
    /// Memory limit of the cgroup, if there is one.
    #[serde(default)]
    pub cgroup_limit: Option<Bytes>,
    /// Base page size.
    #[serde(default)]
    pub page: Bytes,
    /// Huge page sizes that can be had: transparent or reserved.
    #[serde(default)]
    pub huge_pages: Vec<Bytes>,
    /// Transparent huge page mode: `always`, `madvise`, `never`; empty if unknown.
    #[serde(default)]
    pub transparent_huge_pages: String,
    /// How clock rates are chosen: `governor performance (intel_pstate), boost on`; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cpu_clock: String,
    /// Maker and product of the host, with its serial number where root reads it; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub product: String,
    /// Maker and name of its board, likewise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub board: String,
    /// Version and date of its firmware.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bios: String,
}

/// A set of logical CPUs, sorted and without repeats. Its text is Linux's list form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuSet(Vec<u32>);

/// The most CPUs a set may name; Linux's own limit is 8192.
const MAX_CPU: u32 = 1 << 16;

impl CpuSet {
    /// From any numbers.
    pub fn new(cpus: impl IntoIterator<Item = u32>) -> Self {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
    /// The CPUs, ascending.
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }
    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Whether `cpu` is in it.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }
    /// Those in either.
    pub fn union(&self, other: &Self) -> Self {
        Self::new(self.0.iter().chain(&other.0).copied())
    }
    /// Those in both.
    pub fn intersect(&self, other: &Self) -> Self {
        Self(self.0.iter().copied().filter(|&c| other.contains(c)).collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut rest = self.0.as_slice();
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|&(&c, expected)| c == expected).count();
            if !text.is_empty() {
                text.push(',');
            }
            text += &first.to_string();
            if run > 1 {
                text += &format!("-{}", rest[run - 1]);
            }
            rest = &rest[run..];
        }
        f.pad(&text)
    }
}

impl FromStr for CpuSet {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || ParseError::new("list", s, "numbers and ranges below 65536, such as 0-7,16");
        let mut cpus = Vec::new();
        for part in s.trim().split(',').filter(|p| !p.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.trim().parse().map_err(|_| bad())?;
            let last: u32 = last.trim().parse().map_err(|_| bad())?;
            if first > last || last >= MAX_CPU || cpus.len() >= MAX_CPU as usize {
                return Err(bad());
            }
            cpus.extend(first..=last);
        }
        Ok(Self::new(cpus))
    }
}

/// One NUMA domain.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumaDomain {
    /// Its number.
    pub id: u32,
    /// Its logical CPUs; empty for memory-only domains.
    #[serde(default)]
    pub cpus: CpuSet,
    /// Its memory; 0 if unknown.
    #[serde(default)]
    pub memory: Bytes,
    /// Free memory when looked at; 0 if unknown.
    #[serde(default)]
    pub free: Bytes,
    /// Distance to every domain, in the order of their numbers; 10 is local. Empty if unknown.
    #[serde(default)]
    pub distances: Vec<u32>,
    /// Theoretical peak of its memory, where it is known.
    #[serde(default)]
    pub peak: Option<Rate>,
}

/// CPUs that share one cache.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheGroup {
    /// Level: 1, 2, 3.
    pub level: u32,
    /// `CalibrationData`, `Instruction` or `Unified`.
    pub kind: String,
    /// Size.
    pub size: Bytes,
    /// Line length in bytes; 0 if unknown.
    #[serde(default)]
    pub line: u32,
    /// CPUs that share it.
    pub cpus: CpuSet,
}

/// A cache of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuCache {
    /// 1 is that of a compute unit.
    pub level: u32,
    /// Its bytes: of one compute unit at level 1, else of the GPU.
    pub size: Bytes,
}

/// One GPU as a runtime counts it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Its number.
    pub index: u32,
    /// `amd`, `nvidia`, ...
    #[serde(default)]
    pub vendor: String,
    /// Product name; empty if unknown.
    #[serde(default)]
    pub name: String,
    /// Target: `gfx90a`, `sm_90`; empty if unknown.
    #[serde(default)]
    pub arch: String,
    /// PCI address `0000:c1:00.0`; empty if unknown.
    #[serde(default)]
    pub pci: PciAddress,
    /// NUMA domain that it hangs on.
    #[serde(default)]
    pub numa: Option<u32>,
    /// Number of the package that it shares with other GPUs (an MI250X holds two GCDs).
    #[serde(default)]
    pub package: Option<u32>,
    /// Device memory; 0 if unknown.
    #[serde(default)]
    pub memory: Bytes,
    /// Theoretical peak of its memory, where it is known.
    #[serde(default)]
    pub memory_peak: Option<Rate>,
    /// Compute units or multiprocessors; 0 if unknown.
    #[serde(default)]
    pub compute_units: u32,
    /// Link to the host, where it is known.
    #[serde(default)]
    pub host_link: Option<PcieLink>,
    /// Caches that its driver or its description states, level 1 first. Drivers state level 2 alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<GpuCache>,
}

/// One network adapter.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// Interface or device name.
    pub name: String,
    /// PCI address; empty for virtual ones.
    #[serde(default)]
    pub pci: PciAddress,
    /// NUMA domain.
    #[serde(default)]
    pub numa: Option<u32>,
    /// Line rate in Mbit/s, if stated.
    #[serde(default)]
    pub speed_mbits: Option<u64>,
    /// The GPU that is nearest on the PCI tree, if one is.
    #[serde(default)]
    pub near_gpu: Option<u32>,
    /// GUID of the adapter, as the network knows it; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub guid: String,
    /// Version of its firmware.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub firmware: String,
    /// Kind and board: `MT4129 MT_0000000838`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub board: String,
}

/// One block device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockDevice {
    /// Kernel name: `nvme0n1`.
    pub name: String,
    /// Model; empty if unknown.
    #[serde(default)]
    pub model: String,
    /// PCI address of its controller; empty if unknown.
    #[serde(default)]
    pub pci: PciAddress,
    /// NUMA domain.
    #[serde(default)]
    pub numa: Option<u32>,
    /// Capacity.
    #[serde(default)]
    pub size: Bytes,
    /// Whether it has rotating disks.
    #[serde(default)]
    pub rotational: bool,
}

/// One PCI function.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PciDevice {
    /// `0000:c1:00.0`.
    pub address: PciAddress,
    /// Class code, 24 bits: `0x030200`.
    pub class: u32,
    /// Vendor number.
    pub vendor: u32,
    /// Device number.
    pub device: u32,
    /// NUMA domain, where the system knows it.
    #[serde(default)]
    pub numa: Option<u32>,
    /// Its link, for PCI Express.
    #[serde(default)]
    pub link: Option<PcieLink>,
    /// Address of the bridge above it.
    #[serde(default)]
    pub parent: Option<PciAddress>,
}

/// A PCI Express link, as trained and as both ends could have it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcieLink {
    /// Trained speed in GT/s; 0 if unknown.
    pub speed_gts: f64,
    /// Trained width in lanes; 0 if unknown.
    pub width: u32,
    /// Highest speed in GT/s; 0 if unknown.
    #[serde(default)]
    pub max_speed_gts: f64,
    /// Greatest width; 0 if unknown.
    #[serde(default)]
    pub max_width: u32,
}

impl PcieLink {
    /// Payload-free line rate per direction: GT/s x lanes x line coding (8b/10b up to 5 GT/s,
    /// 128b/130b to 32, 242/256 FLIT from 64; PCI Express Base Specification 6.0).
    pub fn peak(&self) -> Rate {
        line_rate(self.speed_gts, self.width)
    }
    /// The same for the highest speed and width.
    pub fn max_peak(&self) -> Rate {
        line_rate(self.max_speed_gts, self.max_width)
    }
}

fn line_rate(gts: f64, width: u32) -> Rate {
    let coding = match gts {
        g if g <= 5.0 => 0.8,
        g if g <= 32.0 => 128.0 / 130.0,
        _ => 242.0 / 256.0,
    };
    Rate(gts * f64::from(width) / 8.0 * coding)
}

/// An end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkEnd {
    /// A GPU.
    Gpu(u32),
    /// A NUMA domain.
    Numa(u32),
    /// A switch between units (NVSwitch, PCIe switch).
    Switch(u32),
    /// A place for files.
    Store(u32),
}

impl From<Unit> for LinkEnd {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::Gpu(n) => Self::Gpu(n),
            Unit::Numa(n) => Self::Numa(n),
            Unit::Store(n) => Self::Store(n),
        }
    }
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(n) => f.pad(&format!("gpu{n}")),
            Self::Numa(n) => f.pad(&format!("numa{n}")),
            Self::Switch(n) => f.pad(&format!("switch{n}")),
            Self::Store(n) => f.pad(&format!("store{n}")),
        }
    }
}

impl FromStr for LinkEnd {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s.strip_prefix("switch").and_then(number) {
            Some(n) => Ok(Self::Switch(n)),
            None => Ok(s.parse::<Unit>()?.into()),
        }
    }
}

/// The kind of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkKind {
    /// AMD xGMI (Infinity Fabric) between GPUs, or GPU and CPU.
    Xgmi,
    /// NVIDIA NVLink, direct or to a switch.
    Nvlink,
    /// PCI Express.
    Pcie,
    /// Between CPU domains: UPI, xGMI sockets, on-die fabric.
    Cpu,
}
impl LinkKind {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xgmi => "xGMI",
            Self::Nvlink => "NVLink",
            Self::Pcie => "PCIe",
            Self::Cpu => "CPU link",
        }
    }
}

words!(LinkKind, "link kind", { Xgmi => "xgmi", Nvlink => "nvlink", Pcie => "pcie", Cpu => "cpu" });

/// A direct, full-duplex link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// One end.
    pub a: LinkEnd,
    /// The other end.
    pub b: LinkEnd,
    /// Its kind.
    pub kind: LinkKind,
    /// Number of bundled physical links; 1 for PCIe.
    pub width: u32,
    /// Theoretical peak of the bundle per direction, where it is known.
    #[serde(default)]
    pub peak: Option<Rate>,
}

/// The route that the fabric uses from one GPU to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuRoute {
    /// From.
    pub src: LinkEnd,
    /// To.
    pub dst: LinkEnd,
    /// Number of links passed.
    pub hops: u32,
    /// Units passed between the ends, where a source states or implies them. Where several equal
    /// routes exist, each of them.
    #[serde(default)]
    pub via: Vec<Vec<LinkEnd>>,
}

/// Something in a source that cannot be, or that another source contradicts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologyWarning {
    /// Short stable name: `xgmi-count-flat`, `pcie-degraded`.
    pub code: String,
    /// The thing it is about.
    pub subject: String,
    /// The observation, its consequence and the remedy.
    pub text: String,
}

impl TopologyWarning {
    /// Code of the warning that GPUs have NVLink, but the links between them could not be read.
    pub const NVLINK_NOT_READ: &str = "nvlink-not-read";
}

impl Topology {
    /// Whether GPUs may have links that the source does not show.
    pub fn has_unread_links(&self) -> bool {
        let other = ["link-to-itself", "kfd-missing"];
        self.warnings.iter().any(|w| w.code.ends_with("-not-read") || other.contains(&&*w.code))
    }
    /// Whether a source raised the warning with this code.
    pub fn has_warning(&self, code: &str) -> bool {
        self.warnings.iter().any(|warning| warning.code == code)
    }
}

serde_as_text!(CpuSet, LinkEnd, LinkKind);
