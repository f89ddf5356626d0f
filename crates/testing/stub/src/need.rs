//! Requirements of tests: a library, a mount, a kernel feature.
//!
//! A test either passes or fails, so one that cannot run would count as passed. It calls
//! [`missing`] before it returns, which fails the test if the machine promises the requirement, and
//! records it otherwise.

use std::io::Write;

/// Requirements that this machine promises, separated by commas: a test that lacks one of them
/// fails. `cc`, `c++`, `python`, `mpich`, `openmpi`, `mpi-abi`, `ucx`, `s3`, `cuda`, `hip`, `llvm-objdump`, `mount`,
/// `loop`, `uring`, `aio`, `sync`, `taskset`, `unshare`, `netns`, `dev-full`, `ulimit`, `user`,
/// `other-user`, `fuse`, `browser`.
pub const REQUIRED: &str = "PATHLINE_TEST_REQUIRE";

/// A file to which each test that could not run appends a line.
pub const NOT_RUN: &str = "PATHLINE_TEST_NOT_RUN";

/// Records that the calling test, or part of it, cannot run without `what`.
///
/// # Panics
/// `what` is promised, or the record cannot be written.
pub fn missing(what: &str, why: &str) {
    let required = std::env::var(REQUIRED).unwrap_or_default();
    let promised = required.split(',').any(|name| name.trim() == what);
    assert!(!promised, "{REQUIRED} promises {what}, which is not here: {why}");
    let thread = std::thread::current();
    let line = format!("{}: no {what}: {why}\n", thread.name().unwrap_or("a test"));
    // Standard error of a passing test is not shown.
    let Some(path) = std::env::var_os(NOT_RUN) else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
    let kept = file.and_then(|mut file| file.write_all(line.as_bytes()));
    assert!(kept.is_ok(), "{NOT_RUN}={}: {kept:?}", path.display());
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// Runs the test `lacking` of this binary with promised requirements; returns whether it
    /// passed, and its record.
    fn lacking(promised: &str) -> (bool, String) {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("not-run");
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "need::tests::lacks_something"])
            .env("PATHLINE_TEST_LACKS", "1")
            .env(super::REQUIRED, promised)
            .env(super::NOT_RUN, &record)
            .output()
            .unwrap()
            .status;
        (status.success(), std::fs::read_to_string(&record).unwrap_or_default())
    }

    /// Runs only inside the next test.
    #[test]
    fn lacks_something() {
        if std::env::var_os("PATHLINE_TEST_LACKS").is_some() {
            super::missing("ucx", "no libucp.so.0");
        }
    }

    #[test]
    fn a_missing_promised_requirement_fails_the_test() {
        let line = "need::tests::lacks_something: no ucx: no libucp.so.0\n";
        assert_eq!(lacking("mpich,openmpi"), (true, line.to_owned()));
        assert_eq!(lacking("mpich, ucx"), (false, String::new()));
        // Part of a name promises nothing.
        assert_eq!(lacking("ucx2"), (true, line.to_owned()));
    }
}
