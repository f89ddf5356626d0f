//! From records to understanding: ceilings, comparison, pictures. Reaches no device.

pub mod figure;
pub mod html;
