//! Lanes of runtime calls: the cost of the call on the host.

use std::os::fd::AsFd;
use std::rc::Rc;

use pathline_hal::{
    CallError, CallResult, GpuDevice, GpuEvent, GpuKernel, GpuStream, KernelLaunch, Machine,
    MachineBuffer, MemoryRegistrar, StartGate,
};
use pathline_schema::{
    Bytes, Flow, MemKind, Mover, Ns, Place, RuntimeCall, TimerKind, Unit, VerifyResult,
};

use crate::lane::{self, BoundLane, LaneSample, nothing_to_compare};

/// Maximum calls of a sample: setup and teardown around each call are not timed.
const MAX_CALLS: u64 = 256;

/// Resources that a call needs but that are not timed.
enum CallSetup<'m> {
    /// Memory to allocate and free.
    Memory(Place),
    /// Pageable memory to page-lock and unlock.
    Pages(Rc<MachineBuffer<'m>>),
    /// An idle stream, a kernel, and the kernel's output buffer.
    Kernel(GpuStream<'m>, GpuKernel<'m>, MachineBuffer<'m>),
    /// An idle stream and an event.
    Stream(GpuStream<'m>, GpuEvent<'m>),
    /// Nothing.
    Gpu(GpuDevice<'m>),
    /// Device memory to export.
    Export(Rc<MachineBuffer<'m>>),
    /// Memory for an adapter, and its registrar.
    Region(Rc<MachineBuffer<'m>>, &'m dyn MemoryRegistrar, Unit),
}

/// A lane that makes one call at a time and times it by the host's clock.
pub(crate) struct CallLane<'m> {
    machine: &'m Machine,
    call: RuntimeCall,
    bytes: Bytes,
    setting: CallSetup<'m>,
    engine: String,
    pending: u64,
}

/// Checks that the machine has an adapter, before memory is allocated for it.
pub(crate) fn has_adapter(machine: &Machine, flow: &Flow) -> CallResult<()> {
    match flow.by {
        Mover::Call { at, call } if call.is_of_adapters() && call != RuntimeCall::ExportDmabuf => {
            machine.host.registrar()?.adapter(at).map(drop)
        }
        _ => Ok(()),
    }
}

impl<'m> CallLane<'m> {
    /// `pages` is the memory to register, with a GPU or with an adapter.
    pub(crate) fn new(
        machine: &'m Machine,
        flow: &Flow,
        call: RuntimeCall,
        pages: Option<Rc<MachineBuffer<'m>>>,
    ) -> CallResult<Self> {
        let no_fit = || {
            let why = flow.misfit().unwrap_or("it has no memory or GPU");
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
                CallSetup::Memory(flow.subject().ok_or_else(no_fit)?)
            }
            RuntimeCall::Register | RuntimeCall::Unregister => {
                CallSetup::Pages(pages.ok_or_else(no_fit)?)
            }
            RuntimeCall::Launch | RuntimeCall::LaunchSync => {
                let place = Place::new(Unit::Gpu(at), MemKind::Vram);
                let memory = machine.buffer(place, RuntimeCall::KERNEL_BYTES)?;
                CallSetup::Kernel(gpu.stream()?, gpu.kernel(&RuntimeCall::KERNEL)?, memory)
            }
            RuntimeCall::Sync | RuntimeCall::Event => {
                CallSetup::Stream(gpu.stream()?, gpu.event()?)
            }
            RuntimeCall::Stream => CallSetup::Gpu(gpu),
            _ => return Err(no_fit()),
        };
        Ok(Self { machine, call, bytes: flow.bytes, setting, engine, pending: 0 })
    }

    fn of_adapter(
        machine: &'m Machine,
        flow: &Flow,
        call: RuntimeCall,
        pages: Rc<MachineBuffer<'m>>,
    ) -> CallResult<Self> {
        let unit = flow.by.at();
        let bytes = flow.bytes;
        let (setting, engine) = if call == RuntimeCall::ExportDmabuf {
            (CallSetup::Export(pages), machine.driver()?.export_call().to_owned())
        } else {
            let registrar = machine.host.registrar()?;
            let adapter = registrar.adapter(unit)?;
            let [register, by_file, deregister] = registrar.call_names();
            let name = match call {
                RuntimeCall::NicRegister => register,
                RuntimeCall::NicRegisterDmabuf => by_file,
                _ => deregister,
            };
            (CallSetup::Region(pages, registrar, unit), format!("{name} on {adapter}"))
        };
        let made = Self { machine, call, bytes, setting, engine, pending: 0 };
        // Once, untimed: a call that is refused fails the first time.
        made.once()?;
        Ok(made)
    }

    fn time<T>(&self, call: impl FnOnce() -> CallResult<T>) -> CallResult<(Ns, T)> {
        let start = self.machine.clock.now();
        let given = call()?;
        Ok((self.machine.clock.now() - start, given))
    }

    /// One call, with its setup and teardown.
    fn once(&self) -> CallResult<Ns> {
        match &self.setting {
            CallSetup::Memory(place) => self.memory(*place),
            CallSetup::Pages(pages) => self.pages(pages.address()),
            CallSetup::Kernel(stream, kernel, memory) => {
                let bytes = RuntimeCall::KERNEL_BYTES;
                let launch = KernelLaunch { src: 0, dst: memory.address(), bytes };
                let (time, ()) = self.time(|| {
                    stream.launch(kernel, &launch)?;
                    if self.call == RuntimeCall::LaunchSync { stream.wait() } else { Ok(()) }
                })?;
                stream.wait().map(|()| time)
            }
            CallSetup::Stream(stream, _) if self.call == RuntimeCall::Sync => {
                self.time(|| stream.wait()).map(|(time, ())| time)
            }
            CallSetup::Stream(stream, event) => {
                let (time, ()) = self.time(|| stream.record(event))?;
                stream.wait().map(|()| time)
            }
            CallSetup::Gpu(gpu) => self.time(|| gpu.stream()).map(|(time, _stream)| time),
            CallSetup::Export(pages) => {
                let driver = self.machine.driver()?;
                let export = || driver.export_dmabuf(pages.address(), self.bytes);
                self.time(export).map(|(time, _file)| time)
            }
            CallSetup::Region(pages, registrar, unit) => {
                self.region(pages.address(), *registrar, *unit)
            }
        }
    }

    fn region(&self, address: u64, registrar: &dyn MemoryRegistrar, unit: Unit) -> CallResult<Ns> {
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

    fn memory(&self, place: Place) -> CallResult<Ns> {
        let driver = self.machine.driver()?;
        let (given, address) = self.time(|| driver.alloc(place, self.bytes))?;
        // Managed pages exist after the first access, and freeing them costs time only then.
        let touched = match (self.call, place.mem) {
            (RuntimeCall::Free, MemKind::Managed) => driver.fill(address, self.bytes, 0, false),
            _ => Ok(()),
        };
        let (taken, ()) = self.time(|| driver.free(address))?;
        touched?;
        Ok(if self.call == RuntimeCall::Alloc { given } else { taken })
    }

    fn pages(&self, address: u64) -> CallResult<Ns> {
        let driver = self.machine.driver()?;
        let (locked, ()) = self.time(|| driver.register(address, self.bytes))?;
        let (let_go, ()) = self.time(|| driver.unregister(address))?;
        Ok(if self.call == RuntimeCall::Register { locked } else { let_go })
    }
}

impl BoundLane for CallLane<'_> {
    fn issue(&mut self, _gate: &StartGate<'_>, reps: u64) -> CallResult<()> {
        self.pending = reps;
        Ok(())
    }

    fn wait(&mut self) -> CallResult<LaneSample> {
        let reps = std::mem::take(&mut self.pending);
        lane::on_this_thread(self.machine, reps, || {
            (0..reps).try_fold(Ns::ZERO, |elapsed, _| Ok(elapsed + self.once()?))
        })
    }

    fn timer(&self) -> TimerKind {
        TimerKind::Host
    }

    fn engine(&self) -> String {
        self.engine.clone()
    }

    fn most(&self) -> u64 {
        MAX_CALLS
    }

    fn spoil(&mut self) -> CallResult<()> {
        Ok(())
    }

    fn check(&self) -> CallResult<VerifyResult> {
        Ok(nothing_to_compare())
    }
}

#[cfg(test)]
mod tests {
    use pathline_flow::{MachineDesc, RuntimeEnv};
    use pathline_schema::Severity;
    use pathline_sim::{FaultOrder, SimOptions};

    use crate::bind::bind;
    use crate::pool::BufferPool;

    /// No memory is allocated for an adapter that is not there. An export needs memory and no adapter.
    #[test]
    fn a_call_of_a_missing_adapter_is_refused_before_memory_is_allocated() {
        let desc = MachineDesc::preset("hgx-h200").expect("a preset");
        for (case, severity) in [
            ("numa0.huge > numa0.reg by call@numa0[nic-register]", Severity::Unsupported),
            ("gpu0.vram > gpu0.reg by call@gpu0[nic-register-dmabuf]", Severity::Unsupported),
            ("gpu0.vram > gpu0.reg by call@gpu0[nic-deregister-dmabuf]", Severity::Unsupported),
            ("gpu0.vram > gpu0.reg by call@gpu0[export-dmabuf]", Severity::Exhausted),
        ] {
            let faults = vec![FaultOrder::fails("alloc", 1, Severity::Exhausted)];
            let options = SimOptions { faults, ..SimOptions::default() };
            let machine = pathline_sim::machine_with(&desc, RuntimeEnv::default(), &options);
            let machine = machine.expect("a machine");
            let planned = format!("{case} x 1MiB isolated").parse().expect("a case");
            let refused = bind(&mut BufferPool::new(&machine), &planned, 0, &[]).err();
            assert_eq!(refused.map(|error| error.severity), Some(severity), "{case}");
        }
    }
}
