//! Rates in sentences: what they are compared with, and causes. A rate whose subject is known is judged as
//! the one row of a table of that subject.

use pathline_paste::{
    CollectiveRow, CollectiveTable, CopyMeans, FileIoResult, LineSpan, MatrixEnd, MatrixTool,
    MessageTable, MessageTest, NcclLog, NetworkTable, PasteReading, ProseRate, RateCount,
    RateMatrix, RateRole,
};
use pathline_schema::Collective;

use crate::answer::DraftAnswer;
use crate::node_facts::{NodeLimits, figure};
use crate::product_facts::FabricKind;
use crate::score::{AnswerClass, ObservedFeature, WorldEdit};
use crate::sentence_topics::SentenceTopic;
use crate::text_cues::PasteWords;
use crate::topic_causes::{TOPIC_CAUSES, TopicCause};
use crate::{collectives, copies, io, messages};

/// A sentence with its figures.
struct StatedFigures<'a> {
    observed: &'a ProseRate,
    wanted: Option<&'a ProseRate>,
    topic: Option<SentenceTopic>,
}

/// What sentences say of rates.
pub(crate) fn explain(
    reading: &PasteReading,
    node: Option<&NodeLimits>,
    log: Option<&NcclLog>,
    words: &PasteWords,
) -> Option<(LineSpan, &'static str, DraftAnswer)> {
    let stated = StatedFigures::new(reading, words)?;
    let StatedFigures { observed, wanted, topic } = stated;
    let collective = topic == Some(SentenceTopic::Collective);
    let value = observed.gbs;
    let network = network_gbs(reading, &stated).filter(|_| collective);
    let mut draft = match network {
        Some(network) => {
            let mut draft = DraftAnswer::default();
            network_edits(&mut draft, reading, &stated, network, words);
            draft
        }
        None => as_row(&stated, reading, node, log, words).unwrap_or_default(),
    };
    let expected = wanted.map(|rate| rate.gbs);
    let fabric = node.map(|node| match topic {
        Some(SentenceTopic::HostCopy) => node.pcie_gbs,
        _ => node.fabric_gbs(),
    });
    let limit = network.or(expected).or(fabric).or(draft.limit_gbs)?;
    draft.meaning = format!(
        "{} in a sentence{}{}, compared with {} GB/s",
        observed.text,
        if topic.is_some() { " " } else { "" },
        topic.map_or("", SentenceTopic::label),
        figure(limit)
    );
    if network.is_none() {
        draft.limit = match (wanted, node) {
            (Some(wanted), Some(node)) => {
                format!("{} is what the text expects; {}", wanted.text, node.link_text())
            }
            (Some(wanted), None) => format!("{} is what the text expects", wanted.text),
            (None, Some(node)) => node.link_text(),
            _ if draft.limit.is_empty() => "unknown".to_owned(),
            _ => std::mem::take(&mut draft.limit),
        };
    }
    (draft.value, draft.limit_gbs) = (Some(value), Some(limit));
    if network.is_none() {
        let scale = main_feature(&mut draft, value, limit);
        comparison_edits(&mut draft, &stated, limit, node, &scale);
    }
    match topic {
        Some(topic) => words.add_topic(&mut draft, topic, 1.4),
        None => SentenceTopic::ALL.into_iter().for_each(|t| words.add_topic(&mut draft, t, 2.4)),
    }
    // On one node no network takes part.
    if collective && network.is_none() && !words.fits(NETWORK_WORDS) {
        for edit in draft.edits.iter_mut().filter(|edit| NETWORK_CAUSES.contains(&edit.id)) {
            edit.evidence -= 2.0;
        }
    }
    if wanted.is_some_and(|wanted| has_one_method(observed, wanted)) {
        for edit in draft.edits.iter_mut().filter(|edit| METHOD_CAUSES.contains(&edit.id)) {
            edit.evidence -= 2.5;
        }
    }
    if topic == Some(SentenceTopic::HostCopy)
        && let Some((slow, other)) = wanted.and_then(|wanted| opposite_ways(observed, wanted))
    {
        // Both directions pass the same link, in the same slot.
        for edit in &mut draft.edits {
            edit.evidence += match edit.id {
                id if id == slow => 2.5,
                id if id == other => -3.0,
                "narrow-pcie" | "idle-link-speed" | "pageable" | "through-host-memory" => -2.0,
                _ => 0.0,
            };
        }
    }
    let last = wanted.map_or(observed.line, |w| w.line.max(observed.line));
    let first = wanted.map_or(observed.line, |w| w.line.min(observed.line));
    Some((LineSpan { first, last }, "text", draft))
}

