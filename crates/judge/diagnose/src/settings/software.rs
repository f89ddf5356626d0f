//! Versions of drivers and libraries, and what is known to be wrong with them: a dated table with a source in each row.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use pathline_schema::Topology;
use pathline_topo::HostSnapshot;

use super::SettingCheck;
use super::version::SoftwareVersion;

const TABLE: &str = include_str!("../../data/known-defects.tsv");
/// Vendors of adapters on the PCI bus. Source: pci.ids.
const ADAPTERS: [(&str, u32); 3] = [("efa", 0x1d0f), ("cxi", 0x17db), ("ionic", 0x1dd8)];
const INFINIBAND: &str = "sys/class/infiniband";

/// A row of the table.
#[derive(Debug, Clone, Copy)]
struct KnownDefect {
    software: &'static str,
    from: &'static str,
    fixed: &'static str,
    /// What a node shows, all of it.
    place: &'static str,
    /// What a node does not show; empty if it is always so.
    when: &'static str,
    effect: &'static str,
    happens: &'static str,
    remedy: &'static str,
    source: &'static str,
}

struct DefectTable {
    date: &'static str,
    rows: Vec<KnownDefect>,
}

fn table() -> &'static DefectTable {
    static READ: OnceLock<DefectTable> = OnceLock::new();
    READ.get_or_init(|| {
        let mut table = DefectTable { date: "", rows: Vec::new() };
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["list", date] => table.date = date,
                [software, from, fixed, place, when, effect, happens, remedy, source, _] => {
                    table.rows.push(KnownDefect {
                        software,
                        from,
                        fixed,
                        place,
                        when,
                        effect,
                        happens,
                        remedy,
                        source,
                    });
                }
                _ => {}
            }
        }
        table
    })
}

/// What is installed: versions by name, empty where one could not be read, with the file that was looked at.
fn installed(snapshot: &HostSnapshot) -> BTreeMap<&str, (&str, &str)> {
    let mut found = BTreeMap::new();
    for (name, paths) in [
        ("Linux", &["proc/sys/kernel/osrelease"][..]),
        ("NVIDIA driver", &["sys/module/nvidia/version", "proc/driver/nvidia/version"]),
        ("amdgpu", &["sys/module/amdgpu/version"]),
        ("ROCm", &["opt/rocm/.info/version"]),
    ] {
        let read = paths.iter().find_map(|path| Some((snapshot.line(path)?, *path)));
        found.extend(read.map(|read| (name, read)));
    }
    for line in snapshot.get(HostSnapshot::VERSIONS).unwrap_or_default().lines() {
        if let [name, version, path] = line.split('\t').collect::<Vec<_>>()[..] {
            found.insert(name, (version, path));
        }
    }
    found
}

/// One check of each software that the table knows: a defect each, or that there is none.
pub(super) fn check(snapshot: &HostSnapshot, topology: &Topology) -> Vec<SettingCheck> {
    let found = installed(snapshot);
    let DefectTable { date, rows } = table();
    let mut all = Vec::new();
    for (name, (text, path)) in &found {
        let of_name: Vec<&KnownDefect> = rows.iter().filter(|row| row.software == *name).collect();
        if of_name.is_empty() {
            continue;
        }
        let check = |value: String| SettingCheck::new("software", format!("{name} {text}"), value);
        let Some(version) = SoftwareVersion::find(text) else {
            let unread = SettingCheck::new("software", *name, format!("no version in {path}"));
            all.push(unread.unread("see the package that it came with"));
            continue;
        };
        let here = |row: &&&KnownDefect| {
            row.has_version(&version)
                && row.place.split(' ').all(|part| holds(part, snapshot, topology, &found))
        };
        let known: Vec<&KnownDefect> = of_name.iter().filter(here).copied().collect();
        let (certain, only_when): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|row| row.when.is_empty());
        for row in &certain {
            let KnownDefect { effect, happens, remedy, source, .. } = row;
            all.push(check(format!("known defect: {effect}")).suspect(*happens, *remedy, source));
        }
        if certain.is_empty() {
            let mut value = format!(
                "no known defect of this version here among {} listed, list of {date}",
                of_name.len()
            );
            for KnownDefect { when, effect, happens, remedy, source, .. } in only_when {
                value += &format!("; only with {when}: {effect}, {happens} ({remedy}; {source})");
            }
            all.push(check(value));
        }
    }
    all
}

