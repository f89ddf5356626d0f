//! The variables that show a process some GPUs of its host, by the rules of the runtimes that read them.
//!
//! A runtime lists the GPUs that result, with their addresses; these rules say why a setting shows fewer GPUs
//! than it names.

use std::collections::BTreeSet;

use pathline_schema::GpuCaps;

/// Variable of AMD's HSA runtime.
const ROCR: &str = "ROCR_VISIBLE_DEVICES";
/// Variable of CUDA. HIP reads it as well, where its own is empty.
const CUDA: &str = "CUDA_VISIBLE_DEVICES";
/// What job scripts find in CUDA's variable where the scheduler gave the step no GPU.
const NO_DEVICE_FILES: &str = "NoDevFiles";

/// GPUs of a host by the rules of a runtime.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VisibleGpus {
    /// The position on the host of each GPU that the process sees, in its own order; `None` for a GPU whose name is
    /// an identifier that `uuids` lacks.
    pub listed: Vec<Option<usize>>,
    /// The variables that are set, as `NAME=value`.
    pub settings: Vec<String>,
    /// Names that show no GPU, and why.
    pub faults: Vec<String>,
    /// The MIG instance, where the process sees one and nothing else.
    pub instance: Option<String>,
}

/// The GPUs that the variables of an environment leave of `uuids.len()` GPUs, which are in the order of the
/// runtime's numbers without any variable. `uuids` are their identifiers as tools of the vendor print them
/// (`GPU-` and hexadecimal digits), where known.
///
/// | variable | rule |
/// |---|---|
/// | `ROCR_VISIBLE_DEVICES` | numbers or beginnings of identifiers, in any case; the first name that is wrong, ambiguous or repeated ends the list; empty: no GPU |
/// | `HIP_VISIBLE_DEVICES`, else `CUDA_VISIBLE_DEVICES` on AMD | numbers **within that list**, without blanks or zeros in front; the first wrong one ends the list, a repeated one is left out; empty: not set |
/// | `CUDA_VISIBLE_DEVICES` on NVIDIA | numbers, beginnings of identifiers, MIG instances, of which the first counts alone; the first wrong one, as -1, ends the list; a repeated one leaves no GPU; empty: no GPU |
///
/// Sources: ROCr, `amd_filter_device.cpp`; ROCclr, `rocdevice.cpp` (`Device::init`); CUDA Programming Guide,
/// "Environment Variables", and for repeated names and texts behind numbers PyTorch, `torch/cuda/__init__.py`; MIG
/// User Guide, "CUDA Device Enumeration".
pub fn visible_gpus(
    caps: &GpuCaps,
    uuids: &[Option<String>],
    env: &dyn Fn(&str) -> Option<String>,
) -> VisibleGpus {
    let mut found =
        VisibleGpus { listed: (0..uuids.len()).map(Some).collect(), ..VisibleGpus::default() };
    if let Some(variable) = caps.visible_env
        && let Some(value) = env(variable)
    {
        found.settings.push(format!("{variable}={value}"));
        match variable {
            ROCR => found.apply_rocr(&value, uuids),
            CUDA => found.apply_cuda(&value, uuids),
            _ => {}
        }
    }
    let within = |name: &&'static str| {
        let value = env(name).filter(|value| !value.is_empty())?;
        Some((*name, value))
    };
    // Of several, the first that is not empty counts.
    if let Some((variable, value)) = caps.visible_within_env.iter().find_map(within) {
        found.settings.push(format!("{variable}={value}"));
        found.apply_hip(variable, &value, uuids);
    }
    found
}

impl VisibleGpus {
    fn apply_rocr(&mut self, value: &str, uuids: &[Option<String>]) {
        if value.is_empty() {
            return self.show_none(ROCR, "is empty, which shows no GPU");
        }
        let names: Vec<String> = value.split(',').map(|name| name.trim().to_uppercase()).collect();
        let mut chosen: Vec<Option<usize>> = Vec::new();
        for name in &names {
            let at = match name.starts_with('G') {
                true => by_identifier(name, uuids),
                false => by_number(&whole_number(name), uuids.len()),
            };
            let repeated = |at: &Option<usize>| at.is_some() && chosen.contains(at);
            let at = match at {
                Ok(at) if repeated(&at) => Err("is named twice".to_owned()),
                other => other,
            };
            match at {
                Ok(at) => chosen.push(at),
                Err(why) => {
                    self.end_of_list(ROCR, value, name, &why);
                    break;
                }
            }
        }
        self.listed = chosen;
    }

