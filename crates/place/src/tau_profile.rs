//! Reads what TAU counts with `TAU_COMM_MATRIX=1`: bytes that a node sent to each other one, in its profiles or in the
//! text of `pprof`.
//!
//! Source of the names and columns: TAU, `TauMpi.cpp`, `Profiler.cpp` (`writeUserEvents`), `pprof.cpp`, and ParaProf's
//! `ThreeDeeCommMatrix.java`, which multiplies events and mean as this does.

use crate::matrix_file::{bad, number, rank, traffic};
use crate::rank_traffic::{RankMessage, RankTraffic, TrafficError};

/// Begins the name of the event of a receiver; its number follows.
const EVENT: &str = "Message size sent to node ";
/// Begins the table of a node in the text of `pprof`.
const TABLE: &str = "USER EVENTS Profile :NODE ";
/// How files are to be joined, so that the number in the name of each is kept.
const JOIN: &str = "join the profiles with their names, `tail -n +1 profile.*.0.0 > tau.txt`, or give the text of \
                    `pprof`";

/// The messages of a text, or `None` if it is no output of TAU with events of users.
pub(crate) fn read_tau(text: &str) -> Option<Result<RankTraffic, TrafficError>> {
    let has =
        |line: &str| line.starts_with(TABLE) || line.starts_with("# eventname numevents max min");
    text.lines().map(str::trim).any(has).then(|| messages(text).and_then(traffic))
}

fn messages(text: &str) -> Result<Vec<RankMessage>, TrafficError> {
    let mut messages = Vec::new();
    let mut node = None;
    // Events that a profile announces and that have not come; none in a table of pprof.
    let mut missing: Option<usize> = None;
    let cut = |at: usize, missing: Option<usize>| match missing.filter(|count| *count > 0) {
        None => Ok(()),
        Some(count) => {
            Err(bad(at, &format!("the profile ends {count} events early: copy the whole file")))
        }
    };
    let mut last = 0;
    for (nth, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        last = nth;
        if let Some(name) = line.strip_prefix("==> ").and_then(|rest| rest.strip_suffix(" <==")) {
            cut(nth, missing)?;
            (node, missing) = (Some(node_of_file(name, nth)?), None);
        } else if let Some(rest) = line.strip_prefix(TABLE) {
            cut(nth, missing)?;
            let digits = rest.split(',').next().unwrap_or_default();
            (node, missing) = (Some(rank(digits, nth)?), None);
        } else if let Some(count) = line.strip_suffix(" userevents") {
            let count = count.parse();
            missing = Some(count.map_err(|_| bad(nth, "expected the number of userevents"))?);
        } else if line.starts_with('"') && missing.is_some_and(|count| count > 0) {
            missing = missing.map(|count| count - 1);
            let (name, numbers) =
                line.trim_start_matches('"').rsplit_once('"').ok_or_else(|| cut_line(nth))?;
            let numbers: Vec<&str> = numbers.split_whitespace().collect();
            messages.extend(message(name, &numbers, node, nth)?);
        } else if let Some(at) = line.find(EVENT).filter(|_| missing.is_none()) {
            let (numbers, name) = line.split_at(at);
            let numbers: Vec<&str> = numbers.split_whitespace().collect();
            // A path of calls may end in such a name.
            if numbers.iter().all(|number| number.parse::<f64>().is_ok()) {
                messages.extend(message(name, &numbers, node, nth)?);
            }
        }
    }
    cut(last, missing)?;
    if messages.is_empty() {
        let why = "no event `Message size sent to node N`: run the program with TAU_COMM_MATRIX=1";
        return Err(TrafficError(why.to_owned()));
    }
    Ok(messages)
}

fn cut_line(line: usize) -> TrafficError {
    bad(line, "the line is cut; expected `\"EVENT\" count max min mean sumsqr`")
}

/// `profile.3.0.0`, with folders before it: node 3.
fn node_of_file(name: &str, line: usize) -> Result<usize, TrafficError> {
    let file = name.rsplit('/').next().unwrap_or(name);
    let node = file.strip_prefix("profile.").and_then(|rest| rest.split('.').next());
    rank(
        node.ok_or_else(|| bad(line, &format!("'{name}' is no profile.NODE.CONTEXT.THREAD")))?,
        line,
    )
}

