//! Faults of a described machine: what is wrong with it, and what its driver reports of that.

use std::collections::BTreeSet;
use std::fmt;

use pathline_schema::{LinkEnd, LinkKind, Ns, Rate, Topology};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::model::{count, share, time};

/// The part of a machine that a fault is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultElement {
    /// A bundle of links: `gpu2-gpu3` in both directions, `gpu2>gpu3` in one.
    Bundle {
        /// The end that bytes leave, if only one direction is concerned.
        from: LinkEnd,
        /// The other end.
        to: LinkEnd,
        /// Whether only the direction from `from` to `to` is concerned.
        one_way: bool,
    },
    /// A GPU: its engines or its memory.
    Gpu(u32),
    /// A NUMA domain: its memory.
    Numa(u32),
}

impl fmt::Display for FaultElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundle { from, to, one_way: true } => f.pad(&format!("{from}>{to}")),
            Self::Bundle { from, to, one_way: false } => f.pad(&format!("{from}-{to}")),
            Self::Gpu(gpu) => f.pad(&format!("gpu{gpu}")),
            Self::Numa(numa) => f.pad(&format!("numa{numa}")),
        }
    }
}

impl FaultElement {
    fn parse(text: &str) -> Option<Self> {
        let bundle = |(from, to): (&str, &str), one_way| {
            let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
            Some(Self::Bundle { from, to, one_way })
        };
        if let Some(ends) = text.split_once('>') {
            return bundle(ends, true);
        }
        if let Some(ends) = text.split_once('-') {
            return bundle(ends, false);
        }
        match text.trim().parse().ok()? {
            LinkEnd::Gpu(gpu) => Some(Self::Gpu(gpu)),
            LinkEnd::Numa(numa) => Some(Self::Numa(numa)),
            LinkEnd::Switch(_) | LinkEnd::Store(_) => None,
        }
    }

    /// Whether it is the bundle between these ends, in either order.
    pub(crate) fn joins(&self, a: LinkEnd, b: LinkEnd) -> bool {
        match *self {
            Self::Bundle { from, to, .. } => (from, to) == (a, b) || (from, to) == (b, a),
            Self::Gpu(_) | Self::Numa(_) => false,
        }
    }
}

/// The effect of a fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FaultEffect {
    /// A bundle has this many physical links less, a PCIe link this many lanes.
    Width {
        /// Links or lanes that are lost, at least 1 and not all.
        lost: u32,
    },
    /// A bundle carries this share of its rate.
    Speed {
        /// 0.001 to 1.
        share: f64,
    },
    /// A bundle carries a share of its rate for a part of each period.
    Flapping {
        /// 0.001 to 1.
        share: f64,
        /// Length of a period.
        period: Ns,
        /// The part of each period in which the bundle is slow, 0.001 to 1; it comes first.
        active: f64,
    },
    /// The copy engines of a GPU reach this share of their rate.
    Engine {
        /// 0.001 to 1.
        share: f64,
    },
    /// The memory of a GPU or NUMA domain reaches this share of its rate.
    Memory {
        /// 0.001 to 1.
        share: f64,
    },
    /// Memory that is requested from a NUMA domain lies on another one.
    Numa {
        /// The domain where the pages are.
        pages_on: u32,
    },
    /// Error counters of a bundle (replays) or of a GPU (corrected ECC) rise.
    Errors {
        /// Errors for each second.
        per_second: f64,
    },
    /// Operations on a GPU, or over a bundle, never end.
    Hang {
        /// Time after the machine was opened.
        after: Ns,
    },
    /// Every call on a GPU fails.
    Crash {
        /// Time after the machine was opened.
        after: Ns,
    },
}

/// One `[[fault]]` of a machine description.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineFault {
    /// Where it is.
    pub element: FaultElement,
    /// Its effect.
    pub effect: FaultEffect,
    /// Whether the driver reports full width and speed all the same.
    pub silent: bool,
    /// Share of processes that have it; 1 is all.
    pub probability: f64,
}

/// The kinds, as a file names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FaultKind {
    Width,
    Speed,
    Flapping,
    Engine,
    Memory,
    Numa,
    Errors,
    Hang,
    Crash,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFault {
    element: Spanned<String>,
    kind: Spanned<FaultKind>,
    #[serde(default, deserialize_with = "maybe_count")]
    lost: Option<u32>,
    #[serde(default, deserialize_with = "maybe_share")]
    share: Option<f64>,
    #[serde(default, deserialize_with = "maybe_time")]
    period_ms: Option<f64>,
    #[serde(default, deserialize_with = "maybe_share")]
    active: Option<f64>,
    #[serde(default, deserialize_with = "maybe_time")]
    per_second: Option<f64>,
    #[serde(default, deserialize_with = "maybe_time")]
    after_ms: Option<f64>,
    pages_on: Option<LinkEnd>,
    #[serde(default)]
    silent: bool,
    #[serde(default, deserialize_with = "maybe_share")]
    probability: Option<f64>,
}

