//! Messages and collectives as other tools print them.

use crate::common::messages::*;
use crate::common::*;
use pathline_report::format;

#[test]
fn osu_prints_its_own_columns() {
    insta::assert_snapshot!(format::osu(&messages()).expect("MPI cases"));
}

#[test]
fn osu_prints_a_block_for_every_pair_and_setting() {
    let case = |to: u32, agent: &str| {
        format!("r0.gpu0.vram > r{to}.gpu{to}.vram by mpi@gpu0[send-w64{agent}] x 16MiB")
    };
    // 64 x 16 MiB in 20 ms are 53687 MB/s.
    let outcomes = [case(1, ",engine"), case(1, ",blit"), case(7, ",blit")]
        .map(|case| timed("mpi-peers", &case, 20_000.0, &[20_000.0]))
        .into();
    let text = format::osu(&run(8, outcomes)).expect("MPI cases");
    for block in [
        "ranks 0 and 1, vram, HSA_ENABLE_SDMA=1",
        "ranks 0 and 1, vram, HSA_ENABLE_SDMA=0",
        "ranks 0 and 7, vram, HSA_ENABLE_SDMA=0",
    ] {
        assert_eq!(text.matches(block).count(), 1, "{text}");
    }
    assert_eq!(text.matches("16777216            53687.09").count(), 3, "{text}");
}

#[test]
fn nccl_tests_prints_its_own_table() {
    insta::assert_snapshot!(format::nccl_tests(&messages()).expect("collectives"));
}

#[test]
fn tables_name_type_operation_and_root() {
    let ccl = |op: &str, size: &str| {
        let case = format!("r0.gpu0.vram > r3.gpu3.vram by ccl@gpu0[{op}] x {size}");
        timed("collective-types", &case, 16.0, &[16.0; 4])
    };
    let mpi = |op: &str, size: &str| {
        let case = format!("r0.gpu0.vram > r3.gpu3.vram by mpi@gpu0[{op}] x {size}");
        timed("mpi-collectives", &case, 15.0, &[15.0; 4])
    };
    let journal = run(
        4,
        vec![
            ccl("all_reduce-bf16-max", "1MiB"),
            ccl("reduce-fp8e4m3-avg", "1MiB"),
            ccl("gather", "1MiB"),
            mpi("all_reduce-float", "4B"),
            mpi("scatter", "1KiB"),
        ],
    );
    let rows: Vec<String> = format::nccl_tests(&journal)
        .expect("collectives")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split_whitespace().take(5).collect::<Vec<_>>().join(" "))
        .collect();
    // 1 MiB are 524288 elements of bf16; a gathered part is a quarter.
    assert_eq!(
        rows,
        [
            "1048576 1048576 f8e4m3 avg 0",
            "1048576 524288 bfloat16 max -1",
            "1048576 262144 uint8 none 0"
        ]
    );
    let osu = format::osu(&journal).expect("MPI cases");
    assert!(osu.contains("Allreduce Latency Test v7.5\n# Datatype: MPI_FLOAT."), "{osu}");
    // OSU counts what the root gives to one rank.
    assert!(osu.contains("Scatter Latency Test v7.5\n# Datatype: MPI_CHAR."), "{osu}");
    assert!(osu.lines().any(|line| line.starts_with("256 ")), "{osu}");
}

#[test]
fn a_run_without_messages_says_what_measures_some() {
    let none = run(0, vec![at_rate("local", "gpu0.vram > gpu0.vram by dma@gpu0 x 1MiB", 600.0)]);
    assert!(format::osu(&none).expect_err("no MPI").contains("pathline run mpi-latency"));
    assert!(
        format::nccl_tests(&none).expect_err("no NCCL").contains("pathline run ccl-collectives")
    );
}

#[test]
fn nccl_tests_has_a_row_for_registered_buffers_only() {
    let text = format::nccl_tests(&registered_and_not()).expect("collectives");
    assert_eq!(text.lines().filter(|l| l.trim_start().starts_with("268435456")).count(), 1);
}
