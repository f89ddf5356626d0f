//! Load of other processes on this host's CPUs: total CPU time less that of this run's own
//! processes.
//!
//! Each reading reads `/proc/stat` and the `stat` of every process. It is therefore taken at most
//! once a second, and at most every 400 times its cost: 0.25 % of a run.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use pathline_schema::{CpuSet, RunNote};

use crate::clock::ClockOrigin;
use crate::{files, thread_clock};

/// Minimum time between two readings after the first: 100 ticks of each CPU.
const WINDOW_NS: u64 = 1_000_000_000;
/// Minimum time from the start to the first reading.
const FIRST_WINDOW_NS: u64 = 500_000_000;
/// Minimum time between readings, as a multiple of the cost of one.
const COST_FACTOR: u64 = 400;
/// Assumed cost of a reading if a thread's clock is unreadable.
const DEFAULT_COST_NS: u64 = 20_000_000;
/// Ticks per second of the times in /proc: `USER_HZ`, 100 on every supported architecture of Linux.
const TICKS: f64 = 100.0;
/// Maximum number of processes to name.
const MAX_NAMED: usize = 3;
/// Maximum number of processes to read.
const MAX_PROCESSES: usize = 100_000;
/// Maximum number of launchers and shells above a run.
const MAX_ANCESTORS: usize = 16;
/// Process number of the parent of kernel threads.
const KTHREADD: u32 = 2;

/// Use of a CPU since the host started, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct CpuTicks {
    /// Used by processes, or by the kernel on their behalf; without interrupts.
    busy: u64,
    /// Stolen by the hypervisor.
    stolen: u64,
}

/// A process according to its `stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProcessStat {
    name: String,
    parent: u32,
    /// CPU time in ticks, including its ended children.
    ticks: u64,
}

/// Counters for comparison with the next reading.
#[derive(Debug, Clone, Default)]
struct LoadReading {
    at: u64,
    /// CPUs that this process may use.
    allowed: CpuTicks,
    /// All other CPUs of the host.
    others: CpuTicks,
    /// Ticks of this run's processes.
    own: u64,
    /// Ticks of other processes, by process number.
    foreign: BTreeMap<u32, (u64, String)>,
}

/// Means since the previous reading, in CPUs.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct MachineLoad {
    /// This run's processes.
    pub(crate) own: f64,
    /// Other processes on the CPUs that this process may use.
    pub(crate) foreign: f64,
    /// Everything on other CPUs of the host.
    pub(crate) elsewhere: f64,
    /// Stolen by the hypervisor from the CPUs that this process may use.
    pub(crate) stolen: f64,
    /// The other processes with the highest load: `rustc (pid 4711) 0.97`.
    pub(crate) named: Vec<String>,
}

/// Reads the load and keeps the previous reading for comparison.
pub(crate) struct LoadProbe {
    origin: ClockOrigin,
    proc: PathBuf,
    pid: u32,
    allowed: CpuSet,
    last: RefCell<LoadReading>,
    known: RefCell<Option<MachineLoad>>,
    /// CPU time of the last reading, in ns.
    cost_ns: Cell<u64>,
    readings: Cell<u64>,
    /// Whether a note has already named the other processes.
    noted: Cell<bool>,
}

impl LoadProbe {
    /// Starts to observe the host of this process, which may use the CPUs `allowed`.
    pub(crate) fn new(origin: ClockOrigin, allowed: CpuSet) -> Self {
        Self::at(origin, Path::new("/proc"), std::process::id(), allowed)
    }

    fn at(origin: ClockOrigin, proc: &Path, pid: u32, allowed: CpuSet) -> Self {
        let probe = Self {
            origin,
            proc: proc.to_owned(),
            pid,
            allowed,
            last: RefCell::default(),
            known: RefCell::default(),
            cost_ns: Cell::new(0),
            readings: Cell::new(0),
            noted: Cell::new(false),
        };
        let first = probe.reading();
        probe.last.replace(first);
        probe
    }

    /// The load since the previous reading, or since the one before if that is too recent. `None`
    /// if /proc does not report it.
    pub(crate) fn read(&self) -> Option<MachineLoad> {
        let since = self.origin.ns().saturating_sub(self.last.borrow().at);
        let window = if self.readings.get() < 2 { FIRST_WINDOW_NS } else { WINDOW_NS };
        if since >= window.max(self.cost_ns.get().saturating_mul(COST_FACTOR)) {
            let new = self.reading();
            let load = self.last.borrow().until(&new);
            self.known.replace(load);
            self.last.replace(new);
        }
        self.known.borrow().clone()
    }

    /// Estimated cost of all readings so far in ms, from the last one.
    pub(crate) fn cost_ms(&self) -> f64 {
        self.cost_ns.get() as f64 * self.readings.get() as f64 / 1e6
    }

