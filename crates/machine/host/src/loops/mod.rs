//! The loops of CPU threads. Each uses the instructions in its name, so that no compiler turns one
//! loop into another.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod plain;
#[cfg(target_arch = "x86_64")]
mod x86;

use pathline_schema::{CpuHow, CpuOp, CpuWork};

/// The byte that a write loop stores.
pub const WRITE_BYTE: u8 = 0xa5;
/// The factor `s` of the triad `a = b + s * c`.
pub const SCALE: f64 = 3.0;

/// The memory of a loop.
#[derive(Debug, Clone, Copy)]
pub struct LoopSpan {
    /// Destination of a write, copy or triad.
    pub dst: *mut u8,
    /// Source of a read or copy, first source of a triad.
    pub src: *const u8,
    /// Second source of a triad.
    pub other: *const u8,
    /// Size of each, in bytes.
    pub len: usize,
}

impl LoopSpan {
    /// The span after the first `bytes` bytes.
    fn skip(self, bytes: usize) -> Self {
        Self {
            dst: self.dst.wrapping_add(bytes),
            src: self.src.wrapping_add(bytes),
            other: self.other.wrapping_add(bytes),
            len: self.len - bytes,
        }
    }
}

/// Makes the compiler assume that all memory has changed, so that it drops or merges no pass.
fn memory_barrier() {
    // SAFETY: no instruction.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
}

/// The part of a loop for whole blocks. The last two arguments are a number of bytes, a multiple of
/// the block, and the number of passes over them.
#[derive(Clone, Copy)]
pub enum LoopBody {
    /// Reads; returns the wrapping sum of all loaded 8-byte words, over all passes.
    Read(unsafe fn(*const u8, usize, u64) -> u64),
    /// Writes to a destination.
    Write(unsafe fn(*mut u8, usize, u64)),
    /// Copies; arguments: destination, source.
    Copy(unsafe fn(*mut u8, *const u8, usize, u64)),
    /// Triad; arguments: destination, first and second source.
    Triad(unsafe fn(*mut u8, *const u8, *const u8, usize, u64)),
}

/// A loop: a body for whole blocks, and bytewise code before and after them.
#[derive(Clone, Copy)]
pub struct CpuLoop {
    body: LoopBody,
    /// Bytes per block; a multiple of 8, or 1. This and the next two are powers of two.
    block: usize,
    /// Required alignment of the destination, in bytes.
    align: usize,
    /// Required alignment of all addresses, in bytes; otherwise all bytes are processed one by one.
    words: usize,
}

impl CpuLoop {
    const fn new(body: LoopBody, block: usize, align: usize) -> Self {
        assert!(block.is_power_of_two() && align.is_power_of_two());
        Self { body, block, align, words: 1 }
    }

    /// Whether it only loads.
    pub(crate) fn reads(&self) -> bool {
        matches!(self.body, LoopBody::Read(_))
    }

    /// Runs `reps` passes over the span. A read returns the wrapping sum of the span's 8-byte words, the
    /// last padded by zeros, over all passes: an exclusive or of an even number of passes would be 0
    /// whatever they loaded. Other loops return 0.
    ///
    /// The body itself repeats whole blocks: a call for each pass of 4 KiB cost 4 ns of 26.
    ///
    /// # Safety
    /// The span must be readable at its sources and writable at its destination as far as the
    /// operation uses them, without overlap, and the processor must have the loop's instructions.
    pub unsafe fn passes(&self, span: LoopSpan, reps: u64) -> u64 {
        let (head, blocks) = self.head_and_blocks(span);
        if blocks == span.len {
            // SAFETY: the whole span, in whole blocks from an aligned destination.
            return unsafe { self.blocks(span, blocks, reps) };
        }
        let mut sum = 0_u64;
        for _ in 0..reps {
            memory_barrier();
            // SAFETY: head, blocks and tail make up the span. `blocks` is a multiple of the block,
            // and the destination after the head is aligned.
            unsafe {
                sum = sum.wrapping_add(self.bytes(span, head));
                sum = sum.wrapping_add(self.blocks(span.skip(head), blocks, 1));
                let rest = self.bytes(span.skip(head + blocks), span.len - head - blocks);
                sum = sum.wrapping_add(rest);
            }
        }
        sum
    }

