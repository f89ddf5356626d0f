//! What the text around outputs says, and the title of a run.

use std::collections::{BTreeMap, BTreeSet};

/// What the text around outputs says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PasteContext {
    /// `NAME=VALUE` on command lines and in text.
    pub settings: BTreeMap<String, String>,
    /// Programs with their arguments.
    pub commands: Vec<String>,
    /// Product names of GPUs, as written; the first is the most frequent.
    pub gpus: Vec<String>,
    /// Products that lists of devices name.
    pub listed_gpus: Vec<String>,
    /// A GPU that a list of devices names and the table of products does not; empty if none.
    pub unknown_gpu: String,
    /// Names of GPUs by number, as a list of devices has them.
    pub devices: BTreeMap<u32, String>,
    /// Lines that name processors.
    pub processor: String,
    /// GPUs of each product, where lists count them.
    pub gpu_count: Option<u32>,
    /// Whether a tool says of a pair of GPUs that there is peer access.
    pub has_access: bool,
    /// Ordered pairs of GPUs of which a tool says that there is no peer access.
    pub no_access: BTreeSet<(u32, u32)>,
    /// PCIe as trained: GT/s and lanes, `LnkSta` of lspci or `Gen`.
    pub pcie: Option<(f64, u32)>,
    /// PCIe as possible: `LnkCap`.
    pub pcie_most: Option<(f64, u32)>,
    /// Lanes of each device that is listed with them, as trained and as possible; 0 where that is not listed.
    pub widths: Vec<(String, u32, u32)>,
    /// PCIe of an adapter as trained.
    pub adapter_pcie: Option<(f64, u32)>,
    /// What the lines below describe: a class of lspci's devices, a heading or columns of nvidia-smi.
    pub lspci_class: String,
    /// Address of that device, and the lanes that it can have.
    pub lspci_address: String,
    /// Lanes that this device can have.
    pub lspci_most: u32,
    /// Line rate of an adapter, Gbit/s.
    pub network_gbits: Option<f64>,
    /// Lanes of the port that lines of ibv_devinfo describe.
    pub port_lanes: Option<f64>,
    /// Ports of adapters that are listed with their rate or as up.
    pub ports: u32,
    /// The same by ibdev2netdev, and by lines with a rate.
    pub ports_up: u32,
    /// Lines with the rate of a port.
    pub ports_with_rate: u32,
    /// Clock of a GPU's memory, MHz, and the peak that it gives, GB/s, as a tool prints its clock and width.
    pub memory_mhz: Option<u32>,
    /// That peak.
    pub memory_gbs: Option<f64>,
    /// Whether a link of PCIe is marked as `downgraded`.
    pub pcie_downgraded: bool,
    /// Whether its width is.
    pub width_downgraded: bool,
    /// Adapters of a node, where a sentence counts them.
    pub adapters: Option<u32>,
    /// Nodes that a sentence counts.
    pub nodes: Option<u32>,
    /// Processes that a launcher starts.
    pub processes: Option<u32>,
    /// Drives that a sentence counts.
    pub drives: Option<u32>,
    /// What the link of a drive can carry each way, GB/s.
    pub drive_gbs: Option<f64>,
    /// What a SATA link carries as it was trained, GB/s.
    pub drive_now: Option<f64>,
    /// What a drive is rated for, reads and writes, GB/s.
    pub rated_gbs: (Option<f64>, Option<f64>),
    /// Whether a drive is said to rotate.
    pub rotates: bool,
    /// Columns of lsblk that say whether a drive rotates, and how it is attached.
    pub drive_columns: (Option<usize>, Option<usize>),
    /// NVLinks of a pair, where `NV4` stands outside of a matrix.
    pub nvlinks: Option<u32>,
    /// Sizes outside of tables, bytes.
    pub sizes: Vec<u64>,
    /// Lines by which a tool states that it failed, with their numbers.
    pub failures: Vec<(u32, String)>,
    /// Lines of the form of a kernel log.
    pub kernel_log: Vec<String>,
    /// All of the text in lower case that belongs to no table, at most 64 KiB.
    pub prose: String,
}

impl PasteContext {
    /// Lines that are kept whole: commands and those of a kernel log.
    pub(crate) fn kept_lines(&self) -> usize {
        self.commands.len() + self.kernel_log.len()
    }
}

/// Conditions of a run that are kept.
const MAX_CONDITIONS: usize = 32;

/// The title of a run and its settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunTitle {
    /// `ranks 0 and 1`, `broadcast over 2 ranks`; empty without a title.
    pub subject: String,
    /// Memory, cadence and settings: `vram`, `graph`, `HSA_ENABLE_SDMA=1`.
    pub conditions: Vec<String>,
}

impl RunTitle {
    /// Of a line `# pathline: LIBRARY, SUBJECT, CONDITION, ...`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.strip_prefix("# pathline: ")?.split(", ");
        let subject = fields.nth(1)?.to_owned();
        // Settings are read as those of any line are.
        let conditions = fields.filter(|field| !field.contains('=')).take(MAX_CONDITIONS);
        Some(Self { subject, conditions: conditions.map(str::to_owned).collect() })
    }

    /// The same with the settings of the text so far.
    pub(crate) fn with(mut self, settings: &BTreeMap<String, String>) -> Self {
        let each = settings.iter().take(MAX_CONDITIONS);
        self.conditions.extend(each.map(|(name, value)| format!("{name}={value}")));
        self
    }

    /// The two ranks that exchange messages, where it names two.
    pub fn pair(&self) -> Option<(u32, u32)> {
        let (from, to) = self.subject.strip_prefix("ranks ")?.split_once(" and ")?;
        Some((from.parse().ok()?, to.parse().ok()?))
    }

    /// Conditions that another run lacks.
    pub fn unlike(&self, other: &Self) -> Vec<&str> {
        let own = self.conditions.iter().filter(|own| !other.conditions.contains(own));
        own.map(String::as_str).collect()
    }
}
