//! Timeouts of the steps of a case.

use pathline_schema::{Bytes, CHASE_STEPS, Case, Flow, IoSpec, Mover, Ns, RunSettings};

use crate::files;
use crate::needs::needs_runtime;
use crate::pool;
use crate::task::TaskStep;

/// Minimum for any step: a first touch of a sleeping GPU, a machine that swaps.
const MIN_DEADLINE: Ns = Ns::secs(20.0);
/// Compiling and loading a kernel: hipRTC takes seconds for one, and several take turns.
const COMPILE: Ns = Ns::secs(60.0);
/// A case's time budget is a soft limit: a visit is not interrupted, and calibration is not
/// counted.
const BUDGETS: f64 = 10.0;
/// Bytes per ns, 0.25 GB/s: a tenth of the slowest known path of whole buffers, pages that migrate
/// one fault at a time (2.8 GB/s on MI250X).
const SLOWEST: f64 = 0.25;
/// Bytes per ns of files that are written before they are read: 50 MB/s.
const SLOWEST_DISK: f64 = 0.05;
/// Creating or removing a small file, before a sample and in it: a parallel file system under load.
const SLOWEST_NAME: Ns = Ns::ms(5.0);
/// A dependent step; the slowest known takes 1.2 us (a GPU that reads host memory).
const SLOWEST_STEP: Ns = Ns::us(4.0);

/// Timeout of a step of a case, for any state of a working machine. Generous on purpose: cutting a
/// good case costs more than waiting for a hung one.
pub fn deadline(case: &Case, doing: TaskStep, settings: &RunSettings) -> Ns {
    // Passes over all of its memory.
    let passes = match doing {
        // Fill, two to three passes to calibrate, then until its samples settle.
        TaskStep::Bind => 6.0,
        // Once more before a visit, and a spoil before one that may be the last.
        TaskStep::Visit => 7.0,
        // Spoil, write, compare.
        TaskStep::Verify => 3.0,
    };
    let stored: u64 =
        pool::buffers(case).map(|(_, Bytes(bytes))| bytes).fold(0, u64::saturating_add);
    let moved: u64 = case.flows().map(|flow| flow.bytes.0).fold(0, u64::saturating_add);
    let through = (stored.saturating_add(moved)) as f64 / SLOWEST * passes;
    let chased: f64 = case.flows().map(|flow| steps(flow) as f64 * SLOWEST_STEP.0 * passes).sum();
    let laid = if doing == TaskStep::Bind { laid_time(case) } else { 0.0 };
    let named: f64 =
        case.flows().filter_map(|flow| flow.by.meta()).map(|m| m.inodes() as f64).sum();
    let named = named * SLOWEST_NAME.0;
    let budgets = case.flows().filter(|flow| flow.by.is_on_files()).map(|_| files::BUDGETS);
    let budget = settings.case_budget.0 * budgets.fold(1.0, f64::max);
    let compiles = doing == TaskStep::Bind && needs_runtime(case);
    let compile = if compiles { COMPILE } else { Ns::ZERO };
    Ns(MIN_DEADLINE.0 + budget * BUDGETS + compile.0 + through + chased + laid + named)
}

/// Maximum time in which the files of a case are created, written and removed.
pub fn files_time(case: &Case) -> Ns {
    let names = case.flows().filter_map(|flow| flow.by.meta()).map(|m| m.inodes() as f64);
    Ns(laid_time(case) + names.sum::<f64>() * SLOWEST_NAME.0)
}

/// Maximum time in which the files of a case are written.
fn laid_time(case: &Case) -> f64 {
    case.flows().filter_map(|flow| flow.by.io()).map(laid_out).sum::<f64>() / SLOWEST_DISK
}

/// Bytes of the files that I/O needs.
fn laid_out(io: &IoSpec) -> f64 {
    io.span.as_f64() * io.file_count() as f64
}

