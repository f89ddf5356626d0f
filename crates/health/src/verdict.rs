//! From evidence and facts to a verdict.

use pathline_stats::{ascending, interpolated};

use crate::culprit::ProbeLosses;
use crate::facts::{NodeFacts, TrainedLink};
use crate::monitor::{HealthMonitor, ProbeSeries};
use crate::report::{ClassShare, HealthReport, HealthState, SuspectPath, TestPower};

/// The most characters of a reason.
const REASON_CHARS: usize = 100;
/// Share of a class that may differ before the class itself is in question.
const WRONG_CLASS: f64 = 1.0 / 3.0;
/// A class that reaches less than this share of its narrowest hop is noted.
const LOW_SHARE: f64 = 0.5;
/// Probability at most that a path which passes is slower than the loss.
const MISS: f64 = 0.01;

/// Classes on which no verdict is possible, and why.
#[derive(Default)]
struct Unjudged {
    classes: Vec<usize>,
    reasons: Vec<String>,
}

/// The verdict on what a monitor has seen.
pub(crate) fn judge_node(monitor: &HealthMonitor<'_>, facts: &NodeFacts) -> HealthReport {
    let losses = ProbeLosses::new(monitor);
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
    let culprits = losses.culprits();
    let (state, reason) = state(monitor, facts, &faults, &suspects, &unjudged, &culprits);
    let mut notes = notes(facts);
    notes.extend(states.into_iter().filter_map(|probe| state_note(monitor, probe)));
    notes.extend(unjudged.reasons);
    let classes = class_shares(monitor);
    notes.extend(classes.iter().filter_map(low_share));
    if let Some((unit, loss)) = losses.polished().first()
        && !suspects.is_empty()
        && *loss > monitor.settings.margin
    {
        notes.push(format!("by median polish of all pairs {unit} loses {:.1} %", percent(*loss)));
    }
    let mut unseen = monitor.plan.unseen.clone();
    unseen.extend(facts.limits.iter().cloned());
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
        "{}: {:.1} % slower than its equals in {} of {} processes",
        monitor.plan.probes.get(probe)?.label,
        loss * 100.0,
        monitor.slow_processes(probe),
        monitor.series(probe).count()
    ))
}

/// A logarithm of times as a share of speed lost, in percent.
fn percent(ln: f64) -> f64 {
    (1.0 - (-ln).exp()) * 100.0
}

fn shortened(reason: String) -> String {
    if reason.chars().count() <= REASON_CHARS {
        return reason;
    }
    let cut: String = reason.chars().take(REASON_CHARS - 1).collect();
    format!("{cut}…")
}

/// What a trained link has less than both of its ends could have.
fn link_fault(link: &TrainedLink) -> Option<String> {
    if link.width > 0 && link.width < link.max_width {
        return Some(format!(
            "{} runs {} of {} lanes or links",
            link.name, link.width, link.max_width
        ));
    }
    let slower = link.under_load && link.speed > 0.0 && link.speed < link.max_speed * 0.99;
    slower.then(|| {
        format!("{} runs at {} under load, not at {}", link.name, link.speed, link.max_speed)
    })
}

fn faults(facts: &NodeFacts) -> Vec<String> {
    let missing = facts.missing.iter().map(|part| format!("{part} is missing"));
    let links = facts.links.iter().filter_map(link_fault);
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
    errors.chain(idle).collect()
}

/// Classes in which no path can be judged, by index, and in which more processes would not change that:
/// one of two differing paths of a larger class may be in a state of its process.
pub(crate) fn unjudged_classes(monitor: &HealthMonitor<'_>) -> Vec<usize> {
    let mut found = unjudged(monitor, &ProbeLosses::new(monitor)).classes;
    found.retain(|&class| {
        let members = monitor.members(class);
        let slow = members.iter().filter(|&&probe| monitor.slow_processes(probe) > 0).count();
        members.len() == 2 || slow > 2
    });
    found
}

