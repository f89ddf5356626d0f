//! The needs of a case: memory, a GPU runtime, a thread.
//!
//! Pure: computed from the case alone.

use std::collections::BTreeMap;

use pathline_schema::{
    Bytes, COPY_BUFFER, COPY_BUFFERS, Case, Collective, FaultHandling, Flow, IoEngine, IoSpec,
    MemKind, MemoryUse, MessageOp, Mover, MultipathSpec, Place, STAGED_CHUNK, STAGED_CHUNKS,
    Transport, Unit, WireOp,
};

/// Bytes of the buffers over which blocks are spread, for a byte of them.
pub(crate) const BLOCK_SPREAD: u64 = 2;

/// Bytes that a case needs at each unit.
pub(crate) fn needs(case: &Case) -> BTreeMap<Unit, Bytes> {
    let mut needs: BTreeMap<Unit, Bytes> = BTreeMap::new();
    let mut need = |unit: Unit, bytes: u64| {
        let sum = needs.entry(unit).or_default();
        *sum = Bytes(sum.0.saturating_add(bytes));
    };
    for flow in case.flows() {
        match flow.by.memory() {
            MemoryUse::Ranks(wire) => {
                of_wire(flow, wire).into_iter().for_each(|(unit, bytes)| need(unit, bytes.0));
            }
            MemoryUse::Slots(io) => {
                let ends = [host_memory(flow, io), gpu_memory(flow)];
                let places = ends.into_iter().flatten();
                places.for_each(|place| need(place.unit, slots(flow, io).0));
            }
            // Page-locked memory exists once; a call without memory needs none.
            MemoryUse::Subject(_) => {
                flow.subject().inspect(|place| need(place.unit, flow.bytes.0));
            }
            // The workers hold one file's content each.
            MemoryUse::Workers => need(
                flow.by.at(),
                flow.bytes.0.saturating_mul(2 * u64::from(flow.by.workers().map_or(1, |w| w.0))),
            ),
            MemoryUse::BothEnds | MemoryUse::EndsAndGpus(_) | MemoryUse::SourceOnly => {
                if let MemoryUse::EndsAndGpus(gpus) = flow.by.memory() {
                    gpus.iter().for_each(|gpu| need(Unit::Gpu(gpu), flow.bytes.0));
                } else if let Some(paths) = flow.by.paths() {
                    let staging = paths.chunk.0 * MultipathSpec::SLOTS;
                    paths.gpus.iter().for_each(|gpu| need(Unit::Gpu(gpu), staging));
                }
                flow.by.via().inspect(|&via| need(via, STAGED_CHUNK.0 * STAGED_CHUNKS));
                if matches!(flow.by, Mover::Threads { .. }) {
                    let buffers = COPY_BUFFER.0 * COPY_BUFFERS as u64;
                    need(flow.cores(), buffers.saturating_mul(u64::from(flow.by.threads())));
                }
                let ends = [
                    (Some(flow.src), source_bytes(flow)),
                    (written(flow), destination_bytes(flow)),
                ];
                for (place, bytes) in ends {
                    place.filter(|p| p.mem != MemKind::Reg).inspect(|p| need(p.unit, bytes.0));
                }
            }
        }
    }
    needs
}

/// Bytes of the buffer that a flow reads: more than its payload where it holds several arrays.
pub(crate) fn source_bytes(flow: &Flow) -> Bytes {
    match flow.by {
        Mover::Blocks { .. } => destination_bytes(flow),
        _ => flow.by.effect(flow.bytes).reads.max(flow.bytes),
    }
}

/// Bytes of the buffer that a flow writes: more than its payload where that is spread over it.
pub(crate) fn destination_bytes(flow: &Flow) -> Bytes {
    match flow.by {
        Mover::Blocks { .. } => Bytes(flow.bytes.0.saturating_mul(BLOCK_SPREAD)),
        _ => flow.bytes,
    }
}

/// The end whose buffer is written.
pub(crate) fn written(flow: &Flow) -> Option<Place> {
    let writes = matches!(flow.by.memory(), MemoryUse::BothEnds | MemoryUse::EndsAndGpus(_));
    writes.then_some(flow.dst)
}

