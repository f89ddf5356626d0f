//! Messages and collectives as other tools print them.

use crate::common::messages::*;
use crate::common::*;
use pathline_report::format;

#[test]
fn osu_prints_its_own_columns() {
    insta::assert_snapshot!(format::osu(&messages()).expect("MPI cases"));
}

#[test]
fn nccl_tests_prints_its_own_table() {
    insta::assert_snapshot!(format::nccl_tests(&messages()).expect("collectives"));
}

#[test]
fn a_run_without_messages_says_what_measures_some() {
    let none = run(0, vec![at_rate("local", "gpu0.vram > gpu0.vram by dma@gpu0 x 1MiB", 600.0)]);
    assert!(format::osu(&none).expect_err("no MPI").contains("--suite mpi-latency"));
    assert!(format::nccl_tests(&none).expect_err("no NCCL").contains("--suite ccl-collectives"));
}

#[test]
fn nccl_tests_has_a_row_for_registered_buffers_only() {
    let text = format::nccl_tests(&registered_and_not()).expect("collectives");
    assert_eq!(text.lines().filter(|l| l.trim_start().starts_with("268435456")).count(), 1);
}
