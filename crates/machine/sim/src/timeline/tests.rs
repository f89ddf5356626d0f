use pathline_flow::{KernelTurn, ResourceUse};
use pathline_schema::{Ns, Rate};

use super::*;

/// `bytes` over resource 0, after 50 ns.
fn transfer(bytes: f64, effect: u32) -> LaneOp<u32> {
    queued(bytes, effect, None)
}

/// The same by an engine that serves one lane at a time.
fn queued(bytes: f64, effect: u32, queue: Option<u32>) -> LaneOp<u32> {
    let operation = FlowOperation {
        uses: vec![ResourceUse { resource: 0, weight: 1.0 }],
        cap: Rate(99.0),
        share: 1.0,
        queue,
        turn: None,
        alpha: Ns(50.0),
        call: Ns(1.0),
        blocking: false,
        spread: 0.0,
        step: Ns::ZERO,
        route: Vec::new(),
        engine: "wire".into(),
        stages: Vec::new(),
    };
    let operation = Rc::new(operation);
    LaneOp::Transfer(LaneTransfer {
        alpha: 50.0,
        amount: bytes,
        payload: bytes,
        steps: 0.0,
        operation,
        effect,
    })
}

/// Steps to the end: the effects in order.
fn run(timeline: &mut SimTimeline<u32>) -> Vec<u32> {
    let mut effects = Vec::new();
    while timeline.next().is_some() {
        effects.extend(timeline.step());
    }
    effects
}

/// 1000 bytes at 10 take 50 + 100. Issued at 7 and 8, the second begins when the first ends:
/// 157, 307. A third, issued at 1000, ends at 1150.
#[test]
fn a_lane_is_a_queue() {
    let mut t = SimTimeline::new(vec![10.0]);
    let lane = t.lane_create(LaneOwner::Stream(0));
    for (issued, effect) in [(7.0, 1), (8.0, 2), (1000.0, 3)] {
        t.push(lane, issued, transfer(1000.0, effect));
    }
    assert_eq!(t.lane_idle(lane), None);
    assert_eq!(run(&mut t), [1, 2, 3]);
    assert_eq!(t.lane_idle(lane), Some(1150.0));
    assert_eq!(t.lane_busy_time(lane), 150.0);
}

/// Two lanes behind a gate that opens at 500: both wait 50, share 10, end at 500 + 50 + 200.
/// One of them has been parked at the gate; the other's turn comes after the gate was opened
/// by a host that is ahead of the world.
#[test]
fn a_gate_opens_when_it_was_released() {
    let mut t = SimTimeline::new(vec![10.0]);
    let gate = t.gate_create();
    let lanes = [0, 1].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
    for lane in lanes {
        t.push(lane, 3.0, LaneOp::Hold(gate));
        t.push(lane, 4.0, transfer(1000.0, 0));
    }
    t.step();
    assert_eq!(t.next(), Some(3.0), "the second lane still has its turn");
    t.gate_destroy(gate, 500.0);
    assert!(!t.gate_exists(gate));
    run(&mut t);
    assert_eq!(lanes.map(|lane| t.lane_idle(lane)), [Some(750.0); 2]);
    assert!(t.gates.is_empty(), "forgotten when the last lane has passed");
}

/// The event is recorded at 150 behind a transfer; the other stream begins there: 300.
#[test]
fn an_event_orders_two_lanes() {
    let mut t = SimTimeline::new(vec![10.0]);
    let event = t.event_create();
    let (a, b) = (t.lane_create(LaneOwner::Stream(0)), t.lane_create(LaneOwner::Stream(1)));
    t.push(a, 0.0, transfer(1000.0, 1));
    t.event_record(event, a, 0.0);
    t.event_await(event, b, 0.0);
    t.push(b, 0.0, transfer(1000.0, 2));
    assert_eq!(t.event_time(event), None);
    assert_eq!(run(&mut t), [1, 2]);
    assert_eq!(t.event_time(event), Some(150.0));
    assert_eq!(t.lane_idle(b), Some(300.0));
    t.event_destroy(event);
    assert!(t.events.is_empty());
}

/// An event that was never recorded blocks nothing; one that is recorded again has no time
/// until that has happened.
#[test]
fn recordings_of_an_event() {
    let mut t = SimTimeline::new(vec![10.0]);
    let event = t.event_create();
    let lane = t.lane_create(LaneOwner::Stream(0));
    t.event_await(event, lane, 0.0);
    t.event_record(event, lane, 0.0);
    run(&mut t);
    assert_eq!(t.event_time(event), Some(0.0));
    t.push(lane, 10.0, transfer(1000.0, 0));
    t.event_record(event, lane, 10.0);
    assert_eq!(t.event_time(event), None);
    run(&mut t);
    assert_eq!(t.event_time(event), Some(160.0));
}

