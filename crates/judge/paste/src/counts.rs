//! Facts that the text around outputs counts: nodes, GPUs, adapters and drives with their rates, NVLinks of a pair.

use std::collections::BTreeSet;

use crate::document::PasteContext;
use crate::products::find_product;
use crate::stated_rates::{generation, lane_gbs, lane_gts, line_rate, rate_name};

/// Tokens between a count and its noun.
const MAX_APART: usize = 5;
/// Tokens of a line that are read.
const MAX_TOKENS: usize = 512;

/// What a word of a sentence stands for.
#[derive(Clone, Copy, PartialEq)]
enum Token {
    Count(u32),
    /// Line rate of an adapter, Gbit/s, and whether its name alone says so.
    LineRate(f64, bool),
    Adapter,
    Port,
    Node,
    Gpu,
    Drive,
    /// `nvme3n1`.
    NamedDrive,
    /// `PCIe 4`, `Gen5 x16`: generation, lanes.
    Pcie(u32, Option<u32>),
    Sata,
    /// `4X` of an InfiniBand port counts lanes; `only 1` counts what is used.
    Skipped,
    /// `-n` of a command.
    Option,
    /// `two cards with 10GbE` counts cards, `one rank per node` ranks.
    With,
    Times,
    Other,
    Stop,
}

impl Token {
    const fn is_noun(self) -> bool {
        matches!(self, Self::Node | Self::Gpu | Self::Adapter | Self::Drive)
    }
}

/// Takes what a line counts.
pub(crate) fn take(context: &mut PasteContext, text: &str) {
    nodes_of_launcher(context, text);
    nvlinks(context, text);
    if text.len() > 4096 {
        return;
    }
    // `8 GCDs of an MI250X node`, `my 8x H100 node`.
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower.split([' ', ',', '.', ':', ';']).take(MAX_TOKENS).collect();
    let is_product = |product: &str| find_product(&product.to_uppercase()).is_some();
    let is_one = words.windows(4).any(|four| match *four {
        ["of" | "in" | "on", "a" | "an" | "one", product, "node" | "server"] => is_product(product),
        _ => false,
    });
    let is_one = is_one
        || words.windows(3).any(|three| match *three {
            [count, product, "node" | "server"] => {
                count.ends_with(['x', '×']) && is_product(product)
            }
            _ => false,
        });
    context.nodes = context.nodes.or(is_one.then_some(1));
    let tokens = tokens(text);
    for clause in tokens.split(|token| *token == Token::Stop) {
        take_clause(context, clause);
    }
}

