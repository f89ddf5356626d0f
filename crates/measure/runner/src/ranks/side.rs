//! A rank's side: opens the machine and its libraries, and does its part of each step.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use pathline_bench::RankSide;
use pathline_gpu::library_options;
use pathline_hal::{CallError, ExchangeId, Machine, RankBarrier, TransportPort};
use pathline_host::restrict_to_share;
use pathline_schema::{Gpu, Rank, RankMember, Severity, Topology, Transport};
use pathline_transport::{LaunchedRank, PortContext, SharedBarrier, ports};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::component::{LostLibraries, RankComponent};
use super::handshake::RankHello;
use super::job::{MeetingPlace, me};
use super::keeper::KeptState;
use super::protocol::{RankAnswer, RankEntry, RankFailure, RankOrder};
use crate::choice::StorePlaces;
use crate::device_memory::MemoryClaim;
use crate::env::hostname;
use crate::hooks::ProcessHooks;
use crate::link::{LineLink, LinkRecv};
use crate::machine::HostMachine;
use crate::member::{describe, share_of};

/// How long the other ranks may take to reach a barrier.
const MEET_TIMEOUT: Duration = Duration::from_secs(12);

/// How a rank comes to its coordinator.
enum CoordinatorLink {
    /// It is its child, with a socket as standard input.
    Child(Option<LineLink>),
    /// It goes there, and again if another one coordinates after the first was lost. At standard input
    /// is who keeps it.
    Visits { place: MeetingPlace, hello: RankHello, keeper: LineLink },
}

impl CoordinatorLink {
    /// A link to the coordinator; none if there is none any more.
    fn link(&mut self, first: bool) -> Result<Option<LineLink>> {
        match self {
            Self::Child(link) => Ok(link.take()),
            Self::Visits { place, hello, .. } => match place.come(first, hello) {
                Ok(link) => Ok(Some(link)),
                Err(error) if first => Err(error).context("no run coordinates this job"),
                Err(_) => Ok(None),
            },
        }
    }

    /// Reports to the keeper of this rank, if there is one.
    fn report(&mut self, state: KeptState) {
        if let Self::Visits { keeper, .. } = self {
            // Without a keeper this process is ended by the kernel.
            let _ = keeper.send(&state);
        }
    }
}

