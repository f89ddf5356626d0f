//! `pathline health --fleet` and `--gather`: nodes judged by each other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use pathline_diagnose::{FleetReport, FleetSettings, RunDigest, judge_fleet};
use pathline_report::health::fleet::{csv, prometheus, text};
use pathline_report::html;
use pathline_schema::NodeVerdict;
use pathline_transport::{LaunchedRank, launched};
use serde_json::{Value, json};

use super::{ExitKind, digest, health};
use crate::args::{HealthArgs, HealthFormat};
use crate::files;
use crate::say::{errln, out, width};

/// Probability at most that a sound node of a fleet is named.
const ALPHA: f64 = 1e-4;
/// Files of a fleet at most, and folders within folders.
const MAX_FILES: usize = 1_000_000;
const MAX_DEPTH: usize = 4;
/// Unusable files that are named.
const SHOWN: usize = 5;
/// What is waited for nodes beyond the time of a check.
const LATE: Duration = Duration::from_secs(2);
/// Between two looks for results of other nodes.
const LOOK: Duration = Duration::from_millis(50);
/// A result that is older than rank 0's by more is of an earlier job.
const STALE: Duration = Duration::from_secs(600);
/// How results of ranks are called: `rank-7.health.json`.
const RANK: &str = "rank-";
const OF_RANK: &str = ".health.json";
/// Variables that tell jobs and their steps apart.
const JOBS: [&str; 6] =
    ["SLURM_JOB_ID", "SLURM_STEP_ID", "FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PMIX_NAMESPACE"];

/// A result of a node.
enum NodeResult {
    /// With times, and what its own check says, if it is one.
    Times(Box<RunDigest>, Option<(NodeVerdict, String)>),
    /// A check without times: host, verdict, reason.
    Untimed(String, NodeVerdict, String),
    /// A rank on a node that another checks.
    SameNode,
}

/// Judges the nodes whose results these files and folders have.
pub(super) fn judge(args: &HealthArgs) -> Result<ExitKind> {
    let (paths, mut files) = (&args.fleet, Vec::new());
    for path in paths {
        let about = fs::metadata(path).with_context(|| path.display().to_string())?;
        match about.is_dir() {
            true => collect_files(path, MAX_DEPTH, &mut files)?,
            false => files.push(path.clone()),
        }
    }
    files.sort();
    if files.is_empty() {
        bail!(
            "no result of a node in {}: `pathline health --history DIR` keeps them, `pathline health --json -o \
             FILE` writes one",
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
        );
    }
    let results = read_all(&files);
    let broken = results.iter().zip(&files).filter_map(|(result, file)| {
        result.as_ref().err().map(|why| format!("{}: {why:#}", file.display()))
    });
    let broken: Vec<String> = broken.collect();
    broken.iter().take(SHOWN).for_each(|line| errln!("pathline: {line}"));
    if broken.len() > SHOWN {
        errln!("pathline: {} more of {} files cannot be used", broken.len() - SHOWN, files.len());
    }
    if broken.len() == files.len() {
        bail!("none of {} files is a result of a node", files.len());
    }
    answer(args, results.into_iter().flatten().collect(), Vec::new())
}

/// Prints or writes what the results say.
fn answer(args: &HealthArgs, results: Vec<NodeResult>, unanswered: Vec<u32>) -> Result<ExitKind> {
    let (mut digests, mut own, mut earlier) = (Vec::new(), Vec::new(), Vec::new());
    for result in results {
        match result {
            NodeResult::Times(digest, verdict) => {
                let host = digest.host.clone();
                own.extend(
                    verdict.map(|(verdict, why)| (host, digest.started.clone(), verdict, why)),
                );
                digests.push(*digest);
            }
            NodeResult::Untimed(host, verdict, why) => {
                own.push((host, String::new(), verdict, why))
            }
            NodeResult::SameNode => {}
        }
    }
    let mut report = judge_fleet(&digests, FleetSettings { loss: args.loss, alpha: ALPHA });
    report.unanswered = unanswered;
    for (host, started, verdict, why) in own {
        let latest = report.nodes.iter().find(|node| node.host == host).map(|n| n.started.as_str());
        // Of several checks of a node the latest counts.
        if latest.is_none_or(|latest| latest == started) {
            report.add_own_verdict(&host, verdict, &why);
        } else if matches!(verdict, NodeVerdict::Fail | NodeVerdict::Suspect) {
            earlier.push((host, verdict, started));
        }
    }
    for (host, verdict, started) in earlier {
        report.add_earlier_verdict(&host, verdict, &started);
    }
    show(args, &report)?;
    Ok(report.verdict().into())
}

fn show(args: &HealthArgs, report: &FleetReport) -> Result<()> {
    let ending = args.out.as_deref().and_then(Path::extension).unwrap_or_default();
    let shown = match (ending.to_str(), args.format()) {
        (Some("html"), _) => html::fleet::page(report),
        (Some("csv"), _) => csv(report),
        (_, HealthFormat::Json) => {
            let mut value = serde_json::to_value(report)?;
            if let Some(map) = value.as_object_mut() {
                map.insert("verdict".into(), json!(report.verdict()));
            }
            serde_json::to_string_pretty(&value)? + "\n"
        }
        (_, HealthFormat::Prom) => prometheus(report),
        _ => text(report, width()),
    };
    match &args.out {
        None => out!("{shown}"),
        Some(path) => {
            files::write(path, &shown)?;
            if matches!(ending.to_str(), Some("html" | "csv")) {
                out!("{}", text(report, width()));
            }
        }
    }
    Ok(())
}

