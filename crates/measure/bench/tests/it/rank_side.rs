//! A rank's memory and the port that moves it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pathline_bench::RankSide;
use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{
    CallError, CallResult, ExchangeId, FlowPart, GroupLayout, Machine, NoBarrier, RankBarrier,
    RepeatMode, TransportPort,
};
use pathline_schema::{Bytes, Case, CpuSet, Rank, RankMember, Severity, Transport, VerifyResult};

/// What a port was asked for.
#[derive(Default)]
struct PortLog {
    parts: Vec<FlowPart>,
    paces: Vec<RepeatMode>,
    /// Per step: its exchange and what it was.
    steps: Vec<String>,
    avoided: String,
}

/// A port that stands for all other ranks: it compares what is sent and writes what is received.
struct Peers<'m> {
    machine: &'m Machine,
    via: Transport,
    case: Case,
    me: u32,
    bound: Vec<Vec<FlowPart>>,
    released: Option<Severity>,
    log: Rc<RefCell<PortLog>>,
}

impl Peers<'_> {
    fn carry(&self, id: ExchangeId) -> CallResult<()> {
        let flow = self.case.timed[0];
        let wire = flow.by.wire().unwrap();
        let mut step = format!("run {}", id.0);
        for part in &self.bound[id.0 as usize] {
            assert_eq!(part.short_buffer(), None);
            for (nth, &at) in part.positions.iter().enumerate() {
                assert_eq!(part.group[at].0, Rank(self.me));
                let position = self.me - flow.src.rank.0;
                let count = part.group.len();
                let layout = GroupLayout::new(wire, position as usize, count, flow.bytes.0, 0);
                let layout = layout.unwrap();
                let (send_at, recv_at) = layout.in_place.unwrap_or_default();
                let (send, recv) = (part.send[nth], part.recv[nth]);
                for &(offset, bytes, seed) in layout.fills.iter().filter(|_| send.bytes > 0) {
                    let address = send.address - send_at + offset;
                    let wrong = self.machine.host.check(address, Bytes(bytes), seed)?;
                    step += if wrong.is_none() { " sent" } else { " stale" };
                }
                for &(offset, bytes, seed) in layout.checks.iter().filter(|_| recv.bytes > 0) {
                    let address = recv.address - recv_at + offset;
                    self.machine.host.fill(address, Bytes(bytes), seed, false)?;
                    step += " received";
                }
            }
        }
        self.log.borrow_mut().steps.push(step);
        Ok(())
    }
}

impl TransportPort for Peers<'_> {
    fn via(&self) -> Transport {
        self.via
    }
    fn library(&self) -> String {
        String::new()
    }
    fn avoid_cpus(&mut self, cpus: &CpuSet) {
        self.log.borrow_mut().avoided = cpus.to_string();
    }
    fn bind(&mut self, parts: &[FlowPart], pace: RepeatMode) -> CallResult<(ExchangeId, Vec<u8>)> {
        self.log.borrow_mut().parts.extend_from_slice(parts);
        self.log.borrow_mut().paces.push(pace);
        self.bound.push(parts.to_vec());
        let id = self.bound.len() - 1;
        Ok((ExchangeId(id as u64), vec![id as u8 + 7]))
    }
    fn join(&mut self, id: ExchangeId, offers: &[Vec<u8>]) -> CallResult<()> {
        self.log.borrow_mut().steps.push(format!("join {} {offers:?}", id.0));
        Ok(())
    }
    fn run(&mut self, id: ExchangeId, reps: u64, _: &dyn RankBarrier) -> CallResult<Vec<Vec<f64>>> {
        (0..reps).try_for_each(|_| self.carry(id))?;
        Ok(vec![vec![5.0]])
    }
    fn engine(&self, id: ExchangeId) -> String {
        format!("library {}", id.0)
    }
    fn disconnect(&mut self, id: ExchangeId) -> Vec<ExchangeId> {
        (0..=id.0).map(ExchangeId).collect()
    }
    fn release(&mut self, id: ExchangeId) -> CallResult<()> {
        self.log.borrow_mut().steps.push(format!("release {}", id.0));
        let failed = self.released.filter(|_| id.0 == 0);
        let error = |severity| CallError::new(severity, "release", "a case", "still in flight");
        failed.map_or(Ok(()), |severity| Err(error(severity)))
    }
}

