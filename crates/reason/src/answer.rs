//! From a reading of a paste to answers of five lines.

use pathline_paste::{LineSpan, PasteContent, PasteContext, PasteReading};
use pathline_schema::Topology;
use serde::Serialize;

use crate::node_facts::{NodeLimits, figure, find_log};
use crate::score::{AnswerClass, LikelyCause, ObservedFeature, WorldEdit, rank};
use crate::{collectives, copies, io, messages, statements};

/// An answer before its causes are ranked.
#[derive(Debug, Clone, Default)]
pub(crate) struct DraftAnswer {
    pub(crate) meaning: String,
    pub(crate) limit: String,
    /// The headline figure and what it is compared with, GB/s.
    pub(crate) value: Option<f64>,
    pub(crate) limit_gbs: Option<f64>,
    pub(crate) features: Vec<ObservedFeature>,
    pub(crate) edits: Vec<WorldEdit>,
}

/// What a pasted output means, and why it is what it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PasteAnswer {
    /// The tool.
    pub tool: String,
    /// First line of the paste that it rests on.
    pub first_line: u32,
    /// Last line.
    pub last_line: u32,
    /// What the number is, and how the tool counts.
    pub meaning: String,
    /// The limit of the node with its source.
    pub limit: String,
    /// The headline figure, GB/s.
    pub value_gbs: Option<f64>,
    /// The limit, GB/s.
    pub limit_gbs: Option<f64>,
    /// The figure over the limit.
    pub share: Option<f64>,
    /// Causes, the most likely first.
    pub causes: Vec<LikelyCause>,
}

/// What `explain` says of a paste.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PasteExplanation {
    /// Grows when a reader of the older form would misread the newer one.
    pub format: u32,
    /// Answers, the one that matters most first.
    pub answers: Vec<PasteAnswer>,
    /// Lines in all.
    pub lines: u32,
    /// Lines that belong to no known output, first and last.
    pub unread: Vec<(u32, u32)>,
    /// Whether the paste was longer than what is read.
    pub is_cut: bool,
}

/// Explains a paste. `machine` is the node that the user named or is on.
pub fn explain_paste(reading: &PasteReading, machine: Option<&Topology>) -> PasteExplanation {
    let node = NodeLimits::new(reading, machine);
    let log = find_log(reading);
    let context = &reading.context;
    let mut answers = Vec::new();
    let matrices: Vec<_> = reading
        .documents
        .iter()
        .filter_map(|d| match &d.content {
            PasteContent::Matrix(matrix) => Some((d.span, matrix)),
            _ => None,
        })
        .collect();
    for document in &reading.documents {
        let node = node.as_ref();
        // A list of devices whose rows were not pasted has no figure.
        if let PasteContent::Collective(table) = &document.content
            && table.rows.is_empty()
            && table.average_busbw.is_none()
        {
            continue;
        }
        let draft = match &document.content {
            PasteContent::Collective(table) => collectives::explain(table, node, log, context),
            PasteContent::Messages(table) => messages::explain(table, node, context),
            PasteContent::Network(table) => messages::explain_network(table, node, context),
            PasteContent::FileIo(result) => io::explain(result, context),
            PasteContent::Transfers(list) => copies::explain_transfers(list, node),
            PasteContent::Matrix(_)
            | PasteContent::Links(_)
            | PasteContent::NcclLog(_)
            | PasteContent::Topology(_) => continue,
        };
        answers.push(finish(draft, document.content.tool(), document.span));
    }
    for (span, tool, draft) in copies::explain_matrices(&matrices, node.as_ref(), context) {
        answers.push(finish(draft, tool, span));
    }
    if answers.is_empty() {
        let said = statements::explain(reading, node.as_ref(), log);
        answers.extend(said.map(|(span, tool, draft)| finish(draft, tool, span)));
    }
    // A likely cause with something to do comes before "as expected", and that before "unknown".
    answers.sort_by_key(|answer| match answer.causes.first().map(|cause| cause.class) {
        Some(AnswerClass::AsExpected) => 1,
        Some(AnswerClass::Unknown) | None => 2,
        Some(_) => 0,
    });
    PasteExplanation {
        format: 1,
        answers,
        lines: reading.lines,
        unread: reading.unread.iter().map(|span| (span.first, span.last)).collect(),
        is_cut: reading.is_cut,
    }
}

fn finish(draft: DraftAnswer, tool: &str, span: LineSpan) -> PasteAnswer {
    let share =
        draft.value.zip(draft.limit_gbs).filter(|(_, limit)| *limit > 0.0).map(|(v, l)| v / l);
    let mut causes = rank(&draft.features, draft.edits);
    causes.truncate(8);
    PasteAnswer {
        tool: tool.to_owned(),
        first_line: span.first,
        last_line: span.last,
        meaning: draft.meaning,
        limit: draft.limit,
        value_gbs: draft.value,
        limit_gbs: draft.limit_gbs,
        share,
        causes,
    }
}

impl PasteAnswer {
    /// Five lines: what it is, limit, share, cause with odds, what decides it.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("figure", self.meaning.clone()), ("limit", self.limit.clone())];
        if let (Some(value), Some(limit), Some(share)) =
            (self.value_gbs, self.limit_gbs, self.share)
        {
            let text = format!(
                "{} / {} GB/s = {:.0} % of the limit",
                figure(value),
                figure(limit),
                share * 100.0
            );
            lines.push(("share", text));
        }
        let Some(first) = self.causes.first() else { return lines };
        let mut text = format!("{} ({}): {}", first.class.label(), odds(first.share), first.text);
        let next = self.causes.iter().skip(1).find(|c| c.id != first.id && c.share > 0.08);
        if let Some(next) = next {
            text.push_str(&format!("; else {:.0} % {}", next.share * 100.0, next.id));
        }
        lines.push(("cause", text));
        if !first.check.is_empty() {
            lines.push(("decide", first.check.clone()));
        }
        lines
    }
}

/// `5:1`, `1:2`.
fn odds(share: f64) -> String {
    let odds = share / (1.0 - share).max(1e-3);
    match odds {
        o if o > 100.0 => "follows by arithmetic".to_owned(),
        o if o >= 1.0 => format!("odds {o:.0}:1"),
        o => format!("odds 1:{:.0}", 1.0 / o.max(1e-3)),
    }
}

/// Whether the paste sets a variable to this value.
pub(crate) fn is_set(context: &PasteContext, name: &str, value: &str) -> bool {
    context.settings.get(name).is_some_and(|v| v.eq_ignore_ascii_case(value))
}

/// Whether the text between outputs has a word, in lower case.
pub(crate) fn has_word(context: &PasteContext, word: &str) -> bool {
    context.prose.split(|c: char| !c.is_alphanumeric()).any(|found| found == word)
}
