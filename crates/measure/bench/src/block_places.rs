//! Places of the blocks that one kernel copies.

use pathline_hal::{CallResult, MachineBuffer, pattern};
use pathline_schema::Bytes;

use crate::lane::{SOURCE_SEED, SPOILT_SEED};
use crate::needs::BLOCK_SPREAD;

/// Draws the same places in each run.
const PLACES_SEED: u64 = 0x626c_6f63_6b73;

/// Blocks at random places of a buffer, the same at both ends.
pub(crate) struct BlockPlaces {
    each: Bytes,
    /// Numbers of the places in the order of the list.
    list: Vec<u64>,
}

impl BlockPlaces {
    /// Chooses among the places of a buffer that has [`BLOCK_SPREAD`] times as many.
    pub(crate) fn new(blocks: u32, each: Bytes) -> Self {
        let all = u64::from(blocks) * BLOCK_SPREAD;
        let mut list: Vec<u64> = (0..all).collect();
        for nth in 0..blocks as usize {
            let left = all - nth as u64;
            let chosen = pattern::word(PLACES_SEED, nth as u64) % left;
            list.swap(nth, nth + chosen as usize);
        }
        list.truncate(blocks as usize);
        Self { each, list }
    }

    /// Destination, source and bytes of each block.
    pub(crate) fn copies(&self, dst: u64, src: u64) -> Vec<(u64, u64, Bytes)> {
        let copy = |place: &u64| (dst + place * self.each.0, src + place * self.each.0, self.each);
        self.list.iter().map(copy).collect()
    }

    /// Compares every byte of the destination: of the blocks, and of the places between them, which no copy may
    /// change.
    pub(crate) fn check(&self, dst: &MachineBuffer<'_>) -> CallResult<()> {
        for (start, places, is_copied) in self.stretches() {
            let seed = if is_copied { SOURCE_SEED } else { SPOILT_SEED };
            dst.check_block(start * self.each.0, Bytes(places * self.each.0), seed)?;
        }
        Ok(())
    }

    /// First place and number of places of stretches that were copied as a whole, or not at all.
    fn stretches(&self) -> Vec<(u64, u64, bool)> {
        let mut is_copied = vec![false; self.list.len() * BLOCK_SPREAD as usize];
        self.list.iter().for_each(|&place| is_copied[place as usize] = true);
        let mut start = 0;
        let stretch = |same: &[bool]| {
            let (from, len) = (start, same.len() as u64);
            start += len;
            (from, len, same[0])
        };
        is_copied.chunk_by(|a, b| a == b).map(stretch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_used_once_and_all_are_compared() {
        for blocks in [1, 3, 4096] {
            let places = BlockPlaces::new(blocks, Bytes::kib(4));
            let mut sorted = places.list.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), blocks as usize);
            let all = u64::from(blocks) * BLOCK_SPREAD;
            assert!(sorted.last().is_some_and(|&last| last < all));
            let compared = places.stretches();
            let (copied, kept): (Vec<_>, Vec<_>) = compared.iter().partition(|s| s.2);
            let sum = |of: &[&(u64, u64, bool)]| of.iter().map(|s| s.1).sum::<u64>();
            assert_eq!(sum(&copied), u64::from(blocks));
            assert_eq!(sum(&kept), all - u64::from(blocks));
        }
    }

    /// Of 4,096 places in random order, one in 4,096 follows the one before it; 20 are beyond chance.
    #[test]
    fn neighbours_in_the_list_lie_apart() {
        let places = BlockPlaces::new(4096, Bytes::kib(4)).list;
        let next = places.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(next < 20, "{next}");
    }
}
