//! From a reading of a paste to answers of five lines.

use pathline_paste::{
    CollectiveTable, LineSpan, MatrixEnd, NcclLog, PasteContent, PasteReading, RateMatrix,
};
use pathline_schema::Topology;
use serde::Serialize;

use crate::deciding_probe::ProbeEvidence;
use crate::draft::{DraftAnswer, ProbeSubject};
use crate::exact_messages::{FoundMessage, find_messages};
use crate::model_edits::{add_collective_causes, add_model};
use crate::node_facts::{NodeLimits, find_log};
use crate::outlier::find_outlier;
use crate::product_facts::FabricKind;
use crate::row_predictor::{QueriedRow, RowPredictor};
use crate::score::{AnswerClass, LikelyCause, WorldEdit, rank};
use crate::verdict::{PasteAnswer, PasteVerdict};
use crate::{collectives, copies, io, log_answer, log_check, messages, wiring};

/// Causes of an answer.
const MAX_CAUSES: usize = 8;
/// Results of file I/O that are compared with each other.
const MAX_FILES: usize = 64;

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
    PasteExplainer::new(reading, machine, None, None).explain()
}

/// Explains a paste on a node whose rows are predicted, with what a probe of that node measured.
pub fn explain_on_node(
    reading: &PasteReading,
    node: &RowPredictor,
    evidence: Option<&ProbeEvidence>,
) -> PasteExplanation {
    let found = PasteExplainer::new(reading, Some(node.topology()), Some(node), None).explain();
    if evidence.is_none() {
        return found;
    }
    let mut checked =
        PasteExplainer::new(reading, Some(node.topology()), Some(node), evidence).explain();
    for answer in &mut checked.answers {
        let is_same = |a: &&PasteAnswer| {
            (a.first_line, a.last_line, &a.meaning)
                == (answer.first_line, answer.last_line, &answer.meaning)
        };
        let Some(before) = found.answers.iter().find(is_same) else { continue };
        if let Some(outcome) = &mut answer.checked {
            outcome.before = before.causes.iter().map(|c| (c.id.to_owned(), c.share)).collect();
        }
    }
    checked
}

struct PasteExplainer<'a> {
    reading: &'a PasteReading,
    limits: Option<NodeLimits>,
    log: Option<&'a NcclLog>,
    node: Option<&'a RowPredictor>,
    evidence: Option<&'a ProbeEvidence>,
    messages: Vec<FoundMessage>,
}

impl<'a> PasteExplainer<'a> {
    fn new(
        reading: &'a PasteReading,
        machine: Option<&Topology>,
        node: Option<&'a RowPredictor>,
        evidence: Option<&'a ProbeEvidence>,
    ) -> Self {
        let limits = NodeLimits::new(reading, machine);
        let log = find_log(reading);
        let messages = find_messages(&reading.context, log);
        Self { reading, limits, log, node, evidence, messages }
    }

    fn explain(&self) -> PasteExplanation {
        let reading = self.reading;
        let mut answers = Vec::new();
        let mut matrices = Vec::new();
        for document in &reading.documents {
            if let PasteContent::Matrix(matrix) = &document.content {
                matrices.push((document.span, matrix));
            }
            let draft = self.draft(&document.content);
            let outlier = match &document.content {
                PasteContent::Transfers(list) => {
                    copies::transfer_matrix(list).and_then(|matrix| self.outlier(&[&matrix]))
                }
                _ => None,
            };
            let tool = document.content.tool();
            answers.extend(draft.map(|draft| self.finish(draft, tool, document.span, outlier)));
        }
        let limits = self.limits.as_ref();
        for (span, tool, all) in copies::by_tool(&matrices) {
            for mut draft in copies::explain_matrices(&all, limits, &reading.context) {
                self.predict_matrices(&mut draft, &all);
                let of_host = draft.subject == ProbeSubject::HostLinks;
                let outlier = self.outlier(&cells_of(&all, of_host).iter().collect::<Vec<_>>());
                answers.push(self.finish(draft, tool, span, outlier));
            }
        }
        let has_small_rows = reading.documents.iter().any(|document| match &document.content {
            PasteContent::Collective(table) => is_cut_to_small_sizes(table),
            _ => false,
        });
        if answers.is_empty() || has_small_rows {
            let alone = log_answer::explain(reading, limits, self.log);
            answers.extend(alone.map(|(span, tool, mut draft)| {
                if let (Some(log), Some(node), "NCCL log") = (self.log, self.node, tool) {
                    log_check::add_node_causes(&mut draft, log, node);
                }
                self.finish(draft, tool, span, None)
            }));
        }
        let all = LineSpan { first: 1, last: reading.lines.max(1) };
        answers.extend(self.messages.iter().map(|message| message_answer(message, all)));
        answers.sort_by_key(|answer| match answer.verdict {
            PasteVerdict::Outlier | PasteVerdict::Explained => 0,
            PasteVerdict::Slow => 1,
            PasteVerdict::AsExpected => 2,
            PasteVerdict::Undecided => 3,
        });
        PasteExplanation {
            format: 2,
            answers,
            lines: reading.lines,
            unread: reading.unread.iter().map(|span| (span.first, span.last)).collect(),
            is_cut: reading.is_cut,
        }
    }

