//! `pathline diff`.

use anyhow::Result;
use pathline_explain::diff::CaseChange;

use super::ExitKind;
use crate::args::DiffArgs;
use crate::files;
use crate::say::out;

pub(super) fn run(args: &DiffArgs) -> Result<ExitKind> {
    let (before, after) = (files::read(&args.before)?, files::read(&args.after)?);
    let diff = pathline_explain::diff::diff(&before, &after, args.tolerance / 100.0)?;
    out!("{diff}");
    let compared = |row: &&pathline_explain::diff::DiffRow| {
        !matches!(row.change, CaseChange::OnlyFirst | CaseChange::OnlySecond)
    };
    Ok(if diff.is_worse() {
        ExitKind::Wrong
    } else if diff.rows.iter().filter(compared).count() == 0 {
        ExitKind::CouldNotJudge
    } else {
        ExitKind::Fine
    })
}
