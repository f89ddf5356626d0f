//! Case texts with parts left out: `gpu0 > gpu1 by dma` stands for `gpu0.vram > gpu1.vram by dma@gpu0 x
//! 256MiB`.

use crate::{Bytes, Case, Collective, ParseError, did_you_mean};

/// Size of a flow that names none.
const SIZE: &str = "256MiB";

/// Kernel of a kernel flow that names none: copies with 16 B a thread.
const KERNEL: &str = "copy-w16-u4-b256-g2sm";

/// CPU loop of a CPU flow that names none.
const CPU: &str = "copy-memcpy-t1";

/// Movers that a text may name without their unit.
const MOVERS: [&str; 8] = ["dma", "blit", "kernel", "cpu", "migrate", "mpi", "ccl", "ucx"];

/// Operation of a message that names none: as OSU's bandwidth test, 64 in flight.
const MESSAGE: &str = "send-w64";

impl Case {
    /// Parses a case text as people write it. Flows may leave out memory kinds (`vram` of a GPU, `pinned` of a
    /// NUMA domain), the mover or its unit and variant, and the size (256 MiB); `->`, `→` and `to` stand for
    /// `>`, units may be in capitals, and a blank may part a size from its unit. Between two ranks the mover is `mpi`;
    /// messages whose ends name no rank go from rank 0 to rank 1.
    ///
    /// # Errors
    /// The completed text is no case.
    pub fn parse_with_defaults(text: &str) -> Result<Self, ParseError> {
        if let Ok(case) = text.parse() {
            return Ok(case);
        }
        let spaced = space_arrows(text);
        let words: Vec<String> = spaced.split_whitespace().take(65_536).map(usual_word).collect();
        let words = join_sizes(&words);
        let mut completed: Vec<String> = Vec::new();
        for flow in words.split_inclusive(|word| is_joint(word)) {
            let (joint, flow) = match flow.split_last() {
                Some((last, flow)) if is_joint(last) => (Some(last.clone()), flow),
                _ => (None, flow),
            };
            let flow: Vec<&str> = flow.iter().map(String::as_str).collect();
            completed.push(complete_flow(&flow, text)?);
            completed.extend(joint);
        }
        completed.join(" ").parse()
    }
}

/// `gpu0>gpu1`, `gpu0->gpu1` and `gpu0→gpu1` as `gpu0 > gpu1`.
pub(crate) fn space_arrows(text: &str) -> String {
    text.replace("->", ">").replace('→', ">").replace('>', " > ")
}

/// Whether a word stands between two flows.
fn is_joint(word: &str) -> bool {
    matches!(word, "&" | "while")
}

/// A word of a case text in its usual form: `GPU0.vram` as `gpu0.vram`, `to` as `>`.
fn usual_word(word: &str) -> String {
    let small = word.to_ascii_lowercase();
    match small.as_str() {
        "to" => ">".to_owned(),
        _ if is_unit(unit(&small)) => small,
        _ => word.to_owned(),
    }
}

/// `1 MiB` as `1MiB`.
fn join_sizes(words: &[String]) -> Vec<String> {
    let mut joined: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        match joined.last_mut() {
            Some(last)
                if last.bytes().all(|b| b.is_ascii_digit())
                    && format!("{last}{word}").parse::<Bytes>().is_ok() =>
            {
                last.push_str(word);
            }
            _ => joined.push(word.clone()),
        }
    }
    joined
}

