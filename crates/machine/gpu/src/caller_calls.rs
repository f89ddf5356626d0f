//! The runtime's calls for copies on the thread of a caller, outside the driver.

use std::fmt::Debug;
use std::ops::Range;

use super::function_table::{
    Api, CallStatus, CopyBatch, NO_TIMES, NON_BLOCKING, PORTABLE, RuntimeHandle, SLEEPS,
};

/// The status of a runtime without a call that waits for an event: `CUDA_ERROR_NOT_SUPPORTED`,
/// `hipErrorNotSupported`.
const NO_EVENT_WAIT: CallStatus = ("event synchronize", 801);
/// The same of one without a call that lets a context address memory of another GPU.
const NO_PEERS: CallStatus = ("enable peer access", 801);

/// The memory that an address lies in, as the runtime knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointerKind {
    /// Not known to the runtime: pageable host memory, or none.
    Unknown,
    /// Page-locked host memory.
    Host,
    /// Memory of the device with that number.
    Device(i32),
    /// Managed memory, whose pages move.
    Managed,
}

/// An address and the allocation around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerInfo {
    /// Its memory.
    pub kind: PointerKind,
    /// First address of the allocation; 0 if the runtime does not report it.
    pub start: u64,
    /// Bytes of the allocation; 0 likewise.
    pub bytes: u64,
}

impl PointerInfo {
    /// The allocation; empty if the runtime does not report it.
    pub fn allocation(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.bytes)
    }
}

