//! Messages, collectives and I/O of a run in the output formats of other tools, for scripts that
//! parse these.
//!
//! Numbers are computed as in those tools: means over repetitions of each rank's own time. Values
//! that a record lacks are omitted or written as `N/A`, never invented.

mod elbencho;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pathline_schema::{
    Bytes, Cadence, CaseOutcome, Collective, CopyAgent, ElementReduction, ElementType, Flow,
    FlowSeries, Journal, MemKind, MessageOp, Rank, ReduceOp, Transport, VerifyResult, WireOp,
    plain_line,
};

use pathline_explain::message_records::{CountedTimes, library_name, participants};

pub use elbencho::elbencho;

/// Version of the benchmarks whose format is used.
const OSU: &str = "7.5";

/// A measured case between processes.
struct MessageRow<'a> {
    flow: &'a Flow,
    wire: &'a MessageOp,
    series: &'a [FlowSeries],
    cadence: Cadence,
    /// Whether the bytes were right; `None` if nothing was compared.
    wrong: Option<u64>,
}

fn rows(journal: &Journal) -> impl Iterator<Item = MessageRow<'_>> {
    let measured = journal.outcomes.iter().filter_map(|o| match o {
        CaseOutcome::Measured(m) => Some(m.as_ref()),
        _ => None,
    });
    measured.filter_map(|m| {
        let flow = m.case.timed.first()?;
        let wire = flow.by.wire()?;
        // A wrong byte is a fault and has no figures: remaining cases were right, or not compared.
        let wrong = matches!(m.verdict, VerifyResult::Verified).then_some(0);
        Some(MessageRow { flow, wire, series: &m.series, cadence: m.case.cadence, wrong })
    })
}

/// Why a run cannot be printed in a format.
fn nothing(what: &str, suites: &str) -> String {
    format!("this run has no {what} to print; `pathline run {suites}` measures some")
}

/// One block of output of OSU's benchmarks.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct OsuBlock {
    order: u8,
    op: Option<Collective>,
    reduced: ElementReduction,
    mem: MemKind,
    /// The receiver's memory.
    to: MemKind,
    staged: bool,
    /// What the GPU runtime copies with, where the case names it.
    agent: Option<CopyAgent>,
    /// Sender and receiver of a program of two ranks.
    ends: Option<(Rank, Rank)>,
    ranks: usize,
    pairs: usize,
}

/// The output of OSU's benchmarks for the MPI cases of a run: osu_latency, osu_bw, osu_bibw,
/// osu_mbw_mr, osu_put_bw, osu_get_bw and, with `-f`, the collectives. Sizes are as in OSU. Each
/// block begins with a comment that names its cases.
///
/// # Errors
/// The run has no such case.
pub fn osu(journal: &Journal) -> Result<String, String> {
    let mut blocks: BTreeMap<OsuBlock, Vec<MessageRow<'_>>> = BTreeMap::new();
    for row in rows(journal).filter(|r| r.wire.via.carrier() == Transport::Mpi) {
        if let Some(block) = block(&row) {
            blocks.entry(block).or_default().push(row);
        }
    }
    let mut text = String::new();
    for (block, mut rows) in blocks {
        rows.sort_by_key(|r| r.flow.bytes);
        write_block(&mut text, journal, &block, &rows);
    }
    if text.is_empty() {
        return Err(nothing("MPI cases", "mpi-latency,mpi-bandwidth,mpi-collectives"));
    }
    Ok(text)
}

fn block(row: &MessageRow<'_>) -> Option<OsuBlock> {
    let pairs = row.series.len();
    let back = row.series.get(1).is_some_and(|s| s.flow.src.rank == row.flow.dst.rank);
    let (order, op) = match row.wire.op {
        WireOp::Ping => (0, None),
        WireOp::Send { .. } if pairs == 1 => (1, None),
        WireOp::Send { .. } if back => (2, None),
        WireOp::Send { .. } => (3, None),
        WireOp::Put { window } if window > 1 => (4, None),
        WireOp::Get { window } if window > 1 => (5, None),
        WireOp::Put { .. } => (6, None),
        WireOp::Get { .. } => (7, None),
        WireOp::Group { op, in_place: false, .. } => (8, Some(op)),
        WireOp::Group { .. }
        | WireOp::Consume
        | WireOp::Overlapped { .. }
        | WireOp::PersistentPing
        | WireOp::PersistentSend { .. }
        | WireOp::PersistentGroup { .. }
        | WireOp::Atomic(_) => return None,
    };
    let of_two = op.is_none() && order != 3;
    if of_two && pairs > 1 && order != 2 {
        return None;
    }
    let ranks = if op.is_some() { participants(row.flow) } else { 2 };
    Some(OsuBlock {
        order,
        op,
        reduced: row.wire.op.reduced(),
        mem: row.flow.src.mem,
        to: row.flow.dst.mem,
        staged: row.wire.via == Transport::MpiStaged,
        agent: row.wire.agent,
        ends: of_two.then_some((row.flow.src.rank, row.flow.dst.rank)),
        ranks,
        pairs,
    })
}

