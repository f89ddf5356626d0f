//! Splits a paste into documents.

use serde_json::Value;

use crate::clean::{PasteLine, clean_lines, strip_repeated_words};
use crate::document::{
    CollectiveTable, FileIoResult, LineSpan, MessageTable, PasteContent, PasteContent as Kind,
    PasteDocument, PasteReading, RateMatrix,
};
use crate::objects::{JsonDepth, json, json_lines, xml};
use crate::paste_context::RunTitle;
use crate::plain_rows::PlainTable;
use crate::{
    amd_tools, context, copy_tools, elbencho_csv, failures, file_io, fio, fixed_lines, iperf,
    mdtest, nccl_log, nccl_tests, nvlink_state, osu, perftest, plain_matrix, plain_table, profile,
    profiler, sentence_rates, streams,
};

/// Documents that are kept of a paste.
const MAX_DOCUMENTS: usize = 4096;
/// Objects that are tried as JSON or XML in a paste: a failing one is scanned to its end.
const MAX_OBJECTS: usize = 16;

/// Lines of failures that are kept.
const MAX_FAILURES: usize = 16;
/// Words before each line that are tried: `Nov 28 12:00:00 host unit[12]: `, `name  | `.
const MAX_PREFIXES: u32 = 4;
/// Lines at each end of a long paste that are tried without prefixes.
const SAMPLE: usize = 4096;
/// Lines in no known output from which on they are.
const MANY_UNREAD: u32 = 4;

/// Reads a paste: any bytes. Time and memory are linear in its size, of which the first 8 MiB count.
///
/// Where lines stay unread or half of them begin with the same words, it is read again without these; the reading
/// counts that finds the most.
pub fn read_paste(bytes: &[u8]) -> PasteReading {
    let (mut lines, is_cut) = clean_lines(bytes);
    let mut best = read_lines(lines.clone(), is_cut);
    let unstripped = if lines.len() > 2 * SAMPLE { ends_of(&lines) } else { Vec::new() };
    for _ in 0..MAX_PREFIXES {
        let stripped = strip_repeated_words(&mut lines);
        let unread: u32 = best.unread.iter().map(|span| span.last - span.first + 1).sum();
        if stripped == 0 || unread < MANY_UNREAD && stripped * 2 < lines.len() {
            break;
        }
        // Of a long paste its ends say whether more is read without these words.
        if lines.len() > 2 * SAMPLE && !gains(&lines, &unstripped) {
            continue;
        }
        let other = read_lines(lines.clone(), is_cut);
        if other.figures_and_lines() > best.figures_and_lines() {
            best = other;
        }
    }
    best
}

/// First and last lines of a paste.
fn ends_of(lines: &[PasteLine]) -> Vec<PasteLine> {
    let (first, last) = (lines.iter().take(SAMPLE), lines.iter().skip(lines.len() - SAMPLE));
    first.chain(last).cloned().collect()
}

/// Whether the ends of a paste have more without the words that were taken off.
fn gains(lines: &[PasteLine], unstripped: &[PasteLine]) -> bool {
    let count = |lines: Vec<PasteLine>| read_lines(lines, false).figures_and_lines();
    count(ends_of(lines)) > count(unstripped.to_vec())
}

fn read_lines(mut lines: Vec<PasteLine>, is_cut: bool) -> PasteReading {
    let count = lines.len() as u32;
    let mut reading = PasteReading { lines: count, is_cut, ..PasteReading::default() };
    if !lines.iter().any(|line| failures::is_manual(&line.text)) {
        let failed = lines.iter().filter(|line| line.is_failure).take(MAX_FAILURES);
        let failed = failed.map(|line| (line.number, line.text.trim().to_owned()));
        reading.context.failures = failed.collect();
    }
    let log = nccl_log::take(&mut lines);
    reading.documents = link_matrices(&mut lines);
    let mut splitter = PasteSplitter {
        lines: &lines,
        at: 0,
        objects: 0,
        processors: 0,
        program: String::new(),
        title: RunTitle::default(),
        reading: &mut reading,
    };
    splitter.run();
    if log.is_none() {
        sentence_rates::add_sentences(&mut reading, &lines);
    }
    let gpus = reading.context.gpu_count;
    for document in &mut reading.documents {
        match &mut document.content {
            PasteContent::Collective(table) if table.profiler.is_some() => {
                profiler::merge_sizes(table);
            }
            PasteContent::Matrix(matrix) => copy_tools::share_sum(matrix, gpus),
            _ => {}
        }
    }
    if let Some((log, span)) = log {
        for host in &log.settings {
            reading.context.settings.entry(host.0.clone()).or_insert_with(|| host.1.clone());
        }
        let content = PasteContent::NcclLog(Box::new(log));
        reading.documents.push(PasteDocument { span, content });
    }
    reading.documents.sort_by_key(|document| document.span.first);
    reading
}

