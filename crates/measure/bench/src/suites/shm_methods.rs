//! How two processes of a node pass a message through shared memory: copy loops and calls.

use pathline_schema::{CpuHow, ShmCopies, Transport};

use super::copies;
use crate::scope::PlanScope;

/// The copy loops and calls between processes of one node.
pub(super) fn copy_methods(scope: &PlanScope<'_>) -> Vec<(Transport, ShmCopies)> {
    let both = |how| ShmCopies::InOut { copy_in: how, copy_out: how };
    let mut methods: Vec<(Transport, ShmCopies)> =
        copies(scope.topology).iter().map(|&how| (Transport::Shm, both(how))).collect();
    // Streaming stores on one side only show which side should have the data in its cache
    // afterwards; loads past the caches with plain stores show which side should not keep the ring
    // in its cache.
    let loading = loading_past(scope);
    methods.extend(loading.map(|how| (Transport::Shm, both(how))));
    let one_side = [widest_streaming(scope), prefetching(scope), loading];
    for how in one_side.into_iter().flatten() {
        let memcpy = CpuHow::Memcpy;
        methods.push((Transport::Shm, ShmCopies::InOut { copy_in: how, copy_out: memcpy }));
        methods.push((Transport::Shm, ShmCopies::InOut { copy_in: memcpy, copy_out: how }));
    }
    methods.extend([(Transport::Cma, ShmCopies::Read), (Transport::Cma, ShmCopies::Write)]);
    methods.push((Transport::Xpmem, ShmCopies::Single(CpuHow::Memcpy)));
    methods.extend(ucx_pair(scope).map(|pair| (Transport::Shm, pair)));
    methods.extend(loading.map(|how| (Transport::Xpmem, ShmCopies::Single(how))));
    methods
}

/// The loops of UCX from 1.18 on with `UCX_NT_BUFFER_TRANSFER_MIN`: the sender stores past the caches,
/// the receiver loads past them. Its single copies by xpmem load past them, too.
fn ucx_pair(scope: &PlanScope<'_>) -> Option<ShmCopies> {
    let (copy_in, copy_out) = (widest_streaming(scope)?, loading_past(scope)?);
    Some(ShmCopies::InOut { copy_in, copy_out })
}

/// The widest streaming stores of the processor.
fn widest_streaming(scope: &PlanScope<'_>) -> Option<CpuHow> {
    super::streaming(super::widest(scope.topology))
}

/// The same with loads that bypass the caches.
fn prefetching(scope: &PlanScope<'_>) -> Option<CpuHow> {
    match super::widest(scope.topology) {
        CpuHow::Avx512 => Some(CpuHow::Avx512Nta),
        CpuHow::Avx2 => Some(CpuHow::Avx2Nta),
        _ => None,
    }
}

/// Plain stores with loads that bypass the caches.
fn loading_past(scope: &PlanScope<'_>) -> Option<CpuHow> {
    match super::widest(scope.topology) {
        CpuHow::Avx512 => Some(CpuHow::Avx512Ntl),
        CpuHow::Avx2 => Some(CpuHow::Avx2Ntl),
        _ => None,
    }
}

/// Whether the latency of a copy method is of interest: the usual one, the widest, streaming ones,
/// UCX's pair, and single copies.
pub(super) fn wants_latency(scope: &PlanScope<'_>, (_, copies): &(Transport, ShmCopies)) -> bool {
    let ShmCopies::InOut { copy_in, copy_out } = *copies else { return true };
    if ucx_pair(scope) == Some(*copies) {
        return true;
    }
    let covered =
        [Some(CpuHow::Memcpy), Some(super::widest(scope.topology)), widest_streaming(scope)];
    copy_in == copy_out && covered.contains(&Some(copy_in))
}

#[cfg(test)]
mod tests {
    use pathline_schema::{Bytes, HostInfo, Topology};

    use super::*;

    #[test]
    fn ucx_copies_past_the_caches_on_both_sides() {
        let feature = |name: &str| Topology {
            host: HostInfo { features: vec![name.to_owned()], ..HostInfo::default() },
            ..Topology::default()
        };
        let methods = |topology: &Topology| {
            let scope = PlanScope::new(topology, Bytes::gib(1));
            copy_methods(&scope).iter().map(|(via, c)| format!("{via} {c}")).collect::<Vec<_>>()
        };
        let avx2 = methods(&feature("avx2"));
        assert!(avx2.contains(&"shm avx2-nt+avx2-ntl".to_owned()), "{avx2:?}");
        assert!(avx2.contains(&"xpmem avx2-ntl".to_owned()), "{avx2:?}");
        let avx512 = methods(&feature("avx512f"));
        assert!(avx512.contains(&"shm avx512-nt+avx512-ntl".to_owned()), "{avx512:?}");
        assert!(!methods(&Topology::default()).iter().any(|text| text.contains("ntl")));
    }
}
