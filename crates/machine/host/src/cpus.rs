//! CPUs that threads may run on, their order of assignment, and pinning.

use std::io;

use pathline_schema::{CpuSet, Topology};

/// 64-bit words of an affinity mask: 8192 CPUs, the limit of Linux.
const MASK: usize = 128;

/// CPUs that this thread may use.
pub fn allowed() -> io::Result<CpuSet> {
    let mut mask = [0_u64; MASK];
    // SAFETY: the kernel writes at most size_of_val(&mask) bytes to mask, which lives through the
    // call. The raw call is used since the C library's set ends at 1024 CPUs.
    let wrote = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr())
    };
    if wrote < 0 {
        return Err(io::Error::last_os_error());
    }
    let bits = mask.iter().enumerate().flat_map(|(word, bits)| {
        (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word as u32 * 64 + bit)
    });
    Ok(CpuSet::new(bits))
}

/// Pins this thread to one CPU.
pub fn pin(cpu: u32) -> io::Result<()> {
    restrict(&CpuSet::new([cpu]))
}

/// Restricts this thread to `cpus`.
pub fn restrict(cpus: &CpuSet) -> io::Result<()> {
    let mut mask = [0_u64; MASK];
    for &cpu in cpus.as_slice() {
        if let Some(word) = mask.get_mut(cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
    }
    // SAFETY: the kernel reads size_of_val(&mask) bytes of mask, which lives through the call.
    let code =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&mask), mask.as_ptr()) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The thread number of this thread, as in `/proc/self/task`.
pub fn thread_id() -> u32 {
    // The C library of old systems has no function for it.
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// CPU time of this thread in user mode and in the kernel, in ns.
pub fn cpu_times() -> (f64, f64) {
    // SAFETY: plain numbers, for which all zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel stores one structure, which lives through the call.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    let ns = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

/// The usable CPUs of a domain in order of assignment: one of each core first, then their SMT
/// siblings.
pub fn assignment_order(topology: &Topology, cpus: &CpuSet) -> Vec<u32> {
    let core = |cpu: u32| {
        let of_core = |c: &&pathline_schema::CacheGroup| {
            c.level == 1 && c.kind != "Instruction" && c.cpus.contains(cpu)
        };
        topology.caches.iter().find(of_core).map(|c| &c.cpus)
    };
    let sibling = |cpu: u32| {
        let before = |c: &CpuSet| c.intersect(cpus).as_slice().iter().filter(|&&c| c < cpu).count();
        core(cpu).map_or(0, before)
    };
    let mut order = cpus.as_slice().to_vec();
    order.sort_by_key(|&cpu| (sibling(cpu), cpu));
    order
}

/// Restricts this thread, and threads that it starts, to one of `shares` equal shares of a domain's
/// usable CPUs, cores before their SMT siblings. With fewer CPUs than shares, a CPU belongs to
/// several shares. Returns the CPUs.
///
/// # Errors
/// The domain has no usable CPU, or the kernel refuses.
pub fn restrict_to_share(
    topology: &Topology,
    numa: u32,
    nth: usize,
    shares: usize,
) -> io::Result<CpuSet> {
    let none = || io::Error::other(format!("numa{numa} has no CPU that may be used"));
    let domain = topology.numa.iter().find(|d| d.id == numa).ok_or_else(none)?;
    let cpus = share(&assignment_order(topology, &domain.cpus.intersect(&allowed()?)), nth, shares);
    if cpus.is_empty() {
        return Err(none());
    }
    restrict(&cpus).map(|()| cpus)
}

/// One of `shares` equal shares of a list.
fn share(cpus: &[u32], nth: usize, shares: usize) -> CpuSet {
    let each = cpus.len() / shares.max(1);
    match each {
        0 => CpuSet::new(cpus.get(nth % cpus.len().max(1)).copied()),
        _ => CpuSet::new(cpus.iter().skip(nth * each).take(each).copied()),
    }
}

#[cfg(test)]
mod tests {
    use pathline_schema::CacheGroup;

    use super::*;

    #[test]
    fn shares_do_not_overlap_while_there_are_enough() {
        let cpus = [0, 2, 4, 6, 1, 3, 5];
        assert_eq!(share(&cpus, 0, 3), CpuSet::new([0, 2]));
        assert_eq!(share(&cpus, 2, 3), CpuSet::new([1, 3]));
        // Nine shares of seven: the eighth equals the first.
        assert_eq!(share(&cpus, 7, 9), CpuSet::new([0]));
        assert!(share(&[], 0, 2).is_empty());
    }

    #[test]
    fn each_core_is_taken_once_before_a_sibling_is() {
        // Two cores of two threads, 0+2 and 1+3, as Linux numbers them on most machines.
        let l1 = |cpus: [u32; 2]| CacheGroup {
            level: 1,
            kind: "Data".into(),
            cpus: CpuSet::new(cpus),
            ..Default::default()
        };
        let topology = Topology { caches: vec![l1([0, 2]), l1([1, 3])], ..Default::default() };
        assert_eq!(assignment_order(&topology, &CpuSet::new([0, 1, 2, 3])), [0, 1, 2, 3]);
        let topology = Topology { caches: vec![l1([0, 1]), l1([2, 3])], ..Default::default() };
        assert_eq!(assignment_order(&topology, &CpuSet::new([0, 1, 2, 3])), [0, 2, 1, 3]);
        // CPU 0 is not usable: 1 is then the first of its core.
        assert_eq!(assignment_order(&topology, &CpuSet::new([1, 2, 3])), [1, 2, 3]);
    }

    #[test]
    fn a_thread_can_be_pinned_and_says_so() {
        let all = allowed().unwrap();
        let cpu = *all.as_slice().last().unwrap();
        let pinned = std::thread::spawn(move || pin(cpu).and_then(|()| allowed())).join().unwrap();
        assert_eq!(pinned.unwrap(), CpuSet::new([cpu]));
        let none = std::thread::spawn(|| restrict(&CpuSet::new([]))).join().unwrap();
        assert_eq!(none.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
