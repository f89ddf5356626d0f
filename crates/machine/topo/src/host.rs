//! The host: processor, memory, limits, virtualization.

use std::collections::BTreeSet;

use pathline_schema::{Bytes, CpuSet, HostInfo, TopologyWarning, part_text};

use crate::collect::{ancestors, cgroup_files};
use crate::parse::{cpu_list, field, field_int, size};
use crate::snapshot::HostSnapshot;
use crate::warn::warning;

/// Processor features that decide which copy loops exist.
const FEATURES: &str = "sse2 sse4_1 ssse3 avx avx2 avx512f avx512bw avx512vl erms fsrm movdir64b movdiri \
    clflushopt clwb cldemote asimd sve sve2 mops constant_tsc nonstop_tsc tsc_known_freq";

/// Cgroup limits of a petabyte or more mean no limit: v1 writes 2^63 rounded down to a page.
const NO_LIMIT: u64 = 1 << 50;

/// Reads the host.
pub(crate) fn read(snapshot: &HostSnapshot, warnings: &mut Vec<TopologyWarning>) -> HostInfo {
    let line = |path: &str| snapshot.line(path).unwrap_or_default().to_owned();
    let cpuinfo = snapshot.get("proc/cpuinfo").unwrap_or_default();
    let meminfo = snapshot.get("proc/meminfo").unwrap_or_default();
    let kib = |key: &str| field_int(meminfo, key).and_then(|k| k.checked_mul(1024)).unwrap_or(0);
    let cpus = cpus(snapshot, cpuinfo);
    let status = snapshot.get("proc/self/status").unwrap_or_default();
    let allowed = field(status, "Cpus_allowed_list").and_then(cpu_list).unwrap_or_default();
    let (limit, room) = memory_limit(snapshot);
    let page = field(snapshot.get("proc/self/smaps").unwrap_or_default(), "KernelPageSize");
    let transparent = bracketed(&line("sys/kernel/mm/transparent_hugepage/enabled"));
    let host = HostInfo {
        hostname: line("proc/sys/kernel/hostname").parse().unwrap_or_default(),
        arch: line("proc/sys/kernel/arch"),
        cpu_model: model(cpuinfo),
        sockets: sockets(snapshot, cpuinfo),
        allowed_cpus: allowed.intersect(&cpus),
        cpus,
        features: features(cpuinfo),
        kernel: line("proc/sys/kernel/osrelease"),
        virtualization: virtualization(snapshot, cpuinfo),
        memory: Bytes(kib("MemTotal")),
        available: Bytes(room.map_or(kib("MemAvailable"), |room| room.min(kib("MemAvailable")))),
        cgroup_limit: limit.map(Bytes),
        page: Bytes(page.and_then(size).unwrap_or(0)),
        huge_pages: huge_pages(snapshot, &transparent),
        transparent_huge_pages: transparent,
        cpu_clock: cpu_clock(snapshot, warnings),
        product: dmi(snapshot, ["sys_vendor", "product_name", "product_serial"]),
        board: dmi(snapshot, ["board_vendor", "board_name", "board_serial"]),
        bios: dmi(snapshot, ["bios_version", "bios_date", ""]),
    };
    if let Some(quota) = cpu_quota(snapshot).filter(|&q| q < host.allowed_cpus.len() as f64) {
        let text = format!(
            "the cgroup grants {quota:.1} CPUs of time though {} may be used: threads beyond that \
             are stopped for parts of each period, and host figures become erratic",
            host.allowed_cpus.len()
        );
        warnings.push(warning("cpu-quota", "host", text));
    }
    host
}

/// Texts of the firmware, the last one a serial number.
fn dmi(snapshot: &HostSnapshot, files: [&str; 3]) -> String {
    let text = |file| snapshot.line(&format!("sys/class/dmi/id/{file}")).map(part_text);
    let [maker, name, serial] = files.map(|file| text(file).unwrap_or_default());
    let serial = if serial.is_empty() { serial } else { format!("serial {serial}") };
    let known = [maker, name, serial].into_iter().filter(|text| !text.is_empty());
    known.collect::<Vec<_>>().join(" ")
}

/// Governor, driver and boost of the first CPU; all CPUs of a node have the same settings. Drivers
/// that leave the clock rate to the processor call their usual governor `powersave`; with other
/// drivers it is the lowest rate.
fn cpu_clock(snapshot: &HostSnapshot, warnings: &mut Vec<TopologyWarning>) -> String {
    const CPUS: &str = "sys/devices/system/cpu";
    let line = |file: &str| snapshot.line(&format!("{CPUS}/{file}"));
    let governor = line("cpu0/cpufreq/scaling_governor");
    let driver = line("cpu0/cpufreq/scaling_driver").unwrap_or_default();
    let boost = match (line("intel_pstate/no_turbo"), line("cpufreq/boost")) {
        (Some("0"), _) | (None, Some("1")) => Some("boost on"),
        (Some("1"), _) | (None, Some("0")) => Some("boost off"),
        _ => None,
    };
    if governor == Some("powersave") && !driver.contains("pstate") {
        let text = format!(
            "the governor powersave of {driver} holds CPUs at their lowest rate: host figures are lower \
             bounds; set another with `cpupower frequency-set -g performance`"
        );
        warnings.push(warning("cpu-clock", "host", text));
    }
    let governor = governor.map(|governor| format!("governor {governor} ({driver})"));
    governor.into_iter().chain(boost.map(str::to_owned)).collect::<Vec<_>>().join(", ")
}

