//! What the words of a paste say for a cause: error messages, settings, and what people write about their
//! node.

use std::collections::{BTreeMap, BTreeSet};

use pathline_paste::{NcclLog, PasteContext};

use crate::answer::DraftAnswer;
use crate::catalogue::{CATALOGUE, CATALOGUE_CAUSES};
use crate::cue_table::CAUSE_CUES;
use crate::field_causes::FIELD_CAUSES;
use crate::field_cues::FIELD_CUES;
use crate::library_messages::LIBRARY_MESSAGES;
use crate::message_table::MESSAGE_CAUSES;
use crate::score::{AnswerClass, LikelyCause, WorldEdit};
use crate::sentence_topics::SentenceTopic;
use crate::topic_causes::{TOPIC_CAUSES, TopicCause};
use crate::word_model::{WordOpinion, opinions, terms};

/// Causes by counts of words alone: how many, and the least that the words say.
const MAX_BY_COUNT: usize = 8;
const LEAST_BY_COUNT: f64 = 1.0;
/// Prose in which words are sought, bytes.
const MAX_WORDS: usize = 16 << 10;

/// Weight from which on a message says more than that NCCL warns.
const STATED_BY_MESSAGE: f64 = 2.0;
/// Weight of words from which on a cause is stated: then it is not excluded by a figure that it seldom gives.
const STATED: f64 = 2.4;

/// Fields of lspci that stand in every output, whatever their value.
const FIELDS: [&str; 16] = [
    "rlxdord",
    "maxpayload",
    "devcap",
    "devctl",
    "devsta",
    "lnkcap",
    "lnkctl",
    "lnksta",
    "subsystem",
    "numa node",
    "kernel ",
    "capabilities",
    "acscap",
    "cesta",
    "uesta",
    "exttag",
];

/// What people write of a program that does not go on: `hangs-here` of patterns.
const HANGS: [&str; 19] = [
    " hang",
    "hung",
    "freez",
    "deadlock",
    "stops after",
    "stops at",
    "never finish",
    "never return",
    "never end",
    "never complete",
    "does nothing",
    "then nothing",
    "no progress",
    "not progress",
    "blocks forever",
    " stall",
    "no output after",
    "not respond",
    "waits forever",
];

/// A pattern that speaks for a cause.
///
/// A pattern is parts joined by ` & `, each of alternatives joined by `|`; `!` before a part: none of them.
/// Alternatives are compared with the normal form of [`PasteWords`].
pub(crate) struct CauseCue {
    pub(crate) id: &'static str,
    /// Logarithm of the likelihood ratio.
    pub(crate) weight: f64,
    pub(crate) pattern: &'static str,
}

/// A message that names its cause.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageCause {
    pub(crate) id: &'static str,
    pub(crate) class: AnswerClass,
    pub(crate) pattern: &'static str,
    /// Logarithm of the likelihood ratio, where other causes are possible.
    pub(crate) weight: f64,
    pub(crate) text: &'static str,
    pub(crate) check: &'static str,
}

/// The words of a paste in lower case: single blanks instead of punctuation and line ends, and one at
/// either end, so that ` vm ` is a word.
pub(crate) struct PasteWords {
    text: String,
    /// Pairs of bytes that the text has, a bit each: most of the thousands of patterns are excluded by it.
    pairs: Vec<u64>,
    /// The first warning of NCCL.
    warning: Option<String>,
    /// What the words say for a cause, and the messages that fit: sought once for a paste, which may have
    /// thousands of tables.
    weights: BTreeMap<&'static str, f64>,
    messages: Vec<MessageCause>,
    /// What counts of words say.
    pub(crate) opinions: Vec<WordOpinion>,
}

