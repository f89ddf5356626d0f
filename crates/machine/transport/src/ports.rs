//! All transports between processes that this host may have.

use std::path::PathBuf;
use std::time::Duration;

use pathline_dylib::LibraryReport;
use pathline_hal::{Machine, TransportPort};
use pathline_schema::{Rank, Transport};

use crate::{CclAsked, mpi, open_ccl, shm, ucx};
use pathline_gpu::{LibraryRequest, runtime};

/// What opening a port needs to know about this process.
#[derive(Debug)]
pub struct PortContext<'m> {
    /// The machine opened in this process.
    pub machine: &'m Machine,
    /// Rank of this process.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// Whether a launcher started it, so that MPI can find the others.
    pub launched: bool,
    /// Where to find libraries.
    pub libraries: LibraryRequest,
}

/// An open transport, or why it is missing and what to do.
pub type OpenedPort<'m> = Result<Box<dyn TransportPort + 'm>, String>;

/// Opens every transport, in display order. `before` is called first: its error leaves out a
/// transport for that reason, without loading its library.
pub fn ports<'m>(
    context: &PortContext<'m>,
    before: &mut dyn FnMut(Transport) -> Result<(), String>,
) -> Vec<(Transport, OpenedPort<'m>)> {
    // Its library is MPI's.
    let own = Transport::ALL.iter().copied().filter(|via| via.carrier() == *via);
    own.map(|via| (via, before(via).and_then(|()| open(via, context)))).collect()
}

/// Timeout for another process during pathline's own copies. The coordinator ends a case sooner;
/// this ends ranks without a coordinator.
const PEER_TIMEOUT: Duration = Duration::from_secs(300);

/// Timeout for a GPU and its peers beyond the time of the bytes. The coordinator allows a step a
/// little more, so the process that knows the cause reports it.
const GPU_TIMEOUT: Duration = Duration::from_secs(12);

/// The UCX library that a run would use; starts nothing.
pub fn ucx_library() -> LibraryReport {
    ucx::library(named_ucx().as_deref())
}

fn named_ucx() -> Option<PathBuf> {
    std::env::var_os("PATHLINE_UCX").map(PathBuf::from)
}

/// UCX of this process. `PATHLINE_UCX` replaces the search.
///
/// # Errors
/// Why it cannot be used, and what to do.
pub fn ucx_port() -> OpenedPort<'static> {
    open_ucx().map(|port| Box::new(port) as Box<dyn TransportPort>)
}

fn open_ucx() -> Result<ucx::UcxPort, String> {
    ucx::open(named_ucx().as_deref())
}

fn open<'m>(via: Transport, context: &PortContext<'m>) -> OpenedPort<'m> {
    let me = Rank(context.rank);
    match via {
        Transport::Mpi | Transport::MpiStaged => {
            mpi::open_mpi(None).map(|port| Box::new(port) as Box<dyn TransportPort>)
        }
        Transport::Ccl => {
            // A separate binding: its threads each have their own table of functions.
            let runtime = runtime(&context.machine.topology, &context.libraries);
            let asked = CclAsked { timeout: GPU_TIMEOUT, ..CclAsked::default() };
            open_ccl(&runtime, &asked)
        }
        Transport::Ucx => ucx_port(),
        Transport::Shm => shm::shm_port(me, PEER_TIMEOUT),
        Transport::Cma => shm::cma_port(me, PEER_TIMEOUT),
        Transport::Xpmem => shm::xpmem_port(me, PEER_TIMEOUT),
    }
}
