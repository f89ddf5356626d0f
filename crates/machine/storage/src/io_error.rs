//! The kernel's error numbers as errors that name the thing, the reason and the remedy.

use std::io;
use std::path::Path;

use pathline_hal::CallError;
use pathline_schema::Severity;

/// Severity and remedy of an error number of a call on a file.
fn meaning(code: i32) -> (Severity, &'static str) {
    match code {
        libc::ENOSPC => (
            Severity::Exhausted,
            "the file system, or what it lies on, is full: free some of it, or use a smaller --span",
        ),
        libc::EDQUOT => (
            Severity::Exhausted,
            "this user's quota is used up: use a smaller --span, or another --store",
        ),
        libc::EROFS => (
            Severity::Unsupported,
            "it is mounted read-only, perhaps since its device failed (see dmesg): name another folder with --store",
        ),
        libc::EACCES | libc::EPERM => {
            (Severity::Unsupported, "this user may not: name another folder with --store")
        }
        libc::EMFILE | libc::ENFILE => {
            (Severity::Exhausted, "use fewer workers, or raise ulimit -n")
        }
        libc::ENOMEM => {
            (Severity::Exhausted, "use fewer workers or a smaller depth, or raise ulimit -l")
        }
        libc::EAGAIN => {
            (Severity::Exhausted, "use fewer workers or a smaller depth, or raise fs.aio-max-nr")
        }
        libc::EINVAL => (
            Severity::Unsupported,
            "with direct I/O, blocks are multiples of the device's logical block; use a larger block, or cached",
        ),
        libc::EOPNOTSUPP => (
            Severity::Unsupported,
            "polled completions need poll queues (nvme.poll_queues=N) and direct I/O; use uring",
        ),
        libc::EIO | libc::ENODATA | libc::EREMOTEIO | libc::EILSEQ => {
            (Severity::Transient, "the device reported an error: see dmesg for the details")
        }
        libc::EBUSY => (
            Severity::Unsupported,
            "something else has it for itself: unmount it, or end what uses it",
        ),
        libc::ENODEV | libc::ENXIO => {
            (Severity::Transient, "the device is gone: see dmesg for when and why")
        }
        libc::EUCLEAN | libc::EBADMSG => {
            (Severity::Transient, "the file system is damaged: see dmesg, unmount and check it")
        }
        libc::ENOTCONN | libc::ECONNABORTED | libc::ESHUTDOWN => (
            Severity::Transient,
            "the process that serves this file system has ended: mount it again",
        ),
        libc::ETIMEDOUT | libc::ENOLINK | libc::EHOSTDOWN | libc::EHOSTUNREACH => {
            (Severity::Transient, "the server does not answer: see dmesg, and whether it is up")
        }
        libc::ENOENT => (
            Severity::Transient,
            "another process has removed or renamed it, or unmounted its file system, meanwhile",
        ),
        libc::ESTALE => (Severity::Transient, "the server no longer has it: mount it again"),
        libc::EFBIG => (Severity::Unsupported, "use a smaller --span, or raise ulimit -f"),
        _ => (Severity::Transient, "run this case alone to see whether it repeats, and see dmesg"),
    }
}

/// Has writes past the limit of a file's size fail. By default SIGXFSZ ends the process.
pub(super) fn outlive_file_limit() {
    // SAFETY: no handler is installed; the signal is ignored, which EFBIG of the call makes up for.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// An error of a call.
pub(super) fn call(call: &str, thing: impl Into<String>, error: &io::Error) -> CallError {
    let code = error.raw_os_error().unwrap_or(0);
    let (severity, way_out) = meaning(code);
    let text = error.to_string();
    // The number is shown separately.
    let reason = text.split(" (os error").next().unwrap_or(&text);
    CallError::new(severity, call, thing, reason).with_code(code.into()).or_try(way_out)
}

/// An error of a call on a file.
pub(super) fn on(name: &str, path: &Path, error: &io::Error) -> CallError {
    call(name, path.display().to_string(), error)
}

/// An error after which `lost` I/Os cannot be waited for. The process ends, and their memory with
/// it.
pub(super) fn abandoned(error: CallError, lost: u32) -> CallError {
    let reason = format!(
        "{}; {lost} I/Os in flight could not be waited for, so their memory is kept until this process \
         ends",
        error.reason
    );
    CallError { severity: Severity::Sticky, reason, ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_remedy() {
        for code in 1..134 {
            let error = call("pread", "a file", &io::Error::from_raw_os_error(code));
            assert!(!error.way_out.is_empty() && !error.reason.is_empty(), "{error}");
        }
    }
}
