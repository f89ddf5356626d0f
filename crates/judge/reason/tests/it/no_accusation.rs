//! Sound figures that a limit, a peer or a row of another kind would accuse: each with the arithmetic that clears it.

use std::fmt::Write as _;

use pathline_paste::read_paste;
use pathline_reason::{PasteAnswer, explain_paste};
use pathline_schema::NodeVerdict::{self, Ok, Suspect, Undecided};

fn answers(paste: &str) -> Vec<PasteAnswer> {
    explain_paste(&read_paste(paste.as_bytes()), None).answers
}

/// The first verdict, and its limit in GB/s.
fn judged(paste: &str) -> (NodeVerdict, Option<f64>) {
    let first = answers(paste).into_iter().next().expect("an answer");
    (first.verdict, first.limit_gbs.map(|gbs| (gbs * 1000.0).round() / 1000.0))
}

/// all_reduce over 8 GPUs whose starts take 20 us and whose plateau is `busbw`; `longer` multiplies the time of a size.
fn reduced(gpu: &str, busbw: f64, longer: impl Fn(u32) -> f64) -> String {
    let mut text = format!("8 x {gpu}\n# nThread 1 nGpus 8 minBytes 8 maxBytes 1\n");
    for power in 3..=33 {
        let bytes = 1_u64 << power;
        let us = (20.0 + bytes as f64 * 1.75 / busbw / 1e3) * longer(power);
        let alg = bytes as f64 / us / 1e3;
        let values = format!("{us:.2} {alg:.3} {:.3} 0", alg * 1.75);
        writeln!(text, "{bytes} {} float sum -1 {values} {values}", bytes / 4).expect("text");
    }
    text
}

#[test]
fn a_named_system_has_the_adapters_of_its_data_sheet() {
    let rows = reduced("A100-SXM4-80GB", 186.0, |_| 1.0).replace("1.75", "1.875");
    let two = format!("Two DGX A100 systems, 2 nodes\n{}", rows.replace("8 x ", ""));
    // 186 of 8 x 25 GB/s.
    assert_eq!(judged(&two), (Ok, Some(200.0)));
}

#[test]
fn starts_vary_and_are_no_slow_sizes() {
    // 4 KiB at 232 GB/s take 0.03 us of 20: the time is that of a start.
    let starts = |power| if [3, 7, 12].contains(&power) { 3.0 } else { 1.0 };
    assert_eq!(judged(&reduced("A100-SXM4-80GB", 232.0, starts)).0, Ok);
    // 64 MiB take 506 us of 526.
    let rows = |power| if power == 26 { 3.0 } else { 1.0 };
    assert_eq!(judged(&reduced("A100-SXM4-80GB", 232.0, rows)).0, Suspect);
}

/// A matrix of p2pBandwidthLatencyTest with one rate.
fn pairs(gpus: &[&str], access: &str, title: &str, gbs: f64) -> String {
    let mut text = String::new();
    for (at, name) in gpus.iter().enumerate() {
        writeln!(text, "Device: {at}, {name}, pciBusID: {at}, pciDeviceID: 0").expect("text");
        for other in (0..gpus.len()).filter(|other| *other != at) {
            writeln!(text, "Device={at} {access} Access Peer Device={other}").expect("text");
        }
    }
    let header: Vec<String> = (0..gpus.len()).map(|gpu| gpu.to_string()).collect();
    writeln!(text, "Unidirectional {title} Matrix (GB/s)\n D\\D {}", header.join(" "))
        .expect("text");
    for a in 0..gpus.len() {
        let row = (0..gpus.len()).map(|b| if a == b { "1500".to_owned() } else { gbs.to_string() });
        writeln!(text, "{a} {}", row.collect::<Vec<_>>().join(" ")).expect("text");
    }
    text
}

#[test]
fn copies_through_the_host_have_its_limit() {
    let h100 = ["NVIDIA H100 80GB HBM3"; 4];
    // 37 / 63 = 59 % of PCIe, which the bytes pass twice; of 450 GB/s of NVLink it would be 8 %.
    assert_eq!(judged(&pairs(&h100, "CAN", "P2P=Disabled Bandwidth", 37.0)), (Ok, Some(63.0)));
    // 8.6 / 31.5 = 27 %: what the sockets and switches between them carry, the paste does not say.
    let far = pairs(&["GeForce RTX 3090"; 4], "CANNOT", "P2P=Enabled Bandwidth", 8.6);
    assert_eq!(judged(&far), (Undecided, Some(31.5)));
}

