//! One process's part of a case: who it talks to, and what it does in each repetition.

use std::rc::Rc;

use pathline_hal::{CallError, CallResult, FlowPart, RankBarrier, RepeatMode};
use pathline_schema::{Bytes, Severity};

use super::engine_label::{self, HOST};
use super::lane::{DraftLane, UcxLane, UcxRole, drafts};
use super::offer::{UcxExport, UcxOffer};
use super::worker::{UcxMapping, UcxWorker};
use pathline_host::clock::ClockOrigin;

/// How long a repetition may take at least, in ns, and what it then moves in bytes per ns. A
/// conductor waits longer, and the others are not left to wait for one that has gone.
const AT_LEAST: f64 = 10e9;
const SLOWEST: f64 = 0.25;
/// Looks between those at the clock. One takes 10 to 100 ns.
const LOOKS: u32 = 4096;

/// A case as this process has bound it.
#[derive(Debug)]
pub(super) struct UcxExchange {
    worker: Option<Rc<UcxWorker>>,
    serial: u32,
    pace: RepeatMode,
    parts: usize,
    drafts: Vec<DraftLane>,
    lanes: Vec<UcxLane>,
    /// What other processes reach. It stays known until the end.
    _exposed: Vec<UcxMapping>,
    /// Kinds of memory that UCX takes its ends for.
    memory: Vec<String>,
    patience: f64,
    engine: String,
}

impl UcxExchange {
    /// A process that has no part in a case.
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
            patience: 0.0,
            engine: String::new(),
        }
    }

    /// Makes this process's memory known, and what the others must know of it.
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
                made.look_at(worker, &draft, part.device)?;
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
        made.patience = AT_LEAST + bytes / SLOWEST;
        Ok((made, offer))
    }

    /// Has UCX say what it takes this memory for. What it takes for the host's, it would address from
    /// the CPU, which ends the process if it is a GPU's.
    fn look_at(
        &mut self,
        worker: &Rc<UcxWorker>,
        draft: &DraftLane,
        device: bool,
    ) -> CallResult<()> {
        let ends = [("from", draft.send), ("to", draft.recv)];
        for (word, span) in ends.into_iter().filter(|(_, span)| span.address != 0) {
            let kind = worker.map(span)?.memory();
            if device && kind == HOST {
                let thing = format!("{} at {:#x}", Bytes(span.bytes), span.address);
                let reason = "this UCX takes a GPU's memory for the host's";
                return Err(CallError::unsupported("ucp_mem_query", thing, reason).or_try(
                    "name one that was built for these GPUs by PATHLINE_UCX (its `ucx_info -d` \
                     lists cuda or rocm), and leave them in UCX_TLS",
                ));
            }
            let words = format!("{word} {kind}");
            if !self.memory.contains(&words) {
                self.memory.push(words);
            }
        }
        Ok(())
    }

    /// Connects to those that the parts need, and does everything once: UCX connects at the first
    /// message, and says of it what it chose.
    pub(super) fn join(&mut self, offers: &[Vec<u8>]) -> CallResult<()> {
        let Some(worker) = self.worker.clone() else { return Ok(()) };
        for draft in std::mem::take(&mut self.drafts) {
            let thing = || format!("what rank {} gave", draft.rank);
            let offer = offers.get(draft.rank).and_then(|bytes| UcxOffer::read(bytes));
            let offer = offer.ok_or_else(|| {
                CallError::unsupported("join", thing(), "it is no offer of UCX's")
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

    /// Does it so many times; times of each part in ns. A part in which this process's memory is
    /// only reached has none: the other's time counts.
    pub(super) fn run(
        &mut self,
        reps: u64,
        meeting: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>> {
        let mut times = vec![Vec::new(); self.parts];
        let Some(worker) = self.worker.clone() else {
            let meetings = if self.pace == RepeatMode::Isolated { reps } else { 1 };
            (0..meetings).try_for_each(|_| meeting.meet())?;
            return Ok(times);
        };
        let begun = ClockOrigin::now();
        if self.pace == RepeatMode::Isolated {
            for _ in 0..reps {
                meeting.meet()?;
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
        meeting.meet()?;
        let start = begun.ns();
        for _ in 0..reps {
            self.repeat(&worker, None)?;
        }
        let took = begun.ns().saturating_sub(start) as f64;
        for lane in self.lanes.iter().filter(|lane| lane.role != UcxRole::Exposed) {
            times[lane.part] = vec![took];
        }
        self.finish(&worker)?;
        Ok(times)
    }

    /// What carried the bytes.
    pub(super) fn engine(&self) -> &str {
        &self.engine
    }

    /// What of UCX is set for it alone.
    pub(super) fn set(&self) -> Option<&str> {
        self.worker.as_ref()?.set()
    }
}

impl UcxExchange {
    /// One repetition of all parts at once. With a clock each says when it is over.
    fn repeat(&mut self, worker: &UcxWorker, clock: Option<ClockOrigin>) -> CallResult<()> {
        for lane in &mut self.lanes {
            lane.start(worker)?;
        }
        let lanes = &mut self.lanes;
        until(worker, self.patience, || {
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

    /// Ends what was repeated: nothing is under way any more, here or towards the others, who may
    /// not work on it from now on.
    fn finish(&mut self, worker: &UcxWorker) -> CallResult<()> {
        for lane in &mut self.lanes {
            lane.finish(worker)?;
        }
        let lanes = &mut self.lanes;
        until(worker, self.patience, || {
            let mut over = true;
            for lane in lanes.iter_mut() {
                over &= lane.has_settled(worker)?;
            }
            Ok(over)
        })
    }

    /// What UCX says of the first operations, of the lanes they go by and of the memory.
    fn describe(&self, worker: &UcxWorker) -> String {
        let mut words: Vec<String> = Vec::new();
        let mut add = |text: String| {
            if !words.contains(&text) {
                words.push(text);
            }
        };
        for lane in &self.lanes {
            let Some(operation) = lane.role.operation() else { continue };
            let printed = worker.describe(lane.endpoint).unwrap_or_default();
            add(lane
                .told
                .clone()
                .unwrap_or_else(|| format!("{operation}, which UCX says nothing of")));
            if let Some(sizes) = engine_label::thresholds(&printed, operation) {
                add(format!("{operation} {sizes}"));
            }
            add(format!("lanes {}", engine_label::lanes(&printed).join(" ")));
        }
        add(format!("memory {}", self.memory.join(", ")));
        words.join("; ")
    }
}

/// Works until something is done.
///
/// # Errors
/// What `done` returns, or that it takes longer than `most`, in ns.
#[inline]
fn until(
    worker: &UcxWorker,
    most: f64,
    mut done: impl FnMut() -> CallResult<bool>,
) -> CallResult<()> {
    let (mut looks, mut since) = (0u32, None);
    while !done()? {
        worker.progress();
        looks += 1;
        if looks == LOOKS {
            looks = 0;
            let begun = since.get_or_insert_with(ClockOrigin::now);
            if begun.ns() as f64 > most {
                let why = format!("no end within {:.0} s", most / 1e9);
                return Err(CallError::new(
                    Severity::Sticky,
                    "ucp_worker_progress",
                    "messages of this rank",
                    why,
                )
                .or_try("another rank may have gone; UCX_LOG_LEVEL=info shows what UCX misses"));
            }
            // Where processes outnumber cores, who is waited for may need this one.
            std::thread::yield_now();
        }
    }
    Ok(())
}
