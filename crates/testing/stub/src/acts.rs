//! Blocks of memory, and the effects of operations on their bytes: in order, once the simulated
//! stream has passed them.

use std::collections::BTreeMap;

use pathline_hal::{kernel, pattern};
use pathline_schema::{KernelOp, MemKind, Place};

/// One operation on real bytes. Ranges lie in blocks or, for copies, in memory of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamAct {
    Copy {
        dst: u64,
        src: u64,
        bytes: u64,
    },
    Set {
        dst: u64,
        bytes: u64,
        value: u8,
    },
    Fill {
        dst: u64,
        bytes: u64,
        seed: u64,
    },
    Check {
        src: u64,
        bytes: u64,
        seed: u64,
        first: u64,
    },
    /// A pass of a kernel that stores a constant, or `b + 3 c`.
    Pass {
        op: KernelOp,
        word: u8,
        src: u64,
        dst: u64,
        bytes: u64,
    },
    Chase {
        src: u64,
        steps: u64,
        sink: u64,
    },
    /// The sum that a read kernel adds to 8 bytes.
    Sum {
        word: u8,
        src: u64,
        bytes: u64,
        sum: u64,
    },
    /// The expected sum over a pattern.
    PatternSum {
        whole: u64,
        bytes: u64,
        seed: u64,
        sum: u64,
    },
    /// Lowers a word to the offset of the first wrong element of what such a pass stored. For a constant
    /// `src` is the number of bytes in whole words.
    Compare {
        element: StoredElement,
        src: u64,
        dst: u64,
        bytes: u64,
        first: u64,
    },
    /// Copies of a list of ranges, which the kernel reads when the stream gets there.
    Blocks {
        list: u64,
        count: u64,
    },
    /// One wrong byte in the middle of bytes written before.
    Damage {
        dst: u64,
        bytes: u64,
    },
}

impl StreamAct {
    /// The source range's start.
    fn source(&self) -> Option<u64> {
        match *self {
            Self::Pass { op: KernelOp::Write, .. } => None,
            // It reads two ranges, of which the stored one decides.
            Self::Compare { dst, .. } => Some(dst),
            Self::Copy { src, .. }
            | Self::Check { src, .. }
            | Self::Pass { src, .. }
            | Self::Sum { src, .. }
            | Self::Chase { src, .. } => Some(src),
            Self::Blocks { list, .. } => Some(list),
            Self::Set { .. }
            | Self::PatternSum { .. }
            | Self::Fill { .. }
            | Self::Damage { .. } => None,
        }
    }
    /// The target address.
    fn target(&self) -> u64 {
        match *self {
            Self::Copy { dst, .. }
            | Self::Set { dst, .. }
            | Self::Fill { dst, .. }
            | Self::Pass { dst, .. }
            | Self::Damage { dst, .. } => dst,
            Self::Blocks { list, .. } => list,
            Self::Check { first, .. } | Self::Compare { first, .. } => first,
            Self::Chase { sink, .. } => sink,
            Self::Sum { sum, .. } | Self::PatternSum { sum, .. } => sum,
        }
    }
}

/// A state of a block: its number of writes, and the epoch since which only this library can have
/// written it.
type BlockStamp = (u64, u64);

/// The act that produced a block's contents, with the states of source and target after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockOrigin {
    act: StreamAct,
    states: [Option<BlockStamp>; 2],
}

/// A block of memory.
#[derive(Debug)]
pub(crate) struct NodeBlock {
    pub(crate) bytes: u64,
    /// Address of its twin in the simulated machine.
    pub(crate) twin: u64,
    /// The requested place.
    pub(crate) place: Place,
    /// Bytes mapped for it; 0 for the caller's memory.
    pub(crate) mapped: usize,
    /// Number of writes through this library.
    pub(crate) version: u64,
    /// Whether CPU threads of the caller can write it.
    pub(crate) mapped_for_cpu: bool,
    /// The act that last wrote all of it, if still valid.
    pub(crate) made: Option<BlockOrigin>,
}

