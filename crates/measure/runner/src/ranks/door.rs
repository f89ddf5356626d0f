//! The door where the coordinator waits for the ranks of its job. Anyone may connect: each visitor
//! is read without waiting for it, has little time and few bytes, and costs nothing but its own
//! connection when it is a stranger.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr as NetAddress, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use pathline_host::peer_credentials;
use pathline_schema::RunNote;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::handshake::{
    Credentials, HandshakeStep, RankHello, Visitor, other_user, users_look_alike,
};
use super::job::MeetingPlace;
use super::protocol::RankOrder;
use super::secret::{HOW_TO_GIVE, Secret, SecretFile};
use crate::link::{LineLink, LinkSocket};

/// Visitors that are listened to at once. Ranks are done in a millisecond.
const MOST_VISITORS: usize = 64;
/// When they are that many, the one that came first goes after this time.
const CROWDED_OUT: Duration = Duration::from_millis(250);
/// How often the clocks of visitors are looked at.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Kinds of strangers that are named; the others are counted.
const MOST_STRANGERS: usize = 16;

/// A listening socket.
enum RankListener {
    Node(UnixListener),
    /// With the file of the secret that was drawn for this gathering, if one was.
    Net(TcpListener, Option<SecretFile>),
}

/// All ranks of a job, by number.
pub(super) struct Gathered {
    pub(super) ranks: BTreeMap<u32, (LineLink, RankHello)>,
    /// Other visitors.
    pub(super) notes: Vec<RunNote>,
}

/// Waits until all ranks of a job have come and proven themselves. `lost` says why no further one will
/// come.
///
/// # Errors
/// The door cannot be opened, or ranks did not come in time: which, and the strangers that came.
pub(super) fn gather(
    place: &MeetingPlace,
    size: u32,
    version: &str,
    limit: Duration,
    lost: &mut dyn FnMut() -> Option<String>,
) -> Result<Gathered> {
    let (door, credentials) = RankListener::open(place)?;
    let mut gathering = Gathering {
        door,
        credentials,
        size,
        version,
        visitors: Vec::new(),
        seated: BTreeMap::new(),
        strangers: Strangers::default(),
    };
    let begun = Instant::now();
    while gathering.seated.len() < size as usize {
        if begun.elapsed() > limit {
            return Err(gathering.missing(limit));
        }
        if let Some(why) = lost() {
            let absent = gathering.absent();
            return Err(anyhow!(
                "{why} before {absent} came; --mpirun names the mpirun, mpiexec or srun of an MPI, which \
                 starts `hostname` as often as `-n` says"
            ));
        }
        gathering.step()?;
    }
    let Gathering { seated, strangers, .. } = gathering;
    let link = |(rank, (socket, hello)): (u32, (LinkSocket, RankHello))| {
        socket.set_nonblocking(false)?;
        Ok((rank, (LineLink::over(socket, None)?, hello)))
    };
    let ranks = seated.into_iter().map(link).collect::<io::Result<_>>()?;
    Ok(Gathered { ranks, notes: strangers.notes() })
}

impl RankListener {
    /// Listens there; and what visitors have to prove.
    fn open(place: &MeetingPlace) -> Result<(Self, Credentials)> {
        let given = Secret::from_env()?;
        match place {
            MeetingPlace::Node(name) => {
                if given.is_none() && users_look_alike() {
                    return Err(anyhow!(
                        "this user namespace does not distinguish users, so that any user of this host \
                         could pretend to be a rank; {HOW_TO_GIVE}"
                    ));
                }
                let listen = || -> io::Result<UnixListener> {
                    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
                    listener.set_nonblocking(true)?;
                    Ok(listener)
                };
                let listener = listen().map_err(|error| anyhow!(in_use(name, &error)))?;
                Ok((Self::Node(listener), Credentials { secret: given }))
            }
            MeetingPlace::Net { host, port } => {
                let listener = listen_at(host, *port)?;
                listener.set_nonblocking(true)?;
                // After the port is this process's: the file of another run there stays whole.
                let file = match given {
                    Some(_) => None,
                    None => Some(SecretFile::create(host, *port)?),
                };
                let secret = given.or_else(|| file.as_ref().map(|file| file.secret.clone()));
                Ok((Self::Net(listener, file), Credentials { secret }))
            }
        }
    }

