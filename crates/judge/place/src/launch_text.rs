//! A placement as launchers take it.

use pathline_schema::{CpuSet, Topology, UnwritableText, comment_line};

use crate::core_blocks::core_blocks;
use crate::{PlacementPlan, RankPlace};

/// The launcher that starts the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LauncherKind {
    /// Slurm's srun, which binds the ranks itself.
    Slurm,
    /// mpirun of Open MPI.
    OpenMpi,
    /// mpiexec of MPICH (Hydra) and its derivatives.
    Mpich,
    /// flux run.
    Flux,
    /// The wrapper script alone.
    Env,
}

/// Variables with a rank's number on its node. Slurm's comes last: ranks that mpirun starts within a job
/// inherit that of mpirun's own daemon.
const LOCAL_RANKS: [&str; 6] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PALS_LOCAL_RANKID",
    "PMI_LOCAL_RANK",
    "FLUX_TASK_LOCAL_ID",
    "SLURM_LOCALID",
];

/// File name of the wrapper script in the launcher's line.
pub(crate) const WRAPPER: &str = "./place.sh";

/// The wrapper script that gives each rank its GPU and its CPUs, and before it, as comments, the line that
/// starts it with this launcher.
///
/// # Errors
/// An adapter has a name that no variable can name, with `with_nics`.
pub fn launch_text(
    topology: &Topology,
    plan: &PlacementPlan,
    launcher: LauncherKind,
    with_nics: bool,
) -> Result<String, UnwritableText> {
    let mut text = head_text(topology, plan, "a node", &launch_lines(topology, plan, launcher));
    let nested = LOCAL_RANKS.iter().rev().fold(String::new(), |rest, name| {
        if rest.is_empty() { format!("${{{name}-}}") } else { format!("${{{name}-{rest}}}") }
    });
    text += &format!("rank={nested}\n");
    text += "case \"$rank\" in\n";
    for place in &plan.ranks {
        text += &place_line(topology, place, place.rank as usize, with_nics, "")?;
    }
    text += "*) echo \"$0: no place for rank '$rank' of this node\" >&2; exit 64 ;;\nesac\n";
    text += &variable_lines(topology, plan, with_nics);
    // srun has bound the rank by then.
    text += match launcher {
        LauncherKind::Slurm => "exec \"$@\"\n",
        _ => "exec taskset -c \"$cpus\" \"$@\"\n",
    };
    Ok(text)
}

/// The first lines of a script: how it is started, and warnings, as comments.
pub(crate) fn head_text(
    topology: &Topology,
    plan: &PlacementPlan,
    of: &str,
    lines: &[String],
) -> String {
    let host = topology.host.hostname.as_str();
    let node = if host.is_empty() { &topology.source } else { host };
    let mut text = "#!/bin/sh\n".to_owned();
    text += &comment_line(&format!("Ranks of {of} by pathline place: {node}"));
    text.extend(lines.iter().map(|line| comment_line(&format!("  {line}"))));
    text.extend(plan.warnings.iter().map(|warning| comment_line(&format!("Warning: {warning}"))));
    text
}

/// The line of a rank in the `case` of a script: its CPUs, GPU and adapter, and `more`.
pub(crate) fn place_line(
    topology: &Topology,
    place: &RankPlace,
    rank: usize,
    with_nics: bool,
    more: &str,
) -> Result<String, UnwritableText> {
    let mut text = format!("{rank}) cpus={}", place.cpus);
    if let Some(gpu) = place.gpu {
        text += &format!(" gpu={gpu}");
    }
    if let Some(nic) = place.nic.as_deref().filter(|_| with_nics) {
        if nic.is_empty() || !nic.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        {
            let expected = "letters, digits, '.', '_' and '-'; leave out --nics";
            return Err(UnwritableText::new("the name of an adapter", nic, expected));
        }
        text += &format!(" nic={nic}");
    }
    text += &format!("{more} ;;");
    // For `pathline place --check SCRIPT`: numbers of GPUs differ between runtimes, addresses do not.
    let pci = topology.gpus.iter().find(|gpu| Some(gpu.index) == place.gpu).map(|gpu| &gpu.pci);
    let pci = pci.filter(|pci| !pci.is_empty()).map(|pci| format!(" {}", comment_line(pci)));
    Ok(text + &pci.unwrap_or_else(|| "\n".to_owned()))
}

