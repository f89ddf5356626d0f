//! `pathline report`, and the end of `pathline run`.

use std::path::Path;

use anyhow::{Result, anyhow};
use pathline_flow::Network;
use pathline_schema::{Journal, World as Recorded};

use super::{Exit, colour};
use crate::args::{Format, LibraryArgs, ReportArgs};
use crate::files;
use crate::say::{out, outln};
use crate::world::World;

/// Columns of the summary.
const WIDTH: usize = 100;

/// Writes the HTML page of a run and gives its summary for the terminal.
pub(super) fn write(
    journal: &Journal,
    network: &Network,
    page: &Path,
    colour: bool,
) -> Result<String> {
    let report = pathline_explain::report::build(journal, Some(network));
    let map = pathline_explain::map::svg(&journal.topology);
    files::write(page, &pathline_explain::html::render(&report, &journal.topology, &map))?;
    Ok(pathline_explain::terminal::summary(&report, WIDTH, colour))
}

pub(super) fn run(args: &ReportArgs) -> Result<Exit> {
    let journal = files::read(&args.run)?;
    if let Some(format) = args.format {
        let text = match format {
            Format::Osu => pathline_explain::format::osu(&journal),
            Format::NcclTests => pathline_explain::format::nccl_tests(&journal),
            Format::Elbencho => pathline_explain::format::elbencho(&journal),
        };
        out!("{}", text.map_err(|why| anyhow!(why))?);
        return Ok(Exit::Fine);
    }
    let path = files::journal_path(&args.run);
    let network = network(&journal, &path)?;
    let page = args.html.clone().unwrap_or_else(|| path.with_file_name(files::PAGE));
    let summary = write(&journal, &network, &page, colour(args.color))?;
    if let Some(file) = &args.csv {
        files::write(file, &pathline_explain::csv::export(&journal, Some(&network)))?;
    }
    if let Some(file) = &args.csv_raw {
        files::write(file, &pathline_explain::csv::export_raw(&journal))?;
    }
    let piped = [&args.csv, &args.csv_raw].into_iter().flatten().any(|f| f == Path::new("-"));
    if !piped {
        out!("{summary}");
        outln!("\n{}", page.display());
    }
    Ok(Exit::Fine)
}

/// The physics that a run is held against: the description that lies beside its journal, if it was
/// simulated, else the topology in the journal.
fn network(journal: &Journal, path: &Path) -> Result<Network> {
    let description = path.with_file_name(files::MACHINE);
    if matches!(journal.begin.world, Recorded::Simulated(_))
        && description.is_file()
        && let Some(name) = description.to_str()
    {
        return World::new(Some(name), &LibraryArgs::default())?.network(&journal.begin.env);
    }
    Ok(Network::from_topology(&journal.topology))
}
