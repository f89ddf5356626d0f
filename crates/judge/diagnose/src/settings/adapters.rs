//! Network adapters: ports that are down, slower than their peers, or that count errors.

use std::collections::BTreeMap;

use pathline_topo::HostSnapshot;

use super::SettingCheck;

const NET: &str = "sys/class/net";
const INFINIBAND: &str = "sys/class/infiniband";
const COUNTERS: &str = "https://docs.kernel.org/infiniband/sysfs.html";
/// Counters of a port that stay at 0 on a sound link.
const ERRORS: [&str; 4] =
    ["link_downed", "link_error_recovery", "port_rcv_errors", "local_link_integrity_errors"];

pub(super) fn check(snapshot: &HostSnapshot) -> Vec<SettingCheck> {
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
    all.extend(packet_sizes(snapshot));
    all
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
                "see cable, switch port and `ibstat`; or leave it out (NCCL_IB_HCA, UCX_NET_DEVICES)",
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
