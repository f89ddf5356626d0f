//! The one thread that owns the machine: it probes, copies over several paths, and falls back.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use pathline_hal::{CallError, CallResult, CopyChoice, Driver, Machine, StreamId};
use pathline_multipath::{
    CopyMode, CopyReport, CopyRequest, MultipathEngine, PathOption, StreamOrder, TransferId,
    probe_paths,
};
use pathline_schema::{Bytes, Ns, Severity};

use crate::adopted_memory::AdoptedMemory;
use crate::copy_error::{CopyError, CopyStatus};
use crate::ends::KnownEnd;
use crate::helper_use::HelperUse;
use crate::opened_machine::{OpenedMachine, open_machine};
use crate::orders::{
    ActiveOrder, CallerOrder, CopyOrder, EnqueuedOrder, OrderedCopy, PlainRun, WorkerCommand,
    WorkerReply,
};
use crate::plans::{EndsKey, EndsPlan};
use crate::probes::{largest_probe, plan_from_twin, probe_request};
use crate::shared_node::{NodeOptions, OpenedNode, SharedNode};
use crate::twin::TwinModel;

/// Longest pause between two looks at copies in flight.
const POLL: Ns = Ns(2_000.0);
/// Time that an idle worker looks for commands before it sleeps: waking it takes 50 us on a virtual machine,
/// more than most copies of the threshold's size may lose.
const SPIN: Ns = Ns(300_000.0);
/// Copies of one order that run at the same time.
const CONCURRENT: usize = 2;

/// Opens the machine, reports it, and serves commands until the node closes.
pub(crate) fn run(
    options: &NodeOptions,
    shared: &Arc<SharedNode>,
    commands: &Receiver<WorkerCommand>,
    opened: &Sender<Result<OpenedNode, CopyError>>,
) {
    let attempt = catch_unwind(AssertUnwindSafe(|| open_machine(options, shared.origin)));
    let fault = || CopyError::new(CopyStatus::Internal, "opening the machine panicked");
    match attempt.unwrap_or_else(|_| Err(fault())) {
        Err(error) => drop(opened.send(Err(error))),
        Ok(OpenedMachine { machine, helpers, node, twin }) => {
            if opened.send(Ok(node)).is_ok() {
                let mut worker = CopyWorker::new(&machine, shared, helpers, options);
                worker.twin = twin;
                worker.serve(commands);
            }
        }
    }
}

struct CopyWorker<'m> {
    machine: &'m Machine,
    engine: MultipathEngine<'m>,
    shared: &'m SharedNode,
    helpers: Vec<u32>,
    helper_use: HelperUse,
    /// The largest size of a probe.
    probe_bytes: Bytes,
    /// What is known of this node without a probe.
    twin: Option<TwinModel>,
    active: Vec<ActiveOrder>,
    memory: AdoptedMemory<'m>,
    /// Streams for plain copies, by GPU.
    plain_streams: BTreeMap<u32, StreamId>,
}

impl<'m> CopyWorker<'m> {
    fn new(
        machine: &'m Machine,
        shared: &'m Arc<SharedNode>,
        helpers: Vec<u32>,
        options: &NodeOptions,
    ) -> Self {
        Self {
            machine,
            engine: MultipathEngine::new(machine),
            shared,
            helpers,
            helper_use: HelperUse::new(options.shared_helpers),
            probe_bytes: largest_probe(options.probe_bytes),
            twin: None,
            active: Vec::new(),
            memory: AdoptedMemory::new(machine),
            plain_streams: BTreeMap::new(),
        }
    }

