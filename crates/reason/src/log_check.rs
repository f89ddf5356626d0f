//! What a log of NCCL or RCCL without a table shows of a described node: channels, NVLS, adapters.

use pathline_paste::NcclLog;

use crate::draft::DraftAnswer;
use crate::row_predictor::RowPredictor;
use crate::score::{AnswerClass, WorldEdit};

/// Channels that carry the links of any node: NCCL lays 16 over the NVLinks of H100 and H200.
const ENOUGH_CHANNELS: usize = 16;

/// Adds what differs from the node, where the log's transports are as they should be.
pub(crate) fn add_node_causes(draft: &mut DraftAnswer, log: &NcclLog, node: &RowPredictor) {
    let harmless = |edit: &WorldEdit| edit.class == AnswerClass::AsExpected;
    if !draft.edits.iter().all(harmless) {
        return;
    }
    let mut found = Vec::new();
    let rings = node.ring_count().map(|rings| rings.min(ENOUGH_CHANNELS));
    if let (Some(rings), Some(channels)) = (rings, log.channels)
        && 2 * channels as usize <= rings
    {
        found.push(
            WorldEdit::new("few-channels", AnswerClass::SetUpSo, 1.0)
                .says(format!("{channels} channels, where the links of this node carry {rings}"))
                .decided_by("unset NCCL_*CHANNELS and NCCL_*CTAS; NCCL_TUNER_PLUGIN=none"),
        );
    }
    let software = node.desc().map(|desc| &desc.software);
    let reduces = software.and_then(|software| software.nccl.as_ref()?.nvls.as_ref()).is_some();
    if reduces && log.nvls == Some(false) {
        found.push(
            WorldEdit::new("nvls-off", AnswerClass::SetUpSo, 1.0)
                .says("the switches of this node reduce, and the log says that NVLS is not available")
                .decided_by("nvidia-smi -q | grep -A3 Fabric; NCCL_NVLS_ENABLE; a virtual machine or partition without multicast"),
        );
    }
    let adapters = node.topology().nics.len();
    if let Some(used) = log.adapters
        && log.nodes.is_some_and(|nodes| nodes > 1)
        && (used as usize) < adapters
    {
        found.push(
            WorldEdit::new("fewer-adapters", AnswerClass::SetUpSo, 1.0)
                .says(format!("{used} of the node's {adapters} adapters are used"))
                .decided_by("NCCL_IB_HCA; ibv_devinfo on each node"),
        );
    }
    if found.is_empty() {
        return;
    }
    // What a log lacks may be in lines that were not pasted: these are likely, not certain.
    draft.edits.iter_mut().for_each(|edit| edit.prior *= 0.1);
    draft.edits.append(&mut found);
}
