//! What the words of a question say for its causes by count: terms of public threads whose resolution is known.
//!
//! A cause has the terms that its threads use more often than others, each with the logarithm of how much more
//! often (naive Bayes with shrinkage). That speaks for causes that no cue, message or figure names, and against
//! a cue that fits by accident. `data/word-weights.txt` has the weights: [`learn`] writes them from threads, and
//! `docs/explain.md` says how often they are right on threads that they were not learnt from.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::OnceLock;

use crate::score::LikelyCause;

/// Weights by cause, a line each: `cause term weight term weight ...`.
const WEIGHTS: &str = include_str!("../data/word-weights.txt");
/// Occurrences that a term is assumed to have in a cause besides those counted, at its share of all threads.
const SHRINKAGE: f64 = 4.0;
/// Least number of threads with a term that says something, and the greatest share of all threads.
const LEAST_THREADS: usize = 2;
const MOST_THREADS: f64 = 0.35;
/// Least and greatest weight of a term: factors of 2.7 and 12.
const LEAST_WEIGHT: f64 = 1.0;
const MOST_WEIGHT: f64 = 2.5;
/// Terms of a cause, by the sum of what they say in its threads.
const MOST_TERMS: usize = 80;
/// Terms of a text depend on each other: this share of each counts.
const DEPENDENCE: f64 = 0.22;
/// Share of the logarithm of the rules' posterior that counts next to the words. Chosen with [`DEPENDENCE`] on two
/// halves of 511 threads, each judged by the weights of the other: so shares above 0.9 are right nine times of ten.
const RULES: f64 = 0.45;
/// Posterior of a cause that the rules do not consider.
const UNCONSIDERED: f64 = 1e-4;
/// Causes that words add to those of the rules: a paste may have thousands of answers.
const MOST_ADDED: usize = 8;
/// Bytes of a text that are read.
const MOST_BYTES: usize = 8 << 10;
/// Longest term that is a word, bytes.
const LONGEST: usize = 30;

/// A cause by what the words say.
pub(crate) struct WordOpinion {
    pub(crate) id: &'static str,
    /// Logarithm of a likelihood ratio, above 0.
    pub(crate) weight: f64,
}

/// Terms of a text: its words without numbers, and pairs of neighbours.
pub fn terms(text: &str) -> BTreeSet<String> {
    let end = (0..=MOST_BYTES.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    let text = text.get(..end.unwrap_or(0)).unwrap_or_default().to_lowercase();
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.#/%+-".contains(c);
    let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit() || "_.%+-".contains(c));
    let mut words: Vec<&str> = Vec::new();
    for word in text.split(|c: char| !is_part(c)) {
        let word = word.trim_matches(['.', '-', '/', '+', '#']);
        if word.len() > LONGEST || word.starts_with("0x") {
            continue;
        }
        words.extend(word.split(['/', '.']).filter(|part| !is_number(part)));
    }
    let pairs = words.iter().zip(words.iter().skip(1)).map(|(a, b)| format!("{a}_{b}"));
    words.iter().map(|word| (*word).to_owned()).chain(pairs).collect()
}

/// Weights learnt from threads: terms and causes of each, the likeliest cause first; others count a half.
/// The text is that of `data/word-weights.txt`.
pub fn learn(threads: &[(BTreeSet<String>, Vec<String>)]) -> String {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    let mut causes: BTreeMap<&str, (f64, BTreeMap<&str, f64>)> = BTreeMap::new();
    for (terms, of) in threads {
        for term in terms {
            *all.entry(term).or_default() += 1;
        }
        for (nth, cause) in of.iter().enumerate() {
            let count = if nth == 0 { 1.0 } else { 0.5 };
            let (total, counts) = causes.entry(cause).or_default();
            *total += count;
            for term in terms {
                *counts.entry(term).or_default() += count;
            }
        }
    }
    let threads = threads.len() as f64;
    let mut text = String::new();
    for (cause, (total, counts)) in causes {
        let mut best: Vec<(f64, &str, f64)> = counts
            .into_iter()
            .filter_map(|(term, count)| {
                let of_all = all.get(term).copied().unwrap_or(0);
                let share = of_all as f64 / threads;
                let within = (count + SHRINKAGE * share) / (total + SHRINKAGE);
                let weight = (within / share).ln();
                let says =
                    of_all >= LEAST_THREADS && share <= MOST_THREADS && weight > LEAST_WEIGHT;
                says.then_some((count * weight, term, weight.min(MOST_WEIGHT)))
            })
            .collect();
        best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        best.truncate(MOST_TERMS);
        best.sort_by(|a, b| a.1.cmp(b.1));
        text.push_str(cause);
        for (_, term, weight) in best {
            let _ = write!(text, " {term} {weight:.1}");
        }
        text.push('\n');
    }
    text
}

/// Causes of a term with their weights.
type TermWeights = HashMap<&'static str, Vec<(&'static str, f64)>>;

