//! What a printed wiring lacks: a matrix of links or a topology file, compared with the node that the user named,
//! or with the other GPUs of the paste.

use std::collections::BTreeMap;
use std::mem::discriminant;

use pathline_paste::{LinkMatrix, PEER_STATUSES};
use pathline_schema::{Gpu, LinkEnd, LinkKind, PcieLink, Topology};

use crate::cause_table::{CauseFacts, cause};
use crate::checks::CheckPath;
use crate::draft::DraftAnswer;
use crate::figures::figure;
use crate::node_facts::{AnswerBasis, NodeLimits};
use crate::product_facts::nvlinks;
use crate::score::WorldEdit;

/// Of more facts than this share another node is shown, not a fault.
const MAX_DIFFERENT_SHARE: f64 = 0.25;
/// A fact that at least this share of a kind agrees on is the usual one.
const USUAL_SHARE: f64 = 0.75;
/// Fewest facts of a kind that make one usual.
const MIN_ALIKE: usize = 3;
/// PCIe that reaches less than this share of its peak lost lanes or generations.
const NARROW_SHARE: f64 = 0.9;
/// Bridges above a GPU.
const MAX_BRIDGES: usize = 16;
/// Parts that an answer names.
const MAX_NAMED: usize = 8;

/// A part of a wiring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WiringPart {
    /// Links between two GPUs, the lower number first.
    Pair(u32, u32),
    /// All links of a GPU to switches.
    Switches(u32),
    /// A GPU's link to the host, GB/s.
    Host(u32),
    /// The NUMA domain of a GPU.
    Domain(u32),
}

impl WiringPart {
    fn name(self) -> String {
        match self {
            Self::Pair(a, b) => format!("gpu{a}-gpu{b}"),
            Self::Switches(gpu) => format!("gpu{gpu} to a switch"),
            Self::Host(gpu) | Self::Domain(gpu) => format!("gpu{gpu}"),
        }
    }

    /// The cause that a difference of it is.
    const fn cause(self) -> &'static str {
        match self {
            Self::Pair(..) | Self::Switches(_) => "links-lost",
            Self::Host(_) => "narrow-pcie",
            Self::Domain(_) => "gpu-domain",
        }
    }

    fn is_like(self, other: Self) -> bool {
        discriminant(&self) == discriminant(&other)
    }
}

/// Links by number, PCIe by GB/s, domains by their id.
type WiringFacts = BTreeMap<WiringPart, f64>;

/// A part that differs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct WiringDifference {
    part: WiringPart,
    seen: f64,
    usual: f64,
}

/// The answer to a topology file: what differs from the node, or among its parts; else what it has.
pub(crate) fn explain_topology(shown: &Topology, basis: AnswerBasis<'_>) -> DraftAnswer {
    let AnswerBasis { limits, node, .. } = basis;
    let seen = facts_of_topology(shown, false);
    let usual = node.map(|node| facts_of_topology(node.topology(), true)).unwrap_or_default();
    let adapters = shown.nics.len();
    let mut counts = format!("{} GPUs and {adapters} adapters", shown.gpus.len());
    let c2c = limits.map_or(0.0, |limits| limits.c2c_gbs);
    if c2c > 0.0 {
        counts.push_str(&format!(", NVLink-C2C of {} GB/s each way to the host", figure(c2c)));
    }
    let has_xgmi = shown.links.iter().any(|link| link.kind == LinkKind::Xgmi);
    let fabric = if has_xgmi { "xGMI" } else { "NVLink" };
    if let Some(odd) = shown.warnings.iter().find(|warning| warning.code == "link-to-itself") {
        let limit = "unknown: the file does not say where the links end".to_owned();
        let draft = DraftAnswer::new(CheckPath::Wiring, format!("wiring: {counts}"), None);
        return DraftAnswer { limit, note: odd.text.clone(), ..draft };
    }
    lone_gpus(&seen, &usual, fabric, &counts)
        .or_else(|| draft(&seen, &usual, "NCCL topology file"))
        .map(|draft| with_limit(draft, limits))
        .unwrap_or_else(|| plain(counts, limits, node.is_some()))
}