    fn accept(&self) -> io::Result<(LinkSocket, String)> {
        match self {
            Self::Node(listener) => {
                let (stream, _) = listener.accept()?;
                let name = match peer_credentials(stream.as_fd()) {
                    Ok(peer) => format!("process {} of user {}", peer.pid, peer.uid),
                    Err(_) => "a process that has gone".to_owned(),
                };
                Ok((LinkSocket::Unix(stream), name))
            }
            Self::Net(listener, _) => {
                let (stream, address) = listener.accept()?;
                Ok((LinkSocket::Tcp(stream), address.to_string()))
            }
        }
    }
}

impl AsFd for RankListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Node(listener) => listener.as_fd(),
            Self::Net(listener, _) => listener.as_fd(),
        }
    }
}

/// The owner of the name of a job's socket, if the kernel reports it.
fn in_use(name: &str, error: &io::Error) -> String {
    let holder = || -> io::Result<String> {
        let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        let peer = peer_credentials(stream.as_fd())?;
        Ok(format!(": process {} of user {} has it", peer.pid, peer.uid))
    };
    let holder = holder().unwrap_or_default();
    format!(
        "the ranks of this job cannot meet at the socket @{name} ({error}{holder}); end that process, \
         or {HOW_TO_GIVE}: the socket then has a name that others cannot know"
    )
}

/// Listens at the address that was named, and at no other.
fn listen_at(host: &str, port: u16) -> Result<TcpListener> {
    let named = || format!("ranks cannot meet at {host}:{port}");
    let found = (host, port).to_socket_addrs().with_context(named)?;
    let mut last = io::Error::from(ErrorKind::NotFound);
    for address in own_addresses(host, found.collect()) {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    let way_out = match last.kind() {
        ErrorKind::AddrNotAvailable => {
            "name an address of the host of rank 0, which is this one: --rendezvous HOST:PORT"
        }
        _ => "name another port: --rendezvous HOST:PORT",
    };
    Err(anyhow!("{}: {last}; {way_out}", named()))
}

/// Addresses to listen at, best first. Many hosts know their own name as one of the loopback device,
/// where no other host can reach them: such a name stands for all addresses.
fn own_addresses(host: &str, mut found: Vec<NetAddress>) -> Vec<NetAddress> {
    found.sort_by_key(|address| address.ip().is_loopback());
    let is_name = host.parse::<IpAddr>().is_err() && host != "localhost";
    let only_loopback = found.iter().all(|address| address.ip().is_loopback());
    match found.first() {
        Some(first) if is_name && only_loopback => {
            vec![NetAddress::new(Ipv4Addr::UNSPECIFIED.into(), first.port())]
        }
        _ => found,
    }
}

/// State of the wait at a door.
struct Gathering<'a> {
    door: RankListener,
    credentials: Credentials,
    size: u32,
    version: &'a str,
    visitors: Vec<Visitor>,
    /// Ranks that have proven themselves.
    seated: BTreeMap<u32, (LinkSocket, RankHello)>,
    strangers: Strangers,
}

