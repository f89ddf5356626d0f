//! `pathline model check --sensitivity`.

use anyhow::{Result, bail};
use pathline_published::{ValidationPlan, find_sensitivity};
use pathline_report::{csv, terminal};
use pathline_runner::MachineModel;

use super::super::ExitKind;
use super::answer_plan;
use crate::args::ValidateArgs;
use crate::files;
use crate::say;

/// Finds the rows that hold each constant, and shows them. Without a row there is nothing to judge.
pub(super) fn run(
    args: &ValidateArgs,
    model: &MachineModel,
    plan: &ValidationPlan,
    against: &str,
) -> Result<ExitKind> {
    let desc = model.desc();
    let report = find_sensitivity(desc, model.text(), plan, &args.constant, &answer_plan)?;
    if report.constants.is_empty() {
        bail!(
            "{} has no constant whose key begins with {}; `pathline model show {} --constants` lists them",
            desc.name,
            args.constant.join(" or "),
            args.machine
        );
    }
    say::page(&terminal::sensitivity::summary(&report, against, say::width(), say::colour()));
    files::write_each(&args.out, |ending| match ending {
        "csv" => Ok(csv::export_sensitivity(&report)),
        _ => bail!("--sensitivity has no page: name a .csv file"),
    })?;
    Ok(if report.rows == 0 { ExitKind::CouldNotJudge } else { ExitKind::Fine })
}
