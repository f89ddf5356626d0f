//! The rows of collectives and of messages as exchanges of the described node.

use pathline_message::{
    BufferPair, BufferPlace, ExchangeMember, ExchangeOp, ExchangeSpec, MessageLibrary,
};
use pathline_paste::{
    CollectiveTable, MessageTable, MessageTest, PasteContext, RunTitle, option_value,
};
use pathline_schema::{Bytes, Collective};

use crate::node_facts::is_set;
use crate::row_predictor::{QueriedRow, RowPredictor, RowQuery};
use crate::score::fit_curve;

/// Most ranks of a collective that is predicted.
const MAX_RANKS: u32 = 64;

impl RowPredictor {
    /// The rows of a collective on one node.
    pub(crate) fn collective_rows(
        &self,
        table: &CollectiveTable,
        ranks: u32,
        context: &PasteContext,
    ) -> Vec<QueriedRow> {
        let Some(by) = self.collective_library(context) else { return Vec::new() };
        let gpus: Vec<u32> = self.topology().gpus.iter().map(|gpu| gpu.index).collect();
        let (Some(op), 2..=MAX_RANKS) = (table.op, ranks) else { return Vec::new() };
        let Some(over) = gpus.get(..ranks as usize).filter(|_| !table.is_sendrecv) else {
            return Vec::new();
        };
        let row = |(at, row): (usize, &pathline_paste::CollectiveRow)| {
            let bytes = Bytes(row.bytes.max(1));
            let exchange = ExchangeSpec::collective(op, over.iter().copied(), by, bytes);
            let query = RowQuery::Rate(exchange);
            QueriedRow { table: 0, at, measured: row.busbw, query }
        };
        table.rows.iter().enumerate().filter(|(_, row)| row.busbw > 0.0).map(row).collect()
    }

    /// Rings that the library of the described node lays over all of its GPUs.
    pub(crate) fn ring_count(&self) -> Option<usize> {
        let by = match self.desc()?.software.rccl {
            Some(_) => MessageLibrary::Rccl,
            None => MessageLibrary::Nccl { nvls: false },
        };
        let gpus = self.topology().gpus.iter().map(|gpu| gpu.index);
        let exchange = ExchangeSpec::collective(Collective::AllReduce, gpus, by, Bytes::gib(1));
        let rings = self.layer()?.time(&exchange).ok()?.rings.len();
        (rings > 0).then_some(rings)
    }

    /// The library of collectives, as the settings of the paste leave it.
    fn collective_library(&self, context: &PasteContext) -> Option<MessageLibrary> {
        let software = &self.desc()?.software;
        let ring = is_set(context, "NCCL_ALGO", "ring") || is_set(context, "NCCL_NVLS_ENABLE", "0");
        match (&software.rccl, &software.nccl) {
            (Some(_), _) => Some(MessageLibrary::Rccl),
            (None, Some(_)) => Some(MessageLibrary::Nccl { nvls: !ring }),
            (None, None) => None,
        }
    }

    /// The MPI of the described node, with the copies that the settings of the paste choose; none where the paste has
    /// settings of another one.
    fn mpi(&self, title: &RunTitle, context: &PasteContext) -> Option<MessageLibrary> {
        let software = &self.desc()?.software;
        let own = title.conditions.iter().find_map(|one| one.strip_prefix("HSA_ENABLE_SDMA="));
        let sdma = own.map_or(!is_set(context, "HSA_ENABLE_SDMA", "0"), |own| own != "0");
        let is_ucx = context.settings.keys().any(|name| name.starts_with("UCX_"))
            || context.prose.contains("ucx_tls");
        match (&software.cray_mpich, &software.ucx) {
            (Some(_), _) if !is_ucx => Some(MessageLibrary::CrayMpich { sdma }),
            (Some(_), None) => None,
            (_, Some(_)) => Some(MessageLibrary::Ucx { sdma }),
            (None, None) => None,
        }
    }

    /// GPUs of the ranks, in order: the visible GPUs that the paste names, else GPUs by number.
    fn rank_gpus(&self, context: &PasteContext) -> Vec<u32> {
        let names = ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"];
        let listed = names.iter().find_map(|name| context.settings.get(*name));
        let listed: Option<Vec<u32>> =
            listed.and_then(|list| list.split(',').map(|id| id.trim().parse().ok()).collect());
        let known = |list: &Vec<u32>| list.len() > 1 && list.iter().all(|gpu| self.has_gpu(*gpu));
        let all = || self.topology().gpus.iter().map(|gpu| gpu.index).collect();
        listed.filter(known).unwrap_or_else(all)
    }

