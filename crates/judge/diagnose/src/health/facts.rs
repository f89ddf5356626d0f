//! What the node states about itself: trained links, error counters, missing parts.

use pathline_schema::LinkKind;
use serde::{Deserialize, Serialize};

use crate::labels::gpus_in;

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
    /// GT/s of a lane or GB/s of a link now; 0 if unknown.
    pub speed: f64,
    /// The highest speed that both ends have; 0 if unknown.
    pub max_speed: f64,
    /// Whether the speed was read while bytes moved.
    pub under_load: bool,
    /// Errors that the hardware counted before and after the measurement, where it counts them:
    /// replays, CRC errors, recoveries.
    pub errors: Option<(u64, u64)>,
    /// Whether the node should have the link and does not show it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_missing: bool,
}

impl TrainedLink {
    /// Whether a part of a node is this link or a direction of it, or has it: `NVLink gpu3-switches, both directions`
    /// has `gpu3 NVLink`.
    pub fn is_part(&self, part: &str) -> bool {
        let (own, gpus) = (gpus_in(&self.name), gpus_in(part));
        if own.len() == 2 && part.starts_with(self.kind.name()) {
            return own == gpus;
        }
        match part.replace('>', "-").strip_prefix(self.name.as_str()) {
            Some(rest) => !rest.starts_with(|c: char| c.is_ascii_digit()),
            None => {
                !self.name.contains('-')
                    && part.starts_with(self.kind.name())
                    && own.is_subset(&gpus)
            }
        }
    }

    /// What it has less than both of its ends could have: `gpu3 PCIe runs 8 of 16 lanes`.
    pub fn loss(&self) -> Option<String> {
        let (of, rate) = match self.kind {
            // A description states the rate of a link with both of its ends.
            LinkKind::Pcie if self.name.contains('-') => ("links", "GB/s"),
            LinkKind::Pcie => ("lanes", "GT/s"),
            _ => ("links", "GB/s a link"),
        };
        if self.is_missing {
            return Some(format!("{} is missing (0 of {} {of})", self.name, self.max_width));
        }
        if self.width > 0 && self.width < self.max_width {
            return Some(format!("{} runs {} of {} {of}", self.name, self.width, self.max_width));
        }
        let slower = self.under_load && self.speed > 0.0 && self.speed < self.max_speed * 0.99;
        slower.then(|| format!("{} runs at {} of {} {rate}", self.name, self.speed, self.max_speed))
    }
}

impl NodeFacts {
    /// Links that are less than both of their ends could have.
    pub fn reduced_links(&self) -> impl Iterator<Item = &TrainedLink> {
        self.links.iter().filter(|link| link.loss().is_some())
    }
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
    /// What to do about the parts that the probes which failed have in common; empty without any.
    #[serde(skip)]
    pub failed_remedy: String,
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
