//! One process's part of a case: its peers and its operations in each repetition.

use std::rc::Rc;

use pathline_hal::{CallError, CallResult, FlowPart, RankBarrier, RepeatMode};
use pathline_schema::Bytes;

use super::engine_label::{self, HOST};
use super::lane::{DraftLane, UcxLane, UcxRole, drafts};
use super::offer::{UcxExport, UcxOffer};
use super::worker::{UcxMapping, UcxWorker};
use pathline_host::clock::ClockOrigin;

/// Minimum timeout of a repetition in ns, and the rate in bytes per ns that extends it. The
/// coordinator waits longer; the limit keeps ranks from waiting for a rank that is gone.
const MIN_TIMEOUT: f64 = 10e9;
const SLOWEST: f64 = 0.25;

/// A case bound in this process.
#[derive(Debug)]
pub(super) struct UcxExchange {
    worker: Option<Rc<UcxWorker>>,
    serial: u32,
    pace: RepeatMode,
    parts: usize,
    drafts: Vec<DraftLane>,
    lanes: Vec<UcxLane>,
    /// Memory that other processes access. It stays mapped until the end.
    _exposed: Vec<UcxMapping>,
    /// UCX's memory types of its buffers.
    memory: Vec<String>,
    timeout_s: f64,
    engine: String,
}

impl UcxExchange {
    /// For a process without a part in a case.
    pub(super) fn idle(parts: usize, pace: RepeatMode) -> Self {
        Self {
            worker: None,
            serial: 0,
            pace,
            parts,
            drafts: Vec::new(),
            lanes: Vec::new(),
            _exposed: Vec::new(),
            memory: Vec::new(),
            timeout_s: 0.0,
            engine: String::new(),
        }
    }

    /// Maps this process's memory, and makes its offer to the others.
    pub(super) fn new(
        worker: &Rc<UcxWorker>,
        serial: u32,
        parts: &[FlowPart],
        pace: RepeatMode,
    ) -> CallResult<(Self, UcxOffer)> {
        let mut made =
            Self { worker: Some(Rc::clone(worker)), serial, ..Self::idle(parts.len(), pace) };
        let mut offer =
            UcxOffer { serial, address: worker.address().to_vec(), exposed: Vec::new() };
        let mut bytes = 0.0;
        for (nth, part) in parts.iter().enumerate() {
            bytes += part.bytes as f64 * f64::from(part.wire.op.window());
            for (draft, exposed) in drafts(nth, part)? {
                made.look_at(worker, &draft)?;
                if let Some(span) = exposed {
                    let mapped = worker.map(span)?;
                    offer.exposed.push(UcxExport {
                        part: nth,
                        position: draft.here,
                        address: span.address,
                        key: mapped.pack()?,
                    });
                    made._exposed.push(mapped);
                }
                made.drafts.push(draft);
            }
        }
        made.timeout_s = MIN_TIMEOUT + bytes / SLOWEST;
        Ok((made, offer))
    }

    /// Queries UCX's memory type of a buffer. UCX addresses host memory from the CPU, which ends
    /// the process if the memory is a GPU's.
    fn look_at(&mut self, worker: &Rc<UcxWorker>, draft: &DraftLane) -> CallResult<()> {
        let ends = [("from", draft.send), ("to", draft.recv)];
        for (end, span) in ends.into_iter().filter(|(_, span)| span.address != 0) {
            let kind = worker.map(span)?.memory();
            if draft.device && kind == HOST {
                let thing = format!("{} at {:#x}", Bytes(span.bytes), span.address);
                let reason = "this UCX treats a GPU's memory as host memory";
                return Err(CallError::unsupported("ucp_mem_query", thing, reason).or_try(
                    "name one that was built for these GPUs by PATHLINE_UCX (its `ucx_info -d` \
                     lists cuda or rocm), and leave them in UCX_TLS",
                ));
            }
            let text = format!("{end} {kind}");
            if !self.memory.contains(&text) {
                self.memory.push(text);
            }
        }
        Ok(())
    }

