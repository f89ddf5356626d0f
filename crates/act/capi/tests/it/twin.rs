//! Plans from a machine file in place of a probe.

use std::ffi::CString;
use std::mem::offset_of;
use std::path::{Path, PathBuf};

use pathline::abi::{pl_close, pl_open, pl_options};
use pathline::{CopyNode, CopyStatus, NodeOptions};
use pathline_flow::MachineDesc;
use pathline_stub::StubLibraries;

use crate::runtime::{TestRuntime, in_separate_process, last_error, library_option};

/// The description of what the stand-in simulates, as its GPUs are named.
pub(crate) fn machine_file(folder: &Path, gpus: &str, name: &str) -> PathBuf {
    let presets = MachineDesc::presets();
    let (_, text) = presets.iter().find(|(preset, _)| *preset == "hgx-h200").unwrap();
    let renamed = text
        .replacen("name = \"hgx-h200\"", &format!("name = \"here\"\nslice = {gpus}"), 1)
        .replace("name = \"NVIDIA", &format!("name = \"{name}NVIDIA"))
        .replace("pci = \"0000:", "pci = \"fade:");
    let path = folder.join("here.toml");
    std::fs::write(&path, renamed).unwrap();
    path
}

pub(crate) fn options(twin: PathBuf) -> NodeOptions {
    NodeOptions { threshold: 1 << 20, min_gain: 1e-6, twin: Some(twin), ..NodeOptions::default() }
}

#[test]
fn plans_come_from_a_twin_without_a_probe() {
    let test = "twin::plans_come_from_a_twin_without_a_probe";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=3,memory=100MiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let folder = tempfile::tempdir().unwrap();
    let node = cuda.node(options(machine_file(folder.path(), "[0, 1, 2]", "stub ")));
    // With 64 MiB of 100 in use, no probe of 128 MiB finds room.
    let (stream, bytes) = (cuda.stream(), 64 << 20);
    let (src, device) = (cuda.pinned(bytes, 1), cuda.device(bytes));
    let plan = node.explain(device, src.as_ptr() as u64, bytes).unwrap();
    assert!(plan.contains("by relay@gpu0[gpu1+gpu2,2MiB]"), "{plan}");
    // Of the prediction, the hand-over to the worker is measured.
    let rates = plan.lines().nth(1).unwrap();
    let plain: f64 = rates.rsplit_once("plain ").unwrap().1.replace(" GB/s", "").parse().unwrap();
    assert!((55.0..56.0).contains(&plain), "{plan}");
    // SAFETY: live memory and a live stream.
    unsafe { node.copy_async(device, src.as_ptr() as u64, bytes, stream).unwrap() };
    assert_eq!(cuda.wait(stream), 0);
    assert!(cuda.read(device, bytes) == *src);
    assert_eq!(node.counters().multipath, 1, "{:?}", node.counters());
    drop(node);

    // A helper without memory for its staging takes no part.
    cuda.enter(1);
    cuda.device(96 << 20);
    cuda.enter(0);
    let node = cuda.node(options(folder.path().join("here.toml")));
    let plan = node.explain(device, src.as_ptr() as u64, bytes).unwrap();
    assert!(plan.contains("by relay@gpu0[gpu2,2MiB]"), "{plan}");
}

#[test]
fn the_same_bytes_to_all_are_planned_from_a_twin() {
    let test = "twin::the_same_bytes_to_all_are_planned_from_a_twin";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=3,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let folder = tempfile::tempdir().unwrap();
    let twin = machine_file(folder.path(), "[0, 1, 2]", "stub ");
    // The time of an order on its way to the worker, which a busy machine makes long, decides nothing here.
    let node = cuda.node(NodeOptions { min_gain: 1e-6, ..options(twin) });
    let bytes = 48 << 20;
    let src = cuda.pinned(bytes, 4);
    let mut dst = Vec::new();
    for gpu in 0..3 {
        cuda.enter(gpu);
        dst.push((gpu as i32, cuda.device(bytes)));
    }
    // SAFETY: live memory.
    unsafe { node.copy_to_all(&dst, src.as_ptr() as u64, bytes, None).unwrap() };
    for &(gpu, device) in &dst {
        assert!(cuda.read(device, bytes) == *src, "GPU {gpu}");
    }
    assert_eq!(node.counters().multipath, 1, "{:?}", node.counters());
}

#[test]
fn a_twin_of_another_node_is_refused() {
    let test = "twin::a_twin_of_another_node_is_refused";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let folder = tempfile::tempdir().unwrap();
    let refused = |twin: &Path| {
        let library = Some(library_option("cuda"));
        let error = CopyNode::open(&NodeOptions { library, ..options(twin.to_owned()) });
        let error = error.unwrap_err();
        assert_eq!(error.status, CopyStatus::Invalid);
        error.text
    };
    let text = refused(&machine_file(folder.path(), "[0, 1, 2]", "stub "));
    assert!(text.contains("of another node: it has 3 GPUs, this process sees 2"), "{text}");
    let text = refused(&machine_file(folder.path(), "[0, 1]", ""));
    assert!(text.contains("its gpu0 is NVIDIA H200"), "{text}");
    assert!(text.contains("that of this process is stub NVIDIA"), "{text}");
    assert!(refused(&folder.path().join("none")).contains("No such file"));
    assert!(refused(folder.path()).contains("no file of at most 4194304 bytes"));
    let torn = folder.path().join("torn.toml");
    std::fs::write(&torn, "name = \"x\"\n[[").unwrap();
    assert!(refused(&torn).contains("torn.toml:2"));

    // The C interface, with and without the member.
    let twin = machine_file(folder.path(), "[1]", "stub ");
    let twin = CString::new(twin.to_str().unwrap()).unwrap();
    let (name, path) = library_option("cuda");
    let library = CString::new(format!("{name}={}", path.display())).unwrap();
    let mut options = pl_options {
        size: size_of::<pl_options>(),
        helpers: std::ptr::null(),
        helper_count: 0,
        threshold: 0,
        staging: 0,
        min_gain: 0.0,
        library: library.as_ptr(),
        twin: twin.as_ptr(),
        shared_helpers: 0,
        copy_threads: 0,
        max_multiprocessors: 0,
        reserved: 0,
    };
    let mut node = std::ptr::null_mut();
    // SAFETY: live structures.
    unsafe {
        assert_eq!(pl_open(&raw const options, &raw mut node), CopyStatus::Invalid);
        assert!(last_error().contains("it has 1 GPUs"), "{}", last_error());
        options.size = offset_of!(pl_options, twin);
        assert_eq!(pl_open(&raw const options, &raw mut node), CopyStatus::Ok);
        pl_close(node);
    }
    drop(cuda);
}
