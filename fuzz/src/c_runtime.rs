//! The stand-in for CUDA in this process, called by the names of its functions.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_void};
use std::ops::Range;
use std::path::{Path, PathBuf};

use pathline_stub::{StubLibraries, lay_out};

type FourNumbers = unsafe extern "C" fn(u64, u64, u64, u64) -> i32;
type WithText = unsafe extern "C" fn(i32, *const c_char) -> i32;

/// The stand-in library of this process.
pub(crate) struct StubRuntime {
    library: usize,
    /// `cuda=FOLDER`.
    pub(crate) option: CString,
    /// Where the library is.
    pub(crate) folder: PathBuf,
}

impl StubRuntime {
    /// Installs the stand-in next to this program, unless it is there, and opens it.
    pub(crate) fn open() -> std::io::Result<Self> {
        let program = std::env::current_exe()?;
        let parent = program.parent().unwrap_or(Path::new("."));
        let folder = parent.join("c-calls");
        std::fs::create_dir_all(&folder)?;
        let fresh = tempfile::tempdir_in(parent)?;
        lay_out(fresh.path(), &[StubLibraries::Cuda], &[])?;
        for entry in std::fs::read_dir(fresh.path())? {
            let (from, name) = entry.map(|e| (e.path(), e.file_name()))?;
            let to = folder.join(name);
            // A file that another process has open keeps its bytes.
            if std::fs::read(&to).ok() != Some(std::fs::read(&from)?) {
                std::fs::rename(&from, &to)?;
            }
        }
        let text = |path: &Path| CString::new(path.to_string_lossy().as_bytes());
        let file = text(&folder.join("libcuda.so.1"))?;
        // SAFETY: a C string; the library stays open.
        let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{file:?} cannot be opened");
        let option = CString::new(format!("cuda={}", folder.display()))?;
        Ok(Self { library: library as usize, option, folder })
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: an open library and a C string.
        let at = unsafe { libc::dlsym(self.library as *mut c_void, name.as_ptr()) };
        assert!(!at.is_null(), "{name:?} is missing");
        at
    }

    /// Calls a function of CUDA whose arguments are integers or pointers; the status.
    pub(crate) fn call(&self, name: &str, [a, b, c, d]: [u64; 4]) -> i32 {
        // SAFETY: surplus arguments are ignored.
        unsafe { std::mem::transmute::<*mut c_void, FourNumbers>(self.symbol(name))(a, b, c, d) }
    }

    /// The handle or address that a function of CUDA stores first; 0 if it fails.
    pub(crate) fn make(&self, name: &str, [b, c, d]: [u64; 3]) -> u64 {
        let mut made = 0u64;
        let status = self.call(name, [&raw mut made as u64, b, c, d]);
        if status == 0 { made } else { 0 }
    }

    /// Restarts the stand-in, or replaces its faults.
    pub(crate) fn control(&self, name: &str, text: &str) {
        let spec = CString::new(text).unwrap_or_default();
        // SAFETY: a function of the stand-in that takes a C string.
        let code = unsafe {
            std::mem::transmute::<*mut c_void, WithText>(self.symbol(name))(0, spec.as_ptr())
        };
        assert_eq!(code, 0, "{text}");
    }

    /// Virtual time, ns.
    pub(crate) fn now(&self) -> f64 {
        let at = self.symbol("pathline_stub_now");
        // SAFETY: the function has this signature.
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(i32) -> f64>(at)(0) }
    }
}

/// Memory that calls name, and what it should hold.
pub(crate) struct FuzzBuffer {
    pub(crate) name: String,
    pub(crate) address: u64,
    pub(crate) expected: Vec<u8>,
    /// Ranges whose bytes are not known: a copy into them failed.
    pub(crate) unknown: Vec<Range<usize>>,
    /// Its GPU: the runtime refuses what goes beyond its memory.
    pub(crate) gpu: Option<u64>,
}

/// A range of a buffer, or of nothing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FuzzEnd {
    /// Index of the buffer; none for null.
    pub(crate) buffer: Option<usize>,
    pub(crate) address: u64,
    pub(crate) range: Range<usize>,
}

impl FuzzBuffer {
    /// Its memory is gone.
    pub(crate) fn forget(&mut self) {
        self.expected.clear();
        self.unknown.clear();
        self.name.push('-');
    }
}

/// Whether two ranges share bytes.
pub(crate) fn meet(a: &FuzzEnd, b: &FuzzEnd) -> bool {
    a.buffer == b.buffer
        && a.buffer.is_some()
        && a.range.start < b.range.end
        && b.range.start < a.range.end
}

/// Pageable memory, at an address if that is free.
pub(crate) fn map(address: u64, bytes: usize) -> u64 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping; the address is a wish.
    let at = unsafe { libc::mmap(address as *mut c_void, bytes, access, how, -1, 0) };
    assert!(at != libc::MAP_FAILED, "no memory");
    at as u64
}
