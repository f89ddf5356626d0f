//! What every command says of a GPU that hangs, and of a node that a check finds faulty.

use std::fs;

use tempfile::TempDir;

use crate::health::{faulty, pathline, stdout};

/// gpu3 of 8 GCDs answers no more from 0.3 s on. gpu2, whose copies to gpu1 it forwards, works.
#[test]
fn a_gpu_that_hangs_is_what_every_command_says_first() {
    let dir = TempDir::new().expect("a folder");
    let fault = "[[fault]]\nelement = \"gpu3\"\nkind = \"hang\"\nafter_ms = 300";
    let sick = faulty(dir.path(), "mi250x", fault);
    let sick = sick.to_str().expect("a path");
    let folder = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let (before, after) = (folder("before"), folder("after"));
    let said = |args: &[&str]| {
        let output = pathline(args);
        let text = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        (text, output.status.code())
    };
    let hangs = "gpu3 hangs: 5 of 5 cases that use it did not end; no other part is in all of them";
    let (text, code) = said(&["run", "-m", "mi250x", "--quick", "-o", &before]);
    assert_eq!(code, Some(0), "{text}");
    // Quick cases within a GPU are of 16 B.
    assert!(text.contains("GPU memory was not tested"), "{text}");
    let (text, code) = said(&["run", "-m", sick, "--quick", "-o", &after]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("FAIL: {hangs}; 34 more were not started")), "{text}");
    assert!(text.contains(&format!("1! {hangs}")) && !text.contains(" 2. "), "{text}");
    assert!(text.contains("reason=pathline`); `dmesg` for amdgpu messages of gpu3"), "{text}");
    let journal = fs::read_to_string(format!("{after}/run.jsonl")).expect("a journal");
    assert!(journal.contains("\"subject\":\"gpu3\"") && !journal.contains("\"subject\":\"gpu2\""));
    let output = pathline(&["diff", &before, &after]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("FAIL: gpu3 hangs: 5 of 5 cases"), "{text}");
    assert!(text.lines().count() <= 40 && !text.contains("inf"), "{text}");
    assert!(text.contains("39 cases without a result after"), "{text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("reason=pathline`); `dmesg` for amdgpu messages of gpu3"), "{text}");
    let (text, code) = said(&["explain", &after, "--check"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("run: FAIL: {hangs}")), "{text}");
    assert!(text.contains("FAIL: gpu3 hangs: 2 of 2 paths that use it did not end"), "{text}");
}

/// What a check of the node finds is the verdict on the figure, and no check that is done is advised.
#[test]
fn explain_says_of_a_node_what_health_says() {
    let dir = TempDir::new().expect("a folder");
    let paste = dir.path().join("paste.txt");
    let row = "268435456 67108864 float sum -1 6100.0 44.01 77.01 0 6100.0 44.01 77.01 0";
    let head =
        "# nThread 1 nGpus 8 minBytes 268435456 maxBytes 268435456 step: 4(factor) warmup iters: 5";
    let columns = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong";
    fs::write(&paste, format!("{head}\n{columns}\n{row}\n")).expect("a file");
    let paste = paste.to_str().expect("a path");
    let fault = "[[fault]]\nelement = \"gpu0-gpu6\"\nkind = \"width\"";
    let sick = faulty(dir.path(), "mi250x", fault);
    let of = |machine: &str| {
        let output = pathline(&["explain", paste, "-m", machine, "--check"]);
        let text = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("checked") && !text.contains("pathline "), "{text}");
        text
    };
    let text = of(sick.to_str().expect("a path"));
    assert!(text.contains("verdict FAIL: the node: xGMI gpu0-gpu6 runs 1 of 2 links; "), "{text}");
    assert!(text.contains("% slower than 3 peers)") && text.contains("--showxgmierr"), "{text}");
    let text = of("mi250x");
    assert!(text.contains("checked OK: all ") && text.contains("verdict SUSPECT: "), "{text}");
}

/// Over a link that hangs, the GPUs of its ends still copy with the host: a run names the link, as `health` does, and goes
/// on with their other paths.
#[test]
fn a_run_tells_a_link_that_hangs_from_its_gpus() {
    let dir = TempDir::new().unwrap();
    for (link, cases) in [("gpu3-gpu7", 3), ("gpu0-gpu6", 4), ("gpu2-gpu3", 8)] {
        let fault = format!("[[fault]]\nelement = \"{link}\"\nkind = \"hang\"");
        let file = faulty(dir.path(), "mi250x", &fault);
        let out = dir.path().join(link);
        let args = ["run", "--quick", "-m", file.to_str().unwrap(), "-o", out.to_str().unwrap()];
        let text = stdout(&pathline(&args)).split_whitespace().collect::<Vec<_>>().join(" ");
        let [a, b] = [link.split('-').next(), link.split('-').nth(1)].map(Option::unwrap);
        let fail = format!(
            "FAIL: xGMI {link} hangs: {cases} of {cases} cases that use it did not end; other cases of {a} and {b} \
             ended"
        );
        assert!(text.contains(&fail), "{text}");
    }
}

/// A link that hangs, between GPUs, to the host and to switches, also one way and after a time: `health` tries paths
/// that do not use it, and names it, as `gpu3` that hangs itself.
#[test]
fn health_names_the_part_that_hangs() {
    let dir = TempDir::new().expect("a folder");
    let now = "after_ms = 0";
    for (preset, element, after, expected) in [
        ("mi250x", "gpu0-gpu6", now, "xGMI gpu0-gpu6 hangs: 2 of 2 paths"),
        ("mi250x", "gpu0>gpu6", now, "xGMI gpu0-gpu6 hangs: 2 of 3 paths"),
        ("mi250x", "gpu0-gpu6", "after_ms = 600", "xGMI gpu0-gpu6 hangs: 2 of 2 paths"),
        ("mi250x", "gpu2-numa1", now, "xGMI gpu2-numa1 hangs: 2 of 2 paths"),
        ("mi250x", "gpu3", "after_ms = 600", "gpu3 hangs: 2 of 2 paths"),
        ("hgx-h200", "gpu2-switch0", now, "NVLink gpu2-switches hangs: 2 of 2 paths"),
        ("hgx-h200", "gpu2-numa0", now, "PCIe gpu2-numa0 hangs: 2 of 2 paths"),
    ] {
        let fault = format!("[[fault]]\nelement = \"{element}\"\nkind = \"hang\"\n{after}");
        let sick = faulty(dir.path(), preset, &fault);
        let output = pathline(&["health", "-m", sick.to_str().expect("a path")]);
        let text = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("FAIL: {expected}")), "{element} {after}: {text}");
        assert!(
            text.contains("do drain the node (Slurm: `scontrol update nodename=NODE"),
            "{text}"
        );
    }
}

