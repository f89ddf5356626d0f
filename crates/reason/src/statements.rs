//! Pastes without a table: rates in sentences, logs and matrices of links.

use pathline_paste::{LineSpan, NcclLog, PasteContent, PasteReading, ProseRate};

use crate::answer::DraftAnswer;
use crate::node_facts::{NodeLimits, figure};
use crate::product_facts::FabricKind;
use crate::score::{AnswerClass, ObservedFeature, WorldEdit};

/// What sentences, a log or links say.
pub(crate) fn explain(
    reading: &PasteReading,
    node: Option<&NodeLimits>,
    log: Option<&NcclLog>,
) -> Option<(LineSpan, &'static str, DraftAnswer)> {
    if let Some(found) = rates(reading, node) {
        return Some(found);
    }
    let document = reading.documents.iter().find(|d| matches!(d.content, PasteContent::NcclLog(_)));
    if let (Some(document), Some(log)) = (document, log) {
        return Some((document.span, "NCCL log", from_log(log, node)));
    }
    let links = reading
        .documents
        .iter()
        .find(|d| matches!(d.content, PasteContent::Links(_) | PasteContent::Topology(_)))?;
    let node = node?;
    let mut draft = DraftAnswer {
        meaning: format!("links of {} GPUs", node.gpus.unwrap_or(0)),
        limit: node.link_text(),
        ..DraftAnswer::default()
    };
    let text = match node.fabric {
        FabricKind::Switched => "all pairs are joined by NVLink through switches".to_owned(),
        FabricKind::Meshed => "pairs differ in their NVLinks".to_owned(),
        FabricKind::Xgmi => "pairs are joined by xGMI".to_owned(),
        FabricKind::Pcie if node.crosses_sockets => {
            "GPUs reach each other by PCIe, some through the link between sockets (SYS)".to_owned()
        }
        FabricKind::Pcie => "GPUs reach each other by PCIe alone".to_owned(),
    };
    draft.edits.push(
        WorldEdit::new("links", AnswerClass::AsExpected, 1.0)
            .says(text)
            .decided_by("pathline topo")
            .certain(),
    );
    Some((links.span, "topology", draft))
}

/// Words of a subject near a rate.
fn has(rate: &ProseRate, words: &[&str]) -> bool {
    words.iter().any(|word| rate.around.contains(word))
}

fn rates(
    reading: &PasteReading,
    node: Option<&NodeLimits>,
) -> Option<(LineSpan, &'static str, DraftAnswer)> {
    let all = &reading.context.rates;
    // The line rate of an adapter is no figure that was measured.
    let line = reading.context.network_gbits.map(|gbits| gbits / 8.0);
    let is_line = |rate: &ProseRate| line == Some(rate.gbs) && rate.text.ends_with(['b', 's']);
    let seen = all.iter().find(|rate| !rate.is_expected && !is_line(rate));
    let observed = seen.or(all.first())?;
    // The expectation that stands nearest after, or the node's limit.
    let wanted = all
        .iter()
        .find(|rate| rate.is_expected && rate.gbs > observed.gbs && rate.line >= observed.line)
        .or_else(|| all.iter().find(|rate| rate.is_expected && rate.gbs != observed.gbs))
        .or_else(|| {
            all.iter().find(|rate| rate.gbs > observed.gbs * 1.02 && rate.line <= observed.line + 6)
        });
    let collective = has(
        observed,
        &["busbw", "algbw", "all_reduce", "allreduce", "all reduce", "nccl", "rccl", "all_gather"],
    );
    let value = observed.gbs;
    let expected = wanted.map(|rate| rate.gbs);
    let network = network_gbs(reading).filter(|_| collective);
    let limit = expected.or(network).or_else(|| node.map(NodeLimits::fabric_gbs))?;
    let mut draft = DraftAnswer {
        meaning: format!(
            "{} in a sentence{}, compared with {} GB/s",
            observed.text,
            if collective { " about a collective" } else { "" },
            figure(limit)
        ),
        limit: match (wanted, node) {
            (Some(wanted), Some(node)) => {
                format!("{} is what the text expects; {}", wanted.text, node.link_text())
            }
            (Some(wanted), None) => format!("{} is what the text expects", wanted.text),
            (None, Some(node)) => node.link_text(),
            _ => "unknown".to_owned(),
        },
        value: Some(value),
        limit_gbs: Some(limit),
        ..DraftAnswer::default()
    };
    draft.features.push(ObservedFeature::new("ratio", (value / limit).max(1e-4)));
    match network {
        Some(network) => network_edits(&mut draft, reading, observed, network),
        None => sentence_edits(&mut draft, observed, collective, value, limit, node),
    }
    Some((
        LineSpan {
            first: observed.line,
            last: wanted.map_or(observed.line, |w| w.line.max(observed.line)),
        },
        "text",
        draft,
    ))
}