/// How kernels of the current device reach an address.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelAccess {
    /// The address for them; 0 if they do not reach it, or if it is not known.
    pub address: u64,
    /// Whether peer access of contexts decides which other devices reach it.
    pub follows_peers: bool,
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`, `hipStreamCaptureModeRelaxed`.
pub const CAPTURE_RELAXED: i32 = 2;

/// Calls for the thread of a caller. Holds function addresses and, for CUDA, the contexts that it retained.
///
/// Device numbers are the runtime's.
pub trait CallerCalls: Debug + Send + Sync {
    /// Enqueues a plain copy; the addresses decide its direction.
    ///
    /// # Safety
    /// As for the runtime's own function: live ranges, and a live stream of this process.
    unsafe fn copy_async(
        &self,
        dst: u64,
        src: u64,
        bytes: usize,
        stream: RuntimeHandle,
    ) -> CallStatus;
    /// Copies on the legacy default stream and waits.
    ///
    /// # Safety
    /// As [`Self::copy_async`].
    unsafe fn copy(&self, dst: u64, src: u64, bytes: usize) -> CallStatus;
    /// Enqueues copies by one call; none if the runtime has no such call that can be relied on.
    ///
    /// # Safety
    /// As [`Self::copy_async`].
    unsafe fn copy_batch(&self, _: &mut CopyBatch, _: RuntimeHandle) -> Option<CallStatus> {
        None
    }
    /// Lets kernels of the current device address memory of another; an error if they may already.
    fn enable_peer(&self, _: i32) -> CallStatus {
        NO_PEERS
    }
    /// Sets what this thread may call while any stream of the process is being captured; returns what it was. With
    /// [`CAPTURE_RELAXED`], allocations and queries do not spoil the captures of others.
    fn exchange_capture_mode(&self, mode: i32) -> i32 {
        mode
    }
    /// Whether what [`Self::enter_stream`] returned is the context that [`Self::enter`] makes current for that device.
    fn is_primary(&self, _entered: usize, _device: i32) -> bool {
        true
    }
    /// The memory that an address lies in.
    fn pointer(&self, address: u64) -> PointerInfo;
    /// How kernels of the current device reach an address.
    fn kernel_access(&self, address: u64) -> KernelAccess;
    /// Whether a stream is being captured into a graph.
    ///
    /// # Safety
    /// A live stream of this process.
    unsafe fn is_capturing(&self, stream: RuntimeHandle) -> Result<bool, CallStatus>;
    /// The device of a stream.
    ///
    /// # Safety
    /// A live stream of this process.
    unsafe fn stream_device(&self, stream: RuntimeHandle) -> Result<i32, CallStatus>;
    /// Makes a device current for this thread. The result restores the earlier state by [`Self::leave`].
    fn enter(&self, device: i32) -> Result<usize, CallStatus>;
    /// Undoes [`Self::enter`].
    fn leave(&self, entered: usize);
    /// Makes the device and context of a stream current for this thread, until [`Self::leave`].
    ///
    /// # Safety
    /// A live stream of this process, or a default one.
    unsafe fn enter_stream(&self, stream: RuntimeHandle) -> Result<usize, CallStatus>;
    /// Creates an event of the current context, without times. A thread that waits for it on the host sleeps
    /// if `sleeps` is set, and else looks again and again.
    fn event_create(&self, sleeps: bool) -> Result<RuntimeHandle, CallStatus> {
        let call = &self.api().event_create;
        let mut event = 0;
        // SAFETY: stores one handle.
        match unsafe { (call.at)(&raw mut event, NO_TIMES | if sleeps { SLEEPS } else { 0 }) } {
            0 => Ok(event),
            code => Err((call.name, code)),
        }
    }
    /// Creates a stream of the current context that has no order with its legacy default stream.
    fn stream_create(&self) -> Result<RuntimeHandle, CallStatus> {
        let call = &self.api().stream_create;
        let mut stream = 0;
        // SAFETY: stores one handle.
        match unsafe { (call.at)(&raw mut stream, NON_BLOCKING) } {
            0 => Ok(stream),
            code => Err((call.name, code)),
        }
    }
    /// Destroys a stream. Its work goes on.
    ///
    /// # Safety
    /// A live stream that this trait created.
    unsafe fn stream_destroy(&self, stream: RuntimeHandle) {
        // SAFETY: the caller's promise. A failure leaks a handle.
        unsafe { (self.api().stream_destroy.at)(stream) };
    }
    /// Allocates memory of the current device.
    fn memory_allocate(&self, bytes: usize) -> Result<u64, CallStatus> {
        let call = &self.api().mem_alloc;
        let mut address = 0;
        // SAFETY: stores one address.
        match unsafe { (call.at)(&raw mut address, bytes) } {
            0 => Ok(address),
            code => Err((call.name, code)),
        }
    }
    /// Frees memory of [`Self::memory_allocate`].
    ///
    /// # Safety
    /// Nothing uses the memory any more.
    unsafe fn memory_free(&self, address: u64) {
        // SAFETY: the caller's promise. A failure leaks the memory.
        unsafe { (self.api().mem_free.at)(address) };
    }
    /// Records an event on a stream of the same context.
    ///
    /// # Safety
    /// A live event, and a live stream or a default one.
    unsafe fn event_record(&self, event: RuntimeHandle, stream: RuntimeHandle) -> CallStatus {
        let call = &self.api().event_record;
        // SAFETY: the caller's promise.
        (call.name, unsafe { (call.at)(event, stream) })
    }
    /// Makes a stream wait for the last recording of an event.
    ///
    /// # Safety
    /// As [`Self::event_record`].
    unsafe fn stream_wait_event(&self, stream: RuntimeHandle, event: RuntimeHandle) -> CallStatus {
        let call = &self.api().stream_wait_event;
        // SAFETY: the caller's promise.
        (call.name, unsafe { (call.at)(stream, event, 0) })
    }
    /// Waits on the host for the last recording of an event.
    ///
    /// # Safety
    /// A live event.
    unsafe fn event_wait(&self, event: RuntimeHandle) -> CallStatus {
        let Some(call) = self.api().event_wait else { return NO_EVENT_WAIT };
        // SAFETY: the caller's promise.
        (call.name, unsafe { (call.at)(event) })
    }
    /// Destroys an event. What waits for it still does.
    ///
    /// # Safety
    /// A live event.
    unsafe fn event_destroy(&self, event: RuntimeHandle) {
        // SAFETY: the caller's promise. A failure leaks a handle.
        unsafe { (self.api().event_destroy.at)(event) };
    }
    /// The functions that the driver uses too.
    fn api(&self) -> &Api;
    /// Waits for what the legacy default stream of the current device waits for.
    fn wait_default_stream(&self) -> CallStatus {
        let event = match self.event_create(false) {
            Ok(event) => event,
            Err(status) => return status,
        };
        // SAFETY: a live event, destroyed once; 0 is the legacy default stream.
        unsafe {
            let mut status = self.event_record(event, 0);
            if status.1 == 0 {
                status = self.event_wait(event);
            }
            self.event_destroy(event);
            status
        }
    }
    /// Page-locks host memory for all devices.
    ///
    /// # Safety
    /// A mapping that lives until it is unregistered.
    unsafe fn host_register(&self, address: u64, bytes: usize) -> CallStatus {
        let call = &self.api().host_register;
        // SAFETY: the caller's promise.
        (call.name, unsafe { (call.at)(address, bytes, PORTABLE) })
    }
    /// Undoes [`Self::host_register`].
    ///
    /// # Safety
    /// Nothing uses the memory any more.
    unsafe fn host_unregister(&self, address: u64) -> CallStatus {
        let call = &self.api().host_unregister;
        // SAFETY: the caller's promise.
        (call.name, unsafe { (call.at)(address) })
    }
    /// The runtime's own text for a status.
    fn status_text(&self, code: i32) -> String;
}
