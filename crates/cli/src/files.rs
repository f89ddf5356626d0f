//! Where a run lies on disk.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::say::out;
use anyhow::{Context, Result};
use flate2::bufread::MultiGzDecoder;
use pathline_schema::Journal;

/// Name of the journal in a run's folder.
pub(crate) const JOURNAL: &str = "run.jsonl";
/// Name of the machine description in the folder of a simulated run.
pub(crate) const MACHINE: &str = "machine.toml";
/// Name of the page in a run's folder.
pub(crate) const PAGE: &str = "report.html";

/// The journal of a run that is named by its folder or by the journal itself. In a folder, the
/// packed one is taken where only that is there.
pub(crate) fn journal_path(run: &Path) -> PathBuf {
    if !run.is_dir() {
        return run.to_owned();
    }
    let (plain, packed) = (run.join(JOURNAL), run.join(format!("{JOURNAL}.gz")));
    if packed.exists() && !plain.exists() { packed } else { plain }
}

/// Reads a run.
pub(crate) fn read(run: &Path) -> Result<Journal> {
    let path = journal_path(run);
    let file = File::open(&path)
        .with_context(|| format!("{}: expected a run's folder or its {JOURNAL}", path.display()))?;
    unpacked(BufReader::new(file))
        .map_err(Into::into)
        .and_then(Journal::read)
        .with_context(|| path.display().to_string())
}

/// The text of a journal, unpacked if it is in gzip's format (RFC 1952: it starts with 1f 8b).
fn unpacked(mut file: BufReader<File>) -> io::Result<Box<dyn BufRead>> {
    let packed = file.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    Ok(if packed { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) })
}

/// Makes the folder of a new run: `dir`, or a fresh one under `runs/` that is named after the
/// machine and the time.
pub(crate) fn new_folder(dir: Option<&Path>, machine: &str) -> Result<PathBuf> {
    let wanted = match dir {
        Some(dir) => dir.to_owned(),
        None => {
            let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
            let safe: String = machine
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' })
                .collect();
            fresh(PathBuf::from(format!("runs/{safe}-{time}")))
        }
    };
    fs::create_dir_all(&wanted).with_context(|| {
        format!("{}: cannot make this folder; name another with --out", wanted.display())
    })?;
    Ok(wanted)
}

/// Two runs in one second must not share a folder.
fn fresh(wanted: PathBuf) -> PathBuf {
    let mut name = wanted.clone();
    for n in 2.. {
        if !name.exists() {
            break;
        }
        name = PathBuf::from(format!("{}-{n}", wanted.display()));
    }
    name
}

/// Writes a file; `-` is standard output.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    if path == Path::new("-") {
        out!("{text}");
        return Ok(());
    }
    fs::write(path, text).with_context(|| format!("{}: cannot write", path.display()))
}
