//! Suites load and blocks: what libpathline copies, next to what a program does without it.

use pathline_schema::{
    Bytes, COPY_UNITS, Case, MemKind, Mover, Place, ScatterMethod, Topology, Unit,
};

use super::{dma, gpu, home, ladder, numa, threads_of};

/// Bytes of a copy of pageable memory: the start of the threads and the end of the link are 6 % of it with 16 threads.
const LOADED: Bytes = Bytes::gib(1);
/// Methods and their numbers of blocks. More copies than 256 do not fit into a stream that a gate holds.
const METHODS: [(ScatterMethod, u32); 3] = [
    (ScatterMethod::Each, 256),
    (ScatterMethod::Batch, 256),
    (ScatterMethod::Kernel { units: COPY_UNITS }, 4096),
];
/// Bytes of a block: pages of a KV cache, and a layer of them.
const BLOCK_SIZES: [Bytes; 4] = [Bytes::kib(4), Bytes::kib(8), Bytes::kib(32), Bytes::kib(128)];

/// The first GPU and the domain next to it.
fn first(topology: &Topology) -> Option<(u32, u32)> {
    let index = topology.gpus.first()?.index;
    Some((index, home(topology, index)))
}

/// From memory of the host to a GPU, and back.
fn both_ways(host: Place, device: Place) -> [(Place, Place); 2] {
    [(host, device), (device, host)]
}

/// Pageable memory into and out of the first GPU by the runtime and by threads, and pinned memory.
pub(super) fn load(topology: &Topology) -> Vec<Case> {
    let Some((index, near)) = first(topology) else { return Vec::new() };
    let (at, vram) = (Unit::Gpu(index), gpu(index, MemKind::Vram));
    let by_threads = ladder(threads_of(topology, near)).into_iter();
    let movers: Vec<Mover> = std::iter::once(dma(index))
        .chain(by_threads.map(|threads| Mover::Threads { at, threads }))
        .collect();
    let mut cases = Vec::new();
    for (src, dst) in both_ways(numa(near, MemKind::Paged), vram) {
        cases.extend(movers.iter().map(|&by| Case::single(src, dst, by, LOADED)));
    }
    for (src, dst) in both_ways(numa(near, MemKind::Pinned), vram) {
        cases.push(Case::single(src, dst, dma(index), LOADED));
    }
    cases
}

/// Blocks between pinned memory and the first GPU: a copy each, many by one call, and one kernel.
pub(super) fn blocks(topology: &Topology) -> Vec<Case> {
    let Some((index, near)) = first(topology) else { return Vec::new() };
    let at = Unit::Gpu(index);
    let mut cases = Vec::new();
    for (src, dst) in both_ways(numa(near, MemKind::Pinned), gpu(index, MemKind::Vram)) {
        for each in BLOCK_SIZES {
            for (by, blocks) in METHODS {
                let bytes = Bytes(each.0 * u64::from(blocks));
                cases.push(Case::single(src, dst, Mover::Blocks { at, blocks, by }, bytes));
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_flow::MachineDesc;

    /// 16 cores a domain on MI250X: by the runtime, by 1, 2, 4, 8 and 16 threads, and pinned; in both directions. Four
    /// sizes of blocks by three methods, in both directions.
    #[test]
    fn each_direction_has_its_ceiling() {
        let topology = MachineDesc::preset("mi250x").unwrap().topology();
        let cores = topology.numa[0].cpus.len();
        let steps = (cores as f64).log2().ceil() as usize + 1;
        assert_eq!(load(&topology).len(), 2 * (1 + steps + 1));
        assert_eq!(blocks(&topology).len(), 2 * 4 * 3);
        let all = load(&topology).into_iter().chain(blocks(&topology));
        assert!(all.into_iter().all(|case| case.timed[0].misfit().is_none()));
        assert!(load(&Topology::default()).is_empty() && blocks(&Topology::default()).is_empty());
    }
}
