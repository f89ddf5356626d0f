//! GPU properties from the driver.

use std::ffi::{CStr, c_char};

use pathline_dylib::announce;
use pathline_hal::{CallError, CallResult, DeviceInfo};
use pathline_schema::{Bytes, PciAddress, Rate};

use super::error::outcome;
use super::function_table::{Api, BoundCall};
use super::runtime_api::RuntimeApi;
use pathline_host::files;

/// A GPU as the runtime numbers it.
#[derive(Debug, Clone)]
pub struct GpuProps {
    /// `CUdevice`, `hipDevice_t`.
    pub handle: i32,
    /// Its description in `hal`.
    pub info: DeviceInfo,
    /// The compile target: the architecture with its features.
    pub target: String,
    /// Whether kernels can access pageable host memory.
    pub pageable: bool,
    /// Whether host and device can access managed memory at the same time.
    pub concurrent: bool,
    /// Whether CPU threads access its managed memory without moving it.
    pub direct_managed: bool,
    /// Whether all of its memory is mapped for the CPU.
    pub large_bar: bool,
    /// Address of its flush word (see [`super::runtime_api::AttributeNumbers`]); 0 if it has none.
    pub flush_word: u64,
}

/// Above the number of GPUs of any host.
const MOST_GPUS: i32 = 1024;

/// All GPUs by PCI address, in the order of discovery's numbers; the runtime's own order depends on
/// CUDA_DEVICE_ORDER and similar variables.
pub fn all(api: &Api, dialect: &dyn RuntimeApi) -> CallResult<Vec<GpuProps>> {
    let mut count = 0;
    announce(api.device_count.name);
    // SAFETY: stores one number.
    let code = unsafe { (api.device_count.at)(&raw mut count) };
    outcome(dialect, (api.device_count.name, code), &|| "this machine".into())?;
    if !(0..=MOST_GPUS).contains(&count) {
        let reason = format!("it reports {count} GPUs");
        return Err(CallError::unsupported(api.device_count.name, "this machine", reason)
            .or_try("reinstall the runtime: its library is broken, or is another one"));
    }
    let mut devices =
        (0..count).map(|nth| read_device(api, dialect, nth)).collect::<CallResult<Vec<_>>>()?;
    devices.sort_by(|a, b| a.info.pci.cmp(&b.info.pci));
    for (index, device) in (0..).zip(&mut devices) {
        device.info.index = index;
    }
    Ok(devices)
}

type TextFn = BoundCall<unsafe extern "C" fn(*mut c_char, i32, i32) -> i32>;

fn read_device(api: &Api, dialect: &dyn RuntimeApi, nth: i32) -> CallResult<GpuProps> {
    let thing = || format!("device {nth}");
    let mut handle = 0;
    announce(api.device_get.name);
    // SAFETY: stores one number.
    let code = unsafe { (api.device_get.at)(&raw mut handle, nth) };
    outcome(dialect, (api.device_get.name, code), &thing)?;
    let attribute = |which: i32| -> CallResult<i32> {
        let mut value = 0;
        announce(api.device_attribute.name);
        // SAFETY: stores one number.
        let code = unsafe { (api.device_attribute.at)(&raw mut value, which, handle) };
        outcome(dialect, (api.device_attribute.name, code), &thing).map(|()| value)
    };
    let text = |call: &TextFn| {
        let mut text = [0 as c_char; 256];
        announce(call.name);
        // SAFETY: stores a C string of at most 255 bytes.
        let code = unsafe { (call.at)(text.as_mut_ptr(), 255, handle) };
        outcome(dialect, (call.name, code), &thing)?;
        // SAFETY: the last byte is still zero.
        Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    };
    let mut memory = 0;
    announce(api.device_total.name);
    // SAFETY: stores one number.
    let code = unsafe { (api.device_total.at)(&raw mut memory, handle) };
    outcome(dialect, (api.device_total.name, code), &thing)?;
    let target = dialect
        .target(handle)
        .or_else(|status| outcome(dialect, status, &thing).map(|()| String::new()))?;
    let pci: PciAddress = text(&api.device_pci)?.parse().unwrap_or_default();
    let numbers = dialect.attributes();
    let concurrent = attribute(numbers.concurrent_managed)? != 0;
    // An attribute that the runtime does not report must not exclude the GPU.
    let known = |which| attribute(which).unwrap_or(0);
    let info = DeviceInfo {
        index: 0,
        name: text(&api.device_name)?,
        arch: target.split(':').next().unwrap_or_default().to_owned(),
        numa: files::number(format!("/sys/bus/pci/devices/{pci}/numa_node"))
            .and_then(|n| u32::try_from(n).ok()),
        pci,
        memory: Bytes(memory as u64),
        memory_peak: peak(known(numbers.memory_clock), known(numbers.memory_bus)),
        compute_units: u32::try_from(attribute(numbers.multiprocessors)?).unwrap_or(0),
        l2: Bytes(u64::try_from(known(numbers.l2_size)).unwrap_or(0)),
        demand_migration: concurrent && dialect.faults(&target),
    };
    let pageable = attribute(numbers.pageable_access)? != 0;
    let direct_managed = known(numbers.direct_managed) != 0;
    let large_bar = numbers.large_bar.is_some_and(|which| known(which) != 0);
    let mut flush_word = 0_u64;
    if let Some(which) = numbers.flush_word.filter(|_| large_bar) {
        announce(api.device_attribute.name);
        // SAFETY: stores one number or, for this attribute, one address; there is room for either.
        let code =
            unsafe { (api.device_attribute.at)((&raw mut flush_word).cast(), which, handle) };
        // A runtime that stored a number of 32 bits has stored no address.
        let is_address = flush_word > u64::from(u32::MAX) && flush_word.is_multiple_of(4);
        flush_word = if code == 0 && is_address { flush_word } else { 0 };
    }
    Ok(GpuProps {
        handle,
        pageable,
        concurrent,
        direct_managed,
        large_bar,
        flush_word,
        target,
        info,
    })
}

/// Theoretical peak of memory with two transfers a clock (DDR, GDDR and HBM alike), from its clock
/// in kHz and its bus in bits: the formula of `deviceQuery` of the CUDA samples. `None` if either
/// is unknown.
fn peak(clock: i32, bus: i32) -> Option<Rate> {
    let bytes_per_second = 2.0 * f64::from(clock) * 1e3 * f64::from(bus) / 8.0;
    (clock > 0 && bus > 0).then_some(Rate(bytes_per_second / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_memory_follows_from_clock_and_bus() {
        // One GCD of an MI250X: 2 x 1.6 GHz x 4096 bit / 8 = 1638.4 GB/s.
        assert_eq!(peak(1_600_000, 4096), Some(Rate(1638.4)));
        // H200: 2 x 3.201 GHz x 6144 bit / 8 = 4916.7 GB/s.
        assert!((peak(3_201_000, 6144).unwrap().gbs() - 4916.7).abs() < 0.1);
        assert_eq!(peak(0, 6144), None);
        assert_eq!(peak(1_600_000, 0), None);
    }
}
