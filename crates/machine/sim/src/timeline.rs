//! Streams, teams, gates and events in virtual time.
//!
//! Enqueued operations keep their time of issue. Nothing happens until [`SimTimeline::step`] is
//! called, and the caller decides how far.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use pathline_flow::{FlowEnd, FlowOperation, LiveFlow, LiveFlows, RateDemand};

use crate::calendar::EventCalendar;
use crate::dispatch::KernelQueues;
use crate::engines::EngineQueues;
use crate::path_counts::PathCounts;

/// Bytes in flight, or dependent steps.
#[derive(Debug)]
pub(crate) struct LaneTransfer<E> {
    pub(crate) operation: Rc<FlowOperation>,
    /// Time before the first byte moves.
    pub(crate) alpha: f64,
    /// Bytes that take the time of the payload, with the spread of times; 0 if none.
    pub(crate) amount: f64,
    /// Payload, which counters count.
    pub(crate) payload: f64,
    /// Time of dependent steps, which share nothing.
    pub(crate) steps: f64,
    /// Its effect on memory at its end.
    pub(crate) effect: E,
}

/// An operation of a lane; they run in order.
#[derive(Debug)]
pub(crate) enum LaneOp<E> {
    Transfer(LaneTransfer<E>),
    /// The event happens; which of its recordings this is.
    Record(u64, u64),
    /// Waits for a recording of an event.
    Await(u64, u64),
    Hold(u64),
}

/// The transfer at the head of a lane, whose bytes move.
#[derive(Debug)]
struct MovingHead {
    lane: u64,
    operation: Rc<FlowOperation>,
    /// Amount and payload of the transfer.
    amount: f64,
    payload: f64,
}

impl MovingHead {
    /// Payload that has moved when `left` of the amount is left.
    fn moved(&self, left: f64) -> f64 {
        self.payload * (1.0 - left / self.amount)
    }
}

impl LiveFlow for MovingHead {
    fn demand(&self) -> RateDemand<'_> {
        RateDemand::from(&*self.operation)
    }
}

/// The use of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneOwner {
    /// A stream of a GPU.
    Stream(u32),
    /// Threads of a NUMA domain.
    Team(u32, u32),
    /// Workers on the files of a store.
    Files(u32, u32),
}

/// The state of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneState {
    /// Nothing is enqueued.
    Idle,
    /// A turn of it is on the calendar.
    Due,
    /// It waits for a gate, an event or an engine, which will wake it.
    Parked,
    /// Its bytes move; their end is on the calendar, unless the rate is 0.
    Moving,
}

#[derive(Debug)]
struct SimLane<E> {
    owner: LaneOwner,
    /// With the time of issue.
    queue: VecDeque<(f64, LaneOp<E>)>,
    state: LaneState,
    /// When the running or last transfer began.
    began: f64,
    /// When the last operation ended.
    ended: f64,
    /// When the next operation can begin: the gap after an event.
    ready: f64,
}

#[derive(Debug, Default)]
struct SimGate {
    open_at: Option<f64>,
    parked: Vec<u64>,
    /// Holds that are enqueued and not passed.
    holds: u32,
    destroyed: bool,
}

#[derive(Debug, Default)]
struct SimEvent {
    /// Recordings enqueued so far.
    recorded: u64,
    /// The last recording that happened.
    happened: u64,
    /// Recordings that are enqueued and did not happen: a later one may happen first, on another lane.
    pending: BTreeSet<u64>,
    at: f64,
    parked: Vec<u64>,
    /// Records and waits that are enqueued and not passed.
    users: u32,
    destroyed: bool,
}

/// Something on the calendar.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CalendarTurn {
    /// The lane looks at the head of its queue.
    Look(u64),
    /// The lane's bytes begin to move.
    Move(u64),
    /// The lane's head is done.
    Done(u64),
    /// A free engine takes the transfer of a waiting lane.
    Serve(u32),
    /// A free dispatcher of a GPU starts the kernel that waits longest.
    Dispatch(u32),
    /// A flow ends, if its rate has not changed.
    End(FlowEnd),
}

