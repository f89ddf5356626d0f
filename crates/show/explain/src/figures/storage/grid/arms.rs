//! Arms of the grid: the far NUMA domain, the page cache, and what a copy costs its worker.

use pathline_schema::{Flow, IoCache, IoFiles, IoOp, IoOrder, IoReading, MemKind, Mover, Unit};

use super::super::{IoQuantity, calls, op_label};
use super::{CaseGrid, GridCase, GridWork, SUITE, end_text};
use crate::figure::{BetterWhen, Figure, FigureCell, SheetColumn};
use crate::figures::pivot::{GBS, US, least, most};
use crate::figures::{distinct, frame, lines};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry};

impl CaseGrid<'_, '_, '_> {
    /// The same I/O by cores of the far NUMA domain.
    pub(super) fn far(&self) -> Option<Figure> {
        let (mut rows, mut domains) = (Vec::new(), None);
        for far in self.cells.iter().filter(|c| !self.is_near(&c.work()) && c.is_measured()) {
            let near = self.cells.iter().find(|near| {
                let alike = GridWork { at: far.work().at, ..near.work() } == far.work();
                let same = near.job.io == far.job.io && near.gpus == far.gpus;
                alike && same && self.is_near(&near.work())
            });
            let Some(near) = near.filter(|c| c.is_measured()) else { continue };
            let ratios =
                near.job.paired(&far.job, IoQuantity::Rate, |near, far| 100.0 * far / near);
            let GridWork { store, order, op, block, at, .. } = far.work();
            let (threads, end) = (far.job.io.threads, end_text(&far.gpus, far.job.io.stage));
            domains.get_or_insert((near.work().at, at));
            let of = |asked| [near.job.cell(asked), far.job.cell(asked)];
            let [[rate, far_rate], [half, far_half]] =
                [of(IoQuantity::Rate), of(IoQuantity::Quantile(0.5))];
            let ratio = FigureCell::sampled(far.job.entry, &ratios, None);
            let label = format!("store{store} {order}-{op} {block} t{threads}: {end}");
            rows.push((label, vec![rate, far_rate, ratio, half, far_half]));
        }
        let (_, (ratio, label)) = least(rows.iter().filter_map(|(label, cells)| {
            let ratio = cells.get(2)?;
            Some((ratio.value?, (ratio, label)))
        }))?;
        let (near, far) = domains?;
        let title = format!("Workers on the far NUMA domain: {far} instead of {near}");
        let left = ratio.number_text()?;
        let columns = [
            SheetColumn::new("near", GBS),
            SheetColumn::new("far", GBS),
            SheetColumn::new("far / near", ("%", BetterWhen::Higher)),
            SheetColumn::new("p50 near", US),
            SheetColumn::new("p50 far", US),
        ];
        frame(self.run, (SUITE, ""), "storage-grid-far", title)
            .finding(format!("At least {left} % of the near rate is left ({label})."))
            .draw_rows("I/O", columns, rows)
    }

    /// Through the page cache, over the depth, next to direct I/O with one worker.
    pub(super) fn cached(&self) -> Option<Figure> {
        let cached = || self.cells.iter().filter(|c| c.job.io.cache == IoCache::Cached);
        let ends = distinct(cached().map(|c| (c.end(), c.job.io.op)));
        let shown = self.cells.iter().filter(|c| {
            let io = c.job.io;
            let seq = io.order == IoOrder::Seq && io.files == IoFiles::Shared && io.threads == 1;
            seq && ends.contains(&(c.end(), io.op)) && self.is_near(&c.work())
        });
        let points = shown.map(|c| {
            let io = c.job.io;
            let how = if io.cache == IoCache::Cached { "page cache" } else { "O_DIRECT" };
            let (op, end, store) = (op_label(io.op), end_text(&c.gpus, io.stage), c.work().store);
            let name = format!("{op}, {how}: {end} (store{store})");
            (name, f64::from(io.depth), c.job.rate(self.run))
        });
        let to_gpus = cached().filter(|c| !c.gpus.is_empty());
        let rates = to_gpus.filter_map(|c| Some((c.job.value(IoQuantity::Rate)?, c)));
        let (rate, best) = most(rates)?;
        let (rate, op) = (fmt::gbs(rate), op_label(best.job.io.op));
        let (end, depth) = (end_text(&best.gpus, best.job.io.stage), best.job.io.depth);
        let title = "Files in the page cache and past it, over the depth, by 1 worker";
        let framed = frame(self.run, (SUITE, ""), "storage-grid-cached", title);
        framed.draw_lines("depth", GBS, lines(points), |_| {
            format!("Through the page cache {rate} at most ({op} by {end}, depth {depth}).")
        })
    }

    /// The runtime's copy of a block of a case to or from pinned memory, alone.
    fn engine(&self, case: &GridCase) -> Option<&RunEntry<'_>> {
        let (far, near) = (Unit::Gpu(*case.gpus.first()?), case.job.flow.by.at());
        let writes = case.job.io.op == IoOp::Write;
        let (src, dst) = if writes { (far, near) } else { (near, far) };
        let fits = |f: &&Flow| {
            let locked = if writes { f.dst.mem } else { f.src.mem } == MemKind::Pinned;
            let same = (f.src.unit, f.dst.unit, f.bytes) == (src, dst, case.job.flow.bytes);
            matches!(f.by, Mover::Dma { .. }) && same && locked
        };
        self.run.entries.iter().find(|e| e.is_sampled() && e.lone().is_some_and(|f| fits(&f)))
    }

    /// What a copy costs a worker next to what the engine takes for it.
    pub(super) fn copies(&self) -> Option<Figure> {
        let one = |c: &&GridCase| c.job.io.slots() == 1 && c.gpus.len() == 1 && c.is_measured();
        let direct = self.cells.iter().filter(one).filter(|c| c.job.io.cache == IoCache::Direct);
        let row = |case: &GridCase| {
            let entry = self.engine(case)?;
            let series = case.job.series()?;
            let in_call = |reading: &IoReading| {
                let copies = reading.calls.iter().filter(|(name, _)| calls::is_copy(name));
                let (count, ns) =
                    copies.fold((0, 0.0), |sum, (_, t)| (sum.0 + t.count, sum.1 + t.ns));
                (count > 0).then(|| ns / count as f64 / 1e3)
            };
            let arrived = |reading: &IoReading| Some(reading.copy.mean()?.0 / 1e3);
            let cell = |value: &dyn Fn(&IoReading) -> Option<f64>| {
                let values: Vec<f64> = series.io.iter().filter_map(value).collect();
                FigureCell::sampled(case.job.entry, &values, None)
            };
            let (op, end) = (op_label(case.job.io.op), end_text(&case.gpus, case.job.io.stage));
            let label = format!("{op} of {}: {end}", case.job.flow.bytes);
            let alone = self.run.cell(entry, CaseQuantity::StepUs);
            Some((label, vec![cell(&in_call), cell(&arrived), alone]))
        };
        let rows: Vec<(String, Vec<FigureCell>)> = direct.filter_map(row).collect();
        let (times, (in_call, engine, label)) = most(rows.iter().filter_map(|(label, cells)| {
            let (in_call, engine) = (cells.first()?.value?, cells.get(2)?.value?);
            Some((in_call / engine, (in_call, engine, label)))
        }))?;
        let [times, in_call, engine] = [times, in_call, engine].map(fmt::number);
        let title =
            "Copy of a block: time in the call, until it arrived, and of the engine in a stream";
        let columns =
            ["in the call", "until arrived", "engine"].map(|name| SheetColumn::new(name, US));
        frame(self.run, (SUITE, ""), "storage-grid-copies", title)
            .finding(format!(
                "A copy keeps its worker for up to {times} times what the engine takes in a stream: \
                 {in_call} us of {engine} us ({label})."
            ))
            .draw_rows("copy", columns, rows)
    }
}
