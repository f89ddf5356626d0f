//! What the library says of how it does an operation: algorithm, protocol, channels, transport.
//!
//! It says so in its log alone, and writing that log takes time. So it is switched on for one
//! repetition that nobody times, and off again.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use super::api::Calls;

/// Variables that the log follows, with what they are set to for one repetition.
const LEVEL: (&str, &str) = ("NCCL_DEBUG", "INFO");
const SUBSYSTEMS: (&str, &str) = ("NCCL_DEBUG_SUBSYS", "TUNING,P2P,SHM,NET");
const FILE: &str = "NCCL_DEBUG_FILE";

/// The log while it is on.
pub(super) struct Log {
    reset: unsafe extern "C" fn(),
    file: PathBuf,
    before: Vec<(&'static str, Option<OsString>)>,
}

fn set(name: &str, value: Option<&OsString>) {
    // SAFETY: no other thread of this program reads or writes the environment while an exchange is
    // bound; the library's own threads read it when communicators are made, which they are not now.
    unsafe {
        match value {
            Some(value) => std::env::set_var(name, value),
            None => std::env::remove_var(name),
        }
    }
}

impl Log {
    /// Switches it on; none if the library cannot be told to, or if the user has it written into a
    /// file, which would begin anew.
    pub(super) fn begin(calls: &Calls, nth: u64) -> Option<Self> {
        let reset = calls.reset_log?;
        if std::env::var_os(FILE).is_some() {
            return None;
        }
        let name = format!("pathline-ccl-{}-{nth}.log", std::process::id());
        let file = std::env::temp_dir().join(name);
        // The library puts host and process in the place of % and letters.
        if file.to_string_lossy().contains('%') {
            return None;
        }
        let file_value = file.as_os_str().to_owned();
        let wanted = [
            (LEVEL.0, OsString::from(LEVEL.1)),
            (SUBSYSTEMS.0, OsString::from(SUBSYSTEMS.1)),
            (FILE, file_value),
        ];
        let before = wanted.iter().map(|&(name, _)| (name, std::env::var_os(name))).collect();
        for (name, value) in &wanted {
            set(name, Some(value));
        }
        // SAFETY: takes nothing; the library reads its environment again before its next line.
        unsafe { reset() };
        Some(Self { reset, file, before })
    }

    /// Switches it off, and gives what it says.
    pub(super) fn end(self) -> Told {
        for (name, value) in &self.before {
            set(name, value.as_ref());
        }
        // SAFETY: as above.
        unsafe { (self.reset)() };
        let text = std::fs::read(&self.file).unwrap_or_default();
        // A file that cannot be removed is one that was never written.
        let _ = std::fs::remove_file(&self.file);
        digest(&String::from_utf8_lossy(&text))
    }
}

/// What a log says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Algorithm, protocol and channels of each operation, in words.
    pub(super) how: BTreeSet<String>,
    /// Transports of the connections that were made meanwhile.
    pub(super) via: BTreeSet<String>,
}

/// Numbers of `NCCL_ALGO_*` and `NCCL_PROTO_*`, which versions before 2.24 write in place of words.
const ALGORITHMS: [&str; 7] =
    ["TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"];
const PROTOCOLS: [&str; 3] = ["LL", "LL128", "SIMPLE"];

fn word(text: &str, known: &[&str]) -> String {
    let by_number = text.parse::<usize>().ok().and_then(|n| known.get(n));
    by_number.map_or(text, |word| word).to_ascii_lowercase()
}

/// The number of channels in `channel{Lo..Hi}={0..15}`: 16.
fn channels(text: &str) -> Option<u32> {
    let (low, high) = text.split_once("={")?.1.strip_suffix('}')?.split_once("..")?;
    let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
    Some(high.checked_sub(low)? + 1)
}

/// Reads the lines `... Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}` and
/// `Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM` of NCCL 2.19 to 2.30 and of RCCL.
fn digest(log: &str) -> Told {
    let mut told = Told::default();
    for line in log.lines() {
        if let Some((_, how)) = line.split_once(" Bytes -> ") {
            let words: Vec<&str> = how.split_whitespace().collect();
            let after = |key: &str| {
                let at = words.iter().position(|w| *w == key)?;
                words.get(at + 1).copied()
            };
            let text = match (after("Algo"), after("proto")) {
                (Some(algorithm), Some(protocol)) => {
                    let mut text =
                        format!("{} {}", word(algorithm, &ALGORITHMS), word(protocol, &PROTOCOLS));
                    if let Some(n) = words.iter().find_map(|w| channels(w)) {
                        text.push_str(&format!(" on {n} channels"));
                    }
                    text
                }
                // A symmetric kernel or copy engines, in the library's own words.
                _ => how.trim().to_owned(),
            };
            told.how.insert(text);
        } else if let Some((_, via)) = line.split_once(" via ") {
            let via = via.split_whitespace().next().unwrap_or_default();
            if line.contains("Channel ") && !via.is_empty() {
                told.via.insert(via.to_owned());
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_styles_are_read() {
        let told = digest(
            "host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n\
             host:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n\
             host:1:2 [0] NCCL INFO Channel 02 : 0[0] -> 2[2] via SHM/direct/direct\n\
             host:1:2 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}\n\
             host:1:2 [0] NCCL INFO 8 Bytes -> Algo 0 proto 0 time 12.5\n\
             host:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 - Init COMPLETE\n",
        );
        let how: Vec<&str> = told.how.iter().map(String::as_str).collect();
        assert_eq!(how, ["ring ll128 on 16 channels", "tree ll"]);
        let via: Vec<&str> = told.via.iter().map(String::as_str).collect();
        assert_eq!(via, ["P2P/CUMEM/read", "SHM/direct/direct"]);
    }

    #[test]
    fn other_ways_keep_the_librarys_words() {
        let told = digest(
            "[0] NCCL INFO AllReduce [Symmetric]: 8 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 nWorks 1\n",
        );
        let how = "Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 nWorks 1";
        assert_eq!(told.how.into_iter().collect::<Vec<_>>(), [how]);
    }

    #[test]
    fn what_is_no_log_says_nothing() {
        for text in ["", " Bytes -> ", "via", "Channel via ", "x Bytes -> Algo", "={..}", "={5..1}"]
        {
            let told = digest(text);
            assert!(told.via.is_empty(), "{text}: {told:?}");
        }
        assert_eq!(channels("channel{Lo..Hi}={5..1}"), None);
        assert_eq!(channels("channel{Lo..Hi}={0..0}"), Some(1));
    }
}