fn steps(flow: &Flow) -> u64 {
    match flow.by {
        // A part of the chain at a time, for samples of some milliseconds.
        Mover::Kernel { .. } if flow.by.is_chase() => CHASE_STEPS,
        _ => flow.by.effect(flow.bytes).chain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::default_settings;

    fn secs(case: &str, doing: TaskStep) -> f64 {
        deadline(&case.parse().unwrap(), doing, &default_settings(Bytes::gib(1))).as_secs()
    }

    #[test]
    fn a_deadline_follows_from_what_is_done() {
        // 20 s and ten budgets of 0.25 s.
        let base = 22.5;
        let tiny = "gpu0.vram > gpu1.vram by dma@gpu0 x 16B isolated";
        assert!((secs(tiny, TaskStep::Visit) - base).abs() < 0.01);
        // 1 GB of source, as much of destination, and as much that moves: 3e9 B at 0.25 GB/s, seven
        // times, are 84 s.
        let copy = "gpu0.vram > gpu1.vram by dma@gpu0 x 1000000000B";
        assert!(
            (secs(copy, TaskStep::Visit) - base - 84.0).abs() < 0.01,
            "{}",
            secs(copy, TaskStep::Visit)
        );
        assert!((secs(copy, TaskStep::Verify) - base - 36.0).abs() < 0.01);
        let kernel = "gpu0.vram > gpu1.vram by kernel@gpu0[copy-w16-u4-b256-g2sm] x 16B";
        assert!((secs(kernel, TaskStep::Bind) - base - 60.0).abs() < 0.01);
        assert!((secs(kernel, TaskStep::Visit) - base).abs() < 0.01);
        let huge = "gpu0.vram > gpu1.vram by dma@gpu0 x 18446744073709551615B";
        assert!(secs(huge, TaskStep::Bind).is_finite());
    }

    /// A file of 1 GiB for each of 2 threads at 50 MB/s, 21.5 s each, before the case; 5 ms a name; 4 us a
    /// step of a chain; ten budgets, which are longer for files. Memory and payload pass at 0.25 GB/s.
    #[test]
    fn files_names_and_chains_take_their_time() {
        let gib = Bytes::gib(1).as_f64();
        let (laid, pass) = (gib / 0.05 / 1e9, |bytes: f64| bytes / 0.25 / 1e9);
        let file =
            "store0.file > numa0.huge by uring@numa0[seq-read,direct,own,1GiB,q1,n1,t2] x 1MiB";
        let slots = secs(file, TaskStep::Verify) - 20.0 - 10.0 * 0.25 * files::BUDGETS;
        assert!(
            (secs(file, TaskStep::Bind) - 2.0 * laid - secs(file, TaskStep::Verify) - slots).abs()
                < 0.01
        );
        assert!((slots - 3.0 * pass((1 << 20) as f64 * 3.0)).abs() < 0.01, "{slots}");
        let time = |text: &str| files_time(&text.parse().unwrap()).as_secs();
        assert!((time(file) - 2.0 * laid).abs() < 0.01);
        // 2 threads with 4 folders of 256 files each.
        let names = "numa0.reg > store0.file by meta@numa0[stat,own,d4,f256,t2] x 1B";
        let inodes = 2.0 * 4.0 * 256.0 + 2.0 * 4.0;
        assert!((time(names) - inodes * 5e-3).abs() < 0.1, "{}", time(names));
        let most = secs(names, TaskStep::Visit) - 20.0 - 10.0 * 0.25 * files::BUDGETS;
        assert!((most - time(names)).abs() < 0.01, "{most}");
        // Seven passes over the chain; a GPU follows a part of it.
        let chase = "numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x 1GiB";
        let steps = chase.parse::<Case>().unwrap().timed[0].by.effect(Bytes::gib(1)).chain as f64;
        let visit = secs(chase, TaskStep::Visit) - 22.5 - 7.0 * pass(2.0 * gib);
        assert!((visit - 7.0 * steps * 4e-6).abs() < 0.01, "{visit}");
        let chase = "gpu1.vram > gpu0.reg by kernel@gpu0[chase-w8-u1-b1-g1] x 1GiB";
        let visit = secs(chase, TaskStep::Visit) - 22.5 - 7.0 * pass(2.0 * gib);
        assert!((visit - 7.0 * CHASE_STEPS as f64 * 4e-6).abs() < 0.01, "{visit}");
        // Only what needs a runtime compiles.
        let host = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1B";
        assert!((secs(host, TaskStep::Bind) - 22.5).abs() < 0.01);
    }
}
