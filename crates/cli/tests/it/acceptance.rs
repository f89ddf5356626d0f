//! Questions that users asked in public threads: verdict and sentence of `advise`, `diff`, `health` and `where`.
//! E1 to E21 are tests of crate `reason`; A4 is in `audit.rs`, A5 in crate `advise`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use pathline_flow::MachineDesc;
use pathline_place::{PlaceRequest, RankSite, check_sites, place_ranks, planned_sites};
use tempfile::TempDir;

use crate::common::unwrapped;

fn pathline(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command.args(args).envs(env.iter().copied()).env("COLUMNS", "100");
    command.output().expect("the binary runs")
}

/// What it printed, without line breaks, and its exit code.
fn answer(args: &[&str], env: &[(&str, &str)]) -> (String, i32) {
    let output = pathline(args, env);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &unwrapped(&output.stderr);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (text, output.status.code().expect("an exit code"))
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).to_str().expect("a printable path").to_owned()
}

/// A job script with these lines, reviewed for a node.
fn review(lines: &str, node: &[&str]) -> String {
    let dir = TempDir::new().expect("a folder");
    let script = path(&dir, "job.sh");
    fs::write(&script, lines).expect("a file");
    let (text, code) = answer(&[&["advise", "--review", "--script", &script], node].concat(), &[]);
    assert!([0, 1, 3].contains(&code), "{text}");
    text
}

/// ROCm/rocm-systems#11253: the guide asks for 112 channels on 4 GPUs, which RCCL refuses; on 8 it acts.
#[test]
fn a1_channels_that_rccl_refuses() {
    let script = "export NCCL_MIN_NCHANNELS=112\n";
    let four = review(script, &["--machine", "mi300x:0-3"]);
    let why = "DROP RCCL refuses more than 64 channels for fewer than 8 GPUs, and this job has 4; \
               up to 64 act (ROCm/rocm-systems#11253, #11255). NCCL_MIN_NCHANNELS=112";
    assert!(four.contains(why), "{four}");
    let eight = review(script, &["--machine", "mi300x"]);
    assert!(eight.contains("UNDECIDED") && !eight.contains("DROP"), "{eight}");
}

/// vllm-project/vllm#55416: pinned workers gained 0.7 % on one instance and lost 43 % on the second.
#[test]
fn a2_what_was_proven_elsewhere_is_withdrawn() {
    let dir = TempDir::new().expect("a folder");
    let (folder, node) = (path(&dir, "advice"), path(&dir, "pinned"));
    let command = format!("if [ -n \"$PIN\" ]; then cat {node}; else echo 1000 tok/s; fi");
    let first = ["advise", "--command", &command, "--metric", "([0-9]+) tok/s", "--higher"];
    let emitted = ["--min-gain", "0.5%", "--set", "PIN=1", "--emit", &folder];
    fs::write(&node, "1007 tok/s\n").expect("a file");
    let (there, code) = answer(&[&first[..], &emitted].concat(), &[]);
    assert_eq!(code, 0, "{there}");
    // 1007 / 1000 - 1.
    assert!(there.contains("DO Set PIN=1.") && there.contains("+0.7 %"), "{there}");
    fs::write(&node, "570 tok/s\n").expect("a file");
    let file = Path::new(&folder).join("advice.json");
    let text = fs::read_to_string(&file).expect("a file");
    let host = text.split_once("\"node\": \"").and_then(|(_, rest)| rest.split('"').next());
    let elsewhere = text.replacen(host.expect("a name"), "instance-1", 1);
    fs::write(&file, elsewhere).expect("a file");
    let (here, code) = answer(&["advise", "--check", &folder, "--min-gain", "0.5%"], &[]);
    assert_eq!(code, 1, "{here}");
    assert!(here.contains("! it was proven on instance-1, and this is "), "{here}");
    // 570 / 1000 - 1.
    assert!(here.contains("DROP PIN=1 was proven on instance-1 ("), "{here}");
    assert!(here.contains("and gains less than 0.5 % here."), "{here}");
    assert!(here.contains("1000 tok/s; fi`: -43 %"), "{here}");
}

