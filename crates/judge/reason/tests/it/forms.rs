//! Forms in which people paste outputs, each with the figure, limit and verdict that follow from it.

use pathline_paste::read_paste;
use pathline_reason::explain_paste;
use pathline_schema::NodeVerdict;

/// A file of `tests/data/forms` with what its first answer has.
struct PastedForm {
    file: &'static str,
    /// GB/s; none where it has no rate.
    value: Option<f64>,
    /// GB/s; none where the paste does not say it.
    limit: Option<f64>,
    verdict: NodeVerdict,
    /// Part of the reason, or of the question where the limit is not known.
    says: &'static str,
}

const fn form(
    file: &'static str,
    value: f64,
    limit: f64,
    verdict: NodeVerdict,
    says: &'static str,
) -> PastedForm {
    PastedForm { file, value: Some(value), limit: Some(limit), verdict, says }
}

const fn unlimited(
    file: &'static str,
    value: f64,
    verdict: NodeVerdict,
    says: &'static str,
) -> PastedForm {
    PastedForm { file, value: Some(value), limit: None, verdict, says }
}

const fn without_rate(file: &'static str, verdict: NodeVerdict, says: &'static str) -> PastedForm {
    PastedForm { file, value: None, limit: None, verdict, says }
}

const FORMS: [PastedForm; 40] = [
    // PCIe 5 x16: 32 GT/s x 16 x 128/130 / 8 = 63 GB/s; of generation 4 31.5.
    form("nvbandwidth-d2h.txt", 54.9, 63.0, NodeVerdict::Ok, "87 % of the limit"),
    form("nvbandwidth-quarter.txt", 25.1, 31.5, NodeVerdict::Suspect, "gpu3: 6.31 of 25.1 GB/s"),
    form("nvbandwidth.json", 55.0, 63.0, NodeVerdict::Suspect, "gpu2: 27.3 of 55.0 GB/s"),
    // 199.7 / 266.4 = 75 % = 9 of 12.
    form("nvbandwidth-pairs-lost.txt", 233.0, 300.0, NodeVerdict::Suspect, "gpu3: 200 of 266 GB/s"),
    form("nvbandwidth-both-blocks.txt", 379.0, 478.125, NodeVerdict::Ok, "83 %"),
    // 12310.4 MB/s in, 12890.7 out.
    form("bandwidthtest.txt", 12.9, 15.75, NodeVerdict::Ok, "13.2 of 15.8"),
    unlimited("p2p-one-gpu.txt", 18.6, NodeVerdict::Suspect, "gpu3: 12.4 of 24.8 GB/s"),
    form(
        "transferbench-one-way.txt",
        48.5,
        64.0,
        NodeVerdict::Suspect,
        "gpu3->gpu1: 33.1 of 48.5 GB/s",
    ),
    // A ring has 956 x 0.76 = 729, the switches 956 x 0.646 x 2 x 7 / 9 = 960; of 478 480.
    form("nccl-compose.txt", 838.0, 956.25, NodeVerdict::Ok, "960 GB/s"),
    form("nccl-kubectl.txt", 478.0, 478.125, NodeVerdict::Ok, "480 GB/s"),
    form("nccl-bare-name.txt", 233.0, 300.0, NodeVerdict::Ok, "243 GB/s"),
    form("nccl-two-nodes-adapters.txt", 86.0, 100.0, NodeVerdict::Ok, "4 adapters of 25.0"),
    // A tree of two nodes needs 341 / 1.875 = 182 GB/s of the network; a ring of four 342, 94 % of 0.76 x 478.
    unlimited(
        "nccl-two-nodes-no-adapters.txt",
        341.0,
        NodeVerdict::Undecided,
        "how many adapters has a node",
    ),
    form("nccl-four-nodes-ring.txt", 341.9, 478.125, NodeVerdict::Ok, "a ring within one node"),
    unlimited("nccl-broadcast-one-rank.txt", 330.4, NodeVerdict::Suspect, "a copy within the GPU"),
    unlimited(
        "nccl-last-size-broken.txt",
        12.38,
        NodeVerdict::Suspect,
        "from 67108864 B on: 1.03 of 12.4 GB/s",
    ),
    // No narrower link carries 55.8 GB/s.
    form("rocm-bandwidth-two-devices.txt", 55.81, 63.0, NodeVerdict::Ok, "89 %"),
    // 2424.24 x 2^20.
    unlimited("ucx-tcp.txt", 2.542, NodeVerdict::Suspect, "UCX_TLS=tcp,sm,self,cuda_copy"),
    unlimited("perftest-below-peak.txt", 3.925, NodeVerdict::Suspect, "33 %"),
    // Read and written: 196.2 of 273.
    form("one-memory.txt", 196.2, 273.0, NodeVerdict::Ok, "72 %"),
    form("listed-product.txt", 1605.4, 2039.0, NodeVerdict::Ok, "79 %"),
    unlimited("nccl-socket.txt", 2.9, NodeVerdict::Suspect, "TCP sockets"),
    // 4 channels x 22 GB/s = 88.
    form("nccl-mnnvl-channels.txt", 92.0, 956.25, NodeVerdict::Suspect, "4 channels"),
    form("nccl-small-sizes.txt", 60.0, 478.125, NodeVerdict::Ok, "too small"),
    // 197.21 Gbit/s / 8; 251.9 / 8 = 31.49 = PCIe 4 x16 before headers.
    unlimited(
        "perftest-gpu-ndr200.txt",
        24.65,
        NodeVerdict::Undecided,
        "if the port has 200 Gbit/s",
    ),
    form("perftest-slot.txt", 31.49, 50.0, NodeVerdict::Undecided, "63 % of the limit"),
    form("osu-cuda-no-buffers.txt", 255.4, 300.0, NodeVerdict::Ok, "300 GB/s"),
    form("osu-german.txt", 37.6, 50.0, NodeVerdict::Ok, "50.0 GB/s"),
    form("osu-two-nodes-rocm.txt", 23.81, 25.0, NodeVerdict::Ok, "95 % of the limit"),
    // 24996.1 x 2^20.
    form("ucx.txt", 25.98, 31.5, NodeVerdict::Ok, "PCIe"),
    // 0.6124 x 2^30 = 0.6576e9 = 2 x 65536 B / 199.3 us.
    unlimited("gdsio-64k.txt", 0.6576, NodeVerdict::Undecided, "limit is not known"),
    unlimited("fio-sync.txt", 0.1604, NodeVerdict::Ok, "16.0 KiB / 101 us"),
    // 8976 x 2^20; 6150 x 2^20.
    unlimited("elbencho-phases.txt", 9.412, NodeVerdict::Undecided, "drives"),
    unlimited("elbencho-live.csv", 6.449, NodeVerdict::Undecided, "drives"),
    without_rate("rocprof.csv", NodeVerdict::Undecided, "how many bytes"),
    without_rate("topo-m-quad.txt", NodeVerdict::Ok, "no part differs"),
    without_rate("topo-p2p.txt", NodeVerdict::Ok, "the driver states"),
    without_rate("rocm-smi-three.txt", NodeVerdict::Ok, "no part differs"),
    without_rate("ipc.txt", NodeVerdict::Suspect, "hides those of the others"),
    // 32 GT/s x8 of x16.
    form("lnksta.txt", 31.5, 63.0, NodeVerdict::Suspect, "x8"),
];

