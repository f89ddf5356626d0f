//! Job scripts judged without a trial: planted mistakes, each found and named, and sound scripts without a verdict
//! against them.

use pathline_advise::{Advice, JobScript, script_findings, stated_settings};
use pathline_flow::MachineDesc;
use pathline_schema::Topology;

const SRUN: &str =
    "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\n";
const CRAY_AMD: &str =
    "module load PrgEnv-gnu cray-mpich/8.1.28 craype-accel-amd-gfx90a rocm/6.2.4\n";
const NVIDIA: &str = "module load cuda/12.4 nccl\n";
const OPEN: &str = "module load openmpi/5.0.5 cuda/12.4\n";

/// A line with a mistake in a script with these modules; what is judged, the verdict, and words of the reason.
const PLANTS: [(&str, &str, &str, &str, &str); 50] = [
    // Misspelt names.
    (
        NVIDIA,
        "export NCCL_MIN_NCHANELS=16",
        "NCCL_MIN_NCHANELS=16",
        "DROP",
        "did you mean NCCL_MIN_NCHANNELS",
    ),
    (
        NVIDIA,
        "export NCCL_ASYNC_ERROR_HADNLING=1",
        "NCCL_ASYNC_ERROR_HADNLING=1",
        "DROP",
        "NCCL_ASYNC_ERROR_HANDLING",
    ),
    (
        NVIDIA,
        "export NCCL_IB_QPS_PER_CONECTION=4",
        "NCCL_IB_QPS_PER_CONECTION=4",
        "DROP",
        "NCCL_IB_QPS_PER_CONNECTION",
    ),
    (
        NVIDIA,
        "export NCCL_SOCKET_IFNMAE=hsn",
        "NCCL_SOCKET_IFNMAE=hsn",
        "DROP",
        "NCCL_SOCKET_IFNAME",
    ),
    (
        NVIDIA,
        "export CUDA_DEVICE_MAX_CONECTIONS=1",
        "CUDA_DEVICE_MAX_CONECTIONS=1",
        "DROP",
        "CUDA_DEVICE_MAX_CONNECTIONS",
    ),
    (
        CRAY_AMD,
        "export MPICH_GPU_SUPPORT_ENABLE=1",
        "MPICH_GPU_SUPPORT_ENABLE=1",
        "DROP",
        "MPICH_GPU_SUPPORT_ENABLED",
    ),
    (
        CRAY_AMD,
        "export MPICH_OFI_NIC_POLCY=GPU",
        "MPICH_OFI_NIC_POLCY=GPU",
        "DROP",
        "MPICH_OFI_NIC_POLICY",
    ),
    (CRAY_AMD, "export HSA_ENALBE_SDMA=0", "HSA_ENALBE_SDMA=0", "DROP", "HSA_ENABLE_SDMA"),
    (
        CRAY_AMD,
        "export FI_CXI_RX_MACTH_MODE=hybrid",
        "FI_CXI_RX_MACTH_MODE=hybrid",
        "DROP",
        "FI_CXI_RX_MATCH_MODE",
    ),
    (
        CRAY_AMD,
        "export FI_MR_CACHE_MONITR=userfaultfd",
        "FI_MR_CACHE_MONITR=userfaultfd",
        "DROP",
        "FI_MR_CACHE_MONITOR",
    ),
    (OPEN, "mpirun -x UCX_RNDV_TRESH=8192 ./a", "UCX_RNDV_TRESH=8192", "DROP", "UCX_RNDV_THRESH"),
    (OPEN, "mpirun -x UCX_TSL=rc,cuda ./a", "UCX_TSL=rc,cuda", "DROP", "UCX_TLS"),
    (
        OPEN,
        "mpirun --mca btl_tcp_if_inlcude eth0 ./a",
        "OMPI_MCA_btl_tcp_if_inlcude=eth0",
        "DROP",
        "OMPI_MCA_btl_tcp_if_include",
    ),
    (
        CRAY_AMD,
        "export FI_CXI_OVFLOW_BUF_SIZE=8388608",
        "FI_CXI_OVFLOW_BUF_SIZE=8388608",
        "DROP",
        "FI_CXI_OFLOW_BUF_SIZE",
    ),
    // Values that no library knows.
    (
        CRAY_AMD,
        "export FI_CXI_REQ_BUF_SIZE=16MB",
        "FI_CXI_REQ_BUF_SIZE=16MB",
        "DROP",
        "whole number",
    ),
    (NVIDIA, "export NCCL_DEBUG=WARNING", "NCCL_DEBUG=WARNING", "DROP", "VERSION, WARN, INFO"),
    (NVIDIA, "export NCCL_NET_GDR_LEVEL=PBH", "NCCL_NET_GDR_LEVEL=PBH", "DROP", "PHB"),
    (NVIDIA, "export NCCL_P2P_LEVEL=nvl", "NCCL_P2P_LEVEL=nvl", "DROP", "NVL"),
    (NVIDIA, "export NCCL_ALGO=Rign", "NCCL_ALGO=Rign", "DROP", "Ring"),
    (NVIDIA, "export NCCL_PROTO=Simple,LL182", "NCCL_PROTO=Simple,LL182", "DROP", "LL128"),
    (NVIDIA, "export NCCL_BUFFSIZE=8M", "NCCL_BUFFSIZE=8M", "DROP", "whole number"),
    (NVIDIA, "export NCCL_IB_RETRY_CNT=10", "NCCL_IB_RETRY_CNT=10", "DROP", "0 to 7"),
    (NVIDIA, "export NCCL_DMABUF_ENABLE=true", "NCCL_DMABUF_ENABLE=true", "DROP", "whole number"),
    (NVIDIA, "export NCCL_NTHREADS=1024", "NCCL_NTHREADS=1024", "DROP", "64, 128, 256, 512"),
    (NVIDIA, "export CUDA_MODULE_LOADING=LAZZY", "CUDA_MODULE_LOADING=LAZZY", "DROP", "LAZY"),
    (
        NVIDIA,
        "export CUDA_DEVICE_MAX_CONNECTIONS=64",
        "CUDA_DEVICE_MAX_CONNECTIONS=64",
        "DROP",
        "1 to 32",
    ),
    (
        CRAY_AMD,
        "export FI_CXI_RX_MATCH_MODE=soft",
        "FI_CXI_RX_MATCH_MODE=soft",
        "DROP",
        "hardware, software, hybrid",
    ),
    (
        CRAY_AMD,
        "export MPICH_OFI_NIC_POLICY=NEAREST",
        "MPICH_OFI_NIC_POLICY=NEAREST",
        "DROP",
        "ROUND-ROBIN",
    ),
    (
        CRAY_AMD,
        "export MPICH_SMP_SINGLE_COPY_MODE=XPEMEM",
        "MPICH_SMP_SINGLE_COPY_MODE=XPEMEM",
        "DROP",
        "XPMEM",
    ),
    (CRAY_AMD, "export HSA_XNACK=on", "HSA_XNACK=on", "DROP", "0, 1"),
    (
        OPEN,
        "mpirun -x UCX_RNDV_SCHEME=get_zcpy ./a",
        "UCX_RNDV_SCHEME=get_zcpy",
        "DROP",
        "get_zcopy",
    ),
    (
        OPEN,
        "mpirun -x UCX_TLS=rc,cuda_cpy,cuda_ipc ./a",
        "UCX_TLS=rc,cuda_cpy,cuda_ipc",
        "DROP",
        "cuda_copy",
    ),
    // Defaults spelt out.
    (NVIDIA, "export NCCL_P2P_DISABLE=0", "NCCL_P2P_DISABLE=0", "DROP", "is the default"),
    (NVIDIA, "export NCCL_IB_DISABLE=0", "NCCL_IB_DISABLE=0", "DROP", "is the default"),
    (NVIDIA, "export NCCL_CROSS_NIC=2", "NCCL_CROSS_NIC=2", "DROP", "is the default"),
    (NVIDIA, "export CUDA_LAUNCH_BLOCKING=0", "CUDA_LAUNCH_BLOCKING=0", "DROP", "is the default"),
    (CRAY_AMD, "export GPU_MAX_HW_QUEUES=4", "GPU_MAX_HW_QUEUES=4", "DROP", "is the default"),
    // Another MPI or vendor.
    (CRAY_AMD, "export OMPI_MCA_pml=ucx", "OMPI_MCA_pml=ucx", "DROP", "Open MPI"),
    (OPEN, "export MPICH_GPU_SUPPORT_ENABLED=1", "MPICH_GPU_SUPPORT_ENABLED=1", "DROP", "MPICH"),
    (CRAY_AMD, "export I_MPI_FABRICS=shm:ofi", "I_MPI_FABRICS=shm:ofi", "DROP", "Intel MPI"),
    (NVIDIA, "export RCCL_MSCCL_ENABLE=1", "RCCL_MSCCL_ENABLE=1", "DROP", "NVIDIA"),
    (NVIDIA, "export HSA_ENABLE_SDMA=0", "HSA_ENABLE_SDMA=0", "DROP", "NVIDIA"),
    // What slows, whatever else is set.
    (NVIDIA, "export NCCL_SHM_DISABLE=1", "NCCL_SHM_DISABLE=1", "SUSPECT", "over the network"),
    (NVIDIA, "export NCCL_NET_GDR_LEVEL=LOC", "NCCL_NET_GDR_LEVEL=LOC", "SUSPECT", "host memory"),
    (
        CRAY_AMD,
        "export MPICH_SMP_SINGLE_COPY_MODE=NONE",
        "MPICH_SMP_SINGLE_COPY_MODE=NONE",
        "SUSPECT",
        "IPC",
    ),
    (OPEN, "mpirun -x UCX_TLS=rc,sm ./a", "UCX_TLS=rc,sm", "SUSPECT", "GPU memory"),
    // Bindings.
    (
        CRAY_AMD,
        "srun --gpus-per-task=1 --gpu-bind=closest ./a",
        "--gpu-bind=closest",
        "SUSPECT",
        "each other's",
    ),
    (CRAY_AMD, "srun --gpus-per-task=1 ./a", "--gpus-per-task=1", "SUSPECT", "each other's"),
    (CRAY_AMD, "srun --gpu-bind=single:1 ./a", "--gpu-bind=single:1", "SUSPECT", "each other's"),
    (
        CRAY_AMD,
        "srun --cpu-bind=map_cpu:1,9,17,25,33,41,49,57 bash -c 'ROCR_VISIBLE_DEVICES=$SLURM_LOCALID ./a'",
        "--cpu-bind=map_cpu:1,9,17,25,33,41,49,57",
        "SUSPECT",
        "49,57,17,25,1,9,33,41",
    ),
];

