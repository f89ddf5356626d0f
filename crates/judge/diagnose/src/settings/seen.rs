//! GPUs on the bus, by the driver, by this process, and what hides the rest.

use pathline_schema::{Gpu, NodeVerdict, Topology};
use pathline_topo::HostSnapshot;

use super::SettingCheck;
use super::environment::{local_ranks, variable};
use super::pcie::is_whole;

const DEVICES: &str = "sys/bus/pci/devices";
const KFD: &str = "sys/class/kfd/kfd/topology/nodes";
const DRIVER: &str = "proc/driver/nvidia/gpus";

const CUDA: &str =
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables";
const ROCM: &str = "https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html";
const GRES: &str = "https://slurm.schedmd.com/gres.html";
const KFD_FILE: &str =
    "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html";
const RESET: &str = "https://docs.kernel.org/gpu/amdgpu/ras.html";
const XIDS: &str = "https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html";

pub(super) fn check(snapshot: &HostSnapshot, topology: &Topology) -> Vec<SettingCheck> {
    let mut all = Vec::new();
    let of = |vendor: &'static str| topology.gpus.iter().filter(move |gpu| gpu.vendor == vendor);
    let (nvidia, amd) = (of("nvidia").count(), of("amd").count());
    let by_driver = snapshot.children(DRIVER).len();
    let opened = snapshot.children("nvml").iter().filter(|name| name.contains(':')).count();
    let files = snapshot.numbered("dev", "nvidia").len();
    if nvidia > 0 && by_driver > 0 {
        let mut value =
            format!("{nvidia} on the bus, {by_driver} of the driver, {files} device files");
        if opened > 0 {
            value += &format!(", {opened} opened");
        }
        // Files that are there and do not open: device rules of a cgroup, which version 2 shows to nobody.
        if opened > 0 && opened < files {
            value += ": device rules of a cgroup hide the rest, or the driver lost it";
        } else if files < by_driver {
            value += ": the container has no files of the rest";
        }
        let check = driven(snapshot, topology, SettingCheck::new("GPUs", "GPUs of NVIDIA", value));
        all.push(missing(topology, nvidia, check));
        all.extend(between_ranks(snapshot, opened, by_driver.max(files)));
    }
    all.extend(undriven(snapshot, topology));
    let unreadable = snapshot
        .children(KFD)
        .into_iter()
        .filter(|node| snapshot.get(&format!("{KFD}/{node}/properties")).is_none());
    let unreadable = unreadable.count();
    if amd > 0 {
        let hidden = match unreadable {
            0 => String::new(),
            n => format!(", {n} hidden by device rules of a cgroup"),
        };
        let check =
            SettingCheck::new("GPUs", "GPUs of AMD", format!("{amd} of the driver{hidden}"));
        let check = on_the_bus(topology, unreadable, check);
        // Files below /dev are kept where modules are.
        let has_settings = snapshot.get("proc/modules").is_some();
        all.push(if has_settings && snapshot.get("dev/kfd").is_none() {
            check.fail(
                "everything by ROCm: /dev/kfd is not here, which each program opens",
                "load amdgpu; in a container docker run --device=/dev/kfd --device=/dev/dri",
                KFD_FILE,
            )
        } else {
            check
        });
        all.extend(between_ranks(snapshot, amd, amd + unreadable));
    }
    let most = if opened > 0 { opened } else { by_driver.max(nvidia) };
    all.extend(visible(snapshot, "CUDA_VISIBLE_DEVICES", if nvidia > 0 { most } else { 0 }, CUDA));
    let visible_amd = visible(snapshot, "ROCR_VISIBLE_DEVICES", amd, ROCM);
    let left = variable(snapshot, "ROCR_VISIBLE_DEVICES").filter(|list| !list.is_empty());
    let left = left.map_or(amd, |list| list.split(',').count().min(amd));
    all.extend(visible_amd);
    for name in ["HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"] {
        all.extend(visible(snapshot, name, left, ROCM));
    }
    all
}

/// Numbers of the GPUs that this process can use, as far as the management library knows them: in a container the
/// bus shows those of others too.
pub(super) fn usable(snapshot: &HostSnapshot, topology: &Topology) -> Vec<u32> {
    let mut opened = snapshot.children("nvml");
    opened.retain(|name| name.contains(':'));
    let is_hidden = |gpu: &&Gpu| gpu.vendor == "nvidia" && !opened.contains(&&*gpu.pci);
    let shown = topology.gpus.iter().filter(|gpu| opened.is_empty() || !is_hidden(gpu));
    shown.map(|gpu| gpu.index).collect()
}

