//! Each suite has a figure, and each figure a suite.

use pathline_explain::run_report;
use pathline_schema::{CaseOutcome, Journal, SuiteId};

use crate::common::messages::{run, timed};
use crate::common::storage::{grid_run, storage_run};
use crate::common::*;

/// A run of the least that its figure is drawn from. Does not compile until a new suite is here.
fn journal_of(suite: SuiteId) -> Journal {
    let name = suite.word();
    let rates = |cases: &[&str]| -> Journal {
        run(0, cases.iter().map(|case| at_rate(name, case, 10.0)).collect())
    };
    let times = |cases: &[&str]| -> Journal {
        run(0, cases.iter().map(|case| at_latency(name, case, 1e3)).collect())
    };
    let message = |by: &str, op: &str, size: &str| -> CaseOutcome {
        let (unit, mem) = if by == "ccl" { ("gpu", "vram") } else { ("numa", "huge") };
        let to = if by == "ccl" { 1 } else { 0 };
        let case = format!("r0.{unit}0.{mem} > r1.{unit}{to}.{mem} by {by}@{unit}0[{op}] x {size}");
        timed(name, &case, 9000.0, &[8000.0, 9000.0])
    };
    let between = |all: Vec<CaseOutcome>| -> Journal { run(4, all) };
    match suite {
        SuiteId::Host => host_run(),
        SuiteId::Local => rates(&["gpu0.vram > gpu0.vram by dma@gpu0 x 256MiB"]),
        SuiteId::HostLink => rates(&["numa3.pinned > gpu0.vram by dma@gpu0 x 256MiB"]),
        SuiteId::Pairs => rates(&["gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB"]),
        SuiteId::Latency => {
            times(&["gpu1.vram > gpu0.reg by kernel@gpu0[chase-w8-u1-b1-g1] x 2MiB"])
        }
        SuiteId::Sweep => rates(&[
            "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB",
            "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB",
        ]),
        SuiteId::Fan | SuiteId::Routes => mi250x_run(),
        SuiteId::Patterns => rates(&["gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB & \
             gpu1.vram > gpu2.vram by dma@gpu1 x 256MiB & \
             gpu2.vram > gpu0.vram by dma@gpu2 x 256MiB"]),
        SuiteId::Managed => {
            rates(&["numa3.managed > gpu0.managed by migrate@gpu0[fault] x 256MiB"])
        }
        SuiteId::Overhead => times(&["gpu0.reg > gpu0.reg by call@gpu0[launch] x 1B isolated"]),
        SuiteId::Overlap => {
            let copy = "numa3.pinned > gpu0.vram by dma@gpu0 x 256MiB";
            let triad = "gpu0.vram > gpu0.vram by kernel@gpu0[triad-w16-u4-b256-g2sm] x 256MiB";
            times(&[copy, triad, &format!("{copy} while {triad}")])
        }
        SuiteId::NumaGpu => rates(&[
            "numa0.pinned > gpu0.vram by dma@gpu0 x 256MiB",
            "numa3.pinned > gpu0.vram by dma@gpu0 x 256MiB",
        ]),
        SuiteId::Multipath => rates(&["gpu2.vram > gpu0.vram by relay@gpu0[gpu1,4MiB] x 1GiB"]),
        SuiteId::Load => rates(&["numa3.paged > gpu0.vram by threads@gpu0[8] x 1GiB"]),
        SuiteId::Blocks => rates(&["numa3.pinned > gpu0.vram by blocks@gpu0[4096-g8] x 16MiB"]),
        SuiteId::Contention | SuiteId::Concurrent => {
            let (a, b) = (
                "numa0.pinned > gpu0.vram by dma@gpu0 x 64MiB",
                "numa0.pinned > gpu1.vram by dma@gpu1 x 64MiB",
            );
            rates(&[a, b, &format!("{a} & {b}")])
        }
        SuiteId::MpiLatency => between(vec![message("mpi", "ping", "8B")]),
        SuiteId::MpiBandwidth => between(vec![message("mpi", "send-w64", "1MiB")]),
        SuiteId::MpiBothWays => between(vec![message("mpi", "send-w64", "1MiB")]),
        SuiteId::MpiOneSided => between(vec![message("mpi", "put-w64", "1MiB")]),
        SuiteId::MpiWindows => between(vec![message("mpi", "put-w1,allocate,fence", "8B")]),
        SuiteId::MpiAtomics => between(vec![message("mpi", "fetch-add", "8B")]),
        SuiteId::MpiMultiLatency => between(vec![message("mpi", "ping", "8B")]),
        SuiteId::MpiOverlap => between(vec![message("mpi", "iall_reduce", "1MiB")]),
        SuiteId::MpiPersistent => between(vec![message("mpi", "persistent-ping", "8B")]),
        SuiteId::MpiMixed => rates(&["r0.gpu0.vram > r1.numa3.paged by mpi@gpu0[send-w64] x 1MiB"]),
        SuiteId::MpiPairs => between(vec![message("mpi", "send-w64", "1MiB")]),
        SuiteId::MpiPeers => {
            rates(&["r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w64,blit] x 16MiB"])
        }
        SuiteId::MpiConcurrent | SuiteId::Net => between(vec![message("mpi", "send-w64", "1MiB")]),
        SuiteId::MpiCollectives => between(vec![message("mpi", "all_reduce", "1MiB")]),
        SuiteId::CclCollectives => between(vec![message("ccl", "all_reduce", "1MiB")]),
        SuiteId::CollectiveTypes => between(vec![message("ccl", "all_reduce-bf16-max", "1MiB")]),
        SuiteId::CclPairs => between(vec![message("ccl", "send-w64", "1MiB")]),
        SuiteId::Ucx => between(vec![message("ucx", "ping", "8B")]),
        SuiteId::UcxMixed => rates(&["r0.gpu0.vram > r0.numa3.paged by ucx@gpu0[send-w64] x 1MiB"]),
        SuiteId::UcxSwitches => between(vec![
            message("ucx", "send-w64", "1MiB"),
            message("ucx", "send-w64,rndv-put", "1MiB"),
        ]),
        SuiteId::MpiSwitches => between(vec![
            message("mpi", "all_reduce,proto-v1", "8B"),
            message("mpi", "all_reduce,proto-v2", "8B"),
        ]),
        SuiteId::Registration => {
            times(&["numa0.paged > numa0.reg by call@numa0[nic-register] x 2MiB isolated"])
        }
        SuiteId::Shm => between(vec![
            message("shm", "send-w1,memcpy+memcpy,same-l3", "64KiB"),
            message("shm", "send-w1,memcpy+memcpy,same-l3", "1MiB"),
        ]),
        SuiteId::Storage => storage_run(),
        SuiteId::StorageGrid => grid_run(),
        SuiteId::StorageRanks => rates(&["r0.store0.file > r0.numa0.huge by \
             uring@numa0[seq-read,direct,shared,1GiB,q8,n1,t1] x 1MiB & r0.store0.file > r1.numa0.huge \
             by uring@numa0[seq-read,direct,shared,1GiB,q8,n1,t1] x 1MiB"]),
        SuiteId::Metadata => {
            times(&["numa0.reg > store0.file by meta@numa0[create,own,d4,f256,t2] x 1B"])
        }
    }
}

#[test]
fn each_suite_has_a_figure_and_each_figure_a_suite() {
    let mut bare = Vec::new();
    for &suite in SuiteId::ALL {
        let report = run_report::build(&journal_of(suite), None);
        if !report.figures.iter().any(|figure| figure.suite == suite.word()) {
            bare.push(suite);
        }
        for figure in &report.figures {
            // Cases that no suite's figure shows have one of their own.
            let known = figure.suite.parse::<SuiteId>().is_ok();
            assert!(known || figure.id == "cases", "{} of {:?}", figure.id, figure.suite);
        }
    }
    assert_eq!(bare, []);
}