/// Network of a node, GB/s, of a sentence about several nodes.
fn network_gbs(reading: &PasteReading) -> Option<f64> {
    let context = &reading.context;
    context.nodes.filter(|nodes| *nodes > 1)?;
    let adapters = f64::from(context.adapters.unwrap_or(1));
    Some(context.network_gbits? / 8.0 * adapters)
}

/// Causes for a collective over several nodes in a sentence.
fn network_edits(
    draft: &mut DraftAnswer,
    reading: &PasteReading,
    observed: &ProseRate,
    network: f64,
) {
    let context = &reading.context;
    let nodes = f64::from(context.nodes.unwrap_or(2));
    let all_to_all = has(observed, &["alltoall", "all-to-all", "all to all", "all2all"]);
    let exceeds = has(observed, &["exceed", "higher than", "more than", "surpris"]);
    let value = observed.gbs;
    draft.limit = format!("{} GB/s of network each way on a node (in the paste)", figure(network));
    draft.limit_gbs = Some(network);
    draft.features = vec![ObservedFeature::new("of-network", (value / network).max(1e-4))];
    if all_to_all {
        let one = network / f64::from(context.adapters.unwrap_or(1).max(1));
        let full = one * nodes / (nodes - 1.0);
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
                .seen(if exceeds { 2.0 } else { 0.0 })
                .says("a tree of two nodes sends the buffer once each way, where the formula of busbw counts 2(n-1)/n: busbw is up to twice the network's rate")
                .decided_by("NCCL_ALGO=Ring: busbw falls to the network's rate"),
        );
    }
    draft.edits.push(
        WorldEdit::new("no-gpu-direct", AnswerClass::SetUpSo, 0.12)
            .expects("of-network", 0.4, 0.35)
            .says("RDMA goes through host memory: no GPUDirect RDMA")
            .decided_by("NCCL_DEBUG=INFO: `via NET/IB/0/GDRDMA`"),
    );
    draft.edits.push(
        WorldEdit::new("tcp", AnswerClass::SetUpSo, 0.1)
            .expects("of-network", 0.08, 0.8)
            .says("TCP sockets instead of RDMA")
            .decided_by("NCCL_DEBUG=INFO: `Using network`"),
    );
}

fn sentence_edits(
    draft: &mut DraftAnswer,
    observed: &ProseRate,
    collective: bool,
    value: f64,
    limit: f64,
    node: Option<&NodeLimits>,
) {
    let percent = value / limit * 100.0;
    let links = has(
        observed,
        &[
            "xgmi",
            "nvlink",
            "link",
            "infinity",
            "pcie",
            "gpu and cpu",
            "peer",
            "bidirectional",
            "unidirectional",
        ],
    );
    draft.edits.push(WorldEdit::new("protocol-overhead", AnswerClass::AsExpected, if links { 0.5 } else { 0.3 }).expects("ratio", 0.78, 0.08)
        .says(format!("{percent:.0} % of a line rate is what payload gets: packet headers, CRC and flow control take 12 to 28 %")).decided_by("pathline run --suite pairs, or host-link: the ceiling with its parts"));
    let names_ways = ["bidir", "bi-dir", "unidir", "uni-dir", "duplex", "both", "direction"];
    let names_ways = if has(observed, &names_ways) { 1.0 } else { -1.5 };
    draft.edits.push(
        WorldEdit::new("one-direction", AnswerClass::MeansSomethingElse, 0.15)
            .expects("ratio", 0.44, 0.1)
            .seen(names_ways)
            .says("one of the two counts both directions, the other one")
            .decided_by("the tool's title: unidirectional or bidirectional, sum or one stream"),
    );
    draft.edits.push(
        WorldEdit::new("bits-and-bytes", AnswerClass::MeansSomethingElse, 0.03)
            .expects("ratio", 0.12, 0.08)
            .says("one is in bits, the other in bytes: a factor of 8")
            .decided_by("the unit's case: Gb or GB"),
    );
    if let Some(node) = node.filter(|_| collective) {
        let n = f64::from(node.gpus.unwrap_or(8).max(2));
        if node.product.is_some_and(|p| p.nvls) && node.fabric == FabricKind::Switched {
            let bus = node.links_gbs * 0.686 * 2.0 * (n - 1.0) / (n + 1.0);
            let is_alg =
                has(observed, &["algbw", "algorithm"]) && !observed.around.contains("busbw");
            let full = if is_alg { bus * n / (2.0 * (n - 1.0)) } else { bus };
            draft.edits.push(WorldEdit::new("nvls", AnswerClass::MeansSomethingElse, 0.6).expects("ratio", full * 0.95 / limit, 0.09)
                .says(format!("{} GB/s is the line rate; with NVLink SHARP busbw is a formula: {} x 0.686 x 2({n}-1)/({n}+1) = {} GB/s (algbw {}), at GiB sizes; a ring has 370 of 450", figure(node.links_gbs), figure(node.links_gbs), figure(bus), figure(bus * n / (2.0 * (n - 1.0))))).decided_by("all_reduce_perf -b 1G -e 8G; NCCL_NVLS_ENABLE=0 for a ring"));
        }
        draft.edits.push(
            WorldEdit::new("ring", AnswerClass::AsExpected, 0.3)
                .expects("ratio", node.fabric_gbs() * 0.81 / limit, 0.08)
                .says(format!("a ring reaches 81 % of {} GB/s as busbw", figure(node.fabric_gbs())))
                .decided_by("nccl-tests with NCCL_ALGO=Ring"),
        );
    }
    draft.edits.push(
        WorldEdit::new("through-host-memory", AnswerClass::SetUpSo, 0.08)
            .expects("ratio", 0.15, 0.6)
            .says("the bytes go through host memory")
            .decided_by("NCCL_DEBUG=INFO: transports; nvidia-smi topo -m"),
    );
    if has(observed, &["file", "storage", "nvme", "elbencho", "fio", "nfs"]) {
        draft.edits.push(WorldEdit::new("one-file", AnswerClass::SetUpSo, 0.5).expects("ratio", 0.42, 0.5)
            .says("one open file is one stream to the server, or one lock: several files, or one opened several times, go further").decided_by("a file for each thread"));
    }
}

