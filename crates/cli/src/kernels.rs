//! The kernels of a run: winners of a search, kept where later runs find them.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use pathline_bench::{BestKernel, TunedKernels};
use pathline_runner::read_text;
use pathline_schema::KernelVariant;

use crate::say::{errln, outln};

/// Name of the winners in the folder of a run that took them.
pub(crate) const KERNELS: &str = "kernels.json";

/// The most that is read of winners: one takes about 200 bytes, and there is one for each path and
/// operation.
const MAX_TUNED: u64 = 16 << 20;

/// The file of remembered winners: below `XDG_CACHE_HOME` or `~/.cache`. None if there is no home.
fn file() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("pathline").join("tuned.json"))
}

/// The results of earlier searches. An unreadable file counts as none, with a warning.
pub(crate) fn remembered() -> TunedKernels {
    file().and_then(|path| read(&path)).unwrap_or(TunedKernels::known())
}

/// The kernels of a run to resume.
pub(crate) fn of_run(folder: &Path) -> TunedKernels {
    read(&folder.join(KERNELS)).unwrap_or(TunedKernels::known())
}

fn read(path: &Path) -> Option<TunedKernels> {
    let text = match read_text(path, MAX_TUNED) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            errln!(
                "pathline: {}: {error}; kernels are taken as if it were not there",
                path.display()
            );
            return None;
        }
    };
    TunedKernels::parse(&text)
        .inspect_err(|why| {
            errln!("pathline: {}: {why}; the file is ignored (--tune rewrites it)", path.display());
        })
        .ok()
}

/// Adds winners to the remembered ones. Returns the file, or why that failed.
pub(crate) fn remember(found: &[BestKernel]) -> Result<PathBuf, String> {
    let path = file().ok_or("neither XDG_CACHE_HOME nor HOME names a folder")?;
    let mut all = read(&path).unwrap_or(TunedKernels::known());
    found.iter().cloned().for_each(|best| all.set(best));
    let write = || -> io::Result<()> {
        // A home that is not there is not made: it may be one that is not mounted yet.
        if let Some(folder) = path.parent() {
            let cache = folder.parent().unwrap_or(folder);
            let base = if cache.ends_with(".cache") { cache.parent() } else { Some(cache) };
            if !base.is_some_and(Path::is_dir) {
                return Err(ErrorKind::NotFound.into());
            }
            fs::create_dir_all(folder)?;
        }
        // A concurrent reader sees the old file or the new one.
        let new = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&new, all.text())?;
        fs::rename(&new, &path)
    };
    write().map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

/// One line on a winner: what it was before, and what it is.
pub(crate) fn line(best: &BestKernel) -> String {
    let BestKernel { variant, class, gbs, plain_gbs, .. } = best;
    let what = format!("{} {}", variant.op, class.label());
    if *variant == KernelVariant::standard(variant.op) {
        return format!(
            "tuned: {what} {plain_gbs:.1} GB/s, nothing is faster than the plain kernel"
        );
    }
    format!("tuned: {what} {plain_gbs:.1} -> {gbs:.1} GB/s ({variant})")
}

/// Prints the result of a search at the end of a run.
pub(crate) fn summary(found: &[BestKernel], kept: Option<&Result<PathBuf, String>>) {
    outln!("");
    if found.is_empty() {
        outln!(
            "--tune found no kernel: it needs a GPU that can be measured (`pathline doctor`) and \
             time for a search"
        );
        return;
    }
    for best in found {
        outln!("{}", line(best));
    }
    match kept {
        Some(Ok(path)) => outln!("later runs take these kernels: {}", path.display()),
        Some(Err(why)) => outln!("later runs do not know of them: {why}"),
        None => outln!("a model's winners are not remembered"),
    }
}
