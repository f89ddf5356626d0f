//! Planted settings of GPUs, memory and processes, one at a time, on the sound node of
//! [`crate::settings::tests`]; and other sound nodes.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its own input has failed")]

use pathline_topo::HostSnapshot;

use self::amd::amd;
use crate::settings::tests::{GPUS, found, sound, wrong};

mod amd;

const FACTS: &str = "ecc=1\necc_pending=1\necc_corrected=12\necc_uncorrected=0\nremapped_corrected=0\n\
    remapped_uncorrected=1\nremap_pending=0\nremap_failed=0\nretired_pending=0\nlink_errors=0\n\
    power_limit_w=700\npower_default_w=700\nthrottle=power cap\npersistence=1\ncompute_mode=default\n\
    mig=0\nfabric=completed\nmemory_bytes=150754820096\nbar1_bytes=274877906944\nconfidential=0\n";
const LINKS: u32 = 18;
const KERNEL_LOG: &str = "pathline/kernel-log";
const XID: &str = "NVRM: Xid (PCI:0000:44:00): 31, pid=7, name=python, Ch 00000008";

fn facts_of(nth: usize) -> String {
    format!("nvml/{}/facts", GPUS[nth])
}

fn links(active: u32) -> String {
    let line = |link| {
        format!(
            "link={link} active={} version=4 mbps=26562 remote=switch\n",
            u32::from(link < active)
        )
    };
    (0..LINKS).map(line).collect()
}

/// What the driver and the system show of the GPUs of the sound node.
pub(in crate::settings) fn add_gpus(node: &mut HostSnapshot) {
    for (nth, pci) in GPUS.into_iter().enumerate() {
        let peer = GPUS[1 - nth];
        node.insert(facts_of(nth), format!("{FACTS}peer={peer} 0 0\n"));
        node.insert(format!("nvml/{pci}/nvlink"), links(LINKS));
        node.insert(format!("proc/driver/nvidia/gpus/{pci}/information"), "Model: NVIDIA H200\n");
        node.insert(format!("dev/nvidia{nth}"), "");
        let dir = format!("sys/bus/pci/devices/{pci}");
        node.insert(format!("{dir}/driver.target"), "../../../bus/pci/drivers/nvidia\n");
        // 16 MiB, and 256 GiB.
        let resource = "0x00000000d0000000 0x00000000d0ffffff 0x0000000000040200\n\
                        0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                        0x0000104000000000 0x0000107fffffffff 0x000000000014220c\n";
        node.insert(format!("{dir}/resource"), resource);
    }
    for (path, text) in [
        (KERNEL_LOG, "from /dev/kmsg\n"),
        ("proc/modules", "nvidia_peermem\nnvidia\n"),
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\n",
        ),
        ("proc/sys/kernel/osrelease", "5.14.0-427.el9.x86_64\n"),
        ("proc/self/mounts", "tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n"),
        ("proc/self/environ", "CUDA_VISIBLE_DEVICES=0,1\n"),
        ("proc/self/cgroup", "0::/job\n"),
        ("proc/self/status", "Cpus_allowed_list:\t0-63\n"),
        ("sys/devices/system/cpu/online", "0-63\n"),
        ("sys/fs/cgroup/job/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/job/memory.max", "68719476736\n"),
        ("sys/fs/cgroup/job/memory.current", "1073741824\n"),
        ("sys/fs/cgroup/job/memory.events", "low 0\nmax 3\noom 0\noom_kill 0\n"),
        ("proc/self/ns/ipc.target", "ipc:[4026531839]\n"),
    ] {
        node.insert(path, text);
    }
}

/// Facts of a GPU with one of them changed.
fn with(key: &str, value: &str) -> String {
    let change = |line: &str| match line.split_once('=') {
        Some((known, _)) if known == key => format!("{key}={value}\n"),
        _ => format!("{line}\n"),
    };
    FACTS.lines().map(change).collect::<String>() + &format!("peer={} 0 0\n", GPUS[0])
}

