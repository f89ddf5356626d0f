//! Renders runs and predictions: terminal, HTML, SVG, CSV, JSON and other tools' tables.

pub mod comparison;
pub mod csv;
pub mod format;
pub mod health;
pub mod html;
pub mod link_loads;
pub mod map;
pub mod markdown;
pub mod predicted;
pub mod terminal;
pub mod traffic;

mod scores;