/// GPUs without any link of the fabric where most others have some; of bridges, which join pairs, none is one.
fn lone_gpus(
    seen: &WiringFacts,
    node: &WiringFacts,
    fabric: &str,
    counts: &str,
) -> Option<DraftAnswer> {
    // Partners of each GPU, and links of its widest part. A switch joins all.
    let mut gpus: BTreeMap<u32, (usize, f64)> = BTreeMap::new();
    for (part, links) in seen {
        let (ends, partners) = match *part {
            WiringPart::Pair(a, b) => ([Some(a), Some(b)], 1),
            WiringPart::Switches(gpu) => ([Some(gpu), None], 2),
            WiringPart::Host(_) | WiringPart::Domain(_) => continue,
        };
        for gpu in ends.into_iter().flatten() {
            let known = gpus.entry(gpu).or_default();
            known.0 += if *links > 0.0 { partners } else { 0 };
            known.1 = known.1.max(*links);
        }
    }
    let lone: Vec<String> =
        gpus.iter().filter(|(_, gpu)| gpu.0 == 0).map(|(gpu, _)| format!("gpu{gpu}")).collect();
    let linked = gpus.len() - lone.len();
    let is_mesh = gpus.values().any(|gpu| gpu.0 > 1);
    if !node.is_empty() || lone.is_empty() || lone.len() >= linked || !is_mesh {
        return None;
    }
    let most = gpus.values().map(|gpu| gpu.1).fold(0.0, f64::max);
    let links = if most > 1.0 { format!(" ({most:.0} links)") } else { String::new() };
    let has = if lone.len() == 1 { "has" } else { "have" };
    let parts = format!(
        "{} {has} no {fabric}, the {linked} others have it{links}: traffic with it goes through the host",
        lone.join(", ")
    );
    let draft = DraftAnswer::new(CheckPath::Wiring, format!("wiring: {counts}"), None);
    let edit = CauseFacts::default().word("parts", parts).cause("wiring.links-lost");
    Some(DraftAnswer { edits: vec![edit], ..draft })
}

/// The links of a sound GPU as the limit.
fn with_limit(draft: DraftAnswer, limits: Option<&NodeLimits>) -> DraftAnswer {
    let none = || "none: no figure is compared".to_owned();
    DraftAnswer { limit: limits.map_or_else(none, NodeLimits::wiring_text), ..draft }
}

/// A wiring in which nothing differs.
fn plain(counts: String, limits: Option<&NodeLimits>, is_compared: bool) -> DraftAnswer {
    let none = || "no links of GPUs are shown".to_owned();
    DraftAnswer {
        limit: limits.map_or_else(none, NodeLimits::wiring_text),
        edits: vec![cause("wiring.links")],
        // Nothing is asked of a wiring that is compared with no other.
        is_description: !is_compared,
        ..DraftAnswer::new(CheckPath::Wiring, format!("wiring: {counts}"), None)
    }
}