/// Bytes that a flow needs, by unit: of host memory for all ranks together, of GPUs for the named
/// ones only. The GPUs between the two of a collective need as much as these.
pub(crate) fn of_wire(flow: &Flow, wire: &MessageOp) -> Vec<(Unit, Bytes)> {
    let (buffers, ends) = match wire.op {
        op if op.is_ping() => (2, 2),
        op if op.collective() == Some(Collective::Barrier) => return Vec::new(),
        op if op.collective().is_some() => {
            (2, u64::from(flow.dst.rank.0.saturating_sub(flow.src.rank.0)) + 1)
        }
        WireOp::Atomic(op) if op.fetches() => (2, 2),
        _ => (1, 2),
    };
    let times = |n: u64| Bytes(flow.bytes.0.saturating_mul(n));
    if flow.src.unit.gpu().is_none() && flow.dst.unit.gpu().is_none() {
        return vec![(flow.src.unit, times(buffers * ends))];
    }
    let mut needs = vec![(flow.src.unit, times(buffers)), (flow.dst.unit, times(buffers))];
    // A copy by pathline goes through pinned memory at either end.
    needs
        .extend((wire.via == Transport::MpiStaged).then(|| (Unit::Numa(0), times(buffers * ends))));
    needs
}

/// Maximum bytes of its I/O slots.
pub(crate) fn slots(flow: &Flow, io: &IoSpec) -> Bytes {
    Bytes(flow.bytes.0.saturating_mul(io.slots()))
}

/// The host memory of I/O blocks, as staging for a GPU or as the end itself; `None` for GPU direct.
/// Memory to be registered is pageable until then.
pub(crate) fn host_memory(flow: &Flow, io: &IoSpec) -> Option<Place> {
    let (_, memory) = flow.io_ends();
    let place = match io.stage {
        Some(stage) => Place { unit: flow.by.at(), mem: stage.through, ..memory },
        None if io.engine == IoEngine::Gds => return None,
        None => memory,
    };
    Some(Place { mem: place.mem.before_registration(), ..place })
}

/// The GPU memory of a flow, if one end is a GPU.
pub(crate) fn gpu_memory(flow: &Flow) -> Option<Place> {
    let (_, memory) = flow.io_ends();
    memory.unit.gpu().map(|_| memory)
}

/// Whether the whole case needs a GPU runtime.
pub(crate) fn needs_runtime(case: &Case) -> bool {
    case.flows().any(needs_driver)
}

/// Whether a flow needs a GPU runtime.
pub(crate) fn needs_driver(flow: &Flow) -> bool {
    let on_device =
        |p: &Place| !matches!(p.mem, MemKind::Paged | MemKind::Huge | MemKind::Reg | MemKind::File);
    flow.by.at().gpu().is_some() || [flow.src, flow.dst].iter().any(on_device)
}

/// The page fault handling that a flow needs; `None` where it makes no difference.
pub(crate) fn page_faults(flow: &Flow) -> Option<FaultHandling> {
    let away = |p: &Place| p.mem == MemKind::Managed && p.unit != flow.by.at();
    flow.by.facts().faults.filter(|handling| match handling {
        FaultHandling::Served => true,
        FaultHandling::InPlace => [flow.src, flow.dst].iter().any(away),
    })
}

