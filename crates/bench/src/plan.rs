//! Plans: the cases of a run, their order, and which of them cannot be measured here.
//!
//! Pure: opens and allocates nothing.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{
    Bytes, Case, CasePattern, CpuOp, FaultHandling, Flow, IoSpec, MemKind, Mover, Ns, Place, Rank,
    StoreFacts, SuiteId, Topology, Unit, did_you_mean,
};
use serde::{Deserialize, Serialize};

use crate::needs::{is_blocking, needs, needs_driver, page_faults};
use crate::no_match;
use crate::rank_files;
use crate::scope::PlanScope;
use crate::suites::{PROBE_BUDGET, SUITES, SuiteSpec, between, bystander, default_host_cases};

/// Maximum cases sampled in turn. More would delay the first figure of a group too much.
const GROUP: usize = 16;

/// One case of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCase {
    /// The case.
    pub case: Case,
    /// Suites that list it; empty for a pasted case of no suite.
    pub suites: Vec<String>,
    /// Why it cannot be measured here, if known beforehand.
    pub skip: Option<String>,
    /// Cases of one group are sampled in turn, so that drift does not look like a difference.
    pub group: usize,
    /// Environment variables that the process needs and does not have.
    pub env: BTreeMap<String, String>,
    /// Its time budget, if it is a probe; else that of the settings applies.
    #[serde(default)]
    pub budget: Option<Ns>,
}

/// The cases of a run, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunPlan {
    /// Each case once.
    pub entries: Vec<PlannedCase>,
}

impl RunPlan {
    /// Selects cases: those of `suites` (default suites if empty) that match a pattern (all if
    /// there are none). A pattern that is a whole case text adds that case even if no suite lists
    /// it.
    ///
    /// # Errors
    /// A suite does not exist, or a pattern matches nothing.
    pub fn new(
        scope: &PlanScope,
        suites: &[String],
        patterns: &[CasePattern],
    ) -> Result<Self, String> {
        let listed = list(scope, &chosen(scope, suites, patterns)?);
        let mut entries: Vec<PlannedCase> = Vec::new();
        let mut at: BTreeMap<Case, usize> = BTreeMap::new();
        let mut used = vec![false; patterns.len()];
        // Without a suite, the host has the cases that a report needs.
        let by_default = suites.is_empty() && patterns.is_empty();
        let in_default_run = default_host_cases(scope.topology);
        for (suite, case) in listed {
            if by_default && suite.id == SuiteId::Host && !in_default_run(&case) {
                continue;
            }
            // What a model lacks is no part of its plan; a pasted case says so when it is tried.
            if scope.simulated && !between::has_model(&case) {
                continue;
            }
            let budget = suite.cases.are_probes().then_some(PROBE_BUDGET);
            let suite = suite.id.word();
            let hits: Vec<usize> =
                (0..patterns.len()).filter(|&i| patterns[i].matches(&case)).collect();
            hits.iter().for_each(|&i| used[i] = true);
            if hits.is_empty() && !patterns.is_empty() {
                continue;
            }
            match at.get(&case) {
                Some(&i) => {
                    entries[i].suites.push(suite.to_owned());
                    // The largest budget counts.
                    entries[i].budget = entries[i].budget.and(budget);
                }
                None => {
                    at.insert(case.clone(), entries.len());
                    entries.push(PlannedCase {
                        skip: cannot(scope, &case),
                        suites: vec![suite.to_owned()],
                        case,
                        group: 0,
                        env: BTreeMap::new(),
                        budget,
                    });
                }
            }
        }
        for (pattern, used) in patterns.iter().zip(used) {
            match pattern {
                _ if used => {}
                // The same text may be given twice.
                CasePattern::Exact(case) if at.contains_key(case) => {}
                CasePattern::Exact(case) => {
                    let skip = cannot(scope, case);
                    // A typing error, not a case that this machine cannot measure.
                    if let Some(why) =
                        skip.as_ref().and_then(|_| no_match::missing_unit(scope, case))
                    {
                        return Err(format!("'{case}': {why}"));
                    }
                    at.insert(case.clone(), entries.len());
                    entries.push(PlannedCase {
                        skip,
                        suites: Vec::new(),
                        case: case.clone(),
                        group: 0,
                        env: BTreeMap::new(),
                        budget: None,
                    });
                }
                CasePattern::Flow { .. } => {
                    let among = if suites.is_empty() {
                        String::new()
                    } else {
                        format!(" of {}", suites.join(", "))
                    };
                    let why = no_match::explain(scope, pattern, suites);
                    return Err(format!(
                        "no case{among} matches '{pattern}': {why}; `pathline run --dry-run` lists the cases \
                         of this machine"
                    ));
                }
            }
        }
        number_groups(&mut entries);
        Ok(Self { entries })
    }

