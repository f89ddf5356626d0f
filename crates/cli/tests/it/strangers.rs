//! Processes that connect to a run uninvited, and processes that listen where a rank looks for its
//! run.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{again, command, is_whole, journal, library, role, unwrapped, wait_until};
use pathline_schema::Journal;
use pathline_stub::need::missing;
use tempfile::TempDir;

const CASE: &str = "r0.numa0.huge > r1.numa0.huge by shm@numa0[ping,memcpy+memcpy] x 8B";
const SECRET: &str = "a secret that only this test knows";
/// A user that is not this one, and no user of the system's.
const ANOTHER_USER: u32 = 54_321;

/// The meeting place of the processes of a launched job.
#[derive(Clone)]
enum Door {
    Node(String),
    Net(u16),
}

/// A connection.
trait Line: Read + Write + Send {
    fn timeout(&self, after: Duration);
}
impl Line for UnixStream {
    fn timeout(&self, after: Duration) {
        self.set_read_timeout(Some(after)).unwrap();
        self.set_write_timeout(Some(after)).unwrap();
    }
}
impl Line for TcpStream {
    fn timeout(&self, after: Duration) {
        self.set_read_timeout(Some(after)).unwrap();
        self.set_write_timeout(Some(after)).unwrap();
    }
}

impl Door {
    /// Of a job that no other test has.
    fn node(name: &str) -> Self {
        Self::Node(format!("strangers-{}-{name}", std::process::id()))
    }
    /// At a port that is free now.
    fn net() -> Self {
        Self::Net(TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port())
    }
    /// The socket's name, without a secret.
    fn name(job: &str) -> String {
        format!("pathline-{}-{job}", rustix::process::getuid().as_raw())
    }

    fn connect(&self) -> Option<Box<dyn Line>> {
        match self {
            Self::Node(job) => {
                let address = SocketAddr::from_abstract_name(Self::name(job)).unwrap();
                Some(Box::new(UnixStream::connect_addr(&address).ok()?))
            }
            Self::Net(port) => Some(Box::new(TcpStream::connect(("127.0.0.1", *port)).ok()?)),
        }
    }

    /// A process of the job.
    fn rank(&self, rank: u32, out: &Path) -> Command {
        // Two processes that hand bytes to each other need both cores at once, which other tests may
        // take for long.
        self.rank_with(rank, out, "120")
    }

