//! Communicators, and what is done over them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{INVALID_ARGUMENT, INVALID_USAGE};
use crate::node::Handle;
use crate::spec::{Blow, Spec};

/// Bytes of a type: those that programs of this repository send. Unknown ones have none, so that
/// nothing is touched.
pub(super) fn size_of(kind: i32) -> usize {
    match kind {
        0 | 1 => 1,
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        _ => 0,
    }
}

/// A collective, as one rank has said it.
#[derive(Debug, Clone, Copy)]
pub(super) struct All {
    pub(super) what: &'static str,
    pub(super) send: u64,
    pub(super) recv: u64,
    pub(super) count: usize,
    pub(super) kind: i32,
    pub(super) op: i32,
    pub(super) root: i32,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Send { at: u64, bytes: usize, peer: i32 },
    Recv { at: u64, bytes: usize, peer: i32 },
    All(All),
}

/// What is enqueued as one.
#[derive(Debug)]
pub(super) struct Task {
    comm: Handle,
    pub(super) acts: Vec<Act>,
    pub(super) hangs: bool,
    pub(super) corrupts: bool,
}

/// One rank of a communicator.
#[derive(Debug)]
struct Comm {
    world: u64,
    rank: i32,
    met: i32,
    /// Collectives that its stream has come to.
    turns: u64,
    /// Messages to and from each rank.
    sent: BTreeMap<i32, u64>,
    received: BTreeMap<i32, u64>,
    registered: BTreeSet<Handle>,
}

/// A message that waits for its receiver: source, destination, which one of the pair.
type Letter = (i32, i32, u64);

/// A communicator of all its ranks.
#[derive(Debug, Default)]
struct World {
    size: i32,
    ranks: BTreeSet<i32>,
    aborted: bool,
    arrived: BTreeMap<u64, BTreeMap<i32, (Handle, All)>>,
    done: BTreeSet<u64>,
    letters: BTreeMap<Letter, (u64, usize)>,
    taken: BTreeSet<Letter>,
}

