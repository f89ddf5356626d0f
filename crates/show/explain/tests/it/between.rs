//! Figures of what goes between processes, from journals made by hand.

use crate::common::messages::*;
use crate::common::shown::*;
use crate::common::*;
use pathline_explain::figure::{Figure, FigureBody, FigureCell};
use pathline_explain::run_report;
use pathline_schema::{CaseOutcome, SkippedCase};

fn at<'a>(figure: &'a Figure, row: &str, col: &str) -> &'a FigureCell {
    let FigureBody::Matrix(m) = &figure.body else { panic!("{} has no matrix", figure.id) };
    let find = |names: &[String], name: &str| names.iter().position(|n| n == name);
    let row = find(&m.rows, row).unwrap_or_else(|| panic!("{:?}", m.rows));
    let col = find(&m.cols, col).unwrap_or_else(|| panic!("{:?}", m.cols));
    &m.cells[row][col]
}

#[test]
fn other_tools_count_by_their_own_ranks() {
    let report = run_report::build(&messages(), None);
    // The latest rank took 2.1 us; rank 0, whom OSU asks, 2.0.
    let latency = figure(&report, "mpi-latency-osu");
    close(at(latency, "8B", "host memory").value, 2.1);
    close(at(latency, "8B", "host memory, osu_latency").value, 2.0);
    // 64 x 1 MiB are 67.1 MB: in 9 ms 7.46 GB/s, in rank 0's 8 ms 8.39.
    let rate = figure(&report, "mpi-bandwidth-osu");
    close(at(rate, "1MiB", "host memory").value, 67.108864 / 9.0);
    close(at(rate, "1MiB", "host memory, osu_bw").value, 67.108864 / 8.0);
    // (10 + 11 + 12 + 15) / 4 = 12; what OSU calls 256 KiB is a gathered MiB of 4 ranks.
    let osu = figure(&report, "mpi-collectives-osu-vram");
    for (col, us) in [("median, latest rank", 15.0), ("OSU avg", 12.0), ("OSU min", 10.0)] {
        close(at(osu, "all_reduce 8B", col).value, us);
        close(at(osu, "all_gather 256KiB", col).value, us);
    }
    // 1 MiB in 16 us is 65.5 GB/s; of 4 ranks the bus moves 2 x 3/4 of that.
    let nccl = figure(&report, "ccl-collectives-nccl-tests-vram");
    close(at(nccl, "all_reduce 1MiB", "algbw").value, 65.536);
    close(at(nccl, "all_reduce 1MiB", "busbw").value, 98.304);
    close(at(nccl, "broadcast 1MiB", "nccl-tests busbw").value, 32.768);
    let bus = figure(&report, "ccl-collectives-bus-vram");
    close(point(bus, "all_reduce x 1.5", 1048576.0).value, 98.304);
    let condition = |name: &str| {
        let found = report.conditions.iter().find(|(label, _)| label == name);
        found.map_or("", |(_, text)| text.as_str())
    };
    assert_eq!(condition("Processes"), "4 on nid001");
    assert!(condition("Ranks").starts_with("r0: gpu0, numa0, CPUs 0-7; r1: gpu1"));
    assert!(condition("Libraries").contains("mpi: Open MPI 5.0.11"));
    assert!(condition("Without").contains("xpmem: no /dev/xpmem"));
    assert!(
        report.headlines.iter().any(|h| h.text.starts_with("Messages by Open MPI 5.0.11: 8 B"))
    );
}

/// Copies of 64 KiB and 16 MiB: streaming stores are slower at first and faster then; loaded
/// afterwards, they lose at both.
fn copies() -> Vec<CaseOutcome> {
    let case = |op: &str, how: &str, size: &str| {
        format!("r0.numa0.huge > r1.numa0.huge by shm@numa0[{op},{how}+{how},same-l3] x {size}")
    };
    let us = [
        ("send-w1", "memcpy", "64KiB", 10.0),
        ("send-w1", "avx512-nt", "64KiB", 20.0),
        ("send-w1", "memcpy", "16MiB", 4000.0),
        ("send-w1", "avx512-nt", "16MiB", 2000.0),
        ("consume", "memcpy", "64KiB", 12.0),
        ("consume", "avx512-nt", "64KiB", 30.0),
        ("consume", "memcpy", "16MiB", 5000.0),
        ("consume", "avx512-nt", "16MiB", 6000.0),
    ];
    us.iter().map(|(op, how, size, us)| timed("shm", &case(op, how, size), *us, &[])).collect()
}

