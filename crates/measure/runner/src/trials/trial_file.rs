//! The file in which the trials of a command are kept.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pathline_advise::{ArmEnv, CommandTask, GuardTask, TrialRecord};
use pathline_schema::mask_urls;
use serde::{Deserialize, Serialize};

/// The most bytes of such a file: a million trials.
const MAX_BYTES: u64 = 256 << 20;
/// How long another session may have the file.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);
/// Version of its format.
const FORMAT: u32 = 1;
/// How its first line begins.
const BEGINNING: &[u8] = b"{\"pathline_trials\":";
/// How a file is left for another.
const WAY_OUT: &str = "to start again, name another file after --trials";

/// What trials were made of: those of another session say nothing about this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialSession {
    /// Version of pathline.
    pub version: String,
    /// Name of the host.
    pub node: String,
    /// Its GPUs with drivers, processor and kernel.
    pub parts: Vec<String>,
    /// The folder in which the command runs.
    pub folder: PathBuf,
    /// The command, and how its cost is read.
    pub task: CommandTask,
    /// What is compared.
    pub arms: Vec<String>,
    /// Variables of libraries that are set for all arms, and the reviewed ones.
    pub set: ArmEnv,
    /// Least gain that is worth a change.
    pub min_gain: f64,
    /// Of the orders of arms.
    pub seed: u64,
    /// Seconds that the first session was given. A later one may be given others.
    pub budget: f64,
}

