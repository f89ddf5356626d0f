//! Warnings about I/O results, and facts about the stores of a run.

use std::collections::BTreeMap;

use pathline_schema::{IoCache, IoEngine, IoSpec, StoreFacts};

use super::{IoEntry, IoQuantity, jobs};
use crate::figure::RunWarning;
use crate::fmt;
use crate::run::{EntryState, RunView};

/// An I/O that takes more than this multiple of the median is an outlier.
const MIN_OUTLIER: f64 = 100.0;

/// Default time after which mq-deadline must serve a waiting read, ns, with a margin
/// (Documentation/block/deadline-iosched in Linux: `read_expire` 500 ms).
const EXPIRY_NS: (f64, f64) = (450e6, 650e6);

/// Requests per I/O from which it counts as split.
const SPLIT: f64 = 1.2;

/// Layouts of a file that are shown; the journal has all.
const MAX_LAYOUTS: usize = 4;

fn facts<'a>(run: &RunView<'a>, store: u32) -> Option<&'a StoreFacts> {
    run.journal.begin.stores.get(store as usize)
}

/// Facts about each store: path, file system, device, queues.
pub(crate) fn conditions(run: &RunView) -> Vec<(String, String)> {
    let stores = run.journal.begin.stores.iter().enumerate();
    stores.map(|(i, facts)| (format!("store{i}"), store_text(facts))).collect()
}

fn store_text(facts: &StoreFacts) -> String {
    let named = |text: &str, name: &str| match text {
        "" => String::new(),
        text => format!("{name} {text}"),
    };
    let known = |is_known: bool, text: String| if is_known { text } else { String::new() };
    let polls = if facts.polls { "which can be polled" } else { "none polled" };
    let of = known(facts.size.0 > 0, format!(" of {}", facts.size.rounded()));
    let free = facts.free.rounded();
    let has_queues = facts.queues > 0;
    let before = [
        facts.path.clone(),
        facts.file_system.clone(),
        named(&facts.options, "options"),
        known(facts.fs_block.0 > 0, format!("blocks of {}", facts.fs_block)),
    ];
    let layouts = facts.stripes.iter().take(MAX_LAYOUTS).map(ToString::to_string);
    let after = [
        named(&facts.device, "on"),
        facts.model.clone(),
        facts.numa.map_or(String::new(), |n| format!("at numa{n}")),
        named(&facts.scheduler, "scheduler"),
        known(has_queues, fmt::count(facts.queues as usize, "hardware queue")),
        known(has_queues, polls.to_owned()),
        known(facts.queue_depth > 0, format!("{} requests deep", facts.queue_depth)),
        named(&facts.write_cache, "cache"),
        known(facts.logical_block.0 > 0, format!("logical block {}", facts.logical_block)),
        known(facts.max_request.0 > 0, format!("requests of at most {}", facts.max_request)),
        known(
            facts.max_segments > 0,
            format!("in {}", fmt::count(facts.max_segments as usize, "segment")),
        ),
        known(
            facts.max_hardware_request > facts.max_request,
            format!("the hardware takes {}", facts.max_hardware_request),
        ),
        known(facts.free.0 > 0, format!("{free}{of} free at the start")),
        facts.without.as_ref().map_or(String::new(), |why| format!("not measured: {why}")),
    ];
    let [path, rest @ ..] = before;
    let rest = rest.into_iter().chain(layouts).chain(after).filter(|text| !text.is_empty());
    [path].into_iter().chain(rest).collect::<Vec<_>>().join(", ")
}

