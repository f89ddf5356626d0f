//! Asks libraries that may crash, hang or end their process, in a child process with a deadline. The
//! child announces each call before it makes it, so that the one that did not return is named.

mod child;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use pathline_dylib::{LibraryReport, TriedPlace};
use pathline_schema::{MpiControls, Topology};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::choice::LibraryChoice;
use crate::link::LinkRecv;
use crate::process::WorkerProcess;

pub use child::serve_probe;

/// Opening a library of transports takes a tenth of a second, and seconds on a busy file system.
pub(crate) const TRANSPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Questions to a child; each opens only the libraries that its answer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LibraryProbe {
    /// The MPI library that would be taken, not initialised: a [`LibraryReport`].
    Mpi,
    /// The control variables of that library, with the environment that it is given: an [`MpiControls`], or
    /// the [`LibraryReport`] on the search for one.
    MpiControls,
    /// The UCX library that would be taken: a [`LibraryReport`].
    Ucx,
    /// NVML and what it shows: a [`ManagementAnswer`].
    Management,
    /// The GPU runtime of this host, not initialised: a [`RuntimeAnswer`].
    Runtime,
    /// The GPU runtime that this host has no use for: a [`LibraryReport`].
    OtherRuntimes,
    /// The run-time compiler of the runtime that would be taken, and what it needs: a list of
    /// [`LibraryReport`].
    Compiler,
    /// The same without the runtime, which is broken: a compiler of any version.
    AnyCompiler,
    /// The library of GPU direct: a [`DirectAnswer`].
    Direct,
    /// libibverbs and its devices: an [`AdapterAnswer`].
    Rdma,
    /// Whether MPI takes device memory, tried in further processes: a line, if there is an MPI.
    DeviceMemory,
    /// This host with its GPUs, opened: lines about them, and a [`HostAnswer`].
    Machine,
    /// The same, and the checks that every machine must pass.
    Conformance,
    /// This host with the GPUs that its runtime lists: a [`DevicesAnswer`].
    Devices,
}

/// NVML, and what discovery gets from it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ManagementAnswer {
    /// The library.
    pub report: LibraryReport,
    /// Plain files of a snapshot: paths and texts.
    pub files: Vec<(String, String)>,
    /// Number of GPUs that it opens.
    pub gpus: usize,
    /// Failures of the library, a line each.
    pub warnings: Vec<String>,
    /// Clocks, power and settings of each GPU with sensors, as a text, by its PCI address; and how long they take
    /// to read.
    #[serde(default)]
    pub states: Vec<(String, String)>,
}

/// A GPU runtime that was looked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RuntimeAnswer {
    /// Its library.
    pub driver: LibraryReport,
    /// Why it cannot be opened; `None` if no reason is known.
    pub without: Option<String>,
    /// The call that exports device memory as dma-buf, or why there is none.
    pub export: Result<String, String>,
    /// What copies, by kind of copy, where the runtime's version and the environment decide it.
    #[serde(default)]
    pub copies: Option<String>,
}

/// libibverbs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdapterAnswer {
    /// The library, with its devices.
    pub report: LibraryReport,
    /// Whether it registers memory by dma-buf; `None` if it was not opened.
    pub dmabuf: Option<bool>,
}

/// The library of GPU direct.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DirectAnswer {
    /// The library.
    pub report: LibraryReport,
    /// Notes about this machine for it, a line each.
    pub notes: Vec<String>,
}

/// The result of opening this host.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct HostAnswer {
    /// PCI addresses of the GPUs that its runtime lists, in its order.
    pub listed: Vec<String>,
    /// Why nothing on GPUs can be measured.
    pub without: Option<String>,
    /// Whether a check failed.
    pub failed: bool,
}

/// This host as a process sees it that opens the GPU runtime.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DevicesAnswer {
    /// The topology: listed GPUs in the runtime's order, the others of the bus as hidden.
    pub topology: Topology,
    /// Why the runtime lists no GPU.
    pub without: Option<String>,
    /// Whether the runtime's libraries are stand-ins.
    pub simulated: bool,
}

/// A message of a child.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ProbeMessage {
    /// It searches for a library: the report while nothing is found.
    Search(LibraryReport),
    /// It calls a function, of this library or of the one that was named last.
    Call(Option<PathBuf>, String),
    /// A line for the output of the command.
    Line(String),
    /// The answer, and the last message.
    Answer(serde_json::Value),
}

/// How long a child may take.
#[derive(Debug, Clone, Copy)]
pub struct ProbeLimits {
    /// For one call.
    pub call: Duration,
    /// In all: a library that reports 2^31 devices gets as many quick calls.
    pub total: Duration,
}

