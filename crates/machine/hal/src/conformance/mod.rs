//! Requirements that every machine must meet, simulated or real.
//!
//! Each check is a function over a [`Machine`]; a machine's crate runs them as its tests:
//!
//! ```no_run
//! # fn any_machine() -> pathline_hal::Machine { unimplemented!() }
//! let failures = pathline_hal::conformance::failures(&any_machine());
//! assert!(failures.is_empty(), "{}", failures.join("\n"));
//! ```
//!
//! Checks accept `Unsupported` from a machine where the traits allow it, and
//! use a few MiB and a few milliseconds each.

mod gpu;
mod host;
mod storage;
pub mod transport;

use pathline_schema::Bytes;

use crate::{CallError, CallResult, Machine};

/// Why a machine failed a check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CheckFailure(pub String);

impl From<CallError> for CheckFailure {
    fn from(error: CallError) -> Self {
        Self(error.to_string())
    }
}

/// The name of a check, `host: gate holds until released`, and its function.
pub type NamedCheck = (&'static str, fn(&Machine) -> std::result::Result<(), CheckFailure>);

/// The checks that apply to `machine`: clock, host memory and threads, and those of the GPU runtime
/// and of files if it has them.
pub fn checks(machine: &Machine) -> impl Iterator<Item = &'static NamedCheck> {
    let gpu = if machine.driver.is_some() { gpu::CHECKS } else { &[] };
    let storage = if machine.storage.is_some() { storage::CHECKS } else { &[] };
    host::CHECKS.iter().chain(gpu).chain(storage)
}

/// Runs all checks. Returns one line for each failure, with the name of the check.
pub fn failures(machine: &Machine) -> Vec<String> {
    checks(machine)
        .filter_map(|(name, check)| Some(format!("{name}: {}", check(machine).err()?)))
        .collect()
}

/// Lengths that expose errors at the ends of loops: below, at and above the sizes of words, lines
/// and pages.
const LENGTHS: [u64; 10] = [1, 7, 8, 63, 64, 65, 4096, 4097, 100_003, (1 << 20) + 13];
/// Bytes after a destination that must stay unchanged.
const TAIL: u64 = 257;

macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {{
        let holds: bool = $holds;
        if !holds {
            return Err($crate::conformance::CheckFailure(format!($($message)+)));
        }
    }};
}
use ensure;

/// Memory of the host or the driver, as both can write and verify it.
trait CheckedMemory {
    fn write(&self, address: u64, bytes: u64, seed: u64) -> CallResult<()>;
    fn first_wrong(&self, address: u64, bytes: u64, seed: u64) -> CallResult<Option<u64>>;
}

impl CheckedMemory for dyn crate::Host + '_ {
    fn write(&self, address: u64, bytes: u64, seed: u64) -> CallResult<()> {
        self.fill(address, Bytes(bytes), seed, false)
    }
    fn first_wrong(&self, address: u64, bytes: u64, seed: u64) -> CallResult<Option<u64>> {
        self.check(address, Bytes(bytes), seed)
    }
}

impl CheckedMemory for dyn crate::Driver + '_ {
    fn write(&self, address: u64, bytes: u64, seed: u64) -> CallResult<()> {
        self.fill(address, Bytes(bytes), seed, false)
    }
    fn first_wrong(&self, address: u64, bytes: u64, seed: u64) -> CallResult<Option<u64>> {
        self.check(address, Bytes(bytes), seed)
    }
}

/// A seed whose pattern starts with a different byte than the pattern of `seed` has at `offset`.
fn seed_that_differs(seed: u64, offset: u64) -> u64 {
    let right = crate::pattern::byte(seed, offset);
    let mut other = seed ^ 0x5eed;
    while crate::pattern::byte(other, 0) == right {
        other += 1;
    }
    other
}

/// `None` for an `Unsupported` error, which must give its reason.
fn or_unsupported<T>(result: CallResult<T>) -> std::result::Result<Option<T>, CheckFailure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.severity == pathline_schema::Severity::Unsupported => {
            ensure!(!error.reason.is_empty(), "{}: unsupported without a reason", error.call);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Fills and verifies `bytes` at `address`, then writes one wrong byte at the start, in the middle
/// and at the end: exactly that byte must be found.
fn finds_wrong_bytes<S: CheckedMemory + ?Sized>(
    store: &S,
    address: u64,
    bytes: u64,
) -> std::result::Result<(), CheckFailure> {
    let seed = 11 + bytes;
    for offset in [0, bytes / 2, bytes - 1] {
        store.write(address, bytes, seed)?;
        let found = store.first_wrong(address, bytes, seed)?;
        ensure!(found.is_none(), "{bytes} B as filled: byte {found:?} is called wrong");
        store.write(address + offset, 1, seed_that_differs(seed, offset))?;
        let found = store.first_wrong(address, bytes, seed)?;
        ensure!(found == Some(offset), "{bytes} B, byte {offset} wrong: found {found:?}");
    }
    if bytes >= 8 {
        store.write(address, bytes, seed)?;
        let found = store.first_wrong(address, bytes, seed + 1)?;
        ensure!(found.is_some(), "{bytes} B of seed {seed} pass for another seed");
    }
    Ok(())
}