/// The message of an event: count times mean. An event of a path of calls, `... : main() => MPI_Send()`, counts what
/// the event without one does, once more.
fn message(
    name: &str,
    numbers: &[&str],
    node: Option<usize>,
    line: usize,
) -> Result<Option<RankMessage>, TrafficError> {
    let Some(receiver) = name.strip_prefix(EVENT) else { return Ok(None) };
    if receiver.contains(" : ") || receiver.contains("=>") {
        return Ok(None);
    }
    let [count, _, _, mean, _] = numbers else { return Err(cut_line(line)) };
    let from =
        node.ok_or_else(|| bad(line, &format!("no line says which node sent this: {JOIN}")))?;
    let to = rank(receiver.trim(), line)?;
    let bytes = number(count, line)? as f64 * real(mean, line)?;
    Ok(Some(RankMessage { from, to, bytes: number(&bytes.to_string(), line)? }))
}

fn real(text: &str, line: usize) -> Result<f64, TrafficError> {
    let value: Option<f64> = text.parse().ok().filter(|value: &f64| *value >= 0.0);
    value.ok_or_else(|| bad(line, &format!("'{text}' is no size of a message")))
}

#[cfg(test)]
mod tests {
    use crate::matrix_file::tests::list;
    use crate::read_matrix;

    const PROFILES: &str = "==> tau/profile.0.0.0 <==\n\
        2 templated_functions_MULTI_TIME\n# Name Calls Subrs Excl Incl ProfileCalls #\n\
        \"MPI_Send()\" 10 0 100 100 0 GROUP=\"MPI\"\n\"main\" 1 10 5 105 0 GROUP=\"TAU_USER\"\n0 aggregates\n\
        3 userevents\n# eventname numevents max min mean sumsqr\n\
        \"Message size sent to node 1\" 10 8 8 8 640\n\
        \"Message size sent to node 1 : main => MPI_Send()\" 10 8 8 8 640\n\
        \"Message size for broadcast\" 2 4 4 4 32\n\n\
        ==> tau/profile.1.0.0 <==\n1 templated_functions_MULTI_TIME\n# Name Calls Subrs Excl Incl ProfileCalls #\n\
        \"main\" 1 10 5 105 0 GROUP=\"TAU_USER\"\n0 aggregates\n1 userevents\n\
        # eventname numevents max min mean sumsqr\n\"Message size sent to node 0\" 3 2048 1024 1.5E+03 7340032\n";

    const PPROF: &str = "USER EVENTS Profile :NODE 0, CONTEXT 0, THREAD 0\n\
        -----------------------------------------------------------------------\n\
        NumSamples   MaxValue   MinValue  MeanValue  Std. Dev.  Event Name\n\
        -----------------------------------------------------------------------\n\
        \x20       10          8          8          8          0  Message size sent to node 1\n\
        \x20       10          8          8          8          0  Message size sent to node 1 : main => MPI_Send()\n\
        -----------------------------------------------------------------------\n\n\
        USER EVENTS Profile :NODE 1, CONTEXT 0, THREAD 0\n\
        NumSamples   MaxValue   MinValue  MeanValue  Std. Dev.  Event Name\n\
        \x20        3       2048       1024    1.5E+03      418.1  Message size sent to node 0\n";

    /// Rank 0 sends 10 messages of 8 bytes, rank 1 three of 1500 in the mean.
    #[test]
    fn profiles_and_their_text_have_the_same_messages() {
        for text in [PROFILES, PPROF] {
            assert_eq!(list(text), [(0, 1, 80), (1, 0, 4500)], "{text}");
        }
    }

    #[test]
    fn what_lacks_is_named() {
        let cut = &PROFILES[..PROFILES.find("\"Message size for broadcast").unwrap()];
        let alone = &PROFILES[PROFILES.find("0 aggregates").unwrap()..];
        let plain = PROFILES.replace("sent to node", "received from node");
        for (text, reason) in [
            (cut, "line 10: the profile ends 1 events early"),
            (alone, "tail -n +1 profile.*.0.0"),
            (plain.as_str(), "TAU_COMM_MATRIX=1"),
            (
                &PROFILES.replace("node 1\" 10 8 8 8 640", "node 1\" 10 8"),
                "line 9: the line is cut",
            ),
            (&PROFILES.replace("profile.1.0.0", "other"), "'tau/other' is no profile"),
            (
                &PPROF.replace(
                    "         8          0  Message size sent to node 1\n",
                    "  Message size sent to node 1\n",
                ),
                "line 5: the line is cut",
            ),
        ] {
            let error = read_matrix(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }

    /// Files that end anywhere give an error or messages that the whole file has, and never panic.
    #[test]
    fn files_cut_anywhere_are_read_or_refused() {
        for text in [PROFILES, PPROF] {
            for end in 0..text.len() {
                let _ = read_matrix(&text[..end]);
            }
        }
        let half = &PROFILES[..PROFILES.len() - 30];
        assert!(read_matrix(half).is_err());
    }
}
