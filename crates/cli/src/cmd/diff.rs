//! `pathline diff`.

use anyhow::Result;
use pathline_explain::diff::Change;

use super::Exit;
use crate::args::DiffArgs;
use crate::files;
use crate::say::out;

pub(super) fn run(args: &DiffArgs) -> Result<Exit> {
    let (before, after) = (files::read(&args.before)?, files::read(&args.after)?);
    let diff = pathline_explain::diff::diff(&before, &after, args.tolerance / 100.0)?;
    out!("{diff}");
    let compared = |row: &&pathline_explain::diff::Row| {
        !matches!(row.change, Change::OnlyFirst | Change::OnlySecond)
    };
    Ok(if diff.is_worse() {
        Exit::Wrong
    } else if diff.rows.iter().filter(compared).count() == 0 {
        Exit::CouldNotJudge
    } else {
        Exit::Fine
    })
}
