//! `pathline health --bundle`: what a ticket needs, in one archive without secrets.

mod secrets;
mod ustar;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use pathline_diagnose::check_settings;
use pathline_report::health::{HealthDocument, json, text};
use pathline_runner::{HostSurvey, ask_versions};
use pathline_topo::{EVENTS, HostSnapshot};

use super::digest;
use super::doctor::add_settings;
use crate::args::HealthArgs;
use crate::files;
use secrets::Secrets;

/// Runs and kept results that are taken, the last ones.
const MOST_RUNS: usize = 5;
/// Largest journal that is taken, in bytes of text.
const MAX_RUN: usize = 32 << 20;
/// Columns of the verdict.
const WIDTH: usize = 100;

/// An archive whose file is there, and empty, until it is finished.
pub(super) struct HealthBundle {
    path: PathBuf,
    file: File,
    is_whole: bool,
}

/// The texts of an archive.
struct BundleFiles {
    secrets: Secrets,
    /// Name, what it is, text.
    files: Vec<(String, &'static str, String)>,
    /// What is not there, and why.
    absent: Vec<String>,
}

impl HealthBundle {
    /// Makes the file, which only its owner may read.
    ///
    /// # Errors
    /// There is something of that name, or it cannot be written.
    pub(super) fn begin(path: &Path) -> Result<Self> {
        ensure!(
            fs::symlink_metadata(path).is_err(),
            "{}: it exists, and stays as it is; name another --bundle",
            path.display()
        );
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("--bundle {}: cannot write", path.display()))?;
        Ok(Self { path: path.to_owned(), file, is_whole: false })
    }

    /// Writes what is known of the node. `document` is of a check, if one was made.
    ///
    /// # Errors
    /// The file cannot be written; it is removed.
    pub(super) fn finish(
        mut self,
        args: &HealthArgs,
        document: Option<&HealthDocument>,
    ) -> Result<()> {
        let mut files =
            BundleFiles { secrets: Secrets::here(), files: Vec::new(), absent: Vec::new() };
        if let Some(document) = document {
            files.add("health.txt", "verdict", &text(document, WIDTH));
            files.add("health.json", "verdict and every measured path", &json(document));
        }
        match args.machine {
            None => files.add_host(args)?,
            Some(_) => files.absent.push("facts of the host: the node is simulated".to_owned()),
        }
        files.add_runs(args);
        let environment = files.secrets.environment();
        files.add("environment.txt", "variables that libraries and launchers read", &environment);
        self.write(&files).with_context(|| format!("{}: cannot write", self.path.display()))?;
        self.is_whole = true;
        Ok(())
    }

    fn write(&mut self, files: &BundleFiles) -> std::io::Result<()> {
        let now = jiff::Timestamp::now();
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        let mut packed = GzEncoder::new(&mut self.file, Compression::default());
        packed.write_all(&ustar::entry("index.txt", files.index().as_bytes(), seconds))?;
        for (name, _, text) in &files.files {
            packed.write_all(&ustar::entry(name, text.as_bytes(), seconds))?;
        }
        packed.write_all(&ustar::END)?;
        packed.finish()?;
        self.file.sync_all()
    }
}

impl Drop for HealthBundle {
    fn drop(&mut self) {
        if !self.is_whole {
            // Nothing can be done about a file that stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl BundleFiles {
    fn add(&mut self, name: &str, what: &'static str, text: &str) {
        self.files.push((name.to_owned(), what, self.secrets.mask(text)));
    }

    fn add_host(&mut self, args: &HealthArgs) -> Result<()> {
        let HostSurvey { mut snapshot, limits, .. } = HostSurvey::new(None);
        add_settings(&mut snapshot);
        ask_versions(&mut snapshot, &args.libraries.choice(), limits);
        let topology = pathline_topo::from_snapshot("live", &snapshot);
        let checks = serde_json::to_string_pretty(&check_settings(&snapshot, &topology))?;
        self.add("doctor.json", "settings and versions, judged: `pathline doctor --json`", &checks);
        let parts = serde_json::to_string_pretty(&topology)?;
        self.add("topology.json", "parts of the node: `pathline topo --from`", &parts);
        let what = "files of /proc and /sys: `pathline doctor --from` judges them";
        self.add("snapshot.json", what, &snapshot.to_text());
        if let Some(versions) = snapshot.get(HostSnapshot::VERSIONS) {
            self.add("versions.tsv", "libraries: name, version, file", versions);
        }
        match snapshot.get(EVENTS) {
            Some(lines) => {
                self.add("kernel.txt", "kernel log: faults of GPUs, PCI Express, adapters", lines);
            }
            None => self.absent.push(
                "kernel log: not readable; root reads it, or everybody with \
                 `sysctl kernel.dmesg_restrict=0`"
                    .to_owned(),
            ),
        }
        Ok(())
    }

    /// The runs of the command line, and the last results of the folder of `--history`.
    fn add_runs(&mut self, args: &HealthArgs) {
        let journals = args.runs.iter().map(|run| files::journal_path(run));
        let mut paths: Vec<PathBuf> = journals.collect();
        let kept = args.history.as_deref().and_then(|folder| digest::paths(folder).ok());
        let mut kept = kept.unwrap_or_default();
        paths.extend(kept.drain(kept.len().saturating_sub(MOST_RUNS)..));
        for (nth, path) in paths.iter().enumerate() {
            let shown = self.secrets.mask(&path.display().to_string());
            match files::read_packed(path) {
                _ if nth >= 2 * MOST_RUNS => {
                    self.absent.push(format!("{shown}: more than {} runs", 2 * MOST_RUNS));
                }
                Ok(text) if text.len() > MAX_RUN => {
                    self.absent.push(format!("{shown}: {} bytes", text.len()));
                }
                Ok(text) => {
                    let is_digest = digest::is_digest(path);
                    let (ending, what) = match is_digest {
                        true => ("digest.json", "kept result of an earlier check"),
                        false => ("run.jsonl", "journal of a run: `pathline report`"),
                    };
                    self.add(&format!("runs/{nth}.{ending}"), what, &text);
                }
                Err(error) => self.absent.push(format!("{shown}: {error:#}")),
            }
        }
    }

    fn index(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let mut text = format!(
            "Made by pathline {version}. Values that look like secrets are {}.\n\n",
            secrets::MASK
        );
        for (name, what, contents) in &self.files {
            text += &format!("{name:20} {:>9} B  {what}\n", contents.len());
        }
        for line in &self.absent {
            text += &format!("not here: {}\n", line.replace('\n', " "));
        }
        text
    }
}
