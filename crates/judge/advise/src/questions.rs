//! Questions that a topology raises: for each transfer, what a program does that chooses nothing, and
//! what it could do instead.

use pathline_schema::{
    Bytes, Case, CopyAgent, Flow, GpuCaps, IoEngine, IoSpec, KernelOp, KernelVariant, MemKind,
    MessageOp, Mover, MpiControls, Place, Rank, SizeEffects, Topology, Transport, UcxSetting, Unit,
};

use crate::arm::{AdviceChoice, AdviceScope, ArmEnv, TrialArm};
use crate::collective_settings::{CollectiveScope, collective_settings};
use crate::harm_sizes::{at_usual_sizes, guards_of};
use crate::mpi_settings::{MpiScope, MpiSetting, mpi_settings};
use crate::relays::{over_relays, to_all};

/// Sizes of the transfers that are asked about unless a user names some.
const SIZES: [Bytes; 3] = SizeEffects::USUAL;

/// In what pinned memory costs: where the time of that is found, if no model has it.
pub const PIN_TIME: &str = "which suite overhead measures";

/// In the subject of a question about relays: what they add to the plain way.
pub(crate) const MORE_PATHS: &str = " over more paths";

/// Transfers that are asked about where a user names none: between the memory nearest to the first GPU
/// and that GPU, both directions; from it to each of `peers`, alone and next to compute; with several
/// `ranks`, messages from the first to the others' GPUs too.
pub fn usual_subjects(topology: &Topology, peers: &[u32], ranks: u32) -> Vec<Case> {
    let Some(gpu) = topology.gpus.first() else { return Vec::new() };
    let numa = gpu.numa.or_else(|| topology.numa.first().map(|domain| domain.id)).unwrap_or(0);
    let at = Unit::Gpu(gpu.index);
    let place = |unit, mem| Place { rank: Rank(0), unit, mem };
    let device = place(at, MemKind::Vram);
    let host = place(Unit::Numa(numa), MemKind::Paged);
    let dma = Mover::Dma { at };
    let mut subjects = Vec::new();
    for bytes in SIZES {
        subjects.push(Case::single(host, device, dma, bytes));
        subjects.push(Case::single(device, host, dma, bytes));
    }
    for &peer in peers {
        let to = place(Unit::Gpu(peer), MemKind::Vram);
        subjects.extend(SIZES.map(|bytes| Case::single(device, to, dma, bytes)));
    }
    if let (Some(&peer), true) = (peers.first(), gpu.caps().copy_kernel) {
        let to = place(Unit::Gpu(peer), MemKind::Vram);
        let bytes = Bytes::mib(256);
        // A kernel that is bound by memory: one that only computes loses nothing to a copy.
        let triad = Mover::Kernel { at, variant: KernelVariant::standard(KernelOp::Triad) };
        let copy = Flow { src: device, dst: to, by: Mover::Blit { at }, bytes };
        let case = Case::single(device, device, triad, bytes);
        subjects.push(Case { background: vec![copy], ..case });
    }
    for &peer in peers.iter().filter(|&&peer| peer < ranks) {
        let to = Place { rank: Rank(peer), unit: Unit::Gpu(peer), mem: MemKind::Vram };
        let text = |bytes: Bytes| format!("{device} > {to} by mpi@{at}[send-w64] x {bytes}");
        subjects.extend(SIZES.iter().filter_map(|&bytes| text(bytes).parse().ok()));
    }
    subjects
}

/// Reads of files that are asked about where a user names none: 4 KiB at random and 1 MiB in sequence, past
/// the page cache, one at a time.
pub fn usual_file_subjects(stores: u32, numa: u32, span: Bytes) -> Vec<Case> {
    let text = |store: u32, order: &str, bytes: Bytes| {
        format!(
            "r0.store{store}.file > r0.numa{numa}.paged by \
             sync@numa{numa}[{order},direct,shared,{span},q1,n1,t1] x {bytes}"
        )
    };
    let kinds = [("rand-read", Bytes::kib(4)), ("seq-read", Bytes::mib(1))];
    let all = (0..stores).flat_map(|store| kinds.map(|(order, bytes)| text(store, order, bytes)));
    all.filter_map(|text| text.parse().ok()).collect()
}

