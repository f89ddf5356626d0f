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

use crate::say::errln;

fn main() -> ExitCode {
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
