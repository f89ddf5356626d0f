//! Slices of a described node: some of its GPUs, as clouds rent them.

use std::collections::BTreeMap;

use pathline_schema::{Gpu, GpuRoute, Link, LinkEnd, Nic, Topology};

use crate::desc::{DescError, MachineDesc};
use crate::fault::{FaultElement, MachineFault};
use crate::routes::RouteTable;

/// New numbers of the GPUs of a slice, by their numbers in the node.
struct SliceNumbers(BTreeMap<u32, u32>);

impl MachineDesc {
    /// The node with these of its GPUs alone: GPU n of the slice is `gpus[n]` of the node. All NUMA
    /// domains, their links and the files stay; adapters of other GPUs go. Its name is the node's with
    /// the GPUs, as `mi300x-gpu0-gpu1`.
    ///
    /// # Errors
    /// No GPU, one that the node has not or that is named twice, two GPUs that the fabric joins over one
    /// that is left out, or a description that states measured paths.
    pub fn slice(&self, gpus: &[u32]) -> Result<Self, DescError> {
        let error = |reason: String| DescError { file: self.file.clone(), reason };
        let node = self.healthy_topology();
        if gpus.is_empty() {
            return Err(error("slice: expected the number of at least one GPU".into()));
        }
        if !self.measured.paths.is_empty() {
            let reason =
                "slice: measured paths are of the whole node; expected a file without [[path]]";
            return Err(error(reason.into()));
        }
        let mut numbers = BTreeMap::new();
        for (&gpu, new) in gpus.iter().zip(0..) {
            if node.gpus.iter().all(|known| known.index != gpu) {
                let last = node.gpus.iter().map(|gpu| gpu.index).max().unwrap_or(0);
                return Err(error(format!("there is no gpu{gpu}; its GPUs are 0-{last}")));
            }
            if numbers.insert(gpu, new).is_some() {
                return Err(error(format!("slice: GPU {gpu} is named twice")));
            }
        }
        let numbers = SliceNumbers(numbers);
        numbers.check_routes(node).map_err(error)?;
        let mut slice = self.clone();
        for gpu in gpus {
            slice.name.push_str(&format!("-gpu{gpu}"));
        }
        slice.topology = numbers.topology(node);
        slice.topology.source = format!("machine {}", slice.name);
        slice.topology.host.hostname = slice.name.parse().unwrap_or_default();
        let places: Vec<usize> = gpus
            .iter()
            .filter_map(|gpu| node.gpus.iter().position(|known| known.index == *gpu))
            .collect();
        let row = |from: &Vec<f64>| places.iter().filter_map(|&to| from.get(to).copied()).collect();
        let models = slice.stacks.iter_mut().map(|stack| &mut stack.model);
        for model in models.chain([&mut slice.model]) {
            let matrix = std::mem::take(&mut model.time.copy_us_matrix);
            model.time.copy_us_matrix =
                places.iter().filter_map(|&from| matrix.get(from)).map(row).collect();
        }
        slice.cut_to(self.faults().iter().filter_map(|fault| numbers.fault(fault)).collect());
        Ok(slice)
    }
}

impl SliceNumbers {
    fn end(&self, end: LinkEnd) -> Option<LinkEnd> {
        match end {
            LinkEnd::Gpu(gpu) => self.0.get(&gpu).map(|&new| LinkEnd::Gpu(new)),
            other => Some(other),
        }
    }

    /// Bytes between two GPUs of the slice must not pass a third that is not in it.
    fn check_routes(&self, node: &Topology) -> Result<(), String> {
        let routes = RouteTable::of(node);
        let pairs = self.0.keys().flat_map(|&a| self.0.keys().map(move |&b| (a, b)));
        for (a, b) in pairs.filter(|(a, b)| a != b) {
            let Some(used) = routes.in_use(LinkEnd::Gpu(a), LinkEnd::Gpu(b)) else { continue };
            let passed = used.paths.iter().flat_map(|path| path.nodes.iter());
            let mut outside = passed.filter(|&&end| self.end(end).is_none());
            if let Some(gpu) = outside.next() {
                return Err(format!(
                    "slice: bytes from gpu{a} to gpu{b} pass {gpu}, which is left out; name it, too"
                ));
            }
        }
        Ok(())
    }

    fn topology(&self, node: &Topology) -> Topology {
        let mut slice = node.clone();
        slice.gpus.retain_mut(|gpu| match self.0.get(&gpu.index) {
            Some(&new) => {
                gpu.index = new;
                true
            }
            None => false,
        });
        slice.gpus.sort_by_key(|gpu| gpu.index);
        let others = node.gpus.iter().filter(|gpu| !self.0.contains_key(&gpu.index));
        let numbers = (slice.gpus.len() as u32)..;
        slice.hidden.gpus =
            others.zip(numbers).map(|(gpu, index)| Gpu { index, ..gpu.clone() }).collect();
        let link = |link: &Link| {
            let (a, b) = (self.end(link.a)?, self.end(link.b)?);
            Some(Link { a, b, ..link.clone() })
        };
        slice.links = node.links.iter().filter_map(link).collect();
        let ends = |via: &Vec<LinkEnd>| via.iter().map(|&end| self.end(end)).collect();
        let route = |route: &GpuRoute| {
            let (src, dst) = (self.end(route.src)?, self.end(route.dst)?);
            let via = route.via.iter().map(ends).collect::<Option<Vec<_>>>()?;
            Some(GpuRoute { src, dst, via, ..route.clone() })
        };
        slice.routes = node.routes.iter().filter_map(route).collect();
        let nic = |nic: &Nic| match nic.near_gpu {
            Some(gpu) => Some(Nic { near_gpu: Some(*self.0.get(&gpu)?), ..nic.clone() }),
            None => Some(nic.clone()),
        };
        slice.nics = node.nics.iter().filter_map(nic).collect();
        slice
    }

    fn fault(&self, fault: &MachineFault) -> Option<MachineFault> {
        let element = match fault.element {
            FaultElement::Bundle { from, to, one_way } => {
                FaultElement::Bundle { from: self.end(from)?, to: self.end(to)?, one_way }
            }
            FaultElement::Gpu(gpu) => FaultElement::Gpu(*self.0.get(&gpu)?),
            FaultElement::Numa(numa) => FaultElement::Numa(numa),
        };
        Some(MachineFault { element, ..*fault })
    }
}
