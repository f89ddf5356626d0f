//! Whether the model ranks the algorithms, engines and libraries of one operation as published values do.

use std::collections::BTreeMap;

use pathline_flow::{MachineDesc, ModelConstant};
use pathline_schema::{Bytes, ConstantOrigin};
use pathline_stats::{ascending, interpolated};

use crate::BULK;
use crate::number::{MachineAnswer, MachineQuery, RowNumber};
use crate::report::ValidationPlan;
use crate::shipped::{SHIPPED, ShippedTable};
use crate::table::read;

/// Published values of one source that are less apart than this are no ranking: its runs differ by as much.
const TIE: f64 = 0.03;

/// Published and predicted rates of one way to do an operation.
#[derive(Debug, Clone, Default)]
struct RankedRates {
    published: Vec<f64>,
    predicted: Vec<f64>,
}

impl RankedRates {
    fn medians(&self) -> (f64, f64) {
        let median = |all: &[f64]| interpolated(&ascending(all.iter().copied()), 0.5).unwrap();
        (median(&self.published), median(&self.predicted))
    }
}

/// The subject of a number of one query, split into the operation and what carries it; and whether less of the
/// number is better.
fn split(number: &RowNumber) -> Option<(String, String, bool)> {
    let (query, is_time) = match number {
        RowNumber::Rate(query) | RowNumber::Bus(query) => (query, false),
        RowNumber::Time(query) | RowNumber::Mean(query) => (query, true),
        RowNumber::Scaled(_, inner) => return split(inner),
        _ => return None,
    };
    let text = query.to_string();
    if text.contains(" & ") {
        return None;
    }
    let (what, rest) = text.split_once(" by ")?;
    let (carrier, size) = rest.split_once(" x ")?;
    // Who carries it is compared, not from which side.
    let carrier = carrier.split('@').next()?;
    let kind = match query {
        MachineQuery::Case(_) => "copy",
        MachineQuery::Exchange(_) if what.starts_with("send") || what.starts_with("ping") => {
            "message"
        }
        MachineQuery::Exchange(_) => "collective",
    };
    // Large copies differ by engine, not by size.
    let is_bulk = |bytes: &Bytes| kind == "copy" && !is_time && bytes.0 >= BULK;
    let size = match size.split(' ').next().and_then(|size| size.parse().ok()).filter(is_bulk) {
        Some(_) => "16MiB and more".to_owned(),
        None => size.to_owned(),
    };
    Some((format!("{kind}: {what} x {size}"), carrier.to_owned(), is_time))
}

/// Of each operation and size that was published for two carriers or more, of messages and collectives by one
/// source: the rates of each.
fn groups() -> BTreeMap<(String, String), BTreeMap<String, RankedRates>> {
    let mut groups: BTreeMap<(String, String), BTreeMap<String, RankedRates>> = BTreeMap::new();
    for table in &SHIPPED {
        let desc = MachineDesc::preset(table.system).unwrap();
        let plan = ValidationPlan::new(read(table.text).unwrap(), &desc, &[]).unwrap();
        let mut answers = BTreeMap::new();
        for stack in plan.stacks() {
            let desc = match stack {
                "" => desc.clone(),
                stack => desc.with_stack(stack).unwrap(),
            };
            let (mut found, to_run) = plan.answer_by_physics(&desc, stack).unwrap();
            let network =
                pathline_flow::Network::new(&desc, pathline_flow::RuntimeEnv::default()).unwrap();
            for case in to_run {
                let answer = crate::physics::predict(&network, &case);
                found.insert(MachineQuery::Case(case), answer);
            }
            answers.insert(stack.to_owned(), found);
        }
        for (row, wanted) in plan.wanted() {
            let answer = |query: &MachineQuery| -> Result<MachineAnswer, String> {
                let of = answers.get(&wanted.stack).and_then(|all| all.get(query));
                of.cloned().unwrap_or_else(|| Err("no answer".into()))
            };
            let Some((operation, carrier, is_time)) = split(&wanted.number) else { continue };
            let Ok(predicted) = wanted.number.value(&answer) else { continue };
            let as_rate = |value: f64| if is_time { 1.0 / value } else { value };
            // Few sources have copies of both engines; libraries differ from one source to the next.
            let source = if operation.starts_with("copy") { "" } else { &row.source };
            let key = (format!("{}, {operation}", table.system), source.to_owned());
            let rates = groups.entry(key).or_default().entry(carrier).or_default();
            rates.published.push(as_rate(wanted.published.middle()));
            rates.predicted.push(as_rate(predicted));
        }
    }
    groups.retain(|_, carriers| carriers.len() > 1);
    groups
}