/// The question that each transfer raises. A transfer without alternatives raises none, and two with
/// the same default raise one. A choice that a variable makes is guarded by the questions about the same
/// ends, which the variable changes too. The processes of messages run on this number of nodes, with the MPI that
/// lists these variables, if one is known.
pub fn questions(
    topology: &Topology,
    subjects: &[Case],
    nodes: u32,
    mpi: Option<&MpiControls>,
) -> Vec<AdviceScope> {
    let mut all: Vec<AdviceScope> = Vec::new();
    for case in subjects {
        let maker = QuestionMaker { topology, case, nodes, mpi };
        let Some(scope) = maker.scope() else { continue };
        let is_known = all.iter().any(|other| other.baseline.task == scope.baseline.task);
        if !is_known {
            let more_paths = maker.more_paths(&scope.ends);
            all.extend(by_who_can_choose(scope).chain(more_paths));
        }
    }
    // A variable of a job acts on sizes that nobody asked about, too.
    let mut known = all.clone();
    for case in subjects.iter().flat_map(at_usual_sizes) {
        let maker = QuestionMaker { topology, case: &case, nodes, mpi };
        let Some(scope) = maker.scope() else { continue };
        if !known.iter().any(|other| other.baseline.task == scope.baseline.task) {
            known.extend(by_who_can_choose(scope));
        }
    }
    let guards: Vec<Vec<Vec<(TrialArm, TrialArm)>>> = (0..all.len())
        .filter_map(|at| all.get(at).map(|scope| (at, scope)))
        .map(|(at, scope)| {
            let guards = |c| guards_of((&all, &known), at, scope, c);
            scope.choices.iter().map(guards).collect()
        })
        .collect();
    for (scope, guards) in all.iter_mut().zip(guards) {
        for (choice, guards) in scope.choices.iter_mut().zip(guards) {
            choice.guards = guards;
            choice.nodes = nodes.max(1);
        }
    }
    all
}

/// A question for those who start a job and can set variables, and one for those who write the program,
/// as far as each has a choice.
fn by_who_can_choose(scope: AdviceScope) -> impl Iterator<Item = AdviceScope> {
    let AdviceScope { subject, ends, baseline, choices } = scope;
    let (by_setting, by_program): (Vec<_>, Vec<_>) =
        choices.into_iter().partition(|choice| !choice.settings.is_empty());
    let size = subject.rsplit(", ").next().unwrap_or("").to_owned();
    let both = !by_setting.is_empty() && !by_program.is_empty();
    let of = move |choices: Vec<AdviceChoice>, who: &str| AdviceScope {
        subject: if both { format!("{ends} {who}, {size}") } else { subject.clone() },
        ends: if both { format!("{ends} {who}") } else { ends.clone() },
        baseline: baseline.clone(),
        choices,
    };
    let all = [of(by_setting, "by a setting"), of(by_program, "in the program")];
    all.into_iter().filter(|scope| !scope.choices.is_empty())
}

/// Another case for the bytes of a question.
struct OtherCase {
    label: String,
    case: Case,
    /// What a user does.
    action: String,
    /// What that costs.
    cost: String,
    /// The variable that does it.
    settings: ArmEnv,
    /// Whether the case does not say so, and its process needs that variable.
    needs_setting: bool,
    /// Why it cannot act.
    ignored: Option<String>,
}

impl OtherCase {
    fn new(label: String, case: Case, action: String, cost: String) -> Self {
        let (settings, needs_setting, ignored) = (ArmEnv::new(), false, None);
        Self { label, case, action, cost, settings, needs_setting, ignored }
    }

    fn set_by(mut self, name: &str, value: &str) -> Self {
        self.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    fn into_choice(self) -> AdviceChoice {
        let arm = TrialArm::of_case(self.label, self.case);
        let env = if self.needs_setting { self.settings.clone() } else { ArmEnv::new() };
        AdviceChoice {
            arm: TrialArm { env, ..arm },
            action: self.action,
            cost: self.cost,
            settings: self.settings,
            guards: Vec::new(),
            ignored: self.ignored,
            nodes: 1,
        }
    }
}

struct QuestionMaker<'a> {
    topology: &'a Topology,
    case: &'a Case,
    nodes: u32,
    mpi: Option<&'a MpiControls>,
}

