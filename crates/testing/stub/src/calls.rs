//! The calls that CUDA and HIP share.

use std::ffi::{CStr, c_char, c_void};

use pathline_schema::{Gpu, MemKind, Ns, Place, Unit};

use crate::entry;
use crate::node::{CallOutcome, StubNode};
use crate::spec::StubApi;
use crate::streams::StubHandle;
use crate::streams::{HostFunction, WordWait};
use crate::{image, status};

/// Stores a result.
///
/// # Safety
/// `out` is null or points to a place for it.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> CallOutcome {
    if out.is_null() {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe { out.write(value) };
    Ok(())
}

/// Refuses flags other than some.
pub(crate) fn only(flags: u32, known: u32) -> CallOutcome {
    if flags & !known == 0 { Ok(()) } else { Err(status::INVALID_VALUE) }
}

/// Stores a C string, cut to the available space.
///
/// # Safety
/// `out` is null or points to `room` bytes.
pub(crate) unsafe fn put_text(out: *mut c_char, room: i32, text: &str) -> CallOutcome {
    let room = usize::try_from(room).unwrap_or(0);
    if out.is_null() || room == 0 {
        return Err(status::INVALID_VALUE);
    }
    let length = text.len().min(room - 1);
    // SAFETY: `length + 1` bytes fit.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), length);
        out.add(length).write(0);
    }
    Ok(())
}

// Every function below is `unsafe` for its pointers: they are null or valid for the vendor's
// function of the same name.

pub(crate) unsafe fn device_count(node: &mut StubNode, out: *mut i32) -> CallOutcome {
    // SAFETY: as above.
    unsafe { put(out, node.gpus.len() as i32) }
}

pub(crate) unsafe fn device_get(node: &mut StubNode, out: *mut i32, nth: i32) -> CallOutcome {
    node.device(nth)?;
    // SAFETY: as above.
    unsafe { put(out, nth) }
}

pub(crate) unsafe fn device_name(
    node: &mut StubNode,
    out: *mut c_char,
    room: i32,
    gpu: i32,
) -> CallOutcome {
    // SAFETY: as above.
    unsafe { put_text(out, room, &node.device(gpu)?.name) }
}

pub(crate) unsafe fn device_pci(
    node: &mut StubNode,
    out: *mut c_char,
    room: i32,
    gpu: i32,
) -> CallOutcome {
    // SAFETY: as above.
    unsafe { put_text(out, room, &node.device(gpu)?.pci.to_ascii_uppercase()) }
}

pub(crate) unsafe fn device_uuid(node: &mut StubNode, out: *mut [u8; 16], gpu: i32) -> CallOutcome {
    node.device(gpu)?;
    let mut uuid = *b"pathline stub 00";
    uuid[15] += gpu as u8;
    // SAFETY: as above.
    unsafe { put(out, uuid) }
}

pub(crate) unsafe fn device_total(node: &mut StubNode, out: *mut usize, gpu: i32) -> CallOutcome {
    // SAFETY: as above.
    unsafe { put(out, node.device(gpu)?.memory.0 as usize) }
}

pub(crate) unsafe fn can_access(
    node: &mut StubNode,
    out: *mut i32,
    from: i32,
    to: i32,
) -> CallOutcome {
    let (from, to) = (node.device(from)?.index, node.device(to)?.index);
    let direct = from != to
        && !node.spec.no_peer
        && matches!(node.sim()?.peer_access(from, to), Ok(pathline_hal::PeerAccess::Direct));
    // SAFETY: as above.
    unsafe { put(out, direct.into()) }
}

/// Lets the current GPU access another.
pub(crate) fn enable_peer(node: &mut StubNode, to: u32) -> CallOutcome {
    node.device(to as i32)?;
    let pair = (node.gpu, to);
    if pair.0 == pair.1 {
        return Err(status::INVALID_DEVICE);
    }
    if node.peers.contains(&pair) {
        return Err(status::PEER_ALREADY_ENABLED);
    }
    if node.spec.no_peer {
        return Err(status::PEER_UNSUPPORTED);
    }
    node.sim()?.enable_peer(pair.0, pair.1).map_err(|_| status::PEER_UNSUPPORTED)?;
    node.peers.push(pair);
    Ok(())
}

pub(crate) fn disable_peer(node: &mut StubNode, to: u32) -> CallOutcome {
    let pair = (node.gpu, to);
    let at = node.peers.iter().position(|p| *p == pair).ok_or(status::PEER_NOT_ENABLED)?;
    node.peers.swap_remove(at);
    Ok(())
}

pub(crate) unsafe fn mem_info(
    node: &mut StubNode,
    free: *mut usize,
    total: *mut usize,
) -> CallOutcome {
    let room = node.room(node.gpu)?;
    // SAFETY: as above.
    unsafe {
        put(free, room.0 as usize)?;
        put(total, room.1 as usize)
    }
}

