//! Streams and events: the simulated machine times operations; their effects on bytes wait in the
//! stream's own queue until the simulated stream has passed them.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pathline_hal::StreamId;
use pathline_schema::{MemKind, Unit};

use crate::acts::{self, StreamAct};
use crate::node::{CallOutcome, StubNode};
use crate::status;
use crate::streams::{
    HostCall, HostFunction, QueueStep, StreamMark, StubEvent, StubHandle, StubStream, WordWait,
};

/// Maximum operations of a held stream; with one more, the call waits for the stream.
const DEPTH: usize = 1024;

fn sim<T>(result: pathline_hal::CallResult<T>) -> CallOutcome<T> {
    result.map_err(|error| status::of(&error))
}

impl StubNode {
    pub(crate) fn stream_create(&mut self, blocking: bool) -> CallOutcome<StubHandle> {
        let id = sim(self.sim()?.stream_create(self.gpu))?;
        let handle = self.handle();
        let stream = StubStream {
            gpu: self.gpu,
            sim: id,
            blocking,
            steps: VecDeque::new(),
            passed: 0,
            doomed: false,
        };
        self.queues.streams.insert(handle, stream);
        Ok(handle)
    }

    /// The stream of a program's handle; 0, 1 and 2 are the default ones.
    pub(crate) fn stream(&mut self, handle: StubHandle) -> CallOutcome<StubHandle> {
        if handle > 2 {
            let known = self.queues.streams.get(&handle).is_some_and(|s| !s.doomed);
            return if known { Ok(handle) } else { Err(status::INVALID_HANDLE) };
        }
        if let Some(&legacy) = self.queues.legacy.get(&self.gpu) {
            return Ok(legacy);
        }
        let legacy = self.stream_create(false)?;
        self.queues.legacy.insert(self.gpu, legacy);
        Ok(legacy)
    }

    fn at(&self, stream: StubHandle) -> CallOutcome<&StubStream> {
        self.queues.streams.get(&stream).ok_or(status::INVALID_HANDLE)
    }

    /// Prepares an enqueue: returns the stream with its GPU, ordered with the legacy stream, and
    /// with space in its queue.
    pub(crate) fn ready(&mut self, handle: StubHandle) -> CallOutcome<(StubHandle, u32, StreamId)> {
        let stream = self.stream(handle)?;
        if self.queues.recording.contains_key(&stream) {
            return Err(status::CAPTURE_UNSUPPORTED);
        }
        let (gpu, blocking) = (self.at(stream)?.gpu, self.at(stream)?.blocking);
        let legacy = self.queues.legacy.get(&gpu).copied();
        if legacy == Some(stream) {
            let others = self.queues.streams.iter().filter(|(_, s)| s.blocking && s.gpu == gpu);
            let others: Vec<StubHandle> = others.map(|(&h, _)| h).collect();
            others.into_iter().try_for_each(|other| self.drain(other))?;
        } else if let Some(legacy) = legacy.filter(|_| blocking) {
            self.drain(legacy)?;
        }
        if self.at(stream)?.steps.len() >= DEPTH {
            self.drain(stream)?;
        }
        Ok((stream, gpu, self.at(stream)?.sim))
    }

    /// Enqueues an operation's effect on bytes.
    pub(crate) fn push(&mut self, stream: StubHandle, act: StreamAct) {
        if let Some(stream) = self.queues.streams.get_mut(&stream) {
            stream.steps.push_back(QueueStep::Act(act));
        }
    }

    fn mark(&mut self, stream: StubHandle) -> StreamMark {
        self.queues.marks += 1;
        if let Some(stream) = self.queues.streams.get_mut(&stream) {
            stream.steps.push_back(QueueStep::Mark(self.queues.marks));
        }
        self.queues.marks
    }

    /// Opens gates whose condition holds, and completes finished work. Called on entry of every
    /// call.
    pub(crate) fn poll(&mut self) -> CallOutcome {
        let over: Vec<WordWait> =
            self.queues.waits.keys().filter(|w| w.is_over()).copied().collect();
        for wait in over {
            if let Some(gate) = self.queues.waits.remove(&wait) {
                sim(self.sim()?.gate_destroy(gate))?;
            }
        }
        let calls = std::mem::take(&mut self.queues.calls);
        for call in calls {
            if let Some(call) = self.progress(call)? {
                self.queues.calls.push(call);
            }
        }
        let doomed = self.queues.streams.iter().filter(|(_, s)| s.doomed);
        let doomed: Vec<(StubHandle, StreamId)> = doomed.map(|(&h, s)| (h, s.sim)).collect();
        for (handle, id) in doomed {
            if sim(self.sim()?.stream_idle(id))? {
                self.apply(handle, StreamMark::MAX);
                self.queues.streams.remove(&handle);
                sim(self.sim()?.stream_destroy(id))?;
            }
        }
        Ok(())
    }

