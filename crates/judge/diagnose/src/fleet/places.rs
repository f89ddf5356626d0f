//! Places of a node that can be slow: a path, a pair, one side of a unit, a unit, a class of paths, all.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Flow, Mover, Unit};

/// The kinds of paths that a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathSort {
    BetweenGpus,
    KernelBetweenGpus,
    FromHost,
    ToHost,
    OwnMemory,
    Host,
}

impl PathSort {
    fn of(flow: &Flow) -> Self {
        let by_engine = matches!(flow.by, Mover::Dma { .. });
        match (flow.src.unit.gpu(), flow.dst.unit.gpu()) {
            (Some(a), Some(b)) if a == b => Self::OwnMemory,
            (Some(_), Some(_)) if by_engine => Self::BetweenGpus,
            (Some(_), Some(_)) => Self::KernelBetweenGpus,
            (None, Some(_)) => Self::FromHost,
            (Some(_), None) => Self::ToHost,
            (None, None) => Self::Host,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::BetweenGpus => "copies between GPUs",
            Self::KernelBetweenGpus => "kernels on memory of peers",
            Self::FromHost => "copies from the host",
            Self::ToHost => "copies to the host",
            Self::OwnMemory => "memory of GPUs",
            Self::Host => "host memory",
        }
    }
}

/// A class of paths, or those of it that reach about this rate, GB/s: what limits them differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PathKind {
    class: PathSort,
    level: Option<u32>,
}

impl PathKind {
    fn name(self) -> String {
        match self.level {
            Some(level) => format!("{} of {level} GB/s", self.class.name()),
            None => self.class.name().to_owned(),
        }
    }
}

/// Rates that differ by more than this are two levels, as a logarithm.
const LEVEL: f64 = 0.1;

/// A place, in the order from specific to general.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FleetPlace {
    Path(Unit, Unit, PathSort),
    Pair(Unit, Unit),
    Out(Unit, PathKind),
    Into(Unit, PathKind),
    Of(Unit, PathKind),
    HostOf(Unit),
    Unit(Unit),
    Class(PathKind),
    HostLinks,
    All,
}

impl FleetPlace {
    /// Whether it is no part of a node but all of one kind.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Self::Class(PathKind { level: None, .. }) | Self::All)
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Path(from, to, _) if from == to => format!("memory of {from}"),
            Self::Path(from, to, PathSort::KernelBetweenGpus) => format!("{from}→{to} by kernel"),
            Self::Path(from, to, _) => format!("{from}→{to}"),
            Self::Pair(gpu, other) | Self::Pair(other, gpu)
                if gpu.gpu().is_some() && other.gpu().is_none() =>
            {
                format!("{gpu} to and from the host")
            }
            Self::Pair(a, b) => format!("{a}-{b}, both ways"),
            Self::Out(unit, class) => format!("{} out of {unit}", class.name()),
            Self::Into(unit, class) => format!("{} into {unit}", class.name()),
            Self::Of(unit, class) => format!("{} of {unit}", class.name()),
            Self::HostOf(unit) => format!("{unit} to and from the host"),
            Self::Unit(unit) => format!("all paths of {unit}"),
            Self::Class(class) => format!("all {}", class.name()),
            Self::HostLinks => "all GPUs to and from the host".to_owned(),
            Self::All => "all paths".to_owned(),
        }
    }

    fn of_flow(flow: &Flow, level: Option<u32>) -> BTreeSet<Self> {
        let (class, [from, to]) = (PathSort::of(flow), [flow.src.unit, flow.dst.unit]);
        let mut places = BTreeSet::from([Self::Path(from, to, class), Self::All]);
        if from != to {
            places.insert(Self::Pair(from.min(to), from.max(to)));
        }
        for level in [None, level] {
            let kind = PathKind { class, level };
            places.insert(Self::Class(kind));
            places.extend([from, to].map(|unit| Self::Of(unit, kind)));
            if from != to {
                places.extend([Self::Out(from, kind), Self::Into(to, kind)]);
            }
        }
        places.extend([from, to].map(Self::Unit));
        if matches!(class, PathSort::FromHost | PathSort::ToHost) {
            places.insert(Self::HostLinks);
            places.extend([from, to].map(Self::HostOf));
        }
        places
    }
}

/// The places of these paths, each with the positions of its paths. Of places with the same paths the first, which
/// is the most specific. `times` are the middles of the paths, ns/B as logarithms.
pub(super) fn places_of(flows: &[Flow], times: &[f64]) -> Vec<(FleetPlace, Vec<usize>)> {
    let mut places: BTreeMap<FleetPlace, Vec<usize>> = BTreeMap::new();
    for (at, flow) in flows.iter().enumerate() {
        for place in FleetPlace::of_flow(flow, level_of(at, flows, times)) {
            places.entry(place).or_default().push(at);
        }
    }
    let mut seen = BTreeSet::new();
    places.into_iter().filter(|(_, paths)| seen.insert(paths.clone())).collect()
}

/// The rate of the fastest path that no gap separates from this one of its class, GB/s; none if all are of one
/// level.
fn level_of(at: usize, flows: &[Flow], times: &[f64]) -> Option<u32> {
    let (flow, own) = (flows.get(at)?, *times.get(at)?);
    let of_class = flows.iter().zip(times).filter(|(f, _)| PathSort::of(f) == PathSort::of(flow));
    let mut all: Vec<f64> = of_class.map(|(_, time)| *time).filter(|t| t.is_finite()).collect();
    all.sort_by(f64::total_cmp);
    let is_split = all.windows(2).any(|pair| pair[1] - pair[0] > LEVEL);
    let below = all.iter().rev().filter(|time| **time <= own);
    let start = below.fold(own, |start, time| if start - time <= LEVEL { *time } else { start });
    is_split.then(|| (-start).exp().round() as u32)
}
