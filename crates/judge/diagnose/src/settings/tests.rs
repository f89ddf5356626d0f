//! Planted settings, one at a time, on a sound node of two GPUs below a switch, with an adapter and a drive.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its own input has failed")]

use super::*;

const PORT: &str = "0000:40:00.0";
pub(super) const GPUS: [&str; 2] = ["0000:43:00.0", "0000:44:00.0"];
const ADAPTER: &str = "0000:50:00.0";

/// Registers of a function of PCI Express: kind 0 an endpoint, 6 a switch port; codes of the payload and of the
/// request, 128 B shifted left; control bits of ACS.
fn registers(kind: u8, payload: u8, request: u8, access: u8) -> String {
    let mut bytes = vec![0u8; 4096];
    (bytes[0x34], bytes[0x40], bytes[0x42]) = (0x40, 0x10, kind << 4);
    // Up to 512 B.
    (bytes[0x44], bytes[0x48], bytes[0x49]) = (2, payload << 5, request << 4);
    (bytes[0x100], bytes[0x102], bytes[0x106]) = (0x0d, 0x01, access);
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub(super) fn sound() -> HostSnapshot {
    let mut node = HostSnapshot::default();
    let mut device = |address: &str, class: &str, vendor: &str, below: &str, kind: u8| {
        let dir = format!("sys/bus/pci/devices/{address}");
        let mut file =
            |name: &str, text: &str| node.insert(format!("{dir}/{name}"), format!("{text}\n"));
        file("class", class);
        file("vendor", vendor);
        file("device", "0x2335");
        file("numa_node", "0");
        file("current_link_speed", "32.0 GT/s PCIe");
        file("max_link_speed", "32.0 GT/s PCIe");
        file("current_link_width", "16");
        file("max_link_width", "16");
        file("config.hex", &registers(kind, 1, 2, 0));
        file("aer_dev_correctable", "RxErr 0\nTOTAL_ERR_COR 3");
        file("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL 0");
        file("aer_dev_fatal", "TOTAL_ERR_FATAL 0");
        file("iommu_group.target", "../../../../kernel/iommu_groups/7");
        node.insert(
            format!("{dir}.target"),
            format!("../../../devices/pci0000:40/{below}{address}\n"),
        );
    };
    device(PORT, "0x060400", "0x1000", "", 6);
    device(GPUS[0], "0x030200", "0x10de", "0000:40:00.0/", 0);
    device(GPUS[1], "0x030200", "0x10de", "0000:40:00.0/", 0);
    device("0000:4f:00.0", "0x060400", "0x8086", "", 4);
    device(ADAPTER, "0x020700", "0x15b3", "0000:4f:00.0/", 0);
    device("0000:51:00.0", "0x020700", "0x15b3", "", 0);
    for (path, text) in [
        ("proc/uptime", "360000.0 1.0"),
        ("proc/sys/kernel/numa_balancing", "0"),
        ("proc/sys/kernel/yama/ptrace_scope", "1"),
        ("proc/sys/vm/zone_reclaim_mode", "0"),
        ("proc/meminfo", "MemTotal: 1000000000 kB\nMemAvailable: 900000000 kB"),
        (
            "proc/self/limits",
            "Max locked memory         unlimited            unlimited            bytes",
        ),
        ("sys/kernel/iommu_groups/7/type", "identity"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq"),
        ("sys/devices/system/node/online", "0-1"),
        ("sys/devices/system/node/node0/cpulist", "0-31"),
        ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 500000000 kB"),
        ("sys/devices/system/node/node1/cpulist", "32-63"),
        ("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 500000000 kB"),
        (
            "sys/module/pcie_aspm/parameters/policy",
            "[default] performance powersave powersupersave",
        ),
        ("sys/class/net/ib0.target", "../../devices/pci0000:50/0000:50:00.0/net/ib0"),
        ("sys/class/net/ib0/speed", "400000"),
        ("sys/class/net/ib0/mtu", "4092"),
        ("sys/class/net/ib1.target", "../../devices/pci0000:50/0000:51:00.0/net/ib1"),
        ("sys/class/net/ib1/speed", "400000"),
        ("sys/class/net/ib1/mtu", "4092"),
    ] {
        node.insert(path, format!("{text}\n"));
    }
    for (name, pci) in [("mlx5_0", "0000:50:00.0"), ("mlx5_1", "0000:51:00.0")] {
        let target = format!("../../devices/pci0000:50/{pci}/infiniband/{name}\n");
        node.insert(format!("sys/class/infiniband/{name}.target"), target);
        for (file, text) in [
            ("hca_type", "MT4129"),
            ("board_id", "HPE1"),
            ("fw_ver", "28.43.2026"),
            ("ports/1/link_layer", "InfiniBand"),
            ("ports/1/state", "4: ACTIVE"),
            ("ports/1/rate", "400 Gb/sec (4X NDR)"),
            ("ports/1/counters/link_downed", "1"),
            ("ports/1/counters/port_rcv_errors", "0"),
        ] {
            node.insert(format!("sys/class/infiniband/{name}/{file}"), format!("{text}\n"));
        }
    }
    gpus::tests::add_gpus(&mut node);
    node
}

pub(super) fn found(node: &HostSnapshot) -> Vec<SettingCheck> {
    let topology = pathline_topo::from_snapshot("test", node);
    check_settings(node, &topology)
}

pub(super) fn wrong(node: &HostSnapshot) -> Vec<String> {
    let bad = found(node).into_iter().filter(|check| check.state != NodeVerdict::Ok);
    bad.map(|check| format!("{} {}: {}", check.state.word(), check.what, check.value)).collect()
}

#[test]
fn a_sound_node_has_nothing_wrong_and_each_setting_is_listed() {
    assert_eq!(wrong(&sound()), Vec::<String>::new());
    let all: Vec<String> = found(&sound()).iter().map(|check| check.what.clone()).collect();
    for what in [
        "link of gpu0",
        "MaxPayload of gpu0",
        "ACS of switch ports above GPUs",
        "IOMMU of GPUs",
        "errors on the way to gpu0",
        "numa_balancing",
        "locked memory",
        "CPU clock",
        "ptrace_scope",
        "port of mlx5_0",
        "errors of mlx5_0",
        "MTU of ib0",
    ] {
        assert!(all.iter().any(|found| found == what), "{what} in {all:?}");
    }
}

#[test]
fn each_planted_setting_is_named_alone() {
    let pci = |address: &str, file: &str| format!("sys/bus/pci/devices/{address}/{file}");
    let ib = |file: &str| format!("sys/class/infiniband/mlx5_1/{file}");
    let plants = [
        (pci(GPUS[1], "current_link_width"), "8".to_owned(), "link of gpu1"),
        (pci(ADAPTER, "current_link_speed"), "16.0 GT/s PCIe".to_owned(), "link of mlx5_0"),
        (pci(ADAPTER, "config.hex"), registers(0, 0, 2, 0), "MaxPayload of mlx5_0"),
        (pci(ADAPTER, "config.hex"), registers(0, 1, 0, 0), "MaxReadReq of mlx5_0"),
        (
            pci(PORT, "config.hex"),
            registers(6, 1, 2, 0x1d),
            "ACS of switch ports above GPUs: redirects at 1",
        ),
        (
            pci(GPUS[0], "aer_dev_correctable"),
            "TOTAL_ERR_COR 99999".to_owned(),
            "errors on the way to gpu0",
        ),
        (
            pci(GPUS[0], "aer_dev_nonfatal"),
            "TOTAL_ERR_NONFATAL 1".to_owned(),
            "errors on the way to gpu0",
        ),
        ("proc/sys/kernel/numa_balancing".to_owned(), "1".to_owned(), "numa_balancing: 1"),
        ("proc/sys/vm/zone_reclaim_mode".to_owned(), "1".to_owned(), "zone_reclaim_mode: 1"),
        ("proc/sys/kernel/yama/ptrace_scope".to_owned(), "2".to_owned(), "ptrace_scope: 2"),
        (
            "proc/self/limits".to_owned(),
            "Max locked memory         8388608              8388608              bytes".to_owned(),
            "locked memory: at most 8MiB",
        ),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor".to_owned(),
            "powersave".to_owned(),
            "CPU clock: powersave",
        ),
        (ib("ports/1/state"), "1: DOWN".to_owned(), "port of mlx5_1: DOWN"),
        (
            ib("ports/1/rate"),
            "200 Gb/sec (2X NDR)".to_owned(),
            "port of mlx5_1: ACTIVE, 200 Gb/sec",
        ),
        (
            ib("ports/1/counters/port_rcv_errors"),
            "7".to_owned(),
            "errors of mlx5_1: port_rcv_errors 7",
        ),
        ("sys/class/net/ib1/mtu".to_owned(), "1500".to_owned(), "MTU of ib1: 1500"),
        (
            ib("fw_ver"),
            "28.36.1010".to_owned(),
            "firmware of MT4129 HPE1: 28.36.1010 on mlx5_1; 28.43",
        ),
        (
            "sys/devices/system/node/node1/meminfo".to_owned(),
            "Node 1 MemTotal: 437500000 kB".to_owned(),
            "memory of domains: numa1 has 417.2GiB of 476.8GiB",
        ),
        (
            "sys/module/pcie_aspm/parameters/policy".to_owned(),
            "default performance [powersave] powersupersave".to_owned(),
            "ASPM: powersave",
        ),
    ];
    for (path, text, named) in plants {
        let mut node = sound();
        assert!(node.get(&path).is_some() && node.insert(path.as_str(), format!("{text}\n")));
        let wrong = wrong(&node);
        assert!(
            wrong.len() == 1 && wrong[0].starts_with("SUSPECT ") && wrong[0].contains(named),
            "{path} = {text}: {wrong:?}"
        );
    }
    let mut node = sound();
    node.insert("sys/kernel/iommu_groups/7/type", "DMA-FQ\n");
    assert_eq!(wrong(&node), ["SUSPECT IOMMU of GPUs: translates addresses of 2 of 2 GPUs"]);
}

/// Parts that are slow alike, so that no peer shows it: arithmetic and the ends of links do.
#[test]
fn what_is_slow_alike_is_named_by_arithmetic() {
    let pci = |address: &str, file: &str| format!("sys/bus/pci/devices/{address}/{file}");
    let ib = |file: &str| format!("sys/class/infiniband/mlx5_0/{file}");
    // 400 Gb/s of a port in a slot of PCIe 4: 16 GT/s x 16 x 128/130 = 252 Gb/s.
    let mut slot = sound();
    for address in [ADAPTER, "0000:4f:00.0"] {
        slot.insert(pci(address, "current_link_speed"), "16.0 GT/s PCIe\n");
    }
    slot.insert(pci("0000:4f:00.0", "max_link_speed"), "16.0 GT/s PCIe\n");
    assert_eq!(wrong(&slot), ["SUSPECT slot of mlx5_0: 16 GT/s x16, 252 Gb/s"]);
    slot.insert(ib("ports/1/rate"), "200 Gb/sec (2X NDR)\n");
    slot.insert(ib("board_id"), "other\n");
    slot.insert(ib("hca_type"), "MT4123\n");
    assert_eq!(wrong(&slot), Vec::<String>::new(), "200 of 252 Gb/s");
    // One of two GPUs in a slot of 8 lanes: below another port, which can no more.
    let mut narrow = sound();
    let port = "0000:4f:00.0";
    narrow.insert(
        format!("sys/bus/pci/devices/{}.target", GPUS[1]),
        format!("../../../devices/pci0000:40/{port}/{}\n", GPUS[1]),
    );
    narrow.insert(pci(port, "max_link_width"), "8\n");
    for address in [port, GPUS[1], ADAPTER] {
        narrow.insert(pci(address, "current_link_width"), "8\n");
    }
    narrow.insert(ib("ports/1/rate"), "200 Gb/sec (2X NDR)\n");
    narrow.insert(ib("hca_type"), "MT4123\n");
    assert_eq!(wrong(&narrow), ["SUSPECT link of gpu1: 32 GT/s x8"]);
    // All interfaces of RDMA over Ethernet with packets of 1500 bytes.
    let mut roce = sound();
    for (nth, name) in ["mlx5_0", "mlx5_1"].into_iter().enumerate() {
        let file = format!("sys/class/infiniband/{name}/ports/1/link_layer");
        roce.insert(file, "Ethernet\n");
        roce.insert(format!("sys/class/net/ib{nth}/mtu"), "1500\n");
    }
    assert_eq!(wrong(&roce), ["SUSPECT MTU of RDMA over Ethernet: ib0 1500, ib1 1500"]);
    roce.insert("proc/cpuinfo", "processor : 0\nflags : hypervisor\n");
    assert_eq!(wrong(&roce), Vec::<String>::new(), "the network of a cloud is not the guest's");
    // Slingshot has no InfiniBand device; one adapter of the kind of the others has no interface.
    let mut cray = HostSnapshot::default();
    for nth in 0..4 {
        let (device, net) = (format!("0000:d{nth}:00.0"), format!("sys/class/net/hsn{nth}"));
        for (file, text) in [("class", "0x020000"), ("vendor", "0x17db"), ("device", "0x0501")] {
            cray.insert(pci(&device, file), format!("{text}\n"));
        }
        if nth < 3 {
            let target = format!("../../devices/pci0000:d{nth}/{device}/net/hsn{nth}\n");
            cray.insert(format!("{net}.target"), target);
            cray.insert(format!("{net}/speed"), "200000\n");
            cray.insert(format!("{net}/operstate"), "up\n");
            cray.insert(format!("{net}/mtu"), "9000\n");
        }
    }
    assert_eq!(wrong(&cray), ["SUSPECT driver of 0000:d3:00.0: no interface"]);
    cray.insert("sys/class/net/hsn1/operstate", "down\n");
    cray.insert("sys/class/net/hsn2/speed", "100000\n");
    let named = wrong(&cray);
    assert!(named.contains(&"SUSPECT port of hsn1: down".to_owned()), "{named:?}");
    assert!(named.contains(&"SUSPECT port of hsn2: up, 100 Gb/s".to_owned()), "{named:?}");
    // The switch above both GPUs came up at half of the rate; an idle GPU's own link may.
    let mut uplink = sound();
    let (root, upper) = ("0000:3e:00.0", "0000:3f:00.0");
    let mut above = "../../../devices/pci0000:3e".to_owned();
    for address in [root, upper, PORT] {
        above = format!("{above}/{address}");
        uplink.insert(format!("sys/bus/pci/devices/{address}.target"), format!("{above}\n"));
        for file in ["class", "vendor", "device", "max_link_speed", "max_link_width", "config.hex"]
        {
            let text = uplink.get(&pci(PORT, file)).unwrap().to_owned();
            uplink.insert(pci(address, file), text);
        }
        uplink.insert(pci(address, "current_link_speed"), "32.0 GT/s PCIe\n");
        uplink.insert(pci(address, "current_link_width"), "16\n");
    }
    for gpu in GPUS {
        uplink.insert(format!("sys/bus/pci/devices/{gpu}.target"), format!("{above}/{gpu}\n"));
        uplink.insert(pci(gpu, "current_link_speed"), "2.5 GT/s PCIe\n");
    }
    assert_eq!(wrong(&uplink), Vec::<String>::new());
    for address in [root, upper] {
        uplink.insert(pci(address, "current_link_speed"), "16.0 GT/s PCIe\n");
    }
    let named =
        "SUSPECT link of gpu0, gpu1 at 0000:3f:00.0: 16 GT/s x16, both ends can 32 GT/s x16";
    assert_eq!(wrong(&uplink), [named]);
}

/// 64 bytes of registers are all that a user sees: what they do not say is not good.
#[test]
fn what_only_root_can_read_is_undecided() {
    let mut node = sound();
    for address in [PORT, GPUS[0], GPUS[1], ADAPTER, "0000:51:00.0"] {
        node.insert(format!("sys/bus/pci/devices/{address}/config.hex"), "00".repeat(64));
    }
    let unread = [
        "UNDECIDED MaxPayload and MaxReadReq: only root can read them",
        "UNDECIDED ACS of switch ports above GPUs: only root can read it",
    ];
    assert_eq!(wrong(&node), unread);
}

/// Eight of a card's 16 lanes are sound in a slot of eight, which a guest does not see.
#[test]
fn a_link_of_which_one_end_is_seen_is_undecided() {
    let mut node = sound();
    node.insert("sys/bus/pci/devices/0000:51:00.0/current_link_width", "8\n");
    assert_eq!(wrong(&node), ["UNDECIDED link of mlx5_1: 32 GT/s x8"]);
}

/// A slot of 8 lanes, an idle GPU and a virtual machine's own fabric are as they should be.
#[test]
fn what_is_no_fault_is_none() {
    let pci = |address: &str, file: &str| format!("sys/bus/pci/devices/{address}/{file}");
    let mut slot = sound();
    slot.insert(pci(PORT, "max_link_width"), "8\n");
    for address in [PORT, GPUS[0], GPUS[1]] {
        slot.insert(pci(address, "current_link_width"), "8\n");
    }
    let mut idle = sound();
    idle.insert(pci(GPUS[0], "current_link_speed"), "2.5 GT/s PCIe\n");
    let mut guest = sound();
    guest.insert("proc/cpuinfo", "processor : 0\nflags : hypervisor\n");
    guest.insert(pci(PORT, "config.hex"), registers(6, 1, 2, 0x1d));
    // A card of PCIe 4 in a slot of 5, a device that was asked for what it does not know, a few lost packets.
    let mut older = sound();
    older.insert(pci(ADAPTER, "max_link_speed"), "16.0 GT/s PCIe\n");
    older.insert(pci(ADAPTER, "current_link_speed"), "16.0 GT/s PCIe\n");
    older.insert(pci("0000:4f:00.0", "current_link_speed"), "16.0 GT/s PCIe\n");
    older.insert("sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
    older.insert("sys/class/infiniband/mlx5_0/hca_type", "MT4123\n");
    let asked = "UnsupReq 1\nTOTAL_ERR_NONFATAL 1\n";
    older.insert(pci(ADAPTER, "aer_dev_nonfatal"), asked);
    older.insert("sys/class/infiniband/mlx5_1/ports/1/counters/link_downed", "4\n");
    // Storage has its own adapters.
    let mut storage = sound();
    for (file, text) in
        [("ports/1/link_layer", "Ethernet"), ("ports/1/rate", "200 Gb/sec (4X HDR)")]
    {
        storage.insert(format!("sys/class/infiniband/mlx5_1/{file}"), format!("{text}\n"));
    }
    // Desktop GPUs reach each other by host memory in any case.
    let mut desktop = sound();
    GPUS.iter().for_each(|gpu| _ = desktop.insert(pci(gpu, "class"), "0x030000\n"));
    desktop.insert("sys/kernel/iommu_groups/7/type", "DMA-FQ\n");
    for node in [slot, idle, guest, older, storage, desktop, HostSnapshot::default()] {
        assert_eq!(wrong(&node), Vec::<String>::new());
    }
}
