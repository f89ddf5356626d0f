//! The error of an I/O that did not do the whole of its block.

use std::io;
use std::path::Path;

use pathline_hal::CallError;
use pathline_schema::{Bytes, Severity};

use super::io_error;

/// An I/O of a block, read or written.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockIo {
    pub(super) write: bool,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

/// What a library says of its status: reason, remedy and severity.
pub(super) type StatusMeaning = (String, &'static str, Severity);

/// An I/O that did not do the whole of its block. `meaning` is that of its library, where that has one.
pub(super) fn partial_io_error(
    name: &str,
    path: &Path,
    block: BlockIo,
    result: i32,
    meaning: Option<StatusMeaning>,
) -> CallError {
    let BlockIo { write, offset, bytes } = block;
    let thing = format!("{} at {} of {}", Bytes(bytes.into()), Bytes(offset), path.display());
    if result < 0 {
        if let Some((reason, way_out, severity)) = meaning {
            let code = i64::from(-result);
            return CallError::new(severity, name, thing, reason).with_code(code).or_try(way_out);
        }
        return io_error::call(name, thing, &io::Error::from_raw_os_error(-result));
    }
    let part = Bytes(result.cast_unsigned().into());
    if write {
        // The next call would report which; as a rule it is space.
        let reason = format!("only {part} of it were written");
        return CallError::new(Severity::Exhausted, name, thing, reason).or_try(
            "the file system is full, or a quota or limit is reached: free some of it, or use a smaller --span",
        );
    }
    let reason = match result {
        0 => "the file ends before it".to_owned(),
        _ => format!("only {part} of it were there"),
    };
    CallError::new(Severity::Transient, name, thing, reason)
        .or_try("another process has shortened the file meanwhile")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_without_room_is_no_shortened_file() {
        let of = |write, result| {
            let block = BlockIo { write, offset: 1 << 20, bytes: 4096 };
            partial_io_error("pwrite", Path::new("/a/write-0"), block, result, None)
        };
        let full = of(true, 512);
        assert_eq!(full.severity, Severity::Exhausted);
        assert_eq!(full.thing, "4KiB at 1MiB of /a/write-0");
        assert!(full.reason.contains("only 512B of it were written"), "{full}");
        let short = of(false, 512);
        assert_eq!(short.severity, Severity::Transient);
        assert!(short.way_out.contains("shortened"), "{short}");
        assert_eq!(of(true, -libc::ENOSPC).code, i64::from(libc::ENOSPC));
    }
}
