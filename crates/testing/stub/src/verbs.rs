//! libibverbs: RDMA devices by name, and registration of memory. Nothing is sent.
#![allow(non_snake_case)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::spec::{StubFault, StubSpec};
use crate::streams::StubHandle;

/// The state of the library. A device is the address of its name; contexts, domains and regions are
/// numbers.
struct VerbsWorld {
    spec: StubSpec,
    names: Vec<CString>,
    calls: BTreeMap<&'static str, u64>,
    made: StubHandle,
    contexts: BTreeSet<StubHandle>,
    /// The context of each domain, and the domain of each region.
    domains: BTreeMap<StubHandle, StubHandle>,
    regions: BTreeMap<StubHandle, StubHandle>,
}

static WORLD: Mutex<Option<VerbsWorld>> = Mutex::new(None);

fn world() -> VerbsGuard {
    let mut guard = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    guard.get_or_insert_with(|| {
        let spec = StubSpec::from_env().unwrap_or_default();
        let name = |name: &String| CString::new(name.as_bytes()).unwrap_or_default();
        let names = spec.rdma.iter().map(name).collect();
        VerbsWorld {
            spec,
            names,
            calls: BTreeMap::new(),
            made: 0,
            contexts: BTreeSet::new(),
            domains: BTreeMap::new(),
            regions: BTreeMap::new(),
        }
    });
    VerbsGuard(guard)
}

struct VerbsGuard(MutexGuard<'static, Option<VerbsWorld>>);

impl VerbsGuard {
    /// Runs a function with the state; a failure is stored in `errno`.
    fn act<T: Default>(
        mut self,
        name: &'static str,
        body: impl FnOnce(&mut VerbsWorld) -> Result<T, c_int>,
    ) -> Result<T, c_int> {
        let Some(world) = self.0.as_mut() else { return Ok(T::default()) };
        let done = world.strike(name).and_then(|()| body(world));
        done.inspect_err(|&code| {
            // SAFETY: it is this thread's own.
            unsafe { *libc::__errno_location() = code };
        })
    }
}

impl VerbsWorld {
    fn strike(&mut self, call: &'static str) -> Result<(), c_int> {
        match self.spec.strike(&mut self.calls, call) {
            Some(StubFault::Fails(code)) => Err(code),
            Some(StubFault::Crashes) => crate::entry::crash(),
            Some(StubFault::Hangs) => loop {
                std::thread::park();
            },
            Some(StubFault::Slow(ms)) => {
                std::thread::park_timeout(std::time::Duration::from_millis(ms));
                Ok(())
            }
            // There is no data that could be wrong.
            Some(StubFault::Corrupts | StubFault::Short | StubFault::Overruns) | None => Ok(()),
        }
    }

    fn number(&mut self) -> StubHandle {
        self.made += 64;
        self.made
    }

    fn register(
        &mut self,
        domain: StubHandle,
        address: u64,
        bytes: usize,
    ) -> Result<StubHandle, c_int> {
        if !self.domains.contains_key(&domain) || bytes == 0 || address == 0 {
            return Err(libc::EINVAL);
        }
        let region = self.number();
        self.regions.insert(region, domain);
        Ok(region)
    }
}

// SAFETY of all that follow: the names are libibverbs', for which this library stands in, and
// callers promise what its functions take.

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *const c_char {
    let list = world().act("ibv_get_device_list", |world| {
        let mut list: Vec<usize> = world.names.iter().map(|name| name.as_ptr() as usize).collect();
        list.push(0);
        Ok(list)
    });
    let list = list.unwrap_or_default();
    // SAFETY: null, or a place for a number.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = c_int::try_from(list.len().saturating_sub(1)).unwrap_or(0);
    }
    if list.is_empty() {
        return std::ptr::null_mut();
    }
    // Never freed: it is only a few bytes.
    Box::leak(list.into_boxed_slice()).as_mut_ptr().cast()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(_list: *mut *const c_char) {}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *const c_char) -> *const c_char {
    device
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *const c_char) -> StubHandle {
    let opened = world().act("ibv_open_device", |world| {
        let known = world.names.iter().any(|name| name.as_ptr() == device);
        let context = world.number();
        known.then(|| world.contexts.insert(context)).ok_or(libc::ENODEV)?;
        Ok(context)
    });
    opened.unwrap_or(0)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: StubHandle) -> c_int {
    let closed = world().act("ibv_close_device", |world| {
        if world.domains.values().any(|&of| of == context) {
            return Err(libc::EBUSY);
        }
        world.contexts.remove(&context).then_some(()).ok_or(libc::EINVAL)
    });
    closed.err().unwrap_or(0)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: StubHandle) -> StubHandle {
    let made = world().act("ibv_alloc_pd", |world| {
        world.contexts.contains(&context).then_some(()).ok_or(libc::EINVAL)?;
        let domain = world.number();
        world.domains.insert(domain, context);
        Ok(domain)
    });
    made.unwrap_or(0)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(domain: StubHandle) -> c_int {
    let freed = world().act("ibv_dealloc_pd", |world| {
        if world.regions.values().any(|&of| of == domain) {
            return Err(libc::EBUSY);
        }
        world.domains.remove(&domain).map(drop).ok_or(libc::EINVAL)
    });
    freed.err().unwrap_or(0)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    domain: StubHandle,
    address: u64,
    bytes: usize,
    _access: c_int,
) -> StubHandle {
    world().act("ibv_reg_mr", |world| world.register(domain, address, bytes)).unwrap_or(0)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_dmabuf_mr(
    domain: StubHandle,
    offset: u64,
    bytes: usize,
    address: u64,
    file: c_int,
    _access: c_int,
) -> StubHandle {
    let registered = world().act("ibv_reg_dmabuf_mr", |world| {
        // SAFETY: all zeros is such a structure, which the call fills.
        let room = unsafe {
            let mut about: libc::stat = std::mem::zeroed();
            if libc::fstat(file, &raw mut about) != 0 {
                return Err(libc::EBADF);
            }
            u64::try_from(about.st_size).unwrap_or(0)
        };
        if offset + bytes as u64 > room {
            return Err(libc::EINVAL);
        }
        world.register(domain, address, bytes)
    });
    registered.unwrap_or(0)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(region: StubHandle) -> c_int {
    let done = world()
        .act("ibv_dereg_mr", |world| world.regions.remove(&region).map(drop).ok_or(libc::EINVAL));
    done.err().unwrap_or(0)
}
