//! Jobs on several hosts by the scripts of `place`: what each rank sees is compared with the plan. The hosts are
//! namespaces of this machine, each with its own name and network, which launchers reach by a stand-in for ssh.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pathline_stub::need::missing;
use pathline_stub::{StubLibraries, VARIABLE, lay_out};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::unwrapped;

const HOSTS: &str = include_str!("several_hosts/hosts.sh");
const SSH: &str = include_str!("several_hosts/ssh.sh");
/// Where rank 0 gathers the others.
const MEETING: &str = "n1:24001";

/// A machine of two GPUs and two CPUs, a domain each, with the addresses of the stand-in GPUs: the preset of four GPUs
/// without two of them. Two cores are what a machine for tests has.
fn small_machine(cpus: &[u32; 2]) -> String {
    let text = pathline(&["model", "show", "v100"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let text: String = text
        .lines()
        .filter(|line| !line.contains("\"gpu2\"") && !line.contains("\"gpu3\""))
        .map(|line| format!("{line}\n"))
        .collect();
    let text = text
        .replace("a = \"gpu1\", b = \"numa0\"", "a = \"gpu1\", b = \"numa1\"")
        .replace("cpus = \"0-19\"", &format!("cpus = \"{}\"", cpus[0]))
        .replace("cpus = \"20-39\"", &format!("cpus = \"{}\"", cpus[1]))
        .replace("pci = \"0000:", "pci = \"fade:")
        .replace("id = 1\nnuma = 0\n", "id = 1\nnuma = 1\n");
    let tables = text.split("\n\n");
    let kept = tables.filter(|table| {
        !table.starts_with("[[gpu]]") || table.contains("id = 0\n") || table.contains("id = 1\n")
    });
    kept.collect::<Vec<_>>().join("\n\n")
}

fn pathline(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command.args(args).stdin(Stdio::null());
    command
}

/// The first two CPUs of this process.
fn two_cpus() -> Option<[u32; 2]> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let cpus: pathline_schema::CpuSet = list.trim().parse().unwrap();
    cpus.as_slice().first_chunk().copied()
}

/// Hosts, and a folder with what a job on them needs.
struct TestHosts {
    folder: TempDir,
    count: usize,
}

impl TestHosts {
    /// None where namespaces cannot be made.
    fn new(count: usize) -> Option<Self> {
        let hosts = Self { folder: TempDir::new().unwrap(), count };
        for (name, text) in [("hosts.sh", HOSTS), ("ssh", SSH)] {
            hosts.write_script(name, text);
        }
        let Some(cpus) = two_cpus() else {
            missing("netns", "this host has fewer than two CPUs");
            return None;
        };
        fs::write(hosts.path("small.toml"), small_machine(&cpus)).unwrap();
        lay_out(&hosts.path("stub"), &[StubLibraries::Cuda], &[]).unwrap();
        let tried = hosts.run(Path::new("hostname"), &[]);
        if String::from_utf8_lossy(&tried.stdout).trim() != "n1" {
            let why = format!("hosts cannot be made: {}", unwrapped(&tried.stderr).trim());
            missing("netns", &why);
            return None;
        }
        Some(hosts)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text_of(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn write_script(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a command on the first host. All of its processes end with it.
    fn run(&self, program: &Path, args: &[&str]) -> Output {
        self.command(program, args).output().unwrap()
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["90", "unshare"]);
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            command.args(["--user", "--map-root-user"]);
        }
        command.args([
            "--net",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ]);
        command.arg("sh").arg(self.path("hosts.sh")).arg(self.folder.path());
        command.arg(self.count.to_string()).arg(program).args(args);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        for name in ["PATHLINE_RENDEZVOUS", "CUDA_VISIBLE_DEVICES"] {
            command.env_remove(name);
        }
        command.env("HOME", self.folder.path()).env("TMPDIR", self.path("tmp-n1"));
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("LD_LIBRARY_PATH", self.path("stub")).env("PATHLINE_CUDA", self.path("stub"));
        command.env(VARIABLE, format!("machine={}", self.path("small.toml").display()));
        command
    }

    /// What `health --net` finds in a job of a rank a host without GPUs, whose links have these rates: lines
    /// `NTH out|in|both RATE` as tc writes it, or `all both RATE`.
    fn check_network(&self, launcher: &TestLauncher, shape: &str) -> (Value, Option<i32>) {
        fs::write(self.path("shape"), shape).unwrap();
        self.hosts_of_nodes();
        let (ssh, count) = (self.text_of("ssh"), self.count.to_string());
        let program = assert_cmd::cargo::cargo_bin!("pathline").to_str().unwrap();
        // By default UCX sees that all are one host.
        let mut args = vec![launcher.agent_option[0], &ssh, launcher.nodes_option, "nodes"];
        args.extend(["-n", &count, "-bind-to", "none", "-genv", "UCX_TLS", "tcp,self", program]);
        args.extend(["health", "--net", "--json", "--rendezvous", MEETING]);
        let mut command = self.command(&launcher.program, &args);
        for name in ["LD_LIBRARY_PATH", "PATHLINE_CUDA", VARIABLE] {
            command.env_remove(name);
        }
        let output = command.output().unwrap();
        let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            let text = [&output.stdout[..], &output.stderr].concat();
            panic!("{error}: {}", String::from_utf8_lossy(&text))
        });
        (document, output.status.code())
    }

    /// Writes file `nodes`: a line a host.
    fn hosts_of_nodes(&self) {
        let names: String = (1..=self.count).map(|nth| format!("n{nth}\n")).collect();
        fs::write(self.path("nodes"), names).unwrap();
    }

    /// Writes a plan, and returns its text.
    fn plan(&self, more: &[&str]) -> String {
        let machine = self.text_of("small.toml");
        let output =
            pathline(&[&["place", "--machine", &machine], more].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", unwrapped(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        self.write_script("place.sh", &text);
        text
    }

    /// The names of the hosts by rank, which the script of a job prints; also a file.
    fn hosts_of_ranks(&self) -> Vec<String> {
        self.hosts_of_nodes();
        let output = Command::new("sh")
            .arg(self.path("place.sh"))
            .arg("--hosts")
            .stdin(fs::File::open(self.path("nodes")).unwrap())
            .output()
            .unwrap();
        fs::write(self.path("hosts"), &output.stdout).unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// What `where` reports in a job that a line of the script starts, with further options of the launcher, with or
    /// without the script.
    fn where_by(
        &self,
        launcher: &TestLauncher,
        options: &[&str],
        with_script: bool,
    ) -> (Value, Option<i32>) {
        let ssh = self.text_of("ssh");
        let program = assert_cmd::cargo::cargo_bin!("pathline").to_str().unwrap();
        let mut args: Vec<&str> = vec![launcher.agent_option[0]];
        args.extend(&launcher.agent_option[1..]);
        args.push(&ssh);
        args.extend(launcher.passed.iter().flat_map(|name| ["-x", name]));
        args.extend(options);
        if with_script {
            args.push("./place.sh");
        }
        args.extend([program, "place", "--json", "--check", "place.sh", "--rendezvous", MEETING]);
        let output = self.run(&launcher.program, &args);
        let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            let text = [&output.stdout[..], &output.stderr].concat();
            panic!("{error}: {}", String::from_utf8_lossy(&text))
        });
        (document, output.status.code())
    }
}

