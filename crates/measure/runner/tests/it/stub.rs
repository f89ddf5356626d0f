//! The drivers of GPU vendors end to end, over libraries that stand in for theirs.

#![allow(clippy::unwrap_used)]

use std::os::fd::AsFd;
use std::process::{Command, Output};

use pathline_gpu::{CompileMode, LibraryRequest, runtime};
use pathline_hal::{CopyChoice, CpuAccess, KernelLaunch, Machine};
use pathline_runner::live::{LiveMachine, open};
use pathline_schema::{
    Bytes, KernelOp, KernelVariant, MemKind, Ns, Place, Severity, Topology, Unit, WorldKind,
};
use pathline_stub::{StubLibraries, VARIABLE, lay_out};

/// Set in the process that a test runs its body in.
const INSIDE: &str = "PATHLINE_TEST_INSIDE";

/// Runs the body of the test of that name in a separate process that finds those libraries: its
/// environment names them, and they keep their state for as long as it lives. With HIP
/// among them, that is the runtime that is asked for.
fn inside(test: &str, vendors: &[StubLibraries], spec: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let folder = tempfile::tempdir().unwrap();
    lay_out(folder.path(), vendors, &[]).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([&format!("stub::{test}"), "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .env(VARIABLE, spec);
    command.env("LD_LIBRARY_PATH", folder.path()).env("XDG_CACHE_HOME", folder.path());
    for name in ["HSA_XNACK", "HSA_ENABLE_SDMA", "HSA_ENABLE_PEER_SDMA", "PATHLINE_NVRTC"] {
        command.env_remove(name);
    }
    if vendors.iter().any(|vendor| {
        !matches!(vendor, StubLibraries::Cuda | StubLibraries::Verbs | StubLibraries::Nvml)
    }) {
        command.env("PATHLINE_HIP", folder.path());
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(status.success(), "{status}\n{}\n{}", text(&stdout), text(&stderr));
}

fn opened() -> LiveMachine {
    let topology = Topology::default();
    let mut asked = LibraryRequest::new(CompileMode::InProcess);
    asked.named.extend(std::env::var_os("PATHLINE_HIP").map(|path| ("hip".into(), path.into())));
    let runtime = runtime(&topology, &asked);
    open(topology, runtime)
}

fn machine() -> Machine {
    let LiveMachine { machine, without } = opened();
    assert_eq!(without, None);
    assert_eq!(machine.world, WorldKind::Simulated("stub".into()));
    machine
}

/// Three GPUs under a runtime and an architecture, with all that every machine must do.
fn conforms(runtime: &str, name: &str, arch: &str) {
    let machine = machine();
    assert_eq!(machine.driver().unwrap().name(), runtime);
    assert_eq!(machine.topology.gpus.len(), 3);
    let gpu = &machine.topology.gpus[2];
    assert!(gpu.name == name && gpu.arch.starts_with(arch), "{gpu:?}");
    let failures = pathline_hal::conformance::failures(&machine);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A test for each set of libraries.
macro_rules! conformance {
    ($($test:ident: $vendors:expr, $spec:literal => $runtime:literal, $name:literal, $arch:literal;)*) => {$(
        #[test]
        fn $test() {
            inside(stringify!($test), &$vendors, $spec, || conforms($runtime, $name, $arch));
        }
    )*};
}

conformance! {
    cuda_does_what_every_machine_must_do: [StubLibraries::Cuda], "gpus=3" =>
        "cuda", "stub NVIDIA H200", "sm_90";
    hip_5_does_what_every_machine_must_do: [StubLibraries::Hip(5)], "gpus=3" =>
        "hip", "stub AMD Instinct MI250X", "gfx90a";
    hip_6_does_what_every_machine_must_do: [StubLibraries::Hip(6)], "gpus=3" =>
        "hip", "stub AMD Instinct MI250X", "gfx90a";
    hip_7_does_what_every_machine_must_do: [StubLibraries::Hip(7)], "gpus=3" =>
        "hip", "stub AMD Instinct MI250X", "gfx90a";
    hip_that_fills_the_older_layout_does: [StubLibraries::Hip(6)], "gpus=3,layout=r0000" =>
        "hip", "stub AMD Instinct MI250X", "gfx90a";
    hip_without_waits_for_values_does: [StubLibraries::Hip(5)], "gpus=3,no=hipStreamWaitValue32" =>
        "hip", "stub AMD Instinct MI250X", "gfx90a";
    hip_without_a_large_bar_does: [StubLibraries::Hip(7)], "gpus=3,no=large-bar" =>
        "hip", "stub AMD Instinct MI250X", "gfx90a";
    cuda_without_waits_for_values_does: [StubLibraries::Cuda], "gpus=3,no=cuStreamWaitValue32" =>
        "cuda", "stub NVIDIA H200", "sm_90";
    cuda_without_peer_access_does: [StubLibraries::Cuda], "gpus=3,nopeer" =>
        "cuda", "stub NVIDIA H200", "sm_90";
    hip_over_cuda_does_what_every_machine_must_do: [StubLibraries::Cuda, StubLibraries::HipOverCuda], "gpus=3" =>
        "hip", "stub NVIDIA H200 (HIP over CUDA)", "gfx90a";
}

#[test]
fn times_are_the_models_and_bytes_are_real() {
    inside("times_are_the_models_and_bytes_are_real", &[StubLibraries::Cuda], "gpus=2", || {
        let machine = machine();
        let bytes = Bytes::mib(64);
        let vram = |gpu| Place::new(Unit::Gpu(gpu), MemKind::Vram);
        let (src, dst) =
            (machine.buffer(vram(0), bytes).unwrap(), machine.buffer(vram(1), bytes).unwrap());
        src.fill(1, false).unwrap();
        dst.fill(2, false).unwrap();
        let gpu = machine.gpu(0).unwrap();
        machine.driver().unwrap().enable_peer(0, 1).unwrap();
        let (stream, start, end) =
            (gpu.stream().unwrap(), gpu.event().unwrap(), gpu.event().unwrap());
        let gate = machine.gate().unwrap();
        stream.hold(&gate).unwrap();
        stream.record(&start).unwrap();
        stream.copy(dst.address(), src.address(), bytes, CopyChoice::Auto).unwrap();
        stream.record(&end).unwrap();
        // Nothing has moved: the gate is closed.
        dst.check(2, bytes).unwrap();
        gate.release().unwrap();
        stream.wait().unwrap();
        dst.check(1, bytes).unwrap();
        // 64 MiB at 395 GB/s are 170 us, whatever this machine needs to copy them.
        let time = end.since(&start).unwrap();
        assert!(time > Ns::us(165.0) && time < Ns::us(185.0), "{time}");
    });
}

/// How CPU threads reach two kinds of memory of GPU 0, `None` where the runtime refuses it.
fn cpu_access(mem: MemKind) -> Option<CpuAccess> {
    let machine = machine();
    let buffer = machine.buffer(Place::new(Unit::Gpu(0), mem), Bytes::kib(64)).unwrap();
    match machine.driver().unwrap().cpu_access(buffer.address(), buffer.bytes()) {
        Ok(access) => Some(access),
        Err(error) => {
            assert_eq!(error.severity, Severity::Unsupported, "{error}");
            assert!(!error.way_out.is_empty(), "no remedy: {error}");
            None
        }
    }
}

#[test]
fn a_large_bar_opens_device_memory_to_cpu_threads() {
    let test = "a_large_bar_opens_device_memory_to_cpu_threads";
    inside(test, &[StubLibraries::Hip(7)], "gpus=2", || {
        assert_eq!(cpu_access(MemKind::Vram), Some(CpuAccess::InPlace));
        assert_eq!(cpu_access(MemKind::Managed), Some(CpuAccess::Migrates));
    });
}

#[test]
fn device_memory_stays_closed_to_cpu_threads_without_it() {
    let test = "device_memory_stays_closed_to_cpu_threads_without_it";
    inside(test, &[StubLibraries::Hip(6)], "gpus=2,no=large-bar", || {
        assert_eq!(cpu_access(MemKind::Vram), None);
    });
}

#[test]
fn cuda_opens_managed_memory_alone_to_cpu_threads() {
    let test = "cuda_opens_managed_memory_alone_to_cpu_threads";
    inside(test, &[StubLibraries::Cuda], "gpus=2", || {
        assert_eq!(cpu_access(MemKind::Vram), None);
        assert_eq!(cpu_access(MemKind::Managed), Some(CpuAccess::Migrates));
    });
}

#[test]
fn a_kernel_that_reaches_too_far_ruins_its_context() {
    // The third call: the kernel itself, behind the fills of two buffers.
    let spec = "gpus=2,fail=cuLaunchKernel@3:700";
    inside("a_kernel_that_reaches_too_far_ruins_its_context", &[StubLibraries::Cuda], spec, || {
        let machine = machine();
        let vram = Place::new(Unit::Gpu(0), MemKind::Vram);
        let [a, b] = [1, 2].map(|seed| {
            let buffer = machine.buffer(vram, Bytes::kib(64)).unwrap();
            buffer.fill(seed, false).unwrap();
            buffer
        });
        let gpu = machine.gpu(0).unwrap();
        let kernel = gpu.kernel(&KernelVariant::standard(KernelOp::Copy)).unwrap();
        let stream = gpu.stream().unwrap();
        let launch = KernelLaunch { src: a.address(), dst: b.address(), bytes: Bytes::kib(64) };
        for _ in 0..2 {
            let error = stream.launch(&kernel, &launch).unwrap_err();
            assert_eq!((error.code, error.severity), (700, Severity::Sticky), "{error}");
        }
        // The other GPU is as it was.
        let there = machine.buffer(Place::new(Unit::Gpu(1), MemKind::Vram), Bytes(64)).unwrap();
        there.fill(3, false).unwrap();
        there.check(3, Bytes(64)).unwrap();
    });
}

#[test]
fn a_driver_of_12_8_gets_batches_in_its_own_words() {
    // Its only cuMemcpyBatchAsync takes nine arguments, the one that came with 13.0 eight.
    let spec = "gpus=2,driver=12080";
    inside("a_driver_of_12_8_gets_batches_in_its_own_words", &[StubLibraries::Cuda], spec, || {
        let machine = machine();
        let bytes = Bytes::kib(64);
        let buffer = |gpu, seed| {
            let place = Place::new(Unit::Gpu(gpu), MemKind::Vram);
            let buffer = machine.buffer(place, bytes).unwrap();
            buffer.fill(seed, false).unwrap();
            buffer
        };
        let (src, dst) = (buffer(0, 1), buffer(1, 2));
        let stream = machine.gpu(0).unwrap().stream().unwrap();
        stream.copy_batch(&[(dst.address(), src.address(), bytes)]).unwrap();
        stream.wait().unwrap();
        dst.check(1, bytes).unwrap();
    });
}

#[test]
fn a_kernel_without_peer_access_is_refused_and_ruins_nothing() {
    let test = "a_kernel_without_peer_access_is_refused_and_ruins_nothing";
    inside(test, &[StubLibraries::Cuda], "gpus=2,nopeer", || {
        let machine = machine();
        let bytes = Bytes::kib(64);
        let [here, there] = [0, 1].map(|gpu| {
            let buffer = machine.buffer(Place::new(Unit::Gpu(gpu), MemKind::Vram), bytes).unwrap();
            buffer.fill(4, false).unwrap();
            buffer
        });
        let gpu = machine.gpu(0).unwrap();
        let kernel = gpu.kernel(&KernelVariant::standard(KernelOp::Copy)).unwrap();
        let stream = gpu.stream().unwrap();
        let launch = KernelLaunch { src: there.address(), dst: here.address(), bytes };
        let error = stream.launch(&kernel, &launch).unwrap_err();
        assert_eq!(error.severity, Severity::Unsupported, "{error}");
        assert!(error.way_out.contains("topo -p2p"), "{error}");
        here.check(4, bytes).unwrap();
    });
}

#[test]
fn a_chain_in_registered_memory_is_followed_until_a_gpu_writes_there() {
    let test = "a_chain_in_registered_memory_is_followed_until_a_gpu_writes_there";
    inside(test, &[StubLibraries::Cuda], "gpus=1", || {
        let machine = machine();
        let bytes = Bytes::kib(64);
        let numa = machine.host.domains()[0].id;
        let chain =
            machine.buffer(Place::new(Unit::Numa(numa), MemKind::Registered), bytes).unwrap();
        chain.fill(5, true).unwrap();
        let vram = machine.buffer(Place::new(Unit::Gpu(0), MemKind::Vram), bytes).unwrap();
        vram.fill(6, false).unwrap();
        let gpu = machine.gpu(0).unwrap();
        let (kernel, stream) =
            (gpu.kernel(&KernelVariant::chase()).unwrap(), gpu.stream().unwrap());
        let launch = KernelLaunch { src: chain.address(), dst: 0, bytes };
        stream.launch(&kernel, &launch).unwrap();
        stream.wait().unwrap();
        stream.copy(chain.address(), vram.address(), bytes, CopyChoice::Auto).unwrap();
        let error = stream.launch(&kernel, &launch).unwrap_err();
        assert!(error.reason.contains("no chain"), "{error}");
        stream.wait().unwrap();
    });
}

/// Registers 2 MiB of a place with the adapter for it, by address and by file, and takes it back.
fn registers(machine: &Machine, place: Place, by_file: bool) {
    let bytes = Bytes::mib(2);
    let registrar = machine.host.registrar().unwrap();
    let buffer = machine.buffer(place, bytes).unwrap();
    let (unit, address) = (place.unit, buffer.address());
    assert_eq!(registrar.adapter(unit).unwrap(), "mlx5_0");
    let region = match by_file {
        false => registrar.register(unit, address, bytes),
        true => {
            let (file, offset) = machine.driver().unwrap().export_dmabuf(address, bytes).unwrap();
            // One byte more than the file has is refused.
            let more = Bytes(bytes.0 + 1);
            let refused = registrar.register_dmabuf(unit, address, more, file.as_fd(), offset);
            let error = refused.unwrap_err();
            assert_eq!(error.code, 22, "{error}");
            assert!(error.to_string().contains("Linux 5.12"), "{error}");
            registrar.register_dmabuf(unit, address, bytes, file.as_fd(), offset)
        }
    };
    let region = region.unwrap();
    registrar.deregister(region).unwrap();
    let error = registrar.deregister(region).unwrap_err();
    assert!(error.reason.contains("nothing is registered"), "{error}");
}

#[test]
fn memory_of_host_and_gpu_is_registered_with_an_adapter() {
    let test = "memory_of_host_and_gpu_is_registered_with_an_adapter";
    inside(test, &[StubLibraries::Cuda, StubLibraries::Verbs], "gpus=1,rdma=mlx5_0+mlx5_1", || {
        let machine = machine();
        let numa = machine.host.domains()[0].id;
        for mem in [MemKind::Paged, MemKind::Huge, MemKind::Pinned] {
            registers(&machine, Place::new(Unit::Numa(numa), mem), false);
        }
        let vram = Place::new(Unit::Gpu(0), MemKind::Vram);
        registers(&machine, vram, false);
        registers(&machine, vram, true);
        let driver = machine.driver().unwrap();
        assert_eq!(driver.export_call(), "cuMemGetHandleForAddressRange");
        // Only memory of a GPU is exported.
        let pinned =
            machine.buffer(Place::new(Unit::Numa(numa), MemKind::Pinned), Bytes::mib(2)).unwrap();
        let error = driver.export_dmabuf(pinned.address(), Bytes::mib(2)).unwrap_err();
        assert_eq!(error.severity, Severity::Unsupported, "{error}");
    });
}

#[test]
fn hip_exports_memory_where_it_has_a_call_for_it() {
    let test = "hip_exports_memory_where_it_has_a_call_for_it";
    inside(test, &[StubLibraries::Hip(7), StubLibraries::Verbs], "gpus=1,rdma=mlx5_0", || {
        registers(&machine(), Place::new(Unit::Gpu(0), MemKind::Vram), true);
    });
}

#[test]
fn hip_without_an_export_call_names_the_version_that_has_it() {
    let test = "hip_without_an_export_call_names_the_version_that_has_it";
    inside(test, &[StubLibraries::Hip(6), StubLibraries::Verbs], "gpus=1,rdma=mlx5_0", || {
        let machine = machine();
        let buffer =
            machine.buffer(Place::new(Unit::Gpu(0), MemKind::Vram), Bytes::mib(2)).unwrap();
        let driver = machine.driver().unwrap();
        let error = driver.export_dmabuf(buffer.address(), Bytes::mib(2)).unwrap_err();
        assert_eq!(error.severity, Severity::Unsupported, "{error}");
        assert!(error.to_string().contains("hsa_amd_portable_export_dmabuf"), "{error}");
    });
}

#[test]
fn a_host_without_adapters_is_reported() {
    inside(
        "a_host_without_adapters_is_reported",
        &[StubLibraries::Cuda, StubLibraries::Verbs],
        "gpus=1",
        || {
            let machine = machine();
            let registrar = machine.host.registrar().unwrap();
            let error = registrar.adapter(Unit::Gpu(0)).unwrap_err();
            assert_eq!(error.severity, Severity::Unsupported, "{error}");
            assert!(error.to_string().contains("no RDMA device"), "{error}");
            assert!(error.to_string().contains("InfiniBand"), "{error}");
        },
    );
}

#[test]
fn a_gpu_that_an_adapter_does_not_reach_is_named_with_the_module() {
    let test = "a_gpu_that_an_adapter_does_not_reach_is_named_with_the_module";
    // 14 is EFAULT, which the kernel gives for addresses that are no memory of the process.
    let spec = "gpus=1,rdma=mlx5_0,fail=ibv_reg_mr@1:14,fail=ibv_open_device@1:13";
    inside(test, &[StubLibraries::Cuda, StubLibraries::Verbs], spec, || {
        let machine = machine();
        let registrar = machine.host.registrar().unwrap();
        let closed = registrar.adapter(Unit::Gpu(0)).unwrap_err();
        assert!(closed.to_string().contains("/dev/infiniband/uverbs"), "{closed}");
        let place = Place::new(Unit::Gpu(0), MemKind::Vram);
        let buffer = machine.buffer(place, Bytes::mib(2)).unwrap();
        let register = || registrar.register(Unit::Gpu(0), buffer.address(), Bytes::mib(2));
        let error = register().unwrap_err();
        assert_eq!(error.severity, Severity::Unsupported, "{error}");
        assert!(error.to_string().contains("nvidia-peermem"), "{error}");
        registrar.deregister(register().unwrap()).unwrap();
    });
}

#[test]
fn nvml_is_read_for_links_clocks_and_counters() {
    let test = "nvml_is_read_for_links_clocks_and_counters";
    inside(test, &[StubLibraries::Cuda, StubLibraries::Nvml], "gpus=2", || {
        let management = pathline_gpu::management();
        assert_eq!(
            (management.addresses().len(), management.nvml.version.as_str()),
            (2, "driver 580.159.04")
        );
        // 5 + 4 + 4 + 5 links of 106.25 Gbit/s x 2 / 8 = 26,562 MB/s to four switches.
        let files = management.files();
        let lines: Vec<&str> = files[1].1.lines().collect();
        assert_eq!(lines.len(), 18);
        let line = "link=5 active=1 version=4 mbps=26562 remote=switch pci=fade:d1:00.0";
        assert_eq!(lines[5], line);
        let machine = machine();
        let monitor = machine.monitor.as_ref().unwrap();
        let facts = monitor.facts(1).unwrap();
        assert_eq!((facts.source.as_str(), facts.nvlinks), ("NVML 580.159.04", Some((18, 18))));
        assert_eq!(
            (facts.power_limit_w, facts.ecc, facts.mig),
            (Some(700.0), Some(true), Some(false))
        );
        assert_eq!(facts.fabric.as_deref(), Some("completed"));
        let state = monitor.state(1).unwrap();
        assert!(
            state.sm_clock_mhz > Some(1000) && state.memory_clock_mhz > Some(1000),
            "{state:?}"
        );
        assert_eq!(state.throttle, Some(Vec::new()));
        let link = state.pcie.unwrap();
        assert_eq!((link.speed_gts, link.width, link.max_speed_gts), (32.0, 16, 32.0));
        let counters = monitor.counters(1).unwrap();
        let errors = (counters.link_errors, counters.ecc_corrected, counters.pcie_replays);
        assert_eq!(errors, (Some(0), Some(0), Some(0)));
        assert_eq!(monitor.warnings(), [""; 0]);
    });
}

#[test]
fn an_nvml_that_looks_behind_its_array_damages_nothing() {
    let test = "an_nvml_that_looks_behind_its_array_damages_nothing";
    inside(test, &[StubLibraries::Cuda, StubLibraries::Nvml], "gpus=1,lookahead", || {
        let machine = machine();
        let monitor = machine.monitor.as_ref().unwrap();
        // Free memory at the end of the heap that holds requests of 40 bytes for field 161 of link 0.
        // An array of 54 is taken from there: 2,160 bytes, and the word at 2,168, where the element
        // behind has its time, is the size of what is left of the heap.
        let request: Vec<u8> = [161u32, 0, 0, 0, 0, 0, 0, 0, 0, 0].map(u32::to_ne_bytes).concat();
        let mut kept = Vec::new();
        for nth in 0..200 {
            drop(std::hint::black_box(request.repeat(54 + 54)));
            assert_eq!(monitor.counters(0).unwrap().link_errors, Some(0));
            kept.push(vec![nth as u8; 2000 + nth]);
        }
        assert!(kept.iter().enumerate().all(|(nth, k)| k.iter().all(|&byte| byte == nth as u8)));
        assert_eq!(monitor.warnings(), [""; 0]);
    });
}

#[test]
fn an_nvml_that_writes_behind_its_array_is_named_once() {
    let test = "an_nvml_that_writes_behind_its_array_is_named_once";
    // The third call: for the links of the second GPU, after those for links and errors of the first.
    let spec = "gpus=2,overrun=nvmlDeviceGetFieldValues@3";
    inside(test, &[StubLibraries::Cuda, StubLibraries::Nvml], spec, || {
        let machine = machine();
        let monitor = machine.monitor.as_ref().unwrap();
        let warnings = monitor.warnings();
        assert!(
            warnings[0]
                .starts_with("nvmlDeviceGetFieldValues of NVML 580.159.04 wrote past its buffer")
        );
        for gpu in 0..2 {
            let counters = monitor.counters(gpu).unwrap();
            assert_eq!((counters.link_errors, counters.ecc_corrected), (None, Some(0)));
        }
        assert_eq!(monitor.warnings().len(), 1);
    });
}

#[test]
fn an_nvml_that_fails_costs_its_own_field() {
    let test = "an_nvml_that_fails_costs_its_own_field";
    // 15 is NVML_ERROR_GPU_IS_LOST.
    let spec = "gpus=1,fail=nvmlDeviceGetPowerUsage:15,fail=nvmlDeviceGetFieldValues:999";
    inside(test, &[StubLibraries::Cuda, StubLibraries::Nvml], spec, || {
        let machine = machine();
        let monitor = machine.monitor.as_ref().unwrap();
        let state = monitor.state(0).unwrap();
        assert_eq!((state.power_w, state.temperature_c), (None, Some(41.0)));
        assert_eq!(monitor.counters(0).unwrap().link_errors, None);
        assert_eq!(monitor.facts(0).unwrap().nvlinks, Some((18, 18)));
    });
}
