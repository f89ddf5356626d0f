//! Reads the log of IPM 2, `*.ipm.xml`, written with `IPM_LOG=full`: calls of MPI by size and other rank.
//!
//! Source: IPM, `report_xml.c` (elements and attributes, a line each) and `etc/ipm_key_mpi` (bytes and rank of the
//! calls; of a send they are the sent bytes and the destination).

use crate::matrix_file::{bad, number, rank};
use crate::rank_traffic::{MAX_RANKS, RankMessage, RankTraffic, TrafficError};

/// Calls that send to the rank of their line.
const SENDS: [&str; 10] = [
    "MPI_Send",
    "MPI_Ssend",
    "MPI_Rsend",
    "MPI_Bsend",
    "MPI_Isend",
    "MPI_Issend",
    "MPI_Irsend",
    "MPI_Ibsend",
    "MPI_Sendrecv",
    "MPI_Sendrecv_replace",
];
const BEGIN: &str = "<ipm_job_profile>";
const END: &str = "</ipm_job_profile>";

/// The messages of a text, or `None` if it is no log of IPM.
pub(crate) fn read_ipm(text: &str) -> Option<Result<RankTraffic, TrafficError>> {
    let is_log = text.lines().take(20).any(|line| line.trim() == BEGIN);
    is_log.then(|| messages(text).and_then(|(messages, ranks)| RankTraffic::new(ranks, messages)))
}

fn messages(text: &str) -> Result<(Vec<RankMessage>, usize), TrafficError> {
    let mut messages = Vec::new();
    let mut own = None;
    let (mut ranks, mut entries, mut ended) = (0, 0_usize, false);
    for (nth, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let attribute = |name: &str| {
            attribute(line, name)
                .ok_or_else(|| bad(nth, &format!("no attribute {name}; is the line cut?")))
        };
        if line.starts_with("<taskcopy ") {
            let why = "a clustered log has one rank for each group; write it without clustering";
            return Err(bad(nth, why));
        } else if line.starts_with("<task ") {
            own = Some(rank(attribute("mpi_rank")?, nth)?);
            let size: Option<usize> = attribute("mpi_size")?.parse().ok();
            let size = size.filter(|size| (1..=MAX_RANKS).contains(size));
            ranks = size
                .ok_or_else(|| bad(nth, &format!("mpi_size is no number from 1 to {MAX_RANKS}")))?;
        } else if line == "</task>" {
            own = None;
        } else if line.starts_with("<hent ") {
            entries += 1;
            if !SENDS.contains(&attribute("call")?) {
                continue;
            }
            let from = own.ok_or_else(|| bad(nth, "a call outside of a <task>"))?;
            let (size, count) =
                (number(attribute("bytes")?, nth)?, number(attribute("count")?, nth)?);
            let to = rank(attribute("orank")?, nth)?;
            messages.push(RankMessage { from, to, bytes: size.saturating_mul(count) });
        } else if line == END {
            ended = true;
        }
    }
    if !ended {
        return Err(TrafficError(format!(
            "the log has no {END}: it is cut, or the job did not end"
        )));
    }
    if entries == 0 {
        let why = "no <hent> lines, which have the other rank of a call: run the program with IPM_LOG=full";
        return Err(TrafficError(why.to_owned()));
    }
    Ok((messages, ranks))
}

/// The value of `name="..."` in a line.
fn attribute<'t>(line: &'t str, name: &str) -> Option<&'t str> {
    let mut rest = line;
    loop {
        let at = rest.find(name)?;
        let (before, after) = (rest.get(..at)?, rest.get(at + name.len()..)?);
        if before.ends_with(' ') && after.starts_with("=\"") {
            return after.get(2..)?.split_once('"').map(|(value, _)| value);
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use crate::matrix_file::tests::list;
    use crate::read_matrix;

    const LOG: &str = "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<ipm_job_profile>\n\
        <calltable nsections=\"1\" >\n<section module=\"MPI\" nentries=\"2\" >\n<entry name=\"MPI_Send\" />\n</section>\n\
        </calltable>\n\
        <task ipm_version=\"2.0.6\" cookie=\"nocookie\" mpi_rank=\"0\" mpi_size=\"4\" stamp_init=\"1.0\" >\n\
        <hash nlog=\"14\" nkey=\"3\" >\n\
        <hent key=\"00A1\" call=\"MPI_Isend\" bytes=\"1024\" orank=\"2\" region=\"0\" callsite=\"1\" count=\"10\" tid=\"0\" >\
        1.0e-03 1.0e-05 2.0e-04</hent>\n\
        <hent key=\"00A2\" call=\"MPI_Irecv\" bytes=\"1024\" orank=\"1\" region=\"0\" callsite=\"1\" count=\"3\" tid=\"0\" >\
        1.0e-03 1.0e-05 2.0e-04</hent>\n\
        <hent key=\"00A3\" call=\"MPI_Allreduce\" bytes=\"8\" orank=\"0\" region=\"0\" callsite=\"1\" count=\"1\" tid=\"0\" >\
        1.0e-03 1.0e-05 2.0e-04</hent>\n</hash>\n</task>\n\
        <task ipm_version=\"2.0.6\" cookie=\"nocookie\" mpi_rank=\"1\" mpi_size=\"4\" stamp_init=\"1.0\" >\n\
        <hent key=\"00A4\" call=\"MPI_Sendrecv\" bytes=\"100\" orank=\"0\" region=\"1\" callsite=\"1\" count=\"2\" tid=\"0\" >\
        1.0e-03 1.0e-05 2.0e-04</hent>\n</task>\n</ipm_job_profile>\n";

    /// Rank 0 sends 10 times 1024 bytes to rank 2, rank 1 twice 100 bytes to rank 0. Rank 3 sends nothing and exists.
    #[test]
    fn calls_that_send_are_added_up() {
        assert_eq!(list(LOG), [(0, 2, 10_240), (1, 0, 200)]);
        assert_eq!(read_matrix(LOG).unwrap().ranks(), 4);
    }

    #[test]
    fn what_lacks_is_named() {
        let calls: String = LOG
            .lines()
            .filter(|line| !line.starts_with("<hent"))
            .map(|l| format!("{l}\n"))
            .collect();
        for (text, reason) in [
            (&LOG[..LOG.len() - 30], "it is cut"),
            (calls.as_str(), "IPM_LOG=full"),
            (&LOG.replace("orank=\"2\"", "orank=\"-1\""), "line 10: '-1' is no rank"),
            (&LOG.replace("orank=\"2\"", "orank=\"9\""), "rank 9 of 4 does not exist"),
            (&LOG.replace(" count=\"10\"", ""), "line 10: no attribute count"),
            (&LOG.replace("mpi_size=\"4\"", "mpi_size=\"x\""), "line 8: mpi_size"),
            (
                &LOG.replace(
                    "<calltable nsections=\"1\" >",
                    "<taskcopy mpi_rank=\"1\" cluster_rank=\"0\"></taskcopy>",
                ),
                "line 3: a clustered log",
            ),
        ] {
            let error = read_matrix(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }

    #[test]
    fn a_log_cut_anywhere_is_refused() {
        let end = LOG.len() - "</ipm_job_profile>\n".len();
        for at in LOG.find("<hash").unwrap()..end {
            assert!(read_matrix(&LOG[..at]).is_err(), "{at}");
        }
    }
}
