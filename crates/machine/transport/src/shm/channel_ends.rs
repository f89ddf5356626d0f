//! The two ends of a channel: the non-blocking steps of a message. The caller waits when no end can
//! proceed.

use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Release};

use pathline_hal::{CallError, CallResult, LocalMemory};
use pathline_schema::Severity;

use super::channel::ShmChannel;
use super::xpmem::XpmemAttachment;
use pathline_host::loops::{self, CpuLoop};

/// The result of an attempt to proceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndProgress {
    /// The other side must act first.
    Blocked,
    /// Part of the step is done.
    Moved,
    /// The step is complete.
    Done,
}

/// Memory of another process.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerMemory {
    pub(super) pid: u32,
    pub(super) span: LocalMemory,
}

/// How the sender moves bytes.
pub(super) enum SendMethod {
    /// Into the ring.
    Ring(CpuLoop),
    /// Does not copy: the receiver fetches the bytes.
    Post,
    /// By `process_vm_writev`.
    Write(PeerMemory),
}

/// How the receiver moves bytes.
pub(super) enum RecvMethod {
    /// Out of the ring.
    Ring(CpuLoop),
    /// Does not copy: the sender writes the bytes.
    Wait,
    /// By `process_vm_readv`.
    Read(PeerMemory),
    /// Out of the sender's memory, attached to this process.
    Attached(CpuLoop, XpmemAttachment),
}

/// The sender's end.
pub(super) struct SendEnd {
    pub(super) channel: Rc<ShmChannel>,
    pub(super) how: SendMethod,
    pub(super) from: LocalMemory,
    /// Bytes of this message already sent.
    at: usize,
    /// Pieces or messages already sent.
    gone: u64,
    /// Pieces that the receiver had taken at the last check.
    taken: u64,
    /// Replies received.
    answers: u64,
}

impl SendEnd {
    pub(super) fn new(channel: Rc<ShmChannel>, how: SendMethod, from: LocalMemory) -> Self {
        Self { channel, how, from, at: 0, gone: 0, taken: 0, answers: 0 }
    }

    /// Proceeds with sending a message.
    pub(super) fn give(&mut self) -> CallResult<EndProgress> {
        match self.how {
            SendMethod::Ring(copy) => return Ok(self.give_piece(copy)),
            SendMethod::Post => {}
            SendMethod::Write(to) => carry(KernelCopy::Write, self.from, to)?,
        }
        self.gone += 1;
        self.channel.ready().store(self.gone, Release);
        Ok(EndProgress::Done)
    }

    fn give_piece(&mut self, copy: CpuLoop) -> EndProgress {
        let shape = self.channel.shape;
        if self.gone - self.taken >= shape.depth as u64 {
            self.taken = self.channel.taken().load(Acquire);
            if self.gone - self.taken >= shape.depth as u64 {
                return EndProgress::Blocked;
            }
        }
        let whole = self.from.bytes as usize;
        let len = shape.piece.min(whole - self.at);
        let src = (self.from.address as *const u8).wrapping_add(self.at);
        let dst = self.channel.data(self.gone);
        // SAFETY: the source is the caller's for as long as the exchange is bound, which `bind` was
        // promised; the slot lies in the segment and is this side's until its flag is set. They
        // do not overlap: the segment is nobody's buffer. `bind` found the loop for this processor.
        // It ends with a fence where its stores stream, so that the flag comes after the bytes.
        unsafe { copy.passes(loops::LoopSpan { dst, src, other: src, len }, 1) };
        self.channel.flag(self.gone).store(self.gone + 1, Release);
        self.gone += 1;
        self.at += len;
        if self.at < whole {
            return EndProgress::Moved;
        }
        self.at = 0;
        EndProgress::Done
    }

    /// Checks for the reply to a window.
    pub(super) fn poll_reply(&mut self) -> EndProgress {
        if self.channel.answered().load(Acquire) <= self.answers {
            return EndProgress::Blocked;
        }
        self.answers += 1;
        EndProgress::Done
    }
}

/// The receiver's end.
pub(super) struct RecvEnd {
    pub(super) channel: Rc<ShmChannel>,
    pub(super) how: RecvMethod,
    pub(super) into: LocalMemory,
    at: usize,
    /// Pieces or messages already received.
    taken: u64,
    answers: u64,
    /// Accumulates checksums, so that the compiler keeps every load.
    sink: u64,
}

impl RecvEnd {
    pub(super) fn new(channel: Rc<ShmChannel>, how: RecvMethod, into: LocalMemory) -> Self {
        Self { channel, how, into, at: 0, taken: 0, answers: 0, sink: 0 }
    }

    /// Proceeds with receiving a message.
    pub(super) fn take(&mut self) -> CallResult<EndProgress> {
        if let RecvMethod::Ring(copy) = self.how {
            return Ok(self.take_piece(copy));
        }
        if self.channel.ready().load(Acquire) <= self.taken {
            return Ok(EndProgress::Blocked);
        }
        match &self.how {
            RecvMethod::Ring(_) | RecvMethod::Wait => {}
            RecvMethod::Read(from) => carry(KernelCopy::Read, self.into, *from)?,
            RecvMethod::Attached(copy, attached) => {
                let (src, dst) = (attached.at(), self.into.address as *mut u8);
                let len = self.into.bytes as usize;
                // SAFETY: the destination is the caller's while the exchange is bound; the source
                // is attached with that length. `bind` found the loop for this processor.
                unsafe { copy.passes(loops::LoopSpan { dst, src, other: src, len }, 1) };
            }
        }
        self.taken += 1;
        Ok(EndProgress::Done)
    }

