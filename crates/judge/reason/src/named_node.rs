//! The node that a paste names by its GPUs: whether it is the user's, and which description is its.

use std::collections::BTreeSet;

use pathline_flow::MachineDesc;
use pathline_paste::{PasteContent, PasteReading, TestDevice, find_product};
use pathline_schema::{NodeVerdict, Topology};

use crate::answer::{PasteExplanation, explain_on_node, explain_paste};
use crate::row_predictor::RowPredictor;

/// A product that the paste lists and the product of the machine, if the paste does not list the latter.
pub fn other_product(
    reading: &PasteReading,
    machine: &Topology,
) -> Option<(&'static str, &'static str)> {
    let own = product_of(machine)?;
    let names = reading.context.listed_gpus.iter();
    let names = names.chain(ranks_of(reading).iter().map(|device| &device.name));
    let listed: Vec<&'static str> = names.filter_map(|name| find_product(name)).collect();
    Some((*listed.first().filter(|_| !listed.contains(&own))?, own))
}

/// The one preset of a node with these GPUs, and with this number of them if it is known.
pub fn preset_of(product: &str, gpus: Option<u32>) -> Option<&'static str> {
    let is_it = |(name, text): &&(&'static str, &'static str)| {
        let desc = text.contains(product).then(|| MachineDesc::preset(name).ok()).flatten();
        desc.is_some_and(|desc| {
            let node = desc.healthy_topology();
            let is_whole = gpus.is_none_or(|gpus| node.gpus.len() == gpus as usize);
            product_of(node) == Some(product) && is_whole
        })
    };
    let found: Vec<&str> =
        MachineDesc::presets().iter().filter(is_it).map(|(name, _)| *name).collect();
    if let [one] = found[..] { Some(one) } else { None }
}

/// Product and number of the GPUs of a paste that names one node whole: one product, and all ranks listed on one host,
/// or a count.
pub fn whole_node(reading: &PasteReading) -> Option<(&str, u32)> {
    let context = &reading.context;
    let [product] = context.gpus.as_slice() else { return None };
    let ranks = ranks_of(reading);
    let hosts: BTreeSet<&str> = ranks.iter().map(|device| device.host.as_str()).collect();
    let listed = u32::try_from(ranks.len()).ok().filter(|ranks| *ranks > 0);
    let is_one = hosts.len() <= 1 && context.nodes.is_none_or(|nodes| nodes == 1);
    Some((product, listed.or(context.gpu_count).filter(|_| is_one)?))
}

/// Explains a paste without a machine of the user, and where that decides nothing by the model of the node that it
/// names. That model is assumed: it clears a figure, and accuses none.
pub fn explain_on_preset(reading: &PasteReading, node: &RowPredictor) -> PasteExplanation {
    let mut found = explain_paste(reading, None);
    let undecided = found.answers.iter_mut().filter(|one| one.verdict == NodeVerdict::Undecided);
    let mut undecided = undecided.peekable();
    if undecided.peek().is_some() {
        let modelled = explain_on_node(reading, node, None).answers;
        for answer in undecided {
            let clears = modelled.iter().find(|other| {
                (other.first_line, other.last_line, other.subject)
                    == (answer.first_line, answer.last_line, answer.subject)
                    && other.verdict == NodeVerdict::Ok
            });
            if let Some(other) = clears {
                answer.clone_from(other);
            }
        }
    }
    found
}

fn product_of(node: &Topology) -> Option<&'static str> {
    find_product(&node.gpus.first()?.name)
}

/// The longest list of devices, by rank.
fn ranks_of(reading: &PasteReading) -> &[TestDevice] {
    let lists = reading.documents.iter().filter_map(|document| match &document.content {
        PasteContent::Collective(table) => Some(table.devices.as_slice()),
        _ => None,
    });
    lists.max_by_key(|devices| devices.len()).unwrap_or_default()
}