    /// The same with a deadline in seconds for each step.
    fn rank_with(&self, rank: u32, out: &Path, deadline: &str) -> Command {
        let args = ["--case", CASE, "--case-budget", "20", "--case-deadline", deadline];
        let mut command = command(&args, out);
        command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", "2");
        command.env("PATHLINE_MPI", "none").env("PATHLINE_UCX", "/none");
        match self {
            Self::Node(job) => {
                command.env("PALS_APID", job).env_remove("PATHLINE_SECRET");
            }
            Self::Net(port) => {
                let at = format!("127.0.0.1:{port}");
                command.env("PATHLINE_RENDEZVOUS", at).env("PATHLINE_SECRET", SECRET);
            }
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The first process of the job, once it waits for the others.
    fn first(&self, out: &Path) -> Child {
        let child = self.rank(0, out).spawn().unwrap();
        wait_until("an open door", || match self {
            Self::Node(job) => {
                let sockets = fs::read_to_string("/proc/net/unix").unwrap();
                sockets.lines().any(|line| line.ends_with(&format!("@{}", Self::name(job))))
            }
            // A connection is a visitor, too: looked for without one. Source: proc(5), st 0A is LISTEN.
            Self::Net(port) => {
                let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
                sockets.lines().any(|line| line.contains(&format!(":{port:04X} 00000000:0000 0A")))
            }
        });
        child
    }

    /// The other process comes, and the run ends as if nobody else had come.
    fn finish(&self, first: Child, out: &Path) -> Journal {
        let other = self.rank(1, out).spawn().unwrap();
        let (first, other) = (first.wait_with_output().unwrap(), other.wait_with_output().unwrap());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let lines = fs::read_to_string(out.join("run.jsonl")).unwrap_or_default();
        assert_eq!(first.status.code(), Some(0), "{} {lines}", text(&first.stderr));
        assert_eq!(other.status.code(), Some(0), "{}", text(&other.stderr));
        let journal = journal(out);
        is_whole(&journal, 1);
        for output in [&first.stdout, &first.stderr, &other.stdout, &other.stderr] {
            assert!(!text(output).contains(SECRET));
        }
        assert!(!lines.contains(SECRET));
        journal
    }
}

/// A hello as this program's.
fn hello(rank: u64, version: &str) -> String {
    let nonce = "0".repeat(64);
    format!(
        r#"{{"rank":{rank},"size":2,"version":"{version}","host":"h","pid":1,"nonce":"{nonce}"}}"#
    )
}

/// The version as ranks of this program say it.
fn version() -> String {
    format!("{} ({})", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)
}

/// The actions of a stranger after it has opened a connection.
enum Act {
    /// Sends that, and stays.
    Sends(Vec<u8>),
    /// Sends that, and leaves.
    Leaves(Vec<u8>),
    /// Sends that endlessly, as long as it is read.
    Endless(u8),
    /// Sends that, a byte every 100 ms.
    Trickles(Vec<u8>),
    /// Sends the hello, reads the challenge, and sends that.
    Answers(String, String),
}

/// The actions of strangers, and the text of the note about each: over a network, and on the same
/// host as the same user, whom the kernel identifies.
fn acts() -> Vec<(&'static str, Act, &'static str, &'static str)> {
    let sends = |text: &str| Act::Sends(text.as_bytes().to_vec());
    let no_hello = "its first line is no hello";
    let long = "its line is longer than 512 bytes";
    let late = "it did not identify itself within 5 s";
    let wrong = "its proof of the job's secret is wrong";
    let proof = format!(r#"{{"proof":"{}"}}"#, "ab".repeat(32));
    let without = r#"{"proof":null}"#.to_owned();
    let old = r#"{"hello":{"rank":1,"size":2,"version":"0.1.0 (x86_64)","host":"h","pid":1}}"#;
    let answers = |rank: u64, version: &str, proof: &str| {
        Act::Answers(hello(rank, version), proof.to_owned())
    };
    let version = version();
    vec![
        ("HTTP", sends("GET / HTTP/1.1\r\n\r\n"), "it sent more than", "it sent more than"),
        ("a byte", sends("x"), late, late),
        ("an empty line", sends("\n"), no_hello, no_hello),
        ("NUL", sends("\0\n"), no_hello, no_hello),
        ("no UTF-8", Act::Sends(b"\xff\xfe\n".to_vec()), no_hello, no_hello),
        ("deep JSON", Act::Sends([&[b'['; 400][..], b"\n"].concat()), no_hello, no_hello),
        ("deeper JSON", Act::Sends([&[b'['; 1 << 20][..], b"\n"].concat()), long, long),
        ("an endless line", Act::Endless(b'a'), long, long),
        ("endless lines", Act::Endless(b'\n'), "it sent more than", "it sent more than"),
        ("an old hello", Act::Sends([old.as_bytes(), b"\n"].concat()), no_hello, no_hello),
        ("rank 2^32", sends(&format!("{}\n", hello(1 << 32, &version))), no_hello, no_hello),
        ("a hello", sends(&format!("{}\n", hello(1, &version))), late, late),
        ("comes and leaves", Act::Leaves(Vec::new()), "it left before", "it left before"),
        (
            "a hello, and leaves",
            Act::Leaves(format!("{}\n", hello(1, &version)).into_bytes()),
            "it left after its hello",
            "it left after its hello",
        ),
        ("silence", sends(""), late, late),
        ("one byte after the other", Act::Trickles(vec![b'x'; 100]), late, late),
        (
            "another version",
            answers(1, "0.0.1 (x86_64)", &proof),
            wrong,
            "it is pathline 0.0.1 (x86_64), and the coordinator is",
        ),
        (
            "rank 2^32-1",
            answers(u64::from(u32::MAX), &version, &proof),
            wrong,
            "it is rank 4294967295 of 2, and this run has 2 ranks",
        ),
        (
            "rank 0 once more",
            answers(0, &version, &without),
            "it brought no proof of the job's secret",
            "it is rank 0, as process",
        ),
    ]
}

/// Does that to a run; true if the run ended the connection.
fn act(line: &mut dyn Line, act: &Act) -> bool {
    line.timeout(Duration::from_secs(30));
    // A failed write ends the connection, as does a read of nothing.
    let mut is_over = match act {
        Act::Sends(text) => line.write_all(text).is_err(),
        Act::Leaves(text) => return line.write_all(text).is_ok(),
        Act::Endless(byte) => {
            let many = vec![*byte; 1 << 16];
            // 70 MB, of which a run must not keep much.
            (0..1100).any(|_| line.write_all(&many).is_err())
        }
        Act::Trickles(text) => text.iter().any(|byte| {
            std::thread::sleep(Duration::from_millis(100));
            line.write_all(&[*byte]).is_err()
        }),
        Act::Answers(hello, answer) => {
            let sent = line.write_all(format!("{hello}\n").as_bytes());
            let mut challenge = [0; 1024];
            if sent.is_err() || line.read(&mut challenge).is_ok_and(|count| count == 0) {
                return true;
            }
            line.write_all(format!("{answer}\n").as_bytes()).is_err()
        }
    };
    let mut rest = [0; 4096];
    while !is_over {
        match line.read(&mut rest) {
            Ok(0) => is_over = true,
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(_) => is_over = true,
        }
    }
    is_over
}

/// All strangers come while the run waits for its second rank, each finds its connection closed, and
/// the run neither ends nor takes one for a rank.
fn all_strangers(door: &Door, reasons: &[(&'static str, Act, &'static str)]) {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let first = door.first(&out);
    // Rank 0 itself comes within this time, so that who calls himself rank 0 is the second.
    std::thread::sleep(Duration::from_secs(2));
    std::thread::scope(|scope| {
        for (name, what, _) in reasons {
            scope.spawn(move || {
                let mut line = door.connect().unwrap_or_else(|| panic!("{name}: no connection"));
                assert!(act(line.as_mut(), what), "{name}: the connection stays open");
            });
        }
    });
    let journal = door.finish(first, &out);
    let notes: Vec<&str> =
        journal.notes.iter().filter(|n| n.code == "stranger").map(|n| n.text.as_str()).collect();
    for (name, _, reason) in reasons {
        assert!(notes.iter().any(|note| note.contains(reason)), "{name}: {notes:#?}");
    }
    let me = match door {
        Door::Node(_) => format!("of user {}", rustix::process::getuid().as_raw()),
        Door::Net(_) => "127.0.0.1:".to_owned(),
    };
    assert!(notes.iter().any(|note| note.contains(&me)), "{notes:#?}");
    let hosts = journal.begin.ranks.iter().all(|member| member.host != "h");
    assert!(hosts, "a stranger became a rank: {:?}", journal.begin.ranks);
}

#[test]
fn strangers_on_the_host_cost_their_own_connections() {
    let all = acts().into_iter().map(|(name, act, _, reason)| (name, act, reason));
    all_strangers(&Door::node("table"), &all.collect::<Vec<_>>());
}

#[test]
fn strangers_on_the_network_cost_their_own_connections() {
    let mut all: Vec<_> =
        acts().into_iter().map(|(name, act, reason, _)| (name, act, reason)).collect();
    // An impostor of the missing rank: correct in all but the proof.
    let impostor = Act::Answers(hello(1, &version()), r#"{"proof":null}"#.to_owned());
    all.push(("an impostor", impostor, "it brought no proof of the job's secret"));
    all_strangers(&Door::net(), &all);
}

#[test]
fn silence_holds_up_nobody() {
    for door in [Door::node("silence"), Door::net()] {
        let dir = TempDir::new().unwrap();
        let out = dir.path().join("run");
        let first = door.first(&out);
        let silent: Vec<_> = (0..5).map(|_| door.connect().unwrap()).collect();
        let journal = door.finish(first, &out);
        drop(silent);
        // The door was closed before their time was over.
        let notes: Vec<_> = journal.notes.iter().filter(|n| n.code == "stranger").collect();
        assert!(notes.len() <= 1, "{notes:?}");
    }
}

#[test]
fn more_strangers_than_are_listened_to_hold_up_nobody() {
    let door = Door::node("crowd");
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let first = door.first(&out);
    let crowd: Vec<_> = (0..200).filter_map(|_| door.connect()).collect();
    assert!(crowd.len() > 64, "{}", crowd.len());
    door.finish(first, &out);
}

/// The name of the test in which another user acts.
const AS_ANOTHER: &str = "strangers::another_user_is_neither_let_in_nor_obeyed";

/// Starts what another user does; none where this process may not do that.
fn as_another_user(role: &str) -> Option<Child> {
    let mut command = again(AS_ANOTHER, role);
    command.uid(ANOTHER_USER).gid(ANOTHER_USER).current_dir("/");
    match command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            missing("other-user", &format!("no process can be another user's: {error}"));
            None
        }
    }
}

/// The process of the other user: connects as a rank, or listens where ranks look for their run.
fn be_another_user(role: &str) {
    let (what, job) = role.split_once(' ').unwrap();
    let address = SocketAddr::from_abstract_name(job).unwrap();
    if what == "visit" {
        let mut line = UnixStream::connect_addr(&address).unwrap();
        let answer = Act::Answers(hello(1, &version()), r#"{"proof":null}"#.to_owned());
        assert!(act(&mut line, &answer), "it is let in");
        return;
    }
    let listener = UnixListener::bind_addr(&address).unwrap();
    if what == "hold" {
        loop {
            drop(listener.accept());
        }
    }
    let (mut line, _) = listener.accept().unwrap();
    let mut read = [0; 4096];
    // The visitor sends nothing to somebody else's process.
    let count = line.read(&mut read).unwrap_or(0);
    assert_eq!(count, 0, "{}", String::from_utf8_lossy(&read[..count]));
}

#[test]
fn another_user_is_neither_let_in_nor_obeyed() {
    if let Some(role) = role() {
        return be_another_user(&role);
    }
    let dir = TempDir::new().unwrap();
    let door = Door::node("another");
    let Door::Node(job) = &door else { unreachable!() };
    let name = Door::name(job);
    // As a listener: the rank sends nothing, and the run reports the process that holds its name.
    let Some(mut squatter) = as_another_user(&format!("listen {name}")) else { return };
    wait_until("the squatter's socket", || {
        assert!(squatter.try_wait().unwrap().is_none(), "the squatter ended");
        fs::read_to_string("/proc/net/unix").unwrap().contains(&format!("@{name}"))
    });
    let mut victim = door.rank(1, &dir.path().join("x")).spawn().unwrap();
    assert!(squatter.wait().unwrap().success(), "it was spoken to");
    victim.kill().unwrap();
    victim.wait().unwrap();
    // As a visitor.
    let out = dir.path().join("run");
    let first = door.first(&out);
    let mut visitor = as_another_user(&format!("visit {name}")).unwrap();
    assert!(visitor.wait().unwrap().success());
    let journal = door.finish(first, &out);
    let note = journal.notes.iter().find(|n| n.code == "stranger").unwrap();
    assert!(note.text.contains(&format!("of user {ANOTHER_USER}")), "{}", note.text);
}

#[test]
fn a_socket_of_another_user_is_named_with_a_remedy() {
    if let Some(role) = role() {
        return be_another_user(&role);
    }
    let dir = TempDir::new().unwrap();
    let door = Door::node("held");
    let Door::Node(job) = &door else { unreachable!() };
    let name = Door::name(job);
    let Some(mut squatter) = as_another_user(&format!("hold {name}")) else { return };
    wait_until("the squatter's socket", || {
        fs::read_to_string("/proc/net/unix").unwrap().contains(&format!("@{name}"))
    });
    let output = door.rank(0, &dir.path().join("run")).output().unwrap();
    let _ = squatter.kill();
    squatter.wait().unwrap();
    let error = unwrapped(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(&format!("of user {ANOTHER_USER} has it")), "{error}");
    assert!(error.contains("PATHLINE_SECRET"), "{error}");
}

/// A coordinator that is let in on the kernel's word, and has a rank open what it names.
#[test]
fn no_library_is_taken_from_a_coordinator() {
    let dir = TempDir::new().unwrap();
    let mark = dir.path().join("opened");
    let source = format!(
        "#include <stdio.h>\n__attribute__((constructor)) static void begin(void) \
         {{ fclose(fopen(\"{}\", \"w\")); }}\n",
        mark.display()
    );
    let evil = library(dir.path(), "evil.so", &source);
    let door = Door::node("library");
    let Door::Node(job) = &door else { unreachable!() };
    let address = SocketAddr::from_abstract_name(Door::name(job)).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let victim = door.rank(1, &dir.path().join("run")).spawn().unwrap();
    let (mut line, _) = listener.accept().unwrap();
    let mut read = vec![0; 4096];
    let mut next = |line: &mut UnixStream| {
        let count = line.read(&mut read).unwrap();
        String::from_utf8_lossy(&read[..count]).into_owned()
    };
    assert!(next(&mut line).contains(r#""rank":1"#));
    let challenge = format!("{{\"nonce\":\"{}\",\"proof\":null}}\n", "0".repeat(64));
    line.write_all(challenge.as_bytes()).unwrap();
    assert!(next(&mut line).contains("proof"));
    let expected = format!(r#"{{"named":{{"cuda":"{}"}}}}"#, evil.display());
    let open = format!(
        "{{\"open\":{{\"rank\":1,\"size\":2,\"local\":null,\"expected\":{expected},\
         \"libraries\":{expected},\"left_out\":[]}}}}\n"
    );
    line.write_all(open.as_bytes()).unwrap();
    let answer = next(&mut line);
    assert!(answer.contains("failed") && answer.contains("no library named"), "{answer}");
    drop((line, listener));
    let output = victim.wait_with_output().unwrap();
    let error = unwrapped(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("it was started with no library named, and rank 0 with --cuda"),
        "{error}"
    );
    assert!(!mark.exists(), "the library was opened");
}

#[test]
fn a_listener_without_the_secret_learns_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let door = Door::Net(listener.local_addr().unwrap().port());
    let dir = TempDir::new().unwrap();
    let mut victim = door.rank(1, &dir.path().join("run")).spawn().unwrap();
    // The rank connects again, since another process may listen there next.
    for _ in 0..2 {
        let (mut line, _) = listener.accept().unwrap();
        line.timeout(Duration::from_secs(30));
        let mut read = vec![0; 4096];
        let count = line.read(&mut read).unwrap();
        let received = String::from_utf8_lossy(&read[..count]).into_owned();
        assert!(received.contains(r#""rank":1"#) && !received.contains("proof"), "{received}");
        let proof = "ab".repeat(32);
        let challenge = format!("{{\"nonce\":\"{proof}\",\"proof\":\"{proof}\"}}\n");
        line.write_all(challenge.as_bytes()).unwrap();
        assert_eq!(line.read(&mut read).unwrap(), 0, "it answers a wrong proof");
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
}

#[test]
fn a_port_is_opened_at_the_address_that_was_named() {
    let door = Door::net();
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let first = door.first(&out);
    let Door::Net(port) = door else { unreachable!() };
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    // 127.0.0.1, as the kernel writes addresses.
    assert!(sockets.contains(&format!("0100007F:{port:04X} 00000000:0000 0A")), "{sockets}");
    assert!(!sockets.contains(&format!("00000000:{port:04X} 00000000:0000 0A")), "{sockets}");
    Door::Net(port).finish(first, &out);
}

#[test]
fn without_a_variable_the_secret_is_a_file_of_the_home_folder() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let door = Door::net();
    let rank = |nth| {
        let mut command = door.rank(nth, &out);
        command.env_remove("PATHLINE_SECRET").env("HOME", dir.path());
        command.spawn().unwrap()
    };
    let first = rank(0);
    let folder = dir.path().join(".local/state/pathline");
    let Door::Net(port) = door else { unreachable!() };
    let file = folder.join(format!("ranks-127.0.0.1-{port}"));
    let mut secret = String::new();
    wait_until("the secret", || {
        secret = fs::read_to_string(&file).unwrap_or_default();
        secret.len() == 64
    });
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    // Nobody sees it in a list of processes.
    for pid in crate::common::processes() {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(&secret));
    }
    let other = rank(1);
    for child in [first, other] {
        let output = child.wait_with_output().unwrap();
        let error = unwrapped(&output.stderr);
        let lines = fs::read_to_string(out.join("run.jsonl")).unwrap_or_default();
        assert_eq!(output.status.code(), Some(0), "{error} {lines}");
        assert!(!error.contains(&secret));
    }
    is_whole(&journal(&out), 1);
    assert!(!fs::read_to_string(out.join("run.jsonl")).unwrap().contains(&secret));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "it goes when all have come");
}

#[test]
fn a_run_that_misses_ranks_names_the_secret_that_they_read() {
    let dir = TempDir::new().unwrap();
    let door = Door::net();
    let mut command = door.rank_with(0, &dir.path().join("run"), "5");
    let output = command.env_remove("PATHLINE_SECRET").env("HOME", dir.path()).output().unwrap();
    let error = unwrapped(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    let Door::Net(port) = door else { unreachable!() };
    let file = dir.path().join(format!(".local/state/pathline/ranks-127.0.0.1-{port}"));
    for part in ["rank 1 did not come", &file.display().to_string(), "openssl rand -hex 32"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(!file.exists(), "it goes with the run");
}

#[test]
fn without_a_secret_there_is_no_network() {
    let dir = TempDir::new().unwrap();
    let door = Door::net();
    for (variable, home, reason) in
        [(None, "/none", "HOME names no folder"), (Some("too short"), "/root", "9 characters")]
    {
        let mut command = door.rank(0, &dir.path().join("run"));
        command.env_remove("PATHLINE_SECRET").env("HOME", home);
        if let Some(text) = variable {
            command.env("PATHLINE_SECRET", text);
        }
        let begun = Instant::now();
        let output = command.output().unwrap();
        let error = unwrapped(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(reason) && error.contains("openssl rand -hex 32"), "{error}");
        assert!(!error.contains("too short"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    }
}