    /// Names other processes once, when they first use more than
    /// [`busy_cpus`](pathline_schema::busy_cpus).
    pub(crate) fn new_note(&self) -> Option<RunNote> {
        let load = self.known.borrow();
        let load = load.as_ref().filter(|_| !self.noted.get())?;
        let cpus = self.allowed.len();
        if load.foreign < pathline_schema::busy_cpus(cpus) {
            return None;
        }
        self.noted.set(true);
        let named = match load.named.as_slice() {
            [] => "none of them can be seen from here; they may be of another container".to_owned(),
            named => named.join(", "),
        };
        let seconds = self.last.borrow().at as f64 / 1e9;
        let text = format!(
            "{seconds:.0} s after the start, other processes used {:.1} of {cpus} CPUs: {named}. \
             End them, or give this run other CPUs with taskset, and repeat it",
            load.foreign
        );
        Some(RunNote { code: "busy".to_owned(), subject: "run".to_owned(), text })
    }

    fn reading(&self) -> LoadReading {
        // CPU time: on a busy host a reading waits for a CPU, which is no cost to the host.
        let begun = thread_clock::on_cpu_ns();
        let mut reading = LoadReading { at: self.origin.ns(), ..LoadReading::default() };
        for (cpu, ticks) in cpu_ticks(&files::text(self.proc.join("stat")).unwrap_or_default()) {
            let sum =
                if self.allowed.contains(cpu) { &mut reading.allowed } else { &mut reading.others };
            sum.busy = sum.busy.saturating_add(ticks.busy);
            sum.stolen = sum.stolen.saturating_add(ticks.stolen);
        }
        let processes = processes(&self.proc);
        let own = own_family(&self.proc, &processes, self.pid);
        for (pid, process) in processes {
            let of_kernel = pid == KTHREADD || process.parent == KTHREADD;
            if own.contains(&pid) || of_kernel {
                reading.own = reading.own.saturating_add(process.ticks);
            } else {
                reading.foreign.insert(pid, (process.ticks, process.name));
            }
        }
        let cost =
            begun.zip(thread_clock::on_cpu_ns()).map(|(begun, end)| end.saturating_sub(begun));
        self.cost_ns.set(cost.unwrap_or(DEFAULT_COST_NS));
        self.readings.set(self.readings.get() + 1);
        reading
    }
}

impl LoadReading {
    /// Mean load between this reading and a later one.
    fn until(&self, later: &Self) -> Option<MachineLoad> {
        let seconds = later.at.checked_sub(self.at).filter(|&ns| ns > 0)? as f64 / 1e9;
        let cpus = |ticks: u64| ticks as f64 / TICKS / seconds;
        let grown = |of: fn(&Self) -> u64| of(later).saturating_sub(of(self));
        let (busy, own) = (grown(|r| r.allowed.busy), grown(|r| r.own));
        if busy == 0 && own == 0 && grown(|r| r.others.busy) == 0 {
            return None;
        }
        let mut named: Vec<(u64, u32, &str)> = later
            .foreign
            .iter()
            .map(|(&pid, (ticks, name))| {
                let before = self.foreign.get(&pid).map_or(0, |(ticks, _)| *ticks);
                (ticks.saturating_sub(before), pid, name.as_str())
            })
            // A process seen for the first time may be an old one of another namespace: its whole
            // life does not count.
            .filter(|&(ticks, ..)| ticks > 0 && cpus(ticks) < 4096.0)
            .collect();
        named.sort_by_key(|&(ticks, pid, _)| (std::cmp::Reverse(ticks), pid));
        let name = |&(ticks, pid, name): &(u64, u32, &str)| {
            format!("{name} (pid {pid}) {:.2}", cpus(ticks))
        };
        Some(MachineLoad {
            own: cpus(own),
            foreign: cpus(busy.saturating_sub(own)),
            elsewhere: cpus(grown(|r| r.others.busy)),
            stolen: cpus(grown(|r| r.allowed.stolen)),
            named: named.iter().take(MAX_NAMED).map(name).collect(),
        })
    }
}

/// Ticks of each CPU in a `/proc/stat`. Guest time is part of user time and not added again.
fn cpu_ticks(stat: &str) -> BTreeMap<u32, CpuTicks> {
    let line = |line: &str| {
        let (cpu, fields) = line.strip_prefix("cpu")?.split_once(' ')?;
        let fields: Vec<u64> =
            fields.split_whitespace().map(|f| f.parse().ok()).collect::<Option<_>>()?;
        let field = |at: usize| fields.get(at).copied().unwrap_or(0);
        // Fields: user, nice, system; idle, waiting for I/O, two kinds of interrupts; stolen.
        let busy = field(0).saturating_add(field(1)).saturating_add(field(2));
        Some((cpu.parse().ok()?, CpuTicks { busy, stolen: field(7) }))
    };
    stat.lines().filter_map(line).collect()
}