/// A clause: counts with their nouns, rates next to adapters, links of drives and slots.
fn take_clause(context: &mut PasteContext, clause: &[Token]) {
    let has = |token: Token| clause.contains(&token);
    // `HDR` is a rate of the network wherever it stands; `40G GPU` is a GPU's memory.
    let named = |(at, token): (usize, &Token)| match *token {
        Token::LineRate(rate, true) => Some((0, rate)),
        Token::LineRate(rate, false) => {
            let has_noun = has(Token::Adapter) || has(Token::Port) || has(Token::Node);
            let is_memory = clause.get(at + 1) == Some(&Token::Gpu);
            Some((1, rate)).filter(|_| has_noun && !is_memory)
        }
        _ => None,
    };
    let named_drives = clause.iter().filter(|token| **token == Token::NamedDrive).count();
    let is_disk = (has(Token::Drive) || named_drives > 0) && !has(Token::Adapter);
    if !has(Token::Sata) && !is_disk {
        let best = clause.iter().enumerate().filter_map(named).min_by_key(|(order, _)| *order);
        context.network_gbits = context.network_gbits.or(best.map(|(_, rate)| rate));
    }
    let link = clause.iter().find_map(|token| match *token {
        Token::Pcie(generation, lanes) => Some((generation, lanes)),
        _ => None,
    });
    match link {
        // SATA at 6 Gbit/s: 8 of 10 bits are data.
        _ if has(Token::Sata) => context.drive_gbs = context.drive_gbs.or(Some(0.6)),
        Some((generation, lanes)) if is_disk => {
            let gbs = lane_gbs(generation) * f64::from(lanes.unwrap_or(4));
            context.drive_gbs = context.drive_gbs.or(Some(gbs));
            let named = u32::try_from(named_drives).ok().filter(|drives| *drives > 1);
            context.drives = context.drives.or(named);
        }
        Some((generation, Some(lanes))) if !has(Token::Adapter) => {
            context.pcie_most = context.pcie_most.or(Some((lane_gts(generation), lanes)));
        }
        _ => {}
    }
    for (at, token) in clause.iter().enumerate() {
        let Token::Count(count) = *token else { continue };
        // `A100 * 8`, `200Gb * 4`: the noun stands before its count.
        let before = |back: usize| at.checked_sub(back).and_then(|at| clause.get(at)).copied();
        // `only 1`, and numbers of things: `node 1 and node 2`, `ConnectX 7`.
        let is_number = before(1).is_some_and(|token| {
            token.is_noun() || matches!(token, Token::Option | Token::Skipped | Token::Port)
        });
        if is_number && clause.get(at + 1) != Some(&Token::Times) {
            continue;
        }
        let noun = match (before(1), before(2)) {
            (
                Some(Token::Times),
                Some(noun @ (Token::Gpu | Token::Adapter | Token::LineRate(..))),
            ) => Some(noun),
            _ => noun_after(clause.get(at + 1..).unwrap_or_default()),
        };
        let is_gpus = |at: usize| {
            clause.get(at + 1).is_some_and(|token| matches!(token, Token::Gpu | Token::Times))
        };
        let kept = match noun {
            // `my 8x H100 node` counts GPUs.
            Some(Token::Node) if context.nodes == Some(1) && is_gpus(at) => &mut context.gpu_count,
            Some(Token::Node) => &mut context.nodes,
            Some(Token::Gpu) if count <= 32 => &mut context.gpu_count,
            Some(Token::Adapter | Token::LineRate(..)) if count <= 32 => &mut context.adapters,
            Some(Token::Drive) if count <= 256 => &mut context.drives,
            _ => continue,
        };
        *kept = (*kept).or(Some(count));
    }
}

/// The noun that a count counts: the first one before another count.
fn noun_after(rest: &[Token]) -> Option<Token> {
    let end = rest.iter().position(|token| matches!(token, Token::Count(_) | Token::With));
    let rest = rest.get(..end.unwrap_or(rest.len()).min(MAX_APART)).unwrap_or_default();
    let is_noun = |token: &Token| token.is_noun() || matches!(token, Token::LineRate(..));
    let at = rest.iter().position(is_noun)?;
    // `two A100 nodes`.
    let is_node = rest.get(at) == Some(&Token::Gpu) && rest.get(at + 1) == Some(&Token::Node);
    if is_node { Some(Token::Node) } else { rest.get(at).copied() }
}

fn tokens(text: &str) -> Vec<Token> {
    let is_break =
        |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '[' | ']' | '|' | '/' | '`' | '"');
    // A slash parts words, but not `Gb/s`.
    // A folder that is named after drives is none.
    let text = text.replace("/s", "ps").replace(" /nvme", " /of-nvme");
    let words: Vec<&str> =
        text.split(is_break).filter(|word| !word.is_empty()).take(MAX_TOKENS).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        at += 1 + take_word(&mut found, words.get(at..).unwrap_or_default());
        let last = words.get(at - 1).copied().unwrap_or_default();
        if last.ends_with(['.', ';', '?', '!']) {
            found.push(Token::Stop);
        } else if last.ends_with(',') {
            found.push(Token::Other);
        }
    }
    found
}

