//! One case as MPI calls: the messages that a process posts, waits for and answers in each
//! repetition.

use std::ffi::{c_int, c_void};

use pathline_hal::{CallError, CallResult, FlowPart, LocalMemory, RankBarrier, RepeatMode};
use pathline_schema::{Collective, Severity, WindowKind, WireOp};

use super::one_sided::{OneSidedPart, OpenWindow, RemoteOp, sync_functions};
use super::rank_parts::{blocks, is_passive, rank, refused};
use super::started::{OverlapPart, PersistentPart, short_count};
use super::steps::{
    CollectivePart, MpiMessage, MpiOutcome, UnevenParts, collective_calls, load, pings, receive,
    receive_all, run_collective, send, send_all, wait_all,
};
use super::table::{MpiAddress, MpiHandle};
use super::world::{FailedCall, MpiWorld, ok};
use pathline_host::clock::ClockOrigin;

/// Bytes of the reply to a window, as in OSU's bandwidth tests.
const ANSWER: usize = 4;

/// The operations of one process in each repetition, in this order.
#[derive(Debug, Default)]
struct RankSteps<H> {
    /// A lone ping: whether this process starts, and its message out and back.
    ping: Option<(bool, MpiMessage<H>, MpiMessage<H>)>,
    receive: Vec<MpiMessage<H>>,
    /// Received after the first wait: replies and returned messages.
    receive_late: Vec<MpiMessage<H>>,
    send: Vec<MpiMessage<H>>,
    remote: Vec<OneSidedPart<H>>,
    groups: Vec<CollectivePart<H>>,
    overlaps: Vec<OverlapPart<H>>,
    persistent: Vec<PersistentPart<H>>,
    /// Sent after the messages of the first wait have arrived.
    answer: Vec<MpiMessage<H>>,
    /// Memory to load, byte by byte, after arrival.
    consume: Vec<LocalMemory>,
    /// After the timed part: messages to ranks whose memory was read or written. They wait inside
    /// MPI, because many libraries serve one-sided requests only there.
    token_to: Vec<c_int>,
    token_from: Vec<c_int>,
}

/// How the participating ranks synchronise.
#[derive(Debug, Clone, Copy)]
enum ActiveRanks<H> {
    /// This process takes no part.
    Idle,
    /// Two processes: a message in each direction, because Open MPI polls more once it has made a
    /// communicator. Holds whether this process sends first, and its peer. The source of the first
    /// part does not send first: it leaves first, so its message arrives at a process that has not
    /// started its clock.
    Pair(bool, c_int),
    /// Several, by a barrier on their communicator.
    Several(H),
}

/// A bound case.
#[derive(Debug)]
pub(super) struct MpiExchange<H: MpiHandle> {
    parts: Vec<FlowPart>,
    pace: RepeatMode,
    steps: RankSteps<H>,
    /// The ranks that take part; they synchronise before each timing.
    active: ActiveRanks<H>,
    requests: Vec<H>,
    windows: Vec<OpenWindow<H>>,
    kinds: Vec<H>,
    /// Send and receive buffer of replies.
    answers: Box<[u8; 2 * ANSWER]>,
    /// Why MPI may still access this exchange's memory; `None` if it cannot.
    in_use: Option<&'static str>,
}

/// Timeout in ns for operations that an error left in flight. A cancelled receive ends at once; a
/// message that a peer has begun to receive ends within this time or never.
const CLOSE_TIMEOUT: u64 = 2_000_000_000;

/// 32767 is the highest tag that every library supports.
fn tag(nth: usize, answer: bool) -> c_int {
    c_int::try_from(2 * nth + usize::from(answer)).unwrap_or(c_int::MAX)
}
const TOKEN: c_int = 32_767;

fn address(span: LocalMemory) -> MpiAddress {
    std::ptr::with_exposed_provenance_mut::<c_void>(span.address as usize)
}

impl<H: MpiHandle> MpiExchange<H> {
    /// Stores the parts. No MPI call is made before all processes have done so.
    pub(super) fn new(parts: &[FlowPart], pace: RepeatMode) -> Self {
        Self {
            parts: parts.to_vec(),
            pace,
            steps: RankSteps::default(),
            active: ActiveRanks::Idle,
            requests: Vec::new(),
            windows: Vec::new(),
            kinds: Vec::new(),
            answers: Box::new([0; 2 * ANSWER]),
            in_use: None,
        }
    }

