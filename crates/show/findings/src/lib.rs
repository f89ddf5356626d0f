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
mod setting_sizes;
mod tile;
mod verdict;

pub use derived::{DERIVED_FORMAT, DerivedGpu, DerivedIdentity, DerivedRun, DerivedWarning};
pub use derived_figure::{DerivedCell, DerivedFigure, DerivedGap, DerivedPanel};
pub use evidence::{find_failure, find_misplaced};
pub use finding::{ExpectedGain, Finding, FindingArm, FindingSeverity, GainBasis};
pub use tile::SummaryTile;
pub use verdict::{RunAnswer, unseen_faults};

use pathline_explain::figure::RunReport;
use pathline_flow::{MachineDesc, Network};
use pathline_schema::{Journal, NodeVerdict};
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
    let verdict = verdict::verdict(journal, report, &evidence);
    let (mut findings, sound) = (rules::findings(&evidence), tile::tiles(&evidence, report));
    let all = evidence.with_assumed();
    let tiles = tile::with_assumed(sound, tile::tiles(&all, report));
    findings.extend(rules::assumed_findings(&all, &findings));
    // A part that is slower than its peers is so on assumed constants, too.
    let verdict = match verdict.state {
        None if !all.slow_groups.is_empty() => verdict::verdict(journal, report, &all),
        _ => verdict,
    };
    RunConclusions { verdict, findings, tiles }.into_plain()
}

impl RunConclusions {
    /// Compares collectives with the model of the same node, too. One that is slower than its constants leave
    /// open makes a node without a verdict suspect. `text` is that of the description.
    #[must_use]
    pub fn against_model(
        mut self,
        journal: &Journal,
        network: &Network,
        (desc, text): (&MachineDesc, &str),
    ) -> Self {
        let evidence = evidence::Evidence::new(journal, Some(network));
        setting_sizes::add_messages(&evidence, desc, &mut self.findings);
        let Some(finding) = rules::find_below_model(&evidence, desc, text) else { return self };
        let is_unjudged = matches!(self.verdict.state, None | Some(NodeVerdict::Ok));
        if is_unjudged && finding.severity == FindingSeverity::Fault {
            self.verdict.state = Some(NodeVerdict::Suspect);
            self.verdict.reason = finding.observation.trim_end_matches('.').to_owned();
        }
        self.findings.push(finding);
        rules::sort(&mut self.findings);
        self.into_plain()
    }
}
