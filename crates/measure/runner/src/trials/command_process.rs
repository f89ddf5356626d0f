//! One run of a user's command: its processes, and the parts of its output that are kept.

use std::io::{self, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, kill_process_group,
    set_child_subreaper, waitid, waitpid,
};

/// The shell of system(3).
const SHELL: &str = "/bin/sh";
/// Bytes at the beginning of the output that are kept: logs of libraries are there.
const MAX_FIRST: usize = 16 << 20;
/// Bytes at its end that are kept: the metric is there.
const MAX_LAST: usize = 4 << 20;
/// How long the end of the output is waited for, and the end of processes that are killed.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// How often that is looked at.
const TICK: Duration = Duration::from_millis(5);

/// What a command has printed, on both streams.
#[derive(Debug, Default)]
pub(super) struct CommandOutput {
    /// Whether the beginning is kept.
    keeps_first: bool,
    first: Vec<u8>,
    last: Vec<u8>,
    bytes: u64,
}

impl CommandOutput {
    fn add(&mut self, part: &[u8]) {
        self.bytes += part.len() as u64;
        let room = if self.keeps_first { MAX_FIRST - self.first.len() } else { 0 };
        self.first.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
        self.last.extend_from_slice(part);
        if self.last.len() > 2 * MAX_LAST {
            self.last.drain(..self.last.len() - MAX_LAST);
        }
    }

    /// The whole lines of its beginning.
    pub(super) fn first(&self) -> String {
        let is_cut = self.first.len() as u64 != self.bytes;
        let end = self.first.iter().rposition(|byte| *byte == b'\n');
        let end = if is_cut { end.unwrap_or(0) } else { self.first.len() };
        String::from_utf8_lossy(self.first.get(..end).unwrap_or_default()).into_owned()
    }

    /// The whole lines of its end.
    pub(super) fn last(&self) -> String {
        let start = match self.cut() {
            0 => 0,
            _ => {
                let kept = self.last.len().saturating_sub(MAX_LAST);
                let line = self.last.iter().skip(kept).position(|byte| *byte == b'\n');
                line.map_or(self.last.len(), |line| kept + line + 1)
            }
        };
        String::from_utf8_lossy(self.last.get(start..).unwrap_or_default()).into_owned()
    }

    /// Bytes before the end that is kept.
    pub(super) fn cut(&self) -> u64 {
        self.bytes.saturating_sub(MAX_LAST as u64)
    }
}

/// A command that runs.
pub(super) struct CommandProcess {
    child: Child,
    output: Arc<Mutex<CommandOutput>>,
    read: Receiver<()>,
    /// Children of this process before it.
    others: Vec<u32>,
}

/// The end of a run.
pub(super) struct EndedCommand {
    pub(super) status: Option<ExitStatus>,
    pub(super) output: CommandOutput,
    /// Processes that outlived the command and were ended.
    pub(super) left: usize,
}

impl CommandProcess {
    /// Starts a command by `/bin/sh -c`, in its own group, its orphans as children of this process.
    pub(super) fn start(
        text: &str,
        env: impl FnOnce(&mut Command),
        keeps_first: bool,
    ) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(SHELL);
        command.args(["-c", text]).stdin(Stdio::null()).process_group(0);
        command.stdout(writer.try_clone()?).stderr(writer);
        env(&mut command);
        let others = children();
        let child = command.spawn()?;
        // Else this process would keep the pipe open.
        drop(command);
        let output =
            Arc::new(Mutex::new(CommandOutput { keeps_first, ..CommandOutput::default() }));
        let (ended, read) = mpsc::channel();
        let shared = Arc::clone(&output);
        std::thread::Builder::new().spawn(move || {
            drain(reader, &shared);
            let _ = ended.send(());
        })?;
        Ok(Self { child, output, read, others })
    }

    /// Whether the command itself has ended. Its number stays taken.
    pub(super) fn has_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(pid(self.child.id())), options)?.is_some())
    }

    /// Ends the command and all that it started.
    pub(super) fn end(mut self) -> EndedCommand {
        let group = pid(self.child.id());
        // No group without a process other than the command, which has ended or is to end.
        let _ = kill_process_group(group, Signal::KILL);
        let status = self.child.wait().ok();
        let left = self.end_orphans();
        // A process that cannot be killed may have the pipe open still.
        let _ = self.read.recv_timeout(END_TIMEOUT);
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        EndedCommand { status, output: std::mem::take(&mut *output), left }
    }

    /// Kills the children of this process that are new since the start: what the command started. Their
    /// children become those of this process. Returns their number.
    fn end_orphans(&self) -> usize {
        let (begun, mut killed) = (Instant::now(), 0);
        while begun.elapsed() < END_TIMEOUT {
            let orphans: Vec<Pid> = children()
                .into_iter()
                .filter(|child| !self.others.contains(child))
                .map(pid)
                .collect();
            if orphans.is_empty() {
                break;
            }
            for orphan in orphans {
                let _ = kill_process(orphan, Signal::KILL);
                if let Ok(Some(_)) = waitpid(Some(orphan), WaitOptions::NOHANG) {
                    killed += 1;
                }
            }
            std::thread::sleep(TICK);
        }
        killed
    }
}

fn pid(number: u32) -> Pid {
    i32::try_from(number).ok().and_then(Pid::from_raw).unwrap_or(Pid::INIT)
}

/// Children of the first thread, which is where the kernel puts orphans. None on a kernel without the list.
fn children() -> Vec<u32> {
    let first = std::process::id();
    let list = std::fs::read_to_string(format!("/proc/self/task/{first}/children"));
    list.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn drain(mut reader: PipeReader, output: &Mutex<CommandOutput>) {
    let mut part = vec![0; 64 << 10];
    loop {
        match reader.read(&mut part) {
            Ok(0) => return,
            Ok(read) => {
                let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                output.add(part.get(..read).unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(text: &str, keeps_first: bool) -> EndedCommand {
        let process = CommandProcess::start(text, |_| (), keeps_first).unwrap();
        let begun = Instant::now();
        while !process.has_ended().unwrap() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(TICK);
        }
        process.end()
    }

    #[test]
    fn of_much_output_the_whole_lines_of_both_ends_stay() {
        // 3 + 64 MiB + 5 bytes in lines: `a`, zeros, `b 7`.
        let text = "echo a; head -c 64M /dev/zero; echo; echo b 7";
        let all = output(text, true).output;
        assert_eq!(all.bytes, 2 + (64 << 20) + 1 + 4);
        assert_eq!((all.first(), all.last()), ("a".to_owned(), "b 7\n".to_owned()));
        assert!(all.first.capacity() + all.last.capacity() < 64 << 20);
        let all = output("printf 'a 1\\nb 2'; echo c >&2", false).output;
        assert_eq!((all.last().as_str(), all.first().as_str(), all.cut()), ("a 1\nb 2c\n", "", 0));
    }

    #[test]
    fn nothing_that_a_command_starts_outlives_it() {
        let begun = Instant::now();
        // In its group, out of it, and a child of one that is out of it and has ended.
        for (text, left) in [
            ("true", 0),
            ("sleep 300 & true", 1),
            ("setsid sleep 300 & true", 1),
            ("setsid sh -c 'sleep 300 & sleep 300 & exit' & wait; true", 2),
        ] {
            let ended = output(text, false);
            assert_eq!((ended.left, ended.status.unwrap().success()), (left, true), "{text}");
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
        assert_eq!(children(), [] as [u32; 0]);
    }
}