#[derive(Default)]
struct Counted(Cell<usize>);

impl RankBarrier for Counted {
    fn wait(&self) -> CallResult<()> {
        self.0.set(self.0.get() + 1);
        Ok(())
    }
}

fn member(rank: u32) -> RankMember {
    RankMember { rank: Rank(rank), gpus: vec![rank, rank + 4], numa: 1, ..RankMember::default() }
}

fn machine() -> Machine {
    let desc = MachineDesc::preset("mi250x").unwrap();
    pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap()
}

/// Rank `me` of three, with a port for each transport of the cases.
fn side<'m>(
    machine: &'m Machine,
    me: u32,
    cases: &[&str],
    released: Option<Severity>,
) -> (RankSide<'m>, Rc<RefCell<PortLog>>) {
    let log = Rc::default();
    let port = |text: &&str| {
        let case: Case = text.parse().expect(text);
        let wire = case.timed[0].by.wire()?;
        let (via, bound) = (wire.via.carrier(), Vec::new());
        let log = Rc::clone(&log);
        Some(Box::new(Peers { machine, via, case, me, bound, released, log }) as Box<_>)
    };
    let mut side = RankSide::new(machine, Rank(me), cases.iter().filter_map(port).collect());
    side.know((0..3).map(member).collect());
    (side, log)
}

/// Whether rank 0's memory of a case stays allocated after the case is released.
fn outlives_release(case: &str, released: Severity) -> bool {
    let machine = machine();
    let (mut side, log) = side(&machine, 0, &[case], Some(released));
    side.bind(ExchangeId(1), &case.parse().unwrap(), &CpuSet::default()).unwrap();
    let error = side.release(ExchangeId(1)).unwrap_err();
    assert_eq!(error.severity, released);
    let span = log.borrow().parts[0].send[0];
    machine.host.fill(span.address, Bytes(span.bytes), 1, false).is_ok()
}

#[test]
fn memory_that_a_library_may_still_reach_is_not_freed() {
    // The second: memory of the host that stands in for a GPU's, of two exchanges of which one fails.
    for case in [
        "r0.numa0.paged > r1.numa0.paged by mpi@numa0[send-w4] x 64KiB",
        "r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[ping] x 64KiB",
    ] {
        assert!(outlives_release(case, Severity::Sticky));
        assert!(!outlives_release(case, Severity::Transient));
    }
}

/// Case, rank, steps of one operation: what the library sends holds the pattern by then, and what it delivers
/// arrives in the memory that the check compares.
const OPERATIONS: [(&str, u32, &[&str]); 11] = [
    ("r0.numa0.paged > r1.numa1.paged by mpi@numa0[send-w4] x 64KiB", 0, &["run 0 sent"]),
    ("r0.numa0.paged > r1.numa1.paged by mpi@numa0[send-w4] x 64KiB", 1, &["run 0 received"]),
    ("r0.numa0.paged > r1.numa1.paged by mpi@numa0[send-w4] x 64KiB", 2, &["run 0"]),
    ("r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[send-w4] x 64KiB", 0, &["run 0 sent"]),
    ("r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[send-w4] x 64KiB", 1, &["run 0 received"]),
    ("r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[send-w4] x 64KiB", 2, &["run 0"]),
    (
        "r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[ping] x 8B",
        0,
        &["run 0 sent", "run 1 received"],
    ),
    (
        "r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[ping] x 8B",
        1,
        &["run 0 received", "run 1 sent"],
    ),
    (
        "r0.gpu0.vram > r2.gpu2.vram by mpi-staged@gpu0[all_gather-inplace] x 12KiB",
        1,
        &["run 0 sent received received received"],
    ),
    (
        "r0.gpu0.vram > r2.gpu2.vram by mpi-staged@gpu0[all_gather] x 12KiB",
        2,
        &["run 0 sent received received received"],
    ),
    (
        "r0.numa0.paged > r2.numa1.paged by mpi@numa0[all_gather-inplace] x 12KiB",
        0,
        &["run 0 sent received received received"],
    ),
];