fn sent(lines: &str, device: &str, mb: f64) -> String {
    format!(
        "{lines}\n RDMA_Write BW Test\n Dual-port : OFF  Device : {device}\n#bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n65536 5000 {mb} {mb} 0.1\n"
    )
}

#[test]
fn software_that_fills_its_line_is_not_accused() {
    // 111.6 x 2^20 B = 0.117 of 0.125 GB/s = 94 %: 1448 of 1538 B of a frame are data.
    let gbe = "netdev eno1\n$ ethtool eno1\nSpeed: 1000Mb/s";
    assert_eq!(judged(&sent(gbe, "rxe0", 111.6)), (Ok, Some(0.125)));
    // 400 x 2^20 B = 0.42 of 3.125 GB/s.
    assert_eq!(judged(&sent("25GbE NICs", "rxe0", 400.0)).0, Suspect);
    // A run of 1.3 ms at 98 % of a line is at its line.
    let short = sent("ConnectX-6 HDR 200Gb/s", "mlx5_0", 23380.0).replace("5000", "500");
    assert_eq!(judged(&short), (Ok, Some(25.0)));
}

/// rocm-bandwidth-test with one processor.
fn rocm(processor: &str, gpus: &[(&str, f64)], pair: &str) -> String {
    let mut text = format!("Device: 0, {processor}\n");
    for (at, (name, _)) in (1..).zip(gpus) {
        writeln!(text, "Device: {at}, {name}, GPU-{at}, 0{at}:0.0").expect("text");
    }
    text.push_str("Unidirectional copy peak bandwidth GB/s\n D/D 0");
    (1..=gpus.len()).for_each(|at| text.push_str(&format!(" {at}")));
    let host: Vec<String> = gpus.iter().map(|(_, gbs)| gbs.to_string()).collect();
    writeln!(text, "\n 0 N/A {}", host.join(" ")).expect("text");
    for (at, (_, gbs)) in gpus.iter().enumerate() {
        let row = (0..gpus.len()).map(|other| if other == at { "500" } else { pair });
        let row: Vec<&str> = row.collect();
        writeln!(text, " {} {gbs} {}", at + 1, row.join(" ")).expect("text");
    }
    text
}

#[test]
fn unlike_things_are_not_compared() {
    // 12.9 / 15.75 = 82 % of the third generation, which is all that the processor has.
    let old = rocm("Intel(R) Xeon(R) Gold 6148 CPU", &[("AMD Instinct MI100", 12.9); 2], "12.1");
    assert!(answers(&old).iter().all(|answer| answer.verdict == Ok), "{old}");
    assert_eq!(judged(&old).1, Some(15.75));
    // The same with one of the fourth: 41 % of 31.5.
    let new = rocm("AMD EPYC 7542", &[("AMD Instinct MI100", 12.9); 2], "12.1");
    assert_eq!(judged(&new), (Suspect, Some(31.5)));
    // The GPU of the processor has no peers.
    let gpus = [("AMD Radeon RX 7900 XTX", 26.9), ("AMD Radeon Graphics", 14.2)];
    let mixed = answers(&rocm("AMD Ryzen 7 7700X", &gpus, "14.0"));
    assert_eq!((mixed.len(), mixed[0].verdict, mixed[0].limit_gbs), (1, Ok, Some(31.5)));
}

fn fio(lines: &str, spec: &str, result: &str, us: f64) -> String {
    format!(
        "{lines}\nj: (g=0): rw={spec}\nj: (groupid=0, jobs=1): err= 0: pid=1\n  {result}\n     lat (usec): min=1, avg={us}\n"
    )
}

