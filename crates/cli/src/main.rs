//! pathline: measures, models and explains every path that data takes in a multi-GPU node.

mod args;
mod cmd;
mod env;
mod files;
mod kernels;
mod leftovers;
mod probe;
mod progress;
mod ranks;
mod say;
mod worker;
mod world;

use std::process::ExitCode;

use clap::Parser;

use crate::say::errln;

fn main() -> ExitCode {
    let exit = cmd::run(args::Args::parse()).unwrap_or_else(|error| {
        errln!("pathline: {error:#}");
        cmd::Exit::Unusable
    });
    match say::finish() {
        None => exit.into(),
        Some(error) => {
            errln!("pathline: standard output: {error}");
            cmd::Exit::Unusable.into()
        }
    }
}
