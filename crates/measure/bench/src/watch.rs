//! The state of the GPUs that a case uses: error counters around it, clocks during it.

use std::collections::{BTreeMap, BTreeSet};

use pathline_hal::Machine;
use pathline_schema::{Case, GpuReadings, GpuState, Ns, RunNote, Unit};

/// Factor by which the operations outlast a reading.
const MARGIN: f64 = 2.0;
/// Assumed duration of a reading of one GPU before the first one.
const INITIAL_READING_TIME: Ns = Ns(500_000.0);
/// Maximum duration of operations for a reading of one GPU.
const MAX_READING_TIME: Ns = Ns(5_000_000.0);
/// Validity of counters as a factor of their reading time: a GPU costs 2 % at most.
const COUNTERS_KEEP: f64 = 50.0;

/// A library wrote past its buffer.
const OVERRUN: &str = "library-overrun";

/// Counters of a GPU, when they were read, and the duration.
struct CounterReading {
    at: Ns,
    took: Ns,
    state: GpuState,
}

/// Reads the GPUs of cases and tracks the duration.
pub(crate) struct GpuWatch<'a> {
    machine: &'a Machine,
    /// The slowest GPU of the last reading.
    slowest: Option<Ns>,
    counted: BTreeMap<Unit, CounterReading>,
    /// Warnings of the monitor that the journal already has.
    warned: BTreeSet<String>,
}

impl<'a> GpuWatch<'a> {
    pub(crate) fn new(machine: &'a Machine) -> Self {
        Self { machine, slowest: None, counted: BTreeMap::new(), warned: BTreeSet::new() }
    }

    /// Notes on disturbances of the host, and on errors of the monitor's library, since the last
    /// call.
    pub(crate) fn new_notes(&mut self) -> Vec<RunNote> {
        let mut warnings = self.machine.monitor.as_ref().map_or_else(Vec::new, |m| m.warnings());
        warnings.retain(|text| self.warned.insert(text.clone()));
        let note = |text| RunNote { code: OVERRUN.to_owned(), subject: "run".to_owned(), text };
        let mut notes = self.machine.host.new_notes();
        notes.extend(warnings.into_iter().map(note));
        notes
    }

    /// Counters of every readable GPU that the case names.
    pub(crate) fn before(&mut self, case: &Case) -> BTreeMap<Unit, GpuReadings> {
        let reading = |unit: Unit| {
            let before = self.counters(unit)?;
            Some((unit, GpuReadings { before, ..GpuReadings::default() }))
        };
        units(case).into_iter().filter_map(reading).collect()
    }

    /// Counters again, after the case.
    pub(crate) fn after(&mut self, readings: &mut BTreeMap<Unit, GpuReadings>) {
        for (unit, reading) in readings {
            reading.after = self.counters(*unit).unwrap_or_default();
        }
    }

    fn counters(&mut self, unit: Unit) -> Option<GpuState> {
        let begun = self.machine.clock.now();
        if let Some(known) = self.counted.get(&unit)
            && (begun - known.at).0 < known.took.0 * COUNTERS_KEEP
        {
            return Some(known.state.clone());
        }
        let state = self.machine.monitor.as_ref()?.counters(unit.gpu()?)?;
        let at = self.machine.clock.now();
        self.counted.insert(unit, CounterReading { at, took: at - begun, state: state.clone() });
        Some(state)
    }

    /// Minimum duration of operations for a reading of `gpus` GPUs to end before they do.
    pub(crate) fn needs(&self, gpus: usize) -> Ns {
        let each = self.slowest.unwrap_or(INITIAL_READING_TIME) * MARGIN;
        Ns(each.0.min(MAX_READING_TIME.0)) * gpus as f64
    }

    /// State of each GPU now, and the duration of reading all.
    pub(crate) fn now(&mut self, units: &[Unit]) -> (Vec<Option<GpuState>>, Ns) {
        let begun = self.machine.clock.now();
        let (mut last, mut slowest) = (begun, Ns::ZERO);
        let mut states = Vec::new();
        for &unit in units {
            let monitor = self.machine.monitor.as_ref();
            states.push(monitor.zip(unit.gpu()).and_then(|(monitor, gpu)| monitor.state(gpu)));
            let now = self.machine.clock.now();
            slowest = Ns(slowest.0.max((now - last).0));
            last = now;
        }
        self.slowest = Some(slowest);
        (states, last - begun)
    }
}

