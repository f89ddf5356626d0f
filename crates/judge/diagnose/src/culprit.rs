//! Which damaged part explains what paths lose against their peers.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Case, Unit};
use pathline_stats::{ascending, interpolated};
use serde::Serialize;

use crate::edits::PartEdit;
use crate::labels::loss_text;
use crate::peers::median_without;
use crate::posterior::{self, ln_likelihood};

/// The most probable edits that are tried in pairs, if none explains everything alone.
const PAIRED: usize = 24;
/// The same of each probe that is to be explained.
const PAIRED_BY_PROBE: usize = 4;
/// Logarithm of the odds of two damaged parts to one.
const PAIR_PRIOR: f64 = -7.0;
/// Bonus for the damage that a part most often has: one link of several, half the lanes.
const USUAL_DAMAGE: f64 = 1.0;
/// How near to the loss of whole links a loss must be to be named as that. Paths are compared to 3 %.
const RESOLVED_LOSS: f64 = 0.03;
/// Most culprits that are listed.
const MOST_CULPRITS: usize = 5;

/// A part of the node that explains the suspects.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Culprit {
    /// The part: `gpu0>gpu1 xGMI x4`, `gpu3 copy engines to peers`.
    pub element: String,
    /// What is wrong with it: `its paths are 25 % slower`.
    pub damage: String,
    /// How many links would carry as much and how many it should have, if it lacks whole links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<(u32, u32)>,
    /// Probability among the parts that were considered, 0 to 1.
    pub probability: f64,
    /// Odds to the next most probable part; infinite odds are written as 1e9.
    pub odds: f64,
    /// The next most probable part.
    pub next: Option<String>,
    /// Label of a path that would tell the two apart, if one does.
    pub decided_by: Option<String>,
    /// The suspects that it slows, by index of the path.
    #[serde(skip)]
    pub paths: Vec<usize>,
    /// The damaged elements, two where one does not explain everything, and the share that is left of each.
    #[serde(skip)]
    pub left: Vec<(String, f64)>,
    /// Whether it is of hardware, and not only a path that is slow by itself.
    #[serde(skip)]
    pub is_part: bool,
}

/// A path that was compared with its peers.
pub(crate) struct PathLoss<'c> {
    pub(crate) label: &'c str,
    pub(crate) case: &'c Case,
    /// Number of its class of peers.
    pub(crate) class: usize,
    /// Logarithm of its time relative to that of its peers; none if that says nothing.
    pub(crate) ln: Option<f64>,
    /// Scale of the Cauchy errors of that.
    pub(crate) scale: f64,
    /// Share of its speed by which it may differ from its peers.
    pub(crate) margin: f64,
}

/// What all paths lose, and the damage that may explain it.
pub(crate) struct PathLosses<'c> {
    edits: &'c [PartEdit],
    paths: Vec<PathLoss<'c>>,
    /// Indices of paths, by class.
    members: BTreeMap<usize, Vec<usize>>,
    suspects: Vec<usize>,
}

/// An edit or two with the damage that fits best.
#[derive(Debug, Clone)]
struct FittedEdit {
    edits: Vec<usize>,
    left: Vec<f64>,
    ln_probability: f64,
}

impl FittedEdit {
    fn best_first(a: &Self, b: &Self) -> std::cmp::Ordering {
        b.ln_probability.total_cmp(&a.ln_probability)
    }
}

impl Culprit {
    /// The part, and what it has left of whole links: `xGMI gpu0-gpu6, both directions, at the rate of 1 of 2 links`.
    pub fn name(&self) -> String {
        let part = &self.element;
        let links = |(now, all)| format!("{part}, at the rate of {now} of {all} links");
        self.links.map_or(part.clone(), links)
    }
}

impl<'c> PathLosses<'c> {
    /// `suspects` are the paths to explain, by index.
    pub(crate) fn new(
        edits: &'c [PartEdit],
        paths: Vec<PathLoss<'c>>,
        suspects: Vec<usize>,
    ) -> Self {
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (nth, path) in paths.iter().enumerate() {
            members.entry(path.class).or_default().push(nth);
        }
        Self { edits, paths, members, suspects }
    }

    fn loss(&self, path: usize) -> Option<f64> {
        self.paths.get(path)?.ln
    }

    /// Logarithm of the likelihood of some damage, relative to that of no damage.
    fn gain(&self, slowdowns: &BTreeMap<usize, f64>) -> f64 {
        let ln = |path: usize, expected: f64| -> f64 {
            let known = self.paths.get(path).and_then(|path| Some((path.ln?, path.scale)));
            known.map_or(0.0, |(loss, scale)| ln_likelihood(loss - expected, scale))
        };
        let predicted = self.relative(slowdowns);
        predicted.iter().map(|(&p, &expected)| ln(p, expected) - ln(p, 0.0)).sum()
    }

