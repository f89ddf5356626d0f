//! Simulated nodes with known faults, and noise of real runs.

use std::collections::BTreeMap;

use pathline_diagnose::{
    HealthMonitor, HealthPlan, HealthReport, HealthSettings, NextStep, NodeFacts, RoundPace,
    TailKind,
};
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::{CaseOutcome, CaseTimes, Flow, Journal, KernelOp, MemKind, Mover};

/// Time that a process takes before its first round, s: opening the GPUs and allocating.
const PROCESS_START: f64 = 0.3;
/// Length of the blocks of samples that are drawn together, so that neighbours stay alike.
const BLOCK: usize = 4;

/// Residuals of real samples: logarithms of time over the median of their case, in order.
pub(crate) struct RealNoise {
    series: BTreeMap<TailKind, Vec<Vec<f64>>>,
    /// Logarithms of medians of cases over the median of their peers.
    spreads: BTreeMap<TailKind, Vec<f64>>,
}

impl RealNoise {
    /// From copies and kernels of at least 64 MiB in some journals.
    pub(crate) fn new(journals: &[Journal]) -> Self {
        let mut noise = Self { series: BTreeMap::new(), spreads: BTreeMap::new() };
        for journal in journals {
            let mut medians: Vec<(TailKind, String, f64)> = Vec::new();
            for outcome in &journal.outcomes {
                let CaseOutcome::Measured(measured) = outcome else { continue };
                let [flow] = measured.case.timed.as_slice() else { continue };
                let Some(tail) = tail_of(flow) else { continue };
                let times = CaseTimes::slowest_flow(&measured.series).ns;
                if !measured.case.background.is_empty() || times.len() < 2 * BLOCK {
                    continue;
                }
                let median = median(times.clone());
                let residuals = times.iter().map(|ns| (ns / median).ln()).collect();
                // Probes are copies: a kernel that only reads has two states that copies do not have.
                let copies = match flow.by {
                    Mover::Kernel { variant, .. } => variant.op == KernelOp::Copy,
                    _ => true,
                };
                if copies {
                    noise.series.entry(tail).or_default().push(residuals);
                }
                let reps = measured.series[0].reps as f64;
                let by = flow.by.to_string();
                let variant = by.split_once('[').map_or("", |(_, variant)| variant).to_owned();
                let by_sender = flow.by.at() == flow.src.unit;
                let (src, dst, kind) = (flow.src.mem, flow.dst.mem, flow.by.kind());
                let bytes = flow.bytes;
                let class = format!("{tail:?} {src} {dst} {kind} {variant} {by_sender} {bytes}");
                medians.push((tail, class, bytes.as_f64() * reps / median));
            }
            for (tail, class, rate) in &medians {
                let equal: Vec<f64> =
                    medians.iter().filter(|m| m.1 == *class).map(|m| m.2).collect();
                if equal.len() >= 4 {
                    noise.spreads.entry(*tail).or_default().push((median(equal) / rate).ln());
                }
            }
        }
        noise
    }

    fn block<'n>(&'n self, tail: TailKind, random: &mut fastrand::Rng) -> (&'n [f64], usize) {
        let known = &self.series[&tail];
        let series = &known[random.usize(..known.len())];
        (series, random.usize(..series.len()))
    }

    fn spread(&self, tail: TailKind, random: &mut fastrand::Rng) -> f64 {
        let known = &self.spreads[&tail];
        known[random.usize(..known.len())]
    }

    /// Number of series and of medians of a kind.
    pub(crate) fn counts(&self, tail: TailKind) -> (usize, usize) {
        (self.series[&tail].len(), self.spreads[&tail].len())
    }
}

