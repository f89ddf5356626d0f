//! Limits that follow from the figure, the links of a pair or a drive's physics, and the shares of them that are usual.

use std::fmt::Write as _;

use pathline_paste::read_paste;
use pathline_reason::{PasteAnswer, explain_paste};
use pathline_schema::NodeVerdict::{self, Ok, Suspect, Undecided};

fn first(paste: &str) -> PasteAnswer {
    let found = explain_paste(&read_paste(paste.as_bytes()), None);
    found.answers.into_iter().next().expect("an answer")
}

/// The verdict and the limit in GB/s.
fn judged(paste: &str) -> (NodeVerdict, Option<f64>) {
    let found = first(paste);
    (found.verdict, found.limit_gbs.map(|gbs| (gbs * 100.0).round() / 100.0))
}

/// A matrix of host copies with one rate.
fn inward(lines: &str, gbs: f64) -> String {
    format!("{lines}\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n 0 1\n0 {gbs} {gbs}\n")
}

/// p2pBandwidthLatencyTest on `gpus` GPUs of a product, one direction.
fn pairs(product: &str, gpus: u32, gbs: f64, access: &str) -> String {
    let mut text = String::new();
    for gpu in 0..gpus {
        writeln!(text, "Device: {gpu}, {product}, pciBusID: {gpu}, pciDeviceID: 0").expect("text");
    }
    for (a, b) in (0..gpus).flat_map(|a| (0..gpus).map(move |b| (a, b))).filter(|(a, b)| a != b) {
        writeln!(text, "Device={a} {access} Access Peer Device={b}").expect("text");
    }
    let header: Vec<String> = (0..gpus).map(|gpu| gpu.to_string()).collect();
    let header = header.join(" ");
    writeln!(
        text,
        "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n D\\D {header}"
    )
    .expect("text");
    for a in 0..gpus {
        let row = (0..gpus).map(|b| if a == b { "1500".to_owned() } else { gbs.to_string() });
        writeln!(text, "{a} {}", row.collect::<Vec<_>>().join(" ")).expect("text");
    }
    text
}

fn fio(lines: &str, spec: &str, result: &str) -> String {
    format!(
        "{lines}\nj: (g=0): rw={spec}\nj: (groupid=0, jobs=1): err= 0: pid=1\n  {result}\n     lat (usec): min=1, avg=9000.0\n"
    )
}

#[test]
fn a_rate_bounds_the_link_that_carries_it() {
    // 54 / 63 = 86 %, and 31.5 carries no 54.
    assert_eq!(judged(&inward("two cards", 54.0)), (Ok, Some(63.0)));
    // 25 is 79 % of PCIe 4 x16 and 40 % of 5 x16: which, the paste does not say.
    let open = first(&inward("two cards", 25.0));
    assert_eq!((open.verdict, open.limit_gbs), (Undecided, None));
    assert!(open.limit.contains("79 %") && open.limit.contains("40 %"), "{}", open.limit);
    // Of the product, and of the link that lspci shows: 11 of 15.75 is 70 %, 22.2 of 31.5 too.
    assert_eq!(judged(&inward("NVIDIA A10", 22.2)), (Ok, Some(31.5)));
    assert_eq!(
        judged(&inward("NVIDIA A10\nLnkSta: Speed 8GT/s, Width x16", 11.1)),
        (Ok, Some(15.75))
    );
    // 9 of 31.5 is 29 %.
    assert_eq!(judged(&inward("NVIDIA A10", 9.0)).0, Suspect);
}

#[test]
fn pairs_have_the_links_that_their_board_wires() {
    // 18 links of 26.56 GB/s over three peers: 6 a pair, 159 GB/s; 132 are 83 %.
    assert_eq!(judged(&pairs("NVIDIA H100 80GB HBM3", 4, 132.0, "CAN")), (Ok, Some(159.38)));
    // Of eight GPUs there is a switch: 132 of 478.
    assert_eq!(judged(&pairs("NVIDIA H100 80GB HBM3", 8, 132.0, "CAN")), (Suspect, Some(478.13)));
    // Staged in host memory: 17 of 31.5 is 54 %; with access P2P would give 65 % and more.
    assert_eq!(judged(&pairs("NVIDIA L40S", 3, 17.0, "CANNOT")), (Ok, Some(31.5)));
    assert_ne!(judged(&pairs("NVIDIA L40S", 3, 17.0, "CAN")).0, Ok);
}

#[test]
fn sums_are_shared_among_the_gpus_that_are_counted() {
    // 216 / 4 = 54 of 63.
    let sum = "SUM host_to_device_memcpy_ce 216.00\n";
    assert_eq!(judged(&format!("A node with 4 x H100\n{sum}")), (Ok, Some(63.0)));
    let open = first(sum);
    assert_eq!(open.verdict, Undecided);
    assert!(
        open.ask.contains("how many GPUs") && open.limit.contains("54.0 of 4"),
        "{}",
        open.limit
    );
}

#[test]
fn drives_have_the_limits_of_their_kind() {
    let disk = "$ lsblk -d -o NAME,ROTA\nNAME ROTA\nsdq 1";
    let random = "randread, bs=(R) 4096B-4096B, ioengine=libaio, iodepth=8";
    // A seek and half a turn: at most 200 a second, 200 x 4096 B = 0.82 MB/s.
    assert_eq!(judged(&fio(disk, random, "read: IOPS=150, BW=600KiB/s (614kB/s)")).0, Ok);
    // 30 a second with 8 in flight: any disk makes more.
    let slow = first(&fio("", random, "read: IOPS=30, BW=120KiB/s (123kB/s)"));
    assert_eq!(slow.verdict, Suspect);
    assert!(slow.reason.contains("267 ms each"), "{}", slow.reason);
    // 0.5 of SATA's 0.6 GB/s.
    let large = "read, bs=(R) 1024KiB-1024KiB, ioengine=libaio, iodepth=16";
    let sata = "ata3: SATA link up 6.0 Gbps";
    assert_eq!(judged(&fio(sata, large, "read: IOPS=480, BW=480MiB/s (503MB/s)")), (Ok, Some(0.6)));
    // 117 of 125 MB/s of the network.
    let network = "$ ethtool eth0\nSpeed: 1000Mb/s";
    assert_eq!(judged(&fio(network, large, "read: IOPS=112, BW=112MiB/s (117MB/s)")).0, Ok);
}

#[test]
fn descriptions_have_no_verdict() {
    let text = "GPU0 GPU1 CPU Affinity\nGPU0 X NV12 0-9\nGPU1 NV12 X 0-9\n";
    let found = first(text);
    assert!(found.is_description && found.lines().iter().all(|line| line.0 != "verdict"));
}
