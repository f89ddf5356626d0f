//! Variables of the process that took a snapshot.

use pathline_topo::HostSnapshot;

/// Variables with the number of processes that a launcher started on this node.
const LOCAL_RANKS: [&str; 6] = [
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "PALS_LOCAL_SIZE",
    "PMIX_LOCAL_SIZE",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NTASKS_PER_NODE",
];

/// The value of a variable of this process.
pub(super) fn variable<'s>(snapshot: &'s HostSnapshot, name: &str) -> Option<&'s str> {
    let all = snapshot.get("proc/self/environ")?;
    all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

/// The variable that says how many processes a launcher started here, and how many: `8` or, of Slurm, `8(x2)`.
pub(super) fn local_ranks(snapshot: &HostSnapshot) -> Option<(&'static str, u32)> {
    LOCAL_RANKS.into_iter().find_map(|name| {
        let count = variable(snapshot, name)?.split(['(', ',']).next()?.parse().ok()?;
        Some((name, count))
    })
}
