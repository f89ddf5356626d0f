//! Groups of suites: what `pathline run GROUP` measures, and the order of `pathline run --list`.

use pathline_schema::SuiteId;

/// The groups, in the order of a list: the host; GPUs and their links in one process; messages by MPI; NCCL or RCCL;
/// UCX, shared memory and registration; files, block devices, buckets.
pub(crate) const SUITE_GROUPS: [&str; 6] = ["host", "gpu", "mpi", "ccl", "ucx", "storage"];

/// The group that a suite belongs to.
pub(crate) fn suite_group(suite: SuiteId) -> &'static str {
    let word = suite.word();
    match word {
        "host" => "host",
        "collective-types" => "ccl",
        "registration" | "shm" => "ucx",
        "metadata" => "storage",
        _ => ["mpi", "ccl", "ucx", "storage"]
            .into_iter()
            .find(|group| word.starts_with(group))
            .unwrap_or("gpu"),
    }
}

/// The suites of a group, in display order.
pub(crate) fn group_suites(group: &str) -> impl Iterator<Item = SuiteId> {
    SuiteId::ALL.iter().copied().filter(move |suite| suite_group(*suite) == group)
}

/// The suites that a name on the command line means: a suite that has the name of a group is meant by it alone.
pub(crate) fn named_suites(name: &str) -> Vec<String> {
    let is_suite = SuiteId::ALL.iter().any(|suite| suite.word() == name);
    match !is_suite && SUITE_GROUPS.contains(&name) {
        true => group_suites(name).map(|suite| suite.word().to_owned()).collect(),
        false => vec![name.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_suite_is_in_one_group_and_names_of_suites_stay_suites() {
        let all: usize = SUITE_GROUPS.into_iter().map(|group| group_suites(group).count()).sum();
        assert_eq!(all, SuiteId::ALL.len());
        assert!(named_suites("mpi").iter().all(|suite| suite.starts_with("mpi-")));
        assert!(named_suites("gpu").contains(&"pairs".to_owned()));
        assert_eq!(
            (named_suites("ucx"), named_suites("pairs")),
            (vec!["ucx".into()], vec!["pairs".into()])
        );
    }
}
