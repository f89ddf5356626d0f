//! Runs of simulated machines, measured by the engine that measures real ones.

#![allow(dead_code, clippy::unwrap_used, reason = "each test takes what it needs, and may unwrap")]

use std::collections::BTreeSet;
use std::io::BufReader;

use pathline_bench::{
    CaseChooser, JournalSession, LocalExecutor, MachineInfo, PlanScope, RunEvent, RunHeader,
    RunPlan, TimerScope,
};
use pathline_calibrate::NamedRun;
use pathline_flow::routes::RouteTable;
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::{
    Bytes, Case, Flow, Journal, LinkEnd, MemKind, Mover, Ns, Place, RunSettings, Unit,
};
use pathline_sim::SimOptions;

/// Measures cases on a machine with relative noise: 0.01 is 1 % of each operation's time.
pub(crate) fn measure(desc: &MachineDesc, cases: &[Case], noise: f64, seed: u64) -> NamedRun {
    let patterns: Vec<_> = cases.iter().map(|c| c.to_string().parse().unwrap()).collect();
    run(desc, noise, seed, None, &|scope| {
        RunPlan::new(scope, &["overhead".to_owned()], &patterns).unwrap()
    })
}

/// Measures the cases of a suite that `wanted` accepts.
pub(crate) fn measure_suite(
    desc: &MachineDesc,
    suite: &str,
    wanted: &dyn Fn(&Case) -> bool,
    noise: f64,
    seed: u64,
) -> NamedRun {
    run(desc, noise, seed, None, &|scope| {
        let mut plan = RunPlan::new(scope, &[suite.to_owned()], &[]).unwrap();
        plan.entries.retain(|entry| wanted(&entry.case));
        plan
    })
}