    /// The draft for one document; none for matrices, which are explained together, and for
    /// what only tells of the node.
    fn draft(&self, content: &PasteContent) -> Option<DraftAnswer> {
        let (limits, context) = (self.limits.as_ref(), &self.reading.context);
        Some(match content {
            // A list of devices whose rows were not pasted has no figure.
            PasteContent::Collective(table)
                if table.rows.is_empty() && table.average_busbw.is_none() && table.runs < 2 =>
            {
                return None;
            }
            PasteContent::Collective(table) => self.collective(table),
            PasteContent::Messages(table) => {
                let mut draft = messages::explain(table, limits, context);
                if let Some(node) = self.node {
                    let again = |rows: &[QueriedRow]| {
                        let mut table = table.clone();
                        for row in rows {
                            table.rows.get_mut(row.at)?.1 = row.measured;
                        }
                        Some(messages::explain(&table, limits, context))
                    };
                    add_model(&mut draft, node, node.message_rows(table, context), &again);
                }
                draft
            }
            PasteContent::Network(table) => messages::explain_network(table, limits, context),
            PasteContent::FileIo(result) => {
                let files = self.reading.documents.iter().filter_map(|d| match &d.content {
                    PasteContent::FileIo(io) => Some(io),
                    _ => None,
                });
                let desc = self.node.and_then(RowPredictor::desc);
                io::explain(result, &files.take(MAX_FILES).collect::<Vec<_>>(), context, desc)
            }
            PasteContent::Transfers(list) => {
                let mut draft = copies::explain_transfers(list, limits);
                if let Some(matrix) = copies::transfer_matrix(list) {
                    self.predict_matrices(&mut draft, &[&matrix]);
                }
                draft
            }
            PasteContent::Links(links) => {
                return wiring::explain_links(links, self.node.map(RowPredictor::topology));
            }
            PasteContent::Topology(shown) => {
                return wiring::explain_topology(shown, self.node.map(RowPredictor::topology));
            }
            PasteContent::Matrix(_) | PasteContent::NcclLog(_) | PasteContent::Profile(_) => {
                return None;
            }
        })
    }

    fn collective(&self, table: &CollectiveTable) -> DraftAnswer {
        let (limits, context) = (self.limits.as_ref(), &self.reading.context);
        let runs = ends_of_separate_runs(self.reading);
        if runs > 1 && table.runs < 2 {
            let table = CollectiveTable { runs, ..table.clone() };
            let mut draft = collectives::explain(&table, limits, self.log, context);
            // Somebody may have run it twice.
            draft.edits = draft.edits.into_iter().map(WorldEdit::likely).collect();
            return draft;
        }
        let explain =
            |table: &CollectiveTable| collectives::explain(table, limits, self.log, context);
        let mut draft = explain(table);
        let ranks = collectives::ranks_of_node(table, limits, self.log, context);
        let (Some(node), Some(ranks)) = (self.node, ranks) else { return draft };
        let rows = node.collective_rows(table, ranks, context);
        let again = |rows: &[QueriedRow]| {
            let mut table = table.clone();
            for row in rows {
                table.rows.get_mut(row.at)?.busbw = row.measured;
            }
            Some(explain(&table))
        };
        add_model(&mut draft, node, rows.clone(), &again);
        add_collective_causes(&mut draft, node, &rows);
        draft
    }

    /// Predicts the cells that a draft is about.
    fn predict_matrices(&self, draft: &mut DraftAnswer, all: &[&RateMatrix]) {
        let Some(node) = self.node else { return };
        let of_host = draft.subject == ProbeSubject::HostLinks;
        let is_mine = |row: &QueriedRow| {
            let cell = all.get(row.table).and_then(|matrix| matrix.cells.get(row.at));
            let is_host = |end: &MatrixEnd| matches!(end, MatrixEnd::Host(_));
            cell.is_some_and(|(from, to, _)| (is_host(from) || is_host(to)) == of_host)
        };
        let rows = node.matrix_rows(all).into_iter().filter(is_mine).collect();
        let again = |rows: &[QueriedRow]| {
            let mut edited: Vec<RateMatrix> = all.iter().copied().cloned().collect();
            for row in rows {
                edited.get_mut(row.table)?.cells.get_mut(row.at)?.2 = row.measured;
            }
            let edited: Vec<&RateMatrix> = edited.iter().collect();
            let (limits, context) = (self.limits.as_ref(), &self.reading.context);
            let drafts = copies::explain_matrices(&edited, limits, context);
            drafts.into_iter().find(|again| again.subject == draft.subject)
        };
        let mut predicted = draft.clone();
        add_model(&mut predicted, node, rows, &again);
        *draft = predicted;
    }

