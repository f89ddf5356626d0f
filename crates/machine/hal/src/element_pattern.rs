//! Patterns whose reductions are exact in every element type, and are compared byte by byte.
//!
//! Of each element two ranks contribute small numbers, and the others what changes nothing. Integers
//! up to 8 and powers of two up to 16 are exact in every type, as are all partial sums and products;
//! averages divide by the number of ranks without a rest. Sum, product, least and greatest of two
//! such numbers differ, so a library that computes another operation, or on another type, is seen.
//!
//! A pattern is one seed, which memory of every kind is filled and verified with.

use pathline_schema::{ElementReduction, ElementType, ReduceOp};

use crate::random_word::random_word;

/// Upper 40 bits of the seed of such a pattern. A random seed has them once in 10^12; memory is
/// filled and verified with the same seed, so even that would be no error.
const MARK: u64 = 0x65_6c65_6d73;
const MARK_SHIFT: u32 = 24;
const ROLE_SHIFT: u32 = 22;
const OP_SHIFT: u32 = 19;
const TYPE_SHIFT: u32 = 15;
const RANKS_SHIFT: u32 = 8;
/// The most ranks whose average is known: 2 x 32 + 2 and 64 + 2 fit 8-bit integers.
const MAX_AVERAGED: usize = 64;

/// Whose elements a pattern has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementRole {
    /// A rank that changes nothing: the neutral element.
    Neutral,
    /// The first of the two ranks that contribute.
    First,
    /// The second.
    Second,
    /// The result.
    Result,
}

/// Elements of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementPattern {
    reduced: ElementReduction,
    role: ElementRole,
    /// Members of the group, of averages only.
    ranks: u8,
    /// Distinguishes parts and flows.
    salt: u8,
}

impl ElementPattern {
    /// Elements of a reduction over `ranks`. Seeds of different `salt` are likely to differ.
    ///
    /// # Errors
    /// The average has no exact result: of floating point over a number of ranks that is no power of
    /// two, or over more than 64.
    pub fn new(
        reduced: ElementReduction,
        role: ElementRole,
        ranks: usize,
        salt: u64,
    ) -> Result<Self, &'static str> {
        let average = reduced.by == ReduceOp::Avg;
        if average && ranks > MAX_AVERAGED {
            return Err("averages are verified over up to 64 ranks");
        }
        if average && reduced.element.float_format().is_some() && !ranks.is_power_of_two() {
            return Err(
                "an average over a number of ranks that is no power of two is not exact, so \
                        that nothing can be compared",
            );
        }
        let ranks = if average { ranks as u8 } else { 0 };
        Ok(Self { reduced, role, ranks, salt: random_word(salt | 1, salt) as u8 })
    }

    /// The seed to fill and verify memory with.
    pub const fn seed(self) -> u64 {
        MARK << MARK_SHIFT
            | (self.role as u64) << ROLE_SHIFT
            | (self.reduced.by as u64) << OP_SHIFT
            | (self.reduced.element as u64) << TYPE_SHIFT
            | (self.ranks as u64) << RANKS_SHIFT
            | self.salt as u64
    }

    /// The pattern that a seed stands for; `None` of the seed of a random pattern.
    #[inline]
    pub const fn from_seed(seed: u64) -> Option<Self> {
        if seed >> MARK_SHIFT != MARK {
            return None;
        }
        let role = match seed >> ROLE_SHIFT & 3 {
            0 => ElementRole::Neutral,
            1 => ElementRole::First,
            2 => ElementRole::Second,
            _ => ElementRole::Result,
        };
        let (by, element) = (seed >> OP_SHIFT & 7, seed >> TYPE_SHIFT & 15);
        if by >= ReduceOp::ALL.len() as u64 || element >= ElementType::ALL.len() as u64 {
            return None;
        }
        let (by, element) = (ReduceOp::ALL[by as usize], ElementType::ALL[element as usize]);
        let reduced = ElementReduction { element, by };
        let (ranks, salt) = ((seed >> RANKS_SHIFT & 127) as u8, seed as u8);
        Some(Self { reduced, role, ranks, salt })
    }

    /// The 8-byte word at `index`: its elements, the lowest first.
    pub const fn word(self, index: u64) -> u64 {
        let bits = 8 * self.reduced.element.bytes() as u32;
        let random = random_word(self.salt as u64 | 0x100, index);
        let (mut word, mut at) = (0, 0);
        while at < 64 {
            let (value, shift) = self.value((random >> at & 0xff) as i64);
            word |= encode(self.reduced.element, value, shift) << at;
            at += bits;
        }
        word
    }

    /// An element, as an integer over a power of two. Both are made of 6 random bits.
    const fn value(self, random: i64) -> (i64, u32) {
        let ElementReduction { element, by } = self.reduced;
        let signed = element.is_signed();
        let sign_a = if signed && random & 16 != 0 { -1 } else { 1 };
        let sign_b = if signed && random & 32 != 0 { -1 } else { 1 };
        let (small_a, small_b) = (sign_a * (1 + (random & 3)), sign_b * (1 + (random >> 2 & 3)));
        let ranks = self.ranks as i64;
        let (first, second, neutral, result, shift) = match by {
            ReduceOp::Sum => (small_a, small_b, 0, small_a + small_b, 0),
            ReduceOp::Prod => {
                let (a, b) = (sign_a * (2 << (random & 1)), sign_b * (2 << (random >> 1 & 1)));
                (a, b, 1, a * b, 0)
            }
            ReduceOp::Min => (small_a, small_b, 8, min(small_a, small_b), 0),
            ReduceOp::Max => {
                let least = if signed { -8 } else { 0 };
                (small_a, small_b, least, -min(-small_a, -small_b), 0)
            }
            ReduceOp::Avg if element.float_format().is_some() => {
                let shift = if self.ranks == 0 { 0 } else { self.ranks.ilog2() };
                (small_a, small_b, 0, small_a + small_b, shift)
            }
            ReduceOp::Avg => {
                let result = sign_a * (if ranks <= 32 { 1 + (random & 1) } else { 1 });
                let second = sign_b * (1 + (random >> 2 & 1));
                (result * ranks - second, second, 0, result, 0)
            }
        };
        match self.role {
            ElementRole::Neutral => (neutral, 0),
            ElementRole::First => (first, 0),
            ElementRole::Second => (second, 0),
            ElementRole::Result => (result, shift),
        }
    }
}

