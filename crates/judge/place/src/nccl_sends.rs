//! Reads point-to-point messages in logs of NCCL and RCCL, `NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=INIT,COLL`.
//!
//! Sources: NCCL, `enqueue.cc` (`ncclEnqueueCheck`), `collectives.cc` (`ncclSend`, whose peer stands behind `root`),
//! `init.cc` (`Init START`, `Init COMPLETE`), `nccl.h` (numbers of data types).

use std::collections::BTreeMap;

use crate::matrix_fields::{line_error, parse_bytes, parse_rank};
use crate::rank_traffic::{MAX_RANKS, RankMessage, RankTraffic, TrafficError};

/// Bytes of an element, by the number of the data type: int8, uint8, int32, uint32, int64, uint64, half, float, double,
/// bfloat16 and two kinds of 8-bit floats.
const TYPE_BYTES: [u64; 12] = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1];
/// In every line of a log.
const MARK: &str = " NCCL INFO ";

/// A communicator as one process knows it: the process and the address.
type LocalComm<'t> = (&'t str, &'t str);

/// A rank of a communicator, from the lines of its start.
struct CommRank<'t> {
    rank: usize,
    ranks: usize,
    /// The same for all of its ranks; empty in logs that do not have it.
    id: &'t str,
    /// Process and GPU: one rank of the job.
    owner: (&'t str, &'t str),
}

/// The messages of a text, or `None` if it is no log of NCCL with calls.
pub(crate) fn read_nccl(text: &str) -> Option<Result<RankTraffic, TrafficError>> {
    let is_call = |line: &str| line.contains(MARK) && line.contains(": opCount ");
    text.lines().any(is_call).then(|| {
        let starts = communicators(text)?;
        let (messages, ranks) = messages(text, &starts)?;
        RankTraffic::new(ranks, messages)
    })
}

/// The word behind a name: `rank 3` of `comm 0x1 rank 3 nranks 8`.
fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut words = text.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()
}

/// Process and content of a line: `host:812:940 [3]` and what follows the mark. Threads of a process share it.
fn parts(line: &str) -> Option<(&str, &str)> {
    let (before, content) = line.split_once(MARK)?;
    let source = before.split_whitespace().find(|word| word.matches(':').count() >= 2)?;
    let process = source.rsplit_once(':').map_or(source, |(process, _)| process);
    Some((process, content))
}

fn communicators(text: &str) -> Result<BTreeMap<LocalComm<'_>, CommRank<'_>>, TrafficError> {
    let mut found = BTreeMap::new();
    for (nth, line) in (1..).zip(text.lines()) {
        let Some((process, content)) = parts(line) else { continue };
        if !content.contains("- Init START") && !content.contains("- Init COMPLETE") {
            continue;
        }
        let (Some(comm), Some(own), Some(ranks)) =
            (value(content, "comm"), value(content, "rank"), value(content, "nranks"))
        else {
            continue;
        };
        let ranks: Option<usize> = ranks.parse().ok().filter(|n| (1..=MAX_RANKS).contains(n));
        let ranks = ranks.ok_or_else(|| {
            line_error(nth, &format!("nranks is no number from 1 to {MAX_RANKS}"))
        })?;
        let id = value(content, "commId").unwrap_or_default();
        let owner = (process, value(content, "cudaDev").unwrap_or_default());
        found.insert((process, comm), CommRank { rank: parse_rank(own, nth)?, ranks, id, owner });
    }
    Ok(found)
}

