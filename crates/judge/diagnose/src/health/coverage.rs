//! Chooses the classes of paths to measure, so that damage to each part of a node is detected and located.

use std::collections::{BTreeMap, BTreeSet};

use crate::edits::{PartEdit, ProbeExposure};

/// A part is filled by a probe that leaves no more than this share of it unused.
pub(crate) const MIN_SPARE: f64 = 0.1;

/// A class of candidates.
#[derive(Debug, Clone, Default)]
pub(crate) struct CandidateClass {
    /// Its probes, by index of the candidates.
    pub(crate) probes: BTreeSet<usize>,
    /// Predicted ns of one round of it.
    pub(crate) time: f64,
    /// Whether it is measured on every node.
    pub(crate) basic: bool,
}

/// Chooses classes by greedy set cover: first the one that shows the most parts that nothing chosen
/// shows, for its time; then, while a round stays below `longest` ns, the one that separates the most
/// parts which look the same. If rounds may take any time, parts look the same if some damage of each has
/// the same effect. `edits` has the exposures of all candidates to each part.
pub(crate) fn choose_classes(
    classes: &BTreeMap<usize, CandidateClass>,
    edits: &[PartEdit],
    loss: f64,
    longest: f64,
) -> BTreeSet<usize> {
    let mut chosen: BTreeSet<usize> =
        classes.iter().filter(|(_, class)| class.basic).map(|(n, _)| *n).collect();
    let shown = Shown { classes, edits, loss, any_damage: longest.is_infinite() };
    let mut seen = chosen.iter().flat_map(|class| shown.by(*class)).collect::<BTreeSet<_>>();
    let open = |chosen: &BTreeSet<usize>| -> Vec<usize> {
        classes.keys().filter(|class| !chosen.contains(class)).copied().collect()
    };
    loop {
        let gain = |class: usize| {
            shown.by(class).iter().filter(|part| !seen.contains(*part)).count() as f64
        };
        let Some(best) = best_of(&open(&chosen), classes, gain) else { break };
        seen.extend(shown.by(best));
        chosen.insert(best);
    }
    loop {
        let spent: f64 = chosen.iter().filter_map(|class| classes.get(class)).map(|c| c.time).sum();
        let known = shown.distinct(&chosen);
        let affordable: Vec<usize> = open(&chosen)
            .into_iter()
            .filter(|class| classes.get(class).is_some_and(|c| spent + c.time <= longest))
            .collect();
        let gain = |class: usize| {
            let mut with = chosen.clone();
            with.insert(class);
            shown.distinct(&with).saturating_sub(known) as f64
        };
        let Some(best) = best_of(&affordable, classes, gain) else { break };
        chosen.insert(best);
    }
    chosen
}

/// The class with the greatest gain for its time; none if nothing gains.
fn best_of(
    open: &[usize],
    classes: &BTreeMap<usize, CandidateClass>,
    gain: impl Fn(usize) -> f64,
) -> Option<usize> {
    let rated = open.iter().filter_map(|&class| {
        let gain = gain(class);
        (gain > 0.0).then(|| (gain / classes.get(&class).map_or(1.0, |c| c.time.max(1.0)), class))
    });
    rated.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))).map(|(_, class)| class)
}

struct Shown<'a> {
    classes: &'a BTreeMap<usize, CandidateClass>,
    edits: &'a [PartEdit],
    loss: f64,
    /// Whether parts look alike if some damage of each has the same effect, and not only the same damage.
    any_damage: bool,
}

impl Shown<'_> {
    /// Parts whose least damage makes a probe of the class slower by the loss. Where other candidates fill the part
    /// and this probe does not, it would miss smaller losses, and does not count.
    fn by(&self, class: usize) -> Vec<usize> {
        let Some(class) = self.classes.get(&class) else { return Vec::new() };
        let sees = |edit: &PartEdit| {
            let shows = |exposure: &&ProbeExposure| {
                1.0 - (-exposure.slowdown(edit.least)).exp() >= self.loss
            };
            let showing = || edit.exposures.iter().filter(shows);
            let fullest = showing().map(|exposure| exposure.spare).fold(1.0, f64::min);
            showing().any(|exposure| {
                class.probes.contains(&exposure.probe) && exposure.spare <= fullest.max(MIN_SPARE)
            })
        };
        self.edits.iter().enumerate().filter(|(_, edit)| sees(edit)).map(|(n, _)| n).collect()
    }

    /// Number of parts that look different to the probes of some classes.
    fn distinct(&self, chosen: &BTreeSet<usize>) -> usize {
        let probes: BTreeSet<usize> = chosen
            .iter()
            .filter_map(|class| self.classes.get(class))
            .flat_map(|class| class.probes.iter().copied())
            .collect();
        let look = |edit: &PartEdit| -> Vec<(usize, i64)> {
            let seen = edit.exposures.iter().filter(|exposure| probes.contains(&exposure.probe));
            let least = seen.clone().map(|exposure| exposure.spare).fold(1.0, f64::min);
            // Of a share `left` the slowdown is (1 - spare) / left: ratios between probes are those of 1 - spare.
            let level = |spare: f64| match self.any_damage {
                true => ((1.0 - spare) / (1.0 - least)).ln(),
                false => spare,
            };
            seen.map(|exposure| (exposure.probe, (level(exposure.spare) * 25.0).round() as i64))
                .collect()
        };
        self.edits.iter().map(look).collect::<BTreeSet<_>>().len()
    }
}