/// GPUs that hold memory of the case or move its bytes.
fn units(case: &Case) -> BTreeSet<Unit> {
    let units = case.flows().flat_map(|f| [f.src.unit, f.dst.unit, f.by.at()]);
    units.filter(|u| u.gpu().is_some()).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use pathline_flow::{MachineDesc, RuntimeEnv};
    use pathline_hal::{Clock, Monitor};
    use pathline_schema::GpuFacts;

    use super::*;

    /// A clock that only readings of GPUs move.
    struct HeldClock(Rc<Cell<f64>>);

    impl Clock for HeldClock {
        fn now(&self) -> Ns {
            Ns(self.0.get())
        }
        fn sleep(&self, time: Ns) {
            self.0.set(self.0.get() + time.0);
        }
        fn name(&self) -> &str {
            "held"
        }
    }

    /// A monitor that takes 1 ms for the counters and 0.6 ms for the state of a GPU, of gpu1 0.8 ms.
    struct TimedMonitor(Rc<Cell<f64>>, Cell<u64>);

    impl Monitor for TimedMonitor {
        fn facts(&self, _: u32) -> Option<GpuFacts> {
            None
        }
        fn state(&self, gpu: u32) -> Option<GpuState> {
            self.0.set(self.0.get() + if gpu == 1 { 8e5 } else { 6e5 });
            Some(GpuState::default())
        }
        fn counters(&self, _: u32) -> Option<GpuState> {
            self.0.set(self.0.get() + 1e6);
            self.1.set(self.1.get() + 1);
            Some(GpuState { pcie_replays: Some(self.1.get()), ..GpuState::default() })
        }
        fn warnings(&self) -> Vec<String> {
            vec!["overrun".to_owned(), format!("{} readings", self.1.get())]
        }
    }

    /// Counters that took 1 ms are read again after 50 ms. Operations outlast a reading of two GPUs twice: of 0.5 ms
    /// each at first, then of the slowest, 5 ms at most. A warning is a note once.
    #[test]
    fn readings_are_repeated_and_outlasted_by_their_time() {
        let desc = MachineDesc::preset("hgx-h200").expect("a preset");
        let machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1);
        let mut machine = machine.expect("a machine");
        let time = Rc::new(Cell::new(0.0));
        machine.clock = Box::new(HeldClock(Rc::clone(&time)));
        machine.monitor = Some(Box::new(TimedMonitor(Rc::clone(&time), Cell::new(0))));
        let mut watch = GpuWatch::new(&machine);
        let gpu = Unit::Gpu(0);
        let replays = |watch: &mut GpuWatch<'_>| watch.counters(gpu).and_then(|s| s.pcie_replays);
        assert_eq!(replays(&mut watch), Some(1));
        for (wait, expected) in [(49.9, 1), (0.2, 2), (49.9, 2), (49.9, 3)] {
            machine.clock.sleep(Ns::ms(wait));
            assert_eq!(replays(&mut watch), Some(expected), "{wait} ms");
        }
        assert_eq!(watch.needs(2), Ns::ms(2.0));
        let (states, took) = watch.now(&[gpu, Unit::Gpu(1), Unit::Gpu(2)]);
        assert_eq!((states.len(), took), (3, Ns::ms(2.0)));
        assert_eq!([1, 2].map(|gpus| watch.needs(gpus)), [Ns::ms(1.6), Ns::ms(3.2)]);
        watch.slowest = Some(Ns::ms(2.6));
        assert_eq!(watch.needs(2), Ns::ms(10.0));
        let notes = |watch: &mut GpuWatch<'_>| watch.new_notes().into_iter().map(|n| n.text);
        assert!(notes(&mut watch).eq(["overrun", "3 readings"]));
        assert_eq!(notes(&mut watch).count(), 0);
        time.set(1e12);
        replays(&mut watch);
        assert!(notes(&mut watch).eq(["4 readings"]));
        let case = "numa0.pinned > gpu2.vram by dma@gpu2 x 1MiB".parse().expect("a case");
        assert_eq!(units(&case), [Unit::Gpu(2)].into());
    }
}
