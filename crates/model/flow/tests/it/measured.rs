//! Machine files that state what was measured.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its own input has failed")]

use pathline_flow::{MachineDesc, Network, ResourceUse, RuntimeEnv};
use pathline_schema::Case;

/// Two GPUs: 55 in, 50 out, 395 between them; in and out of one GPU share 100, of which a byte out
/// takes 1.1; host traffic into both shares 80, where GPU 1 counts half.
const TWIN: &str = r#"
name = "pair"

[host]
cpu_model = "some CPU"
arch = "x86_64"
sockets = 1
page_bytes = 4096
huge_page_bytes = 2097152

[[numa]]
id = 0
cpus = "0-7"
memory_gib = 64
memory_gbs = 100

[gpus]
vendor = "nvidia"
name = "GPU"
arch = "sm_90"
compute_units = 132
memory_gib = 139
memory_gbs = 4800

[[gpu]]
id = 0
numa = 0

[[gpu]]
id = 1
numa = 0

[measured]
from = "a run"
error_p50 = 1.5
error_p95 = 6
undecided = ["the peers' capacity was never reached"]

[[path]]
flow = "numa0.pinned > gpu0.vram by dma@gpu0"
gbs = 55
low = 54
high = 56
start_us = 11

[[path]]
flow = "numa0.pinned > gpu1.vram by dma@gpu1"
gbs = 55
share = 0.5

[[path]]
flow = "gpu0.vram > numa0.pinned by dma@gpu0"
gbs = 50

[[path]]
flow = "gpu0.vram > gpu1.vram by dma@gpu0"
gbs = 395

[[shared]]
name = "gpu0: host, both ways"
gbs = 100
low = 99
high = 101
found = "topology"
flows = ["numa0.pinned > gpu0.vram by dma@gpu0", "gpu0.vram > numa0.pinned by dma@gpu0"]
takes = [1.0, 1.1]

[[shared]]
name = "host memory, into both GPUs"
gbs = 80
found = "interference"
flows = ["numa0.pinned > gpu0.vram by dma@gpu0", "numa0.pinned > gpu1.vram by dma@gpu1"]

[[queue]]
name = "copy engine of gpu0"
flows = ["gpu0.vram > gpu1.vram by dma@gpu0"]
"#;

fn twin() -> MachineDesc {
    MachineDesc::parse("pair.toml", TWIN).unwrap()
}

fn network() -> Network {
    Network::new(&twin(), RuntimeEnv::default()).unwrap()
}

fn case(text: &str) -> Case {
    text.parse().unwrap()
}

#[test]
fn a_flow_gets_the_stated_rate() {
    let (desc, network) = (twin(), network());
    assert_eq!(desc.measured.error, Some((0.015, 0.06)));
    assert!(!desc.modelled);
    assert_eq!(network.queues(), ["copy engine of gpu0"]);
    let names: Vec<&str> = network.resources().iter().map(|r| r.name.as_str()).collect();
    let at = |name: &str| names.iter().position(|n| *n == name).unwrap() as u32;
    // Rank and size do not matter.
    let flow = "r1.numa0.pinned > r2.gpu0.vram by dma@gpu0 x 3KiB".parse().unwrap();
    let op = network.operation(&flow).unwrap();
    assert_eq!((op.cap.0, op.alpha.0, op.share, op.queue), (55.0, 11_000.0, 1.0, None));
    let (both, into) = (at("gpu0: host, both ways"), at("host memory, into both GPUs"));
    let takes = |resource, weight| ResourceUse { resource, weight };
    assert_eq!(op.uses, [takes(both, 1.0), takes(into, 1.0)]);
    let out = "gpu0.vram > numa0.pinned by dma@gpu0 x 1MiB".parse().unwrap();
    assert_eq!(network.operation(&out).unwrap().uses, [takes(both, 1.1)]);
    let peer = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB".parse().unwrap();
    assert_eq!(network.operation(&peer).unwrap().queue, Some(0));
}

#[test]
fn other_flows_are_not_guessed() {
    let flow = "gpu1.vram > gpu0.vram by dma@gpu1 x 1MiB".parse().unwrap();
    let error = network().operation(&flow).unwrap_err().to_string();
    assert_eq!(
        error,
        "not measured: gpu1.vram > gpu0.vram by dma@gpu1; calibrate from a run that has it"
    );
    let flow = "gpu1.vram > gpu7.vram by dma@gpu1 x 1MiB".parse().unwrap();
    assert_eq!(network().operation(&flow).unwrap_err().to_string(), "this machine has no gpu7");
}

/// Into both GPUs: 80 in weights 1 and 0.5: 53.3 and 26.7, both below 55.
#[test]
fn shares_are_weights() {
    let got = network()
        .predict(&case(
            "numa0.pinned > gpu0.vram by dma@gpu0 x 1MiB & numa0.pinned > gpu1.vram by dma@gpu1 x 1MiB",
        ))
        .unwrap();
    let rates: Vec<f64> = got.iter().map(|p| p.rate.0).collect();
    assert!((rates[0] - 160.0 / 3.0).abs() < 1e-9 && (rates[1] - 80.0 / 3.0).abs() < 1e-9);
    assert!(got.iter().all(|p| p.bound_by == "host memory, into both GPUs"));
}

