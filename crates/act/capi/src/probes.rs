//! What a worker probes to make the plan of some ends, and plans without a probe.

use pathline_hal::Machine;
use pathline_multipath::{MultipathEngine, PathProbe, ProbeRequest, try_paths};
use pathline_schema::{Bytes, MultipathSpec, Ns, Unit};

use crate::plans::EndsKey;
use crate::twin::TwinModel;

/// Largest size that a probe measures.
const PROBE_BYTES: Bytes = Bytes::mib(128);
/// The sizes that a probe measures, in this part of the largest one: 4, 8, 12, 32 and 128 MiB. A copy of a few chunks
/// gains less with each further relay than a line through 4 and 128 MiB says: up to 25 % at 12 MiB in the model.
const PROBE_PARTS: [u64; 5] = [1, 2, 3, 8, 32];
/// The largest size in these parts.
const PROBE_WHOLE: u64 = 32;
/// Time after which a probe adds no further relay.
const PROBE_BUDGET: Ns = Ns(1e9);
/// Largest piece of copies to several GPUs: the best of 4 to 64 MiB on eight H200s.
const SPREAD_CHUNK: Bytes = Bytes::mib(16);
/// The largest size that a probe measures, as a node's options ask; 0 is 128 MiB.
pub(crate) fn largest_probe(bytes: u64) -> Bytes {
    if bytes == 0 { PROBE_BYTES } else { Bytes(bytes.max(PROBE_WHOLE)) }
}

/// The probe of some ends with `staging` on each helper, up to copies of `largest`.
pub(crate) fn probe_request(
    key: &EndsKey,
    helpers: &[u32],
    staging: Bytes,
    largest: Bytes,
) -> ProbeRequest {
    let chunk = match key.others.is_empty() {
        true => Bytes(staging.0 / MultipathSpec::SLOTS),
        false => SPREAD_CHUNK,
    };
    ProbeRequest {
        src: key.src,
        dst: [key.dst].into_iter().chain(key.others.iter().map(Unit::Gpu)).collect(),
        helpers: helpers.to_vec(),
        chunk,
        sizes: PROBE_PARTS.map(|part| Bytes(largest.0 / PROBE_WHOLE * part)),
        budget: PROBE_BUDGET,
    }
}

/// Plans from a twin, with GPUs that have copied; others are left out.
pub(crate) fn plan_from_twin<'m>(
    twin: &TwinModel,
    machine: &'m Machine,
    engine: &mut MultipathEngine<'m>,
    request: &ProbeRequest,
) -> Result<PathProbe, String> {
    let mut refused = Vec::new();
    loop {
        let probe = twin.predict(request, refused)?;
        let sets: Vec<MultipathSpec> = probe.options.iter().map(|option| option.paths).collect();
        let tried = try_paths(machine, engine, (request.src, &request.dst), &sets);
        let failed = tried.map_err(|error| error.to_string())?;
        if failed.is_empty() {
            return Ok(probe);
        }
        refused = probe.refused.into_iter().chain(failed).collect();
    }
}
