//! The sentences that come first: what one wants to know of a node, in figures of this run.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{
    Bytes, Cadence, CaseOutcome, Flow, Journal, LinkEnd, MemKind, MigrateHow, StopReason, Topology,
    Transport, VerifyResult, WireOp,
};

use crate::figure::{Figure, FigureBody, FigureCell, Headline, HeadlineTone, Suspicion, extremes};
use crate::figures::{self, PairMover, StorageSummary};
use crate::fmt;
use crate::run::{CaseQuantity, EntryState, RunEntry, RunView, moves_bytes};

/// Agreement with a published value that is called good.
const AGREES: f64 = 0.1;

/// Values that differ by no more than this factor are alike: the first of them is named.
const ALIKE: f64 = 0.99;

/// All headlines that the run has figures for, in order of interest: what the machine does, then
/// what is doubtful about the run.
pub(crate) fn all(run: &RunView, figures: &[Figure]) -> Vec<Headline> {
    let wrong =
        [broken(run.journal), rejected(run.journal), lacking_gpus(run.journal), beyond(run)];
    let wrong = wrong.into_iter().flatten().map(|text| Headline { text, tone: HeadlineTone::Warn });
    wrong.chain(sentences(run, figures)).collect()
}

fn sentences(run: &RunView, figures: &[Figure]) -> Vec<Headline> {
    let good = |text: Option<String>| text.map(|text| Headline { text, tone: HeadlineTone::Good });
    let plain =
        |text: Option<String>| text.map(|text| Headline { text, tone: HeadlineTone::Plain });
    let warn = |text: Option<String>| text.map(|text| Headline { text, tone: HeadlineTone::Warn });
    let few = single(run);
    if !few.is_empty() {
        let doubts = [faults(run.journal), unverified(run.journal), noted(run.journal)];
        let told = few.into_iter().map(|text| Headline { text, tone: HeadlineTone::Plain });
        let doubts = doubts.into_iter().chain([cut(run.journal)]).flat_map(warn);
        return told.chain(plain(skips(run.journal))).chain(doubts).collect();
    }
    let [files, into_gpus, in_calls] = figures::storage_sentences(run);
    [
        plain(host_rates(run)),
        plain(crossover(run)),
        plain(load_latency(run)),
        plain(figures::touch_cost(run).sentence()),
        good(host_link(run)),
        plain(slow_host_paths(run)),
        plain(copies(run)),
        plain(kernels(run)),
        plain(figures::staged_sentence(run)),
        plain(figures::patterns_sentence(run)),
        plain(fan(run)),
        plain(figures::contention_sentence(run)),
        plain(figures::contention_shared(run)),
        plain(figures::numa_gpu_sentence(run)),
        plain(figures::managed_sentence(run)),
        plain(figures::overlap_sentence(run)),
        plain(figures::overhead_sentence(run)),
        plain(figures::messages_sentence(run, Transport::Mpi)),
        plain(figures::collectives_sentence(run, "mpi-collectives")),
        plain(figures::messages_sentence(run, Transport::Ccl)),
        plain(figures::collectives_sentence(run, "ccl-collectives")),
        plain(figures::messages_sentence(run, Transport::Ucx)),
        plain(figures::shared_memory_sentence(run)),
        plain(files),
        plain(into_gpus),
        plain(in_calls),
        plain(route(run)),
        plain(loads(run)),
        plain(latency(figures)),
        published(run, figures),
        warn(faults(run.journal)),
        plain(skips(run.journal)),
        warn(unverified(run.journal)),
        warn(unsettled(run.journal)),
        warn(noted(run.journal)),
        warn(cut(run.journal)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Up to this many cases are told one by one.
const FEW: usize = 4;

/// Each case in a sentence, of a run of a few.
fn single(run: &RunView) -> Vec<String> {
    let sampled = || run.entries.iter().filter(|e| matches!(e.state, EntryState::Sampled(_)));
    if sampled().count() > FEW {
        return Vec::new();
    }
    let tell = |entry: &RunEntry| {
        let isolated = entry.case.cadence == Cadence::Isolated;
        let ping = |f: &Flow| f.by.wire().is_some_and(|w| w.op == WireOp::Ping);
        let step = isolated || entry.case.timed.iter().any(|f| f.by.is_chase() || ping(f));
        let quantity = if step { CaseQuantity::StepNs } else { CaseQuantity::Payload };
        let cell = run.cell(entry, quantity);
        let value = cell.value?;
        let of =
            cell.share_of_ceiling().zip(cell.ceiling).map_or(String::new(), |(share, peak)| {
                format!(", {} of {}", fmt::percent(share), fmt::gbs(peak))
            });
        let published = cell.published.map_or(String::new(), |p| {
            format!(", published {} ({})", fmt::number(p.value), p.source)
        });
        let io = match entry.state {
            EntryState::Sampled([series]) => StorageSummary::of(series),
            _ => None,
        };
        let io = io.map_or(String::new(), |io| io.text());
        let suspect = cell.suspect.map_or(String::new(), |s| format!(" ({})", s.text()));
        Some(format!(
            "{} {} +-{}{io}{of}{published}: {}{suspect}.",
            fmt::number(value),
            quantity.unit(),
            fmt::percent(cell.half_width / value),
            entry.case
        ))
    };
    sampled().filter_map(tell).collect()
}

/// The best that the host's memory gave, and what one thread gets of it.
fn host_rates(run: &RunView) -> Option<String> {
    let figure = |t: u32, all: &[(u32, f64)]| all.iter().find(|a| a.0 == t).map(|a| a.1);
    let mut by_threads: BTreeMap<u32, (f64, String)> = BTreeMap::new();
    for entry in run.entries.iter().filter(|e| e.of("host")) {
        let Some(flow) = entry.lone() else { continue };
        let pathline_schema::Mover::Cpu { work, threads, .. } = flow.by else { continue };
        let (limit, _) = run.limits(entry.case, CaseQuantity::Traffic);
        // What the caches hold says nothing about memory.
        let of_memory = limit.is_some() && run.past_caches(flow);
        let Some(value) = run.value(entry, CaseQuantity::Traffic).filter(|_| of_memory) else {
            continue;
        };
        let best = by_threads.entry(threads).or_insert((0.0, String::new()));
        if value > best.0 {
            *best = (value, format!("{work} over {}", flow.bytes.rounded()));
        }
    }
    let rates: Vec<(u32, f64)> = by_threads.iter().map(|(t, (v, _))| (*t, *v)).collect();
    let (threads, (best, by)) = by_threads.iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let one = figure(1, &rates).filter(|_| *threads > 1).map_or(String::new(), |one| {
        format!("; one thread gets {} of that", fmt::percent(one / best))
    });
    Some(format!(
        "Host memory gives {} at best, read + written ({by}, {}){one}.",
        fmt::gbs(*best),
        fmt::threads(*threads)
    ))
}

fn crossover(run: &RunView) -> Option<String> {
    let all = figures::crossovers(run);
    // With every core at work, as an application would; the case of one thread is in its figure.
    Some(fmt::sentence(&format!("{}.", all.last()?.sentence())))
}

/// Latency within each cache, and in memory.
fn load_latency(run: &RunView) -> Option<String> {
    let points = figures::chase_points(run);
    let mut parts = Vec::new();
    let mut below = Bytes(0);
    for (level, size) in run.cache_levels() {
        // Half of a cache is surely in it: pages and other data share the rest.
        let inside = points.iter().filter(|(b, _)| *b > below && b.0 <= size.0 / 2);
        if let Some((_, ns)) = inside.max_by_key(|(b, _)| *b) {
            parts.push(format!("{} ns in L{level}", fmt::number(*ns)));
        }
        below = Bytes(size.0 / 2);
    }
    let (largest, ns) = points.last()?;
    parts.push(format!("{} ns over {}", fmt::number(*ns), largest.rounded()));
    Some(format!("A dependent load takes {}.", fmt::list(&parts)))
}

fn host_link(run: &RunView) -> Option<String> {
    let ways = figures::ways(run);
    let best = |inward: bool| {
        let of: Vec<(&figures::HostPath, f64, FigureCell)> = ways
            .iter()
            .filter(|w| w.inward == inward && w.entry.lone().is_some())
            .filter_map(|w| {
                let cell = run.cell(&w.entry, CaseQuantity::Payload);
                Some((w, cell.value?, cell))
            })
            .collect();
        let (_, most) = extremes(&of.iter().map(|w| w.1).collect::<Vec<_>>());
        of.into_iter().find(|w| w.1 >= ALIKE * most)
    };
    let (way, value, cell) = best(true)?;
    let below = cell.share_of_ceiling().zip(cell.ceiling).map_or(String::new(), |(share, peak)| {
        format!(", {} below the peak of {}", fmt::percent(1.0 - share), fmt::gbs(peak))
    });
    let back = best(false).map_or(String::new(), |(way, value, _)| {
        format!("; back {} ({})", fmt::gbs(value), way.label)
    });
    Some(format!(
        "Host to gpu{} is fastest with {}{below} ({}){back}.",
        way.gpu,
        fmt::gbs(value),
        way.label
    ))
}

/// What pageable memory and page migration cost against the best way in.
fn slow_host_paths(run: &RunView) -> Option<String> {
    let ways = figures::ways(run);
    let best_of = |want: &dyn Fn(&figures::HostPath) -> bool| {
        let chosen = ways.iter().filter(|w| w.inward && want(w));
        let values = chosen.filter_map(|w| run.value(&w.entry, CaseQuantity::Payload));
        values.max_by(f64::total_cmp)
    };
    let best = best_of(&|_| true)?;
    let parts: Vec<String> = [
        ("pageable copies reach", best_of(&|w| w.mem == MemKind::Paged)),
        ("page migration by faults", best_of(&|w| w.migrates == Some(MigrateHow::Fault))),
        (
            "zero-copy of managed memory",
            best_of(&|w| w.mem == MemKind::Managed && w.migrates.is_none()),
        ),
    ]
    .into_iter()
    .filter_map(|(name, value)| {
        let value = value?;
        Some(format!("{name} {} ({} of the best)", fmt::gbs(value), fmt::percent(value / best)))
    })
    .collect();
    (!parts.is_empty()).then(|| format!("Into a GPU, {}.", fmt::list(&parts)))
}

fn of_verb(run: &RunView, verb: PairMover) -> Vec<f64> {
    let pairs = figures::pairs(run).into_iter().filter(|p| p.verb == verb && !p.both);
    pairs.filter_map(|p| run.value(&p.entry, CaseQuantity::Payload)).collect()
}

/// The levels of the runtime's copies, and what they leave of the widest route.
fn copies(run: &RunView) -> Option<String> {
    let pairs: Vec<_> =
        figures::pairs(run).into_iter().filter(|p| p.verb == PairMover::Dma && !p.both).collect();
    let engine = pairs.iter().map(|p| p.entry.engine()).find(|e| !e.is_empty());
    let cells: Vec<FigureCell> =
        pairs.iter().map(|p| run.cell(&p.entry, CaseQuantity::Payload)).collect();
    let values: Vec<f64> = cells.iter().filter_map(|c| c.value).collect();
    if values.is_empty() {
        return None;
    }
    let by = engine.map_or(String::new(), |e| format!(" ({e})"));
    let shares: Vec<f64> = cells.iter().filter_map(FigureCell::share_of_ceiling).collect();
    let (least, _) = extremes(&shares);
    let worst = cells
        .iter()
        .zip(&pairs)
        .filter_map(|(c, p)| Some((c.share_of_ceiling()?, c.ceiling?, p)))
        .find(|(share, ..)| ALIKE * share <= least)
        .map_or(String::new(), |(share, peak, p)| {
            format!(
                "; from gpu{} to gpu{} that is {} of {}",
                p.src,
                p.dst,
                fmt::percent(share),
                fmt::gbs(peak)
            )
        });
    Some(format!(
        "Runtime copies between GPUs{by} come in {}{worst}.",
        figures::levels_words(&values)
    ))
}

/// The tiers of kernels, and how reads compare with writes.
fn kernels(run: &RunView) -> Option<String> {
    let (reads, writes) = (of_verb(run, PairMover::Read), of_verb(run, PairMover::Write));
    let values = if reads.is_empty() { &writes } else { &reads };
    if values.is_empty() {
        return None;
    }
    let verb = if reads.is_empty() { "writes" } else { "reads" };
    let total = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let ratio = (!reads.is_empty() && !writes.is_empty()).then(|| {
        format!("; writes reach {} of reads", fmt::percent(total(&writes) / total(&reads)))
    });
    Some(format!(
        "Kernel {verb} between GPUs come in {}{}.",
        figures::levels_words(values),
        ratio.unwrap_or_default()
    ))
}

fn fan(run: &RunView) -> Option<String> {
    let fans = figures::fans(run);
    if fans.iter().filter(|f| f.ratio.is_some()).count() < 2 {
        return None;
    }
    Some(fmt::sentence(&format!("against host memory, {}.", figures::fan_sentence(&fans))))
}

/// Routes that are longer than they need be because they are wider.
fn route(run: &RunView) -> Option<String> {
    let topology = run.topology();
    let of_gpu = |e: &RunEntry| e.case.flows().any(|f| f.by.at().gpu().is_some());
    if !run.entries.is_empty() && !run.entries.iter().any(of_gpu) {
        return None;
    }
    let detours: Vec<(u32, u32, u32, String, u32)> = topology
        .routes
        .iter()
        .filter_map(|route| {
            let (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) = (route.src, route.dst) else { return None };
            let shortest = hops(topology, a, b)?;
            let via = route.via.first()?;
            let way: Vec<LinkEnd> =
                [route.src].into_iter().chain(via.iter().copied()).chain([route.dst]).collect();
            let text = way.iter().map(node_number).collect::<Vec<_>>().join("-");
            (a < b && route.hops > shortest).then(|| (a, b, shortest, text, width(topology, &way)))
        })
        .collect();
    let (a, b, shortest, way, width) = detours.first()?;
    let more = match detours.len() - 1 {
        0 => String::new(),
        _ => {
            let others: Vec<String> =
                detours.iter().skip(1).map(|d| format!("{}-{} by {}", d.0, d.1, d.3)).collect();
            format!("; likewise {}", fmt::list(&others))
        }
    };
    let wide = if *width > 0 {
        format!(", {} wide all the way", fmt::count(*width as usize, "link"))
    } else {
        String::new()
    };
    Some(format!(
        "gpu{a} and gpu{b} use the route {way}{wide}, though {} would do{more}.",
        fmt::count(*shortest as usize, "hop")
    ))
}

/// Routes that a load on one link gave away.
fn loads(run: &RunView) -> Option<String> {
    let felt: Vec<figures::RouteSlowdown> =
        figures::slowdowns(run).into_iter().filter(figures::RouteSlowdown::shared).collect();
    let pairs: BTreeSet<_> = felt.iter().map(|s| (s.timed.src, s.timed.dst)).collect();
    let (_, most) = extremes(&felt.iter().map(|s| s.alone).collect::<Vec<_>>());
    let widest = felt.iter().find(|s| s.alone >= ALIKE * most)?;
    Some(format!(
        "A load on one link gives away the route of {}: {} to {} falls to {} beside {} to {}.",
        fmt::count(pairs.len(), "routed pair"),
        widest.timed.src.unit,
        widest.timed.dst.unit,
        fmt::percent(widest.loaded / widest.alone),
        widest.load.src.unit,
        widest.load.dst.unit
    ))
}

fn node_number(node: &LinkEnd) -> String {
    match node {
        LinkEnd::Gpu(n) => n.to_string(),
        other => other.to_string(),
    }
}

/// Links of the narrowest stretch; 0 if a stretch is not listed.
fn width(topology: &Topology, way: &[LinkEnd]) -> u32 {
    let link = |a: LinkEnd, b: LinkEnd| {
        topology.links.iter().find(|l| (l.a, l.b) == (a, b) || (l.b, l.a) == (a, b))
    };
    let stretches = way.windows(2).map(|w| link(w[0], w[1]).map_or(0, |l| l.width));
    stretches.min().unwrap_or(0)
}

/// Fewest links between two GPUs over direct GPU links.
fn hops(topology: &Topology, from: u32, to: u32) -> Option<u32> {
    let mut reached = vec![from];
    let mut edge = vec![from];
    for hops in 1..=topology.gpus.len() as u32 {
        let next: Vec<u32> = topology
            .links
            .iter()
            .filter_map(|l| match (l.a, l.b) {
                (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) => Some([(a, b), (b, a)]),
                _ => None,
            })
            .flatten()
            .filter(|(a, b)| edge.contains(a) && !reached.contains(b))
            .map(|(_, b)| b)
            .collect();
        if next.contains(&to) {
            return Some(hops);
        }
        reached.extend(&next);
        edge = next;
    }
    None
}

fn latency(figures: &[Figure]) -> Option<String> {
    let figure = figures.iter().find(|f| f.id == "latency")?;
    let FigureBody::Matrix(m) = &figure.body else { return None };
    let mut peers: Vec<f64> = Vec::new();
    for (row, from) in m.cells.iter().zip(&m.rows) {
        let others = row.iter().zip(&m.cols).filter(|(_, to)| *to != from);
        peers.extend(others.filter_map(|(c, _)| c.value));
    }
    let (low, high) = extremes(&peers);
    (!peers.is_empty())
        .then(|| format!("The smallest copy between GPUs takes {} us.", fmt::range(low, high)))
}

/// How the figures compare with published ones.
fn published(run: &RunView, figures: &[Figure]) -> Option<Headline> {
    // A path counts once, however many figures and sizes show it.
    let mut seen = BTreeSet::new();
    let mut pairs: Vec<(f64, &FigureCell)> = figures
        .iter()
        .flat_map(Figure::cells)
        .filter(|c| !matches!(c.suspect, Some(Suspicion::BeyondCeiling(_))))
        .filter_map(|c| Some((c.value?, c.published.as_ref()?, c.case.as_ref()?, c)))
        .filter(|(_, published, case, _)| {
            let way = |f: &pathline_schema::Flow| (f.src, f.dst, f.by);
            let ways: Vec<_> = case.timed.iter().map(way).collect();
            seen.insert((ways, case.cadence, published.source.as_str()))
        })
        .map(|(value, published, _, c)| (value / published.value - 1.0, c))
        .filter(|(apart, _)| apart.is_finite())
        .collect();
    pairs.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    let (worst, cell) = pairs.first()?;
    let close = pairs.iter().filter(|(apart, _)| apart.abs() <= AGREES).count();
    let case = cell.case.as_ref().and_then(|c| c.timed.first());
    let where_ = case.map_or(String::new(), |f| {
        format!(" ({} to {} by {})", f.src.unit, f.dst.unit, f.by.kind())
    });
    let source = cell.published.as_ref().map_or("", |p| p.source.as_str());
    // Those agree by construction, which says nothing of the model.
    let carried = pairs.iter().filter(|(_, c)| c.case.as_ref().is_some_and(|c| run.carries(c)));
    let carried = match carried.count() {
        0 => String::new(),
        n => format!(", {n} of which the model carries as data"),
    };
    let text = format!(
        "{close} of {} lie within {}{carried}; the farthest is {}{} off{where_}: {source}.",
        fmt::count(pairs.len(), "published value"),
        fmt::percent(AGREES),
        if *worst > 0.0 { "+" } else { "" },
        fmt::percent(*worst),
    );
    let tone = if close == pairs.len() { HeadlineTone::Good } else { HeadlineTone::Warn };
    Some(Headline { text, tone })
}

fn faults(journal: &Journal) -> Option<String> {
    let faults: Vec<_> = journal
        .outcomes
        .iter()
        .filter_map(|o| if let CaseOutcome::Faulted(f) = o { Some(f) } else { None })
        // What the journal cannot say of a case is no failure of it.
        .filter(|f| !journal.rejected.iter().any(|r| r.case == f.case.to_string()))
        .collect();
    let first = faults.first()?;
    Some(format!("{} failed, the first with: {}", fmt::count(faults.len(), "case"), first.error))
}

/// Results that are more than hardware can carry.
fn beyond(run: &RunView) -> Option<String> {
    let worst = run.beyond.first()?;
    Some(format!(
        "{} cannot be right: {} ({}). Marked !, they count as wrong, and no sentence rests on them.",
        fmt::count(run.beyond.len(), "result"),
        worst.claim(),
        worst.case
    ))
}

/// Records that no clock and no machine gives.
fn rejected(journal: &Journal) -> Option<String> {
    let first = journal.rejected.first()?;
    Some(format!(
        "{} of the journal cannot be right and give no figures, the first on line {} ({}): {}.",
        fmt::count(journal.rejected.len(), "record"),
        first.line,
        first.case,
        first.why
    ))
}

/// Skips by their most frequent reason.
fn skips(journal: &Journal) -> Option<String> {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in &journal.outcomes {
        if let CaseOutcome::Skipped(skip) = outcome {
            *reasons.entry(fmt::reason(&skip.case, &skip.why)).or_default() += 1;
        }
    }
    let total: usize = reasons.values().sum();
    let (why, most) = reasons.iter().max_by_key(|(why, n)| (**n, std::cmp::Reverse(**why)))?;
    let share = if *most == total { String::new() } else { format!("{most} of them: ") };
    Some(format!("{} skipped; {share}{why}", fmt::count(total, "case")))
}

fn measured(journal: &Journal) -> impl Iterator<Item = &pathline_schema::MeasuredCase> {
    journal.outcomes.iter().filter_map(|o| match o {
        CaseOutcome::Measured(m) => Some(m.as_ref()),
        _ => None,
    })
}

/// Copies whose bytes were not read back. Loops that leave nothing behind are not doubtful.
fn unverified(journal: &Journal) -> Option<String> {
    let copies = measured(journal).filter(|m| moves_bytes(&m.case));
    let mut doubtful = copies.filter_map(|m| match &m.verdict {
        VerifyResult::Unverified(why) => Some(why),
        VerifyResult::Verified => None,
    });
    let first = doubtful.next()?;
    let total = doubtful.count() + 1;
    Some(format!("{} moved bytes that were not verified: {first}", fmt::count(total, "case")))
}

fn unsettled(journal: &Journal) -> Option<String> {
    let total = measured(journal).count();
    let wide: Vec<f64> = measured(journal)
        .filter(|m| m.stop.reason != StopReason::Precise)
        .map(|m| m.stop.half_width)
        .collect();
    let (_, worst) = extremes(&wide);
    (!wide.is_empty()).then(|| {
        format!(
            "{} of {total} ended on their time, short of {} or of samples; the widest interval is +-{}.",
            fmt::count(wide.len(), "case"),
            fmt::percent(journal.settings().precision),
            fmt::percent(worst)
        )
    })
}

/// The tool's doubts, counted by kind.
fn noted(journal: &Journal) -> Option<String> {
    let mut codes: BTreeMap<&str, usize> = BTreeMap::new();
    for note in journal.notes.iter().filter(|note| !note.lacks_gpus()) {
        *codes.entry(note.code.as_str()).or_default() += 1;
    }
    let texts: Vec<String> = codes.iter().map(|(code, n)| format!("{n} x {code}")).collect();
    (!texts.is_empty()).then(|| format!("Doubts of the tool: {}.", texts.join(", ")))
}

/// That the run must have GPUs and could not use them, from its beginning or from some case on.
fn lacking_gpus(journal: &Journal) -> Option<String> {
    let note = journal.notes.iter().find(|note| note.lacks_gpus())?;
    Some(fmt::sentence(&note.text))
}

/// Before anything else is said: some of what was measured is not here.
fn broken(journal: &Journal) -> Option<String> {
    let first = journal.broken.first()?;
    let lines = fmt::count(journal.broken.len(), "line");
    Some(format!(
        "{lines} of the journal cannot be read and what they said is missing here; the first is line {}: {}.",
        first.line, first.reason
    ))
}

fn cut(journal: &Journal) -> Option<String> {
    if crate::run::complete(journal) {
        return None;
    }
    let why = match &journal.end {
        None => "The run was cut off".to_owned(),
        Some(end) => {
            let why = end.why.as_deref().unwrap_or("not every case has an outcome");
            format!("The run ended early ({why})")
        }
    };
    let partial = match journal.partial.len() {
        0 => String::new(),
        n => format!("; {} rest on fewer samples than planned", fmt::count(n, "case")),
    };
    Some(format!("{why}{partial}; --resume goes on."))
}
