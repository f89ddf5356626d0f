//! Copies that are enqueued as a whole: their rates, their order, and calls that fail.

use pathline_hal::{Machine, pattern};
use pathline_multipath::{CopyRequest, MultipathEngine};
use pathline_schema::{Bytes, Severity};
use pathline_sim::FaultOrder;

use crate::common::{CallerStream, CopyBuffers, carried, count, enqueued_rate, machine, plain};

/// Into a GPU, out of it, between GPUs, to all.
const FLOWS: [&str; 4] = [
    "numa0.pinned > gpu0.vram by relay@gpu0[gpu1+gpu2,1MiB]",
    "gpu0.vram > numa0.pinned by relay@gpu0[gpu1+gpu2,1MiB]",
    "gpu3.vram > gpu0.vram by relay@gpu0[gpu1+gpu2,1MiB]",
    "numa0.pinned > gpu0.vram by copy-to-all@gpu0[gpu1+gpu2,2MiB]",
];
/// Equal host links, and a link between GPUs that is seven times as fast: bytes per ns.
const RATES: [f64; 3] = [55.0, 50.0, 45.0];

fn caller<'m>(machine: &'m Machine, request: &CopyRequest, name: u64) -> CallerStream<'m> {
    CallerStream::new(machine, request.dst.unit.gpu().or(request.src.unit.gpu()).unwrap(), name)
}

/// Two paths of 55 GB/s: 1.5 times the plain copy at 8 MiB, 1.9 times at 256 MiB. Seven relays of a mesh: twice at
/// 8 MiB, 6 times at 256 MiB.
#[test]
fn small_copies_gain_too() {
    let cases = [
        ("hgx-h200", "numa0.pinned > gpu0.vram by relay@gpu0[gpu1,2MiB]", [1.5, 1.9]),
        ("hgx-h200", "gpu0.vram > numa0.pinned by relay@gpu0[gpu1,2MiB]", [1.5, 1.9]),
        (
            "mi300x",
            "gpu0.vram > gpu1.vram by relay@gpu1[gpu2+gpu3+gpu4+gpu5+gpu6+gpu7,4MiB,blit]",
            [2.0, 6.0],
        ),
        ("hgx-h200", "numa0.pinned > gpu0.vram by copy-to-all@gpu0[gpu1,16MiB]", [1.5, 1.9]),
    ];
    for (preset, flow, gains) in cases {
        let machine = machine(preset, Vec::new());
        for (mib, gain) in [8, 256].into_iter().zip(gains) {
            let flow = format!("{flow} x {mib}MiB");
            let (rate, called, report) = enqueued_rate(&machine, &flow);
            let direct = plain(&machine, &flow);
            println!("{preset} {flow}: {rate:.1} GB/s, plain {direct:.1}, enqueued in {called}");
            assert_eq!(carried(&report), Bytes::mib(mib));
            assert!(rate > gain * direct, "{flow}: {rate} of {direct}");
        }
    }
}

#[test]
fn any_size_arrives_in_the_order_of_its_stream() {
    let machine = machine("hgx-h200", Vec::new());
    for flow in FLOWS {
        let sizes = [1, 4095, 65_537, (1 << 20) + 1, (8 << 20) + 3, (48 << 20) - 1];
        let flows = sizes.map(|bytes| format!("{flow} x {bytes}B"));
        let buffers = flows.map(|flow| CopyBuffers::new(&machine, &flow).unwrap());
        let mut engine = MultipathEngine::new(&machine);
        let callers = [1, 2].map(|name| caller(&machine, &buffers[0].request, name));
        // Copies of two streams take turns in the same slots.
        for (nth, buffers) in buffers.iter().enumerate() {
            let report = callers[nth % 2].copy(&mut engine, &buffers.request, &RATES).unwrap();
            assert_eq!(carried(&report), buffers.request.bytes);
            assert!(report.lost.is_empty() && report.repeated == 0, "{report:?}");
        }
        callers.iter().for_each(|caller| caller.stream.wait().unwrap());
        buffers.iter().for_each(|buffers| buffers.check().unwrap());
    }
}

