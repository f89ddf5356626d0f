//! Which paths to measure, and which of them should be equal.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::{Network, NodeElement};
use pathline_schema::{
    Bytes, Case, Flow, Gpu, KernelOp, KernelVariant, MemKind, Mover, Place, Topology, Unit,
};
use serde::Serialize;

use crate::edits::{FlowShape, PartEdit, element_edits, general_edits};
use crate::expected_links::{expected_classes, expected_topology};
use crate::health::coverage::{CandidateClass, MIN_SPARE, choose_classes, keep_compared};
use crate::health::report::as_text;
use crate::labels::{TailKind, case_label, mover_label, tail_kind};

/// The most pairs of GPUs that are measured.
const MAX_PAIRS: usize = 1024;
/// The least time of an operation, ns: starts, which differ between equal paths by up to 2 us, then
/// make a difference of at most 0.2 %.
const MIN_TIME: f64 = 1e6;
/// The longest predicted round, ns: 25 rounds, which a FAIL takes, are then 5 s.
const MAX_ROUND: f64 = 200e6;
/// Two predicted rates of equal paths differ by less than this share; a description can state more
/// than its links show, such as a route.
const SAME_RATE: f64 = 0.0025;
/// Sizes that probes have: the least fills no pipeline of any link, the greatest fits any GPU.
const SIZES: (u64, u64) = (16 << 20, 512 << 20);

/// A path that is measured once in each round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HealthProbe {
    /// What is measured: one operation of its one flow.
    #[serde(serialize_with = "as_text")]
    pub case: Case,
    /// Index of its class in the plan.
    pub class: usize,
    /// For a reader: `gpu2→gpu3, SDMA copy`.
    pub label: String,
}

/// Symmetry-equivalent paths, which should be equally fast.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SymmetryClass {
    /// For a reader: `gpu0→gpu1 and 11 like it, SDMA copy`.
    pub label: String,
    /// Number of paths.
    pub paths: usize,
    /// Spread of their times.
    pub tail: TailKind,
}

/// What to measure.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HealthPlan {
    /// The probes; times are given in their order.
    pub probes: Vec<HealthProbe>,
    /// Number of the first probes that are measured on every node. The others are measured only to tell apart
    /// parts that explain a fault alike.
    pub standing: usize,
    /// Classes of equal paths.
    pub classes: Vec<SymmetryClass>,
    /// Parts of the node that no probe sees.
    pub unseen: Vec<String>,
    /// What damage of each part does to the probes.
    #[serde(skip)]
    pub(crate) edits: Vec<PartEdit>,
    /// Of each probe: what its path allows.
    #[serde(skip)]
    pub(crate) ceilings: Vec<Option<PathCeiling>>,
}

/// What a path allows at most, by the hardware alone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PathCeiling {
    /// Rate of the narrowest hop in GB/s, at the width and speed that it can have.
    pub(crate) rate: f64,
    /// Name of that hop.
    pub(crate) name: String,
    /// The rate that a healthy path reaches at most in GB/s: less than that of the hop where an engine is
    /// slower by design. None where only memory limits it, whose rate says little about copies.
    pub(crate) expected: Option<f64>,
}

impl PathCeiling {
    fn new(network: &Network, topology: &Topology, planned: &PlannedFlow) -> Option<Self> {
        let [flow] = planned.flows.as_slice() else {
            // They share memory.
            let (rate, domain) = (planned.shape.as_ref()?.rate, planned.flows.first()?.src.unit);
            return Some(Self { rate, name: format!("memory of {domain}"), expected: None });
        };
        let narrowest = network.explain(flow).ok()?;
        let (mut rate, name) = (narrowest.peak.0, narrowest.narrowest);
        let mut expected = planned.shape.as_ref().map(|shape| shape.rate);
        let gpu = flow.by.at().gpu().and_then(|n| topology.gpus.iter().find(|gpu| gpu.index == n));
        if tail_kind(&Case::together(vec![*flow])) == TailKind::HostLink && !planned.described {
            let possible = gpu.and_then(|gpu| possible_peak(topology, gpu));
            expected = possible.map(|possible| possible.max(rate));
            rate = expected.unwrap_or(rate);
        }
        Some(Self { rate, name, expected })
    }
}

/// GB/s of a GPU's PCIe link at the width and speed that it and, where it is visible, its port can have.
fn possible_peak(topology: &Topology, gpu: &Gpu) -> Option<f64> {
    let of = |address: &str| topology.pci.iter().find(|device| *device.address == *address);
    let own = gpu.host_link?.max_peak().0;
    let port = of(&gpu.pci).and_then(|device| of(device.parent.as_ref()?)?.link);
    let port = port.map(|link| link.max_peak().0).filter(|peak| *peak > 0.0);
    Some(port.map_or(own, |port| port.min(own)))
}

