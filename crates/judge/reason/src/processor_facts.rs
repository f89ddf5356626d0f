//! The PCIe generation of processors, since a GPU is no faster than the port that it is in, and their memory.

const TABLE: &str = include_str!("../data/processors.tsv");

/// The generation of a processor that the table has.
pub(crate) fn processor_generation(name: &str) -> Option<u32> {
    row_of(name)?.next()?.parse().ok()
}

/// The peak of a socket's memory, GB/s.
pub(crate) fn processor_memory(name: &str) -> Option<f64> {
    row_of(name)?.nth(1)?.parse().ok()
}

/// What joins a processor to GPUs of a product in place of PCIe, GB/s each way.
pub(crate) fn processor_fabric(name: &str, product: &str) -> Option<f64> {
    let mut cells = row_of(name)?.skip(2);
    let gbs = cells.next()?.parse().ok()?;
    product.starts_with(cells.next()?).then_some(gbs)
}

/// The cells behind the pattern that a name has.
fn row_of(name: &str) -> Option<std::str::Split<'static, char>> {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let row = |line: &'static str| {
        let mut cells = line.split('\t');
        let pattern = cells.next()?;
        let is_it = |at: usize| {
            let (before, rest) = name.split_at(at);
            let is_start = !before.ends_with(|c: char| c.is_ascii_alphanumeric());
            let mut rest = rest.chars();
            let fits = |(wanted, has): (char, char)| match wanted {
                '#' => has.is_ascii_digit(),
                _ => wanted == has,
            };
            let pairs: Vec<(char, char)> = pattern.chars().zip(&mut rest).collect();
            let is_whole = pairs.len() == pattern.len() && pairs.into_iter().all(fits);
            is_start && is_whole && !rest.as_str().starts_with(|c: char| c.is_ascii_digit())
        };
        name.char_indices().any(|(at, _)| is_it(at)).then_some(cells)
    };
    rows.filter_map(row).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_have_their_generation() {
        for (name, generation) in [
            ("AMD EPYC 7551 32-Core Processor", Some(3)),
            ("AMD EPYC 7542 32-Core Processor", Some(4)),
            ("AMD EPYC 9554 64-Core Processor", None),
            ("Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz", Some(3)),
            ("Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", Some(3)),
            ("Intel(R) Xeon(R) Platinum 8480C", None),
            ("Intel(R) Core(TM) i7-8700K CPU @ 3.70GHz", Some(3)),
            ("12th Gen Intel(R) Core(TM) i9-12900K", None),
            ("AMD Ryzen 7 2700X Eight-Core Processor", Some(3)),
            ("AMD Ryzen 5 5600G with Radeon Graphics", Some(3)),
            ("AMD Ryzen Threadripper 2950X 16-Core Processor", Some(3)),
        ] {
            assert_eq!(processor_generation(name), generation, "{name}");
        }
        // 12 x 4800 MT/s x 8 B.
        assert_eq!(processor_memory("AMD EPYC 9554 64-Core Processor"), Some(460.8));
    }
}
