//! Counts that the text around outputs states with a number: nodes, adapters and their rate, NVLinks of a pair.

use crate::document::PasteContext;

/// Takes what a line counts.
pub(crate) fn take(context: &mut PasteContext, text: &str) {
    nodes_of_launcher(context, text);
    nvlinks(context, text);
    network(context, text);
    counts(context, text);
}

/// `NV4`: NVLinks of a pair, as `nvidia-smi topo -m` writes them; of several the most.
fn nvlinks(context: &mut PasteContext, text: &str) {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).take(512);
    let links = words.filter_map(|word| word.strip_prefix("NV")?.parse().ok());
    let most = links.filter(|links| (1..=64).contains(links)).max();
    context.nvlinks = context.nvlinks.max(most);
}

/// `srun -N 2`, `#SBATCH --nodes=8`, `#PBS -l select=4:ncpus=64`.
fn nodes_of_launcher(context: &mut PasteContext, text: &str) {
    let launches =
        ["srun ", "salloc ", "sbatch ", "#SBATCH "].iter().any(|name| text.contains(name));
    let selects = text.strip_prefix("#PBS ").and_then(|rest| rest.split_once("select="));
    let words: Vec<&str> =
        text.split([' ', '=']).filter(|word| !word.is_empty()).take(256).collect();
    let stated = words.windows(2).find_map(|pair| match *pair {
        ["-N" | "--nodes", count] if launches => count.parse().ok(),
        _ => None,
    });
    let selected = selects.and_then(|(_, rest)| rest.split([':', ' ']).next()?.parse().ok());
    let count = stated.or(selected).filter(|count| (1..=1 << 20).contains(count));
    context.nodes = context.nodes.or(count);
}

/// `rate: 400 Gb/sec (4X NDR)`, `2 x 200Gbps HDR`: the line rate of an adapter.
fn network(context: &mut PasteContext, text: &str) {
    if context.network_gbits.is_some() || !text.contains(['G', 'g', 'R']) {
        return;
    }
    let named = [
        ("XDR", 800.0),
        ("NDR200", 200.0),
        ("NDR", 400.0),
        ("HDR100", 100.0),
        ("HDR", 200.0),
        ("EDR", 100.0),
        ("FDR", 56.0),
    ];
    let is_word =
        |name: &str| text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == name);
    let rate = named.iter().find(|(name, _)| is_word(name)).map(|&(_, rate)| rate);
    let lower = text.to_lowercase();
    let about_nic = [
        " roce",
        "infiniband",
        "connectx",
        "cx-",
        "cx5",
        "cx6",
        "cx7",
        "mellanox",
        "nic",
        "rdma",
        "ethernet",
        "network",
        "adapter",
        "gbe",
        "hca",
        "efa",
        "slingshot",
        "broadcom",
        " ib ",
        "rate:",
        "qsfp",
        "ports",
    ];
    let written = about_nic.iter().any(|word| lower.contains(word)).then(|| {
        let rates = [800.0, 400.0, 200.0, 100.0, 50.0, 56.0, 40.0, 25.0, 10.0];
        rates.into_iter().find(|rate| {
            ["g ", "gb", " gb", "gbps", "g,", "gbe"].iter().any(|unit| {
                let needle = format!("{rate}{unit}");
                lower.match_indices(&needle).any(|(at, _)| {
                    let before = lower.get(..at).unwrap_or_default();
                    // `40 GB/s` is no line rate: those are in bits.
                    let is_bytes = text.get(at..).is_some_and(|rest| {
                        let unit =
                            rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
                        ["GB", "GiB", "gB"].iter().any(|bytes| unit.starts_with(bytes))
                            && !unit.starts_with("GBE")
                    });
                    !is_bytes && !before.ends_with(|c: char| c.is_ascii_digit() || c == '.')
                })
            })
        })
    });
    context.network_gbits = context.network_gbits.or(rate).or(written.flatten());
}

