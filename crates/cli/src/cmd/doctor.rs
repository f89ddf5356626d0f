//! `pathline doctor`.

use anyhow::Result;
use pathline_hal::{Machine, conformance};
use pathline_vendor::{Found, Opened, management, runtime};

use super::Exit;
use crate::args::DoctorArgs;
use crate::say::outln;
use crate::world::snapshot;

/// Fine if every GPU that was discovered can be measured by engines and kernels, or there is none;
/// wrong if something is missing or a check fails.
pub(super) fn run(args: &DoctorArgs) -> Result<Exit> {
    let management = management();
    let topology = pathline_topo::from_snapshot("live", &snapshot(&management));
    let runtime = runtime(&topology, args.nvrtc.as_deref());
    let gpus = topology.gpus.len();
    let libraries = [runtime.driver.clone(), runtime.compiler()];
    libraries.iter().for_each(library);
    // Nothing is unmeasured without it: it is shown and does not decide.
    library(&management.nvml);
    if management.nvml.path.is_some() {
        outln!("    it reads {} GPUs", management.gpus());
    }
    match &runtime.cache {
        Some(folder) => outln!("compiled kernels are kept in {}", folder.display()),
        None => outln!("compiled kernels are not kept: neither HOME nor XDG_CACHE_HOME is set"),
    }
    let Opened { machine, without } = pathline_vendor::open(topology, runtime);
    let listed = devices(&machine);
    if let Some(why) = &without {
        outln!("GPUs: {gpus} on the bus, none can be measured: {why}");
    }
    let failed = args.conformance && !conforms(&machine);
    let has_nvidia = listed > 0 || machine.topology.gpus.iter().any(|g| g.vendor == "nvidia");
    let missing = has_nvidia && (without.is_some() || libraries.iter().any(|l| l.path.is_none()));
    let unmeasured = gpus > 0 && listed == 0;
    Ok(if failed || missing || unmeasured { Exit::Wrong } else { Exit::Fine })
}

fn library(found: &Found) {
    match &found.path {
        Some(path) => outln!("{}: {} ({})", found.what, found.version, path.display()),
        None => {
            outln!("{}: not found", found.what);
            outln!("    so:  {}", found.costs);
            outln!("    try: {}", found.way_out);
        }
    }
    for tried in &found.tried {
        outln!("    not {}: {}", tried.place.display(), tried.why);
    }
}

/// Prints what the runtime says of its GPUs; how many it lists.
fn devices(machine: &Machine) -> usize {
    let Ok(driver) = machine.driver() else { return 0 };
    match driver.devices() {
        Ok(devices) => {
            for d in &devices {
                outln!(
                    "gpu{}: {} · {} · {} · {} · {} multiprocessors{}",
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