impl NodeBlock {
    /// Whether only calls of this library can write it.
    pub(crate) fn is_private(&self) -> bool {
        self.is_device() && !self.mapped_for_cpu
    }
    /// Whether it is device memory.
    pub(crate) fn is_device(&self) -> bool {
        matches!(self.place.mem, MemKind::Vram | MemKind::VramFine)
    }
}

/// All blocks by address, and twins of pageable memory in copies.
#[derive(Debug, Default)]
pub(crate) struct NodeBlocks {
    pub(crate) by_start: BTreeMap<u64, NodeBlock>,
    /// A twin in each NUMA domain, with its size.
    pub(crate) pageable: BTreeMap<u32, (u64, u64)>,
}

impl NodeBlocks {
    /// The block that contains a whole range, with its start.
    pub(crate) fn find(&self, address: u64, bytes: u64) -> Option<(u64, &NodeBlock)> {
        let (&start, block) = self.by_start.range(..=address).next_back()?;
        let end = (address - start).checked_add(bytes)?;
        (end <= block.bytes && address - start < block.bytes).then_some((start, block))
    }
    pub(crate) fn find_mut(&mut self, address: u64) -> Option<&mut NodeBlock> {
        let (&start, block) = self.by_start.range_mut(..=address).next_back()?;
        (address - start < block.bytes).then_some(block)
    }
    /// Marks every block as possibly written by others.
    pub(crate) fn touch(&mut self) {
        for block in self.by_start.values_mut() {
            block.version += 1;
            block.made = None;
        }
    }
    /// Whether any block overlaps a range.
    pub(crate) fn touches(&self, address: u64, bytes: u64) -> bool {
        let before = self.by_start.range(..address.saturating_add(bytes)).next_back();
        before.is_some_and(|(&start, block)| start + block.bytes > address)
    }
}

/// The state of the block at an address; `None` outside blocks. The host may write its own memory
/// between two calls; an epoch is the time between such points.
fn stamp(blocks: &NodeBlocks, address: u64, epoch: u64) -> Option<BlockStamp> {
    let (_, block) = blocks.find(address, 1)?;
    Some((block.version, if block.is_private() { 0 } else { epoch }))
}

/// Performs an act, unless it would change nothing: a sample repeats one copy many times.
///
/// # Safety
/// Ranges in blocks were checked on enqueue, and no block is freed before its queue is empty. The
/// caller guarantees its own memory.
pub(crate) unsafe fn apply(blocks: &mut NodeBlocks, act: StreamAct, epoch: u64) {
    if let StreamAct::Blocks { list, count } = act {
        for nth in 0..count {
            // SAFETY: as this function's.
            let [dst, src, bytes] = unsafe { block_range(list, nth) };
            // A list that was overwritten before the kernel read it: hardware would fault, or copy something else.
            if [dst, src].into_iter().all(|at| blocks.find(at, bytes).is_some()) {
                // SAFETY: as this function's.
                unsafe { apply(blocks, StreamAct::Copy { dst, src, bytes }, epoch) };
            }
        }
        return;
    }
    let states = |blocks: &NodeBlocks| {
        let source = act.source().map(|at| stamp(blocks, at, epoch));
        [source.unwrap_or(Some((0, 0))), stamp(blocks, act.target(), epoch)]
    };
    let before = Some(BlockOrigin { act, states: states(blocks) });
    let start = |address| blocks.find(address, 1).map(|(start, _)| start);
    // Inside one block the source itself may have changed.
    let apart = act.source().is_none_or(|source| start(source) != start(act.target()));
    let known = before.as_ref().is_some_and(|m| m.states.iter().all(Option::is_some));
    if known && apart && blocks.find(act.target(), 1).is_some_and(|(_, b)| b.made == before) {
        return;
    }
    // SAFETY: as this function's.
    unsafe { act.run(blocks) };
    if let Some(block) = blocks.find_mut(act.target()) {
        block.version += 1;
    }
    let made = Some(BlockOrigin { act, states: states(blocks) });
    if let Some(block) = blocks.find_mut(act.target()) {
        block.made = made;
    }
}

