//! The data that a process sends to the others when it binds, as lines of text.

use std::collections::BTreeMap;

use pathline_hal::{CallError, CallResult, LocalMemory};
use pathline_schema::{CpuSet, Rank};

use super::peer_process::PeerProcess;
use pathline_host::files;

/// The first line: format and version.
const HEAD: &str = "pathline shm 1";

/// One direction of a part: the part's number, and 0 for the direction from the group's first
/// member to its second, 1 for the other.
pub(super) type DirectionOffer = (usize, usize);

/// The data that a process sends to the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShmOffer {
    /// Host and PID namespace.
    pub(super) host: String,
    pub(super) process: PeerProcess,
    /// CPUs that its threads can be pinned to.
    pub(super) cpus: CpuSet,
    /// Segments that it created.
    pub(super) segments: BTreeMap<DirectionOffer, String>,
    /// Memory that the peer copies from or to, and its xpmem number.
    pub(super) spans: BTreeMap<DirectionOffer, (LocalMemory, i64)>,
}

impl ShmOffer {
    /// An offer with host, process and CPUs only.
    pub(super) fn new(cpus: CpuSet) -> Self {
        let (segments, spans) = (BTreeMap::new(), BTreeMap::new());
        Self { host: host(), process: PeerProcess::me(), cpus, segments, spans }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { host, process, cpus, segments, spans } = self;
        let mut text = format!("{HEAD}\nhost {host}\nprocess {} {}\n", process.pid, process.began);
        text.push_str(&format!("cpus {cpus}\n"));
        for ((part, direction), address) in segments {
            text.push_str(&format!("segment {part} {direction} {address}\n"));
        }
        for ((part, direction), (span, number)) in spans {
            let LocalMemory { address, bytes } = span;
            text.push_str(&format!("span {part} {direction} {address} {bytes} {number}\n"));
        }
        text.into_bytes()
    }

    /// The offer of a rank's process.
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
        let fields: Vec<&str> = line.split(' ').collect();
        match fields[..] {
            ["segment", part, direction, address] => {
                let key = (part.parse().ok()?, direction.parse().ok()?);
                offer.segments.insert(key, address.to_owned());
            }
            ["span", part, direction, address, bytes, number] => {
                let key = (part.parse().ok()?, direction.parse().ok()?);
                let span =
                    LocalMemory { address: address.parse().ok()?, bytes: bytes.parse().ok()? };
                offer.spans.insert(key, (span, number.parse().ok()?));
            }
            _ => return None,
        }
    }
    Some(offer)
}

/// Identifies this host and its PID namespace.
fn host() -> String {
    let boot = files::text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{}/{}", boot.trim(), namespace.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_survive_encoding() {
        let mut offer = ShmOffer::new(CpuSet::new([0, 1, 5]));
        offer.segments.insert((0, 1), "/proc/1/fd/2#3".into());
        offer.spans.insert((7, 0), (LocalMemory { address: u64::MAX, bytes: 4096 }, -1));
        let bytes = offer.encode();
        assert_eq!(ShmOffer::decode(Rank(3), &bytes), Ok(offer));
    }

    #[test]
    fn an_unreadable_offer_names_the_rank() {
        for bad in ["", "\u{fffd}", "pathline shm 2\n", "pathline shm 1\nhost x\n"] {
            let error = ShmOffer::decode(Rank(3), bad.as_bytes()).unwrap_err();
            assert!(error.thing.contains("rank 3") && !error.way_out.is_empty(), "{error}");
        }
        let mut more = ShmOffer::new(CpuSet::new([0])).encode();
        more.extend_from_slice(b"segment 0 x /proc\n");
        assert!(ShmOffer::decode(Rank(3), &more).is_err());
    }
}