/// The same of a matrix of links.
pub(crate) fn explain_links(shown: &LinkMatrix, basis: AnswerBasis<'_>) -> DraftAnswer {
    let AnswerBasis { limits, node, .. } = basis;
    if shown.has_statuses() {
        return peer_access(shown);
    }
    let mut usual = node.map(|node| facts_of_topology(node.topology(), true)).unwrap_or_default();
    let is_rocm = shown.tool == "rocm-smi";
    if is_rocm {
        // It prints the kind of a link, not its width.
        for (_, width) in usual.iter_mut().filter(|(part, _)| matches!(part, WiringPart::Pair(..)))
        {
            *width = width.min(1.0);
        }
    }
    let mut seen = WiringFacts::new();
    let width = |text: &str| nvlinks(text).unwrap_or(f64::from(u8::from(text == "XGMI")));
    let is_joined = |text: &String| width(text) > 0.0;
    let has_switches = usual.keys().any(|part| matches!(part, WiringPart::Switches(_)));
    let is_switched = match usual.is_empty() {
        true => !is_rocm && shown.pairs.len() > 2 && shown.pairs.values().all(is_joined),
        false => has_switches,
    };
    for (&(a, b), text) in &shown.pairs {
        let links = width(text);
        let mut take = |part: WiringPart, most: bool| {
            let known = seen.entry(part).or_insert(links);
            *known = if most { known.max(links) } else { known.min(links) };
        };
        if is_switched {
            // A pair has the links of the end with fewer.
            take(WiringPart::Switches(a), true);
        } else {
            take(WiringPart::Pair(a.min(b), a.max(b)), false);
        }
    }
    seen.extend(shown.numa.iter().map(|(gpu, id)| (WiringPart::Domain(*gpu), f64::from(*id))));
    let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
    for text in shown.pairs.iter().filter(|((a, b), _)| a < b).map(|(_, text)| text.as_str()) {
        *kinds.entry(text).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, n)| format!("{n} x {kind}")).collect();
    let gpus = shown.pairs.keys().map(|&(a, b)| a.max(b) + 1).max().unwrap_or(1);
    let mut counts =
        format!("{gpus} GPUs, {} adapters; pairs: {}", shown.nics.len(), kinds.join(", "));
    if limits.is_some_and(|limits| limits.adapters_are_far) {
        counts
            .push_str("; each adapter is behind a root port or another socket (SYS) of every GPU");
    }
    let fabric = if is_rocm { "xGMI" } else { "NVLink" };
    lone_gpus(&seen, &usual, fabric, &counts)
        .or_else(|| draft(&seen, &usual, shown.tool))
        .map(|draft| with_limit(draft, limits))
        .unwrap_or_else(|| plain(counts, limits, node.is_some()))
}

/// Facts of a node; `at_best` those of its PCIe links at their highest speed and width.
fn facts_of_topology(topology: &Topology, at_best: bool) -> WiringFacts {
    let mut facts = WiringFacts::new();
    // Files order GPUs as the driver does.
    let number = |end: LinkEnd| match end {
        LinkEnd::Gpu(index) => {
            topology.gpus.iter().position(|gpu| gpu.index == index).map(|at| at as u32)
        }
        _ => None,
    };
    let gpus = topology.gpus.len() as u32;
    let links = topology.links.iter().filter(|link| {
        let is_host = [link.a, link.b].iter().any(|end| matches!(end, LinkEnd::Numa(_)));
        !is_host && matches!(link.kind, LinkKind::Nvlink | LinkKind::Xgmi)
    });
    for link in links {
        let part = match (number(link.a), number(link.b)) {
            (Some(a), Some(b)) => WiringPart::Pair(a.min(b), a.max(b)),
            (Some(gpu), None) | (None, Some(gpu)) => WiringPart::Switches(gpu),
            (None, None) => continue,
        };
        *facts.entry(part).or_default() += f64::from(link.width);
    }
    // A GPU or a pair without links is a fact, too; a GPU for the display is of another product.
    let product = |gpu: u32| topology.gpus.get(gpu as usize).map(|gpu| (&gpu.name, &gpu.arch));
    let linked: Vec<_> = facts
        .keys()
        .flat_map(|part| match *part {
            WiringPart::Pair(a, b) => [product(a), product(b)],
            WiringPart::Switches(gpu) => [product(gpu), None],
            _ => [None, None],
        })
        .flatten()
        .collect();
    let is_peer = |gpu: &u32| product(*gpu).is_some_and(|name| linked.contains(&name));
    let has_switches = facts.keys().any(|part| matches!(part, WiringPart::Switches(_)));
    let is_meshed = facts.keys().any(|part| matches!(part, WiringPart::Pair(..)));
    for gpu in 0..gpus {
        if has_switches && is_peer(&gpu) {
            facts.entry(WiringPart::Switches(gpu)).or_default();
        }
        let others = (gpu + 1..gpus).filter(|other| is_meshed && is_peer(&gpu) && is_peer(other));
        for other in others {
            facts.entry(WiringPart::Pair(gpu, other)).or_default();
        }
        let Some(found) = topology.gpus.get(gpu as usize) else { continue };
        if let Some(peak) = host_gbs(topology, found, at_best) {
            facts.insert(WiringPart::Host(gpu), peak);
        }
        if let Some(domain) = found.numa {
            facts.insert(WiringPart::Domain(gpu), f64::from(domain));
        }
    }
    facts
}

