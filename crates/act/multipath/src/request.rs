//! What is to be copied, and what came of it.

use pathline_hal::{CallError, CallResult, CopyChoice};
use pathline_schema::{Bytes, CopyAgent, GpuSet, MultipathSpec, Ns, Unit};

/// Memory at one end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyEnd {
    /// Its first address.
    pub address: u64,
    /// The GPU or NUMA domain that it lies in.
    pub unit: Unit,
}

/// A copy over several paths. The driver knows the memory of all ends, and host memory is page-locked.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyRequest {
    /// Source.
    pub src: CopyEnd,
    /// Destination.
    pub dst: CopyEnd,
    /// Further destinations of the same bytes, on the GPUs of `paths`; without any, those GPUs are relays.
    pub others: Vec<CopyEnd>,
    /// Bytes into each destination.
    pub bytes: Bytes,
    /// GPUs that take part, chunk, and what carries each leg.
    pub paths: MultipathSpec,
    /// Time from the first look after which the copy fails; see [`Self::time_limit`].
    pub limit: Ns,
}

impl CopyRequest {
    /// The engine that legs ask for.
    pub(crate) fn engine(&self) -> CopyChoice {
        match self.paths.agent {
            CopyAgent::Engine => CopyChoice::Auto,
            CopyAgent::Kernel => CopyChoice::Blit,
        }
    }

    /// The GPU at the end of the copy, or at its start if it goes to the host.
    pub(crate) fn at(&self) -> u32 {
        self.dst.unit.gpu().or(self.src.unit.gpu()).unwrap_or_default()
    }

    /// Whether each fill of a relay waits on the GPU for the fill before it. A copy engine serves a stream until
    /// none of its copies is ready, so between two chained fills it serves copies of the relay's owner: with chunks
    /// of 4 MiB those of 64 KiB wait 87 us longer (p99), and 162 us behind fills that are not chained. Kernels
    /// share a link, and the start of one is to overlap the bytes of the other.
    pub(crate) fn chains_fills(&self) -> bool {
        self.src.unit.gpu().is_none() && self.engine() != CopyChoice::Blit
    }

    /// Refuses what no engine can copy.
    ///
    /// # Errors
    /// No bytes, addresses past the end of all memory, or destinations that are not those of `paths`.
    pub(crate) fn check(&self) -> CallResult<()> {
        let refuse = |reason: &str| {
            let thing = format!("{} to {}", self.bytes, self.dst.unit);
            Err(CallError::unsupported("copy", thing, reason))
        };
        if self.bytes.0 == 0 {
            return refuse("it has no bytes");
        }
        if self.dst.unit.gpu().or(self.src.unit.gpu()).is_none() {
            return refuse("neither end is a GPU");
        }
        let ends = [self.src, self.dst].into_iter().chain(self.others.iter().copied());
        for end in ends {
            if end.address == 0 || end.address.checked_add(self.bytes.0).is_none() {
                return refuse("an end is no range of addresses");
            }
        }
        if self.others.is_empty() {
            return Ok(());
        }
        let gpus: GpuSet = self.others.iter().filter_map(|end| end.unit.gpu()).collect();
        if gpus != self.paths.gpus || gpus.len() as usize != self.others.len() {
            return refuse("its further destinations are not one on each GPU of its paths");
        }
        Ok(())
    }

    /// Twice the predicted time and a second.
    pub fn time_limit(predicted: Ns) -> Ns {
        Ns(2.0 * predicted.0) + Ns::secs(1.0)
    }
}

/// Bytes that one path carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathBytes {
    /// The relay, or the GPU that took its part from the source; none for the direct path.
    pub gpu: Option<u32>,
    /// Bytes.
    pub bytes: Bytes,
}

/// A relay that was given up during a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRelay {
    /// The GPU.
    pub gpu: u32,
    /// The first error, or that it stalled.
    pub error: CallError,
}

/// What a copy that arrived has done.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyReport {
    /// Bytes by path: the direct one first.
    pub paths: Vec<PathBytes>,
    /// Chunks of lost relays that were copied again.
    pub repeated: u64,
    /// Relays that were given up.
    pub lost: Vec<LostRelay>,
    /// Time of all repetitions of a timed copy.
    pub elapsed: Option<Ns>,
}