    /// Passes of the body over the first `len` bytes of a span.
    ///
    /// # Safety
    /// As for `passes`; `len` is a multiple of the block and within the span.
    unsafe fn blocks(&self, span: LoopSpan, len: usize, reps: u64) -> u64 {
        let LoopSpan { dst, src, other, .. } = span;
        if len == 0 || reps == 0 {
            return 0;
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.body {
                LoopBody::Read(body) => return body(src, len, reps),
                LoopBody::Write(body) => body(dst, len, reps),
                LoopBody::Copy(body) => body(dst, src, len, reps),
                LoopBody::Triad(body) => body(dst, src, other, len, reps),
            }
        }
        0
    }

    /// Processes the first `len` bytes of a span one by one.
    ///
    /// # Safety
    /// As for `passes`; `len` is within the span.
    unsafe fn bytes(&self, span: LoopSpan, len: usize) -> u64 {
        let LoopSpan { dst, src, other, .. } = span;
        if len == 0 {
            return 0;
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.body {
                LoopBody::Read(_) => return plain::read_rest(src, len),
                LoopBody::Write(_) => plain::write_rest(dst, len),
                LoopBody::Copy(_) => plain::copy_rest(dst, src, len),
                LoopBody::Triad(_) => plain::triad_rest(dst, src, other, len),
            }
        }
        0
    }

    /// Number of bytes before the blocks, and in blocks. Blocks are powers of two, since three
    /// divisions by values unknown to the compiler would take 15 ns each on a Xeon.
    fn head_and_blocks(&self, span: LoopSpan) -> (usize, usize) {
        let head =
            if self.reads() { 0 } else { (span.dst as usize).wrapping_neg() & (self.align - 1) };
        let whole_doubles = !matches!(self.body, LoopBody::Triad(_)) || head.is_multiple_of(8);
        let (src, other) = (span.src as usize + head, span.other as usize + head);
        let on_words = match self.body {
            LoopBody::Read(_) | LoopBody::Copy(_) => src & (self.words - 1) == 0,
            LoopBody::Write(_) => true,
            LoopBody::Triad(_) => (src | other) & (self.words - 1) == 0,
        };
        if head > span.len || !whole_doubles || !on_words {
            return (0, 0);
        }
        (head, (span.len - head) & !(self.block - 1))
    }
}

/// The loop for a kind of work, if it exists and this processor has the instructions. `None` for
/// chase and touch.
pub fn find(work: CpuWork) -> Option<CpuLoop> {
    if !available(work.how) {
        return None;
    }
    plain::find(work).or_else(|| {
        #[cfg(target_arch = "x86_64")]
        return x86::find(work);
        #[cfg(target_arch = "aarch64")]
        return aarch64::find(work);
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        return None;
    })
}

/// Whether this processor supports the instructions.
pub fn available(how: CpuHow) -> bool {
    match how {
        CpuHow::Plain | CpuHow::Memcpy => true,
        #[cfg(target_arch = "x86_64")]
        _ => x86::available(how),
        #[cfg(target_arch = "aarch64")]
        _ => aarch64::available(how),
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        _ => false,
    }
}

/// The supported instruction variants of an operation, for an error message.
pub fn supported_variants(op: CpuOp) -> String {
    let words = CpuHow::ALL.iter().filter(|&&how| match op {
        CpuOp::Chase | CpuOp::Touch => how == CpuHow::Plain,
        _ => find(CpuWork { op, how }).is_some(),
    });
    words.map(|how| how.word()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