/// NVIDIA/srt-slurm#332: decoding took 70.4 ms unbound, and 14.1 ms with a rank in each NUMA domain.
#[test]
fn a3_bound_ranks_are_proven_and_unbound_ones_flagged() {
    let command = "SLURM_LOCALID=0 $PATHLINE_PLACE true && \
                   if [ -n \"$PATHLINE_PLACE\" ]; then echo decode 14.1 ms; else echo decode 70.4 ms; fi";
    let args = ["advise", "--command", command, "--place", "1", "--metric", "decode ([0-9.]+) ms"];
    let (text, code) = answer(&args, &[]);
    assert_eq!(code, 0, "{text}");
    let change = "DO Start each rank by the wrapper of `pathline place --ranks 1`.";
    // 70.4 / 14.1 - 1 = 399 %.
    assert!(text.contains(change) && text.contains("5.0x"), "{text}");
    // Eight ranks whose masks have the whole node: 8 L3 caches of 8 cores, 4 domains.
    let topology = MachineDesc::preset("mi250x").expect("a preset").topology();
    let request = PlaceRequest { ranks: 8, skip_first_core: true, hardware_threads: false };
    let sites = planned_sites(&topology, &place_ranks(&topology, &request).expect("a plan"));
    let free = |site: &RankSite| RankSite { cpus: site.node.cpus.clone(), ..site.clone() };
    let unbound: Vec<RankSite> = sites.iter().map(free).collect();
    let found = check_sites(&unbound, None);
    let first = found.first().expect("a finding");
    assert_eq!((first.code, first.ranks.as_slice()), ("unbound", &[0, 1, 2, 3, 4, 5, 6, 7][..]));
    let text =
        "not bound: the mask has all 64 CPUs of the host in 4 NUMA domains, which 8 ranks share";
    assert_eq!(first.text, text);
    assert!(first.action.contains("pathline place --format LAUNCHER"), "{}", first.action);
    assert!(check_sites(&sites, None).iter().all(|finding| finding.code != "unbound"));
}

