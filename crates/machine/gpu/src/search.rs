//! Finds the library of a runtime, its compiler and related libraries, by the runtime's
//! description.

use std::path::Path;

use pathline_dylib::LibraryReport;

use super::family::{CompilerQuery, RuntimeFamily};
use super::rtc::BoundCompiler;

pub use super::runtime_api::{BoundDriver, STAND_IN};
pub use super::runtimes::{toolkits, trees};

/// The runtime's library with its functions, and the report of the search. `asked` is a file or
/// folder and replaces the search.
pub fn driver(family: RuntimeFamily, asked: Option<&Path>) -> (Option<BoundDriver>, LibraryReport) {
    (family.driver)(asked)
}

/// The run-time compiler of a runtime, and the report of the search.
pub(crate) fn compiler(
    family: RuntimeFamily,
    query: CompilerQuery<'_>,
) -> (Option<BoundCompiler>, LibraryReport) {
    (family.compiler.find)(query)
}
