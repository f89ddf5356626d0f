//! Variables of MPI libraries that may gain something for messages and collectives, as rows. A library reads them
//! in `MPI_Init`, so a trial of one needs new processes. Only variables that the library at hand lists are tried.

use pathline_schema::{
    Bytes, Case, Collective, Flow, MemKind, MpiBrand, MpiControls, Place, RankMember, Transport,
    Unit,
};

use crate::arm::ArmEnv;
use crate::collective_settings::member_count;
use crate::mpi_names::{DYNAMIC_RULES, missing_mpi_setting};

/// Sizes that are asked about unless a user names some: one at which the start of a message counts, and one at
/// which its copy does.
pub(crate) const MESSAGE_SIZES: [Bytes; 2] = [Bytes::kib(16), Bytes::mib(1)];
/// Between these sizes a message may be sent at once or after an agreement, as a library is set.
const LEAST_EAGER: Bytes = Bytes::kib(2);
const MOST_EAGER: Bytes = Bytes::kib(256);
/// From here on the copies of a message outweigh its start.
const LEAST_COPIED: Bytes = Bytes::kib(32);

/// The messages that a question is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MpiScope<'a> {
    library: &'a MpiControls,
    /// None for messages between two ranks.
    op: Option<Collective>,
    bytes: Bytes,
    /// Whether GPUs hold them.
    of_device: bool,
    ranks: u32,
    nodes: u32,
}

impl<'a> MpiScope<'a> {
    pub(crate) fn new(library: &'a MpiControls, flow: &Flow, nodes: u32) -> Option<Self> {
        let wire = flow.by.wire().filter(|wire| wire.via.carrier() == Transport::Mpi)?;
        Some(Self {
            library,
            op: wire.op.collective(),
            bytes: flow.bytes,
            // Pathline itself brings staged messages to the host.
            of_device: wire.via == Transport::Mpi && matches!(flow.src.unit, Unit::Gpu(_)),
            ranks: member_count(flow)?,
            nodes,
        })
    }

    fn is_host_message(&self) -> bool {
        self.op.is_none() && !self.of_device
    }
    fn is_device_message(&self) -> bool {
        self.op.is_none() && self.of_device
    }
    fn is_eager_size(&self) -> bool {
        (LEAST_EAGER..=MOST_EAGER).contains(&self.bytes)
    }
    fn is_copied(&self) -> bool {
        self.bytes >= LEAST_COPIED
    }
    /// Whether MPICH may run it by shared memory alone: these collectives have such algorithms.
    fn has_posix_collective(&self) -> bool {
        let posix = [Collective::Broadcast, Collective::Reduce, Collective::AllReduce];
        let is_posix = self.op.is_some_and(|op| op == Collective::Barrier || posix.contains(&op));
        is_posix && self.nodes == 1 && !self.of_device && self.has_device("ch4")
    }
    fn has_device(&self, beginning: &str) -> bool {
        self.library.device.as_deref().is_some_and(|device| device.starts_with(beginning))
    }
    fn has(&self, variable: &str) -> bool {
        self.library.variables.iter().any(|known| known.name == variable)
    }

    /// What stands for a part of a row's name or value: the collective as its library writes it, the component
    /// for shared memory (`vader` before Open MPI 5.0), and a size that the message with its header fits into.
    fn fill(&self, text: &str) -> String {
        let open = self.library.brand == MpiBrand::OpenMpi;
        let op = self.op.map_or("", mpi_name);
        let op = if open { op.to_owned() } else { op.to_uppercase() };
        let sm = if self.has("btl_sm_eager_limit") { "sm" } else { "vader" };
        let room = (self.bytes.0 + 1).next_power_of_two().to_string();
        text.replace("{op}", &op).replace("{sm}", sm).replace("{room}", &room)
    }
}

