//! Which part of a node fails: the one that all failed operations use and no completed operation does.

use std::collections::BTreeSet;

use pathline_flow::Network;
use pathline_schema::{Case, LinkEnd, Topology, Unit};

use crate::labels::gpus_in;
use crate::posterior::SURE;
use crate::slow_group::part_remedy;

/// What this program writes of an operation that does not end: the wait for a GPU, a worker process, a rank and a
/// probe of a health check.
const HANGS: [&str; 5] = [
    "no answer in ",
    " hung: the step ",
    "did not answer for ",
    "did not end in ",
    "hangs in the kernel",
];
/// Most parts that are named together.
const MOST_PARTS: usize = 3;

/// How a case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseFate<'a> {
    /// It moved its bytes.
    Completed,
    /// It failed by the node, with this error.
    Failed(&'a str),
    /// Something outside ended it: a signal, a launcher.
    Ended,
}

/// A part that cases may have in common. A pair without switches between has its direct link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SharedPart {
    Gpu(u32),
    Pair(LinkEnd, LinkEnd),
}

/// The parts that explain the failed cases of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedParts {
    /// Names of the parts, each with those of its GPUs: all of them fail, or any one of them. None where every case
    /// failed and no part is in all.
    pub parts: Vec<String>,
    /// Whether all of the parts fail, and not one of them.
    is_known: bool,
    /// GPUs of the parts.
    pub gpus: BTreeSet<u32>,
    /// Number of failed cases.
    pub failed: usize,
    /// Whether they did not end, and gave no error.
    pub hangs: bool,
    /// The error of the first, without advice.
    pub error: String,
}