    /// The same cases with another budget for each probe.
    pub fn with_probe_budget(mut self, budget: Ns) -> Self {
        self.entries.iter_mut().filter_map(|e| e.budget.as_mut()).for_each(|b| *b = budget);
        self
    }

    /// The main paths alone: pinned memory to and from each GPU and copies between GPUs, by copy engine, in
    /// large and in 16 B copies; of the host the largest copies, reads and pointer chases.
    pub fn quick(self) -> Self {
        let largest = self.entries.iter().flat_map(|e| &e.case.timed);
        let largest = largest.filter(|f| is_host_copy(f)).map(|f| f.bytes).max();
        let is_main = |entry: &PlannedCase| {
            let [flow] = entry.case.timed.as_slice() else { return false };
            let is = |suite: SuiteId| entry.suites.iter().any(|s| s == suite.word());
            let copy = matches!(flow.by, Mover::Dma { .. }) && entry.case.background.is_empty();
            let pinned = [flow.src, flow.dst].iter().any(|place| place.mem == MemKind::Pinned);
            let push = flow.by.at() == flow.src.unit;
            (is(SuiteId::HostLink) && copy && pinned)
                || (is(SuiteId::Pairs) && copy && push)
                || (is(SuiteId::Latency) && copy)
                || (is(SuiteId::Host) && is_host_copy(flow) && Some(flow.bytes) == largest)
        };
        let mut entries: Vec<PlannedCase> = self.entries.into_iter().filter(is_main).collect();
        number_groups(&mut entries);
        Self { entries }
    }

    /// How many cases will be tried.
    pub fn runnable(&self) -> usize {
        self.entries.iter().filter(|e| e.skip.is_none()).count()
    }

    /// Why named suites have no case on a machine, a clause for each reason with the command that helps. Empty
    /// if each has one.
    pub fn missing_suites(&self, scope: &PlanScope<'_>, names: &[String]) -> Vec<String> {
        let has = |name: &str| self.entries.iter().any(|e| e.suites.iter().any(|s| s == name));
        let wanted = SUITES.iter().filter(|s| names.iter().any(|name| name == s.id.word()));
        let empty = wanted.filter(|suite| !has(suite.id.word()));
        let mut by_reason: Vec<(String, Vec<&str>)> = Vec::new();
        for suite in empty {
            let why = no_match::explain_suite(scope, suite.id);
            match by_reason.iter_mut().find(|(known, _)| *known == why) {
                Some((_, suites)) => suites.push(suite.id.word()),
                None => by_reason.push((why, vec![suite.id.word()])),
            }
        }
        by_reason.into_iter().map(|(why, suites)| format!("{}: {why}", suites.join(", "))).collect()
    }

    /// Suites that have cases in this plan, in display order, with their numbers of cases.
    pub fn suites(&self) -> Vec<(&'static SuiteSpec, usize)> {
        let present: BTreeSet<&str> =
            self.entries.iter().flat_map(|e| e.suites.iter().map(String::as_str)).collect();
        let count =
            |name: &str| self.entries.iter().filter(|e| e.suites.iter().any(|s| s == name)).count();
        let of = |s: &'static SuiteSpec| (s, count(s.id.word()));
        SUITES.iter().filter(|s| present.contains(s.id.word())).map(of).collect()
    }
}

/// Whether CPU threads copy or read.
fn is_host_copy(flow: &Flow) -> bool {
    matches!(flow.by, Mover::Cpu { work, .. } if matches!(work.op, CpuOp::Copy | CpuOp::Read))
}

/// The suites that are asked for: by name, else all if patterns choose among them, else the
/// default ones.
fn chosen(
    scope: &PlanScope<'_>,
    names: &[String],
    patterns: &[CasePattern],
) -> Result<Vec<&'static SuiteSpec>, String> {
    if names.is_empty() {
        let every = !patterns.is_empty();
        let taken = |s: &&SuiteSpec| (every && !s.cases.are_probes()) || (s.by_default)(scope);
        return Ok(SUITES.iter().filter(taken).collect());
    }
    let known: Vec<&str> = SUITES.iter().map(|s| s.id.word()).collect();
    if let Some(name) = names.iter().find(|n| !known.contains(&n.as_str())) {
        let hint = did_you_mean(name, known.iter().copied());
        let names = if hint.is_empty() { format!(": one of {}", known.join(" ")) } else { hint };
        return Err(format!(
            "no suite is called '{name}'{names}; `pathline run --list` says what they measure"
        ));
    }
    Ok(SUITES.iter().filter(|s| names.iter().any(|n| n == s.id.word())).collect())
}

fn list(scope: &PlanScope<'_>, suites: &[&'static SuiteSpec]) -> Vec<(&'static SuiteSpec, Case)> {
    let tuned = |case| scope.tuned.apply(scope.topology, case);
    let cases = |&s: &&'static SuiteSpec| s.cases.of(scope).into_iter().map(move |c| (s, tuned(c)));
    suites.iter().flat_map(cases).collect()
}

