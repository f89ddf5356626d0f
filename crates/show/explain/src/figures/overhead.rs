//! Cost of runtime calls, and savings by batches.

use pathline_schema::{Bytes, Flow, MemKind, Mover, RuntimeCall, SuiteId};

use super::pivot::{CellPivot, US};
use super::{Figure, SuiteFindings, frame, mem_words};
use crate::fmt;
use crate::run::CaseQuantity::StepUs;
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Overhead;

fn call(flow: &Flow) -> Option<RuntimeCall> {
    if let Mover::Call { call, .. } = flow.by { Some(call) } else { None }
}

pub(super) fn call_name(call: RuntimeCall) -> &'static str {
    match call {
        RuntimeCall::Alloc => "allocate",
        RuntimeCall::Free => "free",
        RuntimeCall::Register => "register (pin)",
        RuntimeCall::Unregister => "unregister",
        RuntimeCall::Launch => "launch a kernel",
        RuntimeCall::LaunchSync => "launch a kernel and wait for it",
        RuntimeCall::Sync => "wait for an idle stream",
        RuntimeCall::Event => "record an event",
        RuntimeCall::Stream => "create a stream",
        RuntimeCall::NicRegister => "register by address",
        RuntimeCall::NicDeregister => "deregister",
        RuntimeCall::ExportDmabuf => "export as dma-buf",
        RuntimeCall::NicRegisterDmabuf => "register by dma-buf",
        RuntimeCall::NicDeregisterDmabuf => "deregister the dma-buf",
    }
}

pub(super) fn memory_label(mem: MemKind) -> String {
    match mem {
        MemKind::Huge => "huge pages".to_owned(),
        MemKind::Vram | MemKind::VramFine => mem_words(mem).to_owned(),
        _ => format!("{} memory", mem_words(mem)),
    }
}

/// A call with the kind of memory, size and entry.
type SizedCall<'b, 'a> = (RuntimeCall, MemKind, Bytes, &'b RunEntry<'a>);

fn sized<'b, 'a>(run: &'b RunView<'a>) -> Vec<SizedCall<'b, 'a>> {
    run.suite(SUITE)
        .filter_map(|e| {
            let flow = e.lone()?;
            Some((call(flow)?, flow.subject()?.mem, flow.bytes, e))
        })
        .collect()
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let sized = sized(run);
    let sentence = sentence(run, &sized);
    let figures = [calls(run), memory(run, &sized, sentence.clone()), batches(run)];
    SuiteFindings::new(figures.into_iter().flatten(), [sentence])
}

fn calls(run: &RunView) -> Option<Figure> {
    let bars = run.suite(SUITE).filter_map(|e| {
        let call = e.lone().and_then(call).filter(|call| !call.is_sized())?;
        Some((call_name(call).to_owned(), run.cell(e, StepUs)))
    });
    let cases = (SUITE, "gpu*.reg > gpu*.reg by call");
    frame(run, cases, "overhead-calls", "What runtime calls cost")
        .finding("Host time of one call, made while the GPU is idle.")
        .draw_bars(US, bars)
}

fn memory(run: &RunView, sized: &[SizedCall], finding: Option<String>) -> Option<Figure> {
    let points = sized.iter();
    let points = points.map(|&(call, mem, bytes, e)| ((call, mem), bytes, run.cell(e, StepUs)));
    let matrix = CellPivot::new(points).sorted_cols().matrix(
        ("call", |(call, mem)| format!("{} {}", call_name(*call), memory_label(*mem))),
        ("size", |bytes| bytes.rounded().to_string()),
        US,
    );
    frame(run, (SUITE, "* > * by call"), "overhead-memory", "Allocation, free and pinning cost")
        .finding(finding.unwrap_or_default())
        .draw_any(matrix)
}

/// Time of one copy in a batch, and of copies of the same size queued one by one.
fn batches(run: &RunView) -> Option<Figure> {
    let (mut bars, mut gains) = (Vec::new(), Vec::new());
    for entry in run.suite(SUITE) {
        let Some(flow) = entry.lone() else { continue };
        let Mover::Batch { copies, .. } = flow.by else { continue };
        let each = Bytes(flow.bytes.0 / u64::from(copies));
        let cell = run.cell(entry, StepUs).scaled(1.0 / f64::from(copies));
        let single = run.suite(SUITE).find(|e| {
            let same = |f: &&Flow| (f.src, f.dst, f.bytes) == (flow.src, flow.dst, each);
            e.lone().filter(same).is_some_and(|f| matches!(f.by, Mover::Dma { .. }))
        });
        if let Some(single) = single {
            let one = run.cell(single, StepUs);
            gains.extend(one.value.zip(cell.value).map(|(one, batch)| {
                format!("{copies} of {each} is {} times as fast", fmt::number(one / batch))
            }));
            bars.push((format!("{each}, one by one"), one));
        }
        bars.push((format!("{each}, {copies} in one call"), cell));
    }
    let finding = fmt::list_any(gains).map_or_else(
        || "This runtime has no call for a batch of copies.".to_owned(),
        |gains| format!("By one call, a copy of {gains}."),
    );
    let title = "Time of a small copy into the GPU, queued one by one and in a batch";
    frame(run, (SUITE, "*.pinned > gpu*.vram"), "overhead-batch", title)
        .finding(finding)
        .draw_bars(US, bars)
}

/// Milliseconds at the largest measured size, and the cost of a launch. Not per GiB: the time is
/// not proportional to the size (256 MiB of GPU memory take 7 times as long as 2 MiB).
fn sentence(run: &RunView, sized: &[SizedCall]) -> Option<String> {
    let largest = sized.iter().map(|s| s.2).max()?;
    let part = |(what, call, mem): (&str, RuntimeCall, MemKind)| {
        let found = sized.iter().find(|s| (s.0, s.1, s.2) == (call, mem, largest))?;
        Some(format!("{what} {} ms", fmt::number(run.value(found.3, StepUs)? / 1e3)))
    };
    let parts = [
        ("register (pin)", RuntimeCall::Register, MemKind::Paged),
        ("unregister", RuntimeCall::Unregister, MemKind::Paged),
        ("register in huge pages", RuntimeCall::Register, MemKind::Huge),
        ("allocate pinned", RuntimeCall::Alloc, MemKind::Pinned),
        ("allocate on the GPU", RuntimeCall::Alloc, MemKind::Vram),
    ];
    let parts = fmt::join_any(parts.into_iter().filter_map(part), ", ")?;
    let time = |wanted: RuntimeCall| {
        let found = run.suite(SUITE).find(|e| e.lone().and_then(call) == Some(wanted))?;
        run.value(found, StepUs).map(fmt::number)
    };
    let launch = time(RuntimeCall::Launch).zip(time(RuntimeCall::LaunchSync));
    let launch = launch.map_or(String::new(), |(call, whole)| {
        format!(" Kernel launch: {call} us to issue, {whole} us round trip.")
    });
    Some(format!("{largest}: {parts}.{launch}"))
}
