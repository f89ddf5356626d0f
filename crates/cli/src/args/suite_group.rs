//! Groups of suites: what `pathline run GROUP` measures, and the order of `pathline run --list`.

use pathline_schema::SuiteId;

/// What suites need, and what they are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SuiteGroup {
    /// The host's memory and cores.
    Host,
    /// GPUs and their links, in one process.
    Gpu,
    /// Messages by MPI.
    Mpi,
    /// NCCL or RCCL.
    Ccl,
    /// UCX, shared memory and registration for a network adapter.
    Ucx,
    /// Files, block devices, buckets.
    Storage,
}

impl SuiteGroup {
    /// All, in the order of a list.
    pub(crate) const ALL: [Self; 6] =
        [Self::Host, Self::Gpu, Self::Mpi, Self::Ccl, Self::Ucx, Self::Storage];

    /// Its name.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Gpu => "gpu",
            Self::Mpi => "mpi",
            Self::Ccl => "ccl",
            Self::Ucx => "ucx",
            Self::Storage => "storage",
        }
    }

    /// The group of a name. A suite that has the name of a group is meant by it alone.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let is_suite = || SuiteId::ALL.iter().any(|suite| suite.word() == name);
        Self::ALL.into_iter().find(|group| group.word() == name && !is_suite())
    }

    /// The group that a suite belongs to.
    pub(crate) fn of(suite: SuiteId) -> Self {
        let word = suite.word();
        match word {
            "host" => Self::Host,
            "collective-types" => Self::Ccl,
            "registration" | "shm" => Self::Ucx,
            "metadata" => Self::Storage,
            _ if word.starts_with("mpi-") => Self::Mpi,
            _ if word.starts_with("ccl-") => Self::Ccl,
            _ if word.starts_with("ucx") => Self::Ucx,
            _ if word.starts_with("storage") => Self::Storage,
            _ => Self::Gpu,
        }
    }

    /// Its suites, in display order; of group gpu those that no twin or multipath copy asks for are enough.
    pub(crate) fn suites(self) -> impl Iterator<Item = SuiteId> {
        SuiteId::ALL.iter().copied().filter(move |suite| Self::of(*suite) == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_suite_is_in_one_group_and_names_of_suites_stay_suites() {
        let all: usize = SuiteGroup::ALL.into_iter().map(|group| group.suites().count()).sum();
        assert_eq!(all, SuiteId::ALL.len());
        assert_eq!(SuiteGroup::parse("mpi"), Some(SuiteGroup::Mpi));
        assert_eq!(SuiteGroup::parse("gpu"), Some(SuiteGroup::Gpu));
        assert_eq!((SuiteGroup::parse("ucx"), SuiteGroup::parse("pairs")), (None, None));
        assert!(SuiteGroup::Mpi.suites().all(|suite| suite.word().starts_with("mpi-")));
    }
}
