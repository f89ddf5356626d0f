//! MPI of one process after initialisation: errors, communicators, and a check of the constants.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};

use pathline_hal::{CallError, CallResult, DeviceClaim};
use pathline_host::clock::ClockOrigin;
use pathline_schema::Severity;

use super::abi::MpiConstants;
use super::table::{Fns, MpiHandle, OnError};

/// Timeout in ns for the messages of a failed check.
const RING_TIMEOUT: u64 = 2_000_000_000;

/// `MPI_THREAD_SINGLE`: the same number in every ABI, and what `MPI_Init` requests, so other
/// benchmarks are timed with it. This process has other threads, none of which calls MPI. Declaring
/// them (`MPI_THREAD_FUNNELED`) costs a message of 8 B 0.12 of 0.28 us in Open MPI 4.1.4.
const THREAD_SINGLE: c_int = 0;

/// A failed call: its name and its code.
pub(super) type FailedCall = (&'static str, c_int);

/// The code of the first failed call since the last check. MPICH 5.0.2 returns success from a
/// failed call once its error handler has run, so return codes are not enough.
static FIRST_FAILURE: AtomicI32 = AtomicI32::new(0);

fn note(code: *mut c_int) {
    // SAFETY: MPI gives its error handlers the address of a code, or null at worst.
    let code = unsafe { code.as_ref() }.copied().unwrap_or(-1);
    // Later failures follow from the first one.
    let _ = FIRST_FAILURE.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
}

/// The error handler. The predefined handlers do not work: libraries of the standard ABI disagree
/// on which constant returns and which ends the process.
unsafe extern "C" fn remember<H: MpiHandle>(_: *mut H, code: *mut c_int) {
    note(code);
}

/// Checks a return code; the error is the call's name with its code.
#[inline(always)]
pub(super) fn ok(call: &'static str, code: c_int) -> std::result::Result<(), FailedCall> {
    if code == 0 { Ok(()) } else { Err((call, code)) }
}

/// MPI after initialisation. Dropping it finalises MPI.
#[derive(Debug)]
pub(super) struct MpiWorld<H: MpiHandle> {
    pub(super) fns: Fns<H>,
    pub(super) constants: MpiConstants<H>,
    pub(super) rank: i32,
    pub(super) size: i32,
    /// Rank and size among the processes of this host.
    pub(super) node: (i32, i32),
    /// Name and version from the library's version text.
    pub(super) version: String,
    pub(super) path: PathBuf,
    handler: H,
    /// Communicators by their world ranks, in order.
    groups: BTreeMap<Vec<i32>, H>,
    /// Operations are in flight that no call has ended: MPI is not finalised, since that waits for
    /// them.
    pub(super) abandoned: bool,
}

impl<H: MpiHandle> MpiWorld<H> {
    /// Initialises MPI, once in a process, and checks its results.
    pub(super) fn begin(
        fns: Fns<H>,
        constants: MpiConstants<H>,
        version: String,
        path: PathBuf,
    ) -> std::result::Result<Self, String> {
        let mut already = 0;
        // SAFETY: callable before MPI_Init; it writes one number.
        if unsafe { (fns.initialized)(&raw mut already) } == 0 && already != 0 {
            return Err(format!("{version} is initialised in this process already"));
        }
        let mut given = 0;
        let none = std::ptr::null_mut();
        // SAFETY: MPI takes null for arguments that are not to be parsed, and writes one number.
        let code = unsafe { (fns.init_thread)(none, none.cast(), THREAD_SINGLE, &raw mut given) };
        if code != 0 {
            return Err(format!("MPI_Init_thread of {version} fails ({code})"));
        }
        let groups = BTreeMap::new();
        let handler = H::default();
        let (rank, size, node, abandoned) = (0, 1, (0, 1), false);
        let mut world =
            Self { fns, constants, rank, size, node, version, path, handler, groups, abandoned };
        world
            .settle()
            .and_then(|()| world.check_results())
            .map_err(|failed| world.error_text(failed))?;
        Ok(world)
    }

    /// Sets the error handler and gets rank and size.
    fn settle(&mut self) -> std::result::Result<(), FailedCall> {
        let (f, k) = (&self.fns, &self.constants);
        let on_error: OnError<H> = remember::<H>;
        // SAFETY: handles are this library's own, and numbers are written to fields that live
        // through the calls. The handler takes the first two of the arguments that it is given.
        unsafe {
            let create = (f.comm_create_errhandler)(on_error, &raw mut self.handler);
            ok("MPI_Comm_create_errhandler", create)?;
            for comm in [k.world, k.of_itself] {
                ok("MPI_Comm_set_errhandler", (f.comm_set_errhandler)(comm, self.handler))?;
            }
            ok("MPI_Comm_rank", (f.comm_rank)(k.world, &raw mut self.rank))?;
            ok("MPI_Comm_size", (f.comm_size)(k.world, &raw mut self.size))?;
        }
        self.find_node()?;
        self.unfailed("MPI_Allgather")
    }

    /// Finds the processes of this host: same boot and same host name. `MPI_Comm_split_type` also
    /// gives them, but leaves Open MPI 5.0.11 with one more thing to poll: 4 % of a message of 8 B.
    fn find_node(&mut self) -> std::result::Result<(), FailedCall> {
        let (f, k) = (&self.fns, &self.constants);
        let text = |file: &str| pathline_host::files::text(file).unwrap_or_default();
        let name = text("/proc/sys/kernel/random/boot_id") + &text("/proc/sys/kernel/hostname");
        // FNV-1a, the same in every build.
        let mine = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut all = vec![0u64; usize::try_from(self.size).unwrap_or(1)];
        let (src, dst) = ((&raw const mine).cast_mut().cast(), all.as_mut_ptr().cast());
        // SAFETY: the send buffer has one u64 and the receive buffer one of each rank; the call
        // blocks.
        unsafe {
            let code = (f.allgather)(src, 8, k.byte, dst, 8, k.byte, k.world);
            ok("MPI_Allgather", code)?;
        }
        let here = |all: &[u64]| all.iter().filter(|&&other| other == mine).count() as i32;
        let before = all.get(..usize::try_from(self.rank).unwrap_or(0)).unwrap_or_default();
        self.node = (here(before), here(&all));
        Ok(())
    }

    /// An error if any call has failed since the last check.
    pub(super) fn unfailed(&self, call: &'static str) -> std::result::Result<(), FailedCall> {
        ok(call, FIRST_FAILURE.swap(0, Ordering::Relaxed))
    }

    /// Small operations with known results: a wrong constant shows here, not as a wrong figure.
    fn check_results(&mut self) -> std::result::Result<(), FailedCall> {
        let (f, k, world) = (self.fns, self.constants, self.constants.world);
        let (n, me) = (self.size.max(1) as u64, self.rank.max(0) as u64);
        let each = n as usize;
        let wrong = |call, right| if right { Ok(()) } else { Err((call, WRONG_VALUES)) };
        // Sums over ranks r: of r + 1 it is n (n + 1) / 2; the upper half shows 32-bit sums.
        let mine = [me + 1, (me + 1) << 33];
        let total = n * (n + 1) / 2;
        let mut sums = [0u64; 2];
        let from = |words: &[u64]| words.as_ptr().cast_mut().cast::<c_void>();
        let to = |words: &mut [u64]| words.as_mut_ptr().cast::<c_void>();
        // SAFETY: the buffers hold as many u64 as the counts give (two, one for each rank, or one),
        // and live through the calls, which block.
        unsafe {
            let (src, dst) = (from(&mine), to(&mut sums));
            ok("MPI_Allreduce", (f.allreduce)(src, dst, 2, k.types.uint64, k.ops.sum, world))?;
            wrong("MPI_Allreduce", sums == [total, total << 33])?;
            let mut sums = mine;
            let dst = to(&mut sums);
            ok(
                "MPI_Allreduce",
                (f.allreduce)(k.in_place, dst, 2, k.types.uint64, k.ops.sum, world),
            )?;
            wrong("MPI_Allreduce with MPI_IN_PLACE", sums == [total, total << 33])?;
            let mut all = vec![0u64; each];
            let word = [me * 3 + 7];
            let (src, dst) = (from(&word), to(&mut all));
            ok("MPI_Allgather", (f.allgather)(src, 8, k.byte, dst, 8, k.byte, world))?;
            wrong("MPI_Allgather", (0..n).map(|r| r * 3 + 7).eq(all.iter().copied()))?;
            // To rank i goes me << 20 | i.
            let out: Vec<u64> = (0..n).map(|i| me << 20 | i).collect();
            let (src, dst) = (from(&out), to(&mut all));
            ok("MPI_Alltoall", (f.alltoall)(src, 8, k.byte, dst, 8, k.byte, world))?;
            wrong("MPI_Alltoall", (0..n).map(|r| r << 20 | me).eq(all.iter().copied()))?;
            // Rank r brings r + i for rank i: the sum is that of all r and n times i.
            let out: Vec<u64> = (0..n).map(|i| me + i).collect();
            let mut part = [0u64];
            let (src, dst) = (from(&out), to(&mut part));
            let code = (f.reduce_scatter_block)(src, dst, 1, k.types.uint64, k.ops.sum, world);
            ok("MPI_Reduce_scatter_block", code)?;
            wrong("MPI_Reduce_scatter_block", part == [n * (n - 1) / 2 + n * me])?;
            let mut word = [if me == 0 { 0x5a } else { 0 }];
            ok("MPI_Bcast", (f.bcast)(to(&mut word), 8, k.byte, 0, world))?;
            wrong("MPI_Bcast", word == [0x5a])?;
        }
        self.check_ring()?;
        self.unfailed("MPI_Bcast")
    }

    /// Sends a u64 from each process to the next, with requests in an array: checks the width of
    /// handles.
    pub(super) fn check_ring(&mut self) -> std::result::Result<(), FailedCall> {
        let mut requests = [self.constants.no_request; 4];
        // Send and receive buffers; on the heap, so that they can outlive this call.
        let mut buffers = Box::new([[self.rank as u64; 2], [u64::MAX; 2]]);
        let proved = self.ring(&mut requests, &mut buffers);
        if proved.is_err() && !close_requests(self, &mut requests, &|nth| nth < 2, RING_TIMEOUT) {
            Box::leak(buffers);
            self.abandoned = true;
        }
        proved
    }

    fn ring(
        &self,
        requests: &mut [H; 4],
        buffers: &mut [[u64; 2]; 2],
    ) -> std::result::Result<(), FailedCall> {
        let (f, k) = (&self.fns, &self.constants);
        let (next, last) = ((self.rank + 1) % self.size, (self.rank + self.size - 1) % self.size);
        let [out, back] = buffers;
        // SAFETY: four requests of one u64 each; the owner of the buffers closes the requests
        // before it frees them.
        unsafe {
            for nth in 0..2 {
                let tag = nth as c_int;
                let at = (&raw mut back[nth]).cast();
                let request = &raw mut requests[nth];
                ok("MPI_Irecv", (f.irecv)(at, 8, k.byte, last, tag, k.world, request))?;
            }
            for nth in 0..2 {
                let tag = nth as c_int;
                let at = (&raw mut out[nth]).cast();
                let request = &raw mut requests[2 + nth];
                ok("MPI_Isend", (f.isend)(at, 8, k.byte, next, tag, k.world, request))?;
            }
            ok("MPI_Waitall", (f.waitall)(4, requests.as_mut_ptr(), k.ignore_status))?;
        }
        let right = *back == [last as u64; 2];
        if right { Ok(()) } else { Err(("MPI_Waitall", WRONG_VALUES)) }
    }

    /// The library's error text for a code.
    fn meaning(&self, code: c_int) -> String {
        if code == WRONG_VALUES {
            return "its result is wrong: this program and the library disagree on the library's \
                    interface"
                .to_owned();
        }
        // MPI_MAX_ERROR_STRING is at most 512.
        let mut text = vec![0u8; 1024];
        let mut length = 0;
        // SAFETY: the buffer is longer than any ABI's longest text.
        let status =
            unsafe { (self.fns.error_string)(code, text.as_mut_ptr().cast(), &raw mut length) };
        // Asking for the text of an invalid code is itself an error, which must not be kept.
        FIRST_FAILURE.store(0, Ordering::Relaxed);
        let length = usize::try_from(length).unwrap_or(0).min(text.len());
        if status != 0 || length == 0 {
            return "the library has no text for it".to_owned();
        }
        text.truncate(length);
        String::from_utf8_lossy(&text).trim_matches(['\0', '\n', ' ']).replace('\n', ": ")
    }

    /// The text of a failed call.
    fn error_text(&self, (call, code): FailedCall) -> String {
        format!("{call} of {}: {} ({code})", self.version, self.meaning(code))
    }

    /// The error of a failed call. After an error MPI guarantees nothing, so this process makes no
    /// further calls.
    pub(super) fn error(&self, (call, code): FailedCall, thing: &str) -> CallError {
        // The code that the handler got is more precise: MPICH's text for it names arguments.
        let stored = FIRST_FAILURE.swap(0, Ordering::Relaxed);
        let code = if stored == 0 { code } else { stored };
        CallError::new(Severity::Sticky, call, thing, self.meaning(code))
            .with_code(code.into())
            .or_try(format!("a C program with the mpicc of {} shows if it is MPI's", self.version))
    }

    /// The communicator of some world ranks, in that order. Created on first use, which is
    /// collective over them.
    pub(super) fn group(&mut self, ranks: &[i32]) -> CallResult<H> {
        let whole = ranks.len() == self.size as usize && ranks.iter().copied().eq(0..self.size);
        if whole {
            return Ok(self.constants.world);
        }
        if let Some(&comm) = self.groups.get(ranks) {
            return Ok(comm);
        }
        let comm = self.new_group(ranks).map_err(|f| self.error(f, &format!("ranks {ranks:?}")))?;
        self.groups.insert(ranks.to_vec(), comm);
        Ok(comm)
    }

    fn new_group(&self, ranks: &[i32]) -> std::result::Result<H, FailedCall> {
        let (f, k) = (&self.fns, &self.constants);
        let count = c_int::try_from(ranks.len()).unwrap_or(c_int::MAX);
        let (mut all, mut some, mut comm) = (H::default(), H::default(), k.no_comm);
        // SAFETY: handles are this library's own or are written by it; `ranks` has `count` numbers.
        unsafe {
            ok("MPI_Comm_group", (f.comm_group)(k.world, &raw mut all))?;
            ok("MPI_Group_incl", (f.group_incl)(all, count, ranks.as_ptr(), &raw mut some))?;
            let made = (f.comm_create_group)(k.world, some, 0, &raw mut comm);
            ok("MPI_Comm_create_group", made)?;
            self.unfailed("MPI_Comm_create_group")?;
            ok("MPI_Group_free", (f.group_free)(&raw mut some))?;
            ok("MPI_Group_free", (f.group_free)(&raw mut all))?;
            ok("MPI_Comm_set_errhandler", (f.comm_set_errhandler)(comm, self.handler))?;
        }
        Ok(comm)
    }

    /// Whether the library reports support for addresses of CUDA and of ROCm devices; `None`
    /// without a query. Valid after `MPI_Init`, where Open MPI 5 chooses its device support.
    pub(super) fn device_claims(&self) -> (Option<DeviceClaim>, Option<DeviceClaim>) {
        let f = &self.fns;
        type QuerySupportFn = Option<unsafe extern "C" fn() -> c_int>;
        let claim =
            |is_supported, source: &str| DeviceClaim { is_supported, source: source.to_owned() };
        let plain = |ask: QuerySupportFn, name: &str| {
            // SAFETY: it takes nothing.
            ask.map(|ask| claim(unsafe { ask() } == 1, name))
        };
        let kind = |kind: c_int| {
            let ask = f.query_gpu?;
            let mut is = 0;
            // SAFETY: it takes a number and where to write one.
            let code = unsafe { ask(kind, &raw mut is) };
            (code == 0).then(|| claim(is != 0, "MPIX_GPU_query_support"))
        };
        // MPICH's kinds: 0 CUDA, 2 HIP. Source: its mpi.h.
        let claims = (
            plain(f.query_cuda, "MPIX_Query_cuda_support").or_else(|| kind(0)),
            plain(f.query_rocm, "MPIX_Query_rocm_support")
                .or_else(|| plain(f.query_hip, "MPIX_Query_hip_support"))
                .or_else(|| kind(2)),
        );
        FIRST_FAILURE.store(0, Ordering::Relaxed);
        claims
    }

    /// Ends all processes of the world.
    pub(super) fn abort(&self, code: c_int) {
        // SAFETY: the communicator is the world's.
        unsafe { (self.fns.abort)(self.constants.world, code) };
    }

    /// The error handler of windows, whose default ends the process.
    pub(super) fn window_handler(&self) -> OnError<H> {
        remember::<H>
    }
}

#[cfg(test)]
impl<H: MpiHandle> MpiWorld<H> {
    /// Rank 0 of 2, with stand-ins for a library's functions.
    pub(super) fn stand_in(fns: Fns<H>, constants: MpiConstants<H>) -> Self {
        Self {
            fns,
            constants,
            rank: 0,
            size: 2,
            node: (0, 2),
            version: "a stand-in".to_owned(),
            path: PathBuf::new(),
            handler: H::default(),
            groups: BTreeMap::new(),
            abandoned: false,
        }
    }
}

impl<H: MpiHandle> Drop for MpiWorld<H> {
    fn drop(&mut self) {
        if self.abandoned {
            return;
        }
        for comm in self.groups.values_mut() {
            // SAFETY: made by this library, freed once.
            unsafe { (self.fns.comm_free)(comm) };
        }
        // SAFETY: initialised once, by `begin`, on this thread: the type cannot be sent.
        unsafe { (self.fns.finalize)() };
    }
}

/// The code for a wrong result; no library's code is negative.
const WRONG_VALUES: c_int = c_int::MIN;

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
