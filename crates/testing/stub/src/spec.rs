//! The library's environment variable: the simulated node and the injected faults.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use pathline_schema::Bytes;

/// Name of the environment variable.
pub const VARIABLE: &str = "PATHLINE_STUB";

/// An injected fault of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StubFault {
    /// It returns this status; a sticky one persists.
    Fails(i32),
    /// It never returns.
    Hangs,
    /// The process dies of SIGSEGV.
    Crashes,
    /// It returns this many milliseconds late.
    Slow(u64),
    /// It succeeds, and one byte that it writes is wrong.
    Corrupts,
    /// It moves half of the requested bytes, and returns that number.
    Short,
    /// It also writes past the given memory.
    Overruns,
}

/// The path that GPU direct reports. The bytes always go through host memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ReportedPath {
    #[default]
    Posix,
    Driver,
    PeerToPeer,
}

/// An injected fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FaultSpec {
    /// The function, by its name in the manual.
    pub(crate) call: String,
    /// First affected call of that name, counted from 1.
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) blow: StubFault,
}

/// The whole specification. The text is items between commas:
///
/// | item | meaning |
/// |---|---|
/// | `gpus=4` | number of GPUs, at most those of the preset |
/// | `memory=2GiB` | memory of each GPU; 8 GiB without |
/// | `machine=mi250x` | preset of the simulator, or a machine file with its faults: `machine=DIR/mine.toml` |
/// | `driver=12040` | version of CUDA; later functions are missing |
/// | `hip=7` | major version of HIP; without it, from the file's name |
/// | `layout=r0000` | the only layout of HIP's properties that is filled, in every version |
/// | `no=cuFoo` | a function that cuGetProcAddress does not find, or that is not supported |
/// | `no=large-bar` | device memory of HIP that is not mapped for CPU threads |
/// | `nodevice`, `perm` | there is no GPU, or none may be opened |
/// | `exclusive` | another process holds every GPU |
/// | `nopeer` | no GPU addresses the memory of another |
/// | `fail=cuFoo@5:700` | the fifth call returns 700; without `@5` every call, with `@5+` the fifth and later ones |
/// | `oom=cuFoo@5` | the same with the out-of-memory status |
/// | `hang=`, `crash=`, `corrupt=` | the call never returns, kills the process, writes a wrong byte |
/// | `slow=cuFoo@5:20` | the call takes 20 ms longer |
/// | `hang=ncclAllReduce@2` | the call returns, and its operation in the stream never ends |
/// | `fail=ncclCommGetAsyncError@3:6` | the third query of a communicator returns error 6 |
/// | `short=cuFileRead@5` | the fifth read of a file moves half of its bytes |
/// | `gds=nvfs`, `gds=p2p` | the path that cuFile and hipFile report; the compatible one without |
/// | `overrun=nvmlFoo@5` | the call also writes past its buffer |
/// | `lookahead` | nvmlDeviceGetFieldValues reads the element behind its array, and fills it if it requests a link's error counter |
/// | `rdma=mlx5_0+mlx5_1` | names of RDMA devices; none without |
/// | `rank=1` | NCCL's calls count, and get faults, only in that rank of a communicator |
/// | `bytes=16` | operations of NCCL count, and get faults, only if a rank sends that many bytes |
/// | `once=FILE` | faults occur while the file does not exist, and create it |
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StubSpec {
    pub(crate) gpus: Option<usize>,
    pub(crate) memory: Option<Bytes>,
    pub(crate) machine: Option<String>,
    pub(crate) driver: Option<i32>,
    pub(crate) hip: Option<i32>,
    pub(crate) newer_layout: Option<bool>,
    pub(crate) missing: Vec<String>,
    pub(crate) no_device: bool,
    pub(crate) no_permission: bool,
    pub(crate) exclusive: bool,
    pub(crate) no_peer: bool,
    pub(crate) look_ahead: bool,
    pub(crate) rdma: Vec<String>,
    pub(crate) path: ReportedPath,
    pub(crate) rank: Option<i32>,
    pub(crate) bytes: Option<usize>,
    pub(crate) once: Option<PathBuf>,
    pub(crate) faults: Vec<FaultSpec>,
}

impl StubSpec {
    /// Reads the variable; the error names the invalid text.
    pub(crate) fn from_env() -> Result<Self, String> {
        std::env::var(VARIABLE).map_or(Ok(Self::default()), |text| text.parse())
    }