/// Classes of which a third or more differs without one part that explains it, and classes of two that
/// differ.
fn unjudged(monitor: &HealthMonitor<'_>, losses: &ProbeLosses<'_>) -> Unjudged {
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
            && !losses.one_part_explains(&off)
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

fn state(
    monitor: &HealthMonitor<'_>,
    facts: &NodeFacts,
    faults: &[String],
    suspects: &[SuspectPath],
    unjudged: &Unjudged,
    culprits: &[crate::report::Culprit],
) -> (HealthState, String) {
    if let Some(first) = faults.first() {
        let more = faults.len() - 1;
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        return (HealthState::Fail, format!("{first}{more}"));
    }
    if let Some(busy) = &facts.busy {
        return (HealthState::Inconclusive, format!("busy: {busy}"));
    }
    let describe = |suspect: &SuspectPath| {
        format!(
            "{} is {:.1} % slower than {} equal {}",
            suspect.path,
            suspect.loss * 100.0,
            suspect.peers,
            if suspect.peers == 1 { "path" } else { "paths" },
        )
    };
    let confirmed: Vec<&SuspectPath> = suspects.iter().filter(|s| s.confirmed).collect();
    if let Some(worst) = confirmed.first() {
        let part = culprits.first().filter(|c| c.odds >= 20.0 && confirmed.len() > 1);
        let reason = match part {
            Some(culprit) => format!("{}: {}", culprit.element, culprit.damage),
            None => describe(worst),
        };
        return (HealthState::Fail, reason);
    }
    let judged = |probe: usize| {
        let class = monitor.plan.probes.get(probe).map(|probe| probe.class);
        class.is_some_and(|class| !unjudged.classes.contains(&class))
    };
    let unstable = suspects.iter().find(|s| judged(s.probe) && monitor.is_unstable(s.probe));
    if let Some(suspect) = unstable {
        let slow = monitor.slow_processes(suspect.probe);
        let all = monitor.series(suspect.probe).count();
        let path = &suspect.path;
        return (HealthState::Unstable, format!("{path} is slow in {slow} of {all} processes"));
    }
    let flickers = |probe: usize| Some((probe, monitor.flickering_rounds(probe)?));
    let flickering = (0..monitor.plan.probes.len()).filter(|&probe| judged(probe));
    if let Some((probe, (slow, all))) = flickering.filter_map(flickers).next() {
        let path = monitor.plan.probes.get(probe).map_or("a path", |probe| probe.label.as_str());
        let reason = format!("{path} comes and goes: slow in {slow} of {all} rounds of a process");
        return (HealthState::Unstable, reason);
    }
    if monitor.plan.probes.is_empty() {
        return (HealthState::Inconclusive, "nothing to judge: no GPU was found".into());
    }
    if !(0..monitor.plan.probes.len()).any(|probe| monitor.has_equals(probe)) {
        let why = "nothing to compare: no path has an equal, as on a node of one GPU";
        return (HealthState::Inconclusive, why.into());
    }
    if let Some(reason) = unjudged.reasons.first() {
        return (HealthState::Inconclusive, reason.clone());
    }
    if let Some(suspect) = suspects.first() {
        let why = format!("{}, not yet confirmed", describe(suspect));
        return (HealthState::Inconclusive, why);
    }
    let undecided = monitor.undecided().len();
    if undecided > 0 {
        let why = facts.stopped.clone().unwrap_or_else(|| "noise or losses near the limit".into());
        let all = monitor.plan.probes.len();
        return (
            HealthState::Inconclusive,
            format!("{undecided} of {all} paths are undecided: {why}"),
        );
    }
    (HealthState::Pass, power(monitor).text)
}

fn power(monitor: &HealthMonitor<'_>) -> TestPower {
    let clear = |probe: &usize| {
        monitor.has_equals(*probe)
            && (monitor.series(*probe).next().is_some_and(ProbeSeries::is_clear)
                || monitor.is_process_state(*probe))
    };
    let paths = monitor.plan.probes.len();
    let cleared = (0..paths).filter(clear).count();
    let loss = monitor.settings.loss;
    TestPower {
        cleared,
        paths,
        loss,
        miss: MISS,
        alpha: monitor.settings.alpha,
        rounds: monitor.rounds,
        processes: monitor.processes.len(),
        text: format!(
            "{cleared} of {paths} paths lose less than {:.1} % against their equals, with 99 % each",
            loss * 100.0
        ),
    }
}

fn class_shares(monitor: &HealthMonitor<'_>) -> Vec<ClassShare> {
    let share = |(nth, class): (usize, &crate::plan::SymmetryClass)| {
        let members = monitor.members(nth);
        let times = members.iter().flat_map(|&probe| monitor.series(probe));
        let median_ns = interpolated(&ascending(times.flat_map(|s| s.times.iter().copied())), 0.5);
        let ceiling = members.iter().find_map(|&probe| {
            let (rate, name) = monitor.plan.ceilings.get(probe)?.as_ref()?;
            let bytes = monitor.plan.probes.get(probe)?.case.timed.first()?.bytes.as_f64();
            Some((bytes / rate, name.clone()))
        });
        ClassShare {
            class: class.label.clone(),
            paths: class.paths,
            median_ns,
            of_ceiling: ceiling.as_ref().zip(median_ns).map(|((least, _), ns)| least / ns),
            narrowest: ceiling.map(|(_, name)| name),
        }
    };
    monitor.plan.classes.iter().enumerate().map(share).collect()
}

/// A class that is far from what its narrowest hop allows, as if all of it were slow: symmetry does not
/// see that. A bound and no test, since mechanisms such as a copy engine can be slower by design.
fn low_share(class: &ClassShare) -> Option<String> {
    let share = class.of_ceiling.filter(|share| *share < LOW_SHARE)?;
    let hop = class.narrowest.as_ref()?;
    Some(format!("{}: reaches {:.0} % of {hop}", class.class, share * 100.0))
}