    /// Why MPI may still access this exchange's memory; `None` if it cannot.
    pub(super) fn in_use(&self) -> Option<&'static str> {
        self.in_use
    }

    /// Creates communicators, windows and types. Collective over the participating ranks.
    pub(super) fn join(&mut self, world: &mut MpiWorld<H>) -> CallResult<()> {
        let mut active: Vec<i32> =
            self.parts.iter().flat_map(|p| &p.group).filter_map(|(r, _)| rank(r.0)).collect();
        active.sort_unstable();
        active.dedup();
        if !active.contains(&world.rank) {
            return Ok(());
        }
        self.active = match active[..] {
            [a, b] => {
                let source = self.parts.iter().find_map(|p| rank(p.group.first()?.0.0));
                let other = if a == world.rank { b } else { a };
                ActiveRanks::Pair(source != Some(world.rank), other)
            }
            _ => ActiveRanks::Several(world.group(&active)?),
        };
        let parts = std::mem::take(&mut self.parts);
        let mut steps = RankSteps::default();
        for (nth, part) in parts.iter().enumerate() {
            let Some(&me) = part.positions.first() else { continue };
            self.add(&mut steps, world, nth, part, me)?;
        }
        if let [part] = &parts[..]
            && part.wire.op == WireOp::Ping
            && let Some(&me) = part.positions.first()
        {
            let (begins, out, back) = match me {
                0 => (true, steps.send.first(), steps.receive_late.first()),
                _ => (false, steps.answer.first(), steps.receive.first()),
            };
            steps.ping = out.zip(back).map(|(out, back)| (begins, *out, *back));
        }
        let most = steps.receive.len() + steps.receive_late.len() + steps.send.len();
        self.requests = vec![world.constants.no_request; most + steps.answer.len()];
        self.steps = steps;
        self.parts = parts;
        Ok(())
    }

    fn add(
        &mut self,
        steps: &mut RankSteps<H>,
        world: &mut MpiWorld<H>,
        nth: usize,
        part: &FlowPart,
        me: usize,
    ) -> CallResult<()> {
        let (send, recv) = (
            address(part.send.first().copied().unwrap_or_default()),
            address(part.recv.first().copied().unwrap_or_default()),
        );
        let other = part.group.get(1 - me.min(1)).and_then(|(r, _)| rank(r.0)).unwrap_or(0);
        let times = part.wire.op.window() as usize;
        match part.wire.op {
            WireOp::Ping | WireOp::Send { .. } | WireOp::Consume => {
                let (count, kind) = self.counted(world, part, part.bytes)?;
                let message =
                    |at, answer| MpiMessage { at, count, kind, peer: other, tag: tag(nth, answer) };
                let (byte, scratch) = (world.constants.byte, self.answers.as_mut_ptr());
                let short = |offset| MpiMessage {
                    // Within the scratch memory, which holds two replies.
                    at: scratch.wrapping_add(offset).cast(),
                    count: ANSWER as c_int,
                    kind: byte,
                    peer: other,
                    tag: tag(nth, true),
                };
                match (part.wire.op, me) {
                    (WireOp::Ping, 0) => {
                        steps.send.push(message(send, false));
                        steps.receive_late.push(message(recv, true));
                    }
                    (WireOp::Ping, _) => {
                        steps.receive.push(message(recv, false));
                        steps.answer.push(message(send, true));
                    }
                    (WireOp::Consume, 0) => steps.send.push(message(send, false)),
                    (WireOp::Consume, _) => {
                        steps.receive.push(message(recv, false));
                        steps.consume.extend(part.recv.first());
                    }
                    (_, 0) => {
                        steps.send.extend(std::iter::repeat_n(message(send, false), times));
                        steps.receive_late.push(short(0));
                    }
                    _ => {
                        steps.receive.extend(std::iter::repeat_n(message(recv, false), times));
                        steps.answer.push(short(ANSWER));
                    }
                }
            }
            WireOp::PersistentPing | WireOp::PersistentSend { .. } => {
                let made = self.persistent(world, nth, part, me)?;
                steps.persistent.push(made);
            }
            WireOp::Overlapped { op, work } => {
                let group = self.group(world, part, (me, op, false))?;
                short_count(part, &group)?;
                let made = OverlapPart::new(world, group, (work, part.group.len()));
                steps.overlaps.push(self.made(world, made)?);
            }
            WireOp::PersistentGroup { op } => {
                let group = self.group(world, part, (me, op, false))?;
                short_count(part, &group)?;
                steps.persistent.push(self.made(world, PersistentPart::group(world, &group))?);
            }
            WireOp::Group { op, in_place, .. } => {
                steps.groups.push(self.group(world, part, (me, op, in_place))?);
            }
            WireOp::Put { .. } | WireOp::Get { .. } | WireOp::Atomic(_) => {
                steps.remote.extend(self.one_sided(world, part, me)?);
                let origin = me == usize::from(matches!(part.wire.op, WireOp::Get { .. }));
                if origin { &mut steps.token_to } else { &mut steps.token_from }.push(other);
            }
        }
        Ok(())
    }

    /// A ping or a window of messages that are set up once.
    fn persistent(
        &mut self,
        world: &MpiWorld<H>,
        nth: usize,
        part: &FlowPart,
        me: usize,
    ) -> CallResult<PersistentPart<H>> {
        let at = |spans: &[LocalMemory]| address(spans.first().copied().unwrap_or_default());
        let (send, recv) = (at(&part.send), at(&part.recv));
        let other = part.group.get(1 - me.min(1)).and_then(|(r, _)| rank(r.0)).unwrap_or(0);
        let times = part.wire.op.window() as usize;
        let (count, kind) = self.counted(world, part, part.bytes)?;
        let message =
            |at, answer| MpiMessage { at, count, kind, peer: other, tag: tag(nth, answer) };
        let made = if part.wire.op == WireOp::PersistentPing {
            let back = me != 0;
            let (out, into) = (message(send, back), message(recv, !back));
            PersistentPart::ping(world, me == 0, (&out, &into))
        } else {
            let sends = me == 0;
            let answer = MpiMessage {
                at: self.answers.as_mut_ptr().cast(),
                count: ANSWER as c_int,
                kind: world.constants.byte,
                peer: other,
                tag: tag(nth, true),
            };
            let of = message(if sends { send } else { recv }, false);
            PersistentPart::window(world, sends, (&of, times, answer))
        };
        self.made(world, made)
    }

    /// Puts, gets or atomic operations, in a window over both ends of the part.
    fn one_sided(
        &mut self,
        world: &mut MpiWorld<H>,
        part: &FlowPart,
        me: usize,
    ) -> CallResult<Option<OneSidedPart<H>>> {
        let at = |spans: &[LocalMemory]| address(spans.first().copied().unwrap_or_default());
        let (send, recv) = (at(&part.send), at(&part.recv));
        let Some(what) = RemoteOp::of(part.wire.op) else { return Ok(None) };
        let (count, kind) = match what {
            // Sums are of a predefined type.
            RemoteOp::Atomic(_) => {
                let count = c_int::try_from(part.bytes / 8);
                let why = || refused(part, format!("its count is over {}", c_int::MAX));
                (count.map_err(|_| why())?, world.constants.types.uint64)
            }
            RemoteOp::Put | RemoteOp::Get => self.counted(world, part, part.bytes)?,
        };
        // The target exposes the accessed memory, the origin an empty window.
        let origin = me == usize::from(what == RemoteOp::Get);
        let ours = if me == 0 { send } else { recv };
        let exposed = (!origin).then_some((ours, part.bytes));
        let peer = 1 - me as c_int;
        let (window, at) = OpenWindow::open(world, part, exposed, peer)?;
        let made = OneSidedPart {
            window: window.handle,
            what,
            sync: part.wire.sync,
            origin,
            ours,
            result: recv,
            count,
            kind,
            peer,
            at,
            times: part.wire.op.window(),
            group: window.group(),
        };
        self.windows.push(window);
        Ok(Some(made))
    }

    /// The outcome of calls that prepare a part. An error leaves operations that nothing ends.
    fn made<T>(
        &mut self,
        world: &MpiWorld<H>,
        outcome: std::result::Result<T, FailedCall>,
    ) -> CallResult<T> {
        let outcome = outcome.and_then(|made| world.unfailed("MPI").map(|()| made));
        outcome.map_err(|failed| {
            self.in_use = Some("operations that failed may still be in flight");
            world.error(failed, &self.describe())
        })
    }

    /// The arguments of a collective.
    fn group(
        &mut self,
        world: &mut MpiWorld<H>,
        part: &FlowPart,
        (me, op, in_place): (usize, Collective, bool),
    ) -> CallResult<CollectivePart<H>> {
        let ranks: Vec<i32> = part.group.iter().filter_map(|(r, _)| rank(r.0)).collect();
        let comm = world.group(&ranks)?;
        let at = |spans: &[LocalMemory]| address(spans.first().copied().unwrap_or_default());
        let (mut send, mut recv) = (at(&part.send), at(&part.recv));
        let split = op.is_split();
        let of_a_rank = if split { op.part(ranks.len(), me, part.bytes).1 } else { part.bytes };
        let reduced = part.wire.op.reduced();
        let mut reduce = H::default();
        let (count, kind) = if op.reduces() {
            // Predefined sums are of predefined types: many need calls with long counts.
            let count = (of_a_rank / reduced.element.bytes()) as i64;
            let f = &world.fns;
            let handles = (
                world.constants.types.handle(reduced.element),
                world.constants.ops.handle(reduced.by),
            );
            let (Some(kind), Some(by)) = handles else {
                return Err(refused(part, "MPI has no such element or operation"));
            };
            reduce = by;
            let long = match op {
                Collective::Reduce => f.reduce_c.is_some(),
                Collective::AllReduce => f.allreduce_c.is_some(),
                _ => f.reduce_scatter_block_c.is_some(),
            };
            if count > i64::from(c_int::MAX) && !long {
                let why = format!("{} has no calls for counts over {}", world.version, c_int::MAX);
                return Err(refused(part, why));
            }
            (count, kind)
        } else if op == Collective::Barrier {
            (0, world.constants.byte)
        } else {
            let (count, kind) = self.counted(world, part, of_a_rank)?;
            (count.into(), kind)
        };
        match op {
            // Broadcast uses one buffer.
            Collective::Broadcast => recv = if me == 0 { send } else { recv },
            Collective::Reduce | Collective::Gather | Collective::GatherV
                if in_place && me == 0 =>
            {
                send = world.constants.in_place;
            }
            Collective::Scatter | Collective::ScatterV if in_place && me == 0 => {
                recv = world.constants.in_place;
            }
            Collective::AllReduce
            | Collective::AllGather
            | Collective::AllGatherV
            | Collective::AllToAll
                if in_place =>
            {
                send = world.constants.in_place;
            }
            // The receive buffer has what a rank brings, and then its part of the result.
            Collective::ReduceScatter if in_place => send = world.constants.in_place,
            _ => {}
        }
        let uneven = uneven_parts(op, ranks.len(), me, part.bytes);
        Ok(CollectivePart { op, comm, send, recv, count, kind, reduce, uneven })
    }

    /// `bytes` as a count that fits a C int: of bytes, or of a larger type.
    fn counted(
        &mut self,
        world: &MpiWorld<H>,
        part: &FlowPart,
        bytes: u64,
    ) -> CallResult<(c_int, H)> {
        if let Ok(count) = c_int::try_from(bytes) {
            return Ok((count, world.constants.byte));
        }
        let Some((count, each)) = blocks(bytes) else {
            let why = format!("{bytes} B are over {} and have no factor of two", c_int::MAX);
            return Err(refused(part, why).or_try("ask for an even number of bytes"));
        };
        let mut kind = world.constants.byte;
        // SAFETY: the handle is written by the first call and lives through both.
        let made = unsafe {
            ok("MPI_Type_contiguous", {
                (world.fns.type_contiguous)(each, world.constants.byte, &raw mut kind)
            })
            .and_then(|()| ok("MPI_Type_commit", (world.fns.type_commit)(&raw mut kind)))
        };
        made.and_then(|()| world.unfailed("MPI_Type_contiguous"))
            .map_err(|f| world.error(f, &format!("a type of {each} B")))?;
        self.kinds.push(kind);
        Ok((count, kind))
    }

    /// Runs all parts `reps` times.
    pub(super) fn run(
        &mut self,
        world: &MpiWorld<H>,
        clock: ClockOrigin,
        reps: u64,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>> {
        let samples = if self.pace == RepeatMode::Isolated { reps } else { 1 };
        let mut times = Vec::with_capacity(usize::try_from(samples).unwrap_or(0));
        let inside = reps / samples.max(1);
        for _ in 0..samples {
            barrier.wait()?;
            match self.sample(world, clock, inside) {
                Ok(time) => times.extend(time),
                Err(failed) => {
                    let error = world.error(failed, &self.describe());
                    self.close(world, CLOSE_TIMEOUT);
                    return Err(error);
                }
            }
        }
        let timed =
            |part: &FlowPart| part.positions.first().is_some_and(|&me| !is_passive(part, me));
        Ok(self.parts.iter().map(|p| if timed(p) { times.clone() } else { Vec::new() }).collect())
    }

    /// The transfers of this exchange, for errors.
    fn describe(&self) -> String {
        let part = |part: &FlowPart| format!("mpi[{}] x {}B", part.wire, part.bytes);
        self.parts.iter().map(part).collect::<Vec<_>>().join(" & ")
    }

    /// Ends the operations that a failed call left in flight, because this exchange's memory is
    /// freed next. Operations that outlast `timeout` ns, and a failed collective inside the
    /// library, keep the memory in use.
    fn close(&mut self, world: &MpiWorld<H>, timeout: u64) {
        let first = self.steps.receive.len() + self.steps.send.len();
        let late = first + self.steps.receive_late.len();
        let incoming = self.steps.receive.len();
        let receives = |nth: usize| nth < incoming || (first..late).contains(&nth);
        if !close_requests(world, &mut self.requests, &receives, timeout) {
            self.in_use = Some("messages are still in flight");
        } else if !(self.steps.groups.is_empty() && self.steps.overlaps.is_empty()) {
            self.in_use = Some("the failed collective may still be in progress");
        } else if !self.steps.persistent.is_empty() {
            self.in_use = Some("persistent requests may still be in flight");
        }
        // The first error is already known; errors of the cleanup follow from it.
        let _ = world.unfailed("MPI_Test");
    }

    /// The time of `reps` repetitions in ns; `None` if this process takes no part.
    fn sample(
        &mut self,
        world: &MpiWorld<H>,
        clock: ClockOrigin,
        reps: u64,
    ) -> std::result::Result<Option<f64>, FailedCall> {
        if matches!(self.active, ActiveRanks::Idle) {
            return Ok(None);
        }
        self.windows.iter().for_each(|window| window.copy_mirror(true));
        self.sync(world)?;
        // Processes leave the coordinator's barrier at different times; MPI's own synchronisation
        // releases them within about one message.
        self.meet(world)?;
        let begun = clock.ns();
        match self.steps.ping {
            Some(ping) => pings(world, ping, reps)?,
            None => {
                for _ in 0..reps {
                    self.once(world)?;
                }
            }
        }
        let took = clock.ns().wrapping_sub(begun);
        self.tokens(world)?;
        self.sync(world)?;
        self.windows.iter().for_each(|window| window.copy_mirror(false));
        // MPICH's error text names the call.
        world.unfailed("MPI")?;
        Ok(Some(took as f64))
    }

    fn meet(&mut self, world: &MpiWorld<H>) -> MpiOutcome {
        let at = self.answers.as_mut_ptr().cast();
        let token =
            |peer| MpiMessage { at, count: 1, kind: world.constants.byte, peer, tag: TOKEN };
        match self.active {
            ActiveRanks::Idle => Ok(()),
            ActiveRanks::Pair(true, peer) => {
                send(world, &token(peer)).and_then(|()| receive(world, &token(peer)))
            }
            ActiveRanks::Pair(false, peer) => {
                receive(world, &token(peer)).and_then(|()| send(world, &token(peer)))
            }
            // SAFETY: the communicator is this world's, and all its members come here.
            ActiveRanks::Several(comm) => ok("MPI_Barrier", unsafe { (world.fns.barrier)(comm) }),
        }
    }

    /// Makes writes of peers to windows visible to local reads, and local writes visible to peers.
    fn sync(&self, world: &MpiWorld<H>) -> MpiOutcome {
        self.windows.iter().try_for_each(|window| window.sync(world))
    }

    fn tokens(&mut self, world: &MpiWorld<H>) -> MpiOutcome {
        let at = self.answers.as_mut_ptr().cast();
        let token =
            |peer| MpiMessage { at, count: 1, kind: world.constants.byte, peer, tag: TOKEN };
        for &peer in &self.steps.token_to {
            send(world, &token(peer))?;
        }
        for &peer in &self.steps.token_from {
            receive(world, &token(peer))?;
        }
        Ok(())
    }

    /// One repetition of all operations except a lone ping.
    #[inline]
    fn once(&mut self, world: &MpiWorld<H>) -> MpiOutcome {
        for overlap in &mut self.steps.overlaps {
            overlap.once(world)?;
        }
        for persistent in &mut self.steps.persistent {
            persistent.once(world)?;
        }
        let steps = &self.steps;
        // One direction follows OSU: a sender takes replies by blocking receives, a receiver gives
        // them by blocking sends. Both directions at once post replies in advance, so no reply
        // waits for another.
        let both = !steps.receive.is_empty() && !steps.send.is_empty();
        let (late, early) = if both {
            (&steps.receive_late[..0], &steps.receive_late[..])
        } else {
            (&steps.receive_late[..], &steps.receive_late[..0])
        };
        let first = steps.receive.len() + steps.send.len();
        let requests = &mut self.requests[..];
        let (now, then) = requests.split_at_mut(first.min(requests.len()));
        let (incoming, outgoing) = now.split_at_mut(steps.receive.len().min(now.len()));
        receive_all(world, &steps.receive, incoming)?;
        receive_all(world, early, then)?;
        send_all(world, &steps.send, outgoing)?;
        for remote in &steps.remote {
            remote.begin(world)?;
        }
        for remote in &steps.remote {
            remote.issue(world)?;
        }
        for group in &steps.groups {
            run_collective(world, group)?;
        }
        wait_all(world, now)?;
        for span in &steps.consume {
            load(*span);
        }
        if both {
            let (back, answers) = then.split_at_mut(early.len().min(then.len()));
            send_all(world, &steps.answer, answers)?;
            wait_all(world, answers)?;
            wait_all(world, back)?;
        } else {
            for message in &steps.answer {
                send(world, message)?;
            }
            for message in late {
                receive(world, message)?;
            }
        }
        for remote in &steps.remote {
            remote.end(world)?;
        }
        Ok(())
    }

    /// Closes windows and frees types.
    ///
    /// # Errors
    /// A sticky error if MPI or a peer may still access the memory, which then must not be freed.
    pub(super) fn release(&mut self, world: &MpiWorld<H>) -> CallResult<()> {
        let closed = self.close_windows(world);
        if let Err(failed) = closed {
            return Err(world.error(failed, &self.describe()));
        }
        match self.in_use {
            None => Ok(()),
            Some(why) => {
                let error = CallError::new(Severity::Sticky, "release", self.describe(), why);
                Err(error.or_try("its memory is kept until this process ends"))
            }
        }
    }

    fn close_windows(&mut self, world: &MpiWorld<H>) -> MpiOutcome {
        let f = &world.fns;
        while let Some(window) = self.windows.pop() {
            window.close(world)?;
        }
        if self.in_use.is_none() {
            for persistent in self.steps.persistent.drain(..) {
                persistent.free(world)?;
            }
        }
        while let Some(mut kind) = self.kinds.pop() {
            // SAFETY: made by `counted`, dropped here. MPI keeps a type that a request still uses.
            ok("MPI_Type_free", unsafe { (f.type_free)(&raw mut kind) })?;
        }
        world.unfailed("MPI_Win_free")
    }

    /// Whether it has a collective.
    pub(super) fn is_collective(&self) -> bool {
        self.parts.iter().any(|part| part.wire.op.collective().is_some())
    }

    /// The MPI calls of this exchange, for the record.
    pub(super) fn calls(&self) -> Vec<String> {
        let alone = self.parts.len() == 1;
        let mut calls: Vec<String> = self
            .parts
            .iter()
            .map(|part| match part.wire.op {
                WireOp::Put { .. } | WireOp::Get { .. } | WireOp::Atomic(_) => {
                    let call = RemoteOp::of(part.wire.op).map_or("", RemoteOp::call);
                    let window = match part.wire.window {
                        None => "",
                        Some(WindowKind::Allocate) => " in MPI_Win_allocate",
                        Some(WindowKind::Dynamic) => " in MPI_Win_create_dynamic",
                    };
                    let sync = sync_functions(part.wire.sync);
                    let sync = if part.wire.sync.is_none() { &sync[..1] } else { sync };
                    format!("{call}, {}{window}", sync.join(", "))
                }
                WireOp::Overlapped { op, .. } => format!("{}, MPI_Wait", collective_calls(op)[1]),
                WireOp::PersistentGroup { op } => {
                    format!("{}, MPI_Start, MPI_Wait", collective_calls(op)[2])
                }
                op => blocking_calls(op, alone).to_owned(),
            })
            .collect();
        calls.sort_unstable();
        calls.dedup();
        calls.extend(self.steps.overlaps.iter().filter_map(OverlapPart::describe));
        calls
    }
}

