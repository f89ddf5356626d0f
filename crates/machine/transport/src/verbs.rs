//! RDMA devices by libibverbs, bound at run time: registration of memory.
//!
//! Most calls of libibverbs are inline functions of its header that use a table in the device's
//! context. Every release of rdma-core exports the ones used here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

use pathline_dylib::{
    BoundLibrary, LibraryNames, LibraryReport, LibrarySpec, SearchPlace, announce_in, find,
};
use pathline_hal::{CallError, CallResult, MemoryRegistrar, RegionId};
use pathline_schema::{Bytes, Nic, Severity, Topology, Unit};

use crate::c_functions::c_functions;

/// A pointer that the library hands out.
type VerbsHandle = usize;

/// Names the device to use in place of the nearest one.
const ASKED: &str = "PATHLINE_RDMA";
/// Local writes by the device, remote writes and remote reads: `IBV_ACCESS_LOCAL_WRITE`,
/// `IBV_ACCESS_REMOTE_WRITE`, `IBV_ACCESS_REMOTE_READ`.
const ACCESS: c_int = 1 | 2 | 4;

const REGISTER: &str = "ibv_reg_mr";
const REGISTER_DMABUF: &str = "ibv_reg_dmabuf_mr";
const DEREGISTER: &str = "ibv_dereg_mr";

c_functions! {
    /// Functions of every release of rdma-core; the last one since 34.
    Api;
    list = "ibv_get_device_list" (*mut c_int) -> *mut VerbsHandle;
    free_list = "ibv_free_device_list" (*mut VerbsHandle);
    name = "ibv_get_device_name" (VerbsHandle) -> *const c_char;
    open = "ibv_open_device" (VerbsHandle) -> VerbsHandle;
    close = "ibv_close_device" (VerbsHandle) -> c_int;
    alloc_domain = "ibv_alloc_pd" (VerbsHandle) -> VerbsHandle;
    free_domain = "ibv_dealloc_pd" (VerbsHandle) -> c_int;
    register = "ibv_reg_mr" (VerbsHandle, u64, usize, c_int) -> VerbsHandle;
    deregister = "ibv_dereg_mr" (VerbsHandle) -> c_int;
    ? register_dmabuf = "ibv_reg_dmabuf_mr" (VerbsHandle, u64, usize, u64, c_int, c_int) -> VerbsHandle;
}

const NAMES: [&str; 1] = ["libibverbs.so.1"];

/// The library, and the report of the search.
fn search() -> (Option<Api>, LibraryReport) {
    let spec = LibrarySpec {
        what: "libibverbs",
        costs: "what registration with an adapter costs is not measured",
        way_out: "install rdma-core (Debian's libibverbs1 and ibverbs-providers)",
        names: LibraryNames::Exact(&NAMES),
        places: vec![SearchPlace::LinkerPath, SearchPlace::Linker],
        ..LibrarySpec::default()
    };
    find(&spec, |library| {
        let value = Api::bind(library)?;
        Ok(BoundLibrary { value, version: String::new(), number: None })
    })
}

/// An open device with its protection domain.
#[derive(Debug, Clone, Copy)]
struct VerbsDevice {
    context: VerbsHandle,
    domain: VerbsHandle,
}

/// libibverbs with the devices opened so far.
#[derive(Debug)]
pub struct VerbsLibrary {
    api: Api,
    path: PathBuf,
    nics: Vec<Nic>,
    /// GPUs with their NUMA domains.
    homes: BTreeMap<u32, u32>,
    opened: RefCell<BTreeMap<String, VerbsDevice>>,
    regions: RefCell<BTreeMap<u64, VerbsHandle>>,
}

impl VerbsLibrary {
    /// Opens the library, but no device.
    ///
    /// # Errors
    /// Why it cannot be used, and what to do.
    pub fn open(topology: &Topology) -> std::result::Result<Self, String> {
        let (api, report) = search();
        let (Some(api), Some(path)) = (api, report.path) else {
            let why = report.tried.last().map_or("it was not found", |tried| tried.why.as_str());
            return Err(format!("no {} can be used: {why}; {}", NAMES[0], report.way_out));
        };
        Ok(Self::over(api, path, topology))
    }

