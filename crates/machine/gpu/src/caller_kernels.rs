//! The kernel that copies blocks, for the thread of a caller: compiled and loaded outside the driver.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use pathline_hal::kernel;

use super::caller_calls::CallerCalls;
use super::compiler::KernelCompiler;
use super::driver::GpuDriver;
use super::function_table::{CallStatus, RuntimeHandle};

/// Code for copies by kernels on the GPUs of a driver. Device numbers are the runtime's.
#[derive(Debug)]
pub struct CallerKernels {
    compiler: Option<Mutex<KernelCompiler>>,
    /// Compile target of each device.
    targets: BTreeMap<i32, String>,
}

/// A kernel that is loaded on a device: it copies a list of ranges of three words each, destination, source and
/// bytes, of any alignment.
#[derive(Debug, Clone, Copy)]
pub struct CopyKernel {
    module: RuntimeHandle,
    function: RuntimeHandle,
}

impl GpuDriver {
    /// Code for copies on other threads than the driver's. Compiles nothing yet.
    pub fn caller_kernels(&self) -> CallerKernels {
        let compiler = self.compiler.as_ref().map(|compiler| Mutex::new(compiler.another()));
        let targets = self.devices.iter().map(|d| (d.handle, d.target.clone())).collect();
        CallerKernels { compiler, targets }
    }
}

impl CallerKernels {
    /// Compiles the kernel, unless an earlier process has, and loads it on a device, which is current. Loading may
    /// wait for work of the device.
    ///
    /// # Errors
    /// There is no compiler, or it or the runtime refuses; why.
    pub fn load(&self, calls: &dyn CallerCalls, device: i32) -> Result<CopyKernel, String> {
        let target = self.targets.get(&device).map_or("", String::as_str);
        let compiler = self.compiler.as_ref().ok_or("there is no run-time compiler")?;
        let compiler = compiler.lock().unwrap_or_else(PoisonError::into_inner);
        let mut code = compiler.code(kernel::BLOCKS, target).map_err(|error| error.to_string())?;
        // PTX is text, and the driver reads it up to a zero byte.
        code.push(0);
        let refused = |(call, code): CallStatus| format!("{call}: {}", calls.status_text(code));
        let (api, mut module, mut function) = (calls.api(), 0, 0);
        // SAFETY: stores a handle; the code ends with a zero.
        let code = unsafe { (api.module_load.at)(&raw mut module, code.as_ptr().cast()) };
        if code != 0 {
            return Err(refused((api.module_load.name, code)));
        }
        let name = std::ffi::CString::new(kernel::COPY_BLOCKS).unwrap_or_default();
        // SAFETY: stores a handle; a live module and a C string.
        let code = unsafe { (api.function.at)(&raw mut function, module, name.as_ptr()) };
        let kernel = CopyKernel { module, function };
        if code != 0 {
            kernel.unload(calls);
            return Err(refused((api.function.name, code)));
        }
        Ok(kernel)
    }
}

impl CopyKernel {
    /// Enqueues copies of `count` ranges by some thread blocks.
    ///
    /// # Safety
    /// The device of the kernel is current and reaches all ranges and the list, by these addresses; the list stays
    /// unchanged until the stream has passed the kernel; and the stream is live.
    pub unsafe fn launch(
        &self,
        calls: &dyn CallerCalls,
        blocks: u32,
        (list, count): (u64, u64),
        stream: RuntimeHandle,
    ) -> CallStatus {
        let (call, mut words) = (&calls.api().launch, [list, count]);
        let mut parameters = words.each_mut().map(|word| std::ptr::from_mut(word).cast::<c_void>());
        let (threads, none) = (kernel::COPY_BLOCK, std::ptr::null_mut());
        // SAFETY: a loaded function with these parameters, and the caller's promise.
        let code = unsafe {
            let parameters = parameters.as_mut_ptr();
            (call.at)(self.function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, none)
        };
        (call.name, code)
    }

    /// Unloads it from its device, which is current.
    pub fn unload(self, calls: &dyn CallerCalls) {
        // SAFETY: a live module, unloaded once. A failure leaks it.
        unsafe { (calls.api().module_unload.at)(self.module) };
    }
}
