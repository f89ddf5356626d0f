//! Lanes of copies between pageable memory and a GPU by threads and pinned buffers, as libpathline makes them.

use std::rc::Rc;

use pathline_hal::{
    CallError, CallResult, CopyChoice, GpuEvent, GpuStream, Machine, MachineBuffer, StartGate,
    TeamWork, ThreadTeam,
};
use pathline_schema::{
    Bytes, COPY_BUFFER, COPY_BUFFERS, CpuHow, CpuOp, CpuWork, Flow, MemKind, Ns, Place, TimerKind,
    VerifyResult, copy_chunk,
};

use crate::lane::{self, BoundLane, LaneSample, SOURCE_SEED, SPOILT_SEED};

const WORK: CpuWork = CpuWork { op: CpuOp::Copy, how: CpuHow::Memcpy };
/// Longest time between two looks at an event.
const LOOK: Ns = Ns::us(1.0);

/// Pinned memory for a chunk of each thread.
struct RoundBuffer<'m> {
    memory: MachineBuffer<'m>,
    /// The GPU has copied it.
    copied: GpuEvent<'m>,
}

/// Threads and a copy engine that pass chunks to each other. All threads copy their chunks of a round before one
/// copy carries the round; in libpathline each thread has its own buffers, and waits for no other.
pub(crate) struct PageableLane<'m> {
    machine: &'m Machine,
    stream: GpuStream<'m>,
    team: ThreadTeam<'m>,
    /// Open: work starts when it is submitted.
    gate: StartGate<'m>,
    buffers: Vec<RoundBuffer<'m>>,
    src: Rc<MachineBuffer<'m>>,
    dst: Rc<MachineBuffer<'m>>,
    threads: u32,
    bytes: Bytes,
    /// Bytes of a chunk of each thread.
    round: Bytes,
    isolated: bool,
    pending: u64,
}

impl<'m> PageableLane<'m> {
    pub(crate) fn new(
        machine: &'m Machine,
        flow: &Flow,
        threads: u32,
        (src, dst): (Rc<MachineBuffer<'m>>, Rc<MachineBuffer<'m>>),
        isolated: bool,
    ) -> CallResult<Self> {
        let ends = flow.host_and_gpu().filter(|_| flow.misfit().is_none());
        let ends = ends.and_then(|(host, gpu)| Some((host, host.unit.numa()?, gpu.unit.gpu()?)));
        let (host, numa, gpu) = ends.ok_or_else(|| {
            let why = flow.misfit().unwrap_or("it does not go between host and GPU");
            CallError::unsupported("bind", flow.to_string(), why)
        })?;
        let gpu = machine.gpu(gpu)?;
        let chunk = copy_chunk(flow.bytes, u64::from(threads), COPY_BUFFER);
        let round = Bytes(chunk.0 * u64::from(threads)).min(flow.bytes);
        let buffer = |_| {
            let memory = machine.buffer(Place { mem: MemKind::Pinned, ..host }, round)?;
            machine.driver()?.cpu_access(memory.address(), round)?;
            Ok(RoundBuffer { memory, copied: gpu.event()? })
        };
        let gate = machine.gate()?;
        gate.release()?;
        Ok(Self {
            machine,
            stream: gpu.stream()?,
            team: machine.team(numa, threads)?,
            gate,
            buffers: (0..COPY_BUFFERS).map(buffer).collect::<CallResult<_>>()?,
            src,
            dst,
            threads,
            bytes: flow.bytes,
            round,
            isolated,
            pending: 0,
        })
    }

    /// One operation; its bytes have arrived when it returns.
    fn copy(&self) -> CallResult<()> {
        let whole = (self.dst.address(), self.src.address(), self.bytes);
        match self.stream.copy_by_threads(self.threads, whole) {
            Some(copied) => copied,
            None if self.src.place().unit.numa().is_some() => self.copy_in(),
            None => self.copy_out(),
        }
    }

    /// Rounds with their buffers, offsets and bytes.
    fn rounds(&self) -> impl Iterator<Item = (&RoundBuffer<'m>, u64, Bytes)> {
        let offsets = (0..self.bytes.0).step_by(self.round.0 as usize);
        offsets
            .zip(self.buffers.iter().cycle())
            .map(|(offset, buffer)| (buffer, offset, self.round.min(Bytes(self.bytes.0 - offset))))
    }

    fn copy_in(&self) -> CallResult<()> {
        for (nth, (buffer, offset, bytes)) in self.rounds().enumerate() {
            if nth >= COPY_BUFFERS {
                self.wait_for(&buffer.copied)?;
            }
            let memory = buffer.memory.address();
            self.copy_by_team(memory, self.src.address() + offset, bytes)?;
            self.stream.copy(self.dst.address() + offset, memory, bytes, CopyChoice::Auto)?;
            self.stream.record(&buffer.copied)?;
        }
        self.stream.wait()
    }