    fn apply_hip(&mut self, variable: &str, value: &str, uuids: &[Option<String>]) {
        let before = std::mem::take(&mut self.listed);
        for name in value.split(',') {
            let known =
                before.iter().flatten().filter_map(|at| Some((*at, uuids.get(*at)?.as_ref()?)));
            let at = if name.contains("GPU-") {
                // The runtime looks for the text anywhere in the identifier.
                let mut found = known.filter(|(_, uuid)| uuid.contains(name)).map(|(at, _)| at);
                match found.next() {
                    Some(at) => before.iter().position(|b| *b == Some(at)).ok_or_else(String::new),
                    None if uuids.iter().all(Option::is_some) => {
                        Err("is no GPU of this list".to_owned())
                    }
                    None => {
                        self.listed.push(None);
                        continue;
                    }
                }
            } else {
                let number: Option<i64> = name.parse().ok().filter(|n: &i64| n.to_string() == name);
                match by_number(&number, before.len()) {
                    Ok(at) => at.ok_or_else(String::new),
                    Err(why) => Err(why),
                }
            };
            match at {
                Ok(at) => {
                    let gpu = before.get(at).copied().flatten();
                    if gpu.is_none() || !self.listed.contains(&gpu) {
                        self.listed.push(gpu);
                    }
                }
                Err(why) => {
                    let counted = match self.settings.len() {
                        1 => why,
                        _ => format!("{why} that {ROCR} leaves, numbered from 0"),
                    };
                    self.end_of_list(variable, value, name, &counted);
                    break;
                }
            }
        }
    }

    fn apply_cuda(&mut self, value: &str, uuids: &[Option<String>]) {
        if value.trim().is_empty() {
            return self.show_none(CUDA, "is empty, which shows no GPU");
        }
        if value == NO_DEVICE_FILES {
            return self.show_none(CUDA, "says that the scheduler gave this step no GPU");
        }
        let names: Vec<&str> = value.split(',').map(str::trim).collect();
        if let Some(first) = names.first().filter(|name| name.starts_with("MIG-")) {
            if names.len() > 1 {
                let why = format!("{CUDA}={value}: a process sees one MIG instance, the first");
                self.faults.push(why);
            }
            self.instance = Some((*first).to_owned());
            self.listed = vec![None];
            return;
        }
        let mut chosen: Vec<Option<usize>> = Vec::new();
        let mut seen = BTreeSet::new();
        for name in &names {
            let at = match name.starts_with("GPU-") {
                true => by_identifier(name, uuids),
                // A number counts up to its last digit.
                false => by_number(&leading_number(name), uuids.len()),
            };
            match at {
                Ok(at) => {
                    // The same text is the same GPU, known or not.
                    let key = at.map_or_else(|| (*name).to_owned(), |at| at.to_string());
                    let new = seen.insert(key);
                    if !new {
                        let why = format!("names '{name}' twice, which shows no GPU");
                        return self.show_none(CUDA, &why);
                    }
                    chosen.push(at);
                }
                Err(why) => {
                    self.end_of_list(CUDA, value, name, &why);
                    break;
                }
            }
        }
        self.listed = chosen;
    }

    fn show_none(&mut self, variable: &str, why: &str) {
        self.listed.clear();
        self.faults.push(format!("{variable} {why}"));
    }

    fn end_of_list(&mut self, variable: &str, value: &str, name: &str, why: &str) {
        self.faults.push(format!("{variable}={value}: '{name}' {why}, and ends the list"));
    }
}

fn by_number(number: &Option<i64>, count: usize) -> Result<Option<usize>, String> {
    let number = number.ok_or_else(|| "is no number".to_owned())?;
    let at = usize::try_from(number).ok().filter(|at| *at < count);
    let plural = if count == 1 { "" } else { "s" };
    at.map(Some).ok_or_else(|| format!("is none of the {count} GPU{plural}"))
}

