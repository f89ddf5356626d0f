//! Tables of rates whose tool is not known, and rates in sentences: the figure, the part below its peers, and the limit
//! that the paste states for what the rows or the text name.

use pathline_paste::{PlainColumn, PlainRows, PlainTable, StreamTable, size};

use crate::cause_table::CauseFacts;
use crate::checks::CheckPath;
use crate::draft::DraftAnswer;
use crate::figures::{figure, rate};
use crate::host_outliers::slower_of_two;
use crate::memory::explain_streams;
use crate::node_facts::{AnswerBasis, NodeLimits};
use crate::outlier::{DIP, Outlier, median, slow_named, slow_rows, slow_values};
use crate::verdict::percent;

/// Columns and rows that are named.
const MAX_NAMED: usize = 8;
/// Rates that differ by no more than this share are one.
const SAME: f64 = 0.03;
/// Share of the rows that may be slow: more of them are another class.
const FEW: f64 = 0.34;

/// A table of rates.
pub(crate) fn explain(table: &PlainTable, basis: AnswerBasis<'_>) -> DraftAnswer {
    let AnswerBasis { limits: node, context, .. } = basis;
    if table.tool == StreamTable::STATED {
        return explain_sentences(table, basis);
    }
    let outliers: Vec<Outlier> = match table.is_matrix {
        true => slow_ends(table),
        false => table.columns.iter().flat_map(|column| slow_labels(table, column)).collect(),
    };
    // The column with the difference is the headline, else the first one that is a rate.
    let slow = |column: &&PlainColumn| !table.is_matrix && !slow_labels(table, column).is_empty();
    let rates = || table.columns.iter().filter(|column| column.is_rate);
    let is_mean = |column: &&PlainColumn| {
        let lower = column.name.to_lowercase();
        ["busbw", "avg", "average", "mean"].iter().any(|word| lower.contains(word))
    };
    let mean = || rates().find(is_mean).or_else(|| table.columns.iter().find(is_mean));
    let headline = rates().find(slow).or_else(mean).or(rates().next()).or(table.columns.first());
    let values = |column: &PlainColumn| -> Vec<f64> {
        column.values.iter().flatten().copied().filter(|value| *value > 0.0).collect()
    };
    let shown: Vec<&PlainColumn> = if table.is_matrix {
        table.columns.iter().collect()
    } else {
        headline.into_iter().collect()
    };
    let all: Vec<f64> = shown.into_iter().flat_map(values).collect();
    let is_rate = headline.is_some_and(|column| column.is_rate);
    let best = all.iter().copied().fold(0.0, f64::max);
    let middle = median(&all).filter(|_| table.rows == PlainRows::Parts);
    let value = table.total.or(middle).unwrap_or(best);
    let name = headline.filter(|_| !table.is_matrix).map_or("", |column| column.name.as_str());
    let what = [table.title.as_str(), name].into_iter().filter(|part| !part.is_empty());
    let what = what.collect::<Vec<_>>().join(", ");
    let what = if what.is_empty() { "rates".to_owned() } else { what };
    let text = |value: f64| match is_rate {
        true => rate(value),
        false => format!("{} a second", figure(value)),
    };
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let range = match all.len() {
        0 | 1 => String::new(),
        rows => format!("; {rows} figures, {} to {}", text(least), text(best)),
    };
    let words = format!("{what} {} {}", table.tool, table.labels.join(" ")).to_lowercase();
    let path = match table.tool {
        "iperf" => CheckPath::Adapter,
        _ if names(&words, "disk drive nvme ssd hdd file osd ost raid iops mdtest") => {
            CheckPath::Files
        }
        _ => CheckPath::Unknown,
    };
    let meaning = format!("{what}: {} (1 GB = 1e9 B){range}", text(value));
    let mut draft = DraftAnswer::new(path, meaning, Some(value).filter(|_| is_rate));
    draft.limit = "unknown: the paste does not say what joins these parts".to_owned();
    draft.outliers = outliers;
    draft.is_description = is_links(table) && draft.outliers.is_empty();
    draft.also = further_columns(table, headline);
    if !is_rate {
        draft.limit = "none: it counts operations".to_owned();
        draft.ask = "what does one of them do, and with how many at once?".to_owned();
        return draft;
    }
    // busbw of a ring over nodes is what the adapters of each carry.
    let column = headline.filter(|column| column.is_rate && !table.is_matrix);
    let at = column.and_then(|column| column.values.iter().position(|one| *one == value.into()));
    let best =
        at.and_then(|at| table.labels.get(at)).map_or(String::new(), |row| row.to_lowercase());
    let is_ring = ["all_reduce", "all_gather", "reduce_scatter"].iter().any(|op| best.contains(op));
    let is_ring = is_ring && context.nodes.is_some_and(|nodes| nodes > 1);
    match node.filter(|_| is_ring).and_then(|node| node.limit_of(CheckPath::NetCollective)) {
        Some((gbs, text)) => {
            draft.path = CheckPath::NetCollective;
            draft.set_limit(gbs, "ring.network", text);
        }
        None => set_limit(&mut draft, &words, basis),
    }
    // One stream of TCP is the work of one core at each end.
    if table.tool == "iperf" && table.labels.len() == 1 && draft.is_less() {
        let facts = CauseFacts::new(&[("share", draft.share().unwrap_or(0.0))]);
        draft.edits.push(facts.cause("adapter.one-stream"));
    }
    // What is not known to be over that path is not slow for it.
    if table.tool == "table" && draft.is_less() {
        draft.condition = "these figures are of that path".to_owned();
    }
    draft
}

