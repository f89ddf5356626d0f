//! Where the runtimes' libraries and their compilers are looked for.

mod amd;
mod nvidia;

use std::path::Path;

use pathline_dylib::LibraryReport;

use super::family::RuntimeFamily;
use super::function_table::Api;
use super::rtc::BoundCompiler;
use super::runtime_api::RuntimeApi;

pub use amd::{ROOTS, comgr, trees};
pub use nvidia::{driver_places, keep_builtins, toolkits};

/// A runtime that is bound.
#[derive(Debug)]
pub struct BoundDriver {
    /// Its functions.
    pub api: Api,
    /// What it does differently from the other runtime.
    pub dialect: Box<dyn RuntimeApi>,
    /// Major version: of CUDA, which the driver takes code of, or of HIP; 0 if it does not say.
    pub major: i32,
    /// Whether it only stands in for the real one.
    pub stands_in: bool,
}

/// Exported by the libraries that stand in for a driver in tests: what runs on them is a model.
pub const STAND_IN: &str = "pathline_stub";

/// The runtime's library with its functions, and how the search went. `asked` is a file or folder;
/// nothing else is then looked at.
pub fn driver(family: RuntimeFamily, asked: Option<&Path>) -> (Option<BoundDriver>, LibraryReport) {
    match family {
        RuntimeFamily::Cuda => nvidia::driver(asked),
        RuntimeFamily::Hip => amd::driver(asked),
    }
}

/// The run-time compiler that goes with a runtime's file and major version, and how the search went.
/// `asked` is a file or folder; nothing else is then looked at.
pub(crate) fn compiler(
    family: RuntimeFamily,
    asked: Option<&Path>,
    runtime: Option<&Path>,
    major: i32,
) -> (Option<BoundCompiler>, LibraryReport) {
    match family {
        // Without a driver the compiler is still shown, whatever its version.
        RuntimeFamily::Cuda => {
            nvidia::compiler(asked, u32::try_from(major).ok().filter(|&m| m > 0))
        }
        RuntimeFamily::Hip => amd::compiler(asked, runtime, major),
    }
}

/// What the compiler itself needs besides.
pub(crate) fn helper(family: RuntimeFamily, compiler: &LibraryReport) -> LibraryReport {
    match family {
        RuntimeFamily::Cuda => nvidia::builtins(compiler.path.as_deref()),
        RuntimeFamily::Hip => amd::comgr(compiler.path.as_deref().and_then(Path::parent)).1,
    }
}
