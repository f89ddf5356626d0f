//! Why a pasted figure is what it is: what it counts, the limit of the node, causes with odds, and the
//! command that would decide.
//!
//! Pure. Figures decide, words do not: a limit, an outlier among peers, the model of a node, arithmetic, or the
//! exact text of a library. A possible cause is an edit of the node (a link at half width, traffic through the
//! root port, one channel) with what it predicts for the figures; one that cannot give them falls out, and
//! where several can, the answer is UNDECIDED.

mod answer;
mod collectives;
mod copies;
mod deciding_probe;
mod draft;
mod exact_messages;
mod io;
mod log_answer;
mod log_check;
mod message_worlds;
mod messages;
mod model_edits;
mod node_facts;
mod outlier;
mod product_facts;
mod row_predictor;
mod score;
mod store_worlds;
mod verdict;
mod wiring;

pub use answer::{PasteExplanation, explain_on_node, explain_paste};
pub use deciding_probe::{DecidingProbe, ProbeEvidence, ProbeOutcome};
pub use draft::ProbeSubject;
pub use product_facts::{FabricKind, ProductFacts, pcie_gbs, product_facts};
pub use row_predictor::{PredictedRow, RowPredictor};
pub use score::{AnswerClass, LikelyCause};
pub use verdict::{PasteAnswer, PasteVerdict};
