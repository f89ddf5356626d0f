//! MPI with real processes: this file is both the tests, which call `mpirun`, and what the processes
//! do. `PATHLINE_TEST_MPICH`, `PATHLINE_TEST_OPENMPI` and `PATHLINE_TEST_MPI_ABI` each name an
//! `mpirun`, of the last its MPICH with a library of the standard ABI.
//!
//! For figures: `PATHLINE_TEST_MPI_ROLE=100 mpirun -n 2 THIS_BINARY --exact mpi::one_process
//! --nocapture` takes the median of 100 rounds, and the role `huge` sends more than 2 GiB.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use pathline_hal::{CallResult, FlowPart, LocalMemory, RankBarrier, RepeatMode, TransportPort};
use pathline_schema::{Collective, MessageOp, Rank, Transport, Unit, WireOp};
use pathline_stub::need::missing;
use pathline_transport::{MpiPort, open_mpi};

/// What a process of the test is to do.
const ROLE: &str = "PATHLINE_TEST_MPI_ROLE";
/// The interface that its library is to have.
const ABI: &str = "PATHLINE_TEST_MPI_EXPECTED";
/// Seconds that a launch may take: ten times what it takes on two idle cores.
const LAUNCH_TIMEOUT: &str = "100";

/// Processes that wait by spinning: one launch at a time has the cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The barrier inside of the port is enough where nobody is slow.
struct Nowhere;

impl RankBarrier for Nowhere {
    fn meet(&self) -> CallResult<()> {
        Ok(())
    }
}

/// An MPI to test with.
struct Mpi {
    name: &'static str,
    variable: &'static str,
    /// The interface of its library.
    abi: &'static str,
    /// The library beside its launcher, if it is not the one that a search finds.
    library: Option<&'static str>,
}

impl Mpi {
    fn mpirun(&self, ranks: usize, role: &str) -> Option<(bool, String)> {
        let Some(launcher) = std::env::var_os(self.variable).map(PathBuf::from) else {
            missing(self.name, &format!("{} names no mpirun", self.variable));
            return None;
        };
        let prefix = launcher.parent().and_then(Path::parent).unwrap();
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", LAUNCH_TIMEOUT])
            .arg(&launcher)
            .args(["-n", &ranks.to_string()])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "mpi::one_process", "--nocapture", "--test-threads", "1"])
            .env(ROLE, role)
            .env(ABI, self.abi)
            .env_remove("PATHLINE_MPI")
            // Open MPI runs neither for the superuser nor with more processes than cores unasked.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
            // Other tests use the same cores.
            .env("OMPI_MCA_mpi_yield_when_idle", "1");
        if let Some(library) = self.library {
            command.env("PATHLINE_MPI", prefix.join(library));
        }
        let out = command.output().unwrap();
        let [stdout, stderr] = [&out.stdout, &out.stderr].map(|o| String::from_utf8_lossy(o));
        let text = format!("{stdout}{stderr}");
        println!("{text}");
        Some((out.status.success(), text))
    }

    fn all_say(&self, ranks: usize, role: &str, word: &str) {
        let Some((succeeded, text)) = self.mpirun(ranks, role) else { return };
        assert!(succeeded, "{text}");
        assert_eq!(text.matches(word).count(), ranks, "{text}");
    }
}

/// Every test with every MPI.
macro_rules! with_each {
    ($($module:ident: $mpi:expr;)*) => { $(
        mod $module {
            use super::Mpi;

            pub(super) const MPI: Mpi = $mpi;

            #[test]
            fn two_processes_move_every_byte() {
                MPI.all_say(2, "check", "every byte is right");
            }

            #[test]
            fn four_processes_move_every_byte() {
                MPI.all_say(4, "check", "every byte is right");
            }

            #[test]
            fn an_error_of_mpi_comes_back_as_one() {
                MPI.all_say(2, "truncate", "the error is told");
            }
        }
    )* };
}

with_each! {
    mpich: Mpi {
        name: "mpich",
        variable: "PATHLINE_TEST_MPICH",
        abi: "MPICH's ABI",
        library: None,
    };
    openmpi: Mpi {
        name: "openmpi",
        variable: "PATHLINE_TEST_OPENMPI",
        abi: "Open MPI's ABI",
        library: None,
    };
    standard: Mpi {
        name: "mpi-abi",
        variable: "PATHLINE_TEST_MPI_ABI",
        abi: "standard ABI",
        library: Some("lib/libmpi_abi.so.1"),
    };
}

