//! Sensors of one GPU from amdgpu's files in /sys. Needs no library and wakes no GPU: the files are
//! described in `Documentation/gpu/amdgpu` of Linux. A missing file leaves only its own field
//! empty.

use std::path::{Path, PathBuf};

use pathline_dylib::starting_with;
use pathline_host::files;
use pathline_schema::{BoardIdentity, GpuFacts, GpuState, PcieLink, part_text};

use crate::sensors::GpuSensors;

/// The GPU at an address below `devices`, if amdgpu drives it.
pub(super) fn find(devices: &Path, pci: &str) -> Option<Box<dyn GpuSensors>> {
    AmdDevice::at(devices, pci).map(|device| Box::new(device) as Box<dyn GpuSensors>)
}

/// A GPU with its folders.
#[derive(Debug)]
struct AmdDevice {
    folder: PathBuf,
    /// Folder of its sensors, if any: of an MI250X only one of two GCDs has power sensors.
    sensors: Option<PathBuf>,
}

impl AmdDevice {
    /// The GPU at this address below `devices` (`/sys/bus/pci/devices`), if amdgpu drives it.
    fn at(devices: &Path, pci: &str) -> Option<Self> {
        let folder = devices.join(pci);
        if !folder.join("pp_dpm_sclk").exists() && !folder.join("gpu_metrics").exists() {
            return None;
        }
        let sensors = starting_with(&folder.join("hwmon"), "hwmon").into_iter().next();
        Some(Self { folder, sensors })
    }

    fn text(&self, file: &str) -> Option<String> {
        files::text(self.folder.join(file))
    }

    fn identity(&self) -> BoardIdentity {
        let text = |file| self.text(file).map(|text| part_text(&text)).unwrap_or_default();
        BoardIdentity {
            uuid: text("unique_id"),
            serial: text("serial_number"),
            vbios: text("vbios_version"),
            board_part: text("product_number"),
        }
    }

    fn sensor(&self, file: &str) -> Option<u64> {
        files::number(self.sensors.as_ref()?.join(file))
    }

    fn pcie(&self) -> Option<PcieLink> {
        let speed = |file| gts(&self.text(file)?);
        let width = |file| {
            let lanes = files::number(self.folder.join(file))?;
            u32::try_from(lanes).ok().filter(|l| (1..=32).contains(l))
        };
        Some(PcieLink {
            speed_gts: speed("current_link_speed")?,
            width: width("current_link_width")?,
            max_speed_gts: speed("max_link_speed").unwrap_or(0.0),
            max_width: width("max_link_width").unwrap_or(0),
        })
    }
}

impl GpuSensors for AmdDevice {
    fn facts(&self) -> GpuFacts {
        let highest = |file| clocks(&self.text(file)?).1;
        GpuFacts {
            source: "amdgpu sysfs".to_owned(),
            max_sm_clock_mhz: highest("pp_dpm_sclk"),
            max_memory_clock_mhz: highest("pp_dpm_mclk"),
            power_limit_w: self.sensor("power1_cap").map(watts),
            // The counter exists if the memory's ECC is on.
            ecc: self.text("ras/umc_err_count").map(|_| true),
            busy_percent: self
                .text("gpu_busy_percent")
                .and_then(|percent| percent.trim().parse().ok())
                .filter(|percent| *percent <= 100),
            identity: self.identity(),
            ..GpuFacts::default()
        }
    }

    fn state(&self) -> GpuState {
        let now = |file| clocks(&self.text(file)?).0;
        let power = self.sensor("power1_average").or_else(|| self.sensor("power1_input"));
        // The second sensor is the junction, the hottest point; the first is the edge.
        let celsius = self.sensor("temp2_input").or_else(|| self.sensor("temp1_input"));
        let throttle = files::bytes(self.folder.join("gpu_metrics"), 4096);
        GpuState {
            sm_clock_mhz: now("pp_dpm_sclk"),
            memory_clock_mhz: now("pp_dpm_mclk"),
            power_w: power.map(watts),
            temperature_c: celsius.map(|thousandths| thousandths as f64 / 1e3),
            throttle: throttle.and_then(|metrics| why_slow(&metrics)),
            pcie: self.pcie(),
            ..GpuState::default()
        }
    }

