//! What a described node should show in each row of a paste.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pathline_diagnose::{PredictedFigure, find_figure_trust, predict_setting};
use pathline_flow::{DescError, MachineDesc, MachineFault, Network, RuntimeEnv};
use pathline_message::{ExchangeOp, ExchangeSpec, ExchangeTime, MessageLayer};
use pathline_paste::{CopyMeans, MatrixEnd, RateCount, RateMatrix};
use pathline_schema::{
    Bytes, Case, Flow, MemKind, Mover, Place, Rate, SizeEffects, Topology, Unit,
};

use crate::predicted_row::PredictedRow;

/// Bytes of a copy where the paste states none.
const COPY: Bytes = Bytes::mib(256);
/// Rows of a paste that are predicted at most: a matrix of 16 GPUs has 240.
const MAX_ROWS: usize = 512;
/// Most subjects of a paste whose ranges are found.
const MAX_RANGES: usize = 32;

/// Predicts the rows of a paste on one node: by the model of a described machine, or by the theoretical
/// peaks of a topology alone.
#[derive(Debug)]
pub struct RowPredictor {
    desc: Option<MachineDesc>,
    /// Text of the description, which says where its constants are from.
    text: String,
    /// Factors within which the times of subjects are known, slower and faster, as they are asked for.
    known_within: RefCell<BTreeMap<String, Option<(f64, f64)>>>,
    topology: Topology,
    network: Network,
    layer: Option<MessageLayer>,
    /// Why this model is taken, where the user named none.
    pub(crate) because: String,
}

/// What a row measured.
#[derive(Debug, Clone)]
pub(crate) enum RowQuery {
    /// Copies that run together.
    Copies {
        case: Case,
        /// Of them the first this many are counted, from `at` on, summed.
        at: usize,
        count: usize,
    },
    /// Bus bandwidth of a collective, or the rate of messages.
    Rate(ExchangeSpec),
    /// Half of a round trip, or the mean time of a collective.
    Time(ExchangeSpec),
}

impl RowQuery {
    /// The exchange of messages, where no copies are measured.
    pub(crate) const fn exchange(&self) -> Option<&ExchangeSpec> {
        match self {
            Self::Rate(exchange) | Self::Time(exchange) => Some(exchange),
            Self::Copies { .. } => None,
        }
    }

    /// Whether an MPI moves them.
    pub(crate) fn is_mpi(&self) -> bool {
        self.exchange().is_some_and(|exchange| exchange.by.is_mpi())
    }

    /// Whether less is faster.
    pub(crate) const fn is_time(&self) -> bool {
        matches!(self, Self::Time(_))
    }
}

/// A row with the place in its document.
#[derive(Debug, Clone)]
pub(crate) struct QueriedRow {
    /// Which matrix of several.
    pub(crate) table: usize,
    /// Which row or cell.
    pub(crate) at: usize,
    pub(crate) measured: f64,
    pub(crate) query: RowQuery,
}

impl RowPredictor {
    /// On a described machine without its faults: what it should do.
    ///
    /// # Errors
    /// A description that makes no network.
    pub fn from_desc(desc: &MachineDesc) -> Result<Self, DescError> {
        let network = Network::new(desc, RuntimeEnv::default())?;
        let (topology, layer) = (desc.healthy_topology().clone(), MessageLayer::new(desc).ok());
        Ok(Self::new(Some(desc.clone()), topology, network, layer))
    }

    fn new(
        desc: Option<MachineDesc>,
        topology: Topology,
        network: Network,
        layer: Option<MessageLayer>,
    ) -> Self {
        let (text, because) = (String::new(), String::new());
        let known_within = RefCell::default();
        Self { desc, text, known_within, topology, network, layer, because }
    }

    /// The same with the text of the description, by which ranges are found.
    #[must_use]
    pub fn with_text(self, text: &str) -> Self {
        Self { text: text.to_owned(), ..self }
    }

    /// The same where the paste names the node: `, assumed since the paste names 8 x MI250X`.
    #[must_use]
    pub fn assumed(self, because: String) -> Self {
        Self { because, ..self }
    }

