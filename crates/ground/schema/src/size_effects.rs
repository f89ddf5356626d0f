//! What a setting does by kind and size of transfer: one sentence and one table for all commands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Bytes, Flow, MemKind, Mover, Transport};

/// A change of the rate by less than this share is none.
const LEAST_CHANGE: f64 = 0.01;
/// Columns of a table at most.
const MAX_SIZES: usize = 4;

/// What a setting does at one size: its gain with the 95 % interval. 0.5 is 50 % more in the same time, negative is
/// slower.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SizeEffect {
    /// Size of the transfer.
    pub bytes: Bytes,
    /// The gain.
    pub gain: f64,
    /// Its lower bound.
    pub low: f64,
    /// Its upper bound.
    pub high: f64,
}

impl SizeEffect {
    /// Without an interval.
    pub const fn exact(bytes: Bytes, gain: f64) -> Self {
        Self { bytes, gain, low: gain, high: gain }
    }

    fn is_faster(&self) -> bool {
        self.low > LEAST_CHANGE
    }
    fn is_slower(&self) -> bool {
        self.high < -LEAST_CHANGE
    }

    /// `+50 %`, `3.4x`, `-22 %`; `0 %` where its interval holds no change.
    fn text(&self) -> String {
        match self.gain {
            gain if gain > 1.0 && self.is_faster() => format!("{:.1}x", 1.0 + gain),
            gain if self.is_faster() || self.is_slower() => format!("{:+.0} %", gain * 100.0),
            _ => "0 %".to_owned(),
        }
    }
}

/// A kind of transfer, a row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizedTransfer {
    /// A copy between two GPUs.
    Peers,
    /// A copy of pinned memory to a GPU.
    Inward,
    /// A copy from a GPU to pinned memory.
    Outward,
    /// Messages by MPI.
    Mpi,
    /// Messages by UCX.
    Ucx,
}

impl SizedTransfer {
    const ALL: [Self; 5] = [Self::Peers, Self::Inward, Self::Outward, Self::Mpi, Self::Ucx];

    /// The kind of a flow; none of pageable memory and of kernels.
    pub fn of_flow(flow: &Flow) -> Option<Self> {
        let gpus = [flow.src, flow.dst].map(|place| place.unit.gpu().is_some());
        let host = if gpus[0] { flow.dst } else { flow.src };
        match flow.by {
            Mover::Wire { wire, .. } => match wire.via {
                Transport::Mpi => Some(Self::Mpi),
                Transport::Ucx => Some(Self::Ucx),
                _ => None,
            },
            Mover::Dma { .. } | Mover::Blit { .. } => match gpus {
                [true, true] => (flow.src.unit != flow.dst.unit).then_some(Self::Peers),
                _ if host.mem != MemKind::Pinned || host.unit.numa().is_none() => None,
                [false, true] => Some(Self::Inward),
                [true, false] => Some(Self::Outward),
                _ => None,
            },
            _ => None,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Peers => "between GPUs",
            Self::Inward => "H2D",
            Self::Outward => "D2H",
            Self::Mpi => "MPI messages",
            Self::Ucx => "UCX messages",
        }
    }
}

/// How the gains of a setting are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EffectBasis {
    /// All of them were measured.
    #[default]
    Measured,
    /// Some rates of a measured node are those of its model.
    Predicted,
    /// All are of a simulated machine.
    Simulated,
}

impl EffectBasis {
    const fn word(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Predicted => "predicted",
            Self::Simulated => "simulated",
        }
    }
}

/// One gain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SizePoint {
    transfer: SizedTransfer,
    /// Between what: `gpu0→gpu1`.
    ends: String,
    #[serde(flatten)]
    effect: SizeEffect,
}

/// Gains of a setting by kind and size of transfer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeEffects {
    /// `HSA_ENABLE_SDMA=0`.
    setting: String,
    basis: EffectBasis,
    points: Vec<SizePoint>,
}

impl SizeEffects {
    /// Sizes at which settings are compared: one whose start is most of its time, a usual one, and one whose rate
    /// hardly depends on the size.
    pub const USUAL: [Bytes; 3] = [Bytes::kib(64), Bytes::mib(1), Bytes::mib(64)];
    /// The same with a size whose time is its start: what a setting costs programs that copy little at once.
    pub const ALL: [Bytes; 4] = [Bytes::kib(4), Bytes::kib(64), Bytes::mib(1), Bytes::mib(64)];

    /// Of a setting such as `HSA_ENABLE_SDMA=0`, without a gain yet.
    pub fn new(setting: impl Into<String>, basis: EffectBasis) -> Self {
        Self { setting: setting.into(), basis, points: Vec::new() }
    }