/// A candidate, flows that start together, with what the network says about it.
#[derive(Debug, Clone)]
struct PlannedFlow {
    flows: Vec<Flow>,
    shape: Option<FlowShape>,
    class: usize,
    /// Whether its rate is that of a description, and not of peaks.
    described: bool,
}

impl PlannedFlow {
    fn bytes(&self) -> f64 {
        self.flows.first().map_or(0.0, |flow| flow.bytes.as_f64())
    }
    fn time(&self) -> f64 {
        self.shape.as_ref().map_or(MIN_TIME, |shape| shape.time(self.bytes()))
    }
}

impl HealthPlan {
    /// Plans the probes of a node. `network` is the node as a model or twin knows it, without faults;
    /// without it, peaks of the topology's links stand in. `loss` is the share of its speed that a path
    /// may lose, such as 0.03.
    ///
    /// Every ordered pair of GPUs by copy engine and every GPU's link to its NUMA domain are measured.
    /// Of blit or plain kernels between GPUs, kernels that reach the host, local copies, far NUMA domains
    /// and domains with all of their GPUs at once, those classes are added that see parts which nothing
    /// else sees, or that tell apart parts which otherwise look the same, the most of them for each
    /// millisecond first.
    pub fn new(topology: &Topology, network: Option<&Network>, loss: f64) -> Self {
        let reported = topology;
        let topology = &expected_topology(reported, network);
        let derived = network.is_none().then(|| Network::from_topology(topology));
        let known = network.or(derived.as_ref());
        let mut candidates = candidates(topology, known, network.is_some());
        size_and_class(reported, topology, &mut candidates);
        let elements = known.map(Network::elements).unwrap_or_default();
        let [chosen, all] = [MAX_ROUND, f64::INFINITY]
            .map(|longest| choose(topology, &candidates, &elements, loss, longest));
        let mut flows: Vec<PlannedFlow> = candidates
            .into_iter()
            .filter(|c| chosen.contains(&c.class) || all.contains(&c.class))
            .collect();
        flows.sort_by_key(|planned| !chosen.contains(&planned.class));
        let standing = flows.iter().filter(|planned| chosen.contains(&planned.class)).count();
        Self::of_flows(topology, known, &elements, (flows, standing), loss)
    }

    fn of_flows(
        topology: &Topology,
        network: Option<&Network>,
        elements: &[NodeElement],
        (flows, standing): (Vec<PlannedFlow>, usize),
        loss: f64,
    ) -> Self {
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        let mut plan = Self { standing, ..Self::default() };
        for planned in &flows {
            let case = Case::together(planned.flows.clone());
            let label = probe_label(topology, &case);
            let class = *numbers.entry(planned.class).or_insert_with(|| {
                let tail = tail_kind(&case);
                plan.classes.push(SymmetryClass { label: label.clone(), paths: 0, tail });
                plan.classes.len() - 1
            });
            if let Some(class) = plan.classes.get_mut(class) {
                class.paths += 1;
            }
            let ceiling = network.and_then(|network| PathCeiling::new(network, topology, planned));
            plan.ceilings.push(ceiling);
            plan.probes.push(HealthProbe { case, class, label });
        }
        for class in &mut plan.classes {
            if let (Some((ends, mover)), true) = (class.label.split_once(", "), class.paths > 1) {
                class.label = format!("{ends} and {} like it, {mover}", class.paths - 1);
            }
        }
        let shapes = shapes(&flows);
        let edits = element_edits(elements, &shapes);
        let mut seen = edits.clone();
        let of_probes: Vec<usize> = plan.probes.iter().take(standing).map(|p| p.class).collect();
        seen.iter_mut().for_each(|edit| keep_compared(edit, &of_probes));
        plan.unseen = unnoticed_losses(&seen, loss).into_iter().collect();
        let alone = plan.probes.iter().take(standing).filter(|p| plan.peers(p.class) == 0);
        let alone: Vec<String> =
            alone.map(|probe| format!("{}: it has no peer", probe.label)).collect();
        plan.unseen.extend(alone);
        plan.unseen.extend(skipped_pairs(topology));
        plan.edits = edits.into_iter().filter(|edit| !edit.exposures.is_empty()).collect();
        let labelled = plan.probes.iter().take(standing);
        let labelled: Vec<(&Case, &str)> =
            labelled.map(|probe| (&probe.case, probe.label.as_str())).collect();
        plan.edits.extend(general_edits(&labelled, topology, elements.is_empty()));
        plan
    }

