//! Edits of a node: what each damaged part does to the times of paths.

use std::collections::BTreeMap;

use pathline_flow::{Network, NodeElement};
use pathline_schema::{Case, Flow, Mover, Topology, Unit};

/// How a probe depends on a part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ProbeExposure {
    /// Index of the probe.
    pub(crate) probe: usize,
    /// Share of its capacity that the part can lose before the probe gets slower, 0 for its bottleneck.
    pub(crate) spare: f64,
    /// Share of the probe's time in which it moves bytes, 0 to 1.
    pub(crate) moving: f64,
}

impl ProbeExposure {
    /// Natural logarithm of the factor by which the probe's time grows if `left` of the part is left.
    pub(crate) fn slowdown(&self, left: f64) -> f64 {
        let stretch = ((1.0 - self.spare) / left.max(1e-6)).max(1.0);
        (1.0 + self.moving * (stretch - 1.0)).ln()
    }

    /// The least share of its capacity without which the part slows the probe by a share of its speed.
    pub(crate) fn least_damage(&self, loss: f64) -> f64 {
        let stretch = 1.0 + (1.0 / (1.0 - loss) - 1.0) / self.moving.max(1e-6);
        1.0 - (1.0 - self.spare) / stretch
    }
}

/// A part, what may be wrong with it, and the probes that depend on it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PartEdit {
    /// Name of the part.
    pub(crate) element: String,
    /// Number of parts in it, such as links.
    pub(crate) parts: u32,
    /// Share that is left after its least damage.
    pub(crate) least: f64,
    /// Logarithm of its probability relative to other edits, before measuring.
    pub(crate) ln_prior: f64,
    /// The probes that it slows, by index; not empty.
    pub(crate) exposures: Vec<ProbeExposure>,
}

impl PartEdit {
    /// Share of its speed that the probe which suffers most loses by the least damage.
    pub(crate) fn greatest_loss(&self) -> f64 {
        let slowest = self.exposures.iter().map(|exposure| exposure.slowdown(self.least));
        1.0 - (-slowest.fold(0.0, f64::max)).exp()
    }
}

/// Rate of flows that start together and what they are made of; none where the network does not know a path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FlowShape {
    /// GB/s of the largest flow.
    pub(crate) rate: f64,
    /// Time before the first byte, ns.
    pub(crate) start: f64,
    /// The most that each resource lets through, GB/s of the largest flow.
    pub(crate) limits: BTreeMap<u32, f64>,
}

impl FlowShape {
    /// Where only the peaks of links are known, they say nothing about an engine whose rate does not follow their
    /// number: it moves about what one of them carries.
    pub(crate) fn new(network: &Network, topology: &Topology, flows: &[Flow]) -> Option<Self> {
        let bytes = flows.iter().map(|flow| flow.bytes.as_f64()).fold(1.0, f64::max);
        let mut weights: BTreeMap<u32, f64> = BTreeMap::new();
        let (mut cap, mut start, mut links) = (f64::INFINITY, 0.0f64, 1);
        for flow in flows {
            let operation = network.operation(flow).ok()?;
            let part = flow.bytes.as_f64() / bytes;
            for used in &operation.uses {
                *weights.entry(used.resource).or_default() += used.weight * part;
            }
            cap = cap.min(operation.cap.0 / part);
            start = start.max(operation.alpha.0);
            if !network.is_described() {
                links = links.max(idle_links(topology, flow));
            }
        }
        let capacity = |resource: u32| network.resources().get(resource as usize);
        let limits: BTreeMap<u32, f64> = weights
            .into_iter()
            .filter_map(|(r, weight)| Some((r, capacity(r)?.capacity.0 / weight)))
            .collect();
        let rate = limits.values().copied().fold(cap, f64::min);
        let shape = Self { rate: rate / f64::from(links), start, limits };
        (rate > 0.0 && rate.is_finite()).then_some(shape)
    }

    /// Predicted time of `bytes`, ns.
    pub(crate) fn time(&self, bytes: f64) -> f64 {
        self.start + bytes / self.rate
    }

    /// How the flow depends on a part; none if not at all, or if it has three quarters to spare.
    pub(crate) fn exposure(
        &self,
        probe: usize,
        bytes: f64,
        element: &NodeElement,
    ) -> Option<ProbeExposure> {
        let limits = element.resources.iter().filter_map(|r| self.limits.get(r));
        let limit = limits.copied().reduce(f64::min)?;
        let limit = element.alone.map_or(limit, |alone| limit.min(alone));
        let spare = (1.0 - self.rate / limit).max(0.0);
        let moving = (bytes / self.rate) / self.time(bytes);
        (spare < 0.75).then_some(ProbeExposure { probe, spare, moving })
    }
}