/// All lanes, gates and events of the world, and the calendar.
#[derive(Debug)]
pub(crate) struct SimTimeline<E> {
    now: f64,
    calendar: EventCalendar<CalendarTurn>,
    flows: LiveFlows<MovingHead>,
    engines: EngineQueues,
    kernels: KernelQueues,
    ends: Vec<FlowEnd>,
    /// What transfers that ended have moved.
    counts: PathCounts,
    lanes: BTreeMap<u64, SimLane<E>>,
    gates: BTreeMap<u64, SimGate>,
    events: BTreeMap<u64, SimEvent>,
    handles: u64,
    /// Time from the record of an event to the next operation of the stream, ns.
    event_gap: f64,
}

/// The engine that the head of a queue waits for: that of a transfer with one, or of recordings and
/// such a transfer, if all are issued. As found on H200s, a stream records its start when its engine
/// turns to it.
fn asks<E>(queue: &VecDeque<(f64, LaneOp<E>)>, now: f64) -> Option<u32> {
    let mut issued = queue.iter().take_while(|(at, _)| *at <= now).map(|(_, op)| op);
    match issued.find(|op| !matches!(op, LaneOp::Record(..)))? {
        LaneOp::Transfer(transfer) => transfer.operation.queue,
        _ => None,
    }
}

impl<E> SimTimeline<E> {
    /// An empty world with resources of these capacities in GB/s.
    pub(crate) fn new(capacities: Vec<f64>) -> Self {
        Self {
            counts: PathCounts::default(),
            now: 0.0,
            calendar: EventCalendar::default(),
            flows: LiveFlows::new(capacities),
            engines: EngineQueues::default(),
            kernels: KernelQueues::default(),
            ends: Vec::new(),
            lanes: BTreeMap::new(),
            gates: BTreeMap::new(),
            events: BTreeMap::new(),
            handles: 0,
            event_gap: 0.0,
        }
    }

    /// The same, where the seed decides in which order engines serve what becomes ready at once.
    pub(crate) fn with_orders_of(mut self, seed: u64) -> Self {
        self.engines.reseed(seed);
        self
    }

    /// The same with counters of what passes resources.
    pub(crate) fn with_counts(mut self, counts: PathCounts) -> Self {
        self.counts = counts;
        self
    }

    /// The same, where an operation begins `gap` ns after an event that was recorded before it.
    pub(crate) fn with_event_gap(mut self, gap: f64) -> Self {
        self.event_gap = gap;
        self
    }

    /// How far the world has come.
    pub(crate) fn now(&self) -> f64 {
        self.now
    }
    /// A handle that no other thing of the world has.
    pub(crate) fn handle(&mut self) -> u64 {
        self.handles += 1;
        self.handles
    }
    /// The rate that an operation gets alone, in GB/s.
    pub(crate) fn alone(&self, operation: &FlowOperation) -> f64 {
        RateDemand::from(operation).alone(self.flows.capacities())
    }

    /// What each counter shows at `now`, with what transfers in flight have moved.
    pub(crate) fn moved_at(&self, now: f64) -> Vec<f64> {
        let mut counts = self.counts.clone();
        for (head, left) in self.flows.left_at(now) {
            counts.add(&head.operation, head.moved(left));
        }
        counts.into_bytes()
    }

    fn put_ends(&mut self) {
        let mut ends = std::mem::take(&mut self.ends);
        for end in ends.drain(..) {
            self.calendar.put(end.at, CalendarTurn::End(end));
        }
        self.ends = ends;
    }

