//! Ranges of files into the memory of GPUs.

use std::mem::MaybeUninit;

use pathline_gpu::PointerKind;

use crate::copy_error::{CopyError, CopyStatus};
use crate::node::CopyNode;
use crate::staged_copy::StagedFailure;
use crate::staged_file::{FileFault, GRAIN, StagedFile};
use crate::staging_buffers::BUFFER;
use crate::staging_job::{HostEnd, StagedEnds, StagedOrder, StagedWay};
use crate::staging_pool::StagedFault;

impl CopyNode {
    /// Reads a range of a file into GPU memory, by as many threads as may copy. Waits; in the order of a stream it
    /// returns when the file has been read.
    ///
    /// # Errors
    /// It is no file or has no such range, its bytes cannot be read, `dst` is no memory of a GPU, or the stream is
    /// captured. Some of the bytes may have arrived.
    ///
    /// # Safety
    /// `dst` is live memory that nothing else writes meanwhile, and the stream is live.
    pub unsafe fn load(
        &self,
        (file, offset): (i32, u64),
        dst: u64,
        bytes: usize,
        stream: Option<usize>,
    ) -> Result<(), CopyError> {
        check_file(file, offset, bytes as u64)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        self.in_context(|| unsafe { self.load_range((file, offset), dst, bytes, stream) })
    }

    unsafe fn load_range(
        &self,
        (file, offset): (i32, u64),
        dst: u64,
        bytes: usize,
        stream: Option<usize>,
    ) -> Result<(), CopyError> {
        let last = dst.checked_add(bytes as u64 - 1);
        let kinds = last.map(|last| [dst, last].map(|at| self.calls().pointer(at).kind));
        let device = match kinds {
            Some([PointerKind::Device(a), PointerKind::Device(b)]) if a == b => a,
            _ => {
                let text = format!("{bytes} bytes at {dst:#x} are no memory of one GPU");
                return Err(CopyError::invalid(text));
            }
        };
        let order = stream.map_or(StagedOrder::Waits, StagedOrder::Stream);
        match order {
            // SAFETY: the caller's promise.
            StagedOrder::Stream(stream) if !unsafe { self.wait_for_stream(stream) } => {
                let text = "the stream is being captured, or cannot be waited for";
                return Err(CopyError::invalid(text));
            }
            StagedOrder::Stream(_) => {}
            StagedOrder::Waits => self.wait_default_stream(device)?,
        }
        let ends = StagedEnds { way: StagedWay::In, host: 0, device_memory: dst, bytes, device };
        if self.copy_threads > 0 {
            let host = HostEnd::File(StagedFile::new(file, offset));
            // SAFETY: the caller's promise.
            match unsafe { self.run_staged(host, &ends, order, self.copy_threads) } {
                Ok(()) => {
                    self.shared.counters.add_staged(bytes, false);
                    return Ok(());
                }
                Err(StagedFailure::Order(error)) => return Err(error),
                Err(StagedFailure::Copy(StagedFault::File(fault))) => return Err(fault.into()),
                Err(StagedFailure::Copy(StagedFault::Copy)) => {}
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.load_plainly(&StagedFile::new(file, offset), &ends, stream) }
    }

    /// Calls in a context of the runtime, which a thread that loads may not have.
    fn in_context<T>(&self, body: impl FnOnce() -> T) -> T {
        let device = self.finder.devices.first();
        let entered = device.and_then(|&device| self.calls().enter(device).ok());
        let outcome = body();
        entered.into_iter().for_each(|entered| self.calls().leave(entered));
        outcome
    }

    /// The same on this thread, through pageable memory.
    unsafe fn load_plainly(
        &self,
        file: &StagedFile,
        ends: &StagedEnds,
        stream: Option<usize>,
    ) -> Result<(), CopyError> {
        let mut room = vec![MaybeUninit::<u8>::uninit(); BUFFER + 3 * GRAIN];
        let buffer = (room.as_mut_ptr() as u64).next_multiple_of(GRAIN as u64);
        for offset in (0..ends.bytes).step_by(BUFFER) {
            let bytes = BUFFER.min(ends.bytes - offset);
            // SAFETY: the buffer has two grains more, and the runtime has read it when its copy returns.
            unsafe {
                let from = file.read(buffer, offset, bytes)?;
                self.copy_plainly(ends.device_memory + offset as u64, from, bytes, stream)?;
            }
        }
        Ok(())
    }
}

impl CopyNode {
    /// Allocates memory of a GPU, by its number of the runtime.
    ///
    /// # Errors
    /// There is no such GPU, or its memory is short.
    pub fn device_alloc(&self, device: i32, bytes: usize) -> Result<u64, CopyError> {
        let thing = || format!("{bytes} bytes of GPU {device}");
        let refused = |status| CopyError::refused(self.calls(), &thing(), status);
        let entered = self.calls().enter(device).map_err(refused)?;
        let allocated = self.calls().memory_allocate(bytes.max(1));
        self.calls().leave(entered);
        allocated.map_err(|status| {
            let CopyError { text, .. } = refused(status);
            CopyError::new(CopyStatus::Memory, text)
        })
    }

    /// Frees memory of [`Self::device_alloc`].
    ///
    /// # Errors
    /// It is no memory of a GPU.
    ///
    /// # Safety
    /// Nothing uses the memory any more.
    pub unsafe fn device_free(&self, address: u64) -> Result<(), CopyError> {
        let kind = self.in_context(|| self.calls().pointer(address).kind);
        let PointerKind::Device(device) = kind else {
            return Err(CopyError::invalid(format!("{address:#x} is no memory of a GPU")));
        };
        let refused = |status| CopyError::refused(self.calls(), "memory", status);
        let entered = self.calls().enter(device).map_err(refused)?;
        // SAFETY: the caller's promise.
        unsafe { self.calls().memory_free(address) };
        self.calls().leave(entered);
        Ok(())
    }
}

impl From<FileFault> for CopyError {
    fn from(FileFault { offset, code }: FileFault) -> Self {
        let reason = match code {
            Some(code) => std::io::Error::from_raw_os_error(code).to_string(),
            None => "it ends there, and was longer before".to_owned(),
        };
        Self::new(CopyStatus::File, format!("the file at offset {offset}: {reason}"))
    }
}

/// Whether a file has such a range.
fn check_file(file: i32, offset: u64, bytes: u64) -> Result<(), CopyError> {
    // SAFETY: an all-zero structure is valid, and the kernel fills it.
    let about = unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        (libc::fstat(file, &raw mut about) == 0).then_some(about)
    };
    let Some(about) = about else {
        let error = std::io::Error::last_os_error();
        return Err(CopyError::new(CopyStatus::File, format!("file descriptor {file}: {error}")));
    };
    match about.st_mode & libc::S_IFMT {
        libc::S_IFREG => {}
        libc::S_IFBLK => return Ok(()),
        _ => return Err(CopyError::invalid(format!("file descriptor {file} is no file"))),
    }
    let size = u64::try_from(about.st_size).unwrap_or(0);
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(()),
        _ => Err(CopyError::invalid(format!(
            "the file has {size} bytes, and {bytes} from offset {offset} on are asked for"
        ))),
    }
}
