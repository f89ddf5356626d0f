//! Network adapters that access memory directly, once it is registered with them.

use std::os::fd::BorrowedFd;

use pathline_schema::{Bytes, Unit};

use crate::CallResult;

/// Memory that is registered with an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u64);

/// Registers memory of this process with network adapters.
pub trait MemoryRegistrar {
    /// Name of the adapter nearest to a unit's memory.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    fn adapter(&self, unit: Unit) -> CallResult<String>;
    /// Registers memory of a unit with its adapter, for local and remote access.
    ///
    /// # Errors
    /// The adapter refuses, for example because of a limit on locked memory, or cannot reach device
    /// memory.
    fn register(&self, unit: Unit, address: u64, bytes: Bytes) -> CallResult<RegionId>;
    /// Registers memory by the DMA-BUF file of its export, in which it begins at `offset`.
    ///
    /// # Errors
    /// As for [`MemoryRegistrar::register`].
    fn register_dmabuf(
        &self,
        unit: Unit,
        address: u64,
        bytes: Bytes,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> CallResult<RegionId>;
    /// Deregisters memory.
    ///
    /// # Errors
    /// No memory is registered under that number, or the adapter refuses.
    fn deregister(&self, region: RegionId) -> CallResult<()>;
    /// Names of the functions that register, register by a file, and deregister, for records.
    fn call_names(&self) -> [&'static str; 3];
}
