//! Sizes of payloads: larger than every cache, and long compared with any start-up.

use pathline_schema::{Bytes, Gpu, Mover, NumaDomain, Topology};

/// Payload of a bandwidth case: larger than most caches, and long compared with any start-up.
pub(super) const BULK: Bytes = Bytes::mib(256);

/// Minimum ratio of a payload to the last cache: less than a quarter of it remains in the cache
/// from one pass to the next.
const PAST_CACHES: u64 = 4;

/// Minimum payload for a cache: [`BULK`], or four times the cache in steps of that.
fn past(cache: Bytes) -> Bytes {
    let wanted = cache.0.saturating_mul(PAST_CACHES).div_ceil(BULK.0).max(1);
    Bytes(wanted.saturating_mul(BULK.0))
}

/// Payload for the last caches of the cores of any one domain; [`BULK`] where they are unknown, and
/// at most an eighth of the smallest domain's memory, since a triad needs three such buffers.
pub(crate) fn host_bulk(topology: &Topology) -> Bytes {
    let last = topology.caches.iter().map(|cache| cache.level).max().unwrap_or(0);
    let caches = || topology.caches.iter().filter(|c| c.level == last && c.kind != "Instruction");
    let of = |domain: &NumaDomain| {
        let near = caches().filter(|c| !c.cpus.intersect(&domain.cpus).is_empty());
        near.fold(0_u64, |sum, cache| sum.saturating_add(cache.size.0))
    };
    let largest = topology.numa.iter().map(of).max().unwrap_or(0);
    let memories = topology.numa.iter().map(|d| d.memory.0).filter(|&memory| memory > 0);
    let most = memories.min().map_or(u64::MAX, |memory| memory / 8 / BULK.0 * BULK.0);
    past(Bytes(largest)).min(Bytes(most)).max(BULK)
}

/// The largest last cache of a single core. A thread fills no other core's cache, and VMs report up to ten
/// caches of 32 MiB in one domain.
pub(crate) fn core_cache(topology: &Topology) -> Bytes {
    let last = topology.caches.iter().map(|cache| cache.level).max().unwrap_or(0);
    let caches = topology.caches.iter().filter(|c| c.level == last && c.kind != "Instruction");
    caches.map(|cache| cache.size).max().unwrap_or_default()
}

/// Payload for the last cache of a single core.
pub(crate) fn core_bulk(topology: &Topology) -> Bytes {
    past(core_cache(topology))
}

/// The largest last cache of the GPUs.
fn gpu_cache(topology: &Topology) -> Bytes {
    topology.gpus.iter().map(Gpu::last_cache).max().unwrap_or_default()
}

/// Payloads where a GPU moves [`BULK`] in 0.1 to 1 ms, so that start and drain of a pass show. On
/// two H200s it is 6.5 us a pass: a kernel reads 374.6 GB/s from its peer over 512 MiB, 375.6 over
/// 1 GiB and 376.1 over 2 GiB, an engine copies 395.0 over 256 MiB and 396.8 over 1 GiB, inside one
/// GPU 4115 over 256 MiB and 4283 over 4 GiB (read + written).
#[derive(Debug, Clone, Copy)]
pub(super) struct PayloadSizes {
    /// Inside one GPU.
    pub(super) local: Bytes,
    /// Between two, by an engine.
    pair: Bytes,
    /// Between two, by a kernel; by an engine in both directions at once.
    pair_long: Bytes,
}

impl PayloadSizes {
    /// Larger than the caches, for smaller GPUs and GPUs without measurements of larger payloads.
    pub(super) fn of(topology: &Topology) -> Self {
        let large = |m: Bytes| m == Bytes(0) || m >= Bytes::gib(64);
        let fast = |g: &Gpu| g.caps().large_payloads && large(g.memory);
        if topology.gpus.iter().all(fast) {
            Self { local: Bytes::gib(4), pair: Bytes::gib(1), pair_long: Bytes::gib(2) }
        } else {
            let bulk = past(gpu_cache(topology));
            Self { local: bulk, pair: bulk, pair_long: bulk }
        }
    }
    pub(super) fn between(&self, by: &Mover, bidirectional: bool) -> Bytes {
        let long = bidirectional || matches!(by, Mover::Kernel { .. });
        if long { self.pair_long } else { self.pair }
    }
}

