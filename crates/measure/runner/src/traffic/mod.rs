//! Counters of traffic: of this host, and of a simulated machine that plays cases in virtual time.

mod host;
mod model;

pub use host::HostTraffic;
pub use model::{ModelTraffic, model_steps};
