//! Checks of the sections that say how the parts of a machine work.

use std::collections::BTreeSet;

use pathline_schema::LinkEnd;

use super::{DescError, LineIndex, RawFile};

pub(super) fn check_order(source: &LineIndex<'_>, raw: &RawFile) -> Result<(), DescError> {
    let rising = |sizes: Vec<u64>| sizes.windows(2).all(|w| w.first() < w.last());
    if !rising(raw.pageable.iter().map(|p| p.up_to_bytes).collect()) {
        return Err(source.error(None, "pageable: expected rising up_to_bytes"));
    }
    let caches = raw.cpu.iter().flat_map(|cpu| &cpu.cache);
    if !rising(caches.map(|c| c.bytes).collect()) {
        return Err(source.error(None, "cpu.cache: expected rising sizes"));
    }
    let caches = raw.kernel.iter().flat_map(|kernel| &kernel.cache);
    if !rising(caches.map(|c| c.bytes).collect()) {
        return Err(source.error(None, "kernel.cache: expected rising sizes"));
    }
    check_protocol(source, raw)?;
    let Some(time) = &raw.time else { return Ok(()) };
    let matrix = &time.get_ref().copy_us_matrix;
    let n = raw.gpu.len();
    let sane = |us: &f64| us.is_finite() && (0.0..=1e6).contains(us);
    let fits = matrix.len() == n && matrix.iter().all(|row| row.len() == n && row.iter().all(sane));
    if !matrix.is_empty() && !fits {
        let reason = format!("copy_us_matrix: expected {n} rows of {n} times from 0 to 1e6");
        return Err(source.error(Some(time.span()), reason));
    }
    Ok(())
}

/// Checks that the bytes of packets and the engines agree.
fn check_protocol(source: &LineIndex<'_>, raw: &RawFile) -> Result<(), DescError> {
    if let Some(spanned) = &raw.fabric {
        let fabric = spanned.get_ref();
        for (name, verb) in [("read", &fabric.read), ("write", &fabric.write)] {
            let besides = verb.header_bytes + fabric.forwarded_bytes;
            if fabric.apart_bytes > besides {
                let reason = format!(
                    "apart_bytes: {} of the {besides} bytes besides the payload of a forwarded {name}; expected at most that many",
                    fabric.apart_bytes
                );
                return Err(source.error(Some(spanned.span()), reason));
            }
        }
    }
    if let Some(spanned) = &raw.copy_engine {
        let engine = spanned.get_ref();
        let (gang, peer, host) = (engine.gang, engine.peer_engines, engine.host_engines);
        if gang > peer.max(host) {
            let reason = format!(
                "gang: {gang} engines on one copy, but {peer} to peers and {host} to the host; expected at most that many"
            );
            return Err(source.error(Some(spanned.span()), reason));
        }
    }
    Ok(())
}

/// Each GPU of a modelled machine has a link.
pub(super) fn check_joined(source: &LineIndex<'_>, raw: &RawFile) -> Result<(), DescError> {
    let ends = raw.links.iter().flat_map(|link| [*link.a.get_ref(), *link.b.get_ref()]);
    let linked: BTreeSet<LinkEnd> = ends.collect();
    match raw.gpu.iter().find(|gpu| !linked.contains(&LinkEnd::Gpu(*gpu.id.get_ref()))) {
        Some(gpu) => {
            let id = gpu.id.get_ref();
            let reason = format!("gpu{id} has no link; expected one to a NUMA domain or a GPU");
            Err(source.error(Some(gpu.id.span()), reason))
        }
        None => Ok(()),
    }
}

/// Whether all sections are there that say how the parts work. A file without measured paths needs
/// them all.
pub(super) fn check_sections(source: &LineIndex<'_>, raw: &RawFile) -> Result<bool, DescError> {
    let sections = [
        ("gpu_memory", raw.gpu_memory.is_some()),
        ("fabric", raw.fabric.is_some()),
        ("copy_engine", raw.copy_engine.is_some()),
        ("kernel", raw.kernel.is_some()),
        ("host_link", raw.host_link.is_some()),
        ("migration", raw.migration.is_some()),
        ("cpu", raw.cpu.is_some()),
        ("time", raw.time.is_some()),
    ];
    let peaks = raw.gpus.memory_gbs.is_some() && raw.numa.iter().all(|n| n.memory_gbs.is_some());
    if !peaks && raw.path.is_empty() {
        let reason = "memory_gbs is missing; expected it in [gpus] and each [[numa]], or [[path]] of measured paths";
        return Err(source.error(None, reason));
    }
    let missing = sections.iter().find(|(_, there)| !there);
    match missing {
        Some((name, _)) if raw.path.is_empty() => {
            let reason = format!("no [{name}]; expected it, or [[path]] of measured paths");
            Err(source.error(None, reason))
        }
        missing => Ok(missing.is_none()),
    }
}
