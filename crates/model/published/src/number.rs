//! How a published number is formed: a small expression over the answers of a machine.

use std::fmt;

use pathline_message::ExchangeSpec;
use pathline_schema::Case;

/// A query to a machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MachineQuery {
    /// A case, run as `pathline run` runs it.
    Case(Case),
    /// An operation of a message library.
    Exchange(ExchangeSpec),
}

impl fmt::Display for MachineQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Case(case) => case.fmt(f),
            Self::Exchange(exchange) => exchange.fmt(f),
        }
    }
}

/// The answer of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineAnswer {
    /// Payload of all timed flows, GB/s. Of a collective: its algorithm bandwidth.
    pub rate: f64,
    /// Time of one operation of the slowest flow, us; of a chase, of one load.
    pub time_us: f64,
    /// The same, the mean over the ranks of a collective; else as `time_us`.
    pub mean_us: f64,
    /// Bus bandwidth of a collective, GB/s; else as `rate`.
    pub bus: f64,
}

impl MachineAnswer {
    /// The answer to a case: its payload's rate in GB/s, and the time of its slowest flow in us.
    pub const fn of_case(rate: f64, time_us: f64) -> Self {
        Self { rate, time_us, mean_us: time_us, bus: rate }
    }
}

/// A number to be formed, in the units used inside: GB/s, us, 1, GiB, a count.
#[derive(Debug, Clone, PartialEq)]
pub enum RowNumber {
    /// Known beforehand: from the wiring of the node, from the row.
    Known(f64),
    /// [`MachineAnswer::rate`].
    Rate(MachineQuery),
    /// [`MachineAnswer::time_us`].
    Time(MachineQuery),
    /// [`MachineAnswer::mean_us`].
    Mean(MachineQuery),
    /// [`MachineAnswer::bus`].
    Bus(MachineQuery),
    /// A number times a factor.
    Scaled(f64, Box<RowNumber>),
    /// The sum.
    Sum(Vec<RowNumber>),
    /// The first less the second.
    Less(Box<RowNumber>, Box<RowNumber>),
    /// The first over the second.
    Over(Box<RowNumber>, Box<RowNumber>),
    /// The greatest.
    Most(Vec<RowNumber>),
    /// The least.
    Least(Vec<RowNumber>),
    /// The middle one; of an even number the mean of the middle two.
    Median(Vec<RowNumber>),
}

impl RowNumber {
    /// It times `by`.
    pub(crate) fn times(self, by: f64) -> Self {
        if by == 1.0 { self } else { Self::Scaled(by, Box::new(self)) }
    }
    pub(crate) fn less(self, other: Self) -> Self {
        Self::Less(Box::new(self), Box::new(other))
    }
    pub(crate) fn over(self, other: Self) -> Self {
        Self::Over(Box::new(self), Box::new(other))
    }

    /// The queries that it rests on.
    pub fn queries(&self) -> Vec<&MachineQuery> {
        match self {
            Self::Known(_) => Vec::new(),
            Self::Rate(ask) | Self::Time(ask) | Self::Mean(ask) | Self::Bus(ask) => vec![ask],
            Self::Scaled(_, number) => number.queries(),
            Self::Less(a, b) | Self::Over(a, b) => [a.queries(), b.queries()].concat(),
            Self::Sum(all) | Self::Most(all) | Self::Least(all) | Self::Median(all) => {
                all.iter().flat_map(Self::queries).collect()
            }
        }
    }

