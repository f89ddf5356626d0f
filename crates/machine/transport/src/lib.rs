//! Transports between processes: MPI, NCCL and RCCL, UCX, shared memory and RDMA adapters. Every
//! library is bound at run time.
#![allow(unsafe_code)]

mod c_functions;
mod ccl;
mod env_overlay;
mod mpi;
mod ports;
mod shm;
mod ucx;
mod verbs;

pub use ccl::{CclAsked, collectives_libraries, open_ccl};
pub use mpi::{
    LaunchedRank, MpiFacts, MpiPort, launched, mpi_controls, mpi_launchers, mpi_library, open_mpi,
};
pub use ports::{OpenedPort, PortContext, ports, ucx_library, ucx_port};
pub use shm::{BarrierSegment, SharedBarrier, cma_port, shm_port, xpmem_port};
pub use verbs::{VerbsLibrary, rdma_library};
