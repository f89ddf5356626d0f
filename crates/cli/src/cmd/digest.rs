//! `pathline health --history`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use flate2::Compression;
use flate2::write::GzEncoder;
use pathline_diagnose::{HistoryComparison, RunDigest};

use super::{ExitKind, judge_source};
use crate::args::HealthArgs;
use crate::files;
use crate::say::{errln, outln};

/// The most bytes of a digest.
const MAX_BYTES: usize = 20_000;
/// How the names of digests end.
const ENDING: &str = ".digest.json.gz";
/// Largest digest that is read, packed.
const MAX_READ: u64 = 8 << 20;
/// Slower cases that are listed.
const SHOWN: usize = 10;

/// Judges runs by what a folder keeps of earlier ones, and keeps them there.
pub(super) fn judge_runs(args: &HealthArgs, folder: &Path) -> Result<ExitKind> {
    let mut exit = ExitKind::Fine;
    for path in &args.runs {
        let journal = files::read(path)?;
        let digest = RunDigest::of(&journal);
        let source = judge_source(path, &journal);
        if digest.cases.is_empty() {
            errln!("pathline: {}: no case has a figure: it is not kept", path.display());
            exit = exit.worse(source).worse(ExitKind::CouldNotJudge);
            continue;
        }
        let earlier = earlier(folder, &digest.started)?;
        let found = if earlier.is_empty() {
            outln!("{}: the first of {}", path.display(), folder.display());
            ExitKind::CouldNotJudge
        } else {
            let compared = digest.against(&earlier, args.loss, args.alpha);
            let compared = compared.with_context(|| path.display().to_string())?;
            outln!("{}: {}", path.display(), sentence(&compared));
            for case in compared.slower.iter().take(SHOWN) {
                let odds = case.probability.map_or(String::new(), |p| format!(", p = {p:.1e}"));
                outln!("  {:.1} % slower{odds}: {}", case.loss * 100.0, case.case);
            }
            match (compared.significant || compared.slow_class.is_some(), compared.undecided) {
                (true, _) => ExitKind::Wrong,
                (false, Some(_)) => ExitKind::CouldNotJudge,
                (false, None) => ExitKind::Fine,
            }
        };
        if found.worse(source) != ExitKind::Wrong {
            outln!("  kept: {}", keep(folder, digest)?.display());
        }
        exit = exit.worse(source).worse(found);
    }
    Ok(exit)
}

/// What a folder keeps of results other than the one that started at this time. Nothing if it is not there yet.
pub(super) fn earlier(folder: &Path, started: &str) -> Result<Vec<RunDigest>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut all = read_folder(folder)?;
    all.retain(|digest| digest.started != started);
    Ok(all)
}

/// Keeps a result in a folder; its file.
pub(super) fn keep(folder: &Path, digest: RunDigest) -> Result<PathBuf> {
    fs::create_dir_all(folder)
        .with_context(|| format!("{}: cannot make this folder", folder.display()))?;
    let name = format!("{}-{}{ENDING}", safe(&digest.host), safe(&digest.started));
    let file = folder.join(name);
    files::write_bytes(&file, &pack(digest)?)?;
    Ok(file)
}

/// The digest packed into at most [`MAX_BYTES`]; a plan that is too large keeps a share of its cases.
fn pack(mut digest: RunDigest) -> Result<Vec<u8>> {
    loop {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&serde_json::to_vec(&digest)?)?;
        let packed = packed.finish()?;
        let before = digest.cases.len();
        if packed.len() <= MAX_BYTES || before == 0 {
            return Ok(packed);
        }
        let mut share = MAX_BYTES as f64 / packed.len() as f64 * 0.95;
        while digest.cases.len() == before && share > 0.0 {
            digest.thin(share);
            share *= 0.9;
        }
        errln!("pathline: a digest keeps {} of {before} cases", digest.cases.len());
    }
}

/// Letters, digits and dashes of a name.
pub(super) fn safe(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

/// The digests of a folder, in the order of their names.
pub(super) fn read_folder(folder: &Path) -> Result<Vec<RunDigest>> {
    let paths = paths(folder)?;
    paths.iter().map(|path| read(path).with_context(|| path.display().to_string())).collect()
}

/// Their files.
pub(super) fn paths(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    let entries = fs::read_dir(folder)
        .with_context(|| format!("{}: expected a folder of digests", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if is_digest(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Whether a file is called as digests are.
pub(super) fn is_digest(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(ENDING) || name.ends_with(".digest.json")
}

/// Reads a digest that may be packed.
pub(super) fn read(path: &Path) -> Result<RunDigest> {
    let length = fs::metadata(path)?.len();
    if length > MAX_READ {
        return Err(anyhow!("{length} bytes; a digest has at most {MAX_READ}"));
    }
    Ok(RunDigest::parse(&files::read_packed(path)?)?)
}

/// The result of a comparison in a sentence.
pub(super) fn sentence(compared: &HistoryComparison) -> String {
    let HistoryComparison { runs, other_software, left_out, cases, slower, .. } = compared;
    let mut without = Vec::new();
    if *other_software > 0 {
        without.push(format!("{other_software} of other software left out"));
    }
    if let Some(first) = left_out.first() {
        let more = left_out.len() - 1;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        without.push(format!("that of {first}{more} left out: cut, or without most of the cases"));
    }
    let without =
        if without.is_empty() { String::new() } else { format!(" ({})", without.join("; ")) };
    let mut found = Vec::new();
    if let Some((class, loss)) = &compared.slow_class {
        found.push(format!("all of {class} are {:.1} % slower than before", loss * 100.0));
    }
    match (slower.len(), compared.significant) {
        (0, _) if *cases == 0 || compared.slow_class.is_some() => {}
        (0, _) => found.push("none is slower".to_owned()),
        (n, true) => found.push(format!("{n} slower, significantly")),
        (n, false) => found.push(format!("{n} slower, within the spread of these runs")),
    }
    found.extend(compared.undecided.clone());
    format!("{cases} cases against {runs} earlier runs{without}: {}", found.join("; "))
}