    /// What paths of the affected classes take relative to their peers, if some are slowed down.
    fn relative(&self, slowdowns: &BTreeMap<usize, f64>) -> BTreeMap<usize, f64> {
        let class = |path: &usize| self.paths.get(*path).map(|path| path.class);
        let classes: BTreeSet<usize> = slowdowns.keys().filter_map(class).collect();
        let mut all = BTreeMap::new();
        for members in classes.iter().filter_map(|class| self.members.get(class)) {
            let slowdown = |path: &usize| slowdowns.get(path).copied().unwrap_or(0.0);
            let sorted = ascending(members.iter().map(slowdown));
            for path in members.iter().filter(|path| self.loss(**path).is_some()) {
                let own = slowdown(path);
                all.insert(*path, own - median_without(&sorted, own).unwrap_or(0.0));
            }
        }
        all
    }

    fn slowdowns(&self, edits: &[usize], left: &[f64]) -> BTreeMap<usize, f64> {
        let mut all: BTreeMap<usize, f64> = BTreeMap::new();
        for (&edit, &left) in edits.iter().zip(left) {
            for exposure in self.edits.get(edit).into_iter().flat_map(|edit| &edit.exposures) {
                *all.entry(exposure.probe).or_default() += exposure.slowdown(left);
            }
        }
        all
    }

    /// Damages of an edit that would explain a suspect, and the usual one.
    fn damages(&self, edit: &PartEdit) -> Vec<f64> {
        let exposed = edit.exposures.iter().filter(|e| self.suspects.contains(&e.probe));
        let fits = |e: &crate::edits::ProbeExposure| {
            let measured = self.loss(e.probe)?;
            let stretch = 1.0 + measured.exp_m1().max(0.0) / e.moving.max(0.05);
            Some(((1.0 - e.spare) / stretch).clamp(0.01, 0.9999))
        };
        let all = ascending(exposed.filter_map(fits));
        let quantiles = [0.1, 0.5, 0.9].into_iter().filter_map(|q| interpolated(&all, q));
        quantiles.chain([edit.least]).collect()
    }

    fn fitted(&self, nth: usize, edit: &PartEdit) -> Option<FittedEdit> {
        let touches = edit.exposures.iter().any(|e| self.suspects.contains(&e.probe));
        let rated = |left: f64| {
            let usual = if (left - edit.least).abs() < 0.1 * (1.0 - edit.least) {
                USUAL_DAMAGE
            } else {
                0.0
            };
            let gain = self.gain(&self.slowdowns(&[nth], &[left]));
            let ln_probability = gain + edit.ln_prior + usual;
            FittedEdit { edits: vec![nth], left: vec![left], ln_probability }
        };
        let damages = if touches { self.damages(edit) } else { Vec::new() };
        damages.into_iter().map(rated).max_by(|a, b| a.ln_probability.total_cmp(&b.ln_probability))
    }

    /// Whether a set of damages accounts for every one of these probes: to five scales or a third of
    /// what it loses.
    fn explains(&self, fitted: &FittedEdit, probes: &[usize]) -> bool {
        self.is_within(fitted, probes, 1.0 / 3.0)
    }

    /// Whether it predicts what each of these probes loses to five scales or this share of it.
    fn is_within(&self, fitted: &FittedEdit, probes: &[usize], share: f64) -> bool {
        let predicted = self.relative(&self.slowdowns(&fitted.edits, &fitted.left));
        probes.iter().all(|probe| {
            let measured = self.loss(*probe).unwrap_or(0.0);
            let scale = self.paths.get(*probe).map_or(0.0, |path| path.scale);
            let expected = predicted.get(probe).copied().unwrap_or(0.0);
            (measured - expected).abs() <= (5.0 * scale).max(measured.abs() * share)
        })
    }

    /// Edits that explain the suspects. If none does alone, all edits and pairs of the best. Best first.
    ///
    /// The damage that fits best to a part that has nothing to do with the suspects is one that slows no
    /// probe: it has the likelihood of no damage, and a greater prior than a path that is slow alone.
    fn ranked(&self) -> Vec<FittedEdit> {
        let edits = self.edits.iter().enumerate();
        let mut ranked: Vec<FittedEdit> =
            edits.filter_map(|(nth, edit)| self.fitted(nth, edit)).collect();
        let explains = |fitted: &FittedEdit| self.explains(fitted, &self.suspects);
        if !ranked.iter().any(explains) {
            // Where no part alone touches all suspects, a second one is no longer improbable.
            let touches = |fitted: &FittedEdit| self.is_within(fitted, &self.suspects, 0.99);
            let prior = if ranked.iter().any(touches) { PAIR_PRIOR } else { 0.0 };
            ranked.extend(self.pairs(&mut ranked.clone(), &self.suspects, prior));
        } else {
            ranked.retain(explains);
        }
        ranked.sort_by(FittedEdit::best_first);
        ranked
    }

