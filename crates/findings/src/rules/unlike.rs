//! Paths that are slower than the paths that should equal them.

use pathline_diagnose::UnlikePath;
use pathline_explain::fmt;

use crate::evidence::Evidence;
use crate::{Finding, FindingSeverity};

pub(super) const ID: &str = "path-slower-than-equals";

/// One finding for each path, and one for all paths that one part slows.
pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut parts: Vec<&str> = Vec::new();
    for path in &evidence.unlike {
        match path.part.as_deref() {
            Some(part) if parts.contains(&part) => {}
            part => findings.extend(finding(evidence, path).inspect(|_| parts.extend(part))),
        }
    }
    findings
}

/// None for a path whose case is disturbed or under-sampled.
fn finding(evidence: &Evidence, path: &UnlikePath) -> Option<Finding> {
    let entry = evidence.run.entry(&path.case)?;
    let value = match entry.lone().is_some_and(|flow| flow.by.is_chase()) {
        true => evidence.time(entry)?,
        false => evidence.rate(entry)?,
    };
    let (low, high) = path.ratio_range;
    let mut places = vec![path.path.clone()];
    let shares = |other: &&UnlikePath| path.part.is_some() && other.part == path.part;
    let others = evidence.unlike.iter().filter(shares).map(|other| other.path.clone());
    places.extend(others.filter(|other| *other != path.path));
    let more = match places.len() - 1 {
        0 => String::new(),
        n => format!("; {} slower, too", fmt::count(n, "other path")),
    };
    let observation = format!(
        "{} reaches {}, {} below the median of its {} peers ({}-{}){more}.",
        path.path,
        value.text(),
        fmt::percent(1.0 - path.ratio),
        path.peers,
        fmt::percent(1.0 - high).trim_end_matches(" %"),
        fmt::percent(1.0 - low),
    );
    let mut seen: Vec<String> =
        path.part.iter().map(|part| format!("damage of {part} explains it")).collect();
    if path.movers.len() > 1 {
        seen.push(format!("{} show it", fmt::list(&path.movers)));
    }
    if !path.movers_fine.is_empty() {
        seen.push(format!("not {}", fmt::list(&path.movers_fine)));
    }
    match path.reverse_fine {
        Some(true) => seen.push("the opposite direction is fine".to_owned()),
        Some(false) => seen.push("so does the opposite direction".to_owned()),
        None => (),
    }
    let cause = match seen.is_empty() {
        true => String::new(),
        false => format!("{}.", fmt::sentence(&seen.join("; "))),
    };
    Some(Finding {
        cause,
        action: "Measure again in new processes (pathline health); if it stays, check the links and the \
                 two ends of this path."
            .to_owned(),
        places,
        arms: vec![value.arm(path.path.clone())],
        weight: value.value * (1.0 / path.ratio.max(1e-3) - 1.0),
        ..Finding::new(ID, FindingSeverity::Fault, observation)
    })
}
