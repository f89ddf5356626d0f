//! Matrices of `nvidia-smi topo`, `rocm-smi --showtopo` and `amd-smi topology` as topologies.

use pathline_schema::{LinkEnd, LinkKind, Topology};
use pathline_topo::from_text;

fn read(text: &str) -> Topology {
    from_text("f.txt", text).unwrap()
}

fn codes(topology: &Topology) -> Vec<&str> {
    topology.warnings.iter().map(|warning| warning.code.as_str()).collect()
}

/// A matrix of nvidia-smi: GPUs of which each pair has the same cell, two to a domain.
fn even(gpus: u32, cell: &str, memory: impl Fn(u32) -> String) -> String {
    let name = |n: u32| format!("GPU{n}");
    let mut text = (0..gpus).map(name).collect::<Vec<_>>().join("\t");
    text.push_str("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n");
    for a in 0..gpus {
        let cells = (0..gpus).map(|b| if a == b { " X " } else { cell });
        let cells = cells.collect::<Vec<_>>().join("\t");
        let numa = a / 2;
        text +=
            &format!("GPU{a}\t{cells}\t{}-{}\t{numa}\t\t{}\n", numa * 8, numa * 8 + 7, memory(a));
    }
    text
}

fn none(_: u32) -> String {
    "N/A".into()
}

fn kinds(topology: &Topology, gpu: u32) -> Vec<(LinkEnd, LinkKind, u32)> {
    let mine = topology.links.iter().filter(|link| link.a == LinkEnd::Gpu(gpu));
    mine.map(|link| (link.b, link.kind, link.width)).collect()
}

#[test]
fn links_are_direct_unless_a_gpu_would_need_more_than_it_has() {
    use LinkKind::Nvlink;
    let eight = read(&even(8, "NV18", none));
    assert_eq!(kinds(&eight, 3), [(LinkEnd::Switch(0), Nvlink, 18)]);
    assert_eq!(codes(&eight), ["nvlink-switches-unseen"]);
    assert_eq!((eight.numa.len(), eight.numa[1].cpus.to_string().as_str()), (4, "8-15"));
    // Four GH200: each pair has 6 of the 18 links, and the host is joined by NVLink-C2C.
    let grace = read(&even(4, "NV6", |gpu| (4 + 8 * gpu).to_string()));
    let (pair, host) = (LinkEnd::Gpu, LinkEnd::Numa(0));
    assert_eq!(
        kinds(&grace, 0),
        [(pair(1), Nvlink, 6), (pair(2), Nvlink, 6), (pair(3), Nvlink, 6), (host, Nvlink, 1)]
    );
    assert!(grace.links.iter().all(|link| link.peak.is_none()) && grace.warnings.is_empty());
    assert_eq!(codes(&read(&even(2, "NV12", none))), ["nvlink-end-unknown"]);
    assert!(read(&even(1, "", |_| "1".into())).links.len() == 1);
}

#[test]
fn a_gpu_with_fewer_links_to_the_switches_is_seen() {
    let all = even(8, "NV6", none);
    let text = all.lines().map(|line| match line.starts_with("GPU5\t") {
        true => line.replace("NV6", "NV5"),
        false if line.starts_with("GPU0\tGPU1") => line.to_owned(),
        false => {
            let mut cells: Vec<&str> = line.split('\t').collect();
            cells[6] = "NV5";
            cells.join("\t")
        }
    });
    let topology = read(&text.collect::<Vec<_>>().join("\n"));
    let width = |gpu| kinds(&topology, gpu)[0].2;
    assert_eq!((width(4), width(5), width(6)), (6, 5, 6));
}

#[test]
fn products_give_rates_and_adapters_their_names() {
    let list = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: a)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: b)\n";
    let matrix = "\tGPU0\tGPU1\tNIC0\tNIC1\nGPU0\tX\tNV4\tPIX\tSYS\nGPU1\tNV4\tX\tSYS\tSYS\n\
                  NIC0\tPIX\tSYS\tX\tSYS\nNIC1\tSYS\tSYS\tSYS\tX\n\nNIC Legend:\n\n  NIC0: mlx5_10\n";
    let topology = read(&format!("$ nvidia-smi -L\n{list}$ nvidia-smi topo -m\n{matrix}"));
    assert_eq!(topology.gpus[1].arch, "sm_90");
    // 4 links of 25 GB/s each.
    assert_eq!(topology.links[0].peak.unwrap().gbs(), 100.0);
    let nics: Vec<_> = topology.nics.iter().map(|nic| (nic.name.as_str(), nic.near_gpu)).collect();
    assert_eq!(nics, [("NIC1", None), ("mlx5_10", Some(0))]);
    assert!(topology.numa.is_empty(), "the matrix has no domains");
}