/// Whether a word begins with one of these names.
fn names(words: &str, all: &str) -> bool {
    let mut words = words.split(|c: char| !c.is_alphabetic() && c != '2');
    words.any(|word| all.split(' ').any(|name| word.starts_with(name)))
}

/// The limit that the paste states for what the words name; more than one is none.
fn set_limit(draft: &mut DraftAnswer, words: &str, basis: AnswerBasis<'_>) {
    let AnswerBasis { limits: node, context, .. } = basis;
    let has = |all: &str| names(words, all);
    let drive = match has("write") && !has("read") {
        true => context.rated_gbs.1,
        false => context.rated_gbs.0,
    };
    let is_perftest =
        ["ib_send_bw", "ib_write_bw", "ib_read_bw"].iter().any(|name| context.prose.contains(name));
    let network = node.filter(|node| {
        node.nic_gbs > 0.0 && (is_perftest || has("iperf host node server net eth ib"))
    });
    let host = node.filter(|node| node.pcie_gbs > 0.0 && has("h2d d2h htod dtoh pcie"));
    let limit = match (network, host, drive.filter(|_| has("read write disk drive nvme"))) {
        (Some(node), None, None) => {
            let source = node.nic_source.label();
            let text = format!("{} of an adapter each way ({source})", rate(node.nic_gbs));
            Some((node.nic_gbs, text, "adapter.line"))
        }
        (None, Some(node), None) => {
            let text =
                format!("{} each way, PCIe ({})", rate(node.pcie_gbs), node.pcie_source.label());
            Some((node.pcie_gbs, text, "host.pcie"))
        }
        (None, None, Some(gbs)) => {
            let text = format!("{}, the rating of a drive (in the paste)", rate(gbs));
            Some((gbs, text, "file.drive-rated"))
        }
        _ => None,
    };
    match limit {
        Some((gbs, text, path)) => draft.set_limit(gbs, path, text),
        None => {
            draft.ask = match context.commands.is_empty() {
                true => "which tool printed it, and what is the rate of the link?",
                false => "what is the rate of the link?",
            }
            .to_owned();
        }
    }
}

/// Whether a table counts the links of each GPU.
fn is_links(table: &PlainTable) -> bool {
    table.tool == "nvidia-smi nvlink"
}

