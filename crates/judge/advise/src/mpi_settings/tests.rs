use std::collections::BTreeMap;

use super::*;
use pathline_schema::{MpiVariable, Rank};

use crate::mpi_report::MpiReport;

fn library(version: &str, device: &str, variables: &[(&str, &str, &[&str])]) -> MpiControls {
    let brand = MpiBrand::of_version(version);
    let of = |(name, value, choices): &(&str, &str, &[&str])| MpiVariable {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
        choices: choices.iter().map(|&choice| choice.to_owned()).collect(),
        // Open MPI lists numbers too.
        numbers: match brand {
            MpiBrand::OpenMpi => (0..choices.len() as i64).collect(),
            _ => Vec::new(),
        },
    };
    MpiControls {
        version: version.to_owned(),
        path: "/lib/libmpi.so".to_owned(),
        brand,
        device: Some(device.to_owned()).filter(|device| !device.is_empty()),
        refused: None,
        has_xpmem: false,
        variables: variables.iter().map(of).collect(),
    }
}

fn open_mpi() -> MpiControls {
    let algorithms = ["ignore", "basic_linear", "recursive_doubling", "ring", "two_proc"];
    let variables = [
        ("btl_sm_eager_limit", "4096", &[][..]),
        ("btl_vader_eager_limit", "4096", &[]),
        ("btl_sm_max_send_size", "32768", &[]),
        ("smsc", "", &[]),
        ("smsc_cma_priority", "37", &[]),
        ("pml", "", &[]),
        ("coll_tuned_use_dynamic_rules", "0", &["false", "true"]),
        ("coll_tuned_allreduce_algorithm", "0", &algorithms),
    ];
    library("Open MPI v5.0.11", "", &variables)
}