    /// Number of the other paths of a class.
    pub(crate) fn peers(&self, class: usize) -> usize {
        self.classes.get(class).map_or(0, |class| class.paths.saturating_sub(1))
    }

    /// Predicted ns of a round; none where no rate is known.
    pub fn round_ns(&self) -> Option<f64> {
        let time = |(probe, ceiling): (&HealthProbe, &Option<PathCeiling>)| {
            let bytes = probe.case.timed.first()?.bytes.as_f64();
            ceiling.as_ref().map(|ceiling| bytes / ceiling.rate)
        };
        self.probes.iter().zip(&self.ceilings).take(self.standing).map(time).sum()
    }
}

/// Names the pairs that a large node leaves out.
fn skipped_pairs(topology: &Topology) -> Option<String> {
    let gpus = topology.gpus.len();
    let pairs = gpus * gpus.saturating_sub(1);
    let measured = gpu_pairs(topology).len();
    (measured < pairs).then(|| format!("{} of {pairs} pairs of GPUs", pairs - measured))
}

/// Ordered pairs of GPUs. On nodes with too many GPUs to measure all pairs, GPUs with near numbers first.
fn gpu_pairs(topology: &Topology) -> Vec<(u32, u32)> {
    let numbers: Vec<u32> = topology.gpus.iter().map(|gpu| gpu.index).collect();
    let n = numbers.len();
    let steps = MAX_PAIRS.checked_div(n).map_or(0, |steps| steps.min(n.saturating_sub(1)));
    let pair =
        |(a, step): (usize, usize)| Some((*numbers.get(a)?, *numbers.get((a + step) % n.max(1))?));
    let all = (0..n).flat_map(|a| (1..=steps).map(move |step| (a, step)));
    all.filter_map(pair).take(MAX_PAIRS).collect()
}

/// All flows that may become probes.
fn candidates(topology: &Topology, network: Option<&Network>, described: bool) -> Vec<PlannedFlow> {
    let mut flows = Vec::new();
    for &(a, b) in &gpu_pairs(topology) {
        flows.extend(pair_flows(topology, a, b));
    }
    for gpu in &topology.gpus {
        flows.extend(own_flows(topology, gpu));
    }
    let mut flows: Vec<Vec<Flow>> = flows.into_iter().map(|flow| vec![flow]).collect();
    flows.extend(domain_flows(topology));
    flows.retain(|flows| flows.iter().all(|flow| flow.misfit().is_none()));
    flows
        .into_iter()
        .filter_map(|flows| {
            let shape = network.and_then(|network| FlowShape::new(network, topology, &flows));
            // What a description has no path for cannot be measured there.
            (shape.is_some() || !described).then_some(PlannedFlow {
                flows,
                shape,
                class: 0,
                described,
            })
        })
        .collect()
}

/// Sizes each flow so that it takes long enough, the same for all of a class, and numbers the classes:
/// orbits of the node's symmetries, split where predicted rates differ.
fn size_and_class(reported: &Topology, expected: &Topology, planned: &mut [PlannedFlow]) {
    let cases: Vec<Case> = planned.iter().map(|p| Case::together(p.flows.clone())).collect();
    let orbits = expected_classes(reported, expected, &cases.iter().collect::<Vec<_>>());
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (nth, orbit) in orbits.iter().enumerate() {
        members.entry(*orbit).or_default().push(nth);
    }
    let mut classes = 0;
    for list in members.values() {
        let rates = list.iter().filter_map(|&n| planned.get(n)?.shape.as_ref().map(|s| s.rate));
        let bytes = rates.reduce(f64::max).map_or(64 << 20, |rate| {
            ((rate * MIN_TIME) as u64).next_multiple_of(SIZES.0).clamp(SIZES.0, SIZES.1)
        });
        let mut timed: Vec<(f64, usize)> = Vec::new();
        for &n in list {
            let Some(planned) = planned.get_mut(n) else { continue };
            planned.flows.iter_mut().for_each(|flow| flow.bytes = Bytes(bytes));
            timed.push((planned.shape.as_ref().map_or(0.0, |shape| 1.0 / shape.rate), n));
        }
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut first = None;
        for (time, n) in timed {
            if first.is_some_and(|first| time > first * (1.0 + SAME_RATE)) {
                classes += 1;
                first = None;
            }
            first = first.or(Some(time));
            if let Some(planned) = planned.get_mut(n) {
                planned.class = classes;
            }
        }
        classes += 1;
    }
}

