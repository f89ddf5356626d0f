//! How a process that comes to a job and the coordinator that it comes to find out who the other is,
//! before either obeys or believes anything:
//!
//! 1. On one host each asks the kernel whose the other end is (`SO_PEERCRED`). Over a network both
//!    must have a [`Secret`].
//! 2. The visitor sends a [`RankHello`] with a nonce.
//! 3. The coordinator sends a [`Challenge`]: another nonce, and its proof over the hello and both
//!    nonces. A visitor that does not accept it leaves.
//! 4. The visitor sends its proof over the same.
//!
//! Lines are short, and each side has [`HANDSHAKE_TIMEOUT`] for all of it.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use pathline_host::peer_credentials;
use serde::{Deserialize, Serialize};

use super::secret::{Digest, Role, Secret, VARIABLE};
use crate::link::LinkSocket;

/// How long a stranger may take. A rank takes a millisecond; on a busy node it comes again.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest line before the proof. A hello has 180 bytes and the name of a host, which has 64 at most.
const MAX_LINE: usize = 512;

/// The claimed identity of a visitor, which counts once the visitor has proven it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RankHello {
    /// Its number, from its launcher.
    pub(super) rank: u32,
    /// The number of ranks, from its launcher.
    pub(super) size: u32,
    /// Its program.
    pub(super) version: String,
    /// Its host and process number there.
    pub(super) host: String,
    pub(super) pid: u32,
    /// For the coordinator's proof.
    nonce: Digest,
}

/// The coordinator's answer to a hello.
#[derive(Debug, Serialize, Deserialize)]
struct Challenge {
    /// For the visitor's proof.
    nonce: Digest,
    /// That it knows the secret, if there is one.
    proof: Option<Digest>,
}

/// The visitor's answer to a challenge.
#[derive(Debug, Serialize, Deserialize)]
struct Response {
    proof: Option<Digest>,
}

/// The knowledge with which a process proves itself.
#[derive(Clone, Default)]
pub(super) struct Credentials {
    /// None where the kernel's word is enough.
    pub(super) secret: Option<Secret>,
}

impl Credentials {
    fn prove(&self, role: Role, hello: &[u8], nonce: &Digest) -> Option<Digest> {
        Some(self.secret.as_ref()?.prove(role, &[hello, nonce.bytes()]))
    }

    /// Whether the other side knows what this one does.
    fn accept(
        &self,
        proof: Option<&Digest>,
        role: Role,
        hello: &[u8],
        nonce: &Digest,
    ) -> std::result::Result<(), &'static str> {
        match (&self.secret, proof) {
            (None, _) => Ok(()),
            (Some(_), None) => Err("it brought no proof of the job's secret"),
            (Some(secret), Some(proof)) => secret
                .accepts(proof, role, &[hello, nonce.bytes()])
                .then_some(())
                .ok_or("its proof of the job's secret is wrong"),
        }
    }
}

/// Why the process at the other end of a socket of this host is not this user's, with what is known of
/// it; none if it is. A secret is then still asked for where one is set.
pub(super) fn other_user(socket: &LinkSocket) -> io::Result<Option<String>> {
    let LinkSocket::Unix(stream) = socket else { return Ok(None) };
    let theirs = peer_credentials(stream.as_fd())?;
    let own = rustix::process::geteuid().as_raw();
    Ok((theirs.uid != own)
        .then(|| format!("process {} of user {}, and this is user {own}", theirs.pid, theirs.uid)))
}

/// Whether the kernel shows every user that this namespace does not know as the one that this process
/// has: then equal users prove nothing. Source: user_namespaces(7), overflow user ID.
pub(super) fn users_look_alike() -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let own = rustix::process::geteuid().as_raw();
    look_alike(own, &read("/proc/sys/kernel/overflowuid"), &read("/proc/self/uid_map"))
}

/// The same from the kernel's files: the user that stands for unknown ones, and which users of the
/// outside this namespace knows (first inside, first outside, how many).
fn look_alike(own: u32, overflow: &str, map: &str) -> bool {
    let knows_all = map.split_whitespace().eq(["0", "0", "4294967295"]);
    overflow.trim().parse() == Ok(own) && !knows_all
}