impl FailedParts {
    /// From the cases of a run in the order in which they ended. A part of which a case ended after another one of it
    /// hung does not hang. `network` knows what copies pass; without it, peaks of the topology's links stand in.
    ///
    /// None if nothing failed, or no few parts explain it.
    pub fn new(
        cases: &[(&Case, CaseFate<'_>)],
        topology: &Topology,
        network: Option<&Network>,
    ) -> Option<Self> {
        let is_failed = |fate: &CaseFate| matches!(fate, CaseFate::Failed(_));
        if !cases.iter().any(|(_, fate)| *fate != CaseFate::Completed) {
            return None;
        }
        let derived = network.is_none().then(|| Network::from_topology(topology));
        let network = network.or(derived.as_ref())?;
        let parts = cases.iter().map(|(case, fate)| {
            parts_of(case, Some(network).filter(|_| *fate != CaseFate::Completed))
        });
        let parts: Vec<_> = parts.collect();
        let which = |is_meant: &dyn Fn(&CaseFate) -> bool| -> Vec<usize> {
            let all = cases.iter().enumerate();
            all.filter(|(_, (_, fate))| is_meant(fate)).map(|(nth, _)| nth).collect()
        };
        let failed = which(&is_failed);
        let errors: Vec<&str> = failed.iter().filter_map(|&nth| error_of(cases, nth)).collect();
        let hangs = errors.iter().all(|error| HANGS.iter().any(|words| error.contains(words)));
        let completed = which(&|fate| *fate == CaseFate::Completed);
        let found = if failed.is_empty() {
            let ended = which(&|fate| *fate == CaseFate::Ended);
            let found = common_parts(&parts, &ended, &completed, &[])?;
            // Cases that others end at random have a part in common by chance.
            let known: BTreeSet<_> = parts.iter().flatten().collect();
            let is_chance = ln_choices(cases.len(), ended.len()) < (known.len() as f64 * SURE).ln();
            (found.1 && found.0.len() == 1 && !is_chance).then_some((found, ended))?
        } else {
            // A GPU whose stream is waited for may wait for another one itself.
            let found = match hangs {
                true => common_parts(&parts, &failed, &completed, &[]),
                // The first error says more than several parts.
                false => common_parts(&parts, &failed, &[], &errors)
                    .filter(|(parts, is_known)| *is_known && parts.len() == 1),
            };
            (found?, failed)
        };
        let ((shared, is_known), failed) = found;
        let names = shared.iter().map(|part| part.name(topology));
        let first = errors.first().map(|error| error.split([';', '\n']).next().unwrap_or_default());
        Some(Self {
            parts: names.collect(),
            is_known,
            gpus: shared.iter().flat_map(|part| part.gpus()).collect(),
            failed: failed.len(),
            hangs,
            error: first.unwrap_or("ended from outside").to_owned(),
        })
    }

    /// `gpu3 hangs: 12 of 12 cases that use it did not end; no other part is in all of them`. `noun` is of one: `case`.
    pub fn sentence(&self, noun: &str) -> String {
        let all = self.failed;
        let plural = if all == 1 { "" } else { "s" };
        match (self.parts.as_slice(), self.is_known) {
            ([one], _) if !self.hangs => {
                format!("{one} fails in {all} {noun}{plural}: {}", self.error)
            }
            ([], _) => {
                format!(
                    "the node hangs: none of {all} {noun}{plural} ended; which part is UNDECIDED"
                )
            }
            ([one], _) => format!(
                "{one} hangs: {all} of {all} {noun}s that use it did not end; no other part is in all of them"
            ),
            (parts, true) => format!(
                "{} hang: {all} of {all} {noun}s that use one of them did not end; no part is in all of them",
                joined(parts, "and")
            ),
            (parts, false) => format!(
                "{} hangs: {all} {noun}{plural} did not end; which part is UNDECIDED",
                joined(parts, "or")
            ),
        }
    }

    /// Whether more cases would tell which part hangs.
    pub fn is_open(&self) -> bool {
        self.hangs && !self.is_known
    }

    /// The remedy, behind what comes first: a node on which something hangs takes no more jobs.
    pub fn action(&self, topology: &Topology) -> String {
        let drain = if self.hangs { "drain the node; " } else { "" };
        format!("{drain}{}", self.remedy(topology))
    }

    /// What to do: `` `dmesg` for amdgpu messages of gpu3, reset it, then the vendor``.
    pub fn remedy(&self, topology: &Topology) -> String {
        let gpus: Vec<u32> = self.gpus.iter().copied().collect();
        let log = topology.gpus.first().map_or("driver", |gpu| gpu.caps().kernel_log);
        match self.parts.as_slice() {
            [] => format!("`dmesg` for {log} messages, reboot it, then the vendor"),
            [link, ..] if self.parts.iter().all(|part| part.contains('-')) => {
                format!("`dmesg` for {log} messages; {}", part_remedy(topology, link, &gpus))
            }
            _ => {
                let each = gpus.iter().map(|gpu| gpu_address(topology, *gpu));
                let them = if gpus.len() == 1 { "it" } else { "them" };
                let names = each.collect::<Vec<_>>().join(", ");
                format!("`dmesg` for {log} messages of {names}, reset {them}, then the vendor")
            }
        }
    }
}

/// `gpu3 (0000:c1:00.0)`
fn gpu_address(topology: &Topology, gpu: u32) -> String {
    let found = topology.gpus.iter().find(|found| found.index == gpu);
    let pci = found.map(|found| found.pci.to_string()).filter(|pci| !pci.is_empty());
    format!("gpu{gpu}{}", pci.map_or(String::new(), |pci| format!(" ({pci})")))
}

/// `gpu2, gpu3 or xGMI gpu2-gpu3`
fn joined(parts: &[String], last: &str) -> String {
    match parts {
        [most @ .., end] if !most.is_empty() => format!("{} {last} {end}", most.join(", ")),
        _ => parts.join(""),
    }
}

impl SharedPart {
    fn gpus(self) -> impl Iterator<Item = u32> {
        let gpu = |end| if let LinkEnd::Gpu(gpu) = end { Some(gpu) } else { None };
        let ends = match self {
            Self::Gpu(gpu) => [Some(gpu), None],
            Self::Pair(a, b) => [gpu(a), gpu(b)],
        };
        ends.into_iter().flatten()
    }

    fn name(self, topology: &Topology) -> String {
        match self {
            Self::Gpu(gpu) => format!("gpu{gpu}"),
            Self::Pair(a, b) => {
                let joins = |l: &&pathline_schema::Link| (l.a.min(l.b), l.a.max(l.b)) == (a, b);
                let link = topology.links.iter().find(joins).map_or("path", |l| l.kind.name());
                format!("{link} {a}-{b}")
            }
        }
    }
}

fn error_of<'a>(cases: &[(&Case, CaseFate<'a>)], nth: usize) -> Option<&'a str> {
    match cases.get(nth)?.1 {
        CaseFate::Failed(error) => Some(error),
        _ => None,
    }
}

