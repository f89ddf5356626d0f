//! MPI: how one message goes, and windows and ping-pongs of messages.
//!
//! Small messages of device memory are loaded and stored by the CPU and go through shared memory;
//! larger ones are copied from GPU to GPU, by the sender's copy engine or by the runtime's copy
//! kernel there, which writes. Messages between nodes go from memory to memory by the adapters.
//! Messages between a GPU and host memory go in pieces: the GPU's engine copies to or from pinned
//! memory, a core copies the other half, and both work at once on different pieces.

use std::sync::Arc;

use pathline_flow::{MpiModel, NoPath, RateDemand};
use pathline_schema::Bytes;

use crate::exchange::{BufferPair, BufferPlace, ExchangeMember};
use crate::exchange_time::{AlgorithmTime, us};
use crate::scene::{ByteCarrier, ExchangeScene};
use crate::transfer::{TransferRoute, rates};

/// An MPI on a machine.
pub(crate) struct MpiLibrary<'a> {
    pub scene: &'a ExchangeScene<'a>,
    pub mpi: &'a MpiModel,
    /// By copy engine; else by the runtime's copy kernel.
    pub sdma: bool,
    /// Its broadcasts are those of Open MPI; else those of MPICH.
    pub open_mpi: bool,
}

/// How one message goes.
#[derive(Debug, Clone)]
pub(crate) struct MessageRoute {
    pub path: Arc<TransferRoute>,
    /// Bytes that pass for a byte of payload.
    pub weight: f64,
    /// From an idle start to the first byte, ns.
    pub start: f64,
    /// The same while the previous message is in flight, ns.
    pub queued: f64,
    /// What carries it, for the list of steps.
    pub by: &'static str,
    /// Whether the CPU that sends is busy with it all along.
    pub by_cpu: bool,
    /// Whether one process copies into memory of the other's GPU, which it maps before the first time.
    pub mapped: bool,
}