/// Files that may be results, by their names.
fn collect_files(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let name = entry.file_name().to_string_lossy().into_owned();
        // A link may lead in a circle.
        if kind.is_dir() && depth > 0 {
            collect_files(&path, depth - 1, files)?;
        } else if kind.is_file()
            && [".json", ".json.gz", ".jsonl", ".jsonl.gz"].iter().any(|e| name.ends_with(e))
        {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            bail!("{}: more than {MAX_FILES} files; name a part of them", folder.display());
        }
    }
    Ok(())
}

/// Reads files on all CPUs, in their order.
fn read_all(files: &[PathBuf]) -> Vec<Result<NodeResult>> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(16);
    let part = files.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let parts: Vec<_> = files
            .chunks(part)
            .map(|files| scope.spawn(|| files.iter().map(|file| read(file)).collect::<Vec<_>>()))
            .collect();
        let lost = || vec![Err(anyhow!("a reader was lost"))];
        parts.into_iter().flat_map(|part| part.join().unwrap_or_else(|_| lost())).collect()
    })
}

/// Reads a digest, the JSON of a check, or the journal of a run.
fn read(file: &Path) -> Result<NodeResult> {
    let name = file.to_string_lossy();
    if name.ends_with(".jsonl") || name.ends_with(".jsonl.gz") {
        let digest = RunDigest::of(&files::read(file)?);
        return Ok(NodeResult::Times(Box::new(digest), None));
    }
    if digest::is_digest(file) {
        return Ok(NodeResult::Times(Box::new(digest::read(file)?), None));
    }
    let text = files::read_packed(file)?;
    let value: Value = serde_json::from_str(&text).context("no JSON")?;
    if value.get("same_node").is_some() {
        return Ok(NodeResult::SameNode);
    }
    let word = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let state = value.get("state").cloned().and_then(|state| serde_json::from_value(state).ok());
    let own = state.zip(word("reason"));
    match (value.get("digest").is_some_and(Value::is_object), own, word("host")) {
        (true, own, _) => Ok(NodeResult::Times(Box::new(RunDigest::parse(&text)?), own)),
        (false, Some((state, why)), Some(host)) => Ok(NodeResult::Untimed(host, state, why)),
        _ => bail!("no result of `pathline health --json`"),
    }
}

/// Checks this node and keeps the result in a folder that all nodes of the job share; rank 0 waits for all and
/// judges them.
pub(super) fn gather(args: &HealthArgs) -> Result<ExitKind> {
    let (begun, folder) = (Instant::now(), args.gather.as_deref().unwrap_or(Path::new(".")));
    let variable = |name: &str| std::env::var(name).ok();
    let Some(LaunchedRank { rank, size, local_rank, .. }) = launched(&variable) else {
        bail!(
            "--gather judges the nodes of a job together: start it by srun, flux run or mpirun, one task a node; \
             results that are there already: `pathline health --fleet {}`",
            folder.display()
        );
    };
    let size = size.unwrap_or(rank + 1);
    let job: Vec<String> = JOBS.iter().filter_map(|name| variable(name)).collect();
    let job = if job.is_empty() { "job".to_owned() } else { digest::safe(&job.join("-")) };
    let folder = folder.join(job);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let file = |rank: u32| folder.join(format!("{RANK}{rank}{OF_RANK}"));
    // Several ranks of a node would disturb each other.
    if local_rank.is_some_and(|local| local > 0) {
        files::write(&file(rank), "{\"same_node\": true}\n")?;
        return Ok(ExitKind::Fine);
    }
    let mut document = health::check_node(args);
    if args.machine.is_some() {
        // Simulated nodes have no names that differ.
        document.host = format!("{}-{rank}", document.host);
        if let Some(digest) = &mut document.digest {
            digest.host.clone_from(&document.host);
        }
    }
    files::write(&file(rank), &pathline_report::health::json(&document))?;
    if rank > 0 {
        return Ok(ExitKind::Fine);
    }
    let written = |rank: u32| fs::metadata(file(rank)).and_then(|about| about.modified()).ok();
    let own = written(0).unwrap_or(SystemTime::UNIX_EPOCH);
    let is_there = |rank: &u32| {
        written(*rank).is_some_and(|at| own.duration_since(at).unwrap_or_default() < STALE)
    };
    let mut waited: BTreeSet<u32> = (1..size).collect();
    loop {
        waited.retain(|rank| !is_there(rank));
        if waited.is_empty() || begun.elapsed() > args.budget + LATE {
            break;
        }
        thread::sleep(LOOK);
    }
    let unanswered: Vec<u32> = waited.iter().copied().collect();
    let answered: Vec<u32> = (0..size).filter(|rank| !waited.contains(rank)).collect();
    let results = read_all(&answered.iter().map(|rank| file(*rank)).collect::<Vec<_>>());
    for (rank, result) in answered.iter().zip(&results) {
        if let Err(why) = result {
            errln!("pathline: rank {rank}: {why:#}");
        }
    }
    answer(args, results.into_iter().flatten().collect(), unanswered)
}
