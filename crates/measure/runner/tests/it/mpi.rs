//! MPI with real processes: this file is both the tests, which call `mpirun`, and what the processes
//! do. `PATHLINE_TEST_MPICH`, `PATHLINE_TEST_OPENMPI` and `PATHLINE_TEST_MPI_ABI` each name an
//! `mpirun`, of the last its MPICH with a library of the standard ABI.
//!
//! For figures: `PATHLINE_TEST_MPI_MEETING=NEW_FILE PATHLINE_TEST_MPI_ROLE=100 mpirun -n 2 THIS_BINARY
//! --exact mpi::one_process --nocapture` takes the median of 100 rounds, and the role `huge` sends more
//! than 2 GiB.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pathline_hal::conformance::transport::{
    CheckedFlow, HeapMemory, RankLink, TransportRank, check_transport,
};
use pathline_hal::{
    CallResult, ExchangeId, FlowPart, LocalMemory, NoBarrier, RankBarrier, RepeatMode,
    TransportPort,
};
use pathline_host::clock::pause;
use pathline_schema::{
    AtomicOp, Collective, ElementReduction, ElementType, MessageOp, OverlapWork, READ_BACK, Rank,
    ReduceOp, Transport, Unit, WindowKind, WindowSync, WireOp,
};
use pathline_stub::need::missing;
use pathline_transport::{BarrierSegment, MpiPort, SharedBarrier, mpi_controls, open_mpi};

/// The role of a process of the test.
const ROLE: &str = "PATHLINE_TEST_MPI_ROLE";
/// The interface that its library is to have.
const ABI: &str = "PATHLINE_TEST_MPI_EXPECTED";
/// The file through which its processes find where they meet.
const MEETING: &str = "PATHLINE_TEST_MPI_MEETING";
/// Seconds that a launch may take: ten times what it takes on two idle cores.
const LAUNCH_TIMEOUT: &str = "100";

/// Processes that wait by spinning: one launch at a time has the cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// An MPI to test with.
struct Mpi {
    name: &'static str,
    variable: &'static str,
    /// The interface of its library.
    abi: &'static str,
    /// The library next to its launcher, if a search would find another one.
    library: Option<&'static str>,
}

impl Mpi {
    fn mpirun(&self, ranks: usize, role: &str) -> Option<(bool, String)> {
        self.mpirun_with(ranks, role, &[])
    }

    fn mpirun_with(
        &self,
        ranks: usize,
        role: &str,
        env: &[(&str, &str)],
    ) -> Option<(bool, String)> {
        let Some(launcher) = std::env::var_os(self.variable).map(PathBuf::from) else {
            missing(self.name, &format!("{} names no mpirun", self.variable));
            return None;
        };
        let prefix = launcher.parent().and_then(Path::parent).unwrap();
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", LAUNCH_TIMEOUT])
            .arg(&launcher)
            .args(["-n", &ranks.to_string()])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "mpi::one_process", "--nocapture", "--test-threads", "1"])
            .envs(env.iter().copied())
            .env(ROLE, role)
            .env(ABI, self.abi)
            .env(MEETING, folder.path().join("meeting"))
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
                MPI.all_say(2, "truncate", "the error is reported");
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
fn an_error_closes_messages_in_flight() {
    for mpi in [mpich::MPI, standard::MPI] {
        let Some((_, text)) = mpi.mpirun(2, "open") else { continue };
        assert_eq!(text.matches("the memory may go").count(), 1, "{text}");
    }
}

/// Cells of MPICH's queues, an eager limit of Open MPI.
const CELLS: (&str, &str) = ("MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS", "128");
const EAGER: (&str, &str) = ("OMPI_MCA_btl_sm_eager_limit", "65536");

