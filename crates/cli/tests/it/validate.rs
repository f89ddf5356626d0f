//! `pathline validate`: the model against everything published, within the bounds that are asked.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use assert_cmd::Command;

fn pathline(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("pathline").expect("the program");
    command.args(args);
    command
}

fn out(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

const HEAD: &str = "system,tool,interface,src,dst,size_bytes,direction,metric,value,unit\n";

/// The bounds are the program's own: bandwidths of 16 MiB and more 2 % in the median and 6 % at
/// p95, sweeps 5 %, messages 15 %. A model that misses one fails here.
#[test]
fn the_model_is_within_its_bounds_of_the_published_values() {
    let (code, stdout, stderr) = out(&mut pathline(&["validate", "--machine", "mi250x"]));
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    // 355 rows less 15 that are not of this node or not described.
    assert!(stdout.contains("340 of 355 rows"), "{stdout}");
    assert!(stdout.contains("64 values the model carries as data"), "{stdout}");
    assert!(stdout.contains("Left out, 15 rows"), "{stdout}");
}

#[test]
fn a_bound_that_is_missed_is_exit_code_1() {
    let (code, stdout, _) = out(&mut pathline(&["validate", "--within", "bandwidth=0,0"]));
    assert_eq!(code, Some(1));
    assert!(stdout.contains("! bandwidth: median"), "{stdout}");
}

#[test]
fn a_table_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let (table, page, csv) =
        (folder.path().join("rows.csv"), folder.path().join("v.html"), folder.path().join("v.csv"));
    let rows = "Mine,p2pBandwidthLatencyTest,SDMA,GCD0,GCD1,160e6,uni,bandwidth,50.3,GB/s\n\
                Mine,p2pBandwidthLatencyTest,SDMA,GCD0,GCD1,160e6,uni,bandwidth,50.3,knots\n";
    fs::write(&table, format!("{HEAD}{rows}")).unwrap();
    let table = table.to_str().unwrap();
    // Nobody has said that this system is the machine.
    let (code, stdout, _) = out(&mut pathline(&["validate", "--against", table]));
    assert_eq!(code, Some(3));
    assert!(stdout.contains("system 'Mine' is not the machine 'mi250x'"), "{stdout}");
    let mut command = pathline(&["validate", "--against", table, "--system", "Mine"]);
    command.arg("--html").arg(&page).arg("--csv").arg(&csv);
    let (code, stdout, stderr) = out(&mut command);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("cannot be read: unit 'knots' is not in the vocabulary (line 3)"));
    assert!(fs::read_to_string(page).unwrap().contains("r0.gpu0.vram &gt; r0.gpu1.vram"));
    let text = fs::read_to_string(csv).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let first = reader.records().next().unwrap().unwrap();
    // Within 2 % of 50.3, which the preset's engine is fitted to.
    let predicted: f64 = first[2].parse().unwrap();
    assert!((predicted / 50.3 - 1.0).abs() < 0.02, "{predicted}");
}

/// The engine has no CPU that fetches pages by touching them; the physics has its cost.
#[test]
fn pages_that_the_host_fetches_have_a_prediction() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("rows.csv");
    let row = "mi250x,Comm|Scope,page migration managed (HSA_XNACK=1),GCD0,host,1e9,uni,bandwidth,2.8,GB/s\n";
    fs::write(&table, format!("{HEAD}{row}")).unwrap();
    let args = ["validate", "--against", table.to_str().unwrap(), "--within", "bandwidth=50"];
    let (code, stdout, _) = out(&mut pathline(&args));
    assert_eq!(code, Some(0), "{stdout}");
    assert!(stdout.contains("1 of 1 row"), "{stdout}");
}

#[test]
fn what_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("rows.csv");
    fs::write(&table, "system,tool\na,b\n").unwrap();
    let table = table.to_str().unwrap();
    for (args, part) in [
        (vec!["--against", table], "no column 'interface'"),
        (vec!["--against", "/nowhere.csv"], "/nowhere.csv"),
        (vec!["--within", "bandwidth=few"], "--within 'bandwidth=few'"),
        (vec!["--within", "speed=1"], "targets are bandwidth, sweeps, messages, topology"),
        (vec!["--machine", "hgx-h200"], "name a table with --against"),
    ] {
        let args: Vec<&str> = [&["validate"], args.as_slice()].concat();
        let (code, _, stderr) = out(&mut pathline(&args));
        assert_eq!(code, Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(part), "{args:?}: {stderr}");
    }
}
