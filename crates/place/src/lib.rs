//! Placement of the ranks of a job on a node: GPU, cores and network adapter of each, from the topology
//! alone, and the launcher options and wrapper script that set it. And the faults of where ranks run.

mod core_blocks;
mod launch_text;
mod plan_file;
mod rank_places;
mod rank_site;
mod site_check;

pub use launch_text::{LauncherKind, launch_text};
pub use plan_file::{PlanError, PlannedRank, read_plan};
pub use rank_places::{PlaceError, PlaceRequest, PlacementPlan, RankPlace, place_ranks};
pub use rank_site::{RankSite, SiteDomain, SiteGpu, SiteNic, SiteNode, planned_sites};
pub use site_check::{SiteFinding, check_sites};
