//! What answers hold for: the parts of a node and their versions; and what has no answer.

use pathline_advise::{AdviceOrigin, questions};
use pathline_bench::MachineInfo;
use pathline_runner::HostSurvey;
use pathline_schema::{Case, MpiControls, Topology, Transport, Unit};

use crate::cmd::run::command_line;
use crate::say::errln;

pub(super) fn answer_origin(node: &str, parts: Vec<String>, simulated: bool) -> AdviceOrigin {
    AdviceOrigin {
        node: node.to_owned(),
        parts,
        date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command_line(),
        simulated,
    }
}

/// What answers about cases rest on: GPUs with their drivers, libraries between processes with their
/// versions, and of a real host its processor and kernel.
pub(super) fn machine_parts(about: &MachineInfo) -> Vec<String> {
    // The management library's source names the driver's version.
    let driver = |gpu: u32| about.gpus.get(&Unit::Gpu(gpu)).map(|facts| facts.source.clone());
    let mut all = gpu_parts(&about.topology, driver);
    let ways = about.ranks.first().into_iter().flat_map(|member| &member.ways);
    let is_library = |way: Transport| {
        matches!(way, Transport::Mpi | Transport::MpiStaged | Transport::Ccl | Transport::Ucx)
    };
    let libraries = ways.filter(|(way, version)| is_library(**way) && !version.is_empty());
    // What follows a semicolon are notes on the library, not its version.
    let versions = libraries.filter_map(|(_, version)| version.split(';').next());
    all.extend(versions.map(str::to_owned));
    if !about.world.is_model() {
        all.extend(system_part(&about.topology));
    }
    all
}

/// The same of a command, whose libraries are its own: GPUs and driver as this host's files and its
/// management library show them.
pub(super) fn host_parts() -> Vec<String> {
    let HostSurvey { topology, management, .. } = HostSurvey::new(None);
    let report = management.ok().map(|answer| answer.report).filter(|r| !r.version.is_empty());
    let driver = report.map(|report| format!("{} {}", report.what, report.version));
    let mut all = gpu_parts(&topology, |_| driver.clone());
    all.extend(system_part(&topology));
    all
}

fn gpu_parts(topology: &Topology, driver: impl Fn(u32) -> Option<String>) -> Vec<String> {
    topology.gpus_in_words(|gpu| {
        let driver = driver(gpu.index).map(|driver| format!(", {driver}")).unwrap_or_default();
        (format!("{} ({})", gpu.name, gpu.arch), driver)
    })
}

fn system_part(topology: &Topology) -> Option<String> {
    let (cpu, kernel) = (topology.host.cpu_model.trim(), topology.host.kernel.trim());
    let linux = (!kernel.is_empty()).then(|| format!("Linux {kernel}"))?;
    Some(if cpu.is_empty() { linux } else { format!("{cpu}, {linux}") })
}

/// Names the cases for which no alternative is known: they have no answer.
pub(super) fn name_unanswered(topology: &Topology, asked: &[Case], mpi: Option<&MpiControls>) {
    let is_open = |case: &&Case| questions(topology, std::slice::from_ref(case), 1, mpi).is_empty();
    for case in asked.iter().filter(is_open) {
        errln!("pathline: {case}: no answer, since no alternative to it is known");
    }
}
