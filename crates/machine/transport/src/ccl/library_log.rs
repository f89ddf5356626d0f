//! The choices that the library logs for an operation: algorithm, protocol, channels, transport.
//!
//! The library gives them only in its log, and writing the log takes time. The log is therefore on
//! for one untimed repetition only. The library reads its log variables on request; an overlay
//! answers, so the environment does not change.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

use super::api::CclApi;
use crate::env_overlay::EnvOverlay;

/// Variables that control the log, with their values while it is on.
const LEVEL: (&str, &str) = ("NCCL_DEBUG", "INFO");
const SUBSYSTEMS: (&str, &str) = ("NCCL_DEBUG_SUBSYS", "TUNING,P2P,SHM,NET");
const FILE: &str = "NCCL_DEBUG_FILE";

/// Switches the library's log on and off.
#[derive(Debug)]
pub(super) struct LogCapture {
    reset: unsafe extern "C" fn(),
    /// In memory: no other process can have taken its name.
    file: File,
    overlay: EnvOverlay,
}

impl LogCapture {
    /// `None` if the library cannot read its variables again on request, does not see the overlay,
    /// or logs to a file of the user's, which would be truncated.
    pub(super) fn new(calls: &CclApi) -> Option<Self> {
        let reset = calls.reset_log?;
        if std::env::var_os(FILE).is_some() {
            return None;
        }
        let file = File::from(memfd_create("pathline-ccl-log", MemfdFlags::CLOEXEC).ok()?);
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        let overlay = EnvOverlay::new(&[LEVEL, SUBSYSTEMS, (FILE, &name)])?;
        Some(Self { reset, file, overlay })
    }

    /// Turns the log on.
    pub(super) fn begin(&self) {
        // The library also truncates the file when it opens it; without output it stays empty.
        let _ = self.file.set_len(0);
        self.overlay.switch_on();
        // SAFETY: takes nothing; the library reads its variables again before its next line.
        unsafe { (self.reset)() };
    }

    /// Turns the log off and returns the logged choices.
    pub(super) fn end(&self) -> LibraryLog {
        self.overlay.switch_off();
        // SAFETY: as above.
        unsafe { (self.reset)() };
        let length = self.file.metadata().map_or(0, |about| about.len());
        let mut text = vec![0; usize::try_from(length).unwrap_or(0)];
        match self.file.read_exact_at(&mut text, 0) {
            Ok(()) => parse(&String::from_utf8_lossy(&text)),
            Err(_) => LibraryLog::default(),
        }
    }
}

/// The choices found in a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LibraryLog {
    /// Algorithm, protocol and channels of each operation, as text.
    pub(super) how: BTreeSet<String>,
    /// Transports of the connections made while the log was on.
    pub(super) via: BTreeSet<String>,
}

/// Names of the `NCCL_ALGO_*` and `NCCL_PROTO_*` numbers, which versions before 2.24 log in place
/// of names.
const ALGORITHMS: [&str; 7] =
    ["TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"];
const PROTOCOLS: [&str; 3] = ["LL", "LL128", "SIMPLE"];

fn choice_name(text: &str, known: &[&str]) -> String {
    let by_number = text.parse::<usize>().ok().and_then(|n| known.get(n));
    by_number.map_or(text, |name| name).to_ascii_lowercase()
}

/// The number of channels in `channel{Lo..Hi}={0..15}`: 16.
fn channels(text: &str) -> Option<u32> {
    let (low, high) = text.split_once("={")?.1.strip_suffix('}')?.split_once("..")?;
    let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
    Some(high.checked_sub(low)? + 1)
}

/// Reads the lines `... Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}` and
/// `Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM` of NCCL 2.19 to 2.30 and of RCCL.
fn parse(text: &str) -> LibraryLog {
    let mut log = LibraryLog::default();
    for line in text.lines() {
        if let Some((_, how)) = line.split_once(" Bytes -> ") {
            let fields: Vec<&str> = how.split_whitespace().collect();
            let after = |key: &str| {
                let at = fields.iter().position(|w| *w == key)?;
                fields.get(at + 1).copied()
            };
            let text = match (after("Algo"), after("proto")) {
                (Some(algorithm), Some(protocol)) => {
                    let mut text = format!(
                        "{} {}",
                        choice_name(algorithm, &ALGORITHMS),
                        choice_name(protocol, &PROTOCOLS)
                    );
                    if let Some(n) = fields.iter().find_map(|w| channels(w)) {
                        text.push_str(&format!(" on {n} channels"));
                    }
                    text
                }
                // A symmetric kernel or copy engines: the library's own text.
                _ => how.trim().to_owned(),
            };
            log.how.insert(text);
        } else if let Some((_, via)) = line.split_once(" via ") {
            let via = via.split_whitespace().next().unwrap_or_default();
            if line.contains("Channel ") && !via.is_empty() {
                log.via.insert(via.to_owned());
            }
        }
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_styles_are_read() {
        let log = parse(
            "host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n\
             host:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n\
             host:1:2 [0] NCCL INFO Channel 02 : 0[0] -> 2[2] via SHM/direct/direct\n\
             host:1:2 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}\n\
             host:1:2 [0] NCCL INFO 8 Bytes -> Algo 0 proto 0 time 12.5\n\
             host:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 - Init COMPLETE\n",
        );
        let how: Vec<&str> = log.how.iter().map(String::as_str).collect();
        assert_eq!(how, ["ring ll128 on 16 channels", "tree ll"]);
        let via: Vec<&str> = log.via.iter().map(String::as_str).collect();
        assert_eq!(via, ["P2P/CUMEM/read", "SHM/direct/direct"]);
    }

    #[test]
    fn other_methods_keep_the_librarys_text() {
        let log = parse(
            "[0] NCCL INFO AllReduce [Symmetric]: 8 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 nWorks 1\n",
        );
        let how = "Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 nWorks 1";
        assert_eq!(log.how.into_iter().collect::<Vec<_>>(), [how]);
    }

    #[test]
    fn text_that_is_no_log_gives_nothing() {
        for text in ["", " Bytes -> ", "via", "Channel via ", "x Bytes -> Algo", "={..}", "={5..1}"]
        {
            let log = parse(text);
            assert!(log.via.is_empty(), "{text}: {log:?}");
        }
        assert_eq!(channels("channel{Lo..Hi}={5..1}"), None);
        assert_eq!(channels("channel{Lo..Hi}={0..0}"), Some(1));
    }
}
