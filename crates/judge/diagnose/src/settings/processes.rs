//! What processes of a node may use: memory, shared memory, CPUs, each other.

use pathline_schema::{Bytes, CpuSet, Topology};
use pathline_topo::HostSnapshot;

use super::SettingCheck;
use super::environment::{local_ranks, variable};
use super::seen::usable;

/// Host memory that a process takes for each GPU before it has data: context, libraries, pinned buffers. Assumed.
const MEMORY_OF_GPU: Bytes = Bytes::gib(2);
/// Shared memory that NCCL asks for in a container.
const SHARED_MEMORY: Bytes = Bytes::gib(1);
/// Namespaces of the first process of a system (`PROC_IPC_INIT_INO`, `PROC_PID_INIT_INO` of Linux).
const OF_THE_HOST: [(&str, &str); 2] = [("ipc", "ipc:[4026531839]"), ("pid", "pid:[4026531836]")];
const CGROUP: &str = "https://docs.kernel.org/admin-guide/cgroup-v2.html";
const NCCL: &str = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html";
const SLURM: &str = "https://slurm.schedmd.com/mc_support.html";

pub(super) fn check(snapshot: &HostSnapshot, topology: &Topology) -> Vec<SettingCheck> {
    let mut all = Vec::new();
    let gpus = usable(snapshot, topology);
    all.extend(memory_limit(topology, gpus.len()));
    all.extend(killed(snapshot));
    all.extend(shared_memory(snapshot, gpus.len()));
    all.extend(affinity(snapshot, topology, &gpus));
    all.extend(quota(topology));
    if let Some(value) = snapshot.line("sys/kernel/mm/transparent_hugepage/enabled") {
        all.push(SettingCheck::new("memory", "transparent huge pages", value));
    }
    for (name, host) in OF_THE_HOST {
        if let Some(own) = snapshot.target(&format!("proc/self/ns/{name}")) {
            let value = if own == host { "the host's" } else { "a container's own" };
            all.push(SettingCheck::new("processes", format!("{name} namespace"), value));
        }
    }
    if let Some((name, count)) = local_ranks(snapshot) {
        all.push(SettingCheck::new("processes", "ranks on this node", format!("{count} ({name})")));
    }
    all
}

fn memory_limit(topology: &Topology, gpus: usize) -> Option<SettingCheck> {
    let limit = topology.host.cgroup_limit?;
    let needed = Bytes(MEMORY_OF_GPU.0.saturating_mul(gpus as u64));
    let left = topology.host.available;
    let value = format!("{}, {} left", limit.rounded(), left.rounded());
    let check = SettingCheck::new("memory", "limit of the cgroup", value);
    Some(if left < needed {
        check.suspect(
            format!(
                "jobs on all GPUs: pinned buffers count, and {gpus} take about {}; who needs more is killed",
                needed.rounded()
            ),
            "ask the launcher or the container for more (--mem, docker run --memory)",
            CGROUP,
        )
    } else {
        check
    })
}

/// Processes that the kernel ended for want of memory in a cgroup of this one.
fn killed(snapshot: &HostSnapshot) -> Option<SettingCheck> {
    let group =
        snapshot.get("proc/self/cgroup")?.lines().find_map(|line| line.strip_prefix("0::"))?;
    let events = ["sys/fs/cgroup", "sys/fs/cgroup/unified"].into_iter().find_map(|mount| {
        snapshot.get(&format!("{mount}{}/memory.events", group.trim_end_matches('/')))
    })?;
    let count: u64 =
        events.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()?;
    let check = SettingCheck::new("memory", "processes killed at the limit", count.to_string());
    Some(match count {
        0 => check,
        _ => check.suspect(
            "jobs here: one needed more memory than its cgroup may have",
            "ask the launcher or the container for more (--mem, docker run --memory)",
            CGROUP,
        ),
    })
}