/// Minimum span of a pointer chase in a GPU's own memory.
const CHASED: Bytes = Bytes::mib(128);

/// Span of a pointer chase in a GPU's own memory: at least twice its last cache, so that a chain in
/// random order finds nothing in the cache when it repeats.
pub(super) fn chased(topology: &Topology) -> Bytes {
    Bytes(gpu_cache(topology).0.saturating_mul(2).next_multiple_of(CHASED.0)).max(CHASED)
}

/// Span of a pointer chase over a link, where every load is remote for any span: that of
/// nvbandwidth.
pub(super) const CHASED_FAR: Bytes = Bytes::mib(2);

#[cfg(test)]
mod tests {
    use pathline_schema::Unit;

    use super::super::{host, local};
    use super::*;

    /// 2 domains of 2 caches of 192 MiB each: 4 x 384 MiB are 1536 MiB. With 8 GiB in the smaller domain
    /// an eighth is 1 GiB.
    #[test]
    fn payloads_are_past_the_caches_of_a_domain() {
        let cache = |cpus: &str| pathline_schema::CacheGroup {
            level: 3,
            kind: "Unified".to_owned(),
            size: Bytes::mib(192),
            line: 64,
            cpus: cpus.parse().unwrap(),
        };
        let domain = |id: u32, cpus: &str| NumaDomain {
            id,
            cpus: cpus.parse().unwrap(),
            ..NumaDomain::default()
        };
        let mut topology = Topology {
            caches: ["0-3", "4-7", "8-11", "12-15"].map(cache).to_vec(),
            numa: vec![domain(0, "0-7"), domain(1, "8-15")],
            ..Topology::default()
        };
        assert_eq!(host_bulk(&topology), Bytes::mib(1536));
        // One core has one of them: 4 x 192 MiB.
        assert_eq!(core_bulk(&topology), Bytes::mib(768));
        let sizes: std::collections::BTreeSet<Bytes> = host(&topology)
            .iter()
            .filter(|case| case.timed[0].src.unit == Unit::Numa(1))
            .filter(|case| case.timed[0].by.threads() > 1)
            .map(|case| case.timed[0].bytes)
            .collect();
        assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [Bytes::mib(1536)]);
        topology.numa[1].memory = Bytes::gib(8);
        assert_eq!(host_bulk(&topology), Bytes::gib(1));
        // 4 x 32 MiB are less than 256 MiB; the same for unknown caches.
        topology.caches.iter_mut().for_each(|c| c.size = Bytes::mib(16));
        assert_eq!(host_bulk(&topology), BULK);
        assert_eq!(host_bulk(&Topology::default()), BULK);
    }

    /// MI300X: 4 x 256 MiB of Infinity Cache are 1 GiB, and a chase spans 512 MiB. An MI250X keeps 256 and
    /// 128 MiB. B200 copies 4 GiB as every large NVIDIA GPU, and chases over 252 MiB in steps of 128.
    #[test]
    fn payloads_are_past_the_caches_of_a_gpu() {
        let of = |vendor: &str, arch: &str| {
            let gpu = Gpu {
                vendor: vendor.to_owned(),
                arch: arch.to_owned(),
                memory: Bytes::gib(192),
                ..Gpu::default()
            };
            let cases = local(&Topology { gpus: vec![gpu], ..Topology::default() });
            let span = |chase: bool| {
                let found = cases.iter().find(|c| c.timed[0].by.is_chase() == chase);
                found.map(|c| c.timed[0].bytes).unwrap_or_default()
            };
            (span(false), span(true))
        };
        assert_eq!(of("amd", "gfx942"), (Bytes::gib(1), Bytes::mib(512)));
        assert_eq!(of("amd", "gfx90a"), (Bytes::mib(256), Bytes::mib(128)));
        assert_eq!(of("nvidia", "sm_100"), (Bytes::gib(4), Bytes::mib(256)));
        assert_eq!(of("nvidia", "sm_90").1, Bytes::mib(128));
    }
}
