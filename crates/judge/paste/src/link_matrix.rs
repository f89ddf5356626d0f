//! `nvidia-smi topo -m` and `rocm-smi --showtopo`, `--showtopoweight`, `--showtopotype`,
//! `--showtoponuma`.

use std::collections::BTreeMap;

use crate::clean::PasteLine;
use crate::document::LinkMatrix;
use crate::number::{number, rate_unit};
use crate::plain_rows::{PlainColumn, PlainRows, PlainTable};

/// Widest matrix that is read.
const MAX_GPUS: u32 = 512;
/// Lines of a list of links.
const MAX_STATES: usize = 4096;

fn gpu(label: &str) -> Option<u32> {
    label.strip_prefix("GPU")?.parse().ok().filter(|&n| n < MAX_GPUS)
}

fn is_link(word: &str) -> bool {
    matches!(word, "X" | "SYS" | "NODE" | "PHB" | "PXB" | "PIX" | "SOC" | "PSB" | "NS" | "OK")
        || word
            .strip_prefix("NV")
            .is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()))
}

/// A matrix of nvidia-smi that begins here.
pub(crate) fn nvidia(lines: &[PasteLine], at: usize) -> Option<(LinkMatrix, usize)> {
    let header: Vec<&str> = lines.get(at)?.text.split_whitespace().take(1024).collect();
    if header.first() != Some(&"GPU0") {
        return None;
    }
    let columns: Vec<&str> =
        header.iter().copied().take_while(|word| !matches!(*word, "CPU" | "NUMA")).collect();
    let mut found = LinkMatrix { tool: "nvidia-smi topo", ..LinkMatrix::default() };
    let mut last = at;
    for (index, line) in lines.iter().enumerate().skip(at + 1).take(1024) {
        let mut words = line.text.split_whitespace();
        let Some(label) = words.next() else {
            if last > at {
                break;
            }
            continue;
        };
        let rest: Vec<&str> = words.collect();
        let links: Vec<&str> = rest.iter().copied().take_while(|word| is_link(word)).collect();
        if links.is_empty() || !(gpu(label).is_some() || columns.contains(&label)) {
            break;
        }
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
        // Affinity of CPUs, then the NUMA domain; the latter is a single number.
        if let Some(a) = gpu(label) {
            let domain = rest.get(links.len() + 1).and_then(|word| word.parse().ok());
            if let Some(domain) = domain {
                found.numa.insert(a, domain);
            }
        }
    }
    (!found.pairs.is_empty() || !found.nics.is_empty()).then_some((found, last + 1))
}

/// `nvidia-smi nvlink -s`: each GPU with a line of each of its links, `Link 0: 26.562 GB/s` or `<inactive>`.
pub(crate) fn nvlink_state(lines: &[PasteLine], at: usize) -> Option<(PlainTable, usize)> {
    if !lines.get(at + 1)?.text.trim().starts_with("Link ") {
        return None;
    }
    // Name, active links, their rate, inactive links.
    let (mut gpus, mut next) = (Vec::<(String, f64, f64, Vec<&str>)>::new(), at);
    for (index, line) in lines.iter().enumerate().skip(at).take(MAX_STATES) {
        let text = line.text.trim();
        if let Some((gpu, _)) = text.split_once(": ").filter(|(gpu, _)| gpu.starts_with("GPU ")) {
            gpus.push((gpu.to_owned(), 0.0, 0.0, Vec::new()));
        } else if let Some((link, state)) = text.strip_prefix("Link ")?.split_once(": ") {
            let gpu = gpus.last_mut()?;
            let rate = state
                .split_once(' ')
                .and_then(|(value, unit)| Some(number(value)? * rate_unit(unit)?));
            (gpu.1, gpu.2) =
                (gpu.1 + f64::from(u8::from(rate.is_some())), gpu.2 + rate.unwrap_or(0.0));
            gpu.3.extend(state.contains("inactive").then_some(link));
            next = index + 1;
        }
        if lines.get(index + 1).is_none_or(|line| !line.text.trim().starts_with(['G', 'L'])) {
            break;
        }
    }
    let column = |name: &str, values: Vec<Option<f64>>| PlainColumn {
        name: name.to_owned(),
        is_rate: name == "rate",
        values,
    };
    let label = |gpu: &(String, f64, f64, Vec<&str>)| match gpu.3.as_slice() {
        [] => gpu.0.clone(),
        links => format!("{} (link {} inactive)", gpu.0, links.join(", ")),
    };
    let listed = gpus.iter().map(|gpu| Some(gpu.1 + gpu.3.len() as f64)).collect();
    let table = PlainTable {
        tool: "nvidia-smi nvlink",
        title: "NVLinks of each GPU".to_owned(),
        labels: gpus.iter().map(label).collect(),
        columns: vec![
            column("rate", gpus.iter().map(|gpu| Some(gpu.2)).collect()),
            column("active links", gpus.iter().map(|gpu| Some(gpu.1)).collect()),
            column("links", listed),
        ],
        rows: PlainRows::Parts,
        is_matrix: false,
        total: None,
    };
    (next > at).then_some((table, next))
}