/// Counts and offsets of uneven parts in bytes, which `sound` has checked to fit; none of other
/// operations.
fn uneven_parts(op: Collective, n: usize, me: usize, bytes: u64) -> UnevenParts {
    let fit = |bytes: u64| c_int::try_from(bytes).unwrap_or(c_int::MAX);
    let lists = |part: &dyn Fn(usize) -> usize| -> (Vec<c_int>, Vec<c_int>) {
        let of = |peer: usize| op.part(n, part(peer), bytes);
        (0..n).map(of).map(|(offset, bytes)| (fit(bytes), fit(offset))).unzip()
    };
    match op {
        Collective::AllToAllV => {
            let (counts, offsets) = lists(&|peer| op.exchanged(n, me, peer).0);
            let (recv_counts, recv_offsets) = lists(&|peer| op.exchanged(n, peer, me).1);
            UnevenParts { counts, offsets, recv_counts, recv_offsets }
        }
        op if op.is_uneven() => {
            let (counts, offsets) = lists(&|peer| peer);
            UnevenParts { counts, offsets, ..UnevenParts::default() }
        }
        _ => UnevenParts::default(),
    }
}

/// The calls of messages and blocking collectives; `alone` in their case.
fn blocking_calls(op: WireOp, alone: bool) -> &'static str {
    match op {
        WireOp::Ping if alone => "MPI_Send, MPI_Recv",
        WireOp::Ping | WireOp::Send { .. } | WireOp::Consume => "MPI_Isend, MPI_Irecv, MPI_Waitall",
        WireOp::PersistentPing => "MPI_Send_init, MPI_Recv_init, MPI_Start, MPI_Wait",
        WireOp::PersistentSend { .. } => "MPI_Send_init, MPI_Recv_init, MPI_Startall, MPI_Waitall",
        WireOp::Group { op, .. } => collective_calls(op)[0],
        _ => "",
    }
}

/// Ends all non-null requests: cancels receives and tests all requests until they have ended.
/// Returns whether they have. Sends are not cancelled: MPI 4.0 deprecates that, and Open MPI
/// ignores it.
///
/// `timeout` is in ns.
pub(super) fn close_requests<H: MpiHandle>(
    world: &MpiWorld<H>,
    requests: &mut [H],
    receives: &dyn Fn(usize) -> bool,
    timeout: u64,
) -> bool {
    let (f, none) = (&world.fns, world.constants.no_request);
    for (nth, request) in requests.iter_mut().enumerate() {
        if *request != none && receives(nth) {
            // SAFETY: a request of this library that is in flight. It stays one until it is tested.
            unsafe { (f.cancel)(request) };
        }
    }
    let begun = ClockOrigin::now();
    loop {
        for request in requests.iter_mut().filter(|request| **request != none) {
            let mut done = 0;
            // SAFETY: as above. A request that has ended, also one that has failed, becomes null.
            unsafe { (f.test)(request, &raw mut done, world.constants.ignore_status) };
        }
        if requests.iter().all(|request| *request == none) {
            return true;
        }
        if begun.ns() > timeout {
            return false;
        }
        // The progress of the peer may need this core.
        std::thread::yield_now();
    }
}
