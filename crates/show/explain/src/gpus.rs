//! State and facts of GPUs as text.

use std::collections::BTreeMap;

use pathline_schema::{
    CpuSet, GpuFacts, GpuReadings, GpuState, Journal, LinkEnd, LinkKind, Topology, Unit,
};

use crate::fmt;

/// Maximum number of listed GPUs of a case.
const MAX_GPUS: usize = 4;

/// Facts of the run's GPUs; GPUs with equal facts share a row: `gpu0-6`.
pub(crate) fn rows(journal: &Journal) -> Vec<(String, String)> {
    let mut rows: Vec<(String, Vec<u32>)> = Vec::new();
    for (unit, facts) in &journal.begin.gpus {
        let (Some(gpu), Some(row_facts)) = (unit.gpu(), facts_of(&journal.topology, *unit, facts))
        else {
            continue;
        };
        match rows.iter_mut().find(|(known, _)| *known == row_facts) {
            Some((_, gpus)) => gpus.push(gpu),
            None => rows.push((row_facts, vec![gpu])),
        }
    }
    // A set of numbers prints as ranges, also for GPUs.
    let name = |gpus: Vec<u32>| format!("gpu{}", CpuSet::new(gpus));
    rows.into_iter().map(|(row_facts, gpus)| (name(gpus), row_facts)).collect()
}

