//! The one thread that owns the machine: it probes, copies over several paths, and falls back.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use pathline_gpu::{CompileMode, LibraryRequest};
use pathline_hal::{CallError, CallResult, CopyChoice, Driver, Machine, StreamId};
use pathline_host::LiveHost;
use pathline_host::clock::{ClockOrigin, LiveClock};
use pathline_multipath::{
    CopyMode, CopyReport, CopyRequest, MultipathEngine, PathOption, PathProbe, ProbeRequest,
    StreamOrder, TransferId, probe_paths, try_paths,
};
use pathline_schema::{
    Bytes, GpuSet, MemKind, MultipathSpec, Ns, Place, Severity, Unit, WorldKind,
};

use crate::copy_error::{CopyError, CopyStatus};
use crate::ends::{EndFinder, KnownEnd};
use crate::helper_use::HelperUse;
use crate::orders::{
    ActiveOrder, CallerOrder, CopyOrder, EnqueuedOrder, OrderedCopy, PlainRun, WorkerCommand,
    WorkerReply,
};
use crate::plans::{EndsKey, EndsPlan};
use crate::shared_node::{NodeOptions, OpenedNode, SharedNode};
use crate::twin::TwinModel;

/// Longest pause between two looks at copies in flight.
const POLL: Ns = Ns(2_000.0);
/// Time that an idle worker looks for commands before it sleeps: waking it takes 50 us on a virtual machine,
/// more than most copies of the threshold's size may lose.
const SPIN: Ns = Ns(300_000.0);
/// Largest size that a probe measures.
const PROBE_BYTES: Bytes = Bytes::mib(128);
/// The sizes that a probe measures, in this part of the largest one: 4, 8, 12, 32 and 128 MiB. A copy of a few chunks
/// gains less with each further relay than a line through 4 and 128 MiB says: up to 25 % at 12 MiB in the model.
const PROBE_PARTS: [u64; 5] = [1, 2, 3, 8, 32];
/// The largest size in these parts.
const PROBE_WHOLE: u64 = 32;
/// Time after which a probe adds no further relay.
const PROBE_BUDGET: Ns = Ns(1e9);
/// Largest piece of copies to several GPUs: the best of 4 to 64 MiB on eight H200s.
const SPREAD_CHUNK: Bytes = Bytes::mib(16);
/// Copies of one order that run at the same time.
const CONCURRENT: usize = 2;

/// Opens the machine, reports it, and serves commands until the node closes.
pub(crate) fn run(
    options: &NodeOptions,
    shared: &Arc<SharedNode>,
    commands: &Receiver<WorkerCommand>,
    opened: &Sender<Result<OpenedNode, CopyError>>,
) {
    let attempt = catch_unwind(AssertUnwindSafe(|| open(options, shared.origin)));
    let fault = || CopyError::new(CopyStatus::Internal, "opening the machine panicked");
    match attempt.unwrap_or_else(|_| Err(fault())) {
        Err(error) => drop(opened.send(Err(error))),
        Ok((machine, helpers, node, twin)) => {
            if opened.send(Ok(node)).is_ok() {
                let mut worker = CopyWorker::new(&machine, shared, helpers, options);
                worker.twin = twin;
                worker.serve(commands);
            }
        }
    }
}

/// The request for a runtime's library: of the options, else of the variables that the program reads.
fn library_request(options: &NodeOptions) -> LibraryRequest {
    let request = LibraryRequest::new(CompileMode::InProcess);
    if let Some((name, path)) = &options.library {
        return request.with(name, path);
    }
    let named = pathline_gpu::library_options()
        .filter_map(|option| Some((option.name, std::env::var_os(option.variable)?)));
    named.fold(request, |request, (name, path)| request.with(name, path))
}

fn open(
    options: &NodeOptions,
    origin: ClockOrigin,
) -> Result<(Machine, Vec<u32>, OpenedNode, Option<TwinModel>), CopyError> {
    let unavailable = |text: String| CopyError::new(CopyStatus::Unavailable, text);
    let topology = pathline_topo::from_snapshot("live", &pathline_topo::live(Vec::new()));
    let runtime = pathline_gpu::runtime(&topology, &library_request(options));
    if let Some(without) = runtime.without.clone() {
        return Err(unavailable(without));
    }
    let calls = runtime.caller_calls().map_err(unavailable)?;
    let host = LiveHost::new(&topology, origin, |_| Err("copies need no adapter".into()));
    let driver = runtime.open(Rc::clone(&host.memory)).map_err(|e| unavailable(e.to_string()))?;
    let driver = driver.ok_or_else(|| unavailable("the runtime cannot be opened".into()))?;
    let devices = driver.device_numbers();
    if devices.is_empty() {
        let text = format!("the runtime lists no GPU; see {}", driver.about().visible);
        return Err(unavailable(text));
    }
    let machine = Machine {
        world: WorldKind::Real,
        topology,
        clock: Box::new(LiveClock::new(origin)),
        host: Box::new(host),
        driver: Some(Box::new(driver)),
        monitor: None,
        ranks: None,
        storage: None,
    };
    let domains = machine.host.domains().iter().map(|domain| domain.id).collect();
    let finder = EndFinder { devices, domains };
    let helpers = match &options.helpers {
        None => (0..finder.devices.len() as u32).collect(),
        Some(listed) => listed
            .iter()
            .map(|&device| {
                let text = || format!("no GPU {device} to help: there are {:?}", finder.devices);
                finder.gpu(device).ok_or_else(|| CopyError::invalid(text()))
            })
            .collect::<Result<Vec<u32>, CopyError>>()?,
    };
    let helpers = helpers.into_iter().filter(|&gpu| gpu < GpuSet::CAPACITY).collect();
    let twin = match &options.twin {
        None => None,
        Some(path) => {
            let devices = machine.driver().and_then(|driver| driver.devices());
            let devices = devices.map_err(|error| unavailable(error.to_string()))?;
            Some(TwinModel::read(path, &devices)?)
        }
    };
    Ok((machine, helpers, OpenedNode { calls, finder }, twin))
}

