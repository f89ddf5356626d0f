//! MPI as a transport between processes.

use std::path::Path;

use pathline_hal::{
    CallError, CallResult, DeviceClaim, ExchangeId, ExchangeTable, FlowPart, RankBarrier,
    RepeatMode, TransportPort,
};
use pathline_schema::{MpiBrand, READ_BACK, Severity, Transport, WireOp};

use super::abi::{self, MpiAbi, device_text};
use super::exchange::MpiExchange;
use super::launcher::{LaunchedRank, launched};
use super::rank_parts::{refused, sound, unfit_setting};
use super::search::{GPU_SWITCH, MpiCandidate, ProcessPlace, sibling_program};
use super::table::{Fns, MpiHandle};
use super::tool_variables::{ReadDepth, list_variables};
use super::world::MpiWorld;
use super::{one_sided, started, transport};
use pathline_host::clock::ClockOrigin;

/// Facts that an initialised library reports about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MpiFacts {
    /// This process's rank in the world of MPI.
    pub rank: u32,
    /// Number of processes of that world.
    pub size: u32,
    /// Rank on its host, among ranks with the same boot and host name.
    pub local_rank: u32,
    /// Number of ranks on its host.
    pub local_size: u32,
    /// Name and version: `Open MPI v5.0.11`.
    pub version: String,
    /// Its ABI: `MPICH's ABI`, `Open MPI's ABI`, `standard ABI`.
    pub abi: String,
    /// The transport of its messages: `pml ob1 over one of btl self, tcp, vader`, `device ch4:ofi`;
    /// `None` if the library does not report it.
    pub carried: Option<String>,
    /// Whether the library reports support for addresses of CUDA devices; `None` if it has no
    /// query. Only a transfer shows the truth: a layer below may support them unreported, or not at
    /// all.
    pub cuda: Option<DeviceClaim>,
    /// The same for ROCm devices.
    pub rocm: Option<DeviceClaim>,
}

/// MPI of this process. Dropping it finalises MPI, which waits for the other processes.
///
/// Its waits happen inside MPI and have no timeout: MPI cannot withdraw a posted request to a peer
/// that is gone. The coordinator ends the process.
pub struct MpiPort {
    inner: Box<dyn InnerPort>,
    facts: MpiFacts,
}

impl std::fmt::Debug for MpiPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MpiPort").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// The part that does not depend on the handle type.
trait InnerPort: TransportPort {
    fn facts(&self, abi: MpiAbi) -> MpiFacts;
    fn abort(&self, code: i32);
}

struct LivePort<H: MpiHandle> {
    world: MpiWorld<H>,
    exchanges: ExchangeTable<MpiExchange<H>>,
    clock: ClockOrigin,
    /// The transport of messages, if the library reports it.
    carried: Option<String>,
    /// The components of collectives, if the library reports them.
    collectives: Option<String>,
    /// Its control variables that the environment sets, with the values that it has read.
    settings: Vec<(String, String)>,
    /// Why no further MPI call is made: an error left operations in flight, whose memory is kept.
    broken: Option<String>,
}

impl MpiPort {
    /// Rank and size of MPI's world.
    pub fn rank_size(&self) -> (u32, u32) {
        (self.facts.rank, self.facts.size)
    }
    /// Facts that the library reports about itself.
    pub fn facts(&self) -> &MpiFacts {
        &self.facts
    }
    /// Ends all processes of the world at once, including this one.
    pub fn abort(&self, code: i32) {
        self.inner.abort(code);
    }
    /// Finalises MPI, which waits for the other processes.
    pub fn finish(self) {}
    /// Leaves MPI without finalising it: after an error MPI guarantees nothing, and finalising may
    /// wait for processes that are gone. Launchers then report this process as failed.
    pub fn abandon(self) {
        std::mem::forget(self);
    }
}

