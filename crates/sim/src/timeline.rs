//! Streams, teams, gates and events in virtual time.
//!
//! What is enqueued keeps its time of issue. Nothing happens until [`Timeline::step`] is called,
//! and the caller decides how far.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;

use pathline_flow::Operation;

use crate::fluid::{End, Fluid};

/// Bytes on their way, or dependent steps.
#[derive(Debug)]
pub(crate) struct Transfer<E> {
    pub(crate) operation: Rc<Operation>,
    /// Time before the first byte moves.
    pub(crate) alpha: f64,
    /// Payload to move; 0 if none.
    pub(crate) amount: f64,
    /// Time of dependent steps, which share nothing.
    pub(crate) steps: f64,
    /// What it does to memory at its end.
    pub(crate) effect: E,
}

/// What a lane does, one after the other.
#[derive(Debug)]
pub(crate) enum Op<E> {
    Transfer(Transfer<E>),
    /// The event happens; which of its recordings this is.
    Record(u64, u64),
    /// Waits for a recording of an event.
    Await(u64, u64),
    Hold(u64),
}

/// What a lane is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A stream of a GPU.
    Stream(u32),
    /// Threads of a NUMA domain.
    Team(u32, u32),
}

/// What a lane is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is enqueued.
    Idle,
    /// A turn of it is on the calendar.
    Due,
    /// It waits for a gate or an event, which will wake it.
    Parked,
    /// Its bytes move; their end is on the calendar, unless the rate is 0.
    Moving,
}

#[derive(Debug)]
struct Lane<E> {
    owner: Owner,
    /// With the time of issue.
    queue: VecDeque<(f64, Op<E>)>,
    state: State,
    /// When the running or last transfer began.
    began: f64,
    /// When the last operation ended.
    ended: f64,
}

#[derive(Debug, Default)]
struct Gate {
    open_at: Option<f64>,
    parked: Vec<u64>,
    /// Holds that are enqueued and not passed.
    holds: u32,
    destroyed: bool,
}

#[derive(Debug, Default)]
struct Event {
    /// Recordings enqueued so far.
    recorded: u64,
    /// The last recording that happened.
    happened: u64,
    at: f64,
    parked: Vec<u64>,
    /// Records and waits that are enqueued and not passed.
    users: u32,
    destroyed: bool,
}

/// Something on the calendar.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Turn {
    /// The lane looks at the head of its queue.
    Look(u64),
    /// The lane's bytes begin to move.
    Move(u64),
    /// The lane's head is done.
    Done(u64),
    /// A flow ends, if its rate has not changed.
    End(End),
}

#[derive(Debug)]
struct Entry {
    at: f64,
    /// Turns of the same instant go in the order in which they were put down.
    order: u64,
    turn: Turn,
}

impl Ord for Entry {
    /// The earliest is the greatest, as the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.order.cmp(&self.order))
    }
}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Entry {}

/// All lanes, gates and events of the world, and the calendar.
#[derive(Debug)]
pub(crate) struct Timeline<E> {
    now: f64,
    calendar: BinaryHeap<Entry>,
    orders: u64,
    fluid: Fluid,
    ends: Vec<End>,
    lanes: BTreeMap<u64, Lane<E>>,
    gates: BTreeMap<u64, Gate>,
    events: BTreeMap<u64, Event>,
    handles: u64,
}

