//! NUMA policies of this thread and of ranges of memory.

use pathline_hal::CallError;

/// Sets the NUMA policy of this thread.
pub(crate) fn set_policy(mode: i32, mask: &[u64]) -> std::io::Result<()> {
    let bits = mask.len() * 64 + usize::from(!mask.is_empty());
    let at = if mask.is_empty() { std::ptr::null() } else { mask.as_ptr() };
    // SAFETY: the kernel reads the mask, which lives through the call.
    let code = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, at, bits) };
    if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The NUMA policy of this thread; the default one where the kernel does not report it.
pub(crate) fn own_policy() -> (i32, Vec<u64>) {
    let (mut mode, mut mask) = (libc::MPOL_DEFAULT, vec![0u64; 16]);
    let bits = mask.len() * 64;
    // SAFETY: the kernel stores one number and at most that many bits.
    let code = unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, mask.as_mut_ptr(), bits, 0, 0)
    };
    if code != 0 || mask.iter().all(|word| *word == 0) {
        return (if code == 0 { mode } else { libc::MPOL_DEFAULT }, Vec::new());
    }
    (mode, mask)
}

/// Sets the NUMA policy of a range before its pages are allocated.
pub(crate) fn bind_range(
    (address, bytes): (u64, u64),
    numa: u32,
    page: u64,
) -> std::io::Result<()> {
    let start = address / page * page;
    let (mask, bits) = (node_mask(numa), 16 * 64 + 1);
    // SAFETY: the kernel reads the mask, which lives through the call; what the pages hold stays.
    let code = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            address + bytes - start,
            libc::MPOL_BIND,
            mask.as_ptr(),
            bits,
            0,
        )
    };
    if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// A mask of one domain.
pub(crate) fn node_mask(numa: u32) -> [u64; 16] {
    let mut mask = [0; 16];
    if let Some(word) = mask.get_mut(numa as usize / 64) {
        *word = 1 << (numa % 64);
    }
    mask
}

pub(crate) fn forbidden_policy(call: &str, thing: &str, error: &std::io::Error) -> CallError {
    CallError::unsupported(call, thing, error.to_string())
        .with_code(error.raw_os_error().unwrap_or(0).into())
        .or_try("container runtimes forbid it: run under numactl --membind, or allow set_mempolicy and mbind")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_policy_back() {
        let before = own_policy();
        if set_policy(libc::MPOL_BIND, &node_mask(0)).is_err() {
            // The container forbids it.
            return;
        }
        let bound = own_policy();
        assert_eq!((bound.0, bound.1[0]), (libc::MPOL_BIND, 1));
        set_policy(bound.0, &bound.1).unwrap();
        assert_eq!(own_policy(), bound);
        set_policy(before.0, &before.1).unwrap();
        assert_eq!(own_policy(), before);
    }
}
