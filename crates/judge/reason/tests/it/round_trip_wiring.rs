//! Round trip of printed wirings: a described node with one fault that its driver reports is written as
//! `nvidia-smi topo -m`, `rocm-smi --showtopo` and NCCL's topology file, and the fault must be named.

use std::fmt::Write as _;

use pathline_flow::{FaultEffect, FaultElement, MachineDesc, MachineFault};
use pathline_paste::read_paste;
use pathline_reason::{RowPredictor, explain_on_node};
use pathline_schema::{LinkEnd, PciAddress, PciDevice, Topology};

/// What is wrong, the cause that names it, and the part.
struct WiringEdit {
    id: &'static str,
    part: String,
    topology: Topology,
}

/// The links of a GPU to another, or to switches, by the numbers that are left.
fn width(topology: &Topology, a: u32, b: u32) -> u32 {
    let (from, to) = (LinkEnd::Gpu(a), LinkEnd::Gpu(b));
    let own =
        topology.links.iter().filter(|l| (l.a, l.b) == (from, to) || (l.a, l.b) == (to, from));
    own.map(|link| link.width).sum()
}

fn to_switches(topology: &Topology, gpu: u32) -> u32 {
    let is_mine = |l: &&pathline_schema::Link| {
        let ends = [l.a, l.b];
        ends.contains(&LinkEnd::Gpu(gpu)) && ends.iter().any(|e| matches!(e, LinkEnd::Switch(_)))
    };
    topology.links.iter().filter(is_mine).map(|link| link.width).sum()
}

fn domain(topology: &Topology, gpu: u32) -> u32 {
    topology.gpus[gpu as usize].numa.expect("a domain")
}

fn nvidia_topo(topology: &Topology) -> String {
    let gpus = topology.gpus.len() as u32;
    let mut text = String::from("     ");
    (0..gpus).for_each(|gpu| write!(text, "\tGPU{gpu}").expect("it is there"));
    text.push_str("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n");
    for a in 0..gpus {
        write!(text, "GPU{a}").expect("it is there");
        for b in 0..gpus {
            let switched = to_switches(topology, a).min(to_switches(topology, b));
            let links = width(topology, a, b).max(switched);
            let cell = match (a == b, links) {
                (true, _) => " X ".to_owned(),
                (_, 0) if domain(topology, a) == domain(topology, b) => "NODE".to_owned(),
                (_, 0) => "SYS".to_owned(),
                (_, links) => format!("NV{links}"),
            };
            write!(text, "\t{cell}").expect("it is there");
        }
        writeln!(text, "\t0-47\t{}\t\tN/A", domain(topology, a)).expect("it is there");
    }
    text + "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect\n"
}

fn rocm_topo(topology: &Topology) -> String {
    let gpus = topology.gpus.len() as u32;
    let rule = "=".repeat(30);
    let mut text = String::new();
    let mut table = |title: &str, own: &str, cell: &dyn Fn(u32) -> String| {
        writeln!(
            text,
            "{rule} {title} {rule}\n       {}",
            (0..gpus).map(|g| format!("GPU{g}         ")).collect::<String>()
        )
        .expect("it is there");
        for a in 0..gpus {
            write!(text, "GPU{a}   ").expect("it is there");
            for b in 0..gpus {
                let cell = if a == b { own.to_owned() } else { cell(width(topology, a, b)) };
                write!(text, "{cell:<13}").expect("it is there");
            }
            text.push('\n');
        }
        text.push('\n');
    };
    let weight = |links| if links > 0 { "15" } else { "52" }.to_owned();
    table("Weight between two GPUs", "0", &weight);
    table("Hops between two GPUs", "0", &|links| if links > 0 { "1" } else { "2" }.to_owned());
    table("Link Type between two GPUs", "0", &|links| {
        if links > 0 { "XGMI" } else { "PCIE" }.to_owned()
    });
    writeln!(text, "{rule} Numa Nodes {rule}").expect("it is there");
    for gpu in 0..gpus {
        let numa = domain(topology, gpu);
        writeln!(text, "GPU[{gpu}]\t\t: (Topology) Numa Node: {numa}\nGPU[{gpu}]\t\t: (Topology) Numa Affinity: {numa}")
            .expect("it is there");
    }
    text + "============================= End of ROCm SMI Log ==============================\n"
}

/// With the PCI functions of GPUs and switches, which descriptions leave out.
fn nccl_xml(topology: &Topology) -> String {
    let mut topology = topology.clone();
    let gpus = topology.gpus.iter().map(|gpu| PciDevice {
        address: gpu.pci.clone(),
        class: 0x0003_0200,
        vendor: if gpu.vendor == "amd" { 0x1002 } else { 0x10de },
        numa: gpu.numa,
        link: gpu.host_link,
        ..PciDevice::default()
    });
    let switches = (0..8).map(|nth| PciDevice {
        address: PciAddress::new(0, 0xe0 + nth, 0, 0),
        class: 0x0006_8000,
        vendor: 0x10de,
        ..PciDevice::default()
    });
    topology.pci = gpus.chain(switches).collect();
    pathline_topo::write_nccl_xml(&topology)
}