    fn counters(&self) -> GpuState {
        let memory = self.text("ras/umc_err_count").map(|text| errors(&text));
        let links = self.text("ras/xgmi_wafl_err_count").map(|text| errors(&text));
        let both = |(uncorrected, corrected): (Option<u64>, Option<u64>)| {
            Some(uncorrected?.saturating_add(corrected?))
        };
        GpuState {
            ecc_corrected: memory.and_then(|m| m.1),
            ecc_uncorrected: memory.and_then(|m| m.0),
            link_errors: links.and_then(both),
            pcie_replays: self.text("pcie_replay_count").and_then(|t| t.trim().parse().ok()),
            ..GpuState::default()
        }
    }
}

fn watts(microwatts: u64) -> f64 {
    microwatts as f64 / 1e6
}

/// The current clock (marked) and the highest one in a table such as `0: 500Mhz` / `1: 1700Mhz *`,
/// MHz.
fn clocks(table: &str) -> (Option<u32>, Option<u32>) {
    let line = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let rest = rest.trim();
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = rest.split_at(digits);
        let mhz = unit.get(..3).is_some_and(|u| u.eq_ignore_ascii_case("mhz"));
        Some((number.parse().ok().filter(|_| mhz)?, rest.ends_with('*')))
    };
    let all: Vec<(u32, bool)> = table.lines().filter_map(line).collect();
    let now = all.iter().find(|(_, marked)| *marked).map(|(clock, _)| *clock);
    (now, all.iter().map(|(clock, _)| *clock).max())
}

/// Uncorrected and corrected errors, from `ue: 0` / `ce: 3`.
fn errors(text: &str) -> (Option<u64>, Option<u64>) {
    let count = |key| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(key))?;
        line.trim().parse().ok()
    };
    (count("ue:"), count("ce:"))
}

/// GT/s, from `16.0 GT/s PCIe`.
fn gts(text: &str) -> Option<f64> {
    let speed: f64 = text.split_whitespace().next()?.parse().ok()?;
    (speed.is_finite() && speed > 0.0).then_some(speed)
}

