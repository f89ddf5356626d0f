//! Every order in which fills, drains and direct copies can end, and a relay that dies or stalls at any
//! point: the destination has every byte when a copy ends well, and nothing writes there afterwards.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use pathline_hal::{
    CallError, CallResult, ChainPart, Clock, CopyChoice, DeviceInfo, Driver, EventId, GateId,
    KernelId, KernelLaunch, Machine, PeerAccess, StreamId, pattern,
};
use pathline_multipath::{CopyEnd, CopyReport, CopyRequest, MultipathEngine};
use pathline_schema::{
    Bytes, CopyAgent, KernelVariant, MigrateHow, MultipathSpec, Ns, Place, Severity, Unit,
};

use crate::common::{CallerStream, count, machine};

/// Memory is kept in cells of this size, the grain of pieces.
const CELL: u64 = 64 << 10;
const BYTES: u64 = 1 << 20;
const SRC: u64 = 1 << 40;
const DST: u64 = 2 << 40;
/// Stamps of cells: the copied bytes, and bytes that the user writes afterwards.
const COPIED: u64 = 1;
const LATER: u64 = 2;
/// The GPU that faults strike.
const RELAY: u32 = 1;

#[derive(Debug, Clone, Copy)]
enum StreamOp {
    Copy {
        dst: u64,
        src: u64,
        bytes: u64,
    },
    /// An event, and which of its recordings this is.
    Record(u64, u64),
    /// Ends when that recording has passed.
    Wait(u64, u64),
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The first copy of a stream ends.
    Ends(u64),
    /// The relay's copies are lost and its calls fail.
    Dies,
    /// The relay's copies do not end.
    Stalls,
}

#[derive(Default)]
struct World {
    cells: BTreeMap<u64, u64>,
    streams: BTreeMap<u64, (u32, VecDeque<StreamOp>)>,
    /// Events: GPU, recordings enqueued, and those of them that have not passed.
    events: BTreeMap<u64, (u32, u64, BTreeSet<u64>)>,
    gpus_dead: BTreeSet<u32>,
    gpus_stalled: BTreeSet<u32>,
    /// Streams whose copies never end.
    stuck: BTreeSet<u64>,
    /// Bytes of allocated memory, by address, and the memory that was freed.
    allocated: BTreeMap<u64, u64>,
    freed: Vec<Range<u64>>,
    next: u64,
    memory: u64,
}

impl World {
    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
    fn call(&self, call: &str, gpu: u32) -> CallResult<()> {
        if !self.gpus_dead.contains(&gpu) {
            return Ok(());
        }
        let reason = "the device was lost";
        Err(CallError::new(Severity::Sticky, call, format!("gpu{gpu}"), reason))
    }
    fn stream(&mut self, call: &str, stream: StreamId) -> CallResult<&mut VecDeque<StreamOp>> {
        let gpu = self.streams[&stream.0].0;
        self.call(call, gpu)?;
        Ok(&mut self.streams.get_mut(&stream.0).unwrap().1)
    }
    /// Passes events, and waits for passed events, at the heads of all streams.
    fn pass_events(&mut self) {
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for (_, ops) in self.streams.values_mut() {
                while let Some(op) = ops.front().copied() {
                    match op {
                        StreamOp::Record(event, nth) => {
                            self.events.get_mut(&event).unwrap().2.remove(&nth);
                        }
                        StreamOp::Wait(event, nth) if !self.events[&event].2.contains(&nth) => {}
                        StreamOp::Wait(..) | StreamOp::Copy { .. } => break,
                    }
                    ops.pop_front();
                    moved = true;
                }
            }
        }
    }
    fn end_copy(&mut self, stream: u64) {
        let op = self.streams.get_mut(&stream).unwrap().1.pop_front();
        if let Some(StreamOp::Copy { dst, src, bytes }) = op {
            let is_freed = |at: &u64| self.freed.iter().any(|range| range.contains(at));
            assert!(![dst, src].iter().any(is_freed), "{dst:x} or {src:x} was freed");
            for offset in (0..bytes).step_by(CELL as usize) {
                let stamp = self.cells.get(&((src + offset) / CELL)).copied().unwrap_or_default();
                self.cells.insert((dst + offset) / CELL, stamp);
            }
        }
        self.pass_events();
    }
    fn steps(&self, may_fail: bool) -> Vec<Step> {
        let runs = |gpu: &u32| !self.gpus_stalled.contains(gpu);
        let copies = |ops: &VecDeque<StreamOp>| matches!(ops.front(), Some(StreamOp::Copy { .. }));
        let streams = self.streams.iter().filter(|(stream, _)| !self.stuck.contains(stream));
        let busy = streams.filter(|(_, (gpu, ops))| runs(gpu) && copies(ops));
        let mut steps: Vec<Step> = busy.map(|(&stream, _)| Step::Ends(stream)).collect();
        if may_fail {
            steps.extend([Step::Dies, Step::Stalls]);
        }
        steps
    }
    fn take(&mut self, step: Step) {
        match step {
            Step::Ends(stream) => self.end_copy(stream),
            Step::Stalls => {
                self.gpus_stalled.insert(RELAY);
            }
            Step::Dies => {
                self.gpus_dead.insert(RELAY);
                for (gpu, ops) in self.streams.values_mut() {
                    if *gpu == RELAY {
                        ops.clear();
                    }
                }
            }
        }
    }
}