    fn take_piece(&mut self, copy: CpuLoop) -> EndProgress {
        if self.channel.flag(self.taken).load(Acquire) != self.taken + 1 {
            return EndProgress::Blocked;
        }
        let whole = self.into.bytes as usize;
        let len = self.channel.shape.piece.min(whole - self.at);
        let dst = (self.into.address as *mut u8).wrapping_add(self.at);
        let src = self.channel.data(self.taken);
        // SAFETY: the destination is the caller's while the exchange is bound; the slot lies in the
        // segment and belongs to this side until it announces that it has taken the piece. They do
        // not overlap, and `bind` found the loop for this processor.
        unsafe { copy.passes(loops::LoopSpan { dst, src, other: src, len }, 1) };
        self.taken += 1;
        self.channel.taken().store(self.taken, Release);
        self.at += len;
        if self.at < whole {
            return EndProgress::Moved;
        }
        self.at = 0;
        EndProgress::Done
    }

    /// Loads every byte of the message.
    pub(super) fn load(&mut self, read: CpuLoop) {
        let src = self.into.address as *const u8;
        let len = self.into.bytes as usize;
        let span = loops::LoopSpan { dst: self.into.address as *mut u8, src, other: src, len };
        // SAFETY: the span is the caller's while the exchange is bound, and is only read; `bind`
        // found the loop for this processor.
        self.sink ^= std::hint::black_box(unsafe { read.passes(span, 1) });
    }

    /// Sends the reply to a window.
    pub(super) fn answer(&mut self) {
        self.answers += 1;
        self.channel.answered().store(self.answers, Release);
    }
}

/// A copy by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KernelCopy {
    Read,
    Write,
}

impl KernelCopy {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Read => "process_vm_readv",
            Self::Write => "process_vm_writev",
        }
    }
}

/// Copies between memory of this process and the same number of bytes of another's.
pub(super) fn carry(call: KernelCopy, mine: LocalMemory, other: PeerMemory) -> CallResult<()> {
    let bytes = mine.bytes.min(other.span.bytes);
    let mut done = 0;
    while done < bytes {
        let piece = |address: u64| libc::iovec {
            iov_base: (address + done) as *mut libc::c_void,
            iov_len: (bytes - done) as usize,
        };
        let (local, remote) = (piece(mine.address), piece(other.span.address));
        let pid = other.pid as libc::pid_t;
        // SAFETY: the local range is the caller's while the exchange is bound. The remote one is
        // another process's and cannot hurt this one: what is not there fails the call.
        let moved = unsafe {
            match call {
                KernelCopy::Read => {
                    libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0)
                }
                KernelCopy::Write => {
                    libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0)
                }
            }
        };
        match u64::try_from(moved) {
            Ok(moved) if moved > 0 => done += moved,
            Ok(_) => return Err(refused(call, other, 0, "it copied nothing".into())),
            Err(_) => {
                let error = std::io::Error::last_os_error();
                let code = error.raw_os_error().unwrap_or(0);
                if code != libc::EINTR {
                    return Err(refused(call, other, code, error.to_string()));
                }
            }
        }
    }
    Ok(())
}

fn refused(call: KernelCopy, other: PeerMemory, code: i32, reason: String) -> CallError {
    let thing = format!("{} B of process {}", other.span.bytes, other.pid);
    let (severity, way_out) = match code {
        libc::ESRCH => (Severity::Sticky, "that process has ended: see what ended it"),
        libc::EPERM => (
            Severity::Unsupported,
            "run all ranks as one user in one container, with kernel.yama.ptrace_scope at most 1",
        ),
        _ => (Severity::Unsupported, "use shm instead"),
    };
    CallError::new(severity, call.name(), thing, reason).with_code(code.into()).or_try(way_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(bytes: &mut [u8]) -> LocalMemory {
        LocalMemory { address: bytes.as_mut_ptr() as u64, bytes: bytes.len() as u64 }
    }

    #[test]
    fn the_kernel_copies_in_both_directions_and_errors_give_the_reason() {
        let (mut source, mut target) = (vec![7_u8; 10_000], vec![0_u8; 10_000]);
        let me = PeerMemory { pid: std::process::id(), span: span(&mut source) };
        carry(KernelCopy::Read, span(&mut target), me).unwrap();
        assert_eq!(target, [7; 10_000]);
        let mut other = vec![1_u8; 10_000];
        carry(KernelCopy::Write, span(&mut other), me).unwrap();
        assert_eq!(source, [1; 10_000]);
        // Nothing is mapped at address 4096.
        let nowhere = LocalMemory { address: 4096, bytes: 8 };
        let to = PeerMemory { span: nowhere, ..me };
        let error = carry(KernelCopy::Read, span(&mut target), to).unwrap_err();
        assert_eq!(error.code, i64::from(libc::EFAULT), "{error}");
        // Process numbers end below 2^22.
        let nobody = PeerMemory { pid: 1 << 23, ..me };
        let error = carry(KernelCopy::Read, span(&mut target), nobody).unwrap_err();
        assert_eq!((error.code, error.severity), (i64::from(libc::ESRCH), Severity::Sticky));
    }
}
