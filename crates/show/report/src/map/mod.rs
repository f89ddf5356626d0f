//! The map of a node: as text with matrices, and as a picture.

mod draw;
mod fabric;
mod layout;
mod pairs;
mod panel;
mod parts;
mod picture;
mod style;
mod text;

#[cfg(test)]
mod tests;

pub use picture::svg;
pub use text::text;
