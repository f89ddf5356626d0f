//! Compares the time of 8 B by this crate's ports with the same calls in C, in pairs within the
//! same two processes, several times in new processes. `cargo xtask messages` compiles the C and
//! starts this.
#![allow(unsafe_code, clippy::print_stdout)]

use std::env;
use std::ffi::{CStr, CString, c_int, c_long, c_void};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use pathline_hal::TransportPort;
use pathline_hal::{CallResult, ExchangeId, FlowPart, LocalMemory, RankBarrier, RepeatMode};
use pathline_host::clock::{ClockOrigin, pause};
use pathline_host::cpus;
use pathline_schema::{MessageOp, Rank, Transport, Unit, WireOp};
use pathline_stats::median_interval;
use pathline_transport::{open_mpi, ucx_port};

type OpenCall = unsafe extern "C" fn(*mut *const c_void, *mut usize) -> c_int;
type ConnectCall = unsafe extern "C" fn(*const c_void) -> c_int;
type PingCall = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void, c_long) -> c_int;
type Failure = Box<dyn std::error::Error>;

const BYTES: usize = 8;
/// Length of each side of a pair, in ns: short compared with a time slice (1 to 4 ms), so that most
/// pairs are free of preemption.
const SIDE_NS: f64 = 200_000.0;

/// Choices of the command line.
#[derive(Default)]
struct BenchOptions {
    library: String,
    socket: String,
    pairs: usize,
    /// The CPU of each rank.
    cpus: Vec<u32>,
    /// What this process is: a rank, or the one that starts them if empty.
    role: String,
    /// The launcher of MPI; UCX if empty.
    mpirun: String,
    /// How often the two processes are started.
    launches: usize,
}

impl BenchOptions {
    fn parse() -> Result<Self, Failure> {
        let mut options = Self { pairs: 501, launches: 11, cpus: vec![0, 1], ..Self::default() };
        let mut args = env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--bench" => {}
                "--library" => options.library = value()?,
                "--socket" => options.socket = value()?,
                "--pairs" => options.pairs = value()?.parse()?,
                "--role" => options.role = value()?,
                "--mpirun" => options.mpirun = value()?,
                "--launches" => options.launches = value()?.parse()?,
                "--cpus" => {
                    let cpus = value()?;
                    options.cpus = cpus.split(',').map(str::parse).collect::<Result<_, _>>()?;
                }
                _ => return Err(format!("{arg} is no option; start `cargo xtask messages`").into()),
            }
        }
        Ok(options)
    }
}

/// The functions of the compiled C, which stays loaded.
struct CReference {
    open: OpenCall,
    connect: ConnectCall,
    ping: PingCall,
}

impl CReference {
    fn load(path: &str) -> Result<Self, Failure> {
        let name = CString::new(path)?;
        // SAFETY: a library of plain functions. It needs the MPI or UCX that is loaded already.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            // SAFETY: after a failure it returns a text that lives until the next call.
            let reason = unsafe { CStr::from_ptr(libc::dlerror()) };
            return Err(reason.to_string_lossy().into_owned().into());
        }
        let find = |name: &CStr| {
            // SAFETY: the handle is open.
            let at = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if at.is_null() {
                Err(format!("{path} lacks {}", name.to_string_lossy()))
            } else {
                Ok(at)
            }
        };
        let (open, connect) = (find(c"reference_open")?, find(c"reference_connect")?);
        let ping = find(c"reference_ping")?;
        // SAFETY: the C next to this file defines them with these signatures.
        unsafe {
            Ok(Self {
                open: std::mem::transmute::<*mut c_void, OpenCall>(open),
                connect: std::mem::transmute::<*mut c_void, ConnectCall>(connect),
                ping: std::mem::transmute::<*mut c_void, PingCall>(ping),
            })
        }
    }
}

/// The other process, through a socket.
struct PeerLink(UnixStream);

impl PeerLink {
    /// Rank 0 waits for the other one.
    fn meet(rank: usize, path: &str) -> Result<Self, Failure> {
        if rank == 0 {
            return Ok(Self(UnixListener::bind(path)?.accept()?.0));
        }
        for _ in 0..1000 {
            if let Ok(stream) = UnixStream::connect(path) {
                return Ok(Self(stream));
            }
            pause(Duration::from_millis(10));
        }
        Err(format!("rank 0 does not listen at {path}").into())
    }

