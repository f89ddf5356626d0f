//! Pinned memory of every NUMA domain and every GPU.

use pathline_schema::{Flow, MemKind, Mover, SuiteId};

use super::{
    BetterWhen, Figure, SuiteFindings, extremes, frame, grid, is_host, shares, sorted, values,
};
use crate::fmt;
use crate::loss_breakdown::losses;
use crate::run::{CaseQuantity, RunEntry, RunView};

const SUITE: SuiteId = SuiteId::NumaGpu;

/// Maximum relative difference of rates that count as equal.
const ALIKE: f64 = 0.98;

/// A copy between a domain's memory and a GPU.
pub struct DomainCopy<'b, 'a> {
    /// The NUMA domain of the host memory.
    pub domain: u32,
    /// The GPU.
    pub gpu: u32,
    /// Kind of the host memory.
    pub mem: MemKind,
    /// Whether the bytes go to the GPU.
    pub inward: bool,
    /// The case.
    pub entry: &'b RunEntry<'a>,
}

/// The copies that suite `numa-gpu` measured, in the order of the run.
pub fn paths<'b, 'a>(run: &'b RunView<'a>) -> Vec<DomainCopy<'b, 'a>> {
    let path = |entry: &'b RunEntry<'a>| {
        let flow: &Flow = entry.lone().filter(|f| matches!(f.by, Mover::Dma { .. }))?;
        let inward = is_host(flow.src.unit);
        let (host, gpu) = if inward { (flow.src, flow.dst) } else { (flow.dst, flow.src) };
        let (domain, gpu) = (host.unit.numa()?, gpu.unit.gpu()?);
        Some(DomainCopy { domain, gpu, mem: host.mem, inward, entry })
    };
    run.suite(SUITE).filter_map(path).collect()
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let paths = paths(run);
    SuiteFindings::new(figures(run, &paths), [sentence(run, &paths)])
}

fn figures(run: &RunView, paths: &[DomainCopy]) -> Vec<Figure> {
    let domains = sorted(paths.iter().map(|w| w.domain));
    if domains.len() < 2 {
        return Vec::new();
    }
    [true, false].iter().filter_map(|&inward| figure(run, paths, &domains, inward)).collect()
}

fn figure(run: &RunView, paths: &[DomainCopy], domains: &[u32], inward: bool) -> Option<Figure> {
    let gpus = sorted(paths.iter().map(|w| w.gpu));
    // Pinned memory of all GPUs, then registered memory of one.
    let first = paths.iter().find(|w| w.mem == MemKind::Registered).map(|w| w.gpu);
    let mut cols: Vec<(u32, MemKind)> = gpus.iter().map(|&g| (g, MemKind::Pinned)).collect();
    cols.extend(first.map(|g| (g, MemKind::Registered)));
    // The last row is memory whose domain the runtime chose.
    let placed = |gpu: u32| {
        let of =
            |w: &&DomainCopy| (w.gpu, w.mem, w.inward) == (gpu, MemKind::PinnedDefault, inward);
        paths.iter().find(of)
    };
    let cell = |domain: Option<u32>, (gpu, mem): (u32, MemKind)| {
        let found = match domain {
            Some(domain) => paths
                .iter()
                .find(|w| (w.domain, w.gpu, w.mem, w.inward) == (domain, gpu, mem, inward)),
            None => placed(gpu).filter(|_| mem == MemKind::Pinned),
        };
        found.map(|w| run.cell(w.entry, CaseQuantity::Payload)).unwrap_or_default()
    };
    let mut rows: Vec<Option<u32>> = domains.iter().copied().map(Some).collect();
    let homes: Vec<String> =
        gpus.iter().filter_map(|&g| Some((g, placed(g)?))).filter_map(found_in).collect();
    if gpus.iter().any(|&g| placed(g).is_some()) {
        rows.push(None);
    }
    let matrix = grid(
        ("domain", &rows),
        ("GPU", &cols),
        ("GB/s", BetterWhen::Higher),
        (
            |d: Option<u32>| d.map_or_else(|| "by runtime".to_owned(), |d| d.to_string()),
            |(g, mem): (u32, MemKind)| match mem {
                MemKind::Registered => format!("{g} reg."),
                _ => g.to_string(),
            },
        ),
        cell,
    );
    let cells = || matrix.cells.iter().flatten();
    let (low, high) = extremes(&values(cells()));
    if low > high {
        return None;
    }
    let registered = match first {
        Some(g) => format!(
            " The last column is pageable memory of its domain that was registered (pinned), for gpu{g}."
        ),
        None => String::new(),
    };
    let (id, title) = if inward {
        ("numa-gpu-in", "Pinned memory of every NUMA domain to every GPU")
    } else {
        ("numa-gpu-out", "Every GPU to pinned memory of every NUMA domain")
    };
    let homes = match homes.is_empty() {
        true => String::new(),
        false => {
            format!(" Without a request the runtime puts pinned memory {}.", fmt::list(&homes))
        }
    };
    let finding = format!(
        "{} GB/s{}.{}{registered}{homes}",
        fmt::range(low, high),
        shares(cells()),
        losses(cells())
    );
    Some(frame(run, (SUITE, ""), id, title).finding(finding).draw(matrix))
}

/// Where the runtime put the memory for a GPU: `of gpu0 in numa3`; of several domains with shares.
fn found_in((gpu, copy): (u32, &DomainCopy)) -> Option<String> {
    let pages = &copy.entry.series().first()?.pages;
    let all: u64 = pages.values().sum();
    let part = |(domain, count): (&u32, &u64)| match *count == all {
        true => format!("numa{domain}"),
        false => format!("numa{domain} ({})", fmt::percent(*count as f64 / all as f64)),
    };
    let list: Vec<String> = pages.iter().map(part).collect();
    (all > 0).then(|| format!("of gpu{gpu} in {}", fmt::list(&list)))
}

/// The greatest loss with memory of a remote domain.
fn sentence(run: &RunView, paths: &[DomainCopy]) -> Option<String> {
    let home = |g: u32| run.topology().gpus.iter().find(|gpu| gpu.index == g)?.numa;
    let mut far: Option<(f64, &DomainCopy, f64, f64)> = None;
    for path in paths.iter().filter(|w| w.mem == MemKind::Pinned && home(w.gpu).is_some()) {
        let near = paths.iter().find(|w| {
            Some(w.domain) == home(w.gpu)
                && (w.gpu, w.mem, w.inward) == (path.gpu, path.mem, path.inward)
        });
        let value = |w: &DomainCopy| run.value(w.entry, CaseQuantity::Payload);
        let Some((here, there)) = near.and_then(value).zip(value(path)) else { continue };
        if Some(path.domain) != home(path.gpu) && far.is_none_or(|(least, ..)| there / here < least)
        {
            far = Some((there / here, path, here, there));
        }
    }
    let (share, path, here, there) = far?;
    if share > ALIKE {
        let values: Vec<f64> =
            paths.iter().filter_map(|w| run.value(w.entry, CaseQuantity::Payload)).collect();
        let (low, high) = extremes(&values);
        return Some(format!(
            "Pinned memory of every NUMA domain is as fast for every GPU: {} GB/s.",
            fmt::range(low, high)
        ));
    }
    let to = if path.inward { "into" } else { "out of" };
    Some(format!(
        "Pinned memory of another NUMA domain keeps at least {} of the rate: {to} gpu{} {} at home, {} \
         with numa{}.",
        fmt::percent(share),
        path.gpu,
        fmt::gbs(here),
        fmt::gbs(there),
        path.domain
    ))
}
