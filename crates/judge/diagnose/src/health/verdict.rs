//! From evidence and facts to a verdict.

use pathline_schema::{Flow, NodeVerdict};
use pathline_stats::{ascending, interpolated};

use crate::culprit::{Culprit, PathLosses};
use crate::health::facts::{NodeFacts, TrainedLink};
use crate::health::losses::probe_losses;
use crate::health::monitor::{HealthMonitor, ProbeSeries};
use crate::health::plan::PathCeiling;
use crate::health::report::{ClassShare, HealthReport, SuspectPath, TestPower};
use crate::labels::{loss_text, paths_text};
use crate::posterior::SURE;

/// The most characters of a reason.
const REASON_CHARS: usize = 100;
/// Share of a class that may differ before the class itself is in question.
const WRONG_CLASS: f64 = 1.0 / 3.0;
/// A class that reaches less than this share of its narrowest hop,
const LOW_SHARE: f64 = 0.5;
/// and less than this share of what healthy paths reach of it, may be slow as a whole.
const LOW_EXPECTED: f64 = 0.75;
/// Probability at most that the median of a path which passes is slower than the loss.
const MISS: f64 = 0.01;
/// A verdict is withheld if rounds spread so much that a round may lose this share without being slow.
const NOTED_SPREAD: f64 = 0.1;

/// Classes on which no verdict is possible, and why.
#[derive(Default)]
struct Unjudged {
    classes: Vec<usize>,
    reasons: Vec<String>,
}

/// The verdict on what a monitor has seen.
pub(crate) fn judge_node(monitor: &HealthMonitor<'_>, facts: &NodeFacts) -> HealthReport {
    let losses = probe_losses(monitor);
    let unjudged = unjudged(monitor, &losses);
    let (states, slow): (Vec<usize>, Vec<usize>) =
        monitor.suspects().into_iter().partition(|&probe| monitor.is_process_state(probe));
    let mut suspects: Vec<SuspectPath> =
        slow.into_iter().filter_map(|probe| suspect(monitor, probe)).collect();
    for suspect in &mut suspects {
        let class = monitor.plan.probes.get(suspect.probe).map(|probe| probe.class);
        suspect.confirmed &= class.is_some_and(|class| !unjudged.classes.contains(&class));
    }
    suspects.sort_by(|a, b| b.loss.total_cmp(&a.loss));
    let faults = faults(facts);
    let mut culprits = losses.culprits();
    let classes = class_shares(monitor);
    let low: Vec<String> = classes.iter().filter_map(low_share).collect();
    let checked =
        Checked { facts, faults: &faults, suspects: &suspects, unjudged: &unjudged, low: &low };
    let (state, reason) = state(monitor, &checked, &culprits);
    if state == NodeVerdict::Undecided {
        // What may be no fault has no culprit.
        culprits.clear();
    }
    let mut notes = notes(facts);
    notes.extend(states.into_iter().filter_map(|probe| state_note(monitor, probe)));
    notes.extend(unjudged.reasons);
    notes.extend(low);
    let mut unseen = monitor.plan.unseen.clone();
    unseen.extend(wide_spreads(monitor));
    unseen.extend(facts.unread.iter().chain(&facts.limits).cloned());
    HealthReport {
        state,
        reason: shortened(reason),
        suspects,
        culprits,
        power: power(monitor),
        faults,
        notes,
        classes,
        unseen,
    }
}

/// What a path lost in the few processes in which it was slow.
fn state_note(monitor: &HealthMonitor<'_>, probe: usize) -> Option<String> {
    let slow = monitor.series(probe).filter(|series| series.is_slow());
    let relative = slow.flat_map(|series| series.relative.iter().copied());
    let loss = 1.0 - interpolated(&ascending(relative), 0.5)?.exp();
    Some(format!(
        "{}: {:.1} % slower than its peers in {} of {} processes",
        monitor.plan.probes.get(probe)?.label,
        loss * 100.0,
        monitor.slow_processes(probe),
        monitor.series(probe).count()
    ))
}

fn shortened(reason: String) -> String {
    if reason.chars().count() <= REASON_CHARS {
        return reason;
    }
    let cut: String = reason.chars().take(REASON_CHARS - 1).collect();
    format!("{cut}…")
}

fn faults(facts: &NodeFacts) -> Vec<String> {
    let missing = facts.missing.iter().map(|part| format!("{part} is missing"));
    let links = facts.links.iter().filter_map(TrainedLink::loss);
    missing.chain(links).chain(facts.failed.iter().cloned()).collect()
}