/// Scripts as centres and clouds document them, with nothing wrong that a document states.
const SOUND: [(&str, &str); 12] = [
    (
        "LUMI, a wrapper picks the GPU",
        concat!(
            "#!/bin/bash -l\n#SBATCH --partition=standard-g\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n",
            "#SBATCH --gpus-per-node=8\ncat << EOF > select_gpu\n#!/bin/bash\n",
            "export ROCR_VISIBLE_DEVICES=\\$SLURM_LOCALID\nexec \\$*\nEOF\nchmod +x ./select_gpu\n",
            "CPU_BIND=\"map_cpu:49,57,17,25,1,9,33,41\"\nexport MPICH_GPU_SUPPORT_ENABLED=1\n",
            "srun --cpu-bind=${CPU_BIND} ./select_gpu ./app\n"
        ),
    ),
    (
        "LUMI, masks",
        concat!(
            "#SBATCH --nodes=2 --ntasks-per-node=8 --gpus-per-node=8\nmodule load LUMI/24.03 partition/G rocm/6.0.3\n",
            "export ROCR_VISIBLE_DEVICES=$SLURM_LOCALID\nexport OMP_NUM_THREADS=6 MPICH_GPU_SUPPORT_ENABLED=1\n",
            "srun --gpu-bind=map:0,1,2,3,4,5,6,7 --gres-flags=allow-task-sharing --cpu-bind=mask_cpu:7e000000000000,7e00000000000000,7e0000,7e000000,7e,7e00,7e00000000,7e0000000000 ./a\n"
        ),
    ),
    (
        "Frontier, RCCL",
        concat!(
            "#SBATCH -N 16\nmodule load PrgEnv-gnu/8.6.0 rocm/6.4.1 craype-accel-amd-gfx90a\n",
            "export FI_MR_CACHE_MONITOR=kdreg2 FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_DEFAULT_TX_SIZE=2048\n",
            "export FI_CXI_RX_MATCH_MODE=hybrid FI_CXI_RDZV_PROTO=alt_read NCCL_NET_GDR_LEVEL=3 NCCL_CROSS_NIC=1\n",
            "export NCCL_SOCKET_IFNAME=hsn0 TORCH_NCCL_HIGH_PRIORITY=1 HSA_FORCE_FINE_GRAIN_PCIE=1\n",
            "srun -N16 -n128 --ntasks-per-node=8 -c7 --gpus-per-node=8 python -u train.py -n 8\n"
        ),
    ),
    (
        "Perlmutter",
        concat!(
            "#SBATCH -C gpu -N 2 -n 8 -c 32 --gpus-per-task=1 --gpu-bind=none\n",
            "module load cudatoolkit cray-mpich/8.1.28 craype-accel-nvidia80\nexport MPICH_OFI_NIC_POLICY=GPU\n",
            "export MPICH_GPU_SUPPORT_ENABLED=1 SLURM_CPU_BIND=cores\n",
            "GPU_AWARE_MPI=\"amrex.use_gpu_aware_mpi=1\"\nsrun --cpu-bind=cores ./warpx inputs ${GPU_AWARE_MPI}\n"
        ),
    ),
    (
        "Alps, NCCL",
        concat!(
            "#SBATCH --nodes=16 --ntasks-per-node=4\nexport MPICH_GPU_SUPPORT_ENABLED=0 CUDA_CACHE_DISABLE=1\n",
            "export NCCL_NET=\"AWS Libfabric\" NCCL_NET_GDR_LEVEL=PHB NCCL_CROSS_NIC=1 NCCL_PROTO=^LL128\n",
            "export FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_DEFAULT_TX_SIZE=16384 FI_CXI_DISABLE_HOST_REGISTER=1\n",
            "export FI_CXI_RX_MATCH_MODE=software FI_MR_CACHE_MONITOR=userfaultfd TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n",
            "export FI_CXI_RDZV_GET_MIN=0 FI_CXI_RDZV_THRESHOLD=0 FI_CXI_RDZV_EAGER_SIZE=0\n",
            "export NCCL_NCHANNELS_PER_NET_PEER=4 NCCL_DEBUG=warn\nsrun -ul bash -c \"python train.py\"\n"
        ),
    ),
    (
        "Polaris",
        concat!(
            "#PBS -l select=4:system=polaris\n#PBS -l walltime=0:30:00\nmodule load cudatoolkit-standalone/12.4\n",
            "export MPICH_GPU_SUPPORT_ENABLED=1 FI_CXI_DISABLE_HOST_REGISTER=1 NCCL_COLLNET_ENABLE=1\n",
            "export NCCL_SOCKET_IFNAME=hsn0,hsn1 FI_CXI_REQ_BUF_SIZE=25165824\nNNODES=`wc -l < $PBS_NODEFILE`\n",
            "mpiexec -n 16 --ppn 4 --depth=8 --cpu-bind depth --env OMP_NUM_THREADS=1 ./a\n"
        ),
    ),
    (
        "AWS",
        concat!(
            "#SBATCH --nodes=8 --exclusive\nexport FI_PROVIDER=efa FI_EFA_USE_DEVICE_RDMA=1 FI_EFA_FORK_SAFE=1\n",
            "export NCCL_PROTO=simple NCCL_BUFFSIZE=8388608 NCCL_P2P_NET_CHUNKSIZE=524288 FI_LOG_LEVEL=warn\n",
            "export NCCL_TUNER_PLUGIN=/opt/amazon/ofi-nccl/lib/libnccl-ofi-tuner.so OFI_NCCL_PROTOCOL=RDMA\n",
            "export NCCL_SOCKET_IFNAME=^docker,lo,veth FI_EFA_SET_CUDA_SYNC_MEMOPS=0\nsrun ./all_reduce_perf\n"
        ),
    ),
    (
        "Azure",
        concat!(
            "mpirun -np 16 --map-by ppr:8:node -x NCCL_IB_PCI_RELAXED_ORDERING=1 -x CUDA_DEVICE_ORDER=PCI_BUS_ID \\\n",
            "  -x NCCL_SOCKET_IFNAME=eth0 -x NCCL_TOPO_FILE=/opt/microsoft/ndv5-topo.xml -x UCX_TLS=rc \\\n",
            "  -x UCX_NET_DEVICES=mlx5_ib0:1 -x LD_LIBRARY_PATH -x NCCL_DEBUG=info --mca coll_hcoll_enable 0 ./a\n"
        ),
    ),
    (
        "Megatron-LM",
        concat!(
            "export CUDA_DEVICE_MAX_CONNECTIONS=1 NVTE_FWD_LAYERNORM_SM_MARGIN=16 NCCL_NVLS_ENABLE=0\n",
            "export TORCH_NCCL_AVOID_RECORD_STREAMS=1 NCCL_IB_SL=1 NCCL_IB_TIMEOUT=19 NCCL_IB_QPS_PER_CONNECTION=4\n",
            "export NCCL_CUMEM_ENABLE=0 NCCL_MIN_CTAS=16 NCCL_ALGO=\"ring;allreduce:tree,nvls\" NCCL_IBEXT_DISABLE=1\n",
            "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py\n"
        ),
    ),
    (
        "Summit",
        concat!(
            "#BSUB -nnodes 2\n#BSUB -alloc_flags \"gpumps\"\nmodule load gcc cuda/11.4 spectrum-mpi\n",
            "export OMPI_MCA_io=romio321 PAMI_IBV_ADAPTER_AFFINITY=0 OMPI_LD_PRELOAD_POSTPEND=x\n",
            "jsrun --smpiargs=\"-gpu\" -n 12 -a 1 -g 1 -c 7 ./app\n"
        ),
    ),
    (
        "Tuolumne, flux",
        concat!(
            "#flux: -N4\n#flux: -q pbatch\nmodule load rocm/6.3.1 cray-mpich/8.1.31 craype-accel-amd-gfx942\n",
            "export MPICH_GPU_SUPPORT_ENABLED=1 HSA_XNACK=1 NCCL_MIN_NCHANNELS=24 GPU_MAX_HW_QUEUES=2\n",
            "export HIP_VISIBLE_DEVICES=0,1,2,3 NCCL_NET_PLUGIN=librccl-net.so\nflux run -N4 -n16 -g1 -x ./app\n"
        ),
    ),
    (
        "Open MPI with UCX",
        concat!(
            "#SBATCH -N2 --ntasks-per-node=4 --gres=gpu:4\nmodule load openmpi/5.0.5 ucx/1.17 cuda/12.4\n",
            "export UCX_TLS=rc,sm,cuda_copy,cuda_ipc,gdr_copy UCX_MEMTYPE_CACHE=n UCX_RNDV_SCHEME=put_zcopy\n",
            "export OMPI_MCA_pml=ucx OMPI_MCA_coll_ucc_enable=1 OMPI_MCA_btl_tcp_links=2 UCX_IB_GID_INDEX=3\n",
            "export UCX_RC_MLX5_TM_ENABLE=y UCX_MAX_RNDV_RAILS=1\nsrun --mpi=pmix -n 1 --gpus-per-task=1 hostname\n",
            "srun --mpi=pmix -N2 -n8 ./a\n"
        ),
    ),
];

