//! Files that a command writes in the form that their ending names.

use std::path::PathBuf;

/// A file of `--out`.
#[derive(Debug, Clone)]
pub(crate) struct OutFile {
    pub(crate) path: PathBuf,
    /// One of the endings that the command writes.
    pub(crate) ending: &'static str,
}

/// A parser of files with one of these endings; of two that fit, the first counts.
pub(super) fn out_file(
    endings: &'static [&'static str],
) -> impl Fn(&str) -> Result<OutFile, String> + Clone {
    move |text| {
        let ending = endings.iter().find(|ending| text.ends_with(&format!(".{ending}")));
        let known = || format!("its ending says what is written: .{}", endings.join(" or ."));
        let ending = ending.ok_or_else(known)?;
        Ok(OutFile { path: PathBuf::from(text), ending })
    }
}
