//! Planted faults of a node with GPUs of AMD.

use super::*;

/// A node of GPUs of AMD; the pairs that are joined, the lower number first.
pub(super) fn amd(gpus: u32, joined: impl Fn(u32, u32) -> bool) -> HostSnapshot {
    let mut node = HostSnapshot::default();
    let mut put = |path: String, text: &str| node.insert(path, format!("{text}\n"));
    let nodes = "sys/class/kfd/kfd/topology/nodes";
    put("sys/devices/system/node/node0/cpulist".into(), "0-31");
    put("sys/devices/system/node/node0/meminfo".into(), "Node 0 MemTotal: 500000000 kB");
    put("sys/devices/system/node/online".into(), "0");
    put(KERNEL_LOG.into(), "from /dev/kmsg");
    put("proc/modules".into(), "amdgpu");
    put("dev/kfd".into(), "");
    put(format!("{nodes}/0/properties"), "cpu_cores_count 32\nsimd_count 0");
    for gpu in 0..gpus {
        let (pci, device) =
            (format!("0000:0{}:00.0", gpu + 1), format!("sys/class/drm/card{gpu}/device"));
        put(
            format!("{nodes}/{}/properties", gpu + 1),
            &format!(
                "cpu_cores_count 0\nsimd_count 1216\nsimd_per_cu 4\ndevice_id 29857\nvendor_id 4098\n\
                 gfx_target_version 90402\ndomain 0\nlocation_id {}",
                (gpu + 1) << 8
            ),
        );
        for other in (0..gpus).filter(|other| *other != gpu) {
            if joined(gpu.min(other), gpu.max(other)) {
                put(
                    format!("{nodes}/{}/io_links/{other}/properties", gpu + 1),
                    &format!(
                        "type 11\nnode_from {}\nnode_to {}\nweight 15\nmin_bandwidth 64000\nmax_bandwidth 64000",
                        gpu + 1,
                        other + 1
                    ),
                );
            }
        }
        put(format!("{device}.target"), &format!("../../../{pci}"));
        for (file, text) in [
            ("current_compute_partition", "SPX"),
            ("current_memory_partition", "NPS1"),
            ("hwmon/hwmon3/power1_cap", "750000000"),
            ("hwmon/hwmon3/power1_cap_default", "750000000"),
            ("ras/umc_err_count", "ue: 0\nce: 5"),
            ("ras/xgmi_wafl_err_count", "ue: 0\nce: 0"),
        ] {
            put(format!("{device}/{file}"), text);
        }
    }
    node
}

#[test]
fn each_planted_fault_of_a_node_of_amd_is_named_alone() {
    assert_eq!(wrong(&amd(8, |_, _| true)), Vec::<String>::new());
    let mut container = HostSnapshot::default();
    for (path, text) in amd(8, |_, _| true).iter().filter(|(path, _)| *path != "dev/kfd") {
        container.insert(path, text);
    }
    assert_eq!(wrong(&container), ["FAIL GPUs of AMD: 8 of the driver"]);
    let lone = wrong(&amd(8, |a, b| a != 6 && b != 6));
    assert_eq!(lone, ["FAIL xGMI links: 21 of 28 pairs of GPUs"]);
    // One of eight devices on the bus that the driver does not have.
    let mut fallen = amd(8, |_, _| true);
    for gpu in 1..=9 {
        let device = format!("sys/bus/pci/devices/0000:0{gpu}:00.0");
        for (file, text) in [("class", "0x120000"), ("vendor", "0x1002"), ("device", "0x74a1")] {
            fallen.insert(format!("{device}/{file}"), format!("{text}\n"));
        }
    }
    assert_eq!(wrong(&fallen), ["FAIL GPUs of AMD: 8 of the driver"]);
    let lost = wrong(&amd(8, |a, b| (a, b) != (2, 5)));
    assert_eq!(lost, ["SUSPECT xGMI links: 27 of 28 pairs of GPUs"]);
    let card = "sys/class/drm/card3/device";
    let log = "from /dev/kmsg\namdgpu 0000:04:00.0: amdgpu: GPU reset begin!\n";
    for (path, text, named) in [
        (
            format!("{card}/ras/umc_err_count"),
            "ue: 1\nce: 5",
            "memory errors of gpu3: 5 corrected, 1 not",
        ),
        (format!("{card}/ras/xgmi_wafl_err_count"), "ue: 2\nce: 5", "xGMI errors of gpu3: 2 not"),
        (format!("{card}/hwmon/hwmon3/power1_cap"), "400000000", "power limit of gpu3: 400 W"),
        (
            format!("{card}/current_memory_partition"),
            "NPS4",
            "memory partitions: NPS1, NPS4 on gpu3",
        ),
        (KERNEL_LOG.to_owned(), log, "GPU reset begin of gpu3 in the kernel log: once"),
        (
            "proc/self/environ".to_owned(),
            "ROCR_VISIBLE_DEVICES=3\nHIP_VISIBLE_DEVICES=3\n",
            "HIP_VISIBLE_DEVICES: 3",
        ),
    ] {
        let mut node = amd(8, |_, _| true);
        node.insert(path.as_str(), text);
        let wrong = wrong(&node);
        let is_named =
            wrong.first().is_some_and(|line| line.starts_with(&format!("SUSPECT {named}")));
        assert!(wrong.len() == 1 && is_named, "{path}: {wrong:?}");
    }
    let mut node = amd(8, |_, _| true);
    for (file, text) in [
        ("hca_type", "MT4129"),
        ("ports/1/link_layer", "InfiniBand"),
        ("ports/1/state", "4: ACTIVE"),
        ("ports/1/rate", "400 Gb/sec (4X NDR)"),
    ] {
        node.insert(format!("sys/class/infiniband/mlx5_0/{file}"), format!("{text}\n"));
    }
    assert_eq!(wrong(&node), Vec::<String>::new(), "options of the kernel that nobody knows");
    node.insert("pathline/kernel-options", "CONFIG_DMABUF_MOVE_NOTIFY=n\nCONFIG_PCI_P2PDMA=y\n");
    assert_eq!(
        wrong(&node),
        ["SUSPECT access to memory of GPUs: the kernel lacks CONFIG_DMABUF_MOVE_NOTIFY"]
    );
    node.insert("sys/kernel/mm/memory_peers/amdkfd/version", "1.0\n");
    node.insert("sys/module/amdgpu/parameters/noretry", "1\n");
    assert_eq!(wrong(&node), Vec::<String>::new());
    node.insert("proc/self/environ", "HSA_XNACK=1\n");
    assert_eq!(wrong(&node), ["SUSPECT amdgpu.noretry: 1"]);
}
