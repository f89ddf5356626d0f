//! `pathline place`: the table, the lines of launchers, and a script that is run.

use std::fs;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::unwrapped;

fn place(args: &[&str]) -> Output {
    let binary = assert_cmd::cargo::cargo_bin!("pathline");
    Command::new(binary).arg("place").args(args).output().expect("the binary runs")
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", unwrapped(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The masks and cores of LUMI's documentation for eight ranks with a GPU each (GPU binding, LUMI-G).
#[test]
fn the_masks_of_lumi_follow_from_the_topology() {
    let text = text(&place(&["--machine", "mi250x", "--skip-first-core", "--format", "slurm"]));
    let masks = "mask_cpu:fe000000000000,fe00000000000000,fe0000,fe000000,fe,fe00,fe00000000,\
                 fe0000000000 ";
    assert!(text.contains(masks), "{text}");
    assert!(text.contains("map_cpu:49,57,17,25,1,9,33,41\n"), "{text}");
    assert!(text.contains("\nexport ROCR_VISIBLE_DEVICES=\"$gpu\"\n"), "{text}");
}

/// Frontier's binding as OLCF's hello_jobstep prints it in its README, for `srun -c7 --gpu-bind=closest` with the first
/// core of each L3 cache reserved: GPU, bus and first core of each rank; seven cores each. The last bus is de there, and
/// dc on the LUMI node of the preset.
#[test]
fn the_binding_of_frontier_follows_from_the_topology() {
    let published = [
        (0, "c1", 49),
        (1, "c6", 57),
        (2, "c9", 17),
        (3, "ce", 25),
        (4, "d1", 1),
        (5, "d6", 9),
        (6, "d9", 33),
        (7, "dc", 41),
    ];
    let text = text(&place(&["--machine", "mi250x"]));
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for (gpu, bus, first) in published {
        let (name, pci) = (format!("gpu{gpu}"), format!("0000:{bus}:00.0"));
        let cores = format!("{first}-{}", first + 6);
        let is_rank = |row: &&Vec<&str>| row.get(1) == Some(&name.as_str());
        let row = rows.iter().find(is_rank).expect("a row");
        assert_eq!((row[2], row[5]), (pci.as_str(), cores.as_str()), "{text}");
    }
}

#[test]
fn the_table_names_gpu_domain_adapter_and_cores() {
    let text = text(&place(&["--machine", "mi250x", "--ranks", "2"]));
    let rows: Vec<Vec<&str>> =
        text.lines().skip(1).take(2).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["0", "gpu0", "0000:c1:00.0", "3", "hsn0", "49-55"]);
    assert_eq!(rows[1], ["1", "gpu2", "0000:c9:00.0", "1", "hsn1", "17-23"]);
}

/// The script of this host, started as a launcher starts it: the process may use the planned CPU only.
#[test]
fn the_script_pins_a_rank_to_its_cpus() {
    let dir = TempDir::new().expect("a folder");
    let script = dir.path().join("place.sh");
    let plan = place(&["--ranks", "1", "--format", "env"]);
    fs::write(&script, text(&plan)).expect("a script");
    let wanted = text(&plan)
        .lines()
        .find_map(|line| Some(line.strip_prefix("0) cpus=")?.split(' ').next()?.to_owned()));
    let run = |rank: &str| {
        let mut command = Command::new("sh");
        command.arg(&script).args(["grep", "Cpus_allowed_list", "/proc/self/status"]);
        // Another launcher's number must not win over the one of the test.
        for name in ["MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"] {
            command.env_remove(name);
        }
        command.env("OMPI_COMM_WORLD_LOCAL_RANK", rank).output().expect("a shell")
    };
    let allowed = text(&run("0"));
    assert_eq!(allowed.split_whitespace().nth(1), wanted.as_deref(), "{allowed}");
    let other = run("7");
    assert_eq!(other.status.code(), Some(64));
    assert!(unwrapped(&other.stderr).contains("no place for rank '7'"));
}

