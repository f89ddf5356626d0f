//! `io_uring`, by its three system calls and the rings that it shares with the kernel.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::engine::{BlockEngine, FinishedIo, WorkerBlocks};
use pathline_host::clock;

// Numbers of `linux/io_uring.h`.
const SETUP_IOPOLL: u32 = 1 << 0;
const SETUP_CQSIZE: u32 = 1 << 3;
const SETUP_COOP_TASKRUN: u32 = 1 << 8;
const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
const FEAT_SINGLE_MMAP: u32 = 1;
const ENTER_GETEVENTS: u32 = 1;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const REGISTER_BUFFERS: u32 = 0;
const UNREGISTER_BUFFERS: u32 = 1;
const REGISTER_FILES: u32 = 2;
const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;
const OP_READ_FIXED: u8 = 4;
const OP_WRITE_FIXED: u8 = 5;
const OP_READ: u8 = 22;
const OP_WRITE: u8 = 23;
const SQE_FIXED_FILE: u8 = 1;
const OFFSET_RINGS: i64 = 0;
const OFFSET_SQES: i64 = 0x1000_0000;
/// The most that one registered buffer may be.
const LARGEST_BUFFER: u64 = 1 << 30;
/// How often, and how far apart, a ring that refuses calls is asked for its I/Os: 10 s in all.
/// Ends of most I/Os appear in it without a call.
const SETTLE_TRIES: u32 = 1000;
const SETTLE_PAUSE: Duration = Duration::from_millis(10);

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct SqOffsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    flags: u32,
    dropped: u32,
    array: u32,
    reserved: u32,
    user_addr: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct CqOffsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    overflow: u32,
    cqes: u32,
    flags: u32,
    reserved: u32,
    user_addr: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct UringParams {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    sq: SqOffsets,
    cq: CqOffsets,
}

/// `struct io_uring_sqe`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct SubmitEntry {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    offset: u64,
    address: u64,
    len: u32,
    rw_flags: i32,
    user_data: u64,
    buffer: u16,
    personality: u16,
    splice: i32,
    reserved: [u64; 2],
}

/// `struct io_uring_cqe`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct UringCompletion {
    user_data: u64,
    result: i32,
    flags: u32,
}

/// `struct io_uring_rsrc_update`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RegisterUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// The requested properties of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingKind {
    /// With registered buffers and files.
    Registered,
    /// Without.
    Plain,
    /// Registered, and the device is polled.
    Poll,
}

/// Memory that is shared with the kernel.
#[derive(Debug)]
struct RingMapping {
    at: *mut u8,
    len: usize,
}

impl RingMapping {
    fn new(fd: &OwnedFd, len: usize, offset: i64) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a fresh mapping of the ring's own memory, at an address that the kernel chooses.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, fd.as_raw_fd(), offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { at: at.cast(), len })
    }

    /// A word that both sides use.
    fn word(&self, offset: u32) -> io::Result<*const AtomicU32> {
        self.part(offset, 4).map(|at| at as *const AtomicU32)
    }

    /// The address of a part of `bytes` at `offset`.
    fn part(&self, offset: u32, bytes: usize) -> io::Result<*mut u8> {
        let inside = (offset as usize).checked_add(bytes).is_some_and(|end| end <= self.len);
        if !inside || !offset.is_multiple_of(4) {
            return Err(io::Error::other("the kernel placed a ring outside its own memory"));
        }
        // SAFETY: inside the mapping.
        Ok(unsafe { self.at.add(offset as usize) })
    }
}

impl Drop for RingMapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, unmapped once.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// A ring of one thread.
#[derive(Debug)]
pub(super) struct UringEngine {
    kind: RingKind,
    flags: u32,
    blocks: WorkerBlocks,
    /// Slots of one registered buffer.
    slots_a_buffer: u32,
    sq_head: *const AtomicU32,
    sq_tail: *const AtomicU32,
    cq_head: *const AtomicU32,
    cq_tail: *const AtomicU32,
    cq_mask: u32,
    sq_mask: u32,
    entries: *mut SubmitEntry,
    completions: *const UringCompletion,
    tail: u32,
    noted: u32,
    /// Entries before the kernel took the first, and how many I/Os have ended, modulo 2^32.
    first: u32,
    reaped: u32,
    /// Whether something in flight was given up on.
    abandoned: bool,
    /// The number that the ring has among the registered ones of this thread.
    registered: Option<u32>,
    // Unmapped before the descriptor is closed.
    _rings: RingMapping,
    _sqes: RingMapping,
    fd: OwnedFd,
}