/// The comparison key of a case: cases with the same suite, kind of work and sizes are compared.
fn comparable(entry: &PlannedCase) -> (String, Vec<(&'static str, &'static str, Bytes, bool)>) {
    let kind = |f: &Flow| {
        if f.by.facts().interleaved {
            return (f.by.facts().word, "", f.bytes, f.dst.mem == MemKind::File);
        }
        (f.by.kind(), f.by.operation().unwrap_or_default(), f.bytes, f.by.at() == f.src.unit)
    };
    if let Some(cell) = grid_cell(entry) {
        return (cell, Vec::new());
    }
    let suite = entry.suites.first().cloned().unwrap_or_default();
    (suite, entry.case.timed.iter().map(kind).collect())
}

/// What cases of a cell of suite storage-grid have in common: a difference between host memory and GPUs is
/// that of samples taken in turn.
fn grid_cell(entry: &PlannedCase) -> Option<String> {
    let grid = SuiteId::StorageGrid.word();
    entry.suites.iter().find(|suite| *suite == grid)?;
    let flow = entry.case.timed.first()?;
    let io = *flow.by.io()?;
    let threads = entry.case.timed.iter().filter_map(|f| f.by.io()).map(|io| io.threads).sum();
    let common = IoSpec { threads, stage: None, ..io };
    Some(format!("{grid} {} {common} {}", flow.io_ends().0, flow.bytes))
}

/// Numbers the groups: comparable cases, up to [`GROUP`], in one environment. Neighbouring sets of
/// comparable cases share a group while they fit into it: samples of others then fill the time between two
/// visits of a case. A case alone repeats its operation untimed for that long, on all CPUs if it uses them.
pub(crate) fn number_groups(entries: &mut [PlannedCase]) {
    let together =
        |a: &PlannedCase, b: &PlannedCase| a.env == b.env && comparable(a) == comparable(b);
    let sets: Vec<usize> = entries
        .chunk_by(together)
        .flat_map(|set| set.chunks(GROUP).map(<[PlannedCase]>::len))
        .collect();
    let (mut group, mut from, mut members) = (0, 0, 0);
    for len in sets {
        let joins = from > 0 && members + len <= GROUP && mixes(&entries[from - 1], &entries[from]);
        if !joins && from > 0 {
            group += 1;
            members = 0;
        }
        members += len;
        entries[from..from + len].iter_mut().for_each(|entry| entry.group = group);
        from += len;
    }
}

/// Whether two cases that are not comparable may be sampled in turn: operations of one suite within a
/// process. A set is compared by blocks once each of its flows was verified alone, so it is bound after
/// single flows have finished. Probes come in hundreds, each with separate buffers; files and messages keep
/// states between their samples.
fn mixes(a: &PlannedCase, b: &PlannedCase) -> bool {
    let within = |e: &PlannedCase| {
        e.budget.is_none() && e.case.flows().all(|f| f.by.wire().is_none() && !f.by.is_on_files())
    };
    let flows = |e: &PlannedCase| (e.case.timed.len(), e.case.background.len());
    let alike = a.env == b.env && a.suites.first() == b.suites.first() && flows(a) == flows(b);
    alike && within(a) && within(b)
}

/// Why a case cannot be measured on such a machine; `None` without a known reason.
fn cannot(scope: &PlanScope, case: &Case) -> Option<String> {
    let wired = case.flows().filter(|flow| flow.by.wire().is_some()).count();
    if wired > 0 && wired < case.flows().count() {
        if !bystander::is_bystander(case) {
            let why = "messages between processes are measured without other flows; only CPU \
                       threads are timed while processes of one host copy (by shm, cma or xpmem)";
            return Some(why.to_owned());
        }
        if let Some(why) = bystander::cannot_stand_by(scope, case) {
            return Some(why);
        }
    }
    rank_files::cannot(case, scope.ranks.len())
        .or_else(|| case.flows().find_map(|flow| cannot_flow(scope, flow)))
        .or_else(|| too_many_threads(scope, case))
        .or_else(|| too_big(scope, case))
        .or_else(|| blocks_itself(case))
}

