//! How a node would make a copy, in words.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use pathline_multipath::{CopyMode, PathOption};
use pathline_schema::{Bytes, Flow, MemKind, Mover, Ns, Place, Rate, Unit};

use crate::copy_error::CopyError;
use crate::node::CopyNode;
use crate::orders::{OrderedCopy, WorkerCommand};
use crate::plans::{EndsKey, EndsPlan};
use crate::ranges::check_ranges;
use crate::staging_job::{StagedEnds, StagedWay};

impl CopyNode {
    /// How a copy would be made: its case, the predicted and the plain rate, and why if it is plain.
    /// Probes the ends if they are new.
    ///
    /// # Errors
    /// No copy has such ends.
    pub fn explain(&self, dst: u64, src: u64, bytes: usize) -> Result<String, CopyError> {
        check_ranges(dst, src, bytes)?;
        if bytes == 0 {
            return Ok("plain: no bytes".into());
        }
        if let Some(ends) = self.staged_ends(dst, src, bytes) {
            return Ok(self.explain_staged(&ends));
        }
        let find = |address| self.finder.find(&*self.calls, address, bytes as u64);
        let (dst, src) = match (find(dst)?, find(src)?) {
            (Ok(dst), Ok(src)) => (dst, src),
            (Err(reason), _) | (_, Err(reason)) => return Ok(format!("plain: {reason}")),
        };
        let copy = OrderedCopy { src, dst: vec![dst], bytes: bytes as u64, chosen: None };
        let (from, to) = (src.end.unit, dst.end.unit);
        let Some(at) = to.gpu().or(from.gpu()).filter(|_| from != to).map(Unit::Gpu) else {
            return Ok("plain: both ends are in the same memory".into());
        };
        let case = |by| Flow { src: place(from), dst: place(to), by, bytes: Bytes(copy.bytes) };
        let plain = |reason: &str| format!("{}\nplain: {reason}", case(Mover::Dma { at }));
        if bytes < self.shared.threshold {
            let least = Bytes(self.shared.threshold as u64);
            return Ok(plain(&format!("smaller than {least}")));
        }
        let Some(plan) = self.find_plan(copy.key()) else {
            return Ok(plain("the ends are not probed while copies run; ask again"));
        };
        let Some(probe) = &plan.probe else { return Ok(plain(&plan.failure)) };
        let rate = |rate: Rate| format!("{:.1} GB/s", rate.gbs());
        let plain_rate = rate(probe.plain.rate(Bytes(copy.bytes), Ns::ZERO));
        Ok(match self.shared.choose(&plan, &copy, CopyMode::Enqueued) {
            Some(PathOption { paths, enqueued, .. }) => {
                let case = case(Mover::Relay { at, paths: *paths });
                let predicted = rate(enqueued.rate(Bytes(copy.bytes), self.shared.hand_over.get()));
                let waiting = match self.shared.choose(&plan, &copy, CopyMode::Driven) {
                    Some(PathOption { paths, driven, .. }) => {
                        let predicted = driven.rate(Bytes(copy.bytes), self.shared.hand_over.get());
                        format!("predicted {} over {}", rate(predicted), paths.gpus)
                    }
                    None => "plain".to_owned(),
                };
                format!(
                    "{case}\npredicted {predicted}, plain {plain_rate}\na call that waits: {waiting}"
                )
            }
            None if probe.options.is_empty() => {
                let why =
                    probe.refused.iter().map(|lost| format!("gpu{}: {}", lost.gpu, lost.error));
                let why: Vec<String> = why.collect();
                let colon = if why.is_empty() { "" } else { ": " };
                plain(&format!("no helper takes part{colon}{}; {plain_rate}", why.join("; ")))
            }
            None => {
                if self.shared.choose(&plan, &copy, CopyMode::Driven).is_some() {
                    let reason = "in the order of a stream, since other processes use the helpers or it \
                                  gains too little; a call that waits goes over several paths";
                    return Ok(plain(&format!("{reason}; {plain_rate}")));
                }
                let gain = self.shared.min_gain;
                plain(&format!("relays gain less than {gain:.2}x; plain {plain_rate}"))
            }
        })
    }

    fn explain_staged(&self, ends: &StagedEnds) -> String {
        let bytes = Bytes(ends.bytes as u64);
        let gpu = self.finder.gpu(ends.device).unwrap_or(0);
        let vram = Place::new(Unit::Gpu(gpu), MemKind::Vram);
        let paged = Place::new(Unit::Numa(self.finder.domain(ends.host)), MemKind::Paged);
        let (src, dst) = match ends.way {
            StagedWay::In => (paged, vram),
            StagedWay::Out => (vram, paged),
        };
        let case = Flow { src, dst, by: Mover::Dma { at: Unit::Gpu(gpu) }, bytes };
        let rate = |time: Ns| format!("{:.1} GB/s", Rate(bytes.as_f64() / time.0.max(1.0)).gbs());
        let why = |reason: String| format!("{case}\nplain: {reason}");
        if ends.bytes < self.shared.threshold {
            return why(format!("smaller than {}", Bytes(self.shared.threshold as u64)));
        }
        let Some(plan) = self.staging_plan(ends) else {
            return why("pageable memory, and copy_threads allows no thread".to_owned());
        };
        match &*plan {
            Err(failure) => why(format!("pageable memory, and the probe failed: {failure}")),
            Ok(plan) => {
                let plain = rate(plan.plain.time(bytes));
                match plan.choose(ends.bytes, self.shared.min_gain, self.shared.now()) {
                    Some((threads, time)) => format!(
                        "{case}\npredicted {} by {threads} threads through page-locked memory, plain {plain}",
                        rate(time)
                    ),
                    None => why(format!(
                        "threads gain less than {:.2}x; plain {plain}",
                        self.shared.min_gain
                    )),
                }
            }
        }
    }

    fn find_plan(&self, key: EndsKey) -> Option<Arc<EndsPlan>> {
        if let Some(plan) = self.shared.plans.get(&key) {
            return Some(plan);
        }
        let (reply, probed): (_, Receiver<()>) = channel();
        self.commands.send(WorkerCommand::Probe(key, reply)).ok()?;
        let _ = probed.recv();
        self.shared.plans.get(&key)
    }
}

fn place(unit: Unit) -> Place {
    let mem = if unit.gpu().is_some() { MemKind::Vram } else { MemKind::Pinned };
    Place::new(unit, mem)
}
