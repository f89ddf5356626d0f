//! The verdict on a node that a run allows.

use std::collections::{BTreeMap, BTreeSet};

use pathline_diagnose::{TrainedLink, gpus_in};
use pathline_explain::case_end::CaseEnds;
use pathline_explain::figure::{FigureCell, RunReport, Suspicion};
use pathline_explain::figures::pairs::pairs;
use pathline_explain::fmt;
use pathline_explain::judge::{RunVerdict, judge, uncorrected_errors};
use pathline_explain::run::{CaseQuantity, RunView};
use pathline_schema::{
    Bytes, Case, CaseOutcome, ConstantOrigin, Flow, Journal, MemKind, NodeVerdict, RunEnd, RunNote,
    VerifyResult,
};
use serde::Serialize;

use crate::evidence::{Evidence, find_misplaced, health_command};

/// The verdict and its reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunAnswer {
    /// The verdict; none of a run in which nothing failed and nothing has peers to compare it with.
    pub state: Option<NodeVerdict>,
    /// Why, in one sentence that names places and numbers.
    pub reason: String,
    /// GPUs of the part that makes paths slow, or what these have in common, or the ends of the slowest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u32>,
    /// Cases of paths that are slower than their peers, which figures mark; the one that the reason names first.
    #[serde(skip)]
    pub slow: Vec<Case>,
    /// These, and all others that the same part slows: classes of paths leave them out.
    #[serde(skip)]
    pub covered: Vec<Case>,
}

impl RunAnswer {
    fn new(state: NodeVerdict, reason: String) -> Self {
        Self { state: Some(state), reason, ..Self::default() }
    }

    /// The verdict and its reason: `SUSPECT: gpu1→gpu4 ...`.
    pub fn sentence(&self) -> String {
        let word = self.word().map(|word| format!("{word}: ")).unwrap_or_default();
        format!("{word}{}", self.reason)
    }

    /// As reports print it: `OK`; nothing without a verdict.
    pub fn word(&self) -> Option<&'static str> {
        self.state.map(NodeVerdict::word)
    }
}

/// The verdict on a run.
pub(crate) fn verdict(journal: &Journal, report: &RunReport, evidence: &Evidence) -> RunAnswer {
    match judge(journal) {
        RunVerdict::Wrong => RunAnswer {
            gpus: evidence.failed.iter().flat_map(|failed| failed.gpus.clone()).collect(),
            ..RunAnswer::new(NodeVerdict::Fail, wrong(journal, report, evidence))
        },
        RunVerdict::CouldNotJudge => {
            RunAnswer::new(NodeVerdict::Undecided, "no case has a figure".to_owned())
        }
        RunVerdict::Incomplete => match evidence.failed.as_ref().zip(evidence.failure()) {
            Some((failed, failure)) => RunAnswer {
                gpus: failed.gpus.iter().copied().collect(),
                ..RunAnswer::new(NodeVerdict::Fail, failure)
            },
            None => with_stated(incomplete(journal, report, evidence), evidence),
        },
        RunVerdict::Fine => {
            let answer = interrupted(of_figures(journal, report, evidence), journal);
            with_stated(misplaced(answer, journal), evidence)
        }
    }
}

/// What a user ended before its last case is not OK: the cases that are missing may be slow.
fn interrupted(answer: RunAnswer, journal: &Journal) -> RunAnswer {
    let is_interrupted = |end: &&RunEnd| end.why.as_deref() == Some(RunEnd::INTERRUPTED);
    let end = journal.end.as_ref().filter(is_interrupted);
    let is_open = matches!(answer.state, None | Some(NodeVerdict::Ok));
    let Some(end) = end.filter(|_| is_open) else { return answer };
    let reason = format!("{}: {}; {}", RunEnd::INTERRUPTED, unmeasured(end), answer.reason);
    RunAnswer { state: Some(NodeVerdict::Undecided), reason, ..answer }
}

/// A domain whose memory lies on another one was not measured.
fn misplaced(answer: RunAnswer, journal: &Journal) -> RunAnswer {
    let is_open = matches!(answer.state, None | Some(NodeVerdict::Ok));
    let Some((text, action)) = find_misplaced(journal).filter(|_| is_open) else { return answer };
    let count = journal.notes.iter().filter(|note| note.code == RunNote::OTHER_DOMAIN).count();
    let results = fmt::count(count, "result");
    let rest = answer.reason;
    let reason = format!("{text}, which {results} did not ask for: {action}; {rest}");
    RunAnswer { state: Some(NodeVerdict::Undecided), reason, ..answer }
}