impl PasteWords {
    pub(crate) fn new(
        context: &PasteContext,
        log: Option<&NcclLog>,
        crosses_sockets: bool,
    ) -> Self {
        let mut text = String::from(" ");
        let mut add = |part: &str| {
            for c in part.chars().chain([' ']) {
                if matches!(c, '?' | '!') {
                    text.push_str(" \u{b6}");
                }
                let c = match c {
                    ',' | ';' | ':' | '(' | ')' | '[' | ']' | '"' | '\'' | '`' | '?' | '!'
                    | '*' => ' ',
                    c if c.is_whitespace() => ' ',
                    c => c.to_ascii_lowercase(),
                };
                if c == ' ' && text.ends_with('.') {
                    text.pop();
                }
                if c != ' ' || !text.ends_with(' ') {
                    text.push(c);
                }
            }
        };
        let prose = context.prose.get(..floor_char(&context.prose, MAX_WORDS)).unwrap_or_default();
        let is_field = |line: &str| FIELDS.iter().any(|field| line.trim_start().starts_with(field));
        for line in prose.lines().filter(|line| !is_field(line)) {
            add(line);
            add("\u{b6}");
        }
        if context.pcie.or(context.pcie_most).is_some() {
            add("pcie-link-state");
        }
        if crosses_sockets {
            add("link-sys");
        }
        for (name, value) in &context.settings {
            add(&format!("{name}={value}"));
        }
        for line in log.into_iter().flat_map(|log| log.warnings.iter().chain(&log.reasons)) {
            add(line);
        }
        if let Some(log) = log {
            if !log.warnings.is_empty() {
                add("nccl-warns");
            }
            add(&log.network);
            if !log.network.is_empty() {
                add(&format!("using network {}", log.network));
            }
            log.transports.keys().for_each(|name| add(&format!("via {name}")));
        }
        if names_two_versions(prose) {
            add("two-versions");
        }
        // `stuck at 12 GB/s` goes on.
        let is_stuck = text.contains("stuck") && !text.contains("stuck at");
        if is_stuck || HANGS.iter().any(|word| text.contains(word)) {
            text.push_str(" hangs-here ");
        }
        text.truncate(floor_char(&text, 2 * MAX_WORDS));
        let warning = log.and_then(|log| log.warnings.first().cloned());
        let mut pairs = vec![0_u64; 1 << 10];
        for pair in text.as_bytes().windows(2) {
            let (at, bit) = pair_bit(pair);
            if let Some(word) = pairs.get_mut(at) {
                *word |= bit;
            }
        }
        let mut words = Self {
            text,
            pairs,
            warning,
            weights: BTreeMap::new(),
            messages: Vec::new(),
            opinions: Vec::new(),
        };
        words.weights = words.weights_of_cues();
        let all = MESSAGE_CAUSES.iter().chain(LIBRARY_MESSAGES).chain(CATALOGUE_CAUSES).copied();
        words.messages = all.filter(|m| words.fits(m.pattern)).collect();
        // One row of the catalogue for a cause that no message has named: they say the same.
        let rows: Vec<_> = CATALOGUE.iter().filter(|row| words.fits(row.pattern)).collect();
        for row in rows {
            if let Some(message) = described(row)
                && words.messages.iter().all(|m| m.id != row.id || m.weight < row.weight)
            {
                words.messages.push(message);
            }
        }
        words.opinions = opinions(&words.text);
        words
    }

    /// Terms of the text.
    pub(crate) fn terms(&self) -> BTreeSet<String> {
        terms(&self.text)
    }

    fn has(&self, word: &str) -> bool {
        let is_missing = |pair: &[u8]| {
            let (at, bit) = pair_bit(pair);
            self.pairs.get(at).is_some_and(|word| word & bit == 0)
        };
        !word.as_bytes().windows(2).take(4).any(is_missing) && self.text.contains(word)
    }

    /// Whether a pattern fits.
    pub(crate) fn fits(&self, pattern: &str) -> bool {
        pattern.split(" & ").all(|part| {
            let (negated, part) = part.strip_prefix('!').map_or((false, part), |rest| (true, rest));
            part.split('|').any(|word| self.has(word)) != negated
        })
    }

