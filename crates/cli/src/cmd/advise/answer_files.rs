//! The files of answers: `--emit` writes them, `--check` reads them.

use std::path::Path;

use anyhow::{Context, Result};
use pathline_advise::{AdviceFile, ROWS_FILE};
use pathline_dylib::{TriedPlace, locate_installed};
use pathline_runner::read_text;

use crate::cmd::trial_placement::TrialPlacement;
use crate::say::errln;

/// Names of the files of --emit.
const JSON: &str = "advice.json";

const ENV: &str = "advice.env";

const TUNER_CSV: &str = "tuner.csv";

const TUNER_PLUGIN: &str = "libpathline_tuner.so";

/// The most bytes of such a file.
pub(super) const MAX_FILE: u64 = 16 << 20;

pub(super) fn earlier_answers(dir: &Path) -> Result<AdviceFile> {
    let path = if dir.is_dir() { dir.join(JSON) } else { dir.to_owned() };
    let text = read_text(&path, MAX_FILE).with_context(|| path.display().to_string())?;
    AdviceFile::parse(&text).with_context(|| path.display().to_string())
}

/// Writes the files of --emit, and returns their names.
pub(super) fn write_answers(
    dir: &Path,
    file: &mut AdviceFile,
    placement: Option<&TrialPlacement>,
) -> Result<Vec<&'static str>> {
    let mut write = || -> std::io::Result<Vec<&'static str>> {
        std::fs::create_dir(dir)?;
        let dir = dir.canonicalize()?;
        let mut names = vec![JSON, ENV];
        if let Some(placement) = placement {
            names.extend(placement.write(&dir, file)?);
        }
        let mut plugin = None;
        if let Some(rows) = file.tuner_text() {
            std::fs::write(dir.join(TUNER_CSV), &rows)?;
            std::fs::write(dir.join(ROWS_FILE), &rows)?;
            names.extend([TUNER_CSV, ROWS_FILE]);
            let built = locate_installed(TUNER_PLUGIN);
            for TriedPlace { place, why } in &built.tried {
                errln!("pathline: {} is left out: {why}", place.display());
            }
            if let Some(built) = built.path {
                let copy = dir.join(TUNER_PLUGIN);
                std::fs::copy(built, &copy)?;
                names.push(TUNER_PLUGIN);
                plugin = Some(copy.display().to_string());
            }
        }
        std::fs::write(dir.join(JSON), file.text())?;
        let settings = file.env_text(plugin.as_deref()).map_err(std::io::Error::other)?;
        std::fs::write(dir.join(ENV), settings)?;
        Ok(names)
    };
    write().with_context(|| format!("{}: the answers cannot be written", dir.display()))
}