    /// A new lane.
    pub(crate) fn lane_create(&mut self, owner: LaneOwner) -> u64 {
        let id = self.handle();
        let (queue, state) = (VecDeque::new(), LaneState::Idle);
        self.lanes.insert(id, SimLane { owner, queue, state, began: 0.0, ended: 0.0, ready: 0.0 });
        id
    }
    /// The owner of a lane, if there is one.
    pub(crate) fn lane_owner(&self, lane: u64) -> Option<LaneOwner> {
        self.lanes.get(&lane).map(|l| l.owner)
    }
    /// When the last operation ended, if nothing is left to do.
    pub(crate) fn lane_idle(&self, lane: u64) -> Option<f64> {
        let lane = self.lanes.get(&lane)?;
        lane.queue.is_empty().then_some(lane.ended)
    }
    /// From the beginning of the last transfer to its end.
    pub(crate) fn lane_busy_time(&self, lane: u64) -> f64 {
        self.lanes.get(&lane).map_or(0.0, |l| l.ended - l.began)
    }
    /// Enqueues, at the time of issue.
    pub(crate) fn push(&mut self, lane: u64, issued: f64, op: LaneOp<E>) {
        match &op {
            LaneOp::Hold(gate) => {
                if let Some(gate) = self.gates.get_mut(gate) {
                    gate.holds += 1;
                }
            }
            LaneOp::Record(event, _) | LaneOp::Await(event, _) => {
                if let Some(event) = self.events.get_mut(event) {
                    event.users += 1;
                }
            }
            LaneOp::Transfer(_) => {}
        }
        let Some(l) = self.lanes.get_mut(&lane) else { return };
        l.queue.push_back((issued, op));
        if l.state == LaneState::Idle {
            l.state = LaneState::Due;
            self.calendar.put(issued, CalendarTurn::Look(lane));
        }
    }
    /// Takes the last operation of a lane back, where it has not begun.
    pub(crate) fn take_back(&mut self, lane: u64) -> Option<E> {
        let l = self.lanes.get_mut(&lane)?;
        let begun = l.queue.len() == 1 && l.state == LaneState::Moving;
        let op = if begun { None } else { l.queue.pop_back() };
        let (_, op) = op?;
        let left = l.queue.len();
        if self.engines.waits(lane) || self.kernels.waits(lane) {
            self.leave(lane);
            if let Some(l) = self.lanes.get_mut(&lane) {
                l.state = if left > 0 { LaneState::Due } else { LaneState::Idle };
            }
            self.calendar.put(self.now, CalendarTurn::Look(lane));
        }
        self.pass(&op);
        if let LaneOp::Transfer(transfer) = op { Some(transfer.effect) } else { None }
    }
    /// Ends a lane, with what it had still to do.
    pub(crate) fn lane_destroy(&mut self, lane: u64) -> Vec<E> {
        let Some(gone) = self.lanes.remove(&lane) else { return Vec::new() };
        let begun = self.flows.left_at(self.now).find(|(head, _)| head.lane == lane);
        if let Some((head, left)) = begun {
            self.counts.add(&head.operation, head.moved(left));
        }
        self.flows.abandon(self.now, |head| head.lane == lane, &mut self.ends);
        self.put_ends();
        self.leave(lane);
        let mut left = Vec::new();
        for (_, op) in gone.queue {
            self.pass(&op);
            if let LaneOp::Transfer(transfer) = op {
                left.push(transfer.effect);
            }
        }
        left
    }

    /// Leaves the engines and dispatchers that a lane holds or waits for to others.
    fn leave(&mut self, lane: u64) {
        if let Some(gpu) = self.kernels.forget(lane) {
            self.calendar.put(self.now, CalendarTurn::Dispatch(gpu));
        }
        for queue in self.engines.forget(lane) {
            self.calendar.put(self.now, CalendarTurn::Serve(queue));
        }
    }