    /// The values that the constants of the model leave open for a row, low and high in its unit: the range that
    /// `predict` states. None for subjects beyond the first [`MAX_RANGES`], each of which takes a quarter of a
    /// second.
    pub(crate) fn range_of(&self, row: &PredictedRow) -> Option<(f64, f64)> {
        let desc = self.desc.as_ref().filter(|_| !self.text.is_empty())?;
        let mut known = self.known_within.borrow_mut();
        if !known.contains_key(&row.subject) && known.len() >= MAX_RANGES {
            return None;
        }
        let find = || {
            let (case, exchange) = (row.subject.parse::<Case>().ok(), row.subject.parse().ok());
            let figure = match (&case, &exchange) {
                (Some(case), _) => PredictedFigure::Case(case),
                (None, Some(exchange)) => PredictedFigure::Exchange(exchange),
                (None, None) => return None,
            };
            let trust = find_figure_trust(desc, &self.text, &[figure]).ok()?.into_iter().next()?;
            Some((trust.slower, trust.faster))
        };
        let (slower, faster) = (*known.entry(row.subject.clone()).or_insert_with(find))?;
        // No constant moves a value beyond the limit of its path.
        Some(match (row.unit, row.limit) {
            ("us", limit) => {
                ((row.predicted * faster).max(limit.unwrap_or(0.0)), row.predicted * slower)
            }
            (_, limit) => {
                let high = (row.predicted / faster).min(limit.unwrap_or(f64::INFINITY));
                (row.predicted / slower, high.max(row.predicted))
            }
        })
    }

    /// On a node of which only the topology is known. Copies are compared with theoretical peaks, and
    /// messages have no prediction.
    pub fn from_topology(topology: Topology) -> Self {
        let network = Network::from_topology(&topology);
        Self::new(None, topology, network, None)
    }

    /// The node.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The machine that is described, if one is.
    pub(crate) fn desc(&self) -> Option<&MachineDesc> {
        self.desc.as_ref()
    }

    /// `model hgx-h100`, or that only peaks are known.
    pub(crate) fn basis(&self) -> String {
        match &self.desc {
            Some(desc) => format!("model {}", desc.name),
            None => "theoretical peaks of this node".to_owned(),
        }
    }

    /// Measured over predicted that is usual, and the standard deviation of its logarithm: 84 % of the
    /// peaks of PCIe, 88 % of NVLink's and 75 % of xGMI's are payload.
    pub(crate) fn usual_level(&self) -> (f64, f64) {
        if self.desc.is_some() { (1.0, 0.08) } else { (0.82, 0.15) }
    }

    /// What a setting of the runtime's copies does by size on a described machine, if that differs.
    pub fn setting_by_size(&self, setting: &str) -> Option<SizeEffects> {
        self.desc.as_ref()?;
        let found = predict_setting((&self.network, self.layer()), &self.topology, setting);
        found.verdict().is_some().then_some(found)
    }

    /// The libraries of messages, if the machine is described.
    pub(crate) fn layer(&self) -> Option<&MessageLayer> {
        self.layer.as_ref()
    }

    /// The time of an exchange, with what bounds it.
    pub(crate) fn time_of(&self, exchange: &ExchangeSpec) -> Option<ExchangeTime> {
        self.layer.as_ref()?.time(exchange).ok()
    }

    /// The rate that tools print of an exchange: of a collective that of the bus.
    fn rate_of(exchange: &ExchangeSpec, time: &ExchangeTime) -> f64 {
        match exchange.what {
            ExchangeOp::Collective { .. } => time.busbw.gbs(),
            _ => time.algbw.gbs(),
        }
    }

    /// The same node with a fault, for copies, or for exchanges; none without a description.
    pub(crate) fn damaged(&self, fault: &MachineFault, for_exchanges: bool) -> Option<Self> {
        let (desc, faults) = (self.desc.as_ref()?, std::slice::from_ref(fault));
        let (network, layer) = if for_exchanges {
            // The message layer times exchanges on its own network.
            let layer = self.layer.as_ref().and_then(|layer| layer.damaged(desc, faults).ok());
            (self.network.clone(), layer)
        } else {
            (Network::with_faults(desc, RuntimeEnv::default(), faults).ok()?, None)
        };
        Some(Self::new(None, self.topology.clone(), network, layer))
    }

