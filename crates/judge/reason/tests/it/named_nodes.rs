//! Pastes on a described node, on the one that they name, and runs whose settings differ.

use std::fmt::Write as _;

use pathline_flow::MachineDesc;
use pathline_paste::read_paste;
use pathline_reason::{
    PasteAnswer, RowPredictor, explain_on_node, explain_paste, other_product, preset_of, whole_node,
};
use pathline_schema::NodeVerdict::{Ok, Suspect};

fn preset(name: &str) -> MachineDesc {
    MachineDesc::preset(name).expect("it comes with the program")
}

fn on(machine: &str, paste: &str) -> PasteAnswer {
    let node = RowPredictor::from_desc(&preset(machine)).expect("a network");
    let found = explain_on_node(&read_paste(paste.as_bytes()), &node, None);
    found.answers.into_iter().next().expect("an answer")
}

/// OSU's table of rates in GB/s.
fn osu(title: &str, rows: &[(u64, f64)]) -> String {
    let mut text = format!("{title} Bandwidth Test v7.5\n# Size      Bandwidth (MB/s)\n");
    for (bytes, gbs) in rows {
        writeln!(text, "{bytes} {:.3}", gbs * 1e3).expect("text");
    }
    text
}

#[test]
fn a_plateau_is_judged_before_small_sizes() {
    // SDMA has 50 GB/s whatever the links; 1 B in 2.2 us is 0.46 MB/s.
    let rows = [(1, 0.00046), (64, 0.0295), (1 << 20, 45.7), (2 << 20, 47.9), (4 << 20, 49.1)];
    let found = on("mi250x", &osu("# OSU MPI-ROCM", &rows));
    assert_eq!((found.verdict, found.limit_gbs), (Ok, Some(200.0)), "{}", found.reason);
    assert!(found.reason.contains("HSA_ENABLE_SDMA=0 the model has 111 GB/s"), "{}", found.reason);
    assert!(found.lines().iter().all(|(_, text)| !text.contains(" 0.000 ")), "{found:?}");
    // Settings of UCX are not of Cray MPICH, which the model has, too.
    let other =
        on("mi250x", &format!("UCX_TLS: self,rocm_copy,rc_x\n{}", osu("# OSU MPI-ROCM", &rows)));
    assert!(other.rows.iter().all(|row| row.subject.contains(" by ucx ")), "{:?}", other.rows);
    // A quarter of that is neither.
    let slow = rows.map(|(bytes, gbs)| (bytes, gbs / 4.0));
    assert_ne!(on("mi250x", &osu("# OSU MPI-ROCM", &slow)).verdict, Ok);
}

/// 18 x 26.5625 GB/s; sums in the switches count 2 (8 - 1) / (8 + 1) times for busbw.
#[test]
fn a_limit_above_the_links_says_what_sums() {
    let rows = "8 GPUs, all_reduce_perf\n# nThread 1 nGpus 8 minBytes 8 maxBytes 8\n\
                8589934592 2147483648 float sum -1 42949 200.0 350.0 0 42949 200.0 350.0 0\n";
    let found = on("hgx-h100", rows);
    let text: String = found.lines().into_iter().map(|(_, text)| text + " ").collect();
    assert!(text.contains("744 GB/s, by 478 GB/s of links and sums in the switches"), "{text}");
}

#[test]
fn a_drop_that_the_model_has_is_no_outlier() {
    let sizes: Vec<(u64, f64)> = (10..=30).map(|power| (1 << power, 1.0)).collect();
    let predicted = on("mi250x", &osu("# OSU MPI", &sizes)).rows;
    let rows = || sizes.iter().zip(&predicted).map(|((bytes, _), row)| (*bytes, row.predicted));
    let best = rows().map(|row| row.1).fold(0.0, f64::max);
    assert!(rows().any(|row| row.0 == 1 << 30 && row.1 < best / 2.0), "buffers outgrow the caches");
    let found = on("mi250x", &osu("# OSU MPI", &rows().collect::<Vec<_>>()));
    assert_eq!(found.verdict, Ok, "{}", found.reason);
    assert!(found.also.iter().any(|text| text.contains("the model has the same")), "{found:?}");
    // A size at a third of the model's is one.
    let dip = |(bytes, gbs): (u64, f64)| (bytes, if bytes == 1 << 22 { gbs / 3.0 } else { gbs });
    let found = on("mi250x", &osu("# OSU MPI", &rows().map(dip).collect::<Vec<_>>()));
    assert!(found.verdict == Suspect && found.reason.contains("4194304 B"), "{}", found.reason);
}

#[test]
fn runs_under_other_settings_are_no_peers() {
    let run = |sdma: u32, gpu: u32, gbs: f64| {
        let title =
            format!("# pathline: Cray MPICH, ranks 0 and {gpu}, vram, HSA_ENABLE_SDMA={sdma}");
        osu(&format!("{title}\n# OSU MPI-ROCM"), &[(1 << 26, gbs * 0.98), (1 << 30, gbs)])
    };
    let first = |paste: String| {
        let found = explain_paste(&read_paste(paste.as_bytes()), None);
        found.answers.into_iter().find(|answer| answer.first_line < 5).expect("an answer")
    };
    let found = first(run(1, 1, 50.3) + &run(0, 1, 158.0));
    let text = "HSA_ENABLE_SDMA=1 here, HSA_ENABLE_SDMA=0 there";
    assert!(
        found.verdict != Suspect && found.also.iter().any(|also| also.contains(text)),
        "{found:?}"
    );
    assert_eq!(first(run(1, 1, 25.0) + &run(1, 1, 50.3)).verdict, Suspect);
    // Another pair has other links.
    assert_ne!(first(run(1, 5, 37.0) + &run(1, 1, 50.3)).verdict, Suspect);
    assert_eq!(
        on("mi250x", &run(1, 5, 37.0)).rows[0].subject.get(..21),
        Some("send over gpu0>gpu5 b")
    );
}

#[test]
fn a_paste_names_its_node() {
    let rank = |n: u32| {
        format!("#  Rank  {n} Group  0 Pid 1 on n1 device  {n} [0xc1] AMD Instinct MI250X\n")
    };
    let ranks: String = (0..8).map(rank).collect();
    let paste = format!(
        "# nThread 1 nGpus 1 minBytes 1 maxBytes 1\n{ranks}\
         1073741824 268435456 float sum -1 15660 68.6 120.0 0 15660 68.6 120.0 0\n"
    );
    let reading = read_paste(paste.as_bytes());
    assert_eq!(whole_node(&reading), Some(("MI250X", 8)));
    assert_eq!(
        (preset_of("MI250X", Some(8)), preset_of("MI250X", Some(4))),
        (Some("mi250x"), None)
    );
    assert_eq!(other_product(&reading, preset("mi250x").healthy_topology()), None);
    let other = other_product(&reading, preset("hgx-h200").healthy_topology());
    assert_eq!(other, Some(("MI250X", "H200")));
    // 28.2 of the 36 GB/s of this processor's fabric, where PCIe 4 has 31.5.
    let host = "Device: 0,  AMD EPYC 7A53 64-Core Processor\nAMD Instinct MI250X\n\
                memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n 0 1\n0 28.2 28.2\n";
    let found = explain_paste(&read_paste(host.as_bytes()), None).answers.remove(0);
    assert_eq!((found.verdict, found.limit_gbs), (Ok, Some(36.0)), "{}", found.reason);
}
