//! `pathline explain CASE`.

use anyhow::{Result, anyhow, bail};
use pathline_flow::{Network, RuntimeEnv, SetPredictor};
use pathline_message::ExchangeSpec;
use pathline_runner::MachineModel;
use pathline_schema::{
    Cadence, Case, Flow, MemKind, MessageOp, Mover, Place, Transport, Unit, shell_word,
};

use super::message_cases::exchange_of_messages;
use super::{ExitKind, predict};
use crate::args::PredictArgs;
use crate::say::outln;

/// Explains the text of a case, with its time on a simulated machine if one is named.
pub(super) fn run(text: &str, machine: Option<&str>) -> Result<ExitKind> {
    if text.parse::<ExchangeSpec>().is_ok() {
        outln!(
            "measure it     pathline run ccl-collectives --ranks N, or mpi-collectives by mpirun"
        );
        let Some(name) = machine else {
            outln!("predict it     {}", predict_command(PREDICTED_ON, text));
            return Ok(ExitKind::Fine);
        };
        outln!("on {name}, simulated:");
        return predict::run(&PredictArgs::of_text(name, text.to_owned()));
    }
    let exchange = text.parse::<ExchangeSpec>().err().filter(|_| text.contains(" over "));
    let case = Case::parse_with_defaults(text)
        .map_err(|error| exchange.map_or_else(|| anyhow!("{error}"), |why| anyhow!("{why}")))?;
    let text = case.to_string();
    outln!("{text}");
    for flow in &case.timed {
        explain_flow("flow", flow);
    }
    for flow in &case.background {
        explain_flow("background flow, not timed", flow);
    }
    let cadence = match case.cadence {
        Cadence::Streaming => "streaming: operations are queued back to back",
        Cadence::Isolated => "isolated: each operation waits for the one before",
        Cadence::Graph => "graph: operations are recorded once and launched as a GPU graph",
    };
    outln!("  cadence      {cadence}");
    if let Some(why) = case.flows().find_map(Flow::misfit) {
        outln!("  impossible   {why}");
    }
    outln!("measure it     {} {}", measure_command(&case), shell_word(&text));
    let name = machine.unwrap_or(PREDICTED_ON);
    match (check_predicted(&case, name), machine) {
        (Ok(()), None) => outln!("predict it     {}", predict_command(name, &text)),
        (Ok(()), Some(_)) => {
            outln!("on {name}, simulated:");
            return predict::run(&PredictArgs::of_text(name, text));
        }
        (Err(why), None) => outln!("predict it     not for {name}: {why}"),
        (Err(why), Some(_)) => bail!("{name} cannot carry {text}: {why}"),
    }
    Ok(ExitKind::Fine)
}

/// The node of the example command.
const PREDICTED_ON: &str = "mi250x";

/// The command that starts a run with what the case needs, up to its text.
fn measure_command(case: &Case) -> String {
    let places = || case.flows().flat_map(|flow| [flow.src, flow.dst]);
    let ranks = places().map(|place| place.rank.0).max().unwrap_or(0).saturating_add(1);
    let wires: Vec<MessageOp> = case.flows().filter_map(|flow| flow.by.wire().copied()).collect();
    // Ranks that pathline starts itself have no MPI.
    let (launch, option) = match wires.iter().any(|wire| wire.via.carrier() == Transport::Mpi) {
        true => (format!("mpirun -n {ranks} "), String::new()),
        false if wires.is_empty() => Default::default(),
        false => (String::new(), format!(" --ranks {ranks}")),
    };
    let store = |place: Place| match place.unit {
        Unit::Store(n) => Some(n.saturating_add(1)),
        _ => None,
    };
    let stores = places().filter_map(store).max().unwrap_or(0) as usize;
    format!("{launch}pathline run{option}{}", " --store DIR".repeat(stores))
}

/// The command that predicts a case or an exchange.
fn predict_command(machine: &str, text: &str) -> String {
    format!("pathline model predict --machine {machine} {}", shell_word(text))
}

