//! Texts are identities: what is written must be read back as the same thing.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use crate::common::*;
use pathline_schema::*;
use proptest::prelude::*;

fn inverse<T>(value: &T) -> Result<(), TestCaseError>
where
    T: Display + FromStr + PartialEq + Debug,
    T::Err: Debug,
{
    let text = value.to_string();
    let back = text.parse::<T>();
    prop_assert_eq!(back.as_ref().ok(), Some(value), "{} gave {:?}", text, back);
    Ok(())
}

/// A text of words that occur in cases, in no sensible order.
fn word_soup() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        4 => prop::sample::select(vec![
            "r0.gpu0.vram", "gpu1.vram", "numa0.pinned-nc", ">", "by", "x", "&", "while",
            "isolated", "dma@gpu0", "kernel@gpu0[copy-w16-u4-b256-g2sm]", "256MiB", "*", "?",
            "cpu@numa0[read-avx512-t1]", "migrate@gpu0[fault]", "[", "]", "@", ".", "",
            "staged@gpu0[numa0]", "batch@gpu0[64]", "call@gpu0[alloc]", "threads@gpu0[8]",
            "blocks@gpu0[64]",
            "99999999999999999999", "r.gpu.vram", "gpu-1", "\u{1F980}", "\t",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,8}",
    ];
    prop::collection::vec(word, 0..20).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn texts_are_read_back(
        bytes in bytes(), unit in unit(), node in node(), place in place(), variant in variant(),
        mover in mover(), flow in flow(), case in case(), cpus in cpu_set(), pattern in pattern(),
    ) {
        inverse(&bytes)?;
        inverse(&unit)?;
        inverse(&node)?;
        inverse(&place)?;
        inverse(&variant)?;
        inverse(&mover)?;
        inverse(&flow)?;
        inverse(&case)?;
        inverse(&cpus)?;
        inverse(&pattern)?;
    }

    #[test]
    fn a_text_that_is_read_has_one_canonical_form(text in word_soup()) {
        // A text that parses may have another form, but only one canonical form.
        if let Ok(case) = text.parse::<Case>() {
            inverse(&case)?;
        }
        if let Ok(pattern) = text.parse::<CasePattern>() {
            inverse(&pattern)?;
        }
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in prop_oneof![any::<String>(), word_soup()]) {
        let _ = (text.parse::<Bytes>(), text.parse::<Unit>(), text.parse::<Place>());
        let _ = (text.parse::<KernelVariant>(), text.parse::<Mover>(), text.parse::<Flow>());
        let _ = (text.parse::<Case>(), text.parse::<CpuSet>(), text.parse::<LinkEnd>());
        let _ = (text.parse::<CasePattern>(), text.parse::<LinkKind>(), text.parse::<TimerKind>());
    }

    #[test]
    fn errors_stay_short_and_name_the_expected_form(text in "\\PC{0,5000}") {
        if let Err(error) = text.parse::<Case>() {
            prop_assert!(error.text.chars().count() <= 81);
            prop_assert!(!error.expected.is_empty());
        }
    }

    #[test]
    fn an_exact_pattern_chooses_its_case_and_no_other(a in case(), b in case()) {
        let pattern: CasePattern = a.to_string().parse().unwrap();
        prop_assert!(pattern.matches(&a));
        prop_assert_eq!(pattern.matches(&b), a == b);
    }

    #[test]
    fn a_flow_of_wildcards_chooses_every_case(case in case()) {
        prop_assert!("*".parse::<CasePattern>().unwrap().matches(&case));
        // The first timed flow without its rank and its arguments still chooses the case.
        let flow = case.timed[0];
        let text = format!(
            "{}.{} > {}.* by {}",
            flow.src.unit, flow.src.mem, flow.dst.unit, flow.by.kind()
        );
        prop_assert!(text.parse::<CasePattern>().unwrap().matches(&case), "{}", text);
    }

    #[test]
    fn the_mover_decides_what_a_case_moves(flow in flow()) {
        // Copies read and write the payload; no mover writes more than it is given.
        let effect = flow.by.effect(flow.bytes);
        prop_assert!(effect.writes <= flow.bytes);
        prop_assert_eq!(effect.chain > 0, flow.by.is_chase());
    }
}

