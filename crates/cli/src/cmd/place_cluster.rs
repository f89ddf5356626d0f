//! `pathline place --nodes`.

use anyhow::{Context, Result, anyhow, bail};
use pathline_flow::{Network, RuntimeEnv};
use pathline_place::{
    ClusterModel, ClusterPhase, LauncherKind, PhaseModel, PlaceRequest, PlacementPlan, job_script,
    map_cluster, place_ranks,
};
use pathline_runner::MachineModel;
use pathline_schema::{Bytes, Ns, Topology};

use super::ExitKind;
use super::place_pattern::{mover, read_phase};
use crate::args::{Launcher, PlaceArgs};
use crate::files;
use crate::say::{out, outln};

/// Nodes whose ranks are printed; the others stand in the file of --order.
const SHOWN: usize = 8;

/// Maps the ranks of a job to the GPUs of several nodes.
pub(super) fn run(args: &PlaceArgs, nodes: u32) -> Result<ExitKind> {
    let name = args.machine.as_deref().context("--nodes needs --machine")?;
    let machine = MachineModel::read(name)?;
    let desc = machine.desc();
    if let Some(cluster) = desc.cluster.as_ref().filter(|cluster| cluster.nodes < nodes) {
        bail!("{name} has {} nodes; --nodes {nodes} asks for more", cluster.nodes);
    }
    let gpus: Vec<u32> = desc.healthy_topology().gpus.iter().map(|gpu| gpu.index).collect();
    let places = gpus.len() * nodes as usize;
    if places == 0 {
        bail!("a pattern is placed on GPUs, and {name} has none");
    }
    let (phase, traffic) = read_phase(&args.pattern, args.ranks, places, args.bytes)?;
    let network = Network::new(desc, RuntimeEnv::default())?;
    let each: u64 = traffic.messages().iter().map(|message| message.bytes).max().unwrap_or(0);
    let node = PhaseModel::new(&network, &gpus, mover(args.by), Bytes(each))
        .map_err(|error| anyhow!("no phase can be predicted here: {error}"))?;
    let model = ClusterModel::new(desc, &node, nodes as usize);
    let ranks = traffic.ranks();
    let found = map_cluster(&model, &traffic)
        .with_context(|| format!("{ranks} ranks have {places} places on {nodes} nodes"))?;
    let order = rank_order(&found.best, gpus.len());
    if let Some(file) = &args.order {
        let text: Vec<String> = order.iter().flatten().map(usize::to_string).collect();
        files::write(file, &(text.join(",") + "\n"))?;
    }
    if let Some(launcher) = args.format {
        out!("{}", script(args, desc.healthy_topology(), &gpus, &found.best, launcher)?);
        return Ok(ExitKind::Fine);
    }
    outln!("{phase}, {ranks} ranks on {nodes} nodes: model {}", desc.name);
    outln!("  {:<38} {:>10} {:>8}  {:>16}", "", "at least", "", "between nodes");
    let rows = [
        ("ranks in order (launchers' default)", &found.identity),
        ("recursive bisection", &found.bisected),
        ("this mapping", &found.best),
    ];
    for (what, phase) in rows {
        let gain = phase.bound / found.best.bound;
        let bytes = phase.between_nodes / 1e9;
        outln!("  {what:<38} {:>10} {gain:>7.2}x  {bytes:>13.2} GB", Ns(phase.bound).to_string());
    }
    outln!(
        "  {} swaps computed; the time is what the fullest link, engine, adapter or switch needs.\n",
        found.tried
    );
    for (node, ranks) in order.iter().enumerate().take(SHOWN) {
        let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
        outln!("node {node}: ranks {}", ranks.join(" "));
    }
    if order.len() > SHOWN {
        outln!("and {} more nodes: --order FILE has all ranks, node by node", order.len() - SHOWN);
    }
    Ok(ExitKind::Fine)
}

/// The script of the job; a node has a place for each of these GPUs.
fn script(
    args: &PlaceArgs,
    topology: &Topology,
    gpus: &[u32],
    phase: &ClusterPhase,
    launcher: Launcher,
) -> Result<String> {
    let kind =
        launcher_kind(launcher).context("a rankfile is of one node; take --format openmpi")?;
    let hardware_threads = args.hardware_threads;
    let skip_first_core = skips_first_core(args, topology);
    let ranks = u32::try_from(gpus.len())?;
    let plan = place_ranks(topology, &PlaceRequest { ranks, skip_first_core, hardware_threads })?;
    let of = |gpu: &u32| plan.ranks.iter().find(|place| place.gpu == Some(*gpu)).cloned();
    let places: Option<Vec<_>> = gpus.iter().map(of).collect();
    let places = places.context("the plan of a node has not every GPU")?;
    let plan = PlacementPlan { ranks: places, warnings: plan.warnings };
    let with_nics = args.nics || plan.has_fabric();
    Ok(job_script(topology, &plan, &phase.at, kind, with_nics)?)
}

/// The ranks of each node in the order of its GPUs.
fn rank_order(phase: &ClusterPhase, places: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<(usize, usize)> = phase.at.iter().copied().zip(0..).collect();
    all.sort_unstable();
    let nodes = all.chunk_by(|(a, _), (b, _)| a / places == b / places);
    nodes.map(|node| node.iter().map(|(_, rank)| *rank).collect()).collect()
}

/// Whether the system keeps the first core behind each L3. A process of a job sees which cores it may use; a simulated
/// node does not, and centres with AMD GPUs and Slingshot reserve these: Frontier (OLCF's user guide, "Low-noise mode"),
/// LUMI (LUMI-G, "CPU binding").
pub(super) fn skips_first_core(args: &PlaceArgs, topology: &Topology) -> bool {
    let has_slingshot = topology.nics.iter().any(|nic| nic.name.starts_with("hsn"));
    let is_amd = topology.gpus.first().is_some_and(|gpu| gpu.caps().copy_kernel);
    let is_reserved = args.machine.is_some() && has_slingshot && is_amd;
    args.skip_first_core || is_reserved && !args.all_cores
}

/// What starts the wrapper script; none for a rankfile, which needs no script.
pub(super) fn launcher_kind(launcher: Launcher) -> Option<LauncherKind> {
    match launcher {
        Launcher::Slurm => Some(LauncherKind::Slurm),
        Launcher::Openmpi => Some(LauncherKind::OpenMpi),
        Launcher::Mpich => Some(LauncherKind::Mpich),
        Launcher::Flux => Some(LauncherKind::Flux),
        Launcher::Env => Some(LauncherKind::Env),
        Launcher::Rankfile => None,
    }
}
