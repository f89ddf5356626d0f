//! Case texts with parts left out: `gpu0 > gpu1 by dma` stands for `gpu0.vram > gpu1.vram by dma@gpu0 x
//! 256MiB`.

use crate::{Case, ParseError, did_you_mean};

/// Size of a flow that names none.
const SIZE: &str = "256MiB";

/// Kernel of a kernel flow that names none: copies with 16 B a thread.
const KERNEL: &str = "copy-w16-u4-b256-g2sm";

/// CPU loop of a CPU flow that names none.
const CPU: &str = "copy-memcpy-t1";

/// Movers that a text may name without their unit.
const MOVERS: [&str; 5] = ["dma", "blit", "kernel", "cpu", "migrate"];

impl Case {
    /// Parses a case text whose flows may leave out memory kinds (`vram` of a GPU, `pinned` of a NUMA
    /// domain), the mover or its unit and variant, and the size (256 MiB).
    ///
    /// # Errors
    /// The completed text is no case.
    pub fn parse_with_defaults(text: &str) -> Result<Self, ParseError> {
        if let Ok(case) = text.parse() {
            return Ok(case);
        }
        let mut completed: Vec<String> = Vec::new();
        let mut flow: Vec<&str> = Vec::new();
        for word in text.split_whitespace().take(65_536) {
            if matches!(word, "&" | "while") {
                completed.push(complete_flow(&flow, text)?);
                completed.push(word.to_owned());
                flow.clear();
            } else {
                flow.push(word);
            }
        }
        completed.push(complete_flow(&flow, text)?);
        completed.join(" ").parse()
    }
}

fn complete_flow(words: &[&str], text: &str) -> Result<String, ParseError> {
    let [src, ">", dst, rest @ ..] = words else {
        let form = "SRC > DST [by MOVER] [x SIZE], such as gpu0 > gpu1 by dma";
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
    let (src, dst) = (complete_place(src), complete_place(dst));
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

fn complete_place(place: &str) -> String {
    let last = place.rsplit('.').next().unwrap_or(place);
    match last {
        unit if unit.starts_with("gpu") => format!("{place}.vram"),
        unit if unit.starts_with("numa") => format!("{place}.pinned"),
        unit if unit.starts_with("store") => format!("{place}.file"),
        _ => place.to_owned(),
    }
}

/// The mover of a flow that names none: the copy engine, or a core between host memories.
fn default_mover(src: &str, dst: &str) -> &'static str {
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
            let near = did_you_mean(kind, MOVERS);
            let expected = format!(
                "{} without a unit, or a whole mover such as mpi@gpu0[send-w64]{near}",
                MOVERS.join(", ")
            );
            return Err(ParseError::new("mover", kind, expected));
        }
        return Ok(mover.to_owned());
    }
    let units = [unit(src), unit(dst)];
    let kind_of_unit = if kind == "cpu" { "numa" } else { "gpu" };
    let own = units.into_iter().find(|unit| unit.starts_with(kind_of_unit)).unwrap_or(units[0]);
    let (at, variant) = match rest.split_once('[') {
        Some((at, variant)) => (at, Some(format!("[{variant}"))),
        None => (rest, None),
    };
    let at = if at.is_empty() { format!("@{own}") } else { at.to_owned() };
    let variant = variant.unwrap_or_else(|| match kind {
        "kernel" => format!("[{KERNEL}]"),
        "cpu" => format!("[{CPU}]"),
        "migrate" => "[fault]".to_owned(),
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
        assert!(Case::parse_with_defaults("gpu0 to gpu1").is_err());
    }
}
