//! Discovery: reads a live host or a file about one into a [`Topology`](pathline_schema::Topology).
//!
//! Only [`HostSnapshot::collect`] and [`HostSnapshot::add_settings`] read `/proc`, `/sys` and the kernel's log;
//! further facts about a host are added as files. Everything after it is pure, so a saved snapshot gives the same topology on every
//! machine. All inputs count as hostile: sizes, depths and counts are bounded, and errors name
//! file, line and expected form.

mod assemble;
mod block;
mod cache;
mod collect;
mod error;
mod host;
mod hwloc;
mod hwloc_links;
mod input;
mod kernel_log;
mod kfd;
mod link_matrix;
mod links;
mod matrix_topology;
mod nccl;
mod nccl_write;
mod net;
mod numa;
mod nvidia;
mod nvlink;
mod parse;
mod pci;
mod peaks;
mod save;
mod settings;
mod snapshot;
mod vendors;
mod warn;
mod xml;

use std::path::Path;

pub use assemble::{from_snapshot, validate};
pub use error::TopoError;
pub use input::{from_path, from_text, snapshot_from_path};
pub use kernel_log::{EVENTS, keep_events};
pub use link_matrix::{LinkMatrix, PEER_STATUSES, read_amd_matrix, read_nvidia_matrix};
pub use nccl_write::write_nccl_xml;
pub use parse::without_colours;
pub use snapshot::HostSnapshot;

/// A snapshot of this host, with further files: paths and texts, such as `nvml/PCI-ADDRESS/nvlink`
/// from a vendor's management library.
pub fn live(more: impl IntoIterator<Item = (String, String)>) -> HostSnapshot {
    let mut snapshot = HostSnapshot::collect(Path::new("/"));
    for (path, text) in more {
        snapshot.insert(path, text);
    }
    snapshot
}