/// Tables of rocm-smi that begin here: one or several.
pub(crate) fn rocm(lines: &[PasteLine], at: usize) -> Option<(LinkMatrix, usize)> {
    let begins = |text: &str| {
        [
            "Weight between two GPUs",
            "Hops between two GPUs",
            "Link Type between two GPUs",
            "Numa Nodes",
        ]
        .iter()
        .position(|title| text.contains(title))
    };
    begins(&lines.get(at)?.text)?;
    let mut found = LinkMatrix { tool: "rocm-smi", ..LinkMatrix::default() };
    let (mut block, mut columns, mut last) = (0, Vec::new(), at);
    let mut hops = BTreeMap::new();
    for (index, line) in lines.iter().enumerate().skip(at).take(4096) {
        let text = line.text.trim();
        let is_empty = found.pairs.is_empty() && hops.is_empty() && found.numa.is_empty();
        if is_empty && index > at + 24 {
            break;
        }
        if let Some(next) = begins(text) {
            (block, last) = (next, index);
            columns.clear();
            continue;
        }
        if text.is_empty() || text.starts_with("====") {
            continue;
        }
        if let Some((label, rest)) = text.split_once(']')
            && let Some(number) = label.strip_prefix("GPU[").and_then(|n| n.parse().ok())
        {
            let domain = rest.split_once("Numa Node:").and_then(|(_, n)| n.trim().parse().ok());
            if let Some(domain) = domain {
                found.numa.insert(number, domain);
            }
            last = index;
            continue;
        }
        let words: Vec<&str> = text.split_whitespace().take(1024).collect();
        if !words.is_empty() && words.iter().all(|word| gpu(word).is_some()) && columns.is_empty() {
            columns = words.iter().filter_map(|word| gpu(word)).collect();
            last = index;
            continue;
        }
        let Some(row) = words.first().and_then(|label| gpu(label)) else { break };
        for (&column, &word) in columns.iter().zip(words.iter().skip(1)) {
            if row == column {
                continue;
            }
            match (block, word.parse::<u32>()) {
                (1, Ok(count)) => {
                    hops.insert((row, column), count);
                }
                (2, _) => {
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
    (!found.pairs.is_empty() || !found.numa.is_empty()).then_some((found, last + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    #[test]
    fn links_that_are_down_are_counted() {
        let text = "GPU 0: NVIDIA H100 (UUID: GPU-a)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n\
                    GPU 1: NVIDIA H100 (UUID: GPU-b)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n";
        let (table, next) = nvlink_state(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!(
            (table.columns[1].values.as_slice(), next),
            ([Some(2.0), Some(1.0)].as_slice(), 6)
        );
        assert_eq!(table.labels, ["GPU 0", "GPU 1 (link 1 inactive)"]);
        assert!(nvlink_state(&clean_lines(b"GPU 0: H100\nGPU 1: H100\n").0, 0).is_none());
    }

    #[test]
    fn matrices_of_nvidia_smi_are_read() {
        let text = "        GPU0    GPU1    mlx5_0  CPU Affinity    NUMA Affinity   GPU NUMA ID\nGPU0     X      NV18    PIX     0-47,96-143     0               N/A\nGPU1    NV18     X      SYS     48-95   1               N/A\nmlx5_0  PIX     SYS      X\n\nLegend:\n";
        let (found, next) = nvidia(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!(
            (found.pairs[&(0, 1)].as_str(), found.nics["mlx5_0"][&1].as_str(), next),
            ("NV18", "SYS", 4)
        );
        assert_eq!(found.numa, BTreeMap::from([(0, 0), (1, 1)]));
    }

    #[test]
    fn tables_of_rocm_smi_are_read() {
        let text = "=== Weight between two GPUs ===\n       GPU0         GPU1\nGPU0   0            15\nGPU1   15           0\n\n=== Hops between two GPUs ===\n       GPU0         GPU1\nGPU0   0            1\nGPU1   1            0\n\n=== Link Type between two GPUs ===\n       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   XGMI         0\n\n=== Numa Nodes ===\nGPU[0]\t\t: (Topology) Numa Node: 3\nGPU[0]\t\t: (Topology) Numa Affinity: 3\n==== End of ROCm SMI Log ====\n";
        let (found, _) = rocm(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!((found.pairs[&(1, 0)].as_str(), found.numa[&0]), ("XGMI", 3));
    }
}
