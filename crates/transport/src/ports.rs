//! Every way between processes that this host may have, in one table.

use std::path::PathBuf;
use std::time::Duration;

use pathline_dylib::LibraryReport;
use pathline_hal::{Machine, TransportPort};
use pathline_schema::{Rank, Transport};

use crate::{CclAsked, mpi, open_ccl, shm, ucx};
use pathline_gpu::{LibraryRequest, runtime};

/// What a port may need to know of the process that it is opened in.
#[derive(Debug)]
pub struct PortContext<'m> {
    /// The machine that is open here.
    pub machine: &'m Machine,
    /// This process's number.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// Whether a launcher started it, so that MPI's start finds the others.
    pub launched: bool,
    /// Where libraries are.
    pub libraries: LibraryRequest,
}

/// A way that is open, or why it is not there and the way out.
pub type OpenedPort<'m> = Result<Box<dyn TransportPort + 'm>, String>;

/// Opens every way, in display order. `before` is asked first: its error leaves a way out, for that
/// reason, with no library of it touched.
pub fn ports<'m>(
    context: &PortContext<'m>,
    before: &mut dyn FnMut(Transport) -> Result<(), String>,
) -> Vec<(Transport, OpenedPort<'m>)> {
    // Its library is MPI's.
    let own = Transport::ALL.iter().copied().filter(|via| via.carrier() == *via);
    own.map(|via| (via, before(via).and_then(|()| open(via, context)))).collect()
}

/// The longest that a copy of ours waits for another process to go on. Whoever started the ranks
/// ends a case sooner; this ends ranks that nobody looks after any more.
const PATIENCE: Duration = Duration::from_secs(300);

/// The longest that a GPU or its peers may take to answer beyond what the bytes take. Whoever started
/// the ranks gives a step a little more, so that what hangs is named by who knows it.
const ANSWERED: Duration = Duration::from_secs(12);

/// The UCX library that would be taken, without anything being started.
pub fn ucx_library() -> LibraryReport {
    ucx::library(named_ucx().as_deref())
}

fn named_ucx() -> Option<PathBuf> {
    std::env::var_os("PATHLINE_UCX").map(PathBuf::from)
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
            // Bound for itself: its threads each have a table of functions of their own.
            let runtime = runtime(&context.machine.topology, &context.libraries);
            let asked = CclAsked { patience: ANSWERED, ..CclAsked::default() };
            open_ccl(&runtime, &asked)
        }
        Transport::Ucx => open_ucx().map(|port| Box::new(port) as Box<dyn TransportPort>),
        Transport::Shm => shm::shm_port(me, PATIENCE),
        Transport::Cma => shm::cma_port(me, PATIENCE),
        Transport::Xpmem => shm::xpmem_port(me, PATIENCE),
    }
}
