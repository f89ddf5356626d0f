//! Reads the tables of `nvidia-smi topo`, `rocm-smi --showtopo` and `amd-smi topology`.
//!
//! Words count and columns do not, so that prefixes of logs, comments and Markdown do no harm. A row
//! counts only below a header that names its label.

use std::collections::BTreeMap;

use pathline_schema::{CpuSet, PciAddress};

use crate::parse::{cpu_list, pci_address};

/// Widest matrix that is read.
const MAX_GPUS: u32 = 512;
/// Words of a line and lines of a table that are looked at.
const MAX_WORDS: usize = 1056;
const MAX_LINES: usize = 4096;
/// Lines between a header and its first row: rules of Markdown, blank lines.
const MAX_GAP: usize = 4;
/// Statuses of `nvidia-smi topo -p2p`, with its words for them.
pub const PEER_STATUSES: [(&str, &str); 7] = [
    ("OK", "status OK"),
    ("NS", "not supported"),
    ("CNS", "chipset not supported"),
    ("GNS", "GPU not supported"),
    ("TNS", "topology not supported"),
    ("DR", "disabled by a registry key"),
    ("U", "unknown"),
];

/// A matrix of links.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LinkMatrix {
    /// `nvidia-smi topo` or `rocm-smi`.
    pub tool: &'static str,
    /// GPU pairs with the link between them: `NV18`, `PIX`, `SYS`, `XGMI`, `PCIE`, or a status of
    /// peer access: `OK`, `GNS`.
    pub pairs: BTreeMap<(u32, u32), String>,
    /// Adapters with their link to each GPU.
    pub nics: BTreeMap<String, BTreeMap<u32, String>>,
    /// NUMA domain of each GPU.
    pub numa: BTreeMap<u32, u32>,
    /// GPUs in the header.
    pub(crate) gpus: Vec<u32>,
    /// CPUs near each GPU.
    pub(crate) cpus: BTreeMap<u32, CpuSet>,
    /// NUMA domain that the memory of a GPU is.
    pub(crate) memory_numa: BTreeMap<u32, u32>,
    /// Device names of adapters by their label in the matrix.
    pub(crate) nic_names: BTreeMap<String, String>,
    /// Weights of AMD's driver by ordered pair.
    pub(crate) weights: BTreeMap<(u32, u32), u32>,
    /// Addresses of GPUs, where the matrix names them so.
    pub(crate) addresses: BTreeMap<u32, PciAddress>,
    /// First and last line that was read, counted from 0.
    pub(crate) lines: (usize, usize),
}

impl LinkMatrix {
    /// Whether it has the statuses of peer access in place of links.
    pub fn has_statuses(&self) -> bool {
        !self.pairs.is_empty() && self.pairs.values().all(|word| is_status(word))
    }
}

/// Words of a line, without the bars and stars of Markdown.
fn words(line: &str) -> Vec<&str> {
    let split = line.split(|c: char| c.is_whitespace() || c == '|');
    split.map(|word| word.trim_matches('*')).filter(|w| !w.is_empty()).take(MAX_WORDS).collect()
}

fn gpu(label: &str) -> Option<u32> {
    label.strip_prefix("GPU")?.parse().ok().filter(|&n| n < MAX_GPUS)
}

/// Number of NVLinks that a cell such as `NV18` names.
pub(crate) fn nvlinks(word: &str) -> Option<u32> {
    word.strip_prefix("NV")?.parse().ok().filter(|&n| n > 0 && n < 1024)
}

fn is_status(word: &str) -> bool {
    PEER_STATUSES.iter().any(|(status, _)| *status == word)
}

fn is_link(word: &str) -> bool {
    matches!(word, "X" | "SYS" | "NODE" | "PHB" | "PXB" | "PIX" | "SOC" | "PSB")
        || is_status(word)
        || nvlinks(word).is_some()
}

/// Columns of a matrix, and what its rows say behind them.
struct MatrixHeader<'a> {
    columns: Vec<&'a str>,
    has_cpus: bool,
}

/// The header of a matrix of nvidia-smi.
fn header(line: &str) -> Option<MatrixHeader<'_>> {
    let all = words(line);
    let start = all.iter().position(|word| gpu(word).is_some())?;
    let all = all.get(start..)?;
    let is_tail = |word: &&&str| matches!(**word, "CPU" | "NUMA");
    let columns: Vec<&str> = all.iter().take_while(|word| !is_tail(word)).copied().collect();
    let has_tail = columns.len() < all.len();
    // Adapters stand behind the GPUs; the second word of a row is a link.
    let is_table = columns.len() > 1 || has_tail;
    let has_cpus = all.get(columns.len()).is_some_and(|word| *word == "CPU");
    (is_table && !columns.iter().any(|word| is_link(word)))
        .then_some(MatrixHeader { columns, has_cpus })
}