/// Takes the matrices of `nvidia-smi topo -m` out: they also stand between the header of a benchmark and its rows.
fn link_matrices(lines: &mut [PasteLine]) -> Vec<PasteDocument> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < lines.len() && found.len() < MAX_DOCUMENTS {
        let Some((links, next)) = pathline_topo::read_nvidia_matrix(lines, at) else {
            at += 1;
            continue;
        };
        let mine = lines.get_mut(at..next).unwrap_or_default();
        let number = |line: Option<&PasteLine>| line.map_or(1, |line| line.number);
        let span = LineSpan { first: number(mine.first()), last: number(mine.last()) };
        mine.iter_mut().for_each(|line| line.text.clear());
        found.push(PasteDocument { span, content: PasteContent::Links(links) });
        at = next.max(at + 1);
    }
    found
}

/// A document of a kind, and the line after it.
fn one<T>(kind: fn(T) -> Kind, found: Option<(T, usize)>) -> Option<(Vec<Kind>, usize)> {
    found.map(|(content, next)| (vec![kind(content)], next))
}

/// Results of file I/O.
fn files(lines: &[PasteLine], at: usize) -> Option<(Vec<FileIoResult>, usize)> {
    file_io::elbencho(lines, at)
        .or_else(|| elbencho_csv::elbencho_csv(lines, at))
        .or_else(|| elbencho_csv::live_csv(lines, at))
        .or_else(|| fio::read(lines, at))
        .or_else(|| file_io::gdsio(lines, at))
        .or_else(|| file_io::ior(lines, at))
        .or_else(|| file_io::hdparm(lines, at))
        .or_else(|| file_io::dd(lines, at))
}

/// A table of rates or counts, by the readers of single tools and then by the one of all others.
fn any_table(lines: &[PasteLine], at: usize) -> Option<(PlainTable, usize)> {
    iperf::read(lines, at)
        .or_else(|| nvlink_state::nvlink_state(lines, at))
        .or_else(|| nvlink_state::dcgm_state(lines, at))
        .or_else(|| mdtest::read(lines, at))
        .or_else(|| plain_table::read(lines, at))
}
struct PasteSplitter<'a> {
    lines: &'a [PasteLine],
    at: usize,
    objects: usize,
    /// CPUs among rocm-bandwidth-test's devices.
    processors: u32,
    /// Last command of a benchmark of collectives.
    program: String,
    /// Title of the next run.
    title: RunTitle,
    reading: &'a mut PasteReading,
}