fn flow(src: Place, dst: Place, by: Mover) -> Flow {
    Flow { src, dst, by, bytes: Bytes(SIZES.0) }
}

fn copy_kernel(at: Unit) -> Mover {
    Mover::Kernel { at, variant: KernelVariant::standard(KernelOp::Copy) }
}

/// Copies from one GPU to another: by engine, by the runtime's kernel, by kernels of either GPU.
fn pair_flows(topology: &Topology, a: u32, b: u32) -> Vec<Flow> {
    let (a, b) = (Unit::Gpu(a), Unit::Gpu(b));
    let (src, dst) = (Place::new(a, MemKind::Vram), Place::new(b, MemKind::Vram));
    let has_blit =
        topology.gpus.iter().any(|gpu| Unit::Gpu(gpu.index) == a && gpu.caps().copy_kernel);
    let mut movers = vec![Mover::Dma { at: a }, copy_kernel(a), copy_kernel(b)];
    if has_blit {
        movers.insert(1, Mover::Blit { at: a });
    }
    movers.into_iter().map(|by| flow(src, dst, by)).collect()
}

/// Copies of a GPU with its NUMA domain, with the farthest one, and within its memory.
fn own_flows(topology: &Topology, gpu: &Gpu) -> Vec<Flow> {
    let at = Unit::Gpu(gpu.index);
    let vram = Place::new(at, MemKind::Vram);
    let mut flows = vec![flow(vram, vram, copy_kernel(at))];
    let home = gpu.numa.or(topology.numa.first().map(|numa| numa.id));
    let distance = |id: u32| {
        let row = topology.numa.iter().find(|numa| Some(numa.id) == home)?;
        let mut ids: Vec<u32> = topology.numa.iter().map(|numa| numa.id).collect();
        ids.sort_unstable();
        row.distances.get(ids.iter().position(|known| *known == id)?).copied()
    };
    let far = topology.numa.iter().filter(|numa| Some(numa.id) != home && !numa.cpus.is_empty());
    let far = far.max_by_key(|numa| (distance(numa.id), std::cmp::Reverse(numa.id)));
    for (numa, is_home) in [(home, true), (far.map(|numa| numa.id), false)] {
        let Some(numa) = numa else { continue };
        let host = Place::new(Unit::Numa(numa), MemKind::Pinned);
        flows.push(flow(host, vram, Mover::Dma { at }));
        flows.push(flow(vram, host, Mover::Dma { at }));
        if is_home {
            flows.push(flow(host, vram, copy_kernel(at)));
            flows.push(flow(vram, host, copy_kernel(at)));
        }
    }
    flows
}

/// All GPUs of each NUMA domain copying into and out of it at once, which fills memory that one copy does not. Two
/// domains that differ cannot say which is right: none on nodes of fewer than three.
fn domain_flows(topology: &Topology) -> Vec<Vec<Flow>> {
    let mut domains: BTreeMap<u32, Vec<Flow>> = BTreeMap::new();
    for gpu in &topology.gpus {
        let (at, Some(numa)) = (Unit::Gpu(gpu.index), gpu.numa) else { continue };
        let (vram, host) =
            (Place::new(at, MemKind::Vram), Place::new(Unit::Numa(numa), MemKind::Pinned));
        let by = Mover::Dma { at };
        domains.entry(numa).or_default().extend([flow(host, vram, by), flow(vram, host, by)]);
    }
    if domains.len() < 3 { Vec::new() } else { domains.into_values().collect() }
}

/// `gpu2→gpu3, SDMA copy`; of a domain with its GPUs `numa1 with gpu2+gpu3, SDMA copy both ways`.
fn probe_label(topology: &Topology, case: &Case) -> String {
    let [first, _, ..] = case.timed.as_slice() else { return case_label(topology, case) };
    let gpus: BTreeSet<Unit> = case.timed.iter().map(|flow| flow.by.at()).collect();
    let gpus: Vec<String> = gpus.iter().map(Unit::to_string).collect();
    format!(
        "{} with {}, {} both ways",
        first.src.unit,
        gpus.join("+"),
        mover_label(topology, first)
    )
}

/// Whether a flow is measured on every node: engine copies between GPUs and with the home domain.
fn is_basic(topology: &Topology, flow: &Flow) -> bool {
    if !matches!(flow.by, Mover::Dma { .. }) {
        return false;
    }
    let numa = flow.src.unit.numa().or(flow.dst.unit.numa());
    let gpu = flow.by.at().gpu().and_then(|n| topology.gpus.iter().find(|gpu| gpu.index == n));
    let home = gpu.and_then(|gpu| gpu.numa).or(topology.numa.first().map(|numa| numa.id));
    numa.is_none() || numa == home
}

