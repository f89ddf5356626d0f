//! Causes of what a collective loses, each an edit of the model, judged by a whole curve of times.

use std::fmt;

use pathline_flow::{
    FigureForm, MachineDesc, MaxMinSolver, Network, NoPath, RateDemand, RuntimeEnv,
};
use pathline_message::{ExchangeSpec, GpuRing, MessageLayer, MessageLibrary, fastest_copy};
use pathline_schema::{Flow, MemKind, Ns, Place, Unit};
use pathline_stats::{ascending, interpolated};

use crate::posterior::{self, ln_likelihood};

/// Scale of the errors of a prediction that is right, as a share of the time.
const SCALE: f64 = 0.05;
/// A cause whose times are off by more than this in the median explains nothing.
const EXPLAINS: f64 = 0.15;

/// Fewest sizes by which a part is said to be slow.
const LEAST_SIZES: usize = 3;

/// What may be wrong with a library's rings, or with the node under them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectiveCause {
    /// Nothing: the library does what the model says.
    AsModelled,
    /// Half of its channels.
    HalfChannels,
    /// All rings but one.
    MissingRing,
    /// Rings in the order of the GPUs' numbers, not along the links.
    NumericOrder,
    /// Rings where the library would let the switches reduce.
    SwitchesUnused,
    /// A part that all rings or trees wait for; a collective of all GPUs does not tell which one.
    SlowPart,
}

impl CollectiveCause {
    /// Every cause.
    pub const ALL: [Self; 6] = [
        Self::AsModelled,
        Self::HalfChannels,
        Self::MissingRing,
        Self::NumericOrder,
        Self::SwitchesUnused,
        Self::SlowPart,
    ];

    /// What to do about it.
    pub const fn action(self) -> &'static str {
        match self {
            Self::AsModelled => "nothing to do for these sizes",
            Self::HalfChannels => {
                "see the channels in NCCL_DEBUG=INFO; NCCL_MIN_NCHANNELS restores them if a preset was lost"
            }
            Self::MissingRing => {
                "see the rings in NCCL_DEBUG=INFO and the links of each (pathline health)"
            }
            Self::NumericOrder => {
                "see the ring order in NCCL_DEBUG=INFO (NCCL_DEBUG_SUBSYS=GRAPH): the library does not see \
                 the links, as in a container without /sys"
            }
            Self::SwitchesUnused => {
                "see NVLS in NCCL_DEBUG=INFO: NCCL_NVLS_ENABLE=0, a virtual machine or a partition without \
                 multicast, or a fabric manager that does not offer it"
            }
            Self::SlowPart => "pathline health names the link, port or GPU that is slow, if one is",
        }
    }
}

impl fmt::Display for CollectiveCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsModelled => "as modelled",
            Self::HalfChannels => "half the channels",
            Self::MissingRing => "a ring is missing",
            Self::NumericOrder => "rings in the order of GPU numbers",
            Self::SwitchesUnused => "rings instead of NVLS",
            Self::SlowPart => "a part of the node is slow",
        })
    }
}

/// A cause and how well it explains what was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CauseScore {
    /// The cause.
    pub cause: CollectiveCause,
    /// Log likelihood, less ln(n) for an edit, and half of that for a number that is fitted.
    pub score: f64,
    /// Median of the absolute deviation of the measured from the predicted time, as a share.
    pub off_by: f64,
}

/// A model with a cause in it.
struct CauseModel<'a> {
    /// The node's.
    sound: &'a MessageLayer,
    /// The one with the cause, unless that is only slower.
    edited: Option<MessageLayer>,
    /// Factor on the time in which bytes move.
    slower: f64,
    /// The library as it then works, unless it works as before.
    by: Option<MessageLibrary>,
}

