//! NUMA domains.

use pathline_schema::{Bytes, HostInfo, NumaDomain};

use crate::parse::{cpu_list, field_int};
use crate::snapshot::HostSnapshot;

const NODES: &str = "sys/devices/system/node";
/// Maximum number of domains; Linux supports at most 1024.
pub(crate) const MAX_DOMAINS: usize = 1024;

/// The domains in sysfs; a host without any has one domain.
pub(crate) fn read(snapshot: &HostSnapshot, host: &HostInfo) -> Vec<NumaDomain> {
    let mut domains: Vec<NumaDomain> = snapshot
        .numbered(NODES, "node")
        .into_iter()
        .take(MAX_DOMAINS)
        .map(|id| domain(snapshot, id))
        .collect();
    if domains.is_empty() {
        domains.push(NumaDomain {
            cpus: host.cpus.clone(),
            memory: host.memory,
            free: host.available,
            ..NumaDomain::default()
        });
    }
    domains
}

fn domain(snapshot: &HostSnapshot, id: u32) -> NumaDomain {
    let dir = format!("{NODES}/node{id}");
    let meminfo = snapshot.get(&format!("{dir}/meminfo")).unwrap_or_default();
    // Lines are `Node 0 MemTotal:  24684084 kB`.
    let prefix = format!("Node {id} ");
    let table: String = meminfo
        .lines()
        .flat_map(|line| [line.trim().strip_prefix(&prefix).unwrap_or(line), "\n"])
        .collect();
    let kib = |key: &str| field_int(&table, key).and_then(|k| k.checked_mul(1024)).unwrap_or(0);
    let distances = snapshot.line(&format!("{dir}/distance")).unwrap_or_default();
    NumaDomain {
        id,
        cpus: snapshot.line(&format!("{dir}/cpulist")).and_then(cpu_list).unwrap_or_default(),
        memory: Bytes(kib("MemTotal")),
        free: Bytes(kib("MemFree")),
        distances: distances
            .split_whitespace()
            .take(MAX_DOMAINS)
            .filter_map(|d| d.parse().ok())
            .collect(),
        peak: None,
    }
}
