//! A GPU with what the management library, or the files of amdgpu, state of it.

use std::collections::BTreeMap;

use pathline_schema::Topology;
use pathline_topo::HostSnapshot;

use super::SettingCheck;

const DRM: &str = "sys/class/drm";

/// A GPU with what is stated of it.
pub(super) struct StatedGpu<'s> {
    /// `gpu0`, or its PCI address if the bus does not show it.
    pub(super) name: String,
    pub(super) pci: &'s str,
    pub(super) product: &'s str,
    pub(super) arch: &'s str,
    pub(super) facts: BTreeMap<&'static str, String>,
    /// Links to other GPUs: whether each is up, and its rate.
    pub(super) links: Vec<(bool, u64)>,
    /// GPUs that it may reach or not, with the codes of a read and a write.
    pub(super) peers: Vec<(&'s str, [u32; 2])>,
}

impl StatedGpu<'_> {
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.facts.get(key)?.parse().ok()
    }

    pub(super) fn is(&self, key: &str) -> bool {
        self.number(key).is_some_and(|number| number > 0.0)
    }

    pub(super) fn is_amd(&self) -> bool {
        self.arch.starts_with("gfx")
    }

    pub(super) fn active(&self) -> usize {
        self.links.iter().filter(|(active, _)| *active).count()
    }

    pub(super) fn check(&self, what: &str, value: String) -> SettingCheck {
        SettingCheck::new("GPUs", format!("{what} of {}", self.name), value)
    }
}

/// Facts of the management library that are judged: `nvml/PCI-ADDRESS/facts` of a snapshot.
const FACTS: [&str; 18] = [
    "ecc",
    "ecc_pending",
    "ecc_corrected",
    "ecc_uncorrected",
    "remapped_corrected",
    "remapped_uncorrected",
    "remap_pending",
    "remap_failed",
    "retired_pending",
    "power_limit_w",
    "power_default_w",
    "throttle",
    "persistence",
    "compute_mode",
    "mig",
    "fabric",
    "memory_bytes",
    "confidential",
];

/// All GPUs of which something is stated.
pub(super) fn stated_gpus<'s>(
    snapshot: &'s HostSnapshot,
    topology: &'s Topology,
) -> Vec<StatedGpu<'s>> {
    let gpu_at = |pci: &str| topology.gpus.iter().find(|gpu| gpu.pci == *pci);
    let new = |pci: &'s str| {
        let known = gpu_at(pci);
        StatedGpu {
            name: known.map_or(pci.to_owned(), |gpu| format!("gpu{}", gpu.index)),
            pci,
            product: known.map_or("", |gpu| gpu.name.as_str()),
            arch: known.map_or("", |gpu| gpu.arch.as_str()),
            facts: BTreeMap::new(),
            links: Vec::new(),
            peers: Vec::new(),
        }
    };
    let mut all = Vec::new();
    for pci in snapshot.children("nvml") {
        let Some(text) = snapshot.get(&format!("nvml/{pci}/facts")) else { continue };
        let mut gpu = new(pci);
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            if let Some(key) = FACTS.into_iter().find(|known| *known == key) {
                gpu.facts.insert(key, value.to_owned());
            } else if key == "peer"
                && let [peer, read, write] = value.split(' ').collect::<Vec<_>>()[..]
                && let (Ok(read), Ok(write)) = (read.parse(), write.parse())
            {
                gpu.peers.push((peer, [read, write]));
            }
        }
        let links = snapshot.get(&format!("nvml/{pci}/nvlink")).unwrap_or_default();
        for line in links.lines() {
            let field = |key: &str| line.split(' ').find_map(|field| field.strip_prefix(key));
            let rate = field("mbps=").and_then(|mbps| mbps.parse().ok()).unwrap_or(0);
            gpu.links.push((field("active=") == Some("1"), rate));
        }
        all.push(gpu);
    }
    for card in snapshot.children(DRM) {
        let device = format!("{DRM}/{card}/device");
        let line = |file: &str| snapshot.line(&format!("{device}/{file}"));
        let Some(pci) = snapshot.target(&device).and_then(|to| to.rsplit('/').next()) else {
            continue;
        };
        if gpu_at(pci).is_none_or(|gpu| gpu.vendor != "amd") {
            continue;
        }
        let mut gpu = new(pci);
        let mut add = |key, value: Option<String>| {
            value.and_then(|value| gpu.facts.insert(key, value));
        };
        // `ue: 0` and `ce: 3`.
        let count = |file: &str, kind: &str| {
            let count = line(file)?.lines().find_map(|line| line.trim().strip_prefix(kind))?;
            Some(count.trim().to_owned())
        };
        add("ecc_uncorrected", count("ras/umc_err_count", "ue:"));
        add("ecc_corrected", count("ras/umc_err_count", "ce:"));
        add("link_uncorrected", count("ras/xgmi_wafl_err_count", "ue:"));
        let sensors = snapshot.children(&format!("{device}/hwmon"));
        let watts = |file: &str| -> Option<String> {
            let microwatts: f64 =
                line(&format!("hwmon/{}/{file}", sensors.first()?))?.parse().ok()?;
            Some((microwatts / 1e6).to_string())
        };
        add("power_limit_w", watts("power1_cap"));
        add("power_default_w", watts("power1_cap_default"));
        add("compute_partition", line("current_compute_partition").map(str::to_owned));
        add("memory_partition", line("current_memory_partition").map(str::to_owned));
        all.push(gpu);
    }
    all
}
