//! The role of a process in a message between processes of a node: its steps in each repetition.

use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Release};

use pathline_hal::{CallError, CallResult};
use pathline_host::clock::ClockOrigin;
use pathline_host::loops::CpuLoop;
use pathline_schema::{Rank, Severity, WireOp};

use super::channel::ShmChannel;
use super::channel_ends::{EndProgress, RecvEnd, SendEnd};
use super::peer_process::PeerProcess;
use super::spin_wait::SpinWait;

/// A step of a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShmStep {
    Give,
    Take,
    /// Loads the received bytes.
    Load,
    /// Replies to the sender.
    Answer,
    /// Waits for the receiver's reply.
    AwaitReply,
}

/// The state of this process in a part.
pub(super) struct ShmRole {
    pub(super) script: Vec<ShmStep>,
    pub(super) step: usize,
    /// Remaining repetitions of a run.
    pub(super) left: u64,
    pub(super) ended_ns: u64,
    pub(super) out: Option<SendEnd>,
    pub(super) into: Option<RecvEnd>,
    pub(super) read: CpuLoop,
    pub(super) other: (Rank, PeerProcess),
}

/// Directions of a part's messages: 0 from the group's first to its second member, 1 back.
pub(super) fn directions(op: WireOp) -> &'static [usize] {
    if op == WireOp::Ping { &[0, 1] } else { &[0] }
}

pub(super) fn script(op: WireOp, position: usize) -> Vec<ShmStep> {
    let window = op.window() as usize;
    let (message, last): (ShmStep, &[ShmStep]) = match (op, position) {
        (WireOp::Ping, 0) => return vec![ShmStep::Give, ShmStep::Take],
        (WireOp::Ping, _) => return vec![ShmStep::Take, ShmStep::Give],
        (_, 0) => (ShmStep::Give, &[ShmStep::AwaitReply]),
        (WireOp::Consume, _) => (ShmStep::Take, &[ShmStep::Load, ShmStep::Answer]),
        _ => (ShmStep::Take, &[ShmStep::Answer]),
    };
    let mut script = vec![message; window];
    script.extend_from_slice(last);
    script
}

impl ShmRole {
    /// Proceeds; returns whether anything moved. Reads the clock only when all is done.
    fn turn(&mut self, begun: ClockOrigin) -> CallResult<bool> {
        let Some(&step) = self.script.get(self.step) else { return Ok(false) };
        if self.left == 0 {
            return Ok(false);
        }
        let turn = match (step, &mut self.out, &mut self.into) {
            (ShmStep::Give, Some(out), _) => out.give()?,
            (ShmStep::AwaitReply, Some(out), _) => out.poll_reply(),
            (ShmStep::Take, _, Some(into)) => into.take()?,
            (ShmStep::Load, _, Some(into)) => {
                into.load(self.read);
                EndProgress::Done
            }
            (ShmStep::Answer, _, Some(into)) => {
                into.answer();
                EndProgress::Done
            }
            // `join` created the ends that the script needs.
            _ => EndProgress::Done,
        };
        if turn == EndProgress::Done {
            self.step += 1;
            if self.step == self.script.len() {
                self.step = 0;
                self.left -= 1;
                if self.left == 0 {
                    self.ended_ns = begun.ns();
                }
            }
        }
        Ok(turn != EndProgress::Blocked)
    }

    fn channels(&self) -> impl Iterator<Item = &Rc<ShmChannel>> {
        let out = self.out.iter().map(|out| &out.channel);
        out.chain(self.into.iter().map(|into| &into.channel))
    }
}

/// Runs `reps` repetitions of all roles; each notes the time of its end.
pub(super) fn run_roles(
    roles: &mut [Option<ShmRole>],
    reps: u64,
    begun: ClockOrigin,
    wait: &SpinWait,
) -> CallResult<()> {
    let mut roles: Vec<&mut ShmRole> = roles.iter_mut().flatten().collect();
    let mut others = Vec::new();
    for role in &mut roles {
        role.left = reps;
        others.push((role.other, role.channels().cloned().collect::<Vec<_>>()));
    }
    while roles.iter().any(|role| role.left > 0) {
        let mut failed = None;
        let pass = || {
            let mut moved = false;
            for role in &mut roles {
                match role.turn(begun) {
                    Ok(turn) => moved |= turn,
                    Err(error) => failed = Some(error),
                }
            }
            moved || failed.is_some()
        };
        let waited = wait.until(pass, |over| check_peers(&others, over, wait));
        if let Err(error) = failed.map_or(waited, Err) {
            // The others then need not wait for their own timeout.
            for channel in others.iter().flat_map(|(_, channels)| channels) {
                channel.broken().store(1, Release);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// A peer that this process waits for, and the channels to it.
type WaitedPeer = ((Rank, PeerProcess), Vec<Rc<ShmChannel>>);

/// Checks the peers that this process waits for.
fn check_peers(others: &[WaitedPeer], time_is_over: bool, wait: &SpinWait) -> CallResult<()> {
    let failed = |rank: Rank, peer: PeerProcess, what: &str, way_out: &str| {
        let thing = format!("rank {} (process {})", rank.0, peer.pid);
        Err(CallError::new(Severity::Sticky, "run", thing, what).or_try(way_out))
    };
    for ((rank, peer), channels) in others {
        if channels.iter().any(|channel| channel.broken().load(Acquire) != 0) {
            return failed(*rank, *peer, "it gave up", "see its error");
        }
        if peer.is_gone() {
            let way_out = "see what ended it: a signal, or the memory ran out";
            return failed(*rank, *peer, "it has ended", way_out);
        }
    }
    match others.first() {
        Some(((rank, peer), _)) if time_is_over => {
            let waited = format!("nothing came within {} s", wait.most().as_secs_f64());
            failed(*rank, *peer, &waited, "inspect it (gdb -p), or allow more time")
        }
        _ => Ok(()),
    }
}
