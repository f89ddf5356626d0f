//! Lanes of runtime calls: what the call itself costs the host.

use std::rc::Rc;

use pathline_hal::{Buffer, CallError, Event, Gate, Gpu, Kernel, Launch, Machine, Result, Stream};
use pathline_schema::{Bytes, Flow, Mem, Ns, Place, RuntimeCall, Timer, Unit, Verdict};

use crate::lane::{Lane, Lap, nothing_to_compare};

/// Most calls of a sample: what is set up and undone around each of them is not in its time.
const MOST: u64 = 256;

/// What a call needs that is not part of it.
enum Setting<'m> {
    /// Memory that is given and taken back.
    Memory(Place),
    /// Pageable memory that is page-locked and let go.
    Pages(Rc<Buffer<'m>>),
    /// An idle stream, a kernel, and the memory that the kernel writes.
    Kernel(Stream<'m>, Kernel<'m>, Buffer<'m>),
    /// An idle stream and an event.
    Stream(Stream<'m>, Event<'m>),
    /// Nothing.
    Gpu(Gpu<'m>),
}

/// A lane that makes one call at a time and times it by the host's clock.
pub(crate) struct Calls<'m> {
    machine: &'m Machine,
    call: RuntimeCall,
    bytes: Bytes,
    setting: Setting<'m>,
    pending: u64,
}

impl<'m> Calls<'m> {
    /// `pages` is the memory of a registration.
    pub(crate) fn new(
        machine: &'m Machine,
        flow: &Flow,
        call: RuntimeCall,
        pages: Option<Rc<Buffer<'m>>>,
    ) -> Result<Self> {
        let no_fit = || {
            let why = flow.misfit().unwrap_or("it has nothing to be about");
            CallError::unsupported("bind", flow.to_string(), why)
        };
        let at = flow.by.at().gpu().ok_or_else(no_fit)?;
        let gpu = machine.gpu(at)?;
        let setting = match call {
            RuntimeCall::Alloc | RuntimeCall::Free => {
                Setting::Memory(flow.subject().ok_or_else(no_fit)?)
            }
            RuntimeCall::Register | RuntimeCall::Unregister => {
                Setting::Pages(pages.ok_or_else(no_fit)?)
            }
            RuntimeCall::Launch | RuntimeCall::LaunchSync => {
                let place = Place::new(Unit::Gpu(at), Mem::Vram);
                let memory = machine.buffer(place, RuntimeCall::KERNEL_BYTES)?;
                Setting::Kernel(gpu.stream()?, gpu.kernel(&RuntimeCall::KERNEL)?, memory)
            }
            RuntimeCall::Sync | RuntimeCall::Event => Setting::Stream(gpu.stream()?, gpu.event()?),
            RuntimeCall::Stream => Setting::Gpu(gpu),
        };
        Ok(Self { machine, call, bytes: flow.bytes, setting, pending: 0 })
    }

    fn time<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<(Ns, T)> {
        let start = self.machine.clock.now();
        let given = call()?;
        Ok((self.machine.clock.now() - start, given))
    }

    /// One call, with what must be before it and after it.
    fn once(&self) -> Result<Ns> {
        match &self.setting {
            Setting::Memory(place) => self.memory(*place),
            Setting::Pages(pages) => self.pages(pages.address()),
            Setting::Kernel(stream, kernel, memory) => {
                let bytes = RuntimeCall::KERNEL_BYTES;
                let launch = Launch { src: 0, dst: memory.address(), bytes };
                let (time, ()) = self.time(|| {
                    stream.launch(kernel, &launch)?;
                    if self.call == RuntimeCall::LaunchSync { stream.wait() } else { Ok(()) }
                })?;
                stream.wait().map(|()| time)
            }
            Setting::Stream(stream, _) if self.call == RuntimeCall::Sync => {
                self.time(|| stream.wait()).map(|(time, ())| time)
            }
            Setting::Stream(stream, event) => {
                let (time, ()) = self.time(|| stream.record(event))?;
                stream.wait().map(|()| time)
            }
            Setting::Gpu(gpu) => self.time(|| gpu.stream()).map(|(time, _stream)| time),
        }
    }

    fn memory(&self, place: Place) -> Result<Ns> {
        let driver = self.machine.driver()?;
        let (given, address) = self.time(|| driver.alloc(place, self.bytes))?;
        // Managed pages are there once something has touched them; to free them costs then.
        let touched = match (self.call, place.mem) {
            (RuntimeCall::Free, Mem::Managed) => driver.fill(address, self.bytes, 0, false),
            _ => Ok(()),
        };
        let (taken, ()) = self.time(|| driver.free(address))?;
        touched?;
        Ok(if self.call == RuntimeCall::Alloc { given } else { taken })
    }

    fn pages(&self, address: u64) -> Result<Ns> {
        let driver = self.machine.driver()?;
        let (locked, ()) = self.time(|| driver.register(address, self.bytes))?;
        let (let_go, ()) = self.time(|| driver.unregister(address))?;
        Ok(if self.call == RuntimeCall::Register { locked } else { let_go })
    }
}

impl Lane for Calls<'_> {
    fn issue(&mut self, _gate: &Gate<'_>, reps: u64) -> Result<()> {
        self.pending = reps;
        Ok(())
    }

    fn wait(&mut self) -> Result<Lap> {
        let reps = std::mem::take(&mut self.pending);
        let mut elapsed = Ns::ZERO;
        for _ in 0..reps {
            elapsed = elapsed + self.once()?;
        }
        Ok(Lap::of(elapsed, reps))
    }

    fn timer(&self) -> Timer {
        Timer::Host
    }

    fn engine(&self) -> String {
        "runtime call".to_owned()
    }

    fn most(&self) -> u64 {
        MOST
    }

    fn spoil(&mut self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<Verdict> {
        Ok(nothing_to_compare())
    }
}