/// All visible processes.
fn processes(proc: &Path) -> BTreeMap<u32, ProcessStat> {
    let Ok(entries) = fs::read_dir(proc) else { return BTreeMap::new() };
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let pids = entries.filter_map(Result::ok).filter_map(pid).take(MAX_PROCESSES);
    let stat = |pid: u32| parse_stat(&files::text(proc.join(pid.to_string()).join("stat"))?);
    pids.filter_map(|pid| Some((pid, stat(pid)?))).collect()
}

/// The name of a process may contain any character, parentheses included.
fn parse_stat(text: &str) -> Option<ProcessStat> {
    let (head, fields) = text.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // The first field here is field 3 of proc(5): parent 4, user 14, system 15, those of ended
    // children.
    let number = |at: usize| fields.get(at - 3)?.parse::<u64>().ok();
    let parent = u32::try_from(number(4)?).ok()?;
    let ticks = [14, 15, 16, 17].into_iter().map(number).collect::<Option<Vec<_>>>()?;
    let ticks = ticks.into_iter().fold(0, u64::saturating_add);
    Some(ProcessStat { name: pathline_schema::plain_line(name).into_owned(), parent, ticks })
}

/// The processes of a run: its topmost process of the same program, all its descendants, and ranks
/// that a launcher started next to it with the same command line.
fn own_family(proc: &Path, processes: &BTreeMap<u32, ProcessStat>, pid: u32) -> BTreeSet<u32> {
    let parent = |pid: u32| processes.get(&pid).map(|p| p.parent).filter(|&parent| parent > 1);
    let program = |pid: u32| fs::read_link(proc.join(pid.to_string()).join("exe")).ok();
    let command = |pid: u32| files::bytes(proc.join(pid.to_string()).join("cmdline"), 1 << 20);
    let same = program(pid);
    let mut root = pid;
    for _ in 0..MAX_ANCESTORS {
        match parent(root).filter(|&above| same.is_some() && program(above) == same) {
            Some(above) => root = above,
            None => break,
        }
    }
    let line = command(root).filter(|line| !line.is_empty());
    let started_with = |&other: &u32| {
        other != root
            && parent(other).is_some()
            && parent(other) == parent(root)
            && program(other) == same
            && command(other) == line
    };
    let mut own = BTreeSet::from([pid, root]);
    if line.is_some() && same.is_some() {
        own.extend(processes.keys().copied().filter(started_with));
    }
    // A child may have a smaller number than its parent, so repeat until nothing is added.
    loop {
        let below = |(pid, p): (&u32, &ProcessStat)| {
            (own.contains(&p.parent) && !own.contains(pid)).then_some(*pid)
        };
        let new: Vec<u32> = processes.iter().filter_map(below).collect();
        if new.is_empty() {
            return own;
        }
        own.extend(new);
    }
}