/// A link that the node itself states to be less than it should is a fault whatever was measured.
fn with_stated(answer: RunAnswer, evidence: &Evidence) -> RunAnswer {
    let mut stated = evidence.reduced.iter().filter_map(TrainedLink::loss);
    let Some(first) = stated.next() else { return answer };
    let more = match stated.count() {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    let gpus = evidence.reduced.iter().flat_map(|link| gpus_in(&link.name)).collect();
    let part =
        evidence.slow_groups.first().and_then(|group| group.part.as_deref()).unwrap_or_default();
    let is_stated = evidence.stated_loss(part).is_some();
    let is_part = is_stated && answer.reason.starts_with(part);
    let rest = answer.reason.split_once(": ").filter(|_| is_part);
    let rest = rest.map_or(answer.reason.as_str(), |(_, rest)| rest);
    let missing = evidence.reduced.first().filter(|link| link.is_missing);
    let measured = match (answer.state, missing) {
        // Its copies take other routes, which no peers of theirs take.
        (Some(NodeVerdict::Ok), Some(link)) => {
            let ends = gpus_in(&link.name).into_iter().map(|gpu| format!("gpu{gpu}"));
            let ends = ends.collect::<Vec<_>>().join(" and ");
            format!("; copies between {ends} take a longer route")
        }
        // Copies that leave links idle do not show that one of them is lost.
        (Some(NodeVerdict::Ok), None) => format!(
            "; none of {} is slower for it",
            fmt::count(evidence.compared, "compared result")
        ),
        (Some(_), _) => format!("; {rest}"),
        (None, _) => String::new(),
    };
    let (state, reason) = (Some(NodeVerdict::Fail), format!("{first}{more}{measured}"));
    RunAnswer { state, reason, gpus, ..answer }
}

/// The most serious thing that is wrong, in a sentence.
fn wrong(journal: &Journal, report: &RunReport, evidence: &Evidence) -> String {
    if let Some(note) = journal.notes.iter().find(|note| RunNote::lacks_gpus(note)) {
        return note.text.trim_end_matches('.').to_owned();
    }
    let beyond = |cell: &&FigureCell| matches!(cell.suspect, Some(Suspicion::BeyondCeiling(_)));
    let mut impossible = report.figures.iter().flat_map(|figure| figure.cells()).filter(beyond);
    if let Some(cell) = impossible.next() {
        let why = cell.suspect.as_ref().map(Suspicion::text).unwrap_or_default();
        return format!("a result is more than hardware can carry ({why})");
    }
    if let Some(errors) = uncorrected_errors(journal) {
        return errors;
    }
    let faults = CaseEnds::new(journal).of_node;
    if let Some(first) = faults.first() {
        let all = faults.len();
        let of = fmt::count(journal.outcomes.len(), "case");
        if let Some(failure) = evidence.failure().filter(|_| evidence.hangs()) {
            return failure;
        }
        let part = evidence.failed.iter().flat_map(|failed| &failed.parts).next();
        let part = part.map_or(String::new(), |part| format!("{part}: "));
        // What follows a semicolon is advice.
        let text = first.error.split([';', '\n']).next().unwrap_or_default().trim_end_matches('.');
        return match first.case.timed.as_slice() {
            [flow] => {
                format!("{part}{all} of {of} failed, first {} to {} ({text})", flow.src, flow.dst)
            }
            _ => format!("{part}{all} of {of} failed, first with: {text}"),
        };
    }
    match journal.rejected.first() {
        Some(record) => {
            format!("line {} of the journal cannot be right: {}", record.line, record.why)
        }
        None => "a result is more than hardware can carry".to_owned(),
    }
}

/// The verdict on a run that did not end, or of which cases were ended from outside. What the others show stays.
fn incomplete(journal: &Journal, report: &RunReport, evidence: &Evidence) -> RunAnswer {
    let ends = CaseEnds::new(journal);
    let (count, all) = (ends.from_outside.len(), fmt::count(journal.outcomes.len(), "case"));
    let (cause, others) = ends.main_cause().unwrap_or(("not measured", 0));
    let others = match others {
        0 => String::new(),
        n => format!(" ({n} for other reasons)"),
    };
    let mut ended = Vec::new();
    if let Some(first) = journal.broken.first() {
        let lines = fmt::count(journal.broken.len(), "line");
        ended.push(format!(
            "{lines} of the journal cannot be read, the first is line {}",
            first.line
        ));
    }
    if journal.end.is_none() {
        ended.push(match journal.outcomes.is_empty() && journal.partial.is_empty() {
            true => {
                "the journal ends before its first case: the run was stopped there, or the file is a part of one"
                    .to_owned()
            }
            false => format!("the run did not end: {all} so far"),
        });
    }
    if count > 0 {
        ended.push(format!("{count} of {all} did not finish: {cause}{others}"));
    }
    let ended = ended.join("; ");
    let rest = of_figures(journal, report, evidence);
    match rest.state {
        Some(NodeVerdict::Suspect) => {
            RunAnswer { reason: format!("{}; {ended}", rest.reason), ..rest }
        }
        Some(NodeVerdict::Ok) => {
            let compared = fmt::count(evidence.compared, "compared result");
            let reason = format!("{ended}; none of {compared} is slower than its peers");
            RunAnswer::new(NodeVerdict::Undecided, reason)
        }
        _ => RunAnswer::new(NodeVerdict::Undecided, ended),
    }
}

/// The verdict on a run in which nothing failed.
fn of_figures(journal: &Journal, report: &RunReport, evidence: &Evidence) -> RunAnswer {
    let sound = evidence.run.entries.iter().filter(|e| !e.series().is_empty()).count();
    let scope = match evidence.run.simulated() {
        Some(machine) => format!("simulated {machine}: "),
        None => String::new(),
    };
    if sound == 0 {
        return none_sound(journal, report, evidence, &scope);
    }
    if let [worst, others @ ..] = evidence.slow_groups.as_slice() {
        let others: usize = others.iter().map(|group| group.paths.len()).sum();
        let more = match others {
            0 => String::new(),
            n => format!("; {} slower, too", fmt::count(n, "other path")),
        };
        return RunAnswer {
            gpus: worst.gpus(),
            slow: evidence.slow.clone(),
            covered: evidence.covered.clone(),
            ..RunAnswer::new(NodeVerdict::Suspect, format!("{}{more}", worst.summary()))
        };
    }
    let all = journal.outcomes.len() + journal.partial.len();
    let busy = match evidence.disturbed() {
        0 => String::new(),
        1 => format!("; 1 of {} was disturbed", fmt::count(all, "result")),
        n => format!("; {n} of {} were disturbed", fmt::count(all, "result")),
    };
    if evidence.compared == 0 {
        let gpus = journal.topology.gpus.len();
        let next = match gpus {
            0 | 1 => String::new(),
            _ => format!("; `{}` compares equal paths", evidence.health()),
        };
        let messages =
            evidence.run.entries.iter().any(|e| e.case.flows().any(|f| f.by.wire().is_some()));
        let why = match messages {
            true => "messages between processes have no peers to compare with",
            false => "no path of this run has peers to compare it with",
        };
        let reason = format!("{scope}no case failed; {why}{busy}{next}");
        return RunAnswer { reason, ..RunAnswer::default() };
    }
    let unverified = evidence.run.entries.iter().find_map(|entry| entry.unverified());
    let is_verified = |outcome: &CaseOutcome| matches!(outcome, CaseOutcome::Measured(m) if m.verdict == VerifyResult::Verified);
    if let Some(why) = unverified.filter(|_| !journal.outcomes.iter().any(is_verified)) {
        let reason = format!("{scope}no case failed, but the bytes of none were verified: {why}");
        return RunAnswer::new(NodeVerdict::Undecided, reason);
    }
    let slower = format!(
        "none of {} is slower than its peers, and no case failed{busy}",
        fmt::count(evidence.compared, "compared result")
    );
    let cut = journal.end.as_ref().and_then(|end| Some((end.why.as_ref()?, end)));
    let cut = cut.filter(|(why, _)| *why != RunEnd::INTERRUPTED);
    let cut = cut.map_or(String::new(), |(why, end)| format!("; {}: {why}", unmeasured(end)));
    let unseen = unseen_faults(&evidence.run).map_or(String::new(), |text| format!("; {text}"));
    RunAnswer::new(NodeVerdict::Ok, format!("{scope}{slower}{cut}{unseen}"))
}

/// Suites of cases without an outcome that are named.
const MAX_MISSING: usize = 3;

/// `613 cases were not measured (pairs 56, local 40, sweep 30 and 12 more suites)`.
fn unmeasured(end: &RunEnd) -> String {
    let mut suites: Vec<(&String, &usize)> = end.missing.iter().collect();
    suites.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    if suites.is_empty() {
        return "other cases were not measured".to_owned();
    }
    let all = suites.iter().map(|(_, count)| **count).sum();
    let named = suites.iter().take(MAX_MISSING).map(|(suite, count)| format!("{suite} {count}"));
    let more = suites.len().saturating_sub(MAX_MISSING);
    let more = (more > 0).then(|| fmt::count(more, "more suite"));
    let named: Vec<String> = named.chain(more).collect();
    let are = if all == 1 { "was" } else { "were" };
    format!("{} {are} not measured ({})", fmt::count(all, "case"), named.join(", "))
}

/// The least size at which a copy within a GPU is bound by its memory, and not by its start or a cache.
const BEYOND_CACHES: Bytes = Bytes::mib(64);

/// What a run does not see of a node, and what does: `copies fill less than half of the links of 20 of 56 GPU pairs:
/// `pathline health` finds faults there`. None without GPUs, or if it sees all that is looked for here.
pub fn unseen_faults(run: &RunView) -> Option<String> {
    let unfilled = match unfilled_pairs(run) {
        (0, _) => None,
        (n, all) => {
            Some(format!("copies fill less than half of the links of {n} of {all} GPU pairs"))
        }
    };
    // Copies between GPUs use a fraction of what their memory gives.
    let own = |flow: &Flow| {
        let is_own = flow.src.unit == flow.dst.unit
            && [flow.src.mem, flow.dst.mem].contains(&MemKind::Vram)
            && flow.bytes >= BEYOND_CACHES
            && !flow.by.is_chase();
        flow.src.unit.gpu().filter(|_| is_own)
    };
    let seen: BTreeSet<u32> =
        run.entries.iter().flat_map(|entry| entry.case.timed.iter().filter_map(own)).collect();
    let gpus = run.journal.topology.gpus.len();
    let memory = (seen.len() < gpus).then(|| match seen.len() {
        0 => "GPU memory was not tested".to_owned(),
        tested => format!("the memory of {} of {gpus} GPUs was not tested", gpus - tested),
    });
    let unseen: Vec<String> = unfilled.into_iter().chain(memory).collect();
    (!unseen.is_empty())
        .then(|| format!("{}: `{}` finds faults there", unseen.join("; "), health_command(run)))
}

/// Pairs of GPUs whose fastest copy uses less than half of its route, and all pairs: a link that trained at
/// half of its width slows none of the former.
fn unfilled_pairs(run: &RunView) -> (usize, usize) {
    let mut filled: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    for pair in pairs(run).iter().filter(|pair| !pair.both) {
        let Some(share) = run.cell(&pair.entry, CaseQuantity::Payload).share_of_ceiling() else {
            continue;
        };
        let most = filled.entry((pair.src, pair.dst)).or_default();
        *most = most.max(share);
    }
    (filled.values().filter(|share| **share < 0.5).count(), filled.len())
}

/// Why no result of a run allows a verdict, though nothing failed. Undecided if paths of GPUs were to be compared.
fn none_sound(
    journal: &Journal,
    report: &RunReport,
    evidence: &Evidence,
    scope: &str,
) -> RunAnswer {
    let assumed = journal.outcomes.iter().filter(|outcome| match outcome {
        CaseOutcome::Measured(measured) => measured.origin == Some(ConstantOrigin::Assumed),
        _ => false,
    });
    let (assumed, disturbed) = (assumed.count(), evidence.disturbed());
    let rests = "on assumed constants of the model, which nobody measured";
    // The BUSY line gives the reasons.
    let why = if report.busy.is_some() { " (BUSY)" } else { "" };
    let reason = match (assumed, disturbed) {
        (0, _) => format!("{scope}other programs disturbed every result{why}"),
        (1, 0) => format!("{scope}the only result rests {rests}"),
        (n, 0) => format!("{scope}all {} rest {rests}", fmt::count(n, "result")),
        (n, _) => format!(
            "{scope}{} rest {rests}, and other programs disturbed the others{why}",
            fmt::count(n, "result")
        ),
    };
    // Host results alone were never to be compared with peers.
    let is_on_gpu = |case: &Case| {
        case.flows().any(|flow| [flow.src, flow.dst].iter().any(|place| place.unit.gpu().is_some()))
    };
    let to_judge = disturbed > 0 && journal.outcomes.iter().any(|o| is_on_gpu(o.case()));
    RunAnswer { state: to_judge.then_some(NodeVerdict::Undecided), reason, ..RunAnswer::default() }
}
