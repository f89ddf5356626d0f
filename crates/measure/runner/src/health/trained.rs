//! Facts that the node states about its links and parts.

use std::collections::{BTreeMap, BTreeSet};

use pathline_diagnose::{NodeReadings, TrainedLink};
use pathline_flow::Network;
use pathline_schema::{Gpu, GpuState, Topology, WorldKind};

use super::protocol::NodeView;

/// States of GPUs while bytes moved, and error counters after the measurement.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkReadings {
    pub(super) loaded: BTreeMap<u32, GpuState>,
    pub(super) after: BTreeMap<u32, GpuState>,
    /// Failures of the library that reads them.
    pub(super) warnings: BTreeSet<String>,
}

/// The links of a node as trained, and what limits these facts.
pub(super) fn trained_links(
    view: &NodeView,
    readings: &LinkReadings,
    network: Option<&Network>,
    twin: Option<&Topology>,
) -> (Vec<TrainedLink>, Vec<String>) {
    let readings = NodeReadings {
        facts: &view.facts,
        idle: &view.states,
        loaded: &readings.loaded,
        counters: (&view.counters, &readings.after),
    };
    pathline_diagnose::trained_links(&view.topology, network, twin, &readings)
}

/// Parts that the twin has and the node does not show.
pub(super) fn missing_parts(topology: &Topology, twin: &Topology) -> Vec<String> {
    let there: BTreeSet<u32> = topology.gpus.iter().map(|gpu| gpu.index).collect();
    let gpus = twin.gpus.iter().filter(|gpu| !there.contains(&gpu.index));
    gpus.map(|gpu| format!("gpu{}", gpu.index)).collect()
}

/// Who else uses the GPUs, if anyone does.
pub(super) fn other_users(view: &NodeView) -> Option<String> {
    let used: Vec<String> = view
        .states
        .iter()
        .filter_map(|(gpu, state)| {
            let busy = view.facts.get(gpu).and_then(|facts| facts.busy_percent).unwrap_or(0);
            match (state.other_processes, busy) {
                (Some(0), _) | (None, 0..=4) => None,
                // Within some containers the driver does not tell processes apart.
                (None, percent) => Some(format!("gpu{gpu} was {percent} % busy")),
                (Some(1), _) => Some(format!("another process uses gpu{gpu}")),
                (Some(n), _) => Some(format!("{n} other processes use gpu{gpu}")),
            }
        })
        .collect();
    let (first, rest) = used.split_first()?;
    Some(match rest.len() {
        0 => first.clone(),
        n => format!("{first}, and {n} more GPUs are in use"),
    })
}

/// Why the management library of the GPUs refuses to start, if one is there and does: a fault of the node,
/// such as a driver that was replaced without a reboot.
pub(super) fn refusal(view: &NodeView) -> Option<String> {
    let (why, _) = view.unmanaged.as_ref().filter(|(_, refuses)| *refuses)?;
    view.topology.gpus.iter().any(is_nvidia).then(|| why.clone())
}

fn is_nvidia(gpu: &Gpu) -> bool {
    gpu.vendor == "nvidia"
}

/// What the verdict rests on and nobody read: links and counters of a GPU, and GPUs themselves. What a
/// virtual machine hides of a link (its width, its port) does not count: times show a slow link all the same.
pub(super) fn unread(
    view: &NodeView,
    readings: &LinkReadings,
    settings: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut unread: Vec<String> = readings.warnings.iter().cloned().collect();
    let blind = |gpu: &&Gpu| !view.facts.contains_key(&gpu.index);
    let blind: Vec<&Gpu> = view.topology.gpus.iter().filter(blind).collect();
    if let Some(first) = blind.first() {
        let why = view.unmanaged.as_ref().filter(|_| is_nvidia(first)).map(|(why, _)| why.as_str());
        let why = why.unwrap_or("its driver shows no sensors");
        let more =
            if blind.len() > 1 { format!(" and {} more", blind.len() - 1) } else { String::new() };
        let gpu = first.index;
        unread.push(format!("links and errors of gpu{gpu}{more} were not read: {why}"));
    }
    let hidden = &view.topology.hidden.gpus;
    if !hidden.is_empty() && !settings.keys().any(|name| name.ends_with("_VISIBLE_DEVICES")) {
        let addresses: Vec<&str> = hidden.iter().map(|gpu| &*gpu.pci).collect();
        unread.push(format!(
            "the runtime does not show {} of the GPUs on the bus: {}",
            hidden.len(),
            addresses.join(", ")
        ));
    }
    unread
}