/// Each text alone in its file: one row is named, which begins so.
fn name_alone(plants: Vec<(&str, String, &str)>) {
    for (path, text, named) in plants {
        let mut node = sound();
        assert!(node.insert(path, text.as_str()));
        let wrong = wrong(&node);
        assert!(wrong.len() == 1 && wrong[0].starts_with(named), "{path} = {text}: {wrong:?}");
    }
}

#[test]
fn each_planted_fault_of_a_gpu_is_named_alone() {
    let second = facts_of(1);
    let link = format!("nvml/{}/nvlink", GPUS[1]);
    let resource = format!("sys/bus/pci/devices/{}/resource", GPUS[0]);
    let plants: Vec<(&str, String, &str)> = vec![
        (
            &second,
            with("ecc_uncorrected", "2"),
            "SUSPECT memory errors of gpu1: 12 corrected, 2 not",
        ),
        (&second, with("ecc_pending", "0"), "SUSPECT ECC of gpu1: waits for a reset"),
        (&second, with("remap_pending", "1"), "SUSPECT remapped rows of gpu1: 1, and one waits"),
        (&second, with("remap_failed", "1"), "FAIL remapped rows of gpu1: 1, and one had no spare"),
        (&second, with("retired_pending", "1"), "SUSPECT retired pages of gpu1"),
        (&second, with("power_limit_w", "500"), "SUSPECT power limit of gpu1: 500 W"),
        (
            &second,
            with("throttle", "hardware slowdown"),
            "SUSPECT clocks of gpu1: hardware slowdown",
        ),
        (&second, with("persistence", "0"), "SUSPECT persistence: off for 1 of 2"),
        (&second, with("compute_mode", "prohibited"), "FAIL compute mode of gpu1"),
        (&second, with("fabric", "in progress"), "FAIL NVLink fabric: in progress for 1 of 2"),
        (&second, with("confidential", "1"), "SUSPECT confidential computing of gpu1"),
        (
            &second,
            with("mig", "0").replace(" 0 0", " 4 0"),
            "SUSPECT direct access between GPUs: 1 of 2",
        ),
        (&link, String::new(), "SUSPECT NVLinks of gpu1: none is listed"),
        (&link, links(17), "SUSPECT NVLinks of gpu1: 17 of 18 are up"),
        (
            &link,
            links(18).replacen("26562", "13281", 1),
            "SUSPECT NVLinks of gpu1: 18 of 18 are up, one at",
        ),
        (
            &resource,
            "0x0000000000000000 0x000000000fffffff 0x1\n".to_owned(),
            "SUSPECT largest BAR of gpu0: 256MiB of 140.4GiB memory",
        ),
    ];
    name_alone(plants);
    let mut node = sound();
    for nth in [0, 1] {
        node.insert(facts_of(nth), with("ecc", "0").replace("ecc_pending=1", "ecc_pending=0"));
    }
    assert_eq!(wrong(&node), Vec::<String>::new(), "ECC is off for all: a choice");
    node.insert(facts_of(0), format!("{FACTS}peer={} 0 0\n", GPUS[1]));
    assert_eq!(wrong(&node), ["SUSPECT memory errors of gpu1: ECC is off"]);
}

