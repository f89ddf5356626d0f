//! A job script judged by what is known of the names, values and defaults that it sets, and of its bindings: no GPU is
//! asked, and no trial is made.

use std::collections::BTreeMap;

use pathline_schema::{COMPUTED, Topology};

use crate::advice::{Advice, AdviceVerdict, untried_setting};
use crate::job_script::{JobScript, ScriptVendor};
use crate::mpi_names::of_another_mpi;
use crate::setting_table::{is_known_name, meant_name, setting_row};

/// From this ROCm on, small collectives of MI250X need HSA_NO_SCRATCH_RECLAIM=1.
const SLOW_RECLAIM_FROM: (u32, u32) = (7, 13);
const SLOW_RECLAIM_ARCH: &str = "gfx90a";
/// Variables that only one vendor's libraries read.
const VENDOR_PREFIXES: [(ScriptVendor, &[&str]); 1] =
    [(ScriptVendor::Amd, &["HSA_", "ROCR_", "RCCL_", "HIP_"])];

/// What is known of the variables of a script: DROP for names that no library reads, values that it does not know,
/// defaults, and variables of another MPI or vendor; SUSPECT for what slows whatever else is set. Nothing of the others.
pub fn stated_settings(script: &JobScript) -> Vec<Advice> {
    let of = |(name, value): (&String, &String)| {
        let (verdict, why) = stated_verdict(name, value, script)?;
        Some(untried_setting(name, value, verdict, why))
    };
    script.settings.iter().filter_map(of).collect()
}

/// What is known of a variable that only a trial can decide on; `None` if that is nothing.
pub(crate) fn stated_effect(name: &str) -> Option<String> {
    match setting_row(name) {
        Some(row) => Some(row.about()).filter(|about| !about.is_empty()),
        None if is_known_name(name) => None,
        None => Some("its name is not in the table of what libraries read".to_owned()),
    }
}

/// An answer about a variable that is not set; `None` if no library is known to read it.
pub fn unset_setting(name: &str) -> Option<Advice> {
    if !is_known_name(name) {
        return None;
    }
    let row = setting_row(name);
    let default = row.map_or("", |row| row.default);
    let default = match default.trim_start_matches('~') {
        "" => String::new(),
        value => format!(", which is as {value}"),
    };
    let about = stated_effect(name).map(|about| format!(": {about}")).unwrap_or_default();
    let why = format!("it is not set{default}{about}; --review {name}=VALUE judges a value");
    let untried = untried_setting(name, "", AdviceVerdict::Unclear, why);
    Some(Advice { subject: format!("{name} unset"), choice: None, ..untried })
}

/// `; did you mean NCCL_ALGO?` where a name that no library reads resembles another.
pub fn meant_setting(name: &str) -> String {
    meant_name(name).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default()
}

fn stated_verdict(name: &str, value: &str, script: &JobScript) -> Option<(AdviceVerdict, String)> {
    if value.is_empty() {
        return None;
    }
    let of_mpi = script.mpi.and_then(|brand| of_another_mpi(name, brand));
    let of_vendor = || script.vendor.and_then(|vendor| of_another_vendor(name, vendor));
    if let Some(why) = of_mpi.or_else(of_vendor) {
        return Some((AdviceVerdict::Ignored, why));
    }
    if !is_known_name(name) {
        let meant = meant_name(name).filter(|_| !script.is_own_variable(name))?;
        let why = format!("no library reads {name}; did you mean {meant}");
        return Some((AdviceVerdict::Ignored, why));
    }
    let row = setting_row(name)?;
    let source = row.source;
    if let Some(why) = row.misfit(value) {
        let why = format!("'{value}' is none of its values: {why} ({source})");
        return Some((AdviceVerdict::Ignored, why));
    }
    if row.is_default(value) {
        let why = "it is the default: it does nothing, unless the site sets another";
        return Some((AdviceVerdict::Remove, format!("{why} ({source})")));
    }
    // Where GPUs talk by NCCL or RCCL, MPI need not pass their memory.
    let is_collectives = |name: &String| name.starts_with("NCCL_") || name.starts_with("RCCL_");
    let by_mpi = script.vendor.is_some() && !script.settings.keys().any(is_collectives);
    let harm = row.certain_harm(value, by_mpi)?;
    Some((AdviceVerdict::Suspect, format!("{harm} ({source})")))
}

