//! Why nothing was chosen: the condition that fails, and the command that fulfils it.

use pathline_schema::{Case, CasePattern, MemKind, Mover, SuiteId, did_you_mean};

use crate::scope::PlanScope;

/// Why a pattern matches no case of a machine: a part of it that does not exist here, if there is one.
pub(crate) fn explain(scope: &PlanScope<'_>, pattern: &CasePattern, suites: &[String]) -> String {
    let CasePattern::Flow { src, dst, by, .. } = pattern else { return String::new() };
    let place = |text: &str| explain_place(scope, text);
    if let Some(why) = place(src).or_else(|| place(dst)).or_else(|| explain_mover(by)) {
        return why;
    }
    match suites {
        [] => "its places and movers exist, and no suite combines them; a case text without * and ? is \
               measured without a suite"
            .to_owned(),
        _ => "other suites may have one; leave out the names of suites".to_owned(),
    }
}

/// The unit of a case that a machine does not have, if there is one.
pub(crate) fn missing_unit(scope: &PlanScope<'_>, case: &Case) -> Option<String> {
    // Why a machine has none at all is said by the case.
    if scope.topology.gpus.is_empty() {
        return None;
    }
    let places = case.flows().flat_map(|flow| [flow.src, flow.dst]);
    places.into_iter().find_map(|place| explain_place(scope, &place.to_string()))
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?'])
}

fn explain_place(scope: &PlanScope<'_>, text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split('.').collect();
    let rank = |part: &str| part.strip_prefix('r').is_some_and(|n| n.parse::<u32>().is_ok());
    let parts = match parts.as_slice() {
        [first, rest @ ..] if rank(first) => rest,
        parts => parts,
    };
    let (unit, memory) = match parts {
        [unit, memory] => (*unit, Some(*memory)),
        [unit] => (*unit, None),
        _ => return None,
    };
    let numbers = |kind: &str| unit.strip_prefix(kind).and_then(|n| n.parse::<u32>().ok());
    let (topology, here) = (scope.topology, |n: usize, what: &str| format!("{n} {what}"));
    if let Some(n) = numbers("gpu").filter(|n| !topology.gpus.iter().any(|g| g.index == *n)) {
        return Some(format!(
            "there is no gpu{n}; this machine has {}",
            here(topology.gpus.len(), "GPUs")
        ));
    }
    if let Some(n) = numbers("numa").filter(|n| !topology.numa.iter().any(|d| d.id == *n)) {
        let all = here(topology.numa.len(), "NUMA domains");
        return Some(format!("there is no numa{n}; this machine has {all}"));
    }
    let memory = memory.filter(|memory| !has_wildcard(memory))?;
    let words = MemKind::ALL.iter().map(|kind| kind.word());
    if words.clone().any(|word| word == memory) {
        return None;
    }
    let all: Vec<&str> = words.clone().collect();
    Some(format!(
        "no memory is called '{memory}': one of {}{}",
        all.join(" "),
        did_you_mean(memory, words)
    ))
}

fn explain_mover(text: &str) -> Option<String> {
    let kind = text.split(['@', '[']).next().unwrap_or(text);
    if has_wildcard(kind) || Mover::words().any(|word| word == kind) {
        return None;
    }
    let all: Vec<&str> = Mover::words().collect();
    let near = did_you_mean(kind, Mover::words());
    Some(format!("no mover is called '{kind}': one of {}{near}", all.join(" ")))
}

