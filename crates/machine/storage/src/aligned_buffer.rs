//! Memory on a page's boundary for I/O past the engine, and patterns at any offset of a file.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use pathline_host::pattern;

/// Direct I/O wants memory on the device's logical block; pages are larger.
const ALIGN: usize = 4096;
/// Bytes that are written or read at a time.
pub(super) const CHUNK: usize = 8 << 20;

/// Bytes on a page's boundary.
pub(super) struct AlignedBuffer {
    at: NonNull<u8>,
    layout: Layout,
}

impl AlignedBuffer {
    /// A buffer of `bytes`, clamped to 1 to [`CHUNK`].
    pub(super) fn new(bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(CHUNK).clamp(1, CHUNK);
        let layout = Layout::from_size_align(bytes.next_multiple_of(ALIGN), ALIGN)
            .unwrap_or_else(|_| Layout::new::<[u8; ALIGN]>());
        // SAFETY: the layout has at least a page.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) });
        Self { at: at.unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: allocated with that size and zeroed, and borrowed as this is.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, once.
        unsafe { dealloc(self.at.as_ptr(), self.layout) };
    }
}

/// Writes bytes `from..to` of a pattern to their places in a file; `from` is a multiple of 8.
pub(super) fn write(file: &File, from: u64, to: u64, seed: u64) -> io::Result<()> {
    let mut room = AlignedBuffer::new(to.saturating_sub(from));
    let (mut at, bytes) = (from, room.bytes());
    while at < to {
        let len = (to - at).min(bytes.len() as u64) as usize;
        let part = bytes.get_mut(..len).unwrap_or_default();
        pattern::fill_part(part, at, seed);
        file.write_all_at(part, at)?;
        at += len as u64;
    }
    Ok(())
}

/// The offset in a file of the first byte of `from..to` that is not the pattern's; `from` is a
/// multiple of 8. The file's end counts as a difference.
pub(super) fn find_wrong(file: &File, from: u64, to: u64, seed: u64) -> io::Result<Option<u64>> {
    let mut room = AlignedBuffer::new(to.saturating_sub(from));
    let (mut at, bytes) = (from, room.bytes());
    while at < to {
        let len = (to - at).min(bytes.len() as u64) as usize;
        let part = bytes.get_mut(..len).unwrap_or_default();
        match file.read_exact_at(part, at) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(Some(file.metadata()?.len()));
            }
            Err(error) => return Err(error),
        }
        if let Some(wrong) = pattern::check_part(part, at, seed) {
            return Ok(Some(wrong));
        }
        at += len as u64;
    }
    Ok(None)
}

/// Reads a file's first bytes, so that they are in the page cache.
pub(super) fn bring_in(file: &File, to: u64) -> io::Result<()> {
    let mut room = AlignedBuffer::new(to);
    let (mut at, bytes) = (0, room.bytes());
    while at < to {
        let len = (to - at).min(bytes.len() as u64) as usize;
        match file.read_at(bytes.get_mut(..len).unwrap_or_default(), at)? {
            0 => return Ok(()),
            n => at += n as u64,
        }
    }
    Ok(())
}