const fn min(a: i64, b: i64) -> i64 {
    if a < b { a } else { b }
}

/// The bits of `value` / 2^`shift`, which the type has exactly.
const fn encode(element: ElementType, value: i64, shift: u32) -> u64 {
    let bits = 8 * element.bytes() as u32;
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let Some((mantissa, bias)) = element.float_format() else {
        return value.cast_unsigned() & mask;
    };
    if value == 0 {
        return 0;
    }
    let size = value.unsigned_abs();
    let top = size.ilog2();
    let field = if top <= mantissa { size << (mantissa - top) } else { size >> (top - mantissa) };
    let sign = if value < 0 { 1 << (bits - 1) } else { 0 };
    sign | ((top + bias - shift) as u64) << mantissa | (field & ((1 << mantissa) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of an element's bits by the definition of its format.
    fn decode(element: ElementType, bits: u64) -> f64 {
        let width = 8 * element.bytes() as u32;
        let Some((mantissa, bias)) = element.float_format() else {
            let up = 64 - width;
            let signed = (bits << up).cast_signed() >> up;
            return if element.is_signed() { signed as f64 } else { bits as f64 };
        };
        let sign = if bits >> (width - 1) == 1 { -1.0 } else { 1.0 };
        let fields = bits & !(1 << (width - 1));
        if fields == 0 {
            return 0.0 * sign;
        }
        let exponent = (fields >> mantissa) as i32 - bias as i32;
        let fraction =
            (fields & ((1 << mantissa) - 1)) as f64 / f64::from(1u32 << mantissa.min(31));
        let fraction =
            if mantissa > 31 { fraction / f64::from(1u32 << (mantissa - 31)) } else { fraction };
        sign * (1.0 + fraction) * 2f64.powi(exponent)
    }

    fn elements(element: ElementType, pattern: ElementPattern) -> Vec<f64> {
        let (width, words) = (8 * element.bytes() as u32, 0..40);
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        let of_word =
            |word: u64| (0..64 / width).map(move |at| decode(element, word >> (at * width) & mask));
        words.flat_map(|index| of_word(pattern.word(index))).collect()
    }

    fn reduce(by: ReduceOp, all: &[f64]) -> f64 {
        match by {
            ReduceOp::Sum => all.iter().sum(),
            ReduceOp::Prod => all.iter().product(),
            ReduceOp::Min => all.iter().copied().fold(f64::INFINITY, f64::min),
            ReduceOp::Max => all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ReduceOp::Avg => all.iter().sum::<f64>() / all.len() as f64,
        }
    }

    #[test]
    fn every_reduction_of_every_type_gives_the_result() {
        for &element in ElementType::ALL {
            for &by in ReduceOp::ALL {
                for ranks in [2, 8, 32, 64] {
                    let reduced = ElementReduction { element, by };
                    let of = |role| {
                        let pattern = ElementPattern::new(reduced, role, ranks, 7).unwrap();
                        assert_eq!(ElementPattern::from_seed(pattern.seed()), Some(pattern));
                        elements(element, pattern)
                    };
                    let [neutral, first, second, result] = [
                        ElementRole::Neutral,
                        ElementRole::First,
                        ElementRole::Second,
                        ElementRole::Result,
                    ]
                    .map(of);
                    for at in 0..result.len() {
                        let mut all = vec![neutral[at]; ranks];
                        (all[0], all[ranks - 1]) = (first[at], second[at]);
                        assert_eq!(reduce(by, &all), result[at], "{element} {by} {ranks}: {all:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn another_operation_has_another_result() {
        for &element in ElementType::ALL {
            let results = ReduceOp::ALL.iter().map(|&by| {
                let reduced = ElementReduction { element, by };
                let of =
                    |role| elements(element, ElementPattern::new(reduced, role, 4, 7).unwrap());
                (by, [ElementRole::First, ElementRole::Second, ElementRole::Result].map(of))
            });
            for (by, [first, second, result]) in results {
                for &other in ReduceOp::ALL.iter().filter(|&&other| other != by) {
                    let wrong = |at: usize| {
                        let neutral = ElementPattern::new(
                            ElementReduction { element, by },
                            ElementRole::Neutral,
                            4,
                            7,
                        );
                        let neutral = elements(element, neutral.unwrap())[at];
                        reduce(other, &[first[at], neutral, second[at], neutral]) != result[at]
                    };
                    assert!((0..result.len()).any(wrong), "{element}: {other} passes for {by}");
                }
            }
        }
    }

    #[test]
    fn formats_are_those_of_the_standards() {
        // 1.5 = 2^0 x 1.1b; -4 = -(2^2).
        assert_eq!(encode(ElementType::Float, 3, 1), u64::from(1.5f32.to_bits()));
        assert_eq!(encode(ElementType::Double, -4, 0), (-4f64).to_bits());
        assert_eq!(encode(ElementType::Bf16, 3, 1), u64::from(1.5f32.to_bits() >> 16));
        assert_eq!(encode(ElementType::Half, 3, 1), 0x3e00);
        assert_eq!(encode(ElementType::Fp8E4m3, 3, 1), 0x3c);
        assert_eq!(encode(ElementType::Fp8E5m2, -16, 0), 0xcc);
        assert_eq!(encode(ElementType::Int8, -2, 0), 0xfe);
    }

    /// The checksum is that of the same words by `kernel::PATTERN`, compiled as C++.
    #[test]
    fn kernels_write_the_same_words() {
        let mut hash = 0u64;
        for &element in ElementType::ALL {
            for &by in ReduceOp::ALL {
                for role in [
                    ElementRole::Neutral,
                    ElementRole::First,
                    ElementRole::Second,
                    ElementRole::Result,
                ] {
                    let ranks = if by == ReduceOp::Avg { 8 } else { 0 };
                    let reduced = ElementReduction { element, by };
                    let pattern = ElementPattern { reduced, role, ranks, salt: 77 };
                    for index in 0..8 {
                        let word = crate::pattern::word(pattern.seed(), index);
                        hash = hash.wrapping_mul(0x0100_0000_01b3) ^ word;
                    }
                }
            }
        }
        assert_eq!(hash, 0x6af91e6c7c546b4a);
    }

    #[test]
    fn averages_that_are_not_exact_are_refused() {
        let avg = |element| ElementReduction { element, by: ReduceOp::Avg };
        let new = |element, ranks| ElementPattern::new(avg(element), ElementRole::First, ranks, 0);
        assert!(new(ElementType::Float, 3).is_err_and(|why| why.contains("no power of two")));
        assert!(new(ElementType::Int8, 3).is_ok());
        assert!(new(ElementType::Int8, 65).is_err_and(|why| why.contains("up to 64")));
        assert_eq!(ElementPattern::from_seed(0x0123_4567_89ab_cdef), None);
    }
}