    /// Pairs of the edits that fit best: over all, and to each of these probes.
    fn pairs(&self, ranked: &mut [FittedEdit], probes: &[usize], ln_prior: f64) -> Vec<FittedEdit> {
        ranked.sort_by(FittedEdit::best_first);
        let mut best: Vec<&FittedEdit> = ranked.iter().take(PAIRED).collect();
        for &probe in probes.iter().take(PAIRED) {
            let slows = |fitted: &&FittedEdit| self.exposes(fitted, probe);
            best.extend(ranked.iter().filter(slows).take(PAIRED_BY_PROBE));
        }
        best.sort_by_key(|fitted| fitted.edits.clone());
        best.dedup_by_key(|fitted| fitted.edits.clone());
        let prior = |edit: &usize| self.edits.get(*edit).map_or(0.0, |edit| edit.ln_prior);
        let mut pairs = Vec::new();
        for (nth, a) in best.iter().enumerate() {
            for b in best.iter().skip(nth + 1) {
                let edits = [a.edits.as_slice(), &b.edits].concat();
                let left = [a.left.as_slice(), &b.left].concat();
                let gain = self.gain(&self.slowdowns(&edits, &left));
                let alone: f64 = edits.iter().map(prior).sum();
                // A path that is slow by itself goes with anything.
                let both = if alone < 0.0 { PAIR_PRIOR } else { ln_prior };
                let ln_probability = gain + alone + both;
                pairs.push(FittedEdit { edits, left, ln_probability });
            }
        }
        pairs
    }

    fn exposes(&self, fitted: &FittedEdit, probe: usize) -> bool {
        let edits = fitted.edits.iter().filter_map(|&edit| self.edits.get(edit));
        edits.flat_map(|edit| &edit.exposures).any(|exposure| exposure.probe == probe)
    }

    /// Whether damage accounts for all that is off in a class, given by index of its probes: that of one
    /// part, or of two, each of a single GPU. Parts that many GPUs share explain any split of a class in
    /// pairs, also one by design. Other suspects, such as paths in a state of their process, need not follow.
    pub(crate) fn is_explained(&self, probes: &[usize]) -> bool {
        let edits = self.edits.iter().enumerate();
        let exposed = |edit: &PartEdit| edit.exposures.iter().any(|e| probes.contains(&e.probe));
        let edits = edits.filter(|(_, edit)| exposed(edit));
        let mut fitted: Vec<FittedEdit> =
            edits.filter_map(|(nth, edit)| self.fitted(nth, edit)).collect();
        let explains = |f: &FittedEdit| f.ln_probability > 0.0 && self.explains(f, probes);
        if fitted.iter().any(explains) {
            return true;
        }
        fitted.retain(|f| f.edits.iter().all(|&edit| self.is_part_of_one_gpu(edit)));
        self.pairs(&mut fitted, probes, PAIR_PRIOR).iter().any(explains)
    }

    fn is_part(&self, edit: usize) -> bool {
        self.edits.get(edit).is_some_and(|edit| edit.ln_prior >= 0.0)
    }

    /// Whether an edit is of a part, and all probes that it slows use one GPU.
    fn is_part_of_one_gpu(&self, edit: usize) -> bool {
        let gpus = |probe: usize| -> BTreeSet<u32> {
            let flows = self.paths.get(probe).into_iter().flat_map(|path| path.case.flows());
            flows.flat_map(|flow| [flow.src.unit, flow.dst.unit]).filter_map(Unit::gpu).collect()
        };
        let exposures = self.edits.get(edit).into_iter().flat_map(|edit| &edit.exposures);
        let common = exposures.map(|e| gpus(e.probe)).reduce(|a, b| &a & &b);
        self.is_part(edit) && common.is_some_and(|common| !common.is_empty())
    }

