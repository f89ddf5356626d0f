//! Repetitions of a sample, shared within a class of cases.

use std::collections::BTreeMap;

use pathline_schema::{Case, Ns};

/// The result of the first case of a class.
#[derive(Debug, Clone, Copy)]
struct ClassReps {
    reps: u64,
    /// Duration of one repetition.
    each: Ns,
}

/// Repetitions by class of case: cases that differ only in their unit numbers are one class.
#[derive(Debug, Default)]
pub(crate) struct KnownReps(BTreeMap<String, ClassReps>);

impl KnownReps {
    /// Repetitions that a case takes over: those of its class; or one for several concurrent flows,
    /// if one of them alone lasts `shortest` in a single repetition, since together they last no
    /// less.
    pub(crate) fn reps(&self, case: &Case, shortest: Ns) -> Option<u64> {
        if !is_shared(case) {
            return None;
        }
        let own = self.0.get(&class(case)).map(|found| found.reps);
        let alone = || {
            let each = |&flow| {
                let one = Case { timed: vec![flow], ..case.clone() };
                self.0.get(&class(&one)).map(|found| found.each)
            };
            let long = case.timed.iter().filter_map(each).any(|each| each >= shortest);
            (case.timed.len() > 1 && long).then_some(1)
        };
        own.or_else(alone)
    }

    /// Stores the repetitions of a case. The first of a class counts.
    pub(crate) fn learn(&mut self, case: &Case, reps: u64, each: Ns) {
        if is_shared(case) {
            self.0.entry(class(case)).or_insert(ClassReps { reps, each });
        }
    }
}

/// Whether other cases differ from this one only in their units. A background has separate
/// repetitions; calls, files and messages have few cases of a class.
fn is_shared(case: &Case) -> bool {
    let shared = |flow: &pathline_schema::Flow| {
        flow.by.wire().is_none() && !flow.by.is_on_files() && flow.by.facts().moves_bytes
    };
    case.background.is_empty() && case.flows().all(shared)
}

/// The text of a case with its GPUs, domains and ranks numbered in the order in which they appear.
fn class(case: &Case) -> String {
    let text = case.to_string();
    let mut seen: Vec<(&str, &str)> = Vec::new();
    let mut class = String::with_capacity(text.len());
    // Splits into runs of letters, runs of digits, and other characters.
    let kind = |c: char| (c.is_ascii_alphabetic(), c.is_ascii_digit());
    let mut rest = text.as_str();
    let mut last = "";
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| kind(c) != kind(first)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        if first.is_ascii_digit() && ["gpu", "numa", "r"].contains(&last) {
            let unit = (last, run);
            let same_kind = seen.iter().filter(|(name, _)| *name == last);
            let at = same_kind.clone().position(|&known| known == unit);
            let number = at.unwrap_or_else(|| same_kind.count());
            if at.is_none() {
                seen.push(unit);
            }
            class.push_str(&number.to_string());
        } else {
            class.push_str(run);
        }
        (last, rest) = (run, after);
    }
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(text: &str) -> Case {
        text.parse().expect("a case")
    }

    #[test]
    fn cases_that_differ_in_their_units_are_one_class() {
        let of = |text: &str| class(&case(text));
        let pair = of("gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB");
        assert_eq!(of("gpu12.vram > gpu3.vram by dma@gpu12 x 256MiB"), pair);
        assert_ne!(of("gpu0.vram > gpu1.vram by dma@gpu1 x 256MiB"), pair, "pulled");
        assert_ne!(of("gpu0.vram > gpu0.vram by dma@gpu0 x 256MiB"), pair, "local");
        assert_ne!(of("gpu0.vram > gpu1.vram by dma@gpu0 x 16MiB"), pair);
        let kernel = |g: u32, units: u32| {
            of(&format!(
                "numa0.pinned > gpu{g}.vram by kernel@gpu{g}[copy-w16-u{units}-b256-g2sm] x 1MiB"
            ))
        };
        assert_eq!(kernel(7, 4), kernel(0, 4));
        assert_ne!(kernel(0, 2), kernel(0, 4), "a variant is no unit");
    }

    /// 256 MiB take 5 ms alone, so a pair of them takes no less than the 0.5 ms of a sample; 1 MiB
    /// (20 us) gives no bound for a pair, which may share a link or not.
    #[test]
    fn a_set_takes_one_repetition_where_a_flow_of_it_lasts_long_enough() {
        let mut known = KnownReps::default();
        let shortest = Ns::us(500.0);
        let pair = |mib: u32| {
            case(&format!(
                "gpu2.vram > gpu3.vram by dma@gpu2 x {mib}MiB & gpu3.vram > gpu2.vram by dma@gpu3 x {mib}MiB"
            ))
        };
        assert_eq!(known.reps(&pair(256), shortest), None);
        known.learn(&case("gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB"), 1, Ns::ms(5.0));
        known.learn(&case("gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB"), 25, Ns::us(20.0));
        assert_eq!(known.reps(&pair(256), shortest), Some(1));
        assert_eq!(known.reps(&pair(1), shortest), None);
        let one = case("gpu5.vram > gpu4.vram by dma@gpu5 x 1MiB");
        assert_eq!(known.reps(&one, shortest), Some(25));
        let loaded = "gpu5.vram > gpu4.vram by dma@gpu5 x 1MiB while gpu1.vram > gpu0.vram by dma@gpu1 x 1MiB";
        known.learn(&case(loaded), 25, Ns::us(20.0));
        assert_eq!(known.reps(&case(loaded), shortest), None);
    }
}
