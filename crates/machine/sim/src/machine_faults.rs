//! Faults of a described machine in one process: which of them it has, and when they act.

use std::collections::BTreeSet;

use pathline_flow::{FaultEffect, FaultElement, MachineFault};
use pathline_hal::pattern;
use pathline_schema::{Flow, LinkEnd, MemKind, Place, Unit};

/// What the draw of faults adds to the seed of times.
const FAULT_SEED: u64 = 0x0066_6175_6c74;

/// The faults that a process has.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActingFaults {
    all: Vec<MachineFault>,
}

impl ActingFaults {
    /// Each fault of `faults` with its probability. One seed always draws the same.
    pub(crate) fn draw(faults: &[MachineFault], seed: u64) -> Self {
        let has = |nth: usize, fault: &MachineFault| {
            let bits = pattern::word(seed ^ FAULT_SEED, nth as u64) >> 11;
            (bits as f64) < fault.probability * (1_u64 << 53) as f64
        };
        let drawn = faults.iter().enumerate().filter(|&(nth, fault)| has(nth, fault));
        Self { all: drawn.map(|(_, fault)| *fault).collect() }
    }

    pub(crate) fn all(&self) -> &[MachineFault] {
        &self.all
    }

    /// The flow between the places where its memory really lies.
    pub(crate) fn on_pages(&self, flow: Flow) -> Flow {
        Flow { src: self.page_home(flow.src), dst: self.page_home(flow.dst), ..flow }
    }

    /// Where memory of a place really lies.
    pub(crate) fn page_home(&self, place: Place) -> Place {
        let home = self.all.iter().find_map(|fault| match (fault.element, fault.effect) {
            (FaultElement::Numa(numa), FaultEffect::Numa { pages_on })
                if place.unit == Unit::Numa(numa) && place.mem != MemKind::Reg =>
            {
                Some(pages_on)
            }
            _ => None,
        });
        home.map_or(place, |numa| Place { unit: Unit::Numa(numa), ..place })
    }

    /// The bundles that flap and are slow at an instant, ns.
    pub(crate) fn flapping(&self, at: f64) -> impl Iterator<Item = &MachineFault> {
        self.all.iter().filter(move |fault| match fault.effect {
            FaultEffect::Flapping { period, active, .. } => at % period.0 < active * period.0,
            _ => false,
        })
    }

    /// The GPU whose stream waits for ever for an operation over these units: the one that hangs, of a link that does
    /// the one that bytes leave.
    pub(crate) fn hangs(&self, route: &[LinkEnd], at: f64) -> Option<u32> {
        let acts = |effect| matches!(effect, FaultEffect::Hang { after } if at >= after.0);
        let fault = self.all.iter().find(|fault| acts(fault.effect) && fault.is_on(route))?;
        let gpu = |end: &LinkEnd| if let LinkEnd::Gpu(gpu) = end { Some(*gpu) } else { None };
        match fault.element {
            FaultElement::Gpu(gpu) => Some(gpu),
            _ => route.iter().find_map(gpu),
        }
    }

    /// Whether calls on a GPU fail at an instant, ns.
    pub(crate) fn crashes(&self, gpu: u32, at: f64) -> bool {
        self.all.iter().any(|fault| match (fault.element, fault.effect) {
            (FaultElement::Gpu(of), FaultEffect::Crash { after }) => of == gpu && at >= after.0,
            _ => false,
        })
    }

    /// Errors that a GPU has counted until an instant, ns: corrected ECC, links to GPUs and switches, PCIe.
    pub(crate) fn counters(&self, gpu: u32, at: f64, home: Option<u32>) -> ErrorCounters {
        let mut counters = ErrorCounters::default();
        for fault in &self.all {
            let FaultEffect::Errors { per_second } = fault.effect else { continue };
            let errors = (per_second * at / 1e9) as u64;
            match fault.element {
                FaultElement::Gpu(of) if of == gpu => counters.ecc += errors,
                FaultElement::Bundle { from, to, .. } => {
                    let ends = BTreeSet::from([from, to]);
                    if !ends.contains(&LinkEnd::Gpu(gpu)) {
                        continue;
                    }
                    if home.is_some_and(|numa| ends.contains(&LinkEnd::Numa(numa))) {
                        counters.pcie += errors;
                    } else {
                        counters.links += errors;
                    }
                }
                FaultElement::Gpu(_) | FaultElement::Numa(_) => {}
            }
        }
        counters
    }
}

/// Error counters of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ErrorCounters {
    /// Corrected errors of its memory.
    pub(crate) ecc: u64,
    /// Errors of its links to other GPUs and to switches.
    pub(crate) links: u64,
    /// Packets that its link to the host sent again.
    pub(crate) pcie: u64,
}
