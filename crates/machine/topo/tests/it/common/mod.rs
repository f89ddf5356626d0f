//! Invented hosts, as the files that they would show.

#![allow(unreachable_pub, dead_code, clippy::unwrap_used)]

use pathline_topo::HostSnapshot;

/// Bundles of the MI250X node: GCD, GCD, links.
pub const BUNDLES: [(u32, u32, u32); 12] = [
    (0, 1, 4),
    (0, 2, 1),
    (0, 6, 2),
    (1, 3, 1),
    (1, 5, 1),
    (2, 3, 4),
    (2, 4, 2),
    (3, 7, 1),
    (4, 5, 4),
    (4, 6, 1),
    (5, 7, 1),
    (6, 7, 4),
];
const BUSES: [u32; 8] = [0xc1, 0xc6, 0xc9, 0xce, 0xd1, 0xd6, 0xd9, 0xde];
const DOMAINS: [u32; 8] = [3, 3, 1, 1, 0, 0, 2, 2];

/// A PCI function below a root port.
pub struct Pci<'a> {
    pub address: &'a str,
    pub parents: &'a str,
    pub class: &'a str,
    pub vendor: &'a str,
    pub device: &'a str,
    pub numa: i32,
    /// GT/s and lanes: now, at most.
    pub link: Option<(&'a str, u32, &'a str, u32)>,
}

pub fn add_pci(s: &mut HostSnapshot, pci: &Pci<'_>) {
    let dir = format!("sys/bus/pci/devices/{}", pci.address);
    s.insert(
        format!("{dir}.target"),
        format!("../../../devices/{}/{}\n", pci.parents, pci.address),
    );
    s.insert(format!("{dir}/class"), format!("{}\n", pci.class));
    s.insert(format!("{dir}/vendor"), format!("{}\n", pci.vendor));
    s.insert(format!("{dir}/device"), format!("{}\n", pci.device));
    s.insert(format!("{dir}/numa_node"), format!("{}\n", pci.numa));
    if let Some((speed, width, max_speed, max_width)) = pci.link {
        s.insert(format!("{dir}/current_link_speed"), format!("{speed} GT/s PCIe\n"));
        s.insert(format!("{dir}/current_link_width"), format!("{width}\n"));
        s.insert(format!("{dir}/max_link_speed"), format!("{max_speed} GT/s PCIe\n"));
        s.insert(format!("{dir}/max_link_width"), format!("{max_width}\n"));
    }
}

