//! Measures: suites make cases, a plan chooses among them, lanes carry them out, the engine samples
//! until the figure is sure, a session writes it down.
//!
//! Names no vendor: everything goes through `pathline_hal`.

mod calls;
mod doubt;
mod engine;
mod lane;
mod plan;
mod session;
mod staged;
mod suites;
mod watch;

pub use engine::{Interrupt, default_settings};
pub use plan::{Entry, Plan, Scope};
pub use session::{Event, Header, Session, SessionError};
pub use suites::{SUITES, Suite};
