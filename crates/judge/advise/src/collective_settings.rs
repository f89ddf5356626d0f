//! Variables of NCCL and RCCL that may gain something for a collective, as rows. The libraries read each of
//! them once in a process, so a trial of one needs a new process.

use pathline_schema::{
    Bytes, Case, Collective, Flow, MemKind, RankMember, Topology, Transport, Unit,
};

use crate::arm::ArmEnv;

/// Sizes of the collectives that are asked about unless a user names some: one at which the start counts, and
/// one at which rates do.
pub(crate) const COLLECTIVE_SIZES: [Bytes; 2] = [Bytes::mib(1), Bytes::mib(32)];
/// The first CUDA architecture with NVLink SHARP, which NVLS needs: NCCL's documentation of
/// `NCCL_NVLS_ENABLE` names third-generation NVSwitch and Hopper.
const FIRST_NVLS_ARCH: u32 = 90;
/// From here on LL, half of whose bytes are flags, only loses.
const MOST_LL: Bytes = Bytes::mib(1);
/// Up to here one channel and another differ by less than the start of a collective takes.
const LEAST_FOR_CHANNELS: Bytes = Bytes::kib(256);

/// The collective that a question is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CollectiveScope<'a> {
    topology: &'a Topology,
    op: Collective,
    bytes: Bytes,
    /// GPUs that take part.
    pub(crate) ranks: u32,
    nodes: u32,
}

impl<'a> CollectiveScope<'a> {
    /// Of the flow of a collective; none for fewer than two GPUs.
    pub(crate) fn new(
        topology: &'a Topology,
        flow: &Flow,
        op: Collective,
        nodes: u32,
    ) -> Option<Self> {
        let ranks = member_count(flow).filter(|&ranks| ranks > 1)?;
        Some(Self { topology, op, bytes: flow.bytes, ranks, nodes })
    }

    fn is_amd(&self) -> bool {
        self.topology.gpus.iter().any(|gpu| gpu.vendor == "amd")
    }

    /// The library that carries it.
    pub(crate) fn library(&self) -> &'static str {
        if self.is_amd() { "RCCL" } else { "NCCL" }
    }

    /// Whether NVSwitches can reduce it.
    fn has_nvls(&self) -> bool {
        let reduced = [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather];
        !self.is_amd() && !is_without_nvls(self.topology) && reduced.contains(&self.op)
    }

    fn is_all_reduce(&self) -> bool {
        self.op == Collective::AllReduce
    }
}

/// Ranks of a collective: from one process to another, or GPUs of one process.
pub(crate) fn member_count(flow: &Flow) -> Option<u32> {
    let (src, dst) = (flow.src, flow.dst);
    match (src.rank.0, dst.rank.0, src.unit, dst.unit) {
        (a, b, Unit::Gpu(first), Unit::Gpu(last)) if a == b => Some(last.checked_sub(first)? + 1),
        (a, b, ..) => Some(b.checked_sub(a)? + 1),
    }
}

/// All_reduces of all ranks, where each of them has NCCL or RCCL and a GPU.
pub fn usual_collectives(ranks: &[RankMember]) -> Vec<Case> {
    let has =
        |member: &RankMember| member.ways.contains_key(&Transport::Ccl) && !member.gpus.is_empty();
    let ([first, .., last], true) = (ranks, ranks.iter().all(has)) else { return Vec::new() };
    let place = |member: &RankMember| member.gpu_memory(MemKind::Vram);
    let Some((src, dst)) = place(first).zip(place(last)) else { return Vec::new() };
    let text = |bytes: Bytes| format!("{src} > {dst} by ccl@{}[all_reduce] x {bytes}", src.unit);
    COLLECTIVE_SIZES.iter().filter_map(|&bytes| text(bytes).parse().ok()).collect()
}

