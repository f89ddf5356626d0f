//! A segment through which messages of one size go from one process to another.
//!
//! Each flag that one side stores and the other polls has its own cache line.

use std::sync::atomic::AtomicU64;

use pathline_hal::{CallError, CallResult};

use super::segment::{LINE, ShmSegment};

/// Pieces that the receiver has copied out of the ring.
const TAKEN: usize = 0;
/// Windows that the receiver has answered.
const ANSWERED: usize = LINE;
/// Messages ready for the side that copies.
const READY: usize = 2 * LINE;
/// Non-zero once one side has given up.
const BROKEN: usize = 3 * LINE;
/// Where the ring begins.
const RING: usize = 4 * LINE;

/// Bytes that a flag leaves in its cache line: a message up to this size arrives with it, as one
/// line. Such lines are two apart, since processors fetch pairs of lines: 151 ns for 8 B, not 158,
/// and 51 ns, not 59, for each of 64 in flight.
const INLINE: usize = 56;
/// Up to this size a piece follows its flag directly; larger pieces begin on pages.
const NEAR: usize = 2048;

/// The layout of a ring. Both sides compute it from the message size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingLayout {
    /// Bytes of a piece.
    pub(super) piece: usize,
    /// Pieces in the ring; a power of two, since a division costs 15 ns.
    pub(super) depth: usize,
    flag_stride: usize,
    data: usize,
    data_stride: usize,
}

impl RingLayout {
    /// For messages of `bytes` that are copied in and out, in pieces of at most `piece`, a power of
    /// two.
    pub(super) fn of(bytes: u64, piece: usize) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(1);
        let piece = bytes.min(piece);
        let depth = (RING_BYTES / piece.next_power_of_two()).clamp(MIN_PIECES, MOST);
        if piece <= INLINE {
            return Self { piece, depth, flag_stride: LINE, data: RING + 8, data_stride: LINE };
        }
        if piece <= NEAR {
            let stride = 64 + piece.next_multiple_of(64);
            let (flag_stride, data_stride) = (stride, stride);
            return Self { piece, depth, flag_stride, data: RING + 64, data_stride };
        }
        let data = (RING + depth * LINE).next_multiple_of(4096);
        let data_stride = piece.next_multiple_of(4096);
        Self { piece, depth, flag_stride: LINE, data, data_stride }
    }

    /// For messages that do not go through the segment.
    pub(super) const NONE: Self =
        Self { piece: 0, depth: 1, flag_stride: 0, data: RING, data_stride: 0 };

    fn len(&self) -> usize {
        // An inline piece ends with its line.
        self.data + self.depth * self.data_stride
    }
}

/// Bytes of a piece of a larger message: the receiver copies one piece out while the sender copies
/// the next one in. On a Xeon with two cores behind one L3 (Cascade Lake, 2.5 GHz), memcpy on both
/// sides, round trips in GB/s of one direction, rings of 256 KiB:
///
/// | message | 2 KiB | 4 KiB | 8 KiB | 16 KiB | 32 KiB | 64 KiB |
/// |---|---|---|---|---|---|---|
/// | 16 KiB | 5.7 | 6.3 | 6.3 | 4.6 | | |
/// | 64 KiB | 7.9 | 9.4 | 9.9 | 8.1 | 7.6 | 6.5 |
/// | 1 MiB | 7.7 | 9.3 | 9.9 | 9.2 | 9.7 | 9.8 |
/// | 16 MiB | | 5.9 | 6.2 | 5.5 | 5.6 | 5.2 |
///
/// Smaller pieces cost more flags; with larger ones the copies of the first and last piece overlap
/// with nothing for longer.
pub(super) const PIECE: usize = 8 << 10;
/// The same for loops over four pages at a time; a piece is two such turns.
pub(super) const PAGED_PIECE: usize = 32 << 10;
/// Bytes of a ring. Of 2 to 64 pieces of 8 KiB, on that machine: 6.8, 9.2, 9.7, 9.9, 9.9, 10.0 GB/s
/// at 1 MiB and 5.1, 6.2, 6.0, 6.3, 6.2, 6.0 at 16 MiB; four times in flight, 7.7, 11.3, 10.8,
/// 11.2, 10.9, 10.3 and 5.3, 6.1, 6.5, 6.5, 6.7, 6.0.
const RING_BYTES: usize = 256 << 10;
/// Minimum number of pieces of a ring.
const MIN_PIECES: usize = 4;
const MOST: usize = 64;

