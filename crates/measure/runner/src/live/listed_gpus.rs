//! GPUs of the node as the runtime lists them: fewer than on the bus, or in another order.

use pathline_hal::DeviceInfo;
use pathline_schema::{
    Bytes, Gpu, GpuCache, GpuRoute, HiddenGpus, Link, LinkEnd, Topology, TopologyWarning,
};

/// Puts the GPUs that a runtime lists in place of all that discovery found: it may list fewer
/// (`visible` names the variables), and it knows their memory and targets. The others are kept as hidden.
pub(crate) fn merge(topology: &mut Topology, infos: &[DeviceInfo], vendor: &str, visible: &str) {
    if infos.is_empty() {
        return;
    }
    let mut found = std::mem::take(&mut topology.gpus);
    // Discovery may have found that the job's cgroup lacks some.
    let denied = std::mem::take(&mut topology.hidden);
    found.extend(denied.gpus);
    topology.links.extend(denied.links);
    topology.routes.extend(denied.routes);
    topology.gpus = infos
        .iter()
        .map(|info| {
            let known = found.iter().find(|g| g.pci == info.pci).cloned();
            let known = known.unwrap_or_else(|| Gpu { vendor: vendor.into(), ..Gpu::default() });
            Gpu {
                index: info.index,
                name: info.name.clone(),
                arch: info.arch.clone(),
                pci: info.pci.clone(),
                numa: known.numa.or(info.numa),
                memory: info.memory,
                memory_peak: known.memory_peak.or(info.memory_peak),
                compute_units: info.compute_units,
                caches: caches(info, &known),
                ..known
            }
        })
        .collect();
    let free = topology.gpus.iter().map(|gpu| gpu.index + 1).max().unwrap_or(0);
    let unlisted = found.iter().filter(|g| infos.iter().all(|i| i.pci != g.pci));
    let hidden: Vec<Gpu> =
        unlisted.zip(free..).map(|(gpu, index)| Gpu { index, ..gpu.clone() }).collect();
    let count = hidden.len();
    topology.hidden = HiddenGpus { gpus: hidden, ..HiddenGpus::default() };
    renumber(topology, &found);
    if count > 0 {
        topology.warnings.push(TopologyWarning {
            code: "gpus-not-listed".into(),
            subject: "gpus".into(),
            text: format!("GPUs on the bus that the runtime does not list: {count}; see {visible}"),
        });
    }
}

/// The cache that the runtime states, else what discovery knows.
fn caches(info: &DeviceInfo, known: &Gpu) -> Vec<GpuCache> {
    match info.l2 {
        Bytes(0) => known.caches.clone(),
        size => vec![GpuCache { level: 2, size }],
    }
}

/// Gives links and routes the numbers that their GPUs now have. Those of hidden GPUs go to them.
fn renumber(topology: &mut Topology, before: &[Gpu]) {
    let links = std::mem::take(&mut topology.links);
    let routes = std::mem::take(&mut topology.routes);
    let now = |old: u32| {
        let pci = &before.iter().find(|g| g.index == old)?.pci;
        let all = topology.gpus.iter().chain(&topology.hidden.gpus);
        all.into_iter().find(|g| g.pci == *pci).map(|g| g.index)
    };
    let end = |end: LinkEnd| match end {
        LinkEnd::Gpu(old) => now(old).map(LinkEnd::Gpu),
        other => Some(other),
    };
    let is_listed = |end: LinkEnd| match end {
        LinkEnd::Gpu(index) => topology.gpus.iter().any(|gpu| gpu.index == index),
        _ => true,
    };
    let links = links
        .into_iter()
        .filter_map(|link| Some(Link { a: end(link.a)?, b: end(link.b)?, ..link }));
    let (links, hidden_links): (Vec<_>, Vec<_>) =
        links.partition(|link| is_listed(link.a) && is_listed(link.b));
    let routes = routes.into_iter().filter_map(|route| {
        let each = |via: Vec<LinkEnd>| via.into_iter().map(end).collect::<Option<Vec<_>>>();
        let via = route.via.into_iter().map(each).collect::<Option<Vec<_>>>()?;
        Some(GpuRoute { src: end(route.src)?, dst: end(route.dst)?, via, ..route })
    });
    let (routes, hidden_routes): (Vec<_>, Vec<_>) = routes.partition(|route| {
        let mut passed = route.via.iter().flatten().chain([&route.src, &route.dst]);
        passed.all(|end| is_listed(*end))
    });
    for nic in &mut topology.nics {
        nic.near_gpu = nic.near_gpu.and_then(now);
    }
    (topology.links, topology.routes) = (links, routes);
    (topology.hidden.links, topology.hidden.routes) = (hidden_links, hidden_routes);
}

