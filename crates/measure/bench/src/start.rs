//! Starts the flows of a case: together, except for copies of one engine, which start in the order
//! of the case.

use std::collections::BTreeMap;

use pathline_hal::{CallResult, Machine, StartGate};
use pathline_schema::{Flow, Mover, Ns, Place, Unit};

use crate::lane::{BoundLane, LaneSample};

/// Delay between copies for one engine. A copy engine with several waiting streams behind one gate
/// takes any of them: the order of three copies of 256, 512 and 1024 MiB out of an H200 was random.
/// Released 2 to 5 us apart they came in the order of the case in 52 to 100 of 100 samples, 20 us
/// apart always.
const APART: Ns = Ns(20_000.0);

/// Gates for the turns of a case's flows, and the time when each was opened.
pub(crate) struct StartGates<'m> {
    machine: &'m Machine,
    turns: Vec<usize>,
    gates: Vec<StartGate<'m>>,
    opened: Vec<Ns>,
}

impl<'m> StartGates<'m> {
    pub(crate) fn new<'f>(
        machine: &'m Machine,
        flows: impl Iterator<Item = &'f Flow>,
    ) -> CallResult<Self> {
        let turns = turns(flows);
        let last = turns.iter().copied().max().unwrap_or(0);
        let gates = (0..=last).map(|_| machine.gate()).collect::<CallResult<_>>()?;
        Ok(Self { machine, turns, gates, opened: Vec::new() })
    }

    /// The gate of each flow, in flow order.
    pub(crate) fn gates(&self) -> impl Iterator<Item = &StartGate<'m>> {
        self.turns.iter().filter_map(|&turn| self.gates.get(turn))
    }

    /// Releases the first flow of every engine, then the second of every engine, and so on.
    pub(crate) fn release(&mut self) -> CallResult<()> {
        for (turn, gate) in self.gates.iter().enumerate() {
            if turn > 0 {
                self.machine.clock.sleep(APART);
            }
            gate.release()?;
            self.opened.push(self.machine.clock.now());
        }
        Ok(())
    }

    /// Adds waiting times. A flow that started on its release is timed from there. One that waited
    /// for its engine recorded its start only in its turn: it is timed from the first start on its
    /// GPU. By their own starts three copies out of one H200 took 683 us each, which would be 1180
    /// GB/s over links of 478.
    pub(crate) fn count_waits(
        &self,
        lanes: &[Box<dyn BoundLane + '_>],
        laps: &mut [LaneSample],
    ) -> CallResult<()> {
        let opened = |nth: usize| {
            self.turns.get(nth).and_then(|&turn| self.opened.get(turn)).copied().unwrap_or_default()
        };
        for (nth, (lane, lap)) in lanes.iter().zip(laps).enumerate() {
            let Some((gpu, _, end)) = lane.events() else { continue };
            let own = lap.elapsed;
            for (other, earlier) in lanes.iter().enumerate() {
                let Some((_, start, _)) = earlier.events().filter(|e| e.0 == gpu) else { continue };
                let since = end.since(start)?;
                let let_go = (opened(nth) - opened(other)).0.max(0.0);
                if (since - own).0 > let_go + APART.0 && since > lap.elapsed {
                    lap.elapsed = since;
                }
            }
        }
        Ok(())
    }
}