impl TrialSession {
    /// In what another session differs, a text each; the budget is none of it.
    fn differences(&self, now: &Self) -> Vec<String> {
        let mut all = Vec::new();
        let mut compare = |what: &str, then: String, now: String| {
            let (then, now) = (mask_urls(&then), mask_urls(&now));
            if then != now {
                all.push(format!("{what} was {then} and is {now}"));
            }
        };
        let metric = |task: &CommandTask| {
            let better = if task.higher { "higher" } else { "lower" };
            task.metric
                .as_ref()
                .map_or("time".to_owned(), |m| format!("'{m}' ({better} is better)"))
        };
        let env = |env: &ArmEnv| {
            let all: Vec<String> =
                env.iter().map(|(name, value)| format!("{name}={value}")).collect();
            if all.is_empty() { "nothing".to_owned() } else { all.join(" ") }
        };
        let command = |session: &Self| format!("`{}`", session.task.command);
        compare("the command", command(self), command(now));
        compare("the metric", metric(&self.task), metric(&now.task));
        let guards = |task: &CommandTask| {
            let of = |guard: &GuardTask| {
                let better = if guard.higher { "higher" } else { "lower" };
                format!("'{}' ({better} is better)", guard.pattern)
            };
            let all: Vec<String> = task.guards.iter().map(of).collect();
            let margin = task.guard_margin.map_or("usual".to_owned(), |margin| margin.to_string());
            format!("[{}] with margin {margin}", all.join(", "))
        };
        compare("what is guarded", guards(&self.task), guards(&now.task));
        compare("what is tried", self.arms.join(", "), now.arms.join(", "));
        compare("the node", self.node.clone(), now.node.clone());
        compare("its hardware and software", self.parts.join(", "), now.parts.join(", "));
        compare("what is set in the environment", env(&self.set), env(&now.set));
        let folder = |session: &Self| session.folder.display().to_string();
        compare("the folder", folder(self), folder(now));
        compare("--min-gain", self.min_gain.to_string(), now.min_gain.to_string());
        compare("--seed", self.seed.to_string(), now.seed.to_string());
        compare("the version of pathline", self.version.clone(), now.version.clone());
        all
    }
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct TrialHeader {
    pathline_trials: u32,
    session: TrialSession,
}

/// Why trials cannot be kept in a file.
#[derive(Debug, thiserror::Error)]
pub enum TrialFileError {
    /// A call failed.
    #[error("{}: {source}; {WAY_OUT}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It holds something else.
    #[error("{}: it has no trials of `pathline advise`, and nothing is written to it: {why}; {WAY_OUT}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Its trials are those of another session.
    #[error("{}: its trials say nothing about this session: {differences}; repeat the call as it was, or {WAY_OUT}", path.display())]
    OtherSession {
        /// The file.
        path: PathBuf,
        /// What has changed.
        differences: String,
    },
    /// Another session writes to it.
    #[error("{}: another session writes to it; wait until that ends, or name another file after --trials", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// A trial of a session that was killed goes on.
    #[error("{}: process {pid} is left of a trial whose session was killed, and would disturb the next; wait until it ends, or end it: kill {pid}", path.display())]
    LeftOver {
        /// The file.
        path: PathBuf,
        /// One of its processes.
        pid: u32,
    },
}

/// A file of trials, open for this process alone: a line for each, written when it ends.
#[derive(Debug)]
pub struct TrialFile {
    path: PathBuf,
    file: File,
    /// Seconds that the session was given which began the file.
    begun_with: f64,
}

/// The variable that processes of a trial have: the path of the file of its session.
const MARK: &str = "PATHLINE_TRIALS_FILE";

impl TrialFile {
    /// Creates the file, or reads what an earlier session kept in it. The last line may be torn, as a kill in
    /// the middle of a write leaves it; it is cut off.
    ///
    /// # Errors
    /// The file holds anything but trials of the same session, another process writes to it, a trial of a
    /// killed session still runs, or a call fails.
    pub fn open(
        path: &Path,
        session: &TrialSession,
    ) -> Result<(Self, Vec<TrialRecord>), TrialFileError> {
        let at = |source: io::Error| TrialFileError::Io { path: path.to_owned(), source };
        let foreign = |why: String| TrialFileError::Foreign { path: path.to_owned(), why };
        if fs::symlink_metadata(path).is_ok_and(|about| !about.is_file()) {
            return Err(foreign("it is no plain file".to_owned()));
        }
        let options = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = options.map_err(at)?;
        if !lock(&file) {
            return Err(TrialFileError::Busy { path: path.to_owned() });
        }
        let path = fs::canonicalize(path).map_err(at)?;
        let mut bytes = Vec::new();
        (&mut file).take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(at)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(foreign(format!("it has more than {} MiB", MAX_BYTES >> 20)));
        }
        let header = TrialHeader { pathline_trials: FORMAT, session: session.clone() };
        let header = serde_json::to_string(&header).map_err(|e| at(e.into()))? + "\n";
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        // A header that was torn belongs to a file without trials.
        if whole == 0 && !bytes.starts_with(BEGINNING) && !BEGINNING.starts_with(&bytes) {
            return Err(foreign("its first line has no end".to_owned()));
        }
        if let Some(pid) = left_over(&path) {
            return Err(TrialFileError::LeftOver { path, pid });
        }
        if whole == 0 {
            file.set_len(0).map_err(at)?;
            let mut this = Self { path, file, begun_with: session.budget };
            this.append(&header).map_err(at)?;
            return Ok((this, Vec::new()));
        }
        let text = bytes.get(..whole).and_then(|whole| std::str::from_utf8(whole).ok());
        let mut lines = text.ok_or_else(|| foreign("it is no text".to_owned()))?.lines();
        let first = lines.next().unwrap_or_default();
        let header: TrialHeader =
            serde_json::from_str(first).map_err(|e| foreign(e.to_string()))?;
        if header.pathline_trials != FORMAT {
            let is = header.pathline_trials;
            return Err(foreign(format!("it has format {is}, and this pathline reads {FORMAT}")));
        }
        let differences = header.session.differences(session);
        if !differences.is_empty() {
            let differences = differences.join("; ");
            return Err(TrialFileError::OtherSession { path, differences });
        }
        let mut records = Vec::new();
        for (at, line) in lines.enumerate() {
            let record = serde_json::from_str(line);
            records.push(record.map_err(|e| foreign(format!("its line {}: {e}", at + 2)))?);
        }
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(at)?;
        }
        Ok((Self { path, file, begun_with: header.session.budget }, records))
    }

    /// Its path, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Seconds that the session was given which began it.
    pub fn begun_with(&self) -> f64 {
        self.begun_with
    }

    /// The variable by which processes of its trials are found again after a kill.
    pub fn mark(&self) -> (String, String) {
        (MARK.to_owned(), self.path.display().to_string())
    }

    /// Keeps a record, on the disk when this returns.
    ///
    /// # Errors
    /// The reason as a text.
    pub fn keep(&mut self, record: &TrialRecord) -> Result<(), String> {
        let line = serde_json::to_string(record).map_err(io::Error::from);
        let kept = line.and_then(|line| self.append(&(line + "\n")));
        kept.map_err(|e| format!("{}: a trial cannot be kept: {e}", self.path.display()))
    }

    /// In one write, so that a kill tears the last line at most. Secrets of URLs are left out.
    fn append(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(mask_urls(line).as_bytes())?;
        self.file.sync_data()
    }
}