fn notes(facts: &NodeFacts) -> Vec<String> {
    let errors = facts.links.iter().filter_map(|link| {
        let (before, after) = link.errors?;
        let new = after.checked_sub(before).filter(|n| *n > 0)?;
        Some(format!("{}: {new} corrected errors while it was measured", link.name))
    });
    let idle = facts
        .links
        .iter()
        .filter(|link| !link.under_load && link.speed > 0.0 && link.speed < link.max_speed * 0.99);
    let idle = idle.map(|link| format!("{}: its speed was read while it was idle", link.name));
    errors.chain(idle).chain(facts.notes.iter().cloned()).collect()
}

/// Classes in which no path can be judged, by index, and in which more processes would not change that:
/// one of two differing paths of a larger class may be in a state of its process.
pub(crate) fn unjudged_classes(monitor: &HealthMonitor<'_>) -> Vec<usize> {
    let mut found = unjudged(monitor, &probe_losses(monitor)).classes;
    found.retain(|&class| {
        let members = monitor.members(class);
        let slow = members.iter().filter(|&&probe| monitor.slow_processes(probe) > 0).count();
        members.len() == 2 || slow > 2
    });
    found
}

/// Classes of which a third or more differs without one part, or two parts of single GPUs, that explain it,
/// and classes of two that differ.
fn unjudged(monitor: &HealthMonitor<'_>, losses: &PathLosses<'_>) -> Unjudged {
    let mut found = Unjudged::default();
    for (nth, class) in monitor.plan.classes.iter().enumerate() {
        // What is equal by design differs in some processes only.
        let off = |probe: &&usize| {
            let differs = |series: &ProbeSeries| series.is_slow() || series.is_fast();
            let series = monitor.series(**probe);
            let mut decided = series.filter(|s| differs(s) || s.is_fine()).peekable();
            decided.peek().is_some() && decided.all(differs) && !monitor.is_process_state(**probe)
        };
        let off: Vec<usize> = monitor.members(nth).iter().filter(off).copied().collect();
        if class.paths == 2 && !off.is_empty() {
            found.classes.push(nth);
            let text = format!("{}: the two differ, and nothing says which is right", class.label);
            found.reasons.push(text);
        } else if off.len() as f64 >= WRONG_CLASS * class.paths as f64
            && !off.is_empty()
            && !losses.is_explained(&off)
        {
            found.classes.push(nth);
            found.reasons.push(format!(
                "{}: {} of {} differ, so they are not equal by design: is a switch hidden?",
                class.label,
                off.len(),
                class.paths
            ));
        }
    }
    found
}

fn suspect(monitor: &HealthMonitor<'_>, probe: usize) -> Option<SuspectPath> {
    let planned = monitor.plan.probes.get(probe)?;
    let pooled = |values: &dyn Fn(&ProbeSeries) -> Vec<f64>| {
        ascending(monitor.series(probe).flat_map(values))
    };
    let relative = pooled(&|series| series.relative.clone());
    let loss = |q: f64| Some(1.0 - interpolated(&relative, q)?.exp());
    Some(SuspectPath {
        probe,
        path: planned.label.clone(),
        class: monitor.plan.classes.get(planned.class)?.label.clone(),
        peers: monitor.plan.peers(planned.class),
        loss: loss(0.5)?,
        loss_range: (loss(0.975)?, loss(0.025)?),
        measured_ns: interpolated(&pooled(&|series| series.times.clone()), 0.5)?,
        reference_ns: interpolated(&pooled(&|series| series.references.clone()), 0.5)?,
        evidence: monitor.series(probe).map(|series| series.slow.log10()).collect(),
        confirmed: monitor.is_confirmed(probe),
    })
}

/// What a verdict rests on, but for the times.
struct Checked<'c> {
    facts: &'c NodeFacts,
    faults: &'c [String],
    suspects: &'c [SuspectPath],
    unjudged: &'c Unjudged,
    /// Classes that are slow as a whole.
    low: &'c [String],
}

fn state(
    monitor: &HealthMonitor<'_>,
    checked: &Checked<'_>,
    culprits: &[Culprit],
) -> (NodeVerdict, String) {
    let Checked { facts, faults, suspects, unjudged, .. } = *checked;
    if let Some(first) = faults.first() {
        let more = faults.len() - 1;
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        return (NodeVerdict::Fail, format!("{first}{more}"));
    }
    if let Some(busy) = &facts.busy {
        return (NodeVerdict::Undecided, format!("busy: {busy}"));
    }
    let confirmed: Vec<&SuspectPath> = suspects.iter().filter(|s| s.confirmed).collect();
    if let Some(worst) = confirmed.first() {
        let reason = match likely_parts(culprits).as_slice() {
            [] => describe(worst),
            [part] if confirmed.len() == 1 => named_path(part, worst),
            _ if confirmed.len() == 1 => describe(worst),
            [part] => match format!("{}: {}", part.name(), part.damage) {
                long if long.chars().count() > REASON_CHARS => part.name(),
                reason => reason,
            },
            parts => slow_together(monitor, &confirmed, parts),
        };
        return (NodeVerdict::Fail, reason);
    }
    if let Some(reason) = unstable(monitor, unjudged, culprits) {
        return (NodeVerdict::Suspect, reason);
    }
    match undecided(monitor, checked) {
        Some(why) => (NodeVerdict::Undecided, why),
        None => (NodeVerdict::Ok, power(monitor).text),
    }
}

