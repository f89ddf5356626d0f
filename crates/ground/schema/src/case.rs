//! A case: flows that are timed together, and flows that only load the machine meanwhile.

use std::fmt;
use std::str::FromStr;

use crate::{
    Bytes, Collective, CopyAgent, IoEngine, IoOp, IoSpec, MAX_META_BYTES, MAX_META_ITEMS, MemKind,
    MessageOp, MetaOp, MetaSpec, Mover, ParseError, Place, RuntimeCall, Transport, Unit, WireOp,
    serde_as_text, words,
};

/// Blocks of a kernel are whole words of it.
const BLOCK_WORD: u64 = 16;

/// The most flows that a case may hold; a text with more is refused, not swallowed.
const MAX_FLOWS: usize = 4096;

/// Bytes that go from one place to another by one mover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Source of the bytes.
    pub src: Place,
    /// Destination of the bytes.
    pub dst: Place,
    /// The mover.
    pub by: Mover,
    /// Bytes of one repetition. For a pointer chase: the span that the chain covers.
    pub bytes: Bytes,
}

impl Flow {
    /// The same copy as a setting makes it that takes copy engines away: by the runtime's copy kernel, which between
    /// two GPUs runs at the destination (docs/understand/model.md, "Blit kernel").
    #[must_use]
    pub fn by_copy_kernel(&self) -> Self {
        let is_between = self.src.unit.gpu().is_some() && self.dst.unit.gpu().is_some();
        let at = if is_between { self.dst.unit } else { self.by.at() };
        let by = match self.by {
            Mover::Wire { at, wire } => {
                Mover::Wire { at, wire: MessageOp { agent: Some(CopyAgent::Kernel), ..wire } }
            }
            _ => Mover::Blit { at },
        };
        Self { by, ..*self }
    }

    /// The memory that a runtime call is about: what is allocated, freed, or pageable and to be
    /// page-locked. None for other movers and for calls about no memory.
    pub fn subject(&self) -> Option<Place> {
        let Mover::Call { call, .. } = self.by else { return None };
        match call {
            RuntimeCall::Alloc | RuntimeCall::Unregister => Some(self.dst),
            RuntimeCall::Free | RuntimeCall::Register => Some(self.src),
            _ if call.is_of_adapters() => Some(self.src),
            _ => None,
        }
    }

    /// The ends in host memory and in a GPU's, if it has one of each.
    pub const fn host_and_gpu(&self) -> Option<(Place, Place)> {
        match (self.src.unit, self.dst.unit) {
            (Unit::Numa(_), Unit::Gpu(_)) => Some((self.src, self.dst)),
            (Unit::Gpu(_), Unit::Numa(_)) => Some((self.dst, self.src)),
            _ => None,
        }
    }

    /// The unit on whose cores its threads run: the mover's, or the host's end of what a GPU's stream carries.
    pub const fn cores(&self) -> Unit {
        match (self.by, self.host_and_gpu()) {
            (Mover::Threads { .. }, Some((host, _))) => host.unit,
            _ => self.by.at(),
        }
    }

