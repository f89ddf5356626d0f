//! Messages between GPUs that a library moves slower by copy engine than by copy kernel.

use std::collections::BTreeMap;

use pathline_explain::fmt;
use pathline_explain::message_records::library_name;
use pathline_schema::{Bytes, CopyAgent, MemKind, Place, SizedTransfer, Transport, WireOp};

use super::copy_engine::copy_kernel_cost;
use crate::evidence::{Evidence, SoundValue, lost, range_text, widest_text};
use crate::setting_sizes::setting_sizes;
use crate::{Finding, FindingSeverity};

pub(super) const ID: &str = "engine-limits-messages";

/// Rates of one message by what copies it.
#[derive(Debug, Default)]
struct AgentRates<'a> {
    engine: Option<SoundValue<'a>>,
    kernel: Option<SoundValue<'a>>,
}

/// A pair of GPUs, at the largest size that was measured both ways.
struct SlowMessage<'a> {
    src: Place,
    dst: Place,
    engine: SoundValue<'a>,
    kernel: SoundValue<'a>,
    factor: f64,
}

/// Pairs that are named.
const MAX_NAMED: usize = 4;

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    [Transport::Mpi, Transport::Ucx].into_iter().filter_map(|via| finding(evidence, via)).collect()
}

/// Rates of windows of messages between GPUs, by pair and size.
fn rates<'a>(
    evidence: &Evidence<'a>,
    via: Transport,
) -> BTreeMap<(Place, Place), BTreeMap<Bytes, AgentRates<'a>>> {
    let mut all: BTreeMap<_, BTreeMap<Bytes, AgentRates>> = BTreeMap::new();
    for (entry, flow) in evidence.lone() {
        let device = flow.src.mem == MemKind::Vram && flow.dst.mem == MemKind::Vram;
        let Some(wire) = flow.by.wire().filter(|wire| wire.via == via && device) else { continue };
        let (WireOp::Send { .. }, Some(agent)) = (wire.op, wire.agent) else { continue };
        let sizes = all.entry((flow.src, flow.dst)).or_default();
        let rates = sizes.entry(flow.bytes).or_default();
        match agent {
            CopyAgent::Engine => rates.engine = evidence.rate(entry),
            CopyAgent::Kernel => rates.kernel = evidence.rate(entry),
        }
    }
    all
}

fn finding(evidence: &Evidence, via: Transport) -> Option<Finding> {
    let caps = evidence.caps();
    let setting = caps.copy_engine_env?;
    let mut compared = Vec::new();
    let mut slow = Vec::new();
    for ((src, dst), sizes) in rates(evidence, via) {
        let both = |rates: &AgentRates<'_>| rates.engine.is_some() && rates.kernel.is_some();
        let Some((size, rates)) = sizes.into_iter().rfind(|(_, rates)| both(rates)) else {
            continue;
        };
        let (Some(engine), Some(kernel)) = (rates.engine, rates.kernel) else { continue };
        compared.push((size, src, dst));
        if let Some(factor) = kernel.gain_over(&engine) {
            slow.push(SlowMessage { src, dst, engine, kernel, factor });
        }
    }
    // What is said of a size is of the pairs that were compared at it.
    let largest = compared.iter().map(|(size, ..)| *size).max();
    compared.retain(|(size, ..)| Some(*size) == largest);
    // A run may have more pairs, of other sizes or with one of the two.
    let named = compared.iter().map(|(_, src, dst)| format!("{}→{}", src.unit, dst.unit));
    let named = match compared.len() {
        1..=MAX_NAMED => format!(" ({})", named.collect::<Vec<_>>().join(", ")),
        _ => String::new(),
    };
    let compared = compared.len();
    slow.retain(|m: &SlowMessage| m.engine.case.timed.first().map(|flow| flow.bytes) == largest);
    slow.sort_by(|a, b| b.factor.total_cmp(&a.factor));
    let most = slow.first()?;
    let engines: Vec<SoundValue> = slow.iter().map(|m| m.engine).collect();
    let kernels: Vec<SoundValue> = slow.iter().map(|m| m.kernel).collect();
    let factors: Vec<f64> = slow.iter().map(|m| m.factor).collect();
    let (library, size) =
        (library_name(evidence.run.journal, via), most.engine.case.timed.first()?.bytes.rounded());
    // Cray MPICH's kernels write; of others the protocol decides.
    let end = if via == Transport::Mpi { "the sender" } else { "the GPU that copies" };
    let observation = format!(
        "Between {} measured at {size} with both{named}, messages by {library} reach {} GB/s{} with {}, {} with blit \
         kernels at {end}.",
        fmt::of_all(slow.len(), compared, "GPU pair"),
        range_text(&engines),
        widest_text(&engines),
        caps.engine_name,
        range_text(&kernels),
    );
    let by_size = setting_sizes(evidence);
    let transfer = if via == Transport::Ucx { SizedTransfer::Ucx } else { SizedTransfer::Mpi };
    let name = |place: Place| format!("r{}.{}", place.rank.0, place.unit);
    Some(Finding {
        short: format!(
            "{library} with {} reaches {} GB/s, with blit kernels {} ({size}, {} pairs)",
            caps.engine_name,
            range_text(&engines),
            range_text(&kernels),
            slow.len()
        ),
        cause: format!(
            "The library copies with the runtime, and one {} engine has one rate whatever the links.",
            caps.engine_name.trim_end_matches(" engine")
        ),
        action: match by_size.sizes_of_gain(transfer) {
            Some(sizes) => format!(
                "Start jobs that send {sizes} at once with {setting}=0, unless their messages must overlap \
                 with kernels."
            ),
            None => format!(
                "Start the job with {setting}=0, unless its messages must overlap with kernels."
            ),
        },
        by_size: by_size.verdict().is_some().then_some(by_size),
        gain: evidence.gain(&factors),
        cost: copy_kernel_cost(evidence, true, end),
        places: slow.iter().map(|m| format!("{}→{}", name(m.src), name(m.dst))).collect(),
        arms: vec![
            most.engine.arm(format!("{} ({setting}=1)", caps.engine_name)),
            most.kernel.arm(format!("blit kernel at {end} ({setting}=0)")),
        ],
        weight: slow.iter().map(|m| lost(&m.kernel, &m.engine)).sum(),
        ..Finding::new(ID, FindingSeverity::Gain, observation)
    })
}
