//! Checks whether another process is alive.

use pathline_host::files;

/// A process. Its start time distinguishes it from later ones with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerProcess {
    pub(super) pid: u32,
    /// Clock ticks after boot; 0 if the kernel does not report it.
    pub(super) began: u64,
}

impl PeerProcess {
    /// This process.
    pub(super) fn me() -> Self {
        let pid = std::process::id();
        Self { pid, began: stat(pid).map_or(0, |(_, began)| began) }
    }

    /// Whether it has ended. A zombie counts as ended.
    pub(super) fn is_gone(self) -> bool {
        match stat(self.pid) {
            Some((state, began)) => {
                matches!(state, 'Z' | 'X') || (self.began != 0 && began != self.began)
            }
            // Without /proc this is unknown; the timeout ends the wait.
            None => stat(std::process::id()).is_some(),
        }
    }
}

/// State and start time of a process.
fn stat(pid: u32) -> Option<(char, u64)> {
    parse(&files::text(format!("/proc/{pid}/stat"))?)
}

/// State and start time from the text of `stat`. The name in brackets may itself contain brackets
/// and blanks.
fn parse(text: &str) -> Option<(char, u64)> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // In proc_pid_stat(5) the state is field 3 and the start time field 22.
    Some((state, fields.nth(22 - 4)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_fields_are_found_for_any_process_name() {
        let text = "12 (a) S) Z 1 12 12 0 -1 4 0 0 0 0 1 2 3 4 20 0 1 0 777 0 0\n";
        assert_eq!(parse(text), Some(('Z', 777)));
        assert_eq!(parse("12 (a) S 1"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_killed_child_is_gone_before_its_parent_waits() {
        assert!(!PeerProcess::me().is_gone());
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let began = stat(child.id()).unwrap().1;
        let peer = PeerProcess { pid: child.id(), began };
        assert!(!peer.is_gone());
        assert!(PeerProcess { began: began + 1, ..peer }.is_gone(), "another of the same number");
        child.kill().unwrap();
        // A zombie as soon as the signal has been delivered.
        while !peer.is_gone() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(peer.is_gone());
    }
}
