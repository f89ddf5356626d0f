//! Messages of device memory through a library without GPU support: a copy to pinned memory, a
//! message, and a copy to the other GPU, as a program does without a GPU-aware MPI.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use pathline_hal::{
    CallError, CallResult, CopyChoice, ExchangeId, FlowPart, GpuStream, LocalMemory, Machine,
    MachineBuffer, NoBarrier, RankBarrier, RepeatMode, TransportPort,
};
use pathline_schema::{
    Bytes, Collective, MemKind, MessageOp, Place, Rank, Severity, Transport, Unit, WireOp,
};

/// Whether an error of [`TransportPort::release`] forbids freeing the memory.
pub(crate) fn keeps_memory(error: &CallError) -> bool {
    error.severity == Severity::Sticky
}

/// A case bound through host memory.
pub(crate) struct HostBounce<'m> {
    machine: &'m Machine,
    pace: RepeatMode,
    parts: Vec<BounceHalf<'m>>,
    /// Exchanges of the port: one, or the two directions of a round trip.
    inner: Vec<ExchangeId>,
    streams: BTreeMap<u32, GpuStream<'m>>,
}

/// Copies: GPU whose stream is used, destination, source, bytes.
type BounceCopies = Vec<(u32, u64, u64, Bytes)>;

/// This process's half of one part.
struct BounceHalf<'m> {
    idle: bool,
    /// Whether it answers a round trip rather than starts it.
    answers: bool,
    /// The copies of one repetition, from GPUs and to GPUs.
    out: BounceCopies,
    back: BounceCopies,
    /// Keeps the memory of the copies' addresses alive.
    _host: Vec<MachineBuffer<'m>>,
}

impl<'m> HostBounce<'m> {
    /// Binds parts of device memory to a port, through memory of `numa`; returns this process's
    /// offer for the other ranks.
    pub(crate) fn bind(
        machine: &'m Machine,
        numa: u32,
        port: &mut dyn TransportPort,
        parts: &[FlowPart],
        pace: RepeatMode,
    ) -> CallResult<(Self, Vec<u8>)> {
        let (mut halves, mut streams) = (Vec::new(), BTreeMap::new());
        let mut through: Vec<FlowPart> = Vec::new();
        for part in parts {
            let (half, host) = half(machine, numa, part)?;
            for &(gpu, ..) in half.out.iter().chain(&half.back) {
                if let Entry::Vacant(free) = streams.entry(gpu) {
                    free.insert(machine.gpu(gpu)?.stream()?);
                }
            }
            halves.push(half);
            through.push(host);
        }
        let round_trip = parts.iter().any(|part| part.wire.op == WireOp::Ping);
        let legs = if round_trip {
            vec![one_direction(&through, false), one_direction(&through, true)]
        } else {
            vec![through]
        };
        let (mut inner, mut offers) = (Vec::new(), Vec::new());
        for leg in &legs {
            let (id, offer) = port.bind(leg, RepeatMode::Streaming)?;
            inner.push(id);
            offers.push(offer);
        }
        let offer = serde_json::to_vec(&offers).unwrap_or_default();
        Ok((Self { machine, pace, parts: halves, inner, streams }, offer))
    }

    /// Joins with the offers of all ranks.
    pub(crate) fn join(&self, port: &mut dyn TransportPort, offers: &[Vec<u8>]) -> CallResult<()> {
        let of_rank =
            |offer: &Vec<u8>| serde_json::from_slice::<Vec<Vec<u8>>>(offer).unwrap_or_default();
        let all: Vec<Vec<Vec<u8>>> = offers.iter().map(of_rank).collect();
        for (leg, &id) in self.inner.iter().enumerate() {
            let of_leg: Vec<Vec<u8>> =
                all.iter().map(|offers| offers.get(leg).cloned().unwrap_or_default()).collect();
            port.join(id, &of_leg)?;
        }
        Ok(())
    }

