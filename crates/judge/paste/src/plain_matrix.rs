//! Tables whose figures are those of copies, as matrices, and those of collectives.

use crate::document::{
    CollectiveRow, CollectiveTable, MatrixEnd, MatrixTool, PasteContent, RateCount, RateMatrix,
};
use crate::nccl_tests::{self, operation};
use crate::number::size;
use crate::plain_rows::{PlainColumn, PlainTable};

/// Names of copies from the host or both ways, and to it.
const WAYS: [&str; 5] = ["h2d", "htod", "bidir", "d2h", "dtoh"];
/// Words that may stand next to the numbers of GPUs.
const COPY_WORDS: &str = "gpu gpus dev device src dst source destination from to peer id index rank pinned copy bw \
                          bandwidth rate read write gb gbps gib gibps mb mbps mib s sec";

/// A table with algbw and busbw by size is one of collectives, whatever printed it.
fn collective(table: &PlainTable) -> Option<CollectiveTable> {
    let column = |name: &str| {
        let is_it =
            |column: &&PlainColumn| column.name.to_lowercase().replace('_', "").contains(name);
        table.columns.iter().filter(|column| column.is_rate).find(is_it)
    };
    let (alg, bus) = (column("algbw")?, column("busbw")?);
    let mut found = CollectiveTable { op: operation(&table.title), ..CollectiveTable::default() };
    for ((label, algbw), busbw) in table.labels.iter().zip(&alg.values).zip(&bus.values) {
        // `size=1073741824`, `size_mb=64`, `size (MB) 64`, `64M`.
        let keyed = label.split(' ').filter_map(|word| word.split_once('='));
        let mut keyed = keyed.filter(|(key, _)| key.contains("size") || key.contains("bytes"));
        let first = || label.split(", ").next().and_then(|part| part.rsplit_once(' '));
        let (name, digits) = keyed.next().or_else(first).unwrap_or(("", label));
        let unit =
            ["k", "m", "g"].iter().find(|unit| name.to_lowercase().contains(&format!("{unit}b")));
        let unit = unit.or(["(m", "(g"].iter().find(|unit| name.contains(**unit)));
        let unit = unit.map_or("", |unit| unit.trim_start_matches('('));
        let bytes = size(&format!("{digits}{unit}")).filter(|bytes| *bytes > 0)?;
        let (algbw, busbw) = ((*algbw)?, (*busbw)?);
        let time_us = bytes as f64 / algbw / 1e3;
        found.rows.push(CollectiveRow { bytes, time_us, algbw, busbw, ..CollectiveRow::default() });
    }
    nccl_tests::finish(&mut found);
    Some(found)
}

/// Matrices of copies where the table is one, else the table.
pub(crate) fn contents(table: PlainTable) -> Vec<PasteContent> {
    if let Some(found) = collective(&table) {
        return vec![PasteContent::Collective(found)];
    }
    let all = matrices(&table);
    match all.is_empty() {
        true => vec![PasteContent::Plain(table)],
        false => all.into_iter().map(PasteContent::Matrix).collect(),
    }
}

/// The same table as matrices of copies, where every figure is that of a pair of GPUs or of a GPU and the host.
pub(crate) fn matrices(table: &PlainTable) -> Vec<RateMatrix> {
    let title = table.title.to_lowercase();
    let of_gpus = ["gpu", "p2p", "peer", "device"].iter().any(|word| title.contains(word));
    let mut found: Vec<RateMatrix> = Vec::new();
    let is_sum = |name: &str| ["sum", "total"].contains(&name.to_lowercase().as_str());
    for column in table.columns.iter().filter(|column| !is_sum(&column.name)) {
        for (label, value) in table.labels.iter().zip(&column.values) {
            let Some((from, to)) = ends(&format!("{label} {}", column.name), of_gpus) else {
                return Vec::new();
            };
            let Some(gbs) = value.filter(|gbs| *gbs > 0.0 && column.is_rate) else { continue };
            let is_host = |end: &MatrixEnd| matches!(end, MatrixEnd::Host(_));
            let both = [label, &title]
                .iter()
                .any(|text| text.to_lowercase().replace('-', "").contains("bidir"));
            let count = if both { RateCount::Sum } else { RateCount::OneWay };
            let is_same = |matrix: &&mut RateMatrix| {
                let first = matrix.cells.first().map(|cell| (is_host(&cell.0), is_host(&cell.1)));
                matrix.count == count && first == Some((is_host(&from), is_host(&to)))
            };
            match found.iter_mut().find(is_same) {
                Some(matrix) => matrix.cells.push((from, to, gbs)),
                None => found.push(RateMatrix {
                    count,
                    concurrent: title.contains("concurrent"),
                    cells: vec![(from, to, gbs)],
                    ..RateMatrix::new(MatrixTool::Unnamed, table.title.clone())
                }),
            }
        }
    }
    found
}

