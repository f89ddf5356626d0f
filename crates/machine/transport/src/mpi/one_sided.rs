//! Windows of memory, and operations of one process on another's memory: kinds of window,
//! synchronisation and atomic operations.

use std::ffi::c_int;

use pathline_hal::{CallResult, FlowPart};
use pathline_schema::{AtomicOp, WindowKind, WindowSync, WireOp};

use super::rank_parts::{rank, refused};
use super::steps::MpiOutcome;
use super::table::{Fns, MpiAddress, MpiHandle};
use super::world::{FailedCall, MpiWorld, ok};

/// What a process compares with in `MPI_Compare_and_swap`: targets hold 0 at first.
static ZERO: u64 = 0;

/// An operation on remote memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemoteOp {
    Put,
    Get,
    Atomic(AtomicOp),
}

impl RemoteOp {
    /// The operation of a part; `None` if it is not one-sided.
    pub(super) const fn of(op: WireOp) -> Option<Self> {
        match op {
            WireOp::Put { .. } => Some(Self::Put),
            WireOp::Get { .. } => Some(Self::Get),
            WireOp::Atomic(op) => Some(Self::Atomic(op)),
            _ => None,
        }
    }
    /// The MPI call.
    pub(super) const fn call(self) -> &'static str {
        match self {
            Self::Put => "MPI_Put",
            Self::Get => "MPI_Get",
            Self::Atomic(AtomicOp::Accumulate | AtomicOp::Add) => "MPI_Accumulate",
            Self::Atomic(AtomicOp::GetAccumulate) => "MPI_Get_accumulate",
            Self::Atomic(AtomicOp::FetchAdd | AtomicOp::Swap) => "MPI_Fetch_and_op",
            Self::Atomic(AtomicOp::CompareSwap) => "MPI_Compare_and_swap",
        }
    }
}

/// Functions that complete an operation, and their prerequisites.
pub(super) const fn sync_functions(sync: Option<WindowSync>) -> &'static [&'static str] {
    match sync {
        None => &["MPI_Win_flush", "MPI_Win_lock_all", "MPI_Win_unlock_all"],
        Some(WindowSync::Lock) => &["MPI_Win_lock", "MPI_Win_unlock"],
        Some(WindowSync::Fence) => &["MPI_Win_fence"],
        Some(WindowSync::Pscw) => {
            &["MPI_Win_post", "MPI_Win_start", "MPI_Win_complete", "MPI_Win_wait"]
        }
    }
}

/// The function of a one-sided part that a library lacks; `None` if it has all.
pub(super) fn missing<H: MpiHandle>(f: &Fns<H>, part: &FlowPart) -> Option<&'static str> {
    const ALL: &[&str] = &["MPI_Win_free", "MPI_Win_create_errhandler", "MPI_Win_set_errhandler"];
    let call = [RemoteOp::of(part.wire.op)?.call()];
    let window: &[&str] = match part.wire.window {
        None => &["MPI_Win_create"],
        Some(WindowKind::Allocate) => &["MPI_Win_allocate"],
        Some(WindowKind::Dynamic) => {
            &["MPI_Win_create_dynamic", "MPI_Win_attach", "MPI_Win_detach", "MPI_Get_address"]
        }
    };
    f.first_missing(&[&call, window, sync_functions(part.wire.sync), ALL].concat())
}

/// A window that is open until the case is released.
#[derive(Debug)]
pub(super) struct OpenWindow<H> {
    pub(super) handle: H,
    /// Whether one epoch lasts for its lifetime.
    locked: bool,
    /// Memory that is attached to it.
    attached: Option<MpiAddress>,
    /// Memory of the library, with that of the case, whose content it has during a run: the
    /// library's address, the case's, bytes.
    mirror: Option<(MpiAddress, MpiAddress, usize)>,
    /// The peer alone, if PSCW needs it.
    group: Option<H>,
}