/// The GPU whose identifier begins with a text; `None` if it may be one whose identifier is unknown.
fn by_identifier(name: &str, uuids: &[Option<String>]) -> Result<Option<usize>, String> {
    let begins = |uuid: &String| {
        uuid.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name))
    };
    let found: Vec<usize> = (0..)
        .zip(uuids)
        .filter(|(_, uuid)| uuid.as_ref().is_some_and(begins))
        .map(|(at, _)| at)
        .collect();
    match found.as_slice() {
        [at] => Ok(Some(*at)),
        [] if uuids.iter().any(Option::is_none) => Ok(None),
        [] => Err("is no GPU of this host".to_owned()),
        _ => Err(format!("is the beginning of {} identifiers", found.len())),
    }
}

/// A number as C's `strtol` reads it with base 0: `0x` is hexadecimal and `0` in front octal. Nothing may follow.
fn whole_number(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match (digits.strip_prefix("0X"), digits.strip_prefix('0')) {
        (Some(hexadecimal), _) => i64::from_str_radix(hexadecimal, 16).ok()?,
        (None, Some(octal)) if !octal.is_empty() => i64::from_str_radix(octal, 8).ok()?,
        _ => digits.parse().ok()?,
    };
    Some(sign * value)
}

/// The number at the beginning of a text.
fn leading_number(text: &str) -> Option<i64> {
    let sign = usize::from(text.starts_with(['-', '+']));
    let digits = text.bytes().skip(sign).take_while(u8::is_ascii_digit).count();
    text.get(..sign + digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use pathline_flow::MachineDesc;
    use pathline_schema::{CpuSet, Gpu, Topology};

    use super::*;
    use crate::{RankSite, check_sites};

    /// An environment of pairs.
    fn environment(set: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> + use<> {
        let set: Vec<(String, String)> =
            set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        move |name| set.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    fn node(preset: &str) -> Topology {
        MachineDesc::preset(preset).unwrap().topology()
    }

    /// Identifiers as `rocminfo` and `nvidia-smi -L` print them; the first two begin alike.
    fn uuids(count: usize) -> Vec<Option<String>> {
        let digits = ["ab01", "ab02", "c3", "d4", "e5", "f6", "17", "28"];
        digits.iter().take(count).map(|d| Some(format!("GPU-{d:0<16}"))).collect()
    }

    /// The host positions that an environment shows, and whether a name of it shows nothing.
    fn shown(preset: &str, set: &[(&str, &str)]) -> (Vec<usize>, bool) {
        let topology = node(preset);
        let uuids = uuids(topology.gpus.len());
        let found = visible_gpus(topology.gpus[0].caps(), &uuids, &environment(set));
        (found.listed.into_iter().flatten().collect(), !found.faults.is_empty())
    }

    fn amd(set: &[(&str, &str)]) -> (Vec<usize>, bool) {
        shown("mi250x", set)
    }

    fn nvidia(set: &[(&str, &str)]) -> (Vec<usize>, bool) {
        shown("hgx-h200", set)
    }

    const ROCR: &str = "ROCR_VISIBLE_DEVICES";
    const HIP: &str = "HIP_VISIBLE_DEVICES";
    const CUDA: &str = "CUDA_VISIBLE_DEVICES";

    #[test]
    fn rocr_takes_numbers_and_identifiers() {
        assert_eq!(amd(&[]), ((0..8).collect(), false));
        assert_eq!(amd(&[(ROCR, "2,0")]), (vec![2, 0], false));
        // strtol with base 0: 0x7 is 7, 010 octal 8, which no GPU of 8 has.
        assert_eq!(amd(&[(ROCR, " 0x7 , 1")]), (vec![7, 1], false));
        assert_eq!(amd(&[(ROCR, "1,010")]), (vec![1], true));
        assert_eq!(amd(&[(ROCR, "gpu-C3,GPU-ab02")]), (vec![2, 1], false));
        // Two identifiers begin with ab; none with 99.
        assert_eq!(amd(&[(ROCR, "3,GPU-AB,4")]), (vec![3], true));
        assert_eq!(amd(&[(ROCR, "GPU-99")]), (vec![], true));
        for (value, left) in [("1,1,2", vec![1]), ("1,8,2", vec![1]), ("-1", vec![]), ("x", vec![])]
        {
            assert_eq!(amd(&[(ROCR, value)]), (left, true), "{value}");
        }
        assert_eq!(amd(&[(ROCR, "")]), (vec![], true));
        assert_eq!(amd(&[(ROCR, "1,")]), (vec![1], true));
    }

    /// AMD's example: four GPUs of eight, of which HIP takes the third and the first.
    #[test]
    fn hip_counts_within_what_rocr_leaves() {
        assert_eq!(amd(&[(ROCR, "4,5,6,7"), (HIP, "2,0")]), (vec![6, 4], false));
        assert_eq!(amd(&[(HIP, "2,0")]), (vec![2, 0], false));
        // The number on the host is out of range there: Parsl issue 3858, on Frontier.
        assert_eq!(amd(&[(ROCR, "1"), (CUDA, "1")]), (vec![], true));
        assert_eq!(amd(&[(ROCR, "1"), (CUDA, "0")]), (vec![1], false));
        // HIP's variable comes before CUDA's, and an empty one is not set.
        assert_eq!(amd(&[(HIP, "3"), (CUDA, "5")]), (vec![3], false));
        assert_eq!(amd(&[(HIP, ""), (CUDA, "5")]), (vec![5], false));
        assert_eq!(amd(&[(HIP, "")]), ((0..8).collect(), false));
        // Repeated names are left out; blanks and zeros in front are wrong.
        assert_eq!(amd(&[(HIP, "3,3,4")]), (vec![3, 4], false));
        assert_eq!(amd(&[(HIP, "3, 4")]), (vec![3], true));
        assert_eq!(amd(&[(HIP, "03")]), (vec![], true));
        assert_eq!(amd(&[(ROCR, "3,2"), (HIP, "GPU-c3")]), (vec![2], false));
        let topology = node("mi250x");
        let set = environment(&[(ROCR, "5"), (HIP, "5")]);
        let found = visible_gpus(topology.gpus[0].caps(), &uuids(8), &set);
        assert_eq!(
            found.faults,
            [
                "HIP_VISIBLE_DEVICES=5: '5' is none of the 1 GPU that ROCR_VISIBLE_DEVICES leaves, numbered \
              from 0, and ends the list"
            ]
        );
    }

    /// The programming guide's own examples: 2,1 and 0,2,-1,1.
    #[test]
    fn cuda_ends_its_list_at_the_first_wrong_name() {
        assert_eq!(nvidia(&[(CUDA, "2,1")]), (vec![2, 1], false));
        assert_eq!(nvidia(&[(CUDA, "0,2,-1,1")]), (vec![0, 2], true));
        assert_eq!(nvidia(&[(CUDA, "GPU-c3, GPU-ab01")]), (vec![2, 0], false));
        assert_eq!(nvidia(&[(CUDA, "GPU-ab")]), (vec![], true));
        assert_eq!(nvidia(&[(CUDA, "1gpu2,2ampere")]), (vec![1, 2], false));
        for value in ["", "NoDevFiles", "-1", "99", "1,1", "0,GPU-ab01"] {
            assert_eq!(nvidia(&[(CUDA, value)]), (vec![], true), "{value}");
        }
        // Of AMD's variables none counts there.
        assert_eq!(nvidia(&[(ROCR, "1"), (HIP, "1")]), ((0..8).collect(), false));
        let caps = node("hgx-h200").gpus[0].caps();
        let instance = |value| {
            let found = visible_gpus(caps, &uuids(8), &environment(&[(CUDA, value)]));
            (found.listed.len(), found.instance, found.faults.len())
        };
        let name = |text: &str| Some(text.to_owned());
        assert_eq!(instance("MIG-1f3a"), (1, name("MIG-1f3a"), 0));
        assert_eq!(instance("MIG-GPU-ab01/1/0"), (1, name("MIG-GPU-ab01/1/0"), 0));
        assert_eq!(instance("MIG-1f3a,MIG-77"), (1, name("MIG-1f3a"), 1));
    }

    /// A rank of a node with an environment, on some CPUs. `open` are the GPUs that a cgroup lets it open, in
    /// whose list the runtime counts.
    fn rank(
        preset: &str,
        at: u32,
        open: &[usize],
        set: &[(&str, &str)],
        cpus: &CpuSet,
    ) -> RankSite {
        let whole = node(preset);
        let caps = whole.gpus[0].caps();
        let found = visible_gpus(caps, &vec![None; open.len()], &environment(set));
        let sees: Vec<usize> =
            found.listed.iter().flatten().filter_map(|at| open.get(*at)).copied().collect();
        let mut topology = whole.clone();
        let numbered = |(index, at): (u32, &usize)| Gpu { index, ..whole.gpus[*at].clone() };
        topology.gpus = (0..).zip(&sees).map(numbered).collect();
        let unseen: Vec<usize> = (0..whole.gpus.len()).filter(|at| !sees.contains(at)).collect();
        topology.hidden.gpus = (sees.len() as u32..).zip(&unseen).map(numbered).collect();
        topology.host.allowed_cpus = cpus.clone();
        // The adapters of a simulated node are numbered by the whole node's GPUs.
        topology.nics.clear();
        let site = RankSite::new(&topology, None, &environment(set));
        RankSite { rank: at, local_rank: at, host: "n".to_owned(), ..site }
    }

    /// The sites of eight ranks, each with the CPUs that `place` gives its GPU.
    fn job(
        preset: &str,
        of_rank: impl Fn(usize) -> (Vec<usize>, Vec<(&'static str, String)>),
    ) -> Vec<RankSite> {
        let plan = crate::place_ranks(&node(preset), &crate::PlaceRequest::default()).unwrap();
        let site = |(nth, place): (usize, &crate::RankPlace)| {
            let (open, set) = of_rank(nth);
            let set: Vec<(&str, &str)> = set.iter().map(|(n, v)| (*n, v.as_str())).collect();
            rank(preset, nth as u32, &open, &set, &place.cpus)
        };
        plan.ranks.iter().enumerate().map(site).collect()
    }

    fn codes(sites: &[RankSite]) -> Vec<&'static str> {
        let mut codes: Vec<_> = check_sites(sites, None).iter().map(|f| f.code).collect();
        codes.dedup();
        codes
    }

    fn on_host(sites: &[RankSite]) -> Vec<Option<u32>> {
        sites.iter().map(|site| site.only_gpu().and_then(|gpu| gpu.host_index)).collect()
    }

    fn all() -> Vec<usize> {
        (0..8).collect()
    }

    /// The wrapper `select_gpu` of LUMI's documentation: `ROCR_VISIBLE_DEVICES=$SLURM_LOCALID`. Each rank has its own
    /// GPU, by its number on the host; without it every rank sees eight.
    #[test]
    fn select_gpu_gives_each_rank_its_gpu() {
        for (preset, variable) in [("mi250x", ROCR), ("hgx-h200", CUDA)] {
            let good = job(preset, |nth| (all(), vec![(variable, nth.to_string())]));
            assert_eq!(on_host(&good), (0..8).map(Some).collect::<Vec<_>>(), "{preset}");
            assert_eq!(codes(&good), [""; 0], "{preset}");
            assert_eq!(codes(&job(preset, |_| (all(), vec![]))), ["several-gpus"], "{preset}");
            // The same number for all.
            let same = job(preset, |_| (all(), vec![(variable, "0".to_owned())]));
            assert!(codes(&same).contains(&"shared-gpu"), "{preset}");
        }
    }

    /// LUMI without its masks: rank 0 on the cores of NUMA domain 0, and GPU 0 at domain 3.
    #[test]
    fn select_gpu_without_masks_is_far_from_its_cores() {
        let cpus = |nth: u32| CpuSet::new(nth * 8 + 1..nth * 8 + 8);
        let site = |nth: u32| rank("mi250x", nth, &all(), &[(ROCR, &nth.to_string())], &cpus(nth));
        let far: Vec<RankSite> = (0..8).map(site).collect();
        let found = check_sites(&far, None);
        assert!(!found.is_empty() && found.iter().all(|f| f.code == "gpu-far-cpus"), "{found:?}");
        // Ranks 0 and 1 at domain 0 have GPUs of domain 3, and so on: no domain is its own GPU's but 1's.
        let ranks: BTreeSet<u32> = found.iter().flat_map(|f| f.ranks.clone()).collect();
        assert_eq!(ranks, BTreeSet::from([0, 1, 4, 5, 6, 7]));
    }

    /// Slurm's `--gpus-per-task`: a cgroup leaves one GPU, number 0, and a wrapper that names it by the number of the
    /// rank finds none.
    #[test]
    fn a_cgroup_renumbers_gpus() {
        for (preset, variable) in [("mi250x", ROCR), ("hgx-h200", CUDA)] {
            let bound = job(preset, |nth| (vec![nth], vec![(variable, "0".to_owned())]));
            assert_eq!(on_host(&bound), (0..8).map(Some).collect::<Vec<_>>());
            assert_eq!(codes(&bound), [""; 0], "{preset}");
            let both = job(preset, |nth| (vec![nth], vec![(variable, nth.to_string())]));
            // Rank 0 is right by chance.
            let found = check_sites(&both, None);
            assert!(found.iter().all(|f| f.code == "no-gpu" && !f.ranks.contains(&0)), "{found:?}");
            assert!(found[0].text.contains(&format!("with {variable}=1")), "{}", found[0].text);
            // Two of eight may be opened, and four are named.
            let part = rank(preset, 0, &[6, 7], &[(variable, "0,1,2,3")], &CpuSet::new([0]));
            assert_eq!(codes(&[part]), ["gpu-setting"], "{preset}");
        }
    }

    /// Slurm sets both variables to the same numbers: HIP counts a second time.
    #[test]
    fn two_variables_on_amd_leave_no_gpu() {
        let twice = |nth: usize| vec![(ROCR, nth.to_string()), (CUDA, nth.to_string())];
        let sites = job("mi250x", |nth| (all(), twice(nth)));
        let found = check_sites(&sites, None);
        let lacking =
            found.iter().filter(|f| f.code == "gpu-setting").flat_map(|f| f.ranks.clone());
        assert_eq!(lacking.collect::<Vec<_>>(), (1..8).collect::<Vec<_>>());
        let once = |nth: usize| vec![(ROCR, nth.to_string()), (CUDA, "0".to_owned())];
        assert_eq!(codes(&job("mi250x", |nth| (all(), once(nth)))), [""; 0]);
    }

    /// Four ranks on two GPUs of which each has two instances: addresses repeat, instances do not.
    #[test]
    fn mig_instances_share_no_gpu() {
        let site = |nth: u32, name: &str, gpu: usize| {
            let site = rank("hgx-h200", nth, &[gpu], &[], &CpuSet::new([nth]));
            RankSite { gpu_instance: Some(name.to_owned()), gpus_on_bus: 2, ..site }
        };
        let shared = |names: [&str; 3]| {
            let sites = [site(0, names[0], 0), site(1, names[1], 0), site(2, names[2], 0)];
            codes(&sites).contains(&"shared-gpu")
        };
        assert!(!shared(["MIG-a", "MIG-b", "MIG-c"]));
        assert!(shared(["MIG-a", "MIG-a", "MIG-a"]));
    }

    /// CUDA counts the fastest first: number 1 of an unlike pair is not that of nvidia-smi.
    #[test]
    fn unlike_gpus_need_an_order() {
        let mut topology = node("hgx-h200");
        topology.gpus.truncate(2);
        topology.gpus[1].name = "another".to_owned();
        let faults = |set: &[(&str, &str)]| {
            let mut topology = topology.clone();
            topology.hidden.gpus = vec![topology.gpus.remove(1)];
            RankSite::new(&topology, None, &environment(set)).gpu_setting_faults
        };
        assert!(faults(&[(CUDA, "0")])[0].contains("CUDA_DEVICE_ORDER=PCI_BUS_ID"));
        assert_eq!(faults(&[(CUDA, "0"), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")]), [""; 0]);
    }
}
