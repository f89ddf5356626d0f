//! Cost of memory registration with network adapters.

use pathline_schema::{Bytes, Mover, SuiteId};

use super::pivot::chart;
use super::{ChartLine, SuiteFindings, overhead, sorted};
use crate::fmt;
use crate::run::CaseQuantity::StepUs;
use crate::run::RunView;

const SUITE: SuiteId = SuiteId::Registration;

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let adapters = run.suite(SUITE).filter_map(|e| Some(e.engine().split_once(" on ")?.1));
    let adapters = fmt::list_any(sorted(adapters).into_iter().map(str::to_owned));
    let adapters = adapters.unwrap_or_else(|| "an adapter".to_owned());
    let title = format!("What it costs to have {adapters} reach memory");
    let points = run.suite(SUITE).filter_map(|entry| {
        let flow = entry.lone()?;
        let Mover::Call { call, .. } = flow.by else { return None };
        let (memory, call) = (overhead::memory_label(flow.src.mem), overhead::call_name(call));
        Some((format!("{memory}, {call}"), flow.bytes.as_f64(), run.cell(entry, StepUs)))
    });
    let figure = chart((SUITE, SUITE.word()), title, (StepUs, "B"), run, points, finding);
    SuiteFindings::new(figure, [])
}

/// Time at the smallest and the largest size by call, and cost per additional GiB.
fn finding(lines: &[ChartLine]) -> String {
    let one = |line: &ChartLine| {
        let ((few, least), (many, most)) = (line.points.first()?, line.points.last()?);
        let (least, most) = (least.value?, most.value?);
        let at =
            |us: f64, x: f64| format!("{} us at {}", fmt::number(us), Bytes(x as u64).rounded());
        let per_gib = (most - least) / (many - few) * Bytes::gib(1).as_f64() / 1e3;
        let more = (many > few)
            .then(|| format!(", {}, {} ms a GiB more", at(most, *many), fmt::number(per_gib)));
        Some(format!("{}: {}{}", line.name, at(least, *few), more.unwrap_or_default()))
    };
    let texts = fmt::join_any(lines.iter().filter_map(one), "; ").unwrap_or_default();
    format!("{}.", fmt::sentence(&texts))
}
