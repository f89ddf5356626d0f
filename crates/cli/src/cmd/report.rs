//! `pathline report`, and the end of `pathline run`.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use pathline_explain::figure::RunReport;
use pathline_explain::run_report;
use pathline_findings::RunConclusions;
use pathline_flow::Network;
use pathline_report::html::{MAX_RUNS, PageRun, render_several};
use pathline_report::terminal;
use pathline_runner::{HostMachine, MachineChoice, MachineModel};
use pathline_schema::{Journal, WorldKind as Recorded, plain_text};

use super::{ExitKind, repeat};
use crate::args::{ReportArgs, ReportFormat};
use crate::files;
use crate::say::{self, errln, out, outln};

/// What a run shows, and what follows from it.
struct ConcludedRun {
    report: RunReport,
    conclusions: RunConclusions,
}

impl ConcludedRun {
    /// `path` is that of the journal.
    fn new(journal: &Journal, network: &Network, path: &Path) -> Self {
        let arguments = repeat::arguments(&journal.begin);
        let mut report = run_report::build_with(journal, Some(network), arguments.as_deref());
        let conclusions = pathline_findings::conclude(journal, Some(network), &report);
        let model = model(journal, path).ok().flatten();
        let conclusions = match model.as_ref().map(|model| (model.desc(), model.text())) {
            Some(model) => conclusions.against_model(journal, network, model),
            None => conclusions,
        };
        let slow = &conclusions.verdict.covered;
        run_report::leave_out_slow(&mut report, journal, Some(network), slow);
        Self { report, conclusions }
    }

    fn render(&self, journal: &Journal, form: SummaryForm) -> RenderedRun {
        let Self { report, conclusions } = self;
        let map = pathline_report::map::svg(&journal.topology, &conclusions.verdict.gpus);
        let summary = if form.full { terminal::summary } else { terminal::first_screen };
        RenderedRun {
            page: pathline_report::html::render(report, conclusions, &map),
            summary: summary(report, conclusions, say::width(), form.colour),
            verdict: conclusions.verdict.sentence(),
            exit: (&conclusions.verdict).into(),
        }
    }

    /// Everything that is derived from a run, as JSON.
    fn to_json(&self, journal: &Journal) -> Result<String> {
        let derived = pathline_findings::DerivedRun::new(journal, &self.report, &self.conclusions);
        let json = serde_json::to_string_pretty(&derived)?;
        Ok(plain_text(&json).into_owned() + "\n")
    }
}

/// The rendered forms of a run.
pub(super) struct RenderedRun {
    /// The HTML page.
    pub(super) page: String,
    /// The summary for the terminal.
    pub(super) summary: String,
    /// The verdict and its reason.
    pub(super) verdict: String,
    /// How a command that shows the run ends.
    pub(super) exit: ExitKind,
}

/// Form of the summary.
#[derive(Debug, Clone, Copy)]
pub(super) struct SummaryForm {
    /// Every figure, not just the first screen.
    pub(super) full: bool,
    /// ANSI colours.
    pub(super) colour: bool,
}

/// Renders a run.
pub(super) fn render_run(
    journal: &Journal,
    network: &Network,
    path: &Path,
    form: SummaryForm,
) -> RenderedRun {
    ConcludedRun::new(journal, network, path).render(journal, form)
}

/// Verdict, findings and figures of a run, as JSON.
pub(super) fn json_of_run(journal: &Journal, network: &Network, path: &Path) -> Result<String> {
    ConcludedRun::new(journal, network, path).to_json(journal)
}

