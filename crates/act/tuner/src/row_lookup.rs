//! Which row counts for a collective and size, in a few comparisons.

use crate::rows::{TunedCollective, TunerRow};

/// A range of sizes in which one row counts.
#[derive(Debug, Clone, Copy)]
struct SizeRange {
    least: u64,
    most: u64,
    row: TunerRow,
}

/// The rows of one communicator: for each collective, ranges that do not overlap, in ascending order.
#[derive(Debug, Default)]
pub(crate) struct RowLookup {
    ranges: [Vec<SizeRange>; TunedCollective::ALL.len()],
}

impl RowLookup {
    /// The rows for a communicator with these numbers of nodes and ranks.
    pub(crate) fn new(rows: &[TunerRow], nodes: usize, ranks: usize) -> Self {
        let fits = |asked: Option<u32>, is: usize| asked.is_none_or(|asked| asked as usize == is);
        let mut lookup = Self::default();
        for (collective, ranges) in TunedCollective::ALL.iter().zip(&mut lookup.ranges) {
            let all: Vec<&TunerRow> = rows
                .iter()
                .filter(|row| row.collective == *collective)
                .filter(|row| fits(row.nodes, nodes) && fits(row.ranks, ranks))
                .collect();
            *ranges = first_matches(&all);
        }
        lookup
    }

    /// How many ranges there are.
    pub(crate) fn len(&self) -> usize {
        self.ranges.iter().map(Vec::len).sum()
    }

    /// The row that counts; none leaves the choice to the library. `collective` is the library's number.
    pub(crate) fn find(&self, collective: usize, bytes: u64) -> Option<&TunerRow> {
        let ranges = self.ranges.get(collective)?;
        let after = ranges.partition_point(|range| range.least <= bytes);
        let range = ranges.get(after.checked_sub(1)?)?;
        (bytes <= range.most).then_some(&range.row)
    }
}

/// Ranges between the ends of all rows, each with the first row that has it.
fn first_matches(rows: &[&TunerRow]) -> Vec<SizeRange> {
    let ends = |row: &&TunerRow| [Some(row.least_bytes), row.most_bytes.checked_add(1)];
    let mut begins: Vec<u64> = rows.iter().flat_map(ends).flatten().collect();
    begins.sort_unstable();
    begins.dedup();
    let mut ranges = Vec::new();
    for (at, &least) in begins.iter().enumerate() {
        let most = begins.get(at + 1).map_or(u64::MAX, |next| next - 1);
        let has = |row: &&&TunerRow| row.least_bytes <= least && least <= row.most_bytes;
        if let Some(row) = rows.iter().find(has) {
            ranges.push(SizeRange { least, most, row: **row });
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{TunedAlgorithm, TunedProtocol, TunerRows};
    use proptest::prelude::*;

    proptest! {
        /// Ranges give what a scan of the rows gives, at and next to all their ends.
        #[test]
        fn the_lookup_is_a_scan(
            ends in proptest::collection::vec((0..60_u64, 0..60_u64, 0..5_usize), 0..12),
            far in any::<bool>(),
        ) {
            let shift = if far { u64::MAX - 60 } else { 0 };
            let row = |(nth, &(a, b, collective)): (usize, &(u64, u64, usize))| TunerRow {
                collective: TunedCollective::ALL[collective],
                least_bytes: a.min(b) + shift,
                most_bytes: a.max(b) + shift,
                algorithm: TunedAlgorithm::Ring,
                protocol: TunedProtocol::Ll,
                channels: nth as u8,
                nodes: None,
                ranks: None,
            };
            let rows: Vec<TunerRow> = ends.iter().enumerate().map(row).collect();
            let lookup = RowLookup::new(&rows, 1, 2);
            for number in 0..5 {
                for bytes in (0..=60).map(|bytes| bytes + shift) {
                    let scan = rows.iter().find(|row| {
                        row.collective.number() == number
                            && row.least_bytes <= bytes
                            && bytes <= row.most_bytes
                    });
                    prop_assert_eq!(lookup.find(number, bytes), scan);
                }
            }
        }
    }

    #[test]
    fn the_first_row_that_matches_counts() {
        let text = "allreduce,10,20,tree,ll,1,1,8\nallreduce,0,100,ring,ll,2,1,8\n\
                    allreduce,15,18446744073709551615,ring,simple,3,-1,-1\n\
                    broadcast,0,9,ring,ll,4,2,8\n";
        let rows = TunerRows::parse(text).unwrap().rows;
        // By hand, against every row in turn.
        let first = |nodes: u32, ranks: u32, number: usize, bytes: u64| {
            let has = |row: &&TunerRow| {
                row.collective.number() == number
                    && (row.least_bytes..=row.most_bytes).contains(&bytes)
                    && row.nodes.is_none_or(|n| n == nodes)
                    && row.ranks.is_none_or(|n| n == ranks)
            };
            rows.iter().find(has).map(|row| row.channels)
        };
        for (nodes, ranks) in [(1, 8), (2, 8), (1, 4)] {
            let lookup = RowLookup::new(&rows, nodes as usize, ranks as usize);
            for number in [0, 4, 5, usize::MAX] {
                for bytes in [0, 1, 9, 10, 14, 15, 20, 21, 100, 101, u64::MAX] {
                    let found = lookup.find(number, bytes).map(|row| row.channels);
                    assert_eq!(found, first(nodes, ranks, number, bytes), "{number}, {bytes} B");
                }
            }
        }
        assert_eq!(first(1, 8, 4, 15), Some(1));
        assert_eq!(RowLookup::new(&[], 1, 8).len(), 0);
    }
}