/// The visible processes of this run on this host.
pub fn own_processes() -> BTreeSet<u32> {
    let proc = Path::new("/proc");
    own_family(proc, &processes(proc), std::process::id())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A /proc of two CPUs and these processes: number, parent, program and command, ticks.
    struct FakeProc {
        folder: tempfile::TempDir,
    }

    impl FakeProc {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap() }
        }
        fn path(&self) -> &Path {
            self.folder.path()
        }
        /// Sets user ticks of both CPUs, and stolen ticks of the first.
        fn cpus(&self, user: [u64; 2], stolen: u64) {
            let text = format!(
                "cpu  9 9 9 9 9 9 9 9\ncpu0 {} 1 2 500 0 77 88 {stolen} 0 0\n\
                 cpu1 {} 1 2 500 0 77 88 0 0 0\nintr 5\n",
                user[0], user[1]
            );
            fs::write(self.path().join("stat"), text).unwrap();
        }
        fn process(&self, pid: u32, parent: u32, command: &str, ticks: u64) {
            let folder = self.path().join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            let stat =
                format!("{pid} (a) b ({command})) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20");
            fs::write(folder.join("stat"), stat).unwrap();
            fs::write(folder.join("cmdline"), command).unwrap();
            let program = command.split(' ').next().unwrap();
            let _ = symlink(Path::new("/bin").join(program), folder.join("exe"));
        }
        fn probe(&self, pid: u32, cpus: &str) -> LoadProbe {
            LoadProbe::at(ClockOrigin::now(), self.path(), pid, cpus.parse().unwrap())
        }
        /// The load of the 2 s after the probe was made.
        fn load(&self, probe: &LoadProbe) -> MachineLoad {
            let later = probe.reading();
            let begun = LoadReading { at: 0, ..probe.last.borrow().clone() };
            begun.until(&LoadReading { at: 2_000_000_000, ..later }).unwrap()
        }
    }

    #[test]
    fn processes_of_the_run_are_no_foreign_load() {
        let fake = FakeProc::new();
        fake.cpus([1000, 1000], 0);
        // A shell, the run, its worker (number 7: numbers start again), a compiler below it; kernel
        // threads.
        let put = |ticks: u64| {
            fake.process(50, 1, "bash", 10);
            fake.process(60, 50, "pathline run", 5);
            fake.process(7, 60, "pathline __worker", ticks);
            fake.process(61, 7, "pathline __compile", 20);
            fake.process(2, 0, "kthreadd", 0);
            fake.process(9, 2, "kworker", ticks / 10);
        };
        put(100);
        let probe = fake.probe(7, "0-1");
        // 180 + 18 ticks of 200 in the 2 s are the worker's and the kernel's: 2 belong to another
        // process.
        put(280);
        fake.cpus([1100, 1100], 0);
        let load = fake.load(&probe);
        assert!((load.own - 0.99).abs() < 1e-9 && (load.foreign - 0.01).abs() < 1e-9, "{load:?}");
        assert!(load.named.is_empty(), "{load:?}");
        probe.known.replace(Some(load));
        assert_eq!(probe.new_note(), None);
    }

    #[test]
    fn other_processes_are_counted_and_named_once() {
        let fake = FakeProc::new();
        fake.cpus([1000, 1000], 50);
        let put = |spin: u64, run: u64| {
            fake.process(50, 1, "bash", 10);
            // A spinning process of the same shell and process group does not belong to the run.
            fake.process(51, 50, "spin", spin);
            fake.process(60, 50, "pathline run", run);
        };
        put(0, 0);
        let probe = fake.probe(60, "0-1");
        put(190, 150);
        fake.cpus([1190, 1150], 70);
        let load = fake.load(&probe);
        // 190 of 340 busy ticks in 2 s, and 20 stolen ones.
        let want = MachineLoad {
            own: 0.75,
            foreign: 0.95,
            elsewhere: 0.0,
            stolen: 0.1,
            named: vec!["a) b (spin) (pid 51) 0.95".to_owned()],
        };
        assert_eq!(load, want);
        probe.known.replace(Some(load));
        let text = probe.new_note().unwrap().text;
        assert!(text.contains("used 0.9 of 2 CPUs: a) b (spin) (pid 51)"), "{text}");
        assert_eq!(probe.new_note(), None);
    }

    #[test]
    fn load_on_cpus_that_the_run_may_not_use_is_kept_apart() {
        let fake = FakeProc::new();
        fake.cpus([1000, 1000], 0);
        fake.process(60, 50, "pathline run", 0);
        let probe = fake.probe(60, "0");
        fake.process(60, 50, "pathline run", 100);
        fake.cpus([1100, 1200], 0);
        let load = fake.load(&probe);
        assert_eq!((load.own, load.foreign, load.elsewhere), (0.5, 0.0, 1.0));
    }

    #[test]
    fn ranks_of_one_launcher_are_one_run_and_two_runs_of_one_shell_are_not() {
        let fake = FakeProc::new();
        fake.process(40, 1, "mpirun", 0);
        fake.process(41, 40, "pathline run --out a", 0);
        fake.process(42, 40, "pathline run --out a", 0);
        fake.process(43, 42, "pathline __worker", 0);
        fake.process(44, 40, "pathline run --out b", 0);
        let own = own_family(fake.path(), &processes(fake.path()), 41);
        assert_eq!(own, BTreeSet::from([41, 42, 43]));
    }

    #[test]
    fn readings_are_rare_and_cheap() {
        let probe = LoadProbe::new(ClockOrigin::now(), "0".parse().unwrap());
        for _ in 0..1000 {
            probe.read();
        }
        // The first reading, another after half a second, then one per second.
        let seconds = probe.origin.ns() / WINDOW_NS;
        assert!(probe.readings.get() <= 2 + seconds, "{}", probe.readings.get());
        assert!(probe.cost_ns.get() > 0);
        // After a reading of 50 ms the next one is 20 s away.
        probe.cost_ns.set(50_000_000);
        let until = 50_000_000 * COST_FACTOR;
        let before = probe.readings.get();
        probe.read();
        assert!(probe.readings.get() == before || probe.origin.ns() > until);
    }

    #[test]
    fn texts_that_are_no_stat_give_nothing() {
        assert_eq!(parse_stat("1 (a"), None);
        assert_eq!(parse_stat("1 (a) S"), None);
        assert_eq!(parse_stat(")("), None);
        assert!(cpu_ticks("cpu 1 2\ncpux 1 2\ncpu3 a\n").is_empty());
        let short = cpu_ticks("cpu3 1 2\n");
        assert_eq!(short.get(&3), Some(&CpuTicks { busy: 3, stolen: 0 }));
    }
}
