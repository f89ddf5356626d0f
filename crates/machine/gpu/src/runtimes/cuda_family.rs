//! The description of CUDA: its name, options, device files and libraries.

use super::{cuda, cuda_libraries};
use crate::family::{CompilerDescription, DeviceFiles, LibraryOption, RuntimeDescription};

pub(super) static CUDA: RuntimeDescription = RuntimeDescription {
    name: cuda::NAME,
    label: "CUDA",
    vendor: "nvidia",
    maker: "NVIDIA",
    options: &[
        LibraryOption {
            name: "cuda",
            variable: "PATHLINE_CUDA",
            help: "Measure by CUDA, with this driver",
            value: "The file libcuda.so.1 or its folder; `search` looks for it. By default the runtime is that of the \
                    GPUs that are here",
        },
        LibraryOption {
            name: "nvrtc",
            variable: "PATHLINE_NVRTC",
            help: "NVIDIA's run-time compiler",
            value: "The file libnvrtc.so.N or its folder; searched by default",
        },
    ],
    variables: &["CUDA_", "NCCL_"],
    hiding: &["CUDA_VISIBLE_DEVICES"],
    device_files: DeviceFiles {
        paths: &["/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-ctrl-gpu"],
        absent: "the kernel module is not loaded, or the container was not given it",
        refused: "check its owner and mode",
    },
    driver: cuda_libraries::driver,
    compiler: CompilerDescription {
        names: &cuda_libraries::RTC_NAMES,
        option: Some("nvrtc"),
        prepare: cuda_libraries::keep_builtins,
        find: cuda_libraries::compiler,
        helper: cuda_libraries::builtins,
        label: |_, compiler| format!("NVRTC {}", compiler.version),
        code: cuda_libraries::code,
        needs_temporary: None,
    },
    collectives: Some(cuda_libraries::NCCL),
    sensors: None,
    traffic: None,
};