impl<'a> StatedFigures<'a> {
    /// The figure that was measured and what it is compared with.
    fn new(reading: &'a PasteReading, words: &PasteWords) -> Option<Self> {
        let context = &reading.context;
        // The line rate of an adapter is no figure that was measured.
        let line = context.network_gbits.map(|gbits| gbits / 8.0);
        let is_line = |rate: &ProseRate| {
            line == Some(rate.gbs)
                && rate.text.ends_with(['b', 's'])
                && !rate.text.contains('B')
                && rate.role != RateRole::Measured
        };
        let all: Vec<&ProseRate> = context.rates.iter().filter(|rate| !is_line(rate)).collect();
        let of = |role: RateRole| all.iter().copied().filter(move |rate| rate.role == role);
        // What the writer measured before what others state.
        let is_own = |rate: &&ProseRate| {
            ["we ", " i ", "i ", " my ", " our ", "i'm "].iter().any(|word| {
                rate.around.match_indices(word).any(|(at, _)| {
                    word.starts_with(' ')
                        || at == 0
                        || rate.around.as_bytes().get(at - 1) == Some(&b' ')
                })
            })
        };
        let own = of(RateRole::Measured).find(is_own);
        // What a question names: `What holds the large blocks at 442 MB/s?`
        let is_asked = |rate: &&ProseRate| {
            let text = packed(&rate.text);
            let around = packed(&rate.around);
            let (before, after) = around.split_once(&text).unwrap_or_default();
            let before = before.rsplit(['.', '?', '!']).next().unwrap_or_default();
            if !["why", "what", "how"].iter().any(|word| before.contains(word)) {
                return false;
            }
            after.find('?').is_some_and(|at| {
                at < 24 && after.get(..at).is_some_and(|between| !between.contains(['.', ',', ';']))
            })
        };
        let asked =
            all.iter().copied().find(|rate| rate.role != RateRole::Expected && is_asked(rate));
        let complaint = of(RateRole::Measured).find(|rate| is_complaint(rate));
        let mut observed = asked
            .or(complaint)
            .or(own)
            .or_else(|| of(RateRole::Measured).next())
            .or_else(|| of(RateRole::Unstated).next());
        let mut wanted = observed.and_then(|observed| {
            let differs = |rate: &&&ProseRate| rate.gbs != observed.gbs;
            let expected: Vec<&ProseRate> =
                of(RateRole::Expected).filter(|rate| rate.gbs != observed.gbs).collect();
            let near =
                expected.iter().find(|rate| rate.gbs > observed.gbs && rate.line >= observed.line);
            near.or_else(|| expected.iter().find(differs)).copied()
        });
        if wanted.is_none() {
            // Two figures that were measured: the lower one is asked about.
            let first = observed.or_else(|| all.first().copied())?;
            let near = |rate: &&&ProseRate| {
                rate.line.abs_diff(first.line) <= 6
                    && ((rate.gbs / first.gbs - 1.0).abs() > 0.02
                        || rate.text.contains('B') != first.text.contains('B'))
            };
            let other = all.iter().find(near).copied();
            (observed, wanted) = match other {
                Some(other) if asked.is_some() && other.gbs < first.gbs => (asked, None),
                Some(other) if other.gbs < first.gbs && other.role != RateRole::Expected => {
                    (Some(other), Some(first))
                }
                other => (Some(first), other),
            };
        }
        // `Why is it 20 GB/s instead of 25 GB/s?`
        if let Some(pair) = swapped_pair(&context.rates) {
            (observed, wanted) = pair;
        }
        // `how can it be higher`: the higher one is asked about.
        let exceeds = words.fits("exceed|more than is |far more than|much more than|more than the |higher than|how can|above the|greater than|faster than the|faster than my|faster than phys|possible");
        if exceeds
            && let (Some(low), Some(high)) = (observed, wanted)
            && high.gbs > low.gbs
            && high.role != RateRole::Expected
        {
            (observed, wanted) = (Some(high), Some(low));
        }
        let observed = observed?;
        // An adapter's line rate is what is expected, if nothing else is.
        let wanted = wanted.or_else(|| context.rates.iter().find(|rate| is_line(rate)));
        // No link of a GPU carries as much as its memory.
        let topic = match SentenceTopic::of(words, &observed.around) {
            Some(SentenceTopic::PeerCopy | SentenceTopic::HostCopy) if observed.gbs > 1000.0 => {
                Some(SentenceTopic::LocalMemory)
            }
            topic => topic,
        };
        Some(Self { observed, wanted, topic })
    }