    /// As [`TransportPort::run`].
    pub(crate) fn run(
        &self,
        port: &mut dyn TransportPort,
        reps: u64,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>> {
        let mut times = Vec::new();
        barrier.wait()?;
        let clock = &self.machine.clock;
        let mut begun = clock.now();
        for rep in 0..reps {
            if self.pace == RepeatMode::Isolated {
                if rep > 0 {
                    barrier.wait()?;
                }
                begun = clock.now();
            }
            self.once(port)?;
            if self.pace == RepeatMode::Isolated {
                times.push((clock.now() - begun).0);
            }
        }
        if self.pace != RepeatMode::Isolated {
            times.push((clock.now() - begun).0);
        }
        let of = |half: &BounceHalf<'_>| if half.idle { Vec::new() } else { times.clone() };
        Ok(self.parts.iter().map(of).collect())
    }

    /// Releases it; as [`TransportPort::release`], whose memory here is the host's.
    pub(crate) fn release(mut self, port: &mut dyn TransportPort) -> CallResult<()> {
        let mut released = Ok(());
        for &id in &self.inner {
            // Every exchange is released; the error that keeps memory counts.
            let leg = port.release(id);
            let keeps = |result: &CallResult<()>| result.as_ref().is_err_and(keeps_memory);
            if released.is_ok() || (keeps(&leg) && !keeps(&released)) {
                released = leg;
            }
        }
        if released.as_ref().is_err_and(keeps_memory) {
            std::mem::forget(std::mem::take(&mut self.parts));
        }
        released
    }

    /// The engine and transport of the bytes, for the record.
    pub(crate) fn engine(&self, port: &dyn TransportPort) -> String {
        let library = self.inner.first().map_or_else(String::new, |&id| port.engine(id));
        format!("copy engine, pinned memory, {library}, pinned memory, copy engine")
    }

    fn once(&self, port: &mut dyn TransportPort) -> CallResult<()> {
        let mut leg = |nth: usize| match self.inner.get(nth) {
            Some(&id) => port.run(id, 1, &NoBarrier).map(drop),
            None => Ok(()),
        };
        if self.inner.len() < 2 {
            self.copy(|half| &half.out)?;
            leg(0)?;
            return self.copy(|half| &half.back);
        }
        let answers = self.parts.iter().any(|half| half.answers);
        if answers {
            leg(0)?;
            self.copy(|half| &half.back)?;
            self.copy(|half| &half.out)?;
            leg(1)
        } else {
            self.copy(|half| &half.out)?;
            leg(0)?;
            leg(1)?;
            self.copy(|half| &half.back)
        }
    }

    fn copy(&self, which: for<'h> fn(&'h BounceHalf<'m>) -> &'h BounceCopies) -> CallResult<()> {
        for half in &self.parts {
            for &(gpu, dst, src, bytes) in which(half) {
                if let Some(stream) = self.streams.get(&gpu) {
                    stream.copy(dst, src, bytes, CopyChoice::Auto)?;
                }
            }
        }
        self.streams.values().try_for_each(GpuStream::wait)
    }
}

/// A part's copies, and the same part in host memory.
fn half<'m>(
    machine: &'m Machine,
    numa: u32,
    part: &FlowPart,
) -> CallResult<(BounceHalf<'m>, FlowPart)> {
    let mut host = Vec::new();
    let mut host_copy_of = |span: LocalMemory| -> CallResult<LocalMemory> {
        if span.bytes == 0 {
            return Ok(span);
        }
        let place = Place { rank: Rank(0), unit: Unit::Numa(numa), mem: MemKind::Pinned };
        let buffer = machine.buffer(place, Bytes(span.bytes))?;
        let address = buffer.address();
        host.push(buffer);
        Ok(LocalMemory { address, bytes: span.bytes })
    };
    let wire = MessageOp { via: Transport::Mpi, ..part.wire };
    let mut through = FlowPart { wire, device: Vec::new(), ..part.clone() };
    let (mut out, mut back) = (Vec::new(), Vec::new());
    // Each message of a window is copied, as if their contents differed.
    let times = part.wire.op.window() as usize;
    for (nth, &at) in part.positions.iter().enumerate() {
        let gpu = part.group.get(at).and_then(|(_, unit)| unit.gpu()).unwrap_or(0);
        let (send, recv) = (part.send[nth], part.recv[nth]);
        let (sends, receives) = if in_one_buffer(part, send, recv) {
            let begin = send.address.min(recv.address);
            let end = (send.address + send.bytes).max(recv.address + recv.bytes);
            let host = host_copy_of(LocalMemory { address: begin, bytes: end - begin })?;
            let inside = |span: LocalMemory| LocalMemory {
                address: host.address + (span.address - begin),
                bytes: span.bytes,
            };
            (inside(send), inside(recv))
        } else {
            (host_copy_of(send)?, host_copy_of(recv)?)
        };
        if send.bytes > 0 {
            let copy = (gpu, sends.address, send.address, Bytes(send.bytes));
            out.extend(std::iter::repeat_n(copy, times));
        }
        if recv.bytes > 0 {
            let copy = (gpu, recv.address, receives.address, Bytes(recv.bytes));
            back.extend(std::iter::repeat_n(copy, times));
        }
        (through.send[nth], through.recv[nth]) = (sends, receives);
    }
    let answers = part.wire.op == WireOp::Ping && part.positions.contains(&1);
    let half = BounceHalf { idle: part.is_idle(), answers, out, back, _host: host };
    Ok((half, through))
}

