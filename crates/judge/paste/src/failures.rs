//! Lines by which a tool states that it failed or that its results are wrong. Warnings, retries and counters are
//! none, and neither is text that documents an error or asks about one.

use crate::number::number;

/// Longest line that is looked at, bytes.
const MAX_LINE: usize = 1000;
/// Words before the severity of a line: time, host, process, file, component.
const MAX_BEFORE: usize = 8;

/// What loggers name a line that ends the work.
const SEVERE: [&str; 4] = ["ERROR", "FATAL", "CRITICAL", "PANIC"];
/// What is no failure, whatever else the line says, in lower case.
const HARMLESS: &str = "nccl info|warn|debug| diag |retrying|will retry|falling back|fallback|ignor|no error|0 errors|\
                        non-fatal|corrected|severity=correctable| correctable|error rate|error count|printf(|echo |assert(|grep |error: spank: ";
/// What tools and launchers say of failures without a severity, in lower case.
const STATED: &str = "validation failed|failed validation|validation error|verification failed|verify failed|\
                      verify: bad|verify type mismatch|data mismatch|data check error|miscompare|wrong result|\
                      incorrect result|incorrect data|result = fail|result: fail|nccl failure|test failure|\
                      mpi_abort was invoked|application called mpi_abort|cuda error|cuda failure|hip error|\
                      hip failure|cuda_error_|segmentation fault|core dumped|caught signal|\
                      process received signal|invalid value when checking the pattern|unhandled system error|\
                      unhandled cuda error|exited on signal|fatal error|non-zero exit code|nccl error|completion with error|failed status|terminate called after|\
                      error while loading shared libraries|command not found|assertion failed";
/// What says that something is over whatever the severity of its line, in lower case.
const FINAL: &str = "fallen off the bus|got completion from peer|got completion with error|retry count exceeded|\
                     aborting reset|removing after probe failure|\
                     watchdog caught collective operation timeout";
/// Words of those who ask and explain, in lower case.
const TOLD: &str = " you | your | if | when | i | i'm | my | we | may | might | could | should | means | because |?";

/// What people write of messages that they do not have, or ask about, in lower case.
const DENIED: &str = " no | not | never | none | without | whether | if | when | should | would | does | mean | means |\
                      which | others | isn't | doesn't | hasn't | haven't | gone ";
/// Who writes so; texts of libraries address a `you`.
const WRITERS: &str = " i | i'm | we | our | my | us | others ";
/// What loggers print, in lower case.
const LOGGED: [&str; 8] = ["nccl info", "nccl warn", "kernel:", ".c:", ".cc:", "] ", "0x", "nvrm:"];

/// Whether a line is a sentence of somebody who denies a message or asks about it, in lower case: no such message was
/// printed.
pub fn is_of_no_message(line: &str) -> bool {
    let line = line.trim();
    let words = format!(" {} ", line.replace([',', ':', '?', '.'], " "));
    let has = |list: &str| list.split('|').any(|part| words.contains(part));
    let is_over =
        words.contains(" no longer ") || line.starts_with("no ") && words.contains(" since ");
    let is_written = line.ends_with('?') || has(WRITERS);
    !LOGGED.iter().any(|mark| line.contains(mark)) && (is_over || is_written && has(DENIED))
}

/// Whether a tool states by this line that it failed.
pub(crate) fn states_failure(text: &str) -> bool {
    if text.len() > MAX_LINE || text.contains('`') || text.ends_with([';', '{']) {
        return false;
    }
    let lower = format!(" {} ", text.to_lowercase());
    let has = |list: &str| list.split('|').any(|part| lower.contains(part));
    if has(FINAL) && !has(TOLD) && !is_of_no_message(&lower) {
        return true;
    }
    if has(HARMLESS) || is_of_compiler(text) {
        return false;
    }
    // Rows of tables and items of lists tell of what may be.
    if text.starts_with(['|', '+']) || text.starts_with("* ") || text.starts_with("- ") {
        let is_failed = |cell: &str| {
            ["Fail", "FAIL", "FAILED"]
                .contains(&cell.split(' ').find(|word| !word.is_empty()).unwrap_or(""))
        };
        return text.starts_with('|') && text.split('|').any(is_failed) && !lower.contains("pass");
    }
    is_severe(text) || has_code(&lower) || (has(STATED) || ends_in_failure(text)) && !has(TOLD)
}

