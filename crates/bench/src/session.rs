//! A run from its first line to its last: plan, journal, resume, time limit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use pathline_hal::{Machine, Work};
use pathline_schema::{
    Begin, Bytes, Case, CpuHow, CpuOp, CpuWork, End, GpuFacts, Journal, JournalError, Message, Ns,
    Outcome, SCHEMA_VERSION, Settings, Skip, Unit,
};

use crate::engine::{Engine, Interrupt, Sink};
use crate::lane::Pool;
use crate::plan::{Entry, Plan};
use crate::watch::Watch;

/// Why a run could not be written down or taken up again.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The journal cannot be written.
    #[error("{}: {source}; choose another place with --out", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The journal to resume cannot be read.
    #[error("{}: {source}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// The reader's reason.
        source: JournalError,
    },
    /// The journal to resume is of another machine.
    #[error("{}: was measured on {there}, and this is {here}; figures of two machines do not belong into one journal", path.display())]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// World and host of the journal.
        there: String,
        /// World and host of this run.
        here: String,
    },
}

/// What happens in a run, for whoever shows it.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A case has its outcome.
    Outcome {
        /// The outcome.
        outcome: &'a Outcome,
        /// Cases that have one, of this plan.
        done: usize,
        /// Cases of this plan.
        total: usize,
    },
    /// A line other than an outcome was written.
    Message(&'a Message),
}

/// An open journal with what it already holds.
pub struct Session {
    path: PathBuf,
    file: File,
    done: BTreeSet<Case>,
    carried: BTreeMap<Case, pathline_schema::Sampled>,
    resumed: bool,
}

/// What a run is told beside its plan.
#[derive(Debug, Clone)]
pub struct Header {
    /// Name of this host.
    pub host: String,
    /// Version of pathline.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// Environment switches that were set.
    pub env: BTreeMap<String, String>,
    /// What the engine is told.
    pub settings: Settings,
}

impl Session {
    /// Starts a new journal at `path`; a file that is there is replaced.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path) -> Result<Self, SessionError> {
        let file = File::create(path).map_err(|e| at(path, e))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            done: BTreeSet::new(),
            carried: BTreeMap::new(),
            resumed: false,
        })
    }

    /// Opens a journal to go on with: cases that have an outcome are not measured again, samples
    /// of a case in flight are kept, and a torn last line is cut off.
    ///
    /// # Errors
    /// The file cannot be read, is no journal, or is of another machine.
    pub fn resume(path: &Path, machine: &Machine, host: &str) -> Result<Self, SessionError> {
        let file = File::open(path).map_err(|e| at(path, e))?;
        let journal = Journal::read(BufReader::new(file))
            .map_err(|source| SessionError::Journal { path: path.to_owned(), source })?;
        let same_host = journal.begin.host == host || machine.world != pathline_schema::World::Real;
        if journal.begin.world != machine.world || !same_host {
            let name = |world: &pathline_schema::World, host: &str| match world {
                pathline_schema::World::Real => format!("host {host}"),
                pathline_schema::World::Simulated(name) => format!("simulated machine {name}"),
            };
            return Err(SessionError::OtherMachine {
                path: path.to_owned(),
                there: name(&journal.begin.world, &journal.begin.host),
                here: name(&machine.world, host),
            });
        }
        let mut file = OpenOptions::new().write(true).open(path).map_err(|e| at(path, e))?;
        file.set_len(journal.whole_bytes).map_err(|e| at(path, e))?;
        file.seek(SeekFrom::End(0)).map_err(|e| at(path, e))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            done: journal.outcomes.iter().map(|o| o.case().clone()).collect(),
            carried: journal.partial.into_iter().map(|s| (s.case.clone(), s)).collect(),
            resumed: true,
        })
    }

    /// Cases that already have an outcome.
    pub fn done(&self) -> usize {
        self.done.len()
    }

    /// Runs a plan to its end, or until `interrupt` gives a reason to stop. Every line is on disk
    /// before the next case begins. `now` gives RFC 3339 time in UTC.
    ///
    /// # Errors
    /// The journal cannot be written. A case's failure is its outcome, not an error.
    pub fn run(
        mut self,
        machine: &Machine,
        plan: &Plan,
        header: Header,
        now: &dyn Fn() -> String,
        interrupt: Interrupt<'_>,
        show: &mut dyn FnMut(Event<'_>),
    ) -> Result<End, SessionError> {
        let begun = machine.clock.now();
        let overhead_ns = overhead(machine);
        let mut engine = Engine {
            machine,
            pool: Pool::new(machine),
            settings: header.settings,
            overhead_ns: overhead_ns.clone(),
            carried: std::mem::take(&mut self.carried),
            state: None,
            retired: BTreeMap::new(),
            watch: Watch::new(machine),
        };
        let begin = Begin {
            schema: SCHEMA_VERSION,
            version: header.version,
            world: machine.world.clone(),
            host: header.host,
            started: now(),
            command: header.command,
            env: header.env,
            settings: header.settings,
            overhead_ns,
            gpus: facts(machine),
        };
        let path = self.path.clone();
        let todo: Vec<&Entry> =
            plan.entries.iter().filter(|e| !self.done.contains(&e.case)).collect();
        let (total, mut done) = (plan.entries.len(), plan.entries.len() - todo.len());
        let mut writer = Writer { file: &mut self.file, show, total, done: &mut done };
        let mut run = || -> io::Result<End> {
            writer.put(Message::Begin(begin.clone()))?;
            if !self.resumed {
                writer.put(Message::Topology(Box::new(machine.topology.clone())))?;
            }
            for group in todo.chunk_by(|a, b| a.group == b.group) {
                if interrupt().is_some() {
                    break;
                }
                let mut runnable = Vec::new();
                for entry in group {
                    match &entry.skip {
                        None => runnable.push((*entry).clone()),
                        Some(why) => writer.put(Message::Skipped(Skip {
                            case: entry.case.clone(),
                            suites: entry.suites.clone(),
                            why: why.clone(),
                        }))?,
                    }
                }
                engine.measure(runnable, interrupt, &mut writer)?;
            }
            let complete = *writer.done == total;
            let why = interrupt().filter(|_| !complete);
            let elapsed = machine.clock.now() - begun;
            let end = End { ended: now(), elapsed, complete, why };
            writer.put(Message::End(end.clone()))?;
            Ok(end)
        };
        run().map_err(|e| at(&path, e))
    }
}