/// Of Open MPI 5.0.11 a wait for several does not return that a message was longer than expected.
#[test]
fn an_error_closes_what_is_in_flight() {
    for mpi in [mpich::MPI, standard::MPI] {
        let Some((_, text)) = mpi.mpirun(2, "open") else { continue };
        assert_eq!(text.matches("the memory may go").count(), 1, "{text}");
    }
}

/// What `mpirun` starts. Nothing, in the test itself.
#[test]
fn one_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut port = open_mpi(None).unwrap();
    let (rank, size) = port.rank_size();
    let facts = port.facts().clone();
    assert_eq!((facts.local_rank, facts.local_size), (rank, size), "one host");
    if let Ok(expected) = std::env::var(ABI) {
        assert_eq!(facts.abi, expected, "{}", port.library());
    }
    if rank == 0 {
        println!("{} | {:?}", port.library(), facts);
    }
    match role.as_str() {
        "check" => {
            // Intel's says nothing of it.
            let told = facts.carried.as_deref();
            let known =
                ["pml ob1 over one of btl ", "pml ucx", "pml cm over one of mtl ", "device "];
            let knows = |text: &str| known.iter().any(|start| text.starts_with(start));
            assert!(told.is_some_and(knows) || facts.version.contains("Intel"), "{told:?}");
            check(&mut port);
            println!("rank {rank}: every byte is right");
        }
        "truncate" => {
            truncate(&mut port);
            // It costs its case alone.
            message(&mut port, WireOp::Send { window: 4 }, 4096, &[0, 1]);
            println!("rank {rank}: the error is told");
        }
        "open" => open(&mut port),
        "huge" => {
            let bytes = (2 << 30) + (1 << 20);
            message(&mut port, WireOp::Send { window: 1 }, bytes, &[0, 1]);
            group(&mut port, Collective::Broadcast, false, bytes, &[0, 1]);
            println!("rank {rank}: measured");
        }
        rounds => {
            measure(&mut port, rounds.parse().unwrap());
            println!("rank {rank}: measured");
        }
    }
    port.finish();
    if role == "truncate" {
        // Open MPI's launcher takes a process that does not end by itself for a failed one.
        std::process::exit(0);
    }
}

fn sent(rank: u32, at: usize) -> u8 {
    (at * 7 + at / 256 + rank as usize * 13 + 1) as u8
}

fn filled(rank: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| sent(rank, at)).collect()
}

fn span(buffer: &mut [u8]) -> LocalMemory {
    LocalMemory {
        address: buffer.as_mut_ptr().expose_provenance() as u64,
        bytes: buffer.len() as u64,
    }
}

fn part(port: &MpiPort, op: WireOp, bytes: usize, group: &[u32]) -> FlowPart {
    let (me, _) = port.rank_size();
    let mine: Vec<usize> = group.iter().position(|&r| r == me).into_iter().collect();
    FlowPart {
        wire: MessageOp::new(Transport::Mpi, op),
        bytes: bytes as u64,
        group: group.iter().map(|&r| (Rank(r), Unit::Numa(0))).collect(),
        send: vec![LocalMemory::default(); mine.len()],
        recv: vec![LocalMemory::default(); mine.len()],
        device: false,
        mine,
    }
}

/// Binds, runs and releases; the times.
fn go(
    port: &mut MpiPort,
    parts: &[FlowPart],
    pace: RepeatMode,
    reps: u64,
) -> CallResult<Vec<Vec<f64>>> {
    let (_, size) = port.rank_size();
    let (id, offer) = port.bind(parts, pace)?;
    port.join(id, &vec![offer; size as usize])?;
    let times = port.run(id, reps, &Nowhere)?;
    assert!(port.engine(id).contains("MPI_"), "{}", port.engine(id));
    port.release(id)?;
    Ok(times)
}

/// A message or one-sided operation between two, with every byte of what came checked.
fn message(port: &mut MpiPort, op: WireOp, bytes: usize, ends: &[u32; 2]) {
    messages(port, &[(op, *ends)], bytes);
}