    /// Whether the words next to the figure have one of these.
    fn has(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.observed.around.contains(word))
    }
}

/// `it should be 21, but it levels off at 13`.
fn is_complaint(rate: &ProseRate) -> bool {
    let around = packed(&rate.around);
    let before = around.split_once(&packed(&rate.text)).map_or("", |(before, _)| before);
    let clause = before.rsplit([',', '.', ';']).next().unwrap_or_default();
    clause.starts_with("but") || clause.starts_with("however")
}

/// Lower case without blanks.
fn packed(text: &str) -> String {
    text.to_lowercase().split_whitespace().collect()
}

/// `A instead of B` next to each other: the measured rate and the one that it is compared with.
fn swapped_pair(rates: &[ProseRate]) -> Option<(Option<&ProseRate>, Option<&ProseRate>)> {
    rates.windows(2).find_map(|pair| {
        let [a, b] = pair else { return None };
        let between = |word| format!("{}{word}{}", packed(&a.text), packed(&b.text));
        let around = packed(&b.around);
        let is_pair = a.line == b.line
            && ["insteadof", "ratherthan", "notthe", "andnot"]
                .iter()
                .any(|w| around.contains(&between(w)));
        is_pair.then_some((Some(a), Some(b)))
    })
}

/// Whether two rates stand in lines that differ in their figures alone: one method measured both.
fn has_one_method(observed: &ProseRate, wanted: &ProseRate) -> bool {
    let label =
        |rate: &ProseRate| rate.around.replace(|c: char| c.is_ascii_digit() || c == '.', "");
    observed.line != wanted.line
        && label(observed) == label(wanted)
        && label(observed).trim().len() > 8
}

/// Whether a rate is one to the host, by the name of a direction before it.
fn is_outward(rate: &ProseRate) -> Option<bool> {
    let around = packed(&rate.around);
    let before = around.split_once(&packed(&rate.text)).map_or("", |(before, _)| before);
    let last = |names: [&str; 5]| names.iter().filter_map(|name| before.rfind(name)).max();
    let inward = last(["h2d", "htod", "hosttodevice", "host-to-device", "host_to_device"]);
    let outward = last(["d2h", "dtoh", "devicetohost", "device-to-host", "device_to_host"]);
    (inward != outward).then_some(outward > inward)
}

/// For rates of both directions of host copies: the cause of the slow one, and that of the other.
fn opposite_ways(slow: &ProseRate, fast: &ProseRate) -> Option<(&'static str, &'static str)> {
    match (is_outward(slow)?, is_outward(fast)?) {
        (true, false) => Some(("writes-slow", "reads-slow")),
        (false, true) => Some(("reads-slow", "writes-slow")),
        _ => None,
    }
}

/// Words without which a collective is one of a node.
const NETWORK_WORDS: &str = "node|server|machine|host| nic|adapter|hca|mlx5| ib |infiniband| roce|network| efa|tcp|ethernet|socket|cluster|connectx|rdma|gdr";

/// Causes that lie in the network.
const NETWORK_CAUSES: [&str; 9] = [
    "fewer-adapters",
    "no-gpu-direct",
    "tcp",
    "fabric-routing",
    "gpu-far-from-adapter",
    "single-flow",
    "link-rate-low",
    "network-full",
    "small-mtu",
];