/// A variable with a value to try.
pub(crate) struct CollectiveSetting {
    pub(crate) name: &'static str,
    pub(crate) value: &'static str,
    /// Whether it may gain something here.
    applies: fn(&CollectiveScope<'_>) -> bool,
    /// Whether what it does shows in the algorithm, protocol and channels that the library logs.
    is_logged: bool,
    /// What it costs; empty if nothing is known.
    pub(crate) cost: &'static str,
    pub(crate) source: &'static str,
}

const NCCL_GUIDE: &str = "NCCL user guide, environment variables";
const RCCL_GUIDE: &str = "RCCL documentation, environment variables";

const SETTINGS: &[CollectiveSetting] = &[
    CollectiveSetting {
        name: "NCCL_NVLS_ENABLE",
        value: "0",
        applies: |scope| scope.has_nvls(),
        is_logged: true,
        cost: "",
        source: NCCL_GUIDE,
    },
    CollectiveSetting {
        name: "NCCL_ALGO",
        value: "Ring",
        applies: |scope| scope.is_all_reduce(),
        is_logged: true,
        cost: "the other algorithms at all sizes",
        source: NCCL_GUIDE,
    },
    CollectiveSetting {
        name: "NCCL_ALGO",
        value: "Tree",
        applies: |scope| scope.is_all_reduce(),
        is_logged: true,
        cost: "the other algorithms at all sizes",
        source: NCCL_GUIDE,
    },
    CollectiveSetting {
        name: "NCCL_PROTO",
        value: "LL",
        applies: |scope| scope.bytes <= MOST_LL,
        is_logged: true,
        cost: "half of the rate of large collectives",
        source: NCCL_GUIDE,
    },
    CollectiveSetting {
        name: "NCCL_PROTO",
        value: "Simple",
        applies: |_| true,
        is_logged: true,
        cost: "latency of small collectives",
        source: NCCL_GUIDE,
    },
    CollectiveSetting {
        name: "NCCL_MIN_NCHANNELS",
        value: "32",
        applies: |scope| scope.bytes >= LEAST_FOR_CHANNELS,
        is_logged: true,
        cost: "a block of a GPU's units for each channel, which compute next to it then lacks",
        source: "NCCL user guide, NCCL_MIN_CTAS; ROCm/rocm-systems#11253",
    },
    CollectiveSetting {
        name: "NCCL_MAX_NCHANNELS",
        value: "8",
        applies: |scope| scope.bytes >= LEAST_FOR_CHANNELS,
        is_logged: true,
        cost: "",
        source: "NCCL user guide, NCCL_MAX_CTAS",
    },
    CollectiveSetting {
        name: "NCCL_NTHREADS",
        value: "256",
        applies: |_| true,
        is_logged: false,
        cost: "",
        source: NCCL_GUIDE,
    },
    CollectiveSetting {
        name: "RCCL_MSCCL_ENABLE",
        value: "0",
        applies: |scope| scope.is_amd(),
        is_logged: false,
        cost: "",
        source: RCCL_GUIDE,
    },
    CollectiveSetting {
        name: "NCCL_IB_QPS_PER_CONNECTION",
        value: "4",
        applies: |scope| scope.nodes > 1,
        is_logged: false,
        cost: "memory of the adapters",
        source: NCCL_GUIDE,
    },
    CollectiveSetting {
        name: "NCCL_CROSS_NIC",
        value: "1",
        applies: |scope| scope.nodes > 1,
        is_logged: false,
        cost: "",
        source: NCCL_GUIDE,
    },
];

/// The settings that may gain something for a collective.
pub(crate) fn collective_settings<'s>(
    scope: &'s CollectiveScope<'_>,
) -> impl Iterator<Item = &'static CollectiveSetting> + 's {
    SETTINGS.iter().filter(|setting| (setting.applies)(scope))
}

/// Whether the algorithm, protocol and channels that a library logs show if these variables act.
pub fn is_shown_by_choice(settings: &ArmEnv) -> bool {
    let is_logged =
        |name: &String| SETTINGS.iter().any(|setting| setting.name == name && setting.is_logged);
    !settings.is_empty() && settings.keys().all(is_logged)
}