/// GPUs and pairs that the flows of a case use or pass. Those of a case that ended are its ends alone: a route that is
/// not known for sure clears no part.
fn parts_of(case: &Case, network: Option<&Network>) -> BTreeSet<SharedPart> {
    let mut parts = BTreeSet::new();
    for flow in case.flows() {
        let units = [flow.src.unit, flow.dst.unit, flow.by.at()];
        parts.extend(units.into_iter().filter_map(Unit::gpu).map(SharedPart::Gpu));
        let route = network.filter(|_| flow.by.wire().is_none());
        let mut route = route
            .and_then(|network| network.operation(flow).ok())
            .map_or_else(|| vec![flow.src.unit.into(), flow.dst.unit.into()], |found| found.route);
        route.retain(|end| !matches!(end, LinkEnd::Switch(_)));
        for end in &route {
            if let LinkEnd::Gpu(gpu) = end {
                parts.insert(SharedPart::Gpu(*gpu));
            }
        }
        for hop in route.windows(2) {
            if let [a, b] = hop
                && a != b
            {
                parts.insert(SharedPart::Pair(*a.min(b), *a.max(b)));
            }
        }
    }
    parts
}

/// The parts that explain the failed cases, and whether all of them fail: the GPU that every failed case uses, else the
/// pair, else up to three GPUs or pairs of which every failed case uses one. If several parts are in all failed cases,
/// `errors` decide; without errors, parts of a later case of `working` are excluded, and a GPU cannot be distinguished
/// from a link that all failed cases use.
fn common_parts(
    parts: &[BTreeSet<SharedPart>],
    failed: &[usize],
    working: &[usize],
    errors: &[&str],
) -> Option<(Vec<SharedPart>, bool)> {
    let of = |nth: &usize| parts.get(*nth);
    let works = |part: &SharedPart| {
        let first = failed.iter().find(|nth| of(nth).is_some_and(|all| all.contains(part)));
        let later = working.iter().filter(|nth| first.is_some_and(|first| *nth > first));
        later.clone().any(|nth| of(nth).is_some_and(|all| all.contains(part)))
    };
    let working_parts: BTreeSet<SharedPart> =
        failed.iter().filter_map(of).flatten().copied().filter(works).collect();
    let blamed: Vec<BTreeSet<SharedPart>> =
        failed.iter().filter_map(of).map(|all| all - &working_parts).collect();
    let common = blamed.iter().cloned().reduce(|a, b| &a & &b)?;
    let (gpus, pairs): (Vec<SharedPart>, Vec<SharedPart>) =
        common.into_iter().partition(|part| matches!(part, SharedPart::Gpu(_)));
    // What follows a semicolon is advice or output.
    let named = errors.iter().map(|error| gpus_in(error.split(';').next().unwrap_or_default()));
    let named = named.reduce(|a, b| &a & &b).unwrap_or_default();
    let is_named = |part: &&SharedPart| part.gpus().all(|gpu| named.contains(&gpu));
    match (gpus.as_slice(), pairs.as_slice()) {
        ([one], []) | ([], [one]) => return Some((vec![*one], true)),
        ([one], _) if !errors.is_empty() => return Some((vec![*one], true)),
        ([], []) => {}
        _ => {
            let named: Vec<_> = gpus.iter().filter(is_named).copied().collect();
            let is_known = named.len() == 1;
            return Some((if is_known { named } else { [gpus, pairs].concat() }, is_known));
        }
    }
    let mut found = Vec::new();
    let mut left: Vec<&BTreeSet<SharedPart>> = blamed.iter().collect();
    while !left.is_empty() && found.len() < MOST_PARTS && !working.is_empty() {
        let all: BTreeSet<SharedPart> = left.iter().copied().flatten().copied().collect();
        let count = |part: &SharedPart| left.iter().filter(|parts| parts.contains(part)).count();
        // The first of equal ones: GPUs come before pairs.
        let best = all.iter().rev().max_by_key(|part| count(part)).copied();
        let Some(best) = best.filter(|part| count(part) > 1) else { break };
        found.push(best);
        left.retain(|parts| !parts.contains(&best));
    }
    let has_ended = |first: &usize| working.iter().any(|nth| nth > first);
    match left.is_empty() && !found.is_empty() {
        true => Some((found, true)),
        // Not a single case ended after the first that hung.
        false => (failed.len() > 1 && errors.is_empty() && !failed.first().is_some_and(has_ended))
            .then_some((Vec::new(), true)),
    }
}