/// `/dev/shm`, which libraries use between processes. Without a stated size it may take half of the memory.
fn shared_memory(snapshot: &HostSnapshot, gpus: usize) -> Option<SettingCheck> {
    let mount =
        snapshot.get("proc/self/mounts")?.lines().rfind(|line| line.contains(" /dev/shm "))?;
    let options = mount.split(' ').nth(3)?;
    let size = options.split(',').find_map(|option| option.strip_prefix("size="));
    let Some(bytes) = size.and_then(mount_size) else {
        return Some(SettingCheck::new("memory", "/dev/shm", "half of the memory"));
    };
    let check = SettingCheck::new("memory", "/dev/shm", bytes.rounded());
    Some(if bytes < SHARED_MEMORY && gpus > 1 {
        check.suspect(
            "NCCL, MPI and loaders of data between processes: they fail, or copy through the network",
            "docker run --shm-size=1g or --ipc=host; in Kubernetes an emptyDir of medium Memory there",
            NCCL,
        )
    } else {
        check
    })
}

/// `65536k`, as the kernel writes sizes of file systems in memory.
fn mount_size(text: &str) -> Option<Bytes> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text.get(digits.len()..)? {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).map(Bytes)
}

/// Time of CPUs that the cgroup grants, where that is less than the CPUs that may be used.
fn quota(topology: &Topology) -> Option<SettingCheck> {
    let warning = topology.warnings.iter().find(|warning| warning.code == "cpu-quota")?;
    let grant = warning.text.split(':').next().unwrap_or_default();
    Some(SettingCheck::new("processes", "time of CPUs", grant).suspect(
        "copies by CPU threads and messages: threads are stopped for parts of each period",
        "ask for as many CPUs as threads run (resources.limits.cpu, docker run --cpus), or set OMP_NUM_THREADS",
        CGROUP,
    ))
}

/// CPUs that this process may use, against the domains of its GPUs. A rank may be bound to its part.
fn affinity(snapshot: &HostSnapshot, topology: &Topology, gpus: &[u32]) -> Option<SettingCheck> {
    let allowed = &topology.host.allowed_cpus;
    // A job of a part of the node names its GPUs, by number or otherwise.
    let lists = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];
    let list = lists.iter().find_map(|name| variable(snapshot, name).filter(|v| !v.is_empty()));
    let chosen: Option<Vec<u32>> = list.map(|list| {
        list.split(',')
            .map_while(|item| gpus.get(item.trim().parse::<usize>().ok()?).copied())
            .collect()
    });
    let is_unnamed = chosen.as_ref().is_some_and(Vec::is_empty);
    let gpus = chosen.as_deref().unwrap_or(gpus);
    let used = topology.gpus.iter().filter(|gpu| gpus.contains(&gpu.index));
    let mut domains: Vec<u32> = used.filter_map(|gpu| gpu.numa).collect();
    domains.sort_unstable();
    domains.dedup();
    let cpus_of = |id: u32| topology.numa.iter().find(|d| d.id == id).map(|d| &d.cpus);
    let is_left_out = |cpus: &CpuSet| !cpus.is_empty() && allowed.intersect(cpus).is_empty();
    let left_out: Vec<String> = domains
        .iter()
        .filter(|id| cpus_of(**id).is_some_and(is_left_out))
        .map(|id| format!("numa{id}"))
        .collect();
    if allowed.is_empty() || domains.is_empty() || is_unnamed {
        return None;
    }
    let value = format!("{} of {}", allowed.len(), topology.host.cpus.len());
    let check = SettingCheck::new("processes", "CPUs of this process", value);
    let is_alone = local_ranks(snapshot).is_none_or(|(_, count)| count <= 1);
    let is_all = |left_out: usize| left_out == domains.len();
    Some(if !left_out.is_empty() && (is_alone || is_all(left_out.len())) {
        check.suspect(
            format!("copies with GPUs at {}: no CPU there may be used", left_out.join(", ")),
            "srun --cpu-bind=none or enough --cpus-per-task; mpirun --bind-to none; taskset",
            SLURM,
        )
    } else {
        check
    })
}
