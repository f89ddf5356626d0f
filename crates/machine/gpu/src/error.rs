//! The error of a failed call, with the runtime's own text.

use pathline_hal::{CallError, CallResult};

use super::function_table::CallStatus;
use super::runtime_api::RuntimeApi;

/// The outcome of a call.
pub fn outcome(
    dialect: &dyn RuntimeApi,
    (call, code): CallStatus,
    thing: &dyn Fn() -> String,
) -> CallResult<()> {
    if code == 0 {
        return Ok(());
    }
    Err(CallError::new(dialect.severity(code), call, thing(), dialect.status_text(code))
        .with_code(code.into())
        .or_try(dialect.way_out(code)))
}
