//! Hooks that only the command line provides: write to standard error, and end the process.

/// How a process of this program writes a line and ends at once.
#[derive(Debug, Clone, Copy)]
pub struct ProcessHooks {
    /// Writes a line to standard error, without a buffer.
    pub warn: fn(&str),
    /// Ends the process with this code. Nothing is dropped.
    pub exit: fn(i32) -> !,
    /// Ends the process by SIGABRT.
    pub abort: fn() -> !,
}

impl ProcessHooks {
    /// Makes this process ignore Ctrl-C and SIGTERM: a signal to all processes of a job is meant
    /// for the run, which ends the others itself.
    pub(crate) fn ignore_interrupts(self) {
        if let Err(error) = ctrlc::set_handler(|| {}) {
            (self.warn)(&format!("cannot leave signals to the run: {error}"));
        }
    }
}
