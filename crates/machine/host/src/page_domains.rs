//! Where pages of this process lie, as the kernel reports it.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

use pathline_schema::Bytes;

/// Pages that are looked at, evenly spread over a range.
const LOOKED_AT: u64 = 256;
/// The smallest page. Larger ones are looked at several times.
const PAGE: u64 = 4096;

/// Pages of a range by NUMA domain, of up to 256 that are looked at; pages that are not present or not
/// reported count for none. `None` if none is reported, as for memory that a driver maps.
pub(crate) fn page_domains(address: u64, bytes: Bytes) -> Option<BTreeMap<u32, u64>> {
    let first = address / PAGE * PAGE;
    let pages = (address + bytes.0 - first).div_ceil(PAGE).max(1);
    let count = pages.min(LOOKED_AT);
    let at: Vec<*mut c_void> = (0..count)
        .map(|nth| {
            let page = u64::try_from(u128::from(nth) * u128::from(pages) / u128::from(count));
            (first + page.unwrap_or(0) * PAGE) as *mut c_void
        })
        .collect();
    let mut status: Vec<c_int> = vec![-1; at.len()];
    let nowhere: *const c_int = std::ptr::null();
    // SAFETY: without domains to move to the call moves nothing: it reads `count` addresses, which may be
    // any, and writes `count` numbers.
    let code = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            at.len(),
            at.as_ptr(),
            nowhere,
            status.as_mut_ptr(),
            0,
        )
    };
    if code != 0 {
        return None;
    }
    let mut found = BTreeMap::new();
    for domain in status.into_iter().filter_map(|domain| u32::try_from(domain).ok()) {
        *found.entry(domain).or_default() += 1;
    }
    (!found.is_empty()).then_some(found)
}

/// Size of the memory that [`first_touch_domains`] touches: 256 pages of 64 KiB, the largest base page.
const TOUCHED: usize = 16 << 20;

/// NUMA domains of pages that this thread touches first, by number of pages: 16 MiB of fresh memory. `None`
/// where the kernel reports none.
pub fn first_touch_domains() -> Option<BTreeMap<u32, u64>> {
    let mut memory = vec![0_u8; TOUCHED];
    memory.iter_mut().step_by(PAGE as usize).for_each(|byte| *byte = 1);
    let memory = std::hint::black_box(memory);
    page_domains(memory.as_ptr() as u64, Bytes(TOUCHED as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 MiB that was written: 256 pages, all present.
    #[test]
    fn pages_that_were_written_lie_in_a_domain() {
        let memory = vec![1_u8; 2 << 20];
        let address = (memory.as_ptr() as u64).next_multiple_of(PAGE);
        // A kernel without NUMA has no such call.
        let Some(found) = page_domains(address, Bytes::mib(1)) else { return };
        assert_eq!(found.values().sum::<u64>(), 256);
        // Three pages are looked at once each, and addresses of no memory lie nowhere.
        let three = page_domains(address, Bytes(3 * PAGE)).map(|found| found.values().sum());
        assert_eq!(three, Some(3_u64));
        assert_eq!(page_domains(PAGE, Bytes(PAGE)), None);
        assert!(memory.iter().all(|byte| *byte == 1));
    }
}