/// Each library reads its own variables in `MPI_Init`, and MPI_T shows with which values.
#[test]
fn what_the_environment_sets_is_read_back() {
    for (mpi, own, other) in [(mpich::MPI, CELLS, EAGER), (openmpi::MPI, EAGER, CELLS)] {
        let Some((succeeded, text)) = mpi.mpirun_with(2, "settings", &[own, other]) else {
            continue;
        };
        // What the environment has stands before it.
        let reads: Vec<&str> = text.split(READ_BACK).skip(1).collect();
        let read = |(name, value): (&str, &str)| {
            let setting = format!("{name}={value}");
            reads.iter().filter(|of| of.split('!').next().unwrap().contains(&setting)).count()
        };
        assert!(succeeded && [read(own), read(other)] == [2, 0], "{text}");
    }
}

/// Without `MPI_Init` and a launcher, a library lists its variables as the environment sets them.
#[test]
fn a_library_lists_its_variables_without_a_launcher() {
    let listed = |mpi: &Mpi, env: &[(&str, &str)]| -> Option<String> {
        let Some(launcher) = std::env::var_os(mpi.variable).map(PathBuf::from) else {
            missing(mpi.name, &format!("{} names no mpirun", mpi.variable));
            return None;
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "mpi::one_process", "--nocapture"]).env(ROLE, "controls");
        // Debian's library is where the loader finds it.
        let prefix = launcher.parent().and_then(Path::parent).unwrap();
        if prefix != Path::new("/usr") {
            command.env("PATHLINE_MPI", prefix);
        }
        let out = command.envs(env.iter().copied()).output().unwrap();
        Some(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let [algorithm, other] =
        ["MPIR_CVAR_BCAST_INTRA_ALGORITHM", "OMPI_MCA_coll_tuned_bcast_algorithm"];
    if let Some(text) = listed(&mpich::MPI, &[CELLS]) {
        assert!(text.contains("Mpich: cells 128, eager none"), "{text}");
        let text = listed(&mpich::MPI, &[(algorithm, "no-such")]).unwrap();
        assert!(text.contains("refuses: MPI_T_init_thread returns"), "{text}");
        let text = listed(&mpich::MPI, &[(algorithm, "binomial")]).unwrap();
        // Not `auto`, which is 0.
        assert!(text.contains("takes it: Some(true)") && !text.contains("bcast 0"), "{text}");
    }
    if let Some(text) = listed(&openmpi::MPI, &[EAGER]) {
        assert!(text.contains("OpenMpi: cells none, eager 65536"), "{text}");
        // It goes on with its own choice.
        let text = listed(&openmpi::MPI, &[(other, "no-such")]).unwrap();
        assert!(text.contains("bcast 0 (ignore), set: Some(false)"), "{text}");
    }
}

fn list_controls() {
    let controls = mpi_controls(None).unwrap();
    if let Some(why) = &controls.refused {
        println!("refuses: {why}");
    }
    let of = |name: &str| controls.variable(name).map_or("none".to_owned(), |v| v.value_text());
    println!("{:?}: cells {}, eager {}", controls.brand, of(CELLS.0), of(EAGER.0));
    for name in ["MPIR_CVAR_BCAST_INTRA_ALGORITHM", "OMPI_MCA_coll_tuned_bcast_algorithm"] {
        let Some(variable) = controls.variable(name) else { continue };
        let set = variable.is_set_to("no-such");
        println!("takes it: {:?}", variable.takes("binomial"));
        println!("bcast {}, set: {set:?}", variable.value_text());
    }
}

/// The process that `mpirun` starts. Does nothing in the test itself.
#[test]
fn one_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if role == "controls" {
        return list_controls();
    }
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
    let link = Meeting::open(&port);
    match role.as_str() {
        "check" => {
            // Intel's MPI does not report it.
            let carried = facts.carried.as_deref();
            let known =
                ["pml ob1 over one of btl ", "pml ucx", "pml cm over one of mtl ", "device "];
            let knows = |text: &str| known.iter().any(|start| text.starts_with(start));
            assert!(carried.is_some_and(knows) || facts.version.contains("Intel"), "{carried:?}");
            check(&mut port, &link);
            println!("rank {rank}: every byte is right");
        }
        "truncate" => {
            truncate(&mut port);
            // It costs its case alone.
            exchange(&mut port, &link, &[flow(WireOp::Send { window: 4 }, 4096, &[0, 1])]);
            println!("rank {rank}: the error is reported");
        }
        "open" => open(&mut port),
        // No exchange has that number: what follows its calls is the same for all.
        "settings" => println!("{}!", port.engine(ExchangeId(0))),
        "huge" => {
            let bytes = (2 << 30) + (1 << 20);
            exchange(&mut port, &link, &[flow(WireOp::Send { window: 1 }, bytes, &[0, 1])]);
            exchange(
                &mut port,
                &link,
                &[flow(WireOp::group(Collective::Broadcast), bytes, &[0, 1])],
            );
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
        device: Vec::new(),
        positions: mine,
    }
}

/// How ranks meet besides MPI. It carries no offers: every rank knows as much as the others.
struct Meeting {
    ranks: usize,
    barrier: SharedBarrier,
    _room: Option<BarrierSegment>,
}

impl Meeting {
    /// The first rank makes a room and writes its address into the file that `MEETING` names.
    fn open(port: &MpiPort) -> Self {
        let (me, size) = port.rank_size();
        let file = PathBuf::from(std::env::var_os(MEETING).unwrap());
        let room = (me == 0).then(|| BarrierSegment::create(size).unwrap());
        if let Some(room) = &room {
            let part = file.with_extension("part");
            std::fs::write(&part, room.address()).unwrap();
            std::fs::rename(part, &file).unwrap();
        }
        let address = loop {
            if let Ok(address) = std::fs::read_to_string(&file) {
                break address;
            }
            std::thread::yield_now();
        };
        let barrier = SharedBarrier::open(&address, Rank(me), Duration::from_secs(60)).unwrap();
        Self { ranks: size as usize, barrier, _room: room }
    }
}

impl RankBarrier for Meeting {
    fn wait(&self) -> CallResult<()> {
        self.barrier.wait()
    }
}

impl RankLink for Meeting {
    fn share(&self, mine: &[u8]) -> CallResult<Vec<Vec<u8>>> {
        Ok(vec![mine.to_vec(); self.ranks])
    }
}

/// Collectives with non-blocking and persistent calls here.
const STARTED: [Collective; 7] = [
    Collective::Broadcast,
    Collective::Reduce,
    Collective::AllReduce,
    Collective::ReduceScatter,
    Collective::AllGather,
    Collective::AllToAll,
    Collective::Barrier,
];

/// Runs `act` on the ranks of `group`; the other ranks join its barriers, too.
fn with_ranks<T>(
    port: &mut MpiPort,
    link: &Meeting,
    group: &[u32],
    act: impl FnOnce(&mut TransportRank<'_>) -> T,
) -> T {
    let (me, size) = port.rank_size();
    let op = |op| MessageOp::new(Transport::Mpi, op);
    let mut collectives = Vec::new();
    for &of in Collective::ALL {
        collectives.push(op(WireOp::group(of)));
        if of.has_in_place(Transport::Mpi) {
            let reduced = ElementReduction::USUAL;
            let in_place = WireOp::Group { op: of, reduced, in_place: true, unregistered: false };
            collectives.push(op(in_place));
        }
    }
    let reductions = ElementType::ALL
        .iter()
        .flat_map(|&element| ReduceOp::ALL.iter().map(move |&by| ElementReduction { element, by }))
        .filter(|reduced| reduced.misfit(Transport::Mpi).is_none() && !reduced.is_usual());
    // Two processes try every type and operation, four of them some.
    for (nth, reduced) in reductions.enumerate().filter(|(nth, _)| size == 2 || nth % 8 == 0) {
        // 8 types x 4 operations without the usual one: each by one of the three.
        let of = [Collective::AllReduce, Collective::Reduce, Collective::ReduceScatter][nth % 3];
        collectives.push(op(WireOp::reduction(of, reduced)));
    }
    // Two processes suffice for the calls; between more than cores each operation takes long.
    for &of in STARTED.iter().filter(|_| size == 2) {
        collectives.push(op(WireOp::Overlapped { op: of, work: OverlapWork::Nothing }));
        collectives.push(op(WireOp::PersistentGroup { op: of }));
    }
    if size == 2 {
        let (of, work) = (Collective::AllReduce, OverlapWork::ComputeTest);
        collectives.push(op(WireOp::Overlapped { op: of, work }));
    }
    collectives.retain(|wire| has_calls(port, wire.op, group));
    let mut messages: Vec<MessageOp> = [
        WireOp::Ping,
        WireOp::Send { window: 1 },
        WireOp::Send { window: 64 },
        WireOp::PersistentPing,
        WireOp::PersistentSend { window: 16 },
        WireOp::Consume,
        WireOp::Put { window: 1 },
        WireOp::Put { window: 16 },
        WireOp::Get { window: 16 },
    ]
    .map(op)
    .to_vec();
    // Every synchronisation, and every kind of window with two of them.
    let kinds = [None, Some(WindowKind::Allocate), Some(WindowKind::Dynamic)];
    let syncs = [None, Some(WindowSync::Lock), Some(WindowSync::Fence), Some(WindowSync::Pscw)];
    for (window, sync) in kinds.into_iter().flat_map(|kind| syncs.map(|sync| (kind, sync))) {
        if window.is_some() && !matches!(sync, None | Some(WindowSync::Pscw)) {
            continue;
        }
        messages.push(MessageOp { window, sync, ..op(WireOp::Put { window: 4 }) });
        if sync == Some(WindowSync::Pscw) {
            messages.push(MessageOp { window, sync, ..op(WireOp::Get { window: 4 }) });
        }
    }
    let mut atomics: Vec<MessageOp> = AtomicOp::ALL
        .iter()
        .filter(|&&of| of != AtomicOp::Add)
        .map(|&of| op(WireOp::Atomic(of)))
        .collect();
    atomics.push(MessageOp {
        window: Some(WindowKind::Dynamic),
        sync: Some(WindowSync::Pscw),
        ..op(WireOp::Atomic(AtomicOp::Accumulate))
    });
    if size > 2 {
        messages.truncate(2);
        atomics.clear();
    }
    // MPICH 4.0.2 loses a put of 1 B into a window that begins at an odd address.
    let memory = HeapMemory::new(0);
    act(&mut TransportRank {
        me: Rank(me),
        seats: group.iter().map(|&rank| (Rank(rank), Unit::Numa(0))).collect(),
        port,
        memory: &memory,
        link,
        // Between more processes than cores each of these waits for the scheduler.
        messages,
        atomics,
        collectives,
        modes: vec![RepeatMode::Streaming, RepeatMode::Isolated],
        sizes: if size > 2 { vec![8, 65_536] } else { vec![1, 8, 4096, 1 << 20] },
    })
}

/// Whether the library has the calls of an operation; MPI 3 has no persistent collectives.
fn has_calls(port: &mut MpiPort, op: WireOp, group: &[u32]) -> bool {
    let part = part(port, op, 8 * group.len(), group);
    match port.bind(&[part], RepeatMode::Streaming) {
        Ok((id, _)) => {
            port.release(id).unwrap();
            true
        }
        Err(error) => !error.reason.contains("the library lacks"),
    }
}

fn flow(op: WireOp, bytes: u64, group: &[usize]) -> CheckedFlow {
    CheckedFlow { wire: MessageOp::new(Transport::Mpi, op), bytes, group: group.to_vec() }
}

fn exchange(port: &mut MpiPort, link: &Meeting, flows: &[CheckedFlow]) {
    let all: Vec<u32> = (0..port.rank_size().1).collect();
    with_ranks(port, link, &all, |rank| rank.exchange(flows, RepeatMode::Streaming, 3).unwrap());
}

fn check(port: &mut MpiPort, link: &Meeting) {
    let (_, size) = port.rank_size();
    let all: Vec<u32> = (0..size).collect();
    let mut groups = vec![all];
    if size > 2 {
        // The root is not the lowest rank, and not all take part.
        groups.push(vec![size - 1, 0, 1]);
        several(port, link);
    }
    for group in &groups {
        with_ranks(port, link, group, check_transport).unwrap();
    }
    refuse(port);
}

/// Checks that need more than two ranks.
fn several(port: &mut MpiPort, link: &Meeting) {
    let (send, ping) = (WireOp::Send { window: 16 }, WireOp::Ping);
    for bytes in [8, 65_536] {
        let flows = |all: &[(WireOp, [usize; 2])]| -> Vec<CheckedFlow> {
            all.iter().map(|(op, group)| flow(*op, bytes, group)).collect()
        };
        exchange(port, link, &flows(&[(send, [0, 1]), (send, [2, 3])]));
        // A ring, in which everybody sends and receives, and a star of pings.
        let ring = [(send, [0, 1]), (send, [1, 2]), (send, [2, 3]), (send, [3, 0])];
        exchange(port, link, &flows(&ring));
        let star = [(ping, [0, 1]), (ping, [0, 2]), (ping, [3, 0]), (send, [2, 1])];
        exchange(port, link, &flows(&star));
    }
}

/// Impossible exchanges are refused with the reason, on every rank.
fn refuse(port: &mut MpiPort) {
    let (_, size) = port.rank_size();
    let reduced = ElementReduction { element: ElementType::Half, by: ReduceOp::Sum };
    let half = WireOp::reduction(Collective::AllReduce, reduced);
    let sum = WireOp::group(Collective::AllReduce);
    for (op, bytes, ranks, why) in [
        (half, 64, vec![0, 1], "MPI has no type"),
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
    let outcome = port.run(id, 1, &NoBarrier);
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

/// Messages in both directions, of which rank 1 expects one to be shorter than it is. When it
/// fails, the receive of its answer is in flight, which rank 0 never sends: rank 0 waits in vain,
/// and is ended with the job.
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
    if me == 0 {
        // MPICH 5 over UCX does not report that a message was cut off if it came before its receive
        // was posted.
        pause(Duration::from_millis(200));
    }
    // A wait for several refers to statuses for the reason.
    assert_ne!(port.run(id, 1, &NoBarrier).unwrap_err().code, 0);
    port.release(id).unwrap();
    println!("rank {me}: the memory may go");
    // A launcher may drop what it has not forwarded when the job is aborted.
    pause(Duration::from_millis(200));
    port.abort(0);
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Latency of 8 B and rate of windows of 1 MiB, as an equivalent C program prints them.
fn measure(port: &mut MpiPort, rounds: usize) {
    let (me, _) = port.rank_size();
    for (op, bytes, reps) in
        [(WireOp::Ping, 8, 10_000u64), (WireOp::Send { window: 64 }, 1 << 20, 10)]
    {
        let (mut out, mut into) = (vec![1u8; bytes], vec![0u8; bytes]);
        let mut part = part(port, op, bytes, &[0, 1]);
        let ping = op == WireOp::Ping;
        part.send[0] = if me == 0 || ping { span(&mut out) } else { LocalMemory::default() };
        part.recv[0] = if me == 1 || ping { span(&mut into) } else { LocalMemory::default() };
        let (id, offer) = port.bind(&[part], RepeatMode::Streaming).unwrap();
        port.join(id, &[offer.clone(), offer]).unwrap();
        port.run(id, reps, &NoBarrier).unwrap();
        let times: Vec<f64> = (0..rounds)
            .map(|_| port.run(id, reps, &NoBarrier).unwrap()[0][0] / reps as f64)
            .collect();
        port.release(id).unwrap();
        let ns = median(times);
        if me == 0 && ping {
            println!("8 B: {:.3} us per direction", ns / 2e3);
        } else if me == 0 {
            println!("1 MiB: {:.3} GB/s", 64.0 * bytes as f64 / ns);
        }
    }
}