/// A GPU's link to the host: its own, or the slowest of the functions above it.
fn host_gbs(topology: &Topology, gpu: &Gpu, at_best: bool) -> Option<f64> {
    let peak = |link: &PcieLink| match at_best {
        true => link.max_peak().gbs().max(link.peak().gbs()),
        false => link.peak().gbs(),
    };
    if let Some(own) = gpu.host_link.as_ref().map(peak).filter(|gbs| *gbs > 0.0) {
        return Some(own);
    }
    let mut slowest: Option<f64> = None;
    let mut at = Some(gpu.pci.as_str()).filter(|address| !address.is_empty());
    for _ in 0..MAX_BRIDGES {
        let Some(device) = at.and_then(|at| topology.pci.iter().find(|d| d.address == *at)) else {
            break;
        };
        if let Some(gbs) = device.link.as_ref().map(peak).filter(|gbs| *gbs > 0.0) {
            slowest = Some(slowest.map_or(gbs, |least| least.min(gbs)));
        }
        at = device.parent.as_deref();
    }
    slowest
}

/// The least GPU that each GPU reaches by links: bridges join cards in groups.
fn linked_groups(facts: &WiringFacts) -> BTreeMap<u32, u32> {
    let mut groups = BTreeMap::new();
    for (part, width) in facts {
        let WiringPart::Pair(a, b) = *part else { continue };
        let (of_a, of_b) = (*groups.entry(a).or_insert(a), *groups.entry(b).or_insert(b));
        if *width > 0.0 && of_a != of_b {
            let (kept, gone) = (of_a.min(of_b), of_a.max(of_b));
            groups.values_mut().filter(|group| **group == gone).for_each(|group| *group = kept);
        }
    }
    groups
}

/// What most parts of a kind have, where nearly all have the same.
fn majority(facts: &WiringFacts) -> WiringFacts {
    let mut usual = WiringFacts::new();
    let groups = linked_groups(facts);
    // Pairs of one group are peers, and those between groups.
    let group = |part: WiringPart| match part {
        WiringPart::Pair(a, b) => groups.get(&a).filter(|group| groups.get(&b) == Some(*group)),
        _ => None,
    };
    for &part in facts.keys().filter(|part| !matches!(part, WiringPart::Domain(_))) {
        let alike: Vec<f64> = facts
            .iter()
            .filter(|(other, _)| other.is_like(part) && group(**other) == group(part))
            .map(|(_, value)| *value)
            .collect();
        let count = |value: f64| alike.iter().filter(|other| **other == value).count();
        let most = alike.iter().copied().max_by_key(|value| count(*value));
        if let Some(most) = most
            && alike.len() >= MIN_ALIKE
            && count(most) as f64 >= usual_share(part, alike.len())
        {
            usual.insert(part, most);
        }
    }
    usual
}

/// Parts of a kind that make a value usual. Pairs of three GPUs may differ by design.
fn usual_share(part: WiringPart, count: usize) -> f64 {
    match part {
        WiringPart::Switches(_) | WiringPart::Host(_) if count == MIN_ALIKE => 2.0,
        _ => USUAL_SHARE * count as f64,
    }
}

fn differences(seen: &WiringFacts, usual: &WiringFacts) -> Vec<WiringDifference> {
    let both = seen.iter().filter_map(|(part, value)| Some((*part, *value, *usual.get(part)?)));
    let mut found: Vec<WiringDifference> = both
        .filter(|(part, seen, usual)| match part {
            WiringPart::Pair(..) | WiringPart::Switches(_) => seen < usual,
            WiringPart::Host(_) => *seen < usual * NARROW_SHARE,
            WiringPart::Domain(_) => seen != usual,
        })
        .map(|(part, seen, usual)| WiringDifference { part, seen, usual })
        .collect();
    // Links that a file does not list are none.
    let lists_links =
        seen.keys().any(|part| matches!(part, WiringPart::Pair(..) | WiringPart::Switches(_)));
    if lists_links {
        let missing = usual.iter().filter(|(part, width)| {
            matches!(part, WiringPart::Switches(_)) && **width > 0.0 && !seen.contains_key(*part)
        });
        found.extend(missing.map(|(part, width)| WiringDifference {
            part: *part,
            seen: 0.0,
            usual: *width,
        }));
    }
    found
}