/// A launcher, and the options by which it starts processes on other hosts.
struct TestLauncher {
    format: &'static str,
    program: PathBuf,
    agent_option: &'static [&'static str],
    /// Variables that it does not pass to other hosts by itself.
    passed: &'static [&'static str],
    /// The options that name the hosts of a file with a line for each.
    nodes_option: &'static str,
}

fn launcher(format: &'static str) -> Option<TestLauncher> {
    let variable = format!("PATHLINE_TEST_{}", format.to_uppercase());
    let Some(program) = std::env::var_os(&variable).map(PathBuf::from) else {
        missing(format, &format!("{variable} names no mpirun"));
        return None;
    };
    let program = fs::canonicalize(program).unwrap();
    Some(match format {
        "mpich" => TestLauncher {
            format,
            program,
            agent_option: &["-launcher-exec"],
            passed: &[],
            nodes_option: "-f",
        },
        _ => TestLauncher {
            format,
            program,
            agent_option: &["--prtemca", "plm_ssh_agent"],
            passed: &["LD_LIBRARY_PATH", "PATHLINE_CUDA", VARIABLE],
            nodes_option: "--hostfile",
        },
    })
}

/// The options of the launcher's line in a script.
fn options_of(plan: &str) -> Vec<&str> {
    let line = plan.lines().find(|line| line.contains("./place.sh PROGRAM")).unwrap();
    let options = line.trim_start_matches('#').split_whitespace().skip(1);
    options.take_while(|word| *word != "./place.sh").collect()
}

fn codes(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

/// Host, number on it, CPUs and GPU address of each rank.
fn seen(document: &Value) -> Vec<[String; 4]> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |rank: &Value| {
        let pci = &rank["gpus"][0]["pci"];
        [text(&rank["host"]), text(&rank["local_rank"]), text(&rank["cpus"]), text(pci)]
    };
    document["ranks"].as_array().unwrap().iter().map(row).collect()
}

