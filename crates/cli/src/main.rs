//! pathline: measures, models and explains every path that data takes in a multi-GPU node.

mod adaptive;
mod args;
mod cmd;
mod files;
mod kernels;
mod known_name;
mod live_rate;
mod progress;
mod say;

use std::process::ExitCode;

use rustix::process::{Resource, getrlimit};

use crate::say::errln;

/// The usual stack of a program (`ulimit -s`), in bytes.
const STACK: usize = 8 << 20;

/// Address space beyond the program's own that every command has room in.
const ROOM: u64 = 24 << 20;

/// The address space that `ulimit -v` leaves, if that is too little: an allocation that fails ends a process.
fn short_of_memory() -> Option<u64> {
    let most = getrlimit(Resource::As).current?;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let used = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let used: u64 = used.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(most.saturating_sub(used << 10)).filter(|left| *left < ROOM)
}

fn main() -> ExitCode {
    if let Some(left) = short_of_memory() {
        let (left, room) = (left >> 20, ROOM >> 20);
        errln!(
            "pathline: `ulimit -v` leaves {left} MiB of memory, and {room} are needed: raise it"
        );
        return cmd::ExitKind::Unusable.into();
    }
    let given = getrlimit(Resource::Stack).current;
    if given.is_none_or(|bytes| bytes >= STACK as u64) {
        return run();
    }
    // A thread with a fixed stack, where the stack of the process may not grow as usual.
    let done = std::thread::Builder::new().stack_size(STACK).spawn(run);
    let done = done.map(|thread| thread.join().unwrap_or(ExitCode::FAILURE));
    done.unwrap_or_else(|error| {
        errln!(
            "pathline: no thread with a stack of 8 MiB: {error}; raise `ulimit -s` or `ulimit -v`"
        );
        cmd::ExitKind::Unusable.into()
    })
}

fn run() -> ExitCode {
    // A file that reaches `ulimit -f`, also one that standard output goes to, is an error of a write
    // and no sudden end. Processes that this one starts inherit that.
    pathline_storage::outlive_file_limit();
    let done = match args::InternalArgs::of_process() {
        Some(internal) => cmd::serve(internal),
        None => cmd::run(args::Args::of_process()),
    };
    let exit = done.unwrap_or_else(|error| {
        errln!("pathline: {error:#}");
        cmd::ExitKind::Unusable
    });
    match say::finish() {
        None => exit.into(),
        Some(error) => {
            errln!("pathline: standard output: {error}");
            cmd::ExitKind::Unusable.into()
        }
    }
}
