//! First copies over sets of paths whose rates are known from elsewhere.

use pathline_hal::{CallResult, Machine};
use pathline_schema::{Bytes, MemKind, MultipathSpec, Ns, Place, Unit};

use crate::engine::MultipathEngine;
use crate::request::{CopyEnd, CopyRequest, LostRelay};

/// Bytes of a trial.
const BYTES: Bytes = Bytes::mib(1);
/// Its time limit.
const LIMIT: Ns = Ns(2e9);

/// Copies 1 MiB over each of some sets of paths, so that the copies that follow open no stream and allocate nothing,
/// which could wait for streams of callers. Returns the GPUs that cannot take part.
///
/// # Errors
/// Memory is short, or the direct path fails.
pub fn try_paths<'m>(
    machine: &'m Machine,
    engine: &mut MultipathEngine<'m>,
    (src, dst): (Unit, &[Unit]),
    sets: &[MultipathSpec],
) -> CallResult<Vec<LostRelay>> {
    let buffer = |unit: Unit| {
        let mem = if unit.gpu().is_some() { MemKind::Vram } else { MemKind::Pinned };
        machine.buffer(Place::new(unit, mem), BYTES)
    };
    let from = buffer(src)?;
    let to = dst.iter().map(|&unit| buffer(unit)).collect::<CallResult<Vec<_>>>()?;
    let end = |at: u64, unit: Unit| CopyEnd { address: at, unit };
    let mut refused: Vec<LostRelay> = Vec::new();
    for &paths in sets {
        let mut ends = to.iter().map(|buffer| end(buffer.address(), buffer.place().unit));
        let Some(first) = ends.next() else { break };
        let request = CopyRequest {
            src: end(from.address(), src),
            dst: first,
            others: ends.collect(),
            bytes: BYTES,
            paths,
            limit: LIMIT,
        };
        for lost in engine.copy(request)?.lost {
            if refused.iter().all(|known| known.gpu != lost.gpu) {
                refused.push(lost);
            }
        }
    }
    Ok(refused)
}