impl ProbeLimits {
    /// The user's timeout for a call; by default the time that a driver may take to wake that many
    /// GPUs: half a minute for eight.
    pub fn for_gpus(call_timeout: Option<Duration>, gpus: usize) -> Self {
        let usual = || Duration::from_secs(10 + 5 * gpus as u64);
        let call = call_timeout.unwrap_or_else(usual);
        Self { call, total: call.saturating_mul(3) }
    }

    /// The same limit for a call and in all.
    pub fn within(timeout: Duration) -> Self {
        Self { call: timeout, total: timeout }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone)]
pub enum ProbeError {
    /// No child can be started: nothing is known of the library.
    NotStarted(String),
    /// The child was lost over it: the library with the call that it did not return from.
    Lost(Box<LibraryReport>),
}

impl ProbeError {
    /// The report on a library that ended or held the process that asked it. `what` names one that was
    /// not looked for.
    pub fn report(&self, what: &'static str) -> LibraryReport {
        match self {
            Self::Lost(report) if !report.what.is_empty() => (**report).clone(),
            Self::Lost(report) => LibraryReport { what: what.into(), ..(**report).clone() },
            Self::NotStarted(why) => LibraryReport {
                what: what.into(),
                tried: vec![TriedPlace { place: "a process".into(), why: why.clone() }],
                ..LibraryReport::default()
            },
        }
    }
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(why) => f.write_str(why),
            Self::Lost(report) => match report.tried.last() {
                Some(TriedPlace { place, why }) if place.as_os_str().is_empty() => f.write_str(why),
                Some(TriedPlace { place, why }) => write!(f, "{}: {why}", place.display()),
                None => f.write_str("no answer"),
            },
        }
    }
}

impl LibraryProbe {
    /// Every probe, with its name on the command line of the child.
    const NAMES: [(Self, &str); 14] = [
        (Self::Mpi, "mpi"),
        (Self::MpiControls, "mpi-controls"),
        (Self::Ucx, "ucx"),
        (Self::Management, "management"),
        (Self::Runtime, "runtime"),
        (Self::OtherRuntimes, "other-runtimes"),
        (Self::Compiler, "compiler"),
        (Self::AnyCompiler, "any-compiler"),
        (Self::Direct, "direct"),
        (Self::Rdma, "rdma"),
        (Self::DeviceMemory, "device-memory"),
        (Self::Machine, "machine"),
        (Self::Conformance, "conformance"),
        (Self::Devices, "devices"),
    ];

    fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(probe, _)| *probe == self);
        named.map_or("", |(_, name)| name)
    }
}

impl FromStr for LibraryProbe {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::NAMES.iter().find(|(_, name)| *name == text);
        named.map(|(probe, _)| *probe).ok_or_else(|| format!("'{text}' is no probe"))
    }
}

/// The answer of a child that is started for it, on the libraries that `libraries` names. The child
/// is gone when this returns.
///
/// # Errors
/// How the child was lost (signal, exit code, or a call that did not return in time), with what it
/// printed last; or that none could be started.
pub fn ask<A: DeserializeOwned>(
    probe: LibraryProbe,
    libraries: &LibraryChoice,
    limits: ProbeLimits,
) -> Result<A, ProbeError> {
    ask_and_show(probe, libraries, limits, &mut |_| {})
}

/// The same for a child that has lines to print: each is shown as it comes.
pub fn ask_and_show<A: DeserializeOwned>(
    probe: LibraryProbe,
    libraries: &LibraryChoice,
    limits: ProbeLimits,
    show: &mut dyn FnMut(&str),
) -> Result<A, ProbeError> {
    ask_with(probe, libraries, limits, &BTreeMap::new(), show)
}

/// The control variables of the MPI library that a process with these further variables would take; an empty
/// value removes one. The inner error is the report on the search.
///
/// # Errors
/// As [`ask`].
pub fn mpi_controls_with(
    env: &BTreeMap<String, String>,
    limits: ProbeLimits,
) -> Result<Result<MpiControls, LibraryReport>, ProbeError> {
    let libraries = LibraryChoice::default();
    ask_with(LibraryProbe::MpiControls, &libraries, limits, env, &mut |_| {})
}