    /// Why its mover and its places can belong together on no machine; none if they can.
    pub fn misfit(&self) -> Option<&'static str> {
        if !self.by.facts().uses_files && [self.src, self.dst].iter().any(is_file) {
            return Some("files are read and written by uring, aio, sync, gds or meta");
        }
        let on_gpu = |p: &Place| matches!(p.unit, Unit::Gpu(_)) && p.mem != MemKind::Reg;
        let pageable = |p: &Place| matches!(p.mem, MemKind::Paged | MemKind::Huge);
        match self.by {
            Mover::Staged { at, .. } => {
                let fits = on_gpu(&self.src) && on_gpu(&self.dst) && self.src.unit == at;
                (!fits || self.src.unit == self.dst.unit)
                    .then_some("a staged copy goes from the GPU that it names to another GPU")
            }
            Mover::Threads { at, .. } => {
                let fits = |(host, gpu): (Place, Place)| {
                    pageable(&host)
                        && matches!(gpu.mem, MemKind::Vram | MemKind::VramFine)
                        && gpu.unit == at
                };
                (!self.host_and_gpu().is_some_and(fits)).then_some(
                    "threads copy between pageable memory and the memory of the GPU that they name",
                )
            }
            Mover::Batch { copies, .. } => {
                let ends = [self.src, self.dst];
                if ends.iter().any(|p| p.mem == MemKind::Reg || pageable(p)) {
                    return Some("a batch copies between memories that are not pageable");
                }
                (u64::from(copies) > self.bytes.0).then_some("a batch has a byte for each copy")
            }
            Mover::Blocks { at, blocks, .. } => {
                let is_device = |p: &Place| matches!(p.mem, MemKind::Vram | MemKind::VramFine);
                let is_pinned = |p: &Place| {
                    p.mem.is_registered()
                        || matches!(
                            p.mem,
                            MemKind::Pinned
                                | MemKind::PinnedNonCoherent
                                | MemKind::PinnedWc
                                | MemKind::PinnedDefault
                        )
                };
                let fits = |(host, gpu): (Place, Place)| {
                    is_pinned(&host) && is_device(&gpu) && gpu.unit == at
                };
                if !self.host_and_gpu().is_some_and(fits) {
                    return Some(
                        "blocks go between pinned memory and the memory of the GPU that copies them",
                    );
                }
                let words = u64::from(blocks) * BLOCK_WORD;
                (!self.bytes.0.is_multiple_of(words))
                    .then_some("blocks are equal, each a multiple of 16 B")
            }
            Mover::Relay { at, paths } => paths.relay_misfit(self, at),
            Mover::CopyToAll { at, paths } => paths.copy_to_all_misfit(self, at),
            Mover::Call { at, call } => self.call_misfit(at, call),
            Mover::Wire { at, wire } => self.wire_misfit(at, &wire),
            Mover::Io { io, .. } => self.io_misfit(&io),
            Mover::Meta { meta, .. } => self.meta_misfit(&meta),
            Mover::Dma { .. }
            | Mover::Blit { .. }
            | Mover::Kernel { .. }
            | Mover::Cpu { .. }
            | Mover::Migrate { .. } => None,
        }
    }

    fn wire_misfit(&self, at: Unit, wire: &MessageOp) -> Option<&'static str> {
        let (src, dst) = (&self.src, &self.dst);
        let on_gpu = src.unit.gpu().or(dst.unit.gpu()).is_some();
        if wire.agent.is_some() && !on_gpu {
            return Some("a GPU's copy engine or copy kernel carries messages of GPU memory");
        }
        let Some(op) = wire.op.collective() else {
            if let WireOp::Atomic(op) = wire.op {
                let one_word = op.is_of_one_word() && self.bytes.0 != 8;
                if one_word || !self.bytes.0.is_multiple_of(8) {
                    return Some(
                        "atomic operations are of 64-bit integers: 8 B, or a multiple for \
                                 accumulate and get-accumulate",
                    );
                }
            }
            // Loop-back of UCX: two memories of one process.
            let within = matches!(wire.via, Transport::Ccl | Transport::Ucx);
            let one_process = src.rank == dst.rank && !within;
            return (one_process || src == dst || src.unit != at)
                .then_some("a message goes from the unit that it names to another rank");
        };
        if wire.via != Transport::Ccl && matches!(wire.op, WireOp::Group { unregistered: true, .. })
        {
            return Some("buffers are registered with NCCL and RCCL alone");
        }
        if src.mem != dst.mem || src.unit != at || src.rank > dst.rank || src == dst {
            return Some("a collective is written from its first rank to its last, in one memory");
        }
        if (op == Collective::Barrier) != (src.mem == MemKind::Reg) {
            return Some("a barrier is of registers, and other collectives are not");
        }
        let WireOp::Group { reduced, in_place, .. } = wire.op else { return None };
        if let Some(why) = reduced.misfit(wire.via) {
            return Some(why);
        }
        if in_place && !op.has_in_place(wire.via) {
            return Some("this collective of this library has no form in place");
        }
        let whole = self.bytes.0.is_multiple_of(reduced.element.bytes());
        (op.reduces() && !whole).then_some("what is reduced is a multiple of its elements' bytes")
    }

    /// The end in files, and the one in memory.
    pub fn io_ends(&self) -> (Place, Place) {
        if self.src.mem == MemKind::File { (self.src, self.dst) } else { (self.dst, self.src) }
    }

    fn io_misfit(&self, io: &IoSpec) -> Option<&'static str> {
        let (file, memory) = self.io_ends();
        let writes_only = io.op == IoOp::Write;
        let ends = file.unit.store().is_some()
            && (self.dst == file) == writes_only
            && memory.unit.store().is_none()
            && !matches!(memory.mem, MemKind::File | MemKind::Reg);
        if !ends {
            return Some(
                "reads and mixed I/O go from storeN.file to memory, writes to storeN.file",
            );
        }
        if io.span < self.bytes {
            return Some("a file has at least one block");
        }
        let on_gpu = memory.unit.gpu().is_some();
        if io.engine == IoEngine::Gds {
            return (!on_gpu || io.stage.is_some())
                .then_some("GPU direct is to or from a GPU, through no host memory")
                .or_else(|| io.depth_misfit());
        }
        if on_gpu != io.stage.is_some() {
            return Some("I/O of a GPU is staged, or by gds; that of host memory is neither");
        }
        io.depth_misfit()
    }

    fn meta_misfit(&self, meta: &MetaSpec) -> Option<&'static str> {
        let (file, memory) = self.io_ends();
        let creates = meta.op.creates_files() || meta.op == MetaOp::Mkdir;
        let moves = (meta.op.creates_files() || meta.op == MetaOp::Read) && self.bytes.0 > 1;
        let ends = file.unit.store().is_some()
            && (self.dst == file) == creates
            && file.rank == memory.rank
            && memory.unit == self.by.at()
            && memory.mem == if moves { MemKind::Paged } else { MemKind::Reg };
        if !ends {
            return Some(
                "create and mkdir go to storeN.file and the others from there; create and read have \
                 numaN.paged at the other end where files have content, everything else numaN.reg",
            );
        }
        if meta.op.is_of_folders() && self.bytes.0 != 1 {
            return Some("a folder has no content: write x 1B");
        }
        if self.bytes > MAX_META_BYTES {
            return Some(
                "files of metadata operations have at most 1 MiB; read larger ones by uring",
            );
        }
        (meta.items() > MAX_META_ITEMS)
            .then_some("at most 1048576 files or folders: use fewer of them, or fewer workers")
    }

    fn call_misfit(&self, at: Unit, call: RuntimeCall) -> Option<&'static str> {
        let regs = |p: &Place| p.mem == MemKind::Reg && p.unit == at;
        let pageable = |p: &Place| matches!(p.mem, MemKind::Paged | MemKind::Huge);
        let given = |p: &Place| !pageable(p) && p.mem != MemKind::Reg && !p.mem.is_registered();
        let locks = |from: &Place, to: &Place| {
            pageable(from) && to.mem == MemKind::Registered && from.unit == to.unit
        };
        let (src, dst) = (&self.src, &self.dst);
        let (fits, why) = match call {
            RuntimeCall::Alloc => {
                (regs(src) && given(dst), "alloc goes from gpuN.reg to a memory of the runtime")
            }
            RuntimeCall::Free => {
                (given(src) && regs(dst), "free goes from a memory of the runtime to gpuN.reg")
            }
            RuntimeCall::Register => {
                (locks(src, dst), "register goes from pageable to registered memory of one domain")
            }
            RuntimeCall::Unregister => (
                locks(dst, src),
                "unregister goes from registered to pageable memory of one domain",
            ),
            _ if call.is_of_adapters() => {
                let device = matches!(src.mem, MemKind::Vram | MemKind::VramFine);
                let known = src.mem != MemKind::Reg && (device || !call.is_of_dmabuf());
                let here = src.unit == at && regs(dst);
                (known && here, "what adapters reach goes from memory to the registers of its unit")
            }
            _ => (regs(src) && regs(dst), "a call about no memory goes from gpuN.reg to gpuN.reg"),
        };
        (!fits).then_some(why)
    }
}

