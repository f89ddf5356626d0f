//! The network between nodes: which node, adapter, cable, leaf or route is slow, found by measuring pairs of nodes,
//! all nodes at once, with few rounds. Plan and judgement are pure: a [`PairMeter`] measures.

mod cells;
mod check;
mod groups;
mod parts;
mod report;
#[cfg(test)]
mod tests;
mod tournament;

pub use check::check_network;
pub use parts::{NetPartKind, NetShape};
pub use report::{NetFault, NetReport, PairMeter, PairTimes};
pub use tournament::tournament;
