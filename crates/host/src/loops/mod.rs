//! The loops that CPU threads run. Each is written in the instructions that it is named after, so
//! that no compiler turns one into another.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod plain;
#[cfg(target_arch = "x86_64")]
mod x86;

use pathline_schema::{CpuHow, CpuOp, CpuWork};

/// The byte that a write loop stores everywhere.
pub const WRITTEN: u8 = 0xa5;
/// The `s` of the triad `a = b + s * c`.
pub const SCALE: f64 = 3.0;

/// What a loop passes over.
#[derive(Debug, Clone, Copy)]
pub struct LoopSpan {
    /// Destination of a write, copy or triad.
    pub dst: *mut u8,
    /// Source of a read or copy, first source of a triad.
    pub src: *const u8,
    /// Second source of a triad.
    pub other: *const u8,
    /// Bytes.
    pub len: usize,
}

impl LoopSpan {
    /// What follows the first `bytes` bytes.
    fn skip(self, bytes: usize) -> Self {
        Self {
            dst: self.dst.wrapping_add(bytes),
            src: self.src.wrapping_add(bytes),
            other: self.other.wrapping_add(bytes),
            len: self.len - bytes,
        }
    }
}

/// The compiler takes all memory for changed here, so that it drops or merges no pass.
fn memory_barrier() {
    // SAFETY: no instruction.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
}

/// The part of a loop that runs over whole blocks. The last two arguments are a number of bytes, a
/// multiple of the block, and the number of passes over them.
#[derive(Clone, Copy)]
pub enum LoopBody {
    /// Gives the exclusive or of all words that it loaded, in all passes.
    Read(unsafe fn(*const u8, usize, u64) -> u64),
    /// Stores to a destination.
    Write(unsafe fn(*mut u8, usize, u64)),
    /// Takes destination and source.
    Copy(unsafe fn(*mut u8, *const u8, usize, u64)),
    /// Takes destination, first and second source.
    Triad(unsafe fn(*mut u8, *const u8, *const u8, usize, u64)),
}

/// A loop: a body over whole blocks, and bytes before and after them one by one.
#[derive(Clone, Copy)]
pub struct CpuLoop {
    body: LoopBody,
    /// Bytes of one turn of the body; a multiple of 8, or 1. These three are powers of two.
    block: usize,
    /// What the address of the destination must be a multiple of.
    align: usize,
    /// What all addresses must be a multiple of, or all bytes go one by one.
    words: usize,
}

impl CpuLoop {
    const fn new(body: LoopBody, block: usize, align: usize) -> Self {
        assert!(block.is_power_of_two() && align.is_power_of_two());
        Self { body, block, align, words: 1 }
    }

    /// Passes over the span `reps` times. A read gives the exclusive or of what its passes give, each
    /// that of the span's 8-byte words, the last filled up with zeros: 0 for an even number of passes.
    /// All others give 0.
    ///
    /// The body repeats whole blocks itself: a call for each pass of 4 KiB cost 4 ns of 26.
    ///
    /// # Safety
    /// The span must be readable at its sources and writable at its destination as far as the
    /// operation uses them, without overlap, and the processor must have the loop's instructions.
    pub unsafe fn passes(&self, span: LoopSpan, reps: u64) -> u64 {
        let (head, blocks) = self.cut(span);
        if blocks == span.len {
            // SAFETY: all of the span, in whole blocks from an aligned destination.
            return unsafe { self.blocks(span, blocks, reps) };
        }
        let mut sum = 0;
        for _ in 0..reps {
            memory_barrier();
            // SAFETY: the head, the blocks and what follows them make up the span. `blocks` is a multiple
            // of the block, and the destination after the head one of the alignment.
            unsafe {
                sum ^= self.bytes(span, head);
                sum ^= self.blocks(span.skip(head), blocks, 1);
                sum ^= self.bytes(span.skip(head + blocks), span.len - head - blocks);
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
        // SAFETY: the caller's.
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

    /// A pass over the first `len` bytes of a span without the body.
    ///
    /// # Safety
    /// As for `passes`; `len` is within the span.
    unsafe fn bytes(&self, span: LoopSpan, len: usize) -> u64 {
        let LoopSpan { dst, src, other, .. } = span;
        if len == 0 {
            return 0;
        }
        // SAFETY: the caller's.
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

    /// How many bytes go before the blocks, and how many in blocks. Divisions by what the compiler
    /// does not know would take three times 15 ns on a Xeon, and blocks are powers of two.
    fn cut(&self, span: LoopSpan) -> (usize, usize) {
        let reads = matches!(self.body, LoopBody::Read(_));
        let head = if reads { 0 } else { (span.dst as usize).wrapping_neg() & (self.align - 1) };
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

/// The loop for a piece of work, if there is one and this processor has the instructions. Chase
/// and touch are not among them.
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

/// Whether this processor has the instructions.
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

/// The choices with which an operation can be done here, for an error message.
pub fn choices(op: CpuOp) -> String {
    let words = CpuHow::ALL.iter().filter(|&&how| match op {
        CpuOp::Chase | CpuOp::Touch => how == CpuHow::Plain,
        _ => find(CpuWork { op, how }).is_some(),
    });
    words.map(|how| how.word()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