fn complete_flow(words: &[&str], text: &str) -> Result<String, ParseError> {
    let [src, ">", dst, rest @ ..] = words else {
        let is_collective = words.first().is_some_and(|word| word.parse::<Collective>().is_ok());
        let form = match is_collective {
            true => {
                "SRC > DST [by MOVER] [x SIZE]; `pathline run ccl-collectives --ranks 8` measures \
                 collectives, and `pathline model predict` predicts one"
            }
            false => "SRC > DST [by MOVER] [x SIZE], such as gpu0 > gpu1 by dma",
        };
        return Err(ParseError::new("flow", text, form));
    };
    let (mover, rest) = match rest {
        ["by", mover, rest @ ..] => (*mover, rest),
        rest => (default_mover(src, dst), rest),
    };
    let (size, rest) = match rest {
        ["x", size, rest @ ..] => (*size, rest),
        rest => (SIZE, rest),
    };
    let mover = match mover {
        "nccl" | "rccl" => "ccl",
        mover => mover,
    };
    let is_message = is_message(mover);
    let (src, mut dst) = (complete_place(src, is_message)?, complete_place(dst, is_message)?);
    if is_message && [&src, &dst].iter().all(|place| is_unit(place)) {
        dst.insert_str(0, "r1.");
    }
    let mover = complete_mover(mover, &src, &dst)?;
    let mut flow = vec![src, ">".to_owned(), dst, "by".to_owned(), mover, "x".to_owned()];
    flow.push(size.to_owned());
    flow.extend(rest.iter().map(|word| (*word).to_owned()));
    Ok(flow.join(" "))
}

/// The unit of a place: `gpu0` of `r1.gpu0.vram`.
fn unit(place: &str) -> &str {
    place.split('.').find(|part| is_unit(part)).unwrap_or(place)
}

fn is_unit(part: &str) -> bool {
    ["gpu", "numa", "store"].iter().any(|name| part.starts_with(name))
}

fn is_message(mover: &str) -> bool {
    ["mpi", "ccl", "ucx"].contains(&mover.split(['@', '[']).next().unwrap_or(mover))
}

/// Adds the memory: pinned memory of a domain for copies, and what `malloc` gives for messages.
fn complete_place(place: &str, is_message: bool) -> Result<String, ParseError> {
    if ["host", "cpu", "dram"].contains(&place.split('.').next().unwrap_or(place)) {
        let form = "host memory of a NUMA domain, such as numa0 or numa0.paged; `pathline topo` shows \
                    which is next to a GPU";
        return Err(ParseError::new("place", place, form));
    }
    Ok(match place.rsplit('.').next().unwrap_or(place) {
        unit if unit.starts_with("gpu") => format!("{place}.vram"),
        unit if unit.starts_with("numa") && is_message => format!("{place}.paged"),
        unit if unit.starts_with("numa") => format!("{place}.pinned"),
        unit if unit.starts_with("store") => format!("{place}.file"),
        _ => place.to_owned(),
    })
}

/// The mover of a flow that names none: a message between ranks, the copy engine, or a core between host memories.
fn default_mover(src: &str, dst: &str) -> &'static str {
    let rank = |place: &str| place.split_once('.').map_or("r0", |(rank, _)| rank).to_owned();
    let is_ranked = [src, dst].iter().all(|place| place.starts_with('r'));
    if is_ranked && rank(src) != rank(dst) {
        return "mpi";
    }
    let has_gpu = [src, dst].iter().any(|place| unit(place).starts_with("gpu"));
    if has_gpu { "dma" } else { "cpu" }
}

