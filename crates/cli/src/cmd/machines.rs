//! `pathline model list` and `pathline model show`.

use anyhow::Result;
use pathline_flow::{MachineDesc, ModelConstant};
use pathline_runner::MachineModel;
use pathline_schema::ConstantOrigin;

use super::ExitKind;
use crate::args::MachinesArgs;
use crate::say::{out, outln};

/// The machines that can be simulated.
pub(super) fn list() -> Result<ExitKind> {
    for (name, _) in MachineDesc::presets() {
        outln!("{name:<12} {}", MachineDesc::preset(name)?.about);
    }
    outln!("\n`pathline model show NAME > mine.toml`, change it, and `-m mine.toml` simulates it.");
    Ok(ExitKind::Fine)
}

/// The description of one, or its constants.
pub(super) fn show(args: &MachinesArgs) -> Result<ExitKind> {
    let model = MachineModel::read(&args.name)?;
    if args.constants {
        print_stacks(MachineModel::read(&args.name)?.with_stack(args.stack.as_deref())?.desc());
        print_constants(model.desc());
        return Ok(ExitKind::Fine);
    }
    out!("{}", model.with_stack(args.stack.as_deref())?.text());
    Ok(ExitKind::Fine)
}

/// The software stacks, the default first marked; `--stack` of other commands chooses one.
fn print_stacks(desc: &MachineDesc) {
    for stack in desc.stacks() {
        let default = if desc.stack() == Some(&stack.name) { ", default" } else { "" };
        let timer = stack.timer.name();
        outln!("stack {:<14} {} (timer: {timer}{default})", stack.name, stack.about);
    }
}

/// The constants by origin, and the count: what is free stands first.
fn print_constants(desc: &MachineDesc) {
    let constants = desc.constants();
    let of = |origin: Option<ConstantOrigin>| constants.iter().filter(move |c| c.origin == origin);
    let width = constants.iter().map(|c| c.key.len()).max().unwrap_or(0);
    for (what, software) in [("", false), (", message libraries", true)] {
        let count = |origin: ConstantOrigin| {
            let some = of(Some(origin)).filter(|c| c.is_software() == software);
            some.map(|c| c.values.len()).sum::<usize>()
        };
        let [datasheet, fitted, data, assumed] = ConstantOrigin::ALL.map(count);
        if !software || datasheet + fitted + data + assumed > 0 {
            outln!(
                "{}{what}: {fitted} free constants (fitted), {data} values carried as data, {assumed} assumed, {datasheet} from data sheets",
                desc.name
            );
        }
    }
    let order = [
        ConstantOrigin::Fitted,
        ConstantOrigin::Data,
        ConstantOrigin::Assumed,
        ConstantOrigin::Datasheet,
    ];
    for origin in order.map(Some).into_iter().chain([None]) {
        let mut rows = of(origin).peekable();
        if rows.peek().is_none() {
            continue;
        }
        let title = origin.map_or("without an origin", ConstantOrigin::name);
        outln!("\n{title}");
        for constant in rows {
            outln!("  {:<width$}  {}", constant.key, values(constant));
        }
    }
}

/// The values, or their number and range where they are many.
fn values(constant: &ModelConstant) -> String {
    const SHOWN: usize = 6;
    let all = &constant.values;
    if all.len() <= SHOWN {
        return all.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
    }
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{} values, {low} to {high}", all.len())
}
