//! Causes of what files reach on a described store: blocks in flight, one target of several, half the rate of
//! its targets.

use pathline_flow::{MachineDesc, StoreKind, StoreModel};
use pathline_paste::{FileIoResult, PasteContext};

use crate::cause_table::CauseFacts;
use crate::draft::DraftAnswer;
use crate::figures::figure;
use crate::predicted_row::PredictedRow;

/// Pages of buffers, bytes: each may be a segment of a request.
const PAGE: u64 = 4096;
/// Share of the ceiling from which on more blocks in flight gain nothing.
const SATURATED: f64 = 0.8;

/// Blocks that a run has in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IoLoad {
    /// Workers times depth.
    pub(crate) in_flight: f64,
    /// Bytes of a block.
    pub(crate) block: u64,
    pub(crate) writes: bool,
}

/// The store that a run used: by its mount point in the paste, or the drives behind a device's name.
pub(crate) fn store_of<'a>(
    desc: &'a MachineDesc,
    result: &FileIoResult,
    context: &PasteContext,
) -> Option<(&'a StoreModel, u32)> {
    let command = context.commands.join(" ");
    let names = |part: &str| result.path.contains(part) || command.contains(part);
    let mounted = desc.stores.iter().find(|store| names(&store.path));
    if let Some(store) = mounted {
        return Some((store, store.targets));
    }
    let drives = desc.stores.iter().find(|store| store.kind == StoreKind::Nvme);
    drives.filter(|_| names("/dev/nvme")).map(|store| (store, 1))
}

/// Rate in GB/s, and whether more blocks in flight would gain nothing: the least of what the blocks in flight
/// bring, of what the buses carry, of the requests that fronts and channels take.
pub(crate) fn store_rate(
    store: &StoreModel,
    targets: u32,
    slower: f64,
    load: IoLoad,
) -> (f64, bool) {
    let one = StoreModel { targets, ..store.clone() };
    let requests: Vec<_> = one.requests(0, load.block, PAGE).take(4096).collect();
    let count = requests.len().max(1) as f64;
    let rate = one.rate(load.writes).0 * slower;
    // The requests of a block share the targets that they fall on.
    let mut touched: Vec<u32> = requests.iter().map(|request| request.target).collect();
    touched.sort_unstable();
    touched.dedup();
    let part = load.block as f64 / touched.len().max(1) as f64;
    let alone = one.latency(load.writes).0 + one.network_us * 1e3 + part / rate;
    let by_depth = load.in_flight * load.block as f64 / alone;
    let (ceiling, _) = one.ceiling(load.writes);
    let buses = rate * f64::from(targets);
    let (requests_s, _) = one.most_requests(load.writes);
    let by_requests = requests_s * load.block as f64 / count / 1e9;
    let cap = ceiling.0.min(buses).min(by_requests);
    (by_depth.min(cap), by_depth > SATURATED * cap)
}

/// Replaces the guesses of a draft by what the store of the node gives under each edit.
pub(crate) fn add_store_worlds(
    draft: &mut DraftAnswer,
    (store, targets): (&StoreModel, u32),
    load: IoLoad,
    is_direct: bool,
) {
    let (expected, saturated) = store_rate(store, targets, 1.0, load);
    let many = IoLoad { in_flight: 1e6, ..load };
    let (full, _) = store_rate(store, targets, 1.0, many);
    let (in_flight, block, path) = (figure(load.in_flight), load.block, &store.path);
    let measured = draft.value.unwrap_or(0.0);
    let [shown, predicted, limit] = [measured, expected, full].map(figure);
    draft.limit = format!("{limit} GB/s of {path} ({targets} targets, of the machine)");
    draft.limit_gbs = Some(full);
    let way = if load.writes { "writes" } else { "reads" };
    let subject = format!("{way}, {in_flight} blocks of {block} B in flight on {path}");
    draft.model = format!("{subject}: measured {shown}, predicted {predicted}, limit {limit} GB/s");
    draft.rows = vec![PredictedRow {
        subject,
        unit: "GB/s",
        measured,
        predicted: expected,
        limit: Some(full),
        sent: None,
    }];
    draft.edits.retain(|edit| !["few-in-flight", "one-file"].contains(&edit.id));
    if !is_direct {
        // No cache serves more than memory does, and what is below the device's rate needs no cache.
        let seen = if draft.value.is_some_and(|gbs| gbs > 1.25 * full) { 3.0 } else { -2.0 };
        draft.edits.iter_mut().filter(|e| e.id == "page-cache").for_each(|e| e.evidence += seen);
    }
    let (one, _) = store_rate(store, 1, 1.0, load);
    let (half, _) = store_rate(store, targets, 0.5, load);
    let facts = CauseFacts::new(&[
        ("full", full),
        ("expected", expected),
        ("one", one),
        ("half", half),
        ("in_flight", load.in_flight),
        ("kib", load.block as f64 / 1024.0),
        ("targets", f64::from(targets)),
    ])
    .word("path", &*store.path);
    draft.edits.push(match saturated {
        true => facts.cause("store.device-full"),
        false => facts.cause("store.few-in-flight"),
    });
    if targets > 1 && one < 0.8 * expected {
        draft.edits.push(facts.cause("store.one-file"));
    }
    if half < 0.8 * expected {
        draft.edits.push(facts.cause("store.narrow-pcie"));
    }
}
