//! Files of a run on disk, and rules for overwriting them.
//!
//! A file that a command makes by itself (the journal, the machine description, the page) takes the
//! place of nothing but of a page of pathline's own. What a user names is replaced, as by any program.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::args::OutFile;
use crate::say::{errln, out};
use anyhow::{Context, Result, anyhow};
use flate2::bufread::MultiGzDecoder;
use pathline_flow::MachineDesc;
use pathline_schema::{Journal, JournalError, shell_word};

/// Name of the journal in a run's folder.
pub(crate) const JOURNAL: &str = "run.jsonl";
/// Name of the machine description in the folder of a simulated run.
pub(crate) const MACHINE: &str = "machine.toml";
/// Name of the page in a run's folder.
pub(crate) const PAGE: &str = "report.html";

/// The most broken lines that are named one by one.
const SHOWN: usize = 3;
/// How much of a page is looked through for the mark of pathline. It stands in the first kilobyte.
const HEAD: u64 = 4096;

/// The journal of a run that is named by its folder or by the journal itself. In a folder, the
/// packed one is taken where only that is there.
pub(crate) fn journal_path(run: &Path) -> PathBuf {
    if !run.is_dir() {
        return run.to_owned();
    }
    let (plain, packed) = (run.join(JOURNAL), run.join(format!("{JOURNAL}.gz")));
    if packed.exists() && !plain.exists() { packed } else { plain }
}

/// Whether a journal lies in a folder that `pathline run` made: it has the name that runs give it.
pub(crate) fn is_in_run_folder(journal: &Path) -> bool {
    let name = journal.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(".gz").unwrap_or(&name) == JOURNAL
}

/// The page of a journal: in its folder, and named after it unless it is `run.jsonl`, so that
/// several journals in one folder have a page each.
pub(crate) fn page_path(journal: &Path) -> PathBuf {
    let name = journal.file_name().unwrap_or_default().to_string_lossy();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    match plain.strip_suffix(".jsonl").unwrap_or(plain) {
        "run" => journal.with_file_name(PAGE),
        stem => journal.with_file_name(format!("{stem}.html")),
    }
}

/// The folder of a run in `folder` whose journal changed last.
fn newest_run(folder: &Path) -> Option<PathBuf> {
    let is_hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let runs = entries.filter(|entry| !is_hidden(&entry.file_name())).map(|entry| entry.path());
    let changed = |run: &PathBuf| std::fs::metadata(run.join(JOURNAL)).ok()?.modified().ok();
    runs.filter_map(|run| Some((changed(&run)?, run))).max().map(|(_, run)| run)
}

/// Reads a run. Lines that are broken are named on standard error.
pub(crate) fn read(run: &Path) -> Result<Journal> {
    let path = journal_path(run);
    if path.is_dir() {
        let path = path.display();
        return Err(anyhow!("{path}: it is a folder; expected a run's folder or its {JOURNAL}"));
    }
    if run.is_dir() && !path.exists() {
        let is_journal = |path: &PathBuf| path.to_string_lossy().contains(".jsonl");
        let mut inside: Vec<PathBuf> = std::fs::read_dir(run)?
            .flatten()
            .map(|entry| entry.path())
            .filter(is_journal)
            .collect();
        inside.sort();
        let Some(first) = inside.first() else {
            let way_out = match newest_run(run) {
                Some(newest) => format!("name a run in it, such as {}", newest.display()),
                None => "`pathline run` makes one".to_owned(),
            };
            return Err(anyhow!("{}: a folder without a {JOURNAL}; {way_out}", run.display()));
        };
        let (count, first) = (inside.len(), first.display());
        return Err(anyhow!(
            "{}: a folder of {count} journals: name one, such as {first}",
            run.display()
        ));
    }
    let name = run.to_string_lossy();
    let is_machine = MachineDesc::presets().iter().any(|(preset, _)| *preset == name);
    let file = File::open(&path).with_context(|| match is_machine {
        true => {
            format!("{name} is a simulated machine, no run: `pathline run -m {name}` makes one")
        }
        false => format!("{}: expected a run's folder or its {JOURNAL}", path.display()),
    })?;
    let journal = unpacked(file).map_err(Into::into).and_then(Journal::read);
    let journal = journal.map_err(|error| not_a_journal(&path, error))?;
    for broken in journal.broken.iter().take(SHOWN) {
        errln!("pathline: {}: {broken}; its record is missing", path.display());
    }
    if journal.broken.len() > SHOWN {
        let more = journal.broken.len() - SHOWN;
        errln!("pathline: {}: {more} more of its lines are broken", path.display());
    }
    Ok(journal)
}