/// What the words of a text say for each cause that they speak for, the strongest first.
pub(crate) fn opinions(text: &str) -> Vec<WordOpinion> {
    static TABLE: OnceLock<TermWeights> = OnceLock::new();
    let table = TABLE.get_or_init(|| read(WEIGHTS));
    let mut sums: BTreeMap<&'static str, f64> = BTreeMap::new();
    for term in terms(text) {
        for &(id, weight) in table.get(term.as_str()).into_iter().flatten() {
            *sums.entry(id).or_default() += DEPENDENCE * weight;
        }
    }
    let mut found: Vec<WordOpinion> =
        sums.into_iter().map(|(id, weight)| WordOpinion { id, weight }).collect();
    found.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    found
}

fn read(table: &'static str) -> TermWeights {
    let mut found = TermWeights::new();
    for line in table.lines() {
        let mut parts = line.split(' ');
        let Some(cause) = parts.next() else { continue };
        while let (Some(term), Some(weight)) = (parts.next(), parts.next()) {
            let Ok(weight) = weight.parse() else { continue };
            found.entry(term).or_default().push((cause, weight));
        }
    }
    found
}

/// Pools what rules found with what words say, logarithmically. `cause` makes a cause that the rules did not
/// consider; none of an unknown name. No share exceeds `ceiling`.
pub(crate) fn pool(
    causes: Vec<LikelyCause>,
    opinions: &[WordOpinion],
    cause: impl Fn(&str) -> Option<LikelyCause>,
    ceiling: f64,
) -> Vec<LikelyCause> {
    if opinions.is_empty() || causes.is_empty() {
        return causes;
    }
    let mut all = causes;
    for opinion in opinions.iter().take(MOST_ADDED) {
        if all.iter().all(|known| known.id != opinion.id) {
            all.extend(cause(opinion.id));
        }
    }
    let score = |cause: &LikelyCause| {
        let words = opinions.iter().find(|opinion| opinion.id == cause.id);
        RULES * cause.share.max(UNCONSIDERED).ln() + words.map_or(0.0, |opinion| opinion.weight)
    };
    let scores: Vec<f64> = all.iter().map(score).collect();
    let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|score| (score - best).exp()).sum();
    for (cause, score) in all.iter_mut().zip(scores) {
        cause.share = ((score - best).exp() / total).min(ceiling);
    }
    all.sort_by(|a, b| b.share.total_cmp(&a.share));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::AnswerClass;

    #[test]
    fn words_and_pairs_are_terms() {
        let found = terms("NCCL 2.18 hangs: /dev/shm is 64M, 0xffff");
        let expected = [
            "64m",
            "dev",
            "dev_shm",
            "hangs",
            "hangs_dev",
            "is",
            "is_64m",
            "nccl",
            "nccl_hangs",
            "shm",
            "shm_is",
        ];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn rare_terms_of_a_cause_weigh_more() {
        let thread = |words: &str, cause: &str| (terms(words), vec![cause.to_owned()]);
        // `dimm` is in 2 of 12 threads, both of one cause: (2 + 4 x 2/12) / (2 + 4) = 0.444 within the cause is
        // 2.67 times its share of all, ln 2.67 = 0.98: less than 1, no term. In 2 of 22: 0.394 / 0.0909 = 4.33,
        // ln 4.33 = 1.47.
        let others = |n| (0..n).map(|_| thread("other", "tcp"));
        let few: Vec<_> = [thread("dimm", "slots"), thread("dimm", "slots")]
            .into_iter()
            .chain(others(10))
            .collect();
        assert_eq!(learn(&few), "slots\ntcp\n");
        let many: Vec<_> = [thread("dimm", "slots"), thread("dimm", "slots")]
            .into_iter()
            .chain(others(20))
            .collect();
        assert_eq!(learn(&many), "slots dimm 1.5\ntcp\n");
    }

    #[test]
    fn opinions_are_pooled_with_shares() {
        let cause = |id: &'static str, share| LikelyCause {
            id,
            class: AnswerClass::SetUpSo,
            share,
            text: String::new(),
            predicted: None,
            check: String::new(),
        };
        let known = vec![cause("tcp", 0.8), cause("pageable", 0.2)];
        let opinions = [WordOpinion { id: "page-cache", weight: 5.0 }];
        let make = |id: &str| (id == "page-cache").then(|| cause("page-cache", 0.0));
        let pooled = pool(known, &opinions, make, 0.95);
        // 0.8^0.45 = 0.904, 0.2^0.45 = 0.485, 1e-4^0.45 x e^5 = 0.0158 x 148 = 2.352; of 3.741: 0.629, 0.242, 0.130.
        let shares: Vec<_> = pooled.iter().map(|c| (c.id, (c.share * 1e3).round())).collect();
        assert_eq!(shares, [("page-cache", 629.0), ("tcp", 242.0), ("pageable", 130.0)]);
    }

    #[test]
    fn the_table_is_read_whole() {
        let table = read(WEIGHTS);
        assert!(table.len() > 1000, "{}", table.len());
        let weights = || table.values().flatten().map(|(_, weight)| *weight);
        assert!(weights().all(|weight| (LEAST_WEIGHT..=MOST_WEIGHT).contains(&weight)));
    }
}
