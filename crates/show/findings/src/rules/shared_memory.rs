//! Whether messages between two processes of a host gain from copies that bypass the caches.

use std::collections::BTreeSet;

use pathline_explain::fmt;
use pathline_explain::run::RunEntry;
use pathline_schema::{Bytes, CoreDistance, CpuHow, ShmCopies, Transport, WireOp};

use crate::evidence::{Evidence, SoundValue};
use crate::{Finding, FindingSeverity};

pub(super) const ID: &str = "messages-past-caches";

/// Size at which UCX's authors state the gain of osu_latency (PR 9408: 128 KB).
const SIZE: Bytes = Bytes::kib(128);

/// One method of copying, as it is usually done and with copies that bypass the caches.
struct CopyComparison<'a> {
    near: Option<CoreDistance>,
    method: &'static str,
    usual: SoundValue<'a>,
    past: SoundValue<'a>,
    past_name: String,
}

impl CopyComparison<'_> {
    /// Share of the time that is saved; negative where time is lost.
    fn saved(&self) -> f64 {
        1.0 - self.past.value / self.usual.value
    }

    fn text(&self) -> String {
        let change = match self.saved() {
            saved if saved >= 0.0 => format!("{} less", fmt::percent(saved)),
            saved => format!("{} more", fmt::percent(-saved)),
        };
        let place = match self.near {
            Some(CoreDistance::SameL3) => "cores of one L3",
            Some(CoreDistance::OtherL3) => "cores of two L3",
            None => "cores as started",
        };
        format!(
            "{change} on {place} by {} ({}: {} against {} us)",
            self.method,
            self.past_name,
            fmt::number(self.past.value),
            fmt::number(self.usual.value)
        )
    }
}

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    finding(evidence).into_iter().collect()
}

/// UCX's pair: the sender stores past the caches, the receiver loads past them and stores as usual.
fn is_past_caches(copies: ShmCopies) -> bool {
    let loads_past = |how| matches!(how, CpuHow::Avx2Ntl | CpuHow::Avx512Ntl);
    match copies {
        ShmCopies::InOut { copy_in, copy_out } => copy_in.is_streaming() && loads_past(copy_out),
        ShmCopies::Single(how) => loads_past(how),
        ShmCopies::Read | ShmCopies::Write => false,
    }
}

fn is_usual(copies: ShmCopies) -> bool {
    let memcpy = CpuHow::Memcpy;
    copies == ShmCopies::InOut { copy_in: memcpy, copy_out: memcpy }
        || copies == ShmCopies::Single(memcpy)
}

fn finding(evidence: &Evidence) -> Option<Finding> {
    let ping = |entry: &RunEntry| {
        let flow = entry.lone()?;
        let wire = flow.by.wire()?;
        let wanted = wire.op == WireOp::Ping && flow.bytes == SIZE;
        wanted.then_some((wire.via, wire.near, wire.copies?))
    };
    let entries = &evidence.run.entries;
    let nears: BTreeSet<Option<CoreDistance>> =
        entries.iter().filter_map(ping).map(|(_, near, _)| near).collect();
    let methods =
        [(Transport::Shm, "copy-in and copy-out"), (Transport::Xpmem, "a single copy (xpmem)")];
    let compare = |near: Option<CoreDistance>, (via, method): (Transport, &'static str)| {
        let time = |fits: fn(ShmCopies) -> bool| {
            let mut found = entries.iter().filter_map(|entry| {
                let (by, at, copies) = ping(entry)?;
                (by == via && at == near && fits(copies)).then_some((entry, copies))
            });
            let (entry, copies) = found.next()?;
            Some((evidence.time(entry)?, copies))
        };
        let ((usual, _), (past, copies)) = (time(is_usual)?, time(is_past_caches)?);
        Some(CopyComparison { near, method, usual, past, past_name: copies.to_string() })
    };
    let compared: Vec<CopyComparison> = nears
        .into_iter()
        .flat_map(|near| methods.map(|method| compare(near, method)))
        .flatten()
        .collect();
    if compared.is_empty() {
        return None;
    }
    let factors: Vec<f64> =
        compared.iter().filter_map(|c| c.past.time_gain_over(&c.usual)).collect();
    let texts: Vec<String> = compared.iter().map(CopyComparison::text).collect();
    let observation = format!(
        "Copies that bypass the caches take a message of {} {}.",
        SIZE.rounded(),
        texts.join("; ")
    );
    let gains = !factors.is_empty();
    let rate = |value: &SoundValue| SIZE.as_f64() / value.value / 1e3;
    Some(Finding {
        short: compared.iter().min_by(|a, b| b.saved().total_cmp(&a.saved())).map_or_else(
            String::new,
            |most| {
                let (past, usual) = (most.past.value, most.usual.value);
                let (past, usual) = (fmt::number(past), fmt::number(usual));
                format!("{} past the caches: {past} us, by memcpy {usual} us", SIZE.rounded())
            },
        ),
        action: if gains {
            "For UCX: build it with --enable-optimizations and set UCX_NT_BUFFER_TRANSFER_MIN=0, where \
             ranks sit on such cores."
                .to_owned()
        } else {
            "Leave UCX_NT_BUFFER_TRANSFER_MIN unset: plain copies are as fast.".to_owned()
        },
        gain: evidence.gain(&factors),
        cost: if gains {
            "The receiver's copy is plain, so its caches hold the message; the sender's do not."
                .to_owned()
        } else {
            String::new()
        },
        arms: compared
            .iter()
            .flat_map(|c| {
                [c.past.arm(c.past_name.clone()), c.usual.arm(format!("memcpy, {}", c.method))]
            })
            .collect(),
        weight: compared.iter().map(|c| (rate(&c.past) - rate(&c.usual)).max(0.0)).sum(),
        ..Finding::new(
            ID,
            if gains { FindingSeverity::Gain } else { FindingSeverity::Note },
            observation,
        )
    })
}
