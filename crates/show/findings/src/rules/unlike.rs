//! Paths that are slower than the paths that should equal them.

use std::collections::BTreeSet;

use pathline_diagnose::UnlikePath;
use pathline_explain::fmt;
use pathline_schema::Unit;

use crate::evidence::{Evidence, range_of};
use crate::{Finding, FindingSeverity};

pub(super) const ID: &str = "path-slower-than-equals";

/// Paths out of or into one GPU that make one fault, where no part explains them better.
const MIN_OF_GPU: usize = 3;

/// Slow paths with one cause, the slowest first.
pub(crate) struct SlowGroup<'e> {
    /// `xGMI gpu2-gpu4, both directions`, `all from gpu2`; none of a path alone.
    name: Option<String>,
    worst: &'e UnlikePath,
    pub(crate) paths: Vec<&'e UnlikePath>,
}

impl SlowGroup<'_> {
    /// The GPUs of the part that makes all of them slow; none if no one part does.
    pub(crate) fn gpus(&self) -> Vec<u32> {
        let units = self.name.as_deref().map(gpus_in).unwrap_or_default();
        units.into_iter().filter_map(|unit| unit.gpu()).collect()
    }

    /// `25 to 50 %`: what the paths lose.
    fn loss(&self) -> String {
        let losses: Vec<f64> = self.paths.iter().map(|path| 1.0 - path.ratio).collect();
        let (low, high) = range_of(&losses).unwrap_or_default();
        let (low, high) = (fmt::percent(low), fmt::percent(high));
        match low == high {
            true => high,
            false => format!("{} to {high}", low.trim_end_matches(" %")),
        }
    }

    /// What is slow, by how much, in a clause.
    pub(crate) fn summary(&self) -> String {
        let (path, loss, peers) = (&self.worst.path, self.loss(), self.worst.peers);
        match (&self.name, self.paths.len()) {
            (None, _) => format!("{path} is {loss} below the median of its {peers} peers"),
            (Some(name), 1) => {
                format!("{name}: {path} is {loss} below the median of its {peers} peers")
            }
            (Some(name), n) => {
                format!("{name}: {n} paths are {loss} slower than their peers, the worst {path}")
            }
        }
    }
}

/// Slow paths by the part that slows them, else by the GPU that they leave or enter.
pub(crate) fn slow_groups(unlike: &[UnlikePath]) -> Vec<SlowGroup<'_>> {
    let mut rest: Vec<&UnlikePath> = unlike.iter().collect();
    let mut groups = Vec::new();
    while let Some(&worst) = rest.first() {
        let end = |path: &UnlikePath, out: bool| match path.case.timed.as_slice() {
            [flow] => Some(if out { flow.src.unit } else { flow.dst.unit }),
            _ => None,
        };
        let alike = |out: bool| {
            let same =
                |path: &&&UnlikePath| path.part.is_none() && end(path, out) == end(worst, out);
            rest.iter().filter(same).copied().collect::<Vec<_>>()
        };
        let (name, paths) = match &worst.part {
            Some(part) => {
                let same = rest.iter().filter(|path| path.part.as_ref() == Some(part));
                (Some(part.clone()), same.copied().collect())
            }
            None => {
                let (from, into) = (alike(true), alike(false));
                let out = from.len() >= into.len();
                let most = if out { from } else { into };
                match end(worst, out) {
                    Some(unit @ Unit::Gpu(_)) if most.len() >= MIN_OF_GPU => {
                        (Some(format!("all {} {unit}", if out { "from" } else { "to" })), most)
                    }
                    _ => (None, vec![worst]),
                }
            }
        };
        rest.retain(|path| !paths.iter().any(|of: &&UnlikePath| std::ptr::eq(*of, *path)));
        groups.push(SlowGroup { name, worst, paths });
    }
    groups
}

/// One finding for each path alone, and one for all paths that one part slows.
pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    slow_groups(&evidence.unlike).iter().filter_map(|group| finding(evidence, group)).collect()
}

/// None for a path whose case is disturbed or under-sampled.
fn finding(evidence: &Evidence, group: &SlowGroup) -> Option<Finding> {
    let path = group.worst;
    let entry = evidence.run.entry(&path.case)?;
    let value = match entry.lone().is_some_and(|flow| flow.by.is_chase()) {
        true => evidence.time(entry)?,
        false => evidence.rate(entry)?,
    };
    let all = group.paths.len();
    let places: Vec<String> = group.paths.iter().map(|path| path.path.clone()).collect();
    let mut seen: Vec<String> = Vec::new();
    if !path.movers_fine.is_empty() {
        let are = if path.movers_fine.len() == 1 { "is" } else { "are" };
        seen.push(format!("{} {are} normal there", fmt::list(&path.movers_fine)));
    }
    match path.reverse_fine {
        Some(true) => seen.push("the opposite direction is fine".to_owned()),
        Some(false) => seen.push("the opposite direction is slow, too".to_owned()),
        None => (),
    }
    let explained = match (&path.part, all) {
        (None, _) => String::new(),
        (Some(part), 1) => format!("damage of {part} explains it"),
        (Some(part), n) => format!("damage of {part} explains all {n}"),
    };
    let cause = match (explained.is_empty(), seen.is_empty()) {
        (_, true) => explained,
        (true, false) => seen.join("; "),
        (false, false) => format!("{explained} ({})", seen.join("; ")),
    };
    let ends = match group.name.as_deref() {
        None | Some("") => path.case.flows().flat_map(|f| [f.src.unit, f.dst.unit]).collect(),
        Some(name) => gpus_in(name),
    };
    let gpus: Vec<String> = ends.iter().map(Unit::to_string).collect();
    let counters = evidence.caps().link_errors.filter(|_| ends.iter().any(|u| u.gpu().is_some()));
    let gpus = fmt::list(&gpus);
    let next = match counters {
        // The links of a copy engine carry other copies as they should.
        _ if group.name.as_ref().is_some_and(|part| part.contains("engine")) => {
            format!("reset {gpus}, then the vendor")
        }
        Some(command) => format!("`{command}` for {gpus}, reseat, then the vendor"),
        None => format!("check the links of {gpus}"),
    };
    Some(Finding {
        short: match &group.name {
            Some(name) => {
                format!("{name}: {all} paths {} slower; worst {}", group.loss(), path.path)
            }
            None => format!("{}: {}, {} slower", path.path, value.plain_text(), group.loss()),
        },
        cause: if cause.is_empty() { cause } else { format!("{}.", fmt::sentence(&cause)) },
        action: format!(
            "`{}` measures it in new processes; if it stays: {next}.",
            evidence.health()
        ),
        places,
        arms: vec![value.arm(path.path.clone())],
        weight: value.value * (1.0 / path.ratio.max(1e-3) - 1.0),
        ..Finding::new(
            ID,
            FindingSeverity::Fault,
            format!("{} at {}.", fmt::sentence(&group.summary()), value.text()),
        )
    })
}

/// GPUs that the name of a part has: 2 and 4 of `xGMI gpu2-gpu4`.
fn gpus_in(part: &str) -> BTreeSet<Unit> {
    let words = part.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter_map(|word| Some(Unit::Gpu(word.strip_prefix("gpu")?.parse().ok()?))).collect()
}