    fn copy_out(&self) -> CallResult<()> {
        let fetch = |(buffer, offset, bytes): (&RoundBuffer<'m>, u64, Bytes)| {
            let (memory, src) = (buffer.memory.address(), self.src.address() + offset);
            self.stream.copy(memory, src, bytes, CopyChoice::Auto)?;
            self.stream.record(&buffer.copied)
        };
        let mut ahead = self.rounds();
        ahead.next().map_or(Ok(()), fetch)?;
        for (buffer, offset, bytes) in self.rounds() {
            // The threads have emptied its buffer in the round before.
            ahead.next().map_or(Ok(()), fetch)?;
            self.wait_for(&buffer.copied)?;
            self.copy_by_team(self.dst.address() + offset, buffer.memory.address(), bytes)?;
        }
        Ok(())
    }

    fn copy_by_team(&self, dst: u64, src: u64, bytes: Bytes) -> CallResult<()> {
        let work =
            TeamWork { work: WORK, src, dst, bytes, reps: 1, isolated: false, chase_steps: None };
        self.team.submit(&self.gate, &work)?;
        self.team.reap().map(|_| ())
    }

    fn wait_for(&self, event: &GpuEvent<'_>) -> CallResult<()> {
        let driver = self.machine.driver()?;
        while !event.is_done()? {
            driver.pause(LOOK);
        }
        Ok(())
    }
}

impl BoundLane for PageableLane<'_> {
    fn issue(&mut self, _: &StartGate<'_>, reps: u64) -> CallResult<()> {
        // The calling thread hands out the chunks, once it waits.
        self.pending = reps;
        Ok(())
    }

    fn wait(&mut self) -> CallResult<LaneSample> {
        let reps = std::mem::take(&mut self.pending);
        lane::on_this_thread(self.machine, reps, || {
            let start = self.machine.clock.now();
            (0..reps).try_for_each(|_| self.copy())?;
            Ok(self.machine.clock.now() - start)
        })
    }

    fn timer(&self) -> TimerKind {
        TimerKind::Host
    }

    fn engine(&self) -> String {
        "copy by threads".to_owned()
    }

    fn team(&self) -> Option<&ThreadTeam<'_>> {
        Some(&self.team)
    }

    fn repeats(&self) -> bool {
        !self.isolated
    }

    fn spoil(&mut self) -> CallResult<()> {
        self.dst.fill(SPOILT_SEED, false)
    }

    fn check(&self) -> CallResult<VerifyResult> {
        self.dst.check(SOURCE_SEED, self.bytes).map(|()| VerifyResult::Verified)
    }
}

#[cfg(test)]
mod tests {
    use pathline_flow::{MachineDesc, RuntimeEnv};

    use super::*;

    /// 16 MiB and 3 B by 4 threads: chunks of each thread, the last round shorter. Every byte arrives each
    /// time, and a round waits until the GPU has copied its buffer.
    #[test]
    fn rounds_through_two_buffers_carry_every_byte() {
        let desc = MachineDesc::preset("mi250x").expect("a preset");
        for text in [
            "numa0.paged > gpu0.vram by threads@gpu0[4] x 16777219B",
            "gpu0.vram > numa0.paged by threads@gpu0[4] x 16777219B",
            "gpu0.vram > numa0.paged by threads@gpu0[2] x 4KiB",
        ] {
            let machine =
                pathline_sim::machine(&desc, RuntimeEnv::default(), 1).expect("a machine");
            let flow: Flow = text.parse().expect(text);
            let buffer = |place| Rc::new(machine.buffer(place, flow.bytes).expect("memory"));
            let ends = (buffer(flow.src), buffer(flow.dst));
            ends.0.fill(SOURCE_SEED, false).expect("a pattern");
            let threads = flow.by.threads();
            let mut lane =
                PageableLane::new(&machine, &flow, threads, ends, false).expect("a lane");
            let chunk =
                copy_chunk(flow.bytes, u64::from(threads), COPY_BUFFER).0 * u64::from(threads);
            let sizes: Vec<u64> = lane.rounds().map(|(_, _, bytes)| bytes.0).collect();
            let round = chunk.min(flow.bytes.0);
            assert_eq!(sizes.iter().sum::<u64>(), flow.bytes.0);
            assert!(sizes.len() as u64 == flow.bytes.0.div_ceil(round) && sizes[0] == round);
            for _ in 0..2 {
                lane.spoil().expect("wrong bytes");
                assert!(lane.check().is_err());
                let begun = machine.clock.now();
                let copied =
                    if text.starts_with("numa") { lane.copy_in() } else { lane.copy_out() };
                copied.expect(text);
                let took = (machine.clock.now() - begun).0;
                assert_eq!(lane.check().expect(text), VerifyResult::Verified);
                // At most 50 GB/s by the copy engine, which each byte passes; at least 5 GB/s.
                let bytes = flow.bytes.as_f64();
                assert!(took > bytes / 50.0 && took < 100e3 + bytes / 5.0, "{text}: {took} ns");
            }
        }
    }
}
