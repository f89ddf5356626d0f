//! Invented hosts from their files to the picture, whole and in pieces.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{BUNDLES, Pci, add_pci, h200, host, mi250x};
use pathline_schema::{Bytes, LinkEnd, LinkKind, Rate, Topology};
use pathline_topo::{HostSnapshot, from_path, from_snapshot, live, validate, write_nccl_xml};

fn codes(topology: &Topology) -> Vec<&str> {
    topology.warnings.iter().map(|warning| warning.code.as_str()).collect()
}

#[test]
fn an_mi250x_node() {
    let t = from_snapshot("live", &mi250x());
    assert_eq!(t.gpus.len(), 8);
    let gpu = &t.gpus[1];
    assert_eq!(gpu.name, "AMD Instinct MI250X");
    assert_eq!((gpu.arch.as_str(), gpu.pci.as_str()), ("gfx90a", "0000:c6:00.0"));
    // 440 SIMDs / 4 a CU
    assert_eq!((gpu.compute_units, gpu.numa, gpu.package), (110, Some(3), Some(0)));
    assert_eq!(gpu.memory, Bytes(68_702_699_520));
    assert_eq!(gpu.memory_peak, Some(Rate(1638.4)));
    let bundles: Vec<_> = t
        .links
        .iter()
        .filter_map(|link| match (link.a, link.b) {
            (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) => Some((a, b, link.width)),
            _ => None,
        })
        .collect();
    assert_eq!(bundles, BUNDLES);
    let far: Vec<_> = t.routes.iter().filter(|r| r.hops == 3).map(|r| (r.src, r.dst)).collect();
    assert_eq!(far.len(), 4);
    assert!(far.contains(&(LinkEnd::Gpu(7), LinkEnd::Gpu(1))));
    assert_eq!(codes(&t), ["host-link-claim"]);
    let cpu_links = t.links.iter().filter(|link| link.kind == LinkKind::Cpu).count();
    assert_eq!(cpu_links, 4 * 3 / 2);
    assert_eq!(t.numa[2].distances, [12, 12, 10, 12]);
    assert_eq!(t.caches.len(), 8);
    assert_eq!(t.nics.iter().map(|nic| nic.numa).collect::<Vec<_>>(), [0, 1, 2, 3].map(Some));
    assert_eq!(t.host.huge_pages, [Bytes::mib(2)]);
    assert_eq!(t.host.page, Bytes::kib(4));
    assert_eq!(validate("live", &t), Ok(()));
}

/// NVML's facts about links are plain files of the snapshot, and survive being saved.
#[test]
fn nvlinks_of_a_saved_snapshot() {
    let mut saved = h200();
    let gpus = from_snapshot("live", &saved).gpus;
    for gpu in &gpus {
        let line = |link| format!("link={link} active=1 mbps=26562 remote=switch\n");
        saved.insert(format!("nvml/{}/nvlink", gpu.pci), (0..18).map(line).collect::<String>());
    }
    let folder = tempfile::tempdir().unwrap();
    saved.save_dir(folder.path()).unwrap();
    saved.save_file(&folder.path().join("host.json")).unwrap();
    for path in [folder.path().to_owned(), folder.path().join("host.json")] {
        let t = from_path(&path).unwrap();
        let nvlinks: Vec<_> = t.links.iter().filter(|l| l.kind == LinkKind::Nvlink).collect();
        assert_eq!(nvlinks.len(), gpus.len());
        assert!(nvlinks.iter().all(|l| l.width == 18 && l.b == LinkEnd::Switch(0)), "{nvlinks:?}");
        assert!(!t.has_warning(pathline_schema::TopologyWarning::NVLINK_NOT_READ));
        assert_eq!(validate("saved", &t), Ok(()));
    }
}

#[test]
fn an_h200_node() {
    let t = from_snapshot("live", &h200());
    let numa: Vec<_> = t.gpus.iter().map(|gpu| gpu.numa).collect();
    assert_eq!(numa[..7], [0, 0, 0, 0, 1, 1, 1].map(Some));
    assert_eq!(numa[7], None);
    assert_eq!(codes(&t), ["nvlink-not-read", "gpu-no-numa", "pcie-degraded"]);
    let degraded = t.warnings.iter().find(|w| w.code == "pcie-degraded").unwrap();
    assert_eq!(degraded.subject, "mlx5_2");
    // 32 GT/s x 8 / 8 x 128/130 = 31.5 GB/s
    assert!(degraded.text.contains("32 GT/s x8") && degraded.text.contains("31.5 GB/s"));
    let widths: Vec<_> =
        t.links.iter().filter(|l| l.a == LinkEnd::Gpu(3) && l.kind == LinkKind::Nvlink).collect();
    assert_eq!(widths.iter().map(|l| l.width).collect::<Vec<_>>(), [5, 5, 4, 4]);
    assert_eq!(widths[0].peak, Some(Rate(125.0)));
    // The RDMA name, not ib3; the switch that holds one GPU makes it the nearest.
    assert_eq!((t.nics[3].name.as_str(), t.nics[3].near_gpu), ("mlx5_3", Some(3)));
    assert_eq!(t.nics[3].speed_mbits, Some(400_000));
    assert_eq!(t.blocks.len(), 1);
    assert_eq!(t.blocks[0].size, Bytes(7_501_476_528 * 512));
    assert_eq!(validate("live", &t), Ok(()));
    // What NCCL would read.
    let xml = write_nccl_xml(&t);
    assert!(xml.contains("<nvlink target=\"0000:05:00.0\" count=\"5\" tclass=\"0x068000\"/>"));
    assert!(xml.contains("<net name=\"mlx5_3\""));
}