/// Causes that lie in the method of a measurement.
const METHOD_CAUSES: [&str; 8] = [
    "few-in-flight",
    "page-cache",
    "pageable",
    "one-file",
    "small-size",
    "test-bug",
    "host-memory-only",
    "protocol-overhead",
];

/// How a share of the expected rate is written as the feature that all causes of a draft have.
struct FeatureScale {
    id: &'static str,
    /// The feature's value at the limit.
    at_limit: f64,
}

/// The feature of a draft that its causes predict: that of the table's row, or the ratio.
fn main_feature(draft: &mut DraftAnswer, value: f64, limit: f64) -> FeatureScale {
    // What compares cells or sizes with each other says nothing of one figure.
    draft.features.truncate(1);
    let known = draft.features.first().filter(|_| !draft.edits.is_empty());
    match known {
        Some(feature) => {
            FeatureScale { id: feature.id, at_limit: feature.value / value.max(1e-9) * limit }
        }
        None => {
            draft.features = vec![ObservedFeature::new("ratio", (value / limit).max(1e-4))];
            FeatureScale { id: "ratio", at_limit: 1.0 }
        }
    }
}

/// The draft of a table with this one row.
fn as_row(
    stated: &StatedFigures<'_>,
    reading: &PasteReading,
    node: Option<&NodeLimits>,
    log: Option<&NcclLog>,
    words: &PasteWords,
) -> Option<DraftAnswer> {
    let context = &reading.context;
    let value = stated.observed.gbs;
    let both = stated.has(&["bidir", "bi-dir", "both directions"]) && !stated.has(&["unidir"]);
    let matrix = |from, to| RateMatrix {
        tool: MatrixTool::P2pTest,
        test: String::new(),
        is_latency: false,
        count: if both { RateCount::Sum } else { RateCount::OneWay },
        peer_access: None,
        means: CopyMeans::Unstated,
        concurrent: false,
        cells: vec![(from, to, value)],
    };
    let gpu = MatrixEnd::Gpu;
    match stated.topic? {
        SentenceTopic::PeerCopy => {
            node?;
            copies::explain_matrices(&[&matrix(gpu(0), gpu(1))], node, context).into_iter().next()
        }
        SentenceTopic::HostCopy => {
            node?;
            let outward = stated.has(&["d2h", "device to host", "device-to-host", "gpu to cpu"])
                && !stated.has(&["h2d", "host to device", "host-to-device"]);
            let outward = is_outward(stated.observed).unwrap_or(outward);
            let host = MatrixEnd::Host(None);
            let (from, to) = if outward { (gpu(0), host) } else { (host, gpu(0)) };
            let mut matrix = matrix(from, to);
            matrix.count = RateCount::OneWay;
            copies::explain_matrices(&[&matrix], node, context).into_iter().next()
        }
        SentenceTopic::Collective => {
            let table = one_row(stated, node?, context.nodes, words);
            Some(collectives::explain(&table, node, log, context))
        }
        SentenceTopic::Adapter => {
            context.network_gbits?;
            let table = NetworkTable {
                both_ways: both,
                on_gpu: words.fits("use_cuda|use_rocm|gpu memory|gpudirect"),
                rows: vec![(1 << 20, value)],
                ..NetworkTable::default()
            };
            Some(messages::explain_network(&table, node, context))
        }
        SentenceTopic::Messages => {
            let on_gpu = words.fits(" d d |device|gpu memory|cuda|rocm|gpu buffer");
            let table = MessageTable {
                test: if both { MessageTest::BothWays } else { MessageTest::OneWay },
                version: String::new(),
                on_gpu: Some((on_gpu, on_gpu)),
                rows: vec![(1 << 22, value)],
            };
            node?;
            Some(messages::explain(&table, node, context))
        }
        SentenceTopic::Storage => {
            let result = FileIoResult {
                tool: "the tool",
                operation: if words.fits("write") { "write" } else { "read" }.to_owned(),
                gbs: value,
                ..FileIoResult::default()
            };
            let draft = io::explain(&result, &[], context, None);
            // Without a limit and without what is in flight nothing is predicted.
            draft.limit_gbs.map(|_| draft)
        }
        SentenceTopic::LocalMemory | SentenceTopic::HostMemory => None,
    }
}

