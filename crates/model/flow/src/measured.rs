//! Measurements of a node: the `[measured]`, `[[path]]`, `[[shared]]` and `[[queue]]` parts of
//! a machine description, which state the rates of flows instead of the structure of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pathline_schema::{
    Bytes, Flow, IssueCall, LinkEnd, MemKind, Mover, Ns, Place, Rank, Rate, Unit,
};
use serde::Deserialize;
use toml::Spanned;

use crate::model::{TimeModel, gbs, time};
use crate::operation::{BuiltPath, FlowOperation, PathStage, ResourceUse};
use crate::solve::MIN_SHARE;

/// The most paths, and the most entries of `[[shared]]` and `[[queue]]`.
const MAX_ROWS: usize = 1 << 16;
/// The most flows that all `[[shared]]` together name.
const MAX_MEMBERS: usize = 1 << 20;

/// The flows that were measured and what they share. Empty in a description that models a node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MeasuredFlows {
    /// Source of the figures, as text.
    pub from: String,
    /// Median and 95th percentile of the error of this description on the sets of flows that it was
    /// made from, as shares: 0.014 is 1.4 %.
    pub error: Option<(f64, f64)>,
    /// Questions that the measurements leave open, a sentence each.
    pub undecided: Vec<String>,
    /// Each path alone.
    pub paths: Vec<PathAlone>,
    /// Resources that several of them share.
    pub shared: Vec<SharedResource>,
    /// Engines that serve one stream of copies at a time.
    pub queues: Vec<SerialEngine>,
}

/// A rate and the interval that it is known within.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateInterval {
    /// The value used, in GB/s.
    pub rate: Rate,
    /// Lower end of its 95 % interval.
    pub low: Rate,
    /// Upper end.
    pub high: Rate,
}

/// Source, destination and mover: a flow without its size and rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathKey {
    /// Source of the bytes; of rank 0.
    pub src: Place,
    /// Destination; of rank 0.
    pub dst: Place,
    /// The mover.
    pub by: Mover,
}

/// A path that was measured alone.
#[derive(Debug, Clone, PartialEq)]
pub struct PathAlone {
    /// Its source, destination and mover.
    pub key: PathKey,
    /// Its rate, in payload.
    pub known: RateInterval,
    /// Time before its first byte.
    pub start: Ns,
    /// Its weight where rates are shared out: of two that wait for the same thing, one of 0.5 gets
    /// half of what one of 1 gets.
    pub share: f64,
}

/// Something that several paths take from.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedResource {
    /// Name for people.
    pub name: String,
    /// Its capacity.
    pub known: RateInterval,
    /// How it was found: `interference`, `topology`.
    pub found: String,
    /// Bytes of it that each path takes per byte of payload: index of the path, bytes.
    pub takes: Vec<(usize, f64)>,
}

/// An engine that serves one stream of copies at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct SerialEngine {
    /// Name for people.
    pub name: String,
    /// Indices of the paths that it serves.
    pub paths: Vec<usize>,
}

impl PathKey {
    /// The path of a flow.
    pub fn of(flow: &Flow) -> Self {
        let any = |place: Place| Place { rank: Rank(0), ..place };
        Self { src: any(flow.src), dst: any(flow.dst), by: flow.by }
    }
    /// A flow of `bytes` over it.
    pub fn flow(self, bytes: Bytes) -> Flow {
        Flow { src: self.src, dst: self.dst, by: self.by, bytes }
    }
}

impl std::fmt::Display for PathKey {
    /// `numa0.pinned > gpu0.vram by dma@gpu0`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (src, dst) = (self.src, self.dst);
        write!(f, "{}.{} > {}.{} by {}", src.unit, src.mem, dst.unit, dst.mem, self.by)
    }
}

