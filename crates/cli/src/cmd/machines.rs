//! `pathline machines`.

use anyhow::Result;
use pathline_flow::MachineDesc;

use super::Exit;
use crate::args::MachinesArgs;

pub(super) fn run(args: &MachinesArgs) -> Result<Exit> {
    if let Some(name) = &args.name {
        MachineDesc::preset(name)?;
    }
    for (name, text) in MachineDesc::presets() {
        match &args.name {
            None => println!("{name:<12} {}", MachineDesc::preset(name)?.about),
            Some(wanted) if wanted == name => {
                print!("{text}");
                return Ok(Exit::Fine);
            }
            Some(_) => {}
        }
    }
    println!(
        "\n`pathline machines NAME > mine.toml`, change it, and `--machine mine.toml` runs it."
    );
    Ok(Exit::Fine)
}