#[test]
fn canonical_texts() {
    let cases = [
        "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB",
        "gpu0.vram > gpu1.vram by dma@gpu0 x 16B isolated",
        "r1.gpu3.vram-fine > r0.numa3.pinned-nc by blit@gpu3 x 1000000B",
        "gpu0.vram > gpu0.reg by kernel@gpu0[read-w16-u4-nt-b256-g2sm] x 1024MiB",
        "numa0.managed > gpu0.managed by migrate@gpu0[fault] x 64MiB",
        "numa0.pinned > gpu0.vram by dma@gpu0 x 1GiB & gpu0.vram > numa0.pinned by dma@gpu0 x 1GiB",
        "gpu1.vram > gpu7.vram by dma@gpu1 x 256MiB while gpu0.vram > gpu6.vram by dma@gpu0 x 4GiB",
        "numa0.huge > numa1.huge by cpu@numa0[copy-avx512-nt-t2] x 64M",
        "numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x 32KiB",
        "gpu0.vram > gpu1.vram by staged@gpu0[numa1] x 256MiB",
        "numa0.pinned > gpu0.vram by batch@gpu0[256] x 16MiB",
        "numa0.paged > gpu0.vram by threads@gpu0[8] x 1GiB",
        "numa0.pinned > gpu0.vram by blocks@gpu0[4096] x 16MiB",
        "numa0.paged > numa0.registered by call@gpu0[register] x 256MiB isolated",
        "gpu0.reg > gpu0.reg by call@gpu0[launch-sync] x 1B isolated",
    ];
    let sizes = ["0", "1000", "4096B", "1536KiB", "1GB", "2Ti", "18446744073709551615"];
    let sets = ["0-3,8,10-11", "3,2,1,0", "", "5,5,5"];
    let mut out = String::new();
    for text in cases {
        out += &format!("{text}\n  = {}\n", text.parse::<Case>().unwrap());
    }
    for text in sizes {
        out += &format!("{text} = {}\n", text.parse::<Bytes>().unwrap());
    }
    for text in sets {
        out += &format!("'{text}' = '{}'\n", text.parse::<CpuSet>().unwrap());
    }
    insta::assert_snapshot!(out);
}

#[test]
fn errors_name_the_slip_and_the_remedy() {
    let texts = [
        "",
        "gpu0.vram > gpu1.vram",
        "gpu0.vram -> gpu1.vram by dma@gpu0 x 1MiB",
        "gpu0.vram > gpu1.ram by dma@gpu0 x 1MiB",
        "gpu.vram > gpu1.vram by dma@gpu0 x 1MiB",
        "gpu0.vram > gpu1.vram by dma@numa0 x 1MiB",
        "gpu0.vram > gpu1.vram by kernel@gpu0[copy-w3-u4-b256-g1] x 1MiB",
        "gpu0.vram > gpu1.vram by cpu@numa0[copy-avx512-nt] x 1MiB",
        "gpu0.vram > gpu1.vram by staged@gpu0[gpu1] x 1MiB",
        "gpu0.vram > gpu1.vram by batch@gpu0[0] x 1MiB",
        "numa0.paged > gpu0.vram by threads@numa0[8] x 1MiB",
        "numa0.pinned > gpu0.vram by blocks@gpu0[65537] x 1MiB",
        "gpu0.reg > gpu0.reg by call@gpu0[lunch] x 1B",
        "gpu0.vram > gpu1.vram by dma@gpu0 x 1.5MiB",
        "gpu0.vram > gpu1.vram by dma@gpu0 x 0B",
        "gpu0.vram > gpu1.vram by dma@gpu0 x 99999999999TiB",
        "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB &",
        "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB while ",
        "gpu00.vram > gpu1.vram by dma@gpu0 x 1MiB",
        "gpu4294967296.vram > gpu1.vram by dma@gpu0 x 1MiB",
    ];
    let errors: String = texts
        .iter()
        .map(|text| format!("{text}\n  {}\n", text.parse::<Case>().unwrap_err()))
        .collect();
    insta::assert_snapshot!(errors);
}

#[test]
fn a_list_of_cpus_cannot_fill_memory() {
    // Each range is legal; a thousand of them name 65 million CPUs before they are made a set.
    let hostile = vec!["0-65535"; 1000].join(",");
    assert!(hostile.parse::<CpuSet>().is_err());
    assert!("0-4294967295".parse::<CpuSet>().is_err());
    let flows = vec!["gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB"; 5000].join(" & ");
    assert!(flows.parse::<Case>().is_err());
}
