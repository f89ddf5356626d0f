//! A twin compared with the description of a node of its kind, such as a preset.

use std::collections::BTreeMap;
use std::fmt;

use pathline_diagnose::usual_spread;
use pathline_flow::{DescError, MachineDesc, Network, PathKey, RuntimeEnv, SetPredictor};
use pathline_schema::{Bytes, Case, Flow, Place, Topology, Unit};

use crate::data::{CalibrationSet, MeasuredPath, PathEnds, ends, median};
use crate::judge::ErrorStats;
use crate::report::class;
use crate::twin::NodeTwin;

/// Paths of a class, measured over described.
#[derive(Debug, Clone, PartialEq)]
pub struct PresetClass {
    /// The class: `GPU to GPU by dma`.
    pub name: String,
    /// Number of its paths.
    pub n: usize,
    /// Median of measured rate over described rate.
    pub typical: f64,
    /// The path with the lowest share, of the low ones if there are any, and the share.
    pub lowest: (String, f64),
    /// Paths that are slower than described: their number, and the highest share among them.
    pub low: (usize, f64),
}

/// A twin compared with a description of a node of its kind. The node may be a part of the described one:
/// its GPUs are those of the same numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct PresetComparison {
    /// Name of the description.
    pub preset: String,
    /// Number of GPUs of the node, and of the description.
    pub gpus: (usize, usize),
    /// Paths alone, by class.
    pub paths: Vec<PresetClass>,
    /// Errors of the durations that the description gives for the measured sets.
    pub sets: ErrorStats,
    /// Paths and sets that the description cannot predict.
    pub left_out: usize,
}

/// A measured rate that is lower than the described one by this share, and by more than healthy paths of its kind
/// differ within a run, is named in the verdict.
const LOSS: f64 = 0.05;

/// A path, its measured over its described rate, and whether that is low.
type PathShare = (String, f64, bool);

impl NodeTwin {
    /// The paths and sets of the node compared with a description.
    ///
    /// # Errors
    /// A description that makes no network.
    pub fn compare_preset(&self, desc: &MachineDesc) -> Result<PresetComparison, DescError> {
        let network = Network::new(desc, RuntimeEnv::default())?;
        let described = desc.topology();
        let node = PresetNode {
            hides_domains: self.data.topology.numa.len() == 1 && described.numa.len() > 1,
            described,
        };
        let mut predictor = SetPredictor::new(&network);
        let mut classes: BTreeMap<String, Vec<PathShare>> = BTreeMap::new();
        let mut left_out = 0;
        for path in self.data.paths.iter().filter(|path| path.alone()) {
            match node.rate(path, &mut predictor) {
                Some((rate, usual)) => {
                    let class = format!("{} by {}", class(path.ends), path.key.by.kind());
                    let share = path.gbs / rate;
                    let is_low = 1.0 - share > usual.max(LOSS);
                    classes.entry(class).or_default().push((path.key.to_string(), share, is_low));
                }
                None => left_out += 1,
            }
        }
        let mut errors = Vec::new();
        for set in &self.data.sets {
            match node.set_error(set, &mut predictor) {
                Some(error) => errors.push(error.abs()),
                None => left_out += 1,
            }
        }
        let of_class = |(name, shares): (String, Vec<PathShare>)| {
            let values: Vec<f64> = shares.iter().map(|(_, share, _)| *share).collect();
            let n = shares.len();
            let low: Vec<f64> = shares.iter().filter(|path| path.2).map(|path| path.1).collect();
            let low = (low.len(), low.iter().copied().fold(0.0, f64::max));
            let of_low = |path: &PathShare| path.2 || low.0 == 0;
            let lowest = shares.into_iter().filter(of_low).min_by(|a, b| a.1.total_cmp(&b.1))?;
            let lowest = (lowest.0, lowest.1);
            Some(PresetClass { name, n, typical: median(&values), lowest, low })
        };
        Ok(PresetComparison {
            preset: desc.name.clone(),
            gpus: (self.data.topology.gpus.len(), node.described.gpus.len()),
            paths: classes.into_iter().filter_map(of_class).collect(),
            sets: ErrorStats::of_sizes(&errors),
            left_out,
        })
    }
}

