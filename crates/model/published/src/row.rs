//! The meaning of a row's cells: its case, its metric, how its number is formed.
//!
//! An unknown word is an error that names it; nothing is guessed.

use pathline_schema::{Bytes, LinkEnd};

use crate::metric::PublishedMetric;
use crate::number::MachineQuery;
use crate::table::PublishedRow;
use crate::value::{RowValue, UnitKind, unit};

/// The most cases of one row.
const MAX_CASES: usize = 256;

/// Why a row has no prediction; rows of one reason have the same text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmappedRow {
    /// Whether the row itself is at fault: a cell that cannot be read.
    pub unreadable: bool,
    /// The reason.
    pub reason: String,
}

/// A row without a prediction.
pub(crate) fn unmapped<T>(reason: impl Into<String>) -> Result<T, UnmappedRow> {
    Err(UnmappedRow { unreadable: false, reason: reason.into() })
}

/// A row that cannot be read.
pub(crate) fn unreadable<T>(reason: impl Into<String>) -> Result<T, UnmappedRow> {
    Err(UnmappedRow { unreadable: true, reason: reason.into() })
}

/// The content of the case column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RowSubject {
    /// The cases to run.
    Queries(Vec<MachineQuery>),
    /// The whole node.
    Node,
    /// A part of it.
    Part(LinkEnd),
    /// Two parts of it.
    Path(LinkEnd, LinkEnd),
}

/// The statistic over several cases, or over several sizes of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowStatistic {
    /// The middle one.
    Median,
    /// The greatest.
    Most,
    /// The least.
    Least,
    /// The best over the powers of two from this size to that of the case.
    BestFrom(Bytes),
}

/// The base of a fraction or ratio.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RowBase {
    /// Nothing.
    None,
    /// A peak, GB/s.
    Peak(f64),
    /// One for all cases of the row, or one for each.
    Queries(Vec<MachineQuery>),
}

/// The use of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowUsage {
    /// In scores and in reports.
    Both,
    /// In scores.
    Score,
    /// In scores, of a source that set no constant of the description.
    HeldOut,
    /// In reports.
    Report,
}

impl RowUsage {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "" => Self::Both,
            "score" => Self::Score,
            "held-out" => Self::HeldOut,
            "report" => Self::Report,
            _ => return None,
        })
    }
}

/// A row, read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ParsedRow {
    pub(crate) subject: RowSubject,
    pub(crate) metric: PublishedMetric,
    /// In the units used inside.
    pub(crate) value: RowValue,
    pub(crate) kind: UnitKind,
    pub(crate) statistic: Option<RowStatistic>,
    pub(crate) base: RowBase,
    pub(crate) host_clock: bool,
}

impl ParsedRow {
    /// Reads the cells of a row.
    pub(crate) fn parse(row: &PublishedRow) -> Result<Self, UnmappedRow> {
        if RowUsage::parse(&row.usage).is_none() {
            return unreadable(format!("use '{}' is not score, held-out or report", row.usage));
        }
        let Some(of) = unit(&row.unit) else {
            return unreadable(format!("unit '{}' is not known", row.unit));
        };
        let Some(value) = RowValue::parse(&row.value) else {
            return unreadable(format!("value '{}' is no figure, range or bound", row.value));
        };
        let Some(metric) = PublishedMetric::parse(&row.metric) else {
            let known = PublishedMetric::known_names().collect::<Vec<_>>().join(", ");
            return unreadable(format!("metric '{}' is not known; there are {known}", row.metric));
        };
        if metric.unit_kind() != of.kind {
            return unreadable(format!("'{}' is not measured in {}", row.metric, row.unit));
        }
        let host_clock = match row.clock.as_str() {
            "" => false,
            "host" => true,
            other => return unreadable(format!("clock '{other}' is not host")),
        };
        let parsed = Self {
            subject: subject(&row.case, metric)?,
            metric,
            value: value.scaled(of.factor),
            kind: of.kind,
            statistic: statistic(&row.statistic)?,
            base: base(&row.base, metric)?,
            host_clock,
        };
        if let (RowSubject::Queries(cases), RowBase::Queries(base)) =
            (&parsed.subject, &parsed.base)
            && base.len() != 1
            && base.len() != cases.len()
        {
            return unreadable("base has neither one case nor one for each of the row's");
        }
        Ok(parsed)
    }
}

fn subject(text: &str, metric: PublishedMetric) -> Result<RowSubject, UnmappedRow> {
    if !metric.is_fact() {
        return queries("case", text).map(RowSubject::Queries);
    }
    let end = |text: &str| match text.trim().parse::<LinkEnd>() {
        Ok(end) => Ok(end),
        Err(_) => unreadable(format!("case '{text}' is no part of a node: node, gpu0, numa1")),
    };
    match text.split_once('>') {
        None if text == "node" => Ok(RowSubject::Node),
        None => end(text).map(RowSubject::Part),
        Some((a, b)) => Ok(RowSubject::Path(end(a)?, end(b)?)),
    }
}

/// Texts of cases and exchanges, joined by `;`.
fn queries(column: &str, text: &str) -> Result<Vec<MachineQuery>, UnmappedRow> {
    let one = |text: &str| {
        let read = match text.contains(" over ") {
            true => text.parse().map(MachineQuery::Exchange),
            false => text.parse().map(MachineQuery::Case),
        };
        read.or_else(|error| unreadable(format!("{column}: {error}")))
    };
    let texts: Vec<&str> = text.split(';').map(str::trim).take(MAX_CASES + 1).collect();
    if texts.len() > MAX_CASES {
        return unreadable(format!("{column}: more than {MAX_CASES} cases"));
    }
    texts.into_iter().map(one).collect()
}

fn statistic(text: &str) -> Result<Option<RowStatistic>, UnmappedRow> {
    Ok(Some(match text {
        "" => return Ok(None),
        "median" => RowStatistic::Median,
        "most" => RowStatistic::Most,
        "least" => RowStatistic::Least,
        _ => {
            let size = text.strip_prefix("best from ").and_then(|size| size.parse().ok());
            match size.filter(|size: &Bytes| size.0 > 0) {
                Some(size) => RowStatistic::BestFrom(size),
                None => {
                    return unreadable(format!(
                        "statistic '{text}' is not median, most, least or 'best from 256B'"
                    ));
                }
            }
        }
    }))
}

fn base(text: &str, metric: PublishedMetric) -> Result<RowBase, UnmappedRow> {
    match metric {
        PublishedMetric::Fraction => {
            let peak = text.strip_suffix("GB/s").and_then(|peak| peak.trim().parse::<f64>().ok());
            match peak.filter(|peak| peak.is_finite() && *peak > 0.0) {
                Some(peak) => Ok(RowBase::Peak(peak)),
                None => unreadable(format!("base '{text}' is no peak such as 50 GB/s")),
            }
        }
        PublishedMetric::Ratio | PublishedMetric::Deficit => {
            queries("base", text).map(RowBase::Queries)
        }
        _ if text.is_empty() => Ok(RowBase::None),
        _ => unreadable("base belongs to a fraction, a ratio or a deficit"),
    }
}
