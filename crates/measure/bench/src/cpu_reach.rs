//! Memory of a GPU's runtime under CPU threads.

use std::rc::Rc;

use pathline_hal::{CallResult, CpuAccess, GpuStream, Machine, MachineBuffer};
use pathline_schema::{Flow, MemKind, MigrateHow, Place};

/// Whether the GPU's runtime allocates memory of that kind.
fn is_of_runtime(place: &Place) -> bool {
    !matches!(
        place.mem.before_registration(),
        MemKind::Paged | MemKind::Huge | MemKind::Reg | MemKind::File
    )
}

/// What a lane of CPU threads does around its samples for memory of a GPU.
pub(crate) struct CpuReach<'m> {
    machine: &'m Machine,
    /// Managed memory that a sample moves to the host, with its home and a stream of that GPU.
    moved: Vec<(GpuStream<'m>, Rc<MachineBuffer<'m>>, Place)>,
    /// The GPU whose memory the threads write.
    written: Option<u32>,
}

impl<'m> CpuReach<'m> {
    /// Opens the buffers at the ends of a flow to CPU threads.
    ///
    /// # Errors
    /// The runtime does not map such memory for the CPU.
    pub(crate) fn new(
        machine: &'m Machine,
        flow: &Flow,
        ends: [Option<&Rc<MachineBuffer<'m>>>; 2],
    ) -> CallResult<Self> {
        let mut moved = Vec::new();
        for buffer in ends.into_iter().flatten().filter(|buffer| is_of_runtime(&buffer.place())) {
            let home = buffer.place();
            let access = machine.driver()?.cpu_access(buffer.address(), buffer.bytes())?;
            let gpu = home.unit.gpu().filter(|_| access == CpuAccess::Migrates);
            if let Some(gpu) = gpu {
                moved.push((machine.gpu(gpu)?.stream()?, Rc::clone(buffer), home));
            }
        }
        let written = ends[1].is_some().then_some(flow.dst.unit.gpu()).flatten();
        Ok(Self { machine, moved, written })
    }

    /// Whether a sample changes where the memory lies, so that a second operation differs from the first.
    pub(crate) fn moves_pages(&self) -> bool {
        !self.moved.is_empty()
    }

    /// Brings moved pages back before a sample.
    pub(crate) fn prepare(&self) -> CallResult<()> {
        self.moved.iter().try_for_each(|(stream, buffer, home)| {
            stream.migrate(buffer, *home, MigrateHow::Prefetch)?;
            stream.wait()
        })
    }

    /// Makes visible to the GPU what the threads stored, before it compares.
    pub(crate) fn flush(&self) -> CallResult<()> {
        match self.written {
            Some(gpu) => self.machine.driver()?.flush_cpu_stores(gpu),
            None => Ok(()),
        }
    }
}
