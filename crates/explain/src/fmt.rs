//! Numbers, counts and lists as text.

use pathline_schema::Case;

/// Three figures without a unit: `50.3`, `174`, `8.72`, `1256`.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{value:.0e}"),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `50.3 GB/s`.
pub fn gbs(value: f64) -> String {
    format!("{} GB/s", number(value))
}

/// `37.1-37.6`, or one number if both read alike.
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
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
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

/// A reason without the case that it is about, so that equal reasons read alike.
pub fn reason<'a>(case: &Case, why: &'a str) -> &'a str {
    let about = |text: &str| why.split_once(&format!("{text}: ")).map(|(_, rest)| rest);
    let flows = case.timed.iter().find_map(|flow| about(&flow.to_string()));
    flows.or_else(|| about(&case.to_string())).unwrap_or(why)
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
    fn figures_keep_three_digits() {
        let texts = [8.7249, 9.996, 50.34, 99.96, 1256.3].map(number);
        assert_eq!(texts, ["8.72", "10.0", "50.3", "100", "1256"]);
        assert_eq!(percent(0.0312), "3.1 %");
        assert_eq!(percent(0.7521), "75 %");
    }
}