impl<E> Timeline<E> {
    /// An empty world with resources of these capacities in GB/s.
    pub(crate) fn new(capacities: Vec<f64>) -> Self {
        Self {
            now: 0.0,
            calendar: BinaryHeap::new(),
            orders: 0,
            fluid: Fluid::new(capacities),
            ends: Vec::new(),
            lanes: BTreeMap::new(),
            gates: BTreeMap::new(),
            events: BTreeMap::new(),
            handles: 0,
        }
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
    pub(crate) fn alone(&self, operation: &Operation) -> f64 {
        self.fluid.alone(operation)
    }

    fn put(&mut self, at: f64, turn: Turn) {
        self.orders += 1;
        self.calendar.push(Entry { at, order: self.orders, turn });
    }
    fn put_ends(&mut self) {
        let mut ends = std::mem::take(&mut self.ends);
        for end in ends.drain(..) {
            self.put(end.at, Turn::End(end));
        }
        self.ends = ends;
    }

    /// A new lane.
    pub(crate) fn lane_create(&mut self, owner: Owner) -> u64 {
        let id = self.handle();
        let (queue, state) = (VecDeque::new(), State::Idle);
        self.lanes.insert(id, Lane { owner, queue, state, began: 0.0, ended: 0.0 });
        id
    }
    /// Whose lane it is, if there is one.
    pub(crate) fn lane_owner(&self, lane: u64) -> Option<Owner> {
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
    pub(crate) fn push(&mut self, lane: u64, issued: f64, op: Op<E>) {
        match &op {
            Op::Hold(gate) => {
                if let Some(gate) = self.gates.get_mut(gate) {
                    gate.holds += 1;
                }
            }
            Op::Record(event, _) | Op::Await(event, _) => {
                if let Some(event) = self.events.get_mut(event) {
                    event.users += 1;
                }
            }
            Op::Transfer(_) => {}
        }
        let Some(l) = self.lanes.get_mut(&lane) else { return };
        l.queue.push_back((issued, op));
        if l.state == State::Idle {
            l.state = State::Due;
            self.put(issued, Turn::Look(lane));
        }
    }
    /// Takes the last operation of a lane back, where it has not begun.
    pub(crate) fn take_back(&mut self, lane: u64) -> Option<E> {
        let l = self.lanes.get_mut(&lane)?;
        let begun = l.queue.len() == 1 && l.state == State::Moving;
        let op = if begun { None } else { l.queue.pop_back() };
        let (_, op) = op?;
        self.pass(&op);
        if let Op::Transfer(transfer) = op { Some(transfer.effect) } else { None }
    }
    /// Ends a lane, with what it had still to do.
    pub(crate) fn lane_destroy(&mut self, lane: u64) -> Vec<E> {
        let Some(gone) = self.lanes.remove(&lane) else { return Vec::new() };
        self.fluid.abandon(self.now, lane, &mut self.ends);
        self.put_ends();
        let mut left = Vec::new();
        for (_, op) in gone.queue {
            self.pass(&op);
            if let Op::Transfer(transfer) = op {
                left.push(transfer.effect);
            }
        }
        left
    }

    /// A new gate, closed.
    pub(crate) fn gate_create(&mut self) -> u64 {
        let id = self.handle();
        self.gates.insert(id, Gate::default());
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
                l.state = State::Due;
                self.put(at, Turn::Look(lane));
            }
        }
    }

    /// A new event.
    pub(crate) fn event_create(&mut self) -> u64 {
        let id = self.handle();
        self.events.insert(id, Event::default());
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
        let op = Op::Record(event, e.recorded);
        self.push(lane, issued, op);
    }
    /// Enqueues a wait for the last recording that was enqueued so far.
    pub(crate) fn event_await(&mut self, event: u64, lane: u64, issued: f64) {
        let Some(e) = self.events.get_mut(&event) else { return };
        let op = Op::Await(event, e.recorded);
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
        self.calendar.peek().map(|entry| entry.at)
    }

    /// Lets the next thing happen: the effect of the transfer that it ends, if it does.
    pub(crate) fn step(&mut self) -> Option<E> {
        let entry = self.calendar.pop()?;
        self.now = self.now.max(entry.at);
        match entry.turn {
            Turn::Look(lane) => {
                self.look(lane);
                None
            }
            Turn::Move(lane) => {
                self.begin_moving(lane);
                None
            }
            Turn::Done(lane) => self.done(lane),
            Turn::End(end) => {
                let lane = self.fluid.end(end, &mut self.ends);
                self.put_ends();
                self.done(lane?)
            }
        }
    }

