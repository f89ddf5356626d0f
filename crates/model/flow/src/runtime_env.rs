//! Environment switches of the GPU runtime.

use std::collections::BTreeMap;

/// Environment switches of the GPU runtime that change which engine or mechanism moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuntimeEnv {
    /// `HSA_ENABLE_SDMA`; unset means 1.
    pub sdma: Option<bool>,
    /// `HSA_ENABLE_PEER_SDMA`; unset means 1.
    pub peer_sdma: Option<bool>,
    /// `NCCL_NVLS_ENABLE`: whether NCCL lets switches reduce; unset is on.
    pub nvls: Option<bool>,
    /// `HSA_XNACK`; unset means that each case gets the value it needs.
    pub xnack: Option<bool>,
}

impl RuntimeEnv {
    /// Reads the switches from an environment: `0` and `1`; anything else is as good as unset.
    pub fn from_env(env: &BTreeMap<String, String>) -> Self {
        let read = |name: &str| match env.get(name).map(|v| v.trim()) {
            Some("0") => Some(false),
            Some("1") => Some(true),
            _ => None,
        };
        Self {
            sdma: read("HSA_ENABLE_SDMA"),
            peer_sdma: read("HSA_ENABLE_PEER_SDMA"),
            nvls: read("NCCL_NVLS_ENABLE"),
            xnack: read("HSA_XNACK"),
        }
    }
}