/// Rows of a column that are below their peers, or below the sizes next to them.
fn slow_labels(table: &PlainTable, column: &PlainColumn) -> Vec<Outlier> {
    let pairs = table.labels.iter().zip(&column.values);
    let pairs: Vec<(&String, f64)> =
        pairs.filter_map(|(label, value)| Some((label, (*value)?))).collect();
    if table.rows == PlainRows::Series && column.is_rate {
        // Steps and threads are no sizes.
        let is_size = |label: &str| {
            let lower = label.to_lowercase();
            let named = ["size", "byte", "block", "msg"].iter().any(|word| lower.contains(word));
            named || lower.ends_with('b') || lower.ends_with(['k', 'm', 'g'])
        };
        let bytes = |label: &str| {
            let word = label.split([' ', '=']).next_back()?;
            size(word).filter(|_| is_size(label))
        };
        let rows = pairs.iter().filter_map(|(label, value)| Some((bytes(label)?, *value)));
        return slow_rows(&rows.collect::<Vec<_>>(), DIP);
    }
    if table.rows != PlainRows::Parts {
        return Vec::new();
    }
    let values: Vec<f64> = pairs.iter().map(|pair| pair.1).collect();
    if is_links(table) {
        // Where links are active, one that is stated as inactive is down; a list that was cut is no loss. Boards may
        // join GPUs by fewer links than these have: then all have the same number.
        let are_alike = values.len() > 1 && values.windows(2).all(|pair| pair[0] == pair[1]);
        let listed = table.columns.iter().find(|column| column.name == "links");
        let listed = listed.into_iter().flat_map(|column| column.values.iter().flatten());
        let is_counted =
            column.name == "active links" && !are_alike && values.iter().any(|value| *value > 0.0);
        let fewer = pairs.iter().zip(listed).filter(|(pair, all)| is_counted && pair.1 < **all);
        let check = "nvidia-smi nvlink -e and dmesg | grep -i xid; fabric manager; pathline health";
        let one = |((label, value), all): (&(&String, f64), &f64)| {
            Outlier::new((*label).clone(), *value, *all, "links", "this GPU").checked_by(check)
        };
        return fewer.map(one).take(MAX_NAMED).collect();
    }
    let unit = if column.is_rate { "GB/s" } else { "a second" };
    let check =
        "the same on that part alone, then exchanged with a peer: its link, slot and settings";
    let slow = slow_values(&values, FEW).or_else(|| slower_of_two(&values));
    let Some((slow, usual)) = slow else { return Vec::new() };
    let each = slow.into_iter().take(MAX_NAMED).filter_map(|at| {
        let (label, value) = *pairs.get(at)?;
        let part = [label.as_str(), &column.name].into_iter().filter(|part| !part.is_empty());
        let part = part.collect::<Vec<_>>().join(", ");
        Some(Outlier::new(part, value, usual, unit, "its peers").checked_by(check))
    });
    each.collect()
}