#[test]
fn each_planted_fault_around_gpus_is_named_alone() {
    let log = |line: &str| format!("from /dev/kmsg\n[9.1] {line}\n");
    let xid = |code: &str| log(&XID.replace("31,", &format!("{code},")));
    name_alone(vec![
        (
            KERNEL_LOG,
            xid("79"),
            "FAIL Xid 79 of gpu1 in the kernel log: once: the GPU has fallen off",
        ),
        (KERNEL_LOG, xid("48"), "SUSPECT Xid 48 of gpu1"),
        (KERNEL_LOG, xid("74"), "SUSPECT Xid 74 of gpu1"),
        (KERNEL_LOG, xid("9999"), "UNDECIDED Xid 9999 of gpu1"),
        (
            KERNEL_LOG,
            log("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034"),
            "SUSPECT SXid of 0000:05:00.0",
        ),
        (
            KERNEL_LOG,
            log("NVRM: GPU 0000:44:00.0: RmInitAdapter failed! (0x62:0x40:2393)"),
            "FAIL RmInitAdapter failed of gpu1",
        ),
        (
            KERNEL_LOG,
            log("nvme nvme0: controller is down; will reset: CSTS=0x3"),
            "SUSPECT controller is down of nvme0",
        ),
        (
            KERNEL_LOG,
            log("EDAC MC2: 1 UE memory read error on CPU_SrcID#1_Ha#0_Chan#2_DIMM#0 (slot:0)"),
            "SUSPECT UE memory of CPU_SrcID#1_Ha#0_Chan#2_DIMM#0",
        ),
        (
            KERNEL_LOG,
            log("mlx5_core 0000:50:00.0: temp_warn:196: High temperature on sensors with bit set"),
            "SUSPECT High temperature on sensors of mlx5_0",
        ),
        (
            KERNEL_LOG,
            log("CPU3: Package temperature above threshold, cpu clock throttled"),
            "SUSPECT temperature above threshold",
        ),
        (
            "proc/modules",
            "nvidia\n".to_owned(),
            "SUSPECT access to memory of GPUs: nvidia-peermem is not",
        ),
        (
            "proc/self/mounts",
            "shm /dev/shm tmpfs rw,size=65536k 0 0\n".to_owned(),
            "SUSPECT /dev/shm: 64MiB",
        ),
        (
            "proc/self/environ",
            "CUDA_VISIBLE_DEVICES=0,2\n".to_owned(),
            "SUSPECT CUDA_VISIBLE_DEVICES: 0,2",
        ),
        (
            "proc/self/environ",
            "CUDA_VISIBLE_DEVICES=\n".to_owned(),
            "SUSPECT CUDA_VISIBLE_DEVICES: ",
        ),
        (
            "proc/self/status",
            "Cpus_allowed_list:\t32-63\n".to_owned(),
            "SUSPECT CPUs of this process: 32 of 64",
        ),
        (
            "sys/fs/cgroup/job/memory.max",
            "2147483648\n".to_owned(),
            "SUSPECT limit of the cgroup: 2GiB",
        ),
        (
            "sys/fs/cgroup/job/cpu.max",
            "400000 100000\n".to_owned(),
            "SUSPECT time of CPUs: the cgroup grants 4.0 CPUs of time though 64 may be used",
        ),
        (
            "sys/fs/cgroup/job/memory.events",
            "oom_kill 3\n".to_owned(),
            "SUSPECT processes killed at the limit: 3",
        ),
        (
            "nvml/unread",
            "nvmlInit_v2 does not return (8 s)\n".to_owned(),
            "UNDECIDED management library",
        ),
    ]);
}

/// The sound node without the files that `left_out` says.
fn without(left_out: &dyn Fn(&str) -> bool) -> HostSnapshot {
    let mut node = HostSnapshot::default();
    for (path, text) in sound().iter().filter(|(path, _)| !left_out(path)) {
        node.insert(path, text);
    }
    node
}

/// The second GPU is that of another job: nothing of it is here but what the bus shows.
fn without_second(path: &str) -> bool {
    path == "dev/nvidia1"
        || path.contains(GPUS[1]) && (path.starts_with("proc") || path.starts_with("nvml"))
}