    /// The parts that explain the suspects, the most probable first.
    pub(crate) fn culprits(&self) -> Vec<Culprit> {
        if self.suspects.is_empty() {
            return Vec::new();
        }
        let ranked = self.ranked();
        let Some(best) = ranked.first() else { return Vec::new() };
        let ln_weights: Vec<f64> = ranked.iter().map(|fitted| fitted.ln_probability).collect();
        let shares = posterior::shares(&ln_weights);
        let culprit = |nth: usize, fitted: &FittedEdit| {
            let next = if nth == 0 { ranked.get(1) } else { Some(best) };
            let odds =
                |next: &FittedEdit| posterior::odds(fitted.ln_probability, next.ln_probability);
            Culprit {
                element: self.name(fitted),
                damage: self.damage(fitted),
                links: self.links_left(fitted),
                probability: shares.get(nth).copied().unwrap_or(0.0),
                odds: next.map_or(f64::INFINITY, odds).min(1e9),
                next: next.map(|next| self.name(next)),
                decided_by: next
                    .filter(|next| odds(next) < posterior::SURE)
                    .and_then(|next| self.decisive_probe(fitted, next)),
                paths: self.slowed(fitted),
                left: self.elements(fitted).zip(fitted.left.iter().copied()).collect(),
                is_part: fitted.edits.iter().all(|&edit| self.is_part(edit)),
            }
        };
        let listed = ranked.iter().take(MOST_CULPRITS).enumerate();
        listed.map(|(nth, f)| culprit(nth, f)).filter(|c| c.probability >= 0.01).collect()
    }

    /// Of these paths those whose time the best explanation and another that is not much less probable predict
    /// differently.
    pub(crate) fn separating(&self, paths: std::ops::Range<usize>) -> Vec<usize> {
        let ranked = self.ranked();
        let Some(best) = ranked.first() else { return Vec::new() };
        let odds = |rival: &FittedEdit| posterior::odds(best.ln_probability, rival.ln_probability);
        let rivals = ranked.iter().skip(1).take_while(|rival| odds(rival) < posterior::SURE);
        let slowdowns = |fitted: &FittedEdit| self.slowdowns(&fitted.edits, &fitted.left);
        let (expected, rivals) = (slowdowns(best), rivals.map(slowdowns).collect::<Vec<_>>());
        let of = |all: &BTreeMap<usize, f64>, path: &usize| all.get(path).copied().unwrap_or(0.0);
        let differs = |path: &usize| {
            let margin = self.paths.get(*path).map_or(f64::INFINITY, |path| path.margin);
            rivals.iter().any(|rival| (of(rival, path) - of(&expected, path)).abs() > margin)
        };
        paths.filter(differs).collect()
    }

    /// The suspects that an edit slows.
    fn slowed(&self, fitted: &FittedEdit) -> Vec<usize> {
        self.suspects.iter().copied().filter(|path| self.exposes(fitted, *path)).collect()
    }

    fn elements(&self, fitted: &FittedEdit) -> impl Iterator<Item = String> {
        let edits = fitted.edits.iter().filter_map(|&edit| self.edits.get(edit));
        edits.map(|edit| edit.element.clone())
    }

    fn name(&self, fitted: &FittedEdit) -> String {
        self.elements(fitted).collect::<Vec<_>>().join(" and ")
    }

    /// How many whole links an edit of one part leaves.
    fn links_left(&self, fitted: &FittedEdit) -> Option<(u32, u32)> {
        let ([edit], [left]) = (fitted.edits.as_slice(), fitted.left.as_slice()) else {
            return None;
        };
        let parts = self.edits.get(*edit)?.parts;
        let lost = ((1.0 - left) * f64::from(parts)).round();
        let is_whole = (1.0 - left - lost / f64::from(parts)).abs() < RESOLVED_LOSS;
        (parts > 1 && lost >= 1.0 && is_whole).then_some((parts - lost as u32, parts))
    }

    fn damage(&self, fitted: &FittedEdit) -> String {
        let one = |(&edit, &left): (&usize, &f64)| -> Option<String> {
            let edit = self.edits.get(edit)?;
            // What the paths lose, as everywhere: an engine may lose more than shows.
            let is_slowed = |path: &&usize| edit.exposures.iter().any(|e| e.probe == **path);
            let suspects = self.suspects.iter().filter(is_slowed);
            let ln = suspects.filter_map(|&path| self.paths.get(path)?.ln);
            let losses = ln.map(|ln| 1.0 - (-ln).exp());
            let losses = match losses.clone().next() {
                Some(_) => loss_text(losses),
                None => loss_text(std::iter::once(1.0 - left)),
            };
            Some(format!("its paths are {losses} slower"))
        };
        fitted.edits.iter().zip(&fitted.left).filter_map(one).collect::<Vec<_>>().join("; ")
    }

