//! Placement of the ranks of a job on a node: GPU, cores and network adapter of each, from the topology
//! alone, and the launcher options and wrapper script that set it. And the faults of where ranks run.

mod cluster_mapping;
mod core_blocks;
mod job_script;
mod launch_text;
mod mapping_search;
mod matrix_fields;
mod matrix_file;
mod message_list;
mod nccl_sends;
mod nccl_trace;
mod phase_model;
mod plan_file;
mod rank_places;
mod rank_site;
mod rank_traffic;
mod site_check;
mod visible_gpus;

pub use cluster_mapping::{ClusterModel, ClusterPhase, ClusterSearch, map_cluster};
pub use job_script::job_script;
pub use launch_text::{LauncherKind, launch_text, rankfile_text};
pub use mapping_search::{MappingSearch, PlacedPhase, find_mapping};
pub use matrix_file::read_matrix;
pub use phase_model::{PhaseClock, PhaseModel, PhaseMover, phase_time};
pub use plan_file::{PlanError, PlannedRank, read_plan};
pub use rank_places::{PlaceError, PlaceRequest, PlacementPlan, RankPlace, place_ranks};
pub use rank_site::{RankSite, SiteDomain, SiteGpu, SiteNic, SiteNode, planned_sites};
pub use rank_traffic::{MAX_RANKS, PhasePattern, RankMessage, RankTraffic, TrafficError};
pub use site_check::{SiteFinding, check_sites};
pub use visible_gpus::{VisibleGpus, visible_gpus};
