//! From how many rounds and processes on a path is slow, clear, confirmed or unsteady.

use super::*;
use crate::health::next_step::NextStep;
use crate::health::plan::{HealthProbe, SymmetryClass};

fn plan(tail: TailKind, paths: usize) -> HealthPlan {
    let probe = |n| HealthProbe {
        case: format!("gpu{n}.vram > gpu{}.vram by dma@gpu{n} x 64MiB", n + 1).parse().unwrap(),
        class: 0,
        label: String::new(),
    };
    HealthPlan {
        probes: (0..paths).map(probe).collect(),
        standing: paths,
        classes: vec![SymmetryClass { label: String::new(), paths, tail }],
        ..HealthPlan::default()
    }
}

/// What each round of each process takes of the speed of the first path; the others lose nothing.
fn monitor<'p>(plan: &'p HealthPlan, processes: &[Vec<f64>]) -> HealthMonitor<'p> {
    let mut monitor = HealthMonitor::new(plan, HealthSettings::default());
    for (process, losses) in processes.iter().enumerate() {
        for loss in losses {
            let mut times = vec![Some(1e6); plan.probes.len()];
            times[0] = Some(1e6 / (1.0 - loss));
            monitor.add_round(process, &times);
        }
    }
    monitor
}

const KINDS: [TailKind; 4] =
    [TailKind::GpuLink, TailKind::HostLink, TailKind::Local, TailKind::Latency];

/// 0.5 % between GPUs; of a margin of 2 % latencies get not more than half. Between GPUs one process in 250 is
/// slow, to the host one in 20, and by more than a fifth one in 50.
#[test]
fn margins_and_states_are_those_of_the_kind_of_path() {
    let settings = HealthSettings::default();
    assert_eq!(
        KINDS.map(|kind| (settings.margin_of(kind) * 1e4).round()),
        [50.0, 250.0, 300.0, 2000.0]
    );
    let wide = HealthSettings { margin: 0.02, ..settings };
    assert_eq!(
        KINDS.map(|kind| (wide.margin_of(kind) * 1e4).round()),
        [200.0, 1000.0, 1200.0, 5000.0]
    );
    for (loss, shares) in [(0.2, [0.004, 0.05, 0.004, 0.05]), (0.21, [0.004, 0.02, 0.004, 0.02])] {
        assert_eq!(KINDS.map(|kind| settings.state_share(kind, loss)), shares);
    }
}

/// 1.9^11 = 1165 to 1: slow. 10 rounds within the loss: clear. What alternates is neither, and fine after 48. More
/// than 24 rounds of a process show nothing new.
#[test]
fn rounds_of_a_process_decide_one_after_the_other() {
    let gpus = plan(TailKind::GpuLink, 4);
    for (kind, loss, rounds, expected) in [
        ("slow", 0.1, 10, "open, short"),
        ("slow", 0.1, 11, "slow, short"),
        ("beyond the margin", 0.0051, 11, "slow, short"),
        ("within the margin", 0.0049, 11, "clear, fine, short"),
        ("equal", 0.0, 9, "open, short"),
        ("equal", 0.0, 10, "clear, fine, short"),
        ("equal", 0.0, 23, "clear, fine, short"),
        ("equal", 0.0, 24, "clear, fine"),
        ("faster", -0.0051, 10, "clear, fine, short"),
        ("faster", -0.0051, 11, "clear, fast, fine, short"),
        ("faster within the margin", -0.0049, 11, "clear, fine, short"),
        ("alternating", f64::NAN, 47, "open"),
        ("alternating", f64::NAN, 48, "fine"),
    ] {
        let of = |n: usize| if loss.is_nan() { 0.1 * (n % 2) as f64 } else { loss };
        let monitor = monitor(&gpus, &[(0..rounds).map(of).collect()]);
        let series = monitor.series(0).next().unwrap();
        let states = [
            ("slow", series.is_slow()),
            ("clear", series.is_clear()),
            ("fast", series.is_fast()),
            ("fine", series.is_fine()),
            ("open", series.is_open()),
            ("short", series.is_short()),
        ];
        let held = states.iter().filter(|state| state.1).map(|state| state.0);
        assert_eq!(held.collect::<Vec<_>>().join(", "), expected, "{kind}, {rounds} rounds");
    }
}