impl std::str::FromStr for PathKey {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let words: Vec<&str> = s.split_whitespace().take(6).collect();
        let &[src, ">", dst, "by", by] = words.as_slice() else {
            return Err(format!(
                "{s:?} is no path; expected SRC > DST by MOVER without a size, such as \
                 numa0.pinned > gpu0.vram by dma@gpu0"
            ));
        };
        let place = |text: &str| text.parse::<Place>().map_err(|e| e.to_string());
        let by: Mover = by.parse().map_err(|e: pathline_schema::ParseError| e.to_string())?;
        let (src, dst) = (place(src)?, place(dst)?);
        if (src.rank, dst.rank) != (Rank(0), Rank(0)) {
            return Err(format!("{s:?} names a rank; a path is the same for all of them"));
        }
        if !by.has_rate() {
            return Err(format!("{by} has a time and no rate; expected what moves bytes"));
        }
        let key = Self { src, dst, by };
        key.flow(Bytes::gib(1)).misfit().map_or(Ok(key), |why| Err(format!("{s:?}: {why}")))
    }
}

/// `[measured]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMeasured {
    #[serde(default)]
    from: String,
    #[serde(default)]
    error_p50: Option<f64>,
    #[serde(default)]
    error_p95: Option<f64>,
    #[serde(default)]
    undecided: Vec<String>,
}

/// `[[path]]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPath {
    flow: Spanned<String>,
    #[serde(deserialize_with = "gbs")]
    gbs: f64,
    #[serde(default)]
    low: Option<f64>,
    #[serde(default)]
    high: Option<f64>,
    #[serde(default, deserialize_with = "time")]
    start_us: f64,
    #[serde(default = "one", deserialize_with = "weight")]
    share: f64,
}

/// `[[shared]]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawShared {
    name: Spanned<String>,
    #[serde(deserialize_with = "gbs")]
    gbs: f64,
    #[serde(default)]
    low: Option<f64>,
    #[serde(default)]
    high: Option<f64>,
    #[serde(default)]
    found: String,
    flows: Vec<Spanned<String>>,
    #[serde(default)]
    takes: Option<Spanned<Vec<f64>>>,
}

/// `[[queue]]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawQueue {
    name: Spanned<String>,
    flows: Vec<Spanned<String>>,
}

fn one() -> f64 {
    1.0
}

fn weight<'de, D: serde::Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(d)?;
    if (MIN_SHARE..=1.0 / MIN_SHARE).contains(&value) {
        Ok(value)
    } else {
        let reason = format!("{value} is out of range; expected a weight from 0.001 to 1000");
        Err(serde::de::Error::custom(reason))
    }
}

/// The parts of a file, before they are checked.
pub(crate) struct RawParts<'a> {
    pub about: Option<&'a RawMeasured>,
    pub paths: &'a [RawPath],
    pub shared: &'a [RawShared],
    pub queues: &'a [RawQueue],
    /// Whether a unit is one of this file.
    pub exists: &'a dyn Fn(Unit) -> bool,
}

type FieldError = (Option<Range<usize>>, String);

/// Checks the parts; returns the error and its place.
pub(crate) fn read(parts: &RawParts<'_>) -> Result<MeasuredFlows, FieldError> {
    for (what, n) in
        [("path", parts.paths.len()), ("shared", parts.shared.len()), ("queue", parts.queues.len())]
    {
        if n > MAX_ROWS {
            return Err((None, format!("{n} entries of {what}; expected at most {MAX_ROWS}")));
        }
    }
    let members: usize = parts.shared.iter().map(|s| s.flows.len()).sum();
    if members > MAX_MEMBERS {
        let reason = format!("shared: {members} flows in all; expected at most {MAX_MEMBERS}");
        return Err((None, reason));
    }
    let mut measured = MeasuredFlows::default();
    if let Some(about) = parts.about {
        measured.from.clone_from(&about.from);
        measured.undecided.clone_from(&about.undecided);
        measured.error = error(about)?;
    }
    let mut index = BTreeMap::new();
    for raw in parts.paths {
        let path = path(raw, parts.exists)?;
        if index.insert(path.key, measured.paths.len()).is_some() {
            return Err((Some(raw.flow.span()), format!("path {} is there twice", path.key)));
        }
        measured.paths.push(path);
    }
    let mut names = BTreeSet::new();
    for raw in parts.shared {
        name(&raw.name, "shared", &mut names)?;
        measured.shared.push(shared(raw, &index)?);
    }
    let mut queued = BTreeSet::new();
    names.clear();
    for raw in parts.queues {
        name(&raw.name, "queue", &mut names)?;
        let paths = members_of(&raw.flows, &index, "queue")?;
        if let Some((_, twice)) = paths.iter().zip(&raw.flows).find(|(p, _)| !queued.insert(**p)) {
            let reason = format!("{} is in two queues", twice.get_ref());
            return Err((Some(twice.span()), reason));
        }
        measured.queues.push(SerialEngine { name: raw.name.get_ref().clone(), paths });
    }
    Ok(measured)
}

