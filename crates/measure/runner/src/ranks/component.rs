//! Components that a rank opens, any of which may kill or hang the process that opens it.

use std::time::Duration;

use pathline_dylib::LibraryReport;
use pathline_schema::Transport;
use serde::{Deserialize, Serialize};

use crate::choice::LibraryChoice;
use crate::probe::{self, LibraryProbe, ProbeError, ProbeLimits, TRANSPORT_TIMEOUT};

/// Libraries that a rank opens in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RankComponent {
    /// NVML and the GPU runtime.
    Gpus,
    /// The library behind a transport.
    Transport(Transport),
}

impl RankComponent {
    /// Whether a library is behind it, which may be to blame where a process is lost over it.
    pub(super) const fn is_library(self) -> bool {
        !matches!(self, Self::Transport(Transport::Shm | Transport::Cma))
    }

    /// In words, for reasons and errors.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gpus => "NVML and the GPU runtime",
            Self::Transport(Transport::Mpi | Transport::MpiStaged) => "the MPI library",
            Self::Transport(Transport::Ccl) => "NCCL or RCCL",
            Self::Transport(Transport::Ucx) => "libucp",
            Self::Transport(Transport::Shm) => "shared memory",
            Self::Transport(Transport::Cma) => "copies by the kernel",
            Self::Transport(Transport::Xpmem) => "libxpmem",
        }
    }

    /// The remedy for one that kills processes.
    pub(super) const fn way_out(self) -> &'static str {
        match self {
            Self::Transport(Transport::Mpi | Transport::MpiStaged) => {
                "name another one in PATHLINE_MPI, or leave MPI out with PATHLINE_MPI=none"
            }
            Self::Transport(Transport::Ccl) => "name another one in PATHLINE_NCCL",
            Self::Transport(Transport::Ucx) => "name another one in PATHLINE_UCX",
            Self::Gpus => "`pathline doctor` shows which library it is",
            Self::Transport(Transport::Shm | Transport::Cma | Transport::Xpmem) => {
                "see the kernel's log"
            }
        }
    }
}

/// Components that ranks leave out, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LostLibraries(Vec<(RankComponent, String)>);

impl LostLibraries {
    /// Leaves it out. The first reason stays.
    pub(super) fn add(&mut self, component: RankComponent, why: impl Into<String>) {
        if self.why(component).is_none() {
            self.0.push((component, why.into()));
        }
    }

    /// Leaves out what the other one does, too.
    pub(super) fn extend(&mut self, other: &Self) {
        other.0.iter().for_each(|(component, why)| self.add(*component, why));
    }

    /// Why it is left out; none if it is not. NCCL and RCCL need the GPU runtime.
    pub(super) fn why(&self, component: RankComponent) -> Option<&str> {
        let direct = |wanted| self.0.iter().find(|(c, _)| *c == wanted).map(|(_, w)| w.as_str());
        let needs_gpus = component == RankComponent::Transport(Transport::Ccl);
        direct(component).or_else(|| needs_gpus.then(|| direct(RankComponent::Gpus)).flatten())
    }

    /// Transports whose library ends or holds a process that opens it, each tried in a child of this
    /// process, all at once. MPI is opened, and tried, only where a launcher has started ranks.
    pub(super) fn broken_transports(
        libraries: &LibraryChoice,
        launched: bool,
        limit: Option<Duration>,
    ) -> Self {
        let timeout = limit.map_or(TRANSPORT_TIMEOUT, |limit| limit.min(TRANSPORT_TIMEOUT));
        let limits = ProbeLimits::within(timeout);
        let with_mpi = launched && std::env::var_os("PATHLINE_MPI").is_none_or(|v| v != "none");
        let mut all = vec![(LibraryProbe::Ucx, Transport::Ucx)];
        all.extend(with_mpi.then_some((LibraryProbe::Mpi, Transport::Mpi)));
        let ask = |probe| probe::ask::<LibraryReport>(probe, libraries, limits);
        let answers: Vec<_> = std::thread::scope(|scope| {
            let started: Vec<_> =
                all.iter().map(|&(probe, via)| (via, scope.spawn(move || ask(probe)))).collect();
            started.into_iter().map(|(via, thread)| (via, thread.join())).collect()
        });
        let mut left_out = Self::default();
        for (via, answer) in answers {
            // Where no process can be started to try it, the rank itself finds out.
            if let Ok(Err(error @ ProbeError::Lost(_))) = answer {
                let component = RankComponent::Transport(via);
                left_out.add(component, format!("opening {error}; {}", component.way_out()));
            }
        }
        left_out
    }
}