/// Recorded on a lane behind a gate, then on a free one: the second recording happens first
/// and stays the one that counts, for its time and for waiting lanes.
#[test]
fn an_earlier_recording_that_happens_later() {
    let mut t = SimTimeline::new(vec![10.0]);
    let (event, gate) = (t.event_create(), t.gate_create());
    let lanes = [0, 1, 2].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
    t.push(lanes[0], 0.0, LaneOp::Hold(gate));
    t.event_record(event, lanes[0], 0.0);
    t.push(lanes[1], 0.0, transfer(1000.0, 0));
    t.event_record(event, lanes[1], 0.0);
    t.gate_open(gate, 400.0);
    run(&mut t);
    t.event_await(event, lanes[2], 500.0);
    run(&mut t);
    assert_eq!(t.event_time(event), Some(150.0));
    assert_eq!(t.lane_idle(lanes[2]), Some(500.0));
}

/// A wait ends with the recording that was the last one when it was enqueued, not with a later one that happens
/// first: here at 400 and not at 150.
#[test]
fn a_wait_ends_with_its_own_recording() {
    let mut t = SimTimeline::new(vec![10.0]);
    let (event, gate) = (t.event_create(), t.gate_create());
    let lanes = [0, 1, 2].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
    t.push(lanes[0], 0.0, LaneOp::Hold(gate));
    t.event_record(event, lanes[0], 0.0);
    t.event_await(event, lanes[2], 0.0);
    t.push(lanes[1], 0.0, transfer(1000.0, 0));
    t.event_record(event, lanes[1], 0.0);
    t.gate_open(gate, 400.0);
    run(&mut t);
    assert_eq!(t.event_time(event), Some(150.0));
    assert_eq!(t.lane_idle(lanes[2]), Some(400.0));
}

#[test]
fn a_lane_that_waits_for_a_closed_gate_is_named() {
    let mut t = SimTimeline::new(vec![10.0]);
    let gate = t.gate_create();
    let lane = t.lane_create(LaneOwner::Team(2, 4));
    t.push(lane, 0.0, LaneOp::Hold(gate));
    t.push(lane, 0.0, transfer(1000.0, 7));
    run(&mut t);
    let text = t.waiting_lanes();
    assert_eq!(
        text,
        format!(
            "team {lane} of 4 threads on numa2 waits for gate {gate}, which nobody has released"
        )
    );
    assert_eq!(t.take_back(lane), Some(7));
    t.push(lane, 0.0, transfer(1000.0, 8));
    assert_eq!(t.lane_destroy(lane), [8]);
    t.gate_destroy(gate, 1.0);
    assert!(t.gates.is_empty());
    assert_eq!(run(&mut t).len(), 0);
}

/// A lane that goes in the middle of a transfer leaves its share to the other: both at 5 from
/// 50 on; at 150 the first goes, the other has 500 left at 10: 200.
#[test]
fn a_destroyed_lane_moves_nothing() {
    let mut t = SimTimeline::new(vec![10.0]);
    let lanes = [0, 1].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
    for lane in lanes {
        t.push(lane, 0.0, transfer(1000.0, 9));
    }
    let clock = t.lane_create(LaneOwner::Stream(2));
    t.push(clock, 150.0, LaneOp::Record(0, 0));
    while t.next().is_some_and(|at| at <= 150.0) {
        t.step();
    }
    assert_eq!(t.lane_destroy(lanes[0]), [9]);
    assert_eq!(run(&mut t), [9]);
    assert_eq!(t.lane_idle(lanes[1]), Some(200.0));
}

/// Engine 3 has two lanes that are ready at 0, each with two transfers of 1000 bytes at 10:
/// 50 + 100 each, one lane's after the other's: 150, 300, 450, 600.
#[test]
fn an_engine_serves_whole_streams_in_turn() {
    let mut t = SimTimeline::new(vec![10.0]);
    let lanes = [0, 0].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
    for (nth, &lane) in lanes.iter().enumerate() {
        for _ in 0..2 {
            t.push(lane, 0.0, queued(1000.0, nth as u32, Some(3)));
        }
    }
    let order = run(&mut t);
    assert!(order == [0, 0, 1, 1] || order == [1, 1, 0, 0], "{order:?}");
    let mut ends = lanes.map(|lane| t.lane_idle(lane).unwrap());
    ends.sort_by(f64::total_cmp);
    assert_eq!(ends, [300.0, 600.0]);
}