/// `2 nodes`, `two ... servers`, `8 x 200 Gb/s`, `4 nics`: how many nodes, and adapters of a node.
fn counts(context: &mut PasteContext, text: &str) {
    const NUMBERS: [&str; 9] =
        ["", "single", "two", "three", "four", "five", "six", "seven", "eight"];
    const NODES: [&str; 11] = [
        "node", "server", "machine", "instance", "host", "cluster", "dgx", "hgx", "box", "boxe",
        "system",
    ];
    const ADAPTERS: [&str; 6] = ["nic", "adapter", "hca", "rail", "network card", "gbps"];
    // `rate: 100 Gb/sec (4X EDR)` counts lanes.
    if text.len() > 4096 || text.contains("Gb/sec (") {
        return;
    }
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | '*' | ';' | ':'))
        .filter(|word| !word.is_empty() && *word != "x")
        .collect();
    for (at, word) in words.iter().enumerate() {
        // `8x400G`: adapters and the rate of one.
        if let Some((count, rate)) = word.split_once('x')
            && let Ok(count @ 1..=32) = count.parse::<u32>()
            && let Some(gbits @ ("25" | "40" | "50" | "100" | "200" | "400" | "800")) =
                ["g", "gb", "gbe", "gbps", "gb/s", "gbit/s"]
                    .iter()
                    .find_map(|unit| rate.strip_suffix(unit))
            && !text.contains("GB/s each")
        {
            context.adapters = context.adapters.or(Some(count));
            context.network_gbits = context.network_gbits.or(gbits.parse().ok());
            continue;
        }
        let digits = word.trim_end_matches('x');
        let named = NUMBERS.iter().position(|name| !name.is_empty() && name == word);
        let count = named.and_then(|n| u32::try_from(n).ok()).or_else(|| digits.parse().ok());
        let Some(count) = count.filter(|n| (1..=4096).contains(n)) else { continue };
        // `uses only 1 HCA` is no count of what there is.
        let before = at.checked_sub(1).and_then(|before| words.get(before)).copied();
        if before.is_some_and(|word| matches!(word, "only" | "just" | "uses" | "using")) {
            continue;
        }
        let following = |most: usize| words.iter().skip(at + 1).take(most);
        let is = |word: &str, names: &[&str]| {
            let word = word.trim_end_matches(['s', '.', '?']);
            // `DGX-1`, `HGX-H100`.
            let word = word.split_once('-').map_or(word, |(family, _)| match family {
                "dgx" | "hgx" => family,
                _ => word,
            });
            names.contains(&word)
        };
        if context.nodes.is_none() && following(3).any(|word| is(word, &NODES)) {
            context.nodes = Some(count);
        }
        // `8 100Gbps`, `8 x 200 Gb/s`: a count before the rate of one.
        let rate = words.get(at + 1).is_some_and(|next| {
            let is_rate = next.ends_with("gbps") || next.ends_with("gb/s") || next.ends_with('g');
            let unit = words.get(at + 2).is_some_and(|unit| unit.starts_with("gb"));
            let number = next.trim_end_matches(|c: char| !c.is_ascii_digit());
            (is_rate || unit)
                && matches!(number, "25" | "40" | "50" | "56" | "100" | "200" | "400" | "800")
        });
        // `4x HDR 200Gb/s`, `4 Mellanox ConnectX-6`: a count before the name of one.
        let named = words.get(at + 1).is_some_and(|next| {
            let names = [
                "hdr",
                "ndr",
                "edr",
                "fdr",
                "infiniband",
                "mellanox",
                "connectx",
                "cx",
                "efa",
                "ib",
            ];
            names.iter().any(|name| {
                let rest = next.strip_prefix(name);
                rest.is_some_and(|rest| {
                    rest.trim_end_matches(['s', '.']).bytes().all(|b| b"-0123456789".contains(&b))
                })
            })
        });
        let names_nic = named || following(3).any(|word| is(word, &ADAPTERS));
        if context.adapters.is_none() && count <= 32 && (rate || names_nic) {
            context.adapters = Some(count);
        }
    }
}
