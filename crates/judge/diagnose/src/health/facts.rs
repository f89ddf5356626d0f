//! What the node states about itself: trained links, error counters, missing parts.

use pathline_schema::LinkKind;
use serde::{Deserialize, Serialize};

/// A link as it is trained now, and as both of its ends could have it. Idle links clock down, so
/// speeds count only if they were read while bytes moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainedLink {
    /// Ends, for a reader: `gpu0-gpu1`, `gpu3 PCIe`.
    pub name: String,
    /// Its kind.
    pub kind: LinkKind,
    /// Lanes or links in use; 0 if unknown.
    pub width: u32,
    /// Lanes or links that both ends have; 0 if unknown.
    pub max_width: u32,
    /// GT/s of a lane or Gbit/s of a link now; 0 if unknown.
    pub speed: f64,
    /// The highest speed that both ends have; 0 if unknown.
    pub max_speed: f64,
    /// Whether the speed was read while bytes moved.
    pub under_load: bool,
    /// Errors that the hardware counted before and after the measurement, where it counts them:
    /// replays, CRC errors, recoveries.
    pub errors: Option<(u64, u64)>,
}

/// Facts that need no measurement of time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Trained links.
    pub links: Vec<TrainedLink>,
    /// Parts that the node should have and does not show: `gpu5`. Each is a fault.
    pub missing: Vec<String>,
    /// Who else uses the GPUs or the CPUs, if anyone; such a node cannot be judged by times.
    pub busy: Option<String>,
    /// Probes and steps that failed, with their error. Each is a fault.
    pub failed: Vec<String>,
    /// Why measuring ended early: `budget of 5 s is over`. The verdict then rests on what is known.
    pub stopped: Option<String>,
    /// What a verdict rests on and could not be read or measured: a node with any of it does not pass.
    #[serde(default)]
    pub unread: Vec<String>,
    /// What is worth knowing and decides nothing: corrected memory errors.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Legal peculiarities that limit the verdict: `MIG is on`, `6 of 8 GPUs are visible`.
    pub limits: Vec<String>,
}