fn error(about: &RawMeasured) -> Result<Option<(f64, f64)>, FieldError> {
    let percent = |name: &str, value: f64| {
        if (0.0..=1000.0).contains(&value) {
            return Ok(value / 100.0);
        }
        Err((None, format!("{name}: {value} is out of range; expected percent from 0 to 1000")))
    };
    match (about.error_p50, about.error_p95) {
        (None, None) => Ok(None),
        (Some(half), Some(most)) if half <= most => {
            Ok(Some((percent("error_p50", half)?, percent("error_p95", most)?)))
        }
        _ => Err((None, "expected error_p50 and error_p95, the first not above the other".into())),
    }
}

fn known(rate: f64, low: Option<f64>, high: Option<f64>) -> Result<RateInterval, String> {
    let (low, high) = (low.unwrap_or(rate), high.unwrap_or(rate));
    let orderly = low > 0.0 && low <= rate && rate <= high && high.is_finite();
    if orderly {
        return Ok(RateInterval { rate: Rate(rate), low: Rate(low), high: Rate(high) });
    }
    Err(format!("low {low}, gbs {rate}, high {high}: expected 0 < low <= gbs <= high"))
}

fn path(raw: &RawPath, exists: &dyn Fn(Unit) -> bool) -> Result<PathAlone, FieldError> {
    let at = |reason: String| (Some(raw.flow.span()), reason);
    let key: PathKey = raw.flow.get_ref().parse().map_err(at)?;
    for place in [key.src, key.dst] {
        if !exists(place.unit) {
            return Err(at(format!("{} is no [[gpu]] and no [[numa]] of this file", place.unit)));
        }
        let on_gpu = place.unit.gpu().is_some();
        let fits = match place.mem {
            MemKind::Vram | MemKind::VramFine => on_gpu,
            MemKind::Managed | MemKind::Reg => true,
            _ => !on_gpu,
        };
        if !fits {
            return Err(at(format!("{} has no {} memory", place.unit, place.mem)));
        }
    }
    if !exists(key.by.at()) {
        return Err(at(format!("{} is no [[gpu]] and no [[numa]] of this file", key.by.at())));
    }
    let known = known(raw.gbs, raw.low, raw.high).map_err(at)?;
    Ok(PathAlone { key, known, start: Ns::us(raw.start_us), share: raw.share })
}

fn name(
    name: &Spanned<String>,
    what: &str,
    names: &mut BTreeSet<String>,
) -> Result<(), FieldError> {
    if name.get_ref().trim().is_empty() || name.get_ref().len() > 256 {
        return Err((Some(name.span()), format!("{what}: expected a name of 1 to 256 bytes")));
    }
    if !names.insert(name.get_ref().clone()) {
        return Err((Some(name.span()), format!("{what} {:?} is there twice", name.get_ref())));
    }
    Ok(())
}

fn members_of(
    flows: &[Spanned<String>],
    index: &BTreeMap<PathKey, usize>,
    what: &str,
) -> Result<Vec<usize>, FieldError> {
    let mut seen = BTreeSet::new();
    let member = |flow: &Spanned<String>| {
        let at = |reason: String| (Some(flow.span()), reason);
        let key: PathKey = flow.get_ref().parse().map_err(at)?;
        let Some(&path) = index.get(&key) else {
            return Err(at(format!("{what}: {key} is no [[path]] of this file")));
        };
        if !seen.insert(path) {
            return Err(at(format!("{what}: {key} is there twice")));
        }
        Ok(path)
    };
    flows.iter().map(member).collect()
}

