//! Rates in sentences, compared with the rate that the text expects or with what its parts carry.

use pathline_paste::{PlainTable, StreamTable};

use crate::checks::CheckPath;
use crate::draft::DraftAnswer;
use crate::figures::rate;
use crate::memory::explain_streams;
use crate::node_facts::{AnswerBasis, NodeLimits};
use crate::verdict::percent;

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
    let rows: Vec<(Option<f64>, Option<f64>)> =
        column(0).iter().copied().zip(column(1).iter().copied()).collect();
    let each = table.labels.iter().zip(&rows).map(|(label, row)| match *row {
        (Some(stated), Some(named)) => {
            let share = percent(stated / named);
            format!("{} of {} that it names, {share} ({label})", rate(stated), rate(named))
        }
        (stated, named) => {
            let what = if stated.is_none() { " that it names" } else { "" };
            format!("{}{what} ({label})", rate(stated.or(named).unwrap_or(0.0)))
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
    let stated: Vec<f64> = rows.iter().filter_map(|row| row.0).collect();
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
    let pair = rows.iter().find_map(|row| row.0.zip(row.1));
    match (pair, of_parts) {
        (Some((stated, named)), _) => {
            (draft.value, draft.limit_gbs) = (Some(stated), Some(named));
            draft.limit = format!("{}, which the text names", rate(named));
            let wiring = node.map(|node| format!("links of these parts: {}", node.wiring_text()));
            draft.also = wiring.into_iter().collect();
        }
        (None, Some((gbs, text))) => {
            draft.limit = text;
            // Of several figures it is not known which one passes there.
            if let [only] = stated[..] {
                (draft.value, draft.limit_gbs) = (Some(only), Some(gbs));
            }
        }
        (None, None) => {
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