fn cannot_flow(scope: &PlanScope, flow: &Flow) -> Option<String> {
    let topology = scope.topology;
    if let Some(why) = flow.misfit() {
        return Some(why.to_owned());
    }
    if let Some(wire) = flow.by.wire() {
        return between::cannot(scope, flow, wire);
    }
    for place in [flow.src, flow.dst] {
        if place.rank.0 != 0 && !flow.by.is_on_files() {
            return Some(format!(
                "{place}: only messages and I/O on files are measured between processes"
            ));
        }
    }
    let relays = flow.by.paths().into_iter().flat_map(|paths| paths.gpus.iter().map(Unit::Gpu));
    let units = [flow.src.unit, flow.dst.unit, flow.by.at()].into_iter().chain(flow.by.via());
    for unit in units.chain(relays) {
        let exists = match unit {
            Unit::Gpu(n) => topology.gpus.iter().any(|g| g.index == n),
            Unit::Numa(n) => topology.numa.iter().any(|d| d.id == n),
            Unit::Store(_) if scope.stores.is_empty() => {
                return Some("no place for files was named; name a folder with --store".to_owned());
            }
            Unit::Store(n) => scope.stores.len() > n as usize,
        };
        if !exists {
            return Some(format!("there is no {unit} here"));
        }
    }
    if let Mover::Cpu { .. } = flow.by {
        let unmapped = |p: &Place| {
            let gpu = topology.gpus.iter().find(|gpu| p.unit == Unit::Gpu(gpu.index));
            let on_device = matches!(p.mem, MemKind::Vram | MemKind::VramFine);
            on_device && gpu.is_some_and(|gpu| !gpu.caps().cpu_mapping)
        };
        if let Some(place) = [flow.src, flow.dst].into_iter().find(unmapped) {
            let unit = place.unit;
            return Some(format!(
                "CPU threads do not reach {place}: the runtime of this GPU maps no device memory for \
                 them; copy it by dma@{unit}, or name {unit}.managed"
            ));
        }
    }
    if needs_driver(flow)
        && let Some(why) = scope.without_runtime
    {
        return Some(format!("no GPU runtime: {why}; `pathline doctor` shows what is missing"));
    }
    flow.by
        .workers()
        .and_then(|(threads, feature)| cannot_cpu(topology, flow.by.at(), feature, threads))
        .or_else(|| flow.by.io().and_then(|io| cannot_io(scope.stores, flow, io)))
        .or_else(|| flow.by.meta().and_then(|_| cannot_meta(scope.stores, flow)))
        .or_else(|| cannot_fault(scope, flow))
}

/// Why the user's page fault setting excludes this flow.
fn cannot_fault(scope: &PlanScope, flow: &Flow) -> Option<String> {
    // A variable counts only if the runtime of a GPU of this node reads it.
    let name = scope.topology.gpu_env(|caps| caps.page_fault_env)?;
    match (page_faults(flow)?, scope.env.get(name)?.as_str()) {
        (FaultHandling::Served, "0") => {
            Some(format!("{name}=0: pages do not migrate on a fault; unset it or set it to 1"))
        }
        (FaultHandling::InPlace, "1") => Some(format!(
            "{name}=1: managed pages migrate at the first touch, so there is no zero-copy; unset it \
             or set it to 0"
        )),
        _ => None,
    }
}

fn cannot_io(stores: &[StoreFacts], flow: &Flow, io: &IoSpec) -> Option<String> {
    let (file, _) = flow.io_ends();
    stores.get(file.unit.store()? as usize)?.cannot(io, flow.bytes)
}

fn cannot_meta(stores: &[StoreFacts], flow: &Flow) -> Option<String> {
    let (file, _) = flow.io_ends();
    let facts = stores.get(file.unit.store()? as usize)?;
    facts.without.as_ref().map(|why| format!("{}: {why}", facts.path))
}

fn cannot_cpu(
    topology: &Topology,
    at: Unit,
    feature: Option<&'static str>,
    threads: u32,
) -> Option<String> {
    if let Some(feature) = feature
        && !topology.host.features.iter().any(|f| f == feature)
    {
        return Some(format!("this processor has no {feature}"));
    }
    too_many(topology, at, threads)
}

fn too_many(topology: &Topology, at: Unit, threads: u32) -> Option<String> {
    let domain = topology.numa.iter().find(|d| Some(d.id) == at.numa())?;
    let allowed = &topology.host.allowed_cpus;
    let usable =
        if allowed.is_empty() { domain.cpus.clone() } else { domain.cpus.intersect(allowed) };
    (usable.len() < threads as usize).then(|| {
        format!("{threads} threads on {at}: this process may use {} of its CPUs", usable.len())
    })
}

/// Threads of concurrent flows run on different CPUs.
fn too_many_threads(scope: &PlanScope, case: &Case) -> Option<String> {
    let node = |rank: Rank| scope.ranks.iter().find(|m| m.rank == rank).map_or(0, |m| m.node);
    let mut of_domain: BTreeMap<(u32, Unit), u32> = BTreeMap::new();
    for flow in case.flows() {
        let rank = if flow.by.is_on_files() { flow.io_ends().1.rank } else { flow.src.rank };
        *of_domain.entry((node(rank), flow.by.at())).or_default() += flow.by.threads();
    }
    of_domain.into_iter().find_map(|((_, at), threads)| too_many(scope.topology, at, threads))
}

