//! The parts of a node that can be damaged, and which resources each of them is.

use std::collections::BTreeMap;

use pathline_schema::LinkEnd;

use crate::network::Network;

/// The kind of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElementKind {
    /// Links between two GPUs.
    GpuLink,
    /// All links of a GPU to its switches.
    SwitchPort,
    /// A GPU's link to the host.
    HostLink,
    /// Links between NUMA domains.
    CpuLink,
    /// Copy engines of a GPU.
    CopyEngine,
    /// Memory of a GPU or of a NUMA domain.
    Memory,
    /// Something that measurements showed to be shared, in a twin.
    Shared,
}

/// A part of a node, one direction of it or both.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeElement {
    /// For a reader: `xGMI gpu0>gpu1, 4 links`, `gpu3 HBM`.
    pub name: String,
    /// Its kind.
    pub kind: ElementKind,
    /// Physical links; 1 for other parts.
    pub parts: u32,
    /// Indices into [`Network::resources`] of what is slower if it is damaged.
    pub resources: Vec<u32>,
    /// The most that one flow gets of it although it can carry more, in GB/s: one of several engines.
    pub alone: Option<f64>,
}

impl NodeElement {
    /// Share of its capacity that is left after the least damage of its kind: one link of several, half
    /// the lanes of a single link, half the speed of the engines, one of eight memory channels.
    pub fn damaged(&self) -> f64 {
        match self.kind {
            ElementKind::Memory => 7.0 / 8.0,
            _ if self.parts > 1 => 1.0 - 1.0 / f64::from(self.parts),
            _ => 0.5,
        }
    }

    /// Both directions at once.
    fn with(&self, other: &Self, name: String) -> Self {
        let resources = self.resources.iter().chain(&other.resources).copied().collect();
        Self { name, resources, ..self.clone() }
    }
}

impl Network {
    /// The parts that can be damaged, in a fixed order: links and ports in each direction and in both,
    /// engines, memories, and what a twin shares.
    pub fn elements(&self) -> Vec<NodeElement> {
        let mut elements = Vec::new();
        self.add_links(&mut elements);
        self.add_units(&mut elements);
        let measured = &self.measured().shared;
        let first = self.resources().len() - measured.len();
        let shared = measured.iter().enumerate().map(|(n, shared)| NodeElement {
            name: shared.name.clone(),
            kind: ElementKind::Shared,
            parts: 1,
            resources: vec![(first + n) as u32],
            alone: None,
        });
        elements.extend(shared);
        elements
    }

    fn add_links(&self, elements: &mut Vec<NodeElement>) {
        let mut ports: BTreeMap<(LinkEnd, bool), NodeElement> = BTreeMap::new();
        for (&(a, b), lane) in &self.graph.lanes {
            let Some(resource) = lane.one_way else { continue };
            let kind = lane.bundle.kind.name();
            let gpu_of_switch = match (a, b) {
                (LinkEnd::Gpu(_), LinkEnd::Switch(_)) => Some((a, true)),
                (LinkEnd::Switch(_), LinkEnd::Gpu(_)) => Some((b, false)),
                _ => None,
            };
            if let Some((gpu, out)) = gpu_of_switch {
                let port = ports.entry((gpu, out)).or_insert_with(|| NodeElement {
                    name: format!("{kind} {gpu} {} switches", if out { "to" } else { "from" }),
                    kind: ElementKind::SwitchPort,
                    parts: 0,
                    resources: Vec::new(),
                    alone: None,
                });
                port.parts += lane.bundle.width;
                port.resources.push(resource);
                continue;
            }
            let between = |a, b| matches!((a, b), (LinkEnd::Numa(_), LinkEnd::Numa(_)));
            let element = |a: LinkEnd, b: LinkEnd, resource| NodeElement {
                name: format!("{kind} {a}>{b}"),
                kind: if between(a, b) { ElementKind::CpuLink } else { ElementKind::GpuLink },
                parts: lane.bundle.width,
                resources: vec![resource],
                alone: None,
            };
            let back = self.graph.lanes.get(&(b, a)).and_then(|lane| lane.one_way);
            if let (true, Some(back)) = (a < b, back) {
                let (there, back) = (element(a, b, resource), element(b, a, back));
                let both = there.with(&back, format!("{kind} {a}-{b}, both directions"));
                elements.extend([there, back, both]);
            }
        }
        for ((gpu, out), port) in &ports {
            elements.push(port.clone());
            if let (false, Some(outward)) = (*out, ports.get(&(*gpu, true))) {
                let kind = port.name.split(' ').next().unwrap_or_default();
                let name = format!("{kind} {gpu}-switches, both directions");
                elements.push(port.with(outward, name));
            }
        }
    }

