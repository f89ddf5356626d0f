//! The layer: a machine with its libraries, ready to be asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pathline_flow::{DescError, MachineDesc, Network, NoPath, Software, Switches};

use crate::bounds::Peaks;
use crate::exchange::{Buffers, Exchange, Library, Member, What};
use crate::rings::{Ring, rings};
use crate::scene::{Machine, Scene};
use crate::told::Told;
use crate::{ccl, mpi, schedule};

/// The most ranks that an exchange may have here.
const MAX_RANKS: usize = 64;

/// GPUs that rings pass, and the most rings.
type Wanted = (Vec<u32>, usize);

/// Message libraries on a machine.
#[derive(Debug)]
pub struct Layer {
    machine: Machine,
    software: Software,
    /// Where the sections would stand.
    file: String,
    peaks: Peaks,
    /// Rings found so far, by the GPUs that they pass and how many were asked for.
    rings: Mutex<HashMap<Wanted, Arc<Vec<Ring>>>>,
}

impl Layer {
    /// The libraries that the description has, on the machine that it describes.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn new(desc: &MachineDesc) -> Result<Self, DescError> {
        // An exchange says itself whether copy engines are used.
        let network = Network::new(desc, Switches::default())?;
        let machine = Machine::new(desc, network);
        let peaks = Peaks::new(desc, &machine);
        let (software, file) = (desc.software.clone(), desc.file.clone());
        Ok(Self { machine, software, file, peaks, rings: Mutex::default() })
    }

    /// How long an exchange takes, and why.
    ///
    /// # Errors
    /// The machine has no such GPU, link or adapter, its description no such library, or the
    /// library no such exchange; in words for a table.
    pub fn time(&self, exchange: &Exchange) -> Result<Told, NoPath> {
        let members = exchange.members();
        if members.len() > MAX_RANKS {
            let n = members.len();
            return Err(NoPath(format!("{n} ranks; up to {MAX_RANKS} are modelled")));
        }
        let scene = Scene::new(&self.machine, &members)?;
        let bounds = self.peaks.of(exchange);
        let (bytes, buffers) = (exchange.bytes.as_f64(), exchange.buffers);
        let (outcome, factor) = match exchange.by {
            Library::CrayMpich { sdma } | Library::Ucx { sdma } => {
                let found = match exchange.by {
                    Library::CrayMpich { .. } => &self.software.cray_mpich,
                    _ => &self.software.ucx,
                };
                let mpi = found.as_ref().ok_or_else(|| self.missing(exchange.by))?;
                let library = mpi::Library { scene: &scene, mpi, sdma };
                match &exchange.what {
                    What::Send { pairs, window } => {
                        (library.window(pairs, *window, bytes, buffers)?, 1.0)
                    }
                    What::Ping { pairs } => (library.ping(pairs, bytes, buffers)?, 1.0),
                    What::Collective { op, over } => {
                        let outcome = schedule::collective(&library, *op, over, bytes, buffers)?;
                        (outcome, op.bus_factor(over.len()))
                    }
                }
            }
            Library::Rccl | Library::Nccl => {
                let found = match exchange.by {
                    Library::Rccl => &self.software.rccl,
                    _ => &self.software.nccl,
                };
                let ccl = found.as_ref().ok_or_else(|| self.missing(exchange.by))?;
                if buffers == Buffers::Host {
                    return Err(NoPath(format!("{} takes device memory only", exchange.by)));
                }
                match &exchange.what {
                    What::Send { pairs, .. } | What::Ping { pairs } => {
                        (ccl::messages(&scene, ccl, pairs, bytes)?, 1.0)
                    }
                    What::Collective { op, over } => {
                        let rings = self.rings(over, ccl.max_channels as usize);
                        let outcome = ccl::collective(&scene, ccl, &rings, *op, over, bytes)?;
                        (outcome, op.bus_factor(over.len()))
                    }
                }
            }
        };
        Ok(outcome.told(exchange.bytes, factor, bounds))
    }

    fn missing(&self, library: Library) -> NoPath {
        let word = library.word();
        NoPath(format!(
            "{} says nothing of {word}: no section [software.{word}]; add one, as `pathline machines \
             mi250x` has it",
            self.file
        ))
    }

    /// Rings over the GPUs that members have on the first node.
    fn rings(&self, over: &[Member], most: usize) -> Arc<Vec<Ring>> {
        let first = over.first().map_or(0, |m| m.node);
        let gpus: Vec<u32> = over.iter().filter(|m| m.node == first).map(|m| m.gpu).collect();
        let key = (gpus, most);
        let mut known = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rings) = known.get(&key) {
            return rings.clone();
        }
        let found = Arc::new(rings(self.machine.network.routes(), &key.0, most));
        known.insert(key, found.clone());
        found
    }
}