    /// Works off what takes no time at the head of a lane, and begins what does.
    fn look(&mut self, lane: u64) {
        let now = self.now;
        while let Some(l) = self.lanes.get_mut(&lane) {
            let Some((issued, op)) = l.queue.front() else {
                l.state = State::Idle;
                return;
            };
            let issued = *issued;
            let until = if issued > now {
                Some(issued)
            } else {
                match op {
                    Op::Hold(gate) => match self.gates.get_mut(gate) {
                        Some(Gate { open_at: None, parked, .. }) => {
                            parked.push(lane);
                            l.state = State::Parked;
                            return;
                        }
                        Some(Gate { open_at, .. }) => open_at.filter(|&at| at > now),
                        None => None,
                    },
                    Op::Await(event, recording) => match self.events.get_mut(event) {
                        Some(e) if e.happened < *recording => {
                            e.parked.push(lane);
                            l.state = State::Parked;
                            return;
                        }
                        _ => None,
                    },
                    Op::Record(..) => None,
                    Op::Transfer(transfer) => {
                        l.began = now;
                        l.state = State::Due;
                        let at = now + transfer.alpha;
                        self.put(at, Turn::Move(lane));
                        return;
                    }
                }
            };
            if let Some(at) = until {
                l.state = State::Due;
                self.put(at, Turn::Look(lane));
                return;
            }
            l.ended = now;
            if let Some((_, op)) = l.queue.pop_front() {
                self.happen(&op);
                self.pass(&op);
            }
        }
    }

    /// A recording happens, and wakes who waits for it.
    fn happen(&mut self, op: &Op<E>) {
        if let Op::Record(event, recording) = op
            && let Some(e) = self.events.get_mut(event)
        {
            // An earlier recording may happen later, on another lane: the last one counts.
            if *recording > e.happened {
                (e.happened, e.at) = (*recording, self.now);
            }
            let parked = std::mem::take(&mut e.parked);
            self.wake(parked, self.now);
        }
    }

    /// Forgets that a gate or event had this user.
    fn pass(&mut self, op: &Op<E>) {
        match op {
            Op::Hold(gate) => {
                if let Some(g) = self.gates.get_mut(gate) {
                    g.holds = g.holds.saturating_sub(1);
                    if g.destroyed && g.holds == 0 {
                        self.gates.remove(gate);
                    }
                }
            }
            Op::Record(event, _) | Op::Await(event, _) => {
                if let Some(e) = self.events.get_mut(event) {
                    e.users = e.users.saturating_sub(1);
                    if e.destroyed && e.users == 0 {
                        self.events.remove(event);
                    }
                }
            }
            Op::Transfer(_) => {}
        }
    }

    fn begin_moving(&mut self, lane: u64) {
        let Some(l) = self.lanes.get_mut(&lane) else { return };
        let Some((_, Op::Transfer(transfer))) = l.queue.front() else { return };
        let (amount, steps) = (transfer.amount, transfer.steps);
        l.state = State::Moving;
        if amount > 0.0 {
            let operation = Rc::clone(&transfer.operation);
            self.fluid.start(self.now, lane, operation, amount, &mut self.ends);
            self.put_ends();
        } else {
            self.put(self.now + steps, Turn::Done(lane));
        }
    }

    fn done(&mut self, lane: u64) -> Option<E> {
        let l = self.lanes.get_mut(&lane)?;
        l.ended = self.now;
        let head = l.queue.pop_front();
        self.look(lane);
        match head {
            Some((_, Op::Transfer(transfer))) => Some(transfer.effect),
            _ => None,
        }
    }

