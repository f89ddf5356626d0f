//! Which part of a node is slow: the classes of peers, the edits of a node by damage, and the likelihood that
//! every command judges by. Reaches no device and reads no clock.

mod collectives;
mod culprit;
mod edits;
mod expected;
mod expected_links;
mod failed_parts;
mod fleet;
mod health;
mod labels;
mod net;
mod outlier;
mod peers;
pub mod posterior;
mod setting_effect;
mod settings;
mod slow_group;
mod traffic;

pub use collectives::cause::{CauseScore, CollectiveCause, judge_causes, likely_causes};
pub use collectives::ledger::{
    CollectiveRun, LedgerRow, audit_rows, common_settings, describes, measured_exchanges,
};
pub use collectives::paired_choice::PairedChoice;
pub use culprit::Culprit;
pub use expected::{
    MAX_TRUST_FIGURES, MAX_TRUST_RANKS, PredictedFigure, find_figure_trust, predict_times,
};
pub use expected_links::{NodeReadings, reduced_links, trained_links};
pub use failed_parts::{CaseFate, FailedParts, SeparatingCases};
pub use fleet::{
    FleetNode, FleetReport, FleetSettings, MIN_NODES, NodeKind, SlowPlace, judge_fleet,
};
pub use health::digest::{
    CaseDigest, DigestEnds, DigestError, HistoryComparison, MIN_HISTORY, REFERENCE_ERROR,
    RunDigest, SlowerCase,
};
pub use health::facts::{NodeFacts, TrainedLink};
pub use health::monitor::{HealthMonitor, HealthSettings};
pub use health::next_step::NextStep;
pub use health::pace::RoundPace;
pub use health::plan::{HealthPlan, HealthProbe, SymmetryClass};
pub use health::report::{ClassShare, HealthReport, SuspectPath, TestPower};
pub use health::twin::{
    ReferenceComparison, compare_with_reference, measured_in_runs, predicted_by_twin,
};
pub use labels::{TailKind, gpus_in};
pub use net::{
    NetFault, NetPartKind, NetReport, NetShape, PairMeter, PairTimes, check_network, tournament,
};
pub use outlier::{CaseComparison, ComparedCase, TimedCase, UnlikePath, compare_run, usual_spread};
pub use pathline_message::NodeCut;
pub use peers::{NodePeers, PeerRatio, compare_with_peers, peer_classes, unit_shape};
pub use setting_effect::{predict_kernel_cost, predict_rate, predict_setting};
pub use settings::{KernelEvent, SettingCheck, check_settings, judge_kernel_log};
pub use slow_group::{SlowGroup, drain_node, part_remedy, slow_groups};
pub use traffic::{
    CapacitySource, NodeCapacities, NodeTraffic, PathCapacity, TrafficLimit, WayTraffic,
};
