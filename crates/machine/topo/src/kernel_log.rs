//! What drivers wrote of faults into the kernel's log since the start of the system, as a file of a snapshot.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// The file of a snapshot: where the log was read in the first line, then the last lines about faults. It is not
/// there if the log could not be read.
pub const EVENTS: &str = "pathline/kernel-log";

/// Files that a system keeps the log in.
const FILES: [&str; 4] =
    ["var/log/kern.log", "var/log/messages", "var/log/syslog", "var/log/dmesg"];
/// Maximum number of bytes that are read, from the end of a file: the kernel's own buffer has at most 32 MiB.
const MAX_READ: u64 = 32 << 20;
/// Maximum number of lines that are kept, the last ones, and of bytes of each.
const MAX_LINES: usize = 400;
const MAX_LINE: usize = 300;
/// What a line about a fault contains.
const MARKS: [&str; 28] = [
    "NVRM: Xid",
    "SXid",
    "NVRM: GPU",
    "[Hardware Error]",
    "Out of memory: Killed",
    "oom-kill:",
    "PCIe Bus Error",
    "EDAC",
    "mce: ",
    "temperature above threshold",
    "controller is down",
    "I/O error, dev",
    "soft lockup",
    "hard LOCKUP",
    "blocked for more than",
    "DPC: containment event",
    "health compromised",
    "not responding, ",
    "IO_PAGE_FAULT",
    "DMAR: [DMA",
    "High temperature on sensors",
    "insufficient power on the PCIe slot",
    "EXT4-fs error",
    "Remounting filesystem read-only",
    "self-detected stall",
    "medium error, dev",
    "D3cold to D0",
    "NVRM: API mismatch",
];
/// What a line of amdgpu about a fault contains: it writes hundreds of others at the start.
const AMD_MARKS: [&str; 7] =
    ["error", "reset", "timeout", "fault", "bad page", "not done with your", "failed to add node"];
/// The first line that a kernel writes.
const START: &str = "Linux version ";

/// Reads the log: the kernel's own buffer, else the file of it below `root`.
pub(crate) fn read_events(root: &Path) -> Option<String> {
    read_buffer(&root.join("dev/kmsg")).or_else(|| {
        FILES.iter().find_map(|name| {
            Some(format!("from /{name}\n{}", keep_events(&read_end(&root.join(name))?)))
        })
    })
}

/// The kernel's buffer, a record a call. It is a device, which would wait for further ones.
fn read_buffer(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let (mut text, mut record) = (String::new(), [0; 8192]);
    while (text.len() as u64) < MAX_READ {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(bytes) => {
                let record = String::from_utf8_lossy(record.get(..bytes).unwrap_or_default());
                // `6,1234,5678901,-;message`, and lines of keys.
                let message = record.split_once(';').map_or(&*record, |(_, message)| message);
                text.push_str(message.lines().next().unwrap_or_default());
                text.push('\n');
            }
            // Overwritten while it was read: the next call goes on.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return None,
        }
    }
    Some(format!("from /dev/kmsg\n{}", keep_events(&text)))
}

/// The end of a plain file.
fn read_end(path: &Path) -> Option<String> {
    let length = fs::metadata(path).ok().filter(fs::Metadata::is_file)?.len();
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_READ))).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_READ).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines about faults since the last start in the text of a kernel log, each cut to 300 characters.
pub fn keep_events(text: &str) -> String {
    let mut kept = VecDeque::new();
    for line in text.lines() {
        if line.contains(START) {
            kept.clear();
        }
        let is_fault = MARKS.iter().any(|mark| line.contains(mark))
            || (line.contains("amdgpu") && {
                let line = line.to_lowercase();
                AMD_MARKS.iter().any(|mark| line.contains(mark))
            });
        if is_fault {
            if kept.len() == MAX_LINES {
                kept.pop_front();
            }
            kept.push_back(line.chars().take(MAX_LINE).collect::<String>() + "\n");
        }
    }
    kept.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn a_log_keeps_what_drivers_say_of_faults_since_the_last_start() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_events(folder.path()), None);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(folder.path().join("var/log")).unwrap();
            fs::write(folder.path().join(name), text).unwrap();
        };
        let xid = "kernel: NVRM: Xid (PCI:0000:06:00): 79, pid=1, GPU has fallen off the bus.";
        let amd = "kernel: amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!";
        let log = format!("{xid}\nLinux version 6.1\nsecret\namdgpu: ring ready\n{amd}\n");
        write("var/log/messages", &log);
        assert_eq!(read_events(folder.path()).unwrap(), format!("from /var/log/messages\n{amd}\n"));
        // The kernel's buffer comes first; that of gigabytes is read from its end.
        let mut long = String::new();
        for nth in 0..2 * MAX_LINES {
            writeln!(long, "{xid} {nth} {}", "x".repeat(1000)).unwrap();
        }
        write("var/log/kern.log", &long);
        let kept = read_events(folder.path()).unwrap();
        assert_eq!(kept.lines().count(), MAX_LINES + 1);
        assert!(kept.lines().all(|line| line.len() <= MAX_LINE) && kept.contains(" 799 x"));
    }
}