    /// Exchanges a text with the other process.
    fn swap(&mut self, mine: &[u8]) -> Result<Vec<u8>, Failure> {
        self.0.write_all(&(mine.len() as u64).to_le_bytes())?;
        self.0.write_all(mine)?;
        let mut length = [0; 8];
        self.0.read_exact(&mut length)?;
        let mut theirs = vec![0; usize::try_from(u64::from_le_bytes(length))?];
        self.0.read_exact(&mut theirs)?;
        Ok(theirs)
    }
}

/// Both sides come from the same pair before, so they need no barrier.
struct NoWait;

impl RankBarrier for NoWait {
    fn wait(&self) -> CallResult<()> {
        Ok(())
    }
}

/// A cache-aligned buffer of one end.
#[repr(align(4096))]
struct PageBuffer([u8; 4096]);

impl PageBuffer {
    fn span(&mut self) -> LocalMemory {
        LocalMemory { address: self.0.as_mut_ptr() as u64, bytes: BYTES as u64 }
    }
}

/// What one process times.
struct PingPair<'p> {
    rank: usize,
    port: &'p mut dyn TransportPort,
    id: ExchangeId,
    c: CReference,
    out: Box<PageBuffer>,
    back: Box<PageBuffer>,
    clock: ClockOrigin,
}

impl PingPair<'_> {
    /// ns of one message by the port.
    fn time_port(&mut self, reps: u64) -> Result<f64, Failure> {
        let times = self.port.run(self.id, reps, &NoWait)?;
        let took = times.first().and_then(|part| part.first()).ok_or("the port has no time")?;
        Ok(took / reps as f64 / 2.0)
    }

    /// ns of one message by C. A first round trip lets both processes start together.
    fn time_c(&mut self, reps: u64) -> Result<f64, Failure> {
        self.ping(1)?;
        let begun = self.clock.ns();
        self.ping(reps)?;
        Ok(self.clock.ns().saturating_sub(begun) as f64 / reps as f64 / 2.0)
    }

    fn ping(&mut self, reps: u64) -> Result<(), Failure> {
        let (out, back) = (self.out.0.as_mut_ptr().cast(), self.back.0.as_mut_ptr().cast());
        // SAFETY: both are 4096 B of this process that nothing else uses; the other rank makes the
        // same call.
        let status = unsafe {
            (self.c.ping)(c_int::try_from(self.rank)?, out, back, c_long::try_from(reps)?)
        };
        if status == 0 { Ok(()) } else { Err(format!("C's round trips fail ({status})").into()) }
    }
}

fn run(options: &BenchOptions) -> Result<(), Failure> {
    let (rank, mut port): (usize, Box<dyn TransportPort>) = match options.role.as_str() {
        "mpi" => {
            let port = open_mpi(None)?;
            (port.rank_size().0 as usize, Box::new(port))
        }
        rank => (rank.parse()?, ucx_port()?),
    };
    let via = port.via();
    cpus::pin(*options.cpus.get(rank).ok_or("--cpus names no CPU of this rank")?)?;
    let mut link = PeerLink::meet(rank, &options.socket)?;
    let (mut out, mut back) = (Box::new(PageBuffer([0; 4096])), Box::new(PageBuffer([0; 4096])));
    let part = FlowPart {
        wire: MessageOp::new(via, WireOp::Ping),
        bytes: BYTES as u64,
        group: vec![(Rank(0), Unit::Numa(0)), (Rank(1), Unit::Numa(0))],
        positions: vec![rank],
        send: vec![out.span()],
        recv: vec![back.span()],
        device: vec![false],
    };
    let (id, offer) = port.bind(&[part], RepeatMode::Streaming)?;
    let theirs = link.swap(&offer)?;
    port.join(id, &if rank == 0 { [offer, theirs] } else { [theirs, offer] })?;

    let c = CReference::load(&options.library)?;
    let (mut address, mut bytes) = (std::ptr::null(), 0);
    // SAFETY: it stores an address, and the bytes at it.
    let status = unsafe { (c.open)(&raw mut address, &raw mut bytes) };
    if status != 0 {
        return Err(format!("C's library does not open ({status})").into());
    }
    let own = if bytes == 0 {
        Vec::new()
    } else {
        // SAFETY: the call returned 0, so as many bytes are readable, until the process ends.
        unsafe { std::slice::from_raw_parts(address.cast::<u8>(), bytes) }.to_vec()
    };
    let peer = link.swap(&own)?;
    // SAFETY: the other process's library stored the bytes.
    let status = unsafe { (c.connect)(peer.as_ptr().cast()) };
    if status != 0 {
        return Err(format!("C's library does not connect ({status})").into());
    }
    let clock = ClockOrigin::now();
    let mut pair = PingPair { rank, port: port.as_mut(), id, c, out, back, clock };
    measure(&mut pair, &mut link, options.pairs)?;
    port.release(id)?;
    link.swap(&[])?;
    if via == Transport::Ucx {
        // C's context stays open in this comparison, since closing it waits for the peer.
        std::mem::forget(port);
    }
    Ok(())
}