fn facts_of(topology: &Topology, unit: Unit, facts: &GpuFacts) -> Option<String> {
    let switch = |on: Option<bool>, name: &str| {
        on.map(|on| format!("{name} {}", if on { "on" } else { "off" }))
    };
    let mode = facts.compute_mode.as_ref().filter(|mode| *mode != "default");
    let fabric = facts.fabric.as_ref().filter(|state| *state != "completed");
    let parts = [
        facts.max_sm_clock_mhz.map(|mhz| format!("up to {mhz} MHz")),
        facts.max_memory_clock_mhz.map(|mhz| format!("memory {mhz} MHz")),
        facts.power_limit_w.map(|watts| format!("held to {watts:.0} W")),
        facts.nvlinks.map(|links| nvlinks(topology, unit, links)),
        switch(facts.ecc, "ECC"),
        switch(facts.mig, "MIG"),
        switch(facts.persistence, "persistence"),
        mode.map(|mode| format!("compute mode {mode}")),
        fabric.map(|state| format!("fabric registration {state}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return None;
    }
    let index = unit.gpu()?;
    let name = topology.gpus.iter().find(|gpu| gpu.index == index).map(|gpu| gpu.name.as_str());
    let name = name.filter(|n| !n.is_empty()).map_or(String::new(), |name| format!("{name}: "));
    Some(format!("{name}{} ({})", parts.join(", "), facts.source))
}

/// `17 of 18 NVLinks, 452 GB/s each way`: without links to the host that the driver does not count, NVLink-C2C.
fn nvlinks(topology: &Topology, unit: Unit, (active, all): (u32, u32)) -> String {
    let at = LinkEnd::from(unit);
    let links = topology.links.iter().filter(|l| l.kind == LinkKind::Nvlink);
    let links: Vec<_> = links.filter(|l| l.a == at || l.b == at).collect();
    let is_whole = links.iter().map(|link| link.width).sum::<u32>() <= all;
    let is_to_gpus = |ends: [LinkEnd; 2]| !ends.iter().any(|e| matches!(e, LinkEnd::Numa(_)));
    let counted = links.iter().filter(|link| is_whole || is_to_gpus([link.a, link.b]));
    let peak: Option<f64> = counted.map(|link| link.peak.map(|p| p.gbs())).sum();
    let count = match active == all {
        true => fmt::count(all as usize, "NVLink"),
        false => format!("{active} of {}", fmt::count(all as usize, "NVLink")),
    };
    match peak.filter(|&peak| peak > 0.0) {
        Some(peak) => format!("{count}, {} each way", fmt::gbs(peak)),
        None => count,
    }
}

/// Facts of a GPU, then its state.
pub fn describe_gpu(topology: &Topology, gpu: u32, facts: &GpuFacts, now: &GpuState) -> String {
    let facts = facts_of(topology, Unit::Gpu(gpu), facts).unwrap_or_else(|| facts.source.clone());
    match state(now) {
        now if now.is_empty() => facts,
        now => format!("{facts}; now {now}"),
    }
}

/// States during a case, one text per GPU: `gpu0 1980 MHz, memory 3201 MHz, 214 W, 41 °C`.
pub(crate) fn during(readings: &BTreeMap<Unit, GpuReadings>) -> Vec<String> {
    let one = |(unit, of): (&Unit, &GpuReadings)| {
        let text = state(of.during.as_ref()?);
        (!text.is_empty()).then(|| format!("{unit} {text}"))
    };
    let mut texts: Vec<String> = readings.iter().filter_map(one).collect();
    let all = texts.len();
    if all > MAX_GPUS {
        texts.truncate(MAX_GPUS);
        texts.push(fmt::count(all - MAX_GPUS, "more GPU"));
    }
    texts
}

fn state(state: &GpuState) -> String {
    let reasons = state.throttle.as_ref().filter(|reasons| !reasons.is_empty());
    let pcie = state.pcie.filter(|p| p.width > 0);
    let parts = [
        state.sm_clock_mhz.map(|mhz| format!("{mhz} MHz")),
        state.memory_clock_mhz.map(|mhz| format!("memory {mhz} MHz")),
        state.power_w.map(|watts| format!("{watts:.0} W")),
        state.temperature_c.map(|celsius| format!("{celsius:.0} °C")),
        pcie.map(|p| format!("PCIe {} GT/s x{}", p.speed_gts, p.width)),
        reasons.map(|reasons| format!("held down by {}", reasons.join(", "))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{Gpu, Link, PcieLink, Rate};

    #[test]
    fn states_are_listed_in_order_as_far_as_known() {
        let full = GpuState {
            sm_clock_mhz: Some(1755),
            memory_clock_mhz: Some(3201),
            power_w: Some(699.6),
            temperature_c: Some(61.0),
            throttle: Some(vec!["power cap".into()]),
            pcie: Some(PcieLink { speed_gts: 32.0, width: 16, ..PcieLink::default() }),
            ..GpuState::default()
        };
        assert_eq!(
            state(&full),
            "1755 MHz, memory 3201 MHz, 700 W, 61 °C, PCIe 32 GT/s x16, held down by power cap"
        );
        assert_eq!(state(&GpuState { throttle: Some(Vec::new()), ..GpuState::default() }), "");
        let of = |state: GpuState| GpuReadings { during: Some(state), ..GpuReadings::default() };
        let many = (0..6).map(|g| (Unit::Gpu(g), of(full.clone()))).collect();
        let texts = during(&many);
        assert_eq!((texts.len(), texts[4].as_str()), (5, "2 more GPUs"));
        assert!(texts[3].starts_with("gpu3 1755 MHz"), "{texts:?}");
        assert!(during(&[(Unit::Gpu(0), GpuReadings::default())].into()).is_empty());
    }

    #[test]
    fn down_links_are_listed_with_the_remaining_rate() {
        let link = |gpu, width: u32| Link {
            a: LinkEnd::Gpu(gpu),
            b: LinkEnd::Switch(0),
            kind: LinkKind::Nvlink,
            width,
            peak: Some(Rate(26.562 * f64::from(width))),
        };
        let gpus = vec![Gpu::default()];
        let topology =
            Topology { gpus, links: vec![link(0, 17), link(1, 18)], ..Topology::default() };
        // 17 x 26.562 = 451.6 GB/s.
        let text = nvlinks(&topology, Unit::Gpu(0), (17, 18));
        assert_eq!(text, "17 of 18 NVLinks, 452 GB/s each way");
        assert_eq!(nvlinks(&topology, Unit::Gpu(2), (18, 18)), "18 NVLinks");
        let host = Link { b: LinkEnd::Numa(0), ..link(0, 10) };
        let with_host =
            |width| Topology { links: vec![link(0, width), host.clone()], ..Topology::default() };
        // A driver counts links to a host of POWER, and NVLink-C2C not: 18 and 8 + 10 links of 26.562 GB/s.
        for width in [18, 8] {
            let text = nvlinks(&with_host(width), Unit::Gpu(0), (18, 18));
            assert_eq!(text, "18 NVLinks, 478 GB/s each way");
        }
        let nothing = GpuFacts { source: "amdgpu sysfs".into(), ..GpuFacts::default() };
        assert_eq!(facts_of(&topology, Unit::Gpu(0), &nothing), None);
    }
}
