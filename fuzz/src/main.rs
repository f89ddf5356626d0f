//! `cargo xtask fuzz [--optimized] [--seconds N] [--jobs N] [--seed N] [--slow SECONDS] [TARGET..]`: each target
//! in separate processes, under a cap of memory and time. An input that breaks one is left in
//! `fuzz/artifacts`. `paste-` names all targets that begin so. `--jobs 0` takes all CPUs.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pathline_fuzz::{Fuzzer, TARGETS, Target, root};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Address space of a target's process: several times what any parser may take.
const MEMORY: u64 = 2 << 30;
/// The most CPU time that one input may take: other programs may have the rest of the wall's.
const SLOW: f64 = 2.0;

struct Options {
    seconds: f64,
    seed: u64,
    /// Processes that fuzz a target at the same time, with seeds from `seed` on.
    jobs: u64,
    /// CPU seconds that one input may take; more on a host that counts waiting as running.
    slow: f64,
    /// Run this target in this process.
    child: Option<String>,
    targets: Vec<String>,
}

fn options() -> Result<Options> {
    let (child, targets) = (None, Vec::new());
    let mut options = Options { seconds: 20.0, seed: 1, jobs: 1, slow: SLOW, child, targets };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--seconds" => options.seconds = value()?.parse().context("--seconds")?,
            "--seed" => options.seed = value()?.parse().context("--seed")?,
            "--jobs" => {
                options.jobs = match value()?.parse().context("--jobs")? {
                    0 => std::thread::available_parallelism()?.get() as u64,
                    jobs => jobs,
                };
            }
            "--slow" => options.slow = value()?.parse().context("--slow")?,
            "--child" => options.child = Some(value()?),
            name if name.ends_with('-') => {
                let named: Vec<_> = TARGETS.iter().filter(|t| t.name.starts_with(name)).collect();
                if named.is_empty() {
                    bail!("no target begins with {name}");
                }
                options.targets.extend(named.iter().map(|t| t.name.to_owned()));
            }
            name => options.targets.push(target(name)?.name.to_owned()),
        }
    }
    Ok(options)
}

fn target(name: &str) -> Result<&'static Target> {
    let names = || TARGETS.iter().map(|t| t.name).collect::<Vec<_>>().join(" ");
    TARGETS.iter().find(|t| t.name == name).with_context(|| format!("one of {}", names()))
}

fn main() -> ExitCode {
    match options().and_then(|options| match &options.child {
        Some(name) => fuzz(target(name)?, &options),
        None => all(&options),
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuzz: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the chosen targets one after the other, each in processes for itself.
fn all(options: &Options) -> Result<()> {
    let chosen: Vec<&Target> = TARGETS
        .iter()
        .filter(|t| options.targets.is_empty() || options.targets.iter().any(|n| n == t.name))
        .collect();
    let seconds = options.seconds / chosen.len() as f64;
    let limit = Duration::from_secs_f64(seconds + 10.0 * options.slow);
    let mut broken = Vec::new();
    let mut total = 0;
    for target in chosen {
        let begun = Instant::now();
        let mut children = Vec::new();
        for seed in (options.seed..).take(options.jobs as usize) {
            let mut child = Command::new(std::env::current_exe()?);
            child.args(["--child", target.name, "--seed", &seed.to_string()]);
            child.args(["--seconds", &seconds.to_string(), "--slow", &options.slow.to_string()]);
            children.push((seed, child.stdout(Stdio::piped()).spawn()?));
        }
        let (mut inputs, mut kinds) = (0, 0);
        for (seed, mut child) in children {
            let left = limit.saturating_sub(begun.elapsed());
            match outcome(&mut child, left)? {
                Ok([more, of_child]) => (inputs, kinds) = (inputs + more, kinds.max(of_child)),
                Err(how) => {
                    let input = artifact(target, seed);
                    eprintln!("{}: {how}; the input is {}", target.name, input.display());
                    broken.push(target.name);
                }
            }
        }
        let rate = inputs as f64 / seconds.max(1e-9);
        println!("{:17} {inputs:9} inputs, {rate:7.0}/s, {kinds:4} kinds of answers", target.name);
        total += inputs;
    }
    println!("{:17} {total:9} inputs, {:7.0}/s", "all", total as f64 / options.seconds.max(1e-9));
    if !broken.is_empty() {
        bail!("{} broke", broken.join(", "));
    }
    Ok(())
}

/// Waits for a child; its numbers of inputs and kinds of answers, or how it failed.
fn outcome(child: &mut Child, limit: Duration) -> Result<Result<[u64; 2], String>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            let mut text = String::new();
            if let Some(mut out) = child.stdout.take() {
                out.read_to_string(&mut text)?;
            }
            let mut numbers = text.split_whitespace().map(str::parse);
            return Ok(match (status.success(), numbers.next(), numbers.next()) {
                (true, Some(Ok(inputs)), Some(Ok(kinds))) => Ok([inputs, kinds]),
                _ => Err(status.to_string()),
            });
        }
        if begun.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            return Ok(Err("hangs".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Factor on the CPU time of an input. Two threads of the C calls look at their copies without sleeping, and the
/// library gives a copy up after a second.
fn patience(target: &Target) -> f64 {
    if target.name == "c-calls" { 4.0 } else { 1.0 }
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn artifact(target: &Target, seed: u64) -> PathBuf {
    root().join("fuzz/artifacts").join(format!("{}.{seed}", target.name))
}

/// Runs one target in this process until the time is up or it breaks.
fn fuzz(target: &'static Target, options: &Options) -> Result<()> {
    let cap = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
    setrlimit(Resource::As, cap).context("cannot cap memory")?;
    let path = artifact(target, options.seed);
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    // Written before each input is tried: what kills the process leaves its cause behind.
    let current = File::create(&path).with_context(|| path.display().to_string())?;
    let mut fuzzer = Fuzzer::new(target, options.seed);
    let mut first = fuzzer.corpus().to_vec().into_iter();
    let begun = Instant::now();
    let mut runs = 0_u64;
    while begun.elapsed().as_secs_f64() < options.seconds {
        let input = first.next().unwrap_or_else(|| fuzzer.next_input());
        current.set_len(input.len() as u64)?;
        current.write_all_at(&input, 0)?;
        let started = cpu_time();
        if catch_unwind(AssertUnwindSafe(|| fuzzer.run(input))).is_err() {
            bail!("{} panics", target.name);
        }
        let taken = cpu_time().saturating_sub(started);
        if taken.as_secs_f64() > options.slow * patience(target) {
            bail!("{} takes {:.1} s", target.name, taken.as_secs_f64());
        }
        runs += 1;
    }
    std::fs::remove_file(&path)?;
    // For the process that started this one.
    println!("{runs} {}", fuzzer.kinds());
    Ok(())
}