    fn over(api: Api, path: PathBuf, topology: &Topology) -> Self {
        Self {
            api,
            path,
            nics: topology.nics.clone(),
            homes: topology.gpus.iter().filter_map(|g| Some((g.index, g.numa?))).collect(),
            opened: RefCell::default(),
            regions: RefCell::default(),
        }
    }

    /// Calls `look` with the name of each device until it returns a value.
    fn each<T>(&self, mut look: impl FnMut(&str, VerbsHandle) -> Option<T>) -> Option<T> {
        let mut count = 0;
        announce_in(&self.path, "ibv_get_device_list");
        // SAFETY: one number is stored.
        let list = unsafe { (self.api.list)(&raw mut count) };
        if list.is_null() {
            return None;
        }
        let mut found = None;
        for nth in 0..usize::try_from(count).unwrap_or(0) {
            announce_in(&self.path, "ibv_get_device_name");
            // SAFETY: the list has `count` devices; the name of each is a C string in it.
            let (device, name) = unsafe {
                let device = *list.add(nth);
                let name = (self.api.name)(device);
                (device, if name.is_null() { c"" } else { CStr::from_ptr(name) })
            };
            found = look(&name.to_string_lossy(), device);
            if found.is_some() {
                break;
            }
        }
        // SAFETY: it was given above. A device that was opened from it stays.
        unsafe { (self.api.free_list)(list) };
        found
    }

    /// Names of the devices.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.each(|name, _| {
            names.push(name.to_owned());
            None::<()>
        });
        names
    }

    /// The device to use for memory of a unit.
    fn nearest(&self, unit: Unit) -> CallResult<String> {
        let names = self.names();
        if let Some(asked) = std::env::var_os(ASKED) {
            let asked = asked.to_string_lossy().into_owned();
            if names.contains(&asked) {
                return Ok(asked);
            }
            let why = format!("there is no {asked}, which {ASKED} names");
            return Err(CallError::unsupported("ibv_get_device_list", "this machine", why)
                .or_try(format!("it may name one of: {}", names.join(", "))));
        }
        nearest(&names, &self.nics, &self.homes, unit).ok_or_else(|| {
            let why = "it has no RDMA device (/sys/class/infiniband)";
            CallError::unsupported("ibv_get_device_list", "this machine", why).or_try(
                "measure it on a node with InfiniBand or RoCE adapters; in a container, hand it \
                 /dev/infiniband",
            )
        })
    }

    /// A device, opened on first use.
    fn device(&self, name: &str) -> CallResult<VerbsDevice> {
        if let Some(&device) = self.opened.borrow().get(name) {
            return Ok(device);
        }
        let failed = |call: &str| {
            CallError::new(Severity::Unsupported, call, name, errno().to_string())
                .or_try("check that this user may open /dev/infiniband/uverbs*")
        };
        // SAFETY: the device is in the list that was just asked for.
        let open = |at: &str, device| (at == name).then(|| unsafe { (self.api.open)(device) });
        let context = self.each(open).filter(|&context| context != 0);
        let context = context.ok_or_else(|| failed("ibv_open_device"))?;
        // SAFETY: the context is open.
        let domain = unsafe { (self.api.alloc_domain)(context) };
        if domain == 0 {
            let error = failed("ibv_alloc_pd");
            // SAFETY: nothing was made in it.
            unsafe { (self.api.close)(context) };
            return Err(error);
        }
        let device = VerbsDevice { context, domain };
        self.opened.borrow_mut().insert(name.to_owned(), device);
        Ok(device)
    }

    /// Stores the region of a registration, or gives its error.
    fn region(
        &self,
        call: &str,
        unit: Unit,
        bytes: Bytes,
        handle: VerbsHandle,
    ) -> CallResult<RegionId> {
        if handle == 0 {
            return Err(refused(call, unit, bytes, &errno()));
        }
        self.regions.borrow_mut().insert(handle as u64, handle);
        Ok(RegionId(handle as u64))
    }
}

