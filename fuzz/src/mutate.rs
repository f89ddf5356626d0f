//! Ways to spoil an input.

use fastrand::Rng;

/// Numbers at which parsers break.
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "1",
    "00",
    "255",
    "256",
    "65535",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e999",
    "-0.0",
    "0.1",
    "NaN",
    "inf",
    "0x",
    "0xffffffffffffffff",
    "99999999999999999999999999999999",
];

/// Spoils an input one to six times; nothing makes it longer than `most`.
pub(crate) fn mutate(
    rng: &mut Rng,
    input: &mut Vec<u8>,
    other: &[u8],
    words: &[&str],
    most: usize,
) {
    for _ in 0..rng.usize(1..=6) {
        once(rng, input, other, words, most);
    }
}

fn once(rng: &mut Rng, input: &mut Vec<u8>, other: &[u8], words: &[&str], most: usize) {
    let (from, to) = range(rng, input.len());
    match rng.u32(..12) {
        0 => {
            if let Some(byte) = input.get_mut(from) {
                *byte ^= 1 << rng.u32(..8);
            }
        }
        1 => input.insert(from, rng.u8(..)),
        2 => {
            input.drain(from..to);
        }
        3 => {
            let copy = input[from..to].to_vec();
            insert(input, from, &copy, most);
        }
        4 => input.truncate(from),
        5 => {
            let (a, b) = range(rng, other.len());
            insert(input, from, &other[a..b], most);
        }
        6 | 7 => insert(input, from, pick(rng, words).as_bytes(), most),
        8 | 9 => number(rng, input),
        10 => {
            // The same many times: long lists, deep nesting.
            let piece = if rng.bool() {
                pick(rng, words).as_bytes().to_vec()
            } else {
                input[from..to].to_vec()
            };
            let times = 1 << rng.u32(..14);
            if piece.len() * times <= most {
                insert(input, from, &piece.repeat(times), most);
            }
        }
        _ => swap_lines(rng, input),
    }
}

fn pick<'a>(rng: &mut Rng, words: &[&'a str]) -> &'a str {
    if words.is_empty() { "" } else { words[rng.usize(..words.len())] }
}

/// A range within a length, mostly a short one.
fn range(rng: &mut Rng, len: usize) -> (usize, usize) {
    let from = rng.usize(..=len);
    let most = if rng.u32(..4) == 0 { len - from } else { (len - from).min(16) };
    (from, from + rng.usize(..=most))
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8], most: usize) {
    if input.len() + piece.len() <= most {
        input.splice(at..at, piece.iter().copied());
    }
}

/// Puts a remarkable number in the place of one.
fn number(rng: &mut Rng, input: &mut Vec<u8>) {
    let start = rng.usize(..=input.len());
    let digit = |b: &u8| b.is_ascii_digit();
    let Some(from) = input[start..].iter().position(digit).map(|at| start + at) else { return };
    let len = input[from..].iter().take_while(|b| digit(b)).count();
    let new = pick(rng, NUMBERS).as_bytes();
    input.splice(from..from + len, new.iter().copied());
}

fn swap_lines(rng: &mut Rng, input: &mut Vec<u8>) {
    let mut lines: Vec<&[u8]> = input.split_inclusive(|&b| b == b'\n').collect();
    if lines.len() > 1 {
        let (a, b) = (rng.usize(..lines.len()), rng.usize(..lines.len()));
        lines.swap(a, b);
        *input = lines.concat();
    }
}
