//! `pathline case`.

use anyhow::{Result, anyhow};
use pathline_explain::shell_quote::quote;
use pathline_schema::{Cadence, Case, Flow, MemKind, Mover, Place, Unit};

use super::ExitKind;
use crate::args::CaseArgs;
use crate::say::outln;

pub(super) fn run(args: &CaseArgs) -> Result<ExitKind> {
    let case = Case::parse_with_defaults(&args.text).map_err(|error| anyhow!("{error}"))?;
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
    outln!("measure it     pathline run --case {}", quote(&text));
    outln!("predict it     pathline predict --machine mi250x --case {}", quote(&text));
    Ok(ExitKind::Fine)
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
        Mover::Batch { .. } => "several copies by one runtime call",
        Mover::Call { .. } => "a runtime call; nothing is carried, the call is timed",
        Mover::Wire { .. } => "messages between processes: library, operation",
        Mover::Io { .. } => "I/O on files: engine, operation, cache, span, queue depth, threads",
        Mover::Meta { .. } => "metadata operations: operation, folders, files in each, threads",
    };
    format!("on {}, {what}", mover.at())
}