/// What a file is that is no journal, and the command for it.
fn not_a_journal(path: &Path, error: JournalError) -> anyhow::Error {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    let shown = path.display();
    if read.is_ok() && pathline_report::html::is_page(&head) {
        let way_out = match run_of_page(path) {
            Some(run) => format!("`pathline report {}`", shell_word(&run.to_string_lossy())),
            None => format!("name the folder of the run, or its {JOURNAL}"),
        };
        return anyhow!("{shown} is the page of a run and no journal: {way_out}");
    }
    match error {
        JournalError::Line { line: 1, .. } if !head.starts_with(b"{") => anyhow!(
            "{shown} is no journal of a run; if it is the output of another tool: `pathline explain {}`",
            shell_word(&path.to_string_lossy())
        ),
        // A packed journal is written whole: what ends early was cut by a copy.
        error if head.starts_with(b"\x1f\x8b") => anyhow!(
            "{shown} is a packed file that cannot be read to its end ({error}): copy it again"
        ),
        error => anyhow!("{shown} is no journal of a run: {error}"),
    }
}

/// The run whose page this is: its folder, or its journal where that has another name.
fn run_of_page(page: &Path) -> Option<PathBuf> {
    let folder = page.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    if page_path(&folder.join(JOURNAL)).file_name() == page.file_name() {
        return journal_path(folder).exists().then(|| folder.to_owned());
    }
    let journals = ["jsonl", "jsonl.gz"].map(|ending| page.with_extension(ending));
    journals.into_iter().find(|journal| journal.exists())
}

/// A journal of random samples packs to a tenth, one of a model without noise to a thirtieth; gzip
/// reaches a thousandth. Beyond this ratio and size it is no journal, but costs as much time.
const MOST_RATIO: u64 = 50;
const FREE_BYTES: u64 = 64 << 20;

/// The text of a journal, unpacked if it is in gzip's format (RFC 1952: it starts with 1f 8b).
fn unpacked(file: File) -> io::Result<Box<dyn BufRead>> {
    let packed = Rc::new(Cell::new(0));
    let mut file = BufReader::new(CountingReader { from: file, bytes: Rc::clone(&packed) });
    if !file.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(file));
    }
    let from = MultiGzDecoder::new(file);
    Ok(Box::new(BufReader::new(BoundedUnpacker { from, packed, bytes: 0 })))
}

/// Counts what is read through it.
struct CountingReader<R> {
    from: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

/// Refuses what unpacks to far more than it is.
struct BoundedUnpacker<R> {
    from: R,
    packed: Rc<Cell<u64>>,
    bytes: u64,
}

impl<R: Read> Read for BoundedUnpacker<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.bytes += read as u64;
        if self.bytes > FREE_BYTES && self.bytes > self.packed.get().saturating_mul(MOST_RATIO) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "it unpacks to more than {MOST_RATIO} times its size, as no run does; gunzip \
                     it first if it is a run"
                ),
            ));
        }
        Ok(read)
    }
}

/// Looks whether a run can be written into a folder, before anything is measured: it must hold no
/// run, and nothing else under the names of a run's files. `machine` is the description that will be
/// written there.
pub(crate) fn check_folder(dir: &Path, machine: Option<&str>) -> Result<()> {
    if fs::symlink_metadata(dir.join(JOURNAL)).is_ok() {
        let dir = dir.display();
        return Err(anyhow!(
            "{dir} holds a run already; --resume {dir} goes on with it, or name another --out"
        ));
    }
    if let Some(text) = machine {
        absent_or_same(&dir.join(MACHINE), text)?;
    }
    replaceable_page(&dir.join(PAGE)).with_context(|| {
        format!("{}: the page of the run would go there; name another --out", dir.display())
    })
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

/// Makes a file of a run. One with this very text may be there; no link is followed.
pub(crate) fn create(path: &Path, text: &str) -> Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    match made.and_then(|mut file| file.write_all(text.as_bytes())) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => absent_or_same(path, text),
        made => made.with_context(|| format!("{}: cannot write", path.display())),
    }
}

/// Fails if something else than a file with this text has that name.
fn absent_or_same(path: &Path, text: &str) -> Result<()> {
    let Ok(kind) = fs::symlink_metadata(path) else { return Ok(()) };
    let same = kind.is_file()
        && kind.len() == text.len() as u64
        && fs::read(path).is_ok_and(|there| there == text.as_bytes());
    if same {
        return Ok(());
    }
    Err(anyhow!(
        "{}: there is one already that this run did not write, and it stays as it is; name another --out",
        path.display()
    ))
}

/// Writes the page of a run where no one has named a file for it. Only an earlier page of pathline
/// is replaced.
pub(crate) fn write_page(path: &Path, html: &str) -> Result<()> {
    replaceable_page(path)?;
    replace(path, html.as_bytes()).with_context(|| format!("{}: cannot write", path.display()))
}

