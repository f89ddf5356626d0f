//! What a job script states about its job besides the variables that it sets: MPI, GPUs, and how ranks are bound.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{MpiBrand, shell_words};

use crate::arm::ArmEnv;
use crate::known::script_settings;
use crate::setting_table::is_known_name;

/// Modules, tools and options that only jobs on GPUs of one vendor have.
const OF_VENDORS: [(ScriptVendor, &[&str], &[&str]); 2] = [
    (
        ScriptVendor::Amd,
        &["rocm", "craype-accel-amd", "rccl", "aws-ofi-rccl"],
        &["--rocm", "rocm-smi", "amd-smi"],
    ),
    (
        ScriptVendor::Nvidia,
        &["cuda", "cudatoolkit", "cudnn", "nvhpc", "nccl", "craype-accel-nvidia"],
        &["--nv", "nvidia-smi"],
    ),
];
/// Modules of MPI libraries, by their beginning.
const OF_BRANDS: [(Option<MpiBrand>, &[&str]); 5] = [
    (Some(MpiBrand::CrayMpich), &["cray-mpich"]),
    (Some(MpiBrand::OpenMpi), &["openmpi", "ompi", "hpcx", "spectrum-mpi"]),
    (Some(MpiBrand::IntelMpi), &["impi", "intelmpi", "intel-mpi", "intel-oneapi-mpi"]),
    (Some(MpiBrand::Mpich), &["mpich"]),
    // Their names are not in the table.
    (None, &["mvapich", "parastationmpi", "psmpi", "bullxmpi", "mpt"]),
];

/// The maker of the GPUs of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScriptVendor {
    /// AMD.
    Amd,
    /// NVIDIA.
    Nvidia,
}

impl ScriptVendor {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Amd => "AMD",
            Self::Nvidia => "NVIDIA",
        }
    }
}

/// What a job script states.
#[derive(Debug, Clone, Default)]
pub struct JobScript {
    /// The variables that it sets.
    pub settings: ArmEnv,
    /// The one MPI library that it loads or launches.
    pub mpi: Option<MpiBrand>,
    /// The one vendor of GPUs that its modules and tools belong to.
    pub vendor: Option<ScriptVendor>,
    /// ROCm, as its module says: 7.13.
    pub rocm: Option<(u32, u32)>,
    /// The options of each `srun`, over those of `#SBATCH`.
    pub(crate) steps: Vec<BTreeMap<String, String>>,
    /// `map_cpu:` and `mask_cpu:` lists.
    pub(crate) cpu_maps: Vec<String>,
    /// Whether each rank takes the GPU of its number on the node.
    pub(crate) picks_by_local_id: bool,
    text: String,
}

impl JobScript {
    /// Reads a script. Nothing in it is executed.
    pub fn read(text: &str) -> Self {
        let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
        let (mut modules, mut words_of_commands) = (Vec::new(), BTreeSet::new());
        let (mut batch, mut steps, mut cpu_maps) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut has_mca = false;
        for line in joined.lines().map(str::trim_start) {
            if let Some(options) = line.strip_prefix("#SBATCH") {
                read_options(&shell_words(options), &mut batch);
            }
            let words = shell_words(line);
            modules.extend(loaded_modules(&words));
            for (at, word) in words.iter().enumerate() {
                if word.rsplit('/').next() == Some("srun") {
                    let mut step = batch.clone();
                    read_options(&words[at + 1..], &mut step);
                    steps.push(step);
                }
                let map = word.find("map_cpu:").or_else(|| word.find("mask_cpu:"));
                cpu_maps.extend(map.map(|at| word[at..].to_owned()));
                has_mca |= matches!(word.as_str(), "--mca" | "-mca");
            }
            words_of_commands.extend(words);
        }
        if steps.is_empty() && !batch.is_empty() {
            steps.push(batch);
        }
        let rocm = modules.iter().find_map(|module| {
            let mut numbers = module.strip_prefix("rocm/")?.split('.');
            Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
        });
        let brands = modules.iter().filter_map(|module| brand_of(module));
        let brands: BTreeSet<_> = brands.map(|brand| brand.map(MpiBrand::name)).collect();
        let mpi = match brands.len() {
            0 => has_mca.then_some(MpiBrand::OpenMpi),
            1 => modules.iter().find_map(|module| brand_of(module)).flatten(),
            _ => None,
        };
        let mpi = mpi.filter(|brand| !has_mca || *brand == MpiBrand::OpenMpi);
        let by_tool = words_of_commands.iter().filter_map(|word| vendor_of_tool(word));
        let vendors: BTreeSet<ScriptVendor> =
            modules.iter().filter_map(|module| vendor_of(module)).chain(by_tool).collect();
        let vendor = vendors.first().copied().filter(|_| vendors.len() == 1);
        let local =
            ["$SLURM_LOCALID", "${SLURM_LOCALID}", "\\$SLURM_LOCALID", "\"$SLURM_LOCALID\""];
        let picks = |id: &&str| text.contains(&format!("VISIBLE_DEVICES={id}"));
        let picks_by_local_id = local.iter().any(picks);
        let (settings, text) = (script_settings(text), text.to_owned());
        Self { settings, mpi, vendor, rocm, steps, cpu_maps, picks_by_local_id, text }
    }

