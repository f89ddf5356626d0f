//! The PCIe fabric from the root ports down to GPUs, adapters and drives.

use std::collections::BTreeMap;

use pathline_schema::{PciDevice, Topology};
use pathline_topo::HostSnapshot;

use super::SettingCheck;
use super::config_space::ConfigSpace;

const DEVICES: &str = "sys/bus/pci/devices";
/// Maximum nesting of bridges.
const MAX_DEPTH: usize = 48;
/// Correctable errors an hour since the start from which a link is named. Assumed: no document states a rate; each
/// error sends a packet again.
const ERRORS_AN_HOUR: f64 = 60.0;
/// Redirect of requests and of completions, and forwarding upstream.
const REDIRECTS: u16 = 0b1_1100;

const NCCL: &str = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html";
const KERNEL: &str = "https://docs.kernel.org/admin-guide/kernel-parameters.html";
const AER: &str = "https://docs.kernel.org/PCI/pcieaer-howto.html";

/// A GPU, an adapter or a drive, with the functions from it up to the root.
struct Path<'t> {
    name: String,
    is_gpu: bool,
    chain: Vec<&'t PciDevice>,
}

impl Path<'_> {
    /// Vendor and device: what is alike has the same.
    fn kind(&self) -> Option<(u32, u32)> {
        self.chain.first().map(|device| (device.vendor, device.device))
    }
}

/// Whether a device is a GPU without a display: a 3D controller, a display controller that is no VGA one, an
/// accelerator. Desktops have others, which reach neither each other nor adapters.
pub(super) fn is_of_server(topology: &Topology, address: &str) -> bool {
    const CLASSES: [u32; 3] = [0x0302, 0x0380, 0x1200];
    let device = topology.pci.iter().find(|device| device.address == *address);
    device.is_some_and(|device| CLASSES.contains(&(device.class >> 8)))
}

/// Whether a hypervisor decides on the fabric that this system sees; a container sees that of its host.
pub(super) fn is_guest(topology: &Topology) -> bool {
    topology.host.virtualization.as_deref().is_some_and(|kind| kind.contains("virtual"))
}

/// Whether what the system shows is all that the machine has: neither a guest nor a container.
pub(super) fn is_whole(topology: &Topology) -> bool {
    topology.host.virtualization.is_none()
}

pub(super) fn check(snapshot: &HostSnapshot, topology: &Topology) -> Vec<SettingCheck> {
    let gpus = topology.gpus.iter().map(|gpu| (format!("gpu{}", gpu.index), &gpu.pci, true));
    let nics = topology.nics.iter().map(|nic| (nic.name.clone(), &nic.pci, false));
    let drives = topology.blocks.iter().map(|block| (block.name.clone(), &block.pci, false));
    let paths: Vec<Path<'_>> = gpus
        .chain(nics)
        .chain(drives)
        .map(|(name, pci, is_gpu)| Path { name, is_gpu, chain: chain(topology, pci) })
        .filter(|path| !path.chain.is_empty())
        .collect();
    let mut spaces = BTreeMap::new();
    for device in paths.iter().flat_map(|path| &path.chain) {
        let hex = snapshot.line(&format!("{DEVICES}/{}/config.hex", device.address));
        if let Some(space) = hex.and_then(ConfigSpace::parse) {
            spaces.insert(device.address.to_string(), space);
        }
    }
    let space = |device: &PciDevice| spaces.get(device.address.as_ref() as &str);
    let mut all: Vec<SettingCheck> = Vec::new();
    for (path, check) in paths.iter().filter_map(|path| Some((path, links(path, &paths)?))) {
        // A link above several parts is one finding.
        let place = |what: &str| what.split_once(" at ").map(|(_, at)| at.to_owned());
        let at = place(&check.what);
        match all.iter_mut().find(|known| at.is_some() && place(&known.what) == at) {
            Some(known) => known.what = known.what.replace(" at ", &format!(", {} at ", path.name)),
            None => all.push(check),
        }
    }
    all.extend(narrow_slots(snapshot, topology));
    all.extend(paths.iter().flat_map(|path| packets(path, &space)));
    let is_hidden =
        |device: &&PciDevice| space(device).is_some_and(|space| !space.has_capabilities());
    if paths.iter().filter_map(|path| path.chain.first().copied()).any(|device| is_hidden(&device))
    {
        let check =
            SettingCheck::new("PCIe", "MaxPayload and MaxReadReq", "only root can read them");
        all.push(check.unread("run `pathline doctor` as root"));
    }
    // A hypervisor sets these for its guests, and shows them another fabric.
    let servers = topology.gpus.iter().filter(|gpu| is_of_server(topology, &gpu.pci)).count();
    let adapters = usize::from(!snapshot.children("sys/class/infiniband").is_empty());
    if !is_guest(topology) && servers > 0 && servers + adapters > 1 {
        all.extend(idle_links(snapshot));
        all.extend(access_control(&paths, &space));
        all.extend(iommu(snapshot, &paths));
    }
    all.extend(paths.iter().flat_map(|path| errors(snapshot, path)));
    all
}