    /// A new gate, closed.
    pub(crate) fn gate_create(&mut self) -> u64 {
        let id = self.handle();
        self.gates.insert(id, SimGate::default());
        id
    }
    /// Whether there is such a gate.
    pub(crate) fn gate_exists(&self, gate: u64) -> bool {
        self.gates.get(&gate).is_some_and(|g| !g.destroyed)
    }
    /// Opens a gate.
    pub(crate) fn gate_open(&mut self, gate: u64, at: f64) {
        let Some(g) = self.gates.get_mut(&gate) else { return };
        g.open_at.get_or_insert(at);
        let parked = std::mem::take(&mut g.parked);
        self.wake(parked, at);
    }
    /// Opens a gate and forgets it when nothing is held by it.
    pub(crate) fn gate_destroy(&mut self, gate: u64, at: f64) {
        self.gate_open(gate, at);
        if let Some(g) = self.gates.get_mut(&gate) {
            g.destroyed = true;
            if g.holds == 0 {
                self.gates.remove(&gate);
            }
        }
    }
    fn wake(&mut self, parked: Vec<u64>, at: f64) {
        for lane in parked {
            if let Some(l) = self.lanes.get_mut(&lane) {
                l.state = LaneState::Due;
                self.calendar.put(at, CalendarTurn::Look(lane));
            }
        }
    }

    /// A new event.
    pub(crate) fn event_create(&mut self) -> u64 {
        let id = self.handle();
        self.events.insert(id, SimEvent::default());
        id
    }
    /// Whether there is such an event.
    pub(crate) fn event_exists(&self, event: u64) -> bool {
        self.events.get(&event).is_some_and(|e| !e.destroyed)
    }
    /// Enqueues a recording.
    pub(crate) fn event_record(&mut self, event: u64, lane: u64, issued: f64) {
        let Some(e) = self.events.get_mut(&event) else { return };
        e.recorded += 1;
        e.pending.insert(e.recorded);
        let op = LaneOp::Record(event, e.recorded);
        self.push(lane, issued, op);
    }
    /// Enqueues a wait for the last recording that was enqueued so far.
    pub(crate) fn event_await(&mut self, event: u64, lane: u64, issued: f64) {
        let Some(e) = self.events.get_mut(&event) else { return };
        let op = LaneOp::Await(event, e.recorded);
        self.push(lane, issued, op);
    }
    /// When the event happened, if the last recording has.
    pub(crate) fn event_time(&self, event: u64) -> Option<f64> {
        let event = self.events.get(&event)?;
        (event.recorded > 0 && event.happened == event.recorded).then_some(event.at)
    }
    /// Forgets an event when nothing waits for it.
    pub(crate) fn event_destroy(&mut self, event: u64) {
        if let Some(e) = self.events.get_mut(&event) {
            e.destroyed = true;
            if e.users == 0 {
                self.events.remove(&event);
            }
        }
    }

    /// When the next thing happens, if anything will.
    pub(crate) fn next(&self) -> Option<f64> {
        self.calendar.next_at()
    }

    /// Lets the next thing happen: the effect of the transfer that it ends, if it does.
    pub(crate) fn step(&mut self) -> Option<E> {
        let (at, turn) = self.calendar.pop()?;
        self.now = self.now.max(at);
        match turn {
            CalendarTurn::Look(lane) => {
                self.look(lane);
                None
            }
            CalendarTurn::Move(lane) => {
                self.begin_moving(lane);
                None
            }
            CalendarTurn::Done(lane) => self.done(lane),
            CalendarTurn::Serve(queue) => {
                if let Some(lane) = self.engines.next(queue) {
                    let recorded = self.record_starts(lane);
                    self.begin(lane, if recorded { self.event_gap } else { 0.0 });
                }
                None
            }
            CalendarTurn::Dispatch(gpu) => {
                while let Some((lane, slower)) = self.kernels.next(gpu) {
                    self.slow_kernel(lane, slower);
                    self.begin(lane, 0.0);
                }
                None
            }
            CalendarTurn::End(end) => {
                let head = self.flows.end(end, &mut self.ends);
                self.put_ends();
                self.done(head?.lane)
            }
        }
    }

