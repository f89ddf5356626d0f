//! Development tasks: `cargo xtask TASK`.

mod schema;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

/// One task.
struct Task {
    name: &'static str,
    what: &'static str,
    run: fn(&Path, &[String]) -> Result<()>,
}

/// Every task, in display order.
const TASKS: &[Task] = &[
    Task { name: "ci", what: "everything that CI runs (.ci/run)", run: ci },
    Task {
        name: "test",
        what: "[OPTIONS of cargo nextest run]: all tests; with Cargo's runner where nextest is missing",
        run: test,
    },
    Task { name: "tidy", what: "the style rules that can be tests", run: tidy::run },
    Task {
        name: "names",
        what: "[--list]: shares of one-word and of repeated type names",
        run: tidy::names::run,
    },
    Task {
        name: "size",
        what: "[--lower] [--circles]: lines, circles, words, with the most that each may be",
        run: tidy::size::run,
    },
    Task { name: "bless", what: "record snapshots anew; look at the diff", run: bless },
    Task { name: "schema", what: "print an example of every journal message", run: schema::run },
    Task {
        name: "loops",
        what: "[--only LOOP] [--sizes S,..] [--pairs N]: CPU loops against the same in C",
        run: loops,
    },
    Task {
        name: "messages",
        what: "[--launches N] [--cpus A,B] MPIRUN|UCX..: 8 B between processes against C",
        run: messages,
    },
    Task {
        name: "health",
        what: "[--runs N]: false alarms and power of `pathline health`, as Markdown tables",
        run: health,
    },
    Task {
        name: "mutants",
        what: "[OPTIONS of cargo mutants]: small changes of the core that no test notices",
        run: mutants,
    },
    Task {
        name: "fuzz",
        what: "[--optimized] [--seconds N] [--jobs N] [TARGET..]: mutate inputs of parsers",
        run: fuzz,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = args.split_first().map_or(("", &[][..]), |(n, rest)| (n.as_str(), rest));
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        for task in TASKS {
            eprintln!("cargo xtask {:8} {}", task.name, task.what);
        }
        return ExitCode::from(2);
    };
    match (task.run)(&root(), rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

fn ci(root: &Path, _args: &[String]) -> Result<()> {
    call(Command::new(root.join(".ci/run")).current_dir(root))
}

/// Every test but this package's runs under nextest: next to xtask, which links what procedural macros
/// are made of, Cargo would build all of these, and what uses them, twice.
fn test(root: &Path, args: &[String]) -> Result<()> {
    let crates = ["--locked", "--workspace", "--exclude", "xtask"];
    let has_nextest =
        cargo(root, &["nextest", "--version"]).output().is_ok_and(|o| o.status.success());
    if has_nextest {
        call(cargo(root, &["nextest", "run"]).args(crates).args(args))?;
    } else if args.iter().any(|arg| arg == "--no-run") {
        call(cargo(root, &["test", "--no-run"]).args(crates))?;
    } else {
        eprintln!(
            "test: no cargo-nextest: Cargo runs one crate after the other, and MPI's tests last"
        );
        let spinning = ["mpi::", "ucx::tests"];
        let skip = spinning.iter().flat_map(|name| ["--skip", name]);
        call(cargo(root, &["test", "--no-fail-fast"]).args(crates).arg("--").args(skip))?;
        let alone = ["--tests", "--", "--test-threads", "1"];
        call(cargo(root, &["test"]).args(crates).args(alone).args(spinning))?;
    }
    let own = ["test", "--locked", "--quiet", "--package", "xtask"];
    let is_run = !args.iter().any(|arg| arg == "--no-run");
    if is_run { call(&mut cargo(root, &own)) } else { Ok(()) }
}

/// Changes the core in small ways, one at a time (`.cargo/mutants.toml` names its files), and runs the
/// tests of the crate: a change that survives is behaviour that no test holds.
fn mutants(root: &Path, args: &[String]) -> Result<()> {
    call(cargo(root, &["mutants", "--workspace"]).args(args))
}

fn bless(root: &Path, args: &[String]) -> Result<()> {
    let mut test = cargo(root, &["test", "--workspace", "--no-fail-fast"]);
    call(test.args(args).env("INSTA_UPDATE", "always"))
}

/// Compiles the C loops for this processor and compares the host's with them, in pairs.
fn loops(root: &Path, args: &[String]) -> Result<()> {
    let folder = root.join("target/loops");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let library = folder.join("reference.so");
    let mut compile = Command::new("cc");
    // Without the last option gcc makes calls of memcpy and memset of two of the loops.
    compile.args(["-O3", "-march=native", "-fno-tree-loop-distribute-patterns"]);
    compile.args(["-shared", "-fPIC", "-o"]).arg(&library);
    call(compile.arg(root.join("crates/machine/host/benches/loops/reference.c")))?;
    let mut run =
        cargo(root, &["bench", "--quiet", "-p", "pathline-host", "--bench", "loops", "--"]);
    call(run.arg("--library").arg(&library).args(args))
}

/// Compiles round trips in C for each library and compares the ports' with them, in pairs. A library
/// is named by its `mpirun`, which has `mpicc` next to it, or by UCX's folder of `include` and `lib`.
fn messages(root: &Path, args: &[String]) -> Result<()> {
    let folder = root.join("target/messages");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let sources = root.join("crates/machine/transport/benches/messages");
    let named = args.iter().position(|arg| Path::new(arg).exists()).unwrap_or(args.len());
    let (options, libraries) = args.split_at(named);
    if libraries.is_empty() {
        bail!("name an mpirun, or UCX's folder of include and lib");
    }
    for (nth, named) in libraries.iter().enumerate() {
        let place = Path::new(named);
        let library = folder.join(format!("reference{nth}.so"));
        let is_ucx = place.is_dir();
        let mut compile = if is_ucx {
            let (include, lib) = (place.join("include"), place.join("lib"));
            let mut cc = Command::new("cc");
            cc.arg(sources.join("ucx.c")).arg("-I").arg(include).arg("-L").arg(&lib);
            cc.args(["-lucp", "-lucs"])
                .arg(format!("-Wl,-rpath,{0},-rpath-link,{0}", lib.display()));
            cc
        } else {
            let mut cc = Command::new(place.with_file_name("mpicc"));
            cc.arg(sources.join("mpi.c"));
            cc
        };
        call(compile.args(["-O3", "-march=native", "-shared", "-fPIC", "-o"]).arg(&library))?;
        println!("{named}:");
        let mut run =
            cargo(root, &["bench", "--quiet", "-p", "pathline-transport", "--bench", "messages"]);
        run.args(["--", "--library"]).arg(&library);
        run.arg("--socket").arg(folder.join(format!("socket{nth}"))).args(options);
        if is_ucx {
            run.env("PATHLINE_UCX", place.join("lib"));
        } else {
            run.arg("--mpirun").arg(place);
        }
        call(&mut run)?;
    }
    Ok(())
}

/// Simulates healthy and damaged nodes with noise of real runs. 300,000 runs take some minutes.
fn health(root: &Path, args: &[String]) -> Result<()> {
    let mut run =
        cargo(root, &["bench", "--quiet", "-p", "pathline-diagnose", "--bench", "health", "--"]);
    call(run.args(args))
}

fn fuzz(root: &Path, args: &[String]) -> Result<()> {
    let is_optimized = |arg: &&String| arg.as_str() == "--optimized";
    // What tests have built serves short runs; a long one pays for a build with optimisation and checks.
    let profile = if args.iter().any(|arg| is_optimized(&arg)) { "fuzz" } else { "test" };
    let mut run =
        cargo(root, &["run", "--quiet", "--profile", profile, "--package", "pathline-fuzz", "--"]);
    call(run.args(args.iter().filter(|arg| !is_optimized(arg))))
}

fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(args).current_dir(root);
    cargo
}

fn call(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