/// Works until its coordinator ends it: the process that started it, or one to which it goes if it is
/// `kept`.
///
/// # Errors
/// No process asks over a socket, no coordinator is found, or it expects another rank.
pub fn serve_rank(kept: bool, host: &HostMachine, hooks: ProcessHooks) -> Result<()> {
    let libraries = &host.libraries;
    // The coordinator decides when work ends.
    hooks.ignore_interrupts();
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut parent = LineLink::from_standard_input()?;
    let launched = me().filter(|_| kept);
    let mut coordinator = if kept {
        let LinkRecv::Line(place) = parent.listen()? else { return Ok(()) };
        let (rank, size) = launched.as_ref().map_or((0, 1), |l| (l.rank, l.size.unwrap_or(1)));
        let hello = RankHello::new(rank, size, version(), hostname());
        CoordinatorLink::Visits { place, hello, keeper: parent }
    } else {
        parent.send(&RankAnswer::Begins)?;
        CoordinatorLink::Child(Some(parent))
    };
    // While others come.
    let (own, with_mpi) = (libraries.clone(), launched.is_some());
    let broken = kept.then(|| {
        std::thread::spawn(move || LostLibraries::broken_transports(&own, with_mpi, None))
    });
    let Some(mut link) = coordinator.link(true)? else { return Ok(()) };
    let links = Arc::new(AtomicUsize::new(0));
    watch(&link, &links, hooks)?;
    let Some(mut enter) = enter(&mut link, launched.as_ref(), host)? else { return Ok(()) };
    coordinator.report(KeptState::Entered);
    if let Some(Ok(broken)) = broken.map(std::thread::JoinHandle::join) {
        enter.left_out.extend(&broken);
    }
    let (machine, mut member) = open(&mut link, &enter, launched.as_ref(), host, hooks);
    let context = PortContext {
        machine: &machine,
        rank: enter.rank,
        size: enter.size,
        launched: launched.is_some(),
        libraries: libraries.request(),
    };
    let own = |gpu: &&Gpu| member.gpus.contains(&gpu.index);
    let vendor = machine.topology.gpus.iter().find(own).map(|gpu| gpu.vendor.clone());
    let mut claim = None;
    let mut opened: Vec<Box<dyn TransportPort + '_>> = Vec::new();
    let all =
        ports(&context, &mut |via| announce(&mut link, &enter, RankComponent::Transport(via)));
    for (via, port) in all {
        match port {
            Ok(port) => {
                member.ways.insert(via, port.library());
                if via == Transport::Mpi {
                    claim =
                        vendor.as_deref().and_then(|v| port.device_claim(v)).map(MemoryClaim::from);
                }
                opened.push(port);
            }
            Err(why) => drop(member.without.insert(via, why)),
        }
    }
    let mut side = RankSide::new(&machine, Rank(enter.rank), opened);
    loop {
        link.send(&RankAnswer::Opened(Box::new(member.clone()), claim.clone()))?;
        let LinkRecv::Line(RankOrder::Know(members)) = link.listen()? else { return Ok(()) };
        coordinator.report(KeptState::Complete);
        side.know(members);
        link.send(&RankAnswer::Done)?;
        let ended = serve(&RefCell::new(link), &mut side, &enter)?;
        links.fetch_add(1, Ordering::SeqCst);
        if ended == CoordinatorEnd::ForGood {
            return Ok(());
        }
        let next = match coordinator.link(false)? {
            Some(mut next) => self::enter(&mut next, launched.as_ref(), host)?.map(|_| next),
            None => None,
        };
        match next {
            Some(next) => {
                watch(&next, &links, hooks)?;
                link = next;
            }
            // Libraries would wait for ranks that are gone if they were left in peace.
            None => (hooks.exit)(1),
        }
    }
}

/// Opens the machine, and describes this process in it.
fn open(
    link: &mut LineLink,
    enter: &RankEntry,
    launched: Option<&LaunchedRank>,
    host: &HostMachine,
    hooks: ProcessHooks,
) -> (Machine, RankMember) {
    let machine = match announce(link, enter, RankComponent::Gpus) {
        Ok(()) => host.open().machine,
        Err(_) => host.without_gpus(),
    };
    let launched = launched.and_then(|l| Some((l.local_rank?, l.local_size?)));
    let local = enter.local.or(launched).unwrap_or((0, 1));
    let mut member = describe(enter.rank, local, &machine.topology);
    if let Some(local) = enter.local {
        keep_near(&machine.topology, &mut member, local, hooks);
    }
    (machine, member)
}

/// Announces the component that is opened next, so that the coordinator knows it if this process
/// dies there. Returns the reason if it is left out.
fn announce(
    link: &mut LineLink,
    enter: &RankEntry,
    component: RankComponent,
) -> std::result::Result<(), String> {
    match enter.left_out.why(component) {
        Some(why) => Err(why.to_owned()),
        None => {
            // A coordinator that has gone is noticed by the thread that watches it.
            let _ = link.send(&RankAnswer::Opening(component));
            Ok(())
        }
    }
}

/// After the end of its coordinator a rank has this long to end the step at hand.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(5);

/// Ends this process if its coordinator has gone and the step at hand does not end: a library that
/// waits for a lost rank would wait for ever. `links` counts the coordinators so far.
fn watch(link: &LineLink, links: &Arc<AtomicUsize>, hooks: ProcessHooks) -> Result<()> {
    let (twin, links) = (link.twin()?, Arc::clone(links));
    let mine = links.load(Ordering::SeqCst);
    let watch = move || {
        if twin.wait_for_end().is_err() {
            return;
        }
        std::thread::sleep(ORPHAN_TIMEOUT);
        if links.load(Ordering::SeqCst) == mine {
            (hooks.warn)("pathline: the run has ended, and a library still waits for other ranks");
            (hooks.exit)(1);
        }
    };
    std::thread::Builder::new().name("end-of-run".into()).spawn(watch)?;
    Ok(())
}

