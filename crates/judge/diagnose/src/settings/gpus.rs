//! GPUs: errors of memory, limits of power, modes, apertures.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, Topology};
use pathline_topo::HostSnapshot;

use super::SettingCheck;
use super::pcie::{is_guest, is_of_server};
use super::stated_gpu::StatedGpu;

/// Default limit from which a board is one for computing, W: those of laptops share theirs with the processor.
const COMPUTE_BOARD: f64 = 200.0;
/// Targets of boards that show all of their memory through a BAR, as adapters need it.
const WHOLE_BAR: [&str; 6] = ["sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950"];

const ROWS: &str = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html";
const RAS: &str = "https://docs.kernel.org/gpu/amdgpu/ras.html";
const SMI: &str = "https://docs.nvidia.com/deploy/nvidia-smi/index.html";
const PERSISTENCE: &str = "https://docs.nvidia.com/deploy/driver-persistence/index.html";
const GPUDIRECT: &str = "https://docs.nvidia.com/cuda/gpudirect-rdma/index.html";
const PARTITIONS: &str =
    "https://instinct.docs.amd.com/projects/amdgpu-docs/en/latest/gpu-partitioning/index.html";
const CONFIDENTIAL: &str = "https://docs.nvidia.com/confidential-computing/index.html";

pub(super) fn check(
    snapshot: &HostSnapshot,
    topology: &Topology,
    gpus: &[StatedGpu<'_>],
) -> Vec<SettingCheck> {
    let mut all = Vec::new();
    if let Some(why) = snapshot.line("nvml/unread") {
        let why = why.chars().take(200).collect::<String>();
        let is_replaced = why.to_lowercase().contains("mismatch");
        let check = SettingCheck::new("GPUs", "management library", why);
        let remedy =
            "see what `nvidia-smi` says; a driver that was replaced needs a restart of the system";
        all.push(match is_replaced {
            true => check.fail("everything: no program can start on the GPUs", remedy, SMI),
            false => check.unread(remedy),
        });
    } else if snapshot.children("nvml").is_empty()
        && !snapshot.children("proc/driver/nvidia/gpus").is_empty()
    {
        let check = SettingCheck::new("GPUs", "settings of GPUs", "none was kept");
        all.push(check.unread("save the node again where NVML is installed"));
    }
    for gpu in gpus {
        all.extend(memory_errors(gpu, gpus));
        all.extend(power(gpu));
        all.extend(modes(gpu));
        all.extend(aperture(snapshot, topology, gpu));
    }
    all.extend(persistence(topology, gpus));
    all.extend(partitions(gpus));
    all
}

/// ECC, rows that were replaced, and what waits for a reset.
fn memory_errors(gpu: &StatedGpu<'_>, all: &[StatedGpu<'_>]) -> Vec<SettingCheck> {
    let mut found = Vec::new();
    let reset = "end what uses it, then nvidia-smi --gpu-reset -i N, or restart the system";
    let (corrected, uncorrected) = (gpu.number("ecc_corrected"), gpu.number("ecc_uncorrected"));
    let is_off = gpu.number("ecc") == Some(0.0);
    let counts = corrected.zip(uncorrected).map(|(c, u)| format!("{c} corrected, {u} not"));
    if is_off || counts.is_some() {
        let value = counts.filter(|_| !is_off).unwrap_or_else(|| "ECC is off".to_owned());
        let check = gpu.check("memory errors", value);
        found.push(if uncorrected.is_some_and(|count| count > 0.0) && !is_off {
            let (remedy, source) =
                if gpu.is_amd() { ("amd-smi reset --gpureset", RAS) } else { (reset, ROWS) };
            check.suspect(
                "jobs on it: each such error ends one, or spoils its data",
                remedy,
                source,
            )
        } else if is_off && all.iter().any(|peer| peer.product == gpu.product && peer.is("ecc")) {
            check.suspect(
                "results: its peers correct errors",
                "nvidia-smi -e 1 -i N, then a reset",
                SMI,
            )
        } else {
            check
        });
    }
    if gpu.number("ecc").zip(gpu.number("ecc_pending")).is_some_and(|(now, next)| now != next) {
        let value = format!("waits for a reset to turn {}", if is_off { "on" } else { "off" });
        found.push(gpu.check("ECC", value).suspect(
            "nothing yet: it changes the capacity",
            reset,
            SMI,
        ));
    }
    if let Some([pending, failed]) =
        gpu.number("remap_pending").zip(gpu.number("remap_failed")).map(<[f64; 2]>::from)
    {
        let rows = ["remapped_corrected", "remapped_uncorrected"]
            .map(|key| gpu.number(key).unwrap_or(0.0));
        let check = gpu.check("remapped rows", format!("{}", rows[0] + rows[1]));
        let slows = "jobs on it: a row of its memory is bad and still used";
        found.push(if failed > 0.0 {
            let check = SettingCheck {
                value: format!("{}, and one had no spare row", check.value),
                ..check
            };
            check.fail(slows, "take it out of service and have it replaced", ROWS)
        } else if pending > 0.0 {
            let check = SettingCheck {
                value: format!("{}, and one waits for a reset", check.value),
                ..check
            };
            check.suspect(slows, reset, ROWS)
        } else {
            check
        });
    }
    if gpu.is("retired_pending") {
        let check = gpu.check("retired pages", "some wait for a reset".to_owned());
        found.push(check.suspect(
            "jobs on it: a page of its memory is bad and still used",
            reset,
            ROWS,
        ));
    }
    if let Some(count) = gpu.number("link_uncorrected") {
        let check = gpu.check("xGMI errors", format!("{count} not corrected"));
        let (slows, remedy) = (
            "copies to other GPUs over it",
            "amd-smi reset --gpureset; if they return, have it replaced",
        );
        found.push(if count > 0.0 { check.suspect(slows, remedy, RAS) } else { check });
    }
    found
}