fn too_big(scope: &PlanScope, case: &Case) -> Option<String> {
    let mut host = 0u64;
    for (unit, bytes) in needs(case) {
        let limit = match unit {
            Unit::Numa(_) => {
                host = host.saturating_add(bytes.0);
                continue;
            }
            Unit::Store(_) => continue,
            Unit::Gpu(n) => {
                let gpu = scope.topology.gpus.iter().find(|g| g.index == n);
                gpu.map(|g| g.memory).filter(|m| m.0 > 0).unwrap_or(Bytes(u64::MAX))
            }
        };
        if bytes > limit {
            return Some(format!(
                "needs {} on {unit}, which has {}",
                bytes.rounded(),
                limit.rounded()
            ));
        }
    }
    (host > scope.memory.0).then(|| {
        format!(
            "needs {} of host memory; this run may use {} (half of what is free, or --memory)",
            Bytes(host).rounded(),
            scope.memory.rounded()
        )
    })
}

fn blocks_itself(case: &Case) -> Option<String> {
    let call = |f: &Flow| !f.by.facts().moves_bytes && !f.by.is_on_files();
    let blocks = case.flows().find(|f| is_blocking(f) || call(f))?;
    let what = if call(blocks) { "a runtime call" } else { "a pageable copy" };
    (case.flows().count() > 1).then(|| {
        format!(
            "{what} blocks the calling thread, so nothing else can be timed at the same time in one process"
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    use pathline_flow::MachineDesc;
    use pathline_schema::{Gpu, HostInfo, Link, LinkEnd, LinkKind, NumaDomain};

    /// Two GPUs joined by a link, one domain of four CPUs of which two may be used.
    fn topology() -> Topology {
        let gpu = |index| Gpu { index, numa: Some(0), memory: Bytes::gib(1), ..Gpu::default() };
        Topology {
            source: "live".to_owned(),
            host: HostInfo {
                arch: "x86_64".to_owned(),
                features: vec!["avx2".to_owned(), "erms".to_owned()],
                allowed_cpus: "0-1".parse().unwrap(),
                ..HostInfo::default()
            },
            numa: vec![NumaDomain { id: 0, cpus: "0-3".parse().unwrap(), ..NumaDomain::default() }],
            gpus: vec![gpu(0), gpu(1)],
            links: vec![Link {
                a: LinkEnd::Gpu(0),
                b: LinkEnd::Gpu(1),
                kind: LinkKind::Xgmi,
                width: 1,
                peak: None,
            }],
            ..Topology::default()
        }
    }

    fn plan(topology: &Topology, suites: &[&str], patterns: &[&str]) -> Result<RunPlan, String> {
        plan_with(topology, &[], suites, patterns)
    }

    fn plan_with(
        topology: &Topology,
        stores: &[StoreFacts],
        suites: &[&str],
        patterns: &[&str],
    ) -> Result<RunPlan, String> {
        let scope = PlanScope { stores, ..PlanScope::new(topology, Bytes::mib(600)) };
        let suites: Vec<String> = suites.iter().map(|&s| s.to_owned()).collect();
        let patterns: Vec<CasePattern> = patterns.iter().map(|p| p.parse().unwrap()).collect();
        RunPlan::new(&scope, &suites, &patterns)
    }

    fn skip(topology: &Topology, case: &str) -> String {
        let plan = plan(topology, &[], &[case]).unwrap();
        assert_eq!(plan.entries.len(), 1, "a pasted case is exactly one case");
        plan.entries[0].skip.clone().unwrap_or_default()
    }

    #[test]
    fn every_case_is_listed_once_and_parses() {
        let plan = plan(&topology(), &[], &[]).unwrap();
        let texts: BTreeSet<String> = plan.entries.iter().map(|e| e.case.to_string()).collect();
        assert_eq!(texts.len(), plan.entries.len());
        for entry in &plan.entries {
            assert_eq!(entry.case.to_string().parse::<Case>().unwrap(), entry.case);
        }
    }

    #[test]
    fn a_suite_lists_a_case_once_even_where_one_thread_is_all() {
        let mut topology = topology();
        topology.host.allowed_cpus = "0".parse().unwrap();
        let memory_only = NumaDomain { id: 1, ..NumaDomain::default() };
        topology.numa.push(memory_only);
        let plan = plan(&topology, &["host"], &[]).unwrap();
        assert!(plan.entries.iter().all(|e| e.suites == ["host"]));
    }

    #[test]
    fn pairs_count() {
        // 2 ordered pairs x 4 movers in one direction, 1 unordered pair x 4 movers in both, 1 class
        // staged.
        assert_eq!(plan(&topology(), &["pairs"], &[]).unwrap().entries.len(), 2 * 4 + 4 + 1);
    }

    /// Cases of each suite on the node of 8 H200s, whose default run must end within 180 s.
    #[test]
    fn suites_of_eight_gpus_behind_switches() {
        let topology = MachineDesc::preset("hgx-h200").unwrap().topology();
        let count = |suite: &str| plan(&topology, &[suite], &[]).unwrap().entries.len();
        // Dma, copy, read, write, triad, chase; chases of 4 KiB x 2^0..2^14 on the first GPU.
        assert_eq!(count("local"), 8 * 6 + 15);
        // 14 a GPU; registered and write-combined in, out, read and written, once; pinned read again.
        assert_eq!(count("host-link"), 8 * 14 + 2 * 4 + 1);
        // Engine at the source and at the destination, kernel read, kernel write; one class.
        assert_eq!(count("pairs"), 56 * 4 + 28 * 4 + 1);
        // 16 B: all to all, to and from the host; chases: peers, host.
        assert_eq!(count("latency"), 64 + 2 * 8 + 56 + 8);
        // 14 sizes of 3 paths within device memory; 12 to 1 GiB and 32 MiB of 5 host paths.
        assert_eq!(count("sweep"), 14 * 3 + (12 + 1) * 5);
        // In, out, both, STREAM on 1, 2, 4, 8 GPUs.
        assert_eq!(count("fan"), 4 * 4);
        assert_eq!(count("patterns"), 6 * 2);
        // 7 methods of 4 sizes.
        assert_eq!(count("managed"), 7 * 4);
        // 5 calls without memory; 4 kinds x 3 sizes allocated and freed; pages in 3 sizes and huge
        // pages in 2 locked and unlocked; 2 batches, each next to the same copies one by one.
        assert_eq!(count("overhead"), 5 + 4 * 3 * 2 + (3 + 2) * 2 + 2 * 2);
        // 5 copies and 2 kernels alone, and 2 cases of each pair of them.
        assert_eq!(count("overlap"), 5 + 2 + 5 * 2 * 2);
        // 2 domains x 8 GPUs, registered memory for the first GPU, and memory that the runtime places for
        // each; in and out.
        assert_eq!(count("numa-gpu"), 2 * 8 * 2 + 2 * 2 + 8 * 2);
        assert_eq!(plan(&topology, &["routes"], &[]).unwrap().entries.len(), 0);
    }

    /// Of the 14 kinds of paths of all 8 GPUs two fill a group of 16: 5 kinds of one flow are 3 groups, 2 of
    /// two flows one, and 7 of one flow with 9 paths of the first GPU alone 5 (7 x 8 + 9 = 65 = 4 x 16 + 1).
    /// Page-locking again for each case would take longer than the cases.
    #[test]
    fn host_links_of_all_gpus_are_compared_in_one_group() {
        let topology = MachineDesc::preset("hgx-h200").unwrap().topology();
        let plan = plan(&topology, &["host-link"], &[]).unwrap();
        let groups: BTreeSet<usize> = plan.entries.iter().map(|e| e.group).collect();
        assert_eq!(groups.len(), 3 + 1 + 5);
    }

    #[test]
    fn a_ring_follows_the_links() {
        let topology = MachineDesc::preset("mi250x").unwrap().topology();
        let plan = plan(&topology, &["patterns"], &[]).unwrap();
        let ring = &plan.entries.iter().find(|e| e.case.timed.len() == 8).unwrap().case;
        let linked = |f: &Flow| {
            let ends = [LinkEnd::from(f.src.unit), LinkEnd::from(f.dst.unit)];
            topology.links.iter().any(|l| ends.contains(&l.a) && ends.contains(&l.b))
        };
        assert!(ring.timed.iter().all(linked), "{ring}");
    }

    #[test]
    fn a_pattern_chooses_from_every_suite() {
        let plan = plan(&topology(), &[], &["gpu0.* > gpu*.vram by dma"]).unwrap();
        assert!(!plan.entries.is_empty());
        let wanted = |f: &Flow| {
            f.src.unit == Unit::Gpu(0) && f.dst.mem == MemKind::Vram && f.by.kind() == "dma"
        };
        assert!(plan.entries.iter().all(|e| e.case.timed.iter().any(wanted)));
    }

    /// Every probe of 8 GPUs would match such a pattern.
    #[test]
    fn probes_are_selected_by_name_and_have_their_own_budget() {
        let pattern = ["gpu0.* > gpu*.vram by dma"];
        let probes = ["contention", "concurrent"].map(str::to_owned);
        let probe = |e: &&PlannedCase| e.suites.iter().any(|s| probes.contains(s));
        let among_all = plan(&topology(), &[], &pattern).unwrap();
        assert_eq!(among_all.entries.iter().filter(probe).count(), 0);
        assert!(plan(&topology(), &[], &[]).unwrap().entries.iter().all(|e| e.budget.is_none()));
        let named = plan(&topology(), &["contention"], &pattern).unwrap();
        assert!(named.entries.iter().all(|e| e.budget == Some(PROBE_BUDGET)));
        let other = named.with_probe_budget(Ns::ms(80.0));
        assert!(other.entries.iter().all(|e| e.budget == Some(Ns::ms(80.0))));
        // The start-up of a pair is a case of both suites: it has the budget of the other one.
        let both = plan(&topology(), &["contention", "latency"], &[]).unwrap();
        let shared: Vec<&PlannedCase> =
            both.entries.iter().filter(|e| e.suites.len() == 2).collect();
        assert_eq!(shared.len(), 2 + 2 + 2);
        assert!(shared.iter().all(|e| e.budget.is_none()));
    }

    #[test]
    fn a_case_that_is_pasted_twice_is_planned_once() {
        let pasted = "gpu0.vram > gpu1.vram by dma@gpu0 x 3MiB";
        assert_eq!(plan(&topology(), &[], &[pasted, pasted]).unwrap().entries.len(), 1);
    }

    #[test]
    fn slips_are_named() {
        assert!(plan(&topology(), &["pears"], &[]).unwrap_err().contains("pairs"));
        assert!(plan(&topology(), &[], &["gpu7.*"]).unwrap_err().contains("gpu7.*"));
        let elsewhere = plan(&topology(), &["pairs", "local"], &["numa0.huge"]).unwrap_err();
        assert!(elsewhere.contains("no case of pairs, local matches"), "{elsewhere}");
    }

    #[test]
    fn skips_have_reasons() {
        let t = topology();
        let cpu = |w: &str| format!("numa0.huge > numa0.huge by cpu@numa0[{w}] x 1MiB");
        assert_eq!(skip(&t, &cpu("copy-memcpy-t2")), "");
        assert!(skip(&t, &cpu("copy-avx512-t1")).contains("no avx512f"));
        assert!(skip(&t, &cpu("copy-memcpy-t3")).contains("may use 2"));
        let none = plan(&t, &[], &["gpu0.vram > gpu5.vram by dma@gpu0 x 1MiB"]).unwrap_err();
        assert!(none.contains("there is no gpu5; this machine has 2 GPUs"), "{none}");
        let relayed = "gpu0.vram > gpu1.vram by relay@gpu1[gpu6,1MiB] x 1MiB";
        assert!(skip(&t, relayed).contains("no gpu6"));
        let device = "gpu0.vram > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1MiB";
        let of_vendor = |vendor: &str| {
            let mut node = topology();
            node.gpus.iter_mut().for_each(|gpu| gpu.vendor = vendor.to_owned());
            skip(&node, device)
        };
        let unmapped = of_vendor("nvidia");
        assert!(unmapped.contains("CPU threads do not reach r0.gpu0.vram"), "{unmapped}");
        assert!(unmapped.contains("dma@gpu0, or name gpu0.managed"), "{unmapped}");
        assert_eq!(of_vendor("amd"), "");
        // Source and destination of 512 MiB each make 1 GiB, over the 600 MiB of this run.
        let big = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 512MiB";
        assert!(skip(&t, big).contains("needs 1GiB of host memory"));
        assert!(skip(&t, "gpu0.vram > gpu1.vram by dma@gpu0 x 2GiB").contains("which has 1GiB"));
        let both = "numa0.paged > gpu0.vram by dma@gpu0 x 1MiB & gpu0.vram > numa0.paged by dma@gpu0 x 1MiB";
        assert!(skip(&t, both).contains("blocks the calling thread"));
    }

    pub(crate) fn disk() -> StoreFacts {
        StoreFacts {
            path: "/scratch".to_owned(),
            device: "sda".to_owned(),
            logical_block: Bytes(512),
            span: Bytes::gib(1),
            ..StoreFacts::default()
        }
    }

    #[test]
    fn storage_of_two_cpus_and_two_gpus() {
        let count = |stores: &[StoreFacts]| {
            plan_with(&topology(), stores, &["storage"], &[]).unwrap().entries.len()
        };
        // 1 and 2 workers x 4 depths, to the host and by 3 stages to the first GPU.
        let random = 2 * 4 * (1 + 3);
        // Depth 128; 3 more engines x 3 depths; unbatched; 1 and 2 workers of pread; writes and a
        // mix at 2 depths; separate files; from the page cache.
        let others = 1 + 3 * 3 + 1 + 2 + 2 * 2 + 1 + 1;
        // Pages and huge pages by 2 engines, a call at a time, cached, 2 workers sharing or not;
        // and reads of a cold cache.
        let sequential = 2 * (2 * 2 + 1 + 1 + 2) + 1;
        // From pinned memory and by 4 stages to the GPU, in both directions; GPU direct by 1 and 2
        // workers; copies of 2 sizes alone.
        let streamed = 2 * (1 + 4) + 2 * 2 + 2 * 2;
        // All GPUs at once.
        let one = random + others + sequential + streamed + 1;
        assert_eq!(count(&[disk()]), one);
        // A second store has the same cases except for the copies; then both are read at once.
        assert_eq!(count(&[disk(), disk()]), 2 * one - 4 + 1);
        let unusable = StoreFacts { without: Some("it is read-only".to_owned()), ..disk() };
        let plan = plan_with(&topology(), &[unusable], &["storage"], &[]).unwrap();
        // Copies alone need no files.
        assert_eq!((plan.entries.len(), plan.runnable()), (one, 4));
        let whys: BTreeSet<_> = plan.entries.iter().filter_map(|e| e.skip.clone()).collect();
        assert_eq!(whys.into_iter().collect::<Vec<_>>(), ["/scratch: it is read-only"]);
    }

    /// Cases that a cell of the heat map compares are sampled in turn.
    #[test]
    fn host_and_gpu_are_read_in_one_group() {
        let plan = plan_with(&topology(), &[disk()], &["storage"], &[]).unwrap();
        for cell in plan.entries[..32].chunks(4) {
            assert!(cell.iter().all(|e| e.group == cell[0].group), "{}", cell[0].case);
            assert!(cell[0].case.timed[0].dst.unit.numa().is_some());
        }
    }

    #[test]
    fn io_that_its_store_cannot_do_is_skipped() {
        let why = |stores: &[StoreFacts], case: &str| {
            let plan = plan_with(&topology(), stores, &[], &[case]).unwrap();
            plan.entries[0].skip.clone().unwrap_or_default()
        };
        let read = |engine: &str, cache: &str, block: &str| {
            format!(
                "store0.file > numa0.paged by {engine}@numa0[rand-read,{cache},shared,1GiB,q1,n1,t1] x {block}"
            )
        };
        let disks = [disk()];
        assert_eq!(why(&disks, &read("uring", "direct", "4KiB")), "");
        assert!(why(&[], &read("uring", "direct", "4KiB")).contains("--store"));
        assert!(why(&disks, &read("uring", "direct", "1000B")).contains("multiples of 512B"));
        assert_eq!(why(&disks, &read("sync", "cached", "1000B")), "");
        assert!(why(&disks, &read("uring-poll", "direct", "4KiB")).contains("poll_queues"));
        let polls = [StoreFacts { polls: true, ..disk() }];
        assert_eq!(why(&polls, &read("uring-poll", "direct", "4KiB")), "");
        let second = read("uring", "direct", "4KiB").replace("store0", "store1");
        assert!(why(&disks, &second).contains("no store1"));
    }

    #[test]
    fn switches_of_the_runtime_skip() {
        let why = |vendor: &str, value: &str, case: &str| {
            let mut topology = topology();
            topology.gpus.iter_mut().for_each(|g| g.vendor = vendor.to_owned());
            let env = BTreeMap::from([("HSA_XNACK".to_owned(), value.to_owned())]);
            let scope = PlanScope { env: &env, ..PlanScope::new(&topology, Bytes::gib(1)) };
            let plan = RunPlan::new(&scope, &[], &[case.parse().unwrap()]).unwrap();
            plan.entries[0].skip.is_some()
        };
        let migrate = "numa0.managed > gpu0.managed by migrate@gpu0[fault] x 1MiB";
        let zero_copy = "numa0.managed > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm] x 1MiB";
        assert!(why("amd", "0", migrate) && !why("amd", "1", migrate));
        assert!(why("amd", "1", zero_copy) && !why("amd", "0", zero_copy));
        assert!(!why("nvidia", "0", migrate) && !why("nvidia", "1", zero_copy));
    }

    /// The host's 27 cases of a size: 16 copies (8 variants by 1 and all CPUs), which fill a group, or less
    /// on processors with fewer variants; reads, writes, triads and a chase share one with neighbours.
    #[test]
    fn comparable_cases_share_a_group_and_small_groups_are_filled() {
        let plan = plan(&topology(), &["host"], &[]).unwrap();
        let groups: Vec<&[PlannedCase]> =
            plan.entries.chunk_by(|a, b| a.group == b.group).collect();
        assert!(groups.iter().all(|group| group.len() <= GROUP));
        // Two neighbours that fit into one group would be one.
        assert!(groups.windows(2).all(|pair| {
            let first = pair[1].chunk_by(|a, b| comparable(a) == comparable(b)).next().unwrap();
            pair[0].len() + first.len() > GROUP
        }));
        let split = |pair: &[&[PlannedCase]]| {
            comparable(pair[0].last().unwrap()) == comparable(&pair[1][0])
        };
        assert!(!groups.windows(2).any(split), "no set of more than 16 is in this suite");
    }

    /// Files and messages keep groups of one kind, and so do probes.
    #[test]
    fn probes_and_files_are_not_mixed() {
        let storage = plan_with(&topology(), &[disk()], &["storage"], &[]).unwrap();
        let probes = plan(&topology(), &["contention"], &[]).unwrap();
        for plan in [storage, probes] {
            for pair in plan.entries.windows(2).filter(|p| p[0].group == p[1].group) {
                let calls = pair.iter().all(|e| e.budget.is_none() && mixes(e, e));
                assert!(calls || comparable(&pair[0]) == comparable(&pair[1]), "{}", pair[1].case);
            }
        }
    }
}
