//! `pathline machines`.

use anyhow::Result;
use pathline_flow::MachineDesc;

use super::Exit;
use crate::args::MachinesArgs;
use crate::say::{out, outln};

pub(super) fn run(args: &MachinesArgs) -> Result<Exit> {
    if let Some(name) = &args.name {
        MachineDesc::preset(name)?;
    }
    for (name, text) in MachineDesc::presets() {
        match &args.name {
            None => outln!("{name:<12} {}", MachineDesc::preset(name)?.about),
            Some(wanted) if wanted == name => {
                out!("{text}");
                return Ok(Exit::Fine);
            }
            Some(_) => {}
        }
    }
    outln!("\n`pathline machines NAME > mine.toml`, change it, and `--machine mine.toml` runs it.");
    Ok(Exit::Fine)
}