/// The ends that words name: `gpu 3 h2d_GBps`, `src 0, dst 1`, `0 1` below a title about GPUs.
fn ends(text: &str, of_gpus: bool) -> Option<(MatrixEnd, MatrixEnd)> {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).collect();
    let has = |names: &[&str]| names.iter().any(|name| words.contains(name));
    let (inward, outward) = (has(&WAYS[..3]), has(&WAYS[3..]));
    let mut numbers = Vec::new();
    for word in words.iter().filter(|word| !word.is_empty() && !WAYS.contains(word)) {
        let number = word.trim_start_matches(|c: char| c.is_alphabetic());
        let name = word.strip_suffix(number)?;
        // `size 64` is no GPU.
        if !name.is_empty() && !COPY_WORDS.split_whitespace().any(|known| known == name) {
            return None;
        }
        numbers.extend(number.parse::<u32>().ok().filter(|number| *number < 512));
    }
    let starts = |name: &str| words.iter().any(|word| word.starts_with(name));
    let named = of_gpus || ["gpu", "src", "dev"].iter().any(|name| starts(name));
    let gpu = |at: usize| numbers.get(at).map(|number| MatrixEnd::Gpu(*number));
    match (inward, outward, numbers.len()) {
        _ if !named => None,
        (true, false, 1) => Some((MatrixEnd::Host(None), gpu(0)?)),
        (false, true, 1) => Some((gpu(0)?, MatrixEnd::Host(None))),
        (false, false, 2) => Some((gpu(0)?, gpu(1)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain_table::tests::found;

    /// 2 x 7 / 8 = 1.75.
    #[test]
    fn algbw_and_busbw_are_of_a_collective() {
        for text in [
            "op=all_reduce size_mb=64 us=7 algbw_gbps=800 busbw_gbps=1400\nop=all_reduce size_mb=256 us=9 algbw_gbps=1120 busbw_gbps=1960\n",
            "size,algbw (GB/s),busbw (GB/s)\n64M,100,175\n256M,140,245\n",
            "size (MB)  algbw (GB/s)  busbw (GB/s)\n64  100.0  175.0\n256  140.0  245.0\n",
        ] {
            let table = collective(&found(text)).expect(text);
            let rows: Vec<_> = table.rows.iter().map(|row| (row.bytes, row.busbw)).collect();
            assert_eq!(rows, [(64 << 20, 175.0), (256 << 20, 245.0)], "{text}");
            assert_eq!(table.ranks, Some(8), "{text}");
        }
        assert!(collective(&found("host,busbw_GBps\na1,100\na2,175\n")).is_none());
    }

    #[test]
    fn copies_of_gpus_are_matrices() {
        use MatrixEnd::{Gpu, Host};
        let pair = |text: &str| matrices(&found(text)).first().map(|m| m.cells[0]);
        let host = pair("gpu,h2d_GBps,d2h_GBps\n3,24.5,25.0\n4,24.5,25.0\n");
        assert_eq!(host, Some((Host(None), Gpu(3), 24.5)));
        assert_eq!(pair("src  dst  GB/s\n0  1  39\n1  0  38\n"), Some((Gpu(0), Gpu(1), 39.0)));
        let peers = "P2P rates (GB/s)\n  0  1\n0  0  39\n1  38  0\n";
        assert_eq!(pair(peers), Some((Gpu(1), Gpu(0), 38.0)));
        assert_eq!(pair("host,rate_GBps\nn1,24.5\nn2,24.5\n"), None);
    }
}
