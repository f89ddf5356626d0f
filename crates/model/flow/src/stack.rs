//! Software stacks of a machine: `[stack.NAME]` tables of a description.
//!
//! Starts, and what a protocol costs, belong to an interface, its version and the tool that times it, not
//! to the node. A stack states the constants that it changes, under the names of the file's sections.

use serde::Deserialize;
use toml::{Table, Value};

use crate::model::{
    CopyEngineModel, CpuModel, FabricModel, GpuMemory, HostLink, KernelModel, MigrationModel,
    NodeModel, PageableRegime, TimeModel,
};
use crate::software::MessageSoftware;

/// The sections whose constants a stack may change.
pub(crate) const STACK_SECTIONS: [&str; 9] = [
    "gpu_memory",
    "fabric",
    "copy_engine",
    "kernel",
    "host_link",
    "pageable",
    "migration",
    "cpu",
    "time",
];
/// The section of message libraries, of which a stack has its versions.
const LIBRARY_SECTION: &str = "software";
/// Costs of calls, which no stack changes.
const CALLS_SECTION: &str = "calls";
/// The most stacks of one machine.
const MAX_STACKS: usize = 64;

/// What a stack's times are measured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackTimer {
    /// Events of the runtime around an operation: its launch counts.
    Events,
    /// The host's clock around calls that wait.
    Host,
    /// A clock inside the kernel, from the first block's start to a fence after the last block.
    InKernel,
}

impl StackTimer {
    /// Its name in a description.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Host => "host",
            Self::InKernel => "in-kernel",
        }
    }
}

/// A software stack: an interface, its version, and the tool that times it.
#[derive(Debug, Clone, PartialEq)]
pub struct StackProfile {
    /// Its name, as `--stack` has it.
    pub name: String,
    /// In one sentence.
    pub about: String,
    /// What times it.
    pub timer: StackTimer,
    /// Published values that it holds for: all texts of one entry occur in a row's system, tool and source.
    holds: Vec<Vec<String>>,
}

impl StackProfile {
    /// Length of the longest entry of `holds` that fits a row's system, tool and source, written as one
    /// text; none if none fits. Of several stacks the one with the longest is meant.
    pub fn fit(&self, row: &str) -> Option<usize> {
        let row = row.to_lowercase();
        let fits = |all: &&Vec<String>| all.iter().all(|part| row.contains(part));
        self.holds.iter().filter(fits).map(|all| all.iter().map(String::len).sum()).max()
    }
}

/// A stack, and the constants of the machine under it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StackModel {
    pub profile: StackProfile,
    pub model: NodeModel,
    pub software: MessageSoftware,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAbout {
    about: String,
    timer: StackTimer,
    #[serde(default)]
    holds: Vec<Vec<String>>,
}

/// The sections of a file that make its physics, without places in the text.
#[derive(Deserialize)]
struct RawSections {
    gpu_memory: GpuMemory,
    fabric: FabricModel,
    copy_engine: CopyEngineModel,
    kernel: KernelModel,
    host_link: HostLink,
    #[serde(default)]
    pageable: Vec<PageableRegime>,
    migration: MigrationModel,
    cpu: CpuModel,
    time: TimeModel,
    #[serde(default)]
    calls: Vec<crate::model::CallCost>,
    #[serde(default)]
    software: MessageSoftware,
}

/// Every stack of a file with the physics under it. `gpus` is the number of GPUs.
///
/// # Errors
/// A table that is no stack, a section that a stack cannot change, or a constant out of range.
pub(crate) fn profiles(file: &Table, gpus: usize) -> Result<Vec<StackModel>, String> {
    let Some(stacks) = file.get("stack") else { return Ok(Vec::new()) };
    let Some(stacks) = stacks.as_table().filter(|all| all.len() <= MAX_STACKS) else {
        return Err(format!("stack: expected at most {MAX_STACKS} tables, such as [stack.hsa]"));
    };
    stacks.iter().map(|(name, stack)| profile(file, name, stack, gpus)).collect()
}

fn profile(file: &Table, name: &str, stack: &Value, gpus: usize) -> Result<StackModel, String> {
    let error = |reason: &str| format!("stack.{name}: {}", reason.trim().replace('\n', ", "));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return Err(error("expected a name of 1 to 64 letters, digits, - and _"));
    }
    let Some(stack) = stack.as_table() else { return Err(error("expected a table")) };
    let is_section = |key: &str| STACK_SECTIONS.contains(&key) || key == LIBRARY_SECTION;
    let (sections, about): (Table, Table) =
        stack.clone().into_iter().partition(|(key, _)| is_section(key));
    let about: RawAbout = about.try_into().map_err(|e: toml::de::Error| error(e.message()))?;
    let of_stacks = |(key, value): (&String, &Value)| {
        (is_section(key) || key == CALLS_SECTION).then(|| (key.clone(), value.clone()))
    };
    let mut merged: Table = file.iter().filter_map(of_stacks).collect();
    for (section, changes) in sections {
        match merged.get_mut(&section) {
            Some(base) => overlay(base, changes),
            None => return Err(error(&format!("{section} is no section of this file"))),
        }
    }
    let raw: RawSections = merged.try_into().map_err(|e: toml::de::Error| error(e.message()))?;
    let matrix = &raw.time.copy_us_matrix;
    let sane = |us: &f64| us.is_finite() && (0.0..=1e6).contains(us);
    let fits = |row: &Vec<f64>| row.len() == gpus && row.iter().all(sane);
    if !(matrix.is_empty() || matrix.len() == gpus && matrix.iter().all(fits)) {
        let reason = format!("copy_us_matrix: expected {gpus} rows of {gpus} times from 0 to 1e6");
        return Err(error(&reason));
    }
    let lower = |all: Vec<String>| all.iter().map(|part| part.to_lowercase()).collect();
    let profile = StackProfile {
        name: name.to_owned(),
        about: about.about,
        timer: about.timer,
        holds: about.holds.into_iter().map(lower).collect(),
    };
    let model = NodeModel {
        gpu_memory: raw.gpu_memory,
        fabric: raw.fabric,
        copy_engine: raw.copy_engine,
        kernel: raw.kernel,
        host_link: raw.host_link,
        pageable: raw.pageable,
        migration: raw.migration,
        cpu: raw.cpu,
        time: raw.time,
        calls: raw.calls,
    };
    Ok(StackModel { profile, model, software: raw.software })
}

/// Replaces what `changes` states; of tables key by key.
fn overlay(base: &mut Value, changes: Value) {
    match (base, changes) {
        (Value::Table(base), Value::Table(changes)) => {
            for (key, value) in changes {
                match base.get_mut(&key) {
                    Some(old) => overlay(old, value),
                    None => _ = base.insert(key, value),
                }
            }
        }
        (base, changes) => *base = changes,
    }
}