/// A budget that is too short says which is not, and that one decides.
#[test]
fn a_short_check_names_the_budget_that_decides() {
    for machine in ["mi250x", "hgx-h200"] {
        for budget in ["500ms", "3s", "6s"] {
            let output = pathline(&["health", "-m", machine, "--budget", budget]);
            let text = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
            if output.status.code() == Some(0) {
                continue;
            }
            assert_eq!(output.status.code(), Some(3), "{text}");
            let named = text.split("--budget ").nth(1).and_then(|rest| rest.split('`').next());
            let named = named.unwrap_or_else(|| panic!("no budget: {text}"));
            let again = pathline(&["health", "-m", machine, "--budget", named]);
            assert_eq!(again.status.code(), Some(0), "{budget} {named}: {}", stdout(&again));
        }
    }
}

/// What `diff` and `run` advise for a crash and for a lost link begins as that of a hang.
#[test]
fn a_node_that_fails_takes_no_more_jobs() {
    let dir = TempDir::new().expect("a folder");
    let folder = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let before = folder("before");
    pathline(&["run", "-m", "mi250x", "--quick", "-o", &before]);
    for (name, element, kind) in
        [("hang", "gpu3", "hang"), ("crash", "gpu5", "crash"), ("lost", "gpu0-gpu6", "width")]
    {
        let fault = format!("[[fault]]\nelement = \"{element}\"\nkind = \"{kind}\"");
        let sick = faulty(dir.path(), "mi250x", &fault);
        let after = folder(name);
        let run = pathline(&["run", "-m", sick.to_str().expect("a path"), "--quick", "-o", &after]);
        let diff = pathline(&["diff", &before, &after]);
        for output in [run, diff] {
            let text = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(output.status.code(), Some(1), "{text}");
            let drain = "rain the node (Slurm: `scontrol update nodename=NODE state=drain reason=pathline`); ";
            assert_eq!(text.matches(drain).count(), 1, "{kind}: {text}");
        }
    }
}