impl QuestionMaker<'_> {
    fn scope(&self) -> Option<AdviceScope> {
        let [flow] = self.case.timed.as_slice() else { return self.scope_of_loads() };
        let Flow { src, dst, by, bytes } = *flow;
        let (a, b) = (src.unit, dst.unit);
        let (ends, others) = match (a, b, by, self.case.background.as_slice()) {
            (Unit::Numa(_), Unit::Gpu(gpu), Mover::Dma { .. }, []) => {
                (format!("copies from {a} to {b} (H2D)"), self.host(flow, gpu))
            }
            (Unit::Gpu(gpu), Unit::Numa(_), Mover::Dma { .. }, []) => {
                (format!("copies from {a} to {b} (D2H)"), self.host(flow, gpu))
            }
            (Unit::Gpu(from), Unit::Gpu(to), Mover::Dma { .. }, []) if from != to => {
                (format!("copies from {a} to {b}"), self.pair(flow, from, to))
            }
            (Unit::Gpu(gpu), _, Mover::Kernel { .. }, [copy]) => {
                let Flow { src, dst, .. } = copy;
                let ends = format!(
                    "a triad kernel on {a} while {a} copies from {} to {}",
                    src.unit, dst.unit
                );
                (ends, self.compute(copy, gpu))
            }
            (_, _, Mover::Io { at, io }, []) => {
                let order = format!("{}-{}", io.order, io.op);
                (format!("{order} of files, {a} to {b}"), self.files(flow, at, &io))
            }
            (_, _, Mover::Wire { wire, .. }, []) if wire.via == Transport::Ccl => {
                self.collective(flow, &wire)?
            }
            (_, _, Mover::Wire { wire, .. }, []) => {
                let (from, to) = (src.rank.0, dst.rank.0);
                let ends = match wire.op.collective() {
                    Some(op) => {
                        format!("{op} of ranks {from} to {to}, {a} to {b}, by {}", wire.via)
                    }
                    None => format!("messages from r{from} {a} to r{to} {b}"),
                };
                let mut others = self.messages(flow, &wire);
                others.extend(self.mpi_settings(flow));
                (ends, others)
            }
            _ => return None,
        };
        Some(AdviceScope {
            subject: format!("{ends}, {}", bytes.rounded()),
            ends,
            baseline: TrialArm::of_case("default", self.case.clone()),
            choices: others.into_iter().map(OtherCase::into_choice).collect(),
        })
    }

    /// One copy of the same bytes to all GPUs that load at once.
    fn scope_of_loads(&self) -> Option<AdviceScope> {
        let over = to_all(self.topology, &self.case.timed)?;
        if !self.case.background.is_empty() {
            return None;
        }
        let count = self.case.timed.len();
        let (from, bytes) = (over.src.unit, over.bytes.rounded());
        let ends = format!("loads of {count} GPUs from {from} at once");
        let other = OtherCase::new(
            format!("the same bytes to {count} GPUs at once"),
            self.with(over),
            format!(
                "If the {count} GPUs load the same bytes: let each load a part, and take the rest from the \
                 others (pl_copy_to_all of libpathline)"
            ),
            "host memory that cannot be swapped, and links between the GPUs while they load"
                .to_owned(),
        );
        Some(AdviceScope {
            subject: format!("{ends}, {bytes}"),
            ends,
            baseline: TrialArm::of_case("default", self.case.clone()),
            choices: vec![other.into_choice()],
        })
    }

    fn caps(&self, gpu: u32) -> &'static GpuCaps {
        let found = self.topology.gpus.iter().find(|g| g.index == gpu);
        found.map_or(GpuCaps::of_vendor(""), |g| g.caps())
    }

    fn with(&self, flow: Flow) -> Case {
        Case { timed: vec![flow], ..self.case.clone() }
    }

    /// Other kinds of host memory, and a copy kernel over pinned memory.
    fn host(&self, flow: &Flow, gpu: u32) -> Vec<OtherCase> {
        let caps = self.caps(gpu);
        let at = Unit::Gpu(gpu);
        let with = |mem: MemKind, by: Mover| {
            let change = |place: Place| match place.unit {
                Unit::Numa(_) => Place { mem, ..place },
                _ => place,
            };
            self.with(Flow { src: change(flow.src), dst: change(flow.dst), by, ..*flow })
        };
        let [pin, _] = caps.pin_calls;
        let pinned = format!("host memory that cannot be swapped, and time to pin it, {PIN_TIME}");
        let alloc = caps.host_alloc_call;
        let copy = caps.engine_copy;
        let engine = |mem: MemKind| with(mem, Mover::Dma { at });
        let mut all = vec![
            OtherCase::new(
                "pageable, staged copy".to_owned(),
                engine(MemKind::Paged),
                "Leave the host buffer pageable".to_owned(),
                "the call returns only after the host's bytes are staged".to_owned(),
            ),
            OtherCase::new(
                format!("pinned, {copy}"),
                engine(MemKind::Pinned),
                format!("Allocate the host buffer with {alloc}"),
                pinned.clone(),
            ),
            OtherCase::new(
                format!("registered, {copy}"),
                engine(MemKind::Registered),
                format!("Pin the existing host buffer once with {pin}"),
                pinned.clone(),
            ),
        ];
        if caps.memory_grains {
            all.push(OtherCase::new(
                format!("pinned non-coherent, {copy}"),
                engine(MemKind::PinnedNonCoherent),
                format!("Allocate the host buffer with {alloc} and its non-coherent flag"),
                format!("{pinned}; the host sees what a kernel wrote only after it has ended"),
            ));
        }
        if matches!(flow.src.unit, Unit::Numa(_)) {
            all.push(OtherCase::new(
                format!("write-combined, {copy}"),
                engine(MemKind::PinnedWc),
                format!("Allocate the host buffer with {alloc} and its write-combined flag"),
                format!("{pinned}; the CPU reads this buffer uncached"),
            ));
        }
        all.extend(self.nearer_memory(flow, gpu));
        let variant = KernelVariant::standard(KernelOp::Copy);
        all.push(OtherCase::new(
            "pinned, copy kernel".to_owned(),
            with(MemKind::Pinned, Mover::Kernel { at, variant }),
            format!("Allocate the host buffer with {alloc}, and copy it in a kernel"),
            format!("{pinned}, and {}s of the GPU while it copies", caps.unit_name),
        ));
        all.retain(|other| other.case != *self.case);
        all
    }

    /// The same copy with host memory of the GPU's own NUMA domain, where it is of another.
    fn nearer_memory(&self, flow: &Flow, gpu: u32) -> Option<OtherCase> {
        let near = self.topology.gpus.iter().find(|g| g.index == gpu)?.numa?;
        let is_far = |unit: Unit| matches!(unit, Unit::Numa(numa) if numa != near);
        let change = |place: Place| match is_far(place.unit) {
            true => Place { unit: Unit::Numa(near), ..place },
            false => place,
        };
        let nearer = Flow { src: change(flow.src), dst: change(flow.dst), ..*flow };
        let mem = if flow.src.unit.numa().is_some() { flow.src.mem } else { flow.dst.mem };
        (nearer != *flow).then(|| {
            OtherCase::new(
                format!("{mem} memory of numa{near}, the GPU's own"),
                self.with(nearer),
                format!(
                    "Bind the process of gpu{gpu} to its NUMA domain (numactl --cpunodebind={near} --membind={near})"
                ),
                "its threads run there, and memory of other domains is farther".to_owned(),
            )
        })
    }

    /// What relays at the same time add to the plain way, where links are idle: to pinned memory, and between
    /// GPUs to a copy kernel if relays are kernels.
    fn more_paths(&self, ends: &str) -> Option<AdviceScope> {
        let ([flow], []) = (self.case.timed.as_slice(), self.case.background.as_slice()) else {
            return None;
        };
        let Mover::Dma { at } = flow.by else { return None };
        let caps = self.caps(at.gpu()?);
        let over = over_relays(self.topology, flow, caps)?;
        let is_kernel = over.by.paths()?.agent == CopyAgent::Kernel;
        let variant = KernelVariant::standard(KernelOp::Copy);
        let (label, by) = match is_kernel {
            true => (
                format!("a copy kernel at {}", flow.dst.unit),
                Mover::Kernel { at: flow.dst.unit, variant },
            ),
            false => (caps.engine_copy.to_owned(), flow.by),
        };
        let plain = self.with(Flow { src: over.src, dst: over.dst, by, ..*flow });
        let pinned =
            if over.src == flow.src && over.dst == flow.dst { "" } else { "pinned memory, " };
        let ends = format!("{ends}{MORE_PATHS}");
        Some(AdviceScope {
            subject: format!("{ends}, {}", flow.bytes.rounded()),
            ends,
            baseline: TrialArm::of_case(format!("{pinned}{label}"), plain),
            choices: vec![self.relayed(flow, over)?.into_choice()],
        })
    }

    fn relayed(&self, flow: &Flow, over: Flow) -> Option<OtherCase> {
        let gpus = over.by.paths()?.gpus;
        let has_host = [flow.src.unit, flow.dst.unit].iter().any(|unit| unit.numa().is_some());
        let pinned = if has_host { "host memory that cannot be swapped, and " } else { "" };
        Some(OtherCase::new(
            format!("over {} more GPUs at once", gpus.len()),
            self.with(over),
            format!(
                "In addition, copy over {gpus} at the same time, in chunks that the destination pulls"
            ),
            format!("{pinned}links and some memory of {gpus} while the copy lasts"),
        ))
    }

    /// The blit kernel, and kernels at either end.
    fn pair(&self, flow: &Flow, src: u32, dst: u32) -> Vec<OtherCase> {
        let caps = self.caps(src);
        let with = |by: Mover| self.with(Flow { by, ..*flow });
        let mut all = Vec::new();
        let setting = caps.peer_engine_env.or(caps.copy_engine_env);
        if let Some(setting) = setting.filter(|_| caps.copy_kernel) {
            let other = OtherCase::new(
                format!("blit kernel at gpu{dst} ({setting}=0)"),
                self.with(flow.by_copy_kernel()),
                caps.set_copy_kernel("").unwrap_or_default(),
                caps.copy_kernel_cost("the destination", None),
            );
            all.push(other.set_by(setting, "0"));
        }
        let variant = KernelVariant::standard(KernelOp::Copy);
        let ends = [(dst, "destination", "reads"), (src, "source", "writes")];
        for (gpu, end, does) in ends {
            all.push(OtherCase::new(
                format!("copy kernel at gpu{gpu}"),
                with(Mover::Kernel { at: Unit::Gpu(gpu), variant }),
                format!("Copy in a kernel at the {end}, which {does} the memory of its peer"),
                caps.copy_kernel_cost(&format!("the {end}"), None),
            ));
        }
        all
    }

    /// A copy engine for the copy that runs next to compute.
    fn compute(&self, copy: &Flow, gpu: u32) -> Vec<OtherCase> {
        let caps = self.caps(gpu);
        let is_kernel = matches!(copy.by, Mover::Blit { .. } | Mover::Kernel { .. });
        if !is_kernel {
            return Vec::new();
        }
        let engine = Flow { by: Mover::Dma { at: Unit::Gpu(gpu) }, ..*copy };
        let label = format!("{} next to it", caps.engine_copy);
        let case = Case { background: vec![engine], ..self.case.clone() };
        let call = caps.peer_copy_call;
        let action =
            format!("Leave copies that overlap with compute to the {} ({call})", caps.engine_name);
        vec![OtherCase::new(
            label,
            case,
            action,
            "the rate of the copy, where the engine is slower".to_owned(),
        )]
    }

    /// More in flight, by other calls and by more workers.
    fn files(&self, flow: &Flow, at: Unit, io: &IoSpec) -> Vec<OtherCase> {
        // By as little as possible: depth costs memory, workers cost cores.
        let depths = [(IoEngine::Uring, 8, 1), (IoEngine::Uring, 32, 8), (IoEngine::Aio, 32, 8)];
        let cores = self.topology.numa.iter().find(|n| Some(n.id) == at.numa());
        let cores = cores.map_or(1, |domain| domain.cpus.len() as u32).max(1);
        let mut threads = vec![1, 2, 4, 8];
        threads.retain(|&threads| threads <= cores && threads >= io.threads);
        let mut all = Vec::new();
        for &workers in &threads {
            let plain = (io.engine, io.depth, io.batch);
            for (engine, depth, batch) in depths.into_iter().chain([plain]) {
                let slots = IoSpec { engine, depth, batch, threads: workers, ..*io };
                let other = Flow { by: Mover::Io { at, io: slots }, ..*flow };
                let many =
                    if workers == 1 { String::new() } else { format!(", {workers} threads") };
                let call = engine_call(engine);
                all.push(OtherCase::new(
                    format!("{engine}, depth {depth}{many}"),
                    self.with(other),
                    format!("Keep {depth} I/Os in flight with {call}{many}"),
                    match workers {
                        1 => format!(
                            "{} of buffers",
                            Bytes(flow.bytes.0 * u64::from(depth)).rounded()
                        ),
                        n => format!("{n} cores while it waits"),
                    },
                ));
            }
        }
        all.retain(|other| other.case != *self.case);
        all
    }

    /// The other agent of copies, and the settings of UCX that act on such messages.
    fn messages(&self, flow: &Flow, wire: &MessageOp) -> Vec<OtherCase> {
        let Mover::Wire { at, .. } = flow.by else { return Vec::new() };
        let with = |wire: MessageOp| self.with(Flow { by: Mover::Wire { at, wire }, ..*flow });
        let mut all = Vec::new();
        if let (Some(gpu), None) = (at.gpu(), wire.agent) {
            let caps = self.caps(gpu);
            if let Some(setting) = caps.copy_engine_env {
                // Cray MPICH's kernels write; of others the protocol decides.
                let end =
                    if wire.via == Transport::Mpi { "the sender" } else { "the GPU that copies" };
                let other = OtherCase::new(
                    format!("blit kernel at {end} ({setting}=0)"),
                    with(MessageOp { agent: Some(CopyAgent::Kernel), ..*wire }),
                    format!(
                        "Start the job with {setting}=0: a blit kernel at {end} then moves messages, not SDMA"
                    ),
                    caps.copy_kernel_cost(end, None),
                );
                all.push(other.set_by(setting, "0"));
            }
        }
        if wire.via == Transport::Ucx && wire.switch.is_none() {
            for &switch in UcxSetting::ALL {
                let (name, value) = switch.variable();
                let other = OtherCase::new(
                    format!("{name}={value}"),
                    with(MessageOp { switch: Some(switch), ..*wire }),
                    format!("Set {name}={value}"),
                    String::new(),
                );
                all.push(other.set_by(&name, value));
            }
        }
        all
    }

    /// The settings of the MPI that carries messages.
    fn mpi_settings(&self, flow: &Flow) -> Vec<OtherCase> {
        let scope = self.mpi.and_then(|library| MpiScope::new(library, flow, self.nodes));
        let Some(scope) = scope else { return Vec::new() };
        let of = |setting: MpiSetting| {
            let label = setting.label();
            let action = format!("Start the job with {label} ({})", setting.source);
            let cost = setting.cost.to_owned();
            let other = OtherCase::new(label, self.case.clone(), action, cost);
            let (settings, ignored) = (setting.settings, setting.ignored);
            OtherCase { settings, ignored, needs_setting: true, ..other }
        };
        mpi_settings(&scope).into_iter().map(of).collect()
    }

    /// What moves in a collective, and the settings of its library.
    fn collective(&self, flow: &Flow, wire: &MessageOp) -> Option<(String, Vec<OtherCase>)> {
        let op = wire.op.collective()?;
        let scope = CollectiveScope::new(self.topology, flow, op, self.nodes)?;
        let (a, b) = (flow.src.unit, flow.dst.unit);
        let others = collective_settings(&scope).map(|setting| {
            let (name, value) = (setting.name, setting.value);
            let action = format!("Start the job with {name}={value} ({})", setting.source);
            let (label, cost) = (format!("{name}={value}"), setting.cost.to_owned());
            let other = OtherCase::new(label, self.case.clone(), action, cost);
            OtherCase { needs_setting: true, ..other.set_by(name, value) }
        });
        let (library, ranks) = (scope.library(), scope.ranks);
        Some((format!("{op} of {ranks} GPUs, {a} to {b}, by {library}"), others.collect()))
    }
}

/// How programs call an engine.
fn engine_call(engine: IoEngine) -> &'static str {
    match engine {
        IoEngine::Uring | IoEngine::UringPlain | IoEngine::UringPoll => "io_uring",
        IoEngine::Aio => "libaio (io_submit)",
        IoEngine::Gds => "GPU direct",
        _ => "pread and pwrite",
    }
}

#[cfg(test)]
mod tests;