/// Keeps the exposures of probes, given the class of each, that damage would set apart from a peer: what slows all peers
/// alike cannot be seen by comparing them.
pub(crate) fn keep_compared(edit: &mut PartEdit, classes: &[usize]) {
    let spares: BTreeMap<usize, f64> = edit.exposures.iter().map(|e| (e.probe, e.spare)).collect();
    edit.exposures.retain(|exposure| {
        let class = classes.get(exposure.probe);
        let mut peers = classes.iter().enumerate().filter(|(_, of)| Some(*of) == class);
        peers.any(|(probe, _)| (spares.get(&probe).unwrap_or(&1.0) - exposure.spare).abs() > 1e-3)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(element: &str, probes: &[usize]) -> PartEdit {
        let exposure = |&probe: &usize| ProbeExposure { probe, spare: 0.0, moving: 1.0 };
        PartEdit {
            element: element.into(),
            parts: 2,
            least: 0.5,
            ln_prior: 0.0,
            exposures: probes.iter().map(exposure).collect(),
        }
    }

    fn class(probes: &[usize], time: f64, basic: bool) -> CandidateClass {
        CandidateClass { probes: probes.iter().copied().collect(), time, basic }
    }

    #[test]
    fn what_sees_more_for_its_time_comes_first_and_look_alikes_are_separated() {
        // Basic class 0 sees part a. Class 1 sees b and c in 10 ns, class 2 sees b alone in 1 ns, class 3
        // sees c alone in 100 ns: 2 first (1 part a ns), then 1 (1 in 10), never 3.
        let classes = BTreeMap::from([
            (0, class(&[0], 5.0, true)),
            (1, class(&[1], 10.0, false)),
            (2, class(&[2], 1.0, false)),
            (3, class(&[3], 100.0, false)),
        ]);
        let edits = [edit("a", &[0]), edit("b", &[1, 2]), edit("c", &[1, 3])];
        assert_eq!(choose_classes(&classes, &edits, 0.03, 0.0), BTreeSet::from([0, 1, 2]));
        // d looks like a until class 3 is measured, if there is time for it.
        let edits = [edit("a", &[0]), edit("d", &[0, 3])];
        assert_eq!(choose_classes(&classes, &edits, 0.03, 50.0), BTreeSet::from([0]));
        assert_eq!(choose_classes(&classes, &edits, 0.03, 105.0), BTreeSet::from([0, 3]));
        // An engine and a link that leaves half to spare slow the same probe, each by some damage.
        let mut edits = [edit("engine", &[0]), edit("link", &[0, 1])];
        edits[1].exposures.iter_mut().for_each(|exposure| exposure.spare = 0.5);
        edits[1].least = 0.9;
        assert_eq!(choose_classes(&classes, &edits, 0.03, 105.0), BTreeSet::from([0]));
        assert_eq!(choose_classes(&classes, &edits, 0.03, f64::INFINITY), BTreeSet::from([0, 1]));
    }

    /// Half of a part is lost: a path that leaves 30 % of it unused takes 0.7 / 0.5 = 1.4 times as long. Where none
    /// fills it, that one is measured; a path that leaves 40 % unused is not.
    #[test]
    fn a_part_that_no_path_fills_is_seen_by_the_fullest() {
        let mut part = edit("part", &[0, 1]);
        (part.exposures[0].spare, part.exposures[1].spare) = (0.4, 0.3);
        let classes = BTreeMap::from([(0, class(&[0], 1.0, false)), (1, class(&[1], 9.0, false))]);
        assert_eq!(choose_classes(&classes, &[part], 0.03, 0.0), BTreeSet::from([1]));
    }

    #[test]
    fn a_part_that_has_capacity_to_spare_is_not_seen() {
        // One link of four is lost and the probe leaves half unused: it is as fast as before.
        let mut four = edit("four links", &[0]);
        four.least = 0.75;
        four.exposures[0].spare = 0.5;
        assert_eq!(four.greatest_loss(), 0.0);
        four.exposures[0].spare = 0.0;
        assert!((four.greatest_loss() - 0.25).abs() < 1e-12);
    }

    /// Two probes of a class over one link say nothing of it; a third that takes another link does.
    #[test]
    fn a_part_of_all_peers_is_not_compared() {
        let mut all = edit("the only link", &[0, 1, 2]);
        keep_compared(&mut all, &[7, 7, 8]);
        assert_eq!(all.exposures.len(), 0);
        let mut some = edit("one of two links", &[0, 1, 2]);
        keep_compared(&mut some, &[7, 7, 8, 7]);
        assert_eq!(some.exposures.iter().map(|e| e.probe).collect::<Vec<_>>(), [0, 1]);
    }
}