    /// Logarithm of the likelihood ratio of each cause: the strongest cue whole, others by a third.
    fn weights_of_cues(&self) -> BTreeMap<&'static str, f64> {
        let mut sums: BTreeMap<&'static str, (f64, f64)> = BTreeMap::new();
        let all = CAUSE_CUES.iter().chain(FIELD_CUES);
        for cue in all.filter(|cue| self.fits(cue.pattern)) {
            let (best, sum) = sums.entry(cue.id).or_default();
            *best = if cue.weight.abs() > best.abs() { cue.weight } else { *best };
            *sum += cue.weight;
        }
        sums.into_iter().map(|(id, (best, sum))| (id, best + (sum - best) / 3.0)).collect()
    }

    /// Logarithm of the likelihood ratio of a cause.
    pub(crate) fn evidence(&self, id: &str) -> f64 {
        self.weights.get(id).copied().unwrap_or(0.0)
    }

    /// Adds what the words say to the causes of a draft.
    pub(crate) fn weigh(&self, draft: &mut DraftAnswer) {
        for edit in draft.edits.iter_mut().filter(|edit| !edit.is_certain) {
            let evidence = self.evidence(edit.id);
            edit.evidence += evidence;
            edit.is_stated |= evidence >= STATED;
        }
    }

    /// Causes that counts of words speak for most, as a last resort.
    pub(crate) fn causes_by_count(&self) -> Vec<WorldEdit> {
        let is_strong = |opinion: &&WordOpinion| opinion.weight >= LEAST_BY_COUNT;
        let edit = |opinion: &WordOpinion| {
            let cause = cause_of_words(opinion.id)?;
            let edit = WorldEdit::new(cause.id, cause.class, 0.05);
            Some(edit.says(cause.text).decided_by(cause.check))
        };
        self.opinions.iter().filter(is_strong).take(MAX_BY_COUNT).filter_map(edit).collect()
    }

    /// Adds causes of a topic for which words speak at least so strongly: they predict that the figures
    /// may be anything.
    pub(crate) fn add_topic(&self, draft: &mut DraftAnswer, topic: SentenceTopic, least: f64) {
        if draft.edits.iter().any(|edit| edit.is_certain) {
            return;
        }
        let all = TOPIC_CAUSES.iter().chain(FIELD_CAUSES);
        // What is stated counts whatever the subject seems to be.
        let fits = |cause: &&TopicCause| {
            cause.topics.contains(&topic) || self.evidence(cause.id) >= STATED
        };
        for cause in all.filter(fits) {
            let is_known = draft.edits.iter().any(|edit| edit.id == cause.id);
            if is_known || self.evidence(cause.id) < least {
                continue;
            }
            let mut edit = WorldEdit::new(cause.id, cause.class, cause.prior);
            for feature in &draft.features {
                edit = edit.expects(feature.id, feature.value, 1.0);
            }
            draft.edits.push(edit.says(cause.text).decided_by(cause.check));
        }
    }

    /// Causes that messages name, as many as fit.
    pub(crate) fn message_causes(&self) -> Vec<WorldEdit> {
        self.messages
            .iter()
            .map(|message| {
                let text = match &self.warning {
                    Some(warning) => format!("NCCL warns: {warning}: {}", message.text),
                    None => message.text.to_owned(),
                };
                WorldEdit::new(message.id, message.class, 0.1)
                    .seen(message.weight)
                    .says(text)
                    .decided_by(message.check)
            })
            .collect()
    }

    /// Adds causes that messages name to a draft with figures: they predict that the figures may be
    /// anything.
    pub(crate) fn add_messages(&self, draft: &mut DraftAnswer) {
        if draft.edits.iter().any(|edit| edit.is_certain) {
            return;
        }
        // The meaning of a warning is the better answer.
        if self.messages.iter().any(|message| message.weight >= STATED_BY_MESSAGE) {
            draft.edits.retain(|edit| edit.id != "nccl-warning");
        }
        for mut edit in self.message_causes() {
            if let Some(known) = draft.edits.iter_mut().find(|known| known.id == edit.id) {
                known.evidence += edit.evidence;
                continue;
            }
            for feature in &draft.features {
                edit = edit.expects(feature.id, feature.value, 1.0);
            }
            draft.edits.push(edit);
        }
    }
}

/// A row of the catalogue with class, text and check of its cause.
fn described(row: &CauseCue) -> Option<MessageCause> {
    let CauseCue { id, weight, pattern } = *row;
    let mut messages = MESSAGE_CAUSES.iter().chain(LIBRARY_MESSAGES).chain(CATALOGUE_CAUSES);
    if let Some(known) = messages.find(|message| message.id == id) {
        return Some(MessageCause { weight, pattern, ..*known });
    }
    let known = FIELD_CAUSES.iter().chain(TOPIC_CAUSES).find(|cause| cause.id == id)?;
    let &TopicCause { class, text, check, .. } = known;
    Some(MessageCause { id, class, pattern, weight, text, check })
}

/// A cause that counts of words speak for, and no rule.
pub(crate) fn cause_of_words(id: &str) -> Option<LikelyCause> {
    let all = MESSAGE_CAUSES.iter().chain(LIBRARY_MESSAGES).chain(CATALOGUE_CAUSES);
    let ids = all.map(|message| message.id);
    let id = ids.chain(FIELD_CAUSES.iter().chain(TOPIC_CAUSES).map(|c| c.id)).find(|k| *k == id)?;
    let MessageCause { class, text, check, .. } =
        described(&CauseCue { id, weight: 0.0, pattern: "" })?;
    let (text, check) = (text.to_owned(), check.to_owned());
    Some(LikelyCause { id, class, share: 0.0, text, predicted: None, check })
}