/// The edits of all parts of a described node that some probe sees.
pub(crate) fn element_edits(
    elements: &[NodeElement],
    shapes: &[(usize, f64, FlowShape)],
) -> Vec<PartEdit> {
    let edit = |element: &NodeElement| {
        let exposed = shapes.iter().filter_map(|(n, bytes, s)| s.exposure(*n, *bytes, element));
        PartEdit {
            element: element.name.clone(),
            parts: element.parts,
            least: element.damaged(),
            ln_prior: 0.0,
            exposures: exposed.collect(),
        }
    };
    elements.iter().map(edit).collect()
}

/// An edit that slows some probes by any amount, for what no description knows.
pub(crate) fn plain_edit(element: String, ln_prior: f64, probes: Vec<usize>) -> PartEdit {
    let exposure = |probe| ProbeExposure { probe, spare: 0.0, moving: 1.0 };
    let exposures = probes.into_iter().map(exposure).collect();
    PartEdit { element, parts: 1, least: 0.5, ln_prior, exposures }
}

/// Links between two GPUs of which an engine of a fixed rate moves what one carries; 1 for other flows.
fn idle_links(topology: &Topology, flow: &Flow) -> u32 {
    let fixed = |n: u32| topology.gpus.iter().any(|g| g.index == n && g.caps().fixed_engine_rate);
    let (Mover::Dma { at }, Some(src), Some(dst)) =
        (flow.by, flow.src.unit.gpu(), flow.dst.unit.gpu())
    else {
        return 1;
    };
    let joined = topology.links.iter().filter(|link| {
        let ends = [link.a, link.b];
        ends.contains(&Unit::Gpu(src).into()) && ends.contains(&Unit::Gpu(dst).into())
    });
    if at.gpu().is_some_and(fixed) { joined.map(|link| link.width).sum::<u32>().max(1) } else { 1 }
}