/// A copy behind a gate that the host opens after a copy of another stream has ended: the second one would wait
/// for the first in the slots, so it is refused, and the stream of the first takes more.
#[test]
fn no_copy_waits_for_one_that_has_not_begun() {
    let machine = machine("hgx-h200", Vec::new());
    let flow = format!("{} x 8MiB", FLOWS[0]);
    let buffers = [0, 1, 2].map(|_| CopyBuffers::new(&machine, &flow).unwrap());
    let mut engine = MultipathEngine::new(&machine);
    let [held, free] = [1, 2].map(|name| caller(&machine, &buffers[0].request, name));
    let gate = machine.gate().unwrap();
    held.stream.hold(&gate).unwrap();
    held.copy(&mut engine, &buffers[0].request, &RATES).unwrap();
    held.copy(&mut engine, &buffers[1].request, &RATES).unwrap();
    let refused = free.copy(&mut engine, &buffers[2].request, &RATES).unwrap_err();
    assert!(!refused.is_ordered && refused.error.severity == Severity::Unsupported, "{refused:?}");
    // A copy that the host drives takes no slot that is still to be filled, and ends.
    engine.copy(buffers[2].request.clone()).unwrap();
    buffers[2].check().unwrap();
    gate.release().unwrap();
    held.stream.wait().unwrap();
    buffers[..2].iter().for_each(|buffers| buffers.check().unwrap());
    free.copy(&mut engine, &buffers[2].request, &RATES).unwrap();
    free.stream.wait().unwrap();
}

/// Runs a copy with faults: whether it arrived. One that could not be enqueued is copied plainly after what was.
fn copy_with_faults(flow: &str, faults: Vec<FaultOrder>) -> bool {
    let machine = machine("hgx-h200", faults);
    let Ok(buffers) = CopyBuffers::new(&machine, flow) else { return false };
    let mut engine = MultipathEngine::new(&machine);
    let request = &buffers.request;
    let at = request.dst.unit.gpu().or(request.src.unit.gpu()).unwrap();
    let Some(caller) = CallerStream::try_new(&machine, at, 1) else { return false };
    let outcome = caller.copy(&mut engine, request, &RATES);
    let copied = match &outcome {
        Ok(report) => {
            assert_eq!(carried(report), request.bytes, "{flow}");
            true
        }
        Err(_) => buffers.dst.iter().all(|dst| {
            let copied = caller.stream.copy(
                dst.address(),
                request.src.address,
                request.bytes,
                pathline_hal::CopyChoice::Auto,
            );
            copied.is_ok()
        }),
    };
    if !copied || caller.stream.wait().is_err() {
        return false;
    }
    match buffers.check() {
        Err(error) if error.severity == Severity::Corrupt => panic!("{flow}, {outcome:?}: {error}"),
        checked => checked.is_ok(),
    }
}

#[test]
fn each_failing_call_of_a_relay_costs_no_byte() {
    for flow in FLOWS {
        let flow = format!("{flow} x 8MiB");
        for call in ["copy", "event_record", "event_create", "stream_create", "stream_wait_event"] {
            for nth in [1, 2, 3, 5, 8, 13, 21] {
                let order = FaultOrder::fails(call, nth, Severity::Transient).on(1);
                assert!(copy_with_faults(&flow, vec![order]), "{flow}, {call} {nth}");
            }
        }
    }
}

/// Draws of faults: which calls, which numbers, which GPUs, how badly. `PATHLINE_TEST_FAULTS=1000` for all of the goal.
#[test]
fn random_faults_never_lose_a_byte() {
    let mut arrived = 0;
    let draws = count("PATHLINE_TEST_FAULTS", 100);
    for draw in 0..draws {
        let word = |nth: u64| pattern::word(draw, nth) >> 16;
        let flow = format!("{} x 12MiB", FLOWS[(word(0) % 4) as usize]);
        let faults = (0..1 + word(1) % 3).map(|nth| {
            let calls =
                ["copy", "event_record", "event_create", "stream_create", "stream_wait_event"];
            let call = calls[(word(10 + nth) % 5) as usize];
            let severity = [Severity::Transient, Severity::Sticky, Severity::Exhausted]
                [(word(20 + nth) % 3) as usize];
            FaultOrder::fails(call, 1 + word(30 + nth) % 60, severity)
                .on((word(40 + nth) % 4) as u32)
        });
        arrived += u64::from(copy_with_faults(&flow, faults.collect()));
    }
    println!("{arrived} of {draws} arrived");
    assert!(2 * arrived > draws, "{arrived}");
}