/// CPUs, memory and distances of `domains` domains of 16 CPUs and 128 GiB each.
pub fn host(name: &str, domains: u32) -> HostSnapshot {
    let mut s = HostSnapshot::default();
    let cpus = domains * 16;
    s.insert("proc/sys/kernel/hostname", format!("{name}\n"));
    s.insert("proc/sys/kernel/arch", "x86_64\n");
    s.insert("proc/sys/kernel/osrelease", "6.4.0\n");
    s.insert("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 7A53\nflags\t\t: avx2 erms\n");
    s.insert("proc/meminfo", format!("MemTotal: {0} kB\nMemAvailable: {0} kB\n", domains << 27));
    s.insert("proc/self/status", format!("Cpus_allowed_list:\t0-{}\n", cpus - 1));
    s.insert("proc/self/smaps", "KernelPageSize:        4 kB\n");
    s.insert("sys/devices/system/cpu/online", format!("0-{}\n", cpus - 1));
    s.insert("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
    s.insert("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
    for cpu in 0..cpus {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}");
        s.insert(format!("{dir}/topology/physical_package_id"), "0\n");
        let first = cpu / 8 * 8;
        for (file, text) in [
            ("level", "3".to_owned()),
            ("type", "Unified".to_owned()),
            ("size", "32768K".to_owned()),
            ("coherency_line_size", "64".to_owned()),
            ("shared_cpu_list", format!("{first}-{}", first + 7)),
        ] {
            s.insert(format!("{dir}/cache/index3/{file}"), text + "\n");
        }
    }
    for domain in 0..domains {
        let dir = format!("sys/devices/system/node/node{domain}");
        let distance = |other: u32| if other == domain { "10" } else { "12" };
        let distances: Vec<&str> = (0..domains).map(distance).collect();
        s.insert(format!("{dir}/cpulist"), format!("{}-{}\n", domain * 16, domain * 16 + 15));
        s.insert(format!("{dir}/distance"), distances.join(" ") + "\n");
        let meminfo =
            format!("Node {domain} MemTotal: {0} kB\nNode {domain} MemFree: 1024 kB\n", 1 << 27);
        s.insert(format!("{dir}/meminfo"), meminfo);
    }
    s
}

fn add_io_link(
    s: &mut HostSnapshot,
    at: (u32, u32),
    to: u32,
    kind: u32,
    weight: u32,
    mbs: (u32, u32),
) {
    let (node, index) = at;
    let dir = format!("sys/class/kfd/kfd/topology/nodes/{node}/io_links/{index}");
    let text = format!(
        "type {kind}\nversion_major 0\nnode_from {node}\nnode_to {to}\nweight {weight}\n\
         min_bandwidth {}\nmax_bandwidth {}\n",
        mbs.0, mbs.1
    );
    s.insert(format!("{dir}/properties"), text);
}

/// A node of four CPU domains and eight MI250X GCDs, as LUMI and Frontier have it.
pub fn mi250x() -> HostSnapshot {
    let mut s = host("nid001", 4);
    const NODES: &str = "sys/class/kfd/kfd/topology/nodes";
    for cpu in 0..4u32 {
        let text = "cpu_cores_count 16\nsimd_count 0\n";
        s.insert(format!("{NODES}/{cpu}/properties"), text);
        s.insert(format!("{NODES}/{cpu}/gpu_id"), "0\n");
        for (index, other) in (0..4).filter(|other| *other != cpu).enumerate() {
            add_io_link(&mut s, (cpu, index as u32), other, 1, 12, (0, 0));
        }
    }
    let width = |a: u32, b: u32| {
        BUNDLES.iter().find(|&&(x, y, _)| (x, y) == (a.min(b), a.max(b))).map(|bundle| bundle.2)
    };
    for gcd in 0..8u32 {
        let (node, bus, domain) = (gcd + 4, BUSES[gcd as usize], DOMAINS[gcd as usize]);
        let text = format!(
            "cpu_cores_count 0\nsimd_count 440\nsimd_per_cu 4\ngfx_target_version 90010\n\
             vendor_id 4098\ndevice_id 29704\nlocation_id {}\ndomain 0\n",
            bus << 8
        );
        s.insert(format!("{NODES}/{node}/properties"), text);
        s.insert(format!("{NODES}/{node}/name"), "aldebaran\n");
        let bank =
            "heap_type 1\nsize_in_bytes 68702699520\nflags 0\nwidth 4096\nmem_clk_max 1600\n";
        s.insert(format!("{NODES}/{node}/mem_banks/0/properties"), bank);
        add_io_link(&mut s, (node, 0), domain, 11, 15, (50_000, 50_000));
        add_io_link(&mut s, (domain, 3 + gcd % 2), node, 11, 15, (50_000, 50_000));
        for (index, other) in (0..8).filter(|other| *other != gcd).enumerate() {
            let (weight, mbs) = match width(gcd, other) {
                Some(links) => (15, (50_000, 50_000 * links)),
                None if [(1, 7), (3, 5)].contains(&(gcd.min(other), gcd.max(other))) => {
                    (45, (0, 0))
                }
                None => (30, (0, 0)),
            };
            add_io_link(&mut s, (node, index as u32 + 1), other + 4, 11, weight, mbs);
        }
        let address = format!("0000:{bus:02x}:00.0");
        let parents = format!("pci0000:{:02x}/0000:{:02x}:01.1", bus & 0xf8, bus & 0xf8);
        add_pci(
            &mut s,
            &Pci {
                address: &address,
                parents: &parents,
                class: "0x038000",
                vendor: "0x1002",
                device: "0x7408",
                numa: domain as i32,
                link: Some(("16.0", 16, "16.0", 16)),
            },
        );
    }
    for (name, bus, numa) in
        [("hsn0", "c5", 3), ("hsn1", "cd", 1), ("hsn2", "d5", 0), ("hsn3", "dd", 2)]
    {
        let address = format!("0000:{bus}:00.0");
        let link = Some(("16.0", 16, "16.0", 16));
        let (class, vendor, device) = ("0x020000", "0x17db", "0x0501");
        let parents = "pci0000:00";
        add_pci(&mut s, &Pci { address: &address, parents, class, vendor, device, numa, link });
        let target = format!("../../devices/pci0000:00/{address}/net/{name}\n");
        s.insert(format!("sys/class/net/{name}.target"), target);
        s.insert(format!("sys/class/net/{name}/speed"), "200000\n");
    }
    s.insert("sys/class/net/lo.target", "../../devices/virtual/net/lo\n");
    s
}

/// Eight H200 in two sockets behind four PCIe switches each, four NVSwitches, an adapter next to
/// each GPU; one adapter has lost lanes and one GPU has no domain.
pub fn h200() -> HostSnapshot {
    let mut s = host("dgx", 2);
    for gpu in 0..8u32 {
        let numa = i32::try_from(gpu / 4).unwrap();
        let bus = 0x10 + gpu * 0x18;
        let bridge = format!("0000:{bus:02x}:00.0");
        let address = format!("0000:{:02x}:00.0", bus + 2);
        let nic = format!("0000:{:02x}:00.0", bus + 3);
        let root = format!("pci0000:{bus:02x}");
        let link = Some(("32.0", 16, "32.0", 16));
        let (class, vendor, device) = ("0x060400", "0x1000", "0xc030");
        add_pci(
            &mut s,
            &Pci { address: &bridge, parents: &root, class, vendor, device, numa, link },
        );
        let parents = format!("{root}/{bridge}");
        let (class, vendor, device) = ("0x030200", "0x10de", "0x2335");
        let own = if gpu == 7 { -1 } else { numa };
        add_pci(
            &mut s,
            &Pci { address: &address, parents: &parents, class, vendor, device, numa: own, link },
        );
        let information = format!("Model: \t\t NVIDIA H200\nBus Location: \t {address}\n");
        s.insert(format!("proc/driver/nvidia/gpus/{address}/information"), information);
        let (class, vendor, device) = ("0x020700", "0x15b3", "0x1021");
        let lanes = if gpu == 2 { 8 } else { 16 };
        let link = Some(("32.0", lanes, "32.0", 16));
        add_pci(
            &mut s,
            &Pci { address: &nic, parents: &parents, class, vendor, device, numa, link },
        );
        let target = format!("../../devices/{parents}/{nic}/infiniband/mlx5_{gpu}\n");
        s.insert(format!("sys/class/infiniband/mlx5_{gpu}.target"), target);
        s.insert(format!("sys/class/infiniband/mlx5_{gpu}/ports/1/rate"), "400 Gb/sec (4X NDR)\n");
        let target = format!("../../devices/{parents}/{nic}/net/ib{gpu}\n");
        s.insert(format!("sys/class/net/ib{gpu}.target"), target);
    }
    for switch in 0..4 {
        let address = format!("0000:0{}:00.0", switch + 5);
        let (class, vendor, device, link) = ("0x068000", "0x10de", "0x22a3", None);
        let parents = "pci0000:00";
        add_pci(&mut s, &Pci { address: &address, parents, class, vendor, device, numa: 0, link });
    }
    s.insert("sys/block/nvme0n1.target", "../devices/pci0000:00/0000:00:05.0/nvme/nvme0/nvme0n1\n");
    s.insert("sys/block/nvme0n1/size", "7501476528\n");
    s.insert("sys/block/nvme0n1/device/model", "SAMSUNG MZQL23T8\n");
    s.insert("sys/block/nvme0n1/queue/rotational", "0\n");
    s.insert("sys/block/loop0.target", "../devices/virtual/block/loop0\n");
    s.insert("sys/block/loop0/size", "8\n");
    s
}