fn is_file(place: &Place) -> bool {
    place.mem == MemKind::File || place.unit.store().is_some()
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} by {} x {}", self.src, self.dst, self.by, self.bytes)
    }
}

impl FromStr for Flow {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || {
            ParseError::new(
                "flow",
                s,
                "SRC > DST by MOVER x SIZE, such as gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB",
            )
        };
        let words: Vec<&str> = s.split_whitespace().take(8).collect();
        let &[src, ">", dst, "by", by, "x", bytes] = words.as_slice() else { return Err(bad()) };
        let bytes: Bytes = bytes.parse()?;
        if bytes.0 == 0 {
            return Err(ParseError::new("flow", s, "a size of at least 1 byte"));
        }
        Ok(Self { src: src.parse()?, dst: dst.parse()?, by: by.parse()?, bytes })
    }
}

/// How operations follow each other within a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Cadence {
    /// Queued back to back.
    #[default]
    Streaming,
    /// One at a time: the next is issued after the last one has completed.
    Isolated,
    /// Recorded once as a graph of the GPU runtime, which is then launched back to back.
    Graph,
}
words!(Cadence, "cadence", {
    Streaming => "streaming", Isolated => "isolated", Graph => "graph",
});

/// Concurrent flows that are measured together. Its text is its identity:
/// `r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB`, flows joined by ` & `, background flows
/// after ` while `, and ` isolated` or ` graph` at the end if operations are not simply queued.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Case {
    /// The flows that are timed, released by one gate. Never empty.
    pub timed: Vec<Flow>,
    /// Flows that run meanwhile and are not reported.
    pub background: Vec<Flow>,
    /// Back to back, or one at a time.
    pub cadence: Cadence,
}

