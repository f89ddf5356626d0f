//! Why a pasted figure is what it is: what it counts, the limit of the node, causes with odds, and the
//! command that would decide.
//!
//! Pure. A cause is an edit of the world (a link at half width, traffic through the root port, one channel)
//! with a prior and with what it predicts for the figures; their likelihood under log-normal noise chooses.
//! "As expected" and "unknown" are causes too.

mod answer;
mod catalogue;
mod collectives;
mod copies;
mod cue_table;
mod deciding_probe;
mod field_causes;
mod field_cues;
mod io;
mod library_messages;
mod log_check;
mod message_table;
mod message_worlds;
mod messages;
mod model_edits;
mod node_facts;
mod product_facts;
mod row_predictor;
mod score;
mod sentence_topics;
mod sentences;
mod statements;
mod store_worlds;
mod text_cues;
mod topic_causes;
mod unit_check;
mod wiring;
pub mod word_model;

pub use answer::{PasteAnswer, PasteExplanation, explain_on_node, explain_paste, paste_terms};
pub use deciding_probe::{DecidingProbe, ProbeEvidence, ProbeOutcome, ProbeSubject};
pub use product_facts::{FabricKind, ProductFacts, pcie_gbs, product_facts};
pub use row_predictor::{PredictedRow, RowPredictor};
pub use score::{AnswerClass, LikelyCause};