#[test]
fn a_rank_sends_its_pattern_and_compares_what_arrives() {
    for (text, me, steps) in OPERATIONS {
        for isolated in [false, true] {
            let text = format!("{text}{}", if isolated { " isolated" } else { "" });
            let case: Case = text.parse().expect(&text);
            let machine = machine();
            let (mut side, log) = side(&machine, me, &[&text], None);
            let id = ExchangeId(9);
            side.bind(id, &case, &"3-5".parse().unwrap()).expect(&text);
            assert_eq!(log.borrow().avoided, "3-5");
            side.spoil(id).unwrap();
            let receives = steps.iter().any(|step| step.contains("received"));
            assert_eq!(side.check(id).is_err(), receives, "{text}");
            let barrier = Counted::default();
            let sample = side.run(id, 2, &barrier).unwrap();
            assert_eq!(side.check(id).unwrap(), VerifyResult::Verified, "{text} of rank {me}");
            let all: Vec<&str> = steps.iter().chain(steps).copied().collect();
            assert_eq!(log.borrow().steps, all, "{text} of rank {me}");
            side.spoil(id).unwrap();
            assert_eq!(side.check(id).is_err(), receives, "{text}");
            if !text.contains("staged") {
                assert_eq!(sample.times, [[5.0]]);
                let pace = if isolated { RepeatMode::Isolated } else { RepeatMode::Streaming };
                assert_eq!(log.borrow().paces, [pace]);
                continue;
            }
            // Together, or each with a barrier before it; none of a rank without a part.
            let laps = if isolated { 2 } else { 1 };
            assert_eq!(barrier.0.get(), laps, "{text}");
            let is_idle = log.borrow().parts[0].is_idle();
            assert_eq!(sample.times[0].len(), if is_idle { 0 } else { laps }, "{text}");
            assert!(sample.times[0].iter().all(|&ns| ns > 1000.0 && ns < 1e6), "{sample:?}");
            assert_eq!(
                side.engine(id),
                "copy engine, pinned memory, library 0, pinned memory, copy engine"
            );
        }
    }
}

/// Three more copies of 16 MiB take three times as long, at 50 GB/s or less.
#[test]
fn each_message_of_a_window_is_copied() {
    for me in [0, 1] {
        let time = |window: u32| {
            let text =
                format!("r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[send-w{window}] x 16MiB");
            let machine = machine();
            let (mut side, _) = side(&machine, me, &[&text], None);
            side.bind(ExchangeId(0), &text.parse().unwrap(), &CpuSet::default()).unwrap();
            side.run(ExchangeId(0), 1, &NoBarrier).unwrap().times[0][0]
        };
        let (one, four, seven) = (time(1), time(4), time(7));
        let three = 3.0 * f64::from(16 << 20) / 50.0;
        assert!(four - one > three && one < 3.0 * three, "{one} {four}");
        assert!((seven - four - (four - one)).abs() < 0.01 * three, "{one} {four} {seven}");
    }
}