fn draft(seen: &WiringFacts, node: &WiringFacts, tool: &str) -> Option<DraftAnswer> {
    let gpus = |facts: &WiringFacts| {
        let last = facts.keys().filter_map(|part| match part {
            WiringPart::Domain(gpu) | WiringPart::Switches(gpu) | WiringPart::Pair(_, gpu) => {
                Some(*gpu)
            }
            WiringPart::Host(_) => None,
        });
        last.max()
    };
    // A node of another size is another node.
    let is_of_node = !node.is_empty() && gpus(seen) == gpus(node);
    let (usual, basis) = match is_of_node {
        true => (node.clone(), "the node has"),
        false if node.is_empty() => (majority(seen), "the others have"),
        false => return None,
    };
    let found = differences(seen, &usual);
    let compared = seen.keys().filter(|part| usual.contains_key(part)).count();
    if found.is_empty() || found.len() as f64 > (MAX_DIFFERENT_SHARE * compared as f64).max(1.0) {
        return None;
    }
    let count = found.len();
    let meaning = format!("wiring by {tool}: {count} of {compared} facts differ from what {basis}");
    let mut draft = DraftAnswer::new(CheckPath::Wiring, meaning, None);
    for key in ["wiring.links-lost", "wiring.narrow-pcie", "wiring.gpu-domain"] {
        let mine: Vec<&WiringDifference> =
            found.iter().filter(|one| key.ends_with(one.part.cause())).collect();
        if mine.is_empty() {
            continue;
        }
        let named: Vec<String> = mine.iter().take(MAX_NAMED).map(|one| text(one, basis)).collect();
        let more = mine.len().saturating_sub(MAX_NAMED);
        let more = if more > 0 { format!("; {more} more") } else { String::new() };
        let parts = format!("{}{more}", named.join("; "));
        let edit = CauseFacts::default().word("parts", parts).cause(key);
        draft.edits.push(WorldEdit { prior: mine.len() as f64, ..edit });
    }
    Some(draft)
}

fn text(one: &WiringDifference, basis: &str) -> String {
    let (name, seen, usual) = (one.part.name(), figure(one.seen), figure(one.usual));
    match one.part {
        WiringPart::Pair(..) | WiringPart::Switches(_) if one.seen == 0.0 => {
            format!("{name} shows no link of the fabric, {basis} {:.0}", one.usual)
        }
        WiringPart::Pair(..) | WiringPart::Switches(_) => {
            format!("{name} shows {:.0} links, {basis} {:.0}", one.seen, one.usual)
        }
        WiringPart::Host(_) => {
            format!(
                "{name} has PCIe of {seen} GB/s, {basis} {usual}: lanes or generations are lost"
            )
        }
        WiringPart::Domain(_) => {
            let (seen, usual) = (one.seen, one.usual);
            format!("{name} is shown at NUMA domain {seen:.0}, {basis} it at {usual:.0}")
        }
    }
}

/// What a matrix of statuses says: of the driver, and not of any link.
pub(crate) fn peer_access(shown: &LinkMatrix) -> DraftAnswer {
    let count = |status: &str| {
        shown.pairs.iter().filter(|((a, b), text)| a < b && text.as_str() == status).count()
    };
    let counted = PEER_STATUSES.iter().map(|(status, text)| (count(status), status, text));
    let counted = counted.filter(|one| one.0 > 0);
    let kinds: Vec<String> =
        counted.map(|(n, status, text)| format!("{n} x {status} ({text})")).collect();
    DraftAnswer {
        edits: vec![cause("wiring.peer-access")],
        meaning: format!("peer access of GPU pairs, as the driver allows it: {}", kinds.join(", ")),
        limit: "none shown; where reads or writes (-p2p r, w) are refused, copies go through host memory"
            .to_owned(),
        is_description: true,
        path: CheckPath::Wiring,
        ..DraftAnswer::default()
    }
}
