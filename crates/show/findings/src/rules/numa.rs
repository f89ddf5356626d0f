//! Whether the NUMA domain of host memory matters for copies of a GPU.

use std::collections::BTreeSet;

use pathline_explain::figures::numa_gpu::{DomainCopy, paths};
use pathline_explain::fmt;
use pathline_schema::MemKind;

use crate::evidence::{
    Evidence, LEAST_GAIN, SoundValue, factor_text, lost, range_of, range_text, widest_text,
};
use crate::host_copies::direction;
use crate::{Finding, FindingSeverity};

pub(super) const MATTERS: &str = "near-memory-faster";
pub(super) const ALIKE: &str = "numa-domains-alike";

/// A copy with memory of another domain, and with that of the GPU's own.
struct FarCopy<'a> {
    gpu: u32,
    domain: u32,
    home: u32,
    inward: bool,
    far: SoundValue<'a>,
    near: SoundValue<'a>,
}

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    let copies = paths(&evidence.run);
    let pinned: Vec<&DomainCopy> = copies.iter().filter(|c| c.mem == MemKind::Pinned).collect();
    let mut pairs: Vec<FarCopy> = Vec::new();
    for copy in &pinned {
        let Some(home) = evidence.gpu(copy.gpu).and_then(|gpu| gpu.numa) else { continue };
        let near = pinned
            .iter()
            .find(|near| near.domain == home && (near.gpu, near.inward) == (copy.gpu, copy.inward));
        let near = near.and_then(|near| evidence.rate(near.entry));
        let (Some(near), Some(far)) = (near, evidence.rate(copy.entry)) else { continue };
        if copy.domain != home {
            let (gpu, domain, inward) = (copy.gpu, copy.domain, copy.inward);
            pairs.push(FarCopy { gpu, domain, home, inward, far, near });
        }
    }
    let slow: Vec<(&FarCopy, f64)> =
        pairs.iter().filter_map(|p| Some((p, p.near.gain_over(&p.far)?))).collect();
    let found = if slow.is_empty() { alike(&pairs) } else { matters(evidence, &slow, pairs.len()) };
    found.into_iter().collect()
}

fn matters(evidence: &Evidence, slow: &[(&FarCopy, f64)], all: usize) -> Option<Finding> {
    let worst = slow.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let factors: Vec<f64> = slow.iter().map(|s| s.1).collect();
    let far: Vec<SoundValue> = slow.iter().map(|s| s.0.far).collect();
    let size = worst.0.far.case.timed.first()?.bytes.rounded();
    let observation = format!(
        "{} of {all} paths to host memory of another NUMA domain are {} as slow as to the GPU's own ({} \
         GB/s{}; gpu{} with numa{} {} {}, with its own numa{} {}; pinned, {size}).",
        slow.len(),
        factor_text(&factors),
        range_text(&far),
        widest_text(&far),
        worst.0.gpu,
        worst.0.domain,
        direction(worst.0.inward),
        fmt::gbs(worst.0.far.value),
        worst.0.home,
        fmt::gbs(worst.0.near.value),
    );
    let homes: BTreeSet<(u32, u32)> = slow.iter().map(|s| (s.0.gpu, s.0.home)).collect();
    let homes: Vec<String> = homes.iter().map(|(gpu, home)| format!("gpu{gpu}: {home}")).collect();
    Some(Finding {
        short: format!(
            "Far host memory: {} against {}, numa{} with gpu{}; {} of {all} paths are slower",
            fmt::number(worst.0.far.value),
            fmt::gbs(worst.0.near.value),
            worst.0.domain,
            worst.0.gpu,
            slow.len()
        ),
        cause: "The copy crosses the link between NUMA domains.".to_owned(),
        action: format!(
            "Bind the process of each GPU to its NUMA domain (numactl --cpunodebind=N --membind=N; {}).",
            homes.join(", ")
        ),
        gain: evidence.gain(&factors),
        places: slow.iter().map(|s| format!("numa{}-gpu{}", s.0.domain, s.0.gpu)).collect(),
        arms: vec![
            worst.0.far.arm(format!("gpu{}, numa{}", worst.0.gpu, worst.0.domain)),
            worst.0.near.arm(format!("gpu{}, numa{}", worst.0.gpu, worst.0.home)),
        ],
        weight: slow.iter().map(|s| lost(&s.0.near, &s.0.far)).sum(),
        ..Finding::new(MATTERS, FindingSeverity::Gain, observation)
    })
}

/// That it does not matter, if every interval is narrow enough to say so.
fn alike(pairs: &[FarCopy]) -> Option<Finding> {
    let sharp = |v: &SoundValue| v.half_width() <= LEAST_GAIN / 2.0 * v.value;
    let same = |p: &FarCopy| {
        let ratio = p.far.value / p.near.value;
        sharp(&p.far) && sharp(&p.near) && (ratio - 1.0).abs() < LEAST_GAIN
    };
    if pairs.is_empty() || !pairs.iter().all(same) {
        return None;
    }
    let parts = [true, false].into_iter().filter_map(|inward| {
        let of = pairs.iter().filter(|p| p.inward == inward);
        let rates: Vec<f64> = of.flat_map(|p| [p.near.value, p.far.value]).collect();
        let (low, high) = range_of(&rates)?;
        Some(format!("{} GB/s {}", fmt::range(low, high), direction(inward)))
    });
    let parts: Vec<String> = parts.collect();
    let gpus: BTreeSet<u32> = pairs.iter().map(|p| p.gpu).collect();
    let domains: BTreeSet<u32> = pairs.iter().flat_map(|p| [p.domain, p.home]).collect();
    let first = pairs.first()?;
    let size = first.far.case.timed.first()?.bytes.rounded();
    let observation = format!(
        "The NUMA domain of pinned memory does not matter for copies: {} for {} and {} (one copy at a \
         time, {size}).",
        fmt::list(&parts),
        fmt::count(gpus.len(), "GPU"),
        fmt::count(domains.len(), "domain"),
    );
    Some(Finding {
        short: format!(
            "Pinned memory of all {} NUMA domains: {}",
            domains.len(),
            fmt::list(&parts)
        ),
        action: "Place buffers by the cores that use them.".to_owned(),
        places: gpus.iter().map(|g| format!("gpu{g}")).collect(),
        arms: vec![
            first.far.arm(format!("gpu{}, numa{}", first.gpu, first.domain)),
            first.near.arm(format!("gpu{}, numa{}", first.gpu, first.home)),
        ],
        ..Finding::new(ALIKE, FindingSeverity::Note, observation)
    })
}
