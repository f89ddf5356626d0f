//! Spoilt inputs: whatever is in them, an answer or an error, no panic, and what is answered is
//! valid.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use pathline_topo::{HostSnapshot, from_snapshot, from_text, validate, write_nccl_xml};
use proptest::prelude::*;

const FILES: [&str; 6] = [
    "lumi-kfd-io_links.csv",
    "rccl-topo_4p_940.xml",
    "rccl-topo_8p1h.xml",
    "rccl-topo_8p1h_3.xml",
    "rccl-topo_8p_90a.xml",
    "rccl-topo_8p_940.xml",
];

fn file(at: usize) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    std::fs::read_to_string(dir.join(FILES[at])).unwrap()
}

fn check(text: &str) {
    if let Ok(topology) = from_text("f", text) {
        assert_eq!(validate("f", &topology), Ok(()));
        let again = from_text("written", &write_nccl_xml(&topology));
        assert!(again.is_ok(), "our own XML is refused: {}", again.unwrap_err());
    }
}

fn spoil(text: String, flips: &[(usize, u8)]) -> String {
    let mut bytes = text.into_bytes();
    for (at, byte) in flips {
        let at = at % bytes.len();
        bytes[at] = *byte;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn flipped_bytes(
        at in 0..FILES.len(),
        flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..12),
    ) {
        check(&spoil(file(at), &flips));
    }

    /// Digits stay digits, so that most inputs still parse with other values.
    #[test]
    fn other_numbers(
        at in 0..FILES.len(),
        changes in proptest::collection::vec((any::<usize>(), b'0'..=b'9'), 1..60),
    ) {
        let mut bytes = file(at).into_bytes();
        let digits: Vec<usize> =
            bytes.iter().enumerate().filter(|(_, b)| b.is_ascii_digit()).map(|(i, _)| i).collect();
        for (place, digit) in changes {
            bytes[digits[place % digits.len()]] = digit;
        }
        check(&String::from_utf8(bytes).unwrap());
    }

    #[test]
    fn cut_and_doubled(at in 0..FILES.len(), from in any::<usize>(), to in any::<usize>()) {
        let text = file(at);
        let place = |n: usize| n % text.len();
        let (a, b) = (place(from).min(place(to)), place(from).max(place(to)));
        check(&text[..a]);
        check(&[&text[..b], &text[a..]].concat());
    }

    #[test]
    fn any_text(text in ".{0,300}") {
        check(&text);
        check(&format!("<system><cpu numaid=\"0\">{text}</cpu></system>"));
        check(&format!("<topology><object type=\"Machine\">{text}</object></topology>"));
        check(&format!("{{\"source\":\"\",{text}}}"));
    }

    #[test]
    fn spoilt_snapshots(
        flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..40),
        nvidia in any::<bool>(),
    ) {
        let whole = if nvidia { crate::common::h200() } else { crate::common::mi250x() };
        let text = spoil(whole.to_text(), &flips);
        if let Ok(snapshot) = HostSnapshot::from_text("f", &text) {
            let topology = from_snapshot("f", &snapshot);
            prop_assert_eq!(validate("f", &topology), Ok(()));
        }
    }
}
