//! The side that asks: a probe process, or a thread with a simulated machine in this process.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::protocol::{ProbeEvent, ProbeOpening, ProbeOrder};
use super::server::{self, ProbeServer};
use crate::link::LinkRecv;
use crate::process::WorkerProcess;

/// How long the end of a process may take to be known after its socket is closed.
const END_TIMEOUT: Duration = Duration::from_millis(50);
/// How long a process may take to give back memory and devices before the next one starts.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The answer to an order.
#[derive(Debug)]
pub(super) enum ProbeAnswer {
    /// As expected.
    Event(ProbeEvent),
    /// None in time.
    Late {
        /// The probe that was at work.
        at: Option<usize>,
        /// What the process does, as the kernel states it, where that is known.
        state: Option<KernelState>,
    },
    /// The process is lost.
    Lost {
        /// The probe that was at work.
        at: Option<usize>,
        /// How it ended, as a clause.
        how: String,
        /// Whether it crashed, rather than being ended from outside or giving up.
        crashed: bool,
    },
}

/// What a process that does not answer is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KernelState {
    /// It computes or waits.
    Alive,
    /// It is in a call into the kernel that no signal ends (state D).
    Uninterruptible,
    /// It was stopped from outside (state T).
    Stopped,
}

/// One process of a check.
pub(super) enum ProbeProcess {
    Worker { process: WorkerProcess, begun: Instant },
    Local(LocalProcess),
}

/// A thread that has a simulated machine.
pub(super) struct LocalProcess {
    orders: Sender<ProbeOrder>,
    /// Events, with the machine's clock.
    events: Receiver<(ProbeEvent, Duration)>,
    /// The machine's clock at the last event.
    clock: Duration,
}

impl ProbeProcess {
    /// This program once more.
    pub(super) fn start() -> io::Result<Self> {
        let process = WorkerProcess::start(&["health-worker"], &BTreeMap::new())?;
        Ok(Self::Worker { process, begun: Instant::now() })
    }

    /// A thread that simulates a machine in virtual time.
    pub(super) fn simulate() -> io::Result<Self> {
        let (orders, asked) = channel::<ProbeOrder>();
        let (answers, events) = channel();
        let serve = move || simulate(&asked, &answers);
        std::thread::Builder::new().name("simulated-node".into()).spawn(serve)?;
        Ok(Self::Local(LocalProcess { orders, events, clock: Duration::ZERO }))
    }

    /// Time since it was started; of a simulated machine in virtual time.
    pub(super) fn elapsed(&self) -> Duration {
        match self {
            Self::Worker { begun, .. } => begun.elapsed(),
            Self::Local(local) => local.clock,
        }
    }

    /// Opens the machine.
    pub(super) fn open(&mut self, opening: ProbeOpening, limit: Duration) -> ProbeAnswer {
        self.ask(&ProbeOrder::Open(Box::new(opening)), limit, limit)
    }

    /// Gives an order and waits for its answer, at most `limit`; a step of it may take `step`.
    pub(super) fn ask(
        &mut self,
        order: &ProbeOrder,
        limit: Duration,
        step: Duration,
    ) -> ProbeAnswer {
        match self {
            Self::Worker { process, .. } => ask_worker(process, order, limit, step),
            Self::Local(local) => local.ask(order, limit),
        }
    }

    /// Ends it. What does not end soon is killed and left alone.
    pub(super) fn end(self, most: Duration) {
        if let Self::Worker { process, .. } = self {
            process.abandon(most.min(CLOSE_TIMEOUT));
        }
    }
}

fn ask_worker(
    process: &mut WorkerProcess,
    order: &ProbeOrder,
    limit: Duration,
    step: Duration,
) -> ProbeAnswer {
    let begun = Instant::now();
    let until = begun + limit;
    let mut at = None;
    let lost = |process: &mut WorkerProcess, at| {
        let left = until.saturating_duration_since(Instant::now());
        let (how, crashed) = process.end_text(END_TIMEOUT.min(left));
        ProbeAnswer::Lost { at, how, crashed }
    };
    let sent = process.link.set_send_timeout(limit).and_then(|()| process.link.send(order));
    if let Err(error) = sent {
        let late = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        if late {
            return ProbeAnswer::Late { at, state: kernel_state(process.id()) };
        }
        return lost(process, at);
    }
    let mut step_until = until.min(begun + step);
    loop {
        match process.link.listen_until::<ProbeEvent>(Some(step_until)) {
            Ok(LinkRecv::Line(ProbeEvent::Started(probe))) => {
                at = Some(probe);
                step_until = until.min(Instant::now() + step);
                if Instant::now() >= until {
                    return ProbeAnswer::Late { at, state: kernel_state(process.id()) };
                }
            }
            Ok(LinkRecv::Line(event)) => return ProbeAnswer::Event(event),
            Ok(LinkRecv::Timeout) if Instant::now() >= step_until => {
                return ProbeAnswer::Late { at, state: kernel_state(process.id()) };
            }
            Ok(LinkRecv::Timeout) if !process.has_ended() => {}
            Ok(LinkRecv::Timeout | LinkRecv::End) => return lost(process, at),
            Err(error) => {
                let how = format!("sent what is no message ({error})");
                return ProbeAnswer::Lost { at, how, crashed: false };
            }
        }
    }
}

/// The state of a process by /proc, which answers for processes in state D, too.
fn kernel_state(pid: u32) -> Option<KernelState> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    Some(match rest.trim_start().chars().next()? {
        'D' => KernelState::Uninterruptible,
        'T' | 't' => KernelState::Stopped,
        _ => KernelState::Alive,
    })
}

impl LocalProcess {
    fn ask(&mut self, order: &ProbeOrder, limit: Duration) -> ProbeAnswer {
        let ended = || "has ended".to_owned();
        if self.orders.send(order.clone()).is_err() {
            return ProbeAnswer::Lost { at: None, how: ended(), crashed: false };
        }
        // Virtual time passes faster or slower than real time. A description that is too large to be
        // simulated must not keep the caller for ever.
        let until = Instant::now() + REAL_LIMIT.max(limit);
        let mut at = None;
        loop {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((ProbeEvent::Started(probe), clock)) => {
                    (at, self.clock) = (Some(probe), clock);
                }
                Ok((event, clock)) => {
                    self.clock = clock;
                    return ProbeAnswer::Event(event);
                }
                Err(RecvTimeoutError::Timeout) => return ProbeAnswer::Late { at, state: None },
                Err(RecvTimeoutError::Disconnected) => {
                    return ProbeAnswer::Lost { at, how: ended(), crashed: false };
                }
            }
        }
    }
}

/// Longest real time of one order to a simulated machine.
const REAL_LIMIT: Duration = Duration::from_secs(60);

/// Serves orders in virtual time until the other end is dropped.
fn simulate(asked: &Receiver<ProbeOrder>, answers: &Sender<(ProbeEvent, Duration)>) {
    let Ok(ProbeOrder::Open(opening)) = asked.recv() else { return };
    let Ok(open) = server::open(&opening) else { return };
    let now = || Duration::from_nanos(open.machine.clock.now().0.max(0.0) as u64);
    let mut send = |event: ProbeEvent| {
        answers.send((event, now())).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    };
    if send(ProbeEvent::Opened(Box::new(server::view(&open)))).is_err() {
        return;
    }
    let mut server = ProbeServer::new(&open.machine);
    while let Ok(order) = asked.recv() {
        if server.serve(order, &mut send).is_err() {
            return;
        }
    }
}