/// A table of a collective with the figure as its only row, of a size at which starts do not count.
fn one_row(
    stated: &StatedFigures<'_>,
    node: &NodeLimits,
    nodes: Option<u32>,
    words: &PasteWords,
) -> CollectiveTable {
    let nodes = nodes.unwrap_or(1).clamp(1, 4096);
    let gpus = node.gpus.unwrap_or(8).max(2).saturating_mul(nodes);
    let op = match () {
        () if words.fits("all_gather|allgather|all-gather") => Collective::AllGather,
        () if words.fits("reduce_scatter|reducescatter|reduce-scatter") => {
            Collective::ReduceScatter
        }
        () if words.fits("alltoall|all-to-all|all to all|all2all") => Collective::AllToAll,
        () if words.fits("broadcast") && !words.fits("all_reduce|allreduce") => {
            Collective::Broadcast
        }
        () => Collective::AllReduce,
    };
    let factor = op.bus_factor(gpus as usize).max(0.1);
    let is_alg = stated.has(&["algbw", "algorithm b"]) && !stated.observed.around.contains("busbw");
    let busbw = if is_alg { stated.observed.gbs * factor } else { stated.observed.gbs };
    let bytes = stated_size(&stated.observed.around).unwrap_or(1 << 33);
    let algbw = busbw / factor;
    let time_us = bytes as f64 / algbw.max(1e-9) / 1e3;
    CollectiveTable {
        op: Some(op),
        ranks: Some(gpus),
        nodes: Some(nodes),
        rows: vec![CollectiveRow { bytes, time_us, algbw, busbw, in_place_busbw: Some(busbw) }],
        ..CollectiveTable::default()
    }
}

/// Bytes of a message that stands next to a figure: `at 1MB`, `64 KB messages`.
fn stated_size(around: &str) -> Option<u64> {
    let mut words =
        around.split([' ', ',', '(', ')', '=']).filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
        let (digits, unit) = word.split_at(end);
        let Ok(count) = digits.parse::<u64>() else { continue };
        let unit = if unit.is_empty() { words.peek().copied().unwrap_or_default() } else { unit };
        let shift = match unit.trim_end_matches(['.', ':', ';', '?']) {
            "b" | "bytes" | "byte" => 0,
            "kb" | "kib" | "k" => 10,
            "mb" | "mib" | "m" => 20,
            _ => continue,
        };
        return count.checked_shl(shift).filter(|bytes| *bytes > 0);
    }
    None
}

/// Causes that lie in the comparison, and those of the topic that the row's draft lacks.
fn comparison_edits(
    draft: &mut DraftAnswer,
    stated: &StatedFigures<'_>,
    limit: f64,
    node: Option<&NodeLimits>,
    scale: &FeatureScale,
) {
    let value = stated.observed.gbs;
    let at = |edit: WorldEdit, ratio: f64, sigma: f64| {
        edit.expects(scale.id, scale.at_limit * ratio, sigma)
    };
    let topic = stated.topic;
    // What is known of the node's own links says what a text that expects twice as much means.
    let one_way = node.map(|node| match topic {
        Some(SentenceTopic::HostCopy) => node.pcie_gbs,
        _ => node.fabric_gbs(),
    });
    let counts_both = stated.wanted.is_some()
        && one_way.is_some_and(|one| (1.85..2.15).contains(&(limit / one.max(1e-9))));
    let is_io = matches!(
        topic,
        Some(SentenceTopic::Storage | SentenceTopic::LocalMemory | SentenceTopic::HostMemory)
    );
    if stated.wanted.is_some() && !is_io {
        // A line is full by another name, where the text asks for the line's rate.
        let full =
            draft.edits.iter().position(|edit| ["link-full", "pcie-full"].contains(&edit.id));
        let full = full.map(|at| draft.edits.remove(at));
        misreadings(draft, stated, full, counts_both, value / limit * 100.0, &at);
    }
    if let Some(node) = node.filter(|_| topic == Some(SentenceTopic::Collective)) {
        collective_edits(draft, stated, node, limit, &at);
    }
    let of_row: Vec<&str> = draft.edits.iter().map(|edit| edit.id).collect();
    let is_missing = |cause: &&TopicCause| {
        topic.is_some_and(|t| cause.topics.contains(&t)) && !of_row.contains(&cause.id)
    };
    // Tables of copies have all causes of their subject; without a second rate no other can be compared.
    let is_copy = matches!(topic, Some(SentenceTopic::HostCopy | SentenceTopic::PeerCopy));
    let can_compare = stated.wanted.is_some() || scale.id == "ratio" || !is_copy;
    for cause in TOPIC_CAUSES.iter().filter(is_missing).filter(|_| can_compare) {
        let (ratio, sigma) = cause.ratio;
        // What makes a path slow does not make it faster than its limit.
        let exceeds = value > limit * 1.15 && ratio < 0.8;
        let edit = WorldEdit::new(cause.id, cause.class, cause.prior).seen(if exceeds {
            -3.0
        } else {
            0.0
        });
        draft.edits.push(at(edit, ratio, sigma).says(cause.text).decided_by(cause.check));
    }
}