/// A slow path, by its part if it is not slow by itself.
fn named_path(part: &Culprit, path: &SuspectPath) -> String {
    let text = format!("{}: {}", part.name(), describe(path));
    let is_named = part.is_part && text.chars().count() <= REASON_CHARS;
    if is_named { text } else { describe(path) }
}

/// Parts of which none is much less probable than the first.
fn likely_parts(culprits: &[Culprit]) -> Vec<&Culprit> {
    let odds = |culprit: &Culprit| {
        culprits.first().map_or(f64::INFINITY, |best| best.probability / culprit.probability)
    };
    let likely: Vec<&Culprit> = culprits.iter().filter(|culprit| odds(culprit) < SURE).collect();
    let is_clear = likely.len() == 1 || likely.iter().all(|culprit| culprit.is_part);
    if is_clear { likely } else { Vec::new() }
}

/// `7 pairs out of gpu3 are 32 % slower: NVLink gpu3 to switches or gpu3 copy engines to peers`.
fn slow_together(
    monitor: &HealthMonitor<'_>,
    suspects: &[&SuspectPath],
    parts: &[&Culprit],
) -> String {
    let probes = suspects.iter().filter_map(|suspect| monitor.plan.probes.get(suspect.probe));
    let flows: Vec<Flow> = probes.flat_map(|probe| probe.case.timed.iter().copied()).collect();
    let losses = loss_text(suspects.iter().map(|suspect| suspect.loss));
    let slow = format!("{} are {losses} slower", paths_text(&flows));
    let names: Vec<&str> = parts.iter().map(|part| part.element.as_str()).collect();
    match format!("{slow}: {}", names.join(" or ")) {
        long if long.chars().count() > REASON_CHARS => slow,
        reason => reason,
    }
}

/// A path that is slow now and then, if one is.
fn unstable(
    monitor: &HealthMonitor<'_>,
    unjudged: &Unjudged,
    culprits: &[Culprit],
) -> Option<String> {
    let judged = |probe: usize| {
        let class = monitor.plan.probes.get(probe).map(|probe| probe.class);
        class.is_some_and(|class| !unjudged.classes.contains(&class))
    };
    let mut paths = (0..monitor.plan.probes.len()).filter(|&probe| judged(probe));
    let probe = paths.find(|&probe| monitor.is_unstable(probe))?;
    let path = monitor.plan.probes.get(probe).map_or("a path", |probe| probe.label.as_str());
    let (slow, all) = (monitor.slow_processes(probe), monitor.series(probe).count());
    let (slow_rounds, rounds) = monitor.steadiness(probe).rounds;
    let part = match likely_parts(culprits).as_slice() {
        [part] if part.is_part && part.paths.contains(&probe) => Some(part.element.as_str()),
        _ => None,
    };
    let ends = part.and_then(|_| path.split(',').next()).unwrap_or(path);
    let of_processes = if all == 1 { String::new() } else { format!(" of {all} processes") };
    let part = part.map_or(String::new(), |part| format!("{part}: "));
    Some(match slow {
        0 => format!(
            "{part}{ends} comes and goes: slow in {slow_rounds} of {rounds} rounds{of_processes}"
        ),
        _ => format!("{part}{ends} is slow in {slow} of {all} processes"),
    })
}

/// Why a node that shows no fault does not pass; none if it does.
fn undecided(monitor: &HealthMonitor<'_>, checked: &Checked<'_>) -> Option<String> {
    let paths = monitor.plan.standing;
    if paths == 0 {
        return Some("nothing to judge: no GPU was found".into());
    }
    if !(0..paths).any(|probe| monitor.has_peers(probe)) {
        return Some("nothing to compare: no path has a peer".into());
    }
    if let Some(reason) = checked.unjudged.reasons.first() {
        return Some(reason.clone());
    }
    if let Some(suspect) = checked.suspects.first() {
        return Some(format!("{}, not yet confirmed", describe(suspect)));
    }
    if let Some(low) = checked.low.first() {
        return Some(low.clone());
    }
    let undecided = monitor.undecided().len();
    if undecided > 0 {
        let why = checked.facts.stopped.as_deref().unwrap_or("noise or losses near the limit");
        return Some(format!("{undecided} of {paths} paths are undecided: {why}"));
    }
    checked.facts.unread.first().cloned()
}