impl Case {
    /// One timed flow, streaming.
    pub fn single(src: Place, dst: Place, by: Mover, bytes: Bytes) -> Self {
        Self::together(vec![Flow { src, dst, by, bytes }])
    }
    /// Several timed flows at once, streaming.
    pub fn together(timed: Vec<Flow>) -> Self {
        Self { timed, background: Vec::new(), cadence: Cadence::Streaming }
    }
    /// The same, one operation at a time.
    pub fn isolated(mut self) -> Self {
        self.cadence = Cadence::Isolated;
        self
    }
    /// Whether ranks do its I/O, each its flows: some place is of another rank than 0.
    pub fn is_rank_io(&self) -> bool {
        let of_others = |flow: &Flow| flow.src.rank.0 != 0 || flow.dst.rank.0 != 0;
        self.flows().any(|flow| flow.by.is_on_files() && of_others(flow))
    }
    /// All flows, timed ones first.
    pub fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.timed.iter().chain(&self.background)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join =
            |flows: &[Flow]| flows.iter().map(Flow::to_string).collect::<Vec<_>>().join(" & ");
        f.write_str(&join(&self.timed))?;
        if !self.background.is_empty() {
            write!(f, " while {}", join(&self.background))?;
        }
        match self.cadence {
            Cadence::Streaming => Ok(()),
            Cadence::Isolated => f.write_str(" isolated"),
            Cadence::Graph => f.write_str(" graph"),
        }
    }
}

impl FromStr for Case {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let text = s.trim();
        let ends = [(" isolated", Cadence::Isolated), (" graph", Cadence::Graph)];
        let (text, cadence) = ends
            .into_iter()
            .find_map(|(end, cadence)| Some((text.strip_suffix(end)?, cadence)))
            .unwrap_or((text, Cadence::Streaming));
        let (timed, background) = match text.split_once(" while ") {
            Some((timed, background)) => (timed, Some(background)),
            None => (text, None),
        };
        let flows = |part: &str| -> Result<Vec<Flow>, ParseError> {
            if part.matches('&').count() >= MAX_FLOWS {
                return Err(ParseError::new("case", s, format!("at most {MAX_FLOWS} flows")));
            }
            part.split('&').map(str::parse).collect()
        };
        Ok(Self {
            timed: flows(timed)?,
            background: background.map(flows).transpose()?.unwrap_or_default(),
            cadence,
        })
    }
}