fn is_near(found: Option<f64>, want: Option<f64>) -> bool {
    match (found, want) {
        (Some(found), Some(want)) => (found / want - 1.0).abs() < 0.006,
        (None, None) => true,
        _ => false,
    }
}

#[test]
fn forms_have_their_figure_limit_and_verdict() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/forms");
    let mut wrong = Vec::new();
    for form in &FORMS {
        let bytes = std::fs::read(folder.join(form.file)).expect("the form is there");
        let found = explain_paste(&read_paste(&bytes), None);
        let answer = found.answers.first().expect("an answer");
        let is_right = is_near(answer.value_gbs, form.value)
            && is_near(answer.limit_gbs, form.limit)
            && answer.verdict == form.verdict
            && format!("{} {}", answer.reason, answer.ask).contains(form.says);
        // What nothing decides has no cause, and three checks.
        let is_open = answer.verdict == NodeVerdict::Undecided;
        let is_whole =
            is_open != answer.checks.is_empty() && (!is_open || answer.action.is_empty());
        let exceeds = answer.share.is_some_and(|share| share > 1.0);
        if !is_right || !is_whole || exceeds {
            let (value, limit) = (answer.value_gbs, answer.limit_gbs);
            let (verdict, reason) = (answer.verdict, &answer.reason);
            wrong.push(format!("{}: {value:?} of {limit:?}, {verdict:?}: {reason}", form.file));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), FORMS.len(), wrong.join("\n"));
}

/// Texts that ask nothing figures could answer.
#[test]
fn texts_without_figures_get_no_answer() {
    for text in [
        "We had lunch at the river and the train was late again.",
        "What is the difference between RCCL and NCCL, and which one should I read first?",
        "Our cluster was upgraded last week; does somebody know a good book about MPI?",
        "# A project\n\nIt measures GPUs, see `docs/run.md`.\n\n    cargo install it\n",
        "The launcher hangs, is it slow because of NUMA, ACS or the IOMMU?",
    ] {
        let found = explain_paste(&read_paste(text.as_bytes()), None);
        assert!(found.answers.is_empty() && found.settings.is_empty(), "{text}: {found:?}");
    }
}