fn ask_with<A: DeserializeOwned>(
    probe: LibraryProbe,
    libraries: &LibraryChoice,
    limits: ProbeLimits,
    env: &BTreeMap<String, String>,
    show: &mut dyn FnMut(&str),
) -> Result<A, ProbeError> {
    let mut args: Vec<OsString> = vec!["probe".into(), probe.name().into()];
    args.extend(libraries.flags());
    args.extend(["--device-memory", libraries.device_memory.name()].map(OsString::from));
    let mut process = WorkerProcess::start(&args, env).map_err(|error| {
        ProbeError::NotStarted(format!("no process can be started to try it ({error})"))
    })?;
    let begun = Instant::now();
    let (mut last, mut since) = (LastCall::default(), begun);
    let why = loop {
        if begun.elapsed() > limits.total || since.elapsed() > limits.call {
            let output = process.output_tail();
            process.kill();
            break last.hang(since.elapsed() > limits.call, limits, &output);
        }
        match process.link.listen() {
            Ok(LinkRecv::Line(ProbeMessage::Answer(answer))) => {
                // Its last destructors may hang like the rest of it.
                process.kill();
                match serde_json::from_value(answer) {
                    Ok(answer) => return Ok(answer),
                    Err(error) => break format!("it gave no usable answer ({error})"),
                }
            }
            Ok(LinkRecv::Line(ProbeMessage::Search(report))) => last = LastCall::new(report),
            Ok(LinkRecv::Line(ProbeMessage::Call(library, name))) => last.calls(library, name),
            Ok(LinkRecv::Line(ProbeMessage::Line(text))) => show(&text),
            Ok(LinkRecv::Timeout) => continue,
            Ok(LinkRecv::End) => break last.end(&process.exit_report().text),
            Err(error) => {
                process.kill();
                break format!("it gave no usable answer ({error})");
            }
        }
        since = Instant::now();
    };
    Err(ProbeError::Lost(Box::new(last.report(why))))
}

/// The last call that a child announced.
#[derive(Debug, Default)]
struct LastCall {
    search: LibraryReport,
    library: Option<PathBuf>,
    name: Option<String>,
}

impl LastCall {
    fn new(search: LibraryReport) -> Self {
        Self { search, library: None, name: None }
    }

    fn calls(&mut self, library: Option<PathBuf>, name: String) {
        self.library = library.or(self.library.take());
        self.name = Some(name);
    }

    /// `one_call` is false if many calls took too long together. `output` ends the text.
    fn hang(&self, one_call: bool, limits: ProbeLimits, output: &str) -> String {
        let (call, total) = (limits.call.as_secs_f64(), limits.total.as_secs_f64());
        match &self.name {
            Some(name) if one_call => format!("{name} does not return ({call:.0} s){output}"),
            Some(name) => {
                format!("no end of calls in {total:.0} s, the last of them {name}{output}")
            }
            None => format!("it held a process for {call:.0} s{output}"),
        }
    }

    fn end(&self, how: &str) -> String {
        match &self.name {
            Some(name) => format!("in {name} the process {how}"),
            None => format!("it cost a process, which {how}"),
        }
    }

    fn report(self, why: String) -> LibraryReport {
        let place = self.library.as_deref().unwrap_or(Path::new("")).to_owned();
        LibraryReport { tried: vec![TriedPlace { place, why }], ..self.search }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_that_did_not_return_is_named() {
        let limits = ProbeLimits { call: Duration::from_secs(10), total: Duration::from_secs(30) };
        let lost = |last: LastCall, why: String| ProbeError::Lost(Box::new(last.report(why)));
        let at = |library: Option<&str>, name: &str| {
            let search = LibraryReport { what: "CUDA driver".into(), ..LibraryReport::default() };
            let mut last = LastCall::new(search);
            last.calls(Some("/fake/libcuda.so.1".into()), "dlopen".into());
            last.calls(library.map(PathBuf::from), name.into());
            last
        };
        let last = at(None, "cuInit");
        let why = last.hang(true, limits, "");
        let error = lost(last, why);
        assert_eq!(error.to_string(), "/fake/libcuda.so.1: cuInit does not return (10 s)");
        assert_eq!(error.report("a library").what, "CUDA driver");
        let last = at(Some("/fake/libnvrtc.so.12"), "nvrtcVersion");
        let why = last.end("was ended by signal 11 (SIGSEGV)");
        let text = lost(last, why).to_string();
        assert_eq!(
            text,
            "/fake/libnvrtc.so.12: in nvrtcVersion the process was ended by signal 11 (SIGSEGV)"
        );
        let last = at(None, "cuDeviceGet");
        let why = last.hang(false, limits, "");
        assert!(why.starts_with("no end of calls in 30 s"), "{why}");
        // Before any library was opened.
        let last = LastCall::default();
        let why = last.end("ended with code 2");
        let error = lost(last, why);
        assert_eq!(error.to_string(), "it cost a process, which ended with code 2");
        assert_eq!(error.report("MPI").what, "MPI");
    }
}
