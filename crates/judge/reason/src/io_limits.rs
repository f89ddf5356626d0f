//! The limit of file I/O: a rotating disk, the rating or the link of the drives, the adapters of the clients, a
//! described store; and whether the load can fill it.

use pathline_flow::{MachineDesc, StoreKind, StoreModel};
use pathline_paste::{FileIoResult, PasteContext, table_rows};

use crate::cause_table::CauseFacts;
use crate::draft::DraftAnswer;
use crate::figures::{figure, rate};
use crate::predicted_row::PredictedRow;
use crate::product_facts::link_peak_gbs;
use crate::usual_share::least_share;

/// Time of an I/O on flash and over a network, us, where none is printed.
pub(crate) const IO_US: f64 = 150.0;
/// Random I/Os a second of a rotating disk at most: half a turn at 7200 a minute takes 4.2 ms, a seek 1 to 9.
const DISK_IOPS: f64 = 200.0;
/// What its outer tracks carry, GB/s.
const DISK_GBS: f64 = 0.285;
/// Bytes up to which a random I/O is mostly its seek.
pub(crate) const SMALL_BLOCK: f64 = 65536.0;
/// A SATA link of the third generation, which drives have since 2009, GB/s.
const SATA_GBS: f64 = 0.6;
/// Options with which each write, or each few of them, waits for the device's flush.
const FLUSHES: &str = "fsync= fdatasync= sync=1 sync=dsync oflag=sync oflag=dsync";

/// What the drives carry, or the adapters of all clients, where the paste counts them.
pub(crate) fn set_limit(
    draft: &mut DraftAnswer,
    result: &FileIoResult,
    block: Option<f64>,
    context: &PasteContext,
) {
    let value = draft.value.unwrap_or(0.0);
    let is_random = result.is_random.unwrap_or(block.is_some_and(|block| block <= SMALL_BLOCK));
    if let Some(block) = block.filter(|_| context.rotates && is_random) {
        let gbs = DISK_IOPS * block / 1e9;
        let (most, kib) = (rate(gbs), figure(block / 1024.0));
        let text = format!(
            "{most} = {DISK_IOPS:.0} I/Os a second of {kib} KiB, what a rotating disk makes at most (half a turn and a \
             seek take 5 to 13 ms)"
        );
        return draft.set_limit(gbs, "file.rotating", text);
    }
    if context.rotates {
        let text = format!("{} GB/s, the outer tracks of a rotating disk", figure(DISK_GBS));
        return draft.set_limit(DISK_GBS, "file.rotating", text);
    }
    let count = f64::from(context.drives.unwrap_or(1));
    let writes = result.operation.to_lowercase().contains("write");
    let way = |rates: (Option<f64>, Option<f64>)| if writes { rates.1 } else { rates.0 };
    let stated = way(context.rated_gbs).map(|gbs| (gbs, "file.drive-rated", "in the paste"));
    let is_large = block.is_none_or(|block| block > SMALL_BLOCK) && context.drive_now.is_none();
    let of_model = || Some((way(model_rates(&context.prose)?)?, "file.drive-model", "data sheet"));
    if let Some((each, path, source)) = stated.or_else(|| of_model().filter(|_| is_large)) {
        let total = count * each;
        let (all, one) = (figure(total), figure(each));
        let text = format!("{all} GB/s, the rating of {count:.0} x {one} GB/s ({source})");
        return draft.set_limit(total, path, text);
    }
    // lspci of a paste without GPUs and adapters is of the drive.
    let link = context.pcie.filter(|_| context.gpus.is_empty() && context.network_gbits.is_none());
    let drive = context.drive_now.or(context.drive_gbs).or(link.map(link_peak_gbs));
    let drives = drive.map(|gbs| (count, gbs, "drive"));
    // Each client reaches the store by its own adapters.
    let clients = f64::from(context.nodes.unwrap_or(1) * context.adapters.unwrap_or(1));
    let network = context.network_gbits.map(|gbits| (clients, gbits / 8.0, "adapter"));
    let Some((count, each, what)) = drives.or(network) else {
        draft.ask =
            "what are the drives, their number and their links, or the network's rate?".to_owned();
        return;
    };
    let total = count * each;
    let path = if what == "drive" { "file.drive-link" } else { "file.network" };
    let what = match count > 1.0 {
        true => format!(", {count:.0} {what}s of {} GB/s", figure(each)),
        false => format!(" of the {what}"),
    };
    let text = format!("{} GB/s each way{what} (in the paste)", figure(total));
    draft.set_limit(total, path, text);
    if path == "file.network" && value < total * least_share(path) {
        draft.condition = "the servers and their drives have more".to_owned();
    }
    if let Some(now) = context.drive_now.filter(|now| *now < SATA_GBS) {
        let most = context.drive_gbs.filter(|most| *most > now);
        let gbits = now * 10.0;
        let facts = CauseFacts::new(&[("now", gbits), ("most", most.unwrap_or(SATA_GBS) * 10.0)]);
        let unknown = format!(
            "the SATA link runs at {} Gbit/s, drives since 2009 take 6: smartctl -i says what this one can",
            figure(gbits)
        );
        match most {
            Some(_) => draft.edits.push(facts.cause("state.narrow-sata")),
            None => draft.note = unknown,
        }
    }
}

/// What the data sheet of a drive that the text names has, reads and writes.
fn model_rates(prose: &str) -> Option<(Option<f64>, Option<f64>)> {
    let is_named = |name: &str| {
        prose.match_indices(name).any(|(at, _)| {
            let (before, after) = (prose.get(..at), prose.get(at + name.len()..));
            let joins = |c: char| c.is_ascii_alphanumeric();
            !before.is_some_and(|text| text.ends_with(joins))
                && !after.is_some_and(|text| text.starts_with(joins))
        })
    };
    let mut named = table_rows(include_str!("../data/drives.tsv")).filter(|row| is_named(row[0]));
    named.next().map(|[_, read, write]| (read.parse().ok(), write.parse().ok()))
}

/// The share of a limit counts only where the load can fill it: blocks in flight over the time of an unloaded I/O are
/// the most that they bring, and a flush after each write is a time and no rate.
pub(crate) fn unfilled(
    draft: &mut DraftAnswer,
    in_flight: Option<f64>,
    block: Option<f64>,
    command: &str,
) -> String {
    let waits = FLUSHES.split(' ').any(|option| command.contains(option));
    let Some((limit, _)) = draft.limit_gbs.zip(draft.usual) else { return String::new() };
    let most = in_flight.zip(block).map(|(n, block)| n * block / IO_US / 1e3);
    // Of a share that is reached the load was enough.
    let is_reached = draft.value.is_some_and(|value| draft.is_usual(value));
    let is_few = most.is_none_or(|most| most < limit);
    if is_reached || !waits && !is_few {
        return String::new();
    }
    draft.usual = None;
    match (waits, most) {
        (true, _) => "each write waits for a flush of the device: it is a time, and no link's rate"
            .to_owned(),
        (_, Some(most)) => format!(
            "so few in flight bring at most {} at {IO_US:.0} us each: it is a time, and no link's rate",
            rate(most)
        ),
        _ => String::new(),
    }
}

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
