//! Pageable memory and scattered blocks to and from a GPU: what libpathline does next to the runtime.

use pathline_schema::{Bytes, Flow, MemKind, Mover, ScatterMethod, SuiteId};

use super::pivot::{CellPivot, GBS};
use super::{SuiteFindings, frame};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

/// How a copy between host and GPU is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadMethod {
    /// The runtime's copy; of blocks one each.
    Plain,
    /// Many copies by one call of the runtime.
    Batch,
    /// This many threads.
    Threads(u32),
    /// One kernel, on this many multiprocessors.
    Kernel(u32),
    /// The runtime's copy of pinned memory.
    Pinned,
}

/// What copies have in common that are compared: pageable bytes, or blocks of that size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoadTask {
    /// From the GPU into the host.
    pub outward: bool,
    /// Bytes of a copy, or of one block.
    pub bytes: Bytes,
}

/// A result of one of the suites.
pub struct LoadCell<'b, 'a> {
    /// What is compared.
    pub task: LoadTask,
    /// How.
    pub method: LoadMethod,
    /// The case.
    pub entry: &'b RunEntry<'a>,
}

impl LoadMethod {
    /// `8 threads`
    pub fn label(self) -> String {
        match self {
            Self::Plain => "runtime".to_owned(),
            Self::Batch => "one call for many".to_owned(),
            Self::Threads(threads) => fmt::threads(threads),
            Self::Kernel(units) => format!("kernel g{units}"),
            Self::Pinned => "pinned".to_owned(),
        }
    }
}

impl LoadTask {
    /// `H2D`
    pub fn direction(self) -> &'static str {
        if self.outward { "D2H" } else { "H2D" }
    }
}

/// Task and method of a flow; none if neither suite has such a one.
fn task(suite: SuiteId, flow: &Flow) -> Option<(LoadTask, LoadMethod)> {
    let (host, _) = flow.host_and_gpu()?;
    let is_load = suite == SuiteId::Load;
    let (method, bytes) = match flow.by {
        Mover::Dma { .. } if is_load && host.mem == MemKind::Pinned => {
            (LoadMethod::Pinned, flow.bytes)
        }
        Mover::Dma { .. } if is_load => (LoadMethod::Plain, flow.bytes),
        Mover::Threads { threads, .. } if is_load => (LoadMethod::Threads(threads), flow.bytes),
        Mover::Blocks { blocks, by, .. } if !is_load => {
            let method = match by {
                ScatterMethod::Each => LoadMethod::Plain,
                ScatterMethod::Batch => LoadMethod::Batch,
                ScatterMethod::Kernel { units } => LoadMethod::Kernel(units),
            };
            (method, Bytes(flow.bytes.0 / u64::from(blocks.max(1))))
        }
        _ => return None,
    };
    Some((LoadTask { outward: flow.dst == host, bytes }, method))
}

/// The copies that a suite measured, in the order of the run.
pub fn copies<'b, 'a>(run: &'b RunView<'a>, suite: SuiteId) -> Vec<LoadCell<'b, 'a>> {
    let cell = |entry: &'b RunEntry<'a>| {
        let (task, method) = task(suite, entry.lone()?)?;
        Some(LoadCell { task, method, entry })
    };
    run.suite(suite).filter_map(cell).collect()
}

fn figure(run: &RunView, suite: SuiteId, title: &str) -> SuiteFindings {
    let copies = copies(run, suite);
    let point =
        |copy: &LoadCell| (copy.task, copy.method, run.cell(copy.entry, CaseQuantity::Payload));
    let matrix = CellPivot::new(copies.iter().map(point)).sorted().matrix(
        ("copy", |task| format!("{}, {}", task.direction(), task.bytes)),
        ("by", |method| method.label()),
        GBS,
    );
    SuiteFindings::new(frame(run, (suite, ""), suite.word(), title).draw_any(matrix), [])
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    figure(run, SuiteId::Load, "Pageable memory by the runtime and by threads")
}

pub(super) fn find_blocks(run: &RunView) -> SuiteFindings {
    figure(run, SuiteId::Blocks, "Scattered blocks of pinned memory")
}
