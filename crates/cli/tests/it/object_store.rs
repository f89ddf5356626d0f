//! Object stores, as a user meets them: the whole program against a server of moto.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use pathline_schema::{CaseOutcome, VerifyResult};
use pathline_stub::need::missing;
use tempfile::TempDir;

use crate::common::{command, journal, unwrapped};

/// The folder of Python's packages with moto.
const PACKAGES: &str = "PATHLINE_TEST_S3";
const SECRET: &str = "a-secret-of-tests";
/// A shared file has more parts than requests in flight: moto fails if two of one part overlap.
const CASES: [&str; 5] = [
    "r0.store0.file > r0.numa0.paged by s3@numa0[rand-read,direct,shared,1MiB,q4,n1,t1] x 64KiB",
    "r0.store0.file > r0.numa0.paged by s3@numa0[seq-read,direct,each,1MiB,q2,n1,t1] x 64KiB",
    "r0.numa0.paged > r0.store0.file by s3@numa0[seq-write,direct,each,1MiB,q2,n1,t1] x 64KiB",
    "r0.numa0.paged > r0.store0.file by s3@numa0[seq-write,direct,shared,40MiB,q2,n1,t1] x 5MiB",
    "r0.store0.file > r0.numa0.reg by meta@numa0[list,own,d2,f8,t1] x 1B",
];

/// A server. It ends when its input does.
struct MotoServer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Its requests and errors, shown if the test fails.
    log: File,
    endpoint: String,
}

fn with_keys(command: &mut Command) -> &mut Command {
    for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_REGION"] {
        command.env_remove(name);
    }
    command.env("AWS_ACCESS_KEY_ID", "AKIDOFTESTS").env("AWS_SECRET_ACCESS_KEY", SECRET)
}

impl MotoServer {
    fn start() -> Option<Self> {
        let Some(packages) = std::env::var_os(PACKAGES) else {
            missing("s3", &format!("{PACKAGES} names no folder with moto"));
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/object_store/serve.py");
        let log = tempfile::tempfile().unwrap();
        let mut python = Command::new("python3");
        let mut child = with_keys(&mut python)
            .arg(script)
            .env("PYTHONPATH", packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().unwrap())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut server = Self { child, input, output, log, endpoint: String::new() };
        while !server.endpoint.starts_with("http://") {
            server.endpoint = server.line();
        }
        Some(server)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the server has ended");
        line.trim().to_owned()
    }

    /// Objects and unfinished uploads that the bucket holds.
    fn contents(&mut self) -> String {
        writeln!(self.input.as_mut().unwrap()).unwrap();
        self.line()
    }

    fn run(&self, folder: &Path, store: &str, cases: &[&str]) -> Output {
        let mut command = command(&["--case-budget", "20"], folder);
        with_keys(&mut command).args(["--store", store, "--s3-endpoint", &self.endpoint]);
        cases.iter().for_each(|case| {
            command.args(["--case", case]);
        });
        command.output().unwrap()
    }
}

impl Drop for MotoServer {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
        let mut log = String::new();
        if std::thread::panicking()
            && self.log.rewind().is_ok()
            && self.log.read_to_string(&mut log).is_ok()
        {
            let lines: Vec<&str> =
                log.lines().filter(|line| !line.contains("HTTP/1.1\" 2")).collect();
            eprintln!("the server:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }
}

#[test]
fn a_bucket_is_measured_verified_and_left_as_it_was() {
    let Some(mut server) = MotoServer::start() else { return };
    let runs = TempDir::new().unwrap();
    let folder = runs.path().join("a");
    let output = server.run(&folder, "s3://data/tests", &CASES);
    let shown = unwrapped(&output.stderr);
    let journal = journal(&folder);
    assert_eq!(output.status.code(), Some(0), "{shown} {:?}", journal.outcomes);
    for case in CASES {
        let found = journal.outcomes.iter().find_map(|outcome| match outcome {
            CaseOutcome::Measured(m) if m.case.to_string() == case => Some(m),
            _ => None,
        });
        let measured = found.unwrap_or_else(|| panic!("{case}: {:?}", journal.outcomes));
        assert_eq!(measured.verdict, VerifyResult::Verified, "{case}");
        let series = measured.series.first().unwrap();
        assert!(series.engine.starts_with("S3"), "{}", series.engine);
        assert!(!series.io.is_empty(), "{case}");
    }
    let facts = &journal.begin.stores[0];
    assert_eq!((facts.path.as_str(), facts.file_system.as_str()), ("s3://data/tests", "s3"));
    assert!(facts.options.contains(&server.endpoint), "{facts:?}");
    let text = std::fs::read_to_string(folder.join("run.jsonl")).unwrap();
    assert!(!text.contains(SECRET) && !shown.contains(SECRET), "the secret is kept nowhere");
    assert_eq!(server.contents(), "0 0", "no object and no upload stays");
}

#[test]
fn a_bucket_that_cannot_be_used_is_named_with_the_reason() {
    let Some(server) = MotoServer::start() else { return };
    let runs = TempDir::new().unwrap();
    let skipped = |name: &str, store: &str, endpoint: &str, keys: bool| -> String {
        let folder = runs.path().join(name);
        let mut command = command(&["--case-budget", "20"], &folder);
        with_keys(&mut command).args(["--store", store, "--s3-endpoint", endpoint]);
        if !keys {
            command.env_remove("AWS_SECRET_ACCESS_KEY");
        }
        let output = command.args(["--case", CASES[0]]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(!folder.exists());
        unwrapped(&output.stderr)
    };
    let why = skipped("a", "s3://nowhere/x", &server.endpoint, true);
    assert!(why.contains("HTTP 404"), "{why}");
    let why = skipped("b", "s3://data/x", "http://127.0.0.1:9", true);
    assert!(why.contains("connect: Connection refused"), "{why}");
    let why = skipped("c", "s3://data/x", "https://127.0.0.1:9", true);
    // A host may have no certificates of authorities.
    assert!(why.contains("Connection refused") || why.contains("SSL_CERT_FILE"), "{why}");
    let why = skipped("d", "s3://data/x", &server.endpoint, false);
    assert!(why.contains("AWS_SECRET_ACCESS_KEY"), "{why}");
    let why = skipped("e", "s3://data/../x", &server.endpoint, true);
    assert!(why.contains("cannot be a part of the prefix"), "{why}");
}
