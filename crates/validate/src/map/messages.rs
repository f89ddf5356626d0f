//! Rows of MPI and RCCL.

use pathline_schema::Bytes;

use super::ops::default_size;
use super::{Asked, Mapper};
use crate::exchange::{Collective, Exchange, Library, What};
use crate::number::{Ask, Number};
use crate::value::Kind;
use crate::words::{End, Metric, Tool, Unmapped, no};

/// Messages that OSU's bandwidth tests have under way.
const WINDOW: u32 = 64;
/// The STREAM copy that MPI is held against: 1 GiB, which start-up does not show in.
const STREAM_BYTES: u64 = 1 << 30;

impl Mapper<'_> {
    pub(super) fn message(
        &self,
        asked: &Asked<'_>,
        library: Library,
        sdma: bool,
    ) -> Result<Number, Unmapped> {
        for end in [&asked.src, &asked.dst] {
            if matches!(end, End::Elsewhere) || matches!(end, End::Nodes(n) if *n > 1) {
                return no("messages between nodes: one node is simulated");
            }
        }
        let numbers: Vec<Number> = match asked.tool {
            Tool::Collective(op) => {
                let op = self.operation(asked, op)?;
                let over = self.partners(asked)?;
                vec![self.ask(asked, What::Collective(op), &over, library, sdma)?]
            }
            Tool::OsuBw | Tool::OsuBibw | Tool::OsuLatency => {
                let what = match asked.tool {
                    Tool::OsuBw => What::Send(WINDOW),
                    Tool::OsuBibw => What::Exchange(WINDOW),
                    _ => What::PingPong,
                };
                let pairs = self.pairs(asked)?;
                let of = |(a, b): &(u32, u32)| {
                    let number = self.ask(asked, what, &[*a, *b], library, sdma)?;
                    if asked.metric == Metric::Deficit {
                        return Ok(Number::Known(1.0).less(number.over(stream(*a, *b)?)));
                    }
                    Ok(number)
                };
                pairs.iter().map(of).collect::<Result<_, Unmapped>>()?
            }
            _ => {
                return no(format!(
                    "tool '{}' with a message library is not in the vocabulary",
                    asked.row.tool
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

    fn ask(
        &self,
        asked: &Asked<'_>,
        what: What,
        over: &[u32],
        by: Library,
        sdma: bool,
    ) -> Result<Number, Unmapped> {
        let of = |bytes: u64| {
            let over = over.to_vec();
            let ask = Ask::Exchange(Exchange { what, over, by, bytes: Bytes(bytes), sdma });
            match (&asked.metric, asked.kind) {
                (Metric::BusBandwidth, _) => Number::Bus(ask),
                (_, Kind::Time) => Number::Time(ask),
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
            // All collectives of two passes are meant; the one that both libraries have first.
            return Ok(Collective::AllReduce);
        }
        let cells = [&row.interface, &row.metric, &row.figure, &row.note];
        match cells.into_iter().find_map(|cell| Collective::named(cell)) {
            Some(op) => Ok(op),
            None => no("no cell of the row names a collective operation"),
        }
    }

    /// The GPUs that take part: as many as either end counts, by their numbers.
    fn partners(&self, asked: &Asked<'_>) -> Result<Vec<u32>, Unmapped> {
        let count = |end: &End| match end {
            End::Count(n) | End::Spread(n) | End::Together(n) => Some(*n),
            _ => None,
        };
        if let End::Gpus(gpus) = &asked.src
            && gpus.len() > 1
        {
            return gpus.iter().map(|g| self.gpu(asked, *g)).collect();
        }
        let n = [&asked.src, &asked.dst].into_iter().filter_map(count).max();
        let Some(n) = n.filter(|n| *n > 1) else {
            return no("no end of the row says how many take part");
        };
        match self.first(n) {
            Some(gpus) => Ok(gpus),
            None => no(format!("this machine has no {n} GPUs")),
        }
    }
}

/// The STREAM copy between two GPUs, by a kernel on the first.
fn stream(a: u32, b: u32) -> Result<Number, Unmapped> {
    use pathline_schema::{KernelOp, Variant};
    let copy = Variant::standard(KernelOp::Copy);
    let text =
        format!("gpu{b}.vram > gpu{a}.vram by kernel@gpu{a}[{copy}] x {STREAM_BYTES}B isolated");
    match text.parse() {
        Ok(case) => Ok(Number::Rate(Ask::Case(case))),
        Err(error) => no(format!("{error}")),
    }
}
