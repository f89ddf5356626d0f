//! What says how a node is set up, and nothing of what it is made of: [`HostSnapshot::add_settings`].

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::collect::{TreeReader, lines_with};
use crate::kernel_log::{EVENTS, read_events};
use crate::snapshot::HostSnapshot;

const PCI_DEVICES: &str = "sys/bus/pci/devices";

/// Files to read unchanged.
const SETTING_FILES: &[&str] = &[
    EVENTS,
    "opt/rocm/.info/version",
    // Whether options of the kernel are set, which the caller adds.
    "pathline/kernel-options",
    HostSnapshot::VERSIONS,
    "proc/driver/nvidia/version",
    "proc/self/limits",
    "proc/sys/kernel/numa_balancing",
    "proc/sys/kernel/yama/ptrace_scope",
    "proc/sys/vm/zone_reclaim_mode",
    "proc/uptime",
    // The registry of drivers whose memory adapters reach, of the adapters' own drivers.
    "sys/kernel/mm/memory_peers/amdkfd/version",
    "sys/module/amdgpu/parameters/noretry",
    "sys/module/pcie_aspm/parameters/policy",
    "sys/module/amdgpu/version",
    "sys/module/nvidia/version",
];

/// The same below directories.
const SETTING_TREES: &[(&str, &[&str])] = &[
    ("sys/bus/pci/devices", &["aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal"]),
    ("sys/kernel/iommu_groups", &["type"]),
    (
        "sys/class/drm",
        &[
            "device/current_compute_partition",
            "device/current_memory_partition",
            "device/hwmon/*/power1_cap",
            "device/hwmon/*/power1_cap_default",
            "device/ras/umc_err_count",
            "device/ras/xgmi_wafl_err_count",
        ],
    ),
    ("sys/class/net", &["mtu"]),
    (
        "sys/class/infiniband",
        &[
            "ports/1/link_layer",
            "ports/1/counters/link_downed",
            "ports/1/counters/link_error_recovery",
            "ports/1/counters/local_link_integrity_errors",
            "ports/1/counters/port_rcv_errors",
        ],
    ),
];

/// Symbolic links to keep.
const SETTING_LINKS: &[&str] = &["proc/self/ns/ipc", "proc/self/ns/pid"];
/// Modules of the kernel that connect GPUs with adapters and drives.
const MODULES: [&str; 6] =
    ["nvidia_peermem", "nv_peer_mem", "nvidia_fs", "nvidia", "amdgpu", "gdrdrv"];
/// Variables that hide GPUs, choose engines, or say how many processes a launcher started here. No other is kept.
const VARIABLES: [&str; 15] = [
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "HSA_ENABLE_PEER_SDMA",
    "HSA_ENABLE_SDMA",
    "HSA_XNACK",
    "MPI_LOCALNRANKS",
    "NVIDIA_VISIBLE_DEVICES",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PALS_LOCAL_SIZE",
    "PMIX_LOCAL_SIZE",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_GPUS_ON_NODE",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_STEP_TASKS_PER_NODE",
];

/// Classes of functions whose registers are read: PCI bridges, displays, accelerators, networks, NVMe.
const REGISTER_CLASSES: [&str; 5] = ["0x0604", "0x03", "0x12", "0x02", "0x0108"];
/// Bytes of a configuration space.
const REGISTERS: usize = 4096;

/// Classes of GPUs.
const GPU_CLASSES: [&str; 2] = ["0x03", "0x12"];

impl HostSnapshot {
    /// Adds the settings of a host or of a tree saved from one, as [`HostSnapshot::collect`] reads it, which
    /// must have been called before. The registers of PCI functions are kept as hexadecimal digits, of the
    /// environment only what hides GPUs, of the kernel's log only what drivers say of faults.
    pub fn add_settings(&mut self, root: &Path) {
        let mut reader = TreeReader::continue_with(root, std::mem::take(self));
        if reader.root == Path::new("/")
            && let Some(events) = read_events(root)
        {
            reader.keep(EVENTS, events);
        }
        SETTING_FILES.iter().for_each(|path| reader.file(path));
        SETTING_LINKS.iter().for_each(|path| reader.link(path));
        reader.trimmed("proc/modules", |text| {
            let names = text.lines().filter_map(|line| line.split(' ').next());
            names.filter(|name| MODULES.contains(name)).flat_map(|name| [name, "\n"]).collect()
        });
        reader.trimmed("proc/self/mounts", |text| lines_with(text, " /dev/shm "));
        reader.trimmed("proc/self/environ", keep_variables);
        for (dir, below) in SETTING_TREES {
            for name in reader.names(dir) {
                for file in *below {
                    reader.pattern(&format!("{dir}/{name}"), file);
                }
            }
        }
        for name in reader.names("dev") {
            let is_gpu = name.strip_prefix("nvidia").is_some_and(|n| n.parse::<u32>().is_ok());
            if is_gpu || name == "kfd" {
                reader.keep(&format!("dev/{name}"), String::new());
            }
        }
        for name in reader.names(PCI_DEVICES) {
            let path = format!("{PCI_DEVICES}/{name}");
            reader.link(&format!("{path}/iommu_group"));
            let class = reader.snapshot.line(&format!("{path}/class")).unwrap_or_default();
            let is_one_of = |kinds: &[&str]| kinds.iter().any(|kind| class.starts_with(kind));
            let (has_registers, is_gpu) = (is_one_of(&REGISTER_CLASSES), is_one_of(&GPU_CLASSES));
            if has_registers {
                reader.registers(&path);
            }
            if is_gpu {
                reader.link(&format!("{path}/driver"));
                reader.file(&format!("{path}/resource"));
            }
        }
        *self = reader.snapshot;
    }
}

/// The variables to keep, a line each; the kernel ends each by a zero byte.
fn keep_variables(text: &str) -> String {
    let all = text.split(['\0', '\n']).filter_map(|text| text.split_once('='));
    let kept = all.filter(|(name, _)| VARIABLES.contains(name));
    kept.map(|(name, value)| format!("{name}={value}\n")).collect()
}

impl TreeReader {
    /// Adds the configuration space of a PCI function, real or saved.
    fn registers(&mut self, path: &str) {
        let saved = format!("{path}/config.hex");
        let real = self.inside(&format!("{path}/config")).filter(|file| file.is_file());
        let mut bytes = Vec::new();
        let file = real.and_then(|file| File::open(file).ok());
        let read = file.map(|file| file.take(REGISTERS as u64).read_to_end(&mut bytes));
        match read {
            Some(Ok(1..)) => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                self.keep(&saved, hex + "\n");
            }
            _ => self.file(&saved),
        }
    }
}