/// Finds an MPI library, initialises it and checks its results. `asked` is a file or a folder;
/// without it `PATHLINE_MPI` names one. The error gives the reason and what to do.
///
/// Collective over all processes of the launch, once in a process.
pub fn open_mpi(asked: Option<&Path>) -> std::result::Result<MpiPort, String> {
    let env = |name: &str| std::env::var(name).ok();
    if asked.is_none() && env(super::search::ASKED).is_some_and(|text| text == "none") {
        return Err("left out by PATHLINE_MPI=none".to_owned());
    }
    let Some(launch) = launched(&env) else {
        return Err("no launcher of MPI started this process; start it with mpirun -n N, srun or \
                    flux run"
            .to_owned());
    };
    let (candidate, report) = ProcessPlace { launched: Some(&launch), env: &env }.find(asked);
    let Some(candidate) = candidate else {
        let tried: Vec<String> =
            report.tried.iter().map(|t| format!("{}: {}", t.place.display(), t.why)).collect();
        return Err(format!(
            "no MPI library can be used ({}); load its module, or name the file or folder in \
             PATHLINE_MPI",
            tried.join("; ")
        ));
    };
    let abi = candidate.abi;
    let inner: Box<dyn InnerPort> = match abi {
        MpiAbi::Mpich => LivePort::begin(&candidate, abi::mpich())?,
        MpiAbi::Standard => LivePort::begin(&candidate, abi::standard())?,
        MpiAbi::OpenMpi => {
            // Its plug-ins may need its symbols without linking to it.
            let _ = pathline_dylib::SharedLibrary::open_for_all(&candidate.library.path);
            let constants = abi::open_mpi(&candidate.library)?;
            LivePort::begin(&candidate, constants)?
        }
    };
    let facts = inner.facts(abi);
    if let Some(why) = world_mismatch(&facts, &launch, &candidate) {
        return Err(why);
    }
    Ok(MpiPort { inner, facts })
}