    /// What differs from its peers in some matrices.
    fn outlier(&self, matrices: &[&RateMatrix]) -> Option<String> {
        let limits = self.limits.as_ref();
        let is_full_mesh = |limits: &NodeLimits| {
            limits
                .product
                .is_some_and(|p| p.name.starts_with("MI300") || p.name.starts_with("MI35"))
        };
        let is_uniform = limits
            .is_some_and(|limits| limits.fabric == FabricKind::Switched || is_full_mesh(limits));
        Some(find_outlier(matrices, is_uniform)?.text)
    }

    fn finish(
        &self,
        mut draft: DraftAnswer,
        tool: &str,
        span: LineSpan,
        outlier: Option<String>,
    ) -> PasteAnswer {
        let share =
            draft.value.zip(draft.limit_gbs).filter(|(_, limit)| *limit > 0.0).map(|(v, l)| v / l);
        let evidence = self.evidence.filter(|evidence| evidence.is_about(&draft));
        let checked = evidence.zip(self.node).map(|(evidence, node)| {
            evidence.apply(&mut draft, node);
            evidence.outcome(node)
        });
        let is_certain = draft.edits.iter().any(|edit| edit.is_certain);
        let mut causes = rank(&draft.features, draft.edits);
        causes.truncate(MAX_CAUSES);
        let mut answer = PasteAnswer {
            tool: tool.to_owned(),
            first_line: span.first,
            last_line: span.last,
            meaning: draft.meaning,
            limit: draft.limit,
            value_gbs: draft.value,
            limit_gbs: draft.limit_gbs,
            share,
            rows: draft.rows,
            model: draft.model,
            checked,
            verdict: PasteVerdict::Undecided,
            verdict_text: String::new(),
            causes,
            subject: draft.subject,
        };
        (answer.verdict, answer.verdict_text) = answer.judge(outlier, is_certain);
        answer
    }
}

/// The matrices with only the cells that have an end in host memory, or only the others.
fn cells_of(matrices: &[&RateMatrix], of_host: bool) -> Vec<RateMatrix> {
    let is_host = |end: &MatrixEnd| matches!(end, MatrixEnd::Host(_));
    let part = |matrix: &&RateMatrix| {
        let mut part = (*matrix).clone();
        part.cells.retain(|(from, to, _)| (is_host(from) || is_host(to)) == of_host);
        part
    };
    matrices.iter().map(part).collect()
}

/// The answer to the text of a library.
fn message_answer(message: &FoundMessage, span: LineSpan) -> PasteAnswer {
    let row = message.row;
    let verdict = match row.class {
        AnswerClass::AsExpected => PasteVerdict::AsExpected,
        _ => PasteVerdict::Explained,
    };
    PasteAnswer {
        tool: "message".to_owned(),
        first_line: span.first,
        last_line: span.last,
        meaning: format!("\"{}\", a text of {}", message.text, row.source),
        limit: "none: it is not about a rate".to_owned(),
        value_gbs: None,
        limit_gbs: None,
        share: None,
        rows: Vec::new(),
        model: String::new(),
        checked: None,
        verdict,
        verdict_text: row.meaning.to_owned(),
        causes: vec![LikelyCause {
            id: row.id,
            class: row.class,
            share: 0.95,
            text: row.meaning.to_owned(),
            predicted: None,
            check: row.check.to_owned(),
        }],
        subject: ProbeSubject::Nothing,
    }
}

/// Whether a table ends at sizes below 1 MiB, at which rates are those of starts.
fn is_cut_to_small_sizes(table: &CollectiveTable) -> bool {
    table.rows.iter().map(|row| row.bytes).max().is_some_and(|bytes| bytes < 1 << 20)
}

/// Runs next to each other whose rows were not pasted: ends of a benchmark with the same average, where one
/// launcher started several ranks.
fn ends_of_separate_runs(reading: &PasteReading) -> u32 {
    let averages: Vec<f64> = reading
        .documents
        .iter()
        .filter_map(|document| match &document.content {
            PasteContent::Collective(table) if table.rows.is_empty() => table.average_busbw,
            _ => None,
        })
        .collect();
    let launched = |command: &&String| {
        let ranks = command.split_once("-np ").or_else(|| command.split_once("-n "));
        let ranks = ranks.and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<u32>().ok());
        ranks.is_some_and(|ranks| ranks > 1)
    };
    let commands = reading.context.commands.iter().filter(launched).count();
    let is_same = averages.windows(2).all(|pair| match pair {
        [a, b] => (a / b - 1.0).abs() < 0.02,
        _ => true,
    });
    if commands == 1 && averages.len() > 1 && is_same {
        u32::try_from(averages.len()).unwrap_or(2)
    } else {
        0
    }
}