fn of_another_vendor(name: &str, vendor: ScriptVendor) -> Option<String> {
    let is_of = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let (owner, _) = VENDOR_PREFIXES.iter().find(|(_, prefixes)| is_of(prefixes))?;
    let (owner, own) = (owner.name(), vendor.name());
    (owner != own)
        .then(|| format!("libraries of {owner} GPUs read {name}, and the script is for {own} GPUs"))
}

/// What is wrong with how a script binds ranks, and what it lacks on its node, where that is given.
pub fn script_findings(script: &JobScript, node: Option<&Topology>) -> Vec<Advice> {
    let bindings = script.steps.iter().filter_map(cut_ipc);
    let maps = script.cpu_maps.iter().filter_map(|map| misplaced_cpus(map, script, node?));
    let counts = idle_gpus(script).into_iter().chain(too_many_threads(script));
    let counts = counts.chain(shared_gpus(script));
    let mut found: BTreeMap<String, String> = bindings.chain(maps).chain(counts).collect();
    let is_slow = node
        .is_some_and(|node| node.gpus.iter().any(|gpu| gpu.arch == SLOW_RECLAIM_ARCH))
        && script.rocm.is_some_and(|version| version >= SLOW_RECLAIM_FROM);
    if is_slow && !script.settings.contains_key("HSA_NO_SCRATCH_RECLAIM") {
        let why = "without HSA_NO_SCRATCH_RECLAIM=1 collectives below 16 MiB take 5 to 10 times as long on \
                   MI250X from ROCm 7.13 on (ROCm/rocm-systems#8657)";
        found.insert("HSA_NO_SCRATCH_RECLAIM unset".to_owned(), why.to_owned());
    }
    let of =
        |(subject, why): (String, String)| Advice::of_option(subject, AdviceVerdict::Suspect, why);
    found.into_iter().map(of).collect()
}

/// A number that an option of a step states.
fn stated_number(step: &BTreeMap<String, String>, name: &str) -> Option<u32> {
    step.get(name)?.parse().ok()
}

/// Tasks that a step starts on each node.
fn tasks_on_node(step: &BTreeMap<String, String>) -> Option<u32> {
    let number = |name| stated_number(step, name);
    match (number("ntasks"), number("nodes"), number("ntasks-per-node")) {
        (Some(tasks), Some(nodes), _) => Some(tasks / nodes.max(1)),
        (Some(tasks), None, Some(each)) => Some(tasks.min(each)),
        (None, _, each) => each,
        _ => None,
    }
}

/// GPUs that a job asks for on each node and that none of its steps gives to a task. Steps may run at the same time, and
/// tasks without a GPU of their own may use several.
fn idle_gpus(script: &JobScript) -> Option<(String, String)> {
    let asked = |step: &BTreeMap<String, String>| {
        let gres = || step.get("gres")?.strip_prefix("gpu")?.rsplit(':').next()?.parse().ok();
        stated_number(step, "gpus-per-node").or_else(gres)
    };
    let asked = script.steps.iter().filter_map(asked).max()?;
    let used = |step: &BTreeMap<String, String>| {
        let own = script.picks_by_local_id.then_some(1);
        let each = stated_number(step, "gpus-per-task").or(own)?;
        Some((tasks_on_node(step)?, each))
    };
    let used: Vec<(u32, u32)> = script.steps.iter().map(used).collect::<Option<_>>()?;
    let total: u32 = used.iter().map(|(tasks, each)| tasks.saturating_mul(*each)).sum();
    let (tasks, each) = used.into_iter().max()?;
    let why = format!(
        "tasks take {total} of the {asked} GPUs that each node gives the job ({tasks} tasks a node, {each} GPUs each): \
         the others stay idle. Use --ntasks-per-node={}, or fewer --gpus-per-node (Slurm srun(1))",
        asked / each.max(1)
    );
    (total < asked).then(|| (format!("--ntasks-per-node={tasks}"), why))
}

