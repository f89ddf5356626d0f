//! Modules and switches on the ways around host memory: adapters and drives to GPUs, page faults and engines of AMD.

use pathline_schema::Topology;
use pathline_topo::HostSnapshot;

use super::SettingCheck;
use super::environment::variable;
use super::pcie::is_guest;

const INFINIBAND: &str = "sys/class/infiniband";
/// Rate of adapters that are there for GPUs, Gb/s: those of virtual machines for Ethernet are slower.
const FAST_ADAPTER: f64 = 100.0;

const PEERMEM: &str = "https://docs.nvidia.com/cuda/gpudirect-rdma/index.html";
const UCX: &str = "https://rocm.docs.amd.com/en/latest/how-to/gpu-enabled-mpi.html";
const XNACK: &str = "https://rocm.docs.amd.com/en/latest/conceptual/gpu-memory.html";
const SDMA: &str = "https://rocm.docs.amd.com/en/latest/reference/env-variables.html";

pub(super) fn check(snapshot: &HostSnapshot, topology: &Topology) -> Vec<SettingCheck> {
    let mut all = Vec::new();
    let has = |vendor: &str| topology.gpus.iter().any(|gpu| gpu.vendor == vendor);
    if has("nvidia") {
        all.extend(
            has_adapters(snapshot, topology).then(|| peer_memory(snapshot, topology)).flatten(),
        );
        if let Some(modules) = snapshot.get("proc/modules") {
            let is_loaded = modules.lines().any(|name| name == "nvidia_fs");
            let value =
                if is_loaded { "loaded" } else { "not loaded: cuFile copies through host memory" };
            all.push(SettingCheck::new("GPUs", "nvidia-fs", value));
        }
    }
    if has("amd") {
        for (name, source) in
            [("HSA_XNACK", XNACK), ("HSA_ENABLE_SDMA", SDMA), ("HSA_ENABLE_PEER_SDMA", SDMA)]
        {
            if let Some(value) = variable(snapshot, name) {
                let check =
                    SettingCheck::new("GPUs", name, value.chars().take(20).collect::<String>());
                all.push(SettingCheck { source, ..check });
            }
        }
        all.extend(page_faults(snapshot));
        all.extend(has_adapters(snapshot, topology).then(|| importing(snapshot)).flatten());
    }
    all
}

/// Whether an adapter of InfiniBand is there for GPUs, which reaches their memory by a module or by dma-buf.
fn has_adapters(snapshot: &HostSnapshot, topology: &Topology) -> bool {
    snapshot.children(INFINIBAND).iter().any(|name| {
        let line = |file: &str| snapshot.line(&format!("{INFINIBAND}/{name}/{file}"));
        let rate: Option<f64> =
            line("ports/1/rate").and_then(|rate| rate.split(' ').next()?.parse().ok());
        let is_fast = !is_guest(topology) && rate.is_some_and(|rate| rate >= FAST_ADAPTER);
        line("hca_type").is_some_and(|kind| kind.starts_with("MT"))
            && line("ports/1/state").is_some_and(|state| state.contains("ACTIVE"))
            && (line("ports/1/link_layer") == Some("InfiniBand") || is_fast)
    })
}

/// Whether the kernel lets adapters import memory of AMD's GPUs, or their drivers have a registry for it.
fn importing(snapshot: &HostSnapshot) -> Option<SettingCheck> {
    let check = |value: &str| SettingCheck::new("adapters", "access to memory of GPUs", value);
    if snapshot.get("sys/kernel/mm/memory_peers/amdkfd/version").is_some() {
        return Some(check("by the registry of the adapters' drivers"));
    }
    let options = snapshot.get("pathline/kernel-options")?;
    let absent: Vec<&str> =
        options.lines().filter_map(|line| line.strip_suffix("=n")).take(4).collect();
    Some(match absent.is_empty() {
        true => check("by dma-buf"),
        false => check(&format!("the kernel lacks {}", absent.join(" and "))).suspect(
            "messages of GPUs over adapters: they are copied through host memory",
            "boot a kernel with these options, or install amdgpu with the adapters' own drivers (OFED)",
            UCX,
        ),
    })
}

/// The module that lets adapters reach memory of NVIDIA's GPUs, or the driver that needs none.
fn peer_memory(snapshot: &HostSnapshot, topology: &Topology) -> Option<SettingCheck> {
    let modules =
        snapshot.get("proc/modules").filter(|modules| modules.lines().any(|m| m == "nvidia"))?;
    let loaded = modules.lines().find(|name| matches!(*name, "nvidia_peermem" | "nv_peer_mem"));
    let version = snapshot.get("proc/driver/nvidia/version")?;
    // The open modules export memory as files from Linux 5.12 on.
    let is_open =
        version.contains("Open Kernel Module") && kernel_at_least(&topology.host.kernel, (5, 12));
    let check = |value: &str| SettingCheck::new("adapters", "access to memory of GPUs", value);
    Some(match (loaded, is_open) {
        (Some(module), _) => check(module),
        (None, true) => check("by dma-buf of the open kernel modules"),
        (None, false) => check("nvidia-peermem is not loaded, and the driver exports no dma-buf").suspect(
            "messages of GPUs over adapters: they are copied through host memory",
            "modprobe nvidia-peermem, and name it in /etc/modules-load.d; or install the open kernel modules",
            PEERMEM,
        ),
    })
}

fn kernel_at_least(release: &str, least: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= least,
        _ => false,
    }
}

/// `HSA_XNACK=1` has no effect if the driver was loaded without retries of page faults.
fn page_faults(snapshot: &HostSnapshot) -> Option<SettingCheck> {
    let noretry = snapshot.line("sys/module/amdgpu/parameters/noretry")?;
    let check = SettingCheck::new("GPUs", "amdgpu.noretry", noretry);
    Some(if noretry == "1" && variable(snapshot, "HSA_XNACK") == Some("1") {
        check.suspect(
            "programs that need page faults of GPUs (HSA_XNACK=1): they fail or copy instead",
            "load amdgpu with noretry=0, or unset HSA_XNACK",
            XNACK,
        )
    } else {
        check
    })
}