impl StreamAct {
    /// # Safety
    /// As [`apply`].
    unsafe fn run(self, blocks: &NodeBlocks) {
        // SAFETY: the ranges are checked; copies may overlap.
        unsafe {
            match self {
                Self::Copy { dst, src, bytes } => {
                    std::ptr::copy(src as *const u8, dst as *mut u8, bytes as usize);
                }
                // Applied one by one.
                Self::Blocks { .. } => {}
                Self::Set { dst, bytes, value } => {
                    std::ptr::write_bytes(dst as *mut u8, value, bytes as usize);
                }
                Self::Fill { dst, bytes, seed } => fill(dst, bytes, seed),
                Self::Check { src, bytes, seed, first } => {
                    let first = first as *mut u64;
                    if let Some(wrong) = first_wrong(src, bytes, seed) {
                        first.write_unaligned(wrong.min(first.read_unaligned()));
                    }
                }
                Self::Pass { op: KernelOp::Write, word, dst, bytes, .. } => {
                    store(dst, bytes, word);
                }
                Self::Pass { word, src, dst, bytes, .. } => triad(src, dst, bytes, word),
                Self::Chase { src, steps, sink } => {
                    let mut at = src;
                    for _ in 0..steps {
                        // Where the chain leaves memory, hardware would fault.
                        if blocks.find(at, 8).is_none() {
                            break;
                        }
                        at = (at as *const u64).read_unaligned();
                    }
                    (sink as *mut u64).write_unaligned(at);
                }
                Self::Sum { word, src, bytes, sum } => {
                    let whole = bytes / u64::from(word) * u64::from(word);
                    let words =
                        (0..whole / 4).map(|n| ((src + n * 4) as *const u32).read_unaligned());
                    let rest = (whole..bytes).map(|at| u32::from(((src + at) as *const u8).read()));
                    let sum = sum as *mut u32;
                    sum.write_unaligned(words.chain(rest).fold(sum.read_unaligned(), |a, b| a ^ b));
                }
                Self::PatternSum { whole, bytes, seed, sum } => {
                    let word = |n: u64| (pattern::word(seed, n / 2) >> (n % 2 * 32)) as u32;
                    let rest = (whole..bytes).map(|at| u32::from(pattern::byte(seed, at)));
                    let sum = sum as *mut u32;
                    let all = (0..whole / 4).map(word).chain(rest);
                    sum.write_unaligned(all.fold(sum.read_unaligned(), |a, b| a ^ b));
                }
                Self::Compare { element, src, dst, bytes, first } => {
                    let first = first as *mut u64;
                    if let Some(wrong) = first_not_stored(element, src, dst, bytes) {
                        first.write_unaligned(wrong.min(first.read_unaligned()));
                    }
                }
                Self::Damage { dst, bytes } => {
                    let at = (dst + bytes / 2) as *mut u8;
                    at.write(!at.read());
                }
            }
        }
    }
}

/// Destination, source and bytes of an entry of a list of ranges.
///
/// # Safety
/// The list has that entry.
pub(crate) unsafe fn block_range(list: u64, nth: u64) -> [u64; 3] {
    // SAFETY: the caller's promise.
    unsafe { (list as *const [u64; 3]).add(nth as usize).read_unaligned() }
}

/// # Safety
/// `bytes` at `dst` may be written.
unsafe fn fill(dst: u64, bytes: u64, seed: u64) {
    // SAFETY: all offsets are below `bytes`.
    unsafe {
        for nth in 0..bytes / 8 {
            ((dst + nth * 8) as *mut u64).write_unaligned(pattern::word(seed, nth));
        }
        for at in bytes / 8 * 8..bytes {
            ((dst + at) as *mut u8).write(pattern::byte(seed, at));
        }
    }
}

/// # Safety
/// `bytes` at `src` may be read.
unsafe fn first_wrong(src: u64, bytes: u64, seed: u64) -> Option<u64> {
    // SAFETY: all offsets are below `bytes`.
    unsafe {
        let word = |nth: u64| ((src + nth * 8) as *const u64).read_unaligned();
        let byte = |at: u64| ((src + at) as *const u8).read();
        let differs = (0..bytes / 8).find(|&nth| word(nth) != pattern::word(seed, nth));
        let from = differs.map_or(bytes / 8 * 8, |nth| nth * 8);
        (from..bytes).find(|&at| byte(at) != pattern::byte(seed, at))
    }
}