fn at(path: &Path, source: io::Error) -> SessionError {
    SessionError::Io { path: path.to_owned(), source }
}

/// Writes a line at a time and tells whoever watches.
struct Writer<'a, 's> {
    file: &'a mut File,
    show: &'a mut (dyn FnMut(Event<'_>) + 's),
    total: usize,
    done: &'a mut usize,
}

impl Sink for Writer<'_, '_> {
    fn put(&mut self, message: Message) -> io::Result<()> {
        let mut line = serde_json::to_vec(&message)?;
        line.push(b'\n');
        // One write a line, so that a reader and a killed writer see whole lines.
        self.file.write_all(&line)?;
        let outcome = match message {
            Message::Measured(measured) => Outcome::Measured(measured),
            Message::Skipped(skip) => Outcome::Skipped(skip),
            Message::Faulted(fault) => Outcome::Faulted(fault),
            other => {
                (self.show)(Event::Message(&other));
                return Ok(());
            }
        };
        *self.done += 1;
        (self.show)(Event::Outcome { outcome: &outcome, done: *self.done, total: self.total });
        Ok(())
    }
}

/// What each GPU says of itself.
fn facts(machine: &Machine) -> BTreeMap<Unit, GpuFacts> {
    let Some(monitor) = &machine.monitor else { return BTreeMap::new() };
    let gpus = machine.topology.gpus.iter();
    gpus.filter_map(|g| Some((Unit::Gpu(g.index), monitor.facts(g.index)?))).collect()
}

/// What an empty operation costs by each timer: the least of several, so that only the harness
/// itself is in it. Timers that cannot be measured are left out.
fn overhead(machine: &Machine) -> BTreeMap<String, f64> {
    const TRIES: usize = 15;
    let least = |mut once: Box<dyn FnMut() -> Option<Ns> + '_>| {
        (0..TRIES).filter_map(|_| once()).map(|ns| ns.0).reduce(f64::min)
    };
    let clock = least(Box::new(|| {
        let start = machine.clock.now();
        Some(machine.clock.now() - start)
    }));
    let threads = machine.host.domains().first().and_then(|domain| {
        let team = machine.team(domain.id, 1).ok()?;
        let empty = Work {
            work: CpuWork { op: CpuOp::Read, how: CpuHow::Plain },
            src: 0,
            dst: 0,
            bytes: Bytes(0),
            reps: 1,
            isolated: false,
        };
        least(Box::new(move || {
            let gate = machine.gate().ok()?;
            team.submit(&gate, &empty).ok()?;
            gate.release().ok()?;
            Some(team.reap().ok()?.elapsed)
        }))
    });
    let events = machine.topology.gpus.first().and_then(|gpu| {
        let gpu = machine.gpu(gpu.index).ok()?;
        let (stream, start, end) = (gpu.stream().ok()?, gpu.event().ok()?, gpu.event().ok()?);
        least(Box::new(move || {
            stream.record(&start).ok()?;
            stream.record(&end).ok()?;
            stream.wait().ok()?;
            end.since(&start).ok()
        }))
    });
    use pathline_schema::Timer;
    [(Timer::Host, clock), (Timer::Threads, threads), (Timer::DeviceEvents, events)]
        .into_iter()
        .filter_map(|(timer, ns)| Some((timer.word().to_owned(), ns?)))
        .collect()
}