fn errno() -> io::Error {
    io::Error::last_os_error()
}

/// Why memory was not registered, and what to do.
fn refused(call: &str, unit: Unit, bytes: Bytes, why: &io::Error) -> CallError {
    let code = why.raw_os_error().unwrap_or(0);
    let of_gpu = unit.gpu().is_some();
    let (severity, way_out) = match code {
        libc::ENOMEM | libc::EPERM | libc::EAGAIN if !of_gpu => {
            (Severity::Exhausted, "`ulimit -l` may be too small; take smaller sizes")
        }
        libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT => {
            (Severity::Unsupported, "this device, its driver or the kernel has no such call")
        }
        _ if of_gpu && call == REGISTER => (
            Severity::Unsupported,
            "the adapter's driver does not reach this GPU's memory by its address: load \
             nvidia-peermem, or amdgpu with peer-direct; or register it by dma-buf",
        ),
        _ if of_gpu => (
            Severity::Unsupported,
            "dma-buf needs Linux 5.12 or later, a GPU driver that exports (NVIDIA's open kernel \
             modules, amdgpu) and an adapter's driver that imports",
        ),
        _ => (Severity::Transient, "see `dmesg`"),
    };
    CallError::new(severity, call, format!("{bytes} of {unit}"), why.to_string())
        .with_code(i64::from(code))
        .or_try(way_out)
}

/// The device nearest to a unit: for a GPU its neighbour on the PCI tree, else one of its NUMA
/// domain, else the first.
fn nearest(
    names: &[String],
    nics: &[Nic],
    homes: &BTreeMap<u32, u32>,
    unit: Unit,
) -> Option<String> {
    let known = || nics.iter().filter(|nic| names.contains(&nic.name));
    let home = unit.numa().or_else(|| homes.get(&unit.gpu()?).copied());
    let neighbour = known().find(|nic| unit.gpu().is_some() && nic.near_gpu == unit.gpu());
    let here = neighbour.or_else(|| known().find(|nic| home.is_some() && nic.numa == home));
    here.map(|nic| nic.name.clone()).or_else(|| names.first().cloned())
}

impl MemoryRegistrar for VerbsLibrary {
    fn adapter(&self, unit: Unit) -> CallResult<String> {
        let name = self.nearest(unit)?;
        self.device(&name)?;
        Ok(name)
    }

    fn register(&self, unit: Unit, address: u64, bytes: Bytes) -> CallResult<RegionId> {
        let VerbsDevice { domain, .. } = self.device(&self.nearest(unit)?)?;
        // SAFETY: the range is memory of this process that its owner keeps until the region is
        // taken back, which the caller sees to.
        let handle = unsafe { (self.api.register)(domain, address, bytes.0 as usize, ACCESS) };
        self.region(REGISTER, unit, bytes, handle)
    }

