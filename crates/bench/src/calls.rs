//! Lanes of runtime calls: what the call itself costs the host.

use std::os::fd::AsFd;
use std::rc::Rc;

use pathline_hal::{
    Buffer, CallError, Event, Gate, Gpu, Kernel, Launch, Machine, Registrar, Result, Stream,
};
use pathline_schema::{Bytes, Flow, Mem, Mover, Ns, Place, RuntimeCall, Timer, Unit, Verdict};

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
    /// Device memory that is exported.
    Export(Rc<Buffer<'m>>),
    /// Memory that an adapter is to reach, and what registers it.
    Region(Rc<Buffer<'m>>, &'m dyn Registrar, Unit),
}

/// A lane that makes one call at a time and times it by the host's clock.
pub(crate) struct Calls<'m> {
    machine: &'m Machine,
    call: RuntimeCall,
    bytes: Bytes,
    setting: Setting<'m>,
    engine: String,
    pending: u64,
}

/// Whether adapters of this machine can be asked at all; before memory is taken for it.
pub(crate) fn has_adapter(machine: &Machine, flow: &Flow) -> Result<()> {
    match flow.by {
        Mover::Call { at, call } if call.is_of_adapters() && call != RuntimeCall::ExportDmabuf => {
            machine.host.registrar()?.adapter(at).map(drop)
        }
        _ => Ok(()),
    }
}

impl<'m> Calls<'m> {
    /// `pages` is the memory of a registration, with a GPU or with an adapter.
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
        let engine = "runtime call".to_owned();
        if call.is_of_adapters() {
            let pages = pages.ok_or_else(no_fit)?;
            return Self::of_adapter(machine, flow, call, pages);
        }
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
            _ => return Err(no_fit()),
        };
        Ok(Self { machine, call, bytes: flow.bytes, setting, engine, pending: 0 })
    }

    fn of_adapter(
        machine: &'m Machine,
        flow: &Flow,
        call: RuntimeCall,
        pages: Rc<Buffer<'m>>,
    ) -> Result<Self> {
        let unit = flow.by.at();
        let bytes = flow.bytes;
        let (setting, engine) = if call == RuntimeCall::ExportDmabuf {
            (Setting::Export(pages), machine.driver()?.export_call().to_owned())
        } else {
            let registrar = machine.host.registrar()?;
            let adapter = registrar.adapter(unit)?;
            let [register, by_file, deregister] = registrar.calls();
            let name = match call {
                RuntimeCall::NicRegister => register,
                RuntimeCall::NicRegisterDmabuf => by_file,
                _ => deregister,
            };
            (Setting::Region(pages, registrar, unit), format!("{name} on {adapter}"))
        };
        let made = Self { machine, call, bytes, setting, engine, pending: 0 };
        // Once, untimed: what is refused is so at the first time.
        made.once()?;
        Ok(made)
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
            Setting::Export(pages) => {
                let driver = self.machine.driver()?;
                let export = || driver.export_dmabuf(pages.address(), self.bytes);
                self.time(export).map(|(time, _file)| time)
            }
            Setting::Region(pages, registrar, unit) => {
                self.region(pages.address(), *registrar, *unit)
            }
        }
    }

    fn region(&self, address: u64, registrar: &dyn Registrar, unit: Unit) -> Result<Ns> {
        let bytes = self.bytes;
        let ((registered, region), _file) = if self.call.is_of_dmabuf() {
            let (file, offset) = self.machine.driver()?.export_dmabuf(address, bytes)?;
            let by = file.as_fd();
            let register = || registrar.register_dmabuf(unit, address, bytes, by, offset);
            let registered = self.time(register)?;
            (registered, Some(file))
        } else {
            (self.time(|| registrar.register(unit, address, bytes))?, None)
        };
        let (taken_back, ()) = self.time(|| registrar.deregister(region))?;
        let registers =
            matches!(self.call, RuntimeCall::NicRegister | RuntimeCall::NicRegisterDmabuf);
        Ok(if registers { registered } else { taken_back })
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
        self.engine.clone()
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