/// A round is slow beyond the loss of 3 %, twice the margin of its kind (5 % to the host, 6 % of own memory), and
/// 3 x 1.4826 times what the rounds of its class are off by: 0.089 of 0.02.
#[test]
fn a_round_is_slow_beyond_loss_margin_and_noise() {
    for (tail, fine, slow) in [
        (TailKind::GpuLink, 0.0299, 0.0301),
        (TailKind::HostLink, 0.0499, 0.0501),
        (TailKind::Local, 0.0599, 0.0601),
        (TailKind::Latency, 0.399, 0.401),
    ] {
        let plan = plan(tail, 4);
        let rounds = |loss: f64| {
            let losses: Vec<f64> = (0..10).map(|n| if n < 3 { loss } else { 0.0 }).collect();
            monitor(&plan, &[losses.clone(), losses]).steadiness(0).rounds
        };
        assert_eq!((rounds(fine), rounds(slow)), ((0, 20), (6, 20)), "{tail:?}");
    }
    let two = plan(TailKind::GpuLink, 2);
    let quiet = monitor(&two, &[vec![0.0; 9]]);
    assert!((quiet.unseen_loss(0) - 0.03).abs() < 1e-9, "{}", quiet.unseen_loss(0));
    let noisy = (0..20).map(|n| 1.0 - (0.02 * f64::from(1 - n % 2 * 2)).exp()).collect();
    let noisy = monitor(&two, &[noisy, vec![0.0; 9]]);
    assert!((noisy.unseen_loss(0) - 0.0851).abs() < 1e-4, "{}", noisy.unseen_loss(0));
}

/// A million to ten each of 4 paths: 5.6 decades. A slow process is worth log10(0.95 / 0.004) = 2.4 of them between
/// GPUs, log10(0.95 / 0.05) = 1.3 to the host and 1.7 with a loss above a fifth; a fine one takes 1.3 back. What
/// is slow in a third of the processes is a state of them. The least loss of all slow processes decides what they are
/// worth.
#[test]
fn processes_confirm_or_excuse_a_slow_path() {
    // Slow and fine processes in their order, `t` with a loss of a tenth, and: confirmed, unstable, a state, in need
    // of more.
    for (tail, loss, processes, expected) in [
        (TailKind::GpuLink, 0.1, "ss", "needs"),
        (TailKind::GpuLink, 0.1, "sss", "confirmed"),
        (TailKind::GpuLink, 0.1, "s", "needs"),
        (TailKind::GpuLink, 0.1, "f", ""),
        (TailKind::GpuLink, 0.1, "sf", "unstable, needs"),
        (TailKind::GpuLink, 0.1, "sff", "state"),
        (TailKind::GpuLink, 0.1, "sffs", "unstable"),
        (TailKind::GpuLink, 0.1, "sfss", "confirmed"),
        (TailKind::GpuLink, 0.1, "fsss", "confirmed"),
        (TailKind::HostLink, 0.1, "ssss", "needs"),
        (TailKind::HostLink, 0.1, "sssss", "confirmed"),
        (TailKind::HostLink, 0.3, "sss", "needs"),
        (TailKind::HostLink, 0.3, "ssss", "confirmed"),
        (TailKind::HostLink, 0.3, "ssst", "needs"),
        (TailKind::HostLink, 0.3, "ssstt", "confirmed"),
        (TailKind::Local, 0.1, "sss", "confirmed"),
        (TailKind::Latency, 0.3, "ssss", "confirmed"),
    ] {
        let plan = plan(tail, 4);
        let lost = |c| [('s', loss), ('t', 0.1)].iter().find(|l| l.0 == c).map_or(0.0, |l| l.1);
        let process = |c: char| vec![lost(c); 12];
        let monitor = monitor(&plan, &processes.chars().map(process).collect::<Vec<_>>());
        let states = [
            ("confirmed", monitor.is_confirmed(0)),
            ("unstable", monitor.is_unstable(0)),
            ("state", monitor.is_process_state(0)),
            ("needs", monitor.needs_process(0)),
        ];
        let held = states.iter().filter(|state| state.1).map(|state| state.0);
        let held = held.collect::<Vec<_>>().join(", ");
        assert_eq!(held, expected, "{tail:?} {loss} {processes}");
        let slow = processes.matches(['s', 't']).count();
        assert_eq!(monitor.slow_processes(0), slow);
        assert_eq!(monitor.was_fine(0), processes.contains('f'));
        assert_eq!(monitor.suspects(), if slow > 0 { vec![0] } else { vec![] });
    }
}

