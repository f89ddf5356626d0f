//! Network adapters: ports that are down, slower than their peers, or that count errors.

use std::collections::BTreeMap;

use pathline_schema::{Nic, PciDevice, Topology};
use pathline_topo::HostSnapshot;

use super::SettingCheck;
use super::pcie::{is_guest, is_whole};

const NET: &str = "sys/class/net";
const INFINIBAND: &str = "sys/class/infiniband";
const COUNTERS: &str = "https://docs.kernel.org/infiniband/sysfs.html";
const OPERSTATE: &str = "https://docs.kernel.org/networking/operstates.html";
const ROCE: &str = "https://www.ibm.com/docs/en/linux-on-systems?topic=functions-set-mtu";
const FIRMWARE: &str = "https://docs.nvidia.com/networking/display/mftv4310/mlxfwmanager+%E2%80%93+Firmware+Update+and+Query+Tool";
/// PCI vendor of Slingshot adapters (Cray).
pub(super) const SLINGSHOT: u32 = 0x17db;
/// Rate from which packets of 1500 bytes cost an adapter for RDMA, Gb/s. Assumed.
const FAST_ETHERNET: f64 = 100.0;
/// Least packet of Ethernet that holds 2048 bytes of RDMA with its headers.
const ROCE_MTU: u32 = 2200;
/// Counters of a port that stay at 0 on a sound link.
const ERRORS: [&str; 4] =
    ["link_downed", "link_error_recovery", "port_rcv_errors", "local_link_integrity_errors"];

pub(super) fn check(snapshot: &HostSnapshot, topology: &Topology) -> Vec<SettingCheck> {
    let mut all = ports(snapshot);
    if all.len() > 1
        && all
            .iter()
            .all(|check| !check.value.contains("ACTIVE") || check.what.starts_with("errors"))
    {
        let check = SettingCheck::new("adapters", "ports", "none is active");
        all.push(
            check.unread("see `ibstat`, cables and the subnet manager, if the node is to use them"),
        );
    }
    all.extend(slingshot(snapshot, topology));
    all.extend(driverless(topology));
    all.extend(packet_sizes(snapshot));
    if !is_guest(topology) {
        all.extend(short_packets(snapshot));
    }
    all.extend(firmware(topology));
    all
}

/// Adapters without an interface, while others of their kind have one: their driver did not start them.
fn driverless(topology: &Topology) -> Option<SettingCheck> {
    let has_nic = |device: &PciDevice| topology.nics.iter().any(|nic| nic.pci == device.address);
    let is_network = |device: &&PciDevice| device.class >> 16 == 0x02;
    let all = || topology.pci.iter().filter(is_network);
    let kind = |device: &PciDevice| (device.vendor, device.device);
    let lost = all().find(|device| {
        !has_nic(device) && all().any(|peer| kind(peer) == kind(device) && has_nic(peer))
    })?;
    let check =
        SettingCheck::new("adapters", format!("driver of {}", lost.address), "no interface");
    is_whole(topology).then(|| {
        check.suspect(
            "jobs that expect it: adapters of its kind have one here",
            "dmesg | grep its address; restart the node, then reseat the adapter",
            OPERSTATE,
        )
    })
}

/// Interfaces of Slingshot adapters, which have one port each and are all used.
fn slingshot(snapshot: &HostSnapshot, topology: &Topology) -> Vec<SettingCheck> {
    let is_one = |nic: &&Nic| {
        topology.pci.iter().any(|device| device.address == nic.pci && device.vendor == SLINGSHOT)
    };
    let nics: Vec<&Nic> = topology.nics.iter().filter(is_one).collect();
    let most = nics.iter().filter_map(|nic| nic.speed_mbits).max().unwrap_or(0);
    let judge = |nic: &&Nic| {
        let state = snapshot.line(&format!("{NET}/{}/operstate", nic.name))?;
        let (is_down, own) = (state == "down", nic.speed_mbits.unwrap_or(0));
        let value =
            if is_down { state.to_owned() } else { format!("{state}, {} Gb/s", own / 1000) };
        let check = SettingCheck::new("adapters", format!("port of {}", nic.name), value);
        let suspect = |why: String| {
            check.clone().suspect(
                why,
                "see cable, switch port and `ip link show`, cxi_stat",
                OPERSTATE,
            )
        };
        Some(if is_down {
            suspect("jobs that expect it: each adapter of the node carries its part".to_owned())
        } else if own > 0 && own < most {
            suspect(format!(
                "messages over it: {} of {} Gb/s of its peers",
                own / 1000,
                most / 1000
            ))
        } else {
            check
        })
    };
    nics.iter().filter_map(judge).collect()
}

