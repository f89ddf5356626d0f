//! `pathline calibrate`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pathline_calibrate::{Run, Step, calibrate};
use pathline_flow::MachineDesc;

use super::Exit;
use crate::args::CalibrateArgs;
use crate::files;
use crate::say::{errln, out};

/// How often progress is told.
const EVERY: Duration = Duration::from_secs(2);

pub(super) fn run(args: &CalibrateArgs) -> Result<Exit> {
    let read = |path: &std::path::PathBuf| -> Result<Run> {
        Ok(Run { name: path.display().to_string(), journal: files::read(path)? })
    };
    let runs = args.runs.iter().map(read).collect::<Result<Vec<_>>>()?;
    let mut told = Instant::now();
    let twin = calibrate(&runs, &mut |step: &Step| {
        if !args.quiet && told.elapsed() >= EVERY {
            told = Instant::now();
            let Step { doing, groups, error } = step;
            errln!("{doing}: {groups} shared resources, sets off by {:.2} %", error * 100.0);
        }
    })?;
    let text = twin.toml();
    // What cannot be read back must not be written.
    MachineDesc::parse(&args.out.display().to_string(), &text)
        .context("the twin of these runs is no valid machine file; please report it")?;
    files::write(&args.out, &text)?;
    if args.out != Path::new("-") {
        out!("{twin}");
        out!("\nWrote {}.\n", args.out.display());
    }
    Ok(if twin.data.sets.is_empty() { Exit::CouldNotJudge } else { Exit::Fine })
}