/// Indices, sizes and rates of the flows whose path is known.
fn shapes(flows: &[PlannedFlow]) -> Vec<(usize, f64, FlowShape)> {
    let known = flows.iter().enumerate();
    known.filter_map(|(n, p)| Some((n, p.bytes(), p.shape.clone()?))).collect()
}

/// The classes to measure in rounds of at most `longest` predicted ns.
fn choose(
    topology: &Topology,
    candidates: &[PlannedFlow],
    elements: &[NodeElement],
    loss: f64,
    longest: f64,
) -> BTreeSet<usize> {
    let mut classes: BTreeMap<usize, CandidateClass> = BTreeMap::new();
    for (n, planned) in candidates.iter().enumerate() {
        let class = classes.entry(planned.class).or_default();
        class.probes.insert(n);
        class.time += planned.time();
        // Where nothing is known of the parts, memories are looked at all the same.
        let [flow] = planned.flows.as_slice() else { continue };
        let local = elements.is_empty() && flow.src == flow.dst;
        class.basic |= local || is_basic(topology, flow);
    }
    let edits = element_edits(elements, &shapes(candidates));
    choose_classes(&classes, &edits, loss, longest)
}

/// The least losses of speed that are noticed of parts that no probe fills, in one line.
fn unnoticed_losses(seen: &[PartEdit], loss: f64) -> Option<String> {
    let mut by_loss: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    // Those of one direction are parts of those of both.
    let is_one_way = |name: &str| {
        [">", ", into the GPU", ", out of the GPU"].iter().any(|way| name.contains(way))
    };
    for edit in seen.iter().filter(|edit| !is_one_way(&edit.element)) {
        let spare = edit.exposures.iter().map(|exposure| exposure.spare).fold(1.0, f64::min);
        let noticed = edit.exposures.iter().map(|exposure| exposure.least_damage(loss));
        let noticed = (100.0 * noticed.fold(1.0, f64::min)).round() as i64;
        if spare >= MIN_SPARE || edit.greatest_loss() < loss {
            by_loss.entry(noticed).or_default().push(edit.element.to_string());
        }
    }
    let text = |(noticed, parts): (i64, Vec<String>)| {
        let parts = name_alike(parts.into_iter()).join(", ");
        match noticed {
            100 => format!("{parts} cannot be seen"),
            _ => format!("{parts} may be up to {noticed} % slower unseen"),
        }
    };
    let texts: Vec<String> = by_loss.into_iter().map(text).collect();
    (!texts.is_empty()).then(|| format!("{}: no path here fills them", texts.join("; ")))
}

/// Groups parts that differ only in their unit, `copy engines to the host of gpu0-gpu7`, and links between units of the
/// same kinds, `xGMI gpu0-numa0 and 3 like it`.
fn name_alike(parts: impl Iterator<Item = String>) -> Vec<String> {
    let mut kinds: Vec<(String, Vec<String>)> = Vec::new();
    let mut links: Vec<(String, String, usize)> = Vec::new();
    for part in parts {
        if let Some(link) = part.strip_suffix(", both directions") {
            let shape = link.replace(|c: char| c.is_ascii_digit(), "");
            match links.iter_mut().find(|(known, ..)| *known == shape) {
                Some((.., others)) => *others += 1,
                None => links.push((shape, link.to_owned(), 0)),
            }
            continue;
        }
        let (unit, kind) = match part.split_once(' ') {
            Some((unit, kind)) if unit.ends_with(|c: char| c.is_ascii_digit()) => (unit, kind),
            _ => ("", part.as_str()),
        };
        match kinds.iter_mut().find(|(known, _)| known == kind) {
            Some((_, units)) => units.push(unit.to_owned()),
            None => kinds.push((kind.to_owned(), vec![unit.to_owned()])),
        }
    }
    let number = |unit: &String| {
        unit.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().unwrap_or(u32::MAX)
    };
    let name = |(kind, units): (String, Vec<String>)| match units.as_slice() {
        [unit] if unit.is_empty() => kind,
        [unit] => format!("{unit} {kind}"),
        [first, .., last] if units.windows(2).all(|two| number(&two[0]) + 1 == number(&two[1])) => {
            format!("{kind} of {first}-{last}")
        }
        _ => format!("{kind} of {}", units.join(", ")),
    };
    let links = links.into_iter().map(|(_, first, others)| match others {
        0 => first,
        _ => format!("{first} and {others} like it"),
    });
    kinds.into_iter().map(name).chain(links).collect()
}

#[cfg(test)]
mod tests;