impl MpiLibrary<'_> {
    /// How a message goes, of `bytes`.
    pub(crate) fn message(
        &self,
        a: ExchangeMember,
        b: ExchangeMember,
        bytes: f64,
        buffers: BufferPair,
    ) -> Result<MessageRoute, NoPath> {
        let mpi = self.mpi;
        let small = mpi.host_message_us * 1e3;
        let handshake = mpi.handshake_us * 1e3;
        if a.node != b.node {
            let path = self.scene.device(ByteCarrier::Kernel, a, b)?;
            let start = mpi.net_us * 1e3 + path.alpha;
            let by = "network adapter";
            // The adapter works through its queue while the next message is announced.
            return Ok(MessageRoute {
                path,
                weight: 1.0,
                start,
                queued: 0.0,
                by,
                by_cpu: false,
                mapped: false,
            });
        }
        if buffers == BufferPair::both(BufferPlace::Host) {
            let once = bytes >= mpi.single_copy_from_bytes as f64;
            let path = self.scene.host(a, b, bytes as u64)?;
            let (weight, start, by) = if once {
                (1.0, small + handshake, "CPU, copied once")
            } else {
                (2.0, small, "CPU, through shared memory")
            };
            return Ok(MessageRoute {
                path,
                weight,
                start,
                queued: start,
                by,
                by_cpu: true,
                mapped: false,
            });
        }
        if bytes <= mpi.ipc_above_bytes as f64 {
            let path = Arc::new(self.by_loads_and_stores());
            let by = "CPU loads and stores, through shared memory";
            let (start, queued) = (small, small);
            return Ok(MessageRoute {
                path,
                weight: 1.0,
                start,
                queued,
                by,
                by_cpu: true,
                mapped: false,
            });
        }
        if buffers != BufferPair::both(BufferPlace::Vram) {
            return self.half_of_host(a, b, bytes, buffers.from == BufferPlace::Vram);
        }
        let (hand, by) = match self.sdma {
            true => (ByteCarrier::Engine, "copy engine of the sender"),
            false => (ByteCarrier::Blit, "copy kernel on the sender, which writes"),
        };
        let path = self.scene.device(hand, a, b)?;
        let (idle, queued) = match self.sdma {
            true => (path.alpha, mpi.engine_us * 1e3),
            false => (mpi.blit_us * 1e3, mpi.blit_us * 1e3),
        };
        Ok(MessageRoute {
            path,
            weight: 1.0,
            start: handshake + idle,
            queued,
            by,
            by_cpu: false,
            mapped: true,
        })
    }

    /// A message from a GPU to host memory (`out`) or back, of one node. The pieces of one message
    /// follow each other without a gap.
    fn half_of_host(
        &self,
        a: ExchangeMember,
        b: ExchangeMember,
        bytes: f64,
        out: bool,
    ) -> Result<MessageRoute, NoPath> {
        let mpi = self.mpi;
        let piece = mpi.fragment_bytes.ok_or_else(|| {
            NoPath(
                "the description of this library has no fragment_bytes, the pieces of messages \
                 between a GPU and host memory"
                    .to_owned(),
            )
        })?;
        let (device, by) = match (out, self.sdma) {
            (true, true) => (a, "copy engine into pinned memory, and a core out of it"),
            (true, false) => (a, "copy kernel into pinned memory, and a core out of it"),
            (false, true) => (b, "a core into pinned memory, and copy engine out of it"),
            (false, false) => (b, "a core into pinned memory, and copy kernel out of it"),
        };
        let staging = self.scene.staging(self.copier(), device, out, bytes as u64)?;
        let core = self.scene.host(a, b, bytes as u64)?;
        let path = Arc::new(TransferRoute {
            uses: staging.uses.iter().chain(&core.uses).copied().collect(),
            cap: staging.cap.min(core.cap),
            alpha: staging.alpha,
            share: staging.share,
        });
        // The slower of the two works all along, and the other on one piece before or after it.
        let other = bytes.min(piece as f64) / staging.cap.max(core.cap);
        let start = mpi.handshake_us * 1e3 + staging.alpha + other;
        let queued = self.queued_copy();
        Ok(MessageRoute { path, weight: 1.0, start, queued, by, by_cpu: true, mapped: false })
    }

    /// What copies between a GPU and host memory.
    pub(crate) const fn copier(&self) -> ByteCarrier {
        if self.sdma { ByteCarrier::Engine } else { ByteCarrier::Blit }
    }

    /// Start of a copy that is queued behind another, ns.
    pub(crate) const fn queued_copy(&self) -> f64 {
        1e3 * if self.sdma { self.mpi.engine_us } else { self.mpi.blit_us }
    }

    /// What a message from GPU to GPU adds outside of collectives, ns.
    fn announcement(&self, message: &MessageRoute, bytes: f64) -> f64 {
        let from = self.mpi.announced_from_bytes.filter(|_| message.mapped);
        let announced = from.is_some_and(|from| bytes >= from as f64);
        if announced { self.mpi.announced_us * 1e3 } else { 0.0 }
    }

    /// Windows of messages of all pairs at once, as osu_bw and osu_mbw_mr count them.
    pub(crate) fn window(
        &self,
        pairs: &[(ExchangeMember, ExchangeMember)],
        window: u32,
        bytes: f64,
        buffers: BufferPair,
    ) -> Result<AlgorithmTime, NoPath> {
        let messages: Vec<MessageRoute> = pairs
            .iter()
            .map(|&(a, b)| self.message(a, b, bytes, buffers))
            .collect::<Result<_, _>>()?;
        let flows: Vec<RateDemand<'_>> = messages.iter().map(|m| m.path.demand()).collect();
        let rates = rates(&self.scene.capacities, &flows);
        let full = self.scene.full(&flows, &rates);
        let reply = self.mpi.host_message_us * 1e3;
        let mut outcome =
            AlgorithmTime { pairs: pairs.len(), bound_by: full, ..AlgorithmTime::default() };
        let mut sum = 0.0;
        for ((m, rate), (a, b)) in messages.iter().zip(&rates).zip(pairs) {
            let each = m.queued + bytes * m.weight / rate;
            // The first message finds nothing in flight, and the last is answered.
            let announced = self.announcement(m, bytes);
            let once =
                m.start + announced - m.queued + if a.node == b.node { reply } else { m.start };
            outcome.maps = outcome.maps.max(u32::from(m.mapped));
            let time = each + once.max(0.0) / f64::from(window);
            sum += time;
            outcome.each.push(time);
            list_step(&mut outcome.steps, pairs.len(), || {
                format!(
                    "{a}>{b}: {} B at {rate:.1} GB/s after {} each, by {}",
                    bytes as u64,
                    us(m.queued),
                    m.by
                )
            });
            if time > outcome.time {
                outcome.time = time;
                outcome.algorithm = format!("window of {window}, by {}", m.by);
            }
            if bytes * m.weight / rate < m.queued {
                outcome.bound_by.clear();
            }
        }
        outcome.mean = sum / pairs.len().max(1) as f64;
        let sent = messages.iter().map(|m| (m.path.uses.as_slice(), bytes * m.weight));
        outcome.loads = self.scene.loads(sent);
        Ok(outcome)
    }

    /// One message of each pair there and back.
    pub(crate) fn ping(
        &self,
        pairs: &[(ExchangeMember, ExchangeMember)],
        bytes: f64,
        buffers: BufferPair,
    ) -> Result<AlgorithmTime, NoPath> {
        let mut outcome = AlgorithmTime { pairs: pairs.len(), ..AlgorithmTime::default() };
        let mut times = vec![0.0; pairs.len()];
        for back in [false, true] {
            let memory = if back { buffers.reversed() } else { buffers };
            let turned =
                |&(a, b): &(ExchangeMember, ExchangeMember)| if back { (b, a) } else { (a, b) };
            let messages: Vec<MessageRoute> = pairs
                .iter()
                .map(turned)
                .map(|(a, b)| self.message(a, b, bytes, memory))
                .collect::<Result<_, _>>()?;
            let flows: Vec<RateDemand<'_>> = messages.iter().map(|m| m.path.demand()).collect();
            let rates = rates(&self.scene.capacities, &flows);
            for (((m, rate), time), pair) in messages.iter().zip(rates).zip(&mut times).zip(pairs) {
                let start = m.start + self.announcement(m, bytes);
                let one = start + bytes * m.weight / rate;
                outcome.maps = outcome.maps.max(u32::from(m.mapped));
                *time += one / 2.0;
                let (a, b) = turned(pair);
                list_step(&mut outcome.steps, 2 * pairs.len(), || {
                    format!("{a}>{b}: {} to start, {} in all", us(start), us(one))
                });
                outcome.algorithm = format!("one at a time, by {}", m.by);
            }
        }
        outcome.time = times.iter().copied().fold(0.0, f64::max);
        outcome.mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
        outcome.each = times;
        Ok(outcome)
    }

    /// The path and the start, in ns, of a copy of `bytes` within the memory of one rank: by the runtime's
    /// copy kernel, and by the CPU in host memory and up to [`MpiModel::ipc_above_bytes`] of device
    /// memory, whose loads and stores it takes as long for as those of a message of that size.
    pub(crate) fn own_copy(
        &self,
        member: ExchangeMember,
        bytes: f64,
        buffers: BufferPlace,
    ) -> Result<(Arc<TransferRoute>, f64), NoPath> {
        if buffers == BufferPlace::Host {
            return Ok((self.scene.host(member, member, bytes as u64)?, 0.0));
        }
        if bytes <= self.mpi.ipc_above_bytes as f64 {
            return Ok((Arc::new(self.by_loads_and_stores()), self.mpi.host_message_us * 1e3));
        }
        let path = self.scene.device(ByteCarrier::Blit, member, member)?;
        let start = path.alpha;
        Ok((path, start))
    }

    /// A CPU that loads and stores device memory, through memory that processes share.
    fn by_loads_and_stores(&self) -> TransferRoute {
        TransferRoute { uses: Vec::new(), cap: self.mpi.host_message_gbs, alpha: 0.0, share: 1.0 }
    }

    /// Time of a CPU core to sum `bytes`, ns: a copy reads and writes them once, a sum reads
    /// two buffers and writes one.
    pub(crate) fn sum(&self, m: ExchangeMember, bytes: f64) -> Result<f64, NoPath> {
        let copy = self.scene.host(m, m, Bytes(bytes as u64).0.max(1))?;
        Ok(1.5 * bytes / copy.cap)
    }
}

/// The most steps of pairs that are listed.
const MAX_STEPS: usize = 128;

/// Adds a step of `all`, or behind the last one that is listed how many are left.
fn list_step(steps: &mut Vec<String>, all: usize, step: impl FnOnce() -> String) {
    match steps.len() {
        listed if listed < MAX_STEPS => steps.push(step()),
        MAX_STEPS => steps.push(format!("and {} more", all - MAX_STEPS)),
        _ => {}
    }
}