#[test]
fn drives_are_judged_by_what_fills_them() {
    let large = "read, bs=(R) 1024KiB-1024KiB, ioengine=libaio, iodepth=32";
    let read = "read: IOPS=131, BW=131MiB/s (137MB/s)";
    // 0.137 of 0.15 GB/s: the link is full, and it is a quarter of what the drive can.
    let down = "SATA Version is: SATA 3.2, 6.0 Gb/s (current: 1.5 Gb/s)";
    let first = answers(&fio(down, large, read, 243_000.0)).remove(0);
    assert_eq!((first.verdict, first.limit_gbs), (Suspect, Some(0.15)));
    assert!(first.reason.contains("1.50 Gbit/s, where the drive can 6.00"), "{}", first.reason);
    // One write at a time that waits for its flush is a time: 2300 B / 0.33 ms of 0.6 GB/s say nothing.
    let flush =
        "ata3: SATA link up 6.0 Gbps\n$ fio --rw=write --ioengine=sync --fdatasync=1 --bs=2300";
    let small = "write, bs=(R) 2300B-2300B, ioengine=sync, iodepth=1";
    let found =
        answers(&fio(flush, small, "write: IOPS=1192, BW=2678KiB/s (2742kB/s)", 326.6)).remove(0);
    assert_eq!(found.verdict, Undecided);
    assert!(found.reason.contains("flush"), "{}", found.reason);
    // Four drives of 3.5 GB/s: 13.5 of 14; written at 4.08 of 4.0.
    let four = "4 x NVMe drives, each rated at 3,500 MB/s read";
    assert_eq!(
        judged(&fio(four, large, "read: IOPS=12.9k, BW=12.6GiB/s (13.5GB/s)", 2400.0)),
        (Ok, Some(14.0))
    );
    // 6.82 of the 7.0 GB/s of a data sheet.
    let model =
        fio("Samsung 980 PRO 1TB", large, "read: IOPS=6502, BW=6502MiB/s (6818MB/s)", 4900.0);
    assert_eq!(judged(&model), (Ok, Some(7.0)));
    let write = large.replace("read", "write");
    // 7.55 of 6.8 is more than its rating, with larger blocks; 9.9 is another drive.
    let above = |mb: f64| {
        let result = format!("read: IOPS=7200, BW={mb}MB/s (1MB/s)");
        judged(&fio("a drive rated 6800 MB/s", large, &result, 4900.0)).0
    };
    assert_eq!((above(7550.0), above(9900.0)), (Ok, Undecided));
    let both = "a drive rated 6800 MB/s read and 4000 MB/s write";
    assert_eq!(
        judged(&fio(both, &write, "write: IOPS=3893, BW=3893MiB/s (4082MB/s)", 8000.0)),
        (Ok, Some(4.0))
    );
}

#[test]
fn bridges_have_the_links_of_their_product() {
    let matrix = "GPU0 GPU1 CPU Affinity\nGPU0 X NV4 0-9\nGPU1 NV4 X 0-9\n";
    let copies = |line: &str, gbs: f64| {
        format!(
            "{line}\n{matrix}\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n 0 1\n0 N/A {gbs}\n1 {gbs} N/A\n"
        )
    };
    // 4 x 14.06 of an RTX 3090, 4 x 25 of an A100: 52.7 is 94 and 53 %.
    assert_eq!(judged(&copies("RTX 3090", 52.7)), (Ok, Some(56.25)));
    assert_eq!(judged(&copies("A30", 52.7)).0, Suspect);
    // Without a product one rate of a link has a usual share: 94 % of 56, 66 % of 80, 53 % of 100.
    assert_eq!(judged(&copies("two cards", 52.7)), (Ok, Some(56.25)));
    assert_eq!(judged(&copies("two cards", 93.0)), (Ok, Some(100.0)));
    // 77 is 96 % of 80 and 77 % of 100.
    assert_eq!(judged(&copies("two cards", 77.0)), (Undecided, None));
}

#[test]
fn a_limit_below_the_figure_is_none() {
    let host = |line: &str, gbs: f64| {
        format!("{line}\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n 0 1\n0 {gbs} {gbs}\n")
    };
    let found = answers(&host("A100 PCIe", 54.7)).remove(0);
    assert_eq!((found.verdict, found.limit_gbs), (Undecided, None));
    assert!(found.limit.starts_with("unknown: 54.7 GB/s are more than 31.5"), "{}", found.limit);
    // A card with 8 lanes has no narrower form of 16.
    let narrow = answers(&host("GeForce RTX 4060", 3.2)).remove(0);
    assert!(narrow.verdict == Suspect && !narrow.reason.contains("x16"), "{}", narrow.reason);
}