fn chain<'t>(topology: &'t Topology, address: &str) -> Vec<&'t PciDevice> {
    let find = |address: &str| topology.pci.iter().find(|device| device.address == *address);
    let mut chain: Vec<&PciDevice> = Vec::new();
    let mut at = find(address);
    while let Some(device) = at.filter(|_| chain.len() < MAX_DEPTH) {
        chain.push(device);
        at = device.parent.as_deref().and_then(find);
    }
    chain
}

/// Links on the way that came up with fewer lanes, or slower, than both of their ends can, or that peers have. A GPU
/// lowers the rate of its link when idle, so that only its lanes are judged.
fn links(path: &Path<'_>, all: &[Path<'_>]) -> Option<SettingCheck> {
    let mut worst: Option<(f64, SettingCheck)> = None;
    // Below each port is the upper end of the next switch, or the card; from there to the switch's port below is
    // the inside of the switch.
    for (nth, pair) in path.chain.chunks_exact(2).enumerate() {
        let [device, port] = pair else { continue };
        let Some((link, above)) = device.link.zip(port.link) else { continue };
        let lanes = f64::from(link.max_width.min(above.max_width));
        let rate = link.max_speed_gts.min(above.max_speed_gts);
        let lost_lanes = f64::from(link.width) < lanes;
        let slow = (!path.is_gpu || nth > 0) && link.speed_gts < rate;
        if !lost_lanes && !slow {
            continue;
        }
        let share = f64::from(link.width) / lanes * if slow { link.speed_gts / rate } else { 1.0 };
        let what = format!("link of {} at {}", path.name, device.address);
        let value =
            format!("{} GT/s x{}, both ends can {rate} GT/s x{lanes}", link.speed_gts, link.width);
        let slows =
            format!("everything to and from {}: {:.0} % of the link", path.name, 100.0 * share);
        let remedy = "reseat the card or its riser, then the slot's setting in the firmware (bifurcation, rate)";
        let check = SettingCheck::new("PCIe", what, value).suspect(slows, remedy, AER);
        if worst.as_ref().is_none_or(|(known, _)| share < *known) {
            worst = Some((share, check));
        }
    }
    worst.map(|(_, check)| check).or_else(|| {
        let link = path.chain.first()?.link?;
        let value = format!("{} GT/s x{}", link.speed_gts, link.width);
        let check = SettingCheck::new("PCIe", format!("link of {}", path.name), value);
        // A guest sees no port above: what of its lanes the slot has is not known.
        let is_narrow = path.chain.len() < 2 && link.width < link.max_width;
        let peers =
            all.iter().filter(|peer| path.is_gpu && peer.is_gpu && peer.kind() == path.kind());
        let widths = peers.filter_map(|peer| Some(peer.chain.first()?.link?.width));
        let most = widths.max().filter(|most| *most > link.width);
        Some(match (is_narrow, most) {
            (true, _) => {
                check.unread("look at the host: the other end of the link is not shown here")
            }
            (false, Some(most)) => check.suspect(
                format!("everything to and from {}: its peers have {most} lanes", path.name),
                "put it in a slot of that width, or set the slot in the firmware (bifurcation)",
                AER,
            ),
            (false, None) => check,
        })
    })
}

