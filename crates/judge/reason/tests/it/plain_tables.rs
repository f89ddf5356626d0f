//! Tables of tools that nobody knows: whatever the layout, the part below its peers is named, and no sound table,
//! series, load or sentence is accused.

use pathline_paste::read_paste;
use pathline_reason::explain_paste;
use pathline_schema::NodeVerdict::{self, Ok, Suspect};

fn verdicts(paste: &str) -> Vec<(NodeVerdict, String)> {
    let answers = explain_paste(&read_paste(paste.as_bytes()), None).answers;
    answers.into_iter().map(|answer| (answer.verdict, answer.reason)).collect()
}

/// The same figures in eight layouts; `part` names a row.
fn layouts(part: &str, gbs: &[f64]) -> Vec<String> {
    let rows = |row: &dyn Fn(&str, f64) -> String| {
        let rows = gbs.iter().enumerate().map(|(at, gbs)| row(&format!("{part}{at}"), *gbs));
        rows.collect::<Vec<_>>().join("\n")
    };
    let mb = |gbs: f64| format!("{:.1}", gbs * 1e3);
    vec![
        format!("name,read_MBps\n{}\n", rows(&|name, gbs| format!("{name},{}", mb(gbs)))),
        format!(
            "| name | MB/s |\n|---|---|\n{}\n",
            rows(&|n, gbs| format!("| {n} | {} |", mb(gbs)))
        ),
        format!(
            "part       bw [MB/s]   t (us)\n{}\n",
            rows(&|n, g| format!("{n}      {}      12.5", mb(g)))
        ),
        format!("part MB/s\n{}\n", rows(&|n, gbs| format!("{n} {}", mb(gbs)))),
        format!(
            "all rates (MB/s)\npart    rate\n{}\n",
            rows(&|n, gbs| format!("{n}    {}", mb(gbs)))
        ),
        rows(&|name, gbs| format!("{name}: {gbs:.3} GB/s")),
        rows(&|n, g| format!("2026-01-02 03:04:05,678 - INFO - part={n} bw_gbps={:.3}", g * 8.0)),
        format!(
            "[{}]",
            rows(&|n, g| format!("{{\"part\": \"{n}\", \"gb_s\": {g:.3}}}")).replace("}\n", "},\n")
        ),
    ]
}

#[test]
fn the_part_below_its_peers_is_named_in_every_layout() {
    for part in ["node0", "nvme", "rank-"] {
        for (slow, share) in [(0, 0.5), (2, 0.25), (4, 0.8)] {
            let rate = |at: usize| 5.1 + 0.01 * at as f64;
            let gbs: Vec<f64> =
                (0..6).map(|at| if at == slow { rate(at) * share } else { rate(at) }).collect();
            for paste in layouts(part, &gbs) {
                let first = verdicts(&paste).into_iter().next().expect("an answer");
                assert_eq!(first.0, Suspect, "{paste}");
                assert!(first.1.contains(&format!("{part}{slow}")), "{paste}\n{}", first.1);
            }
            let sound: Vec<f64> = (0..6).map(rate).collect();
            for paste in layouts(part, &sound) {
                assert!(verdicts(&paste).iter().all(|one| one.0 != Suspect), "{paste}");
            }
        }
    }
}

#[test]
fn drives_are_advised_only_where_they_are_named() {
    let checks = |part: &str| {
        let paste = format!("part  GB/s\n{part}1  5.1\n{part}2  5.0\n{part}3  5.1\n");
        let answers = explain_paste(&read_paste(paste.as_bytes()), None).answers;
        answers[0].checks.iter().map(|check| check.command).collect::<String>()
    };
    assert!(checks("nvme").contains("iostat") && checks("node").is_empty());
}

#[test]
fn series_loads_and_products_are_no_peers() {
    for paste in [
        "size      MB/s\n64K      100\n128K     200\n256K    390\n512K    700\n",
        "step 1: 5.1 GB/s\nstep 2: 5.0 GB/s\nstep 3: 1.1 GB/s\nstep 4: 5.1 GB/s\n",
        "| RTX 3060 | 360 GB/s |\n| RTX 3090 | 936 GB/s |\n| RTX 4090 | 1008 GB/s |\n",
        "IFACE   rxkB/s   txkB/s\neth0    90000.0   20.0\neth1    10.0   20.0\n",
        "pcie3: 12.1 GB/s\npcie4: 25.1 GB/s\npcie5: 25.0 GB/s\n",
        "threads  GB/s\n1   3.0\n2   12.1\n4  12.0\n8  12.1\n",
        "I get 30 GB/s on node1\nand 12 GB/s on node2, why?\n",
        "read 12.3 MB/s eta 0:00:10\nread 1.3 MB/s eta 0:00:09\nread 12.1 MB/s eta 0:00:08\n",
    ] {
        assert!(verdicts(paste).iter().all(|one| one.0 != Suspect), "{paste}");
    }
}

#[test]
fn copies_of_gpus_take_the_limit_of_their_product() {
    let rows =
        |slow: f64| format!("4 x H100 SXM\ngpu,h2d_GBps\n0,55.1\n1,55.2\n2,{slow}\n3,55.0\n");
    // PCIe 5 x16 has 63.0 GB/s.
    assert_eq!(verdicts(&rows(55.0))[0].0, Ok);
    let slow = &verdicts(&rows(27.5))[0];
    assert!(slow.0 == Suspect && slow.1.contains("gpu2"), "{}", slow.1);
}

#[test]
fn a_stated_line_is_the_limit_of_streams() {
    let run = |gbits: f64, streams: usize| {
        let rows = (0..streams).map(|at| {
            let each = gbits / streams as f64;
            format!("[ {at}]   0.00-10.00  sec  33 GBytes  {each:.3} Gbits/sec    receiver\n")
        });
        format!("\tSpeed: 100000Mb/s\n{}", rows.collect::<String>())
    };
    // Ethernet carries 1448 of 1538 B.
    assert_eq!(verdicts(&run(94.1, 8))[0].0, Ok);
    let one = &verdicts(&run(28.0, 1))[0];
    assert!(one.0 == Suspect && one.1.contains("one stream"), "{}", one.1);
    assert_eq!(verdicts(&run(28.0, 8))[0].0, Suspect);
}