/// Adds the token of the first word; how many of the words behind it belong to it.
fn take_word(found: &mut Vec<Token>, words: &[&str]) -> usize {
    let plain = |at: usize| {
        words.get(at).map_or("", |word| word.trim_end_matches([',', '.', ';', ':', '?', '!']))
    };
    let (word, next) = (plain(0), plain(1));
    let lower = word.to_lowercase();
    let pcie = match lower.as_str() {
        "pcie" | "pci-e" if next.eq_ignore_ascii_case("gen") => Some((generation(plain(2)), 2)),
        "pcie" | "pci-e" => Some((generation(next), 1)),
        gen_ if gen_.starts_with("gen") || gen_.starts_with("pcie") => Some((generation(gen_), 0)),
        _ => None,
    };
    if let Some((Some(generation), taken)) = pcie {
        let width = plain(taken + 1).strip_prefix('x').and_then(|lanes| lanes.parse().ok());
        let width = width.filter(|width| [1, 2, 4, 8, 16].contains(width));
        found.push(Token::Pcie(generation, width));
        return taken + usize::from(width.is_some());
    }
    if let Some(count) = count_of(&lower) {
        if let Some(rate) = line_rate(&format!("{lower}{next}")) {
            found.push(Token::LineRate(rate, next.eq_ignore_ascii_case("gbe")));
            return 1;
        }
        let is_lanes = word.ends_with('X') && rate_name(next).is_some();
        found.push(if is_lanes { Token::Skipped } else { Token::Count(count) });
        return 0;
    }
    // `port: 200000Mb/s`; `A100 40G` is memory.
    if let Some(rate) = line_rate(word) {
        let is_memory = found.last() == Some(&Token::Gpu);
        let rate = Token::LineRate(rate, lower.ends_with("gbe"));
        found.push(if is_memory { Token::Other } else { rate });
        return 0;
    }
    // `8x400G`: adapters and the rate of one; `4xH100-80GB`.
    if let Some((count, rest)) = word.split_once(['x', '×'])
        && let Some(count) = count_of(count)
    {
        if let Some(rate) = line_rate(rest) {
            found.extend([Token::Count(count), Token::LineRate(rate, true)]);
            return 0;
        }
        if find_product(rest).is_some() {
            found.extend([Token::Count(count), Token::Gpu, Token::Other]);
            return 0;
        }
    }
    found.push(noun(word, &lower));
    0
}

fn noun(word: &str, lower: &str) -> Token {
    let is_digit = |c: char| c.is_ascii_digit();
    const NODES: &str = "node server machine instance host client dgx hgx box system workstation computer pc knoten nœud noeud";
    const ADAPTERS: &str = "nic adapter hca rail connectx cx mellanox infiniband ib roce rocev2 efa slingshot \
                            ethernet bluefield e810 iwarp";
    let is_in = |list: &str, word: &str| list.split(' ').any(|one| one == word);
    const DRIVES: [&str; 4] = ["drive", "ssd", "nvme", "disk"];
    let stem = lower.strip_suffix("es").filter(|stem| *stem == "box").unwrap_or(lower);
    let stem = stem.strip_suffix('s').unwrap_or(stem);
    // `ConnectX-7`, `DGX-1`, `HGX-H100`, `CX7`.
    let family = stem.split('-').next().unwrap_or(stem);
    let family = match family.strip_prefix("connectx").or(family.strip_prefix("cx")) {
        Some(rest) if rest.bytes().all(|b| b.is_ascii_digit()) => "cx",
        _ => family,
    };
    match () {
        () if matches!(word, "x" | "×" | "*" | "X") => Token::Times,
        () if word.starts_with('-') && word.len() > 1 => Token::Option,
        () if lower == "gigabit" => Token::LineRate(1.0, true),
        () if matches!(lower, "only" | "just" | "uses" | "using") => Token::Skipped,
        () if matches!(lower, "with" | "over" | "via" | "through" | "per") => Token::With,
        // `4 host threads` are no hosts.
        () if lower == "host" => Token::Other,
        () if is_in(NODES, family) => Token::Node,
        () if is_in(ADAPTERS, family) || is_port_name(family) => Token::Adapter,
        () if family == "port" => Token::Port,
        () if family.strip_prefix("nvme").is_some_and(|rest| rest.starts_with(is_digit)) => {
            Token::NamedDrive
        }
        () if DRIVES.contains(&family) => Token::Drive,
        () if family == "sata" => Token::Sata,
        () if ["gpu", "gcd"].contains(&family) || find_product(word).is_some() => Token::Gpu,
        () => rate_name(word).map_or(Token::Other, |rate| Token::LineRate(rate, true)),
    }
}

