//! A stand-in runtime, called as a program calls it, and a node over it.
//!
//! The environment configures the stand-in, and one process loads each only once: every test that needs
//! another configuration starts its own process by [`in_separate_process`].

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::process::Command;

use pathline::{CopyNode, NodeOptions};
use pathline_stub::{StubLibraries, VARIABLE, lay_out};
use tempfile::TempDir;

/// `CUDA_ERROR_NOT_READY`, `hipErrorNotReady`
const NOT_READY: i32 = 600;
/// Set in a process that a test has started, to the folder of its libraries.
const FOLDER: &str = "PATHLINE_CAPI_TEST";

/// Runs a test in a process with its own stand-in libraries. Whether this is that process.
pub(crate) fn in_separate_process(test: &str, libraries: StubLibraries, stub: &str) -> bool {
    if std::env::var_os(FOLDER).is_some() {
        return true;
    }
    let folder = TempDir::new().unwrap();
    lay_out(folder.path(), &[libraries], &[]).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder.path())
        .env(VARIABLE, stub)
        .env("LD_LIBRARY_PATH", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    print!("{text}");
    false
}

/// The functions of a runtime that tests call.
pub(crate) struct TestRuntime {
    library: *mut c_void,
    hip: bool,
    option: (String, PathBuf),
}

impl TestRuntime {
    /// Opens the stand-in of this process, as its programs would.
    pub(crate) fn open(name: &str) -> Self {
        let (_, folder) = library_option(name);
        let hip = name == "hip";
        let file = if hip { "libamdhip64.so.6" } else { "libcuda.so.1" };
        let path = CString::new(folder.join(file).to_str().unwrap()).unwrap();
        // SAFETY: a C string.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        let runtime = Self { library, hip, option: library_option(name) };
        runtime.call("cuInit", "hipInit", [0; 4]);
        runtime.enter(0);
        runtime
    }

    /// Replaces the node of the stand-in by one of a specification. Nothing of the old one is used any more.
    pub(crate) fn restart(&self, spec: &str) {
        self.control("pathline_stub_restart", spec);
        self.call("cuInit", "hipInit", [0; 4]);
        self.enter(0);
    }

    /// Lets calls fail from now on, counted from here.
    pub(crate) fn inject(&self, faults: &str) {
        self.control("pathline_stub_inject", faults);
    }

    fn control(&self, name: &str, text: &str) {
        let text = CString::new(text).unwrap();
        type WithText = unsafe extern "C" fn(i32, *const c_char) -> i32;
        // SAFETY: a function of the stand-in with this signature.
        let code = unsafe {
            let call = std::mem::transmute::<*mut c_void, WithText>(self.symbol(name));
            call(i32::from(self.hip), text.as_ptr())
        };
        assert_eq!(code, 0, "{text:?}");
    }

    /// Calls of a function since the last [`Self::inject`].
    pub(crate) fn count(&self, cuda: &'static str, hip: &'static str) -> u64 {
        let name = CString::new(self.name(cuda, hip)).unwrap();
        type Named = unsafe extern "C" fn(i32, *const c_char) -> u64;
        // SAFETY: a function of the stand-in with this signature.
        unsafe {
            let call =
                std::mem::transmute::<*mut c_void, Named>(self.symbol("pathline_stub_calls"));
            call(i32::from(self.hip), name.as_ptr())
        }
    }