impl Gathering<'_> {
    /// Waits a little, and does what can be done then.
    fn step(&mut self) -> Result<()> {
        let (knocked, left) = self.wait()?;
        for rank in left {
            if let Some((_, hello)) = self.seated.remove(&rank) {
                // It may come again; another process must not take its place for that.
                let name = format!("rank {rank}, process {} on {}", hello.pid, hello.host);
                self.strangers.add(name, "it came and left again".to_owned());
            }
        }
        if knocked {
            self.let_in()?;
        }
        for mut visitor in std::mem::take(&mut self.visitors) {
            match visitor.advance(&self.credentials) {
                HandshakeStep::Waiting => self.visitors.push(visitor),
                HandshakeStep::Stranger(why) => self.strangers.add(visitor.name, why),
                HandshakeStep::Proven(hello) => self.seat(visitor, hello),
            }
        }
        Ok(())
    }

    /// Waits until a visitor connects, sends or leaves. Whether one connects, and which ranks have
    /// left.
    fn wait(&self) -> Result<(bool, Vec<u32>)> {
        let door = if self.has_room() { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![PollFd::from_borrowed_fd(self.door.as_fd(), door)];
        let seated = self.seated.values().map(|(socket, _)| (socket.as_fd(), PollFlags::RDHUP));
        let visitors = self.visitors.iter().map(|v| (v.socket.as_fd(), PollFlags::IN));
        fds.extend(seated.chain(visitors).map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        match poll(&mut fds, Some(&TICK)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("poll on the ranks' connections"),
        }
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let has_left = |fd: &PollFd<'_>| fd.revents().intersects(gone);
        let left = self.seated.keys().zip(&fds[1..]).filter(|(_, fd)| has_left(fd));
        Ok((fds[0].revents().contains(PollFlags::IN), left.map(|(&rank, _)| rank).collect()))
    }

    /// Whether another visitor can be listened to: one that came before must go for it, if need be.
    fn has_room(&self) -> bool {
        let first = self.visitors.first();
        self.visitors.len() < MOST_VISITORS
            || first.is_some_and(|v| v.since.elapsed() > CROWDED_OUT)
    }

    fn let_in(&mut self) -> Result<()> {
        while self.has_room() {
            let (socket, name) = match self.door.accept() {
                Ok(visitor) => visitor,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_fatal(&error) => {
                    return Err(error).context("accept of a rank's connection");
                }
                Err(_) => {
                    // No file descriptor is free, or the visitor left before it was let in.
                    std::thread::sleep(Duration::from_millis(5));
                    return Ok(());
                }
            };
            if self.visitors.len() >= MOST_VISITORS {
                let first = self.visitors.remove(0);
                self.strangers.add(first.name, "it was slow while others waited".to_owned());
            }
            match socket.set_nonblocking(true).and_then(|()| other_user(&socket)) {
                Ok(None) => self.visitors.push(Visitor::new(socket, name)),
                Ok(Some(_)) => self.strangers.add(name, "it is not this user's".to_owned()),
                Err(error) => self.strangers.add(name, format!("it cannot be read ({error})")),
            }
        }
        Ok(())
    }

    /// A process of this job has come: it is one of the ranks, and the first of its number.
    fn seat(&mut self, visitor: Visitor, hello: RankHello) {
        let RankHello { rank, size, .. } = hello;
        let refusal = if hello.version != self.version {
            Some(format!(
                "it is pathline {}, and the coordinator is {}; start the same program on all nodes",
                hello.version, self.version
            ))
        } else if rank >= self.size || size != self.size {
            Some(format!("it is rank {rank} of {size}, and this run has {} ranks", self.size))
        } else {
            self.seated.get(&rank).map(|(_, first)| {
                format!("it is rank {rank}, as process {} on {} is already", first.pid, first.host)
            })
        };
        match refusal {
            None => drop(self.seated.insert(rank, (visitor.socket, hello))),
            Some(why) => {
                // One that does not read it finds its connection closed.
                if let Ok(mut link) = LineLink::over(visitor.socket, None) {
                    let _ = link.send(&RankOrder::Refuse(why.clone()));
                }
                self.strangers.add(visitor.name, why);
            }
        }
    }

    /// `ranks 0, 1`: the ranks that have not connected.
    fn absent(&self) -> String {
        let absent: Vec<String> = (0..self.size)
            .filter(|rank| !self.seated.contains_key(rank))
            .map(|rank| rank.to_string())
            .collect();
        let ranks = if absent.len() == 1 { "rank" } else { "ranks" };
        format!("{ranks} {}", absent.join(", "))
    }

    /// The error that ranks are missing, with the strangers that came.
    fn missing(&self, limit: Duration) -> anyhow::Error {
        let secs = limit.as_secs_f64();
        let strangers = self.strangers.list();
        let instead = if strangers.is_empty() {
            String::new()
        } else {
            format!("; processes that were turned away: {}", strangers.join("; "))
        };
        let secret = match &self.door {
            RankListener::Net(_, Some(file)) => format!(
                "; they read a secret in {}: if their hosts do not share it, {HOW_TO_GIVE}",
                file.path().display()
            ),
            RankListener::Net(..) | RankListener::Node(_) => String::new(),
        };
        let count = self.size;
        anyhow!(
            "{} did not come within {secs:.0} s{instead}{secret}; start pathline itself on all of \
             them, as in `mpirun -n {count} pathline run`, or use --ranks {count}",
            self.absent()
        )
    }
}

/// Whether no visitor will ever be let in after that.
fn is_fatal(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported)
        || error.raw_os_error() == Some(rustix::io::Errno::BADF.raw_os_error())
}