/// Operations of one part, at either end.
#[derive(Debug, Clone, Copy)]
pub(super) struct OneSidedPart<H> {
    pub(super) window: H,
    pub(super) what: RemoteOp,
    pub(super) sync: Option<WindowSync>,
    /// Whether this process operates; otherwise its memory is the target.
    pub(super) origin: bool,
    pub(super) ours: MpiAddress,
    /// What an operation fetches goes here.
    pub(super) result: MpiAddress,
    pub(super) count: c_int,
    pub(super) kind: H,
    /// The peer's rank in the communicator of the two.
    pub(super) peer: c_int,
    /// Where the target's memory begins in the window.
    pub(super) at: isize,
    pub(super) times: u32,
    pub(super) group: H,
}

impl<H: MpiHandle> OneSidedPart<H> {
    /// Begins the epoch of a repetition.
    pub(super) fn begin(&self, world: &MpiWorld<H>) -> MpiOutcome {
        let f = &world.fns;
        // SAFETY: the window is open, the peer and the group are of its two members, and each of
        // the two makes the calls of its end.
        unsafe {
            match (self.sync, self.origin) {
                (Some(WindowSync::Lock), true) => call(f.win_lock, "MPI_Win_lock", |lock| {
                    lock(world.constants.lock_shared, self.peer, 0, self.window)
                }),
                (Some(WindowSync::Fence), _) => {
                    call(f.win_fence, "MPI_Win_fence", |fence| fence(0, self.window))
                }
                (Some(WindowSync::Pscw), true) => {
                    call(f.win_start, "MPI_Win_start", |start| start(self.group, 0, self.window))
                }
                (Some(WindowSync::Pscw), false) => {
                    call(f.win_post, "MPI_Win_post", |post| post(self.group, 0, self.window))
                }
                (None, _) | (Some(WindowSync::Lock), false) => Ok(()),
            }
        }
    }

    /// Issues the operations.
    pub(super) fn issue(&self, world: &MpiWorld<H>) -> MpiOutcome {
        if !self.origin {
            return Ok(());
        }
        let (f, k) = (&world.fns, &world.constants);
        let &Self { window, ours, result, count, kind, peer, at, .. } = self;
        let name = self.what.call();
        for _ in 0..self.times {
            // SAFETY: our buffers and the peer's window have `count` of the type; all live until the
            // case is released, and the repetition ends with a synchronisation.
            unsafe {
                match self.what {
                    RemoteOp::Put => call(f.put, name, |put| {
                        put(ours, count, kind, peer, at, count, kind, window)
                    }),
                    RemoteOp::Get => call(f.get, name, |get| {
                        get(ours, count, kind, peer, at, count, kind, window)
                    }),
                    RemoteOp::Atomic(AtomicOp::Accumulate | AtomicOp::Add) => {
                        call(f.accumulate, name, |accumulate| {
                            accumulate(ours, count, kind, peer, at, count, kind, k.ops.sum, window)
                        })
                    }
                    RemoteOp::Atomic(AtomicOp::GetAccumulate) => {
                        call(f.get_accumulate, name, |fetch| {
                            fetch(
                                ours, count, kind, result, count, kind, peer, at, count, kind,
                                k.ops.sum, window,
                            )
                        })
                    }
                    RemoteOp::Atomic(AtomicOp::FetchAdd) => call(f.fetch_and_op, name, |fetch| {
                        fetch(ours, result, kind, peer, at, k.ops.sum, window)
                    }),
                    RemoteOp::Atomic(AtomicOp::Swap) => call(f.fetch_and_op, name, |fetch| {
                        fetch(ours, result, kind, peer, at, k.replace, window)
                    }),
                    RemoteOp::Atomic(AtomicOp::CompareSwap) => {
                        let zero = (&raw const ZERO).cast_mut().cast();
                        call(f.compare_and_swap, name, |swap| {
                            swap(ours, zero, result, kind, peer, at, window)
                        })
                    }
                }
            }?;
        }
        Ok(())
    }

