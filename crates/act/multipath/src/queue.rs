//! The chunks of a copy that no path has taken yet.

use std::ops::Range;

/// Least piece that is worth its calls at the end of a copy: 256 KiB pass a link of 55 GB/s in 4.8 us.
pub(crate) const MIN_PIECE: u64 = 256 << 10;
/// Pieces begin and end at multiples of this, but for the last one.
pub(crate) const GRAIN: u64 = 64 << 10;

/// Pieces of its part of the rest that a path is to take, so that all paths end together.
const PIECES_OF_REST: f64 = 2.0;

/// What a path takes at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PieceRule {
    /// Bytes.
    pub(crate) largest: u64,
    /// Bytes, but for the last piece and where the largest is smaller.
    pub(crate) least: u64,
    /// Part of the rest that is this path's, above 0.
    pub(crate) share: f64,
}

impl PieceRule {
    /// One of some paths that are alike.
    pub(crate) fn even(largest: u64, paths: u64) -> Self {
        Self { largest, least: MIN_PIECE, share: 1.0 / paths.max(1) as f64 }
    }
}

/// Ranges of a copy: large pieces leave at the front, chunks at the back.
#[derive(Debug, Clone)]
pub(crate) struct ChunkQueue {
    front: u64,
    back: u64,
    /// Ranges whose path was given up.
    returned: Vec<Range<u64>>,
}

impl ChunkQueue {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { front: 0, back: bytes, returned: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left() == 0
    }

    fn left(&self) -> u64 {
        self.back - self.front
            + self.returned.iter().map(|range| range.end - range.start).sum::<u64>()
    }

    fn piece(&self, rule: PieceRule) -> u64 {
        let fair = (self.left() as f64 * rule.share / PIECES_OF_REST) as u64 / GRAIN * GRAIN;
        fair.clamp(rule.least.min(rule.largest), rule.largest)
    }

    /// The next piece from the front.
    pub(crate) fn take_front(&mut self, rule: PieceRule) -> Option<Range<u64>> {
        let piece = self.piece(rule);
        if let Some(range) = self.take_returned(piece) {
            return Some(range);
        }
        let start = self.front;
        self.front = self.back.min(start + piece);
        (start < self.front).then_some(start..self.front)
    }

    /// The next piece from the back.
    pub(crate) fn take_back(&mut self, rule: PieceRule) -> Option<Range<u64>> {
        let piece = self.piece(rule);
        if let Some(range) = self.take_returned(piece) {
            return Some(range);
        }
        let end = self.back;
        // The first piece from the back ends where the copy does, the others at a multiple of the grain.
        let start = end.saturating_sub(piece).next_multiple_of(GRAIN);
        let start = if start < end { start } else { end.saturating_sub(piece) };
        self.back = start.max(self.front);
        (self.back < end).then_some(self.back..end)
    }

    fn take_returned(&mut self, piece: u64) -> Option<Range<u64>> {
        let range = self.returned.pop()?;
        let end = range.end.min(range.start + piece);
        if end < range.end {
            self.returned.push(end..range.end);
        }
        Some(range.start..end)
    }

    /// Takes back what a path did not copy.
    pub(crate) fn give_back(&mut self, range: Range<u64>) {
        self.returned.push(range);
    }
}

/// Largest next piece of a path. The first one is half as large: of two pieces that share a link one then
/// ends while the other is half way, and the link stays busy until the host has enqueued the next.
pub(crate) fn staggered(largest: u64, taken: u64) -> u64 {
    if taken == 0 { largest / 2 } else { largest }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes pieces by turns until nothing is left; returns them in order of address.
    fn drain(bytes: u64, paths: u64, largest: u64, turns: &[bool]) -> Vec<Range<u64>> {
        let mut queue = ChunkQueue::new(bytes);
        let rule = PieceRule::even(largest, paths);
        let mut taken = Vec::new();
        for &front in turns.iter().cycle() {
            let piece = if front { queue.take_front(rule) } else { queue.take_back(rule) };
            let Some(piece) = piece else { break };
            // Every ninth piece comes back once.
            if taken.len() % 9 == 8 {
                queue.give_back(piece);
                taken.push(0..0);
            } else {
                taken.push(piece);
            }
        }
        assert!(queue.is_empty());
        taken.retain(|range| range.start < range.end);
        taken.sort_by_key(|range| range.start);
        taken
    }

    #[test]
    fn every_byte_leaves_once() {
        for bytes in [1, 4095, 65_536, 65_537, 1 << 20, (1 << 30) + 12_345] {
            for turns in [&[true][..], &[false], &[true, false], &[false, false, true]] {
                for (paths, largest) in [(1, 1 << 20), (2, 4 << 20), (8, 16 << 20), (3, 65_536)] {
                    let taken = drain(bytes, paths, largest, turns);
                    let mut at = 0;
                    for range in &taken {
                        assert_eq!(range.start, at, "{bytes} B, {turns:?}");
                        assert!(range.end - range.start <= largest);
                        at = range.end;
                    }
                    assert_eq!(at, bytes);
                }
            }
        }
    }

    #[test]
    fn pieces_shrink_towards_the_end() {
        let mut queue = ChunkQueue::new(64 << 20);
        let mut sizes = Vec::new();
        while let Some(range) = queue.take_front(PieceRule::even(8 << 20, 2)) {
            sizes.push((range.end - range.start) >> 10);
        }
        // A quarter of what is left, at most 8 MiB, at least 256 KiB.
        assert_eq!(sizes[..3], [8192, 8192, 8192]);
        assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
        // The last piece is what is left.
        assert!(sizes.iter().rev().skip(1).all(|&kib| kib >= 256), "{sizes:?}");
        assert_eq!(sizes.iter().sum::<u64>(), 64 << 10);
    }

    #[test]
    fn a_path_takes_half_of_its_part_of_the_rest() {
        let mut queue = ChunkQueue::new(64 << 20);
        let rule = |share| PieceRule { largest: 16 << 20, least: 2 << 20, share };
        // 0.25 / 2 of 64 MiB; 0.125 / 2 of 56 MiB; 0.01 / 2 of 52.5 MiB is less than the least.
        for (share, kib) in [(0.25, 8 << 10), (0.125, 3584), (0.01, 2 << 10), (1.0, 16 << 10)] {
            let piece = queue.take_back(rule(share)).unwrap();
            assert_eq!((piece.end - piece.start) >> 10, kib, "{share}");
        }
    }
}
