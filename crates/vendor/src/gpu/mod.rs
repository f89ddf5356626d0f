//! GPUs, through a runtime of their vendor that is bound at run time.

mod compiler;
mod cuda;
mod device;
mod dialect;
mod driver;
mod error;
mod gate;
mod kernels;
mod memory;
mod search;
mod table;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use pathline_hal::Result;
use pathline_schema::Topology;

use crate::library::Found;
use crate::memory::Memory;
use compiler::Compiler;
pub(crate) use driver::GpuDriver;
pub(crate) use search::beside_driver;

/// What a node offers for measuring NVIDIA GPUs, found without opening one.
#[derive(Debug)]
pub struct Runtime {
    /// The driver's library.
    pub driver: Found,
    /// Why no driver can be opened; none if nothing is known against it.
    pub without: Option<String>,
    /// Where compiled kernels are kept; none without a home folder.
    pub cache: Option<PathBuf>,
    /// Whether the driver's library is one that stands in for it in tests.
    pub stands_in: bool,
    api: Option<search::Driver>,
    /// File or folder of the run-time compiler, as asked for.
    nvrtc: Option<PathBuf>,
    /// Major version of CUDA that the driver takes code of.
    major: i32,
}

/// Files that exist where the driver's kernel module is loaded and this process may see its GPUs.
const DEVICES: [&str; 4] = ["/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-ctrl-gpu"];

/// Looks for the driver's library and device files. `nvrtc` names the run-time compiler's file or
/// folder. No device is opened. Where `topology` has GPUs and none is NVIDIA's, the reason against
/// them is that, not a library that such a node has no use for.
pub fn runtime(topology: &Topology, nvrtc: Option<&Path>) -> Runtime {
    let (api, driver) = search::driver();
    let stands_in = api.as_ref().is_some_and(|bound| bound.stands_in);
    // Without a driver the compiler is still shown, whatever its version.
    let version = api.as_ref().map_or(0, |bound| bound.version);
    let major = if version > 0 { version / 1000 } else { i32::MAX };
    let without = if let Some(others) = others(topology) {
        Some(format!("CUDA is the only runtime that is bound, and these GPUs are of {others}"))
    } else if api.is_none() {
        let why = driver.tried.first().map_or("it was not found", |t| t.why.as_str());
        Some(format!("no CUDA driver library ({why})"))
    } else if !stands_in && !DEVICES.iter().any(|d| Path::new(d).exists()) {
        Some("the CUDA driver library is here, but no device file /dev/nvidia*".to_owned())
    } else {
        None
    };
    let nvrtc = nvrtc.map(Path::to_owned);
    Runtime { driver, without, cache: compiler::cache_folder(), stands_in, api, nvrtc, major }
}

/// Vendors of the GPUs, if there are some and none is NVIDIA's.
fn others(topology: &Topology) -> Option<String> {
    let vendors: BTreeSet<&str> = topology.gpus.iter().map(|g| g.vendor.as_str()).collect();
    let named = vendors.iter().filter(|v| !v.is_empty()).copied().collect::<Vec<_>>().join(", ");
    (!named.is_empty() && !vendors.contains("nvidia")).then_some(named)
}

impl Runtime {
    /// Looks for the run-time compiler.
    pub fn compiler(&self) -> Found {
        search::compiler(self.nvrtc.as_deref(), self.major).1
    }

    /// Starts the driver. Device memory is not touched before the first call that needs it.
    pub(crate) fn open(self, host: Rc<Memory>) -> Result<Option<GpuDriver>> {
        let Some(bound) = self.api.filter(|_| self.without.is_none()) else {
            return Ok(None);
        };
        let (found, _) = search::compiler(self.nvrtc.as_deref(), self.major);
        let compiler = found.map(|(api, version)| Compiler::new(api, version, self.cache));
        GpuDriver::open(bound.api, bound.dialect, compiler, host).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::Gpu;

    #[test]
    fn gpus_of_another_vendor_are_named_as_the_reason() {
        let of = |vendors: &[&str]| {
            let gpu = |v: &&str| Gpu { vendor: (*v).to_owned(), ..Gpu::default() };
            let gpus = vendors.iter().map(gpu).collect();
            others(&Topology { gpus, ..Topology::default() })
        };
        assert_eq!(of(&["amd", "amd"]).as_deref(), Some("amd"));
        assert_eq!(of(&["amd", "nvidia"]), None);
        assert_eq!(of(&[]), None);
    }
}