#[test]
fn pairs_below_a_switch_do_not_pass_the_host() {
    let text = "GPU0 GPU1 GPU2 NIC0 CPU Affinity NUMA Affinity\nGPU0 X PXB SYS PIX 0-7 0\n\
                GPU1 PXB X SYS PXB 0-7 0\nGPU2 SYS SYS X SYS 8-15 1\nNIC0 PIX PXB SYS X\n\
                Legend:\n GPU0 GPU1 GPU2\n GPU0 X NS NS\n GPU1 NS X NS\n GPU2 NS NS X\n";
    let topology = read(text);
    assert_eq!(kinds(&topology, 1)[1], (LinkEnd::Switch(0), LinkKind::Pcie, 1));
    assert_eq!(kinds(&topology, 2), [(LinkEnd::Numa(1), LinkKind::Pcie, 1)]);
    assert_eq!((topology.nics[0].numa, topology.nics[0].near_gpu), (Some(0), Some(0)));
    assert!(topology.warnings[0].text.contains("all 3 pairs: NS, not supported"));
    let permissions = read(" GPU0 GPU1\n GPU0 X GNS\n GPU1 GNS X\n");
    assert_eq!(codes(&permissions), ["peer-access", "links-not-read"]);
    assert!(permissions.links.is_empty() && permissions.has_unread_links());
}

#[test]
fn weights_of_amd_tell_direct_links() {
    let table = |title: &str, cell: fn(u32, u32) -> String| {
        let mut text = format!("=== {title} between two GPUs ===\n GPU0 GPU1 GPU2\n");
        for a in 0..3 {
            let cells = (0..3).map(|b| if a == b { "0".into() } else { cell(a, b) });
            text += &format!("GPU{a} {}\n", cells.collect::<Vec<_>>().join(" "));
        }
        text + "\n"
    };
    let weight = |a: u32, b: u32| if a.abs_diff(b) == 1 { "15".into() } else { "30".into() };
    let xgmi = |_, _| "XGMI".into();
    let hops = table("Hops", |_, _| "1".into());
    let domains = "=== Numa Nodes ===\nGPU[0] : (Topology) Numa Node: 3\n";
    let all = [table("Weight", weight), hops.clone(), table("Link Type", xgmi), domains.into()];
    let topology = read(&all.concat());
    let pairs: Vec<_> = topology.links.iter().map(|link| (link.a, link.b, link.peak)).collect();
    let gpu = LinkEnd::Gpu;
    assert_eq!(pairs, [(gpu(0), gpu(1), None), (gpu(1), gpu(2), None)]);
    assert_eq!((topology.routes.len(), topology.routes[0].hops), (2, 2));
    assert_eq!(
        (topology.gpus[0].numa, codes(&topology).last()),
        (Some(3), Some(&"xgmi-width-unknown"))
    );
    // One hop is any xGMI: nothing is known of direct links.
    assert_eq!(codes(&read(&hops)), ["xgmi-hops-unknown", "xgmi-width-unknown"]);
    let pcie = read(&table("Link Type", |_, _| "PCIE".into()));
    assert!(pcie.links.is_empty() && pcie.warnings.is_empty());
    // rocm-smi prints XXXX for a pair that it cannot read.
    let hidden =
        read(&table("Link Type", |a, b| if a + b == 3 { "XXXX".into() } else { "XGMI".into() }));
    assert!(codes(&hidden).contains(&"links-unreadable"));
    assert_eq!(codes(&read(domains)), Vec::<&str>::new(), "one GPU has no links");
}

#[test]
fn cut_and_foreign_tables_are_named() {
    let whole = even(8, "NV18", none);
    let cut: String = whole.lines().take(6).map(|line| format!("{line}\n")).collect();
    let error = from_text("f.txt", &cut).unwrap_err().to_string();
    assert_eq!(
        error,
        "f.txt:6: the table of 8 GPUs ends without a cell of GPU7; expected a row for each GPU; is it cut off?"
    );
    let error = from_text("f.txt", "GPU0 and GPU1 are slow\n").unwrap_err().to_string();
    assert!(error.contains("nvidia-smi topo -m"), "{error}");
    let twice = read(&format!("{whole}\n{whole}"));
    assert!(twice.warnings.iter().any(|w| w.text.starts_with("line 11 begins another matrix")));
    let many = format!("{whole}{}", "GPU0 X SYS\n".repeat(1_000_000));
    assert_eq!(read(&many).gpus.len(), 8);
    let wide: String = (0..200_000).map(|n| format!("GPU{n} ")).collect();
    assert!(from_text("f.txt", &wide).is_err());
}

#[test]
fn names_of_a_matrix_do_not_steer_a_terminal() {
    let text =
        "GPU0 GPU1 a\u{202e}b\u{7}\nGPU0 X SYS SYS\nGPU1 SYS X SYS\na\u{202e}b\u{7} SYS SYS X\n";
    let name = read(text).nics[0].name.clone();
    assert!(!name.chars().any(char::is_control), "{name:?}");
}
