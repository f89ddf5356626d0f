//! Sequences of calls of libpathline's C interface, over the stand-in for CUDA: a line for each call. Whatever
//! pointers, sizes, streams and faults they have, every copy that reported success has its bytes, and nothing hangs.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use pathline_capi::abi::{
    pl_close, pl_copy, pl_copy_async, pl_copy_batch_async, pl_copy_to_all, pl_counters, pl_explain,
    pl_host_alloc, pl_host_attach, pl_host_free, pl_last_error, pl_open, pl_options, pl_place,
    pl_stats,
};
use pathline_capi::{CopyNode, CopyStatus, NodeOptions};

use crate::c_runtime::{FuzzBuffer, FuzzEnd, StubRuntime, map, meet};

/// Bytes of each buffer.
const BYTES: usize = 1 << 20;
/// Most calls of an input.
const MAX_CALLS: usize = 24;
/// Virtual time after which work in a stream counts as hung, ns. Copies of 1 MiB take 20 us; the library gives a
/// copy up after a second.
const HUNG: f64 = 30e9;
/// The stream that is being captured.
const CAPTURED: usize = 4;
/// `CUDA_ERROR_NOT_READY`. No fault has it: waiting would not end.
const NOT_READY: i32 = 600;
/// Statuses that faults may have: an invalid value, no memory, a lost GPU, an unsupported peer, a sticky error.
const CODES: [i32; 6] = [1, 2, 46, 217, 700, 999];

/// Functions whose calls may fail.
const FAULTY: [&str; 20] = [
    "cuMemcpyAsync",
    "cuMemcpy",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuCtxEnablePeerAccess",
    "cuCtxSetCurrent",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceCanAccessPeer",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuPointerGetAttributes",
    "cuStreamCreate",
    "cuStreamQuery",
    "cuStreamIsCapturing",
    "cuStreamWaitValue32",
];

/// A copy in a stream.
struct PendingCopy {
    stream: usize,
    dst: FuzzEnd,
    src: FuzzEnd,
}

/// A process's memory, streams and node.
struct CallWorld<'s> {
    stub: &'s StubRuntime,
    node: *mut CopyNode,
    options: NodeOptions,
    buffers: Vec<FuzzBuffer>,
    /// Legacy, two of GPU 0, one of the second GPU, one that is being captured, per thread.
    streams: [usize; 6],
    pending: Vec<PendingCopy>,
    has_faults: bool,
    seen: BTreeSet<String>,
}

