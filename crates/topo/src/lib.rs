//! Discovery: from a live host, or a file about one, to a [`Topology`](pathline_schema::Topology).
//!
//! Only [`HostSnapshot::collect`] reads the plain files of `/proc` and `/sys`; other knowledge of a
//! host is added to them as files. Everything after it is pure, so a snapshot saved on one machine
//! gives the same picture on another. All inputs are taken as hostile: sizes, depths and counts are
//! bounded, and errors name file, line and the expected form.

mod assemble;
mod block;
mod cache;
mod collect;
mod error;
mod host;
mod hwloc;
mod input;
mod kfd;
mod links;
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
mod snapshot;
mod vendors;
mod warn;
mod xml;

use std::path::Path;

pub use assemble::{from_snapshot, validate};
pub use error::TopoError;
pub use input::{from_path, from_text};
pub use nccl_write::write_nccl_xml;
pub use snapshot::HostSnapshot;

/// The host that this runs on, and more plain files about it: paths and texts, as the management
/// library of a vendor gives them (`nvml/PCI-ADDRESS/nvlink`).
pub fn live(more: impl IntoIterator<Item = (String, String)>) -> HostSnapshot {
    let mut snapshot = HostSnapshot::collect(Path::new("/"));
    for (path, text) in more {
        snapshot.insert(path, text);
    }
    snapshot
}
