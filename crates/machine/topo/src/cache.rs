//! Groups of CPUs that share a cache.

use std::collections::BTreeSet;

use pathline_schema::{Bytes, CacheGroup, HostInfo, TopologyWarning};

use crate::parse::{cpu_list, field, size};
use crate::snapshot::HostSnapshot;
use crate::warn::warning;

const CPUS: &str = "sys/devices/system/cpu";
/// More than a host with 8192 CPUs can have.
const MAX_GROUPS: usize = 32_768;

/// The caches in sysfs, each group of CPUs once, by level and first CPU. If sysfs has none, the
/// size in `/proc/cpuinfo` gives the last level.
pub(crate) fn read(
    snapshot: &HostSnapshot,
    host: &HostInfo,
    warnings: &mut Vec<TopologyWarning>,
) -> Vec<CacheGroup> {
    let mut seen = BTreeSet::new();
    let mut groups = Vec::new();
    for cpu in snapshot.numbered(CPUS, "cpu") {
        for index in snapshot.numbered(&format!("{CPUS}/cpu{cpu}/cache"), "index") {
            let dir = format!("{CPUS}/cpu{cpu}/cache/index{index}");
            let line = |file: &str| snapshot.line(&format!("{dir}/{file}"));
            let (Some(level), Some(kind)) = (line("level"), line("type")) else { continue };
            let shared = line("shared_cpu_list").unwrap_or_default();
            if groups.len() >= MAX_GROUPS || !seen.insert((level, kind, shared)) {
                continue;
            }
            let (Some(level), Some(cpus)) = (level.parse().ok(), cpu_list(shared)) else {
                continue;
            };
            groups.push(CacheGroup {
                level,
                kind: kind.to_owned(),
                size: Bytes(line("size").and_then(size).unwrap_or(0)),
                line: line("coherency_line_size").and_then(|n| n.parse().ok()).unwrap_or(0),
                cpus,
            });
        }
    }
    groups.sort_by_key(|g| (g.level, g.cpus.as_slice().first().copied(), g.kind.clone()));
    if groups.is_empty() {
        groups.extend(stated_by_cpuinfo(snapshot, host, warnings));
    }
    groups
}

fn stated_by_cpuinfo(
    snapshot: &HostSnapshot,
    host: &HostInfo,
    warnings: &mut Vec<TopologyWarning>,
) -> Option<CacheGroup> {
    let cpuinfo = snapshot.get("proc/cpuinfo")?;
    let size = Bytes(field(cpuinfo, "cache size").and_then(size)?);
    let text = format!(
        "the system does not show which CPUs share which cache; /proc/cpuinfo reports {} of \
         last-level cache, of which a virtual machine may have only a share",
        size.rounded()
    );
    warnings.push(warning("cache-unknown", "host", text));
    let line = field(cpuinfo, "clflush size").and_then(|n| n.parse().ok()).unwrap_or(0);
    let (level, kind) = (3, "Unified".to_owned());
    Some(CacheGroup { level, kind, size, line, cpus: host.cpus.clone() })
}