/// Answers to an input.
pub(crate) fn run_calls(input: &[u8]) -> String {
    static STUB: OnceLock<Mutex<StubRuntime>> = OnceLock::new();
    let text = String::from_utf8_lossy(input);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let mut lines: &[Vec<&str>] = &lines;
    let mut spec = "gpus=2".to_owned();
    let mut options = None;
    while let Some((line, rest)) = lines.split_first() {
        match line[..] {
            ["gpus", count] => spec = format!("gpus={}", number(count) % 4 + 1),
            ["nopeer"] => spec.push_str(",nopeer"),
            ["node", threshold, staging, helpers] => {
                options = Some(node_options(threshold, staging, helpers));
                lines = rest;
                break;
            }
            _ => {}
        }
        lines = rest;
    }
    let Some(options) = options else { return "no line opens a node".to_owned() };
    let shared =
        STUB.get_or_init(|| Mutex::new(StubRuntime::open().unwrap_or_else(|e| panic!("{e}"))));
    let stub = shared.lock().unwrap_or_else(PoisonError::into_inner);
    stub.control("pathline_stub_restart", &format!("memory=64MiB,{spec}"));
    let mut world = CallWorld::new(&stub, options);
    if let Err(why) = world.open() {
        return why;
    }
    for line in lines.iter().take(MAX_CALLS) {
        world.obey(line);
    }
    world.end()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// Options of a node whose probes are small. Staging memory and helpers may be out of range.
fn node_options(threshold: &str, staging: &str, helpers: &str) -> NodeOptions {
    let helpers = match helpers.parse::<i32>().unwrap_or(-1) {
        -1 => None,
        0 => Some(Vec::new()),
        only => Some(vec![only]),
    };
    NodeOptions {
        helpers,
        threshold: (number(threshold) as usize).clamp(1 << 16, 1 << 19),
        staging: number(staging),
        min_gain: 1e-6,
        probe_bytes: 1 << 16,
        ..NodeOptions::default()
    }
}

impl<'s> CallWorld<'s> {
    fn new(stub: &'s StubRuntime, mut options: NodeOptions) -> Self {
        stub.call("cuInit", [0; 4]);
        options.library = Some(("cuda".into(), stub.folder.clone()));
        let mut world = Self {
            stub,
            node: std::ptr::null_mut(),
            options,
            buffers: Vec::new(),
            streams: [0, 0, 0, 0, 0, 2],
            pending: Vec::new(),
            has_faults: false,
            seen: BTreeSet::new(),
        };
        let count = {
            let mut count = 0i32;
            stub.call("cuDeviceGetCount", [&raw mut count as u64, 0, 0, 0]);
            count as u64
        };
        let bytes = BYTES as u64;
        let last = count.saturating_sub(1).min(1);
        world.enter(last);
        let dev1 = stub.make("cuMemAlloc_v2", [bytes, 0, 0]);
        world.streams[3] = stub.make("cuStreamCreate", [1, 0, 0]) as usize;
        world.enter(0);
        for stream in [1, 2, CAPTURED] {
            world.streams[stream] = stub.make("cuStreamCreate", [1, 0, 0]) as usize;
        }
        stub.call("cuStreamBeginCapture_v2", [world.streams[CAPTURED] as u64, 0, 0, 0]);
        let pinned = || stub.make("cuMemHostAlloc", [bytes, 1, 0]);
        world.add("dev0", stub.make("cuMemAlloc_v2", [bytes, 0, 0]), BYTES, Some(0));
        world.add("dev1", dev1, BYTES, Some(last));
        world.add("host", pinned(), BYTES, None);
        world.add("out", pinned(), BYTES, None);
        world.add("man", stub.make("cuMemAllocManaged", [bytes, 1, 0]), BYTES, None);
        world.add("page", map(0, BYTES), BYTES, None);
        // Freed memory of a GPU, whose address is pageable memory now.
        let gone = stub.make("cuMemAlloc_v2", [bytes, 0, 0]);
        stub.call("cuMemFree_v2", [gone, 0, 0, 0]);
        world.add("gone", map(gone, BYTES), BYTES, None);
        world
    }

    fn add(&mut self, name: &str, address: u64, bytes: usize, gpu: Option<u64>) {
        let seed = self.buffers.len() as u8;
        let expected: Vec<u8> = (0..bytes)
            .map(|at| {
                (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed.wrapping_mul(37)
            })
            .collect();
        // SAFETY: memory of that size which nothing else uses yet.
        unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) }
            .copy_from_slice(&expected);
        let (name, unknown) = (name.to_owned(), Vec::new());
        self.buffers.push(FuzzBuffer { name, address, expected, unknown, gpu });
    }

    /// Makes a GPU current; none with another number.
    fn enter(&self, gpu: u64) {
        let mut context = 0u64;
        if gpu < 2 {
            self.stub.call("cuDevicePrimaryCtxRetain", [&raw mut context as u64, gpu, 0, 0]);
        }
        self.stub.call("cuCtxSetCurrent", [context, 0, 0, 0]);
    }

    /// Opens the node of this input.
    fn open(&mut self) -> Result<(), String> {
        match CopyNode::open(&self.options) {
            Ok(node) => {
                self.node = Box::into_raw(Box::new(node));
                Ok(())
            }
            Err(error) => {
                self.node = std::ptr::null_mut();
                assert!(!error.text.is_empty());
                Err(format!("not opened: {}", error.text))
            }
        }
    }

    /// The range that `NAME+OFFSET` and a size name.
    fn range(&self, text: &str, bytes: u64) -> FuzzEnd {
        let (name, offset) = text.split_once('+').unwrap_or((text, "0"));
        let offset = (number(offset) % BYTES as u64) as usize;
        let bytes = bytes as usize;
        let buffer = self.buffers.iter().position(|buffer| buffer.name == name);
        let address = buffer.and_then(|at| self.buffers.get(at)).map_or(0, |b| b.address);
        let at = if buffer.is_some() { offset } else { 0 };
        FuzzEnd { buffer, address: address + at as u64, range: at..at.saturating_add(bytes) }
    }

    fn buffer(&self, end: &FuzzEnd) -> Option<&FuzzBuffer> {
        self.buffers.get(end.buffer?)
    }

    fn is_inside(&self, end: &FuzzEnd) -> bool {
        self.buffer(end).is_some_and(|buffer| end.range.end <= buffer.expected.len())
    }

    /// Whether a program may ask for a copy: host memory that it names is there, and what overlaps is refused by
    /// the library, or what goes beyond a GPU's memory by the runtime.
    fn is_allowed(&self, dst: &FuzzEnd, src: &FuzzEnd, bytes: u64) -> bool {
        if meet(dst, src) && bytes < self.options.threshold as u64 {
            return false;
        }
        // Bytes a little beyond may be those of another allocation.
        let refused = |end: &FuzzEnd| {
            end.buffer.is_none()
                || bytes >= 1 << 40 && self.buffer(end).is_some_and(|b| b.gpu.is_some())
        };
        let fine = |end: &FuzzEnd| self.is_inside(end) || refused(end);
        (fine(dst) && fine(src)) || refused(dst) || refused(src)
    }

    /// Whether such a copy must succeed if nothing fails.
    fn must_succeed(&self, dst: &FuzzEnd, src: &FuzzEnd, stream: Option<usize>) -> bool {
        !self.has_faults
            && !self.node.is_null()
            && self.is_inside(dst)
            && self.is_inside(src)
            && !meet(dst, src)
            && stream != Some(CAPTURED)
    }

    /// Whether such a copy must be refused.
    fn must_fail(&self, dst: &FuzzEnd, src: &FuzzEnd) -> bool {
        !self.is_inside(dst) || !self.is_inside(src) || meet(dst, src)
    }

    fn note(&mut self, call: &str, status: CopyStatus) -> CopyStatus {
        let letter = match status {
            CopyStatus::Ok => 'O',
            CopyStatus::Invalid => 'I',
            CopyStatus::Runtime => 'R',
            CopyStatus::Unavailable => 'U',
            CopyStatus::Memory => 'M',
            CopyStatus::File => 'F',
            CopyStatus::Internal | CopyStatus::Forked => panic!("{call}: {}", last_text()),
        };
        self.seen.insert(format!("{call}{letter}"));
        assert!(letter == 'O' || !last_text().is_empty(), "{call}: {status:?} without a text");
        status
    }

    /// Waits until nothing that is pending in another stream, or in any, meets a copy.
    fn make_room(&mut self, dst: &FuzzEnd, src: &FuzzEnd, stream: Option<usize>) {
        let conflict = self.pending.iter().any(|copy| {
            Some(copy.stream) != stream
                && (meet(&copy.dst, dst) || meet(&copy.dst, src) || meet(&copy.src, dst))
        });
        if conflict {
            self.settle();
        }
    }

    /// Notes what a copy that succeeded leaves.
    fn copied(&mut self, dst: &FuzzEnd, src: &FuzzEnd) {
        let Some(from) = self.buffer(src) else { return };
        let is_unknown =
            from.unknown.iter().any(|r| r.start < src.range.end && src.range.start < r.end);
        let bytes = from.expected.get(src.range.clone()).map(<[u8]>::to_vec);
        let Some(to) = dst.buffer.and_then(|at| self.buffers.get_mut(at)) else { return };
        if is_unknown {
            to.unknown.push(dst.range.clone());
        } else if let (Some(bytes), Some(place)) = (bytes, to.expected.get_mut(dst.range.clone())) {
            place.copy_from_slice(&bytes);
        }
    }

    /// Notes that nothing is known of a range.
    fn spoil(&mut self, end: &FuzzEnd) {
        if let Some(buffer) = end.buffer.and_then(|at| self.buffers.get_mut(at)) {
            let most = buffer.expected.len();
            buffer.unknown.push(end.range.start.min(most)..end.range.end.min(most));
        }
    }

    /// Makes the call of a line; a line that names none is skipped.
    fn obey(&mut self, line: &[&str]) {
        match *line {
            ["copy", dst, src, n] => self.copy(dst, src, number(n), None),
            ["async", dst, src, n, stream] => {
                self.copy(dst, src, number(n), Some(stream_of(stream)))
            }
            ["batch", stream, ref ranges @ ..] => self.batch(stream_of(stream), ranges),
            ["all", src, n, ref ends @ ..] => self.copy_to_all(src, number(n), ends),
            ["lists", which] => self.bad_lists(number(which)),
            ["explain", dst, src, n, room] => {
                self.explain(dst, src, number(n), number(room) as usize % 600);
            }
            ["alloc", n, numa] => self.allocate(number(n), numa.parse().unwrap_or(-1)),
            ["attach", n, file] => self.attach(number(n), number(file)),
            ["free", which] => self.free(number(which)),
            ["options", which] => self.bad_options(number(which)),
            ["stats"] => self.stats(),
            ["context", gpu] => self.enter(number(gpu)),
            ["wait"] => {
                self.settle();
                self.compare();
            }
            ["reopen"] => {
                self.close();
                let _ = self.open();
            }
            ["fault", function, nth, code] => self.inject(number(function), nth, number(code)),
            _ => {}
        }
    }

    fn copy(&mut self, dst: &str, src: &str, n: u64, stream: Option<usize>) {
        let (dst, src) = (self.range(dst, n), self.range(src, n));
        if !self.is_allowed(&dst, &src, n) {
            return;
        }
        self.make_room(&dst, &src, stream);
        let (to, from) = (dst.address as *mut c_void, src.address as *const c_void);
        let handle = stream.and_then(|at| self.streams.get(at)).copied();
        // SAFETY: live memory or ranges that are refused, live streams, and a node or null.
        let status = unsafe {
            match handle {
                Some(handle) => {
                    pl_copy_async(self.node, to, from, n as usize, handle as *mut c_void)
                }
                None => pl_copy(self.node, to, from, n as usize),
            }
        };
        let is_ok = self.note(if stream.is_some() { "a" } else { "c" }, status) == CopyStatus::Ok;
        if n == 0 {
            return;
        }
        if is_ok {
            assert!(!self.must_fail(&dst, &src), "{n} bytes from {src:?} to {dst:?} are no copy");
            self.copied(&dst, &src);
            if let Some(stream) = stream {
                self.pending.push(PendingCopy { stream, dst, src });
            }
            return;
        }
        let must = self.must_succeed(&dst, &src, stream);
        assert!(!must, "{status:?}: {n} bytes from {src:?} to {dst:?}, {}", last_text());
        // An asynchronous copy that is refused has copied nothing.
        if stream.is_none() && status == CopyStatus::Runtime {
            self.spoil(&dst);
        }
    }

    fn batch(&mut self, stream: usize, ranges: &[&str]) {
        let copies: Vec<(FuzzEnd, FuzzEnd, u64)> = ranges
            .chunks_exact(3)
            .map(|c| (self.range(c[0], number(c[2])), self.range(c[1], number(c[2])), number(c[2])))
            .collect();
        let collides = |nth: usize, (dst, ..): &(FuzzEnd, FuzzEnd, u64)| {
            let mut others = copies.iter().enumerate().filter(|(other, _)| *other != nth);
            others.any(|(_, (to, from, _))| meet(dst, to) || meet(dst, from))
        };
        if copies.iter().any(|(dst, src, n)| !self.is_allowed(dst, src, *n))
            || copies.iter().enumerate().any(|(nth, copy)| collides(nth, copy))
        {
            return;
        }
        for (dst, src, _) in &copies {
            self.make_room(dst, src, Some(stream));
        }
        let to: Vec<*mut c_void> = copies.iter().map(|c| c.0.address as *mut c_void).collect();
        let from: Vec<*const c_void> =
            copies.iter().map(|c| c.1.address as *const c_void).collect();
        let sizes: Vec<usize> = copies.iter().map(|c| c.2 as usize).collect();
        let handle = self.streams.get(stream).copied().unwrap_or(0) as *mut c_void;
        // SAFETY: as for one copy, and lists of that length.
        let status = unsafe {
            let count = copies.len();
            pl_copy_batch_async(
                self.node,
                to.as_ptr(),
                from.as_ptr(),
                sizes.as_ptr(),
                count,
                handle,
            )
        };
        self.note("b", status);
        let bytes = |copy: &&(FuzzEnd, FuzzEnd, u64)| copy.2 > 0;
        let must =
            copies.iter().filter(bytes).all(|(d, s, _)| self.must_succeed(d, s, Some(stream)));
        assert!(
            status == CopyStatus::Ok || !must || self.node.is_null(),
            "{status:?}: {copies:?}, {}",
            last_text()
        );
        for (dst, src, _) in copies.into_iter().filter(|copy| copy.2 > 0) {
            if status == CopyStatus::Ok {
                assert!(!self.must_fail(&dst, &src), "from {src:?} to {dst:?} is no copy");
                self.copied(&dst, &src);
            } else {
                self.spoil(&dst);
            }
            self.pending.push(PendingCopy { stream, dst, src });
        }
    }

    fn copy_to_all(&mut self, src: &str, n: u64, ends: &[&str]) {
        let src = self.range(src, n);
        let members: Vec<(c_int, FuzzEnd, Option<usize>)> = ends
            .chunks_exact(3)
            .map(|m| {
                let stream = (m[2] != "-").then(|| stream_of(m[2]));
                (m[0].parse().unwrap_or(-1), self.range(m[1], n), stream)
            })
            .collect();
        if members.iter().any(|(_, dst, _)| !self.is_allowed(dst, &src, n.max(1 << 20))) {
            return;
        }
        let streams: Option<Vec<usize>> = members.iter().map(|member| member.2).collect();
        for (nth, (_, dst, _)) in members.iter().enumerate() {
            // Streams wait for one another only in a copy over several paths.
            let stream = streams.as_ref().and_then(|streams| streams.get(nth).copied());
            self.make_room(dst, &src, stream);
        }
        let gpus: Vec<c_int> = members.iter().map(|member| member.0).collect();
        let to: Vec<*mut c_void> = members.iter().map(|m| m.1.address as *mut c_void).collect();
        let handle = |&at: &usize| self.streams.get(at).copied().unwrap_or(0) as *mut c_void;
        let handles: Option<Vec<*mut c_void>> =
            streams.as_ref().map(|streams| streams.iter().map(handle).collect());
        let handles = handles.as_ref().map_or(std::ptr::null(), Vec::as_ptr);
        let from = src.address as *const c_void;
        // SAFETY: as for one copy, and lists of that length.
        let status = unsafe {
            let count = members.len();
            pl_copy_to_all(self.node, count, gpus.as_ptr(), to.as_ptr(), from, n as usize, handles)
        };
        self.note("t", status);
        let collide = members.iter().enumerate().any(|(nth, (_, dst, _))| {
            members.iter().take(nth).any(|(_, other, _)| meet(dst, other))
        });
        let of_gpu = |(gpu, dst, _): &(c_int, FuzzEnd, Option<usize>)| {
            self.buffer(dst).is_some_and(|buffer| buffer.gpu == u64::try_from(*gpu).ok())
        };
        let must = !collide
            && members.iter().all(of_gpu)
            && members.iter().all(|(_, dst, stream)| self.must_succeed(dst, &src, *stream));
        let is_ok = status == CopyStatus::Ok;
        assert!(is_ok || !must, "{status:?}: {n} bytes to {members:?}, {}", last_text());
        if n == 0 || status == CopyStatus::Invalid {
            return;
        }
        for (_, dst, stream) in members {
            if is_ok {
                assert!(!collide && !self.must_fail(&dst, &src), "{src:?} to {dst:?} is no copy");
                self.copied(&dst, &src);
            } else {
                self.spoil(&dst);
            }
            let stream = stream.unwrap_or(1);
            self.pending.push(PendingCopy { stream, dst, src: src.clone() });
        }
    }

    /// Lists that are null, misaligned or too long.
    fn bad_lists(&mut self, which: u64) {
        let (sizes, gpu) = ([1usize; 2], [0 as c_int; 2]);
        let ends = [std::ptr::null_mut::<c_void>(); 2];
        let (to, from) = (ends.as_ptr(), ends.as_ptr().cast::<*const c_void>());
        let (none, stream) = (std::ptr::null(), std::ptr::null_mut());
        let odd = sizes.as_ptr().cast::<u8>().wrapping_add(1).cast::<usize>();
        // SAFETY: lists are refused before they are read, or are there.
        let status = unsafe {
            match which % 6 {
                0 => pl_copy_batch_async(self.node, to, from, odd, 1, stream),
                1 => pl_copy_batch_async(self.node, none, from, sizes.as_ptr(), 1, stream),
                2 => pl_copy_batch_async(self.node, to, from, sizes.as_ptr(), usize::MAX, stream),
                3 => pl_copy_to_all(self.node, 1, none.cast(), to, ends[0], 1, none),
                4 => pl_copy_to_all(self.node, usize::MAX, gpu.as_ptr(), to, ends[0], 1, none),
                _ => pl_copy_to_all(self.node, 2, gpu.as_ptr(), to, ends[0], 1, odd.cast()),
            }
        };
        assert_eq!(self.note("l", status), CopyStatus::Invalid);
    }

    fn explain(&mut self, dst: &str, src: &str, n: u64, room: usize) {
        let (dst, src) = (self.range(dst, n), self.range(src, n));
        let mut text = vec![0xa5u8; 640];
        let at = if room == 599 { std::ptr::null_mut() } else { text.as_mut_ptr().cast() };
        let (to, from) = (dst.address as *const c_void, src.address as *const c_void);
        // SAFETY: room for the text, and addresses that are only looked up.
        let status = unsafe { pl_explain(self.node, to, from, n as usize, at, room) };
        let is_ok = self.note("e", status) == CopyStatus::Ok;
        assert!(text.iter().skip(room).all(|&byte| byte == 0xa5), "beyond the room for a text");
        if is_ok {
            assert!(text.iter().take(room).any(|&byte| byte == 0), "a text without an end");
        }
    }

    fn allocate(&mut self, n: u64, numa: c_int) {
        let mut out = std::ptr::null_mut();
        let place = pl_place { numa };
        // SAFETY: room for an address.
        let status = unsafe { pl_host_alloc(self.node, n as usize, place, &raw mut out) };
        self.note("h", status);
        self.keep(status, out as u64, n);
    }

    fn attach(&mut self, n: u64, file: u64) {
        let mut out = std::ptr::null_mut();
        // SAFETY: the name is a C string; the descriptor is closed below.
        let descriptor = unsafe { libc::memfd_create(c"region".as_ptr(), libc::MFD_ALLOW_SEALING) };
        // SAFETY: an open file; one that cannot have that length keeps none.
        let status = unsafe {
            libc::ftruncate(descriptor, (file % (1 << 24)) as i64);
            // A file without the seal is refused.
            libc::fcntl(descriptor, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK);
            let status = pl_host_attach(self.node, descriptor, n as usize, &raw mut out);
            libc::close(descriptor);
            status
        };
        assert!(status != CopyStatus::Ok || n <= file % (1 << 24), "{n} bytes of a file of {file}");
        self.note("f", status);
        self.keep(status, out as u64, n);
    }

    /// Makes memory of the library a buffer, unless it is large.
    fn keep(&mut self, status: CopyStatus, address: u64, n: u64) {
        assert_eq!(status == CopyStatus::Ok, address != 0);
        if address == 0 {
            return;
        }
        if n > 4 << 20 {
            // SAFETY: nothing uses it.
            let freed = unsafe { pl_host_free(self.node, address as *mut c_void) };
            assert_eq!(freed, CopyStatus::Ok);
            return;
        }
        let count = self.buffers.iter().filter(|b| b.name.starts_with("mine")).count();
        self.add(&format!("mine{count}"), address, n as usize, None);
    }

    fn free(&mut self, which: u64) {
        self.settle();
        let name = format!("mine{}", which % 8);
        let at = self.buffers.iter().position(|b| b.name == name && !b.expected.is_empty());
        let address = at.and_then(|at| self.buffers.get(at)).map_or(8, |buffer| buffer.address);
        // SAFETY: no copy uses it any more.
        let status = unsafe { pl_host_free(self.node, address as *mut c_void) };
        self.note("r", status);
        assert_eq!(status == CopyStatus::Ok, at.is_some(), "{name}: {}", last_text());
        if let Some(buffer) = at.and_then(|at| self.buffers.get_mut(at)) {
            buffer.forget();
        }
    }

    /// Options that are none, and good ones for a second node.
    fn bad_options(&mut self, which: u64) {
        let mut options = pl_options {
            size: size_of::<pl_options>(),
            helpers: std::ptr::null(),
            helper_count: 0,
            threshold: 1 << 30,
            staging: 0,
            min_gain: 0.0,
            library: self.stub.option.as_ptr(),
            twin: std::ptr::null(),
            shared_helpers: (which >> 3) as c_int % 3 - 1,
            copy_threads: ((which >> 5) as c_int & 3) - 1,
            max_multiprocessors: ((which >> 7) as c_int & 3) - 1,
            reserved: (which >> 9) as c_int & 1,
        };
        let helper: c_int = 77;
        match which % 8 {
            0 => options.size = which as usize,
            2 => options.min_gain = f64::NAN,
            3 => options.staging = 1,
            4 => options.twin = c"/nowhere".as_ptr(),
            5 => (options.helpers, options.helper_count) = (&raw const helper, usize::MAX),
            6 => (options.helpers, options.helper_count) = (&raw const helper, 1),
            _ => {}
        }
        let offset = usize::from(which % 8 == 1);
        let at = (&raw const options).cast::<u8>().wrapping_add(offset).cast();
        let mut node = self.node;
        // SAFETY: a structure, or a pointer that is refused before it is read.
        let status = unsafe { pl_open(at, &raw mut node) };
        self.note("o", status);
        let is_ok = status == CopyStatus::Ok;
        assert_eq!(is_ok, !node.is_null());
        // Bytes of earlier versions and of this one.
        let is_version =
            which.is_multiple_of(8) && [56, 72, size_of::<pl_options>() as u64].contains(&which);
        assert!(!is_ok || which % 8 == 7 || is_version, "options {which} were taken");
        assert!(is_ok || which % 8 != 7 || self.has_faults, "{}", last_text());
        // SAFETY: a new node, or null.
        unsafe { pl_close(node) };
    }

    fn counters(&self) -> Option<pl_counters> {
        let mut counters = pl_counters { size: size_of::<pl_counters>(), ..Default::default() };
        // SAFETY: room for the counters.
        let status = unsafe { pl_stats(self.node, &raw mut counters) };
        (status == CopyStatus::Ok).then_some(counters)
    }

    fn stats(&mut self) {
        let mut counters = pl_counters { size: 1, ..Default::default() };
        let at = &raw mut counters;
        // SAFETY: pointers that are refused before they are written.
        unsafe {
            assert_eq!(pl_stats(self.node, std::ptr::null_mut()), CopyStatus::Invalid);
            assert_eq!(pl_stats(self.node, at), CopyStatus::Invalid);
            let odd = at.cast::<u8>().wrapping_add(1).cast();
            assert_eq!(pl_stats(self.node, odd), CopyStatus::Invalid);
        }
        assert_eq!(self.counters().is_some(), !self.node.is_null());
    }

    fn inject(&mut self, function: u64, nth: &str, code: u64) {
        let name = FAULTY[function as usize % FAULTY.len()];
        let (nth, more) = nth.strip_suffix('+').map_or((nth, ""), |nth| (nth, "+"));
        let code = CODES[code as usize % CODES.len()];
        let fault = format!("fail={name}@{}{more}:{code}", number(nth) % 4000 + 1);
        self.stub.control("pathline_stub_inject", &fault);
        self.has_faults = true;
    }

    /// Waits for all streams but the one that is captured.
    fn settle(&mut self) {
        let mut has_failed = false;
        self.enter(0);
        let begun = self.stub.now();
        for (nth, &stream) in self.streams.iter().enumerate().filter(|&(nth, _)| nth != CAPTURED) {
            let mut status;
            loop {
                status = self.stub.call("cuStreamQuery", [stream as u64, 0, 0, 0]);
                if status != NOT_READY {
                    break;
                }
                let waited = self.stub.now() - begun;
                assert!(waited < HUNG, "stream {nth} hangs after {:?}", self.seen);
                std::thread::yield_now();
            }
            has_failed |= status != 0;
        }
        assert!(!has_failed || self.has_faults, "a stream failed without a fault");
        if has_failed {
            let ends: Vec<FuzzEnd> = self.pending.iter().map(|copy| copy.dst.clone()).collect();
            ends.iter().for_each(|end| self.spoil(end));
        }
        self.pending.clear();
    }

    /// Compares what is known.
    fn compare(&mut self) {
        for buffer in &mut self.buffers {
            // SAFETY: live memory; nothing writes it.
            let found = unsafe {
                std::slice::from_raw_parts(buffer.address as *const u8, buffer.expected.len())
            };
            for range in &buffer.unknown {
                if let (Some(to), Some(from)) =
                    (buffer.expected.get_mut(range.clone()), found.get(range.clone()))
                {
                    to.copy_from_slice(from);
                }
            }
            if found != buffer.expected {
                let at = found.iter().zip(&buffer.expected).position(|(a, b)| a != b);
                panic!("byte {at:?} of {} is wrong after {:?}", buffer.name, self.seen);
            }
        }
    }

    fn close(&mut self) {
        let counters = self.counters();
        // SAFETY: a node or null, closed once.
        unsafe { pl_close(self.node) };
        self.node = std::ptr::null_mut();
        if self.has_faults {
            let ends: Vec<FuzzEnd> = self.pending.iter().map(|copy| copy.dst.clone()).collect();
            ends.iter().for_each(|end| self.spoil(end));
        }
        self.buffers.iter_mut().filter(|b| b.name.starts_with("mine")).for_each(FuzzBuffer::forget);
        self.settle();
        let counters = counters.unwrap_or_default();
        for (count, letter) in [
            (counters.plain, "p"),
            (counters.multipath, "m"),
            (counters.relayed_bytes, "r"),
            (counters.lost, "l"),
            (counters.fallbacks, "d"),
        ] {
            if count > 0 {
                self.seen.insert(letter.to_owned());
            }
        }
    }

    /// Closes the node; the kinds of answers so far.
    fn end(mut self) -> String {
        self.close();
        self.compare();
        for buffer in &self.buffers {
            if ["page", "gone"].contains(&buffer.name.as_str()) {
                // SAFETY: a mapping of `map`, given back once.
                unsafe { libc::munmap(buffer.address as *mut c_void, BYTES) };
            }
        }
        let seen: Vec<String> = self.seen.into_iter().collect();
        format!("read {}", seen.join(" "))
    }
}

/// The stream that a word such as `s1` names.
fn stream_of(text: &str) -> usize {
    (number(text.trim_start_matches('s')) % 6) as usize
}

fn last_text() -> String {
    // SAFETY: a C string of the library.
    unsafe { std::ffi::CStr::from_ptr(pl_last_error()) }.to_string_lossy().into_owned()
}