serde_as_text!(Flow, Case, Cadence);

#[cfg(test)]
mod tests {
    use super::*;

    fn misfit(flow: &str) -> bool {
        flow.parse::<Flow>().unwrap().misfit().is_some()
    }

    #[test]
    fn messages_fit_their_ranks() {
        for fits in [
            "r0.numa0.paged > r1.numa0.paged by mpi@numa0[send-w64] x 1MiB",
            "r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[all_reduce] x 1GiB",
            "r0.gpu0.vram > r0.gpu7.vram by ccl@gpu0[all_gather-inplace] x 1GiB",
            "r0.gpu0.vram > r0.gpu7.vram by ccl@gpu0[all_reduce-unregistered] x 1GiB",
            "r0.gpu0.vram > r0.gpu7.vram by ccl@gpu0[all_gather-inplace-unregistered] x 1GiB",
            "r0.numa0.reg > r3.numa0.reg by mpi@numa0[barrier] x 1B",
            "r1.numa0.paged > r0.numa0.paged by shm@numa0[ping,avx512-nt+memcpy,same-l3] x 4KiB",
            "r1.numa0.paged > r0.numa0.paged by cma@numa0[consume,read] x 4KiB",
            "r0.gpu0.vram > r1.gpu1.vram by ucx@gpu0[send-w64,rndv-put] x 1MiB",
            "r0.numa0.paged > r1.numa0.paged by ucx@numa0[ping,same-l3,proto-v1] x 8B",
            "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w64,blit] x 1MiB",
            "r0.gpu0.vram > r1.gpu1.vram by ucx@gpu0[ping,same-l3,engine,proto-v1] x 8B",
        ] {
            assert!(!misfit(fits), "{fits}");
            assert_eq!(fits.parse::<Flow>().unwrap().to_string(), fits);
        }
        for wrong in [
            "r0.numa0.paged > r0.numa0.paged by mpi@numa0[send-w64] x 1MiB",
            "r0.numa0.paged > r1.numa1.paged by mpi@numa1[ping] x 1MiB",
            "r7.gpu7.vram > r0.gpu0.vram by ccl@gpu7[all_reduce] x 1GiB",
            "r0.numa0.paged > r3.numa0.paged by mpi@numa0[barrier] x 1B",
            "r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[all_reduce] x 12B",
            "r0.gpu0.vram > r7.gpu7.vram by mpi@gpu0[all_reduce-unregistered] x 16B",
            // No GPU copies what is in host memory.
            "r0.numa0.paged > r1.numa0.paged by mpi@numa0[ping,blit] x 8B",
        ] {
            assert!(misfit(wrong), "{wrong}");
        }
        for no in [
            "mpi@numa0[send-w0]",
            "shm@numa0[ping]",
            "ccl@gpu0[ping-unregistered]",
            "cma@numa0[ping,memcpy+memcpy]",
            // Switches are of UCX, alone or under an MPI, one at a time, and stand last.
            "ccl@gpu0[send-w1,rndv-put]",
            "mpi-staged@gpu0[ping,rndv-put]",
            "mpi@numa0[ping,rndv-put,blit]",
            "ccl@gpu0[send-w1,blit]",
            "ucx@gpu0[ping,rndv-put,blit]",
            "shm@numa0[ping,memcpy+memcpy,rndv-put]",
            "ucx@numa0[ping,rndv-put,proto-v1]",
            "ucx@numa0[ping,rndv-put,same-l3]",
        ] {
            assert!(no.parse::<Mover>().is_err(), "{no}");
        }
    }

