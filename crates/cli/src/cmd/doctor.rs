//! `pathline doctor`.

use std::path::Path;

use anyhow::Result;
use pathline_hal::{Machine, conformance};
use pathline_vendor::storage::{direct_library, without_rings};
use pathline_vendor::{
    LibraryReport, Opened, Runtime, cache_base, collectives_library, management, mpi_library,
    other_runtime, rdma_library, runtime, ucx_library, writable,
};

use super::Exit;
use crate::args::DoctorArgs;
use crate::ranks;
use crate::say::outln;
use crate::world::snapshot;

/// Fine if every GPU that was discovered can be measured by engines and kernels, or there is none;
/// wrong if something is missing or a check fails.
pub(super) fn run(args: &DoctorArgs) -> Result<Exit> {
    let management = management();
    let topology = pathline_topo::from_snapshot("live", &snapshot(&management));
    let runtime = runtime(&topology, &args.libraries.asked());
    let gpus = topology.gpus.len();
    let libraries = runtime.libraries();
    // Of hardware that is not here, one line is enough.
    let brief = gpus == 0 && !args.libraries.any();
    libraries.iter().for_each(|found| library(found, brief));
    // Nothing is unmeasured without it: it is shown and does not decide.
    library(&management.nvml, topology.gpus.iter().all(|g| g.vendor != "nvidia"));
    if management.nvml.path.is_some() {
        outln!("    it reads {} GPUs", management.gpus());
    }
    management.warnings().iter().for_each(|warning| outln!("    warning: {warning}"));
    others(&runtime);
    between();
    files(&runtime, brief);
    folders(&runtime);
    runtime.note.iter().chain(&runtime.numbering()).for_each(|note| outln!("note: {note}"));
    let Opened { machine, without } = pathline_vendor::open(topology, runtime);
    let listed = devices(&machine);
    states(&machine);
    let asked = args.libraries.device_memory.unwrap_or_default();
    if let Some(line) = ranks::device_memory(asked, listed) {
        outln!("{line}");
    }
    if let Some(why) = &without {
        outln!("GPUs: {gpus} on the bus, none can be measured: {why}");
    }
    let failed = args.conformance && !conforms(&machine);
    let wanted = listed > 0 || machine.topology.gpus.iter().any(|g| !g.vendor.is_empty());
    let missing = wanted && (without.is_some() || libraries.iter().any(|l| l.path.is_none()));
    let unmeasured = gpus > 0 && listed == 0;
    Ok(if failed || missing || unmeasured { Exit::Wrong } else { Exit::Fine })
}

fn library(found: &LibraryReport, brief: bool) {
    match &found.path {
        Some(path) if found.version.is_empty() => outln!("{}: {}", found.what, path.display()),
        Some(path) => outln!("{}: {} ({})", found.what, found.version, path.display()),
        None => outln!("{}: not found", found.what),
    }
    if found.path.is_none() && !brief {
        outln!("    so:  {}", found.costs);
        outln!("    try: {}", found.way_out);
    }
    let (files, names): (Vec<_>, Vec<_>) =
        found.tried.iter().partition(|tried| tried.place.is_absolute());
    for tried in files {
        outln!("    not {}: {}", tried.place.display(), tried.why);
    }
    // Names that the linker does not know are of no interest once another is found.
    let unknown = |why: &str| why.contains("No such file");
    for tried in names.iter().filter(|tried| !unknown(&tried.why)) {
        outln!("    not {}: {}", tried.place.display(), tried.why);
    }
    let names: Vec<String> = names
        .iter()
        .filter(|tried| unknown(&tried.why))
        .map(|tried| tried.place.display().to_string())
        .collect();
    if found.path.is_none() && !brief && !names.is_empty() {
        outln!("    the linker does not find {}", names.join(", "));
    }
}

/// One line for each library that this machine's GPUs do not need.
fn others(runtime: &Runtime) {
    let other = other_runtime(runtime);
    match &other.path {
        Some(path) => {
            outln!("{}: {} ({}); not used here", other.what, other.version, path.display());
        }
        None => outln!("{}: not found; not needed here", other.what),
    }
    library(&collectives_library(runtime), true);
}

