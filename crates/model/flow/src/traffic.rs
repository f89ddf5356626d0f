//! The paths of a node on which traffic can be counted, and the resources that each of them is.

use std::collections::BTreeMap;

use pathline_schema::{LinkEnd, TrafficPath, TrafficWay};

use crate::network::Network;

/// One direction of a path with its resources.
#[derive(Debug, Clone, PartialEq)]
pub struct CountedResources {
    /// The path.
    pub path: TrafficPath,
    /// The direction.
    pub way: TrafficWay,
    /// Indices into [`Network::resources`]: of a GPU's links to switches one for each switch.
    pub resources: Vec<u32>,
}

impl Network {
    /// Links between GPUs, domains and switches and links to the host in a fixed order, as counters of hardware tell them apart: links of a GPU to
    /// switches are one path.
    pub fn counted_resources(&self) -> Vec<CountedResources> {
        let mut found: BTreeMap<(TrafficPath, TrafficWay), Vec<u32>> = BTreeMap::new();
        let mut add = |path: TrafficPath, way, resource: Option<u32>| {
            found.entry((path, way)).or_default().extend(resource);
        };
        for (&(a, b), lane) in &self.graph.lanes {
            let kind = lane.bundle.kind;
            let (from, to, way) = match (a, b) {
                (_, LinkEnd::Switch(_)) => (a, None, TrafficWay::Out),
                (LinkEnd::Switch(_), _) => (b, None, TrafficWay::In),
                _ if a < b => (a, Some(b), TrafficWay::Out),
                _ => (b, Some(a), TrafficWay::In),
            };
            add(TrafficPath::Links { from, to, kind }, way, lane.one_way);
        }
        for (&gpu, node) in &self.graph.gpus {
            if let Some(port) = &node.port {
                let (from, to) = (LinkEnd::Gpu(gpu), port.home.map(LinkEnd::Numa));
                let path = TrafficPath::Links { from, to, kind: port.kind };
                add(path.clone(), TrafficWay::Out, port.out_of_gpu);
                add(path, TrafficWay::In, port.into_gpu);
            }
        }
        let found = found.into_iter().filter(|(_, resources)| !resources.is_empty());
        let counted =
            found.map(|((path, way), resources)| CountedResources { path, way, resources });
        counted.collect()
    }
}
