//! Faults that drivers wrote into the kernel log of a paste, by the table that `doctor` reads that log with.

use std::collections::BTreeSet;

use pathline_diagnose::{KernelEvent, judge_kernel_log};
use pathline_paste::PasteContext;
use pathline_schema::{NodeVerdict, Topology};

use crate::draft::DraftAnswer;
use crate::score::{AnswerClass, WorldEdit};

/// Parts that are named.
const MAX_PARTS: usize = 8;
/// An event with all parts that have it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoggedEvent {
    event: KernelEvent,
    parts: Vec<String>,
}

impl LoggedEvent {
    /// Whether a line is about it.
    pub(crate) fn is_in(&self, line: &str) -> bool {
        judge_kernel_log(std::iter::once(line), &Topology::default())
            .iter()
            .any(|event| event.mark == self.event.mark)
    }

    /// Its answer. What is corrected, and the error of a program, decides nothing about the node.
    pub(crate) fn draft(&self) -> DraftAnswer {
        let KernelEvent { mark, count, state, meaning, remedy, source, line, .. } = &self.event;
        let is_fault = matches!(state, NodeVerdict::Suspect | NodeVerdict::Fail);
        let (class, text) = match is_fault {
            true => (AnswerClass::HardwareSuspect, format!("{mark}: {meaning}")),
            false => (AnswerClass::Unknown, format!("{mark}: {meaning}; {remedy}")),
        };
        let edit = WorldEdit::new("kernel-log", class, 1.0).says(text).decided_by(*remedy);
        let named = self.parts.iter().take(MAX_PARTS).map(String::as_str).collect::<Vec<_>>();
        let parts = match (named.join(", "), self.parts.len().saturating_sub(MAX_PARTS)) {
            (named, _) if named.is_empty() => named,
            (named, 0) => format!(" of {named}"),
            (named, more) => format!(" of {named} and {more} more"),
        };
        let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
        let line = line.trim();
        let meaning = format!("{mark}{parts} in the kernel log, {times}: \"{line}\"");
        let also = vec![format!("documented in {source}")];
        DraftAnswer { also, ..DraftAnswer::of_text(meaning, edit) }
    }
}

/// The events in the kernel log of a paste, what is worst first.
pub(crate) fn find_events(context: &PasteContext, topology: Option<&Topology>) -> Vec<LoggedEvent> {
    let mut seen = BTreeSet::new();
    let lines = context.kernel_log.iter().map(String::as_str);
    let distinct: Vec<&str> = lines.filter(|line| seen.insert(*line)).collect();
    let none = Topology::default();
    let mut found: Vec<LoggedEvent> = Vec::new();
    for event in judge_kernel_log(distinct.into_iter(), topology.unwrap_or(&none)) {
        let part = Some(event.part.clone()).filter(|part| !part.is_empty());
        match found.iter_mut().find(|one| one.event.mark == event.mark) {
            Some(one) => {
                one.event.count += event.count;
                one.parts.extend(part);
            }
            None => found.push(LoggedEvent { event, parts: part.into_iter().collect() }),
        }
    }
    found.sort_by_key(|one| match one.event.state {
        NodeVerdict::Fail => 0,
        NodeVerdict::Suspect => 1,
        NodeVerdict::Undecided => 2,
        NodeVerdict::Ok => 3,
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<(String, Vec<String>, usize, NodeVerdict)> {
        let reading = pathline_paste::read_paste(text.as_bytes());
        let found = find_events(&reading.context, None).into_iter();
        found.map(|one| (one.event.mark, one.parts, one.event.count, one.event.state)).collect()
    }

    #[test]
    fn events_are_named_with_their_parts_and_counts() {
        let log = "[  812.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=12, name=python, Ch 8\n\
                   [  812.4] NVRM: Xid (PCI:0000:3b:00): 149, pid=12, NETIR Link Event\n\
                   [  812.5] NVRM: Xid (PCI:0000:86:00): 149, pid=12, NETIR Link Event\n\
                   [  813.0] NVRM: Xid (PCI:0000:86:00): 9999, pid=12\n\
                   Mar  5 10:11:12 n1 kernel: amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!\n";
        let found = events(log);
        let names: Vec<_> =
            found.iter().map(|(mark, _, count, state)| (&**mark, *count, *state)).collect();
        assert_eq!(
            names,
            [
                ("GPU reset begin", 1, NodeVerdict::Suspect),
                ("Xid 149", 2, NodeVerdict::Suspect),
                ("Xid 9999", 1, NodeVerdict::Undecided),
                ("Xid 31", 1, NodeVerdict::Ok),
            ]
        );
        assert_eq!(found[1].1, ["0000:3b:00", "0000:86:00"]);
    }

    #[test]
    fn sentences_and_quoted_codes_are_no_events() {
        for text in [
            "we see Xid 79 now and then, is that bad?",
            "[rank0] NCCL timeout, see https://docs.nvidia.com Xid 31",
            "the amdgpu driver had an error and a GPU reset begin was in the log",
            "[1,0]<stdout>: failed with error: 3",
        ] {
            assert!(events(text).is_empty(), "{text}");
        }
    }
}