/// Visitors that were turned away: their names, the reasons, and counts.
#[derive(Debug, Default)]
struct Strangers {
    kinds: Vec<(String, String, u64)>,
    others: u64,
}

impl Strangers {
    fn add(&mut self, name: String, why: String) {
        // Each connection of a host has another port.
        let host_of = |name: &str| name.rsplit_once(':').map_or(name, |(host, _)| host).to_owned();
        let room = self.kinds.len() < MOST_STRANGERS;
        let known =
            self.kinds.iter_mut().find(|(n, w, _)| host_of(n) == host_of(&name) && *w == why);
        match known {
            Some((.., times)) => *times += 1,
            None if room => self.kinds.push((name, why, 1)),
            None => self.others += 1,
        }
    }

    fn list(&self) -> Vec<String> {
        let kind = |(name, why, times): &(String, String, u64)| match times {
            1 => format!("{name}: {why}"),
            _ => format!("{name}: {why} ({times} times)"),
        };
        let mut list: Vec<String> = self.kinds.iter().map(kind).collect();
        if self.others > 0 {
            list.push(format!("{} more", self.others));
        }
        list
    }

    fn notes(&self) -> Vec<RunNote> {
        let note = |text: String| RunNote {
            code: "stranger".to_owned(),
            subject: "ranks".to_owned(),
            text: format!("turned away where the ranks of this job meet: {text}"),
        };
        self.list().into_iter().map(note).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_only_known_here_stands_for_all_addresses() {
        let found = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<_>>();
        let (loopback, real) = ("127.0.1.1:4000", "10.0.0.7:4000");
        assert_eq!(own_addresses("node1", found(&[loopback])), found(&["0.0.0.0:4000"]));
        assert_eq!(own_addresses("node1", found(&[loopback, real])), found(&[real, loopback]));
        // An address in place of a name is that address.
        assert_eq!(own_addresses("127.0.0.1", found(&[loopback])), found(&[loopback]));
        assert_eq!(own_addresses("localhost", found(&[loopback])), found(&[loopback]));
    }

    #[test]
    fn an_address_of_another_host_is_refused_with_a_remedy() {
        // TEST-NET-1 is unassigned (RFC 5737).
        let error = format!("{:#}", listen_at("192.0.2.1", 4000).unwrap_err());
        assert!(error.contains("192.0.2.1:4000") && error.contains("--rendezvous"), "{error}");
    }

    #[test]
    fn strangers_are_counted_and_bounded() {
        let mut strangers = Strangers::default();
        for port in 0..1000 {
            strangers.add(format!("10.0.0.7:{port}"), "it is no rank".into());
        }
        assert_eq!(strangers.list(), ["10.0.0.7:0: it is no rank (1000 times)"]);
        for host in 0..100 {
            strangers.add(format!("10.0.1.{host}:1"), "it is no rank".into());
        }
        // 1 + 15 hosts are named; 100 - 15 are counted.
        assert_eq!(strangers.list().len(), MOST_STRANGERS + 1);
        assert_eq!(strangers.list().last().unwrap(), "85 more");
    }
}