    /// Ends the operations of a repetition, at the origin and at the target.
    pub(super) fn end(&self, world: &MpiWorld<H>) -> MpiOutcome {
        let (f, window) = (&world.fns, self.window);
        // SAFETY: as in `begin`.
        unsafe {
            match (self.sync, self.origin) {
                (None, true) => {
                    call(f.win_flush, "MPI_Win_flush", |flush| flush(self.peer, window))
                }
                (Some(WindowSync::Lock), true) => {
                    call(f.win_unlock, "MPI_Win_unlock", |unlock| unlock(self.peer, window))
                }
                (Some(WindowSync::Fence), _) => {
                    call(f.win_fence, "MPI_Win_fence", |fence| fence(0, window))
                }
                (Some(WindowSync::Pscw), true) => {
                    call(f.win_complete, "MPI_Win_complete", |complete| complete(window))
                }
                (Some(WindowSync::Pscw), false) => {
                    call(f.win_wait, "MPI_Win_wait", |wait| wait(window))
                }
                (None | Some(WindowSync::Lock), false) => Ok(()),
            }
        }
    }
}

/// Calls a function that the library may lack, which `missing` has excluded.
#[inline(always)]
pub(super) fn call<F: Copy>(
    function: Option<F>,
    name: &'static str,
    does: impl FnOnce(F) -> c_int,
) -> MpiOutcome {
    function.map_or(Ok(()), |function| ok(name, does(function)))
}

impl<H: MpiHandle> OpenWindow<H> {
    /// Opens a window over both ends of a part. `exposed` is the target's memory; the origin has
    /// none. Returns the place of the target's memory in it, too.
    pub(super) fn open(
        world: &mut MpiWorld<H>,
        part: &FlowPart,
        exposed: Option<(MpiAddress, u64)>,
        other: c_int,
    ) -> CallResult<(Self, isize)> {
        let ranks: Vec<i32> = part.group.iter().filter_map(|(r, _)| rank(r.0)).collect();
        let comm = world.group(&ranks)?;
        if let Some(name) = missing(&world.fns, part) {
            return Err(refused(part, format!("the library lacks {name}")));
        }
        let made = Self::make(world, part, exposed, (comm, other));
        let bytes = exposed.map_or(0, |(_, bytes)| bytes);
        made.map_err(|f| world.error(f, &format!("{bytes} B of ranks {ranks:?}")))
    }