    /// Works off what takes no time at the head of a lane, and begins what does.
    fn look(&mut self, lane: u64) {
        let now = self.now;
        while let Some(l) = self.lanes.get_mut(&lane) {
            let Some((issued, op)) = l.queue.front() else {
                l.state = LaneState::Idle;
                return;
            };
            let ready = issued.max(l.ready);
            let until = if ready > now {
                Some(ready)
            } else {
                match op {
                    LaneOp::Hold(gate) => match self.gates.get_mut(gate) {
                        Some(SimGate { open_at: None, parked, .. }) => {
                            parked.push(lane);
                            l.state = LaneState::Parked;
                            return;
                        }
                        Some(SimGate { open_at, .. }) => open_at.filter(|&at| at > now),
                        None => None,
                    },
                    LaneOp::Await(event, recording) => match self.events.get_mut(event) {
                        Some(e) if e.pending.contains(recording) => {
                            e.parked.push(lane);
                            l.state = LaneState::Parked;
                            return;
                        }
                        _ => None,
                    },
                    LaneOp::Record(..) | LaneOp::Transfer(_) => match asks(&l.queue, now) {
                        Some(queue) => {
                            // Its turn is after all that becomes ready at this instant.
                            l.state = LaneState::Parked;
                            self.engines.ask(queue, lane, now);
                            self.calendar.put(now, CalendarTurn::Serve(queue));
                            return;
                        }
                        None => match op {
                            LaneOp::Transfer(transfer) => {
                                match transfer.operation.turn {
                                    Some(turn) => {
                                        l.state = LaneState::Parked;
                                        self.kernels.ask(turn, lane, now);
                                        self.calendar.put(now, CalendarTurn::Dispatch(turn.gpu));
                                    }
                                    None => self.begin(lane, 0.0),
                                }
                                return;
                            }
                            _ => None,
                        },
                    },
                }
            };
            if let Some(at) = until {
                l.state = LaneState::Due;
                self.calendar.put(at, CalendarTurn::Look(lane));
                return;
            }
            l.ended = now;
            let Some((_, op)) = l.queue.pop_front() else { continue };
            if matches!(op, LaneOp::Record(..)) {
                l.ready = now + self.event_gap;
            }
            self.happen(&op);
            self.pass(&op);
        }
    }

    /// A recording happens, and wakes the lanes that wait for it.
    fn happen(&mut self, op: &LaneOp<E>) {
        if let LaneOp::Record(event, recording) = op
            && let Some(e) = self.events.get_mut(event)
        {
            e.pending.remove(recording);
            // An earlier recording may happen later, on another lane: the last one counts.
            if *recording > e.happened {
                (e.happened, e.at) = (*recording, self.now);
            }
            let parked = std::mem::take(&mut e.parked);
            self.wake(parked, self.now);
        }
    }

    /// Forgets that a gate or event had this user.
    fn pass(&mut self, op: &LaneOp<E>) {
        match op {
            LaneOp::Hold(gate) => {
                if let Some(g) = self.gates.get_mut(gate) {
                    g.holds = g.holds.saturating_sub(1);
                    if g.destroyed && g.holds == 0 {
                        self.gates.remove(gate);
                    }
                }
            }
            LaneOp::Record(event, _) | LaneOp::Await(event, _) => {
                if let Some(e) = self.events.get_mut(event) {
                    e.users = e.users.saturating_sub(1);
                    if e.destroyed && e.users == 0 {
                        self.events.remove(event);
                    }
                }
            }
            LaneOp::Transfer(_) => {}
        }
    }

    /// Recordings before a transfer by an engine happen when the engine starts it: whether there are any.
    fn record_starts(&mut self, lane: u64) -> bool {
        let mut any = false;
        while let Some(l) = self.lanes.get_mut(&lane)
            && let Some((_, LaneOp::Record(..))) = l.queue.front()
            && let Some((_, op)) = l.queue.pop_front()
        {
            self.happen(&op);
            self.pass(&op);
            any = true;
        }
        any
    }