fn messages(port: &mut MpiPort, all: &[(WireOp, [u32; 2])], bytes: usize) {
    let (me, _) = port.rank_size();
    for (pace, reps) in [(RepeatMode::Streaming, 3), (RepeatMode::Isolated, 2)] {
        let mut buffers = Vec::new();
        let mut parts = Vec::new();
        for (op, ends) in all {
            let (mut out, mut into) = (filled(me, bytes), vec![0u8; bytes]);
            let mut part = part(port, *op, bytes, ends);
            let ping = *op == WireOp::Ping;
            if let Some(&at) = part.mine.first() {
                part.send[0] =
                    if at == 0 || ping { span(&mut out) } else { LocalMemory::default() };
                part.recv[0] =
                    if at == 1 || ping { span(&mut into) } else { LocalMemory::default() };
            }
            buffers.push((out, into));
            parts.push(part);
        }
        let times = go(port, &parts, pace, reps).unwrap();
        for ((part, (out, into)), times) in parts.iter().zip(&buffers).zip(&times) {
            let Some(&at) = part.mine.first() else {
                assert!(times.is_empty());
                continue;
            };
            let passive = match part.wire.op {
                WireOp::Put { .. } => at == 1,
                WireOp::Get { .. } => at == 0,
                _ => false,
            };
            let expected = if pace == RepeatMode::Isolated { 2 } else { 1 };
            assert_eq!(times.len(), if passive { 0 } else { expected }, "{}", part.wire);
            assert!(times.iter().all(|&ns| ns > 0.0), "{times:?}");
            assert!(*out == filled(me, bytes), "{} wrote what it sends", part.wire);
            if at == 1 || part.wire.op == WireOp::Ping {
                let peer = part.group[1 - at].0.0;
                let right = (0..bytes).all(|at| into[at] == sent(peer, at));
                assert!(right, "{} x {bytes} from rank {peer}", part.wire);
            } else {
                assert!(into.iter().all(|&b| b == 0), "{} wrote at its source", part.wire);
            }
        }
    }
}

/// Words of rank `r` are `1 + r * 2^40 + at`: sums show the upper half.
fn words(rank: u32, bytes: usize) -> Vec<u8> {
    let word = |at: usize| 1 + (u64::from(rank) << 40) + at as u64;
    (0..bytes / 8).flat_map(|at| word(at).to_ne_bytes()).collect()
}

/// What `ranks` bring in sum, word by word.
fn summed(ranks: &[u32], bytes: usize) -> Vec<u8> {
    let n = ranks.len() as u64;
    let upper: u64 = ranks.iter().map(|&r| u64::from(r) << 40).sum();
    (0..bytes / 8).flat_map(|at| (n + upper + n * at as u64).to_ne_bytes()).collect()
}

/// A collective of some ranks, the first of them the root.
fn group(port: &mut MpiPort, op: Collective, in_place: bool, bytes: usize, ranks: &[u32]) {
    let (me, _) = port.rank_size();
    let mut part = part(port, WireOp::Group { op, in_place, unregistered: false }, bytes, ranks);
    let Some(&at) = part.mine.first() else {
        let times = go(port, &[part], RepeatMode::Streaming, 1).unwrap();
        assert!(times[0].is_empty());
        return;
    };
    let (n, each) = (ranks.len(), bytes / ranks.len());
    let (brought, expected) = match op {
        Collective::Broadcast => (filled(me, bytes), filled(ranks[0], bytes)),
        Collective::Reduce if at != 0 => (words(me, bytes), Vec::new()),
        Collective::Reduce | Collective::AllReduce => (words(me, bytes), summed(ranks, bytes)),
        Collective::ReduceScatter => {
            (words(me, bytes), summed(ranks, bytes)[at * each..][..each].to_vec())
        }
        Collective::AllGather => {
            (filled(me, each), ranks.iter().flat_map(|&r| filled(r, each)).collect())
        }
        Collective::AllToAll => {
            let of = |r: u32| filled(r, bytes)[at * each..][..each].to_vec();
            (filled(me, bytes), ranks.iter().flat_map(|&r| of(r)).collect())
        }
        Collective::Barrier => (Vec::new(), Vec::new()),
    };
    let mut out = brought.clone();
    let mut into = vec![0u8; expected.len()];
    if in_place {
        let from = if op == Collective::AllGather { at * each } else { 0 };
        into.resize(bytes, 0);
        into[from..][..brought.len()].copy_from_slice(&brought);
        part.recv[0] = span(&mut into);
        part.send[0] = span(&mut into[from..][..brought.len()]);
    } else {
        let root = at == 0;
        let sends = op != Collective::Broadcast || root;
        let receives = !expected.is_empty() && (op != Collective::Broadcast || !root);
        part.send[0] = if sends { span(&mut out) } else { LocalMemory::default() };
        part.recv[0] = if receives { span(&mut into) } else { LocalMemory::default() };
    }
    // In place a second repetition would add to the sum.
    let reps = if in_place { 1 } else { 2 };
    let times = go(port, &[part], RepeatMode::Streaming, reps).unwrap();
    assert!(times[0].len() == 1 && times[0][0] > 0.0, "{times:?}");
    let is_source = op == Collective::Broadcast && at == 0;
    let arrived = !is_source && !expected.is_empty();
    assert!(!arrived || into == expected, "{op} x {bytes} over {n}, in place: {in_place}");
    assert!(in_place || out == brought, "{op} overwrote what it brought");
}

