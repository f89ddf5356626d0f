//! Ranks, bytes and messages as the files of tools have them.

use crate::rank_traffic::{MAX_RANKS, RankMessage, RankTraffic, TrafficError};

/// A number of a rank.
pub(crate) fn parse_rank(text: &str, line: usize) -> Result<usize, TrafficError> {
    let known = text.parse().ok().filter(|rank| *rank < MAX_RANKS);
    known.ok_or_else(|| {
        line_error(line, &format!("'{text}' is no rank from 0 to {}", MAX_RANKS - 1))
    })
}

/// The messages of as many ranks as they name.
pub(crate) fn sum_messages(messages: Vec<RankMessage>) -> Result<RankTraffic, TrafficError> {
    let last = messages.iter().map(|message| message.from.max(message.to)).max();
    RankTraffic::new(last.map_or(0, |last| last + 1), messages)
}

/// Why a line cannot be read.
pub(crate) fn line_error(line: usize, why: &str) -> TrafficError {
    TrafficError(format!("line {line}: {why}"))
}

/// A number of bytes; those of tools are means at times.
pub(crate) fn parse_bytes(text: &str, line: usize) -> Result<u64, TrafficError> {
    let value: f64 =
        text.parse().map_err(|_| line_error(line, &format!("'{text}' is no number")))?;
    if !(0.0..=1e18).contains(&value) {
        return Err(line_error(
            line,
            &format!("{value} is out of range; expected bytes from 0 to 1e18"),
        ));
    }
    Ok(value.round() as u64)
}
