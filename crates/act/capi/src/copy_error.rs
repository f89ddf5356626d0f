//! What a call returns, with its text.

use pathline_gpu::CallerCalls;
use pathline_hal::CallError;

/// `pl_status`.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyStatus {
    /// The call succeeded.
    Ok = 0,
    /// An argument is none that any copy can have.
    Invalid = 1,
    /// The GPU runtime refused the plain copy, or another call.
    Runtime = 2,
    /// No GPU runtime can be used in this process.
    Unavailable = 3,
    /// Host memory is short.
    Memory = 4,
    /// A fault of this library; the call had no effect, or its copy was made plainly.
    Internal = 5,
    /// A file cannot be read.
    File = 6,
    /// The process was forked from one that had opened a node.
    Forked = 7,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyError {
    /// The kind of failure.
    pub status: CopyStatus,
    /// The thing, the reason and, where one is known, the remedy.
    pub text: String,
}

impl CopyError {
    /// An error with its text.
    pub fn new(status: CopyStatus, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// The same, of one copy of a batch.
    pub(crate) fn of_batch(self, nth: usize) -> Self {
        Self::new(self.status, format!("dst[{nth}], src[{nth}]: {}", self.text))
    }

    /// An argument that no copy can have.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(CopyStatus::Invalid, text)
    }

    /// A call of the runtime on a thing, with the status that it returned.
    pub(crate) fn refused(
        calls: &dyn CallerCalls,
        thing: &str,
        (call, code): (&'static str, i32),
    ) -> Self {
        let text = calls.status_text(code);
        Self::new(CopyStatus::Runtime, format!("{call} of {thing}: {text} ({code})"))
    }
}

impl From<CallError> for CopyError {
    fn from(error: CallError) -> Self {
        Self::new(CopyStatus::Runtime, error.to_string())
    }
}