pub(crate) unsafe fn alloc_as(
    node: &mut StubNode,
    out: *mut u64,
    bytes: usize,
    unit: Unit,
    mem: MemKind,
) -> CallOutcome {
    let address = node.allocate(Place::new(unit, mem), bytes as u64)?;
    // SAFETY: as above.
    unsafe { put(out, address) }
}

pub(crate) unsafe fn mem_alloc(node: &mut StubNode, out: *mut u64, bytes: usize) -> CallOutcome {
    // SAFETY: as above.
    unsafe { alloc_as(node, out, bytes, Unit::Gpu(node.gpu), MemKind::Vram) }
}

pub(crate) unsafe fn managed_alloc(
    node: &mut StubNode,
    out: *mut u64,
    bytes: usize,
    flags: u32,
) -> CallOutcome {
    if !matches!(flags, 1 | 2) {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: as above.
    unsafe { alloc_as(node, out, bytes, Unit::Numa(node.near()), MemKind::Managed) }
}

pub(crate) fn mem_free(node: &mut StubNode, address: u64) -> CallOutcome {
    if address == 0 {
        return Ok(());
    }
    node.release(address, &[MemKind::Vram, MemKind::VramFine, MemKind::Managed])
}

pub(crate) fn host_free(node: &mut StubNode, address: u64) -> CallOutcome {
    node.release(address, &[MemKind::Pinned, MemKind::PinnedNonCoherent, MemKind::PinnedWc])
}

pub(crate) fn host_register(
    node: &mut StubNode,
    address: u64,
    bytes: usize,
    flags: u32,
) -> CallOutcome {
    // Portable, mapped, of an I/O device, only read; HIP has further ones.
    only(flags, if node.api == StubApi::Cuda { 15 } else { u32::MAX })?;
    node.register(address, bytes as u64)
}

pub(crate) fn host_unregister(node: &mut StubNode, address: u64) -> CallOutcome {
    node.unregister(address)
}

/// A file of the memory's size, without its bytes. Kind 1 is a dma-buf.
pub(crate) unsafe fn export(
    node: &mut StubNode,
    out: *mut i32,
    address: u64,
    bytes: usize,
    kind: i32,
    _flags: u64,
) -> CallOutcome {
    let (_, block) = node.blocks.find(address, bytes as u64).ok_or(status::INVALID_VALUE)?;
    if kind != 1 || !matches!(block.place.mem, MemKind::Vram | MemKind::VramFine) {
        return Err(status::NOT_SUPPORTED);
    }
    // SAFETY: the name is a C string.
    let file = unsafe { libc::memfd_create(c"dmabuf".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the file was opened above.
    if file < 0 || unsafe { libc::ftruncate(file, bytes as libc::off_t) } != 0 {
        return Err(status::OPERATING_SYSTEM);
    }
    // SAFETY: as above.
    unsafe { put(out, file) }
}

pub(crate) unsafe fn host_pointer(
    node: &mut StubNode,
    out: *mut u64,
    address: u64,
    flags: u32,
) -> CallOutcome {
    only(flags, 0)?;
    node.blocks.find(address, 1).ok_or(status::INVALID_VALUE)?;
    // SAFETY: as above.
    unsafe { put(out, address) }
}

/// The block that contains an address; of CUDA, only one of GPU memory.
pub(crate) unsafe fn range(
    node: &mut StubNode,
    start: *mut u64,
    bytes: *mut usize,
    address: u64,
) -> CallOutcome {
    let (at, block) = node.blocks.find(address, 1).ok_or(status::INVALID_VALUE)?;
    if node.api == StubApi::Cuda && !block.is_device() {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: as above.
    unsafe {
        put(start, at)?;
        put(bytes, block.bytes as usize)
    }
}

/// The kind of a block: host 1, device 2, managed 3; 0 outside all blocks. With its device, start and size.
pub(crate) fn pointer(node: &StubNode, address: u64) -> (i32, i32, u64, u64) {
    let Some((start, block)) = node.blocks.find(address, 1) else { return (0, -1, 0, 0) };
    let kind = match block.place.mem {
        MemKind::Vram | MemKind::VramFine => 2,
        MemKind::Managed => 3,
        _ => 1,
    };
    let device = block.place.unit.gpu().map_or(0, u32::cast_signed);
    (kind, device, start, block.bytes)
}

/// Whether a stream is being recorded.
pub(crate) unsafe fn is_capturing(
    node: &mut StubNode,
    stream: StubHandle,
    out: *mut i32,
) -> CallOutcome {
    let stream = node.stream(stream)?;
    // SAFETY: as above.
    unsafe { put(out, i32::from(node.queues.recording.contains_key(&stream))) }
}

/// The GPU of a stream.
pub(crate) fn gpu_of_stream(node: &mut StubNode, stream: StubHandle) -> CallOutcome<u32> {
    let stream = node.stream(stream)?;
    node.queues.streams.get(&stream).map(|s| s.gpu).ok_or(status::INVALID_HANDLE)
}

/// Advice: 3 is the preferred location, 5 the accessing device; the CPU is -1.
pub(crate) fn advise(
    node: &mut StubNode,
    address: u64,
    bytes: usize,
    advice: i32,
    device: i32,
) -> CallOutcome {
    node.managed(address, bytes as u64)?;
    match (advice, device) {
        (5, gpu) if gpu >= 0 => {
            let gpu = node.device(gpu)?.index;
            node.stays_home(address, bytes as u64, gpu)
        }
        (3 | 5, -1) => Ok(()),
        (3, gpu) => node.device(gpu).map(|_| ()),
        (1 | 2 | 4 | 6, _) => Ok(()),
        // HIP: coarse grain, and back.
        (100 | 101, _) if node.api == StubApi::Hip => Ok(()),
        _ => Err(status::INVALID_VALUE),
    }
}

/// To a GPU, or to the host memory (-1) nearest to the current GPU.
pub(crate) fn prefetch(
    node: &mut StubNode,
    address: u64,
    bytes: usize,
    device: i32,
    stream: StubHandle,
) -> CallOutcome {
    let to = match device {
        -1 => Unit::Numa(node.near()),
        gpu => Unit::Gpu(node.device(gpu)?.index),
    };
    node.prefetch(stream, address, bytes as u64, to)
}

pub(crate) unsafe fn stream_create(
    node: &mut StubNode,
    out: *mut StubHandle,
    flags: u32,
) -> CallOutcome {
    only(flags, 1)?;
    let stream = node.stream_create(flags == 0)?;
    // SAFETY: as above.
    unsafe { put(out, stream) }
}

pub(crate) fn stream_destroy(node: &mut StubNode, stream: StubHandle) -> CallOutcome {
    node.stream_destroy(stream)
}

pub(crate) fn stream_wait(node: &mut StubNode, stream: StubHandle) -> CallOutcome {
    let stream = node.stream(stream)?;
    node.drain(stream)
}

pub(crate) fn stream_query(node: &mut StubNode, stream: StubHandle) -> CallOutcome {
    let stream = node.stream(stream)?;
    if node.is_idle(stream)? {
        return Ok(());
    }
    node.sim()?.pause(QUERY);
    Err(status::NOT_READY)
}

pub(crate) fn stream_await(
    node: &mut StubNode,
    stream: StubHandle,
    event: StubHandle,
    flags: u32,
) -> CallOutcome {
    only(flags, 1)?;
    node.stream_await(stream, event)
}

pub(crate) fn wait_value(
    node: &mut StubNode,
    stream: StubHandle,
    address: u64,
    value: u32,
    flags: u32,
    mask: u32,
) -> CallOutcome {
    // Bit 30 requests a flush of remote writes.
    if address == 0 || !address.is_multiple_of(4) || flags & !(1 << 30) > 3 {
        return Err(status::INVALID_VALUE);
    }
    node.blocks.find(address, 4).ok_or(status::INVALID_VALUE)?;
    node.hold(stream, WordWait { address, value, mask, how: flags & 3 })
}

pub(crate) fn host_function(
    node: &mut StubNode,
    stream: StubHandle,
    function: Option<HostFunction>,
    data: *mut c_void,
) -> CallOutcome {
    let function = function.ok_or(status::INVALID_VALUE)?;
    node.call(stream, function, data as usize)
}

/// Flag 2 makes an event without a time; flag 4, an event for other processes, requires it.
pub(crate) unsafe fn event_create(
    node: &mut StubNode,
    out: *mut StubHandle,
    flags: u32,
) -> CallOutcome {
    only(flags, if node.api == StubApi::Cuda { 7 } else { u32::MAX })?;
    if flags & 6 == 4 {
        return Err(status::INVALID_VALUE);
    }
    let event = node.event_create(flags & 2 == 0)?;
    // SAFETY: as above.
    unsafe { put(out, event) }
}

pub(crate) fn event_destroy(node: &mut StubNode, event: StubHandle) -> CallOutcome {
    node.event_destroy(event)
}

pub(crate) fn event_record(
    node: &mut StubNode,
    event: StubHandle,
    stream: StubHandle,
) -> CallOutcome {
    node.event_record(event, stream)
}

/// Time of a query that finds nothing. Hardware takes a tenth of it; ten times as many queries would make programs
/// that poll believe that a copy hangs.
const QUERY: Ns = Ns(10_000.0);

pub(crate) fn event_query(node: &mut StubNode, event: StubHandle) -> CallOutcome {
    if node.event_happened(event)? {
        return Ok(());
    }
    // A program that polls does nothing else meanwhile: virtual time goes on as a query of hardware takes.
    node.sim()?.pause(QUERY);
    Err(status::NOT_READY)
}

pub(crate) fn event_wait(node: &mut StubNode, event: StubHandle) -> CallOutcome {
    node.event_wait(event)
}

pub(crate) unsafe fn event_elapsed(
    node: &mut StubNode,
    out: *mut f32,
    start: StubHandle,
    end: StubHandle,
) -> CallOutcome {
    let time = node.event_elapsed(start, end)?;
    // SAFETY: as above.
    unsafe { put(out, time) }
}

pub(crate) fn copy_async(
    node: &mut StubNode,
    dst: u64,
    src: u64,
    bytes: usize,
    stream: StubHandle,
) -> CallOutcome {
    node.copy(stream, dst, src, bytes as u64)
}

/// On the legacy stream, and waits.
pub(crate) fn copy_now(node: &mut StubNode, dst: u64, src: u64, bytes: usize) -> CallOutcome {
    node.copy(0, dst, src, bytes as u64)?;
    stream_wait(node, 0)
}

pub(crate) fn set_now(node: &mut StubNode, dst: u64, value: u8, bytes: usize) -> CallOutcome {
    node.set(0, dst, value, bytes as u64)?;
    stream_wait(node, 0)
}

pub(crate) fn set_async(
    node: &mut StubNode,
    dst: u64,
    value: u8,
    bytes: usize,
    stream: StubHandle,
) -> CallOutcome {
    node.set(stream, dst, value, bytes as u64)
}

pub(crate) fn synchronize(node: &mut StubNode) -> CallOutcome {
    node.drain_all()
}

pub(crate) unsafe fn module_load(
    node: &mut StubNode,
    out: *mut StubHandle,
    code: *const c_void,
) -> CallOutcome {
    // SAFETY: as above.
    unsafe { put(out, node.load(image::unpack(code))?) }
}

pub(crate) fn module_unload(node: &mut StubNode, module: StubHandle) -> CallOutcome {
    node.unload(module)
}

pub(crate) unsafe fn module_function(
    node: &mut StubNode,
    out: *mut StubHandle,
    module: StubHandle,
    name: *const c_char,
) -> CallOutcome {
    if name.is_null() {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: as above.
    unsafe {
        let name = CStr::from_ptr(name).to_str().map_err(|_| status::INVALID_VALUE)?;
        put(out, node.function(module, name)?)
    }
}

#[expect(clippy::too_many_arguments, reason = "the vendors' own parameters")]
pub(crate) unsafe fn launch(
    node: &mut StubNode,
    function: StubHandle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: StubHandle,
    parameters: *const *const c_void,
    _extra: *const *const c_void,
) -> CallOutcome {
    let shape = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared);
    // SAFETY: as above.
    unsafe { node.launch(function, shape, stream, parameters) }
}

/// The GPU of a number, unless another process holds it.
pub(crate) fn may_open(node: &StubNode, gpu: i32) -> CallOutcome<u32> {
    let gpu = node.device(gpu)?.index;
    if node.spec.exclusive { Err(status::UNAVAILABLE) } else { Ok(gpu) }
}

/// Domain, bus and device of a GPU's PCI address.
pub(crate) fn pci(gpu: &Gpu, nth: usize) -> i32 {
    let part = gpu.pci.split([':', '.']).nth(nth);
    part.and_then(|hex| i32::from_str_radix(hex, 16).ok()).unwrap_or(0)
}

/// Retains the primary context of a GPU.
pub(crate) fn open(node: &mut StubNode, gpu: i32) -> CallOutcome<StubHandle> {
    let gpu = may_open(node, gpu)?;
    *node.retained.entry(gpu).or_default() += 1;
    Ok(entry::context(gpu))
}

/// # Safety
/// The lists have `count` entries; `failed` is null or can store a number.
pub(crate) unsafe fn batch(
    node: &mut StubNode,
    (dsts, srcs, sizes): (*const u64, *const u64, *const usize),
    count: usize,
    failed: *mut usize,
    stream: StubHandle,
) -> CallOutcome {
    if stream <= 2 || dsts.is_null() || srcs.is_null() || sizes.is_null() {
        return Err(status::INVALID_VALUE);
    }
    for nth in 0..count {
        // SAFETY: the caller's promise.
        let (dst, src, bytes) =
            unsafe { (dsts.add(nth).read(), srcs.add(nth).read(), sizes.add(nth).read()) };
        let copied = copy_async(node, dst, src, bytes, stream);
        if copied.is_err() && !failed.is_null() {
            // SAFETY: the caller's promise.
            unsafe { failed.write(nth) };
        }
        copied?;
    }
    Ok(())
}
