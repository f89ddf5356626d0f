//! From a reading of a paste to answers: figure, limit, outlier, range of a model, verdict, checks.

use std::collections::BTreeSet;

use pathline_paste::{
    CollectiveTable, LineSpan, MatrixEnd, NcclLog, PasteContent, PasteReading, RateMatrix,
};
use pathline_schema::{NodeVerdict, Topology};
use serde::Serialize;

use crate::checks::CheckPath;
use crate::deciding_probe::ProbeEvidence;
use crate::draft::{DraftAnswer, NO_RATE, ProbeSubject};
use crate::exact_messages::find_messages;
use crate::figures::rate;
use crate::further_figures::{figures_of_matrices, further_figures};
use crate::headline::{open_range, plateau, slow_start, take_model_limit};
use crate::kernel_events::find_events;
use crate::logs::is_of_one_host;
use crate::model_edits::{add_collective_causes, add_model};
use crate::node_facts::{AnswerBasis, NodeLimits, find_log};
use crate::pair_levels::times_alone;
use crate::paste_answer::PasteAnswer;
use crate::product_facts::{lanes_of, narrower_link, pcie_gbs};
use crate::repeated_runs::faster_run;
use crate::row_predictor::{QueriedRow, RowPredictor};
use crate::score::rank;
use crate::stated_settings::{StatedSetting, find_settings, unset_engines};
use crate::table_summary::TableSummary;
use crate::vendor_words::vendor_of;
use crate::verdict::{JudgedFigure, decide, possible};
use crate::{
    adapters, collectives, copies, io, link_state, logs, memory, messages, plain_rates, profiles,
    wiring,
};

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
    /// Settings of the paste whose effect a manual states.
    pub settings: Vec<StatedSetting>,
    /// Lines in all.
    pub lines: u32,
    /// Lines that belong to no known output, first and last.
    pub unread: Vec<(u32, u32)>,
    /// Whether the paste was longer than what is read.
    pub is_cut: bool,
}

/// Explains a paste. `machine` is the node that the user named or is on.
pub fn explain_paste(reading: &PasteReading, machine: Option<&Topology>) -> PasteExplanation {
    PasteExplainer::new(reading, machine, None).explain()
}

/// Explains a paste on a node whose rows are predicted, with what a probe of that node measured.
pub fn explain_on_node(
    reading: &PasteReading,
    node: &RowPredictor,
    evidence: Option<&ProbeEvidence>,
) -> PasteExplanation {
    let explainer = PasteExplainer {
        evidence,
        ..PasteExplainer::new(reading, Some(node.topology()), Some(node))
    };
    explainer.explain()
}

impl PasteExplanation {
    /// Adds the verdict of a check of the node to the answers that copies of it decide. What that check has done is
    /// no further check.
    pub fn add_node(&mut self, state: NodeVerdict, reason: &str, action: &str) {
        let is_bad = matches!(state, NodeVerdict::Fail | NodeVerdict::Suspect);
        let of_node = |answer: &&mut PasteAnswer| answer.subject != ProbeSubject::Nothing;
        for answer in self.answers.iter_mut().filter(of_node) {
            answer.checks.retain(|check| !check.command.contains("pathline "));
            if let Some(probed) = answer.checked.as_mut().filter(|_| !is_bad) {
                probed.text = format!("{}: {reason}; {}", state.word(), probed.text);
            }
            if is_bad {
                let before = std::mem::take(&mut answer.reason);
                answer.reason = format!("the node: {reason}; the figure: {before}");
                (answer.verdict, answer.is_fault) = (state, true);
                answer.action = action.to_owned();
                answer.checks.clear();
                answer.possible.clear();
            }
        }
    }
}

struct PasteExplainer<'a> {
    reading: &'a PasteReading,
    limits: Option<NodeLimits>,
    log: Option<&'a NcclLog>,
    node: Option<&'a RowPredictor>,
    evidence: Option<&'a ProbeEvidence>,
}