fn setup(entries: u32, params: &mut UringParams) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads and writes one set of parameters, which lives through the call.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, &raw mut *params) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Registers or unregisters what `at` points to.
fn register(fd: &OwnedFd, what: u32, at: *const libc::c_void, count: u32) -> io::Result<i32> {
    // SAFETY: callers give arrays of `count` of what the operation takes, which live through the
    // call; buffers are memory that outlives the ring's use of it.
    let code =
        unsafe { libc::syscall(libc::SYS_io_uring_register, fd.as_raw_fd(), what, at, count) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code as i32) }
}

/// Whether rings can be had at all.
///
/// # Errors
/// The kernel's error: EPERM and ENOSYS where a policy forbids rings.
pub(super) fn probe() -> io::Result<()> {
    setup(1, &mut UringParams::default()).map(drop)
}

impl UringEngine {
    /// A ring for the I/O of the calling thread, which alone may use it.
    pub(super) fn new(kind: RingKind, blocks: WorkerBlocks) -> io::Result<Self> {
        let (fd, params) = Self::make(kind, blocks.slots)?;
        if params.features & FEAT_SINGLE_MMAP == 0 {
            return Err(io::Error::other("io_uring of Linux 5.6 or newer is needed"));
        }
        let completions =
            params.cq.cqes as usize + params.cq_entries as usize * size_of::<UringCompletion>();
        let array = params.sq.array as usize + params.sq_entries as usize * 4;
        let rings = RingMapping::new(&fd, completions.max(array), OFFSET_RINGS)?;
        let bytes = params.sq_entries as usize * size_of::<SubmitEntry>();
        let sqes = RingMapping::new(&fd, bytes, OFFSET_SQES)?;
        let array = rings.part(params.sq.array, params.sq_entries as usize * 4)?.cast::<u32>();
        for index in 0..params.sq_entries {
            // SAFETY: inside the array, which the kernel reads only in calls of this thread. Entry i
            // is always used at place i.
            unsafe { array.add(index as usize).write(index) };
        }
        let read = |offset| -> io::Result<u32> {
            // SAFETY: a word of the rings.
            Ok(unsafe { &*rings.word(offset)? }.load(Ordering::Acquire))
        };
        let mut ring = Self {
            kind,
            flags: params.flags,
            slots_a_buffer: (LARGEST_BUFFER / u64::from(blocks.block)).clamp(1, 1 << 30) as u32,
            blocks,
            sq_head: rings.word(params.sq.head)?,
            sq_tail: rings.word(params.sq.tail)?,
            cq_head: rings.word(params.cq.head)?,
            cq_tail: rings.word(params.cq.tail)?,
            cq_mask: read(params.cq.ring_mask)?,
            sq_mask: read(params.sq.ring_mask)?,
            completions: rings
                .part(params.cq.cqes, params.cq_entries as usize * size_of::<UringCompletion>())?
                .cast(),
            entries: sqes.at.cast(),
            tail: read(params.sq.tail)?,
            noted: 0,
            first: read(params.sq.head)?,
            reaped: 0,
            abandoned: false,
            registered: None,
            _rings: rings,
            _sqes: sqes,
            fd,
        };
        if kind != RingKind::Plain {
            ring.register_file()?;
        }
        ring.registered = ring.register_ring();
        Ok(ring)
    }