fn misreadings(
    draft: &mut DraftAnswer,
    stated: &StatedFigures<'_>,
    full: Option<WorldEdit>,
    counts_both: bool,
    percent: f64,
    at: &dyn Fn(WorldEdit, f64, f64) -> WorldEdit,
) {
    let links = stated.has(&[
        "xgmi",
        "nvlink",
        "link",
        "infinity",
        "pcie",
        "gpu and cpu",
        "peer",
        "bidirectional",
        "unidirectional",
    ]);
    // Of two rates that were measured the higher one is no line rate.
    let is_line = stated.wanted.is_some_and(ProseRate::is_expected);
    let prior = match (counts_both, is_line) {
        (true, _) => 0.05,
        (_, false) => 0.04,
        _ if links => 0.5,
        _ => 0.3,
    };
    let overhead = WorldEdit::new("protocol-overhead", AnswerClass::AsExpected, prior);
    if let Some(full) = full {
        draft.edits.push(WorldEdit {
            id: "protocol-overhead",
            prior: full.prior.min(prior),
            ..full
        });
    }
    draft.edits.push(at(overhead, 0.78, 0.08)
        .says(format!("{percent:.0} % of a line rate is what payload gets: packet headers, CRC and flow control take 12 to 28 %")).decided_by("pathline run --suite pairs, or host-link: the ceiling with its parts"));
    let names_ways = ["bidir", "bi-dir", "unidir", "uni-dir", "duplex", "both", "direction"];
    // Two measured rates are counted alike, unless the text says otherwise.
    let names_ways = match stated.has(&names_ways) {
        true => 1.0,
        false if is_line => -1.5,
        false => -3.0,
    };
    let one = WorldEdit::new("one-direction", AnswerClass::MeansSomethingElse, 0.15);
    draft.edits.push(if counts_both {
        at(one, 0.42, 0.15).seen(2.0).says("the expected rate counts both directions, the measured one: half of it each way is the limit")
            .decided_by("the data sheet: per direction or in total")
    } else {
        at(one, 0.44, 0.1).seen(names_ways).says("one of the two counts both directions, the other one")
            .decided_by("the tool's title: unidirectional or bidirectional, sum or one stream")
    });
    let in_bits = |rate: &ProseRate| !rate.text.contains('B');
    let mixed = stated.wanted.is_some_and(|wanted| in_bits(wanted) != in_bits(stated.observed));
    // Who writes `Gbit` and a share of it has counted in bits.
    let is_spelt = stated.has(&["percent", " %", "gbit", "of the link", "of the line"]);
    let prior = if mixed && !is_spelt { 0.03 } else { 0.01 };
    // The same rate in either unit: 94 Gbit/s are 11.75 GB/s.
    if mixed {
        draft.edits.push(
            at(WorldEdit::new("bits-and-bytes", AnswerClass::MeansSomethingElse, 0.06), 0.95, 0.06)
                .says("one is in bits, the other in bytes: divided by 8 they are the same")
                .decided_by("the unit's case: Gb or GB"),
        );
    }
    draft.edits.push(
        at(WorldEdit::new("bits-and-bytes", AnswerClass::MeansSomethingElse, prior), 0.12, 0.08)
            .says("one is in bits, the other in bytes: a factor of 8")
            .decided_by("the unit's case: Gb or GB"),
    );
}