fn tail_of(flow: &Flow) -> Option<TailKind> {
    let steady = |mem| matches!(mem, MemKind::Vram | MemKind::Pinned | MemKind::Reg);
    let rated = flow.by.has_rate() && !flow.by.is_chase() && flow.bytes.0 >= 64 << 20;
    let known = matches!(flow.by, Mover::Dma { .. } | Mover::Kernel { .. });
    if !rated || !known || !steady(flow.src.mem) || !steady(flow.dst.mem) {
        return None;
    }
    match (flow.src.unit.gpu(), flow.dst.unit.gpu()) {
        (Some(a), Some(b)) if a != b => Some(TailKind::GpuLink),
        (Some(_), Some(_)) => Some(TailKind::Local),
        _ => Some(TailKind::HostLink),
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A node, its plan, and the times that its probes take if it is healthy.
pub(crate) struct TestNode {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) plan: HealthPlan,
    pub(crate) base_ns: Vec<f64>,
}

impl TestNode {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let desc = MachineDesc::parse(name, text).unwrap();
        let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
        let plan = HealthPlan::new(&desc.topology(), Some(&network), 0.03);
        let base_ns = times(&plan, &network);
        Self { name: name.into(), text: text.into(), plan, base_ns }
    }

    /// Factors on the times of its probes if its description is changed as `edit` does.
    pub(crate) fn edited(&self, edit: impl Fn(&str) -> String) -> Vec<f64> {
        let text = edit(&self.text);
        assert_ne!(text, self.text, "{}: the edit changes nothing", self.name);
        let desc = MachineDesc::parse(&self.name, &text).unwrap();
        let network = Network::with_faults(&desc, RuntimeEnv::default(), desc.faults()).unwrap();
        let slow = times(&self.plan, &network);
        slow.iter().zip(&self.base_ns).map(|(slow, base)| slow / base).collect()
    }

    /// A factor on the times of the probes with such a label.
    pub(crate) fn factors(&self, is_meant: impl Fn(&str) -> bool, factor: f64) -> Vec<f64> {
        let of = |label: &str| if is_meant(label) { factor } else { 1.0 };
        self.plan.probes.iter().map(|probe| of(&probe.label)).collect()
    }
}

fn times(plan: &HealthPlan, network: &Network) -> Vec<f64> {
    let time = |case| network.predict(case).unwrap()[0].time.0;
    plan.probes.iter().map(|probe| time(&probe.case)).collect()
}

/// How often processes are in a slow state, and how slow it is.
#[derive(Clone, Copy)]
pub(crate) struct ProcessStates {
    /// Share of processes, for each path between GPUs, and the factor on its time.
    pub(crate) gpu: (f64, f64),
    /// The same for paths to the host.
    pub(crate) host: (f64, f64),
}

/// What real hosts had: 2 % of processes with a path to the host 5 to 10 % slower, and none of some
/// hundred between GPUs; 0.1 % of them are given 1 %.
pub(crate) const REAL_STATES: ProcessStates =
    ProcessStates { gpu: (0.001, 1.01), host: (0.02, 1.07) };

/// What a run of `health` gave.
pub(crate) struct SimulatedRun {
    pub(crate) report: HealthReport,
    /// Virtual time until the verdict, s.
    #[allow(dead_code, reason = "the benchmark prints it")]
    pub(crate) seconds: f64,
    /// Median time of each probe in the first process, ns.
    pub(crate) medians: Vec<f64>,
}

/// Runs `health` on a node whose probes take `factors` times as long as they should, until it is
/// decided or `budget` seconds of virtual time are over.
pub(crate) fn run(
    node: &TestNode,
    factors: &[f64],
    noise: &RealNoise,
    states: ProcessStates,
    budget: f64,
    seed: u64,
) -> SimulatedRun {
    run_at(node, noise, states, budget, seed, &mut |_, _, probe| factors[probe])
}