struct ScriptedDriver(Rc<RefCell<World>>);

macro_rules! not_used {
    ($($name:ident($($arg:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $(_: $arg),*) -> CallResult<$result> {
            Err(CallError::unsupported(stringify!($name), "a scripted driver", "it is not used"))
        })*
    };
}

impl Driver for ScriptedDriver {
    fn name(&self) -> &str {
        "scripted"
    }
    fn peer_access(&self, _: u32, _: u32) -> CallResult<PeerAccess> {
        Ok(PeerAccess::Direct)
    }
    fn enable_peer(&self, from: u32, _: u32) -> CallResult<()> {
        self.0.borrow().call("enable_peer", from)
    }
    fn alloc(&self, place: Place, bytes: Bytes) -> CallResult<u64> {
        let mut world = self.0.borrow_mut();
        world.call("alloc", place.unit.gpu().unwrap())?;
        let address = (3 << 40) + world.memory;
        world.memory += bytes.0;
        world.allocated.insert(address, bytes.0);
        Ok(address)
    }
    fn free(&self, address: u64) -> CallResult<()> {
        let mut world = self.0.borrow_mut();
        let bytes = world.allocated.remove(&address).unwrap();
        world.freed.push(address..address + bytes);
        Ok(())
    }
    fn stream_create(&self, gpu: u32) -> CallResult<StreamId> {
        let mut world = self.0.borrow_mut();
        world.call("stream_create", gpu)?;
        let id = world.id();
        world.streams.insert(id, (gpu, VecDeque::new()));
        Ok(StreamId(id))
    }
    fn stream_destroy(&self, _: StreamId) -> CallResult<()> {
        // What it holds still ends, as on a device.
        Ok(())
    }
    fn event_create(&self, gpu: u32) -> CallResult<EventId> {
        let mut world = self.0.borrow_mut();
        world.call("event_create", gpu)?;
        let id = world.id();
        world.events.insert(id, (gpu, 0, BTreeSet::new()));
        Ok(EventId(id))
    }
    fn event_destroy(&self, _: EventId) -> CallResult<()> {
        Ok(())
    }
    fn event_record(&self, event: EventId, stream: StreamId) -> CallResult<()> {
        let mut world = self.0.borrow_mut();
        let (_, recorded, pending) = world.events.get_mut(&event.0).unwrap();
        *recorded += 1;
        let nth = *recorded;
        pending.insert(nth);
        world.stream("event_record", stream)?.push_back(StreamOp::Record(event.0, nth));
        world.pass_events();
        Ok(())
    }
    fn stream_wait_event(&self, stream: StreamId, event: EventId) -> CallResult<()> {
        let mut world = self.0.borrow_mut();
        let recorded = world.events[&event.0].1;
        world.stream("stream_wait_event", stream)?.push_back(StreamOp::Wait(event.0, recorded));
        world.pass_events();
        Ok(())
    }
    fn event_done(&self, event: EventId) -> CallResult<bool> {
        let world = self.0.borrow();
        let (gpu, recorded, pending) = &world.events[&event.0];
        world.call("event_done", *gpu)?;
        Ok(!pending.contains(recorded))
    }
    fn copy(
        &self,
        stream: StreamId,
        dst: u64,
        src: u64,
        bytes: Bytes,
        _: CopyChoice,
    ) -> CallResult<()> {
        let mut world = self.0.borrow_mut();
        world.stream("copy", stream)?.push_back(StreamOp::Copy { dst, src, bytes: bytes.0 });
        Ok(())
    }
    fn copy_engine_name(&self, _: u64, _: u64, _: Bytes, _: CopyChoice) -> String {
        String::new()
    }
    not_used! {
        devices() -> Vec<DeviceInfo>;
        memory(u32) -> (Bytes, Bytes);
        register(u64, Bytes) -> ();
        unregister(u64) -> ();
        advise_zero_copy(u64, Bytes, u32) -> ();
        stream_wait(StreamId) -> ();
        stream_idle(StreamId) -> bool;
        event_elapsed(EventId, EventId) -> Ns;
        gate_create() -> GateId;
        gate_hold(GateId, StreamId) -> ();
        gate_release(GateId) -> ();
        gate_destroy(GateId) -> ();
        kernel(u32, &KernelVariant) -> KernelId;
        kernel_unload(KernelId) -> ();
        launch(StreamId, KernelId, &KernelLaunch) -> ();
        follow(StreamId, KernelId, &KernelLaunch, ChainPart) -> ();
        check_read(KernelId, &KernelLaunch, u64) -> bool;
        check_stored(KernelId, &KernelLaunch) -> Option<u64>;
        migrate(StreamId, u64, Bytes, Place, MigrateHow) -> ();
        fill(u64, Bytes, u64, bool) -> ();
        check(u64, Bytes, u64) -> Option<u64>;
    }
}

/// A clock that the test sets.
struct ScriptedClock(Rc<Cell<f64>>);

impl Clock for ScriptedClock {
    fn now(&self) -> Ns {
        Ns(self.0.get())
    }
    fn sleep(&self, time: Ns) {
        self.0.set(self.0.get() + time.0);
    }
    fn name(&self) -> &str {
        "scripted"
    }
}

/// A sequence of choices that is tried in all its values, depth first, or taken at random.
#[derive(Default)]
struct Choices {
    taken: Vec<(usize, usize)>,
    at: usize,
    seed: Option<u64>,
}

impl Choices {
    fn random(seed: u64) -> Self {
        Self { seed: Some(seed), ..Self::default() }
    }
    fn pick(&mut self, options: usize) -> usize {
        if let Some(seed) = self.seed {
            let choice = (pattern::word(seed, self.taken.len() as u64) >> 16) as usize % options;
            self.taken.push((choice, options));
            return choice;
        }
        if self.at == self.taken.len() {
            self.taken.push((0, options));
        }
        self.at += 1;
        self.taken[self.at - 1].0
    }
    /// Goes on to the next sequence. Whether there is one.
    fn next(&mut self) -> bool {
        self.at = 0;
        while let Some((choice, options)) = self.taken.pop() {
            if choice + 1 < options {
                self.taken.push((choice + 1, options));
                return true;
            }
        }
        false
    }
}

/// Gives a machine such a driver and clock.
fn script(machine: &mut Machine) -> (Rc<RefCell<World>>, Rc<Cell<f64>>) {
    let (world, time) = (Rc::new(RefCell::new(World::default())), Rc::new(Cell::new(0.0)));
    machine.driver = Some(Box::new(ScriptedDriver(Rc::clone(&world))));
    machine.clock = Box::new(ScriptedClock(Rc::clone(&time)));
    (world, time)
}

/// Runs one copy in the order that `choices` say; what it ended with.
fn run(
    machine: &mut Machine,
    request: &CopyRequest,
    choices: &mut Choices,
) -> CallResult<CopyReport> {
    let (world, time) = script(machine);
    for cell in 0..BYTES / CELL {
        world.borrow_mut().cells.insert(SRC / CELL + cell, COPIED);
    }
    let mut engine = MultipathEngine::new(machine);
    let id = engine.start(request.clone()).unwrap();
    let mut has_failed = false;
    let outcome = loop {
        while engine.advance() {}
        if let Some(outcome) = engine.take_outcome(id) {
            break outcome;
        }
        let steps = world.borrow().steps(!has_failed);
        if steps.iter().all(|step| !matches!(step, Step::Ends(_))) && has_failed {
            // Only time goes on: first the stall of a fill, then the limit.
            time.set(time.get() + 15e6);
            continue;
        }
        let step = steps[choices.pick(steps.len())];
        has_failed |= !matches!(step, Step::Ends(_));
        world.borrow_mut().take(step);
        time.set(time.get() + 1e4);
    };
    let mut world = world.borrow_mut();
    let destinations = 1 + request.others.len() as u64;
    let cells = || {
        (0..destinations).flat_map(|nth| {
            (0..BYTES / CELL).map(move |cell| (DST + nth * (1 << 36)) / CELL + cell)
        })
    };
    if outcome.is_ok() {
        for cell in cells() {
            assert_eq!(world.cells.get(&cell), Some(&COPIED), "{:?}", choices.taken);
        }
        // The user goes on to use the memory; what is still in flight ends.
        cells().for_each(|cell| {
            world.cells.insert(cell, LATER);
        });
        world.gpus_stalled.clear();
        while let Some(&Step::Ends(stream)) = world.steps(false).first() {
            world.end_copy(stream);
        }
        for cell in cells() {
            assert_eq!(world.cells.get(&cell), Some(&LATER), "late write, {:?}", choices.taken);
        }
    }
    outcome
}

fn copy_request(src: Unit, dst: Unit, others: u32) -> CopyRequest {
    let end = |address, unit| CopyEnd { address, unit };
    let relays = if others > 0 { 1..=others } else { 1..=1 };
    let to_all = (1..=others).map(|gpu| end(DST + u64::from(gpu) * (1 << 36), Unit::Gpu(gpu)));
    CopyRequest {
        src: end(SRC, src),
        dst: end(DST, dst),
        others: to_all.collect(),
        bytes: Bytes(BYTES),
        paths: MultipathSpec {
            gpus: relays.collect(),
            chunk: Bytes(256 << 10),
            agent: CopyAgent::Engine,
            shares: None,
        },
        limit: CopyRequest::time_limit(Ns(1e6)),
    }
}

/// Every order of a copy: how many there are and how many of them end well; of those, pieces that were copied again,
/// relays that were lost, and KiB over relays.
fn explore(src: Unit, dst: Unit, others: u32, most: usize) -> [u64; 5] {
    let request = copy_request(src, dst, others);
    let mut tally = [0; 5];
    let mut choices = Choices::default();
    let mut machine = machine("hgx-h200", Vec::new());
    loop {
        tally[0] += 1;
        if let Ok(report) = run(&mut machine, &request, &mut choices) {
            let relayed = report.paths.iter().skip(1).map(|path| path.bytes.0 >> 10).sum();
            let of_copy = [1, report.repeated, report.lost.len() as u64, relayed];
            tally[1..].iter_mut().zip(of_copy).for_each(|(sum, n)| *sum += n);
        }
        if !choices.next() || tally[0] == most as u64 {
            return tally;
        }
    }
}

/// A relay that dies or stalls is replaced by the direct path.
#[test]
fn every_order_into_a_gpu_arrives() {
    let tally = explore(Unit::Numa(0), Unit::Gpu(0), 0, usize::MAX);
    assert_eq!(tally, [5161, 5161, 1240, 1054, 2_298_752]);
}

#[test]
fn every_order_between_gpus_arrives() {
    let tally = explore(Unit::Gpu(2), Unit::Gpu(0), 0, usize::MAX);
    assert_eq!(tally, [14_204, 14_204, 3074, 2756, 6_471_168]);
}

/// Out of a GPU the relay writes to the destination: if it stalls there, the copy fails at its limit.
#[test]
fn every_order_out_of_a_gpu_arrives_or_fails() {
    let tally = explore(Unit::Gpu(0), Unit::Numa(0), 0, usize::MAX);
    assert_eq!(tally, [10_054, 7552, 7251, 4756, 2_452_736]);
}

/// A fill that waits for the one before it has not stalled: of two that take 8 ms each the second ends after 16. One
/// that takes 12 ms has: its chunk and the one behind it are copied again.
#[test]
fn a_fill_has_stalled_after_10_ms_of_its_own_turn() {
    let request = copy_request(Unit::Numa(0), Unit::Gpu(0), 0);
    for (ms, lost) in [(8.0, 0), (12.0, 1)] {
        let mut machine = machine("hgx-h200", Vec::new());
        let (world, time) = script(&mut machine);
        let mut engine = MultipathEngine::new(&machine);
        let id = engine.start(request.clone()).unwrap();
        let report = loop {
            while engine.advance() {}
            if let Some(outcome) = engine.take_outcome(id) {
                break outcome.unwrap();
            }
            time.set(time.get() + ms * 1e6);
            while engine.advance() {}
            // A copy of each stream that has one.
            let steps = world.borrow().steps(false);
            steps.into_iter().for_each(|step| world.borrow_mut().take(step));
        };
        assert_eq!((report.lost.len() as u64, report.repeated), (lost, 2 * lost), "{ms} ms");
        assert!(lost > 0 || report.paths[1].bytes > Bytes(256 << 10), "{report:?}");
    }
}

/// A relay stalls during a copy, which ends without it. Then the relay works again, in streams that are new, and what
/// it holds of that copy ends at any moment of the next one, which has other bytes and takes all slots, or never.
#[test]
fn a_late_fill_spoils_no_chunk_of_the_next_copy() {
    const LONG: u64 = 4 << 20;
    let first = CopyRequest { bytes: Bytes(LONG), ..copy_request(Unit::Numa(0), Unit::Gpu(0), 0) };
    let next_src = CopyEnd { address: SRC + (1 << 36), ..first.src };
    let mut relayed = 0;
    for seed in 0..200 {
        let mut machine = machine("hgx-h200", Vec::new());
        let (world, time) = script(&mut machine);
        for cell in 0..LONG / CELL {
            world.borrow_mut().cells.insert(SRC / CELL + cell, COPIED);
            world.borrow_mut().cells.insert(next_src.address / CELL + cell, LATER);
        }
        let mut engine = MultipathEngine::new(&machine);
        let mut choices = Choices::random(seed);
        world.borrow_mut().take(Step::Stalls);
        for src in [first.src, next_src] {
            let id = engine.start(CopyRequest { src, ..first.clone() }).unwrap();
            let report = loop {
                while engine.advance() {}
                if let Some(outcome) = engine.take_outcome(id) {
                    break outcome.unwrap();
                }
                let steps = world.borrow().steps(false);
                // Without a step only time goes on, to the stall of a fill.
                time.set(time.get() + if steps.is_empty() { 15e6 } else { 1e4 });
                if !steps.is_empty() {
                    world.borrow_mut().take(steps[choices.pick(steps.len())]);
                }
            };
            let is_first = src == first.src;
            assert_eq!(report.lost.len(), usize::from(is_first));
            world.borrow_mut().gpus_stalled.clear();
            if is_first && seed % 2 == 1 {
                let mut world = world.borrow_mut();
                world.stuck =
                    world.streams.iter().filter(|s| s.1.0 == RELAY).map(|s| *s.0).collect();
            }
            let stamp = if is_first { COPIED } else { LATER };
            for cell in 0..LONG / CELL {
                let found = world.borrow().cells.get(&(DST / CELL + cell)).copied();
                assert_eq!(found, Some(stamp), "cell {cell}, {seed}: {:?}", choices.taken);
            }
            relayed += report.paths.iter().skip(1).map(|path| path.bytes.0).sum::<u64>();
        }
    }
    assert!(relayed > 200 * 2 * (256 << 10), "{relayed}");
}

/// To two GPUs: one that dies or stalls is an end, so the copy fails. The first 10,000 orders.
#[test]
fn every_order_to_all_arrives_or_fails() {
    let tally = explore(Unit::Numa(0), Unit::Gpu(0), 1, 10_000);
    assert_eq!(tally, [10_000, 4515, 0, 0, 1_155_840]);
}

/// Two copies that are enqueued one after the other for two streams, with the same slots, and end in the order that
/// `choices` say: how many of them ended. A relay may die or stall at any point; then its copies may not end, and
/// what a stream has passed is right all the same.
fn run_enqueued(
    machine: &mut Machine,
    requests: &[CopyRequest; 2],
    (may_fail, choices): (bool, &mut Choices),
) -> usize {
    let world = Rc::new(RefCell::new(World::default()));
    for cell in requests.iter().flat_map(|request| cells_from(request.src.address)) {
        world.borrow_mut().cells.insert(cell, stamp_of(cell));
    }
    machine.driver = Some(Box::new(ScriptedDriver(Rc::clone(&world))));
    machine.clock = Box::new(ScriptedClock(Rc::default()));
    let mut engine = MultipathEngine::new(machine);
    let callers = [1, 2].map(|name| CallerStream::new(machine, AT, name));
    let ends = [0, 1].map(|_| machine.gpu(AT).unwrap().event().unwrap());
    for ((caller, request), end) in callers.iter().zip(requests).zip(&ends) {
        caller.copy(&mut engine, request, &[1.0, 1.0]).unwrap();
        caller.stream.record(end).unwrap();
    }
    let (mut has_failed, mut passed) = (!may_fail, [false; 2]);
    loop {
        for ((request, end), passed) in requests.iter().zip(&ends).zip(&mut passed) {
            if *passed || !end.is_done().unwrap() {
                continue;
            }
            *passed = true;
            // The user goes on to use the memory, which nothing writes any more.
            for start in destinations(request) {
                for (cell, from) in cells_from(start).zip(cells_from(request.src.address)) {
                    let stamp = world.borrow_mut().cells.insert(cell, LATER);
                    assert_eq!(stamp, Some(stamp_of(from)), "{:?}", choices.taken);
                }
            }
        }
        let steps = world.borrow().steps(!has_failed);
        if !steps.iter().any(|step| matches!(step, Step::Ends(_))) {
            break;
        }
        let step = steps[choices.pick(steps.len())];
        has_failed |= !matches!(step, Step::Ends(_));
        world.borrow_mut().take(step);
    }
    for (request, passed) in requests.iter().zip(passed) {
        let is_later = |cell| world.borrow().cells.get(&cell) == Some(&LATER);
        assert!(
            !passed || destinations(request).flat_map(cells_from).all(is_later),
            "{:?}",
            choices.taken
        );
    }
    passed.into_iter().filter(|passed| *passed).count()
}

/// A copy, enqueued as a whole or driven by the host, reads its slots at any moment of one that the host drives next.
/// That takes only slots which were read, and no memory in use is replaced by that for its larger chunks.
#[test]
fn the_next_copy_waits_for_slots_that_are_read() {
    let first = copy_request(Unit::Numa(0), Unit::Gpu(AT), 0);
    let next = |end: CopyEnd| CopyEnd { address: end.address + (1 << 36), ..end };
    let mut driven = CopyRequest { src: next(first.src), dst: next(first.dst), ..first.clone() };
    driven.paths.chunk = Bytes(512 << 10);
    let mut relayed = 0;
    for seed in 0..200 {
        let mut machine = machine("hgx-h200", Vec::new());
        let (world, time) = script(&mut machine);
        for cell in [&first, &driven].iter().flat_map(|request| cells_from(request.src.address)) {
            world.borrow_mut().cells.insert(cell, stamp_of(cell));
        }
        let mut engine = MultipathEngine::new(&machine);
        let caller = CallerStream::new(&machine, AT, 1);
        if seed % 2 == 0 {
            caller.copy(&mut engine, &first, &[1.0, 1.0]).unwrap();
        } else {
            engine.start(first.clone()).unwrap();
        }
        let id = engine.start(driven.clone()).unwrap();
        let (mut choices, mut outcome) = (Choices::random(seed), None);
        loop {
            while engine.advance() {}
            outcome = outcome.or_else(|| engine.take_outcome(id));
            let steps = world.borrow().steps(false);
            if steps.is_empty() {
                break;
            }
            time.set(time.get() + 1e4);
            world.borrow_mut().take(steps[choices.pick(steps.len())]);
        }
        relayed += outcome.unwrap().unwrap().paths[1].bytes.0;
        for CopyRequest { src, dst, .. } in [&first, &driven] {
            for (from, to) in cells_from(src.address).zip(cells_from(dst.address)) {
                let found = world.borrow().cells.get(&to).copied();
                assert_eq!(found, Some(stamp_of(from)), "{seed}: {:?}", choices.taken);
            }
        }
    }
    assert!(relayed > 0);
}

/// The GPU of all ends in [`run_enqueued`].
const AT: u32 = 0;

fn destinations(request: &CopyRequest) -> impl Iterator<Item = u64> {
    [request.dst.address].into_iter().chain(request.others.iter().map(|end| end.address))
}

fn cells_from(start: u64) -> impl Iterator<Item = u64> {
    (0..BYTES / CELL).map(move |cell| start / CELL + cell)
}

/// What a cell of a source holds: no two are alike.
fn stamp_of(cell: u64) -> u64 {
    LATER + 1 + cell
}

/// The first orders of two enqueued copies, or random ones: how many copies there were, and how many ended.
fn explore_enqueued((src, dst): (Unit, Unit), others: u32, may_fail: bool) -> (usize, usize) {
    let first = copy_request(src, dst, others);
    let mut second = first.clone();
    // Copies of two streams have no order, and share nothing but the slots.
    second.src.address += 1 << 38;
    second.dst.address += 1 << 38;
    second.others.iter_mut().for_each(|end| end.address += 1 << 38);
    let requests = [first, second];
    let mut machine = machine("hgx-h200", Vec::new());
    let (mut copies, mut ended) = (0, 0);
    let orders = count("PATHLINE_TEST_ORDERS", 40);
    for seed in 0..orders {
        let mut choices = Choices::random(seed);
        ended += run_enqueued(&mut machine, &requests, (may_fail, &mut choices));
        copies += 2;
    }
    let mut choices = Choices::default();
    for _ in 0..orders {
        ended += run_enqueued(&mut machine, &requests, (may_fail, &mut choices));
        copies += 2;
        if !choices.next() {
            break;
        }
    }
    (copies, ended)
}

/// `PATHLINE_TEST_ORDERS=1000` for more random orders, and as many in turn.
#[test]
fn every_order_of_enqueued_copies_arrives() {
    let (host, gpu) = (Unit::Numa(0), Unit::Gpu(AT));
    for (ends, others) in
        [((host, gpu), 0), ((gpu, host), 0), ((Unit::Gpu(2), gpu), 0), ((host, gpu), 1)]
    {
        let (copies, ended) = explore_enqueued(ends, others, false);
        assert_eq!(copies, ended, "{ends:?}");
        let (copies, ended) = explore_enqueued(ends, others, true);
        println!("{ends:?}: {ended} of {copies} end although gpu1 fails");
        assert!(0 < ended && ended < copies, "{ends:?}: {ended} of {copies}");
    }
}
