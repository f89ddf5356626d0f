//! One case as MPI calls: the messages that a process posts, waits for and answers in each
//! repetition.

mod part_setup;

use std::ffi::c_int;

use pathline_hal::{CallError, CallResult, FlowPart, LocalMemory, RankBarrier, RepeatMode};
use pathline_schema::{Severity, WindowKind, WireOp};

use super::one_sided::{OneSidedPart, OpenWindow, RemoteOp, sync_functions};
use super::rank_parts::{is_passive, rank};
use super::started::{OverlapPart, PersistentPart};
use super::steps::{
    CollectivePart, MpiMessage, MpiOutcome, collective_calls, load, pings, receive, receive_all,
    run_collective, send, send_all, wait_all,
};
use super::table::MpiHandle;
use super::world::{FailedCall, MpiWorld, close_requests, ok};
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

/// The highest tag that every library supports.
const TOKEN: c_int = 32_767;

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
            self.add_part(&mut steps, world, (nth, part, me))?;
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

    /// Runs all parts `reps` times.
    pub(super) fn run(
        &mut self,
        world: &MpiWorld<H>,
        clock: ClockOrigin,
        reps: u64,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>> {
        let (samples, inside) = self.pace.rounds(reps);
        let mut times = Vec::with_capacity(usize::try_from(samples).unwrap_or(0));
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
        self.exchange_tokens(world)?;
        self.sync(world)?;
        self.windows.iter().for_each(|window| window.copy_mirror(false));
        // MPICH's error text names the call.
        world.unfailed("MPI")?;
        Ok(Some(took as f64))
    }

    /// A message of one byte that orders processes.
    fn token(&mut self, world: &MpiWorld<H>, peer: c_int) -> MpiMessage<H> {
        let (at, kind) = (self.answers.as_mut_ptr().cast(), world.constants.byte);
        MpiMessage { at, count: 1, kind, peer, tag: TOKEN }
    }

    /// Synchronises the ranks that take part.
    fn meet(&mut self, world: &MpiWorld<H>) -> MpiOutcome {
        match self.active {
            ActiveRanks::Idle => Ok(()),
            ActiveRanks::Pair(sends_first, peer) => {
                let token = self.token(world, peer);
                if sends_first {
                    send(world, &token).and_then(|()| receive(world, &token))
                } else {
                    receive(world, &token).and_then(|()| send(world, &token))
                }
            }
            // SAFETY: the communicator is this world's, and all its members come here.
            ActiveRanks::Several(comm) => ok("MPI_Barrier", unsafe { (world.fns.barrier)(comm) }),
        }
    }

    /// Makes writes of peers to windows visible to local reads, and local writes visible to peers.
    fn sync(&self, world: &MpiWorld<H>) -> MpiOutcome {
        self.windows.iter().try_for_each(|window| window.sync(world))
    }

    fn exchange_tokens(&mut self, world: &MpiWorld<H>) -> MpiOutcome {
        let mut token = self.token(world, 0);
        for &peer in &self.steps.token_to {
            token.peer = peer;
            send(world, &token)?;
        }
        for &peer in &self.steps.token_from {
            token.peer = peer;
            receive(world, &token)?;
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