fn shared(raw: &RawShared, index: &BTreeMap<PathKey, usize>) -> Result<SharedResource, FieldError> {
    let at = |reason: String| (Some(raw.name.span()), reason);
    let paths = members_of(&raw.flows, index, "shared")?;
    if paths.is_empty() {
        return Err(at("shared: expected at least one flow".into()));
    }
    let takes = match &raw.takes {
        None => vec![1.0; paths.len()],
        Some(takes) if takes.get_ref().len() == paths.len() => {
            let fits = |t: &f64| (1e-6..=1e3).contains(t);
            if let Some(wrong) = takes.get_ref().iter().find(|&t| !fits(t)) {
                let reason = format!("takes: {wrong} is out of range; expected 1e-6 to 1000");
                return Err((Some(takes.span()), reason));
            }
            takes.get_ref().clone()
        }
        Some(takes) => {
            let (n, all) = (takes.get_ref().len(), paths.len());
            let reason = format!("takes: {n} numbers for {all} flows; expected one for each");
            return Err((Some(takes.span()), reason));
        }
    };
    Ok(SharedResource {
        name: raw.name.get_ref().clone(),
        known: known(raw.gbs, raw.low, raw.high).map_err(at)?,
        found: raw.found.clone(),
        takes: paths.into_iter().zip(takes).collect(),
    })
}

/// The measured path of a flow, and its use of resources.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeasuredIndex {
    pub measured: MeasuredFlows,
    index: BTreeMap<PathKey, usize>,
    /// Of each path: resources of the network, and its queue.
    uses: Vec<(Vec<ResourceUse>, Option<u32>)>,
}

impl MeasuredIndex {
    /// `resource` and `queue` are the numbers that the first of what is shared and the first queue
    /// have in the network.
    pub(crate) fn new(measured: MeasuredFlows, resource: u32, queue: u32) -> Self {
        let index = measured.paths.iter().enumerate().map(|(i, p)| (p.key, i)).collect();
        let mut uses = vec![(Vec::new(), None); measured.paths.len()];
        for (shared, resource) in measured.shared.iter().zip(resource..) {
            for &(path, weight) in &shared.takes {
                if let Some((uses, _)) = uses.get_mut(path) {
                    uses.push(ResourceUse { resource, weight });
                }
            }
        }
        for (queue, nth) in measured.queues.iter().zip(queue..) {
            for &path in &queue.paths {
                if let Some((_, queue)) = uses.get_mut(path) {
                    *queue = Some(nth);
                }
            }
        }
        Self { measured, index, uses }
    }

    /// The measured path of a flow, with what it shares and its queue.
    pub(crate) fn find(&self, flow: &Flow) -> Option<(&PathAlone, &[ResourceUse], Option<u32>)> {
        let &at = self.index.get(&PathKey::of(flow))?;
        let (path, (uses, queue)) = (self.measured.paths.get(at)?, self.uses.get(at)?);
        Some((path, uses, *queue))
    }

    /// Cost and resource use of a flow over a measured path.
    pub(crate) fn build(&self, flow: &Flow, time: &TimeModel) -> Option<BuiltPath> {
        let (path, uses, queue) = self.find(flow)?;
        let rate = path.known.rate;
        let facts = flow.by.facts();
        let call_us = match facts.issue? {
            IssueCall::Copy => time.copy_call_us,
            IssueCall::Batch => time.batch_call_us.unwrap_or(0.0),
            IssueCall::Launch => time.launch_call_us,
            IssueCall::Free => 0.0,
        };
        let limit = format!("{} alone", path.key);
        let (name, why) = (limit.clone(), String::new());
        let stage = PathStage { name, peak: rate, cap: rate, why, hard: None };
        let operation = FlowOperation {
            uses: uses.to_vec(),
            cap: rate,
            share: path.share,
            queue,
            turn: None,
            alpha: path.start,
            call: Ns::us(call_us),
            blocking: false,
            spread: 0.0,
            step: Ns::ZERO,
            route: vec![LinkEnd::from(flow.src.unit), LinkEnd::from(flow.dst.unit)],
            engine: facts.engine.into(),
            stages: vec![stage],
        };
        Some(BuiltPath { operation, limit })
    }
}
