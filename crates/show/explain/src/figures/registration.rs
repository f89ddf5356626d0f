//! Cost of memory registration with network adapters.

use std::collections::BTreeSet;

use pathline_schema::{Bytes, MemKind, Mover, RuntimeCall, SuiteId};

use super::sent_flows::ChartSpec;
use super::{ChartLine, Figure, SuiteFindings, overhead};
use crate::fmt;
use crate::run::{CaseQuantity, RunView};

const SUITE: SuiteId = SuiteId::Registration;

pub(super) fn find(run: &RunView) -> SuiteFindings {
    SuiteFindings::new(figures(run), [])
}

fn figures(run: &RunView) -> Vec<Figure> {
    let all: Vec<_> = run
        .suite(SUITE)
        .filter_map(|entry| {
            let flow = entry.lone()?;
            let Mover::Call { call, .. } = flow.by else { return None };
            Some((entry, call, flow.src.mem, flow.bytes))
        })
        .collect();
    let adapters: BTreeSet<&str> =
        all.iter().filter_map(|(e, ..)| Some(e.engine().split_once(" on ")?.1)).collect();
    let adapters = fmt::list(&adapters.into_iter().map(str::to_owned).collect::<Vec<_>>());
    let chart = ChartSpec::new(
        (SUITE, SUITE.word()),
        if adapters.is_empty() {
            "What it costs to have an adapter reach memory".to_owned()
        } else {
            format!("What it costs to have {adapters} reach memory")
        },
        CaseQuantity::StepUs,
        "B",
    );
    let points = all.iter().map(|(entry, call, mem, bytes)| {
        (name(*call, *mem), bytes.as_f64(), run.cell(entry, CaseQuantity::StepUs))
    });
    chart.draw(run, points, finding).into_iter().collect()
}

fn name(call: RuntimeCall, mem: MemKind) -> String {
    format!("{}, {}", overhead::memory_label(mem), overhead::call_name(call))
}

/// Time at the smallest and the largest size by call, and cost per additional GiB.
fn finding(lines: &[ChartLine]) -> String {
    let one = |line: &ChartLine| {
        let ((few, least), (many, most)) = (line.points.first()?, line.points.last()?);
        let (least, most) = (least.value?, most.value?);
        let size = |x: f64| Bytes(x as u64).rounded();
        let mut text = format!("{}: {} us at {}", line.name, fmt::number(least), size(*few));
        if many > few {
            let per_gib = (most - least) / (many - few) * Bytes::gib(1).as_f64() / 1e3;
            text += &format!(
                ", {} us at {}, {} ms a GiB more",
                fmt::number(most),
                size(*many),
                fmt::number(per_gib)
            );
        }
        Some(text)
    };
    let texts: Vec<String> = lines.iter().filter_map(one).collect();
    format!("{}.", fmt::sentence(&texts.join("; ")))
}