/// Ready at 10, 0 and 20: served in that order of time, 0 to 150, 150 to 300, 300 to 450. What
/// the first lane has ready at 30 is served before the waiting lanes; its work of 400, after its
/// end, waits behind them.
#[test]
fn the_first_ready_lane_is_served_first() {
    let mut t = SimTimeline::new(vec![10.0]);
    let lanes = [0, 1, 2].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
    for (&lane, (at, effect)) in lanes.iter().zip([(10.0, 1), (0.0, 0), (20.0, 2)]) {
        t.push(lane, at, queued(1000.0, effect, Some(0)));
    }
    t.push(lanes[1], 30.0, queued(1000.0, 10, Some(0)));
    t.push(lanes[1], 400.0, queued(1000.0, 11, Some(0)));
    assert_eq!(run(&mut t), [0, 10, 1, 2, 11]);
    assert_eq!(lanes.map(|lane| t.lane_idle(lane)), [Some(450.0), Some(750.0), Some(600.0)]);
}

/// Two engines work at once and share the wire: both lanes end at 50 + 200.
#[test]
fn engines_do_not_wait_for_each_other() {
    let mut t = SimTimeline::new(vec![10.0]);
    let lanes = [0, 1].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
    for (&lane, queue) in lanes.iter().zip([5, 6]) {
        t.push(lane, 0.0, queued(1000.0, 0, Some(queue)));
    }
    run(&mut t);
    assert_eq!(lanes.map(|lane| t.lane_idle(lane)), [Some(250.0); 2]);
}

/// Four lanes behind a gate, again and again: always the same order, which the seed decides.
#[test]
fn the_order_behind_a_gate_is_drawn_once() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let mut t = SimTimeline::new(vec![10.0]).with_orders_of(seed);
        let lanes = [0; 4].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
        let mut orders = Vec::new();
        for round in 1..=3 {
            let gate = t.gate_create();
            for (nth, &lane) in lanes.iter().enumerate() {
                t.push(lane, t.now(), LaneOp::Hold(gate));
                t.push(lane, t.now(), queued(1000.0, nth as u32, Some(0)));
            }
            let now = t.now() + 1000.0 * f64::from(round);
            t.gate_destroy(gate, now);
            orders.push(run(&mut t));
        }
        assert!(orders.iter().all(|order| *order == orders[0]), "{orders:?}");
        seen.insert(orders[0].clone());
    }
    // Of 24 orders 40 draws find 19.6 on average.
    assert!(seen.len() >= 12, "{} orders", seen.len());
}

/// The lane that is served goes at 100, the one that waits begins then: 100 + 150. The one whose
/// only transfer is taken back while it waits is idle, and can be given another.
#[test]
fn an_engine_goes_on_without_a_lane_that_is_gone() {
    let mut t = SimTimeline::new(vec![10.0]);
    let lanes = [0; 3].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
    for (nth, &lane) in lanes.iter().enumerate() {
        t.push(lane, nth as f64, queued(1000.0, nth as u32, Some(0)));
    }
    let clock = t.lane_create(LaneOwner::Stream(9));
    t.push(clock, 100.0, LaneOp::Record(0, 0));
    while t.next().is_some_and(|at| at <= 100.0) {
        t.step();
    }
    assert!(t.waiting_lanes().contains("its turn at the wire"), "{}", t.waiting_lanes());
    assert_eq!(t.take_back(lanes[2]), Some(2));
    assert_eq!(t.lane_destroy(lanes[0]), [0]);
    t.push(lanes[2], 120.0, queued(1000.0, 12, Some(0)));
    assert_eq!(run(&mut t), [1, 12]);
    assert_eq!(t.lane_idle(lanes[1]), Some(250.0));
    assert_eq!(t.lane_idle(lanes[2]), Some(400.0));
}

/// Two lanes of one engine, each with a recording before and after 1000 bytes: the second begins at
/// 150, and so records. On a lane without an engine a recording waits for nothing.
#[test]
fn a_start_is_recorded_when_the_engine_turns_to_it() {
    let mut t = SimTimeline::new(vec![10.0]);
    let lanes = [0, 0].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
    let events = lanes.map(|lane| {
        let (start, end) = (t.event_create(), t.event_create());
        t.event_record(start, lane, 0.0);
        t.push(lane, 0.0, queued(1000.0, 0, Some(0)));
        t.event_record(end, lane, 0.0);
        (start, end)
    });
    run(&mut t);
    let mut times = events.map(|(start, end)| (t.event_time(start), t.event_time(end)));
    times.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap());
    assert_eq!(times, [(Some(0.0), Some(150.0)), (Some(150.0), Some(300.0))]);
}