    /// Starts a host function once its stream reaches it, and lets the stream continue after its
    /// return. Returns the call if it has not ended.
    fn progress(&mut self, mut call: HostCall) -> CallOutcome<Option<HostCall>> {
        match &call.running {
            Some(over) if over.load(Ordering::Acquire) => {
                // It may have written anywhere.
                self.blocks.touch();
                sim(self.sim()?.gate_destroy(call.gate))?;
                sim(self.sim()?.event_destroy(call.reached))?;
                return Ok(None);
            }
            Some(_) => return Ok(Some(call)),
            None => {}
        }
        if self.sim()?.event_elapsed(call.reached, call.reached).is_err() {
            return Ok(Some(call));
        }
        self.apply(call.stream, call.mark);
        let over = Arc::new(AtomicBool::new(false));
        let (function, data, done) = (call.function, call.data, Arc::clone(&over));
        std::thread::spawn(move || {
            // SAFETY: the caller of the launch function promised that it may be called once, from
            // any thread, with this pointer.
            unsafe { function(data as *mut c_void) };
            done.store(true, Ordering::Release);
        });
        call.running = Some(over);
        Ok(Some(call))
    }

    /// Waits until a stream is idle; forever, if its gate never opens.
    pub(crate) fn drain(&mut self, stream: StubHandle) -> CallOutcome {
        let Ok(id) = self.at(stream).map(|s| s.sim) else { return Ok(()) };
        loop {
            self.poll()?;
            if self.at(stream).is_err() {
                return Ok(());
            }
            match self.sim()?.stream_wait(id) {
                Ok(()) => {
                    self.apply(stream, StreamMark::MAX);
                    return Ok(());
                }
                Err(_) if self.is_held() => rest(),
                Err(error) => return Err(status::of(&error)),
            }
        }
    }

    fn is_held(&self) -> bool {
        !self.queues.waits.is_empty() || !self.queues.calls.is_empty()
    }

    /// Waits until every stream is idle.
    pub(crate) fn drain_all(&mut self) -> CallOutcome {
        let all: Vec<StubHandle> = self.queues.streams.keys().copied().collect();
        all.into_iter().try_for_each(|stream| self.drain(stream))
    }

    /// Whether a stream is idle.
    pub(crate) fn is_idle(&mut self, stream: StubHandle) -> CallOutcome<bool> {
        let idle = sim(self.sim()?.stream_idle(self.at(stream)?.sim))?;
        if idle {
            self.apply(stream, StreamMark::MAX);
        }
        Ok(idle)
    }

    /// Applies a stream's effects up to a mark.
    fn apply(&mut self, stream: StubHandle, until: StreamMark) {
        let epoch = self.queues.epoch;
        while let Some(s) = self.queues.streams.get_mut(&stream) {
            if s.passed >= until {
                return;
            }
            match s.steps.pop_front() {
                None => return,
                Some(QueueStep::Mark(mark)) => s.passed = mark,
                Some(QueueStep::Await(other, mark)) => self.apply(other, mark),
                // SAFETY: the ranges were checked when it was enqueued, and nothing is freed or
                // unregistered before all streams are idle.
                Some(QueueStep::Act(act)) => unsafe { acts::apply(&mut self.blocks, act, epoch) },
            }
        }
    }

    pub(crate) fn stream_destroy(&mut self, handle: StubHandle) -> CallOutcome {
        if handle <= 2 {
            return Err(status::INVALID_HANDLE);
        }
        let stream = self.stream(handle)?;
        if let Some(stream) = self.queues.streams.get_mut(&stream) {
            stream.doomed = true;
        }
        self.poll()
    }

    /// Holds a stream until a memory word meets its condition.
    pub(crate) fn hold(&mut self, handle: StubHandle, wait: WordWait) -> CallOutcome {
        let (_, _, id) = self.ready(handle)?;
        if wait.is_over() {
            return Ok(());
        }
        let gate = match self.queues.waits.get(&wait) {
            Some(&gate) => gate,
            None => {
                let gate = sim(self.sim()?.gate_create())?;
                self.queues.waits.insert(wait, gate);
                gate
            }
        };
        sim(self.sim()?.gate_hold(gate, id))
    }

    /// Enqueues a call of a host function.
    pub(crate) fn call(
        &mut self,
        handle: StubHandle,
        function: HostFunction,
        data: usize,
    ) -> CallOutcome {
        let stream = self.stream(handle)?;
        if let Some(graph) = self.queues.recording.get_mut(&stream) {
            graph.push((function, data));
            return Ok(());
        }
        let (stream, gpu, id) = self.ready(handle)?;
        let driver = self.sim()?;
        let (reached, gate) = (sim(driver.event_create(gpu))?, sim(driver.gate_create())?);
        sim(driver.event_record(reached, id))?;
        sim(driver.gate_hold(gate, id))?;
        let mark = self.mark(stream);
        self.queues.calls.push(HostCall {
            stream,
            mark,
            reached,
            gate,
            function,
            data,
            running: None,
        });
        Ok(())
    }