fn write_block(text: &mut String, journal: &Journal, block: &OsuBlock, rows: &[MessageRow<'_>]) {
    let OsuBlock { order, op, reduced, mem: from, to, staged, agent, ends, ranks, pairs } = block;
    let name = match (order, op) {
        (0, _) => "Latency Test".to_owned(),
        (1, _) => "Bandwidth Test".to_owned(),
        (2, _) => "Bi-Directional Bandwidth Test".to_owned(),
        (3, _) => "Multiple Bandwidth / Message Rate Test".to_owned(),
        (4, _) => "Put Bandwidth Test".to_owned(),
        (5, _) => "Get Bandwidth Test".to_owned(),
        (6, _) => "Put Latency Test".to_owned(),
        (7, _) => "Get Latency Test".to_owned(),
        (_, Some(op)) => format!("{} Latency Test", osu_name(*op)),
        (_, None) => return,
    };
    let library = plain_line(&library_name(journal, Transport::Mpi)).into_owned();
    let staged = if *staged { " staged through the host by pathline" } else { "" };
    let what = match (order, ends) {
        (3, _) => format!("{pairs} pairs"),
        (_, Some((from, to))) => format!("ranks {} and {}", from.0, to.0),
        (_, None) => format!("{ranks} ranks"),
    };
    // OSU's programs only sum.
    let by = if reduced.by == ReduceOp::Sum { String::new() } else { format!(", {}", reduced.by) };
    let setting = agent.map_or(String::new(), |agent| agent_setting(journal, agent));
    let world = world(journal);
    let mem = if from == to { from.to_string() } else { format!("{from} to {to}") };
    let _ = writeln!(text, "# pathline: {library}, {what}, {mem}{staged}{setting}{by}{world}");
    // The title of the programs if built for GPUs.
    let of_gpu = |mem: &MemKind| matches!(mem, MemKind::Vram | MemKind::Managed);
    let gpu = if of_gpu(from) || of_gpu(to) { gpu_word(journal) } else { "" };
    let _ = writeln!(text, "# OSU MPI{gpu} {name} v{OSU}");
    if op != &Some(Collective::Barrier) {
        // OSU names the type that it sums; bytes are of no other use.
        let reduces = op.is_some_and(Collective::reduces);
        let kind = reduces.then(|| reduced.element.mpi_name()).flatten().unwrap_or("MPI_CHAR");
        let _ = writeln!(text, "# Datatype: {kind}.");
    }
    if *order == 3 {
        let _ = writeln!(text, "# [ pairs: {pairs} ] [ window size: {} ]", window(rows));
    }
    header(text, *order, *op);
    for row in rows {
        line(text, *order, *op, row);
    }
    text.push('\n');
}

/// `, HSA_ENABLE_SDMA=0`: how the runtime was started for a case that names what copies.
fn agent_setting(journal: &Journal, agent: CopyAgent) -> String {
    let name = journal.topology.gpu_env(|caps| caps.copy_engine_env);
    let value = u8::from(agent == CopyAgent::Engine);
    name.map_or(String::new(), |name| format!(", {name}={value}"))
}

fn window(rows: &[MessageRow<'_>]) -> String {
    let mut windows: Vec<u32> = rows.iter().map(|r| r.wire.op.window()).collect();
    windows.dedup();
    windows.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn header(text: &mut String, order: u8, op: Option<Collective>) {
    let _ = match (order, op) {
        (0 | 6 | 7, _) => writeln!(text, "{:<10}{:>18}", "# Size", "Avg Latency(us)"),
        (1 | 2 | 4 | 5, _) => writeln!(text, "{:<10}{:>18}", "# Size", "Bandwidth (MB/s)"),
        (3, _) => writeln!(text, "{:<10}{:>18}{:>18}", "# Size", "MB/s", "Messages/s"),
        (_, Some(Collective::Barrier)) => writeln!(
            text,
            "{:>18}{:>18}{:>18}{:>12}",
            "# Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations"
        ),
        _ => writeln!(
            text,
            "{:<10}{:>18}{:>18}{:>18}{:>12}",
            "# Size", "Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations"
        ),
    };
}

fn line(text: &mut String, order: u8, op: Option<Collective>, row: &MessageRow<'_>) {
    let Some(CountedTimes { first, mean, min, max, operations }) =
        row.series.first().and_then(CountedTimes::from_series)
    else {
        return;
    };
    let (size, window) = (row.flow.bytes, f64::from(row.wire.op.window()));
    let slowest = || {
        row.series.iter().filter_map(CountedTimes::from_series).map(|c| c.max).fold(0.0, f64::max)
    };
    // Bytes per us are MB/s of 1e6 B.
    let rate = |us: f64| row.series.len() as f64 * window * size.as_f64() / us;
    let _ = match (order, op) {
        (0 | 6 | 7, _) => writeln!(text, "{:<10}{first:>18.2}", size.0),
        (1 | 4 | 5, _) => writeln!(text, "{:<10}{:>18.2}", size.0, rate(first)),
        (2, _) => writeln!(text, "{:<10}{:>18.2}", size.0, rate(slowest())),
        (3, _) => {
            let mbs = rate(slowest());
            writeln!(text, "{:<10}{mbs:>18.2}{:>18.2}", size.0, mbs * 1e6 / size.as_f64())
        }
        (_, Some(Collective::Barrier)) => {
            writeln!(text, "{mean:>18.2}{min:>18.2}{max:>18.2}{operations:>12}")
        }
        (_, Some(op)) => {
            let size = op.osu_size(size, participants(row.flow)).0;
            writeln!(text, "{size:<10}{mean:>18.2}{min:>18.2}{max:>18.2}{operations:>12}")
        }
        _ => Ok(()),
    };
}

fn osu_name(op: Collective) -> &'static str {
    match op {
        Collective::Broadcast => "Broadcast",
        Collective::Reduce => "Reduce",
        Collective::AllReduce => "Allreduce",
        Collective::ReduceScatter => "Reduce_scatter",
        Collective::AllGather => "Allgather",
        Collective::AllToAll => "All-to-All",
        Collective::Gather => "Gather",
        Collective::Scatter => "Scatter",
        Collective::AllGatherV => "Allgatherv",
        Collective::AllToAllV => "All-to-Allv",
        Collective::GatherV => "Gatherv",
        Collective::ScatterV => "Scatterv",
        Collective::Barrier => "Barrier",
    }
}

fn gpu_word(journal: &Journal) -> &'static str {
    journal.topology.gpus.first().map_or("-CUDA", |gpu| gpu.caps().osu_suffix)
}

/// Marks simulated values, so that no script takes a model for a machine.
fn world(journal: &Journal) -> String {
    match &journal.begin.world {
        pathline_schema::WorldKind::Real => String::new(),
        pathline_schema::WorldKind::Simulated(machine) => {
            format!(", SIMULATED ({})", plain_line(machine))
        }
    }
}

/// The output of nccl-tests for the NCCL and RCCL collectives of a run: a table for each operation,
/// type and operation of a reduction, number of ranks and cadence, in place next to out of place.
///
/// # Errors
/// The run has no such case.
pub fn nccl_tests(journal: &Journal) -> Result<String, String> {
    type BlockKey = (Collective, ElementReduction, usize, Cadence);
    let mut tables: BTreeMap<BlockKey, BTreeMap<Bytes, [Option<MessageRow<'_>>; 2]>> =
        BTreeMap::new();
    for row in rows(journal).filter(|r| r.wire.via == Transport::Ccl) {
        // Registration is an option of nccl-tests, so that each table has one of the two.
        let WireOp::Group { op, reduced, in_place, unregistered: false } = row.wire.op else {
            continue;
        };
        let sizes = tables.entry((op, reduced, participants(row.flow), row.cadence)).or_default();
        let places = sizes.entry(row.flow.bytes).or_default();
        if let Some(place) = places.get_mut(usize::from(in_place)) {
            *place = Some(row);
        }
    }
    if tables.is_empty() {
        return Err(nothing("NCCL or RCCL collectives", "ccl-collectives"));
    }
    let mut text = String::new();
    let library = plain_line(&library_name(journal, Transport::Ccl)).into_owned();
    for ((op, reduced, n, cadence), sizes) in &tables {
        let (least, most) = (sizes.keys().next(), sizes.keys().next_back());
        let of = |size: Option<&Bytes>| size.map_or(0, |b| b.0);
        let _ = writeln!(
            text,
            "# pathline: {library}, {op} over {n} ranks, {cadence}{}",
            world(journal)
        );
        let graph = u8::from(*cadence == Cadence::Graph);
        // Messages of a model carry no bytes to compare.
        let validation = u8::from(is_compared(sizes));
        let _ = writeln!(
            text,
            "# minBytes {} maxBytes {} validation: {validation} graph: {graph}\n#",
            of(least),
            of(most)
        );
        devices(&mut text, journal, *n);
        table(&mut text, (*op, *reduced), *n, sizes);
    }
    Ok(text)
}

fn devices(text: &mut String, journal: &Journal, n: usize) {
    let members = &journal.begin.ranks;
    let one = |rank: usize, host: &str, pid: u32, gpu: u32| {
        let known = journal.topology.gpus.iter().find(|g| g.index == gpu);
        let (name, address) = known.map_or(("", ""), |g| (g.name.as_str(), g.pci.as_str()));
        format!(
            "#  Rank {rank:2} Group  0 Pid {pid:6} on {host:>10} device {gpu:2} [{address}] {name}"
        )
    };
    let _ = writeln!(text, "# Using devices");
    let rows: Vec<String> = match members.as_slice() {
        [alone] => {
            let gpus = alone.gpus.iter().take(n).enumerate();
            gpus.map(|(i, &gpu)| one(i, &alone.host, alone.pid, gpu)).collect()
        }
        several => several
            .iter()
            .take(n)
            .filter_map(|m| Some(one(m.rank.0 as usize, &m.host, m.pid, *m.gpus.first()?)))
            .collect(),
    };
    for row in rows {
        let _ = writeln!(text, "{}", plain_line(row.trim_end()));
    }
    text.push_str("#\n");
}

fn table(
    text: &mut String,
    (op, reduced): (Collective, ElementReduction),
    n: usize,
    sizes: &BTreeMap<Bytes, [Option<MessageRow<'_>>; 2]>,
) {
    let _ = writeln!(text, "#{:>74}{:>31}{:>10}", "out-of-place", "in-place", "");
    let of_place = format!("{:>9}{:>8}{:>8}{:>7}", "time", "algbw", "busbw", "#wrong");
    let _ = writeln!(
        text,
        "#{:>11}{:>14}{:>10}{:>8}{:>8}{of_place}{of_place}",
        "size", "count", "type", "redop", "root"
    );
    let units = format!("{:>9}{:>8}{:>8}{:>7}", "(us)", "(GB/s)", "(GB/s)", "");
    let _ = writeln!(text, "#{:>11}{:>14}{:>26}{units}{units}", "(B)", "(elements)", "");
    let mut sum = (0.0, 0u32);
    for (size, places) in sizes {
        // For a split buffer, nccl-tests counts the elements of one rank's part.
        let parts = if op.is_split() { n as u64 } else { 1 };
        let element = element_of(op, reduced);
        let count = size.0 / element.bytes() / parts.max(1);
        let redop = if op.reduces() { reduced.by.word() } else { "none" };
        let root = if op.has_root() { "0" } else { "-1" };
        let kind = element.nccl_tests_name();
        let _ = write!(text, "{:>12}{count:>14}{kind:>10}{redop:>8}{root:>8}", size.0);
        for place in places {
            let measured = place.as_ref().and_then(|row| {
                let counted = row.series.first().and_then(CountedTimes::from_series)?;
                Some((counted.mean, row.wrong))
            });
            let Some((us, wrong)) = measured else {
                let _ = write!(text, "{:>9}{:>8}{:>8}{:>7}", "N/A", "N/A", "N/A", "N/A");
                continue;
            };
            let alg = size.as_f64() / (us * 1e3);
            let bus = alg * op.bus_factor(n);
            sum = (sum.0 + bus, sum.1 + 1);
            let wrong = wrong.map_or("N/A".to_owned(), |w| w.to_string());
            let _ = write!(text, "{:>9}{alg:>8.2}{bus:>8.2}{wrong:>7}", time(us));
        }
        text.push('\n');
    }
    let verdict = if is_compared(sizes) { "0 OK" } else { "N/A" };
    let _ = writeln!(text, "# Out of bounds values : {verdict}");
    let average = if sum.1 > 0 { sum.0 / f64::from(sum.1) } else { 0.0 };
    let _ = writeln!(text, "# Avg bus bandwidth    : {average:.4}\n#\n");
}

/// The type that the library was called with: bytes, unless it computes.
fn element_of(op: Collective, reduced: ElementReduction) -> ElementType {
    if op.reduces() { reduced.element } else { ElementType::Uint8 }
}

/// Whether the bytes of every row were compared.
fn is_compared(sizes: &BTreeMap<Bytes, [Option<MessageRow<'_>>; 2]>) -> bool {
    sizes.values().flatten().flatten().all(|row| row.wrong.is_some())
}

/// As many digits as fit: `33.93`, `125.8`, `10052`.
fn time(us: f64) -> String {
    match us {
        us if us >= 10_000.0 => format!("{us:.0}"),
        us if us >= 100.0 => format!("{us:.1}"),
        us => format!("{us:.2}"),
    }
}
