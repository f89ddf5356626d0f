//! The path of any flow: of one mover, or of a copy over several paths.

use pathline_schema::{Flow, Mover};

use crate::graph::NodeGraph;
use crate::operation::{BuiltPath, NoPath};
use crate::{multipath, path};

/// The path of a flow.
pub(crate) fn build_path(net: &NodeGraph, flow: &Flow) -> Result<BuiltPath, NoPath> {
    match flow.by {
        Mover::Relay { paths, .. } | Mover::CopyToAll { paths, .. } => {
            path::measured_or(net, flow, || multipath::build(net, flow, &paths))
        }
        _ => path::build(net, flow),
    }
}
