//! First touch: what the kernel takes to give a process a page.

use pathline_schema::{Bytes, MemKind, SuiteId};

use super::pivot::US;
use super::{Figure, FigureCell, frame};
use crate::fmt;
use crate::run::CaseQuantity::Payload;
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Host;

/// First-touch cost: ns per base page, and per huge page.
pub(super) struct FirstTouch {
    page: Bytes,
    huge: Bytes,
    per_page: Option<FigureCell>,
    per_huge: Option<FigureCell>,
}

/// The costs, from cases that touch fresh pages.
pub(super) fn touch_cost(run: &RunView, touches: &[&RunEntry]) -> FirstTouch {
    let host = &run.topology().host;
    let page = if host.page.0 == 0 { Bytes::kib(4) } else { host.page };
    // Transparent huge pages have the smallest huge size: 2 MiB on x86-64.
    let huge = host.huge_pages.iter().copied().filter(|h| *h > page).min().unwrap_or(Bytes::mib(2));
    let cost = |mem: MemKind, page: Bytes| {
        let of_memory = |e: &&&RunEntry| e.case.timed.iter().all(|f| f.dst.mem == mem);
        let entry = touches.iter().find(of_memory)?;
        let cell = run.cell(entry, Payload);
        let relative = cell.value.map_or(0.0, |r| cell.half_width / r);
        // A rate near zero is not a sample of a page's cost, for any page size.
        let value = cell.value.map(|r| page.as_f64() / r).filter(|ns| *ns < f64::MAX / 1e9);
        let half_width = value.map_or(0.0, |v| v * relative).min(f64::MAX / 1e9);
        let small = entry.series().iter().any(|s| s.small_pages().is_some());
        let unusable = match (small, value) {
            (true, _) => Some("the kernel gave small pages for huge ones".to_owned()),
            (false, None) => Some("no usable sample".to_owned()),
            (false, Some(_)) => None,
        };
        let (value, absent) = (value.filter(|_| !small), cell.absent.or(unusable));
        let (few, suspect) = (cell.few, cell.suspect);
        Some(FigureCell { half_width, few, absent, suspect, ..FigureCell::stated(entry, value) })
    };
    let (per_page, per_huge) = (cost(MemKind::Paged, page), cost(MemKind::Huge, huge));
    FirstTouch { page, huge, per_page, per_huge }
}

pub(super) fn touch_figure(run: &RunView, touch: &FirstTouch) -> Option<Figure> {
    let pages = touch.huge.as_f64() / touch.page.as_f64();
    let us = |c: FigureCell| FigureCell {
        value: c.value.map(|v| v / 1e3),
        half_width: c.half_width / 1e3,
        ..c
    };
    let bars = [
        (format!("{} page", touch.page), touch.per_page.clone()),
        (
            format!("{} in {} pages", touch.huge, touch.page),
            touch.per_page.clone().map(|c| c.scaled(pages)),
        ),
        (format!("{} huge page", touch.huge), touch.per_huge.clone()),
    ];
    let title = "Cost of touching a fresh page for the first time";
    frame(run, (SUITE, "* > * by cpu@*[touch-*]"), "host-touch", title)
        .finding(touch.sentence().unwrap_or_default())
        .draw_bars(US, bars.into_iter().filter_map(|(label, cell)| Some((label, us(cell?)))))
}

impl FirstTouch {
    /// Cost of a page, and savings by huge pages.
    pub(super) fn sentence(&self) -> Option<String> {
        let page = self.per_page.as_ref().and_then(|c| c.value)?;
        let rate = |bytes: Bytes, ns: f64| fmt::gbs(bytes.as_f64() / ns);
        let (ns, size) = (fmt::number(page), self.page);
        let first = format!("First touch costs {ns} ns for a {size} page ({})", rate(size, page));
        let Some(huge) = self.per_huge.as_ref().and_then(|c| c.value) else {
            return Some(format!("{first}."));
        };
        let times = page * self.huge.as_f64() / self.page.as_f64() / huge;
        let (us, size) = (fmt::number(huge / 1e3), self.huge);
        let verdict = match times < 1.1 {
            true => "huge pages save nothing here: were they granted?".to_owned(),
            false => format!("huge pages make it {} times cheaper", fmt::number(times)),
        };
        Some(format!("{first}, {us} us for a {size} huge page ({}): {verdict}.", rate(size, huge)))
    }
}