/// Plans from a twin, with GPUs that have copied; others are left out.
fn plan_from_twin<'m>(
    twin: &TwinModel,
    machine: &'m Machine,
    engine: &mut MultipathEngine<'m>,
    request: &ProbeRequest,
) -> Result<PathProbe, String> {
    let mut refused = Vec::new();
    loop {
        let probe = twin.predict(request, refused)?;
        let sets: Vec<MultipathSpec> = probe.options.iter().map(|option| option.paths).collect();
        let tried = try_paths(machine, engine, (request.src, &request.dst), &sets);
        let failed = tried.map_err(|error| error.to_string())?;
        if failed.is_empty() {
            return Ok(probe);
        }
        refused = probe.refused.into_iter().chain(failed).collect();
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
    /// Memory that the driver knows: bytes, and the orders that use it, by start.
    blocks: BTreeMap<u64, (u64, u32)>,
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
        let probe_bytes = match options.probe_bytes {
            0 => PROBE_BYTES,
            bytes => Bytes(bytes.max(PROBE_WHOLE)),
        };
        Self {
            machine,
            engine: MultipathEngine::new(machine),
            shared,
            helpers,
            helper_use: HelperUse::new(options.shared_helpers),
            probe_bytes,
            twin: None,
            active: Vec::new(),
            blocks: BTreeMap::new(),
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
        let to_all = !key.others.is_empty();
        let slots = MultipathSpec::SLOTS;
        let request = ProbeRequest {
            src: key.src,
            dst: [key.dst].into_iter().chain(key.others.iter().map(Unit::Gpu)).collect(),
            helpers: self.helpers.clone(),
            chunk: if to_all { SPREAD_CHUNK } else { Bytes(self.shared.staging / slots) },
            sizes: PROBE_PARTS.map(|part| Bytes(self.probe_bytes.0 / PROBE_WHOLE * part)),
            budget: PROBE_BUDGET,
        };
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
            active.blocks.extend(self.adopt_ends(copy)?);
            Ok::<(), CallError>(())
        });
        if adopted.is_err() {
            self.release(&mut active.blocks);
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
                    self.count(copy, &report);
                    (Some(event), false)
                }
                Err(event) => (event, true),
            };
            // What is enqueued needs no name any more.
            self.release(&mut blocks);
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
        blocks.extend(self.adopt_ends(copy).map_err(|_| None)?);
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

    /// Makes the memory at the ends of a copy known to the driver; its starts.
    fn adopt_ends(&mut self, copy: &OrderedCopy) -> CallResult<Vec<u64>> {
        let mut blocks = Vec::new();
        for end in copy.dst.iter().chain([&copy.src]) {
            match self.adopt(end) {
                Ok(start) => blocks.push(start),
                Err(error) => {
                    self.release(&mut blocks);
                    return Err(error);
                }
            }
        }
        Ok(blocks)
    }

    /// Makes memory known to the driver. The start of the block.
    fn adopt(&mut self, known: &KnownEnd) -> CallResult<u64> {
        let (start, bytes) = known.block;
        let before = self.blocks.range_mut(..=start).next_back();
        if let Some((&at, (size, users))) = before
            && at + *size >= start + bytes
        {
            *users += 1;
            return Ok(at);
        }
        let unit = known.end.unit;
        let mem = if unit.gpu().is_some() { MemKind::Vram } else { MemKind::Pinned };
        self.driver()?.adopt_memory(start, Bytes(bytes), Place::new(unit, mem))?;
        self.blocks.insert(start, (bytes, 1));
        Ok(start)
    }

    /// Forgets memory that no copy uses any more.
    fn release(&mut self, blocks: &mut Vec<u64>) {
        let Ok(driver) = self.driver() else { return };
        for start in blocks.drain(..) {
            let Some((_, users)) = self.blocks.get_mut(&start) else { continue };
            *users -= 1;
            if *users == 0 {
                self.blocks.remove(&start);
                let _ = driver.forget_memory(start);
            }
        }
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
                    self.count(&copy, &report);
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

    fn count(&self, copy: &OrderedCopy, report: &CopyReport) {
        let add = |counter: &AtomicU64, by: u64| {
            counter.fetch_add(by, Ordering::Relaxed);
        };
        let counters = &self.shared.counters;
        let relayed = report.paths.iter().skip(1).map(|path| path.bytes.0).sum();
        add(&counters.multipath, 1);
        add(&counters.multipath_bytes, copy.bytes);
        add(&counters.relayed_bytes, relayed);
        add(&counters.repeated, report.repeated);
        add(&counters.lost, report.lost.len() as u64);
    }

    /// Lets the caller go on.
    fn finish(&mut self, mut order: ActiveOrder) {
        let now = self.shared.now();
        let outcome = order.failure.take().map_or(Ok(()), Err);
        self.release(&mut order.blocks);
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