impl PasteSplitter<'_> {
    fn run(&mut self) {
        while let Some(line) = self.lines.get(self.at) {
            if self.reading.documents.len() < MAX_DOCUMENTS && self.document() {
                continue;
            }
            self.rest(line);
            self.at += 1;
        }
    }

    /// Text that is no document's.
    fn rest(&mut self, line: &PasteLine) {
        let text = line.text.trim();
        if text.is_empty() || text.starts_with("```") || text.starts_with("~~~") {
            return;
        }
        // Headings that the reader of the block below them has used.
        let test = text.strip_prefix("Running ").and_then(|name| name.strip_suffix('.'));
        if test.is_some_and(|name| name.contains('_') && !name.contains(' ')) {
            return;
        }
        // nvbandwidth prints the host's name above its list of devices.
        let next = self.lines.get(self.at + 1).map_or("", |line| line.text.trim());
        if next.starts_with("Device 0: ") && !text.contains(' ') {
            return;
        }
        if let Some((number, is_processor, name)) = amd_tools::device(text) {
            let context = &mut self.reading.context;
            if is_processor {
                self.processors = self.processors.max(number.saturating_add(1));
                context::take(context, name);
            } else {
                context::take_device(context, text);
                if context.devices.len() < 512 {
                    context.devices.insert(number.saturating_sub(self.processors), name.to_owned());
                }
            }
            return;
        }
        if fixed_lines::is_fixed(text) {
            context::take_device(&mut self.reading.context, text);
            return;
        }
        if let Some(at) = text.find("_perf") {
            let start =
                text.get(..at).and_then(|t| t.rfind(|c: char| c == '/' || c.is_whitespace()));
            let name = text.get(start.map_or(0, |s| s + 1)..at).unwrap_or_default();
            if nccl_tests::operation(name).is_some() || name.contains("sendrecv") {
                name.clone_into(&mut self.program);
            }
        }
        let kept = self.reading.context.kept_lines();
        context::take(&mut self.reading.context, text);
        if let Some(title) = RunTitle::parse(text) {
            let op = title.subject.split_once(" over ").map_or("", |(op, _)| op);
            op.clone_into(&mut self.program);
            self.title = title;
            return;
        }
        // A command is read with the output below it, and a rule or a lone `#` ends a table.
        let is_rule = text.chars().all(|c| "#-=_ ".contains(c));
        if is_rule || self.reading.context.kept_lines() > kept {
            return;
        }
        match self.reading.unread.last_mut() {
            Some(span) if span.last + 1 >= line.number => span.last = line.number,
            _ => self.reading.unread.push(LineSpan { first: line.number, last: line.number }),
        }
    }

    /// Whether a document begins here; it is then read.
    fn document(&mut self) -> bool {
        let (lines, at) = (self.lines, self.at);
        let Some(line) = lines.get(at) else { return false };
        let text = line.text.trim_start();
        if text.is_empty() {
            return false;
        }
        let is_json = text.starts_with('{') || text.starts_with("[{");
        if is_json || text.starts_with("<system") {
            return self.object(is_json);
        }
        let found = one(Kind::Streams, streams::read(lines, at))
            .or_else(|| one(Kind::Collective, self.collective()))
            .or_else(|| one(Kind::Messages, self.messages()))
            .or_else(|| one(Kind::Matrix, self.matrix()))
            .or_else(|| one(Kind::Transfers, amd_tools::transfers(lines, at)))
            .or_else(|| one(Kind::Messages, osu::ucx_perftest(lines, at)))
            .or_else(|| one(Kind::Profile, profile::read(lines, at)))
            .or_else(|| one(Kind::Network, perftest::read(lines, at)))
            .or_else(|| one(Kind::Links, pathline_topo::read_amd_matrix(lines, at)));
        if let Some((contents, next)) = found {
            // A matrix whose cells are no pair's says nothing that is compared.
            let is_empty =
                |one: &Kind| matches!(one, Kind::Matrix(matrix) if matrix.cells.is_empty());
            return self.add(contents.into_iter().filter(|one| !is_empty(one)), next);
        }
        if let Some((results, next)) = files(lines, at) {
            // A command above its result is read with it.
            if text.contains("fio ") {
                context::take(&mut self.reading.context, text);
            }
            return self.add(results.into_iter().map(Kind::FileIo), next);
        }
        if let Some((table, next)) = any_table(lines, at) {
            // Its lines are text, too: they name parts and state rates.
            for line in lines.get(at..next).unwrap_or_default() {
                context::take(&mut self.reading.context, &line.text);
            }
            return self.add(plain_matrix::contents(table), next);
        }
        false
    }

    fn collective(&mut self) -> Option<(CollectiveTable, usize)> {
        let (mut table, next) = nccl_tests::read(self.lines, self.at)?;
        if table.op.is_none() && !table.is_sendrecv {
            nccl_tests::set_program(&mut table, &std::mem::take(&mut self.program));
            nccl_tests::finish(&mut table);
        }
        table.title = std::mem::take(&mut self.title).with(&self.reading.context.settings);
        for device in &table.devices {
            context::take_device(&mut self.reading.context, &device.name);
        }
        Some((table, next))
    }

    fn messages(&mut self) -> Option<(MessageTable, usize)> {
        let (mut table, next) = osu::read(self.lines, self.at)?;
        table.command = self.reading.context.commands.last().cloned().unwrap_or_default();
        table.title = std::mem::take(&mut self.title).with(&self.reading.context.settings);
        Some((table, next))
    }

    fn matrix(&self) -> Option<(RateMatrix, usize)> {
        let (lines, at) = (self.lines, self.at);
        copy_tools::nvbandwidth(lines, at)
            .or_else(|| copy_tools::p2p_test(lines, at))
            .or_else(|| copy_tools::bandwidth_sample(lines, at))
            .or_else(|| copy_tools::validation_suite(lines, at))
            .or_else(|| amd_tools::matrix(lines, at, self.processors))
            .or_else(|| copy_tools::sums(lines, at))
    }

    /// Adds what stands from here to the line before `next`.
    fn add(&mut self, contents: impl IntoIterator<Item = PasteContent>, next: usize) -> bool {
        let span = self.span(next);
        let document = |content| PasteDocument { span, content };
        self.reading.documents.extend(contents.into_iter().map(document));
        self.at = next.max(self.at + 1);
        true
    }

    fn span(&self, next: usize) -> LineSpan {
        let number = |at: usize| self.lines.get(at).map_or(self.reading.lines, |line| line.number);
        LineSpan { first: number(self.at), last: number(next.saturating_sub(1)) }
    }

    /// A JSON object or an XML element that begins here.
    fn object(&mut self, is_json: bool) -> bool {
        if self.objects >= MAX_OBJECTS {
            return false;
        }
        let rest = self.lines.get(self.at..).unwrap_or_default();
        let mut text = String::new();
        let mut end = rest.len();
        let mut depth = JsonDepth::default();
        for (more, line) in rest.iter().enumerate() {
            text.push_str(&line.text);
            text.push('\n');
            let is_end =
                if is_json { depth.ends(&line.text) } else { line.text.contains("</system>") };
            if is_end {
                end = more + 1;
                break;
            }
        }
        let next = self.at + end;
        let contents = match is_json {
            true if self.profiler_line(&text, next) => return true,
            true => json(&text, &mut self.reading.context),
            false => xml(&text),
        };
        if contents.is_empty() {
            if let Some((contents, next)) = json_lines(self.lines, self.at) {
                return self.add(contents, next);
            }
            self.objects += 1;
            return false;
        }
        self.add(contents, next)
    }

    /// Takes a record of a profiler plugin, or the last line of its file.
    fn profiler_line(&mut self, text: &str, next: usize) -> bool {
        if !(text.contains("coll_perf") || text.contains("\"summary\"")) {
            return false;
        }
        let Ok(root) = serde_json::from_str::<Value>(text) else { return false };
        let last = self.reading.documents.iter_mut().rev().find_map(|document| match &mut document
            .content
        {
            Kind::Collective(table) if table.profiler.is_some() => {
                Some((&mut document.span, table))
            }
            _ => None,
        });
        if let Some(complete) = profiler::summary(&root) {
            if let Some((_, table)) = last {
                table.is_incomplete = !complete;
            }
            self.at = next;
            return true;
        }
        let Some(record) = profiler::record(&root) else { return false };
        let end = self.lines.get(next.saturating_sub(1)).map_or(0, |line| line.number);
        match last {
            Some((span, table)) if profiler::continues(table, &record) => {
                profiler::append(table, record);
                span.last = span.last.max(end);
                self.at = next;
                true
            }
            _ => self.add([Kind::Collective(record)], next),
        }
    }
}

impl PasteReading {
    /// Figures of all documents, and lines of the paste that belong to them.
    pub(crate) fn figures_and_lines(&self) -> (usize, u32) {
        let figures = self.documents.iter().map(|document| document.content.figures()).sum();
        let (mut lines, mut end) = (0, 0);
        let spans = self.documents.iter().map(|document| (document.span.first, document.span.last));
        let mut spans: Vec<(u32, u32)> = spans.collect();
        spans.sort_unstable();
        for (first, last) in spans {
            lines += (last + 1).saturating_sub(first.max(end));
            end = end.max(last + 1);
        }
        (figures, lines)
    }
}

#[cfg(test)]
mod tests;
