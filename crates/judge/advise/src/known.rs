//! Settings of which it is known, without a trial, that they cannot act here, slow a job or risk its data.

use pathline_schema::{COMPUTED, Topology, is_variable_name, shell_words};

use crate::advice::{Advice, AdviceVerdict, untried_setting};
use crate::arm::ArmEnv;
use crate::collective_settings::is_without_nvls;

/// The most channels that RCCL lets a job of fewer than eight GPUs ask for.
/// ROCm/rocm-systems#11255: `comm->nRanks < 8 && 64 < minNchannels`.
const RCCL_CHANNELS_BELOW_8_GPUS: u32 = 64;

/// The job that settings are judged for.
#[derive(Debug, Clone, Copy)]
pub struct SettingScope<'a> {
    /// Its node.
    pub topology: &'a Topology,
    /// Number of GPUs that it uses on a node.
    pub gpus: u32,
    /// Number of its nodes; none where nothing states it.
    pub nodes: Option<u32>,
}

/// A row of the table: which variables, and what is known of a value.
struct KnownSetting {
    /// The name, or its beginning with a `*`.
    name: &'static str,
    judge: fn(&SettingScope<'_>, &str) -> Option<(AdviceVerdict, String)>,
    source: &'static str,
}

const KNOWN: &[KnownSetting] = &[
    KnownSetting {
        name: "NCCL_MIN_NCHANNELS",
        judge: |scope, value| {
            let asked: u32 = value.trim().parse().ok()?;
            let refused = has(scope, "amd") && scope.gpus < 8 && asked > RCCL_CHANNELS_BELOW_8_GPUS;
            refused.then(|| {
                let why = format!(
                    "RCCL refuses more than {RCCL_CHANNELS_BELOW_8_GPUS} channels for fewer than 8 GPUs, \
                     and this job has {}; up to {RCCL_CHANNELS_BELOW_8_GPUS} act",
                    scope.gpus
                );
                (AdviceVerdict::Ignored, why)
            })
        },
        source: "ROCm/rocm-systems#11253, #11255",
    },
    KnownSetting {
        name: "NCCL_PROTO",
        judge: |_, value| {
            let excludes = value.trim_start().starts_with('^');
            let forced = value.split(',').any(|word| word.trim().eq_ignore_ascii_case("LL128"));
            (forced && !excludes).then(|| {
                let why =
                    "it forces LL128 also on paths that may reorder the halves of 128 bytes, \
                           where NCCL leaves it off because data may be corrupted without an error"
                        .to_owned();
                (AdviceVerdict::Remove, why)
            })
        },
        source: "NVIDIA/nccl#1081, #786, #2053",
    },
    KnownSetting {
        name: "NCCL_TUNER_CONFIG_FILE",
        judge: |scope, _| {
            has(scope, "nvidia").then(|| {
                let why = "NCCL's example tuner, which reads this file, sets one channel for every \
                           collective, also where no row matches: 10 to 16 times slower from 32 MiB up"
                    .to_owned();
                (AdviceVerdict::Remove, why)
            })
        },
        source: "ext-tuner/example of NCCL 2.27 to 2.29; measured on 4 H100s",
    },
    KnownSetting {
        name: "NCCL_P2P_DISABLE",
        judge: |scope, value| {
            let joined = scope.topology.gpus.len() > 1;
            (is_on(value) && joined).then(|| {
                let why = "it sends what GPUs exchange through host memory instead of their links"
                    .to_owned();
                (AdviceVerdict::Remove, why)
            })
        },
        source: "NCCL user guide, environment variables",
    },
    KnownSetting {
        name: "NCCL_NVLS_ENABLE",
        judge: |scope, value| {
            let has_gpus = !scope.topology.gpus.is_empty();
            (is_on(value) && is_without_nvls(scope.topology) && has_gpus).then(|| {
                let why = "no GPU of this node has NVLink SHARP, which NVLS needs".to_owned();
                (AdviceVerdict::Ignored, why)
            })
        },
        source: "NCCL user guide, NCCL_NVLS_ENABLE",
    },
    KnownSetting {
        name: "NCCL_IB_*",
        judge: network_only,
        source: "NCCL user guide, environment variables",
    },
    KnownSetting {
        name: "NCCL_NET_GDR_*",
        judge: network_only,
        source: "NCCL user guide, environment variables",
    },
    KnownSetting {
        name: "NCCL_CROSS_NIC",
        judge: network_only,
        source: "NCCL user guide, environment variables",
    },
    KnownSetting {
        name: "NCCL_P2P_NET_CHUNKSIZE",
        judge: network_only,
        source: "NCCL user guide; AWS removed it from its benchmark, awslabs/awsome-distributed-ai#1077",
    },
    // It acts within a node.
    KnownSetting { name: "FI_EFA_ENABLE_SHM_TRANSFER", judge: |_, _| None, source: "" },
    KnownSetting { name: "FI_EFA_*", judge: network_only, source: "libfabric, fi_efa(7)" },
    KnownSetting {
        name: "CUDA_LAUNCH_BLOCKING",
        judge: serializes,
        source: "CUDA programming guide",
    },
    KnownSetting {
        name: "HIP_LAUNCH_BLOCKING",
        judge: serializes,
        source: "HIP documentation, debugging",
    },
    KnownSetting {
        name: "AMD_SERIALIZE_KERNEL",
        judge: serializes,
        source: "HIP documentation, debugging",
    },
    KnownSetting {
        name: "AMD_SERIALIZE_COPY",
        judge: serializes,
        source: "HIP documentation, debugging",
    },
    KnownSetting {
        name: "MPICH_GPU_SUPPORT_ENABLED",
        judge: |scope, value| {
            let off = value.trim() == "0" && !scope.topology.gpus.is_empty();
            off.then(|| {
                let why = "MPI then takes no GPU memory: right for programs that pass none, as those whose \
                           GPUs talk by NCCL or RCCL";
                (AdviceVerdict::Unclear, why.to_owned())
            })
        },
        source: "Cray MPICH, intro_mpi(3); CSCS, NCCL",
    },
];

fn has(scope: &SettingScope<'_>, vendor: &str) -> bool {
    scope.topology.gpus.iter().any(|gpu| gpu.vendor == vendor)
}

fn is_on(value: &str) -> bool {
    !matches!(value.trim(), "" | "0" | "n" | "no" | "false")
}

fn network_only(scope: &SettingScope<'_>, _: &str) -> Option<(AdviceVerdict, String)> {
    let acts = "it acts on the network between nodes, and";
    match scope.nodes {
        Some(0 | 1) => Some((AdviceVerdict::Ignored, format!("{acts} this job has one node"))),
        Some(_) => None,
        None => {
            let why = format!("{acts} nothing states how many this job has: give --nodes");
            Some((AdviceVerdict::Unclear, why))
        }
    }
}

fn serializes(_: &SettingScope<'_>, value: &str) -> Option<(AdviceVerdict, String)> {
    let why = "it is for debugging: each launch waits for its end, so nothing overlaps";
    is_on(value).then(|| (AdviceVerdict::Remove, why.to_owned()))
}

/// What is known of these variables; those of which nothing is known are left out.
pub fn known_settings(variables: &ArmEnv, scope: &SettingScope<'_>) -> Vec<Advice> {
    let of = |(name, value): (&String, &String)| {
        let row = KNOWN.iter().find(|row| match row.name.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == row.name,
        })?;
        let (verdict, why) = (row.judge)(scope, value)?;
        Some(untried_setting(name, value, verdict, format!("{why} ({})", row.source)))
    };
    variables.iter().filter_map(of).collect()
}

