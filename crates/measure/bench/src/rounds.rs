//! Rounds: each probe of a set once, a fraction of a millisecond each, in a given order.
//!
//! A run measures how fast a path is, for as long as precision needs. A health check compares equal
//! paths, so it must time all of them in the same state of the machine.

use pathline_hal::{CallError, CallResult, Machine, ThreadTeam, pattern};
use pathline_schema::{Bytes, Case, Ns, VerifyResult};

use crate::bind::bind;
use crate::lane::{BoundLane, MAX_REPS};
use crate::pool::{BufferPool, buffers, other_domain};
use crate::start::StartGates;

/// Minimum time of a probe in a round; an operation that takes longer is timed alone. Device events
/// have a grid of 0.5 us at worst, 0.25 % of it.
const PROBE_TIME: Ns = Ns(200_000.0);

/// Payload of an operation whose bytes are compared.
const COMPARED: Bytes = Bytes(256 << 10);

/// Probes bound to a machine.
pub struct ProbeRounds<'m> {
    machine: &'m Machine,
    pool: BufferPool<'m>,
    probes: Vec<BoundProbe<'m>>,
}

/// A case with its buffers, streams and teams.
struct BoundProbe<'m> {
    case: Case,
    lanes: Vec<Box<dyn BoundLane + 'm>>,
    reps: u64,
}

impl<'m> ProbeRounds<'m> {
    /// Without probes.
    pub fn new(machine: &'m Machine) -> Self {
        Self { machine, pool: BufferPool::new(machine), probes: Vec::new() }
    }

    /// Allocates the buffers of a case, runs it a few times untimed and finds its repetitions.
    /// Returns the number of the probe, from 0.
    ///
    /// # Errors
    /// Errors of the machine: no memory, no such mover, a failed operation.
    pub fn bind(&mut self, case: &Case) -> CallResult<usize> {
        if let Some(flow) = case.flows().find(|flow| flow.by.wire().is_some()) {
            let why = "messages between processes are no probe of a health check";
            return Err(CallError::unsupported("bind", flow.to_string(), why));
        }
        let lanes = self.lanes(case)?;
        self.check_pages(case)?;
        let mut probe = BoundProbe { case: case.clone(), lanes, reps: 1 };
        // The first operation pays for pages and code; the second gives the time of one.
        probe.sample(self.machine, 1, &mut || ())?;
        let each = probe.sample(self.machine, 1, &mut || ())?;
        if probe.lanes.iter().all(|lane| lane.repeats()) {
            let most = probe.lanes.iter().map(|lane| lane.most()).fold(MAX_REPS, u64::min).max(1);
            probe.reps = ((PROBE_TIME.0 / each.0.max(1.0)).ceil() as u64).clamp(1, most);
        }
        self.probes.push(probe);
        Ok(self.probes.len() - 1)
    }

    /// A path of a NUMA domain is not that if most pages lie on another one, as where its memory is used up.
    fn check_pages(&mut self, case: &Case) -> CallResult<()> {
        for (key, bytes) in buffers(case) {
            let Some(home) = key.place.unit.numa() else { continue };
            let buffer = self.pool.get(key)?;
            let pages = self.machine.host.page_domains(buffer.address(), bytes);
            if let Some(other) = other_domain(&pages.unwrap_or_default(), home) {
                let why = format!("its pages lie on numa{other}: is memory of numa{home} free?");
                return Err(CallError::unsupported("bind", key.place.to_string(), &why));
            }
        }
        Ok(())
    }

    /// Time of one operation of a probe, from operations that take 0.2 ms together or from one.
    ///
    /// # Errors
    /// The operation failed, or there is no such probe.
    pub fn measure(&mut self, probe: usize) -> CallResult<Ns> {
        self.measure_while(probe, Ns::ZERO, &mut || ())
    }

    /// Times one operation of 256 KiB of a probe into destinations that were overwritten with wrong bytes, and
    /// compares every byte that it stored.
    ///
    /// # Errors
    /// As [`Self::measure`]; bytes are wrong or cannot be compared.
    pub fn compare(&mut self, probe: usize) -> CallResult<()> {
        let Some(BoundProbe { case, .. }) = self.probes.get(probe) else { return Ok(()) };
        let mut case = case.clone();
        for flow in case.timed.iter_mut().chain(&mut case.background) {
            flow.bytes = flow.bytes.min(COMPARED);
        }
        let lanes = self.lanes(&case)?;
        let mut small = BoundProbe { case, lanes, reps: 1 };
        small.lanes.iter_mut().try_for_each(|lane| lane.spoil())?;
        small.sample(self.machine, 1, &mut || ())?;
        for lane in small.lanes.iter().take(small.case.timed.len()) {
            if let VerifyResult::Unverified(why) = lane.check()? {
                let why = format!("its bytes were not compared: {why}");
                return Err(CallError::unsupported("compare", small.case.to_string(), &why));
            }
        }
        Ok(())
    }