/// The lines that show a rank its GPU and, if asked for, its adapter.
pub(crate) fn variable_lines(topology: &Topology, plan: &PlacementPlan, with_nics: bool) -> String {
    let mut text = String::new();
    if plan.ranks.iter().any(|place| place.gpu.is_some()) {
        // Slurm sets CUDA_VISIBLE_DEVICES on AMD as well, where it counts among the one GPU that is left.
        let within = topology.gpus.first().map(|gpu| gpu.caps().visible_within_env);
        if let Some(names) = within.filter(|names| !names.is_empty()) {
            text += &format!("unset {}\n", names.join(" "));
        }
        for (name, value) in gpu_variables(topology) {
            text += &format!("export {name}={value}\n");
        }
    }
    if with_nics {
        text += &nic_lines(plan);
    }
    text
}

/// The ranks of one node as a rankfile of Open MPI 5, whose slots are cores in the order of NUMA domains, not
/// CPUs of the kernel. It binds, and shows no rank a GPU.
pub fn rankfile_text(topology: &Topology, plan: &PlacementPlan) -> String {
    let blocks = core_blocks(topology, false);
    let mut cores: Vec<(Option<u32>, &CpuSet)> =
        blocks.iter().flat_map(|block| block.cores.iter().map(|core| (block.numa, core))).collect();
    // Blocks are in order of their CPUs, which alternate between sockets on some hosts.
    cores.sort_by_key(|(numa, _)| *numa);
    let host = topology.host.hostname.as_str();
    let host = if host.is_empty() { "localhost" } else { host };
    let mut text = comment_line("mpirun --map-by rankfile:file=rankfile PROGRAM");
    for place in &plan.ranks {
        let has = |core: &CpuSet| !core.intersect(&place.cpus).is_empty();
        let slots: Vec<u32> =
            (0..).zip(&cores).filter(|(_, (_, core))| has(core)).map(|(slot, _)| slot).collect();
        let slots: Vec<String> = slots.iter().map(u32::to_string).collect();
        text += &format!("rank {}={host} slot={}\n", place.rank, slots.join(","));
    }
    text
}

/// The variables by which libraries take one adapter: Slingshot's (`hsn2` is `cxi2`), and those of UCX and
/// NCCL or RCCL for devices of verbs.
fn nic_lines(plan: &PlacementPlan) -> String {
    let names = || plan.ranks.iter().filter_map(|place| place.nic.as_deref());
    if names().any(|name| name.starts_with("hsn")) {
        return "export FI_CXI_DEVICE_NAME=\"cxi${nic#hsn}\"\n".to_owned();
    }
    match names().next().is_some() {
        true => "export UCX_NET_DEVICES=\"$nic:1\" NCCL_IB_HCA=\"=$nic\"\n".to_owned(),
        false => String::new(),
    }
}

/// The variables that show a process one GPU.
fn gpu_variables(topology: &Topology) -> Vec<(&'static str, &'static str)> {
    let Some(caps) = topology.gpus.first().map(|gpu| gpu.caps()) else { return Vec::new() };
    let visible = caps.visible_env.map(|name| (name, "\"$gpu\""));
    caps.visible_order_env.into_iter().filter(|_| visible.is_some()).chain(visible).collect()
}

fn launch_lines(topology: &Topology, plan: &PlacementPlan, launcher: LauncherKind) -> Vec<String> {
    let count = plan.ranks.len();
    match launcher {
        LauncherKind::Slurm => {
            let masks: Vec<String> = plan.ranks.iter().map(|p| mask(&p.cpus)).collect();
            let first = |place: &RankPlace| {
                place.cpus.as_slice().first().map(u32::to_string).unwrap_or_default()
            };
            let firsts: Vec<String> = plan.ranks.iter().map(first).collect();
            // --gpus-per-task hides all GPUs but some of Slurm's choice, whose numbers then begin at 0: the
            // script would name others, or none. Without --gpus-per-node a job may have no GPU.
            let has_gpus = plan.ranks.iter().any(|place| place.gpu.is_some());
            let all_gpus = match has_gpus {
                true => format!(" --gpus-per-node={} --gpu-bind=none", topology.gpus.len()),
                false => String::new(),
            };
            vec![
                format!(
                    "srun --ntasks-per-node={count} --cpu-bind=mask_cpu:{}{all_gpus} {WRAPPER} PROGRAM",
                    masks.join(",")
                ),
                format!("one core a rank: --cpu-bind=map_cpu:{}", firsts.join(",")),
            ]
        }
        LauncherKind::OpenMpi => {
            vec![format!("mpirun --map-by ppr:{count}:node --bind-to none {WRAPPER} PROGRAM")]
        }
        LauncherKind::Mpich => {
            vec![format!("mpiexec -ppn {count} -bind-to none {WRAPPER} PROGRAM")]
        }
        LauncherKind::Flux => vec![format!(
            "flux run -N NODES --tasks-per-node={count} --exclusive -o cpu-affinity=off -o gpu-affinity=off {WRAPPER} \
             PROGRAM"
        )],
        LauncherKind::Env => vec![format!("LAUNCHER {WRAPPER} PROGRAM")],
    }
}

