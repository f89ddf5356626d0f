//! What a log, a PCIe link or a matrix of links says by itself, without a table of figures.

use pathline_paste::{LineSpan, NcclLog, PasteContent, PasteReading};

use crate::draft::DraftAnswer;
use crate::node_facts::{NodeLimits, figure};
use crate::product_facts::FabricKind;
use crate::score::{AnswerClass, WorldEdit};

/// The answers of a paste without figures.
pub(crate) fn explain(
    reading: &PasteReading,
    node: Option<&NodeLimits>,
    log: Option<&NcclLog>,
) -> Option<(LineSpan, &'static str, DraftAnswer)> {
    let all = LineSpan { first: 1, last: reading.lines.max(1) };
    if let Some(draft) = link_state(reading) {
        return Some((all, "PCIe link state", draft));
    }
    let document = reading.documents.iter().find(|d| matches!(d.content, PasteContent::NcclLog(_)));
    if let (Some(document), Some(log)) = (document, log) {
        return Some((document.span, "NCCL log", from_log(log, node)));
    }
    links_alone(reading, node)
}

/// What a matrix of links or a topology shows.
fn links_alone(
    reading: &PasteReading,
    node: Option<&NodeLimits>,
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
        FabricKind::Switched => "all pairs are joined by NVLink through switches",
        FabricKind::Meshed => "GPUs are joined by NVLink without switches",
        FabricKind::Xgmi => "pairs are joined by xGMI",
        FabricKind::Pcie if node.crosses_sockets => {
            "GPUs reach each other by PCIe, some through the link between sockets (SYS)"
        }
        FabricKind::Pcie => "GPUs reach each other by PCIe alone",
    };
    draft.edits.push(
        WorldEdit::new("links", AnswerClass::AsExpected, 1.0)
            .says(text)
            .decided_by("pathline topo")
            .certain(),
    );
    Some((links.span, "topology", draft))
}

/// A PCIe link that runs at less than it can, as lspci or the kernel says.
fn link_state(reading: &PasteReading) -> Option<DraftAnswer> {
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
    let may_idle = now.1 >= most.1 && now.0 < 3.0;
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