#[test]
fn more_ranks_than_cores_are_refused() {
    let output = place(&["--machine", "mi250x", "--ranks", "100"]);
    assert_eq!(output.status.code(), Some(2));
    let error = unwrapped(&output.stderr);
    assert!(error.contains("ask for fewer ranks"), "{error}");
}

/// The best mapping of a halo on the modelled node, and the run that proves it: 1.96x by prediction.
#[test]
fn a_pattern_brings_ranks_together_and_proves_it() {
    let dir = TempDir::new().expect("a folder");
    let out = dir.path().join("proof");
    let folder = out.to_str().expect("a printable path");
    let args =
        ["--machine", "mi250x", "--by", "blit", "--prove", folder, "--pattern", "grid", "2x4"];
    let text = text(&place(&args));
    let order = text.lines().find(|line| line.contains("ranks in order")).expect("a row");
    assert!(order.ends_with("1.96x"), "{text}");
    assert!(text.contains("all mappings were bounded"), "{text}");
    let measured = text.lines().last().expect("a line");
    assert!(measured.starts_with("measured: ") && measured.contains("1.9"), "{text}");
    assert!(out.join("run.jsonl").is_file());
}

/// Ranks 0 and 1 exchange nearly everything: they get the two GPUs of a package.
#[test]
fn a_matrix_decides_which_ranks_are_near() {
    let dir = TempDir::new().expect("a folder");
    let file = dir.path().join("bytes.csv");
    fs::write(&file, "0,100000000,1\n100000000,0,1\n1,1,0\n").expect("a matrix");
    let path = file.to_str().expect("a printable path");
    let text = text(&place(&["--machine", "mi250x", "--by", "blit", "--pattern", path]));
    let gpu = |nth: usize| -> u32 {
        let row = text.lines().nth(nth + 1).and_then(|row| row.split_whitespace().nth(1));
        row.and_then(|gpu| gpu.strip_prefix("gpu")).and_then(|gpu| gpu.parse().ok()).expect("a GPU")
    };
    assert_eq!(gpu(0) / 2, gpu(1) / 2, "{text}");
    fs::write(&file, "0,1\n1,0,5\n").expect("a matrix");
    let output = place(&["--machine", "mi250x", "--pattern", path]);
    assert_eq!(output.status.code(), Some(2));
    let error = unwrapped(&output.stderr);
    assert!(error.contains("bytes.csv: line 2: 3 numbers"), "{error}");
}

#[test]
fn a_job_of_several_nodes_is_mapped() {
    let dir = tempfile::TempDir::new().expect("a folder");
    let order = dir.path().join("order");
    let binary = assert_cmd::cargo::cargo_bin!("pathline");
    let run = |args: &[&str]| {
        let output = std::process::Command::new(binary).args(args).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let file = order.to_str().expect("a printable path");
    let base = ["place", "--machine", "mi250x", "--nodes", "4", "--pattern", "exchange"];
    let (code, text) = run(&[&base[..], &["--by", "blit", "--order", file]].concat());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("32 ranks on 4 nodes") && text.contains("node 3: ranks"), "{text}");
    // Ranks r and r + 16 exchange: in order all 32 messages of 64 MiB leave a node, mapped none.
    assert!(text.contains("2.15 GB") && text.contains("0.00 GB"), "{text}");
    let order = std::fs::read_to_string(order).expect("a file");
    let mut ranks: Vec<u32> = order.trim().split(',').map(|r| r.parse().expect("a rank")).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, (0..32).collect::<Vec<_>>());
    let (code, _) = run(&[&base[..], &["--ranks", "33"]].concat());
    assert_eq!(code, Some(2));
}

#[test]
fn a_script_sets_the_adapter_of_each_rank() {
    let binary = assert_cmd::cargo::cargo_bin!("pathline");
    let args = ["place", "--machine", "mi250x", "--format", "slurm"];
    let output = std::process::Command::new(binary).args(args).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches(" nic=").count(), 8, "{text}");
    assert!(
        text.contains("export FI_CXI_DEVICE_NAME=") || text.contains("export UCX_NET_DEVICES="),
        "{text}"
    );
}