#[test]
fn a_gpu_that_its_driver_lost_and_a_log_that_cannot_be_read_are_named() {
    let lost = without(&|path| {
        path.contains(GPUS[1])
            && (path.starts_with("proc/driver") || path.ends_with("driver.target"))
    });
    assert_eq!(
        wrong(&lost),
        ["FAIL GPUs of NVIDIA: 2 on the bus, 1 of the driver, 2 device files, 2 opened"]
    );
    let secret = without(&|path| path == KERNEL_LOG);
    assert_eq!(wrong(&secret), ["UNDECIDED kernel log: not readable"]);
    // Device rules leave a rank its GPU alone, and both files.
    let mut rank = without(&|path| path.starts_with("nvml") && path.contains(GPUS[1]));
    rank.insert("proc/self/environ", "SLURM_STEP_TASKS_PER_NODE=2(x4)\n");
    assert_eq!(
        wrong(&rank),
        ["SUSPECT GPUs of other ranks: 1 of 2 are opened, 2 ranks (SLURM_STEP_TASKS_PER_NODE)"]
    );
}

/// Peers in a container, a virtual machine with what it was given, a program's own errors, an idle laptop.
#[test]
fn what_is_no_fault_of_a_gpu_is_none() {
    let with_files = |files: &[(&str, &str)]| {
        let mut node = sound();
        for (path, text) in files {
            node.insert(*path, *text);
        }
        node
    };
    let of_programs = format!("from /dev/kmsg\n{XID}\n{}\n", XID.replace("31,", "43,"));
    let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n";
    let cases = [
        with_files(&[(KERNEL_LOG, &of_programs)]),
        with_files(&[("proc/modules", "nvidia\n"), ("proc/driver/nvidia/version", open)]),
        with_files(&[(
            "proc/self/environ",
            "CUDA_VISIBLE_DEVICES=GPU-12,MIG-3\nSLURM_NTASKS_PER_NODE=2\n",
        )]),
        // A job of one GPU and the CPUs next to it: that of the other domain is not its.
        with_files(&[
            ("proc/self/status", "Cpus_allowed_list:\t0-15\n"),
            (&format!("sys/bus/pci/devices/{}/numa_node", GPUS[1]), "1\n"),
            ("proc/self/environ", "CUDA_VISIBLE_DEVICES=0\n"),
        ]),
        // A rank that is bound to its half of the node.
        with_files(&[
            ("proc/self/status", "Cpus_allowed_list:\t0-15\n"),
            ("proc/self/environ", "OMPI_COMM_WORLD_LOCAL_SIZE=4\n"),
        ]),
        with_files(&[(
            "proc/self/mounts",
            "tmpfs /dev/shm tmpfs rw,size=528482304k,inode64 0 0\n",
        )]),
        with_files(&[
            (&facts_of(0), "power_limit_w=80\npower_default_w=115\n"),
            (&facts_of(1), "\u{0}=\n=\n"),
        ]),
    ];
    for (nth, node) in cases.iter().enumerate() {
        assert_eq!(wrong(node), Vec::<String>::new(), "case {nth}");
    }
    let mut virtual_machine =
        with_files(&[("proc/cpuinfo", "processor : 0\nflags : hypervisor\n")]);
    for nth in [0, 1] {
        virtual_machine.insert(facts_of(nth), with("persistence", "0"));
        virtual_machine.insert(format!("nvml/{}/nvlink", GPUS[nth]), links(0));
    }
    assert_eq!(wrong(&virtual_machine), Vec::<String>::new());
    // GPUs that their driver has no more, and a board of which one is gone from the bus.
    let driver = format!("sys/bus/pci/devices/{}/driver.target", GPUS[1]);
    let mut fallen = without(&|path| {
        path.starts_with(&format!("proc/driver/nvidia/gpus/{}", GPUS[1]))
            || path.starts_with(&format!("nvml/{}", GPUS[1]))
    });
    for _ in 0..2 {
        let named = wrong(&fallen);
        let is_lost = |row: &String| row.starts_with("FAIL GPUs of NVIDIA: 2 on the bus");
        assert!(named.iter().any(is_lost), "{named:?}");
        fallen.insert(driver.as_str(), "../../../bus/pci/drivers/nvidia\n");
    }
    let all: Vec<String> = found(&sound()).into_iter().map(|check| check.what).collect();
    for what in [
        "GPUs of NVIDIA",
        "NVLinks of gpu0",
        "direct access between GPUs",
        "/dev/shm",
        "kernel log",
    ] {
        assert!(all.iter().any(|known| known == what), "{what} in {all:?}");
    }
}