/// Word and bit of a pair of bytes.
fn pair_bit(pair: &[u8]) -> (usize, u64) {
    let number = pair.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
    (number >> 6 & 1023, 1 << (number & 63))
}

/// Whether a text names two versions of one library or driver: `NCCL 2.5.6 ... NCCL 2.7.8`, `v2.9.9, v2.10.3`.
fn names_two_versions(prose: &str) -> bool {
    const NAMES: [&str; 14] = [
        "nccl",
        "rccl",
        "rocm",
        "cuda",
        "ucx",
        "openmpi",
        "mpi",
        "mpich",
        "mvapich",
        "driver",
        "fio",
        "libfabric",
        "kernel",
        "ofed",
    ];
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut last, mut named) = ("", "");
    let is_split =
        |c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | ';' | ':' | '`' | '=');
    for word in prose.split(is_split).filter(|word| !word.is_empty()).take(4096) {
        let version = word.trim_start_matches('v');
        let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
        let number = version.get(..end).unwrap_or_default().trim_end_matches('.');
        let dots = number.matches('.').count();
        // Three dots are an address, one dot without a name is any number.
        let is_version = dots == 2
            || dots == 1
                && (NAMES.contains(&last)
                    || !named.is_empty() && matches!(last, "->" | "→" | "to"));
        if !is_version || !number.starts_with(|c: char| c.is_ascii_digit()) {
            if !matches!(word, "version" | "release" | "open") {
                last = word;
            }
            continue;
        }
        const JOINS: [&str; 11] =
            ["->", "→", "of", "with", "in", "to", "than", "from", "and", "or", "vs"];
        let name = match () {
            () if NAMES.contains(&last) => last,
            () if JOINS.contains(&last) => named,
            () => "",
        };
        named = name;
        match seen.get(name) {
            Some(known) if *known != number => return true,
            _ => seen.insert(name, number),
        };
    }
    false
}

fn floor_char(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> PasteWords {
        PasteWords::new(
            &PasteContext { prose: text.to_lowercase(), ..PasteContext::default() },
            None,
            false,
        )
    }

    #[test]
    fn patterns_have_alternatives_and_exclusions() {
        let found = words("In a VM (KVM),\nP2P is off.");
        assert!(found.fits(" vm "));
        assert!(found.fits("docker| kvm  & p2p") == found.fits("docker|p2p & !acs"));
        assert!(found.fits("docker| kvm |x & p2p is off "));
        assert!(!found.fits(" vm & docker") && !found.fits("!p2p"));
        assert!(!words("vmstat").fits(" vm "));
    }

    #[test]
    fn two_versions_of_one_library_differ_from_a_list_of_versions() {
        assert!(names_two_versions("with nccl 2.5.6 it is 9 gb/s, with nccl 2.7.8 only 6"));
        assert!(names_two_versions("- v2.9.9-1: 53.95\n- v2.10.3-1: 57.06"));
        assert!(names_two_versions("open mpi 2.0.2 has twice the latency of 1.10.2"));
        assert!(!names_two_versions(
            "nccl 2.7.8, cuda 12.2, driver 550.54.14, 10.0.0.15 and 10.0.0.16"
        ));
    }

    #[test]
    fn every_row_of_the_catalogue_has_a_known_cause() {
        for row in CATALOGUE {
            assert!(described(row).is_some(), "{}: {}", row.id, row.pattern);
        }
    }

    #[test]
    fn every_pattern_is_in_normal_form() {
        let cues = CAUSE_CUES.iter().chain(FIELD_CUES).chain(CATALOGUE).map(|cue| cue.pattern);
        let messages = MESSAGE_CAUSES.iter().chain(LIBRARY_MESSAGES).chain(CATALOGUE_CAUSES);
        for pattern in cues.chain(messages.map(|message| message.pattern)) {
            for word in
                pattern.split(" & ").flat_map(|part| part.trim_start_matches('!').split('|'))
            {
                // A word that the normal form cannot contain would never fit.
                let normal = words(&format!("a{word}b")).text;
                assert!(!word.trim().is_empty() && normal.contains(word), "{pattern:?}: {word:?}");
            }
        }
    }
}
