//! A whole table: what must be asked for it, what became of each row, what contradicts what.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::{DescError, MachineDesc};

use crate::class::{BANDWIDTH, Class, FACTS, MESSAGES, SWEEPS};
use crate::map::{Mapper, Wanted};
use crate::number::{Ask, Got};
use crate::row::Row;
use crate::score::{Compared, Judged, Summary, Target, by_class, judge};
use crate::value::{Size, Value};
use crate::words::Unmapped;

/// Rows that differ in nothing but their size are a series from this many on.
const SERIES: usize = 3;
/// Published values that a model between them would miss by less than this do not contradict each
/// other.
const ALIKE: f64 = 0.01;

/// A table, mapped.
pub struct Plan {
    rows: Vec<(Row, Result<Wanted, Unmapped>)>,
    series: BTreeSet<usize>,
}

/// A row without a score.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Line of the table.
    pub line: u64,
    /// What it is about.
    pub label: String,
    /// Why.
    pub reason: String,
    /// Whether the row itself cannot be read.
    pub unreadable: bool,
}

/// Published values that no model can meet together.
#[derive(Debug, Clone, PartialEq)]
pub struct Contradiction {
    /// What the hardware is asked.
    pub what: String,
    /// Each value with its size and what published it, in ascending order.
    pub values: Vec<(f64, u64, String)>,
    /// The least of them that cannot be met together with the greatest.
    pub low: f64,
    /// The greatest.
    pub high: f64,
    /// The smallest worst error that any one model can have, relative.
    pub least_error: f64,
}

/// What became of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Name of the machine.
    pub machine: String,
    /// Rows with a prediction, in the order of the table.
    pub compared: Vec<Compared>,
    /// Rows without one.
    pub left_out: Vec<LeftOut>,
    /// What contradicts what; the worst first.
    pub contradictions: Vec<Contradiction>,
    /// Errors by class.
    pub classes: Vec<Summary>,
    /// Targets, and how they are met.
    pub judged: Vec<Judged>,
}

impl Report {
    /// Whether every target is met.
    pub fn met(&self) -> bool {
        self.judged.iter().all(Judged::met)
    }
}

impl Plan {
    /// Maps all rows onto a machine.
    ///
    /// # Errors
    /// A description that makes no network.
    pub fn new(rows: Vec<Row>, desc: &MachineDesc, systems: &[String]) -> Result<Self, DescError> {
        let mapper = Mapper::new(desc, systems)?;
        let rows: Vec<_> = rows
            .into_iter()
            .map(|row| {
                let wanted = mapper.map(&row);
                (row, wanted)
            })
            .collect();
        let series = series(&rows);
        Ok(Self { rows, series })
    }

    /// Everything that must be asked, each once.
    pub fn asks(&self) -> BTreeSet<&Ask> {
        let wanted = self.rows.iter().filter_map(|(_, wanted)| wanted.as_ref().ok());
        wanted.flat_map(|w| w.number.asks()).collect()
    }

    /// Scores all rows with the answers that `of` gives.
    pub fn score(
        &self,
        machine: &str,
        targets: &[Target],
        of: &dyn Fn(&Ask) -> Result<Got, String>,
    ) -> Report {
        let (mut compared, mut left_out) = (Vec::new(), Vec::new());
        for (at, (row, wanted)) in self.rows.iter().enumerate() {
            let out = |reason: String, unreadable: bool| LeftOut {
                line: row.line,
                label: row.label(),
                reason,
                unreadable,
            };
            let wanted = match wanted {
                Ok(wanted) => wanted,
                Err(why) => {
                    left_out.push(out(why.reason.clone(), why.unreadable));
                    continue;
                }
            };
            match wanted.number.value(of) {
                Ok(value) if value.is_finite() => {
                    compared.push(self.compare(at, row, wanted, value));
                }
                Ok(_) => left_out.push(out("its number has no finite value".into(), false)),
                Err(why) => left_out.push(out(why, false)),
            }
        }
        Report {
            machine: machine.to_owned(),
            classes: by_class(&compared),
            judged: judge(&compared, targets),
            contradictions: contradictions(&self.rows),
            compared,
            left_out,
        }
    }