/// CPUs as a hexadecimal mask, the form of Slurm's `mask_cpu`.
fn mask(cpus: &CpuSet) -> String {
    let last = cpus.as_slice().last().copied().unwrap_or_default();
    let digit = |nth: u32| {
        let bits = (0..4).filter(|bit| cpus.contains(nth * 4 + bit)).fold(0, |d, bit| d | 1 << bit);
        char::from_digit(bits, 16).unwrap_or('0')
    };
    (0..=last / 4).rev().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs 49 to 55 are bits 49 to 55: 0xfe and twelve zeros. CPUs 0, 5, 64: 0x21 in the low digits and 1
    /// in digit 16.
    #[test]
    fn masks_are_those_of_slurm() {
        let of = |cpus: &str| mask(&cpus.parse().unwrap());
        assert_eq!(of("49-55"), "fe000000000000");
        assert_eq!(of("57-63"), "fe00000000000000");
        assert_eq!(of("17-23"), "fe0000");
        assert_eq!(of("1-7"), "fe");
        assert_eq!(of("0,5,64"), "10000000000000021");
    }

    /// Two sockets with the CPUs of the kernel in turn, and two threads a core: CPU 2 is core 1 of socket 0,
    /// CPU 1 core 0 of socket 1, which is Open MPI's slot 2.
    #[test]
    fn slots_of_a_rankfile_are_cores_by_domain() {
        let mut topology = Topology::default();
        topology.host.hostname = "n1".parse().unwrap();
        for (id, cpus) in [(0, "0,2,4,6"), (1, "1,3,5,7")] {
            let cpus = cpus.parse().unwrap();
            topology.numa.push(pathline_schema::NumaDomain { id, cpus, ..Default::default() });
        }
        for core in ["0,4", "2,6", "1,5", "3,7"] {
            let (level, cpus) = (1, core.parse().unwrap());
            topology.caches.push(pathline_schema::CacheGroup { level, cpus, ..Default::default() });
        }
        let place = |rank: u32, cpus: &str| RankPlace {
            rank,
            gpu: None,
            numa: None,
            cpus: cpus.parse().unwrap(),
            nic: None,
        };
        let ranks = vec![place(0, "2"), place(1, "1,3")];
        let text = rankfile_text(&topology, &PlacementPlan { ranks, warnings: Vec::new() });
        let rows: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(rows, ["rank 0=n1 slot=1", "rank 1=n1 slot=2,3"]);
    }

    #[test]
    fn the_wrapper_gives_each_rank_its_gpu_and_cpus() {
        let place = |rank: u32, cpus: &str| RankPlace {
            rank,
            gpu: Some(rank + 4),
            numa: None,
            cpus: cpus.parse().unwrap(),
            nic: None,
        };
        let plan = PlacementPlan {
            ranks: vec![place(0, "1-7"), place(1, "9-15")],
            warnings: vec!["a warning".to_owned()],
        };
        let mut topology = Topology { source: "a test".to_owned(), ..Topology::default() };
        let gpu = pathline_schema::Gpu { vendor: "nvidia".to_owned(), ..Default::default() };
        topology.gpus = vec![gpu; 8];
        let text = launch_text(&topology, &plan, LauncherKind::OpenMpi, false).unwrap();
        assert!(text.contains("# Warning: a warning\n"), "{text}");
        assert!(text.contains("0) cpus=1-7 gpu=4 ;;\n1) cpus=9-15 gpu=5 ;;\n"), "{text}");
        assert!(
            text.contains("CUDA_VISIBLE_DEVICES=\"$gpu\"\nexec taskset -c \"$cpus\""),
            "{text}"
        );
        assert!(text.contains("mpirun --map-by ppr:2:node --bind-to none ./place.sh"), "{text}");
        let text = launch_text(&topology, &plan, LauncherKind::Slurm, false).unwrap();
        assert!(
            text.contains(
                "mask_cpu:fe,fe00 --gpus-per-node=8 --gpu-bind=none ./place.sh PROGRAM\n"
            ),
            "{text}"
        );
        assert!(text.contains("map_cpu:1,9\n") && text.ends_with("exec \"$@\"\n"), "{text}");
    }
}