    /// Counts a call; returns its injected fault.
    pub(crate) fn strike(
        &self,
        calls: &mut BTreeMap<&'static str, u64>,
        call: &'static str,
    ) -> Option<StubFault> {
        let nth = calls.entry(call).or_default();
        *nth += 1;
        let struck = |f: &&FaultSpec| f.call == call && (f.first..=f.last).contains(nth);
        let blow = self.faults.iter().find(struck)?.blow.clone();
        match &self.once {
            // The process that creates the file gets the fault.
            Some(file) => std::fs::File::create_new(file).ok().map(|_| blow),
            None => Some(blow),
        }
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is no number"))
}

/// `cuFoo@5+` as name, first and last call.
fn calls(text: &str) -> Result<(String, u64, u64), String> {
    let (call, first, last) = match text.split_once('@') {
        None => (text, 1, u64::MAX),
        Some((call, nth)) => match nth.strip_suffix('+') {
            Some(from) => (call, number(from)?, u64::MAX),
            None => (call, number(nth)?, number(nth)?),
        },
    };
    if call.is_empty() {
        return Err("a fault needs the name of a function".to_owned());
    }
    Ok((call.to_owned(), first, last))
}

/// A fault's calls and the number behind the colon, if it takes one.
fn fault(kind: &str, value: &str) -> Result<FaultSpec, String> {
    let tail = || value.split_once(':').ok_or_else(|| format!("{kind}={value}: no ':NUMBER'"));
    let (calls_text, blow) = match kind {
        "fail" => (tail()?.0, StubFault::Fails(number(tail()?.1)?)),
        "slow" => (tail()?.0, StubFault::Slow(number(tail()?.1)?)),
        "oom" => (value, StubFault::Fails(crate::status::OUT_OF_MEMORY)),
        "hang" => (value, StubFault::Hangs),
        "crash" => (value, StubFault::Crashes),
        "corrupt" => (value, StubFault::Corrupts),
        "short" => (value, StubFault::Short),
        "overrun" => (value, StubFault::Overruns),
        _ => return Err(format!("{kind}= is not known")),
    };
    let (call, first, last) = calls(calls_text)?;
    Ok(FaultSpec { call, first, last, blow })
}

impl FromStr for StubSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut spec = Self::default();
        for item in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            let (key, value) = item.split_once('=').unwrap_or((item, ""));
            match key {
                "gpus" => spec.gpus = Some(number(value)?),
                "memory" => spec.memory = Some(value.parse().map_err(|_| format!("{item}?"))?),
                "machine" => spec.machine = Some(value.to_owned()),
                "driver" => spec.driver = Some(number(value)?),
                "hip" => spec.hip = Some(number(value)?),
                "layout" => {
                    spec.newer_layout = Some(match value {
                        "r0000" => false,
                        "r0600" => true,
                        _ => return Err(format!("{item}: r0000 or r0600")),
                    });
                }
                "no" => spec.missing.push(value.to_owned()),
                "nodevice" => spec.no_device = true,
                "perm" => spec.no_permission = true,
                "exclusive" => spec.exclusive = true,
                "nopeer" => spec.no_peer = true,
                "lookahead" => spec.look_ahead = true,
                "rdma" => spec.rdma = value.split('+').map(str::to_owned).collect(),
                "gds" => {
                    spec.path = match value {
                        "nvfs" => ReportedPath::Driver,
                        "p2p" => ReportedPath::PeerToPeer,
                        "posix" => ReportedPath::Posix,
                        _ => return Err(format!("{item}: nvfs, p2p or posix")),
                    };
                }
                "rank" => spec.rank = Some(number(value)?),
                "bytes" => spec.bytes = Some(number(value)?),
                "once" => spec.once = Some(value.into()),
                kind => spec.faults.push(fault(kind, value)?),
            }
        }
        Ok(spec)
    }
}

/// The runtime whose functions the library has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StubApi {
    Cuda,
    Hip,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn items_follow_the_table() {
        let spec: StubSpec =
            "gpus=4, memory=2GiB,fail=cuMemcpyAsync@120:700,hang=cuStreamSynchronize,\
                          crash=cuLaunchKernel@50+,slow=cuInit@1:20,oom=cuMemAlloc@3,no=cuFuncLoad,\
                          layout=r0000,nodevice,rank=3,bytes=16,once=struck,lookahead,\
                          overrun=nvmlDeviceGetPowerUsage@2"
                .parse()
                .unwrap();
        assert_eq!(spec.gpus, Some(4));
        assert_eq!(spec.memory, Some(Bytes::gib(2)));
        assert_eq!(spec.newer_layout, Some(false));
        assert_eq!(spec.missing, ["cuFuncLoad"]);
        assert!(spec.no_device && !spec.no_permission && spec.look_ahead);
        assert_eq!((spec.rank, spec.bytes), (Some(3), Some(16)));
        assert_eq!(spec.once, Some("struck".into()));
        let got: Vec<_> = spec.faults.iter().map(|f| (f.first, f.last, f.blow.clone())).collect();
        let all = u64::MAX;
        let (hangs, crashes) = (StubFault::Hangs, StubFault::Crashes);
        assert_eq!(
            got,
            [
                (120, 120, StubFault::Fails(700)),
                (1, all, hangs),
                (50, all, crashes),
                (1, 1, StubFault::Slow(20)),
                (3, 3, StubFault::Fails(2)),
                (2, 2, StubFault::Overruns),
            ]
        );
    }

    #[test]
    fn calls_are_counted_by_name_and_struck_once_if_so_ordered() {
        let folder = tempfile::tempdir().unwrap();
        let once = folder.path().join("struck");
        let spec: StubSpec = format!("fail=cuInit@2+:3,once={}", once.display()).parse().unwrap();
        let mut calls = BTreeMap::new();
        let mut strike = |call| spec.strike(&mut calls, call);
        assert_eq!([strike("cuInit"), strike("cuFree")], [None, None]);
        assert_eq!(strike("cuInit"), Some(StubFault::Fails(3)));
        assert_eq!(strike("cuInit"), None);
        // Another process, after the fault of the first one.
        assert_eq!(spec.strike(&mut BTreeMap::from([("cuInit", 1)]), "cuInit"), None);
    }

    #[test]
    fn invalid_items_are_named() {
        for (text, why) in [
            ("gpus=many", "'many' is no number"),
            ("fail=cuInit", "no ':NUMBER'"),
            ("fail=@1:2", "name of a function"),
            ("layout=new", "r0000 or r0600"),
            ("gds=fast", "nvfs, p2p or posix"),
            ("party=cuInit", "party= is not known"),
        ] {
            let error = text.parse::<StubSpec>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "[a-z0-9=@:+, ]{0,60}") {
            let _ = text.parse::<StubSpec>();
        }
    }
}
