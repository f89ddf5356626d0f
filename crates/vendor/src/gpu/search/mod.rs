//! Where the runtimes' libraries and their compilers are looked for.

mod amd;
mod ccl;
mod nvidia;

use std::path::Path;

use pathline_dylib::LibraryReport;

use super::dialect::{RuntimeApi, RuntimeFamily};
use super::rtc::BoundCompiler;
use super::table::Api;

pub(crate) use amd::{comgr, trees};
pub(crate) use ccl::{collectives, located};
pub(crate) use nvidia::{driver_places, keep_builtins, toolkits};

/// A runtime that is bound.
#[derive(Debug)]
pub(crate) struct BoundDriver {
    pub(crate) api: Api,
    pub(crate) dialect: Box<dyn RuntimeApi>,
    /// Major version: of CUDA, which the driver takes code of, or of HIP; 0 if it does not say.
    pub(crate) major: i32,
    /// Whether it only stands in for the real one.
    pub(crate) stands_in: bool,
}

/// Exported by the libraries that stand in for a driver in tests: what runs on them is a model.
pub(crate) const STAND_IN: &str = "pathline_stub";

/// The runtime's library with its functions, and how the search went. `asked` is a file or folder;
/// nothing else is then looked at.
pub(crate) fn driver(
    family: RuntimeFamily,
    asked: Option<&Path>,
) -> (Option<BoundDriver>, LibraryReport) {
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