    /// The probe whose time the two explain most differently, if by more than its margin.
    fn decisive_probe(&self, a: &FittedEdit, b: &FittedEdit) -> Option<String> {
        let [x, y] = [a, b].map(|f| self.relative(&self.slowdowns(&f.edits, &f.left)));
        let probes: BTreeSet<usize> = x.keys().chain(y.keys()).copied().collect();
        let apart = |probe: usize| {
            let value = |of: &BTreeMap<usize, f64>| of.get(&probe).copied().unwrap_or(0.0);
            let margin = self.paths.get(probe).map_or(0.0, |path| path.margin);
            ((value(&x) - value(&y)).abs() / margin.max(1e-6), probe)
        };
        let (times, probe) = probes.into_iter().map(apart).max_by(|a, b| a.0.total_cmp(&b.0))?;
        let label = self.paths.get(probe).map(|path| path.label.to_owned());
        label.filter(|_| times > 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edits::ProbeExposure;

    fn edit(element: &str, parts: u32, ln_prior: f64, probes: &[usize]) -> PartEdit {
        let exposure = |&probe| ProbeExposure { probe, spare: 0.0, moving: 1.0 };
        let exposures = probes.iter().map(exposure).collect();
        PartEdit { element: element.to_owned(), parts, least: 0.75, ln_prior, exposures }
    }

    /// Four paths of a class and two of another, with what each takes relative to its peers.
    fn losses<'c>(edits: &'c [PartEdit], case: &'c Case, ln: [Option<f64>; 6]) -> PathLosses<'c> {
        let labels = ["a", "b", "c", "d", "e", "f"];
        let rows = labels.into_iter().zip(ln).enumerate();
        let rows = rows.map(|(nth, (label, ln))| PathLoss {
            label,
            case,
            class: nth / 4,
            ln,
            scale: 0.01,
            margin: 0.005,
        });
        let suspects = (0..6).filter(|&nth| ln[nth].is_some_and(|ln| ln > 0.1)).collect();
        PathLosses::new(edits, rows.collect(), suspects)
    }

    /// One of four links less and a path alone slow one path alike, at odds of e^3 = 20 by what is usual, which a second
    /// link that also slows another path shares until that path is measured. A part that slows two of four explains
    /// both, and two losses of two classes are two parts: e^-0.5 = 61 % and e^-0.4 = 67 % are left.
    #[test]
    fn parts_are_ranked_by_what_they_slow() {
        let case: Case = "gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB".parse().expect("a case");
        let edits = [
            edit("link", 4, 0.0, &[0]),
            edit("path a", 1, -3.0, &[0]),
            edit("engine", 1, 0.0, &[0, 1]),
            edit("link 2", 4, 0.0, &[0, 4]),
            edit("other", 1, 0.0, &[5]),
        ];
        let found = |ln: [Option<f64>; 6]| {
            let all = losses(&edits, &case, ln);
            let culprits = all.culprits();
            let names = culprits.iter().map(|culprit| culprit.element.clone()).collect::<Vec<_>>();
            (names.join(", "), culprits.into_iter().next(), all.separating(0..6))
        };
        let (quarter, fine) = (Some((4.0f64 / 3.0).ln()), Some(0.0));
        let (names, first, separating) = found([quarter, fine, fine, fine, None, None]);
        assert_eq!((names.as_str(), separating), ("link, link 2, path a", vec![4]));
        assert!(
            first.is_some_and(|first| (first.odds, first.next.as_deref()) == (1.0, Some("link 2")))
        );
        let (names, first, separating) = found([quarter, fine, fine, fine, fine, fine]);
        assert_eq!((names.as_str(), separating), ("link, path a", vec![]));
        let first = first.expect("a culprit");
        assert_eq!(first.damage, "its paths are 25 % slower");
        assert_eq!(first.name(), "link, at the rate of 3 of 4 links");
        assert!((first.odds - 3.0f64.exp()).abs() < 1e-6 && first.is_part, "{first:?}");
        assert!((first.probability - 1.0 / (1.0 + (-3.0f64).exp())).abs() < 1e-4, "{first:?}");
        let (names, first, _) = found([quarter, quarter, fine, fine, None, None]);
        assert_eq!((names.as_str(), first.map(|first| first.paths)), ("engine", Some(vec![0, 1])));
        let (names, first, _) = found([Some(0.5), fine, fine, fine, None, Some(0.4)]);
        let first = first.expect("a culprit");
        assert_eq!((names.as_str(), first.paths), ("link and other", vec![0, 5]));
        assert_eq!(first.damage, "its paths are 39 % slower; its paths are 33 % slower");
        assert_eq!(found([fine; 6]).1, None);
    }
}