impl<'a> CauseModel<'a> {
    fn new(
        desc: &MachineDesc,
        sound: &'a MessageLayer,
        cause: CollectiveCause,
        exchange: &ExchangeSpec,
    ) -> Result<Option<Self>, NoPath> {
        let time = sound.time(exchange)?;
        let is_in_switches = time.is_in_switches();
        let rings = time.rings;
        let plain = Self { sound, edited: None, slower: 1.0, by: None };
        let mut edited = desc.clone();
        let ccl = match exchange.by {
            MessageLibrary::Nccl { .. } => &mut edited.software.nccl,
            _ => &mut edited.software.rccl,
        };
        let Some(ccl) = ccl else { return Ok(None) };
        let count = u32::try_from(rings.len()).unwrap_or(u32::MAX);
        let channels = match cause {
            CollectiveCause::AsModelled | CollectiveCause::SlowPart => return Ok(Some(plain)),
            CollectiveCause::SwitchesUnused => {
                let by = MessageLibrary::Nccl { nvls: false };
                return Ok(is_in_switches.then_some(Self { by: Some(by), ..plain }));
            }
            // Its rings carry nothing.
            _ if is_in_switches => return Ok(None),
            CollectiveCause::NumericOrder => {
                let Some(slower) = order_loss(desc, &rings)? else { return Ok(None) };
                return Ok(Some(Self { slower, ..plain }));
            }
            // With one or two rings half of them is one less: the same edit.
            CollectiveCause::HalfChannels if count >= 2 => count / 2,
            CollectiveCause::MissingRing if count >= 3 => count - 1,
            CollectiveCause::HalfChannels | CollectiveCause::MissingRing => return Ok(None),
        };
        ccl.max_channels = channels;
        let edited = MessageLayer::new(&edited).map_err(|error| NoPath(error.to_string()))?;
        Ok(Some(Self { edited: Some(edited), ..plain }))
    }

    fn time(&self, exchange: &ExchangeSpec) -> Result<Ns, NoPath> {
        let (start, moving) = self.split(exchange)?;
        Ok(Ns(start + moving * self.slower.max(1.0)))
    }

    /// The time of an exchange that does not depend on its size, nor on the order of a ring, and the rest, ns.
    fn split(&self, exchange: &ExchangeSpec) -> Result<(f64, f64), NoPath> {
        let layer = self.edited.as_ref().unwrap_or(self.sound);
        let exchange = ExchangeSpec { by: self.by.unwrap_or(exchange.by), ..exchange.clone() };
        let time = layer.time(&exchange)?.time.0;
        let least = ExchangeSpec { bytes: pathline_schema::Bytes(1024), ..exchange };
        let start = layer.time(&least)?.time.0.min(time);
        Ok((start, time - start))
    }

    /// How many times slower bytes move than the model says, by the sizes at which moving takes longest; none if
    /// fewer than three sizes show it.
    fn measured_slowness(&self, measured: &[(ExchangeSpec, Ns)]) -> Result<Option<f64>, NoPath> {
        let mut factors = Vec::new();
        for (exchange, time) in measured {
            let (start, moving) = self.split(exchange)?;
            factors.extend((moving > start).then(|| (time.0 - start) / moving));
        }
        let sorted = ascending(factors);
        let factor = interpolated(&sorted, 0.5).filter(|_| sorted.len() >= LEAST_SIZES);
        Ok(factor.filter(|factor| *factor > 1.0))
    }
}

/// How many times slower the rings are in the order of the GPUs' numbers, by the rates that their edges share
/// as flows of a kernel; `None` without rings or where the order is that already.
fn order_loss(desc: &MachineDesc, rings: &[GpuRing]) -> Result<Option<f64>, NoPath> {
    let network =
        Network::new(desc, RuntimeEnv::default()).map_err(|error| NoPath(error.to_string()))?;
    let topology = desc.topology();
    let rate = |orders: &[Vec<u32>]| -> Result<f64, NoPath> {
        let mut operations = Vec::new();
        for (nth, order) in orders.iter().enumerate() {
            for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
                let place = |gpu: u32| Place::new(Unit::Gpu(gpu), MemKind::Vram);
                let by = fastest_copy(&topology, *from);
                let bytes = pathline_schema::Bytes::mib(64);
                let flow = Flow { src: place(*from), dst: place(*to), by, bytes };
                operations.push((nth, network.operation(&flow)?));
            }
        }
        let flows: Vec<RateDemand<'_>> = operations.iter().map(|(_, o)| o.into()).collect();
        let capacities: Vec<f64> = network.resources().iter().map(|r| r.capacity.0).collect();
        let mut rates = Vec::new();
        MaxMinSolver::default().rates(&capacities, &flows, &mut rates);
        // A ring is as fast as its slowest edge.
        let slowest = |ring: usize| {
            let own = operations.iter().zip(&rates).filter(|((nth, _), _)| *nth == ring);
            own.map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min)
        };
        Ok((0..orders.len()).map(slowest).sum())
    };
    let found: Vec<Vec<u32>> = rings.iter().map(|ring| ring.gpus.clone()).collect();
    if found.is_empty() {
        return Ok(None);
    }
    let numeric: Vec<Vec<u32>> = found
        .iter()
        .enumerate()
        .map(|(nth, ring)| {
            let mut order = ring.clone();
            order.sort_unstable();
            // Both directions are used.
            if nth % 2 == 1 {
                order.reverse();
            }
            order
        })
        .collect();
    let (good, bad) = (rate(&found)?, rate(&numeric)?);
    Ok((bad > 0.0 && good > bad * 1.01).then_some(good / bad))
}