pub(super) fn run(args: &ReportArgs) -> Result<ExitKind> {
    let run = match args.runs.as_slice() {
        [run] => run,
        runs => return several(runs, args),
    };
    let journal = files::read(run)?;
    let path = files::journal_path(run);
    let network = network(&journal, &path)?;
    let concluded = ConcludedRun::new(&journal, &network, &path);
    if let Some(format) = args.format {
        let ConcludedRun { report, conclusions } = &concluded;
        let text = match format {
            ReportFormat::Osu => pathline_report::format::osu(&journal),
            ReportFormat::NcclTests => pathline_report::format::nccl_tests(&journal),
            ReportFormat::Elbencho => pathline_report::format::elbencho(&journal),
            ReportFormat::Markdown => Ok(pathline_report::markdown::markdown(report, conclusions)),
            ReportFormat::Csv => Ok(pathline_report::csv::export(&journal, Some(&network))),
            ReportFormat::RawCsv => Ok(pathline_report::csv::export_raw(&journal)),
        };
        out!("{}", text.map_err(|why| anyhow!(why))?);
        return Ok((&conclusions.verdict).into());
    }
    let form = SummaryForm { full: say::is_full(), colour: say::colour() };
    let RenderedRun { page: html, summary, exit, .. } = concluded.render(&journal, form);
    let named = args.out.iter().find(|file| file.ending == "html").map(|file| file.path.clone());
    // A folder of journals is the user's: only a run's own folder gets a page by itself.
    let own = (named.is_none() && files::is_in_run_folder(&path)).then(|| files::page_path(&path));
    if let Some(page) = &own {
        files::write_page(page, &html)?;
    }
    if args.json {
        out!("{}", concluded.to_json(&journal)?);
    } else {
        say::page(&summary);
        match own.or(named) {
            Some(page) => outln!("\n{}", page.display()),
            None => outln!("\nno page was written; -o FILE.html writes one"),
        }
    }
    files::write_each(&args.out, |ending| match ending {
        "html" => Ok(html.clone()),
        "csv" => Ok(pathline_report::csv::export(&journal, Some(&network))),
        "raw.csv" => Ok(pathline_report::csv::export_raw(&journal)),
        _ => concluded.to_json(&journal),
    })?;
    Ok(exit)
}

/// A page that shows runs side by side.
fn several(runs: &[PathBuf], args: &ReportArgs) -> Result<ExitKind> {
    if args.json || args.format.is_some() || args.out.iter().any(|file| file.ending != "html") {
        bail!("tables, --json and --format are of one run: give one run each time");
    }
    if runs.len() > MAX_RUNS {
        bail!("{} runs, of which a page shows {MAX_RUNS}: give fewer", runs.len());
    }
    if args.out.is_empty() {
        bail!("a page of several runs has no folder: name it with -o FILE.html");
    }
    let mut exit = ExitKind::Fine;
    let mut reports = Vec::new();
    for run in runs {
        let journal = files::read(run)?;
        let path = files::journal_path(run);
        let network = network(&journal, &path)?;
        let concluded = ConcludedRun::new(&journal, &network, &path);
        exit = exit.worse((&concluded.conclusions.verdict).into());
        reports.push((run.display().to_string(), concluded));
    }
    let shown: Vec<PageRun<'_>> = reports
        .iter()
        .map(|(source, run)| PageRun { source, report: &run.report, conclusions: &run.conclusions })
        .collect();
    files::write_each(&args.out, |_| Ok(render_several(&shown)))?;
    args.out.iter().for_each(|file| outln!("{}", file.path.display()));
    Ok(exit)
}

/// The description next to the journal of a simulated run; none if it is not what the run was simulated on.
fn model(journal: &Journal, path: &Path) -> Result<Option<MachineModel>> {
    let description = path.with_file_name(files::MACHINE);
    let is_simulated = matches!(journal.begin.world, Recorded::Simulated(_));
    let Some(name) = description.to_str().filter(|_| is_simulated && description.is_file()) else {
        return Ok(None);
    };
    let model = MachineModel::read(name)?;
    let was = journal.begin.machine_sha256.as_ref();
    Ok(Some(model).filter(|model| was.is_none_or(|was| *was == model.sha256())))
}

