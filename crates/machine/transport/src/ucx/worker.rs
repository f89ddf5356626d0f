//! A context and a worker of UCX, and their operations.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::rc::Rc;

use pathline_hal::{CallError, CallResult, LocalMemory};
use pathline_schema::{AtomicOp, Severity};

use super::api::{
    API, Api, EpParams, IN_PROGRESS, MapAttr, MapParams, OK, PostedRequest, RequestAttr,
    RequestParams, UNSUPPORTED, UcxHandle, UcxParams, UcxStatus, WorkerParams, posted,
};
use super::engine_label;
use super::search::UcpLibrary;
use pathline_host::clock::ClockOrigin;

/// Timeout in ns to close endpoints when a worker ends: their peers may be gone.
const CLOSE_TIMEOUT: u64 = 200_000_000;
/// Polls between two checks of the clock. One takes 10 to 100 ns.
const POLLS: u32 = 4096;

/// A worker with its context, used by one thread.
#[derive(Debug)]
pub(super) struct UcxWorker {
    api: Api,
    context: UcxHandle,
    worker: UcxHandle,
    address: Vec<u8>,
    /// The setting of this context only, by its full name as UCX prints it.
    set: Option<String>,
    /// By the address of the peer.
    endpoints: RefCell<BTreeMap<Vec<u8>, UcxHandle>>,
}

/// An operation in flight. It is freed on completion.
#[derive(Debug)]
pub(super) struct UcxRequest {
    at: UcxHandle,
    /// The call, for errors.
    call: &'static str,
}

/// Memory mapped in a context.
#[derive(Debug)]
pub(super) struct UcxMapping {
    worker: Rc<UcxWorker>,
    handle: UcxHandle,
}

/// Another process's memory, reachable through an endpoint.
#[derive(Debug)]
pub(super) struct RemoteKey {
    worker: Rc<UcxWorker>,
    handle: UcxHandle,
}

impl UcxWorker {
    /// Creates a worker for `others` other processes, with atomic operations if `atomics`.
    /// `change` changes the configuration and returns the setting.
    pub(super) fn new(
        ucp: &UcpLibrary,
        others: u32,
        atomics: bool,
        change: impl FnOnce(UcxHandle) -> CallResult<Option<String>>,
    ) -> CallResult<Self> {
        let api = ucp.api;
        let failed = |call: &str, status| {
            error(&api, call, &format!("UCX {}", ucp.version), status).or_try(
                "check the UCX_ variables that are set; UCX_LOG_LEVEL=info shows what it lacks",
            )
        };
        let mut config = 0;
        // SAFETY: no prefix and no file are given as null; a handle is stored.
        let status =
            unsafe { (api.config_read)(std::ptr::null(), std::ptr::null(), &raw mut config) };
        if status != OK {
            return Err(failed("ucp_config_read", status));
        }
        let set = match change(config) {
            Ok(set) => set,
            Err(error) => {
                // SAFETY: it was read above and is not used any more.
                unsafe { (api.config_release)(config) };
                return Err(error);
            }
        };
        let params = UcxParams::new(others.max(1) as usize);
        let params = if atomics { params.with_atomics() } else { params };
        let mut context = 0;
        // SAFETY: the structure lives through the call and its mask names fields that are set.
        let status = unsafe {
            (api.init_version)(API.0, API.1, &raw const params, config, &raw mut context)
        };
        // SAFETY: it was read above and is not used any more.
        unsafe { (api.config_release)(config) };
        if status != OK {
            return Err(failed("ucp_init", status));
        }
        let (mut worker, params) = (0, WorkerParams::default());
        // SAFETY: as above; no field is set.
        let status = unsafe { (api.worker_create)(context, &raw const params, &raw mut worker) };
        if status != OK {
            // SAFETY: nothing has been made in it.
            unsafe { (api.cleanup)(context) };
            return Err(failed("ucp_worker_create", status));
        }
        let endpoints = RefCell::default();
        let mut made = Self { api, context, worker, address: Vec::new(), set, endpoints };
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: stores a pointer and a length.
        let status = unsafe { (api.worker_get_address)(worker, &raw mut address, &raw mut bytes) };
        if status != OK {
            return Err(failed("ucp_worker_get_address", status));
        }
        // SAFETY: `bytes` bytes are readable until they are released, which happens once,
        // afterwards.
        unsafe {
            made.address = bytes_at(address, bytes);
            (api.worker_release_address)(worker, address);
        }
        Ok(made)
    }

    /// The setting of this context only.
    pub(super) fn set(&self) -> Option<&str> {
        self.set.as_deref()
    }

    /// The address by which other processes reach this one.
    pub(super) fn address(&self) -> &[u8] {
        &self.address
    }

