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