/// A collective as MPI calls it.
const fn mpi_name(op: Collective) -> &'static str {
    match op {
        Collective::Broadcast => "bcast",
        Collective::Reduce => "reduce",
        Collective::AllReduce => "allreduce",
        Collective::ReduceScatter => "reduce_scatter_block",
        Collective::AllGather => "allgather",
        Collective::AllToAll => "alltoall",
        Collective::Gather => "gather",
        Collective::Scatter => "scatter",
        Collective::AllGatherV => "allgatherv",
        Collective::AllToAllV => "alltoallv",
        Collective::GatherV => "gatherv",
        Collective::ScatterV => "scatterv",
        Collective::Barrier => "barrier",
    }
}

/// Variables with values to try, as one choice.
struct MpiRow {
    brands: &'static [MpiBrand],
    settings: &'static [(&'static str, &'static str)],
    /// Whether it may gain something here.
    applies: fn(&MpiScope<'_>) -> bool,
    /// What it costs; empty if nothing is known.
    cost: &'static str,
    source: &'static str,
}

const OPEN_MPI: &[MpiBrand] = &[MpiBrand::OpenMpi];
const MPICH: &[MpiBrand] = &[MpiBrand::Mpich, MpiBrand::CrayMpich];
const CRAY: &[MpiBrand] = &[MpiBrand::CrayMpich];
const OMPI_INFO: &str = "ompi_info --all of Open MPI 4.1 and 5.0";
const MPIVARS: &str = "mpivars of MPICH 4.0 and 5.0";
const INTRO_MPI: &str = "intro_mpi(3) of Cray MPICH 8.1";

const ROWS: &[MpiRow] = &[
    MpiRow {
        brands: OPEN_MPI,
        settings: &[("OMPI_MCA_btl_{sm}_eager_limit", "{room}")],
        applies: |scope| scope.is_host_message() && scope.is_eager_size(),
        cost: "buffers of that size for messages that nobody waits for yet",
        source: OMPI_INFO,
    },
    MpiRow {
        brands: OPEN_MPI,
        settings: &[("OMPI_MCA_btl_{sm}_max_send_size", "131072")],
        applies: |scope| scope.is_host_message() && scope.is_copied(),
        cost: "larger fragments in the shared memory of each process",
        source: OMPI_INFO,
    },
    MpiRow {
        brands: OPEN_MPI,
        settings: &[("OMPI_MCA_smsc", "^cma")],
        applies: |scope| {
            scope.is_host_message() && scope.is_copied() && scope.has("smsc_cma_priority")
        },
        cost: "a second copy of each message by the cores",
        source: "Open MPI 5.0 documentation, shared memory; ompi_info --all",
    },
    MpiRow {
        brands: OPEN_MPI,
        settings: &[
            ("OMPI_MCA_pml", "ucx"),
            ("OMPI_MCA_pml_ucx_devices", "any"),
            ("OMPI_MCA_pml_ucx_tls", "any"),
        ],
        applies: |scope| scope.op.is_none(),
        cost: "the settings of Open MPI's own transports do nothing then",
        source: "Open MPI 5.0 documentation, UCX; ompi_info --all",
    },
    MpiRow {
        brands: OPEN_MPI,
        settings: &[("OMPI_MCA_coll_xhc_priority", "90")],
        applies: |scope| scope.op.is_some() && scope.nodes == 1 && !scope.of_device,
        cost: "",
        source: OMPI_INFO,
    },
    MpiRow {
        brands: OPEN_MPI,
        settings: &[("OMPI_MCA_coll_acoll_priority", "90")],
        applies: |scope| scope.op.is_some() && !scope.of_device,
        cost: "",
        source: OMPI_INFO,
    },
    MpiRow {
        brands: OPEN_MPI,
        settings: &[("OMPI_MCA_coll_ucc_enable", "1"), ("OMPI_MCA_coll_ucc_priority", "100")],
        applies: |scope| scope.op.is_some(),
        cost: "memory of UCC's teams for each communicator",
        source: "UCC, README; ompi_info --all",
    },
    MpiRow {
        brands: MPICH,
        settings: &[("MPIR_CVAR_CH4_CMA_ENABLE", "1")],
        applies: |scope| scope.is_host_message() && scope.is_copied() && scope.has_device("ch4"),
        cost: "",
        source: MPIVARS,
    },
    MpiRow {
        brands: MPICH,
        settings: &[("MPIR_CVAR_CH4_CMA_ENABLE", "0")],
        applies: |scope| scope.is_host_message() && scope.is_copied() && scope.has_device("ch4"),
        cost: "a second copy of each message by the cores",
        source: MPIVARS,
    },
    MpiRow {
        brands: MPICH,
        settings: &[("MPIR_CVAR_CH4_IPC_CMA_P2P_THRESHOLD", "{room}")],
        applies: |scope| {
            scope.is_host_message() && scope.is_eager_size() && scope.has_device("ch4")
        },
        cost: "a second copy of messages below that size",
        source: MPIVARS,
    },
    MpiRow {
        brands: MPICH,
        settings: &[("MPIR_CVAR_CH4_IPC_XPMEM_P2P_THRESHOLD", "{room}")],
        applies: |scope| {
            let sized = scope.is_host_message() && scope.is_eager_size();
            sized && scope.has_device("ch4") && scope.library.has_xpmem
        },
        cost: "a second copy of messages below that size",
        source: MPIVARS,
    },
    MpiRow {
        brands: MPICH,
        settings: &[("MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE", "{room}")],
        applies: |scope| {
            scope.is_host_message() && scope.is_eager_size() && scope.has_device("ch4")
        },
        cost: "shared memory: 64 cells of that size for each process",
        source: MPIVARS,
    },
    MpiRow {
        brands: MPICH,
        settings: &[("MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS", "256")],
        applies: |scope| scope.is_host_message() && scope.has_device("ch4"),
        cost: "shared memory: four times as many cells for each process",
        source: MPIVARS,
    },
    MpiRow {
        brands: MPICH,
        settings: &[("MPIR_CVAR_NEMESIS_SHM_EAGER_MAX_SZ", "{room}")],
        applies: |scope| {
            scope.is_host_message() && scope.is_eager_size() && scope.has_device("ch3")
        },
        cost: "a second copy of messages up to that size",
        source: MPIVARS,
    },
    MpiRow {
        brands: &[MpiBrand::Mpich],
        settings: &[("MPIR_CVAR_CH4_IPC_GPU_P2P_THRESHOLD", "{room}")],
        applies: |scope| scope.is_device_message() && scope.has_device("ch4") && !scope.is_copied(),
        cost: "messages of GPUs below that size go through host memory",
        source: MPIVARS,
    },
    MpiRow {
        brands: &[MpiBrand::Mpich],
        settings: &[("MPIR_CVAR_CH4_IPC_GPU_P2P_THRESHOLD", "1")],
        applies: |scope| scope.is_device_message() && scope.has_device("ch4"),
        cost: "an exchange of handles for the smallest messages of GPUs too",
        source: MPIVARS,
    },
    MpiRow {
        brands: &[MpiBrand::Mpich],
        settings: &[("MPIR_CVAR_CH4_IPC_GPU_READ_WRITE_PROTOCOL", "write")],
        applies: |scope| scope.is_device_message() && scope.has_device("ch4"),
        cost: "",
        source: MPIVARS,
    },
    MpiRow {
        brands: MPICH,
        settings: &[("MPIR_CVAR_{op}_POSIX_INTRA_ALGORITHM", "release_gather")],
        applies: |scope| scope.has_posix_collective(),
        cost: "shared memory for each communicator",
        source: MPIVARS,
    },
    MpiRow {
        brands: MPICH,
        settings: &[("MPIR_CVAR_{op}_POSIX_INTRA_ALGORITHM", "mpir")],
        applies: |scope| scope.has_posix_collective(),
        cost: "",
        source: MPIVARS,
    },
    MpiRow {
        brands: CRAY,
        settings: &[("MPICH_GPU_IPC_THRESHOLD", "1")],
        applies: |scope| scope.is_device_message(),
        cost: "an exchange of handles for the smallest messages of GPUs too",
        source: INTRO_MPI,
    },
    MpiRow {
        brands: CRAY,
        settings: &[("MPICH_GPU_IPC_THRESHOLD", "{room}")],
        applies: |scope| scope.is_device_message() && scope.bytes <= MOST_EAGER,
        cost: "messages of GPUs below that size go through host memory",
        source: INTRO_MPI,
    },
    MpiRow {
        brands: CRAY,
        settings: &[("MPICH_GPU_EAGER_DEVICE_MEM", "1")],
        applies: |scope| scope.is_device_message() && scope.bytes <= MOST_EAGER,
        cost: "memory of the GPU for messages that nobody waits for yet",
        source: INTRO_MPI,
    },
    MpiRow {
        brands: CRAY,
        settings: &[("MPICH_GPU_NO_ASYNC_COPY", "1")],
        applies: |scope| scope.is_device_message() && scope.bytes <= MOST_EAGER,
        cost: "the process waits for each copy",
        source: INTRO_MPI,
    },
    MpiRow {
        brands: CRAY,
        settings: &[("MPICH_SMP_SINGLE_COPY_MODE", "CMA")],
        applies: |scope| scope.is_host_message() && scope.is_copied(),
        cost: "",
        source: INTRO_MPI,
    },
    MpiRow {
        brands: CRAY,
        settings: &[("MPICH_SMP_SINGLE_COPY_MODE", "NONE")],
        applies: |scope| scope.is_host_message() && scope.is_copied(),
        cost: "a second copy of each message by the cores",
        source: INTRO_MPI,
    },
    MpiRow {
        brands: CRAY,
        settings: &[("MPICH_SMP_SINGLE_COPY_SIZE", "{room}")],
        applies: |scope| scope.is_host_message() && scope.is_eager_size(),
        cost: "a second copy of messages below that size",
        source: INTRO_MPI,
    },
    MpiRow {
        brands: CRAY,
        settings: &[("MPICH_OFI_NIC_POLICY", "GPU")],
        applies: |scope| scope.of_device && scope.nodes > 1,
        cost: "",
        source: INTRO_MPI,
    },
    MpiRow {
        brands: CRAY,
        settings: &[("MPICH_OFI_NIC_POLICY", "NUMA")],
        applies: |scope| !scope.of_device && scope.nodes > 1,
        cost: "",
        source: INTRO_MPI,
    },
    MpiRow {
        brands: CRAY,
        settings: &[("MPICH_GPU_ALLREDUCE_USE_KERNEL", "1")],
        applies: |scope| scope.op == Some(Collective::AllReduce) && scope.of_device,
        cost: "units of the GPUs, which compute next to it then lacks",
        source: INTRO_MPI,
    },
    MpiRow {
        brands: CRAY,
        settings: &[("MPICH_ALLREDUCE_NO_SMP", "1")],
        applies: |scope| scope.op == Some(Collective::AllReduce),
        cost: "",
        source: INTRO_MPI,
    },
    MpiRow {
        brands: CRAY,
        settings: &[("MPICH_SHARED_MEM_COLL_OPT", "0")],
        applies: |scope| scope.op.is_some() && !scope.of_device,
        cost: "",
        source: INTRO_MPI,
    },
];

/// Algorithms that are no choice: the library's own, those of non-blocking calls, of other libraries, and one for two
/// processes alone.
const NO_ALGORITHMS: [&str; 5] = ["auto", "ignore", "nb", "ccl", "FILE"];
const OF_TWO: &str = "two_proc";

/// One thing to try: variables with values, what they cost, and where they are described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MpiSetting {
    pub(crate) settings: ArmEnv,
    pub(crate) cost: &'static str,
    pub(crate) source: &'static str,
    /// Why it cannot act: the library lacks one of its variables.
    pub(crate) ignored: Option<String>,
}