/// Uncorrected memory errors while it was measured, which are faults, and all others.
pub(super) fn memory_errors(
    view: &NodeView,
    readings: &LinkReadings,
) -> (Vec<String>, Vec<String>) {
    let (mut faults, mut notes) = (Vec::new(), Vec::new());
    for (gpu, before) in &view.counters {
        let after = readings.after.get(gpu).unwrap_or(before);
        let new = |of: fn(&GpuState) -> Option<u64>| {
            of(after).zip(of(before)).map_or(0, |(after, before)| after.saturating_sub(before))
        };
        let count = |n: u64, what: &str| (n > 0).then(|| format!("gpu{gpu}: {n} {what}"));
        faults.extend(count(
            new(|state| state.ecc_uncorrected),
            "uncorrected memory errors while it was measured",
        ));
        notes.extend(count(
            before.ecc_uncorrected.unwrap_or(0),
            "uncorrected memory errors since its driver was loaded",
        ));
        notes.extend(count(
            new(|state| state.ecc_corrected),
            "corrected memory errors while it was measured: no data was wrong; check again, and if they go on, ask \
             the vendor",
        ));
    }
    (faults, notes)
}

/// Counters that the driver does not offer, so that nobody looked at them.
pub(super) fn not_offered(view: &NodeView) -> Vec<String> {
    if view.world != WorldKind::Real {
        return Vec::new();
    }
    let has_links = |gpu: u32| {
        view.facts.get(&gpu).and_then(|facts| facts.nvlinks).is_some_and(|(active, _)| active > 0)
    };
    let mut gpus_by_lack: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for gpu in view.topology.gpus.iter().map(|gpu| gpu.index) {
        let Some(facts) = view.facts.get(&gpu) else { continue };
        let state = view.counters.get(&gpu).cloned().unwrap_or_default();
        let memory = match facts.ecc {
            Some(false) => "memory errors (ECC is off)",
            _ => "memory errors",
        };
        let counters = [
            (memory, state.ecc_uncorrected.is_none()),
            ("PCIe replays", state.pcie_replays.is_none()),
            ("NVLink errors", has_links(gpu) && state.link_errors.is_none()),
        ];
        let lacks: Vec<&str> =
            counters.into_iter().filter_map(|(name, lacks)| lacks.then_some(name)).collect();
        if !lacks.is_empty() {
            gpus_by_lack.entry(lacks.join(", ")).or_default().push(gpu);
        }
    }
    let sentence = |(lack, gpus): (String, Vec<u32>)| {
        let gpus: Vec<String> = gpus.iter().map(|gpu| format!("gpu{gpu}")).collect();
        format!("the driver counts no {lack} of {}", gpus.join(", "))
    };
    gpus_by_lack.into_iter().map(sentence).collect()
}

