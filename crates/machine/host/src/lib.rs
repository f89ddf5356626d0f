//! The live host: memory of chosen page sizes on a chosen NUMA domain, threads pinned to cores, CPU
//! loops that each use the instructions in their name, and the real clock.
#![allow(unsafe_code)]

pub mod chase;
pub mod clock;
mod conditions;
pub mod cpus;
mod credentials;
pub mod files;
pub mod gate;
pub mod gate_table;
pub mod limits;
mod live_host;
pub mod loops;
mod machine_load;
pub mod memory;
mod page_domains;
pub mod pattern;
pub mod round_pool;
pub mod spread;
mod stored_check;
mod team;
mod thread_clock;
mod thread_piece;
mod traffic;

pub use cpus::restrict_to_share;
pub use credentials::{PeerCredentials, peer_credentials};
pub use live_host::{FindRegistrar, LiveHost};
pub use machine_load::own_processes;
pub use page_domains::first_touch_domains;
pub use traffic::SysfsTraffic;