    /// Whether the text is one that a shell or a batch system runs: it names its interpreter, launches, loads modules or
    /// sets a variable.
    pub fn is_script(&self) -> bool {
        let has_facts = self.mpi.is_some() || self.vendor.is_some() || !self.cpu_maps.is_empty();
        self.text.starts_with("#!")
            || has_facts
            || !self.steps.is_empty()
            || !self.settings.is_empty()
    }

    /// Whether a variable is one that the script itself uses, and none of a library.
    pub fn is_own_variable(&self, name: &str) -> bool {
        !is_known_name(name) && self.uses(name)
    }

    fn uses(&self, name: &str) -> bool {
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let plain = self
            .text
            .match_indices(&format!("${name}"))
            .any(|(at, found)| ends(&self.text[at + found.len()..]));
        plain || self.text.contains(&format!("${{{name}"))
    }
}

/// `rocm/6.2.4` and the rest of `module load a b`, `ml a`, `module swap old new`.
fn loaded_modules(words: &[String]) -> Vec<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let names = match words[..] {
        ["module" | "ml", "load" | "add" | "try-load", ref names @ ..] => names,
        ["module" | "ml", "swap" | "switch" | "sw", _, ref names @ ..] => names,
        ["module", ..] | ["ml", "unload" | "purge" | "list" | "use" | "rm" | "-", ..] => &[],
        ["ml", ref names @ ..] => names,
        _ => &[],
    };
    let names = names.iter().take_while(|name| !name.contains('='));
    names.filter(|name| !name.starts_with('-')).map(|name| name.to_lowercase()).collect()
}

/// The MPI of a module; an inner `None` for one whose names are not known.
fn brand_of(module: &str) -> Option<Option<MpiBrand>> {
    let is_of =
        |names: &[&str]| module.split('/').any(|part| names.iter().any(|n| part.starts_with(n)));
    OF_BRANDS.iter().find(|(_, names)| is_of(names)).map(|(brand, _)| *brand)
}

fn vendor_of(module: &str) -> Option<ScriptVendor> {
    let name = module.split('/').next().unwrap_or(module);
    let is_of =
        |known: &&str| name == *known || known.contains("accel") && name.starts_with(*known);
    OF_VENDORS.iter().find(|(_, names, _)| names.iter().any(&is_of)).map(|of| of.0)
}

fn vendor_of_tool(word: &str) -> Option<ScriptVendor> {
    let name = word.rsplit('/').next().unwrap_or(word);
    OF_VENDORS.iter().find(|(_, _, tools)| tools.contains(&name)).map(|of| of.0)
}

/// Options of Slurm by their long names, up to the program. The first of a name counts.
fn read_options(words: &[String], found: &mut BTreeMap<String, String>) {
    const SHORT: [(&str, &str); 2] = [("-n", "ntasks"), ("-N", "nodes")];
    let mut own = BTreeMap::new();
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            break;
        }
        let joined = SHORT.iter().find_map(|(short, name)| {
            let rest = word.strip_prefix(short)?;
            (rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit()))
                .then_some((*name, rest))
        });
        let (name, value) = match (word.split_once('='), joined) {
            (_, Some((name, value))) => (name, value),
            (Some((name, value)), None) => (name.trim_start_matches('-'), value),
            (None, None) => (word.trim_start_matches('-'), ""),
        };
        // Of an option without a value this takes the program.
        let value = match value {
            "" => words.next_if(|next| !next.starts_with('-')).unwrap_or_default(),
            value => value,
        };
        own.entry(name.replace('_', "-")).or_insert_with(|| value.to_owned());
    }
    found.extend(own);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mpi_and_vendor_are_stated_once_or_not_at_all() {
        let read = JobScript::read;
        let lumi = read("module load LUMI/23.09 cray-mpich/8.1 rocm/7.13.0\nml PrgEnv-gnu");
        assert_eq!((lumi.mpi, lumi.vendor), (Some(MpiBrand::CrayMpich), Some(ScriptVendor::Amd)));
        assert_eq!(lumi.rocm, Some((7, 13)));
        let both = read("module load cray-mpich\nmodule load openmpi/5\nnvidia-smi || rocm-smi");
        assert_eq!((both.mpi, both.vendor), (None, None));
        assert_eq!(read("module swap cray-mpich openmpi").mpi, Some(MpiBrand::OpenMpi));
        assert_eq!(read("module load mvapich2/2.3").mpi, None);
        assert_eq!(read("mpirun --mca pml ucx ./a").mpi, Some(MpiBrand::OpenMpi));
        assert_eq!(read("module load cray-mpich\nmpirun --mca pml ucx ./a").mpi, None);
        assert_eq!(read("# module load rocm\necho rocmx").vendor, None);
        assert_eq!(read("apptainer exec --nv a.sif ./a").vendor, Some(ScriptVendor::Nvidia));
    }

    #[test]
    fn options_of_steps_go_over_those_of_the_batch() {
        let script = JobScript::read(
            "#SBATCH --ntasks-per-node=8 -N 2\nsrun -n1 -N1 \\\n --gpu_bind none ./a -n 5\n",
        );
        let [step] = &script.steps[..] else { panic!("{:?}", script.steps) };
        let of = |name: &str| step.get(name).map(String::as_str);
        assert_eq!(
            (of("ntasks"), of("nodes"), of("gpu-bind")),
            (Some("1"), Some("1"), Some("none"))
        );
        assert_eq!(of("ntasks-per-node"), Some("8"));
        assert!(!script.uses("NONE") && JobScript::read("echo ${A:-1} $BC").uses("A"));
        assert!(!JobScript::read("echo $BC").uses("B"));
    }
}
