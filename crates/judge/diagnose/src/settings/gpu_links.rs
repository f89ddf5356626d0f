//! Links between GPUs: trained, joined to their fabric, allowed.

use std::collections::BTreeSet;

use pathline_schema::{Link, LinkEnd, LinkKind, Topology};

use super::SettingCheck;
use super::stated_gpu::StatedGpu;

const NVML: &str = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html";
const FABRIC: &str =
    "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html";
const XGMI: &str = "https://docs.kernel.org/gpu/amdgpu/driver-misc.html";

/// NVLinks from which a GPU is a module on a board: a bridge of cards has fewer.
const MODULE_LINKS: usize = 6;

pub(super) fn check(topology: &Topology, gpus: &[StatedGpu<'_>]) -> Vec<SettingCheck> {
    let mut all: Vec<SettingCheck> = gpus.iter().filter_map(|gpu| trained(gpu, gpus)).collect();
    all.extend(fabric(topology, gpus));
    all.extend(peer_access(gpus));
    all.extend(mesh(topology));
    all
}

/// NVLinks that are up, and their rate, against the GPUs with the same name.
fn trained(gpu: &StatedGpu<'_>, all: &[StatedGpu<'_>]) -> Option<SettingCheck> {
    let peers = || all.iter().filter(|peer| peer.product == gpu.product && !peer.links.is_empty());
    let slowest = |gpu: &StatedGpu<'_>| {
        gpu.links.iter().filter(|(up, rate)| *up && *rate > 0).map(|(_, rate)| *rate).min()
    };
    let most = peers().map(StatedGpu::active).max()?;
    if gpu.links.is_empty() {
        // A card may lie below no bridge; modules have all of their links.
        let is_module = peers().all(|peer| peer.links.len() == most);
        return (is_module && most >= MODULE_LINKS).then(|| {
            gpu.check("NVLinks", "none is listed".to_owned()).suspect(
                format!("copies to other GPUs: its peers have {most}"),
                "nvidia-smi nvlink -s -i N, Xid 74 in the kernel's log; reset it, else have the board looked at",
                FABRIC,
            )
        });
    }
    let best = peers().filter_map(slowest).max().unwrap_or(0);
    let (active, rate) = (gpu.active(), slowest(gpu).unwrap_or(best));
    let check = gpu.check("NVLinks", format!("{active} of {} are up", gpu.links.len()));
    // Cards may have a bridge or none; a module has all of its links.
    let is_module = most == gpu.links.len();
    Some(if active < most && (active > 0 || is_module) {
        check.suspect(
            format!("copies to other GPUs: {active} links carry what {most} carry for its peers"),
            "nvidia-smi nvlink -s -i N, Xid 74 in the kernel's log; reset it, else have the board looked at",
            FABRIC,
        )
    } else if rate < best {
        let check = SettingCheck { value: format!("{}, one at {rate} MB/s", check.value), ..check };
        check.suspect(
            format!("copies to other GPUs: links of peers have {best} MB/s"),
            "reset the GPU",
            FABRIC,
        )
    } else {
        check
    })
}

