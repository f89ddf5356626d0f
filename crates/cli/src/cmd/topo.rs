//! `pathline topo`.

use std::collections::BTreeMap;

use anyhow::Result;
use pathline_diagnose::{TrainedLink, reduced_links};
use pathline_runner::{HostSurvey, LibraryChoice, MachineModel, ask_versions};
use pathline_schema::{Topology, shell_word};

use super::ExitKind;
use super::doctor::add_settings;
use crate::args::TopoArgs;
use crate::files;
use crate::say::{self, outln};

pub(super) fn run(args: &TopoArgs) -> Result<ExitKind> {
    let topology = topology(args)?;
    for file in &args.out {
        let text = match file.ending {
            "svg" => pathline_report::map::svg(&topology, &[]),
            _ => pathline_topo::write_nccl_xml(&topology),
        };
        files::write(&file.path, &text)?;
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&topology)?);
    } else if args.out.is_empty() {
        let none = BTreeMap::new();
        let reduced = reduced_links(&topology, None, &none, &BTreeMap::new());
        let health = match &args.machine {
            Some(name) => format!("pathline health -m {}", shell_word(name)),
            None => "pathline health".to_owned(),
        };
        let lost = reduced.iter().filter_map(TrainedLink::loss);
        let lost: String = lost.map(|loss| format!("{loss}: `{health}`\n")).collect();
        let map = pathline_report::map::text(&topology, say::colour(), say::width());
        say::page(&format!("{lost}{map}"));
    }
    Ok(ExitKind::Fine)
}

fn topology(args: &TopoArgs) -> Result<Topology> {
    if let Some(path) = &args.from {
        return Ok(pathline_topo::from_path(path)?);
    }
    if let Some(name) = &args.machine {
        return Ok(MachineModel::read(name)?.desc().topology());
    }
    let HostSurvey { mut snapshot, topology, limits, .. } = HostSurvey::new(args.timeout.call());
    if let Some(path) = &args.save {
        // What `doctor --from` judges.
        add_settings(&mut snapshot);
        ask_versions(&mut snapshot, &LibraryChoice::default(), limits);
        if path.extension().is_some_and(|e| e == "json") {
            snapshot.save_file(path)?;
        } else {
            snapshot.save_dir(path)?;
        }
    }
    Ok(topology)
}