/// `common.cu:335:38: error: text`, `a.c:12: undefined reference`, `make: *** [all] Error 2`: a program that was not
/// built says nothing of a node.
fn is_of_compiler(text: &str) -> bool {
    let has = |parts: &str| parts.split('|').any(|part| text.contains(part));
    has(".cu:|.cuh:|.c:|.cc:|.cpp:|.h:|.hpp:|.hip:|.f90:")
        && has(": error:|: fatal error:|: undefined reference")
        || text.starts_with("make") && has("] Error ")
        || has("ld returned 1 exit status")
}

/// `UCX  ERROR text`, `[ERROR] text`, `RuntimeError: text`; of `Average error: 1e-9` the figure is the result.
fn is_severe(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().take(MAX_BEFORE + 2).collect();
    let severe = words.iter().take(MAX_BEFORE).position(|word| {
        let name = word.trim_matches(['[', ']', '(', ')', '<', '>', ':', '|', '*']);
        let lower = word.to_lowercase();
        let is_tag =
            word.starts_with(['[', '<']) && ["error", "fatal"].contains(&&*name.to_lowercase());
        SEVERE.contains(&name) || is_tag || lower.ends_with("error:") || lower.ends_with("fatal:")
    });
    let next = severe.and_then(|at| words.get(at + 1)).copied().unwrap_or_default();
    let is_value = number(next).is_some() || ["none", "N/A", "no", "No"].contains(&next);
    // A header has capitals alone.
    !next.is_empty() && !is_value && text.contains(|c: char| c.is_lowercase())
}

/// `err= 5` of fio, `ret=-61` of libfabric's tests, in lower case.
fn has_code(lower: &str) -> bool {
    let code = |name: &str| {
        let rest = lower.split(name).nth(1)?.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end)?.parse::<u32>().ok().filter(|code| *code > 0)
    };
    let of_fio = lower.contains("groupid=") || lower.contains(" fio:");
    of_fio && code(" err=").is_some() || code(" ret=-").is_some()
}

/// `Test 3: FAILED`, `1024  12.5  Fail`; `0 failed`, the header `Pass  Fail` and sentences are none.
fn ends_in_failure(text: &str) -> bool {
    let mut words = text.split_whitespace().rev();
    let last = words.next().unwrap_or_default();
    let before = words.next().unwrap_or_default();
    let is_told = last.starts_with('f') && !before.ends_with(':') && number(before).is_none();
    let is_last = ["fail", "failed", "failed!", "faulty"].contains(&&*last.to_lowercase());
    let is_header = number(before).is_none() && text.to_lowercase().contains("pass");
    is_last
        && !is_told
        && !is_header
        && !before.is_empty()
        && before != "0"
        && words.count() < MAX_BEFORE
}

/// Headings and phrases of manuals, in lower case.
const MANUAL: &str = "if you see|if you get|if you encounter|you may see|you might see|you will see|is printed when|is returned when|\
                      ## usage|## install|## building|## requirements|## options|## license|## contributing";

/// Headings that a sentence may have as words, too.
const HEADINGS: &str = "synopsis|troubleshooting|common errors|known issues|frequently asked";
/// Words of a heading at most.
const MAX_HEADING: usize = 6;

