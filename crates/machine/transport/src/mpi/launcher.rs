//! Rank and size of this process from its launcher's environment variables. Pure: the environment
//! is an argument.

/// Rank and size that a launcher gave this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchedRank {
    /// Rank among the processes of the launch, from 0.
    pub rank: u32,
    /// Processes of the launch; `None` where the launcher sets no variable for it (`prterun` gives
    /// it through PMIx only).
    pub size: Option<u32>,
    /// Rank on its host.
    pub local_rank: Option<u32>,
    /// Ranks on its host.
    pub local_size: Option<u32>,
    /// The launcher: `Open MPI`, `Hydra`, `PALS`, `Flux`, `PMI`, `JSM`, `PMIx`, `Slurm`.
    pub by: &'static str,
}

impl LaunchedRank {
    /// Whether the launch certainly has one process.
    pub fn is_alone(&self) -> bool {
        self.size == Some(1)
    }
}

/// Variables of one launcher; the first that is set counts.
struct LauncherEnv {
    by: &'static str,
    /// At least one must also be set, if several launchers set the other variables.
    marked_by: &'static [&'static str],
    rank: &'static [&'static str],
    size: &'static [&'static str],
    local_rank: &'static [&'static str],
    local_size: &'static [&'static str],
}

/// Inner launchers first: `mpirun` runs inside a step of `srun`, `flux` or a batch system, and its
/// processes inherit the outer variables.
///
/// Slurm's `SLURM_PROCID` alone proves nothing: the shell of `salloc` and the script of `sbatch`
/// also have it, with the `SLURM_NTASKS` of the whole job, though one process runs. Only a step of
/// `srun` has `SLURM_STEP_NUM_TASKS`. A Flux broker unsets its variables before it starts a shell.
const LAUNCHERS: &[LauncherEnv] = &[
    LauncherEnv {
        by: "Open MPI",
        marked_by: &[],
        rank: &["OMPI_COMM_WORLD_RANK"],
        size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
    },
    // The launcher of MPICH and of Intel MPI.
    LauncherEnv {
        by: "Hydra",
        marked_by: &["MPI_LOCALNRANKS"],
        rank: &["PMI_RANK"],
        size: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID"],
        local_size: &["MPI_LOCALNRANKS"],
    },
    // The launcher of Cray.
    LauncherEnv {
        by: "PALS",
        marked_by: &["PALS_APID", "PALS_RANKID"],
        rank: &["PALS_RANKID", "PMI_RANK"],
        size: &["PMI_SIZE", "PALS_SIZE"],
        local_rank: &["PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"],
        local_size: &["PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"],
    },
    LauncherEnv {
        by: "Flux",
        marked_by: &[],
        rank: &["FLUX_TASK_RANK"],
        size: &["FLUX_JOB_SIZE"],
        local_rank: &["FLUX_TASK_LOCAL_ID"],
        local_size: &[],
    },
    LauncherEnv {
        by: "JSM",
        marked_by: &[],
        rank: &["JSM_NAMESPACE_RANK"],
        size: &["JSM_NAMESPACE_SIZE"],
        local_rank: &["JSM_NAMESPACE_LOCAL_RANK"],
        local_size: &["JSM_NAMESPACE_LOCAL_SIZE"],
    },
    // Before PMI and PMIx: `srun --mpi=...` sets their variables too, with less about the host.
    LauncherEnv {
        by: "Slurm",
        marked_by: &[],
        rank: &["SLURM_PROCID"],
        size: &["SLURM_STEP_NUM_TASKS"],
        local_rank: &["SLURM_LOCALID"],
        local_size: &[],
    },
    LauncherEnv {
        by: "PMI",
        marked_by: &[],
        rank: &["PMI_RANK"],
        size: &["PMI_SIZE"],
        local_rank: &["PMI_LOCAL_RANK"],
        local_size: &["PMI_LOCAL_SIZE"],
    },
];