/// Edits that every node has: a path by one mover, a path by all movers and, where no network is known,
/// a GPU as source, as destination and as both. A path alone is taken for less probable than a part:
/// routes have no hardware of their own.
pub(crate) fn general_edits(
    paths: &[(&Case, &str)],
    topology: &Topology,
    with_units: bool,
) -> Vec<PartEdit> {
    let mut edits = Vec::new();
    let single = |case: &Case| case.timed.first().copied().filter(|_| case.timed.len() == 1);
    let flows: Vec<Option<Flow>> = paths.iter().map(|(case, _)| single(case)).collect();
    let indices = |is_meant: &dyn Fn(&Flow) -> bool| -> Vec<usize> {
        let meant = flows.iter().enumerate();
        let meant = meant.filter(|(_, flow)| flow.as_ref().is_some_and(is_meant));
        meant.map(|(nth, _)| nth).collect()
    };
    let mut pairs: Vec<(Unit, Unit)> =
        flows.iter().flatten().map(|flow| (flow.src.unit, flow.dst.unit)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    for (src, dst) in pairs {
        let probes = indices(&|flow| (flow.src.unit, flow.dst.unit) == (src, dst));
        if probes.len() > 1 {
            edits.push(plain_edit(format!("path {src}→{dst}"), PATH_PRIOR, probes));
        }
    }
    for (nth, (_, label)) in paths.iter().enumerate() {
        edits.push(plain_edit(format!("path {label}"), PATH_PRIOR + MOVER_PRIOR, vec![nth]));
    }
    if with_units {
        for gpu in &topology.gpus {
            let unit = Unit::Gpu(gpu.index);
            let out = indices(&|flow| flow.src.unit == unit && flow.dst.unit != unit);
            let into = indices(&|flow| flow.dst.unit == unit && flow.src.unit != unit);
            let both = indices(&|flow| flow.src.unit == unit || flow.dst.unit == unit);
            for (what, probes) in
                [("as source", out), ("as destination", into), ("both ways", both)]
            {
                if probes.len() > 1 {
                    edits.push(plain_edit(format!("{unit} {what}"), 0.0, probes));
                }
            }
        }
    }
    edits
}

/// Logarithm of the odds of a path that is slow by itself, to a part: 1 to 20.
pub(crate) const PATH_PRIOR: f64 = -3.0;
/// Logarithm of the odds that one mover alone is slow on it: 1 to 3.
const MOVER_PRIOR: f64 = -1.1;

/// The edits of a node, as its description or the peaks of its links tell, that slow some of these paths.
pub(crate) fn node_edits(
    topology: &Topology,
    network: Option<&Network>,
    paths: &[(&Case, &str)],
) -> Vec<PartEdit> {
    let derived = network.is_none().then(|| Network::from_topology(topology));
    let Some(known) = network.or(derived.as_ref()) else { return Vec::new() };
    let shapes = paths.iter().enumerate().filter_map(|(nth, (case, _))| {
        let shape = FlowShape::new(known, topology, &case.timed)?;
        let bytes = case.timed.iter().map(|flow| flow.bytes.as_f64()).fold(0.0, f64::max);
        Some((nth, bytes, shape))
    });
    let elements = known.elements();
    let mut edits = element_edits(&elements, &shapes.collect::<Vec<_>>());
    edits.retain(|edit| !edit.exposures.is_empty());
    edits.extend(general_edits(paths, topology, elements.is_empty()));
    edits
}

#[cfg(test)]
mod tests {
    use pathline_schema::{Gpu, Link, LinkEnd, LinkKind};

    use super::*;

    /// An SDMA engine moves what one of the links carries that join two GPUs, whichever is named first: of 4 + 1
    /// lanes a fifth. Kernels, engines of NVIDIA and copies to the host use the full width.
    #[test]
    fn an_engine_of_a_fixed_rate_leaves_all_links_but_one_idle() {
        let gpu = |index, vendor: &str| Gpu { index, vendor: vendor.into(), ..Gpu::default() };
        let link =
            |a, b, width| Link { a: LinkEnd::Gpu(a), b, kind: LinkKind::Xgmi, width, peak: None };
        let links = vec![
            link(0, LinkEnd::Gpu(1), 4),
            link(1, LinkEnd::Gpu(0), 1),
            link(0, LinkEnd::Gpu(2), 2),
            link(0, LinkEnd::Numa(0), 16),
        ];
        let gpus = vec![gpu(0, "amd"), gpu(1, "amd"), gpu(2, "nvidia"), gpu(3, "amd")];
        let topology = Topology { gpus, links, ..Topology::default() };
        for (flow, expected) in [
            ("gpu0.vram > gpu1.vram by dma@gpu0", 5),
            ("gpu1.vram > gpu0.vram by dma@gpu0", 5),
            ("gpu0.vram > gpu2.vram by dma@gpu0", 2),
            ("gpu0.vram > gpu2.vram by dma@gpu2", 1),
            ("gpu0.vram > gpu3.vram by dma@gpu0", 1),
            ("gpu0.vram > gpu1.vram by blit@gpu0", 1),
            ("gpu0.vram > numa0.pinned by dma@gpu0", 1),
            ("numa0.pinned > gpu0.vram by dma@gpu0", 1),
        ] {
            let case: Case = format!("{flow} x 1MiB").parse().expect("a case");
            assert_eq!(idle_links(&topology, &case.timed[0]), expected, "{flow}");
        }
    }

    /// A probe of 80 of 100 GB/s has a fifth to spare, and one that moves bytes for half of its time is slowed in
    /// that half only. What is left of a part counts beyond what the probe leaves idle.
    #[test]
    fn a_part_slows_a_probe_by_what_it_has_too_little() {
        let slowdown =
            |spare, moving, left| ProbeExposure { probe: 0, spare, moving }.slowdown(left).exp();
        for (spare, moving, left, expected) in [
            (0.0, 1.0, 0.5, 2.0),
            (0.2, 1.0, 0.5, 1.6),
            (0.2, 1.0, 0.8, 1.0),
            (0.2, 1.0, 0.9, 1.0),
            (0.2, 0.5, 0.5, 1.3),
            (0.0, 1.0, 0.0, 1e6),
        ] {
            let found = slowdown(spare, moving, left);
            assert!((found / expected - 1.0).abs() < 1e-9, "{spare} {moving} {left}: {found}");
        }
        let shape = FlowShape {
            rate: 80.0,
            start: 1000.0,
            limits: [(3, 100.0), (4, 400.0), (5, 310.0)].into(),
        };
        assert_eq!(shape.time(80_000.0), 2000.0);
        let of = |resources: &[u32], alone| {
            let element = NodeElement {
                name: String::new(),
                kind: pathline_flow::ElementKind::GpuLink,
                parts: 1,
                resources: resources.to_vec(),
                alone,
            };
            shape
                .exposure(7, 80_000.0, &element)
                .map(|e| (e.probe, (e.spare * 100.0).round(), e.moving))
        };
        assert_eq!(of(&[3], None), Some((7, 20.0, 0.5)));
        assert_eq!(of(&[4, 3, 9], None), Some((7, 20.0, 0.5)), "the narrowest of its resources");
        assert_eq!(of(&[4], Some(90.0)), Some((7, 11.0, 0.5)), "one of several engines");
        assert_eq!(of(&[4], Some(60.0)), Some((7, 0.0, 0.5)));
        assert_eq!(of(&[5], None), Some((7, 74.0, 0.5)));
        assert_eq!(
            (of(&[4], None), of(&[9], None)),
            (None, None),
            "three quarters to spare, and none"
        );
    }

    /// What two movers copy from gpu0 to gpu1 may be slow for both or for one. A path of one mover is one edit.
    /// Where no network is known, a GPU slows all that leaves it, all that arrives, or both: three, two, three.
    #[test]
    fn a_path_is_slow_by_mover_or_as_a_whole_and_a_gpu_by_direction() {
        let labels = [
            "gpu0.vram > gpu1.vram by dma@gpu0",
            "gpu0.vram > gpu1.vram by dma@gpu1",
            "gpu1.vram > gpu0.vram by dma@gpu1",
        ];
        let cases = labels.map(|label| format!("{label} x 1MiB").parse::<Case>().expect("a case"));
        let paths: Vec<(&Case, &str)> = cases.iter().zip(["a", "b", "c"]).collect();
        let gpu = |index| pathline_schema::Gpu { index, ..Default::default() };
        let topology = Topology { gpus: vec![gpu(0), gpu(1)], ..Topology::default() };
        let slowed = |with_units| -> Vec<(String, Vec<usize>)> {
            let edits = general_edits(&paths, &topology, with_units).into_iter();
            edits
                .map(|edit| (edit.element, edit.exposures.iter().map(|e| e.probe).collect()))
                .collect()
        };
        let row = |element: &str, probes: &[usize]| (element.to_owned(), probes.to_vec());
        let by_path = [
            row("path gpu0→gpu1", &[0, 1]),
            row("path a", &[0]),
            row("path b", &[1]),
            row("path c", &[2]),
        ];
        assert_eq!(slowed(false), by_path);
        let by_unit = [
            row("gpu0 as source", &[0, 1]),
            row("gpu0 both ways", &[0, 1, 2]),
            row("gpu1 as destination", &[0, 1]),
            row("gpu1 both ways", &[0, 1, 2]),
        ];
        assert_eq!(slowed(true)[4..], by_unit);
    }

    /// Two movers of one path, a copy inside GPU 0, one into it, and a pair of copies, which is none of a path.
    #[test]
    fn every_node_has_edits_of_paths_and_of_gpus_as_source_destination_and_both() {
        let cases = [
            "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB",
            "gpu0.vram > gpu1.vram by blit@gpu0 x 1MiB",
            "gpu0.vram > gpu0.vram by blit@gpu0 x 1MiB",
            "numa0.pinned > gpu0.vram by dma@gpu0 x 1MiB",
            "gpu1.vram > gpu0.vram by dma@gpu1 x 1MiB & gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB",
        ]
        .map(|text| text.parse::<Case>().expect(text));
        let labelled: Vec<(&Case, &str)> = cases.iter().zip(["a", "b", "c", "d", "e"]).collect();
        let gpus = [0, 1].map(|index| Gpu { index, ..Gpu::default() }).to_vec();
        let topology = Topology { gpus, ..Topology::default() };
        let edits = |with_units| -> Vec<String> {
            let text = |edit: &PartEdit| {
                let probes = edit.exposures.iter().map(|of| of.probe.to_string());
                format!("{} {} {}", edit.element, edit.parts, probes.collect::<String>())
            };
            general_edits(&labelled, &topology, with_units).iter().map(text).collect()
        };
        let paths = [
            "path gpu0→gpu1 1 01",
            "path a 1 0",
            "path b 1 1",
            "path c 1 2",
            "path d 1 3",
            "path e 1 4",
        ];
        assert_eq!(edits(false), paths);
        let units = [
            "gpu0 as source 1 01",
            "gpu0 both ways 1 0123",
            "gpu1 as destination 1 01",
            "gpu1 both ways 1 01",
        ];
        assert_eq!(edits(true), paths.iter().chain(&units).copied().collect::<Vec<_>>());
    }
}
