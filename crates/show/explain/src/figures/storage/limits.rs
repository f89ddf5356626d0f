//! Limits of I/O with host memory, derived from other measurements of the run, never from the
//! case's own maximum.

use pathline_schema::{IoCache, IoEngine, IoSpec};

use super::{IoEntry, IoQuantity};
use crate::figures::pivot::most;
use crate::fmt;
use crate::run::RunView;

/// A rate that reaches this share of a limit is bound by it.
pub(super) const REACHES: f64 = 0.9;

/// Share of a PCIe link's line rate at which it is saturated: headers and acknowledgements use 5 to
/// 20 %, depending on the payload size of packets.
const LINK_FULL: f64 = 0.8;

/// Describes the limit of I/O between files and host memory.
pub(super) fn find_limit(
    run: &RunView,
    host: &IoEntry<'_, '_>,
    jobs: &[IoEntry<'_, '_>],
) -> Option<String> {
    let rate = host.value(IoQuantity::Rate)?;
    cpu(host)
        .or_else(|| described(run, host, rate))
        .or_else(|| link(run, host, rate))
        .or_else(|| in_flight(host, rate, jobs))
        .or_else(|| Some(format!("the device and its file system, {}", fmt::gbs(rate))))
}

/// Workers that use their cores all the time other than by polling.
fn cpu(host: &IoEntry<'_, '_>) -> Option<String> {
    let busy = host.busy().filter(|busy| *busy >= REACHES)?;
    let us = host.value(IoQuantity::Cpu).filter(|_| host.io.engine != IoEngine::UringPoll)?;
    let copies = match host.io.cache {
        IoCache::Direct => "",
        IoCache::Cached | IoCache::Cold => ", which copy out of the page cache or into it",
    };
    let (share, us) = (fmt::percent(busy.min(1.0)), fmt::number(us));
    Some(format!("the CPU: workers{copies} are on a core for {share} of the time, {us} us a block"))
}

/// The limit in the machine description, if it describes the store and the limit is reached.
fn described(run: &RunView, host: &IoEntry<'_, '_>, rate: f64) -> Option<String> {
    let (limit, why) = run.bound(host.flow)?;
    (rate >= REACHES * limit).then(|| format!("{why}, {}", fmt::gbs(limit)))
}

/// The PCIe link of the drive.
fn link(run: &RunView, host: &IoEntry<'_, '_>, rate: f64) -> Option<String> {
    if host.io.cache != IoCache::Direct {
        return None;
    }
    let device = &run.journal.begin.stores.get(host.store() as usize)?.device;
    let topology = run.topology();
    let drive = topology.blocks.iter().find(|b| !device.is_empty() && b.name == *device)?;
    let link = topology.pci.iter().find(|p| p.address == drive.pci)?.link?;
    let peak = link.peak().gbs();
    let (limit, speed, width) = (fmt::gbs(peak), link.speed_gts, link.width);
    (peak > 0.0 && rate >= LINK_FULL * peak)
        .then(|| format!("the PCIe link of {device}, {limit} at {speed} GT/s x {width}"))
}

/// The same case with more or fewer in flight.
fn in_flight(host: &IoEntry<'_, '_>, rate: f64, jobs: &[IoEntry<'_, '_>]) -> Option<String> {
    let slots = host.io.slots();
    let others = || {
        let alike = jobs.iter().filter(|other| same_work(host, other));
        alike.filter_map(|other| Some((other.io.slots(), other.value(IoQuantity::Rate)?)))
    };
    let more = others().filter(|o| o.0 > slots && o.1 * REACHES > rate);
    if let Some((rate, n)) = most(more.map(|(n, rate)| (rate, n))) {
        return Some(format!("{slots} in flight are too few: {n} give {}", fmt::gbs(rate)));
    }
    let (n, less) = others().filter(|o| o.0 < slots).max_by_key(|o| o.0)?;
    let power = (rate / less).ln() / (slots as f64 / n as f64).ln();
    let [rate, less] = [rate, less].map(fmt::gbs);
    (power < super::gaps::GROWS).then(|| {
        format!("the device and its file system: {slots} in flight give {rate}, {n} gave {less}")
    })
}

/// Whether two cases differ only in I/Os in flight and calls.
fn same_work(a: &IoEntry<'_, '_>, b: &IoEntry<'_, '_>) -> bool {
    let plain =
        |io: &IoSpec| IoSpec { engine: IoEngine::Uring, depth: 1, batch: 1, threads: 1, ..*io };
    plain(&a.io) == plain(&b.io)
        && (a.flow.src, a.flow.dst, a.flow.bytes) == (b.flow.src, b.flow.dst, b.flow.bytes)
}

/// Time of a single block in flight, ns: the mean of such a case, preferably with the same memory
/// and calls; infinite if there is none.
pub(super) fn alone(host: &IoEntry<'_, '_>, jobs: &[IoEntry<'_, '_>]) -> f64 {
    let work = |job: &IoEntry| {
        let (flow, io) = (job.flow, job.io);
        let ends = (flow.src.unit, flow.dst.unit, flow.bytes, flow.by.at());
        (ends, io.op, io.order, io.cache, io.span)
    };
    let memory = |job: &IoEntry| job.flow.io_ends().1.mem;
    let single = jobs.iter().filter(|o| o.io.slots() == 1 && work(o) == work(host));
    let alike = single.filter(|o| !o.latencies().is_empty());
    let unlike = |o: &&IoEntry| (memory(o) != memory(host), o.io.engine != host.io.engine);
    let nearest = alike.min_by_key(unlike).and_then(|o| o.latencies().mean());
    nearest.map_or(f64::INFINITY, |ns| ns.0)
}

/// Rate of the workers if only their own time counted, blocks per ns; `None` if unknown.
pub(super) fn worker_rate(host: &IoEntry<'_, '_>, other_ns: f64) -> Option<f64> {
    let polls = host.io.engine == IoEngine::UringPoll;
    let own = host.value(IoQuantity::Cpu).filter(|us| *us > 0.0 && !polls)? * 1e3;
    Some(f64::from(host.io.threads) / (own + other_ns))
}