    /// `HSA_ENABLE_SDMA=0`.
    pub fn setting(&self) -> &str {
        &self.setting
    }

    /// Adds a gain between two ends, in place of one that is known of this size.
    pub fn add(&mut self, transfer: SizedTransfer, ends: impl Into<String>, effect: SizeEffect) {
        let ends = ends.into();
        let is_same = |point: &&mut SizePoint| {
            (point.transfer, &point.ends, point.effect.bytes) == (transfer, &ends, effect.bytes)
        };
        match self.points.iter_mut().find(is_same) {
            Some(point) => point.effect = effect,
            None => self.points.push(SizePoint { transfer, ends, effect }),
        }
    }

    /// The same with the gains of others that it lacks.
    pub fn fill(&mut self, others: Self) {
        for point in others.points {
            let is_same = |known: &SizePoint| {
                (known.transfer, &known.ends, known.effect.bytes)
                    == (point.transfer, &point.ends, point.effect.bytes)
            };
            if !self.points.iter().any(is_same) {
                self.points.push(point);
            }
        }
    }

    /// The same with another basis.
    #[must_use]
    pub fn with_basis(self, basis: EffectBasis) -> Self {
        Self { basis, ..self }
    }

    /// `1MiB or more`, or the sizes at which the setting gains; none unless between the same ends it gains at some
    /// size and loses at another.
    pub fn sizes_of_gain(&self, transfer: SizedTransfer) -> Option<String> {
        let (faster, first) = self.split(transfer)?;
        Some(match first {
            Some(first) => format!("{} or more", first.rounded()),
            None => sizes(&faster),
        })
    }

    /// The answer: from which size on to use the setting, and what it costs below and copies of the
    /// host. None unless it gains at some size and loses at another between the same ends.
    pub fn verdict(&self) -> Option<String> {
        // What is done at which sizes.
        let mut uses: Vec<(String, Vec<String>)> = Vec::new();
        let (mut is_above, mut losses) = (true, Vec::new());
        for transfer in [SizedTransfer::Peers, SizedTransfer::Mpi, SizedTransfer::Ucx] {
            let Some((faster, first)) = self.split(transfer) else { continue };
            let at = match first {
                Some(first) => format!("from {} on", first.rounded()),
                None => format!("at {}", sizes(&faster)),
            };
            let place = if transfer == SizedTransfer::Peers { "" } else { "for " };
            is_above &= first.is_some();
            let (among, slower): (Vec<SizeEffect>, Vec<SizeEffect>) = self
                .effects(transfer)
                .filter(SizeEffect::is_slower)
                .partition(|loss| faster.iter().any(|gain| gain.bytes == loss.bytes));
            let mut text = format!("{place}{} (up to {}", transfer.label(), most_gain(&faster));
            // The table has the losses at other sizes.
            let worst = among.iter().min_by(|a, b| a.gain.total_cmp(&b.gain)).copied();
            if let Some((worst, loss)) = worst.zip(most_loss(&among)) {
                let up_to = if among.len() > 1 { "up to " } else { "" };
                let bytes = worst.bytes.rounded();
                text += &format!(", but {up_to}{loss} on some pairs at {bytes}");
            }
            losses.extend(slower);
            match uses.iter_mut().find(|(known, _)| *known == at) {
                Some((_, all)) => all.push(text + ")"),
                None => uses.push((at, vec![text + ")"])),
            }
        }
        let uses: Vec<String> =
            uses.iter().map(|(at, all)| format!("{at} {}", all.join(" and "))).collect();
        let rest = if is_above { "below" } else { "elsewhere" };
        let (setting, basis) = (&self.setting, self.basis.word());
        let (uses, loss) = (uses.join(", "), most_loss(&losses)?);
        let host = self.host_losses();
        Some(format!(
            "{setting}, {basis}: faster {uses}; {rest} up to {loss}{host}. {SUM_OF_A_JOB}"
        ))
    }

    /// `; H2D up to 11 % slower, D2H up to 9 % slower`: copies of the host, which the same setting changes. Empty where none
    /// is slower.
    fn host_losses(&self) -> String {
        let of = |transfer: SizedTransfer| {
            let slower: Vec<SizeEffect> =
                self.effects(transfer).filter(SizeEffect::is_slower).collect();
            Some(format!("{} up to {}", transfer.label(), most_loss(&slower)?))
        };
        let all: Vec<String> =
            [SizedTransfer::Inward, SizedTransfer::Outward].into_iter().filter_map(of).collect();
        if all.is_empty() { String::new() } else { format!("; {}", all.join(", ")) }
    }

