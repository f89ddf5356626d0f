//! pathline: measures, models and explains every path that data takes in a multi-GPU node.

mod args;
mod cmd;
mod env;
mod files;
mod progress;
mod world;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cmd::run(args::Args::parse()) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("pathline: {error:#}");
            cmd::Exit::Unusable.into()
        }
    }
}
