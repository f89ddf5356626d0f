//! A child of this process that is this program once more: started, killed, reaped, and how it ended.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::link::LineLink;

/// How often a wait for a child checks other reasons to stop.
const TICK: Duration = Duration::from_millis(50);
/// How long a process that was killed may take to be gone. One that the kernel holds in a driver
/// takes longer, and is left behind.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a child whose socket is closed may take to give back memory and devices.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the last lines of one that has ended may take to be read on a busy machine.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(500);
/// Lines of its output that are kept.
const TAIL_LINES: usize = 8;
/// Characters of such a line that are kept.
const TAIL_LINE_CHARS: usize = 400;

/// The last lines that a process printed.
type OutputTail = Arc<Mutex<VecDeque<String>>>;

/// A running child.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: Child,
    pub(crate) link: LineLink,
    /// Switches that it was started with in addition to those of this process.
    pub(crate) env: BTreeMap<String, String>,
    tail: OutputTail,
    /// Reads what it prints.
    reader: Option<JoinHandle<()>>,
    gone: Option<ExitStatus>,
    /// Whether nothing waits for its end.
    abandoned: bool,
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct ExitReport {
    /// How it ended, as a clause, with what it printed last.
    pub(crate) text: String,
    /// Whether it ended by itself rather than by a signal that people and kernels send.
    pub(crate) own: bool,
    /// Its exit code; none if it was ended by a signal, or did not end.
    pub(crate) code: Option<i32>,
}

/// The destination of a process's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessOutput {
    /// Its last lines are kept for errors.
    Kept,
    /// To where this process's goes.
    Inherited,
}

impl WorkerProcess {
    /// Starts this program once more, with a hidden command. An empty value in `env` removes a variable.
    pub(crate) fn start(
        args: &[impl AsRef<OsStr>],
        env: &BTreeMap<String, String>,
    ) -> io::Result<Self> {
        Self::start_with(args, env, ProcessOutput::Kept)
    }

    /// The same with its output elsewhere.
    pub(crate) fn start_with(
        args: &[impl AsRef<OsStr>],
        env: &BTreeMap<String, String>,
        output: ProcessOutput,
    ) -> io::Result<Self> {
        let mut command = Command::new(program());
        command.args(args);
        Self::start_command(command, env, output)
    }

    /// Starts any program, whose standard input is then a socket of this process.
    pub(crate) fn start_command(
        mut command: Command,
        env: &BTreeMap<String, String>,
        output: ProcessOutput,
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        command
            .stdin(OwnedFd::from(theirs))
            // Ctrl-C is for the supervisor, and Ctrl-Z must not look like a hang.
            .process_group(0);
        for (name, value) in env {
            match value.as_str() {
                "" => command.env_remove(name),
                value => command.env(name, value),
            };
        }
        let printed = match output {
            ProcessOutput::Kept => {
                let (printed, input) = io::pipe()?;
                command.stdout(input.try_clone()?).stderr(input);
                Some(printed)
            }
            ProcessOutput::Inherited => None,
        };
        let child = command.spawn()?;
        // The command holds the other ends open.
        drop(command);
        let tail = OutputTail::default();
        // Without it the process would block once the pipe is full.
        let read = |printed| {
            let kept = Arc::clone(&tail);
            let thread = std::thread::Builder::new().name("worker-output".into());
            thread.spawn(move || keep(printed, &kept))
        };
        let reader = printed.map(read).transpose()?;
        let link = LineLink::new(ours, Some(TICK))?;
        Ok(Self { child, link, env: env.clone(), tail, reader, gone: None, abandoned: false })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended already.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.reap(Duration::ZERO)
    }

    /// The last message that it printed, as a clause; empty if none.
    pub(crate) fn output_tail(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        // Launchers end their messages by rulers.
        let Some(end) = tail.iter().rposition(|line| line.contains(char::is_alphanumeric)) else {
            return String::new();
        };
        // A message that was broken into lines goes on with indented ones.
        let begin = tail.iter().take(end + 1).rposition(|line| !line.starts_with(' '));
        let lines = tail.range(begin.unwrap_or(end)..=end).map(|line| line.trim());
        let message = lines.collect::<Vec<_>>().join(" ");
        format!("; its last output was: {}", message.trim_start_matches("pathline: "))
    }

