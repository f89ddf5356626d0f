//! `pathline place`.

use anyhow::Result;
use pathline_place::{PlaceRequest, PlacementPlan, launch_text, place_ranks, rankfile_text};
use pathline_runner::{HostSurvey, MachineModel};
use pathline_schema::Topology;

use super::place_cluster::{launcher_kind, skips_first_core};
use super::{ExitKind, place_cluster, place_pattern};
use crate::args::PlaceArgs;
use crate::say::{errln, out, outln};

pub(super) fn run(args: &PlaceArgs) -> Result<ExitKind> {
    if let Some(nodes) = args.nodes {
        return place_cluster::run(args, nodes);
    }
    let topology = topology(args)?;
    let request = PlaceRequest {
        ranks: args.ranks.unwrap_or(0),
        skip_first_core: skips_first_core(args, &topology),
        hardware_threads: args.hardware_threads,
    };
    let mapped = match args.pattern.as_slice() {
        [] => None,
        words => Some(place_pattern::map(args, words, &topology, &request)?),
    };
    let plan = match &mapped {
        Some(mapped) => mapped.plan(),
        None => place_ranks(&topology, &request)?,
    };
    match args.format {
        Some(launcher) => match launcher_kind(launcher) {
            Some(kind) => {
                out!("{}", launch_text(&topology, &plan, kind, args.nics || plan.has_fabric())?)
            }
            None => out!("{}", rankfile_text(&topology, &plan)),
        },
        None => table(&topology, &plan, request.skip_first_core),
    }
    let Some(mapped) = mapped else { return Ok(ExitKind::Fine) };
    // A script stays a script.
    if args.format.is_none() {
        mapped.show();
    }
    match &args.prove {
        Some(dir) => mapped.prove(args, dir),
        None => Ok(ExitKind::Fine),
    }
}

fn topology(args: &PlaceArgs) -> Result<Topology> {
    if let Some(path) = &args.from {
        return Ok(pathline_topo::from_path(path)?);
    }
    if let Some(name) = &args.machine {
        return Ok(MachineModel::read(name)?.desc().topology());
    }
    Ok(HostSurvey::new(args.timeout.call()).topology)
}

fn table(topology: &Topology, plan: &PlacementPlan, skips_first_core: bool) {
    outln!("rank  GPU    PCI address   NUMA  network  CPUs");
    for place in &plan.ranks {
        let gpu = place.gpu.map_or_else(|| "-".to_owned(), |gpu| format!("gpu{gpu}"));
        let pci = topology.gpus.iter().find(|g| Some(g.index) == place.gpu);
        let pci = pci.map(|gpu| gpu.pci.as_str()).filter(|pci| !pci.is_empty()).unwrap_or("-");
        let numa = place.numa.map_or_else(|| "-".to_owned(), |numa| numa.to_string());
        let nic = place.nic.as_deref().unwrap_or("-");
        let cpus = &place.cpus;
        outln!("{:<5} {gpu:<6} {pci:<13} {numa:<5} {nic:<8} {cpus}", place.rank);
    }
    for warning in &plan.warnings {
        errln!("! {warning}");
    }
    if plan.ranks.iter().any(|place| place.gpu.is_some()) {
        let has_nic = plan.ranks.iter().any(|place| place.nic.is_some());
        let near = if has_nic { "cores and adapter" } else { "cores" };
        outln!("\nWhy: {near} are those nearest to the rank's GPU; no two ranks share cores.");
    }
    match skips_first_core {
        true => outln!(
            "The first core of each L3 is left to the system, as on Frontier and LUMI; --all-cores takes it."
        ),
        false if topology.gpus.iter().any(|gpu| gpu.caps().copy_kernel) => outln!(
            "--skip-first-core leaves a core of each L3 to the system, as on Frontier and LUMI."
        ),
        false => {}
    }
    outln!("--format slurm, openmpi, rankfile, mpich, flux or env prints what starts ranks there.");
}