#[test]
fn saved_on_one_machine_the_same_picture_on_another() {
    for snapshot in [mi250x(), h200(), host("plain", 1)] {
        let there = from_snapshot("x", &snapshot);
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        snapshot.save_dir(&tree).unwrap();
        assert_eq!(HostSnapshot::collect(&tree), snapshot);
        let file = dir.path().join("file.json");
        snapshot.save_file(&file).unwrap();
        for path in [tree, file] {
            let here = from_path(&path).unwrap();
            assert_eq!(Topology { source: "x".into(), ..here }, there);
        }
    }
}

/// The same on the machine that runs the test, whatever it is.
#[test]
fn this_host_is_described_and_survives_saving() {
    let topology = from_snapshot("live", &live([]));
    assert_eq!(validate("live", &topology), Ok(()));
    assert!(!topology.host.cpus.is_empty());
    assert!(!topology.numa.is_empty());
    assert!(topology.host.memory.0 > 0 && topology.host.page.0 > 0);
    let snapshot = HostSnapshot::collect(std::path::Path::new("/"));
    let dir = tempfile::tempdir().unwrap();
    snapshot.save_dir(dir.path()).unwrap();
    assert_eq!(HostSnapshot::collect(dir.path()), snapshot);
}

#[test]
fn saving_stays_inside_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["../out", "a/../../out", "/out", "a//b"] {
        let mut snapshot = HostSnapshot::default();
        snapshot.insert(path, "x");
        assert!(snapshot.save_dir(&dir.path().join("in")).is_err(), "{path}");
    }
    assert!(!dir.path().join("out").exists());
}

/// A folder to save into may be another user's, with links to this user's files.
#[cfg(unix)]
#[test]
fn saving_follows_no_link() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let (mine, into) = (dir.path().join("mine"), dir.path().join("into"));
    let mut snapshot = HostSnapshot::default();
    snapshot.insert("proc/meminfo", "MemTotal: 1 kB\n");
    for name in ["proc/meminfo", "proc"] {
        std::fs::create_dir_all(into.join(name).parent().unwrap()).unwrap();
        // One that leads nowhere would be made, one that leads somewhere would be replaced.
        let target = if name == "proc" { dir.path().to_owned() } else { mine.clone() };
        symlink(&target, into.join(name)).unwrap();
        let error = snapshot.save_dir(&into).unwrap_err().to_string();
        assert!(error.contains("is a symbolic link") && error.contains("meminfo"), "{error}");
        assert!(!mine.exists() && !dir.path().join("meminfo").exists());
        std::fs::remove_dir_all(&into).unwrap();
    }
    snapshot.save_dir(&into).unwrap();
    snapshot.save_dir(&into).unwrap();
    assert_eq!(HostSnapshot::collect(&into).get("proc/meminfo"), Some("MemTotal: 1 kB\n"));
}

/// Real trees hold symbolic links where saved ones hold their text.
#[cfg(unix)]
#[test]
fn copied_trees_with_symbolic_links_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().join("sys/devices/pci0000:00/0000:00:02.0");
    std::fs::create_dir_all(&real).unwrap();
    std::fs::create_dir_all(dir.path().join("sys/bus/pci/devices")).unwrap();
    for (name, text) in [("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x2335")] {
        std::fs::write(real.join(name), text).unwrap();
    }
    let link = dir.path().join("sys/bus/pci/devices/0000:00:02.0");
    std::os::unix::fs::symlink("../../../devices/pci0000:00/0000:00:02.0", link).unwrap();
    let topology = from_path(dir.path()).unwrap();
    assert_eq!(topology.gpus[0].name, "NVIDIA H200");
}