/// Whether GPUs on switches have joined their fabric, without which no program starts on them.
fn fabric(topology: &Topology, gpus: &[StatedGpu<'_>]) -> Option<SettingCheck> {
    let known: Vec<&str> =
        gpus.iter().filter_map(|gpu| Some(gpu.facts.get("fabric")?.as_str())).collect();
    let late = known.iter().filter(|state| **state != "completed").count();
    let has_switches = topology.pci.iter().any(|d| d.vendor == 0x10de && d.class >> 8 == 0x0680);
    let first = known.iter().find(|state| **state != "completed");
    let value = first
        .map_or("completed".to_owned(), |state| format!("{state} for {late} of {}", known.len()));
    let check = SettingCheck::new("GPUs", "NVLink fabric", value);
    (!known.is_empty()).then(|| {
        if late > 0 && (late < known.len() || has_switches) {
            check.fail(
                "everything on these GPUs: programs end with error 802, system not yet initialized",
                "start nvidia-fabricmanager in the version of the driver, and see its log",
                FABRIC,
            )
        } else {
            check
        }
    })
}

/// Pairs of GPUs between which the driver allows direct access.
fn peer_access(gpus: &[StatedGpu<'_>]) -> Option<SettingCheck> {
    // `NVML_P2P_STATUS_DISABLED_BY_REGKEY`.
    const SWITCHED_OFF: u32 = 4;
    let pairs = || {
        gpus.iter().flat_map(|gpu| gpu.peers.iter().map(move |(peer, codes)| (gpu, *peer, *codes)))
    };
    let linked = |pci: &str| {
        gpus.iter().any(|gpu| gpu.pci == pci && gpu.active() == gpu.links.len() && gpu.active() > 0)
    };
    let all = pairs().count();
    let denied = pairs().filter(|(.., codes)| *codes != [0, 0]).count();
    let check = SettingCheck::new(
        "GPUs",
        "direct access between GPUs",
        format!("{} of {all} pairs, reads and writes", all - denied),
    );
    let wrong = pairs().find(|(gpu, peer, codes)| {
        let on_links = linked(gpu.pci) && linked(peer) && !gpu.is("mig");
        codes.contains(&SWITCHED_OFF) || (on_links && *codes != [0, 0])
    });
    (all > 0).then(|| match wrong {
        Some((gpu, peer, [read, write])) => {
            let peer = gpus.iter().find(|other| other.pci == peer).map_or(peer, |other| &other.name);
            check.suspect(
                format!("copies between GPUs, such as {} and {peer}: they go through host memory", gpu.name),
                format!(
                    "nvidia-smi topo -p2p r says why (codes {read} and {write}); NVreg_RegistryDwords of \
                     the driver may switch it off"
                ),
                NVML,
            )
        }
        None => check,
    })
}

/// xGMI links of GPUs that are all joined directly, as those of an MI300X board: one that reaches all others shows
/// that the board is wired so.
fn mesh(topology: &Topology) -> Option<SettingCheck> {
    let ends = |link: &Link| match (link.a, link.b) {
        (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) if link.kind == LinkKind::Xgmi => {
            Some((a.min(b), a.max(b)))
        }
        _ => None,
    };
    let joined: BTreeSet<(u32, u32)> = topology.links.iter().filter_map(ends).collect();
    let gpus: Vec<u32> = topology.gpus.iter().map(|gpu| gpu.index).collect();
    let pairs = |first: u32| gpus.iter().filter(move |b| **b > first).map(move |b| (first, *b));
    let all = gpus.iter().flat_map(|a| pairs(*a));
    let lost: Vec<(u32, u32)> = all.clone().filter(|pair| !joined.contains(pair)).collect();
    // A GPU without any link is lost as a whole: the others are judged without it.
    let is_joined = |gpu: &u32| joined.iter().any(|(a, b)| a == gpu || b == gpu);
    let alone: Vec<u32> = gpus.iter().copied().filter(|gpu| !is_joined(gpu)).collect();
    let of_others = || lost.iter().filter(|(a, b)| !alone.contains(a) && !alone.contains(b));
    let reaches_all = |gpu: &u32| is_joined(gpu) && of_others().all(|(a, b)| a != gpu && b != gpu);
    if gpus.len() < 3 || !gpus.iter().any(reaches_all) {
        return None;
    }
    let value = format!("{} of {} pairs of GPUs", joined.len(), all.count());
    let check = SettingCheck::new("GPUs", "xGMI links", value);
    Some(match lost.first() {
        None => check,
        Some(_) if !alone.is_empty() => check.fail(
            format!("copies of gpu{}: it has no xGMI link, its peers have", alone[0]),
            "amd-smi topology; reset the GPUs, else have the board looked at",
            XGMI,
        ),
        Some((a, b)) => check.suspect(
            match lost.len() {
                1 => format!("copies between gpu{a} and gpu{b}: they go over PCIe"),
                pairs => {
                    format!("copies of {pairs} pairs, such as gpu{a} and gpu{b}: they go over PCIe")
                }
            },
            "amd-smi topology; reset the GPUs, else have the board looked at",
            XGMI,
        ),
    })
}