fn check(port: &mut MpiPort) {
    let (_, size) = port.rank_size();
    let all: Vec<u32> = (0..size).collect();
    let mut groups = vec![all.clone()];
    if size > 2 {
        // The root is not the lowest rank, and not all take part.
        groups.push(vec![size - 1, 0, 1]);
        several(port);
    } else {
        pairs(port);
    }
    for ranks in &groups {
        let n = ranks.len();
        for bytes in [8 * n, 1000 * 8 * n, 32_768 * 8 * n] {
            for &op in Collective::ALL {
                let bytes = if op == Collective::Barrier { 1 } else { bytes };
                group(port, op, false, bytes, ranks);
                let also = !matches!(
                    op,
                    Collective::ReduceScatter | Collective::Barrier | Collective::Broadcast
                );
                if also {
                    group(port, op, true, bytes, ranks);
                }
            }
        }
    }
    refuse(port);
}

/// Everything that two processes do with each other.
fn pairs(port: &mut MpiPort) {
    for bytes in [1, 8, 4096, 1 << 20] {
        for op in [
            WireOp::Ping,
            WireOp::Send { window: 1 },
            WireOp::Send { window: 64 },
            WireOp::Consume,
            WireOp::Put { window: 1 },
            WireOp::Put { window: 16 },
            WireOp::Get { window: 16 },
        ] {
            message(port, op, bytes, &[0, 1]);
            message(port, op, bytes, &[1, 0]);
        }
        let send = WireOp::Send { window: 16 };
        messages(port, &[(send, [0, 1]), (send, [1, 0])], bytes);
        let put = WireOp::Put { window: 4 };
        messages(port, &[(put, [0, 1]), (put, [1, 0])], bytes);
        messages(port, &[(WireOp::Ping, [0, 1]), (WireOp::Ping, [1, 0])], bytes);
    }
}

/// What takes more than two.
fn several(port: &mut MpiPort) {
    let (send, ping) = (WireOp::Send { window: 16 }, WireOp::Ping);
    for bytes in [8, 65_536] {
        messages(port, &[(send, [0, 1]), (send, [2, 3])], bytes);
        // A ring, in which everybody sends and receives, and a star of pings.
        messages(port, &[(send, [0, 1]), (send, [1, 2]), (send, [2, 3]), (send, [3, 0])], bytes);
        messages(port, &[(ping, [0, 1]), (ping, [0, 2]), (ping, [3, 0]), (send, [2, 1])], bytes);
    }
}