impl KnownDefect {
    fn has_version(&self, version: &SoftwareVersion) -> bool {
        let begins = SoftwareVersion::find(self.from).is_none_or(|from| *version >= from);
        let bound = SoftwareVersion::find(self.fixed);
        begins
            && bound.is_none_or(|bound| match self.fixed.starts_with('>') {
                true => version.is_within(&bound),
                false => *version < bound,
            })
    }
}

/// Whether a node is as a part of the column `where` says. What is not known there does not hold.
fn holds(
    part: &str,
    snapshot: &HostSnapshot,
    topology: &Topology,
    found: &BTreeMap<&str, (&str, &str)>,
) -> bool {
    let (key, value) = part.split_once('=').unwrap_or((part, ""));
    let has = |text: &str, part: &str| text.to_lowercase().contains(&part.to_lowercase());
    match key {
        "" => true,
        "gpu" => value.split('|').map(|part| part.replace('_', " ")).any(|part| {
            topology.gpus.iter().any(|gpu| gpu.vendor == part || has(&gpu.name, &part))
        }),
        "gpus" => match value.strip_suffix("..") {
            Some(least) => least.parse().is_ok_and(|least| topology.gpus.len() >= least),
            None => value.parse().is_ok_and(|count: usize| topology.gpus.len() == count),
        },
        "adapter" => {
            let number =
                ADAPTERS.iter().find(|(name, _)| *name == value).map(|(_, number)| *number);
            let of = |vendor| topology.pci.iter().any(|d| d.class >> 16 == 2 && d.vendor == vendor);
            match number {
                Some(vendor) => of(vendor),
                None => {
                    value.is_empty() && (!snapshot.children(INFINIBAND).is_empty() || of(0x17db))
                }
            }
        }
        "cpu" => topology.host.arch == value || has(&topology.host.cpu_model, value),
        "with" => value.split_once(">=").is_some_and(|(name, least)| {
            let version = found.get(name.replace('_', " ").as_str());
            let version = version.and_then(|(text, _)| SoftwareVersion::find(text));
            version.zip(SoftwareVersion::find(least)).is_some_and(|(own, least)| own >= least)
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use pathline_schema::NodeVerdict;

    use super::*;

    #[test]
    fn each_row_is_whole() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        let DefectTable { date, rows } = table();
        assert!(rows.len() >= 45 && rows.len() + 1 == lines && date.len() == 10, "{lines}");
        for row in rows {
            let KnownDefect { software, from, fixed, place, .. } = row;
            let bound = fixed.trim_start_matches('>');
            assert!(!from.is_empty() || !fixed.is_empty(), "{software}: a row without a range");
            for text in [*from, bound].into_iter().filter(|text| !text.is_empty()) {
                assert!(SoftwareVersion::find(text).is_some(), "{software} {text}");
            }
            let order = SoftwareVersion::find(from).zip(SoftwareVersion::find(bound));
            assert!(
                order.is_none_or(|(from, to)| from < to || fixed.starts_with('>')),
                "{software} {from}"
            );
            assert!(
                ["wrong data", "hang", "crash", "slow"].contains(&row.effect),
                "{}",
                row.effect
            );
            assert!(
                row.source.starts_with("https://")
                    && !row.happens.is_empty()
                    && !row.remedy.is_empty()
            );
            for part in place.split(' ').filter(|part| !part.is_empty()) {
                let (key, value) = part.split_once('=').unwrap_or((part, ""));
                let known = match key {
                    "adapter" => {
                        value.is_empty() || ADAPTERS.iter().any(|(name, _)| *name == value)
                    }
                    "with" => value.contains(">="),
                    _ => ["gpu", "gpus", "cpu"].contains(&key) && !value.is_empty(),
                };
                assert!(known, "{software}: {part}");
            }
        }
    }
    /// The checks that are not OK, of a node of GPUs with these versions.
    fn wrong(gpu: &str, count: usize, adapter: u32, versions: &[(&str, &str)]) -> Vec<String> {
        let vendor = if gpu.contains("Instinct") { "amd" } else { "nvidia" };
        let gpu =
            pathline_schema::Gpu { vendor: vendor.into(), name: gpu.into(), ..Default::default() };
        let device =
            pathline_schema::PciDevice { class: 0x02_0700, vendor: adapter, ..Default::default() };
        let topology =
            Topology { gpus: vec![gpu; count], pci: vec![device], ..Topology::default() };
        let mut node = HostSnapshot::default();
        let lines = versions.iter().map(|(name, version)| format!("{name}\t{version}\t/x\n"));
        node.insert(HostSnapshot::VERSIONS, lines.collect::<String>());
        if adapter == 0x15b3 {
            node.insert(format!("{INFINIBAND}/mlx5_0/hca_type"), "MT4129\n");
        }
        let bad = check(&node, &topology).into_iter().filter(|c| c.state != NodeVerdict::Ok);
        bad.map(|check| format!("{}: {}", check.what, check.value)).collect()
    }

    #[test]
    fn a_defect_is_named_where_it_is() {
        const H100: &str = "NVIDIA H100 80GB HBM3";
        let nccl = |version| [("NCCL", version)];
        let wrong_data = "NCCL 2.18.1: known defect: wrong data";
        assert_eq!(wrong(H100, 8, 0x15b3, &nccl("2.18.1")), [wrong_data]);
        // Another version, another GPU, no adapter.
        assert_eq!(wrong(H100, 8, 0x15b3, &nccl("2.18.3-1")), [""; 0]);
        assert_eq!(wrong("NVIDIA A100-SXM4-80GB", 8, 0x15b3, &nccl("2.18.1")), [""; 0]);
        assert_eq!(wrong(H100, 8, 0, &nccl("2.18.1")), [""; 0]);
        // Two GPUs alone, and a professional board whose name is like that of another.
        assert_eq!(wrong(H100, 2, 0, &nccl("2.15.1+cuda11.8")).len(), 1);
        assert_eq!(wrong(H100, 4, 0, &nccl("2.15.1")), [""; 0]);
        assert_eq!(wrong("NVIDIA GeForce RTX 5090", 2, 0, &nccl("2.25.1")).len(), 1);
        assert_eq!(wrong("NVIDIA RTX 5000 Ada Generation", 2, 0, &nccl("2.25.1")), [""; 0]);
        // One that was seen up to a version, and one that depends on the kernel.
        assert_eq!(wrong("NVIDIA GH200 480GB", 4, 0x17db, &nccl("2.29.2-1")).len(), 1);
        assert_eq!(wrong("NVIDIA GH200 480GB", 4, 0x17db, &nccl("2.29.3")), [""; 0]);
        const MI300X: &str = "AMD Instinct MI300X";
        let rccl = |kernel| [("RCCL", "2.20.5"), ("Linux", kernel)];
        assert_eq!(wrong(MI300X, 8, 0x15b3, &rccl("6.8.0-90-generic")).len(), 1);
        assert_eq!(wrong(MI300X, 8, 0x15b3, &rccl("5.15.0-25")), [""; 0]);
        assert_eq!(
            wrong("AMD Instinct MI250X", 8, 0, &[("ROCm", "7.14.0-12")]),
            ["ROCm 7.14.0-12: known defect: slow"]
        );
        assert_eq!(wrong(H100, 8, 0, &nccl("")), ["NCCL: no version in /x"]);
        assert_eq!(wrong(H100, 8, 0, &[("MPICH", "4.2"), ("OTHER", "")]), [""; 0]);
    }

    #[test]
    fn conditions_that_a_node_does_not_show_do_not_judge() {
        let mut node = HostSnapshot::default();
        node.insert(HostSnapshot::VERSIONS, "UCX\t1.18.1\t/x\nUCX\nbad\tline\n");
        let all = check(&node, &Topology::default());
        assert!(all.len() == 1 && all[0].state == NodeVerdict::Ok, "{all:?}");
        assert!(all[0].value.contains("only with many short messages"), "{}", all[0].value);
        assert!(all[0].value.contains("(UCX 1.19.1; https://"), "{}", all[0].value);
        node.insert(HostSnapshot::VERSIONS, "UCX\t1.20.0\t/x\n");
        let all = check(&node, &Topology::default());
        assert!(all[0].value.ends_with("among 5 listed, list of 2026-11-30"), "{}", all[0].value);
    }
}