fn mpich() -> MpiControls {
    let choices = ["auto", "nb", "smp", "recursive_doubling"];
    let variables = [
        ("MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE", "69632", &[][..]),
        ("MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS", "64", &[]),
        ("MPIR_CVAR_NEMESIS_SHM_EAGER_MAX_SZ", "-1", &[]),
        ("MPIR_CVAR_CH4_IPC_XPMEM_P2P_THRESHOLD", "4096", &[]),
        ("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "0", &choices),
        ("MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM", "2", &["mpir", "release_gather", "auto"]),
    ];
    library("MPICH 4.0.2", "ch4:ucx", &variables)
}

fn settings(library: &MpiControls, case: &str, nodes: u32) -> Vec<MpiSetting> {
    let case: Case = case.parse().unwrap();
    mpi_settings(&MpiScope::new(library, &case.timed[0], nodes).unwrap())
}

/// Labels of the settings that can act.
fn labels(library: &MpiControls, case: &str, nodes: u32) -> Vec<String> {
    let all = settings(library, case, nodes);
    all.iter().filter(|setting| setting.ignored.is_none()).map(MpiSetting::label).collect()
}

fn message(size: &str) -> String {
    format!("r0.numa0.paged > r1.numa0.paged by mpi@numa0[send-w64] x {size}")
}

fn sum(ranks: u32, size: &str) -> String {
    format!("r0.numa0.paged > r{}.numa0.paged by mpi@numa0[all_reduce] x {size}", ranks - 1)
}

#[test]
fn only_what_the_library_lists_is_offered() {
    // 16 KiB and its header fit into 32768 bytes. This build lists no pml_ucx_tls.
    let small = labels(&open_mpi(), &message("16KiB"), 1);
    assert_eq!(small, ["OMPI_MCA_btl_sm_eager_limit=32768"]);
    let large = labels(&open_mpi(), &message("1MiB"), 1);
    assert_eq!(large, ["OMPI_MCA_btl_sm_max_send_size=131072", "OMPI_MCA_smsc=^cma"]);
    // Before 5.0 the component has another name, and there is no smsc.
    let older = library("Open MPI v4.1.4", "", &[("btl_vader_eager_limit", "4096", &[])]);
    assert_eq!(labels(&older, &message("16KiB"), 1), ["OMPI_MCA_btl_vader_eager_limit=32768"]);
    // What is set by itself is no choice: 128 KiB is 131072.
    let mut usual = open_mpi();
    usual.variables[2].value = "131072".to_owned();
    assert_eq!(labels(&usual, &message("1MiB"), 1), ["OMPI_MCA_smsc=^cma"]);
    // Neither xpmem nor ch3 here; 69632 is no power of two, so 32768 differs.
    let cells = [
        "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE=32768",
        "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS=256",
    ];
    assert_eq!(labels(&mpich(), &message("16KiB"), 1), cells);
    let xpmem = MpiControls { has_xpmem: true, ..mpich() };
    assert!(
        labels(&xpmem, &message("16KiB"), 1)
            .contains(&"MPIR_CVAR_CH4_IPC_XPMEM_P2P_THRESHOLD=32768".to_owned())
    );
    let ch3 = MpiControls { device: Some("ch3:nemesis".to_owned()), ..mpich() };
    assert_eq!(labels(&ch3, &message("16KiB"), 1), ["MPIR_CVAR_NEMESIS_SHM_EAGER_MAX_SZ=32768"]);
}

#[test]
fn what_the_library_lacks_is_named() {
    let ignored = |library: &MpiControls, case: &str| -> Vec<String> {
        settings(library, case, 1).into_iter().filter_map(|setting| setting.ignored).collect()
    };
    let lacks = ignored(&open_mpi(), &message("16KiB"));
    assert_eq!(lacks, ["Open MPI v5.0.11 lists no OMPI_MCA_pml_ucx_devices"]);
    let lacks = ignored(&mpich(), &message("1MiB"));
    assert_eq!(lacks, ["MPICH 4.0.2 lists no MPIR_CVAR_CH4_CMA_ENABLE"; 2]);
    let cray = library("CRAY MPICH version 8.1.25.17", "ch4:ofi", &[]);
    let device = "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w64] x 64KiB";
    // By name: what MPI_T lists of them is not known.
    assert_eq!(ignored(&cray, device), [""; 0]);
}

#[test]
fn each_algorithm_that_is_listed_is_offered() {
    let rules = "OMPI_MCA_coll_tuned_use_dynamic_rules=1";
    let of = |name: &str| format!("OMPI_MCA_coll_tuned_allreduce_algorithm={name} {rules}");
    let four = labels(&open_mpi(), &sum(4, "16KiB"), 1);
    assert_eq!(four, ["basic_linear", "recursive_doubling", "ring"].map(of));
    // One of them is for two processes.
    assert_eq!(labels(&open_mpi(), &sum(2, "16KiB"), 1).len(), 4);
    let mpich = labels(&mpich(), &sum(4, "16KiB"), 1);
    let names = [
        "MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM=release_gather",
        "MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM=mpir",
        "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=smp",
        "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=recursive_doubling",
    ];
    assert_eq!(mpich, names);
}

#[test]
fn names_of_cray_are_offered_to_cray_alone() {
    let device = "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w64] x 64KiB";
    let cray = library("CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)", "ch4:ofi", &[]);
    let found = labels(&cray, device, 1);
    // 65537 rounds up to 2^17.
    assert!(found.contains(&"MPICH_GPU_IPC_THRESHOLD=131072".to_owned()), "{found:?}");
    assert!(!found.iter().any(|label| label.contains("NIC_POLICY")), "one node: {found:?}");
    assert!(labels(&cray, device, 2).contains(&"MPICH_OFI_NIC_POLICY=GPU".to_owned()));
    assert_eq!(labels(&mpich(), device, 1), [""; 0]);
    // Staged by pathline, it is a message of host memory.
    let staged = device.replace("mpi@", "mpi-staged@");
    assert!(labels(&cray, &staged, 1).contains(&"MPICH_SMP_SINGLE_COPY_MODE=CMA".to_owned()));
}

#[test]
fn rows_name_variables_of_their_library() {
    for row in ROWS {
        for (name, _) in row.settings {
            let reads = |brand: &MpiBrand| brand.control_variable(name).is_some();
            assert!(row.brands.iter().all(reads), "{name}");
            let cray = library("CRAY MPICH version 8.1", "", &[]);
            let lacks = missing_mpi_setting(name, &cray);
            assert!(row.brands != CRAY || lacks.is_none(), "{name} is in no list of Cray's");
        }
        assert!(!row.source.is_empty());
    }
}

fn judge(
    library: &MpiControls,
    (before, after): (&str, &str),
    changed: &[(&str, &str)],
) -> Option<Result<String, String>> {
    let changed = changed.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    MpiReport::read(after).judge(&MpiReport::read(before), &changed, library)
}

#[test]
fn a_value_that_is_read_back_is_honoured() {
    let base =
        "Open MPI v5.0.11: MPI_Isend; pml ob1 over one of btl self, sm, single copies by cma";
    let limit = &[("OMPI_MCA_btl_sm_eager_limit", "32768")][..];
    let with = |read: &str| format!("{base}; MPI_T reads {read}");
    let of = |after: &str| judge(&open_mpi(), (base, after), limit);
    let read = of(&with("OMPI_MCA_btl_sm_eager_limit=32768"));
    assert_eq!(read, Some(Ok("MPI_T reads OMPI_MCA_btl_sm_eager_limit as 32768".to_owned())));
    // A launcher that does not pass it on, and a library that has another value.
    let lost = of(base).unwrap().unwrap_err();
    assert!(lost.contains("the ranks do not have OMPI_MCA_btl_sm_eager_limit"), "{lost}");
    let other = of(&with("OMPI_MCA_btl_sm_eager_limit=4096")).unwrap().unwrap_err();
    assert!(other.contains("as 4096, not 32768"), "{other}");
    // Messages by UCX use no btl.
    let ucx = "Open MPI v5.0.11: MPI_Isend; pml ucx; MPI_T reads OMPI_MCA_btl_sm_eager_limit=32768";
    let unused = of(ucx).unwrap().unwrap_err();
    assert!(unused.contains("pml ucx, which uses no btl"), "{unused}");
    let copies =
        judge(&open_mpi(), (base, &with("OMPI_MCA_smsc=^cma")), &[("OMPI_MCA_smsc", "^cma")]);
    assert!(copies.unwrap().unwrap_err().contains("as without it"));
    let none = "x; pml ob1 over one of btl self, sm; MPI_T reads OMPI_MCA_smsc=^cma";
    let copies = judge(&open_mpi(), (base, none), &[("OMPI_MCA_smsc", "^cma")]);
    assert_eq!(copies, Some(Ok("MPI_T reads OMPI_MCA_smsc as ^cma".to_owned())));
    // A component that ran before changes nothing; another one does.
    let pml = |before: &str| {
        let before = format!("Open MPI v5.0.11: MPI_Isend; pml {before}");
        judge(&open_mpi(), (&before, &with("OMPI_MCA_pml=ob1")), &[("OMPI_MCA_pml", "ob1")])
    };
    let why = pml("ob1 over one of btl self").unwrap().unwrap_err();
    assert_eq!(why, "messages go by pml ob1 with and without it");
    assert_eq!(pml("ucx"), Some(Ok("MPI_T reads OMPI_MCA_pml as ob1".to_owned())));
}

#[test]
fn a_name_is_honoured_by_its_number() {
    let set = &[("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "smp")];
    let of = |read: &str| {
        let after =
            format!("MPICH 4.0.2: MPI_Allreduce; device ch4:ucx; MPI_T reads {}={read}", set[0].0);
        judge(&mpich(), ("MPICH 4.0.2: MPI_Allreduce; device ch4:ucx", &after), set).unwrap()
    };
    // MPICH gives no numbers for names: another one than by itself is the name's.
    assert!(of("2").is_ok() && of("0").is_err());
    let open = &[
        ("OMPI_MCA_coll_tuned_allreduce_algorithm", "ring"),
        ("OMPI_MCA_coll_tuned_use_dynamic_rules", "1"),
    ];
    let of = |coll: &str| {
        let read = "MPI_T reads OMPI_MCA_coll_tuned_allreduce_algorithm=3 OMPI_MCA_coll_tuned_use_dynamic_rules=1";
        let after = format!("Open MPI v5.0.11: MPI_Allreduce; pml ob1 over x; coll {coll}; {read}");
        judge(&open_mpi(), ("Open MPI v5.0.11: MPI_Allreduce; pml ob1 over x", &after), open)
            .unwrap()
    };
    let ok = of("tuned (30), basic (10)").unwrap();
    assert!(ok.contains("coll_tuned_allreduce_algorithm as 3 (ring)"), "{ok}");
    let why = of("han (35), tuned (30)").unwrap_err();
    assert_eq!(why, "collectives run by han, not by tuned");
    // Cray's names are in no list: nothing shows whether they act.
    let cray = library("CRAY MPICH version 8.1", "ch4:ofi", &[]);
    assert_eq!(judge(&cray, ("", ""), &[("MPICH_GPU_IPC_THRESHOLD", "1")]), None);
}

#[test]
fn ranks_with_an_mpi_are_asked_about_messages_and_sums() {
    let member = |rank: u32| RankMember {
        rank: Rank(rank),
        numa: rank,
        ways: [(Transport::Mpi, "MPICH".to_owned())].into(),
        ..Default::default()
    };
    let all = [member(0), member(1), member(2)];
    let cases: Vec<String> = usual_mpi_messages(&all).iter().map(Case::to_string).collect();
    assert_eq!(
        cases,
        [
            "r0.numa0.paged > r1.numa1.paged by mpi@numa0[send-w64] x 16KiB",
            "r0.numa0.paged > r1.numa1.paged by mpi@numa0[send-w64] x 1MiB",
            "r0.numa0.paged > r2.numa2.paged by mpi@numa0[all_reduce] x 16KiB",
            "r0.numa0.paged > r2.numa2.paged by mpi@numa0[all_reduce] x 1MiB",
        ]
    );
    let gpu = |rank: u32| RankMember { gpus: vec![rank], ..member(rank) };
    let of_device = |ranks: &[RankMember]| -> Vec<String> {
        let all = usual_mpi_messages(ranks).into_iter().map(|case| case.to_string());
        all.filter(|case| case.contains("vram")).collect()
    };
    let device = "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w64]";
    assert_eq!(
        of_device(&[gpu(0), gpu(1)]),
        [format!("{device} x 16KiB"), format!("{device} x 1MiB")]
    );
    let host_only = [(Transport::Mpi, "tried".to_owned())].into();
    assert_eq!(of_device(&[gpu(0), RankMember { host_only, ..gpu(1) }]), [""; 0]);
    let without = RankMember { ways: BTreeMap::new(), ..member(1) };
    assert_eq!(usual_mpi_messages(&[member(0), without]).len(), 0);
    assert_eq!(usual_mpi_messages(&[member(0)]).len(), 0);
}

/// Messages that may be sent at once, from 2 to 256 KiB, have a threshold above them: 2^18 rounds up to 2^19 with its
/// header. From 32 KiB on the way of the copy counts. Adapters are chosen between nodes, by where the bytes are.
#[test]
fn settings_of_cray_follow_size_memory_and_nodes() {
    let cray = library("CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)", "ch4:ofi", &[]);
    let of = |case: &str, nodes: u32| -> Vec<String> {
        let of = |label: String| label.trim_start_matches("MPICH_").to_owned();
        labels(&cray, case, nodes).into_iter().map(of).collect()
    };
    let modes = ["SMP_SINGLE_COPY_MODE=CMA", "SMP_SINGLE_COPY_MODE=NONE"];
    assert_eq!(of(&message("2047B"), 1), [""; 0]);
    assert_eq!(of(&message("2KiB"), 1), ["SMP_SINGLE_COPY_SIZE=4096"]);
    assert_eq!(of(&message("32767B"), 1), ["SMP_SINGLE_COPY_SIZE=32768"]);
    assert_eq!(of(&message("32KiB"), 1), [modes[0], modes[1], "SMP_SINGLE_COPY_SIZE=65536"]);
    assert_eq!(of(&message("256KiB"), 1), [modes[0], modes[1], "SMP_SINGLE_COPY_SIZE=524288"]);
    assert_eq!(of(&message("257KiB"), 2), [modes[0], modes[1], "OFI_NIC_POLICY=NUMA"]);
    let device =
        |op: &str, size: &str| format!("r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[{op}] x {size}");
    let ipc = "GPU_IPC_THRESHOLD=1";
    let eager = [ipc, "GPU_IPC_THRESHOLD=524288", "GPU_EAGER_DEVICE_MEM=1", "GPU_NO_ASYNC_COPY=1"];
    assert_eq!(of(&device("send-w64", "256KiB"), 1), eager);
    assert_eq!(of(&device("send-w64", "257KiB"), 2), [ipc, "OFI_NIC_POLICY=GPU"]);
    let kernel = ["GPU_ALLREDUCE_USE_KERNEL=1", "ALLREDUCE_NO_SMP=1"];
    assert_eq!(of(&device("all_reduce", "1MiB"), 1), kernel);
    assert_eq!(of(&sum(4, "1MiB"), 1), ["ALLREDUCE_NO_SMP=1", "SHARED_MEM_COLL_OPT=0"]);
    let broadcast = sum(4, "1MiB").replace("all_reduce", "broadcast");
    assert_eq!(of(&broadcast, 2), ["OFI_NIC_POLICY=NUMA", "SHARED_MEM_COLL_OPT=0"]);
}