/// Subject, verdict and reason of each answer.
fn answers(text: &str, node: Option<&Topology>) -> Vec<(String, &'static str, String)> {
    let script = JobScript::read(text);
    let all = stated_settings(&script).into_iter().chain(script_findings(&script, node));
    all.map(|Advice { subject, verdict, reason, .. }| (subject, verdict.word(), reason)).collect()
}

fn mi250x() -> Topology {
    MachineDesc::preset("mi250x").expect("a preset").topology()
}

#[test]
fn each_planted_mistake_is_found_and_nothing_else() {
    let node = mi250x();
    let mut missed = Vec::new();
    for (modules, line, subject, word, needle) in PLANTS {
        let text = format!("{SRUN}{modules}{line}\n");
        let found = answers(&text, line.contains("map_cpu").then_some(&node));
        let is_it = |(what, verdict, why): &(String, &str, String)| {
            what == subject && *verdict == word && why.contains(needle)
        };
        if found.len() != 1 || !is_it(&found[0]) {
            missed.push(format!("{line}: {found:?}"));
        }
    }
    assert!(missed.is_empty(), "{} of {}:\n{}", missed.len(), PLANTS.len(), missed.join("\n"));
}

#[test]
fn sound_scripts_have_no_verdict_against_them() {
    let node = mi250x();
    for (name, text) in SOUND {
        for node in [None, Some(&node)] {
            let found = answers(text, node);
            assert!(found.is_empty(), "{name}: {found:?}");
        }
    }
}