/// The physics that a run is compared with: of the description next to its journal, if that was
/// simulated, else of the topology in the journal.
pub(super) fn network(journal: &Journal, path: &Path) -> Result<Network> {
    let machine = match model(journal, path)? {
        Some(model) => MachineChoice::Model(Box::new(model)),
        None => {
            let description = path.with_file_name(files::MACHINE);
            if matches!(journal.begin.world, Recorded::Simulated(_)) && description.is_file() {
                errln!(
                    "pathline: {} is not what this run was simulated on: ceilings are those of the topology",
                    description.display()
                );
            }
            MachineChoice::Host(HostMachine::default())
        }
    };
    machine.network(&journal.topology, &journal.begin.env)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clap::Parser;
    use pathline_schema::shell_words;

    use super::*;
    use crate::args::Args;

    /// The arguments of each line as /bin/sh has them, run in a folder of their own, where nothing may appear.
    fn of_shell(lines: &[String]) -> Vec<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let line = |line: &String| format!("set -- {line}\nprintf '%s\\0' \"$#\" \"$@\"\n");
        std::fs::write(dir.path().join("script"), lines.iter().map(line).collect::<String>())
            .unwrap();
        let shell = Command::new("/bin/sh").arg("script").current_dir(dir.path()).output().unwrap();
        assert!(shell.status.success() && shell.stderr.is_empty(), "{shell:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let printed = String::from_utf8(shell.stdout).unwrap();
        let mut words = printed.split_terminator('\0').map(str::to_owned);
        let mut all = Vec::new();
        for _ in lines {
            let count = words.next().and_then(|count| count.parse().ok()).unwrap_or(0);
            all.push(words.by_ref().take(count).collect());
        }
        all
    }

    /// Of each kept run: every command that its page shows behind a `$`, and those of the summary.
    #[test]
    fn each_command_of_a_page_is_one_that_the_program_takes() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
        let (mut checked, mut refused) = (0, Vec::new());
        for entry in std::fs::read_dir(fixtures).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|end| end != "gz") {
                continue;
            }
            let name = path.display().to_string();
            let journal = files::read(&path).unwrap();
            let run = ConcludedRun::new(&journal, &network(&journal, &path).unwrap(), &path);
            let form = SummaryForm { full: true, colour: false };
            let page = run.render(&journal, form).page;
            let commands = page.split("<p class=\"command\"><code>").skip(1);
            let commands = commands.map(|rest| rest.split("</code>").next().unwrap_or_default());
            let mut lines: Vec<String> = commands
                .map(|code| quick_xml::escape::unescape(code).unwrap().into_owned())
                .collect();
            assert!(lines.len() > 1, "{name}: {lines:?}");
            // As wide as most terminals: a command that takes several lines continues by a backslash.
            let whole = terminal::summary(&run.report, &run.conclusions, 80, false);
            let whole = whole.replace("\\\n", "");
            let again = whole.lines().filter_map(|line| line.trim().strip_prefix("again: "));
            lines.extend(again.map(str::to_owned));
            for (line, words) in lines.iter().zip(of_shell(&lines)) {
                assert_eq!(shell_words(line), words, "{name}");
                assert!(line.len() < 4000, "{name}: {} characters", line.len());
                let at = words.iter().position(|word| word.ends_with("pathline"));
                let own = at.map(|at| &words[at..]).unwrap_or_default();
                let taken = Args::try_parse_from(own);
                refused.extend(taken.err().map(|error| format!("{name}: {line}: {error}")));
                checked += 1;
            }
            // The head of the page repeats the run, with its first cases.
            let words = shell_words(&lines[0]);
            let given = &journal.begin.command;
            assert_eq!(words[..2], given[..2], "{name}");
            assert!(words.iter().all(|word| given.contains(word)), "{name}: {words:?}");
            assert!(words.len() == given.len() || lines[0].contains("more --case"), "{name}");
        }
        assert!(checked > 200 && refused.is_empty(), "{checked} {refused:#?}");
    }
}
