//! The parts of a copy whose paths are fixed before it starts.

use std::collections::VecDeque;
use std::ops::Range;

use crate::queue::GRAIN;

/// Time that a relay's first piece takes beyond its bytes, ns: its second leg starts when the first has ended.
const SECOND_START: f64 = 10e3;
/// The first and the last pieces of a relay are this part of a chunk: its second leg begins early, and little is
/// left for it when the first leg has ended.
const END_PIECES: u64 = 4;

/// The bytes of each path such that all end together. `rates` are bytes per ns.
fn divide_evenly(
    bytes: u64,
    rates: &[f64],
    extra: impl Fn(usize, f64) -> f64,
    least: f64,
) -> Vec<u64> {
    let mut parts = vec![0; rates.len()];
    // A relay for which the time is too short leaves the others with more: at most one round for each.
    let mut takes_part = vec![true; rates.len()];
    for _ in rates {
        let paths = || rates.iter().enumerate().filter(|(nth, _)| takes_part[*nth]);
        let rate: f64 = paths().map(|(_, rate)| rate).sum();
        let late: f64 = paths().map(|(nth, rate)| extra(nth, *rate)).sum();
        let time = (bytes as f64 + late) / rate.max(f64::MIN_POSITIVE);
        let too_slow =
            paths().find(|(nth, rate)| *nth > 0 && **rate * time < extra(*nth, **rate) + least);
        if let Some((nth, _)) = too_slow {
            takes_part[nth] = false;
            continue;
        }
        for (nth, rate) in paths().filter(|(nth, _)| *nth > 0) {
            parts[nth] = (rate * time - extra(nth, *rate)) as u64 / GRAIN * GRAIN;
        }
        break;
    }
    let relayed: u64 = parts.iter().sum();
    if let Some(direct) = parts.first_mut() {
        *direct = bytes.saturating_sub(relayed);
    }
    parts
}

/// The bytes of the direct path, then of each relay. A relay takes one piece longer than its rate says.
pub(crate) fn divide_by_rate(bytes: u64, rates: &[f64], chunk: u64) -> Vec<u64> {
    let last_piece = (chunk / END_PIECES) as f64;
    let extra =
        |nth: usize, rate: f64| if nth == 0 { 0.0 } else { SECOND_START * rate + last_piece };
    divide_evenly(bytes, rates, extra, last_piece)
}

/// The bytes that each of some alike paths takes.
pub(crate) fn divide_alike(bytes: u64, rates: &[f64]) -> Vec<u64> {
    divide_evenly(bytes, rates, |_, _| 0.0, 0.0)
}

/// The pieces of a relay's part, small ones first and last.
pub(crate) fn ramped_pieces(part: Range<u64>, chunk: u64) -> VecDeque<Range<u64>> {
    let least = (chunk / END_PIECES).next_multiple_of(GRAIN);
    let (mut at, mut largest, mut pieces) = (part.start, least, VecDeque::new());
    while at < part.end {
        let left = part.end - at;
        let half = (left / 2).next_multiple_of(GRAIN).max(least);
        let piece = half.min(largest).min(left);
        pieces.push_back(at..at + piece);
        at += piece;
        largest = (largest * 2).min(chunk);
    }
    pieces
}

/// Pieces of one size.
pub(crate) fn even_pieces(part: Range<u64>, piece: u64) -> VecDeque<Range<u64>> {
    let piece = piece.max(GRAIN).next_multiple_of(GRAIN);
    let starts = part.clone().step_by(piece as usize);
    starts.map(|at| at..(at + piece).min(part.end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_together() {
        // 50 B/ns directly, 40 and 10 over relays, chunks of 2 MiB: the extra bytes of the relays are 10 us x 40 +
        // 512 KiB = 924,288 and 10 us x 10 + 512 KiB = 624,288. (256 MiB + 1,548,576) / 100 = 2,699,840 ns:
        // 40 x that - 924,288 = 107,069,319, down to 64 KiB 107,020,288; 10 x - 624,288 = 26,374,113: 26,345,472.
        let parts = divide_by_rate(256 << 20, &[50.0, 40.0, 10.0], 2 << 20);
        assert_eq!(parts[1..], [107_020_288, 26_345_472]);
        assert_eq!(parts.iter().sum::<u64>(), 256 << 20);
    }

    #[test]
    fn a_relay_for_which_the_time_is_too_short_takes_nothing() {
        // 1 MiB in 19 us: a relay of 5 B/ns needs 10 us and 512 KiB, 105 us more.
        assert_eq!(divide_by_rate(1 << 20, &[50.0, 5.0], 2 << 20), [1 << 20, 0]);
        assert_eq!(divide_by_rate(1 << 20, &[50.0, 0.0], 2 << 20), [1 << 20, 0]);
        assert_eq!(divide_by_rate(7, &[50.0], 2 << 20), [7]);
        // A relay takes a piece of 524,288 beyond its extra 924,288, 36,214 ns at 40: (2,335,003 + 924,288) / 90.
        assert_eq!(divide_by_rate(2_335_000, &[50.0, 40.0], 2 << 20), [2_335_000, 0]);
        assert_eq!(
            divide_by_rate(2_335_100, &[50.0, 40.0], 2 << 20),
            [2_335_100 - 524_288, 524_288]
        );
    }

    #[test]
    fn alike_paths_divide_by_rate_alone_and_pieces_are_even() {
        assert_eq!(divide_alike(4 << 20, &[10.0, 30.0]), [1 << 20, 3 << 20]);
        assert_eq!(divide_alike(5, &[10.0, 10.0]), [5, 0]);
        assert_eq!(divide_alike(0, &[10.0, 10.0]), [0, 0]);
        let kib = |part: Range<u64>, piece: u64| -> Vec<(u64, u64)> {
            even_pieces(part, piece << 10).iter().map(|p| (p.start >> 10, p.end >> 10)).collect()
        };
        assert_eq!(kib(1024..200 << 10, 1), [(1, 65), (65, 129), (129, 193), (193, 200)]);
        assert_eq!(kib(0..200 << 10, 65), [(0, 128), (128, 200)]);
    }

    #[test]
    fn pieces_grow_and_shrink() {
        let kib = |part: Range<u64>| -> Vec<u64> {
            let pieces = ramped_pieces(part.clone(), 2 << 20);
            let mut at = part.start;
            for piece in &pieces {
                assert_eq!(piece.start, at);
                at = piece.end;
            }
            assert_eq!(at, part.end);
            pieces.iter().map(|piece| (piece.end - piece.start) >> 10).collect()
        };
        assert_eq!(kib(1 << 20..9 << 20), [512, 1024, 2048, 2048, 1280, 640, 512, 128]);
        assert_eq!(kib(0..100 << 10), [100]);
        assert!(kib(5..5).is_empty());
    }
}