    fn driver(&self) -> CallResult<&'m dyn Driver> {
        self.machine.driver()
    }

    fn serve(mut self, commands: &Receiver<WorkerCommand>) {
        let mut closing = false;
        while !(closing && self.active.is_empty()) {
            let next = match self.active.is_empty() {
                true => self.wait_for_command(commands),
                false => commands.try_recv(),
            };
            match next {
                Ok(WorkerCommand::Close) | Err(TryRecvError::Disconnected) => closing = true,
                Ok(command) => self.guard(|worker| worker.handle(command)),
                Err(TryRecvError::Empty) => {}
            }
            if !self.active.is_empty() {
                self.guard(Self::advance);
            }
        }
        self.engine.wait_for_enqueued();
    }

    /// Looks for a command for a while, then sleeps until there is one.
    fn wait_for_command(
        &mut self,
        commands: &Receiver<WorkerCommand>,
    ) -> Result<WorkerCommand, TryRecvError> {
        let start = self.shared.now();
        loop {
            match commands.try_recv() {
                Err(TryRecvError::Empty) => {}
                other => return other,
            }
            if self.shared.now() - start > SPIN {
                self.guard(Self::look_at_helpers);
                return commands.recv().map_err(|_| TryRecvError::Disconnected);
            }
            std::hint::spin_loop();
        }
    }

    /// Runs a step. After a panic the engine is not used any more, and its copies are made plainly.
    fn guard(&mut self, step: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| step(self))).is_ok() {
            return;
        }
        // Its streams may hold copies, and dropping it might panic again.
        std::mem::forget(std::mem::replace(&mut self.engine, MultipathEngine::new(self.machine)));
        self.helper_use.forget();
        for nth in 0..self.active.len() {
            for (_, copy) in std::mem::take(&mut self.active[nth].running) {
                self.start_plain(nth, &copy);
            }
        }
    }

    fn handle(&mut self, command: WorkerCommand) {
        match command {
            WorkerCommand::Copy(order) => self.accept(order),
            WorkerCommand::Probe(key, reply) => {
                self.plan(key);
                let _ = reply.send(());
            }
            WorkerCommand::Answer(reply) => {
                let _ = reply.send(WorkerReply::Awake);
            }
            WorkerCommand::Close => {}
        }
    }

    /// The plan between some ends, probed if they are new. None while copies run: they would disturb the probe.
    fn plan(&mut self, key: EndsKey) -> Option<Arc<EndsPlan>> {
        if let Some(plan) = self.shared.plans.get(&key) {
            return Some(plan);
        }
        if !self.active.is_empty() {
            return None;
        }
        self.helper_use.find_itself(self.machine, &self.helpers);
        self.look_at_helpers();
        let staging = Bytes(self.shared.staging);
        let request = probe_request(&key, &self.helpers, staging, self.probe_bytes);
        let probe = match &self.twin {
            None => probe_paths(self.machine, &mut self.engine, &request)
                .map_err(|error| error.to_string()),
            Some(twin) => plan_from_twin(twin, self.machine, &mut self.engine, &request),
        };
        let plan = EndsPlan::new(probe);
        Some(self.shared.plans.insert(key, plan))
    }

    /// Lets relays leave gaps for other processes.
    fn look_at_helpers(&mut self) {
        let now = self.shared.now();
        if let Some(look) = self.helper_use.look(self.machine, &self.helpers, now) {
            self.engine.share_relays(look.perhaps);
            self.shared.note_used_helpers(look.used);
        }
    }

    fn plain_stream(&mut self, gpu: u32) -> CallResult<StreamId> {
        if let Some(&stream) = self.plain_streams.get(&gpu) {
            return Ok(stream);
        }
        let stream = self.driver()?.stream_create(gpu)?;
        self.plain_streams.insert(gpu, stream);
        Ok(stream)
    }

    /// Starts the copies of an order, enqueues them, or refuses them.
    fn accept(&mut self, mut order: CopyOrder) {
        // A probe is no hand-over, and copies that run make the next one wait.
        let mut is_usual = self.active.is_empty();
        let mode = if order.order.is_some() { CopyMode::Enqueued } else { CopyMode::Driven };
        for copy in &mut order.copies {
            is_usual &= self.shared.plans.get(&copy.key()).is_some();
            let plan = self.plan(copy.key());
            let chosen = plan.as_ref().and_then(|plan| self.shared.choose(plan, copy, mode));
            copy.chosen = chosen.cloned();
        }
        // Of copies that are enqueued, each is made plainly for itself.
        let is_plain = |copy: &OrderedCopy| copy.chosen.is_none();
        if order.copies.iter().all(is_plain)
            || order.order.is_none() && order.copies.iter().any(is_plain)
        {
            let _ = order.reply.send(WorkerReply::Refused);
            return;
        }
        // A caller that waited too long has made plain copies.
        if !order.claim.take() {
            return;
        }
        let now = self.shared.now();
        if is_usual {
            self.shared.hand_over.note(now - order.sent);
        }
        if let Some(place) = order.order.take() {
            let attempt = || self.enqueue_order(&order.copies, &place);
            match catch_unwind(AssertUnwindSafe(attempt)) {
                Ok(enqueued) => drop(order.reply.send(WorkerReply::Enqueued(enqueued))),
                Err(panic) => {
                    // No event follows what is enqueued.
                    self.engine.wait_for_enqueued();
                    let _ = order.reply.send(WorkerReply::Refused);
                    resume_unwind(panic);
                }
            }
            return;
        }
        let mut active = ActiveOrder::new(order, now);
        let adopted = active.waiting.iter().try_for_each(|copy| {
            active.blocks.extend(self.memory.adopt_ends(copy)?);
            Ok::<(), CallError>(())
        });
        if adopted.is_err() {
            self.memory.release(&mut active.blocks);
            let _ = active.reply.send(WorkerReply::Refused);
            return;
        }
        if !self.active.is_empty() {
            self.active.iter_mut().chain([&mut active]).for_each(|order| order.judged = None);
        }
        self.active.push(active);
    }

    /// Enqueues copies in the order of a caller's streams.
    fn enqueue_order(&mut self, copies: &[OrderedCopy], place: &CallerOrder) -> EnqueuedOrder {
        let mut enqueued = EnqueuedOrder::default();
        // Other copies that run would be judged by a time in which they shared the links.
        self.active.iter_mut().for_each(|order| order.judged = None);
        for (nth, copy) in copies.iter().enumerate() {
            let mut blocks = Vec::new();
            let (recorded, is_plain) = match self.enqueue_copy(copy, place, &mut blocks) {
                Ok((event, report)) => {
                    self.shared.counters.add_copy(copy, &report);
                    (Some(event), false)
                }
                Err(event) => (event, true),
            };
            // What is enqueued needs no name any more.
            self.memory.release(&mut blocks);
            enqueued.recorded.extend(recorded.filter(|event| !enqueued.recorded.contains(event)));
            enqueued.plain.extend(is_plain.then_some(nth));
            #[cfg(test)]
            assert!(!tests::PANICS.swap(false, Ordering::Relaxed), "injected");
        }
        enqueued
    }

    /// Enqueues a copy: the number of the event at its end, and what it does. The error is the event after parts of
    /// a copy that failed.
    fn enqueue_copy(
        &mut self,
        copy: &OrderedCopy,
        place: &CallerOrder,
        blocks: &mut Vec<u64>,
    ) -> Result<(usize, CopyReport), Option<usize>> {
        let (request, chosen) = self.request(copy).ok_or(None)?;
        let driver = self.driver().map_err(|_| None)?;
        let ends_at = |&(gpu, _): &(u32, usize)| copy.at() == Some(gpu);
        let nth = place.done.iter().position(ends_at).ok_or(None)?;
        let (gpu, done) = place.done.get(nth).copied().ok_or(None)?;
        blocks.extend(self.memory.adopt_ends(copy).map_err(|_| None)?);
        let mut adopted = Vec::new();
        let mut adopt = |event: usize| {
            let id = driver.adopt_event(gpu, event as u64).map_err(|_| None)?;
            adopted.push(id);
            Ok(id)
        };
        let outcome = adopt(done).and_then(|done| {
            let after =
                place.after.iter().map(|&event| adopt(event)).collect::<Result<Vec<_>, _>>();
            let order = StreamOrder { after: &after?, done, streams: &place.streams };
            let enqueued = self.engine.enqueue(&request, &chosen.rates, &order);
            enqueued.map(|report| (nth, report)).map_err(|failure| {
                if failure.error.severity != Severity::Unsupported {
                    self.shared.counters.fallbacks.fetch_add(1, Ordering::Relaxed);
                }
                failure.is_ordered.then_some(nth)
            })
        });
        adopted.into_iter().for_each(|event| drop(driver.forget_event(event)));
        outcome
    }

    /// Looks at everything once.
    fn advance(&mut self) {
        let mut moved = self.engine.advance();
        for nth in 0..self.active.len() {
            moved |= self.advance_order(nth);
        }
        let mut nth = 0;
        while nth < self.active.len() {
            if self.active[nth].is_over() {
                let order = self.active.swap_remove(nth);
                self.finish(order);
                moved = true;
            } else {
                nth += 1;
            }
        }
        if !moved && let Ok(driver) = self.driver() {
            driver.pause(POLL);
        }
    }

    fn advance_order(&mut self, nth: usize) -> bool {
        let Ok(driver) = self.driver() else { return false };
        let mut moved = false;
        let running = std::mem::take(&mut self.active[nth].running);
        for (id, copy) in running {
            match self.engine.take_outcome(id) {
                None => self.active[nth].running.push((id, copy)),
                Some(Ok(report)) => {
                    moved = true;
                    self.shared.counters.add_copy(&copy, &report);
                }
                Some(Err(_)) => {
                    moved = true;
                    self.start_plain(nth, &copy);
                }
            }
        }
        let plain = std::mem::take(&mut self.active[nth].plain);
        for run in plain {
            match driver.event_done(run.done) {
                Ok(false) => self.active[nth].plain.push(run),
                ended => {
                    moved = true;
                    let _ = driver.event_destroy(run.done);
                    if let Err(error) = ended {
                        self.active[nth].failure.get_or_insert(error.into());
                    }
                }
            }
        }
        while self.active[nth].running.len() < CONCURRENT
            && let Some(copy) = self.active[nth].waiting.pop_front()
        {
            moved = true;
            match self.start(&copy) {
                Some(id) => self.active[nth].running.push((id, copy)),
                None => self.start_plain(nth, &copy),
            }
        }
        moved
    }

    /// A copy for the engine, and the paths that were chosen for it.
    fn request(&self, copy: &OrderedCopy) -> Option<(CopyRequest, PathOption)> {
        let chosen = copy.chosen.clone()?;
        let mut dst = copy.dst.iter().map(|known| known.end);
        // Copies that run at the same time share the links.
        let shares = (self.engine.running() + 1) as f64;
        let request = CopyRequest {
            src: copy.src.end,
            dst: dst.next()?,
            others: dst.collect(),
            bytes: Bytes(copy.bytes),
            paths: chosen.paths,
            limit: CopyRequest::time_limit(Ns(chosen.driven.time(Bytes(copy.bytes)).0 * shares)),
        };
        Some((request, chosen))
    }

    /// Starts a copy over several paths; none if it cannot start.
    fn start(&mut self, copy: &OrderedCopy) -> Option<TransferId> {
        let (request, _) = self.request(copy)?;
        self.engine.start(request).ok()
    }

    /// Copies plainly what several paths did not.
    fn start_plain(&mut self, nth: usize, copy: &OrderedCopy) {
        self.shared.counters.fallbacks.fetch_add(1, Ordering::Relaxed);
        self.active[nth].judged = None;
        for dst in &copy.dst {
            match self.enqueue_plain(copy, dst) {
                Ok(run) => self.active[nth].plain.push(run),
                Err(error) => {
                    self.active[nth].failure.get_or_insert(error.into());
                }
            }
        }
    }

    fn enqueue_plain(&mut self, copy: &OrderedCopy, dst: &KnownEnd) -> CallResult<PlainRun> {
        let (from, to) = (copy.src.end, dst.end);
        let gpu = to.unit.gpu().or(from.unit.gpu()).unwrap_or_default();
        let stream = self.plain_stream(gpu)?;
        let driver = self.driver()?;
        driver.copy(stream, to.address, from.address, Bytes(copy.bytes), CopyChoice::Auto)?;
        let done = driver.event_create(gpu)?;
        driver.event_record(done, stream)?;
        Ok(PlainRun { done })
    }

    /// Lets the caller go on.
    fn finish(&mut self, mut order: ActiveOrder) {
        let now = self.shared.now();
        let outcome = order.failure.take().map_or(Ok(()), Err);
        self.memory.release(&mut order.blocks);
        if let Some((key, bytes)) = order.judged
            && self.shared.min_gain >= 1.0
            && let Some(plan) = self.shared.plans.get(&key)
            && plan.note(bytes, now - order.started + order.handed_over, now)
        {
            self.shared.counters.switched_off.fetch_add(1, Ordering::Relaxed);
        }
        let _ = order.reply.send(WorkerReply::Done(outcome));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::CopyNode;
    use crate::test_runtime::{TestRuntime, in_separate_process};
    use pathline_stub::StubLibraries;

    /// The next order panics once its first copy is enqueued.
    pub(super) static PANICS: AtomicBool = AtomicBool::new(false);

    #[test]
    fn a_panic_while_copies_are_enqueued_lets_streams_go_on() {
        let test = "worker::tests::a_panic_while_copies_are_enqueued_lets_streams_go_on";
        if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
            return;
        }
        let cuda = TestRuntime::open("cuda");
        let (threshold, probe_bytes) = (1 << 20, 4 << 20);
        let options =
            NodeOptions { threshold, min_gain: 1e-6, probe_bytes, ..NodeOptions::default() };
        let node: CopyNode = cuda.node(options);
        let (stream, bytes) = (cuda.stream(), 4 << 20);
        let (src, device) = (cuda.pinned(bytes, 1), cuda.device(bytes));
        let host = src.as_ptr() as u64;
        node.explain(device, host, bytes).unwrap();
        for (panics, plain, multipath) in [(true, 1, 1), (false, 1, 2)] {
            PANICS.store(panics, Ordering::Relaxed);
            // SAFETY: live memory and a live stream.
            unsafe { node.copy_async(device, host, bytes, stream).unwrap() };
            assert_eq!(cuda.wait(stream), 0);
            assert!(cuda.read(device, bytes) == *src);
            let counters = node.counters();
            assert_eq!((counters.plain, counters.multipath), (plain, multipath), "{counters:?}");
            src.fill(7);
        }
        assert!(!PANICS.load(Ordering::Relaxed));
    }
}