/// Whether a simulated machine predicts a case; the error is why it does not.
fn check_predicted(case: &Case, machine: &str) -> Result<()> {
    let model = MachineModel::read(machine)?;
    let desc = model.desc();
    match exchange_of_messages(case, desc) {
        Some(exchange) => exchange.map(drop),
        None => {
            let network = Network::new(desc, RuntimeEnv::default())?;
            SetPredictor::new(&network).durations(case)?;
            Ok(())
        }
    }
}

fn explain_flow(title: &str, flow: &Flow) {
    outln!("  {title}");
    outln!("    from       {}  {}", flow.src, explain_place(&flow.src));
    outln!("    to         {}  {}", flow.dst, explain_place(&flow.dst));
    outln!("    by         {}  {}", flow.by, explain_mover(&flow.by));
    let size =
        if flow.by.is_chase() { "span of the pointer chain" } else { "bytes of one operation" };
    outln!("    x          {}  {size}", flow.bytes);
}

fn explain_place(place: &Place) -> String {
    let memory = match place.mem {
        MemKind::Vram => "device memory (hipMalloc, cudaMalloc)",
        MemKind::VramFine => "fine-grained device memory (hipDeviceMallocFinegrained)",
        MemKind::Pinned => "pinned host memory (hipHostMalloc, cudaHostAlloc)",
        MemKind::PinnedNonCoherent => "pinned host memory, non-coherent",
        MemKind::PinnedWc => "pinned host memory, write-combined",
        MemKind::PinnedDefault => "pinned host memory whose NUMA domain the runtime chooses",
        MemKind::Registered => "host memory, registered later (hipHostRegister, cudaHostRegister)",
        MemKind::RegisteredHuge => "host memory of huge pages, registered later",
        MemKind::Paged => "pageable host memory (malloc)",
        MemKind::Huge => "pageable host memory of huge pages",
        MemKind::Managed => "managed memory (hipMallocManaged, cudaMallocManaged)",
        MemKind::Reg => "registers: no memory at this end",
        MemKind::File => "files of a --store",
    };
    let unit = match place.unit {
        Unit::Gpu(n) => format!("GPU {n}"),
        Unit::Numa(n) => format!("NUMA domain {n}"),
        Unit::Store(n) => format!("store {n}"),
    };
    format!("rank {}, {unit}, {memory}", place.rank.0)
}

fn explain_mover(mover: &Mover) -> String {
    let what = match mover {
        Mover::Dma { .. } => "runtime copy: SDMA copy (hipMemcpy), copy engine (cudaMemcpy)",
        Mover::Blit { .. } => "the runtime's copy kernel, blit (HSA_ENABLE_SDMA=0)",
        Mover::Kernel { .. } => "pathline's kernel: operation, width, unroll, block, grid",
        Mover::Cpu { .. } => "CPU threads: operation, instructions, threads",
        Mover::Migrate { .. } => "page migration of managed memory (AMD: XNACK=1 for faults)",
        Mover::Staged { .. } => "two copies through a buffer in host memory",
        Mover::Threads { .. } => {
            "copy of pageable memory by threads through pinned buffers: threads"
        }
        Mover::Batch { .. } => "several copies by one runtime call",
        Mover::Blocks { .. } => {
            "scattered blocks: their number, by one kernel (multiprocessors), one call or a copy each"
        }
        Mover::Relay { .. } => "several paths at once: relays, chunk, blit kernels or copy engines",
        Mover::CopyToAll { .. } => {
            "the same bytes to several GPUs: the others, chunk, blit kernels or copy engines"
        }
        Mover::Call { .. } => "a runtime call; nothing is carried, the call is timed",
        Mover::Wire { .. } => "messages between processes: library, operation",
        Mover::Io { .. } => "I/O on files: engine, operation, cache, span, queue depth, threads",
        Mover::Meta { .. } => "metadata operations: operation, folders, files in each, threads",
    };
    format!("on {}, {what}", mover.at())
}
