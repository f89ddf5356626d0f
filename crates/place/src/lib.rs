//! Placement of the ranks of a job on a node: GPU, cores and network adapter of each, from the topology
//! alone, and the launcher options and wrapper script that set it.

mod core_blocks;
mod launch_text;
mod rank_places;

pub use launch_text::{LauncherKind, launch_text};
pub use rank_places::{PlaceError, PlaceRequest, PlacementPlan, RankPlace, place_ranks};
