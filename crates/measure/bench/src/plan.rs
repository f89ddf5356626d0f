//! Plans, for which nothing is opened: the cases of a run, their order, which cannot be measured here.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{
    Bytes, Case, CasePattern, CpuOp, FaultHandling, Flow, IoSpec, MemKind, Mover, Ns, Place, Rank,
    StoreFacts, SuiteId, Topology, Unit, did_you_mean,
};
use serde::{Deserialize, Serialize};

use crate::asked_cases::{of_size, with_owning_ranks};
use crate::needs::{is_blocking, needs, needs_driver, page_faults};
use crate::no_match;
use crate::rank_files;
use crate::scope::PlanScope;
use crate::suites::{SUITES, SuiteSpec, between, bystander, default_host_cases};

/// Maximum cases sampled in turn. More would delay the first figure of a group too much.
const GROUP: usize = 16;
/// Budgets over which the visits of a case are spread in a run of few groups. Six visits within one budget
/// of 0.25 s covered the median of noise that lasts 200 ms in 66 to 91 % of 1,500 simulated series (AR(1)
/// 0.995, two states, 1/f); within eight, in 94 to 97 %.
const MAX_SPAN: f64 = 8.0;
/// Sum of the spans of a run's groups, in budgets: a run of many groups takes no longer for it.
const SPANS_OF_RUN: f64 = 16.0;

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
    /// Its visits are spread over this many of its budgets, or over one where that is longer.
    #[serde(default)]
    pub span: f64,
}

impl PlannedCase {
    /// A case of no suite in the first group, with the budget of the settings.
    pub fn new(case: Case) -> Self {
        let (suites, env) = (Vec::new(), BTreeMap::new());
        Self { case, suites, skip: None, group: 0, env, budget: None, span: 0.0 }
    }
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
    /// A suite does not exist, or a pattern matches nothing. One that matches in other sizes alone takes its own.
    pub fn new(
        scope: &PlanScope,
        suites: &[String],
        patterns: &[CasePattern],
    ) -> Result<Self, String> {
        let owned = |pattern: &CasePattern| match pattern {
            CasePattern::Exact(case) => CasePattern::Exact(with_owning_ranks(case, scope.ranks)),
            pattern @ CasePattern::Flow { .. } => pattern.clone(),
        };
        let patterns: Vec<CasePattern> = patterns.iter().map(owned).collect();
        let listed = list(scope, &chosen(scope, suites, &patterns)?);
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
            let budget = suite.budget();
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
                        budget,
                        ..PlannedCase::new(case)
                    });
                }
            }
        }
        let mut add = |case: &Case, skip: Option<String>| {
            at.entry(case.clone()).or_insert_with(|| {
                entries.push(PlannedCase { skip, ..PlannedCase::new(case.clone()) });
                entries.len() - 1
            });
        };
        for (pattern, used) in patterns.iter().zip(used) {
            match pattern {
                _ if used => {}
                CasePattern::Exact(case) => {
                    let skip = cannot(scope, case);
                    // A typing error, not a case that this machine cannot measure.
                    if let Some(why) =
                        skip.as_ref().and_then(|_| no_match::missing_unit(scope, case))
                    {
                        return Err(format!("'{case}': {why}"));
                    }
                    add(case, skip);
                }
                CasePattern::Flow { .. } => {
                    let near = list(scope, &chosen(scope, suites, std::slice::from_ref(pattern))?);
                    let near = near.into_iter().map(|(_, case)| case);
                    let near = near.filter(|case| !scope.simulated || between::has_model(case));
                    let resized = of_size(pattern, near);
                    resized.iter().for_each(|case| add(case, cannot(scope, case)));
                    if !resized.is_empty() {
                        continue;
                    }
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

    /// How many cases will be tried.
    pub fn runnable(&self) -> usize {
        self.entries.iter().filter(|e| e.skip.is_none()).count()
    }

    /// Why no case will be tried: the reasons of the plan, each once. None if one will be.
    pub fn why_nothing(&self) -> Option<String> {
        let skipped: BTreeSet<&str> =
            self.entries.iter().map(|e| e.skip.as_deref()).collect::<Option<_>>()?;
        Some(skipped.into_iter().collect::<Vec<_>>().join("; "))
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
pub(crate) fn is_host_copy(flow: &Flow) -> bool {
    matches!(flow.by, Mover::Cpu { work, .. } if matches!(work.op, CpuOp::Copy | CpuOp::Read))
}

/// The suites that are asked for: by name, else all if patterns choose among them, else the default ones.
pub(crate) fn chosen(
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

pub(crate) fn list(
    scope: &PlanScope<'_>,
    suites: &[&'static SuiteSpec],
) -> Vec<(&'static SuiteSpec, Case)> {
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
/// The fewer groups, the longer each is watched: noise of half a second is steady within one budget.
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
    let groups: BTreeSet<usize> =
        entries.iter().filter(|entry| entry.skip.is_none()).map(|entry| entry.group).collect();
    let span = (SPANS_OF_RUN / groups.len().max(1) as f64).min(MAX_SPAN);
    entries.iter_mut().for_each(|entry| entry.span = span);
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
            let is_bare = topology.gpus.is_empty() && !scope.simulated;
            let way_out = if is_bare { "; `-m mi250x` simulates one" } else { "" };
            return Some(format!("there is no {unit} here{way_out}"));
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
        .and_then(|(threads, feature)| cannot_cpu(topology, flow.cores(), feature, threads))
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
        *of_domain.entry((node(rank), flow.cores())).or_default() += flow.by.threads();
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
pub(crate) mod tests;
