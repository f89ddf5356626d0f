//! Numbers, counts and lists as text.

use pathline_schema::{Case, decimal_text};

use crate::figure::FigureCell;

/// Three significant digits without a unit: `50.3`, `174`, `8.72`, `1256`.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if (1e6..f64::INFINITY).contains(&v) => format!("{value:.0e}"),
        v if v >= 99.95 => decimal_text(value, 0),
        v if v >= 9.995 => decimal_text(value, 1),
        _ => decimal_text(value, 2),
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

/// `84000`: a count with the digits that its interval supports, at most three.
pub(crate) fn count_within(value: f64, half_width: f64) -> String {
    let power = |digits: f64| 10_f64.powf(digits.max(0.0));
    let open = power(half_width.max(1.0).log10().floor());
    let unit = open.max(power(value.max(1.0).log10().floor() - 2.0));
    format!("{:.0}", (value / unit).round() * unit)
}

/// `37.1-37.6`, or one number if both are formatted equally.
pub fn range(low: f64, high: f64) -> String {
    let (low, high) = (number(low), number(high));
    if low == high { low } else { format!("{low}-{high}") }
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

/// The first letter of a sentence.
pub fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().collect::<String>() + chars.as_str(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_show_the_digits_that_are_known() {
        // 6778 makes thousands uncertain; 12 would make tens uncertain, but three digits are the
        // maximum.
        assert_eq!(count_within(83_682.0, 6_778.0), "84000");
        assert_eq!(count_within(83_682.0, 12.0), "83700");
        assert_eq!(count_within(7.0, 0.1), "7");
    }

    #[test]
    fn figures_keep_three_digits() {
        let texts = [8.7249, 9.996, 50.34, 99.96, 1256.3].map(number);
        assert_eq!(texts, ["8.72", "10.0", "50.3", "100", "1256"]);
        assert_eq!(percent(0.0312), "3.1 %");
        assert_eq!(percent(0.7521), "75 %");
    }
}