/// The launcher of this process, if any. `env` looks up a variable.
///
/// Of nested launchers the innermost counts, except that one that started a single process (a
/// shell) does not hide one that started several.
pub fn launched(env: &dyn Fn(&str) -> Option<String>) -> Option<LaunchedRank> {
    let number = |names: &[&str]| {
        names.iter().find_map(|name| env(name)).and_then(|text| text.trim().parse::<u32>().ok())
    };
    let by_row = LAUNCHERS.iter().filter_map(|names| {
        let marked =
            names.marked_by.is_empty() || names.marked_by.iter().any(|name| env(name).is_some());
        let (rank, size) = (number(names.rank)?, number(names.size)?);
        let sound = marked && rank < size;
        sound.then(|| LaunchedRank {
            rank,
            size: Some(size),
            local_rank: number(names.local_rank),
            local_size: number(names.local_size),
            by: names.by,
        })
    });
    let mut all: Vec<LaunchedRank> = by_row.collect();
    // `prterun` on several Slurm nodes starts its daemons by a step of one task per node; the
    // processes of the daemons inherit its variables. `PRTE_LAUNCHED` marks them.
    let inner = env("PRTE_LAUNCHED").is_some() && !all.iter().any(|l| l.by == "Open MPI");
    all.splice(if inner { 0..0 } else { all.len()..all.len() }, pmix(env));
    let several = all.iter().find(|found| !found.is_alone());
    let mut found = several.or(all.first())?.clone();
    if found.by == "Slurm" {
        found.local_size = found.local_size.or_else(|| tasks_here(env));
    }
    Some(found)
}

/// `PMIX_RANK` comes without a size. Where Slurm set it, Slurm's row precedes this one.
fn pmix(env: &dyn Fn(&str) -> Option<String>) -> Option<LaunchedRank> {
    let rank = env("PMIX_RANK")?.trim().parse().ok()?;
    env("PMIX_NAMESPACE")?;
    Some(LaunchedRank { rank, size: None, local_rank: None, local_size: None, by: "PMIx" })
}