/// `mlx5_bond_0`, `hsn0`, `rocep1s0f1`, `bnxt_re0`.
fn is_port_name(word: &str) -> bool {
    let of = |start: &&str| word.starts_with(start) && word.ends_with(|c: char| c.is_ascii_digit());
    ["mlx5_", "mlx4_", "hsn", "rocep", "ibp", "bnxt_re", "irdma", "rdmap"].iter().any(of)
}

/// `8`, `8x`, `eight`, `acht`.
fn count_of(word: &str) -> Option<u32> {
    // `ein` and `un` are articles too.
    const NUMBERS: [&str; 3] = [
        "0 one two three four five six seven eight nine",
        "0 1 zwei drei vier fünf sechs sieben acht neun",
        "0 1 deux trois quatre cinq six sept huit neuf",
    ];
    let named = NUMBERS.iter().find_map(|names| names.split(' ').position(|name| name == word));
    let named =
        named.or_else(|| (word == "single").then_some(1)).and_then(|n| u32::try_from(n).ok());
    let digits = word.strip_suffix(['x', '×', '*']).unwrap_or(word);
    named.or_else(|| digits.parse().ok()).filter(|count| (1..=1 << 16).contains(count))
}

/// Words behind `4 NVLink` where these are links of a pair.
const NVLINK_NOUNS: &str =
    "each per between bridge bridges link links lane lanes verbindungen brücken";

/// `NV4`: NVLinks of a pair, as `nvidia-smi topo -m` writes them, `4x NVLink (each`, `two NVLinks`; of several the most.
fn nvlinks(context: &mut PasteContext, text: &str) {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.take(MAX_TOKENS).map(str::to_lowercase).collect();
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let links = (0..words.len()).filter_map(|at| {
        let of_matrix = word(at).strip_prefix("nv").and_then(|links| links.parse().ok());
        // `gen 4 NVLink` is no count, and `8x NVLink GPUs` counts GPUs.
        let is_number =
            at > 0 && ["gen", "generation", "nvlink", "pcie", "version"].contains(&word(at - 1));
        let is_noun = match word(at + 1) {
            "nvlinks" => true,
            "nvlink" => {
                let behind = word(at + 2);
                NVLINK_NOUNS.split(' ').any(|next| next == behind)
                    || behind.is_empty()
                    // `4x NVLink (25GB/s each)`.
                    || behind.ends_with("gb") && behind.starts_with(|c: char| c.is_ascii_digit())
            }
            // `4 liens NVLink`.
            "liens" | "enlaces" | "links" => word(at + 2) == "nvlink",
            _ => false,
        };
        of_matrix.or_else(|| count_of(word(at)).filter(|_| is_noun && !is_number))
    });
    let most = links.filter(|links| (1..=64).contains(links)).max();
    context.nvlinks = context.nvlinks.max(most);
}

/// Launchers and batch systems, with their options for nodes.
const NODE_OPTIONS: [(&[&str], &[&str]); 4] = [
    (&["srun ", "salloc ", "sbatch ", "#SBATCH "], &["-N", "--nodes"]),
    (&["flux run ", "flux submit ", "flux batch ", "flux alloc ", "flux: "], &["-N", "--nodes"]),
    (&["#PBS ", "qsub "], &["select", "nodes"]),
    (&["#BSUB ", "bsub "], &["-nnodes"]),
];

/// Options for the ranks of a node.
const EACH_NODE: [&str; 6] =
    ["-N", "-npernode", "--npernode", "-ppn", "--ppn", "--ntasks-per-node"];

