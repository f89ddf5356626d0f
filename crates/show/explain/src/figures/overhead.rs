//! Cost of runtime calls, and savings by batches.

use pathline_schema::{Bytes, Flow, MemKind, Mover, RuntimeCall, SuiteId};

use super::pivot::CellPivot;
use super::{BetterWhen, Figure, FigureCell, SuiteFindings, frame, mem_words};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

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
        Some((call_name(call).to_owned(), run.cell(e, CaseQuantity::StepUs)))
    });
    let cases = (SUITE, "gpu*.reg > gpu*.reg by call");
    frame(run, cases, "overhead-calls", "What runtime calls cost")
        .finding("Host time of one call, made while the GPU is idle.")
        .draw_bars(("us", BetterWhen::Lower), bars)
}

fn memory(run: &RunView, sized: &[SizedCall], finding: Option<String>) -> Option<Figure> {
    let points = sized.iter().map(|&(call, mem, bytes, entry)| {
        ((call, mem), bytes, run.cell(entry, CaseQuantity::StepUs))
    });
    let pivot = CellPivot::new(points).sorted_cols();
    let matrix = pivot.matrix(
        ("call", |(call, mem)| format!("{} {}", call_name(*call), memory_label(*mem))),
        ("size", |bytes| bytes.rounded().to_string()),
        ("us", BetterWhen::Lower),
    );
    frame(run, (SUITE, "* > * by call"), "overhead-memory", "Allocation, free and pinning cost")
        .finding(finding.unwrap_or_default())
        .draw_any(matrix)
}

/// Time of one copy in a batch, and of copies of the same size queued one by one.
fn batches(run: &RunView) -> Option<Figure> {
    let mut bars = Vec::new();
    let mut gains = Vec::new();
    for entry in run.suite(SUITE) {
        let Some(flow) = entry.lone() else { continue };
        let Mover::Batch { copies, .. } = flow.by else { continue };
        let each = Bytes(flow.bytes.0 / u64::from(copies));
        let single = run.suite(SUITE).find(|e| {
            let same = |f: &&Flow| (f.src, f.dst, f.bytes) == (flow.src, flow.dst, each);
            e.lone().filter(same).is_some_and(|f| matches!(f.by, Mover::Dma { .. }))
        });
        let whole = run.cell(entry, CaseQuantity::StepUs);
        let part = 1.0 / f64::from(copies);
        let cell = FigureCell {
            value: whole.value.map(|v| v * part),
            half_width: whole.half_width * part,
            ..whole
        };
        if let Some(single) = single {
            let one = run.cell(single, CaseQuantity::StepUs);
            gains.extend(one.value.zip(cell.value).map(|(one, batch)| {
                format!("{} of {each} is {} times as fast", copies, fmt::number(one / batch))
            }));
            bars.push((format!("{each}, one by one"), one));
        }
        bars.push((format!("{each}, {copies} in one call"), cell));
    }
    let finding = if gains.is_empty() {
        "This runtime has no call for a batch of copies.".to_owned()
    } else {
        format!("By one call, a copy of {}.", fmt::list(&gains))
    };
    let title = "Time of a small copy into the GPU, queued one by one and in a batch";
    frame(run, (SUITE, "*.pinned > gpu*.vram"), "overhead-batch", title)
        .finding(finding)
        .draw_bars(("us", BetterWhen::Lower), bars)
}

/// Milliseconds at the largest measured size, and the cost of a launch. Not per GiB: the time is
/// not proportional to the size (256 MiB of GPU memory take 7 times as long as 2 MiB).
fn sentence(run: &RunView, sized: &[SizedCall]) -> Option<String> {
    let largest = sized.iter().map(|s| s.2).max()?;
    let of_largest = |call: RuntimeCall, mem: MemKind| {
        let found = sized.iter().find(|s| (s.0, s.1, s.2) == (call, mem, largest))?;
        Some(run.value(found.3, CaseQuantity::StepUs)? / 1e3)
    };
    let parts: Vec<String> = [
        ("register (pin)", RuntimeCall::Register, MemKind::Paged),
        ("unregister", RuntimeCall::Unregister, MemKind::Paged),
        ("register in huge pages", RuntimeCall::Register, MemKind::Huge),
        ("allocate pinned", RuntimeCall::Alloc, MemKind::Pinned),
        ("allocate on the GPU", RuntimeCall::Alloc, MemKind::Vram),
    ]
    .into_iter()
    .filter_map(|(what, call, mem)| {
        Some(format!("{what} {} ms", fmt::number(of_largest(call, mem)?)))
    })
    .collect();
    let time = |wanted: RuntimeCall| {
        let found = run.suite(SUITE).find(|e| e.lone().and_then(call) == Some(wanted))?;
        run.value(found, CaseQuantity::StepUs)
    };
    let launch = time(RuntimeCall::Launch).zip(time(RuntimeCall::LaunchSync));
    let launch = launch.map_or(String::new(), |(call, whole)| {
        let (call, whole) = (fmt::number(call), fmt::number(whole));
        format!(" Kernel launch: {call} us to issue, {whole} us round trip.")
    });
    (!parts.is_empty()).then(|| format!("{largest}: {}.{launch}", parts.join(", ")))
}