/// The data of a write kernel: a 32-bit constant over whole elements, one byte over the rest.
///
/// # Safety
/// `bytes` at `dst` may be written.
unsafe fn store(dst: u64, bytes: u64, word: u8) {
    const WORD: [u8; 4] = kernel::WRITTEN_WORD.to_le_bytes();
    const PIECE: u64 = 4096;
    let piece = WORD.repeat(PIECE as usize / 4);
    let whole = bytes / u64::from(word) * u64::from(word);
    // SAFETY: all offsets are below `bytes`; an element is a multiple of 4, and so is a piece.
    unsafe {
        for at in (0..whole).step_by(PIECE as usize) {
            let length = PIECE.min(whole - at) as usize;
            std::ptr::copy_nonoverlapping(piece.as_ptr(), (dst + at) as *mut u8, length);
        }
        for at in whole..bytes {
            ((dst + at) as *mut u8).write(kernel::WRITTEN_BYTE);
        }
    }
}

/// `dst = b + 3 c` with `b` at `src` and `c` behind it: in `float` for elements of 4 bytes, in
/// `double` for longer ones, byte by byte if the payload is no multiple of the element.
///
/// # Safety
/// `2 * bytes` at `src` may be read and `bytes` at `dst` written.
unsafe fn triad(src: u64, dst: u64, bytes: u64, word: u8) {
    macro_rules! over {
        ($kind:ty, $sum:expr) => {
            for at in (0..bytes).step_by(size_of::<$kind>()) {
                // SAFETY: offsets are below `bytes`, which is a multiple of the type's size.
                unsafe {
                    let b = ((src + at) as *const $kind).read_unaligned();
                    let c = ((src + bytes + at) as *const $kind).read_unaligned();
                    ((dst + at) as *mut $kind).write_unaligned($sum(b, c));
                }
            }
        };
    }
    match word {
        _ if !bytes.is_multiple_of(u64::from(word)) => {
            over!(u8, |b: u8, c: u8| b.wrapping_add(c.wrapping_mul(3)));
        }
        4 => over!(f32, |b: f32, c: f32| b + 3.0 * c),
        _ => over!(f64, |b: f64, c: f64| b + 3.0 * c),
    }
}

/// The offset of the first element at `dst` that is not what a write stores, `src` bytes of it in whole
/// words, or a triad of the arrays at `src`. A NaN is as good as another.
///
/// # Safety
/// `bytes` at `dst` may be read, and for a triad `2 * bytes` at `src`.
unsafe fn first_not_stored(element: StoredElement, src: u64, dst: u64, bytes: u64) -> Option<u64> {
    let byte = |at: u64| {
        // SAFETY: offsets are in the caller's ranges.
        unsafe { (at as *const u8).read() }
    };
    macro_rules! differs {
        ($kind:ty) => {
            (0..bytes / size_of::<$kind>() as u64).map(|n| n * size_of::<$kind>() as u64).find(
                |at| {
                    let load = |at: u64| {
                        // SAFETY: an element that begins below `bytes` lies in the caller's ranges.
                        unsafe { (at as *const $kind).read_unaligned() }
                    };
                    let [z, b, c] = [dst + at, src + at, src + bytes + at].map(load);
                    let right: $kind = b + 3.0 * c;
                    z != right && !(z.is_nan() && right.is_nan())
                },
            )
        };
    }
    match element {
        StoredElement::Constant => (0..bytes).find(|&at| {
            let word = kernel::WRITTEN_WORD.to_le_bytes()[(at % 4) as usize];
            byte(dst + at) != if at < src { word } else { kernel::WRITTEN_BYTE }
        }),
        StoredElement::Triad { word: 1 } => (0..bytes).find(|at| {
            byte(dst + at) != byte(src + at).wrapping_add(byte(src + bytes + at).wrapping_mul(3))
        }),
        StoredElement::Triad { word: 4 } => differs!(f32),
        StoredElement::Triad { .. } => differs!(f64),
    }
}

/// What a comparison of stored bytes looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredElement {
    /// The constant of a write.
    Constant,
    /// `b + 3 c` in bytes, `float` or `double`.
    Triad { word: u8 },
}
