//! The descriptions of the GPU runtimes.

mod cuda;
mod cuda_caller;
mod cuda_family;
mod cuda_libraries;
mod hip;
mod hip_caller;
mod hip_family;
mod hip_libraries;
mod hip_sensors;
mod hip_traffic;

use super::family::RuntimeFamily;

pub(crate) use cuda_libraries::driver_places;
pub use cuda_libraries::toolkits;
pub use hip_libraries::trees;
pub use hip_traffic::{XgmiCounts, xgmi_counts};

#[cfg(test)]
pub(crate) use cuda_libraries::nearest_target;

impl RuntimeFamily {
    /// Every supported runtime. With equal numbers of GPUs on a node, the first one is selected.
    pub const ALL: [Self; 2] = [Self(&cuda_family::CUDA), Self(&hip_family::HIP)];

    /// The runtime with a name: `hip`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name == name)
    }

    /// The runtime for a vendor's GPUs.
    pub fn of_vendor(vendor: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.vendor == vendor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_vendors_and_options_are_each_of_one_runtime() {
        let all = RuntimeFamily::ALL;
        let distinct = |names: Vec<&str>| {
            let set: BTreeSet<&str> = names.iter().copied().collect();
            assert_eq!(set.len(), names.len(), "{names:?}");
        };
        distinct(all.iter().map(|family| family.name).collect());
        distinct(all.iter().map(|family| family.vendor).collect());
        distinct(all.iter().flat_map(|f| f.options).map(|option| option.name).collect());
        for family in all {
            assert!(!family.options.is_empty() && !family.device_files.paths.is_empty());
            assert_eq!(family.caps().vendor, family.vendor, "a row of GpuCaps");
            assert_eq!(RuntimeFamily::named(family.name), Some(family));
            assert_eq!(RuntimeFamily::of_vendor(family.vendor), Some(family));
            let compiler = family.compiler.option;
            assert!(compiler.is_none_or(|c| family.options.iter().any(|o| o.name == c)));
        }
        assert_eq!(RuntimeFamily::named("none"), None);
    }
}