#[test]
fn other_sound_nodes_have_nothing_wrong() {
    // A container with one GPU of the node, its CPUs and little of the rest.
    let mut container = without(&|path| without_second(path) || path == KERNEL_LOG);
    for (path, text) in [
        (".dockerenv", ""),
        ("proc/self/mounts", "shm /dev/shm tmpfs rw,size=65536k 0 0\n"),
        ("proc/self/environ", "NVIDIA_VISIBLE_DEVICES=0\n"),
        ("proc/self/status", "Cpus_allowed_list:\t0-15\n"),
        ("sys/fs/cgroup/job/memory.max", "4294967296\n"),
        ("proc/self/ns/ipc.target", "ipc:[4026532901]\n"),
    ] {
        container.insert(path, text);
    }
    assert_eq!(wrong(&container), ["UNDECIDED kernel log: not readable"]);
    // Boards without NVLink show 256 MiB of their memory; those of Grace map it over their own link.
    let (mut cards, mut grace) = (sound(), sound());
    grace.insert("proc/sys/kernel/arch", "aarch64\n");
    for (nth, pci) in GPUS.into_iter().enumerate() {
        let small = "0x0000000000000000 0x000000000fffffff 0x1\n";
        for node in [&mut cards, &mut grace] {
            node.insert(format!("sys/bus/pci/devices/{pci}/resource"), small);
        }
        cards.insert(format!("sys/bus/pci/devices/{pci}/device"), "0x1eb8\n");
        let facts = "ecc=1\necc_pending=1\npower_limit_w=70\npower_default_w=70\npersistence=1\n";
        let denied = format!("{facts}memory_bytes=15843721216\npeer={} 2 2\n", GPUS[1 - nth]);
        cards.insert(facts_of(nth), denied);
        cards.insert(format!("nvml/{pci}/nvlink"), links(0));
    }
    for node in [&cards, &grace] {
        assert_eq!(wrong(node), Vec::<String>::new());
    }
    // GCDs of MI250X are not all joined, and one of a pair has sensors.
    let table = include_str!("../../../../../machine/topo/tests/data/lumi-kfd-io_links.csv");
    let number = |field: &str| field.parse::<u32>().ok();
    let pairs: Vec<(u32, u32)> = table
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let (from, to) = (number(fields[1])?, number(fields[2])?);
            let is_direct = fields[0] == "11" && fields[3] == "15";
            (is_direct && from > 3 && to > from).then(|| (from - 4, to - 4))
        })
        .collect();
    assert!(pairs.len() >= 8, "{pairs:?}");
    let mut mi250x = amd(8, |a, b| pairs.contains(&(a, b)));
    for gpu in (1..8).step_by(2) {
        mi250x.insert(format!("sys/class/drm/card{gpu}/device/hwmon/hwmon3/power1_cap"), "0\n");
        mi250x.insert(
            format!("sys/class/drm/card{gpu}/device/hwmon/hwmon3/power1_cap_default"),
            "0\n",
        );
    }
    assert_eq!(wrong(&mi250x), Vec::<String>::new());
    let machine = include_str!("../../../../../machine/topo/tests/data/vm-1x-h200.json");
    let machine = HostSnapshot::from_text("vm", machine).unwrap();
    // It was saved before settings of GPUs were kept: that is said, and none is called sound.
    let unread =
        ["UNDECIDED settings of GPUs: none was kept", "UNDECIDED kernel log: not readable"];
    assert_eq!(wrong(&machine), unread);
}