/// The limit of power against the board's own, and clocks that the board itself holds down.
fn power(gpu: &StatedGpu<'_>) -> Vec<SettingCheck> {
    let mut found = Vec::new();
    if let Some((limit, board)) = gpu.number("power_limit_w").zip(gpu.number("power_default_w")) {
        let check = gpu.check("power limit", format!("{limit:.0} W, the board's {board:.0} W"));
        found.push(if limit < 0.98 * board && board >= COMPUTE_BOARD {
            let share = 100.0 * limit / board;
            check.suspect(
                format!("kernels under load: {share:.0} % of the power; copies hardly"),
                match gpu.is_amd() {
                    true => format!("amd-smi set -o {board:.0}, unless it is meant"),
                    false => format!("nvidia-smi -i N -pl {board:.0}, unless it is meant"),
                },
                SMI,
            )
        } else {
            check
        });
    }
    // An idle GPU has low clocks for other reasons: these are of the board, its cooling and its supply.
    const FAULTS: [&str; 3] = ["hardware slowdown", "hardware thermal slowdown", "power brake"];
    if let Some(reasons) = gpu.facts.get("throttle") {
        let faults: Vec<&str> =
            reasons.split(',').filter(|reason| FAULTS.contains(reason)).collect();
        let value = if reasons.is_empty() { "not held down" } else { reasons };
        let check = gpu.check("clocks", value.to_owned());
        found.push(if faults.is_empty() {
            check
        } else {
            let remedy = "see power supplies, their cables and the cooling of the node; nvidia-smi -q -d PERFORMANCE";
            check.suspect("everything on it: clocks at half or less", remedy, SMI)
        });
    }
    found
}

fn modes(gpu: &StatedGpu<'_>) -> Vec<SettingCheck> {
    let mut found = Vec::new();
    if let Some(mode) = gpu.facts.get("compute_mode") {
        let check = gpu.check("compute mode", mode.clone());
        found.push(if mode == "prohibited" {
            check.fail("everything: no process may use it", "nvidia-smi -i N -c DEFAULT", SMI)
        } else {
            check
        });
    }
    if gpu.is("mig") {
        found.push(gpu.check(
            "MIG",
            "on: a process has a part of it, without access to other GPUs".to_owned(),
        ));
    }
    if gpu.is("confidential") {
        found.push(gpu.check("confidential computing", "on".to_owned()).suspect(
            "copies between host and GPU: each is encrypted and goes through a bounce buffer",
            "leave it on if it is meant; else switch it off with the vendor's tool (nvidia_gpu_tools.py --set-cc-mode=off)",
            CONFIDENTIAL,
        ));
    }
    found
}