/// The same of a plan for one node or a job, with the host of each rank.
fn planned(plan: &str, hosts: &[String]) -> Vec<[String; 4]> {
    let lines: Vec<&str> = plan
        .lines()
        .filter(|line| line.split_once(") cpus=").is_some_and(|(n, _)| n.parse::<u32>().is_ok()))
        .collect();
    let mut next = std::collections::BTreeMap::<&str, usize>::new();
    hosts
        .iter()
        .enumerate()
        .map(|(rank, host)| {
            let local = next.entry(host).or_default();
            // The script of a node has the ranks of one.
            let line =
                lines.get(rank).filter(|_| lines.len() == hosts.len()).unwrap_or(&lines[*local]);
            let cpus = line.split_once("cpus=").unwrap().1.split(' ').next().unwrap();
            let pci = line.split_once("# ").unwrap().1;
            let row = [host.clone(), local.to_string(), cpus.to_owned(), pci.to_owned()];
            *local += 1;
            row
        })
        .collect()
}

/// Jobs on two and three hosts by the script of a job and by that of a node: each rank is on its host, its CPUs and its
/// GPU. By the script of a job started in the launcher's own order, or without it, ranks are not, and that is reported.
fn starts_on_several_hosts(format: &'static str) {
    let Some(launcher) = launcher(format) else { return };
    for count in [2, 3] {
        let Some(hosts) = TestHosts::new(count) else { return };
        let nodes = count.to_string();
        let job = ["--nodes", &nodes, "--pattern", "ring", "--format", format];
        let plan = hosts.plan(&job);
        let of_ranks = hosts.hosts_of_ranks();
        assert_eq!(of_ranks.len(), 2 * count);
        let options = options_of(&plan);
        let (document, code) = hosts.where_by(&launcher, &options, true);
        assert_eq!(seen(&document), planned(&plan, &of_ranks), "{format}: {document:#}");
        assert_eq!((codes(&document), code), (vec![], Some(0)), "{document:#}");

        let (document, code) = hosts.where_by(&launcher, &options, false);
        assert_eq!(code, Some(1), "{document:#}");
        for wanted in ["plan-cpus", "plan-gpu", "several-gpus", "unbound"] {
            assert!(codes(&document).contains(&wanted), "{format}: {wanted}: {document:#}");
        }

        let plan = hosts.plan(&["--format", format]);
        let names: Vec<String> =
            (1..=count).flat_map(|nth| [format!("n{nth}"), format!("n{nth}")]).collect();
        let ranks = (2 * count).to_string();
        let named = ["-n", &ranks, launcher.nodes_option, "nodes"];
        let options = [&named[..], &options_of(&plan)].concat();
        let (document, code) = hosts.where_by(&launcher, &options, true);
        assert_eq!(seen(&document), planned(&plan, &names), "{format}: {document:#}");
        assert_eq!((codes(&document), code), (vec![], Some(0)), "{document:#}");
        if launcher.format == "mpich" {
            numbers_of_interleaved_hosts(&hosts, &launcher);
        }
    }
}

/// Hydra numbers the ranks of a host by lines of its file: with n1 and n2 in turn all are number 0, so that the script
/// of a node gives all the first GPU. `where` counts by host, and reports it.
fn numbers_of_interleaved_hosts(hosts: &TestHosts, launcher: &TestLauncher) {
    fs::write(hosts.path("in-turn"), "n1\nn2\nn1\nn2\n").unwrap();
    let options = ["-n", "4", "-f", "in-turn", "-bind-to", "none"];
    let (document, code) = hosts.where_by(launcher, &options, true);
    let numbers: Vec<String> = seen(&document).into_iter().map(|row| row[1].clone()).collect();
    assert_eq!(numbers, ["0", "0", "1", "1"], "{document:#}");
    assert_eq!(code, Some(1));
    for wanted in ["shared-core", "plan-gpu", "plan-cpus"] {
        assert!(codes(&document).contains(&wanted), "{wanted}: {document:#}");
    }
}

#[test]
fn mpich_starts_ranks_on_several_hosts_as_planned() {
    starts_on_several_hosts("mpich");
}

#[test]
fn open_mpi_starts_ranks_on_several_hosts_as_planned() {
    starts_on_several_hosts("openmpi");
}

/// Eight hosts at 100 Mbit/s each way: sound, then with a host at half of it both ways, then one that only receives so.
#[test]
fn a_slow_host_and_a_slow_cable_are_found_by_messages() {
    let Some(launcher) = launcher("mpich") else { return };
    let Some(hosts) = TestHosts::new(8) else { return };
    for (planted, part) in [
        ("", None),
        ("3 both 50mbit", Some("node n3, its adapter or cable")),
        ("6 in 50mbit", Some("cable or port of n6, only receiving")),
    ] {
        let shape = format!("all both 100mbit\n{planted}\n");
        let (document, code) = hosts.check_network(&launcher, &shape);
        let faults = document["faults"].as_array().unwrap();
        let found: Vec<&str> = faults.iter().map(|fault| fault["part"].as_str().unwrap()).collect();
        assert_eq!(found, part.into_iter().collect::<Vec<_>>(), "{document:#}");
        assert_eq!(code, Some(i32::from(part.is_some())), "{document:#}");
    }
}
