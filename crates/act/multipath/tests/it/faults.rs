//! A relay that fails or stalls costs time, never a byte.

use pathline_hal::pattern;
use pathline_multipath::MultipathEngine;
use pathline_schema::Severity;
use pathline_sim::FaultOrder;

use crate::common::{CopyBuffers, carried, machine};

/// Flows that faults strike: into a GPU, out of it, between GPUs, to all.
const FLOWS: [&str; 4] = [
    "numa0.pinned > gpu0.vram by relay@gpu0[gpu1+gpu2,1MiB] x 48MiB",
    "gpu0.vram > numa0.pinned by relay@gpu0[gpu1+gpu2,1MiB] x 48MiB",
    "gpu3.vram > gpu0.vram by relay@gpu0[gpu1+gpu2,1MiB] x 48MiB",
    "numa0.pinned > gpu0.vram by copy-to-all@gpu0[gpu1+gpu2,2MiB] x 48MiB",
];

#[test]
fn failing_calls_of_a_relay_cost_no_byte() {
    for flow in FLOWS {
        for call in ["copy", "event_record", "event_create", "stream_create", "enable_peer"] {
            for nth in [1, 2, 5, 9] {
                let order = FaultOrder::fails(call, nth, Severity::Transient).on(1);
                let machine = machine("hgx-h200", vec![order]);
                let buffers = CopyBuffers::new(&machine, flow).unwrap();
                let mut engine = MultipathEngine::new(&machine);
                match engine.copy(buffers.request.clone()) {
                    Ok(report) => {
                        buffers.check().unwrap();
                        // A pull that fails is a load.
                        let is_pull = call == "copy" && flow.contains("to-all");
                        assert!(!is_pull || report.repeated == 1, "{flow}, {nth}: {report:?}");
                    }
                    // The GPU of a copy to all that cannot open a stream, or enqueue a load, is an end.
                    Err(error) if flow.contains("to-all") => {
                        assert!(error.thing.contains("gpu1"), "{flow}, {call} {nth}: {error}");
                    }
                    Err(error) => panic!("{flow}, {call} {nth}: {error}"),
                }
            }
        }
    }
}

/// Where each path has a share, a relay that fails leaves its own to the others: they do not wait for it until the
/// copy's limit. 40 and 30 % reach 28 of 48 MiB: 12 MiB are the most that they may be ahead.
#[test]
fn the_share_of_a_lost_relay_is_carried_by_the_others() {
    let flow = "numa0.pinned > gpu0.vram by relay@gpu0[gpu1+gpu2,1MiB,40+30+30] x 48MiB";
    for nth in [1, 5] {
        let order = FaultOrder::fails("copy", nth, Severity::Transient).on(1);
        let machine = machine("hgx-h200", vec![order]);
        let buffers = CopyBuffers::new(&machine, flow).unwrap();
        let report = MultipathEngine::new(&machine).copy(buffers.request.clone()).unwrap();
        buffers.check().unwrap();
        assert_eq!(report.lost.iter().map(|lost| lost.gpu).collect::<Vec<_>>(), [1]);
        assert_eq!(carried(&report), buffers.request.bytes);
    }
}

/// 1,000 draws of faults: which call, which number, which GPU, how badly.
#[test]
fn random_faults_never_lose_a_byte() {
    let mut arrived = 0;
    for draw in 0..1_000_u64 {
        let word = |nth: u64| pattern::word(draw, nth) >> 16;
        let flow = FLOWS[(word(0) % 4) as usize];
        let faults = (0..1 + word(1) % 3).map(|nth| {
            let call = ["copy", "event_record", "event_create", "stream_create"]
                [(word(10 + nth) % 4) as usize];
            let severity = [Severity::Transient, Severity::Sticky, Severity::Exhausted]
                [(word(20 + nth) % 3) as usize];
            FaultOrder::fails(call, 1 + word(30 + nth) % 60, severity)
                .on((word(40 + nth) % 4) as u32)
        });
        let machine = machine("hgx-h200", faults.collect());
        let Ok(buffers) = CopyBuffers::new(&machine, flow) else { continue };
        let mut engine = MultipathEngine::new(&machine);
        let start = machine.clock.now();
        let outcome = engine.copy(buffers.request.clone());
        let elapsed = machine.clock.now() - start;
        assert!(elapsed <= buffers.request.limit, "draw {draw}: {elapsed}");
        if outcome.is_ok() {
            buffers.check().unwrap_or_else(|error| panic!("draw {draw}, {flow}: {error}"));
            arrived += 1;
        }
    }
    println!("{arrived} of 1000 arrived");
    assert!(arrived > 300, "{arrived}");
}