impl MpiSetting {
    /// `OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any`.
    pub(crate) fn label(&self) -> String {
        let all: Vec<String> =
            self.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        all.join(" ")
    }
}

/// The settings that may gain something here: those whose value the library takes and does not have by default.
/// Settings that the library lacks are in the list with the reason.
pub(crate) fn mpi_settings(scope: &MpiScope<'_>) -> Vec<MpiSetting> {
    let library = scope.library;
    let rows = ROWS.iter().filter(|row| row.brands.contains(&library.brand));
    let rows = rows.filter(|row| (row.applies)(scope)).map(|row| {
        let of = |(name, value): &(&str, &str)| (scope.fill(name), scope.fill(value));
        let settings: ArmEnv = row.settings.iter().map(of).collect();
        let missing = settings.keys().find(|name| missing_mpi_setting(name, library).is_some());
        let ignored = missing.map(|name| format!("{} lists no {name}", library.version));
        MpiSetting { settings, cost: row.cost, source: row.source, ignored }
    });
    let mut all: Vec<MpiSetting> = rows.chain(algorithms(scope)).collect();
    all.retain(|setting| setting.ignored.is_some() || is_offered(&setting.settings, library));
    all
}

/// Each algorithm that the library lists for the collective.
fn algorithms(scope: &MpiScope<'_>) -> Vec<MpiSetting> {
    let (name, rules, source) = match scope.library.brand {
        MpiBrand::OpenMpi => (
            scope.fill("OMPI_MCA_coll_tuned_{op}_algorithm"),
            Some((DYNAMIC_RULES.to_owned(), "1".to_owned())),
            OMPI_INFO,
        ),
        _ => (scope.fill("MPIR_CVAR_{op}_INTRA_ALGORITHM"), None, MPIVARS),
    };
    let found = scope.op.and_then(|_| scope.library.variable(&name));
    let is_choice = |choice: &&String| {
        let choice = choice.as_str();
        !NO_ALGORITHMS.contains(&choice) && (choice != OF_TWO || scope.ranks == 2)
    };
    let of = |choice: &String| MpiSetting {
        settings: rules.iter().cloned().chain([(name.clone(), choice.clone())]).collect(),
        cost: "the library's own algorithms at all sizes",
        source,
        ignored: None,
    };
    let choices = found.iter().flat_map(|variable| &variable.choices);
    choices.filter(is_choice).map(of).collect()
}