    #[test]
    fn io_fits_its_ends() {
        let io = |args: &str| format!("{args} x 4KiB");
        for fits in [
            "r0.store0.file > r0.numa0.huge by uring@numa0[rand-read,direct,shared,2GiB,q32,n8,t2]",
            "r0.numa0.paged > r0.store1.file by sync@numa0[seq-write,cached,own,1GiB,q1,n1,t4]",
            "r0.store0.file > r0.numa0.huge by aio@numa0[rand-mix70,direct,shared,1GiB,q4,n1,t1]",
            "r0.store0.file > r0.gpu1.vram by uring@numa0[seq-read,direct,own,1GiB,q8,n1,t1,pipelined-pinned]",
            "r0.gpu1.vram > r0.store0.file by gds@numa0[seq-write,direct,own,1GiB,q1,n1,t1]",
        ] {
            assert!(!misfit(&io(fits)), "{fits}");
            assert_eq!(io(fits).parse::<Flow>().unwrap().to_string(), io(fits));
        }
        for wrong in [
            // Written as it does not go, to no files, from registers.
            "numa0.huge > store0.file by uring@numa0[rand-read,direct,shared,2GiB,q32,n8,t2]",
            "store0.file > numa0.huge by uring@numa0[seq-write,direct,shared,2GiB,q32,n8,t2]",
            "numa0.huge > numa0.huge by uring@numa0[rand-read,direct,shared,2GiB,q32,n8,t2]",
            "store0.file > numa0.reg by uring@numa0[rand-read,direct,shared,2GiB,q32,n8,t2]",
            "store0.huge > numa0.huge by uring@numa0[rand-read,direct,shared,2GiB,q32,n8,t2]",
            // A GPU without a stage, a stage without a GPU, GPU direct through the host.
            "store0.file > gpu0.vram by uring@numa0[rand-read,direct,shared,2GiB,q32,n8,t2]",
            "store0.file > numa0.huge by uring@numa0[rand-read,direct,shared,2GiB,q1,n1,t1,blocking-paged]",
            "store0.file > numa0.huge by gds@numa0[rand-read,direct,shared,2GiB,q1,n1,t1]",
            // A batch larger than the depth, depth without asynchrony, a file without a block.
            "store0.file > numa0.huge by uring@numa0[rand-read,direct,shared,2GiB,q4,n8,t2]",
            "store0.file > numa0.huge by sync@numa0[rand-read,direct,shared,2GiB,q4,n1,t2]",
            "store0.file > numa0.huge by sync@numa0[rand-read,direct,shared,2KiB,q1,n1,t2]",
            // Files by what does not do I/O.
            "store0.file > gpu0.vram by dma@gpu0",
        ] {
            assert!(misfit(&io(wrong)), "{wrong}");
        }
    }

    #[test]
    fn metadata_fits_its_ends() {
        for fits in [
            "r0.numa0.reg > r0.store0.file by meta@numa0[create,own,d1,f1000,t2] x 1B",
            "r0.numa0.paged > r0.store0.file by meta@numa0[create,shared,d4,f256,t2] x 4KiB",
            "r0.store0.file > r0.numa0.reg by meta@numa0[stat,own,d1,f1000,t2] x 1B",
            "r0.store0.file > r0.numa0.reg by meta@numa0[delete,own,d1,f1000,t2] x 4KiB",
            "r0.store0.file > r0.numa0.paged by meta@numa0[read,own,d1,f1000,t2] x 4KiB",
            "r0.numa0.reg > r0.store0.file by meta@numa0[mkdir,own,d1000,t2] x 1B",
            "r0.store0.file > r0.numa0.reg by meta@numa0[rmdir,shared,d1000,t2] x 1B",
        ] {
            assert!(!misfit(fits), "{fits}");
            assert_eq!(fits.parse::<Flow>().unwrap().to_string(), fits);
        }
        for wrong in [
            // Against its direction, content without memory and memory without content.
            "store0.file > numa0.reg by meta@numa0[create,own,d1,f1,t1] x 1B",
            "numa0.reg > store0.file by meta@numa0[stat,own,d1,f1,t1] x 1B",
            "numa0.reg > store0.file by meta@numa0[create,own,d1,f1,t1] x 4KiB",
            "store0.file > numa0.paged by meta@numa0[stat,own,d1,f1,t1] x 4KiB",
            "store0.file > numa1.paged by meta@numa0[read,own,d1,f1,t1] x 4KiB",
            // 1025 x 1024 files, one of 2 MiB, and folders with content.
            "numa0.reg > store0.file by meta@numa0[create,own,d1025,f1024,t1] x 1B",
            "numa0.paged > store0.file by meta@numa0[create,own,d1,f1,t1] x 2MiB",
            "numa0.reg > store0.file by meta@numa0[mkdir,own,d1,t1] x 4KiB",
            "gpu0.vram > store0.file by meta@numa0[create,own,d1,f1,t1] x 4KiB",
        ] {
            assert!(misfit(wrong), "{wrong}");
        }
    }

