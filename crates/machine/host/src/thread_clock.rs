//! Time that the calling thread had a CPU, and time that it was ready without one.

use std::cell::OnceCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use pathline_schema::Ns;
use rustix::time::{ClockId, clock_gettime};

/// CPU time of the calling thread since its start, in ns, without time that the hypervisor stole if
/// the kernel knows it. A reading takes 0.1 to 0.6 us. The number of involuntary switches from
/// `getrusage` is no substitute: with lazy preemption a thread is switched at the end of the
/// reading itself, which occurred in five of six samples with a switch.
pub(crate) fn on_cpu_ns() -> Option<u64> {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).ok()?.checked_mul(1_000_000_000)?;
    seconds.checked_add(u64::try_from(time.tv_nsec).ok()?)
}

thread_local! {
    /// The open `schedstat` of the thread: opening it takes ten times as long as reading it.
    static SCHEDSTAT: OnceCell<Option<File>> = const { OnceCell::new() };
}

/// Time that the calling thread was ready to run without a CPU since its start. `None` if the
/// kernel does not count it.
pub(crate) fn run_delay() -> Option<Ns> {
    SCHEDSTAT.with(|file| {
        let file = file.get_or_init(|| File::open("/proc/thread-self/schedstat").ok()).as_ref()?;
        let mut text = [0; 80];
        let len = file.read_at(&mut text, 0).ok()?;
        parse_run_delay(text.get(..len)?)
    })
}

/// The second of three numbers: ns on a CPU, ns ready without one, time slices.
fn parse_run_delay(text: &[u8]) -> Option<Ns> {
    let text = std::str::from_utf8(text).ok()?;
    let delay: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Ns(delay as f64))
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::Duration;

    use crate::clock::ClockOrigin;

    use super::*;

    #[test]
    fn the_clock_of_a_thread_runs_while_it_works_and_stands_while_it_sleeps() {
        let begun = on_cpu_ns().unwrap();
        crate::clock::pause(Duration::from_millis(20));
        let slept = on_cpu_ns().unwrap();
        assert!(slept - begun < 5_000_000, "{} ns on a CPU", slept - begun);
        let wall = ClockOrigin::now();
        // At most the elapsed time, whatever else uses the CPU.
        while on_cpu_ns().unwrap() - slept < 2_000_000 {
            black_box(wall.ns());
        }
        assert!(wall.ns() >= 1_990_000);
    }

    #[test]
    fn two_readings_take_less_than_a_hundredth_of_the_shortest_sample() {
        // Best of batches, since interrupts only add to it. The shortest sample takes 500 us.
        let batch = || {
            let begun = ClockOrigin::now();
            for _ in 0..100 {
                black_box(on_cpu_ns());
            }
            begun.ns() / 100
        };
        let best = (0..200).map(|_| batch()).min().unwrap();
        assert!(2 * best < 5_000, "{best} ns a reading");
    }

    #[test]
    fn the_delay_is_the_second_number() {
        assert_eq!(parse_run_delay(b"4711 250 3\n"), Some(Ns(250.0)));
        assert_eq!(parse_run_delay(b"4711"), None);
        assert_eq!(parse_run_delay(b"a b c"), None);
        // It increases, if the kernel counts it.
        let (first, second) = (run_delay(), run_delay());
        assert_eq!(first.is_some(), second.is_some());
        assert!(first.zip(second).is_none_or(|(a, b)| b.0 >= a.0));
    }
}