    /// With the switches of the newest kernel that takes them.
    fn make(kind: RingKind, slots: u32) -> io::Result<(OwnedFd, UringParams)> {
        let base = if kind == RingKind::Poll { SETUP_IOPOLL } else { 0 } | SETUP_CQSIZE;
        let wishes = [
            SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN,
            SETUP_SINGLE_ISSUER | SETUP_COOP_TASKRUN,
            SETUP_COOP_TASKRUN,
            0,
        ];
        let mut last = io::Error::from_raw_os_error(libc::EINVAL);
        for wish in wishes {
            let mut params = UringParams {
                flags: base | wish,
                cq_entries: slots.next_power_of_two().saturating_mul(2),
                ..UringParams::default()
            };
            match setup(slots, &mut params) {
                Ok(fd) => return Ok((fd, params)),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn register_file(&self) -> io::Result<()> {
        let fd = self.blocks.file.as_raw_fd();
        register(&self.fd, REGISTER_FILES, (&raw const fd).cast(), 1).map(drop)
    }

    /// Locks the slots' memory into place for the ring.
    pub(super) fn register_buffers(&self) -> io::Result<()> {
        let parts: Vec<libc::iovec> = (0..self.blocks.slots)
            .step_by(self.slots_a_buffer as usize)
            .map(|first| {
                let slots = self.slots_a_buffer.min(self.blocks.slots - first);
                libc::iovec {
                    iov_base: self.blocks.address(first) as *mut _,
                    iov_len: slots as usize * self.blocks.block as usize,
                }
            })
            .collect();
        register(&self.fd, REGISTER_BUFFERS, parts.as_ptr().cast(), parts.len() as u32).map(drop)
    }

    /// Spares the kernel the look-up of the descriptor in each call. Linux 5.18; without it, it works
    /// as well.
    fn register_ring(&self) -> Option<u32> {
        let mut update =
            RegisterUpdate { offset: u32::MAX, reserved: 0, data: self.fd.as_raw_fd() as u64 };
        let code = register(&self.fd, REGISTER_RING_FDS, (&raw mut update).cast(), 1);
        code.ok().filter(|&n| n == 1).map(|_| update.offset)
    }

    /// Takes what has ended.
    #[inline]
    fn reap(&mut self, ended: &mut Vec<FinishedIo>) -> u32 {
        // SAFETY: words of the rings, which live as long as this; only this thread moves the head.
        let (head, tail) = unsafe {
            ((*self.cq_head).load(Ordering::Relaxed), (*self.cq_tail).load(Ordering::Acquire))
        };
        let count = tail.wrapping_sub(head);
        for n in 0..count {
            let at = head.wrapping_add(n) & self.cq_mask;
            // SAFETY: below the number of entries, which is the mask plus one; written by the kernel
            // before it moved the tail.
            let completion = unsafe { self.completions.add(at as usize).read() };
            ended.push((completion.user_data as u32, completion.result));
        }
        if count > 0 {
            // SAFETY: as above.
            unsafe { (*self.cq_head).store(tail, Ordering::Release) };
        }
        self.reaped = self.reaped.wrapping_add(count);
        count
    }

    /// Has the kernel refuse the number of the ring.
    #[cfg(test)]
    pub(super) fn refuse_calls(&mut self) {
        self.registered = Some(u32::MAX >> 1);
    }

    /// Entries that the kernel has taken.
    fn taken(&self) -> u32 {
        // SAFETY: a word of the rings, which the kernel alone moves.
        unsafe { (*self.sq_head).load(Ordering::Acquire) }
    }

    /// I/Os that the kernel has taken and that have not ended. By its own count: whatever a call
    /// returned, this holds.
    fn in_flight(&self) -> u32 {
        self.taken().wrapping_sub(self.first).wrapping_sub(self.reaped)
    }

    /// Hands over what was noted and waits for the ends of `least` I/Os. How many were handed over.
    #[inline]
    fn call(&self, least: u32) -> io::Result<u32> {
        let (fd, flag) = match self.registered {
            Some(number) => (number.cast_signed(), ENTER_REGISTERED_RING),
            None => (self.fd.as_raw_fd(), 0),
        };
        // With deferred work, ends are seen only by a call that asks for them.
        let flags = flag | ENTER_GETEVENTS;
        // SAFETY: entries name blocks of memory that the round holds until all have ended.
        let code = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                fd,
                self.noted,
                least,
                flags,
                ptr::null::<libc::c_void>(),
                0usize,
            )
        };
        if code >= 0 {
            return Ok(code as u32);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(0),
            _ => Err(error),
        }
    }
}

impl BlockEngine for UringEngine {
    fn call(&self) -> &'static str {
        "io_uring_enter"
    }

