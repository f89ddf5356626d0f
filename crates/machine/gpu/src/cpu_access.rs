//! Memory of the runtime in the hands of CPU threads.

use std::sync::atomic::{Ordering, fence};

use pathline_hal::{CallError, CallResult, CpuAccess};
use pathline_host::memory::ChaseChain;
use pathline_schema::{Bytes, MemKind, Unit};

use super::driver::GpuDriver;

const CALL: &str = "cpu_access";

impl GpuDriver {
    /// Lends a buffer of this driver to the threads of the host, where the runtime maps it for them.
    pub(crate) fn lend_to_cpu(&self, address: u64, bytes: Bytes) -> CallResult<CpuAccess> {
        let block = self.own(CALL, address, bytes)?;
        let thing = || format!("{bytes} at {}", block.place);
        let (access, numa) = match (block.place.unit, block.place.mem) {
            (Unit::Numa(numa), _) => (CpuAccess::InPlace, numa),
            (Unit::Gpu(gpu), mem) => {
                let device = self.device(CALL, gpu)?;
                let access = match mem {
                    MemKind::Managed if device.direct_managed => CpuAccess::InPlace,
                    MemKind::Managed if device.concurrent => CpuAccess::Migrates,
                    MemKind::Managed => {
                        let reason =
                            "host and device cannot access managed memory at the same time";
                        return Err(CallError::unsupported(CALL, thing(), reason));
                    }
                    _ if device.large_bar => CpuAccess::InPlace,
                    _ => {
                        let (reason, way_out) = self.about().no_mapping;
                        return Err(CallError::unsupported(CALL, thing(), reason).or_try(way_out));
                    }
                };
                (access, device.info.numa.unwrap_or_default())
            }
            (Unit::Store(_), _) => {
                return Err(CallError::unsupported(CALL, thing(), "files are no memory"));
            }
        };
        if !self.host.is_lent(address) {
            self.host.lend(address, block.bytes, numa)?;
            let chain = block.chain.map(|(address, bytes)| ChaseChain { address, bytes });
            self.host.note_chain(address, chain);
        }
        Ok(access)
    }

    /// Stores to the flush word of a GPU, where it has one: stores over PCIe may wait in a cache of the GPU's
    /// host interface, which its own loads do not look into.
    pub(crate) fn flush_for(&self, gpu: u32) -> CallResult<()> {
        let word = self.device("flush_cpu_stores", gpu)?.flush_word as *mut u32;
        // Write-combining buffers of this core are emptied first; those of the team were when it was reaped.
        fence(Ordering::SeqCst);
        if !word.is_null() {
            // SAFETY: the runtime gave this address of a register that it mapped for such stores, and keeps it
            // mapped as long as it is loaded.
            unsafe { word.write_volatile(1) };
        }
        Ok(())
    }
}
