//! Origins of the constants that a simulated figure rests on.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a constant came into a machine description; the later, the weaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConstantOrigin {
    /// From a manual, or reported by the hardware.
    Datasheet,
    /// Free: chosen so that the mechanism meets measurements of other cases than one.
    Fitted,
    /// One measurement, carried as it is; no mechanism is claimed.
    Data,
    /// Of the right size, but neither measured nor stated by any source.
    Assumed,
}

impl ConstantOrigin {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Datasheet, Self::Fitted, Self::Data, Self::Assumed];

    /// As it is written in `[origin]`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Datasheet => "datasheet",
            Self::Fitted => "fitted",
            Self::Data => "data",
            Self::Assumed => "assumed",
        }
    }
}

impl fmt::Display for ConstantOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