#[cfg(test)]
mod tests {
    use pathline_schema::{Bytes, LinkKind};

    use super::*;

    fn link(a: u32, b: u32) -> Link {
        let (a, b) = (LinkEnd::Gpu(a), LinkEnd::Gpu(b));
        Link { a, b, kind: LinkKind::Xgmi, width: 1, peak: None }
    }

    fn route(src: u32, dst: u32, via: u32) -> GpuRoute {
        let via = vec![vec![LinkEnd::Gpu(via)]];
        GpuRoute { src: LinkEnd::Gpu(src), dst: LinkEnd::Gpu(dst), hops: 2, via }
    }

    /// Three GPUs in a line, with a link of each to a NUMA domain.
    fn found() -> Topology {
        let gpu = |index: u32| Gpu {
            index,
            pci: format!("0000:{}0:00.0", index + 1).parse().unwrap(),
            package: Some(index),
            ..Gpu::default()
        };
        let to_host = |index| Link { b: LinkEnd::Numa(0), kind: LinkKind::Pcie, ..link(index, 0) };
        Topology {
            gpus: vec![gpu(0), gpu(1), gpu(2)],
            links: vec![link(0, 1), link(1, 2), to_host(0), to_host(2)],
            routes: vec![route(0, 2, 1)],
            ..Topology::default()
        }
    }

    fn listed(index: u32, pci: &str) -> DeviceInfo {
        DeviceInfo {
            index,
            name: String::new(),
            arch: "gfx90a".to_owned(),
            pci: pci.parse().unwrap(),
            numa: None,
            memory: Bytes(0),
            memory_peak: None,
            compute_units: 110,
            l2: Bytes::mib(8),
            demand_migration: false,
        }
    }

    #[test]
    fn a_visibility_variable_hides_gpus_and_keeps_their_links() {
        let mut topology = found();
        merge(&mut topology, &[listed(0, "0000:30:00.0")], "amd", "ROCR_VISIBLE_DEVICES");
        // The third GPU is now gpu0; the others follow it.
        let numbers = |gpus: &[Gpu]| gpus.iter().map(|g| (g.index, g.package)).collect::<Vec<_>>();
        assert_eq!(numbers(&topology.gpus), [(0, Some(2))]);
        assert_eq!(numbers(&topology.hidden.gpus), [(1, Some(0)), (2, Some(1))]);
        assert_eq!(topology.links.len(), 1, "its own link to the host");
        assert_eq!(topology.hidden.links[..2], [link(1, 2), link(2, 0)]);
        assert_eq!(topology.hidden.routes, [route(1, 0, 2)]);
        assert_eq!(topology.gpu_identity(0).unwrap().host_index, 2);
        assert!(topology.has_warning("gpus-not-listed"));
        let whole = topology.whole_node();
        assert_eq!((whole.gpus.len(), whole.links.len(), whole.routes.len()), (3, 4, 1));
    }

    /// GPU 2 alone may be opened: the KFD shows no other, the bus has two more.
    #[test]
    fn gpus_that_a_cgroup_denies_count_on_the_bus() {
        let whole = found();
        let gpu = |index: u32, at: usize| Gpu { index, ..whole.gpus[at].clone() };
        let hidden = HiddenGpus { gpus: vec![gpu(1, 0), gpu(2, 1)], ..HiddenGpus::default() };
        let mut topology = Topology { gpus: vec![gpu(0, 2)], hidden, ..Topology::default() };
        topology.nics = vec![pathline_schema::Nic { near_gpu: Some(2), ..Default::default() }];
        merge(&mut topology, &[listed(0, "0000:30:00.0")], "amd", "ROCR_VISIBLE_DEVICES");
        assert_eq!((topology.gpus.len(), topology.hidden.gpus.len()), (1, 2));
        assert_eq!(topology.gpu_identity(0).unwrap().host_index, 2);
        assert_eq!(topology.nics[0].near_gpu, topology.gpu_at("0000:20:00.0"));
    }

    #[test]
    fn other_numbers_of_the_runtime_reach_links_and_routes() {
        let mut topology = found();
        let infos = [2, 1, 0].map(|old: u32| listed(2 - old, &format!("0000:{}0:00.0", old + 1)));
        merge(&mut topology, &infos, "amd", "ROCR_VISIBLE_DEVICES");
        assert!(topology.hidden.is_empty() && !topology.has_warning("gpus-not-listed"));
        assert_eq!(topology.links[..2], [link(2, 1), link(1, 0)]);
        assert_eq!(topology.routes, [route(2, 0, 1)]);
    }
}
