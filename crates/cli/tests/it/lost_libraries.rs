//! Libraries of vendors that crash, hang or end the process that opens them, in runs of several
//! processes: each costs its own cases, and cases that need none of them are measured.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{command, is_whole, journal, library, unwrapped};
use pathline_schema::{CaseOutcome, Journal, Transport};
use tempfile::TempDir;

/// A case that needs no library at all.
const SHM: &str = "r0.numa0.huge > r1.numa0.huge by shm@numa0[ping,memcpy+memcpy] x 8B";
/// Faults of a library, in C.
const CRASH: &str = "*(volatile int *)0 = 0;";
const HANG: &str = "for (;;) pause();";
const EXIT: &str = "printf(\"goodbye from a library\\n\"); fflush(stdout); _exit(0);";
const HEAD: &str = "#include <stdio.h>\n#include <unistd.h>\n#include <string.h>\n";

/// A library that does that as soon as it is opened.
fn at_once(what: &str) -> String {
    format!("{HEAD}__attribute__((constructor)) static void begin(void) {{ {what} }}\n")
}

/// A library of MPI's names, of MPICH's binary interface, that does that in one function.
fn mpi(function: &str, what: &str) -> String {
    let names = "Initialized Finalize Abort Comm_rank Comm_size Comm_group Group_incl Group_free \
                 Comm_create_group Comm_free Comm_create_errhandler Comm_set_errhandler \
                 Error_string Barrier Send Recv Isend Irecv Wait Waitall Bcast Reduce Allreduce \
                 Reduce_scatter_block Allgather Alltoall Gather Scatter Gatherv Scatterv Allgatherv \
                 Alltoallv Type_contiguous Type_commit Type_free Test Testall \
                 Cancel Request_free";
    let mut source = HEAD.to_owned();
    for name in names.split_whitespace() {
        source.push_str(&format!("int MPI_{name}(void) {{ return 0; }}\n"));
    }
    let body = |name: &str| if name == function { what } else { "" };
    source
        .push_str(&format!("int MPI_Init_thread(void) {{ {} return 0; }}\n", body("Init_thread")));
    source.push_str(&format!(
        "int MPI_Get_library_version(char *to, int *len) {{ {} strcpy(to, \"MPICH Version: 5.0.2\\n\"); \
         *len = strlen(to); return 0; }}\n",
        body("Get_library_version")
    ));
    source
}