/// Logarithm of the number of ways to choose some of all.
fn ln_choices(all: usize, some: usize) -> f64 {
    (0..some).map(|nth| ((all - nth) as f64 / (nth + 1) as f64).ln()).sum()
}

#[cfg(test)]
mod tests {
    use pathline_flow::MachineDesc;

    use super::*;

    const HANG: &str = "stream_wait: no answer in 1 s (timeout); a GPU that stays so needs a reset";

    fn found(preset: &str, rows: &[(&str, CaseFate)]) -> Option<String> {
        let topology = MachineDesc::preset(preset).expect("a preset").topology();
        let case = |row: &(&str, CaseFate)| format!("{} x 1MiB", row.0).parse().expect("a case");
        let cases: Vec<Case> = rows.iter().map(case).collect();
        let rows: Vec<_> = cases.iter().zip(rows.iter().map(|row| row.1)).collect();
        FailedParts::new(&rows, &topology, None).map(|found| found.sentence("case"))
    }

    fn copy(from: u32, to: u32) -> String {
        format!("gpu{from}.vram > gpu{to}.vram by dma@gpu{from}")
    }

    /// Which of these ordered pairs of 8 GPUs hang, in the order of a run.
    fn pairs(hangs: impl Fn(u32, u32) -> bool) -> Option<String> {
        let all = (0..8).flat_map(|a| (0..8).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let texts: Vec<(String, bool)> = all.map(|(a, b)| (copy(a, b), hangs(a, b))).collect();
        let fate = |hangs: bool| if hangs { CaseFate::Failed(HANG) } else { CaseFate::Completed };
        let rows: Vec<_> = texts.iter().map(|row| (row.0.as_str(), fate(row.1))).collect();
        found("hgx-h200", &rows)
    }

    #[test]
    fn the_smallest_part_is_in_all_that_hung_and_in_none_that_ended() {
        let is = |found: Option<String>, start: &str| {
            let found = found.unwrap_or_default();
            assert!(found.starts_with(start), "{found}");
        };
        is(
            pairs(|a, b| a == 3 || b == 3),
            "gpu3 hangs: 14 of 14 cases that use it did not end; no other",
        );
        is(pairs(|a, b| a.min(b) == 2 && a.max(b) == 3), "path gpu2-gpu3 hangs: 2 of 2 cases");
        // 2 x 7 + 2 x 7 less the two between them.
        is(
            pairs(|a, b| [3, 5].contains(&a) || [3, 5].contains(&b)),
            "gpu3 and gpu5 hang: 26 of 26 cases that use one of them did not end",
        );
        is(pairs(|_, _| true), "the node hangs: none of 56 cases ended; which part is UNDECIDED");
        assert_eq!(pairs(|_, _| false), None);
    }

    /// What ended before gpu3 hung says nothing. gpu1 to gpu2 passes gpu0 or gpu3, as the board is wired.
    #[test]
    fn cases_that_ended_before_and_forwarded_ones_count() {
        let failed = CaseFate::Failed(HANG);
        let rows = |last: CaseFate<'static>| {
            let host = "numa1.pinned > gpu3.vram by dma@gpu3";
            let all = [copy(3, 2), host.into(), copy(3, 1), copy(2, 0), copy(0, 1), copy(3, 0)];
            let fates = [
                CaseFate::Completed,
                failed,
                failed,
                CaseFate::Completed,
                CaseFate::Completed,
                last,
            ];
            let rows: Vec<_> = all.iter().map(String::as_str).zip(fates).collect();
            found("mi250x", &rows).unwrap_or_default()
        };
        assert!(rows(failed).starts_with("gpu3 hangs: 3 of 3 cases"), "{}", rows(failed));
        assert!(!rows(CaseFate::Completed).starts_with("gpu3 "), "{}", rows(CaseFate::Completed));
    }

