//! A machine description: a TOML file that says what a node is made of and what its parts do.

use std::collections::BTreeMap;

use pathline_schema::Topology;

/// What is wrong with a machine description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {reason}")]
pub struct DescError {
    /// File, with line where known: `mi250x.toml:12`.
    pub file: String,
    /// What is wrong and what was expected.
    pub reason: String,
}

/// Environment switches of the GPU runtime that change which engine or mechanism moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switches {
    /// `HSA_ENABLE_SDMA`; unset means 1.
    pub sdma: Option<bool>,
    /// `HSA_ENABLE_PEER_SDMA`; unset means 1.
    pub peer_sdma: Option<bool>,
    /// `HSA_XNACK`; unset means that each case gets the value it needs.
    pub xnack: Option<bool>,
}

impl Switches {
    /// Reads the switches from an environment.
    pub fn from_env(_env: &BTreeMap<String, String>) -> Self {
        todo!()
    }
}

/// A machine description.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineDesc {
    /// Short name: `mi250x`.
    pub name: String,
}

impl MachineDesc {
    /// Parses and validates TOML; `file` is named in errors.
    pub fn parse(_file: &str, _text: &str) -> Result<Self, DescError> {
        todo!()
    }
    /// What the described node looks like.
    pub fn topology(&self) -> Topology {
        todo!()
    }
}