/// Adapters for RDMA over Ethernet whose packets are those of plain Ethernet: of 1500 bytes 1024 are left for data.
fn short_packets(snapshot: &HostSnapshot) -> Vec<SettingCheck> {
    let device = |class: &str, name: &str| {
        let target = snapshot.target(&format!("{class}/{name}"))?;
        target.rsplit('/').find(|part| part.matches(':').count() == 2).map(str::to_owned)
    };
    let short = |name: &&str| {
        let line = |file: &str| snapshot.line(&format!("{INFINIBAND}/{name}/ports/1/{file}"));
        let rate: f64 = line("rate")?.split(' ').next()?.parse().ok()?;
        let is_used = line("state")?.contains("ACTIVE") && rate >= FAST_ETHERNET;
        let own = device(INFINIBAND, name)?;
        let interfaces = snapshot.children(NET);
        let net = interfaces.iter().find(|net| device(NET, net).as_ref() == Some(&own))?;
        let mtu: u32 = snapshot.line(&format!("{NET}/{net}/mtu"))?.parse().ok()?;
        (is_used && line("link_layer") == Some("Ethernet") && mtu < ROCE_MTU)
            .then(|| format!("{net} {mtu}"))
    };
    let short: Vec<String> = snapshot.children(INFINIBAND).iter().filter_map(short).collect();
    let check = SettingCheck::new("adapters", "MTU of RDMA over Ethernet", short.join(", "));
    let suspect = check.suspect(
        "messages over RDMA: packets carry 1024 B and not 4096",
        "ip link set NAME mtu 9000, and the same on the switches",
        ROCE,
    );
    if short.is_empty() { Vec::new() } else { vec![suspect] }
}

/// Adapters of one board with different firmware.
fn firmware(topology: &Topology) -> Vec<SettingCheck> {
    let mut by_board: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for nic in topology.nics.iter().filter(|n| !n.board.is_empty() && !n.firmware.is_empty()) {
        let of_board = by_board.entry(&nic.board).or_default();
        of_board.entry(&nic.firmware).or_default().push(&nic.name);
    }
    let mixed = by_board.into_iter().filter(|(_, versions)| versions.len() > 1);
    let judge = |(board, versions): (&str, BTreeMap<&str, Vec<&str>>)| {
        let shown =
            versions.iter().map(|(version, names)| format!("{version} on {}", names.join(", ")));
        let value = shown.collect::<Vec<_>>().join("; ");
        SettingCheck::new("adapters", format!("firmware of {board}"), value).suspect(
            "comparisons of adapters: what one version does the other may not",
            "install one version on all (mlxfwmanager -u)",
            FIRMWARE,
        )
    };
    mixed.map(judge).collect()
}

