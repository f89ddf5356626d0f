//! Progress of a run on the terminal, and its interruption by the user.

use std::cell::Cell;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::live_rate::LiveRates;
use crate::say::errln;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pathline_bench::RunEvent;
use pathline_schema::{Case, CaseOutcome, FlowSeries, JournalRecord, RunEnd, plain_line};
use pathline_stats::SeriesSummary;

/// Ends a run: on Ctrl-C, or at its time limit.
pub(crate) struct StopRequest {
    asked: Arc<AtomicBool>,
    limit: Option<TimeLimit>,
    /// How many repeats of how many may have spent their time.
    repeat: Cell<(u32, u32)>,
}

struct TimeLimit {
    begun: Instant,
    /// Seconds for measuring.
    measuring: f64,
    /// Seconds, as the user gave them.
    given: f64,
}

/// Whether Ctrl-C was pressed in this process.
static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

fn catch_interrupt() -> Arc<AtomicBool> {
    let asked = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&asked);
    let caught = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    });
    if let Err(error) = caught {
        errln!(
            "pathline: cannot catch Ctrl-C ({error}): it ends this run at once, and the \
             journal keeps what is measured"
        );
    }
    asked
}

impl StopRequest {
    /// Catches Ctrl-C (a second one ends the program at once) and starts the clock of the limit.
    pub(crate) fn new(begun: Instant, limit_secs: Option<f64>) -> Self {
        // A command may make several runs: one handler serves them all.
        let asked = Arc::clone(ASKED.get_or_init(catch_interrupt));
        // The rest of the time writes the report.
        let limit = limit_secs.map(|given| {
            let measuring = (given * 0.9).max(given - 3.0).min(1e9);
            TimeLimit { begun, measuring, given }
        });
        Self { asked, limit, repeat: Cell::new((1, 1)) }
    }

    /// From now on the time limit is that of repeat `repeat` (0 is the first) of `repeats`, which share
    /// the time of the run equally.
    pub(crate) fn begin_repeat(&self, repeat: u32, repeats: u32) {
        self.repeat.set((repeat.saturating_add(1), repeats.max(1)));
    }

    /// Whether a user asked for the end.
    pub(crate) fn interrupted(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// Why the run must end now, if it must.
    pub(crate) fn reason(&self) -> Option<String> {
        if self.interrupted() {
            return Some(RunEnd::INTERRUPTED.to_owned());
        }
        let TimeLimit { begun, measuring, given } = self.limit.as_ref()?;
        let (repeat, repeats) = self.repeat.get();
        let share = f64::from(repeat) / f64::from(repeats);
        let deadline = *begun + Duration::from_secs_f64(measuring * share);
        let whose =
            if repeats > 1 { format!(" (repeat {repeat} of {repeats})") } else { String::new() };
        (Instant::now() >= deadline).then(|| format!("the time limit of {given} s came{whose}"))
    }
}

/// A bar with time left and the latest figure on a terminal; a line now and then elsewhere.
pub(crate) struct RunProgress {
    bar: ProgressBar,
    rates: LiveRates,
    begun: Instant,
    plain: Option<Instant>,
}

/// Without a terminal, at most one line in this time.
const PLAIN_EVERY: Duration = Duration::from_secs(4);
/// On a terminal the elapsed time goes on during a case of many seconds.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

impl RunProgress {
    /// For a run of `total` cases of which `done` are done; silent if `quiet`.
    pub(crate) fn new(total: usize, done: usize, quiet: bool) -> Self {
        let bar = ProgressBar::new(total as u64).with_position(done as u64);
        let on_terminal = std::io::stderr().is_terminal();
        if quiet || !on_terminal {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template(
            "{bar:28.cyan/dim} {pos}/{len}  {elapsed} spent, {eta} left\n{wide_msg:.dim}",
        );
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("━╸─"));
        }
        bar.set_message("warming up the first cases");
        bar.tick();
        if !bar.is_hidden() {
            bar.enable_steady_tick(REDRAW_INTERVAL);
        }
        let now = Instant::now();
        let rates = LiveRates::default();
        Self { bar, rates, begun: now, plain: (!quiet && !on_terminal).then_some(now) }
    }

    /// Takes a step. Figures of cases that are not finished show on the bar, too.
    pub(crate) fn show(&mut self, event: RunEvent<'_>) {
        let (outcome, done, total) = match event {
            RunEvent::Outcome { outcome, done, total } => (outcome, done, total),
            RunEvent::Message(JournalRecord::Sampled(visit)) => {
                let line = match self.rates.add(visit) {
                    Some(rate) => format!("{rate}  {}", short(&visit.case)),
                    None => latest(&visit.case, &visit.series),
                };
                self.bar.set_message(plain_line(&line).into_owned());
                return;
            }
            RunEvent::Message(_) => return,
        };
        self.rates.end(outcome.case());
        self.bar.set_position(done as u64);
        let CaseOutcome::Measured(measured) = outcome else { return };
        let line = latest(&measured.case, &measured.series);
        if let Some(last) = self.plain
            && (last == self.begun || last.elapsed() >= PLAIN_EVERY)
        {
            errln!("{done}/{total}  {line}");
            self.plain = Some(Instant::now());
        }
        self.bar.set_message(line);
    }

    /// Clears the bar.
    pub(crate) fn end(self) {
        self.bar.finish_and_clear();
    }
}

/// A case and its figure in one line.
fn latest(case: &Case, series: &[FlowSeries]) -> String {
    let Some(series) = series.first() else { return short(case) };
    let figure = if !series.flow.by.has_rate() || series.moved_bytes.0 < 4096 {
        SeriesSummary::of(&series.latencies().map(|ns| ns.0).collect::<Vec<_>>())
            .map(|s| pathline_schema::Ns(s.median).to_string())
    } else {
        SeriesSummary::of(&series.rates().map(|r| r.0).collect::<Vec<_>>())
            .map(|s| pathline_schema::Rate(s.median).to_string())
    };
    plain_line(&format!("{:>10}  {}", figure.unwrap_or_default(), short(case))).into_owned()
}

/// A case in a line: of many flows, the first.
fn short(case: &Case) -> String {
    match case.timed.as_slice() {
        [first, rest @ ..] if rest.len() > 1 => format!("{first} & {} more", rest.len()),
        _ => case.to_string(),
    }
}