/// A row: index of its label among the columns, and the words behind the label.
fn row<'a>(line: &'a str, columns: &[&str]) -> Option<(usize, Vec<&'a str>)> {
    let all = words(line);
    all.iter().enumerate().find_map(|(at, label)| {
        let rest = all.get(at + 1..)?;
        if !is_link(rest.first()?) {
            return None;
        }
        let own = columns.iter().position(|column| column == label)?;
        // Its own cell tells it from a row of anything else.
        (rest.get(own).is_none_or(|cell| *cell == "X")).then(|| (own, rest.to_vec()))
    })
}

/// A matrix of nvidia-smi that begins at a line, and the line after it.
pub fn read_nvidia_matrix(lines: &[impl AsRef<str>], at: usize) -> Option<(LinkMatrix, usize)> {
    let MatrixHeader { columns, has_cpus } = header(lines.get(at)?.as_ref())?;
    let mut found = LinkMatrix { tool: "nvidia-smi topo", ..LinkMatrix::default() };
    found.gpus = columns.iter().filter_map(|label| gpu(label)).collect();
    let mut last = at;
    for (index, line) in lines.iter().enumerate().skip(at + 1).take(MAX_WORDS) {
        let Some((own, rest)) = row(line.as_ref(), &columns) else {
            if last > at || index > at + MAX_GAP {
                break;
            }
            continue;
        };
        let label = columns.get(own).copied().unwrap_or_default();
        let most = columns.len();
        let links: Vec<&str> = rest.iter().copied().take(most).take_while(|w| is_link(w)).collect();
        last = index;
        for (&column, &link) in columns.iter().zip(&links) {
            match (gpu(label), gpu(column)) {
                (Some(a), Some(b)) if a != b => {
                    found.pairs.insert((a, b), link.to_owned());
                }
                (None, Some(b)) => {
                    found.nics.entry(label.to_owned()).or_default().insert(b, link.to_owned());
                }
                _ => {}
            }
        }
        // Affinity of CPUs, then the NUMA domain, then the domain of the GPU's memory.
        let Some(a) = gpu(label) else { continue };
        let tail = |at: usize| rest.get(links.len() + at).copied();
        found.cpus.extend(tail(0).filter(|_| has_cpus).and_then(cpu_list).map(|cpus| (a, cpus)));
        found.numa.extend(tail(1).and_then(|word| word.parse().ok()).map(|numa| (a, numa)));
        let own = tail(2).and_then(|word| word.parse().ok());
        found.memory_numa.extend(own.map(|numa| (a, numa)));
    }
    found.lines = (at, last);
    legend(&mut found, lines, &columns);
    (last > at).then_some((found, last + 1))
}

/// Names of adapters: `NIC0: mlx5_0`, below the matrix.
fn legend(found: &mut LinkMatrix, lines: &[impl AsRef<str>], columns: &[&str]) {
    let below = lines.iter().skip(found.lines.1 + 1).take(columns.len() + 32);
    for line in below.map(AsRef::as_ref).take_while(|line| header(line).is_none()) {
        for pair in words(line).windows(2) {
            let [label, name] = pair else { continue };
            let label = label.strip_suffix(':').filter(|label| columns.contains(label));
            found.nic_names.extend(label.map(|label| (label.to_owned(), (*name).to_owned())));
        }
    }
}

/// What a table of AMD's tools has.
#[derive(Clone, Copy, PartialEq)]
enum AmdTable {
    Weights,
    Hops,
    Kinds,
    Domains,
    Other,
}

/// The table that a title begins: of rocm-smi, or in capitals of amd-smi.
fn amd_title(line: &str) -> Option<AmdTable> {
    const TITLES: [(&str, AmdTable); 7] = [
        ("weight between two gpus", AmdTable::Weights),
        ("hops between two gpus", AmdTable::Hops),
        ("link type between two gpus", AmdTable::Kinds),
        ("numa nodes", AmdTable::Domains),
        ("access between two gpus", AmdTable::Other),
        ("bandwidth between two gpus", AmdTable::Other),
        ("min/max bandwidth", AmdTable::Other),
    ];
    if let Some(name) = line.trim().strip_suffix("TABLE:") {
        return Some(match name.trim().rsplit(' ').next() {
            Some("WEIGHT") => AmdTable::Weights,
            Some("HOPS") => AmdTable::Hops,
            Some("TYPE") => AmdTable::Kinds,
            _ => AmdTable::Other,
        });
    }
    let line = line.get(..line.len().min(256)).unwrap_or_default().to_ascii_lowercase();
    let mut titles = TITLES.iter().filter(|(title, _)| line.contains(title));
    let first = titles.next()?;
    // Tables that someone put next to each other are none of the tool.
    titles.next().is_none().then_some(first.1)
}

