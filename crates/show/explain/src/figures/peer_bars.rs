//! MPI and direct copies to each peer of one GPU as bars, with published values and ceilings.

use super::peers::{self, PeerMover, PeerValue};
use super::{BarsBody, BetterWhen, Figure, FigureBar, FigureCell, extremes, sorted};
use crate::fmt;
use crate::run::RunView;

/// The bars of a peer, those of the published figure: the best direct copy, then MPI by each agent.
const SHOWN: [PeerMover; 4] =
    [PeerMover::DirectKernel, PeerMover::MpiBlit, PeerMover::MpiEngine, PeerMover::Mpi];

/// Bars of one size by peer; `None` without MPI.
pub(super) fn figure(
    run: &RunView,
    table: &Figure,
    source: u32,
    all: &[&PeerValue<'_, '_>],
) -> Option<Figure> {
    let peers = sorted(all.iter().map(|v| v.to));
    let bar = |to: u32, by: PeerMover| {
        let found = all.iter().find(|v| (v.to, v.by) == (to, by))?;
        let label = format!("gpu{source} to gpu{to}: {}", by.label());
        Some(FigureBar { label, cell: found.cell(run) })
    };
    let bars: Vec<FigureBar> =
        peers.iter().flat_map(|&to| SHOWN.map(|by| bar(to, by))).flatten().collect();
    let (id, title) = (format!("{}-bars", table.id), format!("{}, by peer", table.title));
    let finding = text(&peers, &bars, source);
    let body = BarsBody { unit: "GB/s".into(), bars, better: BetterWhen::Higher }.into();
    let has_mpi = all.iter().any(|v| v.is_mpi() && !v.is_ping);
    has_mpi.then(|| Figure { id, title, finding, body, ..table.clone() })
}

/// Least share of a peak that a link and not the start of a message decides.
const OF_LINKS: f64 = 0.5;

/// Bars of one mover.
fn bars_of(bars: &[FigureBar], by: PeerMover) -> impl Iterator<Item = &FigureCell> {
    let suffix = format!(": {}", by.label());
    bars.iter().filter(move |bar| bar.label.ends_with(&suffix)).map(|bar| &bar.cell)
}

/// `75 %`, `70 to 79 %`.
fn shares(values: &[f64]) -> Option<String> {
    (!values.is_empty()).then(|| peers::shares(extremes(values)))
}

/// Shares of the ceiling by mover, a rule of thumb, and what forwarding costs.
fn text(peers: &[u32], bars: &[FigureBar], source: u32) -> String {
    let of_ceiling = |by: PeerMover| -> Vec<f64> {
        bars_of(bars, by).filter_map(FigureCell::share_of_ceiling).collect()
    };
    let one = |by: PeerMover| Some(format!("{} {}", by.label(), shares(&of_ceiling(by))?));
    let all = fmt::list_any(SHOWN.into_iter().filter_map(one));
    let all = all.map(|all| format!("Of the peak of the narrowest link: {all}."));
    let by_blit = of_ceiling(PeerMover::MpiBlit);
    let (least, _) = extremes(&by_blit);
    let rule = (!by_blit.is_empty() && least >= OF_LINKS).then(|| {
        let (label, times) = (PeerMover::MpiBlit.label(), (least * 10.0).round() / 10.0);
        format!("From {label} expect {times:.1} times that peak.")
    });
    let published = bars.iter().filter(|bar| bar.cell.published.is_some()).count();
    let (peers, bars_text) = (fmt::count(peers.len(), "peer"), fmt::count(bars.len(), "bar"));
    let last =
        format!("From gpu{source} to {peers}; {published} of {bars_text} have a published value.");
    let texts = [all, rule, forwarded(bars), Some(last)];
    fmt::join_any(texts.into_iter().flatten(), " ").unwrap_or_default()
}

/// What pairs that other GPUs forward reach of direct pairs whose narrowest link is as wide.
fn forwarded(bars: &[FigureBar]) -> Option<String> {
    let by = [PeerMover::MpiBlit, PeerMover::Mpi, PeerMover::MpiEngine, PeerMover::DirectKernel]
        .into_iter()
        .find(|by| bars_of(bars, *by).next().is_some())?;
    let cells: Vec<(f64, f64, bool)> = bars_of(bars, by)
        .filter_map(|cell| {
            let is_direct = cell.path.as_ref()?.route.matches('-').count() == 1;
            Some((cell.ceiling?, cell.value?, is_direct))
        })
        .collect();
    let mut ratios = Vec::new();
    for (peak, value, _) in cells.iter().filter(|cell| !cell.2) {
        let as_wide = |(other, _, is_direct): &&(f64, f64, bool)| {
            *is_direct && (other / peak - 1.0).abs() < 1e-3
        };
        ratios.extend(cells.iter().find(as_wide).map(|direct| value / direct.1));
    }
    let share = shares(&ratios)?;
    Some(format!(
        "{} that other GPUs forward reach {share} of a direct pair as wide ({}).",
        fmt::count(ratios.len(), "pair"),
        by.label()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::LossBreakdown;

    fn bar(to: u32, by: PeerMover, value: f64, ceiling: f64, route: &str) -> FigureBar {
        let path = LossBreakdown {
            route: route.to_owned(),
            narrowest: format!("link of gpu{to}"),
            losses: Vec::new(),
        };
        let cell = FigureCell {
            value: Some(value),
            ceiling: Some(ceiling),
            path: Some(path),
            ..FigureCell::default()
        };
        FigureBar { label: format!("gpu0 to gpu{to}: {}", by.label()), cell }
    }

    #[test]
    fn forwarded_pairs_are_compared_with_direct_ones_as_wide() {
        let blit = PeerMover::MpiBlit;
        let bars = [
            bar(2, blit, 40.0, 50.0, "0-2"),
            bar(3, blit, 36.0, 50.0, "0-2-3"),
            bar(6, blit, 75.0, 100.0, "0-6"),
            bar(7, blit, 70.0, 100.0, "0-6-7"),
            bar(2, PeerMover::DirectKernel, 44.0, 50.0, "0-2"),
        ];
        // 36/40 = 90 %, 70/75 = 93 %. Of the peaks: 70/100 is the least, 40/50 the greatest.
        let text = text(&[2, 3, 6, 7], &bars, 0);
        assert!(text.contains("MPI, blit kernel 70 to 80 %"), "{text}");
        assert!(text.contains("expect 0.7 times that peak"), "{text}");
        assert!(text.contains("2 pairs that other GPUs forward reach 90 to 93 %"), "{text}");
        assert!(text.contains("0 of 5 bars have a published value"), "{text}");
        assert_eq!(forwarded(&bars[..1]), None);
    }
}
