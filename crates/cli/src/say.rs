//! What goes to standard output and standard error. Who closes a pipe early (`pathline plan | head`)
//! has seen enough: that is no error. A full disk is one, but no reason to lose a run.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// The first error of standard output.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes to standard output.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    let written = io::stdout().lock().write_fmt(text);
    keep(written);
}

/// Writes to standard error. There is nowhere to say that it failed.
pub(crate) fn eprint(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Ends the output. The first error of it, if any matters.
pub(crate) fn finish() -> Option<&'static io::Error> {
    keep(io::stdout().lock().flush());
    FAILED.get()
}

fn keep(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = FAILED.set(error);
    }
}

/// `print!` that outlives its reader.
macro_rules! out {
    ($($text:tt)*) => { $crate::say::print(format_args!($($text)*)) };
}
/// `println!` that outlives its reader.
macro_rules! outln {
    ($($text:tt)*) => { $crate::say::print(format_args!("{}\n", format_args!($($text)*))) };
}
/// `eprintln!` that outlives its reader.
macro_rules! errln {
    ($($text:tt)*) => { $crate::say::eprint(format_args!("{}\n", format_args!($($text)*))) };
}
pub(crate) use {errln, out, outln};
