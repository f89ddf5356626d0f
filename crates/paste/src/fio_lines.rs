//! Single lines of fio, and the last one of dd.

use crate::clean::PasteLine;
use crate::document::FileIoResult;
use crate::number::{number, rate_unit};

/// us of `usec`, `nsec`, `msec`.
pub(crate) fn unit_of(text: &str) -> f64 {
    match text.get(..4) {
        Some("nsec") => 1e-3,
        Some("msec") => 1e3,
        _ => 1.0,
    }
}

/// GB/s of a live line: `Jobs: 1 (f=1): [R(1)][5.0%][r=6575MiB/s][r=52.6k IOPS][eta 00m:19s]`.
pub(crate) fn live_rate(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("Jobs: ")?;
    let rate = |part: &str| {
        let value = part.strip_prefix("r=").or(part.strip_prefix("w="))?;
        let end = value.find(|c: char| c.is_ascii_alphabetic())?;
        Some(number(value.get(..end)?)? * rate_unit(value.get(end..)?)?)
    };
    let parts = rest.split(['[', ']', ',']).take(16);
    parts.filter_map(rate).reduce(|read, write| read + write)
}

/// `| 50.00th=[   73], 99.00th=[  108]` of percentiles.
pub(crate) fn take_percentiles(result: &mut FileIoResult, text: &str, unit: f64) {
    let mut kept = result.percentiles.unwrap_or_default();
    for part in text.split("],") {
        let Some((name, value)) = part.trim_matches(['|', ' ', ']', ',']).split_once("th=[") else {
            continue;
        };
        let Some(value) = number(value.trim()).map(|value| value * unit) else { continue };
        match name.trim() {
            "50.00" => kept.0 = value,
            "99.00" => kept.1 = value,
            "99.90" => kept.2 = value,
            _ => {}
        }
    }
    result.percentiles = Some(kept);
}

/// dd's last line: `10737418240 bytes (11 GB, 10 GiB) copied, 5.5149 s, 1.9 GB/s`.
pub(crate) fn dd(lines: &[PasteLine], at: usize) -> Option<(Vec<FileIoResult>, usize)> {
    let text = lines.get(at)?.text.trim();
    let (bytes, rest) = text.split_once(" copied, ")?;
    let bytes = number(bytes.split_once(" bytes")?.0)?;
    let mut parts = rest.split(", ");
    let seconds = number(parts.next()?.split(' ').next()?)?;
    let gbs = bytes / seconds.max(1e-9) / 1e9;
    let result =
        FileIoResult { tool: "dd", operation: "copy".to_owned(), gbs, ..FileIoResult::default() };
    let is_last = lines.iter().skip(at + 1).take(4).all(|line| !line.text.contains(" copied, "));
    (gbs > 0.0 && is_last && parts.next().is_some()).then_some((vec![result], at + 1))
}
