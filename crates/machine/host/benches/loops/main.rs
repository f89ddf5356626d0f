//! Compares the CPU loops of this crate with the same loops in C, in pairs. `cargo xtask loops`
//! compiles the C and starts this.
#![allow(unsafe_code, clippy::print_stdout)]

use std::env;
use std::ffi::{CStr, CString, c_void};
use std::process::ExitCode;
use std::time::Instant;

use pathline_hal::{CallResult, Host, TeamId, TeamWork};
use pathline_host::clock::ClockOrigin;
use pathline_host::loops::{self, CpuLoop, LoopSpan};
use pathline_host::{LiveHost, cpus};
use pathline_schema::{Bytes, CpuHow, CpuOp, CpuWork, MemKind, Topology};
use pathline_stats::{MedianInterval, SeriesSummary, median_interval};

/// Default number of pairs: the 95 % interval of the median lies between ranks 181 and 221 of 401.
const PAIRS: usize = 401;
/// Length of each side of a pair, in ns. Long compared with a clock reading (25 to 50 ns), short
/// compared with a time slice (1 to 4 ms), so that most pairs are free of preemption.
const SIDE_NS: f64 = 100_000.0;
/// Length of a sample of a run, in ns: `min_sample` of the settings.
const SAMPLE_NS: f64 = 500_000.0;
/// Pairs that select one of the two C forms.
const TRIALS: usize = 31;

type ReferenceLoop =
    unsafe extern "C" fn(*mut u8, *const u8, *const u8, len: usize, reps: usize) -> u64;

/// The compiled C library, which stays loaded.
struct CLibrary(*mut c_void);

impl CLibrary {
    fn open(path: &str) -> Result<Self, String> {
        let name = CString::new(path).map_err(|error| error.to_string())?;
        // SAFETY: a library of plain functions, without initialisers.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if !handle.is_null() {
            return Ok(Self(handle));
        }
        // SAFETY: after a failure it returns a text that lives until the next call.
        let reason = unsafe { CStr::from_ptr(libc::dlerror()) };
        Err(reason.to_string_lossy().into_owned())
    }

    fn find(&self, name: &str) -> Option<ReferenceLoop> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open; every function of the library has this type.
        unsafe {
            let at = libc::dlsym(self.0, name.as_ptr());
            (!at.is_null()).then(|| std::mem::transmute::<*mut c_void, ReferenceLoop>(at))
        }
    }
}

/// Choices of the command line.
struct BenchOptions {
    library: String,
    pairs: usize,
    sizes: Vec<Bytes>,
    /// Part of `triad-avx2`; all loops if empty.
    only: String,
}

impl BenchOptions {
    fn parse() -> Result<Self, String> {
        let kib = |k: u64| Bytes::kib(k);
        let sizes = [4, 16, 64].map(kib).to_vec();
        let mut options = Self { library: String::new(), pairs: PAIRS, sizes, only: String::new() };
        let mut args = env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--bench" => {}
                "--library" => options.library = value()?,
                "--only" => options.only = value()?,
                "--pairs" => options.pairs = value()?.parse().map_err(|e| format!("{arg}: {e}"))?,
                "--sizes" => {
                    let sizes = value()?;
                    let parsed = sizes.split(',').map(str::parse).collect::<Result<_, _>>();
                    options.sizes = parsed.map_err(|e| format!("{arg}: {e}"))?;
                }
                _ => {
                    return Err(format!("{arg} is no option: --library, --only, --pairs, --sizes"));
                }
            }
        }
        if options.sizes.iter().any(|s| s.0 == 0 || !s.0.is_multiple_of(4096)) {
            return Err("a size is a multiple of 4KiB".to_owned());
        }
        Ok(options)
    }
}

/// One loop at one size.
struct LoopPair<'a> {
    host: &'a LiveHost,
    team: TeamId,
    work: TeamWork,
    body: CpuLoop,
    span: LoopSpan,
}

impl LoopPair<'_> {
    /// ns of one pass of a C form.
    fn time_c(&self, form: ReferenceLoop, reps: u64) -> f64 {
        let LoopSpan { dst, src, other, len } = self.span;
        let begun = Instant::now();
        // SAFETY: three ranges of `len` bytes that only this function uses now.
        unsafe { form(dst, src, other, len, reps as usize) };
        begun.elapsed().as_nanos() as f64 / reps as f64
    }

    /// ns of one pass of the loop, called as a thread of a team calls it.
    fn time_loop(&self, reps: u64) -> f64 {
        let begun = Instant::now();
        // SAFETY: as above; `find` gave the loop.
        let sum = unsafe { self.body.passes(self.span, reps) };
        let took = begun.elapsed().as_nanos() as f64 / reps as f64;
        std::hint::black_box(sum);
        took
    }

    /// ns of one pass that a sample of a run gives.
    fn time_sample(&self, reps: u64) -> CallResult<f64> {
        let gate = self.host.gate_create()?;
        self.host.submit(self.team, gate, &TeamWork { reps, ..self.work })?;
        self.host.gate_release(gate)?;
        let result = self.host.reap(self.team)?;
        self.host.gate_destroy(gate)?;
        Ok(result.elapsed.0 / result.steps as f64)
    }

    /// Passes that last so long.
    fn reps(&self, form: ReferenceLoop, ns: f64) -> u64 {
        let pass = (0..5).map(|_| self.time_c(form, 100)).fold(f64::INFINITY, f64::min);
        ((ns / pass.max(1.0)) as u64).max(1)
    }
}

