//! Linux's native asynchronous I/O, by the system calls that libaio wraps.

use std::io;
use std::os::fd::AsRawFd;

use super::engine::{BlockEngine, FinishedIo, WorkerBlocks};

const PREAD: u16 = 0;
const PWRITE: u16 = 1;

/// `struct iocb` of `linux/aio_abi.h`, with the two fields that swap places on big-endian machines
/// where little-endian ones have them.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct AioControl {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct AioEvent {
    data: u64,
    control: u64,
    result: i64,
    second: i64,
}

/// A context of the kernel.
#[derive(Debug)]
pub(super) struct AioEngine {
    context: usize,
    /// Open as long as I/O may be in flight.
    _blocks: WorkerBlocks,
    /// One a slot.
    controls: Box<[AioControl]>,
    /// Addresses of controls that were noted and not yet submitted.
    noted: Vec<u64>,
    /// I/Os that were handed over and have not ended.
    flying: u32,
    events: Box<[AioEvent]>,
}

impl AioEngine {
    pub(super) fn new(blocks: WorkerBlocks) -> io::Result<Self> {
        let slots = blocks.slots as usize;
        let mut context = 0usize;
        // SAFETY: the kernel stores one word.
        let code = unsafe { libc::syscall(libc::SYS_io_setup, slots, &raw mut context) };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = blocks.file.as_raw_fd().cast_unsigned();
        let control = |slot: u32| AioControl {
            data: slot.into(),
            fd,
            buffer: blocks.address(slot),
            bytes: blocks.block.into(),
            ..AioControl::default()
        };
        let controls = (0..blocks.slots).map(control).collect();
        let events = vec![AioEvent::default(); slots].into_boxed_slice();
        let noted = Vec::with_capacity(slots);
        Ok(Self { context, controls, _blocks: blocks, noted, flying: 0, events })
    }

    fn submit(&mut self) -> io::Result<()> {
        let mut from = 0;
        while let Some(rest) = self.noted.get(from..).filter(|rest| !rest.is_empty()) {
            // SAFETY: the pointers are to controls of slots, which live as long as this; the blocks
            // they name lie in memory that the round holds until all have ended.
            let code = unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, rest.len(), rest.as_ptr())
            };
            match code {
                1.. => {
                    from += code as usize;
                    self.flying += code as u32;
                }
                _ => {
                    let error = io::Error::last_os_error();
                    match error.raw_os_error() {
                        Some(libc::EINTR | libc::EAGAIN) => {}
                        _ => {
                            self.noted.drain(..from);
                            return Err(error);
                        }
                    }
                }
            }
        }
        self.noted.clear();
        Ok(())
    }
}

impl BlockEngine for AioEngine {
    fn call(&self) -> &'static str {
        "io_submit + io_getevents"
    }
    fn describe(&self) -> String {
        "io_submit, io_getevents".to_owned()
    }
    #[inline]
    fn push(&mut self, slot: u32, write: bool, offset: u64) {
        if let Some(control) = self.controls.get_mut(slot as usize) {
            control.opcode = if write { PWRITE } else { PREAD };
            control.offset = offset.cast_signed();
            self.noted.push(&raw const *control as u64);
        }
    }
    fn enter(&mut self, wait: u32, ended: &mut Vec<FinishedIo>) -> io::Result<()> {
        if let Err(error) = self.submit() {
            // A bad argument is that of the first which was not taken: it ends here, the others of
            // the batch with it, as if the device had refused them.
            let code = -error.raw_os_error().unwrap_or(libc::EIO);
            for address in self.noted.drain(..) {
                let base = self.controls.as_ptr() as u64;
                ended.push((((address - base) / size_of::<AioControl>() as u64) as u32, code));
            }
            return Ok(());
        }
        self.take(wait, ended)
    }

    fn settle(&mut self) -> u32 {
        self.noted.clear();
        let mut gone = Vec::new();
        // A context that refuses the call is waited for by the one that ends it.
        while self.flying > 0 && self.take(1, &mut gone).is_ok() {
            gone.clear();
        }
        if self.flying > 0 {
            self.destroy();
        }
        0
    }
}

impl AioEngine {
    /// Reaps completed I/Os, at least `least`.
    fn take(&mut self, least: u32, ended: &mut Vec<FinishedIo>) -> io::Result<()> {
        loop {
            // SAFETY: the kernel stores at most as many events as there is room for.
            let code = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    libc::c_long::from(least),
                    self.events.len(),
                    self.events.as_mut_ptr(),
                    std::ptr::null::<libc::timespec>(),
                )
            };
            if code >= 0 {
                self.flying = self.flying.saturating_sub(code as u32);
                let got = self.events.iter().take(code as usize);
                ended.extend(got.map(|event| (event.data as u32, event.result as i32)));
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINTR) {
                return Err(error);
            }
        }
    }

    /// Ends the context. The call waits for what is in flight; later calls are refused.
    fn destroy(&mut self) {
        let context = std::mem::take(&mut self.context);
        if context != 0 {
            // SAFETY: made by io_setup, destroyed once.
            unsafe { libc::syscall(libc::SYS_io_destroy, context) };
        }
        self.flying = 0;
    }
}

impl Drop for AioEngine {
    fn drop(&mut self) {
        self.destroy();
    }
}