/// Variables that a job script or command line sets: `export A=1`, `A='b c' program`, `-x A=1`, `--env A=1`,
/// `--export=ALL,A=1`, `--mca name value` as `OMPI_MCA_name`, also in lines of Slurm. The last value of a name counts,
/// as a shell reads it; values that a shell would compute are left out.
pub(crate) fn script_settings(text: &str) -> ArmEnv {
    let options = text.lines().filter_map(|line| line.trim_start().strip_prefix("#SBATCH"));
    let mut found = ArmEnv::new();
    options.chain([text]).for_each(|text| add_settings(&shell_words(text), &mut found));
    found
}

fn add_settings(words: &[String], found: &mut ArmEnv) {
    let mut add = |setting: &str| {
        let Some((name, value)) = setting.split_once('=') else { return };
        if is_variable_name(name) && !value.contains(COMPUTED) {
            found.insert(name.to_owned(), value.to_owned());
        }
    };
    let before = std::iter::once("").chain(words.iter().map(String::as_str));
    for (before, word) in before.zip(words) {
        let list = word.strip_prefix("--export=").or((before == "--export").then_some(word));
        match list {
            Some(list) => list.split(',').for_each(&mut add),
            None => add(word.strip_prefix("--env=").unwrap_or(word)),
        }
    }
    for three in words.windows(3) {
        if let [option, name, value] = three
            && ["--mca", "-mca"].contains(&option.as_str())
        {
            add(&format!("OMPI_MCA_{name}={value}"));
        }
    }
    // What another shell is started with.
    for two in words.windows(2) {
        if let [option, script] = two
            && ["-c", "-lc"].contains(&option.as_str())
        {
            add_settings(&shell_words(script), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::Gpu;

    fn verdicts(
        vendor: &str,
        arch: &str,
        gpus: u32,
        set: &[(&str, &str)],
    ) -> Vec<(String, AdviceVerdict)> {
        let gpu = |index| Gpu { index, vendor: vendor.into(), arch: arch.into(), ..Gpu::default() };
        let topology = Topology { gpus: (0..gpus).map(gpu).collect(), ..Topology::default() };
        let set: ArmEnv = set.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let scope = SettingScope { topology: &topology, gpus, nodes: Some(1) };
        known_settings(&set, &scope).into_iter().map(|a| (a.subject, a.verdict)).collect()
    }

    #[test]
    fn channels_beyond_the_limit_are_ignored_with_few_gpus() {
        let of = |gpus, value| verdicts("amd", "gfx950", gpus, &[("NCCL_MIN_NCHANNELS", value)]);
        assert_eq!(of(4, "112"), [("NCCL_MIN_NCHANNELS=112".to_owned(), AdviceVerdict::Ignored)]);
        // 64 acts on 4 GPUs: the log of #11255 shows 64 channels instead of 48.
        assert_eq!(of(4, "64"), []);
        assert_eq!((of(8, "112"), of(7, "65").len()), (vec![], 1));
        assert_eq!(verdicts("nvidia", "sm_90", 4, &[("NCCL_MIN_NCHANNELS", "112")]), []);
    }

    #[test]
    fn unsafe_and_void_settings_are_recognised() {
        let of = |name: &str, value: &str| {
            let found = verdicts("nvidia", "sm_80", 8, &[(name, value)]);
            found.first().map(|(_, verdict)| *verdict)
        };
        assert_eq!(of("NCCL_PROTO", "LL,LL128,Simple"), Some(AdviceVerdict::Remove));
        assert_eq!(of("NCCL_PROTO", "^LL128"), None);
        assert_eq!(of("NCCL_PROTO", "Simple"), None);
        assert_eq!(of("NCCL_NVLS_ENABLE", "1"), Some(AdviceVerdict::Ignored));
        assert_eq!(of("NCCL_IB_HCA", "mlx5_0"), Some(AdviceVerdict::Ignored));
        assert_eq!(of("NCCL_P2P_DISABLE", "0"), None);
        assert_eq!(of("CUDA_LAUNCH_BLOCKING", "1"), Some(AdviceVerdict::Remove));
        assert_eq!(of("NCCL_ALGO", "Ring"), None);
        // "n", "no", "false" and nothing are off.
        for off in ["", "0", "n", "no", " false "] {
            assert_eq!(of("NCCL_P2P_DISABLE", off), None, "{off:?}");
        }
        assert_eq!(of("NCCL_P2P_DISABLE", "1"), Some(AdviceVerdict::Remove));
        let one = |name: &str| verdicts("nvidia", "sm_90", 1, &[(name, "1")]);
        assert_eq!(
            (one("NCCL_P2P_DISABLE"), one("NCCL_NVLS_ENABLE")),
            (vec![], vec![]),
            "no peer, and NVLS"
        );
        assert_eq!(verdicts("", "", 0, &[("NCCL_NVLS_ENABLE", "1")]), []);
        assert_eq!(of("NCCL_TUNER_CONFIG_FILE", "x"), Some(AdviceVerdict::Remove));
        assert_eq!(verdicts("amd", "gfx90a", 8, &[("NCCL_TUNER_CONFIG_FILE", "x")]), []);
        assert_eq!(of("FI_EFA_USE_DEVICE_RDMA", "1"), Some(AdviceVerdict::Ignored));
        assert_eq!(of("FI_EFA_ENABLE_SHM_TRANSFER", "1"), None, "within a node");
        assert_eq!(of("MPICH_GPU_SUPPORT_ENABLED", "0"), Some(AdviceVerdict::Unclear));
        assert_eq!(verdicts("", "", 0, &[("MPICH_GPU_SUPPORT_ENABLED", "0")]), [], "no GPU");
    }

    #[test]
    fn a_setting_of_the_network_is_judged_by_the_number_of_nodes() {
        let topology = Topology::default();
        let of = |nodes| {
            let set = ArmEnv::from([("NCCL_IB_HCA".to_owned(), "mlx5_0".to_owned())]);
            let found = known_settings(&set, &SettingScope { topology: &topology, gpus: 8, nodes });
            found.first().map(|advice| advice.verdict)
        };
        assert_eq!(of(Some(1)), Some(AdviceVerdict::Ignored));
        assert_eq!(of(Some(4)), None);
        assert_eq!(of(None), Some(AdviceVerdict::Unclear));
    }

    #[test]
    fn scripts_are_read_for_what_they_set() {
        let script = "#!/bin/bash\n# NCCL_OLD=1\n#SBATCH --export=ALL,UCX_TLS=rc\nexport NCCL_PROTO=\"LL,LL128\"\n\
                      NCCL_ALGO=Ring srun ./a --size=1 # NCCL_NOT=1\n\
                      mpirun -x NCCL_BUFFSIZE=8388608 --mca pml ^ucx -x PATH=$PATH ./b\nexport HOST=$(hostname)\n";
        let found = script_settings(script);
        let settings: Vec<(&str, &str)> = found
            .iter()
            .filter(|(name, _)| crate::is_setting(name))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let expected = [
            ("NCCL_ALGO", "Ring"),
            ("NCCL_BUFFSIZE", "8388608"),
            ("NCCL_PROTO", "LL,LL128"),
            ("OMPI_MCA_pml", "^ucx"),
            ("UCX_TLS", "rc"),
        ];
        assert_eq!(settings, expected);
        assert!(!found.contains_key("HOST"), "computed by the shell");
    }

    #[test]
    fn values_with_blanks_are_whole() {
        let value = |script: &str| script_settings(script).remove("NCCL_NET");
        for script in [
            "export NCCL_NET=\"AWS Libfabric\"",
            "export A=1 NCCL_NET='AWS Libfabric' # of the site",
            "NCCL_NET=AWS\\ Libfabric srun ./a",
            "env A='b c' NCCL_NET=\"AWS\"' Libfabric' cmd",
            "srun --export=ALL,NCCL_NET=\"AWS Libfabric\",A=1 ./a",
            "srun --export \"ALL,NCCL_NET=AWS Libfabric\" ./a",
            "#SBATCH --export=ALL,NCCL_NET='AWS Libfabric'",
            "mpirun -x NCCL_NET='AWS Libfabric' \\\n  ./a",
            "bash -c \"NCCL_NET='AWS Libfabric' ./a\"",
            "cat <<EOF\nit isn't\nEOF\nexport NCCL_NET='AWS Libfabric'",
        ] {
            assert_eq!(value(script).as_deref(), Some("AWS Libfabric"), "{script}");
        }
        assert_eq!(value("export NCCL_NET=\"AWS $NAME\""), None);
        assert_eq!(value("# export NCCL_NET=IB"), None);
    }
}