/// What cannot be is refused with the reason, on every rank alike.
fn refuse(port: &mut MpiPort) {
    let (_, size) = port.rank_size();
    let scatter =
        WireOp::Group { op: Collective::ReduceScatter, in_place: true, unregistered: false };
    let sum = WireOp::group(Collective::AllReduce);
    for (op, bytes, ranks, why) in [
        (scatter, 64, vec![0, 1], "at the start of its buffer"),
        (sum, 12, vec![0, 1], "multiple of 8"),
        (WireOp::Ping, 8, vec![0, 1, 1], "takes part once"),
        (WireOp::Ping, 8, vec![0], "two ends"),
        (WireOp::Ping, 8, vec![0, size], "takes part"),
    ] {
        let part = part(port, op, bytes, &ranks);
        let error = port.bind(&[part], RepeatMode::Streaming).unwrap_err();
        assert!(error.reason.contains(why), "{error}");
    }
    let short = part(port, WireOp::Ping, 8, &[0, 1]);
    let bound = port.bind(&[short], RepeatMode::Streaming);
    if port.rank_size().0 < 2 {
        assert!(bound.unwrap_err().reason.contains("has a buffer of 0 B"));
    }
    let idle = part(port, WireOp::Ping, 8, &[0, 1]);
    assert!(port.bind(&[idle], RepeatMode::Graph).unwrap_err().reason.contains("no graphs"));
}

/// The sender sends more than the receiver expects.
fn truncate(port: &mut MpiPort) {
    let (me, _) = port.rank_size();
    let bytes = if me == 0 { 64 } else { 8 };
    let mut buffer = vec![0u8; 64];
    let mut part = part(port, WireOp::Consume, bytes, &[0, 1]);
    if me == 0 {
        part.send[0] = span(&mut buffer);
    } else {
        part.recv[0] = span(&mut buffer);
    }
    let (id, offer) = port.bind(&[part], RepeatMode::Streaming).unwrap();
    port.join(id, &[offer.clone(), offer]).unwrap();
    let outcome = port.run(id, 1, &Nowhere);
    port.release(id).unwrap();
    if me == 1 {
        let error = outcome.unwrap_err();
        println!("{error}");
        assert!(error.reason.to_lowercase().contains("trunc"), "{error}");
        assert_ne!(error.code, 0);
    } else {
        outcome.unwrap();
    }
}

/// Messages both ways, of which rank 1 expects one to be shorter than it is. When it fails, the
/// receive of its answer is in flight, which rank 0 never sends: rank 0 waits in vain, and is ended
/// with the job.
fn open(port: &mut MpiPort) {
    let (me, _) = port.rank_size();
    let [mut out, mut into] = [[0u8; 64]; 2];
    let send = WireOp::Send { window: 1 };
    let mut parts = [part(port, send, 64, &[0, 1]), part(port, send, 64, &[1, 0])];
    if me == 1 {
        parts[0].bytes = 8;
    }
    let [there, back] = &mut parts;
    let (sends, receives) = if me == 0 { (there, back) } else { (back, there) };
    sends.send[0] = span(&mut out);
    receives.recv[0] = span(&mut into);
    let (id, offer) = port.bind(&parts, RepeatMode::Streaming).unwrap();
    port.join(id, &[offer.clone(), offer]).unwrap();
    // A wait for several refers to statuses for the reason.
    assert_ne!(port.run(id, 1, &Nowhere).unwrap_err().code, 0);
    port.release(id).unwrap();
    println!("rank {me}: the memory may go");
    port.abort(0);
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Latency of 8 B and rate of windows of 1 MiB, as a C program beside it prints them.
fn measure(port: &mut MpiPort, rounds: usize) {
    let (me, _) = port.rank_size();
    for (op, bytes, reps) in
        [(WireOp::Ping, 8, 10_000u64), (WireOp::Send { window: 64 }, 1 << 20, 10)]
    {
        let (mut out, mut into) = (filled(me, bytes), vec![0u8; bytes]);
        let mut part = part(port, op, bytes, &[0, 1]);
        let ping = op == WireOp::Ping;
        part.send[0] = if me == 0 || ping { span(&mut out) } else { LocalMemory::default() };
        part.recv[0] = if me == 1 || ping { span(&mut into) } else { LocalMemory::default() };
        let (id, offer) = port.bind(&[part], RepeatMode::Streaming).unwrap();
        port.join(id, &[offer.clone(), offer]).unwrap();
        port.run(id, reps, &Nowhere).unwrap();
        let times: Vec<f64> = (0..rounds)
            .map(|_| port.run(id, reps, &Nowhere).unwrap()[0][0] / reps as f64)
            .collect();
        port.release(id).unwrap();
        let ns = median(times);
        if me == 0 && ping {
            println!("8 B: {:.3} us one way", ns / 2e3);
        } else if me == 0 {
            println!("1 MiB: {:.3} GB/s", 64.0 * bytes as f64 / ns);
        }
    }
}