/// How well first places agree.
#[derive(Debug, Clone, Default)]
struct FirstPlaces {
    right: usize,
    wrong: Vec<String>,
    ties: usize,
    /// What is lost by following the model, of each group.
    losses: Vec<f64>,
}

#[test]
fn the_model_ranks_as_published_values_do() {
    let mut kinds: BTreeMap<String, FirstPlaces> = BTreeMap::new();
    for ((operation, source), carriers) in groups() {
        let rates: Vec<(&String, (f64, f64))> =
            carriers.iter().map(|(carrier, rates)| (carrier, rates.medians())).collect();
        let first = |of: fn(&(f64, f64)) -> f64| {
            *rates.iter().max_by(|a, b| of(&a.1).total_cmp(&of(&b.1))).unwrap()
        };
        let (best, chosen) = (first(|rates| rates.0), first(|rates| rates.1));
        let loss = best.1.0 / chosen.1.0 - 1.0;
        let second = rates.iter().filter(|one| one.0 != best.0).map(|one| one.1.0);
        let second = second.fold(0.0, f64::max);
        let kind = operation.split(", ").nth(1).unwrap().split(':').next().unwrap();
        let places = kinds.entry(kind.to_owned()).or_default();
        places.losses.push(loss);
        if best.1.0 / second - 1.0 < TIE {
            places.ties += 1;
        } else if best.0 == chosen.0 {
            places.right += 1;
        } else {
            places.wrong.push(format!("{operation} ({source}): {rates:?}"));
        }
    }
    for (kind, places) in &kinds {
        let losses = ascending(places.losses.iter().copied());
        println!(
            "{kind}: {} of {} first places right, {} ties; following the model loses {:.1} % in the mean, \
         {:.1} % at most",
            places.right,
            places.right + places.wrong.len(),
            places.ties,
            losses.iter().sum::<f64>() / losses.len() as f64 * 100.0,
            losses.last().unwrap() * 100.0
        );
        places.wrong.iter().for_each(|wrong| println!("  {wrong}"));
    }
    let places = |kind: &str| kinds.get(kind).cloned().unwrap_or_default();
    for kind in ["collective", "message", "copy"] {
        let FirstPlaces { right, wrong, .. } = places(kind);
        let all = right + wrong.len();
        assert!(right * 100 >= all * 95, "{kind}: {right} of {all}: {wrong:?}");
    }
    assert!(places("collective").right >= 5 && places("message").right >= 7, "{kinds:?}");
}

/// A table is of no node but its own: that of H200 not of a GH200, that of MI300X not of an MI325X. A preset
/// without a table has no fitted constant.
#[test]
fn a_table_is_of_its_own_node() {
    for (name, _) in MachineDesc::presets() {
        let desc = MachineDesc::preset(name).unwrap();
        let found = ShippedTable::for_node(desc.healthy_topology()).map(|table| table.system);
        let own = SHIPPED.iter().map(|table| table.system).find(|system| system == name);
        assert_eq!(found, own, "{name}");
        let is_fitted = |c: &ModelConstant| c.origin == Some(ConstantOrigin::Fitted);
        assert!(own.is_some() || !desc.constants().iter().any(is_fitted), "{name}");
    }
}