fn messages(
    text: &str,
    comms: &BTreeMap<LocalComm<'_>, CommRank<'_>>,
) -> Result<(Vec<RankMessage>, usize), TrafficError> {
    // Ranks of the job are those of its largest communicator; of several, of the first.
    let world = comms.values().max_by_key(|comm| comm.ranks);
    let in_world: BTreeMap<_, usize> = comms
        .values()
        .filter(|comm| world.is_some_and(|world| (comm.ranks, comm.id) == (world.ranks, world.id)))
        .map(|comm| (comm.owner, comm.rank))
        .collect();
    let mut members: BTreeMap<(&str, usize), usize> = BTreeMap::new();
    for comm in comms.values() {
        if let Some(rank) = in_world.get(&comm.owner) {
            members.insert((comm.id, comm.rank), *rank);
        }
    }
    let (mut sent, mut calls) = (Vec::new(), 0_usize);
    for (nth, line) in (1..).zip(text.lines()) {
        let Some((process, content)) = parts(line) else { continue };
        calls += usize::from(content.contains(": opCount "));
        let Some(call) = content.strip_prefix("Send: opCount ") else { continue };
        let field = |name: &str| {
            value(call, name)
                .ok_or_else(|| line_error(nth, &format!("no '{name}'; is the line cut?")))
        };
        let (count, peer, comm) = (field("count")?, field("root")?, field("comm")?);
        let kind = field("datatype")?;
        let size = kind.parse().ok().and_then(|kind: usize| TYPE_BYTES.get(kind));
        let size =
            size.ok_or_else(|| line_error(nth, &format!("data type {kind} is not known")))?;
        let own = comms.get(&(process, comm)).ok_or_else(|| {
            let why = "no line says which rank this communicator is: log with NCCL_DEBUG_SUBSYS=INIT,COLL, from the \
                       start of the job";
            line_error(nth, why)
        })?;
        let peer = parse_rank(peer, nth)?;
        let of = |of_comm: usize| members.get(&(own.id, of_comm)).copied();
        let (Some(from), Some(to)) = (of(own.rank), of(peer)) else {
            let why = "the log lacks the start of a rank of this communicator: join the logs of all ranks";
            return Err(line_error(nth, why));
        };
        sent.push(RankMessage { from, to, bytes: parse_bytes(count, nth)?.saturating_mul(*size) });
    }
    if sent.is_empty() {
        return Err(TrafficError(format!(
            "{calls} calls of collectives and none of ncclSend: NCCL orders the ranks of collectives itself; `pathline \
             audit` looks at those"
        )));
    }
    Ok((sent, world.map_or(0, |world| world.ranks)))
}

#[cfg(test)]
mod tests {
    use crate::matrix_file::tests::list;
    use crate::read_matrix;

    /// Two processes of one host with two GPUs each; a communicator of all, and one of ranks 1 and 3.
    fn log() -> String {
        let mut text = String::new();
        for (rank, pid) in [(0, 100), (1, 101), (2, 102), (3, 103)] {
            text += &format!(
                "node1:{pid}:200 [{rank}] NCCL INFO ncclCommInitRank comm 0x5{rank} rank {rank} nranks 4 cudaDev {rank} \
                 nvmlDev {rank} busId 1b000 commId 0xaa - Init COMPLETE\n"
            );
        }
        for (rank, pid, own) in [(0, 101, 1), (1, 103, 3)] {
            text += &format!(
                "node1:{pid}:200 [{own}] NCCL INFO ncclCommSplit comm 0x7{own} rank {rank} nranks 2 cudaDev {own} \
                 nvmlDev {own} busId 1b000 parent 0x5{own} color 1 key 0 commId 0xbb - Init COMPLETE\n"
            );
        }
        let call = |pid: u32,
                    dev: u32,
                    name: &str,
                    count: u32,
                    kind: u32,
                    peer: u32,
                    comm: &str,
                    ranks: u32| {
            format!(
                "node1:{pid}:200 [{dev}] NCCL INFO {name}: opCount 1a sendbuff (nil) recvbuff 0x7f count {count} \
                 datatype {kind} op 0 root {peer} comm {comm} [nranks={ranks}] stream 0x99\n"
            )
        };
        text += &call(100, 0, "Send", 1000, 7, 2, "0x50", 4);
        text += &call(102, 2, "Recv", 1000, 7, 0, "0x52", 4);
        text += &call(102, 2, "AllReduce", 1000, 7, 0, "0x52", 4);
        text += &call(101, 1, "Send", 10, 9, 1, "0x71", 2);
        text
    }

    /// 1000 floats from 0 to 2; 10 bfloat16 from rank 0 to 1 of the small communicator, which are 1 and 3 of the job.
    #[test]
    fn sends_are_counted_by_ranks_of_the_job() {
        assert_eq!(list(&log()), [(0, 2, 4000), (1, 3, 20)]);
        assert_eq!(read_matrix(&log()).unwrap().ranks(), 4);
    }

    #[test]
    fn what_lacks_is_named() {
        let without = |part: &str| -> String {
            log()
                .lines()
                .filter(|line| !line.contains(part))
                .map(|line| format!("{line}\n"))
                .collect()
        };
        for (text, reason) in [
            (without("Init COMPLETE"), "line 1: no line says which rank"),
            (without("Send:"), "2 calls of collectives and none of ncclSend"),
            (without("[2] NCCL INFO ncclCommInit"), "join the logs of all ranks"),
            (log().replace("datatype 7", "datatype 44"), "line 7: data type 44"),
            (log().replace(" root 2 comm 0x50", ""), "line 7: no 'root'"),
            (log().replace("nranks 4", "nranks 0"), "line 1: nranks"),
        ] {
            let error = read_matrix(&text).unwrap_err().to_string();
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }

    #[test]
    fn a_log_cut_anywhere_is_read_or_refused() {
        let text = log();
        for end in 0..text.len() {
            let _ = read_matrix(&text[..end]);
        }
    }
}