/// One direction between two processes.
#[derive(Debug)]
pub(super) struct ShmChannel {
    segment: ShmSegment,
    pub(super) shape: RingLayout,
}

impl ShmChannel {
    /// Creates the segment. The receiver does so, so its pages are near the reader.
    pub(super) fn create(shape: RingLayout) -> CallResult<Self> {
        Ok(Self { segment: ShmSegment::create(shape.len())?, shape })
    }

    /// Opens the segment of the other side.
    pub(super) fn open(address: &str, shape: RingLayout) -> CallResult<Self> {
        let segment = ShmSegment::open(address)?;
        if segment.len() < shape.len() {
            let reason = format!("{} B where {} B were expected", segment.len(), shape.len());
            return Err(CallError::unsupported("open", address, reason)
                .or_try("start all ranks from the same program"));
        }
        Ok(Self { segment, shape })
    }

    pub(super) fn address(&self) -> String {
        self.segment.address()
    }

    pub(super) fn taken(&self) -> &AtomicU64 {
        self.segment.long(TAKEN)
    }
    pub(super) fn answered(&self) -> &AtomicU64 {
        self.segment.long(ANSWERED)
    }
    pub(super) fn ready(&self) -> &AtomicU64 {
        self.segment.long(READY)
    }
    pub(super) fn broken(&self) -> &AtomicU64 {
        self.segment.long(BROKEN)
    }

    /// The flag of a piece's slot; it holds the number of the piece in the slot, plus 1.
    pub(super) fn flag(&self, piece: u64) -> &AtomicU64 {
        self.segment.long(RING + self.slot(piece) * self.shape.flag_stride)
    }

    /// Start of the data of that slot, `shape.piece` bytes.
    pub(super) fn data(&self, piece: u64) -> *mut u8 {
        let offset = self.shape.data + self.slot(piece) * self.shape.data_stride;
        // All slots lie inside: `create` and `open` checked the length.
        self.segment.at(offset, self.shape.piece).unwrap_or(std::ptr::null_mut())
    }

    fn slot(&self, piece: u64) -> usize {
        piece as usize & (self.shape.depth - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_every_shape_lie_apart_and_inside() {
        for bytes in [1, 8, 56, 57, 64, 100, 2048, 2049, 4096, 65_536, 1 << 20, (1 << 30) + 1] {
            let shape = RingLayout::of(bytes, PIECE);
            assert!(shape.depth.is_power_of_two());
            let channel = ShmChannel::create(shape).unwrap();
            let base = channel.taken().as_ptr() as usize;
            let mut ends: Vec<(usize, usize)> = vec![(base, base + RING)];
            for piece in 0..shape.depth as u64 {
                let flag = channel.flag(piece).as_ptr() as usize;
                let data = channel.data(piece) as usize;
                assert!(data != 0, "{bytes}");
                ends.extend([(flag, flag + 8), (data, data + shape.piece)]);
                // No other process polls a line of the data, except where data arrives with its
                // flag.
                assert!(data.is_multiple_of(64) || (data == flag + 8 && shape.piece <= 56));
                assert_eq!(channel.data(piece + shape.depth as u64) as usize, data);
            }
            ends.sort_unstable();
            assert!(ends.windows(2).all(|w| w[0].1 <= w[1].0), "{bytes}: {ends:?}");
            assert!(ends.last().unwrap().1 <= base + channel.segment.len());
        }
    }

    #[test]
    fn a_segment_that_is_too_small_is_refused() {
        let small = ShmChannel::create(RingLayout::NONE).unwrap();
        assert!(ShmChannel::open(&small.address(), RingLayout::NONE).is_ok());
        let error = ShmChannel::open(&small.address(), RingLayout::of(1 << 20, PIECE)).unwrap_err();
        assert!(error.reason.contains("were expected"), "{error}");
    }
}