fn cpus(snapshot: &HostSnapshot, cpuinfo: &str) -> CpuSet {
    let online = snapshot.line("sys/devices/system/cpu/online").and_then(cpu_list);
    online.unwrap_or_else(|| {
        let numbers = cpuinfo.lines().filter(|line| line.starts_with("processor"));
        CpuSet::new(
            numbers
                .filter_map(|line| line.split_once(':')?.1.trim().parse().ok())
                .filter(|&cpu| cpu < crate::parse::MAX_CPUS),
        )
    })
}

/// The processor's model: x86 has its name, ARM the numbers of implementer and part.
fn model(cpuinfo: &str) -> String {
    if let Some(name) = field(cpuinfo, "model name") {
        return name.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    match (field(cpuinfo, "CPU implementer"), field(cpuinfo, "CPU part")) {
        (Some("0x41"), Some("0xd4f")) => "Arm Neoverse V2".into(),
        (Some(implementer), Some(part)) => format!("ARM implementer {implementer} part {part}"),
        _ => String::new(),
    }
}

fn sockets(snapshot: &HostSnapshot, cpuinfo: &str) -> u32 {
    const CPUS: &str = "sys/devices/system/cpu";
    let mut ids: BTreeSet<&str> = snapshot
        .numbered(CPUS, "cpu")
        .iter()
        .filter_map(|n| snapshot.line(&format!("{CPUS}/cpu{n}/topology/physical_package_id")))
        .collect();
    if ids.is_empty() {
        let lines = cpuinfo.lines().filter(|line| line.starts_with("physical id"));
        ids = lines.filter_map(|line| Some(line.split_once(':')?.1.trim())).collect();
    }
    ids.len() as u32
}

fn features(cpuinfo: &str) -> Vec<String> {
    let flags = field(cpuinfo, "flags").or_else(|| field(cpuinfo, "Features")).unwrap_or_default();
    let flags: BTreeSet<&str> = flags.split_whitespace().collect();
    FEATURES.split(' ').filter(|name| flags.contains(name)).map(str::to_owned).collect()
}

fn virtualization(snapshot: &HostSnapshot, cpuinfo: &str) -> Option<String> {
    let mut kinds = Vec::new();
    let flags = field(cpuinfo, "flags").unwrap_or_default();
    let hypervisor = flags.split_whitespace().any(|flag| flag == "hypervisor");
    if let Some(kind) = snapshot.line("sys/hypervisor/type") {
        kinds.push(format!("virtual machine ({kind})"));
    } else if hypervisor {
        let vendor = snapshot.line("sys/class/dmi/id/sys_vendor");
        kinds.push(match vendor {
            Some(vendor) => format!("virtual machine ({vendor})"),
            None => "virtual machine".into(),
        });
    }
    if snapshot.get(".dockerenv").is_some() || snapshot.get("run/.containerenv").is_some() {
        kinds.push("container".into());
    }
    (!kinds.is_empty()).then(|| kinds.join(", "))
}

/// The choice in brackets: `always [madvise] never`.
fn bracketed(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map(|(choice, _)| choice.to_owned()).unwrap_or_default()
}

fn huge_pages(snapshot: &HostSnapshot, transparent: &str) -> Vec<Bytes> {
    let mut sizes = BTreeSet::new();
    if matches!(transparent, "always" | "madvise") {
        let size = snapshot.line("sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
        sizes.extend(size.and_then(|s| s.parse::<u64>().ok()));
    }
    const POOLS: &str = "sys/kernel/mm/hugepages";
    for pool in snapshot.children(POOLS) {
        let had = ["nr_hugepages", "nr_overcommit_hugepages"]
            .iter()
            .any(|file| snapshot.line(&format!("{POOLS}/{pool}/{file}")).is_some_and(|n| n != "0"));
        if had {
            sizes.extend(pool.strip_prefix("hugepages-").and_then(size));
        }
    }
    sizes.into_iter().map(Bytes).collect()
}

/// The lowest memory limit of the cgroups around this process, and the least headroom.
fn memory_limit(snapshot: &HostSnapshot) -> (Option<u64>, Option<u64>) {
    let (mut limit, mut room) = (None::<u64>, None::<u64>);
    for group in groups(snapshot) {
        let number = |file: &str| snapshot.line(&format!("{group}/{file}"))?.parse::<u64>().ok();
        let max = number("memory.max").or_else(|| number("memory.limit_in_bytes"));
        let Some(max) = max.filter(|&max| max < NO_LIMIT) else { continue };
        let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"));
        // The kernel drops inactive file pages before the limit has an effect.
        let stat = snapshot.get(&format!("{group}/memory.stat")).unwrap_or_default();
        let cache = field_int(stat, "total_inactive_file")
            .or_else(|| field_int(stat, "inactive_file"))
            .unwrap_or(0);
        let left = max.saturating_sub(used.unwrap_or(0).saturating_sub(cache));
        limit = Some(limit.map_or(max, |l| l.min(max)));
        room = Some(room.map_or(left, |r| r.min(left)));
    }
    (limit, room)
}

/// Number of CPUs that the lowest quota grants.
fn cpu_quota(snapshot: &HostSnapshot) -> Option<f64> {
    let quota = |group: &String| {
        let line = |file: &str| snapshot.line(&format!("{group}/{file}"));
        let (quota, period) = match line("cpu.max") {
            Some(both) => both.split_once(' ')?,
            None => (line("cpu.cfs_quota_us")?, line("cpu.cfs_period_us")?),
        };
        let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
        (quota > 0.0 && period > 0.0).then_some(quota / period)
    };
    groups(snapshot).iter().filter_map(quota).reduce(f64::min)
}

fn groups(snapshot: &HostSnapshot) -> Vec<String> {
    let text = snapshot.get("proc/self/cgroup").unwrap_or_default();
    let mut groups = Vec::new();
    for line in text.lines().take(64) {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        for (mount, _) in cgroup_files(controllers) {
            groups.extend(ancestors(path).iter().map(|group| format!("{mount}{group}")));
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_of_all_groups_counts() {
        let mut s = HostSnapshot::default();
        s.insert("proc/self/cgroup", "0::/a/b\n");
        s.insert("proc/meminfo", "MemTotal: 64 kB\nMemAvailable: 10485760 kB\n");
        s.insert("sys/fs/cgroup/a/b/memory.max", "max\n");
        s.insert("sys/fs/cgroup/a/memory.max", "4294967296\n");
        s.insert("sys/fs/cgroup/a/memory.current", "1073741824\n");
        s.insert("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 536870912\n");
        s.insert("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
        s.insert("sys/devices/system/cpu/online", "0-3\n");
        s.insert("proc/self/status", "Cpus_allowed_list:\t0-1\n");
        let mut warnings = Vec::new();
        let host = read(&s, &mut warnings);
        assert_eq!(host.cgroup_limit, Some(Bytes::gib(4)));
        // 4 GiB - (1 GiB used - 0.5 GiB of droppable cache)
        assert_eq!(host.available, Bytes::mib(3584));
        assert_eq!(host.allowed_cpus.to_string(), "0-1");
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].text.contains("1.5 CPUs"));
    }

    #[test]
    fn version_one_without_a_limit_has_none() {
        let mut s = HostSnapshot::default();
        s.insert("proc/self/cgroup", "4:memory:/x\n3:cpuset:/\n");
        s.insert("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(read(&s, &mut Vec::new()).cgroup_limit, None);
        s.insert("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
        assert_eq!(read(&s, &mut Vec::new()).cgroup_limit, Some(Bytes::mib(1)));
    }

    #[test]
    fn the_governor_that_holds_the_lowest_rate_is_a_warning() {
        let of = |driver: &str, governor: &str, boost: (&str, &str)| {
            let mut s = HostSnapshot::default();
            let cpus = "sys/devices/system/cpu";
            s.insert(format!("{cpus}/cpu0/cpufreq/scaling_driver"), driver);
            s.insert(format!("{cpus}/cpu0/cpufreq/scaling_governor"), governor);
            s.insert(format!("{cpus}/{}", boost.0), boost.1);
            let mut warnings = Vec::new();
            (read(&s, &mut warnings).cpu_clock, warnings.len())
        };
        let turbo = "intel_pstate/no_turbo";
        let usual = ("governor powersave (intel_pstate), boost on".to_owned(), 0);
        assert_eq!(of("intel_pstate\n", "powersave\n", (turbo, "0\n")), usual);
        let lowest = ("governor powersave (acpi-cpufreq), boost off".to_owned(), 1);
        assert_eq!(of("acpi-cpufreq\n", "powersave\n", ("cpufreq/boost", "0\n")), lowest);
    }

    #[test]
    fn nothing_known_is_not_an_error() {
        let host = read(&HostSnapshot::default(), &mut Vec::new());
        assert_eq!(host, HostInfo::default());
    }
}
