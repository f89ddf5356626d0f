//! Numbers of the kernel as errors that name the thing, the reason and the way out.

use std::io;
use std::path::Path;

use pathline_hal::CallError;
use pathline_schema::{Bytes, Severity};

/// What an error number of a call on a file means for a run.
fn meaning(code: i32) -> (Severity, &'static str) {
    match code {
        libc::ENOSPC => (
            Severity::Exhausted,
            "the file system is full: free some of it, or use a smaller --span",
        ),
        libc::EDQUOT => (
            Severity::Exhausted,
            "this user's quota is used up: use a smaller --span, or another --store",
        ),
        libc::EROFS => {
            (Severity::Unsupported, "it is mounted read-only: name another folder with --store")
        }
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
            (Severity::Transient, "the device could not do it: see dmesg for what it said")
        }
        libc::ESTALE => (Severity::Transient, "the server no longer has it: mount it anew"),
        libc::EFBIG => (Severity::Unsupported, "use a smaller --span, or raise ulimit -f"),
        _ => (Severity::Transient, ""),
    }
}

/// An error of a call.
pub(super) fn call(call: &str, thing: impl Into<String>, error: &io::Error) -> CallError {
    let code = error.raw_os_error().unwrap_or(0);
    let (severity, way_out) = meaning(code);
    let text = error.to_string();
    // The number is said by itself.
    let reason = text.split(" (os error").next().unwrap_or(&text);
    CallError::new(severity, call, thing, reason).with_code(code.into()).or_try(way_out)
}

/// An error of a call on a file.
pub(super) fn on(name: &str, path: &Path, error: &io::Error) -> CallError {
    call(name, path.display().to_string(), error)
}

/// An I/O that did not do the whole of its block.
pub(super) fn ended(name: &str, path: &Path, offset: u64, block: u32, result: i32) -> CallError {
    let thing = format!("{} at {} of {}", Bytes(block.into()), Bytes(offset), path.display());
    if result < 0 {
        if let Some((reason, way_out, severity)) = super::gds::of_io(name, -result) {
            let code = i64::from(-result);
            return CallError::new(severity, name, thing, reason).with_code(code).or_try(way_out);
        }
        return call(name, thing, &io::Error::from_raw_os_error(-result));
    }
    let reason = match result {
        0 => "the file ends before it".to_owned(),
        n => format!("only {} of it were there", Bytes(n.cast_unsigned().into())),
    };
    CallError::new(Severity::Transient, name, thing, reason)
        .or_try("somebody has shortened the file meanwhile, or its file system is full")
}
