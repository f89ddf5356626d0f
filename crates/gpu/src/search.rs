//! The library of a runtime, its compiler and what goes with them, by the runtime's description.

use std::path::Path;

use pathline_dylib::LibraryReport;

use super::family::{CompilerQuery, RuntimeFamily};
use super::rtc::BoundCompiler;

pub use super::runtime_api::{BoundDriver, STAND_IN};
pub use super::runtimes::{toolkits, trees};

/// The runtime's library with its functions, and how the search went. `asked` is a file or folder;
/// nothing else is then looked at.
pub fn driver(family: RuntimeFamily, asked: Option<&Path>) -> (Option<BoundDriver>, LibraryReport) {
    (family.driver)(asked)
}

/// The run-time compiler of a runtime, and how the search went.
pub(crate) fn compiler(
    family: RuntimeFamily,
    query: CompilerQuery<'_>,
) -> (Option<BoundCompiler>, LibraryReport) {
    (family.compiler.find)(query)
}