#[test]
fn the_fastest_copy_is_named_by_size_and_by_use() {
    let report = run_report::build(&run(2, copies()), None);
    let rate = figure(&report, "shm-rate-same-l3");
    assert_eq!(
        rate.finding,
        "Fastest: memcpy at 64KiB and avx512-nt at 16MiB. Streaming stores overtake all other loops \
         from 16MiB on (avx512-nt, 2.00 times there)."
    );
    assert!(
        figure(&report, "shm-consume-same-l3").finding.contains("never overtake"),
        "{:?}",
        figure(&report, "shm-consume-same-l3").finding
    );
    // 6000 us with its bytes loaded, 2000 us without.
    let paid = figure(&report, "shm-paid-same-l3");
    close(point(paid, "avx512-nt", 16_777_216.0).value, 4000.0);
    assert!(paid.finding.contains("16MiB (memcpy instead of avx512-nt)"), "{}", paid.finding);
    // Ripples of 0.8 % do not resolve 1 %, so no change of the fastest is claimed.
    let close_by: Vec<CaseOutcome> = ["memcpy", "avx512-nt"]
        .iter()
        .zip([1000.0, 1001.0])
        .map(|(how, us)| {
            let case = format!(
                "r0.numa0.huge > r1.numa0.huge by shm@numa0[send-w1,{how}+{how},same-l3] x 4MiB"
            );
            timed("shm", &case, us, &[])
        })
        .chain(copies())
        .collect();
    let report = run_report::build(&run(2, close_by), None);
    let finding = &figure(&report, "shm-rate-same-l3").finding;
    assert!(finding.starts_with("Fastest: memcpy from 64KiB to 4MiB and avx512-nt"), "{finding}");
}

#[test]
fn a_bystanders_share_is_shown_by_kind_of_stores() {
    let chase = "r0.numa0.huge > r0.numa0.reg by cpu@numa0[chase-plain-t1] x 4MiB";
    let one =
        |how: &str| format!("r0.numa0.huge > r0.numa0.huge by cpu@numa0[copy-{how}-t1] x 32MiB");
    let two = |how: &str| {
        format!("r0.numa0.huge > r1.numa0.huge by shm@numa0[send-w1,{how}+{how},same-l3] x 32MiB")
    };
    let during = |copy: String, us| timed("shm", &format!("{chase} while {copy}"), us, &[]);
    let outcomes = vec![
        timed("shm", chase, 1000.0, &[]),
        // 32 MiB in 4 ms.
        timed("shm", &one("avx512"), 4000.0, &[]),
        during(one("avx512"), 2000.0),
        during(one("avx512-ntl"), 1600.0),
        during(one("avx512-nt"), 1250.0),
        during(two("avx512-nt"), 1500.0),
    ];
    let report = run_report::build(&run(2, outcomes), None);
    let figure = figure(&report, "shm-bystander");
    // 33554432 B / 4e6 ns = 8.39 GB/s; 1000 us alone are 50 % of 2000.
    let row = "avx512 by a thread x 32MiB, 8.39 GB/s alone";
    let col = "dependent loads over 4MiB";
    close(at(figure, row, col).value, 50.0);
    close(at(figure, "avx512-nt by two processes x 32MiB", col).value, 100.0 / 1.5);
    assert_eq!(
        figure.finding,
        "Of all, dependent loads over 4MiB lose most. Of their rate alone they keep, during copies \
         with plain stores 50.0-62.5 % and during streaming copies 66.7-80.0 %; each copies 32MiB \
         at a time."
    );
}