    /// The verdict, and its table: a line of sizes and one for each kind of transfer, with the change of its rate. Where
    /// ends differ, the least and the greatest.
    pub fn answer(&self) -> Option<(String, Vec<String>)> {
        let verdict = self.verdict()?;
        let mut columns: Vec<Bytes> = self.points.iter().map(|point| point.effect.bytes).collect();
        columns.sort();
        columns.dedup();
        if columns.len() > MAX_SIZES {
            columns.retain(|bytes| Self::ALL.contains(bytes));
        }
        let sizes = columns.iter().map(|bytes| bytes.rounded());
        let mut rows = vec![(self.basis.word(), sizes.collect::<Vec<_>>())];
        for transfer in SizedTransfer::ALL {
            let cells: Vec<String> =
                columns.iter().map(|bytes| self.cell(transfer, *bytes)).collect();
            if cells.iter().any(|cell| cell != NO_CELL) {
                rows.push((transfer.label(), cells));
            }
        }
        let line = |(label, cells): &(&str, Vec<String>)| {
            let cells = cells.iter().map(|cell| format!("{cell:>CELL$}"));
            format!("{label:<12}{}", cells.collect::<String>())
        };
        Some((verdict, rows.iter().map(line).collect()))
    }

    fn effects(&self, transfer: SizedTransfer) -> impl Iterator<Item = SizeEffect> {
        self.points.iter().filter(move |point| point.transfer == transfer).map(|point| point.effect)
    }

    fn cell(&self, transfer: SizedTransfer, bytes: Bytes) -> String {
        let all = || self.effects(transfer).filter(|effect| effect.bytes == bytes);
        let least = all().min_by(|a, b| a.gain.total_cmp(&b.gain));
        let most = all().max_by(|a, b| a.gain.total_cmp(&b.gain));
        let Some((least, most)) = least.zip(most) else { return NO_CELL.to_owned() };
        let (low, high) = (least.text(), most.text());
        match low.strip_suffix(" %") {
            _ if low == high => low,
            // Both as factors where one is.
            Some(_) if high.ends_with('x') => format!("{:.2} to {high}", 1.0 + least.gain),
            Some(low) => format!("{low} to {high}"),
            None => format!("{low} to {high}"),
        }
    }

    /// The gains between those ends where the setting gains most, of the ends between which it gains at some size and
    /// loses at another: the sizes at which it gains, and the least of them if all above gain and none below.
    fn split(&self, transfer: SizedTransfer) -> Option<(Vec<SizeEffect>, Option<Bytes>)> {
        let mut by_ends: BTreeMap<&str, Vec<SizeEffect>> = BTreeMap::new();
        for point in self.points.iter().filter(|point| point.transfer == transfer) {
            by_ends.entry(&point.ends).or_default().push(point.effect);
        }
        let best = |all: &[SizeEffect]| all.iter().map(|effect| effect.gain).fold(0.0, f64::max);
        let is_mixed = |all: &Vec<SizeEffect>| {
            all.iter().any(SizeEffect::is_faster) && all.iter().any(SizeEffect::is_slower)
        };
        let mixed = by_ends.into_values().filter(is_mixed);
        let mut most = mixed.max_by(|a, b| best(a).total_cmp(&best(b)))?;
        most.sort_by_key(|effect| effect.bytes);
        let last = most.iter().rfind(|effect| effect.is_slower())?.bytes;
        let faster: Vec<SizeEffect> = most.iter().copied().filter(SizeEffect::is_faster).collect();
        let first = faster.first()?.bytes;
        let is_above = last < first && most.iter().all(|e| e.bytes < first || e.is_faster());
        Some((faster, is_above.then_some(first)))
    }
}

/// What decides about a variable that a process reads once, at its start.
const SUM_OF_A_JOB: &str = "It is of a whole process: \
    `pathline advise --for 'CASE x SIZE x COUNT'` sums a job's mix of sizes";

/// Columns of a cell, and what stands for a size that is not known.
const CELL: usize = 14;
const NO_CELL: &str = "-";

/// `64KiB, 1MiB`
fn sizes(of: &[SizeEffect]) -> String {
    let all: std::collections::BTreeSet<Bytes> = of.iter().map(|effect| effect.bytes).collect();
    all.iter().map(|bytes| bytes.rounded()).collect::<Vec<_>>().join(", ")
}

/// `3.4x`; of a gain below twice the rate `56 %`.
fn most_gain(of: &[SizeEffect]) -> String {
    let most = of.iter().max_by(|a, b| a.gain.total_cmp(&b.gain));
    most.map_or(String::new(), |most| most.text().trim_start_matches('+').to_owned())
}

