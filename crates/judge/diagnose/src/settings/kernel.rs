//! Settings of the kernel: memory, clocks, limits of processes.

use pathline_schema::{NumaDomain, Topology};
use pathline_topo::HostSnapshot;

use super::SettingCheck;
use super::adapters::SLINGSHOT;
use super::pcie::{is_guest, is_whole};

const ROCM: &str = "https://rocm.docs.amd.com/en/latest/how-to/system-optimization/mi200.html";
const SYSCTL: &str = "https://docs.kernel.org/admin-guide/sysctl/";
const YAMA: &str = "https://docs.kernel.org/admin-guide/LSM/Yama.html";
const CPUFREQ: &str = "https://docs.kernel.org/admin-guide/pm/cpufreq.html";
const CHANNELS: &str = "https://docs.kernel.org/driver-api/edac.html";
/// Least share of its peers' memory that a domain has: what the kernel takes for itself is less. Assumed: of 16
/// channels one is 6 %, and a module is mostly one of 8 or 12.
const LEAST_OF_PEERS: f64 = 0.95;
const OPEN_MPI: &str = "https://www.open-mpi.org/faq/?category=openfabrics#ib-locked-pages";

pub(super) fn check(snapshot: &HostSnapshot, topology: &Topology) -> Vec<SettingCheck> {
    let mut all = Vec::new();
    let has_gpus = !topology.gpus.is_empty();
    let domains = topology.numa.len();
    if let Some(value) = snapshot.line("proc/sys/kernel/numa_balancing") {
        let check = SettingCheck::new("memory", "numa_balancing", value);
        all.push(if value != "0" && has_gpus && domains > 1 {
            check.suspect(
                "copies with host memory: the kernel unmaps pages to see who uses them",
                "sysctl kernel.numa_balancing=0",
                ROCM,
            )
        } else {
            check
        });
    }
    if let Some(value) = snapshot.line("proc/sys/vm/zone_reclaim_mode") {
        let check = SettingCheck::new("memory", "zone_reclaim_mode", value);
        all.push(if value != "0" && domains > 1 {
            check.suspect(
                "allocation: pages of a domain are reclaimed while others have free ones",
                "sysctl vm.zone_reclaim_mode=0",
                SYSCTL,
            )
        } else {
            check
        });
    }
    let empty: Vec<String> = (topology.numa.iter())
        .filter(|domain| domain.memory.0 == 0 && !domain.cpus.is_empty())
        .map(|domain| format!("numa{}", domain.id))
        .collect();
    if !empty.is_empty() {
        all.push(
            SettingCheck::new("memory", "domains with CPUs and no memory", empty.join(", "))
                .suspect(
                    "everything that their CPUs do with memory: it lies in another domain",
                    "see that each socket has its memory modules, or the firmware's interleaving",
                    SYSCTL,
                ),
        );
    }
    all.extend(lost_memory(topology));
    if topology.numa.len() > 1 && is_whole(topology) && topology.has_warning("gpu-no-numa") {
        let check = SettingCheck::new("memory", "NUMA domains of GPUs", "not known to the system");
        all.push(check.suspect(
            "copies with host memory: no process can be bound next to its GPU",
            "see the firmware for NUMA (NPS, SRAT) and update it; bind by measured rates meanwhile",
            SYSCTL,
        ));
    }
    all.extend(clock(snapshot));
    all.extend(locked_memory(snapshot, topology));
    if let Some(value) = snapshot.line("proc/sys/kernel/yama/ptrace_scope") {
        let check = SettingCheck::new("processes", "ptrace_scope", value);
        all.push(if matches!(value, "2" | "3") {
            check.suspect(
                "messages between processes of a node: one may not read the other (CMA), so that each \
                 byte is copied twice",
                "sysctl kernel.yama.ptrace_scope=1 or 0; 3 lasts until the next start",
                YAMA,
            )
        } else {
            check
        });
    }
    all
}

/// Domains with less memory than those with as many CPUs: a module is missing, or was switched off at the start.
fn lost_memory(topology: &Topology) -> Option<SettingCheck> {
    let has_cpus = |domain: &&NumaDomain| !domain.cpus.is_empty() && domain.memory.0 > 0;
    let most = |cpus: usize| {
        let peers = topology.numa.iter().filter(has_cpus).filter(|peer| peer.cpus.len() == cpus);
        peers.map(|peer| peer.memory).max()
    };
    let small: Vec<String> = (topology.numa.iter().filter(has_cpus))
        .filter_map(|domain| Some((domain, most(domain.cpus.len())?)))
        .filter(|(domain, most)| (domain.memory.0 as f64) < LEAST_OF_PEERS * most.0 as f64)
        .map(|(domain, most)| {
            format!("numa{} has {} of {}", domain.id, domain.memory.rounded(), most.rounded())
        })
        .collect();
    (!small.is_empty() && !is_guest(topology)).then(|| {
        SettingCheck::new("memory", "memory of domains", small.join(", ")).suspect(
            "everything with memory of that domain: it has fewer channels than its peers",
            "see which modules the firmware found (dmidecode -t memory) and its event log (ipmitool sel list)",
            CHANNELS,
        )
    })
}

/// A governor that keeps the lowest clock. Drivers that choose clocks themselves use its name otherwise.
fn clock(snapshot: &HostSnapshot) -> Option<SettingCheck> {
    const CPUFREQ_DIR: &str = "sys/devices/system/cpu/cpu0/cpufreq";
    let governor = snapshot.line(&format!("{CPUFREQ_DIR}/scaling_governor"))?;
    let driver =
        snapshot.line(&format!("{CPUFREQ_DIR}/scaling_driver")).unwrap_or("unknown driver");
    let check = SettingCheck::new("processes", "CPU clock", format!("{governor} ({driver})"));
    let is_fixed = matches!(driver, "acpi-cpufreq" | "cppc_cpufreq" | "intel_cpufreq");
    Some(if governor == "powersave" && is_fixed {
        check.suspect(
            "launches, messages and copies by CPU threads: CPUs stay at their lowest clock",
            "cpupower frequency-set -g performance",
            CPUFREQ,
        )
    } else {
        check
    })
}

/// What a process may lock, which adapters need for each buffer.
fn locked_memory(snapshot: &HostSnapshot, topology: &Topology) -> Option<SettingCheck> {
    let limits = snapshot.get("proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    let soft = line.split_whitespace().next()?;
    let has_rdma = !snapshot.children("sys/class/infiniband").is_empty()
        || topology.pci.iter().any(|device| device.vendor == SLINGSHOT);
    let Ok(bytes) = soft.parse::<u64>() else {
        return Some(SettingCheck::new("processes", "locked memory", soft));
    };
    let value = pathline_schema::Bytes(bytes).rounded();
    let check = SettingCheck::new("processes", "locked memory", format!("at most {value}"));
    let host = topology.host.memory.0;
    Some(if has_rdma && bytes < host / 2 {
        check.suspect(
            "messages over adapters: buffers above the limit cannot be registered, or are copied",
            "ulimit -l unlimited, in limits.conf and in the launcher's service (LimitMEMLOCK=infinity)",
            OPEN_MPI,
        )
    } else {
        check
    })
}