/// `srun -N2`, `#SBATCH --nodes=8`, `#PBS -l select=4:ncpus=64`, `flux run -N 4`, `#BSUB -nnodes 4`, `mpirun -H a:8,b:8`,
/// and `-np 16 -N 8`. The first one is of the allocation: steps may take fewer.
fn nodes_of_launcher(context: &mut PasteContext, text: &str) {
    let has = |names: &[&str]| names.iter().any(|name| text.contains(name));
    let is_mpi = has(&["mpirun ", "mpiexec ", "mpirun.", "mpiexec."]);
    let options = NODE_OPTIONS.iter().find(|(names, _)| has(names)).map_or(&[][..], |row| row.1);
    if options.is_empty() && !is_mpi {
        return;
    }
    let words: Vec<&str> =
        text.split([' ', '=']).filter(|word| !word.is_empty()).take(MAX_TOKENS).collect();
    let value = |names: &[&str]| option_value(&words, names);
    let whole = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok();
    let joined = || words.iter().find_map(|word| whole(word.strip_prefix("-N")?));
    let stated = value(options).and_then(whole);
    let stated = stated.or_else(|| options.contains(&"-N").then(joined)?);
    let listed = value(&["-H", "-host", "--host", "-hosts", "--hosts"])
        .filter(|list| is_mpi && !list.contains('$'));
    let hosts = |list: &str| -> BTreeSet<String> {
        list.split(',').filter_map(|host| Some(host.split(':').next()?.to_owned())).collect()
    };
    let listed = listed.map(|list| u32::try_from(hosts(list).len()).unwrap_or(1));
    // `--map-by ppr:8:node`.
    let by_map =
        || whole(words.iter().find_map(|word| word.strip_prefix("ppr:"))?.strip_suffix(":node")?);
    let processes = value(&["-np", "-n", "--ntasks"]).and_then(whole);
    context.processes = context.processes.or(processes.filter(|n| (1..=1 << 20).contains(n)));
    let each = value(&EACH_NODE).and_then(whole).or_else(by_map).filter(|each| *each > 0);
    let of_ranks = processes.zip(each).map(|(ranks, each)| ranks.div_ceil(each));
    let count = stated.or(listed).or(of_ranks).filter(|count| (1..=1 << 20).contains(count));
    context.nodes = context.nodes.or(count);
}

