//! Pinned memory of every NUMA domain and every GPU.

use pathline_schema::{Flow, MemKind, Mover, SuiteId};

use super::pivot::{CellPivot, GBS, least};
use super::{Figure, SuiteFindings, frame, is_host, range_of, shares, sorted};
use crate::fmt;
use crate::loss_breakdown::losses;
use crate::run::CaseQuantity::Payload;
use crate::run::{RunEntry, RunView};

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
    let of_way = || paths.iter().filter(|w| w.inward == inward);
    // The last row is memory whose domain the runtime chose.
    let placed: Vec<(u32, &DomainCopy)> = gpus
        .iter()
        .filter_map(|&g| {
            let of = |w: &&DomainCopy| (w.gpu, w.mem) == (g, MemKind::PinnedDefault);
            Some((g, of_way().find(of)?))
        })
        .collect();
    let mut rows: Vec<Option<u32>> = domains.iter().copied().map(Some).collect();
    rows.extend((!placed.is_empty()).then_some(None));
    let point = |w: &DomainCopy| match w.mem {
        MemKind::PinnedDefault => (None, (w.gpu, MemKind::Pinned), run.cell(w.entry, Payload)),
        mem => (Some(w.domain), (w.gpu, mem), run.cell(w.entry, Payload)),
    };
    let matrix = CellPivot::new(of_way().map(point)).with(&rows, &cols).matrix(
        ("domain", |d| d.map_or_else(|| "by runtime".to_owned(), |d| d.to_string())),
        ("GPU", |(g, mem)| match mem {
            MemKind::Registered => format!("{g} reg."),
            _ => g.to_string(),
        }),
        GBS,
    );
    let range = range_of(matrix.all())?;
    let registered = first.map_or(String::new(), |g| {
        format!(
            " The last column is pageable memory of its domain that was registered (pinned), for gpu{g}."
        )
    });
    let (id, title) = match inward {
        true => ("numa-gpu-in", "Pinned memory of every NUMA domain to every GPU"),
        false => ("numa-gpu-out", "Every GPU to pinned memory of every NUMA domain"),
    };
    let homes = fmt::list_any(placed.into_iter().filter_map(found_in));
    let homes = homes.map_or(String::new(), |homes| {
        format!(" Without a request the runtime puts pinned memory {homes}.")
    });
    let (shares, losses) = (shares(matrix.all()), losses(matrix.all()));
    let finding = format!("{range} GB/s{shares}.{losses}{registered}{homes}");
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
    let value = |w: &DomainCopy| run.value(w.entry, Payload);
    let far = paths.iter().filter(|w| w.mem == MemKind::Pinned).filter_map(|far| {
        let home = home(far.gpu).filter(|home| *home != far.domain)?;
        let near = |w: &&DomainCopy| {
            (w.domain, w.gpu, w.mem, w.inward) == (home, far.gpu, far.mem, far.inward)
        };
        let (here, there) = (paths.iter().find(near).and_then(value)?, value(far)?);
        Some((there / here, (far, here, there)))
    });
    let (share, (path, here, there)) = least(far)?;
    if share > ALIKE {
        let range = fmt::range_any(paths.iter().filter_map(value))?;
        return Some(format!(
            "Pinned memory of every NUMA domain is as fast for every GPU: {range} GB/s."
        ));
    }
    let to = if path.inward { "into" } else { "out of" };
    let (gpu, domain, share) = (path.gpu, path.domain, fmt::percent(share));
    let (here, there) = (fmt::gbs(here), fmt::gbs(there));
    Some(format!(
        "Pinned memory of another NUMA domain keeps at least {share} of the rate: {to} gpu{gpu} {here} at \
         home, {there} with numa{domain}."
    ))
}