    fn add_units(&self, elements: &mut Vec<NodeElement>) {
        let single = |name: String, kind, resource: Option<u32>, alone| {
            let resources = vec![resource?];
            Some(NodeElement { name, kind, parts: 1, resources, alone })
        };
        let engine = &self.graph.model.copy_engine;
        let alone = Some(engine.gbs * f64::from(engine.gang));
        for (g, gpu) in &self.graph.gpus {
            if let Some(port) = &gpu.port {
                let name = |what: &str| format!("{}, {what}", port.name);
                let kind = ElementKind::HostLink;
                let inward = single(name("into the GPU"), kind, port.into_gpu, None);
                let outward = single(name("out of the GPU"), kind, port.out_of_gpu, None);
                if let Some((inward, outward)) = inward.zip(outward) {
                    let both = inward.with(&outward, name("both directions"));
                    elements.extend([inward, outward, both]);
                }
            }
            let kind = ElementKind::CopyEngine;
            let engines = [("peers", gpu.peer_engines), ("the host", gpu.host_engines)];
            let engines = engines.map(|(to, resource)| {
                single(format!("gpu{g} copy engines to {to}"), kind, resource, alone)
            });
            elements.extend(engines.into_iter().flatten());
            elements.extend(single(format!("gpu{g} HBM"), ElementKind::Memory, gpu.memory, None));
        }
        for (n, numa) in &self.graph.numas {
            elements.extend(single(format!("numa{n} DDR"), ElementKind::Memory, numa.memory, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{ElementKind, MachineDesc, Network, RuntimeEnv};

    fn count(machine: &str, kind: ElementKind) -> usize {
        let desc = MachineDesc::preset(machine).unwrap();
        let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
        network.elements().iter().filter(|element| element.kind == kind).count()
    }

    #[test]
    fn every_part_is_an_element_in_each_direction_and_in_both() {
        // 12 bundles and 8 host links, three elements each; 8 GPUs with engines for two purposes;
        // 8 GPU memories and 4 domains.
        assert_eq!(count("mi250x", ElementKind::GpuLink), 36);
        assert_eq!(count("mi250x", ElementKind::HostLink), 24);
        assert_eq!(count("mi250x", ElementKind::CopyEngine), 16);
        assert_eq!(count("mi250x", ElementKind::Memory), 12);
        // 8 ports of 18 links, and one link between the sockets.
        assert_eq!(count("hgx-h200", ElementKind::SwitchPort), 24);
        assert_eq!(count("hgx-h200", ElementKind::CpuLink), 3);
        assert_eq!(count("hgx-h200", ElementKind::GpuLink), 0);
    }

    #[test]
    fn the_least_damage_is_one_link_or_half_the_lanes() {
        let desc = MachineDesc::preset("hgx-h200").unwrap();
        let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
        let elements = network.elements();
        let damaged = |name: &str| {
            elements.iter().find(|element| element.name == name).map(|e| (e.parts, e.damaged()))
        };
        assert_eq!(damaged("NVLink gpu3 to switches"), Some((18, 17.0 / 18.0)));
        assert_eq!(damaged("PCIe gpu3-numa0, into the GPU"), Some((1, 0.5)));
        assert_eq!(damaged("gpu3 HBM"), Some((1, 0.875)));
    }
}