/// Makes the chooser of a plan.
type MakeChooser<'a> = &'a dyn Fn(&RunPlan, &PlanScope<'_>) -> Box<dyn CaseChooser>;

/// Measures the suites that `pathline run` measures by default.
pub(crate) fn measure_default(desc: &MachineDesc, noise: f64, seed: u64) -> NamedRun {
    run(desc, noise, seed, None, &|scope| RunPlan::new(scope, &[], &[]).unwrap())
}

/// Measures the cases of a suite that a chooser chooses, each within a time budget.
pub(crate) fn measure_chosen(
    desc: &MachineDesc,
    suite: &str,
    budget: Ns,
    noise: f64,
    seed: u64,
    chooser: MakeChooser<'_>,
) -> NamedRun {
    run(desc, noise, seed, Some(chooser), &|scope| {
        let plan = RunPlan::new(scope, &[suite.to_owned()], &[]).unwrap();
        plan.with_probe_budget(budget)
    })
}

fn run(
    desc: &MachineDesc,
    noise: f64,
    seed: u64,
    chooser: Option<MakeChooser<'_>>,
    plan: &dyn Fn(&PlanScope<'_>) -> RunPlan,
) -> NamedRun {
    let options = SimOptions { seed, jitter: noise, ..SimOptions::default() };
    let machine = pathline_sim::machine_with(desc, RuntimeEnv::default(), &options).unwrap();
    let scope = PlanScope { simulated: true, ..PlanScope::new(&machine.topology, Bytes::gib(256)) };
    let plan = plan(&scope);
    let chooser = chooser.map(|make| make(&plan, &scope));
    let settings = RunSettings {
        case_budget: Ns::ms(60.0),
        max_samples: 20,
        ..pathline_bench::default_settings(Bytes::gib(256))
    };
    let header = RunHeader { host: "test".to_owned(), settings, ..RunHeader::default() };
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    let about = MachineInfo::of(&machine, None, TimerScope::All);
    let mut executor = LocalExecutor::new(&machine, about, settings);
    let now = || "2026-01-01T00:00:00Z".to_owned();
    let session = JournalSession::create(&path).unwrap().with_chooser(chooser);
    session.run(&mut executor, &plan, header, &now, &|| None, &mut |_: RunEvent<'_>| {}).unwrap();
    let journal = Journal::read(BufReader::new(std::fs::File::open(&path).unwrap())).unwrap();
    NamedRun { name: desc.name.clone(), journal }
}

/// All paths of copy engines: host in and out of every GPU at its home, and GPU to GPU, pushed.
pub(crate) fn paths(desc: &MachineDesc) -> Vec<Flow> {
    let topology = desc.topology();
    let home = |g: u32| topology.gpus.iter().find(|x| x.index == g).unwrap().numa.unwrap_or(0);
    let vram = |g: u32| Place::new(Unit::Gpu(g), MemKind::Vram);
    let host = |g: u32| Place::new(Unit::Numa(home(g)), MemKind::Pinned);
    let gpus: Vec<u32> = topology.gpus.iter().map(|g| g.index).collect();
    let mut flows = Vec::new();
    let mut add = |src, dst, at| {
        let by = Mover::Dma { at: Unit::Gpu(at) };
        flows.push(Flow { src, dst, by, bytes: Bytes::mib(64) });
    };
    for &g in &gpus {
        add(host(g), vram(g), g);
        add(vram(g), host(g), g);
        gpus.iter().filter(|&&d| d != g).for_each(|&d| add(vram(g), vram(d), g));
    }
    // As long as 64 MiB at 55 GB/s, by what each does alone.
    let network = Network::new(desc, RuntimeEnv::default()).unwrap();
    for flow in &mut flows {
        let op = network.operation(flow).unwrap();
        let alone = op
            .uses
            .iter()
            .map(|u| network.resources()[u.resource as usize].capacity.0 / u.weight)
            .fold(op.cap.0, f64::min);
        flow.bytes = Bytes::mib((alone * 64.0 / 55.0).round().max(1.0) as u64);
    }
    flows
}

fn case(flows: &[Flow]) -> Case {
    Case::together(flows.to_vec())
}

/// What a twin is fitted from: paths alone at two sizes, pairs that may share something, groups.
pub(crate) fn probes(desc: &MachineDesc, seed: u64) -> Vec<Case> {
    let flows = paths(desc);
    let topology = desc.topology();
    let routes = RouteTable::of(&topology);
    let one_direction = |f: &Flow| -> BTreeSet<(LinkEnd, LinkEnd)> {
        let (Some(s), Some(d)) = (f.src.unit.gpu(), f.dst.unit.gpu()) else {
            return BTreeSet::new();
        };
        let used = routes.in_use(LinkEnd::Gpu(s), LinkEnd::Gpu(d));
        let routes = used.map(|u| u.paths).unwrap_or_default();
        let pair = |p: &pathline_flow::routes::RoutePath| -> Vec<(LinkEnd, LinkEnd)> {
            p.nodes.iter().copied().zip(p.nodes.iter().copied().skip(1)).collect()
        };
        routes.iter().flat_map(pair).collect()
    };
    let steps = |f: &Flow| -> BTreeSet<(LinkEnd, LinkEnd)> {
        one_direction(f).into_iter().flat_map(|(a, b)| [(a, b), (b, a)]).collect()
    };
    let is_host = |f: &Flow| f.src.unit.numa().is_some() || f.dst.unit.numa().is_some();
    let mut cases = Vec::new();
    for flow in &flows {
        cases.push(case(&[*flow]));
        cases.push(case(&[Flow { bytes: Bytes(4096), ..*flow }]));
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    for (i, a) in flows.iter().enumerate() {
        for b in &flows[i + 1..] {
            let ends = |f: &Flow| [f.src.unit, f.dst.unit];
            let meet = ends(a).iter().any(|u| ends(b).contains(u));
            let link = steps(a).intersection(&steps(b)).next().is_some();
            let wanted = (is_host(a) && is_host(b)) || link || (meet && rng.f64() < 0.2);
            if wanted || rng.f64() < 0.01 {
                cases.push(case(&[*a, *b]));
            }
        }
    }
    let gpus = topology.gpus.len() as u32;
    let host = |directions: u8, group: u64| -> Vec<Flow> {
        let of = |f: &&Flow| {
            let (src, dst) = (f.src.unit.gpu(), f.dst.unit.gpu());
            let chosen = |g: Option<u32>| g.is_some_and(|g| group >> g & 1 == 1);
            is_host(f)
                && ((directions & 1 != 0 && chosen(dst)) || (directions & 2 != 0 && chosen(src)))
        };
        flows.iter().filter(of).copied().collect()
    };
    let whole = (1u64 << gpus) - 1;
    let mut groups = vec![whole];
    groups.extend((0..gpus).map(|g| whole & !(1 << g)));
    for size in [2, 4].into_iter().filter(|s| *s < gpus) {
        groups.extend((0..gpus / size).map(|k| ((1 << size) - 1) << (k * size)));
    }
    groups.extend((0..12).map(|_| rng.u64(1..=whole)));
    for group in groups {
        cases.extend(
            (1..=3)
                .map(|directions| host(directions, group))
                .filter(|f| f.len() > 1)
                .map(|f| case(&f)),
        );
    }
    let peers: Vec<Flow> = flows.iter().filter(|f| !is_host(f)).copied().collect();
    for g in 0..gpus {
        for left_out in (0..gpus).filter(|&o| o != g) {
            let from = |f: &&Flow| f.src.unit == Unit::Gpu(g) && f.dst.unit != Unit::Gpu(left_out);
            cases.push(case(&peers.iter().filter(from).copied().collect::<Vec<_>>()));
        }
        let from = |f: &&Flow| f.src.unit == Unit::Gpu(g);
        let to = |f: &&Flow| f.dst.unit == Unit::Gpu(g);
        cases.push(case(&peers.iter().filter(from).copied().collect::<Vec<_>>()));
        cases.push(case(&peers.iter().filter(to).copied().collect::<Vec<_>>()));
    }
    // Flows on a link, in one direction and both: all of them, and all but one.
    let links: BTreeSet<(LinkEnd, LinkEnd)> = flows.iter().flat_map(steps).collect();
    for link in links.iter().filter(|(a, b)| a < b) {
        let passes = |f: &&Flow, link: &(LinkEnd, LinkEnd)| one_direction(f).contains(link);
        let over: Vec<Flow> = flows.iter().filter(|f| passes(f, link)).copied().collect();
        let back: Vec<Flow> =
            flows.iter().filter(|f| passes(f, &(link.1, link.0))).copied().collect();
        for set in [over.clone(), back.clone(), [over, back].concat()] {
            cases.push(case(&set));
            let mut fewer = set;
            if fewer.len() > 3 {
                fewer.remove(rng.usize(0..fewer.len()));
                cases.push(case(&fewer));
            }
        }
    }
    for _ in 0..40 {
        cases.push(random(&flows, &mut rng, 3..=2 * gpus as usize));
    }
    distinct(cases)
}

fn random(flows: &[Flow], rng: &mut fastrand::Rng, n: std::ops::RangeInclusive<usize>) -> Case {
    let n = rng.usize(n).min(flows.len());
    let mut left: Vec<Flow> = flows.to_vec();
    rng.shuffle(&mut left);
    left.truncate(n);
    for flow in &mut left {
        flow.bytes = Bytes(flow.bytes.0 * [1, 2, 4][rng.usize(0..3)] / 2);
    }
    case(&left)
}

/// Sets of 3 to 8 flows that the twin has not seen: half of them of the host only.
pub(crate) fn unseen(desc: &MachineDesc, n: usize, seed: u64) -> Vec<Case> {
    let flows = paths(desc);
    let is_host = |f: &&Flow| f.src.unit.numa().is_some() || f.dst.unit.numa().is_some();
    let host: Vec<Flow> = flows.iter().filter(is_host).copied().collect();
    let mut rng = fastrand::Rng::with_seed(seed);
    let of = |k: usize| if k.is_multiple_of(3) { &host } else { &flows };
    distinct((0..n).map(|k| random(of(k), &mut rng, 3..=8)).collect())
}

fn distinct(cases: Vec<Case>) -> Vec<Case> {
    let mut seen = BTreeSet::new();
    cases.into_iter().filter(|c| !c.timed.is_empty() && seen.insert(c.to_string())).collect()
}