/// Tasks of a step on this node, from a list such as `4(x2),3`.
fn tasks_here(env: &dyn Fn(&str) -> Option<String>) -> Option<u32> {
    let node: usize = env("SLURM_NODEID")?.trim().parse().ok()?;
    let list = env("SLURM_STEP_TASKS_PER_NODE")?;
    let mut before = 0usize;
    for part in list.trim().split(',') {
        let (tasks, nodes) = match part.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part, 1usize),
        };
        before = before.checked_add(nodes)?;
        if node < before {
            return tasks.parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks up variables in `NAME=value` settings.
    fn of(settings: &str) -> Option<LaunchedRank> {
        let env = |name: &str| {
            let is = |setting: &&str| setting.split_once('=').is_some_and(|(key, _)| key == name);
            let setting = settings.split_whitespace().find(is)?;
            setting.split_once('=').map(|(_, value)| value.to_owned())
        };
        launched(&env)
    }

    fn line(settings: &str) -> String {
        let Some(l) = of(settings) else { return "none".to_owned() };
        let text = |n: Option<u32>| n.map_or("?".to_owned(), |n| n.to_string());
        let (local, here) = (text(l.local_rank), text(l.local_size));
        format!("{} of {}, {local} of {here} by {}", l.rank, text(l.size), l.by)
    }

    #[test]
    fn each_launcher_is_understood() {
        // As MPICH 5.0.2's mpirun -n 2 sets it.
        let hydra =
            "MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 PMI_FD=11 PMI_HOSTNAME=vm PMI_RANK=1 PMI_SIZE=2";
        assert_eq!(line(hydra), "1 of 2, 1 of 2 by Hydra");
        // As Open MPI 5.0.11's does.
        let open = "OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
                    OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=2 \
                    PMIX_NAMESPACE=prterun-vm-11176@1 PRTE_LAUNCHED=1";
        assert_eq!(line(open), "2 of 4, 0 of 2 by Open MPI");
        let prterun = "PMIX_RANK=1 PMIX_NAMESPACE=prterun-vm-11186@1 PRTE_LAUNCHED=1";
        assert_eq!(line(prterun), "1 of ?, ? of ? by PMIx");
        let daemons = format!("{prterun} SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2");
        assert_eq!(line(&daemons), "1 of ?, ? of ? by PMIx");
        let pals = "PALS_APID=5 PALS_RANKID=9 PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=8 PMI_RANK=9 \
                    PMI_SIZE=16";
        assert_eq!(line(pals), "9 of 16, 1 of 8 by PALS");
        // Flux sets PMI's as well.
        let flux = "FLUX_TASK_RANK=3 FLUX_JOB_SIZE=4 FLUX_TASK_LOCAL_ID=1 PMI_RANK=3 PMI_SIZE=4";
        assert_eq!(line(flux), "3 of 4, 1 of ? by Flux");
        assert_eq!(line("PMI_RANK=0 PMI_SIZE=3"), "0 of 3, ? of ? by PMI");
        let jsm = "JSM_NAMESPACE_RANK=0 JSM_NAMESPACE_SIZE=6 JSM_NAMESPACE_LOCAL_RANK=0";
        assert_eq!(line(jsm), "0 of 6, 0 of ? by JSM");
    }

    #[test]
    fn a_slurm_step_gives_the_local_size() {
        // Nodes 0 and 1 have 4 tasks each, node 2 has 3: 11 in all.
        let step = "SLURM_PROCID=9 SLURM_NTASKS=11 SLURM_STEP_NUM_TASKS=11 SLURM_LOCALID=1 \
                    SLURM_NODEID=2 SLURM_STEP_TASKS_PER_NODE=4(x2),3";
        assert_eq!(line(step), "9 of 11, 1 of 3 by Slurm");
        let first = step.replace("NODEID=2", "NODEID=1").replace("PROCID=9", "PROCID=5");
        assert_eq!(line(&first), "5 of 11, 1 of 4 by Slurm");
        assert_eq!(line(&format!("{step} PMIX_RANK=9 PMIX_NAMESPACE=slurm.1.0")), line(step));
        assert_eq!(line(&format!("{step} PMI_RANK=9 PMI_SIZE=11")), line(step));
        let odd = step.replace("4(x2),3", "4(x2");
        assert_eq!(line(&odd), "9 of 11, 1 of ? by Slurm");
    }

    #[test]
    fn a_batch_script_is_one_process() {
        // The script of sbatch -n 8: the whole job's size, but no step.
        let script = "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0 SLURM_NODEID=0 \
                      SLURM_TASKS_PER_NODE=4(x2) SLURM_JOB_ID=7";
        assert_eq!(line(script), "none");
        // A shell of srun --pty is a step of one process, in which mpirun may start several.
        let shell = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 PMI_RANK=0 PMI_SIZE=1";
        assert_eq!(line(shell), "0 of 1, 0 of ? by Slurm");
        let inside = format!("{shell} OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2");
        assert_eq!(line(&inside), "1 of 2, ? of ? by Open MPI");
    }

    #[test]
    fn a_single_shell_does_not_hide_an_outer_launch() {
        let both = "PMI_RANK=0 PMI_SIZE=1 MPI_LOCALNRANKS=1 SLURM_PROCID=3 \
                    SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=3";
        assert_eq!(line(both), "3 of 4, 3 of ? by Slurm");
    }

    #[test]
    fn nonsense_is_nobody() {
        for nonsense in [
            "",
            "PMI_RANK=2 PMI_SIZE=2",
            "PMI_RANK=-1 PMI_SIZE=2",
            "PMI_RANK=a PMI_SIZE=2",
            "PMIX_RANK=1",
            "OMPI_COMM_WORLD_RANK=0",
            "FLUX_TASK_RANK=99999999999 FLUX_JOB_SIZE=4",
        ] {
            assert_eq!(line(nonsense), "none", "{nonsense}");
        }
    }
}
