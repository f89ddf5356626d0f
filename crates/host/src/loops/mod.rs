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

/// The part of a loop that runs over whole blocks. The last argument is a number of bytes, a
/// multiple of the block.
#[derive(Clone, Copy)]
pub enum LoopBody {
    /// Gives the exclusive or of all words.
    Read(unsafe fn(*const u8, usize) -> u64),
    /// Stores to a destination.
    Write(unsafe fn(*mut u8, usize)),
    /// Takes destination and source.
    Copy(unsafe fn(*mut u8, *const u8, usize)),
    /// Takes destination, first and second source.
    Triad(unsafe fn(*mut u8, *const u8, *const u8, usize)),
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

    /// One pass. A read gives the exclusive or of the span's 8-byte words, the last filled up with
    /// zeros; all others give 0.
    ///
    /// # Safety
    /// The span must be readable at its sources and writable at its destination as far as the
    /// operation uses them, without overlap, and the processor must have the loop's instructions.
    pub unsafe fn pass(&self, span: LoopSpan) -> u64 {
        let (head, blocks) = self.cut(span);
        let LoopSpan { dst, src, other, len } = span;
        let rest = len - head - blocks;
        let after = head + blocks;
        // SAFETY: head + blocks + rest is len: all offsets lie inside the span, which the caller
        // vouches for. `blocks` is a multiple of the block and dst + head of the alignment.
        unsafe {
            match self.body {
                LoopBody::Read(body) => {
                    body(src, blocks) ^ plain::read_rest(src.add(blocks), len - blocks)
                }
                LoopBody::Write(body) => {
                    plain::write_rest(dst, head);
                    body(dst.add(head), blocks);
                    plain::write_rest(dst.add(after), rest);
                    0
                }
                LoopBody::Copy(body) => {
                    plain::copy_rest(dst, src, head);
                    body(dst.add(head), src.add(head), blocks);
                    plain::copy_rest(dst.add(after), src.add(after), rest);
                    0
                }
                LoopBody::Triad(body) => {
                    plain::triad_rest(dst, src, other, head);
                    body(dst.add(head), src.add(head), other.add(head), blocks);
                    plain::triad_rest(dst.add(after), src.add(after), other.add(after), rest);
                    0
                }
            }
        }
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