    fn register_dmabuf(
        &self,
        unit: Unit,
        address: u64,
        bytes: Bytes,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> CallResult<RegionId> {
        let register = self.api.register_dmabuf.ok_or_else(|| {
            let file = self.path.display();
            CallError::unsupported(REGISTER_DMABUF, format!("{file}"), "it has no such call")
                .or_try("take rdma-core 34 or later")
        })?;
        let VerbsDevice { domain, .. } = self.device(&self.nearest(unit)?)?;
        let length = bytes.0 as usize;
        // SAFETY: the file is open through the call, and the library checks offset and length
        // against it; the address is only a number to it.
        let handle = unsafe { register(domain, offset, length, address, file.as_raw_fd(), ACCESS) };
        self.region(REGISTER_DMABUF, unit, bytes, handle)
    }

    fn deregister(&self, region: RegionId) -> CallResult<()> {
        let thing = || format!("region {:#x}", region.0);
        let handle = self.regions.borrow_mut().remove(&region.0).ok_or_else(|| {
            CallError::unsupported(DEREGISTER, thing(), "nothing is registered under it")
        })?;
        // SAFETY: the library gave it, and it was not taken back.
        match unsafe { (self.api.deregister)(handle) } {
            0 => Ok(()),
            code => {
                let why = io::Error::from_raw_os_error(code).to_string();
                Err(CallError::new(Severity::Transient, DEREGISTER, thing(), why)
                    .with_code(i64::from(code)))
            }
        }
    }

    fn call_names(&self) -> [&'static str; 3] {
        [REGISTER, REGISTER_DMABUF, DEREGISTER]
    }
}

impl Drop for VerbsLibrary {
    fn drop(&mut self) {
        for handle in std::mem::take(self.regions.get_mut()).into_values() {
            // SAFETY: the library gave it, and it was not taken back.
            unsafe { (self.api.deregister)(handle) };
        }
        for device in std::mem::take(self.opened.get_mut()).into_values() {
            // SAFETY: no region of the domain is left, and nothing else of the device.
            unsafe {
                (self.api.free_domain)(device.domain);
                (self.api.close)(device.context);
            }
        }
    }
}

/// libibverbs, with the RDMA devices of this machine in place of its version, and whether it
/// registers memory by dma-buf; `None` if it was not opened.
pub fn rdma_library() -> (LibraryReport, Option<bool>) {
    let (api, mut report) = search();
    let dmabuf = api.as_ref().map(|api| api.register_dmabuf.is_some());
    if let (Some(api), Some(path)) = (api, report.path.clone()) {
        let names = VerbsLibrary::over(api, path, &Topology::default()).names();
        report.version =
            if names.is_empty() { "no RDMA device".to_owned() } else { names.join(", ") };
    }
    (report, dmabuf)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nic(name: &str, numa: u32, near_gpu: Option<u32>) -> Nic {
        Nic { name: name.to_owned(), numa: Some(numa), near_gpu, ..Nic::default() }
    }

    #[test]
    fn the_nearest_device_is_taken_and_else_any() {
        // Two adapters next to GPUs 0 and 5, in domains 0 and 1; an interface that is no RDMA
        // device.
        let nics = [nic("mlx5_0", 0, Some(0)), nic("mlx5_1", 1, Some(5)), nic("eth0", 2, Some(7))];
        let names = ["mlx5_1", "mlx5_0"].map(str::to_owned);
        let homes = BTreeMap::from([(0, 0), (1, 0), (4, 1), (5, 1), (7, 2)]);
        let of = |unit| nearest(&names, &nics, &homes, unit);
        let is = |name: &str| Some(name.to_owned());
        assert_eq!(of(Unit::Gpu(5)), is("mlx5_1"));
        // Of the same domain.
        assert_eq!(of(Unit::Gpu(1)), is("mlx5_0"));
        assert_eq!(of(Unit::Numa(1)), is("mlx5_1"));
        // None is near: the first.
        assert_eq!(of(Unit::Gpu(7)), is("mlx5_1"));
        assert_eq!(of(Unit::Numa(9)), is("mlx5_1"));
        assert_eq!(nearest(&[], &nics, &homes, Unit::Gpu(0)), None);
    }

    #[test]
    fn a_refusal_names_the_remedy() {
        let why = |call: &str, unit, code| {
            refused(call, unit, Bytes::mib(1), &io::Error::from_raw_os_error(code))
        };
        let locked = why(REGISTER, Unit::Numa(0), libc::ENOMEM);
        assert_eq!(locked.severity, Severity::Exhausted);
        assert!(locked.to_string().contains("ulimit -l"), "{locked}");
        let peer = why(REGISTER, Unit::Gpu(0), libc::EFAULT);
        assert_eq!(peer.severity, Severity::Unsupported);
        assert!(peer.to_string().contains("nvidia-peermem"), "{peer}");
        let file = why(REGISTER_DMABUF, Unit::Gpu(0), libc::EINVAL);
        assert!(file.to_string().contains("Linux 5.12"), "{file}");
    }
}