/// Whether adapters and other GPUs can address all of its memory at once.
fn aperture(
    snapshot: &HostSnapshot,
    topology: &Topology,
    gpu: &StatedGpu<'_>,
) -> Option<SettingCheck> {
    let listed = topology.gpus.iter().find(|known| known.pci == *gpu.pci)?;
    let table = snapshot.get(&format!("sys/bus/pci/devices/{}/resource", gpu.pci))?;
    let size = |line: &str| {
        let mut numbers =
            line.split(' ').map(|hex| u64::from_str_radix(hex.trim_start_matches("0x"), 16));
        let (start, end) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        (end > start).then(|| (end - start).saturating_add(1))
    };
    let bar = table.lines().take(6).filter_map(size).max()?;
    let stated = gpu.number("memory_bytes").map(|bytes| bytes as u64);
    let memory = stated.unwrap_or(listed.memory.0);
    let check = gpu.check(
        "largest BAR",
        format!("{} of {} memory", Bytes(bar).rounded(), Bytes(memory).rounded()),
    );
    // Those with a link of their own to the processor's memory map it otherwise.
    let is_whole = WHOLE_BAR.contains(&gpu.arch)
        && !gpu.product.contains("MI300A")
        && topology.host.arch != "aarch64";
    Some(if is_whole && bar < memory && !gpu.is("mig") {
        check.suspect(
            "adapters and other GPUs: they reach only this part of its memory",
            "switch on Above 4G Decoding and Resizable BAR in the firmware of the board",
            GPUDIRECT,
        )
    } else {
        check
    })
}

/// On a node of several GPUs each process that comes first waits for their start.
fn persistence(topology: &Topology, gpus: &[StatedGpu<'_>]) -> Option<SettingCheck> {
    let known: Vec<bool> =
        gpus.iter().filter_map(|gpu| Some(gpu.number("persistence")? > 0.0)).collect();
    let off = known.iter().filter(|on| !**on).count();
    let value =
        if off == 0 { "on".to_owned() } else { format!("off for {off} of {}", known.len()) };
    let check = SettingCheck::new("GPUs", "persistence", value);
    let servers = topology.gpus.iter().filter(|gpu| is_of_server(topology, &gpu.pci)).count();
    (!known.is_empty()).then(|| match is_guest(topology) {
        false if off > 0 && servers > 1 => check.suspect(
            "the start of each program: a GPU that nobody uses is started again, 1 s and more",
            "start nvidia-persistenced",
            PERSISTENCE,
        ),
        _ => check,
    })
}

/// How GPUs of AMD are divided, which must be the same for all.
fn partitions(gpus: &[StatedGpu<'_>]) -> Vec<SettingCheck> {
    let mut found = Vec::new();
    for (key, what) in
        [("compute_partition", "compute partitions"), ("memory_partition", "memory partitions")]
    {
        let mut by_mode: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for gpu in gpus {
            let mode = gpu.facts.get(key).map(String::as_str);
            by_mode.entry(mode.unwrap_or_default()).or_default().push(&gpu.name);
        }
        by_mode.remove("");
        let usual = by_mode.iter().max_by_key(|(_, gpus)| gpus.len()).map(|(mode, _)| *mode);
        if let Some(first) = usual {
            let named = by_mode.iter().map(|(mode, gpus)| match *mode == first {
                true => (*mode).to_owned(),
                false => format!("{mode} on {}", gpus.join(", ")),
            });
            let check = SettingCheck::new("GPUs", what, named.collect::<Vec<_>>().join(", "));
            found.push(if by_mode.len() == 1 {
                check
            } else {
                let remedy = format!(
                    "amd-smi set --{} {first}, or the other, on all",
                    key.replace('_', "-")
                );
                check.suspect(
                    "jobs over all GPUs: they wait for the smallest parts",
                    remedy,
                    PARTITIONS,
                )
            });
        }
    }
    found
}

#[cfg(test)]
pub(super) mod tests;
