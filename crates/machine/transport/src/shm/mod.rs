//! Transports between processes of one node by shared memory: the barrier, and pathline's own
//! copies.

mod barrier;
mod channel;
mod channel_ends;
mod core_choice;
mod offer;
mod peer_process;
mod port;
mod role;
mod segment;
mod spin_wait;
mod xpmem;

use std::time::Duration;

use pathline_hal::LocalMemory;
use pathline_schema::{Rank, Transport};

pub use barrier::{BarrierSegment, SharedBarrier};

use channel_ends::{KernelCopy, PeerMemory, carry};
use port::NodePort;
use segment::ShmSegment;

use crate::OpenedPort;
use pathline_host::files;

#[cfg(test)]
mod tests;

/// pathline's own copies through shared segments; `most` is the timeout for another rank.
pub fn shm_port(me: Rank, most: Duration) -> OpenedPort<'static> {
    let made = ShmSegment::create(1).map_err(|error| error.to_string())?;
    ShmSegment::open(&made.address()).map_err(|error| error.to_string())?;
    Ok(Box::new(NodePort::new(Transport::Shm, me, "pathline's own copies (memfd)".into(), most)))
}

/// One copy by the kernel: `process_vm_readv` and `process_vm_writev`.
///
/// Allows all processes of this user to access this one's memory, as a debugger could, where the
/// kernel's yama module requires that.
pub fn cma_port(me: Rank, most: Duration) -> OpenedPort<'static> {
    let (mut mine, mut theirs) = ([0_u8; 8], [1_u8; 8]);
    let span = |bytes: &mut [u8; 8]| LocalMemory { address: bytes.as_mut_ptr() as u64, bytes: 8 };
    // Always allowed on this process itself: a failure means that the call is forbidden or missing.
    let myself = PeerMemory { pid: std::process::id(), span: span(&mut theirs) };
    for call in [KernelCopy::Read, KernelCopy::Write] {
        carry(call, span(&mut mine), myself).map_err(|error| {
            format!(
                "{error} (a kernel without CONFIG_CROSS_MEMORY_ATTACH, or a container's seccomp)"
            )
        })?;
    }
    let scope = files::number("/proc/sys/kernel/yama/ptrace_scope").unwrap_or(0);
    if scope >= 2 {
        return Err(format!(
            "kernel.yama.ptrace_scope is {scope}, which keeps processes out of each other's \
             memory; set it to 0 or 1"
        ));
    }
    if scope == 1 {
        // SAFETY: the call takes numbers alone.
        let code = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
        if code != 0 {
            let error = std::io::Error::last_os_error();
            return Err(format!(
                "prctl(PR_SET_PTRACER): {error}; set kernel.yama.ptrace_scope to 0"
            ));
        }
    }
    let release = files::text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let library = format!("process_vm_readv and process_vm_writev of Linux {}", release.trim());
    Ok(Box::new(NodePort::new(Transport::Cma, me, library, most)))
}

/// One copy by pathline out of the sender's memory, attached by the kernel module xpmem.
pub fn xpmem_port(me: Rank, most: Duration) -> OpenedPort<'static> {
    let (calls, library) = xpmem::open()?;
    let mut port = NodePort::new(Transport::Xpmem, me, library, most);
    port.xpmem = Some(calls);
    Ok(Box::new(port))
}
