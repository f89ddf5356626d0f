//! Every operation of NCCL or RCCL on the GPUs that are here, at several sizes and cadences, with
//! every byte compared and the time of each in the columns of nccl-tests.
//!
//!     cargo run --release -p pathline-live --example ccl_check -- [--gpus N] [--max BYTES]
//!         [--only WORD] [--unregistered] [--library PATH]

mod checks;

use std::io::Write;

use checks::{Alone, Check, Memory, lay, wrong};
use pathline_gpu::{CompileMode, LibraryRequest, runtime};
use pathline_hal::{CallResult, ExchangeId, Machine, RepeatMode, TransportPort};
use pathline_runner::live::open;
use pathline_schema::{Bytes, MemKind, Place, Topology, Unit};
use pathline_transport::{CclAsked, open_ccl};

const PACES: [(RepeatMode, &str); 3] = [
    (RepeatMode::Streaming, "streaming"),
    (RepeatMode::Isolated, "isolated"),
    (RepeatMode::Graph, "graph"),
];

struct Args {
    gpus: usize,
    max: u64,
    only: String,
    asked: CclAsked,
}

fn args() -> Args {
    let mut args =
        Args { gpus: usize::MAX, max: 64 << 20, only: String::new(), asked: CclAsked::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_default();
        match word.as_str() {
            "--gpus" => args.gpus = value().parse().unwrap_or(usize::MAX),
            "--max" => args.max = value().parse::<Bytes>().map_or(args.max, |b| b.0),
            "--only" => args.only = value(),
            "--unregistered" => args.asked.register = false,
            "--library" => args.asked.library = Some(value().into()),
            _ => {}
        }
    }
    args
}

/// One bound exchange: warmed, timed and compared. Median of the time of a repetition, in us.
fn measure(
    port: &mut dyn TransportPort,
    memory: &Memory<'_>,
    check: &Check,
    pace: RepeatMode,
) -> CallResult<(f64, String, String)> {
    let (id, offer) = port.bind(&check.parts, pace)?;
    let outcome = bound(port, id, &offer, memory, check);
    let engine = port.engine(id);
    let released = port.release(id);
    let (us, verdict) = outcome?;
    released.map(|()| (us, verdict, engine))
}

fn bound(
    port: &mut dyn TransportPort,
    id: ExchangeId,
    offer: &[u8],
    memory: &Memory<'_>,
    check: &Check,
) -> CallResult<(f64, String)> {
    port.join(id, &[offer.to_vec()])?;
    // Of parts that run at once the slowest counts; isolated repetitions are one time each.
    let mut once = |reps: u64| -> CallResult<f64> {
        let times = port.run(id, reps, &Alone)?;
        let sums = times.iter().map(|t| t.iter().sum::<f64>());
        Ok(sums.fold(0.0, f64::max) / 1e3 / reps as f64)
    };
    once(3)?;
    let about = once(5)?;
    // 10 ms a sample.
    let reps = (10_000.0 / about.max(0.1)).clamp(3.0, 500.0) as u64;
    once(reps)?;
    let mut samples = (0..7).map(|_| once(reps)).collect::<CallResult<Vec<f64>>>()?;
    samples.sort_by(f64::total_cmp);
    lay(memory, check)?;
    once(1)?;
    let verdict = wrong(memory, check)?.unwrap_or_else(|| "ok".to_owned());
    Ok((samples[samples.len() / 2], verdict))
}

fn all(
    out: &mut dyn Write,
    machine: &Machine,
    port: &mut dyn TransportPort,
    args: &Args,
) -> CallResult<u32> {
    let driver = machine.driver()?;
    let n = machine.topology.gpus.len().min(args.gpus);
    let most = args.max.max(8 * n as u64);
    let allocate = || -> CallResult<Vec<u64>> {
        let place = |gpu: usize| Place::new(Unit::Gpu(gpu as u32), MemKind::Vram);
        (0..n).map(|gpu| driver.alloc(place(gpu), Bytes(most))).collect()
    };
    let gpus = (0..n as u32).collect();
    let memory = Memory { driver, gpus, a: allocate()?, b: allocate()? };
    let mut failures = 0;
    let _ = writeln!(
        out,
        "{:24} {:>10} {:10} {:>10} {:>9} {:>9}  bytes  engine",
        "operation", "size", "cadence", "us", "algbw", "busbw"
    );
    for bytes in [8, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 1 << 30] {
        if bytes > args.max {
            break;
        }
        for check in checks::all(&memory, bytes) {
            if !check.name.contains(&args.only) {
                continue;
            }
            for (pace, cadence) in PACES {
                let size = Bytes(check.parts[0].bytes).to_string();
                let name = &check.name;
                match measure(port, &memory, &check, pace) {
                    Ok((us, verdict, engine)) => {
                        failures += u32::from(verdict != "ok");
                        let rate = check.payload as f64 / us / 1e3;
                        let bus = rate * check.factor;
                        let _ = writeln!(
                            out,
                            "{name:24} {size:>10} {cadence:10} {us:>10.2} {rate:>9.2} {bus:>9.2}  {verdict:5}  {engine}"
                        );
                    }
                    Err(error) => {
                        failures += 1;
                        let _ = writeln!(out, "{name:24} {size:>10} {cadence:10} {error}");
                    }
                }
            }
        }
    }
    memory.a.iter().chain(&memory.b).try_for_each(|&address| driver.free(address))?;
    Ok(failures)
}

fn main() -> std::process::ExitCode {
    let args = args();
    let out = &mut std::io::stdout();
    let topology = Topology::default();
    let mut asked = LibraryRequest::new(CompileMode::InProcess);
    asked.named.extend(std::env::var_os("PATHLINE_HIP").map(|path| ("hip".into(), path.into())));
    let runtime = runtime(&topology, &asked);
    let port = open_ccl(&runtime, &args.asked);
    let opened = open(topology, runtime);
    let mut port = match port {
        Ok(port) => port,
        Err(why) => {
            let _ = writeln!(out, "{why}");
            return std::process::ExitCode::from(3);
        }
    };
    let _ = writeln!(out, "{}", port.library());
    match all(out, &opened.machine, &mut *port, &args) {
        Ok(0) => std::process::ExitCode::SUCCESS,
        Ok(failures) => {
            let _ = writeln!(out, "{failures} failures");
            std::process::ExitCode::from(1)
        }
        Err(error) => {
            let _ = writeln!(out, "{error}");
            std::process::ExitCode::from(2)
        }
    }
}