    /// The kernel at the head of a lane takes `slower` times as long.
    fn slow_kernel(&mut self, lane: u64, slower: f64) {
        let head = self.lanes.get_mut(&lane).and_then(|l| l.queue.front_mut());
        if let Some((_, LaneOp::Transfer(transfer))) = head.filter(|_| slower > 1.0) {
            let operation = &transfer.operation;
            let cap = operation.cap * (1.0 / slower);
            transfer.operation = Rc::new(FlowOperation { cap, ..(**operation).clone() });
        }
    }

    /// The transfer at the head of a lane begins, after `gap` ns.
    fn begin(&mut self, lane: u64, gap: f64) {
        let Some(l) = self.lanes.get_mut(&lane) else { return };
        let Some((_, LaneOp::Transfer(transfer))) = l.queue.front() else { return };
        (l.began, l.state) = (self.now, LaneState::Due);
        let at = self.now + gap + transfer.alpha;
        self.calendar.put(at, CalendarTurn::Move(lane));
    }

    fn begin_moving(&mut self, lane: u64) {
        let Some(l) = self.lanes.get_mut(&lane) else { return };
        let Some((_, LaneOp::Transfer(transfer))) = l.queue.front() else { return };
        let (amount, steps) = (transfer.amount, transfer.steps);
        l.state = LaneState::Moving;
        if amount > 0.0 {
            let (operation, payload) = (Rc::clone(&transfer.operation), transfer.payload);
            let head = MovingHead { lane, operation, amount, payload };
            self.flows.start(self.now, head, amount, &mut self.ends);
            self.put_ends();
        } else {
            self.calendar.put(self.now + steps, CalendarTurn::Done(lane));
        }
    }

    fn done(&mut self, lane: u64) -> Option<E> {
        let l = self.lanes.get_mut(&lane)?;
        l.ended = self.now;
        let head = l.queue.pop_front();
        let queue = match &head {
            Some((_, LaneOp::Transfer(transfer))) => {
                self.counts.add(&transfer.operation, transfer.payload);
                transfer.operation.queue
            }
            _ => None,
        };
        if let Some(queue) = queue {
            self.engines.done(queue, lane);
        }
        if let Some(gpu) = self.kernels.done(lane) {
            self.calendar.put(self.now, CalendarTurn::Dispatch(gpu));
        }
        self.look(lane);
        if let Some(queue) = queue {
            self.calendar.put(self.now, CalendarTurn::Serve(queue));
        }
        match head {
            Some((_, LaneOp::Transfer(transfer))) => Some(transfer.effect),
            _ => None,
        }
    }

    /// The waiting lanes and what they wait for, for the report of a deadlock.
    pub(crate) fn waiting_lanes(&self) -> String {
        let waits = |(id, lane): (&u64, &SimLane<E>)| {
            let (_, head) = lane.queue.front()?;
            let what = match head {
                LaneOp::Hold(gate) => format!("gate {gate}, which nobody has released"),
                LaneOp::Await(event, _) => format!("event {event}, which will not happen"),
                LaneOp::Record(..) => "its turn".to_owned(),
                LaneOp::Transfer(t) if lane.state == LaneState::Parked => {
                    format!("its turn at the {}", t.operation.engine)
                }
                LaneOp::Transfer(t) => format!("bytes that cannot move ({})", t.operation.engine),
            };
            Some(match lane.owner {
                LaneOwner::Stream(gpu) => format!("stream {id} of gpu{gpu} waits for {what}"),
                LaneOwner::Team(numa, threads) => {
                    format!("team {id} of {threads} threads on numa{numa} waits for {what}")
                }
                LaneOwner::Files(store, threads) => {
                    format!("{threads} workers on store{store} wait for {what}")
                }
            })
        };
        self.lanes.iter().filter_map(waits).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests;