/// Ports of RDMA adapters. Those of one kind of adapter are peers.
fn ports(snapshot: &HostSnapshot) -> Vec<SettingCheck> {
    let names = snapshot.children(INFINIBAND);
    let line = |name: &str, file: &str| snapshot.line(&format!("{INFINIBAND}/{name}/{file}"));
    let kind = |name: &str| -> String {
        let number = |c: char| c.is_ascii_digit();
        let model = line(name, "hca_type").unwrap_or(name.trim_end_matches(number));
        let board = line(name, "board_id").unwrap_or_default();
        // One for storage by Ethernet is no peer of those for messages.
        format!("{model} {board} {}", line(name, "ports/1/link_layer").unwrap_or_default())
    };
    let rate = |name: &str| -> Option<f64> {
        line(name, "ports/1/rate")?.split_whitespace().next()?.parse().ok()
    };
    let is_active =
        |name: &str| line(name, "ports/1/state").is_some_and(|state| state.contains("ACTIVE"));
    let mut best: BTreeMap<String, f64> = BTreeMap::new();
    for name in names.iter().filter(|name| is_active(name)) {
        let known = best.entry(kind(name)).or_default();
        *known = known.max(rate(name).unwrap_or(0.0));
    }
    let uptime = snapshot.line("proc/uptime").and_then(|line| line.split(' ').next()?.parse().ok());
    let days: f64 = uptime.map_or(0.0, |seconds: f64| seconds / 86_400.0);
    // A link goes down when its switch starts, and a packet is lost now and then: one a day is no fault.
    let usual = 2.0 + days;
    let mut all = Vec::new();
    for name in names {
        let what = |what: &str| format!("{what} of {name}");
        let Some(state) = line(name, "ports/1/state") else { continue };
        let state = state.rsplit(": ").next().unwrap_or(state);
        let peers = best.get(&kind(name)).copied();
        let value =
            line(name, "ports/1/rate").map_or(state.to_owned(), |rate| format!("{state}, {rate}"));
        let check = SettingCheck::new("adapters", what("port"), value);
        let slower = peers.zip(rate(name)).filter(|(best, own)| own < best);
        all.push(if !is_active(name) && peers.is_some() {
            check.suspect(
                "jobs that expect it: adapters of its kind are active here",
                match state {
                    "INIT" => "the link is up: start the subnet manager (opensm, UFM), see its log",
                    _ => "see cable, switch port and `ibstat`; or leave it out (NCCL_IB_HCA, UCX_NET_DEVICES)",
                },
                COUNTERS,
            )
        } else if let Some((best, own)) = slower.filter(|_| is_active(name)) {
            check.suspect(
                format!("messages over it: {own:.0} of {best:.0} Gb/s of its peers"),
                "replace the cable, or set the rate of the switch port",
                COUNTERS,
            )
        } else {
            check
        });
        let counts: Vec<(&str, u64)> = ERRORS
            .into_iter()
            .filter_map(|file| {
                Some((file, line(name, &format!("ports/1/counters/{file}"))?.parse().ok()?))
            })
            .collect();
        let bad: Vec<String> = counts
            .iter()
            .filter(|(_, count)| *count as f64 > usual)
            .map(|(file, count)| format!("{file} {count}"))
            .collect();
        let check = |value: String| SettingCheck::new("adapters", what("errors"), value);
        if !bad.is_empty() {
            all.push(check(bad.join(", ")).suspect(
                "messages over it: what is lost is sent again",
                "clean or replace the cable; clear the counters (perfquery -R) and look again",
                COUNTERS,
            ));
        } else if !counts.is_empty() {
            all.push(check("none".to_owned()));
        }
    }
    all
}

/// Packet sizes of the interfaces of adapters with one speed, which must agree.
fn packet_sizes(snapshot: &HostSnapshot) -> Vec<SettingCheck> {
    let mut by_speed: BTreeMap<u64, Vec<(&str, u64)>> = BTreeMap::new();
    for name in snapshot.children(NET) {
        let number = |file: &str| snapshot.line(&format!("{NET}/{name}/{file}"))?.parse().ok();
        let has_device =
            snapshot.target(&format!("{NET}/{name}")).is_some_and(|to| !to.contains("/virtual/"));
        if let (Some(speed), Some(mtu), true) = (number("speed"), number("mtu"), has_device) {
            by_speed.entry(speed).or_default().push((name, mtu));
        }
    }
    let mut all = Vec::new();
    for nics in by_speed.values() {
        let most = nics.iter().map(|(_, mtu)| *mtu).max().unwrap_or(0);
        for (name, mtu) in nics {
            let check = SettingCheck::new("adapters", format!("MTU of {name}"), mtu.to_string());
            all.push(if *mtu < most {
                check.suspect(
                    format!("messages over it: adapters of its speed have {most}"),
                    format!("ip link set {name} mtu {most}, and the same on the switch"),
                    "https://docs.kernel.org/networking/netdevices.html",
                )
            } else {
                check
            });
        }
    }
    all
}