/// GPUs without a driver, while others have one: it did not start them. In a container the GPUs of other jobs have a
/// driver; GPUs for virtual machines have another one.
fn driven(snapshot: &HostSnapshot, topology: &Topology, check: SettingCheck) -> SettingCheck {
    let driver = |gpu: &Gpu| {
        let target = snapshot.target(&format!("{DEVICES}/{}/driver", gpu.pci));
        target.and_then(|target| target.rsplit('/').next())
    };
    let nvidia = || topology.gpus.iter().filter(|gpu| gpu.vendor == "nvidia");
    let listed = snapshot.children(DRIVER);
    let has_driven = nvidia().any(|gpu| driver(gpu) == Some("nvidia"))
        || is_whole(topology) && !listed.is_empty();
    // On the bus with its driver bound, which does not list it: it fell off, or did not start.
    let is_bound =
        |gpu: &&Gpu| driver(gpu).is_none_or(|name| name == "nvidia" && is_whole(topology));
    match nvidia().find(|gpu| is_bound(gpu) && !listed.contains(&&*gpu.pci)) {
        Some(gpu) if has_driven => check.fail(
            format!("everything on gpu{} ({}): its driver does not have it", gpu.index, gpu.pci),
            "see the kernel's log for NVRM; restart the node, then reseat the GPU",
            XIDS,
        ),
        _ => check,
    }
}

/// GPUs of AMD of the kinds that the driver has, against those on the bus.
fn on_the_bus(topology: &Topology, hidden: usize, check: SettingCheck) -> SettingCheck {
    let driven = |address: &str| topology.gpus.iter().any(|gpu| *gpu.pci == *address);
    let kinds: Vec<u32> =
        topology.pci.iter().filter(|d| driven(&d.address)).map(|device| device.device).collect();
    let lost = topology.pci.iter().find(|device| {
        device.vendor == 0x1002 && kinds.contains(&device.device) && !driven(&device.address)
    });
    match lost.filter(|_| hidden == 0 && is_whole(topology)) {
        Some(device) => check.fail(
            format!("everything on the GPU at {}: its driver does not have it", device.address),
            "see the kernel's log for amdgpu; restart the node, then reseat the GPU",
            RESET,
        ),
        None => check,
    }
}

/// GPUs of a board with NVSwitches, which has 4, 8 or 16.
fn missing(topology: &Topology, gpus: usize, check: SettingCheck) -> SettingCheck {
    let has_switches = topology.pci.iter().any(|d| d.vendor == 0x10de && d.class >> 8 == 0x0680);
    if is_whole(topology) && has_switches && gpus % 2 == 1 && check.state == NodeVerdict::Ok {
        return check.suspect(
            format!(
                "jobs on all GPUs: a board with NVSwitches has an even number, {gpus} are here"
            ),
            "switch the node off and on; see the event log of the board (ipmitool sel list)",
            XIDS,
        );
    }
    check
}

/// GPUs of NVIDIA of which none has a driver; another driver than that of NVIDIA is somebody's choice.
fn undriven(snapshot: &HostSnapshot, topology: &Topology) -> Option<SettingCheck> {
    let gpus: Vec<&Gpu> = topology.gpus.iter().filter(|gpu| gpu.vendor == "nvidia").collect();
    let is_free = |gpu: &&Gpu| snapshot.target(&format!("{DEVICES}/{}/driver", gpu.pci)).is_none();
    let in_use = !snapshot.children(DRIVER).is_empty() || snapshot.children("nvml").len() > 1;
    let value = format!("{} on the bus, none has a driver", gpus.len());
    let check = SettingCheck::new("GPUs", "driver of NVIDIA's GPUs", value);
    (!gpus.is_empty() && !in_use && gpus.iter().all(is_free)).then(|| {
        check.suspect(
            "everything that is to run on them",
            "modprobe nvidia; `dmesg | grep -i nvidia` says why it is not there",
            XIDS,
        )
    })
}

/// Whether ranks reach the GPUs of each other: a launcher that gives each rank its own by device rules cuts them off.
fn between_ranks(snapshot: &HostSnapshot, here: usize, all: usize) -> Option<SettingCheck> {
    let (name, ranks) = local_ranks(snapshot)?;
    let value = format!("{here} of {all} are opened, {ranks} ranks ({name})");
    let check = SettingCheck::new("processes", "GPUs of other ranks", value);
    (ranks > 1 && here > 0).then(|| {
        if here < all.min(ranks as usize) {
            check.suspect(
                "messages between GPUs of this node: they go through host memory, as no rank opens the others' memory",
                "srun --gpus-per-node=N --gpu-bind=none, and let each rank take its GPU by its local number",
                GRES,
            )
        } else {
            check
        }
    })
}

/// A list of GPUs to show, by numbers from 0: one that is not there ends the list.
fn visible(
    snapshot: &HostSnapshot,
    name: &'static str,
    gpus: usize,
    source: &'static str,
) -> Option<SettingCheck> {
    let list = variable(snapshot, name).filter(|_| gpus > 0)?;
    let check = SettingCheck::new("GPUs", name, list.chars().take(80).collect::<String>());
    let is_missing =
        |item: &str| item.trim().parse::<i64>().is_ok_and(|n| n < 0 || n >= gpus as i64);
    let is_empty = list.trim().is_empty();
    Some(if is_empty || list.split(',').any(is_missing) {
        check.suspect(
            match is_empty {
                true => "everything: it is set and names no GPU, which hides all".to_owned(),
                false => format!(
                    "everything: it names a GPU that is none of {gpus}, which hides it and all after it"
                ),
            },
            format!("unset {name}, or give it numbers from 0 to {}", gpus.saturating_sub(1)),
            source,
        )
    } else {
        check
    })
}
