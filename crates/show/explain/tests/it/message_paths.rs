//! Ceilings, routes, losses and published values of messages between processes.

use std::collections::BTreeMap;

use pathline_explain::figure::{FigureBody, FigureCell, LossKind};
use pathline_explain::run::{CaseQuantity, RunView};
use pathline_explain::run_report;
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::{CaseOutcome, Journal, LinkEnd, Transport, WorldKind};

use crate::common::shown::*;
use crate::common::*;

/// Eight processes with a GPU each.
fn run(world: WorldKind, mpi: &str, outcomes: Vec<CaseOutcome>) -> Journal {
    let desc = MachineDesc::preset("mi250x").unwrap();
    let mut journal = journal(world, desc.topology(), outcomes);
    journal.begin.ranks = (0..8).map(member).collect();
    for member in &mut journal.begin.ranks {
        member.ways.insert(Transport::Mpi, mpi.to_owned());
    }
    journal
}

/// A message case at `rate` GB/s, carried as `engine` says.
fn sent(case: &str, rate: f64, engine: &str) -> CaseOutcome {
    let mut outcome = at_rate("mpi-pairs", case, rate);
    let CaseOutcome::Measured(measured) = &mut outcome else { panic!("{case}") };
    for series in &mut measured.series {
        // A window of 64 messages is one operation.
        series.moved_bytes.0 *= 64;
        series.samples_ns.iter_mut().for_each(|ns| *ns *= 64.0);
        series.engine = engine.to_owned();
    }
    outcome
}

fn cell(journal: &Journal, network: &Network) -> FigureCell {
    let view = RunView::new(journal, Some(network));
    view.cell(&view.entries[0], CaseQuantity::Payload)
}

fn model() -> Network {
    Network::new(&MachineDesc::preset("mi250x").unwrap(), RuntimeEnv::default()).unwrap()
}

const TO_GPU1: &str = "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w64] x 16MiB";
const ENGINE: &str = "cray-mpich: window of 64, by copy engine of the sender, a model";

#[test]
fn a_message_between_gpus_loses_to_packets_engine_and_protocol() {
    let world = || WorldKind::Simulated("mi250x".into());
    let journal = run(world(), "Cray MPICH, a model", vec![sent(TO_GPU1, 49.0, ENGINE)]);
    let found = cell(&journal, &model());
    // Four links of 50 GB/s; the engine moves 50.4.
    assert_eq!((found.ceiling, found.bound), (Some(200.0), Some(50.4)));
    let path = found.path.expect("a path");
    assert_eq!((path.route.as_str(), path.narrowest.as_str()), ("0-1", "xGMI gpu0-gpu1, 4 links"));
    let kinds: Vec<LossKind> = path.losses.iter().map(|loss| loss.kind).collect();
    assert_eq!(kinds, [LossKind::Protocol, LossKind::Limit, LossKind::Message]);
    let last = path.losses.last().unwrap();
    close(Some(last.from), 50.4);
    // 16777216 B at 49.0 GB/s take 342.4 us, at 50.4 GB/s 332.9 us.
    assert_eq!(last.why, "message protocol, 9.51 us a message");
    // The slides of source 004: 49 GB/s by SDMA at this size and window.
    assert_eq!(found.published.map(|p| p.value), Some(49.0));
}

/// Bounds are those of links between GPUs. Host memory, asked first, once left those of device memory at 0.
#[test]
fn host_memory_takes_no_bounds_from_device_memory() {
    let case = |mem: &str| {
        let text = format!("r0.{mem} > r7.{mem} by mpi@gpu0[all_reduce] x 1MiB");
        let text = if mem.starts_with("numa") { text.replace("@gpu0", "@numa0") } else { text };
        text.replace("r7.gpu0", "r7.gpu7").parse().unwrap()
    };
    let journal = run(WorldKind::Simulated("mi250x".into()), "Cray MPICH", Vec::new());
    let network = model();
    let view = RunView::new(&journal, Some(&network));
    assert_eq!(view.time_bounds(&case("numa0.paged")), None);
    // Two passes of the smallest copy, 8.7 us.
    let bounds = view.time_bounds(&case("gpu0.vram")).unwrap();
    assert!((bounds.latency.0 - 17_400.0).abs() < 100.0 && bounds.flow.0 > 0.0, "{bounds:?}");
}

/// The same node for ranks that see one GPU each, as `select_gpu` starts them.
fn masked(mut journal: Journal) -> Journal {
    let topology = &mut journal.topology;
    for gpu in &mut topology.gpus {
        gpu.pci = format!("0000:c{}:00.0", gpu.index).parse().unwrap();
    }
    for member in &mut journal.begin.ranks {
        member.gpu_identities = topology.gpu_identity(member.rank.0).into_iter().collect();
        member.gpus = vec![0];
    }
    topology.hidden.gpus = topology.gpus.split_off(1);
    let is_own = |end: LinkEnd| !matches!(end, LinkEnd::Gpu(gpu) if gpu > 0);
    let (own, hidden) = topology.links.drain(..).partition(|link| is_own(link.a) && is_own(link.b));
    (topology.links, topology.hidden.links) = (own, hidden);
    journal
}