/// Whether what a position sends and receives share a buffer.
fn in_one_buffer(part: &FlowPart, send: LocalMemory, recv: LocalMemory) -> bool {
    let in_place = matches!(part.wire.op, WireOp::Group { in_place: true, .. });
    in_place && send.bytes > 0 && recv.bytes > 0
}

/// One direction of round trips: a broadcast of two, which has no reply.
fn one_direction(parts: &[FlowPart], back: bool) -> Vec<FlowPart> {
    let broadcast = WireOp::group(Collective::Broadcast);
    let leg = |part: &FlowPart| {
        let mut leg = FlowPart { wire: MessageOp { op: broadcast, ..part.wire }, ..part.clone() };
        if back {
            leg.group.reverse();
            leg.positions.iter_mut().for_each(|at| *at = 1 - (*at).min(1));
        }
        for (nth, &at) in leg.positions.iter().enumerate() {
            let none = LocalMemory::default();
            if at == 0 { leg.recv[nth] = none } else { leg.send[nth] = none }
        }
        leg
    };
    parts.iter().map(leg).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::Flow;

    /// Rank 0 sends in the first direction and receives in the second, in which rank 1 is the root.
    #[test]
    fn the_second_direction_of_a_round_trip_has_the_other_root() {
        let case = "r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[ping] x 8B";
        let flow: Flow = case.parse().expect("a flow");
        let ends = [(Rank(0), Unit::Gpu(0)), (Rank(1), Unit::Gpu(1))];
        let span = |address: u64| LocalMemory { address, bytes: 8 };
        let none = LocalMemory::default();
        for (at, sends, receives) in
            [(0, [true, false], [false, true]), (1, [false, true], [true, false])]
        {
            let part = FlowPart {
                wire: *flow.by.wire().expect("a message"),
                bytes: 8,
                group: ends.to_vec(),
                positions: vec![at],
                send: vec![span(16)],
                recv: vec![span(32)],
                device: Vec::new(),
            };
            for back in [false, true] {
                let leg = one_direction(std::slice::from_ref(&part), back).remove(0);
                let root = ends[usize::from(back)];
                assert_eq!((leg.group[0], leg.group.len()), (root, 2));
                assert_eq!(leg.group[leg.positions[0]], ends[at]);
                let expected = |does: bool, address| if does { span(address) } else { none };
                let nth = usize::from(back);
                assert_eq!(leg.send, [expected(sends[nth], 16)]);
                assert_eq!(leg.recv, [expected(receives[nth], 32)]);
                assert_eq!(leg.wire.op, WireOp::group(Collective::Broadcast));
            }
        }
    }
}
