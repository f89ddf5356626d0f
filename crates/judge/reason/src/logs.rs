//! Logs of NCCL and RCCL without a table: transports, channels, adapters, and how they differ from a described
//! node.

use pathline_paste::{NcclLog, PasteContext};

use crate::cause_table::{CauseFacts, cause};
use crate::checks::CheckPath;
use crate::draft::DraftAnswer;
use crate::node_facts::{AnswerBasis, NodeLimits};
use crate::row_predictor::RowPredictor;
use crate::score::{AnswerClass, WorldEdit};

/// Channels that carry the links of any node: NCCL lays 16 over the NVLinks of H100 and H200.
const ENOUGH_CHANNELS: usize = 16;

/// What a log says.
pub(crate) fn explain(log: &NcclLog, basis: AnswerBasis<'_>) -> DraftAnswer {
    let AnswerBasis { limits, node, context, .. } = basis;
    let transports: Vec<String> =
        log.transports.iter().map(|(name, n)| format!("{n} x {name}")).collect();
    let via = match (transports.is_empty(), log.network.as_str()) {
        (false, _) => transports.join(", "),
        (true, "") => "no line of a channel's transport".to_owned(),
        (true, network) => format!("network {network}, no line of a channel's transport"),
    };
    let mut name = if log.is_rccl { "RCCL" } else { "NCCL" }.to_owned();
    if !log.version.is_empty() {
        name += &format!(" {}", log.version);
    }
    for (count, what) in
        [(log.ranks, "ranks"), (log.nodes, "nodes"), (log.channels, "channels of collectives")]
    {
        name += &count.map(|n| format!(", {n} {what}")).unwrap_or_default();
    }
    let mut draft = DraftAnswer::new(CheckPath::Log, format!("log of {name}: {via}"), None);
    let none = || "none: a log has no figure".to_owned();
    draft.limit = limits.map_or_else(none, NodeLimits::wiring_text);
    draft.edits.extend(
        transport_edit(log).filter(|edit| !(is_of_one_host(log, context) && edit.id == "tcp")),
    );
    match node {
        Some(node) => add_node_causes(&mut draft, log, node),
        // Nothing is asked of a log in which all is as it should be.
        None => {
            let is_good = |edit: &WorldEdit| edit.class == AnswerClass::AsExpected;
            draft.is_description = draft.edits.iter().all(is_good);
        }
    }
    draft
}

/// Whether nothing in a log or the text around it speaks of a second node.
pub(crate) fn is_of_one_host(log: &NcclLog, context: &PasteContext) -> bool {
    let nodes = log.nodes.max(context.nodes).unwrap_or(1);
    let is_net = log.transports.keys().any(|name| name.starts_with("NET/"));
    nodes <= 1 && log.hosts.len() == 1 && !is_net
}

/// Whether nodes exchange over sockets.
pub(crate) fn uses_sockets(log: &NcclLog) -> bool {
    let is_net = log.has_transport("NET/") || log.transports.is_empty();
    log.has_transport("NET/Socket") || log.network.contains("Socket") && is_net
}

/// Whether some channels over RDMA go through host memory.
pub(crate) fn lacks_direct_channels(log: &NcclLog) -> bool {
    log.transports.keys().any(|name| name.contains("NET/IB") && !name.contains("GDRDMA"))
}

/// What the transports of a log say: at most one cause.
fn transport_edit(log: &NcclLog) -> Option<WorldEdit> {
    let has = |part: &str| log.has_transport(part);
    match () {
        () if !log.mixed_networks.is_empty() => {
            let of = |(network, ranks): (&String, &u32)| format!("{network} of {ranks}");
            let which: Vec<String> = log.mixed_networks.iter().map(of).collect();
            let facts = CauseFacts::default().word("which", which.join(", "));
            Some(facts.cause("log.mixed-networks"))
        }
        () if has("SHM") => Some(cause("log.through-host-memory")),
        () if uses_sockets(log) => Some(cause("log.tcp")),
        () if lacks_direct_channels(log) => {
            let which = match has("GDRDMA") {
                true => "some channels have GDRDMA and some do not: a node lacks it",
                false => "RDMA goes through host memory: no GDRDMA in its channels",
            };
            Some(CauseFacts::default().word("which", which).cause("log.no-gpu-direct"))
        }
        () if has("P2P") => Some(cause("log.peer")),
        () => None,
    }
}

/// Adds what differs from the node, where the log's transports are as they should be.
fn add_node_causes(draft: &mut DraftAnswer, log: &NcclLog, node: &RowPredictor) {
    if !draft.edits.iter().all(|edit| edit.class == AnswerClass::AsExpected) {
        return;
    }
    let mut found = Vec::new();
    let rings = node.ring_count().map(|rings| rings.min(ENOUGH_CHANNELS));
    if let (Some(rings), Some(channels)) = (rings, log.channels)
        && 2 * channels as usize <= rings
    {
        let facts = CauseFacts::new(&[("channels", f64::from(channels)), ("rings", rings as f64)]);
        found.push(facts.cause("log.few-channels"));
    }
    let software = node.desc().map(|desc| &desc.software);
    let reduces = software.and_then(|software| software.nccl.as_ref()?.nvls.as_ref()).is_some();
    if reduces && log.nvls == Some(false) {
        found.push(cause("log.nvls-off"));
    }
    let adapters = node.topology().nics.len();
    if let Some(used) = log.adapters
        && log.nodes.is_some_and(|nodes| nodes > 1)
        && (used as usize) < adapters
    {
        let facts = CauseFacts::new(&[("used", f64::from(used)), ("adapters", adapters as f64)]);
        found.push(facts.cause("log.fewer-adapters"));
    }
    if found.is_empty() {
        return;
    }
    // What a log lacks may be in lines that were not pasted: these are likely, not certain.
    draft.edits.iter_mut().for_each(|edit| edit.prior *= 0.1);
    draft.edits.append(&mut found);
}