/// A new process measures slow paths with five others of their class, and with twice as many as there are slow ones:
/// of 12 paths 1 + 5, 2 + 5, 3 + 6.
#[test]
fn a_new_process_measures_suspects_with_twice_as_many_peers() {
    let gpus = plan(TailKind::GpuLink, 12);
    for (slow, measured) in [(1, 6), (2, 7), (3, 9)] {
        let mut monitor = HealthMonitor::new(&gpus, HealthSettings::default());
        let times: Vec<_> = (0..12).map(|n| Some(if n < slow { 1.1e6 } else { 1e6 })).collect();
        (0..12).for_each(|_| monitor.add_round(0, &times));
        assert_eq!(monitor.next_step(), NextStep::FreshProcess((0..measured).collect()));
    }
}

/// A path to the host that is faster than its peers in its only process may show that these are slow. Nine rounds
/// are more than a hundred to one; a second process decides.
#[test]
fn a_fast_path_to_the_host_hides_slow_ones_in_one_process() {
    for (tail, paths, gain, processes, rounds, expected) in [
        (TailKind::HostLink, 4, 0.1, 1, 12, true),
        (TailKind::Latency, 4, 0.5, 1, 12, true),
        (TailKind::GpuLink, 4, 0.1, 1, 12, false),
        (TailKind::Local, 4, 0.1, 1, 12, false),
        (TailKind::HostLink, 4, 0.02, 1, 12, false),
        (TailKind::HostLink, 4, 0.1, 1, 8, true),
        (TailKind::HostLink, 4, 0.1, 1, 7, false),
        (TailKind::HostLink, 4, 0.1, 2, 12, false),
        (TailKind::HostLink, 1, 0.1, 1, 12, false),
    ] {
        let plan = plan(tail, paths);
        let monitor = monitor(&plan, &vec![vec![-gain; rounds]; processes]);
        assert_eq!(monitor.hides_others(0), expected, "{tail:?} {gain} {rounds}");
    }
}

/// Three processes of 10 equal rounds clear all paths, two none. Times that are no numbers, processes beyond the
/// greatest and a path that was measured alone are no evidence.
#[test]
fn only_rounds_with_peers_and_times_count() {
    let gpus = plan(TailKind::GpuLink, 4);
    assert_eq!(monitor(&gpus, &vec![vec![0.0; 10]; 2]).undecided(), [0, 1, 2, 3]);
    assert_eq!(monitor(&gpus, &vec![vec![0.0; 10]; 3]).undecided(), [0; 0]);
    let mut monitor = HealthMonitor::new(&gpus, HealthSettings::default());
    for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        monitor.add_round(0, &[Some(bad), Some(1e6), None, None]);
    }
    assert_eq!((monitor.rounds, monitor.series(1).count()), (4, 0));
    monitor.add_round(MAX_PROCESSES * 4, &[Some(1e6); 4]);
    assert_eq!((monitor.rounds, monitor.processes.len()), (4, 1));
    monitor.add_round(MAX_PROCESSES * 4 - 1, &[Some(1e6), Some(2e6), None, None]);
    assert_eq!((monitor.rounds, monitor.processes.len()), (5, MAX_PROCESSES * 4));
    let both = [0, 1].map(|probe| monitor.series(probe).next().unwrap().relative[0]);
    assert_eq!(both, [2f64.ln(), -2f64.ln()]);
}