/// Adapters whose port is faster than the link of their slot.
fn narrow_slots(snapshot: &HostSnapshot, topology: &Topology) -> Vec<SettingCheck> {
    let narrow = |nic: &pathline_schema::Nic| {
        let (device, port) = match chain(topology, &nic.pci)[..] {
            [device, port, ..] => (device, port),
            _ => return None,
        };
        let (link, above) = device.link.zip(port.link)?;
        // What has fewer lanes or a lower rate than both ends can is no fault of the slot.
        let is_whole = link.width >= link.max_width.min(above.max_width)
            && link.speed_gts >= link.max_speed_gts.min(above.max_speed_gts);
        let state = snapshot.line(&format!("sys/class/infiniband/{}/ports/1/state", nic.name));
        let is_active = state.is_some_and(|state| state.contains("ACTIVE"));
        let gbits = nic.speed_mbits? as f64 / 1e3;
        let slot = link.peak().gbs() * 8.0;
        (is_whole && is_active && slot < gbits).then(|| {
            let value = format!("{} GT/s x{}, {slot:.0} Gb/s", link.speed_gts, link.width);
            SettingCheck::new("PCIe", format!("slot of {}", nic.name), value).suspect(
                format!("messages over {}: its port has {gbits:.0} Gb/s", nic.name),
                "put it in a slot with more lanes or of a newer generation",
                AER,
            )
        })
    };
    topology.nics.iter().filter_map(narrow).collect()
}

/// The kernel's policy for idle links, which wake up before each transfer.
fn idle_links(snapshot: &HostSnapshot) -> Option<SettingCheck> {
    let policies = snapshot.line("sys/module/pcie_aspm/parameters/policy")?;
    let (_, rest) = policies.split_once('[')?;
    let policy = rest.split(']').next()?;
    let check = SettingCheck::new("PCIe", "ASPM", policy);
    Some(if policy.starts_with("powersave") || policy.starts_with("powersupersave") {
        check.suspect(
            "short copies and messages: links sleep when idle and take microseconds to wake up",
            "start the kernel with pcie_aspm.policy=performance",
            KERNEL,
        )
    } else {
        check
    })
}

/// Sizes of packets and of requests for reads.
fn packets<'s>(
    path: &Path<'_>,
    space: &impl Fn(&PciDevice) -> Option<&'s ConfigSpace>,
) -> Vec<SettingCheck> {
    let mut all = Vec::new();
    let payloads: Option<Vec<(u32, u32)>> =
        path.chain.iter().map(|device| space(device)?.payload()).collect();
    if let Some(payloads) = payloads {
        let set = payloads.iter().map(|(set, _)| *set).min().unwrap_or(0);
        let most = payloads.iter().map(|(_, most)| *most).min().unwrap_or(0);
        let check =
            SettingCheck::new("PCIe", format!("MaxPayload of {}", path.name), format!("{set} B"));
        all.push(match set {
            // 24 B of header, sequence number, checksum and framing go with each packet.
            128 if most > 128 => check.suspect(
                format!(
                    "writes over the link: {:.0} % of it is payload, with {most} B {:.0} %",
                    100.0 * 128.0 / 152.0,
                    100.0 * f64::from(most) / f64::from(most + 24)
                ),
                "start the kernel with pci=pcie_bus_perf, or set it in the firmware",
                KERNEL,
            ),
            _ => check,
        });
    }
    let request = path.chain.first().and_then(|device| space(device)?.read_request());
    if let Some(bytes) = request {
        let check =
            SettingCheck::new("PCIe", format!("MaxReadReq of {}", path.name), format!("{bytes} B"));
        all.push(match bytes {
            128 | 256 => check.suspect(
                format!("reads of host memory by {}: the default is 512 B", path.name),
                "start the kernel with pci=pcie_bus_perf, or setpci -s ADDRESS CAP_EXP+8.w",
                KERNEL,
            ),
            _ => check,
        });
    }
    all
}

/// Switch ports above GPUs that send what goes from device to device to the root first.
fn access_control<'s>(
    paths: &[Path<'_>],
    space: &impl Fn(&PciDevice) -> Option<&'s ConfigSpace>,
) -> Option<SettingCheck> {
    let of_gpus = || paths.iter().filter(|path| path.is_gpu).flat_map(|path| &path.chain[1..]);
    // Adapters and drives below a switch of GPUs.
    let shares = |path: &&Path<'_>| {
        path.chain[1..].iter().any(|bridge| of_gpus().any(|of| of.address == bridge.address))
    };
    let bridges = || {
        paths.iter().filter(|path| path.is_gpu || shares(path)).flat_map(|path| &path.chain[1..])
    };
    let what = "ACS of switch ports above GPUs";
    let unread = bridges().filter(|b| space(b).is_none_or(|space| !space.is_whole())).count();
    let mut redirect: Vec<String> = bridges()
        .filter(|b| space(b).is_some_and(|s| s.is_switch_port()))
        .filter(|b| {
            space(b).and_then(|s| s.access_control()).is_some_and(|bits| bits & REDIRECTS != 0)
        })
        .map(|bridge| bridge.address.to_string())
        .collect();
    redirect.sort();
    redirect.dedup();
    if let Some(first) = redirect.first() {
        let value = format!("redirects at {} of them, first {first}", redirect.len());
        return Some(SettingCheck::new("PCIe", what, value).suspect(
            "copies between devices below one switch: they go through the root complex",
            format!("as root: setpci -s {first} ECAP_ACS+6.w=0000, on each; or switch ACS off in the firmware"),
            NCCL,
        ));
    }
    let check = |value: &str| SettingCheck::new("PCIe", what, value);
    match (unread, bridges().count()) {
        (_, 0) => None,
        (0, _) => Some(check("redirects nothing")),
        _ => Some(check("only root can read it").unread("run `pathline doctor` as root")),
    }
}

