//! Patterns that choose cases.

use std::fmt;
use std::str::FromStr;

use crate::case_defaults::space_arrows;
use crate::{Case, Flow, ParseError};

/// Chooses cases: either one exact case text, or a flow with wildcards and an optional tail.
///
/// `gpu0.* > gpu*.vram by dma` matches every case that has a timed flow from any memory of GPU 0
/// to device memory of any GPU by the copy engine, of any size. `*` stands for any text, `?` for
/// one character. A place without a rank means any rank; a mover without `@UNIT` or `[...]` means
/// any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CasePattern {
    /// Exactly this case, whether or not a suite lists it.
    Exact(Case),
    /// Every case with such a timed flow.
    Flow {
        /// Wildcard text of the source place.
        src: String,
        /// Wildcard text of the destination place.
        dst: String,
        /// Wildcard text of the mover.
        by: String,
        /// Wildcard text of the size.
        bytes: String,
    },
}

impl CasePattern {
    /// Whether it chooses `case`.
    pub fn matches(&self, case: &Case) -> bool {
        match self {
            Self::Exact(exact) => exact == case,
            Self::Flow { src, dst, by, bytes } => case.timed.iter().any(|flow: &Flow| {
                place_matches(src, &flow.src.to_string())
                    && place_matches(dst, &flow.dst.to_string())
                    && mover_matches(by, &flow.by.to_string())
                    && glob(bytes, &flow.bytes.to_string())
            }),
        }
    }
}

fn place_matches(pattern: &str, text: &str) -> bool {
    let unranked = text.split_once('.').map_or(text, |(_, rest)| rest);
    // A unit alone stands for all of its memories.
    let unit = unranked.split('.').next().unwrap_or(unranked);
    glob(pattern, text) || glob(pattern, unranked) || glob(pattern, unit)
}

fn mover_matches(pattern: &str, text: &str) -> bool {
    let without_args = text.split('[').next().unwrap_or(text);
    let kind = text.split('@').next().unwrap_or(text);
    glob(pattern, text) || glob(pattern, without_args) || glob(pattern, kind)
}

/// Matches `*` and `?`; linear in text x pattern, no recursion.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((star_p, star_t)) = star else { return false };
                star = Some((star_p, star_t + 1));
                p = star_p + 1;
                t = star_t + 1;
            }
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

impl fmt::Display for CasePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(case) => case.fmt(f),
            Self::Flow { src, dst, by, bytes } => write!(f, "{src} > {dst} by {by} x {bytes}"),
        }
    }
}

impl FromStr for CasePattern {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let spaced = space_arrows(s);
        let words: Vec<&str> = spaced.split_whitespace().take(16).collect();
        // A text without wildcards is a case, unless it names a place alone.
        if words.len() != 1 && !s.contains(['*', '?']) {
            return Case::parse_with_defaults(s).map(Self::Exact);
        }
        let bad = |expected: &str| ParseError::new("case or pattern", s, expected);
        let (src, dst, by, bytes) = match words.as_slice() {
            [src] => (*src, "*", "*", "*"),
            [src, ">", dst] => (*src, *dst, "*", "*"),
            [src, ">", dst, "x", bytes] => (*src, *dst, "*", *bytes),
            [src, ">", dst, "by", by] => (*src, *dst, *by, "*"),
            [src, ">", dst, "by", by, "x", bytes] => (*src, *dst, *by, *bytes),
            _ => return Err(bad("SRC [> DST [by MOVER] [x SIZE]] with * and ?, or a case")),
        };
        let own = str::to_owned;
        Ok(Self::Flow { src: own(src), dst: own(dst), by: own(by), bytes: own(bytes) })
    }
}