/// Whatever is missing, there is a picture and nothing panics: every directory of the trees is
/// left out in turn, and every file emptied or spoilt.
#[test]
fn trees_with_missing_and_spoilt_pieces() {
    for whole in [mi250x(), h200()] {
        let mut prefixes: Vec<String> = Vec::new();
        for (path, _) in whole.iter() {
            let parts: Vec<&str> = path.split('/').collect();
            prefixes.extend((1..parts.len()).map(|n| parts[..n].join("/") + "/"));
        }
        prefixes.sort();
        prefixes.dedup();
        for prefix in prefixes.iter().filter(|p| p.matches('/').count() <= 7) {
            let mut part = HostSnapshot::default();
            for (path, text) in whole.iter().filter(|(path, _)| !path.starts_with(prefix.as_str()))
            {
                part.insert(path, text);
            }
            let topology = from_snapshot("part", &part);
            assert_eq!(validate("part", &topology), Ok(()), "without {prefix}");
        }
        for spoilt in ["", "\0", "-1", "99999999999999999999", "0-4294967295", "0x", "ünïcode"] {
            for every in 1..5usize {
                let mut snapshot = HostSnapshot::default();
                for (at, (path, text)) in whole.iter().enumerate() {
                    let text = if at.is_multiple_of(every) { spoilt } else { text };
                    snapshot.insert(path, text);
                }
                let topology = from_snapshot("spoilt", &snapshot);
                assert_eq!(validate("spoilt", &topology), Ok(()), "{spoilt:?} every {every}");
            }
        }
    }
}

#[test]
fn a_missing_sys_is_reported() {
    let mut s = HostSnapshot::default();
    s.insert("proc/cpuinfo", "processor : 0\nprocessor : 1\n");
    s.insert("proc/meminfo", "MemTotal: 1024 kB\n");
    let topology = from_snapshot("live", &s);
    assert_eq!(codes(&topology), ["no-sys"]);
    assert_eq!(topology.numa.len(), 1);
    assert_eq!(topology.numa[0].cpus.to_string(), "0-1");
    assert_eq!(topology.numa[0].memory, Bytes::mib(1));
}

#[test]
fn sources_that_disagree() {
    let mut s = mi250x();
    s.insert("sys/bus/pci/devices/0000:c1:00.0/numa_node", "0\n");
    let t = from_snapshot("live", &s);
    assert!(codes(&t).contains(&"numa-disagree"));
    assert_eq!(t.gpus[0].numa, Some(3));
    // One end reports two links fewer.
    let mut s = mi250x();
    let path = "sys/class/kfd/kfd/topology/nodes/4/io_links/1/properties";
    let text = s.get(path).unwrap().replace("max_bandwidth 200000", "max_bandwidth 100000");
    s.insert(path, text);
    let t = from_snapshot("live", &s);
    assert!(codes(&t).contains(&"link-asymmetric"));
    let link = t.links.iter().find(|l| (l.a, l.b) == (LinkEnd::Gpu(0), LinkEnd::Gpu(1))).unwrap();
    assert_eq!((link.width, link.peak), (2, Some(Rate(100.0))));
    // Half of the memory is not in any domain.
    let mut s = host("vm", 1);
    s.insert("proc/meminfo", format!("MemTotal: {} kB\n", 2u64 << 27));
    let t = from_snapshot("live", &s);
    assert_eq!(codes(&t), ["numa-memory"]);
    assert_eq!(t.numa[0].memory, Bytes::gib(256));
}

/// A task of a Slurm job with one GPU: the KFD denies all files of the others (EPERM).
#[test]
fn gpus_that_a_cgroup_denies_are_on_the_bus() {
    let whole = mi250x();
    let mut s = HostSnapshot::default();
    // GPU 5 is node 9.
    let denied = |path: &str| {
        let node = path.strip_prefix("sys/class/kfd/kfd/topology/nodes/");
        let node: Option<u32> = node.and_then(|rest| rest.split('/').next()?.parse().ok());
        node.is_some_and(|node| node >= 4 && node != 9)
    };
    for (path, text) in whole.iter().filter(|(path, _)| !denied(path)) {
        s.insert(path, text);
    }
    let t = from_snapshot("live", &s);
    assert_eq!((t.gpus.len(), t.hidden.gpus.len()), (1, 7));
    let identity = t.gpu_identity(0).unwrap();
    assert_eq!((identity.pci.as_str(), identity.host_index), ("0000:d6:00.0", 5));
    let addresses: Vec<&str> = t.hidden.gpus.iter().map(|gpu| gpu.pci.as_str()).collect();
    assert_eq!(addresses.len(), 7);
    assert!(!addresses.contains(&"0000:d6:00.0"), "{addresses:?}");
    assert_eq!(from_snapshot("live", &whole).hidden.gpus, []);
}

#[test]
fn gpus_without_their_driver() {
    let mut s = host("x", 2);
    let address = "0000:c1:00.0";
    let (parents, class, vendor, device) = ("pci0000:00", "0x038000", "0x1002", "0x7408");
    add_pci(&mut s, &Pci { address, parents, class, vendor, device, numa: 1, link: None });
    let t = from_snapshot("live", &s);
    assert_eq!(codes(&t), ["kfd-missing"]);
    assert_eq!((t.gpus[0].name.as_str(), t.gpus[0].numa), ("AMD Instinct MI250X", Some(1)));
}
