//! Times, shares and sizes on the command line: `30s`, `500ms`, `5min`, `3%`, `1GiB`.

use std::time::Duration;

use pathline_schema::{Bytes, CpuSet, ParseError};

/// More than any user waits for; beyond, times in nanoseconds leave what JSON can hold.
const MOST: f64 = 1e9;

/// A time in seconds; a number alone has the unit that is given, in seconds.
fn time(text: &str, usual: f64) -> Option<f64> {
    let text = text.trim();
    let units = [("ms", 1e-3), ("min", 60.0), ("us", 1e-6), ("h", 3600.0), ("s", 1.0)];
    let with_unit =
        units.into_iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)));
    let (number, unit) = with_unit.unwrap_or((text, usual));
    Some(number.trim().parse::<f64>().ok()? * unit)
}

fn positive(number: Option<f64>, most: &str) -> Result<f64, String> {
    number
        .filter(|number| *number > 0.0 && *number <= MOST)
        .ok_or_else(|| format!("a time above 0 and up to {most}"))
}

/// Seconds, of `30s`, `5min` or a number.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    positive(time(text, 1.0), "1000000000s, such as 30s or 5min")
}

/// Milliseconds, of `250ms`, `1s` or a number.
pub(crate) fn millis(text: &str) -> Result<f64, String> {
    positive(time(text, 1e-3).map(|seconds| seconds * 1e3), "1000000s, such as 250ms or 1s")
}

/// `5s`, `500ms`, or seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match time(text, 1.0) {
        Some(seconds) if (1e-3..=86_400.0).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err("a time from 1ms to 86400s, such as 5s or 500ms".to_owned()),
    }
}

/// The number from which what is drawn follows.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| "a whole number from 0 to 2^64 - 1, such as 7".to_owned())
}

fn points(text: &str) -> Option<f64> {
    text.trim_end_matches('%').trim().parse().ok()
}

/// `3%` or `3`, as a share.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    match points(text) {
        Some(number) if (0.1..=50.0).contains(&number) => Ok(number / 100.0),
        _ => Err("a percentage from 0.1% to 50%".to_owned()),
    }
}

/// `0.5%` or `0.5`, in percent.
pub(crate) fn percent_points(text: &str) -> Result<f64, String> {
    match points(text) {
        Some(number) if (0.01..=100.0).contains(&number) => Ok(number),
        _ => Err("a percentage from 0.01% to 100%".to_owned()),
    }
}

/// Times depart by up to three deviations: with more than this, some would be next to nothing. In percent.
pub(crate) fn noise(text: &str) -> Result<f64, String> {
    match points(text) {
        Some(number) if (0.0..=20.0).contains(&number) => Ok(number),
        _ => Err("a percentage from 0% to 20%".to_owned()),
    }
}

/// A whole number from `LEAST` to `MOST`.
pub(crate) fn count<const LEAST: u32, const MOST: u32>(text: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|number| (LEAST..=MOST).contains(number));
    number.ok_or_else(|| format!("a whole number from {LEAST} to {MOST}"))
}

/// Numbers of GPUs, each named once.
pub(crate) fn gpu_list(text: &str) -> Result<CpuSet, String> {
    let all: CpuSet = text.parse().map_err(|error: ParseError| error.to_string())?;
    let parts = text.split(',').filter_map(|part| part.parse::<CpuSet>().ok());
    let named: usize = parts.map(|part| part.as_slice().len()).sum();
    match all.as_slice().len() {
        0 => Err("numbers of GPUs, such as 0,1 or 0-3".to_owned()),
        count if count < named => Err("a GPU is named twice".to_owned()),
        _ => Ok(all),
    }
}

/// A size of at least a byte: no bytes take no time, and have no rate.
pub(crate) fn size(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error: ParseError| error.to_string())?;
    if bytes.0 > 0 { Ok(bytes) } else { Err("a size of 1B or more".to_owned()) }
}

/// Host memory of at least 1 MiB: fewer bytes hold no buffers, and are a number without its unit.
pub(crate) fn memory(text: &str) -> Result<Bytes, String> {
    let bytes = size(text)?;
    match bytes >= Bytes::mib(1) {
        true => Ok(bytes),
        false => Err(format!("1MiB or more; {text} is {bytes}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_and_numbers_alone_keep_their_unit() {
        // 5 min are 300 s; 1 s is 1000 ms; a limit of 30 is 30 s, a budget of 250 is 250 ms.
        assert_eq!(
            (seconds("30"), seconds("30s"), seconds("5min")),
            (Ok(30.0), Ok(30.0), Ok(300.0))
        );
        assert_eq!(
            (millis("250"), millis("250ms"), millis("1s")),
            (Ok(250.0), Ok(250.0), Ok(1000.0))
        );
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(
            (percent_points("0.5%"), percent("3%"), noise("0")),
            (Ok(0.5), Ok(0.03), Ok(0.0))
        );
        for text in ["", "s", "-1s", "0", "nan", "inf", "1e10", "3 parsecs", "1d"] {
            assert!(seconds(text).is_err() && millis(text).is_err(), "{text}");
        }
        assert!(memory("4096").is_err() && memory("4GiB").is_ok_and(|of| of == Bytes::gib(4)));
        assert!(gpu_list("0-2,5").is_ok_and(|list| list.as_slice() == [0, 1, 2, 5]));
        for text in ["", "3,3", "0-3,2", "x"] {
            assert!(gpu_list(text).is_err(), "{text}");
        }
        assert!(noise("21%").is_err() && percent("0").is_err() && percent_points("-1%").is_err());
    }
}
