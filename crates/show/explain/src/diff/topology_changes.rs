//! What the nodes of two runs state of their links and GPUs, where they differ.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Journal, Link, LinkEnd, LinkKind, PcieLink, Topology};

use crate::fmt;

/// Rates of a link that differ by less are one rate.
const SAME_RATE: f64 = 0.01;

/// A difference between the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyChange {
    /// What differs, as a verdict names it, `xGMI gpu0-gpu6`, and the GPUs that it joins.
    pub part: (String, Vec<u32>),
    /// How: `2 links before, 1 after`.
    pub state: String,
    /// Whether the node after has less.
    pub is_loss: bool,
}

impl TopologyChange {
    /// `xGMI gpu0-gpu6: 2 links before, 1 after`, `gpu3 (0000:c1:00.0) missing after`.
    pub fn text(&self) -> String {
        let (part, state) = (&self.part.0, &self.state);
        let mark = if self.part.1.is_empty() { "" } else { ":" };
        format!("{part}{mark} {state}")
    }
}

/// Differences between the first runs of both sides. Links are compared where both have the same GPUs.
pub(super) fn topology_changes(before: &[&Journal], after: &[&Journal]) -> Vec<TopologyChange> {
    let (Some(before), Some(after)) = (before.first(), after.first()) else { return Vec::new() };
    let (before, after) = (&before.topology, &after.topology);
    let mut found = missing_gpus(before, after);
    if found.is_empty() && before.gpus.len() == after.gpus.len() {
        found.extend(link_changes(before, after));
        found.extend(host_link_changes(before, after));
    }
    found
}

/// GPUs that one side lacks, by their addresses.
fn missing_gpus(before: &Topology, after: &Topology) -> Vec<TopologyChange> {
    let addresses = |topology: &Topology| -> BTreeMap<String, u32> {
        topology.gpus.iter().map(|gpu| (gpu.pci.to_string(), gpu.index)).collect()
    };
    let (first, second) = (addresses(before), addresses(after));
    // GPUs that share an address cannot be distinguished.
    if first.len() != before.gpus.len() || second.len() != after.gpus.len() {
        return Vec::new();
    }
    let lacks =
        |all: &BTreeMap<String, u32>, others: &BTreeMap<String, u32>, side: &str, is_loss| {
            let names = all.iter().filter(|(address, _)| !others.contains_key(*address));
            let names: Vec<String> =
                names.map(|(address, index)| format!("gpu{index} ({address})")).collect();
            let (part, state) = ((fmt::list(&names), Vec::new()), format!("missing {side}"));
            (!names.is_empty()).then_some(TopologyChange { part, state, is_loss })
        };
    // Another node has other addresses: its name differs, too.
    if first.keys().all(|address| !second.contains_key(address)) {
        return Vec::new();
    }
    let all = [lacks(&first, &second, "after", true), lacks(&second, &first, "before", false)];
    all.into_iter().flatten().collect()
}

/// `xGMI gpu0-gpu6: 2 links before, 1 after`, `NVLink gpu0-switch0: 26.6 GB/s a link before, 13.3 after`.
fn link_changes(before: &Topology, after: &Topology) -> Vec<TopologyChange> {
    // The PCIe link that a GPU reports has lanes and speed: it is compared below.
    let has_own = |end: LinkEnd| {
        let gpu = before.gpus.iter().find(|gpu| LinkEnd::Gpu(gpu.index) == end);
        gpu.is_some_and(|gpu| gpu.host_link.is_some())
    };
    let is_counted =
        |link: &&Link| link.kind != LinkKind::Pcie || !(has_own(link.a) || has_own(link.b));
    let bundles = |topology: &Topology| -> BTreeMap<(LinkKind, LinkEnd, LinkEnd), (u32, f64)> {
        let links = topology.links.iter().filter(is_counted);
        let ends = |link: &Link| (link.kind, link.a.min(link.b), link.a.max(link.b));
        links.map(|link| (ends(link), (link.width, link.peak.map_or(0.0, |peak| peak.0)))).collect()
    };
    let (first, second) = (bundles(before), bundles(after));
    let all: BTreeSet<_> = first.keys().chain(second.keys()).copied().collect();
    let change = |ends: (LinkKind, LinkEnd, LinkEnd)| {
        let of = |side: &BTreeMap<_, (u32, f64)>| side.get(&ends).copied().unwrap_or_default();
        let ((width, rate), (width_now, rate_now)) = (of(&first), of(&second));
        let (kind, a, b) = ends;
        let name = format!("{} {a}-{b}", kind.name());
        let each = |rate: f64| fmt::number(rate / f64::from(width.max(1)));
        let (state, is_loss) = match width == width_now {
            false => {
                let links = fmt::count(width as usize, "link");
                (format!("{links} before, {width_now} after"), width_now < width)
            }
            true if rate > 0.0 && (rate_now / rate - 1.0).abs() > SAME_RATE && rate_now > 0.0 => {
                let (then, now) = (each(rate), each(rate_now));
                (format!("{then} GB/s a link before, {now} after"), rate_now < rate)
            }
            true => return None,
        };
        let gpus = [a, b].into_iter().filter_map(|end| match end {
            LinkEnd::Gpu(gpu) => Some(gpu),
            _ => None,
        });
        Some(TopologyChange { part: (name, gpus.collect()), state, is_loss })
    };
    all.into_iter().filter_map(change).collect()
}

/// `PCIe link of gpu3: 32 GT/s x16 before, 32 GT/s x8 after`.
fn host_link_changes(before: &Topology, after: &Topology) -> Vec<TopologyChange> {
    let trained = |link: &PcieLink| (link.width, link.speed_gts);
    let both = before.gpus.iter().zip(&after.gpus);
    let change = both.filter_map(|(a, b)| {
        let (first, second) = (trained(a.host_link.as_ref()?), trained(b.host_link.as_ref()?));
        let text = |(width, speed): (u32, f64)| format!("{} GT/s x{width}", fmt::number(speed));
        let is_known = [first, second].iter().all(|(width, speed)| *width > 0 && *speed > 0.0);
        let name = format!("PCIe link of gpu{}", a.index);
        // At rest a GPU may slow its link, but not narrow it.
        let (is_loss, note) = match first.0 == second.0 {
            true => (false, " (a GPU at rest may slow its link)"),
            false => (second.0 < first.0, ""),
        };
        (is_known && first != second).then(|| TopologyChange {
            part: (name, vec![a.index]),
            state: format!("{} before, {} after{note}", text(first), text(second)),
            is_loss,
        })
    });
    change.collect()
}