#[test]
fn ranks_that_see_one_gpu_each_have_the_routes_of_the_node() {
    for (case, peak, route) in [
        ("r0.gpu0.vram > r1.gpu0.vram by mpi@gpu0[send-w64] x 16MiB", 200.0, "0-1"),
        // One link joins GPU 0 and GPU 2.
        ("r0.gpu0.vram > r2.gpu0.vram by mpi@gpu0[send-w64] x 16MiB", 50.0, "0-2"),
    ] {
        let outcomes = vec![sent(case, 30.0, "")];
        let journal = masked(run(WorldKind::Real, "CRAY MPICH version 8.1.28", outcomes));
        let network = Network::from_topology(&journal.topology.whole_node());
        let found = cell(&journal, &network);
        assert_eq!(found.ceiling, Some(peak), "{case}");
        assert_eq!(found.path.expect("a path").route, route);
    }
}

#[test]
fn a_discovered_node_has_the_peak_of_the_links_and_no_engine() {
    let journal = run(WorldKind::Real, "CRAY MPICH version 8.1.28", vec![sent(TO_GPU1, 49.0, "")]);
    let found = cell(&journal, &Network::from_topology(&journal.topology));
    assert_eq!((found.ceiling, found.bound), (Some(200.0), None));
    let path = found.path.expect("a path");
    assert_eq!(path.losses.len(), 1);
    assert!(path.losses[0].why.starts_with("packets, copies and message protocol"));
    assert_eq!(found.published.map(|p| p.value), Some(49.0));
}

#[test]
fn a_published_value_is_of_the_library_and_of_its_setting() {
    let published = |mpi: &str, env: &[(&str, &str)]| {
        let mut journal = run(WorldKind::Real, mpi, vec![sent(TO_GPU1, 49.0, "")]);
        journal.begin.env = env.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        let network = Network::from_topology(&journal.topology);
        cell(&journal, &network).published.map(|p| p.value)
    };
    let no_sdma = [("HSA_ENABLE_SDMA", "0")];
    assert_eq!(published("CRAY MPICH version 8.1.28", &no_sdma), Some(142.0));
    let ucx = published("Open MPI 5.0.11, pml ucx", &no_sdma);
    assert!(ucx.is_some_and(|value| (value - 142.235).abs() < 1e-3), "{ucx:?}");
    // No table has figures of an MPI over other transports.
    assert_eq!(published("MPICH 5.0.2, device ch4:ofi", &[]), None);
}

#[test]
fn a_small_message_of_a_gpu_goes_through_the_host() {
    let case = "r0.gpu0.vram > r5.gpu5.vram by mpi@gpu0[send-w64] x 8B";
    let engine =
        "cray-mpich: window of 64, by CPU loads and stores, through shared memory, a model";
    let world = WorldKind::Simulated("mi250x".into());
    let journal = run(world, "Cray MPICH, a model", vec![sent(case, 0.019, engine)]);
    let found = cell(&journal, &model());
    // The links between a GPU and the processor carry 36 GB/s.
    assert_eq!(found.ceiling, Some(36.0));
    assert_eq!(found.path.map(|p| p.route), Some("gpu0-numa3-numa0-gpu5".into()));
}

#[test]
fn ranks_that_call_two_gpus_alike_or_sit_on_other_nodes_have_no_ceiling() {
    let masked = "r0.gpu0.vram > r1.gpu0.vram by mpi@gpu0[send-w64] x 16MiB";
    let journal = run(WorldKind::Real, "MPICH 5.0.2", vec![sent(masked, 49.0, "")]);
    assert_eq!(cell(&journal, &model()).ceiling, None);
    let mut journal = run(WorldKind::Real, "MPICH 5.0.2", vec![sent(TO_GPU1, 49.0, "")]);
    journal.begin.ranks[1].node = 1;
    assert_eq!(cell(&journal, &model()).ceiling, None);
}

#[test]
fn collectives_have_the_cut_of_the_links_and_the_passes_of_copies() {
    let case = |op: &str| format!("r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[{op}] x 1MiB");
    let outcomes = ["broadcast", "all_reduce"]
        .map(|op| at_rate("ccl-collectives", &case(op), 40.0))
        .into_iter()
        .collect();
    let world = WorldKind::Simulated("mi250x".into());
    let journal = run(world, "Cray MPICH, a model", outcomes);
    let network = model();
    let report = run_report::build(&journal, Some(&network));
    let time = figure(&report, "ccl-collectives-time-vram");
    let FigureBody::Curves(curves) = &time.body else { panic!("{time:?}") };
    // The smallest copy between two GCDs takes 8.7 us; an all_reduce is two passes.
    let lines: BTreeMap<&str, f64> =
        curves.ceilings.iter().map(|(name, us)| (name.as_str(), *us)).collect();
    let level = |name: &str| (lines[name] * 10.0).round() / 10.0;
    assert_eq!(level("1 pass of the smallest copy"), 8.7);
    assert_eq!(level("2 passes of the smallest copy"), 17.4);
    assert!(time.finding.contains("17.4 us for 2 passes"), "{}", time.finding);
    let view = RunView::new(&journal, Some(&network));
    let found = view.cell(&view.entries[0], CaseQuantity::Payload);
    // All bytes leave or enter gpu0 and gpu1 over 5 links of 50 GB/s and 2 of 36 to the host.
    assert_eq!(found.ceiling, Some(322.0));
    // The same bytes as a time.
    let time = view.cell(&view.entries[0], CaseQuantity::StepUs);
    close(time.bound, 1048576.0 / 322.0 / 1e3);
}
