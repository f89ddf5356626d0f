//! Rows of MPI and of libraries of collectives.

use pathline_message::{Buffers, Exchange, Library, Member, WINDOW, What};
use pathline_schema::{Bytes, Collective, KernelOp, Variant};

use super::ops::default_size;
use super::{Asked, Mapper};
use crate::number::{Ask, Number};
use crate::value::Kind;
use crate::words::{End, Metric, Tool, Unmapped, collective, no};

/// The STREAM copy that MPI is held against: 1 GiB, which start-up does not show in.
const STREAM_BYTES: u64 = 1 << 30;

impl Mapper<'_> {
    pub(super) fn message(&self, asked: &Asked<'_>, by: Library) -> Result<Number, Unmapped> {
        let numbers: Vec<Number> = match asked.tool {
            Tool::Collective { op, osu } => {
                let op = self.operation(asked, op)?;
                let over = self.partners(asked)?;
                let n = over.len();
                let bytes = |b: u64| if osu { op.of_osu_size(Bytes(b), n) } else { Bytes(b) };
                vec![self.ask(asked, What::Collective { op, over }, by, &bytes)?]
            }
            Tool::OsuMultiple => vec![self.sends(asked, self.all_pairs(asked)?, by)?],
            Tool::OsuBw | Tool::OsuBibw | Tool::OsuLatency => {
                let numbers = self.one_by_one(asked)?.into_iter().map(|(a, b)| {
                    let number = self.sends(asked, vec![(a, b)], by)?;
                    if asked.metric == Metric::Deficit {
                        let stream = stream(a.gpu, b.gpu)?;
                        return Ok(Number::Known(1.0).less(number.over(stream)));
                    }
                    Ok(number)
                });
                numbers.collect::<Result<_, Unmapped>>()?
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
            (Metric::UpperBound, _) => Number::Most(numbers),
            (Metric::LowerBound, _) => Number::Least(numbers),
            _ => Number::Median(numbers),
        })
    }

    /// Messages of these pairs, as the tool sends them.
    fn sends(
        &self,
        asked: &Asked<'_>,
        mut pairs: Vec<(Member, Member)>,
        by: Library,
    ) -> Result<Number, Unmapped> {
        let what = match asked.tool {
            Tool::OsuLatency => What::Ping { pairs },
            Tool::OsuBibw => {
                pairs.extend(pairs.clone().into_iter().map(|(a, b)| (b, a)));
                What::Send { pairs, window: WINDOW }
            }
            _ => What::Send { pairs, window: WINDOW },
        };
        self.ask(asked, what, by, &Bytes)
    }

    fn ask(
        &self,
        asked: &Asked<'_>,
        what: What,
        by: Library,
        bytes: &dyn Fn(u64) -> Bytes,
    ) -> Result<Number, Unmapped> {
        let of = |size: u64| {
            let (what, bytes) = (what.clone(), bytes(size));
            let ask = Ask::Exchange(Exchange { what, by, bytes, buffers: Buffers::Vram });
            match (&asked.metric, asked.kind, asked.tool) {
                (Metric::BusBandwidth, ..) => Number::Bus(ask),
                // OSU prints the mean over the ranks.
                (_, Kind::Time, Tool::Collective { osu: true, .. }) => Number::Mean(ask),
                (_, Kind::Time, _) => Number::Time(ask),
                _ => Number::Rate(ask),
            }
        };
        let mut numbers: Vec<Number> =
            asked.size.each(default_size(asked)).into_iter().map(of).collect();
        Ok(match (numbers.len(), asked.kind) {
            (1, _) => numbers.remove(0),
            (_, Kind::Time) => Number::Least(numbers),
            _ => Number::Most(numbers),
        })
    }

    /// The pairs that a row is about, which are measured one by one.
    fn one_by_one(&self, asked: &Asked<'_>) -> Result<Vec<(Member, Member)>, Unmapped> {
        let ((End::Elsewhere, from) | (from, End::Elsewhere)) = (&asked.src, &asked.dst) else {
            let pairs = self.pairs(asked)?.into_iter();
            return Ok(pairs.map(|(a, b)| (Member::here(a), Member::here(b))).collect());
        };
        let gpu = match from {
            End::Gpus(gpus) => gpus.first().copied().unwrap_or(0),
            End::Elsewhere => 0,
            _ => return no("to another node goes a GPU"),
        };
        let gpu = self.gpu(asked, gpu)?;
        Ok(vec![(Member::here(gpu), Member { node: 1, gpu })])
    }

    /// The pairs of a row that are measured at once.
    fn all_pairs(&self, asked: &Asked<'_>) -> Result<Vec<(Member, Member)>, Unmapped> {
        match (&asked.src, &asked.dst) {
            // The GPUs that adapters are near to, each with its like on the other node.
            (End::Adapters(n), End::Adapters(m)) if n == m => {
                let near: Vec<u32> =
                    self.topology.nics.iter().filter_map(|nic| nic.near_gpu).collect();
                let Some(gpus) = near.get(..*n as usize) else {
                    return no(format!("this machine has no {n} adapters near GPUs"));
                };
                let pair = |&gpu: &u32| (Member::here(gpu), Member { node: 1, gpu });
                Ok(gpus.iter().map(pair).collect())
            }
            (End::Gpus(from), End::Gpus(to)) if from.len() == to.len() => from
                .iter()
                .zip(to)
                .map(|(a, b)| {
                    Ok((Member::here(self.gpu(asked, *a)?), Member::here(self.gpu(asked, *b)?)))
                })
                .collect(),
            _ => no("pairs at once are as many GPUs, or adapters of two nodes, at either end"),
        }
    }

    /// The operation, from the first cell that names one.
    fn operation(
        &self,
        asked: &Asked<'_>,
        of_tool: Option<Collective>,
    ) -> Result<Collective, Unmapped> {
        let row = asked.row;
        if let Some(op) = of_tool {
            return Ok(op);
        }
        if asked.metric == Metric::TwoPassLatency {
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
    fn partners(&self, asked: &Asked<'_>) -> Result<Vec<Member>, Unmapped> {
        let ends = [&asked.src, &asked.dst];
        if let Some(End::Gpus(gpus)) =
            ends.into_iter().find(|end| matches!(end, End::Gpus(gpus) if gpus.len() > 1))
        {
            return gpus.iter().map(|g| Ok(Member::here(self.gpu(asked, *g)?))).collect();
        }
        let count = |end: &End| match end {
            End::Count(n) | End::Spread(n) | End::Together(n) => Some(*n),
            _ => None,
        };
        let nodes = ends.iter().filter_map(|e| if let End::Nodes(n) = e { Some(*n) } else { None });
        let nodes = nodes.max().unwrap_or(1);
        let Some(n) = ends.into_iter().filter_map(count).max().filter(|n| *n > 1) else {
            return no("no end of the row says how many take part");
        };
        match self.first(n / nodes).filter(|_| n % nodes == 0) {
            Some(gpus) => Ok((0..nodes)
                .flat_map(|node| gpus.iter().map(move |&gpu| Member { node, gpu }))
                .collect()),
            None => no(format!("{n} on {nodes} nodes of this machine have no GPU each")),
        }
    }
}

/// The STREAM copy between two GPUs, by a kernel on the first.
fn stream(a: u32, b: u32) -> Result<Number, Unmapped> {
    let copy = Variant::standard(KernelOp::Copy);
    let text =
        format!("gpu{b}.vram > gpu{a}.vram by kernel@gpu{a}[{copy}] x {STREAM_BYTES}B isolated");
    match text.parse() {
        Ok(case) => Ok(Number::Rate(Ask::Case(case))),
        Err(error) => no(format!("{error}")),
    }
}