#[test]
fn reductions_are_shown_by_type_and_operation() {
    let one = |op: &str, size: &str, us: f64| {
        let case = format!("r0.gpu0.vram > r3.gpu3.vram by ccl@gpu0[{op}] x {size}");
        timed("collective-types", &case, us, &[])
    };
    let outcomes = vec![
        one("all_reduce", "64MiB", 1000.0),
        one("all_reduce-max", "64MiB", 1000.0),
        one("all_reduce-fp8e4m3", "64MiB", 2000.0),
        one("all_reduce", "1KiB", 20.0),
    ];
    let report = run_report::build(&run(4, outcomes), None);
    let rates = figure(&report, "collective-types-ccl-vram-64MiB");
    let FigureBody::Matrix(m) = &rates.body else { panic!("{} has no matrix", rates.id) };
    assert_eq!(
        (&m.rows[..], &m.cols[..]),
        (&["uint64", "fp8e4m3"].map(String::from)[..], &["sum", "max"].map(String::from)[..])
    );
    // 67108864 B in 1 ms are 67.1 GB/s, times 1.5 for four ranks.
    close(m.cells[0][1].value, 67.108_864 * 1.5);
    close(m.cells[1][0].value, 67.108_864 * 0.75);
    assert_eq!(m.cells[1][1].value, None);
    let text = "From 50.3 GB/s (fp8e4m3 sum) to 101 GB/s (uint64 max), 2.00 times.";
    assert_eq!(rates.finding, text);
    let times = figure(&report, "collective-types-ccl-vram-1KiB");
    assert_eq!(times.finding, "No type or operation differs: 20.0 us.");
}

#[test]
fn registered_buffers_are_shown_next_to_others() {
    let report = run_report::build(&registered_and_not(), None);
    let figure = figure(&report, "ccl-collectives-registration-vram");
    // 268435456 B in 4 ms are 67.1 GB/s, times 1.75 for eight ranks.
    close(point(figure, "registered", 268_435_456.0).value, 268.435_456 / 4.0 * 1.75);
    close(point(figure, "not", 268_435_456.0).value, 268.435_456 / 5.0 * 1.75);
    assert_eq!(
        figure.finding,
        "Registered buffers have, of the rate of others: 256MiB 1.25 times."
    );
    // The other figures show registered buffers.
    let bus = self::figure(&report, "ccl-collectives-bus-vram");
    let FigureBody::Curves(curves) = &bus.body else { panic!("{} has no curves", bus.id) };
    assert_eq!(curves.lines.iter().map(|l| l.points.len()).sum::<usize>(), 2);
}

/// As one would be measured whose operations UCX describes so.
fn rendezvous(case: &str, us: f64, engine: &str) -> CaseOutcome {
    let CaseOutcome::Measured(mut measured) = timed("ucx-switches", case, us, &[]) else {
        panic!("{case} is measured")
    };
    for series in &mut measured.series {
        series.engine = engine.to_owned();
    }
    CaseOutcome::Measured(measured)
}

#[test]
fn a_switch_that_is_accepted_and_does_nothing_is_said_so() {
    let case = |switch: &str, size: &str| {
        format!("r0.numa0.paged > r1.numa0.paged by ucx@numa0[send-w64{switch}] x {size}")
    };
    let reads = "UCX 1.22.0: memory to host | UCX 1.22.0: tag_send read from remote cma/memory \
                 (expects 88.83 us); lanes cma/memory; memory from host";
    let set = |what: &str, text: &str| {
        text.replace("UCX 1.22.0:", &format!("UCX 1.22.0 with {what}:")).replace("88.83", "88.84")
    };
    let writes = reads.replace("read from", "flushed write to");
    let skip = SkippedCase {
        case: case(",rocm-dmabuf", "1MiB").parse().expect("a case"),
        suites: vec!["ucx-switches".into()],
        why: "UCX 1.22.0 knows no UCX_ROCM_COPY_DMABUF".into(),
    };
    let outcomes = vec![
        rendezvous(&case("", "1MiB"), 8000.0, reads),
        rendezvous(&case("", "64KiB"), 800.0, reads),
        // Half the time; as fast, 4 % more; the same protocol and twice the time.
        rendezvous(&case(",rndv-put", "1MiB"), 4000.0, &set("UCX_RNDV_SCHEME=put_zcopy", &writes)),
        rendezvous(&case(",rndv-am", "1MiB"), 8320.0, &set("UCX_RNDV_SCHEME=am", &writes)),
        rendezvous(&case(",zcopy-never", "1MiB"), 8000.0, &set("UCX_ZCOPY_THRESH=inf", reads)),
        rendezvous(&case(",zcopy-never", "64KiB"), 810.0, &set("UCX_ZCOPY_THRESH=inf", reads)),
        rendezvous(&case(",proto-v1", "64KiB"), 1600.0, &set("UCX_PROTO_ENABLE=n", reads)),
        CaseOutcome::Skipped(skip),
    ];
    let report = run_report::build(&run(2, outcomes), None);
    let figure = figure(&report, "ucx-switches-rate-paged");
    assert_eq!(
        figure.finding,
        "Most gained: rndv-put, 2.00 times at 1MiB (another protocol). Most lost: proto-v1, 0.50 \
         times at 64KiB (the same protocol according to UCX). Accepted, changes nothing: zcopy-never. \
         Another protocol, as fast: rndv-am. The same protocol according to \
         UCX at another rate, so that UCX does not report everything or the machine was not steady: proto-v1. Unknown to this UCX, or already set: rocm-dmabuf."
    );
    // 64 x 1 MiB in 4 ms are 16.78 GB/s.
    let put = at(figure, "rndv-put (RNDV_SCHEME=put_zcopy)", "1MiB");
    close(put.value, 64.0 * 1_048_576.0 / 4e6);
    close(at(figure, "as started", "64KiB").value, 64.0 * 65_536.0 / 8e5);
}

