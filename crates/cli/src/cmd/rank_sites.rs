//! `pathline place --check`.

use anyhow::{Context, Result};
use pathline_place::{
    PlaceRequest, PlacementPlan, PlannedRank, RankPlace, RankSite, check_sites, place_ranks,
    planned_sites, read_plan,
};
use pathline_runner::{JobSites, MachineModel, job_sites, read_text};
use serde_json::json;

use super::ExitKind;
use crate::args::PlaceArgs;
use crate::say::{errln, out, outln};

/// Largest plan that is read: a line for each of 4096 ranks.
const MAX_PLAN: u64 = 4 << 20;

pub(super) fn run(args: &PlaceArgs) -> Result<ExitKind> {
    let plan = match args.check.as_ref().and_then(Option::as_ref) {
        Some(path) => {
            let text = read_text(path, MAX_PLAN).with_context(|| path.display().to_string())?;
            let plan = read_plan(&text).with_context(|| path.display().to_string())?;
            Some(plan)
        }
        None => None,
    };
    if let Some(name) = &args.machine {
        let sites = simulated(name, args.ranks, plan.as_deref())?;
        return Ok(show(args, &sites, None, plan.as_deref()));
    }
    let libraries = args.libraries.choice();
    match job_sites(&libraries, args.rendezvous.as_deref(), args.timeout.call()) {
        JobSites::All { sites, by, notes } => {
            for note in notes {
                errln!("! {}", note.text);
            }
            Ok(show(args, &sites, by, plan.as_deref()))
        }
        JobSites::Apart { site, error } => {
            // Each process has its own line; only findings of one rank alone can be seen.
            errln!("pathline: rank {} shows itself alone: {error:#}", site.rank);
            show(args, std::slice::from_ref(&site), None, plan.as_deref());
            Ok(ExitKind::CouldNotJudge)
        }
        JobSites::Sent => Ok(ExitKind::Fine),
    }
}

/// Ranks of a simulated machine, where a plan puts them.
fn simulated(
    name: &str,
    ranks: Option<u32>,
    plan: Option<&[PlannedRank]>,
) -> Result<Vec<RankSite>> {
    let topology = MachineModel::read(name)?.desc().topology();
    let place = |planned: &PlannedRank| RankPlace {
        rank: planned.local_rank,
        gpu: match &planned.pci {
            Some(pci) => topology.gpu_at(pci),
            None => planned.gpu,
        },
        numa: topology
            .numa
            .iter()
            .find(|domain| !domain.cpus.intersect(&planned.cpus).is_empty())
            .map(|domain| domain.id),
        cpus: planned.cpus.clone(),
        nic: None,
    };
    let placed = match plan {
        Some(plan) => {
            PlacementPlan { ranks: plan.iter().map(place).collect(), warnings: Vec::new() }
        }
        None => {
            let request = PlaceRequest { ranks: ranks.unwrap_or(0), ..PlaceRequest::default() };
            place_ranks(&topology, &request)?
        }
    };
    Ok(planned_sites(&topology, &placed))
}

/// Prints the sites with their findings.
fn show(
    args: &PlaceArgs,
    sites: &[RankSite],
    by: Option<&str>,
    plan: Option<&[PlannedRank]>,
) -> ExitKind {
    let findings = check_sites(sites, plan);
    if args.json {
        let document = json!({ "schema": 1, "launcher": by, "ranks": sites, "findings": findings });
        outln!("{document:#}");
    } else {
        out!("{}", head(sites, by));
        table(sites);
        for finding in &findings {
            let ranks = if finding.ranks.len() == 1 { "rank" } else { "ranks" };
            outln!("! {ranks} {}: {}", rank_list(&finding.ranks), finding.text);
            outln!("  {} [{}]", finding.action, finding.code);
        }
        let compared = if plan.is_some() { "; the plan is met" } else { "" };
        if by.is_none() && args.machine.is_none() && sites.len() < 2 {
            outln!(
                "No launcher started this process, so only its own binding was checked; ranks of a job: `srun -n 8 \
                 pathline place --check`"
            );
        } else if findings.is_empty() {
            outln!("No fault of binding, memory, GPU or network adapter was found{compared}.");
        }
    }
    if findings.is_empty() { ExitKind::Fine } else { ExitKind::Wrong }
}

fn head(sites: &[RankSite], by: Option<&str>) -> String {
    let mut hosts: Vec<&str> = sites.iter().map(|site| site.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let by = by.map(|by| format!(", started by {by}")).unwrap_or_default();
    let (ranks, count) = (sites.len(), hosts.len());
    let simulated = if sites.iter().any(|site| site.simulated) { " (simulated)" } else { "" };
    format!("{ranks} rank{} on {count} host{}{by}{simulated}\n\n", plural(ranks), plural(count))
}

/// A row for each rank, in columns as wide as their content.
fn table(sites: &[RankSite]) {
    let titles = ["rank", "host", "CPUs", "NUMA", "pages", "GPU", "PCI address", "network"];
    let rows: Vec<[String; 8]> = sites.iter().map(row).collect();
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain(titles.get(at).map(|title| title.len())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> =
            cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    outln!("{}", line(&mut titles.into_iter()));
    for row in &rows {
        outln!("{}", line(&mut row.iter().map(String::as_str)));
    }
    outln!("");
}

fn row(site: &RankSite) -> [String; 8] {
    let none = || "-".to_owned();
    let list = |numbers: Vec<u32>| {
        let text: Vec<String> = numbers.iter().map(u32::to_string).collect();
        if text.is_empty() { none() } else { text.join(",") }
    };
    let pages = site.pages.as_ref().map_or_else(none, |pages| {
        let all: u64 = pages.values().sum();
        let share = |(domain, count): (&u32, &u64)| {
            format!("{domain}:{:.0}%", *count as f64 / all.max(1) as f64 * 100.0)
        };
        pages.iter().map(share).collect::<Vec<_>>().join(" ")
    });
    let gpu = match site.gpus.as_slice() {
        [] => none(),
        [gpu] => format!("{}", gpu.host_index.unwrap_or(gpu.index)),
        several => format!("{} visible", several.len()),
    };
    let pci = site.only_gpu().map(|gpu| gpu.pci.to_string()).filter(|pci| !pci.is_empty());
    [
        site.rank.to_string(),
        site.host.clone(),
        site.cpus.to_string(),
        list(site.node.domains_of(&site.cpus)),
        pages,
        gpu,
        pci.unwrap_or_else(none),
        site.nic.as_ref().map_or_else(none, |nic| nic.name.clone()),
    ]
}

/// `0-3,6`.
fn rank_list(ranks: &[u32]) -> String {
    pathline_schema::CpuSet::new(ranks.iter().copied()).to_string()
}