/// Fewer GPUs in a list that is the same for all tasks than tasks of a node: several share each.
fn shared_gpus(script: &JobScript) -> Option<(String, String)> {
    const LISTS: [&str; 3] =
        ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];
    // What Slurm gives a task alone, it numbers from 0.
    let is_bound = |step: &&BTreeMap<String, String>| {
        step.contains_key("gpus-per-task")
            || step.get("gpu-bind").is_some_and(|bind| !bind.ends_with("none"))
    };
    let steps = script.steps.iter().filter(|step| !is_bound(step));
    let tasks = steps.filter_map(tasks_on_node).max()?;
    let of = |name: &&str| {
        let list = script.settings.get(*name)?;
        let gpus: Vec<u32> = list.split(',').map(|gpu| gpu.parse().ok()).collect::<Option<_>>()?;
        (gpus.len() < tasks as usize).then(|| {
            let why = format!(
                "all {tasks} tasks of a node see the same {} of its GPUs: let each take its own by $SLURM_LOCALID, as \
                 `pathline place` prints",
                gpus.len()
            );
            (format!("{name}={list}"), why)
        })
    };
    LISTS.iter().find_map(of)
}

/// More OpenMP threads than CPUs in each task.
fn too_many_threads(script: &JobScript) -> Option<(String, String)> {
    let threads: u32 = script.settings.get("OMP_NUM_THREADS")?.parse().ok()?;
    let cpus = script.steps.iter().filter_map(|step| stated_number(step, "cpus-per-task")).max()?;
    let why = format!(
        "{threads} threads of each task share its {cpus} CPUs (--cpus-per-task): they take turns, and the one that \
         serves the GPU or MPI waits. Set {cpus} (OpenMP specification; Slurm srun(1))"
    );
    (threads > cpus).then(|| (format!("OMP_NUM_THREADS={threads}"), why))
}

/// A binding by which each task of a node gets its own GPUs.
fn cut_ipc(step: &BTreeMap<String, String>) -> Option<(String, String)> {
    let option = |name: &str| step.get(name).map(String::as_str);
    let on_node = tasks_on_node(step)?;
    let bind = option("gpu-bind").map(|bind| bind.trim_start_matches("verbose,"));
    let subject = match bind {
        Some("none") => return None,
        Some(bind) if bind.contains(COMPUTED) => return None,
        Some(bind) => format!("--gpu-bind={bind}"),
        None => format!("--gpus-per-task={}", option("gpus-per-task")?),
    };
    let is_shared = option("gres-flags").is_some_and(|flags| flags.contains("allow-task-sharing"));
    let why = "where Slurm confines each task to its GPUs (ConstrainDevices of cgroup.conf), ranks of a node \
               cannot open each other's GPU memory: P2P and IPC fall back to host memory. Add \
               --gres-flags=allow-task-sharing, or --gpu-bind=none and a wrapper that picks the GPU of each \
               rank; `pathline place --check` shows what a rank can reach (Slurm srun(1); LUMI training, binding)";
    (on_node > 1 && !is_shared).then(|| (subject, why.to_owned()))
}

/// A list of CPUs of which some lie in another NUMA domain than the GPU of their rank.
fn misplaced_cpus(map: &str, script: &JobScript, node: &Topology) -> Option<(String, String)> {
    let (kind, list) = map.split_once(':')?;
    let is_mask = kind == "mask_cpu";
    let items: Vec<&str> = list.split(',').collect();
    let domain_of = |item: &&str| {
        let cpu = match is_mask {
            false => item.parse::<u32>().ok()?,
            true => u128::from_str_radix(item.trim_start_matches("0x"), 16).ok()?.trailing_zeros(),
        };
        node.numa.iter().find(|domain| domain.cpus.contains(cpu)).map(|domain| domain.id)
    };
    let have: Vec<u32> = items.iter().map(domain_of).collect::<Option<_>>()?;
    let want: Vec<u32> = node.gpus.iter().map(|gpu| gpu.numa).collect::<Option<_>>()?;
    let several = node.numa.len() > 1;
    if !script.picks_by_local_id || !several || have.len() != want.len() || have == want {
        return None;
    }
    let wrong = have.iter().zip(&want).filter(|(have, want)| have != want).count();
    // The same CPUs in the order of the GPUs.
    let mut rest: Vec<(u32, &str)> = have.iter().copied().zip(items).collect();
    let ordered: Option<Vec<&str>> = want
        .iter()
        .map(|want| {
            let at = rest.iter().position(|(domain, _)| domain == want)?;
            Some(rest.remove(at).1)
        })
        .collect();
    let better = match ordered {
        Some(ordered) => format!("the order of this node is {kind}:{}", ordered.join(",")),
        None => "`pathline place` prints the CPUs of each GPU".to_owned(),
    };
    let why = format!(
        "{wrong} of {} ranks run in another NUMA domain than the GPU of their number: {better}",
        want.len()
    );
    Some((format!("--cpu-bind={map}"), why))
}