/// Everything of the library.
#[derive(Debug, Default)]
pub(super) struct State {
    spec: Option<Spec>,
    calls: BTreeMap<&'static str, u64>,
    comms: BTreeMap<Handle, Comm>,
    worlds: BTreeMap<u64, World>,
    made: u64,
    pub(super) log: Option<File>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

/// The state under its lock.
pub(super) struct Locked(MutexGuard<'static, Option<State>>);

impl std::ops::Deref for Locked {
    type Target = State;
    fn deref(&self) -> &State {
        self.0.as_ref().expect("made when it was locked")
    }
}
impl std::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("made when it was locked")
    }
}
impl Locked {
    /// Lets others change it, and comes back when somebody did.
    fn wait(self) -> Self {
        Self(CHANGED.wait(self.0).unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) fn state() -> Locked {
    let mut guard = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    guard.get_or_insert_with(|| State {
        spec: Spec::from_env().ok(),
        made: 0x0cc1_0000,
        ..State::default()
    });
    Locked(guard)
}

impl State {
    pub(super) fn number(&mut self) -> u64 {
        self.made += 16;
        self.made
    }
    /// Counts a call: what strikes it.
    pub(super) fn strike(&mut self, call: &'static str) -> Option<Blow> {
        let nth = self.calls.entry(call).or_default();
        *nth += 1;
        let struck = |f: &&crate::spec::Fault| f.call == call && (f.first..=f.last).contains(nth);
        Some(self.spec.as_ref()?.faults.iter().find(struck)?.blow.clone())
    }
    pub(super) fn knows(&self, comm: Handle) -> bool {
        self.comms.contains_key(&comm)
    }
    pub(super) fn met(&self, comm: Handle) -> i32 {
        self.comms.get(&comm).map_or(INVALID_ARGUMENT, |c| c.met)
    }
    pub(super) fn register(&mut self, comm: Handle) -> Handle {
        let handle = self.number() as Handle;
        if let Some(comm) = self.comms.get_mut(&comm) {
            comm.registered.insert(handle);
        }
        handle
    }
    pub(super) fn deregister(&mut self, comm: Handle, handle: Handle) -> i32 {
        let known = self.comms.get_mut(&comm).is_some_and(|c| c.registered.remove(&handle));
        if known { 0 } else { INVALID_ARGUMENT }
    }
    fn aborted(&self, world: u64) -> bool {
        self.worlds.get(&world).is_none_or(|w| w.aborted)
    }
}

/// Joins a communicator and waits for all its ranks.
pub(super) fn join(id: u64, size: i32, rank: i32) -> Result<Handle, i32> {
    let mut state = state();
    if size < 1 || !(0..size).contains(&rank) {
        return Err(INVALID_ARGUMENT);
    }
    let world = state.worlds.entry(id).or_default();
    if (world.size != 0 && world.size != size) || !world.ranks.insert(rank) {
        return Err(INVALID_USAGE);
    }
    world.size = size;
    CHANGED.notify_all();
    while state.worlds.get(&id).is_some_and(|w| w.ranks.len() < size as usize) {
        state = state.wait();
    }
    let comm = Comm {
        world: id,
        rank,
        met: 0,
        turns: 0,
        sent: BTreeMap::new(),
        received: BTreeMap::new(),
        registered: BTreeSet::new(),
    };
    let handle = state.number() as Handle;
    state.comms.insert(handle, comm);
    Ok(handle)
}

/// Ends a rank. Once one has aborted, whatever waits in this communicator ends.
pub(super) fn leave(comm: Handle, abort: bool) -> i32 {
    let mut state = state();
    let Some(gone) = state.comms.remove(&comm) else { return INVALID_ARGUMENT };
    if abort && let Some(world) = state.worlds.get_mut(&gone.world) {
        world.aborted = true;
    }
    CHANGED.notify_all();
    0
}

impl Task {
    pub(super) fn new(comm: Handle) -> Self {
        Self { comm, acts: Vec::new(), hangs: false, corrupts: false }
    }

    /// Writes the lines of rank 0, as the library does.
    pub(super) fn log(&self) {
        let mut state = state();
        let Some((rank, size)) = state
            .comms
            .get(&self.comm)
            .map(|c| (c.rank, c.world))
            .map(|(rank, world)| (rank, state.worlds.get(&world).map_or(1, |w| w.size)))
        else {
            return;
        };
        let Some(log) = state.log.as_mut().filter(|_| rank == 0) else { return };
        // Nobody reads what cannot be written.
        let _ = writeln!(log, "stub [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/stub");
        for act in &self.acts {
            if let Act::All(all) = act {
                let parts = if all.what == "AllGather" { size as usize } else { 1 };
                let bytes = all.count * size_of(all.kind) * parts;
                let _ = writeln!(
                    log,
                    "stub [0] NCCL INFO {}: {bytes} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..3}}",
                    all.what
                );
            }
        }
    }

    /// Does it, on the thread that the stream has for functions.
    ///
    /// # Safety
    /// All ranges are memory of this process.
    pub(super) unsafe fn perform(&self) {
        let mut locked = state();
        let Some(comm) = locked.comms.get(&self.comm) else { return };
        let (world, rank) = (comm.world, comm.rank);
        if self.hangs {
            while !locked.aborted(world) {
                locked = locked.wait();
            }
            return;
        }
        let mut sent = Vec::new();
        for act in &self.acts {
            if let &Act::Send { at, bytes, peer } = act {
                let Some(comm) = locked.comms.get_mut(&self.comm) else { return };
                let nth = comm.sent.entry(peer).or_default();
                *nth += 1;
                let letter = (rank, peer, *nth);
                if let Some(world) = locked.worlds.get_mut(&world) {
                    world.letters.insert(letter, (at, bytes));
                }
                sent.push(letter);
            }
        }
        CHANGED.notify_all();
        for act in &self.acts {
            if let &Act::Recv { at, bytes, peer } = act {
                let Some(comm) = locked.comms.get_mut(&self.comm) else { return };
                let nth = comm.received.entry(peer).or_default();
                *nth += 1;
                let letter = (peer, rank, *nth);
                let (from, length) = loop {
                    if locked.aborted(world) {
                        return;
                    }
                    let letters = locked.worlds.get_mut(&world).map(|w| &mut w.letters);
                    match letters.and_then(|letters| letters.remove(&letter)) {
                        Some(found) => break found,
                        None => locked = locked.wait(),
                    }
                };
                // SAFETY: the caller's promise, and the sender's task waits until it is taken.
                unsafe {
                    std::ptr::copy(from as *const u8, at as *mut u8, bytes.min(length));
                    self.damage(at, bytes);
                }
                if let Some(world) = locked.worlds.get_mut(&world) {
                    world.taken.insert(letter);
                }
                CHANGED.notify_all();
            }
        }
        for letter in sent {
            while !locked.aborted(world)
                && locked.worlds.get_mut(&world).is_some_and(|w| !w.taken.remove(&letter))
            {
                locked = locked.wait();
            }
        }
        for act in &self.acts {
            if let Act::All(all) = act {
                // SAFETY: the caller's promise.
                locked = unsafe { self.collective(locked, world, rank, *all) };
            }
        }
    }

    /// # Safety
    /// `bytes` at `at` may be written.
    unsafe fn damage(&self, at: u64, bytes: usize) {
        if self.corrupts && bytes > 0 {
            // SAFETY: inside the range.
            unsafe {
                let at = (at as usize + bytes / 2) as *mut u8;
                at.write(!at.read());
            }
        }
    }

    /// Waits for all ranks; the last to come does the work.
    ///
    /// # Safety
    /// As [`Task::perform`].
    unsafe fn collective(&self, mut state: Locked, world: u64, rank: i32, all: All) -> Locked {
        let Some(comm) = state.comms.get_mut(&self.comm) else { return state };
        comm.turns += 1;
        let turn = comm.turns;
        let Some(here) = state.worlds.get_mut(&world) else { return state };
        let size = here.size as usize;
        let arrived = here.arrived.entry(turn).or_default();
        arrived.insert(rank, (self.comm, all));
        if arrived.len() == size {
            let ranks: Vec<(Handle, All)> = arrived.values().copied().collect();
            here.arrived.remove(&turn);
            here.done.insert(turn);
            let said: Vec<All> = ranks.iter().map(|(_, all)| *all).collect();
            // SAFETY: the caller's promise, for every rank: all of them wait here.
            if !unsafe { work(&said) } {
                for (handle, _) in &ranks {
                    if let Some(comm) = state.comms.get_mut(handle) {
                        comm.met = INVALID_USAGE;
                    }
                }
            }
            CHANGED.notify_all();
        }
        while !state.aborted(world)
            && state.worlds.get(&world).is_some_and(|w| !w.done.contains(&turn))
        {
            state = state.wait();
        }
        // SAFETY: the caller's promise.
        unsafe { self.damage(all.recv, all.count * size_of(all.kind)) };
        state
    }
}

/// # Safety
/// `bytes` at `at` may be read.
unsafe fn read(at: u64, bytes: usize) -> Vec<u8> {
    let mut all = vec![0; bytes];
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(at as *const u8, all.as_mut_ptr(), bytes) };
    all
}

/// # Safety
/// As many bytes at `at` may be written.
unsafe fn write(at: u64, bytes: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
}

/// The sum of 64-bit integers, which wraps.
fn sum(all: &[Vec<u8>]) -> Vec<u8> {
    let words = |bytes: &Vec<u8>| -> Vec<u64> {
        let word = |w: &[u8]| w.try_into().map_or(0, u64::from_le_bytes);
        bytes.chunks_exact(8).map(word).collect()
    };
    let mut total = all.first().map(words).unwrap_or_default();
    for bytes in all.iter().skip(1) {
        total.iter_mut().zip(words(bytes)).for_each(|(a, b)| *a = a.wrapping_add(b));
    }
    total.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Does a collective that all ranks, in order, have said. Whether they said the same, and something
/// that this library can do.
///
/// # Safety
/// All ranges are memory of this process.
unsafe fn work(ranks: &[All]) -> bool {
    let Some(first) = ranks.first() else { return false };
    let alike = |a: &All| {
        (a.what, a.count, a.kind, a.op, a.root)
            == (first.what, first.count, first.kind, first.op, first.root)
    };
    let sums = ["AllReduce", "Reduce", "ReduceScatter"].contains(&first.what);
    let can = !sums || (matches!(first.kind, 4 | 5) && first.op == 0);
    let bytes = first.count * size_of(first.kind);
    if !ranks.iter().all(alike) || !can || bytes == 0 {
        return false;
    }
    let n = ranks.len();
    let part = |all: &[u8], nth: usize| all[nth * bytes..(nth + 1) * bytes].to_vec();
    // SAFETY: the caller's promise. All is read before anything is written.
    unsafe {
        let sent = |factor: usize| -> Vec<Vec<u8>> {
            ranks.iter().map(|r| read(r.send, bytes * factor)).collect()
        };
        match first.what {
            "AllReduce" => {
                let total = sum(&sent(1));
                ranks.iter().for_each(|r| write(r.recv, &total));
            }
            "Reduce" => {
                let total = sum(&sent(1));
                let Some(root) = ranks.get(first.root as usize) else { return false };
                write(root.recv, &total);
            }
            "Broadcast" => {
                let root = ranks.get(first.root as usize).map(|r| read(r.send, bytes));
                let Some(root) = root else { return false };
                ranks.iter().for_each(|r| write(r.recv, &root));
            }
            "ReduceScatter" => {
                let total = sum(&sent(n));
                let each = ranks.iter().enumerate();
                each.for_each(|(nth, r)| write(r.recv, &part(&total, nth)));
            }
            "AllGather" => {
                let whole = sent(1).concat();
                ranks.iter().for_each(|r| write(r.recv, &whole));
            }
            _ => {
                let all = sent(n);
                for (to, r) in ranks.iter().enumerate() {
                    let whole: Vec<u8> = all.iter().flat_map(|from| part(from, to)).collect();
                    write(r.recv, &whole);
                }
            }
        }
    }
    true
}
