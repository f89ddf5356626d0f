//! Units that failed for good, counted.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Case, Unit};

/// With so many a unit is retired: once may be the case's fault, and the runtime is started anew
/// after it.
const MOST: usize = 2;

/// Errors after which nothing more worked, with the GPUs that were involved.
#[derive(Debug, Default)]
pub(crate) struct Strikes {
    errors: Vec<(BTreeSet<Unit>, String)>,
    retired: BTreeMap<Unit, String>,
}

impl Strikes {
    /// Counts an error against the GPUs of a case: those that move its bytes and those that they
    /// come from and go to. An error that a retired GPU explains counts against no other. The units
    /// that are retired by it, with the error that showed it first.
    pub(crate) fn count(&mut self, case: &Case, error: &str) -> Vec<(Unit, String)> {
        let gpus = gpus(case);
        self.errors.push((gpus.clone(), error.to_owned()));
        let against = |unit: &Unit| {
            let unexplained = self
                .errors
                .iter()
                .filter(|(gpus, _)| gpus.contains(unit))
                .filter(|(gpus, _)| gpus.iter().all(|gpu| !self.retired.contains_key(gpu)));
            let all: Vec<&String> = unexplained.map(|(_, error)| error).collect();
            all.first().filter(|_| all.len() >= MOST).map(|&first| (*unit, first.clone()))
        };
        let retired: Vec<(Unit, String)> = gpus.iter().filter_map(against).collect();
        self.retired.extend(retired.iter().cloned());
        retired
    }

    /// A retired unit that the case needs, with the error that showed it first.
    pub(crate) fn retired(&self, case: &Case) -> Option<(Unit, &str)> {
        let of = |unit| Some((unit, self.retired.get(&unit)?.as_str()));
        gpus(case).into_iter().find_map(of)
    }
}

/// All GPUs of a case.
fn gpus(case: &Case) -> BTreeSet<Unit> {
    case.flows()
        .flat_map(|flow| [flow.by.at(), flow.src.unit, flow.dst.unit])
        .filter(|unit| unit.gpu().is_some())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(text: &str) -> Case {
        text.parse().unwrap()
    }

    #[test]
    fn the_second_error_retires_every_gpu_of_both_cases_only() {
        let mut strikes = Strikes::default();
        let to = |a: u32, b: u32| case(&format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 1MiB"));
        assert_eq!(strikes.count(&to(0, 7), "first"), []);
        assert!(strikes.retired(&to(0, 7)).is_none());
        // GPU 7 was in both, 0 and 1 in one each.
        assert_eq!(strikes.count(&to(1, 7), "second"), [(Unit::Gpu(7), "first".to_owned())]);
        assert_eq!(strikes.retired(&to(7, 2)), Some((Unit::Gpu(7), "first")));
        assert!(strikes.retired(&to(0, 1)).is_none());
        // It is retired once.
        assert_eq!(strikes.count(&to(7, 7), "third"), []);
        // Both errors are explained by GPU 7: GPUs 0 and 1 have none of their own.
        assert_eq!(strikes.count(&to(0, 1), "fourth"), []);
        assert_eq!(strikes.count(&to(0, 2), "fifth"), [(Unit::Gpu(0), "fourth".to_owned())]);
    }

    #[test]
    fn the_host_is_never_retired() {
        let mut strikes = Strikes::default();
        let host = case("numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1MiB");
        for _ in 0..5 {
            assert_eq!(strikes.count(&host, "error"), []);
        }
        assert!(strikes.retired(&host).is_none());
    }
}