    /// Who waits for what, where nothing will ever happen.
    pub(crate) fn who_waits(&self) -> String {
        let waits = |(id, lane): (&u64, &Lane<E>)| {
            let (_, head) = lane.queue.front()?;
            let what = match head {
                Op::Hold(gate) => format!("gate {gate}, which nobody has released"),
                Op::Await(event, _) => format!("event {event}, which will not happen"),
                Op::Record(..) => "its turn".to_owned(),
                Op::Transfer(t) => format!("bytes that cannot move ({})", t.operation.engine),
            };
            Some(match lane.owner {
                Owner::Stream(gpu) => format!("stream {id} of gpu{gpu} waits for {what}"),
                Owner::Team(numa, threads) => {
                    format!("team {id} of {threads} threads on numa{numa} waits for {what}")
                }
            })
        };
        self.lanes.iter().filter_map(waits).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use pathline_flow::Use;
    use pathline_schema::{Ns, Rate};

    use super::*;

    /// `bytes` over resource 0, after 50 ns.
    fn transfer(bytes: f64, effect: u32) -> Op<u32> {
        let operation = Operation {
            uses: vec![Use { resource: 0, weight: 1.0 }],
            cap: Rate(99.0),
            share: 1.0,
            queue: None,
            alpha: Ns(50.0),
            call: Ns(1.0),
            blocking: false,
            step: Ns::ZERO,
            route: Vec::new(),
            engine: "wire".into(),
            stages: Vec::new(),
        };
        let operation = Rc::new(operation);
        Op::Transfer(Transfer { alpha: 50.0, amount: bytes, steps: 0.0, operation, effect })
    }

    /// Steps to the end: the effects in order.
    fn run(timeline: &mut Timeline<u32>) -> Vec<u32> {
        let mut effects = Vec::new();
        while timeline.next().is_some() {
            effects.extend(timeline.step());
        }
        effects
    }

    /// 1000 bytes at 10 take 50 + 100. Issued at 7 and 8, the second begins when the first ends:
    /// 157, 307. A third, issued at 1000, ends at 1150.
    #[test]
    fn a_lane_is_a_queue() {
        let mut t = Timeline::new(vec![10.0]);
        let lane = t.lane_create(Owner::Stream(0));
        for (issued, effect) in [(7.0, 1), (8.0, 2), (1000.0, 3)] {
            t.push(lane, issued, transfer(1000.0, effect));
        }
        assert_eq!(t.lane_idle(lane), None);
        assert_eq!(run(&mut t), [1, 2, 3]);
        assert_eq!(t.lane_idle(lane), Some(1150.0));
        assert_eq!(t.lane_busy_time(lane), 150.0);
    }

    /// Two lanes behind a gate that opens at 500: both wait 50, share 10, end at 500 + 50 + 200.
    /// One of them has been parked at the gate; the other's turn comes after the gate was opened
    /// by a host that is ahead of the world.
    #[test]
    fn a_gate_opens_when_it_was_released() {
        let mut t = Timeline::new(vec![10.0]);
        let gate = t.gate_create();
        let lanes = [0, 1].map(|gpu| t.lane_create(Owner::Stream(gpu)));
        for lane in lanes {
            t.push(lane, 3.0, Op::Hold(gate));
            t.push(lane, 4.0, transfer(1000.0, 0));
        }
        t.step();
        assert_eq!(t.next(), Some(3.0), "the second lane still has its turn");
        t.gate_destroy(gate, 500.0);
        assert!(!t.gate_exists(gate));
        run(&mut t);
        assert_eq!(lanes.map(|lane| t.lane_idle(lane)), [Some(750.0); 2]);
        assert!(t.gates.is_empty(), "forgotten when the last lane has passed");
    }

    /// The event is recorded at 150 behind a transfer; the other stream begins there: 300.
    #[test]
    fn an_event_orders_two_lanes() {
        let mut t = Timeline::new(vec![10.0]);
        let event = t.event_create();
        let (a, b) = (t.lane_create(Owner::Stream(0)), t.lane_create(Owner::Stream(1)));
        t.push(a, 0.0, transfer(1000.0, 1));
        t.event_record(event, a, 0.0);
        t.event_await(event, b, 0.0);
        t.push(b, 0.0, transfer(1000.0, 2));
        assert_eq!(t.event_time(event), None);
        assert_eq!(run(&mut t), [1, 2]);
        assert_eq!(t.event_time(event), Some(150.0));
        assert_eq!(t.lane_idle(b), Some(300.0));
        t.event_destroy(event);
        assert!(t.events.is_empty());
    }

    /// An event that was never recorded holds nobody up; one that is recorded again has no time
    /// until that has happened.
    #[test]
    fn recordings_of_an_event() {
        let mut t = Timeline::new(vec![10.0]);
        let event = t.event_create();
        let lane = t.lane_create(Owner::Stream(0));
        t.event_await(event, lane, 0.0);
        t.event_record(event, lane, 0.0);
        run(&mut t);
        assert_eq!(t.event_time(event), Some(0.0));
        t.push(lane, 10.0, transfer(1000.0, 0));
        t.event_record(event, lane, 10.0);
        assert_eq!(t.event_time(event), None);
        run(&mut t);
        assert_eq!(t.event_time(event), Some(160.0));
    }

    /// Recorded on a lane behind a gate, then on a free one: the second recording happens first
    /// and stays the one that counts, for its time and for who waits.
    #[test]
    fn an_earlier_recording_that_happens_later() {
        let mut t = Timeline::new(vec![10.0]);
        let (event, gate) = (t.event_create(), t.gate_create());
        let lanes = [0, 1, 2].map(|gpu| t.lane_create(Owner::Stream(gpu)));
        t.push(lanes[0], 0.0, Op::Hold(gate));
        t.event_record(event, lanes[0], 0.0);
        t.push(lanes[1], 0.0, transfer(1000.0, 0));
        t.event_record(event, lanes[1], 0.0);
        t.gate_open(gate, 400.0);
        run(&mut t);
        t.event_await(event, lanes[2], 500.0);
        run(&mut t);
        assert_eq!(t.event_time(event), Some(150.0));
        assert_eq!(t.lane_idle(lanes[2]), Some(500.0));
    }

    #[test]
    fn who_waits_for_a_closed_gate_is_named() {
        let mut t = Timeline::new(vec![10.0]);
        let gate = t.gate_create();
        let lane = t.lane_create(Owner::Team(2, 4));
        t.push(lane, 0.0, Op::Hold(gate));
        t.push(lane, 0.0, transfer(1000.0, 7));
        run(&mut t);
        let text = t.who_waits();
        assert_eq!(
            text,
            format!(
                "team {lane} of 4 threads on numa2 waits for gate {gate}, which nobody has released"
            )
        );
        assert_eq!(t.take_back(lane), Some(7));
        t.push(lane, 0.0, transfer(1000.0, 8));
        assert_eq!(t.lane_destroy(lane), [8]);
        t.gate_destroy(gate, 1.0);
        assert!(t.gates.is_empty());
        assert_eq!(run(&mut t).len(), 0);
    }

    /// A lane that goes in the middle of a transfer leaves its share to the other: both at 5 from
    /// 50 on; at 150 the first goes, the other has 500 left at 10: 200.
    #[test]
    fn a_destroyed_lane_moves_nothing() {
        let mut t = Timeline::new(vec![10.0]);
        let lanes = [0, 1].map(|gpu| t.lane_create(Owner::Stream(gpu)));
        for lane in lanes {
            t.push(lane, 0.0, transfer(1000.0, 9));
        }
        let clock = t.lane_create(Owner::Stream(2));
        t.push(clock, 150.0, Op::Record(0, 0));
        while t.next().is_some_and(|at| at <= 150.0) {
            t.step();
        }
        assert_eq!(t.lane_destroy(lanes[0]), [9]);
        assert_eq!(run(&mut t), [9]);
        assert_eq!(t.lane_idle(lanes[1]), Some(200.0));
    }
}