/// Reasons for reduced clocks, from `gpu_metrics` in its format 1.3 (MI200), where the 64 bits at
/// byte 112 are the same for all products: 16 of power, 16 of current, 24 of temperature, 8 of
/// others (`gpu_metrics_v1_3` of kgd_pp_interface.h, `SMU_THROTTLER_*` of amdgpu_smu.h). Other
/// formats number reasons differently: `None`.
fn why_slow(metrics: &[u8]) -> Option<Vec<String>> {
    if metrics.get(2..4)? != [1, 3] {
        return None;
    }
    let bits: [u8; 8] = metrics.get(112..120)?.try_into().ok()?;
    let bits = u64::from_le_bytes(bits);
    if bits == u64::MAX {
        return None;
    }
    const GROUPS: [(u64, &str); 4] = [
        (0xffff, "power cap"),
        (0xffff << 16, "current limit"),
        (0x00ff_ffff << 32, "thermal slowdown"),
        (0xff << 56, "firmware limit"),
    ];
    let set = GROUPS.iter().filter(|(group, _)| bits & group != 0);
    Some(set.map(|(_, name)| (*name).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One GCD of an MI250X under load, as amdgpu of Linux 6.4 writes it.
    fn mi250x(folder: &Path) -> AmdDevice {
        let put = |file: &str, bytes: &[u8]| {
            let path = folder.join("0000:c1:00.0").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        put("pp_dpm_sclk", b"0: 500Mhz\n1: 800Mhz *\n2: 1700Mhz\n");
        put("pp_dpm_mclk", b"0: 400Mhz\n1: 700Mhz\n2: 1200Mhz\n3: 1600Mhz *\n");
        put("hwmon/hwmon7/power1_average", b"312000000\n");
        put("hwmon/hwmon7/power1_cap", b"560000000\n");
        put("hwmon/hwmon7/temp1_input", b"41000\n");
        put("hwmon/hwmon7/temp2_input", b"46500\n");
        put("ras/umc_err_count", b"ue: 0\nce: 3\n");
        put("ras/xgmi_wafl_err_count", b"ue: 1\nce: 4\n");
        put("pcie_replay_count", b"12\n");
        put("gpu_busy_percent", b"97\n");
        put("current_link_speed", b"16.0 GT/s PCIe\n");
        put("current_link_width", b"16\n");
        put("max_link_speed", b"16.0 GT/s PCIe\n");
        put("max_link_width", b"16\n");
        let mut metrics = [0u8; 120];
        metrics[..4].copy_from_slice(&[120, 0, 1, 3]);
        // Bit 1, a power limit, and bit 36, the hot spot.
        metrics[112..].copy_from_slice(&(1u64 << 1 | 1 << 36).to_le_bytes());
        put("gpu_metrics", &metrics);
        AmdDevice::at(folder, "0000:c1:00.0").unwrap()
    }

    #[test]
    fn a_gpu_is_read_from_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let device = mi250x(folder.path());
        let facts = device.facts();
        assert_eq!((facts.max_sm_clock_mhz, facts.max_memory_clock_mhz), (Some(1700), Some(1600)));
        assert_eq!(facts.busy_percent, Some(97));
        assert_eq!((facts.power_limit_w, facts.ecc, facts.mig), (Some(560.0), Some(true), None));
        let state = device.state();
        assert_eq!((state.sm_clock_mhz, state.memory_clock_mhz), (Some(800), Some(1600)));
        assert_eq!((state.power_w, state.temperature_c), (Some(312.0), Some(46.5)));
        let reasons = ["power cap", "thermal slowdown"].map(str::to_owned);
        assert_eq!(state.throttle.as_deref(), Some(&reasons[..]));
        let link = PcieLink { speed_gts: 16.0, width: 16, max_speed_gts: 16.0, max_width: 16 };
        assert_eq!(state.pcie, Some(link));
        let counters = device.counters();
        assert_eq!((counters.ecc_corrected, counters.ecc_uncorrected), (Some(3), Some(0)));
        assert_eq!((counters.link_errors, counters.pcie_replays), (Some(5), Some(12)));
    }

    #[test]
    fn missing_files_give_none_and_not_zero() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("0000:c1:00.0")).unwrap();
        assert!(AmdDevice::at(folder.path(), "0000:c1:00.0").is_none());
        std::fs::write(folder.path().join("0000:c1:00.0/pp_dpm_sclk"), "").unwrap();
        let device = AmdDevice::at(folder.path(), "0000:c1:00.0").unwrap();
        assert_eq!(device.state(), GpuState::default());
        assert_eq!(device.counters(), GpuState::default());
        let source = "amdgpu sysfs".to_owned();
        assert_eq!(device.facts(), GpuFacts { source, ..GpuFacts::default() });
    }

    #[test]
    fn a_sleeping_gpus_clock_has_a_separate_line() {
        assert_eq!(clocks("S: 19Mhz *\n0: 500Mhz\n1: 2100Mhz\n"), (Some(19), Some(2100)));
        assert_eq!(clocks("0: 500Mhz\n1: 2100Mhz\n"), (None, Some(2100)));
        assert_eq!(clocks("1: 8.0GT/s, x16 *"), (None, None));
    }

    #[test]
    fn unknown_metrics_formats_give_nothing() {
        let mut metrics = vec![0u8; 288];
        metrics[2..4].copy_from_slice(&[1, 4]);
        assert_eq!(why_slow(&metrics), None);
        assert_eq!(why_slow(&[120, 0, 1, 3]), None);
        metrics[2..4].copy_from_slice(&[1, 3]);
        assert_eq!(why_slow(&metrics), Some(Vec::new()));
        // A driver that does not fill the field leaves it all ones.
        metrics[112..120].fill(0xff);
        assert_eq!(why_slow(&metrics), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_parser(text in "[0-9A-Za-z:. *\n/]{0,60}", bytes: Vec<u8>) {
            let (now, most) = clocks(&text);
            prop_assert!(now.is_none() || most.is_some());
            errors(&text);
            prop_assert!(gts(&text).is_none_or(|v| v > 0.0));
            why_slow(&bytes);
        }
    }
}