    /// The endpoint of another process, by its address.
    pub(super) fn endpoint(&self, address: &[u8]) -> CallResult<UcxHandle> {
        if let Some(&known) = self.endpoints.borrow().get(address) {
            return Ok(known);
        }
        // UCX's error handling stays off: it excludes transports and changes protocols, and by
        // default it detects a lost peer only after 20 s.
        let params = EpParams::new(address);
        let mut endpoint = 0;
        // SAFETY: the address, which the other process's worker gave, lives through the call.
        let status =
            unsafe { (self.api.ep_create)(self.worker, &raw const params, &raw mut endpoint) };
        if status != OK {
            let way_out = "UCX_TLS may leave out what both processes have; UCX_LOG_LEVEL=info";
            return Err(error(&self.api, "ucp_ep_create", "another rank", status).or_try(way_out));
        }
        self.endpoints.borrow_mut().insert(address.to_vec(), endpoint);
        Ok(endpoint)
    }

    /// Makes progress; returns whether anything happened.
    #[inline(always)]
    pub(super) fn progress(&self) -> bool {
        // SAFETY: the worker lives, and this thread alone has it.
        unsafe { (self.api.worker_progress)(self.worker) != 0 }
    }

    /// Makes progress until `done`, for `timeout` ns at most.
    ///
    /// # Errors
    /// The error of `done`, or the timeout.
    #[inline(always)]
    pub(super) fn until(
        &self,
        timeout: f64,
        mut done: impl FnMut() -> CallResult<bool>,
    ) -> CallResult<()> {
        let (mut looks, mut since) = (0u32, None);
        while !done()? {
            self.progress();
            looks += 1;
            if looks == POLLS {
                looks = 0;
                let begun = since.get_or_insert_with(ClockOrigin::now);
                if begun.ns() as f64 > timeout {
                    return Err(timed_out(timeout));
                }
                // Where processes outnumber cores, the peer may need this one.
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Waits for an operation.
    ///
    /// # Errors
    /// The operation's error, or the timeout in ns.
    #[inline(always)]
    pub(super) fn complete(&self, request: Option<UcxRequest>, timeout: f64) -> CallResult<()> {
        match request {
            None => Ok(()),
            Some(request) => self.until(timeout, || self.is_done(&request)),
        }
    }

    /// Sends a message; `None` if it completed at once.
    #[inline(always)]
    pub(super) fn send(
        &self,
        endpoint: UcxHandle,
        span: LocalMemory,
        tag: u64,
        how: &RequestParams,
    ) -> CallResult<Option<UcxRequest>> {
        // SAFETY: the span is memory of this process that its owner keeps until the exchange is
        // released; the parameters live through the call.
        let what = unsafe {
            let from = span.address as *const c_void;
            (self.api.tag_send)(endpoint, from, span.bytes as usize, tag, how)
        };
        self.request("ucp_tag_send_nbx", what)
    }

    /// Receives a message with that tag; `None` if it had already arrived.
    #[inline(always)]
    pub(super) fn receive(
        &self,
        span: LocalMemory,
        tag: u64,
        how: &RequestParams,
    ) -> CallResult<Option<UcxRequest>> {
        // SAFETY: as for sending, and nothing else uses that memory meanwhile.
        let what = unsafe {
            let to = span.address as *mut c_void;
            (self.api.tag_receive)(self.worker, to, span.bytes as usize, tag, u64::MAX, how)
        };
        self.request("ucp_tag_recv_nbx", what)
    }

    /// Writes to another process's memory.
    #[inline]
    pub(super) fn put(
        &self,
        endpoint: UcxHandle,
        span: LocalMemory,
        (remote, key): (u64, &RemoteKey),
        how: &RequestParams,
    ) -> CallResult<Option<UcxRequest>> {
        // SAFETY: as for sending; the remote range is what the key was made of, which the other
        // process checks.
        let what = unsafe {
            let from = span.address as *const c_void;
            (self.api.put)(endpoint, from, span.bytes as usize, remote, key.handle, how)
        };
        self.request("ucp_put_nbx", what)
    }

    /// Reads another process's memory.
    #[inline]
    pub(super) fn get(
        &self,
        endpoint: UcxHandle,
        span: LocalMemory,
        (remote, key): (u64, &RemoteKey),
        how: &RequestParams,
    ) -> CallResult<Option<UcxRequest>> {
        // SAFETY: as for receiving; the remote range is what the key was made of.
        let what = unsafe {
            let to = span.address as *mut c_void;
            (self.api.get)(endpoint, to, span.bytes as usize, remote, key.handle, how)
        };
        self.request("ucp_get_nbx", what)
    }

    /// An atomic operation on one 64-bit integer of another process. `source` is the operand, of
    /// compare-swap the new value, which `result` takes before the operation.
    #[inline]
    pub(super) fn atomic(
        &self,
        endpoint: UcxHandle,
        op: AtomicOp,
        (source, result): (LocalMemory, LocalMemory),
        (remote, key): (u64, &RemoteKey),
    ) -> CallResult<Option<UcxRequest>> {
        /// What compare-swap compares with.
        static ZERO: u64 = 0;
        let (code, operand) = match op {
            AtomicOp::Swap => (1, source.address as *const c_void),
            AtomicOp::CompareSwap => {
                let (from, to) = (source.address as *const u8, result.address as *mut u8);
                // SAFETY: both are host memory of 8 bytes, which `drafts` has checked, and no
                // operation on them is in flight.
                unsafe { std::ptr::copy_nonoverlapping(from, to, 8) };
                (2, (&raw const ZERO).cast())
            }
            _ => (0, source.address as *const c_void),
        };
        let how = RequestParams::of_word(result.address);
        // SAFETY: the operand and the result are 8 bytes that live until the exchange is released;
        // the remote range is what the key was made of.
        let what = unsafe {
            (self.api.atomic)(endpoint, code, operand, 1, remote, key.handle, &raw const how)
        };
        self.request("ucp_atomic_op_nbx", what)
    }

    /// Completes all operations of this endpoint at the peer.
    #[inline]
    pub(super) fn flush(&self, endpoint: UcxHandle) -> CallResult<Option<UcxRequest>> {
        let how = RequestParams::plain();
        // SAFETY: the endpoint lives as long as the worker.
        let what = unsafe { (self.api.ep_flush)(endpoint, &raw const how) };
        self.request("ucp_ep_flush_nbx", what)
    }

    #[inline(always)]
    fn request(&self, call: &'static str, what: PostedRequest) -> CallResult<Option<UcxRequest>> {
        match posted(what) {
            Ok(at) => Ok(at.map(|at| UcxRequest { at, call })),
            Err(status) => Err(self.refusal(call, status)),
        }
    }

    #[cold]
    fn refusal(&self, call: &'static str, status: UcxStatus) -> CallError {
        let error = error(&self.api, call, "another rank", status);
        if status == UNSUPPORTED {
            return error.or_try("recent releases put and get with UCX_PROTO_ENABLE=y only");
        }
        error
    }

    /// Whether an operation is complete. A complete one has been freed.
    #[inline(always)]
    pub(super) fn is_done(&self, request: &UcxRequest) -> CallResult<bool> {
        // SAFETY: a request is asked until it is done, and freed then, once: see `settle`.
        let status = unsafe { (self.api.request_status)(request.at) };
        if status == IN_PROGRESS {
            return Ok(false);
        }
        // SAFETY: as above.
        unsafe { (self.api.request_free)(request.at) };
        if status == OK {
            Ok(true)
        } else {
            Err(error(&self.api, request.call, "a message", status))
        }
    }

    /// Removes completed requests from the end of a list; whether none is left.
    #[inline]
    pub(super) fn settle(&self, requests: &mut Vec<UcxRequest>) -> CallResult<bool> {
        while let Some(last) = requests.last() {
            match self.is_done(last) {
                Ok(false) => return Ok(false),
                Ok(true) => drop(requests.pop()),
                Err(error) => {
                    requests.pop();
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// The text of a request: the protocol chosen for it.
    pub(super) fn ask(&self, request: &UcxRequest) -> Option<String> {
        let mut room = vec![0u8; 512];
        let mut attr = RequestAttr::of_text(&mut room);
        // SAFETY: the request is not freed; the library stores at most the given number of bytes of
        // text, with a zero.
        let status = unsafe { (self.api.request_query)(request.at, &raw mut attr) };
        let text = CStr::from_bytes_until_nul(&room).ok()?.to_string_lossy().into_owned();
        (status == OK && !text.is_empty()).then_some(text)
    }

    /// The printed text of an endpoint: its lanes, and in older releases the protocol limits.
    pub(super) fn describe(&self, endpoint: UcxHandle) -> Option<String> {
        // SAFETY: it prints into a stream that is open.
        engine_label::printed(|stream| unsafe { (self.api.ep_print_info)(endpoint, stream) })
    }

    /// Maps memory in the context.
    pub(super) fn map(self: &Rc<Self>, span: LocalMemory) -> CallResult<UcxMapping> {
        let params = MapParams::new(span.address as usize, span.bytes as usize);
        let mut handle = 0;
        // SAFETY: the range is memory of this process that outlives the exchange it is mapped for.
        let status =
            unsafe { (self.api.mem_map)(self.context, &raw const params, &raw mut handle) };
        if status != OK {
            let thing = format!("{} B", span.bytes);
            let way_out = "`ulimit -l` may be too small";
            return Err(error(&self.api, "ucp_mem_map", &thing, status).or_try(way_out));
        }
        Ok(UcxMapping { worker: Rc::clone(self), handle })
    }

    /// Memory of another process, from the key that it packed.
    pub(super) fn unpack(
        self: &Rc<Self>,
        endpoint: UcxHandle,
        packed: &[u8],
    ) -> CallResult<RemoteKey> {
        let mut handle = 0;
        // SAFETY: the key was packed by the other end of this endpoint and lives through the call.
        let status = unsafe { (self.api.rkey_unpack)(endpoint, packed.as_ptr(), &raw mut handle) };
        if status != OK {
            let thing = "another rank's memory";
            return Err(error(&self.api, "ucp_ep_rkey_unpack", thing, status)
                .or_try("no transport reaches it: UCX_TLS may leave out what does"));
        }
        Ok(RemoteKey { worker: Rc::clone(self), handle })
    }
}

impl Drop for UcxWorker {
    fn drop(&mut self) {
        let how = RequestParams::plain();
        let mut closing: Vec<UcxHandle> = Vec::new();
        for endpoint in std::mem::take(self.endpoints.get_mut()).into_values() {
            // SAFETY: it is not used any more.
            let what = unsafe { (self.api.ep_close)(endpoint, &raw const how) };
            closing.extend(posted(what).ok().flatten());
        }
        let begun = ClockOrigin::now();
        let mut left = 0;
        for request in closing {
            // SAFETY: a request is asked until it is done and freed then, once.
            let ended = || unsafe { (self.api.request_status)(request) } != IN_PROGRESS;
            while !ended() && begun.ns() < CLOSE_TIMEOUT {
                self.progress();
            }
            if ended() {
                // SAFETY: as above.
                unsafe { (self.api.request_free)(request) };
            } else {
                left += 1;
            }
        }
        // If an endpoint still waits for a peer that is gone, the worker stays until the process
        // ends.
        if left == 0 {
            // SAFETY: nothing of them is used any more.
            unsafe {
                (self.api.worker_destroy)(self.worker);
                (self.api.cleanup)(self.context);
            }
        }
    }
}

impl UcxMapping {
    /// UCX's memory type of it: `host`, `cuda`.
    pub(super) fn memory(&self) -> String {
        let mut attr = MapAttr::of_type();
        // SAFETY: the handle lives, and one field is stored.
        let status = unsafe { (self.worker.api.mem_query)(self.handle, &raw mut attr) };
        if status == OK {
            engine_label::memory_type(attr.memory_type)
        } else {
            "unknown".to_owned()
        }
    }

    /// The packed key that other processes need to access it.
    pub(super) fn pack(&self) -> CallResult<Vec<u8>> {
        let UcxWorker { api, context, .. } = &*self.worker;
        let (mut packed, mut bytes) = (0, 0);
        // SAFETY: stores a pointer and a length.
        let status =
            unsafe { (api.rkey_pack)(*context, self.handle, &raw mut packed, &raw mut bytes) };
        if status != OK {
            return Err(error(api, "ucp_rkey_pack", "memory of this rank", status));
        }
        // SAFETY: `bytes` bytes are readable until they are released, which happens once,
        // afterwards.
        unsafe {
            let copy = bytes_at(packed, bytes);
            (api.rkey_buffer_release)(packed);
            Ok(copy)
        }
    }
}

impl Drop for UcxMapping {
    fn drop(&mut self) {
        // SAFETY: it is mapped, and nothing of this process uses the handle any more.
        unsafe { (self.worker.api.mem_unmap)(self.worker.context, self.handle) };
    }
}

impl Drop for RemoteKey {
    fn drop(&mut self) {
        // SAFETY: it was unpacked once, and its endpoint lives as long as the worker.
        unsafe { (self.worker.api.rkey_destroy)(self.handle) };
    }
}

/// A copy of bytes that a library stored.
///
/// # Safety
/// `bytes` bytes must be readable at `address`.
unsafe fn bytes_at(address: UcxHandle, bytes: usize) -> Vec<u8> {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(address as *const u8, bytes) }.to_vec()
}

/// The error of operations that do not end within `timeout` ns.
#[cold]
fn timed_out(timeout: f64) -> CallError {
    let why = format!("not complete within {:.0} s", timeout / 1e9);
    CallError::new(Severity::Sticky, "ucp_worker_progress", "messages of this rank", why)
        .or_try("another rank may be gone; UCX_LOG_LEVEL=info shows what UCX lacks")
}

/// The error of a failed call.
#[cold]
fn error(api: &Api, call: &str, thing: &str, status: UcxStatus) -> CallError {
    // SAFETY: it returns a constant text for every number.
    let reason = unsafe {
        let text = (api.status_string)(status);
        if text.is_null() {
            "no reason given".into()
        } else {
            CStr::from_ptr(text).to_string_lossy()
        }
    };
    CallError::new(Severity::Transient, call, thing, reason).with_code(i64::from(status))
}
