//! Changes with a common path or place, in one line.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Case, Unit};

use super::noise::class_of;
use super::{CaseChange, DiffRow};

/// Share of a place's compared cases that must have changed for the place to be named.
const MIN_CHANGED: f64 = 0.8;

/// Cases with the same direction of change and a common place.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeGroup {
    /// [`CaseChange::Slower`] or [`CaseChange::Faster`].
    pub change: CaseChange,
    /// `gpu2→gpu3`, `gpu2`, a class of cases; empty for all cases.
    pub place: String,
    /// Number of cases of the place with this change.
    pub changed: usize,
    /// Number of cases of the place on both sides.
    pub compared: usize,
    /// Median of speed after divided by speed before.
    pub effect: f64,
    /// Minimum and maximum of these.
    pub range: (f64, f64),
    /// The rows, by their position in [`super::RunDiff::rows`].
    pub rows: Vec<usize>,
}

impl ChangeGroup {
    /// `all 9 cases gpu2→gpu3: -50.1 % (-52.0 to -48.3)`.
    pub fn text(&self) -> String {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let which = if self.changed == self.compared {
            format!("all {} cases", self.changed)
        } else {
            format!("{} of {} cases", self.changed, self.compared)
        };
        let place = if self.place.is_empty() { String::new() } else { format!(" {}", self.place) };
        let (low, high) = self.range;
        format!(
            "{which}{place}: {:+.1} % ({:+.1} to {:+.1})",
            percent(self.effect),
            percent(low),
            percent(high)
        )
    }
}

/// Possible common places of cases, the most specific first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SharedPlace {
    Path(Unit, Unit),
    Unit(Unit),
    Class(&'static str),
    All,
}

impl SharedPlace {
    fn name(&self) -> String {
        match self {
            Self::Path(from, to) if from == to => format!("within {from}"),
            Self::Path(from, to) => format!("{from}→{to}"),
            Self::Unit(unit) => format!("of {unit}"),
            Self::Class(class) => format!("of class '{class}'"),
            Self::All => String::new(),
        }
    }
}

fn places(case: &Case) -> BTreeSet<SharedPlace> {
    let mut places = BTreeSet::from([SharedPlace::All, SharedPlace::Class(class_of(case))]);
    for flow in &case.timed {
        places.insert(SharedPlace::Path(flow.src.unit, flow.dst.unit));
        places.extend([flow.src.unit, flow.dst.unit].map(SharedPlace::Unit));
    }
    places
}

/// The unit or path that all cases with a change have in common, if several have it and others do not.
pub(super) fn common_place(rows: &[DiffRow], change: CaseChange) -> Option<String> {
    let of_change = |changed: bool| {
        rows.iter()
            .filter(move |row| (row.change == change) == changed)
            .map(|row| places(&row.case))
    };
    let common = of_change(true).reduce(|a, b| &a & &b)?;
    let place = common.into_iter().next().filter(|place| *place < SharedPlace::Class(""))?;
    let has_others = of_change(false).any(|places| !places.contains(&place));
    (of_change(true).count() > 1 && has_others).then(|| place.name())
}

/// Groups of at least two changed cases: the largest first, of equal ones the most specific.
pub(super) fn groups(rows: &[DiffRow]) -> Vec<ChangeGroup> {
    let mut compared: BTreeMap<SharedPlace, usize> = BTreeMap::new();
    for row in rows.iter().filter(|r| r.effect.is_some()) {
        for place in places(&row.case) {
            *compared.entry(place).or_default() += 1;
        }
    }
    let mut groups = Vec::new();
    for change in [CaseChange::Slower, CaseChange::Faster] {
        let mut members: BTreeMap<SharedPlace, Vec<usize>> = BTreeMap::new();
        for (at, row) in rows.iter().enumerate().filter(|(_, r)| r.change == change) {
            for place in places(&row.case) {
                members.entry(place).or_default().push(at);
            }
        }
        members.retain(|place, at| {
            at.len() as f64 >= MIN_CHANGED * compared.get(place).copied().unwrap_or(0) as f64
        });
        let mut covered: BTreeSet<usize> = BTreeSet::new();
        loop {
            let open = |at: &[usize]| at.iter().filter(|at| !covered.contains(at)).count();
            // The map is in order of specificity, and the first of equal ones counts.
            let best = members
                .iter()
                .filter(|(_, at)| open(at) > 1)
                .max_by(|a, b| open(a.1).cmp(&open(b.1)).then(b.0.cmp(a.0)));
            let Some((place, at)) = best else { break };
            // Each case counts in the first group that has it.
            let new: Vec<usize> = at.iter().copied().filter(|at| !covered.contains(at)).collect();
            let counted = at.len() - new.len();
            let compared = compared.get(place).map(|all| all - counted);
            groups.extend(group(rows, change, place, &new, compared));
            covered.extend(new);
        }
    }
    groups
}

fn group(
    rows: &[DiffRow],
    change: CaseChange,
    place: &SharedPlace,
    at: &[usize],
    compared: Option<usize>,
) -> Option<ChangeGroup> {
    let effects = at.iter().filter_map(|at| Some(rows.get(*at)?.effect?.0));
    let mut effects: Vec<f64> = effects.collect();
    effects.sort_by(f64::total_cmp);
    Some(ChangeGroup {
        change,
        place: place.name(),
        changed: at.len(),
        compared: compared?,
        effect: *effects.get(effects.len() / 2)?,
        range: (*effects.first()?, *effects.last()?),
        rows: at.to_vec(),
    })
}
