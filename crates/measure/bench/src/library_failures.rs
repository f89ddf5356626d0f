//! Counts processes that a library ended in an operation on device memory, and retires the operation.

use std::collections::BTreeMap;
use std::fmt;

use pathline_schema::{Case, MemKind, Transport};

/// Failures that retire an operation: the first may be of its size only.
const RETIRED_AFTER: usize = 2;

/// What a library was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LibraryUse {
    via: Transport,
    /// The operation without window, element and place.
    op: &'static str,
    /// Kinds of memory at both ends, at least one of them a GPU's.
    memory: (MemKind, MemKind),
}

impl LibraryUse {
    /// The uses of a case; none without messages of device memory.
    fn all(case: &Case) -> impl Iterator<Item = Self> + '_ {
        case.flows().filter_map(|flow| {
            let wire = flow.by.wire()?;
            let is_device = flow.src.unit.gpu().or(flow.dst.unit.gpu()).is_some();
            let memory = (flow.src.mem, flow.dst.mem);
            is_device.then(|| Self { via: wire.via, op: wire.op.kind(), memory })
        })
    }
}

impl fmt::Display for LibraryUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { via, op, memory: (from, to) } = self;
        if from == to {
            write!(f, "{op} by {via} of {from} memory")
        } else {
            write!(f, "{op} by {via} from {from} to {to} memory")
        }
    }
}

/// Failures of libraries whose GPUs were well afterwards.
#[derive(Debug, Default)]
pub(crate) struct LibraryFailures {
    /// The errors of each use, the first one first.
    errors: BTreeMap<LibraryUse, Vec<String>>,
}

impl LibraryFailures {
    /// Whether failures of the case can be a library's: it has messages of device memory.
    pub(crate) fn concerns(case: &Case) -> bool {
        LibraryUse::all(case).next().is_some()
    }

    /// Counts an error. Returns the name of each newly retired operation, with its first error.
    pub(crate) fn count(&mut self, case: &Case, error: &str) -> Vec<(String, String)> {
        let mut uses: Vec<LibraryUse> = LibraryUse::all(case).collect();
        uses.sort_unstable();
        uses.dedup();
        let mut retired = Vec::new();
        for used in uses {
            let errors = self.errors.entry(used).or_default();
            errors.push(error.to_owned());
            if errors.len() == RETIRED_AFTER {
                retired.extend(errors.first().map(|first| (used.to_string(), first.clone())));
            }
        }
        retired
    }

    /// A retired operation that the case needs, by name, with its first error.
    pub(crate) fn retired(&self, case: &Case) -> Option<(String, &str)> {
        LibraryUse::all(case).find_map(|used| {
            let errors = self.errors.get(&used).filter(|all| all.len() >= RETIRED_AFTER)?;
            Some((used.to_string(), errors.first()?.as_str()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(text: &str) -> Case {
        text.parse().unwrap()
    }

    #[test]
    fn the_second_error_retires_the_operation_of_that_library_and_memory_only() {
        let mut failures = LibraryFailures::default();
        let reduce =
            |size| case(&format!("r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[reduce] x {size}"));
        assert_eq!(failures.count(&reduce("8B"), "first"), []);
        assert!(failures.retired(&reduce("8B")).is_none());
        let retired = failures.count(&reduce("1MiB"), "second");
        assert_eq!(retired, [("reduce by mpi of vram memory".to_owned(), "first".to_owned())]);
        assert_eq!(failures.retired(&reduce("1GiB")).unwrap().1, "first");
        // It is retired once.
        assert_eq!(failures.count(&reduce("64B"), "third"), []);
        for other in [
            "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[broadcast] x 8B",
            "r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[reduce] x 8B",
            "r0.numa0.paged > r1.numa0.paged by mpi@numa0[reduce] x 8B",
        ] {
            assert!(failures.retired(&case(other)).is_none(), "{other}");
        }
        // Elements and places of a reduction are one operation.
        let bytes = case("r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[all_reduce-int8-max] x 8B");
        let sums = case("r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[all_reduce-inplace] x 8B");
        assert_eq!(failures.count(&bytes, "fourth"), []);
        assert_eq!(failures.count(&sums, "fifth").len(), 1);
    }

    #[test]
    fn host_memory_and_copies_concern_no_library() {
        for (text, concerned) in [
            ("r0.gpu0.vram > r1.gpu1.vram by ucx@gpu0[ping] x 8B", true),
            ("r0.gpu0.vram > r1.numa0.paged by mpi@gpu0[ping] x 8B", true),
            ("r0.numa0.paged > r1.numa0.paged by mpi@numa0[ping] x 8B", false),
            ("gpu0.vram > gpu1.vram by dma@gpu0 x 8B", false),
        ] {
            assert_eq!(LibraryFailures::concerns(&case(text)), concerned, "{text}");
        }
    }
}
