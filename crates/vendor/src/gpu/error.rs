//! A failed call with the runtime's own words.

use pathline_hal::{CallError, Result};

use super::dialect::Dialect;
use super::table::Status;

/// The outcome of a call.
pub(crate) fn outcome(
    dialect: &dyn Dialect,
    (call, code): Status,
    thing: &dyn Fn() -> String,
) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(CallError::new(dialect.severity(code), call, thing(), dialect.words(code))
        .with_code(code.into())
        .or_try(dialect.way_out(code)))
}