fn outcome(output: &Output, out: &Path) -> Journal {
    let printed = unwrapped(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let journal = journal(out);
    is_whole(&journal, 1);
    assert!(matches!(journal.outcomes[0], CaseOutcome::Measured(_)), "{:?}", journal.outcomes);
    journal
}

/// Arguments of all runs here. A step may take 0.6 of the deadline: enough on a busy machine.
const ARGS: [&str; 6] = ["--case", SHM, "--case-budget", "20", "--case-deadline", "20"];

/// A run of two processes that finds libraries in `libraries` first.
fn run(libraries: &Path, out: &Path) -> Command {
    let mut command = command(&[&["--ranks", "2"], &ARGS[..]].concat(), out);
    command.env("LD_LIBRARY_PATH", libraries);
    for name in ["PATHLINE_CUDA", "PATHLINE_HIP", "PATHLINE_UCX", "PATHLINE_MPI"] {
        command.env_remove(name);
    }
    command
}

#[test]
fn a_broken_libucp_costs_only_cases_of_ucx() {
    for (what, reason) in [
        (CRASH, "signal 11 (SIGSEGV)"),
        (EXIT, "ended with code 0; its last output was: goodbye from a library"),
        // The limit of one call and that of all calls end at the same time.
        (HANG, "10 s"),
    ] {
        let dir = TempDir::new().unwrap();
        library(dir.path(), "libucp.so.0", &at_once(what));
        let out = dir.path().join("run");
        let journal = outcome(&run(dir.path(), &out).output().unwrap(), &out);
        for member in &journal.begin.ranks {
            let why = member.without.get(&Transport::Ucx).unwrap();
            assert!(why.contains(reason) && why.contains("PATHLINE_UCX"), "{why}");
            assert!(member.ways.contains_key(&Transport::Shm));
        }
    }
}

#[test]
fn a_broken_cuda_driver_costs_only_cases_of_gpus() {
    for (what, reason) in [(CRASH, "signal 11"), (EXIT, "ended with code 0")] {
        let dir = TempDir::new().unwrap();
        library(dir.path(), "libcuda.so.1", &at_once(what));
        let out = dir.path().join("run");
        let journal = outcome(&run(dir.path(), &out).output().unwrap(), &out);
        for member in &journal.begin.ranks {
            let why = member.without.get(&Transport::Ccl).unwrap();
            assert!(why.contains(reason), "{why}");
        }
    }
}

#[test]
fn a_broken_nvml_costs_only_cases_of_gpus() {
    let dir = TempDir::new().unwrap();
    library(dir.path(), "libnvidia-ml.so.1", &at_once(CRASH));
    let out = dir.path().join("run");
    let journal = outcome(&run(dir.path(), &out).output().unwrap(), &out);
    let why = journal.begin.ranks[0].without.get(&Transport::Ccl).unwrap();
    assert!(why.contains("signal 11"), "{why}");
}

/// A library that the process of the run survives and its ranks do not.
#[test]
fn a_library_that_only_ranks_are_lost_over_is_named_and_left_out() {
    for (what, reason) in [(CRASH, "signal 11"), (HANG, "did not answer for 12 s")] {
        let dir = TempDir::new().unwrap();
        let in_ranks = format!(
            "char line[64] = {{0}}; FILE *f = fopen(\"/proc/self/cmdline\", \"r\"); \
             fread(line, 1, 63, f); if (!strcmp(line + strlen(line) + 1, \"rank\")) {{ {what} }}"
        );
        library(dir.path(), "libcuda.so.1", &at_once(&in_ranks));
        let out = dir.path().join("run");
        let journal = outcome(&run(dir.path(), &out).output().unwrap(), &out);
        let why = journal.begin.ranks[1].without.get(&Transport::Ccl).unwrap();
        assert!(why.contains("NVML and the GPU runtime") && why.contains(reason), "{why}");
        let note = journal.notes.iter().find(|n| n.code == "gpus-left-out").unwrap();
        assert!(note.text.contains(reason), "{}", note.text);
    }
}

/// Two processes as a launcher would start them, with that MPI.
fn launched(mpi: &Path, out: &Path, job: &str) -> (Output, Output) {
    let start = |rank: &str| {
        let mut command = command(&ARGS, out);
        command.env("PMI_RANK", rank).env("PMI_SIZE", "2").env("PATHLINE_MPI", mpi);
        // As processes of one job, which no other test has.
        command.env("PALS_APID", format!("{}-{job}", std::process::id()));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let (other, first) = (start("1"), start("0"));
    (first.wait_with_output().unwrap(), other.wait_with_output().unwrap())
}

#[test]
fn a_broken_mpi_under_a_launcher_costs_only_cases_of_mpi() {
    let functions = [
        ("at once", CRASH, "signal 11 (SIGSEGV)"),
        ("at once", EXIT, "ended with code 0"),
        ("Get_library_version", CRASH, "signal 11 (SIGSEGV)"),
        // Not before it is initialised, which only a rank does.
        ("Init_thread", CRASH, "cost a process (rank "),
        ("Init_thread", EXIT, "cost a process (rank "),
    ];
    for (nth, (function, what, reason)) in functions.into_iter().enumerate() {
        let dir = TempDir::new().unwrap();
        let source = if function == "at once" { at_once(what) } else { mpi(function, what) };
        let file = library(dir.path(), "libmpi.so.12", &source);
        let out = dir.path().join("run");
        let begun = Instant::now();
        let (first, other) = launched(&file, &out, &format!("mpi{nth}"));
        let journal = outcome(&first, &out);
        let printed = unwrapped(&other.stderr);
        assert!(other.status.success(), "{function}: {printed}");
        for member in &journal.begin.ranks {
            let why = member.without.get(&Transport::Mpi).unwrap();
            assert!(why.contains(reason) && why.contains("PATHLINE_MPI"), "{function}: {why}");
        }
        assert!(begun.elapsed() < Duration::from_secs(100), "{function}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_hanging_mpi_under_a_launcher_costs_only_cases_of_mpi() {
    let dir = TempDir::new().unwrap();
    let file = library(dir.path(), "libmpi.so.12", &mpi("Init_thread", HANG));
    let out = dir.path().join("run");
    let (first, other) = launched(&file, &out, "hang");
    let journal = outcome(&first, &out);
    assert!(other.status.success(), "{}", unwrapped(&other.stderr));
    let why = journal.begin.ranks[1].without.get(&Transport::Mpi).unwrap();
    assert!(why.contains("the MPI library") && why.contains("did not answer"), "{why}");
}