/// What is legal and limits the verdict.
pub(super) fn peculiarities(view: &NodeView, settings: &BTreeMap<String, String>) -> Vec<String> {
    let mut limits = Vec::new();
    for (gpu, facts) in &view.facts {
        if facts.mig == Some(true) {
            limits.push(format!("MIG is on: gpu{gpu} is only a part of its GPU"));
        }
    }
    for (name, value) in settings.iter().filter(|(name, _)| name.ends_with("_VISIBLE_DEVICES")) {
        limits.push(format!("{name}={value} limits the GPUs that are seen"));
    }
    if view.topology.gpus.len() == 1 {
        limits.push("one GPU: no path between GPUs, and no peers to compare with".to_owned());
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{GpuFacts, LinkKind, PcieLink};

    fn view(widths: &[(u32, f64)]) -> NodeView {
        let gpu = |(index, &(width, speed_gts)): (usize, &(u32, f64))| Gpu {
            index: index as u32,
            name: "X".into(),
            host_link: Some(PcieLink { speed_gts, width, max_speed_gts: 32.0, max_width: 16 }),
            ..Gpu::default()
        };
        let topology =
            Topology { gpus: widths.iter().enumerate().map(gpu).collect(), ..Topology::default() };
        NodeView {
            world: WorldKind::Real,
            topology,
            without: None,
            facts: BTreeMap::new(),
            states: BTreeMap::new(),
            counters: BTreeMap::new(),
            unmanaged: None,
        }
    }

    #[test]
    fn a_slot_that_holds_all_gpus_back_is_a_limit_and_one_gpu_a_fault() {
        let (links, limits) =
            trained_links(&view(&[(16, 16.0); 4]), &LinkReadings::default(), None, None);
        assert!(links.iter().all(|l| (l.width, l.max_width) == (16, 16) && l.speed == l.max_speed));
        assert_eq!(limits.len(), 1, "{limits:?}");
        let one = view(&[(16, 32.0), (8, 32.0), (16, 32.0)]);
        let (links, limits) = trained_links(&one, &LinkReadings::default(), None, None);
        assert_eq!((links[1].width, links[1].max_width), (8, 16));
        assert!(limits.is_empty(), "{limits:?}");
    }

    #[test]
    fn nvlinks_are_compared_with_the_best_gpu_of_the_board() {
        let mut node = view(&[(16, 32.0), (16, 32.0)]);
        let facts = |active| GpuFacts { nvlinks: Some((active, 18)), ..GpuFacts::default() };
        node.facts = BTreeMap::from([(0, facts(12)), (1, facts(12))]);
        let (links, limits) = trained_links(&node, &LinkReadings::default(), None, None);
        assert!(
            links.iter().filter(|l| l.kind == LinkKind::Nvlink).all(|l| l.width == l.max_width)
        );
        assert_eq!(limits, ["no X uses more than 12 of 18 NVLinks"]);
        node.facts.insert(1, facts(11));
        let (links, _) = trained_links(&node, &LinkReadings::default(), None, None);
        let second = links.iter().find(|l| l.name == "gpu1 NVLink").expect("it is listed");
        assert_eq!((second.width, second.max_width), (11, 12));
    }

    #[test]
    fn gpus_that_nobody_reads_or_the_runtime_hides_are_named() {
        let mut node = view(&[(16, 32.0), (16, 32.0)]);
        node.topology.gpus.iter_mut().for_each(|gpu| gpu.vendor = "nvidia".into());
        let readings = LinkReadings::default();
        let no_settings = BTreeMap::new();
        node.facts = BTreeMap::from([(0, GpuFacts::default()), (1, GpuFacts::default())]);
        assert!(unread(&node, &readings, &no_settings).is_empty());
        node.facts.remove(&1);
        node.unmanaged = Some(("NVML is missing; install it".into(), false));
        let named = unread(&node, &readings, &no_settings);
        assert_eq!(named, ["links and errors of gpu1 were not read: NVML is missing; install it"]);
        assert_eq!(refusal(&node), None);
        node.unmanaged = Some(("NVML does not start".into(), true));
        assert_eq!(refusal(&node).as_deref(), Some("NVML does not start"));
        // A GPU on the bus that the runtime leaves out counts, unless a variable asks for that.
        node.facts.insert(1, GpuFacts::default());
        node.topology.hidden.gpus.push(Gpu { index: 2, ..Gpu::default() });
        assert!(unread(&node, &readings, &no_settings)[0].contains("does not show 1 of the GPUs"));
        let asked = BTreeMap::from([("CUDA_VISIBLE_DEVICES".to_owned(), "0,1".to_owned())]);
        assert!(unread(&node, &readings, &asked).is_empty());
        let failing = LinkReadings { warnings: ["f fails".to_owned()].into(), ..readings };
        assert_eq!(unread(&node, &failing, &asked), ["f fails"]);
    }

    #[test]
    fn other_users_are_named() {
        let mut node = view(&[(16, 32.0), (16, 32.0)]);
        assert_eq!(other_users(&node), None);
        let state = |n| GpuState { other_processes: Some(n), ..GpuState::default() };
        node.states = BTreeMap::from([(0, state(0)), (1, state(2))]);
        assert_eq!(other_users(&node).as_deref(), Some("2 other processes use gpu1"));
        node.states = BTreeMap::from([(0, GpuState::default())]);
        let busy = GpuFacts { busy_percent: Some(97), ..GpuFacts::default() };
        node.facts = BTreeMap::from([(0, busy)]);
        assert_eq!(other_users(&node).as_deref(), Some("gpu0 was 97 % busy"));
    }

    #[test]
    fn counters_that_a_driver_does_not_offer_are_named() {
        let mut view = view(&[(16, 32.0); 3]);
        let facts = |ecc, active| GpuFacts {
            ecc: Some(ecc),
            nvlinks: Some((active, 18)),
            ..GpuFacts::default()
        };
        view.facts.extend([(0, facts(true, 18)), (1, facts(false, 0)), (2, facts(true, 18))]);
        let all = GpuState {
            ecc_uncorrected: Some(0),
            pcie_replays: Some(0),
            link_errors: Some(0),
            ..GpuState::default()
        };
        let without_memory = GpuState { ecc_uncorrected: None, link_errors: None, ..all.clone() };
        view.counters.extend([(0, all), (1, without_memory)]);
        assert_eq!(
            not_offered(&view),
            [
                "the driver counts no memory errors (ECC is off) of gpu1",
                "the driver counts no memory errors, PCIe replays, NVLink errors of gpu2"
            ]
        );
        view.world = WorldKind::Simulated("ring".to_owned());
        assert!(not_offered(&view).is_empty(), "a model has no driver");
    }

    #[test]
    fn uncorrected_memory_errors_while_measuring_are_faults() {
        let mut view = view(&[(16, 32.0); 2]);
        let state = |corrected, uncorrected| GpuState {
            ecc_corrected: Some(corrected),
            ecc_uncorrected: Some(uncorrected),
            ..GpuState::default()
        };
        view.counters.extend([(0, state(7, 0)), (1, state(0, 2))]);
        let mut readings = LinkReadings::default();
        assert_eq!(
            memory_errors(&view, &readings),
            (vec![], vec!["gpu1: 2 uncorrected memory errors since its driver was loaded".into()])
        );
        readings.after.extend([(0, state(9, 1)), (1, state(0, 2))]);
        let (faults, notes) = memory_errors(&view, &readings);
        assert_eq!(faults, ["gpu0: 1 uncorrected memory errors while it was measured"]);
        assert!(notes[0].starts_with("gpu0: 2 corrected memory errors while it was measured: "));
    }
}