/// The same with factors by process, second since the check began, and probe.
pub(crate) fn run_at(
    node: &TestNode,
    noise: &RealNoise,
    states: ProcessStates,
    budget: f64,
    seed: u64,
    factor: &mut dyn FnMut(usize, f64, usize) -> f64,
) -> SimulatedRun {
    let mut random = fastrand::Rng::with_seed(seed);
    let tails: Vec<TailKind> =
        node.plan.probes.iter().map(|probe| node.plan.classes[probe.class].tail).collect();
    let of_node = draw_node(&tails, noise, &mut random);
    let mut monitor = HealthMonitor::new(&node.plan, HealthSettings::default());
    let (mut process, mut seconds) = (0, PROCESS_START);
    let mut facts = NodeFacts::default();
    let mut state = draw_states(&tails, states, noise, &mut random);
    let mut blocks: Vec<(&[f64], usize)> = Vec::new();
    let mut first: Vec<Vec<f64>> = vec![Vec::new(); tails.len()];
    let mut pace = RoundPace::new(budget);
    pace.begin_process(seconds, true);
    let mut begun: Option<Vec<usize>> = None;
    for round in 0.. {
        let mut step = begun.take().map_or_else(|| monitor.next_step(), NextStep::MoreRounds);
        if let NextStep::Watch(_) = step {
            match pace.next_round(seconds, random.f64()) {
                Some(at) => seconds = seconds.max(at),
                None => step = monitor.after_watch(),
            }
        }
        let probes = match step {
            NextStep::Decided => break,
            NextStep::MoreRounds(probes) | NextStep::Watch(probes) => probes,
            NextStep::FreshProcess(probes) => {
                process += 1;
                seconds += PROCESS_START;
                state = draw_states(&tails, states, noise, &mut random);
                pace.begin_process(seconds, 2 * probes.len() > node.plan.standing);
                begun = Some(probes);
                continue;
            }
        };
        if seconds > budget {
            facts.stopped = Some(format!("the budget of {budget} s is over"));
            break;
        }
        if round % BLOCK == 0 || blocks.is_empty() {
            blocks = tails.iter().map(|&t| noise.block(t, &mut random)).collect();
        }
        let mut times = vec![None; tails.len()];
        for probe in probes {
            let (series, from) = blocks[probe];
            let residual = series[(from + round % BLOCK) % series.len()];
            let factor = factor(process, seconds, probe) * state[probe];
            let ns = node.base_ns[probe] * factor * (of_node[probe] + residual).exp();
            seconds += ns / 1e9 + 20e-6;
            times[probe] = Some(ns);
            if process == 0 {
                first[probe].push(ns);
            }
        }
        monitor.add_round(process, &times);
        pace.end_round();
    }
    let medians = first.into_iter().take(node.plan.standing).map(median).collect();
    SimulatedRun { report: monitor.report(&facts), seconds, medians }
}

/// Logarithms of what each path of one node takes more than it should. Differences between links are the
/// node's; those between paths to the host belong to the process, as where its pages lie. Two hosts of one
/// kind differed by 0.1 % between GPUs and 0.2 % to the host.
fn draw_node(tails: &[TailKind], noise: &RealNoise, random: &mut fastrand::Rng) -> Vec<f64> {
    let (gpu, host) = ((random.f64() - 0.5) * 0.002, (random.f64() - 0.5) * 0.004);
    let one = |&tail: &TailKind| match tail {
        TailKind::HostLink => host,
        tail => gpu + noise.spread(tail, random),
    };
    tails.iter().map(one).collect()
}

/// Factors that one process has on all of its times.
fn draw_states(
    tails: &[TailKind],
    states: ProcessStates,
    noise: &RealNoise,
    random: &mut fastrand::Rng,
) -> Vec<f64> {
    let one = |&tail: &TailKind| {
        let host = matches!(tail, TailKind::HostLink | TailKind::Latency);
        let (share, factor) = if host { states.host } else { states.gpu };
        let state = if random.f64() < share { factor } else { 1.0 };
        if host { state * noise.spread(TailKind::HostLink, random).exp() } else { state }
    };
    tails.iter().map(one).collect()
}