    /// The name of a function in this runtime.
    pub(crate) fn name(&self, cuda: &'static str, hip: &'static str) -> &'static str {
        if self.hip { hip } else { cuda }
    }

    /// Frees memory of a GPU; the status.
    pub(crate) fn free(&self, address: u64) -> i32 {
        self.status("cuMemFree_v2", "hipFree", [address, 0, 0, 0])
    }

    /// Enqueues a copy of the runtime.
    pub(crate) fn enqueue(&self, dst: u64, src: u64, bytes: usize, stream: usize) {
        let symbol = self.symbol(self.name("cuMemcpyAsync", "hipMemcpyAsync"));
        type Five = unsafe extern "C" fn(u64, u64, usize, u64, usize) -> i32;
        // SAFETY: CUDA has no kind of copy before the stream; surplus arguments are ignored.
        let code = unsafe {
            let call = std::mem::transmute::<*mut c_void, Five>(symbol);
            let fourth = if self.hip { 4 } else { stream as u64 };
            call(dst, src, bytes, fourth, stream)
        };
        assert_eq!(code, 0);
    }

    /// A node over it.
    pub(crate) fn node(&self, options: NodeOptions) -> CopyNode {
        let library = Some(self.option.clone());
        CopyNode::open(&NodeOptions { library, ..options }).unwrap()
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: an open library and a C string.
        let at = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        assert!(!at.is_null(), "{name:?}");
        at
    }

    fn status(&self, cuda: &str, hip: &str, arguments: [u64; 4]) -> i32 {
        let at = self.symbol(if self.hip { hip } else { cuda });
        type Four = unsafe extern "C" fn(u64, u64, u64, u64) -> i32;
        // SAFETY: all arguments are integers or pointers, and surplus ones are ignored.
        unsafe {
            let [a, b, c, d] = arguments;
            std::mem::transmute::<*mut c_void, Four>(at)(a, b, c, d)
        }
    }

    fn call(&self, cuda: &str, hip: &str, arguments: [u64; 4]) {
        assert_eq!(self.status(cuda, hip, arguments), 0, "{cuda}");
    }

    /// Makes a GPU current.
    pub(crate) fn enter(&self, gpu: u64) {
        let mut context = gpu;
        if !self.hip {
            let out = &raw mut context as u64;
            self.call("cuDevicePrimaryCtxRetain", "", [out, gpu, 0, 0]);
        }
        self.call("cuCtxSetCurrent", "hipSetDevice", [context, 0, 0, 0]);
    }

    /// Memory of the current GPU.
    pub(crate) fn device(&self, bytes: usize) -> u64 {
        let mut at = 0u64;
        let out = &raw mut at as u64;
        self.call("cuMemAlloc_v2", "hipMalloc", [out, bytes as u64, 0, 0]);
        at
    }

    /// Pinned memory with bytes that follow from their offset and a seed.
    pub(crate) fn pinned(&self, bytes: usize, seed: u8) -> &'static mut [u8] {
        let mut at = 0u64;
        let out = &raw mut at as u64;
        self.call("cuMemHostAlloc", "hipHostMalloc", [out, bytes as u64, 1, 0]);
        // SAFETY: new memory of that size, which tests do not free.
        let slice = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, bytes) };
        for (nth, byte) in slice.iter_mut().enumerate() {
            *byte = (nth as u8).wrapping_mul(31).wrapping_add((nth >> 12) as u8) ^ seed;
        }
        slice
    }

    /// Memory of the caller as page-locked; the status.
    pub(crate) fn register(&self, bytes: &[u8]) -> i32 {
        let range = [bytes.as_ptr() as u64, bytes.len() as u64, 1, 0];
        self.status("cuMemHostRegister_v2", "hipHostRegister", range)
    }

    /// Managed memory.
    pub(crate) fn managed(&self, bytes: usize) -> u64 {
        let mut at = 0u64;
        let out = &raw mut at as u64;
        self.call("cuMemAllocManaged", "hipMallocManaged", [out, bytes as u64, 1, 0]);
        at
    }

    /// A stream of the current GPU that is not ordered with the legacy one.
    pub(crate) fn stream(&self) -> usize {
        let mut at = 0usize;
        let out = &raw mut at as u64;
        self.call("cuStreamCreate", "hipStreamCreateWithFlags", [out, 1, 0, 0]);
        at
    }

    /// Waits for a stream; the status.
    pub(crate) fn wait(&self, stream: usize) -> i32 {
        // A call of the stand-in that waits keeps all others out, those of the worker too.
        loop {
            let query = ["cuStreamQuery", "hipStreamQuery"];
            match self.status(query[0], query[1], [stream as u64, 0, 0, 0]) {
                NOT_READY => std::thread::park_timeout(std::time::Duration::from_micros(200)),
                status => return status,
            }
        }
    }

    /// Whether a stream is idle.
    pub(crate) fn is_idle(&self, stream: usize) -> bool {
        self.status("cuStreamQuery", "hipStreamQuery", [stream as u64, 0, 0, 0]) == 0
    }

    /// Makes a stream wait until a word is not below a value.
    pub(crate) fn hold(&self, stream: usize, word: u64, value: u64) {
        self.call(
            "cuStreamWaitValue32_v2",
            "hipStreamWaitValue32",
            [stream as u64, word, value, 0],
        );
    }

    /// Begins to record a stream.
    pub(crate) fn capture(&self, stream: usize) {
        self.call("cuStreamBeginCapture_v2", "hipStreamBeginCapture", [stream as u64, 0, 0, 0]);
    }

    /// A plain copy that has ended.
    pub(crate) fn copy(&self, dst: u64, src: u64, bytes: usize) {
        let kind = 4;
        self.call("cuMemcpy", "hipMemcpy", [dst, src, bytes as u64, kind]);
    }

    /// The bytes at an address of a GPU.
    pub(crate) fn read(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0u8; bytes];
        self.copy(out.as_mut_ptr() as u64, at, bytes);
        out
    }
}

/// The option that names the stand-in of this process.
pub(crate) fn library_option(name: &str) -> (String, PathBuf) {
    (name.into(), std::env::var_os(FOLDER).unwrap().into())
}

/// The text of the last error.
pub(crate) fn last_error() -> String {
    let text: *const c_char = pathline::abi::pl_last_error();
    // SAFETY: a C string of the library.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A number as C has it.
pub(crate) fn number(n: i32) -> c_int {
    n
}