    /// The rows of OSU's benchmarks: between the memories of the first two ranks, or of a collective.
    ///
    /// OSU's collectives print neither the number of ranks nor the memory of their buffers. What no command
    /// of the paste states is chosen by the rows: a sound node has to give them.
    pub(crate) fn message_rows(
        &self,
        table: &MessageTable,
        context: &PasteContext,
    ) -> Vec<QueriedRow> {
        let Some(by) = self.mpi(&table.title, context) else { return Vec::new() };
        let gpus = self.rank_gpus(context);
        let is_staged = table.title.conditions.iter().any(|one| one.contains("staged through"));
        let place = |on_gpu| match on_gpu {
            true if is_staged => BufferPlace::Staged,
            true => BufferPlace::Vram,
            false => BufferPlace::Host,
        };
        let MessageTest::Group(op) = table.test else {
            let (a, b) = table.title.pair().unwrap_or((0, 1));
            let gpu = |rank: u32| gpus.get(rank as usize).copied();
            let Some((a, b)) = gpu(a).zip(gpu(b)) else { return Vec::new() };
            // A build without GPUs does not name the memory.
            let (from, to) = table.on_gpu.unwrap_or((false, false));
            let buffers = BufferPair { from: place(from), to: place(to) };
            return pair_rows(table, (a, b), by, buffers);
        };
        let command = context.commands.join(" ");
        let memory = match table.on_gpu.map(|(from, _)| from) {
            // Host memory, unless it is asked for another.
            None if command.contains("osu_") => {
                Some([" -d rocm", " -d cuda", " -d managed"].iter().any(|d| command.contains(d)))
            }
            stated => stated,
        };
        let most = gpus.len() as u64;
        let stated = rank_count(&command).filter(|ranks| (2..=most).contains(ranks));
        let counts: Vec<usize> = match stated {
            Some(ranks) => vec![ranks as usize],
            None => [most as usize, 2, 4].into_iter().filter(|n| *n <= gpus.len()).collect(),
        };
        let memories = memory.map_or_else(|| vec![true, false], |known| vec![known]);
        let mut best: Option<(f64, Vec<QueriedRow>)> = None;
        for on_gpu in memories {
            for over in counts.iter().filter_map(|count| gpus.get(..*count)) {
                let rows = group_rows(table, op, over, by, BufferPair::both(place(on_gpu)));
                let (kept, found) = self.predict_rows(rows.clone());
                if kept.is_empty() {
                    continue;
                }
                let measured: Vec<f64> = found.iter().map(|row| row.measured).collect();
                let values: Vec<f64> = found.iter().map(|row| row.predicted).collect();
                let score = fit_curve(&measured, &values).score;
                if best.as_ref().is_none_or(|(known, _)| score > *known) {
                    best = Some((score, rows));
                }
            }
        }
        best.map(|(_, rows)| rows).unwrap_or_default()
    }
}

/// Rates or times of messages between two GPUs' ranks.
fn pair_rows(
    table: &MessageTable,
    (a, b): (u32, u32),
    by: MessageLibrary,
    buffers: BufferPair,
) -> Vec<QueriedRow> {
    let pair = (ExchangeMember::here(a), ExchangeMember::here(b));
    let query = |bytes: u64| {
        let one = ExchangeSpec { buffers, ..ExchangeSpec::send(a, b, by, Bytes(bytes.max(1))) };
        match table.test {
            MessageTest::OneWay => Some(RowQuery::Rate(one)),
            MessageTest::BothWays => {
                let ExchangeOp::Send { window, .. } = one.what else { return None };
                let pairs = vec![pair, (pair.1, pair.0)];
                let what = ExchangeOp::Send { pairs, window };
                Some(RowQuery::Rate(ExchangeSpec { what, ..one }))
            }
            MessageTest::Latency => {
                let what = ExchangeOp::Ping { pairs: vec![pair] };
                Some(RowQuery::Time(ExchangeSpec { what, ..one }))
            }
            MessageTest::MultiPair | MessageTest::Group(_) => None,
        }
    };
    let row = |(at, &(bytes, measured)): (usize, &(u64, f64))| {
        let query = query(bytes).filter(|_| measured > 0.0)?;
        Some(QueriedRow { table: 0, at, measured, query })
    };
    table.rows.iter().enumerate().filter_map(row).collect()
}

/// Times of a collective, by the sizes that OSU prints.
fn group_rows(
    table: &MessageTable,
    op: Collective,
    over: &[u32],
    by: MessageLibrary,
    buffers: BufferPair,
) -> Vec<QueriedRow> {
    let row = |(at, &(bytes, measured)): (usize, &(u64, f64))| {
        let bytes = op.of_osu_size(Bytes(bytes.max(1)), over.len());
        let exchange = ExchangeSpec::collective(op, over.iter().copied(), by, bytes);
        let query = RowQuery::Time(ExchangeSpec { buffers, ..exchange });
        (measured > 0.0).then_some(QueriedRow { table: 0, at, measured, query })
    };
    table.rows.iter().enumerate().filter_map(row).collect()
}

/// Ranks that a launcher is asked for: `mpirun -np 8`, `srun -n 8`, `--ntasks=8`.
fn rank_count(command: &str) -> Option<u64> {
    let words: Vec<&str> = command.split([' ', '=']).filter(|word| !word.is_empty()).collect();
    option_value(&words, &["-np", "-n", "--np", "-ntasks", "--ntasks"])?.parse().ok()
}
