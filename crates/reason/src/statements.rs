//! Pastes without a table: messages, rates in sentences, logs and matrices of links.

use pathline_paste::{LineSpan, NcclLog, PasteContent, PasteReading};

use crate::answer::DraftAnswer;
use crate::node_facts::{NodeLimits, figure};
use crate::product_facts::FabricKind;
use crate::score::{AnswerClass, WorldEdit};
use crate::sentence_topics::SentenceTopic;
use crate::sentences;
use crate::text_cues::PasteWords;
use crate::unit_check;

/// What sentences, a log or links say.
pub(crate) fn explain(
    reading: &PasteReading,
    node: Option<&NodeLimits>,
    log: Option<&NcclLog>,
    words: &PasteWords,
) -> Option<(LineSpan, &'static str, DraftAnswer)> {
    let all = LineSpan { first: 1, last: reading.lines.max(1) };
    // Messages that name a cause are surer than any comparison of sentences.
    let named = words.message_causes();
    if named.iter().any(|edit| edit.evidence >= 3.5) {
        let draft = DraftAnswer {
            meaning: "messages that name a cause".to_owned(),
            limit: node
                .map_or_else(|| "none: it is not about a rate".to_owned(), NodeLimits::link_text),
            ..DraftAnswer::default()
        };
        return Some((all, "messages", draft));
    }
    if let Some(draft) = unit_check::contradiction(&reading.context) {
        return Some((all, "text", draft));
    }
    if let Some(draft) = link_state(reading, words) {
        return Some((all, "PCIe link state", draft));
    }
    if let Some(found) = sentences::explain(reading, node, log, words) {
        return Some(found);
    }
    let document = reading.documents.iter().find(|d| matches!(d.content, PasteContent::NcclLog(_)));
    if let (Some(document), Some(log)) = (document, log) {
        let mut draft = from_log(log, node);
        if draft.edits.is_empty()
            && let Some(draft) = sentences::from_words(reading, words)
        {
            return Some((all, "text", draft));
        }
        words.add_topic(&mut draft, SentenceTopic::Collective, 2.4);
        return Some((document.span, "NCCL log", draft));
    }
    if let Some(draft) = sentences::from_words(reading, words) {
        return Some((all, "text", draft));
    }
    if named.iter().any(|edit| edit.evidence >= 2.0) {
        let draft = DraftAnswer {
            meaning: "text that names a circumstance".to_owned(),
            limit: "none: no figure can be compared".to_owned(),
            ..DraftAnswer::default()
        };
        return Some((all, "text", draft));
    }
    if let Some(found) = links_alone(reading, node, words) {
        return Some(found);
    }
    let edits = words.causes_by_count();
    let draft = DraftAnswer {
        meaning: "text whose words are those of known questions".to_owned(),
        limit: "none: no figure can be compared".to_owned(),
        edits,
        ..DraftAnswer::default()
    };
    (!draft.edits.is_empty()).then_some((all, "text", draft))
}

/// What a matrix of links shows that nothing else explains.
fn links_alone(
    reading: &PasteReading,
    node: Option<&NodeLimits>,
    words: &PasteWords,
) -> Option<(LineSpan, &'static str, DraftAnswer)> {
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
    // A matrix alone has no figure and no message: what it shows is sure, what the question is about is not.
    let asks =
        words.fits("slow|why|half|only|lower|drop|hang|fail|expected|problem|issue|wrong|\u{b6}");
    draft.edits.push(
        WorldEdit::new("links", AnswerClass::AsExpected, if asks { 0.15 } else { 1.0 })
            .says(text)
            .decided_by("pathline topo"),
    );
    for (id, class, seen, text, check) in [
        (
            "gpu-far-from-adapter",
            AnswerClass::SetUpSo,
            node.adapters_are_far,
            "each adapter is on another socket than a GPU, or behind a root port: RDMA of GPU memory is slow there",
            "nvidia-smi topo -m: an adapter with PIX or PXB for each GPU",
        ),
        (
            "fewer-adapters",
            AnswerClass::SetUpSo,
            node.adapters_are_shared,
            "several adapters are as near to a GPU as each other: which of them is taken hangs on their order, and GPUs may share one",
            "NCCL_DEBUG_SUBSYS=GRAPH: the adapter of each channel; NCCL_IB_HCA in the order of the GPUs",
        ),
        (
            "across-sockets",
            AnswerClass::SetUpSo,
            node.crosses_sockets && node.fabric == FabricKind::Pcie,
            "GPUs reach each other through the link between the sockets (SYS), which carries less than PCIe",
            "CUDA_VISIBLE_DEVICES with GPUs of one socket",
        ),
    ] {
        if seen && asks {
            draft.edits.push(WorldEdit::new(id, class, 0.1).says(text).decided_by(check));
        }
    }
    Some((links.span, "topology", draft))
}