/// Waits for the order to begin, and sees that it fits how this process was started; none if the run is
/// over.
fn enter(
    link: &mut LineLink,
    launched: Option<&LaunchedRank>,
    host: &HostMachine,
) -> Result<Option<Box<RankEntry>>> {
    let enter = match link.listen()? {
        LinkRecv::Line(RankOrder::Open(enter)) => enter,
        LinkRecv::Line(RankOrder::Refuse(why)) => {
            return Err(anyhow!("the run turned this process away: {why}"));
        }
        _ => return Ok(None),
    };
    let Err(error) = fits(&enter, launched, host) else { return Ok(Some(enter)) };
    link.send(&RankAnswer::Failed(RankFailure::from(error.clone())))?;
    Err(error.into())
}

/// Checks that a coordinator expects this process. A coordinator cannot change what the process
/// opens: only its own command line does.
fn fits(
    enter: &RankEntry,
    launched: Option<&LaunchedRank>,
    host: &HostMachine,
) -> pathline_hal::CallResult<()> {
    let libraries = &host.libraries;
    let same = "start the same program with the same arguments on all nodes";
    if let Some(LaunchedRank { rank, size, by, .. }) = launched
        && (*rank != enter.rank || size.is_some_and(|size| size != enter.size))
    {
        let reason = format!(
            "the coordinator takes it for rank {} of {}, and {by} started it as rank {rank}",
            enter.rank, enter.size
        );
        return Err(CallError::unsupported("open", "this process", reason).or_try(same));
    }
    if !enter.expected.has_same_libraries(libraries) {
        let reason = format!(
            "it was started with {}, and rank 0 with {}",
            libraries.describe(),
            enter.expected.describe()
        );
        let options: Vec<String> =
            library_options().map(|o| format!("--{} ({})", o.name, o.variable)).collect();
        let way_out = format!("give all ranks the same {}", options.join(", "));
        return Err(CallError::unsupported("open", "the libraries", reason).or_try(way_out));
    }
    if enter.stores != host.stores {
        let list = |stores: &StorePlaces| {
            let flags = stores.flags();
            let flags: Vec<_> = flags.iter().map(|flag| flag.to_string_lossy()).collect();
            if flags.is_empty() { "no --store".to_owned() } else { flags.join(" ") }
        };
        let (own, first) = (list(&host.stores), list(&enter.stores));
        let reason = format!("it was started with {own}, and rank 0 with {first}");
        return Err(CallError::unsupported("open", "the places for files", reason).or_try(same));
    }
    Ok(())
}

/// How a coordinator left.
#[derive(PartialEq, Eq)]
enum CoordinatorEnd {
    /// There is nothing more to do.
    ForGood,
    /// It is lost; another one may come.
    Lost,
}