/// Fails if something else than a page of pathline has that name.
fn replaceable_page(path: &Path) -> Result<()> {
    let Ok(kind) = fs::symlink_metadata(path) else { return Ok(()) };
    if kind.is_file() {
        let mut head = Vec::new();
        let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
        read.with_context(|| path.display().to_string())?;
        if pathline_report::html::is_page(&head) {
            return Ok(());
        }
    }
    let what = if kind.is_symlink() { "is a symbolic link" } else { "is no page of pathline" };
    Err(anyhow!(
        "{} {what} and stays as it is; rename it, or have `pathline report RUN -o FILE.html` write \
         another file",
        path.display()
    ))
}

/// Writes a file that was named on the command line; `-` is standard output. A plain file is replaced
/// as a whole. Anything else, as a device or a link, is written to.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    if path == Path::new("-") {
        out!("{text}");
        return Ok(());
    }
    let plain = fs::symlink_metadata(path).map_or(true, |kind| kind.is_file());
    let written = match plain.then(|| replace(path, text.as_bytes())) {
        // In a folder that takes no new file there may be one that can be written to.
        Some(Err(e)) if e.kind() == ErrorKind::PermissionDenied => fs::write(path, text),
        Some(written) => written,
        None => fs::write(path, text),
    };
    written.with_context(|| format!("{}: cannot write", path.display()))
}

/// Writes the files of `--out`, each with the text for its ending.
pub(crate) fn write_each(
    files: &[OutFile],
    text: impl Fn(&'static str) -> Result<String>,
) -> Result<()> {
    for OutFile { path, ending } in files {
        write(path, &text(ending)?)?;
    }
    Ok(())
}

/// Writes a plain file that a command names, replaced as a whole.
pub(crate) fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    replace(path, bytes).with_context(|| format!("{}: cannot write", path.display()))
}

/// Reads the text of a plain file that may be packed: opening a pipe may wait for ever.
pub(crate) fn read_packed(path: &Path) -> Result<String> {
    anyhow::ensure!(
        fs::metadata(path)?.is_file(),
        "a device, a pipe or a folder; expected a plain file"
    );
    let mut text = String::new();
    unpacked(File::open(path)?)?.take(FREE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Writes under another name and renames: readers see the old file or the new one, and a full disk
/// damages neither.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (mut file, new) = temporary(path)?;
    let done = file.write_all(bytes).and_then(|()| {
        if let Ok(old) = fs::metadata(path) {
            file.set_permissions(old.permissions())?;
        }
        fs::rename(&new, path)
    });
    if done.is_err() {
        // Its error is the one that matters.
        let _ = fs::remove_file(&new);
    }
    done
}

/// A new file in the folder of `path`. Skips a file that a killed process of the same number left.
fn temporary(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut nth = 0;
    loop {
        let new = path.with_file_name(format!(".pathline-{}-{nth}.new", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&new) {
            Ok(file) => return Ok((file, new)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && nth < 100 => nth += 1,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_journal_of_a_folder_has_a_page() {
        for (journal, page) in [
            ("runs/a/run.jsonl", "runs/a/report.html"),
            ("runs/a/run.jsonl.gz", "runs/a/report.html"),
            ("h200.jsonl.gz", "h200.html"),
            ("kept/x.y.jsonl", "kept/x.y.html"),
            ("kept/journal", "kept/journal.html"),
            // Never the journal itself.
            ("kept/x.html", "kept/x.html.html"),
        ] {
            assert_eq!(page_path(Path::new(journal)), Path::new(page));
        }
    }

    #[test]
    fn a_page_names_its_run() {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("report.html");
        assert_eq!(run_of_page(&page), None);
        fs::write(dir.path().join("run.jsonl"), "").unwrap();
        assert_eq!(run_of_page(&page).as_deref(), Some(dir.path()));
        fs::write(dir.path().join("h200.jsonl.gz"), "").unwrap();
        let journal = dir.path().join("h200.jsonl.gz");
        assert_eq!(run_of_page(&dir.path().join("h200.html")), Some(journal));
    }

    #[test]
    fn only_pages_of_pathline_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("report.html");
        let mine = "<!doctype html><title>Report of my holidays - pathline</title>";
        fs::write(&page, mine).unwrap();
        let error = write_page(&page, "new").unwrap_err().to_string();
        assert!(error.contains("no page of pathline") && error.contains("-o FILE.html"), "{error}");
        assert_eq!(fs::read_to_string(&page).unwrap(), mine);
        fs::remove_file(&page).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, &page).unwrap();
        let error = write_page(&page, "new").unwrap_err().to_string();
        assert!(error.contains("a symbolic link") && !elsewhere.exists(), "{error}");
        fs::remove_file(&page).unwrap();
        write_page(&page, "new").unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no other file is left");
    }

    #[test]
    fn a_named_file_is_replaced_and_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("twin.toml");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        write(&file, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        // A link that a user names leads where it leads.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "newer").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "newer");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        write(Path::new("/dev/null"), "nothing").unwrap();
    }
}