/// Collectives whose rate is compared with a line rate.
fn collective_edits(
    draft: &mut DraftAnswer,
    stated: &StatedFigures<'_>,
    node: &NodeLimits,
    limit: f64,
    at: &dyn Fn(WorldEdit, f64, f64) -> WorldEdit,
) {
    let n = f64::from(node.gpus.unwrap_or(8).max(2));
    let is_known = |draft: &DraftAnswer, id: &str| draft.edits.iter().any(|edit| edit.id == id);
    if node.product.is_some_and(|p| p.nvls) && node.fabric == FabricKind::Switched {
        let bus = node.links_gbs * 0.686 * 2.0 * (n - 1.0) / (n + 1.0);
        let is_alg =
            stated.has(&["algbw", "algorithm"]) && !stated.observed.around.contains("busbw");
        let full = if is_alg { bus * n / (2.0 * (n - 1.0)) } else { bus };
        draft.edits.retain(|edit| edit.id != "nvls");
        let edit = WorldEdit::new("nvls", AnswerClass::MeansSomethingElse, 0.6);
        draft.edits.push(at(edit, full * 0.95 / limit, 0.09)
            .says(format!("{} GB/s is the line rate; with NVLink SHARP busbw is a formula: {} x 0.686 x 2({n}-1)/({n}+1) = {} GB/s (algbw {}), at GiB sizes; a ring has 370 of 450", figure(node.links_gbs), figure(node.links_gbs), figure(bus), figure(bus * n / (2.0 * (n - 1.0))))).decided_by("all_reduce_perf -b 1G -e 8G; NCCL_NVLS_ENABLE=0 for a ring"));
    }
    if !is_known(draft, "ring") {
        draft.edits.push(
            at(
                WorldEdit::new("ring", AnswerClass::AsExpected, 0.3),
                node.fabric_gbs() * 0.81 / limit,
                0.08,
            )
            .says(format!("a ring reaches 81 % of {} GB/s as busbw", figure(node.fabric_gbs())))
            .decided_by("nccl-tests with NCCL_ALGO=Ring"),
        );
    }
}

/// Network of a node, GB/s, of a sentence about several nodes.
fn network_gbs(reading: &PasteReading, stated: &StatedFigures<'_>) -> Option<f64> {
    let context = &reading.context;
    context.nodes.filter(|nodes| *nodes > 1)?;
    let line = context.network_gbits? / 8.0;
    // Where adapters are not counted, the rate that a text has seen or expects does.
    let counted = context.adapters.map(f64::from);
    let most = |stated: &StatedFigures<'_>| stated.wanted.map_or(0.0, |rate| rate.gbs);
    let implied = (most(stated) / line).round().clamp(1.0, 16.0);
    Some(line * counted.unwrap_or(implied))
}

