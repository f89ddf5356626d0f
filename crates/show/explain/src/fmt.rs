//! Numbers, cells, counts and lists as text.

use pathline_schema::{Case, decimal_text};

use crate::figure::{FigureCell, extremes};

/// Three significant digits without a unit: `50.3`, `174`, `8.72`, `1256`, `752k`, `1.00M`.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if (1e9..f64::INFINITY).contains(&v) => format!("{value:.0e}"),
        v if v.is_finite() && v >= 99_950.0 => in_thousands(value),
        v if v >= 99.95 => decimal_text(value, 0),
        v if v >= 9.995 => decimal_text(value, 1),
        _ => decimal_text(value, 2),
    }
}

/// `83.7k`, `752k`, `1.00M`, and what is below a thousand as it is: IOPS.
pub fn in_thousands(value: f64) -> String {
    match value.abs() {
        v if v >= 999_500.0 => format!("{}M", number(value / 1e6)),
        v if v >= 999.5 => format!("{}k", number(value / 1e3)),
        _ => number(value),
    }
}

/// `50.3 GB/s`.
pub fn gbs(value: f64) -> String {
    format!("{} GB/s", number(value))
}

/// ` ±0.4 %`, ` (n=3)` with too few samples for an interval, or ` (assumed)`; empty without a
/// value.
pub(crate) fn uncertainty(cell: &FigureCell) -> String {
    match (cell.value, cell.few) {
        (None, _) => String::new(),
        (_, Some(samples)) => format!(" (n={samples})"),
        (Some(_), None) if !cell.has_interval() => " (assumed)".into(),
        (Some(value), None) => format!(" ±{}", percent(cell.half_width / value)),
    }
}

/// `50.3 GB/s ±0.4 %`: a rate with its interval; `None` without a value.
pub(crate) fn gbs_within(cell: &FigureCell) -> Option<String> {
    let value = cell.value?;
    Some(format!("{}{}", gbs(value), uncertainty(cell)))
}

impl FigureCell {
    /// `2.00 ±0.03`; without `±` if it has no interval.
    pub(crate) fn number_text(&self) -> Option<String> {
        let within = || format!(" ±{}", number(self.half_width));
        let within = self.has_interval().then(within).unwrap_or_default();
        Some(number(self.value?) + &within)
    }
}

/// `37.1-37.6`, or one number if both are formatted equally.
pub fn range(low: f64, high: f64) -> String {
    let (low, high) = (number(low), number(high));
    if low == high { low } else { format!("{low}-{high}") }
}

/// `37.1-37.6`; `None` without values.
pub(crate) fn range_any(values: impl IntoIterator<Item = f64>) -> Option<String> {
    let values: Vec<f64> = values.into_iter().collect();
    let (low, high) = extremes(&values);
    (!values.is_empty()).then(|| range(low, high))
}

/// `28 %`, one decimal below 10.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() >= 9999.5 {
        ">9999%".to_owned()
    } else if percent.abs() < 9.95 && percent.fract().abs() > 0.05 {
        format!("{} %", decimal_text(percent, 1))
    } else {
        format!("{} %", decimal_text(percent, 0))
    }
}

/// `74-75 %`, or one number.
pub fn percent_range((low, high): (f64, f64)) -> String {
    let (low, high) = (percent(low), percent(high));
    if low == high { high } else { format!("{}-{high}", low.trim_end_matches(" %")) }
}

/// `3 of 28 pairs`, `all 28 pairs`, `one pair`.
pub fn of_all(n: usize, all: usize, what: &str) -> String {
    match n == all && all > 1 {
        true => format!("all {}", count(all, what)),
        false if all == 1 => format!("one {what}"),
        false => format!("{n} of {}", count(all, what)),
    }
}

/// `1 thread`, `2 threads`.
pub fn threads(n: u32) -> String {
    count(n as usize, "thread")
}

/// `1 case`, `2 cases`.
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// `a, b and c`.
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

/// `a, b and c`; `None` without items.
pub(crate) fn list_any(items: impl IntoIterator<Item = String>) -> Option<String> {
    let items: Vec<String> = items.into_iter().collect();
    (!items.is_empty()).then(|| list(&items))
}

/// Items with this between them; `None` without items.
pub(crate) fn join_any(items: impl IntoIterator<Item = String>, separator: &str) -> Option<String> {
    items.into_iter().reduce(|all, item| all + separator + &item)
}

/// A reason without the case that it names, so that equal reasons have equal texts.
pub fn reason<'a>(case: &Case, why: &'a str) -> &'a str {
    let about = |text: &str| why.split_once(&format!("{text}: ")).map(|(_, rest)| rest);
    let flows = case.timed.iter().find_map(|flow| about(&flow.to_string()));
    flows.or_else(|| about(&case.to_string())).unwrap_or(why)
}

/// A reason without its numbers: reasons that differ only in numbers have one cause.
pub fn cause(why: &str) -> String {
    let mut cause = String::with_capacity(why.len());
    for c in why.chars() {
        match c {
            c if c.is_ascii_digit() && cause.ends_with('#') => {}
            c if c.is_ascii_digit() => cause.push('#'),
            c => cause.push(c),
        }
    }
    cause
}

/// A text that begins with a capital letter, unless its first word is a name: `gpu3`, `xGMI`.
pub fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let word = text.split_whitespace().next().unwrap_or_default();
    let is_name = word.chars().any(|c| c.is_ascii_digit() || c.is_uppercase());
    match chars.next() {
        Some(_) if is_name => text.to_owned(),
        Some(first) => first.to_uppercase().collect::<String>() + chars.as_str(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits() {
        let texts = [8.7249, 9.996, 50.34, 99.96, 1256.3].map(number);
        assert_eq!(texts, ["8.72", "10.0", "50.3", "100", "1256"]);
        assert_eq!(
            [751_967.0, 999_950.0, 2.5e6, 1e30].map(number),
            ["752k", "1.00M", "2.50M", "1e30"]
        );
        assert_eq!([83_682.0, 999.0, 751_967.0].map(in_thousands), ["83.7k", "999", "752k"]);
        assert_eq!(percent(0.0312), "3.1 %");
        assert_eq!(percent(0.7521), "75 %");
        assert_eq!(
            ["all GPUs", "gpu3 is", "xGMI x"].map(sentence),
            ["All GPUs", "gpu3 is", "xGMI x"]
        );
    }
}