/// Why a suite has no case on a machine.
pub(crate) fn explain_suite(scope: &PlanScope<'_>, id: SuiteId) -> String {
    use SuiteId::{
        CclCollectives, CclPairs, CollectiveTypes, Concurrent, Contention, Fan, Host, HostLink,
        Latency, Local, Managed, Metadata, MpiAtomics, MpiBandwidth, MpiBothWays, MpiCollectives,
        MpiConcurrent, MpiLatency, MpiMixed, MpiMultiLatency, MpiOneSided, MpiOverlap, MpiPairs,
        MpiPeers, MpiPersistent, MpiSwitches, MpiWindows, Net, NumaGpu, Overhead, Overlap, Pairs,
        Patterns, Registration, Routes, Shm, Storage, StorageGrid, StorageRanks, Sweep, Ucx,
        UcxMixed, UcxSwitches,
    };
    let (gpus, ranks) = (scope.topology.gpus.len(), scope.ranks.len());
    let launch = |wanted: u32| match scope.simulated {
        true => format!("add --ranks {wanted}"),
        false => format!(
            "start pathline with `mpirun -n {wanted}` or `srun -n {wanted}`, or \
             add --ranks {wanted} --mpirun mpirun"
        ),
    };
    let own = |wanted: u32| format!("add --ranks {wanted}");
    let library = |what: &str| match scope.simulated {
        true => format!("the description of this machine has no {what}"),
        false => format!("no {what} in each process; `pathline doctor` says what is missing"),
    };
    match id {
        Host => "no NUMA domain with CPUs is known".to_owned(),
        Local | HostLink | Latency | Sweep | Fan | Managed | Overhead | Overlap | NumaGpu
        | Contention | Concurrent
            if gpus == 0 =>
        {
            "this machine has no GPU; `--machine mi250x` simulates a node".to_owned()
        }
        Pairs | Patterns if gpus < 2 => match scope.simulated {
            true => format!("two GPUs are needed, and {gpus} is left: name two with --gpus"),
            false => format!(
                "two GPUs are needed, and this machine has {gpus}; `--machine mi250x` simulates a node"
            ),
        },
        Routes => {
            "no GPU lies between two others; `pathline topo` shows how they are joined".to_owned()
        }
        // First, since more processes would not help.
        MpiOneSided | MpiWindows | MpiAtomics | MpiOverlap | MpiPersistent | MpiSwitches
        | UcxSwitches | Registration
            if scope.simulated =>
        {
            "models have no such messages; measure them on a real node".to_owned()
        }
        MpiPeers if ranks < 2 => format!("two processes are needed: {}", launch(2)),
        MpiPeers | MpiMixed | UcxMixed
            if scope.ranks.iter().any(|member| member.gpus.is_empty()) =>
        {
            "each process needs a GPU: start as many as there are GPUs".to_owned()
        }
        MpiPairs if ranks < 3 => format!("three processes are needed: {}", launch(3)),
        Net if scope.ranks.iter().all(|member| member.node == 0) => match scope.simulated {
            true => "two nodes are needed: add --ranks 16 --nodes 2".to_owned(),
            false => "two nodes are needed: start pathline with `srun -N 2` or with an mpirun \
                      that names two hosts"
                .to_owned(),
        },
        MpiConcurrent if ranks < 4 => format!("four processes are needed: {}", launch(4)),
        MpiLatency | MpiBandwidth | MpiBothWays | MpiMixed | MpiOneSided | MpiWindows
        | MpiAtomics | MpiMultiLatency | MpiOverlap | MpiPersistent | MpiSwitches
        | MpiCollectives
            if ranks < 2 =>
        {
            format!("two processes are needed: {}", launch(2))
        }
        CclCollectives | CclPairs if gpus < 2 => {
            format!("two GPUs are needed, and this machine has {gpus}")
        }
        CclCollectives | CclPairs | CollectiveTypes if ranks == 0 => format!(
            "processes are needed: {}, or --ranks 1 for one process with a thread for each GPU",
            own(u32::try_from(gpus).unwrap_or(2).clamp(2, 8))
        ),
        Ucx | UcxSwitches | Shm if ranks < 2 => format!("two processes are needed: {}", own(2)),
        MpiLatency | MpiBandwidth | MpiBothWays | MpiMixed | MpiOneSided | MpiWindows
        | MpiAtomics | MpiMultiLatency | MpiOverlap | MpiPersistent | MpiPairs | MpiPeers
        | MpiConcurrent | Net | MpiSwitches | MpiCollectives => library("MPI"),
        CclCollectives | CclPairs => library("NCCL or RCCL"),
        CollectiveTypes => library("NCCL, RCCL or MPI"),
        Ucx | UcxMixed | UcxSwitches => library("UCX"),
        Registration => library("RDMA adapter with libibverbs"),
        StorageRanks if ranks < 2 => format!("two processes are needed: {}", own(2)),
        Storage | StorageGrid | Metadata | StorageRanks => {
            "no place for files: name a folder with --store DIR".to_owned()
        }
        _ => {
            "it needs parts that this machine has not; `pathline topo` shows what it has".to_owned()
        }
    }
}
