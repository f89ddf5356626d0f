//! The operations of a rank in each repetition, made of the parts of a case.

use std::ffi::{c_int, c_void};

use pathline_hal::{CallResult, FlowPart, LocalMemory};
use pathline_schema::{Collective, WireOp};

use super::super::one_sided::{OneSidedPart, OpenWindow, RemoteOp};
use super::super::rank_parts::{blocks, rank, refused};
use super::super::started::{OverlapPart, PersistentPart, short_count};
use super::super::steps::{CollectivePart, MpiMessage, UnevenParts};
use super::super::table::{MpiAddress, MpiHandle};
use super::super::world::{FailedCall, MpiWorld, ok};
use super::{ANSWER, MpiExchange, RankSteps};

fn tag(nth: usize, answer: bool) -> c_int {
    c_int::try_from(2 * nth + usize::from(answer)).unwrap_or(c_int::MAX)
}
/// The buffers of this process in a part, and its peer's rank.
struct PartEnds {
    send: MpiAddress,
    recv: MpiAddress,
    peer: c_int,
}

impl PartEnds {
    fn of_part(part: &FlowPart, me: usize) -> Self {
        let first = |spans: &[LocalMemory]| {
            let address = spans.first().map_or(0, |span| span.address as usize);
            std::ptr::with_exposed_provenance_mut::<c_void>(address)
        };
        let peer = part.group.get(1 - me.min(1)).and_then(|(r, _)| rank(r.0)).unwrap_or(0);
        Self { send: first(&part.send), recv: first(&part.recv), peer }
    }
}

impl<H: MpiHandle> MpiExchange<H> {
    /// The reply to a window, in the half of the scratch memory for sent or received ones.
    fn reply(
        &mut self,
        world: &MpiWorld<H>,
        (nth, peer, sends): (usize, c_int, bool),
    ) -> MpiMessage<H> {
        let at = self.answers.as_mut_ptr().wrapping_add(if sends { ANSWER } else { 0 }).cast();
        let (count, kind) = (ANSWER as c_int, world.constants.byte);
        MpiMessage { at, count, kind, peer, tag: tag(nth, true) }
    }

    /// Adds the operations of a part.
    pub(super) fn add_part(
        &mut self,
        steps: &mut RankSteps<H>,
        world: &mut MpiWorld<H>,
        (nth, part, me): (usize, &FlowPart, usize),
    ) -> CallResult<()> {
        let PartEnds { send, recv, peer } = PartEnds::of_part(part, me);
        let times = part.wire.op.window() as usize;
        match part.wire.op {
            WireOp::Ping | WireOp::Send { .. } | WireOp::Consume => {
                let (count, kind) = self.count_and_type(world, part, part.bytes)?;
                let message =
                    |at, answer| MpiMessage { at, count, kind, peer, tag: tag(nth, answer) };
                let mut reply = |sends| self.reply(world, (nth, peer, sends));
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
                        steps.receive_late.push(reply(false));
                    }
                    _ => {
                        steps.receive.extend(std::iter::repeat_n(message(recv, false), times));
                        steps.answer.push(reply(true));
                    }
                }
            }
            WireOp::PersistentPing | WireOp::PersistentSend { .. } => {
                let made = self.persistent_part(world, nth, part, me)?;
                steps.persistent.push(made);
            }
            WireOp::Overlapped { op, work } => {
                let group = self.collective_part(world, part, (me, op, false))?;
                short_count(part, &group)?;
                let made = OverlapPart::new(world, group, (work, part.group.len()));
                steps.overlaps.push(self.checked(world, made)?);
            }
            WireOp::PersistentGroup { op } => {
                let group = self.collective_part(world, part, (me, op, false))?;
                short_count(part, &group)?;
                steps.persistent.push(self.checked(world, PersistentPart::group(world, &group))?);
            }
            WireOp::Group { op, in_place, .. } => {
                steps.groups.push(self.collective_part(world, part, (me, op, in_place))?);
            }
            WireOp::Put { .. } | WireOp::Get { .. } | WireOp::Atomic(_) => {
                steps.remote.extend(self.one_sided(world, part, me)?);
                let origin = me == usize::from(matches!(part.wire.op, WireOp::Get { .. }));
                if origin { &mut steps.token_to } else { &mut steps.token_from }.push(peer);
            }
        }
        Ok(())
    }

    /// A ping or a window of messages that are set up once.
    fn persistent_part(
        &mut self,
        world: &MpiWorld<H>,
        nth: usize,
        part: &FlowPart,
        me: usize,
    ) -> CallResult<PersistentPart<H>> {
        let PartEnds { send, recv, peer } = PartEnds::of_part(part, me);
        let times = part.wire.op.window() as usize;
        let (count, kind) = self.count_and_type(world, part, part.bytes)?;
        let message = |at, answer| MpiMessage { at, count, kind, peer, tag: tag(nth, answer) };
        let made = if part.wire.op == WireOp::PersistentPing {
            let back = me != 0;
            let (out, into) = (message(send, back), message(recv, !back));
            PersistentPart::ping(world, me == 0, (&out, &into))
        } else {
            let sends = me == 0;
            let answer = self.reply(world, (nth, peer, false));
            let of = message(if sends { send } else { recv }, false);
            PersistentPart::window(world, sends, (&of, times, answer))
        };
        self.checked(world, made)
    }

    /// Puts, gets or atomic operations, in a window over both ends of the part.
    fn one_sided(
        &mut self,
        world: &mut MpiWorld<H>,
        part: &FlowPart,
        me: usize,
    ) -> CallResult<Option<OneSidedPart<H>>> {
        let PartEnds { send, recv, .. } = PartEnds::of_part(part, me);
        let Some(what) = RemoteOp::of(part.wire.op) else { return Ok(None) };
        let (count, kind) = match what {
            // Sums are of a predefined type.
            RemoteOp::Atomic(_) => {
                let count = c_int::try_from(part.bytes / 8);
                let why = || refused(part, format!("its count is over {}", c_int::MAX));
                (count.map_err(|_| why())?, world.constants.types.uint64)
            }
            RemoteOp::Put | RemoteOp::Get => self.count_and_type(world, part, part.bytes)?,
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
    fn checked<T>(
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
    fn collective_part(
        &mut self,
        world: &mut MpiWorld<H>,
        part: &FlowPart,
        (me, op, in_place): (usize, Collective, bool),
    ) -> CallResult<CollectivePart<H>> {
        let ranks: Vec<i32> = part.group.iter().filter_map(|(r, _)| rank(r.0)).collect();
        let comm = world.group(&ranks)?;
        let PartEnds { mut send, mut recv, .. } = PartEnds::of_part(part, me);
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
            let (count, kind) = self.count_and_type(world, part, of_a_rank)?;
            (count.into(), kind)
        };
        let root = me == 0;
        match op {
            // Broadcast uses one buffer.
            Collective::Broadcast if root => recv = send,
            Collective::Scatter | Collective::ScatterV if in_place && root => {
                recv = world.constants.in_place;
            }
            // Only the root's buffers are one. The receive buffer of a reduce-scatter has what a rank
            // brings, and then its part of the result.
            Collective::Reduce | Collective::Gather | Collective::GatherV if !root => {}
            Collective::Broadcast | Collective::Scatter | Collective::ScatterV => {}
            _ if in_place => send = world.constants.in_place,
            _ => {}
        }
        let uneven = uneven_parts(op, ranks.len(), me, part.bytes);
        Ok(CollectivePart { op, comm, send, recv, count, kind, reduce, uneven })
    }

    /// `bytes` as a count that fits a C int: of bytes, or of a larger type.
    fn count_and_type(
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