/// The causes that the times do not tell apart: the likeliest, and each that is less likely by up to 20 to 1.
pub fn likely_causes(scores: &[CauseScore]) -> &[CauseScore] {
    let alike = posterior::ties(scores.iter().map(|score| score.score), posterior::SURE);
    scores.get(..alike).unwrap_or_default()
}

/// Judges the causes by measured times of one operation over the same members at several sizes; best first.
/// `layer` has the libraries of `desc`.
/// Empty if no cause explains them: the median deviation of each is above 15 %.
///
/// # Errors
/// The model has no such exchange.
pub fn judge_causes(
    desc: &MachineDesc,
    layer: &MessageLayer,
    measured: &[(ExchangeSpec, Ns)],
) -> Result<Vec<CauseScore>, NoPath> {
    // Rings are those of the largest operation.
    let Some((largest, _)) = measured.iter().max_by_key(|(exchange, _)| exchange.bytes) else {
        return Ok(Vec::new());
    };
    let mut scores = Vec::new();
    for cause in CollectiveCause::ALL {
        let Some(mut model) = CauseModel::new(desc, layer, cause, largest)? else { continue };
        if cause == CollectiveCause::SlowPart {
            let slower = model.measured_slowness(measured)?;
            // What the model leaves open is no fault of the node.
            let is_open = |slower: &f64| *slower > FigureForm::Exchange.within();
            let Some(slower) = slower.filter(is_open) else { continue };
            model.slower = slower;
        }
        let mut deviations = Vec::new();
        for (exchange, time) in measured {
            deviations.push((time.0 / model.time(exchange)?.0).ln());
        }
        let likelihood: f64 = deviations.iter().map(|d| ln_likelihood(*d, SCALE)).sum();
        // A number that is fitted costs half of ln(n) (G. Schwarz, Ann. Statist. 6, 1978).
        let edits = match cause {
            CollectiveCause::AsModelled => 0.0,
            CollectiveCause::SlowPart => 1.5,
            _ => 1.0,
        };
        let off = ascending(deviations.iter().map(|d| d.abs()));
        let off_by = interpolated(&off, 0.5).unwrap_or(f64::INFINITY);
        let score = likelihood - edits * (measured.len() as f64).ln();
        scores.push(CauseScore { cause, score, off_by });
    }
    scores.retain(|score| score.off_by <= EXPLAINS);
    scores.sort_by(|a, b| b.score.total_cmp(&a.score));
    Ok(scores)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pathline_schema::{Bytes, Collective};

    use super::*;
    use crate::collectives::ledger::tests::BOUNDED;

    /// Each cause planted in the model with times off by up to 2 %, on every second preset with a library (on all
    /// where `PATHLINE_TEST_WORLDS` is set), wherever it makes any size 3 % slower: it is the likeliest cause, or one
    /// that the times do not tell apart from the likeliest, as half of two rings and their wrong order.
    #[test]
    fn planted_causes_are_named() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut first, mut tied, mut sound) = (0, 0, 0);
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        let step = if std::env::var_os("PATHLINE_TEST_WORLDS").is_some() { 1 } else { 2 };
        for (name, _) in MachineDesc::presets().iter().step_by(step) {
            let desc = MachineDesc::preset(name).unwrap();
            let layer = MessageLayer::new(&desc).unwrap();
            let gpus = desc.topology().gpus.len() as u32;
            for (by, count, op) in plantable(&desc, gpus) {
                let exchanges: Vec<ExchangeSpec> = [1u64, 16, 64, 256, 1024]
                    .iter()
                    .map(|mib| ExchangeSpec::collective(op, 0..count, by, Bytes::mib(*mib)))
                    .collect();
                let Some(last) = exchanges.last().filter(|last| layer.time(last).is_ok()) else {
                    continue;
                };
                for cause in CollectiveCause::ALL {
                    let model = CauseModel::new(&desc, &layer, cause, last).unwrap();
                    let Some(mut model) = model else { continue };
                    if cause == CollectiveCause::SlowPart {
                        model.slower = 1.85 + 3.0 * random.f64();
                    }
                    let clean: Vec<f64> =
                        exchanges.iter().map(|e| layer.time(e).unwrap().time.0).collect();
                    let slow: Vec<f64> =
                        exchanges.iter().map(|e| model.time(e).unwrap().0).collect();
                    let shows = slow.iter().zip(&clean).any(|(a, b)| a / b > 1.03);
                    if !shows && cause != CollectiveCause::AsModelled {
                        continue;
                    }
                    let noise =
                        slow.iter().map(|ns| Ns(ns * (1.0 + 0.02 * (2.0 * random.f64() - 1.0))));
                    let times: Vec<(ExchangeSpec, Ns)> =
                        exchanges.iter().cloned().zip(noise).collect();
                    let scores = judge_causes(&desc, &layer, &times).unwrap();
                    let likely = likely_causes(&scores);
                    let at = likely.iter().position(|score| score.cause == cause);
                    assert!(at.is_some(), "{name} {by} {count} {op} {cause}: {scores:?}");
                    match (cause, at) {
                        (CollectiveCause::AsModelled, _) => {
                            assert_eq!(at, Some(0), "{name} {by} {count} {op}: {scores:?}");
                            sound += 1;
                        }
                        (_, Some(0)) => first += 1,
                        _ => tied += 1,
                    }
                    *seen.entry(cause.to_string()).or_default() += 1;
                }
            }
        }
        println!("{first} first, {tied} with the same times as another, {sound} sound; {seen:?}");
        assert_eq!(seen.len(), CollectiveCause::ALL.len(), "{seen:?}");
        assert!(first >= 30 && tied * 10 <= first, "{first} {tied}");
    }

    /// All collectives of all numbers of GPUs where `PATHLINE_TEST_WORLDS` is set, else some of each.
    fn plantable(desc: &MachineDesc, gpus: u32) -> Vec<(MessageLibrary, u32, Collective)> {
        let mut libraries = Vec::new();
        libraries.extend(desc.software.rccl.as_ref().map(|_| MessageLibrary::Rccl));
        if desc.software.nccl.is_some() {
            libraries.extend([false, true].map(|nvls| MessageLibrary::Nccl { nvls }));
        }
        let mut all = Vec::new();
        for by in libraries {
            let is_whole = std::env::var_os("PATHLINE_TEST_WORLDS").is_some();
            for count in (2..=gpus).filter(|count| is_whole || [3, 5, 8].contains(count)) {
                let ops = BOUNDED.iter().skip(if is_whole { 0 } else { count as usize % 2 });
                all.extend(ops.step_by(if is_whole { 1 } else { 2 }).map(|op| (by, count, *op)));
            }
        }
        all
    }

    /// Ten times slower than any cause makes it: nothing that is known.
    #[test]
    fn what_nothing_explains_has_no_cause() {
        let desc = MachineDesc::preset("mi250x").unwrap();
        let layer = MessageLayer::new(&desc).unwrap();
        let by = MessageLibrary::Rccl;
        let exchange = ExchangeSpec::collective(Collective::AllReduce, 0..8, by, Bytes::mib(64));
        let time = layer.time(&exchange).unwrap().time;
        let scores = judge_causes(&desc, &layer, &[(exchange, Ns(time.0 * 10.0))]).unwrap();
        assert_eq!(scores, []);
    }
}
