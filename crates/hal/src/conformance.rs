//! What every machine must do: simulated, stub library, or hardware.
//!
//! Each check is a function over a [`Machine`]; a machine's crate runs them as its tests.
