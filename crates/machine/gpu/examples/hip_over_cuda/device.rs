//! Device properties in HIP's form.

use std::ffi::{CStr, c_char};

use crate::names::INVALID_VALUE;
use crate::{cuda, started, store, store_all};

/// Suffix of a GPU's name.
const SUFFIX: &str = " (HIP over CUDA)";
pub(crate) fn count(out: *mut i32) -> i32 {
    let code = started(|| cuda!("cuDeviceGetCount" @ 2000 (out => *mut i32)));
    if code != 0 {
        store(out, 0);
    }
    code
}

fn name_of(gpu: i32) -> Result<String, i32> {
    let mut text = [0u8; 128];
    let at = text.as_mut_ptr().cast();
    let code =
        started(|| cuda!("cuDeviceGetName" @ 2000 (at => *mut c_char, 127 => i32, gpu => i32)));
    if code != 0 {
        return Err(code);
    }
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    Ok(format!("{}{SUFFIX}", text.to_string_lossy()))
}

pub(crate) fn name(out: *mut c_char, room: i32, gpu: i32) -> i32 {
    let mut name = match name_of(gpu) {
        Ok(name) => name.into_bytes(),
        Err(code) => return code,
    };
    let Some(most) = usize::try_from(room).ok().and_then(|room| room.checked_sub(1)) else {
        return INVALID_VALUE;
    };
    name.truncate(most);
    name.push(0);
    store_all(out.cast(), &name)
}

/// A target of AMD's with page faults, as NVIDIA's GPUs have them, followed by the real one, so
/// that cached code never matches another GPU's. A stand-in for a driver below gets another target
/// too.
fn architecture(name: &str, gpu: i32) -> String {
    let number = |which: i32| {
        let mut value = 0;
        cuda!("cuDeviceGetAttribute" @ 2000 (&raw mut value => *mut i32, which => i32, gpu => i32));
        value
    };
    let below = if name.starts_with("stub ") { "stub" } else { "cuda" };
    format!("gfx90a:xnack+:over-{below}-sm_{}{}", number(75), number(76))
}

/// Numbers of `hipDeviceAttribute_t` and of `CUdevice_attribute`.
const ATTRIBUTES: &[(i32, i32)] = &[
    (0, 32),
    (2, 40),
    (5, 13),
    (6, 20),
    (9, 89),
    (13, 101),
    (15, 86),
    (16, 18),
    (19, 38),
    (23, 75),
    (24, 83),
    (56, 1),
    (57, 39),
    (59, 37),
    (60, 36),
    (61, 76),
    (63, 16),
    (65, 88),
    (66, 100),
    (67, 33),
    (68, 34),
    (69, 50),
    (74, 8),
    (85, 41),
    (87, 10),
    (89, 102),
    (90, 99),
];

pub(crate) fn attribute(out: *mut i32, which: i32, gpu: i32) -> i32 {
    /// `hipDeviceAttributeCanUseStreamWaitValue`
    const CAN_WAIT: i32 = 10013;
    if which == CAN_WAIT {
        return store(out, i32::from(crate::driver::find("cuStreamWaitValue32", 11070) != 0));
    }
    let Some(&(_, which)) = ATTRIBUTES.iter().find(|(hip, _)| *hip == which) else {
        return INVALID_VALUE;
    };
    started(|| cuda!("cuDeviceGetAttribute" @ 2000 (out => *mut i32, which => i32, gpu => i32)))
}

/// Fills the properties that programs read: name, memory, architecture. In the layout of 6.0 and
/// later or in the older one.
pub(crate) fn properties(out: *mut u8, gpu: i32, newer: bool) -> i32 {
    let (size, memory_at, arch_at) = if newer { (1472, 288, 1160) } else { (792, 256, 396) };
    let name = match name_of(gpu) {
        Ok(name) => name,
        Err(code) => return code,
    };
    let mut memory = 0usize;
    match cuda!("cuDeviceTotalMem" @ 3020 (&raw mut memory => *mut usize, gpu => i32)) {
        0 => {}
        failed => return failed,
    }
    let arch = architecture(&name, gpu);
    let mut all = vec![0u8; size];
    for (at, bytes) in
        [(0, name.as_bytes()), (memory_at, &memory.to_ne_bytes()[..]), (arch_at, arch.as_bytes())]
    {
        all[at..at + bytes.len()].copy_from_slice(bytes);
    }
    store_all(out, &all)
}