    /// The flows of a case, bound.
    fn lanes(&mut self, case: &Case) -> CallResult<Vec<Box<dyn BoundLane + 'm>>> {
        let mut lanes: Vec<Box<dyn BoundLane + 'm>> = Vec::new();
        for nth in 0..case.flows().count() {
            let others: Vec<_> =
                lanes.iter().filter_map(|l| l.team()).map(ThreadTeam::id).collect();
            lanes.push(bind(&mut self.pool, case, nth, &others)?);
        }
        Ok(lanes)
    }

    /// The same as [`Self::measure`] from operations that take at least `time` together, if they can be repeated; `look`
    /// is called while they run.
    ///
    /// # Errors
    /// As [`Self::measure`].
    pub fn measure_while(
        &mut self,
        probe: usize,
        time: Ns,
        look: &mut dyn FnMut(),
    ) -> CallResult<Ns> {
        let machine = self.machine;
        let Some(probe) = self.probes.get_mut(probe) else {
            let why = "it was not bound in this process";
            return Err(CallError::unsupported("measure", format!("probe {probe}"), why));
        };
        let mut reps = probe.reps;
        if time.0 > PROBE_TIME.0 && probe.lanes.iter().all(|lane| lane.repeats()) {
            let most = probe.lanes.iter().map(|lane| lane.most()).fold(MAX_REPS, u64::min).max(1);
            let longer = (time.0 / PROBE_TIME.0).ceil() as u64;
            reps = reps.saturating_mul(longer).clamp(1, most);
        }
        probe.sample(machine, reps, look)
    }
}

impl BoundProbe<'_> {
    /// Time of one of `reps` operations; with several flows that of the slowest timed one.
    fn sample(&mut self, machine: &Machine, reps: u64, look: &mut dyn FnMut()) -> CallResult<Ns> {
        for lane in &mut self.lanes {
            lane.prepare()?;
        }
        let mut starts = StartGates::new(machine, self.case.flows())?;
        for (lane, gate) in self.lanes.iter_mut().zip(starts.gates()) {
            lane.issue(gate, reps)?;
        }
        starts.release()?;
        look();
        let times =
            self.lanes.iter_mut().map(|lane| lane.wait()).collect::<CallResult<Vec<_>>>()?;
        let timed = times.iter().take(self.case.timed.len()).map(|lap| lap.elapsed.0);
        Ok(Ns(timed.fold(0.0, f64::max) / reps.max(1) as f64))
    }
}

