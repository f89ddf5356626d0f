//! Lower bounds of the times of collectives, by any library.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use pathline_flow::Network;
use pathline_message::{
    BufferPair, BufferPlace, ExchangeMember, ExchangeOp, MachinePeaks, MessageLibrary, TimeBounds,
    exchange_of,
};
use pathline_schema::{Bytes, Case, RankMember, Topology};

/// Bounds of collectives, each found once: a node of 8 GPUs has 255 cuts, a run hundreds of
/// collectives over the same ranks.
#[derive(Debug, Default)]
pub(crate) struct ExchangeBounds {
    peaks: OnceLock<MachinePeaks>,
    /// For [`UNIT_BYTES`].
    known: Mutex<HashMap<ExchangeOp, TimeBounds>>,
}

/// Bytes of the kept bounds. The time of a cut is proportional to the bytes that cross it.
const UNIT_BYTES: Bytes = Bytes::gib(1);

impl ExchangeBounds {
    pub(crate) fn find_bounds(
        &self,
        topology: &Topology,
        network: &Network,
        members: &[RankMember],
        case: &Case,
    ) -> Option<TimeBounds> {
        if members.iter().any(|member| member.node > 0) {
            return None;
        }
        // Bounds are the same for every library.
        let (mut exchange, _) =
            exchange_of(case, members, MessageLibrary::Ucx { sdma: true }).ok()?;
        // The bounds are of links between GPUs, and are kept by operation and members alone.
        if exchange.buffers != BufferPair::both(BufferPlace::Vram) {
            return None;
        }
        let has_gpu = |member: &ExchangeMember| topology.gpus.iter().any(|g| g.index == member.gpu);
        if !exchange.members().iter().all(has_gpu) {
            return None;
        }
        let bytes = std::mem::replace(&mut exchange.bytes, UNIT_BYTES);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let unit = known.entry(exchange.what.clone()).or_insert_with(|| {
            self.peaks.get_or_init(|| MachinePeaks::new(topology, network)).bounds(&exchange)
        });
        let share = bytes.as_f64() / UNIT_BYTES.as_f64();
        Some(TimeBounds { flow: unit.flow * share, ..unit.clone() })
    }
}