    fn make(
        world: &MpiWorld<H>,
        part: &FlowPart,
        exposed: Option<(MpiAddress, u64)>,
        (comm, other): (H, c_int),
    ) -> Result<(Self, isize), FailedCall> {
        let (f, k) = (&world.fns, &world.constants);
        let (base, length) = exposed.unwrap_or((std::ptr::null_mut(), 0));
        let bytes = isize::try_from(length).unwrap_or(isize::MAX);
        let (mut handle, mut own) = (H::default(), H::default());
        let mut opened = Self { handle, locked: false, attached: None, mirror: None, group: None };
        let mut at: isize = 0;
        // SAFETY: the memory is the case's, which keeps it until all have released it; handles are
        // written before they are used, and both processes of the communicator come here. The error
        // handler ignores all arguments but two.
        unsafe {
            match part.wire.window {
                None => call(f.win_create, "MPI_Win_create", |create| {
                    create(base, bytes, 1, k.no_info, comm, &raw mut handle)
                })?,
                Some(WindowKind::Allocate) => {
                    let mut own: MpiAddress = std::ptr::null_mut();
                    call(f.win_allocate, "MPI_Win_allocate", |allocate| {
                        allocate(bytes, 1, k.no_info, comm, &raw mut own, &raw mut handle)
                    })?;
                    let length = usize::try_from(length).unwrap_or(0);
                    opened.mirror = exposed.is_some().then_some((own, base, length));
                }
                Some(WindowKind::Dynamic) => {
                    call(f.win_create_dynamic, "MPI_Win_create_dynamic", |create| {
                        create(k.no_info, comm, &raw mut handle)
                    })?;
                    if exposed.is_some() {
                        call(f.win_attach, "MPI_Win_attach", |attach| attach(handle, base, bytes))?;
                        call(f.get_address, "MPI_Get_address", |get| get(base, &raw mut at))?;
                        opened.attached = Some(base);
                    }
                    // The origin takes the target's address, which is not 0.
                    let mut both = [0_isize; 2];
                    let mine = (&raw mut at).cast();
                    let code =
                        (f.allgather)(mine, 8, k.byte, both.as_mut_ptr().cast(), 8, k.byte, comm);
                    ok("MPI_Allgather", code)?;
                    at = both.into_iter().find(|&address| address != 0).unwrap_or(0);
                }
            }
            world.unfailed("MPI_Win_create")?;
            opened.handle = handle;
            call(f.win_create_errhandler, "MPI_Win_create_errhandler", |create| {
                create(world.window_handler(), &raw mut own)
            })?;
            call(f.win_set_errhandler, "MPI_Win_set_errhandler", |set| set(handle, own))?;
            match part.wire.sync {
                None => {
                    let locked = call(f.win_lock_all, "MPI_Win_lock_all", |lock| lock(0, handle));
                    // The lock may wait for the other process, which has to be within MPI until then: one
                    // that waits at the coordinator's barrier answers nothing (MPICH 4.0 over UCX).
                    let met = ok("MPI_Barrier", (f.barrier)(comm));
                    locked?;
                    opened.locked = true;
                    met?;
                }
                Some(WindowSync::Pscw) => {
                    let (mut all, mut peer) = (H::default(), H::default());
                    ok("MPI_Comm_group", (f.comm_group)(comm, &raw mut all))?;
                    let made = (f.group_incl)(all, 1, &raw const other, &raw mut peer);
                    ok("MPI_Group_incl", made)?;
                    ok("MPI_Group_free", (f.group_free)(&raw mut all))?;
                    opened.group = Some(peer);
                }
                Some(WindowSync::Lock | WindowSync::Fence) => {}
            }
        }
        world.unfailed("MPI_Win_lock_all")?;
        Ok((opened, at))
    }

    /// The group of the peer; a handle without meaning if no call needs it.
    pub(super) fn group(&self) -> H {
        self.group.unwrap_or_default()
    }

    /// Makes writes of peers visible to local reads, and local writes visible to peers. Outside an
    /// epoch the calls that end one do so.
    pub(super) fn sync(&self, world: &MpiWorld<H>) -> MpiOutcome {
        if !self.locked {
            return Ok(());
        }
        // SAFETY: the window is open, and its epoch too.
        unsafe { call(world.fns.win_sync, "MPI_Win_sync", |sync| sync(self.handle)) }
    }

    /// Copies the case's memory into the library's before a run (`into`), or back after it.
    pub(super) fn copy_mirror(&self, into: bool) {
        let Some((window, ours, bytes)) = self.mirror else { return };
        let (from, to) = if into { (ours, window) } else { (window, ours) };
        if !from.is_null() && !to.is_null() {
            // SAFETY: both have `bytes` bytes of host memory, which is of different allocations, and
            // no peer accesses the window between two runs.
            unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), bytes) };
        }
    }

    /// Closes the window.
    pub(super) fn close(mut self, world: &MpiWorld<H>) -> MpiOutcome {
        let f = &world.fns;
        // SAFETY: the window is open, its epoch too if it has one, and all is dropped here.
        unsafe {
            if self.locked {
                call(f.win_unlock_all, "MPI_Win_unlock_all", |unlock| unlock(self.handle))?;
            }
            if let Some(mut group) = self.group.take() {
                ok("MPI_Group_free", (f.group_free)(&raw mut group))?;
            }
            if let Some(base) = self.attached {
                call(f.win_detach, "MPI_Win_detach", |detach| detach(self.handle, base))?;
            }
            call(f.win_free, "MPI_Win_free", |free| free(&raw mut self.handle))
        }
    }
}
