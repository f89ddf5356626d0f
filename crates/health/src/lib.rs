//! Whether a node is healthy, from samples of its paths. Reaches no device and reads no clock.

mod unlike_path;

pub use unlike_path::{UnlikePath, unlike_paths};