fn describe(suspect: &SuspectPath) -> String {
    format!(
        "{} is {:.1} % slower than {} {}",
        suspect.path,
        suspect.loss * 100.0,
        suspect.peers,
        if suspect.peers == 1 { "peer" } else { "peers" },
    )
}

fn power(monitor: &HealthMonitor<'_>) -> TestPower {
    let paths = monitor.plan.standing;
    let compared = (0..paths).filter(|&probe| monitor.has_peers(probe)).count();
    let cleared: Vec<usize> =
        (0..paths).filter(|&probe| monitor.has_peers(probe) && monitor.is_cleared(probe)).collect();
    let processes = cleared.iter().map(|&probe| monitor.series(probe).count()).min();
    let loss = monitor.settings.loss;
    let which = match (cleared.len(), compared < paths) {
        (n, false) if n == paths => format!("all {n} paths are"),
        (n, false) => format!("{n} of {paths} paths are"),
        (n, true) => format!("{n} of {compared} paths with a peer are"),
    };
    TestPower {
        cleared: cleared.len(),
        paths,
        loss,
        miss: MISS,
        alpha: monitor.settings.alpha,
        rounds: monitor.rounds,
        processes: monitor.processes.len(),
        text: format!(
            "{which} within {} % of their peers, in {} processes",
            loss * 100.0,
            processes.unwrap_or(0)
        ),
    }
}

/// Classes whose rounds spread so much that slow rounds are hidden by noise.
fn wide_spreads(monitor: &HealthMonitor<'_>) -> impl Iterator<Item = String> {
    let classes = monitor.plan.classes.iter().enumerate();
    classes.filter_map(|(nth, class)| {
        let unseen = Some(monitor.unseen_loss(nth)).filter(|loss| *loss > NOTED_SPREAD)?;
        let label = &class.label;
        Some(format!(
            "{label}: rounds vary; one that loses {:.0} % is taken for noise",
            unseen * 100.0
        ))
    })
}

fn class_shares(monitor: &HealthMonitor<'_>) -> Vec<ClassShare> {
    let share = |(nth, class): (usize, &crate::health::plan::SymmetryClass)| {
        let members = monitor.members(nth);
        let times = members.iter().flat_map(|&probe| monitor.series(probe));
        let median_ns = interpolated(&ascending(times.flat_map(|s| s.times.iter().copied())), 0.5);
        let ceiling = members.iter().find_map(|&probe| {
            let ceiling = monitor.plan.ceilings.get(probe)?.as_ref()?;
            let bytes = monitor.plan.probes.get(probe)?.case.timed.first()?.bytes.as_f64();
            Some((ceiling, bytes))
        });
        let of = |rate: fn(&PathCeiling) -> Option<f64>| {
            let ((ceiling, bytes), ns) = ceiling.zip(median_ns)?;
            Some(bytes / rate(ceiling)? / ns)
        };
        ClassShare {
            class: class.label.clone(),
            paths: class.paths,
            median_ns,
            of_ceiling: of(|ceiling| Some(ceiling.rate)),
            of_expected: of(|ceiling| ceiling.expected),
            narrowest: ceiling.map(|(ceiling, _)| ceiling.name.clone()),
        }
    };
    monitor.plan.classes.iter().enumerate().map(share).collect()
}

/// A class that is far from what its narrowest hop allows and from what healthy paths reach of it: symmetry
/// does not see what is slow on all of its paths.
fn low_share(class: &ClassShare) -> Option<String> {
    let share = class.of_ceiling.filter(|share| *share < LOW_SHARE)?;
    class.of_expected.filter(|share| *share < LOW_EXPECTED)?;
    let hop = class.narrowest.as_ref()?;
    Some(format!("{}: all reach {:.0} % of {hop}", class.class, share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 to 1 is enough to name the first part alone. Below that, parts that may all be to blame are named
    /// together, but no path, which is no part to replace.
    #[test]
    fn a_reason_names_the_parts_that_20_to_1_leave() {
        let named = |rows: &[(f64, bool)]| {
            let culprit = |&(probability, is_part): &(f64, bool)| Culprit {
                element: probability.to_string(),
                damage: String::new(),
                links: None,
                probability,
                odds: 1.0,
                next: None,
                decided_by: None,
                paths: Vec::new(),
                left: Vec::new(),
                is_part,
            };
            likely_parts(&rows.iter().map(culprit).collect::<Vec<_>>()).len()
        };
        assert_eq!(named(&[(0.8, true), (0.04, true), (0.04, false)]), 1);
        assert_eq!(named(&[(0.8, true), (0.041, true), (0.04, false)]), 2);
        assert_eq!(named(&[(0.8, true), (0.1, false)]), 0);
        assert_eq!((named(&[(0.9, false)]), named(&[])), (1, 0));
    }
}