/// Causes for a collective over several nodes in a sentence.
fn network_edits(
    draft: &mut DraftAnswer,
    reading: &PasteReading,
    stated: &StatedFigures<'_>,
    network: f64,
    words: &PasteWords,
) {
    let context = &reading.context;
    let nodes = f64::from(context.nodes.unwrap_or(2));
    let line = context.network_gbits.unwrap_or(100.0) / 8.0;
    let adapters = (network / line).round().max(1.0);
    let all_to_all = words.fits("alltoall|all-to-all|all to all|all2all");
    let value = stated.observed.gbs;
    draft.limit = format!("{} GB/s of network each way on a node (in the paste)", figure(network));
    draft.features = vec![ObservedFeature::new("of-network", (value / network).max(1e-4))];
    if all_to_all && stated.has(&["alltoall", "all-to-all", "all to all", "all2all"]) {
        let full = network / adapters * nodes / (nodes - 1.0);
        draft.edits.push(
            WorldEdit::new("network-full", AnswerClass::AsExpected, 0.5)
                .expects("of-network", full / network, 0.3)
                .says(format!("all-to-all sends (N-1)/N of its bytes between {nodes} nodes, each GPU's through one adapter: {} GB/s", figure(full)))
                .decided_by("ib_write_bw of one adapter: the same rate"),
        );
        return;
    }
    draft.edits.push(
        WorldEdit::new("network-full", AnswerClass::AsExpected, 0.4)
            .expects("of-network", 0.9, 0.15)
            .says(format!(
                "the network of a node is full: {} of {} GB/s",
                figure(value),
                figure(network)
            ))
            .decided_by("ib_write_bw of one adapter: the same share"),
    );
    if nodes < 3.0 {
        draft.edits.push(
            WorldEdit::new("tree-of-two-nodes", AnswerClass::MeansSomethingElse, 0.3)
                .expects("of-network", 1.5, 0.25)
                .says("a tree of two nodes sends the buffer once each way, where the formula of busbw counts 2(n-1)/n: busbw is up to twice the network's rate")
                .decided_by("NCCL_ALGO=Ring: busbw falls to the network's rate"),
        );
    }
    let is_stated = stated.wanted.is_some_and(|rate| rate.gbs > line * 1.2);
    if context.adapters.is_none() && is_stated {
        draft.edits.push(
            WorldEdit::new("link-rate-low", AnswerClass::SetUpSo, 0.15)
                .expects("of-network", 0.45, 0.2)
                .says(format!("ports run at {} Gbit/s, less than the text assumes: a cable, a split port, or the switch", figure(line * 8.0)))
                .decided_by("ibstatus or ethtool on each port: rate; mlxlink -d ADAPTER"),
        );
    }
    for used in [1.0, adapters / 2.0] {
        if adapters > used {
            draft.edits.push(
                WorldEdit::new("fewer-adapters", AnswerClass::SetUpSo, 0.08)
                    .expects("of-network", used * 0.9 / adapters, 0.12)
                    // Adapters carry no more than their line.
                    .seen(if value > used * line * 1.03 { -3.0 } else { 0.0 })
                    .says(format!("{used} of {adapters} adapters carry it"))
                    .decided_by(
                        "NCCL_DEBUG=INFO: adapters in `NET/IB : Using` and channels; NCCL_IB_HCA",
                    ),
            );
        }
    }
    draft.edits.push(
        WorldEdit::new("no-gpu-direct", AnswerClass::SetUpSo, 0.12)
            .expects("of-network", 0.4, 0.35)
            .says("RDMA goes through host memory: no GPUDirect RDMA")
            .decided_by("NCCL_DEBUG=INFO: `via NET/IB/0/GDRDMA`"),
    );
    draft.edits.push(
        WorldEdit::new("peer-through-root", AnswerClass::SetUpSo, 0.05)
            .expects("of-network", 0.45, 0.3)
            .says("packets between adapter and GPU are sent up to the root port (ACS, IOMMU, a virtual machine)")
            .decided_by("lspci -vvv | grep ACSCtl; ACS off, or ATS on in virtual machines"),
    );
    draft.edits.push(
        WorldEdit::new("tcp", AnswerClass::SetUpSo, 0.1)
            .expects("of-network", 0.1, 1.1)
            .says("TCP sockets instead of RDMA")
            .decided_by("NCCL_DEBUG=INFO: `Using network`"),
    );
}

/// Causes that words name where no figure can be compared.
pub(crate) fn from_words(reading: &PasteReading, words: &PasteWords) -> Option<DraftAnswer> {
    let topic = SentenceTopic::of(words, "");
    let about = topic.map_or("of no known subject", SentenceTopic::label);
    let mut draft = DraftAnswer {
        meaning: format!("text {about}, without figures that could be compared"),
        limit: "unknown: nothing is compared".to_owned(),
        ..DraftAnswer::default()
    };
    if let Some(rate) = reading.context.rates.first() {
        draft.value = Some(rate.gbs);
    }
    if let Some(topic) = topic {
        words.add_topic(&mut draft, topic, 1.5);
    }
    // What the text states, whatever its subject seems to be.
    if draft.edits.is_empty() {
        for topic in SentenceTopic::ALL {
            words.add_topic(&mut draft, topic, 2.4);
        }
    }
    (!draft.edits.is_empty()).then_some(draft)
}
