//! The result of a health check, for people and for cluster software.

mod document;
pub mod fleet;
mod formats;
mod text;

pub use document::{HealthClass, HealthDocument, HealthPath, HealthPhases, HealthReference};
pub use formats::{json, junit, nagios, prometheus, reframe};
pub(crate) use text::TextPage;
pub use text::{text, worst_path};