/// What stands behind one of several names of an option.
pub fn option_value<'t>(words: &[&'t str], names: &[&str]) -> Option<&'t str> {
    words.windows(2).find_map(|pair| match *pair {
        [name, value] if names.contains(&name) => Some(value),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> PasteContext {
        let mut context = PasteContext::default();
        for line in text.lines() {
            take(&mut context, line);
        }
        context
    }

    #[test]
    fn nvlinks_of_a_pair_are_counted() {
        for (text, links) in [
            ("the maximum of 4x NVLink (each 25GB/s)", Some(4)),
            ("two V100 joined by two NVLinks", Some(2)),
            ("je 6 NVLink-Verbindungen, und 4 PCIe", Some(6)),
            ("两张A100之间有4条NVLink", Some(4)),
            ("8x NVLink GPUs of generation 4 NVLink", None),
        ] {
            assert_eq!(found(text).nvlinks, links, "{text}");
        }
    }

    #[test]
    fn adapters_are_counted_with_their_rate() {
        for (text, nodes, adapters, gbits) in [
            ("4 nodes, each with 4 HDR200 adapters", Some(4), Some(4), Some(200.0)),
            ("drei Knoten mit je acht Adaptern (NDR400)", Some(3), Some(8), Some(400.0)),
            ("deux nœuds, chacun avec 8x400G", Some(2), Some(8), Some(400.0)),
            ("Eight NDR400 adapters in each of the 8 nodes.", Some(8), Some(8), Some(400.0)),
            ("two machines, 8x400G", Some(2), Some(8), Some(400.0)),
            ("A100 * 8, IB 200Gb * 4 in each of two nodes.", Some(2), Some(4), Some(200.0)),
            (
                "Six machines of eight A100 80G, eight 100Gb RoCE adapters each",
                Some(6),
                Some(8),
                Some(100.0),
            ),
            ("8 clients with one 200 Gbit/s adapter each", Some(8), Some(1), Some(200.0)),
            ("3 servers with 8 A100 SXM4 40G GPU and 4 x HDR cards", Some(3), Some(4), Some(200.0)),
            ("two nodes with 2 x ConnectX-6 (HDR)", Some(2), Some(2), Some(200.0)),
            ("a link of 400Gb/sec (4X NDR)", None, None, Some(400.0)),
            ("NCCL uses only 1 HCA", None, None, None),
            ("I get 25 GB/s of 100 GB/s between 2 nodes", Some(2), None, None),
            (
                "Two GH200 nodes, one Slingshot 200 Gbit/s adapter each",
                Some(2),
                Some(1),
                Some(200.0),
            ),
            ("adapters of 200 Gbps", None, None, Some(200.0)),
            ("2 clients, 100 Gbit/s each", Some(2), None, Some(100.0)),
            ("both on gigabit ethernet", None, None, Some(1.0)),
            ("10 gigabit ethernet", None, None, Some(10.0)),
            ("two workstations with 10GbE", Some(2), None, Some(10.0)),
            ("two rigs with 10GbE", None, None, Some(10.0)),
            ("SATA SSD (6 Gbit/s), 10 jobs", None, None, None),
            ("one rank per compute node", None, None, None),
            ("from node 1 to node 2, ConnectX 7 cards, 4 host threads", None, None, None),
        ] {
            let found = found(text);
            assert_eq!(
                (found.nodes, found.adapters, found.network_gbits),
                (nodes, adapters, gbits),
                "{text}"
            );
        }
    }

    #[test]
    fn drives_and_slots_are_counted_with_their_link() {
        let four = found("four PCIe 4 NVMe drives in the RAID, A100 SXM");
        assert_eq!((four.drives, four.pcie_most), (Some(4), None));
        assert!((four.drive_gbs.unwrap() - 7.877).abs() < 1e-3);
        assert_eq!(found("one SATA SSD (6 Gbit/s)").drive_gbs, Some(0.6));
        assert_eq!(found("the card sits in a PCIe 4.0 x8 slot").pcie_most, Some((16.0, 8)));
        assert_eq!(found("PCIe Gen 3 x16").pcie_most, Some((8.0, 16)));
        assert_eq!(found("NVIDIA A100 80GB PCIe").pcie_most, None);
    }

    #[test]
    fn launchers_state_nodes() {
        for (text, nodes) in [
            ("srun -N 2 -n 4 ./osu_bw -d rocm", 2),
            ("#SBATCH -N 4\nsrun -N1 hostname", 4),
            ("#SBATCH -N4", 4),
            ("#SBATCH --nodes=8", 8),
            ("#PBS -l select=4:ncpus=64", 4),
            ("#PBS -l nodes=4:ppn=8", 4),
            ("flux run -N 4 -n 32 ./all_reduce_perf", 4),
            ("#flux: -N4", 4),
            ("#BSUB -nnodes 4", 4),
            ("mpirun -np 16 -H a1:8,a2:8 ./all_reduce_perf", 2),
            ("mpirun -np 2 -N 1 ./all_reduce_perf -g 1", 2),
            ("mpirun --hosts cn2,cn3 -np 2 ./osu_bw", 2),
            ("mpirun.mpich -np 4 -ppn 2 ./osu_bw", 2),
            ("mpirun -np 16 --map-by ppr:4:node ./a", 4),
            ("srun --ntasks=16 --ntasks-per-node=8 ./a", 2),
        ] {
            assert_eq!(found(text).nodes, Some(nodes), "{text}");
        }
        assert_eq!(found("mpirun -np ${N} -H ${HOSTS} ./a").nodes, None);
        assert_eq!(found("a node with 8 x H100").gpu_count, Some(8));
        let dies = found("8 GCDs of an MI250X node");
        assert_eq!((dies.gpu_count, dies.nodes), (Some(8), Some(1)));
        let one = found("my 8x H100 node: all_reduce printed 120 GB/s");
        assert_eq!((one.gpu_count, one.nodes), (Some(8), Some(1)));
        assert_eq!(found("8 GPUs on an idle node").nodes, None);
    }
}
