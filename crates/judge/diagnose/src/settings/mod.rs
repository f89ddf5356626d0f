//! Settings of a node that slow every path alike, so that no comparison of peers shows them: of the kernel, the
//! PCIe fabric, the GPUs and the adapters; and versions of software with known defects. From a snapshot; nothing is
//! opened and no byte moved.

mod adapters;
mod config_space;
mod direct;
mod environment;
mod gpu_links;
mod gpus;
mod kernel;
mod kernel_log;
mod pcie;
mod processes;
mod seen;
mod software;
mod stated_gpu;
mod version;

pub use kernel_log::{KernelEvent, judge_kernel_log};
use pathline_schema::{NodeVerdict, Topology};
use pathline_topo::HostSnapshot;
use serde::Serialize;

/// What was found of one setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingCheck {
    /// `PCIe`, `GPUs`, `kernel`, `memory`, `adapters`, `processes`, `software`.
    pub group: &'static str,
    /// The setting and the part that has it: `numa_balancing`, `ACS of 0000:40:01.0`.
    pub what: String,
    /// Its value; why it is not known, if it could not be read.
    pub value: String,
    /// UNDECIDED if it could not be read.
    pub state: NodeVerdict,
    /// Whom it slows and by how much, a clause; empty if nothing is wrong.
    pub slows: String,
    /// How it is changed, or read.
    pub remedy: String,
    /// The document that says so.
    pub source: &'static str,
}

impl SettingCheck {
    fn new(group: &'static str, what: impl Into<String>, value: impl Into<String>) -> Self {
        let (what, value) = (what.into(), value.into());
        let (slows, remedy) = (String::new(), String::new());
        Self { group, what, value, state: NodeVerdict::Ok, slows, remedy, source: "" }
    }

    fn suspect(
        self,
        slows: impl Into<String>,
        remedy: impl Into<String>,
        source: &'static str,
    ) -> Self {
        let (slows, remedy) = (slows.into(), remedy.into());
        Self { state: NodeVerdict::Suspect, slows, remedy, source, ..self }
    }

    /// A part that is faulty or of no use as it is.
    fn fail(
        self,
        slows: impl Into<String>,
        remedy: impl Into<String>,
        source: &'static str,
    ) -> Self {
        Self { state: NodeVerdict::Fail, ..self.suspect(slows, remedy, source) }
    }

    fn unread(self, remedy: impl Into<String>) -> Self {
        Self { state: NodeVerdict::Undecided, remedy: remedy.into(), ..self }
    }
}

/// All settings of a node that are known here, in display order. `topology` is that of the snapshot.
pub fn check_settings(snapshot: &HostSnapshot, topology: &Topology) -> Vec<SettingCheck> {
    let mut all = pcie::check(snapshot, topology);
    all.extend(seen::check(snapshot, topology));
    let stated = stated_gpu::stated_gpus(snapshot, topology);
    all.extend(gpus::check(snapshot, topology, &stated));
    all.extend(gpu_links::check(topology, &stated));
    all.extend(kernel_log::check(snapshot, topology));
    all.extend(direct::check(snapshot, topology));
    all.extend(kernel::check(snapshot, topology));
    all.extend(processes::check(snapshot, topology));
    all.extend(adapters::check(snapshot, topology));
    all.extend(software::check(snapshot, topology));
    all
}

#[cfg(test)]
mod tests;
