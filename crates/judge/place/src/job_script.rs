//! The placement of a job of several nodes as a script.

use pathline_schema::{Topology, UnwritableText};

use crate::launch_text::{WRAPPER, head_text, place_line, variable_lines};
use crate::{LauncherKind, PlacementPlan};

/// Variables with the number of a rank in its job and on its node. MPICH's Hydra numbers the ranks of a node by the
/// lines of its hosts, so that number is not compared. Slurm's come last: ranks that mpirun starts within a job
/// inherit those of mpirun's own daemon.
const RANK_NUMBERS: [(&str, &str); 5] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PALS_RANKID", "PALS_LOCAL_RANKID"),
    ("PMI_RANK", ""),
    ("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID"),
    ("SLURM_PROCID", "SLURM_LOCALID"),
];
/// Nodes in a line of the list of hosts.
const NODES_A_LINE: usize = 32;

/// The script that gives each rank of a job its GPU, CPUs and adapter, whose option `--hosts` turns the names of the
/// nodes into the list of hosts by rank, with which the launcher starts the ranks. `at` has the place of each rank:
/// its node times the places of a node, plus the place there. `plan` has the places of one node; all are alike.
///
/// # Errors
/// An adapter has a name that no variable can name, with `with_nics`.
pub fn job_script(
    topology: &Topology,
    plan: &PlacementPlan,
    at: &[usize],
    launcher: LauncherKind,
    with_nics: bool,
) -> Result<String, UnwritableText> {
    let places = plan.ranks.len();
    let node_of = |at: usize| at.checked_div(places).unwrap_or_default();
    let nodes = at.iter().map(|at| node_of(*at) + 1).max().unwrap_or_default();
    let lines = job_lines(at.len(), nodes, launcher);
    let mut text = head_text(topology, plan, &format!("{nodes} nodes"), &lines);
    let of: Vec<String> = at.iter().map(|at| (node_of(*at) + 1).to_string()).collect();
    text += &hosts_lines(&of, nodes);
    for (nth, (job, local)) in RANK_NUMBERS.iter().enumerate() {
        let local = if local.is_empty() { String::new() } else { format!("${{{local}-}}") };
        let word = if nth == 0 { "if" } else { "elif" };
        text += &format!("{word} [ -n \"${{{job}-}}\" ]; then rank=${job} at={local}\n");
    }
    text += "else rank= at=\nfi\ncase \"$rank\" in\n";
    let mut counts = vec![0_usize; nodes];
    for (rank, at) in at.iter().enumerate() {
        let node = node_of(*at);
        let place = plan.ranks.get(at.checked_rem(places).unwrap_or_default());
        // The script refuses a rank without a place.
        let (Some(place), Some(count)) = (place, counts.get_mut(node)) else { continue };
        // Launchers number the ranks of a node in their order in the job.
        let more = format!(" node={node} nth={count}");
        *count += 1;
        text += &place_line(topology, place, rank, with_nics, &more)?;
    }
    text += "*) echo \"$0: no place for rank '$rank' of this job\" >&2; exit 64 ;;\nesac\n";
    text += "if [ -n \"$at\" ] && [ \"$at\" != \"$nth\" ]; then\n";
    text += "  echo \"$0: rank $rank is number $at of its node, and number $nth by the plan: start it on the \
             hosts that $0 --hosts prints\" >&2\n  exit 64\nfi\n";
    text += &variable_lines(topology, plan, with_nics);
    text += "exec taskset -c \"$cpus\" \"$@\"\n";
    Ok(text)
}

/// The lines of `--hosts`: names of nodes on standard input, the host of each rank on standard output.
fn hosts_lines(node_of_rank: &[String], nodes: usize) -> String {
    let lists: Vec<String> = node_of_rank.chunks(NODES_A_LINE).map(|line| line.join(" ")).collect();
    format!(
        "if [ \"${{1-}}\" = --hosts ]; then\n  set -- $(cat)\n  if [ $# -lt {nodes} ]; then\n    \
         echo \"$0: $# names of nodes on standard input, and the plan has {nodes} nodes\" >&2\n    \
         exit 64\n  fi\n  for node in {}; do\n    eval \"echo \\\"\\${{$node}}\\\"\"\n  done\n  exit\nfi\n",
        lists.join(" \\\n    ")
    )
}

/// The lines that start the job. Sources: `srun` (`--distribution=arbitrary`, `SLURM_HOSTFILE`), Open MPI's mpirun
/// (`--map-by seq`), Hydra (`-f`), flux-run (`--taskmap=hostfile:FILE`).
fn job_lines(ranks: usize, nodes: usize, launcher: LauncherKind) -> Vec<String> {
    let names = match launcher {
        LauncherKind::Slurm => "scontrol show hostnames",
        LauncherKind::Flux => "flux hostlist --expand local",
        _ => "cat NODES",
    };
    let start = match launcher {
        LauncherKind::Slurm => format!(
            "SLURM_HOSTFILE=hosts srun -n {ranks} --distribution=arbitrary --cpu-bind=none --gpu-bind=none"
        ),
        LauncherKind::OpenMpi => {
            format!("mpirun -n {ranks} --hostfile hosts --map-by seq --bind-to none")
        }
        LauncherKind::Mpich => format!("mpiexec -n {ranks} -f hosts -bind-to none"),
        LauncherKind::Flux => format!(
            "flux run -N {nodes} -n {ranks} --exclusive --taskmap=hostfile:hosts -o cpu-affinity=off -o \
             gpu-affinity=off"
        ),
        LauncherKind::Env => "LAUNCHER, rank by rank on the lines of hosts,".to_owned(),
    };
    vec![format!("{names} | {WRAPPER} --hosts > hosts"), format!("{start} {WRAPPER} PROGRAM")]
}
