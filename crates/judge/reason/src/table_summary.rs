//! What a table of collectives shows: its ranks and nodes, its best rate, and how rates change with the size.

use std::collections::BTreeSet;

use pathline_paste::{CollectiveRow, CollectiveTable, NcclLog};

use crate::draft::DraftAnswer;
use crate::node_facts::{AnswerBasis, FactSource, NodeLimits};
use crate::product_facts::FabricKind;
use crate::score::ObservedFeature;

/// Share of the data rate of the links that a ring of NCCL reaches as busbw: 370 of 450 on H100, 160 of 200 on H800, 235 of
/// 300 on A100, 130 of 150 GB/s on V100 (statements of NCCL's authors in its issues; fixtures of this
/// repository: 0.80 to 0.83).
pub(crate) const RING_SHARE: f64 = 0.81;

/// What a table shows.
pub(crate) struct TableSummary {
    pub(crate) ranks: u32,
    /// Whether nothing states or implies them, and `ranks` is the least that there can be.
    pub(crate) is_guess: bool,
    pub(crate) nodes: u32,
    /// Whether the number of nodes is a lower bound, derived from the number of ranks alone.
    pub(crate) is_least: bool,
    /// Whether NVLink joins all of its nodes.
    is_one_domain: bool,
    /// Whether something states the number of nodes: hosts of all ranks, a log, the text, or one process.
    pub(crate) is_placed: bool,
    /// Greatest busbw.
    pub(crate) best: f64,
    pub(crate) largest: u64,
    pub(crate) last: f64,
    pub(crate) growth: Option<f64>,
}

impl TableSummary {
    pub(crate) fn new(table: &CollectiveTable, basis: AnswerBasis<'_>) -> Self {
        let AnswerBasis { limits: node, log, context, .. } = basis;
        let hosts: BTreeSet<&str> =
            table.devices.iter().map(|device| device.host.as_str()).collect();
        let listed = u32::try_from(hosts.len().max(1)).unwrap_or(1);
        // Hosts that a log names count where no device list is pasted: each has a rank at least.
        let logged = log.and_then(|log| u32::try_from(log.hosts.len()).ok());
        let logged = logged.filter(|hosts| table.devices.is_empty() && *hosts > 1);
        // Channels over the network join two nodes at least.
        let is_net = |log: &NcclLog| log.transports.keys().any(|via| via.starts_with("NET/"));
        let logged = logged.or(log.filter(|log| is_net(log)).map(|_| 2));
        let stated = table.nodes.or(log.and_then(|log| log.nodes)).or(logged).unwrap_or(1);
        let ranks = table.ranks.or(log.and_then(|log| log.ranks));
        // Each process of nccl-tests drives one GPU unless -g or -t say more (its README).
        let launched = context.processes.filter(|_| table.profiler.is_none());
        let each = table.gpus_per_thread.unwrap_or(1);
        let ranks = ranks.or(launched.and_then(|processes| processes.checked_mul(each)));
        // A list of devices that was cut names too few hosts: then the text's count, and no node has more
        // than 16 GPUs.
        let is_cut = ranks.is_none_or(|ranks| (table.devices.len() as u64) < u64::from(ranks));
        let written = context.nodes.filter(|_| is_cut && table.nodes.is_none()).unwrap_or(1);
        // DGX-2 has 16 GPUs a node, later ones 8.
        let is_later = node.and_then(|node| node.product).is_some_and(|p| p.name != "V100");
        let most = node.and_then(|node| node.gpus).filter(|gpus| *gpus > 1);
        let most = most.unwrap_or(if is_later { 8 } else { 16 });
        let least = ranks.map_or(1, |ranks| ranks.div_ceil(most));
        let named = listed.max(stated).max(written.min(ranks.unwrap_or(u32::MAX)));
        // A number that is written, or that a log counts, stands before what the usual node has.
        let is_written = written > 1 || table.nodes.or(log.and_then(|log| log.nodes)).is_some();
        let nodes = if is_written { named } else { named.max(least) };
        let ranks = ranks.or(node.and_then(|n| n.gpus));
        let is_guess = ranks.is_none();
        let ranks = ranks.unwrap_or(2).max(1);
        // A rack of which each GPU reaches each other over NVLink.
        let of_rack = context.prose.contains("nvl72").then_some(72);
        let domain = log.and_then(|log| log.nvlink_domain).max(of_rack);
        let best = table.rows.iter().map(|row| row.busbw).fold(0.0, f64::max);
        let mut rows: Vec<_> = table.rows.iter().collect();
        rows.sort_by_key(|row| row.bytes);
        let last = rows.last().copied().copied().unwrap_or_default();
        // Growth from a size to its double tells starts from saturation; steps are of 2 or 4 as a rule.
        let times = |row: &CollectiveRow| last.bytes as f64 / row.bytes.max(1) as f64;
        let before = rows.iter().rev().find(|row| times(row) >= 2.0 && row.busbw > 0.0);
        let before = before.filter(|row| times(row) <= 4.0);
        Self {
            ranks,
            is_guess,
            nodes,
            is_least: nodes > named,
            is_one_domain: domain.is_some_and(|size| size >= ranks),
            is_placed: !is_cut
                || nodes > 1
                || table.nodes.or(context.nodes).or(log.and_then(|log| log.nodes)).is_some()
                || table.gpus_per_thread.is_some_and(|gpus| gpus >= ranks),
            best,
            largest: last.bytes,
            last: last.busbw,
            growth: before.map(|row| (last.busbw / row.busbw).powf(1.0 / times(row).log2())),
        }
    }

    /// `16 ranks on at least 2 nodes`.
    pub(crate) fn ranks_text(&self) -> String {
        let ranks = match self.is_guess {
            true => "an unknown number of ranks".to_owned(),
            false => format!("{} ranks", self.ranks),
        };
        let least = if self.is_least { "at least " } else { "" };
        match self.nodes > 1 && !self.is_one_node() {
            true => format!("{ranks} on {least}{} nodes", self.nodes),
            false => ranks,
        }
    }

    pub(crate) const fn is_one_node(&self) -> bool {
        self.nodes <= 1 || self.is_one_domain
    }

    /// Ranks of a collective on one node; none of one over several, or of one rank.
    pub(crate) fn of_one_node(&self, table: &CollectiveTable) -> Option<u32> {
        (self.nodes == 1 && table.ranks != Some(1)).then_some(self.ranks)
    }

    /// How rates change with the size.
    pub(crate) fn observe(&self, draft: &mut DraftAnswer, table: &CollectiveTable) {
        if let Some(growth) = self.growth.filter(|g| *g > 0.0) {
            draft.features.push(ObservedFeature::new("growth", growth));
        }
        if self.best > 0.0 && self.last > 0.0 && table.rows.len() > 2 {
            draft.features.push(ObservedFeature::new("cliff", self.last / self.best));
        }
    }
}

/// Links that a ring over these GPUs has: in a mesh those among them, GB/s.
pub(crate) fn links_among(shape: &TableSummary, node: &NodeLimits) -> f64 {
    let of_pairs = node.pair_gbs * f64::from(shape.ranks.saturating_sub(1));
    let is_part = match node.fabric {
        FabricKind::Xgmi => {
            shape.ranks < 8 && node.gpus.unwrap_or(8) >= 8 && node.links_gbs > 200.0
        }
        FabricKind::Meshed => node.links_source == FactSource::Paste,
        _ => false,
    };
    if is_part { of_pairs.min(node.links_gbs) } else { node.links_gbs }
}
