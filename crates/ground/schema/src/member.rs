//! The processes of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{GpuIdentity, MemKind, Place, Rank, Transport, Unit};

/// A process that takes part in a run, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RankMember {
    /// Its number.
    pub rank: Rank,
    /// Name of its host.
    pub host: String,
    /// Number of the run's host; 0 is the host of rank 0.
    pub node: u32,
    /// Its process number there; 0 for a model's.
    pub pid: u32,
    /// Its GPUs by the numbers of its host, first the one that its cases use. All GPUs of the host,
    /// if it is the only process there.
    pub gpus: Vec<u32>,
    /// The identity of each of `gpus`, in the same order, whatever number the process has for it.
    /// Empty where addresses are unknown, for a model, and in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_identities: Vec<GpuIdentity>,
    /// The first of them, and the number on its host: `NVIDIA H200 of 140GiB, 8 on its host`;
    /// `None` without one, for a model, and in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// The NUMA domain that it runs on.
    pub numa: u32,
    /// Logical CPUs that it may run on, as the kernel writes lists: `0-3,8`.
    pub cpus: String,
    /// The library of each transport that it has, with its version.
    pub ways: BTreeMap<Transport, String>,
    /// Why it lacks the others, and the remedy.
    pub without: BTreeMap<Transport, String>,
    /// Transports whose library takes host memory only, and how that was found out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_only: BTreeMap<Transport, String>,
    /// Transports whose library takes memory of GPUs, and how that was found out. Absent in runs of
    /// versions that did not record it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub device_memory: BTreeMap<Transport, String>,
}

impl RankMember {
    /// Its host memory.
    pub fn host_memory(&self, mem: MemKind) -> Place {
        Place { rank: self.rank, unit: Unit::Numa(self.numa), mem }
    }
    /// The identity of one of its GPUs, by its own number for it.
    pub fn identity(&self, gpu: u32) -> Option<&GpuIdentity> {
        let nth = self.gpus.iter().position(|own| *own == gpu)?;
        self.gpu_identities.get(nth)
    }
    /// Memory of its first GPU, if it has one.
    pub fn gpu_memory(&self, mem: MemKind) -> Option<Place> {
        let gpu = *self.gpus.first()?;
        Some(Place { rank: self.rank, unit: Unit::Gpu(gpu), mem })
    }
}
