//! Copies by a separate thread, concurrent with the driver: with its own stream and an event for
//! each slot.

use std::ops::Range;

use pathline_hal::{BlockCopier, CallError, CallResult};
use pathline_schema::Bytes;

use super::driver::{GpuDriver, NOT_READY};
use super::function_table::{Api, CallStatus, NO_TIMES, NON_BLOCKING, RuntimeHandle};
use super::runtime_api::ThreadContext;

/// One worker's copies.
struct OneCopier {
    api: Api,
    context: Box<dyn ThreadContext>,
    gpu: u32,
    slots: usize,
    /// GPU memory ranges, which decide the direction of a copy.
    vram: Vec<Range<u64>>,
    stream: Option<RuntimeHandle>,
    events: Vec<RuntimeHandle>,
}

/// Calls the runtime and names the function in the error.
macro_rules! call {
    ($self:expr, $call:expr, $($arg:expr),*) => {{
        let call = $call;
        // SAFETY: arguments are handles of this copier, which live as long as it, pointers to
        // locals, or the ends of a copy, whose requirements `start` and `copy` state.
        let code = unsafe { (call.at)($($arg),*) };
        $self.outcome((call.name, code))
    }};
}

impl OneCopier {
    fn outcome(&self, (call, code): CallStatus) -> CallResult<()> {
        if code == 0 {
            return Ok(());
        }
        let thing = format!("a copier of gpu{}", self.gpu);
        Err(CallError::new(
            self.context.severity(code),
            call,
            thing,
            self.context.status_text(code),
        )
        .with_code(code.into()))
    }

    fn event(&self, slot: usize) -> CallResult<RuntimeHandle> {
        self.events.get(slot).copied().ok_or_else(|| {
            let thing = format!("slot {slot} of gpu{}", self.gpu);
            CallError::unsupported("copy", thing, "its copier has fewer slots")
        })
    }
}

impl BlockCopier for OneCopier {
    fn call_name(&self) -> &'static str {
        self.context.copy_name()
    }

    fn blocking_call_name(&self, to_gpu: bool) -> &'static str {
        if to_gpu { self.api.copy_in.name } else { self.api.copy_out.name }
    }

    fn enter(&mut self) -> CallResult<()> {
        self.outcome(self.context.enter())?;
        if self.stream.is_none() {
            let mut stream = 0;
            call!(self, self.api.stream_create, &raw mut stream, NON_BLOCKING)?;
            self.stream = Some(stream);
        }
        while self.events.len() < self.slots {
            let mut event = 0;
            call!(self, self.api.event_create, &raw mut event, NO_TIMES)?;
            self.events.push(event);
        }
        Ok(())
    }

    fn start(&mut self, slot: usize, dst: u64, src: u64, bytes: Bytes) -> CallResult<()> {
        let event = self.event(slot)?;
        let stream = self.stream.unwrap_or_default();
        self.outcome(self.context.copy(dst, src, bytes.0 as usize, stream))?;
        call!(self, self.api.event_record, event, stream)
    }

    fn is_done(&mut self, slot: usize) -> CallResult<bool> {
        let event = self.event(slot)?;
        let Some(query) = self.api.event_query else { return self.wait(slot).map(|()| true) };
        // SAFETY: an event of this copier.
        match unsafe { (query.at)(event) } {
            NOT_READY => Ok(false),
            code => self.outcome((query.name, code)).map(|()| true),
        }
    }

    fn wait(&mut self, slot: usize) -> CallResult<()> {
        let event = self.event(slot)?;
        match self.api.event_wait {
            Some(wait) => call!(self, wait, event),
            // Waits for all copies, of earlier and later slots too.
            None => call!(self, self.api.stream_wait, self.stream.unwrap_or_default()),
        }
    }

    fn copy(&mut self, dst: u64, src: u64, bytes: Bytes) -> CallResult<()> {
        let bytes = bytes.0 as usize;
        if self.vram.iter().any(|range| range.contains(&dst)) {
            call!(self, self.api.copy_in, dst, src as *const _, bytes)
        } else {
            call!(self, self.api.copy_out, dst as *mut _, src, bytes)
        }
    }
}

impl Drop for OneCopier {
    /// Errors are ignored: `drop` has no caller to report to.
    fn drop(&mut self) {
        if self.stream.is_none() && self.events.is_empty() {
            return;
        }
        let _ = self.outcome(self.context.enter());
        if let Some(stream) = self.stream {
            // Remaining copies use memory that may be freed next.
            let _ = call!(self, self.api.stream_wait, stream);
            let _ = call!(self, self.api.stream_destroy, stream);
        }
        for &event in &self.events {
            let _ = call!(self, self.api.event_destroy, event);
        }
    }
}

impl GpuDriver {
    /// Creates a copier to and from a GPU for a separate thread.
    pub(crate) fn new_copier(&self, gpu: u32, slots: usize) -> CallResult<Box<dyn BlockCopier>> {
        let device = self.device("copier", gpu)?.handle;
        // Before any thread is started: this creates the context, which takes long.
        self.enter("copier", gpu)?;
        let context = self.dialect.thread_context(device);
        let context = context.map_err(|status| {
            self.outcome(status, &|| format!("gpu{gpu}")).err().unwrap_or_else(|| {
                CallError::unsupported("copier", format!("gpu{gpu}"), "it has no context")
            })
        })?;
        let vram = self.blocks.borrow().on_gpus();
        let (stream, events) = (None, Vec::with_capacity(slots));
        Ok(Box::new(OneCopier { api: self.api, context, gpu, slots, vram, stream, events }))
    }
}