impl<'a> PasteExplainer<'a> {
    fn new(
        reading: &'a PasteReading,
        machine: Option<&Topology>,
        node: Option<&'a RowPredictor>,
    ) -> Self {
        let limits = NodeLimits::new(reading, machine);
        Self { reading, limits, log: find_log(reading), node, evidence: None }
    }

    fn basis(&self) -> AnswerBasis<'_> {
        let (limits, context) = (self.limits.as_ref(), &self.reading.context);
        AnswerBasis { limits, log: self.log, context, node: self.node }
    }

    fn explain(&self) -> PasteExplanation {
        let reading = self.reading;
        let context = &reading.context;
        let mut answers = Vec::new();
        let (mut matrices, mut sums) = (Vec::new(), Vec::new());
        for document in &reading.documents {
            if let PasteContent::Matrix(matrix) = &document.content {
                let kept = if matrix.is_sum { &mut sums } else { &mut matrices };
                kept.push((document.span, matrix));
            }
            let tool = document.content.tool();
            let faster = faster_run(reading, &document.content);
            if let Some(mut draft) = self.draft(&document.content) {
                self.predict_table(&mut draft, &document.content);
                draft.also.extend(further_figures(&document.content));
                match faster {
                    Some(Ok(slow)) => draft.outliers.push(slow),
                    Some(Err(unlike)) => draft.also.push(unlike),
                    None => {}
                }
                answers.push(self.finish(draft, tool, document.span));
            }
        }
        for (span, tool, all) in copies::by_tool(&matrices) {
            let mut further = figures_of_matrices(&all);
            let rates: Vec<&RateMatrix> =
                all.iter().copied().filter(|matrix| !matrix.is_latency).collect();
            let mut drafts = copies::explain_matrices(&rates, self.basis());
            if drafts.is_empty() {
                drafts.push(times_alone(&all));
            }
            let subjects: Vec<ProbeSubject> = drafts.iter().map(|draft| draft.subject).collect();
            for (at, mut draft) in drafts.into_iter().enumerate() {
                self.predict_matrices(&mut draft, &rates);
                // Figures without a separate answer go to the first one.
                let is_mine = |subject: ProbeSubject| {
                    subject == draft.subject || at == 0 && !subjects.contains(&subject)
                };
                let (mine, rest): (Vec<_>, Vec<_>) =
                    further.into_iter().partition(|(subject, _)| is_mine(*subject));
                draft.also.extend(mine.into_iter().map(|(_, text)| text));
                further = rest;
                answers.push(self.finish(draft, tool, span));
            }
        }
        if let (Some((first, matrix)), true) = (sums.first(), matrices.is_empty()) {
            let last = sums.last().map_or(first.last, |(span, _)| span.last);
            let sums: Vec<&RateMatrix> = sums.iter().map(|(_, matrix)| *matrix).collect();
            let span = LineSpan { last, ..*first };
            answers.push(self.finish(copies::sums_alone(&sums), matrix.tool.name(), span));
        }
        let all = LineSpan { first: 1, last: reading.lines.max(1) };
        let figures: Vec<f64> = answers.iter().filter_map(|answer| answer.value_gbs).collect();
        let link_state = link_state::explain_widths(context)
            .or_else(|| link_state::explain_link_state(context, &figures));
        answers.extend(link_state.map(|draft| self.finish(draft, "PCIe link state", all)));
        let mut settings = find_settings(context, self.node);
        // What would keep processes from each other's GPU memory did not, where messages between GPUs are faster than
        // any way through the host.
        let is_direct = reading.documents.iter().any(|document| match &document.content {
            PasteContent::Messages(table) if table.on_gpu == Some((true, true)) => {
                !table.is_time() && table.rows.iter().any(|row| row.1 > pcie_gbs(5))
            }
            _ => false,
        });
        settings.retain(|setting| !(is_direct && setting.explains == "mapping-refused"));
        let is_between_gpus = reading.documents.iter().any(|document| {
            matches!(&document.content, PasteContent::Messages(table) if table.on_gpu == Some((true, true)))
        });
        let node = self.node.filter(|_| is_between_gpus);
        settings.extend(node.and_then(|node| unset_engines(context, node)));
        // What only costs speed is left alone where no figure is below its limit: it may keep a program from hanging.
        let is_below = |answer: &PasteAnswer| answer.share.is_some() && !answer.is_ok();
        if !answers.iter().any(is_below) {
            settings.iter_mut().for_each(StatedSetting::keep_if_only_slow);
        }
        self.add_messages(&mut answers, &settings, all);
        // What is slow comes first, and tables before what only describes the node.
        answers.sort_by_key(|answer| match answer.verdict {
            NodeVerdict::Fail => 0,
            NodeVerdict::Suspect if answer.is_fault => 1,
            // A text that names a cause stands before a table that shows none.
            NodeVerdict::Suspect if answer.tool == "message" || !answer.action.is_empty() => 2,
            NodeVerdict::Suspect => 3,
            _ if answer.value_gbs.is_some() => 4,
            _ => 5,
        });
        PasteExplanation {
            format: 3,
            answers,
            settings,
            lines: reading.lines,
            unread: reading.unread.iter().map(|span| (span.first, span.last)).collect(),
            is_cut: reading.is_cut,
        }
    }

    /// Adds exact texts of libraries, and a line by which a tool states that it failed.
    fn add_messages(
        &self,
        answers: &mut Vec<PasteAnswer>,
        settings: &[StatedSetting],
        all: LineSpan,
    ) {
        let context = &self.reading.context;
        let is_one_host = self.log.is_some_and(|log| is_of_one_host(log, context));
        let topology = self.node.map(RowPredictor::topology);
        let events = find_events(context, topology);
        for event in &events {
            let answer = self.finish(event.draft(), "message", all);
            let line = context.failures.iter().find(|(_, text)| event.is_in(text));
            answers.push(line.map_or(answer.clone(), |line| answer.failed(line)));
        }
        let is_event = |line: &str| events.iter().any(|event| event.is_in(line));
        let logged = context.kernel_log.iter().filter(|line| is_event(line));
        let known: BTreeSet<String> = logged.map(|line| line.to_lowercase()).collect();
        let messages =
            find_messages(context, self.log, &|line| known.contains(&line.to_lowercase()));
        // A node alone sends nothing over the network that it lacks.
        for found in messages.iter().filter(|found| !(is_one_host && found.row.id == "tcp")) {
            let setting = settings.iter().find(|setting| setting.explains == found.row.id);
            let answer = self.finish(found.draft(setting), "message", all);
            let mut failures = context.failures.iter();
            let line = failures.find(|(_, text)| found.is_in(text) && !answer.is_ok());
            answers.push(match line {
                Some(line) if self.goes_on(line.0) => answer.stated_at(line),
                Some(line) => answer.failed(line),
                None => answer,
            });
        }
        let is_failed = answers.iter().any(|answer| answer.verdict == NodeVerdict::Fail);
        let is_said = |line: &str| is_event(line) || messages.iter().any(|found| found.is_in(line));
        let open = context.failures.iter().find(|(_, line)| !is_said(line));
        if let Some(line) = open.filter(|_| !is_failed) {
            let draft = DraftAnswer { limit: NO_RATE.to_owned(), ..DraftAnswer::default() };
            let draft = DraftAnswer { path: CheckPath::Unknown, ..draft };
            let failed = self.finish(draft, "message", all).failed(line);
            answers.push(match self.goes_on(line.0) {
                true => failed.of_error(line.0),
                false => failed,
            });
        }
    }

    /// Whether results of a benchmark stand below a line.
    fn goes_on(&self, number: u32) -> bool {
        self.reading.documents.iter().any(|document| {
            let is_result = match &document.content {
                PasteContent::Messages(table) => !table.rows.is_empty(),
                PasteContent::Collective(table) => !table.rows.is_empty(),
                PasteContent::Network(table) => !table.rows.is_empty(),
                _ => false,
            };
            is_result && document.span.first > number
        })
    }

    /// The draft for one document; none for matrices, which are explained together.
    fn draft(&self, content: &PasteContent) -> Option<DraftAnswer> {
        let basis = self.basis();
        Some(match content {
            // A list of devices whose rows were not pasted has no figure.
            PasteContent::Collective(table) if is_empty(table) => return None,
            PasteContent::Collective(table) => collectives::explain(table, basis),
            PasteContent::Messages(table) => messages::explain(table, basis),
            PasteContent::Network(table) => adapters::explain(table, self.limits.as_ref()),
            PasteContent::FileIo(result) => {
                let files = self.reading.documents.iter().filter_map(|d| match &d.content {
                    PasteContent::FileIo(io) => Some(io),
                    _ => None,
                });
                io::explain(result, &files.take(MAX_FILES).collect::<Vec<_>>(), basis)
            }
            PasteContent::Transfers(list) => {
                let mut draft = copies::explain_transfers(list, basis);
                if let Some(matrix) = copies::transfer_matrix(list) {
                    self.predict_matrices(&mut draft, &[&matrix]);
                }
                draft
            }
            PasteContent::Links(links) => wiring::explain_links(links, basis),
            PasteContent::Topology(shown) => wiring::explain_topology(shown, basis),
            PasteContent::Profile(profile) => profiles::explain(profile, basis),
            PasteContent::NcclLog(log) => {
                let has_table = self.reading.documents.iter().any(|document| {
                    matches!(&document.content, PasteContent::Collective(table) if !is_empty(table))
                });
                if has_table {
                    return None;
                }
                logs::explain(log, basis)
            }
            PasteContent::Streams(table) => memory::explain_streams(table, basis),
            PasteContent::Plain(table) => plain_rates::explain(table, basis),
            PasteContent::Matrix(_) => return None,
        })
    }

    /// Predicts the rows of a table on the node that is known.
    fn predict_table(&self, draft: &mut DraftAnswer, content: &PasteContent) {
        let (Some(node), context) = (self.node, &self.reading.context) else { return };
        let rows = match content {
            PasteContent::Messages(table) => node.message_rows(table, context),
            PasteContent::Collective(table) => {
                let ranks = TableSummary::new(table, self.basis());
                let Some(ranks) = ranks.of_one_node(table) else { return };
                node.collective_rows(table, ranks, context)
            }
            _ => return,
        };
        let again = |rows: &[QueriedRow]| {
            let mut content = content.clone();
            for row in rows {
                match &mut content {
                    PasteContent::Messages(table) => table.rows.get_mut(row.at)?.1 = row.measured,
                    PasteContent::Collective(table) => {
                        table.rows.get_mut(row.at)?.busbw = row.measured;
                    }
                    _ => {}
                }
            }
            self.draft(&content)
        };
        add_model(draft, node, rows.clone(), &again);
        if matches!(content, PasteContent::Collective(_)) {
            add_collective_causes(draft, node, &rows);
        }
        draft.also.extend(slow_start(node, &draft.rows));
        take_model_limit(draft, node);
    }

    /// Predicts the cells that a draft is about.
    fn predict_matrices(&self, draft: &mut DraftAnswer, all: &[&RateMatrix]) {
        let Some(node) = self.node.filter(|_| draft.subject != ProbeSubject::Nothing) else {
            return;
        };
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
            let mut drafts = copies::explain_matrices(&edited, self.basis()).into_iter();
            drafts.find(|again| again.subject == draft.subject)
        };
        let mut predicted = draft.clone();
        add_model(&mut predicted, node, rows, &again);
        take_model_limit(&mut predicted, node);
        *draft = predicted;
    }

    /// The vendor of the GPUs: of the node that is named, else of the product in the paste, else of the words that its
    /// text and the tool have; empty if none is known.
    fn vendor(&self, tool: &str) -> &str {
        let gpu = self.node.and_then(|node| node.topology().gpus.first());
        let product = self.limits.as_ref().and_then(|limits| limits.product);
        match (gpu, product) {
            (Some(gpu), _) => &gpu.vendor,
            (None, Some(product)) if product.name.starts_with("MI") => "amd",
            (None, Some(_)) => "nvidia",
            (None, None) => {
                let context = &self.reading.context;
                let settings = context.settings.keys().map(String::as_str);
                let texts = [tool, &context.prose].into_iter().chain(settings);
                vendor_of(texts.chain(context.commands.iter().map(String::as_str)))
            }
        }
    }

    fn finish(&self, mut draft: DraftAnswer, tool: &str, span: LineSpan) -> PasteAnswer {
        let share = draft.share();
        let evidence = self.evidence.filter(|evidence| evidence.is_about(&draft));
        let checked = evidence.zip(self.node).map(|(evidence, node)| {
            let before = rank(&draft.features, draft.edits.clone());
            evidence.apply(&mut draft, node);
            evidence.outcome(node, before.iter().take(MAX_CAUSES))
        });
        let mut causes = rank(&draft.features, std::mem::take(&mut draft.edits));
        // Sound copies of a node exclude its parts; those of a simulated one say nothing of the node of the paste.
        let is_real = self.node.is_some_and(|node| node.desc().is_none());
        let is_evidence = evidence.is_some_and(|found| is_real || found.is_slow());
        // A link that the paste shows is no other.
        let product = self.limits.as_ref().and_then(|limits| limits.product);
        let assumed = draft.value.zip(draft.limit_gbs);
        let narrower = assumed
            .filter(|_| draft.limit.contains("PCIe (assumed"))
            .and_then(|(gbs, limit)| narrower_link(gbs, limit, lanes_of(product)));
        let judged = JudgedFigure {
            draft: &draft,
            is_modelled: !draft.rows.is_empty() || checked.is_some(),
            is_checked: checked.is_some() && is_evidence,
            range: self.node.and_then(|node| open_range(node, &draft.rows)),
            plateau: self.node.and_then(|_| plateau(&draft.rows)),
            narrower: narrower.unwrap_or_default(),
        };
        let decision = decide(&causes, &judged);
        let is_ok = decision.verdict == NodeVerdict::Ok;
        let is_open = decision.cause.is_none() && !is_ok;
        // What is below the figure is no limit of its path.
        let is_above = share.is_some_and(|share| share > draft.most_share()) && !is_ok;
        let is_unlike = is_above && (is_open || !draft.outliers.is_empty());
        if let Some(value) = draft.value.filter(|_| is_unlike) {
            draft.limit = format!("unknown: {} are more than {}", rate(value), draft.limit);
            draft.limit_gbs = None;
        }
        let possible = possible(&causes, &decision).into_iter();
        let possible = possible.map(|cause| cause.text.clone()).collect();
        causes.truncate(MAX_CAUSES);
        if !draft.condition.is_empty() {
            draft.limit = format!("{}, if {}", draft.limit, draft.condition);
        }
        // A product that is named and not known is not left unnamed.
        let unknown = &self.reading.context.unknown_gpu;
        if !unknown.is_empty() {
            let known = format!("names {unknown}, which is not among the known products");
            draft.limit = draft.limit.replace("names no GPU product", &known);
        }
        PasteAnswer {
            tool: tool.to_owned(),
            first_line: span.first,
            last_line: span.last,
            meaning: draft.meaning,
            also: draft.also,
            limit: draft.limit,
            ask: draft.ask,
            value_gbs: draft.value,
            limit_gbs: draft.limit_gbs,
            share: share.filter(|share| *share <= 1.0),
            rows: draft.rows,
            model: draft.model,
            checked,
            is_description: draft.is_description,
            verdict: decision.verdict,
            reason: decision.reason,
            is_fault: decision.is_fault && tool != "message",
            action: decision.action,
            possible,
            checks: if is_open { draft.path.checks(self.vendor(tool)) } else { Vec::new() },
            causes,
            subject: draft.subject,
        }
    }
}

fn is_empty(table: &CollectiveTable) -> bool {
    table.rows.is_empty() && table.average_busbw.is_none() && table.runs < 2
}