#[test]
fn a_setting_that_a_version_needs_is_missed() {
    let node = mi250x();
    let of = |lines: &str| answers(lines, Some(&node));
    let found = of("module load rocm/7.13.0\nexport NCCL_ALGO=Ring\n");
    assert!(found.len() == 1 && found[0].2.contains("5 to 10 times"), "{found:?}");
    assert!(of("module load rocm/7.2.0\nexport NCCL_ALGO=Ring\n").is_empty());
    assert!(of("module load rocm/7.13.0\nexport HSA_NO_SCRATCH_RECLAIM=1\n").is_empty());
}

/// Eight GPUs a node: 4 tasks with one each use 4, two steps of 4 use 8, 4 with two each use 8; tasks without a GPU of
/// their own may use all. Eight tasks that see GPU 0 share it; 14 threads share 7 CPUs.
#[test]
fn idle_gpus_and_threads_beyond_the_cpus_are_named() {
    let of = |step: &str| {
        let text = format!("#SBATCH -N2 --gpus-per-node=8 --cpus-per-task=7\n{step}\n");
        let found = answers(&text, None).into_iter();
        let of_counts = found.filter(|(subject, _, _)| !subject.starts_with("--gpu"));
        of_counts.map(|(subject, word, why)| format!("{word} {subject}: {why}")).collect::<Vec<_>>()
    };
    let four = of("srun --ntasks-per-node=4 --gpus-per-task=1 ./a");
    assert_eq!(four.len(), 1, "{four:?}");
    assert!(
        four[0].starts_with("SUSPECT --ntasks-per-node=4: tasks take 4 of the 8 GPUs"),
        "{four:?}"
    );
    assert!(four[0].contains("Use --ntasks-per-node=8"), "{four:?}");
    let local = "srun --ntasks-per-node=4 sh -c 'ROCR_VISIBLE_DEVICES=$SLURM_LOCALID ./a'";
    assert_eq!(of(local).len(), 1);
    for sound in [
        "srun --ntasks-per-node=4 --gpus-per-task=2 ./a",
        "srun --ntasks-per-node=4 ./a",
        "srun -N2 -n8 --gpus-per-task=1 ./a &\nsrun -N2 -n8 --gpus-per-task=1 ./b",
        "srun -N2 -n1 hostname\nsrun --ntasks-per-node=4 --gpus-per-task=1 ./a",
        "export OMP_NUM_THREADS=7\nsrun --ntasks-per-node=8 --gpus-per-task=1 ./a",
    ] {
        assert_eq!(of(sound), Vec::<String>::new(), "{sound}");
    }
    let one = of("export ROCR_VISIBLE_DEVICES=0\nsrun --ntasks-per-node=8 ./a");
    assert!(one.len() == 1 && one[0].contains("all 8 tasks of a node see the same 1"), "{one:?}");
    let bound = "export CUDA_VISIBLE_DEVICES=0\nsrun --ntasks-per-node=8 --gpus-per-task=1 ./a";
    assert_eq!(of(bound), Vec::<String>::new());
    assert!(of("export ROCR_VISIBLE_DEVICES=0,1,2\nsrun --ntasks-per-node=3 ./a").is_empty());
    let threads = of("export OMP_NUM_THREADS=14\nsrun --ntasks-per-node=8 --gpus-per-task=1 ./a");
    assert!(threads.len() == 1 && threads[0].starts_with("SUSPECT OMP_NUM_THREADS=14: 14"));
}

