//! Paths of flows over the graph: a file a mover.

mod builder;
mod calls;
mod copy;
mod cpu;
mod cpu_gpu;
mod files;
pub(crate) mod kernel;
mod kernel_start;
mod migrate;
mod threads;

use pathline_schema::{Flow, Mover};

use crate::graph::NodeGraph;
use crate::operation::{BuiltPath, NoPath};
use builder::no;

pub(crate) use builder::measured_or;

pub use files::IoParts;
pub(crate) use files::parts;

/// The one path of a flow; [`crate::flow_path`] has copies over several, too.
pub(crate) fn build(net: &NodeGraph, flow: &Flow) -> Result<BuiltPath, NoPath> {
    measured_or(net, flow, || match flow.by {
        Mover::Dma { at } => copy::build(net, flow, at, false),
        Mover::Blit { at } => copy::build(net, flow, at, true),
        Mover::Kernel { at, variant } => kernel::build(net, flow, at, variant),
        Mover::Cpu { at, work, threads } => cpu::build(net, flow, at, work, threads),
        Mover::Migrate { at, how } => migrate::build(net, flow, at, how),
        Mover::Staged { via, .. } => calls::staged(net, flow, via),
        Mover::Threads { at, threads } => threads::build(net, flow, at, threads),
        Mover::Batch { at, .. } => calls::batch(net, flow, at),
        Mover::Blocks { at, blocks, by } => calls::blocks(net, flow, at, (blocks, by)),
        Mover::Relay { .. } | Mover::CopyToAll { .. } => no("it goes over several paths"),
        Mover::Call { call, .. } => calls::call(net, flow, call),
        Mover::Wire { .. } => {
            no("what goes between processes is a library's, not the node's alone")
        }
        Mover::Io { io, .. } => files::build(net, flow, &io),
        Mover::Meta { .. } => no("metadata operations move no bytes over the node"),
    })
}