/// The description of a node of 8 GPUs with other links between them: `(a, b, width)`, all of one kind.
fn with_links(
    preset: &str,
    name: &str,
    kind: &str,
    each: f64,
    links: &[(u32, u32, u32)],
) -> String {
    let presets = MachineDesc::presets();
    let text = presets.iter().find(|(known, _)| *known == preset).unwrap().1;
    let own_name = format!("name = \"{preset}\"");
    assert!(text.contains(&own_name));
    let text = text.replace(&own_name, &format!("name = \"{name}\""));
    let is_kept = |line: &&str| {
        let link = line.trim_start().starts_with("{ a = ");
        let route = line.trim_start().starts_with("{ src = ");
        let between = line.contains("switch") || line.matches("\"gpu").count() == 2;
        !(route || link && between)
    };
    let kept: Vec<&str> = text.lines().filter(is_kept).collect();
    let row = |(a, b, width): &(u32, u32, u32)| {
        format!(
            "  {{ a = \"gpu{a}\", b = \"gpu{b}\", kind = \"{kind}\", width = {width}, each_gbs = {each} }},"
        )
    };
    let rows: Vec<String> = links.iter().map(row).collect();
    kept.join("\n").replacen("links = [", &format!("links = [\n{}", rows.join("\n")), 1)
}

/// The presets, and three nodes that no code was written for: a full mesh, a hybrid cube mesh and a ring
/// with chords.
pub(crate) fn nodes() -> Vec<TestNode> {
    let preset = |name: &str| {
        let text = MachineDesc::presets().iter().find(|(known, _)| *known == name).unwrap().1;
        TestNode::new(name, text)
    };
    let mesh: Vec<(u32, u32, u32)> =
        (0..8).flat_map(|a| (a + 1..8).map(move |b| (a, b, 2))).collect();
    // Two quads joined corner by corner; widths as in servers of that kind.
    let quad = |o: u32| {
        [(0, 1, 1), (0, 2, 1), (0, 3, 2), (1, 2, 2), (1, 3, 1), (2, 3, 2)]
            .map(|(a, b, width)| (a + o, b + o, width))
    };
    let between = [(0, 4, 2), (1, 5, 2), (2, 6, 1), (3, 7, 1)];
    let cube: Vec<(u32, u32, u32)> = quad(0).into_iter().chain(quad(4)).chain(between).collect();
    let chords = (0..4).map(|a| (a, a + 4, 1));
    let ring: Vec<(u32, u32, u32)> = (0..8).map(|a| (a, (a + 1) % 8, 2)).chain(chords).collect();
    vec![
        preset("mi250x"),
        preset("hgx-h200"),
        TestNode::new("full-mesh", &with_links("mi250x", "full-mesh", "xgmi", 64.0, &mesh)),
        TestNode::new("cube-mesh", &with_links("hgx-h200", "cube-mesh", "nvlink", 25.0, &cube)),
        TestNode::new("ring", &with_links("hgx-h200", "ring", "nvlink", 26.5625, &ring)),
    ]
}

/// Descriptions of a node with one link less, or half the speed of a single link, between two units: the
/// name of the pair, and the factors on the probes.
pub(crate) fn lost_links(node: &TestNode) -> Vec<(String, Vec<f64>)> {
    let is_link = |line: &&str| line.trim_start().starts_with("{ a = ");
    let field = |line: &str, key: &str| -> String {
        let from = line.find(key).unwrap() + key.len();
        let value = line[from..].trim_start_matches([' ', '=', '"']);
        value.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect()
    };
    let mut found = Vec::new();
    for line in node.text.lines().filter(is_link) {
        let (a, b) = (field(line, " a ="), field(line, " b ="));
        let width: u32 = field(line, "width =").parse().unwrap();
        let each: f64 = field(line, "each_gbs =").parse().unwrap();
        if a.starts_with("numa") {
            continue;
        }
        let less = if width > 1 {
            line.replace(&format!("width = {width},"), &format!("width = {},", width - 1))
        } else {
            line.replace(&format!("each_gbs = {each}"), &format!("each_gbs = {}", each / 2.0))
        };
        let factors = node.edited(|text| text.replacen(line, &less, 1));
        found.push((format!("{a}-{b}"), factors));
    }
    found
}

/// Whether the first culprit is the link between two units, `gpu0-gpu1`, `gpu3-switch2`.
pub(crate) fn names_link(report: &HealthReport, ends: &str) -> bool {
    let (a, b) = ends.split_once('-').unwrap();
    let b = if b.starts_with("switch") { "switches" } else { b };
    report.culprits.first().is_some_and(|culprit| {
        let name = &culprit.element;
        name.contains(a) && name.contains(b) && !name.contains(" and ")
    })
}