    /// Its value, with the answers that `of` gives.
    ///
    /// # Errors
    /// The first reason for which an answer is missing.
    pub fn value(
        &self,
        of: &dyn Fn(&MachineQuery) -> Result<MachineAnswer, String>,
    ) -> Result<f64, String> {
        let all = |numbers: &[Self]| -> Result<Vec<f64>, String> {
            let mut values: Vec<f64> =
                numbers.iter().map(|n| n.value(of)).collect::<Result<_, _>>()?;
            values.sort_by(f64::total_cmp);
            Ok(values)
        };
        Ok(match self {
            Self::Known(value) => *value,
            Self::Rate(ask) => of(ask)?.rate,
            Self::Time(ask) => of(ask)?.time_us,
            Self::Mean(ask) => of(ask)?.mean_us,
            Self::Bus(ask) => of(ask)?.bus,
            Self::Scaled(by, number) => by * number.value(of)?,
            Self::Sum(numbers) => all(numbers)?.iter().sum(),
            Self::Less(a, b) => a.value(of)? - b.value(of)?,
            Self::Over(a, b) => a.value(of)? / b.value(of)?,
            Self::Most(numbers) => all(numbers)?.last().copied().unwrap_or(f64::NAN),
            Self::Least(numbers) => all(numbers)?.first().copied().unwrap_or(f64::NAN),
            Self::Median(numbers) => {
                pathline_stats::interpolated(&all(numbers)?, 0.5).unwrap_or(f64::NAN)
            }
        })
    }
}

impl fmt::Display for RowNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |numbers: &[Self]| {
            let ends = [numbers.first(), numbers.last()].into_iter().flatten();
            let mut texts: Vec<String> = ends.map(Self::to_string).collect();
            texts.dedup();
            texts.join("; .. ")
        };
        match self {
            Self::Known(value) => write!(f, "{value}"),
            Self::Rate(ask) => write!(f, "rate({ask})"),
            Self::Time(ask) => write!(f, "time({ask})"),
            Self::Mean(ask) => write!(f, "mean time({ask})"),
            Self::Bus(ask) => write!(f, "busbw({ask})"),
            Self::Scaled(by, number) => write!(f, "{by} x {number}"),
            Self::Sum(all) => {
                let terms: Vec<String> = all.iter().map(Self::to_string).collect();
                write!(f, "({})", terms.join(" + "))
            }
            Self::Less(a, b) => write!(f, "({a} - {b})"),
            Self::Over(a, b) if matches!(**b, Self::Over(..)) => write!(f, "{a} / ({b})"),
            Self::Over(a, b) => write!(f, "{a} / {b}"),
            Self::Most(all) => write!(f, "most of {}: {}", all.len(), list(all)),
            Self::Least(all) => write!(f, "least of {}: {}", all.len(), list(all)),
            Self::Median(all) => write!(f, "median of {}: {}", all.len(), list(all)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(bytes: &str) -> MachineQuery {
        MachineQuery::Case(format!("gpu0.vram > gpu1.vram by dma@gpu0 x {bytes}").parse().unwrap())
    }

    #[test]
    fn expressions_have_the_value_of_their_arithmetic() {
        // 1 MiB runs at 10 GB/s in 5 us, 2 MiB at 20 in 6.
        let of = |a: &MachineQuery| {
            let big = *a == ask("2MiB");
            Ok(if big {
                MachineAnswer { rate: 20.0, time_us: 6.0, mean_us: 5.5, bus: 20.0 }
            } else {
                MachineAnswer { rate: 10.0, time_us: 5.0, mean_us: 5.0, bus: 10.0 }
            })
        };
        let (small, big) = (|| RowNumber::Rate(ask("1MiB")), || RowNumber::Rate(ask("2MiB")));
        for (number, value) in [
            (small().times(2.0), 20.0),
            (big().over(small()), 2.0),
            (RowNumber::Known(1.0).less(small().over(big())), 0.5),
            (RowNumber::Most(vec![big(), small()]), 20.0),
            (RowNumber::Least(vec![big(), small()]), 10.0),
            (RowNumber::Median(vec![big(), small(), small()]), 10.0),
            (
                RowNumber::Sum(vec![RowNumber::Time(ask("1MiB")), RowNumber::Time(ask("2MiB"))]),
                11.0,
            ),
            (RowNumber::Bus(ask("2MiB")), 20.0),
            (RowNumber::Mean(ask("2MiB")), 5.5),
        ] {
            assert_eq!(number.value(&of), Ok(value), "{number}");
        }
        assert_eq!(big().over(small()).queries().len(), 2);
        let none = |_: &MachineQuery| Err("gone".to_owned());
        assert_eq!(big().value(&none), Err("gone".to_owned()));
    }
}