/// A binding matters from two tasks of a node on: 2 / 1 and 4 / 2 tasks are two, 2 / 2 and 3 / 2 one; of 8 that a node
/// may have, one that is started is one.
#[test]
fn tasks_of_a_node_with_gpus_each_cannot_share_memory() {
    let each = "--gpus-per-task=1";
    for (options, subject) in [
        ("-N1 -n2 --gpus-per-task=1", Some(each)),
        ("-N2 -n4 --gpus-per-task=1", Some(each)),
        ("-N2 -n2 --gpus-per-task=1", None),
        ("-N2 -n3 --gpus-per-task=1", None),
        ("-n1 --ntasks-per-node=8 --gpus-per-task=1", None),
        ("-n8 --ntasks-per-node=1 --gpus-per-task=1", None),
        ("-n2 --ntasks-per-node=2 --gpus-per-task=1", Some(each)),
        ("-N4 --ntasks-per-node=2 --gpus-per-task=1", Some(each)),
        ("-n2 --gpus-per-task=1", None),
        ("--ntasks-per-node=2", None),
        ("--ntasks-per-node=2 --gpus-per-task=1 --gres-flags=allow-task-sharing", None),
        ("--ntasks-per-node=2 --gpus-per-task=1 --gpu-bind=none", None),
        ("--ntasks-per-node=2 --gpu-bind=verbose,none", None),
        ("--ntasks-per-node=2 --gpu-bind=verbose,closest", Some("--gpu-bind=closest")),
    ] {
        let found = answers(&format!("srun {options} ./a\n"), None);
        let subjects: Vec<&str> = found.iter().map(|(what, ..)| what.as_str()).collect();
        assert_eq!(subjects, subject.into_iter().collect::<Vec<_>>(), "{options}");
    }
}
