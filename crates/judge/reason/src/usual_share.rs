//! What share of the limit of its path a figure of sound hardware has: one table for every judge.

use std::sync::LazyLock;

use pathline_paste::table_rows;
const TABLE: &str = include_str!("../data/usual.tsv");
/// Above this share of a limit, the limit is not that of the path.
pub(crate) const ABOVE: f64 = 1.03;

/// The share of a limit that is usual for a kind of path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct UsualShare {
    /// From here on a figure is as usual.
    pub(crate) least: f64,
    /// Above this share the limit is not that of the path.
    pub(crate) most: f64,
    /// Below this share it is slow, whatever the cause; 0 where the limit is only an upper bound.
    pub(crate) slow: f64,
    /// The sentence.
    pub(crate) text: &'static str,
}

static ROWS: LazyLock<Vec<(&str, UsualShare)>> = LazyLock::new(|| {
    let row = |[key, usual, slow, text, _]: [&'static str; 5]| {
        let (least, most) = usual.split_once("..").unwrap_or((usual, ""));
        let (least, most) = (least.parse().ok()?, most.parse().unwrap_or(ABOVE));
        Some((key, UsualShare { least, most, slow: slow.parse().ok()?, text }))
    };
    table_rows(TABLE).filter_map(row).collect()
});

/// The row of a path, such as `host.pcie`.
pub(crate) fn usual_share(path: &'static str) -> Option<UsualShare> {
    ROWS.iter().find(|(key, _)| *key == path).map(|(_, share)| *share)
}

/// The least share that is usual; 1 of a path that is in no row.
pub(crate) fn least_share(path: &'static str) -> f64 {
    usual_share(path).map_or(1.0, |share| share.least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_shares_in_order_and_a_source() {
        let lines: Vec<&str> = TABLE.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), ROWS.len());
        for (key, share) in ROWS.iter() {
            assert!(share.slow < share.least && share.least < 1.0, "{key}");
        }
        assert!(
            lines.iter().all(|line| line.split('\t').nth(4).is_some_and(|text| text.len() > 20))
        );
    }
}