    #[test]
    fn calls_fit_their_places() {
        for fits in [
            "gpu0.reg > numa0.pinned by call@gpu0[alloc] x 1MiB",
            "gpu0.managed > gpu0.reg by call@gpu0[free] x 1MiB",
            "numa0.huge > numa0.registered by call@gpu0[register] x 1MiB",
            "numa0.registered > numa0.paged by call@gpu0[unregister] x 1MiB",
            "gpu0.reg > gpu0.reg by call@gpu0[launch] x 1B",
            "gpu0.vram > gpu1.vram by staged@gpu0[numa1] x 1MiB",
            "numa0.pinned > gpu0.vram by batch@gpu0[16] x 16B",
            "numa0.paged > gpu0.vram by threads@gpu0[4] x 1MiB",
            "gpu0.vram > numa1.huge by threads@gpu0[4] x 1B",
            "numa0.registered > gpu0.vram by blocks@gpu0[64] x 1KiB",
            "gpu0.vram-fine > numa1.pinned-nc by blocks@gpu0[3-g16] x 48B",
            "numa0.pinned > gpu0.vram by blocks@gpu0[2-batch] x 32B",
            "gpu0.vram > numa0.pinned by blocks@gpu0[2-each] x 32B",
            "numa0.huge > numa0.reg by call@numa0[nic-register] x 1MiB",
            "gpu0.vram > gpu0.reg by call@gpu0[nic-deregister] x 1MiB",
            "gpu0.vram > gpu0.reg by call@gpu0[nic-register-dmabuf] x 1MiB",
        ] {
            assert!(!misfit(fits), "{fits}");
        }
        for wrong in [
            "gpu0.reg > numa0.paged by call@gpu0[alloc] x 1MiB",
            "gpu1.reg > numa0.pinned by call@gpu0[alloc] x 1MiB",
            "numa0.pinned > numa0.registered by call@gpu0[register] x 1MiB",
            "numa0.paged > numa1.registered by call@gpu0[register] x 1MiB",
            "gpu0.vram > gpu0.reg by call@gpu0[sync] x 1B",
            "gpu0.vram > gpu0.vram by staged@gpu0[numa1] x 1MiB",
            "gpu1.vram > gpu0.vram by staged@gpu0[numa1] x 1MiB",
            "numa0.paged > gpu0.vram by batch@gpu0[16] x 16B",
            "numa0.pinned > gpu0.vram by threads@gpu0[4] x 1MiB",
            "numa0.paged > gpu1.vram by threads@gpu0[4] x 1MiB",
            "numa0.paged > gpu0.managed by threads@gpu0[4] x 1MiB",
            "numa0.paged > gpu0.vram by blocks@gpu0[64] x 1MiB",
            "numa0.pinned > gpu1.vram by blocks@gpu0[64] x 1MiB",
            "numa0.pinned > gpu0.vram by blocks@gpu0[3] x 64B",
            "numa0.pinned > gpu0.vram by batch@gpu0[17] x 16B",
            "numa0.huge > numa0.reg by call@gpu0[nic-register] x 1MiB",
            "gpu0.managed > gpu0.reg by call@gpu0[export-dmabuf] x 1MiB",
            "numa0.reg > numa0.reg by call@numa0[nic-register] x 1MiB",
        ] {
            assert!(misfit(wrong), "{wrong}");
        }
        // A domain has no runtime, and exports nothing.
        for no in ["call@numa0[alloc]", "call@numa0[sync]", "call@numa0[export-dmabuf]"] {
            assert!(no.parse::<Mover>().is_err(), "{no}");
        }
    }
}
