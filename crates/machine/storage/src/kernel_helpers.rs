//! Kernel threads that do I/O in the place of a worker. A ring hands them what the file system cannot
//! begin without waiting, such as `ext4`'s writes to the page cache: then the worker itself hardly
//! works, and its own time does not show the cost of an I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pathline_host::files;

/// The list of this process's threads.
const TASKS: &str = "/proc/self/task";
/// How Linux 5.12 and newer name such a thread, before the number of the thread that it serves.
const NAME: &str = "iou-wrk-";

/// CPU time of each so far, in ns, by thread. Where the kernel keeps no `schedstat`, and
/// before Linux 5.12, none are known.
#[derive(Debug, Default)]
pub(super) struct KernelHelpers(BTreeMap<u32, u64>);

impl KernelHelpers {
    /// Those of the threads `workers`; of none, nothing is looked at.
    pub(super) fn now(workers: &BTreeSet<u32>) -> Self {
        Self::listed(Path::new(TASKS), workers)
    }

    fn listed(tasks: &Path, workers: &BTreeSet<u32>) -> Self {
        if workers.is_empty() {
            return Self::default();
        }
        let listed = std::fs::read_dir(tasks).into_iter().flatten().flatten();
        let threads: BTreeSet<u32> =
            listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let read = |thread: u32, file: &str| files::text(tasks.join(thread.to_string()).join(file));
        let spent = |thread: u32| -> Option<(u32, u64)> {
            let served = read(thread, "comm")?.trim().strip_prefix(NAME)?.parse::<u32>().ok()?;
            // In a PID namespace the name has a number of the host: then it may be this process's.
            let ours = workers.contains(&served) || !threads.contains(&served);
            let ns = || read(thread, "schedstat")?.split(' ').next()?.parse().ok();
            if ours { ns().map(|ns| (thread, ns)) } else { None }
        };
        Self(threads.difference(workers).filter_map(|&thread| spent(thread)).collect())
    }

    /// CPU time of all of them since `earlier`, in ns. One that has ended meanwhile had been idle
    /// for seconds.
    pub(super) fn since(&self, earlier: &Self) -> f64 {
        let spent = |(thread, ns): (&u32, &u64)| {
            ns.saturating_sub(earlier.0.get(thread).copied().unwrap_or(0)) as f64
        };
        self.0.iter().map(spent).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(tasks: &Path, thread: u32, comm: &str, ns: u64) {
        let folder = tasks.join(thread.to_string());
        std::fs::create_dir_all(&folder).expect("made");
        std::fs::write(folder.join("comm"), format!("{comm}\n")).expect("written");
        std::fs::write(folder.join("schedstat"), format!("{ns} 17 3\n")).expect("written");
    }

    #[test]
    fn only_those_that_serve_these_workers_count() {
        let tasks = tempfile::tempdir().unwrap();
        let at = tasks.path();
        // Worker 11 has two helpers, worker 12 of another crew has one.
        task(at, 10, "pathline", 5_000_000);
        task(at, 11, "pathline-io0", 7_000_000);
        task(at, 12, "pathline-io0", 7_000_000);
        task(at, 21, "iou-wrk-11", 100_000);
        task(at, 23, "iou-wrk-12", 900_000);
        let ours = BTreeSet::from([11]);
        let before = KernelHelpers::listed(at, &ours);
        assert_eq!(before.0, BTreeMap::from([(21, 100_000)]));
        task(at, 21, "iou-wrk-11", 350_000);
        task(at, 22, "iou-wrk-11", 40_000);
        task(at, 23, "iou-wrk-12", 990_000);
        // 350 - 100 us, and 40 us of the one that is new.
        assert_eq!(KernelHelpers::listed(at, &ours).since(&before), 290_000.0);
        assert_eq!(KernelHelpers::listed(at, &BTreeSet::from([12])).since(&before), 990_000.0);
        assert_eq!(KernelHelpers::listed(at, &BTreeSet::new()).0, BTreeMap::new());
    }

    #[test]
    fn numbers_of_an_outer_namespace_are_taken_for_ours() {
        let tasks = tempfile::tempdir().unwrap();
        task(tasks.path(), 11, "pathline-io0", 7_000_000);
        task(tasks.path(), 21, "iou-wrk-70311", 100_000);
        let helpers = KernelHelpers::listed(tasks.path(), &BTreeSet::from([11]));
        assert_eq!(helpers.since(&KernelHelpers::default()), 100_000.0);
    }
}