/// The visitor's side, over a socket that nothing has passed on: proves itself to a coordinator that
/// has proven itself.
///
/// # Errors
/// The listening process is not the coordinator of this job, or does not answer.
pub(super) fn introduce(
    socket: &mut LinkSocket,
    mut hello: RankHello,
    credentials: &Credentials,
) -> Result<()> {
    if let Some(other) = other_user(socket)? {
        return Err(anyhow!("the process that listens there is {other}"));
    }
    hello.nonce = Digest::random()?;
    let begun = Instant::now();
    let line = serde_json::to_vec(&hello)?;
    socket.set_timeouts(Some(HANDSHAKE_TIMEOUT), Some(HANDSHAKE_TIMEOUT))?;
    send(socket, &line)?;
    let mut read = Vec::new();
    let answer = loop {
        if begun.elapsed() > HANDSHAKE_TIMEOUT {
            return Err(no_answer());
        }
        let mut some = [0; MAX_LINE];
        let count = match socket.read(&mut some) {
            Ok(count) => count,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) if is_pending(&e) => return Err(no_answer()),
            Err(e) => return Err(e.into()),
        };
        if count == 0 {
            return Err(anyhow!("the process that listens there refused this one"));
        }
        read.extend_from_slice(&some[..count]);
        if let Some(line) =
            whole_line(&read).map_err(|why| anyhow!("the process that listens there: {why}"))?
        {
            break line.to_vec();
        }
    };
    let challenge: Challenge = serde_json::from_slice(&answer)
        .ok()
        .context("the process that listens there is no pathline of this version")?;
    let Challenge { nonce, proof } = challenge;
    credentials.accept(proof.as_ref(), Role::Coordinator, &line, &nonce).map_err(|_| {
        anyhow!(
            "the process that listens there does not prove the secret of this job: another process \
             holds the port, or {VARIABLE} is not the same in all processes"
        )
    })?;
    let proof = credentials.prove(Role::Rank, &line, &nonce);
    send(socket, &serde_json::to_vec(&Response { proof })?)
}

fn no_answer() -> anyhow::Error {
    anyhow!("the process that listens there does not answer for {} s", HANDSHAKE_TIMEOUT.as_secs())
}

fn send(socket: &mut LinkSocket, line: &[u8]) -> Result<()> {
    Ok(socket.write_all(&[line, b"\n"].concat())?)
}

