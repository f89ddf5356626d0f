//! A fit that begins with what an earlier fit of fewer sets found.

use pathline_flow::PathKey;

use crate::data::quantile;

use super::{
    CalibrationData, FitStep, FittedNode, FittedQueue, FittedResource, GroupFitter, GroupProspect,
    bare, queue_of,
};

/// A fit of some sets of a node, from which a fit of more of them begins.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierFit {
    /// Paths of its data, in the order of its model.
    paths: Vec<PathKey>,
    fitted: FittedNode,
    /// Durations that it predicts for the targets of the choice, ns; none for one path or an unknown one.
    predictions: Vec<Option<f64>>,
}

impl EarlierFit {
    pub(crate) fn new(
        data: &CalibrationData,
        fitted: FittedNode,
        predictions: Vec<Option<f64>>,
    ) -> Self {
        let paths = data.paths.iter().map(|path| path.key).collect();
        Self { paths, fitted, predictions }
    }

    /// 95th percentile of the changes between its predictions and later ones of the same sets, as logarithms.
    /// A set that only one of them predicts counts as a change of 1.
    pub(crate) fn change(&self, predictions: &[Option<f64>]) -> f64 {
        let pairs = self.predictions.iter().zip(predictions);
        let change = |(before, now): (&Option<f64>, &Option<f64>)| match (before, now) {
            (Some(before), Some(now)) => (now / before).ln().abs(),
            (None, None) => 0.0,
            _ => 1.0,
        };
        let changes: Vec<f64> = pairs.map(change).collect();
        quantile(&changes, 0.95)
    }
}

/// Fits all sets, beginning with the groups of an earlier fit that the data still have; groups that more sets
/// refute are removed or replaced as in every fit.
pub(crate) fn resume(
    data: &CalibrationData,
    queues: &[FittedQueue],
    earlier: &EarlierFit,
    report: &mut dyn FnMut(&FitStep),
) -> FittedNode {
    let model = bare(data, &queue_of(data, queues));
    let mut fitter = GroupFitter::new(data, model, vec![true; data.sets.len()]);
    let prospects = fitter.prospects();
    fitter.restore(&prospects, earlier);
    fitter.sharpen();
    for g in 0..fitter.groups.len() {
        fitter.refine(g, 0.03, 6);
    }
    fitter.search_all(&prospects, report);
    // A later fit of more sets refines what one round leaves.
    fitter.settle(&prospects, 1, report);
    fitter.find_intervals();
    FittedNode { model: fitter.model, groups: fitter.groups, queues: queues.to_vec() }
}

impl GroupFitter<'_> {
    /// Takes over the groups of an earlier fit whose paths and candidates are among today's.
    fn restore(&mut self, prospects: &[GroupProspect], earlier: &EarlierFit) {
        let number = |key: &PathKey| self.data.path(*key);
        let of_path: Vec<Option<usize>> = earlier.paths.iter().map(number).collect();
        for (share, path) in earlier.fitted.model.shares.iter().zip(&of_path) {
            if let Some(path) = *path {
                self.model.shares[path] = *share;
            }
        }
        for (group, shared) in earlier.fitted.groups.iter().zip(&earlier.fitted.model.shared) {
            let same = |prospect: &GroupProspect| {
                prospect.candidate.name == group.name && prospect.candidate.link == group.link
            };
            let Some(prospect) = prospects.iter().position(same) else { continue };
            let mut takes = vec![0.0; self.data.paths.len()];
            for (take, path) in shared.takes.iter().zip(&of_path) {
                if let Some(path) = *path {
                    takes[path] = *take;
                }
            }
            self.model.shared.push(FittedResource { capacity: shared.capacity, takes });
            self.groups.push(group.clone());
            self.taken.push(prospect);
        }
        self.rerun(0..self.data.sets.len());
    }
}