/// Whether a library takes these values, and has another of one of them by itself. Cray MPICH takes values that
/// MPI_T does not list.
fn is_offered(settings: &ArmEnv, library: &MpiControls) -> bool {
    let takes = |(name, value): (&String, &String)| {
        library.variable(name).is_none_or(|variable| variable.takes(value) != Some(false))
    };
    let is_usual = |(name, value): (&String, &String)| {
        library.variable(name).is_some_and(|variable| variable.is_set_to(value) == Some(true))
    };
    settings.iter().all(takes) && !settings.iter().all(is_usual)
}

/// Where each rank has an MPI: messages of host memory from the first rank to the second, and all_reduces of all
/// ranks; where it takes memory of GPUs and the first two have one, messages of it too.
pub fn usual_mpi_messages(ranks: &[RankMember]) -> Vec<Case> {
    let has = |member: &RankMember| member.ways.contains_key(&Transport::Mpi);
    let ([first, second, ..], Some(last), true) = (ranks, ranks.last(), ranks.iter().all(has))
    else {
        return Vec::new();
    };
    let host = |member: &RankMember| Some(member.host_memory(MemKind::Paged));
    let takes = |member: &RankMember| {
        !member.gpus.is_empty() && !member.host_only.contains_key(&Transport::Mpi)
    };
    let device = |member: &RankMember| {
        Some(member).filter(|member| takes(member))?.gpu_memory(MemKind::Vram)
    };
    let of = |ends: Option<(Place, Place)>, op: &str| -> Vec<Case> {
        let text = |(src, dst): (Place, Place)| {
            MESSAGE_SIZES.map(|bytes| format!("{src} > {dst} by mpi@{}[{op}] x {bytes}", src.unit))
        };
        ends.into_iter().flat_map(text).filter_map(|text| text.parse().ok()).collect()
    };
    let mut all = of(host(first).zip(host(second)), "send-w64");
    all.extend(of(device(first).zip(device(second)), "send-w64"));
    all.extend(of(host(first).zip(host(last)), "all_reduce"));
    all
}

#[cfg(test)]
mod tests;