fn serve(
    link: &RefCell<LineLink>,
    side: &mut RankSide<'_>,
    enter: &RankEntry,
) -> Result<CoordinatorEnd> {
    let mut barrier: Box<dyn RankBarrier + '_> = Box::new(OverLink(link));
    loop {
        let received = link.borrow_mut().listen()?;
        let LinkRecv::Line(order) = received else { break };
        let answer = match order {
            RankOrder::Meet(None) => {
                barrier = Box::new(OverLink(link));
                Ok(RankAnswer::Done)
            }
            RankOrder::Meet(Some(room)) => {
                SharedBarrier::open(&room, Rank(enter.rank), MEET_TIMEOUT).map(|place| {
                    barrier = Box::new(place);
                    RankAnswer::Done
                })
            }
            // Of a step that is over for this rank.
            RankOrder::Go | RankOrder::Stop => continue,
            RankOrder::Bind(id, case, reserved) => {
                side.bind(ExchangeId(id), &case, &reserved).map(RankAnswer::Bound)
            }
            RankOrder::Join(id, offers) => {
                side.join(ExchangeId(id), &offers).map(|()| RankAnswer::Done)
            }
            RankOrder::Begin(id, reps) => {
                link.borrow_mut().send(&RankAnswer::Begun)?;
                run(side, ExchangeId(id), reps, barrier.as_ref())
            }
            RankOrder::Run(id, reps) => run(side, ExchangeId(id), reps, barrier.as_ref()),
            RankOrder::Spoil(id) => side.spoil(ExchangeId(id)).map(|()| RankAnswer::Done),
            RankOrder::Check(id) => side.check(ExchangeId(id)).map(RankAnswer::Checked),
            RankOrder::Engine(id) => Ok(RankAnswer::Engine(side.engine(ExchangeId(id)))),
            RankOrder::Disconnect(id) => {
                let ended = side.disconnect(ExchangeId(id));
                Ok(RankAnswer::Disconnected(ended.into_iter().map(|id| id.0).collect()))
            }
            RankOrder::Release(id) => side.release(ExchangeId(id)).map(|()| RankAnswer::Done),
            RankOrder::End => return Ok(CoordinatorEnd::ForGood),
            RankOrder::Refuse(_) | RankOrder::Open(_) | RankOrder::Know(_) => {
                return Err(anyhow!("a machine is open"));
            }
        };
        let answer = answer.unwrap_or_else(|error| RankAnswer::Failed(RankFailure::from(error)));
        link.borrow_mut().send(&answer)?;
    }
    side.release_all();
    Ok(CoordinatorEnd::Lost)
}

/// Runs a case. If that fails here, the other ranks do not wait for this one at a barrier: the coordinator
/// gives all a new one.
fn run(
    side: &mut RankSide<'_>,
    id: ExchangeId,
    reps: u64,
    barrier: &dyn RankBarrier,
) -> pathline_hal::CallResult<RankAnswer> {
    let ran = side.run(id, reps, barrier).inspect_err(|_| barrier.cancel())?;
    Ok(RankAnswer::Ran(ran.times, ran.io))
}

/// Ranks of several nodes meet at their coordinator.
struct OverLink<'l>(&'l RefCell<LineLink>);

impl RankBarrier for OverLink<'_> {
    fn wait(&self) -> pathline_hal::CallResult<()> {
        let lost = |why: &str| CallError::new(Severity::Transient, "meet", "the ranks", why);
        let mut link = self.0.borrow_mut();
        link.send(&RankAnswer::Here).map_err(|error| lost(&error.to_string()))?;
        match link.listen() {
            Ok(LinkRecv::Line(RankOrder::Go)) => Ok(()),
            Ok(LinkRecv::Line(_)) => Err(lost("another rank could not go on")),
            Ok(_) => Err(lost("the run has ended")),
            Err(error) => Err(lost(&error.to_string())),
        }
    }
}

/// The version, which must be the same on all ranks.
pub(super) fn version() -> String {
    format!("{} ({})", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)
}

/// Keeps a rank that no launcher has placed to separate CPUs in its domain, as far as there are
/// enough.
fn keep_near(
    topology: &Topology,
    member: &mut RankMember,
    (local, locals): (u32, u32),
    hooks: ProcessHooks,
) {
    let is_near = |of: &u32| share_of(topology, *of, locals).1 == member.numa;
    let (nth, shares) = ((0..local).filter(is_near).count(), (0..locals).filter(is_near).count());
    match restrict_to_share(topology, member.numa, nth, shares) {
        Ok(cpus) => member.cpus = cpus.to_string(),
        Err(error) => {
            (hooks.warn)(&format!("rank {}: not kept to its CPUs: {error}", member.rank.0));
        }
    }
}