fn maybe_count<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    count(d).map(Some)
}
fn maybe_share<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    share(d).map(Some)
}
fn maybe_time<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    time(d).map(Some)
}

/// An error in a `[[fault]]`, and its place.
pub(crate) struct FaultError {
    pub span: std::ops::Range<usize>,
    pub reason: String,
}

impl RawFault {
    pub(crate) fn span(&self) -> std::ops::Range<usize> {
        self.element.span()
    }

    /// The fault, in a machine with this topology. `lanes` is the number of lanes of the PCIe link between
    /// two ends.
    fn read(
        &self,
        topology: &Topology,
        lanes: impl Fn(LinkEnd, LinkEnd) -> Option<u32>,
    ) -> Result<MachineFault, FaultError> {
        let at_element = |reason: String| FaultError { span: self.element.span(), reason };
        let at_kind = |reason: String| FaultError { span: self.kind.span(), reason };
        let text = self.element.get_ref();
        let element = FaultElement::parse(text).ok_or_else(|| {
            at_element(format!(
                "fault: '{text}' is no element; expected gpu2-gpu3, gpu2>gpu3, gpu2 or numa0"
            ))
        })?;
        let width = match element {
            FaultElement::Bundle { from, to, .. } => {
                let link =
                    topology.links.iter().find(|link| element.joins(link.a, link.b)).ok_or_else(
                        || at_element(format!("fault: no link joins {from} and {to}")),
                    )?;
                let pcie = lanes(link.a, link.b).filter(|_| link.kind == LinkKind::Pcie);
                pcie.unwrap_or(link.width)
            }
            FaultElement::Gpu(gpu) if topology.gpus.iter().all(|g| g.index != gpu) => {
                return Err(at_element(format!("fault: no [[gpu]] has id {gpu}")));
            }
            FaultElement::Numa(numa) if topology.numa.iter().all(|n| n.id != numa) => {
                return Err(at_element(format!("fault: no [[numa]] has id {numa}")));
            }
            FaultElement::Gpu(_) | FaultElement::Numa(_) => 0,
        };
        self.keys_fit().map_err(at_kind)?;
        self.element_fits(element).map_err(at_element)?;
        let effect = self.effect(width, topology).map_err(at_kind)?;
        let probability = self.probability.unwrap_or(1.0);
        Ok(MachineFault { element, effect, silent: self.silent, probability })
    }

    /// Fails on a key that another kind has.
    fn keys_fit(&self) -> Result<(), String> {
        use FaultKind::{Crash, Engine, Errors, Flapping, Hang, Memory, Numa, Speed, Width};
        let kind = *self.kind.get_ref();
        let keys = [
            ("lost", self.lost.is_some(), &[Width][..]),
            ("share", self.share.is_some(), &[Speed, Flapping, Engine, Memory]),
            ("period_ms", self.period_ms.is_some(), &[Flapping]),
            ("active", self.active.is_some(), &[Flapping]),
            ("per_second", self.per_second.is_some(), &[Errors]),
            ("after_ms", self.after_ms.is_some(), &[Hang, Crash]),
            ("pages_on", self.pages_on.is_some(), &[Numa]),
            ("silent", self.silent, &[Width, Speed]),
        ];
        let unused = keys.iter().find(|(_, is_set, kinds)| *is_set && !kinds.contains(&kind));
        match unused {
            Some((key, ..)) => Err(format!("fault: a fault of this kind has no {key}")),
            None => Ok(()),
        }
    }

    fn element_fits(&self, element: FaultElement) -> Result<(), String> {
        use FaultElement::{Bundle, Gpu, Numa};
        let fits = match self.kind.get_ref() {
            FaultKind::Width | FaultKind::Speed | FaultKind::Flapping => {
                matches!(element, Bundle { .. })
            }
            FaultKind::Engine | FaultKind::Crash => matches!(element, Gpu(_)),
            FaultKind::Memory => matches!(element, Gpu(_) | Numa(_)),
            FaultKind::Numa => matches!(element, Numa(_)),
            FaultKind::Errors | FaultKind::Hang => matches!(element, Bundle { .. } | Gpu(_)),
        };
        let expected = match self.kind.get_ref() {
            FaultKind::Width | FaultKind::Speed | FaultKind::Flapping => "a bundle (gpu2-gpu3)",
            FaultKind::Engine | FaultKind::Crash => "a GPU",
            FaultKind::Memory => "a GPU or a NUMA domain",
            FaultKind::Numa => "a NUMA domain",
            FaultKind::Errors | FaultKind::Hang => "a bundle (gpu2-gpu3) or a GPU",
        };
        let say = || format!("fault: a fault of this kind is in {expected}, not in {element}");
        if fits { Ok(()) } else { Err(say()) }
    }

