//! Versions of software as their makers write them: `2.18.3-1`, `5.0.2rc1`, `535.104.05`, `6.2.0-66-generic`.

use std::cmp::Ordering;

/// Words of versions that come before the release of the same numbers.
const BEFORE: [&str; 7] = ["a", "alpha", "b", "beta", "dev", "pre", "rc"];

/// The numbers of a version. Numbers that are not there are 0; a preliminary version comes before its release.
#[derive(Debug, Clone)]
pub(super) struct SoftwareVersion {
    numbers: Vec<u64>,
    /// The place of its word in [`BEFORE`], and the number behind it.
    before: Option<(usize, u64)>,
}

impl SoftwareVersion {
    /// The first number of a text and what follows it, up to a word that is no part of a version: a platform, a
    /// build, a name. `None` without a number.
    pub(super) fn find(text: &str) -> Option<Self> {
        let mut rest = text.get(text.find(|c: char| c.is_ascii_digit())?..)?;
        let mut numbers = Vec::new();
        loop {
            let (number, after) = split_while(rest, |c| c.is_ascii_digit());
            numbers.push(number.parse().unwrap_or(u64::MAX));
            rest = after;
            let next = rest.strip_prefix(['.', '-', '_']).unwrap_or(rest);
            if rest.len() > next.len() && next.starts_with(|c: char| c.is_ascii_digit()) {
                rest = next;
                continue;
            }
            let (word, after) = split_while(next, |c| c.is_ascii_alphabetic());
            let place = BEFORE.iter().position(|known| word.eq_ignore_ascii_case(known));
            let (number, _) =
                split_while(after.trim_start_matches(['.', '-']), |c| c.is_ascii_digit());
            let before = place.map(|place| (place, number.parse().unwrap_or(0)));
            return Some(Self { numbers, before });
        }
    }

    /// Whether it is at most `last`, or a build of it: 2.18.3-1 of 2.18.3.
    pub(super) fn is_within(&self, last: &Self) -> bool {
        let numbers = self.numbers.iter().take(last.numbers.len()).copied().collect();
        Self { numbers, before: self.before } <= *last
    }
}

fn split_while(text: &str, is_part: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()))
}

impl Ord for SoftwareVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let places = self.numbers.len().max(other.numbers.len());
        let number = |of: &Self, place| of.numbers.get(place).copied().unwrap_or(0);
        let differ = (0..places).map(|place| number(self, place).cmp(&number(other, place)));
        let numbers = differ.fold(Ordering::Equal, Ordering::then);
        let last = |of: &Self| of.before.unwrap_or((BEFORE.len(), 0));
        numbers.then_with(|| last(self).cmp(&last(other)))
    }
}

impl PartialOrd for SoftwareVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SoftwareVersion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for SoftwareVersion {}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> SoftwareVersion {
        SoftwareVersion::find(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn versions_are_in_the_order_of_their_releases() {
        let ordered = [
            "1.9",
            "2.18.1",
            "2.18.3",
            "2.18.3-1",
            "2.18.10",
            "5.0.2a1",
            "5.0.2b4",
            "v5.0.2rc1",
            "Open MPI v5.0.2rc2",
            "5.0.2",
            "6.2.0-66-generic",
            "6.2.0-100",
            "535.54.03",
            "535.104.05",
            "99999999999999999999.1",
        ];
        for (at, low) in ordered.iter().enumerate() {
            for high in &ordered[at + 1..] {
                assert!(version(low) < version(high), "{low} {high}");
            }
        }
        for (same, other) in [
            ("2.18.3", "2.18.3+cuda12.1"),
            ("2.18", "2.18.0"),
            ("535.104.05", "535.104.5"),
            ("2.4.0amzn5.0", "2.4"),
            ("2.22.3-HEAD:1a", "NCCL version 2.22.3"),
            ("7.2.0-rc.1", "7.2.0rc1"),
        ] {
            assert_eq!(version(same), version(other), "{same} {other}");
        }
        assert!(SoftwareVersion::find("unknown").is_none() && SoftwareVersion::find("").is_none());
    }

    #[test]
    fn a_build_is_within_its_release() {
        for (version_text, last, within) in [
            ("2.29.2-1", "2.29.2", true),
            ("2.29.3-1", "2.29.2", false),
            ("2.9.9", "2.29.2", true),
            ("7.11.3", "7.11", true),
            ("5.0.6rc1", "5.0.5", false),
        ] {
            assert_eq!(version(version_text).is_within(&version(last)), within, "{version_text}");
        }
    }

    /// Any three texts of digits, points and letters are in one order, whichever two are compared.
    #[test]
    fn the_order_is_total() {
        let mut rng = fastrand::Rng::with_seed(40);
        let mut text = || -> String {
            let letters = ["0", "1", "2", "10", ".", ".", "-", "rc", "a", "x", "+", "9"];
            let length = rng.usize(0..8);
            format!(
                "{}{}",
                rng.u8(0..3),
                (0..length).map(|_| rng.choice(letters).unwrap()).collect::<String>()
            )
        };
        for _ in 0..20_000 {
            let (a, b, c) = (version(&text()), version(&text()), version(&text()));
            assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            assert!(!(a <= b && b <= c) || a <= c, "{a:?} {b:?} {c:?}");
            assert!(a.is_within(&a) && (a > b || a.is_within(&b)), "{a:?} {b:?}");
        }
    }
}
