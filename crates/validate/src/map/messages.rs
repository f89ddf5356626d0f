//! Rows of MPI and of libraries of collectives.

use pathline_message::{
    BufferPlace, ExchangeMember, ExchangeOp, ExchangeSpec, MessageLibrary, WINDOW,
};
use pathline_schema::{Bytes, Collective, KernelOp, KernelVariant};

use super::ops::default_size;
use super::{ParsedRow, RowMapper};
use crate::number::{MachineQuery, RowNumber};
use crate::value::UnitKind;
use crate::words::{BenchTool, PathEnd, RowMetric, UnmappedRow, collective, no};

/// The STREAM copy that MPI is held against: 1 GiB, which start-up does not show in.
const STREAM_BYTES: u64 = 1 << 30;

impl RowMapper<'_> {
    pub(super) fn message(
        &self,
        asked: &ParsedRow<'_>,
        by: MessageLibrary,
    ) -> Result<RowNumber, UnmappedRow> {
        let numbers: Vec<RowNumber> = match asked.tool {
            BenchTool::Collective { op, osu } => {
                let op = self.operation(asked, op)?;
                let over = self.partners(asked)?;
                let n = over.len();
                let bytes = |b: u64| if osu { op.of_osu_size(Bytes(b), n) } else { Bytes(b) };
                vec![self.ask(asked, ExchangeOp::Collective { op, over }, by, &bytes)?]
            }
            BenchTool::OsuMultiple => vec![self.sends(asked, self.all_pairs(asked)?, by)?],
            BenchTool::OsuBw | BenchTool::OsuBibw | BenchTool::OsuLatency => {
                let numbers = self.one_by_one(asked)?.into_iter().map(|(a, b)| {
                    let number = self.sends(asked, vec![(a, b)], by)?;
                    if asked.metric == RowMetric::Deficit {
                        let stream = stream(a.gpu, b.gpu)?;
                        return Ok(RowNumber::Known(1.0).less(number.over(stream)));
                    }
                    Ok(number)
                });
                numbers.collect::<Result<_, UnmappedRow>>()?
            }
            _ => {
                let tool = &asked.row.tool;
                return no(format!(
                    "tool '{tool}' with a message library is not in the vocabulary"
                ));
            }
        };
        Ok(match (&asked.metric, numbers.as_slice()) {
            (_, [one]) => one.clone(),
            (RowMetric::UpperBound, _) => RowNumber::Most(numbers),
            (RowMetric::LowerBound, _) => RowNumber::Least(numbers),
            _ => RowNumber::Median(numbers),
        })
    }

    /// Messages of these pairs, as the tool sends them.
    fn sends(
        &self,
        asked: &ParsedRow<'_>,
        mut pairs: Vec<(ExchangeMember, ExchangeMember)>,
        by: MessageLibrary,
    ) -> Result<RowNumber, UnmappedRow> {
        let what = match asked.tool {
            BenchTool::OsuLatency => ExchangeOp::Ping { pairs },
            BenchTool::OsuBibw => {
                pairs.extend(pairs.clone().into_iter().map(|(a, b)| (b, a)));
                ExchangeOp::Send { pairs, window: WINDOW }
            }
            _ => ExchangeOp::Send { pairs, window: WINDOW },
        };
        self.ask(asked, what, by, &Bytes)
    }

    fn ask(
        &self,
        asked: &ParsedRow<'_>,
        what: ExchangeOp,
        by: MessageLibrary,
        bytes: &dyn Fn(u64) -> Bytes,
    ) -> Result<RowNumber, UnmappedRow> {
        let of = |size: u64| {
            let (what, bytes) = (what.clone(), bytes(size));
            let ask = MachineQuery::Exchange(ExchangeSpec {
                what,
                by,
                bytes,
                buffers: BufferPlace::Vram,
            });
            match (&asked.metric, asked.kind, asked.tool) {
                (RowMetric::BusBandwidth, ..) => RowNumber::Bus(ask),
                // OSU prints the mean over the ranks.
                (_, UnitKind::Time, BenchTool::Collective { osu: true, .. }) => {
                    RowNumber::Mean(ask)
                }
                (_, UnitKind::Time, _) => RowNumber::Time(ask),
                _ => RowNumber::Rate(ask),
            }
        };
        let mut numbers: Vec<RowNumber> =
            asked.size.each(default_size(asked)).into_iter().map(of).collect();
        Ok(match (numbers.len(), asked.kind) {
            (1, _) => numbers.remove(0),
            (_, UnitKind::Time) => RowNumber::Least(numbers),
            _ => RowNumber::Most(numbers),
        })
    }

    /// The pairs that a row is about, which are measured one by one.
    fn one_by_one(
        &self,
        asked: &ParsedRow<'_>,
    ) -> Result<Vec<(ExchangeMember, ExchangeMember)>, UnmappedRow> {
        let ((PathEnd::Elsewhere, from) | (from, PathEnd::Elsewhere)) = (&asked.src, &asked.dst)
        else {
            let pairs = self.pairs(asked)?.into_iter();
            return Ok(pairs
                .map(|(a, b)| (ExchangeMember::here(a), ExchangeMember::here(b)))
                .collect());
        };
        let gpu = match from {
            PathEnd::Gpus(gpus) => gpus.first().copied().unwrap_or(0),
            PathEnd::Elsewhere => 0,
            _ => return no("to another node goes a GPU"),
        };
        let gpu = self.gpu(asked, gpu)?;
        Ok(vec![(ExchangeMember::here(gpu), ExchangeMember { node: 1, gpu })])
    }

    /// The pairs of a row that are measured at once.
    fn all_pairs(
        &self,
        asked: &ParsedRow<'_>,
    ) -> Result<Vec<(ExchangeMember, ExchangeMember)>, UnmappedRow> {
        match (&asked.src, &asked.dst) {
            // The GPUs that adapters are near to, each with its like on the other node.
            (PathEnd::Adapters(n), PathEnd::Adapters(m)) if n == m => {
                let near: Vec<u32> =
                    self.topology.nics.iter().filter_map(|nic| nic.near_gpu).collect();
                let Some(gpus) = near.get(..*n as usize) else {
                    return no(format!("this machine has no {n} adapters near GPUs"));
                };
                let pair =
                    |&gpu: &u32| (ExchangeMember::here(gpu), ExchangeMember { node: 1, gpu });
                Ok(gpus.iter().map(pair).collect())
            }
            (PathEnd::Gpus(from), PathEnd::Gpus(to)) if from.len() == to.len() => from
                .iter()
                .zip(to)
                .map(|(a, b)| {
                    Ok((
                        ExchangeMember::here(self.gpu(asked, *a)?),
                        ExchangeMember::here(self.gpu(asked, *b)?),
                    ))
                })
                .collect(),
            _ => no("pairs at once are as many GPUs, or adapters of two nodes, at either end"),
        }
    }

    /// The operation, from the first cell that names one.
    fn operation(
        &self,
        asked: &ParsedRow<'_>,
        of_tool: Option<Collective>,
    ) -> Result<Collective, UnmappedRow> {
        let row = asked.row;
        if let Some(op) = of_tool {
            return Ok(op);
        }
        if asked.metric == RowMetric::TwoPassLatency {
            // All collectives of two passes are meant; the best known stands for them.
            return Ok(Collective::AllReduce);
        }
        let cells = [&row.interface, &row.metric, &row.figure, &row.note];
        match cells.into_iter().find_map(|cell| collective(cell)) {
            Some(op) => Ok(op),
            None => no("no cell of the row names a collective operation"),
        }
    }

    /// Those that take part: as many as either end counts, by their numbers, spread evenly over
    /// as many nodes.
    fn partners(&self, asked: &ParsedRow<'_>) -> Result<Vec<ExchangeMember>, UnmappedRow> {
        let ends = [&asked.src, &asked.dst];
        if let Some(PathEnd::Gpus(gpus)) =
            ends.into_iter().find(|end| matches!(end, PathEnd::Gpus(gpus) if gpus.len() > 1))
        {
            return gpus.iter().map(|g| Ok(ExchangeMember::here(self.gpu(asked, *g)?))).collect();
        }
        let count = |end: &PathEnd| match end {
            PathEnd::Count(n) | PathEnd::Spread(n) | PathEnd::Together(n) => Some(*n),
            _ => None,
        };
        let nodes =
            ends.iter().filter_map(|e| if let PathEnd::Nodes(n) = e { Some(*n) } else { None });
        let nodes = nodes.max().unwrap_or(1);
        let Some(n) = ends.into_iter().filter_map(count).max().filter(|n| *n > 1) else {
            return no("no end of the row says how many take part");
        };
        match self.first(n / nodes).filter(|_| n % nodes == 0) {
            Some(gpus) => Ok((0..nodes)
                .flat_map(|node| gpus.iter().map(move |&gpu| ExchangeMember { node, gpu }))
                .collect()),
            None => no(format!("{n} on {nodes} nodes of this machine have no GPU each")),
        }
    }
}

/// The STREAM copy between two GPUs, by a kernel on the first.
fn stream(a: u32, b: u32) -> Result<RowNumber, UnmappedRow> {
    let copy = KernelVariant::standard(KernelOp::Copy);
    let text =
        format!("gpu{b}.vram > gpu{a}.vram by kernel@gpu{a}[{copy}] x {STREAM_BYTES}B isolated");
    match text.parse() {
        Ok(case) => Ok(RowNumber::Rate(MachineQuery::Case(case))),
        Err(error) => no(format!("{error}")),
    }
}