fn complete_mover(mover: &str, src: &str, dst: &str) -> Result<String, ParseError> {
    let (kind, rest) = match mover.find(['@', '[']) {
        Some(at) => mover.split_at(at),
        None => (mover, ""),
    };
    if !MOVERS.contains(&kind) {
        if rest.is_empty() {
            let expected = format!(
                "{} without a unit, or a whole mover such as mpi@gpu0[send-w64]{}",
                MOVERS.join(", "),
                did_you_mean(kind, MOVERS)
            );
            return Err(ParseError::new("mover", kind, expected));
        }
        return Ok(mover.to_owned());
    }
    let units = [unit(src), unit(dst)];
    let kind_of_unit = if kind == "cpu" { "numa" } else { "gpu" };
    let of_source = is_message(kind);
    let own = units.into_iter().find(|unit| of_source || unit.starts_with(kind_of_unit));
    let own = own.unwrap_or(units[0]);
    let (at, variant) = match rest.split_once('[') {
        Some((at, variant)) => (at, Some(format!("[{variant}"))),
        None => (rest, None),
    };
    let at = if at.is_empty() { format!("@{own}") } else { at.to_owned() };
    let variant = variant.unwrap_or_else(|| match kind {
        "kernel" => format!("[{KERNEL}]"),
        "cpu" => format!("[{CPU}]"),
        "migrate" => "[fault]".to_owned(),
        _ if of_source => format!("[{MESSAGE}]"),
        _ => String::new(),
    });
    Ok(format!("{kind}{at}{variant}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_left_out_have_defaults() {
        for (text, whole) in [
            ("gpu0 > gpu1", "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB"),
            ("gpu0 > gpu1 by blit x 1MiB", "r0.gpu0.vram > r0.gpu1.vram by blit@gpu0 x 1MiB"),
            ("numa3 > gpu1 by dma", "r0.numa3.pinned > r0.gpu1.vram by dma@gpu1 x 256MiB"),
            (
                "numa0.paged > numa0.paged",
                "r0.numa0.paged > r0.numa0.paged by cpu@numa0[copy-memcpy-t1] x 256MiB",
            ),
            (
                "gpu1 > gpu0 by kernel@gpu1 & gpu0 > gpu1 by kernel",
                "r0.gpu1.vram > r0.gpu0.vram by kernel@gpu1[copy-w16-u4-b256-g2sm] x 256MiB & \
                 r0.gpu0.vram > r0.gpu1.vram by kernel@gpu0[copy-w16-u4-b256-g2sm] x 256MiB",
            ),
            ("gpu0→gpu1", "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB"),
            ("gpu0>gpu1", "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB"),
            ("GPU0.vram -> GPU1", "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB"),
            ("gpu0 to gpu1 by dma x 1 MiB", "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 1MiB"),
            (
                "gpu2 > gpu5 by mpi x 64KiB",
                "r0.gpu2.vram > r1.gpu5.vram by mpi@gpu2[send-w64] x 64KiB",
            ),
            (
                "r0.gpu2 > r1.gpu5 x 64KiB",
                "r0.gpu2.vram > r1.gpu5.vram by mpi@gpu2[send-w64] x 64KiB",
            ),
            ("r1.gpu2 > r1.gpu5", "r1.gpu2.vram > r1.gpu5.vram by dma@gpu2 x 256MiB"),
            (
                "r3.gpu0 > gpu1 by rccl x 1MiB",
                "r3.gpu0.vram > r0.gpu1.vram by ccl@gpu0[send-w64] x 1MiB",
            ),
            (
                "numa0 > numa1 by ucx[ping] x 8B",
                "r0.numa0.paged > r1.numa1.paged by ucx@numa0[ping] x 8B",
            ),
            (
                "gpu0 > gpu1 x 16 B isolated",
                "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 16B isolated",
            ),
            (
                "gpu0 > gpu1 x 16B isolated",
                "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 16B isolated",
            ),
        ] {
            let case = Case::parse_with_defaults(text).unwrap();
            assert_eq!(case.to_string(), whole, "{text}");
            assert_eq!(Case::parse_with_defaults(whole).unwrap(), case);
        }
        let error = Case::parse_with_defaults("gpu0 > gpu1 by dam").unwrap_err().to_string();
        assert!(error.contains("did you mean 'dma'"), "{error}");
        let error = |text: &str| Case::parse_with_defaults(text).unwrap_err().to_string();
        assert!(
            error("gpu0 > gpu1 x 0").contains("at least 1 byte"),
            "{}",
            error("gpu0 > gpu1 x 0")
        );
        assert!(error("gpu0 gpu1").contains("SRC > DST"), "{}", error("gpu0 gpu1"));
        assert!(error("all_reduce over gpu0-gpu7 by rccl").contains("ccl-collectives"));
        assert!(error("gpu0 > gpu1 &").contains("SRC > DST"));
        assert!(error("host.paged > gpu1").contains("such as numa0 or numa0.paged"));
        assert!(error("").contains("SRC > DST"));
    }
}