pub(crate) fn warnings(run: &RunView) -> Vec<RunWarning> {
    let jobs = jobs(run);
    let mut warnings: Vec<RunWarning> = Vec::new();
    let mut add = |code: &str, subject: String, text: String| {
        warnings.push(RunWarning { code: code.into(), subject, text });
    };
    for job in &jobs {
        if let Some(text) = outliers(run, job) {
            add("outliers", job.entry.case.to_string(), text);
        }
        if let Some(text) = indirect(job) {
            add("not-direct", job.entry.case.to_string(), text);
        }
    }
    for (store, (job, requests, n)) in split(&jobs) {
        let limits = facts(run, store).map_or(String::new(), |f| {
            let limit = |what: &str, text: String| format!("; the device takes {what} of {text}");
            match (f.max_request.0, f.max_segments) {
                (0, 0) => String::new(),
                (0, n) => format!("; a request has at most {n} segments"),
                (_, 0) => limit("requests", f.max_request.to_string()),
                (_, n) => limit("requests", format!("{} in {n} segments", f.max_request)),
            }
        });
        let (cases, pieces, work) = (fmt::count(n, "case"), fmt::number(requests), job.work());
        let text = format!(
            "{cases} are split, at most into {pieces} requests each ({work}){limits}. What others did on the \
             device meanwhile counts, too."
        );
        add("split", format!("store{store}"), text);
    }
    for (why, n) in refused(run) {
        add(
            "no-polling",
            "io_uring".into(),
            format!("{} polled for completions not measured: {why}", fmt::count(n, "case")),
        );
    }
    warnings
}

/// Warns of I/Os that took far longer than the median, with the likely cause.
fn outliers(run: &RunView, job: &IoEntry<'_, '_>) -> Option<String> {
    let all = job.latencies();
    let median = all.quantile(0.5)?.0;
    let longest = all.max_ns as f64;
    if longest <= MIN_OUTLIER * median || median <= 0.0 {
        return None;
    }
    let first = pathline_schema::IoHistogram::bucket((MIN_OUTLIER * median) as u64);
    let far: u64 = all.counts.iter().filter(|(bucket, _)| *bucket > first).map(|(_, n)| n).sum();
    let scheduler = facts(run, job.store()).map_or("", |f| f.scheduler.as_str());
    let at_expiry = longest >= EXPIRY_NS.0 && longest <= EXPIRY_NS.1;
    let like = match (at_expiry, scheduler) {
        (true, "mq-deadline") => {
            "; that is near the 500 ms after which its scheduler, mq-deadline, serves a read that waits"
        }
        (true, _) => "; that is near the 500 ms after which mq-deadline serves a read that waits",
        _ => "",
    };
    Some(format!(
        "{} of {} took more than {MIN_OUTLIER} times the median of {} us, the longest {} ms{like}.",
        far.max(1),
        fmt::count(usize::try_from(all.count()).unwrap_or(usize::MAX), "I/O"),
        fmt::number(median / 1e3),
        fmt::number(longest / 1e6),
    ))
}

/// Warns of GPU direct that is not direct, or whose library does not report it.
fn indirect(job: &IoEntry<'_, '_>) -> Option<String> {
    if job.io.engine != IoEngine::Gds {
        return None;
    }
    let engine = job.entry.engine();
    if engine.to_lowercase().contains("compat") {
        return Some(format!(
            "{engine}: the library staged the bytes through host memory itself; its rate is none of GPU direct"
        ));
    }
    engine.contains("not told").then(|| format!("{engine}: its rate may be none of GPU direct"))
}

/// For each store the number of cases split into several requests, and the most affected one.
fn split<'j, 'b, 'a>(
    jobs: &'j [IoEntry<'b, 'a>],
) -> BTreeMap<u32, (&'j IoEntry<'b, 'a>, f64, usize)> {
    let mut split: BTreeMap<u32, (&IoEntry, f64, usize)> = BTreeMap::new();
    for job in jobs.iter().filter(|j| j.io.cache == IoCache::Direct) {
        let Some(requests) = job.value(IoQuantity::Requests).filter(|r| *r > SPLIT) else {
            continue;
        };
        let worst = split.entry(job.store()).or_insert((job, requests, 0));
        worst.2 += 1;
        if requests > worst.1 {
            (worst.0, worst.1) = (job, requests);
        }
    }
    split
}

/// Reasons why cases that poll for completions have no figures.
fn refused(run: &RunView) -> BTreeMap<String, usize> {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let polls = |io: &IoSpec| io.engine == IoEngine::UringPoll;
    for entry in &run.entries {
        let EntryState::Absent(why) = entry.state else { continue };
        if entry.case.timed.iter().filter_map(|f| f.by.io()).any(polls) {
            *reasons.entry(fmt::reason(entry.case, why).to_owned()).or_default() += 1;
        }
    }
    reasons
}