/// A ratio of rates over pairs, as a cell of the table.
fn ratio(first: &[f64], second: &[f64]) -> Option<MedianInterval> {
    let ratios: Vec<f64> = first.iter().zip(second).map(|(a, b)| a / b).collect();
    median_interval(&ratios, &vec![1; ratios.len()])
}

fn cell(c: &[f64], ours: &[f64]) -> String {
    let least = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
    ratio(c, ours).map_or(String::new(), |s| {
        format!("{:.3} [{:.3}, {:.3}] {:.3}", s.median, s.low, s.high, least(c) / least(ours))
    })
}

fn compare(
    pair: &LoopPair<'_>,
    forms: &[(&str, ReferenceLoop)],
    pairs: usize,
) -> CallResult<String> {
    let median = |form| {
        let reps = pair.reps(form, SIDE_NS);
        let all: Vec<f64> = (0..TRIALS).map(|_| pair.time_c(form, reps)).collect();
        SeriesSummary::of(&all).map_or(f64::INFINITY, |s| s.median)
    };
    let ranked = forms.iter().map(|&(name, form)| (median(form), name, form));
    let Some((_, name, form)) = ranked.min_by(|a, b| a.0.total_cmp(&b.0)) else {
        return Ok("no C".to_owned());
    };
    let reps = pair.reps(form, SIDE_NS);
    let (mut c, mut ours) = (Vec::new(), Vec::new());
    for nth in 0..pairs {
        // Whoever is first has the caches of the other: they take turns.
        if nth % 2 == 0 {
            c.push(pair.time_c(form, reps));
            ours.push(pair.time_loop(reps));
        } else {
            ours.push(pair.time_loop(reps));
            c.push(pair.time_c(form, reps));
        }
    }
    let loops = cell(&c, &ours);
    let reps = pair.reps(form, SAMPLE_NS);
    let (mut long, mut reported) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        long.push(pair.time_c(form, reps));
        reported.push(pair.time_sample(reps)?);
    }
    let rate = SeriesSummary::of(&c).map_or(0.0, |s| pair.work.bytes.as_f64() / s.median);
    Ok(format!("{name:4} {rate:6.1} | {loops} | {}", cell(&long, &reported)))
}

fn run(options: &BenchOptions) -> Result<(), Box<dyn std::error::Error>> {
    let library = CLibrary::open(&options.library)?;
    let none = |_: &Topology| Err("the benchmark registers no memory".to_owned());
    let host = LiveHost::new(&Topology::default(), ClockOrigin::now(), none);
    let numa = host.domains().first().ok_or("no domain")?.id;
    let team = host.team_create(numa, 1)?;
    let cpu = *host.team_cpus(team).as_slice().first().ok_or("no CPU")?;
    cpus::pin(cpu)?;
    println!(
        "on cpu{cpu}; {} pairs; ratio of rates over C: median [95 %] best/best",
        options.pairs
    );
    println!("loop | size | C form, payload GB/s | loop/C | sample of a run/C");
    for &size in &options.sizes {
        let src = host.alloc(numa, MemKind::Huge, Bytes(2 * size.0))?;
        let dst = host.alloc(numa, MemKind::Huge, size)?;
        host.fill(src, Bytes(2 * size.0), 1, false)?;
        host.fill(dst, size, 2, false)?;
        for at in (0..2 * size.0).step_by(8) {
            // Normal doubles, since C does not flush denormal ones to zero.
            // SAFETY: inside a buffer that nothing else uses.
            unsafe { ((src + at) as *mut f64).write((at % 1000) as f64) };
        }
        for op in [CpuOp::Copy, CpuOp::Read, CpuOp::Write, CpuOp::Triad] {
            for &how in CpuHow::ALL {
                let work = CpuWork { op, how };
                let Some(body) =
                    loops::find(work).filter(|_| work.to_string().contains(&options.only))
                else {
                    continue;
                };
                let name = work.to_string().replace('-', "_");
                let forms = ["loop", "turn"]
                    .into_iter()
                    .filter_map(|form| Some((form, library.find(&format!("{name}_{form}"))?)));
                let forms: Vec<_> = forms.collect();
                let span = LoopSpan {
                    dst: dst as *mut u8,
                    src: src as *const u8,
                    other: (src + size.0) as *const u8,
                    len: size.0 as usize,
                };
                let work = TeamWork {
                    work,
                    src,
                    dst,
                    bytes: size,
                    reps: 1,
                    isolated: false,
                    chase_steps: None,
                };
                let pair = LoopPair { host: &host, team, work, body, span };
                println!("{:16} | {size} | {}", work.work, compare(&pair, &forms, options.pairs)?);
            }
        }
        host.free(src)?;
        host.free(dst)?;
    }
    host.team_destroy(team)?;
    Ok(())
}

fn main() -> ExitCode {
    let outcome = BenchOptions::parse().map_err(Into::into).and_then(|options| run(&options));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("loops: {error}");
            ExitCode::FAILURE
        }
    }
}