fn is_pending(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The line that some bytes are, without its end; none if it goes on.
fn whole_line(read: &[u8]) -> std::result::Result<Option<&[u8]>, String> {
    match read.iter().position(|&byte| byte == b'\n') {
        Some(at) if at + 1 == read.len() && at < MAX_LINE => Ok(Some(&read[..at])),
        None if read.len() < MAX_LINE => Ok(None),
        Some(at) if at < MAX_LINE => Err("it sent more than it was asked for".to_owned()),
        _ => Err(format!("its line is longer than {MAX_LINE} bytes")),
    }
}

/// A process that has come and is not known yet, on a socket that does not block.
pub(super) struct Visitor {
    pub(super) socket: LinkSocket,
    /// Its address, or its process and user.
    pub(super) name: String,
    pub(super) since: Instant,
    read: Vec<u8>,
    /// Its hello as it came, with what it is and the nonce that it must answer to.
    asked: Option<(Vec<u8>, RankHello, Digest)>,
}

/// How far a visitor is.
pub(super) enum HandshakeStep {
    /// Its line is not complete yet.
    Waiting,
    /// It has proven that it is of this job.
    Proven(RankHello),
    /// It is a stranger, and why.
    Stranger(String),
}

impl Visitor {
    pub(super) fn new(socket: LinkSocket, name: String) -> Self {
        Self { socket, name, since: Instant::now(), read: Vec::new(), asked: None }
    }

    /// Reads what there is, and answers it.
    pub(super) fn advance(&mut self, credentials: &Credentials) -> HandshakeStep {
        let mut some = [0; MAX_LINE];
        let left = |asked: bool| {
            let when = if asked { "after" } else { "before" };
            HandshakeStep::Stranger(format!("it left {when} its hello"))
        };
        match self.socket.read(&mut some) {
            Ok(0) => return left(self.asked.is_some()),
            // It closed its socket with the challenge unread.
            Err(e) if e.kind() == ErrorKind::ConnectionReset && self.asked.is_some() => {
                return left(true);
            }
            Ok(count) => self.read.extend_from_slice(&some[..count]),
            Err(e) if is_pending(&e) || e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return HandshakeStep::Stranger(format!("it cannot be read ({e})")),
        }
        let line = match whole_line(&self.read) {
            Ok(Some(line)) => line.to_vec(),
            Ok(None) if self.since.elapsed() > HANDSHAKE_TIMEOUT => {
                let secs = HANDSHAKE_TIMEOUT.as_secs();
                return HandshakeStep::Stranger(format!(
                    "it did not identify itself within {secs} s"
                ));
            }
            Ok(None) => return HandshakeStep::Waiting,
            Err(why) => return HandshakeStep::Stranger(why),
        };
        self.read.clear();
        match self.asked.take() {
            None => self.challenge(line, credentials),
            Some((hello_line, hello, nonce)) => {
                let Ok(response) = serde_json::from_slice::<Response>(&line) else {
                    return HandshakeStep::Stranger("its second line is no proof".to_owned());
                };
                let proof = response.proof.as_ref();
                match credentials.accept(proof, Role::Rank, &hello_line, &nonce) {
                    Ok(()) => HandshakeStep::Proven(hello),
                    Err(why) => HandshakeStep::Stranger(why.to_owned()),
                }
            }
        }
    }

    fn challenge(&mut self, line: Vec<u8>, credentials: &Credentials) -> HandshakeStep {
        let Ok(hello) = serde_json::from_slice::<RankHello>(&line) else {
            let why = "its first line is no hello of this version of pathline";
            return HandshakeStep::Stranger(why.to_owned());
        };
        let Ok(nonce) = Digest::random() else {
            return HandshakeStep::Stranger("no nonce could be drawn (/dev/urandom)".to_owned());
        };
        let proof = credentials.prove(Role::Coordinator, &line, &nonce);
        let sent = serde_json::to_vec(&Challenge { nonce, proof })
            .map_err(anyhow::Error::from)
            .and_then(|challenge| send(&mut self.socket, &challenge));
        if sent.is_err() {
            return HandshakeStep::Stranger("it left after its hello".to_owned());
        }
        self.asked = Some((line, hello, nonce));
        HandshakeStep::Waiting
    }
}

impl RankHello {
    /// The hello of a process; its nonce is drawn for each visit.
    pub(super) fn new(rank: u32, size: u32, version: String, host: String) -> Self {
        // Names of hosts have 64 characters at most; a longer one would only be cut.
        let host = host.chars().take(64).collect();
        let nonce = Digest::ZERO;
        Self { rank, size, version, host, pid: std::process::id(), nonce }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn credentials(text: &str) -> Credentials {
        Credentials { secret: Some(Secret::new(text.as_bytes()).unwrap()) }
    }

    fn hello() -> RankHello {
        RankHello::new(1, 2, "1.0".into(), "node".into())
    }

    /// The verdicts of a coordinator about a rank, and of the rank about it.
    fn meet(coordinator: &Credentials, rank: &Credentials) -> (HandshakeStep, Result<()>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let rank = rank.clone();
        let visit =
            std::thread::spawn(move || introduce(&mut LinkSocket::Unix(theirs), hello(), &rank));
        ours.set_nonblocking(true).unwrap();
        let mut visitor = Visitor::new(LinkSocket::Unix(ours), "process 1".into());
        let progress = loop {
            match visitor.advance(coordinator) {
                HandshakeStep::Waiting => std::thread::sleep(Duration::from_millis(1)),
                other => break other,
            }
        };
        drop(visitor);
        (progress, visit.join().unwrap())
    }

    #[test]
    fn both_sides_must_know_the_secret() {
        let (right, wrong) = (credentials("0123456789abcdef"), credentials("0123456789abcdeX"));
        let none = Credentials::default();
        for (coordinator, rank) in [(&right, &right), (&none, &none)] {
            let (progress, visit) = meet(coordinator, rank);
            let HandshakeStep::Proven(hello) = progress else { panic!("not proven") };
            assert_eq!((hello.rank, hello.size, hello.host.as_str()), (1, 2, "node"));
            visit.unwrap();
        }
        // The rank finds out first and gives no proof, so that the other side learns nothing.
        for (coordinator, rank) in [(&right, &wrong), (&none, &right)] {
            let (progress, visit) = meet(coordinator, rank);
            assert!(matches!(progress, HandshakeStep::Stranger(_)));
            let error = visit.unwrap_err().to_string();
            assert!(error.contains("does not prove"), "{error}");
            assert!(!error.contains("0123456789"), "{error}");
        }
        let (progress, _) = meet(&right, &none);
        let HandshakeStep::Stranger(why) = progress else { panic!("let in without a proof") };
        assert!(why.contains("no proof"), "{why}");
    }

    #[test]
    fn in_a_namespace_that_knows_nobody_users_prove_nothing() {
        let (overflow, all) = ("65534\n", "         0          0 4294967295\n");
        // `nobody` of a host is one user; without a map everybody is.
        assert!(!look_alike(65_534, overflow, all));
        assert!(look_alike(65_534, overflow, ""));
        assert!(look_alike(65_534, overflow, "0 1000 1\n"));
        assert!(!look_alike(1000, overflow, "0 1000 1\n"));
    }

    #[test]
    fn lines_before_the_proof_are_short() {
        assert_eq!(whole_line(b"abc\n"), Ok(Some(&b"abc"[..])));
        assert_eq!(whole_line(b"abc"), Ok(None));
        assert!(whole_line(b"abc\nd").is_err());
        assert!(whole_line(&[b'a'; MAX_LINE]).is_err());
        let mut longest = RankHello::new(u32::MAX, u32::MAX, "x".repeat(40), "h".repeat(1000));
        longest.pid = u32::MAX;
        let text = serde_json::to_vec(&longest).unwrap();
        assert!(text.len() < MAX_LINE, "{}", text.len());
    }
}
