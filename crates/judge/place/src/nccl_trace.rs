//! Reads traces of the example profiler of NCCL, `ext-profiler/example`: an event a line, of which those of the
//! category P2P have rank, peer, count and data type.
//!
//! Source: NCCL, `ext-profiler/example/print_event.cc`. The lines are no JSON: streams and kinds of data stand bare.

use std::collections::BTreeSet;

use crate::matrix_fields::{line_error, parse_bytes, parse_rank, sum_messages};
use crate::rank_traffic::{RankMessage, RankTraffic, TrafficError};

/// Marks the events of messages. The same calls are in `P2P_API` as well, without a peer.
const CATEGORY: &str = "\"cat\": \"P2P\"";

/// The messages of a text, or `None` if it is no trace.
pub(crate) fn read_trace(text: &str) -> Option<Result<RankTraffic, TrafficError>> {
    let is_event =
        |line: &str| line.trim_start().starts_with("{\"name\": \"") && line.contains("\"cat\": \"");
    text.lines().any(is_event).then(|| messages(text).and_then(sum_messages))
}

fn messages(text: &str) -> Result<Vec<RankMessage>, TrafficError> {
    let mut messages = Vec::new();
    let mut comms = BTreeSet::new();
    for (nth, line) in (1..).zip(text.lines()) {
        let begins = line.contains(CATEGORY) && line.contains("\"ph\": \"b\"");
        if !begins || !line.contains("\"name\": \"Send\"") {
            continue;
        }
        let field = |name: &str| {
            value(line, name)
                .ok_or_else(|| line_error(nth, &format!("no \"{name}\"; is the line cut?")))
        };
        comms.insert(field("CommHash")?);
        if comms.len() > 1 {
            let why = "a second communicator, whose ranks have other numbers: give the events of one CommHash";
            return Err(line_error(nth, why));
        }
        let kind = field("Datatype")?;
        let size = type_bytes(kind)
            .ok_or_else(|| line_error(nth, &format!("data type {kind} is not known")))?;
        messages.push(RankMessage {
            from: parse_rank(field("Rank")?, nth)?,
            to: parse_rank(field("Peer")?, nth)?,
            bytes: parse_bytes(field("Count")?, nth)?.saturating_mul(size),
        });
    }
    if messages.is_empty() {
        let why = "no event \"Send\" of the category P2P: NCCL_PROFILE_EVENT_MASK must have events of messages (4), and \
                   the program must call ncclSend";
        return Err(TrafficError(why.to_owned()));
    }
    Ok(messages)
}

/// The value of `"name": value`, with or without quotes.
fn value<'t>(line: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = line.split_once(&format!("\"{name}\": "))?;
    let end = rest.find([',', '}'])?;
    Some(rest.get(..end)?.trim().trim_matches('"'))
}

/// Bytes of `ncclFloat32`, `ncclBfloat16` or `ncclFloat8e4m3`: the first number is that of bits.
fn type_bytes(name: &str) -> Option<u64> {
    let kind = name.strip_prefix("nccl")?;
    let digits = kind.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let bits: u64 = digits.get(..end)?.parse().ok()?;
    [8, 16, 32, 64].contains(&bits).then_some(bits / 8)
}

#[cfg(test)]
mod tests {
    use crate::matrix_file::tests::list;
    use crate::read_matrix;

    const TRACE: &str = "[\n\
        {\"name\": \"Send\", \"cat\": \"P2P_API\", \"ph\": \"b\", \"id\": 0, \"pid\": 39, \"tid\": 1, \"ts\": 0.0, \"args\": \
        {\"count\": 1000, \"datatype\": ncclFloat32, \"GraphCaptured\":0, \"Stream\": 0x4142e90}},\n\
        {\"name\": \"Send\", \"cat\": \"P2P\", \"ph\": \"b\", \"id\": 0, \"pid\": 39, \"tid\": 1, \"ts\": 18.0, \"args\": \
        {\"CommHash\": 127, \"Rank\": 0, \"Peer\": 1, \"Count\": 1000, \"Datatype\": \"ncclFloat32\", \"nChannels\": 16}},\n\
        {\"name\": \"Send\", \"cat\": \"P2P\", \"ph\": \"e\", \"id\": 0, \"pid\": 39, \"tid\": 1, \"ts\": 19.0},\n\
        {\"name\": \"Recv\", \"cat\": \"P2P\", \"ph\": \"b\", \"id\": 1, \"pid\": 39, \"tid\": 1, \"ts\": 18.0, \"args\": \
        {\"CommHash\": 127, \"Rank\": 0, \"Peer\": 2, \"Count\": 1000, \"Datatype\": \"ncclFloat32\", \"nChannels\": 16}},\n\
        {\"name\": \"Send\", \"cat\": \"P2P\", \"ph\": \"b\", \"id\": 0, \"pid\": 41, \"tid\": 1, \"ts\": 18.0, \"args\": \
        {\"CommHash\": 127, \"Rank\": 2, \"Peer\": 0, \"Count\": 10, \"Datatype\": \"ncclBfloat16\", \"nChannels\": 16}},\n\
        {}]\n";

    /// 1000 floats from 0 to 1, 10 of 2 bytes from 2 to 0.
    #[test]
    fn sends_of_a_trace_are_counted_once() {
        assert_eq!(list(TRACE), [(0, 1, 4000), (2, 0, 20)]);
        for (name, bytes) in [("ncclInt8", 1), ("ncclFloat8e4m3", 1), ("ncclUint64", 8)] {
            assert_eq!(super::type_bytes(name), Some(bytes), "{name}");
        }
        assert_eq!([super::type_bytes("ncclFloat"), super::type_bytes("Unknown")], [None, None]);
    }

    #[test]
    fn what_lacks_is_named() {
        for (text, reason) in [
            (TRACE.replace("\"P2P\"", "\"PROXY\""), "NCCL_PROFILE_EVENT_MASK"),
            (
                TRACE.replace("127, \"Rank\": 2", "128, \"Rank\": 2"),
                "line 6: a second communicator",
            ),
            (TRACE.replace("ncclBfloat16", "ncclOther"), "line 6: data type ncclOther"),
            (TRACE.replace("\"Peer\": 1,", ""), "line 3: no \"Peer\""),
        ] {
            let error = read_matrix(&text).unwrap_err().to_string();
            assert!(error.contains(reason), "{reason}: {error}");
        }
        for end in 0..TRACE.len() {
            let _ = read_matrix(&TRACE[..end]);
        }
    }
}
