//! The layer: predictions for a machine with its libraries.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pathline_flow::{
    CoreRates, DescError, MachineDesc, MachineFault, MessageSoftware, Network, NoPath, RuntimeEnv,
};
use pathline_schema::Case;

use crate::bounds::MachinePeaks;
use crate::ccl_library::CclLibrary;
use crate::ccl_messages::send_pairs;
use crate::exchange::{
    BufferPair, BufferPlace, ExchangeMember, ExchangeOp, ExchangeSpec, MessageLibrary,
};
use crate::exchange_time::ExchangeTime;
use crate::rings::{GpuRing, rings};
use crate::scene::{ExchangeScene, NodeParts};
use crate::shared_memory::{SharedMemory, SharedMemoryTime};
use crate::{ccl, mpi, schedule};

/// The most ranks of an operation with parts of different sizes, and of any other.
const MAX_UNEVEN: usize = 64;
const MAX_RANKS: usize = 1 << 17;

/// GPUs that rings pass, and the most rings.
type WantedRings = (Vec<u32>, usize);

/// Message libraries on a machine.
#[derive(Debug)]
pub struct MessageLayer {
    machine: NodeParts,
    software: MessageSoftware,
    cores: CoreRates,
    /// The machine file, for errors about missing sections.
    file: String,
    peaks: Arc<MachinePeaks>,
    /// Rings found so far, by the GPUs that they pass and the requested number.
    rings: Mutex<HashMap<WantedRings, Arc<Vec<GpuRing>>>>,
}