    /// Connects to the peers of the parts, and runs everything once: UCX connects at the first
    /// message, and then reports its choice.
    pub(super) fn join(&mut self, offers: &[Vec<u8>]) -> CallResult<()> {
        let Some(worker) = self.worker.clone() else { return Ok(()) };
        for draft in std::mem::take(&mut self.drafts) {
            let thing = || format!("the offer of rank {}", draft.rank);
            let offer = offers.get(draft.rank).and_then(|bytes| UcxOffer::read(bytes));
            let offer = offer.ok_or_else(|| {
                CallError::unsupported("join", thing(), "it is no offer of UCX")
                    .or_try("start the same pathline on all ranks")
            })?;
            self.lanes.push(UcxLane::new(&worker, self.serial, draft, &offer)?);
        }
        self.lanes.iter_mut().for_each(UcxLane::ask);
        self.repeat(&worker, None)?;
        self.finish(&worker)?;
        self.engine = self.describe(&worker);
        Ok(())
    }

    /// Runs `reps` repetitions; times of each part in ns. A part in which this process is the
    /// passive target has none: its peer's time counts.
    pub(super) fn run(
        &mut self,
        reps: u64,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>> {
        let Some(worker) = self.worker.clone() else {
            return self.pace.idle_sample(self.parts, reps, barrier);
        };
        let mut times = vec![Vec::new(); self.parts];
        let begun = ClockOrigin::now();
        if self.pace == RepeatMode::Isolated {
            for _ in 0..reps {
                barrier.wait()?;
                let start = begun.ns();
                self.repeat(&worker, Some(begun))?;
                for (part, times) in times.iter_mut().enumerate() {
                    let of_part =
                        |lane: &&UcxLane| lane.part == part && lane.role != UcxRole::Exposed;
                    let over = self.lanes.iter().filter(of_part).map(|lane| lane.over).max();
                    times.extend(over.map(|end| end.saturating_sub(start) as f64));
                }
                self.finish(&worker)?;
            }
            return Ok(times);
        }
        barrier.wait()?;
        let start = begun.ns();
        match &self.lanes[..] {
            [lane] if lane.is_ping() => lane.pings(&worker, reps, self.timeout_s)?,
            _ => (0..reps).try_for_each(|_| self.repeat(&worker, None))?,
        }
        let took = begun.ns().saturating_sub(start) as f64;
        for lane in self.lanes.iter().filter(|lane| lane.role != UcxRole::Exposed) {
            times[lane.part] = vec![took];
        }
        self.finish(&worker)?;
        Ok(times)
    }

    /// The transport and protocol, for the record.
    pub(super) fn engine(&self) -> &str {
        &self.engine
    }

    /// The UCX setting of this case only.
    pub(super) fn set(&self) -> Option<&str> {
        self.worker.as_ref()?.set()
    }
}

impl UcxExchange {
    /// One repetition of all parts at once. With a clock, each part notes the time of its end.
    fn repeat(&mut self, worker: &UcxWorker, clock: Option<ClockOrigin>) -> CallResult<()> {
        for lane in &mut self.lanes {
            lane.start(worker)?;
        }
        let lanes = &mut self.lanes;
        worker.until(self.timeout_s, || {
            let mut over = true;
            for lane in lanes.iter_mut().filter(|lane| !lane.is_over) {
                if lane.go_on(worker)? {
                    lane.over = clock.map_or(0, ClockOrigin::ns);
                } else {
                    over = false;
                }
            }
            Ok(over)
        })
    }

    /// Ends the repetitions: no operation is in flight any more, here or at the peers, which may
    /// stop their progress after this.
    fn finish(&mut self, worker: &UcxWorker) -> CallResult<()> {
        for lane in &mut self.lanes {
            lane.finish(worker)?;
        }
        let lanes = &mut self.lanes;
        worker.until(self.timeout_s, || {
            let mut over = true;
            for lane in lanes.iter_mut() {
                over &= lane.has_settled(worker)?;
            }
            Ok(over)
        })
    }

    /// UCX's report on the first operations, their lanes and the memory.
    fn describe(&self, worker: &UcxWorker) -> String {
        let mut texts: Vec<String> = Vec::new();
        let mut add = |text: String| {
            if !texts.contains(&text) {
                texts.push(text);
            }
        };
        for lane in &self.lanes {
            let Some(operation) = lane.role.operation() else { continue };
            let printed = worker.describe(lane.endpoint).unwrap_or_default();
            add(lane
                .protocol
                .clone()
                .unwrap_or_else(|| format!("{operation}, protocol not reported")));
            if let Some(sizes) = engine_label::thresholds(&printed, operation) {
                add(format!("{operation} {sizes}"));
            }
            add(format!("lanes {}", engine_label::lanes(&printed).join(" ")));
        }
        add(format!("memory {}", self.memory.join(", ")));
        texts.join("; ")
    }
}
