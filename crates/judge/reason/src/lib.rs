//! What a pasted figure is, what limits it, and whether it is as expected: rows first, arithmetic, outliers,
//! exact messages, and UNDECIDED where none of these decides.
//!
//! Pure. Figures decide, words do not. A cause is an edit of a node (a link at half width, traffic through the
//! root port, one channel) with what it predicts for the figures. With a model of the node their likelihood
//! under log-normal noise chooses; without one a cause is named only where the figure is exactly what it gives,
//! or a log, a setting or a message states it.

mod adapters;
mod answer;
mod cause_table;
mod checks;
mod collective_causes;
mod collectives;
mod copies;
mod deciding_probe;
mod draft;
mod exact_messages;
mod figures;
mod fitting_links;
mod further_figures;
mod headline;
mod host_copies;
mod host_outliers;
mod io;
mod io_limits;
mod kernel_events;
mod link_state;
mod logs;
mod memory;
mod message_worlds;
mod messages;
mod model_edits;
mod named_node;
mod node_facts;
mod nvlink_rates;
mod outlier;
mod pair_levels;
mod paste_answer;
mod plain_rates;
mod predicted_row;
mod processor_facts;
mod product_facts;
mod profiles;
mod repeated_runs;
mod row_predictor;
mod score;
mod stated_settings;
mod table_rows;
mod table_summary;
mod usual_share;
mod vendor_words;
mod verdict;
mod wiring;

pub use answer::{PasteExplanation, explain_on_node, explain_paste};
pub use checks::PathCheck;
pub use deciding_probe::{DecidingProbe, ProbeEvidence};
pub use draft::{ProbeOutcome, ProbeSubject};
pub use named_node::{explain_on_preset, other_product, preset_of, whole_node};
pub use paste_answer::PasteAnswer;
pub use predicted_row::PredictedRow;
pub use product_facts::{FabricKind, ProductFacts, pcie_gbs, product_facts};
pub use row_predictor::RowPredictor;
pub use score::{AnswerClass, CauseBasis, LikelyCause};
pub use stated_settings::StatedSetting;