/// Group of a flow, with its positions of rank 0. Ranks 0 to 2 have GPUs 0 and 4, 1 and 5, 2 and 6, and domain 1.
#[test]
fn the_group_of_a_flow_is_its_ends_or_all_between() {
    for (case, expected) in [
        ("r0.numa0.paged > r2.numa1.paged by mpi@numa0[send-w4] x 64KiB", "r0.numa0 r2.numa1; [0]"),
        ("r2.numa0.paged > r1.numa1.paged by mpi@numa0[ping] x 64KiB", "r2.numa0 r1.numa1; []"),
        (
            "r0.numa0.paged > r2.numa0.paged by mpi@numa0[all_reduce] x 64KiB",
            "r0.numa0 r1.numa1 r2.numa0; [0]",
        ),
        (
            "r0.gpu4.vram > r2.gpu6.vram by mpi@gpu4[all_reduce] x 64KiB",
            "r0.gpu4 r1.gpu1 r2.gpu6; [0]",
        ),
        ("r0.gpu0.vram > r0.gpu4.vram by ccl@gpu0[all_reduce] x 64KiB", "r0.gpu0 r0.gpu4; [0, 1]"),
        ("r0.gpu0.vram > r0.gpu3.vram by ccl@gpu0[all_reduce] x 64KiB", "not in this run"),
        ("r0.numa0.paged > r3.numa0.paged by mpi@numa0[send-w4] x 64KiB", "not in this run"),
        ("r0.numa0.paged > r3.numa0.paged by mpi@numa0[all_reduce] x 64KiB", "not in this run"),
    ] {
        let machine = machine();
        let (mut side, log) = side(&machine, 0, &[case], None);
        let bound = side.bind(ExchangeId(0), &case.parse().expect(case), &CpuSet::default());
        if let Err(error) = bound {
            assert!(error.to_string().contains(expected), "{case}: {error}");
            continue;
        }
        let part = log.borrow().parts[0].clone();
        let group: Vec<String> = part.group.iter().map(|(r, u)| format!("r{}.{u}", r.0)).collect();
        assert_eq!(format!("{}; {:?}", group.join(" "), part.positions), expected, "{case}");
        let on_gpu: Vec<bool> = part.positions.iter().map(|_| case.contains("vram")).collect();
        assert_eq!(part.device, on_gpu, "{case}");
    }
}

/// Cases 1 and 2 by MPI, 3 staged, 4 by UCX: the port of MPI ends the connections of its exchanges 0 and 1.
#[test]
fn what_used_a_closed_connection_is_bound_again_and_the_rest_is_kept() {
    let mpi = "r0.numa0.paged > r1.numa0.paged by mpi@numa0[send-w4] x 64KiB";
    let staged = "r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[ping] x 64KiB";
    let ucx = "r0.numa0.paged > r1.numa0.paged by ucx@numa0[send-w4] x 64KiB";
    let io =
        "r0.store0.file > r0.numa0.huge by uring@numa0[seq-read,direct,own,1GiB,q8,n1,t2] x 1MiB";
    let machine = machine();
    let (mut side, log) = side(&machine, 0, &[mpi, ucx], None);
    let cases = [(1, mpi), (2, mpi), (3, staged), (4, ucx)];
    let offers = cases.map(|(id, case)| {
        side.bind(ExchangeId(id), &case.parse().unwrap(), &CpuSet::default()).unwrap()
    });
    // The offers of both directions of the staged case, as its peers read them.
    assert_eq!((&offers[0], &offers[1], &offers[3]), (&vec![7], &vec![8], &vec![7]));
    side.join(ExchangeId(3), &[offers[2].clone(), b"[[1],[2]]".to_vec()]).unwrap();
    assert_eq!(log.borrow().steps, ["join 2 [[9], [1]]", "join 3 [[10], [2]]"]);
    side.join(ExchangeId(2), &[vec![1], vec![2]]).unwrap();
    assert_eq!(log.borrow().steps[2], "join 1 [[1], [2]]");
    let ends = |side: &mut RankSide<'_>, id| side.disconnect(ExchangeId(id));
    let ids = |ids: &[u64]| ids.iter().map(|&id| ExchangeId(id)).collect::<Vec<_>>();
    assert_eq!(ends(&mut side, 2), ids(&[1, 2]));
    assert_eq!(ends(&mut side, 1), ids(&[1]));
    assert_eq!(ends(&mut side, 3), []);
    assert_eq!(ends(&mut side, 4), ids(&[4]));
    assert_eq!(ends(&mut side, 5), []);
    assert_eq!(side.engine(ExchangeId(2)), "library 1");
    assert_eq!(side.engine(ExchangeId(5)), "");
    log.borrow_mut().steps.clear();
    side.release_all();
    assert_eq!(
        log.borrow().steps,
        ["release 0", "release 1", "release 2", "release 3", "release 0"]
    );
    let unbound = ExchangeId(3);
    assert!(side.run(unbound, 1, &NoBarrier).is_err() && side.spoil(unbound).is_err());
    assert!(side.check(unbound).is_err() && side.join(unbound, &[]).is_err());
    side.release(unbound).unwrap();
    assert!(side.bind(ExchangeId(6), &io.parse().unwrap(), &CpuSet::default()).is_err());
}