/// In and out of GPU 0: x + 1.1 x = 100: 47.6 each.
#[test]
fn a_byte_may_take_more_than_a_byte() {
    let got = network()
        .predict(&case(
            "numa0.pinned > gpu0.vram by dma@gpu0 x 1MiB & gpu0.vram > numa0.pinned by dma@gpu0 x 1MiB",
        ))
        .unwrap();
    assert!(got.iter().all(|p| (p.rate.0 - 100.0 / 2.1).abs() < 1e-9));
    assert_eq!(got[0].bound_by, "gpu0: host, both ways");
    // Alone it is limited by its own cap.
    let alone = network().predict(&case("gpu0.vram > numa0.pinned by dma@gpu0 x 1MiB")).unwrap();
    assert_eq!(alone[0].rate.0, 50.0);
    assert_eq!(alone[0].bound_by, "gpu0.vram > numa0.pinned by dma@gpu0 alone");
}

/// Twice the same path at one engine: each has half of its time. 1 us for 395 kB alone.
#[test]
fn a_queue_is_taken_in_turns() {
    let flow = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB";
    let got = network().predict(&case(&format!("{flow} & {flow}"))).unwrap();
    assert!(got.iter().all(|p| (p.rate.0 - 197.5).abs() < 1e-9));
    assert!(got.iter().all(|p| p.bound_by == "copy engine of gpu0"));
}

/// Errors are named with their line.
#[test]
fn wrong_files() {
    let line = |needle: &str| 1 + TWIN[..TWIN.find(needle).unwrap()].matches('\n').count();
    let path = "flow = \"gpu0.vram > gpu1.vram by dma@gpu0\"";
    let queue = "flows = [\"gpu0.vram > gpu1.vram by dma@gpu0\"]";
    let takes = "takes = [1.0, 1.1]";
    for (from, to, expected) in [
        (path, path.replace("gpu1", "gpu9"), "gpu9 is no [[gpu]] and no [[numa]] of this file"),
        (path, path.replace("vram > gpu1.vram", "pinned > gpu1.vram"), "gpu0 has no pinned memory"),
        (path, path.replace("by dma@gpu0", "by dma@gpu0 x 1MiB"), "is no path; expected SRC > DST"),
        (path, path.replace("gpu0.vram > ", "r1.gpu0.vram > "), "names a rank"),
        (path, path.replace("by dma@gpu0", "by call@gpu0[sync]"), "has a time and no rate"),
        (path, path.replace("gpu1.vram by", "numa0.pinned by"), "is there twice"),
        ("gbs = 395", "gbs = -1".into(), "expected a rate in GB/s"),
        ("share = 0.5", "share = 0".into(), "expected a weight from 0.001 to 1000"),
        ("low = 54", "low = 55.5".into(), "expected 0 < low <= gbs <= high"),
        ("low = 99", "low = 100.5".into(), "expected 0 < low <= gbs <= high"),
        (takes, "takes = [1.0]".into(), "1 numbers for 2 flows; expected one for each"),
        (takes, "takes = [1.0, 0.0]".into(), "0 is out of range; expected 1e-6 to 1000"),
        (
            queue,
            queue.replace("gpu1", "gpu0"),
            "queue: gpu0.vram > gpu0.vram by dma@gpu0 is no [[path]]",
        ),
        (queue, format!("{queue}\n[[queue]]\nname = \"b\"\n{queue}"), "is in two queues"),
        ("error_p95 = 6", "error_p95 = 1".into(), "expected error_p50 and error_p95"),
        ("error_p95 = 6", "error_p59 = 6".into(), "unknown field `error_p59`"),
        (
            "name = \"host memory, into both GPUs\"",
            "name = \"gpu0: host, both ways\"".into(),
            "is there twice",
        ),
    ] {
        assert!(TWIN.contains(from), "{from}");
        let error = MachineDesc::parse("pair.toml", &TWIN.replacen(from, &to, 1)).unwrap_err();
        assert!(error.reason.contains(expected), "{to}: {error}");
        let named = error.file.strip_prefix("pair.toml:").map(|n| n.parse::<usize>().unwrap());
        // A table that is wrong as a whole is named by its first line, which is a little before.
        if let Some(named) = named {
            assert!(named.abs_diff(line(from)) <= 8, "{to}: {error}, expected near {}", line(from));
        } else {
            assert!(from.starts_with("error"), "{to}: {error}");
        }
    }
}

/// Without paths the rate of a flow is unknown.
#[test]
fn a_file_needs_sections_or_paths() {
    let (head, _) = TWIN.split_once("[measured]").unwrap();
    let error = MachineDesc::parse("pair.toml", head).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pair.toml: no [gpu_memory]; expected it, or [[path]] of measured paths"
    );
}

/// A preset with a measured path: that one counts, the others are modelled.
#[test]
fn a_path_in_a_modelled_machine() {
    let (_, preset) = MachineDesc::presets().iter().find(|(name, _)| *name == "hgx-h200").unwrap();
    let text =
        format!("{preset}\n[[path]]\nflow = \"gpu0.vram > gpu1.vram by dma@gpu0\"\ngbs = 123\n");
    let desc = MachineDesc::parse("mixed.toml", &text).unwrap();
    let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
    let rate = |flow: &str| network.predict(&case(flow)).unwrap()[0].rate.0;
    assert_eq!(rate("gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB"), 123.0);
    assert!(rate("gpu1.vram > gpu0.vram by dma@gpu1 x 1GiB") > 300.0);
}
