//! GPUs without links among others, without a named node; GPUs that a launcher hides from each other.

use pathline_paste::read_paste;
use pathline_reason::explain_paste;

fn first(text: &str) -> (String, String) {
    let found = explain_paste(&read_paste(text.as_bytes()), None);
    let answer = &found.answers[0];
    let cause = answer.causes.first().map_or(String::new(), |cause| cause.text.clone());
    (cause, answer.limit.clone())
}

/// GPUs of one processor each; `links` their NVLinks to a hidden switch.
fn xml(links: &[u32], device: &[&str]) -> String {
    let gpu = |(nth, (links, device)): (usize, (&u32, &&str))| {
        let link = match links {
            0 => String::new(),
            n => format!(r#"<nvlink target="fffffff:ffff:ff" count="{n}" tclass="0x068000"/>"#),
        };
        format!(
            r#"<pci busid="000{nth}:01:00.0" class="0x030200" vendor="0x10de" device="{device}" link_speed="32.0 GT/s PCIe" link_width="16">
            <gpu dev="{nth}" sm="90">{link}</gpu></pci>"#
        )
    };
    let gpus: String = links.iter().zip(device).enumerate().map(gpu).collect();
    format!(r#"<system version="1"><cpu numaid="0" affinity="ffff">{gpus}</cpu></system>"#)
}

#[test]
fn a_gpu_without_links_is_named_in_files() {
    let h100 = "0x2330";
    for links in [&[18, 0, 18][..], &[18, 18, 18, 18, 0, 18, 18, 18]] {
        let (cause, limit) = first(&xml(links, &vec![h100; links.len()]));
        let lone = links.iter().position(|links| *links == 0).unwrap();
        assert!(cause.starts_with(&format!("gpu{lone} has no NVLink")), "{cause}");
        // The others' 18 links of 26.56 GB/s.
        assert!(limit.starts_with("478 GB/s"), "{limit}");
    }
    let (cause, _) = first(&xml(&[18, 16, 18], &[h100; 3]));
    assert!(cause.starts_with("gpu1 to a switch shows 16 links, the others have 18"), "{cause}");
    // A card for the display, and a node without any.
    for (links, device) in [([18, 18, 0], [h100, h100, "0x1eb8"]), ([0; 3], [h100; 3])] {
        assert_eq!(first(&xml(&links, &device)).0, "no part differs from its peers");
    }
}

#[test]
fn a_gpu_without_links_is_named_in_matrices() {
    let matrix = |gpus: u32, link: &dyn Fn(u32, u32) -> &'static str| {
        let header: String = (0..gpus).map(|gpu| format!("GPU{gpu} ")).collect();
        let row = |a: u32| {
            let cells = (0..gpus).map(|b| if a == b { "X" } else { link(a, b) });
            format!("GPU{a} {} 0-9 0\n", cells.collect::<Vec<_>>().join(" "))
        };
        format!("{header}CPU Affinity NUMA Affinity\n{}", (0..gpus).map(row).collect::<String>())
    };
    let lone = matrix(4, &|a, b| if a == 3 || b == 3 { "SYS" } else { "NV4" });
    assert!(first(&lone).0.starts_with("gpu3 has no NVLink, the 3 others"), "{:?}", first(&lone));
    // A bridge joins a pair: the third GPU has none by design.
    let bridge = matrix(3, &|a, b| if a + b == 1 { "NV4" } else { "PHB" });
    assert_eq!(first(&bridge).0, "no part differs from its peers");
    let all = "GPU0 GPU1 GPU2\n";
    let row = |a: u32| {
        let cell = |b| {
            if a == b {
                "0"
            } else if a == 1 || b == 1 {
                "PCIE"
            } else {
                "XGMI"
            }
        };
        format!("GPU{a} {} {} {}\n", cell(0), cell(1), cell(2))
    };
    let types = format!("== Link Type between two GPUs ==\n{all}{}{}{}", row(0), row(1), row(2));
    // Of three, two that are joined may be one package.
    assert_eq!(first(&types).0, "no part differs from its peers");
}

#[test]
fn links_to_itself_are_no_links_and_no_verdict() {
    let text = xml(&[4, 4], &["0x2330"; 2])
        .replacen("fffffff:ffff:ff", "0000:01:00.0", 1)
        .replacen("fffffff:ffff:ff", "0001:01:00.0", 1)
        .replace("0x068000", "0x030200");
    let found = explain_paste(&read_paste(text.as_bytes()), None);
    let answer = &found.answers[0];
    assert!(answer.reason.contains("itself") && answer.limit.starts_with("unknown"), "{answer:?}");
}

#[test]
fn a_setting_explains_a_mapping_that_is_refused() {
    let message =
        "n4:81:99 [2] transport/p2p.cc:275 NCCL WARN Cuda failure 'invalid resource handle'";
    let reason = |command: &str| {
        let found = explain_paste(&read_paste(format!("{command}\n{message}\n").as_bytes()), None);
        found.answers[0].reason.clone()
    };
    assert!(
        reason("srun -n 4 --gpu-bind=per_task:1 ./train").contains("Slurm shows each task only")
    );
    assert!(reason("srun -n 4 --gpus-per-task=1 ./train").contains("hides those of the others"));
    assert!(reason("srun -n 4 --gpu-bind=none ./train").contains("could not map"));
}