/// A PCIe link that runs at less than it can, as lspci or the kernel says.
fn link_state(reading: &PasteReading, words: &PasteWords) -> Option<DraftAnswer> {
    let context = &reading.context;
    let (now, most) = context.pcie.zip(context.pcie_most)?;
    if now.0 >= most.0 && now.1 >= most.1 {
        return None;
    }
    let rate = |(speed, width): (f64, u32)| {
        pathline_schema::PcieLink { speed_gts: speed, width, ..Default::default() }.peak().gbs()
    };
    let at = |of: (f64, u32)| format!("{} GT/s x{}, {} GB/s", of.0, of.1, figure(rate(of)));
    // Links of idle devices keep their width; the slowest generation under load is rare.
    let may_idle = now.1 >= most.1 && now.0 < 3.0 && !words.fits("under load|while running|dmesg");
    let (value, limit) = (rate(now), rate(most));
    let mut draft = DraftAnswer {
        meaning: format!("a PCIe link at {}", at(now)),
        limit: format!("{} of the device (in the paste)", at(most)),
        value: Some(value),
        limit_gbs: Some(limit),
        ..DraftAnswer::default()
    };
    draft.edits.push(
        WorldEdit::new("narrow-pcie", AnswerClass::HardwareSuspect, if may_idle { 0.05 } else { 1.0 })
            .says(format!("the link runs at {} of {}: its slot, a riser or the port above has no more, or training failed", at(now), at(most)))
            .decided_by("lspci -vv: LnkCap and LnkSta of the device and each bridge above it, under load"),
    );
    draft.edits.push(
        WorldEdit::new(
            "idle-link-speed",
            AnswerClass::AsExpected,
            if may_idle { 1.0 } else { 0.02 },
        )
        .says("an idle device lowers the generation of its link to save power; under load it rises")
        .decided_by("lspci -vv | grep LnkSta while a copy runs"),
    );
    Some(draft)
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
    // Other causes are possible: what the text says of it takes part.
    draft.edits = log_edits(log).into_iter().map(WorldEdit::likely).collect();
    draft
}

/// Whether some channels over RDMA go through host memory.
pub(crate) fn lacks_direct_channels(log: &NcclLog) -> bool {
    log.transports.keys().any(|name| name.contains("NET/IB") && !name.contains("GDRDMA"))
}

/// What transports, settings and warnings of a log say: at most one cause.
pub(crate) fn log_edits(log: &NcclLog) -> Vec<WorldEdit> {
    let has = |part: &str| log.transports.keys().any(|name| name.contains(part));
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
    } else if lacks_direct_channels(log) {
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
    } else if log.network.contains("Socket") && log.transports.is_empty() {
        say(
            "tcp",
            AnswerClass::SetUpSo,
            "the network is TCP sockets: no RDMA adapter or plugin was found, or it is switched off".to_owned(),
            "NCCL_IB_DISABLE, NCCL_NET; ibv_devinfo; /dev/infiniband in the container",
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
