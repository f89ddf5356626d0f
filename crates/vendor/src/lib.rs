//! The live host, its GPU runtime and the real clock. All unsafe code that ships is here, behind
//! the traits of `hal`: memory of chosen pages on a chosen NUMA domain, threads pinned to cores,
//! the loops they run, each in the instructions that it is named after, and the GPU runtimes.
#![allow(unsafe_code)]

mod ccl;
mod chase;
mod clock;
mod conditions;
mod cpus;
mod credentials;
mod env_overlay;
mod files;
mod gate;
mod gpu;
mod limits;
mod live;
mod loops;
mod memory;
mod monitor;
mod mpi;
mod pattern;
mod ports;
mod shm;
mod spread;
pub mod storage;
mod team;
mod ucx;
mod verbs;

pub use ccl::{CclAsked, open_ccl};
pub use cpus::keep_to_share;
pub use credentials::{PeerCredentials, peer_credentials};
pub use gpu::{
    COMPILE_COMMAND, CompileMode, GpuRuntime, LibraryRequest, RuntimeFamily, cache_base,
    chosen_family, collectives_libraries, compilers, kernel_cache, other_runtime, runtime,
    serve_compilations, writable,
};
pub use live::{LiveMachine, live, live_with, open, open_with};
pub use monitor::{ManagementLibrary, management};
pub use mpi::{LaunchedRank, MpiFacts, MpiPort, launched, mpi_launchers, mpi_library, open_mpi};
pub use pathline_dylib::{LibraryReport, TriedPlace};
pub use ports::{OpenedPort, PortContext, ports, ucx_library};
pub use shm::{MeetingRoom, SharedMeeting, cma_port, shm_port, xpmem_port};
pub use verbs::rdma_library;