/// Of each bundle one link lost and all of them, of each GPU's PCIe half of the lanes, and each GPU at another
/// domain than its own.
fn edits(desc: &MachineDesc) -> Vec<WiringEdit> {
    let sound = desc.topology();
    let mut edits = Vec::new();
    for (at, link) in sound.links.iter().enumerate() {
        let element = FaultElement::Bundle { from: link.a, to: link.b, one_way: false };
        let with = |effect| {
            let fault = MachineFault { element, effect, silent: false, probability: 1.0 };
            desc.topology_with(&[fault])
        };
        let is = |test: fn(&LinkEnd) -> bool| test(&link.a) || test(&link.b);
        let part = element.to_string();
        let part = match part.split_once("-switch") {
            Some((gpu, _)) => format!("{gpu} to a switch"),
            None => part,
        };
        if is(|end| matches!(end, LinkEnd::Numa(_))) {
            if let (LinkEnd::Gpu(gpu), true) =
                (link.a, link.kind == pathline_schema::LinkKind::Pcie)
            {
                let topology = with(FaultEffect::Width { lost: 8 });
                edits.push(WiringEdit { id: "narrow-pcie", part: format!("gpu{gpu}"), topology });
            }
            continue;
        }
        if link.width > 1 {
            let topology = with(FaultEffect::Width { lost: 1 });
            edits.push(WiringEdit { id: "links-lost", part: part.clone(), topology });
        }
        let mut topology = sound.clone();
        topology.links.remove(at);
        edits.push(WiringEdit { id: "links-lost", part, topology });
    }
    let domains: Vec<u32> = sound.numa.iter().map(|domain| domain.id).collect();
    for gpu in 0..sound.gpus.len() as u32 {
        let other = domains.iter().find(|id| **id != domain(&sound, gpu));
        let Some(other) = other else { continue };
        let mut topology = sound.clone();
        topology.gpus[gpu as usize].numa = Some(*other);
        edits.push(WiringEdit { id: "gpu-domain", part: format!("gpu{gpu}"), topology });
    }
    edits
}

#[test]
fn faults_of_a_wiring_are_named_in_every_format() {
    type WiringWriter = fn(&Topology) -> String;
    let formats: [(&str, WiringWriter, &[&str]); 3] = [
        ("nvidia-smi topo -m", nvidia_topo, &["hgx-h100", "hgx-b200", "gh200x4", "v100"]),
        ("rocm-smi --showtopo", rocm_topo, &["mi250x", "mi300x", "mi100"]),
        (
            "NCCL topology file",
            nccl_xml,
            &["mi250x", "mi300x", "hgx-h100", "hgx-b200", "v100", "mi100"],
        ),
    ];
    for (format, write, presets) in formats {
        let (mut tried, mut hidden, mut wrong) = (0, 0, Vec::new());
        for preset in presets {
            let desc = MachineDesc::preset(preset).expect("a preset");
            let node = RowPredictor::from_desc(&desc).expect("a network");
            let clean = write(&desc.topology());
            let found = explain_on_node(&read_paste(clean.as_bytes()), &node, None);
            tried += 1;
            let first = found.answers.first().and_then(|answer| answer.causes.first());
            let suspects = ["links-lost", "narrow-pcie", "gpu-domain"];
            if first.is_some_and(|cause| suspects.contains(&cause.id)) {
                wrong.push(format!("{preset}, sound: {first:?}"));
            }
            for edit in edits(&desc) {
                let text = write(&edit.topology);
                if text == clean {
                    hidden += 1;
                    continue;
                }
                tried += 1;
                let found = explain_on_node(&read_paste(text.as_bytes()), &node, None);
                let first = found.answers.first().and_then(|answer| answer.causes.first());
                let is_right =
                    first.is_some_and(|c| c.id == edit.id && c.text.starts_with(&edit.part));
                if !is_right {
                    let first = first.map(|cause| (cause.id, &cause.text));
                    wrong.push(format!("{preset}, {} {}: {first:?}", edit.id, edit.part));
                }
            }
        }
        println!("{format}: {} of {tried} named, {hidden} show nowhere", tried - wrong.len());
        let all = wrong.join("\n");
        assert!(
            tried > 30 && wrong.len() * 100 <= tried * 3,
            "{format}: {} of {tried}:\n{all}",
            wrong.len()
        );
    }
}
