//! Arms of the grid: the far NUMA domain, the page cache, and what a copy costs its worker.

use pathline_schema::{
    CaseTimes, IoCache, IoFiles, IoOp, IoOrder, IoReading, MemKind, Mover, Unit,
};

use super::super::{IoQuantity, calls, op_label};
use super::{CaseGrid, GridCase, GridWork, SUITE, end_text};
use crate::figure::{BetterWhen, CurvesBody, Figure, FigureCell, SheetBody, SheetColumn};
use crate::figures::{distinct, frame, lines};
use crate::fmt;
use crate::run::{CaseQuantity, EntryState};

impl CaseGrid<'_, '_, '_> {
    /// The same I/O by cores of the far NUMA domain.
    pub(super) fn far(&self) -> Option<Figure> {
        let (mut rows, mut domains) = (Vec::new(), None);
        for far in self.cells.iter().filter(|c| !self.is_near(&c.work()) && c.is_measured()) {
            let near = self.cells.iter().find(|near| {
                let alike = GridWork { at: far.work().at, ..near.work() } == far.work();
                alike && near.io == far.io && near.gpus == far.gpus && self.is_near(&near.work())
            });
            let Some(near) = near.filter(|c| c.is_measured()) else { continue };
            let pairs = near.values(IoQuantity::Rate).into_iter().zip(far.values(IoQuantity::Rate));
            let ratios: Vec<f64> = pairs.map(|(near, far)| 100.0 * far / near).collect();
            let ratio = FigureCell::derived(
                far.entry,
                &CaseTimes::from_values(&ratios, far.visits()),
                None,
            );
            let (work, io) = (far.work(), far.io);
            let label = format!(
                "store{} {}-{} {} t{}: {}",
                work.store,
                work.order,
                work.op,
                work.block,
                io.threads,
                end_text(&far.gpus, io.stage)
            );
            domains.get_or_insert((near.work().at, work.at));
            let cells = vec![
                near.cell(IoQuantity::Rate),
                far.cell(IoQuantity::Rate),
                ratio,
                near.cell(IoQuantity::Quantile(0.5)),
                far.cell(IoQuantity::Quantile(0.5)),
            ];
            rows.push((label, cells));
        }
        let worst = rows
            .iter()
            .filter_map(|(label, cells)| Some((cells.get(2)?.value?, cells.get(2)?, label)))
            .min_by(|a, b| a.0.total_cmp(&b.0))?;
        let finding = format!(
            "At least {} % of the near rate is left ({}).",
            worst.1.number_text()?,
            worst.2
        );
        let column = |name: &str, unit: &str, better| SheetColumn {
            name: name.into(),
            unit: unit.into(),
            better,
        };
        Some(
            frame(
                self.run,
                (SUITE, ""),
                "storage-grid-far",
                domains.map_or(String::new(), |(near, far)| {
                    format!("Workers on the far NUMA domain: {far} instead of {near}")
                }),
            )
            .finding(finding)
            .draw(SheetBody {
                row_axis: "I/O".into(),
                columns: vec![
                    column("near", "GB/s", BetterWhen::Higher),
                    column("far", "GB/s", BetterWhen::Higher),
                    column("far / near", "%", BetterWhen::Higher),
                    column("p50 near", "us", BetterWhen::Lower),
                    column("p50 far", "us", BetterWhen::Lower),
                ],
                rows,
            }),
        )
    }

    /// Through the page cache, over the depth, next to direct I/O with one worker.
    pub(super) fn cached(&self) -> Option<Figure> {
        let cached = || self.cells.iter().filter(|c| c.io.cache == IoCache::Cached);
        let ends = distinct(cached().map(|c| (c.end(), c.io.op)));
        let shown = self.cells.iter().filter(|c| {
            let seq = c.io.order == IoOrder::Seq && c.io.files == IoFiles::Shared;
            seq && c.io.threads == 1
                && ends.contains(&(c.end(), c.io.op))
                && self.is_near(&c.work())
        });
        let points = shown.map(|c| {
            let how = if c.io.cache == IoCache::Cached { "page cache" } else { "O_DIRECT" };
            let end = end_text(&c.gpus, c.io.stage);
            let store = c.work().store;
            let name = format!("{}, {how}: {end} (store{store})", op_label(c.io.op));
            (name, f64::from(c.io.depth), self.run.cell(c.entry, CaseQuantity::Payload))
        });
        let best = cached()
            .filter(|c| !c.gpus.is_empty())
            .filter_map(|c| Some((c.value(IoQuantity::Rate)?, c)))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let finding = best.as_ref().map_or(String::new(), |(rate, c)| {
            format!(
                "Through the page cache {} at most ({} by {}, depth {}).",
                fmt::gbs(*rate),
                op_label(c.io.op),
                end_text(&c.gpus, c.io.stage),
                c.io.depth
            )
        });
        let lines = lines(points);
        best.is_some().then(|| {
            frame(
                self.run,
                (SUITE, ""),
                "storage-grid-cached",
                "Files in the page cache and past it, over the depth, by 1 worker",
            )
            .finding(finding)
            .draw(CurvesBody::new("depth", ("GB/s", BetterWhen::Higher), lines))
        })
    }

    /// What a copy costs a worker next to what the engine takes for it.
    pub(super) fn copies(&self) -> Option<Figure> {
        let engine = |case: &GridCase| {
            let (far, near) = (Unit::Gpu(*case.gpus.first()?), case.flow.by.at());
            let writes = case.io.op == IoOp::Write;
            self.run.entries.iter().find(|e| {
                e.lone().is_some_and(|f| {
                    let (src, dst) = if writes { (far, near) } else { (near, far) };
                    let locked = if writes { f.dst.mem } else { f.src.mem } == MemKind::Pinned;
                    matches!(f.by, Mover::Dma { .. })
                        && (f.src.unit, f.dst.unit, f.bytes) == (src, dst, case.flow.bytes)
                        && locked
                }) && matches!(e.state, EntryState::Sampled(_))
            })
        };
        let mut rows = Vec::new();
        let one = |c: &&GridCase| c.io.slots() == 1 && c.gpus.len() == 1 && c.is_measured();
        for case in self.cells.iter().filter(one).filter(|c| c.io.cache == IoCache::Direct) {
            let Some(entry) = engine(case) else { continue };
            let Some(series) = case.entry.series().first() else { continue };
            let in_call = |reading: &IoReading| {
                let copies = reading.calls.iter().filter(|(name, _)| calls::is_copy(name));
                let (count, ns) =
                    copies.fold((0, 0.0), |sum, (_, t)| (sum.0 + t.count, sum.1 + t.ns));
                (count > 0).then(|| ns / count as f64 / 1e3)
            };
            let arrived = |reading: &IoReading| Some(reading.copy.mean()?.0 / 1e3);
            let cell = |value: &dyn Fn(&IoReading) -> Option<f64>| {
                let values: Vec<f64> = series.io.iter().filter_map(value).collect();
                FigureCell::derived(
                    case.entry,
                    &CaseTimes::from_values(&values, &series.visits),
                    None,
                )
            };
            let alone = self.run.cell(entry, CaseQuantity::StepUs);
            let label = format!(
                "{} of {}: {}",
                op_label(case.io.op),
                case.flow.bytes,
                end_text(&case.gpus, case.io.stage)
            );
            rows.push((label, vec![cell(&in_call), cell(&arrived), alone]));
        }
        let most = rows
            .iter()
            .filter_map(|(label, cells)| {
                Some((cells.first()?.value? / cells.get(2)?.value?, cells, label))
            })
            .max_by(|a, b| a.0.total_cmp(&b.0))?;
        let finding = format!(
            "A copy keeps its worker for up to {} times what the engine takes in a stream: {} us of {} us ({}).",
            fmt::number(most.0),
            fmt::number(most.1.first()?.value?),
            fmt::number(most.1.get(2)?.value?),
            most.2
        );
        let column = |name: &str| SheetColumn {
            name: name.into(),
            unit: "us".into(),
            better: BetterWhen::Lower,
        };
        let title =
            "Copy of a block: time in the call, until it arrived, and of the engine in a stream";
        let body = SheetBody {
            row_axis: "copy".into(),
            columns: vec![column("in the call"), column("until arrived"), column("engine")],
            rows,
        };
        let figure = frame(self.run, (SUITE, ""), "storage-grid-copies", title);
        Some(figure.finding(finding).draw(body))
    }
}