fn from_log(log: &NcclLog, node: Option<&NodeLimits>) -> DraftAnswer {
    let transports: Vec<String> =
        log.transports.iter().map(|(name, n)| format!("{n} x {name}")).collect();
    let mut draft = DraftAnswer {
        meaning: format!(
            "log of {} {}: {}",
            if log.is_rccl { "RCCL" } else { "NCCL" },
            log.version,
            if transports.is_empty() {
                "no channels in it".to_owned()
            } else {
                transports.join(", ")
            }
        ),
        limit: node.map_or_else(
            || "unknown: the paste names no GPU and no links".to_owned(),
            NodeLimits::link_text,
        ),
        ..DraftAnswer::default()
    };
    draft.edits = log_edits(log);
    draft
}

/// What transports, settings and warnings of a log say: at most one cause.
pub(crate) fn log_edits(log: &NcclLog) -> Vec<WorldEdit> {
    let has = |part: &str| log.transports.keys().any(|name| name.contains(part));
    let over_host = |name: &String| name.contains("NET/IB") && !name.contains("GDRDMA");
    let mut edits = Vec::new();
    let mut say = |id, class, text: String, check: &str| {
        edits.push(WorldEdit::new(id, class, 1.0).says(text).decided_by(check).certain());
    };
    if let Some(warning) = log.warnings.first() {
        say(
            "nccl-warning",
            AnswerClass::Software,
            format!("NCCL warns: {warning}"),
            "NCCL_DEBUG_SUBSYS=INIT,NET,P2P",
        );
    } else if has("SHM") {
        say(
            "through-host-memory",
            AnswerClass::SetUpSo,
            "GPUs of a node exchange through host memory (SHM), not P2P".to_owned(),
            "nvidia-smi topo -p2p r; NCCL_P2P_LEVEL=SYS as a trial",
        );
    } else if has("NET/Socket") {
        say(
            "tcp",
            AnswerClass::SetUpSo,
            "nodes exchange over TCP sockets".to_owned(),
            "NCCL_IB_DISABLE, NCCL_NET; ibv_devinfo",
        );
    } else if log.transports.keys().any(over_host) {
        say(
            "no-gpu-direct",
            AnswerClass::SetUpSo,
            if has("GDRDMA") {
                "some channels have GDRDMA and some do not: a node lacks it".to_owned()
            } else {
                "RDMA goes through host memory: no GDRDMA in its channels".to_owned()
            },
            "lsmod | grep peermem; NCCL_NET_GDR_LEVEL=SYS as a trial",
        );
    } else if let Some(rate) = log.link_rates.get("XGMI") {
        say(
            "protocol-overhead",
            AnswerClass::AsExpected,
            format!("XGMI[{rate}] is RCCL's rate of a link after protocol: 75 % of the line rate"),
            "pathline run --suite pairs",
        );
    } else if has("P2P") {
        say(
            "peer",
            AnswerClass::AsExpected,
            "GPUs exchange by P2P".to_owned(),
            "nccl-tests: the rate",
        );
    }
    edits
}
