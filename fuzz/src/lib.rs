//! Mutated inputs for every parser and for the C interface, on the stable toolchain and with no tool installed.
//!
//! A [`Target`] is a parser with seeds and words of its language; its function must neither panic
//! nor hang nor take more than the memory cap, and checks what holds for every input: that what
//! was read can be written and read again. Inputs that bring a new kind of answer (a new error
//! text, numbers and quotations aside) are kept and mutated further, which stands in for the
//! coverage that an instrumented build would report.

// The library of this crate is named after its file, libpathline.so.
extern crate pathline as pathline_capi;

mod c_calls;
mod c_runtime;
mod c_seeds;
mod jobs;
mod metrics;
mod mutate;
mod pastes;
mod targets;
mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fastrand::Rng;

pub use targets::{TARGETS, Target};

/// The largest input that is made.
pub const MAX_INPUT: usize = 1 << 20;
/// The most inputs kept for further mutation.
const MAX_CORPUS: usize = 4000;
/// Of this many inputs one is of any size up to [`MAX_INPUT`], the others are of this size at most: time goes
/// with the size, and what a parser does with a long list it mostly does with a short one.
const LARGE_EVERY: u64 = 512;
const USUAL_INPUT: usize = 4096;

/// Makes inputs for one target.
pub struct Fuzzer {
    target: &'static Target,
    rng: Rng,
    corpus: Vec<Vec<u8>>,
    /// Kinds of answers, with the place in the corpus of the shortest input that brought each.
    kinds: BTreeMap<String, Option<usize>>,
    made: u64,
}

impl Fuzzer {
    /// Starts from the target's seeds and kept inputs; `seed` decides all that follows.
    pub fn new(target: &'static Target, seed: u64) -> Self {
        let mut corpus: Vec<Vec<u8>> = (target.seeds)();
        corpus.extend(kept(target));
        corpus.push(Vec::new());
        Self { target, rng: Rng::with_seed(seed), corpus, kinds: BTreeMap::new(), made: 0 }
    }

    /// The inputs it started from and those that brought something new.
    pub fn corpus(&self) -> &[Vec<u8>] {
        &self.corpus
    }

    /// How many kinds of answers there were.
    pub fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// The next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        let at = self.rng.usize(..self.corpus.len());
        let other = self.rng.usize(..self.corpus.len());
        let mut input = self.corpus[at].clone();
        self.made += 1;
        let is_large = self.made.is_multiple_of(LARGE_EVERY);
        // An input that was long from the start keeps its length.
        let most = if is_large { MAX_INPUT } else { USUAL_INPUT.max(input.len()) };
        mutate::mutate(&mut self.rng, &mut input, &self.corpus[other], self.target.words, most);
        input.truncate(most);
        input
    }

    /// Runs the target on an input and keeps it if the answer is of a new kind, or in place of a longer
    /// input with an answer of the same kind.
    pub fn run(&mut self, input: Vec<u8>) {
        let kind = kind(&(self.target.run)(&input));
        match self.kinds.get(&kind) {
            None if self.corpus.len() < MAX_CORPUS => {
                self.kinds.insert(kind, Some(self.corpus.len()));
                self.corpus.push(input);
            }
            None => {
                self.kinds.insert(kind, None);
            }
            Some(Some(at)) => {
                if let Some(known) = self.corpus.get_mut(*at).filter(|k| k.len() > input.len()) {
                    *known = input;
                }
            }
            Some(None) => {}
        }
    }
}

/// An answer without its numbers and quotations (elements of XML are some). What is quoted may hold
/// quotes itself, so all between the first and the last one goes.
fn kind(answer: &str) -> String {
    let is_quote = |c: char| "'\"`<>".contains(c);
    let rest = match (answer.find(is_quote), answer.rfind(is_quote)) {
        (Some(first), Some(last)) => [&answer[..first], &answer[last..]].concat(),
        _ => answer.to_owned(),
    };
    rest.chars().filter(|c| c.is_ascii() && !c.is_ascii_digit()).take(80).collect()
}

/// Inputs that once broke the target: `fuzz/kept/TARGET/*`.
pub fn kept(target: &Target) -> Vec<Vec<u8>> {
    files(&root().join("fuzz/kept").join(target.name), "")
}

/// The folder of the workspace.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Contents of the files of a folder whose name ends so, in the order of their names; none if
/// there is no such folder.
pub(crate) fn files(folder: &Path, end: &str) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .iter()
        .filter(|path| path.to_string_lossy().ends_with(end))
        .filter_map(|path| std::fs::read(path).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_leave_out_what_varies() {
        assert_eq!(kind("line 12: 'abc' is no size"), kind("line 7: 'x' is no size"));
        assert_ne!(kind("line 12: 'abc' is no size"), kind("line 12: 'abc' is no unit"));
    }

    #[test]
    fn the_same_seed_makes_the_same_inputs() {
        let make = |seed| {
            let mut fuzzer = Fuzzer::new(&TARGETS[0], seed);
            (0..50)
                .map(|_| {
                    let input = fuzzer.next_input();
                    fuzzer.run(input.clone());
                    input
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(make(3), make(3));
        assert_ne!(make(3), make(4));
    }
}
