//! What the driver says of its GPUs.

use std::ffi::{CStr, c_char};

use pathline_hal::{DeviceInfo, Result};
use pathline_schema::Bytes;

use super::api::Cuda;
use super::error::outcome;
use crate::files;

/// A GPU as the driver numbers it.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    /// `CUdevice`.
    pub(crate) handle: i32,
    pub(crate) info: DeviceInfo,
    /// Kernels may touch pageable memory of the host.
    pub(crate) pageable: bool,
}

// Numbers of `CUdevice_attribute`.
const MULTIPROCESSORS: i32 = 16;
const MAJOR: i32 = 75;
const MINOR: i32 = 76;
const PAGEABLE_ACCESS: i32 = 88;
const CONCURRENT_MANAGED: i32 = 89;

/// All GPUs by PCI address, which is how discovery numbers them; the driver's own order depends on
/// CUDA_DEVICE_ORDER.
pub(crate) fn all(api: &Cuda) -> Result<Vec<Device>> {
    let mut count = 0;
    // SAFETY: stores one number.
    let code = unsafe { (api.device_count)(&raw mut count) };
    outcome(api, code, "cuDeviceGetCount", &|| "this machine".into())?;
    let mut devices = (0..count).map(|nth| one(api, nth)).collect::<Result<Vec<_>>>()?;
    devices.sort_by(|a, b| a.info.pci.cmp(&b.info.pci));
    for (index, device) in (0..).zip(&mut devices) {
        device.info.index = index;
    }
    Ok(devices)
}

fn one(api: &Cuda, nth: i32) -> Result<Device> {
    let thing = || format!("device {nth}");
    let mut handle = 0;
    // SAFETY: stores one number.
    let code = unsafe { (api.device_get)(&raw mut handle, nth) };
    outcome(api, code, "cuDeviceGet", &thing)?;
    let attribute = |which: i32| -> Result<i32> {
        let mut value = 0;
        // SAFETY: stores one number.
        let code = unsafe { (api.device_attribute)(&raw mut value, which, handle) };
        outcome(api, code, "cuDeviceGetAttribute", &thing).map(|()| value)
    };
    let text = |call: &str, get: unsafe extern "C" fn(*mut c_char, i32, i32) -> i32| {
        let mut text = [0 as c_char; 256];
        // SAFETY: stores a C string of at most 255 bytes.
        let code = unsafe { get(text.as_mut_ptr(), 255, handle) };
        outcome(api, code, call, &thing)?;
        // SAFETY: the last byte is still zero.
        Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    };
    let mut memory = 0;
    // SAFETY: stores one number.
    let code = unsafe { (api.device_total)(&raw mut memory, handle) };
    outcome(api, code, "cuDeviceTotalMem", &thing)?;
    let pci = address(&text("cuDeviceGetPCIBusId", api.device_pci)?);
    let info = DeviceInfo {
        index: 0,
        name: text("cuDeviceGetName", api.device_name)?,
        arch: format!("sm_{}{}", attribute(MAJOR)?, attribute(MINOR)?),
        numa: files::number(format!("/sys/bus/pci/devices/{pci}/numa_node"))
            .and_then(|n| u32::try_from(n).ok()),
        pci,
        memory: Bytes(memory as u64),
        compute_units: u32::try_from(attribute(MULTIPROCESSORS)?).unwrap_or(0),
        demand_migration: attribute(CONCURRENT_MANAGED)? != 0,
    };
    Ok(Device { handle, pageable: attribute(PAGEABLE_ACCESS)? != 0, info })
}

/// A PCI address as /sys spells it: `0000:c1:00.0`.
fn address(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    match text.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 => {
            format!("{:0>4}:{rest}", domain.trim_start_matches('0'))
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_spelled_as_in_sys() {
        assert_eq!(address("00000000:C1:00.0"), "0000:c1:00.0");
        assert_eq!(address("0000:19:00.0"), "0000:19:00.0");
        assert_eq!(address("00010000:01:00.0"), "10000:01:00.0");
    }
}
