//! The description of HIP: its name, options, device files and libraries.

use std::path::Path;

use super::{hip, hip_libraries, hip_sensors, hip_traffic};
use crate::family::{CompilerDescription, DeviceFiles, LibraryOption, RuntimeDescription};

pub(super) static HIP: RuntimeDescription = RuntimeDescription {
    name: hip::NAME,
    label: "HIP",
    vendor: "amd",
    maker: "AMD",
    options: &[LibraryOption {
        name: "hip",
        variable: "PATHLINE_HIP",
        help: "Measure by HIP, with this runtime",
        value: "The file libamdhip64.so.N or its folder; `search` looks for it",
    }],
    variables: &["HSA_", "HIP_", "ROCR_", "GPU_", "AMD_", "RCCL_"],
    hiding: &[
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
    ],
    device_files: DeviceFiles {
        paths: &["/dev/kfd"],
        absent: "amdgpu is not loaded, or the container was not given it",
        refused: "this user has to be of the groups render and video",
    },
    driver: hip_libraries::driver,
    compiler: CompilerDescription {
        names: &hip_libraries::RTC_NAMES,
        option: None,
        prepare: |_| (),
        find: hip_libraries::compiler,
        helper: |compiler| hip_libraries::comgr(compiler.path.as_deref().and_then(Path::parent)).1,
        // hipRTC reports the same version in every release.
        label: |runtime, _| format!("hipRTC of {}", runtime.version),
        code: hip_libraries::code,
        needs_temporary: Some("hiprtcCompileProgram"),
    },
    collectives: Some(hip_libraries::RCCL),
    sensors: Some(hip_sensors::find),
    traffic: Some(hip_traffic::find),
};