/// The described node, as the measured one is mapped onto it.
struct PresetNode {
    described: Topology,
    /// Whether the node shows one NUMA domain where the description has several, as virtual machines do.
    hides_domains: bool,
}

impl PresetNode {
    /// A path of the node among the described units. A domain that the description does not have, or that
    /// stands for several, is the home of the path's GPU.
    fn mapped(&self, key: PathKey) -> PathKey {
        let domain = |place: Place, gpu: u32| match place.unit {
            Unit::Numa(numa)
                if self.hides_domains || !self.described.numa.iter().any(|n| n.id == numa) =>
            {
                let gpu = self.described.gpus.iter().find(|g| g.index == gpu);
                Place { unit: Unit::Numa(gpu.and_then(|g| g.numa).unwrap_or(numa)), ..place }
            }
            _ => place,
        };
        match ends(key) {
            PathEnds::In { gpu, .. } => PathKey { src: domain(key.src, gpu), ..key },
            PathEnds::Out { gpu, .. } => PathKey { dst: domain(key.dst, gpu), ..key },
            _ => key,
        }
    }

    /// The described rate of a path alone, GB/s, with its start where that is in the measured one; and the share by
    /// which healthy paths of its kind differ.
    fn rate(&self, path: &MeasuredPath, predictor: &mut SetPredictor<'_>) -> Option<(f64, f64)> {
        let flow = self.mapped(path.key).flow(Bytes(path.sizes.last().copied()?));
        let case = Case::together(vec![flow]);
        let durations = predictor.durations(&case).ok()?;
        let flow = durations.flows.first()?;
        let rate = if path.start_ns.is_some() { flow.alone } else { flow.rate };
        (rate.0 > 0.0).then(|| (rate.0, usual_spread(&case)))
    }

    /// Described over measured duration of a set, less 1.
    fn set_error(&self, set: &CalibrationSet, predictor: &mut SetPredictor<'_>) -> Option<f64> {
        let flow = |flow: &Flow| self.mapped(PathKey::of(flow)).flow(flow.bytes);
        let case = Case {
            timed: set.case.timed.iter().map(flow).collect(),
            background: set.case.background.iter().map(flow).collect(),
            ..set.case.clone()
        };
        let reps = set.flows.first().map_or(1, |f| f.reps.max(1)) as f64;
        let predicted = predictor.durations(&case).ok()?.set.typical.0;
        Some(predicted / (set.total / reps) - 1.0)
    }
}

impl PresetComparison {
    /// Whether a path is slower than described.
    pub fn is_low(&self) -> bool {
        self.paths.iter().any(|class| class.low.0 > 0)
    }
}

impl fmt::Display for PresetComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (node, described) = self.gpus;
        let part = if node == described {
            String::new()
        } else {
            format!(" (the first {node} of its {described} GPUs)")
        };
        let low: Vec<&PresetClass> = self.paths.iter().filter(|class| class.low.0 > 0).collect();
        if low.is_empty() {
            let least = self.paths.iter().map(|c| c.lowest.1).fold(f64::INFINITY, f64::min);
            write!(f, "OK: as the preset {}{part}: ", self.preset)?;
            if least.is_finite() {
                write!(
                    f,
                    "no path carries less than {:.0} % of the described rate",
                    least * 100.0
                )?;
            } else {
                write!(f, "no path can be compared")?;
            }
        } else {
            write!(f, "SUSPECT: unlike the preset {}{part}: ", self.preset)?;
            for (nth, class) in low.iter().enumerate() {
                let (path, lowest) = &class.lowest;
                let (low, highest) = class.low;
                let shares = match ((lowest * 100.0).round(), (highest * 100.0).round()) {
                    (a, b) if a == b => format!("{a:.0} %"),
                    (a, b) => format!("{a:.0} % to {b:.0} %"),
                };
                let comma = if nth > 0 { "; " } else { "" };
                write!(
                    f,
                    "{comma}{low} of {} paths {} carry {shares} of the described rate (the lowest {path}; \
                     median of all {:.0} %)",
                    class.n,
                    class.name,
                    class.typical * 100.0
                )?;
            }
        }
        write!(
            f,
            "; its durations of the {} sets are off by {:.1} % (median), {:.1} % (95th)",
            self.sets.n,
            self.sets.p50 * 100.0,
            self.sets.p95 * 100.0
        )
    }
}