/// `41 % slower`
fn most_loss(of: &[SizeEffect]) -> Option<String> {
    let worst = of.iter().map(|effect| -effect.gain).reduce(f64::max)?;
    Some(format!("{:.0} % slower", worst * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Bytes = Bytes::kib(64);
    const USUAL: Bytes = Bytes::mib(1);
    const LARGE: Bytes = Bytes::mib(64);

    fn effects(all: &[(&str, Bytes, f64)]) -> SizeEffects {
        let mut found = SizeEffects::new("X=0", EffectBasis::Measured);
        for &(ends, bytes, gain) in all {
            found.add(SizedTransfer::Peers, ends, SizeEffect::exact(bytes, gain));
        }
        found
    }

    fn verdict(all: &[(Bytes, f64)]) -> Option<String> {
        let all: Vec<_> = all.iter().map(|(bytes, gain)| ("a", *bytes, *gain)).collect();
        let text = effects(&all).verdict()?;
        let text = text.strip_prefix("X=0, measured: faster ")?.strip_suffix(SUM_OF_A_JOB)?;
        Some(text.trim_end_matches(". ").to_owned())
    }

    #[test]
    fn a_setting_is_to_use_from_a_size_on_and_not_below() {
        assert_eq!(
            verdict(&[(LARGE, 2.05), (SMALL, -0.22), (USUAL, 0.46)]).as_deref(),
            Some("from 1MiB on between GPUs (up to 3.0x); below up to 22 % slower")
        );
        assert_eq!(
            verdict(&[(SMALL, 0.2), (USUAL, 0.4), (LARGE, -0.1)]).as_deref(),
            Some("at 64KiB, 1MiB between GPUs (up to 40 %); elsewhere up to 10 % slower")
        );
        assert_eq!(verdict(&[(SMALL, 0.005), (LARGE, 2.0)]), None, "it loses nowhere");
        assert_eq!(verdict(&[(SMALL, -0.2), (LARGE, -0.1)]), None, "it gains nowhere");
        let mut wide = effects(&[("a", SMALL, -0.2)]);
        wide.add(
            SizedTransfer::Peers,
            "a",
            SizeEffect { low: -0.01, ..SizeEffect::exact(LARGE, 0.5) },
        );
        assert_eq!(wide.verdict(), None, "its interval has no gain");
    }

    /// Between b it loses nowhere, between c it gains less and loses at 1 MiB.
    #[test]
    fn ends_messages_and_host_copies_are_rows_of_one_table() {
        let mut all = effects(&[
            ("a", SMALL, -0.1),
            ("a", USUAL, 0.5),
            ("a", LARGE, 1.5),
            ("b", LARGE, 4.0),
            ("c", SMALL, -0.3),
            ("c", USUAL, -0.12),
            ("c", LARGE, 0.4),
        ]);
        all.add(SizedTransfer::Inward, "h", SizeEffect::exact(USUAL, -0.03));
        all.add(SizedTransfer::Outward, "h", SizeEffect::exact(LARGE, 0.005));
        all.add(SizedTransfer::Mpi, "a", SizeEffect::exact(SMALL, -0.2));
        all.add(SizedTransfer::Mpi, "a", SizeEffect::exact(LARGE, -0.5));
        // A value that is known better stands in place of it.
        all.add(SizedTransfer::Mpi, "a", SizeEffect::exact(LARGE, 0.3));
        let mut others = effects(&[("a", LARGE, 9.0)]);
        others.add(SizedTransfer::Outward, "h", SizeEffect::exact(SMALL, -0.09));
        all.fill(others);
        let (verdict, table) = all.answer().unwrap();
        assert_eq!(
            verdict,
            "X=0, measured: faster from 1MiB on between GPUs (up to 2.5x, but 12 % slower on some pairs at 1MiB), \
             from 64MiB on for MPI messages (up to 30 %); below up to 30 % slower; H2D up to 3 % slower, D2H up to 9 % \
             slower. It is of a whole process: `pathline advise --for 'CASE x SIZE x COUNT'` sums a job's mix of sizes"
        );
        let rows: Vec<String> = table
            .iter()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let expected = [
            "measured 64KiB 1MiB 64MiB",
            "between GPUs -30 to -10 % -12 to +50 % 1.40 to 5.0x",
            "H2D - -3 % -",
            "D2H -9 % - 0 %",
            "MPI messages -20 % - +30 %",
        ];
        assert_eq!(rows, expected);
        assert_eq!(all.sizes_of_gain(SizedTransfer::Mpi).as_deref(), Some("64MiB or more"));
        assert!(table.iter().all(|line| line.chars().count() <= 69), "{table:#?}");
    }
}