/// Whether a library reports support for GPU memory, or for Cray MPICH the setting that decides it:
/// without `MPICH_GPU_SUPPORT_ENABLED=1` it supports none, and with it `MPI_Init` has found its
/// transport layer. Source: intro_mpi(3) of Cray MPICH.
fn cray_gpu_claim(
    reported: Option<DeviceClaim>,
    version: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<DeviceClaim> {
    if !version.to_uppercase().contains("CRAY MPICH") {
        return reported;
    }
    let setting = match env(GPU_SWITCH) {
        Some(value) => format!("{GPU_SWITCH}={}", value.trim()),
        None => format!("{GPU_SWITCH}, which is not set,"),
    };
    let is_supported = setting.ends_with("=1");
    match reported {
        None => Some(DeviceClaim { is_supported, source: setting }),
        Some(claim) => {
            Some(DeviceClaim { source: format!("{} ({setting})", claim.source), ..claim })
        }
    }
}

/// Why MPI's world differs from the launch; `None` if it does not. A library that cannot talk to
/// the launcher silently gives each process a world of one.
fn world_mismatch(
    facts: &MpiFacts,
    launch: &LaunchedRank,
    candidate: &MpiCandidate,
) -> Option<String> {
    let MpiFacts { rank, size, version, .. } = facts;
    let same = launch.size.is_none_or(|n| n == *size) && launch.rank == *rank;
    if same {
        return None;
    }
    let started = match launch.size {
        Some(n) => format!("rank {} of {n}", launch.rank),
        None => format!("rank {}", launch.rank),
    };
    let n = launch.size.unwrap_or(2);
    let how = match launch.by {
        "Slurm" => {
            "srun --mpi=pmix, or the --mpi of `srun --mpi=list` that it was built for".into()
        }
        _ => match sibling_program(&candidate.library.path, "mpirun") {
            Some(mpirun) => format!("{} -n {n}", mpirun.display()),
            None => {
                format!("the mpirun of {version}, or name the launcher's library in PATHLINE_MPI")
            }
        },
    };
    Some(format!(
        "{version} reports rank {rank} of {size}, and {by} started {started}: the library \
         and the launcher do not know each other; start with {how}",
        by = launch.by
    ))
}

impl<H: MpiHandle> LivePort<H> {
    fn begin(
        candidate: &MpiCandidate,
        constants: abi::MpiConstants<H>,
    ) -> std::result::Result<Box<dyn InnerPort>, String> {
        let fns = Fns::bind(&candidate.library)?;
        let (version, path) = (candidate.version.clone(), candidate.library.path.clone());
        let world = MpiWorld::begin(fns, constants, version, path)?;
        let several_hosts = world.node.1 < world.size;
        let (carried, collectives) = match candidate.abi {
            MpiAbi::OpenMpi => {
                let choice = transport::of_open_mpi(&candidate.library, several_hosts);
                (choice.messages, choice.collectives)
            }
            MpiAbi::Mpich | MpiAbi::Standard => {
                let text = abi::version_text(&candidate.library);
                (text.and_then(|text| device_text(&text)), None)
            }
        };
        let settings = read_back(candidate, &mut std::env::vars());
        let (exchanges, clock, broken) = (ExchangeTable::default(), ClockOrigin::now(), None);
        let port = Self { world, exchanges, clock, carried, collectives, settings, broken };
        Ok(Box::new(port))
    }

    /// An error if an earlier one left operations in flight.
    fn usable(&self, call: &str) -> CallResult<()> {
        match &self.broken {
            None => Ok(()),
            Some(why) => Err(CallError::unsupported(call, "mpi", why)
                .or_try("start pathline again; --resume goes on with the same run")),
        }
    }
}

impl<H: MpiHandle> InnerPort for LivePort<H> {
    fn facts(&self, abi: MpiAbi) -> MpiFacts {
        let (cuda, rocm) = self.world.device_claims();
        let env = |name: &str| std::env::var(name).ok();
        let (cuda, rocm) = (
            cray_gpu_claim(cuda, &self.world.version, &env),
            cray_gpu_claim(rocm, &self.world.version, &env),
        );
        let number = |n: i32| u32::try_from(n).unwrap_or(0);
        MpiFacts {
            rank: number(self.world.rank),
            size: number(self.world.size),
            local_rank: number(self.world.node.0),
            local_size: number(self.world.node.1),
            version: self.world.version.clone(),
            abi: abi.to_string(),
            carried: self.carried.clone(),
            cuda,
            rocm,
        }
    }
    fn abort(&self, code: i32) {
        self.world.abort(code);
    }
}

impl<H: MpiHandle> TransportPort for LivePort<H> {
    fn via(&self) -> Transport {
        Transport::Mpi
    }

    fn library(&self) -> String {
        format!("{}, {}", self.world.version, self.world.path.display())
    }

    fn bind(&mut self, parts: &[FlowPart], pace: RepeatMode) -> CallResult<(ExchangeId, Vec<u8>)> {
        self.usable("bind")?;
        if pace == RepeatMode::Graph {
            return Err(CallError::unsupported("bind", "mpi", "MPI records no graphs"));
        }
        for part in parts {
            let f = &self.world.fns;
            let missing = one_sided::missing(f, part).or_else(|| started::missing(f, part));
            sound(part, self.world.rank, self.world.size, missing)?;
            let env = |name: &str| std::env::var(name).ok();
            let unfit = part
                .wire
                .switch
                .and_then(|setting| unfit_setting(setting, self.carried.as_deref(), &env));
            if let Some((why, way_out)) = unfit {
                return Err(refused(part, why).or_try(way_out));
            }
            let lone = matches!(
                part.wire.op,
                WireOp::Overlapped { .. }
                    | WireOp::PersistentPing
                    | WireOp::PersistentSend { .. }
                    | WireOp::PersistentGroup { .. }
            );
            if lone && parts.len() > 1 {
                let why = "started and persistent operations are measured one at a time";
                return Err(refused(part, why));
            }
        }
        let id = self.exchanges.insert(MpiExchange::new(parts, pace));
        Ok((id, self.world.version.as_bytes().to_vec()))
    }

    fn join(&mut self, id: ExchangeId, offers: &[Vec<u8>]) -> CallResult<()> {
        self.usable("join")?;
        let ours = self.world.version.as_bytes();
        // A rank that is gone offers nothing.
        let mut present = offers.iter().enumerate().filter(|(_, offer)| !offer.is_empty());
        if let Some((rank, other)) = present.find(|(_, offer)| offer.as_slice() != ours) {
            let reason = format!(
                "rank {rank} has {}, rank {} has {}",
                String::from_utf8_lossy(other),
                self.world.rank,
                self.world.version
            );
            return Err(CallError::new(Severity::Sticky, "join", "mpi", reason)
                .or_try("load the same MPI on every host, or name it in PATHLINE_MPI"));
        }
        self.exchanges.bound("join", id)?.join(&mut self.world)
    }

    fn run(
        &mut self,
        id: ExchangeId,
        reps: u64,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>> {
        self.usable("run")?;
        let exchange = self.exchanges.bound("run", id)?;
        let ran = exchange.run(&self.world, self.clock, reps, barrier);
        if let (Err(error), Some(why)) = (&ran, exchange.in_use()) {
            self.broken = Some(format!("{why} since {error}"));
            self.world.abandoned = true;
        }
        ran
    }

    fn engine(&self, id: ExchangeId) -> String {
        let exchange = self.exchanges.get(id);
        let calls = exchange.map(|e| e.calls().join(", ")).unwrap_or_default();
        let chosen = chosen();
        let with = if chosen.is_empty() { String::new() } else { format!(" with {chosen}") };
        let carried = self.carried.as_deref().unwrap_or("transport not reported");
        let is_collective = exchange.is_some_and(MpiExchange::is_collective);
        let by = self.collectives.as_ref().filter(|_| is_collective);
        let by = by.map(|text| format!("; {text}")).unwrap_or_default();
        let read = read_back_text(&self.settings);
        format!("{}: {calls}{with}; {carried}{by}{read}", self.world.version)
    }

    fn release(&mut self, id: ExchangeId) -> CallResult<()> {
        let mut exchange = self.exchanges.remove(id)?;
        let released = exchange.release(&self.world);
        if released.is_err() {
            // The buffer of replies is leaked with it.
            std::mem::forget(exchange);
        }
        released
    }
}

/// The control variables of a library that variables of the environment set, by the names of those, with the
/// values that the library has. Names that it does not list are left out.
fn read_back(
    candidate: &MpiCandidate,
    env: &mut dyn Iterator<Item = (String, String)>,
) -> Vec<(String, String)> {
    let brand = MpiBrand::of_version(&candidate.version);
    let asked: Vec<(String, String)> =
        env.filter_map(|(name, _)| Some((brand.control_variable(&name)?, name))).collect();
    if asked.is_empty() {
        return Vec::new();
    }
    let depth = |name: &str| match asked.iter().any(|(control, _)| control == name) {
        true => ReadDepth::Value,
        false => ReadDepth::Name,
    };
    let listed = list_variables(&candidate.library, candidate.abi, &depth).unwrap_or_default();
    let value = |(control, name): (String, String)| {
        let found = listed.iter().find(|variable| variable.name == control)?;
        Some((name, found.value.clone()))
    };
    let mut all: Vec<(String, String)> = asked.into_iter().filter_map(value).collect();
    all.sort_unstable();
    all
}

/// The same as text: `; MPI_T reads A=1 B=ring`. Blanks and `;` in values are replaced, so that it can be parsed.
fn read_back_text(settings: &[(String, String)]) -> String {
    let plain = |value: &str| value.replace([' ', ';', '|'], "_");
    let all: Vec<String> =
        settings.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
    if all.is_empty() { String::new() } else { format!("{READ_BACK}{}", all.join(" ")) }
}

/// Environment variables by which users choose a transport, as they are set.
fn chosen() -> String {
    const STARTS: &[&str] = &[
        "OMPI_MCA_pml",
        "OMPI_MCA_btl",
        "OMPI_MCA_mtl",
        "OMPI_MCA_osc",
        "OMPI_MCA_coll",
        "OMPI_MCA_smsc",
        "MPIR_CVAR_",
        "MPICH_",
        "I_MPI_FABRICS",
        "I_MPI_SHM",
        "I_MPI_OFFLOAD",
        "I_MPI_ADJUST",
        "UCX_",
        "FI_PROVIDER",
        "MV2_",
    ];
    let mut set: Vec<String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| STARTS.iter().any(|start| name.starts_with(start)))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    set.sort_unstable();
    set.join(" ")
}

impl TransportPort for MpiPort {
    fn via(&self) -> Transport {
        self.inner.via()
    }
    fn library(&self) -> String {
        format!("{}, {}", self.inner.library(), self.facts.abi)
    }
    fn device_claim(&self, vendor: &str) -> Option<DeviceClaim> {
        match vendor {
            "nvidia" => self.facts.cuda.clone(),
            "amd" => self.facts.rocm.clone(),
            _ => None,
        }
    }
    fn bind(&mut self, parts: &[FlowPart], pace: RepeatMode) -> CallResult<(ExchangeId, Vec<u8>)> {
        self.inner.bind(parts, pace)
    }
    fn join(&mut self, id: ExchangeId, offers: &[Vec<u8>]) -> CallResult<()> {
        self.inner.join(id, offers)
    }
    fn run(
        &mut self,
        id: ExchangeId,
        reps: u64,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>> {
        self.inner.run(id, reps, barrier)
    }
    fn engine(&self, id: ExchangeId) -> String {
        self.inner.engine(id)
    }
    fn release(&mut self, id: ExchangeId) -> CallResult<()> {
        self.inner.release(id)
    }
}

#[cfg(test)]
mod tests;
