//! All GPUs at once, in the communication patterns of collectives.

use std::collections::BTreeSet;

use pathline_schema::{Flow, Mover, SuiteId};

use super::pivot::{GBS, most};
use super::{FigureCell, SuiteFindings, frame, published_clause};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Patterns;

/// Name of a communication pattern; `None` if it is not from this suite.
fn name(flows: &[Flow]) -> Option<String> {
    let edges: BTreeSet<(u32, u32)> =
        flows.iter().filter_map(|f| Some((f.src.unit.gpu()?, f.dst.unit.gpu()?))).collect();
    let (from, to): (BTreeSet<u32>, BTreeSet<u32>) = edges.iter().copied().unzip();
    let all = from.union(&to).count();
    if edges.len() != flows.len() || all < 3 {
        return None;
    }
    let mutual = edges.iter().all(|&(a, b)| edges.contains(&(b, a)));
    let partners = |g: u32| edges.iter().filter(|e| e.0 == g).count();
    Some(match (from.len(), to.len()) {
        (1, _) => format!("one to {}", all - 1),
        (_, 1) => format!("{} to one", all - 1),
        _ if edges.len() == all * (all - 1) => format!("all {all} to all"),
        _ if mutual && from.iter().all(|&g| partners(g) == 1) => {
            format!("halves of {all}, both ways")
        }
        _ if mutual => format!("ring of {all}, both ways"),
        _ => format!("ring of {all}"),
    })
}

struct PatternCell<'a> {
    name: String,
    entry: RunEntry<'a>,
    cell: FigureCell,
}

fn patterns<'a>(run: &RunView<'a>) -> Vec<PatternCell<'a>> {
    let pattern = |e: &RunEntry<'a>| {
        let name = name(&e.case.timed)?;
        let (ceiling, bound) = run.slowest_limits(e.case);
        // Losses are relative to the sum of the links, while flows here share links.
        let cell = run.cell(e, CaseQuantity::Payload).without_losses();
        Some(PatternCell { name, entry: *e, cell: FigureCell { ceiling, bound, ..cell } })
    };
    run.suite(SUITE).filter(|e| e.case.background.is_empty()).filter_map(pattern).collect()
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let patterns = patterns(run);
    let sentence = sentence(&patterns);
    let bar = |p: &PatternCell| {
        let by = p.entry.case.timed.first().map(|f| f.by.label(p.entry.engine()));
        (format!("{}, {}", p.name, by.unwrap_or_default()), p.cell.clone())
    };
    let finding = format!(
        "{} The ceiling is what the links of the routes in use allow if all flows of a pattern end together.{}",
        sentence.as_deref().unwrap_or_default(),
        published_clause(patterns.iter().map(|p| &p.cell))
    );
    let figure = frame(run, (SUITE, ""), SUITE.word(), "GPUs at once, sum of all flows")
        .finding(finding.trim())
        .draw_bars(GBS, patterns.iter().map(bar));
    SuiteFindings::new(figure, [sentence])
}

/// The fastest all-to-all, and its share of the links' limit.
fn sentence(patterns: &[PatternCell]) -> Option<String> {
    let all = patterns.iter().filter(|p| p.name.ends_with("to all"));
    let (rate, best) = most(all.filter_map(|p| Some((p.cell.value?, p))))?;
    let timed = &best.entry.case.timed;
    let by = match timed.first()?.by {
        Mover::Kernel { .. } => "kernels",
        _ => "runtime copies",
    };
    let gpus = timed.iter().map(|f| f.src.unit).collect::<BTreeSet<_>>().len();
    let of = best.cell.share_of_ceiling().map_or(String::new(), |share| {
        format!(", {} of what the links of their routes allow", fmt::percent(share))
    });
    let (all, each) = (fmt::gbs(rate), fmt::gbs(rate / gpus as f64));
    Some(format!("All to all at once, {gpus} GPUs move {all} by {by}, {each} each{of}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern_name(edges: &[(u32, u32)]) -> Option<String> {
        let flow = |(a, b): &(u32, u32)| {
            format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 1MiB").parse().unwrap()
        };
        name(&edges.iter().map(flow).collect::<Vec<_>>())
    }

    #[test]
    fn patterns_have_names() {
        let name = |edges: &[(u32, u32)]| pattern_name(edges).unwrap();
        assert_eq!(name(&[(1, 0), (2, 0), (3, 0)]), "3 to one");
        assert_eq!(name(&[(0, 1), (0, 2), (0, 3)]), "one to 3");
        assert_eq!(name(&[(0, 1), (1, 3), (3, 2), (2, 0)]), "ring of 4");
        assert_eq!(name(&[(0, 2), (1, 3), (2, 0), (3, 1)]), "halves of 4, both ways");
        let ring = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 0), (2, 1), (3, 2), (0, 3)];
        assert_eq!(name(&ring), "ring of 4, both ways");
        assert_eq!(name(&[(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]), "all 3 to all");
        assert_eq!(pattern_name(&[(0, 1), (1, 0)]), None);
    }
}