/// Ends of a matrix whose row or column is below those of the others, else single cells.
fn slow_ends(table: &PlainTable) -> Vec<Outlier> {
    let cell = |from: usize, to: usize| {
        table
            .columns
            .get(to)?
            .values
            .get(from)
            .copied()
            .flatten()
            .filter(|value| *value > 0.0 && from != to)
    };
    let all = 0..table.labels.len();
    let median_of = |values: &dyn Fn(usize) -> Option<f64>| {
        median(&all.clone().filter_map(values).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let rows: Vec<f64> = all.clone().map(|from| median_of(&|to| cell(from, to))).collect();
    let columns: Vec<f64> = all.clone().map(|to| median_of(&|from| cell(from, to))).collect();
    let mut found = Vec::new();
    for (values, way) in [(&rows, "from"), (&columns, "to")] {
        let named = table.labels.iter().zip(values);
        let named: Vec<(String, f64)> =
            named.map(|(label, value)| (format!("{way} {label}"), *value)).collect();
        found.extend(slow_named(&named, FEW, "the others"));
    }
    let pairs = all.clone().flat_map(|from| all.clone().map(move |to| (from, to)));
    let cells = pairs.filter_map(|(from, to)| {
        let part = format!("{} to {}", table.labels.get(from)?, table.labels.get(to)?);
        Some((part, cell(from, to)?))
    });
    let cells: Vec<(String, f64)> = cells.collect();
    // Few cells: a tenth of them, or both directions of one pair.
    let few = 0.1_f64.max(2.0 / cells.len().max(1) as f64);
    if found.is_empty() {
        found.extend(slow_named(&cells, few, "the other pairs"));
    }
    let check = "the same between these two alone; the counters and the rate of both ports";
    found.into_iter().take(MAX_NAMED).map(|one| one.checked_by(check)).collect()
}

/// The first figures of each other column, or all of the one.
fn further_columns(table: &PlainTable, headline: Option<&PlainColumn>) -> Vec<String> {
    let is_listed = |column: &&PlainColumn| {
        !table.is_matrix && (Some(*column) != headline || table.labels.len() > 1)
    };
    let line = |column: &PlainColumn| {
        let pairs = table.labels.iter().zip(&column.values);
        let each = pairs.filter_map(|(label, value)| {
            let value = (*value)?;
            let value = if column.is_rate { rate(value) } else { figure(value) };
            Some(if label.is_empty() { value } else { format!("{label} {value}") })
        });
        let each = each.take(MAX_NAMED).collect::<Vec<_>>().join(", ");
        if column.name.is_empty() { each } else { format!("{}: {each}", column.name) }
    };
    table.columns.iter().filter(is_listed).take(MAX_NAMED / 2).map(line).collect()
}

/// Words in a text and the path that they refer to. The first row with a match decides.
const SUBJECTS: [(&str, CheckPath); 8] = [
    ("ib_write_bw|ib_read_bw|ib_send_bw|perftest", CheckPath::Adapter),
    ("gdsio|cufile|gpudirect storage|bam |libnvm", CheckPath::DirectFiles),
    ("fio |elbencho|ssd|nvme|oflag=|hdparm", CheckPath::Files),
    ("nccl|rccl|all_reduce|all_gather|allreduce|allgather", CheckPath::NodeCollective),
    ("osu_|openmpi|open mpi|mpich|ucx", CheckPath::GpuMessage),
    (
        "bandwidth_test|bandwidth-test|nvbandwidth|p2p|nvlink|xgmi|transferbench",
        CheckPath::GpuPairs,
    ),
    ("pinned|host to device|h2d|d2h|bandwidthtest|cpu to gpu", CheckPath::HostCopies),
    ("hbm|babelstream|roofline|memory bandwidth", CheckPath::Memory),
];

/// Rates that sentences state, next to what they name or what the parts that they name carry. Words give no cause.
pub(crate) fn explain_sentences(table: &PlainTable, basis: AnswerBasis<'_>) -> DraftAnswer {
    let context = basis.context;
    let column = |at: usize| table.columns.get(at).map_or(&[][..], |column| &column.values);
    let value = |kind: usize, at: usize| column(kind).get(at).copied().flatten();
    let rows = (0..table.labels.len()).map(|at| [0, 1, 2].map(|kind| value(kind, at)));
    let rows: Vec<[Option<f64>; 3]> = rows.collect();
    let each = table.labels.iter().zip(&rows).map(|(label, row)| match *row {
        [Some(stated), Some(ceiling), _] => {
            let share = percent(stated / ceiling);
            format!("{} of {} that it names, {share} ({label})", rate(stated), rate(ceiling))
        }
        [Some(stated), None, Some(expected)] => {
            format!("{}, compared with {} ({label})", rate(stated), rate(expected))
        }
        [Some(stated), None, None] => format!("{} ({label})", rate(stated)),
        [None, ceiling, expected] => {
            let named = ceiling.or(expected).unwrap_or(0.0);
            format!("{} that it names ({label})", rate(named))
        }
    });
    let is_words = |list: &str| list.split('|').any(|word| context.prose.contains(word));
    // The command that was run says more than what is compared with it.
    let commands = context.commands.join("\n");
    let is_run = |list: &str| list.split('|').any(|word| commands.contains(word));
    let subject = SUBJECTS.iter().find(|(words, _)| is_run(words));
    let subject = subject.or_else(|| SUBJECTS.iter().find(|(words, _)| is_words(words)));
    let is_network = context.nodes.is_some_and(|nodes| nodes > 1);
    let path = match subject.map_or(CheckPath::Unknown, |subject| subject.1) {
        CheckPath::NodeCollective if is_network => CheckPath::NetCollective,
        CheckPath::GpuMessage if context.gpus.is_empty() => CheckPath::HostMessage,
        CheckPath::Files if !context.gpus.is_empty() && !is_words("fio ") => CheckPath::DirectFiles,
        path => path,
    };
    let node = basis.limits.filter(|_| context.gpus.len() <= 1);
    let stated: Vec<f64> = rows.iter().filter_map(|row| row[0]).collect();
    // No link of a GPU reaches a TB/s: such a rate is of its memory.
    let is_memory = !stated.is_empty() && stated.iter().all(|gbs| *gbs >= 1e3);
    if is_memory && context.gpus.len() == 1 && is_words("hbm|memory|triad|stream|vram|copy kernel")
    {
        let rows = stated.into_iter().map(|gbs| ("stated".to_owned(), gbs)).collect();
        let table = StreamTable { tool: StreamTable::STATED, rows };
        return explain_streams(&table, AnswerBasis { limits: node, ..basis });
    }
    let of_parts = node.and_then(|node| node.limit_of(path));
    let each = each.collect::<Vec<_>>().join("; ");
    let mut draft = DraftAnswer::new(path, format!("rates that the text states: {each}"), None);
    draft.limit = "unknown: the paste does not say what joins these parts".to_owned();
    draft.note = "words show no cause: the output of the tool would".to_owned();
    // What somebody counts on is a limit if a link of these parts has it.
    let links = node.map(|n| [n.link_gbs, n.pair_gbs, n.links_gbs, n.pcie_gbs, n.nic_gbs]);
    let is_link = |gbs: &f64| links.iter().flatten().any(|link| (gbs / link - 1.0).abs() < SAME);
    let pair = rows.iter().find_map(|row| row[0].zip(row[1].or(row[2].filter(is_link))));
    match (pair, of_parts) {
        (Some((stated, named)), _) => {
            (draft.value, draft.limit_gbs) = (Some(stated), Some(named));
            draft.limit = format!("{}, which the text names", rate(named));
            let wiring = node.map(|node| format!("links of these parts: {}", node.wiring_text()));
            draft.also = wiring.into_iter().collect();
        }
        (None, Some((gbs, text))) if stated.iter().all(|rate| *rate <= gbs * (1.0 + SAME)) => {
            draft.limit = text;
            // Of several figures it is not known which one passes there.
            if let [only] = stated[..] {
                (draft.value, draft.limit_gbs) = (Some(only), Some(gbs));
            }
        }
        // What is faster passes another way.
        (None, _) => {
            draft.ask = match path {
                _ if stated.is_empty() => "what did the tool measure?",
                CheckPath::Adapter | CheckPath::NetCollective => "what is the rate of an adapter?",
                _ => "which parts and links, and what did the tool print?",
            }
            .to_owned();
        }
    }
    if let (None, [_, _, ..]) = (pair, &stated[..]) {
        let least = stated.iter().copied().fold(f64::INFINITY, f64::min);
        let most = stated.iter().copied().fold(0.0, f64::max);
        draft.also.push(format!("the least is {} of the greatest", percent(least / most)));
    }
    draft
}

impl NodeLimits {
    /// What carries the traffic of a path each way, GB/s, with its source; none where that is not known.
    pub(crate) fn limit_of(&self, path: CheckPath) -> Option<(f64, String)> {
        let (gbs, text) = match path {
            CheckPath::Adapter => {
                (self.nic_gbs, self.nic_source.each_way(self.nic_gbs, "an adapter"))
            }
            CheckPath::NetCollective => {
                let nics = self.nics_used.or(self.nics).unwrap_or(1);
                let total = f64::from(nics) * self.nic_gbs;
                let of = if nics == 1 { "one adapter" } else { "the adapters" };
                (total, self.nic_source.each_way(total, &format!("{of} of a node")))
            }
            CheckPath::GpuPairs | CheckPath::NodeCollective => {
                (self.fabric_gbs(), self.link_text())
            }
            CheckPath::HostCopies | CheckPath::DirectFiles => {
                (self.pcie_gbs, self.pcie_source.each_way(self.pcie_gbs, self.host_link))
            }
            _ => return None,
        };
        (gbs > 0.0).then_some((gbs, text))
    }
}