    /// The prediction of a row, GB/s or us.
    pub(crate) fn predict(&self, query: &RowQuery) -> Option<f64> {
        let value = match query {
            RowQuery::Copies { case, at, count } => {
                let flows = self.network.predict(case).ok()?;
                let counted = case.timed.iter().zip(&flows).skip(*at).take(*count);
                counted.map(|(flow, found)| Rate::of(flow.bytes, found.time).gbs()).sum()
            }
            RowQuery::Rate(exchange) => Self::rate_of(exchange, &self.time_of(exchange)?),
            RowQuery::Time(exchange) => {
                let time = self.time_of(exchange)?;
                let is_group = matches!(exchange.what, ExchangeOp::Collective { .. });
                if is_group { time.mean.0 / 1e3 } else { time.time.0 / 1e3 }
            }
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }

    fn limit(&self, query: &RowQuery) -> Option<f64> {
        match query {
            RowQuery::Copies { case, at, count } => {
                let counted = case.timed.iter().skip(*at).take(*count);
                let peaks = counted.map(|flow| Some(self.network.explain(flow).ok()?.peak.gbs()));
                peaks.sum()
            }
            RowQuery::Rate(exchange) | RowQuery::Time(exchange) => {
                let time = self.time_of(exchange)?;
                let least = time.bounds.flow.0.max(time.bounds.latency.0);
                let limit = match query.is_time() {
                    true => least / 1e3,
                    false => Self::rate_of(exchange, &time) * time.time.0 / least,
                };
                (least > 0.0).then_some(limit)
            }
        }
    }

    /// Where the limit of a row of copies lies: the narrowest stretch of its path.
    pub(crate) fn narrowest(&self, row: &PredictedRow) -> Option<String> {
        let case = row.subject.parse::<Case>().ok()?;
        Some(self.network.explain(case.timed.first()?).ok()?.narrowest)
    }

    /// Rows with their predictions; those without one are left out of both lists.
    pub(crate) fn predict_rows(
        &self,
        rows: Vec<QueriedRow>,
    ) -> (Vec<QueriedRow>, Vec<PredictedRow>) {
        let each = rows.into_iter().take(MAX_ROWS).filter_map(|row| {
            let predicted = self.predict(&row.query)?;
            let (subject, unit) = match &row.query {
                RowQuery::Copies { case, .. } => (case.to_string(), "GB/s"),
                RowQuery::Rate(exchange) => (exchange.to_string(), "GB/s"),
                RowQuery::Time(exchange) => (exchange.to_string(), "us"),
            };
            let sends = |one: &ExchangeSpec| matches!(one.what, ExchangeOp::Send { .. });
            let sent = match &row.query {
                RowQuery::Rate(one) if sends(one) => Some(one.bytes.0),
                _ => None,
            };
            let (limit, measured) = (self.limit(&row.query), row.measured);
            Some((row, PredictedRow { subject, unit, measured, predicted, limit, sent }))
        });
        each.unzip()
    }

    pub(crate) fn has_gpu(&self, gpu: u32) -> bool {
        self.topology.gpus.iter().any(|g| g.index == gpu)
    }

    /// How a tool's copies move: pathline's own kernel stands for those of others.
    fn mover(&self, means: CopyMeans, gpu: u32) -> Option<Mover> {
        let at = Unit::Gpu(gpu);
        let found = self.topology.gpus.iter().find(|g| g.index == gpu)?;
        match means {
            CopyMeans::Engine | CopyMeans::Unstated => Some(Mover::Dma { at }),
            CopyMeans::Kernel if found.caps().copy_kernel => Some(Mover::Blit { at }),
            CopyMeans::Kernel => {
                let variant = "copy-w16-u4-b256-g2sm".parse().ok()?;
                Some(Mover::Kernel { at, variant })
            }
        }
    }

    /// Pinned memory near a GPU, or of the domain that the tool names.
    fn host_place(&self, domain: Option<u32>, gpu: u32) -> Option<Place> {
        let known = |id: &u32| self.topology.numa.iter().any(|numa| numa.id == *id);
        let near = self.topology.gpus.iter().find(|g| g.index == gpu)?.numa;
        let numa = domain.filter(known).or(near).or(self.topology.numa.first().map(|n| n.id))?;
        Some(Place::new(Unit::Numa(numa), MemKind::Pinned))
    }

    fn copy(&self, from: MatrixEnd, to: MatrixEnd, means: CopyMeans) -> Option<Flow> {
        let vram = |gpu| Place::new(Unit::Gpu(gpu), MemKind::Vram);
        let (src, dst, at) = match (from, to) {
            (MatrixEnd::Gpu(a), MatrixEnd::Gpu(b)) if a != b => (vram(a), vram(b), a),
            (MatrixEnd::Host(numa), MatrixEnd::Gpu(gpu)) => {
                (self.host_place(numa, gpu)?, vram(gpu), gpu)
            }
            (MatrixEnd::Gpu(gpu), MatrixEnd::Host(numa)) => {
                (vram(gpu), self.host_place(numa, gpu)?, gpu)
            }
            _ => return None,
        };
        let known = [src, dst].iter().all(|p| p.unit.gpu().is_none_or(|gpu| self.has_gpu(gpu)));
        known.then_some(())?;
        Some(Flow { src, dst, by: self.mover(means, at)?, bytes: COPY })
    }

    /// The cells of matrices. nvbandwidth numbers its host rows, not NUMA domains.
    pub(crate) fn matrix_rows(&self, matrices: &[&RateMatrix]) -> Vec<QueriedRow> {
        let mut rows = Vec::new();
        for (table, matrix) in matrices.iter().enumerate() {
            if matrix.is_latency || matrix.peer_access == Some(false) {
                continue;
            }
            let names_domains = matches!(
                matrix.tool,
                pathline_paste::MatrixTool::RocmBandwidth
                    | pathline_paste::MatrixTool::TransferBench
            );
            let end = |end| match end {
                MatrixEnd::Host(_) if !names_domains => MatrixEnd::Host(None),
                end => end,
            };
            let flow = |from, to| self.copy(end(from), end(to), matrix.means);
            if matrix.concurrent {
                rows.extend(concurrent_rows(table, matrix, &flow));
                continue;
            }
            for (at, &(from, to, measured)) in matrix.cells.iter().enumerate().take(MAX_ROWS) {
                let Some(there) = flow(from, to).filter(|_| measured > 0.0) else { continue };
                let mut timed = vec![there];
                if matrix.count != RateCount::OneWay {
                    timed.extend(flow(to, from));
                }
                let count = if matrix.count == RateCount::Sum { timed.len() } else { 1 };
                let query = RowQuery::Copies { case: Case::together(timed), at: 0, count };
                rows.push(QueriedRow { table, at, measured, query });
            }
        }
        rows
    }

    /// Copies that show whether the paths between GPUs, or to the host, are as the model says. Between
    /// GPUs of a mesh by the runtime's copy kernel, where there is one: a copy engine is slower than
    /// bundles of links, so it does not see that one of them lost a link.
    pub(crate) fn probe_flows(&self, with_host: bool) -> Vec<Flow> {
        let gpus: Vec<u32> = self.topology.gpus.iter().map(|gpu| gpu.index).collect();
        let host = MatrixEnd::Host(None);
        let mut ends = Vec::new();
        for (nth, &a) in gpus.iter().enumerate() {
            if with_host {
                ends.extend([(host, MatrixEnd::Gpu(a)), (MatrixEnd::Gpu(a), host)]);
                continue;
            }
            // All pairs of up to 8 GPUs; of more the neighbours by number.
            let peer = |other: &usize| gpus.len() <= 8 || (nth + 1) % gpus.len() == *other;
            let peers = (0..gpus.len()).filter(|other| *other != nth).filter(peer);
            let peers = peers.filter_map(|other| gpus.get(other));
            ends.extend(peers.map(|&b| (MatrixEnd::Gpu(a), MatrixEnd::Gpu(b))));
        }
        let copies = self.topology.gpus.iter().any(|gpu| gpu.caps().copy_kernel);
        let means = if copies && !with_host { CopyMeans::Kernel } else { CopyMeans::Engine };
        ends.into_iter().filter_map(|(from, to)| self.copy(from, to, means)).collect()
    }
}

/// All cells at once, as one case.
fn concurrent_rows(
    table: usize,
    matrix: &RateMatrix,
    flow: &dyn Fn(MatrixEnd, MatrixEnd) -> Option<Flow>,
) -> Vec<QueriedRow> {
    let (mut timed, mut places) = (Vec::new(), Vec::new());
    for (at, &(from, to, measured)) in matrix.cells.iter().enumerate().take(64) {
        let Some(there) = flow(from, to).filter(|_| measured > 0.0) else { continue };
        let first = timed.len();
        timed.push(there);
        if matrix.count != RateCount::OneWay {
            timed.extend(flow(to, from));
        }
        let count = if matrix.count == RateCount::Sum { timed.len() - first } else { 1 };
        places.push((at, measured, first, count));
    }
    let case = Case::together(timed);
    let row = |(at, measured, first, count)| {
        let query = RowQuery::Copies { case: case.clone(), at: first, count };
        QueriedRow { table, at, measured, query }
    };
    places.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_paste::{CollectiveTable, PasteContext};
    use pathline_schema::Collective;

    fn predictor(name: &str) -> RowPredictor {
        RowPredictor::from_desc(&MachineDesc::preset(name).unwrap()).unwrap()
    }

    #[test]
    fn rows_of_a_matrix_are_predicted() {
        let cells = vec![
            (MatrixEnd::Gpu(0), MatrixEnd::Gpu(0), 900.0),
            (MatrixEnd::Gpu(0), MatrixEnd::Gpu(1), 50.0),
            (MatrixEnd::Gpu(0), MatrixEnd::Gpu(2), 37.0),
            (MatrixEnd::Gpu(0), MatrixEnd::Gpu(9), 37.0),
        ];
        let matrix = RateMatrix {
            tool: pathline_paste::MatrixTool::RocmBandwidth,
            test: String::new(),
            is_latency: false,
            count: RateCount::OneWay,
            peer_access: None,
            means: CopyMeans::Engine,
            concurrent: false,
            is_sum: false,
            cells,
        };
        let of = predictor("mi250x");
        let (rows, predicted) = of.predict_rows(of.matrix_rows(&[&matrix]));
        // Neither the GPU's own memory nor a GPU that the node lacks.
        assert_eq!(rows.iter().map(|row| row.at).collect::<Vec<_>>(), [1, 2]);
        // One SDMA copy has 50.4 GB/s over the four links of a package, a single link 64/85 of 50.
        assert!((predicted[0].predicted - 50.3).abs() < 0.2, "{predicted:?}");
        assert!((predicted[1].predicted - 37.6).abs() < 0.5, "{predicted:?}");
        assert_eq!(predicted[0].limit, Some(200.0));
        // 50.0 of 50.3.
        assert!((predicted[0].ratio() - 0.994).abs() < 0.005);
    }

    #[test]
    fn rows_of_a_collective_are_predicted() {
        let row =
            |bytes, busbw| pathline_paste::CollectiveRow { bytes, busbw, ..Default::default() };
        let table = CollectiveTable {
            op: Some(Collective::AllReduce),
            rows: vec![row(1 << 20, 60.0), row(1 << 30, 480.0)],
            ..CollectiveTable::default()
        };
        let of = predictor("hgx-h100");
        let mut context = PasteContext::default();
        let best = |context: &PasteContext| {
            let (_, rows) = of.predict_rows(of.collective_rows(&table, 8, context));
            (rows.len(), rows.last().map(|row| (row.predicted, row.limit)))
        };
        let (count, Some((nvls, Some(limit)))) = best(&context) else { panic!("no prediction") };
        // `predict` says 463 GB/s. By the switch a GPU sends 9/8 of the bytes over 18 links of 26.56 GB/s, where
        // busbw counts 14/8: 744 GB/s.
        assert!(count == 2 && (nvls - 463.0).abs() < 1.0 && (limit - 743.7).abs() < 1.0, "{limit}");
        context.settings.insert("NCCL_ALGO".to_owned(), "Ring".to_owned());
        let (_, Some((ring, _))) = best(&context) else { panic!("no prediction") };
        assert!(ring < nvls * 0.85, "{ring}");
        // Nine ranks do not fit on the node.
        assert!(of.collective_rows(&table, 9, &context).is_empty());
    }
}