/// Whether the host times an operation from its call to the end of its bytes: the call blocks until they have
/// arrived, or its own time counts, which is most of that of small blocks.
pub(crate) fn is_blocking(flow: &Flow) -> bool {
    let pageable = |p: &Place| matches!(p.mem, MemKind::Paged | MemKind::Huge);
    matches!(flow.by, Mover::Blocks { .. })
        || flow.by.facts().copy_agent.is_some() && (pageable(&flow.src) || pageable(&flow.dst))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_take_memory_on_both_ends() {
        let needs = |text: &str| {
            let flow: Flow = text.parse().unwrap();
            of_wire(&flow, flow.by.wire().unwrap())
        };
        // Eight ranks that send from and receive into 1 GiB each: 16 GiB of the host's memory.
        let all = needs("r0.numa0.paged > r7.numa1.paged by mpi@numa0[all_reduce] x 1GiB");
        assert_eq!(all, [(Unit::Numa(0), Bytes::gib(16))]);
        let one = needs("r0.numa0.paged > r1.numa0.paged by shm@numa0[send-w1,plain+plain] x 1MiB");
        assert_eq!(one, [(Unit::Numa(0), Bytes::mib(2))]);
        let gpus = needs("r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[all_reduce] x 1GiB");
        assert_eq!(gpus, [(Unit::Gpu(0), Bytes::gib(2)), (Unit::Gpu(1), Bytes::gib(2))]);
        assert!(needs("r0.numa0.reg > r1.numa0.reg by mpi@numa0[barrier] x 1B").is_empty());
    }

    /// Payloads of 1 MiB. Copies through the host: 4 chunks of 4 MiB; relays: 4 slots; threads: 2 buffers
    /// of 4 MiB each; blocks lie in twice their bytes; a triad reads two arrays; I/O has 8 slots.
    #[test]
    fn what_a_case_needs_at_each_unit() {
        let mut wrong = Vec::new();
        for (case, expected) in [
            ("gpu0.vram > gpu1.vram by dma@gpu0", "gpu0 1 gpu1 1"),
            ("gpu0.vram > gpu0.vram by blit@gpu0", "gpu0 2"),
            ("gpu0.vram > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm]", "gpu0 1"),
            ("gpu0.vram > gpu0.vram by kernel@gpu0[triad-w16-u4-b256-g2sm]", "gpu0 3"),
            ("numa0.pinned > gpu0.vram by blocks@gpu0[4-each]", "gpu0 2 numa0 2"),
            ("numa0.paged > gpu0.vram by threads@gpu0[4]", "gpu0 1 numa0 33"),
            ("gpu0.vram > gpu1.vram by staged@gpu0[numa1]", "gpu0 1 gpu1 1 numa1 16"),
            ("gpu0.vram > gpu1.vram by relay@gpu0[gpu2,2MiB]", "gpu0 1 gpu1 1 gpu2 8"),
            ("gpu0.vram > gpu1.vram by copy-to-all@gpu0[gpu2,4MiB]", "gpu0 1 gpu1 1 gpu2 1"),
            ("numa0.managed > gpu0.managed by migrate@gpu0[fault]", "numa0 1"),
            ("gpu1.reg > gpu1.vram by call@gpu1[alloc]", "gpu1 1"),
            ("gpu0.reg > gpu0.reg by call@gpu0[launch]", ""),
            ("numa0.reg > store0.file by meta@numa0[create,own,d4,f256,t2]", "numa0 4"),
            (
                "store0.file > gpu0.vram by uring@numa1[rand-read,direct,own,1GiB,q4,n1,t2,pipelined-pinned]",
                "gpu0 8 numa1 8",
            ),
            (
                "store0.file > numa0.huge by uring@numa0[rand-read,direct,own,1GiB,q4,n1,t2]",
                "numa0 8",
            ),
            ("r0.numa0.paged > r1.numa0.paged by mpi@numa0[ping]", "numa0 4"),
            ("r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w4]", "gpu0 1 gpu1 1"),
            ("r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[ping]", "gpu0 2 gpu1 2 numa0 4"),
            ("r0.numa0.paged > r1.gpu1.vram by mpi@numa0[send-w4]", "gpu1 1 numa0 1"),
        ] {
            let case: Case = format!("{case} x 1MiB").parse().expect(case);
            let mut texts: Vec<String> = needs(&case)
                .iter()
                .map(|(unit, bytes)| format!("{unit} {}", bytes.as_f64() / f64::from(1 << 20)))
                .collect();
            texts.sort();
            if texts.join(" ") != expected {
                wrong.push(format!("{case}: {}", texts.join(" ")))
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn who_needs_a_runtime_which_page_faults_and_blocks_its_caller() {
        let (served, in_place) = (Some(FaultHandling::Served), Some(FaultHandling::InPlace));
        for (case, runtime, faults, blocks) in [
            ("numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1]", false, None, false),
            ("numa0.pinned > numa0.huge by cpu@numa0[copy-memcpy-t1]", true, None, false),
            ("numa0.huge > numa0.pinned by cpu@numa0[copy-memcpy-t1]", true, None, false),
            ("gpu0.vram > gpu1.vram by dma@gpu0", true, None, false),
            ("numa0.paged > gpu0.vram by dma@gpu0", true, None, true),
            ("gpu0.vram > numa0.huge by dma@gpu0", true, None, true),
            ("gpu0.vram > numa0.paged by threads@gpu0[4]", true, None, true),
            ("numa0.pinned > gpu0.vram by blocks@gpu0[4-each]", true, None, true),
            ("numa0.managed > gpu0.managed by migrate@gpu0[fault]", true, served, false),
            ("numa0.managed > gpu0.managed by migrate@gpu0[prefetch]", true, None, false),
            (
                "numa0.managed > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm]",
                true,
                in_place,
                false,
            ),
            ("gpu0.managed > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm]", true, None, false),
            ("gpu1.vram > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm]", true, None, false),
        ] {
            let flow: Flow = format!("{case} x 1MiB").parse().expect(case);
            let found = (needs_driver(&flow), page_faults(&flow), is_blocking(&flow));
            assert_eq!(found, (runtime, faults, blocks), "{case}");
        }
    }
}