/// Whether no other session has the file. A process that is just being started may have it for a moment; a file
/// system without locks has this protection less.
fn lock(file: &File) -> bool {
    let begun = Instant::now();
    while let Err(TryLockError::WouldBlock) = file.try_lock() {
        if begun.elapsed() > LOCK_TIMEOUT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// A process of this user that a trial of the file's killed session left.
fn left_over(path: &Path) -> Option<u32> {
    let mark = format!("{MARK}={}", path.display());
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id()).find(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_advise::TrialCost;

    fn session() -> TrialSession {
        let command = "app".to_owned();
        let (metric, guards, guard_margin) = (None, Vec::new(), None);
        let task = CommandTask { command, metric, higher: false, guards, guard_margin };
        TrialSession {
            version: "1".to_owned(),
            node: "n1".to_owned(),
            parts: vec!["Linux".to_owned()],
            folder: "/".into(),
            task,
            arms: vec!["default".to_owned(), "A=1 [A]".to_owned()],
            set: ArmEnv::new(),
            min_gain: 0.01,
            seed: 1,
            budget: 120.0,
        }
    }

    fn trial(cost: Result<f64, String>) -> TrialRecord {
        let guarded = vec![0.1, 0.7];
        let cost = cost.map(|cost| TrialCost { cost, guarded });
        TrialRecord::Trial { arm: "default".to_owned(), seconds: 0.1, cost }
    }

    #[test]
    fn a_file_cut_at_any_byte_keeps_its_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trials.jsonl");
        // 0.1 + 0.2 has no short decimal text.
        let all = [trial(Ok(0.1 + 0.2)), trial(Err("exit code 3: \"a\"\n".to_owned()))];
        let (mut file, past) = TrialFile::open(&path, &session()).unwrap();
        assert_eq!(past, []);
        all.iter().for_each(|record| file.keep(record).unwrap());
        assert!(matches!(TrialFile::open(&path, &session()), Err(TrialFileError::Busy { .. })));
        drop(file);
        let whole = fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let later = TrialSession { budget: 600.0, ..session() };
            let (mut file, past) = TrialFile::open(&path, &later).unwrap();
            let ends = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(past, all[..ends.saturating_sub(1)], "cut at {cut}");
            assert_eq!(file.begun_with(), if ends > 0 { 120.0 } else { 600.0 });
            file.keep(&all[0]).unwrap();
            drop(file);
            let again = TrialFile::open(&path, &later).unwrap().1;
            assert_eq!((again.len(), &again[past.len()]), (past.len() + 1, &all[0]));
        }
    }

    #[test]
    fn other_sessions_and_other_files_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trials.jsonl");
        drop(TrialFile::open(&path, &session()).unwrap());
        let was = fs::read(&path).unwrap();
        let refusal = |now: TrialSession| TrialFile::open(&path, &now).unwrap_err().to_string();
        let with = |change: fn(&mut TrialSession)| {
            let mut now = session();
            change(&mut now);
            refusal(now)
        };
        for (why, change) in [
            (
                "the command was `app` and is `b`",
                (|s| s.task.command = "b".into()) as fn(&mut TrialSession),
            ),
            ("the metric was time and is 'x' (lower", |s| s.task.metric = Some("x".into())),
            ("what is tried was default, A=1 [A] and is C", |s| s.arms = vec!["C".into()]),
            ("the node was n1 and is n2", |s| s.node = "n2".into()),
            ("was nothing and is X=1", |s| s.set = [("X".into(), "1".into())].into()),
            ("--seed was 1 and is 2", |s| s.seed = 2),
        ] {
            let text = with(change);
            assert!(text.contains(why) && text.contains("another file after --trials"), "{text}");
        }
        assert_eq!(fs::read(&path).unwrap(), was);
        for text in ["a letter", "a letter\n", "{\"pathline_trials\":1}\n"] {
            fs::write(&path, text).unwrap();
            let why = refusal(session());
            assert!(why.contains("nothing is written to it"), "{why}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let folder = TrialFile::open(dir.path(), &session()).unwrap_err().to_string();
        assert!(folder.contains("no plain file"), "{folder}");
    }
}