/// Tables of rocm-smi or amd-smi that begin at a line, and the line after them.
pub fn read_amd_matrix(lines: &[impl AsRef<str>], at: usize) -> Option<(LinkMatrix, usize)> {
    amd_title(lines.get(at)?.as_ref())?;
    let mut found = LinkMatrix { tool: "rocm-smi", ..LinkMatrix::default() };
    let (mut table, mut columns, mut last) = (AmdTable::Other, Vec::new(), at);
    let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
    let mut hops = BTreeMap::new();
    for (index, line) in lines.iter().enumerate().skip(at).take(MAX_LINES) {
        let text = line.as_ref().trim();
        let is_empty = found.pairs.is_empty() && hops.is_empty() && found.numa.is_empty();
        if is_empty && index > at + 24 {
            break;
        }
        if let Some(next) = amd_title(text) {
            (table, last) = (next, index);
            columns.clear();
            continue;
        }
        let is_note = ["====", "ERROR", "WARNING", "get_"].iter().any(|n| text.starts_with(n));
        if text.is_empty() || is_note {
            continue;
        }
        if let Some((label, rest)) = text.split_once(']')
            && let Some(number) = label.strip_prefix("GPU[").and_then(|n| n.parse::<u32>().ok())
            && number < MAX_GPUS
        {
            let domain = rest.split_once("Numa Node:").and_then(|(_, n)| n.trim().parse().ok());
            found.numa.extend(domain.map(|domain| (number, domain)));
            last = index;
            continue;
        }
        let all = words(text);
        let mut number = |word: &str| {
            let address = pci_address(word).map(|_| numbers.len() as u32);
            let known = gpu(word).or_else(|| numbers.get(word).copied());
            let number = known.or(address).filter(|&n| n < MAX_GPUS)?;
            numbers.insert(word.to_owned(), number);
            Some(number)
        };
        if columns.is_empty() {
            let start = all.iter().position(|word| number(word).is_some());
            let named = all.get(start.unwrap_or(all.len())..).unwrap_or_default();
            columns = named.iter().map_while(|word| number(word)).collect();
            if columns.is_empty() || columns.len() < named.len() {
                break;
            }
            last = index;
            continue;
        }
        if all.iter().all(|word| word.trim_matches([':', '-']).is_empty()) {
            continue;
        }
        let start = all.iter().position(|word| number(word).is_some());
        let Some((row, cells)) = start.and_then(|start| all.get(start..)?.split_first()) else {
            break;
        };
        let Some(row) = number(row) else { break };
        for (&column, &word) in columns.iter().zip(cells).filter(|(column, _)| **column != row) {
            match (table, word.parse::<u32>()) {
                (AmdTable::Weights, Ok(weight)) => {
                    found.weights.insert((row, column), weight);
                }
                (AmdTable::Hops, Ok(count)) => {
                    hops.insert((row, column), count);
                }
                (AmdTable::Kinds, _) => {
                    found.pairs.insert((row, column), word.to_owned());
                }
                _ => {}
            }
        }
        last = index;
    }
    // Without the table of types: 1 hop is xGMI, more go through processors (AMD's MI200 guide).
    if found.pairs.is_empty() {
        let kind = |n: &u32| if *n <= 1 { "XGMI" } else { "PCIE" };
        found.pairs = hops.iter().map(|(&pair, n)| (pair, kind(n).to_owned())).collect();
    }
    let named = numbers.iter().filter_map(|(name, &n)| Some((n, pci_address(name)?)));
    found.addresses = named.collect();
    found.gpus = numbers.into_values().chain(found.numa.keys().copied()).collect();
    found.gpus.sort_unstable();
    found.gpus.dedup();
    found.lines = (at, last);
    let has_any = !found.pairs.is_empty() || !found.numa.is_empty() || !found.weights.is_empty();
    has_any.then_some((found, last + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<&str> {
        text.lines().collect()
    }

    #[test]
    fn matrices_of_nvidia_smi_are_read() {
        let text = "        GPU0    GPU1    mlx5_0  CPU Affinity    NUMA Affinity   GPU NUMA ID\nGPU0     X      NV18    PIX     0-47,96-143     0               N/A\nGPU1    NV18     X      SYS     48-95   1               9\nmlx5_0  PIX     SYS      X\n\nLegend:\n";
        let (found, next) = read_nvidia_matrix(&lines(text), 0).unwrap();
        assert_eq!(
            (found.pairs[&(0, 1)].as_str(), found.nics["mlx5_0"][&1].as_str(), next),
            ("NV18", "SYS", 4)
        );
        assert_eq!(found.numa, BTreeMap::from([(0, 0), (1, 1)]));
        assert_eq!(found.memory_numa, BTreeMap::from([(1, 9)]));
        assert_eq!(found.cpus[&1].to_string(), "48-95");
    }

    #[test]
    fn prefixes_and_markdown_do_no_harm() {
        for (prefix, bar) in [("[pod/a/b] ", " "), (" * ", "\t"), ("", " | "), ("n1: ", "  ")] {
            let rows = ["GPU0 GPU1 NIC0", "GPU0 X NV4 PIX", "GPU1 NV4 X SYS", "NIC0 PIX SYS X"];
            let mut text: Vec<String> =
                rows.iter().map(|row| format!("{prefix}{bar}{}", row.replace(' ', bar))).collect();
            text.extend([prefix.to_owned(), format!("{prefix}  NIC0: mlx5_7")]);
            let (found, next) = read_nvidia_matrix(&text, 0).unwrap();
            assert_eq!((found.pairs[&(1, 0)].as_str(), next), ("NV4", 4), "{prefix}");
            assert_eq!(found.nic_names["NIC0"], "mlx5_7");
        }
        for text in
            ["GPU0 and GPU1 are NV4\nGPU0 is X\n", "GPU0\nGPU0 X\n", "GPU0 GPU1\nGPU0 SYS X\n"]
        {
            assert_eq!(read_nvidia_matrix(&lines(text), 0), None, "{text}");
        }
    }

    #[test]
    fn tables_of_rocm_smi_are_read() {
        let text = "=== Weight between two GPUs ===\n       GPU0         GPU1\nGPU0   0            15\nGPU1   15           0\n\n=== Hops between two GPUs ===\n       GPU0         GPU1\nGPU0   0            1\nGPU1   1            0\n\n=== Link Type between two GPUs ===\n       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   XGMI         0\n\n=== Numa Nodes ===\nGPU[0]\t\t: (Topology) Numa Node: 3\nGPU[0]\t\t: (Topology) Numa Affinity: 3\n==== End of ROCm SMI Log ====\n";
        let (found, _) = read_amd_matrix(&lines(text), 0).unwrap();
        assert_eq!((found.pairs[&(1, 0)].as_str(), found.numa[&0]), ("XGMI", 3));
        assert_eq!(found.weights[&(0, 1)], 15);
    }

    #[test]
    fn tables_of_amd_smi_have_addresses() {
        let table = |title: &str, cell: &str| {
            format!(
                "{title} TABLE:\n             0000:c1:00.0 0000:c6:00.0\n0000:c1:00.0 0 {cell}\n\
                 0000:c6:00.0 {cell} 0\n\n"
            )
        };
        let text =
            table("ACCESS", "ENABLED") + &table("WEIGHT", "15") + &table("LINK TYPE", "XGMI");
        let (found, _) = read_amd_matrix(&lines(&text), 0).unwrap();
        assert_eq!((found.gpus.as_slice(), found.weights.len()), ([0, 1].as_slice(), 2));
        assert_eq!(found.addresses[&1].as_str(), "0000:c6:00.0");
        assert_eq!(found.pairs[&(0, 1)], "XGMI");
    }

    #[test]
    fn large_and_odd_tables_are_bounded() {
        let wide: String = (0..100_000).map(|n| format!("GPU{n} ")).collect();
        let text = [wide.as_str()].into_iter().chain(std::iter::repeat_n("GPU0 X SYS", 100_000));
        let text: Vec<&str> = text.collect();
        let (found, next) = read_nvidia_matrix(&text, 0).unwrap();
        assert!(found.gpus.len() <= MAX_GPUS as usize && next <= MAX_WORDS + 1);
        let twice = "Weight between two GPUs   Hops between two GPUs\nGPU0 GPU1 GPU0 GPU1\n";
        assert_eq!(read_amd_matrix(&lines(twice), 0), None);
    }
}
