//! Reports of a GPU: facts at the start of a run, readings around each case.
//!
//! A field that the driver, the product or a virtual machine does not offer is none: never 0.

use serde::{Deserialize, Serialize};

use crate::PcieLink;

/// Facts that normally do not change during a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GpuFacts {
    /// Source of the facts: `NVML 550.54`, `amdgpu sysfs`, `model`.
    #[serde(default)]
    pub source: String,
    /// Highest clock of the compute units, MHz.
    #[serde(default)]
    pub max_sm_clock_mhz: Option<u32>,
    /// Highest clock of the memory, MHz.
    #[serde(default)]
    pub max_memory_clock_mhz: Option<u32>,
    /// Power that the driver holds the GPU to, W.
    #[serde(default)]
    pub power_limit_w: Option<f64>,
    /// Whether memory is protected by ECC.
    #[serde(default)]
    pub ecc: Option<bool>,
    /// Whether it is split into instances (MIG).
    #[serde(default)]
    pub mig: Option<bool>,
    /// Whether the driver stays loaded when nobody uses the GPU.
    #[serde(default)]
    pub persistence: Option<bool>,
    /// Compute mode: `default`, `exclusive process`, `prohibited`.
    #[serde(default)]
    pub compute_mode: Option<String>,
    /// NVLinks that carry traffic, and NVLinks that the product has.
    #[serde(default)]
    pub nvlinks: Option<(u32, u32)>,
    /// Share of the last second before the run during which it worked, for whomever, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_percent: Option<u32>,
    /// Registration with the NVLink fabric: `completed`, `in progress`, `not started`.
    #[serde(default)]
    pub fabric: Option<String>,
    /// Which board it is.
    #[serde(default, skip_serializing_if = "BoardIdentity::is_unknown")]
    pub identity: BoardIdentity,
}

/// What tells a GPU from others of its kind, for a ticket. Unknown texts are empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BoardIdentity {
    /// `GPU-1b2c...` of NVIDIA, 16 hexadecimal digits of AMD.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uuid: String,
    /// Serial number of the board.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub serial: String,
    /// Version of its firmware.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vbios: String,
    /// Part number of the board.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub board_part: String,
}

impl BoardIdentity {
    /// Whether nothing is known.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// `GPU-1b2c, serial 165..., VBIOS ..., part ...`; the first two if it is to be short.
    pub fn text(&self, is_short: bool) -> String {
        let parts = [
            ("", &self.uuid),
            ("serial ", &self.serial),
            ("VBIOS ", &self.vbios),
            ("part ", &self.board_part),
        ];
        let parts = parts.into_iter().take(if is_short { 2 } else { 4 });
        let known = parts.filter(|(_, text)| !text.is_empty());
        known.map(|(name, text)| format!("{name}{text}")).collect::<Vec<_>>().join(", ")
    }
}

/// A text by which a maker names a part, of at most 64 characters; empty if it is a blank that nobody filled in.
pub fn part_text(text: &str) -> String {
    const BLANK: [&str; 8] = [
        "",
        "0",
        "N/A",
        "None",
        "Default string",
        "Not Specified",
        "To be filled by O.E.M.",
        "To Be Filled By O.E.M.",
    ];
    let text: String = text.trim().chars().filter(|c| !c.is_control()).take(64).collect();
    if BLANK.contains(&text.as_str()) { String::new() } else { text }
}

/// A reading of values that change during a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GpuState {
    /// Clock of the compute units, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<u32>,
    /// Power drawn, W. Where the driver averages (NVIDIA from Ampere on: over one second), so is
    /// this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Temperature of the die, degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<f64>,
    /// Why clocks are held below their highest, in words: `power cap`, `thermal slowdown`. An idle
    /// GPU's low clocks are no reason. None if the driver does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Vec<String>>,
    /// Processes that compute on it and are not this run's. None where the driver does not tell them
    /// apart, as it does not from within some containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_processes: Option<u32>,
    /// Memory errors corrected since the driver was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc_corrected: Option<u64>,
    /// Memory errors not corrected since the driver was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected: Option<u64>,
    /// Errors of all links to other GPUs since the driver was loaded: replays, recoveries and CRC of
    /// NVLink, corrected and uncorrected of xGMI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_errors: Option<u64>,
    /// PCIe packets sent again since the driver was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_replays: Option<u64>,
    /// The PCIe link as trained now, and its highest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie: Option<PcieLink>,
}

/// A GPU's state around one case.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GpuReadings {
    /// Error counters before the case was bound.
    pub before: GpuState,
    /// Clocks, power and the like while its operations ran, in a sample that is not recorded. None
    /// if the operations were over before the reading was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<GpuState>,
    /// Error counters after its last sample.
    pub after: GpuState,
}
