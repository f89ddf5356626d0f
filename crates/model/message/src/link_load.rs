//! What an exchange takes of each resource.

use pathline_schema::Rate;

/// The part of a resource's time that an exchange keeps it busy.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkLoad {
    /// A direction of a link, of an adapter, of a bundle between switches; a memory or an engine.
    pub name: String,
    /// `node` for all within a node, `adapter`, `engine`, or the level of the network between nodes.
    pub level: &'static str,
    /// What it carries at most. An engine's is 1, and its bytes count by the time that they take.
    pub capacity: Rate,
    /// Bytes of the resource that the exchange takes, packet overhead included.
    pub bytes: f64,
    /// Share of the exchange's time, 1 at most.
    pub busy: f64,
}
