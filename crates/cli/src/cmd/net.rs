//! `pathline health --net`: the slow part of the network between the nodes of a job.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use pathline_diagnose::{FleetSettings, NetFault, NetReport, check_network};
use pathline_runner::{HostMachine, NetRanks, RankJob, RankKeeper, StorePlaces, joined, keep};

use super::ExitKind;
use crate::args::{HealthArgs, HealthFormat};
use crate::files;
use crate::say::{HOOKS, out};

/// Probability at most that a part of a sound network is named.
const ALPHA: f64 = 1e-4;

/// Checks the network of the job that this process belongs to. Rank 0 answers.
pub(super) fn check(args: &HealthArgs) -> Result<ExitKind> {
    let leaves = args.leaves.as_deref().map(read_leaves).transpose()?;
    let Some((launched, job)) = joined(args.rendezvous.as_deref())? else {
        bail!(
            "--net measures between the nodes of a job: start it by srun, flux run or mpirun, a rank a node or a rank \
             a GPU"
        );
    };
    let RankJob::Joined { at, .. } = &job else { bail!("no launcher started this process") };
    let host = HostMachine { libraries: args.libraries.choice(), stores: StorePlaces::default() };
    if launched.rank > 0 {
        let done = keep(at, &host, HOOKS)?;
        return Ok(if done { ExitKind::Fine } else { ExitKind::Unusable });
    }
    let _first = RankKeeper::start(at, &host)?;
    let mut ranks = NetRanks::open(&job, &host, HOOKS)?;
    let mut shape = ranks.shape();
    if let Some(leaves) = leaves {
        let leaf = |host: &String| {
            leaves.get(host).cloned().with_context(|| format!("--leaves names no leaf of {host}"))
        };
        shape.leaves = shape.hosts.iter().map(leaf).collect::<Result<_>>()?;
    }
    let settings = FleetSettings { loss: args.loss, alpha: ALPHA };
    let report = check_network(&shape, &mut ranks, settings);
    let shown = match args.format() {
        HealthFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
        _ => text(&report),
    };
    match &args.out {
        None => out!("{shown}"),
        Some(path) => files::write(path, &shown)?,
    }
    Ok(report.verdict.into())
}

/// The leaf switch of each host: a line `HOST LEAF` each.
fn read_leaves(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = files::read_packed(path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let leaf = |line: &str| {
        let mut words = line.split_whitespace();
        let pair = words.next().zip(words.next()).filter(|_| words.next().is_none());
        let (host, leaf) =
            pair.with_context(|| format!("{}: {line}: expected HOST LEAF", path.display()))?;
        Ok((host.to_owned(), leaf.to_owned()))
    };
    lines.map(leaf).collect()
}

fn text(report: &NetReport) -> String {
    let NetReport { verdict, hosts, rails, rounds, times, .. } = report;
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let mut text = format!(
        "{}: network of {}, {} each\n",
        verdict.word(),
        count(hosts.len(), "node"),
        count(*rails, "rail")
    );
    for fault in &report.faults {
        let _ = writeln!(text, "{}", fault_line(fault));
    }
    for (host, why) in &report.lost {
        let _ = writeln!(text, "  lost     {host}: {why}");
    }
    if let Some(why) = &report.why {
        let _ = writeln!(text, "  {why}");
    }
    let _ = write!(text, "{} of pairs, {}", count(*rounds, "round"), count(*times, "time"));
    if let Some(loss) = report.visible {
        let _ = write!(text, "; a node that loses {:.0} % is found", 100.0 * loss);
    }
    text + "\n"
}

fn fault_line(fault: &NetFault) -> String {
    let again = match fault.again {
        Some(again) => format!("{:.0} % in fresh rounds", 100.0 * again),
        None => "not measured again".to_owned(),
    };
    let next = match &fault.next {
        Some(next) if fault.odds < pathline_diagnose::posterior::SURE => {
            format!("; it may be {next}")
        }
        _ => String::new(),
    };
    let (word, part) = (fault.verdict.word(), &fault.part);
    format!("  {word:8} {part}: {:.0} % slower than its peers, {again}{next}", 100.0 * fault.loss)
}
