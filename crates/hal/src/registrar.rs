//! Adapters that read and write memory by themselves, once it is registered with them.

use std::os::fd::BorrowedFd;

use pathline_schema::{Bytes, Unit};

use crate::CallResult;

/// Memory that is registered with an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u64);

/// Registers memory of this process with network adapters.
pub trait MemoryRegistrar {
    /// The adapter for memory of a unit, by name: the nearest one.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    fn adapter(&self, unit: Unit) -> CallResult<String>;
    /// Registers memory of a unit with its adapter, to be read and written by itself and by others.
    ///
    /// # Errors
    /// The adapter's, such as a limit of locked memory, or device memory that it cannot reach.
    fn register(&self, unit: Unit, address: u64, bytes: Bytes) -> CallResult<RegionId>;
    /// The same with the file that the memory was exported as; it begins at `offset` in there.
    ///
    /// # Errors
    /// As above.
    fn register_dmabuf(
        &self,
        unit: Unit,
        address: u64,
        bytes: Bytes,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> CallResult<RegionId>;
    /// Takes either back.
    ///
    /// # Errors
    /// Nothing is registered under that number, or the adapter's.
    fn deregister(&self, region: RegionId) -> CallResult<()>;
    /// Names of the calls that register, register by a file and deregister, for the record.
    fn calls(&self) -> [&'static str; 3];
}