/// Whether a line is one of a manual or README.
pub(crate) fn is_manual(text: &str) -> bool {
    let lower = text.to_lowercase();
    let has = |list: &str| list.split('|').any(|part| lower.contains(part));
    let is_heading = text.split_whitespace().count() <= MAX_HEADING && has(HEADINGS);
    text.len() <= MAX_LINE && (is_heading || has(MANUAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_about_messages_are_none() {
        for line in [
            "our H100 pair has never shown an uncorrectable NVLink error.",
            "does Xid 79 mean the GPU has fallen off the bus? we have not seen it.",
            "after the reseat, GPU has fallen off the bus no longer appears",
            "No AER PCIe Bus Error: severity=Uncorrected lines in dmesg since the new riser.",
            "we alert when the driver reports an uncorrectable NVLink error",
        ] {
            assert!(is_of_no_message(&line.to_lowercase()), "{line}");
            assert!(!states_failure(line), "{line}");
        }
        for line in [
            "[ 5.1] NVRM: GPU 0000:09:00.0: GPU has fallen off the bus. It is not accessible.",
            "our node: GPU has fallen off the bus",
            "ibv_modify_qp failed with error No such device",
            "i get 'uncorrectable NVLink error' on GPU 3.",
        ] {
            assert!(!is_of_no_message(&line.to_lowercase()), "{line}");
        }
        let corrected =
            "[ 36.7] pcieport 0000:00:00.0: PCIe Bus Error: severity=Correctable, (Receiver ID)";
        assert!(!states_failure(corrected));
    }

    #[test]
    fn what_tools_print_when_they_fail_is_found() {
        for line in [
            "Validation failed on a[]. Average error 0.37",
            "NVRM: GPU 0000:09:00.0: GPU has fallen off the bus.",
            "node:98:13 [4] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<44206> with status=12 opcode=129",
            "ib_mlx5_log.c:139  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81)",
            "[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)",
            "n7: Test NCCL failure reduce.cu:88 'unhandled system error / '",
            "# Out of bounds values : 4 FAILED",
            "[Error] Invalid value when checking the pattern at 0x7f",
            "DATA VALIDATION ERROR: osu_bw exited with status 1 on message size 64.",
            "2048    3.14    Fail",
            "| memory bandwidth | Fail - GPU: 3 |",
            "Fatal error in PMPI_Send: Other MPI error, error stack:",
            "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
            "j1: (groupid=0, jobs=1): err=84 (file:io_u.c:9, func=io_u error): pid=5",
            "fi_endpoint(): common/shared.c:7, ret=-12 (Cannot allocate memory)",
            "ior ERROR: open64() failed, errno 2, No such file (aiori.c:4)",
            "[1700.5] [n1:44:0] ib.c:17  UCX  ERROR Transport retry count exceeded on mlx5_0:1",
            "RuntimeError: CUDA error: out of memory",
            "2026-01-02 03:04:05,678 - ERROR - cannot allocate the buffer",
            "bench.sh: line 3: 412 Segmentation fault      (core dumped) ./bench",
        ] {
            assert!(states_failure(line), "{line}");
        }
    }

    #[test]
    fn counters_warnings_and_questions_are_no_failures() {
        for line in [
            "Average error: 1.2e-9",
            "rx_errors: 0",
            "symbol_error: 12",
            "NODE  ERROR  TOTAL",
            "Error Information (NVMe Log 0x01, 16 of 64 entries)",
            "j1: (groupid=0, jobs=1): err= 0: pid=5",
            "[WARN] ERROR while connecting, attempt 2",
            "ERROR: timeout, retrying in 5 s",
            "why do I get a CUDA error here?",
            "Call `run` again after a segmentation fault",
            "if (err) fprintf(stderr, \"ERROR: %s\", text);",
            "12 passed, 0 failed",
            "| 2 | CUDA error, see below |",
            "| Failures | 0 |",
            "* Fixed a segmentation fault in the server",
            "Test  Pass  Fail",
            "loading of the optional plugin failed",
            "n1:4:5 [0] NCCL INFO Call to connect failed, ERROR: text",
            "pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer",
            "common.cu:335:38: error: missing binary operator before token \"(\"",
            "src/a.hpp:12: fatal error: mpi.h: No such file or directory",
            "make: *** [Makefile:20: all] Error 2",
            "collect2: error: ld returned 1 exit status",
        ] {
            assert!(!states_failure(line), "{line}");
        }
        assert!(is_manual("## Troubleshooting") && !is_manual("## What happened"));
    }
}
