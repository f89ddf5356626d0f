//! `pathline health --bundle`: one archive for a ticket, without secrets.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use flate2::read::GzDecoder;
use tempfile::TempDir;

fn pathline(dir: &Path, args: &[&str], env: &[(String, String)]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command.current_dir(dir).args(args).stdin(Stdio::null()).env_remove("COLUMNS");
    command.envs(env.iter().map(|(name, value)| (name, value))).output().unwrap()
}

/// Contents of an archive by name, read as tar does.
fn unpacked(path: &Path) -> BTreeMap<String, String> {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() % 512, 0);
    let mut files = BTreeMap::new();
    let mut rest = &bytes[..];
    while rest[0] != 0 {
        let (header, after) = rest.split_at(512);
        let text = |from: usize, to: usize| {
            let field = header[from..to].split(|byte| *byte == 0).next().unwrap();
            String::from_utf8(field.to_vec()).unwrap()
        };
        assert_eq!(text(257, 263), "ustar");
        let sum = u32::from_str_radix(text(148, 154).trim(), 8).unwrap();
        let blank = header.iter().enumerate();
        let blank = blank.map(|(at, b)| if (148..156).contains(&at) { 32 } else { u32::from(*b) });
        assert_eq!(sum, blank.sum::<u32>());
        let size = usize::from_str_radix(&text(124, 135), 8).unwrap();
        files.insert(text(0, 100), String::from_utf8(after[..size].to_vec()).unwrap());
        rest = &after[size.next_multiple_of(512)..];
    }
    assert!(rest.len() == 1024 && rest.iter().all(|byte| *byte == 0));
    files
}