/// For each flow, the number of earlier flows that need the same engine for the same kind of copy.
fn turns<'f>(flows: impl Iterator<Item = &'f Flow>) -> Vec<usize> {
    let on_gpu = |place: Place| place.unit.gpu().is_some();
    let mut before: BTreeMap<(Unit, bool, bool), usize> = BTreeMap::new();
    let turn = |flow: &Flow| {
        let Mover::Dma { at } = flow.by else { return 0 };
        let asked = before.entry((at, on_gpu(flow.src), on_gpu(flow.dst))).or_default();
        *asked += 1;
        *asked - 1
    };
    flows.map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_flow::{MachineDesc, RuntimeEnv};
    use pathline_hal::{CopyChoice, GpuEvent};
    use pathline_schema::{Bytes, Case, MemKind, TimerKind, VerifyResult};

    fn flows(case: &str) -> Vec<Flow> {
        case.parse::<Case>().expect("a case").timed
    }

    /// Two into GPU 1 by different engines, three out of GPU 0, one in and two out of the host's
    /// memory; a kernel needs no engine.
    #[test]
    fn copies_of_one_engine_have_turns() {
        let case = "gpu2.vram > gpu1.vram by dma@gpu2 x 1MiB & gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB \
                    & gpu0.vram > gpu2.vram by dma@gpu0 x 2MiB & gpu0.vram > gpu3.vram by dma@gpu0 x 1MiB \
                    & numa0.pinned > gpu0.vram by dma@gpu0 x 1MiB \
                    & gpu0.vram > numa0.pinned by dma@gpu0 x 1MiB & gpu0.vram > numa1.pinned by dma@gpu0 x 1MiB \
                    & gpu0.vram > gpu3.vram by kernel@gpu0[copy-w16-u4-b512-g2sm] x 1MiB";
        assert_eq!(turns(flows(case).iter()), [0, 0, 1, 2, 0, 0, 1, 0]);
    }

    /// A lane with a completed operation.
    struct Ran<'m> {
        start: GpuEvent<'m>,
        end: GpuEvent<'m>,
    }

    impl BoundLane for Ran<'_> {
        fn issue(&mut self, _: &StartGate<'_>, _: u64) -> CallResult<()> {
            Ok(())
        }
        fn wait(&mut self) -> CallResult<LaneSample> {
            Ok(LaneSample::of(self.end.since(&self.start)?, 1))
        }
        fn events(&self) -> Option<(u32, &GpuEvent<'_>, &GpuEvent<'_>)> {
            Some((0, &self.start, &self.end))
        }
        fn timer(&self) -> TimerKind {
            TimerKind::DeviceEvents
        }
        fn engine(&self) -> String {
            String::new()
        }
        fn spoil(&mut self) -> CallResult<()> {
            Ok(())
        }
        fn check(&self) -> CallResult<VerifyResult> {
            Ok(VerifyResult::Verified)
        }
    }

    #[test]
    fn a_lane_that_waits_for_its_engine_is_timed_from_the_common_start() {
        let desc = MachineDesc::preset("hgx-h200").unwrap();
        let machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap();
        let gpu = machine.gpu(0).unwrap();
        let vram = Place::new(Unit::Gpu(0), MemKind::Vram);
        let bytes = Bytes::mib(256);
        let (a, b) = (machine.buffer(vram, bytes).unwrap(), machine.buffer(vram, bytes).unwrap());
        let streams = [gpu.stream().unwrap(), gpu.stream().unwrap()];
        let lane = || Ran { start: gpu.event().unwrap(), end: gpu.event().unwrap() };
        let (first, second) = (lane(), lane());
        for (stream, lane) in streams.iter().zip([&first, &second]) {
            // The engine starts the second stream when the first has ended.
            if std::ptr::eq(lane, &second) {
                stream.wait_event(&first.end).unwrap();
            }
            stream.record(&lane.start).unwrap();
            stream.copy(b.address(), a.address(), bytes, CopyChoice::Auto).unwrap();
            stream.record(&lane.end).unwrap();
        }
        let mut lanes: Vec<Box<dyn BoundLane + '_>> = vec![Box::new(first), Box::new(second)];
        streams.iter().for_each(|s| s.wait().unwrap());
        let mut laps: Vec<LaneSample> = lanes.iter_mut().map(|l| l.wait().unwrap()).collect();
        let own: Vec<f64> = laps.iter().map(|l| l.elapsed.0).collect();
        let flows = flows(
            "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB & gpu0.vram > gpu2.vram by dma@gpu0 x 1MiB",
        );
        let mut starts = StartGates::new(&machine, flows.iter()).unwrap();
        starts.release().unwrap();
        starts.count_waits(&lanes, &mut laps).unwrap();
        // The first keeps its time; the second has the sum of both.
        assert_eq!(laps[0].elapsed.0, own[0]);
        assert!((laps[1].elapsed.0 / (own[0] + own[1]) - 1.0).abs() < 0.01, "{laps:?} of {own:?}");
    }
}