/// Whether no GPU has NVLink SHARP.
pub(crate) fn is_without_nvls(topology: &Topology) -> bool {
    let arch = |gpu: &pathline_schema::Gpu| gpu.arch.strip_prefix("sm_")?.parse::<u32>().ok();
    topology.gpus.iter().all(|gpu| arch(gpu).is_none_or(|arch| arch < FIRST_NVLS_ARCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::Gpu;

    fn names(vendor: &str, arch: &str, case: &str, nodes: u32) -> Vec<String> {
        let gpu = Gpu { vendor: vendor.to_owned(), arch: arch.to_owned(), ..Gpu::default() };
        let topology = Topology { gpus: vec![gpu.clone(), gpu], ..Topology::default() };
        let case: Case = case.parse().unwrap();
        let op = case.timed[0].by.wire().unwrap().op.collective().unwrap();
        let Some(scope) = CollectiveScope::new(&topology, &case.timed[0], op, nodes) else {
            return Vec::new();
        };
        collective_settings(&scope).map(|s| format!("{}={}", s.name, s.value)).collect()
    }

    #[test]
    fn settings_are_those_that_can_act() {
        let sum =
            |size: &str| format!("r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[all_reduce] x {size}");
        let large = names("nvidia", "sm_90", &sum("32MiB"), 1);
        assert_eq!(
            large,
            [
                "NCCL_NVLS_ENABLE=0",
                "NCCL_ALGO=Ring",
                "NCCL_ALGO=Tree",
                "NCCL_PROTO=Simple",
                "NCCL_MIN_NCHANNELS=32",
                "NCCL_MAX_NCHANNELS=8",
                "NCCL_NTHREADS=256"
            ]
        );
        // LL for small ones only, and no channels there; no NVLS before Hopper.
        let small = names("nvidia", "sm_80", &sum("64KiB"), 1);
        assert!(small.contains(&"NCCL_PROTO=LL".to_owned()), "{small:?}");
        assert!(!small.iter().any(|s| s.contains("NCHANNELS") || s.contains("NVLS")), "{small:?}");
        let amd = names("amd", "gfx90a", &sum("32MiB"), 1);
        assert!(amd.contains(&"RCCL_MSCCL_ENABLE=0".to_owned()), "{amd:?}");
        assert!(!amd.iter().any(|s| s.contains("NVLS") || s.contains("_IB_")), "{amd:?}");
        let two = names("amd", "gfx90a", &sum("32MiB"), 2);
        assert!(two.contains(&"NCCL_IB_QPS_PER_CONNECTION=4".to_owned()), "{two:?}");
        let alone = "r0.gpu0.vram > r0.gpu0.vram by ccl@gpu0[all_reduce] x 8B";
        assert!(alone.parse::<Case>().is_err() || names("amd", "", alone, 1).is_empty());
    }

    #[test]
    fn ll128_is_never_a_candidate() {
        assert!(SETTINGS.iter().all(|s| s.value != "LL128"), "it may corrupt data");
    }

    #[test]
    fn only_what_the_log_shows_is_evidence() {
        let env = |names: &[&str]| -> ArmEnv {
            names.iter().map(|n| ((*n).to_owned(), "1".to_owned())).collect()
        };
        // Algorithm, protocol and channels are logged, and NVLS is an algorithm. Threads and queue pairs are not.
        let logged = [
            "NCCL_NVLS_ENABLE",
            "NCCL_ALGO",
            "NCCL_PROTO",
            "NCCL_MIN_NCHANNELS",
            "NCCL_MAX_NCHANNELS",
        ];
        assert!(is_shown_by_choice(&env(&logged)));
        for name in
            SETTINGS.iter().map(|setting| setting.name).filter(|name| !logged.contains(name))
        {
            assert!(!is_shown_by_choice(&env(&["NCCL_ALGO", name])), "{name}");
        }
        assert!(!is_shown_by_choice(&env(&["UCX_TLS"])) && !is_shown_by_choice(&env(&[])));
    }

    #[test]
    fn ranks_without_the_library_raise_no_question() {
        let member = |rank: u32| {
            let ways = [(Transport::Ccl, "NCCL".to_owned())].into();
            RankMember {
                rank: pathline_schema::Rank(rank),
                gpus: vec![rank],
                ways,
                ..Default::default()
            }
        };
        let all = [member(0), member(1), member(2)];
        let cases: Vec<String> = usual_collectives(&all).iter().map(Case::to_string).collect();
        assert_eq!(
            cases,
            [
                "r0.gpu0.vram > r2.gpu2.vram by ccl@gpu0[all_reduce] x 1MiB",
                "r0.gpu0.vram > r2.gpu2.vram by ccl@gpu0[all_reduce] x 32MiB"
            ]
        );
        let host_only = RankMember { gpus: Vec::new(), ..member(1) };
        assert_eq!(usual_collectives(&[member(0), host_only]).len(), 0);
        assert_eq!(usual_collectives(&[member(0)]).len(), 0);
    }
}
