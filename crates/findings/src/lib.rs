//! From figures to conclusions: a verdict, findings that a reader can act on, and summary tiles.
//!
//! Every conclusion is derived from measured or predicted values and from the topology, never from the
//! name of a product.

mod derived;
mod derived_figure;
mod evidence;
mod finding;
mod host_copies;
mod plain;
mod rules;
mod tile;
mod verdict;

pub use derived::{DERIVED_FORMAT, DerivedGpu, DerivedIdentity, DerivedRun, DerivedWarning};
pub use derived_figure::{DerivedCell, DerivedFigure, DerivedGap, DerivedPanel};
pub use finding::{ExpectedGain, Finding, FindingArm, FindingSeverity, GainBasis};
pub use tile::SummaryTile;
pub use verdict::RunAnswer;

use pathline_explain::figure::RunReport;
use pathline_flow::Network;
use pathline_schema::Journal;
use serde::Serialize;

/// What a run comes to: the first screen of every report.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunConclusions {
    /// Whether something is wrong with the node.
    pub verdict: RunAnswer,
    /// What to do, the finding with the largest effect first.
    pub findings: Vec<Finding>,
    /// The headline values, in display order.
    pub tiles: Vec<SummaryTile>,
}

/// Concludes from a run. `network` is the machine as the model knows it, for predictions of what was
/// not measured. Pure: the same journal always gives the same conclusions.
pub fn conclude(
    journal: &Journal,
    network: Option<&Network>,
    report: &RunReport,
) -> RunConclusions {
    let evidence = evidence::Evidence::new(journal, network);
    let conclusions = RunConclusions {
        verdict: verdict::verdict(journal, report, &evidence),
        findings: rules::findings(&evidence),
        tiles: tile::tiles(&evidence, report),
    };
    conclusions.into_plain()
}
