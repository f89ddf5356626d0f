//! What the program writes for machines to run, from files that somebody else made: no text of them becomes a command.

use std::fs;
use std::process::Command;

use pathline_flow::MachineDesc;
use pathline_place::{
    LauncherKind, PlaceRequest, job_script, launch_text, place_ranks, rankfile_text, read_plan,
};
use pathline_schema::{HostName, Topology, TopologyWarning, markup_text, toml_text};
use serde_json::Value;
use tempfile::TempDir;

const LAUNCHERS: [LauncherKind; 5] = [
    LauncherKind::Slurm,
    LauncherKind::OpenMpi,
    LauncherKind::Mpich,
    LauncherKind::Flux,
    LauncherKind::Env,
];

/// Texts that end a comment, a quote, an arm of `case`, a line or a word, and would then make a file.
pub(crate) fn hostile_texts() -> Vec<String> {
    let mut all: Vec<String> = [
        "x\nesac\ntouch canary\ncase \"$rank\" in\n#",
        "x\r\ntouch canary\r\n",
        "x\n*) touch canary ;;\n#",
        "$(touch canary)",
        "`touch canary`",
        "x;touch canary;",
        "x|touch canary",
        "x & touch canary &",
        "'; touch canary; '",
        "\"; touch canary; \"",
        "x\u{2028}touch canary\u{85}touch canary\u{b}touch canary",
        "# ;; esac\ntouch canary",
        "-oProxyCommand=touch canary",
        "%n%s\\ntouch canary\\\ntouch canary",
        "h\nrank 1=h slot=0 # ",
        "x\0\ntouch canary",
        "{a,b} ~ * ? [!x] \\",
    ]
    .map(str::to_owned)
    .into();
    all.push("\ntouch canary".repeat(7700));
    all
}

/// Strings of a value that may be any text: `takes` reads the changed whole.
pub(crate) fn free_texts(whole: &Value, takes: &dyn Fn(&Value) -> bool) -> Vec<String> {
    let (mut all, mut changed) = (Vec::new(), whole.clone());
    crate::hostile::leaves(whole, "", &mut all);
    all.retain(|at| {
        let leaf = changed.pointer_mut(at).expect("a leaf");
        let before = std::mem::replace(leaf, "x y\nz".into());
        let is_taken = takes(&changed);
        *changed.pointer_mut(at).expect("a leaf") = before;
        is_taken
    });
    all
}

/// The value with a text in all these places, of a long text in a few.
pub(crate) fn poisoned(whole: &Value, at: &[String], text: &str) -> Value {
    let mut changed = whole.clone();
    for at in at.iter().step_by(1 + text.len() / 1000) {
        *changed.pointer_mut(at).expect("a leaf") = text.into();
    }
    changed
}

/// Starts a script as launchers start it, and reads it as `pathline place --check SCRIPT` does.
fn run_script(script: &str, ranks: usize) {
    let dir = TempDir::new().expect("a folder");
    fs::write(dir.path().join("place.sh"), script).expect("a script");
    let stand_in = dir.path().join("taskset");
    fs::write(&stand_in, "#!/bin/sh\nshift 2\nexec \"$@\"\n").expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&stand_in, mode).expect("permissions");
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    let run = |args: &[&str], rank: &str| {
        let mut command = Command::new("/bin/sh");
        command.args(args).env_clear().env("PATH", &path).current_dir(dir.path());
        command.env("SLURM_PROCID", rank).env("SLURM_LOCALID", rank);
        command.output().expect("a shell")
    };
    let checked = run(&["-n", "place.sh"], "");
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}\n{script:.3000}");
    for rank in ["0", "7", "9999"] {
        let output = run(&["place.sh", "echo", "started"], rank);
        let expected = if rank == "9999" { (Some(64), "") } else { (Some(0), "started\n") };
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!((output.status.code(), &*printed), expected, "{output:?}\n{script:.3000}");
    }
    assert_eq!(fs::read_dir(dir.path()).expect("the folder").count(), 2, "{script:.3000}");
    assert_eq!(read_plan(script).expect("a plan").len(), ranks);
}