/// The script of a job of 4 nodes, started as launchers start it, with a stand-in for taskset: each rank gets the GPU,
/// CPUs and adapter of its place, and no two of a node the same.
#[test]
fn a_script_of_a_job_gives_each_rank_its_place() {
    let dir = TempDir::new().expect("a folder");
    let base = ["--machine", "mi250x", "--nodes", "4", "--pattern", "exchange", "--by", "blit"];
    let plan = text(&place(&[&base[..], &["--format", "slurm"]].concat()));
    let start = "SLURM_HOSTFILE=hosts srun -n 32 --distribution=arbitrary --cpu-bind=none";
    assert!(plan.contains(start), "{plan}");
    let script = dir.path().join("place.sh");
    fs::write(&script, &plan).expect("a script");
    let stand_in = dir.path().join("taskset");
    fs::write(&stand_in, "#!/bin/sh\necho $2 $ROCR_VISIBLE_DEVICES $FI_CXI_DEVICE_NAME\n")
        .expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&stand_in, mode).expect("permissions");
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").expect("a path"));
    let run = |env: &[(&str, String)], args: &[&str], input: &str| {
        let mut command = Command::new("sh");
        command.arg(&script).args(args).env_clear().env("PATH", &path);
        command.envs(env.iter().map(|(name, value)| (*name, value)));
        let names = dir.path().join("names");
        fs::write(&names, input).expect("a file");
        command.stdin(fs::File::open(&names).expect("a file")).output().expect("a shell")
    };
    let hosts = text(&run(&[], &["--hosts"], "n1\nn2\nn3\nn4\n"));
    let hosts: Vec<&str> = hosts.lines().collect();
    assert_eq!(hosts.len(), 32, "{hosts:?}");
    // Ranks r and r + 16 exchange, so they are on one node, whose 8 ranks are 4 such pairs.
    assert!((0..16).all(|rank| hosts[rank] == hosts[rank + 16]), "{hosts:?}");
    assert_eq!(run(&[], &["--hosts"], "n1 n2 n3").status.code(), Some(64));
    let launchers = [
        ("SLURM_PROCID", "SLURM_LOCALID"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("PMI_RANK", "MPI_LOCALRANKID"),
    ];
    let mut taken = std::collections::BTreeSet::new();
    for rank in 0..32 {
        // Of the ranks of a host, those before it.
        let local = hosts[..rank].iter().filter(|host| **host == hosts[rank]).count();
        let (job, node) = launchers[rank % 3];
        let env = [(job, rank.to_string()), (node, local.to_string())];
        let got = text(&run(&env, &["PROGRAM"], ""));
        let fields: Vec<&str> = got.split_whitespace().collect();
        let [cpus, gpu, nic] = fields.as_slice() else { panic!("{got}") };
        // Two GPUs of a package share an adapter: hsn0 is cxi0.
        assert_eq!(
            nic.strip_prefix("cxi"),
            Some(&*(gpu.parse::<u32>().expect("a GPU") / 2).to_string())
        );
        assert!(taken.insert((hosts[rank], (*gpu).to_owned())), "{rank}: {got}");
        assert!(plan.contains(&format!("\n{rank}) cpus={cpus} gpu={gpu} nic=hsn")), "{got}");
        let env = [("SLURM_PROCID", rank.to_string()), ("SLURM_LOCALID", (local + 1).to_string())];
        let moved = run(&env, &["PROGRAM"], "");
        assert_eq!(moved.status.code(), Some(64));
    }
    let none = run(&[("SLURM_PROCID", "32".to_owned())], &["PROGRAM"], "");
    assert!(unwrapped(&none.stderr).contains("no place for rank '32' of this job"));
    let refused = place(&[&base[..], &["--format", "rankfile"]].concat());
    assert_eq!(refused.status.code(), Some(2));
}
