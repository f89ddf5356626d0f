//! Units of a node with the resources that flows take of them.

use std::collections::BTreeMap;

use pathline_schema::{GpuCaps, LinkKind, Rate};

use crate::routes::LinkBundle;
use crate::storage::StoreModel;

/// One direction of a bundle of links.
#[derive(Debug, Clone)]
pub(crate) struct LinkDirection {
    /// Its resource; none if its peak is not known.
    pub one_way: Option<u32>,
    /// Both directions together. What a flow puts on either counts here, so that two opposite flows
    /// limit each other, while a flow alone is limited by its own direction. (Acknowledgements are not
    /// charged to the other direction itself: under max-min fairness a flow would then wait there for a
    /// share as large as those of the flows whose payload fills it, though it wants a tenth of that.)
    pub both: Option<u32>,
    pub bundle: LinkBundle,
}

/// A GPU's link to the host.
#[derive(Debug, Clone)]
pub(crate) struct HostPort {
    /// NUMA domain that it hangs on.
    pub home: Option<u32>,
    /// `xGMI gpu0-numa3`, `PCIe gpu0-numa0`.
    pub name: String,
    pub kind: LinkKind,
    pub peak: Option<Rate>,
    /// At the highest speed and width of the link.
    pub hard: Option<Rate>,
    pub into_gpu: Option<u32>,
    pub out_of_gpu: Option<u32>,
    pub both: Option<u32>,
}

/// A GPU, its resources and what it is made of.
#[derive(Debug, Clone)]
pub(crate) struct GpuNode {
    pub memory: Option<u32>,
    pub memory_peak: Option<Rate>,
    pub peer_engines: Option<u32>,
    pub host_engines: Option<u32>,
    pub port: Option<HostPort>,
    pub compute_units: u32,
    /// Time of all compute units, for grids that fill them; a resource of capacity 1 whose uses are in ns
    /// for a byte of payload.
    pub units: Option<u32>,
    /// Fused multiply-adds of all compute units, in payload of a kernel of single precision.
    pub arithmetic: Option<u32>,
    /// Share of their rate that its copy engines reach; 1 unless they are faulty.
    pub engine_share: f64,
    /// Lanes of its PCIe link, where it has one.
    pub lanes: Option<u32>,
    /// Capabilities of its runtime.
    pub caps: &'static GpuCaps,
    /// Row and column in a matrix of latencies.
    pub order: usize,
    /// Queues of its copy engines, if they serve one stream at a time: to other GPUs, in, out.
    pub queues: Option<[u32; 3]>,
}

/// The request that a store's resource of requests is counted in.
pub(crate) const PLAIN_REQUEST: f64 = 4096.0;

/// A store and its resources.
#[derive(Debug, Clone)]
pub(crate) struct StoreNode {
    pub store: StoreModel,
    /// Bytes, as reads.
    pub bytes: Option<u32>,
    /// Requests, as reads of 4 KiB.
    pub requests: Option<u32>,
}

impl StoreNode {
    /// How the resources of store `n` are called, with what they can carry.
    pub(crate) fn resources(n: usize, store: &StoreModel) -> [(String, Rate); 2] {
        let requests = store.most_requests(false).0 * PLAIN_REQUEST / 1e9;
        [
            (format!("store{n}, bytes as reads"), store.ceiling(false).0),
            (format!("store{n}, requests as reads of 4 KiB"), Rate(requests)),
        ]
    }
}

/// A NUMA domain and its resources.
#[derive(Debug, Clone)]
pub(crate) struct NumaNode {
    pub memory: Option<u32>,
    pub memory_peak: Option<Rate>,
    /// Its CPUs; 0 if unknown.
    pub cpus: usize,
    /// Distance to each domain, by its number.
    pub distances: BTreeMap<u32, u32>,
}