/// Every script of this node; the names of adapters are refused if they cannot be in one.
fn run_all_of(topology: &Topology, text: &str) {
    let plan = place_ranks(topology, &PlaceRequest::default()).expect("a plan");
    let named = plan.ranks.iter().any(|p| p.nic.as_deref().is_some_and(|nic| nic == text));
    let at: Vec<usize> = (0..2 * plan.ranks.len()).collect();
    for launcher in LAUNCHERS {
        run_script(&launch_text(topology, &plan, launcher, false).expect("it is written"), 8);
        run_script(&job_script(topology, &plan, &at, launcher, false).expect("written"), 16);
        let error =
            launch_text(topology, &plan, launcher, true).map(|script| run_script(&script, 8));
        let error = error.err().map(|error| error.to_string());
        assert_eq!(error.is_some(), named, "{error:?}");
        assert!(error.is_none_or(|e| e.contains("cannot be written as the name of an adapter")));
        assert_eq!(job_script(topology, &plan, &at, launcher, true).is_err(), named);
    }
    let rankfile = rankfile_text(topology, &plan);
    let mut lines = rankfile.lines();
    assert!(lines.next().is_some_and(|line| line.starts_with("# ")), "{rankfile}");
    for (rank, line) in lines.enumerate() {
        let (head, slots) = line.split_once(" slot=").expect("slots");
        assert!(slots.bytes().all(|b| b.is_ascii_digit() || b == b','), "{line}");
        let host = head.strip_prefix(&format!("rank {rank}=")).expect("a rank");
        assert!(host.parse::<HostName>().is_ok(), "{line}");
    }
    let read = pathline_topo::from_text("written", &pathline_topo::write_nccl_xml(topology));
    assert_eq!(read.expect("XML").gpus.len(), topology.gpus.len());
}

#[test]
fn no_text_of_a_topology_becomes_a_command() {
    let mut topology = MachineDesc::preset("mi250x").expect("a preset").topology();
    topology.host.virtualization = Some("kvm".to_owned());
    let (code, subject, text) = ("a".to_owned(), "b".to_owned(), "c".to_owned());
    topology.warnings.push(TopologyWarning { code, subject, text });
    let whole = serde_json::to_value(&topology).expect("JSON");
    let read = |value: &Value| serde_json::from_value::<Topology>(value.clone());
    let free = free_texts(&whole, &|value| read(value).is_ok());
    // Numbers of units, sets of CPUs, kinds of links, addresses and names of hosts are none.
    let is_free = |end: &str| free.iter().any(|at| at.ends_with(end));
    assert!(["/source", "/gpus/0/name", "/nics/0/name", "/text"].into_iter().all(is_free));
    assert!(!["/pci", "/hostname", "/cpus", "/a"].into_iter().any(is_free), "{free:?}");
    for (nth, text) in hostile_texts().iter().enumerate() {
        let mut topology = read(&poisoned(&whole, &free, text)).expect("a topology");
        for gpu in topology.gpus.iter_mut().filter(|_| nth % 2 == 0) {
            gpu.vendor = "amd".to_owned();
        }
        run_all_of(&topology, text);
        // Then the comment names where the topology is from.
        topology.host.hostname = HostName::default();
        run_all_of(&topology, text);
    }
}

#[test]
fn no_text_of_a_machine_file_becomes_a_command() {
    let (_, preset) = MachineDesc::presets().iter().find(|(name, _)| *name == "mi250x").unwrap();
    let whole: Value = toml::from_str(preset).expect("TOML");
    let read =
        |value: &Value| MachineDesc::parse("m.toml", &toml::to_string(value).expect("TOML")).ok();
    let free = free_texts(&whole, &|value| read(value).is_some());
    assert!(free.iter().any(|at| at == "/gpus/name") && !free.iter().any(|at| at == "/name"));
    assert!(!free.iter().any(|at| at.ends_with("/pci")), "{free:?}");
    for text in hostile_texts() {
        let topology = read(&poisoned(&whole, &free, &text)).expect("a machine").topology();
        assert_eq!(topology.host.hostname.as_str(), "mi250x");
        run_all_of(&topology, &text);
    }
    // The script of the audit: an arm of `case` in the place of an address.
    for name in ["/gpu/0/pci", "/name"] {
        let changed = poisoned(&whole, &[name.to_owned()], "x\n*) touch canary ;;\n#");
        assert!(read(&changed).is_none(), "{name}");
    }
}

/// Every character, and every hostile text, as TOML and as an attribute of XML.
#[test]
fn tables_and_pages_hold_every_text() {
    let all: String = (0..0x1_1000).filter_map(char::from_u32).collect();
    for text in hostile_texts().into_iter().chain([all]) {
        let table: Value = toml::from_str(&format!("a = {}", toml_text(&text))).expect("TOML");
        assert_eq!(table["a"], text);
        let document = format!("<a b=\"{0}\">{0}</a>", markup_text(&text));
        let mut reader = quick_xml::Reader::from_str(&document);
        let Ok(quick_xml::events::Event::Start(start)) = reader.read_event() else { panic!() };
        assert_eq!(start.attributes().count(), 1);
        let read = quick_xml::escape::unescape(&markup_text(&text)).expect("XML").into_owned();
        let same = |(read, c): (char, char)| read == c || read == '\u{fffd}';
        assert!(read.chars().zip(text.chars()).all(same) && read.len() >= text.chars().count());
    }
}