    fn compare(&self, at: usize, row: &Row, wanted: &Wanted, predicted: f64) -> Compared {
        let series = self.series.contains(&at);
        let bandwidth = matches!(wanted.class, Class::GpuBandwidth | Class::HostBandwidth);
        let class = if bandwidth && series { Class::Sweep } else { wanted.class };
        let mut targets = Vec::new();
        targets.extend(bandwidth.then_some(BANDWIDTH));
        targets.extend((class == Class::Sweep).then_some(SWEEPS));
        let message = matches!(class, Class::Message | Class::Collective);
        targets.extend(message.then_some(MESSAGES));
        targets.extend((class == Class::Fact).then_some(FACTS));
        Compared {
            label: row.label(),
            class: class.name().to_owned(),
            predicted,
            measured: wanted.published,
            unit: wanted.unit.to_owned(),
            source: row.origin(),
            how: wanted.number.to_string(),
            targets,
            data: wanted.data,
        }
    }
}

/// Rows of a series: alike but for their size, three or more.
fn series(rows: &[(Row, Result<Wanted, Unmapped>)]) -> BTreeSet<usize> {
    let mut alike: BTreeMap<[&str; 8], Vec<(usize, &str)>> = BTreeMap::new();
    for (at, (row, _)) in rows.iter().enumerate() {
        if matches!(Size::parse(&row.size), Some(Size::One(_))) {
            let key = [
                &row.system,
                &row.source,
                &row.tool,
                &row.interface,
                &row.src,
                &row.dst,
                &row.direction,
                &row.metric,
            ];
            alike.entry(key.map(String::as_str)).or_default().push((at, &row.size));
        }
    }
    let long = |rows: &Vec<(usize, &str)>| {
        rows.iter().map(|(_, size)| size).collect::<BTreeSet<_>>().len() >= SERIES
    };
    alike.into_values().filter(long).flatten().map(|(at, _)| at).collect()
}

/// The smallest worst relative error of one prediction `p` for two values `a <= b`. It lies
/// between: its errors are (p - a) / a and (b - p) / b, which grow and fall with p and are equal at
/// p = 2 a b / (a + b), where both are (b - a) / (a + b).
pub(crate) fn least_error(a: f64, b: f64) -> f64 {
    if a + b == 0.0 { 0.0 } else { (b - a) / (a + b) }
}

/// Two rows about the same thing of the hardware contradict each other if they are of one size and
/// differ, or if a rate of the smaller size is the greater one (a time: of the larger size the
/// smaller one), since a larger transfer is neither slower nor sooner done.
fn contradictions(rows: &[(Row, Result<Wanted, Unmapped>)]) -> Vec<Contradiction> {
    let mut by_what: BTreeMap<(&str, bool), Vec<(f64, u64, String)>> = BTreeMap::new();
    for (row, wanted) in rows {
        let Ok(Wanted { asked: Some(asked), published, .. }) = wanted else { continue };
        let Some(value) = rate_of(row, *published) else { continue };
        let who = format!("{} {} ({})", row.tool, row.interface, row.source);
        by_what.entry((&asked.what, asked.time)).or_default().push((value, asked.bytes, who));
    }
    let mut found = Vec::new();
    for ((what, _), mut values) in by_what {
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut worst: Option<(f64, f64, f64)> = None;
        for (i, low) in values.iter().enumerate() {
            for high in &values[i + 1..] {
                let impossible = high.1 <= low.1;
                let least = least_error(low.0, high.0);
                if impossible && worst.is_none_or(|(least_so_far, ..)| least > least_so_far) {
                    worst = Some((least, low.0, high.0));
                }
            }
        }
        if let Some((least_error, low, high)) = worst.filter(|w| w.0 > ALIKE) {
            found.push(Contradiction { what: what.to_owned(), values, low, high, least_error });
        }
    }
    found.sort_by(|a, b| b.least_error.total_cmp(&a.least_error));
    found
}

/// A published value as a rate or time; a share of a stated peak counts as what it is a share of.
fn rate_of(row: &Row, value: Value) -> Option<f64> {
    let middle = Some(value.middle()).filter(|v| v.is_finite() && *v > 0.0)?;
    if row.metric.starts_with("fraction") {
        let peak = row.peak.parse::<f64>().ok().filter(|_| row.peak_unit == "GB/s")?;
        return Some(middle * peak);
    }
    Some(middle)
}