    fn describe(&self) -> String {
        let mut words = match self.kind {
            RingKind::Registered => "io_uring, registered buffers and files".to_owned(),
            RingKind::Plain => "io_uring".to_owned(),
            RingKind::Poll => {
                "io_uring, registered buffers and files, polled completions".to_owned()
            }
        };
        if self.flags & SETUP_DEFER_TASKRUN != 0 {
            words.push_str(", deferred task work");
        }
        words
    }

    #[inline]
    fn push(&mut self, slot: u32, write: bool, offset: u64) {
        let fixed = self.kind != RingKind::Plain;
        let entry = SubmitEntry {
            opcode: match (fixed, write) {
                (true, false) => OP_READ_FIXED,
                (true, true) => OP_WRITE_FIXED,
                (false, false) => OP_READ,
                (false, true) => OP_WRITE,
            },
            flags: if fixed { SQE_FIXED_FILE } else { 0 },
            fd: if fixed { 0 } else { self.blocks.file.as_raw_fd() },
            offset,
            address: self.blocks.address(slot),
            len: self.blocks.block,
            user_data: slot.into(),
            buffer: if fixed { (slot / self.slots_a_buffer) as u16 } else { 0 },
            ..SubmitEntry::default()
        };
        let at = self.tail & self.sq_mask;
        // SAFETY: below the number of entries. A slot has one I/O at a time and there are at least as
        // many entries as slots, so the kernel has taken what was there.
        unsafe { self.entries.add(at as usize).write(entry) };
        self.tail = self.tail.wrapping_add(1);
        self.noted += 1;
    }

    fn enter(&mut self, wait: u32, ended: &mut Vec<FinishedIo>) -> io::Result<()> {
        // SAFETY: a word of the rings.
        unsafe { (*self.sq_tail).store(self.tail, Ordering::Release) };
        let mut got = 0;
        loop {
            let taken = self.call(wait.saturating_sub(got))?;
            self.noted -= taken.min(self.noted);
            got += self.reap(ended);
            if got >= wait && self.noted == 0 {
                return Ok(());
            }
        }
    }

    fn settle(&mut self) -> u32 {
        (self.tail, self.noted) = (self.taken(), 0);
        // SAFETY: a word of the rings; entries behind it are not looked at.
        unsafe { (*self.sq_tail).store(self.tail, Ordering::Release) };
        let (mut gone, mut refused) = (Vec::new(), 0);
        while self.in_flight() > 0 && refused < SETTLE_TRIES {
            if self.call(1).is_err() {
                // It may be the number that the kernel does not take. The descriptor is as good.
                if self.registered.take().is_none() {
                    clock::pause(SETTLE_PAUSE);
                    refused += 1;
                }
            }
            self.reap(&mut gone);
            gone.clear();
        }
        self.abandoned = self.in_flight() > 0;
        self.in_flight()
    }

    fn has_helpers(&self) -> bool {
        true
    }

    fn let_go(&mut self) -> Option<&'static str> {
        let locked = self.kind != RingKind::Plain;
        let gone = locked && register(&self.fd, UNREGISTER_BUFFERS, ptr::null(), 0).is_ok();
        gone.then_some("io_uring_unregister")
    }
}

impl Drop for UringEngine {
    /// Waits for I/Os in flight, unless they were abandoned: then the receiver of that error keeps
    /// their memory.
    fn drop(&mut self) {
        if self.in_flight() > 0 && !self.abandoned {
            self.settle();
        }
        if let Some(number) = self.registered {
            let update = RegisterUpdate { offset: number, reserved: 0, data: 0 };
            let _ = register(&self.fd, UNREGISTER_RING_FDS, (&raw const update).cast(), 1);
        }
    }
}