    /// Waits for the end of a process that has closed its socket, and reports its cause.
    pub(crate) fn exit_report(mut self) -> ExitReport {
        let closed_only = !self.reap(KILL_TIMEOUT);
        if closed_only {
            self.kill();
        }
        // Another thread reads its output to the end. A process that it started may hold the
        // pipe open for longer.
        let ended = Instant::now();
        while self.reader.as_ref().is_some_and(|r| !r.is_finished())
            && ended.elapsed() < OUTPUT_TIMEOUT
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let tail = self.output_tail();
        let Some(status) = self.gone.filter(|_| !closed_only) else {
            let text = format!("closed its socket and went on{tail}");
            return ExitReport { text, own: true, code: None };
        };
        let (how, own) = match (status.signal(), status.code()) {
            (Some(signal), _) => (format!("was ended by {}", name(signal)), is_own(signal)),
            (None, code) => (format!("ended with code {}", code.unwrap_or(-1)), true),
        };
        ExitReport { text: format!("{how}{tail}"), own, code: status.code() }
    }

    /// Asks it and its group to end, waits for that, and ends what is left.
    pub(crate) fn terminate(&mut self, timeout: Duration) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group.filter(|_| !self.has_ended()) {
            let _ = kill_process_group(group, Signal::TERM);
        }
        if !self.reap(timeout) {
            self.kill();
        }
    }

    /// Ends it at once, and the compilers that it may wait for. False if the kernel would not let it
    /// go in time.
    pub(crate) fn kill(&mut self) -> bool {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // Its number is its own, and that of its group, until it is reaped.
        if let Some(group) = group.filter(|_| !self.has_ended()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // It may be gone already.
        let _ = self.child.kill();
        self.reap(KILL_TIMEOUT)
    }

    /// Lets it end by itself within `grace`, else kills it, and does not wait for that: a process that
    /// the kernel holds in a driver dies when the driver lets it.
    pub(crate) fn abandon(mut self, grace: Duration) {
        self.abandoned = true;
        self.link.close();
        if self.reap(grace) {
            return;
        }
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.kill();
        self.reap(Duration::ZERO);
    }

    /// How it ended, as a clause, if it has within `grace`, else that it has closed its socket; and
    /// whether it crashed.
    pub(crate) fn end_text(&mut self, grace: Duration) -> (String, bool) {
        let ended = self.reap(grace).then_some(self.gone).flatten();
        let tail = self.output_tail();
        match ended.map(|status| (status.signal(), status.code())) {
            Some((Some(signal), _)) => {
                (format!("was ended by {}{tail}", name(signal)), is_own(signal))
            }
            Some((None, code)) => (format!("ended with code {}{tail}", code.unwrap_or(-1)), false),
            None => (format!("closed its socket and went on{tail}"), false),
        }
    }

    fn reap(&mut self, timeout: Duration) -> bool {
        let begun = Instant::now();
        while self.gone.is_none() {
            match self.child.try_wait() {
                Ok(Some(status)) => self.gone = Some(status),
                Ok(None) if begun.elapsed() < timeout => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }
}

impl Drop for WorkerProcess {
    /// Lets it go in peace, if it does so in time.
    fn drop(&mut self) {
        if self.abandoned {
            return;
        }
        self.link.close();
        if !self.reap(CLOSE_TIMEOUT) {
            self.kill();
        }
    }
}

/// This program, even if its file was replaced or its path is unknown.
pub(crate) fn program() -> PathBuf {
    let proc = Path::new("/proc/self/exe");
    match std::env::current_exe() {
        Ok(path) if path.is_file() => path,
        _ if proc.exists() => proc.to_owned(),
        _ => std::env::args_os().next().map_or_else(|| PathBuf::from("pathline"), PathBuf::from),
    }
}

/// Keeps the last lines of an output.
fn keep(output: PipeReader, tail: &OutputTail) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while let Ok(1..) = output.read_until(b'\n', &mut line) {
        let text: String =
            String::from_utf8_lossy(&line).trim_end().chars().take(TAIL_LINE_CHARS).collect();
        line.clear();
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if !text.is_empty() {
            tail.push_back(text);
        }
        if tail.len() > TAIL_LINES {
            tail.pop_front();
        }
    }
}

/// Signals that end processes, by number on Linux.
const SIGNALS: &[(i32, &str)] = &[
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL, which people and the kernel's out-of-memory killer send"),
    (11, "SIGSEGV"),
    (13, "SIGPIPE"),
    (15, "SIGTERM"),
    (31, "SIGSYS"),
];

fn name(signal: i32) -> String {
    match SIGNALS.iter().find(|(number, _)| *number == signal) {
        Some((number, name)) => format!("signal {number} ({name})"),
        None => format!("signal {signal}"),
    }
}

/// Whether a process brings it on itself: SIGHUP, SIGINT, SIGKILL and SIGTERM come from others.
fn is_own(signal: i32) -> bool {
    ![1, 2, 9, 15].contains(&signal)
}