/// A journal of an earlier version, which recorded what it was given.
fn plant_in_journal(journal: &Path, secret: &mut dyn FnMut() -> String) {
    let text = fs::read_to_string(journal).unwrap();
    let words = [
        format!(r#""--s3-secret-key","{}""#, secret()),
        format!(r#""--password={}""#, secret()),
        format!(r#""--token","{}""#, secret()),
        format!(r#""s3://me:{}@bucket""#, secret()),
        format!(r#""https://host/x?X-Amz-Signature={}""#, secret()),
        format!(r#""Authorization: Bearer {}""#, secret()),
        format!(r#""{{\"password\": \"{} {}\"}}""#, secret(), secret()),
        format!(r#""API_KEY={}""#, secret()),
        format!(r#""hf_abcdefgh{}""#, secret()),
        format!(r#""sk-abcdefgh{}""#, secret()),
        format!(r#""-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----""#, secret()),
    ];
    let variables = [
        format!(r#""A_TOKEN":"{}""#, secret()),
        format!(r#""b_passwd": "{}\"{}""#, secret(), secret()),
        format!(r#""UCX_URL":"ftp://{}:x@h/""#, secret()),
        format!(r#""NCCL_X":"--secret={} --auth {}""#, secret(), secret()),
        format!(r#""FI_COOKIE":"{}""#, secret()),
    ];
    let text = text.replacen(r#""command":["#, &format!(r#""command":[{},"#, words.join(",")), 1);
    let text = text.replacen(r#""env":{"#, &format!(r#""env":{{{},"#, variables.join(",")), 1);
    fs::write(journal, text.replace(",}", "}")).unwrap();
}

#[test]
fn forty_planted_secrets_are_in_no_bundle() {
    let dir = TempDir::new().unwrap();
    let mut planted = Vec::new();
    let mut secret = || {
        planted.push(format!("s3cr3t{:02}value", planted.len()));
        planted[planted.len() - 1].clone()
    };
    let mut env: Vec<(String, String)> = Vec::new();
    for name in [
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "WANDB_API_KEY",
        "DB_PASSWORD",
        "MYSQL_PWD",
        "NCCL_AUTH_TOKEN",
        "UCX_PASSWORD",
        "FI_MY_SECRET",
        "OMPI_MCA_pass",
        "MPICH_KEY",
        "HSA_ACCESSTOKEN",
        "SLURM_JWT_TOKEN",
        "GITHUB_TOKEN",
        "X_CREDENTIALS",
    ] {
        env.push((name.to_owned(), secret()));
    }
    env.push((
        "NCCL_TOPO_FILE".into(),
        format!("https://me:{}@host/t.xml?sig={}", secret(), secret()),
    ));
    env.push(("UCX_LOG_FILE".into(), format!("/tmp/log?token={}", secret())));
    env.push(("NCCL_DEBUG_FILE".into(), format!("/x/ghp_0123456789{}", secret())));
    env.push(("HTTPS_PROXY".into(), format!("http://me:{}@proxy:3128", secret())));
    env.push(("NCCL_DEBUG".into(), "WARN".into()));
    let run = "run -m mi250x --suite pairs --case-budget 0.02 -q -o run";
    let ran = pathline(dir.path(), &run.split(' ').collect::<Vec<_>>(), &env);
    assert!(
        ran.status.code().is_some_and(|code| code != 2),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    plant_in_journal(&dir.path().join("run/run.jsonl"), &mut secret);
    assert!(planted.len() >= 36, "{}", planted.len());
    let mut secrets = planted;
    let more: Vec<String> = (secrets.len()..40).map(|n| format!("s3cr3t{n:02}value")).collect();
    env.extend(
        more.iter().enumerate().map(|(n, value)| (format!("MORE_{n}_PASSPHRASE"), value.clone())),
    );
    secrets.extend(more);

    let judged = pathline(
        dir.path(),
        &["health", "--history", "kept", "run", "--bundle", "runs.tar.gz"],
        &env,
    );
    let error = String::from_utf8_lossy(&judged.stderr);
    assert!(judged.status.code().is_some_and(|code| code != 2), "{error}");
    let args = ["health", "--budget", "2s", "--history", "kept2", "--bundle", "node.tar.gz"];
    pathline(dir.path(), &args, &env);
    for (archive, wanted) in [
        ("runs.tar.gz", &["runs/0.run.jsonl", "snapshot.json", "doctor.json"][..]),
        ("node.tar.gz", &["health.txt", "health.json", "topology.json", "environment.txt"]),
    ] {
        let files = unpacked(&dir.path().join(archive));
        let index = &files["pathline-bundle/index.txt"];
        for name in wanted {
            assert!(files.contains_key(&format!("pathline-bundle/{name}")), "{name}: {index}");
            assert!(index.contains(name), "{index}");
        }
        for (name, text) in &files {
            for secret in &secrets {
                let at = text.find(secret.as_str());
                let around = at
                    .map(|at| text[..at + secret.len()].chars().rev().take(80).collect::<String>());
                assert_eq!(around, None, "{archive} {name} (backwards)");
            }
            let lines = text.lines().filter(|_| name.ends_with(".jsonl"));
            for line in lines {
                serde_json::from_str::<serde_json::Value>(line).unwrap();
            }
            if name.ends_with(".json") {
                serde_json::from_str::<serde_json::Value>(text).unwrap();
            }
        }
        let environment = &files["pathline-bundle/environment.txt"];
        assert!(environment.contains("NCCL_DEBUG=WARN\n"), "{environment}");
        assert!(
            !environment.contains("HF_TOKEN") && !environment.contains("PROXY"),
            "{environment}"
        );
    }
}

#[test]
fn a_bundle_takes_the_place_of_nothing() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("there"), "mine").unwrap();
    for (file, why) in [("there", "it exists, and stays as it is"), ("none/x", "cannot write")] {
        let began = std::time::Instant::now();
        let output = pathline(dir.path(), &["health", "--bundle", file], &[]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(why), "{error}");
        assert!(error.contains(file) && began.elapsed().as_secs() < 5 && output.stdout.is_empty());
    }
    assert_eq!(fs::read_to_string(dir.path().join("there")).unwrap(), "mine");
    // A check that cannot begin leaves no file.
    pathline(dir.path(), &["health", "-m", "no-such-machine", "--bundle", "left"], &[]);
    assert!(!dir.path().join("left").exists());
    let args = ["health", "-m", "mi250x", "--bundle", "model.tar.gz"];
    assert!(pathline(dir.path(), &args, &[]).status.success());
    let files = unpacked(&dir.path().join("model.tar.gz"));
    assert!(files["pathline-bundle/index.txt"].contains("not here: facts of the host"));
}