impl MessageLayer {
    /// The libraries that the description has, on the machine that it describes.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn new(desc: &MachineDesc) -> Result<Self, DescError> {
        Self::with_faults(desc, &[])
    }

    /// The same on a machine with faults: messages are slowed as copies are, by
    /// [`Network::with_faults`]. A library of collectives lays its rings over the links that the driver
    /// reports, so a silent fault slows rings that it would otherwise avoid. Bounds are those of the
    /// machine without faults.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn with_faults(desc: &MachineDesc, faults: &[MachineFault]) -> Result<Self, DescError> {
        // The exchange decides whether copy engines are used.
        let network = |faults| Network::with_faults(desc, RuntimeEnv::default(), faults);
        let machine = NodeParts::new(desc, network(faults)?, faults);
        let peaks = match faults {
            [] => MachinePeaks::new(&machine.topology, &machine.network),
            _ => MachinePeaks::new(&machine.topology, &network(&[])?),
        };
        Ok(Self::of_parts(desc, machine, Arc::new(peaks)))
    }

    fn of_parts(desc: &MachineDesc, machine: NodeParts, peaks: Arc<MachinePeaks>) -> Self {
        let (software, file) = (desc.software.clone(), desc.file.clone());
        let cores = desc.core_rates();
        Self { machine, software, cores, file, peaks, rings: Mutex::default() }
    }

    /// The same machine, which `desc` describes, with faults: as [`Self::with_faults`], with the bounds that
    /// are known already, and with the rings if no fault changes what the driver reports.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn damaged(&self, desc: &MachineDesc, faults: &[MachineFault]) -> Result<Self, DescError> {
        let network = Network::with_faults(desc, RuntimeEnv::default(), faults)?;
        let machine = NodeParts::new(desc, network, faults);
        let damaged = Self::of_parts(desc, machine, self.peaks.clone());
        if faults.iter().all(|fault| fault.silent) {
            let known = self.rings.lock().unwrap_or_else(PoisonError::into_inner).clone();
            *damaged.rings.lock().unwrap_or_else(PoisonError::into_inner) = known;
        }
        Ok(damaged)
    }

    /// How long the messages of a case take that go through memory which processes of a node share.
    ///
    /// # Errors
    /// The description has no section `[software.shared-memory]`, or the case has other flows. The
    /// message fits a table cell.
    pub fn shared_memory(&self, case: &Case) -> Result<SharedMemoryTime, NoPath> {
        let cost = self.software.shared_memory.as_ref();
        let cost = cost.ok_or_else(|| self.lacks("shared-memory"))?;
        SharedMemory { machine: &self.machine, cost, cores: &self.cores }.time(case)
    }

    /// How long an exchange takes, and why.
    ///
    /// # Errors
    /// The machine has no such GPU, link or adapter, its description no such library, or the
    /// library no such exchange. The message fits a table cell.
    pub fn time(&self, exchange: &ExchangeSpec) -> Result<ExchangeTime, NoPath> {
        self.solve(exchange, false)
    }

    /// The same with the load of every link, adapter and engine.
    ///
    /// # Errors
    /// As [`Self::time`].
    pub fn time_and_links(&self, exchange: &ExchangeSpec) -> Result<ExchangeTime, NoPath> {
        self.solve(exchange, true)
    }

    fn solve(&self, exchange: &ExchangeSpec, counts_loads: bool) -> Result<ExchangeTime, NoPath> {
        let members = exchange.members();
        let most = match &exchange.what {
            ExchangeOp::Collective { op, .. } if op.is_uneven() => MAX_UNEVEN,
            _ => MAX_RANKS,
        };
        if members.len() > most {
            let n = members.len();
            return Err(NoPath(format!("{n} ranks; up to {most} are modelled")));
        }
        let mut scene = ExchangeScene::new(&self.machine, &members)?;
        scene.counts_loads = counts_loads;
        let bounds = self.peaks.bounds(exchange);
        let bytes = exchange.bytes.as_f64();
        let buffers = self.seen_by_libraries(exchange.buffers)?;
        let staged = buffers.from == BufferPlace::Staged;
        let mut map_us = 0.0;
        let (outcome, factor) = match exchange.by {
            MessageLibrary::CrayMpich { sdma } | MessageLibrary::Ucx { sdma } => {
                let found = match exchange.by {
                    MessageLibrary::CrayMpich { .. } => &self.software.cray_mpich,
                    _ => &self.software.ucx,
                };
                let mpi = found.as_ref().ok_or_else(|| self.missing(exchange.by))?;
                map_us = mpi.map_us;
                let open_mpi = matches!(exchange.by, MessageLibrary::Ucx { .. });
                let library = mpi::MpiLibrary { scene: &scene, mpi, sdma, open_mpi };
                match &exchange.what {
                    ExchangeOp::Send { pairs, window } if staged => {
                        (library.staged_window(pairs, *window, bytes)?, 1.0)
                    }
                    ExchangeOp::Ping { pairs } if staged => {
                        (library.staged_ping(pairs, bytes)?, 1.0)
                    }
                    ExchangeOp::Collective { op, over } if staged => {
                        let outcome = library.staged_collective(*op, over, bytes)?;
                        (outcome, op.bus_factor(over.len()))
                    }
                    ExchangeOp::Send { pairs, window } => {
                        (library.window(pairs, *window, bytes, buffers)?, 1.0)
                    }
                    ExchangeOp::Ping { pairs } => (library.ping(pairs, bytes, buffers)?, 1.0),
                    ExchangeOp::Collective { op, over } => {
                        let memory = buffers.from;
                        let outcome = schedule::collective(&library, *op, over, bytes, memory)?;
                        (outcome, op.bus_factor(over.len()))
                    }
                }
            }
            MessageLibrary::Rccl | MessageLibrary::Nccl { .. } => {
                let found = match exchange.by {
                    MessageLibrary::Rccl => &self.software.rccl,
                    _ => &self.software.nccl,
                };
                let ccl = found.as_ref().ok_or_else(|| self.missing(exchange.by))?;
                if buffers != BufferPair::both(BufferPlace::Vram) {
                    return Err(NoPath(format!("{} takes device memory only", exchange.by)));
                }
                let reduces = exchange.by == MessageLibrary::Nccl { nvls: true };
                let model = CclLibrary::new(ccl, exchange.start, &members)?;
                let model = if reduces { model } else { model.without_nvls() };
                match &exchange.what {
                    ExchangeOp::Send { pairs, .. } | ExchangeOp::Ping { pairs } => {
                        (send_pairs(&scene, &model, pairs, bytes)?, 1.0)
                    }
                    ExchangeOp::Collective { op, over } => {
                        let rings = self.rings(over, ccl.max_channels as usize);
                        let outcome = ccl::collective(&scene, &model, &rings, *op, over, bytes)?;
                        (outcome, op.bus_factor(over.len()))
                    }
                }
            }
        };
        Ok(outcome.into_time(exchange.bytes, factor, bounds, &scene, map_us))
    }

    /// Managed memory as the libraries see it. UCX and Cray MPICH ask the HSA runtime for the owner
    /// of an address, which for managed memory is no GPU: their core copies it, and its pages come
    /// to host memory with the first message and stay there.
    fn seen_by_libraries(&self, buffers: BufferPair) -> Result<BufferPair, NoPath> {
        let is_host = self.machine.topology.gpus.iter().all(|gpu| gpu.caps().managed_is_host);
        let seen = |place| match place {
            BufferPlace::Managed if is_host => Ok(BufferPlace::Host),
            BufferPlace::Managed => Err(NoPath(format!(
                "{} does not describe how libraries move managed memory of its GPUs",
                self.file
            ))),
            place => Ok(place),
        };
        Ok(BufferPair { from: seen(buffers.from)?, to: seen(buffers.to)? })
    }

    fn missing(&self, library: MessageLibrary) -> NoPath {
        let own = match library {
            MessageLibrary::Rccl => self.software.nccl.as_ref().map(|_| "nccl"),
            MessageLibrary::Nccl { .. } => self.software.rccl.as_ref().map(|_| "rccl"),
            _ => None,
        };
        match own {
            Some(own) => NoPath(format!("the GPUs of {} have {own}: write `by {own}`", self.file)),
            None => self.lacks(library.word()),
        }
    }

    fn lacks(&self, word: &str) -> NoPath {
        NoPath(format!(
            "{} does not describe {word}: no section [software.{word}]; add one, as in `pathline \
             model show mi250x`",
            self.file
        ))
    }

    /// Rings over the GPUs that members have on the first node.
    fn rings(&self, over: &[ExchangeMember], most: usize) -> Arc<Vec<GpuRing>> {
        let first = over.first().map_or(0, |m| m.node);
        let gpus: Vec<u32> = over.iter().filter(|m| m.node == first).map(|m| m.gpu).collect();
        let key = (gpus, most);
        let mut known = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rings) = known.get(&key) {
            return rings.clone();
        }
        let found = Arc::new(rings(self.machine.reported_routes(), &key.0, most));
        known.insert(key, found.clone());
        found
    }
}