    pub(crate) fn event_create(&mut self, timed: bool) -> CallOutcome<StubHandle> {
        let id = sim(self.sim()?.event_create(self.gpu))?;
        let handle = self.handle();
        self.queues.events.insert(handle, StubEvent { gpu: self.gpu, sim: id, timed, at: None });
        Ok(handle)
    }

    fn event(&self, event: StubHandle) -> CallOutcome<&StubEvent> {
        self.queues.events.get(&event).ok_or(status::INVALID_HANDLE)
    }

    pub(crate) fn event_destroy(&mut self, event: StubHandle) -> CallOutcome {
        let gone = self.queues.events.remove(&event).ok_or(status::INVALID_HANDLE)?;
        sim(self.sim()?.event_destroy(gone.sim))
    }

    pub(crate) fn event_record(&mut self, event: StubHandle, handle: StubHandle) -> CallOutcome {
        let (event_id, of) = (self.event(event)?.sim, self.event(event)?.gpu);
        let (stream, gpu, id) = self.ready(handle)?;
        if of != gpu {
            return Err(status::INVALID_HANDLE);
        }
        sim(self.sim()?.event_record(event_id, id))?;
        let mark = self.mark(stream);
        if let Some(event) = self.queues.events.get_mut(&event) {
            event.at = Some((stream, mark));
        }
        Ok(())
    }

    pub(crate) fn stream_await(&mut self, handle: StubHandle, event: StubHandle) -> CallOutcome {
        let (event_id, at) = (self.event(event)?.sim, self.event(event)?.at);
        let (stream, _, id) = self.ready(handle)?;
        sim(self.sim()?.stream_wait_event(id, event_id))?;
        if let (Some((other, mark)), Some(s)) = (at, self.queues.streams.get_mut(&stream)) {
            s.steps.push_back(QueueStep::Await(other, mark));
        }
        Ok(())
    }

    /// Whether an event has completed; an unrecorded one has.
    pub(crate) fn event_happened(&mut self, event: StubHandle) -> CallOutcome<bool> {
        let (id, at) = (self.event(event)?.sim, self.event(event)?.at);
        let Some((stream, mark)) = at else { return Ok(true) };
        let happened = self.sim()?.event_elapsed(id, id).is_ok();
        if happened {
            self.apply(stream, mark);
        }
        Ok(happened)
    }

    /// Waits for an event.
    pub(crate) fn event_wait(&mut self, event: StubHandle) -> CallOutcome {
        let Some((stream, _)) = self.event(event)?.at else { return Ok(()) };
        // The stream may have work behind the event; in virtual time waiting for it costs nothing.
        self.drain(stream)?;
        self.event_happened(event).map(|_| ())
    }

    /// Ends what a primary context has made: streams, events, code, memory of its GPU.
    pub(crate) fn destroy_objects(&mut self, gpu: u32) -> CallOutcome {
        self.drain_all()?;
        self.queues.legacy.remove(&gpu);
        for stream in self.queues.streams.values_mut().filter(|s| s.gpu == gpu) {
            stream.doomed = true;
        }
        let events = self.queues.events.iter().filter(|(_, event)| event.gpu == gpu);
        let events: Vec<StubHandle> = events.map(|(&handle, _)| handle).collect();
        events.into_iter().try_for_each(|event| self.event_destroy(event))?;
        let modules = self.modules.iter().filter(|(_, module)| module.gpu == gpu);
        let modules: Vec<StubHandle> = modules.map(|(&handle, _)| handle).collect();
        modules.into_iter().try_for_each(|module| self.unload(module))?;
        let own = self.blocks.by_start.iter();
        let own = own.filter(|(_, b)| b.is_device() && b.place.unit == Unit::Gpu(gpu));
        let own: Vec<u64> = own.map(|(&start, _)| start).collect();
        own.into_iter().try_for_each(|at| self.release(at, &[MemKind::Vram]))?;
        self.poll()
    }

    /// Milliseconds between two events.
    pub(crate) fn event_elapsed(&mut self, start: StubHandle, end: StubHandle) -> CallOutcome<f32> {
        for event in [start, end] {
            let known = self.event(event)?;
            if !known.timed || known.at.is_none() {
                return Err(status::INVALID_HANDLE);
            }
            if !self.event_happened(event)? {
                return Err(status::NOT_READY);
            }
        }
        let (start, end) = (self.event(start)?.sim, self.event(end)?.sim);
        let time = self.sim()?.event_elapsed(start, end).map_err(|_| status::NOT_READY)?;
        Ok((time.0 / 1e6) as f32)
    }
}

/// Yields the core to other threads.
fn rest() {
    std::thread::park_timeout(std::time::Duration::from_micros(50));
}