/// Whether the IOMMU translates what GPUs send.
fn iommu(snapshot: &HostSnapshot, paths: &[Path<'_>]) -> Option<SettingCheck> {
    let group = |device: &PciDevice| {
        let group = snapshot.target(&format!("{DEVICES}/{}/iommu_group", device.address))?;
        let number = group.rsplit('/').next()?;
        snapshot.line(&format!("sys/kernel/iommu_groups/{number}/type"))
    };
    let gpus: Vec<&Path<'_>> = paths.iter().filter(|path| path.is_gpu).collect();
    let translated = |path: &&&Path<'_>| {
        path.chain
            .first()
            .and_then(|device| group(device))
            .is_some_and(|kind| kind.starts_with("DMA"))
    };
    let first = gpus.first()?;
    let what = "IOMMU of GPUs";
    let count = gpus.iter().filter(translated).count();
    if count > 0 {
        let value = format!("translates addresses of {count} of {} GPUs", gpus.len());
        return Some(SettingCheck::new("PCIe", what, value).suspect(
            "copies from GPU to GPU and to adapters: they may go through the root complex",
            "start the kernel with iommu=pt, and switch ACS off",
            NCCL,
        ));
    }
    let known = first.chain.first().and_then(|device| group(device));
    Some(SettingCheck::new("PCIe", what, known.map_or("off", |_| "passes addresses through")))
}

/// Errors that a device counted since the start.
fn errors(snapshot: &HostSnapshot, path: &Path<'_>) -> Option<SettingCheck> {
    let hours = snapshot.line("proc/uptime")?.split(' ').next()?.parse::<f64>().ok()? / 3600.0;
    let total = |device: &PciDevice, file: &str| {
        let text = snapshot.get(&format!("{DEVICES}/{}/{file}", device.address))?;
        let line = text.lines().find_map(|line| line.strip_prefix("TOTAL_ERR_"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let sum = |file: &str| -> Option<u64> {
        let counts: Vec<u64> = path.chain.iter().filter_map(|device| total(device, file)).collect();
        (!counts.is_empty()).then(|| counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n)))
    };
    // What a device does not know is asked of it at each start, and harms nothing.
    let unsupported = |device: &&PciDevice| {
        let text = snapshot.get(&format!("{DEVICES}/{}/aer_dev_nonfatal", device.address))?;
        text.lines().find_map(|line| line.strip_prefix("UnsupReq "))?.trim().parse::<u64>().ok()
    };
    let asked: u64 = path.chain.iter().filter_map(unsupported).sum();
    let lost =
        ["aer_dev_nonfatal", "aer_dev_fatal"].iter().filter_map(|file| sum(file)).sum::<u64>();
    let lost = lost.saturating_sub(asked);
    let corrected = sum("aer_dev_correctable")?;
    let value = format!("{corrected} corrected, {lost} not, in {hours:.0} h");
    let check = SettingCheck::new("PCIe", format!("errors on the way to {}", path.name), value);
    let is_often = corrected as f64 > ERRORS_AN_HOUR * hours.max(1.0);
    Some(if lost > 0 || is_often {
        check.suspect(
            match lost {
                0 => format!(
                    "everything to and from {}: each corrected error sends a packet again",
                    path.name
                ),
                n => format!("everything to and from {}: {n} transfers were lost", path.name),
            },
            "reseat the card or its riser; `dmesg | grep AER` names the link",
            AER,
        )
    } else {
        check
    })
}
