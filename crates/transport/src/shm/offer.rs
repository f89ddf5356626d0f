//! What a process tells the others when it binds, as lines of text.

use std::collections::BTreeMap;

use pathline_hal::{CallError, CallResult, LocalMemory};
use pathline_schema::{CpuSet, Rank};

use super::peer_process::PeerProcess;
use pathline_host::files;

/// First line: what it is, and its version.
const HEAD: &str = "pathline shm 1";

/// What one process has for one direction of a part: part's number, and 0 for the direction from
/// the group's first to its second, 1 for the other.
pub(super) type DirectionOffer = (usize, usize);

/// What a process offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShmOffer {
    /// Host and namespace of process numbers.
    pub(super) host: String,
    pub(super) process: PeerProcess,
    /// CPUs that its threads could be pinned to.
    pub(super) cpus: CpuSet,
    /// Segments that it made.
    pub(super) segments: BTreeMap<DirectionOffer, String>,
    /// Memory that the other end copies from or to, and its number in xpmem.
    pub(super) spans: BTreeMap<DirectionOffer, (LocalMemory, i64)>,
}

impl ShmOffer {
    /// What this process can say of itself.
    pub(super) fn new(cpus: CpuSet) -> Self {
        let (segments, spans) = (BTreeMap::new(), BTreeMap::new());
        Self { host: host(), process: PeerProcess::me(), cpus, segments, spans }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { host, process, cpus, segments, spans } = self;
        let mut text = format!("{HEAD}\nhost {host}\nprocess {} {}\n", process.pid, process.began);
        text.push_str(&format!("cpus {cpus}\n"));
        for ((part, way), address) in segments {
            text.push_str(&format!("segment {part} {way} {address}\n"));
        }
        for ((part, way), (span, number)) in spans {
            let LocalMemory { address, bytes } = span;
            text.push_str(&format!("span {part} {way} {address} {bytes} {number}\n"));
        }
        text.into_bytes()
    }

    /// What the process of a rank offered.
    pub(super) fn decode(rank: Rank, bytes: &[u8]) -> CallResult<Self> {
        let text = String::from_utf8_lossy(bytes);
        parse(&text).ok_or_else(|| {
            let thing = format!("the offer of rank {}", rank.0);
            let reason = match text.lines().next() {
                Some(HEAD) => "it cannot be read".to_owned(),
                _ => format!("it does not begin with {HEAD:?}"),
            };
            CallError::unsupported("join", thing, reason)
                .or_try("start all ranks from the same program")
        })
    }
}

fn parse(text: &str) -> Option<ShmOffer> {
    let mut lines = text.lines();
    (lines.next()? == HEAD).then_some(())?;
    let host = lines.next()?.strip_prefix("host ")?.to_owned();
    let (pid, began) = lines.next()?.strip_prefix("process ")?.split_once(' ')?;
    let process = PeerProcess { pid: pid.parse().ok()?, began: began.parse().ok()? };
    let cpus = lines.next()?.strip_prefix("cpus ")?.parse().ok()?;
    let mut offer =
        ShmOffer { host, process, cpus, segments: BTreeMap::new(), spans: BTreeMap::new() };
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["segment", part, way, address] => {
                let way = (part.parse().ok()?, way.parse().ok()?);
                offer.segments.insert(way, address.to_owned());
            }
            ["span", part, way, address, bytes, number] => {
                let way = (part.parse().ok()?, way.parse().ok()?);
                let span =
                    LocalMemory { address: address.parse().ok()?, bytes: bytes.parse().ok()? };
                offer.spans.insert(way, (span, number.parse().ok()?));
            }
            _ => return None,
        }
    }
    Some(offer)
}

/// What tells this host and its namespace of process numbers from others.
fn host() -> String {
    let boot = files::text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{}/{}", boot.trim(), namespace.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_arrives() {
        let mut offer = ShmOffer::new(CpuSet::new([0, 1, 5]));
        offer.segments.insert((0, 1), "/proc/1/fd/2#3".into());
        offer.spans.insert((7, 0), (LocalMemory { address: u64::MAX, bytes: 4096 }, -1));
        let bytes = offer.encode();
        assert_eq!(ShmOffer::decode(Rank(3), &bytes), Ok(offer));
    }

    #[test]
    fn what_cannot_be_read_names_the_rank() {
        for bad in ["", "\u{fffd}", "pathline shm 2\n", "pathline shm 1\nhost x\n"] {
            let error = ShmOffer::decode(Rank(3), bad.as_bytes()).unwrap_err();
            assert!(error.thing.contains("rank 3") && !error.way_out.is_empty(), "{error}");
        }
        let mut more = ShmOffer::new(CpuSet::new([0])).encode();
        more.extend_from_slice(b"segment 0 x /proc\n");
        assert!(ShmOffer::decode(Rank(3), &more).is_err());
    }
}