    /// gpu3 is in every case. Of one case between two GPUs the error decides, and without it nothing does. Errors that
    /// are no hang say nothing of what else ended.
    #[test]
    fn errors_tell_two_parts_in_common_apart() {
        let hung = (&*copy(3, 2), CaseFate::Failed(HANG));
        assert_eq!(
            found("hgx-h200", &[hung]).as_deref(),
            Some("gpu2, gpu3 or path gpu2-gpu3 hangs: 1 case did not end; which part is UNDECIDED")
        );
        let host = ("numa1.pinned > gpu3.vram by dma@gpu3", CaseFate::Failed(HANG));
        let text = found("mi250x", &[host]).unwrap_or_default();
        assert!(text.starts_with("gpu3 or xGMI gpu3-numa1 hangs: 1 case did not end"), "{text}");
        let out = (&*copy(3, 2), CaseFate::Failed("wait on gpu3: an error (sticky)"));
        let into = (&*copy(1, 3), CaseFate::Failed("wait: an error"));
        let in_3 = "gpu3 fails in 2 cases: wait on gpu3: an error (sticky)";
        assert_eq!(found("hgx-h200", &[out, into]).as_deref(), Some(in_3));
        let ended = (&*copy(1, 3), CaseFate::Completed);
        let alone = found("hgx-h200", &[out, ended]).unwrap_or_default();
        assert!(alone.starts_with("gpu3 fails in 1 case"), "{alone}");
        assert_eq!(found("hgx-h200", &[into]), None);
    }

    /// Of 20 cases 3 were ended from outside, all with gpu3 and none of it ended otherwise: one in 1140 choices. Of 5
    /// cases any two have some part in common.
    #[test]
    fn cases_that_others_ended_count_if_it_is_no_chance() {
        let of = |all: usize| {
            let pairs = (0..8).flat_map(|a| (0..8).map(move |b| (a, b))).filter(|(a, b)| a != b);
            let texts: Vec<_> = pairs.filter(|(a, _)| *a != 3).take(all).collect();
            let fate = |b: u32| if b == 3 { CaseFate::Ended } else { CaseFate::Completed };
            let texts: Vec<_> = texts.iter().map(|&(a, b)| (copy(a, b), fate(b))).collect();
            let rows: Vec<_> = texts.iter().map(|row| (row.0.as_str(), row.1)).collect();
            found("hgx-h200", &rows)
        };
        assert!(of(20).is_some_and(|text| text.starts_with("gpu3 hangs: 3 of 3 cases")));
        assert_eq!(of(5), None);
    }

    #[test]
    fn remedies_name_the_log_of_the_vendor() {
        let topology = MachineDesc::preset("hgx-h200").expect("a preset").topology();
        let case: Case = format!("{} x 1MiB", copy(3, 2)).parse().expect("a case");
        let found = FailedParts::new(&[(&case, CaseFate::Failed("gpu3: lost"))], &topology, None);
        let remedy = found.expect("a part").remedy(&topology);
        assert!(remedy.starts_with("`dmesg` for Xid messages of gpu3"), "{remedy}");
    }
}