/// A recording whose transfer is taken back while both wait for the engine happens at once.
#[test]
fn a_recording_does_not_wait_for_withdrawn_work() {
    let mut t = SimTimeline::new(vec![10.0]);
    let lanes = [0, 0].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
    let event = t.event_create();
    t.push(lanes[0], 0.0, queued(1000.0, 1, Some(0)));
    t.event_record(event, lanes[1], 20.0);
    t.push(lanes[1], 20.0, queued(1000.0, 2, Some(0)));
    while t.next().is_some_and(|at| at <= 40.0) {
        t.step();
    }
    assert_eq!((t.event_time(event), t.take_back(lanes[1])), (None, Some(2)));
    assert_eq!(run(&mut t), [1]);
    assert_eq!(t.event_time(event), Some(20.0));
}

/// `bytes` at 10 without a start, by a kernel of GPU 0; of one that leaves room half of the slots are used.
fn kernel(bytes: f64, effect: u32, fills: bool) -> LaneOp<u32> {
    let LaneOp::Transfer(mut transfer) = transfer(bytes, effect) else { unreachable!() };
    let packed = if fills { 1.0 } else { 2.0 };
    let turn = Some(KernelTurn { gpu: 0, fills, packed });
    let operation = (*transfer.operation).clone();
    transfer.operation = Rc::new(FlowOperation { turn, cap: Rate(10.0), ..operation });
    transfer.alpha = 0.0;
    LaneOp::Transfer(transfer)
}

/// Three kernels of 200 bytes among kernels of 700 on another lane, all of which fill the GPU: 20, 70, 20, 70
/// and 20 ns, so the third ends at 200. The first of 700 ends at 90, the last of three at 270.
#[test]
fn kernels_that_fill_a_gpu_run_in_the_order_of_their_arrival() {
    let mut t = SimTimeline::new(vec![10.0]);
    let lanes = [0, 0].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
    for (&lane, (bytes, effect)) in lanes.iter().zip([(200.0, 0), (700.0, 1)]) {
        (0..3).for_each(|_| t.push(lane, 0.0, kernel(bytes, effect, true)));
    }
    assert_eq!(run(&mut t), [0, 1, 0, 1, 0, 1]);
    assert_eq!(lanes.map(|lane| t.lane_idle(lane)), [Some(200.0), Some(270.0)]);
}

/// A kernel that leaves room delays nobody: both share 10 from 0 on and end at 40. Behind one that fills the
/// GPU it waits, and has half of the units: 20, then 40 more. When the first lane goes at 10, the second begins
/// then.
#[test]
fn a_kernel_that_leaves_room_waits_only_behind_one_that_fills_the_gpu() {
    for (fills, expected) in [([false, true], [40.0, 40.0]), ([true, false], [20.0, 60.0])] {
        let mut t = SimTimeline::new(vec![10.0]);
        let lanes = [0, 0].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
        for (&lane, fills) in lanes.iter().zip(fills) {
            t.push(lane, 0.0, kernel(200.0, 0, fills));
        }
        run(&mut t);
        assert_eq!(lanes.map(|lane| t.lane_idle(lane)), expected.map(Some));
    }
    let mut t = SimTimeline::new(vec![10.0]);
    let lanes = [0, 0].map(|gpu| t.lane_create(LaneOwner::Stream(gpu)));
    lanes.iter().for_each(|&lane| t.push(lane, 0.0, kernel(200.0, 7, true)));
    let clock = t.lane_create(LaneOwner::Stream(1));
    t.push(clock, 10.0, LaneOp::Record(0, 0));
    while t.next().is_some_and(|at| at <= 10.0) {
        t.step();
    }
    assert_eq!(t.lane_destroy(lanes[0]), [7]);
    assert_eq!(run(&mut t), [7]);
    assert_eq!(t.lane_idle(lanes[1]), Some(30.0));
}

/// An event and the next operation are 3 ns apart, whether it is there already or comes within that time: a
/// pair of events around 1000 bytes at 10 is 50 + 100 + 3 apart, an empty pair 3.
#[test]
fn an_event_delays_the_next_operation() {
    for issued in [0.0, 2.0] {
        let mut t = SimTimeline::new(vec![10.0]).with_event_gap(3.0);
        let lane = t.lane_create(LaneOwner::Stream(0));
        let [start, end, after] = [0; 3].map(|_| t.event_create());
        t.event_record(start, lane, 0.0);
        while t.next().is_some_and(|at| at < issued) {
            t.step();
        }
        t.push(lane, issued, transfer(1000.0, 1));
        t.event_record(end, lane, issued);
        t.event_record(after, lane, issued);
        run(&mut t);
        let at = [start, end, after].map(|event| t.event_time(event));
        assert_eq!(at, [Some(0.0), Some(153.0), Some(156.0)]);
    }
}