/// The numbers below `count` in a random order from `seed`, each order equally likely.
pub fn drawn_order(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        // The bias of a remainder is below 2^-50 for less than 16384 probes.
        let other = (pattern::word(seed | 1, last as u64) % (last as u64 + 1)) as usize;
        order.swap(last, other);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_flow::{MachineDesc, RuntimeEnv};
    use pathline_schema::Severity;
    use pathline_sim::{FaultOrder, SimOptions};

    fn machine() -> Machine {
        let desc = MachineDesc::preset("hgx-h200").expect("a preset");
        pathline_sim::machine(&desc, RuntimeEnv::default(), 1).expect("a machine")
    }

    /// 64 MiB over 450 GB/s of NVLink take 0.15 to 0.2 ms, so at most two operations are timed
    /// together; one copy of 64 KiB takes 5.2 us between events, so about 40 are.
    #[test]
    fn a_probe_takes_a_fraction_of_a_millisecond() {
        let machine = machine();
        let mut rounds = ProbeRounds::new(&machine);
        let cases = [
            "gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB",
            "gpu2.vram > gpu3.vram by dma@gpu2 x 64KiB",
            "numa0.pinned > gpu0.vram by dma@gpu0 x 16MiB",
        ];
        for (nth, case) in cases.iter().enumerate() {
            assert_eq!(rounds.bind(&case.parse().expect("a case")).expect("it binds"), nth);
        }
        let reps: Vec<u64> = rounds.probes.iter().map(|probe| probe.reps).collect();
        assert!((1..=2).contains(&reps[0]) && (30..=50).contains(&reps[1]), "{reps:?}");
        let begun = machine.clock.now();
        let first = rounds.measure(0).expect("a time");
        assert!((140e3..200e3).contains(&first.0), "{first:?}");
        let again = rounds.measure(0).expect("a time");
        assert!((first.0 / again.0 - 1.0).abs() < 0.02, "{first:?} {again:?}");
        rounds.measure(1).expect("a time");
        assert!((machine.clock.now() - begun).0 < 1.5e6);
        let mut looked = 0;
        let long = rounds.measure_while(1, Ns::ms(2.0), &mut || looked += 1).expect("a time");
        assert!(looked == 1 && long.0 < 20e3, "{long:?}");
        assert!(rounds.measure(3).is_err());
        // What runs in the background is not timed.
        let loaded = format!("{} while gpu4.vram > gpu5.vram by dma@gpu4 x 64MiB", cases[1]);
        let loaded = rounds.bind(&loaded.parse().expect("a case")).expect("it binds");
        assert!(rounds.measure(loaded).expect("a time").0 < 20e3);
    }

    #[test]
    fn a_destination_is_spoiled_before_it_is_compared() {
        let desc = MachineDesc::preset("hgx-h200").expect("a preset");
        let fails = |nth: u64| {
            let faults = vec![FaultOrder::fails("fill", nth, Severity::Transient)];
            let options = SimOptions { faults, ..SimOptions::default() };
            let machine = pathline_sim::machine_with(&desc, RuntimeEnv::default(), &options);
            let machine = machine.expect("a machine");
            let mut rounds = ProbeRounds::new(&machine);
            let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 16MiB".parse().expect("a case");
            [rounds.bind(&case).is_err(), rounds.compare(0).is_err()]
        };
        let only_compare = (1..9).filter(|&nth| fails(nth) == [false, true]);
        assert_eq!(
            only_compare.count(),
            3,
            "both ends as they are bound, and the destination once more"
        );
    }

    #[test]
    fn wrong_bytes_of_a_timed_operation_are_found() {
        let desc = MachineDesc::preset("hgx-h200").expect("a preset");
        let cases = [
            "gpu0.vram > gpu1.vram by dma@gpu0 x 16MiB",
            "numa0.pinned > gpu0.vram by dma@gpu0 x 16MiB",
        ];
        // Two copies bind each case; the fifth is the one whose bytes are compared first.
        for damaged in [None, Some(5), Some(6)] {
            let faults = damaged.map(|nth| FaultOrder::corrupts("copy", nth)).into_iter().collect();
            let options = SimOptions { faults, ..SimOptions::default() };
            let machine = pathline_sim::machine_with(&desc, RuntimeEnv::default(), &options);
            let machine = machine.expect("a machine");
            let mut rounds = ProbeRounds::new(&machine);
            for case in cases {
                rounds.bind(&case.parse().expect("a case")).expect("it binds");
            }
            let found = [0, 1].map(|probe| rounds.compare(probe).err().map(|error| error.severity));
            let wrong = |nth| (damaged == Some(nth)).then_some(Severity::Corrupt);
            assert_eq!(found, [wrong(5), wrong(6)]);
        }
    }

    #[test]
    fn messages_are_refused() {
        let machine = machine();
        let mut rounds = ProbeRounds::new(&machine);
        let case = "r0.gpu0.vram > r1.gpu1.vram by mpi-send@r0 x 1MiB".parse::<Case>();
        if let Ok(case) = case {
            assert!(rounds.bind(&case).is_err());
        }
        assert!(
            rounds
                .bind(&"gpu0.vram > gpu77.vram by dma@gpu0 x 1MiB".parse().expect("a case"))
                .is_err()
        );
    }

    /// Each of 6 orders of 3 is drawn 500 times of 3000, standard deviation 20.
    #[test]
    fn orders_are_drawn_evenly() {
        let mut counts = std::collections::BTreeMap::new();
        for seed in 0..3000_u64 {
            *counts.entry(drawn_order(3, pattern::word(9, seed))).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|n| (400..=600).contains(n)), "{counts:?}");
        assert_eq!(drawn_order(0, 1), Vec::<usize>::new());
    }
}