/// Prints the median ratio of the times of a message, ours over C's, and both medians in ns.
fn measure(pair: &mut PingPair<'_>, link: &mut PeerLink, pairs: usize) -> Result<(), Failure> {
    for _ in 0..10 {
        pair.time_c(1000)?;
        pair.time_port(1000)?;
    }
    let least = (0..5).map(|_| pair.time_c(1000)).collect::<Result<Vec<_>, _>>()?;
    let least = least.into_iter().fold(f64::INFINITY, f64::min);
    let wanted = ((SIDE_NS / least / 2.0) as u64).max(10);
    let theirs = link.swap(&wanted.to_le_bytes())?;
    let reps = match pair.rank {
        0 => wanted,
        _ => u64::from_le_bytes(theirs.as_slice().try_into()?),
    };
    let (mut c, mut ours) = (Vec::new(), Vec::new());
    for nth in 0..pairs {
        // Whoever is first has the caches of the other: they take turns.
        if nth % 2 == 0 {
            c.push(pair.time_c(reps)?);
            ours.push(pair.time_port(reps)?);
        } else {
            ours.push(pair.time_port(reps)?);
            c.push(pair.time_c(reps)?);
        }
    }
    if pair.rank == 0 {
        let ratios = ours.iter().zip(&c).map(|(ours, c)| ours / c).collect();
        println!("ratio {:.4} {:.1} {:.1}", middle(ratios), middle(ours), middle(c));
    }
    Ok(())
}

/// The median; 0 of none.
fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

/// Starts the two processes; the ratio and both times that rank 0 prints.
fn launch(options: &BenchOptions) -> Result<[f64; 3], Failure> {
    // A launch that failed may have left its socket.
    let _ = std::fs::remove_file(&options.socket);
    let program = env::current_exe()?;
    let cpus: Vec<String> = options.cpus.iter().map(u32::to_string).collect();
    let arguments = |command: &mut Command, role: &str| {
        command.args(["--library", &options.library, "--socket", &options.socket, "--role", role]);
        command.args(["--cpus", &cpus.join(","), "--pairs", &options.pairs.to_string()]);
    };
    let output = if options.mpirun.is_empty() {
        let (mut first, mut second) = (Command::new(&program), Command::new(&program));
        arguments(&mut first, "0");
        arguments(&mut second, "1");
        let mut second = second.stdout(Stdio::inherit()).spawn()?;
        let output = first.stderr(Stdio::inherit()).output();
        second.wait()?;
        output?
    } else {
        let mut mpirun = Command::new(&options.mpirun);
        // Open MPI refuses both without; others ignore the variables.
        mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        mpirun.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
        mpirun.args(["-n", "2"]).arg(&program);
        arguments(&mut mpirun, "mpi");
        mpirun.stderr(Stdio::inherit()).output()?
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("ratio "));
    let numbers =
        line.unwrap_or_default().split(' ').map(str::parse).collect::<Result<Vec<_>, _>>();
    match numbers.as_deref() {
        Ok(&[ratio, ours, c]) => Ok([ratio, ours, c]),
        _ => Err(format!("the two processes gave no times: {}", text.trim()).into()),
    }
}

/// Prints the median of the launches and its 95 % interval.
fn conduct(options: &BenchOptions) -> Result<(), Failure> {
    let mut launches = Vec::new();
    for _ in 0..options.launches {
        launches.push(launch(options)?);
    }
    let [ratios, ours, c] = [0, 1, 2]
        .map(|nth| launches.iter().map(|launch: &[f64; 3]| launch[nth]).collect::<Vec<f64>>());
    let interval = median_interval(&ratios, &vec![1; ratios.len()])
        .map_or(String::new(), |s| format!(" [{:.4}, {:.4}]", s.low, s.high));
    println!(
        "{:.4}{interval} of C's time; 8 B one way {:.1} ns, C {:.1} ns; {} launches of {} pairs",
        middle(ratios),
        middle(ours),
        middle(c),
        options.launches,
        options.pairs
    );
    Ok(())
}

fn main() -> ExitCode {
    let outcome = BenchOptions::parse().and_then(|options| match options.role.as_str() {
        "" => conduct(&options),
        _ => run(&options),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("messages: {error}");
            ExitCode::FAILURE
        }
    }
}