    /// `width` is the number of physical links or lanes of the bundle.
    fn effect(&self, width: u32, topology: &Topology) -> Result<FaultEffect, String> {
        let share = || self.share.ok_or("fault: no share; expected what is left, 0.001 to 1");
        let after = Ns::us(self.after_ms.unwrap_or(0.0) * 1e3);
        Ok(match self.kind.get_ref() {
            FaultKind::Width => {
                let lost = self.lost.unwrap_or(1);
                if lost >= width {
                    return Err(format!(
                        "fault: lost {lost} of a width of {width}; expected fewer (a bundle that is lost \
                         whole leaves out its line of links)"
                    ));
                }
                FaultEffect::Width { lost }
            }
            FaultKind::Speed => FaultEffect::Speed { share: share()? },
            FaultKind::Flapping => {
                let period = self.period_ms.filter(|&ms| ms >= 1e-3);
                let period = period.ok_or("fault: no period_ms; expected 0.001 or more")?;
                let active = self.active.unwrap_or(0.5);
                FaultEffect::Flapping { share: share()?, period: Ns::us(period * 1e3), active }
            }
            FaultKind::Engine => FaultEffect::Engine { share: share()? },
            FaultKind::Memory => FaultEffect::Memory { share: share()? },
            FaultKind::Numa => match self.pages_on {
                Some(LinkEnd::Numa(numa)) if topology.numa.iter().any(|n| n.id == numa) => {
                    FaultEffect::Numa { pages_on: numa }
                }
                _ => return Err("fault: no pages_on; expected a [[numa]] of this file".into()),
            },
            FaultKind::Errors => {
                let per_second = self.per_second.filter(|&n| n > 0.0);
                let per_second = per_second.ok_or("fault: no per_second; expected more than 0")?;
                FaultEffect::Errors { per_second }
            }
            FaultKind::Hang => FaultEffect::Hang { after },
            FaultKind::Crash => FaultEffect::Crash { after },
        })
    }
}

/// The faults of a file. At most one is in each part of each kind.
pub(crate) fn read(
    raw: &[RawFault],
    topology: &Topology,
    lanes: impl Fn(LinkEnd, LinkEnd) -> Option<u32>,
) -> Result<Vec<MachineFault>, FaultError> {
    let mut seen = BTreeSet::new();
    let mut faults = Vec::new();
    for raw in raw {
        let fault = raw.read(topology, &lanes)?;
        let key = format!("{} {:?}", fault.element, raw.kind.get_ref());
        if !seen.insert(key) {
            let reason = format!("fault: {} has two faults of this kind", fault.element);
            return Err(FaultError { span: raw.element.span(), reason });
        }
        faults.push(fault);
    }
    Ok(faults)
}

impl MachineFault {
    /// Whether an operation over these units passes the element.
    pub fn is_on(&self, route: &[LinkEnd]) -> bool {
        match self.element {
            FaultElement::Gpu(gpu) => route.contains(&LinkEnd::Gpu(gpu)),
            FaultElement::Numa(numa) => route.contains(&LinkEnd::Numa(numa)),
            FaultElement::Bundle { from, to, one_way } => {
                route.windows(2).any(|hop| *hop == [from, to] || (!one_way && *hop == [to, from]))
            }
        }
    }

    /// What is left of a bundle of this width while the fault acts.
    pub(crate) fn share_left(&self, width: u32) -> Option<f64> {
        match self.effect {
            FaultEffect::Width { lost } if width > 0 => {
                Some(f64::from(width.saturating_sub(lost)) / f64::from(width))
            }
            FaultEffect::Speed { share } | FaultEffect::Flapping { share, .. } => Some(share),
            _ => None,
        }
    }
}

/// The topology as the driver of a machine with these faults reports it.
pub(crate) fn reported<'f>(
    healthy: &Topology,
    faults: impl Iterator<Item = &'f MachineFault>,
) -> Topology {
    let mut topology = healthy.clone();
    for fault in faults.filter(|fault| !fault.silent) {
        let (FaultEffect::Width { .. } | FaultEffect::Speed { .. }) = fault.effect else {
            continue;
        };
        let Topology { links, gpus, .. } = &mut topology;
        for link in links.iter_mut().filter(|link| fault.element.joins(link.a, link.b)) {
            let port = gpus.iter_mut().find(|gpu| {
                let end = LinkEnd::Gpu(gpu.index);
                link.kind == LinkKind::Pcie && (link.a == end || link.b == end)
            });
            let port = port.and_then(|gpu| gpu.host_link.as_mut());
            let width = port.as_ref().map_or(link.width, |port| port.width);
            let Some(share) = fault.share_left(width) else { continue };
            link.peak = link.peak.map(|peak| Rate(peak.0 * share));
            match (fault.effect, port) {
                (FaultEffect::Width { lost }, Some(port)) => port.width -= lost.min(port.width),
                (FaultEffect::Width { lost }, None) => link.width -= lost.min(link.width),
                (_, Some(port)) => port.speed_gts *= share,
                (_, None) => {}
            }
        }
    }
    topology
}
