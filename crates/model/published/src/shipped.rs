//! The tables that come with the program, and which machine each is of.

use std::sync::OnceLock;

use pathline_flow::MachineDesc;
use pathline_schema::{LinkEnd, LinkKind, Topology};

use crate::lookup::{PublishedTable, UnitNaming};

/// How a node is recognised as one that a table holds for.
#[derive(Debug, Clone, Copy)]
enum NodeRule {
    /// It has the GPUs of the preset of the table's name, with as much memory, joined by the same links of this
    /// kind with the same numbers. An MI325X is an MI300X with more memory.
    Wiring(LinkKind),
    /// Every GPU's name has this where a word begins: a GH200 is no H200. A switch joins them, so that all
    /// pairs are equal.
    GpuName(&'static str),
}

/// A table of published values that comes with the program.
#[derive(Debug)]
pub struct ShippedTable {
    /// The `system` of its rows: the name of a preset.
    pub system: &'static str,
    /// The table as CSV.
    pub text: &'static str,
    rule: NodeRule,
    naming: UnitNaming,
    preset: OnceLock<Option<Topology>>,
    lookup: OnceLock<PublishedTable>,
}

/// All of them.
pub static SHIPPED: [ShippedTable; 7] = [
    ShippedTable::new(
        "mi250x",
        concat!(
            include_str!("../data/mi250x.csv"),
            include_str!("../data/mi250x-sweeps.csv"),
            include_str!("../data/mi250x-2026.csv"),
        ),
        NodeRule::Wiring(LinkKind::Xgmi),
        UnitNaming::Numbers,
    ),
    ShippedTable::new(
        "hgx-h200",
        concat!(include_str!("../data/hgx-h200.csv"), include_str!("../data/hgx-h200-2026.csv")),
        NodeRule::GpuName("H200"),
        UnitNaming::Order,
    ),
    // The name of the SXM module; cards have others.
    ShippedTable::new(
        "hgx-h100",
        concat!(include_str!("../data/hgx-h100.csv"), include_str!("../data/hgx-h100-2026.csv")),
        NodeRule::GpuName("H100 80GB HBM3"),
        UnitNaming::Order,
    ),
    ShippedTable::new(
        "mi300x",
        concat!(include_str!("../data/mi300x.csv"), include_str!("../data/mi300x-2026.csv")),
        NodeRule::Wiring(LinkKind::Xgmi),
        UnitNaming::Numbers,
    ),
    ShippedTable::new(
        "mi300a",
        concat!(include_str!("../data/mi300a.csv"), include_str!("../data/mi300a-2026.csv")),
        NodeRule::Wiring(LinkKind::Xgmi),
        UnitNaming::Numbers,
    ),
    ShippedTable::new(
        "mi100",
        include_str!("../data/mi100.csv"),
        NodeRule::Wiring(LinkKind::Xgmi),
        UnitNaming::Numbers,
    ),
    ShippedTable::new(
        "v100",
        include_str!("../data/v100.csv"),
        NodeRule::GpuName("V100-SXM2"),
        UnitNaming::Order,
    ),
];

impl ShippedTable {
    const fn new(
        system: &'static str,
        text: &'static str,
        rule: NodeRule,
        naming: UnitNaming,
    ) -> Self {
        Self { system, text, rule, naming, preset: OnceLock::new(), lookup: OnceLock::new() }
    }

    /// The table of a described machine: of its name, or of a node like it.
    pub fn for_machine(desc: &MachineDesc) -> Option<&'static Self> {
        let named = SHIPPED.iter().find(|table| table.system == desc.name);
        named.or_else(|| Self::for_node(&desc.topology()))
    }

    /// The table that holds for a node, real or simulated.
    pub fn for_node(topology: &Topology) -> Option<&'static Self> {
        SHIPPED.iter().find(|table| table.is_of(topology))
    }

    fn is_of(&self, topology: &Topology) -> bool {
        match self.rule {
            NodeRule::GpuName(part) => {
                let has_word = |name: &str| {
                    let before = name.split_once(part).map(|(before, _)| before);
                    before.is_some_and(|text| !text.ends_with(char::is_alphanumeric))
                };
                !topology.gpus.is_empty() && topology.gpus.iter().all(|g| has_word(&g.name))
            }
            NodeRule::Wiring(kind) => {
                let preset = || MachineDesc::preset(self.system).ok().map(|desc| desc.topology());
                self.preset.get_or_init(preset).as_ref().is_some_and(|preset| {
                    archs(preset) == archs(topology)
                        && gpu_memory(topology).is_none_or(|own| {
                            gpu_memory(preset).is_some_and(|all| (0.9..1.1).contains(&(own / all)))
                        })
                        && gpu_links(preset, kind) == gpu_links(topology, kind)
                })
            }
        }
    }

    pub(crate) fn lookup(&'static self) -> &'static PublishedTable {
        // A test holds that every row can be read.
        let rows = || crate::read(self.text).unwrap_or_default();
        self.lookup.get_or_init(|| PublishedTable::new(&rows(), self.naming))
    }
}

impl PublishedTable {
    /// The values for a node. `None` unless its GPUs, links and numbering are those of a source.
    pub fn for_node(topology: &Topology) -> Option<&'static Self> {
        ShippedTable::for_node(topology).map(ShippedTable::lookup)
    }
}

fn archs(topology: &Topology) -> Vec<&str> {
    topology.gpus.iter().map(|gpu| gpu.arch.as_str()).collect()
}

/// Memory of all GPUs, bytes; none where a source does not state it.
fn gpu_memory(topology: &Topology) -> Option<f64> {
    let all: f64 = topology.gpus.iter().map(|gpu| gpu.memory.as_f64()).sum();
    Some(all).filter(|all| *all > 0.0)
}

/// Links between GPUs: the lower number, the higher one, the width; sorted.
fn gpu_links(topology: &Topology, kind: LinkKind) -> Vec<(u32, u32, u32)> {
    let of_gpus = topology.links.iter().filter(|link| link.kind == kind);
    let mut links: Vec<_> = of_gpus
        .filter_map(|link| match (link.a, link.b) {
            (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) => Some((a.min(b), a.max(b), link.width)),
            _ => None,
        })
        .collect();
    links.sort_unstable();
    links.dedup();
    links
}