/// awslabs/awsome-distributed-ai#1077: five settings that changed nothing were removed from a script.
#[test]
fn a6_settings_that_do_nothing_are_removed() {
    let dir = TempDir::new().expect("a folder");
    let script = path(&dir, "nccl-tests.sbatch");
    let lines = "export NCCL_BUFFSIZE=8388608\nexport NCCL_P2P_NET_CHUNKSIZE=524288\n\
                 export NCCL_TUNER_PLUGIN=/opt/amazon/ofi-nccl/lib/libnccl-ofi-tuner.so\n\
                 mpirun --mca pml ^ucx --mca btl tcp,self ./all_reduce_perf\n";
    fs::write(&script, lines).expect("a file");
    // Nothing states the number of nodes, on which the chunk size depends: trials of the command decide.
    let on = ["--review", "--script", &script, "--command", "echo busbw 512.1"];
    let metric = ["--metric", "busbw ([0-9.]+)", "--higher"];
    let (text, code) = answer(&[&["advise"], &on[..], &metric].concat(), &[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("5 settings: 5 drop."), "{text}");
    for name in [
        "NCCL_BUFFSIZE",
        "NCCL_P2P_NET_CHUNKSIZE",
        "NCCL_TUNER_PLUGIN",
        "OMPI_MCA_btl",
        "OMPI_MCA_pml",
    ] {
        assert!(text.contains(&format!("DROP Unset {name}.")), "{name}: {text}");
    }
    let why = "It does nothing: no question of 1 loses 1 % without it.";
    assert_eq!(text.matches(why).count(), 5, "{text}");
}

/// A model whose line `key = ...` has another value.
fn edited(dir: &TempDir, preset: &str, key: &str, value: &str) -> String {
    let text = String::from_utf8(pathline(&["model", "show", preset], &[]).stdout).expect("text");
    let edit = |line: &str| match line.starts_with(&format!("{key} = ")) {
        true => format!("{key} = {value}\n"),
        false => format!("{line}\n"),
    };
    let file = path(dir, "edited.toml");
    fs::write(&file, text.lines().map(edit).collect::<String>()).expect("a file");
    file
}

/// ROCm/rocm-systems#4035: D2H fell from 56 to 48 GB/s after an upgrade. Packets of the copy engine of the model
/// with 79 B of headers to 256 B instead of 34.9: (256 + 34.9) / (256 + 79) = 0.868.
#[test]
fn a7_a_slower_direction_after_an_upgrade_is_named() {
    let dir = TempDir::new().expect("a folder");
    let slow = edited(&dir, "mi300x", "engine_out_header_bytes", "79");
    let (before, after) = (path(&dir, "before"), path(&dir, "after"));
    for (machine, out) in [("mi300x", &before), (slow.as_str(), &after)] {
        let cases = ["gpu0.vram > numa0.pinned", "numa0.pinned > gpu0.vram"];
        let cases = cases.map(|ends| format!("{ends} by dma@gpu0 x 256MiB"));
        let what = ["--case", &cases[0], "--case", &cases[1], "--out", out];
        let args = [&["run", "--quiet", "--machine", machine], &what[..]].concat();
        assert_eq!(pathline(&args, &[]).status.code(), Some(0));
        let journal = Path::new(out).join("run.jsonl");
        let text = fs::read_to_string(&journal).expect("a journal");
        let driver = if out == &before { "amdgpu 6.12" } else { "amdgpu 6.14" };
        let text = text.replace("\"source\":\"model\"", &format!("\"source\":\"{driver}\""));
        fs::write(&journal, text).expect("a journal");
    }
    let (text, code) = answer(&["diff", &before, &after], &[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("2 cases in both, tolerance 2 %: 1 slower, 1 same"), "{text}");
    assert!(text.contains("slower 55.4 48.1 GB/s -13.1 %"), "{text}");
    assert!(text.contains("gpu0 > numa0.pinned by dma@gpu0 x 256MiB"), "{text}");
    assert!(
        text.contains("driver") && text.contains("amdgpu 6.12") && text.contains("amdgpu 6.14")
    );
}

/// NVIDIA/nccl-tests#106: some nodes are two times slower, which, and what of them?
#[test]
fn a8_the_slow_node_and_its_link_are_named() {
    let dir = TempDir::new().expect("a folder");
    let sound =
        String::from_utf8(pathline(&["model", "show", "hgx-h200"], &[]).stdout).expect("text");
    let fault =
        "\n[[fault]]\nelement = \"gpu5-switch0\"\nkind = \"speed\"\nshare = 0.5\nsilent = true\n";
    let sick = path(&dir, "node7.toml");
    fs::write(&sick, sound + fault).expect("a machine");
    let (good, code) = answer(&["health", "--machine", "hgx-h200"], &[]);
    assert!(code == 0 && good.contains("OK: "), "{good}");
    let (bad, code) = answer(&["health", "--machine", &sick], &[]);
    assert_eq!(code, 1, "{bad}");
    assert!(
        bad.contains(
            "FAIL: NVLink gpu5-switches, both directions, at the rate of 9 of 18 links: its paths are 50 % slower"
        ),
        "{bad}"
    );
    // Confirmed in new processes.
    assert!(bad.contains("in 3 of 3 processes"), "{bad}");
}

/// `HSA_ENABLE_SDMA=0` makes copies of host memory blit kernels. On the model of MI250X those to the GPU take 11 %
/// longer, and those to the host 2.6 % less.
#[test]
fn published_blit_copies_of_host_memory() {
    let set = [("HSA_ENABLE_SDMA", "0")];
    let on =
        |case: &str| answer(&["advise", "--review", "--machine", "mi250x", "--for", case], &set);
    let (into, code) = on("numa3.pinned > gpu0.vram by dma@gpu0 x 64MiB");
    assert_eq!(code, 1, "{into}");
    assert!(into.contains("DROP Unset HSA_ENABLE_SDMA."), "{into}");
    let why =
        "HSA_ENABLE_SDMA=0: +11 % HSA_ENABLE_SDMA=0 makes things slower; no question loses 1 %";
    assert!(into.contains(why), "{into}");
    let (out, _) = on("gpu0.vram > numa3.pinned by dma@gpu0 x 64MiB");
    let why = "KEEP Without it, copies from gpu0 to numa3 (D2H), 64MiB get slower";
    assert!(out.contains(why), "{out}");
}

/// NVIDIA/nccl#1081: LL128 is off where the path may reorder the halves of 128 bytes.
#[test]
fn published_ll128_where_it_is_unsafe() {
    let text = review("export NCCL_PROTO=LL,LL128,Simple\n", &["--machine", "hgx-h200"]);
    assert!(text.contains("DROP Unset NCCL_PROTO."), "{text}");
    assert!(text.contains("data may be corrupted without an error (NVIDIA/nccl#1081"), "{text}");
    let excluded = review("export NCCL_PROTO=^LL128\n", &["--machine", "hgx-h200"]);
    assert!(!excluded.contains("DROP"), "{excluded}");
}

/// The example tuner of NCCL sets one channel for every collective; RCCL reads the same file itself.
#[test]
fn published_tuner_with_one_channel() {
    let script = "export NCCL_TUNER_CONFIG_FILE=/opt/rows.csv\n";
    let text = review(script, &["--machine", "hgx-h200"]);
    assert!(text.contains("DROP Unset NCCL_TUNER_CONFIG_FILE."), "{text}");
    assert!(text.contains("10 to 16 times slower from 32 MiB up"), "{text}");
    let amd = review(script, &["--machine", "mi300x"]);
    assert!(!amd.contains("DROP"), "{amd}");
}

/// `NCCL_P2P_DISABLE=1` sends through host memory what links carry; set to 0 it is the default.
#[test]
fn published_copies_without_links() {
    let text = review("export NCCL_P2P_DISABLE=1\n", &["--machine", "hgx-h200"]);
    assert!(text.contains("DROP Unset NCCL_P2P_DISABLE."), "{text}");
    assert!(text.contains("through host memory instead of their links"), "{text}");
}