/// Libraries that carry bytes between processes: a line each, since runs of one process need none.
fn between() {
    for found in [mpi_library(None), ucx_library(), rdma_library()] {
        library(&found, true);
    }
}

/// What reads and writes files: calls of the kernel, and GPU direct of the runtime's vendor.
fn files(runtime: &Runtime, brief: bool) {
    match without_rings() {
        Some(why) => outln!("io_uring: {why}"),
        None => outln!("io_uring: the kernel has it"),
    }
    let (found, notes) = direct_library(runtime.family);
    library(&found, brief);
    notes.iter().for_each(|note| outln!("    {note}"));
}

/// Where files go. No folder is made.
fn folders(runtime: &Runtime) {
    match &runtime.cache {
        Some(folder) => outln!("{}", kernel_folder(folder)),
        None => outln!("compiled kernels are not kept: neither HOME nor XDG_CACHE_HOME is set"),
    }
    match writable(&std::env::temp_dir()) {
        Ok(()) => outln!("temporary files go to {}", std::env::temp_dir().display()),
        Err(why) => outln!("TMPDIR: {why}; hipRTC needs it to compile"),
    }
}

/// Whether compiled kernels can be kept in a folder, which the first of them makes.
fn kernel_folder(folder: &Path) -> String {
    let not_kept =
        |why: &str| format!("compiled kernels are not kept: {why}; each run compiles them again");
    if folder.is_dir() {
        return match writable(folder) {
            Ok(()) => {
                format!("compiled kernels are kept in {}{}", folder.display(), kept(folder))
            }
            Err(why) => not_kept(&why),
        };
    }
    let Some(base) = cache_base(folder).filter(|base| base.is_dir()) else {
        let base = cache_base(folder).unwrap_or(folder).display();
        return not_kept(&format!("{base} is not there (HOME or XDG_CACHE_HOME names it)"));
    };
    let nearest = folder.ancestors().find(|f| f.exists()).unwrap_or(base);
    match rustix::fs::access(nearest, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK) {
        Ok(()) => format!("compiled kernels will be kept in {}", folder.display()),
        Err(error) => not_kept(&format!("{} cannot be written: {error}", nearest.display())),
    }
}

/// How many files a folder holds.
fn kept(folder: &Path) -> String {
    match std::fs::read_dir(folder).map(Iterator::count) {
        Ok(files) => format!(" ({files} so far)"),
        Err(_) => String::new(),
    }
}

/// Prints what the runtime says of its GPUs; how many it lists.
fn devices(machine: &Machine) -> usize {
    let Ok(driver) = machine.driver() else { return 0 };
    match driver.devices() {
        Ok(devices) => {
            for d in &devices {
                outln!(
                    "gpu{}: {} · {} · {} · {} · {} compute units{}",
                    d.index,
                    d.name,
                    d.arch,
                    d.pci,
                    d.memory.rounded(),
                    d.compute_units,
                    d.numa.map(|n| format!(" · numa{n}")).unwrap_or_default(),
                );
            }
            devices.len()
        }
        Err(error) => {
            outln!("GPUs: {error}");
            0
        }
    }
}

/// Prints what the GPUs say of themselves, and how long it takes to read that.
fn states(machine: &Machine) {
    let Some(monitor) = &machine.monitor else { return };
    for gpu in &machine.topology.gpus {
        let Some(facts) = monitor.facts(gpu.index) else { continue };
        let begun = machine.clock.now();
        let state = monitor.state(gpu.index).unwrap_or_default();
        let read = machine.clock.now() - begun;
        drop(monitor.counters(gpu.index));
        let counted = machine.clock.now() - begun - read;
        let words = pathline_explain::gpus::words(&machine.topology, gpu.index, &facts, &state);
        outln!("gpu{}: {words}; read in {read}, its error counters in {counted}", gpu.index);
    }
    monitor.warnings().iter().for_each(|warning| outln!("warning: {warning}"));
}

/// Runs every check that applies, one line each.
fn conforms(machine: &Machine) -> bool {
    let mut good = true;
    for (name, check) in conformance::checks(machine) {
        match check(machine) {
            Ok(()) => outln!("ok     {name}"),
            Err(failure) => {
                good = false;
                outln!("FAILED {name}: {failure}");
            }
        }
    }
    good
}