#[test]
fn registration_is_shown_by_its_minimum_and_its_cost_per_gib() {
    let case = |memory: &str, call: &str, size: &str| {
        let unit = memory.split('.').next().expect("a unit");
        format!("{memory} > {unit}.reg by call@{unit}[{call}] x {size} isolated")
    };
    let at = |memory: &str, call: &str, size: &str, us: f64, engine: &str| {
        let outcome = at_latency("registration", &case(memory, call, size), us * 1e3);
        let CaseOutcome::Measured(mut measured) = outcome else { panic!("it is measured") };
        measured.series.iter_mut().for_each(|series| series.engine = engine.to_owned());
        CaseOutcome::Measured(measured)
    };
    let register = "ibv_reg_mr on mlx5_0";
    let outcomes = vec![
        at("numa0.paged", "nic-register", "2MiB", 40.0, register),
        at("numa0.paged", "nic-register", "1GiB", 40_000.0, register),
        at("gpu0.vram", "export-dmabuf", "2MiB", 8.0, "cuMemGetHandleForAddressRange"),
    ];
    let report = run_report::build(&run(0, outcomes), None);
    let figure = figure(&report, "registration");
    assert_eq!(figure.title, "What it costs to have mlx5_0 reach memory");
    // 39 960 us for 1022 MiB are 40.04 ms for 1024.
    assert_eq!(
        figure.finding,
        "Pageable memory, register by address: 40.0 us at 2MiB, 40000 us at 1GiB, 40.0 ms a GiB \
         more; device memory, export as dma-buf: 8.00 us at 2MiB."
    );
    close(point(figure, "device memory, export as dma-buf", 2_097_152.0).value, 8.0);
}

/// Overlap as OSU defines it: 100 us of communication alone. With 100 us of work in between 150 us
/// in all, of which 50 us remain visible: half is hidden. With tests 110 us: 90 % is hidden.
#[test]
fn overlap_is_the_communication_that_work_hides() {
    let case = |work: &str| {
        format!("r0.numa0.paged > r3.numa0.paged by mpi@numa0[iall_reduce{work}] x 1MiB")
    };
    let outcome = |work: &str, us: f64, engine: &str| {
        let CaseOutcome::Measured(mut measured) = timed("mpi-overlap", &case(work), us, &[us; 4])
        else {
            panic!("{work} is measured")
        };
        measured.series.iter_mut().for_each(|series| engine.clone_into(&mut series.engine));
        CaseOutcome::Measured(measured)
    };
    let computes = "MPI_Iallreduce, MPI_Wait, computes 100000 ns between start and wait";
    let journal = run(
        4,
        vec![
            outcome("", 100.0, "MPI_Iallreduce, MPI_Wait"),
            outcome("-compute", 150.0, computes),
            outcome("-compute-test", 110.0, &format!("{computes}, 10 tests; pml ob1")),
        ],
    );
    let report = run_report::build(&journal, None);
    let overlap = figure(&report, "mpi-overlap-host-memory");
    close(at(overlap, "iall_reduce", "1MiB").value, 50.0);
    close(at(overlap, "iall_reduce + tests", "1MiB").value, 90.0);
    assert!(overlap.finding.contains("50 % (iall_reduce)"), "{}", overlap.finding);
    let times = figure(&report, "mpi-overlap");
    close(point(times, "iall_reduce, host memory", 1048576.0).value, 100.0);
}
